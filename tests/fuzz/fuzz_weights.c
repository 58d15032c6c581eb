/*
 * tests/fuzz/fuzz_weights: any bytes as a .safetensors file and as a list of weights. Accepted tensors are within the
 * file, and have as many bytes as their sizes require.
 */
#include "base/names.h"
#include "eager/model/model_internal.h"

#include <stdlib.h>
#include <string.h>

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void judge_message(aoticache_status status, const aoticache_error *error)
{
    require(error->status == status && error->message[0] != '\0' && strpbrk(error->message, "\n\r\x1b") == NULL);
}

static void judge_tensor(const aoticache_safetensors *file, const aoticache_safetensor *tensor, const char *bytes,
                         size_t size)
{
    uint64_t elements = 1;
    require(tensor->name != NULL && tensor->ndim >= 0 && tensor->ndim <= AOTICACHE_MODEL_MAX_DIMS);
    for (int64_t d = 0; d < tensor->ndim; d++) {
        require(tensor->sizes[d] >= 0);
        elements *= (uint64_t)tensor->sizes[d];
    }
    require(elements * (uint64_t)aoticache_dtype_size(tensor->dtype) == tensor->bytes && tensor->bytes <= size);
    require(tensor->bytes == 0 || (tensor->data >= bytes && tensor->data + tensor->bytes <= bytes + size));
    require(aoticache_safetensors_find(file, tensor->name) == tensor);
}

static void read_file(const uint8_t *bytes, size_t size)
{
    aoticache_safetensors file = {.mapping = NULL};
    aoticache_error error = {.message = ""};
    char *copy = malloc(size + 1);
    require(copy != NULL);
    memcpy(copy, bytes, size);
    aoticache_status status = aoticache_safetensors_read("fuzzed.safetensors", copy, size, &file, &error);
    for (size_t i = 0; status == AOTICACHE_OK && i < file.count; i++)
        judge_tensor(&file, &file.tensors[i], copy, size);
    if (status == AOTICACHE_OK)
        aoticache_safetensors_close(&file);
    else
        judge_message(status, &error);
    free(copy);
}

static void read_list(const uint8_t *bytes, size_t size)
{
    aoticache_model_tensors list;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_model_tensors_parse((const char *)bytes, size, &list, &error);
    for (size_t i = 0; status == AOTICACHE_OK && i < list.count; i++) {
        const aoticache_model_place *place = &list.places[i];
        uint64_t span;
        require(place->tensor.name != NULL && place->tensor.is_stored == (place->file != NULL));
        require(aoticache_model_span(place->tensor.dtype, place->tensor.ndim, place->tensor.sizes,
                                     place->tensor.strides, &span));
        require(span == place->tensor.bytes && (place->file == NULL || strchr(place->file, '/') == NULL));
    }
    if (status == AOTICACHE_OK)
        aoticache_model_tensors_free(&list);
    else
        judge_message(status, &error);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    read_file(bytes, size);
    read_list(bytes, size);
    return 0;
}
