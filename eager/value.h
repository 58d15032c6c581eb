/*
 * eager/value: everything an operator takes and gives, as C values, and the stack that a boxed call works on.
 *
 * Tensors are seen through views (base/tensor_view.h) that a binding fills from its own tensors: no
 * data is copied, no tensor of ours is made. The binding's tensors must be those of this process's provider where a
 * kernel library is to run on them (aoticache_torch_get()): view.handle is given to it. For a view on the CPU without a handle a
 * tensor is made for the time of the call.
 *
 * A value owns nothing but what it says: pointers are borrowed from whoever made it. Not thread-safe by itself.
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
        struct AtenTensorOpaque *output;   /* OUTPUT: the receiver's, to be freed with aoticache_tensor_free() */
        struct AtenTensorOpaque **outputs; /* OUTPUT_LIST: likewise, and the array with free() */
        void *object;                      /* GENERATOR, OTHER: the binding's */
    } as;
} aoticache_value;

AOTICACHE_API const char *aoticache_value_kind_name(
    int32_t kind); /* "tensor list"; "value 99" is static text too: "?" */

/*
 * The stack of a boxed call: arguments in the order of the schema, the last on top; a call takes them off and puts its
 * results on. values: the caller's, `capacity` places.
 */
typedef struct aoticache_stack {
    aoticache_value *values;
    size_t count, capacity;
} aoticache_stack;

/* Frees the tensors of OUTPUT and OUTPUT_LIST values from position `from` on and takes them off. */
AOTICACHE_API void aoticache_stack_drop(aoticache_stack *stack, size_t from);

#ifdef __cplusplus
}
#endif
#endif
