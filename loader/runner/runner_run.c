/*
 * loader/runner/runner_run: runs kernels. A plain kernel of our own runtime runs without its container. For all others the
 * fast path takes no lock and, with up to 32 tensors, no memory: the counts and functions it needs are in the runner.
 *
 * Which side frees an input: AOTInductorModelContainerRun and ...RunSingleThreaded take the handles over when the model
 * itself starts, and write NULL over each (steal_from_raw_handles_to_raii_handles,
 * torch/csrc/inductor/aoti_runtime/utils.h); from then on the library frees them, also if it fails. If it fails earlier
 * (no model was available, constant folding failed) they are still in the array, and the runner frees them. So after a
 * failure every handle that is not NULL is freed here; after success none is. Libraries not made by PyTorch must do the
 * same.
 *
 * RunSingleThreaded takes the first of the container's free models without checking that one is free. After runs or a
 * folding in the pool PyTorch's container may count none as free, although all of them are; the first element of its
 * list still is an unused model as long as the caller is alone, which PyTorch's own single-threaded runner relies on as
 * well.
 */
#include "base/arguments.h"
#include "loader/runner/runner_internal.h"

#include "base/cleanup.h"
#include "base/options.h"
#include "loader/tensor.h"

#define HANDLES_ON_STACK AOTICACHE_RUNNER_HANDLES_ON_STACK

/*
 * One run: the inputs are taken over; some outputs may exist already when it fails. missing: set if the library was not
 * called.
 */
typedef struct run_call {
    AtenTensorHandle *inputs;
    AtenTensorHandle *made;
    AOTInductorStreamHandle stream;
    AOTIProxyExecutorHandle proxy_executor;
    size_t missing;
} run_call;

static void delete_handles(const aoticache_runner *runner, AtenTensorHandle *handles, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (handles[i] != NULL) {
            runner->torch->aoti_torch_delete_tensor_object(handles[i]);
            handles[i] = NULL;
        }
}

/* Compares the inputs with what the runner expects; views: num_inputs elements. */
static aoticache_status compare_inputs(const aoticache_runner *runner, const AtenTensorHandle *inputs,
                                       aoticache_tensor_view *views, aoticache_error *ret_error)
{
    const size_t count = runner->hot.num_inputs;
    aoticache_error detail = {.message = ""};
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++)
        status = aoticache_tensor_get_view(inputs[i], &views[i], &detail);
    if (status == AOTICACHE_OK && aoticache_check_passes(runner->expected, views, count))
        return AOTICACHE_OK;
    if (status == AOTICACHE_OK)
        status = aoticache_check_explain(runner->expected, views, count, runner->expected_names, &detail);
    return aoticache_error_set(ret_error, status, "%.200s: %s", runner->library->name, detail.message);
}

static __attribute__((noinline)) aoticache_status check_inputs(const aoticache_runner *runner,
                                                               const AtenTensorHandle *inputs,
                                                               aoticache_error *ret_error)
{
    aoticache_tensor_view on_stack[HANDLES_ON_STACK];
    if (runner->hot.num_inputs <= HANDLES_ON_STACK)
        return compare_inputs(runner, inputs, on_stack, ret_error);
    cleanup_free aoticache_tensor_view *views = calloc(runner->hot.num_inputs, sizeof *views);
    if (views == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to compare %u inputs",
                                   runner->hot.num_inputs);
    return compare_inputs(runner, inputs, views, ret_error);
}

/*
 * Checks the counts. PyTorch's own check throws through the C interface, which ends a process that is not C++: only the
 * right counts may reach a library.
 */
static aoticache_status check_call(const aoticache_runner *runner, const AtenTensorHandle *inputs, size_t num_inputs,
                                   const AtenTensorHandle *outputs, size_t num_outputs, aoticache_error *ret_error)
{
    const char *name = runner->library->name;
    if (num_inputs != runner->hot.num_inputs || num_outputs != runner->hot.num_outputs)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "library %.200s takes %u inputs and returns %u outputs, not %zu and %zu", name,
                                   runner->hot.num_inputs, runner->hot.num_outputs, num_inputs, num_outputs);
    if (inputs == NULL && num_inputs > 0)
        return AOTICACHE_REFUSE_NULL_OF("aoticache_runner_run", ret_error, inputs);
    if (outputs == NULL && num_outputs > 0)
        return AOTICACHE_REFUSE_NULL_OF("aoticache_runner_run", ret_error, outputs);
    for (size_t i = 0; i < num_inputs; i++)
        if (inputs[i] == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "input %zu of library %.200s is NULL", i, name);
    return runner->expected == NULL ? AOTICACHE_OK : check_inputs(runner, inputs, ret_error);
}

