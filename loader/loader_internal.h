/*
 * loader: a loaded library as the runner sees it.
 *
 * Private to loader/. What eager/ also uses is in loader/torch.h and loader/dlopen_fd.h.
 */
#ifndef AOTICACHE_LOADER_INTERNAL_H
#define AOTICACHE_LOADER_INTERNAL_H

#include "loader/loader.h"
#include "runtime/kernel.h"

#include <stdatomic.h>

/* The functions that it exports; NULL for those that it does not have. */
typedef struct aoticache_library_functions {
#define AOTICACHE_LIBRARY_FIELD(name, parameters) AOTIRuntimeError(*name) parameters;
    AOTICACHE_ABI_BASE_LIST(AOTICACHE_LIBRARY_FIELD)
    AOTICACHE_ABI_NEWER_LIST(AOTICACHE_LIBRARY_FIELD)
#undef AOTICACHE_LIBRARY_FIELD
} aoticache_library_functions;

struct aoticache_library {
    atomic_size_t references;
    void *handle; /* from dlopen */
    /*
     * The file, kept open if the library may open itself by the path that the dynamic linker gives it, which ends with
     * this number; otherwise -1.
     */
    int self_fd;
    atomic_bool is_prepared;
    void (*prepare_products)(void); /* worth calling while weights are copied (loader/torch.h); otherwise NULL */
    aoticache_library_info info;
    uintptr_t address; /* where the address space that it takes begins */
    const aoticache_torch *torch;
    struct aoticache_cuda_facts *cuda; /* loader/cuda/cuda_internal.h; NULL: nothing of CUDA in its file */
    aoticache_library_functions functions;
    const aoticache_kernel *(*plain_kernel)(
        AOTInductorModelContainerHandle container); /* runtime/kernel.h; NULL: not a plain kernel */
    char name[];
};

/*
 * Fills ret_error with the library's text for its last failure on this thread, or else with the function and its
 * status. Returns `status`.
 */
aoticache_status aoticache_library_failure(const aoticache_library *library, aoticache_status status,
                                           const char *function, AOTIRuntimeError code, aoticache_error *ret_error);

aoticache_library *aoticache_library_ref(aoticache_library *library);
/* Returns whether it exports the function, by its AOTInductor name. */
bool aoticache_library_exports(const aoticache_library *library, const char *function);

#endif
