/*
 * The container of kernel libraries written in C: two buffers, updates, folding, swaps, the pool of models, and models
 * without a container, on tests/unit/kernels/linear.c. Where weights may be stored: test_weights.c.
 */
#include <pthread.h>

#include "kernel_fixture.h"

typedef AOTInductorModelContainerHandle container_handle;

static const int64_t six[] = {2, 3}, two[] = {2}, three[] = {3}, one[] = {1};
static float x[3] = {1, 1, 1};

static container_handle load_and_create(size_t num_models)
{
    kernel_compile("linear.c", "");
    kernel_load();
    kernel_remove();
    return kernel_create(num_models);
}

typedef struct run_result {
    float y[2], total, model, folds, most;
} run_result;

static AOTIRuntimeError run_with(container_handle container, float *data, bool alone, run_result *ret_result)
{
    AtenTensorHandle input = shim_wrap(data, AOTICACHE_DTYPE_FLOAT32, 1, three, NULL), outputs[3] = {NULL};
    AOTIRuntimeError status =
        alone ? KERNEL(AOTInductorModelContainerRunSingleThreaded)(container, &input, 1, outputs, 3, NULL, NULL)
              : KERNEL(AOTInductorModelContainerRun)(container, &input, 1, outputs, 3, NULL, NULL);
    if (status != 0)
        return status;
    memcpy(ret_result->y, shim_data(outputs[0]), sizeof ret_result->y);
    memcpy(&ret_result->total, shim_data(outputs[1]), sizeof(float));
    memcpy(&ret_result->model, shim_data(outputs[2]), 3 * sizeof(float));
    for (int i = 0; i < 3; i++)
        shim_delete(outputs[i]);
    return 0;
}

#define RUNS_TO(container, y0, y1, its_total)                                                                \
    do {                                                                                                     \
        run_result result_;                                                                                  \
        KERNEL_WORKS(run_with(container, x, false, &result_));                                               \
        cr_assert(result_.y[0] == (y0) && result_.y[1] == (y1) && result_.total == (its_total), "%g %g, %g", \
                  (double)result_.y[0], (double)result_.y[1], (double)result_.total);                        \
    } while (0)

static AtenTensorHandle tensor_of(float value, int64_t ndim, const int64_t *sizes)
{
    AtenTensorHandle tensor = NULL;
    const int64_t strides[] = {ndim == 2 ? sizes[1] : 1, 1};
    cr_assert_eq(SHIM(aoti_torch_empty_strided)(ndim, sizes, strides, AOTICACHE_DTYPE_FLOAT32, 0, -1, &tensor), 0);
    for (int64_t i = 0; i < (ndim == 2 ? sizes[0] * sizes[1] : sizes[0]); i++)
        ((float *)shim_data(tensor))[i] = value;
    return tensor;
}

#define UPDATE KERNEL(AOTInductorModelContainerUpdateConstantBufferPairs)
#define UPDATE_USER_MANAGED KERNEL(AOTInductorModelContainerUpdateUserManagedConstantBufferPairs)
#define FOLD KERNEL(AOTInductorModelContainerRunConstantFolding)

static void update_weight(container_handle container, float value, bool use_inactive)
{
    AOTInductorConstantMapEntry pair = {"weight", tensor_of(value, 2, six)};
    KERNEL_WORKS(UPDATE(container, &pair, 1, use_inactive, false));
    shim_delete(pair.handle);
}

Test(container, updates_of_the_active_buffer_are_folded_before_the_next_run)
{
    container_handle container = load_and_create(2);
    RUNS_TO(container, 116, 135, 21);
    update_weight(container, 2, false);
    RUNS_TO(container, 116, 126, 12);
    KERNEL_WORKS(FOLD(container, false, NULL, NULL));
    run_result result;
    KERNEL_WORKS(run_with(container, x, false, &result));
    cr_assert_eq(result.folds, 3, "before each of the first runs, and when asked to");
    KERNEL(AOTInductorModelContainerDelete)(container);
}

Test(container, the_inactive_buffer_serves_after_a_swap)
{
    container_handle container = load_and_create(1);
    RUNS_TO(container, 116, 135, 21);
    update_weight(container, 0, true);
    RUNS_TO(container, 116, 135, 21);
    KERNEL_WORKS(FOLD(container, true, NULL, NULL));
    RUNS_TO(container, 116, 135, 21);
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerSwapConstantBuffer)(container));
    RUNS_TO(container, 110, 120, 0);
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerSwapConstantBuffer)(container));
    RUNS_TO(container, 116, 135, 21);
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerFreeInactiveConstantBuffer)(container));
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerSwapConstantBuffer)(container));
    run_result result;
    KERNEL_FAILS(run_with(container, x, false, &result), "ConstantState::NONE");
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerSwapConstantBuffer)(container));
    RUNS_TO(container, 116, 135, 21);
    KERNEL(AOTInductorModelContainerDelete)(container);
}

