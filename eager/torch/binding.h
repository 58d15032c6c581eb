/*
 * eager/torch/binding: PyTorch's operators on kernel holders, in a process that has PyTorch.
 *
 * Two ways to stand behind an operator of PyTorch's dispatcher:
 *
 * - the bridge (eager/torch/bridge.cpp), a small C++ library compiled against the headers of the PyTorch at hand and
 *   kept in the cache like any kernel: it serves every schema that a holder takes, calls PyTorch's own kernel as the
 *   fallback without leaving C++, and lets PyTorch's exceptions through as they are;
 * - the stable C ABI (torch/csrc/stable/c/shim.h), for where no C++ compiler is at hand and the cache has no bridge: C
 *   functions out of a pool, one for each operator. That ABI has no Scalar and shows neither wrapped numbers nor dispatch
 *   keys, so operators with Scalar arguments are UNSUPPORTED there, and what it cannot tell apart goes to the fallback.
 *
 * Thread safety: all functions from any thread. Fork safety: what the parent enabled stays enabled in the child; queued
 * compiles stay with the parent.
 *
 * Users include <aoticache.h>.
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
    /* Borrowed as long as the binding lives. Its serve_requires_grad does not matter: autograd is above the kernels, and
     * tensors are shown to the holder as requiring no gradients. */
    aoticache_context *context;
    const char *bridge;        /* path of a bridge (aoticache_binding_prepare_bridge()); NULL: the stable C ABI */
    const char *torch_library; /* path of libtorch_cpu.so, which must be loaded; NULL: the one that is */
    uint64_t torch_version; /* as torch_library_impl() takes it: major, minor, patch in the three topmost bytes; 0: what
                             * PyTorch says of itself */
} aoticache_binding_options;

#define AOTICACHE_BINDING_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_binding_options)

/*
 * A bridge that is opened stays in the process: the path may go afterwards.
 * Returns: OK; INVALID; NOT_FOUND (no PyTorch in this process); UNSUPPORTED (older than 2.10, or a bridge for another
 * PyTorch or another interface); LOAD_FAILED (the bridge, with the dynamic linker's message); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_binding_create(const aoticache_binding_options *options,
                                                        aoticache_binding **ret_binding, aoticache_error *ret_error);
/* Disables what is enabled. The context may be freed afterwards. NULL is allowed. */
AOTICACHE_API void aoticache_binding_free(aoticache_binding *binding);

/*
 * The library that the bridge is, from the cache or compiled now, by whichever process comes first: `command`
 * (NULL-terminated) is the C++ compiler, as a path or to be found in $PATH, with all its options but for "-march" and
 * the like, to which "-o FILE SOURCE" is added; `environment` ("framework=pytorch", "framework_version=2.13.0",
 * "cxx11_abi=1", ..., NULL-terminated, names as in aoticache_request_set_environment()) is what its key is made of
 * beside the digest of the source and the interface's number. command NULL: from the cache or NOT_FOUND. A compile
 * that failed is remembered for a while, with what the compiler said, and takes 10 minutes at most.
 * ret_path: a path that stays valid while ret_artifact (the caller's, by aoticache_artifact_unref()) is held; 32 bytes
 * are enough.
 * Returns: as aoticache_cache_get_or_compile(); UNSUPPORTED: there is no such compiler.
 */
AOTICACHE_API aoticache_status aoticache_binding_prepare_bridge(aoticache_cache *cache, const char *source,
                                                                const char *const *command,
                                                                const char *const *environment, char *ret_path,
                                                                size_t path_size, aoticache_artifact **ret_artifact,
                                                                aoticache_error *ret_error);

/*
 * The fallback of an operator on the stable C ABI: takes num_inputs StableIValues (owning them, whatever happens) and
 * puts num_outputs in their places. Not zero: an exception, whose text it wrote to `message` (NUL-terminated); PyTorch
 * throws it as a RuntimeError. Called in the thread of the call, with no lock held (in Python: without the GIL).
 */
typedef int (*aoticache_binding_fallback_fn)(void *user, uint64_t *stack, uint64_t num_inputs, uint64_t num_outputs,
                                             char *message, size_t message_size);

typedef struct aoticache_binding_operator_options {
    size_t size;
    const char *schema;       /* "aten::abs(Tensor self) -> Tensor" */
    const char *dispatch_key; /* "CPU", "CUDA" */
    aoticache_device device;
    const aoticache_dynamic *dynamic;       /* NULL: the context's */
    aoticache_binding_fallback_fn fallback; /* required without a bridge, which has its own; not used either where the
                                             * operator was retired: PyTorch still has our function, with one */
    void *fallback_user;
} aoticache_binding_operator_options;

#define AOTICACHE_BINDING_OPERATOR_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_binding_operator_options)

typedef struct aoticache_binding_operator aoticache_binding_operator;

/*
 * Puts a holder behind the operator's kernel for that dispatch key. The operator must exist in PyTorch, with this
 * schema: the bridge checks both; the stable C ABI has no way to ask, so without a bridge it is the caller who must
 * know. Calls of other threads may be served before this returns.
 * Returns: OK; INVALID (options, the schema's text, another schema than PyTorch's; it is enabled for that key already);
 * UNSUPPORTED (the schema: it returns views of its arguments or, without a bridge, writes to them, has results that are no
 * tensors, takes no tensors, or an argument that cannot be handed over: named; no kernel of PyTorch's for that key; all
 * 512 functions of the pool in use, which are for one operator each and never given to another); NOT_FOUND (no such
 * operator, by the bridge); LOAD_FAILED (PyTorch refused, with its message); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_binding_enable(aoticache_binding *binding,
                                                        const aoticache_binding_operator_options *options,
                                                        aoticache_binding_operator **ret_operator,
                                                        aoticache_error *ret_error);
/*
 * PyTorch's kernel is back for calls that begin afterwards; returns when no call is inside any longer. The operator is
 * gone. Compiles of it that are queued or under way go on. From inside a call of the operator itself (its fallback) it
 * does not wait for that one; the context must then outlive it. In Python: without the GIL, which calls inside may need.
 * NULL is allowed.
 *
 * On the stable C ABI no other thread may be on its way to the operator: PyTorch's dispatcher changes its table while
 * calls read it, and frees what they are about to use (seen with 2.13). aoticache_binding_retire() is for that.
 */
AOTICACHE_API void aoticache_binding_disable(aoticache_binding_operator *op);
/*
 * The same, at any time: on the stable C ABI PyTorch keeps our function, which hands every call to the fallback from
 * then on, until the operator is enabled again and then disabled. The fallback and its user must live as long. (The
 * bridge does so always, at no cost, in C++: there this is disable.)
 */
AOTICACHE_API void aoticache_binding_retire(aoticache_binding_operator *op);

typedef struct aoticache_binding_counts {
    aoticache_holder_counts holder;
    uint64_t calls; /* all; hits of several threads at once may be counted as one */
    /* calls that went to PyTorch's kernel before the holder: wrapped numbers, conjugated tensors, recursion */
    uint64_t refused;
} aoticache_binding_counts;
AOTICACHE_API void aoticache_binding_get_counts(const aoticache_binding_operator *op,
                                                aoticache_binding_counts *ret_counts);

#ifdef __cplusplus
}
#endif
#endif
