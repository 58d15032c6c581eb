/*
 * shim/tensors/convert: converts rows of elements of one dtype to another as PyTorch does.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_CONVERT_H
#define AOTICACHE_RUNTIME_SHIM_CONVERT_H

#include "runtime/shim/tensors/tensor.h"

/* The type of an element between reading and writing, wide enough for all dtypes that are read as it. */
enum shim_class {
    SHIM_CLASS_INT,        /* int64_t; also for bool */
    SHIM_CLASS_UINT,       /* uint64_t */
    SHIM_CLASS_FLOAT,      /* float; also for all smaller floating point dtypes */
    SHIM_CLASS_DOUBLE,     /* double */
    SHIM_CLASS_COMPLEX64,  /* float _Complex */
    SHIM_CLASS_COMPLEX128, /* double _Complex */
    SHIM_CLASS_BOOL,       /* uint8_t; only written */
    SHIM_CLASSES
};

typedef void (*shim_load)(size_t count, void *values, const char *source, ptrdiff_t stride);
typedef void (*shim_store)(size_t count, char *destination, ptrdiff_t stride, const void *values);
typedef void (*shim_change)(size_t count, void *to, const void *from);

struct shim_dtype_access {
    shim_load load;
    shim_store store;
    uint8_t load_class;
    uint8_t store_class;
};

/* Returns how elements of `dtype` are read and written; NULL if unsupported (float4_e2m1fn_x2, or not a dtype). */
const struct shim_dtype_access *aoticache_shim_dtype_access(int32_t dtype);
/* Returns the conversion from one class to another, BOOL only as target; NULL if there is nothing to do. */
shim_change aoticache_shim_class_change(enum shim_class to, enum shim_class from);

struct shim_conversion {
    uint32_t item_bytes; /* if both dtypes are equal: elements are copied unchanged; otherwise 0 */
    const struct shim_dtype_access *from;
    const struct shim_dtype_access *to;
    shim_change change;
};

/* Selects a conversion. False: no such conversion. */
bool aoticache_shim_conversion_select(int32_t to_dtype, int32_t from_dtype, struct shim_conversion *ret_conversion);
/* Converts a row. Strides in bytes; may be 0. Rows do not overlap, or are the same. */
void aoticache_shim_convert_row(const struct shim_conversion *conversion, size_t count, char *destination,
                                ptrdiff_t destination_stride, const char *source, ptrdiff_t source_stride);

#endif
