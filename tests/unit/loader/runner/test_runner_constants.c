/*
 * The constants of a runner: listing, new values in all their kinds, folding, swapping, freeing, listing values,
 * blobs. test_runner_constants_old.c is about the libraries that older versions of PyTorch made.
 */
#include "constants_fixture.h"
#include "loader/runner/constants.h"
#include "loader/runner/create.h"

TestSuite(runner_constants, .init = fixture_setup, .fini = fixture_teardown);

/* ---- listing constants ---- */

Test(runner_constants, are_described)
{
    aoticache_runner *runner = affine(NULL);
    aoticache_constant constant = {0};
    cr_assert_eq(aoticache_runner_get_info(runner)->num_constants, 2);
    WORKS(aoticache_runner_read_constant(runner, 0, &constant, &error));
    cr_assert_str_eq(constant.name, "L__self___weight");
    cr_assert_str_eq(constant.original_fqn, "layer.weight");
    cr_assert_eq(constant.dtype, AOTICACHE_DTYPE_FLOAT32);
    cr_assert_eq(constant.type, AOTICACHE_CONSTANT_PARAMETER);
    cr_assert(constant.has_bytes && constant.bytes == 12 && !constant.from_folded);
    WORKS(aoticache_runner_read_constant(runner, 1, &constant, &error));
    cr_assert(constant.from_folded && constant.type == AOTICACHE_CONSTANT_FOLDED);
    cr_assert_str_eq(constant.original_fqn, "");
    FAILS(aoticache_runner_read_constant(runner, 2, &constant, &error), AOTICACHE_INVALID,
          "2 constants; there is no constant 2");
    aoticache_runner_unref(runner);
}

Test(runner_constants, call_spec_is_given_or_missing)
{
    const char *in = NULL, *out = NULL;
    aoticache_runner *runner = affine(NULL);
    WORKS(aoticache_runner_call_spec(runner, &in, &out, &error));
    cr_assert_str_eq(in, "in");
    cr_assert_str_eq(out, "");
    aoticache_runner_unref(runner);
    aoticache_library *library = fixture_load(fixture_kernel("bare.so", ""));
    cr_assert_eq(aoticache_runner_create(library, NULL, &runner, NULL), AOTICACHE_OK);
    FAILS(aoticache_runner_call_spec(runner, &in, &out, &error), AOTICACHE_UNSUPPORTED,
          "AOTInductorModelContainerGetCallSpec");
    cr_assert_eq(aoticache_runner_get_info(runner)->num_constants, 0);
    aoticache_runner_unref(runner);
    aoticache_library_unref(library);
}

/* ---- new values ---- */

Test(runner_constants, update_reaches_runs)
{
    update_in_all_ways(NULL);
}

