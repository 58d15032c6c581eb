/*
 * loader/runner/runner: the host's handle to one container of a library: running, constants, folding, swapping.
 *
 * The counterpart of PyTorch's AOTIModelContainerRunner (torch/csrc/inductor/aoti_runner/model_container_runner.h,
 * 2.13), one type for all devices.
 *
 * Thread safety: every function may be called from any thread while others run, update, fold or swap the same runner.
 * There are two exceptions: the last unref, and calls from inside a run, a folding or a callback of the same runner.
 *
 * Fork: a child may use what the parent created, if no other thread of the parent was inside a function of the runner
 * at the fork. A run that another thread had begun never ends in the child.
 *
 * The fast path. PyTorch's libraries have a run that takes none of the pool's locks
 * (AOTInductorModelContainerRunSingleThreaded), for callers that guarantee that no other call is under way. The runner
 * gives this guarantee. A run takes an atomic flag and then checks whether anybody is registered; if not, it runs
 * single-threaded and clears the flag. A run that finds the flag taken registers and waits until it is clear, which
 * takes one run at most. So does every function that changes or lists constants (update, fold, swap, free, extract). No
 * single-threaded run begins while anybody is registered, so such a run never overlaps with anything.
 *
 * The runner itself orders those that are registered; the library's own locks leave gaps (loader/runner/run_lock.h
 * lists them). Up to num_models runs are inside the library concurrently. A change of the active buffer (update, blob,
 * fold, swap) is inside alone, and so is the first run after it, which folds. A run never sees half of a change, and it
 * sees every change that ended before it began. Work on the inactive buffer proceeds in parallel with runs in the pool.
 * Changes and listings happen one after the other. A waiter spins, then yields, then sleeps for a millisecond at most;
 * nobody starves. Without contention this costs one atomic exchange, two loads and one store.
 *
 * On a GPU, a run may still be under way when the function has returned. As in PyTorch, changes of constants do not
 * wait for it: synchronise the streams of earlier runs before you update, swap and update, or free the buffer that they
 * read.
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
    const char *device;    /* NULL: "cpu". "cuda", "cuda:1", or the device of a registered backend */
    size_t num_models;     /* number of threads that can run concurrently (others wait); 0: 1; 4096 at most */
    const char *directory; /* of side files (cubins); NULL: none */
    AOTIProxyExecutorHandle proxy_executor; /* for runs and folding that name none; borrowed as long as the runner */
    bool pool_only;                         /* never take the fast path */
} aoticache_runner_options;

#define AOTICACHE_RUNNER_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_runner_options)

/*
 * Creates a container on a device. Holds a reference to the library.
 *
 * Source: AOTInductorModelContainerCreateWithDevice (AOTInductorModelContainerCreate if a library has only that).
 * Returns: OK; LOAD_FAILED (with the library's own message); UNSUPPORTED (the device cannot run this library: there is
 * no such GPU, the kernels are for another architecture, or the driver is too old; the message names both sides);
 * INVALID (an unknown device, with a list of those that are known; too many models); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_create(aoticache_library *library,
                                                       const aoticache_runner_options *options,
                                                       aoticache_runner **ret_runner, aoticache_error *ret_error);
AOTICACHE_API aoticache_runner *aoticache_runner_ref(aoticache_runner *runner);
AOTICACHE_API void aoticache_runner_unref(aoticache_runner *runner);

/* Facts about a runner, which stay the same. Borrowed from the runner. */
typedef struct aoticache_runner_info {
    aoticache_library *library; /* borrowed */
    const char *device;         /* as it was given; "cpu" for NULL */
    size_t num_inputs, num_outputs;
    size_t num_constants; /* aoticache_runner_read_constant() reads one */
} aoticache_runner_info;

/* Returns the facts, never NULL. Borrowed from the runner. */
AOTICACHE_API const aoticache_runner_info *aoticache_runner_get_info(const aoticache_runner *runner);

static inline size_t aoticache_runner_num_inputs(const aoticache_runner *runner)
{
    return aoticache_runner_get_info(runner)->num_inputs;
}

static inline size_t aoticache_runner_num_outputs(const aoticache_runner *runner)
{
    return aoticache_runner_get_info(runner)->num_outputs;
}

/*
 * Returns the name of an input or of an output, borrowed from the library; NULL past the end, or if the library has no
 * names.
 */
