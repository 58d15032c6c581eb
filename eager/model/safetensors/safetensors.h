/*
 * eager/model/safetensors/safetensors: reads .safetensors files of weights: a JSON header and raw bytes.
 *
 * Source: the format's description, https://huggingface.co/docs/safetensors ("Format").
 *
 * Used by model/ and package/ only.
 */
#ifndef AOTICACHE_EAGER_MODEL_SAFETENSORS_SAFETENSORS_H
#define AOTICACHE_EAGER_MODEL_SAFETENSORS_SAFETENSORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

#define AOTICACHE_SAFETENSOR_MAX_DIMS 64
/* Alignment of data that is used without a copy. PyTorch's vector loads need none; scalars need that of their type. */
#define AOTICACHE_SAFETENSOR_ALIGNMENT 16

typedef struct aoticache_safetensor {
    const char *name; /* borrowed from the header */
    int32_t dtype;
    int64_t ndim;
    int64_t sizes[AOTICACHE_SAFETENSOR_MAX_DIMS];
    char *data; /* in the mapping: contiguous */
    uint64_t bytes;
} aoticache_safetensor;

typedef struct aoticache_safetensors {
    void *mapping; /* of the file, or memory with its bytes */
    size_t size;   /* of the mapping */
    json_t *header;
    aoticache_safetensor *tensors; /* by name */
    size_t count;
    void **copies; /* copies of tensors that could not be used in the mapping */
    size_t copy_count, copy_capacity;
} aoticache_safetensors;

/*
 * Reads the file into memory, or maps it, private and writable. Then reads its header, which is untrusted.
 * Returns: OK; INVALID (another format, damaged, truncated or shrinking: the fault is named); UNSUPPORTED (an unknown dtype);
 * NOT_FOUND (no such file); DENIED, IO, NO_MEMORY.
 */
aoticache_status aoticache_safetensors_open(const char *path, bool map, aoticache_safetensors *ret_file,
                                            aoticache_error *ret_error);
/* Reads from bytes that the caller still owns; *ret_file must be all zero before the call. name: for messages. */
aoticache_status aoticache_safetensors_read(const char *name, char *bytes, size_t size, aoticache_safetensors *ret_file,
                                            aoticache_error *ret_error);
void aoticache_safetensors_close(aoticache_safetensors *file);
/* Allocates memory for the copy of a tensor, until the file is closed. NULL: out of memory. */
char *aoticache_safetensors_allocate(aoticache_safetensors *file, uint64_t bytes);
/* Returns the tensor of that name, or NULL. */
const aoticache_safetensor *aoticache_safetensors_find(const aoticache_safetensors *file, const char *name);

#endif
