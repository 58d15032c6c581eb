/*
 * loader/runner/runner_hot: a run of a plain kernel, inline, for callers that have checked the arrays and counts.
 *
 * Private to loader/runner and eager/holder. The functions are in runner_run.c and host.c.
 */
#ifndef AOTICACHE_LOADER_RUNNER_HOT_H
#define AOTICACHE_LOADER_RUNNER_HOT_H

#include "loader/check/check.h"
#include "loader/runner/runner.h"
#include "runtime/kernel.h"

#include <stdatomic.h>

/* The fields of a runner that every run reads. A runner begins with them. */
typedef struct aoticache_runner_hot {
    const aoticache_kernel *plain;     /* run without the container; NULL: not a plain kernel */
    aoticache_kernel_run_fn run_plain; /* plain->run */
    uint32_t num_inputs, num_outputs;
    AOTIProxyExecutorHandle proxy_executor;
    const void *code; /* the address of the code of a run */
} aoticache_runner_hot;

static inline const aoticache_runner_hot *aoticache_runner_hot_of(const aoticache_runner *runner)
{
    return (const aoticache_runner_hot *)(const void *)runner;
}

/* The host's functions for plain kernels; set when the first runner with a plain kernel is created. */
extern _Atomic(const aoticache_kernel_host *) aoticache_runner_host;

/* Sets these functions for plain kernels; they must stay valid as long as the process. */
void aoticache_runner_set_host(const aoticache_kernel_host *host);

/*
 * Makes runs fail with INVALID, and the reason, if their inputs do not pass the check. (Code assumes the inputs that it
 * was compiled for, and reads beyond their end if they are smaller.) To be called before the first run.
 *
 * check: the runner frees it. names: the inputs' names, for messages, in one block that the runner frees with free();
 * may be NULL.
 */
void aoticache_runner_expect(aoticache_runner *runner, aoticache_check *check, const char **names);

/*
 * Frees the outputs that the kernel made before it returned `code`, a failure or OK with outputs missing. Never returns
 * OK.
 */
aoticache_status aoticache_runner_fail_plain(const aoticache_runner *runner, AtenTensorHandle *outputs,
                                             AOTIRuntimeError code, aoticache_error *ret_error);

/*
 * Runs a plain kernel on the caller's handles, which it borrows. It needs no model of the container and no lock. Each
 * library has its own container code and data: if a thousand libraries are called in turn, fetching those into the
 * processor's caches takes longer than the kernels. After a failure the elements of `outputs` are NULL.
 */
static inline aoticache_status aoticache_runner_run_plain(const aoticache_runner *runner,
                                                          const AtenTensorHandle *inputs, AtenTensorHandle *outputs,
                                                          aoticache_error *ret_error)
{
    const aoticache_runner_hot *hot = aoticache_runner_hot_of(runner);
    for (size_t i = 0; i < hot->num_outputs; i++)
        outputs[i] = NULL;
    aoticache_kernel_call call = {.kernel = hot->plain,
                                  .inputs = (AtenTensorHandle *)(uintptr_t)inputs,
                                  .outputs = outputs,
                                  .proxy_executor = hot->proxy_executor,
                                  .device_index = -1,
                                  .device_type = AOTICACHE_DEVICE_TYPE_CPU,
                                  .host = atomic_load_explicit(&aoticache_runner_host, memory_order_relaxed)};
    AOTIRuntimeError code = hot->run_plain(&call);
    bool complete = code == AOTICACHE_KERNEL_OK;
    for (size_t i = 0; i < hot->num_outputs; i++)
        complete &= outputs[i] != NULL;
    if (__builtin_expect(complete, 1))
        return AOTICACHE_OK;
    return aoticache_runner_fail_plain(runner, outputs, code, ret_error);
}

/* Runs as aoticache_runner_run() does, with arrays and counts already checked. */
static inline aoticache_status aoticache_runner_run_checked(aoticache_runner *runner, const AtenTensorHandle *inputs,
                                                            AtenTensorHandle *outputs, aoticache_error *ret_error)
{
    const aoticache_runner_hot *hot = aoticache_runner_hot_of(runner);
    if (__builtin_expect(hot->run_plain != NULL, 1))
        return aoticache_runner_run_plain(runner, inputs, outputs, ret_error);
    return aoticache_runner_run(runner, inputs, hot->num_inputs, outputs, hot->num_outputs, ret_error);
}

#endif
