/*
 * eager/holder/holder: one operator: its creation, its end, and its queries. Its calls are in holder_call.c.
 */
#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/options.h"
#include "base/text/name_distance.h"
#include "eager/dispatch/eager_face.h"
#include "eager/dispatch/schema/eager_face.h"
#include "eager/holder/dispatch_holder.h"
#include "eager/holder/holder_internal.h"

#include <string.h>

/* ---- which operators can be served ---- */

static bool is_tensor_list(const aoticache_type *type)
{
    return type->kind == AOTICACHE_TYPE_LIST && type->elements[0]->kind == AOTICACHE_TYPE_TENSOR;
}

/* Formats a type. A lower-case word that is not a type is a type variable in PyTorch's grammar; most are mistyped types. */
static void format_type(const aoticache_type *type, char ret_text[64], char ret_hint[AOTICACHE_HINT_BYTES])
{
    aoticache_type_format(type, ret_text, 64);
    aoticache_write_hint(type->kind == AOTICACHE_TYPE_VARIABLE ? aoticache_schema_nearest_type(ret_text) : NULL,
                         ret_hint);
}

/* Reads the returns of the schema. A library returns tensors: any number of single ones, or one list of them. */
static aoticache_status read_returns(aoticache_holder *holder, aoticache_error *ret_error)
{
    size_t count = holder->schema->return_count, news = 0;
    for (size_t i = 0; i < count; i++)
        news += !aoticache_holder_returns_argument(holder, i);
    holder->num_returns = news;
    if (count == 1 && news == 1 && is_tensor_list(holder->schema->returns[0].type)) {
        holder->returns = AOTICACHE_RETURNS_LIST;
        return AOTICACHE_OK;
    }
    for (size_t i = 0; i < count; i++) {
        const aoticache_type *type = holder->schema->returns[i].type;
        if (type->kind == AOTICACHE_TYPE_TENSOR || aoticache_holder_returns_argument(holder, i))
            continue;
        char text[64], hint[AOTICACHE_HINT_BYTES];
        format_type(type, text, hint);
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "%s: result %zu is %s, but kernel libraries return tensors%s", holder->op, i, text,
                                   hint);
    }
    if ((count == 0 && holder->written == 0) || holder->schema->is_varret)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "%s: it has no results, or a variable number of them", holder->op);
    return AOTICACHE_OK;
}

/* Returns true if some value of the type can be packed. For an optional argument, None can. */
static bool is_packable(const aoticache_type *type)
{
    switch (type->kind) {
    case AOTICACHE_TYPE_OPTIONAL:
        return true;
    case AOTICACHE_TYPE_LIST:
        return is_packable(type->elements[0]);
    default:
        return type->kind <= AOTICACHE_TYPE_MEMORY_FORMAT;
    }
}

static aoticache_status check_argument_types(const aoticache_holder *holder, aoticache_error *ret_error)
{
    for (size_t i = 0; i < holder->num_arguments; i++) {
        const aoticache_schema_argument *argument = &holder->schema->arguments[i];
        if (is_packable(argument->type))
            continue;
        char text[64], hint[AOTICACHE_HINT_BYTES];
        format_type(argument->type, text, hint);
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "%s: argument %zu (%s) is %s, which kernel libraries do not accept%s", holder->op, i,
                                   argument->name, text, hint);
    }
    return AOTICACHE_OK;
}

static aoticache_status check_schema(aoticache_holder *holder, const aoticache_holder_options *options,
                                     aoticache_error *ret_error)
{
    if (!holder->schema->has_signature || holder->schema->is_vararg)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "%s: it has a variable number of arguments",
                                   holder->op);
    aoticache_status status = check_argument_types(holder, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (options->in_place)
        return aoticache_holder_read_writes(holder, ret_error);
    if (options->allow_mutation)
        return AOTICACHE_OK;
    if (holder->schema->is_mutable || aoticache_holder_writes_silently(holder))
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "%s writes to its arguments (%.400s), but an ordinary kernel returns new "
                                   "tensors: set options.in_place with a hook that compiles kernels which write "
                                   "(the worker does), or serve the operator that returns a new tensor",
                                   holder->op, holder->schema_text);
    if (holder->schema->has_aliasing)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "%s returns a view of its argument (%.400s), but a compiled kernel would "
                                   "return a copy: leave it to the framework",
                                   holder->op, holder->schema_text);
    return AOTICACHE_OK;
}

/* ---- creation and end ---- */

static char *format_schema(const aoticache_schema *schema)
{
    size_t size = aoticache_schema_format(schema, NULL, 0) + 1;
    char *text = malloc(size);
    if (text != NULL)
        aoticache_schema_format(schema, text, size);
    return text;
}

