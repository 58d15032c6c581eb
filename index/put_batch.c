/*
 * index/put_batch: see put_batch.h.
 *
 * A transaction of its own for each entry keeps SQLite's write lock free between them, and a wait for the disk in each
 * would take longer than all else. Without it a power loss can take the last transactions, never their order: so the
 * one that ends the batch waits, and with it all before it are on the disk.
 */
#include "index/put_batch.h"

#include "index/connection.h"

/* put sets what it finds unset: the field says what the connection is to be taken for. */
static aoticache_status set_waiting(aoticache_index *index, bool waits, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const char *sql = waits ? "PRAGMA synchronous=EXTRA" : "PRAGMA synchronous=NORMAL";
    int result = sqlite3_exec(index->db, sql, NULL, NULL, NULL);
    if (result != SQLITE_OK)
        status = aoticache_index_fail(index, result, sql, ret_error);
    else
        index->durability = AOTICACHE_INDEX_DURABLE;
    aoticache_index_leave(index);
    return status;
}

static aoticache_status put_all(aoticache_index *index, size_t count, aoticache_index_next_entry_fn next, void *user,
                                int64_t *ret_entry_ids, aoticache_error *ret_error)
{
    aoticache_status status = set_waiting(index, false, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        aoticache_index_entry entry;
        status = next(user, i, &entry, ret_error);
        if (status == AOTICACHE_OK && i + 1 == count)
            status = set_waiting(index, true, ret_error);
        if (status == AOTICACHE_OK)
            status = aoticache_index_put_numbered(index, &entry, &ret_entry_ids[i], ret_error);
    }
    return status;
}

aoticache_status aoticache_index_put_batch(const aoticache_index_options *options, size_t count,
                                           aoticache_index_next_entry_fn next, void *user, int64_t *ret_entry_ids,
                                           aoticache_error *ret_error)
{
    aoticache_index *index = NULL;
    if (count == 0)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_open(options, &index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = put_all(index, count, next, user, ret_entry_ids, ret_error);
    aoticache_index_close(index);
    return status;
}