Test(runner_constants, update_refuses_what_is_wrong_before_anything_changes)
{
    aoticache_runner *runner = affine(NULL);
    REFUSED(runner, "L__self__weight", AOTICACHE_INVALID, "did you mean \"L__self___weight\"?", .partial = true);
    REFUSED(runner, "something_else", AOTICACHE_INVALID, "no constant \"something_else\" among its 2", .partial = true);
    REFUSED(runner, "layer.weight", AOTICACHE_INVALID, "no constant \"layer.weight\"", .partial = true);
    REFUSED(runner, "doubled", AOTICACHE_INVALID, "is computed by folding", .partial = true);
    REFUSED(runner, "", AOTICACHE_INVALID, "no constant \"\"", .by_fqn = true);
    REFUSED(runner, "L__self___weight", AOTICACHE_INVALID, "exclude each other", .user_managed = true,
            .from_cpu = true);
    float data[3] = {9, 9, 9};
    AtenTensorHandle tensor = vector_of(data, 3);
    AOTInductorConstantMapEntry pairs[] = {{"L__self___weight", tensor}, {"L__self___weight", tensor}};
    FAILS(aoticache_runner_update_constants(runner, NULL, pairs, 2, &error), AOTICACHE_INVALID, "is given twice");
    pairs[1] = (AOTInductorConstantMapEntry){"L__self___weight", NULL};
    FAILS(aoticache_runner_update_constants(runner, NULL, pairs, 2, &error), AOTICACHE_INVALID,
          "pair 1 of 2 for library kernel has no tensor");
    pairs[0].name = NULL;
    FAILS(aoticache_runner_update_constants(runner, NULL, pairs, 1, &error), AOTICACHE_INVALID, "has no name");
    FAILS(aoticache_runner_update_constants(runner, NULL, NULL, 1, &error), AOTICACHE_INVALID,
          "aoticache_runner_update_constants: pairs is NULL");
    aoticache_update_options options = {.size = sizeof options + 1};
    FAILS(aoticache_runner_update_constants(runner, &options, pairs, 1, &error), AOTICACHE_INVALID,
          "aoticache_update_options.size");
    aoticache_tensor_free(tensor);
    float large[64] = {0};
    pairs[0] = (AOTInductorConstantMapEntry){"L__self___weight", vector_of(large, 17)};
    FAILS(aoticache_runner_update_constants(runner, NULL, pairs, 1, &error), AOTICACHE_INVALID,
          "\"L__self___weight\" of library kernel has sizes [3]; the tensor for it has [17]");
    aoticache_tensor_free(pairs[0].handle);
    cr_assert_eq(
        aoticache_tensor_from_blob(large, AOTICACHE_DTYPE_INT32, 1, (int64_t[]){3}, NULL, &pairs[0].handle, NULL),
        AOTICACHE_OK);
    FAILS(aoticache_runner_update_constants(runner, NULL, pairs, 1, &error), AOTICACHE_INVALID,
          "\"L__self___weight\" of library kernel is float32, not int32");
    aoticache_tensor_free(pairs[0].handle);
    expect_weight(runner, 2);
    aoticache_runner_unref(runner);
}

Test(runner_constants, update_in_full_needs_all_in_the_librarys_words)
{
    aoticache_runner *runner = affine(NULL);
    FAILS(aoticache_runner_update_constants(runner, NULL, NULL, 0, &error), AOTICACHE_RUN_FAILED,
          "library kernel: Cannot find constants L__self___weight");
    aoticache_update_options options = AOTICACHE_UPDATE_OPTIONS_INIT;
    options.partial = true;
    WORKS(aoticache_runner_update_constants(runner, &options, NULL, 0, &error));
    expect_weight(runner, 2);
    aoticache_runner_unref(runner);
}

Test(runner_constants, user_managed_ones_are_not_copied)
{
    aoticache_runner *runner = affine(NULL);
    float data[3] = {4, 4, 4};
    AOTInductorConstantMapEntry pair = {"L__self___weight", vector_of(data, 3)};
    aoticache_update_options options = {.size = sizeof options, .user_managed = true};
    WORKS(aoticache_runner_update_constants(runner, &options, &pair, 1, &error));
    expect_weight(runner, 4);
    data[0] = 5;
    aoticache_run_options run_options = AOTICACHE_RUN_OPTIONS_INIT;
    WORKS(aoticache_runner_fold_constants(runner, false, &run_options, &error));
    expect_weight(runner, 5);
    aoticache_runner_unref(runner);
    runner = affine(fixture_version_script_26(""));
    FAILS(aoticache_runner_update_constants(runner, &options, &pair, 1, &error), AOTICACHE_UNSUPPORTED,
          "UpdateUserManagedConstantBuffer");
    aoticache_runner_unref(runner);
    runner = affine(fixture_version_script_26("AOTInductorModelContainerUpdateUserManagedConstantBuffer;"));
    WORKS(aoticache_runner_update_constants(runner, &options, &pair, 1, &error));
    expect_weight(runner, 5);
    aoticache_runner_unref(runner);
    aoticache_tensor_free(pair.handle);
}

