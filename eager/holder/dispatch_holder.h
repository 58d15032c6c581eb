/*
 * eager/holder/dispatch_holder: boxed calls of a holder; registers one (eager/holder/holder.h) as a kernel of an operator, so that calls through
 * the dispatcher are served from the cache. The counterpart of torch.library.Library._impl_with_aoti_compile.
 *
 * Users include <aoticache/dispatch.h>.
 */
#ifndef AOTICACHE_EAGER_HOLDER_DISPATCH_HOLDER_H
#define AOTICACHE_EAGER_HOLDER_DISPATCH_HOLDER_H

#include "eager/dispatch/dispatcher.h"
#include "eager/holder/holder.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pushes the defaults of the arguments from position `given` on, for aoticache_holder_call(). INVALID if one has none: it is
 * named. */
AOTICACHE_API aoticache_status aoticache_holder_push_defaults(const aoticache_holder *holder, size_t given,
                                                              aoticache_stack *stack, aoticache_error *ret_error);

/*
 * Registers a holder for the operator and key. Its fallback is the kernel that the operator would have for the key without
 * the holder at the time of the call: the kernel that the holder replaced, as long as that one is registered. If there is
 * none, a call that no kernel library serves fails with NOT_FOUND.
 *
 * name: "abs" or "aten::abs". The operator must be defined already, because kernels are compiled from its schema.
 * key: the key of a device: CPU, CUDA, XPU, MPS, PrivateUse1; the holder serves that device. NULL or "": the oplib's key.
 * dynamic: true: kernels are always compiled as dynamic libraries; false: the policy of `context` decides.
 * name and key are copied; the holder keeps its own copy of the schema.
 * context: borrowed as long as the registration exists or a call of it is running.
 *
 * Thread safety: as aoticache_oplib_impl().
 * Returns: OK; NOT_FOUND (the operator is not defined); INVALID (another key or namespace); UNSUPPORTED (kernel libraries
 * cannot serve this operator: aoticache_holder_create()); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_oplib_impl_with_aoti_compile(aoticache_oplib *oplib,
                                                                      aoticache_context *context, const char *name,
                                                                      const char *key, bool dynamic,
                                                                      aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
