/*
 * runtime: a kernel's container: two buffers of constants, a pool of models, and running it for a host.
 *
 * Private to runtime/. update.h is separate because C++ includes it. Functions whose result is AOTIRuntimeError set the
 * message that AOTInductorGetLastError() returns.
 *
 * Thread safety: any number of threads may run a container and change its constants at the same time. A run holds a
 * model of the pool. Everything else that reads or changes constants holds `writers`, and, if it uses the active
 * buffer, all models as well. `writers` is taken first, and never by a thread that holds a model.
 */
#ifndef AOTICACHE_RUNTIME_INTERNAL_H
#define AOTICACHE_RUNTIME_INTERNAL_H

#include "runtime/kernel.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- messages of the calling thread (message.c) ---- */

void aoticache_message_clear(void);
const char *aoticache_message_get(void);
AOTIRuntimeError aoticache_message_set(const char *format, ...) AOTICACHE_PRINTF(1, 2) __attribute__((cold));
/*
 * Turns the status that a function of the kernel's author returned, whatever its number, into a failure with a message.
 */
AOTIRuntimeError aoticache_message_of_status(AOTIRuntimeError status, const char *what);

/*
 * ---- devices (device.c) ----
 *
 * A container's device: its memory, copies into it, and events that report when a run has ended. One table of functions
 * per kind of device.
 */

/*
 * For a function that a library may lack: then its address is NULL, and another library's function of that name is not
 * used.
 */
#define RUNTIME_HIDDEN __attribute__((visibility("hidden")))

#define AOTICACHE_DEVICE_ALIGNMENT 64 /* in bytes, of a blob and of every constant in it */

