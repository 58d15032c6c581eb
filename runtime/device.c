/*
 * runtime/device: which device a container is for, and the functions of each kind of device for memory and runs.
 */
#include "runtime/runtime_internal.h"

#include <stdlib.h>
#include <string.h>

/* Linked only into libraries that may need it (parts.c). */
#pragma weak aoticache_cuda_find

/* ---- the CPU ---- */

static AOTIRuntimeError cpu_allocate(size_t bytes, void **ret_memory)
{
    void *memory = NULL;
    if (posix_memalign(&memory, AOTICACHE_DEVICE_ALIGNMENT, bytes) != 0)
        return aoticache_message_set("out of memory for %zu bytes of constants", bytes);
    *ret_memory = memory;
    return AOTICACHE_KERNEL_OK;
}

/* Copies. Ranges may overlap: a constant may be set from itself. */
static AOTIRuntimeError cpu_copy_in(void *to, const void *from, size_t bytes)
{
    memmove(to, from, bytes);
    return AOTICACHE_KERNEL_OK;
}

static const aoticache_device_functions cpu_functions = {
    .allocate = cpu_allocate,
    .free = free,
    .copy_in = cpu_copy_in,
};

/* ---- the device of a container ---- */

/* Returns AOTICACHE_DEVICE_TYPE_*, or -1 for a kind that this runtime does not know. */
static int32_t device_type_of(const char *kernel_device)
{
    if (strcmp(kernel_device, "cpu") == 0)
        return AOTICACHE_DEVICE_TYPE_CPU;
    return strcmp(kernel_device, "cuda") == 0 ? AOTICACHE_DEVICE_TYPE_CUDA : -1;
}

/* Parses "cuda" as -1 and "cuda:3" as 3; false for anything that is not `kind` with or without a number. */
static bool parse_index(const char *asked, const char *kind, int32_t *ret_index)
{
    size_t length = strlen(kind);
    int64_t index = 0;
    *ret_index = -1;
    if (strncmp(asked, kind, length) != 0)
        return false;
    if (asked[length] == '\0')
        return true;
    const char *digit = asked + length + 1;
    if (asked[length] != ':' || *digit == '\0')
        return false;
    for (; *digit >= '0' && *digit <= '9'; digit++) {
        index = 10 * index + (*digit - '0');
        if (index > INT32_MAX)
            return false;
    }
    *ret_index = (int32_t)index;
    return *digit == '\0';
}

AOTIRuntimeError aoticache_device_find(const char *kernel_device, const char *asked, aoticache_device_place *ret_place)
{
    aoticache_device_place place = {.type = device_type_of(kernel_device)};
    if (place.type < 0)
        return aoticache_message_set("the kernel's description has device %s; this runtime supports cpu and cuda",
                                     kernel_device);
    if (asked == NULL)
        return aoticache_message_set("no device is specified; this kernel is for %s", kernel_device);
    if (!parse_index(asked, kernel_device, &place.index))
        return aoticache_message_set("device %s was requested, but this kernel is for %s", asked, kernel_device);
    if (place.type == AOTICACHE_DEVICE_TYPE_CPU) {
        /* A number has no meaning on the CPU. */
        place.index = -1;
        place.functions = &cpu_functions;
    } else if (aoticache_cuda_find == NULL) {
        return aoticache_message_set("this library was linked without support for device %s", kernel_device);
    } else if (aoticache_cuda_find(&place.index, &place.functions) != AOTICACHE_KERNEL_OK) {
        return AOTICACHE_KERNEL_FAILURE;
    }
    *ret_place = place;
    return AOTICACHE_KERNEL_OK;
}
