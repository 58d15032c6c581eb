/*
 * eager/dispatch/operator_call: calls: computes the key set from the arguments, then calls the kernel.
 *
 * Takes no lock and allocates nothing. A call is inside an epoch (eager/epoch.h) from before it reads the operator's plan
 * and table until after its kernel; that keeps the kernel and what it was registered with alive.
 */
#include "base/arguments.h"
#include "eager/dispatch/dispatch_internal.h"
#include "eager/dispatch/keys.h"
#include "eager/dispatch/questions.h"
#include "eager/dispatch/schema/eager_face.h"

#include <stdlib.h>

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* ---- key sets ---- */

/* Returns the key set of a tensor whose binding gives none: that of its device. */
static __attribute__((noinline)) aoticache_key_set set_of_device(aoticache_device device)
{
    return aoticache_key_set_of(aoticache_dispatch_key_of_device_type(device.type));
}

/* An undefined tensor has the key set that PyTorch gives to a tensor without a backend (c10/core/UndefinedTensorImpl.cpp). */
#define SET_OF_UNDEFINED (KEY_SET_BIT_OF(ADInplaceOrView) | KEY_SET_BIT_OF(AutogradOther))

/* Returns a tensor's key set. An absent tensor in a list has no keys. */
static inline aoticache_key_set set_of_tensor(const aoticache_tensor_view *tensor)
{
    if (UNLIKELY(tensor == NULL))
        return 0;
    return LIKELY(tensor->dispatch_key_set != 0) ? tensor->dispatch_key_set : set_of_device(tensor->device);
}

static inline aoticache_key_set set_of_value(const aoticache_value *value)
{
    if (LIKELY(value->kind == AOTICACHE_VALUE_TENSOR))
        return LIKELY(value->as.tensor != NULL) ? set_of_tensor(value->as.tensor) : SET_OF_UNDEFINED;
    aoticache_key_set set = 0;
    if (value->kind == AOTICACHE_VALUE_TENSOR_LIST)
        for (uint32_t i = 0; i < value->count; i++)
            set |= set_of_tensor(value->as.tensors[i]);
    return set;
}

/*
 * Adds this thread's keys and removes those that fall through for the operator (on the backend, if that differs). Modes are
 * at the Python key, which PyTorch includes as long as a thread has any.
 */
static inline aoticache_key_set set_of_call(const aoticache_op_table *table, aoticache_key_set tensors)
{
    if (UNLIKELY(aoticache_dispatch_modes_on != 0))
        tensors |= KEY_SET_BIT_OF(Python);
    if (LIKELY(table->backend_mask == NULL))
        return key_set_of_call(tensors, table->mask);
    const aoticache_dispatch_local *local = &aoticache_dispatch_thread_sets;
    aoticache_key_set backends = key_set_minus(tensors | local->included, local->excluded) & KEY_SET_BACKEND_BITS;
    return key_set_of_call(tensors, table->backend_mask[63u ^ (unsigned)__builtin_clzll(backends | 1)]);
}

/* Returns true for an undefined tensor: a value NONE for a plain Tensor, as in PyTorch. */
static inline bool is_undefined_tensor(const aoticache_op_plan *plan, uint32_t position, const aoticache_value *value)
{
    return value->kind == AOTICACHE_VALUE_NONE && plan->accepted[position] == UINT32_C(1) << AOTICACHE_VALUE_TENSOR;
}

static aoticache_key_set set_of_arguments(const aoticache_op_plan *plan, const aoticache_value *arguments)
{
    aoticache_key_set tensors = 0;
    for (uint64_t left = plan->dispatched; left != 0; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(left);
        tensors |= is_undefined_tensor(plan, i, &arguments[i]) ? SET_OF_UNDEFINED : set_of_value(&arguments[i]);
    }
    return tensors;
}

/* ---- errors of a call ---- */

/* Reports invalid arguments. function: the public one, for the message. */
static __attribute__((noinline, cold)) aoticache_status refuse_entry(const char *function, const aoticache_operator *op,
                                                                     const aoticache_stack *stack,
                                                                     aoticache_error *ret_error)
{
    if (op == NULL || stack == NULL)
        return AOTICACHE_REFUSE_NULL_OF(function, ret_error, op, stack);
    return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for this thread's first call",
                               op->name);
}

