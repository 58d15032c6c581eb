/*
 * eager/holder/dispatch_holder: a holder (eager/holder/holder.h) as one of an operator's kernels, so that calls through
 * the dispatcher are served from the cache. The counterpart of torch.library.Library._impl_with_aoti_compile.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_EAGER_HOLDER_DISPATCH_HOLDER_H
#define AOTICACHE_EAGER_HOLDER_DISPATCH_HOLDER_H

#include "eager/dispatch/dispatcher.h"
#include "eager/holder/holder.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Registers a holder for the operator and key. Its fallback is the kernel that the operator would have for the key
 * without it, at the moment of the call: the one that it replaced, as long as that is registered. Where there is none,
 * a call that no kernel library serves fails with NOT_FOUND.
 *
 * name: "abs" or "aten::abs"; defined before, since kernels are compiled by its schema.
 * key: of a device: CPU, CUDA, XPU, MPS, PrivateUse1; the holder's device is that one. NULL or "": the oplib's.
 * dynamic: kernels are always compiled as dynamic libraries; false: as the policy of `context` says.
 * Copied: name and key; of the schema the holder keeps its own.
 * eager: borrowed as long as the registration stands and calls of it are under way.
 *
 * Thread safety: as aoticache_oplib_impl().
 * Returns: OK; NOT_FOUND (the operator is not defined); INVALID (another key or namespace); UNSUPPORTED (the operator
 * is none that a kernel library can serve: aoticache_holder_create()); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_oplib_impl_with_aoti_compile(aoticache_oplib *oplib,
                                                                      aoticache_context *context, const char *name,
                                                                      const char *key, bool dynamic,
                                                                      aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
