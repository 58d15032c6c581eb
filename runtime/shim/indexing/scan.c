/*
 * shim/indexing/scan: accumulates along one dimension: cumsum, cumprod, cummax, cummin, logcumsumexp.
 *
 * Source: aten/src/ATen/native/ReduceOps.cpp and cpu/ReduceOpsKernel.cpp. As there, sums and products of float
 * accumulate in double.
 */
#include "runtime/shim/math/math_internal.h"
#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <complex.h>
#include <math.h>

typedef double _Complex complex_double;

/* A group of lanes: element i of lane j is at j * apart + i * step. */
struct lane_group {
    int64_t count, apart, length, step;
};

/* Scans lanes. places: only written if results have positions. */
typedef void (*scan_lanes)(const void *source, void *to, int64_t *places, const struct lane_group *lanes);

/* The functions for int64, float, double and complex double; NULL if there is none. */
struct scan {
    scan_lanes of_int, of_float, of_double, of_complex;
};

/* ---- eight lanes at a time, since each step waits for the previous one ---- */

enum { LANES_AT_ONCE = 8 };

/*
 * Defines name(), which passes the lanes of a group to name_some(): `count` lanes from element `first` on, with a count
 * known at compile time. So these loops become plain code, and vectors if lanes are adjacent.
 */
#define DEFINE_LANES(name)                                                                                     \
    static void name(const void *from, void *to, int64_t *places, const struct lane_group *lanes)              \
    {                                                                                                          \
        int64_t lane = 0;                                                                                      \
        for (; lane + LANES_AT_ONCE <= lanes->count; lane += LANES_AT_ONCE)                                    \
            if (lanes->apart == 1)                                                                             \
                name##_some(from, to, places, lane, LANES_AT_ONCE, 1, lanes->length, lanes->step);             \
            else                                                                                               \
                name##_some(from, to, places, lane * lanes->apart, LANES_AT_ONCE, lanes->apart, lanes->length, \
                            lanes->step);                                                                      \
        for (; lane < lanes->count; lane++)                                                                    \
            name##_some(from, to, places, lane * lanes->apart, 1, 1, lanes->length, lanes->step);              \
    }
#define INLINE static inline __attribute__((always_inline))

/* ---- sums and products ---- */

/* type: of the elements. wide: of the total. */
#define DEFINE_ACCUMULATE(name, type, wide, start, join)                                                 \
    INLINE void name##_some(const void *source, void *target, int64_t *places, int64_t first, int count, \
                            int64_t apart, int64_t length, int64_t step)                                 \
    {                                                                                                    \
        const type *restrict from = (const type *)source + first;                                        \
        type *restrict to = (type *)target + first;                                                      \
        wide total[LANES_AT_ONCE];                                                                       \
        (void)places;                                                                                    \
        for (int j = 0; j < count; j++)                                                                  \
            total[j] = start;                                                                            \
        for (int64_t i = 0; i < length; i++, from += step, to += step)                                   \
            _Pragma("GCC unroll 8") for (int j = 0; j < count; j++)                                      \
            {                                                                                            \
                total[j] = join(total[j], (wide)from[j * apart]);                                        \
                to[j * apart] = (type)total[j];                                                          \
            }                                                                                            \
    }                                                                                                    \
    DEFINE_LANES(name)
#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
DEFINE_ACCUMULATE(sum_int, int64_t, uint64_t, 0, ADD)
DEFINE_ACCUMULATE(multiply_int, int64_t, uint64_t, 1, MULTIPLY)
DEFINE_ACCUMULATE(sum_float, float, double, 0, ADD)
DEFINE_ACCUMULATE(multiply_float, float, double, 1, MULTIPLY)
DEFINE_ACCUMULATE(sum_double, double, double, 0, ADD)
DEFINE_ACCUMULATE(multiply_double, double, double, 1, MULTIPLY)
DEFINE_ACCUMULATE(sum_complex, complex_double, complex_double, 0, ADD)
DEFINE_ACCUMULATE(multiply_complex, complex_double, complex_double, 1, MULTIPLY)

/* Computes log(exp(a) + exp(b)) without leaving the range of double. */
static double log_add_exp(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    double smaller = a < b ? a : b, larger = a < b ? b : a;
    if (smaller == larger && isinf(larger))
        return larger;
    return larger + log1p(exp(smaller - larger));
}

