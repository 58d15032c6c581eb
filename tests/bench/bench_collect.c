/*
 * Measures the cost of a collection with nothing to do, when it evicts one entry in a hundred, and when it evicts ten
 * thousand. The baselines of the latter two are the bare unlinks of as many equal files of the same directories, and
 * `ccache --cleanup` on the same files, renamed to ccache's layout. Each is measured three times, since the speed of a
 * disk changes, and the medians are used. With nothing to do the baseline is `ccache --cleanup`; for reading the totals
 * it is SQLite, which reads the same tables. Prints one JSON object per line.
 *
 * 100,000 entries (200,000 small files). BENCH_LONG=1 adds a million (9 GB, two million inodes, eleven minutes of a busy
 * processor), BENCH_QUICK=1 takes 10,000. It needs a directory in $TMPDIR on a disk: in memory unlinks cost almost
 * nothing.
 */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/names.h"
#include "cache/cache.h"
#include "cache/gc/collect.h"
#include "cache/stats/statistics.h"
#include "index/eviction/eviction.h"
#include "tests/bench/bench.h"
#include "tests/helpers/index.h"

#define MANIFEST_BYTES 700
#define LIBRARY_BYTES 2500
#define OBJECTS 2
#define PUTS_AT_ONCE 20000
#define REPEATS 9
#define READINGS 400 /* readings of the totals, each takes microseconds */
#define EVICTIONS 3  /* evictions of one entry in a hundred */
#define DIRECTORIES 256
#define PROCESSES 16 /* processes that make and remove the files, mostly waiting for the disk */
#define TMPFS 0x01021994

/* Apart from unlinking, a collection may take half of the time of the unlinks. */
#define UNLINK_LIMIT 1.5
/* An eviction must not be slower than ccache's, and with a million entries three times as fast. */
#define CCACHE_LIMIT 1
#define CCACHE_LIMIT_LONG (1.0 / 3)
/*
 * With nothing to do, ccache examines each of its files, and a collection as many as it can in 3 ms. So the more
 * entries there are, the smaller the ratio must be. Each limit is less than twice what a quiet Zen 5 has (0.08, 0.009,
 * 0.003).
 */
#define IDLE_LIMIT_QUICK 0.15
#define IDLE_LIMIT 0.018
#define IDLE_LIMIT_LONG 0.005
/*
 * Totals are stored, not counted. Reading the rows takes a third; the rest is for adding up and for checks (2.1
 * measured).
 */
#define TOTALS_LIMIT 3

static char root[400];
static char cache_dir[440];

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_collect: %s: %s\n", what, why);
    exit(1);
}

static double now_ms(void)
{
    return (double)aoticache_monotonic_ns() / 1e6;
}

/* Returns the next of a sequence of well-mixed numbers (splitmix64). */
static uint64_t mix(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

/* Returns a digest. kind 0: the key of an entry, 1: its manifest, 2: its library. */
static aoticache_digest digest_of(uint64_t entry, uint64_t kind)
{
    aoticache_digest digest;
    uint64_t state = entry * 12 + kind * 4;
    for (size_t i = 0; i < sizeof digest; i += sizeof state) {
        uint64_t word = mix(&state);
        memcpy(digest.bytes + i, &word, sizeof word);
    }
    return digest;
}

static void report(const char *what, size_t entries, double value, const char *unit, const char *peer,
                   double peer_value, double target)
{
    bool met = value <= target * peer_value;
    printf("{\"name\":\"%s, %zu entries\",\"value\":%.3f,\"unit\":\"%s\",\"peer\":\"%s\",\"peer_value\":%.3f,"
           "\"ratio\":%.3f,\"target\":%.3g,\"met\":%s}\n",
           what, entries, value, unit, peer, peer_value, peer_value > 0 ? value / peer_value : 0, target,
           met ? "true" : "false");
    fflush(stdout);
}

/* ---- the store ---- */

static void object_path(const aoticache_digest *digest, char *ret_path, size_t size)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(digest, hex);
    snprintf(ret_path, size, "%s/objects/%.2s/%s", cache_dir, hex, hex + 2);
}