/* ---- one after the other, or several at the same time ---- */

static inline AOTIRuntimeError call_library(const aoticache_runner *runner, aoticache_library_run_fn run,
                                            const run_call *call)
{
    return run(runner->container, call->inputs, runner->hot.num_inputs, call->made, runner->hot.num_outputs,
               call->stream, call->proxy_executor);
}

static inline AOTIRuntimeError run_alone(aoticache_runner *runner, const run_call *call)
{
    AOTIRuntimeError code = call_library(runner, runner->run_alone, call);
    if (code == 0)
        aoticache_run_lock_set_settled(&runner->run_lock, true);
    return code;
}

/* A status that no library returns: the library was not called because a constant is missing. */
#define NOT_CALLED INT32_MIN

static bool is_missing_constants(const aoticache_runner *runner, run_call *call)
{
    call->missing = runner->first_missing;
    return runner->first_missing < runner->num_constants;
}

static AOTIRuntimeError run_first(aoticache_runner *runner, run_call *call)
{
    aoticache_run_lock_enter_exclusive(&runner->run_lock);
    AOTIRuntimeError code = is_missing_constants(runner, call) ? NOT_CALLED : run_alone(runner, call);
    aoticache_run_lock_leave_exclusive(&runner->run_lock);
    return code;
}

/*
 * Runs in the second stage. With one model, the run is alone among runs and needs no pool. With several models, the
 * first run after a change of constants folds them, and runs alone.
 */
static __attribute__((noinline)) AOTIRuntimeError run_in_turn(aoticache_runner *runner, run_call *call)
{
    aoticache_run_lock *lock = &runner->run_lock;
    AOTIRuntimeError code = NOT_CALLED;
    aoticache_run_lock_register(lock);
    aoticache_run_lock_enter_shared(lock);
    bool later = lock->limit > 1 && !aoticache_run_lock_is_settled(lock);
    if (!later && !is_missing_constants(runner, call))
        code = lock->limit == 1 ? run_alone(runner, call) : call_library(runner, runner->run_in_pool, call);
    aoticache_run_lock_leave_shared(lock);
    if (later)
        code = run_first(runner, call);
    aoticache_run_lock_unregister(lock);
    return code;
}

static __attribute__((noinline)) aoticache_status fail_run(const aoticache_runner *runner, const run_call *call,
                                                           AOTIRuntimeError code, aoticache_error *ret_error)
{
    if (code == NOT_CALLED)
        aoticache_runner_fail_missing(runner, call->missing, ret_error);
    else
        aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED, "AOTInductorModelContainerRun", code,
                                  ret_error);
    delete_handles(runner, call->inputs, runner->hot.num_inputs);
    delete_handles(runner, call->made, runner->hot.num_outputs);
    return AOTICACHE_RUN_FAILED;
}

/*
 * Makes handles distinct. PyTorch's code returns one handle twice if a model returns a tensor twice. Each output is
 * freed separately, so the second one gets a handle of its own.
 */
static AOTIRuntimeError separate_outputs(const aoticache_runner *runner, AtenTensorHandle *made)
{
    for (size_t i = 1; i < runner->hot.num_outputs; i++)
        for (size_t j = 0; j < i; j++) {
            if (made[i] == NULL || made[i] != made[j])
                continue;
            AtenTensorHandle own = NULL;
            AOTIRuntimeError code = runner->torch->aoti_torch_new_tensor_handle(made[j], &own);
            made[i] = code == 0 ? own : NULL;
            if (code != 0)
                return code;
            break;
        }
    return 0;
}

/*
 * Runs, and takes over the inputs. The library may write some outputs before it fails: it writes to call->made, so the
 * caller never sees them.
 */
