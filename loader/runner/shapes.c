/*
 * loader/runner/shapes: what a tensor must look like to become a constant. PyTorch's libraries check nothing: they copy
 * as many bytes as the tensor's storage has, and use the constant's own sizes and the tensor's strides for them.
 *
 * No function of a library returns sizes and strides. The tensors that the library itself made from its weights or from
 * a blob have them, so these are read once, before anything is changed. For a library without weights nothing is known
 * until it has some: it uses the sizes that it was compiled with and the strides of the given tensor, and the sizes can
 * be read afterwards.
 */
#include "loader/runner/runner_internal.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "loader/runner/constants.h"
#include "loader/tensor.h"
#include "loader/torch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading shapes ---- */

static aoticache_status set_shape(aoticache_constant_shape *shape, const aoticache_tensor_view *view,
                                  bool strides_known, aoticache_error *ret_error)
{
    size_t count = (size_t)view->ndim;
    int64_t *sizes = malloc((2 * count + 1) * sizeof *sizes);
    if (sizes == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the sizes of a constant");
    for (size_t d = 0; d < count; d++) {
        sizes[d] = view->sizes[d];
        sizes[count + d] = view->strides[d];
    }
    free(shape->sizes);
    shape->sizes = sizes;
    shape->strides = strides_known ? sizes + count : NULL;
    shape->ndim = view->ndim;
    shape->device_type = view->device.type;
    return AOTICACHE_OK;
}

/*
 * Returns whether the tensor is strided. A tensor that a compile laid out for oneDNN claims to have strides but has no
 * storage.
 */
static bool is_strided(AtenTensorHandle tensor)
{
    const aoticache_torch_provider *provider;
    int32_t layout = AOTICACHE_LAYOUT_STRIDED;
    return aoticache_torch_provider_get(&provider, NULL) == AOTICACHE_OK &&
           (provider->get_layout == NULL || provider->get_layout(tensor, &layout) == 0) &&
           layout == AOTICACHE_LAYOUT_STRIDED;
}

static aoticache_status learn_from_library(aoticache_runner *runner, size_t position, AtenTensorHandle tensor,
                                           aoticache_error *ret_error)
{
    aoticache_constant_shape *shape = &runner->shapes[position];
    aoticache_tensor_view view;
    if (tensor == NULL || shape->strides != NULL || shape->opaque)
        return AOTICACHE_OK;
    if (!is_strided(tensor) || aoticache_tensor_get_view(tensor, &view, NULL) != AOTICACHE_OK ||
        runner->library->torch->aoti_torch_get_storage_offset(tensor, &shape->offset) != 0) {
        shape->opaque = true;
        return AOTICACHE_OK;
    }
    return set_shape(shape, &view, true, ret_error);
}

static aoticache_status learn_from_buffer(aoticache_runner *runner, bool inactive, aoticache_error *ret_error)
{
    cleanup_free AtenTensorHandle *tensors = NULL;
    aoticache_status status = aoticache_runner_read_tensors(runner, inactive, true, &tensors, ret_error);
    for (size_t i = 0; i < runner->num_constants && status == AOTICACHE_OK; i++)
        status = learn_from_library(runner, i, tensors[i], ret_error);
    return status;
}

aoticache_status aoticache_runner_learn_shapes(aoticache_runner *runner, bool again, aoticache_error *ret_error)
{
    if (runner->num_constants == 0 || !aoticache_runner_can_list(runner) || (runner->shapes_learned && !again))
        return AOTICACHE_OK;
    aoticache_status status = learn_from_buffer(runner, false, ret_error);
    if (status == AOTICACHE_OK && !again) /* buffers may have been swapped, and neither was changed yet */
        status = learn_from_buffer(runner, true, ret_error);
    if (status == AOTICACHE_OK)
        runner->shapes_learned = true;
    return status;
}

/* ---- checking ---- */

/* PyTorch pads constants to a multiple of this many bytes. */
enum { CONSTANT_ALIGNMENT = 64, SHAPE_TEXT_BYTES = 96 };

uint64_t aoticache_constant_padded(uint64_t bytes)
{
    uint64_t over = bytes % CONSTANT_ALIGNMENT;
    return over == 0 ? bytes : bytes + (CONSTANT_ALIGNMENT - over);
}

/* Counts the bytes from the first element to the last. False: the number does not fit into 64 bits. */
static bool count_bytes(const aoticache_tensor_view *view, uint64_t *ret_bytes)
{
    uint64_t last = 0, reach;
    if (view->numel == 0) {
        *ret_bytes = 0;
        return true;
    }
    for (int64_t d = 0; d < view->ndim; d++)
        if (view->sizes[d] < 0 || view->strides[d] < 0 ||
            __builtin_mul_overflow((uint64_t)(view->sizes[d] - 1), (uint64_t)view->strides[d], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return false;
    return !__builtin_add_overflow(last, 1, &last) &&
           !__builtin_mul_overflow(last, (uint64_t)aoticache_dtype_size(view->dtype), ret_bytes);
}

/* Writes "[2, 8]"; a long list is cut off. */
static const char *format_numbers(const int64_t *numbers, int64_t count, char text[SHAPE_TEXT_BYTES])
{
    int64_t d = 0;
    size_t used = 1;
    text[0] = '[';
    for (; d < count && used < SHAPE_TEXT_BYTES - 32; d++)
        used += (size_t)snprintf(text + used, SHAPE_TEXT_BYTES - used, d == 0 ? "%" PRId64 : ", %" PRId64, numbers[d]);
    snprintf(text + used, SHAPE_TEXT_BYTES - used, d == count ? "]" : ", ...]");
    return text;
}

static aoticache_status fail_numbers(const aoticache_runner *runner, const aoticache_constant *constant,
                                     const char *what, const int64_t *wanted, const aoticache_constant_shape *shape,
                                     const int64_t *given, const aoticache_tensor_view *view,
                                     aoticache_error *ret_error)
{
    char left[SHAPE_TEXT_BYTES], right[SHAPE_TEXT_BYTES];
    return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                               "constant \"%.200s\" of library %.200s has %s %s; the tensor for it has %s",
                               constant->name, runner->library->name, what, format_numbers(wanted, shape->ndim, left),
                               format_numbers(given, view->ndim, right));
}

static bool same_sizes(const aoticache_constant_shape *shape, const aoticache_tensor_view *view)
{
    return view->ndim == shape->ndim &&
           (view->ndim == 0 || memcmp(view->sizes, shape->sizes, (size_t)view->ndim * sizeof *view->sizes) == 0);
}

/* Returns whether the strides are the same. The stride of a dimension with at most one element does not matter. */
static bool same_strides(const aoticache_constant_shape *shape, const aoticache_tensor_view *view)
{
    for (int64_t d = 0; view->numel > 0 && d < view->ndim; d++)
        if (view->sizes[d] > 1 && view->strides[d] != shape->strides[d])
            return false;
    return true;
}

static aoticache_status check_dtype(const aoticache_runner *runner, const aoticache_constant *constant,
                                    const aoticache_tensor_view *view, aoticache_error *ret_error)
{
    const char *wanted = aoticache_dtype_name(constant->dtype), *given = aoticache_dtype_name(view->dtype);
    if (constant->dtype < 0 || constant->dtype == view->dtype)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "constant \"%.200s\" of library %.200s is %s, not %s",
                               constant->name, runner->library->name, wanted != NULL ? wanted : "of another dtype",
                               given != NULL ? given : "of the dtype given");
}

/*
 * Checks what can be checked when the strides are unknown. A tensor must not be larger than the constant's memory, and
 * its elements must not share memory. (The constant's memory may be larger than the constant: it is the whole storage
 * that the model's tensor was a part of.) exact: the tensor must fill that memory.
 */
static aoticache_status check_bytes(const aoticache_runner *runner, const aoticache_constant *constant,
                                    const aoticache_tensor_view *view, bool exact, aoticache_error *ret_error)
{
    uint64_t bytes = 0, elements = 0;
    if (!constant->has_bytes)
        return AOTICACHE_OK;
    uint64_t place = aoticache_constant_padded(constant->bytes);
    if (count_bytes(view, &bytes) && bytes <= place && (!exact || aoticache_constant_padded(bytes) == place) &&
        !__builtin_mul_overflow((uint64_t)view->numel, (uint64_t)aoticache_dtype_size(view->dtype), &elements) &&
        (bytes >= elements || bytes >= constant->bytes))
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                               "constant \"%.200s\" of library %.200s has %" PRIu64 " bytes; the tensor for it "
                               "spans %" PRIu64,
                               constant->name, runner->library->name, constant->bytes, bytes);
}

