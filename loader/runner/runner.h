/*
 * loader/runner/runner: the host's handle on one container of a library: running, constants, folding, swapping.
 *
 * The counterpart of PyTorch's AOTIModelContainerRunner (torch/csrc/inductor/aoti_runner/model_container_runner.h,
 * 2.13), one type for all devices.
 *
 * Thread safety: every function may be called from any thread while others run, update, fold or swap the same runner,
 * except the last unref, and except from inside a run, a folding or a callback of that runner. Fork: a child may use
 * what the parent created, if no other thread of the parent was inside a function of the runner at the fork; a run
 * that another thread had begun never ends in the child.
 *
 * The fast path. PyTorch's libraries have a run that takes none of the pool's locks
 * (AOTInductorModelContainerRunSingleThreaded), for callers that guarantee that no other call is under way. The
 * runner guarantees it: a run first takes an atomic flag and then looks whether anybody is registered; if not, it
 * runs single-threaded and clears the flag. Whoever finds the flag taken, and every function that changes or lists
 * constants (update, fold, swap, free, extract), registers and waits until the flag is clear, which is one run at
 * most; as long as one is registered no single-threaded run begins. So a single-threaded run never overlaps with
 * anything.
 *
 * Those who are registered are ordered by the runner, not by the library's locks, which leave gaps (loader/runner/run_gate.h
 * lists them). Up to num_models runs are inside the library together. What changes the active buffer (update, blob,
 * fold, swap) is inside alone, and so is the first run after it, which folds; runs never see half of a change, and
 * always the last one that had ended when they began. What concerns the inactive buffer goes on beside runs in the
 * pool; changes and listings follow one another. Waiting is spinning, then yielding, then sleeping a millisecond at
 * most; nobody is overtaken for long. Uncontended, all this costs one atomic exchange, two loads and one store.
 *
 * On a GPU a run may go on there when the function has returned. As in PyTorch, changes of constants do not wait for
 * that: the caller synchronises the streams of earlier runs before it updates the buffer that they read, swaps and
 * updates it, or frees it.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_LOADER_RUNNER_RUNNER_H
#define AOTICACHE_LOADER_RUNNER_RUNNER_H

#include "loader/loader.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aoticache_runner aoticache_runner;

typedef struct aoticache_runner_options {
    size_t size;
    const char *device;    /* NULL: "cpu". "cuda", "cuda:1", or what a backend is registered for */
    size_t num_models;     /* 0: 1; 4096 at most. So many threads run at once; more wait */
    const char *directory; /* where side files (cubins) are; NULL: none */
    AOTIProxyExecutorHandle proxy_executor; /* for runs and folding that name none; borrowed while the runner lives */
    bool pool_only;        /* never take the fast path */
} aoticache_runner_options;

#define AOTICACHE_RUNNER_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_runner_options)

/*
 * Creates a container on a device. Holds a reference to the library.
 *
 * Source: AOTInductorModelContainerCreateWithDevice (AOTInductorModelContainerCreate where a library has only that).
 * Returns: OK; LOAD_FAILED (with the library's own message); UNSUPPORTED (the device cannot run this library: no such
 * GPU, kernels for another architecture, an older driver; all of it named); INVALID (an unknown device: those that are
 * known are named; too many models); NO_MEMORY.
 */
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

/* The library, borrowed; the device as it was given, "cpu" for NULL. */
AOTICACHE_API aoticache_library *aoticache_runner_library(const aoticache_runner *runner);
AOTICACHE_API const char *aoticache_runner_device(const aoticache_runner *runner);

AOTICACHE_API size_t aoticache_runner_num_inputs(const aoticache_runner *runner);
AOTICACHE_API size_t aoticache_runner_num_outputs(const aoticache_runner *runner);
/* Borrowed from the library; NULL past the end, or where the library does not tell. */
AOTICACHE_API const char *aoticache_runner_input_name(const aoticache_runner *runner, size_t position);
AOTICACHE_API const char *aoticache_runner_output_name(const aoticache_runner *runner, size_t position);

/*
 * How the inputs and outputs make up the arguments and results of the Python function: two JSON texts (torch.utils
 * _pytree's serialized TreeSpec), borrowed from the library; "" where it has none.
 * Source: AOTInductorModelContainerGetCallSpec. Returns: OK, UNSUPPORTED (not exported), RUN_FAILED.
 */
