/*
 * cache/request/request: a request: an operator, the metadata of its arguments, a device and an environment; and its key,
 * the SHA-256 of their canonical encoding (docs/formats/key.md specifies it byte by byte).
 *
 * A request is built by appending arguments in the order of the operator's schema. It contains no tensor data (except
 * digests of constants), no paths, hosts, users or times. Not thread-safe while it is built; afterwards it may be read from
 * any thread.
 *
 * Limits of a whole request: 65535 arguments and items of lists together, 255 keyword arguments, 255 environment pairs, an
 * encoding of 16 MiB. A call that exceeds a limit returns INVALID and changes nothing. Devices are kept in their canonical
 * form: "cpu:0" is "cpu" (index -1), and the CPU has no other index.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_CACHE_REQUEST_REQUEST_H
#define AOTICACHE_CACHE_REQUEST_REQUEST_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AOTICACHE_MAX_DIMS 64

/* A key: identifies a request. */
typedef aoticache_digest aoticache_key;

typedef struct aoticache_request aoticache_request;

/*
 * The properties of a tensor without its data. sizes and strides are in elements and not negative; a tensor has at most
 * 2^63-1 bytes, sizes of 0 counted as 1, and its strides span no more. strides NULL means contiguous: row-major, sizes of 0
 * counted as 1. Given strides are kept unchanged, including those of dimensions of size 0 or 1.
 */
typedef struct aoticache_tensor_metadata {
    int32_t dtype;  /* aoticache_dtype */
    int32_t layout; /* aoticache_layout */
    aoticache_device device;
    bool requires_grad;
    uint64_t dispatch_key_set; /* PyTorch's raw representation; 0 if the host has none */
    uint32_t ndim;             /* at most AOTICACHE_MAX_DIMS */
    const int64_t *sizes;
    const int64_t *strides;
} aoticache_tensor_metadata;

/* The kinds of argument; numbers are part of the encoding and never change. */
#define AOTICACHE_ARGUMENT_KIND_LIST(X)                                                 \
    X(NONE, none, 0)                                                                    \
    X(TENSOR, tensor, 1)                                                                \
    X(CONSTANT, constant, 2) /* a tensor whose data is part of the request: a weight */ \
    X(INT, int, 3)                                                                      \
    X(DOUBLE, double, 4)                                                                \
    X(BOOL, bool, 5)                                                                    \
    X(COMPLEX, complex, 6)                                                              \
    X(STRING, string, 7)                                                                \
    X(DEVICE, device, 8)                                                                \
    X(DTYPE, dtype, 9)                                                                  \
    X(LAYOUT, layout, 10)                                                               \
    X(MEMORY_FORMAT, memory_format, 11)                                                 \
    X(LIST, list, 12)

typedef enum aoticache_argument_kind {
#define AOTICACHE_ARGUMENT_KIND_ENUM(upper, lower, number) AOTICACHE_ARGUMENT_##upper = number,
    AOTICACHE_ARGUMENT_KIND_LIST(AOTICACHE_ARGUMENT_KIND_ENUM)
#undef AOTICACHE_ARGUMENT_KIND_ENUM
} aoticache_argument_kind;

/* One argument, as aoticache_request_argument() returns it and aoticache_request_add() takes it. All pointers are borrowed. */
typedef struct aoticache_argument {
    aoticache_argument_kind kind;
    const char *name; /* "" for a positional argument, otherwise the keyword */
    union {
        int64_t int_value; /* INT, and the number of a DTYPE, LAYOUT or MEMORY_FORMAT */
        double double_value;
        bool bool_value;
        double complex_value[2];
        const char *string_value;
        aoticache_device device_value;
        struct {
            aoticache_tensor_metadata metadata; /* TENSOR and CONSTANT; strides are never NULL in a request */
            aoticache_digest data_digest;       /* CONSTANT: SHA-256 of the data in row-major order */
            bool has_digest;                    /* CONSTANT: always true in a request */
            const void *data;                   /* CONSTANT: NULL if only its digest is known */
        } tensor;
        struct {
            const struct aoticache_argument *items; /* LIST: items have no names and are not lists themselves */
            size_t count;
        } list;
    } value;
} aoticache_argument;

