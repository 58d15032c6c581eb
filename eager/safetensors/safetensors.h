/*
 * eager/safetensors/safetensors: files of weights as people have them: a JSON header and raw bytes.
 *
 * Source: the format's description, https://huggingface.co/docs/safetensors ("Format").
 *
 * For model/ and package/; nobody else needs it.
 */
#ifndef AOTICACHE_EAGER_SAFETENSORS_SAFETENSORS_H
#define AOTICACHE_EAGER_SAFETENSORS_SAFETENSORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

#define AOTICACHE_SAFETENSOR_MAX_DIMS 64
/* Of what may be used where it lies: PyTorch generates vector loads that need none, scalars need that of their type. */
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
    void *mapping; /* of the file, or of memory with its bytes */
    size_t size;   /* of the mapping */
    json_t *header;
    aoticache_safetensor *tensors; /* by name */
    size_t count;
    void **copies; /* what could not be used where it lies */
    size_t copy_count, copy_capacity;
} aoticache_safetensors;

/*
 * Reads the file into memory, or maps it, private and writable; and reads its header, which is untrusted.
 * Returns: OK; INVALID (not such a file, damaged, truncated or growing shorter: what is wrong is named); UNSUPPORTED (a
 * dtype that is not known); NOT_FOUND (no such file); DENIED, IO, NO_MEMORY.
 */
aoticache_status aoticache_safetensors_open(const char *path, bool map, aoticache_safetensors *ret_file,
                                            aoticache_error *ret_error);
/* The same from bytes that stay the caller's; *ret_file is all zero before. name: for messages. */
aoticache_status aoticache_safetensors_read(const char *name, char *bytes, size_t size, aoticache_safetensors *ret_file,
                                            aoticache_error *ret_error);
void aoticache_safetensors_close(aoticache_safetensors *file);
/* Memory for the copy of a tensor, until the file is closed. NULL: out of memory. */
char *aoticache_safetensors_allocate(aoticache_safetensors *file, uint64_t bytes);
/* NULL: there is none. */
const aoticache_safetensor *aoticache_safetensors_find(const aoticache_safetensors *file, const char *name);

#endif