AOTICACHE_API aoticache_status aoticache_runner_call_spec(const aoticache_runner *runner, const char **ret_in_spec,
                                                          const char **ret_out_spec, aoticache_error *ret_error);

/* ---- running ---- */

/*
 * Runs. inputs: borrowed, they stay the caller's (a new handle of each is made and given away). outputs: num_outputs
 * places; on OK the tensors are the caller's, on failure nothing is written. With up to 32 inputs and outputs together
 * no memory is allocated here. On the device's current stream.
 *
 * Source: AOTInductorModelContainerRun, torch/csrc/inductor/aoti_runtime/interface.h. Returns: OK, INVALID (wrong
 * counts, both numbers named), RUN_FAILED (with the library's own message, and where a function of PyTorch's failed the
 * reason that PyTorch 2.13 or the shim has for it; or a constant has no value: named), NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_run(aoticache_runner *runner, const AtenTensorHandle *inputs,
                                                    size_t num_inputs, AtenTensorHandle *outputs, size_t num_outputs,
                                                    aoticache_error *ret_error);
/* The same, but the inputs are taken, on failure too: no handles are made. */
AOTICACHE_API aoticache_status aoticache_runner_run_stealing(aoticache_runner *runner, AtenTensorHandle *inputs,
                                                             size_t num_inputs, AtenTensorHandle *outputs,
                                                             size_t num_outputs, aoticache_error *ret_error);

typedef struct aoticache_run_options {
    size_t size;
    AOTInductorStreamHandle stream;         /* a cudaStream_t; NULL: the device's current one */
    AOTIProxyExecutorHandle proxy_executor; /* NULL: the runner's */
    bool steal_inputs;                      /* as aoticache_runner_run_stealing() */
} aoticache_run_options;

#define AOTICACHE_RUN_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_run_options)

/*
 * As aoticache_runner_run(); options may be NULL. With steal_inputs the array is written to: every place is NULL
 * afterwards, but where the options themselves are INVALID, when nothing is taken.
 */
AOTICACHE_API aoticache_status aoticache_runner_run_with(aoticache_runner *runner, const aoticache_run_options *options,
                                                         AtenTensorHandle *inputs, size_t num_inputs,
                                                         AtenTensorHandle *outputs, size_t num_outputs,
                                                         aoticache_error *ret_error);

/* ---- constants ---- */

/* What a constant is (ConstantType, torch/csrc/inductor/aoti_runtime/utils.h). */
typedef enum aoticache_constant_type {
    AOTICACHE_CONSTANT_UNKNOWN = 0,
    AOTICACHE_CONSTANT_PARAMETER = 1,
    AOTICACHE_CONSTANT_BUFFER = 2,
    AOTICACHE_CONSTANT_TENSOR_CONSTANT = 3,
    AOTICACHE_CONSTANT_FOLDED = 4,
} aoticache_constant_type;

/* Strings are borrowed from the library. */
typedef struct aoticache_constant {
    const char *name;         /* the library's own: "layer_weight" */
    const char *original_fqn; /* the model's: "layer.weight"; of a folded one its name, or "" */
    int32_t dtype;            /* aoticache_dtype; -1 where the library does not tell */
    int32_t type;             /* aoticache_constant_type; UNKNOWN where it does not tell */
    bool from_folded;         /* made by constant folding: not to be updated */
    bool has_bytes;
    uint64_t bytes; /* where has_bytes: of the data in the library */
} aoticache_constant;

AOTICACHE_API size_t aoticache_runner_num_constants(const aoticache_runner *runner);
/* Returns: OK, INVALID (no such position), RUN_FAILED (with the library's own message). */
AOTICACHE_API aoticache_status aoticache_runner_read_constant(const aoticache_runner *runner, size_t position,
                                                              aoticache_constant *ret_constant,
                                                              aoticache_error *ret_error);

typedef struct aoticache_update_options {
    size_t size;
    bool inactive;     /* into the inactive buffer: visible after a swap */
    bool partial;      /* not every constant has to be named. Without it every one must be, but for what PyTorch's
                        * libraries let pass: a model's buffers, what tracing made, empty parameters */
    bool user_managed; /* no copy of what is named: the tensors' memory is used as long as they are the constants */
    bool from_cpu;     /* tensors on the CPU are copied to the container's device */
    bool by_fqn;       /* names are original FQNs */
} aoticache_update_options;

