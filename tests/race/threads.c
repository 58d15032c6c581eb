/*
 * Many threads in one process: one cache handle, one compile hook, one runner. Made for ThreadSanitizer (Criterion does
 * not start under it); also run without it.
 *
 * Argument: seconds (default 5). Checks: every returned library has the bytes of its request, at most one compile of a
 * key runs at a time, every run of the shared kernel has the right result.
 */
#include "base/clock.h"
#include "aoticache/admin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 8, REQUESTS = 12, LIBRARY_BYTES = 5000 };

static aoticache_cache *cache;
static aoticache_runner *runner; /* NULL if no kernel could be compiled */
static uint64_t deadline_ns;
static atomic_int compiling[REQUESTS];
static atomic_ulong hits, compiles, collections, runs, failures;

static void complain(const char *what, const aoticache_error *error)
{
    fprintf(stderr, "not ok - %s: %s\n", what, error != NULL ? error->message : "");
    atomic_fetch_add(&failures, 1);
}

static aoticache_request *make_request(int number)
{
    aoticache_request *request;
    aoticache_error error;
    if (aoticache_request_create("race::threads", AOTICACHE_DEVICE_CPU, &request, &error) != AOTICACHE_OK ||
        aoticache_request_add_int(request, NULL, number, &error) != AOTICACHE_OK) {
        complain("request", &error);
        exit(1);
    }
    return request;
}

static char byte_of(int number, int at)
{
    return (char)(number * 31 + at % 97);
}

static aoticache_status fake_compile(void *user, const aoticache_request *request, const char *directory,
                                     aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    (void)user;
    int number = (int)aoticache_request_argument(request, 0)->value.int_value;
    if (atomic_fetch_add(&compiling[number], 1) != 0)
        complain("two compiles of one key at a time", NULL);
    char path[4096], bytes[LIBRARY_BYTES];
    snprintf(path, sizeof path, "%s/kernel.so", directory);
    for (int i = 0; i < LIBRARY_BYTES; i++)
        bytes[i] = byte_of(number, i);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, sizeof bytes, file) != sizeof bytes || fclose(file) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_COMPILE_FAILED, "cannot write %s", path);
    aoticache_file files[] = {{"kernel.so", path}};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = files;
    product.file_count = 1;
    product.producer = "race";
    aoticache_status status = deliver(deliver_user, &product);
    atomic_fetch_add(&compiles, 1);
    atomic_fetch_sub(&compiling[number], 1);
    return status;
}

static void check_bytes(const aoticache_artifact *artifact, int number)
{
    char bytes[LIBRARY_BYTES + 1];
    ssize_t got = pread(aoticache_artifact_library_fd(artifact), bytes, sizeof bytes, 0);
    bool right = got == LIBRARY_BYTES;
    for (int i = 0; right && i < LIBRARY_BYTES; i++)
        right = bytes[i] == byte_of(number, i);
    if (!right)
        complain("wrong bytes", NULL);
}

static void ask(int number)
{
    aoticache_error error;
    aoticache_artifact *artifact;
    aoticache_request *request = make_request(number);
    if (aoticache_cache_get_or_compile(cache, request, NULL, fake_compile, NULL, &artifact, &error) != AOTICACHE_OK) {
        complain("get or compile", &error);
    } else {
        check_bytes(artifact, number);
        aoticache_artifact_close_files(artifact);
        aoticache_artifact_unref(artifact);
        atomic_fetch_add(&hits, 1);
    }
    aoticache_request_free(request);
}

static void remove_one(int number)
{
    aoticache_error error;
    aoticache_key key;
    aoticache_request *request = make_request(number);
    aoticache_request_key(request, &key, NULL);
    aoticache_status status = aoticache_cache_remove(cache, &key, &error);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        complain("remove", &error);
    aoticache_request_free(request);
}

static void collect(void)
{
    aoticache_error error;
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.max_bytes = 4 * LIBRARY_BYTES;
    aoticache_collect_report report;
    aoticache_status status = aoticache_cache_collect(cache, &options, NULL, NULL, &report, &error);
    if (status != AOTICACHE_OK && status != AOTICACHE_LOCKED)
        complain("collect", &error);
    atomic_fetch_add(&collections, 1);
}

