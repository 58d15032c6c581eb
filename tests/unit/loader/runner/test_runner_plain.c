/*
 * Runs without the container (loader/runner/runner_run.c): which kernels are run in this way, who owns the tensors, and the
 * message of a failure. The kernel is tests/unit/kernels/plain.c, over the shim.
 */
#include "tests/unit/fixtures/loader_fixture.h"
#include "loader/runner/create.h"
#include "loader/runner/runner_internal.h"

TestSuite(runner_plain, .init = fixture_setup, .fini = fixture_teardown);

static aoticache_runner *runner_of(const char *flags, bool pool_only)
{
    aoticache_runner *runner = NULL;
    aoticache_error error = {0};
    aoticache_runner_options options = AOTICACHE_RUNNER_OPTIONS_INIT;
    options.pool_only = pool_only;
    int fd = fixture_runtime_kernel("tests/unit/kernels/plain.c", "plain.so", flags, NULL);
    aoticache_library *library = fixture_load(fd);
    close(fd);
    cr_assert_eq(aoticache_runner_create(library, &options, &runner, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_library_unref(library);
    return runner;
}

static AtenTensorHandle one(float *x)
{
    const int64_t size = 1;
    AtenTensorHandle tensor = NULL;
    cr_assert_eq(aoticache_tensor_from_blob(x, AOTICACHE_DTYPE_FLOAT32, 1, &size, NULL, &tensor, NULL), AOTICACHE_OK);
    return tensor;
}

static float take(AtenTensorHandle tensor)
{
    aoticache_tensor_view view;
    cr_assert_eq(aoticache_tensor_get_view(tensor, &view, NULL), AOTICACHE_OK);
    float value = *(const float *)view.data;
    aoticache_tensor_free(tensor);
    return value;
}

/* Runs with both ways to pass the input; the message must be empty after a success. */
static aoticache_status run(aoticache_runner *runner, float x, float *ret_y, aoticache_error *ret_error)
{
    AtenTensorHandle input = one(&x), output = NULL, stolen = one(&x), of_stolen = NULL;
    aoticache_error second = {0};
    ret_error->message[0] = '\0';
    aoticache_status status = aoticache_runner_run(runner, &input, 1, &output, 1, ret_error);
    cr_assert_eq(run_stealing(runner, &stolen, 1, &of_stolen, 1, &second), status);
    cr_assert_str_eq(second.message, ret_error->message);
    cr_assert_null(stolen);
    aoticache_tensor_view view;
    cr_assert_eq(aoticache_tensor_get_view(input, &view, NULL), AOTICACHE_OK, "the input is the caller's as before");
    cr_assert_eq(view.data, &x);
    aoticache_tensor_free(input);
    if (status != AOTICACHE_OK) {
        cr_assert_null(output);
        cr_assert_null(of_stolen);
        return status;
    }
    *ret_y = take(output);
    cr_assert_eq(take(of_stolen), *ret_y);
    return AOTICACHE_OK;
}

Test(runner_plain, promise_without_constants_is_what_counts)
{
    static const struct {
        const char *flags;
        bool pool_only, plain;
    } cases[] = {
        {"", false, true},
        {"", true, false},
        {"-DNOT_PLAIN", false, false},
        {"-DCONSTANT", false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        aoticache_runner *runner = runner_of(cases[i].flags, cases[i].pool_only);
        aoticache_error error;
        float y = 0;
        cr_assert_eq(runner->hot.run_plain != NULL, cases[i].plain, "case %zu", i);
        cr_assert_eq(run(runner, -3, &y, &error), AOTICACHE_OK, "%s", error.message);
        cr_assert_eq(y, 3.0f);
        aoticache_runner_unref(runner);
    }
}

Test(runner_plain, failure_says_what_the_container_would_say)
{
    static const float inputs[] = {-100, -200, -300};
    aoticache_runner *plain = runner_of("", false), *contained = runner_of("-DNOT_PLAIN", false);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        aoticache_error ours, theirs;
        float y = 0;
        cr_assert_eq(run(plain, inputs[i], &y, &ours), AOTICACHE_RUN_FAILED);
        cr_assert_eq(run(contained, inputs[i], &y, &theirs), AOTICACHE_RUN_FAILED);
        cr_assert_eq(y, 0.0f);
        if (inputs[i] != -200) /* the message has the kernel's text if there is one, otherwise the status */
            cr_assert_str_eq(ours.message, theirs.message);
        else
            cr_assert(strstr(ours.message, " 17 ") != NULL && strstr(theirs.message, " 17") != NULL);
    }
    aoticache_runner_unref(plain);
    aoticache_runner_unref(contained);
}

Test(runner_plain, message_of_one_failure_is_not_the_next_ones)
{
    aoticache_runner *runner = runner_of("", false);
    aoticache_error error;
    float y = 0;
    cr_assert_eq(run(runner, -100, &y, &error), AOTICACHE_RUN_FAILED);
    cr_assert_not_null(strstr(error.message, "-100 is refused"), "%s", error.message);
    cr_assert_eq(run(runner, -200, &y, &error), AOTICACHE_RUN_FAILED);
    cr_assert_null(strstr(error.message, "-100"), "%s", error.message);
    cr_assert_not_null(strstr(error.message, "17"), "%s", error.message);
    cr_assert_eq(run(runner, -7, &y, &error), AOTICACHE_OK);
    cr_assert_eq(y, 7.0f);
    aoticache_runner_unref(runner);
}

/* ---- the host's functions ---- */

static int asked_for_data, asked_for_tensor;
static bool host_refuses;

static AOTITorchError count_get_data_ptr(AtenTensorHandle tensor, void **ret_data)
{
    const aoticache_torch *torch = NULL;
    asked_for_data++;
    cr_assert_eq(aoticache_torch_get(&torch, NULL), AOTICACHE_OK);
    return host_refuses ? 1 : torch->aoti_torch_get_data_ptr(tensor, ret_data);
}

static AOTITorchError count_empty_strided(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                                          AtenTensorHandle *ret_tensor, void **ret_data)
{
    const aoticache_torch *torch = NULL;
    asked_for_tensor++;
    cr_assert_eq(aoticache_torch_get(&torch, NULL), AOTICACHE_OK);
    if (host_refuses)
        return 1;
    cr_assert_eq(
        torch->aoti_torch_empty_strided(ndim, sizes, strides, dtype, AOTICACHE_DEVICE_TYPE_CPU, -1, ret_tensor), 0);
    return torch->aoti_torch_get_data_ptr(*ret_tensor, ret_data);
}

Test(runner_plain, kernels_ask_their_host_and_then_the_library)
{
    static const aoticache_kernel_host host = {.get_data_ptr = count_get_data_ptr,
                                               .empty_strided = count_empty_strided};
    aoticache_runner *plain = runner_of("", false), *contained = runner_of("-DNOT_PLAIN", false);
    aoticache_error error;
    float y = 0;
    aoticache_runner_set_host(&host);
    for (int refuses = 0; refuses < 2; refuses++) {
        host_refuses = refuses != 0;
        asked_for_data = asked_for_tensor = 0;
        cr_assert_eq(run(plain, -3, &y, &error), AOTICACHE_OK, "%s", error.message);
        cr_assert_eq(y, 3.0f);
        cr_assert_eq(asked_for_tensor, 2, "one for each of the two runs, not %d", asked_for_tensor);
        cr_assert_geq(asked_for_data, 2);
        cr_assert_eq(run(plain, -100, &y, &error), AOTICACHE_RUN_FAILED);
        cr_assert_not_null(strstr(error.message, "-100 is refused"), "%s", error.message);
    }
    asked_for_data = asked_for_tensor = 0;
    cr_assert_eq(run(contained, -4, &y, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(asked_for_data + asked_for_tensor, 0, "a container has no host");
    aoticache_runner_unref(plain);
    aoticache_runner_unref(contained);
}
