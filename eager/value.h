/*
 * eager/value: the C values that an operator takes and returns, and the stack that a boxed call works on.
 *
 * Tensors are described by views (base/tensor_view.h), which a binding fills from its own tensors: no data is copied,
 * and this library creates no tensor. If a kernel library is to run on the tensors, they must be tensors of this process's
 * provider (aoticache_torch_get()), because view.handle is passed to it. For a view on the CPU without a handle, a tensor
 * is created for the duration of the call.
 *
 * A value owns nothing except what it says it owns: its pointers are borrowed from the caller that set them. Not thread-safe
 * by itself.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_EAGER_VALUE_H
#define AOTICACHE_EAGER_VALUE_H

#include "base/base.h"
#include "base/tensor_view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Kind, number, text. */
#define AOTICACHE_VALUE_KIND_LIST(X)         \
    X(NONE, 0, "none")                       \
    X(TENSOR, 1, "tensor")                   \
    X(TENSOR_LIST, 2, "tensor list")         \
    X(INT, 3, "int")                         \
    X(DOUBLE, 4, "double")                   \
    X(BOOL, 5, "bool")                       \
    X(COMPLEX, 6, "complex")                 \
    X(STRING, 7, "string")                   \
    X(DEVICE, 8, "device")                   \
    X(DTYPE, 9, "dtype")                     \
    X(LAYOUT, 10, "layout")                  \
    X(MEMORY_FORMAT, 11, "memory format")    \
    X(INT_LIST, 12, "int list")              \
    X(DOUBLE_LIST, 13, "double list")        \
    X(BOOL_LIST, 14, "bool list")            \
    X(SCALAR_LIST, 15, "scalar list")        \
    X(STRING_LIST, 16, "string list")        \
    X(GENERATOR, 17, "generator")            \
    X(OUTPUT, 18, "output tensor")           \
    X(OUTPUT_LIST, 19, "output tensor list") \
    X(OTHER, 20, "object")

typedef enum aoticache_value_kind {
#define AOTICACHE_VALUE_KIND_ENUM(upper, number, text) AOTICACHE_VALUE_##upper = number,
    AOTICACHE_VALUE_KIND_LIST(AOTICACHE_VALUE_KIND_ENUM)
#undef AOTICACHE_VALUE_KIND_ENUM
} aoticache_value_kind;

/* An optional argument that is absent is NONE. GENERATOR and OTHER can be passed to a fallback, not to a kernel library. */
typedef struct aoticache_value {
    int32_t kind;   /* aoticache_value_kind */
    uint32_t count; /* of a list */
    union {
        const aoticache_tensor_view *tensor;         /* TENSOR */
        const aoticache_tensor_view *const *tensors; /* TENSOR_LIST: count pointers; NULL for an absent optional one */
        int64_t int_value;                           /* INT; the number of a DTYPE, LAYOUT, MEMORY_FORMAT */
        double double_value;
        bool bool_value;
        double complex_value[2]; /* real, imaginary */
        const char *string;
        aoticache_device device;
        const int64_t *ints;
        const double *doubles;
        const bool *bools;
        const struct aoticache_value *scalars; /* INT, DOUBLE, BOOL, COMPLEX */
        const char *const *strings;
        struct AtenTensorOpaque *output;   /* OUTPUT: the receiver frees it with aoticache_tensor_free() */
        struct AtenTensorOpaque **outputs; /* OUTPUT_LIST: likewise; the receiver frees the array with free() */
        void *object;                      /* GENERATOR, OTHER: owned by the binding */
    } as;
} aoticache_value;

/* Return a value, for the arguments and results of a boxed call. What a pointer points to is borrowed. */
static inline aoticache_value aoticache_value_of_tensor(const aoticache_tensor_view *tensor)
{
    aoticache_value value = {AOTICACHE_VALUE_TENSOR, 0, {tensor}};
    return value;
}

static inline aoticache_value aoticache_value_of_int(int64_t number)
{
    aoticache_value value = {AOTICACHE_VALUE_INT, 0, {NULL}};
    value.as.int_value = number;
    return value;
}

static inline aoticache_value aoticache_value_of_double(double number)
{
    aoticache_value value = {AOTICACHE_VALUE_DOUBLE, 0, {NULL}};
    value.as.double_value = number;
    return value;
}

static inline aoticache_value aoticache_value_of_bool(bool truth)
{
    aoticache_value value = {AOTICACHE_VALUE_BOOL, 0, {NULL}};
    value.as.bool_value = truth;
    return value;
}

/* Returns a value for a result. Its receiver frees the tensor with aoticache_tensor_free(). */
static inline aoticache_value aoticache_value_of_output(struct AtenTensorOpaque *output)
{
    aoticache_value value = {AOTICACHE_VALUE_OUTPUT, 0, {NULL}};
    value.as.output = output;
    return value;
}

AOTICACHE_API const char *aoticache_value_kind_name(
    int32_t kind); /* "tensor list"; "?" for a number that is not a kind. Static. */

/*
 * The stack of a boxed call: arguments in the order of the schema, the last on top. A call removes them and pushes its
 * results. values: the caller's array, with space for `capacity` values.
 */
typedef struct aoticache_stack {
    aoticache_value *values;
    size_t count, capacity;
} aoticache_stack;

/* Removes the values from position `from` on, and frees the tensors of OUTPUT and OUTPUT_LIST values among them. */
AOTICACHE_API void aoticache_stack_drop(aoticache_stack *stack, size_t from);

#ifdef __cplusplus
}
#endif
#endif
