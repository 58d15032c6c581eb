/*
 * Runs a kernel library in a process that has no PyTorch, through the loader and the shim.
 *
 *     run_library LIBRARY INPUTS OUTPUTS [REPEAT]
 *
 * LIBRARY may be a package (.pt2), which goes through the cache that the environment names.
 *
 * INPUTS and OUTPUTS are files of tensors: int64 count, then for each int64 dtype, ndim, storage offset, storage bytes,
 * the sizes, the strides, the bytes of the storage. With REPEAT the library runs that often, and the nanoseconds of one
 * run, handles included, are printed. Exit 0; 1 with a message; 3 with a message if the loader refuses the library.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/names.h"
#include "eager/model/package/package.h"
#include "loader/runner/create.h"
#include "loader/runner/runner.h"

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
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

static struct set read_tensors(const aoticache_torch *torch, const char *path)
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
        /* Tensors without bytes get an address too; every address is aligned for any dtype. */
        void *data = aligned_alloc(64, ((size_t)bytes + 64) & ~(size_t)63);
        if (data == NULL)
            fail(path, "out of memory");
        set.data[i] = data;
        memcpy(data, at, (size_t)bytes);
        at += bytes;
        if (torch->aoti_torch_create_tensor_from_blob(data, ndim, shape, shape + ndim, offset, (int32_t)dtype, 0, -1,
                                                      &set.tensors[i]) != 0)
            fail(path, "a tensor is refused");
    }
    free(bytes_of_file);
    return set;
}

static void put(FILE *file, int64_t value)
{
    fwrite(&value, sizeof value, 1, file);
}

/* Returns the bytes of the storage; the loader's table has no function for it. */
static int64_t storage_bytes(const aoticache_torch *torch, AtenTensorHandle tensor)
{
    AOTITorchError (*get_storage_size)(AtenTensorHandle, int64_t *);
    void *shim = dlopen(torch->path, RTLD_NOW | RTLD_NOLOAD);
    void *symbol = shim != NULL ? dlsym(shim, "aoti_torch_get_storage_size") : NULL;
    int64_t bytes = 0;
    if (symbol == NULL)
        fail(torch->path, dlerror());
    memcpy(&get_storage_size, &symbol, sizeof symbol);
    get_storage_size(tensor, &bytes);
    dlclose(shim);
    return bytes;
}

static void write_tensor(const aoticache_torch *torch, AtenTensorHandle tensor, FILE *file)
{
    aoticache_error error;
    aoticache_tensor_view view;
    int64_t offset = 0;
    if (aoticache_tensor_get_view(tensor, &view, &error) != AOTICACHE_OK)
        fail("an output", error.message);
    torch->aoti_torch_get_storage_offset(tensor, &offset);
    int64_t bytes = view.data != NULL ? storage_bytes(torch, tensor) : 0;
    put(file, view.dtype);
    put(file, view.ndim);
    put(file, offset);
    put(file, bytes);
    fwrite(view.sizes, sizeof *view.sizes, (size_t)view.ndim, file);
    fwrite(view.strides, sizeof *view.strides, (size_t)view.ndim, file);
    if (bytes > 0)
        fwrite((char *)view.data - (size_t)offset * aoticache_dtype_size(view.dtype), 1, (size_t)bytes, file);
}

static void write_tensors(const aoticache_torch *torch, const AtenTensorHandle *tensors, size_t count, const char *path)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        fail(path, "cannot be written");
    put(file, (int64_t)count);
    for (size_t i = 0; i < count; i++)
        write_tensor(torch, tensors[i], file);
    if (fclose(file) != 0)
        fail(path, "cannot be written");
}

static aoticache_runner *load_package(const char *path)
{
    aoticache_error error;
    aoticache_cache *cache;
    aoticache_runner *runner;
    if (aoticache_cache_open(NULL, &cache, &error) != AOTICACHE_OK)
        fail("the cache", error.message);
    if (aoticache_package_load(cache, path, NULL, &runner, NULL, &error) != AOTICACHE_OK) {
        fprintf(stderr, "%s\n", error.message);
        exit(3);
    }
    aoticache_cache_close(cache);
    return runner;
}

static aoticache_runner *load(const char *path)
{
    aoticache_error error;
    size_t length = strlen(path);
    if (length > 4 && strcmp(path + length - 4, ".pt2") == 0)
        return load_package(path);
    aoticache_library *library;
    aoticache_runner *runner;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail(path, "cannot be opened");
    if (aoticache_library_load_fd(fd, path, NULL, &library, &error) != AOTICACHE_OK) {
        fprintf(stderr, "%s\n", error.message);
        exit(3);
    }
    if (aoticache_runner_create(library, NULL, &runner, &error) != AOTICACHE_OK)
        fail(path, error.message);
    aoticache_library_unref(library);
    close(fd);
    return runner;
}

static void run_once(aoticache_runner *runner, const struct set *inputs, AtenTensorHandle *outputs, size_t num_outputs)
{
    aoticache_error error;
    if (aoticache_runner_run(runner, inputs->tensors, inputs->count, outputs, num_outputs, &error) != AOTICACHE_OK)
        fail("run", error.message);
}

static void free_outputs(AtenTensorHandle *outputs, size_t num_outputs)
{
    for (size_t i = 0; i < num_outputs; i++)
        aoticache_tensor_free(outputs[i]);
}

int main(int argc, char **argv)
{
    aoticache_error error;
    const aoticache_torch *torch;
    if (argc < 4)
        fail("usage", "run_library LIBRARY INPUTS OUTPUTS [REPEAT]");
    if (aoticache_torch_get(&torch, &error) != AOTICACHE_OK)
        fail("the shim", error.message);
    aoticache_runner *runner = load(argv[1]);
    struct set inputs = read_tensors(torch, argv[2]);
    size_t num_outputs = aoticache_runner_num_outputs(runner);
    AtenTensorHandle *outputs = calloc(num_outputs + 1, sizeof *outputs);
    if (outputs == NULL)
        fail("outputs", "out of memory");
    run_once(runner, &inputs, outputs, num_outputs);
    write_tensors(torch, outputs, num_outputs, argv[3]);
    long repeat = argc > 4 ? strtol(argv[4], NULL, 10) : 0;
    uint64_t begin = aoticache_monotonic_ns();
    for (long i = 0; i < repeat; i++) {
        free_outputs(outputs, num_outputs);
        run_once(runner, &inputs, outputs, num_outputs);
    }
    if (repeat > 0)
        printf("%.1f\n", (double)(aoticache_monotonic_ns() - begin) / (double)repeat);
    free_outputs(outputs, num_outputs);
    for (size_t input = 0; input < inputs.count; input++) {
        aoticache_tensor_free(inputs.tensors[input]);
        free(inputs.data[input]);
    }
    aoticache_runner_unref(runner);
    free(inputs.tensors);
    free(inputs.data);
    free(outputs);
    return 0;
}
