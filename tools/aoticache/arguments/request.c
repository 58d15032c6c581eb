/*
 * tools/aoticache/arguments/request: converts the words of the command line to a request, and to tensors with data.
 *
 * Tensors are made first and only once; requests are then made from them as often as necessary (an environment that was set
 * in a request cannot be removed again).
 */
#include "base/cleanup.h"
#include "tools/aoticache/arguments/arguments.h"

#include <stdlib.h>
#include <string.h>

static int refuse_word(const aoticache_cli *cli, const aoticache_kernel_word *word, const char *message)
{
    return aoticache_cli_usage_error(cli, "option --%s '%s': %s", word->option->name, word->value, message);
}

/* ---- tensors ---- */

static aoticache_status make_tensor(aoticache_kernel_options *options, const char *text, bool constant,
                                    uint64_t *random, aoticache_error *error)
{
    aoticache_input_tensor tensor = {.constant = constant};
    aoticache_status status = aoticache_tensor_spec_parse(text, &tensor.spec, error);
    if (status == AOTICACHE_OK)
        status = aoticache_tensor_fill(&tensor.spec, random, &tensor.row_major, error);
    if (status != AOTICACHE_OK)
        return status;
    if (!constant) {
        /* Only compiled-in data is needed in row-major order later. */
        if (tensor.spec.contiguous)
            tensor.data = steal_ptr(&tensor.row_major);
        else
            status = aoticache_tensor_lay_out(&tensor.spec, tensor.row_major, &tensor.data, error);
        free(tensor.row_major);
        tensor.row_major = NULL;
    }
    if (status != AOTICACHE_OK)
        return status;
    options->tensors = aoticache_cli_resize(options->tensors, options->tensor_count + 1, sizeof *options->tensors);
    options->tensors[options->tensor_count++] = tensor;
    return AOTICACHE_OK;
}

/* Returns the item of "A,B,C" at *text, which the caller frees with free(); NULL at the end. Advances *text. */
static char *next_item(const char **text)
{
    if (*text == NULL || **text == '\0')
        return NULL;
    size_t length = strcspn(*text, ",");
    char *item = aoticache_cli_text("%.*s", (int)length, *text);
    *text = (*text)[length] == ',' ? *text + length + 1 : NULL;
    /* "1," has an empty item after the comma, which must be refused, not ignored. */
    if (*text != NULL && **text == '\0') {
        free(item);
        *text = NULL;
        return aoticache_cli_text("%s", "");
    }
    return item;
}

static aoticache_status make_tensor_list(aoticache_kernel_options *options, const char *text, uint64_t *random,
                                         aoticache_error *error)
{
    aoticache_status status = AOTICACHE_OK;
    char *item;
    while (status == AOTICACHE_OK && (item = next_item(&text)) != NULL) {
        status = make_tensor(options, item, false, random, error);
        free(item);
    }
    return status;
}

int aoticache_kernel_make_tensors(aoticache_kernel_options *options, const aoticache_cli *cli)
{
    uint64_t random = options->seed;
    aoticache_error error = {.message = ""};
    for (size_t i = 0; i < options->word_count; i++) {
        const aoticache_kernel_word *word = &options->words[i];
        aoticache_status status = AOTICACHE_OK;
        if (word->option->id == AOTICACHE_KERNEL_INPUT || word->option->id == AOTICACHE_KERNEL_WEIGHT)
            status = make_tensor(options, word->value, word->option->id == AOTICACHE_KERNEL_WEIGHT, &random, &error);
        else if (word->option->id == AOTICACHE_KERNEL_INPUTS)
            status = make_tensor_list(options, word->value, &random, &error);
        if (status != AOTICACHE_OK)
            return refuse_word(cli, word, error.message);
    }
    return AOTICACHE_CLI_EXIT_OK;
}

static aoticache_status add_tensor(aoticache_request *request, const char *name, const aoticache_input_tensor *tensor,
                                   aoticache_device device, aoticache_error *error)
{
    aoticache_tensor_metadata metadata = {
        .dtype = tensor->spec.dtype,
        .layout = AOTICACHE_LAYOUT_STRIDED,
        .device = device,
        .ndim = tensor->spec.ndim,
        .sizes = tensor->spec.sizes,
        .strides = tensor->spec.contiguous ? NULL : tensor->spec.strides,
    };
    return tensor->constant ? aoticache_request_add_constant(request, name, &metadata, tensor->row_major, NULL, error)
                            : aoticache_request_add_tensor(request, name, &metadata, error);
}

