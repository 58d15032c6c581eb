/*
 * loader/check/check: tensor checks, the guards that decide whether a runner may serve given tensors.
 *
 * A check has one pattern for each tensor, in the order of the runner's inputs, and symbols that patterns share. Every
 * property of a tensor is exact, free, or, for sizes and strides, symbolic: a constant, or a product of symbols times
 * a coefficient plus an offset ("4*s0*s1+1"). A symbol takes its value from the first place, in the order of tensors,
 * sizes before strides, where it stands alone (with a coefficient and an offset), and must have that value in all
 * others: so dimensions are equal to each other, multiples of something, within a range. What is computed from symbols
 * and does not fit into 64 bits does not pass. The counterpart of the tensor guards of PyTorch's dynamo
 * (torch/_dynamo/guards.py) and of its symbolic shapes (torch/fx/experimental/symbolic_shapes.py).
 *
 * A check is made once, compiled into one flat block, never changes, and may be used from any number of threads.
 *
 * Users include <aoticache.h>.
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

/* What values a symbol may have: min <= value <= max, and a multiple of multiple_of. */
typedef struct aoticache_symbol {
    int64_t min, max;    /* min 0 or more */
    int64_t multiple_of; /* 1 or more; 0 is taken for 1 */
} aoticache_symbol;

/* Any value. The members in their order, so that C++ takes it too. */
#define AOTICACHE_SYMBOL_INIT {0, INT64_MAX, 1}

/*
 * A size or a stride: any value, or coefficient * symbols[0] * symbols[1] ... + offset. A constant may not be negative;
 * the offset of a product may.
 */
typedef struct aoticache_dim {
    bool is_free;
    uint8_t symbol_count; /* 0: exactly coefficient + offset */
    uint8_t symbols[AOTICACHE_DIM_MAX_SYMBOLS];
    int64_t coefficient; /* 1 or more where there are symbols; 0 or more else */
    int64_t offset;
} aoticache_dim;

/*
 * How elements must lie in memory. GIVEN compares every stride as it is. The memory formats are what PyTorch's
 * tensor.is_contiguous(memory_format=...) says: strides of dimensions of size 1 do not matter, and a tensor without
 * elements is contiguous whatever its strides are (but channels_last only where they say so: PyTorch makes no exception
 * there). A rule for channels_last makes a free number of dimensions 4, or 5.
 */
typedef enum aoticache_stride_rule {
    AOTICACHE_STRIDES_FREE = 0,
    AOTICACHE_STRIDES_GIVEN = 1, /* the pattern's strides; needs ndim */
    AOTICACHE_STRIDES_CONTIGUOUS = 2,
    AOTICACHE_STRIDES_CHANNELS_LAST = 3,    /* of 4 dimensions */
    AOTICACHE_STRIDES_CHANNELS_LAST_3D = 4, /* of 5 dimensions */
} aoticache_stride_rule;

typedef struct aoticache_tensor_pattern {
    int32_t dtype;           /* -1: free */
    int32_t layout;          /* -1: free */
    int32_t device_type;     /* -1: free */
    int32_t device_index;    /* -1: free; of a tensor, index -1 and 0 of the CPU are the same */
    int32_t requires_grad;   /* 0, 1; -1: free */
    bool has_key_set;        /* else free */
    uint64_t dispatch_key_set;
    int64_t ndim;            /* -1: free, and so are sizes; up to 64 */
    const aoticache_dim *sizes; /* ndim; NULL: free */
    aoticache_stride_rule stride_rule;
    const aoticache_dim *strides; /* ndim, for STRIDES_GIVEN */
} aoticache_tensor_pattern;

/* All free. The members in their order, so that C++ takes it too. */
#define AOTICACHE_TENSOR_PATTERN_INIT {-1, -1, -1, -1, -1, false, 0, -1, NULL, AOTICACHE_STRIDES_FREE, NULL}

typedef struct aoticache_check aoticache_check;

