/*
 * eager/holder/request: turns a call's values into its requests: the exact one, and the dynamic one, which is the same for all
 * calls that differ only in the sizes of their tensors.
 *
 * In a request, arguments are in the order of the schema, keyword-only ones by name. Arguments that are equal to their defaults
 * are left out (positional ones only at the end), so that a call that passes a default and one that does not make the same
 * request.
 */
#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "eager/compile/eager_face.h"
#include "eager/dispatch/schema/eager_face.h"
#include "eager/holder/holder_internal.h"

#include <string.h>

/* ---- whether the schema accepts an argument ---- */

static const aoticache_type *strip_optional(const aoticache_type *type)
{
    return type->kind == AOTICACHE_TYPE_OPTIONAL ? type->elements[0] : type;
}

static bool list_takes(const aoticache_type *element, int32_t kind)
{
    switch (strip_optional(element)->kind) {
    case AOTICACHE_TYPE_TENSOR:
        return kind == AOTICACHE_VALUE_TENSOR_LIST;
    case AOTICACHE_TYPE_INT:
    case AOTICACHE_TYPE_SYM_INT:
        return kind == AOTICACHE_VALUE_INT_LIST;
    case AOTICACHE_TYPE_FLOAT:
        return kind == AOTICACHE_VALUE_DOUBLE_LIST || kind == AOTICACHE_VALUE_INT_LIST;
    case AOTICACHE_TYPE_BOOL:
        return kind == AOTICACHE_VALUE_BOOL_LIST;
    case AOTICACHE_TYPE_NUMBER:
        return kind == AOTICACHE_VALUE_SCALAR_LIST || kind == AOTICACHE_VALUE_INT_LIST ||
               kind == AOTICACHE_VALUE_DOUBLE_LIST;
    case AOTICACHE_TYPE_STRING:
        return kind == AOTICACHE_VALUE_STRING_LIST;
    default:
        return kind == AOTICACHE_VALUE_OTHER;
    }
}

static bool type_takes(const aoticache_type *type, int32_t kind)
{
    switch (type->kind) {
    case AOTICACHE_TYPE_OPTIONAL:
        return kind == AOTICACHE_VALUE_NONE || type_takes(type->elements[0], kind);
    case AOTICACHE_TYPE_LIST:
        return list_takes(type->elements[0], kind);
    case AOTICACHE_TYPE_TENSOR:
        return kind == AOTICACHE_VALUE_TENSOR;
    case AOTICACHE_TYPE_INT:
    case AOTICACHE_TYPE_SYM_INT:
        return kind == AOTICACHE_VALUE_INT;
    case AOTICACHE_TYPE_FLOAT:
    case AOTICACHE_TYPE_SYM_FLOAT:
        return kind == AOTICACHE_VALUE_DOUBLE || kind == AOTICACHE_VALUE_INT;
    case AOTICACHE_TYPE_BOOL:
    case AOTICACHE_TYPE_SYM_BOOL:
        return kind == AOTICACHE_VALUE_BOOL;
    case AOTICACHE_TYPE_COMPLEX:
        return kind == AOTICACHE_VALUE_COMPLEX;
    case AOTICACHE_TYPE_NUMBER:
        return kind == AOTICACHE_VALUE_INT || kind == AOTICACHE_VALUE_DOUBLE || kind == AOTICACHE_VALUE_BOOL ||
               kind == AOTICACHE_VALUE_COMPLEX;
    case AOTICACHE_TYPE_STRING:
        return kind == AOTICACHE_VALUE_STRING;
    case AOTICACHE_TYPE_DEVICE:
        return kind == AOTICACHE_VALUE_DEVICE;
    case AOTICACHE_TYPE_DTYPE:
        return kind == AOTICACHE_VALUE_DTYPE;
    case AOTICACHE_TYPE_LAYOUT:
        return kind == AOTICACHE_VALUE_LAYOUT;
    case AOTICACHE_TYPE_MEMORY_FORMAT:
        return kind == AOTICACHE_VALUE_MEMORY_FORMAT;
    default:
        return kind == AOTICACHE_VALUE_GENERATOR || kind == AOTICACHE_VALUE_OTHER;
    }
}

