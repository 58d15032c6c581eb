/*
 * eager/value: names of kinds, and freeing the tensors that results own.
 */
#include "eager/value.h"
#include "loader/loader.h"

#include <stdlib.h>

static const char *const kind_names[] = {
#define KIND_NAME(upper, number, text) [number] = text,
    AOTICACHE_VALUE_KIND_LIST(KIND_NAME)
#undef KIND_NAME
};

const char *aoticache_value_kind_name(int32_t kind)
{
    size_t count = sizeof kind_names / sizeof kind_names[0];
    return kind >= 0 && (size_t)kind < count ? kind_names[kind] : "?";
}

static void free_output(aoticache_value *value)
{
    if (value->kind == AOTICACHE_VALUE_OUTPUT)
        aoticache_tensor_free(value->as.output);
    if (value->kind == AOTICACHE_VALUE_OUTPUT_LIST) {
        for (uint32_t i = 0; i < value->count; i++)
            aoticache_tensor_free(value->as.outputs[i]);
        free(value->as.outputs);
    }
    *value = (aoticache_value){.kind = AOTICACHE_VALUE_NONE};
}

void aoticache_stack_drop(aoticache_stack *stack, size_t from)
{
    while (stack->count > from)
        free_output(&stack->values[--stack->count]);
}