Test(container, a_swapped_buffer_that_lacks_constants_fails_the_run)
{
    container_handle container = load_and_create(1);
    AOTInductorConstantMapEntry pair = {"bias", tensor_of(1, 1, two)};
    run_result result;
    KERNEL_WORKS(UPDATE(container, &pair, 1, true, false));
    KERNEL_FAILS(FOLD(container, true, NULL, NULL), "weight has no data");
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerSwapConstantBuffer)(container));
    KERNEL_FAILS(run_with(container, x, false, &result), "weight has no data");
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerSwapConstantBuffer)(container));
    RUNS_TO(container, 116, 135, 21);
    shim_delete(pair.handle);
    KERNEL(AOTInductorModelContainerDelete)(container);
}

Test(container, refused_updates_change_nothing)
{
    container_handle container = load_and_create(1);
    float data[6] = {0};
    AtenTensorHandle good = tensor_of(7, 2, six), bias = tensor_of(7, 1, two), short_bias = tensor_of(7, 1, three);
    AtenTensorHandle whole = shim_wrap(data, AOTICACHE_DTYPE_INT32, 1, two, NULL);
    RUNS_TO(container, 116, 135, 21);
    for (int inactive = 0; inactive < 2; inactive++) {
        AOTInductorConstantMapEntry pairs[] = {{"weight", good}, {"bias", short_bias}};
        KERNEL_FAILS(UPDATE(container, pairs, 2, inactive, false), "'bias' has size 3 in dimension 0 but expected 2");
        pairs[1].handle = whole;
        KERNEL_FAILS(UPDATE(container, pairs, 2, inactive, false), "dtype 3 (int32) but expected dtype 6 (float32)");
        pairs[1].handle = good;
        KERNEL_FAILS(UPDATE(container, pairs, 2, inactive, false), "'bias' has 2 dimensions but expected 1");
        pairs[1].handle = NULL;
        KERNEL_FAILS(UPDATE(container, pairs, 2, inactive, false), "'bias': its tensor is NULL");
        pairs[1] = (AOTInductorConstantMapEntry){"unknown", bias};
        KERNEL_FAILS(UPDATE(container, pairs, 2, inactive, false), "unknown constant 'unknown'; the kernel has 4");
        pairs[1].name = NULL;
        KERNEL_FAILS(UPDATE(container, pairs, 2, inactive, false), "pair 1 of 2 has no name");
        KERNEL_FAILS(UPDATE(container, NULL, 2, inactive, false), "2 pairs, but no list of them");
        KERNEL_FAILS(UPDATE(NULL, pairs, 1, inactive, false), "the container is NULL");
        pairs[0] = (AOTInductorConstantMapEntry){"bias", bias};
        KERNEL_FAILS(UPDATE(container, pairs, 1, inactive, true), "Cannot find constants weight in constants_map!");
    }
    RUNS_TO(container, 116, 135, 21);
    const AOTInductorConstantMapEntry *entries;
    size_t count = 1;
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerExtractConstantsMapEntries)(container, &entries, &count, true));
    cr_assert_eq(count, 0, "the other buffer is as empty as before");
    AtenTensorHandle all[] = {good, bias, short_bias, whole};
    for (int i = 0; i < 4; i++)
        shim_delete(all[i]);
    KERNEL(AOTInductorModelContainerDelete)(container);
}

Test(container, buffers_and_traced_tensors_may_be_missing_and_come_from_the_active_buffer)
{
    container_handle container = load_and_create(1);
    AOTInductorConstantMapEntry pairs[] = {{"weight", tensor_of(1, 2, six)}, {"total", NULL}};
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerUpdateInactiveConstantBufferPairs)(container, pairs, 2));
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerSwapConstantBuffer)(container));
    RUNS_TO(container, 113, 123, 6);
    KERNEL_WORKS(UPDATE(container, pairs, 2, false, true));
    RUNS_TO(container, 113, 123, 6);
    /* The values are copied: later changes of the source buffer have no effect. */
    AOTInductorConstantMapEntry bias = {"bias", tensor_of(0, 1, two)};
    KERNEL_WORKS(UPDATE(container, &bias, 1, true, false));
    RUNS_TO(container, 113, 123, 6);
    shim_delete(pairs[0].handle);
    shim_delete(bias.handle);
    KERNEL(AOTInductorModelContainerDelete)(container);
}

