/*
 * loader/runner/runner: creates and frees a container on a device, and reads its properties. Runs are in runner_run.c,
 * constants in the other files that runner_internal.h lists.
 */
#include "base/arguments.h"
#include "loader/runner/runner_internal.h"

#include "base/cleanup.h"
#include "base/options.h"
#include "base/threads.h"
#include "loader/eager_face.h"
#include "loader/runner/backend.h"
#include "loader/runner/create.h"

#include <stdlib.h>
#include <string.h>

/* PyTorch creates all models immediately: a larger number is a mistake, and the process would run out of memory. */
#define NUM_MODELS_MAX 4096

/* ---- creating ---- */

/* Creates a container in the oldest libraries, which know only two devices and no index. */
static aoticache_status create_by_kind(aoticache_runner *runner, const aoticache_runner_options *options,
                                       aoticache_error *ret_error)
{
    bool cpu = strcmp(runner->device, "cpu") == 0;
    if (!cpu && strcmp(runner->device, "cuda") != 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "library %.200s runs on \"cpu\" or \"cuda\", not on \"%.40s\"",
                                   runner->library->name, runner->device);
    AOTIRuntimeError code = runner->library->functions.AOTInductorModelContainerCreate(
        &runner->container, options->num_models, cpu, options->directory);
    if (code == 0 && runner->container != NULL)
        return AOTICACHE_OK;
    runner->container = NULL;
    return aoticache_library_failure(runner->library, AOTICACHE_LOAD_FAILED, "AOTInductorModelContainerCreate", code,
                                     ret_error);
}

static aoticache_status create_on_device(aoticache_runner *runner, const aoticache_runner_options *options,
                                         aoticache_error *ret_error)
{
    const aoticache_library_functions *functions = &runner->library->functions;
    if (functions->AOTInductorModelContainerCreateWithDevice == NULL)
        return create_by_kind(runner, options, ret_error);
    AOTIRuntimeError code = functions->AOTInductorModelContainerCreateWithDevice(
        &runner->container, options->num_models, runner->device, options->directory);
    if (code == 0 && runner->container != NULL)
        return AOTICACHE_OK;
    runner->container = NULL;
    return aoticache_library_failure(runner->library, AOTICACHE_LOAD_FAILED,
                                     "AOTInductorModelContainerCreateWithDevice", code, ret_error);
}

static aoticache_status create_container(aoticache_runner *runner, const aoticache_runner_options *options,
                                         aoticache_error *ret_error)
{
    const aoticache_device_backend *backend = runner->backend;
    if (backend->check != NULL) {
        aoticache_status status =
            backend->check(backend->user, runner->library, runner->device_index, options->directory, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    if (backend->create == NULL)
        return create_on_device(runner, options, ret_error);
    AOTInductorModelContainerHandle container = NULL;
    aoticache_status status = backend->create(backend->user, runner->library, runner->device, options->num_models,
                                              options->directory, &container, ret_error);
    if (status == AOTICACHE_OK && container == NULL)
        status = aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED,
                                     "device \"%.40s\" did not create a container of %.200s", runner->device,
                                     runner->library->name);
    if (status == AOTICACHE_OK)
        runner->container = container;
    return status;
}

static aoticache_status read_count(aoticache_runner *runner, const char *function,
                                   AOTIRuntimeError (*ask)(AOTInductorModelContainerHandle, size_t *),
                                   size_t *ret_count, aoticache_error *ret_error)
{
    AOTIRuntimeError code = ask(runner->container, ret_count);
    return code == 0 ? AOTICACHE_OK
                     : aoticache_library_failure(runner->library, AOTICACHE_LOAD_FAILED, function, code, ret_error);
}

static aoticache_status read_counts(aoticache_runner *runner, aoticache_error *ret_error)
{
    const aoticache_library_functions *functions = &runner->library->functions;
    size_t num_inputs = 0, num_outputs = 0;
#define ASK(what, ret_count)                                                                                      \
    read_count(runner, "AOTInductorModelContainerGetNum" #what, functions->AOTInductorModelContainerGetNum##what, \
               ret_count, ret_error)
    aoticache_status status = ASK(Inputs, &num_inputs);
    if (status == AOTICACHE_OK)
        status = ASK(Outputs, &num_outputs);
    if (status == AOTICACHE_OK && functions->AOTInductorModelContainerGetNumConstants != NULL)
        status = ASK(Constants, &runner->num_constants);
#undef ASK
    if (status == AOTICACHE_OK && (num_inputs > INT32_MAX || num_outputs > INT32_MAX))
        status =
            aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "library %.200s reports %zu inputs and %zu outputs",
                                runner->library->name, num_inputs, num_outputs);
    runner->hot.num_inputs = (uint32_t)num_inputs;
    runner->hot.num_outputs = (uint32_t)num_outputs;
    runner->first_missing = runner->num_constants;
    return status;
}