#define AOTICACHE_UPDATE_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_update_options)

/*
 * New values for constants. options may be NULL: the defaults. pairs: names and tensors, borrowed for the call; with
 * user_managed the tensors, as handles and as memory, until another update replaces them in that buffer or the runner
 * is gone. by_fqn: constants that share an FQN all get the value. from_cpu is the plain update where the library has
 * no function for it and the device is the CPU; together with user_managed it is INVALID.
 *
 * Before anything changes these are refused: a name twice, one that no constant has (nearest one suggested), one of a
 * folded constant; a tensor that is NULL, or whose dtype, sizes, strides or kind of device are not the constant's (both
 * are named). A tensor may be a part of a larger one; only its elements are read. The stride of a dimension with one
 * element does not matter.
 *
 * A library tells sizes and strides by the tensors that it makes of its own weights or of a blob. One that has neither,
 * until now, tells less: before the change the dtype is checked, that the bytes fit into the constant's place, and that
 * no elements share memory (in place of sizes, user_managed tensors must fill that place); the sizes are checked after
 * the copy, and where they differ the constant has no value and the result is INVALID; strides are trusted. One of
 * PyTorch 2.6, which tells neither bytes nor tensors, is checked for the dtype alone.
 *
 * Constants that are not named keep their values in the active buffer. In the inactive one parameters do; of those that
 * an update need not name, the inactive buffer gets copies of what the active one has (as in PyTorch, also where the
 * update is partial, or user_managed), or keeps its own where the active one has none. With no value in either the
 * update is INVALID. So is one that names or would copy a constant that the compile laid out in a way of its own, which
 * is no strided tensor (oneDNN's, where the model was frozen): PyTorch copies as many bytes as chance has it.
 *
 * Through the function of the library that takes pairs, where it has it; else through the one that takes a C++ map,
 * with libaoticache_cxxbridge.so, which is loaded for it.
 *
 * Source: AOTInductorModelContainerUpdateConstantBuffer, ...InactiveConstantBuffer, ...UserManagedConstantBuffer,
 * ...ConstantBufferFromCpu, and their forms with Pairs.
 * Returns: OK; INVALID; UNSUPPORTED (the library has no function for it: named); LOAD_FAILED (no
 * libaoticache_cxxbridge.so); RUN_FAILED (the library's own message); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_update_constants(aoticache_runner *runner,
                                                                 const aoticache_update_options *options,
                                                                 const AOTInductorConstantMapEntry *pairs,
                                                                 size_t num_pairs, aoticache_error *ret_error);

/* Bytes of the blob that holds all constants which are not folded (AOTInductorModelContainerGetConstantsBlobSize).
 * Returns: OK, UNSUPPORTED, RUN_FAILED. */
AOTICACHE_API aoticache_status aoticache_runner_constants_blob_bytes(const aoticache_runner *runner,
                                                                     uint64_t *ret_bytes, aoticache_error *ret_error);
/*
 * All constants of the active buffer from one blob laid out as the library wants it: the weights file that
 * package_constants_on_disk_format="binary_blob" makes. May be called again, with another blob. blob: borrowed for the
 * call; every container has a copy, as PyTorch's libraries make one on the CPU, too. So that processes share the pages of a
 * file, a user-managed update with tensors over its mapping may follow (aoticache_package_load() does that).
 * Source: AOTInductorModelUpdateConstantsFromBlob for constants that have no values yet, and else
 * AOTInductorModelContainerUpdateConstantBuffer: the former gives constants memory once.
 * Returns: OK; INVALID (another size, both named; or constants of a library without weights had values by name before
 * the first blob, so that their strides in one are unknown); UNSUPPORTED; RUN_FAILED; LOAD_FAILED (no
 * libaoticache_cxxbridge.so); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_update_constants_from_blob(aoticache_runner *runner, const void *blob,
                                                                           uint64_t bytes, aoticache_error *ret_error);

/*
 * options: stream and proxy executor; may be NULL. In the inactive buffer, PyTorch's libraries replace what tracing
 * made by copies of the active one's. Source: AOTInductorModelContainerRunConstantFolding. Returns: OK, UNSUPPORTED,
 * INVALID, NO_MEMORY, RUN_FAILED (with the library's own message; a constant of that buffer, or one that tracing made,
 * of the active one, has no value).
 */
