/*
 * Devices by name, and what reaches a library unchanged: streams, proxy executors, directories, numbers of models.
 */
#include "loader/eager_face.h"
#include "tests/unit/fixtures/loader_fixture.h"

#include "loader/loader_internal.h"
#include "loader/runner/backend.h"
#include "loader/runner/constants.h"
#include "loader/runner/create.h"

/* Records in its variables what it was called with; its outputs are its inputs. */
static const char recorder_source[] =
    "#include <stddef.h>\n#include <stdlib.h>\n#include <string.h>\n"
    "void *stream, *proxy, *fold_stream, *fold_proxy; size_t models; char device[64], directory[64];\n"
    "int runs, single_runs;\n"
    "typedef struct tensor *T;\n"
    "int AOTInductorModelContainerCreateWithDevice(void **ret, size_t n, const char *d, const char *c)\n"
    "{ models = n; strcpy(device, d); strcpy(directory, c ? c : \"none\"); *ret = malloc(1); return 0; }\n"
    "int AOTInductorModelContainerDelete(void *c) { free(c); return 0; }\n"
    "int AOTInductorModelContainerGetNumInputs(void *c, size_t *ret) { *ret = 1; return 0; }\n"
    "int AOTInductorModelContainerGetNumOutputs(void *c, size_t *ret) { *ret = 1; return 0; }\n"
    "int AOTInductorModelContainerRun(void *c, T *in, size_t ni, T *out, size_t no, void *s, void *p)\n"
    "{ stream = s; proxy = p; out[0] = in[0]; in[0] = NULL; runs++; return 0; }\n"
    "#ifndef OLD\n"
    "int AOTInductorModelContainerRunSingleThreaded(void *c, T *in, size_t ni, T *out, size_t no, void *s, void *p)\n"
    "{ stream = s; proxy = p; out[0] = in[0]; in[0] = NULL; single_runs++; return 0; }\n#endif\n"
    "int AOTInductorModelContainerRunConstantFolding(void *c, int i, void *s, void *p)\n"
    "{ fold_stream = s; fold_proxy = p; return 0; }\n";

TestSuite(runner_devices, .init = fixture_setup, .fini = fixture_teardown);