/* ---- other arguments ---- */

static aoticache_status refuse_text(aoticache_error *error, const char *message)
{
    return aoticache_error_set(error, AOTICACHE_INVALID, "%s", message);
}

/* Adds a number as Python reads it: with a point, an exponent, inf or nan it is floating point. */
static aoticache_status add_number(aoticache_request *request, const char *name, const char *text, bool as_double,
                                   aoticache_error *error)
{
    int64_t integer;
    double real;
    if (!as_double && aoticache_cli_parse_int(text, INT64_MIN, INT64_MAX, &integer))
        return aoticache_request_add_int(request, name, integer, error);
    bool digits_only = text[0] != '\0' && text[strspn(text, "+-0123456789")] == '\0';
    if (!as_double && digits_only)
        return refuse_text(error, "not an integer of 64 bits");
    if (aoticache_cli_parse_double(text, &real))
        return aoticache_request_add_double(request, name, real, error);
    return refuse_text(error, "not a number such as 2 or 1.5");
}

static aoticache_status add_integer(aoticache_request *request, const char *name, const char *text,
                                    aoticache_error *error)
{
    int64_t value;
    if (!aoticache_cli_parse_int(text, INT64_MIN, INT64_MAX, &value))
        return refuse_text(error, "not an integer of 64 bits");
    return aoticache_request_add_int(request, name, value, error);
}

static bool parse_bool(const char *text, bool *ret_value)
{
    *ret_value = strcmp(text, "true") == 0;
    return *ret_value || strcmp(text, "false") == 0;
}

static aoticache_status add_bool(aoticache_request *request, const char *name, const char *text, aoticache_error *error)
{
    bool value;
    if (!parse_bool(text, &value))
        return refuse_text(error, "not true or false");
    return aoticache_request_add_bool(request, name, value, error);
}

static aoticache_status add_complex(aoticache_request *request, const char *name, const char *text,
                                    aoticache_error *error)
{
    const char *comma = strchr(text, ',');
    cleanup_free char *real_text = aoticache_cli_text("%.*s", (int)strcspn(text, ","), text);
    double real, imaginary;
    if (comma == NULL || !aoticache_cli_parse_double(real_text, &real) ||
        !aoticache_cli_parse_double(comma + 1, &imaginary))
        return refuse_text(error, "not a complex number such as 1.5,-2");
    return aoticache_request_add_complex(request, name, real, imaginary, error);
}

static aoticache_status add_item(aoticache_request *request, const char *item, bool as_double, aoticache_error *error)
{
    bool value;
    if (strcmp(item, "none") == 0)
        return aoticache_request_add_none(request, NULL, error);
    if (parse_bool(item, &value))
        return aoticache_request_add_bool(request, NULL, value, error);
    return add_number(request, NULL, item, as_double, error);
}

/* Returns whether a number has a point: all numbers of the list are then floating point, as a schema's float[] requires. */
static bool list_is_real(const char *text)
{
    bool real = false;
    char *item;
    while ((item = next_item(&text)) != NULL) {
        int64_t integer;
        double number;
        real |=
            !aoticache_cli_parse_int(item, INT64_MIN, INT64_MAX, &integer) && aoticache_cli_parse_double(item, &number);
        free(item);
    }
    return real;
}

static aoticache_status add_list(aoticache_request *request, const char *name, const char *text, aoticache_error *error)
{
    bool as_double = list_is_real(text);
    aoticache_status status = aoticache_request_begin_list(request, name, error);
    char *item;
    while (status == AOTICACHE_OK && (item = next_item(&text)) != NULL) {
        status = add_item(request, item, as_double, error);
        free(item);
    }
    return status == AOTICACHE_OK ? aoticache_request_end_list(request, error) : status;
}

static aoticache_status add_named_number(aoticache_request *request, const char *name, int id, const char *text,
                                         aoticache_error *error)
{
    int32_t number;
    if (id == AOTICACHE_KERNEL_DTYPE)
        return aoticache_dtype_parse(text, &number) == AOTICACHE_OK
                   ? aoticache_request_add_dtype(request, name, number, error)
                   : refuse_text(error, "not a dtype such as float64");
    if (id == AOTICACHE_KERNEL_LAYOUT)
        return aoticache_layout_parse(text, &number) == AOTICACHE_OK
                   ? aoticache_request_add_layout(request, name, number, error)
                   : refuse_text(error, "not a layout such as strided");
    return aoticache_memory_format_parse(text, &number) == AOTICACHE_OK
               ? aoticache_request_add_memory_format(request, name, number, error)
               : refuse_text(error, "not a memory format such as channels_last");
}

