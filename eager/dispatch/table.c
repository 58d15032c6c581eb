/*
 * eager/dispatch/table: chooses the kernel of each entry of an operator's table, and creates the table.
 *
 * Owns the order of precedence (OperatorEntry::computeDispatchTableEntry's counterpart) and the masks of keys that fall
 * through (DispatchKeyExtractor). operator.c decides when tables are created and replaced.
 */
#include "eager/dispatch/dispatch_internal.h"

#include "eager/dispatch/dispatch_key.h"
#include "eager/dispatch/keys.h"

#include <stdlib.h>
#include <string.h>

/* ---- constant data of an entry ---- */

typedef enum alias_bit {
    ALIAS_EXPLICIT_NON_FUNCTIONAL = 1,
    ALIAS_EXPLICIT = 2,
    ALIAS_IMPLICIT_NESTED = 4,
    ALIAS_IMPLICIT = 8,
    ALIAS_AUTOGRAD = 16,
    ALIAS_BATCHED = 32,
} alias_bit;

typedef struct place {
    aoticache_dispatch_key key;
    uint32_t aliases;           /* aliases that stand for the key */
    aoticache_key_set backends; /* for an autograd key: its backends; otherwise empty */
    aoticache_key_set functionality_bit;
    int32_t backend; /* -1: its functionality has no kernels per backend */
} place;

static place places[AOTICACHE_DISPATCH_ENTRIES];
static pthread_once_t places_once = PTHREAD_ONCE_INIT;

static uint32_t aliases_of(aoticache_dispatch_key key)
{
    static const struct {
        aoticache_dispatch_key alias;
        uint32_t bit;
    } all[] = {
        {AOTICACHE_DISPATCH_KEY_CompositeExplicitAutogradNonFunctional, ALIAS_EXPLICIT_NON_FUNCTIONAL},
        {AOTICACHE_DISPATCH_KEY_CompositeExplicitAutograd, ALIAS_EXPLICIT},
        {AOTICACHE_DISPATCH_KEY_CompositeImplicitAutogradNestedTensor, ALIAS_IMPLICIT_NESTED},
        {AOTICACHE_DISPATCH_KEY_CompositeImplicitAutograd, ALIAS_IMPLICIT},
        {AOTICACHE_DISPATCH_KEY_Autograd, ALIAS_AUTOGRAD},
        {AOTICACHE_DISPATCH_KEY_FuncTorchBatchedDecomposition, ALIAS_BATCHED},
    };
    uint32_t bits = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (aoticache_dispatch_key_in_alias(key, all[i].alias))
            bits |= all[i].bit;
    /* No set can contain Undefined, so no alias does; but calls without tensors use composite kernels. */
    if (key == AOTICACHE_DISPATCH_KEY_Undefined)
        bits |= ALIAS_EXPLICIT_NON_FUNCTIONAL | ALIAS_EXPLICIT | ALIAS_IMPLICIT;
    return bits;
}

static void fill_places(void)
{
    for (int32_t i = 0; i < AOTICACHE_DISPATCH_ENTRIES; i++) {
        place *at = &places[i];
        at->key = aoticache_dispatch_key_of_entry(i);
        at->aliases = aliases_of(at->key);
        at->backends = aoticache_key_set_backends_of_autograd(at->key);
        at->functionality_bit = aoticache_key_set_of(aoticache_dispatch_key_functionality(at->key));
        at->backend = aoticache_dispatch_key_backend(at->key);
    }
}

/* ---- precedence ---- */

/* The newest kernel for each key, and the key sets of the keys with kernels, except aliases. */
typedef struct kernel_index {
    const aoticache_op_kernel *newest[AOTICACHE_DISPATCH_KEY_COUNT];
    aoticache_key_set keys[AOTICACHE_DISPATCH_KEY_COUNT];
    size_t key_count;
} kernel_index;