static aoticache_status read_schema(aoticache_holder *holder, const aoticache_holder_options *options,
                                    aoticache_error *ret_error)
{
    holder->op = strdup(holder->schema->full_name);
    holder->schema_text = format_schema(holder->schema);
    holder->dispatch_key = options->dispatch_key != NULL ? strdup(options->dispatch_key) : NULL;
    holder->num_arguments = holder->schema->argument_count;
    holder->defaults = aoticache_default_values_create(holder->schema);
    if (holder->op == NULL || holder->schema_text == NULL || holder->defaults == NULL ||
        (options->dispatch_key != NULL && holder->dispatch_key == NULL))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a holder");
    aoticache_status status = check_schema(holder, options, ret_error);
    return status == AOTICACHE_OK ? read_returns(holder, ret_error) : status;
}

static void add_to_context(aoticache_holder *holder)
{
    aoticache_context *context = holder->context;
    pthread_mutex_lock(&context->lock);
    holder->next = context->holders;
    holder->link = &context->holders;
    if (holder->next != NULL)
        holder->next->link = &holder->next;
    context->holders = holder;
    pthread_mutex_unlock(&context->lock);
}

static void remove_from_context(aoticache_holder *holder)
{
    /*
     * The lock is also needed to check whether the holder is in the list at all: its neighbours write its link when they leave.
     */
    pthread_mutex_lock(&holder->context->lock);
    if (holder->link != NULL) {
        *holder->link = holder->next;
        if (holder->next != NULL)
            holder->next->link = holder->link;
    }
    pthread_mutex_unlock(&holder->context->lock);
}

static atomic_uint_least64_t serials = 1;

aoticache_status aoticache_holder_create(aoticache_context *context, const aoticache_holder_options *options,
                                         aoticache_holder **ret_holder, aoticache_error *ret_error)
{
    aoticache_holder_options chosen;
    aoticache_status status =
        AOTICACHE_OPTIONS_READ(aoticache_holder_options, AOTICACHE_HOLDER_OPTIONS_INIT, options, &chosen, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (context == NULL || ret_holder == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, context, ret_holder);
    if (chosen.schema == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "aoticache_holder_create: options.schema is NULL; it names the operator: "
                                   "\"aten::abs(Tensor self) -> Tensor\"");
    aoticache_holder *holder = calloc(1, sizeof *holder);
    if (holder == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a holder");
    holder->context = context;
    holder->serve_requires_grad = context->serve_requires_grad;
    holder->dynamic = chosen.dynamic != NULL ? *chosen.dynamic : context->dynamic;
    holder->fallback = chosen.fallback;
    holder->fallback_user = chosen.fallback_user;
    holder->device = chosen.device;
    holder->judges = context->judge && chosen.fallback != NULL && chosen.device.type == AOTICACHE_DEVICE_TYPE_CPU;
    holder->serial = atomic_fetch_add(&serials, 1);
    holder->lost = aoticache_call_counts_open();
    atomic_init(&holder->references, 1);
    pthread_mutex_init(&holder->load_lock, NULL);
    pthread_mutex_init(&holder->lock, NULL);
    status = aoticache_schema_parse(chosen.schema, &holder->schema, ret_error);
    if (status == AOTICACHE_OK)
        status = read_schema(holder, &chosen, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_holder_unref(holder);
        return status;
    }
    add_to_context(holder);
    aoticache_holder_fill(holder);
    *ret_holder = holder;
    return AOTICACHE_OK;
}

aoticache_holder *aoticache_holder_ref(aoticache_holder *holder)
{
    atomic_fetch_add_explicit(&holder->references, 1, memory_order_relaxed);
    return holder;
}

static void free_states(aoticache_holder *holder)
{
    for (aoticache_known_kernel *known = holder->known_kernels, *next; known != NULL; known = next) {
        next = known->next;
        aoticache_call_counts_close(known->number);
        aoticache_check_free(known->check);
        for (uint32_t i = 0; i < known->verdict_count; i++)
            free(known->verdicts[i].trial);
        free(known);
    }
    for (aoticache_miss_state *state = holder->miss_states, *next; state != NULL; state = next) {
        next = state->next;
        free(state->message);
        free(state);
    }
    for (aoticache_dynamic_state *state = holder->dynamic_states, *next; state != NULL; state = next) {
        next = state->next;
        free(atomic_load(&state->list));
        free(state);
    }
}

/* Drops a reference. The last one frees the holder: no thread is inside. Memory retired earlier waits for its own readers. */
void aoticache_holder_unref(aoticache_holder *holder)
{
    if (holder == NULL || atomic_fetch_sub_explicit(&holder->references, 1, memory_order_acq_rel) != 1)
        return;
    int saved = errno;
    remove_from_context(holder);
    aoticache_holder_flush(holder);
    aoticache_holder_unload_all(holder);
    aoticache_table_free(&holder->table);
    aoticache_table_free(&holder->misses);
    aoticache_table_free(&holder->dynamic_requests);
    free_states(holder);
    aoticache_epoch_reclaim();
    aoticache_default_values_free(holder->defaults, holder->num_arguments);
    free(holder->numbers);
    aoticache_schema_free(holder->schema);
    aoticache_call_counts_close(holder->lost);
    pthread_mutex_destroy(&holder->load_lock);
    pthread_mutex_destroy(&holder->lock);
    free(holder->op);
    free(holder->schema_text);
    free(holder->dispatch_key);
    free(holder);
    errno = saved;
}

/* ---- queries ---- */

const char *aoticache_holder_schema(const aoticache_holder *holder)
{
    return holder->schema_text;
}

aoticache_status aoticache_holder_push_defaults(const aoticache_holder *holder, size_t given, aoticache_stack *stack,
                                                aoticache_error *ret_error)
{
    size_t count = holder->num_arguments;
    if (given > count || stack->count + (count - given) > stack->capacity)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s: takes %zu arguments; %zu were passed, and the stack has space for %zu",
                                   holder->op, count, given, stack->capacity);
    for (size_t i = given; i < count; i++)
        if (holder->defaults[i].kind == AOTICACHE_VALUE_OTHER)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "%s: argument %zu (%s) is missing and has no default", holder->op, i,
                                       holder->schema->arguments[i].name);
    for (size_t i = given; i < count; i++)
        stack->values[stack->count++] = holder->defaults[i];
    return AOTICACHE_OK;
}

