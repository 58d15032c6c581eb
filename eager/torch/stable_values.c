/*
 * eager/torch/stable_values: converts StableIValues into our values, by the schema: the meaning of each argument's 64 bits,
 * and who owns what they point to.
 *
 * An optional value is 0, or a pointer to 64 bits on the heap. A list is a handle for nothing except the 64 bits of its items:
 * reading an item creates no new handle of a tensor, and deleting the list deletes none. A device has its index in the lower
 * half and its type in the upper half.
 */
#include "eager/schema/schema_internal.h"
#include "eager/torch/stable.h"

#include <stdlib.h>
#include <string.h>

/* ---- the plan ---- */

static bool scalar_kind(const aoticache_type *type, uint8_t *ret_kind)
{
    static const uint8_t kinds[] = {
        [AOTICACHE_TYPE_TENSOR] = AOTICACHE_VALUE_TENSOR,
        [AOTICACHE_TYPE_INT] = AOTICACHE_VALUE_INT,
        [AOTICACHE_TYPE_SYM_INT] = AOTICACHE_VALUE_INT,
        [AOTICACHE_TYPE_FLOAT] = AOTICACHE_VALUE_DOUBLE,
        [AOTICACHE_TYPE_BOOL] = AOTICACHE_VALUE_BOOL,
        [AOTICACHE_TYPE_STRING] = AOTICACHE_VALUE_STRING,
        [AOTICACHE_TYPE_DEVICE] = AOTICACHE_VALUE_DEVICE,
        [AOTICACHE_TYPE_DTYPE] = AOTICACHE_VALUE_DTYPE,
        [AOTICACHE_TYPE_LAYOUT] = AOTICACHE_VALUE_LAYOUT,
        [AOTICACHE_TYPE_MEMORY_FORMAT] = AOTICACHE_VALUE_MEMORY_FORMAT,
    };
    if (type->kind >= sizeof kinds || kinds[type->kind] == AOTICACHE_VALUE_NONE)
        return false;
    *ret_kind = kinds[type->kind];
    return true;
}

static bool list_kind(const aoticache_type *element, aoticache_stable_form *form)
{
    form->has_gaps = element->kind == AOTICACHE_TYPE_OPTIONAL;
    if (form->has_gaps)
        element = element->elements[0];
    if (!scalar_kind(element, &form->element) || (form->has_gaps && form->element != AOTICACHE_VALUE_TENSOR))
        return false;
    switch (form->element) {
    case AOTICACHE_VALUE_TENSOR:
        form->kind = AOTICACHE_VALUE_TENSOR_LIST;
        return true;
    case AOTICACHE_VALUE_INT:
        form->kind = AOTICACHE_VALUE_INT_LIST;
        return true;
    case AOTICACHE_VALUE_DOUBLE:
        form->kind = AOTICACHE_VALUE_DOUBLE_LIST;
        return true;
    case AOTICACHE_VALUE_BOOL:
        form->kind = AOTICACHE_VALUE_BOOL_LIST;
        return true;
    default:
        return false;
    }
}

static bool is_list(int32_t kind)
{
    return kind == AOTICACHE_VALUE_TENSOR_LIST || kind == AOTICACHE_VALUE_INT_LIST ||
           kind == AOTICACHE_VALUE_DOUBLE_LIST || kind == AOTICACHE_VALUE_BOOL_LIST;
}

/*
 * Returns whether aoticache_stable_read_plainly() can read it: after a call that consumed its tensors, nothing needs to be
 * freed.
 */
static bool is_plain(const aoticache_stable_form *form)
{
    return !form->is_optional && !is_list(form->kind) && form->kind != AOTICACHE_VALUE_STRING;
}

static bool plan_argument(const aoticache_type *type, aoticache_stable_form *form)
{
    form->is_optional = type->kind == AOTICACHE_TYPE_OPTIONAL;
    if (form->is_optional)
        type = type->elements[0];
    return type->kind == AOTICACHE_TYPE_LIST ? list_kind(type->elements[0], form) : scalar_kind(type, &form->kind);
}

