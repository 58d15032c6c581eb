/*
 * loader/check/check: tensor checks, the guards that decide whether a runner may serve given tensors.
 *
 * A check has one pattern for each tensor, in the order of the runner's inputs, and symbols that the patterns share.
 * Every property of a tensor is exact or free; sizes and strides can also be symbolic: a product of symbols, times a
 * coefficient, plus an offset ("4*s0*s1+1"). A symbol takes its value from the first size or stride in which it is the
 * only symbol (with a coefficient and an offset), in the order of tensors, sizes before strides. It must have that
 * value everywhere else. So a check can say that dimensions are equal, multiples of a number, or within a range. A
 * value that is computed from symbols and does not fit into 64 bits does not pass.
 *
 * PyTorch has the same in the tensor guards of its dynamo (torch/_dynamo/guards.py) and in its symbolic shapes
 * (torch/fx/experimental/symbolic_shapes.py).
 *
 * A check is compiled once into one flat block and never changes. Any number of threads may use it.
 *
 * Users include <aoticache/runner.h>.
 */
#ifndef AOTICACHE_LOADER_CHECK_CHECK_H
#define AOTICACHE_LOADER_CHECK_CHECK_H

#include "loader/loader.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AOTICACHE_CHECK_MAX_TENSORS 1024
#define AOTICACHE_CHECK_MAX_SYMBOLS 64
#define AOTICACHE_DIM_MAX_SYMBOLS 4

/* The values that a symbol may have: multiples of multiple_of from min to max. */
typedef struct aoticache_symbol {
    int64_t min, max;    /* min 0 or more */
    int64_t multiple_of; /* 1 or more; 0 means 1 */
} aoticache_symbol;

/* Any value. (The members are in order, so that C++ accepts this too.) */
#define AOTICACHE_SYMBOL_INIT {0, INT64_MAX, 1}

/*
 * A size or a stride: any value, or coefficient * symbols[0] * symbols[1] ... + offset. A constant may not be negative;
 * the offset of a product may.
 */
typedef struct aoticache_dim {
    bool is_free;
    uint8_t symbol_count; /* 0: exactly coefficient + offset */
    uint8_t symbols[AOTICACHE_DIM_MAX_SYMBOLS];
    int64_t coefficient; /* 1 or more if there are symbols; otherwise 0 or more */
    int64_t offset;
} aoticache_dim;

/*
 * How elements must be laid out in memory. GIVEN compares every stride. The memory formats follow PyTorch's
 * tensor.is_contiguous(memory_format=...): the stride of a dimension of size 1 does not matter, and a tensor without
 * elements is contiguous whatever its strides are. (For channels_last PyTorch makes no such exception.) With a
 * channels_last rule, a free number of dimensions is 4, or 5 for channels_last_3d.
 */
typedef enum aoticache_stride_rule {
    AOTICACHE_STRIDES_FREE = 0,
    AOTICACHE_STRIDES_GIVEN = 1, /* the pattern's strides; needs ndim */
    AOTICACHE_STRIDES_CONTIGUOUS = 2,
    AOTICACHE_STRIDES_CHANNELS_LAST = 3,    /* has 4 dimensions */
    AOTICACHE_STRIDES_CHANNELS_LAST_3D = 4, /* has 5 dimensions */
} aoticache_stride_rule;

typedef struct aoticache_tensor_pattern {
    int32_t dtype;         /* -1: free */
    int32_t layout;        /* -1: free */
    int32_t device_type;   /* -1: free */
    int32_t device_index;  /* -1: free; indices -1 and 0 of the CPU are the same */
    int32_t requires_grad; /* 0, 1; -1: free */
    bool has_key_set;      /* false: free */
    uint64_t dispatch_key_set;
    int64_t ndim;               /* -1: free, and so are sizes; up to 64 */
    const aoticache_dim *sizes; /* ndim; NULL: free */
    aoticache_stride_rule stride_rule;
    const aoticache_dim *strides; /* ndim, for STRIDES_GIVEN */
} aoticache_tensor_pattern;

/* Everything is free. (The members are in order, so that C++ accepts this too.) */
#define AOTICACHE_TENSOR_PATTERN_INIT {-1, -1, -1, -1, -1, false, 0, -1, NULL, AOTICACHE_STRIDES_FREE, NULL}

typedef struct aoticache_check aoticache_check;

/*
 * Compiles a check. Everything is copied.
 * Returns: OK; INVALID (a symbol that never occurs as the only symbol of a size or stride, an empty range, a number of
 * dimensions that does not fit the stride rule, a limit exceeded: the message names tensor, dimension and value);
 * NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_check_create(const aoticache_tensor_pattern *patterns, size_t tensor_count,
                                                      const aoticache_symbol *symbols, size_t symbol_count,
                                                      aoticache_check **ret_check, aoticache_error *ret_error);
/*
 * Compiles a check that exactly these tensors pass: all properties are exact, including the strides of dimensions of
 * size 1. Only the index of a device stays free, if it is -1 and the device is not the CPU. Data pointers and numel do
 * not count.
 * Returns: OK; INVALID (more than 64 dimensions, negative numbers, dimensions without sizes or strides); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_check_create_exact(const aoticache_tensor_view *tensors, size_t tensor_count,
                                                            aoticache_check **ret_check, aoticache_error *ret_error);
AOTICACHE_API void aoticache_check_free(aoticache_check *check);

/*
 * Returns whether the tensors pass. Takes some tens of nanoseconds, allocates nothing and takes no lock. Returns false
 * for another number of tensors. A view with dimensions must have sizes and strides (aoticache_check_explain() reports
 * a missing one); data and numel are not read.
 */
AOTICACHE_API bool aoticache_check_passes(const aoticache_check *check, const aoticache_tensor_view *tensors,
                                          size_t tensor_count);

/*
 * Reports why tensors do not pass. The message names the first property that differs, with both values: "argument 1:
 * size of dimension 0 is 5, and must be 8", "argument 0: dtype is float64, and must be float32", "argument 1: size of
 * dimension 2 is 7, and must be 2*s0 = 6 (s0 is 3, from size 0 of argument 0)". Properties that need a symbol whose
 * value comes from a later size or stride come last.
 *
 * names: the arguments' names, for messages such as "argument 1 (weight): ..."; NULL, or NULL for some: no names.
 * Returns: OK (they pass), INVALID with the message.
 */
AOTICACHE_API aoticache_status aoticache_check_explain(const aoticache_check *check,
                                                       const aoticache_tensor_view *tensors, size_t tensor_count,
                                                       const char *const *names, aoticache_error *ret_error);

/*
 * Writes a check as one line of text: "float32[s0, 4*s1, 8]@cpu, int64[*]{*}; s0=2..128, s1=0..%8".
 *
 * A tensor is its dtype ("*": free) and its sizes ("[...]": any number), followed by properties that are not free:
 * strides ("{contiguous}", "{channels_last}", "{4*s1, 1}"), device ("@cpu", "@cuda:1"), " layout=strided", " grad=0", "
 * keys=0x12". Symbols whose range is not "0.." follow ";": "s0=2..128" is a range ("2..": without end), "%8" a
 * multiple. An empty text is a check without tensors. docs/formats/checks.md has the grammar.
 *
 * Like snprintf(): returns the length of the whole text; cuts off what does not fit, and terminates it.
 */
AOTICACHE_API size_t aoticache_check_format(const aoticache_check *check, char *ret_text, size_t size);
/*
 * Parses such a text. Returns: OK, INVALID (with the position, from 1, and what was expected there; or as
 * aoticache_check_create()), NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_check_parse(const char *text, aoticache_check **ret_check,
                                                     aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