/*
 * Compiles. Everything is copied.
 * Returns: OK; INVALID (a symbol that never stands alone, an empty range, a number of dimensions that does not fit the
 * stride rule, limits: tensor, dimension and value named); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_check_create(const aoticache_tensor_pattern *patterns, size_t tensor_count,
                                                      const aoticache_symbol *symbols, size_t symbol_count,
                                                      aoticache_check **ret_check, aoticache_error *ret_error);
/*
 * A check that exactly these tensors pass: all properties exact, every stride as given, also of dimensions of size 1.
 * Only the index of a device that is not the CPU and has none (-1) stays free. Data pointers and numel do not count.
 * Returns: OK; INVALID (more than 64 dimensions, negative numbers, dimensions without sizes or strides); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_check_create_exact(const aoticache_tensor_view *tensors, size_t tensor_count,
                                                            aoticache_check **ret_check, aoticache_error *ret_error);
AOTICACHE_API void aoticache_check_free(aoticache_check *check);

AOTICACHE_API size_t aoticache_check_num_tensors(const aoticache_check *check);

/*
 * Tens of nanoseconds; no memory, no lock. False also for another number of tensors. sizes and strides of a view with
 * dimensions must be there (aoticache_check_explain() says where they are not); data and numel are not looked at.
 */
AOTICACHE_API bool aoticache_check_passes(const aoticache_check *check, const aoticache_tensor_view *tensors,
                                          size_t tensor_count);
/* The same for tensors that lie elsewhere, as pointers. */
AOTICACHE_API bool aoticache_check_passes_each(const aoticache_check *check,
                                               const aoticache_tensor_view *const *tensors, size_t tensor_count);

/*
 * Why tensors do not pass: the first property that differs, with both values: "argument 1: size of dimension 0 is 5,
 * and must be 8", "argument 0: dtype is float64, and must be float32", "argument 1: size of dimension 2 is 7, and must
 * be 2*s0 = 6 (s0 is 3, from size 0 of argument 0)". What needs symbols that only later places give comes last. names:
 * of the arguments, may be NULL, and so may each; "argument 1 (weight): ...".
 * Returns: OK (they pass), INVALID with the message.
 */
AOTICACHE_API aoticache_status aoticache_check_explain(const aoticache_check *check,
                                                       const aoticache_tensor_view *tensors, size_t tensor_count,
                                                       const char *const *names, aoticache_error *ret_error);

/*
 * Specialised before general: negative where `a` is to be asked before `b`, positive the other way round, 0 where they
 * are equally special. A check that passes fewer tensors than another with properties of the same form comes first:
 * exact before symbolic before free, dependent symbols before independent ones, narrow ranges before wide ones. A total
 * preorder, fit for sorting.
 */
AOTICACHE_API int aoticache_check_compare(const aoticache_check *a, const aoticache_check *b);

/*
 * One line that parse() reads: "float32[s0, 4*s1, 8]@cpu, int64[*]{*}; s0=2..128, s1=0..%8". A tensor is its dtype
 * ("*": free), sizes ("[...]": free number), then, where they are not free, the strides ("{contiguous}",
 * "{channels_last}", "{4*s1, 1}"), the device ("@cpu", "@cuda:1"), " layout=strided", " grad=0", " keys=0x12". After
 * ";" the symbols that are not 0.. : "s0=2..128" a range ("2.." without end), "%8" a multiple. No text: no tensors.
 * docs/checks.md has the grammar.
 * Like snprintf: returns the length of the whole text, terminates, cuts off.
 */
AOTICACHE_API size_t aoticache_check_format(const aoticache_check *check, char *ret_text, size_t size);
/* The reverse. Returns: OK, INVALID (position, from 1, and what was expected; or what create() says), NO_MEMORY. */
AOTICACHE_API aoticache_status aoticache_check_parse(const char *text, aoticache_check **ret_check,
                                                     aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
