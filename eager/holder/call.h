/*
 * eager/holder/call: calls an operator by its name, for programs that need nothing more. The kernel is looked up, compiled if
 * it is missing, loaded, run, and kept for the next call. Bindings of frameworks, and programs with arguments that are not
 * tensors, use holders (eager/holder/holder.h).
 *
 * Thread safety: all functions from any thread. Fork: as for holders (eager/holder/holder.h).
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_EAGER_HOLDER_CALL_H
#define AOTICACHE_EAGER_HOLDER_CALL_H

#include "base/base.h"
#include "base/tensor_view.h"
#include "eager/holder/holder.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Creates a context that owns its cache and its hook.
 *
 * directory: of the cache; NULL: as configured ($AOTICACHE_DIR, otherwise the configuration, otherwise ~/.cache/aoticache).
 * options: NULL: defaults; a call waits for its compile. options->cache and options->hook:
 *     cache   NULL: one is opened in `directory`. Otherwise this one is used, and directory must be NULL.
 *     hook    NULL: misses are compiled by PyTorch (aoticache_hook_create_worker()) if a Python has it, otherwise from the kernels
 *             written in C (aoticache_hook_create_c()). If there is no C compiler either, nothing is compiled, and calls use what
 *             is in the cache, whichever framework compiled it. (options->miss = AOTICACHE_MISS_NEVER compiles nothing.)
 *     On OK the context owns both. After an error the caller still owns those that it gave.
 * ret_context: the caller frees it with aoticache_context_free(), which also closes the cache and ends the hook.
 * Returns: OK; INVALID; any error of aoticache_cache_open(); any error of creating a hook except NOT_FOUND and UNSUPPORTED (then
 * the next hook is tried, or none is used).
 */
AOTICACHE_API aoticache_status aoticache_context_open(const char *directory, const aoticache_context_options *options,
                                                      aoticache_context **ret_context, aoticache_error *ret_error);

/*
 * Calls the operator `op` ("aten::add.Tensor") with exactly these tensors as its positional arguments. A missing
 * kernel is compiled for their dtypes, sizes, strides and device. The first call with such tensors finds or compiles the
 * kernel and loads it; later calls use the loaded kernel.
 *
 * context:     from aoticache_context_open() or aoticache_context_create(). With the latter, the context's own miss policy applies.
 * inputs:      num_inputs tensors, at least one. If `handle` is NULL, the view describes the caller's memory on the CPU: data,
 *              dtype, ndim, sizes, strides (in elements, NULL for contiguous) and the layout, which is strided (0); the rest is
 *              not read. If `handle` is set, it is the tensor, and the view must describe it (aoticache_tensor_get_view()).
 *              Borrowed for the call.
 * ret_outputs: num_outputs views, as many as the operator has results; written only on OK. The caller frees the `handle` of
 *              each with aoticache_tensor_free(); the view's pointers are valid until then.
 *
 * Returns: OK; INVALID (an argument, the name, tensors that the operator does not accept, or a wrong number of results:
 * the message has both numbers); NOT_FOUND (not in the cache, and the context has no hook); COMPILE_FAILED,
 * UNSUPPORTED, LOAD_FAILED, RUN_FAILED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_call(aoticache_context *context, const char *op,
                                              const aoticache_tensor_view *inputs, size_t num_inputs,
                                              aoticache_tensor_view *ret_outputs, size_t num_outputs,
                                              aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
