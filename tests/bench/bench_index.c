/*
 * Measures a lookup in the index, compared with the minimum for the same row with SQLite: a statement prepared once,
 * bound, stepped, its columns read, reset, on a separate connection to the same file. Both alternate in one run, on the
 * same random keys; medians over the rounds. Prints one JSON object per line; BENCH_QUICK=1 leaves the million out.
 */
#include "base/clock.h"
#include "index/index.h"
#include "tests/bench/bench.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Many short rounds rather than few long ones: a round is shorter than the time slice of a scheduler, so on a busy machine
 * most rounds run undisturbed and the median is one of those.
 */
#define ROUNDS 2001
#define LOOKUPS 50
#define WARM_UP 200
#define TARGET 1.3 /* checks, copying the row and the lock may add three tenths to SQLite's time */

static uint64_t sink; /* so that nothing measured is optimised away */

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_index: %s: %s\n", what, why);
    exit(1);
}

/* Returns the next of a sequence of well-mixed numbers (splitmix64). */
static uint64_t mix(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

/* Returns a key. Keys are digests: bytes without order. */
static aoticache_digest key_of(uint64_t number)
{
    aoticache_digest key;
    uint64_t state = number * 4;
    for (size_t i = 0; i < sizeof key; i += sizeof state) {
        uint64_t word = mix(&state);
        memcpy(key.bytes + i, &word, sizeof word);
    }
    return key;
}

static void run_sql(sqlite3 *db, const char *sql)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail(sql, sqlite3_errmsg(db));
}

static sqlite3 *open_raw(const char *path)
{
    sqlite3 *db;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        fail(path, sqlite3_errmsg(db));
    return db;
}

/* Fills the index with rows as aoticache_index_put makes them, without its fsync for each. */
static void fill(const char *path, uint64_t entries)
{
    static const uint8_t requirements[AOTICACHE_INDEX_REQUIREMENT_BYTES] = {0x1f};
    sqlite3 *db = open_raw(path);
    sqlite3_stmt *insert;
    const char *sql =
        "INSERT INTO entries(key, rank, created_ns, id, artifact, library, library_bytes, file_count,"
        " compile_ns, requirements, content_offset) VALUES(?1, 5, ?2, ?3, ?4, ?5, 360448, 1, 5000000000, ?6, 0)";
    run_sql(db, "PRAGMA synchronous=OFF; PRAGMA cache_size=-600000; BEGIN");
    if (sqlite3_prepare_v2(db, sql, -1, &insert, NULL) != SQLITE_OK)
        fail("cannot prepare", sqlite3_errmsg(db));
    for (uint64_t i = 0; i < entries; i++) {
        aoticache_digest key = key_of(i), artifact = key_of(i + entries), library = key_of(i + 2 * entries);
        sqlite3_bind_blob(insert, 1, key.bytes, sizeof key, SQLITE_STATIC);
        sqlite3_bind_int64(insert, 2, 1700000000000000000 + (int64_t)i);
        sqlite3_bind_int64(insert, 3, (int64_t)i + 1);
        sqlite3_bind_blob(insert, 4, artifact.bytes, sizeof artifact, SQLITE_STATIC);
        sqlite3_bind_blob(insert, 5, library.bytes, sizeof library, SQLITE_STATIC);
        sqlite3_bind_blob(insert, 6, requirements, sizeof requirements, SQLITE_STATIC);
        if (sqlite3_step(insert) != SQLITE_DONE)
            fail("cannot insert", sqlite3_errmsg(db));
        sqlite3_reset(insert);
    }
    sqlite3_finalize(insert);
    run_sql(db, "COMMIT; PRAGMA wal_checkpoint(TRUNCATE)");
    sqlite3_close(db);
}

static double time_index(aoticache_index *index, const aoticache_digest *keys)
{
    uint64_t start = aoticache_monotonic_ns();
    for (size_t i = 0; i < LOOKUPS; i++) {
        aoticache_index_hit hits[8];
        size_t count;
        aoticache_error error;
        if (aoticache_index_lookup(index, &keys[i], hits, 8, &count, &error) != AOTICACHE_OK || count != 1)
            fail("lookup", "an entry is missing");
        sink += hits[0].library_bytes + hits[0].artifact.bytes[0];
    }
    return (double)(aoticache_monotonic_ns() - start) / LOOKUPS;
}

