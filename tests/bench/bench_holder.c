/*
 * Measures the cost of a hit of the holder without the kernel (packing the metadata, hash, probe, compare), with 1 to
 * 100 000 cached kernels of one operator, for the same kernel repeatedly and for random ones. The baseline is the
 * minimum for one kernel: words on the stack, XXH3, memcmp. Both alternate in the same rounds; if valgrind is
 * installed, callgrind counts the instructions of both. Random hits are compared with two loads that depend on each
 * other. The creation of a holder for which the index has 10 000 entries is compared with SQLite reading the same rows.
 * Prints one JSON object per line.
 *
 * For callgrind: bench_holder --hits N does N hits, bench_holder --bare N does the baseline's work N times.
 */
#include "eager/holder/holder_hot.h"
#include "tests/bench/bench.h"

#include <ftw.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define ROUNDS 301
#define HITS 2000
#define RANDOM_ROUNDS 21
#define RANDOM_HITS \
    MAX_KERNELS /* a round uses all kernels, whatever their number: the processor's caches hold as many as they can */
#define MAX_KERNELS 100000
#define STORED 10000 /* entries of the operator for which a holder is created */

/*
 * A hit packs, hashes and compares as its baseline does. The epoch, the probe of the table and the count may take twice
 * that in addition.
 */
#define HOT_LIMIT 3
/* The same in instructions, which do not depend on other programs or the processor: 1.76 with GCC 12. */
#define INSTRUCTIONS_LIMIT 2.5
/* A hit reads one slot and one entry, however many kernels there are. */
#define MANY_LIMIT 1.15
/* A random hit waits for memory twice, for the slot and for the entry. Half of that is left for computing. */
#define RANDOM_LIMIT 1.5
/* In addition to reading its rows from SQLite, a holder decodes each request, packs it and adds it to its table. */
#define CREATION_LIMIT 3

static uint64_t sink; /* so that nothing measured is optimised away */

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_holder: %s: %s\n", what, why);
    exit(1);
}

/* ---- a call with two tensors of four dimensions, one for each number ---- */

typedef struct two_tensors {
    int64_t sizes[4], strides[4];
    aoticache_tensor_view views[2];
    aoticache_value arguments[2];
} two_tensors;

static inline void make_call(two_tensors *call, uint64_t number)
{
    call->sizes[0] = (int64_t)(number & 15) + 2;
    call->sizes[1] = (int64_t)(number >> 4 & 255) + 2;
    call->sizes[2] = (int64_t)(number >> 12) + 2;
    call->sizes[3] = 8;
    int64_t stride = 1;
    for (int i = 3; i >= 0; i--) {
        call->strides[i] = stride;
        stride *= call->sizes[i];
    }
    for (int i = 0; i < 2; i++) {
        call->views[i] = (aoticache_tensor_view){.dtype = AOTICACHE_DTYPE_FLOAT32,
                                                 .device = AOTICACHE_DEVICE_CPU,
                                                 .ndim = 4,
                                                 .sizes = call->sizes,
                                                 .strides = call->strides};
        call->arguments[i] = (aoticache_value){.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &call->views[i]};
    }
}

/* ---- a holder with many kernels; no library is loaded: the runner is never called ---- */

static aoticache_context *eager;
static char root[4096];

static aoticache_holder *make_holder(const char *schema)
{
    aoticache_holder_options options = AOTICACHE_HOLDER_OPTIONS_INIT;
    aoticache_holder *holder;
    aoticache_error error;
    options.schema = schema;
    options.device = AOTICACHE_DEVICE_CPU;
    if (aoticache_holder_create(eager, &options, &holder, &error) != AOTICACHE_OK)
        fail("cannot create a holder", error.message);
    return holder;
}

static void fill_table(aoticache_holder *holder, uint64_t kernels)
{
    static int runner; /* a probe returns only its address */
    for (uint64_t i = 0; i < kernels; i++) {
        two_tensors call;
        aoticache_packed packed;
        make_call(&call, i);
        if (!aoticache_pack(call.arguments, 2, &packed))
            fail("cannot pack", "a call");
        aoticache_table_entry *entry = aoticache_table_insert(&holder->table, &packed, NULL, NULL);
        if (entry == NULL)
            fail("out of memory", "table");
        entry->own.number = aoticache_call_counts_open();
        atomic_store(&entry->own.runner, (aoticache_runner *)(void *)&runner);
    }
}

