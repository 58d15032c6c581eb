/*
 * Benchmarks of moving a cache: export, import and merge of kernels, compared with tar, cp and sha256sum on the same
 * files in the same run, alternating. The files are pieces of this program's own code, each made unique, so that they
 * compress as libraries do. Both sides make written files durable: ours by itself, theirs with sync -f.
 *
 * Prints one JSON object per line (scripts/bench collects them). BENCH_TRANSFER_ENTRIES (256), BENCH_TRANSFER_BYTES
 * (360000), BENCH_TRANSFER_ROUNDS (3). BENCH_QUICK=1 moves 64 kernels.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache/cache.h"
#include "cache/transfer/transfer.h"
#include "tests/bench/bench.h"
#include "tests/bench/libraries.h"

static size_t rounds = 3;

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "bench_transfer: %s: %s\n", what, detail);
    exit(1);
}

/* ---- a cache to move ---- */

static aoticache_cache *open_cache(const char *name)
{
    char path[600];
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    snprintf(path, sizeof path, "%s/%s", root, name);
    options.directory = path;
    options.max_bytes = UINT64_MAX;
    if (aoticache_cache_open(&options, &cache, &error) != AOTICACHE_OK)
        fail("open", error.message);
    return cache;
}

static void put(aoticache_cache *cache, size_t number)
{
    char path[600];
    aoticache_request *request = NULL;
    aoticache_error error = {.message = ""};
    snprintf(path, sizeof path, "%s/made.so", root);
    write_library(path, number);
    aoticache_file file = {.name = "library.so", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    if (aoticache_request_create("aten::abs", (aoticache_device){.type = 0, .index = -1}, &request, &error) !=
            AOTICACHE_OK ||
        aoticache_request_add_int(request, NULL, (int64_t)number, &error) != AOTICACHE_OK ||
        aoticache_cache_put(cache, request, &product, NULL, &error) != AOTICACHE_OK)
        fail("put", error.message);
    aoticache_request_free(request);
}

/* ---- measurements in seconds ---- */

static double export_once(void)
{
    char path[600];
    aoticache_error error = {.message = ""};
    snprintf(path, sizeof path, "%s/ours.tar.zst", root);
    aoticache_cache *cache = open_cache("source");
    uint64_t begun = aoticache_monotonic_ns();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    aoticache_status status = aoticache_cache_export(cache, fd, NULL, NULL, &error);
    if (status == AOTICACHE_UNSUPPORTED) {
        bench_left_out("export, import and merge", "libarchive is not installed");
        exit(0);
    }
    if (status != AOTICACHE_OK || fsync(fd) != 0)
        fail("export", error.message);
    double seconds = (double)(aoticache_monotonic_ns() - begun) * 1e-9;
    close(fd);
    aoticache_cache_close(cache);
    return seconds;
}

static double import_once(void)
{
    char path[600];
    aoticache_error error = {.message = ""};
    aoticache_transfer_report report;
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    options.allow_unsigned = true;
    remove_directory("target");
    snprintf(path, sizeof path, "%s/ours.tar.zst", root);
    uint64_t begun = aoticache_monotonic_ns();
    aoticache_cache *cache = open_cache("target");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (aoticache_cache_import(cache, fd, &options, &report, &error) != AOTICACHE_OK || report.entries != entries)
        fail("import", error.message);
    double seconds = (double)(aoticache_monotonic_ns() - begun) * 1e-9;
    close(fd);
    aoticache_cache_close(cache);
    return seconds;
}

static double merge_once(void)
{
    aoticache_error error = {.message = ""};
    aoticache_transfer_report report;
    remove_directory("target");
    uint64_t begun = aoticache_monotonic_ns();
    aoticache_cache *target = open_cache("target"), *source = open_cache("source");
    if (aoticache_cache_merge(target, source, NULL, &report, &error) != AOTICACHE_OK || report.entries != entries)
        fail("merge", error.message);
    double seconds = (double)(aoticache_monotonic_ns() - begun) * 1e-9;
    aoticache_cache_close(target);
    aoticache_cache_close(source);
    return seconds;
}

/* Runs a script with the benchmark's root as $0 and as working directory. */
static double shell_once(const char *script)
{
    int result = 0;
    remove_directory("theirs");
    uint64_t begun = aoticache_monotonic_ns();
    pid_t child = fork();
    if (child == 0) {
        if (chdir(root) == 0)
            execl("/bin/sh", "sh", "-c", script, (char *)NULL);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &result, 0) != child || !WIFEXITED(result) || WEXITSTATUS(result) != 0)
        fail(script, "it failed");
    return (double)(aoticache_monotonic_ns() - begun) * 1e-9;
}