aoticache_status aoticache_stable_plan_create(const aoticache_schema *schema, aoticache_stable_plan **ret_plan,
                                              aoticache_error *ret_error)
{
    const char *name = schema->full_name;
    size_t count = schema->argument_count, results = schema->return_count;
    if (count > AOTICACHE_STABLE_MAX_ARGUMENTS || results > AOTICACHE_STABLE_MAX_ARGUMENTS)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "%.200s has %zu arguments and %zu results; without a bridge at most %d are "
                                   "supported",
                                   name, count, results, AOTICACHE_STABLE_MAX_ARGUMENTS);
    aoticache_stable_plan *plan = calloc(1, sizeof *plan + count * sizeof plan->forms[0]);
    if (plan == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%.200s: out of memory for its arguments", name);
    plan->count = count;
    plan->is_plain = true;
    for (size_t i = 0; i < count; i++) {
        const aoticache_schema_argument *argument = &schema->arguments[i];
        if (plan_argument(argument->type, &plan->forms[i])) {
            plan->has_lists |= is_list(plan->forms[i].kind);
            plan->is_plain &= is_plain(&plan->forms[i]);
            continue;
        }
        char text[64];
        aoticache_type_format(argument->type, text, sizeof text);
        free(plan);
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "%.200s: argument %zu (%.100s) is %s, which PyTorch's stable C ABI cannot "
                                   "pass; the bridge can, but needs a C++ compiler",
                                   name, i, argument->name, text);
    }
    *ret_plan = plan;
    return AOTICACHE_OK;
}

void aoticache_stable_plan_free(aoticache_stable_plan *plan)
{
    free(plan);
}

/* ---- reading ---- */

static bool read_string(const aoticache_stable *stable, uint64_t bits, aoticache_value *value)
{
    struct AOTICacheTorchString *string = aoticache_stable_pointer(bits);
    size_t length = 0;
    value->kind = AOTICACHE_VALUE_STRING;
    return stable->torch_string_length(string, &length) == 0 &&
           stable->torch_string_c_str(string, &value->as.string) == 0 && strlen(value->as.string) == length;
}

static bool read_scalar(const aoticache_stable *stable, const aoticache_stable_form *form, uint64_t bits,
                        aoticache_value *value)
{
    if (form->kind == AOTICACHE_VALUE_STRING)
        return read_string(stable, bits, value);
    aoticache_stable_read_number(form, bits, value);
    return true;
}

/* ---- lists ---- */

/* Returns the handle of a tensor in a list; NULL: a gap. */
static AtenTensorHandle tensor_of_item(const aoticache_stable_form *form, uint64_t bits)
{
    if (form->has_gaps && bits != 0)
        bits = *(const uint64_t *)aoticache_stable_pointer(bits);
    return aoticache_stable_pointer(bits);
}

/* Reads tensors into memory with the pointers to the views, followed by the views. */
static bool read_tensors(const aoticache_stable *stable, const aoticache_stable_form *form,
                         struct AOTICacheTorchList *list, size_t count, void *memory, aoticache_value *value)
{
    const aoticache_tensor_view **pointers = memory;
    aoticache_tensor_view *views = (aoticache_tensor_view *)(pointers + count);
    value->as.tensors = pointers;
    value->count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits;
        if (stable->torch_list_get_item(list, i, &bits) != 0)
            return false;
        AtenTensorHandle tensor = tensor_of_item(form, bits);
        if (tensor == NULL && form->has_gaps)
            continue;
        if (!aoticache_stable_read_tensor(stable->torch, tensor, &views[i]))
            return false;
        pointers[i] = &views[i];
    }
    return true;
}

static bool read_numbers(const aoticache_stable *stable, struct AOTICacheTorchList *list, size_t count, void *memory,
                         aoticache_value *value)
{
    int64_t *ints = memory;
    bool *bools = memory;
    value->as.ints = memory;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits;
        if (stable->torch_list_get_item(list, i, &bits) != 0)
            return false;
        if (value->kind == AOTICACHE_VALUE_BOOL_LIST)
            bools[i] = (bits & 0xff) != 0;
        else
            memcpy(&ints[i], &bits, sizeof bits);
    }
    value->count = (uint32_t)count;
    return true;
}

/* Reads a list. The caller frees *memory, also on failure. */
static bool read_list(const aoticache_stable *stable, const aoticache_stable_form *form, uint64_t bits, void **memory,
                      aoticache_value *value)
{
    struct AOTICacheTorchList *list = aoticache_stable_pointer(bits);
    size_t count = 0;
    value->kind = form->kind;
    if (stable->torch_list_size(list, &count) != 0 || count > UINT32_MAX)
        return false;
    bool of_tensors = form->element == AOTICACHE_VALUE_TENSOR;
    size_t item = of_tensors ? sizeof(void *) + sizeof(aoticache_tensor_view) : sizeof bits;
    *memory = calloc(count > 0 ? count : 1, item);
    if (*memory == NULL)
        return false;
    return of_tensors ? read_tensors(stable, form, list, count, *memory, value)
                      : read_numbers(stable, list, count, *memory, value);
}

