/*
 * tests/unit/loader/runner/constants_fixture: what the tests of a runner's constants share: the kernel of
 * tests/unit/kernels/affine.c, which returns x * weight + 2 * weight and how often it has folded; new values for it;
 * and tests for libraries that export the whole interface and for those with only the functions of PyTorch 2.6.
 */
#ifndef AOTICACHE_TESTS_CONSTANTS_FIXTURE_H
#define AOTICACHE_TESTS_CONSTANTS_FIXTURE_H

#include "loader/runner/constants.h"
#include "loader/runner/create.h"
#include "tests/unit/fixtures/loader_fixture.h"

#include <math.h>

FIXTURE_FUNCTION aoticache_runner *runner_with(const char *source, const char *hide, size_t num_models)
{
    aoticache_runner *runner = NULL;
    aoticache_error error = {0};
    aoticache_runner_options options = AOTICACHE_RUNNER_OPTIONS_INIT;
    options.num_models = num_models;
    int fd = fixture_runtime_kernel(source, "affine.so", "", hide);
    aoticache_library *library = fixture_load(fd);
    close(fd);
    cr_assert_eq(aoticache_runner_create(library, &options, &runner, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_library_unref(library);
    return runner;
}

FIXTURE_FUNCTION aoticache_runner *affine(const char *hide)
{
    return runner_with("tests/unit/kernels/affine.c", hide, 1);
}

FIXTURE_FUNCTION AtenTensorHandle vector_of(float *data, int64_t count)
{
    AtenTensorHandle tensor = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, 1, &count, NULL, &tensor, &error),
                 AOTICACHE_OK, "%s", error.message);
    return tensor;
}

FIXTURE_FUNCTION const float *floats(AtenTensorHandle tensor)
{
    aoticache_tensor_view view = {0};
    cr_assert_eq(aoticache_tensor_get_view(tensor, &view, NULL), AOTICACHE_OK);
    return view.data;
}

/* Runs on {1, 1, 1}: the result is three times the first element of weight. */
FIXTURE_FUNCTION aoticache_status run_ones(aoticache_runner *runner, float *ret_result, float *ret_folds,
                                           aoticache_error *ret_error)
{
    float ones[3] = {1, 1, 1};
    AtenTensorHandle input = vector_of(ones, 3), outputs[2];
    aoticache_status status = aoticache_runner_run(runner, &input, 1, outputs, 2, ret_error);
    aoticache_tensor_free(input);
    if (status != AOTICACHE_OK)
        return status;
    *ret_result = floats(outputs[0])[0];
    *ret_folds = *floats(outputs[1]);
    aoticache_tensor_free(outputs[0]);
    aoticache_tensor_free(outputs[1]);
    return AOTICACHE_OK;
}

