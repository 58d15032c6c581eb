/*
 * cache/request/json: a request as one line of JSON, and back. Lists of requests have these lines (docs/warm.md), and
 * compile hooks receive a request in the same form (docs/hooks.md).
 */
#include "base/cleanup.h"
#include "base/names.h"
#include "base/text/json.h"
#include "base/text/name_distance.h"
#include "cache/request/request_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {
#define KIND_NAME(upper, lower, number) [number] = #lower,
    AOTICACHE_ARGUMENT_KIND_LIST(KIND_NAME)
#undef KIND_NAME
};

#define KIND_COUNT (sizeof kind_names / sizeof kind_names[0])

/*
 * ---- writing ----
 *
 * json_pack() takes ownership of values for "o" also on failure, and fails if a string or an object is NULL: a number
 * without a name, or memory is short.
 */

/* Writes a double. JSON has no numbers for these three; all NaNs are written alike, as in the key. */
static json_t *json_of_double(double value)
{
    if (isnan(value))
        return json_string("nan");
    return isinf(value) ? json_string(value > 0 ? "inf" : "-inf") : json_real(value);
}

static json_t *json_of_extents(const int64_t *values, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; array != NULL && i < count; i++) {
        if (json_array_append_new(array, json_integer(values[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *json_of_device(aoticache_device device)
{
    char text[AOTICACHE_DEVICE_TEXT_BYTES];
    aoticache_device_format(device, text);
    return json_string(text);
}

static json_t *json_of_tensor(const aoticache_argument *argument)
{
    const aoticache_tensor_metadata *metadata = &argument->value.tensor.metadata;
    json_t *object = json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:s, s:b}", "kind", kind_names[argument->kind], "dtype",
        aoticache_dtype_name(metadata->dtype), "sizes", json_of_extents(metadata->sizes, metadata->ndim), "strides",
        json_of_extents(metadata->strides, metadata->ndim), "device", json_of_device(metadata->device), "layout",
        aoticache_layout_name(metadata->layout), "requires_grad", (int)metadata->requires_grad);
    char text[AOTICACHE_DIGEST_HEX_BYTES];
    int failed = object == NULL;
    if (!failed && metadata->dispatch_key_set != 0) {
        snprintf(text, sizeof text, "0x%" PRIx64, metadata->dispatch_key_set);
        failed |= json_object_set_new(object, "dispatch_key_set", json_string(text));
    }
    if (!failed && argument->kind == AOTICACHE_ARGUMENT_CONSTANT) {
        aoticache_digest_to_hex(&argument->value.tensor.data_digest, text);
        failed |= json_object_set_new(object, "data_digest", json_string(text));
    }
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}

/* Writes the value of an argument that has exactly one. */
static json_t *json_of_value(const aoticache_argument *argument)
{
    const int32_t number = (int32_t)argument->value.int_value; /* of a dtype, a layout, a memory format */
    switch (argument->kind) {
    case AOTICACHE_ARGUMENT_INT:
        return json_integer(argument->value.int_value);
    case AOTICACHE_ARGUMENT_DOUBLE:
        return json_of_double(argument->value.double_value);
    case AOTICACHE_ARGUMENT_BOOL:
        return json_boolean(argument->value.bool_value);
    case AOTICACHE_ARGUMENT_COMPLEX:
        return json_pack("[o, o]", json_of_double(argument->value.complex_value[0]),
                         json_of_double(argument->value.complex_value[1]));
    case AOTICACHE_ARGUMENT_STRING:
        return json_string(argument->value.string_value);
    case AOTICACHE_ARGUMENT_DEVICE:
        return json_of_device(argument->value.device_value);
    case AOTICACHE_ARGUMENT_DTYPE:
        return json_string(aoticache_dtype_name(number));
    case AOTICACHE_ARGUMENT_LAYOUT:
        return json_string(aoticache_layout_name(number));
    default:
        return json_string(aoticache_memory_format_name(number));
    }
}

static json_t *json_of_item(const aoticache_argument *item)
{
    const char *kind = kind_names[item->kind];
    if (item->kind == AOTICACHE_ARGUMENT_TENSOR || item->kind == AOTICACHE_ARGUMENT_CONSTANT)
        return json_of_tensor(item);
    if (item->kind == AOTICACHE_ARGUMENT_NONE)
        return json_pack("{s:s}", "kind", kind);
    return json_pack("{s:s, s:o}", "kind", kind, "value", json_of_value(item));
}

static json_t *json_of_argument(const aoticache_argument *argument)
{
    json_t *object = NULL;
    if (argument->kind == AOTICACHE_ARGUMENT_LIST) {
        json_t *items = json_array();
        bool failed = items == NULL;
        for (size_t i = 0; !failed && i < argument->value.list.count; i++)
            failed = json_array_append_new(items, json_of_item(&argument->value.list.items[i])) != 0;
        object = failed ? NULL : json_pack("{s:s, s:O}", "kind", kind_names[argument->kind], "items", items);
        json_decref(items);
    } else {
        object = json_of_item(argument);
    }
    if (object == NULL || json_object_set_new(object, "name", json_string(argument->name)) == 0)
        return object;
    json_decref(object);
    return NULL;
}

aoticache_status aoticache_request_write_json(const aoticache_request *request, char **ret_line,
                                              aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    json_t *arguments = json_array();
    if (arguments == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "request as JSON: out of memory");
    for (size_t i = 0; status == AOTICACHE_OK && i < request->arguments.count; i++) {
        const aoticache_argument *argument = aoticache_request_argument(request, i);
        errno = 0;
        if (json_array_append_new(arguments, json_of_argument(argument)) != 0 && errno == ENOMEM)
            status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "request as JSON: out of memory");
        else if (json_array_size(arguments) <= i)
            status =
                aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "argument %zu of %s: JSON cannot represent a %s",
                                    i, aoticache_request_op(request), kind_names[argument->kind]);
    }
    json_t *root = json_pack("{s:s, s:o, s:o}", "operator", aoticache_request_op(request), "device",
                             json_of_device(aoticache_request_device(request)), "arguments", arguments);
    /* 17 digits restore every double; ASCII only, so that readers need not handle encodings. */
    char *line = status == AOTICACHE_OK && root != NULL
                     ? aoticache_json_write(root, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(17))
                     : NULL;
    json_decref(root);
    if (line != NULL)
        *ret_line = line;
    else if (status == AOTICACHE_OK)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "request as JSON: out of memory");
    return status;
}