static bool may_have_wrapped(const aoticache_value *list)
{
    for (uint32_t i = 0; list->kind == AOTICACHE_VALUE_TENSOR_LIST && i < list->count; i++)
        if (list->as.tensors[i] != NULL && aoticache_stable_may_be_wrapped(list->as.tensors[i]))
            return true;
    return false;
}

/* ---- all arguments ---- */

static bool read_argument(const aoticache_stable *stable, const aoticache_stable_form *form, uint64_t bits, size_t i,
                          aoticache_stable_arguments *arguments)
{
    aoticache_value *value = &arguments->values[i];
    value->count = 0;
    if (form->is_optional) {
        value->kind = AOTICACHE_VALUE_NONE;
        if (bits == 0)
            return true;
        bits = *(const uint64_t *)aoticache_stable_pointer(bits);
    }
    if (form->kind == AOTICACHE_VALUE_TENSOR)
        return aoticache_stable_read_argument_tensor(stable, bits, i, arguments);
    if (!is_list(form->kind))
        return read_scalar(stable, form, bits, value);
    if (!read_list(stable, form, bits, &arguments->lists[i], value))
        return false;
    if (may_have_wrapped(value))
        arguments->wrapped |= UINT64_C(1) << i;
    return true;
}

bool aoticache_stable_read(const aoticache_stable *stable, const aoticache_stable_plan *plan, const uint64_t *stack,
                           aoticache_stable_arguments *ret_arguments)
{
    ret_arguments->count = plan->count;
    ret_arguments->wrapped = 0;
    if (plan->has_lists)
        memset(ret_arguments->lists, 0, sizeof ret_arguments->lists);
    for (size_t i = 0; i < plan->count; i++) {
        if (__builtin_expect(read_argument(stable, &plan->forms[i], stack[i], i, ret_arguments), 1))
            continue;
        aoticache_stable_drop(plan, ret_arguments);
        return false;
    }
    return true;
}

void aoticache_stable_drop(const aoticache_stable_plan *plan, aoticache_stable_arguments *arguments)
{
    for (size_t i = 0; plan->has_lists && i < plan->count; i++)
        free(arguments->lists[i]);
}

/* ---- freeing the stack's values ---- */

static void release_box(const aoticache_stable *stable, uint64_t *box)
{
    if (stable->torch_delete_stable_ivalue != NULL)
        stable->torch_delete_stable_ivalue(box);
    else
        stable->operator_delete(box);
}

static void release_tensors(const aoticache_stable *stable, const aoticache_stable_form *form,
                            struct AOTICacheTorchList *list, bool consumed)
{
    size_t count = 0;
    stable->torch_list_size(list, &count);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = 0;
        stable->torch_list_get_item(list, i, &bits);
        AtenTensorHandle tensor = tensor_of_item(form, bits);
        if (!consumed && tensor != NULL)
            stable->torch->aoti_torch_delete_tensor_object(tensor);
        if (form->has_gaps && bits != 0)
            release_box(stable, aoticache_stable_pointer(bits));
    }
}

static void release_value(const aoticache_stable *stable, const aoticache_stable_form *form, uint64_t bits,
                          bool consumed)
{
    if (form->kind == AOTICACHE_VALUE_TENSOR) {
        if (!consumed && bits != 0)
            stable->torch->aoti_torch_delete_tensor_object(aoticache_stable_pointer(bits));
    } else if (form->kind == AOTICACHE_VALUE_STRING) {
        stable->torch_delete_string(aoticache_stable_pointer(bits));
    } else if (is_list(form->kind)) {
        if (form->element == AOTICACHE_VALUE_TENSOR && (!consumed || form->has_gaps))
            release_tensors(stable, form, aoticache_stable_pointer(bits), consumed);
        stable->torch_delete_list(aoticache_stable_pointer(bits));
    }
}

static void release_optional(const aoticache_stable *stable, const aoticache_stable_form *form, uint64_t *box,
                             bool consumed)
{
    release_value(stable, form, *box, consumed);
    release_box(stable, box);
}

void aoticache_stable_release(const aoticache_stable *stable, const aoticache_stable_plan *plan, uint64_t *stack,
                              bool consumed)
{
    for (size_t i = 0; i < plan->count; i++) {
        const aoticache_stable_form *form = &plan->forms[i];
        if (!form->is_optional)
            release_value(stable, form, stack[i], consumed);
        else if (stack[i] != 0)
            release_optional(stable, form, aoticache_stable_pointer(stack[i]), consumed);
    }
}
