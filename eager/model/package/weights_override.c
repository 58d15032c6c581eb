/*
 * eager/model/package/weights_override: weights from a .safetensors file instead of a package's own.
 *
 * Tensors are used without a copy, so a runner that uses some keeps the file, or the memory that the file was read into. A
 * tensor whose address is not aligned for vector loads is copied.
 */
#include "eager/model/package/package_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "eager/model/safetensors/safetensors.h"
#include "loader/runner/constants.h"
#include "loader/tensor.h"

struct aoticache_package_given {
    aoticache_safetensors file;
    AOTInductorConstantMapEntry *pairs;
    size_t count;
};

void aoticache_package_given_close(aoticache_package_given *given)
{
    if (given == NULL)
        return;
    for (size_t i = 0; i < given->count; i++)
        aoticache_tensor_free(given->pairs[i].handle);
    aoticache_safetensors_close(&given->file);
    free(given->pairs);
    free(given);
}

static aoticache_status out_of_memory(aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the weights of a package");
}

static aoticache_status place_data(aoticache_package_given *given, const aoticache_safetensor *tensor, char **ret_data,
                                   aoticache_error *ret_error)
{
    static char nothing[AOTICACHE_SAFETENSOR_ALIGNMENT];
    *ret_data = tensor->bytes > 0 ? tensor->data : nothing;
    if (tensor->bytes == 0 || (uintptr_t)tensor->data % AOTICACHE_SAFETENSOR_ALIGNMENT == 0)
        return AOTICACHE_OK;
    *ret_data = aoticache_safetensors_allocate(&given->file, tensor->bytes);
    if (*ret_data == NULL)
        return out_of_memory(ret_error);
    memcpy(*ret_data, tensor->data, tensor->bytes);
    return AOTICACHE_OK;
}

static aoticache_status add_pair(aoticache_package_given *given, const aoticache_safetensor *tensor,
                                 aoticache_error *ret_error)
{
    char *data;
    int64_t strides[AOTICACHE_SAFETENSOR_MAX_DIMS], stride = 1;
    for (int64_t d = tensor->ndim; d-- > 0;) {
        strides[d] = stride;
        stride *= tensor->sizes[d] > 0 ? tensor->sizes[d] : 1;
    }
    aoticache_status status = place_data(given, tensor, &data, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    AOTInductorConstantMapEntry *pair = &given->pairs[given->count];
    pair->name = tensor->name;
    status =
        aoticache_tensor_from_blob(data, tensor->dtype, tensor->ndim, tensor->sizes, strides, &pair->handle, ret_error);
    if (status == AOTICACHE_OK)
        given->count++;
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Lists the model's constants that have their own value, sorted; the caller frees the list with free(). */
static aoticache_status list_constants(const aoticache_runner *runner, const char ***ret_names, size_t *ret_count,
                                       aoticache_error *ret_error)
{
    const size_t total = aoticache_runner_get_info(runner)->num_constants;
    size_t count = 0;
    cleanup_free const char **names = calloc(total + 1, sizeof *names);
    if (names == NULL)
        return out_of_memory(ret_error);
    for (size_t i = 0; i < total; i++) {
        aoticache_constant constant;
        aoticache_status status = aoticache_runner_read_constant(runner, i, &constant, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        if (!constant.from_folded && constant.original_fqn[0] != '\0')
            names[count++] = constant.original_fqn;
    }
    qsort(names, count, sizeof *names, compare_names);
    *ret_count = count;
    *ret_names = names;
    names = NULL;
    return AOTICACHE_OK;
}

static aoticache_status refuse_unknown(const char *path, const char *name, aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                               "%.300s: tensor %.200s is not a constant of the model. PyTorch may have folded "
                               "it or written it into the code; if it does not matter, ignore unknown tensors",
                               path, name);
}

/* Adds one pair for all constants of a name. */
static aoticache_status add_pairs(aoticache_package_given *given, const aoticache_package_options *options,
                                  const aoticache_runner *runner, aoticache_error *ret_error)
{
    size_t name_count = 0;
    cleanup_free const char **names = NULL;
    aoticache_status status = list_constants(runner, &names, &name_count, ret_error);
    given->pairs = calloc(given->file.count + 1, sizeof *given->pairs);
    if (status == AOTICACHE_OK && given->pairs == NULL)
        return out_of_memory(ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < given->file.count; i++) {
        const aoticache_safetensor *tensor = &given->file.tensors[i];
        if (bsearch(&tensor->name, names, name_count, sizeof *names, compare_names) != NULL)
            status = add_pair(given, tensor, ret_error);
        else if (!options->ignore_unknown_weights)
            status = refuse_unknown(options->weights, tensor->name, ret_error);
    }
    if (status == AOTICACHE_OK && given->count == 0)
        status = aoticache_error_set(
            ret_error, AOTICACHE_INVALID,
            "%.300s has no tensor of the model: the file begins with %.150s, the model with %.150s", options->weights,
            given->file.count > 0 ? given->file.tensors[0].name : "nothing", name_count > 0 ? names[0] : "nothing");
    return status;
}

static aoticache_status give(const aoticache_package_given *given, const char *path, aoticache_runner *runner,
                             aoticache_error *ret_error)
{
    aoticache_error detail = {.message = ""};
    aoticache_update_options options = AOTICACHE_UPDATE_OPTIONS_INIT;
    const bool is_cpu = strncmp(aoticache_runner_get_info(runner)->device, "cpu", 3) == 0;
    options.by_fqn = options.partial = true;
    options.user_managed = is_cpu;
    options.from_cpu = !is_cpu;
    aoticache_status status = aoticache_runner_update_constants(runner, &options, given->pairs, given->count, &detail);
    return status == AOTICACHE_OK ? status : aoticache_error_set(ret_error, status, "%.300s: %s", path, detail.message);
}

aoticache_status aoticache_package_given_open(const aoticache_package_options *options, aoticache_runner *runner,
                                              aoticache_package_given **ret_given, aoticache_error *ret_error)
{
    aoticache_package_given *given = calloc(1, sizeof *given);
    if (given == NULL)
        return out_of_memory(ret_error);
    aoticache_status status =
        aoticache_safetensors_open(options->weights, options->map_weights, &given->file, ret_error);
    if (status == AOTICACHE_OK)
        status = add_pairs(given, options, runner, ret_error);
    if (status == AOTICACHE_OK)
        status = give(given, options->weights, runner, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_package_given_close(given);
        return status;
    }
    *ret_given = given;
    return AOTICACHE_OK;
}