/* ---- what is measured ---- */

static inline void hit(aoticache_holder *holder, const two_tensors *call)
{
    aoticache_packed packed;
    bool packs;
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    aoticache_runner *runner = aoticache_holder_probe(holder, call->arguments, &packed, &packs);
    if (runner == NULL)
        fail("a kernel", "is missing");
    aoticache_epoch_leave(slot);
    sink += (uintptr_t)runner;
}

static double time_hot(aoticache_holder *holder, uint64_t kernels)
{
    two_tensors call;
    make_call(&call, kernels / 2);
    uint64_t start = bench_processor_ns();
    for (int i = 0; i < HITS; i++) {
        __asm__ volatile("" : : "r"(&call) : "memory");
        hit(holder, &call);
    }
    return (double)(bench_processor_ns() - start) / HITS;
}

/* Measures random hits. Making the numbers and the calls is the caller's work, so its time is subtracted. */
static double time_random(aoticache_holder *holder, uint64_t kernels, bool with_hits)
{
    static uint64_t state = 88172645463325252U;
    uint64_t start = bench_processor_ns();
    for (int i = 0; i < RANDOM_HITS; i++) {
        two_tensors call;
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        make_call(&call, state % kernels);
        __asm__ volatile("" : : "r"(&call) : "memory");
        if (with_hits)
            hit(holder, &call);
    }
    return (double)(bench_processor_ns() - start) / RANDOM_HITS;
}

/* Returns the time of the baseline's work for one known kernel: its words are written, hashed and compared. */
static double time_bare(const two_tensors *call, long times)
{
    uint64_t known[20], known_hash = 0;
    uint64_t start = 0;
    for (long i = -1; i < times; i++) {
        uint64_t words[20], *at = words;
        __asm__ volatile("" : : "r"(call) : "memory");
        for (int t = 0; t < 2; t++) {
            const aoticache_tensor_view *view = &call->views[t];
            *at++ = (uint64_t)view->dtype << 32 | (uint64_t)view->ndim;
            *at++ = (uint64_t)view->device.type << 32 | (uint32_t)view->device.index;
            for (int d = 0; d < 4; d++) {
                *at++ = (uint64_t)view->sizes[d];
                *at++ = (uint64_t)view->strides[d];
            }
        }
        uint64_t hash = XXH3_64bits(words, sizeof words);
        if (i < 0) {
            memcpy(known, words, sizeof known);
            known_hash = hash;
            start = bench_processor_ns();
        } else if (hash == known_hash && memcmp(known, words, sizeof known) == 0) {
            sink++;
        }
    }
    return (double)(bench_processor_ns() - start) / (double)times;
}

/*
 * Measures two dependent loads from memory of the size of a table of MAX_KERNELS: a random hit needs at least these,
 * for slot and entry.
 */
#define LINES (18 * 1024 * 1024 / 64)

typedef struct memory_line {
    _Alignas(64) uint32_t next;
} memory_line;

static memory_line *make_lines(void)
{
    memory_line *lines = aligned_alloc((size_t)2 << 20, LINES * sizeof *lines);
    uint64_t state = 88172645463325252U;
    if (lines == NULL)
        fail("out of memory", "lines");
    madvise(lines, LINES * sizeof *lines, MADV_HUGEPAGE);
    for (uint32_t i = 0; i < LINES; i++)
        lines[i].next = i;
    for (uint32_t i = LINES - 1; i > 0; i--) { /* one cycle through all of them */
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        uint32_t other = (uint32_t)(state % i), next = lines[i].next;
        lines[i].next = lines[other].next;
        lines[other].next = next;
    }
    return lines;
}

static double time_two_loads(const memory_line *lines)
{
    static uint32_t at;
    uint64_t start = bench_processor_ns();
    for (int i = 0; i < 2 * HITS; i++)
        at = lines[at].next;
    sink += at;
    return (double)(bench_processor_ns() - start) / HITS;
}

