/*
 * race: eight processes on one cache directory, for a number of seconds (the argument, 10 by default), each doing
 * random operations of programs: get or compile, look up and compare every byte, put, remove, collect, open and close.
 *
 * Keys are of three kinds: stable ones are never removed, volatile ones are, and held ones are stable ones whose artifacts
 * the parent holds all the time. In the first half collections have no limits, so a stable entry that was ever stored
 * must be found by every process; in the second half they remove what they can, and only held ones must be found. No
 * byte may ever be wrong, two compiles of one key may never run concurrently, and a collection at the end leaves no
 * leftovers.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "tests/helpers/cache_process.h"

#define PROCESSES 8
#define KEYS 24
#define FIRST_STABLE 4 /* 0..3 are held */
#define FIRST_VOLATILE 16
#define VARIANTS 3
#define MAX_BYTES 30000

enum kind { GET, LOOKUP, PUT, REMOVE, COLLECT, REOPEN, KINDS };
static const char *const kind_names[KINDS] = {"get_or_compile", "lookup", "put", "remove", "collect", "reopen"};

/* In memory that all processes share. */
struct shared {
    _Atomic bool has_stored[KEYS]; /* a put or a compile of it has returned OK */
    _Atomic bool is_evicting;      /* the second half */
    _Atomic unsigned long done[KINDS];
    _Atomic unsigned long hits, compiles, evicted, waits;
};

static struct shared *shared;
static char root[512];
static char directory[600];

static bool is_held(int key)
{
    return key < FIRST_STABLE;
}

/* ---- libraries: bytes that follow from key and variant ---- */

static size_t make_bytes(int key, int variant, uint8_t *ret_bytes)
{
    size_t size = 2 + (size_t)((key * 7919 + variant * 104729) % (MAX_BYTES - 2));
    ret_bytes[0] = (uint8_t)key;
    ret_bytes[1] = (uint8_t)variant;
    for (size_t i = 2; i < size; i++)
        ret_bytes[i] = (uint8_t)(i * 31 + (size_t)key * 17 + (size_t)variant);
    return size;
}

static void check_bytes(int key, const aoticache_artifact *artifact)
{
    uint8_t expected[MAX_BYTES], actual[MAX_BYTES + 1];
    char detail[100];
    ssize_t got = pread(aoticache_artifact_library_fd(artifact), actual, sizeof actual, 0);
    snprintf(detail, sizeof detail, "key %d: %zd bytes", key, got);
    if (got < 2 || actual[0] != key || actual[1] >= VARIANTS)
        fail("wrong bytes", detail);
    size_t size = make_bytes(key, actual[1], expected);
    if ((size_t)got != size || memcmp(actual, expected, size) != 0)
        fail("wrong bytes", detail);
}

static void write_library(const char *path, int key, int variant)
{
    uint8_t bytes[MAX_BYTES];
    size_t size = make_bytes(key, variant, bytes);
    FILE *file = fopen(path, "w");
    if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0)
        fail("write", path);
}

/* ---- the operations ---- */

/* Returns whether a lookup that begins now must find the entry. */
static bool must_be_found(int key)
{
    if (is_held(key))
        return true;
    return key < FIRST_VOLATILE && atomic_load(&shared->has_stored[key]) && !atomic_load(&shared->is_evicting);
}

