/*
 * index/connection/handle: the public side of an index: opened, closed, and entered around every use.
 *
 * Enter takes the mutex and ensures that there is a connection that belongs to this process. Many writes may share one
 * transaction (bulk).
 */
#include "base/log.h"
#include "index/connection/connection_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arguments.h"

/* ---- every use ---- */

/*
 * Connects an index that was opened without a connection because the query cache sufficed. If the disk is full, or turns out
 * not to be writable, it is opened only for reading, as when a cache is opened.
 */
static aoticache_status connect_late(aoticache_index *index, aoticache_error *ret_error)
{
    aoticache_error detail = {.message = ""};
    aoticache_status status = aoticache_index_connect(index, &detail);
    if (status == AOTICACHE_IO && index->query_cache.was_believed && !index->read_only) {
        index->read_only = true;
        if (aoticache_index_connect(index, ret_error) == AOTICACHE_OK) {
            aoticache_log(&index->logger, AOTICACHE_LOG_WARNING, "%s; the index is opened for reading only",
                          detail.message);
            return AOTICACHE_OK;
        }
        index->read_only = false;
    }
    if (status == AOTICACHE_NOT_FOUND)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "index %s: the file no longer exists", index->path);
    return status == AOTICACHE_OK ? status : aoticache_error_set(ret_error, status, "%s", detail.message);
}