/* ---- reading ---- */

static aoticache_status refuse(aoticache_error *error, const char *member, const char *wanted)
{
    return aoticache_error_set(error, AOTICACHE_INVALID, "\"%s\" is not %s", member, wanted);
}

/* Does the same for a name: of a dtype, a layout, a memory format. text: NULL: the member is not text. */
static aoticache_status refuse_name(aoticache_error *error, const char *member, const char *text, const char *wanted)
{
    char hint[AOTICACHE_HINT_BYTES];
    aoticache_write_hint(text != NULL ? aoticache_nearest_argument_word(text) : NULL, hint);
    return aoticache_error_set(error, AOTICACHE_INVALID, "\"%s\" is not %s%s", member, wanted, hint);
}

/* Checks that every member is one of `names`, which ends with NULL: a misspelt one would be ignored silently. */
static aoticache_status check_members(const json_t *object, const char *const *names, aoticache_error *error)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        size_t i = 0;
        while (names[i] != NULL && strcmp(names[i], name) != 0)
            i++;
        if (names[i] == NULL)
            return aoticache_error_set(error, AOTICACHE_INVALID, "unknown member \"%s\"", name);
    }
    return AOTICACHE_OK;
}

static bool read_double(const json_t *json, double *ret_value)
{
    const char *word = json_string_value(json);
    if (word == NULL) {
        *ret_value = json_number_value(json);
        return json_is_number(json);
    }
    *ret_value = strcmp(word, "nan") == 0 ? NAN : strcmp(word, "-inf") == 0 ? -INFINITY : INFINITY;
    return isnan(*ret_value) || *ret_value < 0 || strcmp(word, "inf") == 0;
}

