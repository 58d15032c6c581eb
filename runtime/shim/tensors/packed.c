/*
 * shim/tensors/packed: weights that a compile has laid out for oneDNN, which Inductor's `freezing` does.
 *
 * Such a constant is stored in the library in oneDNN's memory layout, in blocks of channels, together with the bytes of
 * oneDNN's memory descriptor. Its elements are reordered once, when the constant is made, so that every operator can
 * read it with any version of oneDNN, or without it. The tensor still reports oneDNN's layout: as in PyTorch, no other
 * tensor can replace it.
 *
 * Source: ideep::tensor::desc's serialisation, and struct dnnl_memory_desc (oneDNN 3.12, src/common/memory_desc.hpp).
 */
#include "runtime/shim/tensors/elements.h"
#include "runtime/shim/torch_abi.h"

#include <string.h>

enum { MAX_NDIM = 12, ONEDNN_BLOCKED = 2 };

/* Offsets of the fields that are read from the 772 bytes that PyTorch 2.13 writes. */
enum {
    METADATA_BYTES = 772,
    AT_NDIM = 4,
    AT_SIZES = 8,
    AT_DTYPE = 104,
    AT_PADDED_SIZES = 112,
    AT_PADDED_OFFSETS = 208,
    AT_OFFSET = 304,
    AT_KIND = 312,
    AT_STRIDES = 320,
    AT_BLOCK_COUNT = 416,
    AT_BLOCKS = 424,
    AT_BLOCK_DIMENSIONS = 520,
    AT_FLAGS = 640
};

struct layout {
    int32_t ndim, block_count;
    int64_t sizes[MAX_NDIM], padded[MAX_NDIM], strides[MAX_NDIM];
    int64_t blocks[MAX_NDIM], block_dimensions[MAX_NDIM];
};

static int32_t number_at(const uint8_t *metadata, int at)
{
    int32_t number;
    memcpy(&number, metadata + at, sizeof number);
    return number;
}

static void numbers_at(const uint8_t *metadata, int at, int64_t ret_numbers[MAX_NDIM])
{
    memcpy(ret_numbers, metadata + at, MAX_NDIM * sizeof *ret_numbers);
}

static bool is_zero(const uint8_t *metadata, int at, int bytes)
{
    while (bytes > 0 && metadata[at + bytes - 1] == 0)
        bytes--;
    return bytes == 0;
}

/* Returns oneDNN's number for a dtype; 0: packed weights do not have this dtype. */
static int32_t onednn_dtype(int32_t dtype)
{
    switch (dtype) {
    case AOTICACHE_DTYPE_FLOAT16:
        return 1;
    case AOTICACHE_DTYPE_BFLOAT16:
        return 2;
    case AOTICACHE_DTYPE_FLOAT32:
        return 3;
    case AOTICACHE_DTYPE_INT8:
        return 5;
    default:
        return 0;
    }
}

/*
 * Returns whether the flags of an int8 weight are supported. Flags 1 and 8 stand for sums for signed inputs and for
 * inputs with a zero point, which are stored after the elements and not needed. With other flags the elements are not
 * those of the weight.
 */
static bool are_flags_known(const uint8_t *metadata, int32_t dtype)
{
    int32_t flags = number_at(metadata, AT_FLAGS);
    return is_zero(metadata, AT_FLAGS + 4, 4) && (flags & ~(dtype == AOTICACHE_DTYPE_INT8 ? 1 | 8 : 0)) == 0;
}

/* Returns whether sizes, blocks and strides keep each element inside of the padded tensor. */
static bool is_sound(const struct layout *l, int64_t numel)
{
    int64_t elements = 1, room = 1, inner[MAX_NDIM], reach = 0, block = 1;
    for (int d = 0; d < l->ndim; d++) {
        inner[d] = 1;
        if (l->sizes[d] < 1 || l->padded[d] < l->sizes[d] || l->strides[d] < 0 ||
            __builtin_mul_overflow(elements, l->sizes[d], &elements) ||
            __builtin_mul_overflow(room, l->padded[d], &room))
            return false;
    }
    for (int k = 0; k < l->block_count; k++) {
        if (l->block_dimensions[k] < 0 || l->block_dimensions[k] >= l->ndim || l->blocks[k] < 1 ||
            __builtin_mul_overflow(block, l->blocks[k], &block))
            return false;
        inner[l->block_dimensions[k]] *= l->blocks[k];
    }
    for (int d = 0; d < l->ndim; d++) {
        int64_t step;
        if (l->padded[d] % inner[d] != 0 || __builtin_mul_overflow(l->padded[d] / inner[d] - 1, l->strides[d], &step) ||
            __builtin_add_overflow(reach, step, &reach))
            return false;
    }
    return elements == numel && !__builtin_add_overflow(reach, block, &reach) && reach <= room;
}

