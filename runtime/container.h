/*
 * runtime/container: a kernel's container: its constants as tensors, and running it for a host.
 *
 * Private. Functions whose result is AOTIRuntimeError leave their message where AOTInductorGetLastError() finds it.
 *
 * Thread safety: a container is not changed after its creation, but for the folding of constants, which happens once
 * under a lock before the first run. Any number of threads may run it.
 */
#ifndef AOTICACHE_RUNTIME_CONTAINER_H
#define AOTICACHE_RUNTIME_CONTAINER_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/kernel.h"

/* What libraries take from their process beside runtime/abi.h; torch/csrc/inductor/aoti_torch/c/shim.h. */
bool aoti_torch_grad_mode_is_enabled(void);
void aoti_torch_grad_mode_set_enabled(bool enabled);

typedef struct aoticache_container {
    const aoticache_kernel *kernel;
    size_t num_models; /* what the host asked for; runs need nothing of their own, so it limits nothing */
    int32_t device_type;
    int32_t device_index;
    AtenTensorHandle *constants; /* num_constants; NULL: has no data (yet) */
    atomic_bool folded;
    pthread_mutex_t fold_lock;
} aoticache_container;

/* ---- messages (message.c): of the calling thread ---- */

void aoticache_message_clear(void);
const char *aoticache_message_get(void);
AOTIRuntimeError aoticache_message_set(const char *format, ...) AOTICACHE_PRINTF(1, 2) __attribute__((cold));

/* ---- constants (constants.c) ---- */

/* Makes tensors of all embedded constants. On failure some may be there: constants_free() takes them. */
AOTIRuntimeError aoticache_constants_create(aoticache_container *container);
void aoticache_constants_free(aoticache_container *container);
/* Sees that every constant has data; folds if that has not happened. */
AOTIRuntimeError aoticache_constants_prepare(aoticache_container *container, AOTInductorStreamHandle stream,
                                             AOTIProxyExecutorHandle proxy_executor);

/* ---- containers (container.c) ---- */

/* device: "cpu", "cpu:0". Fails where the description is not usable, or another device is asked for. */
AOTIRuntimeError aoticache_container_create(const aoticache_kernel *kernel, size_t num_models, const char *device,
                                            aoticache_container **ret_container);
/* NULL is allowed. */
void aoticache_container_free(aoticache_container *container);

/*
 * Runs. The inputs are taken whatever happens, and their places set to NULL; outputs are written on success only.
 * container: NULL is a failure whose message is there already.
 */
AOTIRuntimeError aoticache_container_run(aoticache_container *container, AtenTensorHandle *inputs, size_t num_inputs,
                                         AtenTensorHandle *outputs, size_t num_outputs, AOTInductorStreamHandle stream,
                                         AOTIProxyExecutorHandle proxy_executor);

#endif