/* Leaves `device` unchanged if there is no such member. */
static bool read_device(const json_t *json, aoticache_device *device)
{
    return json == NULL ||
           (json_is_string(json) && aoticache_device_parse(json_string_value(json), device) == AOTICACHE_OK);
}

static bool read_extents(const json_t *json, int64_t values[AOTICACHE_MAX_DIMS])
{
    if (!json_is_array(json) || json_array_size(json) > AOTICACHE_MAX_DIMS)
        return false;
    for (size_t i = 0; i < json_array_size(json); i++) {
        const json_t *value = json_array_get(json, i);
        if (!json_is_integer(value))
            return false;
        values[i] = json_integer_value(value);
    }
    return true;
}

/* Reads "0x8001": JSON numbers cannot hold unsigned 64 bits. */
static bool read_key_set(const json_t *json, uint64_t *ret_set)
{
    const char *text = json_string_value(json);
    char *end = NULL;
    if (json == NULL)
        return true;
    if (text == NULL || strncmp(text, "0x", 2) != 0 || text[2] == '\0' || strlen(text) > 18 ||
        text[2 + strspn(text + 2, "0123456789abcdefABCDEF")] != '\0')
        return false;
    *ret_set = strtoull(text, &end, 16);
    return *end == '\0';
}

static aoticache_status read_tensor(aoticache_request *request, const char *name, const json_t *json,
                                    aoticache_error *error)
{
    static const char *const members[] = {
        "kind", "name", "dtype", "sizes", "strides", "device", "layout", "requires_grad", "dispatch_key_set", NULL};
    int64_t sizes[AOTICACHE_MAX_DIMS], strides[AOTICACHE_MAX_DIMS];
    const json_t *all_sizes = json_object_get(json, "sizes"), *all_strides = json_object_get(json, "strides");
    const json_t *layout = json_object_get(json, "layout"), *gradient = json_object_get(json, "requires_grad");
    const char *dtype = json_string_value(json_object_get(json, "dtype"));
    aoticache_tensor_metadata metadata = {.layout = AOTICACHE_LAYOUT_STRIDED,
                                          .device = aoticache_request_device(request),
                                          .requires_grad = json_is_true(gradient),
                                          .ndim = (uint32_t)json_array_size(all_sizes),
                                          .sizes = sizes,
                                          .strides = all_strides != NULL ? strides : NULL};
    if (check_members(json, members, error) != AOTICACHE_OK)
        return AOTICACHE_INVALID;
    if (dtype == NULL || aoticache_dtype_parse(dtype, &metadata.dtype) != AOTICACHE_OK)
        return refuse_name(error, "dtype", dtype, "a dtype such as float32");
    if (!read_extents(all_sizes, sizes))
        return refuse(error, "sizes", "a list of integers");
    if (all_strides != NULL && (!read_extents(all_strides, strides) || json_array_size(all_strides) != metadata.ndim))
        return refuse(error, "strides", "a list with one integer for each size");
    if (!read_device(json_object_get(json, "device"), &metadata.device))
        return refuse(error, "device", "a device such as cpu or cuda:0");
    if (layout != NULL && (!json_is_string(layout) ||
                           aoticache_layout_parse(json_string_value(layout), &metadata.layout) != AOTICACHE_OK))
        return refuse_name(error, "layout", json_string_value(layout), "a layout such as strided");
    if (gradient != NULL && !json_is_boolean(gradient))
        return refuse(error, "requires_grad", "true or false");
    if (!read_key_set(json_object_get(json, "dispatch_key_set"), &metadata.dispatch_key_set))
        return refuse(error, "dispatch_key_set", "text such as \"0x8001\"");
    return aoticache_request_add_tensor(request, name, &metadata, error);
}

