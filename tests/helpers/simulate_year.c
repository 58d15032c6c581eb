/*
 * Simulates a year of a cache in minutes: a generated trace over many keys runs through a real cache with a budget, and
 * through two models of the same capacity: plain LRU, and Belady's rule (the entry needed last is evicted), which no
 * policy can beat. After every put the size is checked: it must never be above the budget.
 *
 * The trace: a Zipf-like mix of all keys, and bursts: every "week" a project of neighbouring keys is requested
 * repeatedly for some days and then hardly ever.
 *
 * Arguments: keys, requests, share of all bytes that fit (0.2), a directory (made, removed). Prints one JSON object per
 * line, and exits with 1 if the size was ever above the budget, a lookup returned another artifact than was put, or
 * there were no hits.
 */
#include "cache/cache.h"
#include "cache/stats/statistics.h"

#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WEEKS = 52, BURST_KEYS_SHARE = 100, NEVER = INT32_MAX };

typedef struct simulation {
    uint32_t keys, requests;
    uint64_t budget;
    uint32_t *trace;
    uint32_t *next_use; /* of the same key, by position in the trace; or NEVER */
    uint64_t *bytes;    /* by key, as the cache counts them */
    char directory[4096], library[4200];
    aoticache_cache *cache;
    uint64_t largest, hits, puts, collections_seen;
    unsigned failures;
} simulation;

static void fail(simulation *sim, const char *what, const char *why)
{
    fprintf(stderr, "not ok - %s: %s\n", what, why);
    sim->failures++;
}

/* ---- the trace ---- */

static uint64_t random_state = 88172645463325252u;

