/*
 * loader/runner/blob: sets all constants of the active buffer from one blob, such as a package's weights file.
 *
 * The library's own function for this works only once: it makes tensors for constants that have none yet, with the
 * sizes and strides that it was compiled for. If constants have tensors already, it frees the memory under them and
 * leaves the tensors as they are. So constants that have tensors are updated from tensors over the blob, as in any
 * other update. Both ways copy.
 */
#include "base/arguments.h"
#include "loader/runner/runner_internal.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "loader/runner/constants.h"

#include <inttypes.h>
#include <stdlib.h>

aoticache_status aoticache_runner_constants_blob_bytes(const aoticache_runner *runner, uint64_t *ret_bytes,
                                                       aoticache_error *ret_error)
{
    uint64_t bytes = 0;
    if (runner == NULL || ret_bytes == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, runner, ret_bytes);
    const aoticache_library_functions *functions = &runner->library->functions;
    if (functions->AOTInductorModelContainerGetConstantsBlobSize == NULL)
        return aoticache_runner_lacks(runner, "AOTInductorModelContainerGetConstantsBlobSize",
                                      "it takes its constants individually", ret_error);
    AOTIRuntimeError code = functions->AOTInductorModelContainerGetConstantsBlobSize(runner->container, &bytes);
    if (code != 0)
        return aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED,
                                         "AOTInductorModelContainerGetConstantsBlobSize", code, ret_error);
    *ret_bytes = bytes;
    return AOTICACHE_OK;
}

static const aoticache_update_options one_by_one = {.size = sizeof one_by_one, .partial = true, .from_cpu = true};

/* ---- the first blob ---- */

/*
 * Calls the library's function, and then updates no constants at all: only an update makes the library fold again.
 * Without it, a buffer that was never filled would not run, and one that was folded would keep its folded values.
 */
static aoticache_status create_from_blob(aoticache_runner *runner, const void *blob, aoticache_error *ret_error)
{
    AOTInductorConstantMapEntry none = {NULL, NULL};
    AOTIRuntimeError code = runner->library->functions.AOTInductorModelUpdateConstantsFromBlob(runner->container, blob);
    if (code != 0)
        return aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED,
                                         "AOTInductorModelUpdateConstantsFromBlob", code, ret_error);
    aoticache_runner_set_stale(runner, false, false);
    aoticache_status status = aoticache_runner_learn_shapes(runner, true, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_runner_hand_over(runner, &one_by_one, &none, 0, ret_error);
    return status == AOTICACHE_UNSUPPORTED ? AOTICACHE_OK : status;
}

/* ---- later blobs ---- */

/*
 * Makes a tensor over the bytes of a constant in the blob and advances *at past them. Constants follow each other,
 * padded.
 */
static aoticache_status wrap_constant(aoticache_runner *runner, size_t position, const void *blob, uint64_t bytes,
                                      uint64_t *at, AtenTensorHandle *ret_tensor, aoticache_error *ret_error)
{
    const aoticache_constant_shape *shape = &runner->shapes[position];
    aoticache_constant constant;
    aoticache_status status = aoticache_runner_read_constant(runner, position, &constant, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (shape->opaque)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "constant \"%.200s\" of library %.200s has a custom layout, chosen by the "
                                   "compile",
                                   constant.name, runner->library->name);
    if (shape->strides == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "constant \"%.200s\" of library %.200s had a value before the blob was set, so "
                                   "its offset in the blob is unknown: update the constants by name",
                                   constant.name, runner->library->name);
    if (!constant.has_bytes || constant.bytes > bytes || *at > bytes - constant.bytes)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "constant \"%.200s\" of library %.200s is beyond the %" PRIu64 " bytes of the "
                                   "blob",
                                   constant.name, runner->library->name, bytes);
    uint64_t offset = (uint64_t)shape->offset * aoticache_dtype_size(constant.dtype);
    void *data = (uint8_t *)(uintptr_t)blob + *at + offset;
    *at += aoticache_constant_padded(constant.bytes);
    if (runner->library->torch->aoti_torch_create_tensor_from_blob(data, shape->ndim, shape->sizes, shape->strides, 0,
                                                                   constant.dtype, AOTICACHE_DEVICE_TYPE_CPU, 0,
                                                                   ret_tensor) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_RUN_FAILED,
                                   "aoti_torch_create_tensor_from_blob failed for constant \"%.200s\"", constant.name);
    return AOTICACHE_OK;
}

