/*
 * eager/model/package/inputs: requirements of the inputs of a package's model, read from the source of its wrapper.
 *
 * PyTorch writes the example's dtypes, sizes, strides and ranges into the wrapper: as a comparison that runs only with
 * AOTI_RUNTIME_CHECK_INPUTS=1, and as one line of sizes and strides for each input. Both are read here, line by line; anything
 * unknown means no requirement. The comparison in the code cannot be used: it requires at least 2 for every size that is not
 * fixed, which PyTorch's compiler assumes for all of them, whatever the export allows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/names.h"
#include "eager/model/package/package_internal.h"
#include "loader/check/check.h"

#define MAX_SOURCE_BYTES (256u << 20)
#define MAX_DIMS 64
#define NAME_BYTES 64
/* The least value that PyTorch's compiler assumes for a size; the export may allow less. */
#define ASSUMED_LEAST 2

struct input {
    char name[NAME_BYTES], dtype[32];
    int device_type;
    unsigned ndim;
    bool has_shape; /* sizes and strides were read from its line */
    aoticache_dim sizes[MAX_DIMS], strides[MAX_DIMS];
    int64_t least[MAX_DIMS], most[MAX_DIMS];
};

struct reader {
    struct input *inputs;
    unsigned count, current; /* current == count: no input is being read */
    char symbol_names[AOTICACHE_CHECK_MAX_SYMBOLS][NAME_BYTES];
    aoticache_symbol symbols[AOTICACHE_CHECK_MAX_SYMBOLS];
    unsigned symbol_count;
    char numbers[256]; /* positions of the results that are numbers */
};

static const aoticache_dim free_dim = {.is_free = true};

/* ---- sizes and strides ---- */

static aoticache_dim constant_dim(int64_t value)
{
    return (aoticache_dim){.offset = value};
}

/* Returns the number of a symbol, which may be new; -1: there are too many. */
static int find_symbol(struct reader *reader, const char *name)
{
    for (unsigned i = 0; i < reader->symbol_count; i++)
        if (strcmp(reader->symbol_names[i], name) == 0)
            return (int)i;
    if (reader->symbol_count == AOTICACHE_CHECK_MAX_SYMBOLS)
        return -1;
    snprintf(reader->symbol_names[reader->symbol_count], NAME_BYTES, "%s", name);
    reader->symbols[reader->symbol_count] = (aoticache_symbol)AOTICACHE_SYMBOL_INIT;
    return (int)reader->symbol_count++;
}

static void sort_symbols(aoticache_dim *dim)
{
    for (unsigned i = 1; i < dim->symbol_count; i++)
        for (unsigned j = i; j > 0 && dim->symbols[j] < dim->symbols[j - 1]; j--) {
            uint8_t other = dim->symbols[j];
            dim->symbols[j] = dim->symbols[j - 1];
            dim->symbols[j - 1] = other;
        }
}

/* Reads a product: "64L*s77". false: it is not one. */
static bool read_product(struct reader *reader, const char **text, aoticache_dim *ret_product)
{
    aoticache_dim product = {.coefficient = 1};
    const char *at = *text;
    for (;;) {
        char name[NAME_BYTES];
        int used = 0;
        at += strspn(at, " ");
        if (*at >= '0' && *at <= '9') {
            char *end;
            int64_t factor = strtoll(at, &end, 10);
            if (__builtin_mul_overflow(product.coefficient, factor, &product.coefficient))
                return false;
            at = end + strspn(end, "L");
        } else if (sscanf(at, "%63[A-Za-z0-9_]%n", name, &used) == 1) {
            int symbol = find_symbol(reader, name);
            if (symbol < 0 || product.symbol_count == AOTICACHE_DIM_MAX_SYMBOLS)
                return false;
            product.symbols[product.symbol_count++] = (uint8_t)symbol;
            at += used;
        } else {
            return false;
        }
        at += strspn(at, " ");
        if (*at != '*')
            break;
        at++;
    }
    *text = at;
    *ret_product = product;
    return true;
}

/* Reads a size or a stride, up to the end of the text: a product plus a number. Anything else is unrestricted. */
static aoticache_dim read_dim(struct reader *reader, char *text)
{
    aoticache_dim dim = {.coefficient = 0}, term;
    const unsigned symbols_before = reader->symbol_count;
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ')
        text[--length] = '\0';
    text += strspn(text, " ");
    if (text[0] == '(' && length > 1 && strchr(text, ')') == text + strlen(text) - 1) {
        text[strlen(text) - 1] = '\0';
        text++;
    }
    int sign = 1;
    for (const char *at = text;;) {
        bool read = read_product(reader, &at, &term);
        if (read && term.symbol_count == 0) {
            dim.offset += sign * term.coefficient;
        } else if (read && sign > 0 && dim.symbol_count == 0) {
            term.offset = dim.offset;
            dim = term;
        } else {
            read = false;
        }
        if (!read || (*at != '\0' && *at != '+' && *at != '-')) {
            reader->symbol_count = symbols_before;
            return free_dim;
        }
        if (*at == '\0')
            break;
        sign = *at++ == '+' ? 1 : -1;
    }
    sort_symbols(&dim);
    return dim;
}

