/*
 * Threads share a tensor of the shim: all make and drop handles of it, clone it, and drop what another one cloned, so
 * that blocks move from one thread's free lists to another's. Meant to run under ThreadSanitizer too.
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/process/home.h"
#include "runtime/shim/torch_abi.h"

enum { THREADS = 4, ROUNDS = 20000 };

static struct {
    __typeof__(&aoti_torch_empty_strided) empty;
    __typeof__(&aoti_torch_new_tensor_handle) new_handle;
    __typeof__(&aoti_torch_delete_tensor_object) delete;
    __typeof__(&aoti_torch_clone) clone;
    __typeof__(&aoti_torch_get_data_ptr) get_data;
} torch;

struct shared {
    AtenTensorHandle base;
    _Atomic(AtenTensorHandle) slot; /* what one thread made and another drops */
    atomic_int wrong;
};

static void *share_tensor(void *argument)
{
    struct shared *shared = argument;
    for (int i = 0; i < ROUNDS; i++) {
        AtenTensorHandle handle = NULL, copy = NULL;
        void *data = NULL;
        if (torch.new_handle(shared->base, &handle) != 0 || torch.clone(handle, &copy) != 0 ||
            torch.get_data(copy, &data) != 0 || ((const float *)data)[63] != 63)
            atomic_fetch_add(&shared->wrong, 1);
        torch.delete(handle);
        torch.delete(atomic_exchange(&shared->slot, copy));
    }
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
    void *shim = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (shim == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    void *const symbols[] = {dlsym(shim, "aoti_torch_empty_strided"), dlsym(shim, "aoti_torch_new_tensor_handle"),
                             dlsym(shim, "aoti_torch_delete_tensor_object"), dlsym(shim, "aoti_torch_clone"),
                             dlsym(shim, "aoti_torch_get_data_ptr")};
    _Static_assert(sizeof symbols == sizeof torch, "one symbol for each function, in order");
    memcpy(&torch, symbols, sizeof torch);
    return 0;
}

int main(void)
{
    const int64_t sizes[] = {8, 8}, strides[] = {8, 1};
    struct shared shared = {.base = NULL};
    pthread_t threads[THREADS];
    void *data;
    if (bind() != 0 || torch.empty(2, sizes, strides, AOTICACHE_DTYPE_FLOAT32, 0, -1, &shared.base) != 0 ||
        torch.get_data(shared.base, &data) != 0)
        return 1;
    for (int i = 0; i < 64; i++)
        ((float *)data)[i] = (float)i;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, share_tensor, &shared) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    torch.delete(atomic_load(&shared.slot));
    torch.delete(shared.base);
    int wrong = atomic_load(&shared.wrong);
    printf("%s - shim tensors: %d threads share a tensor, %d wrong\n", wrong == 0 ? "ok" : "not ok", (int)THREADS,
           wrong);
    return wrong == 0 ? 0 : 1;
}