static void write_object(int directory, const aoticache_digest *digest, size_t size)
{
    static char bytes[4096];
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(digest, hex);
    int fd = openat(directory, hex + 2, O_WRONLY | O_CREAT | O_EXCL, 0444);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size || close(fd) != 0)
        fail("cannot write", hex);
}

/* Writes directory by directory, which is fast on disks; in each the oldest files come first, as in a real cache. */
static void write_directory(int number, size_t entries)
{
    char path[600];
    snprintf(path, sizeof path, "%s/objects/%02x", cache_dir, (unsigned)number);
    mkdir(path, 0700);
    int directory = open(path, O_RDONLY | O_DIRECTORY);
    if (directory < 0)
        fail("cannot open", path);
    for (size_t i = 0; i < entries * OBJECTS; i++) {
        aoticache_digest digest = digest_of(i / OBJECTS, 1 + i % OBJECTS);
        if (digest.bytes[0] == number)
            write_object(directory, &digest, i % OBJECTS == 0 ? MANIFEST_BYTES : LIBRARY_BYTES);
    }
    close(directory);
}

/* Calls `work` for each of the directories, in several processes. */
static void for_directories(void (*work)(int number, size_t entries), size_t entries)
{
    pid_t children[PROCESSES];
    int result = 0;
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] < 0)
            fail("cannot start", "a process");
        for (int number = i; children[i] == 0 && number < DIRECTORIES; number += PROCESSES)
            work(number, entries);
        if (children[i] == 0)
            _exit(0);
    }
    for (int i = 0; i < PROCESSES; i++)
        if (waitpid(children[i], &result, 0) != children[i] || result != 0)
            fail("a process", "has failed");
}

static aoticache_cache *open_cache(void)
{
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    options.directory = cache_dir;
    options.max_bytes = options.max_entries = UINT64_MAX;
    if (aoticache_cache_open(&options, &cache, &error) != AOTICACHE_OK)
        fail("cannot open", error.message);
    return cache;
}

static void put_row(aoticache_index *index, uint64_t number)
{
    char op[32], encoding[256] = "";
    aoticache_error error = {.message = ""};
    aoticache_index_object objects[OBJECTS] = {{digest_of(number, 1), MANIFEST_BYTES},
                                               {digest_of(number, 2), LIBRARY_BYTES}};
    snprintf(op, sizeof op, "aten::operator_%02u", (unsigned)(number % 97));
    aoticache_index_entry entry = {.key = digest_of(number, 0),
                                   .artifact = objects[0].digest,
                                   .library = objects[1].digest,
                                   .objects = objects,
                                   .object_count = OBJECTS,
                                   .file_count = 1,
                                   .op = op,
                                   .device = "cpu",
                                   .description = "(float32[128,256]{256,1}, float32[256]{1}, 1.0, False)",
                                   .producer = "pytorch 2.13.0",
                                   .compile_ns = 5000000000,
                                   .created_ns = 1700000000000000000 + (int64_t)number * 1000000,
                                   .encoding = (const uint8_t *)encoding,
                                   .encoding_size = 200};
    if (index_put(index, &entry, &error) != AOTICACHE_OK)
        fail("cannot put", error.message);
}

static void fill(size_t entries)
{
    char path[600];
    aoticache_index *index = NULL;
    aoticache_error error = {.message = ""};
    aoticache_cache_close(open_cache());
    snprintf(path, sizeof path, "%s/objects", cache_dir);
    mkdir(path, 0700);
    for_directories(write_directory, entries);
    snprintf(path, sizeof path, "%s/index.sqlite3", cache_dir);
    aoticache_index_options options = {.path = path, .lock_timeout_ms = 10000};
    if (aoticache_index_open(&options, &index, &error) != AOTICACHE_OK)
        fail("cannot open", error.message);
    aoticache_index_prepare_collection(index, 64 << 10); /* more memory for B-trees */
    for (size_t i = 0; i < entries; i++) {
        if (i % PUTS_AT_ONCE == 0 && aoticache_index_bulk_begin(index, &error) != AOTICACHE_OK)
            fail("cannot begin", error.message);
        put_row(index, i);
        if ((i % PUTS_AT_ONCE == PUTS_AT_ONCE - 1 || i + 1 == entries) &&
            aoticache_index_bulk_end(index, AOTICACHE_OK, &error) != AOTICACHE_OK)
            fail("cannot write", error.message);
    }
    aoticache_index_close(index);
    sync();
}