static __attribute__((noinline, cold)) aoticache_status refuse_count(const aoticache_operator *op,
                                                                     const aoticache_op_plan *plan, size_t count,
                                                                     aoticache_error *ret_error)
{
    if (plan == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%s is not defined", op->name);
    return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                               "%s takes %u arguments, but %zu are on the stack (missing is %s)", op->name, plan->count,
                               count, plan->schema->arguments[count].name);
}

static __attribute__((noinline, cold)) aoticache_status refuse_argument(const aoticache_operator *op,
                                                                        const aoticache_op_plan *plan,
                                                                        uint32_t position, const aoticache_value *value,
                                                                        aoticache_error *ret_error)
{
    char type[120];
    const aoticache_schema_argument *argument = &plan->schema->arguments[position];
    aoticache_type_format(argument->type, type, sizeof type);
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: argument %u (%s) must be of type %s, but it is: %s",
                               op->name, position + 1, argument->name, type, aoticache_value_kind_name(value->kind));
}

/* Replaces NONE by a TENSOR without a view, so that the kernel gets a tensor if the schema says so. */
static __attribute__((noinline, cold)) bool take_undefined_tensor(const aoticache_op_plan *plan, uint32_t position,
                                                                  aoticache_value *value)
{
    if (!is_undefined_tensor(plan, position, value))
        return false;
    *value = (aoticache_value){.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = NULL};
    return true;
}

/* ---- epochs ---- */

/* Leaves, and frees retired memory if this call was inside when it was retired. */
static inline void leave_epoch(const aoticache_operator *op, aoticache_epoch_slot *slot)
{
    uint64_t since = atomic_load_explicit(&slot->epoch, memory_order_relaxed);
    bool last = slot->depth == 1;
    bool waited_for = since <= atomic_load_explicit(&op->dispatcher->retired_epoch, memory_order_relaxed);
    aoticache_epoch_leave(slot);
    if (UNLIKELY(waited_for) && last)
        aoticache_epoch_reclaim();
}

/* ---- kernels ---- */

static __attribute__((noinline)) aoticache_status run_observed(const aoticache_op_observation *observation,
                                                               const aoticache_op_target *target,
                                                               const aoticache_operator *op, aoticache_key_set keys,
                                                               aoticache_stack *stack, aoticache_error *ret_error)
{
    const aoticache_call_observer *observer = &observation->observer;
    void *token = observer->before != NULL ? observer->before(observer->user, op, keys, stack) : NULL;
    aoticache_status status = target->call(target->user, op, keys, stack, ret_error);
    if (observer->after != NULL)
        observer->after(observer->user, token, op, status);
    return status;
}

static inline aoticache_status run_target(const aoticache_op_target *target, const aoticache_operator *op,
                                          aoticache_key_set keys, aoticache_stack *stack, aoticache_error *ret_error)
{
    const aoticache_op_observation *observation =
        atomic_load_explicit(&op->dispatcher->observation, memory_order_acquire);
    if (UNLIKELY(observation != NULL))
        return run_observed(observation, target, op, keys, stack, ret_error);
    return target->call(target->user, op, keys, stack, ret_error);
}

static inline const aoticache_op_target *target_for_set(const aoticache_op_table *table, aoticache_key_set keys)
{
    return &table->targets[table->target_of[key_set_entry(keys)]];
}

/* Returns true if Python is set for another reason than modes: a tensor with that key, or the thread's included set. */
static bool has_python(const aoticache_operator *op, const aoticache_stack *stack)
{
    const aoticache_op_plan *plan = atomic_load_explicit(&op->plan, memory_order_acquire);
    aoticache_key_set keys = aoticache_dispatch_thread_sets.included;
    if (plan != NULL && stack->count >= plan->count)
        keys |= set_of_arguments(plan, stack->values + (stack->count - plan->count));
    return (keys & KEY_SET_BIT_OF(Python)) != 0;
}

/*
 * Runs a call whose highest key is Python. The operator's own kernel for it comes before the modes, a fallback after them, as
 * in PyTorch, where the modes are in the fallback.
 */