Test(runner_constants, several_are_updated_by_the_models_names)
{
    aoticache_runner *runner = runner_with("tests/hosts/kernels/affine.c", NULL, 1);
    float weight[48], vector[12];
    for (int i = 0; i < 48; i++)
        weight[i] = 1;
    for (int i = 0; i < 12; i++)
        vector[i] = 10;
    AtenTensorHandle tensors[2] = {NULL, vector_of(vector, 12)}, input = NULL, outputs[2];
    cr_assert_eq(
        aoticache_tensor_from_blob(weight, AOTICACHE_DTYPE_FLOAT32, 2, (int64_t[]){12, 4}, NULL, &tensors[0], NULL),
        AOTICACHE_OK);
    AOTInductorConstantMapEntry pairs[] = {{"scale", tensors[1]}, {"fc.bias", tensors[1]}, {"fc.weight", tensors[0]}};
    aoticache_update_options options = {.size = sizeof options, .by_fqn = true};
    WORKS(aoticache_runner_update_constants(runner, &options, pairs, 3, &error));
    cr_assert_eq(aoticache_tensor_from_blob(weight, AOTICACHE_DTYPE_FLOAT32, 2, (int64_t[]){2, 4}, NULL, &input, NULL),
                 AOTICACHE_OK);
    WORKS(aoticache_runner_run(runner, &input, 1, outputs, 2, &error));
    cr_assert_eq(floats(outputs[0])[3], (4.0f + 10) * 10 + 9); /* the traced constant kept its value */
    pairs[1].name = "fc.bais";
    FAILS(aoticache_runner_update_constants(runner, &options, pairs, 3, &error), AOTICACHE_INVALID,
          "did you mean \"fc.bias\"?");
    for (int i = 0; i < 2; i++) {
        aoticache_tensor_free(outputs[i]);
        aoticache_tensor_free(tensors[i]);
    }
    aoticache_tensor_free(input);
    aoticache_runner_unref(runner);
}

/* ---- folding ---- */

Test(runner_constants, are_folded_when_told_and_when_needed)
{
    fold_when_told_and_when_needed(NULL, 1);
}

Test(runner_constants, are_folded_during_runs_with_several_models)
{
    fold_when_told_and_when_needed(NULL, 3);
}

Test(runner_constants, folding_an_empty_buffer_is_refused_and_changes_nothing)
{
    for (size_t num_models = 1; num_models <= 2; num_models++) {
        aoticache_runner *runner = runner_with("tests/unit/kernels/affine.c", NULL, num_models);
        FAILS(aoticache_runner_fold_constants(runner, true, NULL, &error), AOTICACHE_RUN_FAILED,
              "\"L__self___weight\" of library kernel has no value");
        expect_weight(runner, 2);
        UPDATE(runner, "L__self___weight", 5, .inactive = true);
        WORKS(aoticache_runner_swap_constants(runner, &error));
        expect_weight(runner, 5);
        aoticache_runner_unref(runner);
    }
}

/* ---- whole buffers ---- */

static void runs_are_refused(aoticache_runner *runner)
{
    float result, folds;
    FAILS(run_ones(runner, &result, &folds, &error), AOTICACHE_RUN_FAILED,
          "constant \"L__self___weight\" of library kernel has no value");
}

Test(runner_constants, runs_without_values_are_refused)
{
    for (size_t num_models = 1; num_models <= 2; num_models++) {
        aoticache_runner *runner = runner_with("tests/unit/kernels/affine.c", NULL, num_models);
        expect_weight(runner, 2);
        WORKS(aoticache_runner_swap_constants(runner, &error)); /* the inactive buffer was never filled */
        runs_are_refused(runner);
        WORKS(aoticache_runner_swap_constants(runner, &error));
        expect_weight(runner, 2);
        WORKS(aoticache_runner_swap_constants(runner, &error));
        UPDATE(runner, "L__self___weight", 4, .inactive = false);
        expect_weight(runner, 4);
        aoticache_runner_unref(runner);
    }
}

