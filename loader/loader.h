/*
 * loader: from a verified descriptor to a kernel that runs.
 *
 * Owns the loading of kernel libraries (dlopen through the descriptor, version of their C interface, all missing
 * symbols by name), where their aoti_torch_* functions come from, containers and runners. Knows nothing of keys or the
 * cache.
 *
 * A library that PyTorch made needs libtorch_cpu.so for its aoti_torch_* functions. In a process that has libtorch it
 * gets that one. In any other it gets libaoticache_torchshim.so, and for that is loaded from a sealed copy in memory in
 * which the needed library is the shim. The shim is loaded locally, under a name nobody else uses, so a process that
 * imports PyTorch later is not disturbed: libraries loaded before keep the shim, PyTorch gets its own libtorch. A
 * library that names no libtorch at all (aot_inductor.link_libtorch=False) is loaded from such a copy in both kinds of
 * process: nothing becomes global.
 *
 * Thread safety: all functions may be called from any thread. Libraries and runners are reference counted; a runner may
 * run in many threads at once. Fork: a child may use what the parent loaded.
 */
#ifndef AOTICACHE_LOADER_LOADER_H
#define AOTICACHE_LOADER_LOADER_H

#include "base/base.h"
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

/* What a tensor looks like; pointers are borrowed from the tensor. */
typedef struct aoticache_tensor_view {
    void *data; /* of the first element: the storage offset is included */
    int32_t dtype;
    aoticache_device device;
    int64_t ndim, numel;
    const int64_t *sizes;
    const int64_t *strides;
} aoticache_tensor_view;
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
 * Loads a kernel library.
 *
 * fd:   open for reading, already verified; borrowed for the call: a library that opens its own file to map weights (it
 *       imports dladdr) keeps a descriptor of its own as long as it lives.
 * name: for messages: a digest or a path.
 *
 * The same file loaded twice from the descriptor itself is one library to the dynamic linker, with its global
 * variables; loaded with the shim it is two. PyTorch's libraries have unique symbols (STB_GNU_UNIQUE), for which the
 * dynamic linker keeps them mapped after the last unref.
 *
 * Returns: OK; UNSUPPORTED (another machine's; needs functions that the shim, or this process's PyTorch, lacks: all of
 * them are named; exports no interface we know: all missing functions are named); LOAD_FAILED (the dynamic linker's
 * message); INVALID; IO; NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_library_load_fd(int fd, const char *name, aoticache_library **ret_library,
                                                         aoticache_error *ret_error);
AOTICACHE_API aoticache_library *aoticache_library_ref(aoticache_library *library);
/* The last one unloads. NULL is allowed. */
AOTICACHE_API void aoticache_library_unref(aoticache_library *library);
AOTICACHE_API const char *aoticache_library_name(const aoticache_library *library);
AOTICACHE_API aoticache_torch_kind aoticache_library_torch_kind(const aoticache_library *library);
/* Whether it exports the function, by its AOTInductor name. */
AOTICACHE_API bool aoticache_library_exports(const aoticache_library *library, const char *function);

/* ---- runners ---- */

typedef struct aoticache_runner aoticache_runner;

typedef struct aoticache_runner_options {
    size_t size;
    const char *device;    /* NULL: "cpu" */
    size_t num_models;     /* 0: 1. So many threads run at once; more wait */
    const char *directory; /* where side files (cubins) are; NULL: none */
} aoticache_runner_options;

#define AOTICACHE_RUNNER_OPTIONS_INIT {.size = sizeof(aoticache_runner_options)}

/* Holds a reference to the library. Returns: OK, LOAD_FAILED (with the library's own message), INVALID, NO_MEMORY. */
AOTICACHE_API aoticache_status aoticache_runner_create(aoticache_library *library,
                                                       const aoticache_runner_options *options,
                                                       aoticache_runner **ret_runner, aoticache_error *ret_error);
AOTICACHE_API aoticache_runner *aoticache_runner_ref(aoticache_runner *runner);
AOTICACHE_API void aoticache_runner_unref(aoticache_runner *runner);

/*
 * Gives the runner something to hold as long as it lives: release(owner) is called once, by the last unref, after the
 * container is gone and the library has been unloaded. (It keeps what the library was loaded from.) A runner has one
 * owner at most. On failure nothing is held and release is not called.
 * Returns: OK, INVALID (NULL, or it has one already).
 */
AOTICACHE_API aoticache_status aoticache_runner_attach(aoticache_runner *runner, void *owner,
                                                       void (*release)(void *owner), aoticache_error *ret_error);

AOTICACHE_API size_t aoticache_runner_num_inputs(const aoticache_runner *runner);
AOTICACHE_API size_t aoticache_runner_num_outputs(const aoticache_runner *runner);
/* Borrowed from the library; NULL past the end. */
AOTICACHE_API const char *aoticache_runner_input_name(const aoticache_runner *runner, size_t position);
AOTICACHE_API const char *aoticache_runner_output_name(const aoticache_runner *runner, size_t position);

/*
 * Runs. inputs: borrowed, they stay the caller's (a new handle of each is made and given away). outputs: num_outputs
 * places; on OK the tensors are the caller's, on failure nothing is written. With up to 32 inputs and outputs together
 * no memory is allocated here; no lock is taken here (the library's pool has its own).
 *
 * Source: AOTInductorModelContainerRun, torch/csrc/inductor/aoti_runtime/interface.h.
 * Returns: OK, INVALID (wrong counts, both numbers named), RUN_FAILED (with the library's own message), NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_run(aoticache_runner *runner, const AtenTensorHandle *inputs,
                                                    size_t num_inputs, AtenTensorHandle *outputs, size_t num_outputs,
                                                    aoticache_error *ret_error);
/* The same, but the inputs are taken, on failure too: no handles are made. */
AOTICACHE_API aoticache_status aoticache_runner_run_stealing(aoticache_runner *runner, AtenTensorHandle *inputs,
                                                             size_t num_inputs, AtenTensorHandle *outputs,
                                                             size_t num_outputs, aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