typedef struct aoticache_device_functions {
    AOTIRuntimeError (*allocate)(size_t bytes, void **ret_memory);
    void (*free)(void *memory);
    /* Copies from the same device or from the CPU; complete on return. */
    AOTIRuntimeError (*copy_in)(void *to, const void *from, size_t bytes);
    /* All event functions are NULL if a run has ended when its function returns. */
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
 * Finds the device that the host asks for: "cpu", "cuda", "cuda:1". Fails if it is not of the kernel's kind or not
 * available in this process.
 */
AOTIRuntimeError aoticache_device_find(const char *kernel_device, const char *asked, aoticache_device_place *ret_place);

/* Makes `*index` the current device; -1 is replaced by the current one (cuda.c). */
RUNTIME_HIDDEN AOTIRuntimeError aoticache_cuda_find(int32_t *index, const aoticache_device_functions **ret_functions);

/*
 * ---- the pool of models (pool.c) ----
 *
 * The pool has the models of a container, and is the lock around its constants. A model is the right to run. There are
 * num_models of them, and a run takes one. An operation during which the constants must not be in use (folding,
 * swapping, changing the active buffer) takes all, which is the exclusive lock.
 *
 * On CUDA a run continues after its function has returned. A model that is given back is then pending until its event
 * has completed. Threads that find no other model reclaim it, and so do writers: constants are unused only when the
 * device has finished with them.
 */

/* More are not needed, since a run occupies a thread. */
#define AOTICACHE_POOL_MAX_MODELS 960

typedef struct aoticache_pool_shard {
    _Alignas(64) _Atomic uint64_t word;
    uint64_t all; /* the bits of the models that it has */
} aoticache_pool_shard;

typedef struct aoticache_pool {
    aoticache_pool_shard *shards;
    size_t num_shards;
    size_t num_models;
    const aoticache_device_functions *device;
    pthread_mutex_t lock; /* protects the fields below; threads sleep with it */
    pthread_cond_t changed;
    size_t waiting;  /* threads that sleep, or are about to, until a model is free */
    size_t kept_out; /* of these, threads that bit 63 keeps out */
    size_t owed;     /* threads kept out by the last writer and not yet let in */
    void **events;   /* one per model, made when first needed; NULL on a device without events */
    size_t *pending; /* a ring buffer of num_models */
    size_t first_pending;
    size_t num_pending;
} aoticache_pool;

AOTIRuntimeError aoticache_pool_create(size_t num_models, const aoticache_device_functions *device,
                                       aoticache_pool **ret_pool);
/* Frees the pool, which no thread may be using. Waits for pending models. NULL is allowed. */
void aoticache_pool_free(aoticache_pool *pool);

/*
 * Takes a model, waiting for one. Fails only if the device reports that an earlier run failed; the model of that run is
 * free again then.
 */
AOTIRuntimeError aoticache_pool_take(aoticache_pool *pool, size_t *ret_model);
/* Gives a model back of which nothing is running any more. */
void aoticache_pool_give_back(aoticache_pool *pool, size_t model);
/* Gives a model back once the work on the stream has ended: immediately on the CPU. */
AOTIRuntimeError aoticache_pool_give_back_after(aoticache_pool *pool, size_t model, AOTInductorStreamHandle stream);
/* Waits until the work on the stream has ended. */
AOTIRuntimeError aoticache_pool_finish(aoticache_pool *pool, size_t model, AOTInductorStreamHandle stream);

/* Takes all models. Only one thread at a time may call it: callers hold the container's mutex. */
void aoticache_pool_lock_all(aoticache_pool *pool);
void aoticache_pool_unlock_all(aoticache_pool *pool);

/* ---- the container ---- */

/* Functions that libraries import in addition to runtime/abi.h; torch/csrc/inductor/aoti_torch/c/shim.h. */
bool aoti_torch_grad_mode_is_enabled(void);
void aoti_torch_grad_mode_set_enabled(bool enabled);
AOTITorchError aoti_torch_get_storage_size(AtenTensorHandle tensor, int64_t *ret_bytes);
AOTITorchError aoti_torch_copy_(AtenTensorHandle self, AtenTensorHandle source, int32_t non_blocking);
AOTITorchError aoti_torch_clone(AtenTensorHandle self, AtenTensorHandle *ret_tensor);

typedef enum aoticache_buffer_state {
    AOTICACHE_BUFFER_NONE,        /* it is empty */
    AOTICACHE_BUFFER_INITIALIZED, /* constants were changed since it was last folded */
    AOTICACHE_BUFFER_FOLDED,      /* complete; the only state that runs */
} aoticache_buffer_state;

typedef struct aoticache_buffer {
    aoticache_buffer_state state;
    AtenTensorHandle *constants; /* num_constants; NULL: has no data */
    uint8_t *blob;               /* made at the first copy: a slot for each constant that is not folded */
} aoticache_buffer;

/* Weights mapped from a file: read only, shared by all processes that map it. */
typedef struct aoticache_weights {
    void *mapping; /* NULL: none */
    size_t mapping_bytes;
    const uint8_t *data; /* within the mapping */
} aoticache_weights;

typedef struct aoticache_container {
    aoticache_pool *pool;
    aoticache_buffer *active; /* changed only with `writers` and all models held */
    const aoticache_kernel *kernel;
    aoticache_device_place device;
    aoticache_buffer buffers[2];
    pthread_mutex_t writers;
    size_t *offsets; /* of each constant in a blob */
    size_t blob_bytes;
    size_t *by_name; /* positions of the constants, sorted by name */
    aoticache_weights weights;
    AOTInductorConstantMapEntry *extracted; /* num_constants entries, made when first needed */
    aoticache_kernel completed;             /* a description of an older runtime, newer fields zero */
} aoticache_container;

/* ---- descriptions (description.c) ---- */

/* Checks that the description can be used, and fills kernel, offsets, blob_bytes and by_name. */
AOTIRuntimeError aoticache_description_take(aoticache_container *container, const aoticache_kernel *kernel);
/* Returns the bytes of an element; 0 for an invalid dtype. */
size_t aoticache_description_dtype_bytes(int32_t dtype);
const char *aoticache_description_dtype_name(int32_t dtype);
/* Finds a constant by name; false if there is none. */
bool aoticache_description_find_constant(const aoticache_container *container, const char *name, size_t *ret_position);
/* Counts the elements from the first to the last in memory; false if the number does not fit into 64 bits. */
bool aoticache_description_extent(int64_t ndim, const int64_t *sizes, const int64_t *strides, int64_t *ret_extent);
/* Returns the size of a constant rounded up to the alignment of constants in a blob. */
size_t aoticache_description_slot_bytes(const aoticache_kernel_constant *constant);

/* ---- weights (weights.c) ---- */

/*
 * Maps weights that the description says are outside of the library, and checks their size. directory: searched first;
 * may be NULL.
 */
RUNTIME_HIDDEN AOTIRuntimeError aoticache_weights_map(const aoticache_container *container, const char *directory,
                                                      aoticache_weights *ret_weights);
RUNTIME_HIDDEN void aoticache_weights_unmap(aoticache_weights *weights);

/* ---- buffers (buffers.c): callers hold the locks that the container's thread safety requires ---- */

AOTIRuntimeError aoticache_buffer_create(const aoticache_container *container, aoticache_buffer *buffer);
void aoticache_buffer_free(const aoticache_container *container, aoticache_buffer *buffer);
/* Puts a buffer back into the state after its creation. */
void aoticache_buffer_reset(const aoticache_container *container, aoticache_buffer *buffer);
/* Loads the library's own weights: used in place on the CPU, copied to another device. */
AOTIRuntimeError aoticache_buffer_load(const aoticache_container *container, aoticache_buffer *buffer);
/* Allocates the blob if there is none. */
AOTIRuntimeError aoticache_buffer_need_blob(const aoticache_container *container, aoticache_buffer *buffer);
/* Makes a tensor over a constant's slot in the blob, with the description's sizes. */
AOTIRuntimeError aoticache_buffer_slot_tensor(const aoticache_container *container, const aoticache_buffer *buffer,
                                              size_t position, const int64_t *strides, int64_t storage_offset,
                                              AtenTensorHandle *ret_tensor);
/* Checks that every constant has a value and makes the folded ones, as `model`. Then the buffer is FOLDED. */
AOTIRuntimeError aoticache_buffer_fold(const aoticache_container *container, aoticache_buffer *buffer, size_t model,
                                       AOTInductorStreamHandle stream, AOTIProxyExecutorHandle proxy_executor);

static inline aoticache_buffer *aoticache_container_inactive(aoticache_container *container)
{
    return container->active == &container->buffers[0] ? &container->buffers[1] : &container->buffers[0];
}

/* ---- containers (container.c) ---- */

/*
 * device: "cpu", "cuda", "cuda:0". Creates a container. directory: may have a weights file; may be NULL. load: false to
 * leave the library's own weights out. Fails if the description is not usable, or another kind of device is requested.
 */
AOTIRuntimeError aoticache_container_create(const aoticache_kernel *kernel, size_t num_models, const char *device,
                                            const char *directory, bool load, aoticache_container **ret_container);
/* Frees the container. NULL is allowed. */
void aoticache_container_free(aoticache_container *container);

/*
 * Runs. The inputs are taken over in any case, and their elements set to NULL; outputs are written on success only.
 * container: NULL is a failure whose message is already set. alone: no other call is made meanwhile, and no model is
 * taken.
 */
AOTIRuntimeError aoticache_container_run(aoticache_container *container, AtenTensorHandle *inputs, size_t num_inputs,
                                         AtenTensorHandle *outputs, size_t num_outputs, AOTInductorStreamHandle stream,
                                         AOTIProxyExecutorHandle proxy_executor, bool alone);

/* Folds the active or the inactive buffer, even if it is folded already. */
AOTIRuntimeError aoticache_container_fold(aoticache_container *container, bool use_inactive,
                                          AOTInductorStreamHandle stream, AOTIProxyExecutorHandle proxy_executor);
/* Swaps the buffers. Waits for the runs that have begun; later runs see the other buffer. */
AOTIRuntimeError aoticache_container_swap(aoticache_container *container);
AOTIRuntimeError aoticache_container_free_inactive(aoticache_container *container);
/* Takes a model, with the active buffer folded; a run with tensors is container_run(). */
AOTIRuntimeError aoticache_container_enter(aoticache_container *container, AOTInductorStreamHandle stream,
                                           AOTIProxyExecutorHandle proxy_executor, size_t *ret_model);

/* ---- changes (update.c); runtime/update.h has flags, and taking handles over ---- */

/* Updates constants. take: on success the container takes the pairs' handles over. */
AOTIRuntimeError aoticache_update_apply(aoticache_container *container, const AOTInductorConstantMapEntry *pairs,
                                        size_t num_pairs, unsigned flags, bool take);
/* Updates all constants of the active buffer that are not folded from one blob with the container's offsets. */
AOTIRuntimeError aoticache_update_from_blob(aoticache_container *container, const uint8_t *weights);

#endif
