/*
 * eager/holder/call_values: a call with arrays of arguments and results, which needs no stack of the caller's.
 */
#include "eager/holder/dispatch_holder.h"
#include "eager/holder/holder_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/arguments.h"
#include "base/cleanup.h"

#define USUAL_VALUES 16 /* more arguments or results need an allocation */

aoticache_status aoticache_holder_call_values(aoticache_holder *holder, uint64_t key_set,
                                              const aoticache_value *arguments, size_t num_arguments,
                                              aoticache_value *ret_results, size_t num_results,
                                              aoticache_error *ret_error)
{
    if (holder == NULL || (arguments == NULL && num_arguments > 0) || (ret_results == NULL && num_results > 0))
        return AOTICACHE_REFUSE_NULL(ret_error, holder, arguments, ret_results);
    const size_t results = holder->returns == AOTICACHE_RETURNS_LIST ? 1 : holder->num_returns;
    if (num_arguments > holder->num_arguments || num_results != results)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s: takes %zu arguments and has %zu results; %zu and %zu were passed", holder->op,
                                   holder->num_arguments, results, num_arguments, num_results);
    aoticache_value usual[USUAL_VALUES];
    cleanup_free aoticache_value *more = NULL;
    aoticache_stack stack = {usual, num_arguments, USUAL_VALUES};
    const size_t needed = results > holder->num_arguments ? results : holder->num_arguments;
    if (needed > USUAL_VALUES) {
        more = calloc(needed, sizeof *more);
        if (more == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for %zu values", holder->op,
                                       needed);
        stack = (aoticache_stack){more, num_arguments, needed};
    }
    if (num_arguments > 0)
        memcpy(stack.values, arguments, num_arguments * sizeof *arguments);
    aoticache_status status = AOTICACHE_OK;
    if (num_arguments < holder->num_arguments)
        status = aoticache_holder_push_defaults(holder, num_arguments, &stack, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_holder_call(holder, key_set, &stack, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (stack.count != num_results) { /* the fallback's mistake */
        const size_t count = stack.count;
        aoticache_stack_drop(&stack, 0);
        return aoticache_error_set(ret_error, AOTICACHE_RUN_FAILED, "%s: the fallback left %zu results, expected %zu",
                                   holder->op, count, num_results);
    }
    if (num_results > 0)
        memcpy(ret_results, stack.values, num_results * sizeof *ret_results);
    return AOTICACHE_OK;
}
