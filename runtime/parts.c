/*
 * runtime/parts: what a kernel library is linked with. The linker takes from libaoticache_runtime.a what the library's
 * object refers to, so one function of an object is enough.
 *
 * aoticache_kernel_core, in constant_map.cpp, is the container and the interface, for kernels on the CPU whose weights are
 * embedded or the host's. All there is, for kernels of any kind, is here.
 */
#include "runtime/internal.h"
#include "runtime/kernel.h"

const aoticache_kernel_any_fn aoticache_kernel_interface[] = {
    (aoticache_kernel_any_fn)AOTInductorModelContainerRun,
    (aoticache_kernel_any_fn)AOTInductorModelContainerUpdateConstantBuffer,
    (aoticache_kernel_any_fn)aoticache_cuda_find,
    (aoticache_kernel_any_fn)aoticache_weights_map,
};