/*
 * Creates a request. op: "namespace::name" or "namespace::name.overload", each a word of letters, digits and '_'; at most
 *     255 bytes. An operator without overload has none, not "default".
 * device: the device the kernel is for.
 * Returns: OK, INVALID (ret_error has the reason), NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_request_create(const char *op, aoticache_device device,
                                                        aoticache_request **ret_request, aoticache_error *ret_error);
AOTICACHE_API void aoticache_request_free(aoticache_request *request);

/*
 * Appends one argument, which is copied; also one of another request. The name is NULL or "" for a positional argument,
 * otherwise a keyword: letters, digits and '_', not beginning with a digit, at most 255 bytes, each keyword once; positional
 * arguments cannot follow keyword ones. Items of lists have no names, and lists do not nest.
 *
 * CONSTANT: the data is compiled in. value.tensor.data has numel * element size bytes in row-major order, borrowed until the
 *     request is freed (compile hooks read it; may be NULL for a request that is only looked up). Without has_digest the
 *     digest is computed from it. The layout must be strided.
 * DOUBLE, COMPLEX: all NaNs have the same encoding; -0.0 and 0.0 are different values.
 * STRING: UTF-8 without a zero byte, at most 65536 bytes.
 *
 * Returns: OK, INVALID (nothing is appended; ret_error names the argument by its position, from 0, and what is
 * wrong), NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_request_add(aoticache_request *request, const aoticache_argument *argument,
                                                     aoticache_error *ret_error);

/*
 * Add a list step by step: what is added between these calls becomes its items. It counts as an argument from end_list on.
 * Return as aoticache_request_add().
 */
AOTICACHE_API aoticache_status aoticache_request_begin_list(aoticache_request *request, const char *name,
                                                            aoticache_error *ret_error);
AOTICACHE_API aoticache_status aoticache_request_end_list(aoticache_request *request, aoticache_error *ret_error);

/* ---- one function for each kind, which calls aoticache_request_add() ---- */

static inline aoticache_status aoticache_request_add_none(aoticache_request *request, const char *name,
                                                          aoticache_error *ret_error)
{
    const aoticache_argument argument = {AOTICACHE_ARGUMENT_NONE, name, {0}};
    return aoticache_request_add(request, &argument, ret_error);
}

static inline aoticache_status aoticache_request_add_tensor(aoticache_request *request, const char *name,
                                                            const aoticache_tensor_metadata *metadata,
                                                            aoticache_error *ret_error)
{
    aoticache_argument argument = {AOTICACHE_ARGUMENT_TENSOR, name, {0}};
    if (metadata != NULL)
        argument.value.tensor.metadata = *metadata;
    return aoticache_request_add(request, metadata != NULL ? &argument : NULL, ret_error);
}

/* data_digest: the digest of the data, or NULL to have it computed. */
static inline aoticache_status aoticache_request_add_constant(aoticache_request *request, const char *name,
                                                              const aoticache_tensor_metadata *metadata,
                                                              const void *data, const aoticache_digest *data_digest,
                                                              aoticache_error *ret_error)
{
    aoticache_argument argument = {AOTICACHE_ARGUMENT_CONSTANT, name, {0}};
    if (metadata != NULL)
        argument.value.tensor.metadata = *metadata;
    if (data_digest != NULL)
        argument.value.tensor.data_digest = *data_digest;
    argument.value.tensor.has_digest = data_digest != NULL;
    argument.value.tensor.data = data;
    return aoticache_request_add(request, metadata != NULL ? &argument : NULL, ret_error);
}

static inline aoticache_status aoticache_request_add_int(aoticache_request *request, const char *name, int64_t value,
                                                         aoticache_error *ret_error)
{
    const aoticache_argument argument = {AOTICACHE_ARGUMENT_INT, name, {value}};
    return aoticache_request_add(request, &argument, ret_error);
}

static inline aoticache_status aoticache_request_add_double(aoticache_request *request, const char *name, double value,
                                                            aoticache_error *ret_error)
{
    aoticache_argument argument = {AOTICACHE_ARGUMENT_DOUBLE, name, {0}};
    argument.value.double_value = value;
    return aoticache_request_add(request, &argument, ret_error);
}

static inline aoticache_status aoticache_request_add_bool(aoticache_request *request, const char *name, bool value,
                                                          aoticache_error *ret_error)
{
    aoticache_argument argument = {AOTICACHE_ARGUMENT_BOOL, name, {0}};
    argument.value.bool_value = value;
    return aoticache_request_add(request, &argument, ret_error);
}

static inline aoticache_status aoticache_request_add_complex(aoticache_request *request, const char *name, double real,
                                                             double imaginary, aoticache_error *ret_error)
{
    aoticache_argument argument = {AOTICACHE_ARGUMENT_COMPLEX, name, {0}};
    argument.value.complex_value[0] = real;
    argument.value.complex_value[1] = imaginary;
    return aoticache_request_add(request, &argument, ret_error);
}