static uint64_t random_number(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static double random_share(void)
{
    return (double)(random_number() >> 11) / 9007199254740992.0;
}

/* Draws a rank; 0 is the most frequent: the inverse of the continuous distribution with density 1 / rank^0.9. */
static uint32_t zipf(uint32_t count)
{
    double top = pow((double)count + 1, 0.1);
    double rank = pow(1 + random_share() * (top - 1), 10) - 1;
    return rank >= count ? count - 1 : (uint32_t)rank;
}

/* Returns the key of a rank: a fixed shuffle, so that frequent keys are not neighbours. */
static uint32_t key_of_rank(const simulation *sim, uint32_t rank)
{
    return (uint32_t)(((uint64_t)rank * 2654435761u) % sim->keys);
}

static void make_trace(simulation *sim)
{
    uint32_t *last = malloc(sim->keys * sizeof *last);
    uint32_t burst_size = sim->keys / BURST_KEYS_SHARE + 1, burst = 0;
    for (uint32_t i = 0; i < sim->requests; i++) {
        uint32_t in_week = (uint32_t)((uint64_t)i * WEEKS % sim->requests) / WEEKS;
        uint32_t week_length = sim->requests / WEEKS;
        if (i % (week_length > 0 ? week_length : 1) == 0)
            burst = (uint32_t)(random_number() % sim->keys);
        bool is_burst = in_week < week_length / 2 && random_share() < 0.4;
        sim->trace[i] = is_burst ? (burst + (uint32_t)(random_number() % burst_size)) % sim->keys
                                 : key_of_rank(sim, zipf(sim->keys));
    }
    for (uint32_t k = 0; k < sim->keys; k++)
        last[k] = NEVER;
    for (uint32_t i = sim->requests; i-- > 0;) {
        sim->next_use[i] = last[sim->trace[i]];
        last[sim->trace[i]] = i;
    }
    free(last);
}

/* ---- the real cache ---- */

static aoticache_request *request_of(uint32_t key)
{
    char op[64];
    aoticache_error error;
    aoticache_request *request = NULL;
    snprintf(op, sizeof op, "year::op%u", key % 97);
    if (aoticache_request_create(op, AOTICACHE_DEVICE_CPU, &request, &error) != AOTICACHE_OK ||
        aoticache_request_add_int(request, NULL, key, &error) != AOTICACHE_OK) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return request;
}

/* Returns the size of a library in lines of 16 bytes. */
static uint32_t library_lines(uint32_t key)
{
    return 64 + (key * 2246822519u >> 23);
}

/* Writes a library of 1 to 9 KiB; all differ. */
static void write_library(const simulation *sim, uint32_t key)
{
    FILE *file = fopen(sim->library, "w");
    if (file == NULL)
        exit(1);
    for (uint32_t i = 0; i < library_lines(key); i++)
        fprintf(file, "%08x%07x\n", key, i);
    fclose(file);
}

static uint64_t store_bytes(simulation *sim)
{
    aoticache_statistics statistics;
    aoticache_error error;
    if (aoticache_cache_get_statistics(sim->cache, NULL, &statistics, &error) != AOTICACHE_OK) {
        fail(sim, "statistics", error.message);
        return 0;
    }
    return statistics.bytes;
}

static void put(simulation *sim, aoticache_request *request, uint32_t key)
{
    aoticache_error error;
    aoticache_file file = {.name = "kernel.so", .path = sim->library};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    write_library(sim, key);
    product.files = &file;
    product.file_count = 1;
    product.producer = "a year";
    product.compile_ns = 5000000000u;
    uint64_t before = store_bytes(sim);
    if (aoticache_cache_put(sim->cache, request, &product, NULL, &error) != AOTICACHE_OK)
        fail(sim, "a put", error.message);
    uint64_t after = store_bytes(sim);
    if (after > before)
        sim->bytes[key] = after - before;
    else
        sim->collections_seen++;
    if (after > sim->largest)
        sim->largest = after;
    if (after > sim->budget) {
        char why[128];
        snprintf(why, sizeof why, "%llu bytes after a put, the budget is %llu", (unsigned long long)after,
                 (unsigned long long)sim->budget);
        fail(sim, "the size", why);
    }
    sim->puts++;
}

static void run_cache(simulation *sim)
{
    for (uint32_t i = 0; i < sim->requests && sim->failures < 5; i++) {
        aoticache_request *request = request_of(sim->trace[i]);
        aoticache_artifact *artifact = NULL;
        aoticache_error error;
        aoticache_status status = aoticache_cache_lookup(sim->cache, request, NULL, &artifact, &error);
        if (status == AOTICACHE_OK)
            sim->hits++;
        else if (status == AOTICACHE_NOT_FOUND)
            put(sim, request, sim->trace[i]);
        else
            fail(sim, "a lookup", error.message);
        aoticache_artifact_unref(artifact);
        aoticache_request_free(request);
    }
}

/* ---- models: a heap of the cached keys, ordered by last or next use ---- */

typedef struct model {
    const simulation *sim;
    bool is_belady;
    uint32_t *when; /* by key: last use, or next use */
    bool *is_in;
    uint64_t used, hits;
    struct {
        uint32_t when, key;
    } *heap; /* may have stale items, which are skipped */
    size_t count, capacity;
} model;

/* Returns whether item a is evicted before item b. */
static bool goes_first(const model *m, size_t a, size_t b)
{
    return m->is_belady ? m->heap[a].when > m->heap[b].when : m->heap[a].when < m->heap[b].when;
}

static void swap_items(model *m, size_t a, size_t b)
{
    __typeof__(*m->heap) kept = m->heap[a];
    m->heap[a] = m->heap[b];
    m->heap[b] = kept;
}

static void push(model *m, uint32_t when, uint32_t key)
{
    if (m->count == m->capacity) {
        m->capacity = m->capacity * 2 + 64;
        m->heap = realloc(m->heap, m->capacity * sizeof *m->heap);
    }
    size_t place = m->count++;
    m->heap[place].when = when;
    m->heap[place].key = key;
    for (; place > 0 && goes_first(m, place, (place - 1) / 2); place = (place - 1) / 2)
        swap_items(m, place, (place - 1) / 2);
}

static void pop(model *m)
{
    m->heap[0] = m->heap[--m->count];
    for (size_t place = 0;;) {
        size_t child = place * 2 + 1;
        if (child >= m->count)
            return;
        if (child + 1 < m->count && goes_first(m, child + 1, child))
            child++;
        if (!goes_first(m, child, place))
            return;
        swap_items(m, child, place);
        place = child;
    }
}

static void make_room(model *m, uint64_t needed)
{
    while (m->used + needed > m->sim->budget && m->count > 0) {
        uint32_t key = m->heap[0].key;
        bool is_stale = !m->is_in[key] || m->when[key] != m->heap[0].when;
        pop(m);
        if (is_stale)
            continue;
        m->is_in[key] = false;
        m->used -= m->sim->bytes[key];
    }
}

static double run_model(const simulation *sim, bool is_belady)
{
    model m = {.sim = sim, .is_belady = is_belady};
    m.when = calloc(sim->keys, sizeof *m.when);
    m.is_in = calloc(sim->keys, sizeof *m.is_in);
    for (uint32_t i = 0; i < sim->requests; i++) {
        uint32_t key = sim->trace[i];
        if (m.is_in[key]) {
            m.hits++;
        } else {
            make_room(&m, sim->bytes[key]);
            m.is_in[key] = true;
            m.used += sim->bytes[key];
        }
        m.when[key] = is_belady ? sim->next_use[i] : i;
        push(&m, m.when[key], key);
    }
    free(m.when), free(m.is_in), free(m.heap);
    return (double)m.hits / sim->requests;
}

/* ---- */

static int remove_item(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)found, (void)kind, (void)walk;
    return remove(path);
}

