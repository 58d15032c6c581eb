/*
 * For bench_models.py: measures the time from the start to a model's first output, in a separate process without
 * PyTorch.
 *
 *     open_model copy CACHE NAME DIRECTORY         the model's library, list and files of weights, as plain files
 *     open_model ours CACHE NAME INPUT...       cache, model, first run; prints nanoseconds and the sum of the outputs
 *     open_model plain DIRECTORY PROVIDER INPUT... dlopen, create, mapping of the same files, first run; nothing is verified
 *
 * INPUT: float32:4x32, or int64:4x32; all elements are 1. PROVIDER: a shim with PyTorch's soname.
 */
#include "base/clock.h"
#include "aoticache/admin.h"
#include "aoticache/runner.h"
#include "base/cleanup.h"
#include "eager/model/model_internal.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_INPUTS = 8, MAX_OUTPUTS = 64 };

static void fail(const char *what, const aoticache_error *error)
{
    fprintf(stderr, "open_model: %s: %s\n", what, error != NULL ? error->message : "failed");
    exit(1);
}

/* ---- inputs and outputs ---- */

typedef struct input {
    int32_t dtype;
    int64_t ndim, sizes[8], strides[8];
    void *data;
} input;

static input make_input(const char *word)
{
    input made = {.dtype = strncmp(word, "int64:", 6) == 0 ? AOTICACHE_DTYPE_INT64 : AOTICACHE_DTYPE_FLOAT32};
    int64_t count = 1;
    for (const char *at = strchr(word, ':'); at != NULL && made.ndim < 8; at = strchr(at + 1, 'x'))
        made.sizes[made.ndim++] = strtoll(at + 1, NULL, 10);
    for (int64_t d = made.ndim; d-- > 0; count *= made.sizes[d])
        made.strides[d] = count;
    made.data = malloc((size_t)count * 8);
    for (int64_t i = 0; i < count; i++)
        if (made.dtype == AOTICACHE_DTYPE_INT64)
            ((int64_t *)made.data)[i] = 1;
        else
            ((float *)made.data)[i] = 1;
    return made;
}

static void print(uint64_t begun_ns, const float *numbers, int64_t count)
{
    double sum = 0;
    const uint64_t end = aoticache_monotonic_ns();
    for (int64_t i = 0; i < count; i++)
        sum += (double)numbers[i];
    printf("%llu %.9g\n", (unsigned long long)(end - begun_ns), sum);
}

/* ---- ours ---- */

static aoticache_cache *open_cache(const char *directory)
{
    aoticache_error error;
    aoticache_cache *cache;
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    options.directory = directory;
    if (aoticache_cache_open(&options, &cache, &error) != AOTICACHE_OK)
        fail("open", &error);
    return cache;
}

static int ours(const char *directory, const char *name, const input *inputs, size_t count)
{
    aoticache_error error;
    aoticache_runner *runner;
    AtenTensorHandle tensors[MAX_INPUTS], outputs[MAX_OUTPUTS];
    aoticache_tensor_view view;
    const uint64_t begun = aoticache_monotonic_ns();
    aoticache_cache *cache = open_cache(directory);
    if (aoticache_model_open(cache, name, NULL, &runner, NULL, &error) != AOTICACHE_OK)
        fail("model", &error);
    for (size_t i = 0; i < count; i++)
        if (aoticache_tensor_from_blob(inputs[i].data, inputs[i].dtype, inputs[i].ndim, inputs[i].sizes, NULL,
                                       &tensors[i], &error) != AOTICACHE_OK)
            fail("input", &error);
    if (aoticache_runner_run(runner, tensors, count, outputs, aoticache_runner_num_outputs(runner), &error) !=
            AOTICACHE_OK ||
        aoticache_tensor_get_view(outputs[0], &view, &error) != AOTICACHE_OK)
        fail("run", &error);
    print(begun, view.data, view.numel);
    aoticache_runner_unref(runner);
    aoticache_cache_close(cache);
    return 0;
}

static void copy_file(int from, const char *directory, const char *name)
{
    char path[PATH_MAX], buffer[65536];
    ssize_t got;
    off_t at = 0;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    cleanup_file FILE *to = fopen(path, "wb");
    for (; to != NULL && (got = pread(from, buffer, sizeof buffer, at)) > 0; at += got)
        fwrite(buffer, 1, (size_t)got, to);
    if (to == NULL || fflush(to) != 0)
        fail(path, NULL);
}

