/*
 * eager/torch/binding: bindings and the operators they enable: checks before an operator is registered with PyTorch, and the
 * order of enabling and disabling.
 */
#include "base/arguments.h"
#include "base/options.h"
#include "eager/torch/binding.h"
#include "eager/torch/torch_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* ---- the binding ---- */

static aoticache_status read_options(const aoticache_binding_options *options, aoticache_binding_options *ret_options,
                                     aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OPTIONS_READ(aoticache_binding_options, AOTICACHE_BINDING_OPTIONS_INIT, options,
                                                     ret_options, ret_error);
    if (status == AOTICACHE_OK && (ret_options->context == NULL || ret_options->bridge == NULL))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_binding_create: options.%s is NULL",
                                   ret_options->context == NULL ? "context" : "bridge");
    return status;
}

aoticache_status aoticache_binding_create(const aoticache_binding_options *options, aoticache_binding **ret_binding,
                                          aoticache_error *ret_error)
{
    aoticache_binding_options all;
    aoticache_status status = read_options(options, &all, ret_error);
    if (status == AOTICACHE_OK && ret_binding == NULL)
        status = AOTICACHE_REFUSE_NULL(ret_error, ret_binding);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_binding *binding = calloc(1, sizeof *binding);
    if (binding == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a binding");
    binding->context = all.context;
    pthread_mutex_init(&binding->lock, NULL);
    status = aoticache_binding_open_bridge(all.bridge, &binding->bridge, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_binding_free(binding);
        return status;
    }
    *ret_binding = binding;
    return AOTICACHE_OK;
}

static aoticache_binding_operator *first_operator(aoticache_binding *binding)
{
    pthread_mutex_lock(&binding->lock);
    aoticache_binding_operator *op = binding->operators;
    pthread_mutex_unlock(&binding->lock);
    return op;
}

void aoticache_binding_free(aoticache_binding *binding)
{
    if (binding == NULL)
        return;
    int saved = errno;
    for (aoticache_binding_operator *op; (op = first_operator(binding)) != NULL;)
        aoticache_binding_disable(op);
    pthread_mutex_destroy(&binding->lock);
    free(binding);
    errno = saved;
}

/* ---- requirements of operators ---- */

static aoticache_status read_operator_options(const aoticache_binding_operator_options *options,
                                              aoticache_binding_operator_options *ret_options,
                                              aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OPTIONS_READ(
        aoticache_binding_operator_options, AOTICACHE_BINDING_OPERATOR_OPTIONS_INIT, options, ret_options, ret_error);
    if (status == AOTICACHE_OK && (ret_options->schema == NULL || ret_options->dispatch_key == NULL))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_binding_enable: options.%s is NULL",
                                   ret_options->schema == NULL ? "schema" : "dispatch_key");
    return status;
}

static bool is_of_tensor(const aoticache_type *type)
{
    while (type->kind == AOTICACHE_TYPE_OPTIONAL || type->kind == AOTICACHE_TYPE_LIST)
        type = type->elements[0];
    return type->kind == AOTICACHE_TYPE_TENSOR;
}

/* Checks the arguments: the dispatcher chooses a kernel by tensors, so without any it never calls one for a device. */
static aoticache_status check_arguments(const aoticache_schema *schema, aoticache_error *ret_error)
{
    for (size_t i = 0; i < schema->argument_count; i++)
        if (is_of_tensor(schema->arguments[i].type))
            return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "%.200s has no tensor arguments: the cache cannot make it faster", schema->full_name);
}

