/*
 * eager/model/weights: maps a model's weights from their objects, as the constants of a runner.
 *
 * Mappings are private and writable: processes share their pages, which are those of the file, until a model writes to its own
 * buffer. The lookup of the model has verified the mapped files. A tensor never extends beyond the end that its file had when
 * it was mapped. A .safetensors file, which others may change, is read, not mapped.
 */
#include "eager/model/model_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "eager/model/tensors.h"
#include "loader/check/check.h"
#include "loader/eager_face.h"
#include "loader/runner/constants.h"
#include "loader/runner/runner_hot.h"
#include "loader/tensor.h"

#define HUGE_PAGE_BYTES (2u << 20)
#define NAMED_MISSING 4

typedef struct mapped_file {
    const char *name; /* borrowed from the list */
    char *bytes;      /* NULL: empty */
    size_t size;
} mapped_file;

struct aoticache_model_weights {
    char *model; /* for messages */
    aoticache_model_tensors list;
    mapped_file *files; /* in the order of their first tensor */
    size_t file_count, file_capacity;
    aoticache_safetensors given;
    AOTInductorConstantMapEntry *pairs; /* tensors that have a value */
    size_t count;
    uint64_t bytes;
    size_t missing;
};

void aoticache_model_weights_free(void *pointer)
{
    aoticache_model_weights *weights = pointer;
    if (weights == NULL)
        return;
    for (size_t i = 0; i < weights->count; i++)
        aoticache_tensor_free(weights->pairs[i].handle);
    for (size_t i = 0; i < weights->file_count; i++)
        if (weights->files[i].bytes != NULL)
            munmap(weights->files[i].bytes, weights->files[i].size);
    aoticache_safetensors_close(&weights->given);
    aoticache_model_tensors_free(&weights->list);
    free(weights->pairs);
    free(weights->files);
    free(weights->model);
    free(weights);
}

static aoticache_status out_of_memory(aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the weights of a model");
}

/* ---- stored files ---- */

