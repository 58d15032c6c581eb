/*
 * query_cache_fixture: an index with some entries, its query cache file with cached file facts, and operations of tests
 * on that file.
 */
#ifndef AOTICACHE_TESTS_QUERY_CACHE_FIXTURE_H
#define AOTICACHE_TESTS_QUERY_CACHE_FIXTURE_H

#include "tests/unit/fixtures/clock_fixture.h"
#include "index_fixture.h"

#include "base/cleanup.h"
#include "base/hash_map.h"
#include "index/query_cache/query_cache.h"
#include "index/query_cache/file_facts.h"

#define AHEAD 3         /* seconds: recent changes count as settled */
#define TICK_US 20000   /* longer than a tick of the clock of file changes */
#define KEYS 5          /* number of entries; key k has the library 1000 + k */
#define HEADER_BYTES 72 /* of the query cache file */
#define NOTHING_FOUND 0

static char query_cache_path[500];

static inline void make_fixture(void)
{
    fixture_make();
    snprintf(query_cache_path, sizeof query_cache_path, "%s-answers", fixture_path);
    fixture_ahead = AHEAD;
}

static inline bool is_there(const char *suffix)
{
    char path[500];
    struct stat found;
    snprintf(path, sizeof path, "%s%s", fixture_path, suffix);
    return stat(path, &found) == 0;
}

/* Returns whether there is a connection: SQLite makes this file for any connection. */
static inline bool is_connected(void)
{
    return is_there("-shm");
}

static inline off_t query_cache_size(void)
{
    struct stat found;
    return stat(query_cache_path, &found) == 0 ? found.st_size : -1;
}

/* Returns the library of a key's entry, as a number. */
static inline uint32_t library_of(aoticache_index *index, uint32_t key)
{
    aoticache_index_hit hit;
    aoticache_error error = {.message = ""};
    uint32_t number = NOTHING_FOUND;
    aoticache_status status = lookup_number(index, key, &hit, &error);
    cr_assert(status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND, "%s", error.message);
    if (status == AOTICACHE_OK)
        memcpy(&number, hit.library.bytes, sizeof number);
    return number;
}

static inline void make_index(void)
{
    static const uint8_t encoding[] = "what was asked";
    aoticache_index *index = fixture_must_open();
    for (uint32_t key = 1; key <= KEYS; key++) {
        sample with;
        sample_make(&with, key, 100 + key, 1000 + key);
        with.entry.encoding = encoding;
        with.entry.encoding_size = sizeof encoding - key;
        with.entry.guard = key == 2 ? "s0 > 1" : NULL;
        must_put(index, &with);
    }
    aoticache_index_close(index);
    usleep(TICK_US);
}

/* ---- the file ---- */

static inline size_t read_answers(uint8_t *bytes, size_t capacity)
{
    cleanup_file FILE *file = fopen(query_cache_path, "rb");
    cr_assert_not_null(file);
    return fread(bytes, 1, capacity, file);
}

static inline void write_answers(const uint8_t *bytes, size_t size)
{
    cleanup_file FILE *file = fopen(query_cache_path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
}

static inline void hash_anew(uint8_t *bytes, size_t size)
{
    const size_t hashed = 16;
    const uint64_t hash = aoticache_hash_bytes(bytes + hashed, size - hashed);
    memcpy(bytes + 8, &hash, sizeof hash);
}

/* ---- cached file facts ---- */

#define MEMO "what was found out"

static inline bool has_fact(aoticache_index *index, uint32_t about)
{
    uint8_t bytes[AOTICACHE_FILE_FACT_MAX_BYTES];
    size_t size = 0;
    const aoticache_digest digest = digest_of(about);
    return aoticache_index_find_manifest_fact(index, &digest, bytes, &size) && size == sizeof MEMO &&
           memcmp(bytes, MEMO, size) == 0;
}

static inline void note_fact(aoticache_index *index, uint32_t about)
{
    const aoticache_digest digest = digest_of(about);
    aoticache_index_note_manifest_fact(index, &digest, MEMO, sizeof MEMO);
}

#endif
