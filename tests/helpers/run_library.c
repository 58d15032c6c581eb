/*
 * Runs a kernel library in a process that has no PyTorch, on the shim alone: neither the cache nor the loader is
 * involved.
 *
 *     run_library SHIM LIBRARY INPUTS OUTPUTS [REPEAT]
 *
 * INPUTS and OUTPUTS are files of tensors: int64 count, then for each int64 dtype, ndim, storage offset, storage bytes,
 * the sizes, the strides, the bytes of the storage. With REPEAT the library runs that often, and the nanoseconds of one
 * run, handles included, are printed. Exit 0, or 1 with a message.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "runtime/abi.h"

#define NEEDED "libtorch_cpu.so"
#define SONAME "libaoti_shim.so"

#define FUNCTION(library, name) ((__typeof__(&name))find(library, #name))

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void (*find(void *library, const char *name))(void)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL)
        fail(name, dlerror());
    void (*function)(void);
    memcpy(&function, &symbol, sizeof function);
    return function;
}

static char *read_file(const char *path, size_t *ret_size)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) != 0)
        fail(path, "cannot be opened");
    char *bytes = malloc((size_t)status.st_size + 1);
    if (bytes == NULL || read(fd, bytes, (size_t)status.st_size) != status.st_size)
        fail(path, "cannot be read");
    close(fd);
    *ret_size = (size_t)status.st_size;
    return bytes;
}

/* The library asks for PyTorch's library by name: a copy in memory asks for the shim's. */
static void *load(const char *path)
{
    size_t size;
    char *bytes = read_file(path, &size);
    for (char *at = bytes; (at = memmem(at, size - (size_t)(at - bytes), NEEDED, sizeof NEEDED)) != NULL;)
        memcpy(at, SONAME, sizeof SONAME);
    int fd = memfd_create("library", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
        fail(path, "cannot be copied");
    free(bytes);
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fail(path, dlerror());
    return library;
}

struct functions {
    __typeof__(&aoti_torch_create_tensor_from_blob) from_blob;
    __typeof__(&aoti_torch_new_tensor_handle) new_handle;
    __typeof__(&aoti_torch_delete_tensor_object) delete;
    __typeof__(&AOTInductorModelContainerCreateWithDevice) create;
    __typeof__(&AOTInductorModelContainerRun) run;
    __typeof__(&AOTInductorModelContainerDelete) delete_container;
};

struct set {
    size_t count;
    AtenTensorHandle *tensors;
    void **data;
};

static int64_t take(const char **at)
{
    int64_t value;
    memcpy(&value, *at, sizeof value);
    *at += sizeof value;
    return value;
}

static struct set read_tensors(const struct functions *torch, const char *path)
{
    size_t size;
    char *bytes_of_file = read_file(path, &size);
    const char *at = bytes_of_file;
    struct set set = {.count = (size_t)take(&at)};
    set.tensors = calloc(set.count + 1, sizeof *set.tensors);
    set.data = calloc(set.count + 1, sizeof *set.data);
    if (set.tensors == NULL || set.data == NULL)
        fail(path, "out of memory");
    for (size_t i = 0; i < set.count; i++) {
        int64_t dtype = take(&at), ndim = take(&at), offset = take(&at), bytes = take(&at), shape[128];
        for (int64_t d = 0; d < 2 * ndim; d++)
            shape[d] = take(&at);
        /* Tensors without bytes get an address too; all of them one that fits any dtype. */
        void *data = aligned_alloc(64, ((size_t)bytes + 64) & ~(size_t)63);
        if (data == NULL)
            fail(path, "out of memory");
        set.data[i] = data;
        memcpy(data, at, (size_t)bytes);
        at += bytes;
        if (torch->from_blob(data, ndim, shape, shape + ndim, offset, (int32_t)dtype, 0, -1, &set.tensors[i]) != 0)
            fail(path, "a tensor is refused");
    }
    free(bytes_of_file);
    return set;
}

static void put(FILE *file, int64_t value)
{
    fwrite(&value, sizeof value, 1, file);
}

static void write_tensors(void *shim, const AtenTensorHandle *tensors, size_t count, const char *path)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        fail(path, "cannot be written");
    put(file, (int64_t)count);
    for (size_t i = 0; i < count; i++) {
        int64_t ndim, offset, bytes, *sizes, *strides;
        int32_t dtype;
        void *data;
        AOTITorchError (*get_storage_size)(AtenTensorHandle, int64_t *) =
            (AOTITorchError(*)(AtenTensorHandle, int64_t *))find(shim, "aoti_torch_get_storage_size");
        size_t (*element_size)(int32_t) = (size_t(*)(int32_t))find(shim, "aoti_torch_dtype_element_size");
        FUNCTION(shim, aoti_torch_get_dim)(tensors[i], &ndim);
        FUNCTION(shim, aoti_torch_get_storage_offset)(tensors[i], &offset);
        FUNCTION(shim, aoti_torch_get_sizes)(tensors[i], &sizes);
        FUNCTION(shim, aoti_torch_get_strides)(tensors[i], &strides);
        FUNCTION(shim, aoti_torch_get_dtype)(tensors[i], &dtype);
        FUNCTION(shim, aoti_torch_get_data_ptr)(tensors[i], &data);
        get_storage_size(tensors[i], &bytes);
        if (data == NULL)
            bytes = 0;
        put(file, dtype);
        put(file, ndim);
        put(file, offset);
        put(file, bytes);
        fwrite(sizes, sizeof *sizes, (size_t)ndim, file);
        fwrite(strides, sizeof *strides, (size_t)ndim, file);
        if (bytes > 0)
            fwrite((char *)data - (size_t)offset * element_size(dtype), 1, (size_t)bytes, file);
    }
    if (fclose(file) != 0)
        fail(path, "cannot be written");
}

