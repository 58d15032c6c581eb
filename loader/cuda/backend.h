/*
 * loader/cuda/backend: the device "cuda" as the registry of devices knows it, and what it needs to know of a library.
 *
 * Private.
 */
#ifndef AOTICACHE_LOADER_CUDA_BACKEND_H
#define AOTICACHE_LOADER_CUDA_BACKEND_H

#include "loader/elf/internal.h"
#include "loader/runner/runner.h"

/*
 * check: a driver and a device, whose architecture the library's images and those of the .cubin and .fatbin files beside
 * it were compiled for, and a driver new enough for the CUDA runtime that the library needs. current_stream: PyTorch's,
 * where PyTorch for CUDA is in the process. Static storage.
 */
const aoticache_device_backend *aoticache_cuda_backend(void);

/* What concerns the check in a library's file. NULL stands for a library without any of it. */
typedef struct aoticache_cuda_facts aoticache_cuda_facts;

/*
 * Reads them when the library is loaded. fd: of its file, borrowed. needed: its DT_NEEDED names.
 * A file whose device code is damaged still loads: the damage is kept, and is the check's answer.
 * ret_facts: NULL where there is nothing. Returns: OK, NO_MEMORY.
 */
aoticache_status aoticache_cuda_facts_read(int fd, const aoticache_name_list *needed, aoticache_cuda_facts **ret_facts,
                                           aoticache_error *ret_error);
/* NULL is allowed. */
void aoticache_cuda_facts_free(aoticache_cuda_facts *facts);

#endif