static AOTITorchError read_layout(const char *function, int32_t dtype, int64_t numel, const uint8_t *metadata,
                                  int64_t bytes, struct layout *ret_layout)
{
    struct layout *l = ret_layout;
    if (metadata == NULL || bytes != METADATA_BYTES)
        return aoticache_shim_fail("%s: a weight in oneDNN's layout with a description of %lld bytes; only that "
                                   "of PyTorch 2.13, of %d bytes, is supported: compile without freezing, or with "
                                   "PyTorch 2.13, or run it with PyTorch in the process",
                                   function, (long long)bytes, METADATA_BYTES);
    l->ndim = number_at(metadata, AT_NDIM);
    l->block_count = number_at(metadata, AT_BLOCK_COUNT);
    numbers_at(metadata, AT_SIZES, l->sizes);
    numbers_at(metadata, AT_PADDED_SIZES, l->padded);
    numbers_at(metadata, AT_STRIDES, l->strides);
    numbers_at(metadata, AT_BLOCKS, l->blocks);
    numbers_at(metadata, AT_BLOCK_DIMENSIONS, l->block_dimensions);
    if (number_at(metadata, AT_KIND) != ONEDNN_BLOCKED || onednn_dtype(dtype) == 0 ||
        number_at(metadata, AT_DTYPE) != onednn_dtype(dtype) || !are_flags_known(metadata, dtype) ||
        !is_zero(metadata, AT_OFFSET, sizeof(int64_t)) ||
        !is_zero(metadata, AT_PADDED_OFFSETS, MAX_NDIM * sizeof(int64_t)) || l->ndim < 1 || l->ndim > MAX_NDIM ||
        l->block_count < 0 || l->block_count > MAX_NDIM || !is_sound(l, numel))
        return aoticache_shim_fail("%s: a weight in an unsupported layout of oneDNN (kind %d, %d dimensions, "
                                   "dtype %d): compile without freezing, or run it with PyTorch in the process",
                                   function, (int)number_at(metadata, AT_KIND), (int)l->ndim, (int)dtype);
    return SHIM_SUCCESS;
}

/*
 * Returns the part of an element's position that comes from index `at` of dimension d: the sum over all dimensions is
 * the position.
 */
static int64_t place_of(const struct layout *l, int d, int64_t at)
{
    int64_t place = 0, step = 1;
    for (int k = l->block_count - 1; k >= 0; step *= l->blocks[k], k--) {
        if (l->block_dimensions[k] == d) {
            place += at % l->blocks[k] * step;
            at /= l->blocks[k];
        }
    }
    return place + at * l->strides[d];
}

/* Copies `count` elements, `steps` items apart from `from`. */
static void copy_line(char *to, const char *from, const int64_t *places, int64_t count, size_t item_bytes)
{
    if (item_bytes == sizeof(float))
        for (int64_t i = 0; i < count; i++)
            memcpy(to + (size_t)i * sizeof(float), from + places[i] * (ptrdiff_t)sizeof(float), sizeof(float));
    else
        for (int64_t i = 0; i < count; i++)
            memcpy(to + (size_t)i * item_bytes, from + places[i] * (ptrdiff_t)item_bytes, item_bytes);
}

/*
 * Chooses the order of dimensions. In the weight of a quantised linear layer, inputs x outputs, the inputs become
 * innermost. An LSTM's weight has the dimensions layers, directions, inputs, gates and units; its inputs become
 * innermost, as in PyTorch's own weight. Everything else is contiguous.
 */
static void choose_order(const struct layout *l, int32_t dtype, int ret_order[MAX_NDIM])
{
    bool is_linear = l->ndim == 2 && dtype == AOTICACHE_DTYPE_INT8;
    bool is_lstm = l->ndim == 5 && l->sizes[0] == 1 && l->sizes[1] == 1 && l->sizes[3] == 4;
    static const int lstm[] = {0, 1, 3, 4, 2};
    for (int d = 0; d < l->ndim; d++)
        ret_order[d] = is_linear ? 1 - d : is_lstm ? lstm[d] : d;
}