/* ---- comparing ---- */

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values)
{
    qsort(values, rounds, sizeof *values, by_value);
    return values[rounds / 2];
}

/*
 * Compares. target: the largest ratio of the times; 0: none. 1.5 allows half of the time of tar and sha256sum for the
 * additional work: records, the index, a fixed order. 2 allows twice the time of tar alone, which verifies nothing.
 */
static void compare(const char *name, double (*ours)(void), const char *peer, const char *script, double target)
{
    double our_times[64], their_times[64];
    for (size_t i = 0; i < rounds; i++) {
        our_times[i] = ours();
        their_times[i] = shell_once(script);
    }
    double megabytes = (double)entries * (double)bytes * 1e-6;
    double value = median(our_times), peer_value = median(their_times);
    printf("{\"name\": \"%s, %zu kernels of %zu kB\", \"value\": %.4g, \"unit\": \"MB/s\", \"peer\": \"%s\", "
           "\"peer_value\": %.4g, \"ratio\": %.4f, ",
           name, entries, bytes / 1000, megabytes / value, peer, megabytes / peer_value, value / peer_value);
    if (target > 0)
        printf("\"target\": %g, \"met\": %s}\n", target, value / peer_value <= target ? "true" : "false");
    else
        printf("\"target\": null, \"met\": null}\n");
    fflush(stdout);
}

int main(void)
{
    const char *parent = getenv("TMPDIR");
    entries = setting("BENCH_TRANSFER_ENTRIES", bench_is_quick() ? 64 : entries);
    bytes = setting("BENCH_TRANSFER_BYTES", bytes);
    rounds = setting("BENCH_TRANSFER_ROUNDS", rounds);
    rounds = rounds < 1 ? 1 : rounds > 64 ? 64 : rounds;
    snprintf(root, sizeof root, "%s/aoticache-bench-XXXXXX", parent != NULL ? parent : "/tmp");
    if (mkdtemp(root) == NULL)
        fail("mkdtemp", strerror(errno));
    read_code();
    aoticache_cache *cache = open_cache("source");
    for (size_t i = 0; i < entries; i++)
        put(cache, i);
    aoticache_cache_close(cache);
    export_once();
    shell_once("tar --zstd -cf theirs.tar.zst source/objects");
    if (bench_is_quick())
        bench_left_out("export, import and merge of 256 kernels: 64 are moved", "QUICK=1");
    compare("export", export_once, "tar --zstd -c", "tar --zstd -cf theirs.tar.zst source/objects && sync -f .", 1.5);
    compare("import", import_once, "tar --zstd -x",
            "mkdir theirs && tar --zstd -xf theirs.tar.zst -C theirs && sync -f .", 2.0);
    compare("import", import_once, "tar --zstd -x and sha256sum",
            "mkdir theirs && tar --zstd -xf theirs.tar.zst -C theirs && sync -f . && "
            "find theirs -type f -print0 | xargs -0 sha256sum >sums",
            1.5);
    compare("merge", merge_once, "cp -r and sha256sum",
            "cp -r source/objects theirs && sync -f . && find theirs -type f -print0 | xargs -0 sha256sum >sums", 1.5);
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}