static void run_kernel(void)
{
    float x[6] = {-1, 2, -3, 4, -5, 6};
    int64_t sizes[2] = {2, 3};
    aoticache_error error;
    AtenTensorHandle input, output;
    aoticache_tensor_view view;
    if (runner == NULL)
        return;
    if (aoticache_tensor_from_blob(x, AOTICACHE_DTYPE_FLOAT32, 2, sizes, NULL, &input, &error) != AOTICACHE_OK ||
        aoticache_runner_run(runner, &input, 1, &output, 1, &error) != AOTICACHE_OK ||
        aoticache_tensor_get_view(output, &view, &error) != AOTICACHE_OK) {
        complain("run", &error);
        return;
    }
    for (int i = 0; i < 6; i++)
        if (((float *)view.data)[i] != (x[i] < 0 ? -x[i] : x[i]))
            complain("wrong result", NULL);
    aoticache_tensor_free(output);
    aoticache_tensor_free(input);
    atomic_fetch_add(&runs, 1);
}

static bool count_entry(void *user, const aoticache_entry *entry)
{
    *(uint64_t *)user += entry->bytes;
    return true;
}

static void look(void)
{
    aoticache_error error;
    aoticache_statistics statistics;
    uint64_t bytes = 0;
    if (aoticache_cache_get_statistics(cache, NULL, &statistics, &error) != AOTICACHE_OK ||
        aoticache_cache_list(cache, NULL, NULL, count_entry, &bytes, &error) != AOTICACHE_OK ||
        aoticache_cache_flush(cache, &error) != AOTICACHE_OK)
        complain("statistics, list, flush", &error);
}

static void *work(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    while (aoticache_monotonic_ns() < deadline_ns) {
        int number = (int)(rand_r(&seed) % REQUESTS);
        int choice = (int)(rand_r(&seed) % 100);
        if (choice < 60)
            ask(number);
        else if (choice < 90)
            run_kernel();
        else if (choice < 95)
            look();
        else if (choice < 98)
            remove_one(number);
        else
            collect();
    }
    return NULL;
}

/* Gets the shared kernel: aten::abs in C, through the real hook and the real loader. */
static void get_kernel(void)
{
    aoticache_error error;
    aoticache_hook *hook;
    aoticache_request *request;
    int64_t sizes[2] = {2, 3};
    aoticache_tensor_metadata metadata = {
        .dtype = AOTICACHE_DTYPE_FLOAT32, .device = AOTICACHE_DEVICE_CPU, .ndim = 2, .sizes = sizes};
    if (aoticache_hook_create_c(NULL, &hook, &error) != AOTICACHE_OK) {
        printf("skip - runs of a shared kernel: %s\n", error.message);
        return;
    }
    aoticache_request_create("aten::abs", metadata.device, &request, NULL);
    aoticache_request_add_tensor(request, NULL, &metadata, NULL);
    if (aoticache_get_runner(cache, hook, request, &runner, NULL, &error) != AOTICACHE_OK)
        complain("the shared kernel", &error);
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 5;
    char subdirectory[] = "/tmp/aoticache-threads-XXXXXX", command[128];
    aoticache_error error;
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    options.directory = mkdtemp(subdirectory);
    if (options.directory == NULL || aoticache_cache_open(&options, &cache, &error) != AOTICACHE_OK) {
        complain("open", &error);
        return 1;
    }
    get_kernel();
    deadline_ns = aoticache_monotonic_ns() + (uint64_t)(seconds * 1e9);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    aoticache_verify_report report;
    if (aoticache_cache_verify(cache, NULL, NULL, NULL, NULL, &report, &error) != AOTICACHE_OK)
        complain("verify", &error);
    else if (report.damaged + report.missing + report.foreign != 0)
        complain("verify found damage", NULL);
    aoticache_runner_unref(runner);
    aoticache_cache_close(cache);
    snprintf(command, sizeof command, "rm -rf %s", subdirectory);
    if (system(command) != 0)
        complain("clean up", NULL);
    if (atomic_load(&failures) == 0)
        printf("ok - %d threads: %lu hits, %lu compiles, %lu collections, %lu runs\n", THREADS, atomic_load(&hits),
               atomic_load(&compiles), atomic_load(&collections), atomic_load(&runs));
    return atomic_load(&failures) != 0;
}