/* Returns true if a required tensor is missing, by itself or in a list. */
static bool lacks_tensor(const aoticache_type *type, const aoticache_value *value)
{
    if (value->kind == AOTICACHE_VALUE_TENSOR)
        return value->as.tensor == NULL;
    type = strip_optional(type);
    if (value->kind != AOTICACHE_VALUE_TENSOR_LIST || type->kind != AOTICACHE_TYPE_LIST ||
        type->elements[0]->kind == AOTICACHE_TYPE_OPTIONAL)
        return false;
    for (uint32_t i = 0; i < value->count; i++)
        if (value->as.tensors[i] == NULL)
            return true;
    return false;
}

/* Returns what is wrong with a view in itself; NULL: nothing. */
static const char *fault_of_view(const aoticache_tensor_view *view)
{
    if (view == NULL)
        return NULL;
    if (view->ndim < 0 || view->ndim > AOTICACHE_MAX_DIMS)
        return "ndim is not 0 to 64";
    if (view->ndim > 0 && view->sizes == NULL)
        return "sizes is NULL";
    for (int64_t i = 0; i < view->ndim; i++)
        if (view->sizes[i] < 0)
            return "a size is negative";
    if (aoticache_layout_name(view->layout) == NULL)
        return "layout is not a valid aoticache_layout";
    return aoticache_dtype_size(view->dtype) == 0 ? "dtype is not a valid aoticache_dtype" : NULL;
}

static const char *fault_of_views(const aoticache_value *value)
{
    const char *fault = value->kind == AOTICACHE_VALUE_TENSOR ? fault_of_view(value->as.tensor) : NULL;
    for (uint32_t i = 0; value->kind == AOTICACHE_VALUE_TENSOR_LIST && i < value->count && fault == NULL; i++)
        fault = fault_of_view(value->as.tensors[i]);
    return fault;
}

static aoticache_status check_views(const aoticache_holder *holder, const aoticache_value *arguments,
                                    aoticache_error *ret_error)
{
    for (size_t i = 0; i < holder->num_arguments; i++) {
        const char *fault = fault_of_views(&arguments[i]);
        if (fault != NULL)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: argument %zu (%s): %s of a tensor's view",
                                       holder->op, i, holder->schema->arguments[i].name, fault);
    }
    return AOTICACHE_OK;
}

aoticache_status aoticache_holder_check_arguments(const aoticache_holder *holder, const aoticache_value *arguments,
                                                  aoticache_error *ret_error)
{
    for (size_t i = 0; i < holder->num_arguments; i++) {
        const aoticache_schema_argument *argument = &holder->schema->arguments[i];
        bool lacks = lacks_tensor(argument->type, &arguments[i]);
        if (!lacks && (type_takes(argument->type, arguments[i].kind) || aoticache_number_is_substituted(&arguments[i])))
            continue;
        char text[96];
        aoticache_type_format(argument->type, text, sizeof text);
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: argument %zu (%s) is %s%s; the schema says %s",
                                   holder->op, i, argument->name, aoticache_value_kind_name(arguments[i].kind),
                                   lacks ? " without a tensor" : "", text);
    }
    return check_views(holder, arguments, ret_error);
}

/* ---- writing one argument ---- */

/* Writes tensors with their sizes or, in a dynamic request, with placeholders. */
typedef struct request_writer {
    aoticache_request *request;
    bool dynamic;
    bool has_free_size;  /* dynamic: some size may vary */
    bool has_no_dynamic; /* dynamic: there is no such request, because the strides of a tensor allow no other sizes */
} request_writer;

/* Writes the sizes for a dynamic request: 0 and 1 stay, because compilers treat them specially; all others become 2. */
static void dynamic_sizes(const aoticache_tensor_view *view, int64_t *sizes, request_writer *writer)
{
    for (int64_t i = 0; i < view->ndim; i++) {
        sizes[i] = view->sizes[i] < 2 ? view->sizes[i] : 2;
        writer->has_free_size |= view->sizes[i] >= 2;
    }
}

/*
 * Writes strides for dynamic_sizes() with the same order of dimensions; possible only for tensors without gaps and overlaps.
 * The dimension with the smallest stride comes first; `done` has a bit for each finished dimension.
 */
