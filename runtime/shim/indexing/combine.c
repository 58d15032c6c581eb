/*
 * shim/indexing/combine: combines several values at one position: sum, prod, mean, amax, amin.
 */
#include "runtime/shim/indexing/indexing_internal.h"

#include <complex.h>
#include <math.h>
#include <string.h>

AOTITorchError aoticache_shim_reduce_parse(const char *function, const char *text, enum shim_reduce *ret_reduce)
{
    static const struct {
        const char *name;
        enum shim_reduce reduce;
    } names[] = {
        {"sum", SHIM_REDUCE_SUM},       {"add", SHIM_REDUCE_SUM},   {"prod", SHIM_REDUCE_PROD},
        {"multiply", SHIM_REDUCE_PROD}, {"mean", SHIM_REDUCE_MEAN}, {"amax", SHIM_REDUCE_AMAX},
        {"max", SHIM_REDUCE_AMAX},      {"amin", SHIM_REDUCE_AMIN}, {"min", SHIM_REDUCE_AMIN},
    };
    for (size_t i = 0; text != NULL && i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, text) == 0) {
            *ret_reduce = names[i].reduce;
            return SHIM_SUCCESS;
        }
    return aoticache_shim_fail("%s: reduction '%s' is not one of sum, prod, mean, amax, amin", function,
                               text != NULL ? text : "");
}

/* Elements of a block that are computed at a time: a compiler makes vectors of this size. */
enum { LANES = 16 };

/*
 * Iterates over the blocks of a line. `close` is applied to LANES contiguous elements, `single` to one. Blocks of one
 * element have a separate loop, in which a processor executes several at a time.
 */
#define DEFINE_LINE(name, bytes, close, single)                                                                   \
    static void name(const struct shim_line *line, char *places, char *values)                                    \
    {                                                                                                             \
        const ptrdiff_t index_step = line->index_step, scale = line->scale;                                       \
        const ptrdiff_t place_step = line->place_step, value_step = line->value_step;                             \
        const ptrdiff_t place_element = line->place_element, value_element = line->value_element;                 \
        const int64_t *index = line->index, width = line->width, size = line->size, count = line->count;          \
        const bool is_close = place_element == (bytes) && value_element == (bytes);                               \
        const int64_t close_width = is_close ? width - width % LANES : 0;                                         \
        for (int64_t k = 0; width == 1 && k < count; k++)                                                         \
            single(places + k * place_step + wrap(index[k * index_step], size) * scale, values + k * value_step); \
        for (int64_t k = 0; width > 1 && k < count; k++) {                                                        \
            char *place = places + k * place_step + wrap(index[k * index_step], size) * scale;                    \
            char *value = values + k * value_step;                                                                \
            for (const char *end = place + close_width * (bytes); place != end;                                   \
                 place += LANES * (bytes), value += LANES * (bytes))                                              \
                close(place, value);                                                                              \
            for (int64_t i = close_width; i < width; i++, place += place_element, value += value_element)         \
                single(place, value);                                                                             \
        }                                                                                                         \
    }

static inline int64_t wrap(int64_t number, int64_t size)
{
    return number + (number < 0 ? size : 0);
}

