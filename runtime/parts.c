/*
 * runtime/parts: the objects that a kernel library is linked with. The linker takes the objects that the library refers
 * to from libaoticache_runtime.a, so one function of an object is enough.
 *
 * aoticache_kernel_core, in constant_map.cpp, lists the container and the interface, for kernels on the CPU whose
 * weights are embedded or come from the host. The list here has all objects, for kernels of any kind.
 */
#include "runtime/runtime_internal.h"
#include "runtime/kernel.h"

const aoticache_kernel_any_fn aoticache_kernel_interface[] = {
    (aoticache_kernel_any_fn)AOTInductorModelContainerRun,
    (aoticache_kernel_any_fn)AOTInductorModelContainerUpdateConstantBuffer,
    (aoticache_kernel_any_fn)aoticache_cuda_find,
    (aoticache_kernel_any_fn)aoticache_weights_map,
};
