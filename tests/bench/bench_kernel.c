/*
 * Benchmarks of one kernel, add of two float32[2, 3]: a cold hit, a run, resident memory; each compared with its
 * baseline, in fresh processes that alternate. PyTorch makes the library; if there is no PyTorch, the C hook does.
 *
 * Prints one JSON object per line (scripts/bench collects them).
 */
#include "base/clock.h"
#include "aoticache/admin.h"
#include "base/cleanup.h"
#include "base/process/home.h"
#include "base/files/memory_file.h"
#include "tests/bench/bench.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_ROUNDS = 41, RUNS = 200000, RUN_ROUNDS = 9 };

/*
 * A cold hit, and the first one after a change of the index, may take a seventh more than hashing and loading the file.
 */
#define COLD_LIMIT 1.15
/* Copying the library while it is hashed must not cost more than reading it again; a twentieth is for noise. */
#define COPY_LIMIT 1.05
/* The end of a process that had only hits must not wait for the disk. */
#define CLOSE_LIMIT 1
/* A run through the shim: shim, tensors and runner add a bit more than half of the library's own code (1.2 to 1.5 measured). */
#define RUN_LIMIT 1.6
/* Cache and SQLite add a bit more than half of what loading the same library and shim takes without them (1.2 measured). */
#define RESIDENT_LIMIT 1.6

static size_t rounds = MOST_ROUNDS;

static void fail(const char *what, const aoticache_error *error)
{
    fprintf(stderr, "bench_kernel: %s: %s\n", what, error != NULL ? error->message : "failed");
    exit(1);
}

static const int64_t sizes[2] = {2, 3};

static aoticache_request *make_request(void)
{
    aoticache_error error;
    aoticache_request *request;
    aoticache_device cpu = AOTICACHE_DEVICE_CPU;
    aoticache_tensor_metadata metadata = {.dtype = AOTICACHE_DTYPE_FLOAT32, .device = cpu, .ndim = 2, .sizes = sizes};
    if (aoticache_request_create("aten::add.Tensor", cpu, &request, &error) != AOTICACHE_OK ||
        aoticache_request_add_tensor(request, NULL, &metadata, &error) != AOTICACHE_OK ||
        aoticache_request_add_tensor(request, NULL, &metadata, &error) != AOTICACHE_OK)
        fail("request", &error);
    return request;
}

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

/* Sets the environment that the entry was stored under, from a variable: a hit starts no hook. */
static void set_environment(aoticache_request *request)
{
    aoticache_error error;
    const char *name = getenv("BENCH_FRAMEWORK");
    const char *version = getenv("BENCH_FRAMEWORK_VERSION");
    if (name == NULL || version == NULL ||
        aoticache_request_set_environment(request, "framework", name, &error) != AOTICACHE_OK ||
        aoticache_request_set_environment(request, "framework_version", version, &error) != AOTICACHE_OK)
        fail("environment", NULL);
    const char *worker = getenv("BENCH_WORKER"); /* only of kernels that the worker has compiled */
    if (worker != NULL && aoticache_request_set_environment(request, "worker", worker, &error) != AOTICACHE_OK)
        fail("environment", NULL);
}

static aoticache_runner *get_runner(aoticache_cache *cache, aoticache_request *request)
{
    aoticache_error error;
    aoticache_runner *runner;
    if (aoticache_get_runner(cache, NULL, request, &runner, NULL, &error) != AOTICACHE_OK)
        fail("get runner", &error);
    return runner;
}

static int cold_ours(const char *directory)
{
    aoticache_request *request = make_request();
    set_environment(request);
    uint64_t begin = aoticache_monotonic_ns();
    aoticache_cache *cache = open_cache(directory);
    aoticache_runner *runner = get_runner(cache, request);
    uint64_t end = aoticache_monotonic_ns();
    printf("%llu\n", (unsigned long long)(end - begin));
    (void)runner;
    return 0;
}

struct plain_library {
    __typeof__(&AOTInductorModelContainerRun) run;
    AOTInductorModelContainerHandle container;
};

/* OpenSSL's recommended interface, only in the processes of baselines: bound before their clocks start. */
static int (*evp_digest)(const void *, size_t, unsigned char *, unsigned *, const void *, void *);
static const void *(*evp_sha256)(void);