FIXTURE_FUNCTION void expect_weight(aoticache_runner *runner, float weight)
{
    aoticache_error error = {0};
    float result = NAN, folds;
    cr_assert_eq(run_ones(runner, &result, &folds, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(result, 3 * weight, "%g, not three times %g", (double)result, (double)weight);
}

FIXTURE_FUNCTION float folds_of(aoticache_runner *runner)
{
    float result, folds = NAN;
    cr_assert_eq(run_ones(runner, &result, &folds, NULL), AOTICACHE_OK);
    return folds;
}

FIXTURE_FUNCTION aoticache_status update(aoticache_runner *runner, const char *name, float value,
                                         aoticache_update_options options, aoticache_error *ret_error)
{
    float data[3] = {value, value, value};
    AOTInductorConstantMapEntry pair = {name, vector_of(data, 3)};
    options.size = sizeof options;
    aoticache_status status = aoticache_runner_update_constants(runner, &options, &pair, 1, ret_error);
    aoticache_tensor_free(pair.handle);
    return status;
}

#define UPDATE(runner, name, value, ...)                                                                  \
    do {                                                                                                  \
        aoticache_error update_error = {0};                                                               \
        cr_assert_eq(update(runner, name, value, (aoticache_update_options){__VA_ARGS__}, &update_error), \
                     AOTICACHE_OK, "%s", update_error.message);                                           \
    } while (0)
#define REFUSED(runner, name, status, words, ...)                                                                   \
    do {                                                                                                            \
        aoticache_error update_error = {0};                                                                         \
        cr_assert_eq(update(runner, name, 9, (aoticache_update_options){__VA_ARGS__}, &update_error), status, "%s", \
                     update_error.message);                                                                         \
        cr_assert_not_null(strstr(update_error.message, words), "%s", update_error.message);                        \
    } while (0)
#define WORKS(call)                                              \
    do {                                                         \
        aoticache_error error = {0};                             \
        cr_assert_eq((call), AOTICACHE_OK, "%s", error.message); \
    } while (0)
#define FAILS(call, status, words)                                             \
    do {                                                                       \
        aoticache_error error = {0};                                           \
        cr_assert_eq((call), status, "%s", error.message);                     \
        cr_assert_not_null(strstr(error.message, words), "%s", error.message); \
    } while (0)

typedef struct found {
    int count;
    bool go_on;
    char name[64];
    float first;
} found;

FIXTURE_FUNCTION bool note_constant(void *user, const char *original_fqn, AtenTensorHandle tensor)
{
    found *seen = user;
    seen->count++;
    snprintf(seen->name, sizeof seen->name, "%s", original_fqn);
    seen->first = floats(tensor)[0];
    return seen->go_on;
}

FIXTURE_FUNCTION void update_in_all_ways(const char *hide)
{
    aoticache_runner *runner = affine(hide);
    expect_weight(runner, 2);
    UPDATE(runner, "L__self___weight", 5, .inactive = false);
    expect_weight(runner, 5);
    UPDATE(runner, "layer.weight", 6, .by_fqn = true, .partial = true);
    expect_weight(runner, 6);
    UPDATE(runner, "L__self___weight", 7, .inactive = true);
    expect_weight(runner, 6);
    WORKS(aoticache_runner_swap_constants(runner, &error));
    expect_weight(runner, 7);
    WORKS(aoticache_runner_swap_constants(runner, &error));
    expect_weight(runner, 6);
    UPDATE(runner, "L__self___weight", 8, .from_cpu = true);
    expect_weight(runner, 8);
    aoticache_runner_unref(runner);
}

FIXTURE_FUNCTION void fold_when_told_and_when_needed(const char *hide, size_t num_models)
{
    aoticache_runner *runner = runner_with("tests/unit/kernels/affine.c", hide, num_models);
    cr_assert_eq(folds_of(runner), 1);
    cr_assert_eq(folds_of(runner), 1);
    WORKS(aoticache_runner_fold_constants(runner, false, NULL, &error));
    cr_assert_eq(folds_of(runner), 2);
    UPDATE(runner, "L__self___weight", 5, .inactive = false);
    expect_weight(runner, 5);
    cr_assert_eq(folds_of(runner), 3);
    UPDATE(runner, "L__self___weight", 6, .inactive = true);
    WORKS(aoticache_runner_fold_constants(runner, true, NULL, &error));
    cr_assert_eq(folds_of(runner), 4);
    WORKS(aoticache_runner_swap_constants(runner, &error));
    expect_weight(runner, 6);
    cr_assert_eq(folds_of(runner), 4);
    aoticache_runner_unref(runner);
}

FIXTURE_FUNCTION void extract_both_buffers(const char *hide)
{
    aoticache_runner *runner = affine(hide);
    found seen = {.go_on = true};
    UPDATE(runner, "L__self___weight", 7, .inactive = true);
    WORKS(aoticache_runner_extract_constants(runner, false, note_constant, &seen, &error));
    cr_assert_eq(seen.count, 1);
    cr_assert_str_eq(seen.name, "layer.weight");
    cr_assert_eq(seen.first, 2.0f);
    WORKS(aoticache_runner_extract_constants(runner, true, note_constant, &seen, &error));
    cr_assert_eq(seen.count, 2);
    cr_assert_eq(seen.first, 7.0f);
    expect_weight(runner, 2);
    aoticache_runner_unref(runner);
}

#endif