static aoticache_status map_file(const char *directory, mapped_file *file, aoticache_error *ret_error)
{
    struct stat found;
    cleanup_free char *path = NULL;
    if (asprintf(&path, "%s/%s", directory, file->name) < 0) {
        path = NULL;
        return out_of_memory(ret_error);
    }
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open %s", path);
    if (fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read %s", path);
    file->size = (size_t)found.st_size;
    if (file->size == 0)
        return AOTICACHE_OK;
    void *bytes = mmap(NULL, file->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (bytes == MAP_FAILED)
        return aoticache_error_set_errno(ret_error, errno, "cannot map %s, %zu bytes", path, file->size);
    if (file->size >= HUGE_PAGE_BYTES)
        madvise(bytes, file->size, MADV_HUGEPAGE); /* a hint: not every file system supports it */
    file->bytes = bytes;
    return AOTICACHE_OK;
}

/* Finds a file. Tensors of one file are consecutive in the list, so the last file is checked first. */
static aoticache_status find_file(aoticache_model_weights *weights, const char *directory, const char *name,
                                  const mapped_file **ret_file, aoticache_error *ret_error)
{
    for (size_t i = weights->file_count; i-- > 0;)
        if (strcmp(weights->files[i].name, name) == 0) {
            *ret_file = &weights->files[i];
            return AOTICACHE_OK;
        }
    if (!AOTICACHE_ARRAY_RESERVE(weights->files, weights->file_capacity, weights->file_count + 1))
        return out_of_memory(ret_error);
    mapped_file *file = &weights->files[weights->file_count];
    *file = (mapped_file){.name = name};
    aoticache_status status = map_file(directory, file, ret_error);
    if (status == AOTICACHE_OK)
        weights->file_count++;
    *ret_file = file;
    return status;
}

static aoticache_status find_stored(aoticache_model_weights *weights, const char *directory,
                                    const aoticache_model_place *place, char **ret_data, aoticache_error *ret_error)
{
    const mapped_file *file = NULL;
    aoticache_status status = find_file(weights, directory, place->file, &file, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (place->offset > file->size || place->tensor.bytes > file->size - place->offset)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "%.200s: the weight %.200s needs bytes %llu to %llu of %.64s, which has %zu "
                                   "bytes",
                                   weights->model, place->tensor.name, (unsigned long long)place->offset,
                                   (unsigned long long)(place->offset + place->tensor.bytes), file->name, file->size);
    *ret_data = file->bytes + place->offset;
    return AOTICACHE_OK;
}

/* ---- a .safetensors file ---- */

static void format_shape(int32_t dtype, int64_t ndim, const int64_t *sizes, char *text, size_t size)
{
    const char *name = aoticache_dtype_name(dtype);
    size_t used = (size_t)snprintf(text, size, "%s[", name != NULL ? name : "?");
    for (int64_t d = 0; d < ndim && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", d > 0 ? ", " : "", (long long)sizes[d]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

static aoticache_status compare(const aoticache_model_weights *weights, const char *path,
                                const aoticache_model_tensor *tensor, const aoticache_safetensor *given,
                                aoticache_error *ret_error)
{
    char here[160], there[160];
    bool same = given->dtype == tensor->dtype && given->ndim == tensor->ndim;
    for (int64_t d = 0; same && d < tensor->ndim; d++)
        same = given->sizes[d] == tensor->sizes[d];
    if (same)
        return AOTICACHE_OK;
    format_shape(given->dtype, given->ndim, given->sizes, here, sizeof here);
    format_shape(tensor->dtype, tensor->ndim, tensor->sizes, there, sizeof there);
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%.300s: tensor %.200s is %s, but model %.100s has %s",
                               path, tensor->name, here, weights->model, there);
}

static bool is_contiguous(const aoticache_model_tensor *tensor)
{
    int64_t expected = 1;
    for (int64_t d = tensor->ndim; d-- > 0;) {
        if (tensor->sizes[d] != 1 && tensor->strides[d] != expected)
            return false;
        expected *= tensor->sizes[d];
    }
    return true;
}

/* Copies the elements of a contiguous tensor to their positions with the model's strides. */
static void copy_strided(const aoticache_model_tensor *tensor, const char *from, char *to)
{
    const size_t item = aoticache_dtype_size(tensor->dtype);
    int64_t position[AOTICACHE_MODEL_MAX_DIMS] = {0};
    size_t at = 0;
    for (;;) {
        memcpy(to + at * item, from, item);
        from += item;
        int64_t d = tensor->ndim;
        for (; d-- > 0; position[d] = 0) {
            at += (size_t)tensor->strides[d];
            if (++position[d] < tensor->sizes[d])
                break;
            at -= (size_t)(tensor->strides[d] * tensor->sizes[d]);
        }
        if (d < 0)
            return;
    }
}

static aoticache_status find_given(aoticache_model_weights *weights, const char *path,
                                   const aoticache_model_tensor *tensor, const aoticache_safetensor *given,
                                   char **ret_data, aoticache_error *ret_error)
{
    aoticache_status status = compare(weights, path, tensor, given, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *ret_data = given->data;
    if (given->bytes == 0 || (is_contiguous(tensor) && (uintptr_t)given->data % AOTICACHE_SAFETENSOR_ALIGNMENT == 0))
        return AOTICACHE_OK;
    *ret_data = aoticache_safetensors_allocate(&weights->given, tensor->bytes);
    if (*ret_data == NULL)
        return out_of_memory(ret_error);
    copy_strided(tensor, given->data, *ret_data);
    return AOTICACHE_OK;
}

/* ---- all weights ---- */

static const aoticache_safetensor *given_for(const aoticache_model_weights *weights, const aoticache_model_place *place)
{
    const aoticache_safetensor *given = aoticache_safetensors_find(&weights->given, place->tensor.name);
    for (size_t i = 0; given == NULL && i < json_array_size(place->aliases); i++) {
        const char *alias = json_string_value(json_array_get(place->aliases, i));
        given = alias != NULL ? aoticache_safetensors_find(&weights->given, alias) : NULL;
    }
    return given;
}

static aoticache_status add_tensor(aoticache_model_weights *weights, const char *directory, const char *path,
                                   const aoticache_model_place *place, bool *ret_is_given, aoticache_error *ret_error)
{
    static char nothing[AOTICACHE_SAFETENSOR_ALIGNMENT];
    const aoticache_model_tensor *tensor = &place->tensor;
    const aoticache_safetensor *given = given_for(weights, place);
    char *data = NULL;
    aoticache_status status = AOTICACHE_OK;
    *ret_is_given = given != NULL;
    weights->bytes += tensor->bytes;
    if (given != NULL)
        status = find_given(weights, path, tensor, given, &data, ret_error);
    else if (place->file != NULL)
        status = find_stored(weights, directory, place, &data, ret_error);
    else {
        weights->missing++;
        return AOTICACHE_OK;
    }
    if (status != AOTICACHE_OK)
        return status;
    AOTInductorConstantMapEntry *pair = &weights->pairs[weights->count];
    pair->name = tensor->name;
    status = aoticache_tensor_from_blob(data != NULL ? data : nothing, tensor->dtype, tensor->ndim, tensor->sizes,
                                        tensor->strides, &pair->handle, ret_error);
    if (status == AOTICACHE_OK)
        weights->count++;
    return status;
}

static aoticache_status refuse_missing(const aoticache_model_weights *weights, const char *path,
                                       aoticache_error *ret_error)
{
    char names[400] = "";
    size_t used = 0, named = 0;
    for (size_t i = 0; i < weights->list.count && named < NAMED_MISSING; i++) {
        const aoticache_model_place *place = &weights->list.places[i];
        if (place->file != NULL || given_for(weights, place) != NULL)
            continue;
        int written =
            snprintf(names + used, sizeof names - used, "%s%.80s", named++ > 0 ? ", " : "", place->tensor.name);
        used += written > 0 && used + (size_t)written < sizeof names ? (size_t)written : 0;
    }
    return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                               "%.200s: %zu weights have no value: %s%s. They are not stored with the "
                               "model%s%.200s%s",
                               weights->model, weights->missing, names, weights->missing > named ? ", ..." : "",
                               path != NULL ? " and not in " : "", path != NULL ? path : "",
                               path != NULL ? "" : "; specify a file of weights, or open the model by a name");
}

static aoticache_status add_tensors(aoticache_model_weights *weights, const char *directory,
                                    const aoticache_model_options *options, aoticache_error *ret_error)
{
    size_t used = 0;
    weights->pairs = calloc(weights->list.count + 1, sizeof *weights->pairs);
    if (weights->pairs == NULL)
        return out_of_memory(ret_error);
    for (size_t i = 0; i < weights->list.count; i++) {
        bool is_given = false;
        aoticache_status status =
            add_tensor(weights, directory, options->weights, &weights->list.places[i], &is_given, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        used += is_given;
    }
    if (options->weights != NULL && used == 0 && weights->list.count > 0)
        return aoticache_error_set(
            ret_error, AOTICACHE_INVALID,
            "%.300s has no tensor of model %.100s: the file begins with %.100s, the model with %.100s",
            options->weights, weights->model, weights->given.count > 0 ? weights->given.tensors[0].name : "nothing",
            weights->list.places[0].tensor.name);
    if (weights->missing > 0 && !options->partial_weights)
        return refuse_missing(weights, options->weights, ret_error);
    return AOTICACHE_OK;
}

aoticache_status aoticache_model_weights_create(const char *directory, const char *name,
                                                const aoticache_model_options *options,
                                                aoticache_model_weights **ret_weights, aoticache_error *ret_error)
{
    aoticache_model_weights *weights = calloc(1, sizeof *weights);
    aoticache_status status = AOTICACHE_OK;
    if (weights == NULL || (weights->model = strdup(name)) == NULL)
        status = out_of_memory(ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_model_tensors_read(directory, &weights->list, ret_error);
    if (status == AOTICACHE_OK && options->weights != NULL)
        status = aoticache_safetensors_open(options->weights, options->map_weights, &weights->given, ret_error);
    if (status == AOTICACHE_OK)
        status = add_tensors(weights, directory, options, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_model_weights_free(weights);
        return status;
    }
    *ret_weights = weights;
    return AOTICACHE_OK;
}

aoticache_status aoticache_model_weights_give(aoticache_model_weights *weights, aoticache_runner *runner,
                                              aoticache_error *ret_error)
{
    aoticache_update_options options = AOTICACHE_UPDATE_OPTIONS_INIT;
    const bool is_cpu = strncmp(aoticache_runner_get_info(runner)->device, "cpu", 3) == 0;
    options.by_fqn = options.partial = true;
    options.user_managed = is_cpu;
    options.from_cpu = !is_cpu;
    if (weights->count == 0)
        return AOTICACHE_OK;
    return aoticache_runner_update_constants(runner, &options, weights->pairs, weights->count, ret_error);
}

/* Returns the names of the inputs in one block, which the caller frees with free(); NULL: there are not `count` of them. */
static const char **copy_names(const json_t *list, size_t count)
{
    size_t bytes = count * sizeof(char *);
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name == NULL)
            return NULL;
        bytes += strlen(name) + 1;
    }
    const char **names = malloc(bytes + 1);
    char *text = (char *)(names + count);
    for (size_t i = 0; names != NULL && i < count; i++) {
        names[i] = text;
        text = stpcpy(text, json_string_value(json_array_get(list, i))) + 1;
    }
    return names;
}

aoticache_status aoticache_model_weights_expect(const aoticache_model_weights *weights, aoticache_runner *runner,
                                                aoticache_error *ret_error)
{
    const json_t *inputs = json_object_get(weights->list.tree, "inputs");
    const char *text = json_string_value(json_object_get(inputs, "check"));
    aoticache_check *check = NULL;
    aoticache_error detail = {.message = ""};
    if (text == NULL)
        return AOTICACHE_OK; /* a program that other software has stored */
    aoticache_status status = aoticache_check_parse(text, &check, &detail);
    if (status == AOTICACHE_OK && aoticache_check_num_tensors(check) != aoticache_runner_num_inputs(runner))
        status = aoticache_error_set(&detail, AOTICACHE_INVALID, "its library takes %zu inputs, not %zu",
                                     aoticache_runner_num_inputs(runner), aoticache_check_num_tensors(check));
    if (status != AOTICACHE_OK) {
        aoticache_check_free(check);
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%.200s: " AOTICACHE_WEIGHTS_LIST ": inputs: %s",
                                   weights->model, detail.message);
    }
    aoticache_runner_expect(runner, check,
                            copy_names(json_object_get(inputs, "names"), aoticache_check_num_tensors(check)));
    return AOTICACHE_OK;
}

void aoticache_model_weights_report(const aoticache_model_weights *weights, aoticache_model_report *report)
{
    report->tensors = weights->list.count;
    report->missing = weights->missing;
    report->weight_bytes = weights->bytes;
}