/* ---- what is measured ---- */

/* Returns the elapsed milliseconds. */
static double collect(aoticache_cache *cache, uint64_t max_entries, uint64_t expected)
{
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    aoticache_collect_report done;
    aoticache_error error = {.message = ""};
    options.max_entries = max_entries;
    double begun = now_ms();
    if (aoticache_cache_collect(cache, &options, NULL, NULL, &done, &error) != AOTICACHE_OK)
        fail("collect", error.message);
    double took = now_ms() - begun;
    if (done.entries_removed != expected || done.objects_removed != expected * OBJECTS)
        fail("collect", "removed another number of entries or objects than it was to");
    return took;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *times, int count)
{
    qsort(times, (size_t)count, sizeof *times, compare_doubles);
    return times[count / 2];
}

/* Unlinks the files of `count` entries from `first` on, without removing their rows. */
static double unlink_bare(uint64_t first, uint64_t count)
{
    char(*paths)[600] = calloc(count * OBJECTS, sizeof *paths);
    if (paths == NULL)
        fail("unlink", "out of memory");
    for (uint64_t i = 0; i < count * OBJECTS; i++) {
        aoticache_digest digest = digest_of(first + i / OBJECTS, 1 + i % OBJECTS);
        object_path(&digest, paths[i], sizeof paths[i]);
    }
    double begun = now_ms();
    for (uint64_t i = 0; i < count * OBJECTS; i++)
        if (unlink(paths[i]) != 0)
            fail("unlink", paths[i]);
    double took = now_ms() - begun;
    free(paths);
    return took;
}

/*
 * Examines all files, so that their metadata is in memory, as it is when ccache, which examines all files, is measured.
 */
static void look_at_all(void)
{
    char path[600];
    struct stat found;
    for (int i = 0; i < DIRECTORIES; i++) {
        snprintf(path, sizeof path, "%s/objects/%02x", cache_dir, i);
        DIR *directory = opendir(path);
        for (struct dirent *item; directory != NULL && (item = readdir(directory)) != NULL;)
            fstatat(dirfd(directory), item->d_name, &found, AT_SYMLINK_NOFOLLOW);
        if (directory != NULL)
            closedir(directory);
    }
}

struct state {
    aoticache_cache *cache;
    size_t entries;    /* initial number */
    uint64_t left;     /* rows left */
    uint64_t bare_end; /* files of entries from here on were unlinked without their rows */
};

/*
 * Measures half of the unlinks before and half after, so that other disk activity affects both. *ret_bare: time of the
 * unlinks.
 */
static double evict_once(struct state *state, uint64_t count, double *ret_bare)
{
    look_at_all();
    sync();
    state->bare_end -= count / 2;
    *ret_bare = unlink_bare(state->bare_end, count / 2);
    sync();
    state->left -= count;
    double took = collect(state->cache, state->left, count);
    sync();
    state->bare_end -= count - count / 2;
    *ret_bare += unlink_bare(state->bare_end, count - count / 2);
    return took;
}

static double evict(struct state *state, uint64_t count, int times, const char *what)
{
    double took[EVICTIONS], bare[EVICTIONS];
    for (int i = 0; i < times; i++)
        took[i] = evict_once(state, count, &bare[i]);
    const double median = median_of(took, times), its = median_of(bare, times);
    report(what, state->entries, median, "ms", "bare unlinks of as many files", its, UNLINK_LIMIT);
    return median;
}

static double nothing_to_do(const struct state *state)
{
    double times[REPEATS];
    for (int i = 0; i < REPEATS; i++)
        times[i] = collect(state->cache, state->left, 0);
    return median_of(times, REPEATS);
}

