/*
 * index/eviction/maintenance: what a collection writes in addition to evictions: removals that are done, failures that have
 * expired, last uses in the future, numbers under a name, free pages, and the log.
 */
#include "index/entries/entries_internal.h"
#include "index/eviction/eviction.h"

#define USUAL_CACHE_KIB 2000 /* SQLite's default */
#define LOG_BYTES 16777216   /* kept when the log restarts */
#define READERS_MS 50        /* how long truncating the log waits for readers */

/* Runs a transaction of one statement; `digest` is its parameter, or NULL. The caller has entered the index. */
static aoticache_status execute_alone(aoticache_index *index, aoticache_index_durability durability,
                                      aoticache_index_statement which, const aoticache_digest *digest,
                                      aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_begin(index, durability, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_execute_digest(index, which, digest, NULL, ret_error);
    return aoticache_index_end(index, status, ret_error);
}

/* Commits and waits for the disk. A commit that waits for the disk makes the earlier ones durable, too, with either journal. */
aoticache_status aoticache_index_settle(aoticache_index *index, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    index->is_out_of_space = false;
    status = execute_alone(index, AOTICACHE_INDEX_DURABLE, SQL(SETTLE), NULL, ret_error);
    aoticache_index_leave(index);
    return status;
}

aoticache_status aoticache_index_forget_removals(aoticache_index *index, const int64_t *done, size_t count,
                                                 aoticache_error *ret_error)
{
    if (count == 0)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_enter_write(index, AOTICACHE_INDEX_RELAXED, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_delete_removals(index, done, count, ret_error);
    return aoticache_index_leave_write(index, status, ret_error);
}

aoticache_status aoticache_index_forget_removal_of(aoticache_index *index, const aoticache_digest *object,
                                                   aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = execute_alone(index, AOTICACHE_INDEX_RELAXED, SQL(DELETE_REMOVALS_OF), object, ret_error);
    aoticache_index_leave(index);
    return status;
}

/* ---- failures, numbers, free pages ---- */

static aoticache_status forget_expired_rows(aoticache_index *index, int64_t now_ns, size_t limit,
                                            uint64_t *ret_forgotten, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(FORGET_EXPIRED), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, now_ns);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)limit);
    status = aoticache_index_execute(index, statement, ret_forgotten, ret_error);
    if (status == AOTICACHE_OK)
        index->change.failures -= (int64_t)*ret_forgotten;
    return status;
}

aoticache_status aoticache_index_forget_expired(aoticache_index *index, int64_t now_ns, size_t limit,
                                                uint64_t *ret_forgotten, aoticache_error *ret_error)
{
    uint64_t forgotten = 0;
    aoticache_status status = aoticache_index_enter_write(index, AOTICACHE_INDEX_RELAXED, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = forget_expired_rows(index, now_ns, limit, &forgotten, ret_error);
    status = aoticache_index_leave_write(index, status, ret_error);
    if (status == AOTICACHE_OK)
        *ret_forgotten = forgotten;
    return status;
}

static aoticache_status fix_rows(aoticache_index *index, int64_t now_ns, size_t limit, uint64_t *ret_fixed,
                                 aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(MEND_USES), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, now_ns);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)limit);
    return aoticache_index_execute(index, statement, ret_fixed, ret_error);
}

