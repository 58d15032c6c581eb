/*
 * loader/runner: one container and the way to run it. The run path takes no lock and, with up to 32 tensors, no memory:
 * the counts and functions it needs are in the runner.
 *
 * Who frees an input: AOTInductorModelContainerRun takes the handles over when the model itself starts, and says so by
 * writing NULL over each (steal_from_raw_handles_to_raii_handles, torch/csrc/inductor/aoti_runtime/utils.h); from then
 * on the library frees them, also when it fails. Where it fails before (no model could be had, constant folding failed)
 * they are still in the array, and ours. So after a failure what is not NULL is freed here; after success nothing is.
 * Libraries not made by PyTorch are held to the same.
 */
#include "loader/library.h"
#include "loader/runner.h"

#include "base/cleanup.h"

#include <string.h>

struct aoticache_runner {
    /* What a run reads comes first, and together. */
    AOTInductorModelContainerHandle container;
    AOTIRuntimeError (*run)(AOTInductorModelContainerHandle, AtenTensorHandle *, size_t, AtenTensorHandle *, size_t,
                            AOTInductorStreamHandle, AOTIProxyExecutorHandle);
    AOTITorchError (*new_handle)(AtenTensorHandle, AtenTensorHandle *);
    AOTITorchError (*delete_handle)(AtenTensorHandle);
    size_t num_inputs, num_outputs;
    aoticache_library *library;
    atomic_size_t references;
    atomic_flag attached;
    void *owner;
    void (*release)(void *owner);
};

/* Up to so many handles lie on the stack during a run. */
#define HANDLES_ON_STACK 32

/* ---- creating ---- */

static aoticache_status create_container(aoticache_runner *runner, const aoticache_runner_options *options,
                                         aoticache_error *ret_error)
{
    const aoticache_library_functions *functions = &runner->library->functions;
    const char *device = options->device != NULL ? options->device : "cpu";
    size_t num_models = options->num_models > 0 ? options->num_models : 1;
    aoticache_device parsed;
    if (aoticache_device_parse(device, &parsed) != AOTICACHE_OK)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "there is no device \"%.40s\"", device);
    AOTIRuntimeError code;
    const char *function = "AOTInductorModelContainerCreateWithDevice";
    if (functions->AOTInductorModelContainerCreateWithDevice != NULL) {
        code = functions->AOTInductorModelContainerCreateWithDevice(&runner->container, num_models, device,
                                                                    options->directory);
    } else {
        /* The oldest libraries know only these two. */
        function = "AOTInductorModelContainerCreate";
        if (strcmp(device, "cpu") != 0 && strcmp(device, "cuda") != 0)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "library %.200s runs on \"cpu\" or \"cuda\", not on \"%.40s\"",
                                       runner->library->name, device);
        code = functions->AOTInductorModelContainerCreate(&runner->container, num_models,
                                                          parsed.type == AOTICACHE_DEVICE_TYPE_CPU,
                                                          options->directory);
    }
    if (code != 0 || runner->container == NULL) {
        runner->container = NULL;
        return aoticache_library_failure(runner->library, AOTICACHE_LOAD_FAILED, function, code, ret_error);
    }
    return AOTICACHE_OK;
}

static aoticache_status ask_counts(aoticache_runner *runner, aoticache_error *ret_error)
{
    const aoticache_library_functions *functions = &runner->library->functions;
    AOTIRuntimeError code = functions->AOTInductorModelContainerGetNumInputs(runner->container, &runner->num_inputs);
    if (code != 0)
        return aoticache_library_failure(runner->library, AOTICACHE_LOAD_FAILED,
                                         "AOTInductorModelContainerGetNumInputs", code, ret_error);
    code = functions->AOTInductorModelContainerGetNumOutputs(runner->container, &runner->num_outputs);
    if (code != 0)
        return aoticache_library_failure(runner->library, AOTICACHE_LOAD_FAILED,
                                         "AOTInductorModelContainerGetNumOutputs", code, ret_error);
    return AOTICACHE_OK;
}