static aoticache_library *recorder(const char *flags)
{
    char path[FIXTURE_PATH_BYTES];
    fixture_compile(recorder_source, "recorder.so", flags);
    fixture_path("recorder.so", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    aoticache_library *library = fixture_load(fd);
    close(fd);
    return library;
}

#define RECORDED(library, type, name) (*(type *)recorded(library, #name))
static void *recorded(aoticache_library *library, const char *name)
{
    void *variable = dlsym(library->handle, name);
    cr_assert_not_null(variable);
    return variable;
}

static aoticache_runner *create(aoticache_library *library, aoticache_runner_options options)
{
    aoticache_runner *runner = NULL;
    aoticache_error error = {0};
    options.size = sizeof options;
    cr_assert_eq(aoticache_runner_create(library, &options, &runner, &error), AOTICACHE_OK, "%s", error.message);
    return runner;
}

static AtenTensorHandle scalar(void)
{
    static float one = 1;
    AtenTensorHandle tensor = NULL;
    cr_assert_eq(aoticache_tensor_from_blob(&one, AOTICACHE_DTYPE_FLOAT32, 0, NULL, NULL, &tensor, NULL), AOTICACHE_OK);
    return tensor;
}

static void run(aoticache_runner *runner, const aoticache_run_options *options)
{
    AtenTensorHandle input = scalar(), output = NULL;
    aoticache_error error = {0};
    bool steals = options != NULL && options->steal_inputs;
    cr_assert_eq(aoticache_runner_run_with(runner, options, &input, 1, &output, 1, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(input == NULL, steals);
    aoticache_tensor_free(input);
    aoticache_tensor_free(output);
}

#define HANDLE(type, number) ((type)(uintptr_t)(number))

Test(runner_devices, options_reach_the_library)
{
    aoticache_library *library = recorder("");
    aoticache_runner *runner =
        create(library, (aoticache_runner_options){.device = "cpu:0", .num_models = 5, .directory = "/cubins"});
    cr_assert_eq(RECORDED(library, size_t, models), 5);
    cr_assert_str_eq(recorded(library, "device"), "cpu:0");
    cr_assert_str_eq(recorded(library, "directory"), "/cubins");
    cr_assert_str_eq(aoticache_runner_get_info(runner)->device, "cpu:0");
    cr_assert_eq(aoticache_runner_get_info(runner)->library, library);
    aoticache_runner_unref(runner);
    runner = create(library, (aoticache_runner_options){.device = NULL});
    cr_assert_eq(RECORDED(library, size_t, models), 1);
    cr_assert_str_eq(aoticache_runner_get_info(runner)->device, "cpu");
    cr_assert_str_eq(recorded(library, "directory"), "none");
    aoticache_runner_unref(runner);
    aoticache_library_unref(library);
}

Test(runner_devices, too_many_models_are_refused)
{
    aoticache_library *library = recorder("");
    aoticache_runner *runner = NULL;
    aoticache_error error = {0};
    aoticache_runner_options options = {.size = sizeof options, .num_models = SIZE_MAX};
    cr_assert_eq(aoticache_runner_create(library, &options, &runner, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "at most 4096"), "%s", error.message);
    cr_assert_null(runner);
    aoticache_library_unref(library);
}

Test(runner_devices, streams_and_executors_pass_through)
{
    aoticache_library *library = recorder("");
    aoticache_runner *runner =
        create(library, (aoticache_runner_options){.proxy_executor = HANDLE(AOTIProxyExecutorHandle, 11)});
    run(runner, NULL);
    cr_assert_null(RECORDED(library, void *, stream));
    cr_assert_eq(RECORDED(library, uintptr_t, proxy), 11);
    aoticache_run_options options = AOTICACHE_RUN_OPTIONS_INIT;
    options.stream = HANDLE(AOTInductorStreamHandle, 12);
    options.proxy_executor = HANDLE(AOTIProxyExecutorHandle, 13);
    run(runner, &options);
    cr_assert_eq(RECORDED(library, uintptr_t, stream), 12);
    cr_assert_eq(RECORDED(library, uintptr_t, proxy), 13);
    cr_assert_eq(aoticache_runner_fold_constants(runner, false, &options, NULL), AOTICACHE_OK);
    cr_assert_eq(RECORDED(library, uintptr_t, fold_stream), 12);
    cr_assert_eq(RECORDED(library, uintptr_t, fold_proxy), 13);
    cr_assert_eq(aoticache_runner_fold_constants(runner, true, NULL, NULL), AOTICACHE_OK);
    cr_assert_null(RECORDED(library, void *, fold_stream));
    cr_assert_eq(RECORDED(library, uintptr_t, fold_proxy), 11);
    options.steal_inputs = true;
    run(runner, &options);
    options.size += 1;
    aoticache_error error = {0};
    AtenTensorHandle input = scalar(), output = NULL;
    cr_assert_eq(aoticache_runner_run_with(runner, &options, &input, 1, &output, 1, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "aoticache_run_options.size is 33, this library's is 32"), "%s",
                       error.message);
    cr_assert_not_null(input); /* whether to take them over could not be read */
    aoticache_tensor_free(input);
    aoticache_runner_unref(runner);
    aoticache_library_unref(library);
}

Test(runner_devices, only_runs_that_may_are_single_threaded)
{
    aoticache_library *library = recorder("");
    aoticache_runner *runner = create(library, (aoticache_runner_options){.num_models = 2});
    for (int i = 0; i < 3; i++)
        run(runner, NULL);
    cr_assert(RECORDED(library, int, single_runs) == 3 && RECORDED(library, int, runs) == 0);
    cr_assert_eq(aoticache_runner_fold_constants(runner, false, NULL, NULL), AOTICACHE_OK);
    run(runner, NULL);
    cr_assert(RECORDED(library, int, single_runs) == 4 && RECORDED(library, int, runs) == 0);
    aoticache_runner_unref(runner);
    runner = create(library, (aoticache_runner_options){.pool_only = true});
    run(runner, NULL);
    cr_assert(RECORDED(library, int, single_runs) == 4 && RECORDED(library, int, runs) == 1);
    aoticache_runner_unref(runner);
    aoticache_library_unref(library);
    library = recorder("-DOLD");
    runner = create(library, (aoticache_runner_options){.num_models = 2});
    run(runner, NULL);
    cr_assert_eq(RECORDED(library, int, runs), 1);
    aoticache_runner_unref(runner);
    aoticache_library_unref(library);
}

/* ---- the registry ---- */

static int checks, creations, streams;
static char the_user[] = "the user", first_user[] = "the first", second_user[] = "the second";

static aoticache_status check(void *user, const aoticache_library *library, int32_t index, const char *directory,
                              aoticache_error *ret_error)
{
    checks++;
    cr_assert_str_eq(directory, "/side");
    cr_assert_str_eq(user, "the user");
    if (index != 3)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "%s: there is only device 3, not %d",
                                   aoticache_library_get_info(library)->name, (int)index);
    return AOTICACHE_OK;
}

static aoticache_status create_container(void *user, const aoticache_library *library, const char *device,
                                         size_t num_models, const char *directory,
                                         AOTInductorModelContainerHandle *ret_container, aoticache_error *ret_error)
{
    (void)user;
    (void)ret_error;
    creations++;
    cr_assert_str_eq(device, "npu:3");
    AOTIRuntimeError code =
        library->functions.AOTInductorModelContainerCreateWithDevice(ret_container, num_models, "cpu", directory);
    return code == 0 ? AOTICACHE_OK : AOTICACHE_LOAD_FAILED;
}

static AOTInductorStreamHandle current_stream(void *user, int32_t index)
{
    (void)user;
    cr_assert_eq(index, 3);
    return HANDLE(AOTInductorStreamHandle, 100 + ++streams);
}

Test(runner_devices, registered_one_checks_creates_and_gives_streams)
{
    aoticache_library *library = recorder("");
    aoticache_runner *runner = NULL;
    aoticache_error error = {0};
    aoticache_runner_options options = {.size = sizeof options, .device = "npu:2", .directory = "/side"};
    cr_assert_eq(aoticache_runner_create(library, &options, &runner, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "unknown device \"npu:2\"; known are \"cpu\", \"cuda\""), "%s",
                       error.message);
    char name[] = "npu";
    aoticache_device_backend backend = {.size = sizeof backend,
                                        .name = name,
                                        .user = the_user,
                                        .check = check,
                                        .device_type = AOTICACHE_DEVICE_TYPE_PRIVATEUSE1,
                                        .create = create_container,
                                        .current_stream = current_stream};
    cr_assert_eq(aoticache_device_backend_register(&backend, &error), AOTICACHE_OK, "%s", error.message);
    memset(name, 'x', 3); /* it was copied */
    cr_assert_eq(aoticache_runner_create(library, &options, &runner, &error), AOTICACHE_UNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "only device 3, not 2"), "%s", error.message);
    options.device = "npu:3";
    runner = create(library, options);
    cr_assert(checks == 2 && creations == 1);
    run(runner, NULL);
    cr_assert_eq(RECORDED(library, uintptr_t, stream), 101);
    aoticache_run_options run_options = {.size = sizeof run_options, .stream = HANDLE(AOTInductorStreamHandle, 7)};
    run(runner, &run_options);
    cr_assert_eq(RECORDED(library, uintptr_t, stream), 7);
    cr_assert_eq(aoticache_runner_fold_constants(runner, false, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(RECORDED(library, uintptr_t, fold_stream), 102);

    cr_assert_eq(aoticache_device_backend_unregister("npu", &error), AOTICACHE_OK, "%s", error.message);
    run(runner, NULL); /* still uses it */
    cr_assert_eq(RECORDED(library, uintptr_t, stream), 103);
    aoticache_runner_unref(runner);
    cr_assert_eq(aoticache_runner_create(library, &options, &runner, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_device_backend_unregister("npu", &error), AOTICACHE_NOT_FOUND);
    aoticache_library_unref(library);
}

static aoticache_status refuse(void *user, const aoticache_library *library, int32_t index, const char *directory,
                               aoticache_error *ret_error)
{
    (void)library;
    (void)index;
    (void)directory;
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "refused by %s", (const char *)user);
}

Test(runner_devices, newer_registration_hides_the_older_one)
{
    aoticache_library *library = recorder("");
    aoticache_runner *runner = NULL;
    aoticache_error error = {0};
    aoticache_device_backend backend = {.size = sizeof backend, .name = "cpu", .check = refuse, .user = first_user};
    cr_assert_eq(aoticache_device_backend_register(&backend, NULL), AOTICACHE_OK);
    backend.user = second_user;
    cr_assert_eq(aoticache_device_backend_register(&backend, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_runner_create(library, NULL, &runner, &error), AOTICACHE_UNSUPPORTED);
    cr_assert_str_eq(error.message, "refused by the second");
    cr_assert_eq(aoticache_device_backend_unregister("cpu", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_runner_create(library, NULL, &runner, &error), AOTICACHE_UNSUPPORTED);
    cr_assert_str_eq(error.message, "refused by the first");
    cr_assert_eq(aoticache_device_backend_unregister("cpu", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_runner_create(library, NULL, &runner, &error), AOTICACHE_OK);
    cr_assert_eq(aoticache_device_backend_unregister("cpu", &error), AOTICACHE_NOT_FOUND); /* it is built in */
    aoticache_runner_unref(runner);
    aoticache_library_unref(library);
}

Test(runner_devices, wrong_registrations_and_names_are_invalid)
{
    static const char *const names[] = {NULL, "", "a b", "a:1", "0123456789012345678901234567890123"};
    aoticache_error error = {0};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        aoticache_device_backend backend = {.size = sizeof backend, .name = names[i]};
        cr_assert_eq(aoticache_device_backend_register(&backend, &error), AOTICACHE_INVALID);
        cr_assert_not_null(strstr(error.message, "not a valid device name"), "%s", error.message);
    }
    aoticache_device_backend large = {.size = sizeof large + 1, .name = "large"};
    cr_assert_eq(aoticache_device_backend_register(&large, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_device_backend_register(NULL, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_device_backend_unregister(NULL, &error), AOTICACHE_INVALID);

    static const char *const devices[] = {"", ":", "cpu:", "cpu:x", "cpu:12345", "cpu:1:2", "CPU", "cpux", "cpu "};
    aoticache_library *library = recorder("");
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        aoticache_runner *runner = NULL;
        aoticache_runner_options options = {.size = sizeof options, .device = devices[i]};
        cr_assert_eq(aoticache_runner_create(library, &options, &runner, &error), AOTICACHE_INVALID, "%s", devices[i]);
    }
    aoticache_library_unref(library);
}
