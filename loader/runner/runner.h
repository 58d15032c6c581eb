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

#include "loader/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aoticache_library aoticache_library; /* loader/loader.h */
typedef struct aoticache_runner aoticache_runner;

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

#ifdef __cplusplus
}
#endif
#endif
