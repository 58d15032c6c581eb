/*
 * Runners and tensors: results, counts, names, and that every handle is freed exactly once on every path. The stand-in
 * for libtorch counts its handles.
 */
#include "loader/eager_face.h"
#include "loader/runner/backend.h"
#include "loader/runner/create.h"
#include "tests/unit/fixtures/loader_fixture.h"

#include <pthread.h>
#include <sys/wait.h>

static long *live_handles;

static void with_counting_torch(void)
{
    fixture_setup();
    live_handles = dlsym(fixture_import_torch("libtorch_cpu.so"), "fixture_live_handles");
    cr_assert_not_null(live_handles);
}

TestSuite(runner, .init = with_counting_torch, .fini = fixture_teardown);
TestSuite(tensor, .init = fixture_setup, .fini = fixture_teardown);

static aoticache_runner *runner_of(const char *flags)
{
    aoticache_runner *runner = NULL;
    aoticache_error error = {0};
    int fd = fixture_kernel("kernel.so", flags);
    aoticache_library *library = fixture_load(fd);
    close(fd);
    cr_assert_eq(aoticache_runner_create(library, NULL, &runner, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_library_unref(library); /* the runner holds it */
    return runner;
}

static AtenTensorHandle tensor_of(float *data, int64_t count)
{
    AtenTensorHandle tensor = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, 1, &count, NULL, &tensor, &error),
                 AOTICACHE_OK, "%s", error.message);
    return tensor;
}

static const float *data_of(AtenTensorHandle tensor)
{
    aoticache_tensor_view view = {0};
    cr_assert_eq(aoticache_tensor_get_view(tensor, &view, NULL), AOTICACHE_OK);
    return view.data;
}

Test(runner, run_borrows_inputs_and_gives_outputs)
{
    aoticache_runner *runner = runner_of("-DINPUTS=2 -DOUTPUTS=3");
    cr_assert_eq(aoticache_runner_num_inputs(runner), 2);
    cr_assert_eq(aoticache_runner_num_outputs(runner), 3);
    float data[2] = {4, 5};
    AtenTensorHandle inputs[2] = {tensor_of(data, 2), tensor_of(data, 2)}, outputs[3];
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(aoticache_runner_run(runner, inputs, 2, outputs, 3, NULL), AOTICACHE_OK);
        cr_assert_eq(*live_handles, 5);
        cr_assert_eq(data_of(outputs[2])[1], 6.0f);
        cr_assert_eq(data_of(inputs[1]), data);
        for (int o = 0; o < 3; o++)
            aoticache_tensor_free(outputs[o]);
    }
    aoticache_tensor_free(inputs[0]);
    aoticache_tensor_free(inputs[1]);
    cr_assert_eq(*live_handles, 0);
    aoticache_runner_unref(runner);
}

Test(runner, run_stealing_takes_the_inputs)
{
    aoticache_runner *runner = runner_of("");
    float data[2] = {4, 5};
    AtenTensorHandle input = tensor_of(data, 2), output = NULL;
    cr_assert_eq(run_stealing(runner, &input, 1, &output, 1, NULL), AOTICACHE_OK);
    cr_assert_eq(*live_handles, 1);
    cr_assert_eq(data_of(output)[0], 5.0f);
    aoticache_tensor_free(output);
    aoticache_runner_unref(runner);
}

Test(runner, many_tensors_run_too)
{
    aoticache_runner *runner = runner_of("-DINPUTS=40 -DOUTPUTS=41");
    float data[2] = {4, 5};
    AtenTensorHandle inputs[40], outputs[41];
    for (int i = 0; i < 40; i++)
        inputs[i] = tensor_of(data, 2);
    cr_assert_eq(aoticache_runner_run(runner, inputs, 40, outputs, 41, NULL), AOTICACHE_OK);
    cr_assert_eq(*live_handles, 81);
    for (int i = 0; i < 41; i++)
        aoticache_tensor_free(outputs[i]);
    cr_assert_eq(run_stealing(runner, inputs, 40, outputs, 41, NULL), AOTICACHE_OK);
    for (int i = 0; i < 41; i++)
        aoticache_tensor_free(outputs[i]);
    cr_assert_eq(*live_handles, 0);
    aoticache_runner_unref(runner);
}