static aoticache_status read_named_number(aoticache_request *request, const char *name, aoticache_argument_kind kind,
                                          const char *text, aoticache_error *error)
{
    int32_t number;
    switch (kind) {
    case AOTICACHE_ARGUMENT_DTYPE:
        return text != NULL && aoticache_dtype_parse(text, &number) == AOTICACHE_OK
                   ? aoticache_request_add_dtype(request, name, number, error)
                   : refuse_name(error, "value", text, "a dtype such as float32");
    case AOTICACHE_ARGUMENT_LAYOUT:
        return text != NULL && aoticache_layout_parse(text, &number) == AOTICACHE_OK
                   ? aoticache_request_add_layout(request, name, number, error)
                   : refuse_name(error, "value", text, "a layout such as strided");
    default:
        return text != NULL && aoticache_memory_format_parse(text, &number) == AOTICACHE_OK
                   ? aoticache_request_add_memory_format(request, name, number, error)
                   : refuse_name(error, "value", text, "a memory format such as channels_last");
    }
}

static aoticache_status read_value(aoticache_request *request, const char *name, aoticache_argument_kind kind,
                                   const json_t *value, aoticache_error *error)
{
    aoticache_device device;
    double real, imaginary;
    switch (kind) {
    case AOTICACHE_ARGUMENT_INT:
        return json_is_integer(value) ? aoticache_request_add_int(request, name, json_integer_value(value), error)
                                      : refuse(error, "value", "an integer of 64 bits");
    case AOTICACHE_ARGUMENT_DOUBLE:
        return read_double(value, &real) ? aoticache_request_add_double(request, name, real, error)
                                         : refuse(error, "value", "a number, \"nan\", \"inf\" or \"-inf\"");
    case AOTICACHE_ARGUMENT_BOOL:
        return json_is_boolean(value) ? aoticache_request_add_bool(request, name, json_is_true(value), error)
                                      : refuse(error, "value", "true or false");
    case AOTICACHE_ARGUMENT_COMPLEX:
        return json_array_size(value) == 2 && read_double(json_array_get(value, 0), &real) &&
                       read_double(json_array_get(value, 1), &imaginary)
                   ? aoticache_request_add_complex(request, name, real, imaginary, error)
                   : refuse(error, "value", "a list of two numbers");
    case AOTICACHE_ARGUMENT_STRING:
        return json_is_string(value) ? aoticache_request_add_string(request, name, json_string_value(value), error)
                                     : refuse(error, "value", "text");
    case AOTICACHE_ARGUMENT_DEVICE:
        return value != NULL && read_device(value, &device) ? aoticache_request_add_device(request, name, device, error)
                                                            : refuse(error, "value", "a device such as cpu or cuda:0");
    default:
        return read_named_number(request, name, kind, json_string_value(value), error);
    }
}

static bool read_kind(const json_t *json, aoticache_argument_kind *ret_kind)
{
    const char *word = json_string_value(json_object_get(json, "kind"));
    for (size_t i = 0; word != NULL && i < KIND_COUNT; i++) {
        if (strcmp(word, kind_names[i]) == 0) {
            *ret_kind = (aoticache_argument_kind)i;
            return true;
        }
    }
    return false;
}