static bool dynamic_strides(const aoticache_tensor_view *view, const int64_t *sizes, int64_t *strides)
{
    int64_t filled = 1, dynamic_filled = 1;
    uint64_t done = 0;
    for (int64_t round = 0; round < view->ndim; round++) {
        int64_t next = -1;
        for (int64_t i = view->ndim; i-- > 0;) /* on a tie the last, as in a contiguous tensor */
            if (!(done >> i & 1) && view->strides[i] == filled) {
                next = i;
                break;
            }
        for (int64_t i = view->ndim; next < 0 && i-- > 0;) /* dimensions of size 1, whose stride is not used */
            if (!(done >> i & 1) && view->sizes[i] == 1)
                next = i;
        if (next < 0)
            return false;
        done |= UINT64_C(1) << next;
        strides[next] = dynamic_filled;
        filled *= view->sizes[next] > 0 ? view->sizes[next] : 1;
        dynamic_filled *= sizes[next] > 0 ? sizes[next] : 1;
    }
    return true;
}

static aoticache_status add_tensor(request_writer *writer, const char *name, const aoticache_tensor_view *view,
                                   aoticache_error *ret_error)
{
    int64_t sizes[AOTICACHE_MAX_DIMS], strides[AOTICACHE_MAX_DIMS];
    if (view == NULL)
        return aoticache_request_add_none(writer->request, name, ret_error);
    aoticache_tensor_metadata metadata = {.dtype = view->dtype,
                                          .layout = view->layout,
                                          .device = view->device,
                                          .requires_grad = view->requires_grad,
                                          .dispatch_key_set = view->dispatch_key_set,
                                          .ndim = (uint32_t)view->ndim,
                                          .sizes = view->sizes,
                                          .strides = view->strides};
    if (writer->dynamic) {
        dynamic_sizes(view, sizes, writer);
        writer->has_no_dynamic |= !dynamic_strides(view, sizes, strides);
        if (writer->has_no_dynamic)
            return AOTICACHE_OK;
        metadata.sizes = sizes;
        metadata.strides = strides;
    }
    return aoticache_request_add_tensor(writer->request, name, &metadata, ret_error);
}

static aoticache_status add_single(request_writer *writer, const char *name, const aoticache_value *value,
                                   aoticache_error *ret_error)
{
    aoticache_request *request = writer->request;
    switch (value->kind) {
    case AOTICACHE_VALUE_NONE:
        return aoticache_request_add_none(request, name, ret_error);
    case AOTICACHE_VALUE_TENSOR:
        return add_tensor(writer, name, value->as.tensor, ret_error);
    case AOTICACHE_VALUE_INT:
        return aoticache_request_add_int(request, name, value->as.int_value, ret_error);
    case AOTICACHE_VALUE_DOUBLE:
        return aoticache_request_add_double(request, name, value->as.double_value, ret_error);
    case AOTICACHE_VALUE_BOOL:
        return aoticache_request_add_bool(request, name, value->as.bool_value, ret_error);
    case AOTICACHE_VALUE_COMPLEX:
        return aoticache_request_add_complex(request, name, value->as.complex_value[0], value->as.complex_value[1],
                                             ret_error);
    case AOTICACHE_VALUE_STRING:
        return aoticache_request_add_string(request, name, value->as.string, ret_error);
    case AOTICACHE_VALUE_DEVICE:
        return aoticache_request_add_device(request, name, value->as.device, ret_error);
    case AOTICACHE_VALUE_DTYPE:
        return aoticache_request_add_dtype(request, name, (int32_t)value->as.int_value, ret_error);
    case AOTICACHE_VALUE_LAYOUT:
        return aoticache_request_add_layout(request, name, (int32_t)value->as.int_value, ret_error);
    case AOTICACHE_VALUE_MEMORY_FORMAT:
        return aoticache_request_add_memory_format(request, name, (int32_t)value->as.int_value, ret_error);
    default:
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "a %s cannot be part of a request",
                                   aoticache_value_kind_name(value->kind));
    }
}

