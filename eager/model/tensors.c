/*
 * eager/model/tensors: weights.list, the list of a model's constants: name, dtype, sizes, strides and, if it is stored, the
 * file next to the library and the offset in it.
 *
 * {"format": 1, "tensors": [{"name": "layer.weight", "dtype": "float32", "sizes": [4, 8], "strides": [8, 1],
 *                            "file": "weights-0000", "offset": 0, "aliases": ["head.weight"]}]}
 *
 * aliases: other names of the same tensor (tied weights); a file of weights may have one of them instead.
 */
#include "eager/model/model_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/names.h"
#include "base/text/json.h"
#include "eager/model/tensors.h"

#define MAX_LIST_BYTES (64u << 20)
#define FORMAT 2

bool aoticache_model_span(int32_t dtype, int64_t ndim, const int64_t *sizes, const int64_t *strides,
                          uint64_t *ret_bytes)
{
    uint64_t last = 0, reach;
    bool is_empty = false;
    for (int64_t d = 0; d < ndim; d++) {
        if (sizes[d] < 0 || strides[d] < 0)
            return false;
        is_empty = is_empty || sizes[d] == 0;
        if (sizes[d] > 0 && (__builtin_mul_overflow((uint64_t)(sizes[d] - 1), (uint64_t)strides[d], &reach) ||
                             __builtin_add_overflow(last, reach, &last)))
            return false;
    }
    *ret_bytes = 0;
    return is_empty || (last < UINT64_MAX / 64 &&
                        !__builtin_mul_overflow(last + 1, (uint64_t)aoticache_dtype_size(dtype), ret_bytes));
}

/* ---- reading ---- */

static aoticache_status corrupt(const char *name, const char *what, aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, AOTICACHE_WEIGHTS_LIST ": %.200s: %s",
                               name != NULL ? name : "a tensor", what);
}

static bool read_dims(const json_t *array, int64_t *to)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *item = json_array_get(array, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0)
            return false;
        to[i] = json_integer_value(item);
    }
    return true;
}

static aoticache_status read_place(const json_t *item, int64_t **dims, aoticache_model_place *ret_place,
                                   aoticache_error *ret_error)
{
    aoticache_model_tensor *tensor = &ret_place->tensor;
    const json_t *sizes = json_object_get(item, "sizes"), *strides = json_object_get(item, "strides");
    const json_t *file = json_object_get(item, "file"), *offset = json_object_get(item, "offset");
    const char *dtype = json_string_value(json_object_get(item, "dtype"));
    tensor->name = json_string_value(json_object_get(item, "name"));
    if (tensor->name == NULL)
        return corrupt(NULL, "it has no name", ret_error);
    if (!aoticache_json_text_is_plain(tensor->name))
        return corrupt(NULL, "its name has control characters", ret_error);
    if (dtype == NULL || aoticache_dtype_parse(dtype, &tensor->dtype) != AOTICACHE_OK)
        return corrupt(tensor->name, "unknown dtype", ret_error);
    const size_t ndim = json_array_size(sizes);
    if (!json_is_array(sizes) || !json_is_array(strides) || ndim != json_array_size(strides) ||
        ndim > AOTICACHE_MODEL_MAX_DIMS)
        return corrupt(tensor->name, "its sizes and strides are not lists of one length", ret_error);
    tensor->ndim = (int64_t)ndim;
    tensor->sizes = *dims;
    tensor->strides = *dims + ndim;
    if (!read_dims(sizes, *dims) || !read_dims(strides, *dims + ndim) ||
        !aoticache_model_span(tensor->dtype, tensor->ndim, tensor->sizes, tensor->strides, &tensor->bytes))
        return corrupt(tensor->name, "its sizes or strides are impossible", ret_error);
    *dims += 2 * ndim;
    ret_place->aliases = json_object_get(item, "aliases");
    if (file == NULL)
        return AOTICACHE_OK;
    ret_place->file = json_string_value(file);
    if (ret_place->file == NULL || ret_place->file[0] == '\0' || ret_place->file[0] == '.' ||
        strchr(ret_place->file, '/') != NULL || !json_is_integer(offset) || json_integer_value(offset) < 0)
        return corrupt(tensor->name, "its file is not a name and an offset", ret_error);
    ret_place->offset = (uint64_t)json_integer_value(offset);
    tensor->is_stored = true;
    return AOTICACHE_OK;
}