static inline aoticache_status run_taking(aoticache_runner *runner, run_call *call, AtenTensorHandle *outputs,
                                          aoticache_error *ret_error)
{
    AOTIRuntimeError code;
    for (size_t i = 0; i < runner->hot.num_outputs; i++)
        call->made[i] = NULL;
    if (__builtin_expect(aoticache_run_lock_try_single(&runner->run_lock), 1)) {
        code = run_alone(runner, call);
        aoticache_run_lock_leave_single(&runner->run_lock);
    } else {
        code = run_in_turn(runner, call);
    }
    if (code == 0)
        code = separate_outputs(runner, call->made);
    if (__builtin_expect(code != 0, 0))
        return fail_run(runner, call, code, ret_error);
    for (size_t i = 0; i < runner->hot.num_outputs; i++)
        outputs[i] = call->made[i];
    return AOTICACHE_OK;
}

/* ---- borrowing ---- */

static aoticache_status make_handles(const aoticache_runner *runner, const AtenTensorHandle *inputs,
                                     AtenTensorHandle *handles, aoticache_error *ret_error)
{
    for (size_t i = 0; i < runner->hot.num_inputs; i++) {
        AOTITorchError code = runner->torch->aoti_torch_new_tensor_handle(inputs[i], &handles[i]);
        if (__builtin_expect(code != 0, 0)) {
            delete_handles(runner, handles, i);
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY,
                                       "aoti_torch_new_tensor_handle returned %d for input %zu", (int)code, i);
        }
    }
    return AOTICACHE_OK;
}

static aoticache_status fail_no_memory(size_t handles, aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu handles", handles);
}

/* Runs on new handles; `places` has space for the handles of the inputs, followed by the outputs. */
static inline aoticache_status run_in_places(aoticache_runner *runner, run_call *call, const AtenTensorHandle *inputs,
                                             AtenTensorHandle *places, AtenTensorHandle *outputs,
                                             aoticache_error *ret_error)
{
    call->inputs = places;
    call->made = places + runner->hot.num_inputs;
    aoticache_status status = make_handles(runner, inputs, places, ret_error);
    return status == AOTICACHE_OK ? run_taking(runner, call, outputs, ret_error) : status;
}

static __attribute__((noinline)) aoticache_status run_borrowing_many(aoticache_runner *runner, run_call *call,
                                                                     const AtenTensorHandle *inputs,
                                                                     AtenTensorHandle *outputs,
                                                                     aoticache_error *ret_error)
{
    size_t needed = runner->hot.num_inputs + runner->hot.num_outputs;
    cleanup_free AtenTensorHandle *places = calloc(needed, sizeof *places);
    return places != NULL ? run_in_places(runner, call, inputs, places, outputs, ret_error)
                          : fail_no_memory(needed, ret_error);
}

/* Runs on new handles. The caller has checked the arrays and counts. */
static inline aoticache_status run_borrowing(aoticache_runner *runner, run_call *call, const AtenTensorHandle *inputs,
                                             AtenTensorHandle *outputs, aoticache_error *ret_error)
{
    AtenTensorHandle on_stack[HANDLES_ON_STACK];
    if (__builtin_expect(runner->hot.num_inputs + runner->hot.num_outputs > HANDLES_ON_STACK, 0))
        return run_borrowing_many(runner, call, inputs, outputs, ret_error);
    return run_in_places(runner, call, inputs, on_stack, outputs, ret_error);
}

/* ---- stealing ---- */

/* Runs on the caller's handles, which are gone afterwards on every path. */
static inline aoticache_status run_stealing_with(aoticache_runner *runner, run_call *call, AtenTensorHandle *inputs,
                                                 AtenTensorHandle *made, AtenTensorHandle *outputs,
                                                 aoticache_error *ret_error)
{
    call->inputs = inputs;
    call->made = made;
    aoticache_status status = run_taking(runner, call, outputs, ret_error);
    for (size_t i = 0; i < runner->hot.num_inputs; i++)
        inputs[i] = NULL;
    return status;
}

static __attribute__((noinline)) aoticache_status run_stealing_many(aoticache_runner *runner, run_call *call,
                                                                    AtenTensorHandle *inputs, AtenTensorHandle *outputs,
                                                                    aoticache_error *ret_error)
{
    cleanup_free AtenTensorHandle *made = calloc(runner->hot.num_outputs, sizeof *made);
    if (made != NULL)
        return run_stealing_with(runner, call, inputs, made, outputs, ret_error);
    delete_handles(runner, inputs, runner->hot.num_inputs);
    return fail_no_memory(runner->hot.num_outputs, ret_error);
}

