/*
 * eager/model/safetensors/safetensors: reads eight bytes with the length of a JSON header, the header, raw bytes. The file is
 * read into our own memory, or mapped if the caller requests that; its header is untrusted.
 *
 * If a file is truncated, access to a lost page of its mapping kills the process (SIGBUS); nothing here can prevent other
 * processes from truncating a file.
 *
 * Source: the format's description, https://huggingface.co/docs/safetensors.
 */
#include "eager/model/safetensors/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "base/text/json.h"

#define LENGTH_BYTES 8
#define DATA_ALIGNMENT 64
#define MAX_HEADER_BYTES (100u << 20) /* the format's own limit */

static const struct {
    const char *name;
    int32_t dtype;
} dtypes[] = {
    {"F64", AOTICACHE_DTYPE_FLOAT64},
    {"F32", AOTICACHE_DTYPE_FLOAT32},
    {"F16", AOTICACHE_DTYPE_FLOAT16},
    {"BF16", AOTICACHE_DTYPE_BFLOAT16},
    {"I64", AOTICACHE_DTYPE_INT64},
    {"I32", AOTICACHE_DTYPE_INT32},
    {"I16", AOTICACHE_DTYPE_INT16},
    {"I8", AOTICACHE_DTYPE_INT8},
    {"U8", AOTICACHE_DTYPE_UINT8},
    {"BOOL", AOTICACHE_DTYPE_BOOL},
    {"U16", AOTICACHE_DTYPE_UINT16},
    {"U32", AOTICACHE_DTYPE_UINT32},
    {"U64", AOTICACHE_DTYPE_UINT64},
    {"F8_E4M3", AOTICACHE_DTYPE_FLOAT8_E4M3FN},
    {"F8_E5M2", AOTICACHE_DTYPE_FLOAT8_E5M2},
    {"C64", AOTICACHE_DTYPE_COMPLEX64},
};

static aoticache_status invalid(const char *file, const char *tensor, const char *what, aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%.300s: %s%.200s%s%s", file,
                               tensor != NULL ? "the tensor " : "", tensor != NULL ? tensor : "",
                               tensor != NULL ? ": " : "", what);
}

static aoticache_status read_dtype(const char *file, const json_t *item, aoticache_safetensor *ret_tensor,
                                   aoticache_error *ret_error)
{
    const char *name = json_string_value(json_object_get(item, "dtype"));
    if (name == NULL || !aoticache_json_text_is_plain(name))
        return invalid(file, ret_tensor->name, "it has no dtype", ret_error);
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            ret_tensor->dtype = dtypes[i].dtype;
            return AOTICACHE_OK;
        }
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "%.300s: tensor %.200s: unknown dtype %.40s", file,
                               ret_tensor->name, name);
}

/* Reads the sizes, and computes how many bytes they need. */
static aoticache_status read_shape(const char *file, const json_t *item, aoticache_safetensor *ret_tensor,
                                   aoticache_error *ret_error)
{
    const json_t *shape = json_object_get(item, "shape");
    const size_t ndim = json_array_size(shape);
    uint64_t bytes = aoticache_dtype_size(ret_tensor->dtype);
    if (!json_is_array(shape) || ndim > AOTICACHE_SAFETENSOR_MAX_DIMS)
        return invalid(file, ret_tensor->name, "its shape is not a list of at most 64 sizes", ret_error);
    for (size_t i = 0; i < ndim; i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0 ||
            __builtin_mul_overflow(bytes, (uint64_t)json_integer_value(size), &bytes))
            return invalid(file, ret_tensor->name, "its shape is impossible", ret_error);
        ret_tensor->sizes[i] = json_integer_value(size);
    }
    ret_tensor->ndim = (int64_t)ndim;
    ret_tensor->bytes = bytes;
    return AOTICACHE_OK;
}

