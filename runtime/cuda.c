/*
 * runtime/cuda: memory, copies and events of containers on a GPU, through the CUDA runtime.
 *
 * The CUDA runtime is loaded when the first container for a kernel on that device is made. So one library serves
 * machines with and without a GPU, and is compiled without the toolkit; the few functions are declared here according
 * to NVIDIA's CUDA Runtime API reference. A copy of the runtime that is in the process already (PyTorch has one) is
 * preferred: the host's streams belong to it.
 */
#include "runtime/runtime_internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum { SUCCESS = 0, NOT_READY = 600, COPY_ANY_DIRECTION = 4, EVENT_WITHOUT_TIMING = 2 };

typedef struct cuda_functions {
    int (*get_device_count)(int *ret_count);
    int (*get_device)(int *ret_index);
    int (*set_device)(int index);
    const char *(*get_error_string)(int error);
    int (*get_last_error)(void);
    int (*allocate)(void **ret_memory, size_t bytes);
    int (*free)(void *memory);
    int (*copy)(void *to, const void *from, size_t bytes, int direction);
    int (*event_create)(void **ret_event, unsigned flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*event_synchronize)(void *event);
} cuda_functions;

static const char *const symbols[] = {
    "cudaGetDeviceCount", "cudaGetDevice",  "cudaSetDevice",        "cudaGetErrorString",       "cudaGetLastError",
    "cudaMalloc",         "cudaFree",       "cudaMemcpy",           "cudaEventCreateWithFlags", "cudaEventDestroy",
    "cudaEventRecord",    "cudaEventQuery", "cudaEventSynchronize",
};
_Static_assert(sizeof symbols / sizeof symbols[0] == sizeof(cuda_functions) / sizeof(void (*)(void)),
               "one symbol for each function, in order");

static const char *const libraries[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"};

static cuda_functions cuda;
static pthread_mutex_t cuda_lock = PTHREAD_MUTEX_INITIALIZER;
static bool cuda_found;

static AOTIRuntimeError fail_cuda(const char *what, int error)
{
    /* Clear the error, so that the host's next call does not report it as its own. */
    cuda.get_last_error();
    return aoticache_message_set("CUDA: %s failed: error %d: %s", what, error, cuda.get_error_string(error));
}

#define CUDA_CALL(what, call)                                                     \
    do {                                                                          \
        int error_ = (call);                                                      \
        return error_ == SUCCESS ? AOTICACHE_KERNEL_OK : fail_cuda(what, error_); \
    } while (0)

static AOTIRuntimeError cuda_allocate(size_t bytes, void **ret_memory)
{
    CUDA_CALL("cudaMalloc", cuda.allocate(ret_memory, bytes));
}

static void cuda_free(void *memory)
{
    (void)cuda.free(memory);
}

static AOTIRuntimeError cuda_copy_in(void *to, const void *from, size_t bytes)
{
    CUDA_CALL("cudaMemcpy", cuda.copy(to, from, bytes, COPY_ANY_DIRECTION));
}

static AOTIRuntimeError cuda_event_create(void **ret_event)
{
    CUDA_CALL("cudaEventCreateWithFlags", cuda.event_create(ret_event, EVENT_WITHOUT_TIMING));
}

static void cuda_event_free(void *event)
{
    (void)cuda.event_destroy(event);
}

static AOTIRuntimeError cuda_event_record(void *event, AOTInductorStreamHandle stream)
{
    CUDA_CALL("cudaEventRecord", cuda.event_record(event, stream));
}

static AOTIRuntimeError cuda_event_query(void *event, bool *ret_done)
{
    int error = cuda.event_query(event);
    if (error != SUCCESS && error != NOT_READY)
        return fail_cuda("cudaEventQuery", error);
    *ret_done = error == SUCCESS;
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError cuda_event_wait(void *event)
{
    CUDA_CALL("cudaEventSynchronize", cuda.event_synchronize(event));
}

static const aoticache_device_functions cuda_device_functions = {
    .allocate = cuda_allocate,
    .free = cuda_free,
    .copy_in = cuda_copy_in,
    .event_create = cuda_event_create,
    .event_free = cuda_event_free,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .event_wait = cuda_event_wait,
};

static void *open_runtime(void)
{
    const size_t count = sizeof libraries / sizeof libraries[0];
    void *handle = NULL;
    for (size_t i = 0; handle == NULL && i < count; i++)
        handle = dlopen(libraries[i], RTLD_NOW | RTLD_NOLOAD);
    for (size_t i = 0; handle == NULL && i < count; i++)
        handle = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
    return handle;
}

/* Loads the runtime. It is never closed: events and memory may outlive every container. */
static AOTIRuntimeError bind_runtime(void)
{
    void *found[sizeof symbols / sizeof symbols[0]];
    void *handle = open_runtime();
    if (handle == NULL)
        return aoticache_message_set("device cuda was requested, but there is no CUDA runtime: cannot open "
                                     "libcudart.so.13, .12, .11.0 or libcudart.so: %s",
                                     dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        found[i] = dlsym(handle, symbols[i]);
        if (found[i] == NULL)
            return aoticache_message_set("device cuda was requested, but the CUDA runtime has no %s", symbols[i]);
    }
    memcpy(&cuda, found, sizeof cuda);
    cuda_found = true;
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError choose_device(int32_t *index)
{
    int count = 0, current = 0, error = cuda.get_device_count(&count);
    if (error != SUCCESS)
        return fail_cuda("device cuda was requested, but cudaGetDeviceCount", error);
    if (count == 0 || *index >= count)
        return aoticache_message_set("device cuda:%d was requested, but this machine has %d CUDA devices",
                                     *index < 0 ? 0 : (int)*index, count);
    error = *index < 0 ? cuda.get_device(&current) : cuda.set_device(*index);
    if (error != SUCCESS)
        return fail_cuda(*index < 0 ? "cudaGetDevice" : "cudaSetDevice", error);
    if (*index < 0)
        *index = current;
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError aoticache_cuda_find(int32_t *index, const aoticache_device_functions **ret_functions)
{
    pthread_mutex_lock(&cuda_lock);
    AOTIRuntimeError status = cuda_found ? AOTICACHE_KERNEL_OK : bind_runtime();
    pthread_mutex_unlock(&cuda_lock);
    if (status == AOTICACHE_KERNEL_OK)
        status = choose_device(index);
    if (status == AOTICACHE_KERNEL_OK)
        *ret_functions = &cuda_device_functions;
    return status;
}