Test(runner_constants, freed_buffer_has_no_values)
{
    found seen = {.go_on = true};
    aoticache_runner *runner = affine(NULL);
    UPDATE(runner, "L__self___weight", 5, .inactive = true);
    WORKS(aoticache_runner_swap_constants(runner, &error));
    WORKS(aoticache_runner_free_inactive_constants(runner, &error));
    WORKS(aoticache_runner_extract_constants(runner, true, note_constant, &seen, &error));
    cr_assert_eq(seen.count, 0);
    expect_weight(runner, 5);
    WORKS(aoticache_runner_swap_constants(runner, &error));
    runs_are_refused(runner);
    WORKS(aoticache_runner_swap_constants(runner, &error));
    expect_weight(runner, 5);
    UPDATE(runner, "L__self___weight", 6, .inactive = true);
    WORKS(aoticache_runner_swap_constants(runner, &error));
    expect_weight(runner, 6);
    aoticache_runner_unref(runner);
    runner = affine(fixture_version_script_26(""));
    FAILS(aoticache_runner_free_inactive_constants(runner, &error), AOTICACHE_UNSUPPORTED,
          "AOTInductorModelContainerFreeInactiveConstantBuffer");
    aoticache_runner_unref(runner);
}

Test(runner_constants, are_extracted)
{
    extract_both_buffers(NULL);
}

Test(runner_constants, extracting_stops_when_told_or_is_unsupported)
{
    found seen = {.go_on = false};
    aoticache_runner *runner = runner_with("tests/hosts/kernels/affine.c", NULL, 1);
    WORKS(aoticache_runner_extract_constants(runner, false, note_constant, &seen, &error));
    cr_assert_eq(seen.count, 1);
    aoticache_runner_unref(runner);
    runner = affine(fixture_version_script_26(""));
    FAILS(aoticache_runner_extract_constants(runner, false, note_constant, &seen, &error), AOTICACHE_UNSUPPORTED,
          "AOTInductorModelContainerExtractConstantsMap(Entries)");
    FAILS(aoticache_runner_extract_constants(runner, false, NULL, NULL, &error), AOTICACHE_INVALID, "callback");
    aoticache_runner_unref(runner);
}

/*
 * Runs tests/unit/kernels/linear.c on {1, 1, 1}: y is the sum of the first row of weight, plus bias, plus the traced
 * constant.
 */
static aoticache_status run_linear(aoticache_runner *runner, float *ret_y, aoticache_error *ret_error)
{
    float ones[3] = {1, 1, 1};
    AtenTensorHandle input = vector_of(ones, 3), outputs[3];
    aoticache_status status = aoticache_runner_run(runner, &input, 1, outputs, 3, ret_error);
    aoticache_tensor_free(input);
    if (status != AOTICACHE_OK)
        return status;
    *ret_y = floats(outputs[0])[0];
    for (int i = 0; i < 3; i++)
        aoticache_tensor_free(outputs[i]);
    return AOTICACHE_OK;
}

static aoticache_runner *linear(const char *flags, size_t num_models)
{
    aoticache_runner *runner = NULL;
    aoticache_runner_options options = AOTICACHE_RUNNER_OPTIONS_INIT;
    options.num_models = num_models;
    int fd = fixture_runtime_kernel("tests/unit/kernels/linear.c", "linear.so", flags, NULL);
    aoticache_library *library = fixture_load(fd);
    close(fd);
    WORKS(aoticache_runner_create(library, &options, &runner, &error));
    aoticache_library_unref(library);
    return runner;
}