Test(runner, wrong_counts_are_refused_with_both_numbers)
{
    aoticache_runner *runner = runner_of("-DINPUTS=2 -DOUTPUTS=1");
    float data[2] = {4, 5};
    AtenTensorHandle inputs[2] = {tensor_of(data, 2), tensor_of(data, 2)}, output = (AtenTensorHandle)&data;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_runner_run(runner, inputs, 1, &output, 1, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "takes 2 inputs and returns 1 outputs, not 1 and 1"), "%s", error.message);
    cr_assert_eq(aoticache_runner_run(runner, inputs, 2, &output, 0, &error), AOTICACHE_INVALID);
    cr_assert_eq(*live_handles, 2);
    cr_assert_eq(output, (AtenTensorHandle)&data);

    /* A run that steals takes the inputs on this path as well. */
    cr_assert_eq(run_stealing(runner, inputs, 2, &output, 2, &error), AOTICACHE_INVALID);
    cr_assert_eq(*live_handles, 0);
    cr_assert_eq(output, (AtenTensorHandle)&data);
    aoticache_runner_unref(runner);
}

Test(runner, null_input_is_refused)
{
    aoticache_runner *runner = runner_of("-DINPUTS=2");
    float data[2] = {4, 5};
    AtenTensorHandle inputs[2] = {tensor_of(data, 2), NULL}, output = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_runner_run(runner, inputs, 2, &output, 1, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "input 1"), "%s", error.message);
    cr_assert_eq(run_stealing(runner, inputs, 2, &output, 1, &error), AOTICACHE_INVALID);
    cr_assert_eq(*live_handles, 0);
    cr_assert_null(output);
    aoticache_runner_unref(runner);
}

/* Runs a kernel that fails before or after taking the inputs over; in the latter case it has also made outputs. */
static void run_failing(const char *flags)
{
    aoticache_runner *runner = runner_of(flags);
    float data[2] = {4, 5};
    AtenTensorHandle input = tensor_of(data, 2), outputs[2] = {NULL, NULL};
    aoticache_error error = {0};
    cr_assert_eq(aoticache_runner_run(runner, &input, 1, outputs, 2, &error), AOTICACHE_RUN_FAILED);
    cr_assert_not_null(strstr(error.message, "the kernel's own words"), "%s", error.message);
    cr_assert_eq(*live_handles, 1);
    cr_assert_null(outputs[0]);
    cr_assert_eq(run_stealing(runner, &input, 1, outputs, 2, &error), AOTICACHE_RUN_FAILED);
    cr_assert_eq(*live_handles, 0);
    cr_assert_null(outputs[0]);
    aoticache_runner_unref(runner);
}

Test(runner, failure_before_the_inputs_are_taken_frees_them_once)
{
    run_failing("-DOUTPUTS=2 -DFAIL_BEFORE");
}

Test(runner, failure_after_the_inputs_are_taken_frees_them_once)
{
    run_failing("-DOUTPUTS=2 -DFAIL_AFTER");
}

Test(runner, input_that_gives_no_handle_leaves_none_behind)
{
    aoticache_runner *runner = runner_of("-DINPUTS=2");
    float data[2] = {4, 5};
    AtenTensorHandle inputs[2] = {tensor_of(data, 2), tensor_of(data, 2)}, output = NULL;
    *live_handles += 898; /* the stand-in refuses beyond 900, so the second one fails */
    aoticache_error error = {0};
    cr_assert_eq(aoticache_runner_run(runner, inputs, 2, &output, 1, &error), AOTICACHE_NO_MEMORY, "%s", error.message);
    cr_assert_eq(*live_handles, 900);
    *live_handles -= 898;
    aoticache_tensor_free(inputs[0]);
    aoticache_tensor_free(inputs[1]);
    aoticache_runner_unref(runner);
}

Test(runner, names_are_given_and_end)
{
    aoticache_runner *runner = runner_of("");
    cr_assert_str_eq(aoticache_runner_tensor_name(runner, false, 0), "first");
    cr_assert_null(aoticache_runner_tensor_name(runner, false, 1));
    cr_assert_null(aoticache_runner_tensor_name(runner, true, 0)); /* this kernel does not export that function */
    aoticache_runner_unref(runner);
}