/* Fills the index. without: NULL, or a kernel to leave out, together with newer ones of its key. */
static void index_kernels(const aoticache_op_kernel *kernels, const aoticache_op_kernel *without, kernel_index *index)
{
    bool hidden = without != NULL;
    memset(index->newest, 0, sizeof index->newest);
    index->key_count = 0;
    for (const aoticache_op_kernel *kernel = kernels; kernel != NULL; kernel = kernel->older) {
        bool leave_out = hidden && kernel->key == without->key;
        hidden &= kernel != without;
        if (leave_out || index->newest[kernel->key] != NULL)
            continue;
        index->newest[kernel->key] = kernel;
        if (!aoticache_dispatch_key_is_alias(kernel->key))
            index->keys[index->key_count++] = aoticache_key_set_of(kernel->key);
    }
}

static bool has_any(const kernel_index *index, aoticache_key_set set)
{
    for (size_t i = 0; i < index->key_count; i++)
        if ((set & index->keys[i]) == index->keys[i])
            return true;
    return false;
}

#define CHOOSE(key, why)                                                                 \
    do {                                                                                 \
        const aoticache_op_kernel *chosen = index->newest[AOTICACHE_DISPATCH_KEY_##key]; \
        if (chosen != NULL)                                                              \
            return (aoticache_op_choice){chosen, why};                                   \
    } while (0)

/* Chooses composite implicit kernels. The one for all backends does not serve autograd keys whose backend has its own kernel. */
static aoticache_op_choice choose_implicit(const kernel_index *index, const place *at)
{
    bool has_backend_kernel =
        has_any(index, at->backends) || index->newest[AOTICACHE_DISPATCH_KEY_CompositeExplicitAutograd] != NULL;
    if ((at->aliases & ALIAS_IMPLICIT_NESTED) != 0)
        CHOOSE(CompositeImplicitAutogradNestedTensor, "nested kernel");
    if ((at->aliases & ALIAS_IMPLICIT) == 0 || index->newest[AOTICACHE_DISPATCH_KEY_CompositeImplicitAutograd] == NULL)
        return (aoticache_op_choice){NULL, NULL};
    /* One autograd key stands for several backends here: whose kernel is meant, theirs or the composite? */
    if (at->key == AOTICACHE_DISPATCH_KEY_AutogradOther && has_any(index, aoticache_key_set_autogradother_backends()))
        return (aoticache_op_choice){&aoticache_op_kernel_ambiguous, "ambiguous autogradother"};
    if (!has_backend_kernel)
        CHOOSE(CompositeImplicitAutograd, "math kernel");
    return (aoticache_op_choice){NULL, NULL};
}

static aoticache_op_choice choose_own(const kernel_index *index, const place *at)
{
    if (index->newest[at->key] != NULL)
        return (aoticache_op_choice){index->newest[at->key], "kernel"};
    if ((at->aliases & ALIAS_EXPLICIT_NON_FUNCTIONAL) != 0)
        CHOOSE(CompositeExplicitAutogradNonFunctional, "default backend kernel");
    if ((at->aliases & ALIAS_EXPLICIT) != 0)
        CHOOSE(CompositeExplicitAutograd, "default backend kernel");
    aoticache_op_choice implicit = choose_implicit(index, at);
    if (implicit.kernel != NULL)
        return implicit;
    if ((at->aliases & ALIAS_AUTOGRAD) != 0)
        CHOOSE(Autograd, "autograd kernel");
    if ((at->aliases & ALIAS_BATCHED) != 0)
        CHOOSE(FuncTorchBatchedDecomposition, "batched kernel");
    return (aoticache_op_choice){NULL, NULL};
}

static const char fallback_reason[] = "backend fallback";

static aoticache_op_choice choose(const aoticache_dispatcher *dispatcher, const kernel_index *index, int32_t entry)
{
    aoticache_op_choice choice = choose_own(index, &places[entry]);
    if (choice.kernel != NULL)
        return choice;
    return (aoticache_op_choice){atomic_load_explicit(&dispatcher->fallbacks[entry], memory_order_relaxed),
                                 fallback_reason};
}

static void choose_all(const aoticache_dispatcher *dispatcher, const kernel_index *index,
                       aoticache_op_choice *ret_choices)
{
    for (int32_t i = 0; i < AOTICACHE_DISPATCH_ENTRIES; i++)
        ret_choices[i] = choose(dispatcher, index, i);
}

void aoticache_op_table_choose(const aoticache_dispatcher *dispatcher, const aoticache_op_kernel *kernels,
                               aoticache_op_choice *ret_choices)
{
    kernel_index index;
    pthread_once(&places_once, fill_places);
    index_kernels(kernels, NULL, &index);
    choose_all(dispatcher, &index, ret_choices);
}

/* ---- keys that fall through ---- */

/*
 * Fills in the masks. If a key falls through for one backend only, the other backends still need the functionality's bit, so
 * one mask is not enough; PyTorch makes the same distinction. Returns whether the backends differ.
 */
static bool fill_masks(const aoticache_op_choice *choices, aoticache_key_set *ret_mask,
                       aoticache_key_set *ret_by_backend)
{
    aoticache_key_set everywhere = aoticache_key_set_full();
    bool differ = false;
    for (int32_t b = 0; b < AOTICACHE_DISPATCH_BACKENDS; b++)
        ret_by_backend[b] = everywhere;
    for (int32_t i = 0; i < AOTICACHE_DISPATCH_ENTRIES; i++) {
        if (choices[i].kernel == NULL || !choices[i].kernel->is_fallthrough)
            continue;
        for (int32_t b = 0; b < AOTICACHE_DISPATCH_BACKENDS; b++)
            if (places[i].backend < 0 || places[i].backend == b)
                ret_by_backend[b] &= ~places[i].functionality_bit;
    }
    for (int32_t b = 1; b < AOTICACHE_DISPATCH_BACKENDS; b++)
        differ |= ret_by_backend[b] != ret_by_backend[0];
    *ret_mask = ret_by_backend[0];
    return differ;
}

/* ---- tables ---- */

/* The following functions run for a call that no kernel can answer. */

/* Helpers that write the names of the operator's keys, each once, to the caller's buffer for the message. */
static bool is_listed(const aoticache_op_table *table, uint32_t target)
{
    for (uint32_t i = 1; i < target; i++)
        if (table->targets[i].key == table->targets[target].key && !table->targets[i].is_fallback)
            return true;
    return false;
}

static void list_keys(const aoticache_op_table *table, char *text, size_t size)
{
    size_t length = 0;
    *text = '\0';
    for (uint32_t i = 1; i < table->target_count && length + 1 < size; i++) {
        if (table->targets[i].key < 0 || table->targets[i].is_fallback || is_listed(table, i))
            continue;
        const char *name = aoticache_dispatch_key_name(table->targets[i].key);
        size_t wanted = strlen(name) + (length > 0 ? 2 : 0);
        if (length + wanted + 6 > size) {
            memcpy(text + length, ", ...", 6);
            return;
        }
        if (length > 0)
            memcpy(text + length, ", ", 2);
        memcpy(text + length + wanted - strlen(name), name, strlen(name) + 1);
        length += wanted;
    }
}

/* Runs inside the epoch of the call, so the table may be read. */
static aoticache_status report_missing(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                       aoticache_stack *stack, aoticache_error *ret_error)
{
    (void)user, (void)stack;
    char have[512];
    const aoticache_op_table *table = atomic_load(&op->table);
    list_keys(table, have, sizeof have);
    const char *none = keys == 0 || aoticache_key_set_highest(keys) == AOTICACHE_DISPATCH_KEY_Undefined
                           ? " (no argument is a tensor with a key)"
                           : "";
    return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%s: no kernel for %s%s; there are kernels for: %s",
                               op->name, aoticache_dispatch_key_name(aoticache_key_set_highest(keys)), none,
                               *have != '\0' ? have : "none");
}

