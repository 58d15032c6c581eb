/*
 * eager/pack: see pack.h. This is most of what a hit costs besides the kernel: each value is written in a few stores, and
 * the hash (XXH3, from xxHash's header) reads the words once.
 */
#include "eager/pack.h"
#include "eager/dispatch/dispatch_key_list.h"

#include <string.h>

#define XXH_INLINE_ALL
#define XXH_NO_STREAM
#include <xxhash.h>

/* ---- words ---- */

/* kind in the lowest byte, the rest as the kind has it. */
static uint64_t head(int32_t kind, uint64_t rest)
{
    return (uint64_t)(uint8_t)kind | rest << 8;
}

static uint64_t device_bits(aoticache_device device)
{
    /* "cpu" and "cpu:0" are the same device. */
    int32_t index = device.type == AOTICACHE_DEVICE_TYPE_CPU ? -1 : device.index;
    return (uint64_t)(uint8_t)device.type | (uint64_t)(uint16_t)(index + 1) << 8;
}

/* Every NaN is the same value, as in a request. */
static uint64_t double_bits(double value)
{
    uint64_t bits;
    if (value != value)
        return UINT64_C(0x7ff8000000000000);
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- values ---- */

/* Each writes at `at` and returns what is behind; NULL where it does not fit before `end` or is no kernel's. */

/* Strides that follow from the sizes are not written. */
static bool has_contiguous_strides(const aoticache_tensor_view *view, size_t ndim)
{
    uint64_t expected = 1;
    for (size_t i = ndim; i-- > 0;) {
        if ((uint64_t)view->strides[i] != expected)
            return false;
        expected *= view->sizes[i] > 0 ? (uint64_t)view->sizes[i] : 1;
    }
    return true;
}

/* Keys of tensors whose memory does not hold their values: a compiled kernel reads the memory. */
#define KEY_BIT(functionality) (UINT64_C(1) << (AOTICACHE_DISPATCH_BACKENDS - 1 + (functionality)))
#define LAZY_KEYS                                                                       \
    (KEY_BIT(AOTICACHE_DISPATCH_KEY_Conjugate) | KEY_BIT(AOTICACHE_DISPATCH_KEY_Negative) | \
     KEY_BIT(AOTICACHE_DISPATCH_KEY_ZeroTensor))

static uint64_t *pack_tensor(const aoticache_tensor_view *view, uint64_t *at, const uint64_t *end)
{
    if (view == NULL) {
        if (at >= end)
            return NULL;
        *at = head(AOTICACHE_VALUE_NONE, 0);
        return at + 1;
    }
    size_t ndim = (size_t)view->ndim; /* a negative one is too large */
    if (view->layout != AOTICACHE_LAYOUT_STRIDED || ndim > AOTICACHE_MAX_DIMS || (size_t)(end - at) < 2 + 2 * ndim ||
        ((uint32_t)view->dtype | (uint32_t)view->device.type) > UINT8_MAX ||
        (view->dispatch_key_set & LAZY_KEYS) != 0)
        return NULL;
    bool contiguous = has_contiguous_strides(view, ndim);
    at[0] = head(AOTICACHE_VALUE_TENSOR, (uint64_t)ndim | (uint64_t)(uint8_t)view->dtype << 8 |
                                             (uint64_t)view->requires_grad << 16 | (uint64_t)contiguous << 17 |
                                             device_bits(view->device) << 24);
    at[1] = view->dispatch_key_set;
    at += 2;
    for (size_t i = 0; i < ndim; i++)
        at[i] = (uint64_t)view->sizes[i];
    at += ndim;
    if (contiguous)
        return at;
    for (size_t i = 0; i < ndim; i++)
        at[i] = (uint64_t)view->strides[i];
    return at + ndim;
}

static uint64_t *pack_tensors(const aoticache_value *value, uint64_t *at, const uint64_t *end)
{
    if (at >= end)
        return NULL;
    *at++ = head(AOTICACHE_VALUE_TENSOR_LIST, value->count);
    for (uint32_t i = 0; i < value->count && at != NULL; i++)
        at = pack_tensor(value->as.tensors[i], at, end);
    return at;
}

static uint64_t *pack_text(const char *text, uint64_t *at, const uint64_t *end)
{
    size_t length = strlen(text), words = (length + 7) / 8;
    if ((size_t)(end - at) < 1 + words)
        return NULL;
    at[0] = head(AOTICACHE_VALUE_STRING, length);
    if (words > 0) {
        at[words] = 0;
        memcpy(at + 1, text, length);
    }
    return at + 1 + words;
}

/* Of values that are not lists and not tensors. */
static uint64_t *pack_scalar(const aoticache_value *value, uint64_t *at, const uint64_t *end)
{
    if (end - at < 3)
        return NULL;
    at[0] = head(value->kind, 0);
    switch (value->kind) {
    case AOTICACHE_VALUE_NONE:
        return at + 1;
    case AOTICACHE_VALUE_BOOL:
        at[0] = head(value->kind, value->as.bool_value);
        return at + 1;
    case AOTICACHE_VALUE_DEVICE:
        at[0] = head(value->kind, device_bits(value->as.device));
        return at + 1;
    case AOTICACHE_VALUE_INT:
    case AOTICACHE_VALUE_DTYPE:
    case AOTICACHE_VALUE_LAYOUT:
    case AOTICACHE_VALUE_MEMORY_FORMAT:
        at[1] = (uint64_t)value->as.int_value;
        return at + 2;
    case AOTICACHE_VALUE_DOUBLE:
        at[1] = double_bits(value->as.double_value);
        return at + 2;
    case AOTICACHE_VALUE_COMPLEX:
        at[1] = double_bits(value->as.complex_value[0]);
        at[2] = double_bits(value->as.complex_value[1]);
        return at + 3;
    case AOTICACHE_VALUE_STRING:
        return pack_text(value->as.string, at, end);
    default:
        return NULL;
    }
}

static uint64_t *pack_list(const aoticache_value *value, uint64_t *at, const uint64_t *end)
{
    uint32_t count = value->count;
    if (end - at < 1 || (size_t)(end - at) - 1 < count)
        return NULL;
    *at++ = head(value->kind, count);
    switch (value->kind) {
    case AOTICACHE_VALUE_INT_LIST:
        if (count > 0)
            memcpy(at, value->as.ints, count * sizeof *at);
        return at + count;
    case AOTICACHE_VALUE_DOUBLE_LIST:
        for (uint32_t i = 0; i < count; i++)
            at[i] = double_bits(value->as.doubles[i]);
        return at + count;
    case AOTICACHE_VALUE_BOOL_LIST:
        for (uint32_t i = 0; i < count; i++)
            at[i] = value->as.bools[i];
        return at + count;
    case AOTICACHE_VALUE_SCALAR_LIST:
        for (uint32_t i = 0; i < count && at != NULL; i++)
            at = pack_scalar(&value->as.scalars[i], at, end);
        return at;
    case AOTICACHE_VALUE_STRING_LIST:
        for (uint32_t i = 0; i < count && at != NULL; i++)
            at = pack_text(value->as.strings[i], at, end);
        return at;
    default:
        return NULL;
    }
}

static uint64_t *pack_value(const aoticache_value *value, uint64_t *at, const uint64_t *end, bool *requires_grad)
{
    switch (value->kind) {
    case AOTICACHE_VALUE_TENSOR:
        *requires_grad |= value->as.tensor != NULL && value->as.tensor->requires_grad;
        return pack_tensor(value->as.tensor, at, end);
    case AOTICACHE_VALUE_TENSOR_LIST:
        for (uint32_t i = 0; i < value->count; i++)
            *requires_grad |= value->as.tensors[i] != NULL && value->as.tensors[i]->requires_grad;
        return pack_tensors(value, at, end);
    case AOTICACHE_VALUE_INT_LIST:
    case AOTICACHE_VALUE_DOUBLE_LIST:
    case AOTICACHE_VALUE_BOOL_LIST:
    case AOTICACHE_VALUE_SCALAR_LIST:
    case AOTICACHE_VALUE_STRING_LIST:
        return pack_list(value, at, end);
    default:
        return pack_scalar(value, at, end);
    }
}

bool aoticache_pack(const aoticache_value *arguments, size_t count, aoticache_packed *ret_packed)
{
    uint64_t *at = ret_packed->words;
    ret_packed->requires_grad = false;
    const uint64_t *end = at + AOTICACHE_PACK_MAX_WORDS;
    for (size_t i = 0; i < count; i++)
        if ((at = pack_value(&arguments[i], at, end, &ret_packed->requires_grad)) == NULL)
            return false;
    ret_packed->count = (uint32_t)(at - ret_packed->words);
    ret_packed->hash = XXH3_64bits(ret_packed->words, ret_packed->count * sizeof *at);
    return true;
}

/* ---- tensors ---- */

bool aoticache_pack_inputs(const aoticache_value *arguments, size_t count, AtenTensorHandle *ret_inputs, size_t capacity,
                           size_t *ret_count)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        const aoticache_value *value = &arguments[i];
        bool is_list = value->kind == AOTICACHE_VALUE_TENSOR_LIST;
        uint32_t items = is_list ? value->count : value->kind == AOTICACHE_VALUE_TENSOR;
        for (uint32_t k = 0; k < items; k++) {
            const aoticache_tensor_view *view = is_list ? value->as.tensors[k] : value->as.tensor;
            if (view == NULL)
                continue;
            if (used == capacity)
                return false;
            ret_inputs[used++] = view->handle;
        }
    }
    *ret_count = used;
    return true;
}