Test(runner, creation_fails_with_the_librarys_words)
{
    aoticache_library *library = fixture_load(fixture_kernel("kernel.so", "-DCREATE_FAILS"));
    aoticache_runner *runner = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_runner_create(library, NULL, &runner, &error), AOTICACHE_LOAD_FAILED);
    cr_assert_not_null(strstr(error.message, "library kernel: the kernel's own words"), "%s", error.message);
    cr_assert_null(strchr(error.message, '\n'));
    cr_assert_null(runner);
    aoticache_library_unref(library);
}

Test(runner, old_library_is_created_by_kind_of_device)
{
    aoticache_library *library = fixture_load(fixture_kernel("kernel.so", "-DOLD"));
    /* A backend without checks of the machine. */
    aoticache_device_backend backend = {
        .size = sizeof backend, .name = "cuda", .device_type = AOTICACHE_DEVICE_TYPE_CUDA};
    cr_assert_eq(aoticache_device_backend_register(&backend, NULL), AOTICACHE_OK);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    aoticache_runner *runner = NULL;
    aoticache_error error = {0};
    aoticache_runner_options options = AOTICACHE_RUNNER_OPTIONS_INIT;
    options.device = "cuda:1";
    cr_assert_eq(aoticache_runner_create(library, &options, &runner, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "cuda:1"), "%s", error.message);
    options.device = "cuda";
    cr_assert_eq(aoticache_runner_create(library, &options, &runner, &error), AOTICACHE_LOAD_FAILED);
    cr_assert_not_null(strstr(error.message, "AOTInductorModelContainerCreate returned 4"), "%s", error.message);
    aoticache_library_unref(library);
}