static aoticache_status report_ambiguous(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                         aoticache_stack *stack, aoticache_error *ret_error)
{
    (void)user, (void)keys, (void)stack;
    return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                               "%s: the kernel for AutogradOther is ambiguous: there is a "
                               "CompositeImplicitAutograd kernel, and a kernel for a backend that shares this "
                               "key; register a kernel for AutogradOther, or a composite kernel for that "
                               "backend",
                               op->name);
}

const aoticache_op_kernel aoticache_op_kernel_ambiguous = {
    .call = report_ambiguous, .debug = "ambiguous_autogradother", .key = -1};

static aoticache_status report_exhausted(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                         aoticache_stack *stack, aoticache_error *ret_error)
{
    (void)user, (void)keys, (void)stack;
    return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY,
                               "%s: its table could not be built, because memory ran out when a kernel was "
                               "unregistered; the next registration builds it",
                               op->name);
}

static aoticache_status report_gone(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                    aoticache_stack *stack, aoticache_error *ret_error)
{
    (void)user, (void)keys, (void)stack;
    return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%s is no longer defined", op->name);
}

/* A static table: every entry reports the same error. */
typedef union static_table {
    aoticache_op_table table;
    char bytes[sizeof(aoticache_op_table) + sizeof(aoticache_op_target)];
} static_table;