/* Takes the next item of a list: up to a comma outside parentheses. NULL: there is none. */
static char *next_item(char **rest)
{
    char *item = *rest;
    int depth = 0;
    for (char *at = item; at != NULL; at++) {
        depth += (*at == '(') - (*at == ')');
        if (*at != '\0' && (*at != ',' || depth > 0))
            continue;
        *rest = *at == ',' ? at + 1 : NULL;
        *at = '\0';
        break;
    }
    return item;
}

/* Reads "{s77, 64L}" and advances past it. Returns the number of items; -1: it is not such a list. */
static int read_dims(struct reader *reader, char **text, aoticache_dim *ret_dims)
{
    char *begin = strchr(*text, '{'), *end = begin != NULL ? strchr(begin, '}') : NULL;
    int count = 0;
    if (end == NULL)
        return -1;
    *end = '\0';
    *text = end + 1;
    for (char *rest = begin + 1, *item; (item = next_item(&rest)) != NULL;) {
        if (item[strspn(item, " ")] == '\0')
            continue;
        if (count == MAX_DIMS)
            return -1;
        ret_dims[count++] = read_dim(reader, item);
    }
    return count;
}

/* ---- lines ---- */

/* Reads: assert_size_stride(arg3_1, {s77, 64L}, {64L, 1L}, "input"); */
static void read_shape(struct reader *reader, char *line)
{
    char name[NAME_BYTES];
    aoticache_dim sizes[MAX_DIMS], strides[MAX_DIMS];
    if (strstr(line, "\"input\")") == NULL || sscanf(line, "assert_size_stride(%63[A-Za-z0-9_]", name) != 1)
        return;
    for (unsigned i = 0; i < reader->count; i++) {
        struct input *input = &reader->inputs[i];
        if (strcmp(input->name, name) != 0)
            continue;
        int ndim = read_dims(reader, &line, sizes);
        if (ndim < 0 || read_dims(reader, &line, strides) != ndim)
            return;
        memcpy(input->sizes, sizes, sizeof sizes);
        memcpy(input->strides, strides, sizeof strides);
        input->ndim = (unsigned)ndim;
        input->has_shape = true;
        return;
    }
}

static void note_dimension(struct input *input, unsigned dimension)
{
    if (dimension >= input->ndim)
        input->ndim = dimension + 1;
}

/* Reads a line of the comparison of one input. */
static void read_comparison(struct input *input, const char *line)
{
    long long number;
    unsigned d;
    const char *at = strstr(line, "_expected_dtype = aoti_torch_dtype_");
    if (at != NULL)
        sscanf(at, "_expected_dtype = aoti_torch_dtype_%31[a-z0-9_]", input->dtype);
    at = strstr(line, "_expected_device_type = ");
    if (at != NULL)
        sscanf(at, "_expected_device_type = %d", &input->device_type);
    if (sscanf(line, " if (%lld != %*[A-Za-z0-9_][%u])", &number, &d) == 2 && d < MAX_DIMS && number >= 0) {
        const bool is_size = strstr(line, "_size[") != NULL;
        note_dimension(input, d);
        (is_size ? input->sizes : input->strides)[d] = constant_dim(number);
    } else if (sscanf(line, " if (%*[A-Za-z0-9_][%u] < %lld)", &d, &number) == 2 && d < MAX_DIMS) {
        note_dimension(input, d);
        input->least[d] = number;
    } else if (sscanf(line, " if (%*[A-Za-z0-9_][%u] > %lld)", &d, &number) == 2 && d < MAX_DIMS) {
        note_dimension(input, d);
        input->most[d] = number;
    }
}

static bool begin_input(struct reader *reader, const char *line)
{
    char name[NAME_BYTES];
    unsigned index;
    if (sscanf(line, " ConstantHandle %63[A-Za-z0-9_] = ConstantHandle(input_handles[%u]);", name, &index) != 2)
        return true;
    if (index != reader->count || index >= AOTICACHE_CHECK_MAX_TENSORS)
        return index < reader->count;
    struct input *more = realloc(reader->inputs, (index + 1) * sizeof *more);
    if (more == NULL)
        return false;
    struct input *input = &more[index];
    *input = (struct input){.device_type = -1};
    memcpy(input->name, name, sizeof name);
    for (unsigned d = 0; d < MAX_DIMS; d++) {
        input->sizes[d] = input->strides[d] = free_dim;
        input->most[d] = INT64_MAX;
    }
    reader->inputs = more;
    reader->current = index;
    reader->count = index + 1;
    return true;
}

