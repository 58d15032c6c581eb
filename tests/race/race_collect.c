/*
 * race_collect: collections under full load. For a number of seconds (the argument, 6 by default) some processes look
 * kernels up and read every byte of what they got, some put new ones into a cache with a budget, and some collect, all
 * concurrently and as much as they can. A kernel that a process holds must be whole and be found by its key from the
 * first second to the last; no byte may ever be wrong; a collection that is not alone returns LOCKED. At the end the
 * store verifies and nothing is left over. Prints the longest time that a lookup, a put and a collection took: figures,
 * not limits.
 */
#include <errno.h>
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
#include "cache/cache_internal.h"
#include "tests/helpers/cache_process.h"

#define READERS 3
#define PUTTERS 2
#define COLLECTORS 2
#define HELD 4
#define KEYS 200
#define BYTES 6000
#define MAX_ENTRIES 120

enum kind { LOOKUP, PUT, COLLECT, KINDS };
static const char *const kind_names[KINDS] = {"lookup", "put", "collection"};

struct shared {
    _Atomic bool is_over;
    _Atomic unsigned long done[KINDS], found, locked, evicted;
    _Atomic uint64_t longest_ns[KINDS];
};

static struct shared *shared;
static char root[512], directory[600];

static void note(enum kind kind, uint64_t begun_ns)
{
    uint64_t took = aoticache_monotonic_ns() - begun_ns;
    uint64_t longest = atomic_load(&shared->longest_ns[kind]);
    atomic_fetch_add(&shared->done[kind], 1);
    while (took > longest && !atomic_compare_exchange_weak(&shared->longest_ns[kind], &longest, took))
        ;
}

static aoticache_cache *open_cache(bool has_budget)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    options.directory = directory;
    options.max_bytes = UINT64_MAX;
    options.max_entries = has_budget ? MAX_ENTRIES : UINT64_MAX;
    return open_with(&options);
}

/* Makes the bytes of a library. Pairs of neighbours have the same library, so that objects are shared. */
static void make_bytes(unsigned number, char bytes[BYTES])
{
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (char)(i * 31 + number / 2 * 7 + 1);
}

static void check_bytes(unsigned number, const aoticache_artifact *artifact)
{
    char expected[BYTES], actual[BYTES + 1];
    make_bytes(number, expected);
    if (pread(aoticache_artifact_library_fd(artifact), actual, sizeof actual, 0) != BYTES ||
        memcmp(actual, expected, BYTES) != 0)
        fail("lookup", "a library has wrong bytes");
}

static bool look_up(aoticache_cache *cache, unsigned number, aoticache_artifact **ret_artifact)
{
    aoticache_error error = {.message = ""};
    aoticache_request *request = make_request((int)number);
    uint64_t begun = aoticache_monotonic_ns();
    aoticache_status status = aoticache_cache_lookup(cache, request, NULL, ret_artifact, &error);
    note(LOOKUP, begun);
    aoticache_request_free(request);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        fail("lookup", error.message);
    if (status != AOTICACHE_OK)
        return false;
    check_bytes(number, *ret_artifact);
    return true;
}