static void bind_evp(void)
{
    void *libcrypto = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
    if (libcrypto == NULL)
        fail(dlerror(), NULL);
    *(void **)&evp_digest = dlsym(libcrypto, "EVP_Digest");
    *(void **)&evp_sha256 = dlsym(libcrypto, "EVP_sha256");
    if (evp_digest == NULL || evp_sha256 == NULL)
        fail("libcrypto has no EVP_Digest", NULL);
}

/*
 * Does what a careful program without a cache does with a library file: read and hash it, dlopen it, create the
 * container.
 */
static struct plain_library load_plainly(const char *file, const char *provider, bool low_level)
{
    struct plain_library plain = {0};
    struct stat status;
    unsigned char digest[64];
    unsigned length;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) != 0)
        fail(file, NULL);
    if (low_level) {
        aoticache_digest ours;
        if (aoticache_digest_of_fd(fd, &ours, NULL, NULL) != AOTICACHE_OK)
            fail("digest", NULL);
    } else {
        void *bytes = malloc((size_t)status.st_size);
        if (bytes == NULL || read(fd, bytes, (size_t)status.st_size) != status.st_size ||
            evp_digest(bytes, (size_t)status.st_size, digest, &length, evp_sha256(), NULL) != 1)
            fail("digest", NULL);
        free(bytes);
    }
    close(fd);
    if (dlopen(provider, RTLD_NOW | RTLD_LOCAL) == NULL)
        fail(dlerror(), NULL);
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        fail(dlerror(), NULL);
    __typeof__(&AOTInductorModelContainerCreateWithDevice) create;
    *(void **)&create = dlsym(handle, "AOTInductorModelContainerCreateWithDevice");
    *(void **)&plain.run = dlsym(handle, "AOTInductorModelContainerRun");
    if (create == NULL || plain.run == NULL || create(&plain.container, 1, "cpu", NULL) != 0)
        fail("create", NULL);
    return plain;
}

static int cold_peer(const char *file, const char *provider, bool low_level)
{
    if (!low_level)
        bind_evp();
    uint64_t begin = aoticache_monotonic_ns();
    load_plainly(file, provider, low_level);
    uint64_t end = aoticache_monotonic_ns();
    printf("%llu\n", (unsigned long long)(end - begin));
    return 0;
}

static void make_inputs(float *x, float *y, AtenTensorHandle inputs[2])
{
    aoticache_error error;
    for (int i = 0; i < 6; i++) {
        x[i] = (float)i;
        y[i] = (float)(10 * i);
    }
    if (aoticache_tensor_from_blob(x, AOTICACHE_DTYPE_FLOAT32, 2, sizes, NULL, &inputs[0], &error) != AOTICACHE_OK ||
        aoticache_tensor_from_blob(y, AOTICACHE_DTYPE_FLOAT32, 2, sizes, NULL, &inputs[1], &error) != AOTICACHE_OK)
        fail("tensor", &error);
}

static int run_ours(const char *directory)
{
    aoticache_error error;
    aoticache_cache *cache = open_cache(directory);
    aoticache_request *request = make_request();
    set_environment(request);
    aoticache_runner *runner = get_runner(cache, request);
    float x[6], y[6];
    AtenTensorHandle inputs[2], output;
    make_inputs(x, y, inputs);
    uint64_t begin = 0;
    for (int i = -1000; i < RUNS; i++) {
        if (i == 0)
            begin = bench_processor_ns();
        if (aoticache_runner_run(runner, inputs, 2, &output, 1, &error) != AOTICACHE_OK)
            fail("run", &error);
        if (i < RUNS - 1)
            aoticache_tensor_free(output);
    }
    uint64_t end = bench_processor_ns();
    aoticache_tensor_view view;
    if (aoticache_tensor_get_view(output, &view, &error) != AOTICACHE_OK || ((float *)view.data)[5] != 55.0f)
        fail("wrong result", NULL);
    printf("%.1f\n", (double)(end - begin) / RUNS);
    return 0;
}

