/*
 * eager/holder/pack: packs arguments of any kind. Packing is most of the cost of a hit in addition to the kernel: each value is
 * written with a few stores, and the hash (XXH3, from xxHash's header) reads the words once. holder_hot.h packs tensors and
 * numbers inline.
 */
#include "eager/holder/holder_hot.h"

#include <string.h>

/* Each function writes at `at` and returns the position after it; NULL if it does not fit before `end`, or no kernel takes it. */

static uint64_t *pack_tensor(const aoticache_tensor_view *view, uint64_t *at, const uint64_t *end)
{
    if (view != NULL)
        return aoticache_pack_tensor(view, at, end);
    if (at >= end)
        return NULL;
    *at = aoticache_pack_head(AOTICACHE_VALUE_NONE, 0);
    return at + 1;
}

static uint64_t *pack_tensors(const aoticache_value *value, uint64_t *at, const uint64_t *end)
{
    if (at >= end)
        return NULL;
    *at++ = aoticache_pack_head(AOTICACHE_VALUE_TENSOR_LIST, value->count);
    for (uint32_t i = 0; i < value->count && at != NULL; i++)
        at = pack_tensor(value->as.tensors[i], at, end);
    return at;
}

static uint64_t *pack_text(const char *text, uint64_t *at, const uint64_t *end)
{
    size_t length = strlen(text), words = (length + 7) / 8;
    if ((size_t)(end - at) < 1 + words)
        return NULL;
    at[0] = aoticache_pack_head(AOTICACHE_VALUE_STRING, length);
    if (words > 0) {
        at[words] = 0;
        memcpy(at + 1, text, length);
    }
    return at + 1 + words;
}

/* Packs values that are neither lists nor tensors. */
static uint64_t *pack_scalar(const aoticache_value *value, uint64_t *at, const uint64_t *end)
{
    if (end - at < 3)
        return NULL;
    return value->kind == AOTICACHE_VALUE_STRING ? pack_text(value->as.string, at, end)
                                                 : aoticache_pack_number(value, at);
}

static uint64_t *pack_list(const aoticache_value *value, uint64_t *at, const uint64_t *end)
{
    uint32_t count = value->count;
    if (end - at < 1 || (size_t)(end - at) - 1 < count)
        return NULL;
    *at++ = aoticache_pack_head(value->kind, count);
    switch (value->kind) {
    case AOTICACHE_VALUE_INT_LIST:
        if (count > 0)
            memcpy(at, value->as.ints, count * sizeof *at);
        return at + count;
    case AOTICACHE_VALUE_DOUBLE_LIST:
        for (uint32_t i = 0; i < count; i++)
            at[i] = aoticache_pack_double_bits(value->as.doubles[i]);
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
    aoticache_pack_finish(ret_packed, at);
    return true;
}

/* ---- tensors ---- */

bool aoticache_pack_inputs(const aoticache_value *arguments, size_t count, AtenTensorHandle *ret_inputs,
                           size_t capacity, size_t *ret_count)
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