static void note_number(struct reader *reader, unsigned output)
{
    size_t used = strlen(reader->numbers);
    snprintf(reader->numbers + used, sizeof reader->numbers - used, "%s%u", used > 0 ? "," : "", output);
}

/* Reads: int64_t s77 = arg0_1_size[0]; */
static void read_binding(struct reader *reader, const char *line)
{
    char symbol_name[NAME_BYTES], name[NAME_BYTES];
    unsigned d;
    if (sscanf(line, " int64_t %63[A-Za-z0-9_] = %63[A-Za-z0-9_][%u];", symbol_name, name, &d) != 3 || d >= MAX_DIMS)
        return;
    for (unsigned i = 0; i < reader->count; i++) {
        struct input *input = &reader->inputs[i];
        const size_t length = strlen(input->name);
        const bool is_size = strcmp(name + strnlen(name, length), "_size") == 0;
        if (strncmp(name, input->name, length) != 0 || (!is_size && strcmp(name + length, "_stride") != 0))
            continue;
        aoticache_dim *dim = &(is_size ? input->sizes : input->strides)[d];
        int symbol = dim->is_free ? find_symbol(reader, symbol_name) : -1;
        note_dimension(input, d);
        if (symbol >= 0)
            *dim = (aoticache_dim){.symbol_count = 1, .symbols = {(uint8_t)symbol}, .coefficient = 1};
    }
}

static bool read_line(struct reader *reader, char *line)
{
    unsigned output;
    int used = 0;
    char *shape = strstr(line, "assert_size_stride(");
    if (!begin_input(reader, line))
        return false;
    if (strstr(line, "_check_aoti_runtime_check_inputs_env()") != NULL)
        reader->current = reader->count;
    if (reader->current < reader->count)
        read_comparison(&reader->inputs[reader->current], line);
    else if (shape != NULL)
        read_shape(reader, shape);
    else if (sscanf(line, " output_handles[%u] = scalar_to_tensor_%*u.%n", &output, &used) == 1 && used > 0)
        note_number(reader, output);
    else
        read_binding(reader, line);
    return true;
}

/* ---- the check ---- */

static void narrow(struct reader *reader, unsigned symbol, int64_t least, int64_t most)
{
    aoticache_symbol *known = &reader->symbols[symbol];
    if (least > ASSUMED_LEAST && least > known->min)
        known->min = least;
    if (most < known->max)
        known->max = most;
}

/* Gives unrestricted sizes their own symbols, and symbols their ranges. false: there are too many. */
static bool name_sizes(struct reader *reader, unsigned index)
{
    struct input *input = &reader->inputs[index];
    for (unsigned d = 0; d < input->ndim; d++) {
        aoticache_dim *size = &input->sizes[d];
        if (size->is_free && !input->has_shape) {
            char name[NAME_BYTES];
            snprintf(name, sizeof name, "size %u of %u", d, index);
            int symbol = find_symbol(reader, name);
            if (symbol < 0)
                return false;
            *size = (aoticache_dim){.symbol_count = 1, .symbols = {(uint8_t)symbol}, .coefficient = 1};
        }
        if (!size->is_free && size->symbol_count == 1 && size->coefficient == 1 && size->offset == 0)
            narrow(reader, size->symbols[0], input->least[d], input->most[d]);
    }
    return true;
}

static bool is_same(const aoticache_dim *a, const aoticache_dim *b)
{
    return !a->is_free && !b->is_free && a->coefficient == b->coefficient && a->offset == b->offset &&
           a->symbol_count == b->symbol_count && memcmp(a->symbols, b->symbols, a->symbol_count) == 0;
}

/* Multiplies a product by a size. false: the result is not a product. */
static bool multiply(aoticache_dim *step, const aoticache_dim *size)
{
    if (size->is_free || (size->symbol_count > 0 && size->offset != 0) ||
        step->symbol_count + size->symbol_count > AOTICACHE_DIM_MAX_SYMBOLS)
        return false;
    const int64_t factor = size->symbol_count > 0 ? size->coefficient : size->offset;
    int64_t *number = step->symbol_count > 0 ? &step->coefficient : &step->offset;
    if (__builtin_mul_overflow(*number, factor, number))
        return false;
    if (step->symbol_count == 0 && size->symbol_count > 0) {
        step->coefficient = step->offset;
        step->offset = 0;
    }
    for (unsigned i = 0; i < size->symbol_count; i++)
        step->symbols[step->symbol_count++] = size->symbols[i];
    sort_symbols(step);
    return true;
}

