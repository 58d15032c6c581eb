/*
 * loader: from a verified descriptor to a kernel that runs.
 *
 * This header is about loading kernel libraries, and about where their aoti_torch_* functions come from. Containers and
 * runners are in loader/runner/runner.h, tensor checks in loader/check/check.h, .pt2 archives in
 * loader/package/package.h, the GPU in loader/cuda/cuda.h. The loader knows nothing of keys or the cache.
 *
 * A library that PyTorch made needs libtorch_cpu.so for its aoti_torch_* functions. In a process that has libtorch, it
 * gets that libtorch. In any other process it gets libaoticache_torchshim.so (the shim): the library is loaded from a
 * sealed copy in memory, which needs the shim instead of libtorch. The shim is loaded locally, under a name of its own.
 * A process may therefore import PyTorch later: libraries that were loaded before keep the shim, and PyTorch gets its
 * own libtorch. A library that names no libtorch at all (aot_inductor.link_libtorch=False) is always loaded from such a
 * copy. No symbol of a library becomes global.
 *
 * Thread safety: all functions may be called from any thread. Libraries and runners are reference counted; a runner may
 * run in many threads concurrently.
 *
 * Fork: a child may use what the parent loaded, and load more. A fork waits for loads and unloads of other threads.
 *
 * Users include <aoticache/runner.h>.
 */
#ifndef AOTICACHE_LOADER_LOADER_H
#define AOTICACHE_LOADER_LOADER_H

#include "base/base.h"
#include "loader/tensor.h"
#include "runtime/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- where aoti_torch_* comes from ---- */

typedef enum aoticache_torch_kind {
    AOTICACHE_TORCH_LIBTORCH = 0, /* PyTorch's own, already in the process */
    AOTICACHE_TORCH_SHIM = 1,     /* libaoticache_torchshim.so */
} aoticache_torch_kind;

/* One provider: its functions, bound. Lives as long as the process. */
typedef struct aoticache_torch {
    aoticache_torch_kind kind;
    const char *path; /* the file that provides them */
#define AOTICACHE_TORCH_FIELD(result, name, parameters) result(*name) parameters;
    AOTICACHE_ABI_TORCH_LIST(AOTICACHE_TORCH_FIELD)
#undef AOTICACHE_TORCH_FIELD
} aoticache_torch;

/*
 * Returns the provider of this process: libtorch if it is loaded, otherwise the shim. Decided at the first call and
 * kept: tensors of one provider must not be handed to libraries of the other.
 * Returns: OK, LOAD_FAILED (the shim is not found or incomplete), NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_torch_get(const aoticache_torch **ret_torch, aoticache_error *ret_error);

/* ---- libraries ---- */

typedef struct aoticache_library aoticache_library;

/*
 * The names that a library needs and offers, read from the file without loading it (ELF). All strings belong to the
 * description.
 */
typedef struct aoticache_library_description {
    size_t needed_count; /* DT_NEEDED */
    const char **needed;
    size_t symbol_count; /* undefined aoti_torch_*, torch_*, Sleef_* and PyTorch's C++ symbols (not weak), sorted */
    const char **symbols;
    size_t missing_count; /* those of `symbols` that the shim lacks (all, if there is no shim); not 0: needs PyTorch */
    const char **missing;
    size_t export_count; /* AOTInductor* functions it exports, sorted */
    const char **exports;
    bool proxy_executor; /* calls operators through PyTorch's proxy executor */
    bool cuda;           /* needs libtorch_cuda or aoti_torch_cuda_* */
    const char *machine; /* "x86_64", "aarch64", or "machine 243". For a 32-bit library, or one with the other
                            * byte order, no other member is filled in, and the text says which: "arm, 32-bit
                            * big-endian" */
} aoticache_library_description;