static void raw_read(sqlite3_stmt *statement, aoticache_index_hit *ret_hit)
{
    ret_hit->entry_id = sqlite3_column_int64(statement, 0);
    memcpy(ret_hit->artifact.bytes, sqlite3_column_blob(statement, 1), sizeof ret_hit->artifact);
    memcpy(ret_hit->library.bytes, sqlite3_column_blob(statement, 2), sizeof ret_hit->library);
    ret_hit->library_bytes = (uint64_t)sqlite3_column_int64(statement, 3);
    ret_hit->file_count = (uint32_t)sqlite3_column_int64(statement, 4);
    ret_hit->compile_ns = (uint64_t)sqlite3_column_int64(statement, 5);
    memcpy(ret_hit->requirements, sqlite3_column_blob(statement, 6), sizeof ret_hit->requirements);
    ret_hit->content_offset = (uint64_t)sqlite3_column_int64(statement, 7);
}

static double time_raw(sqlite3_stmt *statement, const aoticache_digest *keys)
{
    uint64_t start = aoticache_monotonic_ns();
    for (size_t i = 0; i < LOOKUPS; i++) {
        aoticache_index_hit hit;
        sqlite3_bind_blob(statement, 1, keys[i].bytes, AOTICACHE_DIGEST_BYTES, SQLITE_STATIC);
        if (sqlite3_step(statement) != SQLITE_ROW)
            fail("raw read", "a row is missing");
        raw_read(statement, &hit);
        sqlite3_reset(statement);
        sink += hit.library_bytes + hit.artifact.bytes[0];
    }
    return (double)(aoticache_monotonic_ns() - start) / LOOKUPS;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double values[ROUNDS])
{
    qsort(values, ROUNDS, sizeof values[0], compare_doubles);
    return values[ROUNDS / 2];
}

static void report(uint64_t entries, double value, double peer)
{
    double ratio = value / peer;
    printf(
        "{\"name\":\"index lookup, %llu entries\",\"value\":%.0f,\"unit\":\"ns\","
        "\"peer\":\"prepared raw SQLite point read\",\"peer_value\":%.0f,\"ratio\":%.3f,\"target\":%.1f,\"met\":%s}\n",
        (unsigned long long)entries, value, peer, ratio, TARGET, ratio <= TARGET ? "true" : "false");
    fflush(stdout);
}

/* Measures rounds. A round has both, on the same keys; which comes first alternates. */
static void measure(aoticache_index *index, sqlite3_stmt *raw, uint64_t entries)
{
    static aoticache_digest keys[LOOKUPS];
    static double ours[ROUNDS], theirs[ROUNDS];
    uint64_t state = 42;
    for (int round = -WARM_UP; round < ROUNDS; round++) {
        for (size_t i = 0; i < LOOKUPS; i++)
            keys[i] = key_of(mix(&state) % entries);
        double first = round % 2 == 0 ? time_index(index, keys) : time_raw(raw, keys);
        double second = round % 2 == 0 ? time_raw(raw, keys) : time_index(index, keys);
        if (round < 0)
            continue;
        ours[round] = round % 2 == 0 ? first : second;
        theirs[round] = round % 2 == 0 ? second : first;
    }
    report(entries, median(ours), median(theirs));
}

static void bench(const char *path, uint64_t entries)
{
    aoticache_index_options options = {.path = path, .lock_timeout_ms = 1000};
    aoticache_index *index;
    aoticache_error error;
    if (aoticache_index_open(&options, &index, &error) != AOTICACHE_OK)
        fail("cannot open", error.message);
    fill(path, entries);
    sqlite3 *db = open_raw(path);
    sqlite3_stmt *raw;
    const char *sql = "SELECT id, artifact, library, library_bytes, file_count, compile_ns, requirements,"
                      " content_offset FROM entries WHERE key = ?1";
    if (sqlite3_prepare_v2(db, sql, -1, &raw, NULL) != SQLITE_OK)
        fail("cannot prepare", sqlite3_errmsg(db));
    measure(index, raw, entries);
    sqlite3_finalize(raw);
    sqlite3_close(db);
    aoticache_index_close(index);
}

int main(void)
{
    const char *base = getenv("TMPDIR");
    char directory[4096], path[4200];
    uint64_t largest = bench_is_quick() ? 100000 : 1000000;
    snprintf(directory, sizeof directory, "%s/aoticache-bench-XXXXXX", base == NULL ? "/tmp" : base);
    if (mkdtemp(directory) == NULL)
        fail("cannot make a directory", directory);
    snprintf(path, sizeof path, "%s/index.sqlite3", directory);
    for (uint64_t entries = 1000; entries <= largest; entries *= 10) {
        bench(path, entries);
        unlink(path);
    }
    if (bench_is_quick())
        bench_left_out("lookups in an index of 1000000 entries", "QUICK=1");
    rmdir(directory);
    return sink == 0;
}
