/*
 * What tests of the index ask, and the library does not.
 */
#ifndef TESTS_HELPERS_INDEX_H
#define TESTS_HELPERS_INDEX_H

#include <string.h>

#include "index/connection/connection_internal.h"
#include "index/entries/integrity.h"
#include "index/stats/statistics.h"

static inline aoticache_status index_put(aoticache_index *index, const aoticache_index_entry *entry,
                                         aoticache_error *ret_error)
{
    int64_t id;
    return aoticache_index_put(index, entry, &id, ret_error);
}

/* Checks the file and its rows, and that the totals, which every transaction updates, match the rows. */
static inline aoticache_status index_verify(aoticache_index *index, aoticache_error *ret_error)
{
    bool is_completed;
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_check_integrity(index, false, NULL, NULL, &is_completed, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const char *sql =
        "SELECT (SELECT printf('%d %d %d %d %d', entries, artifacts, objects, bytes, failures) FROM totals)"
        " IS (SELECT printf('%d %d %d %d %d', (SELECT count(*) FROM entries),"
        " (SELECT count(*) FROM objects WHERE entry <> 0), (SELECT count(*) FROM objects),"
        " (SELECT ifnull(sum(bytes), 0) FROM objects), (SELECT count(*) FROM failures)))";
    if (sqlite3_prepare_v2(index->db, sql, -1, &statement, NULL) != SQLITE_OK || sqlite3_step(statement) != SQLITE_ROW)
        status = aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "totals: %s", sqlite3_errmsg(index->db));
    else if (sqlite3_column_int(statement, 0) != 1)
        status = aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "index %s: its totals do not match its tables",
                                     index->path);
    sqlite3_finalize(statement);
    aoticache_index_leave(index);
    return status;
}

static inline aoticache_status index_list_objects(aoticache_index *index, aoticache_index_object_fn callback,
                                                  void *user, aoticache_error *ret_error)
{
    aoticache_digest first, last;
    memset(first.bytes, 0, sizeof first.bytes);
    memset(last.bytes, 0xff, sizeof last.bytes);
    return aoticache_index_list_objects_between(index, &first, &last, callback, user, ret_error);
}

static inline bool index_skip_histogram(void *user, const aoticache_index_histogram *histogram, bool is_less)
{
    return user != NULL || histogram != NULL || is_less;
}

static inline aoticache_status index_list_counts(aoticache_index *index, aoticache_index_count_fn callback, void *user,
                                                 aoticache_error *ret_error)
{
    int64_t zero_ns;
    const aoticache_index_reading reading = {.count = callback, .histogram = index_skip_histogram, .user = user};
    return aoticache_index_read_statistics(index, &reading, &zero_ns, ret_error);
}

/* Returns whether the index is in SQLite's write-ahead log mode. */
static inline bool index_has_log(aoticache_index *index)
{
    char mode[16];
    if (aoticache_index_enter(index, NULL) != AOTICACHE_OK)
        return false;
    aoticache_index_journal_pragma(index, NULL, mode);
    aoticache_index_leave(index);
    return strcmp(mode, "wal") == 0;
}

#endif