/*
 * Finds out whether runs need no container. Not used with a backend that creates its own containers, or if the caller
 * asked for the pool.
 */
static void find_plain_kernel(aoticache_runner *runner, const aoticache_runner_options *options)
{
    __typeof__(&aoticache_plain_kernel_v3) get = runner->library->plain_kernel;
    if (get == NULL || options->pool_only || runner->backend->create != NULL || runner->current_stream != NULL ||
        runner->hot.num_outputs > AOTICACHE_RUNNER_HANDLES_ON_STACK)
        return;
    runner->hot.plain = get(runner->container);
    if (runner->hot.plain == NULL)
        return;
    runner->hot.run_plain = runner->hot.plain->run;
    memcpy(&runner->hot.code, &runner->hot.run_plain, sizeof runner->hot.code);
    aoticache_runner_prepare_host(runner->torch);
}

/* Allocates the runner's own data about constants. */
static aoticache_status prepare_constants(aoticache_runner *runner, aoticache_error *ret_error)
{
    size_t count = runner->num_constants;
    if (count == 0)
        return AOTICACHE_OK;
    runner->shapes = calloc(count, sizeof *runner->shapes);
    for (int i = 0; i < 2; i++)
        runner->buffers[i].stale = calloc(count, sizeof(bool));
    if (runner->shapes == NULL || runner->buffers[0].stale == NULL || runner->buffers[1].stale == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu constants", count);
    for (size_t i = 0; i < count && !runner->has_folded; i++)
        runner->has_folded = aoticache_runner_constant_is_folded(runner, i);
    runner->buffers[runner->active].folded = runner->buffers[runner->active].made = true;
    aoticache_runner_find_missing(runner);
    return AOTICACHE_OK;
}

static void free_constants(aoticache_runner *runner)
{
    for (size_t i = 0; runner->shapes != NULL && i < runner->num_constants; i++)
        free(runner->shapes[i].sizes);
    free(runner->shapes);
    free(runner->buffers[0].stale);
    free(runner->buffers[1].stale);
}

static aoticache_status read_options(const aoticache_runner_options *options, aoticache_runner_options *ret_options,
                                     aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OPTIONS_READ(aoticache_runner_options, AOTICACHE_RUNNER_OPTIONS_INIT, options,
                                                     ret_options, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (ret_options->device == NULL)
        ret_options->device = "cpu";
    if (ret_options->num_models == 0)
        ret_options->num_models = 1;
    if (ret_options->num_models > NUM_MODELS_MAX)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "a runner of %zu models; at most %d are allowed",
                                   ret_options->num_models, NUM_MODELS_MAX);
    return AOTICACHE_OK;
}

/* Makes a runner without a container. Returns NULL if out of memory. */
static aoticache_runner *runner_new(aoticache_library *library, const aoticache_runner_options *options)
{
    cleanup_free aoticache_runner *runner = aligned_alloc(AOTICACHE_RUNNER_CACHE_LINE, sizeof *runner);
    if (runner == NULL)
        return NULL;
    memset(runner, 0, sizeof *runner);
    runner->device = strdup(options->device);
    if (runner->device == NULL)
        return NULL;
    atomic_init(&runner->references, 1);
    atomic_flag_clear(&runner->attached);
    aoticache_run_lock_init(&runner->run_lock, (unsigned)options->num_models, options->pool_only);
    runner->library = aoticache_library_ref(library);
    runner->run_in_pool = library->functions.AOTInductorModelContainerRun;
    runner->run_alone = library->functions.AOTInductorModelContainerRunSingleThreaded;
    if (runner->run_alone == NULL || options->pool_only)
        runner->run_alone = runner->run_in_pool;
    runner->torch = library->torch;
    runner->hot.proxy_executor = options->proxy_executor;
    return steal_ptr(&runner);
}

/* ---- preparation in parallel ---- */

static void *prepare(void *user)
{
    aoticache_library *library = user;
    library->prepare_products();
    return NULL;
}

/* Starts the preparation, once per library. False: nothing to prepare, or no thread for it. */
static bool begin_preparing(aoticache_library *library, pthread_t *ret_thread)
{
    return library->prepare_products != NULL && !atomic_exchange(&library->is_prepared, true) &&
           aoticache_threads_start(ret_thread, 1, NULL, prepare, library) == 1;
}

static aoticache_status create_and_fill(aoticache_runner *runner, const aoticache_runner_options *options,
                                        aoticache_error *ret_error)
{
    pthread_t preparing;
    const bool is_preparing = begin_preparing(runner->library, &preparing);
    aoticache_status status = create_container(runner, options, ret_error);
    if (status == AOTICACHE_OK)
        status = read_counts(runner, ret_error);
    if (status == AOTICACHE_OK)
        status = prepare_constants(runner, ret_error);
    if (is_preparing)
        pthread_join(preparing, NULL);
    return status;
}

aoticache_status aoticache_runner_create(aoticache_library *library, const aoticache_runner_options *options,
                                         aoticache_runner **ret_runner, aoticache_error *ret_error)
{
    aoticache_runner_options chosen;
    const aoticache_device_backend *backend;
    int32_t device_index;
    aoticache_status status = read_options(options, &chosen, ret_error);
    if (status == AOTICACHE_OK && (library == NULL || ret_runner == NULL))
        status = AOTICACHE_REFUSE_NULL(ret_error, library, ret_runner);
    if (status == AOTICACHE_OK)
        status = aoticache_device_backend_find(chosen.device, &backend, &device_index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_runner *runner = runner_new(library, &chosen);
    if (runner == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a runner");
    runner->backend = backend;
    runner->device_index = device_index;
    runner->current_stream = backend->current_stream;
    status = create_and_fill(runner, &chosen, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_runner_unref(runner);
        return status;
    }
    find_plain_kernel(runner, &chosen);
    runner->info = (aoticache_runner_info){.library = library,
                                           .device = runner->device,
                                           .num_inputs = runner->hot.num_inputs,
                                           .num_outputs = runner->hot.num_outputs,
                                           .num_constants = runner->num_constants};
    *ret_runner = runner;
    return AOTICACHE_OK;
}

/* ---- lifetime ---- */

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
    aoticache_run_lock_destroy(&runner->run_lock);
    free_constants(runner);
    aoticache_check_free(runner->expected);
    free(runner->expected_names);
    free(runner->device);
    free(runner);
    errno = saved;
}

aoticache_status aoticache_runner_attach(aoticache_runner *runner, void *owner, void (*release)(void *owner),
                                         aoticache_error *ret_error)
{
    if (runner == NULL || owner == NULL || release == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, runner, owner, release);
    if (atomic_flag_test_and_set(&runner->attached))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the runner of library %.200s already has an owner",
                                   runner->library->name);
    runner->owner = owner;
    runner->release = release;
    return AOTICACHE_OK;
}

void aoticache_runner_expect(aoticache_runner *runner, aoticache_check *check, const char **names)
{
    aoticache_check_free(runner->expected);
    free(runner->expected_names);
    runner->expected = check;
    runner->expected_names = names;
}

/* ---- properties ---- */

const aoticache_runner_info *aoticache_runner_get_info(const aoticache_runner *runner)
{
    return &runner->info;
}

const char *aoticache_runner_tensor_name(const aoticache_runner *runner, bool output, size_t position)
{
    const aoticache_library_functions *functions = &runner->library->functions;
    AOTIRuntimeError (*ask)(AOTInductorModelContainerHandle, size_t, const char **) =
        output ? functions->AOTInductorModelContainerGetOutputName : functions->AOTInductorModelContainerGetInputName;
    const size_t count = output ? runner->hot.num_outputs : runner->hot.num_inputs;
    const char *name = NULL;
    return position < count && ask != NULL && ask(runner->container, position, &name) == 0 ? name : NULL;
}

aoticache_status aoticache_runner_lacks(const aoticache_runner *runner, const char *function, const char *what,
                                        aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "library %.200s does not export %s: %s",
                               runner->library->name, function, what);
}

aoticache_status aoticache_runner_call_spec(const aoticache_runner *runner, const char **ret_in_spec,
                                            const char **ret_out_spec, aoticache_error *ret_error)
{
    const char *in_spec = NULL, *out_spec = NULL;
    if (runner == NULL || ret_in_spec == NULL || ret_out_spec == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, runner, ret_in_spec, ret_out_spec);
    const aoticache_library_functions *functions = &runner->library->functions;
    if (functions->AOTInductorModelContainerGetCallSpec == NULL)
        return aoticache_runner_lacks(runner, "AOTInductorModelContainerGetCallSpec", "it has no call specification",
                                      ret_error);
    AOTIRuntimeError code = functions->AOTInductorModelContainerGetCallSpec(runner->container, &in_spec, &out_spec);
    if (code != 0)
        return aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED, "AOTInductorModelContainerGetCallSpec",
                                         code, ret_error);
    *ret_in_spec = in_spec != NULL ? in_spec : "";
    *ret_out_spec = out_spec != NULL ? out_spec : "";
    return AOTICACHE_OK;
}
