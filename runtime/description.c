/*
 * runtime/description: checks that an author's description can be used, and derives from it the offsets of constants in
 * a blob and the order of their names.
 */
#include "runtime/runtime_internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NDIM = 64 };

size_t aoticache_description_dtype_bytes(int32_t dtype)
{
    switch (dtype) {
#define DTYPE_BYTES(upper, lower, number, bytes) \
    case number:                                 \
        return bytes;
        AOTICACHE_DTYPE_LIST(DTYPE_BYTES)
#undef DTYPE_BYTES
    }
    return 0;
}

const char *aoticache_description_dtype_name(int32_t dtype)
{
    switch (dtype) {
#define DTYPE_NAME(upper, lower, number, bytes) \
    case number:                                \
        return #lower;
        AOTICACHE_DTYPE_LIST(DTYPE_NAME)
#undef DTYPE_NAME
    }
    return "unknown";
}

bool aoticache_description_extent(int64_t ndim, const int64_t *sizes, const int64_t *strides, int64_t *ret_extent)
{
    int64_t last = 0, reach;
    for (int64_t d = 0; d < ndim; d++) {
        if (sizes[d] == 0) {
            *ret_extent = 0;
            return true;
        }
        if (sizes[d] < 0 || strides[d] < 0 || __builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return false;
    }
    return !__builtin_add_overflow(last, 1, ret_extent);
}

size_t aoticache_description_slot_bytes(const aoticache_kernel_constant *constant)
{
    return (constant->data_size + AOTICACHE_DEVICE_ALIGNMENT - 1) / AOTICACHE_DEVICE_ALIGNMENT *
           AOTICACHE_DEVICE_ALIGNMENT;
}

static AOTIRuntimeError check_names(const char *what, size_t count, const char *const *names)
{
    if (count > 0 && names == NULL)
        return aoticache_message_set("the kernel's description has %zu %ss, but no names", count, what);
    for (size_t i = 0; i < count; i++)
        if (names[i] == NULL)
            return aoticache_message_set("the kernel's description has no name for %s %zu", what, i);
    return AOTICACHE_KERNEL_OK;
}

/* Checks that every element is within data_size bytes. */
static AOTIRuntimeError check_layout(const aoticache_kernel_constant *constant)
{
    int64_t extent, end;
    size_t bytes, element = aoticache_description_dtype_bytes(constant->dtype);
    if (element == 0)
        return aoticache_message_set("constant %s: unknown dtype %d", constant->name, (int)constant->dtype);
    if (constant->ndim < 0 || constant->ndim > MAX_NDIM ||
        (constant->ndim > 0 && (constant->sizes == NULL || constant->strides == NULL)))
        return aoticache_message_set("constant %s: %d dimensions without sizes and strides, or not 0 to %d",
                                     constant->name, (int)constant->ndim, (int)MAX_NDIM);
    if (constant->storage_offset < 0 ||
        !aoticache_description_extent(constant->ndim, constant->sizes, constant->strides, &extent) ||
        __builtin_add_overflow(constant->storage_offset, extent, &end) ||
        __builtin_mul_overflow((size_t)end, element, &bytes))
        return aoticache_message_set("constant %s: its sizes, strides and offset are not valid", constant->name);
    if (extent > 0 && bytes > constant->data_size)
        return aoticache_message_set("constant %s: %zu bytes of data, but its sizes and strides need %zu",
                                     constant->name, constant->data_size, bytes);
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError check_constants(const aoticache_kernel *kernel)
{
    if (kernel->num_constants > 0 && kernel->constants == NULL)
        return aoticache_message_set("the kernel's description has %zu constants, but no list of them",
                                     kernel->num_constants);
    for (size_t i = 0; i < kernel->num_constants; i++) {
        const aoticache_kernel_constant *constant = &kernel->constants[i];
        if (constant->name == NULL || constant->original_fqn == NULL)
            return aoticache_message_set("the kernel's description has no name for constant %zu", i);
        if (constant->from_folded && kernel->fold == NULL)
            return aoticache_message_set("constant %s is folded, but the kernel has no folding function",
                                         constant->name);
        if (!constant->from_folded && check_layout(constant) != AOTICACHE_KERNEL_OK)
            return AOTICACHE_KERNEL_FAILURE;
    }
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError check_fields(const aoticache_kernel *kernel)
{
    if (kernel->device == NULL || kernel->run == NULL)
        return aoticache_message_set("the kernel's description has no %s",
                                     kernel->device == NULL ? "device" : "run function");
    if (kernel->weights < AOTICACHE_KERNEL_WEIGHTS_EMBEDDED || kernel->weights > AOTICACHE_KERNEL_WEIGHTS_HOST)
        return aoticache_message_set("the kernel's description says that the location of its weights is %d; this "
                                     "runtime supports %d to %d",
                                     (int)kernel->weights, (int)AOTICACHE_KERNEL_WEIGHTS_EMBEDDED,
                                     (int)AOTICACHE_KERNEL_WEIGHTS_HOST);
    if (kernel->weights == AOTICACHE_KERNEL_WEIGHTS_FILE && kernel->weights_file == NULL)
        return aoticache_message_set("the kernel's description has no name for its file of weights");
    if (check_names("input", kernel->num_inputs, kernel->input_names) != AOTICACHE_KERNEL_OK ||
        check_names("output", kernel->num_outputs, kernel->output_names) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    return check_constants(kernel);
}

/* Completes a description of an older runtime, which ends earlier: the fields that it lacks are zero. */
static AOTIRuntimeError complete_fields(aoticache_container *container, const aoticache_kernel *kernel)
{
    const size_t oldest = offsetof(aoticache_kernel, weights);
    if (kernel->size > sizeof *kernel)
        return aoticache_message_set("the kernel's description has %zu bytes, but this runtime supports %zu: it was "
                                     "compiled with the header of a newer runtime",
                                     kernel->size, sizeof *kernel);
    if (kernel->size < oldest)
        return aoticache_message_set("the kernel's description has %zu bytes; this runtime's has %zu, and the "
                                     "oldest supported has %zu",
                                     kernel->size, sizeof *kernel, oldest);
    container->kernel = kernel;
    if (kernel->size < sizeof *kernel) {
        memcpy(&container->completed, kernel, kernel->size);
        container->kernel = &container->completed;
    }
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError place_constants(aoticache_container *container)
{
    const aoticache_kernel *kernel = container->kernel;
    size_t end = 0;
    for (size_t i = 0; i < kernel->num_constants; i++) {
        const aoticache_kernel_constant *constant = &kernel->constants[i];
        container->offsets[i] = end;
        container->by_name[i] = i;
        if (constant->from_folded)
            continue;
        if (constant->data_size > SIZE_MAX - AOTICACHE_DEVICE_ALIGNMENT ||
            __builtin_add_overflow(end, aoticache_description_slot_bytes(constant), &end))
            return aoticache_message_set("constant %s: %zu bytes are too many", constant->name, constant->data_size);
    }
    container->blob_bytes = end;
    return AOTICACHE_KERNEL_OK;
}

static int compare_names(const void *a, const void *b, void *constants)
{
    const aoticache_kernel_constant *all = constants;
    return strcmp(all[*(const size_t *)a].name, all[*(const size_t *)b].name);
}

static AOTIRuntimeError sort_names(aoticache_container *container)
{
    const aoticache_kernel *kernel = container->kernel;
    qsort_r(container->by_name, kernel->num_constants, sizeof *container->by_name, compare_names,
            (void *)(uintptr_t)kernel->constants);
    for (size_t i = 1; i < kernel->num_constants; i++) {
        const char *name = kernel->constants[container->by_name[i]].name;
        if (strcmp(name, kernel->constants[container->by_name[i - 1]].name) == 0)
            return aoticache_message_set("the kernel's description has two constants named %s", name);
    }
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError aoticache_description_take(aoticache_container *container, const aoticache_kernel *kernel)
{
    if (complete_fields(container, kernel) != AOTICACHE_KERNEL_OK ||
        check_fields(container->kernel) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    size_t count = container->kernel->num_constants;
    if (count == 0)
        return AOTICACHE_KERNEL_OK;
    container->offsets = calloc(count, sizeof *container->offsets);
    container->by_name = calloc(count, sizeof *container->by_name);
    if (container->offsets == NULL || container->by_name == NULL)
        return aoticache_message_set("out of memory for %zu constants", count);
    if (place_constants(container) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    return sort_names(container);
}

bool aoticache_description_find_constant(const aoticache_container *container, const char *name, size_t *ret_position)
{
    const aoticache_kernel_constant *constants = container->kernel->constants;
    size_t low = 0, high = container->kernel->num_constants;
    while (low < high) {
        size_t middle = low + (high - low) / 2, position = container->by_name[middle];
        int order = strcmp(name, constants[position].name);
        if (order == 0) {
            *ret_position = position;
            return true;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return false;
}
