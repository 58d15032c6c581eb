/*
 * Writing to and reading from positions that an index names: scatter, index, segments. A result tensor of another size
 * is resized.
 */
#include <math.h>

#include "runtime/shim/operators.h"
#include "tests/unit/fixtures/shim_fixture.h"

static const int64_t three = 3, four = 4;

Test(shim_scatter, reduce_combines_what_meets_at_one_place)
{
    float self[] = {1, 10, 100, 1000}, source[] = {2, 3, 4}, out[4] = {0};
    int64_t index[] = {1, 1, 3};
    AtenTensorHandle to = shim_wrap(out, AOTICACHE_DTYPE_FLOAT32, 1, &four, NULL);
    AtenTensorHandle from = shim_wrap(source, AOTICACHE_DTYPE_FLOAT32, 1, &three, NULL);
    AtenTensorHandle base = shim_wrap(self, AOTICACHE_DTYPE_FLOAT32, 1, &four, NULL);
    AtenTensorHandle places = shim_wrap(index, AOTICACHE_DTYPE_INT64, 1, &three, NULL);
    const struct {
        const char *reduce;
        int include_self;
        float wanted[4];
    } cases[] = {
        {"sum", 1, {1, 15, 100, 1004}}, {"sum", 0, {1, 5, 100, 4}},     {"prod", 1, {1, 60, 100, 4000}},
        {"mean", 1, {1, 5, 100, 502}},  {"mean", 0, {1, 2.5f, 100, 4}}, {"amax", 0, {1, 3, 100, 4}},
        {"amin", 1, {1, 2, 100, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(SHIM(aoti_torch_cpu_scatter_reduce_two_out)(to, base, 0, places, from, cases[i].reduce,
                                                                 cases[i].include_self),
                     0, "%s", shim_message());
        cr_assert_eq(memcmp(out, cases[i].wanted, sizeof out), 0, "%s %d", cases[i].reduce, cases[i].include_self);
    }
    SHIM_FAILS(SHIM(aoti_torch_cpu_scatter_reduce_two_out)(to, base, 0, places, from, "most", 1), "'most' is not one");
    SHIM_FAILS(SHIM(aoti_torch_cpu_scatter_reduce_two_out)(to, base, 0, places, from, NULL, 1), "is not one");
    index[2] = 4;
    SHIM_FAILS(SHIM(aoti_torch_cpu_scatter_src_out)(to, base, 0, places, from), "index 4 is outside dimension 0");
    index[2] = -1;
    SHIM_FAILS(SHIM(aoti_torch_scatter_out)(to, base, 0, places, from), "index -1 is outside");
    shim_delete(to);
    shim_delete(from);
    shim_delete(base);
    shim_delete(places);
}

Test(shim_scatter, out_of_another_size_is_resized)
{
    float self[] = {1, 2, 3, 4};
    int64_t index[] = {0}, numel = 0;
    const int64_t one = 1, stride = 1;
    AtenTensorHandle out = shim_empty(AOTICACHE_DTYPE_FLOAT32, 1, &one, &stride);
    AtenTensorHandle base = shim_wrap(self, AOTICACHE_DTYPE_FLOAT32, 1, &four, NULL);
    AtenTensorHandle places = shim_wrap(index, AOTICACHE_DTYPE_INT64, 1, &one, NULL);
    cr_assert_eq(SHIM(aoti_torch_cpu_scatter_value_out)(out, base, 0, places, 9.0), 0, "%s", shim_message());
    cr_assert_eq(SHIM(aoti_torch_get_numel)(out, &numel), 0);
    cr_assert_eq(numel, 4);
    const float *seen = shim_data(out);
    cr_assert(seen[0] == 9 && seen[3] == 4);
    shim_delete(out);
    shim_delete(base);
    shim_delete(places);
}

Test(shim_index, put_accumulates_and_counts_from_the_end)
{
    float self[] = {0, 0, 0, 0}, values[] = {1, 2, 4}, out[4];
    int64_t index[] = {-1, 0, 3};
    AtenTensorHandle base = shim_wrap(self, AOTICACHE_DTYPE_FLOAT32, 1, &four, NULL);
    AtenTensorHandle to = shim_wrap(out, AOTICACHE_DTYPE_FLOAT32, 1, &four, NULL);
    AtenTensorHandle given = shim_wrap(values, AOTICACHE_DTYPE_FLOAT32, 1, &three, NULL);
    AtenTensorHandle places = shim_wrap(index, AOTICACHE_DTYPE_INT64, 1, &three, NULL);
    cr_assert_eq(SHIM(aoti_torch_index_put_out)(to, base, &places, 1, given, true), 0, "%s", shim_message());
    cr_assert(out[0] == 2 && out[1] == 0 && out[3] == 5);
    index[0] = -5;
    SHIM_FAILS(SHIM(aoti_torch_index_put_out)(to, base, &places, 1, given, true), "index -5 is outside dimension 0");
    const AtenTensorHandle two[] = {places, places};
    SHIM_FAILS(SHIM(aoti_torch_index_put_out)(to, base, two, 2, given, true), "2 indices for 1 dimensions");
    shim_delete(base);
    shim_delete(to);
    shim_delete(given);
    shim_delete(places);
}

Test(shim_segment, mean_of_nothing_is_nan)
{
    float values[] = {1, 2, 6};
    int64_t counts[] = {2, 0, 1};
    AtenTensorHandle data = shim_wrap(values, AOTICACHE_DTYPE_FLOAT32, 1, &three, NULL), result;
    AtenTensorHandle lengths = shim_wrap(counts, AOTICACHE_DTYPE_INT64, 1, &three, NULL);
    cr_assert_eq(SHIM(aoti_torch_cpu_segment_reduce)(data, "mean", &lengths, NULL, NULL, 0, 0, NULL, &result), 0, "%s",
                 shim_message());
    const float *seen = shim_data(result);
    cr_assert(seen[0] == 1.5f && isnan(seen[1]) && seen[2] == 6);
    shim_delete(result);
    counts[1] = 5;
    SHIM_FAILS(SHIM(aoti_torch_cpu_segment_reduce)(data, "mean", &lengths, NULL, NULL, 0, 1, NULL, &result),
               "segments cover 7 of 3");
    counts[1] = -1;
    SHIM_FAILS(SHIM(aoti_torch_cpu_segment_reduce)(data, "mean", &lengths, NULL, NULL, 0, 1, NULL, &result),
               "negative length");
    shim_delete(data);
    shim_delete(lengths);
}