/* Runs the library over a provider that does nothing: measures its own code, and the calls. */
static int run_own_code(const char *file, const char *null_shim)
{
    struct plain_library plain = load_plainly(file, null_shim, true);
    void *shim = dlopen(null_shim, RTLD_NOW | RTLD_NOLOAD);
    __typeof__(&aoti_torch_create_tensor_from_blob) create;
    *(void **)&create = dlsym(shim, "aoti_torch_create_tensor_from_blob");
    AtenTensorHandle tensor, inputs[2], output;
    create(NULL, 2, sizes, sizes, 0, 6, 0, 0, &tensor);
    uint64_t begin = 0;
    for (int i = -1000; i < RUNS; i++) {
        if (i == 0)
            begin = bench_processor_ns();
        inputs[0] = tensor;
        inputs[1] = tensor;
        if (plain.run(plain.container, inputs, 2, &output, 1, NULL, NULL) != 0)
            fail("run", NULL);
    }
    uint64_t end = bench_processor_ns();
    printf("%.1f\n", (double)(end - begin) / RUNS);
    return 0;
}

static double resident_kb(void)
{
    cleanup_file FILE *file =
        fopen("/proc/self/smaps_rollup", "r"); /* VmRSS is an estimate if there are several processors */
    char line[256];
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "Rss:", 4) == 0)
            return atof(line + 4);
    return 0;
}

static int resident_ours(const char *directory)
{
    aoticache_error error;
    aoticache_cache *cache = open_cache(directory);
    aoticache_request *request = make_request();
    set_environment(request);
    aoticache_runner *runner = get_runner(cache, request);
    float x[6], y[6];
    AtenTensorHandle inputs[2], output;
    make_inputs(x, y, inputs);
    if (aoticache_runner_run(runner, inputs, 2, &output, 1, &error) != AOTICACHE_OK)
        fail("run", &error);
    printf("%.0f\n", resident_kb());
    return 0;
}

/* Prints the resident memory after the same run without a cache: the library is loaded from its file, and checked. */
static int resident_plain(const char *file, const char *provider)
{
    struct plain_library plain = load_plainly(file, provider, true);
    void *shim = dlopen(provider, RTLD_NOW | RTLD_NOLOAD);
    __typeof__(&aoti_torch_create_tensor_from_blob) create;
    AtenTensorHandle inputs[2], output;
    const int64_t strides[2] = {3, 1};
    float numbers[6] = {1, 2, 3, 4, 5, 6};
    *(void **)&create = dlsym(shim, "aoti_torch_create_tensor_from_blob");
    for (int i = 0; i < 2; i++)
        if (create == NULL || create(numbers, 2, sizes, strides, 0, AOTICACHE_DTYPE_FLOAT32, AOTICACHE_DEVICE_CPU.type,
                                     -1, &inputs[i]) != 0)
            fail("tensor", NULL);
    if (plain.run(plain.container, inputs, 2, &output, 1, NULL, NULL) != 0)
        fail("run", NULL);
    printf("%.0f\n", resident_kb());
    return 0;
}

/* Measures the time at the end of a process that has found its kernel. */
static int close_ours(const char *directory)
{
    aoticache_error error;
    aoticache_request *request = make_request();
    set_environment(request);
    aoticache_cache *cache = open_cache(directory);
    aoticache_artifact *artifact;
    if (aoticache_cache_lookup(cache, request, NULL, &artifact, &error) != AOTICACHE_OK)
        fail("lookup", &error);
    aoticache_artifact_unref(artifact);
    uint64_t begin = aoticache_monotonic_ns();
    aoticache_cache_close(cache);
    printf("%llu\n", (unsigned long long)(aoticache_monotonic_ns() - begin));
    return 0;
}

/* Appends a line to a file, made durable or not. */
static int append_line(const char *file, bool is_durable)
{
    static const char line[200];
    uint64_t begin = aoticache_monotonic_ns();
    int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, sizeof line) != sizeof line || (is_durable && fdatasync(fd) != 0) || close(fd) != 0)
        fail(file, NULL);
    printf("%llu\n", (unsigned long long)(aoticache_monotonic_ns() - begin));
    return 0;
}