static aoticache_status read_tensor(const char *file, const json_t *item, char *data, uint64_t data_bytes,
                                    aoticache_safetensor *ret_tensor, aoticache_error *ret_error)
{
    aoticache_status status = read_dtype(file, item, ret_tensor, ret_error);
    if (status == AOTICACHE_OK)
        status = read_shape(file, item, ret_tensor, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const json_t *offsets = json_object_get(item, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return invalid(file, ret_tensor->name, "its data_offsets are not two numbers in order", ret_error);
    const uint64_t from = (uint64_t)json_integer_value(begin), to = (uint64_t)json_integer_value(end);
    if (to > data_bytes)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%.300s: tensor %.200s ends at byte %llu of %llu: the file is truncated", file,
                                   ret_tensor->name, (unsigned long long)to, (unsigned long long)data_bytes);
    if (to - from != ret_tensor->bytes)
        return aoticache_error_set(
            ret_error, AOTICACHE_INVALID, "%.300s: tensor %.200s has %llu bytes, but its shape and dtype need %llu",
            file, ret_tensor->name, (unsigned long long)(to - from), (unsigned long long)ret_tensor->bytes);
    ret_tensor->data = data + from;
    return AOTICACHE_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const aoticache_safetensor *)a)->name, ((const aoticache_safetensor *)b)->name);
}

static aoticache_status read_header(const char *name, const char *text, size_t size, aoticache_safetensors *file,
                                    aoticache_error *ret_error)
{
    json_error_t problem;
    file->header = aoticache_json_parse(text, size, JSON_REJECT_DUPLICATES, &problem);
    if (file->header == NULL && aoticache_json_is_out_of_memory(&problem))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the header of %.300s", name);
    if (!json_is_object(file->header))
        return invalid(name, NULL, "its header is not a JSON object: not a .safetensors file, or damaged", ret_error);
    file->tensors = calloc(json_object_size(file->header) + 1, sizeof *file->tensors);
    return file->tensors != NULL
               ? AOTICACHE_OK
               : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the header of %.300s", name);
}

aoticache_status aoticache_safetensors_read(const char *name, char *bytes, size_t size, aoticache_safetensors *ret_file,
                                            aoticache_error *ret_error)
{
    uint64_t length = 0;
    if (size < LENGTH_BYTES)
        return invalid(name, NULL, "it is too short for a .safetensors file", ret_error);
    for (int i = 0; i < LENGTH_BYTES; i++)
        length |= (uint64_t)(uint8_t)bytes[i] << (8 * i);
    if (length > MAX_HEADER_BYTES || length > size - LENGTH_BYTES)
        return invalid(name, NULL, "its header would be longer than the file: not a .safetensors file, or truncated",
                       ret_error);
    aoticache_status status = read_header(name, bytes + LENGTH_BYTES, (size_t)length, ret_file, ret_error);
    char *data = bytes + LENGTH_BYTES + length;
    const char *key;
    json_t *item;
    if (status == AOTICACHE_OK) {
        json_object_foreach(ret_file->header, key, item)
        {
            if (strcmp(key, "__metadata__") == 0)
                continue;
            aoticache_safetensor *tensor = &ret_file->tensors[ret_file->count];
            tensor->name = key;
            if (!aoticache_json_text_is_plain(key))
                status = invalid(name, NULL, "the name of a tensor has control characters", ret_error);
            else
                status = read_tensor(name, item, data, size - LENGTH_BYTES - length, tensor, ret_error);
            if (status != AOTICACHE_OK)
                break;
            ret_file->count++;
        }
    }
    if (status != AOTICACHE_OK) {
        aoticache_safetensors_close(ret_file);
        return status;
    }
    qsort(ret_file->tensors, ret_file->count, sizeof *ret_file->tensors, compare_names);
    return AOTICACHE_OK;
}