static aoticache_status replace_from_blob(aoticache_runner *runner, const void *blob, uint64_t bytes,
                                          aoticache_error *ret_error)
{
    size_t count = 0;
    uint64_t at = 0;
    aoticache_status status = AOTICACHE_OK;
    cleanup_free AOTInductorConstantMapEntry *list = calloc(runner->num_constants, sizeof *list);
    if (list == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu constants",
                                   runner->num_constants);
    for (size_t i = 0; i < runner->num_constants && status == AOTICACHE_OK; i++) {
        if (aoticache_runner_constant_is_folded(runner, i))
            continue;
        list[count].name = aoticache_runner_constant_name(runner, i, false);
        status = wrap_constant(runner, i, blob, bytes, &at, &list[count].handle, ret_error);
        count += status == AOTICACHE_OK;
    }
    if (status == AOTICACHE_OK)
        status = aoticache_runner_hand_over(runner, &one_by_one, list, count, ret_error);
    if (status == AOTICACHE_OK)
        aoticache_runner_set_stale(runner, false, false);
    for (size_t i = 0; i < count; i++)
        runner->torch->aoti_torch_delete_tensor_object(list[i].handle);
    return status;
}

/* ---- both ---- */

/*
 * Finds out whether any constant has a tensor, including those over memory that is gone. A library that does not list
 * its constants is trusted to create them.
 */
static aoticache_status has_tensors(aoticache_runner *runner, bool *ret_has, aoticache_error *ret_error)
{
    *ret_has = false;
    if (!aoticache_runner_can_list(runner))
        return AOTICACHE_OK;
    cleanup_free AtenTensorHandle *tensors = NULL;
    aoticache_status status = aoticache_runner_read_tensors(runner, false, true, &tensors, ret_error);
    for (size_t i = 0; i < runner->num_constants && status == AOTICACHE_OK; i++)
        *ret_has |= tensors[i] != NULL;
    return status;
}

static aoticache_status adopt_blob(aoticache_runner *runner, const void *blob, uint64_t bytes,
                                   aoticache_error *ret_error)
{
    bool has = false;
    aoticache_status status = aoticache_runner_learn_shapes(runner, false, ret_error);
    if (status == AOTICACHE_OK)
        status = has_tensors(runner, &has, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return has ? replace_from_blob(runner, blob, bytes, ret_error) : create_from_blob(runner, blob, ret_error);
}

aoticache_status aoticache_runner_update_constants_from_blob(aoticache_runner *runner, const void *blob, uint64_t bytes,
                                                             aoticache_error *ret_error)
{
    uint64_t wanted;
    if (runner == NULL || blob == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, runner, blob);
    if (runner->library->functions.AOTInductorModelUpdateConstantsFromBlob == NULL)
        return aoticache_runner_lacks(runner, "AOTInductorModelUpdateConstantsFromBlob",
                                      "it takes its constants individually", ret_error);
    aoticache_status status = aoticache_runner_constants_blob_bytes(runner, &wanted, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (bytes != wanted)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "the blob has %" PRIu64 " bytes; library %.200s requires %" PRIu64, bytes,
                                   runner->library->name, wanted);
    aoticache_runner_change change = aoticache_runner_change_begin(runner, true);
    status = adopt_blob(runner, blob, bytes, ret_error);
    aoticache_runner_active_changed(runner);
    aoticache_runner_change_end(&change);
    return status;
}