AOTICACHE_API const char *aoticache_runner_tensor_name(const aoticache_runner *runner, bool output, size_t position);

/*
 * Returns two JSON texts that describe how inputs and outputs make up the arguments and results of the Python function
 * (serialized TreeSpecs of torch.utils._pytree). They are borrowed from the library; "" if it has none.
 * Source: AOTInductorModelContainerGetCallSpec. Returns: OK, UNSUPPORTED (not exported), RUN_FAILED.
 */
AOTICACHE_API aoticache_status aoticache_runner_call_spec(const aoticache_runner *runner, const char **ret_in_spec,
                                                          const char **ret_out_spec, aoticache_error *ret_error);

/* ---- running ---- */

typedef struct aoticache_run_options {
    size_t size;
    AOTInductorStreamHandle stream;         /* a cudaStream_t; NULL: the device's current one */
    AOTIProxyExecutorHandle proxy_executor; /* NULL: the runner's */
    bool steal_inputs;                      /* the run takes over the inputs */
} aoticache_run_options;

#define AOTICACHE_RUN_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_run_options)

/*
 * Runs the kernel, by default on the device's current stream.
 *
 * options: NULL: the defaults.
 * inputs:  borrowed, and the array is not written to; the library gets new handles of them. With steal_inputs no new
 *          handles are made: the run takes over the tensors, even on failure, and every element of the array is NULL
 *          afterwards. If the options themselves are INVALID, or the runner is NULL, nothing is taken.
 * outputs: num_outputs elements. On OK the caller frees the tensors, and NULL stands for a result that is None; on
 *          failure nothing is written.
 *
 * Allocates no memory of its own if there are at most 32 inputs and outputs together.
 *
 * Source: AOTInductorModelContainerRun, torch/csrc/inductor/aoti_runtime/interface.h.
 * Returns: OK; INVALID (wrong counts; the message has both numbers; or, for a package or a stored model, an input with
 * a dtype, size or stride that it was not compiled for; the message names both sides); RUN_FAILED (with the library's
 * own message, and, if a function of PyTorch's failed, the reason that PyTorch 2.13 or the shim gives; or a constant,
 * which is named, has no value); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_run_with(aoticache_runner *runner, const aoticache_run_options *options,
                                                         AtenTensorHandle *inputs, size_t num_inputs,
                                                         AtenTensorHandle *outputs, size_t num_outputs,
                                                         aoticache_error *ret_error);

/* Runs the kernel with the default options, so the inputs are borrowed. */
static inline aoticache_status aoticache_runner_run(aoticache_runner *runner, const AtenTensorHandle *inputs,
                                                    size_t num_inputs, AtenTensorHandle *outputs, size_t num_outputs,
                                                    aoticache_error *ret_error)
{
    return aoticache_runner_run_with(runner, NULL, (AtenTensorHandle *)(uintptr_t)inputs, num_inputs, outputs,
                                     num_outputs, ret_error);
}

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
    const char *name;         /* the library's name: "layer_weight" */
    const char *original_fqn; /* the model's name: "layer.weight"; for a folded constant `name`, or "" */
    int32_t dtype;            /* aoticache_dtype; -1: the library does not say */
    int32_t type;             /* aoticache_constant_type; UNKNOWN: the library does not say */
    bool from_folded;         /* made by constant folding: cannot be updated */
    bool has_bytes;
    uint64_t bytes; /* of the data in the library; valid if has_bytes */
} aoticache_constant;

/* Returns: OK, INVALID (no such position), RUN_FAILED (with the library's own message). */
AOTICACHE_API aoticache_status aoticache_runner_read_constant(const aoticache_runner *runner, size_t position,
                                                              aoticache_constant *ret_constant,
                                                              aoticache_error *ret_error);

typedef struct aoticache_update_options {
    size_t size;
    bool inactive;     /* update the inactive buffer: visible after a swap */
    bool partial;      /* any constant may be left out. Without this, only constants that are optional in PyTorch's
                        * libraries may be: a model's buffers, constants that tracing made, empty parameters */
    bool user_managed; /* do not copy: the tensors' own memory is used as long as they are the constants */
    bool from_cpu;     /* tensors on the CPU are copied to the container's device */
    bool by_fqn;       /* names are original FQNs */
} aoticache_update_options;

