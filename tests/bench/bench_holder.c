/*
 * What a hit of the holder costs without the kernel: packing the metadata, the hash, the probe, the compare, with 1 to
 * 100 000 cached kernels of one operator, the same one again and random ones; beside the least that can be done for one
 * kernel (words on the stack, XXH3, memcmp), measured in the same rounds. Instructions are counted by callgrind where it is
 * there. Then what it takes to create a holder for which the index has 10 000 entries. One JSON object per line.
 *
 * bench_holder --hits N: N hits, for callgrind.
 */
#include "eager/holder/hot.h"

#include <ftw.h>
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
    MAX_KERNELS /* a round goes over as many kernels as there are: the caches hold what they can of them */
#define HOT_LIMIT_NS 35
#define RANDOM_LIMIT_NS 150
#define MAX_KERNELS 100000

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

/* ---- a holder with so many kernels; no library is loaded: the runner is never entered ---- */

static aoticache_context *eager;
static char folder[4096];

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
    static int runner; /* its address is all that a probe gives back */
    for (uint64_t i = 0; i < kernels; i++) {
        two_tensors call;
        aoticache_packed packed;
        make_call(&call, i);
        if (!aoticache_pack(call.arguments, 2, &packed))
            fail("cannot pack", "a call");
        aoticache_table_entry *entry = aoticache_table_insert(&holder->table, &packed, NULL, NULL);
        if (entry == NULL)
            fail("out of memory", "table");
        entry->own.number = aoticache_uses_open();
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
    uint64_t start = aoticache_monotonic_ns();
    for (int i = 0; i < HITS; i++) {
        __asm__ volatile("" : : "r"(&call) : "memory");
        hit(holder, &call);
    }
    return (double)(aoticache_monotonic_ns() - start) / HITS;
}

/* The numbers and the calls they make are part of a caller's work: their time is taken off. */
static double time_random(aoticache_holder *holder, uint64_t kernels, bool with_hits)
{
    static uint64_t state = 88172645463325252U;
    uint64_t start = aoticache_monotonic_ns();
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
    return (double)(aoticache_monotonic_ns() - start) / RANDOM_HITS;
}

/* One kernel, known: its words are written, hashed and compared. */
static double time_bare(const two_tensors *call)
{
    uint64_t known[20], known_hash = 0;
    uint64_t start = 0;
    for (int i = -1; i < HITS; i++) {
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
            start = aoticache_monotonic_ns();
        } else if (hash == known_hash && memcmp(known, words, sizeof known) == 0) {
            sink++;
        }
    }
    return (double)(aoticache_monotonic_ns() - start) / HITS;
}

/*
 * What two loads cost that depend on each other, from memory of the size of the table of MAX_KERNELS: a random hit needs
 * these, slot and entry, however little it computes.
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
    for (uint32_t i = LINES - 1; i > 0; i--) { /* one ring through all of them */
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
    uint64_t start = aoticache_monotonic_ns();
    for (int i = 0; i < 2 * HITS; i++)
        at = lines[at].next;
    sink += at;
    return (double)(aoticache_monotonic_ns() - start) / HITS;
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

