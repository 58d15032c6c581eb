/*
 * tools/aoticache/arguments/tensor_print: prints a tensor as text or as JSON.
 *
 * Elements are aligned to the widest one shown; of a large tensor only the ends of each dimension are shown. The library of
 * the kernel decided where results are: a tensor that is not on the CPU is not read.
 */
#include "base/cleanup.h"
#include "tools/aoticache/arguments/arguments.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE_UP_TO 200 /* elements */
#define ENDS 3          /* shown at each end of a dimension of a large tensor */
#define ELEMENT_TEXT_BYTES 96

struct printer {
    const aoticache_tensor_view *view;
    bool whole;
    int width; /* of the widest element; 0 while measuring */
    bool measuring;
};

static void format_real(double value, int32_t dtype, char *ret_text, size_t size)
{
    int digits = dtype == AOTICACHE_DTYPE_FLOAT64 || dtype == AOTICACHE_DTYPE_COMPLEX128 ? 10 : 6;
    snprintf(ret_text, size, "%.*g", digits, value);
    if (isfinite(value) && strcspn(ret_text, ".e") == strlen(ret_text))
        strncat(ret_text, ".", size - strlen(ret_text) - 1);
}

static void format_element(int32_t dtype, const void *place, char ret_text[ELEMENT_TEXT_BYTES])
{
    aoticache_element element = aoticache_element_read(dtype, place);
    char imaginary[32];
    switch (element.kind) {
    case AOTICACHE_ELEMENT_INT:
        snprintf(ret_text, ELEMENT_TEXT_BYTES, "%" PRId64, element.int_value);
        break;
    case AOTICACHE_ELEMENT_UINT:
        snprintf(ret_text, ELEMENT_TEXT_BYTES, "%" PRIu64, element.uint_value);
        break;
    case AOTICACHE_ELEMENT_BITS:
        snprintf(ret_text, ELEMENT_TEXT_BYTES, "0x%02" PRIx64, element.uint_value);
        break;
    case AOTICACHE_ELEMENT_BOOL:
        snprintf(ret_text, ELEMENT_TEXT_BYTES, "%s", element.int_value != 0 ? "true" : "false");
        break;
    case AOTICACHE_ELEMENT_REAL:
        format_real(element.real, dtype, ret_text, ELEMENT_TEXT_BYTES);
        break;
    case AOTICACHE_ELEMENT_COMPLEX:
        format_real(element.real, dtype, ret_text, 32);
        format_real(element.imaginary, dtype, imaginary, sizeof imaginary);
        snprintf(ret_text + strlen(ret_text), ELEMENT_TEXT_BYTES - strlen(ret_text), "%s%sj",
                 imaginary[0] == '-' ? "" : "+", imaginary);
        break;
    }
}

static void print_element(struct printer *printer, const char *place)
{
    char text[ELEMENT_TEXT_BYTES];
    format_element(printer->view->dtype, place, text);
    if (!printer->measuring)
        printf("%*s", printer->width, text);
    else if ((int)strlen(text) > printer->width)
        printer->width = (int)strlen(text);
}

static void print_text(const struct printer *printer, const char *text)
{
    if (!printer->measuring)
        fputs(text, stdout);
}

/* Prints one dimension and its contents. `place` is its first element. */
static void print_dimension(struct printer *printer, int64_t dim, const char *place)
{
    const aoticache_tensor_view *view = printer->view;
    if (dim == view->ndim) {
        print_element(printer, place);
        return;
    }
    int64_t size = view->sizes[dim];
    int64_t step = view->strides[dim] * (int64_t)aoticache_dtype_size(view->dtype);
    bool innermost = dim + 1 == view->ndim;
    print_text(printer, "[");
    for (int64_t i = 0; i < size; i++) {
        if (i > 0) {
            print_text(printer, innermost ? ", " : ",\n");
            for (int64_t space = 0; !innermost && space < dim + 3; space++)
                print_text(printer, " ");
        }
        if (!printer->whole && size > 2 * ENDS && i == ENDS) {
            print_text(printer, "...");
            i = size - ENDS - 1;
            continue;
        }
        print_dimension(printer, dim + 1, place + i * step);
    }
    print_text(printer, "]");
}

