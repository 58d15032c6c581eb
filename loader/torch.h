/*
 * loader/torch: the provider of aoti_torch_* functions of this process, with what loading libraries needs from it.
 *
 * Private, in addition to the public aoticache_torch_get() of loader.h.
 */
#ifndef AOTICACHE_LOADER_TORCH_H
#define AOTICACHE_LOADER_TORCH_H

#include "loader/loader.h"

#define AOTICACHE_TORCH_SHIM_FILE "lib/libaoticache_torchshim.so"
#define AOTICACHE_TORCH_SHIM_SONAME "libaoticache_torchshim.so"

/*
 * Bytes for a name under which the dynamic linker finds the provider: with its terminator it fits into a program
 * header.
 */
#define AOTICACHE_TORCH_NEEDED_BYTES 40

typedef struct aoticache_torch_provider {
    aoticache_torch torch;
    void *handle;                              /* from dlopen; never closed once the provider is chosen */
    char needed[AOTICACHE_TORCH_NEEDED_BYTES]; /* a DT_NEEDED with this name finds the provider, without a search */
    char *path;
    /* NULL if this version does not have them: */
    const char *(*last_exception)(void); /* what failed last on this thread */
    AOTITorchError (*get_layout)(AtenTensorHandle tensor, int32_t *ret_layout);
    AOTITorchError (*copy)(AtenTensorHandle self, AtenTensorHandle source, int32_t non_blocking);
    void (*prepare_products)(void); /* of the shim only: sets up what the first large matrix multiplication needs */
} aoticache_torch_provider;

/* Returns the provider, as aoticache_torch_get() does. */
aoticache_status aoticache_torch_provider_get(const aoticache_torch_provider **ret_provider,
                                              aoticache_error *ret_error);

/* Returns whether the provider is, or will be, libtorch; loads nothing. */
bool aoticache_torch_is_libtorch(void);

#endif