static aoticache_status add_device(aoticache_request *request, const char *name, const char *text,
                                   aoticache_error *error)
{
    aoticache_device device;
    if (aoticache_device_parse(text, &device) != AOTICACHE_OK)
        return refuse_text(error, "not a device such as cpu or cuda:0");
    return aoticache_request_add_device(request, name, device, error);
}

/* ---- the request ---- */

static aoticache_status add_tensors(const aoticache_kernel_options *options, aoticache_request *request,
                                    const aoticache_kernel_word *word, size_t *tensor, aoticache_error *error)
{
    if (word->option->id != AOTICACHE_KERNEL_INPUTS)
        return add_tensor(request, word->name, &options->tensors[(*tensor)++], options->device, error);
    aoticache_status status = aoticache_request_begin_list(request, word->name, error);
    const char *text = word->value;
    char *item;
    while (status == AOTICACHE_OK && (item = next_item(&text)) != NULL) {
        free(item);
        status = add_tensor(request, NULL, &options->tensors[(*tensor)++], options->device, error);
    }
    return status == AOTICACHE_OK ? aoticache_request_end_list(request, error) : status;
}

static aoticache_status add_word(const aoticache_kernel_options *options, aoticache_request *request,
                                 const aoticache_kernel_word *word, size_t *tensor, aoticache_error *error)
{
    switch (word->option->id) {
    case AOTICACHE_KERNEL_INPUT:
    case AOTICACHE_KERNEL_WEIGHT:
    case AOTICACHE_KERNEL_INPUTS:
        return add_tensors(options, request, word, tensor, error);
    case AOTICACHE_KERNEL_SCALAR:
        return add_number(request, word->name, word->value, false, error);
    case AOTICACHE_KERNEL_INT:
        return add_integer(request, word->name, word->value, error);
    case AOTICACHE_KERNEL_DOUBLE:
        return add_number(request, word->name, word->value, true, error);
    case AOTICACHE_KERNEL_BOOL:
        return add_bool(request, word->name, word->value, error);
    case AOTICACHE_KERNEL_COMPLEX:
        return add_complex(request, word->name, word->value, error);
    case AOTICACHE_KERNEL_STRING:
        return aoticache_request_add_string(request, word->name, word->value, error);
    case AOTICACHE_KERNEL_NONE:
        return aoticache_request_add_none(request, word->name, error);
    case AOTICACHE_KERNEL_LIST:
        return add_list(request, word->name, word->value, error);
    case AOTICACHE_KERNEL_DEVICE_ARGUMENT:
        return add_device(request, word->name, word->value, error);
    default:
        return add_named_number(request, word->name, word->option->id, word->value, error);
    }
}

int aoticache_kernel_make_request(const aoticache_kernel_options *options, const aoticache_cli *cli,
                                  aoticache_request **ret_request)
{
    aoticache_error error = {.message = ""};
    aoticache_request *request = NULL;
    aoticache_status status = aoticache_request_create(options->op, options->device, &request, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_usage_error(cli, "%s", error.message);
    size_t tensor = 0;
    for (size_t i = 0; i < options->word_count; i++) {
        status = add_word(options, request, &options->words[i], &tensor, &error);
        if (status != AOTICACHE_OK) {
            aoticache_request_free(request);
            return status == AOTICACHE_INVALID ? refuse_word(cli, &options->words[i], error.message)
                                               : aoticache_cli_fail(cli, status, &error);
        }
    }
    *ret_request = request;
    return AOTICACHE_CLI_EXIT_OK;
}

aoticache_status aoticache_kernel_parse_line(const char *line, aoticache_request **ret_request,
                                             aoticache_error *ret_error)
{
    return line[strspn(line, " \t\r\n")] == '{'
               ? aoticache_request_parse(line, AOTICACHE_REQUEST_JSON, ret_request, ret_error)
               : aoticache_request_parse(line, AOTICACHE_REQUEST_TEXT, ret_request, ret_error);
}

char *aoticache_kernel_describe(const aoticache_request *request)
{
    size_t length = aoticache_request_format(request, NULL, 0);
    char *text = aoticache_cli_allocate(length + 1, 1);
    aoticache_request_format(request, text, length + 1);
    return text;
}
