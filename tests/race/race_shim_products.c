/*
 * Threads that all do the shim's first large matrix multiplication and call its first vector function at the same time:
 * the libraries that these use, if there are any, are loaded once, and every thread has right results.
 */
#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/process/home.h"
#include "runtime/shim/torch_abi.h"

enum { THREADS = 8, SIZE = 64, ROUNDS = 20 };

typedef float floats_4 __attribute__((vector_size(16)));

static struct {
    __typeof__(&aoti_torch_create_tensor_from_blob) wrap;
    __typeof__(&aoti_torch_delete_tensor_object) delete;
    __typeof__(&aoti_torch_cpu_mm_out) multiply;
    floats_4 (*exponential)(floats_4);
} shim;

static pthread_barrier_t start;
static atomic_int wrong;

static AtenTensorHandle square(float *values)
{
    const int64_t sizes[] = {SIZE, SIZE}, strides[] = {SIZE, 1};
    AtenTensorHandle tensor = NULL;
    if (shim.wrap(values, 2, sizes, strides, 0, AOTICACHE_DTYPE_FLOAT32, 0, -1, &tensor) != 0)
        atomic_fetch_add(&wrong, 1);
    return tensor;
}

static void *work(void *argument)
{
    float a[SIZE * SIZE], b[SIZE * SIZE], out[SIZE * SIZE];
    (void)argument;
    for (int i = 0; i < SIZE * SIZE; i++) {
        a[i] = 1;
        b[i] = (float)(i % SIZE);
    }
    AtenTensorHandle left = square(a), right = square(b), result = square(out);
    pthread_barrier_wait(&start);
    for (int round = 0; round < ROUNDS; round++) {
        memset(out, 0, sizeof out);
        floats_4 powers = shim.exponential((floats_4){0, 1, 2, 3});
        if (shim.multiply(result, left, right) != 0 || powers[0] != 1 || fabsf(powers[3] - 20.085537f) > 1e-4f)
            atomic_fetch_add(&wrong, 1);
        for (int i = 0; i < SIZE * SIZE; i++)
            if (out[i] != (float)(SIZE * (i % SIZE)))
                atomic_fetch_add(&wrong, 1);
    }
    shim.delete(left);
    shim.delete(right);
    shim.delete(result);
    return NULL;
}

static int bind(void)
{
    char path[PATH_MAX];
    aoticache_error error;
    if (aoticache_home_find("lib/libaoticache_torchshim.so", path, &error) != AOTICACHE_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    void *const symbols[] = {dlsym(library, "aoti_torch_create_tensor_from_blob"),
                             dlsym(library, "aoti_torch_delete_tensor_object"), dlsym(library, "aoti_torch_cpu_mm_out"),
                             dlsym(library, "Sleef_expf4_u10")};
    for (int i = 0; i < 4; i++)
        if (symbols[i] == NULL)
            return 1;
    memcpy(&shim.wrap, &symbols[0], sizeof symbols[0]);
    memcpy(&shim.delete, &symbols[1], sizeof symbols[0]);
    memcpy(&shim.multiply, &symbols[2], sizeof symbols[0]);
    memcpy(&shim.exponential, &symbols[3], sizeof symbols[0]);
    return 0;
}

int main(void)
{
    pthread_t threads[THREADS];
    if (bind() != 0)
        return 1;
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, NULL) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    printf("%s - threads make their first product at once\n", wrong == 0 ? "ok" : "not ok");
    return wrong == 0 ? 0 : 1;
}
