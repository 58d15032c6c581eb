/*
 * loader: a loaded library as the runner sees it.
 *
 * Private to loader/. What eager/ uses too is in loader/torch.h and loader/dlopen_fd.h.
 */
#ifndef AOTICACHE_LOADER_INTERNAL_H
#define AOTICACHE_LOADER_INTERNAL_H

#include "loader/loader.h"
#include "runtime/kernel.h"

#include <stdatomic.h>

/* What it exports; NULL where it does not have a function. */
typedef struct aoticache_library_functions {
#define AOTICACHE_LIBRARY_FIELD(name, parameters) AOTIRuntimeError(*name) parameters;
    AOTICACHE_ABI_BASE_LIST(AOTICACHE_LIBRARY_FIELD)
    AOTICACHE_ABI_NEWER_LIST(AOTICACHE_LIBRARY_FIELD)
#undef AOTICACHE_LIBRARY_FIELD
} aoticache_library_functions;

struct aoticache_library {
    atomic_size_t references;
    void *handle; /* of dlopen */
    /*
     * The file, kept open where the library may open itself by the path that the dynamic linker gives it, which ends
     * with this number; else -1.
     */
    int self_fd;
    bool proxy_executor; /* calls operators through PyTorch's */
    atomic_bool is_prepared;
    void (*prepare_products)(void); /* worth calling while weights are copied (loader/torch.h); else NULL */
    uint64_t bytes;                 /* of address space, */
    uintptr_t address;              /* and where it begins */
    const aoticache_torch *torch;
    struct aoticache_cuda_facts *cuda; /* loader/cuda/internal.h; NULL: nothing of CUDA in its file */
    aoticache_library_functions functions;
    const aoticache_kernel *(*plain_kernel)(
        AOTInductorModelContainerHandle container); /* runtime/kernel.h; NULL: none */
    char name[];
};

/*
 * Fills ret_error with what the library says of its last failure on this thread, else with the function and its status.
 * Returns `status`.
 */
aoticache_status aoticache_library_failure(const aoticache_library *library, aoticache_status status,
                                           const char *function, AOTIRuntimeError code, aoticache_error *ret_error);

aoticache_library *aoticache_library_ref(aoticache_library *library);
/* Whether it exports the function, by its AOTInductor name. */
bool aoticache_library_exports(const aoticache_library *library, const char *function);

#endif