AOTICACHE_API aoticache_status aoticache_runner_fold_constants(aoticache_runner *runner, bool inactive,
                                                               const aoticache_run_options *options,
                                                               aoticache_error *ret_error);
/*
 * Active and inactive buffer change places. Runs are refused while the active one lacks a constant, as one does that
 * was never updated, or not since it was freed; PyTorch's libraries would end the process. (A library without
 * AOTInductorModelContainerExtractConstantsMapEntries cannot be asked what it never had, and is trusted.) Source:
 * AOTInductorModelContainerSwapConstantBuffer. Returns: OK, UNSUPPORTED, RUN_FAILED.
 */
AOTICACHE_API aoticache_status aoticache_runner_swap_constants(aoticache_runner *runner, aoticache_error *ret_error);
/*
 * The inactive buffer has no values any more; updates, one or several, give it new ones. Its memory is given back, but
 * for a buffer whose constants have been folded, which keeps it for those: PyTorch's libraries would end the process at
 * the next update of such a buffer. Memory of the user's is not read any more in any case.
 * Source: AOTInductorModelContainerFreeInactiveConstantBuffer. Returns: OK, UNSUPPORTED, RUN_FAILED, LOAD_FAILED (no
 * libaoticache_cxxbridge.so), NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_free_inactive_constants(aoticache_runner *runner,
                                                                        aoticache_error *ret_error);

/*
 * tensor: borrowed, until that buffer changes; the name for the call. Return false to stop. The callback must not use
 * the runner, which runs off the fast path meanwhile.
 */
typedef bool (*aoticache_constant_fn)(void *user, const char *original_fqn, AtenTensorHandle tensor);
/*
 * The constants that have a value in a buffer, without folded ones, by original FQN, in the library's order.
 * Source: AOTInductorModelContainerExtractConstantsMapEntries, ...ExtractConstantsMap.
 * Returns: OK, UNSUPPORTED, LOAD_FAILED (no libaoticache_cxxbridge.so), RUN_FAILED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_extract_constants(aoticache_runner *runner, bool inactive,
                                                                  aoticache_constant_fn callback, void *user,
                                                                  aoticache_error *ret_error);

/* ---- devices ---- */

/*
 * What the loader asks of a kind of device; "cpu" and "cuda" are registered from the beginning. The counterpart of
 * PyTorch's registry of runners (getAOTIModelRunnerRegistry). Functions may be NULL and are called from any thread.
 */
typedef struct aoticache_device_backend {
    size_t size;
    const char *name;    /* the part before the ':' of device strings; letters, digits, '_' */
    int32_t device_type; /* aoticache_device_type of its tensors */
    void *user;
    /* Before a container is created: OK, or UNSUPPORTED with what is wrong. index: -1 where the string has none. */
    aoticache_status (*check)(void *user, const aoticache_library *library, int32_t index, const char *directory,
                              aoticache_error *ret_error);
    /* Instead of AOTInductorModelContainerCreateWithDevice. OK with a container, else why not. */
    aoticache_status (*create)(void *user, const aoticache_library *library, const char *device, size_t num_models,
                               const char *directory, AOTInductorModelContainerHandle *ret_container,
                               aoticache_error *ret_error);
    /* The stream of runs that name none; without it: NULL. */
    AOTInductorStreamHandle (*current_stream)(void *user, int32_t index);
} aoticache_device_backend;

#define AOTICACHE_DEVICE_BACKEND_INIT AOTICACHE_SIZED_INIT(aoticache_device_backend)

/*
 * Copies what is given; the copy stays for as long as the process does. A name registered again replaces the older
 * backend for runners created from then on. Returns: OK, INVALID, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_device_backend_register(const aoticache_device_backend *backend,
                                                                 aoticache_error *ret_error);
/* Brings the one before it back. Runners that use it go on using it: what it points to must outlive them. NOT_FOUND. */
AOTICACHE_API aoticache_status aoticache_device_backend_unregister(const char *name, aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
