/*
 * What the tests of checks share: tensor views on the stack, and random checks for tests of properties.
 */
#ifndef AOTICACHE_TESTS_UNIT_CHECK_FIXTURE_H
#define AOTICACHE_TESTS_UNIT_CHECK_FIXTURE_H

#include "loader/check/check.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define NUMBERS(...) ((const int64_t[]){__VA_ARGS__})

/* Makes a float32 tensor on the CPU. */
static inline aoticache_tensor_view make_view(int64_t ndim, const int64_t *sizes, const int64_t *strides)
{
    return (aoticache_tensor_view){.dtype = AOTICACHE_DTYPE_FLOAT32,
                                   .device = AOTICACHE_DEVICE_CPU,
                                   .ndim = ndim,
                                   .sizes = sizes,
                                   .strides = strides};
}

static inline aoticache_check *must_parse(const char *text)
{
    aoticache_check *check = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_check_parse(text, &check, &error), AOTICACHE_OK, "%s: %s", text, error.message);
    return check;
}

/* ---- random checks ---- */

static inline uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static inline unsigned below(uint64_t *state, unsigned limit)
{
    return (unsigned)(next_random(state) % limit);
}

enum { RANDOM_TENSORS = 3, RANDOM_NDIM = 5, RANDOM_SYMBOLS = 3 };

struct random_check {
    size_t tensor_count, symbol_count;
    aoticache_tensor_pattern patterns[RANDOM_TENSORS];
    aoticache_symbol symbols[RANDOM_SYMBOLS];
    aoticache_dim sizes[RANDOM_TENSORS][RANDOM_NDIM], strides[RANDOM_TENSORS][RANDOM_NDIM];
};

/* Sets the pointers to the arrays in the struct itself: to be called after it has been copied. */
static inline void point_at_arrays(struct random_check *random)
{
    for (size_t i = 0; i < random->tensor_count; i++) {
        random->patterns[i].sizes = random->sizes[i];
        random->patterns[i].strides = random->strides[i];
    }
}

static inline aoticache_dim random_dim(uint64_t *state, size_t symbol_count)
{
    aoticache_dim dim = {.is_free = below(state, 6) == 0};
    if (below(state, 3) == 0)
        return (aoticache_dim){.offset = below(state, 5)};
    dim.symbol_count = (uint8_t)(below(state, 4) == 0 ? 2 : 1);
    for (unsigned i = 0; i < dim.symbol_count; i++)
        dim.symbols[i] = (uint8_t)below(state, (unsigned)symbol_count);
    dim.coefficient = below(state, 3) == 0 ? 1 + below(state, 3) : 1;
    dim.offset = below(state, 4) == 0 ? (int64_t)below(state, 5) - 2 : 0;
    return dim;
}

static inline void random_pattern(uint64_t *state, struct random_check *random, size_t index)
{
    static const int32_t dtypes[] = {-1, 6, 7, 12};
    aoticache_tensor_pattern *pattern = &random->patterns[index];
    *pattern = (aoticache_tensor_pattern)AOTICACHE_TENSOR_PATTERN_INIT;
    pattern->dtype = dtypes[below(state, 4)];
    pattern->layout = (int32_t)below(state, 3) - 1;
    pattern->device_type = (int32_t)below(state, 3) - 1;
    pattern->device_index = (int32_t)below(state, 3) - 1;
    pattern->requires_grad = (int32_t)below(state, 3) - 1;
    pattern->has_key_set = below(state, 2);
    pattern->dispatch_key_set = pattern->has_key_set ? below(state, 2) : 0;
    pattern->ndim = (int64_t)below(state, RANDOM_NDIM + 2) - 1;
    pattern->stride_rule = (aoticache_stride_rule)(pattern->ndim < 0 ? 2 * below(state, 2) : below(state, 3));
    if (pattern->ndim >= 4 && below(state, 2))
        pattern->stride_rule =
            pattern->ndim == 4 ? AOTICACHE_STRIDES_CHANNELS_LAST : AOTICACHE_STRIDES_CHANNELS_LAST_3D;
    for (unsigned i = 0; i < RANDOM_NDIM; i++) {
        random->sizes[index][i] = random_dim(state, random->symbol_count);
        random->strides[index][i] = random_dim(state, random->symbol_count);
    }
}

/* Makes a check that create() accepts; every symbol is the only one in some size or stride. */
static inline aoticache_check *make_random(uint64_t *state, struct random_check *random)
{
    aoticache_check *check = NULL;
    do {
        *random = (struct random_check){.tensor_count = 1 + below(state, RANDOM_TENSORS),
                                        .symbol_count = 1 + below(state, RANDOM_SYMBOLS)};
        for (size_t i = 0; i < random->tensor_count; i++)
            random_pattern(state, random, i);
        for (size_t i = 0; i < random->symbol_count; i++)
            random->symbols[i] = (aoticache_symbol){.min = below(state, 3),
                                                    .multiple_of = 1 + below(state, 3),
                                                    .max = below(state, 2) ? INT64_MAX : 3 + below(state, 20)};
        point_at_arrays(random);
    } while (aoticache_check_create(random->patterns, random->tensor_count, random->symbols, random->symbol_count,
                                    &check, NULL) != AOTICACHE_OK);
    return check;
}

#endif
