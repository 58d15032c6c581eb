/*
 * index/checkpoint: what the log (-wal) holds goes into the file; SQLite calls it a checkpoint.
 *
 * SQLite before 3.51.3 can lose pages where a merge begins at the very moment at which a writer begins the log anew
 * (https://sqlite.org/wal.html#walresetbug): the merge then says of the new log that as much of it is in the file as there
 * was of the old one, and what is written next never comes there. Collections merge beside putters all the time, so this is
 * more than a rarity here. What keeps it away, with every version: a log that has a reader cannot begin anew, and each
 * merge has one at its side, on a connection of its own. Where all of the log was in the file when the reader came, it
 * reads the file alone and keeps the merge from touching that: there was nothing to do then.
 *
 * Nothing else merges: the hook below is in the place of SQLite's own. (Closing the last connection does, and has no other
 * beside it.)
 */
#include "index/collection.h"
#include "index/connection.h"

#define MANY_PAGES 64000     /* 256 MB of log: far more than gathers while others merge, too */
#define USUAL_CACHE_KIB 2000 /* SQLite's own */
#define LOG_BYTES 16777216   /* that are kept when the log begins anew */
#define READERS_MS 50

/* NULL: it cannot be had now. */
static sqlite3 *begin_reader(aoticache_index *index)
{
    sqlite3 *reader = NULL;
    if (aoticache_index_vfs_connect(index, index->name, SQLITE_OPEN_READONLY, &reader) == SQLITE_OK &&
        sqlite3_exec(reader, "BEGIN; PRAGMA user_version", NULL, NULL, NULL) == SQLITE_OK)
        return reader;
    sqlite3_close(reader);
    return NULL;
}

/* As far as no reader needs the log. Where it cannot be now, the next commit tries again. */
static void merge(aoticache_index *index)
{
    sqlite3 *reader = begin_reader(index);
    if (reader == NULL)
        return;
    sqlite3_wal_checkpoint_v2(index->db, "main", SQLITE_CHECKPOINT_PASSIVE, &index->log_pages, NULL);
    sqlite3_close(reader);
}

/* After a commit. */
static int note_log(void *user, sqlite3 *db, const char *name, int pages)
{
    aoticache_index *index = user;
    (void)db, (void)name;
    index->log_pages = pages;
    if (pages >= (index->is_collecting ? MANY_PAGES : AOTICACHE_INDEX_LOG_PAGES))
        merge(index);
    return SQLITE_OK;
}

void aoticache_index_checkpoint_prepare(aoticache_index *index)
{
    sqlite3_wal_hook(index->db, note_log, index);
}

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
        merge(index);
    aoticache_index_leave(index);
}

void aoticache_index_checkpoint(aoticache_index *index)
{
    if (aoticache_index_enter(index, NULL) != AOTICACHE_OK)
        return;
    merge(index);
    aoticache_index_leave(index);
}

/*
 * Giving room back is for who has the write lock, which keeps the log as it is, too. SQLite takes it by itself, but goes on
 * without it where it is not to be had: so it is seen first that it is, and the gate keeps it so.
 */
void aoticache_index_truncate_log(aoticache_index *index)
{
    if (aoticache_index_enter(index, NULL) != AOTICACHE_OK)
        return;
    merge(index);
    index->wait_ms = READERS_MS;
    aoticache_index_gate_enter(index);
    if (index->is_in_gate && sqlite3_exec(index->db, "BEGIN IMMEDIATE; ROLLBACK", NULL, NULL, NULL) == SQLITE_OK)
        sqlite3_wal_checkpoint_v2(index->db, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    aoticache_index_gate_leave(index);
    index->wait_ms = index->lock_timeout_ms;
    aoticache_index_leave(index);
}