#define AOTICACHE_UPDATE_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_update_options)

/*
 * Gives constants new values.
 *
 * options: NULL: the defaults. by_fqn: all constants that share an FQN get the value. from_cpu: if the library has no
 *          function for it (PyTorch before 2.13), tensors are copied to its device first; INVALID together with
 *          user_managed.
 * pairs:   names and tensors, borrowed for the call. With user_managed, the tensors (handles and memory) are borrowed
 *          until another update replaces them in that buffer, or the runner is gone.
 *
 * Checked before anything changes: every name belongs to a constant (the message suggests the nearest name), none is
 * given twice, and none belongs to a folded constant. Every tensor has the constant's dtype, sizes, strides and kind of
 * device (the message has both). A tensor may be part of a larger one; only its elements are read. The stride of a
 * dimension with one element does not matter.
 *
 * Sizes and strides are known from the tensors that the library makes of its own weights or of a blob. If it has
 * neither yet, fewer checks are possible. Before the change: the dtype, that the bytes fit into the constant's memory,
 * and that no elements share memory (user_managed tensors must fill that memory). After the copy: the sizes; if they
 * differ, the constant has no value and the result is INVALID. Strides are trusted. A library of PyTorch 2.6 reports
 * neither bytes nor tensors: only the dtype is checked.
 *
 * Constants that are not named: in the active buffer they keep their values. In the inactive buffer parameters keep
 * theirs; other constants that an update may leave out get a copy of the active buffer's value (as in PyTorch, even if
 * the update is partial or user_managed), or keep their own if the active buffer has none. If neither buffer has a
 * value, the update is INVALID. An update is also INVALID if it names, or would copy, a constant that is not a strided
 * tensor because the compile chose its layout (oneDNN's, in a frozen model): PyTorch would copy the wrong number of
 * bytes.
 *
 * Uses the library's function that takes pairs if there is one; otherwise the one that takes a C++ map, for which
 * libaoticache_cxxbridge.so is loaded.
 *
 * Source: AOTInductorModelContainerUpdateConstantBuffer, ...InactiveConstantBuffer, ...UserManagedConstantBuffer,
 * ...ConstantBufferFromCpu, and their forms with Pairs.
 * Returns: OK; INVALID; UNSUPPORTED (the library has no function for it; it is named); LOAD_FAILED (no
 * libaoticache_cxxbridge.so); RUN_FAILED (the library's own message); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_update_constants(aoticache_runner *runner,
                                                                 const aoticache_update_options *options,
                                                                 const AOTInductorConstantMapEntry *pairs,
                                                                 size_t num_pairs, aoticache_error *ret_error);

/* Returns the size in bytes of the blob that holds all constants that are not folded
 * (AOTInductorModelContainerGetConstantsBlobSize).
 * Returns: OK, UNSUPPORTED, RUN_FAILED. */
AOTICACHE_API aoticache_status aoticache_runner_constants_blob_bytes(const aoticache_runner *runner,
                                                                     uint64_t *ret_bytes, aoticache_error *ret_error);
/*
 * Sets all constants of the active buffer from one blob in the library's own layout: the weights file that
 * package_constants_on_disk_format="binary_blob" makes. May be called again with another blob.
 *
 * blob: borrowed for the call. Every container makes a copy, on the CPU too. To share the pages of a file among
 *       processes, let a user-managed update with tensors over its mapping follow (aoticache_package_load() does that).
 *
 * Source: AOTInductorModelUpdateConstantsFromBlob for constants that have no values yet, since it gives constants
 * memory only once; otherwise AOTInductorModelContainerUpdateConstantBuffer.
 * Returns: OK; INVALID (another size; the message has both sizes; or constants of a library without weights got values
 * by name before the first blob, so that their strides in a blob are unknown); UNSUPPORTED; RUN_FAILED; LOAD_FAILED (no
 * libaoticache_cxxbridge.so); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_update_constants_from_blob(aoticache_runner *runner, const void *blob,
                                                                           uint64_t bytes, aoticache_error *ret_error);

/*
 * Folds the constants of a buffer. In the inactive buffer, PyTorch's libraries first replace the constants that tracing
 * made by copies of the active buffer's.
 *
 * options: stream and proxy executor; may be NULL.
 * Source: AOTInductorModelContainerRunConstantFolding. Returns: OK, UNSUPPORTED, INVALID, NO_MEMORY, RUN_FAILED (with
 * the library's own message; or a constant of that buffer has no value, or one that tracing made has none in the active
 * buffer).
 */