static static_table exhausted, gone;
static pthread_once_t static_tables_once = PTHREAD_ONCE_INIT;

static void make_static_table(static_table *made, aoticache_boxed_fn report)
{
    made->table.mask = aoticache_key_set_full();
    made->table.target_count = 1;
    made->table.targets[0] = (aoticache_op_target){.call = report, .key = -1};
}

static void make_static_tables(void)
{
    make_static_table(&exhausted, report_exhausted);
    make_static_table(&gone, report_gone);
}

aoticache_op_table *aoticache_op_table_exhausted(void)
{
    pthread_once(&static_tables_once, make_static_tables);
    return &exhausted.table;
}

aoticache_op_table *aoticache_op_table_gone(void)
{
    pthread_once(&static_tables_once, make_static_tables);
    return &gone.table;
}

/*
 * The targets up to now. Their numbers have eight bits. Each entry and each key counts at most once. Targets below kernels with
 * wants_previous are added until no numbers are left; further such kernels find nothing below them.
 */
enum { MAX_TARGETS = 255 };

_Static_assert(AOTICACHE_DISPATCH_KEY_COUNT + 3 < MAX_TARGETS, "target numbers fit eight bits");

typedef struct target_list {
    const aoticache_op_kernel *kernels[MAX_TARGETS];
    bool is_fallback[MAX_TARGETS];
    uint8_t previous[MAX_TARGETS];
    uint32_t count;
} target_list;

static uint32_t add_target(target_list *list, const aoticache_op_kernel *kernel, bool is_fallback)
{
    for (uint32_t i = list->count; i-- > 1;)
        if (list->kernels[i] == kernel)
            return i;
    if (list->count == MAX_TARGETS)
        return 0;
    list->kernels[list->count] = kernel;
    list->is_fallback[list->count] = is_fallback;
    list->previous[list->count] = 0;
    return list->count++;
}

/* Adds previous targets. The list grows during the iteration: a target below may itself want its previous one. */
static void add_previous(target_list *list, const aoticache_dispatcher *dispatcher, const aoticache_op_kernel *kernels)
{
    kernel_index index;
    for (uint32_t i = 1; i < list->count; i++) {
        const aoticache_op_kernel *kernel = list->kernels[i];
        int32_t entry = kernel->key >= 0 ? aoticache_dispatch_key_entry(kernel->key) : -1;
        if (!kernel->wants_previous || list->is_fallback[i] || entry < 0)
            continue;
        index_kernels(kernels, kernel, &index);
        aoticache_op_choice below = choose(dispatcher, &index, entry);
        if (below.kernel != NULL)
            list->previous[i] = (uint8_t)add_target(list, below.kernel, below.reason == fallback_reason);
    }
}

/* Adds targets of keys that no entry uses, for calls of exactly that key. */
static void add_unchosen(target_list *list, const kernel_index *index, const aoticache_op_kernel *kernels)
{
    for (const aoticache_op_kernel *kernel = kernels; kernel != NULL; kernel = kernel->older)
        if (index->newest[kernel->key] == kernel)
            add_target(list, kernel, false);
}

/* Adds kernels with newer ones for their key, which may call them as computed kernels: they, too, may call the one below. */
static void add_overridden(target_list *list, const aoticache_op_kernel *kernels)
{
    for (const aoticache_op_kernel *kernel = kernels; kernel != NULL; kernel = kernel->older)
        if (kernel->wants_previous)
            add_target(list, kernel, false);
}

