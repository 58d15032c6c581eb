/*
 * loader/describe: what the names in a library's tables mean to us.
 *
 * Private, beside the public aoticache_library_describe() of loader.h.
 */
#ifndef AOTICACHE_LOADER_DESCRIBE_H
#define AOTICACHE_LOADER_DESCRIBE_H

#include "loader/elf.h"
#include "loader/name_list.h"

/* How a DT_NEEDED name concerns us. */
typedef enum aoticache_needed_kind {
    AOTICACHE_NEEDED_SYSTEM,     /* not PyTorch's: left alone */
    AOTICACHE_NEEDED_TORCH_CPU,  /* libtorch_cpu.so, with or without a version: has the aoti_torch_* functions */
    AOTICACHE_NEEDED_TORCH_CUDA, /* libtorch_cuda*.so, libc10_cuda.so */
    AOTICACHE_NEEDED_TORCH,      /* libtorch.so, libc10.so: nothing in them that a kernel library needs */
} aoticache_needed_kind;

aoticache_needed_kind aoticache_needed_classify(const char *name);

/* The names in an open library; all are borrowed from it. */
typedef struct aoticache_library_names {
    aoticache_name_list needed;  /* in the file's order */
    aoticache_name_list symbols; /* undefined ones that PyTorch would provide, sorted */
    aoticache_name_list exports; /* AOTInductor*, sorted */
    bool proxy_executor;
    bool cuda;
    bool finds_itself; /* imports dladdr or the like: may open its own file to map weights (USE_MMAP_SELF) */
} aoticache_library_names;

/* Returns: OK, NO_MEMORY. ret_names is to be freed after OK only, before the library is closed. */
aoticache_status aoticache_library_names_read(const aoticache_elf *elf, aoticache_library_names *ret_names,
                                              aoticache_error *ret_error);
void aoticache_library_names_free(aoticache_library_names *names);

#endif