static inline aoticache_status aoticache_request_add_string(aoticache_request *request, const char *name,
                                                            const char *value, aoticache_error *ret_error)
{
    aoticache_argument argument = {AOTICACHE_ARGUMENT_STRING, name, {0}};
    argument.value.string_value = value;
    return aoticache_request_add(request, &argument, ret_error);
}

static inline aoticache_status aoticache_request_add_device(aoticache_request *request, const char *name,
                                                            aoticache_device value, aoticache_error *ret_error)
{
    aoticache_argument argument = {AOTICACHE_ARGUMENT_DEVICE, name, {0}};
    argument.value.device_value = value;
    return aoticache_request_add(request, &argument, ret_error);
}

static inline aoticache_status aoticache_request_add_dtype(aoticache_request *request, const char *name, int32_t value,
                                                           aoticache_error *ret_error)
{
    const aoticache_argument argument = {AOTICACHE_ARGUMENT_DTYPE, name, {value}};
    return aoticache_request_add(request, &argument, ret_error);
}

static inline aoticache_status aoticache_request_add_layout(aoticache_request *request, const char *name, int32_t value,
                                                            aoticache_error *ret_error)
{
    const aoticache_argument argument = {AOTICACHE_ARGUMENT_LAYOUT, name, {value}};
    return aoticache_request_add(request, &argument, ret_error);
}

static inline aoticache_status aoticache_request_add_memory_format(aoticache_request *request, const char *name,
                                                                   int32_t value, aoticache_error *ret_error)
{
    const aoticache_argument argument = {AOTICACHE_ARGUMENT_MEMORY_FORMAT, name, {value}};
    return aoticache_request_add(request, &argument, ret_error);
}

/* ---- the environment ---- */

/*
 * Sets a pair of the environment: pairs of name and value that must be equal for machine code to be usable. Pairs are kept
 * sorted by name; setting a name again replaces its value. The architecture ("arch") is set at creation.
 * name: letters, digits, '_', '.' and '-', 1 to 63 bytes. value: UTF-8, at most 255 bytes.
 */
AOTICACHE_API aoticache_status aoticache_request_set_environment(aoticache_request *request, const char *name,
                                                                 const char *value, aoticache_error *ret_error);
/* Returns NULL if the name is not set. Borrowed until the next change of the request. */
AOTICACHE_API const char *aoticache_request_get_environment(const aoticache_request *request, const char *name);

/*
 * The pair of a dynamic request: one library serves it for many shapes, and its entries have guards
 * (docs/formats/key.md). A request without this pair is for exact shapes.
 */
#define AOTICACHE_SHAPES_NAME "shapes"
#define AOTICACHE_SHAPES_DYNAMIC "dynamic"

/*
 * For an operator that writes to its arguments: requests a library that writes to them too. The value says which
 * results it returns: "new": only those that are not arguments; "all": also the arguments that were written to, as
 * tensors with their own handles. Without the pair such an operator is refused.
 */
#define AOTICACHE_RESULTS_NAME "results"
#define AOTICACHE_RESULTS_NEW "new"
#define AOTICACHE_RESULTS_ALL "all"

/*
 * Requests a library that takes the schema's numbers at run time if the request has tensors for them (float64,
 * zero-dimensional). Otherwise they are compiled in, and the request has their values.
 */
#define AOTICACHE_NUMBERS_NAME "numbers"
#define AOTICACHE_NUMBERS_TENSORS "tensors"

/* ---- what a request consists of ---- */

typedef struct aoticache_request_info {
    const char *op;
    aoticache_device device;
    size_t argument_count, environment_count;
} aoticache_request_info;

/* Returns a struct that belongs to the request and changes with it. */
AOTICACHE_API const aoticache_request_info *aoticache_request_get_info(const aoticache_request *request);

static inline const char *aoticache_request_op(const aoticache_request *request)
{
    return aoticache_request_get_info(request)->op;
}

static inline aoticache_device aoticache_request_device(const aoticache_request *request)
{
    return aoticache_request_get_info(request)->device;
}

static inline size_t aoticache_request_argument_count(const aoticache_request *request)
{
    return aoticache_request_get_info(request)->argument_count;
}

static inline size_t aoticache_request_environment_count(const aoticache_request *request)
{
    return aoticache_request_get_info(request)->environment_count;
}

/* Returns an argument, borrowed until the next change of the request; NULL if there is no such argument. */
AOTICACHE_API const aoticache_argument *aoticache_request_argument(const aoticache_request *request, size_t position);

/* Computes the key. Returns: OK, INVALID (a list is still open), NO_MEMORY, UNSUPPORTED. */
AOTICACHE_API aoticache_status aoticache_request_key(const aoticache_request *request, aoticache_key *ret_key,
                                                     aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