static aoticache_status make_holder(aoticache_binding_operator *op, const aoticache_binding_operator_options *options,
                                    aoticache_error *ret_error)
{
    aoticache_holder_options chosen = AOTICACHE_HOLDER_OPTIONS_INIT;
    chosen.schema = options->schema;
    chosen.dispatch_key = options->dispatch_key;
    chosen.device = options->device;
    chosen.dynamic = options->dynamic;
    chosen.fallback = aoticache_binding_want_fallback;
    chosen.in_place = true;
    aoticache_status status = aoticache_holder_create(op->binding->context, &chosen, &op->holder, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    op->holder->num_threads = aoticache_binding_num_threads;
    op->holder->num_threads_user = op->binding;
    return AOTICACHE_OK;
}

static void set_checks(aoticache_binding_operator *op)
{
    op->settings = op->binding->bridge.settings;
    op->asks_deterministic = aoticache_binding_asks_deterministic(op->holder);
    op->precheck = aoticache_precheck_find(op->holder);
    op->plain_arguments = op->precheck == NULL && op->holder->written == 0 ? op->holder->num_arguments : SIZE_MAX;
}

/* Makes all checks that are possible before registering with PyTorch. */
static aoticache_status prepare_operator(aoticache_binding_operator *op,
                                         const aoticache_binding_operator_options *options, aoticache_error *ret_error)
{
    aoticache_status status = make_holder(op, options, ret_error);
    if (status == AOTICACHE_OK)
        status = check_arguments(op->holder->schema, ret_error);
    if (status == AOTICACHE_OK)
        set_checks(op);
    if (status == AOTICACHE_OK)
        status =
            aoticache_registration_acquire(op->holder->schema, options->dispatch_key, &op->registration, ret_error);
    return status;
}

/* Registers with PyTorch. Calls may arrive before this returns. */
static aoticache_status register_with_torch(aoticache_binding_operator *op, aoticache_error *ret_error)
{
    char message[sizeof ret_error->message] = "";
    atomic_store(&op->registration->op, op);
    aoticache_status status = op->binding->bridge.enable(
        op->registration->name, op->registration->overload, aoticache_holder_schema(op->holder),
        op->registration->dispatch_key, op->registration, &op->torch_registration, message, sizeof message);
    return status == AOTICACHE_OK ? AOTICACHE_OK : aoticache_error_set(ret_error, status, "%s", message);
}

/* ---- enabling and disabling ---- */

static void add_to_binding(aoticache_binding_operator *op)
{
    aoticache_binding *binding = op->binding;
    pthread_mutex_lock(&binding->lock);
    op->next = binding->operators;
    op->link = &binding->operators;
    if (op->next != NULL)
        op->next->link = &op->next;
    binding->operators = op;
    pthread_mutex_unlock(&binding->lock);
}

static void remove_from_binding(aoticache_binding_operator *op)
{
    if (op->link == NULL)
        return;
    pthread_mutex_lock(&op->binding->lock);
    *op->link = op->next;
    if (op->next != NULL)
        op->next->link = op->link;
    pthread_mutex_unlock(&op->binding->lock);
}

/*
 * Waits until every call that found an operator before it was removed has left its epoch or has a reference. False: this
 * thread is itself inside an epoch (a kernel library has led here) and cannot wait: the operator is kept, unused.
 */
static bool wait_for_epochs(void)
{
    if (aoticache_epoch_mine != NULL && aoticache_epoch_mine->depth > 0)
        return false;
    aoticache_epoch_synchronize();
    return true;
}

/* Waits for calls, except those of this thread, which would wait for itself. */
static void wait_for_calls(const aoticache_binding_operator *op)
{
    if (aoticache_binding_is_inside(op))
        return;
    for (long wait_ns = 1000; atomic_load(&op->references) > 1; wait_ns = wait_ns < 1000000 ? 2 * wait_ns : wait_ns)
        nanosleep(&(struct timespec){.tv_nsec = wait_ns}, NULL);
}

aoticache_status aoticache_binding_enable(aoticache_binding *binding, const aoticache_binding_operator_options *options,
                                          aoticache_binding_operator **ret_operator, aoticache_error *ret_error)
{
    aoticache_binding_operator_options all;
    aoticache_status status = read_operator_options(options, &all, ret_error);
    if (status == AOTICACHE_OK && (binding == NULL || ret_operator == NULL))
        status = AOTICACHE_REFUSE_NULL(ret_error, binding, ret_operator);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_binding_operator *op = calloc(1, sizeof *op);
    if (op != NULL)
        op->ready = aoticache_call_counts_open();
    if (op == NULL || op->ready == 0) {
        free(op);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for an operator");
    }
    op->binding = binding;
    atomic_init(&op->references, 1);
    status = prepare_operator(op, &all, ret_error);
    if (status == AOTICACHE_OK)
        status = register_with_torch(op, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_binding_disable(op);
        return status;
    }
    add_to_binding(op);
    *ret_operator = op;
    return AOTICACHE_OK;
}

/* Also ends an operator that was only partly enabled. */
void aoticache_binding_disable(aoticache_binding_operator *op)
{
    if (op == NULL)
        return;
    int saved = errno;
    bool is_left = true;
    remove_from_binding(op);
    if (op->torch_registration != NULL)
        op->binding->bridge.disable(op->torch_registration);
    if (op->registration != NULL) {
        atomic_store(&op->registration->op, NULL);
        is_left = wait_for_epochs();
        aoticache_registration_release(op->registration);
        wait_for_calls(op);
    }
    if (is_left)
        aoticache_binding_operator_unref(op);
    errno = saved;
}

void aoticache_binding_get_counts(const aoticache_binding_operator *op, aoticache_binding_counts *ret_counts)
{
    aoticache_binding_counts counts = {.refused = atomic_load_explicit(&op->refused, memory_order_relaxed)};
    aoticache_holder_get_counts(op->holder, &counts.holder);
    uint64_t passed = atomic_load_explicit(&op->bypassed, memory_order_relaxed);
    if (op->torch_registration != NULL)
        passed += op->binding->bridge.bypassed_now(op->torch_registration);
    uint64_t turns = atomic_load_explicit(&op->turns, memory_order_relaxed);
    counts.holder.fallbacks += passed + turns;
    counts.holder.calls_lost += passed;
    counts.calls = counts.refused + aoticache_call_counts_read(op->ready) +
                   aoticache_call_counts_read(op->holder->lost) + passed + turns +
                   atomic_load_explicit(&op->slow, memory_order_relaxed) +
                   atomic_load_explicit(&op->spared, memory_order_relaxed);
    *ret_counts = counts;
}