static uint64_t number(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (*end != '\0' || value <= 0) {
        fprintf(stderr, "simulate_year: '%s' is no number above 0\n", text);
        exit(2);
    }
    return (uint64_t)value;
}

static void open_cache(simulation *sim)
{
    aoticache_error error;
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    char directory[4200];
    snprintf(directory, sizeof directory, "%s/cache", sim->directory);
    options.directory = directory;
    options.max_bytes = sim->budget;
    if (aoticache_cache_open(&options, &sim->cache, &error) != AOTICACHE_OK) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
}

static void report(const simulation *sim)
{
    double ours = (double)sim->hits / sim->requests, lru = run_model(sim, false), best = run_model(sim, true);
    printf("{\"keys\": %u, \"requests\": %u, \"budget_bytes\": %llu, \"largest_bytes\": %llu, \"puts\": %llu,"
           " \"collections\": %llu, \"hit_rate\": %.4f, \"hit_rate_lru\": %.4f, \"hit_rate_belady\": %.4f}\n",
           sim->keys, sim->requests, (unsigned long long)sim->budget, (unsigned long long)sim->largest,
           (unsigned long long)sim->puts, (unsigned long long)sim->collections_seen, ours, lru, best);
    printf("# size at most %.1f %% of the budget; hits %.1f %%, plain LRU %.1f %%, Belady %.1f %%\n",
           100.0 * (double)sim->largest / (double)sim->budget, 100 * ours, 100 * lru, 100 * best);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: simulate_year KEYS REQUESTS SHARE DIRECTORY\n");
        return 2;
    }
    simulation sim = {.keys = (uint32_t)number(argv[1]), .requests = (uint32_t)number(argv[2])};
    double share = strtod(argv[3], NULL);
    snprintf(sim.directory, sizeof sim.directory, "%s", argv[4]);
    snprintf(sim.library, sizeof sim.library, "%s/kernel.so", sim.directory);
    if (mkdir(sim.directory, 0700) != 0) {
        fprintf(stderr, "simulate_year: cannot make %s: %s\n", sim.directory, strerror(errno));
        return 2;
    }
    /* About 5 KiB of library and 1 KiB of manifest each. */
    sim.budget = (uint64_t)(share * sim.keys * 6000.0);
    sim.trace = malloc(sim.requests * sizeof *sim.trace);
    sim.next_use = malloc(sim.requests * sizeof *sim.next_use);
    sim.bytes = calloc(sim.keys, sizeof *sim.bytes);
    make_trace(&sim);
    open_cache(&sim);
    run_cache(&sim);
    aoticache_cache_close(sim.cache);
    for (uint32_t k = 0; k < sim.keys; k++)
        if (sim.bytes[k] == 0)
            sim.bytes[k] = 16 * library_lines(k) + 1000; /* never put, or only by puts that collected */
    report(&sim);
    if (sim.hits == 0 || sim.collections_seen == 0)
        fail(&sim, "the trace", "nothing was hit, or the budget was never reached");
    nftw(sim.directory, remove_item, 16, FTW_DEPTH | FTW_PHYS);
    free(sim.trace), free(sim.next_use), free(sim.bytes);
    return sim.failures > 0;
}
