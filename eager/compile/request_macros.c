/*
 * eager/compile/request_macros: writes a request as macros, so that a kernel in C is compiled with its dtypes, sizes, strides
 * and scalars as constants. Compiling is in c_source.c.
 */
#include "base/names.h"
#include "base/text/stream.h"
#include "eager/compile/hook_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void aoticache_kernel_file_name(const char *op, char ret_name[AOTICACHE_KERNEL_FILE_BYTES])
{
    size_t used = 0;
    for (size_t i = 0; op[i] != '\0' && used < AOTICACHE_KERNEL_FILE_BYTES - 3; i++) {
        if (op[i] == ':' && op[i + 1] == ':')
            i++;
        bool plain = op[i] != ':' && op[i] != '.' && op[i] != '/';
        ret_name[used++] = plain ? op[i] : '_';
    }
    memcpy(ret_name + used, ".c", 3);
}

/* ---- values ---- */

/* Returns the C type of a dtype; NULL if kernels in C have none. */
static const char *c_type(int32_t dtype)
{
    switch (dtype) {
    case AOTICACHE_DTYPE_FLOAT32:
        return "float";
    case AOTICACHE_DTYPE_FLOAT64:
        return "double";
    case AOTICACHE_DTYPE_UINT8:
        return "uint8_t";
    case AOTICACHE_DTYPE_INT8:
        return "int8_t";
    case AOTICACHE_DTYPE_INT16:
        return "int16_t";
    case AOTICACHE_DTYPE_INT32:
        return "int32_t";
    case AOTICACHE_DTYPE_INT64:
        return "int64_t";
    default:
        return NULL;
    }
}

static void print_int(FILE *out, int64_t value)
{
    if (value == INT64_MIN)
        fputs("(-INT64_C(9223372036854775807) - 1)", out);
    else
        fprintf(out, "INT64_C(%" PRId64 ")", value);
}

/* Prints a double exactly, without a decimal point, because printf's depends on the host's locale. */
static void print_double(FILE *out, double value)
{
    if (isnan(value)) {
        fputs("__builtin_nan(\"\")", out);
    } else if (isinf(value)) {
        fputs(value > 0 ? "__builtin_inf()" : "(-__builtin_inf())", out);
    } else {
        int exponent = 0;
        double mantissa = ldexp(frexp(fabs(value), &exponent), 53);
        fprintf(out, "(%s0x%" PRIx64 "p%d)", signbit(value) ? "-" : "", (uint64_t)mantissa, exponent - 53);
    }
}

/* Prints a string; unusual characters become octal escapes, so that no text ends the literal. */
static void print_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_' ||
                     *c == '-' || *c == '.' || *c == ' ';
        if (plain)
            fputc(*c, out);
        else
            fprintf(out, "\\%03o", *c);
    }
    fputc('"', out);
}

/* Prints "{2, 3}"; "{0}" for none, since C has no empty arrays. */
static void print_sizes(FILE *out, const char *prefix, const char *what, const int64_t *values, uint32_t count)
{
    fprintf(out, "#define %s_%s {", prefix, what);
    for (uint32_t i = 0; i < count; i++) {
        fputs(i > 0 ? ", " : "", out);
        print_int(out, values[i]);
    }
    fputs(count == 0 ? "0}\n" : "}\n", out);
}

/* ---- arguments ---- */

/* The tensors up to now, including those in lists: their number, and their broadcast sizes, the last one first. */
struct inputs {
    size_t count;
    bool cannot_broadcast;
    int64_t sizes[64];
    uint32_t ndim;
};

/* Adds a tensor by PyTorch's rule: counted from the last, sizes are equal or one of them is 1. */
static void note_input(struct inputs *inputs, const aoticache_tensor_metadata *metadata)
{
    const uint32_t limit = sizeof inputs->sizes / sizeof inputs->sizes[0];
    inputs->count++;
    for (uint32_t i = 0; i < metadata->ndim && i < limit; i++) {
        int64_t size = metadata->sizes[metadata->ndim - 1 - i];
        if (i >= inputs->ndim)
            inputs->sizes[inputs->ndim++] = 1;
        if (inputs->sizes[i] == 1)
            inputs->sizes[i] = size;
        else if (size != 1 && size != inputs->sizes[i])
            inputs->cannot_broadcast = true;
    }
}