/* Reads the whole file to `bytes`. */
static aoticache_status read_whole(int fd, const char *path, char *bytes, size_t size, aoticache_error *ret_error)
{
    for (size_t have = 0; have < size;) {
        const ssize_t got = pread(fd, bytes + have, size - have, (off_t)have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot read %.900s", path);
        if (got == 0)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "%.300s: it had %zu bytes but now ends at byte %zu: another process is "
                                       "changing it",
                                       path, size, have);
        have += (size_t)got;
    }
    return AOTICACHE_OK;
}

/* Reads the file into our own memory, at an offset for which the data of its tensors begins at a multiple of 64. */
static aoticache_status copy_file(int fd, const char *path, aoticache_safetensors *file, char **ret_bytes,
                                  aoticache_error *ret_error)
{
    uint8_t digits[LENGTH_BYTES];
    uint64_t length = 0;
    aoticache_status status = read_whole(fd, path, (char *)digits, sizeof digits, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    for (int i = 0; i < LENGTH_BYTES; i++)
        length |= (uint64_t)digits[i] << (8 * i);
    const size_t space = (size_t)(-(length + LENGTH_BYTES) % DATA_ALIGNMENT), size = file->size;
    char *memory = mmap(NULL, size + space, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %.300s, %zu bytes", path, size);
    file->mapping = memory;
    file->size = size + space;
    madvise(memory, file->size, MADV_HUGEPAGE); /* a hint, which halves the time */
    *ret_bytes = memory + space;
    return read_whole(fd, path, *ret_bytes, size, ret_error);
}

static aoticache_status map_file(int fd, const char *path, aoticache_safetensors *file, char **ret_bytes,
                                 aoticache_error *ret_error)
{
    char *bytes = mmap(NULL, file->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (bytes == MAP_FAILED)
        return aoticache_error_set_errno(ret_error, errno, "cannot map %.900s, %zu bytes", path, file->size);
    file->mapping = *ret_bytes = bytes;
    return AOTICACHE_OK;
}

aoticache_status aoticache_safetensors_open(const char *path, bool map, aoticache_safetensors *ret_file,
                                            aoticache_error *ret_error)
{
    struct stat found;
    *ret_file = (aoticache_safetensors){.mapping = NULL};
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%.900s: no such file", path)
                               : aoticache_error_set_errno(ret_error, errno, "cannot open %.900s", path);
    if (fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read %.900s", path);
    if (!S_ISREG(found.st_mode))
        return invalid(path, NULL, "it is not a regular file", ret_error);
    if (found.st_size < LENGTH_BYTES)
        return invalid(path, NULL, "it is too short for a .safetensors file", ret_error);
    char *bytes = NULL;
    const size_t size = (size_t)found.st_size;
    ret_file->size = size;
    aoticache_status status =
        map ? map_file(fd, path, ret_file, &bytes, ret_error) : copy_file(fd, path, ret_file, &bytes, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_safetensors_read(path, bytes, size, ret_file, ret_error);
    if (status != AOTICACHE_OK)
        aoticache_safetensors_close(ret_file);
    return status;
}

void aoticache_safetensors_close(aoticache_safetensors *file)
{
    for (size_t i = 0; i < file->copy_count; i++)
        free(file->copies[i]);
    free(file->copies);
    free(file->tensors);
    json_decref(file->header);
    if (file->mapping != NULL)
        munmap(file->mapping, file->size);
    *file = (aoticache_safetensors){.mapping = NULL};
}

char *aoticache_safetensors_allocate(aoticache_safetensors *file, uint64_t bytes)
{
    if (!AOTICACHE_ARRAY_RESERVE(file->copies, file->copy_capacity, file->copy_count + 1))
        return NULL;
    char *copy = aligned_alloc(DATA_ALIGNMENT, (bytes + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT);
    if (copy != NULL)
        file->copies[file->copy_count++] = copy;
    return copy;
}

const aoticache_safetensor *aoticache_safetensors_find(const aoticache_safetensors *file, const char *name)
{
    const aoticache_safetensor wanted = {.name = name};
    return file->count == 0 ? NULL : bsearch(&wanted, file->tensors, file->count, sizeof *file->tensors, compare_names);
}