static void put(aoticache_cache *cache, unsigned number)
{
    char path[700], bytes[BYTES];
    aoticache_error error = {.message = ""};
    snprintf(path, sizeof path, "%s/made-%ld", root, (long)getpid());
    make_bytes(number, bytes);
    FILE *file = fopen(path, "w");
    if (file == NULL || fwrite(bytes, BYTES, 1, file) != 1 || fclose(file) != 0)
        fail("write", strerror(errno));
    aoticache_file made = {.name = "k.so", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &made;
    product.file_count = 1;
    product.in_manifest = number >= HELD && number % 3 == 0; /* such an artifact is never held */
    product.compile_ns = 1000000u * (1 + number % 50);
    aoticache_request *request = make_request((int)number);
    uint64_t begun = aoticache_monotonic_ns();
    if (aoticache_cache_put(cache, request, &product, NULL, &error) != AOTICACHE_OK)
        fail("put", error.message);
    note(PUT, begun);
    aoticache_request_free(request);
}

/* ---- the processes ---- */

static void read_all_the_time(aoticache_cache *cache)
{
    aoticache_artifact *kept[8] = {NULL};
    while (!atomic_load(&shared->is_over)) {
        aoticache_artifact *artifact = NULL;
        unsigned number = next_random(KEYS), slot = next_random(8);
        if (!look_up(cache, number, &artifact)) {
            if (number < HELD)
                fail("lookup", "an entry whose library a process holds is gone");
            continue;
        }
        atomic_fetch_add(&shared->found, 1);
        aoticache_artifact_unref(kept[slot]);
        kept[slot] = artifact;
    }
    for (int i = 0; i < 8; i++)
        aoticache_artifact_unref(kept[i]);
}

static void put_all_the_time(aoticache_cache *cache)
{
    while (!atomic_load(&shared->is_over))
        put(cache, HELD + next_random(KEYS - HELD));
}

static void collect_all_the_time(aoticache_cache *cache)
{
    while (!atomic_load(&shared->is_over)) {
        aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
        aoticache_collect_report report;
        aoticache_error error = {.message = ""};
        if (next_random(3) == 0)
            options.max_bytes = 1;
        options.max_entries = HELD + next_random(40) + 1;
        options.policy = next_random(2);
        options.scan = next_random(4) == 0;
        options.vacuum = next_random(4) == 0;
        /*
         * Files are removed in parallel with the transactions of the next round, if there is one; each waits for the
         * putters again.
         */
        cache->round = next_random(4) == 0 ? 1 + next_random(7) : 0;
        uint64_t begun = aoticache_monotonic_ns();
        aoticache_status status = aoticache_cache_collect(cache, &options, NULL, NULL, &report, &error);
        note(COLLECT, begun);
        if (status == AOTICACHE_LOCKED)
            atomic_fetch_add(&shared->locked, 1);
        else if (status != AOTICACHE_OK)
            fail("collect", error.message);
        else
            atomic_fetch_add(&shared->evicted, report.entries_removed);
        usleep(next_random(5000));
    }
}

static pid_t start(void (*work)(aoticache_cache *), bool has_budget, unsigned seed)
{
    pid_t child = fork();
    if (child < 0)
        fail("fork", strerror(errno));
    if (child > 0)
        return child;
    random_state = seed * 7919u + 17u;
    aoticache_cache *cache = open_cache(has_budget);
    work(cache);
    aoticache_cache_close(cache);
    _exit(0); /* the parent closes its own cache */
}

static void wait_for(const pid_t *children, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int result = 0;
        if (waitpid(children[i], &result, 0) != children[i] || !WIFEXITED(result) || WEXITSTATUS(result) != 0)
            fail("process", "one of them failed");
    }
}

static void check_end(void)
{
    aoticache_cache *cache = open_cache(false);
    aoticache_error error = {.message = ""};
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.scan = true;
    if (aoticache_cache_collect(cache, &options, NULL, NULL, NULL, &error) != AOTICACHE_OK)
        fail("end", error.message);
    verify_tidy(cache, "end");
    aoticache_cache_close(cache);
}

static void print_figures(void)
{
    for (int i = 0; i < KINDS; i++)
        printf("# %s: %lu, the longest took %.1f ms\n", kind_names[i], atomic_load(&shared->done[i]),
               (double)atomic_load(&shared->longest_ns[i]) / 1e6);
    printf("# %lu lookups found something, %lu entries were evicted, %lu collections were locked out\n",
           atomic_load(&shared->found), atomic_load(&shared->evicted), atomic_load(&shared->locked));
}

int main(int argc, char **argv)
{
    const char *parent = getenv("TMPDIR");
    unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 6;
    pid_t children[READERS + PUTTERS + COLLECTORS];
    aoticache_artifact *held[HELD] = {NULL};
    size_t count = 0;
    snprintf(root, sizeof root, "%.400s/aoticache-race-XXXXXX", parent != NULL ? parent : "/tmp");
    if (mkdtemp(root) == NULL)
        fail("mkdtemp", root);
    snprintf(directory, sizeof directory, "%s/cache", root);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        fail("mmap", strerror(errno));
    aoticache_cache *cache = open_cache(false);
    for (unsigned i = 0; i < HELD; i++) {
        put(cache, i);
        if (!look_up(cache, i, &held[i]))
            fail("begin", "what was put is not there");
    }
    for (unsigned i = 0; i < READERS; i++)
        children[count] = start(read_all_the_time, false, (unsigned)count), count++;
    for (unsigned i = 0; i < PUTTERS; i++)
        children[count] = start(put_all_the_time, true, (unsigned)count), count++;
    for (unsigned i = 0; i < COLLECTORS; i++)
        children[count] = start(collect_all_the_time, false, (unsigned)count), count++;
    sleep(seconds);
    /* On a slow disk few puts happen in that time; without an eviction nothing would be tested. */
    for (unsigned more = 0; more < 90 && (atomic_load(&shared->evicted) == 0 || atomic_load(&shared->found) == 0);
         more++)
        sleep(1);
    atomic_store(&shared->is_over, true);
    wait_for(children, count);
    for (unsigned i = 0; i < HELD; i++) {
        check_bytes(i, held[i]);
        aoticache_artifact_unref(held[i]);
    }
    aoticache_cache_close(cache);
    check_end();
    print_figures();
    if (atomic_load(&shared->evicted) == 0 || atomic_load(&shared->found) == 0)
        fail("load", "nothing was evicted, or nothing was found: this has shown nothing");
    remove_directory(root);
    printf("ok - readers, putters and collectors: what is held is whole\n");
    return 0;
}