/* Counts the elements. Sets *ret_contiguous if they are in row-major order without gaps. */
static int64_t count_elements(const aoticache_tensor_metadata *metadata, bool *ret_contiguous)
{
    int64_t numel = 1;
    bool contiguous = true;
    for (uint32_t i = metadata->ndim; i-- > 0;) {
        if (metadata->sizes[i] != 1 && metadata->strides[i] != numel)
            contiguous = false;
        numel *= metadata->sizes[i];
    }
    *ret_contiguous = contiguous || numel == 0;
    return numel;
}

/* Returns true if the elements fill memory without gaps and overlaps, in any order of the dimensions. */
static bool is_dense(const aoticache_tensor_metadata *metadata, int64_t numel)
{
    int64_t filled = 1;
    uint64_t done = 0;
    for (uint32_t round = 0; round < metadata->ndim && numel != 0; round++) {
        uint32_t next = metadata->ndim;
        for (uint32_t i = 0; i < metadata->ndim; i++)
            if (!(done >> i & 1) && (metadata->sizes[i] == 1 || metadata->strides[i] == filled))
                next = i;
        if (next == metadata->ndim)
            return false;
        done |= UINT64_C(1) << next;
        filled *= metadata->sizes[next];
    }
    return true;
}

static void print_tensor(FILE *out, const char *prefix, const aoticache_tensor_metadata *metadata,
                         struct inputs *inputs)
{
    bool contiguous = true;
    int64_t numel = count_elements(metadata, &contiguous);
    fprintf(out, "#define %s_INPUT %zu\n", prefix, inputs->count);
    note_input(inputs, metadata);
    fprintf(out, "#define %s_DTYPE %d\n", prefix, (int)metadata->dtype);
    fprintf(out, "#define %s_DTYPE_NAME \"%s\"\n", prefix, aoticache_dtype_name(metadata->dtype));
    if (c_type(metadata->dtype) != NULL)
        fprintf(out, "#define %s_TYPE %s\n", prefix, c_type(metadata->dtype));
    bool floating = metadata->dtype == AOTICACHE_DTYPE_FLOAT32 || metadata->dtype == AOTICACHE_DTYPE_FLOAT64;
    fprintf(out, "#define %s_IS_FLOATING %d\n", prefix, floating);
    fprintf(out, "#define %s_NDIM %u\n", prefix, (unsigned)metadata->ndim);
    fprintf(out, "#define %s_NUMEL ", prefix);
    print_int(out, numel);
    fprintf(out, "\n#define %s_IS_CONTIGUOUS %d\n", prefix, contiguous);
    fprintf(out, "#define %s_IS_DENSE %d\n", prefix, is_dense(metadata, numel));
    print_sizes(out, prefix, "SIZES", metadata->sizes, metadata->ndim);
    print_sizes(out, prefix, "STRIDES", metadata->strides, metadata->ndim);
    for (uint32_t i = 0; i < metadata->ndim; i++) {
        fprintf(out, "#define %s_SIZE%u ", prefix, (unsigned)i);
        print_int(out, metadata->sizes[i]);
        fprintf(out, "\n#define %s_STRIDE%u ", prefix, (unsigned)i);
        print_int(out, metadata->strides[i]);
        fputc('\n', out);
    }
}

static void print_value(FILE *out, const char *prefix, const aoticache_argument *argument)
{
    if (argument->kind == AOTICACHE_ARGUMENT_DEVICE) {
        fprintf(out, "#define %s_DEVICE_TYPE %d\n#define %s_DEVICE_INDEX %d\n", prefix,
                (int)argument->value.device_value.type, prefix, (int)argument->value.device_value.index);
        return;
    }
    fprintf(out, "#define %s_%s ", prefix, argument->kind == AOTICACHE_ARGUMENT_COMPLEX ? "REAL" : "VALUE");
    switch (argument->kind) {
    case AOTICACHE_ARGUMENT_DOUBLE:
        print_double(out, argument->value.double_value);
        break;
    case AOTICACHE_ARGUMENT_COMPLEX:
        print_double(out, argument->value.complex_value[0]);
        fprintf(out, "\n#define %s_IMAGINARY ", prefix);
        print_double(out, argument->value.complex_value[1]);
        break;
    case AOTICACHE_ARGUMENT_BOOL:
        fputc(argument->value.bool_value ? '1' : '0', out);
        break;
    case AOTICACHE_ARGUMENT_STRING:
        print_string(out, argument->value.string_value);
        break;
    default:
        print_int(out, argument->value.int_value);
        break;
    }
    fputc('\n', out);
}