Test(runner_constants, blob_gives_all_at_once)
{
    aoticache_runner *runner = linear("-DWEIGHTS=HOST -DWITH_DATA=0", 1);
    uint64_t bytes = 0;
    float y = 0, blob[48] = {2, 2, 2, 2, 2, 2, [16] = 1, 1, [32] = 100};
    FAILS(run_linear(runner, &y, &error), AOTICACHE_RUN_FAILED, "constant \"weight\" of library kernel has no value");
    WORKS(aoticache_runner_constants_blob_bytes(runner, &bytes, &error));
    cr_assert_eq(bytes, sizeof blob);
    FAILS(aoticache_runner_update_constants_from_blob(runner, blob, 191, &error), AOTICACHE_INVALID,
          "the blob has 191 bytes; library kernel requires 192");
    FAILS(aoticache_runner_update_constants_from_blob(runner, NULL, 192, &error), AOTICACHE_INVALID,
          "aoticache_runner_update_constants_from_blob: blob is NULL");
    WORKS(aoticache_runner_update_constants_from_blob(runner, blob, sizeof blob, &error));
    WORKS(run_linear(runner, &y, &error));
    cr_assert_eq(y, 107);
    aoticache_runner_unref(runner);
}

Test(runner_constants, blob_is_unsupported_or_refused_in_the_librarys_words)
{
    uint64_t bytes = 0;
    aoticache_runner *runner = affine(NULL);
    FAILS(aoticache_runner_constants_blob_bytes(runner, &bytes, &error), AOTICACHE_RUN_FAILED,
          "only available for mmap'd weights");
    aoticache_runner_unref(runner);
    runner = affine(fixture_version_script_26(""));
    FAILS(aoticache_runner_constants_blob_bytes(runner, &bytes, &error), AOTICACHE_UNSUPPORTED,
          "AOTInductorModelContainerGetConstantsBlobSize");
    FAILS(aoticache_runner_update_constants_from_blob(runner, "blob", 4, &error), AOTICACHE_UNSUPPORTED,
          "AOTInductorModelUpdateConstantsFromBlob");
    aoticache_runner_unref(runner);
}

Test(runner_constants, folding_that_fails_says_why_and_can_be_repeated)
{
    for (size_t num_models = 1; num_models <= 2; num_models++) {
        float y = 0, data[6] = {666};
        aoticache_runner *runner = linear("", num_models);
        AOTInductorConstantMapEntry pair = {"weight", NULL};
        cr_assert_eq(
            aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, 2, (int64_t[]){2, 3}, NULL, &pair.handle, NULL),
            AOTICACHE_OK);
        aoticache_update_options options = {.size = sizeof options, .partial = true, .inactive = true};
        WORKS(aoticache_runner_update_constants(runner, &options, &pair, 1, &error));
        FAILS(aoticache_runner_fold_constants(runner, true, NULL, &error), AOTICACHE_RUN_FAILED, "fails on purpose");
        WORKS(run_linear(runner, &y, &error));
        cr_assert_eq(y, 116);
        options.inactive = false;
        WORKS(aoticache_runner_update_constants(runner, &options, &pair, 1, &error));
        for (int i = 0; i < 3; i++) /* more often than there are models */
            FAILS(run_linear(runner, &y, &error), AOTICACHE_RUN_FAILED, "fails on purpose");
        FAILS(aoticache_runner_fold_constants(runner, false, NULL, &error), AOTICACHE_RUN_FAILED, "fails on purpose");
        data[0] = 1;
        WORKS(aoticache_runner_update_constants(runner, &options, &pair, 1, &error));
        WORKS(run_linear(runner, &y, &error));
        cr_assert_eq(y, 111);
        aoticache_tensor_free(pair.handle);
        aoticache_runner_unref(runner);
    }
}

/* ---- given tensors and the library's constants ---- */

/* Updates the constants of tests/unit/kernels/linear.c: weight of 2 by 3, and vectors. */
static aoticache_status update_linear(aoticache_runner *runner, const char *name, const int64_t *sizes,
                                      const int64_t *strides, float value, aoticache_update_options options,
                                      aoticache_error *ret_error)
{
    float data[64];
    int64_t ndim = strcmp(name, "weight") == 0 ? 2 : 1;
    AOTInductorConstantMapEntry pair = {name, NULL};
    for (int i = 0; i < 64; i++)
        data[i] = value;
    options.size = sizeof options;
    WORKS(aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, ndim, sizes, strides, &pair.handle, &error));
    aoticache_status status = aoticache_runner_update_constants(runner, &options, &pair, 1, ret_error);
    aoticache_tensor_free(pair.handle);
    return status;
}