static void read_once(const struct state *state)
{
    aoticache_statistics statistics;
    aoticache_error error = {.message = ""};
    if (aoticache_cache_get_statistics(state->cache, NULL, &statistics, &error) != AOTICACHE_OK)
        fail("statistics", error.message);
    if (statistics.entries != state->left)
        fail("statistics", "another number of entries than there are");
}

/* Reads all rows of a prepared statement, and each column. */
static void read_rows(sqlite3_stmt *statement)
{
    while (sqlite3_step(statement) == SQLITE_ROW)
        for (int i = 0; i < sqlite3_column_count(statement); i++)
            __asm__ volatile("" : : "r"(sqlite3_column_int64(statement, i)));
    sqlite3_reset(statement);
}

static void read_statistics(const struct state *state)
{
    static const char *const sql[] = {"SELECT * FROM totals", "SELECT * FROM counts", "SELECT * FROM latencies"};
    enum { TABLES = sizeof sql / sizeof sql[0] };
    static double times[READINGS], theirs[READINGS];
    sqlite3_stmt *statements[TABLES];
    sqlite3 *db = NULL;
    char path[600];
    snprintf(path, sizeof path, "%s/index.sqlite3", cache_dir);
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        fail(path, "SQLite cannot open it");
    for (int t = 0; t < TABLES; t++)
        if (sqlite3_prepare_v2(db, sql[t], -1, &statements[t], NULL) != SQLITE_OK)
            fail(sql[t], sqlite3_errmsg(db));
    for (int i = 0; i < READINGS; i++) {
        uint64_t begun = bench_processor_ns();
        read_once(state);
        times[i] = (double)(bench_processor_ns() - begun) / 1e3;
        begun = bench_processor_ns();
        for (int t = 0; t < TABLES; t++)
            read_rows(statements[t]);
        theirs[i] = (double)(bench_processor_ns() - begun) / 1e3;
    }
    for (int t = 0; t < TABLES; t++)
        sqlite3_finalize(statements[t]);
    sqlite3_close(db);
    report("statistics", state->entries, median_of(times, READINGS), "us", "SQLite reading the same tables",
           median_of(theirs, READINGS), TOTALS_LIMIT);
}

/* ---- ccache ---- */

static bool has_ccache(void)
{
    return system("command -v ccache >/dev/null 2>&1") == 0;
}

/* Renames files to ccache's layout: two levels of 16 directories, names of results. *ret_files: their number. */
static void rename_to_ccache(size_t *ret_files)
{
    static const char digits[] = "0123456789abcdef";
    char from[600], to[700], path[600];
    size_t files = 0;
    for (int a = 0; a < 16; a++) {
        snprintf(path, sizeof path, "%s/ccache/%c", root, digits[a]);
        mkdir(path, 0700);
        for (int b = 0; b < 16; b++) {
            snprintf(path, sizeof path, "%s/ccache/%c/%c", root, digits[a], digits[b]);
            snprintf(from, sizeof from, "%s/objects/%c%c", cache_dir, digits[a], digits[b]);
            mkdir(path, 0700);
            DIR *directory = opendir(from);
            for (struct dirent *item; directory != NULL && (item = readdir(directory)) != NULL;) {
                if (item->d_name[0] == '.')
                    continue;
                snprintf(to, sizeof to, "%s/%.30sR", path, item->d_name);
                files += renameat(dirfd(directory), item->d_name, AT_FDCWD, to) == 0;
            }
            if (directory != NULL)
                closedir(directory);
        }
    }
    *ret_files = files;
}

static size_t count_files(void)
{
    char path[600];
    size_t files = 0;
    for (int i = 0; i < DIRECTORIES; i++) {
        snprintf(path, sizeof path, "%s/ccache/%x/%x", root, i / 16, i % 16);
        DIR *directory = opendir(path);
        for (struct dirent *item; directory != NULL && (item = readdir(directory)) != NULL;)
            files += item->d_name[0] != '.';
        if (directory != NULL)
            closedir(directory);
    }
    return files;
}