/* Returns the total number of dimensions, for one block of memory. */
static size_t count_dims(const json_t *list)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        count += json_array_size(json_object_get(json_array_get(list, i), "sizes"));
    return count;
}

static aoticache_status read_list(aoticache_model_tensors *tensors, aoticache_error *ret_error)
{
    const json_t *list = json_object_get(tensors->tree, "tensors");
    aoticache_status status = AOTICACHE_OK;
    if (json_integer_value(json_object_get(tensors->tree, "format")) != FORMAT || !json_is_array(list))
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "the model was stored by another version of libaoticache, in an unknown "
                                   "format; compile it again");
    tensors->dims = calloc(2 * count_dims(list) + 1, sizeof *tensors->dims);
    tensors->places = calloc(json_array_size(list) + 1, sizeof *tensors->places);
    if (tensors->dims == NULL || tensors->places == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of weights");
    int64_t *dims = tensors->dims;
    for (size_t i = 0; status == AOTICACHE_OK && i < json_array_size(list); i++) {
        status = read_place(json_array_get(list, i), &dims, &tensors->places[i], ret_error);
        tensors->count = i + 1;
    }
    return status;
}

static aoticache_status read_text(int fd, char **ret_text, size_t *ret_size, aoticache_error *ret_error)
{
    struct stat found;
    if (fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read " AOTICACHE_WEIGHTS_LIST);
    if (!S_ISREG(found.st_mode) || found.st_size < 0 || (uint64_t)found.st_size > MAX_LIST_BYTES)
        return corrupt(AOTICACHE_WEIGHTS_LIST, "it is too large", ret_error);
    const size_t size = (size_t)found.st_size;
    cleanup_free char *text = malloc(size + 1);
    if (text == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of weights");
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(fd, text + done, size - done, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? aoticache_error_set_errno(ret_error, errno, "cannot read " AOTICACHE_WEIGHTS_LIST)
                           : corrupt(AOTICACHE_WEIGHTS_LIST, "it became shorter while it was read", ret_error);
        done += (size_t)got;
    }
    *ret_text = steal_ptr(&text);
    *ret_size = size;
    return AOTICACHE_OK;
}

aoticache_status aoticache_model_tensors_parse(const char *text, size_t size, aoticache_model_tensors *ret_tensors,
                                               aoticache_error *ret_error)
{
    json_error_t problem;
    *ret_tensors =
        (aoticache_model_tensors){.tree = aoticache_json_parse(text, size, JSON_REJECT_DUPLICATES, &problem)};
    if (ret_tensors->tree == NULL)
        return aoticache_json_is_out_of_memory(&problem)
                   ? aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of weights")
                   : corrupt(AOTICACHE_WEIGHTS_LIST, problem.text, ret_error);
    aoticache_status status = read_list(ret_tensors, ret_error);
    if (status != AOTICACHE_OK)
        aoticache_model_tensors_free(ret_tensors);
    return status;
}

aoticache_status aoticache_model_tensors_read(const char *directory, aoticache_model_tensors *ret_tensors,
                                              aoticache_error *ret_error)
{
    cleanup_free char *path = NULL, *text = NULL;
    size_t size = 0;
    *ret_tensors = (aoticache_model_tensors){.tree = NULL};
    if (directory == NULL)
        return AOTICACHE_OK;
    if (asprintf(&path, "%s/" AOTICACHE_WEIGHTS_LIST, directory) < 0) {
        path = NULL;
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of weights");
    }
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? AOTICACHE_OK : aoticache_error_set_errno(ret_error, errno, "cannot open %s", path);
    aoticache_status status = read_text(fd, &text, &size, ret_error);
    return status == AOTICACHE_OK ? aoticache_model_tensors_parse(text, size, ret_tensors, ret_error) : status;
}

void aoticache_model_tensors_free(aoticache_model_tensors *tensors)
{
    json_decref(tensors->tree);
    free(tensors->places);
    free(tensors->dims);
    *tensors = (aoticache_model_tensors){.tree = NULL};
}
