/*
 * loader: from a verified descriptor to a kernel that runs.
 *
 * Owns the loading of kernel libraries (dlopen through the descriptor, version of their C interface, all missing
 * symbols by name) and where their aoti_torch_* functions come from; beside this header loader/runner/runner.h has containers
 * and runners, loader/check/check.h tensor checks, loader/package/package.h .pt2 archives,
 * loader/cuda/cuda.h the GPU. Knows nothing of keys or the cache.
 *
 * A library that PyTorch made needs libtorch_cpu.so for its aoti_torch_* functions. In a process that has libtorch it
 * gets that one. In any other it gets libaoticache_torchshim.so, and for that is loaded from a sealed copy in memory in
 * which the needed library is the shim. The shim is loaded locally, under a name nobody else uses, so a process that
 * imports PyTorch later is not disturbed: libraries loaded before keep the shim, PyTorch gets its own libtorch. A
 * library that names no libtorch at all (aot_inductor.link_libtorch=False) is loaded from such a copy in both kinds of
 * process: nothing becomes global.
 *
 * Thread safety: all functions may be called from any thread. Libraries and runners are reference counted; a runner may
 * run in many threads at once. Fork: a child may use what the parent loaded, and
 * load more; a fork waits for loads and unloads of other threads.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_LOADER_LOADER_H
#define AOTICACHE_LOADER_LOADER_H

#include "base/base.h"
#include "base/tensor_view.h"
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
 * The provider of this process: libtorch where it is loaded, else the shim. Decided at the first call and kept: tensors
 * of one provider must not be handed to libraries of the other.
 * Returns: OK, LOAD_FAILED (the shim is not found or incomplete), NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_torch_get(const aoticache_torch **ret_torch, aoticache_error *ret_error);

/* ---- tensors: thin helpers over the provider ---- */

/*
 * A tensor over the caller's memory, on the CPU. data is borrowed until the tensor and all that share its storage are
 * gone. sizes, strides: ndim elements each, strides in elements, NULL for contiguous.
 */
AOTICACHE_API aoticache_status aoticache_tensor_from_blob(void *data, int32_t dtype, int64_t ndim, const int64_t *sizes,
                                                          const int64_t *strides, AtenTensorHandle *ret_tensor,
                                                          aoticache_error *ret_error);
/* NULL is allowed. */
AOTICACHE_API void aoticache_tensor_free(AtenTensorHandle tensor);

/* base/tensor_view.h; pointers are borrowed from the tensor. */
AOTICACHE_API aoticache_status aoticache_tensor_get_view(AtenTensorHandle tensor, aoticache_tensor_view *ret_view,
                                                         aoticache_error *ret_error);

/* ---- libraries ---- */

typedef struct aoticache_library aoticache_library;

/*
 * What a library needs and offers, read from the file without loading it (ELF). All strings belong to the description.
 */
typedef struct aoticache_library_description {
    size_t needed_count;   /* DT_NEEDED */
    const char **needed;
    size_t symbol_count;   /* undefined aoti_torch_*, torch_*, Sleef_* and PyTorch's C++ symbols (not weak), sorted */
    const char **symbols;
    size_t missing_count;  /* of these: what the shim does not have (all, without a shim), so that it needs PyTorch */
    const char **missing;
    size_t export_count;   /* AOTInductor* functions it exports, sorted */
    const char **exports;
    bool proxy_executor;   /* calls operators through PyTorch's proxy executor */
    bool cuda;             /* needs libtorch_cuda or aoti_torch_cuda_* */
    const char *machine;   /* "x86_64", "aarch64", or "machine 243"; of 32-bit ones and of the other byte order only
                            * this is read, and says so: "arm, 32-bit big-endian" */
} aoticache_library_description;

/* Returns: OK, INVALID (not an ELF shared library, or a truncated one; ret_error says which), IO, NO_MEMORY. */
AOTICACHE_API aoticache_status aoticache_library_describe(int fd, aoticache_library_description **ret_description,
                                                          aoticache_error *ret_error);
AOTICACHE_API void aoticache_library_description_free(aoticache_library_description *description);