/* Runs this program again with the arguments and returns the number it prints. */
static double ask(const char *program, const char *mode, const char *first, const char *second)
{
    int fds[2];
    if (pipe(fds) != 0)
        fail("pipe", NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], 1);
        close(fds[0]);
        execl(program, program, mode, first, second, (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    FILE *answer = fdopen(fds[0], "r");
    double value = 0;
    int status;
    bool read = fscanf(answer, "%lf", &value) == 1;
    fclose(answer);
    if (waitpid(pid, &status, 0) < 0 || status != 0 || !read)
        fail(mode, NULL);
    return value;
}

static int ascending(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;
    return difference < 0 ? -1 : difference > 0;
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

/* Reports a figure. target: 0 if there is none. */
static void report(const char *name, double value, const char *unit, const char *peer, double peer_value, double target)
{
    double ratio = value / peer_value;
    printf("{\"name\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"peer\":\"%s\",\"peer_value\":%.4g,\"ratio\":%.3f,"
           "\"target\":%g,\"met\":%s}\n",
           name, value, unit, peer, peer_value, ratio, target,
           target <= 0       ? "null"
           : ratio <= target ? "true"
                             : "false");
    fflush(stdout);
}

/* Makes a copy of the shim with PyTorch's soname, as provider for the baselines. */
static void make_provider(const char *directory, char ret_path[PATH_MAX])
{
    char shim[PATH_MAX];
    aoticache_error error;
    if (aoticache_home_find("lib/libaoticache_torchshim.so", shim, &error) != AOTICACHE_OK)
        fail("shim", &error);
    cleanup_file FILE *in = fopen(shim, "rb");
    fseek(in, 0, SEEK_END);
    size_t size = (size_t)ftell(in);
    rewind(in);
    cleanup_free char *bytes = malloc(size);
    if (bytes == NULL || fread(bytes, 1, size, in) != size)
        fail("read shim", NULL);
    static const char ours[] = "libaoticache_torchshim.so", torchs[] = "libtorch_cpu.so";
    char *name = memmem(bytes, size, ours, sizeof ours);
    if (name == NULL)
        fail("the shim has no soname", NULL);
    memcpy(name, torchs, sizeof torchs);
    snprintf(ret_path, PATH_MAX, "%s/libtorch_cpu.so", directory);
    cleanup_file FILE *out = fopen(ret_path, "wb");
    if (out == NULL || fwrite(bytes, 1, size, out) != size)
        fail("write provider", NULL);
}

/* Compiles the kernel into the cache and copies its library to `file`. True if PyTorch made it. */
static bool prepare(const char *directory, const char *file)
{
    aoticache_error error;
    aoticache_hook *hook;
    bool torch = aoticache_hook_create_worker(NULL, &hook, &error) == AOTICACHE_OK;
    if (!torch && aoticache_hook_create_c(NULL, &hook, &error) != AOTICACHE_OK)
        fail("no compile hook", &error);
    aoticache_cache *cache = open_cache(directory);
    aoticache_request *request = make_request();
    aoticache_artifact *artifact;
    if (aoticache_hook_set_environment(hook, request, &error) != AOTICACHE_OK ||
        aoticache_cache_get_or_compile(cache, request, NULL, aoticache_hook_compile, hook, &artifact, &error) !=
            AOTICACHE_OK)
        fail("compile", &error);
    setenv("BENCH_FRAMEWORK", aoticache_request_get_environment(request, "framework"), 1);
    setenv("BENCH_FRAMEWORK_VERSION", aoticache_request_get_environment(request, "framework_version"), 1);
    const char *worker = aoticache_request_get_environment(request, "worker");
    if (worker != NULL)
        setenv("BENCH_WORKER", worker, 1);
    FILE *out = fopen(file, "wb");
    char buffer[65536];
    ssize_t got;
    off_t at = 0;
    while (out != NULL && (got = pread(aoticache_artifact_library_fd(artifact), buffer, sizeof buffer, at)) > 0) {
        fwrite(buffer, 1, (size_t)got, out);
        at += got;
    }
    if (out == NULL || fclose(out) != 0)
        fail("copy", NULL);
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
    aoticache_cache_close(cache);
    aoticache_hook_free(hook);
    return torch;
}

/*
 * Verifies a library's bytes and copies them into memory: in one pass, or by reading the file again. Returns
 * microseconds.
 */
static double time_copy(int fd, bool in_one_pass)
{
    aoticache_digest digest;
    cleanup_fd int file = aoticache_memory_file_create();
    if (file < 0)
        fail("memfd_create", NULL);
    uint64_t begin = aoticache_monotonic_ns();
    aoticache_memory_copy copy = {.file = in_one_pass ? file : -1, .kept = UINT64_MAX};
    aoticache_status status = aoticache_digest_of_fd_copying(fd, &copy, &digest, NULL, NULL);
    char buffer[16384];
    ssize_t got;
    for (off_t at = 0; !in_one_pass && (got = pread(fd, buffer, sizeof buffer, at)) > 0; at += got)
        if (!aoticache_memory_file_write(file, buffer, (size_t)got, (uint64_t)at))
            fail("copy", NULL);
    uint64_t end = aoticache_monotonic_ns();
    if (status != AOTICACHE_OK || copy.failed != 0)
        fail("digest", NULL);
    return (double)(end - begin) / 1e3;
}

static double time_digest(int fd)
{
    aoticache_digest digest;
    uint64_t begin = aoticache_monotonic_ns();
    if (aoticache_digest_of_fd(fd, &digest, NULL, NULL) != AOTICACHE_OK)
        fail("digest", NULL);
    return (double)(aoticache_monotonic_ns() - begin) / 1e3;
}

/* Measures the cost of running exactly the bytes that were hashed. */
static void measure_copy(const char *file)
{
    enum { COPIES = 401 };
    double one[COPIES], two[COPIES], digest[COPIES];
    cleanup_fd int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail(file, NULL);
    for (int i = 0; i < COPIES; i++) {
        one[i] = time_copy(fd, true);
        two[i] = time_copy(fd, false);
        digest[i] = time_digest(fd);
    }
    double value = median(one, COPIES);
    report("verify a library and copy it in one pass", value, "us", "verify it, then read it again",
           median(two, COPIES), COPY_LIMIT);
    report("the same, beside verifying alone", value, "us", "verify it", median(digest, COPIES), 0);
}

static void measure_cold(const char *self, const char *directory, const char *file, const char *provider)
{
    double ours[MOST_ROUNDS], first[MOST_ROUNDS], evp[MOST_ROUNDS], low[MOST_ROUNDS];
    char answers[PATH_MAX + 32];
    snprintf(answers, sizeof answers, "%s/index.sqlite3-answers", directory);
    usleep(2200000); /* a recently changed index leaves no query cache */
    for (int i = 0; i < (int)rounds; i++) {
        unlink(answers);
        first[i] = ask(self, "cold-ours", directory, "") / 1e6;
        ask(self, "close-ours", directory, ""); /* leaves a query cache */
        ours[i] = ask(self, "cold-ours", directory, "") / 1e6;
        evp[i] = ask(self, "cold-peer", file, provider) / 1e6;
        low[i] = ask(self, "cold-peer-low", file, provider) / 1e6;
    }
    double value = median(ours, rounds);
    report("cold hit", value, "ms", "open + SHA-256 (EVP) + dlopen + create", median(evp, rounds), COLD_LIMIT);
    report("cold hit, peer with our digest", value, "ms", "open + SHA-256 (low level) + dlopen + create",
           median(low, rounds), 0);
    report("cold hit, the first since the index was changed", median(first, rounds), "ms",
           "open + SHA-256 (EVP) + dlopen + create", median(evp, rounds), COLD_LIMIT);
}

static double mean(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return sum / (double)count;
}

static void measure_close(const char *self, const char *directory, const char *subdirectory)
{
    double ours[MOST_ROUNDS], plain[MOST_ROUNDS], durable[MOST_ROUNDS];
    char file[PATH_MAX];
    snprintf(file, sizeof file, "%s/lines", subdirectory);
    for (int i = 0; i < (int)rounds; i++) {
        ours[i] = ask(self, "close-ours", directory, "") / 1e3;
        plain[i] = ask(self, "append", file, "") / 1e3;
        durable[i] = ask(self, "append-durable", file, "") / 1e3;
    }
    double value = median(ours, rounds);
    report("closing the cache after a hit", value, "us", "open, write 200 bytes, close", median(plain, rounds), 0);
    report("the same, beside a wait for the disk", value, "us", "open, write 200 bytes, fdatasync, close",
           median(durable, rounds), CLOSE_LIMIT);
}

/* Runs one of the measured processes. */
static int run_part(char **argv)
{
    if (strcmp(argv[1], "close-ours") == 0)
        return close_ours(argv[2]);
    if (strncmp(argv[1], "append", 6) == 0)
        return append_line(argv[2], argv[1][6] != '\0');
    if (strcmp(argv[1], "cold-ours") == 0)
        return cold_ours(argv[2]);
    if (strncmp(argv[1], "cold-peer", 9) == 0)
        return cold_peer(argv[2], argv[3], argv[1][9] != '\0');
    if (strcmp(argv[1], "run-ours") == 0)
        return run_ours(argv[2]);
    if (strcmp(argv[1], "run-own-code") == 0)
        return run_own_code(argv[2], argv[3]);
    if (strcmp(argv[1], "resident-ours") == 0)
        return resident_ours(argv[2]);
    if (strcmp(argv[1], "resident-plain") == 0)
        return resident_plain(argv[2], argv[3]);
    return 2;
}

/*
 * Measures. Not a part of main(): the 90 KB of its variables would spread those of the parts over the stack, which
 * would affect their time.
 */
__attribute__((noinline)) static int measure(void)
{
    char self[PATH_MAX], build[PATH_MAX], subdirectory[] = "/tmp/aoticache-bench-XXXXXX";
    char directory[PATH_MAX], file[PATH_MAX], provider[PATH_MAX], null_shim[PATH_MAX + 32], empty[PATH_MAX + 32];
    if (realpath("/proc/self/exe", self) == NULL || mkdtemp(subdirectory) == NULL)
        fail("set-up", NULL);
    snprintf(build, sizeof build, "%s", self);
    for (int level = 0; level < 3; level++)
        *strrchr(build, '/') = '\0';
    snprintf(directory, sizeof directory, "%s/cache", subdirectory);
    snprintf(file, sizeof file, "%s/kernel.so", subdirectory);
    snprintf(null_shim, sizeof null_shim, "%s/tests/bench/libnull_shim.so", build);
    snprintf(empty, sizeof empty, "%s/tests/bench/empty", build);

    rounds = bench_is_quick() ? 21 : MOST_ROUNDS;
    bool torch = prepare(directory, file);
    fprintf(stderr, "bench_kernel: the library was made by %s\n", torch ? "PyTorch" : "the C hook");
    make_provider(subdirectory, provider);
    measure_cold(self, directory, file, provider);
    measure_copy(file);
    measure_close(self, directory, subdirectory);

    double ours[MOST_ROUNDS], own[MOST_ROUNDS], nothing[MOST_ROUNDS];
    for (int i = 0; i < RUN_ROUNDS; i++) {
        ours[i] = ask(self, "run-ours", directory, "");
        own[i] = ask(self, "run-own-code", file, null_shim);
    }
    report("run through the shim, two inputs of 6 elements", median(ours, RUN_ROUNDS), "ns",
           "the library's own code (a provider that does nothing)", median(own, RUN_ROUNDS), RUN_LIMIT);
    /* The addresses of libraries in a process are random, in steps of 64 KB, so the mean is better than the median. */
    for (size_t i = 0; i < rounds; i++) {
        nothing[i] = ask(empty, "", "", "") / 1024;
        ours[i] = ask(self, "resident-ours", directory, "") / 1024;
        own[i] = ask(self, "resident-plain", file, provider) / 1024;
    }
    double base = mean(nothing, rounds);
    report("resident memory of a C process over an empty one", mean(ours, rounds) - base, "MiB",
           "the same run without a cache", mean(own, rounds) - base, RESIDENT_LIMIT);

    char command[PATH_MAX];
    snprintf(command, sizeof command, "rm -rf %s", subdirectory);
    return system(command) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    return argc == 4 ? run_part(argv) : measure();
}
