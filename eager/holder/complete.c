/*
 * eager/holder/complete: expands short forms of arguments: a tensor without strides is contiguous, an int for a float of the
 * schema is that float, as in PyTorch. A call that has a short form is made again with full forms, so that it finds the same
 * kernel. Calls that hit directly do not come here.
 */
#include "base/cleanup.h"
#include "eager/holder/holder_internal.h"

#include <stdlib.h>
#include <string.h>

static const aoticache_type *type_at(const aoticache_holder *holder, size_t position)
{
    const aoticache_type *type = holder->schema->arguments[position].type;
    return type->kind == AOTICACHE_TYPE_OPTIONAL ? type->elements[0] : type;
}

static bool is_float(const aoticache_type *type)
{
    return type->kind == AOTICACHE_TYPE_FLOAT || type->kind == AOTICACHE_TYPE_SYM_FLOAT;
}

static bool is_int_for_float(const aoticache_type *type, const aoticache_value *value)
{
    return value->kind == AOTICACHE_VALUE_INT_LIST ? type->kind == AOTICACHE_TYPE_LIST && is_float(type->elements[0])
                                                   : value->kind == AOTICACHE_VALUE_INT && is_float(type);
}

static bool lacks_strides(const aoticache_tensor_view *view)
{
    return view != NULL && view->strides == NULL && view->ndim > 0;
}

static bool lacks_any_strides(const aoticache_value *value)
{
    if (value->kind == AOTICACHE_VALUE_TENSOR)
        return lacks_strides(value->as.tensor);
    for (uint32_t i = 0; value->kind == AOTICACHE_VALUE_TENSOR_LIST && i < value->count; i++)
        if (lacks_strides(value->as.tensors[i]))
            return true;
    return false;
}

bool aoticache_holder_has_short_forms(const aoticache_holder *holder, const aoticache_value *arguments)
{
    for (size_t i = 0; i < holder->num_arguments; i++)
        if (lacks_any_strides(&arguments[i]) || is_int_for_float(type_at(holder, i), &arguments[i]))
            return true;
    return false;
}

/* Memory of the full forms, in blocks that are freed together. */
struct block {
    struct block *next;
    uint64_t bytes[];
};

static void *allocate(struct block **blocks, size_t count, size_t size)
{
    struct block *block = calloc(1, sizeof *block + count * size);
    if (block == NULL)
        return NULL;
    block->next = *blocks;
    *blocks = block;
    return block->bytes;
}

static void free_blocks(struct block *block)
{
    for (struct block *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
}

/* Returns the view with the strides of a contiguous tensor (docs/formats/key.md); NULL: no memory. */
static const aoticache_tensor_view *with_strides(const aoticache_tensor_view *view, struct block **blocks)
{
    aoticache_tensor_view *copy = allocate(blocks, 1, sizeof *copy);
    int64_t *strides = allocate(blocks, (size_t)view->ndim, sizeof *strides);
    uint64_t stride = 1;
    if (copy == NULL || strides == NULL)
        return NULL;
    for (int64_t i = view->ndim; i-- > 0;) {
        strides[i] = (int64_t)stride;
        stride *= view->sizes[i] > 0 ? (uint64_t)view->sizes[i] : 1;
    }
    *copy = *view;
    copy->strides = strides;
    return copy;
}

static bool spell_tensors(aoticache_value *value, struct block **blocks)
{
    if (value->kind == AOTICACHE_VALUE_TENSOR) {
        value->as.tensor = with_strides(value->as.tensor, blocks);
        return value->as.tensor != NULL;
    }
    const aoticache_tensor_view **tensors = allocate(blocks, value->count, sizeof *tensors);
    for (uint32_t i = 0; tensors != NULL && i < value->count; i++) {
        const aoticache_tensor_view *view = value->as.tensors[i];
        tensors[i] = lacks_strides(view) ? with_strides(view, blocks) : view;
        if (tensors[i] == NULL && view != NULL)
            return false;
    }
    value->as.tensors = tensors;
    return tensors != NULL;
}

static bool spell_floats(aoticache_value *value, struct block **blocks)
{
    if (value->kind == AOTICACHE_VALUE_INT) {
        *value = (aoticache_value){.kind = AOTICACHE_VALUE_DOUBLE, .as.double_value = (double)value->as.int_value};
        return true;
    }
    double *doubles = allocate(blocks, value->count, sizeof *doubles);
    for (uint32_t i = 0; doubles != NULL && i < value->count; i++)
        doubles[i] = (double)value->as.ints[i];
    value->kind = AOTICACHE_VALUE_DOUBLE_LIST;
    value->as.doubles = doubles;
    return doubles != NULL;
}

static bool spell_out(const aoticache_holder *holder, aoticache_value *arguments, struct block **blocks)
{
    for (size_t i = 0; i < holder->num_arguments; i++) {
        if (lacks_any_strides(&arguments[i]) && !spell_tensors(&arguments[i], blocks))
            return false;
        if (is_int_for_float(type_at(holder, i), &arguments[i]) && !spell_floats(&arguments[i], blocks))
            return false;
    }
    return true;
}

aoticache_status aoticache_holder_with_spelt_out(const aoticache_holder *holder, const aoticache_value *arguments,
                                                 aoticache_status (*use)(void *user, const aoticache_value *spelt,
                                                                         aoticache_error *ret_error),
                                                 void *user, aoticache_error *ret_error)
{
    struct block *blocks = NULL;
    aoticache_status status;
    aoticache_value *spelt = allocate(&blocks, holder->num_arguments, sizeof *spelt);
    if (spelt != NULL)
        memcpy(spelt, arguments, holder->num_arguments * sizeof *spelt);
    if (spelt == NULL || !spell_out(holder, spelt, &blocks))
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for its arguments", holder->op);
    else
        status = use(user, spelt, ret_error);
    free_blocks(blocks);
    return status;
}