Test(container, strides_and_offsets_of_the_users_tensor_are_kept)
{
    container_handle container = load_and_create(1);
    float data[40];
    for (int i = 0; i < 40; i++)
        data[i] = 1000;
    const int64_t transposed[] = {1, 2}, wide[] = {20, 3};
    /* The columns of W, after two floats that are not W's: 2 + 6 floats fit unchanged into the slot of 64 bytes. */
    for (int i = 0; i < 6; i++)
        data[2 + i] = (float)(i % 2 == 0 ? 1 : 2);
    AOTInductorConstantMapEntry pair = {"weight", NULL};
    cr_assert_eq(SHIM(aoti_torch_create_tensor_from_blob)(data, 2, six, transposed, 2, 6, 0, -1, &pair.handle), 0);
    KERNEL_WORKS(UPDATE(container, &pair, 1, false, false));
    RUNS_TO(container, 113, 126, 9);
    shim_delete(pair.handle);
    const AOTInductorConstantMapEntry *entries;
    size_t count = 0;
    int64_t offset = 0, *strides;
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerExtractConstantsMapEntries)(container, &entries, &count, false));
    cr_assert_eq(count, 3);
    cr_assert_str_eq(entries[0].name, "layer.weight");
    SHIM(aoti_torch_get_strides)(entries[0].handle, &strides);
    SHIM(aoti_torch_get_storage_offset)(entries[0].handle, &offset);
    cr_assert(strides[0] == 1 && strides[1] == 2 && offset == 2);
    /* A tensor that spans more memory than the slot has is copied element by element. */
    for (int j = 0; j < 2; j++)
        for (int k = 0; k < 3; k++)
            data[j * 20 + k * 3] = (float)(j + 1);
    pair.handle = shim_wrap(data, AOTICACHE_DTYPE_FLOAT32, 2, six, wide);
    KERNEL_WORKS(UPDATE(container, &pair, 1, false, false));
    data[0] = 1000;
    RUNS_TO(container, 113, 126, 9);
    shim_delete(pair.handle);
    KERNEL(AOTInductorModelContainerDelete)(container);
}

Test(container, constants_can_be_exchanged_for_one_another)
{
    container_handle container = load_and_create(1);
    update_weight(container, 2, false);
    const AOTInductorConstantMapEntry *entries;
    size_t count;
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerExtractConstantsMapEntries)(container, &entries, &count, false));
    AOTInductorConstantMapEntry again = {"weight", entries[0].handle};
    KERNEL_WORKS(UPDATE(container, &again, 1, false, false));
    RUNS_TO(container, 116, 126, 12);
    /*
     * The container's own memory is copied even in a user-managed update: it is written to when its buffer is updated.
     */
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerExtractConstantsMapEntries)(container, &entries, &count, false));
    again.handle = entries[0].handle;
    KERNEL_WORKS(UPDATE_USER_MANAGED(container, &again, 1, true, false));
    update_weight(container, 5, false);
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerSwapConstantBuffer)(container));
    RUNS_TO(container, 116, 126, 12);
    KERNEL(AOTInductorModelContainerDelete)(container);
}

Test(container, user_managed_constants_are_used_in_place)
{
    container_handle container = load_and_create(1);
    AOTInductorConstantMapEntry pair = {"weight", tensor_of(1, 2, six)};
    float *data = shim_data(pair.handle);
    KERNEL_WORKS(UPDATE_USER_MANAGED(container, &pair, 1, false, false));
    RUNS_TO(container, 113, 123, 6);
    data[0] = 2;
    RUNS_TO(container, 114, 123, 6);
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerUpdateConstantBufferFromCpuPairs)(container, &pair, 1, false, false));
    data[0] = 3;
    RUNS_TO(container, 114, 123, 7);
    shim_delete(pair.handle);
    KERNEL(AOTInductorModelContainerDelete)(container);
}

Test(container, a_fold_that_fails_is_tried_again)
{
    container_handle container = load_and_create(1);
    run_result result;
    update_weight(container, 666, false);
    for (int i = 0; i < 2; i++) {
        KERNEL_FAILS(run_with(container, x, i == 1, &result), "the fold fails on purpose");
        cr_assert(SHIM(aoti_torch_grad_mode_is_enabled)());
    }
    KERNEL_FAILS(FOLD(container, false, NULL, NULL), "on purpose");
    update_weight(container, 1, false);
    KERNEL_WORKS(run_with(container, x, true, &result));
    cr_assert(result.total == 6 && result.folds == 4);
    KERNEL(AOTInductorModelContainerDelete)(container);
}

/* ---- the pool ---- */

static void *run_slow_path(void *container)
{
    float slow[3] = {-2, 1, 1};
    run_result result;
    cr_assert_eq(run_with(container, slow, false, &result), 0);
    return (void *)(uintptr_t)result.most;
}