static const int64_t weight_sizes[] = {2, 3}, two_elements[] = {2}, one_element[] = {1};
#define PART(...) ((aoticache_update_options){.partial = true, __VA_ARGS__})

Test(runner_constants, of_other_sizes_or_strides_are_refused)
{
    float y = 0;
    static const struct {
        int64_t sizes[2], strides[2];
        const char *words;
    } misfits[] = {
        {{3, 2}, {2, 1}, "has sizes [2, 3]; the tensor for it has [3, 2]"},
        {{0, 3}, {3, 1}, "has sizes [2, 3]; the tensor for it has [0, 3]"},
        {{1, 3}, {3, 1}, "has sizes [2, 3]; the tensor for it has [1, 3]"},
        {{2, 3}, {1, 2}, "has strides [3, 1]; the tensor for it has [1, 2]"},
        {{2, 3}, {0, 0}, "has strides [3, 1]; the tensor for it has [0, 0]"},
    };
    aoticache_runner *runner = linear("", 1);
    for (size_t i = 0; i < sizeof misfits / sizeof misfits[0]; i++)
        for (int managed = 0; managed < 2; managed++)
            FAILS(update_linear(runner, "weight", misfits[i].sizes, misfits[i].strides, 9,
                                PART(.user_managed = managed != 0), &error),
                  AOTICACHE_INVALID, misfits[i].words);
    /* The stride of a dimension with one element does not matter. */
    WORKS(update_linear(runner, "_tensor_constant0", one_element, (int64_t[]){7}, 200, PART(), &error));
    WORKS(run_linear(runner, &y, &error));
    cr_assert_eq(y, 6 + 10 + 200);
    aoticache_runner_unref(runner);
}

Test(runner_constants, several_updates_fill_a_buffer_that_was_freed)
{
    float y = 0;
    found seen = {.go_on = true};
    for (int folded = 0; folded < 2; folded++) {
        aoticache_runner *runner = linear("", 1);
        WORKS(update_linear(runner, "weight", weight_sizes, NULL, 2, PART(.inactive = true), &error));
        if (folded)
            WORKS(aoticache_runner_fold_constants(runner, true, NULL, &error));
        WORKS(aoticache_runner_free_inactive_constants(runner, &error));
        WORKS(aoticache_runner_swap_constants(runner, &error));
        FAILS(run_linear(runner, &y, &error), AOTICACHE_RUN_FAILED, "\"weight\" of library kernel has no value");
        WORKS(update_linear(runner, "weight", weight_sizes, NULL, 2, PART(), &error));
        FAILS(run_linear(runner, &y, &error), AOTICACHE_RUN_FAILED, "\"bias\" of library kernel has no value");
        WORKS(update_linear(runner, "bias", two_elements, NULL, 1, PART(), &error));
        seen.count = 0;
        WORKS(aoticache_runner_extract_constants(runner, false, note_constant, &seen, &error));
        cr_assert_eq(seen.count, 2);
        WORKS(update_linear(runner, "_tensor_constant0", one_element, NULL, 100, PART(), &error));
        WORKS(run_linear(runner, &y, &error));
        cr_assert_eq(y, 107);
        aoticache_runner_unref(runner);
    }
}