/* Writes all elements in the order of dimensions. False: out of memory. */
static bool unpack(const struct layout *l, const int order[MAX_NDIM], const char *from, size_t item_bytes, char *to)
{
    int64_t total = 0, *places[MAX_NDIM], at[MAX_NDIM] = {0};
    for (int d = 0; d < l->ndim; d++)
        total += l->sizes[d];
    int64_t *all = malloc((size_t)total * sizeof *all);
    if (all == NULL)
        return false;
    for (int i = 0, first = 0; i < l->ndim; first += (int)l->sizes[order[i]], i++) {
        places[i] = all + first;
        for (int64_t k = 0; k < l->sizes[order[i]]; k++)
            places[i][k] = place_of(l, order[i], k);
    }
    int last = l->ndim - 1;
    const int64_t line = l->sizes[order[last]];
    for (bool more = true; more; to += (size_t)line * item_bytes) {
        int64_t place = 0;
        for (int i = 0; i < last; i++)
            place += places[i][at[i]];
        copy_line(to, from + place * (ptrdiff_t)item_bytes, places[last], line, item_bytes);
        more = false;
        for (int i = last - 1; i >= 0 && !more; i--) {
            more = ++at[i] < l->sizes[order[i]];
            if (!more)
                at[i] = 0;
        }
    }
    free(all);
    return true;
}

/*
 * Computes strides of a tensor with `ndim` sizes over the ordered elements. The tensor has the layout's dimensions,
 * except a weight in groups: in PyTorch the groups are part of the outputs.
 */
static void order_strides(const struct layout *l, const int order[MAX_NDIM], int64_t ndim, const int64_t *sizes,
                          int64_t ret_strides[MAX_NDIM])
{
    int64_t stride = 1;
    for (int64_t i = ndim - 1; i >= 0; i--) {
        int64_t d = ndim == l->ndim ? order[i] : i;
        ret_strides[d] = stride;
        stride *= sizes[d];
    }
}

/* Makes a tensor of the ordered elements; `sizes`: as in PyTorch. */
static AOTITorchError make_unpacked(const char *function, const void *data, int64_t ndim, const int64_t *sizes,
                                    int32_t dtype, const uint8_t *metadata, int64_t metadata_bytes,
                                    AtenTensorHandle *ret_tensor)
{
    struct layout layout;
    struct shim_extent extent;
    int order[MAX_NDIM];
    int64_t strides[MAX_NDIM] = {0};
    const size_t item_bytes = shim_item_bytes(dtype);
    if (data == NULL || ndim < 1 || ndim > MAX_NDIM)
        return aoticache_shim_fail("%s: a weight in oneDNN's layout without data, or with %lld dimensions", function,
                                   (long long)ndim);
    if (aoticache_shim_measure(function, ndim, sizes, strides, 0, item_bytes, &extent) != SHIM_SUCCESS ||
        read_layout(function, dtype, extent.numel, metadata, metadata_bytes, &layout) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    choose_order(&layout, dtype, order);
    order_strides(&layout, order, ndim, sizes, strides);
    AtenTensorHandle tensor;
    if (aoticache_shim_tensor_empty(function, ndim, sizes, strides, dtype, &tensor) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    tensor->tensor->packed = calloc(1, sizeof *tensor->tensor->packed);
    if (tensor->tensor->packed == NULL || !unpack(&layout, order, data, item_bytes, tensor->tensor->data)) {
        aoti_torch_delete_tensor_object(tensor);
        return aoticache_shim_fail_memory(function, extent.storage_bytes);
    }
    *ret_tensor = tensor;
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_create_tensor_from_blob_v2(void *data, int64_t ndim, const int64_t *sizes,
                                                     const int64_t *strides, int64_t storage_offset, int32_t dtype,
                                                     int32_t device_type, int32_t device_index,
                                                     AtenTensorHandle *ret_tensor, int32_t layout,
                                                     const uint8_t *opaque_metadata, int64_t opaque_metadata_size)
{
    if (layout == AOTICACHE_LAYOUT_MKLDNN) {
        SHIM_CHECK_RESULT(ret_tensor);
        SHIM_TRY(aoticache_shim_check_options(__func__, dtype, device_type));
        return make_unpacked(__func__, data, ndim, sizes, dtype, opaque_metadata, opaque_metadata_size, ret_tensor);
    }
    SHIM_TRY(aoticache_shim_check_layout(__func__, layout));
    return aoti_torch_create_tensor_from_blob(data, ndim, sizes, strides, storage_offset, dtype, device_type,
                                              device_index, ret_tensor);
}