/* ---- counts ---- */

static uint64_t read_count(const atomic_uint_least64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

static void count_verdict(const aoticache_verdict *verdict, aoticache_holder_counts *counts)
{
    int state = atomic_load(&verdict->state);
    counts->on_trial += state == AOTICACHE_VERDICT_TRIAL;
    counts->judged_slower += state == AOTICACHE_VERDICT_SLOWER;
    counts->judged += state == AOTICACHE_VERDICT_SLOWER || state == AOTICACHE_VERDICT_FASTER;
}

/* Returns the time saved by a hit of a faster kernel; for a dynamic one the least of its classes. Under holder->lock. */
static uint64_t gain_of_hit(const aoticache_known_kernel *known)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < known->verdict_count; i++) {
        const aoticache_verdict *verdict = &known->verdicts[i];
        if (atomic_load(&verdict->state) != AOTICACHE_VERDICT_FASTER)
            continue;
        uint64_t gain = verdict->fallback_ns > verdict->kernel_ns ? verdict->fallback_ns - verdict->kernel_ns : 0;
        least = gain < least ? gain : least;
    }
    return least < UINT64_MAX ? least : 0;
}

void aoticache_holder_get_counts(const aoticache_holder *holder, aoticache_holder_counts *ret_counts)
{
    aoticache_holder *mine = (aoticache_holder *)holder; /* only the locks are changed */
    aoticache_holder_counts counts = {.hits = 0};
    pthread_mutex_lock(&mine->lock);
    for (const aoticache_known_kernel *known = holder->known_kernels; known != NULL; known = known->next) {
        uint64_t uses = aoticache_call_counts_read(known->number);
        counts.hits += uses;
        counts.hits_dynamic += known->check != NULL ? uses : 0;
        counts.gained_ns += holder->judges ? uses * gain_of_hit(known) : 0;
        counts.loaded += atomic_load(&known->runner) != NULL;
        for (uint32_t i = 0; i < known->verdict_count; i++)
            count_verdict(&known->verdicts[i], &counts);
    }
    counts.entries = holder->table.used;
    counts.libraries = holder->known_count;
    pthread_mutex_unlock(&mine->lock);
    counts.loads = read_count(&holder->loads);
    counts.misses = read_count(&holder->misses_count);
    counts.compiles = read_count(&holder->compiles);
    counts.compile_failures = read_count(&holder->compile_failures);
    uint64_t at_once = aoticache_call_counts_read(holder->lost);
    counts.calls_lost = at_once + read_count(&holder->left);
    counts.fallbacks = read_count(&holder->fallbacks) + at_once;
    counts.queued = read_count(&holder->queued);
    counts.dropped = read_count(&holder->dropped);
    counts.dynamic_refused = read_count(&holder->dynamic_refused);
    *ret_counts = counts;
}
