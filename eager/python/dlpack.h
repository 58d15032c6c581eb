/*
 * eager/python/dlpack: DLPack's structs (https://dmlc.github.io/dlpack/latest/) of versions before 1.0 and of 1.0.
 */
#ifndef AOTICACHE_EAGER_PYTHON_DLPACK_H
#define AOTICACHE_EAGER_PYTHON_DLPACK_H

#include <stdint.h>

typedef struct dlpack_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: contiguous */
    uint64_t byte_offset;
} dlpack_tensor;

/* DLManagedTensor. */
typedef struct dlpack_managed {
    dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct dlpack_managed *self);
} dlpack_managed;

/* DLManagedTensorVersioned, of version 1. */
typedef struct dlpack_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dlpack_versioned *self);
    uint64_t flags;
    dlpack_tensor tensor;
} dlpack_versioned;

enum { DLPACK_CPU = 1, DLPACK_CUDA_HOST = 3, DLPACK_READ_ONLY = 1 };

/* Names of unused and of used capsules: before 1.0, and of 1.0. */
extern const char *const runtime_dlpack_names[2][2];

/* Code and bits of each dtype that DLPack has. */
typedef struct dlpack_dtype {
    int32_t dtype;
    uint8_t code, bits;
} dlpack_dtype;

enum { DLPACK_DTYPE_COUNT = 21 };
extern const dlpack_dtype runtime_dlpack_dtypes[DLPACK_DTYPE_COUNT];

#endif