static __attribute__((noinline)) aoticache_status run_python(const aoticache_op_table *table,
                                                             const aoticache_operator *op, aoticache_key_set keys,
                                                             aoticache_stack *stack, aoticache_error *ret_error)
{
    const aoticache_op_target *target = target_for_set(table, keys);
    if (target->key == AOTICACHE_DISPATCH_KEY_Python && !target->is_fallback)
        return run_target(target, op, keys, stack, ret_error);
    aoticache_status status = aoticache_dispatch_ask_modes(op, keys, stack, ret_error);
    if (status != AOTICACHE_UNSUPPORTED)
        return status;
    if (!has_python(op, stack))
        keys &= ~KEY_SET_BIT_OF(Python);
    return run_target(target_for_set(table, keys), op, keys, stack, ret_error);
}

static inline aoticache_status run_for_set(const aoticache_op_table *table, const aoticache_operator *op,
                                           aoticache_key_set keys, aoticache_stack *stack, aoticache_error *ret_error)
{
    if (UNLIKELY(aoticache_dispatch_modes_on != 0) && key_set_functionality(keys) == AOTICACHE_DISPATCH_KEY_Python)
        return run_python(table, op, keys, stack, ret_error);
    return run_target(target_for_set(table, keys), op, keys, stack, ret_error);
}

/* ---- calls ---- */

/*
 * Checks the arguments and calls. The caller is inside the epoch. The arguments of a variadic operator may be anything: PyTorch
 * counts them from the top, too.
 */
static inline aoticache_status check_and_call(const aoticache_operator *op, aoticache_stack *stack,
                                              aoticache_error *ret_error)
{
    const aoticache_op_plan *plan = atomic_load_explicit(&op->plan, memory_order_acquire);
    if (UNLIKELY(plan == NULL || stack->count < plan->count))
        return refuse_count(op, plan, stack->count, ret_error);
    aoticache_value *arguments = stack->values + (stack->count - plan->count);
    aoticache_key_set tensors = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        uint32_t kind = (uint32_t)arguments[i].kind;
        if (UNLIKELY(kind > 31 || (plan->accepted[i] >> kind & 1) == 0) &&
            !take_undefined_tensor(plan, i, &arguments[i]))
            return refuse_argument(op, plan, i, &arguments[i], ret_error);
        if ((plan->dispatched >> i & 1) != 0)
            tensors |= set_of_value(&arguments[i]);
    }
    const aoticache_op_table *table = atomic_load_explicit(&op->table, memory_order_acquire);
    return run_for_set(table, op, set_of_call(table, tensors), stack, ret_error);
}

aoticache_status aoticache_operator_call(const aoticache_operator *op, aoticache_stack *stack,
                                         aoticache_error *ret_error)
{
    aoticache_epoch_slot *slot;
    if (UNLIKELY(op == NULL || stack == NULL) || UNLIKELY((slot = aoticache_epoch_enter()) == NULL))
        return refuse_entry(__func__, op, stack, ret_error);
    aoticache_status status = check_and_call(op, stack, ret_error);
    leave_epoch(op, slot);
    return status;
}

aoticache_status aoticache_operator_redispatch(const aoticache_operator *op, aoticache_key_set keys,
                                               aoticache_stack *stack, aoticache_error *ret_error)
{
    aoticache_epoch_slot *slot;
    if (UNLIKELY(op == NULL || stack == NULL) || UNLIKELY((slot = aoticache_epoch_enter()) == NULL))
        return refuse_entry(__func__, op, stack, ret_error);
    const aoticache_op_table *table = atomic_load_explicit(&op->table, memory_order_acquire);
    aoticache_status status = run_for_set(table, op, keys, stack, ret_error);
    leave_epoch(op, slot);
    return status;
}

/* ---- one key's kernel ---- */

/* Finds the operator's own kernel for exactly this key (also an alias), otherwise the fallback; NULL: there is neither. */
static const aoticache_op_target *find_target(const aoticache_operator *op, const aoticache_op_table *table,
                                              aoticache_dispatch_key key, aoticache_op_target *fallback)
{
    for (uint32_t i = 1; i < table->target_count; i++)
        if (table->targets[i].key == key && !table->targets[i].is_fallback)
            return &table->targets[i];
    if (key < 0 || key >= AOTICACHE_DISPATCH_KEY_COUNT || aoticache_dispatch_key_is_alias(key))
        return NULL;
    const aoticache_op_kernel *kernel =
        atomic_load(&op->dispatcher->fallbacks[key_set_entry(aoticache_key_set_of(key))]);
    if (kernel == NULL)
        return NULL;
    *fallback = (aoticache_op_target){.call = kernel->call, .user = kernel->user, .key = key, .is_fallback = true};
    return fallback;
}