/* ---- reporting ---- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int rounds)
{
    qsort(values, (size_t)rounds, sizeof *values, compare_doubles);
    return values[rounds / 2];
}

static void report(const char *name, double value, const char *unit, const char *peer, double peer_value, double target)
{
    double ratio = value / peer_value;
    printf("{\"name\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"peer\":\"%s\",\"peer_value\":%.4g,\"ratio\":%.3f,"
           "\"target\":%g,\"met\":%s}\n",
           name, value, unit, peer, peer_value, ratio, target, ratio <= target ? "true" : "false");
    fflush(stdout);
}

static void bench_hits(void)
{
    static const uint64_t kernels[] = {1, 100, 10000, MAX_KERNELS};
    static double hot[4][ROUNDS], random_hits[RANDOM_ROUNDS], bare[ROUNDS], loads[RANDOM_ROUNDS];
    memory_line *lines = make_lines();
    aoticache_holder *holders[4];
    two_tensors call;
    make_call(&call, 0);
    for (int i = 0; i < 4; i++) {
        holders[i] = make_holder("bench::two(Tensor a, Tensor b) -> Tensor");
        fill_table(holders[i], kernels[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 4; i++)
            hot[i][round] = time_hot(holders[i], kernels[i]);
        bare[round] = time_bare(&call, HITS);
    }
    for (int round = 0; round < RANDOM_ROUNDS; round++) {
        loads[round] = time_two_loads(lines);
        random_hits[round] = time_random(holders[3], kernels[3], true) - time_random(holders[3], kernels[3], false);
    }
    double one = median(hot[0], ROUNDS), bare_one = median(bare, ROUNDS);
    report("hit without the kernel, 2 tensors of rank 4, 1 kernel", one, "ns", "bare pack, XXH3 and compare", bare_one,
           HOT_LIMIT);
    for (int i = 1; i < 4; i++) {
        char name[64];
        double many = median(hot[i], ROUNDS);
        snprintf(name, sizeof name, "the same, %llu kernels", (unsigned long long)kernels[i]);
        report(name, many, "ns", "1 kernel", one, MANY_LIMIT);
    }
    double any = median(random_hits, RANDOM_ROUNDS), two_loads = median(loads, RANDOM_ROUNDS);
    report("random hits over 100000 kernels", any, "ns", "two dependent loads from as much memory", two_loads,
           RANDOM_LIMIT);
    free(lines);
    for (int i = 0; i < 4; i++)
        aoticache_holder_unref(holders[i]);
}

/* ---- instructions ---- */

static void only_hits(uint64_t count)
{
    aoticache_holder *holder = make_holder("bench::two(Tensor a, Tensor b) -> Tensor");
    two_tensors call;
    fill_table(holder, 100);
    make_call(&call, 50);
    for (uint64_t i = 0; i < count; i++) {
        __asm__ volatile("" : : "r"(&call) : "memory");
        hit(holder, &call);
    }
    aoticache_holder_unref(holder);
}

static void only_bare(uint64_t count)
{
    two_tensors call;
    make_call(&call, 50);
    time_bare(&call, (long)count);
}

static void bench_instructions_of_hit(void)
{
    double ours = bench_instructions("--hits"), bare = bench_instructions("--bare");
    if (ours > 0 && bare > 0)
        report("instructions of a hit without the kernel", ours, "", "bare pack, XXH3 and compare", bare,
               INSTRUCTIONS_LIMIT);
    else
        bench_left_out("instructions of a hit", "valgrind is missing, or cannot run bench_holder");
}

/* ---- creation ---- */

static void put_entries(aoticache_cache *cache, uint64_t count, const char *library)
{
    aoticache_file file = {.name = "kernel.so", .path = library};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    product.producer = "bench";
    for (uint64_t i = 0; i < count; i++) {
        int64_t sizes[2] = {(int64_t)i + 2, 8};
        aoticache_tensor_metadata metadata = {
            .dtype = AOTICACHE_DTYPE_FLOAT32, .device = AOTICACHE_DEVICE_CPU, .ndim = 2, .sizes = sizes};
        aoticache_request *request;
        aoticache_error error;
        if (aoticache_request_create("bench::stored", metadata.device, &request, &error) != AOTICACHE_OK ||
            aoticache_request_add_tensor(request, NULL, &metadata, &error) != AOTICACHE_OK ||
            aoticache_cache_put(cache, request, &product, NULL, &error) != AOTICACHE_OK)
            fail("cannot put", error.message);
        aoticache_request_free(request);
    }
}

