/*
 * Benchmark of multiplying float32 matrices in the shim: with the machine's BLAS, compared with the shim's own code in
 * plain C, in fresh processes that alternate. The baseline is the same program with a search path on which no BLAS can
 * be loaded. If there is none anyway, both are the same and the ratio is about 1.
 *
 * Prints one JSON object per line (scripts/bench collects them).
 */
#include "base/clock.h"
#include "base/base.h"
#include "base/process/home.h"
#include "runtime/shim/torch_abi.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 5 };

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "bench_matmul: %s: %s\n", what, detail != NULL ? detail : "failed");
    exit(1);
}

struct shim {
    __typeof__(&aoti_torch_cpu_mm_out) multiply;
    __typeof__(&aoti_torch_create_tensor_from_blob) wrap;
};

static struct shim load_shim(void)
{
    char path[PATH_MAX];
    aoticache_error error;
    struct shim shim;
    if (aoticache_home_find("lib/libaoticache_torchshim.so", path, &error) != AOTICACHE_OK)
        fail("the shim", error.message);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fail("the shim", dlerror());
    void *multiply = dlsym(library, "aoti_torch_cpu_mm_out");
    void *wrap = dlsym(library, "aoti_torch_create_tensor_from_blob");
    if (multiply == NULL || wrap == NULL)
        fail("the shim", "functions are missing");
    memcpy(&shim.multiply, &multiply, sizeof multiply);
    memcpy(&shim.wrap, &wrap, sizeof wrap);
    return shim;
}

static AtenTensorHandle square(const struct shim *shim, int64_t size)
{
    const int64_t sizes[] = {size, size}, strides[] = {size, 1};
    float *values = malloc((size_t)(size * size) * sizeof *values);
    if (values == NULL)
        fail("memory", NULL);
    for (int64_t i = 0; i < size * size; i++)
        values[i] = (float)(i % 7) - 3;
    AtenTensorHandle tensor;
    if (shim->wrap(values, 2, sizes, strides, 0, AOTICACHE_DTYPE_FLOAT32, 0, -1, &tensor) != 0)
        fail("a tensor", NULL);
    return tensor;
}

/* Prints the nanoseconds of one multiplication, the shortest of several measurements. */
static int measure(int64_t size)
{
    struct shim shim = load_shim();
    AtenTensorHandle a = square(&shim, size), b = square(&shim, size), out = square(&shim, size);
    int repeats = (int)(200000000 / (size * size * size) / 4) + 1;
    uint64_t best = UINT64_MAX;
    for (int round = 0; round < ROUNDS + 1; round++) { /* the first one also loads the library */
        uint64_t begin = aoticache_monotonic_ns();
        for (int i = 0; i < repeats; i++)
            if (shim.multiply(out, a, b) != 0)
                fail("the product", NULL);
        uint64_t each = (aoticache_monotonic_ns() - begin) / (uint64_t)repeats;
        if (round > 0 && each < best)
            best = each;
    }
    printf("%llu\n", (unsigned long long)best);
    return 0;
}

static double ask(const char *program, int64_t size, const char *search_path)
{
    char command[2 * PATH_MAX + 64], line[64] = "";
    int length = search_path == NULL ? snprintf(command, sizeof command, "'%s' %lld", program, (long long)size)
                                     : snprintf(command, sizeof command, "LD_LIBRARY_PATH='%s' '%s' %lld", search_path,
                                                program, (long long)size);
    if (length < 0 || (size_t)length >= sizeof command)
        fail("a command", "too long");
    FILE *pipe = popen(command, "r");
    if (pipe == NULL || fgets(line, sizeof line, pipe) == NULL || pclose(pipe) != 0)
        fail(command, NULL);
    return strtod(line, NULL);
}

/* Makes a directory with a file of the library's name that is not a library. */
static void hide_library(char directory[PATH_MAX])
{
    static const char *const names[] = {"libopenblas.so.0"};
    char path[PATH_MAX];
    snprintf(directory, PATH_MAX, "%s/bench_matmul.XXXXXX", getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    if (mkdtemp(directory) == NULL)
        fail("a temporary directory", directory);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (snprintf(path, sizeof path, "%s/%s", directory, names[i]) >= (int)sizeof path)
            fail("a temporary directory", "its name is too long");
        int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        if (fd < 0)
            fail("a file", path);
        close(fd);
    }
}

static void show_library(const char *directory)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/libopenblas.so.0", directory) < (int)sizeof path)
        unlink(path);
    rmdir(directory);
}

int main(int argc, char **argv)
{
    static const int64_t sizes[] = {32, 64, 512, 1024};
    char program[PATH_MAX], directory[PATH_MAX];
    if (argc > 1)
        return measure(strtoll(argv[1], NULL, 10));
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0)
        fail("/proc/self/exe", NULL);
    program[length] = '\0';
    (void)argv;
    hide_library(directory);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        double value = ask(program, sizes[i], NULL) / 1000, peer = ask(program, sizes[i], directory) / 1000;
        printf("{\"name\":\"matrix product of float32, %d cubed\",\"value\":%.4g,\"unit\":\"us\",\"peer\":\"plain C\","
               "\"peer_value\":%.4g,\"ratio\":%.3f,\"target\":1.1,\"met\":%s}\n",
               (int)sizes[i], value, peer, value / peer, value <= 1.1 * peer ? "true" : "false");
    }
    show_library(directory);
    return 0;
}
