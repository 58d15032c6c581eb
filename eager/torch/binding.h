/*
 * eager/torch/binding: serves PyTorch's operators from kernel holders, in a process that has PyTorch.
 *
 * The bridge (eager/torch/bridge.cpp) takes an operator's calls from PyTorch's dispatcher: a small C++ library that is compiled
 * against the headers of the installed PyTorch and kept in the cache like any kernel. It serves every schema that a holder
 * accepts, calls PyTorch's own kernel as the fallback without leaving C++, and lets PyTorch's exceptions through unchanged.
 *
 * Thread safety: all functions from any thread. Fork safety: what the parent enabled stays enabled in the child; queued
 * compiles stay with the parent.
 *
 * Users include <aoticache/torch.h>.
 */
#ifndef AOTICACHE_EAGER_TORCH_BINDING_H
#define AOTICACHE_EAGER_TORCH_BINDING_H

#include "eager/holder/holder.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aoticache_binding aoticache_binding;

typedef struct aoticache_binding_options {
    size_t size;
    /* Borrowed as long as the binding lives. Its serve_requires_grad does not matter: autograd runs above the kernels, and
     * the holder sees tensors as not requiring gradients. */
    aoticache_context *context;
    const char *bridge; /* required: path of a bridge (aoticache_binding_prepare_bridge()) */
} aoticache_binding_options;

#define AOTICACHE_BINDING_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_binding_options)

/*
 * Creates a binding. A bridge that is opened stays in the process; its path may be removed afterwards.
 * Returns: OK; INVALID; UNSUPPORTED (a bridge for another PyTorch or another interface); LOAD_FAILED (the bridge, with the
 * dynamic linker's message); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_binding_create(const aoticache_binding_options *options,
                                                        aoticache_binding **ret_binding, aoticache_error *ret_error);
/* Disables all enabled operators and frees the binding. The context may be freed afterwards. NULL is allowed. */
AOTICACHE_API void aoticache_binding_free(aoticache_binding *binding);

/*
 * Gets the bridge library from the cache, or compiles it; the first process that needs it does this.
 *
 * command:      the C++ compiler, NULL-terminated: a path, or a name in $PATH, and all its options except "-march" and the
 *               like. "-o FILE SOURCE" is added. NULL: only look in the cache; NOT_FOUND if it is not there.
 * environment:  "framework=pytorch", "framework_version=2.13.0", "cxx11_abi=1", ..., NULL-terminated; names as in
 *               aoticache_request_set_environment(). The key consists of these pairs, the digest of the source and the number
 *               of the interface.
 * ret_path:     a path that stays valid while ret_artifact is held; 32 bytes are enough.
 * ret_artifact: the caller releases it with aoticache_artifact_unref().
 *
 * A failed compile is remembered for a while, with the compiler's message. A compile takes at most 10 minutes.
 * Returns: as aoticache_cache_get_or_compile(); UNSUPPORTED: there is no such compiler.
 */
AOTICACHE_API aoticache_status aoticache_binding_prepare_bridge(aoticache_cache *cache, const char *source,
                                                                const char *const *command,
                                                                const char *const *environment, char *ret_path,
                                                                size_t path_size, aoticache_artifact **ret_artifact,
                                                                aoticache_error *ret_error);

typedef struct aoticache_binding_operator_options {
    size_t size;
    const char *schema;       /* "aten::abs(Tensor self) -> Tensor" */
    const char *dispatch_key; /* "CPU", "CUDA" */
    aoticache_device device;
    const aoticache_dynamic *dynamic; /* NULL: the context's policy */
} aoticache_binding_operator_options;

#define AOTICACHE_BINDING_OPERATOR_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_binding_operator_options)

typedef struct aoticache_binding_operator aoticache_binding_operator;

/*
 * Makes a holder serve the operator's calls for that dispatch key. The operator must exist in PyTorch, with this schema.
 * Calls of other threads may be served before this function returns.
 * Returns: OK; INVALID (options, the schema's text, a schema that differs from PyTorch's; already enabled for that key);
 * UNSUPPORTED (the schema returns views of its arguments, has results that are not tensors, takes no tensors, or has an
 * argument that cannot be passed: named; PyTorch has no kernel for that key); NOT_FOUND (no such operator); LOAD_FAILED
 * (PyTorch refused, with its message); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_binding_enable(aoticache_binding *binding,
                                                        const aoticache_binding_operator_options *options,
                                                        aoticache_binding_operator **ret_operator,
                                                        aoticache_error *ret_error);
/*
 * Gives the operator back to PyTorch's kernel, for calls that begin afterwards, and frees `op`. Returns when no call of
 * the operator is running any longer. If a call of the operator itself calls this function (from a compile hook), it
 * is not waited for, and the context must outlive that call. Queued and running compiles of the operator continue. In Python:
 * call it without the GIL, which running calls may need. NULL is allowed.
 *
 * Other threads may be calling the operator. PyTorch keeps the bridge's function, which sends every call to PyTorch's kernel
 * in C++.
 */
AOTICACHE_API void aoticache_binding_disable(aoticache_binding_operator *op);

typedef struct aoticache_binding_counts {
    aoticache_holder_counts holder;
    uint64_t calls; /* all calls; concurrent hits may be counted as one */
    /* calls that went to PyTorch's kernel without asking the holder: wrapped numbers, conjugated tensors, recursion */
    uint64_t refused;
} aoticache_binding_counts;
AOTICACHE_API void aoticache_binding_get_counts(const aoticache_binding_operator *op,
                                                aoticache_binding_counts *ret_counts);

#ifdef __cplusplus
}
#endif
#endif
