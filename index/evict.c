/*
 * index/evict: the writing half of collection.h: entries that go by the batch, and what is kept of files that wait.
 */
#include "index/collection.h"
#include "index/removal.h"
#include "index/statistics.h"

#define CACHE_KIB "16384"       /* the inner pages of all trees of a large index */
#define MERGE_PAGES 16000       /* 64 MB of log */
#define USUAL_CACHE_KIB "2000"  /* SQLite's own */
#define USUAL_MERGE_PAGES "1000"
#define READERS_MS 50

static void merge_if_due(aoticache_index *index)
{
    if (!index->delays_merge && index->log_pages >= MERGE_PAGES)
        sqlite3_wal_checkpoint_v2(index->db, "main", SQLITE_CHECKPOINT_PASSIVE, &index->log_pages, NULL);
}

/* After a commit, where SQLite's own would merge, too. */
static int note_log(void *user, sqlite3 *db, const char *name, int pages)
{
    aoticache_index *index = user;
    (void)db, (void)name;
    index->log_pages = pages;
    merge_if_due(index);
    return SQLITE_OK;
}

void aoticache_index_prepare_collection(aoticache_index *index, bool on)
{
    if (aoticache_index_enter(index, NULL) != AOTICACHE_OK)
        return;
    index->delays_merge = false;
    index->log_pages = 0;
    sqlite3_exec(index->db,
                 on ? "PRAGMA cache_size=-" CACHE_KIB
                    : "PRAGMA cache_size=-" USUAL_CACHE_KIB "; PRAGMA wal_autocheckpoint=" USUAL_MERGE_PAGES,
                 NULL, NULL, NULL);
    if (on)
        sqlite3_wal_hook(index->db, note_log, index);
    aoticache_index_leave(index);
}

void aoticache_index_delay_merge(aoticache_index *index, bool on)
{
    if (aoticache_index_enter(index, NULL) != AOTICACHE_OK)
        return;
    index->delays_merge = on;
    merge_if_due(index);
    aoticache_index_leave(index);
}

static aoticache_status delete_removals(aoticache_index *index, const int64_t *done, size_t count,
                                        aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = AOTICACHE_OK;
    if (count > 0)
        status = aoticache_index_prepare(index, SQL(DELETE_REMOVALS), &statement, ret_error);
    for (size_t i = 0, next; status == AOTICACHE_OK && i < count; i = next) {
        for (next = i + 1; next < count && done[next] == done[next - 1] + 1;) /* mostly all of them are one range */
            next++;
        sqlite3_bind_int64(statement, 1, done[i]);
        sqlite3_bind_int64(statement, 2, done[next - 1]);
        status = aoticache_index_execute(index, statement, NULL, ret_error);
    }
    return status;
}