aoticache_status aoticache_index_mend_uses(aoticache_index *index, int64_t now_ns, size_t limit, uint64_t *ret_fixed,
                                           aoticache_error *ret_error)
{
    uint64_t fixed = 0;
    aoticache_status status = aoticache_index_enter_write(index, AOTICACHE_INDEX_RELAXED, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_leave_write(index, fix_rows(index, now_ns, limit, &fixed, ret_error), ret_error);
    if (status == AOTICACHE_OK)
        *ret_fixed = fixed;
    return status;
}

aoticache_status aoticache_index_write_meta(aoticache_index *index, const char *name, int64_t value,
                                            aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_enter_write(index, AOTICACHE_INDEX_RELAXED, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_index_leave_write(index, aoticache_index_put_meta(index, name, value, ret_error), ret_error);
}

static aoticache_status read_number(aoticache_index *index, const char *sql, int64_t *ret_value,
                                    aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v2(index->db, sql, -1, &statement, NULL);
    if (result == SQLITE_OK)
        result = sqlite3_step(statement);
    if (result == SQLITE_ROW)
        *ret_value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return result == SQLITE_ROW ? AOTICACHE_OK : aoticache_index_fail(index, result, sql, ret_error);
}

/* Reads the bytes of unused pages, if the file can release them. */
static aoticache_status read_free(aoticache_index *index, int64_t *ret_page, int64_t *ret_pages,
                                  aoticache_error *ret_error)
{
    int64_t mode = 0;
    *ret_pages = 0;
    aoticache_status status = read_number(index, "PRAGMA auto_vacuum", &mode, ret_error);
    if (status == AOTICACHE_OK)
        status = read_number(index, "PRAGMA page_size", ret_page, ret_error);
    if (status == AOTICACHE_OK && mode != 0)
        status = read_number(index, "PRAGMA freelist_count", ret_pages, ret_error);
    return status;
}

aoticache_status aoticache_index_vacuum_step(aoticache_index *index, uint64_t bytes, uint64_t *ret_freed,
                                             aoticache_error *ret_error)
{
    int64_t page = 0, before = 0, after = 0;
    char sql[64];
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = read_free(index, &page, &before, ret_error);
    if (status == AOTICACHE_OK && before > 0) {
        uint64_t pages = bytes / (uint64_t)page;
        sqlite3_snprintf(sizeof sql, sql, "PRAGMA incremental_vacuum(%u)",
                         pages < 100000 ? (unsigned)pages + 1 : 100000u);
        status = aoticache_index_begin(index, AOTICACHE_INDEX_RELAXED, ret_error);
        if (status == AOTICACHE_OK) {
            int result = sqlite3_exec(index->db, sql, NULL, NULL, NULL);
            if (result != SQLITE_OK)
                status = aoticache_index_fail(index, result, sql, ret_error);
            status = aoticache_index_end(index, status, ret_error);
        }
        if (status == AOTICACHE_OK)
            status = read_free(index, &page, &after, ret_error);
    }
    aoticache_index_leave(index);
    if (status == AOTICACHE_OK)
        *ret_freed = before > after ? (uint64_t)(before - after) * (uint64_t)page : 0;
    return status;
}

/* ---- the log ---- */

void aoticache_index_prepare_collection(aoticache_index *index, int cache_kib)
{
    char sql[96];
    const int kib = cache_kib > 0 ? cache_kib : USUAL_CACHE_KIB;
    sqlite3_snprintf(sizeof sql, sql, "PRAGMA cache_size=-%d; PRAGMA journal_size_limit=%d", kib, LOG_BYTES);
    if (aoticache_index_enter(index, NULL) != AOTICACHE_OK)
        return;
    index->log_pages = 0;
    index->is_collecting = cache_kib > 0;
    sqlite3_exec(index->db, sql, NULL, NULL, NULL);
    aoticache_index_leave(index);
}

void aoticache_index_checkpoint_if_due(aoticache_index *index, int pages)
{
    if (aoticache_index_enter(index, NULL) != AOTICACHE_OK)
        return;
    if (index->log_pages >= pages)
        aoticache_index_merge_log(index);
    aoticache_index_leave(index);
}

void aoticache_index_checkpoint(aoticache_index *index)
{
    if (aoticache_index_enter(index, NULL) != AOTICACHE_OK)
        return;
    aoticache_index_merge_log(index);
    aoticache_index_leave(index);
}

/*
 * Truncates the log. Only the holder of the write lock may release the log's disk space. SQLite takes that lock itself, but
 * continues without it if it cannot get it: so this first checks that the lock is free, and the gate keeps it free.
 */
void aoticache_index_truncate_log(aoticache_index *index)
{
    if (aoticache_index_enter(index, NULL) != AOTICACHE_OK)
        return;
    aoticache_index_merge_log(index);
    index->wait_ms = READERS_MS;
    aoticache_index_writer_queue_enter(index);
    if (index->is_in_gate && sqlite3_exec(index->db, "BEGIN IMMEDIATE; ROLLBACK", NULL, NULL, NULL) == SQLITE_OK)
        sqlite3_wal_checkpoint_v2(index->db, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    aoticache_index_writer_queue_leave(index);
    index->wait_ms = index->lock_timeout_ms;
    aoticache_index_leave(index);
}

bool aoticache_index_is_out_of_space(aoticache_index *index)
{
    if (aoticache_index_enter(index, NULL) != AOTICACHE_OK)
        return false;
    const bool is_out_of_space = index->is_out_of_space;
    aoticache_index_leave(index);
    return is_out_of_space;
}