/* Returns whether the strides are those of a dense tensor; order: its dimensions, innermost first. */
static bool is_dense(const struct input *input, const uint8_t *order)
{
    aoticache_dim step = constant_dim(1);
    const aoticache_dim one = constant_dim(1);
    for (unsigned i = 0; i < input->ndim; i++) {
        const unsigned d = order != NULL ? order[i] : input->ndim - 1 - i;
        if (is_same(&input->sizes[d], &one))
            continue;
        if (!is_same(&input->strides[d], &step) || (i + 1 < input->ndim && !multiply(&step, &input->sizes[d])))
            return false;
    }
    return true;
}

/* Returns the rule for strides. Those of dimensions of size 1 do not matter, so a memory format is better than numbers. */
static aoticache_stride_rule rule_of(const struct input *input)
{
    static const uint8_t of_4[] = {1, 3, 2, 0}, of_5[] = {1, 4, 3, 2, 0};
    if (is_dense(input, NULL))
        return AOTICACHE_STRIDES_CONTIGUOUS;
    if (input->ndim == 4 && is_dense(input, of_4))
        return AOTICACHE_STRIDES_CHANNELS_LAST;
    if (input->ndim == 5 && is_dense(input, of_5))
        return AOTICACHE_STRIDES_CHANNELS_LAST_3D;
    return AOTICACHE_STRIDES_GIVEN;
}

static bool make_pattern(const struct input *input, aoticache_tensor_pattern *ret_pattern)
{
    aoticache_tensor_pattern pattern = AOTICACHE_TENSOR_PATTERN_INIT;
    pattern.device_type = input->device_type;
    pattern.ndim = input->ndim;
    pattern.sizes = input->sizes;
    pattern.strides = input->strides;
    pattern.stride_rule = rule_of(input);
    *ret_pattern = pattern;
    return aoticache_dtype_parse(input->dtype, &ret_pattern->dtype) == AOTICACHE_OK;
}

static char *format_check(const aoticache_check *check)
{
    const size_t size = aoticache_check_format(check, NULL, 0) + 1;
    char *text = malloc(size);
    if (text != NULL)
        aoticache_check_format(check, text, size);
    return text;
}

static char *describe(struct reader *reader)
{
    aoticache_check *check = NULL;
    bool is_known = true;
    cleanup_free aoticache_tensor_pattern *patterns = calloc(reader->count + 1, sizeof *patterns);
    for (unsigned i = 0; patterns != NULL && is_known && i < reader->count; i++)
        is_known = name_sizes(reader, i) && make_pattern(&reader->inputs[i], &patterns[i]);
    if (patterns == NULL || !is_known ||
        aoticache_check_create(patterns, reader->count, reader->symbols, reader->symbol_count, &check, NULL) !=
            AOTICACHE_OK)
        return NULL;
    char *text = format_check(check);
    aoticache_check_free(check);
    return text;
}

/* ---- the source ---- */

/* Returns the text of the wrapper, which the caller frees with free(); NULL: the package has none, or it cannot be read. */
static char *read_wrapper(const aoticache_package_source *source, const aoticache_package_model *model)
{
    static const char ending[] = ".wrapper.cpp";
    for (size_t i = 0; i < model->part_count; i++) {
        const aoticache_package_part *part = &model->parts[i];
        const size_t length = strlen(part->name);
        if (part->kind != AOTICACHE_PART_SOURCE || part->bytes > MAX_SOURCE_BYTES || length < sizeof ending ||
            strcmp(part->name + length - (sizeof ending - 1), ending) != 0)
            continue;
        cleanup_fd int fd = memfd_create("aoticache-source", MFD_CLOEXEC);
        cleanup_free char *text = malloc(part->bytes + 1);
        if (fd < 0 || text == NULL ||
            aoticache_package_extract_part(source->package, model, i, fd, NULL) != AOTICACHE_OK ||
            pread(fd, text, part->bytes, 0) != (ssize_t)part->bytes)
            return NULL;
        text[part->bytes] = '\0';
        return steal_ptr(&text);
    }
    return NULL;
}

char *aoticache_package_inputs_parse(char *text, char *ret_numbers, size_t size)
{
    bool is_read = strstr(text, "__check_inputs_outputs(") != NULL;
    struct reader reader = {.count = 0};
    for (char *rest = text, *line; is_read && (line = strsep(&rest, "\n")) != NULL;)
        is_read = read_line(&reader, line);
    char *check = is_read ? describe(&reader) : NULL;
    snprintf(ret_numbers, size, "%s", reader.numbers);
    free(reader.inputs);
    return check;
}

char *aoticache_package_describe_inputs(const aoticache_package_source *source, const aoticache_package_model *model,
                                        char *ret_numbers, size_t size)
{
    cleanup_free char *text = read_wrapper(source, model);
    ret_numbers[0] = '\0';
    return text != NULL ? aoticache_package_inputs_parse(text, ret_numbers, size) : NULL;
}
