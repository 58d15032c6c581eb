/*
 * tools/aoticache/arguments/tensor_fill: the data of a tensor from the command line: random numbers, zeros, ones, a range,
 * one number, the bytes of a file; and copies it to a layout with strides.
 */
#include "base/cleanup.h"
#include "tools/aoticache/arguments/arguments.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns the next 64 random bits of SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double next_uniform(uint64_t *state)
{
    return (double)(next_random(state) >> 11) * 0x1p-53;
}

static double next_normal(uint64_t *state)
{
    double u = 1 - next_uniform(state);
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * next_uniform(state));
}

enum fill_kind { FILL_ZEROS, FILL_ONES, FILL_ARANGE, FILL_RAND, FILL_RANDN, FILL_NUMBER, FILL_FILE };

struct fill {
    enum fill_kind kind;
    aoticache_element number;
    const char *path;
};

static aoticache_status parse_number_fill(const aoticache_tensor_spec *spec, struct fill *fill, aoticache_error *error)
{
    bool real = aoticache_element_kind_of(spec->dtype) == AOTICACHE_ELEMENT_REAL ||
                aoticache_element_kind_of(spec->dtype) == AOTICACHE_ELEMENT_COMPLEX;
    int64_t integer;
    fill->kind = FILL_NUMBER;
    if (real) {
        fill->number.kind = AOTICACHE_ELEMENT_REAL;
        if (aoticache_cli_parse_double(spec->fill, &fill->number.real))
            return AOTICACHE_OK;
    } else if (aoticache_cli_parse_int(spec->fill, INT64_MIN, INT64_MAX, &integer)) {
        fill->number = (aoticache_element){.kind = AOTICACHE_ELEMENT_INT, .int_value = integer};
        if (aoticache_element_int_fits(spec->dtype, integer))
            return AOTICACHE_OK;
        return aoticache_error_set(error, AOTICACHE_INVALID, "fill %s is not in the range of %s", spec->fill,
                                   aoticache_dtype_name(spec->dtype));
    }
    return aoticache_error_set(error, AOTICACHE_INVALID,
                               "fill '%s' is not rand, randn, zeros, ones, arange, @FILE or a number%s", spec->fill,
                               real ? "" : " without a fraction");
}

static aoticache_status parse_fill(const aoticache_tensor_spec *spec, struct fill *fill, aoticache_error *error)
{
    static const char *const names[] = {"zeros", "ones", "arange", "rand", "randn"};
    *fill = (struct fill){.kind = FILL_RAND};
    if (spec->fill != NULL && spec->fill[0] == '@') {
        *fill = (struct fill){.kind = FILL_FILE, .path = spec->fill + 1};
        return AOTICACHE_OK;
    }
    bool named = spec->fill == NULL;
    for (size_t i = 0; i < 5 && !named; i++) {
        if (strcmp(spec->fill, names[i]) == 0) {
            fill->kind = (enum fill_kind)i;
            named = true;
        }
    }
    if (aoticache_element_kind_of(spec->dtype) == AOTICACHE_ELEMENT_BITS && fill->kind != FILL_ZEROS)
        return aoticache_error_set(error, AOTICACHE_INVALID, "%s can only be filled with zeros or @FILE",
                                   aoticache_dtype_name(spec->dtype));
    return named ? AOTICACHE_OK : parse_number_fill(spec, fill, error);
}

static aoticache_element fill_element(const struct fill *fill, aoticache_element_kind kind, uint64_t position,
                                      uint64_t *random)
{
    aoticache_element element = {.kind = AOTICACHE_ELEMENT_INT};
    bool integral = kind != AOTICACHE_ELEMENT_REAL && kind != AOTICACHE_ELEMENT_COMPLEX;
    switch (fill->kind) {
    case FILL_NUMBER:
        return fill->number;
    case FILL_ONES:
        element.int_value = 1;
        break;
    case FILL_ARANGE:
        element.int_value = (int64_t)position;
        break;
    case FILL_RAND:
    case FILL_RANDN:
        if (integral) {
            element.int_value = (int64_t)(next_random(random) % (kind == AOTICACHE_ELEMENT_BOOL ? 2 : 10));
            break;
        }
        element.kind = AOTICACHE_ELEMENT_REAL;
        element.real = fill->kind == FILL_RAND ? next_uniform(random) : next_normal(random);
        if (kind == AOTICACHE_ELEMENT_COMPLEX)
            element.imaginary = fill->kind == FILL_RAND ? next_uniform(random) : next_normal(random);
        break;
    default:
        break;
    }
    return element;
}