/*
 * Describes a library. Returns: OK, INVALID (not an ELF shared library, or a truncated one, as ret_error says), IO,
 * NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_library_describe(int fd, aoticache_library_description **ret_description,
                                                          aoticache_error *ret_error);
AOTICACHE_API void aoticache_library_description_free(aoticache_library_description *description);

typedef struct aoticache_load_options {
    size_t size;
    /*
     * Always load from a private copy in memory. Without this, a library in a process with PyTorch is loaded from the
     * file itself, so that processes share its pages. But PyTorch's libraries have unique symbols (STB_GNU_UNIQUE): the
     * dynamic linker never unloads such a library, and all libraries share the variables with these symbols. In a copy
     * they are ordinary symbols, so the library has its own variables and is unloaded by the last unref. The last unref
     * also runs the destructors of the library's thread-local variables on the calling thread (normally they run when
     * their threads end), and unmaps files that the library mapped and did not unmap.
     */
    bool private_copy;
    /*
     * The digest that the file was verified to have; NULL: the file is trusted as it is. With a digest, a copy is
     * hashed while it is made, so that what runs is what was verified, even if somebody writes to the file meanwhile.
     * The file itself is loaded (in a process with PyTorch) only if it belongs to this process's effective user or to
     * root and nobody else may write to it; otherwise a copy is loaded. Borrowed for the call.
     */
    const aoticache_digest *digest;
    /*
     * A file in memory with these bytes that nobody else writes to (aoticache_artifact_take_copy()); it saves copying
     * and hashing them again. -1: none. The loader owns it from the call on, even if the call fails.
     */
    int copy;
    /*
     * The proxy executor that runners of the library will be given (aoticache_runner_options.proxy_executor). NULL:
     * none; then a library that calls operators through it is refused in a process without PyTorch.
     * aoticache_package_load() provides one.
     */
    AOTIProxyExecutorHandle proxy_executor;
} aoticache_load_options;

#ifdef __cplusplus
static inline aoticache_load_options aoticache_load_options_init()
{
    aoticache_load_options made = AOTICACHE_SIZED_INIT(aoticache_load_options);
    made.copy = -1;
    return made;
}
#define AOTICACHE_LOAD_OPTIONS_INIT aoticache_load_options_init()
#else
#define AOTICACHE_LOAD_OPTIONS_INIT {.size = sizeof(aoticache_load_options), .copy = -1}
#endif

/*
 * Loads a kernel library.
 *
 * fd:   open for reading, already verified; borrowed for the call.
 * name: for messages: a digest or a path.
 * options: NULL: the defaults.
 *
 * A library may open its own file to map weights (it imports dladdr). It then keeps a descriptor of the file as long as
 * it lives. It finds the file itself, whose pages all processes share, even if it was loaded from a copy. There are two
 * exceptions: static constructors find the copy, which has only the segments; and if this process may not open the file
 * again, the weights are part of the copy.
 *
 * If the same file is loaded twice without a copy, the dynamic linker has one library, with one set of global
 * variables; loaded from copies, it has two. Libraries do not see each other's symbols, except for unique symbols
 * (aoticache_load_options.private_copy).
 *
 * Returns: OK; UNSUPPORTED (for another machine; needs functions that the shim, or this process's PyTorch, lacks; lacks
 * functions that no host can do without: all missing functions are named); LOAD_FAILED (the dynamic linker's message);
 * CORRUPT (the file's bytes are not those of options.digest); INVALID; IO; NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_library_load_fd(int fd, const char *name,
                                                         const aoticache_load_options *options,
                                                         aoticache_library **ret_library, aoticache_error *ret_error);
/* Drops a reference; the last one unloads the library. NULL is allowed. */
AOTICACHE_API void aoticache_library_unref(aoticache_library *library);

/* Facts about a loaded library, which stay the same. Borrowed from the library. */
typedef struct aoticache_library_info {
    const char *name;                /* as it was given to the load */
    aoticache_torch_kind torch_kind; /* where its aoti_torch_* functions come from */
    bool needs_proxy_executor; /* calls operators through PyTorch's proxy executor, which its host must pass to runs */
    uint64_t bytes;            /* address space that its segments take */
} aoticache_library_info;

/* Returns the facts, never NULL. Borrowed from the library. */
AOTICACHE_API const aoticache_library_info *aoticache_library_get_info(const aoticache_library *library);

#ifdef __cplusplus
}
#endif
#endif