static int copy(const char *directory, const char *name, const char *subdirectory)
{
    aoticache_error error;
    aoticache_artifact *artifact;
    aoticache_model_tensors list;
    char path[PATH_MAX];
    aoticache_cache *cache = open_cache(directory);
    if (aoticache_model_lookup(cache, name, NULL, &artifact, NULL, &error) != AOTICACHE_OK ||
        aoticache_model_tensors_read(aoticache_artifact_get_info(artifact)->directory, &list, &error) != AOTICACHE_OK)
        fail("model", &error);
    copy_file(aoticache_artifact_library_fd(artifact), subdirectory, "model.so");
    const char *last = "";
    for (size_t i = 0; i <= list.count; i++) {
        const char *file = i < list.count ? list.places[i].file : AOTICACHE_WEIGHTS_LIST;
        if (file == NULL || strcmp(file, last) == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", aoticache_artifact_get_info(artifact)->directory, file);
        cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        copy_file(fd, subdirectory, file);
        last = file;
    }
    return 0;
}

/* ---- a program without a cache ---- */

typedef struct functions {
#define MEMBER(name) __typeof__(&name) name;
    /* clang-format off */
#define FUNCTIONS(X) \
    X(AOTInductorModelContainerCreateWithDevice) X(AOTInductorModelContainerRun) X(AOTInductorModelContainerGetNumConstants) \
    X(AOTInductorModelContainerGetConstantName) X(AOTInductorModelContainerGetConstantOriginalFQN) \
    X(AOTInductorModelContainerUpdateUserManagedConstantBufferPairs) X(AOTInductorModelContainerGetNumOutputs)
    /* clang-format on */
    FUNCTIONS(MEMBER)
    __typeof__(&aoti_torch_create_tensor_from_blob) from_blob;
    __typeof__(&aoti_torch_get_data_ptr) get_data;
    __typeof__(&aoti_torch_get_numel) get_numel;
} functions;

static void *must(void *found)
{
    if (found == NULL)
        fail(dlerror(), NULL);
    return found;
}

static functions bind(const char *library, const char *provider)
{
    functions f;
    void *shim = must(dlopen(provider, RTLD_NOW | RTLD_LOCAL));
    void *model = must(dlopen(library, RTLD_NOW | RTLD_LOCAL));
#define BIND(name) *(void **)&f.name = must(dlsym(model, #name));
    FUNCTIONS(BIND)
    *(void **)&f.from_blob = must(dlsym(shim, "aoti_torch_create_tensor_from_blob"));
    *(void **)&f.get_data = must(dlsym(shim, "aoti_torch_get_data_ptr"));
    *(void **)&f.get_numel = must(dlsym(shim, "aoti_torch_get_numel"));
    return f;
}

static char *map(const char *directory, const char *name)
{
    char path[PATH_MAX];
    struct stat found;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &found) != 0)
        fail(path, NULL);
    return mmap(NULL, (size_t)found.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
}

static const char *constant_called(const functions *f, AOTInductorModelContainerHandle container, size_t count,
                                   const char *fqn)
{
    for (size_t i = 0; i < count; i++) {
        const char *name = NULL, *original = NULL;
        f->AOTInductorModelContainerGetConstantOriginalFQN(container, i, &original);
        f->AOTInductorModelContainerGetConstantName(container, i, &name);
        if (strcmp(original, fqn) == 0)
            return name;
    }
    return NULL;
}

static void give_weights(const functions *f, AOTInductorModelContainerHandle container, const char *directory)
{
    aoticache_model_tensors list;
    aoticache_error error;
    size_t count = 0, used = 0;
    if (aoticache_model_tensors_read(directory, &list, &error) != AOTICACHE_OK)
        fail("list", &error);
    if (f->AOTInductorModelContainerGetNumConstants(container, &count) != 0)
        fail("constants", NULL);
    AOTInductorConstantMapEntry *pairs = calloc(list.count + 1, sizeof *pairs);
    char *bytes = NULL;
    const char *last = "";
    for (size_t i = 0; i < list.count; i++) {
        const aoticache_model_tensor *tensor = &list.places[i].tensor;
        if (strcmp(list.places[i].file, last) != 0)
            bytes = map(directory, last = list.places[i].file);
        pairs[used].name = constant_called(f, container, count, tensor->name);
        if (pairs[used].name == NULL)
            continue;
        f->from_blob(bytes + list.places[i].offset, tensor->ndim, tensor->sizes, tensor->strides, 0, tensor->dtype, 0,
                     0, &pairs[used].handle);
        used++;
    }
    if (f->AOTInductorModelContainerUpdateUserManagedConstantBufferPairs(container, pairs, used, false, false) != 0)
        fail("update", NULL);
}

static int plain(const char *directory, const char *provider, const input *inputs, size_t count)
{
    char library[PATH_MAX];
    AOTInductorModelContainerHandle container;
    AtenTensorHandle tensors[MAX_INPUTS], outputs[MAX_OUTPUTS];
    size_t num_outputs = 0;
    void *data = NULL;
    int64_t numel = 0;
    snprintf(library, sizeof library, "%s/model.so", directory);
    const uint64_t begun = aoticache_monotonic_ns();
    const functions f = bind(library, provider);
    if (f.AOTInductorModelContainerCreateWithDevice(&container, 1, "cpu", directory) != 0)
        fail("create", NULL);
    give_weights(&f, container, directory);
    for (size_t i = 0; i < count; i++)
        f.from_blob(inputs[i].data, inputs[i].ndim, inputs[i].sizes, inputs[i].strides, 0, inputs[i].dtype, 0, 0,
                    &tensors[i]);
    f.AOTInductorModelContainerGetNumOutputs(container, &num_outputs);
    if (f.AOTInductorModelContainerRun(container, tensors, count, outputs, num_outputs, NULL, NULL) != 0 ||
        f.get_data(outputs[0], &data) != 0 || f.get_numel(outputs[0], &numel) != 0)
        fail("run", NULL);
    print(begun, data, numel);
    return 0;
}

int main(int argc, char **argv)
{
    input inputs[MAX_INPUTS];
    size_t count = 0;
    if (argc == 5 && strcmp(argv[1], "copy") == 0)
        return copy(argv[2], argv[3], argv[4]);
    for (int i = 4; i < argc && count < MAX_INPUTS; i++)
        inputs[count++] = make_input(argv[i]);
    if (argc > 4 && strcmp(argv[1], "ours") == 0)
        return ours(argv[2], argv[3], inputs, count);
    if (argc > 4 && strcmp(argv[1], "plain") == 0)
        return plain(argv[2], argv[3], inputs, count);
    fprintf(stderr, "usage: open_model copy|ours|plain ...\n");
    return 2;
}