/* Reads an argument that is not a list. */
static aoticache_status read_item(aoticache_request *request, const char *name, const json_t *json,
                                  aoticache_error *error)
{
    static const char *const members[] = {"kind", "name", "value", NULL};
    static const char *const members_of_none[] = {"kind", "name", NULL};
    aoticache_argument_kind kind;
    if (!read_kind(json, &kind) || kind == AOTICACHE_ARGUMENT_LIST)
        return refuse(error, "kind", "a kind of argument that is allowed here");
    if (kind == AOTICACHE_ARGUMENT_TENSOR)
        return read_tensor(request, name, json, error);
    if (kind == AOTICACHE_ARGUMENT_CONSTANT)
        return aoticache_error_set(error, AOTICACHE_INVALID, "a constant, whose data a line cannot hold");
    if (check_members(json, kind == AOTICACHE_ARGUMENT_NONE ? members_of_none : members, error) != AOTICACHE_OK)
        return AOTICACHE_INVALID;
    return kind == AOTICACHE_ARGUMENT_NONE ? aoticache_request_add_none(request, name, error)
                                           : read_value(request, name, kind, json_object_get(json, "value"), error);
}

static aoticache_status read_list(aoticache_request *request, const char *name, const json_t *json,
                                  aoticache_error *error)
{
    static const char *const members[] = {"kind", "name", "items", NULL};
    const json_t *items = json_object_get(json, "items");
    aoticache_status status = check_members(json, members, error);
    if (status == AOTICACHE_OK && !json_is_array(items))
        status = refuse(error, "items", "a list of arguments");
    if (status == AOTICACHE_OK)
        status = aoticache_request_begin_list(request, name, error);
    for (size_t i = 0; status == AOTICACHE_OK && i < json_array_size(items); i++)
        status = read_item(request, NULL, json_array_get(items, i), error);
    return status == AOTICACHE_OK ? aoticache_request_end_list(request, error) : status;
}

static aoticache_status read_argument(aoticache_request *request, size_t position, const json_t *json,
                                      aoticache_error *ret_error)
{
    aoticache_error error = {.message = ""};
    aoticache_argument_kind kind;
    const json_t *name = json_object_get(json, "name");
    aoticache_status status;
    if (name != NULL && !json_is_string(name))
        status = refuse(&error, "name", "text");
    else if (read_kind(json, &kind) && kind == AOTICACHE_ARGUMENT_LIST)
        status = read_list(request, json_string_value(name), json, &error);
    else
        status = read_item(request, json_string_value(name), json, &error);
    return status == AOTICACHE_OK ? status
                                  : aoticache_error_set(ret_error, status, "argument %zu: %s", position, error.message);
}

static aoticache_status read_request(const json_t *root, aoticache_request **ret_request, aoticache_error *ret_error)
{
    static const char *const members[] = {"operator", "device", "arguments", NULL};
    const char *op = json_string_value(json_object_get(root, "operator"));
    const json_t *arguments = json_object_get(root, "arguments");
    aoticache_device device = AOTICACHE_DEVICE_CPU;
    aoticache_request *request = NULL;
    if (!json_is_object(root))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the line is not a JSON object");
    if (check_members(root, members, ret_error) != AOTICACHE_OK)
        return AOTICACHE_INVALID;
    if (op == NULL)
        return refuse(ret_error, "operator", "the name of an operator");
    if (!read_device(json_object_get(root, "device"), &device))
        return refuse(ret_error, "device", "a device such as cpu or cuda:0");
    if (!json_is_array(arguments))
        return refuse(ret_error, "arguments", "a list");
    aoticache_status status = aoticache_request_create(op, device, &request, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < json_array_size(arguments); i++)
        status = read_argument(request, i, json_array_get(arguments, i), ret_error);
    if (status == AOTICACHE_OK)
        *ret_request = request;
    else
        aoticache_request_free(request);
    return status;
}

aoticache_status aoticache_request_parse_json(const char *line, aoticache_request **ret_request,
                                              aoticache_error *ret_error)
{
    json_error_t problem;
    json_t *root = aoticache_json_parse(line, strlen(line), JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL && aoticache_json_is_out_of_memory(&problem))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "request as JSON: out of memory");
    if (root == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "column %d: %s", problem.column, problem.text);
    aoticache_status status = read_request(root, ret_request, ret_error);
    json_decref(root);
    return status;
}