aoticache_status aoticache_runner_create(aoticache_library *library, const aoticache_runner_options *options,
                                         aoticache_runner **ret_runner, aoticache_error *ret_error)
{
    aoticache_runner_options chosen = AOTICACHE_RUNNER_OPTIONS_INIT;
    if (library == NULL || ret_runner == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "a runner needs a library and a place");
    if (options != NULL && (options->size < offsetof(aoticache_runner_options, device) ||
                            options->size > sizeof chosen))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the options of a runner have %zu bytes, not %zu",
                                   options->size, sizeof chosen);
    if (options != NULL)
        memcpy(&chosen, options, options->size);
    aoticache_runner *runner = calloc(1, sizeof *runner);
    if (runner == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "no memory for a runner");
    atomic_init(&runner->references, 1);
    atomic_flag_clear(&runner->attached);
    runner->library = aoticache_library_ref(library);
    runner->run = library->functions.AOTInductorModelContainerRun;
    runner->new_handle = library->torch->aoti_torch_new_tensor_handle;
    runner->delete_handle = library->torch->aoti_torch_delete_tensor_object;
    aoticache_status status = create_container(runner, &chosen, ret_error);
    if (status == AOTICACHE_OK)
        status = ask_counts(runner, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_runner_unref(runner);
        return status;
    }
    *ret_runner = runner;
    return AOTICACHE_OK;
}

aoticache_runner *aoticache_runner_ref(aoticache_runner *runner)
{
    atomic_fetch_add_explicit(&runner->references, 1, memory_order_relaxed);
    return runner;
}

void aoticache_runner_unref(aoticache_runner *runner)
{
    if (runner == NULL || atomic_fetch_sub_explicit(&runner->references, 1, memory_order_acq_rel) != 1)
        return;
    int saved = errno;
    if (runner->container != NULL)
        runner->library->functions.AOTInductorModelContainerDelete(runner->container);
    aoticache_library_unref(runner->library);
    if (runner->release != NULL)
        runner->release(runner->owner);
    free(runner);
    errno = saved;
}

aoticache_status aoticache_runner_attach(aoticache_runner *runner, void *owner, void (*release)(void *owner),
                                         aoticache_error *ret_error)
{
    if (runner == NULL || owner == NULL || release == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "attaching needs a runner, an owner and its release");
    if (atomic_flag_test_and_set(&runner->attached))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the runner of library %.200s has an owner already",
                                   runner->library->name);
    runner->owner = owner;
    runner->release = release;
    return AOTICACHE_OK;
}

size_t aoticache_runner_num_inputs(const aoticache_runner *runner)
{
    return runner->num_inputs;
}

size_t aoticache_runner_num_outputs(const aoticache_runner *runner)
{
    return runner->num_outputs;
}

const char *aoticache_runner_input_name(const aoticache_runner *runner, size_t position)
{
    const aoticache_library_functions *functions = &runner->library->functions;
    const char *name = NULL;
    if (position >= runner->num_inputs || functions->AOTInductorModelContainerGetInputName == NULL ||
        functions->AOTInductorModelContainerGetInputName(runner->container, position, &name) != 0)
        return NULL;
    return name;
}

const char *aoticache_runner_output_name(const aoticache_runner *runner, size_t position)
{
    const aoticache_library_functions *functions = &runner->library->functions;
    const char *name = NULL;
    if (position >= runner->num_outputs || functions->AOTInductorModelContainerGetOutputName == NULL ||
        functions->AOTInductorModelContainerGetOutputName(runner->container, position, &name) != 0)
        return NULL;
    return name;
}

/* ---- running ---- */

static void delete_handles(const aoticache_runner *runner, AtenTensorHandle *handles, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (handles[i] != NULL) {
            runner->delete_handle(handles[i]);
            handles[i] = NULL;
        }
}

/*
 * PyTorch's own check of the counts throws through the C interface, which ends a process that is not C++: nothing but
 * the right numbers may reach a library.
 */
