/*
 * eager/package/given: weights from a .safetensors file in the place of a package's own.
 *
 * A tensor is used where it lies, so a runner that was given some keeps the file, or the memory that it was read into. One
 * whose address is too odd for vector loads is copied.
 */
#include "eager/package/internal.h"

#include <stdlib.h>
#include <string.h>

#include "eager/safetensors/safetensors.h"

#define ALIGNMENT 16

struct aoticache_package_given {
    aoticache_safetensors file;
    AOTInductorConstantMapEntry *pairs;
    size_t count;
    void **copies;
    size_t copy_count;
};

void aoticache_package_given_close(aoticache_package_given *given)
{
    if (given == NULL)
        return;
    for (size_t i = 0; i < given->count; i++)
        aoticache_tensor_free(given->pairs[i].handle);
    for (size_t i = 0; i < given->copy_count; i++)
        free(given->copies[i]);
    aoticache_safetensors_close(&given->file);
    free(given->copies);
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
    static char nothing[ALIGNMENT];
    *ret_data = tensor->bytes > 0 ? tensor->data : nothing;
    if ((uintptr_t)*ret_data % ALIGNMENT == 0)
        return AOTICACHE_OK;
    if (tensor->bytes == 0)
        return AOTICACHE_OK;
    char *copy = aligned_alloc(64, (tensor->bytes + 63) & ~(uint64_t)63);
    if (copy == NULL)
        return out_of_memory(ret_error);
    given->copies[given->copy_count++] = copy;
    memcpy(copy, tensor->data, tensor->bytes);
    *ret_data = copy;
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

/* Whether a pair for this tensor is there: several constants may have one FQN, and one pair is for all of them. */
static bool is_added(const aoticache_package_given *given, const aoticache_safetensor *tensor)
{
    for (size_t i = given->count; i-- > 0;)
        if (given->pairs[i].name == tensor->name)
            return true;
    return false;
}

static aoticache_status add_pairs(aoticache_package_given *given, const char *path, const aoticache_runner *runner,
                                  aoticache_error *ret_error)
{
    const char *first = "nothing";
    given->pairs = calloc(given->file.count + 1, sizeof *given->pairs);
    given->copies = calloc(given->file.count + 1, sizeof *given->copies);
    if (given->pairs == NULL || given->copies == NULL)
        return out_of_memory(ret_error);
    for (size_t i = 0; i < aoticache_runner_num_constants(runner); i++) {
        aoticache_constant constant;
        aoticache_status status = aoticache_runner_read_constant(runner, i, &constant, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        if (constant.from_folded || constant.original_fqn[0] == '\0')
            continue;
        first = strcmp(first, "nothing") == 0 ? constant.original_fqn : first;
        const aoticache_safetensor *tensor = aoticache_safetensors_find(&given->file, constant.original_fqn);
        if (tensor != NULL && !is_added(given, tensor))
            status = add_pair(given, tensor, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    if (given->count == 0)
        return aoticache_error_set(
            ret_error, AOTICACHE_INVALID,
            "%.300s has no tensor of the model: the file begins with %.150s, the model with %.150s", path,
            given->file.count > 0 ? given->file.tensors[0].name : "nothing", first);
    return AOTICACHE_OK;
}

static aoticache_status give(const aoticache_package_given *given, const char *path, aoticache_runner *runner,
                             aoticache_error *ret_error)
{
    aoticache_error detail = {.message = ""};
    aoticache_update_options options = AOTICACHE_UPDATE_OPTIONS_INIT;
    const bool is_cpu = strncmp(aoticache_runner_device(runner), "cpu", 3) == 0;
    options.by_fqn = options.partial = true;
    options.user_managed = is_cpu;
    options.from_cpu = !is_cpu;
    aoticache_status status = aoticache_runner_update_constants(runner, &options, given->pairs, given->count, &detail);
    return status == AOTICACHE_OK ? status : aoticache_error_set(ret_error, status, "%.300s: %s", path, detail.message);
}

aoticache_status aoticache_package_given_open(const char *path, bool map, aoticache_runner *runner,
                                              aoticache_package_given **ret_given, aoticache_error *ret_error)
{
    aoticache_package_given *given = calloc(1, sizeof *given);
    if (given == NULL)
        return out_of_memory(ret_error);
    aoticache_status status = aoticache_safetensors_open(path, map, &given->file, ret_error);
    if (status == AOTICACHE_OK)
        status = add_pairs(given, path, runner, ret_error);
    if (status == AOTICACHE_OK)
        status = give(given, path, runner, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_package_given_close(given);
        return status;
    }
    *ret_given = given;
    return AOTICACHE_OK;
}