static aoticache_status evict_one(aoticache_index *index, sqlite3_stmt *find, aoticache_index_victim *victim,
                                  aoticache_error *ret_error)
{
    aoticache_index_found found;
    sqlite3_bind_int64(find, 1, victim->entry_id);
    sqlite3_bind_int64(find, 2, victim->last_used_ns);
    aoticache_status status = aoticache_index_find(index, find, &found, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        return AOTICACHE_OK;
    if (status == AOTICACHE_OK)
        status = aoticache_index_remove_one(index, &found, ret_error);
    victim->is_gone = status == AOTICACHE_OK;
    return status;
}

static aoticache_status evict_rows(aoticache_index *index, aoticache_index_victim *victims, size_t count,
                                   uint64_t end_ns, size_t *ret_tried, aoticache_error *ret_error)
{
    aoticache_index_sums sums = {.count = 0};
    sqlite3_stmt *find = NULL;
    size_t tried = 0;
    aoticache_status status = aoticache_index_prepare(index, SQL(FIND_VICTIM), &find, ret_error);
    index->sums = &sums;
    while (status == AOTICACHE_OK && tried < count && (tried == 0 || aoticache_monotonic_ns() < end_ns))
        status = evict_one(index, find, &victims[tried++], ret_error);
    index->sums = NULL;
    if (status == AOTICACHE_OK)
        status = aoticache_index_sums_write(index, &sums, ret_error);
    aoticache_index_sums_free(&sums);
    *ret_tried = tried;
    return status;
}

aoticache_status aoticache_index_evict(aoticache_index *index, aoticache_index_victim *victims, size_t count,
                                       const int64_t *done, size_t done_count, uint64_t budget_ns, bool is_durable,
                                       aoticache_index_eviction *ret_eviction, aoticache_error *ret_error)
{
    aoticache_index_eviction eviction = {.tried = 0};
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    index->is_out_of_room = false;
    status = aoticache_index_begin(index, is_durable ? AOTICACHE_INDEX_DURABLE : AOTICACHE_INDEX_RELAXED, ret_error);
    if (status == AOTICACHE_OK) {
        const uint64_t end_ns = aoticache_monotonic_ns() + budget_ns;
        status = delete_removals(index, done, done_count, ret_error);
        if (status == AOTICACHE_OK)
            status = evict_rows(index, victims, count, end_ns, &eviction.tried, ret_error);
        eviction.entries = (uint64_t)-index->change.entries;
        eviction.objects = (uint64_t)-index->change.objects;
        eviction.bytes = (uint64_t)-index->change.bytes;
        status = aoticache_index_end(index, status, ret_error);
    }
    aoticache_index_leave(index);
    for (size_t i = 0; status != AOTICACHE_OK && i < count; i++)
        victims[i].is_gone = false;
    if (status == AOTICACHE_OK)
        *ret_eviction = eviction;
    return status;
}

/* A transaction of one statement; digest: its parameter, or NULL. With the index entered. */
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

/* A commit that waits for the disk makes those before it durable, with either journal. */
aoticache_status aoticache_index_settle(aoticache_index *index, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    index->is_out_of_room = false;
    status = execute_alone(index, AOTICACHE_INDEX_DURABLE, SQL(SETTLE), NULL, ret_error);
    aoticache_index_leave(index);
    return status;
}

aoticache_status aoticache_index_forget_removals(aoticache_index *index, const int64_t *done, size_t count,
                                                 aoticache_error *ret_error)
{
    if (count == 0)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_begin(index, AOTICACHE_INDEX_RELAXED, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_end(index, delete_removals(index, done, count, ret_error), ret_error);
    aoticache_index_leave(index);
    return status;
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
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_begin(index, AOTICACHE_INDEX_RELAXED, ret_error);
    if (status == AOTICACHE_OK) {
        status = forget_expired_rows(index, now_ns, limit, &forgotten, ret_error);
        status = aoticache_index_end(index, status, ret_error);
    }
    aoticache_index_leave(index);
    if (status == AOTICACHE_OK)
        *ret_forgotten = forgotten;
    return status;
}

static aoticache_status put_meta(aoticache_index *index, const char *name, int64_t value, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(PUT_META), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_text(statement, 1, name);
    sqlite3_bind_int64(statement, 2, value);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

aoticache_status aoticache_index_write_meta(aoticache_index *index, const char *name, int64_t value,
                                            aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_begin(index, AOTICACHE_INDEX_RELAXED, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_end(index, put_meta(index, name, value, ret_error), ret_error);
    aoticache_index_leave(index);
    return status;
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

/* Bytes of pages without use, in a file that can give them back. */
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
        sqlite3_snprintf(sizeof sql, sql, "PRAGMA incremental_vacuum(%u)", pages < 100000 ? (unsigned)pages + 1 : 100000u);
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

void aoticache_index_checkpoint(aoticache_index *index)
{
    if (aoticache_index_enter(index, NULL) != AOTICACHE_OK)
        return;
    sqlite3_wal_checkpoint_v2(index->db, "main", SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    aoticache_index_leave(index);
}

void aoticache_index_truncate_log(aoticache_index *index)
{
    if (aoticache_index_enter(index, NULL) != AOTICACHE_OK)
        return;
    sqlite3_busy_timeout(index->db, READERS_MS);
    sqlite3_wal_checkpoint_v2(index->db, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    aoticache_index_set_timeout(index);
    aoticache_index_leave(index);
}

bool aoticache_index_is_out_of_room(aoticache_index *index)
{
    if (aoticache_index_enter(index, NULL) != AOTICACHE_OK)
        return false;
    const bool is_out_of_room = index->is_out_of_room;
    aoticache_index_leave(index);
    return is_out_of_room;
}