static const char *const kind_names[] = {
#define KIND_NAME(upper, lower, number) [number] = #upper,
    AOTICACHE_ARGUMENT_KIND_LIST(KIND_NAME)
#undef KIND_NAME
};

static aoticache_status print_argument(FILE *out, const char *prefix, const aoticache_argument *argument,
                                       struct inputs *inputs, aoticache_error *ret_error)
{
    if (argument->kind == AOTICACHE_ARGUMENT_CONSTANT)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "hook c: argument %s is a constant, which kernels in C do not support: pass it "
                                   "as a tensor",
                                   prefix);
    fprintf(out, "#define %s_IS_%s 1\n", prefix, kind_names[argument->kind]);
    if (argument->kind == AOTICACHE_ARGUMENT_TENSOR) {
        const aoticache_tensor_metadata *metadata = &argument->value.tensor.metadata;
        if (metadata->device.type != AOTICACHE_DEVICE_TYPE_CPU || metadata->layout != AOTICACHE_LAYOUT_STRIDED)
            return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                       "hook c: tensor %s is not a strided tensor on the CPU", prefix);
        print_tensor(out, prefix, metadata, inputs);
    } else if (argument->kind != AOTICACHE_ARGUMENT_NONE && argument->kind != AOTICACHE_ARGUMENT_LIST) {
        print_value(out, prefix, argument);
    }
    return AOTICACHE_OK;
}

static aoticache_status print_list(FILE *out, const char *prefix, const aoticache_argument *argument,
                                   struct inputs *inputs, aoticache_error *ret_error)
{
    fprintf(out, "#define %s_COUNT %zu\n", prefix, argument->value.list.count);
    for (size_t i = 0; i < argument->value.list.count; i++) {
        char item[128];
        snprintf(item, sizeof item, "%s_ITEM%zu", prefix, i);
        aoticache_status status = print_argument(out, item, &argument->value.list.items[i], inputs, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    return AOTICACHE_OK;
}

/* Makes ARG0, ARG1 ... for positional arguments, KEY_alpha for keyword ones; '_' replaces other characters. */
static void make_prefix(const aoticache_argument *argument, size_t position, char *ret_prefix, size_t size)
{
    if (argument->name[0] == '\0') {
        snprintf(ret_prefix, size, "ARG%zu", position);
        return;
    }
    snprintf(ret_prefix, size, "KEY_%.80s", argument->name);
    for (char *c = ret_prefix; *c != '\0'; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9')))
            *c = '_';
}

static aoticache_status print_arguments(FILE *out, const aoticache_request *request, aoticache_error *ret_error)
{
    struct inputs inputs = {0};
    size_t count = aoticache_request_argument_count(request);
    for (size_t i = 0; i < count; i++) {
        const aoticache_argument *argument = aoticache_request_argument(request, i);
        char prefix[96];
        make_prefix(argument, i, prefix, sizeof prefix);
        aoticache_status status = print_argument(out, prefix, argument, &inputs, ret_error);
        if (status == AOTICACHE_OK && argument->kind == AOTICACHE_ARGUMENT_LIST)
            status = print_list(out, prefix, argument, &inputs, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    fprintf(out, "#define INPUT_COUNT %zu\n#define INPUTS_BROADCAST %d\n#define ARGUMENT_COUNT %zu\n", inputs.count,
            !inputs.cannot_broadcast, count);
    return AOTICACHE_OK;
}

aoticache_status aoticache_request_macros(const aoticache_request *request, char **ret_text, size_t *ret_size,
                                          aoticache_error *ret_error)
{
    if (aoticache_request_device(request).type != AOTICACHE_DEVICE_TYPE_CPU)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "hook c: %s is not requested for the CPU",
                                   aoticache_request_op(request));
    char *text = NULL;
    size_t size = 0;
    FILE *out = aoticache_text_stream_open(&text, &size);
    if (out == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook c: out of memory");
    fprintf(out, "#include <stdint.h>\n#define OPERATOR \"%s\"\n", aoticache_request_op(request));
    aoticache_status status = print_arguments(out, request, ret_error);
    bool complete = !ferror(out);
    complete = fclose(out) == 0 && complete;
    if (status == AOTICACHE_OK && !complete)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook c: out of memory");
    if (status != AOTICACHE_OK) {
        free(text);
        return status;
    }
    *ret_text = text;
    *ret_size = size;
    return AOTICACHE_OK;
}