void aoticache_tensor_print(const aoticache_cli *cli, const char *name, const aoticache_tensor_view *view)
{
    const char *dtype = aoticache_dtype_name(view->dtype);
    printf("%s%s%s: %s[", aoticache_cli_style_begin(cli, AOTICACHE_CLI_BOLD), name,
           aoticache_cli_style_begin(cli, AOTICACHE_CLI_PLAIN), dtype != NULL ? dtype : "unknown dtype");
    for (int64_t i = 0; i < view->ndim; i++)
        printf("%s%" PRId64, i > 0 ? ", " : "", view->sizes[i]);
    printf("]\n");
    char device[AOTICACHE_DEVICE_TEXT_BYTES];
    aoticache_device_format(view->device, device);
    if (view->device.type != AOTICACHE_DEVICE_TYPE_CPU || dtype == NULL) {
        printf("  not shown (on %s)\n", device);
        return;
    }
    struct printer printer = {.view = view, .whole = view->numel <= WHOLE_UP_TO, .measuring = true};
    print_dimension(&printer, 0, view->data);
    printer.measuring = false;
    printf("  ");
    print_dimension(&printer, 0, view->data);
    printf("\n");
}

/* ---- JSON ---- */

static json_t *element_to_json(int32_t dtype, const void *place)
{
    aoticache_element element = aoticache_element_read(dtype, place);
    json_t *pair;
    switch (element.kind) {
    case AOTICACHE_ELEMENT_INT:
        return json_integer(element.int_value);
    case AOTICACHE_ELEMENT_BOOL:
        return json_boolean(element.int_value != 0);
    case AOTICACHE_ELEMENT_REAL:
        return aoticache_cli_json_number(element.real);
    case AOTICACHE_ELEMENT_COMPLEX:
        pair = aoticache_cli_json_array();
        aoticache_cli_json_append(pair, aoticache_cli_json_number(element.real));
        aoticache_cli_json_append(pair, aoticache_cli_json_number(element.imaginary));
        return pair;
    default:
        /* Integers above 2^63 - 1 lose their last digits: JSON values cannot hold them. */
        return element.uint_value <= INT64_MAX ? json_integer((json_int_t)element.uint_value)
                                               : json_real((double)element.uint_value);
    }
}

static json_t *values_to_json(const aoticache_tensor_view *view, uint64_t limit)
{
    json_t *values = aoticache_cli_json_array();
    int64_t size = (int64_t)aoticache_dtype_size(view->dtype);
    int64_t position[AOTICACHE_MAX_DIMS] = {0};
    int64_t offset = 0;
    for (int64_t i = 0; i < view->numel && (uint64_t)i < limit; i++) {
        aoticache_cli_json_append(values, element_to_json(view->dtype, (const char *)view->data + offset * size));
        for (int64_t dim = view->ndim; dim-- > 0;) {
            offset += view->strides[dim];
            if (++position[dim] < view->sizes[dim])
                break;
            offset -= view->strides[dim] * view->sizes[dim];
            position[dim] = 0;
        }
    }
    return values;
}

json_t *aoticache_tensor_to_json(const aoticache_tensor_view *view, uint64_t limit)
{
    json_t *object = aoticache_cli_json_object();
    json_t *sizes = aoticache_cli_json_array();
    json_t *strides = aoticache_cli_json_array();
    for (int64_t i = 0; i < view->ndim; i++) {
        aoticache_cli_json_append(sizes, json_integer(view->sizes[i]));
        aoticache_cli_json_append(strides, json_integer(view->strides[i]));
    }
    char device[AOTICACHE_DEVICE_TEXT_BYTES];
    aoticache_device_format(view->device, device);
    bool readable = view->device.type == AOTICACHE_DEVICE_TYPE_CPU && aoticache_dtype_name(view->dtype) != NULL &&
                    view->ndim <= AOTICACHE_MAX_DIMS;
    aoticache_cli_json_set(object, "dtype", aoticache_cli_json_text(aoticache_dtype_name(view->dtype)));
    aoticache_cli_json_set(object, "device", aoticache_cli_json_text(device));
    aoticache_cli_json_set(object, "sizes", sizes);
    aoticache_cli_json_set(object, "strides", strides);
    aoticache_cli_json_set(object, "truncated", json_boolean(!readable || (uint64_t)view->numel > limit));
    aoticache_cli_json_set(object, "values", readable ? values_to_json(view, limit) : aoticache_cli_json_array());
    return object;
}
