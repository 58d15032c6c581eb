/*
 * eager/dispatch/computed_kernel: kernels that somebody holds: what a table has for a key at one moment, to be called
 * later, whatever has been registered since. Who registers a kernel over another one gets hold of that one so.
 */
#include "eager/dispatch/dispatcher_state.h"
#include "eager/dispatch/key_set_inline.h"

#include <stdlib.h>

struct aoticache_computed_kernel {
    const aoticache_operator *op;
    aoticache_op_kernel *kernel; /* a reference: its memory stays, its user is safe only as long as it is not gone */
};

/* With the lock. */
static aoticache_status choose(const aoticache_operator *op, aoticache_dispatch_key key, aoticache_op_kernel **ret_kernel,
                               aoticache_error *ret_error)
{
    aoticache_op_choice choices[AOTICACHE_DISPATCH_ENTRIES];
    aoticache_op_table_choose(op->dispatcher, op->kernels, choices);
    const aoticache_op_kernel *kernel = choices[key_set_entry(aoticache_key_set_of(key))].kernel;
    if (kernel == NULL || op->registrations == 0)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%s: no kernel for %s to get", op->name,
                                   aoticache_dispatch_key_name(key));
    if (kernel == &aoticache_op_kernel_ambiguous)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: which kernel %s has is ambiguous", op->name,
                                   aoticache_dispatch_key_name(key));
    *ret_kernel = (aoticache_op_kernel *)(uintptr_t)kernel; /* not the static one: its references can be counted */
    return AOTICACHE_OK;
}

static aoticache_status check_key(const aoticache_operator *op, aoticache_dispatch_key key, aoticache_error *ret_error)
{
    if (key >= 0 && key < AOTICACHE_DISPATCH_KEY_COUNT && !aoticache_dispatch_key_is_alias(key))
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                               "%s: a table has no place for key %d (%s); expected a runtime key", op->name, (int)key,
                               aoticache_dispatch_key_name(key));
}

aoticache_status aoticache_operator_get_computed_kernel(const aoticache_operator *op, aoticache_dispatch_key key,
                                                        aoticache_computed_kernel **ret_kernel,
                                                        aoticache_error *ret_error)
{
    if (op == NULL || ret_kernel == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "a kernel to get needs an operator, and a place for it");
    aoticache_status status = check_key(op, key, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_computed_kernel *made = malloc(sizeof *made);
    if (made == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: no memory for a kernel", op->name);
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
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "a call needs a kernel and a stack");
    return aoticache_op_kernel_call(kernel->op, kernel->kernel, keys, stack, ret_error);
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
