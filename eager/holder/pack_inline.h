/*
 * eager/holder/pack_inline: how values become words (pack.h), inline: for pack.c, and for the hits of bindings, where a few
 * functions less on the way can be measured.
 *
 * Private. Each writes at `at` and returns what is behind; NULL where it does not fit before `end` or is no kernel's.
 */
#ifndef AOTICACHE_EAGER_HOLDER_PACK_INLINE_H
#define AOTICACHE_EAGER_HOLDER_PACK_INLINE_H

#include "eager/dispatch/dispatch_key_list.h"
#include "eager/holder/pack.h"

#include <string.h>

#define XXH_INLINE_ALL
#define XXH_NO_STREAM
#include <xxhash.h>

/* kind in the lowest byte, the rest as the kind has it. */
static inline uint64_t aoticache_pack_head(int32_t kind, uint64_t rest)
{
    return (uint64_t)(uint8_t)kind | rest << 8;
}

static inline uint64_t aoticache_pack_device_bits(aoticache_device device)
{
    /* "cpu" and "cpu:0" are the same device. */
    int32_t index = device.type == AOTICACHE_DEVICE_TYPE_CPU ? -1 : device.index;
    return (uint64_t)(uint8_t)device.type | (uint64_t)(uint16_t)(index + 1) << 8;
}

/* Every NaN is the same value, as in a request. */
static inline uint64_t aoticache_pack_double_bits(double value)
{
    uint64_t bits;
    if (value != value)
        return UINT64_C(0x7ff8000000000000);
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Strides that follow from the sizes are not written. */
static inline bool aoticache_pack_is_contiguous(const int64_t *sizes, const int64_t *strides, size_t ndim)
{
    uint64_t expected = 1;
    for (size_t i = ndim; i-- > 0;) {
        if ((uint64_t)strides[i] != expected)
            return false;
        expected *= sizes[i] > 0 ? (uint64_t)sizes[i] : 1;
    }
    return true;
}

/* Keys of tensors whose memory does not hold their values: a compiled kernel reads the memory. */
#define AOTICACHE_PACK_KEY_BIT(functionality) (UINT64_C(1) << (AOTICACHE_DISPATCH_BACKENDS - 1 + (functionality)))
#define AOTICACHE_PACK_LAZY_KEYS                                        \
    (AOTICACHE_PACK_KEY_BIT(AOTICACHE_DISPATCH_KEY_Conjugate) |         \
     AOTICACHE_PACK_KEY_BIT(AOTICACHE_DISPATCH_KEY_Negative) |          \
     AOTICACHE_PACK_KEY_BIT(AOTICACHE_DISPATCH_KEY_ZeroTensor))

static inline uint64_t *aoticache_pack_tensor(const aoticache_tensor_view *view, uint64_t *at, const uint64_t *end)
{
    size_t ndim = (size_t)view->ndim; /* a negative one is too large */
    if (view->layout != AOTICACHE_LAYOUT_STRIDED || ndim > AOTICACHE_MAX_DIMS || (size_t)(end - at) < 2 + 2 * ndim ||
        ((uint32_t)view->dtype | (uint32_t)view->device.type) > UINT8_MAX ||
        (view->dispatch_key_set & AOTICACHE_PACK_LAZY_KEYS) != 0)
        return NULL;
    bool contiguous = aoticache_pack_is_contiguous(view->sizes, view->strides, ndim);
    uint64_t rest = (uint64_t)ndim | (uint64_t)(uint8_t)view->dtype << 8 | (uint64_t)view->requires_grad << 16 |
                    (uint64_t)contiguous << 17 | aoticache_pack_device_bits(view->device) << 24;
    at[0] = aoticache_pack_head(AOTICACHE_VALUE_TENSOR, rest);
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

/* Of numbers, truths, and what is absent; three words are there. */
static inline uint64_t *aoticache_pack_number(const aoticache_value *value, uint64_t *at)
{
    at[0] = aoticache_pack_head(value->kind, 0);
    switch (value->kind) {
    case AOTICACHE_VALUE_NONE:
        return at + 1;
    case AOTICACHE_VALUE_BOOL:
        at[0] = aoticache_pack_head(value->kind, value->as.bool_value);
        return at + 1;
    case AOTICACHE_VALUE_DEVICE:
        at[0] = aoticache_pack_head(value->kind, aoticache_pack_device_bits(value->as.device));
        return at + 1;
    case AOTICACHE_VALUE_INT:
    case AOTICACHE_VALUE_DTYPE:
    case AOTICACHE_VALUE_LAYOUT:
    case AOTICACHE_VALUE_MEMORY_FORMAT:
        at[1] = (uint64_t)value->as.int_value;
        return at + 2;
    case AOTICACHE_VALUE_DOUBLE:
        at[1] = aoticache_pack_double_bits(value->as.double_value);
        return at + 2;
    case AOTICACHE_VALUE_COMPLEX:
        at[1] = aoticache_pack_double_bits(value->as.complex_value[0]);
        at[2] = aoticache_pack_double_bits(value->as.complex_value[1]);
        return at + 3;
    default:
        return NULL;
    }
}

/* The words are complete up to `at`. */
static inline void aoticache_pack_finish(aoticache_packed *packed, const uint64_t *at)
{
    packed->count = (uint32_t)(at - packed->words);
    packed->hash = XXH3_64bits(packed->words, packed->count * sizeof *at);
}

/*
 * As aoticache_pack(), for arguments that are tensors and numbers only; false also where there are others, which
 * aoticache_pack() must then be asked about.
 */
static inline bool aoticache_pack_plainly(const aoticache_value *arguments, size_t count, aoticache_packed *ret_packed)
{
    uint64_t *at = ret_packed->words;
    const uint64_t *end = at + AOTICACHE_PACK_MAX_WORDS;
    ret_packed->requires_grad = false;
    for (size_t i = 0; i < count; i++) {
        const aoticache_value *value = &arguments[i];
        if (value->kind == AOTICACHE_VALUE_TENSOR) {
            if (value->as.tensor == NULL)
                return false;
            ret_packed->requires_grad |= value->as.tensor->requires_grad;
            at = aoticache_pack_tensor(value->as.tensor, at, end);
        } else {
            at = end - at < 3 ? NULL : aoticache_pack_number(value, at);
        }
        if (at == NULL)
            return false;
    }
    aoticache_pack_finish(ret_packed, at);
    return true;
}

#endif
