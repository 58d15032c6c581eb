/*
 * index/entries/file_digests: reads and writes the rows of file_digests.
 */
#include "index/entries/file_digests.h"
#include "index/connection/connection_internal.h"

#include <assert.h>
#include <string.h>

static aoticache_status read_row(aoticache_index *index, sqlite3_stmt *statement,
                                 aoticache_index_file_digest *ret_digest, aoticache_error *ret_error)
{
    int result = sqlite3_step(statement);
    if (result == SQLITE_DONE)
        return AOTICACHE_NOT_FOUND;
    if (result != SQLITE_ROW)
        return aoticache_index_fail(index, result, "cannot read digests of files", ret_error);
    if (aoticache_index_read_integer(statement, 0, &ret_digest->size) &&
        aoticache_index_read_integer(statement, 1, &ret_digest->modified_ns) &&
        aoticache_index_read_integer(statement, 2, &ret_digest->changed_ns) &&
        aoticache_index_read_integer(statement, 3, &ret_digest->boot) &&
        aoticache_index_read_blob(statement, 4, ret_digest->digest.bytes, AOTICACHE_DIGEST_BYTES))
        return AOTICACHE_OK;
    return aoticache_index_fail(index, SQLITE_CORRUPT, "cannot read digests of files", ret_error);
}

static_assert(sizeof(aoticache_index_file_digest) == 80, "no byte of it is without a value");

aoticache_status aoticache_index_read_file_digest(aoticache_index *index, uint64_t device, uint64_t inode,
                                                  aoticache_index_file_digest *ret_digest, aoticache_error *ret_error)
{
    const uint64_t file[] = {device, inode};
    const uint8_t *answer;
    size_t size;
    sqlite3_stmt *statement = NULL;
    if (aoticache_query_cache_find(index, AOTICACHE_INDEX_ASKS_FILE, file, sizeof file, &answer, &size) &&
        size == sizeof *ret_digest) {
        memcpy(ret_digest, answer, size);
        return AOTICACHE_OK;
    }
    aoticache_status status = aoticache_index_enter_statement(index, SQL(READ_FILE_DIGEST), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, (int64_t)device);
    sqlite3_bind_int64(statement, 2, (int64_t)inode);
    *ret_digest = (aoticache_index_file_digest){.device = device, .inode = inode};
    status = read_row(index, statement, ret_digest, ret_error);
    if (status == AOTICACHE_OK)
        aoticache_query_cache_note(index, AOTICACHE_INDEX_ASKS_FILE, file, sizeof file, ret_digest, sizeof *ret_digest);
    aoticache_index_leave_statement(index, statement);
    return status;
}

static aoticache_status put_row(aoticache_index *index, sqlite3_stmt *statement,
                                const aoticache_index_file_digest *digest, aoticache_error *ret_error)
{
    sqlite3_bind_int64(statement, 1, (int64_t)digest->device);
    sqlite3_bind_int64(statement, 2, (int64_t)digest->inode);
    sqlite3_bind_int64(statement, 3, digest->size);
    sqlite3_bind_int64(statement, 4, digest->modified_ns);
    sqlite3_bind_int64(statement, 5, digest->changed_ns);
    sqlite3_bind_int64(statement, 6, digest->boot);
    aoticache_index_bind_digest(statement, 7, &digest->digest);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

static aoticache_status put_rows(aoticache_index *index, const aoticache_index_file_digest *digests, size_t count,
                                 aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(FORGET_FILE_DIGESTS), &statement, ret_error);
    if (status == AOTICACHE_OK && count > 0) {
        sqlite3_bind_int64(statement, 1, digests[0].boot);
        status = aoticache_index_execute(index, statement, NULL, ret_error);
    }
    if (status == AOTICACHE_OK)
        status = aoticache_index_prepare(index, SQL(PUT_FILE_DIGEST), &statement, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++)
        status = put_row(index, statement, &digests[i], ret_error);
    return status;
}

aoticache_status aoticache_index_put_file_digests(aoticache_index *index, const aoticache_index_file_digest *digests,
                                                  size_t count, uint32_t wait_ms, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (wait_ms < index->wait_ms)
        index->wait_ms = wait_ms;
    status = aoticache_index_begin(index, AOTICACHE_INDEX_RELAXED, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_end(index, put_rows(index, digests, count, ret_error), ret_error);
    index->wait_ms = index->lock_timeout_ms;
    aoticache_index_leave(index);
    return status;
}
