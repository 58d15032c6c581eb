/*
 * A fake CUDA runtime for test_device.c, for machines without one: memory is CPU memory, and the work on a stream has
 * ended once it was waited for, or if `fake_cuda_end` is set. The test reads the counters.
 */
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int fake_cuda_end, fake_cuda_waits, fake_cuda_events, fake_cuda_devices = 2, fake_cuda_current;

#define FUNCTION(result, name, parameters) \
    EXPORT result name parameters;         \
    EXPORT result name parameters

FUNCTION(int, cudaGetDeviceCount, (int *ret_count))
{
    *ret_count = fake_cuda_devices;
    return fake_cuda_devices == 0 ? 100 : 0;
}
FUNCTION(int, cudaGetDevice, (int *ret_index))
{
    *ret_index = fake_cuda_current;
    return 0;
}
FUNCTION(int, cudaSetDevice, (int index))
{
    fake_cuda_current = index;
    return 0;
}
FUNCTION(const char *, cudaGetErrorString, (int error))
{
    return error == 100 ? "no CUDA-capable device is detected" : "another error";
}
FUNCTION(int, cudaGetLastError, (void))
{
    return 0;
}
FUNCTION(int, cudaMalloc, (void **ret_memory, size_t bytes))
{
    *ret_memory = malloc(bytes);
    return *ret_memory == NULL ? 2 : 0;
}
FUNCTION(int, cudaFree, (void *memory))
{
    free(memory);
    return 0;
}
FUNCTION(int, cudaMemcpy, (void *to, const void *from, size_t bytes, int direction))
{
    (void)direction;
    memmove(to, from, bytes);
    return 0;
}
FUNCTION(int, cudaEventCreateWithFlags, (int **ret_event, unsigned flags))
{
    (void)flags;
    fake_cuda_events++;
    *ret_event = calloc(1, sizeof **ret_event);
    return *ret_event == NULL ? 2 : 0;
}
FUNCTION(int, cudaEventDestroy, (int *event))
{
    fake_cuda_events--;
    free(event);
    return 0;
}
FUNCTION(int, cudaEventRecord, (int *event, void *stream))
{
    (void)stream;
    *event = 1; /* under way */
    return 0;
}
FUNCTION(int, cudaEventQuery, (int *event))
{
    return *event == 1 && !fake_cuda_end ? 600 : 0;
}
FUNCTION(int, cudaEventSynchronize, (int *event))
{
    fake_cuda_waits++;
    *event = 0;
    return 0;
}