DEFINE_ACCUMULATE(log_sum_float, float, double, -INFINITY, log_add_exp)
DEFINE_ACCUMULATE(log_sum_double, double, double, -INFINITY, log_add_exp)

/* ---- running maximum or minimum and its position: the last of equal ones; NaN beats all numbers ---- */

/* loses: comparison of an element with the best one; if true, the best one stays. */
#define DEFINE_EXTREME(name, type, is_nan, loses)                                                        \
    INLINE void name##_some(const void *source, void *target, int64_t *places, int64_t first, int count, \
                            int64_t apart, int64_t length, int64_t step)                                 \
    {                                                                                                    \
        const type *restrict from = (const type *)source + first;                                        \
        type *restrict to = (type *)target + first;                                                      \
        int64_t *restrict at = places + first;                                                           \
        type best[LANES_AT_ONCE];                                                                        \
        int64_t place[LANES_AT_ONCE] = {0};                                                              \
        for (int j = 0; j < count; j++)                                                                  \
            best[j] = from[j * apart];                                                                   \
        for (int64_t i = 0; i < length; i++, from += step, to += step, at += step)                       \
            _Pragma("GCC unroll 8") for (int j = 0; j < count; j++)                                      \
            {                                                                                            \
                const type value = from[j * apart];                                                      \
                const bool stays = value loses best[j] || (is_nan(best[j]) && !is_nan(value));           \
                to[j * apart] = best[j] = stays ? best[j] : value;                                       \
                at[j * apart] = place[j] = stays ? place[j] : i;                                         \
            }                                                                                            \
    }                                                                                                    \
    DEFINE_LANES(name)
#define NEVER(value) false
DEFINE_EXTREME(largest_int, int64_t, NEVER, <)
DEFINE_EXTREME(largest_float, float, isnan, <)
DEFINE_EXTREME(largest_double, double, isnan, <)
DEFINE_EXTREME(smallest_int, int64_t, NEVER, >)
DEFINE_EXTREME(smallest_float, float, isnan, >)
DEFINE_EXTREME(smallest_double, double, isnan, >)

/* ---- all lanes of a tensor ---- */

/* The elements are contiguous and have the dtype used for computing. */
struct scanned {
    const struct shim_tensor *source, *to, *places; /* places: NULL: none */
    struct shim_lanes lanes;
    scan_lanes run;
    int parts;
};

/* Runs `count` lanes from `lane` on, which are interleaved or follow each other. */
static void run_some(const struct scanned *scanned, int64_t lane, int64_t count)
{
    const struct shim_lanes lanes = scanned->lanes;
    const int64_t first = lane / lanes.inner * lanes.length * lanes.inner + lane % lanes.inner;
    const size_t offset = (size_t)first * scanned->source->item_bytes;
    const struct lane_group group = {count, lanes.inner == 1 ? lanes.length : 1, lanes.length, lanes.inner};
    scanned->run((const char *)scanned->source->data + offset, (char *)scanned->to->data + offset,
                 scanned->places != NULL ? (int64_t *)scanned->places->data + first : NULL, &group);
}

static void run_part(void *user, int part)
{
    const struct scanned *scanned = user;
    const int64_t inner = scanned->lanes.inner, all = scanned->lanes.outer * inner;
    const int64_t end = shim_part_begin(all, scanned->parts, part + 1);
    for (int64_t lane = shim_part_begin(all, scanned->parts, part), count; lane < end; lane += count) {
        count = inner == 1 || end - lane < inner - lane % inner ? end - lane : inner - lane % inner;
        run_some(scanned, lane, count);
    }
}

/* The cost of an element, in multiplications. */
enum { PLAIN_WORK = 12, LOGARITHM_WORK = 600 };