/* Reads what a holder needs from its operator's rows, and does nothing else. Returns the number of rows. */
static int read_rows(const char *path)
{
    static uint8_t copy[1 << 16];
    static const char sql[] =
        "SELECT e.id, e.key, e.artifact, e.rank, e.created_ns, e.compile_ns, e.requirements, d.guard, "
        "d.encoding FROM details d CROSS JOIN entries e ON e.key = d.key AND e.id = d.id "
        "WHERE d.op = 'bench::stored' ORDER BY d.id";
    sqlite3 *db = NULL;
    sqlite3_stmt *rows = NULL;
    int count = 0;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(db, sql, -1, &rows, NULL) != SQLITE_OK)
        fail(path, db != NULL ? sqlite3_errmsg(db) : "cannot be opened");
    for (; sqlite3_step(rows) == SQLITE_ROW; count++) {
        for (int column = 0; column < sqlite3_column_count(rows); column++) {
            const void *bytes = sqlite3_column_blob(rows, column);
            const size_t size = (size_t)sqlite3_column_bytes(rows, column);
            if (bytes != NULL && size <= sizeof copy)
                memcpy(copy, bytes, size);
        }
        sink += copy[0];
    }
    sqlite3_finalize(rows);
    sqlite3_close(db);
    return count;
}

static void bench_creation(aoticache_cache *cache)
{
    enum { TIMES = 9 };
    double ours[TIMES], theirs[TIMES];
    char library[4200], index[4200];
    snprintf(library, sizeof library, "%s/kernel.so", root);
    snprintf(index, sizeof index, "%s/cache/index.sqlite3", root);
    FILE *file = fopen(library, "w");
    if (file == NULL || fputs("not loaded", file) < 0 || fclose(file) != 0)
        fail("cannot write", library);
    put_entries(cache, STORED, library);
    for (int round = 0; round < TIMES; round++) {
        uint64_t start = bench_processor_ns();
        aoticache_holder *holder = make_holder("bench::stored(Tensor a) -> Tensor");
        ours[round] = (double)(bench_processor_ns() - start) / 1e6;
        if (holder->table.used != STORED)
            fail("the holder", "does not know all entries");
        aoticache_holder_unref(holder);
        start = bench_processor_ns();
        if (read_rows(index) != STORED)
            fail("SQLite", "does not find all rows");
        theirs[round] = (double)(bench_processor_ns() - start) / 1e6;
    }
    report("creation of a holder, 10000 entries in the index", median(ours, TIMES), "ms",
           "SQLite reading the same rows", median(theirs, TIMES), CREATION_LIMIT);
}

/* ---- */

static int remove_one(const char *path, const struct stat *status, int flag, struct FTW *walk)
{
    (void)status, (void)flag, (void)walk;
    return remove(path);
}

int main(int argc, char **argv)
{
    char directory[4200];
    aoticache_cache_options cache_options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_context_options options = AOTICACHE_CONTEXT_OPTIONS_INIT;
    aoticache_error error;
    /* Use memory if possible: 10 000 durable puts are not part of the measurement. */
    snprintf(root, sizeof root, "%s/aoticache-bench-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(root) == NULL)
        fail("cannot make a directory", root);
    snprintf(directory, sizeof directory, "%s/cache", root);
    cache_options.directory = directory;
    if (aoticache_cache_open(&cache_options, &options.cache, &error) != AOTICACHE_OK ||
        aoticache_context_create(&options, &eager, &error) != AOTICACHE_OK)
        fail("cannot open a cache", error.message);
    if (argc == 3 && strcmp(argv[1], "--hits") == 0) {
        only_hits(strtoull(argv[2], NULL, 10));
    } else if (argc == 3 && strcmp(argv[1], "--bare") == 0) {
        only_bare(strtoull(argv[2], NULL, 10));
    } else {
        bench_hits();
        bench_instructions_of_hit();
        bench_creation(options.cache);
    }
    aoticache_context_free(eager);
    aoticache_cache_close(options.cache);
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return sink == 0;
}
