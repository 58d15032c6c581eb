/*
 * index/connection/checkpoint: merging the log (-wal) into the file, which SQLite calls a checkpoint.
 *
 * SQLite before 3.51.3 can lose pages if a merge begins at the same moment at which a writer restarts the log
 * (https://sqlite.org/wal.html#walresetbug): the merge then records for the new log the number of merged pages of the old
 * one, and the pages written next are never merged. Collections often merge concurrently with puts, so this can happen here.
 * It is prevented for every version: a log that has a reader cannot restart, and each merge runs while a separate connection
 * holds a reader. If the whole log was merged when the reader began, it reads only the file and keeps the merge from writing
 * to it: there is then nothing to do.
 *
 * Nothing else merges: the hook below replaces SQLite's own. (Closing the last connection merges too, but then there is no
 * other connection.)
 */
#include "index/connection/connection_internal.h"
#include "index/eviction/eviction.h"

#define MANY_PAGES 64000 /* 256 MB of log: far more than accumulates while other processes merge, too */

/* Opens a reader of the log; NULL if that is not possible now. */
static sqlite3 *begin_reader(aoticache_index *index)
{
    sqlite3 *reader = NULL;
    if (aoticache_index_vfs_connect(index, index->name, SQLITE_OPEN_READONLY, &reader) == SQLITE_OK &&
        sqlite3_exec(reader, "BEGIN; PRAGMA user_version", NULL, NULL, NULL) == SQLITE_OK)
        return reader;
    sqlite3_close(reader);
    return NULL;
}

void aoticache_index_merge_log(aoticache_index *index)
{
    sqlite3 *reader = begin_reader(index);
    if (reader == NULL)
        return;
    sqlite3_wal_checkpoint_v2(index->db, "main", SQLITE_CHECKPOINT_PASSIVE, &index->log_pages, NULL);
    sqlite3_close(reader);
}

/* Notes the size of the log; SQLite calls this after each commit. */
static int note_log(void *user, sqlite3 *db, const char *name, int pages)
{
    aoticache_index *index = user;
    (void)db, (void)name;
    index->log_pages = pages;
    if (pages >= (index->is_collecting ? MANY_PAGES : AOTICACHE_INDEX_LOG_PAGES))
        aoticache_index_merge_log(index);
    return SQLITE_OK;
}

void aoticache_index_checkpoint_prepare(aoticache_index *index)
{
    sqlite3_wal_hook(index->db, note_log, index);
}
