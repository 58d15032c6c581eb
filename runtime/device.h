/*
 * runtime/device: where a container's constants and runs live: memory, copies into it, and events that tell when a run
 * has ended. One table of functions per kind of device.
 *
 * Private. Functions with a result leave their message on failure.
 */
#ifndef AOTICACHE_RUNTIME_DEVICE_H
#define AOTICACHE_RUNTIME_DEVICE_H

#include "runtime/kernel.h"

#define AOTICACHE_DEVICE_ALIGNMENT 64 /* of a blob, and of every constant in it */

typedef struct aoticache_device_functions {
    AOTIRuntimeError (*allocate)(size_t bytes, void **ret_memory);
    void (*free)(void *memory);
    /* From the same device or from the CPU; complete on return. */
    AOTIRuntimeError (*copy_in)(void *to, const void *from, size_t bytes);
    /* NULL, all of them: a run has ended when its function returns. */
    AOTIRuntimeError (*event_create)(void **ret_event);
    void (*event_free)(void *event);
    AOTIRuntimeError (*event_record)(void *event, AOTInductorStreamHandle stream);
    AOTIRuntimeError (*event_query)(void *event, bool *ret_done);
    AOTIRuntimeError (*event_wait)(void *event);
} aoticache_device_functions;

typedef struct aoticache_device_place {
    const aoticache_device_functions *functions;
    int32_t type;
    int32_t index; /* -1: none */
} aoticache_device_place;

/*
 * asked: what the host names: "cpu", "cuda", "cuda:1". Fails where that is not the kernel's kind, or not to be had
 * here.
 */
AOTIRuntimeError aoticache_device_find(const char *kernel_device, const char *asked, aoticache_device_place *ret_place);

/* AOTICACHE_DEVICE_TYPE_*, or -1 for a kind this runtime does not know. */
int32_t aoticache_device_type_of(const char *kernel_device);

/* ---- CUDA (cuda.c), found when first asked for ---- */

/* Makes `*index` the current device; -1 is replaced by the current one. */
AOTIRuntimeError aoticache_cuda_find(int32_t *index, const aoticache_device_functions **ret_functions);

#endif