/* Returns item `i` of a list as a separate value. */
static aoticache_value item_of(const aoticache_value *list, uint32_t i)
{
    switch (list->kind) {
    case AOTICACHE_VALUE_TENSOR_LIST:
        return (aoticache_value){.kind = list->as.tensors[i] != NULL ? AOTICACHE_VALUE_TENSOR : AOTICACHE_VALUE_NONE,
                                 .as.tensor = list->as.tensors[i]};
    case AOTICACHE_VALUE_INT_LIST:
        return (aoticache_value){.kind = AOTICACHE_VALUE_INT, .as.int_value = list->as.ints[i]};
    case AOTICACHE_VALUE_DOUBLE_LIST:
        return (aoticache_value){.kind = AOTICACHE_VALUE_DOUBLE, .as.double_value = list->as.doubles[i]};
    case AOTICACHE_VALUE_BOOL_LIST:
        return (aoticache_value){.kind = AOTICACHE_VALUE_BOOL, .as.bool_value = list->as.bools[i]};
    case AOTICACHE_VALUE_STRING_LIST:
        return (aoticache_value){.kind = AOTICACHE_VALUE_STRING, .as.string = list->as.strings[i]};
    default:
        return list->as.scalars[i];
    }
}

static bool is_list(int32_t kind)
{
    return kind == AOTICACHE_VALUE_TENSOR_LIST ||
           (kind >= AOTICACHE_VALUE_INT_LIST && kind <= AOTICACHE_VALUE_STRING_LIST);
}

static aoticache_status add_argument(request_writer *writer, const char *name, const aoticache_value *value,
                                     aoticache_error *ret_error)
{
    if (!is_list(value->kind))
        return add_single(writer, name, value, ret_error);
    aoticache_status status = aoticache_request_begin_list(writer->request, name, ret_error);
    for (uint32_t i = 0; i < value->count && status == AOTICACHE_OK; i++) {
        aoticache_value item = item_of(value, i);
        status = add_single(writer, NULL, &item, ret_error);
    }
    return status == AOTICACHE_OK ? aoticache_request_end_list(writer->request, ret_error) : status;
}

/* ---- writing all arguments ---- */

static bool equals_default(const aoticache_holder *holder, const aoticache_value *value, size_t position)
{
    const aoticache_value *other = &holder->defaults[position];
    aoticache_packed a, b;
    return other->kind == value->kind && value->kind != AOTICACHE_VALUE_OTHER && aoticache_pack(value, 1, &a) &&
           aoticache_pack(other, 1, &b) && a.count == b.count && memcmp(a.words, b.words, a.count * 8) == 0;
}

/* Counts the positional arguments that are written: later ones are equal to their defaults. */
static size_t count_positional(const aoticache_holder *holder, const aoticache_value *arguments, size_t count)
{
    size_t needed = 0;
    for (size_t i = 0; i < count && !holder->schema->arguments[i].keyword_only; i++)
        if (!equals_default(holder, &arguments[i], i))
            needed = i + 1;
    return needed;
}

static aoticache_status write_arguments(const aoticache_holder *holder, const aoticache_value *arguments, size_t count,
                                        request_writer *writer, aoticache_error *ret_error)
{
    size_t positional = count_positional(holder, arguments, count);
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; i < count && status == AOTICACHE_OK && !writer->has_no_dynamic; i++) {
        const aoticache_schema_argument *argument = &holder->schema->arguments[i];
        if (argument->keyword_only ? equals_default(holder, &arguments[i], i) : i >= positional)
            continue;
        status = add_argument(writer, argument->keyword_only ? argument->name : NULL, &arguments[i], ret_error);
    }
    return status;
}

aoticache_status aoticache_holder_set_environment(const aoticache_holder *holder, const aoticache_hook *hook,
                                                  aoticache_request *request, aoticache_error *ret_error)
{
    const aoticache_context *context = holder->context;
    aoticache_status status = AOTICACHE_OK;
    if (hook != NULL)
        status = aoticache_hook_set_environment(hook, request, ret_error);
    for (char **pair = context->environment; status == AOTICACHE_OK && pair != NULL && pair[0] != NULL; pair += 2)
        status = aoticache_request_set_environment(request, pair[0], pair[1], ret_error);
    if (status == AOTICACHE_OK && hook == NULL)
        status = aoticache_hook_set_gpu_arch(request, ret_error);
    if (status == AOTICACHE_OK && holder->written != 0)
        status = aoticache_request_set_environment(request, AOTICACHE_RESULTS_NAME, AOTICACHE_RESULTS_NEW, ret_error);
    return status;
}

