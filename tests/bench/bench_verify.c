/*
 * Measures how fast a full verification reads a store, compared with sha256sum over the same files with as many
 * processes (find | xargs -P). There are two stores: few large libraries, dominated by hashing, and many small ones,
 * dominated by opening and lookups. Both alternate in one run, from the page cache; medians over the rounds. Prints one
 * JSON object per line.
 *
 * AOTICACHE_BENCH_ENTRIES: entries of the store of small ones (default 5000), in a directory of $TMPDIR, or else of
 * /dev/shm. BENCH_QUICK=1 verifies smaller stores.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache/cache.h"
#include "cache/verify/verify.h"
#include "tests/bench/bench.h"

#define ROUNDS 5

static char root[256];

static _Noreturn void fail(const char *what, const char *why)
{
    char command[300];
    fprintf(stderr, "bench_verify: %s: %s\n", what, why);
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    exit(root[0] != '\0' && system(command) != 0 ? 2 : 1);
}

static uint64_t mix(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

static void write_library(const char *path, uint64_t number, size_t bytes)
{
    static uint64_t words[1 << 17];
    FILE *file = fopen(path, "w");
    uint64_t state = number;
    for (size_t i = 0; i < bytes / sizeof words[0]; i++)
        words[i] = mix(&state);
    if (file == NULL || fwrite(words, 1, bytes, file) != bytes || fclose(file) != 0)
        fail(path, "cannot be written");
}

static void put(aoticache_cache *cache, uint64_t number, const char *path)
{
    aoticache_error error = {.message = ""};
    aoticache_request *request = NULL;
    aoticache_file file = {.name = "library.so", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    product.producer = "bench";
    if (aoticache_request_create("aten::abs", (aoticache_device){.type = 0, .index = -1}, &request, &error) !=
            AOTICACHE_OK ||
        aoticache_request_add_int(request, NULL, (int64_t)number, &error) != AOTICACHE_OK ||
        aoticache_cache_put(cache, request, &product, NULL, &error) != AOTICACHE_OK)
        fail("put", error.message);
    aoticache_request_free(request);
}

static aoticache_cache *fill(const char *name, uint64_t entries, size_t bytes)
{
    char directory[300], library[300];
    aoticache_error error = {.message = ""};
    aoticache_cache *cache = NULL;
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    snprintf(directory, sizeof directory, "%s/%s", root, name);
    snprintf(library, sizeof library, "%s/library.so", root);
    options.directory = directory;
    options.max_bytes = UINT64_MAX;
    if (aoticache_cache_open(&options, &cache, &error) != AOTICACHE_OK)
        fail("open", error.message);
    for (uint64_t i = 0; i < entries; i++) {
        write_library(library, i, bytes);
        put(cache, i, library);
    }
    return cache;
}

static double verify(aoticache_cache *cache, bool is_quick, uint32_t jobs, aoticache_verify_report *report)
{
    aoticache_verify_options options = AOTICACHE_VERIFY_OPTIONS_INIT;
    aoticache_error error = {.message = ""};
    options.jobs = jobs;
    options.quick = is_quick;
    uint64_t begun = aoticache_monotonic_ns();
    if (aoticache_cache_verify(cache, &options, NULL, NULL, NULL, report, &error) != AOTICACHE_OK)
        fail("verify", error.message);
    if (aoticache_verify_report_problems(report) != 0)
        fail("verify", "the store is not sound");
    return (double)(aoticache_monotonic_ns() - begun) / 1e9;
}

static double run_peer(const char *directory, uint32_t jobs)
{
    char command[600];
    snprintf(command, sizeof command, "find '%s/objects' -type f -print0 | xargs -0 -P %u -n 512 sha256sum >/dev/null",
             directory, jobs);
    uint64_t begun = aoticache_monotonic_ns();
    if (system(command) != 0)
        fail("sha256sum", "it failed");
    return (double)(aoticache_monotonic_ns() - begun) / 1e9;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static double median(double values[ROUNDS])
{
    qsort(values, ROUNDS, sizeof values[0], ascending);
    return values[ROUNDS / 2];
}

static void print(const char *name, const char *peer, double value, double peer_value, const char *unit)
{
    printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"peer\": \"%s\", \"peer_value\": %.6g, "
           "\"ratio\": %.4g, \"target\": null, \"met\": null}\n",
           name, value, unit, peer, peer_value, peer_value > 0 ? value / peer_value : 0);
    fflush(stdout);
}

static double peak_memory(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

static void measure(const char *what, uint64_t entries, size_t bytes, uint32_t jobs)
{
    char name[160], peer[80];
    double full[ROUNDS], quick[ROUNDS], peers[ROUNDS];
    aoticache_verify_report report;
    aoticache_cache *cache = fill(what, entries, bytes);
    double before = peak_memory();
    for (int round = 0; round < ROUNDS; round++) {
        full[round] = verify(cache, false, jobs, &report);
        peers[round] = run_peer(aoticache_cache_directory(cache), jobs);
        quick[round] = verify(cache, true, jobs, &report);
    }
    double megabytes = (double)report.bytes / 1e6, mine = median(full), theirs = median(peers);
    snprintf(peer, sizeof peer, "sha256sum, xargs -P %u", jobs);
    snprintf(name, sizeof name, "verify full, %s: %" PRIu64 " objects, %u jobs, MB/s", what, report.objects, jobs);
    print(name, peer, megabytes / mine, megabytes / theirs, "MB/s");
    snprintf(name, sizeof name, "verify full, %s: time", what);
    print(name, peer, mine, theirs, "s");
    snprintf(name, sizeof name, "verify quick, %s: time", what);
    print(name, peer, median(quick), theirs, "s");
    snprintf(name, sizeof name, "verify, %s: peak memory of the process", what);
    print(name, "before it", peak_memory(), before, "MiB");
    aoticache_cache_close(cache);
}

int main(void)
{
    cpu_set_t allowed;
    const char *parent = getenv("TMPDIR"), *count = getenv("AOTICACHE_BENCH_ENTRIES");
    bool is_quick = bench_is_quick();
    uint64_t entries = count != NULL ? strtoull(count, NULL, 10) : is_quick ? 500 : 5000;
    uint32_t jobs = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? (uint32_t)CPU_COUNT(&allowed) : 1;
    snprintf(root, sizeof root, "%s/aoticache-bench-XXXXXX",
             parent != NULL                  ? parent
             : access("/dev/shm", W_OK) == 0 ? "/dev/shm"
                                             : "/tmp");
    if (mkdtemp(root) == NULL)
        fail("a directory", "cannot be made");
    measure("large libraries", is_quick ? 32 : 256, 1 << 20, jobs);
    measure("small libraries", entries, 4096, jobs);
    if (is_quick)
        bench_left_out("stores of 256 large and 5000 small libraries: 32 and 500 are verified", "QUICK=1");
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command) == 0 ? 0 : 1;
}