static inline aoticache_status run_stealing(aoticache_runner *runner, run_call *call, AtenTensorHandle *inputs,
                                            AtenTensorHandle *outputs, aoticache_error *ret_error)
{
    AtenTensorHandle on_stack[HANDLES_ON_STACK];
    if (__builtin_expect(runner->hot.num_outputs > HANDLES_ON_STACK, 0))
        return run_stealing_many(runner, call, inputs, outputs, ret_error);
    return run_stealing_with(runner, call, inputs, on_stack, outputs, ret_error);
}

/* ---- without the container ---- */

/*
 * Clears the message, as the container's functions do when they begin, so that an old message is not taken for a later
 * failure's.
 */
static void clear_message(const aoticache_runner *runner)
{
    size_t ignored;
    (void)runner->library->functions.AOTInductorModelContainerGetNumInputs(runner->container, &ignored);
}

aoticache_status aoticache_runner_fail_plain(const aoticache_runner *runner, AtenTensorHandle *outputs,
                                             AOTIRuntimeError code, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_RUN_FAILED;
    size_t count = runner->hot.num_outputs, missing = 0;
    if (code != AOTICACHE_KERNEL_OK) {
        status = aoticache_library_failure(runner->library, status, "the kernel", code, ret_error);
        clear_message(runner);
    } else {
        while (missing + 1 < count && outputs[missing] != NULL)
            missing++;
        status = aoticache_error_set(ret_error, status, "library %.200s: the kernel did not make output %zu (%s)",
                                     runner->library->name, missing, runner->hot.plain->output_names[missing]);
    }
    delete_handles(runner, outputs, count);
    return status;
}

/* Runs a plain kernel. The outputs are written only on success. */
static inline aoticache_status run_plain(const aoticache_runner *runner, const AtenTensorHandle *inputs,
                                         AtenTensorHandle *outputs, aoticache_error *ret_error)
{
    AtenTensorHandle made[HANDLES_ON_STACK];
    aoticache_status status = aoticache_runner_run_plain(runner, inputs, made, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < runner->hot.num_outputs; i++)
        outputs[i] = made[i];
    return status;
}

/* ---- the functions for callers ---- */

/*
 * Checks a call, fills in the runner's stream and proxy executor if it names none, and runs it. steal: takes over the
 * inputs, even on failure.
 */
static inline aoticache_status run(aoticache_runner *runner, run_call *call, bool steal, AtenTensorHandle *inputs,
                                   size_t num_inputs, AtenTensorHandle *outputs, size_t num_outputs,
                                   aoticache_error *ret_error)
{
    aoticache_status status = check_call(runner, inputs, num_inputs, outputs, num_outputs, ret_error);
    if (__builtin_expect(status != AOTICACHE_OK, 0)) {
        if (steal && inputs != NULL)
            delete_handles(runner, inputs, num_inputs);
        return status;
    }
    if (__builtin_expect(runner->hot.run_plain != NULL, 1) && call->stream == NULL && call->proxy_executor == NULL) {
        status = run_plain(runner, inputs, outputs, ret_error);
        if (steal)
            delete_handles(runner, inputs, num_inputs);
        return status;
    }
    if (call->stream == NULL)
        call->stream = aoticache_runner_stream(runner);
    if (call->proxy_executor == NULL)
        call->proxy_executor = runner->hot.proxy_executor;
    return steal ? run_stealing(runner, call, inputs, outputs, ret_error)
                 : run_borrowing(runner, call, inputs, outputs, ret_error);
}

aoticache_status aoticache_runner_run_with(aoticache_runner *runner, const aoticache_run_options *options,
                                           AtenTensorHandle *inputs, size_t num_inputs, AtenTensorHandle *outputs,
                                           size_t num_outputs, aoticache_error *ret_error)
{
    run_call call = {.stream = NULL};
    bool steal = false;
    if (__builtin_expect(options != NULL, 0)) {
        aoticache_run_options chosen;
        aoticache_status status =
            AOTICACHE_OPTIONS_READ(aoticache_run_options, AOTICACHE_RUN_OPTIONS_INIT, options, &chosen, ret_error);
        if (status != AOTICACHE_OK) /* whether to take the inputs over is unknown: the caller keeps them */
            return status;
        call.stream = chosen.stream;
        call.proxy_executor = chosen.proxy_executor;
        steal = chosen.steal_inputs;
    }
    if (__builtin_expect(runner == NULL, 0))
        return AOTICACHE_REFUSE_NULL(ret_error, runner);
    return run(runner, &call, steal, inputs, num_inputs, outputs, num_outputs, ret_error);
}