/* Elements are copied unchanged. */
#define DEFINE_MOVES(bytes)                                               \
    static inline void put_one_##bytes(char *place, const char *value)    \
    {                                                                     \
        memcpy(place, value, bytes);                                      \
    }                                                                     \
    static inline void put_lanes_##bytes(char *place, const char *value)  \
    {                                                                     \
        memcpy(place, value, LANES *(bytes));                             \
    }                                                                     \
    static inline void take_one_##bytes(const char *place, char *value)   \
    {                                                                     \
        memcpy(value, place, bytes);                                      \
    }                                                                     \
    static inline void take_lanes_##bytes(const char *place, char *value) \
    {                                                                     \
        memcpy(value, place, LANES *(bytes));                             \
    }                                                                     \
    DEFINE_LINE(put_##bytes, bytes, put_lanes_##bytes, put_one_##bytes)   \
    DEFINE_LINE(take_##bytes, bytes, take_lanes_##bytes, take_one_##bytes)

DEFINE_MOVES(1)
DEFINE_MOVES(2)
DEFINE_MOVES(4)
DEFINE_MOVES(8)
DEFINE_MOVES(16)

#define DEFINE_COMBINE(name, type, merge)                           \
    static inline void name##_one(char *place, const char *value)   \
    {                                                               \
        type a, b;                                                  \
        memcpy(&a, place, sizeof a);                                \
        memcpy(&b, value, sizeof b);                                \
        a = merge(a, b);                                            \
        memcpy(place, &a, sizeof a);                                \
    }                                                               \
    static inline void name##_lanes(char *place, const char *value) \
    {                                                               \
        type a[LANES], b[LANES];                                    \
        memcpy(a, place, sizeof a);                                 \
        memcpy(b, value, sizeof b);                                 \
        for (int i = 0; i < LANES; i++)                             \
            a[i] = merge(a[i], b[i]);                               \
        memcpy(place, a, sizeof a);                                 \
    }                                                               \
    DEFINE_LINE(name, (ptrdiff_t)sizeof(type), name##_lanes, name##_one)

#define ADD(a, b) ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define ADD_INT(a, b) (int64_t)((uint64_t)(a) + (uint64_t)(b))
#define MULTIPLY_INT(a, b) (int64_t)((uint64_t)(a) * (uint64_t)(b))
/* The result is NaN if either value is. */
#define LARGER(a, b) (isnan(a) || (a) > (b) ? (a) : (b))
#define SMALLER(a, b) (isnan(a) || (a) < (b) ? (a) : (b))
#define LARGER_INT(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER_INT(a, b) ((a) < (b) ? (a) : (b))

DEFINE_COMBINE(add_int64, int64_t, ADD_INT)
DEFINE_COMBINE(multiply_int64, int64_t, MULTIPLY_INT)
DEFINE_COMBINE(larger_int64, int64_t, LARGER_INT)
DEFINE_COMBINE(smaller_int64, int64_t, SMALLER_INT)
DEFINE_COMBINE(add_float, float, ADD)
DEFINE_COMBINE(multiply_float, float, MULTIPLY)
DEFINE_COMBINE(larger_float, float, LARGER)
DEFINE_COMBINE(smaller_float, float, SMALLER)
DEFINE_COMBINE(add_double, double, ADD)
DEFINE_COMBINE(multiply_double, double, MULTIPLY)
DEFINE_COMBINE(larger_double, double, LARGER)
DEFINE_COMBINE(smaller_double, double, SMALLER)
DEFINE_COMBINE(add_complex64, float _Complex, ADD)
DEFINE_COMBINE(multiply_complex64, float _Complex, MULTIPLY)
DEFINE_COMBINE(add_complex128, double _Complex, ADD)
DEFINE_COMBINE(multiply_complex128, double _Complex, MULTIPLY)

#define DEFINE_DIVIDE(name, type, real, real_part)                     \
    static void name(int64_t count, void *sums, const void *counts)    \
    {                                                                  \
        for (int64_t i = 0; i < count; i++) {                          \
            const real divisor = real_part(((const type *)counts)[i]); \
            ((type *)sums)[i] /= divisor < 1 ? 1 : divisor;            \
        }                                                              \
    }

DEFINE_DIVIDE(divide_float, float, float, )
DEFINE_DIVIDE(divide_double, double, double, )
DEFINE_DIVIDE(divide_complex64, float _Complex, float, crealf)
DEFINE_DIVIDE(divide_complex128, double _Complex, double, creal)

/* Divides, rounding towards minus infinity. */
static void divide_int64(int64_t count, void *sums, const void *counts)
{
    int64_t *value = sums;
    for (int64_t i = 0; i < count; i++) {
        const int64_t given = ((const int64_t *)counts)[i], divisor = given < 1 ? 1 : given;
        value[i] = value[i] / divisor - (value[i] % divisor < 0);
    }
}

/* The functions for numbers of a dtype. Complex numbers have no order. */
struct arithmetic {
    int32_t dtype;
    shim_combine add, multiply, larger, smaller;
    void (*divide)(int64_t count, void *sums, const void *counts);
};

static const struct arithmetic *arithmetic_of(int32_t dtype)
{
    static const struct arithmetic all[] = {
        {AOTICACHE_DTYPE_INT64, add_int64, multiply_int64, larger_int64, smaller_int64, divide_int64},
        {AOTICACHE_DTYPE_FLOAT32, add_float, multiply_float, larger_float, smaller_float, divide_float},
        {AOTICACHE_DTYPE_FLOAT64, add_double, multiply_double, larger_double, smaller_double, divide_double},
        {AOTICACHE_DTYPE_COMPLEX64, add_complex64, multiply_complex64, NULL, NULL, divide_complex64},
        {AOTICACHE_DTYPE_COMPLEX128, add_complex128, multiply_complex128, NULL, NULL, divide_complex128},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].dtype == dtype)
            return &all[i];
    return NULL;
}

/* Small floating point numbers are combined in a wider dtype and rounded once, at the end. */
int32_t aoticache_shim_combine_dtype(enum shim_reduce reduce, int32_t dtype)
{
    if (reduce == SHIM_REDUCE_NONE || arithmetic_of(dtype) != NULL)
        return dtype;
    if (aoticache_shim_is_integral(dtype))
        return AOTICACHE_DTYPE_INT64;
    return aoticache_shim_is_complex(dtype) ? AOTICACHE_DTYPE_COMPLEX64 : AOTICACHE_DTYPE_FLOAT32;
}

static shim_combine select_reduce(enum shim_reduce reduce, const struct arithmetic *arithmetic)
{
    switch (reduce) {
    case SHIM_REDUCE_PROD:
        return arithmetic->multiply;
    case SHIM_REDUCE_AMAX:
        return arithmetic->larger;
    case SHIM_REDUCE_AMIN:
        return arithmetic->smaller;
    default:
        return arithmetic->add;
    }
}

AOTITorchError aoticache_shim_combine_select(const char *function, enum shim_reduce reduce, int32_t dtype,
                                             shim_combine *ret_combine)
{
    static const shim_combine puts[] = {put_1, put_2, put_4, put_8, put_16};
    *ret_combine = reduce == SHIM_REDUCE_NONE ? puts[__builtin_ctz(shim_item_bytes(dtype))]
                                              : select_reduce(reduce, arithmetic_of(dtype));
    return *ret_combine != NULL ? SHIM_SUCCESS : aoticache_shim_fail_dtype(function, dtype);
}

shim_combine aoticache_shim_combine_take(uint32_t item_bytes)
{
    static const shim_combine takes[] = {take_1, take_2, take_4, take_8, take_16};
    return takes[__builtin_ctz(item_bytes)];
}

static double first_number(enum shim_reduce reduce)
{
    switch (reduce) {
    case SHIM_REDUCE_PROD:
        return 1;
    case SHIM_REDUCE_AMAX:
        return -INFINITY;
    case SHIM_REDUCE_AMIN:
        return INFINITY;
    default:
        return 0;
    }
}

void aoticache_shim_combine_first(enum shim_reduce reduce, int32_t dtype, void *value)
{
    const double number = first_number(reduce);
    if (dtype == AOTICACHE_DTYPE_INT64)
        *(int64_t *)value = !isinf(number) ? (int64_t)number : number > 0 ? INT64_MAX : INT64_MIN;
    else if (dtype == AOTICACHE_DTYPE_FLOAT64)
        *(double *)value = number;
    else if (dtype == AOTICACHE_DTYPE_FLOAT32)
        *(float *)value = (float)number;
    else if (dtype == AOTICACHE_DTYPE_COMPLEX64)
        *(float _Complex *)value = (float)number;
    else
        *(double _Complex *)value = number;
}

void aoticache_shim_combine_divide(int32_t dtype, int64_t count, void *sums, const void *counts)
{
    arithmetic_of(dtype)->divide(count, sums, counts);
}