aoticache_status aoticache_index_enter(aoticache_index *index, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_fork_enter(index->path, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    pthread_mutex_lock(&index->lock);
    if (__builtin_expect(index->is_without_shm, 0) && aoticache_index_is_outdated(index))
        aoticache_index_disconnect(index);
    if (__builtin_expect(index->db != NULL, 1))
        return AOTICACHE_OK;
    status = connect_late(index, ret_error);
    if (status != AOTICACHE_OK)
        aoticache_index_leave(index);
    return status;
}

/*
 * Ends an open transaction by closing its connection if it could not be rolled back (memory was short): an open transaction
 * would keep all other processes from writing, and the next one here could not begin.
 */
void aoticache_index_leave(aoticache_index *index)
{
    if (__builtin_expect(index->db != NULL && !index->is_bulk && sqlite3_get_autocommit(index->db) == 0, 0))
        aoticache_index_disconnect(index);
    pthread_mutex_unlock(&index->lock);
    aoticache_index_fork_leave();
}

aoticache_status aoticache_index_enter_statement(aoticache_index *index, aoticache_index_statement which,
                                                 sqlite3_stmt **ret_statement, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_prepare(index, which, ret_statement, ret_error);
    if (status != AOTICACHE_OK)
        aoticache_index_leave(index);
    return status;
}

void aoticache_index_leave_statement(aoticache_index *index, sqlite3_stmt *statement)
{
    sqlite3_reset(statement);
    aoticache_index_leave(index);
}

aoticache_status aoticache_index_read_row(aoticache_index *index, aoticache_index_statement which, int64_t parameter,
                                          aoticache_index_read_fn read, void *result, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, which, &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (sqlite3_bind_parameter_count(statement) > 0)
        sqlite3_bind_int64(statement, 1, parameter);
    status = aoticache_index_fetch(index, statement, ret_error);
    if (status == AOTICACHE_OK)
        status = read(index, statement, result, ret_error);
    aoticache_index_leave_statement(index, statement);
    return status;
}

aoticache_status aoticache_index_walk_and_leave(aoticache_index *index, sqlite3_stmt *statement, const char *table,
                                                aoticache_index_row_fn read, void *user, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_walk(index, statement, table, read, user, ret_error);
    aoticache_index_leave_statement(index, statement);
    return status;
}

aoticache_status aoticache_index_enter_write(aoticache_index *index, aoticache_index_durability durability,
                                             aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_begin(index, durability, ret_error);
    if (status != AOTICACHE_OK)
        aoticache_index_leave(index);
    return status;
}

aoticache_status aoticache_index_leave_write(aoticache_index *index, aoticache_status status,
                                             aoticache_error *ret_error)
{
    status = aoticache_index_end(index, status, ret_error);
    aoticache_index_leave(index);
    return status;
}

/* ---- many writes in one transaction ---- */

aoticache_status aoticache_index_bulk_begin(aoticache_index *index, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_begin(index, AOTICACHE_INDEX_DURABLE, ret_error);
    index->bulk_status = AOTICACHE_OK;
    index->is_bulk = status == AOTICACHE_OK;
    aoticache_index_leave(index);
    return status;
}

aoticache_status aoticache_index_bulk_end(aoticache_index *index, aoticache_status status, aoticache_error *ret_error)
{
    aoticache_status entered = aoticache_index_enter(index, ret_error);
    if (entered != AOTICACHE_OK)
        return entered;
    index->is_bulk = false;
    if (status == AOTICACHE_OK && index->bulk_status != AOTICACHE_OK)
        status =
            aoticache_error_set(ret_error, index->bulk_status, "index %s: one write of a batch failed", index->path);
    status = aoticache_index_end(index, status, ret_error);
    aoticache_index_leave(index);
    return status;
}

/* ---- open and close ---- */

static void index_free(aoticache_index *index)
{
    aoticache_query_cache_clear(&index->query_cache);
    aoticache_index_vfs_close_directory(index);
    pthread_mutex_destroy(&index->lock);
    free(index->name);
    free(index->path);
    free(index);
}

static aoticache_index *index_create(const aoticache_index_options *options)
{
    aoticache_index *index = calloc(1, sizeof *index);
    if (index == NULL)
        return NULL;
    pthread_mutex_init(&index->lock, NULL);
    index->gate_fd = -1;
    index->read_only = options->read_only;
    index->lock_timeout_ms = options->lock_timeout_ms;
    index->logger = options->logger;
    index->is_group_shared = options->is_group_shared;
    index->path = strdup(options->path);
    if (index->path != NULL)
        return index;
    index_free(index);
    return NULL;
}

aoticache_status aoticache_index_open(const aoticache_index_options *options, aoticache_index **ret_index,
                                      aoticache_error *ret_error)
{
    if (options == NULL || ret_index == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, options, ret_index);
    if (options->path == NULL || options->path[0] == '\0')
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: options->path is NULL or empty", __func__);
    aoticache_status status = aoticache_index_fork_enter(options->path, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index *index = index_create(options);
    if (index == NULL)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "index %s: out of memory", options->path);
    else
        status = aoticache_index_vfs_open_directory(index, options->directory_fd, ret_error);
    if (status == AOTICACHE_OK)
        aoticache_query_cache_open(index);
    if (status == AOTICACHE_OK && !index->query_cache.is_believed)
        status = aoticache_index_connect(index, ret_error);
    if (status == AOTICACHE_OK) {
        aoticache_index_register(index);
        *ret_index = index;
    } else if (index != NULL) {
        index_free(index);
    }
    aoticache_index_fork_leave();
    return status;
}

void aoticache_index_close(aoticache_index *index)
{
    if (index == NULL)
        return;
    int saved = errno;
    bool usable = aoticache_index_fork_enter(index->path, NULL) == AOTICACHE_OK;
    aoticache_index_unregister(index);
    if (usable) {
        aoticache_index_disconnect(index);
        aoticache_query_cache_keep(index);
    }
    index_free(index);
    if (usable)
        aoticache_index_fork_leave();
    errno = saved;
}

void aoticache_index_at_exit(aoticache_index *index)
{
    if (aoticache_index_fork_enter(index->path, NULL) != AOTICACHE_OK)
        return;
    pthread_mutex_lock(&index->lock);
    /* Merging costs this process some disk time; leaving the log would cost each later process more: it has to connect and
     * read the log. */
    if (index->db != NULL && !index->is_bulk && aoticache_index_has_wal(index))
        aoticache_index_disconnect(index);
    aoticache_query_cache_keep(index);
    pthread_mutex_unlock(&index->lock);
    aoticache_index_fork_leave();
}