/*
 * What can be said of a kernel library's file whatever process it is for: that it is an ELF shared library of the machine
 * and exports what no host can do without. aoticache_library_load_fd() looks at that, and at what this process lacks.
 *
 * other_arch: NULL for this machine; of another one ("aarch64") the name is compared.
 * Returns: OK, INVALID (not an ELF shared library, or a truncated one), UNSUPPORTED (of another machine, or functions are
 * missing: all are named), IO, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_library_check_fd(int fd, const char *other_arch, aoticache_error *ret_error);

/*
 * Loads a kernel library.
 *
 * fd:   open for reading, already verified; borrowed for the call: a library that opens its own file to map weights (it
 *       imports dladdr) keeps a descriptor of its own as long as it lives, and finds the file itself by it, whose pages
 *       all processes share, also where it was loaded from a copy. (Static constructors would find the copy, which has
 *       only the segments; and where this process may not open the file again, weights are copied too.)
 * name: for messages: a digest or a path.
 *
 * The same file loaded twice from the descriptor itself is one library to the dynamic linker, with its global
 * variables; loaded with the shim it is two. Libraries never see each other's symbols, but for the unique ones that
 * aoticache_load_options speaks of.
 *
 * Returns: OK; UNSUPPORTED (another machine's; needs functions that the shim, or this process's PyTorch, lacks: all of
 * them are named; exports no interface we know: all missing functions are named); LOAD_FAILED (the dynamic linker's
 * message); CORRUPT (options.digest: the file does not hold these bytes any more); INVALID; IO; NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_library_load_fd(int fd, const char *name, aoticache_library **ret_library,
                                                         aoticache_error *ret_error);

typedef struct aoticache_load_options {
    size_t size;
    /*
     * Load from a private copy in memory in any case. A library that is loaded in a process with PyTorch is else loaded
     * from the file itself, so that processes share its pages; but PyTorch's libraries have unique symbols
     * (STB_GNU_UNIQUE), which makes the dynamic linker keep them mapped for ever and share these variables among all
     * of them. In a copy these symbols are ordinary ones: the library is really unloaded, and sees only its own. So
     * that it can be, the destructors of its thread-local variables which are due when threads end are called by the
     * last unref, on that thread; and files that it has mapped and not unmapped are unmapped.
     */
    bool private_copy;
    /*
     * What the file's bytes were verified to hash to, or NULL: then they are believed. With it, whatever is loaded from
     * a copy is hashed while it is copied, so that what runs is what was verified, whoever writes to the file meanwhile;
     * and the file itself is loaded, in a process with PyTorch, only where it belongs to this process's effective user or
     * to root and nobody else may write it, else a copy. Borrowed for the call.
     */
    const aoticache_digest *digest;
    /*
     * A file in memory with these bytes that nobody else writes to (aoticache_artifact_take_copy), or -1: it saves
     * copying and hashing them once more. The loader's from the call on, also where it fails.
     */
    int copy;
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

/* As aoticache_library_load_fd(); options may be NULL. */
AOTICACHE_API aoticache_status aoticache_library_load_fd_with(int fd, const char *name,
                                                              const aoticache_load_options *options,
                                                              aoticache_library **ret_library,
                                                              aoticache_error *ret_error);
/* Bytes of address space that its segments take. */
AOTICACHE_API uint64_t aoticache_library_bytes(const aoticache_library *library);
AOTICACHE_API aoticache_library *aoticache_library_ref(aoticache_library *library);
/* The last one unloads. NULL is allowed. */
AOTICACHE_API void aoticache_library_unref(aoticache_library *library);
AOTICACHE_API const char *aoticache_library_name(const aoticache_library *library);
AOTICACHE_API aoticache_torch_kind aoticache_library_torch_kind(const aoticache_library *library);
/* Whether it calls operators through PyTorch's proxy executor, which its host must then give to runs. */
AOTICACHE_API bool aoticache_library_needs_proxy_executor(const aoticache_library *library);
/* Whether it exports the function, by its AOTInductor name. */
AOTICACHE_API bool aoticache_library_exports(const aoticache_library *library, const char *function);

/* Who made a library, as far as its file tells. */
typedef enum aoticache_library_maker {
    AOTICACHE_MAKER_UNKNOWN = 0,
    AOTICACHE_MAKER_PYTORCH = 1, /* PyTorch's AOTInductor, C++ */
    AOTICACHE_MAKER_RUNTIME = 2, /* written in C over libaoticache_runtime.a */
} aoticache_library_maker;

/*
 * What the file of a library tells beside its names (aoticache_library_describe()). All strings belong to the traits.
 * Of a library for another class or byte order nothing is told: all is zero and "".
 */
typedef struct aoticache_library_traits {
    aoticache_library_maker maker;
    const char *soname;          /* "" where it has none */
    const char *compiler;        /* what .comment says first, "GCC: (GNU) 12.2.0"; "" where it says nothing */
    const char *proxy_operators; /* named for the proxy executor: "aten::cholesky, aten::fft_fft2"; "" where none is */
    size_t unique_symbol_count;  /* STB_GNU_UNIQUE: in a process with PyTorch they keep it mapped for ever */
    bool executable_stack;       /* hardened systems refuse to load it */
    bool finds_itself;           /* imports dladdr or the like: may open its own file to map weights */
    uint64_t mapped_bytes;       /* address space that its segments take */
    uint64_t appended_bytes;     /* behind everything that the ELF tables describe: weights */
} aoticache_library_traits;

/* Reads the whole file once. Returns: OK, INVALID (as aoticache_library_describe()), IO, NO_MEMORY. */
AOTICACHE_API aoticache_status aoticache_library_traits_read(int fd, aoticache_library_traits **ret_traits,
                                                             aoticache_error *ret_error);
AOTICACHE_API void aoticache_library_traits_free(aoticache_library_traits *traits);

/*
 * Which of the names the shared library at `fd` defines, such as libtorch_cpu.so; it is not loaded.
 *
 * names: sorted as strcmp() sorts. found: `count` places, set to true for what it defines and else left as they are, so
 * that several libraries can be asked one after the other; on failure nothing is set.
 * Returns: OK, INVALID, IO, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_library_find_symbols(int fd, const char *const *names, size_t count,
                                                              bool *found, aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