/* Makes a request. *ret_request is NULL, with OK, if the call has no dynamic request. */
static aoticache_status make_request(const aoticache_holder *holder, const aoticache_value *arguments, size_t count,
                                     bool dynamic, aoticache_request **ret_request, aoticache_error *ret_error)
{
    request_writer writer = {.dynamic = dynamic};
    aoticache_status status = aoticache_request_create(holder->op, holder->device, &writer.request, ret_error);
    if (status == AOTICACHE_OK)
        status = write_arguments(holder, arguments, count, &writer, ret_error);
    if (status == AOTICACHE_OK && dynamic && (writer.has_no_dynamic || !writer.has_free_size)) {
        aoticache_request_free(writer.request);
        *ret_request = NULL;
        return AOTICACHE_OK;
    }
    if (status == AOTICACHE_OK)
        status = aoticache_holder_set_environment(holder, holder->context->hook, writer.request, ret_error);
    if (status == AOTICACHE_OK && aoticache_numbers_substituted(holder, arguments) != 0)
        status = aoticache_request_set_environment(writer.request, AOTICACHE_NUMBERS_NAME, AOTICACHE_NUMBERS_TENSORS,
                                                   ret_error);
    if (status == AOTICACHE_OK && dynamic)
        status = aoticache_request_set_environment(writer.request, AOTICACHE_SHAPES_NAME, AOTICACHE_SHAPES_DYNAMIC,
                                                   ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_request_free(writer.request);
        return status;
    }
    *ret_request = writer.request;
    return AOTICACHE_OK;
}

aoticache_status aoticache_holder_dynamic_request(const aoticache_holder *holder, const aoticache_value *arguments,
                                                  aoticache_request **ret_request, aoticache_error *ret_error)
{
    return make_request(holder, arguments, holder->num_arguments, true, ret_request, ret_error);
}

struct wanted_request {
    const aoticache_holder *holder;
    aoticache_request **ret_request;
};

static aoticache_status make_exact_request(void *user, const aoticache_value *spelt, aoticache_error *ret_error)
{
    const struct wanted_request *wanted = user;
    return make_request(wanted->holder, spelt, wanted->holder->num_arguments, false, wanted->ret_request, ret_error);
}

aoticache_status aoticache_holder_request(const aoticache_holder *holder, const aoticache_value *arguments,
                                          size_t count, aoticache_request **ret_request, aoticache_error *ret_error)
{
    if (holder == NULL || (arguments == NULL && count > 0) || ret_request == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, holder, ret_request, arguments);
    if (count != holder->num_arguments)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s: takes %zu arguments, but %zu were passed; "
                                   "aoticache_holder_push_defaults() adds those that have defaults",
                                   holder->op, holder->num_arguments, count);
    struct wanted_request wanted = {.holder = holder, .ret_request = ret_request};
    aoticache_status status = aoticache_holder_check_arguments(holder, arguments, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_holder_with_spelt_out(holder, arguments, make_exact_request, &wanted, ret_error);
}

void aoticache_miss_request_free(aoticache_miss_request *miss)
{
    aoticache_request_free(miss->exact);
    aoticache_request_free(miss->dynamic);
    free(miss->packed);
    *miss = (aoticache_miss_request){.exact = NULL};
}

static aoticache_packed *copy_packed(const aoticache_packed *packed)
{
    size_t bytes = offsetof(aoticache_packed, words) + packed->count * sizeof packed->words[0];
    aoticache_packed *copy = malloc(bytes);
    if (copy != NULL)
        memcpy(copy, packed, bytes);
    return copy;
}

aoticache_status aoticache_holder_make_miss_request(aoticache_holder *holder, const aoticache_value *arguments,
                                                    const aoticache_packed *packed, aoticache_miss_request *ret_miss,
                                                    aoticache_error *ret_error)
{
    aoticache_miss_request miss = {.packed = copy_packed(packed),
                                   .elements = aoticache_count_elements(arguments, holder->num_arguments),
                                   .substituted = aoticache_numbers_substituted(holder, arguments)};
    aoticache_status status = AOTICACHE_OK;
    if (miss.packed == NULL)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for a request", holder->op);
    if (status == AOTICACHE_OK)
        status = make_request(holder, arguments, holder->num_arguments, false, &miss.exact, ret_error);
    if (status == AOTICACHE_OK)
        status = make_request(holder, arguments, holder->num_arguments, true, &miss.dynamic, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_miss_request_free(&miss);
        return status;
    }
    *ret_miss = miss;
    return AOTICACHE_OK;
}