static aoticache_status read_file(const char *path, void *data, uint64_t bytes, aoticache_error *error)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat information;
    if (fd < 0 || fstat(fd, &information) != 0)
        return aoticache_error_set(error, AOTICACHE_INVALID, "cannot open %s: %s", path, strerror(errno));
    if (!S_ISREG(information.st_mode))
        return aoticache_error_set(error, AOTICACHE_INVALID, "%s is not a regular file", path);
    if ((uint64_t)information.st_size != bytes)
        return aoticache_error_set(error, AOTICACHE_INVALID, "%s has %llu bytes, the tensor has %llu", path,
                                   (unsigned long long)information.st_size, (unsigned long long)bytes);
    for (uint64_t done = 0; done < bytes;) {
        ssize_t got = read(fd, (char *)data + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return aoticache_error_set(error, AOTICACHE_INVALID, "cannot read %s: %s", path,
                                       got < 0 ? strerror(errno) : "it became shorter");
        done += (uint64_t)got;
    }
    return AOTICACHE_OK;
}

/* Returns zeroed memory; refuses if the machine does not have that much, because the process would be killed later. */
static void *allocate(uint64_t bytes, aoticache_error *error)
{
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    void *data = bytes <= machine ? calloc(bytes > 0 ? bytes : 1, 1) : NULL;
    char text[AOTICACHE_CLI_UNIT_BYTES], machine_text[AOTICACHE_CLI_UNIT_BYTES];
    if (data == NULL)
        aoticache_error_set(error, AOTICACHE_INVALID, "a tensor of %s does not fit into memory (this machine has %s)",
                            aoticache_cli_format_bytes(bytes, text), aoticache_cli_format_bytes(machine, machine_text));
    return data;
}

aoticache_status aoticache_tensor_fill(const aoticache_tensor_spec *spec, uint64_t *random, void **ret_data,
                                       aoticache_error *ret_error)
{
    size_t size = aoticache_dtype_size(spec->dtype);
    struct fill fill;
    aoticache_status status = parse_fill(spec, &fill, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    cleanup_free char *data = allocate(spec->numel * size, ret_error);
    if (data == NULL)
        return AOTICACHE_INVALID;
    if (fill.kind == FILL_FILE) {
        status = read_file(fill.path, data, spec->numel * size, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    } else if (fill.kind != FILL_ZEROS) {
        aoticache_element_kind kind = aoticache_element_kind_of(spec->dtype);
        for (uint64_t i = 0; i < spec->numel; i++) {
            aoticache_element element = fill_element(&fill, kind, i, random);
            aoticache_element_write(spec->dtype, data + i * size, &element);
        }
    }
    *ret_data = steal_ptr(&data);
    return AOTICACHE_OK;
}

aoticache_status aoticache_tensor_lay_out(const aoticache_tensor_spec *spec, const void *data, void **ret_data,
                                          aoticache_error *ret_error)
{
    size_t size = aoticache_dtype_size(spec->dtype);
    char *laid_out = allocate(spec->span * size, ret_error);
    if (laid_out == NULL)
        return AOTICACHE_INVALID;
    int64_t position[AOTICACHE_MAX_DIMS] = {0};
    uint64_t offset = 0;
    for (uint64_t i = 0; i < spec->numel; i++) {
        memcpy(laid_out + offset * size, (const char *)data + i * size, size);
        for (uint32_t dim = spec->ndim; dim-- > 0;) {
            offset += (uint64_t)spec->strides[dim];
            if (++position[dim] < spec->sizes[dim])
                break;
            offset -= (uint64_t)spec->strides[dim] * (uint64_t)spec->sizes[dim];
            position[dim] = 0;
        }
    }
    *ret_data = laid_out;
    return AOTICACHE_OK;
}