/* Scans a tensor. ret_places: NULL: none. */
static AOTITorchError scan(const char *function, const struct scan *scan, AtenTensorHandle self, int64_t dim,
                           int32_t dtype, AtenTensorHandle *ret_tensor, AtenTensorHandle *ret_places)
{
    cleanup_tensor AtenTensorHandle input = NULL, values = NULL, made = NULL, places = NULL;
    int at;
    const struct shim_tensor *tensor = self->tensor;
    const bool is_narrow = aoticache_shim_is_floating(dtype) && dtype != AOTICACHE_DTYPE_FLOAT64;
    const int32_t work = is_narrow ? AOTICACHE_DTYPE_FLOAT32 : aoticache_shim_work_dtype(dtype);
    SHIM_TRY(aoticache_shim_wrap_dimension(function, tensor->ndim, dim, &at));
    scan_lanes run = work == AOTICACHE_DTYPE_INT64     ? scan->of_int
                     : work == AOTICACHE_DTYPE_FLOAT32 ? scan->of_float
                     : work == AOTICACHE_DTYPE_FLOAT64 ? scan->of_double
                                                       : scan->of_complex;
    if (run == NULL)
        return aoticache_shim_fail_dtype(function, dtype);
    /* The elements are converted to `dtype` first: 1.5 counts as 1 for int64. */
    SHIM_TRY(aoticache_shim_read(function, self, dtype, &input));
    SHIM_TRY(aoticache_shim_read(function, input, work, &values));
    SHIM_TRY(aoticache_shim_make(function, tensor->ndim, tensor->sizes, work, &made));
    if (ret_places != NULL)
        SHIM_TRY(aoticache_shim_make(function, tensor->ndim, tensor->sizes, AOTICACHE_DTYPE_INT64, &places));
    struct scanned scanned = {values->tensor,
                              made->tensor,
                              places != NULL ? places->tensor : NULL,
                              aoticache_shim_lanes(values->tensor, at),
                              run,
                              1};
    const double each = run == log_sum_float || run == log_sum_double ? LOGARITHM_WORK : PLAIN_WORK;
    if (tensor->numel > 0) {
        scanned.parts = aoticache_shim_parts((double)tensor->numel * each, scanned.lanes.outer * scanned.lanes.inner);
        aoticache_shim_parallel(scanned.parts, run_part, &scanned);
    }
    SHIM_TRY(aoticache_shim_read(function, made, dtype, ret_tensor));
    if (ret_places != NULL)
        *ret_places = shim_steal(&places);
    return SHIM_SUCCESS;
}

/* Returns the dtype of a sum: int64 for integers, unless another is requested. */
static int32_t sum_dtype(const int32_t *asked, int32_t dtype)
{
    if (asked != NULL)
        return *asked;
    return aoticache_shim_is_integral(dtype) ? AOTICACHE_DTYPE_INT64 : dtype;
}

AOTITorchError aoti_torch_cpu_cumsum(AtenTensorHandle self, int64_t dim, int32_t *dtype, AtenTensorHandle *ret_0)
{
    static const struct scan sums = {sum_int, sum_float, sum_double, sum_complex};
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    return scan(__func__, &sums, self, dim, sum_dtype(dtype, self->tensor->dtype), ret_0, NULL);
}

AOTITorchError aoti_torch_cpu_cumprod(AtenTensorHandle self, int64_t dim, int32_t *dtype, AtenTensorHandle *ret_0)
{
    static const struct scan products = {multiply_int, multiply_float, multiply_double, multiply_complex};
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    return scan(__func__, &products, self, dim, sum_dtype(dtype, self->tensor->dtype), ret_0, NULL);
}

AOTITorchError aoti_torch_cpu_logcumsumexp(AtenTensorHandle self, int64_t dim, AtenTensorHandle *ret_0)
{
    static const struct scan sums = {NULL, log_sum_float, log_sum_double, NULL};
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    return scan(__func__, &sums, self, dim, self->tensor->dtype, ret_0, NULL);
}

AOTITorchError aoti_torch_cpu_cummax(AtenTensorHandle self, int64_t dim, AtenTensorHandle *ret_0,
                                     AtenTensorHandle *ret_1)
{
    static const struct scan largest = {largest_int, largest_float, largest_double, NULL};
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_CHECK_RESULT(ret_1);
    return scan(__func__, &largest, self, dim, self->tensor->dtype, ret_0, ret_1);
}

AOTITorchError aoti_torch_cpu_cummin(AtenTensorHandle self, int64_t dim, AtenTensorHandle *ret_0,
                                     AtenTensorHandle *ret_1)
{
    static const struct scan smallest = {smallest_int, smallest_float, smallest_double, NULL};
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_CHECK_RESULT(ret_1);
    return scan(__func__, &smallest, self, dim, self->tensor->dtype, ret_0, ret_1);
}