static aoticache_op_table *allocate(uint32_t targets, bool by_backend)
{
    size_t size = sizeof(aoticache_op_table) + targets * sizeof(aoticache_op_target);
    aoticache_op_table *table =
        malloc(size + (by_backend ? AOTICACHE_DISPATCH_BACKENDS * sizeof(aoticache_key_set) : 0));
    if (table != NULL) {
        table->target_count = targets;
        table->backend_mask = by_backend ? (const aoticache_key_set *)(const void *)((char *)table + size) : NULL;
    }
    return table;
}

static void fill_targets(aoticache_op_table *table, const target_list *list)
{
    table->targets[0] = (aoticache_op_target){.call = report_missing, .key = -1};
    for (uint32_t i = 1; i < list->count; i++)
        table->targets[i] = (aoticache_op_target){.call = list->kernels[i]->call,
                                                  .user = list->kernels[i]->user,
                                                  .key = list->kernels[i]->key,
                                                  .is_fallback = list->is_fallback[i],
                                                  .previous = list->previous[i]};
}

aoticache_op_table *aoticache_op_table_create(const aoticache_dispatcher *dispatcher,
                                              const aoticache_op_kernel *kernels)
{
    aoticache_op_choice choices[AOTICACHE_DISPATCH_ENTRIES];
    uint8_t target_of[AOTICACHE_DISPATCH_ENTRIES];
    aoticache_key_set mask, by_backend[AOTICACHE_DISPATCH_BACKENDS];
    kernel_index index;
    target_list list;
    list.count = 1;
    pthread_once(&places_once, fill_places);
    index_kernels(kernels, NULL, &index);
    choose_all(dispatcher, &index, choices);
    for (int32_t i = 0; i < AOTICACHE_DISPATCH_ENTRIES; i++)
        target_of[i] = choices[i].kernel == NULL
                           ? 0
                           : (uint8_t)add_target(&list, choices[i].kernel, choices[i].reason == fallback_reason);
    add_unchosen(&list, &index, kernels);
    add_overridden(&list, kernels);
    add_previous(&list, dispatcher, kernels);
    bool differ = fill_masks(choices, &mask, by_backend);
    aoticache_op_table *table = allocate(list.count, differ);
    if (table == NULL)
        return NULL;
    table->mask = mask;
    memcpy(table->target_of, target_of, sizeof target_of);
    fill_targets(table, &list);
    if (differ)
        memcpy((void *)(uintptr_t)table->backend_mask, by_backend, sizeof by_backend);
    return table;
}

static bool same_target(const aoticache_op_target *a, const aoticache_op_target *b)
{
    return a->call == b->call && a->user == b->user && a->key == b->key && a->is_fallback == b->is_fallback &&
           a->previous == b->previous;
}

bool aoticache_op_table_equal(const aoticache_op_table *a, const aoticache_op_table *b)
{
    if (a->mask != b->mask || a->target_count != b->target_count ||
        (a->backend_mask == NULL) != (b->backend_mask == NULL) ||
        memcmp(a->target_of, b->target_of, sizeof a->target_of) != 0 ||
        (a->backend_mask != NULL &&
         memcmp(a->backend_mask, b->backend_mask, AOTICACHE_DISPATCH_BACKENDS * sizeof *a->backend_mask) != 0))
        return false;
    for (uint32_t i = 0; i < a->target_count; i++)
        if (!same_target(&a->targets[i], &b->targets[i]))
            return false;
    return true;
}

static void release_table(aoticache_retired *retired)
{
    free((char *)retired - offsetof(aoticache_op_table, retired));
}

static bool is_static(const aoticache_op_table *table)
{
    return table == &exhausted.table || table == &gone.table;
}

void aoticache_op_table_free(aoticache_op_table *table)
{
    if (!is_static(table))
        free(table);
}

void aoticache_op_table_retire(aoticache_dispatcher *dispatcher, aoticache_op_table *table)
{
    if (!is_static(table))
        aoticache_dispatcher_retire(dispatcher, &table->retired, release_table);
}