static aoticache_status compile(void *user, const aoticache_request *request, const char *target,
                                aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    int key = *(int *)user;
    char marker[700], path[800];
    (void)request, (void)ret_error;
    snprintf(marker, sizeof marker, "%s/compiling-%d", root, key);
    int fd = open(marker, O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (fd < 0)
        fail("two compiles of one key at once", marker);
    close(fd);
    usleep(next_random(3000));
    snprintf(path, sizeof path, "%s/kernel.so", target);
    write_library(path, key, (int)next_random(VARIANTS));
    aoticache_file file = {.name = "kernel.so", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    product.in_manifest = !is_held(key) && key % 2 == 0; /* such an artifact is never held */
    if (unlink(marker) != 0)
        fail("marker", marker);
    atomic_fetch_add(&shared->compiles, 1);
    return deliver(deliver_user, &product);
}

static void do_get(aoticache_cache *cache, int key)
{
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    bool had_to = must_be_found(key);
    aoticache_request *request = make_request(key);
    if (aoticache_cache_get_or_compile(cache, request, NULL, compile, &key, &artifact, &error) != AOTICACHE_OK)
        fail("get_or_compile", error.message);
    aoticache_request_free(request);
    check_bytes(key, artifact);
    if (!aoticache_artifact_get_info(artifact)->is_stored)
        fail("get_or_compile", "not stored");
    if (had_to && aoticache_artifact_get_info(artifact)->source == AOTICACHE_SOURCE_COMPILED &&
        !atomic_load(&shared->is_evicting))
        fail("lost", "an entry that nobody removed was compiled again");
    if (aoticache_artifact_get_info(artifact)->source == AOTICACHE_SOURCE_WAITED)
        atomic_fetch_add(&shared->waits, 1);
    atomic_store(&shared->has_stored[key], true);
    aoticache_artifact_unref(artifact);
}

static void do_lookup(aoticache_cache *cache, int key)
{
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    char detail[64];
    bool had_to = must_be_found(key);
    aoticache_request *request = make_request(key);
    aoticache_status status = aoticache_cache_lookup(cache, request, NULL, &artifact, &error);
    aoticache_request_free(request);
    snprintf(detail, sizeof detail, "key %d", key);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        fail("lookup", error.message);
    if (status == AOTICACHE_NOT_FOUND && had_to && (is_held(key) || !atomic_load(&shared->is_evicting)))
        fail("an entry that nobody removed is lost", detail);
    if (status != AOTICACHE_OK)
        return;
    atomic_fetch_add(&shared->hits, 1);
    aoticache_artifact_close_files(next_random(2) == 0 ? NULL : artifact);
    usleep(next_random(500));
    if (aoticache_artifact_library_fd(artifact) >= 0)
        check_bytes(key, artifact);
    aoticache_artifact_unref(artifact);
}

static void put(aoticache_cache *cache, int key, aoticache_artifact **ret_artifact)
{
    char path[700];
    aoticache_error error = {.message = ""};
    aoticache_request *request = make_request(key);
    snprintf(path, sizeof path, "%s/made-%ld.so", root, (long)getpid());
    write_library(path, key, (int)next_random(VARIANTS));
    aoticache_file file = {.name = "kernel.so", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    product.in_manifest = !is_held(key) && key % 2 == 0; /* such an artifact is never held */
    if (aoticache_cache_put(cache, request, &product, ret_artifact, &error) != AOTICACHE_OK)
        fail("put", error.message);
    aoticache_request_free(request);
    unlink(path);
    atomic_store(&shared->has_stored[key], true);
}

static void do_remove(aoticache_cache *cache, int key)
{
    aoticache_key digest;
    aoticache_error error = {.message = ""};
    aoticache_request *request = make_request(key);
    aoticache_request_key(request, &digest, NULL);
    aoticache_request_free(request);
    aoticache_status status = aoticache_cache_remove(cache, &digest, &error);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        fail("remove", error.message);
}

static void do_collect(aoticache_cache *cache)
{
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    aoticache_collect_report report;
    aoticache_error error = {.message = ""};
    if (atomic_load(&shared->is_evicting))
        options.max_bytes = next_random(10) * MAX_BYTES;
    aoticache_status status = aoticache_cache_collect(cache, &options, NULL, NULL, &report, &error);
    if (status == AOTICACHE_LOCKED)
        return;
    if (status != AOTICACHE_OK)
        fail("collect", error.message);
    atomic_fetch_add(&shared->evicted, report.entries_removed);
}

static enum kind choose(void)
{
    static const unsigned char weights[KINDS] = {30, 45, 12, 6, 4, 3};
    unsigned drawn = next_random(100);
    enum kind kind = GET;
    while (drawn >= weights[kind])
        drawn -= weights[kind++];
    return kind;
}

static void work(int number, uint64_t end_ns)
{
    random_state = (unsigned)number * 7919u + 1;
    aoticache_cache *cache = open_in(directory);
    while (aoticache_monotonic_ns() < end_ns) {
        enum kind kind = choose();
        int key = (int)next_random(KEYS);
        if (kind == REMOVE)
            key = FIRST_VOLATILE + (int)next_random(KEYS - FIRST_VOLATILE);
        if (kind == PUT && is_held(key)) /* replacing it would end the parent's hold on the entry */
            key += FIRST_STABLE;
        switch (kind) {
        case GET:
            do_get(cache, key);
            break;
        case LOOKUP:
            do_lookup(cache, key);
            break;
        case PUT:
            put(cache, key, NULL);
            break;
        case REMOVE:
            do_remove(cache, key);
            break;
        case COLLECT:
            do_collect(cache);
            break;
        case REOPEN:
            aoticache_cache_close(cache);
            cache = open_in(directory);
            break;
        case KINDS:
            break;
        }
        atomic_fetch_add(&shared->done[kind], 1);
    }
    aoticache_cache_close(cache);
}

/* ---- the parent ---- */

static int count_names(const char *subdirectory)
{
    char path[800];
    int count = 0;
    snprintf(path, sizeof path, "%s/%s", directory, subdirectory);
    DIR *listing = opendir(path);
    if (listing == NULL)
        return 0;
    while (readdir(listing) != NULL)
        count++;
    closedir(listing);
    return count - 2;
}

static void check_end(aoticache_cache *cache)
{
    aoticache_error error = {.message = ""};
    char detail[200];
    if (aoticache_cache_collect(cache, NULL, NULL, NULL, NULL, &error) != AOTICACHE_OK)
        fail("the end", error.message);
    verify_tidy(cache, "the end");
    snprintf(detail, sizeof detail, "tmp %d, leases %d, artifacts %d, quarantine %d", count_names("tmp"),
             count_names("leases"), count_names("artifacts"), count_names("quarantine"));
    if (count_names("tmp") + count_names("leases") + count_names("artifacts") + count_names("quarantine") != 0)
        fail("leftovers", detail);
}

static void print_summary(void)
{
    printf("ok - %d processes:", PROCESSES);
    for (int i = 0; i < KINDS; i++)
        printf(" %lu %s%s", shared->done[i], kind_names[i], i + 1 < KINDS ? "," : "\n");
    printf("ok - no wrong byte in %lu hits\n", shared->hits);
    printf("ok - no entry lost that nobody removed; %lu were evicted, none that was held\n", shared->evicted);
    printf("ok - %lu compiles, never two of one key at once; %lu requests were answered by another's\n",
           shared->compiles, shared->waits);
    printf("ok - sound in the end, no leftovers\n");
}

int main(int argc, char **argv)
{
    const char *parent = getenv("TMPDIR");
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 10;
    pid_t children[PROCESSES];
    aoticache_artifact *held[FIRST_STABLE] = {NULL};
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(root, sizeof root, "%.400s/aoticache-race-XXXXXX", parent != NULL ? parent : "/tmp");
    if (shared == MAP_FAILED || mkdtemp(root) == NULL || seconds <= 0)
        fail("set-up", root);
    snprintf(directory, sizeof directory, "%s/cache", root);
    aoticache_cache *cache = open_in(directory);
    for (int i = 0; i < FIRST_STABLE; i++)
        put(cache, i, &held[i]);
    uint64_t begun = aoticache_monotonic_ns();
    uint64_t end = begun + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            work(i, end);
            _exit(0);
        }
    }
    usleep((useconds_t)(seconds * 1e6 / 2));
    atomic_store(&shared->is_evicting, true);
    bool all_well = true;
    for (int i = 0; i < PROCESSES; i++) {
        int result = 0;
        waitpid(children[i], &result, 0);
        all_well = all_well && WIFEXITED(result) && WEXITSTATUS(result) == 0;
    }
    if (!all_well)
        fail("race", "a process failed");
    for (int i = 0; i < FIRST_STABLE; i++) {
        do_lookup(cache, i);
        aoticache_artifact_unref(held[i]);
    }
    check_end(cache);
    print_summary();
    aoticache_cache_close(cache);
    remove_directory(root);
    return 0;
}
