/*
 * index/connection/checkpoint: merging the log (-wal) into the file, which SQLite calls a checkpoint.
 *
 * SQLite before 3.51.3 can lose pages where a merge begins at the very moment at which a writer begins the log again
 * (https://sqlite.org/wal.html#walresetbug): the merge then says of the new log that as much of it is in the file as there
 * was of the old one, and what is written next never comes there. Collections merge beside putters all the time, so this is
 * more than a rarity here. What keeps it away, with every version: a log that has a reader cannot begin again, and each
 * merge has one at its side, on a connection of its own. Where all of the log was in the file when the reader came, it
 * reads the file alone and keeps the merge from touching that: there was nothing to do then.
 *
 * Nothing else merges: the hook below is in the place of SQLite's own. (Closing the last connection does, and has no other
 * beside it.)
 */
#include "index/connection/internal.h"
#include "index/eviction/eviction.h"

#define MANY_PAGES 64000 /* 256 MB of log: far more than gathers while others merge, too */

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

/* SQLite calls this after each commit. */
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