static aoticache_status check_call(const aoticache_runner *runner, const AtenTensorHandle *inputs, size_t num_inputs,
                                   const AtenTensorHandle *outputs, size_t num_outputs, aoticache_error *ret_error)
{
    const char *name = runner->library->name;
    if (num_inputs != runner->num_inputs || num_outputs != runner->num_outputs)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "library %.200s takes %zu inputs and gives %zu outputs, not %zu and %zu", name,
                                   runner->num_inputs, runner->num_outputs, num_inputs, num_outputs);
    if ((inputs == NULL && num_inputs > 0) || (outputs == NULL && num_outputs > 0))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "running library %.200s needs arrays", name);
    for (size_t i = 0; i < num_inputs; i++)
        if (inputs[i] == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "input %zu of library %.200s is NULL", i, name);
    return AOTICACHE_OK;
}

/* Inputs are taken. The library may have written some outputs before it failed: `made` keeps them from the caller. */
static aoticache_status run_taking(const aoticache_runner *runner, AtenTensorHandle *inputs, AtenTensorHandle *made,
                                   AtenTensorHandle *outputs, aoticache_error *ret_error)
{
    memset(made, 0, runner->num_outputs * sizeof *made);
    AOTIRuntimeError code =
        runner->run(runner->container, inputs, runner->num_inputs, made, runner->num_outputs, NULL, NULL);
    if (__builtin_expect(code != 0, 0)) {
        aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED, "AOTInductorModelContainerRun", code,
                                  ret_error);
        delete_handles(runner, inputs, runner->num_inputs);
        delete_handles(runner, made, runner->num_outputs);
        return AOTICACHE_RUN_FAILED;
    }
    for (size_t i = 0; i < runner->num_outputs; i++)
        outputs[i] = made[i];
    return AOTICACHE_OK;
}

static aoticache_status make_handles(const aoticache_runner *runner, const AtenTensorHandle *inputs,
                                     AtenTensorHandle *handles, aoticache_error *ret_error)
{
    for (size_t i = 0; i < runner->num_inputs; i++) {
        AOTITorchError code = runner->new_handle(inputs[i], &handles[i]);
        if (__builtin_expect(code != 0, 0)) {
            delete_handles(runner, handles, i);
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY,
                                       "aoti_torch_new_tensor_handle returned %d for input %zu", (int)code, i);
        }
    }
    return AOTICACHE_OK;
}

aoticache_status aoticache_runner_run(aoticache_runner *runner, const AtenTensorHandle *inputs, size_t num_inputs,
                                      AtenTensorHandle *outputs, size_t num_outputs, aoticache_error *ret_error)
{
    aoticache_status status = check_call(runner, inputs, num_inputs, outputs, num_outputs, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    AtenTensorHandle on_stack[HANDLES_ON_STACK];
    AtenTensorHandle *handles = on_stack;
    cleanup_free AtenTensorHandle *on_heap = NULL;
    if (__builtin_expect(num_inputs + num_outputs > HANDLES_ON_STACK, 0)) {
        handles = on_heap = calloc(num_inputs + num_outputs, sizeof *handles);
        if (handles == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "no memory for %zu handles",
                                       num_inputs + num_outputs);
    }
    status = make_handles(runner, inputs, handles, ret_error);
    return status == AOTICACHE_OK ? run_taking(runner, handles, handles + num_inputs, outputs, ret_error) : status;
}

aoticache_status aoticache_runner_run_stealing(aoticache_runner *runner, AtenTensorHandle *inputs, size_t num_inputs,
                                               AtenTensorHandle *outputs, size_t num_outputs,
                                               aoticache_error *ret_error)
{
    AtenTensorHandle on_stack[HANDLES_ON_STACK];
    AtenTensorHandle *made = on_stack;
    cleanup_free AtenTensorHandle *on_heap = NULL;
    aoticache_status status = check_call(runner, inputs, num_inputs, outputs, num_outputs, ret_error);
    if (status == AOTICACHE_OK && num_outputs > HANDLES_ON_STACK) {
        made = on_heap = calloc(num_outputs, sizeof *made);
        if (made == NULL)
            status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "no memory for %zu handles", num_outputs);
    }
    if (status == AOTICACHE_OK)
        return run_taking(runner, inputs, made, outputs, ret_error);
    if (inputs != NULL)
        delete_handles(runner, inputs, num_inputs);
    return status;
}