AOTICACHE_API aoticache_status aoticache_runner_fold_constants(aoticache_runner *runner, bool inactive,
                                                               const aoticache_run_options *options,
                                                               aoticache_error *ret_error);
/*
 * Swaps the active and the inactive buffer. Runs fail while the active buffer lacks a constant: one that was never
 * updated, or not since the buffer was freed. (PyTorch's libraries would end the process. A library without
 * AOTInductorModelContainerExtractConstantsMapEntries cannot list its constants, and is trusted.)
 * Source: AOTInductorModelContainerSwapConstantBuffer. Returns: OK, UNSUPPORTED, RUN_FAILED.
 */
AOTICACHE_API aoticache_status aoticache_runner_swap_constants(aoticache_runner *runner, aoticache_error *ret_error);
/*
 * Frees the inactive buffer: it has no values until updates give it new ones. A buffer whose constants have been folded
 * keeps its memory, because PyTorch's libraries would end the process at its next update. User-managed memory is not
 * read any more in either case.
 * Source: AOTInductorModelContainerFreeInactiveConstantBuffer. Returns: OK, UNSUPPORTED, RUN_FAILED, LOAD_FAILED (no
 * libaoticache_cxxbridge.so), NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_free_inactive_constants(aoticache_runner *runner,
                                                                        aoticache_error *ret_error);

/*
 * tensor: borrowed until that buffer changes. original_fqn: borrowed for the call. Return false to stop. The callback
 * must not use the runner. Other threads' runs leave the fast path meanwhile.
 */
typedef bool (*aoticache_constant_fn)(void *user, const char *original_fqn, AtenTensorHandle tensor);
/*
 * Lists the constants that have a value in a buffer, without folded ones, by original FQN, in the library's order.
 * Source: AOTInductorModelContainerExtractConstantsMapEntries, ...ExtractConstantsMap.
 * Returns: OK, UNSUPPORTED, LOAD_FAILED (no libaoticache_cxxbridge.so), RUN_FAILED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_extract_constants(aoticache_runner *runner, bool inactive,
                                                                  aoticache_constant_fn callback, void *user,
                                                                  aoticache_error *ret_error);

/* ---- devices ---- */

/*
 * A kind of device. "cpu" and "cuda" are registered from the beginning. This is the counterpart of PyTorch's registry
 * of runners (getAOTIModelRunnerRegistry). Functions may be NULL; they are called from any thread.
 */
typedef struct aoticache_device_backend {
    size_t size;
    const char *name;    /* the part before the ':' of device strings; letters, digits, '_' */
    int32_t device_type; /* aoticache_device_type of its tensors */
    void *user;
    /*
     * Called before a container is created. Returns OK, or UNSUPPORTED with the reason. index: -1: the string has none.
     */
    aoticache_status (*check)(void *user, const aoticache_library *library, int32_t index, const char *directory,
                              aoticache_error *ret_error);
    /* Called instead of AOTInductorModelContainerCreateWithDevice. Returns OK with a container, or the reason. */
    aoticache_status (*create)(void *user, const aoticache_library *library, const char *device, size_t num_models,
                               const char *directory, AOTInductorModelContainerHandle *ret_container,
                               aoticache_error *ret_error);
    /* Returns the stream for runs that name none. Without this function it is NULL. */
    AOTInductorStreamHandle (*current_stream)(void *user, int32_t index);
} aoticache_device_backend;

#define AOTICACHE_DEVICE_BACKEND_INIT AOTICACHE_SIZED_INIT(aoticache_device_backend)

/*
 * Registers a copy of the backend, which stays until the process ends. If the name is registered already, the new
 * backend replaces the older one for runners that are created from then on. Returns: OK, INVALID, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_device_backend_register(const aoticache_device_backend *backend,
                                                                 aoticache_error *ret_error);
/*
 * Removes the newest registration of a name; the one before it takes effect again. Runners that use the backend keep
 * using it, so what it points to must outlive them. Returns: OK, INVALID, NOT_FOUND.
 */
AOTICACHE_API aoticache_status aoticache_device_backend_unregister(const char *name, aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