static aoticache_status check_device(const aoticache_runner *runner, const aoticache_constant *constant,
                                     const aoticache_constant_shape *shape, const aoticache_tensor_view *view,
                                     bool from_cpu, aoticache_error *ret_error)
{
    if (view->device.type == shape->device_type || (from_cpu && view->device.type == AOTICACHE_DEVICE_TYPE_CPU))
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                               "constant \"%.200s\" of library %.200s is on a device of type %d, but the "
                               "tensor for it is on type %d: copy it first",
                               constant->name, runner->library->name, (int)shape->device_type, (int)view->device.type);
}

aoticache_status aoticache_runner_check_tensor(const aoticache_runner *runner, size_t position, AtenTensorHandle tensor,
                                               const aoticache_update_options *options, aoticache_error *ret_error)
{
    const aoticache_constant_shape *shape = &runner->shapes[position];
    aoticache_constant constant;
    aoticache_tensor_view view;
    aoticache_status status = aoticache_runner_read_constant(runner, position, &constant, ret_error);
    if (status == AOTICACHE_OK && shape->opaque)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "constant \"%.200s\" of library %.200s has a custom layout, chosen by the "
                                   "compile: no tensor can replace it",
                                   constant.name, runner->library->name);
    if (status == AOTICACHE_OK)
        status = aoticache_tensor_get_view(tensor, &view, ret_error);
    if (status == AOTICACHE_OK)
        status = check_dtype(runner, &constant, &view, ret_error);
    if (status == AOTICACHE_OK && shape->strides == NULL) /* uncopied memory must be large enough, too */
        status = check_bytes(runner, &constant, &view, options->user_managed && shape->sizes == NULL, ret_error);
    if (status != AOTICACHE_OK || shape->sizes == NULL)
        return status;
    if (!same_sizes(shape, &view))
        return fail_numbers(runner, &constant, "sizes", shape->sizes, shape, view.sizes, &view, ret_error);
    if (shape->strides != NULL && !same_strides(shape, &view))
        return fail_numbers(runner, &constant, "strides", shape->strides, shape, view.strides, &view, ret_error);
    return check_device(runner, &constant, shape, &view, options->from_cpu, ret_error);
}

/* Compares the given tensor with the one that the library made from it, which has the library's own sizes. */
aoticache_status aoticache_runner_check_taken(aoticache_runner *runner, size_t position, AtenTensorHandle given,
                                              AtenTensorHandle taken, aoticache_error *ret_error)
{
    aoticache_constant_shape *shape = &runner->shapes[position];
    aoticache_constant constant;
    aoticache_tensor_view given_view, taken_view;
    if (shape->sizes != NULL || shape->opaque)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_runner_read_constant(runner, position, &constant, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_tensor_get_view(given, &given_view, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_tensor_get_view(taken, &taken_view, ret_error);
    if (status == AOTICACHE_OK)
        status = set_shape(shape, &taken_view, false, ret_error);
    if (status == AOTICACHE_OK && !same_sizes(shape, &given_view))
        return fail_numbers(runner, &constant, "sizes", shape->sizes, shape, given_view.sizes, &given_view, ret_error);
    return status;
}