static aoticache_status call_for_key(const aoticache_operator *op, aoticache_dispatch_key key, aoticache_stack *stack,
                                     aoticache_error *ret_error)
{
    aoticache_op_target fallback;
    const aoticache_op_plan *plan = atomic_load_explicit(&op->plan, memory_order_acquire);
    if (plan == NULL || stack->count < plan->count)
        return refuse_count(op, plan, stack->count, ret_error);
    const aoticache_op_table *table = atomic_load_explicit(&op->table, memory_order_acquire);
    const aoticache_op_target *target = find_target(op, table, key, &fallback);
    aoticache_value *arguments = stack->values + (stack->count - plan->count);
    for (uint32_t i = 0; i < plan->count; i++)
        take_undefined_tensor(plan, i, &arguments[i]);
    aoticache_key_set keys = set_of_call(table, set_of_arguments(plan, arguments));
    if (key == AOTICACHE_DISPATCH_KEY_Python && (target == NULL || target->is_fallback)) {
        aoticache_status status = aoticache_dispatch_ask_modes(op, keys, stack, ret_error);
        if (status != AOTICACHE_UNSUPPORTED)
            return status;
    }
    if (target == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%s: no kernel for exactly %s", op->name,
                                   aoticache_dispatch_key_name(key));
    return run_target(target, op, keys, stack, ret_error);
}

aoticache_status aoticache_operator_call_for_key(const aoticache_operator *op, aoticache_dispatch_key key,
                                                 aoticache_stack *stack, aoticache_error *ret_error)
{
    aoticache_epoch_slot *slot;
    if (op == NULL || stack == NULL || (slot = aoticache_epoch_enter()) == NULL)
        return refuse_entry(__func__, op, stack, ret_error);
    aoticache_status status = call_for_key(op, key, stack, ret_error);
    leave_epoch(op, slot);
    return status;
}

aoticache_key_set aoticache_operator_key_set(const aoticache_operator *op, const aoticache_stack *stack)
{
    aoticache_key_set keys = 0;
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    if (slot == NULL)
        return 0;
    const aoticache_op_plan *plan = atomic_load_explicit(&op->plan, memory_order_acquire);
    const aoticache_op_table *table = atomic_load_explicit(&op->table, memory_order_acquire);
    if (plan != NULL && stack->count >= plan->count)
        keys = set_of_call(table, set_of_arguments(plan, stack->values + (stack->count - plan->count)));
    leave_epoch(op, slot);
    return keys;
}

/* ---- the kernel below ---- */

/*
 * Finds the previous target of a kernel that has been removed from the table meanwhile: it is what the table now has for the
 * key.
 */
static const aoticache_op_target *find_previous(const aoticache_op_table *table, aoticache_dispatch_key key,
                                                const void *user)
{
    for (uint32_t i = 1; i < table->target_count; i++)
        if (table->targets[i].key == key && table->targets[i].user == user && !table->targets[i].is_fallback)
            return &table->targets[table->targets[i].previous];
    return &table->targets[table->target_of[key_set_entry(aoticache_key_set_of(key))]];
}

aoticache_status aoticache_operator_call_previous(const aoticache_operator *op, aoticache_dispatch_key key,
                                                  const void *user, aoticache_key_set keys, aoticache_stack *stack,
                                                  aoticache_error *ret_error)
{
    aoticache_epoch_slot *slot;
    if (op == NULL || stack == NULL || (slot = aoticache_epoch_enter()) == NULL)
        return refuse_entry(__func__, op, stack, ret_error);
    const aoticache_op_table *table = atomic_load_explicit(&op->table, memory_order_acquire);
    aoticache_status status = run_target(find_previous(table, key, user), op, keys, stack, ret_error);
    leave_epoch(op, slot);
    return status;
}

/* ---- a kernel that a caller keeps ---- */

