/*
 * For the tests of index/: a temporary directory with an index in it, entries made from small numbers, and direct
 * access to the file with plain SQLite, to damage it or to examine its internals.
 */
#ifndef TESTS_UNIT_INDEX_FIXTURE_H
#define TESTS_UNIT_INDEX_FIXTURE_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "index/index.h"
#include "tests/unit/fixtures/own_directory.h"
#include "tests/helpers/index.h"

static char fixture_dir[256];
static char fixture_path[400];
static int fixture_log_lines;
static char fixture_log_last[2048];

static inline void fixture_make(void)
{
    own_directory_make(fixture_dir, sizeof fixture_dir);
    snprintf(fixture_path, sizeof fixture_path, "%s/index.sqlite3", fixture_dir);
}

static inline void fixture_remove(void)
{
    own_directory_remove(fixture_dir);
}

static inline void fixture_log(void *user, aoticache_log_level level, const char *line)
{
    (void)user;
    (void)level;
    fixture_log_lines++;
    snprintf(fixture_log_last, sizeof fixture_log_last, "%s", line);
}

static inline aoticache_status fixture_open(bool read_only, aoticache_index **ret_index, aoticache_error *ret_error)
{
    aoticache_index_options options = {.path = fixture_path, .read_only = read_only, .lock_timeout_ms = 30000};
    options.logger.log = fixture_log;
    return aoticache_index_open(&options, ret_index, ret_error);
}

static inline aoticache_index *fixture_must_open(void)
{
    aoticache_index *index = NULL;
    aoticache_error error = {0};
    aoticache_status status = fixture_open(false, &index, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s: %s", aoticache_status_name(status), error.message);
    return index;
}

/* Returns the digest that stands for a number. */
static inline aoticache_digest digest_of(uint32_t number)
{
    aoticache_digest digest;
    memset(&digest, 0x5a, sizeof digest);
    memcpy(digest.bytes, &number, sizeof number);
    return digest;
}

/* An entry with key `key`, whose artifact has two objects: the manifest `artifact` and the library `library`. */
typedef struct sample {
    aoticache_index_object objects[3];
    aoticache_index_entry entry;
} sample;

static inline void sample_make(sample *ret_sample, uint32_t key, uint32_t artifact, uint32_t library)
{
    memset(ret_sample, 0, sizeof *ret_sample);
    ret_sample->objects[0] = (aoticache_index_object){digest_of(artifact), 100};
    ret_sample->objects[1] = (aoticache_index_object){digest_of(library), 1000};
    aoticache_index_entry *entry = &ret_sample->entry;
    entry->key = digest_of(key);
    entry->artifact = digest_of(artifact);
    entry->library = digest_of(library);
    entry->objects = ret_sample->objects;
    entry->object_count = 2;
    entry->file_count = 1;
    entry->op = "aten::abs";
    entry->device = "cpu";
    entry->description = "float32 [2, 3]";
    entry->producer = "torch 2.13.0";
    entry->compile_ns = 5000000000;
    entry->created_ns = 1000 + key;
}

static inline void must_put(aoticache_index *index, const sample *with)
{
    aoticache_error error = {0};
    aoticache_status status = index_put(index, &with->entry, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s: %s", aoticache_status_name(status), error.message);
}

static inline void put_numbers(aoticache_index *index, uint32_t key, uint32_t artifact, uint32_t library)
{
    sample with;
    sample_make(&with, key, artifact, library);
    must_put(index, &with);
}

static inline aoticache_status lookup_number(aoticache_index *index, uint32_t key, aoticache_index_hit *ret_hit,
                                             aoticache_error *ret_error)
{
    aoticache_digest digest = digest_of(key);
    size_t count;
    return aoticache_index_lookup(index, &digest, ret_hit, 1, &count, ret_error);
}

static inline bool has_object_number(aoticache_index *index, uint32_t number)
{
    aoticache_digest digest = digest_of(number);
    aoticache_status status = aoticache_index_has_object(index, &digest, NULL);
    cr_assert(status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND, "%s", aoticache_status_name(status));
    return status == AOTICACHE_OK;
}

static inline aoticache_index_totals must_read_totals(aoticache_index *index)
{
    aoticache_index_totals totals = {0};
    aoticache_error error = {0};
    cr_assert_eq(aoticache_index_read_totals(index, &totals, &error), AOTICACHE_OK, "%s", error.message);
    return totals;
}

/* Runs SQL on the file with plain SQLite: no other connection may have it open for writing. */
static inline void fixture_sql(const char *sql)
{
    sqlite3 *db;
    char *message = NULL;
    cr_assert_eq(sqlite3_open_v2(fixture_path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL), SQLITE_OK);
    sqlite3_exec(db, sql, NULL, NULL, &message);
    cr_assert_null(message, "%s: %s", sql, message);
    sqlite3_close(db);
}

static inline void fixture_write(const void *bytes, size_t size)
{
    FILE *file = fopen(fixture_path, "w");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

#endif