static void report(const char *name, double value, const char *unit, const char *peer, double peer_value, double target,
                   bool met)
{
    printf("{\"name\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"peer\":\"%s\",\"peer_value\":%.4g,\"ratio\":%.3f,"
           "\"target\":%g,\"target_is\":\"ratio\",\"met\":%s}\n",
           name, value, unit, peer, peer_value, value / peer_value, target, met ? "true" : "false");
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
        bare[round] = time_bare(&call);
    }
    for (int round = 0; round < RANDOM_ROUNDS; round++) {
        loads[round] = time_two_loads(lines);
        random_hits[round] = time_random(holders[3], kernels[3], true) - time_random(holders[3], kernels[3], false);
    }
    double one = median(hot[0], ROUNDS), bare_one = median(bare, ROUNDS);
    report("hit without the kernel, 2 tensors of rank 4, 1 kernel", one, "ns", "the limit", HOT_LIMIT_NS, 1,
           one <= HOT_LIMIT_NS);
    report("the same", one, "ns", "bare pack, XXH3 and compare", bare_one, 3, one <= 3 * bare_one);
    for (int i = 1; i < 4; i++) {
        char name[64];
        double many = median(hot[i], ROUNDS);
        snprintf(name, sizeof name, "the same, %llu kernels", (unsigned long long)kernels[i]);
        report(name, many, "ns", "1 kernel", one, 1.15, many <= 1.15 * one);
    }
    double any = median(random_hits, RANDOM_ROUNDS), two_loads = median(loads, RANDOM_ROUNDS);
    report("random hits over 100000 kernels", any, "ns", "the limit", RANDOM_LIMIT_NS, 1, any <= RANDOM_LIMIT_NS);
    report("the same", any, "ns", "two dependent loads from as much memory", two_loads, 1.5, any <= 1.5 * two_loads);
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

/* 0 where it cannot be had. */
static double instructions(const char *self, uint64_t hits)
{
    char command[8192], line[512];
    double found = 0;
    snprintf(command, sizeof command, "valgrind --tool=callgrind --callgrind-out-file=/dev/null '%s' --hits %llu 2>&1",
             self, (unsigned long long)hits);
    FILE *output = popen(command, "r");
    while (output != NULL && fgets(line, sizeof line, output) != NULL) {
        const char *at = strstr(line, "Collected :");
        if (at != NULL)
            found = strtod(at + strlen("Collected :"), NULL);
    }
    if (output != NULL)
        pclose(output);
    return found;
}

static void bench_instructions(void)
{
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return;
    self[length] = '\0';
    double few = instructions(self, 1000), many = instructions(self, 101000);
    if (few > 0 && many > few)
        printf("{\"name\":\"instructions of a hit without the kernel\",\"value\":%.0f,\"unit\":\"\",\"peer\":\"-\","
               "\"peer_value\":0,\"ratio\":0,\"target\":null,\"target_is\":\"ratio\",\"met\":null}\n",
               (many - few) / 100000);
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

static void bench_creation(aoticache_cache *cache)
{
    char library[4200];
    snprintf(library, sizeof library, "%s/kernel.so", folder);
    FILE *file = fopen(library, "w");
    if (file == NULL || fputs("not loaded", file) < 0 || fclose(file) != 0)
        fail("cannot write", library);
    put_entries(cache, 10000, library);
    double best = 1e18;
    for (int round = 0; round < 5; round++) {
        uint64_t start = aoticache_monotonic_ns();
        aoticache_holder *holder = make_holder("bench::stored(Tensor a) -> Tensor");
        double taken = (double)(aoticache_monotonic_ns() - start) / 1e6;
        if (holder->table.used != 10000)
            fail("the holder", "does not know all entries");
        best = taken < best ? taken : best;
        aoticache_holder_unref(holder);
    }
    report("creation of a holder, 10000 entries in the index", best, "ms", "the limit", 100, 1, best <= 100);
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
    /* In memory where that is possible: 10 000 durable puts are not what is measured. */
    snprintf(folder, sizeof folder, "%s/aoticache-bench-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(folder) == NULL)
        fail("cannot make a folder", folder);
    snprintf(directory, sizeof directory, "%s/cache", folder);
    cache_options.directory = directory;
    if (aoticache_cache_open(&cache_options, &options.cache, &error) != AOTICACHE_OK ||
        aoticache_context_create(&options, &eager, &error) != AOTICACHE_OK)
        fail("cannot open a cache", error.message);
    if (argc == 3 && strcmp(argv[1], "--hits") == 0) {
        only_hits(strtoull(argv[2], NULL, 10));
    } else {
        bench_hits();
        bench_instructions();
        bench_creation(options.cache);
    }
    aoticache_context_free(eager);
    aoticache_cache_close(options.cache);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return sink == 0;
}