static void run_once(const struct functions *torch, AOTInductorModelContainerHandle container, const struct set *inputs,
                     AtenTensorHandle *given, AtenTensorHandle *outputs, size_t num_outputs)
{
    for (size_t i = 0; i < inputs->count; i++)
        torch->new_handle(inputs->tensors[i], &given[i]);
    if (torch->run(container, given, inputs->count, outputs, num_outputs, NULL, NULL) != 0)
        fail("run", "the library reports a failure");
}

int main(int argc, char **argv)
{
    if (argc < 5)
        fail("usage", "run_library SHIM LIBRARY INPUTS OUTPUTS [REPEAT]");
    void *shim = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (shim == NULL)
        fail(argv[1], dlerror());
    void *library = load(argv[2]);
    struct functions torch = {
        .from_blob = FUNCTION(shim, aoti_torch_create_tensor_from_blob),
        .new_handle = FUNCTION(shim, aoti_torch_new_tensor_handle),
        .delete = FUNCTION(shim, aoti_torch_delete_tensor_object),
        .create = FUNCTION(library, AOTInductorModelContainerCreateWithDevice),
        .run = FUNCTION(library, AOTInductorModelContainerRun),
        .delete_container = FUNCTION(library, AOTInductorModelContainerDelete),
    };
    struct set inputs = read_tensors(&torch, argv[3]);
    AOTInductorModelContainerHandle container;
    size_t num_outputs;
    if (torch.create(&container, 1, "cpu", NULL) != 0)
        fail(argv[2], "no container");
    FUNCTION(library, AOTInductorModelContainerGetNumOutputs)(container, &num_outputs);
    AtenTensorHandle *outputs = calloc(num_outputs + 1, sizeof *outputs);
    AtenTensorHandle *given = calloc(inputs.count + 1, sizeof *given);
    run_once(&torch, container, &inputs, given, outputs, num_outputs);
    write_tensors(shim, outputs, num_outputs, argv[4]);
    long repeat = argc > 5 ? strtol(argv[5], NULL, 10) : 0;
    uint64_t begin = aoticache_monotonic_ns();
    for (long i = 0; i < repeat; i++) {
        for (size_t output = 0; output < num_outputs; output++)
            torch.delete(outputs[output]);
        run_once(&torch, container, &inputs, given, outputs, num_outputs);
    }
    if (repeat > 0)
        printf("%.1f\n", (double)(aoticache_monotonic_ns() - begin) / (double)repeat);
    for (size_t output = 0; output < num_outputs; output++)
        torch.delete(outputs[output]);
    for (size_t input = 0; input < inputs.count; input++) {
        torch.delete(inputs.tensors[input]);
        free(inputs.data[input]);
    }
    torch.delete_container(container);
    free(inputs.tensors);
    free(inputs.data);
    free(outputs);
    free(given);
    return 0;
}