/* Calls exactly this kernel, to which the caller has a reference. NOT_FOUND: it is gone. */
static aoticache_status op_kernel_call(const aoticache_operator *op, const aoticache_op_kernel *kernel,
                                       aoticache_key_set keys, aoticache_stack *stack, aoticache_error *ret_error)
{
    aoticache_epoch_slot *slot;
    if (stack == NULL || (slot = aoticache_epoch_enter()) == NULL)
        return refuse_entry("aoticache_computed_kernel_call", op, stack, ret_error);
    const aoticache_op_target target = {.call = kernel->call, .user = kernel->user, .key = kernel->key};
    aoticache_status status =
        atomic_load(&kernel->is_gone)
            ? aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%s: the kernel for %s (%.300s) was unregistered",
                                  op->name, aoticache_dispatch_key_name(kernel->key), kernel->debug)
            : run_target(&target, op, keys, stack, ret_error);
    leave_epoch(op, slot);
    return status;
}

/* ---- computed kernels: a table's kernel for a key at one moment, to be called later, independent of later registrations ---- */

struct aoticache_computed_kernel {
    const aoticache_operator *op;
    aoticache_op_kernel *kernel; /* a reference: keeps its memory; its user is valid only until it is gone */
};

/* Chooses the kernel. The caller holds the lock. */
static aoticache_status choose(const aoticache_operator *op, aoticache_dispatch_key key,
                               aoticache_op_kernel **ret_kernel, aoticache_error *ret_error)
{
    aoticache_op_choice choices[AOTICACHE_DISPATCH_ENTRIES];
    aoticache_op_table_choose(op->dispatcher, op->kernels, choices);
    const aoticache_op_kernel *kernel = choices[key_set_entry(aoticache_key_set_of(key))].kernel;
    if (kernel == NULL || op->registrations == 0)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%s: no kernel for %s", op->name,
                                   aoticache_dispatch_key_name(key));
    if (kernel == &aoticache_op_kernel_ambiguous)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: the kernel for %s is ambiguous", op->name,
                                   aoticache_dispatch_key_name(key));
    *ret_kernel = (aoticache_op_kernel *)(uintptr_t)kernel; /* not the static one, so its references can be counted */
    return AOTICACHE_OK;
}

static aoticache_status check_key(const aoticache_operator *op, aoticache_dispatch_key key, aoticache_error *ret_error)
{
    if (key >= 0 && key < AOTICACHE_DISPATCH_KEY_COUNT && !aoticache_dispatch_key_is_alias(key))
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: invalid key %d (%s); expected a runtime key",
                               op->name, (int)key, aoticache_dispatch_key_name(key));
}

aoticache_status aoticache_operator_get_computed_kernel(const aoticache_operator *op, aoticache_dispatch_key key,
                                                        aoticache_computed_kernel **ret_kernel,
                                                        aoticache_error *ret_error)
{
    if (op == NULL || ret_kernel == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, op, ret_kernel);
    aoticache_status status = check_key(op, key, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_computed_kernel *made = malloc(sizeof *made);
    if (made == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for a kernel", op->name);
    made->op = op;
    aoticache_dispatcher_lock(op->dispatcher);
    status = choose(op, key, &made->kernel, ret_error);
    if (status == AOTICACHE_OK)
        atomic_fetch_add(&made->kernel->references, 1);
    aoticache_dispatcher_unlock(op->dispatcher);
    if (status == AOTICACHE_OK)
        *ret_kernel = made;
    else
        free(made);
    return status;
}

aoticache_status aoticache_computed_kernel_call(const aoticache_computed_kernel *kernel, aoticache_key_set keys,
                                                aoticache_stack *stack, aoticache_error *ret_error)
{
    if (kernel == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, kernel);
    return op_kernel_call(kernel->op, kernel->kernel, keys, stack, ret_error);
}

const char *aoticache_computed_kernel_debug(const aoticache_computed_kernel *kernel)
{
    return kernel->kernel->debug;
}

bool aoticache_computed_kernel_is_fallthrough(const aoticache_computed_kernel *kernel)
{
    return kernel->kernel->is_fallthrough;
}

void aoticache_computed_kernel_free(aoticache_computed_kernel *kernel)
{
    if (kernel == NULL)
        return;
    aoticache_op_kernel_unref(kernel->kernel);
    free(kernel);
}