static double run_ccache(size_t max_files)
{
    char command[800];
    snprintf(command, sizeof command,
             "CCACHE_DIR=%s/ccache CCACHE_MAXSIZE=0 CCACHE_MAXFILES=%zu ccache --cleanup >/dev/null 2>&1", root,
             max_files);
    double begun = now_ms();
    if (system(command) != 0)
        fail("ccache", "its cleanup failed");
    return now_ms() - begun;
}

/* Evicts one file in a hundred. */
static double evict_by_ccache(size_t *files, size_t count)
{
    sync();
    double its = run_ccache(*files - count);
    const size_t left = count_files(), went = *files - left;
    if (went < count / 2)
        fail("ccache", "it removed less than it was to");
    *files = left;
    return its * (double)count / (double)went; /* ccache works by sixteenths, and removes a little more or less */
}

static void compare_with_ccache(struct state *state, double idle, double evicted_ms, double target)
{
    char path[600];
    size_t files = 0;
    if (!has_ccache()) {
        bench_left_out("collections beside ccache", "ccache is not installed");
        return;
    }
    snprintf(path, sizeof path, "%s/ccache", root);
    mkdir(path, 0700);
    rename_to_ccache(&files);
    sync();
    run_ccache(0); /* updates its counters */
    double its_idle = run_ccache(0);
    report("collect, nothing to do", state->entries, idle, "ms", "ccache --cleanup", its_idle,
           state->entries >= 1000000  ? IDLE_LIMIT_LONG
           : state->entries >= 100000 ? IDLE_LIMIT
                                      : IDLE_LIMIT_QUICK);
    double times[EVICTIONS];
    const size_t count = files / 100;
    for (int i = 0; i < EVICTIONS; i++)
        times[i] = evict_by_ccache(&files, count);
    const double its = median_of(times, EVICTIONS);
    report("collect, 1 % goes", state->entries, evicted_ms, "ms", "ccache --cleanup", its, target);
}

static int remove_one(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)found, (void)kind, (void)walk;
    return remove(path);
}

static void remove_directory(int number, size_t entries)
{
    char path[600];
    (void)entries;
    snprintf(path, sizeof path, "%s/objects/%02x", cache_dir, (unsigned)number);
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    snprintf(path, sizeof path, "%s/ccache/%x/%x", root, (unsigned)number / 16, (unsigned)number % 16);
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void measure(size_t entries)
{
    const char *base = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/bench-collect-XXXXXX", base != NULL && strlen(base) < 300 ? base : "/tmp");
    if (mkdtemp(root) == NULL)
        fail("cannot make a directory", root);
    struct statfs filesystem;
    if (statfs(root, &filesystem) == 0 && filesystem.f_type == TMPFS)
        fprintf(stderr, "bench_collect: %s is in memory: its unlinks cost next to nothing; set TMPDIR to a disk\n",
                root);
    struct state state = {.entries = entries, .left = entries, .bare_end = entries};
    snprintf(cache_dir, sizeof cache_dir, "%s/cache", root);
    fill(entries);
    state.cache = open_cache();
    double idle = nothing_to_do(&state);
    read_statistics(&state);
    double one_percent = evict(&state, entries / 100, EVICTIONS, "collect, 1 % goes");
    if (entries / 100 != 10000 && entries > 40000)
        evict(&state, 10000, 1, "collect, 10 000 go");
    aoticache_cache_close(state.cache);
    compare_with_ccache(&state, idle, one_percent, entries >= 1000000 ? CCACHE_LIMIT_LONG : CCACHE_LIMIT);
    for_directories(remove_directory, entries);
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const char *is_long = getenv("BENCH_LONG");
    measure(bench_is_quick() ? 10000 : 100000);
    if (is_long != NULL && strcmp(is_long, "0") != 0 && !bench_is_quick())
        measure(1000000);
    if (bench_is_quick())
        bench_left_out("collections of a cache of 100000 entries: 10000 are measured", "QUICK=1");
    return 0;
}