Test(runner, wrong_options_are_invalid)
{
    aoticache_library *library = fixture_load(fixture_kernel("kernel.so", ""));
    aoticache_runner *runner = NULL;
    aoticache_error error = {0};
    aoticache_runner_options options = AOTICACHE_RUNNER_OPTIONS_INIT;
    options.device = "toaster";
    cr_assert_eq(aoticache_runner_create(library, &options, &runner, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "toaster"), "%s", error.message);
    options = (aoticache_runner_options){.size = sizeof options + 1};
    cr_assert_eq(aoticache_runner_create(library, &options, &runner, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_runner_create(NULL, NULL, &runner, &error), AOTICACHE_INVALID);
    aoticache_runner_unref(NULL);
    aoticache_library_unref(library);
}

Test(runner, references_keep_it)
{
    aoticache_runner *runner = runner_of("");
    cr_assert_eq(aoticache_runner_ref(runner), runner);
    aoticache_runner_unref(runner);
    cr_assert_str_eq(aoticache_runner_tensor_name(runner, false, 0), "first");
    aoticache_runner_unref(runner);
}

static void count_release(void *owner)
{
    ++*(int *)owner;
}

Test(runner, owner_is_released_once_with_the_last_reference)
{
    int released = 0, other = 0;
    aoticache_error error = {0};
    aoticache_runner *runner = runner_of("");
    cr_assert_eq(aoticache_runner_attach(runner, NULL, count_release, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_runner_attach(runner, &released, NULL, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_runner_attach(runner, &released, count_release, &error), AOTICACHE_OK);
    cr_assert_eq(aoticache_runner_attach(runner, &other, count_release, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "already has an owner"), "%s", error.message);
    aoticache_runner_ref(runner);
    aoticache_runner_unref(runner);
    cr_assert_eq(released, 0);
    aoticache_runner_unref(runner);
    cr_assert_eq(released, 1);
    cr_assert_eq(other, 0);
}

static float run_once(aoticache_runner *runner, float value)
{
    AtenTensorHandle input = tensor_of(&value, 1), output = NULL;
    cr_assert_eq(aoticache_runner_run(runner, &input, 1, &output, 1, NULL), AOTICACHE_OK);
    float result = data_of(output)[0];
    aoticache_tensor_free(input);
    aoticache_tensor_free(output);
    return result;
}

Test(runner, child_of_fork_runs_what_the_parent_loaded)
{
    aoticache_runner *runner = runner_of("");
    pid_t child = fork();
    if (child == 0)
        _exit(run_once(runner, 41) == 42.0f ? 0 : 1);
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(run_once(runner, 1), 2.0f);
    aoticache_runner_unref(runner);
}

/* ---- tensors, and many threads, with the shim ---- */

static void *run_often(void *runner)
{
    for (int i = 0; i < 1000; i++)
        if (run_once(runner, (float)i) != (float)i + 1)
            return runner;
    return NULL;
}

Test(tensor, many_threads_run_one_runner)
{
    aoticache_runner *runner = runner_of("");
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, run_often, runner), 0);
    for (int i = 0; i < 4; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        cr_assert_null(failed);
    }
    aoticache_runner_unref(runner);
}

Test(tensor, view_gives_what_was_made)
{
    int16_t data[12] = {0};
    AtenTensorHandle tensor = NULL;
    aoticache_error error = {0};
    aoticache_tensor_view view = {0};
    cr_assert_eq(aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_INT16, 2, (int64_t[]){3, 2}, (int64_t[]){1, 4},
                                            &tensor, &error),
                 AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_tensor_get_view(tensor, &view, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(view.data, data);
    cr_assert_eq(view.dtype, AOTICACHE_DTYPE_INT16);
    cr_assert_eq(view.device.type, AOTICACHE_DEVICE_TYPE_CPU);
    cr_assert_eq(view.ndim, 2);
    cr_assert_eq(view.numel, 6);
    cr_assert(view.sizes[0] == 3 && view.sizes[1] == 2);
    cr_assert(view.strides[0] == 1 && view.strides[1] == 4);
    aoticache_tensor_free(tensor);
}

Test(tensor, no_strides_means_contiguous)
{
    float data[24] = {0};
    AtenTensorHandle tensor = NULL;
    aoticache_tensor_view view = {0};
    cr_assert_eq(
        aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, 3, (int64_t[]){2, 3, 4}, NULL, &tensor, NULL),
        AOTICACHE_OK);
    cr_assert_eq(aoticache_tensor_get_view(tensor, &view, NULL), AOTICACHE_OK);
    cr_assert(view.strides[0] == 12 && view.strides[1] == 4 && view.strides[2] == 1);
    aoticache_tensor_free(tensor);
    cr_assert_eq(aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, 0, NULL, NULL, &tensor, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_tensor_get_view(tensor, &view, NULL), AOTICACHE_OK);
    cr_assert(view.ndim == 0 && view.numel == 1);
    aoticache_tensor_free(tensor);
    cr_assert_eq(aoticache_tensor_from_blob(NULL, AOTICACHE_DTYPE_FLOAT32, 2, (int64_t[]){2, 0}, NULL, &tensor, NULL),
                 AOTICACHE_OK);
    cr_assert_eq(aoticache_tensor_get_view(tensor, &view, NULL), AOTICACHE_OK);
    cr_assert(view.numel == 0 && view.strides[0] == 1 && view.strides[1] == 1);
    aoticache_tensor_free(tensor);
}

static void expect_no_tensor(void *data, int32_t dtype, int64_t ndim, const int64_t *sizes, const int64_t *strides,
                             const char *words)
{
    AtenTensorHandle tensor = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_tensor_from_blob(data, dtype, ndim, sizes, strides, &tensor, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, words), "%s", error.message);
    cr_assert_null(tensor);
}

Test(tensor, impossible_shapes_are_invalid)
{
    float data[4] = {0};
    int64_t big = INT64_C(1) << 62, sizes[65] = {0};
    expect_no_tensor(data, 6, 1, (int64_t[]){-1}, NULL, "size -1");
    expect_no_tensor(data, 6, 1, (int64_t[]){2}, (int64_t[]){-3}, "stride -3");
    expect_no_tensor(data, 6, 2, (int64_t[]){big, 4}, NULL, "elements");
    expect_no_tensor(data, 6, 1, (int64_t[]){big}, NULL, "bytes");
    expect_no_tensor(data, 99, 1, (int64_t[]){4}, NULL, "dtype 99");
    expect_no_tensor(data, 6, 65, sizes, NULL, "65");
    expect_no_tensor(data, 6, -1, sizes, NULL, "-1");
    expect_no_tensor(data, 6, 1, NULL, NULL, "sizes");
    expect_no_tensor(NULL, 6, 1, (int64_t[]){4}, NULL, "aoticache_tensor_from_blob: data is NULL");
    aoticache_tensor_view view;
    cr_assert_eq(aoticache_tensor_get_view(NULL, &view, NULL), AOTICACHE_INVALID);
    aoticache_tensor_free(NULL);
}