Test(runner_constants, full_update_leaves_missing_what_it_does_not_name)
{
    float y = 0;
    aoticache_runner *runner = linear("", 1);
    WORKS(aoticache_runner_swap_constants(runner, &error));
    WORKS(
        update_linear(runner, "weight", weight_sizes, NULL, 2, (aoticache_update_options){.inactive = false}, &error));
    FAILS(run_linear(runner, &y, &error), AOTICACHE_RUN_FAILED, "\"bias\" of library kernel has no value");
    /* The inactive buffer is complete: the active buffer has no value to copy, so it keeps its own. */
    WORKS(update_linear(runner, "weight", weight_sizes, NULL, 3, PART(.inactive = true), &error));
    FAILS(aoticache_runner_fold_constants(runner, true, NULL, &error), AOTICACHE_RUN_FAILED,
          "constant \"_tensor_constant0\" of library kernel has no value in the active buffer");
    WORKS(aoticache_runner_swap_constants(runner, &error));
    WORKS(run_linear(runner, &y, &error));
    cr_assert_eq(y, 9 + 10 + 100);
    aoticache_runner_unref(runner);
}

Test(runner_constants, update_of_the_inactive_buffer_needs_what_no_buffer_has)
{
    aoticache_runner *runner = linear("-DWEIGHTS=HOST -DWITH_DATA=0", 1);
    FAILS(update_linear(runner, "weight", weight_sizes, NULL, 2, PART(.inactive = true), &error), AOTICACHE_INVALID,
          "constant \"bias\" of library kernel is not in the update and has no value in either buffer");
    aoticache_runner_unref(runner);
}

Test(runner_constants, user_managed_update_shares_nothing_between_buffers)
{
    float y = 0, weight[6] = {2, 2, 2, 2, 2, 2};
    aoticache_runner *runner = linear("", 1);
    AOTInductorConstantMapEntry pair = {"weight", NULL};
    WORKS(aoticache_tensor_from_blob(weight, AOTICACHE_DTYPE_FLOAT32, 2, weight_sizes, NULL, &pair.handle, &error));
    aoticache_update_options options = {
        .size = sizeof options, .partial = true, .inactive = true, .user_managed = true};
    WORKS(aoticache_runner_update_constants(runner, &options, &pair, 1, &error));
    WORKS(update_linear(runner, "bias", two_elements, NULL, 50, PART(), &error));
    WORKS(aoticache_runner_swap_constants(runner, &error));
    WORKS(run_linear(runner, &y, &error));
    cr_assert_eq(y, 6 + 10 + 100);
    aoticache_tensor_free(pair.handle);
    aoticache_runner_unref(runner);
}

Test(runner_constants, blob_may_be_given_again)
{
    float y = 0, blob[48] = {2, 2, 2, 2, 2, 2, [16] = 1, 1, [32] = 100};
    aoticache_runner *runner = linear("-DWEIGHTS=HOST -DWITH_DATA=0", 1);
    for (int round = 0; round < 4; round++) {
        if (round == 2) {
            WORKS(aoticache_runner_free_inactive_constants(runner, &error));
            WORKS(aoticache_runner_swap_constants(runner, &error));
        }
        blob[32] = (float)(100 * (round + 1));
        WORKS(aoticache_runner_update_constants_from_blob(runner, blob, sizeof blob, &error));
        blob[32] = 0; /* it was copied */
        WORKS(run_linear(runner, &y, &error));
        cr_assert_eq(y, (float)(7 + 100 * (round + 1)));
    }
    aoticache_runner_unref(runner);
}

Test(runner_constants, blob_after_values_by_name_is_refused)
{
    float y = 0, blob[48] = {0};
    aoticache_runner *runner = linear("-DWEIGHTS=HOST -DWITH_DATA=0", 1);
    WORKS(update_linear(runner, "weight", weight_sizes, NULL, 2, PART(), &error));
    FAILS(aoticache_runner_update_constants_from_blob(runner, blob, sizeof blob, &error), AOTICACHE_INVALID,
          "had a value before the blob was set");
    WORKS(update_linear(runner, "bias", two_elements, NULL, 1, PART(), &error));
    WORKS(update_linear(runner, "_tensor_constant0", one_element, NULL, 1, PART(), &error));
    WORKS(run_linear(runner, &y, &error));
    cr_assert_eq(y, 8);
    aoticache_runner_unref(runner);
}
