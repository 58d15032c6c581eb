/*
 * loader/runner/hot: a run of a plain kernel, inline, for those who have looked at the arrays and counts.
 *
 * Private to loader/runner and eager/holder. The functions are in run.c and host.c.
 */
#ifndef AOTICACHE_LOADER_RUNNER_HOT_H
#define AOTICACHE_LOADER_RUNNER_HOT_H

#include "loader/check/check.h"
#include "loader/runner/runner.h"
#include "runtime/kernel.h"

#include <stdatomic.h>

/* What every run reads of a runner. A runner begins with it. */
typedef struct aoticache_runner_hot {
    const aoticache_kernel *plain;     /* run without the container; NULL: not */
    aoticache_kernel_run_fn run_plain; /* plain->run */
    uint32_t num_inputs, num_outputs;
    AOTIProxyExecutorHandle proxy_executor;
    const void *code; /* where the code of a run begins */
} aoticache_runner_hot;

static inline const aoticache_runner_hot *aoticache_runner_hot_of(const aoticache_runner *runner)
{
    return (const aoticache_runner_hot *)(const void *)runner;
}

/* What plain kernels get of their host; set once there is a runner with one. */
extern _Atomic(const aoticache_kernel_host *) aoticache_runner_host;

/* From now on they get these, which must stay valid as long as the process. */
void aoticache_runner_set_host(const aoticache_kernel_host *host);

/*
 * Makes runs fail with INVALID, and the reason, if their inputs do not pass the check. (Code reads its inputs as what it was
 * compiled for, and beyond their end if they are smaller.) To be called before the first run.
 *
 * check: the runner frees it. names: of the inputs, for messages, in one block that the runner frees with free(); may be NULL.
 */
void aoticache_runner_expect(aoticache_runner *runner, aoticache_check *check, const char **names);

/* After the kernel returned `code`, with outputs missing or a failure: frees what it made. Never OK. */
aoticache_status aoticache_runner_fail_plain(const aoticache_runner *runner, AtenTensorHandle *outputs,
                                             AOTIRuntimeError code, aoticache_error *ret_error);

/*
 * Runs a plain kernel on the caller's handles, which it borrows. It needs no place in the container and no lock. The
 * container's code and data would be the library's own: with a thousand libraries in turn, more time is spent on
 * fetching those into the processor's caches than on the kernels. After a failure the places of the outputs are NULL.
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

/* As aoticache_runner_run(), with arrays and counts that fit. */
static inline aoticache_status aoticache_runner_run_checked(aoticache_runner *runner, const AtenTensorHandle *inputs,
                                                            AtenTensorHandle *outputs, aoticache_error *ret_error)
{
    const aoticache_runner_hot *hot = aoticache_runner_hot_of(runner);
    if (__builtin_expect(hot->run_plain != NULL, 1))
        return aoticache_runner_run_plain(runner, inputs, outputs, ret_error);
    return aoticache_runner_run(runner, inputs, hot->num_inputs, outputs, hot->num_outputs, ret_error);
}

#endif
