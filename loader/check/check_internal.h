/*
 * loader/check: the parts of a compiled check.
 *
 * Private to loader/check/. Everything is in one block of memory: first what aoticache_check_passes() reads (tensors
 * with packed facts and masks, runs of exact numbers, operations on single sizes and strides), then the normalised
 * patterns, which explaining, comparing and formatting read.
 */
#ifndef AOTICACHE_LOADER_CHECK_INTERNAL_H
#define AOTICACHE_LOADER_CHECK_INTERNAL_H

#include "loader/check/check.h"

#define AOTICACHE_CHECK_MAX_NDIM 64

/* The role of one size or stride in a check. */
enum check_role {
    CHECK_ROLE_FREE,
    CHECK_ROLE_CONSTANT,
    CHECK_ROLE_BINDS, /* its one symbol takes its value here */
    CHECK_ROLE_USES,  /* all its symbols have their values when it is reached in order */
    CHECK_ROLE_LATE,  /* at least one takes its value only later */
};

enum check_op_kind {
    CHECK_OP_CONSTANT,    /* offset */
    CHECK_OP_BIND,        /* symbols[0] */
    CHECK_OP_BIND_SCALED, /* coefficient * symbols[0] + offset */
    CHECK_OP_SAME,        /* symbols[0], which has its value */
    CHECK_OP_PRODUCT,     /* coefficient * symbols[0] * ... + offset */
};

struct check_op {
    uint8_t kind;
    uint8_t symbol_count;
    uint8_t symbols[AOTICACHE_DIM_MAX_SYMBOLS];
    uint8_t dimension;
    bool is_stride;
    uint32_t tensor; /* only late operations need it: the others are found through their tensor */
    int64_t coefficient, offset;
};

/* One tensor. A word matches if (word ^ wanted) & mask is 0. */
struct check_tensor {
    uint64_t kind_wanted, kind_mask;   /* low half: dtype, high half: device type */
    uint64_t place_wanted, place_mask; /* low half: device index, high half: layout */
    uint64_t keys_wanted, keys_mask;
    uint64_t ndim_wanted, ndim_mask;
    uint8_t grad_wanted, grad_mask;
    uint8_t stride_rule; /* FREE also for given strides: those are numbers and operations */
    /* Numbers of exact sizes and of exact strides, which begin at value_begin; 0 if not all are exact. */
    uint8_t size_run, stride_run;
    uint32_t value_begin;
    uint32_t op_begin, op_end;
};

/* The values of a symbol: value - min <= span (unsigned), the bits of low_mask 0, and a multiple of odd. */
struct check_symbol {
    uint64_t min, span, low_mask;
    int64_t odd;
};

/* facts.sizes has ndim elements if ndim is known, facts.strides if the rule is GIVEN; both are in the block. */
struct check_pattern {
    aoticache_tensor_pattern facts;
    const uint8_t *size_roles, *stride_roles; /* enum check_role */
};

/* The number of values that all symbols can have, added up; needs more than 64 bits. */
__extension__ typedef unsigned __int128 check_breadth;

struct aoticache_check {
    uint32_t tensor_count, symbol_count;
    uint32_t late_begin, late_end; /* operations that run after those of all tensors */
    struct check_tensor *tensors;
    int64_t *values;
    struct check_op *ops;
    struct check_symbol *symbols;
    aoticache_symbol *ranges;
    struct check_pattern *patterns;
    uint64_t generality; /* compare() orders by generality, then by breadth */
    check_breadth breadth;
};

/* Returns the device index; for the CPU, -1 becomes 0, since both mean the same. */
static inline int32_t check_device_index(const aoticache_tensor_view *tensor)
{
    return tensor->device.index + (tensor->device.index == -1 && tensor->device.type == AOTICACHE_DEVICE_TYPE_CPU);
}

static inline bool check_symbol_takes(const struct check_symbol *symbol, int64_t value)
{
    return ((uint64_t)value - symbol->min <= symbol->span) & (((uint64_t)value & symbol->low_mask) == 0) &&
           (symbol->odd == 1 || value % symbol->odd == 0);
}

/* Computes coefficient * product of the symbols' values + offset; false if that does not fit. */
static inline bool check_evaluate(int64_t coefficient, const uint8_t *symbols, unsigned symbol_count, int64_t offset,
                                  const int64_t *values, int64_t *ret_value)
{
    int64_t product = coefficient;
    for (unsigned i = 0; i < symbol_count; i++)
        if (__builtin_mul_overflow(product, values[symbols[i]], &product))
            return false;
    return !__builtin_add_overflow(product, offset, ret_value);
}

/* Fills tensors, values, ops and symbols from patterns and ranges. Their arrays are large enough. */
void aoticache_check_compile(struct aoticache_check *check);

/* Sets generality and breadth. */
void aoticache_check_rank(struct aoticache_check *check);

/*
 * Returns the order of dimensions, innermost first, in which a format of 4 or 5 dimensions is laid out; NULL for
 * others.
 */
const uint8_t *aoticache_check_channels_last_order(aoticache_stride_rule rule);

/* "4*s0*s1+1", "8", "*". Enough for the longest, and the terminator. */
#define AOTICACHE_CHECK_DIM_TEXT_BYTES 72
size_t aoticache_check_dim_format(const aoticache_dim *dim, char ret_text[AOTICACHE_CHECK_DIM_TEXT_BYTES]);

/* "2..128%8", "0..": the values of a symbol. */
#define AOTICACHE_CHECK_RANGE_TEXT_BYTES 72
size_t aoticache_check_range_format(const aoticache_symbol *range, char ret_text[AOTICACHE_CHECK_RANGE_TEXT_BYTES]);

/* Returns the word for the text form and for messages: "contiguous". NULL for free and given strides. */
const char *aoticache_check_rule_name(aoticache_stride_rule rule);

#endif