Test(container, no_more_runs_at_once_than_models)
{
    for (size_t models = 1; models <= 3; models += 2) {
        container_handle container = load_and_create(models);
        pthread_t threads[6];
        void *most = NULL;
        for (int i = 0; i < 6; i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, run_slow_path, container), 0);
        for (int i = 0; i < 6; i++)
            pthread_join(threads[i], &most);
        cr_assert_eq((uintptr_t)most, models, "%zu at once with %zu models", (size_t)(uintptr_t)most, models);
        KERNEL(AOTInductorModelContainerDelete)(container);
    }
}

Test(container, runs_that_fail_give_their_model_back)
{
    container_handle container = load_and_create(1);
    float bad[3] = {-1, 1, 1};
    run_result result;
    for (int i = 0; i < 3; i++)
        KERNEL_FAILS(run_with(container, bad, false, &result), "on purpose");
    KERNEL_WORKS(run_with(container, x, false, &result));
    cr_assert_eq(result.model, 0);
    KERNEL(AOTInductorModelContainerDelete)(container);
}

Test(container, absurd_numbers_of_models_are_not_allocated)
{
    container_handle container = load_and_create(SIZE_MAX);
    RUNS_TO(container, 116, 135, 21);
    KERNEL(AOTInductorModelContainerDelete)(container);
}

/* ---- models without a container ---- */

Test(container, models_run_without_one)
{
    kernel_compile("linear.c", "");
    kernel_load();
    kernel_remove();
    AOTInductorModelHandle model = NULL;
    KERNEL_WORKS(KERNEL(AOTInductorModelCreateV2)(&model, NULL, 0));
    size_t count = 0;
    KERNEL_WORKS(KERNEL(AOTInductorModelGetNumOutputs)(model, &count));
    cr_assert_eq(count, 3);
    /* Given away twice: the first one is freed when the second replaces it. */
    for (int i = 0; i < 2; i++) {
        AOTInductorConstantMapEntry pair = {"weight", tensor_of(1, 2, six)};
        KERNEL_WORKS(KERNEL(AOTInductorModelUpdateConstantsMapV2)(model, &pair, 1));
        KERNEL_WORKS(KERNEL(AOTInductorModelUpdateConstantsMapV2)(model, &pair, 1));
    }
    AtenTensorHandle input = shim_wrap(x, AOTICACHE_DTYPE_FLOAT32, 1, three, NULL), outputs[3] = {NULL};
    KERNEL_WORKS(KERNEL(AOTInductorModelRun)(model, &input, outputs));
    cr_assert_eq(*(float *)shim_data(outputs[0]), 113);
    for (int i = 0; i < 3; i++)
        shim_delete(outputs[i]);
    KERNEL_FAILS(KERNEL(AOTInductorModelUpdateConstantsMapV2)(model, NULL, -1), "the number of pairs is -1");
    KERNEL_FAILS(KERNEL(AOTInductorModelRun)(NULL, &input, outputs), "the model is NULL");
    KERNEL_WORKS(KERNEL(AOTInductorModelDelete)(model));
    AOTInductorConstantMapEntry unknown = {"unknown", tensor_of(1, 1, one)};
    KERNEL_FAILS(KERNEL(AOTInductorModelCreateV2)(&model, &unknown, 1), "unknown constant 'unknown'");
    shim_delete(unknown.handle);
}

Test(container, models_run_on_descriptors)
{
    kernel_compile("linear.c", "");
    kernel_load();
    kernel_remove();
    AOTInductorModelHandle model = NULL;
    KERNEL_WORKS(KERNEL(AOTInductorModelCreateV2)(&model, NULL, 0));
    float y[2] = {0}, others[4];
    AOTInductorArrayRefTensor input = {.data = x, .numel = 3, .sizes = {3}, .strides = {1}, .ndim = 1, .dtype = 6};
    AOTInductorArrayRefTensor outputs[3] = {{.data = y}, {.data = others}, {.data = others}};
    __typeof__(&AOTInductorModelRunMinimalArrayrefInterfaceV2) run =
        KERNEL(AOTInductorModelRunMinimalArrayrefInterfaceV2);
    KERNEL_WORKS(run(model, 1, &input, 3, outputs));
    cr_assert(y[0] == 116 && y[1] == 135);
    KERNEL_FAILS(run(model, 2, &input, 3, outputs), "inputs vector size to be 1, but got 2");
    KERNEL_FAILS(run(model, 1, &input, 1, outputs), "outputs vector size to be 3, but got 1");
    KERNEL_FAILS(run(model, 1, NULL, 3, outputs), "outputs are NULL");
    KERNEL_WORKS(KERNEL(AOTInductorModelDelete)(model));
}
