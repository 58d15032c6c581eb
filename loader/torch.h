/*
 * loader/torch: the provider of this process, with what the loading of libraries needs of it.
 *
 * Private, beside the public aoticache_torch_get() of loader.h.
 */
#ifndef AOTICACHE_LOADER_TORCH_H
#define AOTICACHE_LOADER_TORCH_H

#include "loader/loader.h"

#define AOTICACHE_TORCH_SHIM_FILE "lib/libaoticache_torchshim.so"
#define AOTICACHE_TORCH_SHIM_SONAME "libaoticache_torchshim.so"

/* A name under which the dynamic linker finds the provider fits, with its terminator, into a program header. */
#define AOTICACHE_TORCH_NEEDED_BYTES 40

typedef struct aoticache_torch_provider {
    aoticache_torch torch;
    void *handle;                              /* of dlopen; never closed once the provider is chosen */
    char needed[AOTICACHE_TORCH_NEEDED_BYTES]; /* a DT_NEEDED with this name gets the provider, without any search */
    char *path;
    /* Functions that not every version has; NULL then: */
    const char *(*last_exception)(void); /* what failed last on this thread */
    AOTITorchError (*get_layout)(AtenTensorHandle tensor, int32_t *ret_layout);
    AOTITorchError (*copy)(AtenTensorHandle self, AtenTensorHandle source, int32_t non_blocking);
    void (*prepare_products)(void); /* the shim's alone: what the first large product would wait for */
} aoticache_torch_provider;

/* As aoticache_torch_get(). */
aoticache_status aoticache_torch_provider_get(const aoticache_torch_provider **ret_provider,
                                              aoticache_error *ret_error);

/* Whether the provider is, or will be, PyTorch's own; loads nothing. */
bool aoticache_torch_is_libtorch(void);

#endif
