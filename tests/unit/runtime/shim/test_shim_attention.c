/*
 * Attention and the LSTM layer of the shim: exact small cases and refusals. tests/python/shim/test_shim_attention.py
 * and test_shim_lstm.py compare with PyTorch.
 */
#include <math.h>

#include "runtime/shim/operators.h"
#include "tests/unit/fixtures/shim_fixture.h"

#define ATTEND SHIM(aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu)

enum { KEYS = 1300, WIDTH = 5 }; /* three tiles, the last one cut */

static AtenTensorHandle floats(float *values, int64_t ndim, const int64_t *sizes)
{
    return shim_wrap(values, AOTICACHE_DTYPE_FLOAT32, ndim, sizes, NULL);
}

Test(shim_attention, equal_scores_give_the_mean_of_the_values)
{
    static float query[2 * WIDTH], keys[KEYS * WIDTH], values[KEYS * WIDTH];
    const int64_t query_sizes[] = {1, 1, 2, WIDTH}, key_sizes[] = {1, 1, KEYS, WIDTH};
    for (int k = 0; k < KEYS; k++)
        for (int i = 0; i < WIDTH; i++)
            values[k * WIDTH + i] = (float)(k % 2 == 0 ? i : -i) + 1;
    AtenTensorHandle q = floats(query, 4, query_sizes), k = floats(keys, 4, key_sizes),
                     v = floats(values, 4, key_sizes);
    AtenTensorHandle out = NULL, logsumexp = NULL;
    cr_assert_eq(ATTEND(q, k, v, 0, 0, NULL, NULL, &out, &logsumexp), 0, "%s", shim_message());
    const float *seen = shim_data(out), *sums = shim_data(logsumexp);
    for (int i = 0; i < 2 * WIDTH; i++)
        cr_assert_float_eq(seen[i], 1, 1e-5, "element %d is %g", i, (double)seen[i]);
    cr_assert_float_eq(sums[0], logf(KEYS), 1e-5);
    shim_delete(out);
    shim_delete(logsumexp);
    /* Causal: the first query attends only to the first key, the second one to the first two. */
    cr_assert_eq(ATTEND(q, k, v, 0, 1, NULL, NULL, &out, &logsumexp), 0, "%s", shim_message());
    seen = shim_data(out);
    cr_assert_float_eq(seen[WIDTH - 1], WIDTH, 1e-6);
    cr_assert_float_eq(seen[2 * WIDTH - 1], 1, 1e-6);
    shim_delete(out);
    shim_delete(logsumexp);
    shim_delete(q);
    shim_delete(k);
    shim_delete(v);
}

Test(shim_attention, rows_without_a_key_are_zero_and_leave_no_nan)
{
    float query[2 * 2] = {1, 2, 3, 4}, keys[3 * 2] = {1, 1, 1, 1, 1, 1}, values[3 * 2] = {1, 2, 3, 4, 5, 6};
    float mask[2 * 3] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, 0, -INFINITY};
    const int64_t query_sizes[] = {1, 1, 2, 2}, key_sizes[] = {1, 1, 3, 2}, mask_sizes[] = {2, 3};
    AtenTensorHandle q = floats(query, 4, query_sizes), k = floats(keys, 4, key_sizes),
                     v = floats(values, 4, key_sizes);
    AtenTensorHandle m = floats(mask, 2, mask_sizes), out = NULL, logsumexp = NULL;
    const float wanted[] = {0, 0, 3, 4};
    cr_assert_eq(ATTEND(q, k, v, 0, 0, &m, NULL, &out, &logsumexp), 0, "%s", shim_message());
    cr_assert_eq(memcmp(shim_data(out), wanted, sizeof wanted), 0);
    shim_delete(out);
    shim_delete(logsumexp);
    out = logsumexp = NULL;
    SHIM_FAILS(ATTEND(q, k, k, 0.5, 0, NULL, NULL, &out, &logsumexp), "dropout is 0.5");
    SHIM_FAILS(ATTEND(m, k, k, 0, 0, NULL, NULL, &out, &logsumexp), "must have 4 dimensions; these have 2");
    SHIM_FAILS(ATTEND(q, k, v, 0, 0, NULL, NULL, NULL, &logsumexp), "ret_0 is NULL");
    cr_assert_null(out);
    shim_delete(q);
    shim_delete(k);
    shim_delete(v);
    shim_delete(m);
}

Test(shim_lstm, without_weights_the_cell_is_halved_at_each_step)
{
    float input[2 * 1 * 3] = {1, 2, 3, 4, 5, 6}, weight[4 * 2 * 3] = {0}, state_weight[4 * 2 * 2] = {0},
                        bias[4 * 2] = {0};
    float state[2] = {5, 5}, cell[2] = {4, -8};
    const int64_t input_sizes[] = {2, 1, 3}, weight_sizes[] = {8, 3}, state_weight_sizes[] = {8, 2}, eight = 8;
    const int64_t state_sizes[] = {1, 2};
    AtenTensorHandle given[] = {
        floats(input, 3, input_sizes), floats(weight, 2, weight_sizes), floats(state_weight, 2, state_weight_sizes),
        floats(bias, 1, &eight),       floats(state, 2, state_sizes),   floats(cell, 2, state_sizes)};
    AtenTensorHandle out[4] = {NULL};
    cr_assert_eq(SHIM(aoti_torch_cpu_mkldnn_rnn_layer)(given[0], given[1], given[2], given[3], given[3], given[4],
                                                       given[5], 0, NULL, 0, 2, 2, 1, 1, 0, 0, 0, &out[0], &out[1],
                                                       &out[2], &out[3]),
                 0, "%s", shim_message());
    const float *last_cell = shim_data(out[2]), *output = shim_data(out[0]);
    cr_assert_float_eq(last_cell[0], 1, 1e-6);
    cr_assert_float_eq(last_cell[1], -2, 1e-6);
    cr_assert_float_eq(output[0], 0.5f * tanhf(2), 1e-6);
    cr_assert_float_eq(output[3], 0.5f * tanhf(-2), 1e-6);
    cr_assert_float_eq(cell[0], 4, 0, "operands stay as they are");
    for (int i = 0; i < 4; i++)
        shim_delete(out[i]);
    for (int i = 0; i < 6; i++)
        shim_delete(given[i]);
}
