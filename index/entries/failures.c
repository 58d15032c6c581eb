/*
 * index/entries/failures: failed compiles, remembered with their message until they may be retried. Listed by list.c.
 */
#include "index/connection/connection_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/arguments.h"

#define MAX_MESSAGE_BYTES (1 << 20)

/* Reads how many failures of the key were recorded in a row; 0 if there is none. */
static aoticache_status count_failures(aoticache_index *index, const aoticache_digest *key, uint32_t *ret_count,
                                       aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(COUNT_FAILURES), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, key);
    status = aoticache_index_fetch(index, statement, ret_error);
    if (status == AOTICACHE_OK && !aoticache_index_read_count(statement, 0, ret_count))
        status = aoticache_index_fail_row(index, "failures", ret_error);
    else if (status == AOTICACHE_NOT_FOUND)
        *ret_count = 0;
    sqlite3_reset(statement);
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

/* Returns when the compile may be retried, after `earlier` failures before this one. */
static int64_t retry_time(const aoticache_index_failure *failure, uint32_t earlier)
{
    int64_t delay = failure->delay_ns;
    if (delay <= 0)
        return failure->retry_ns;
    for (uint32_t i = 0; i < earlier && delay < failure->max_delay_ns; i++)
        delay = delay > INT64_MAX / 2 ? INT64_MAX : delay * 2;
    if (delay > failure->max_delay_ns)
        delay = failure->max_delay_ns;
    return failure->failed_ns > INT64_MAX - delay ? INT64_MAX : failure->failed_ns + delay;
}

static aoticache_status put_row(aoticache_index *index, const aoticache_index_failure *failure,
                                aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    uint32_t earlier = 0;
    aoticache_status status = count_failures(index, &failure->key, &earlier, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_prepare(index, SQL(PUT_FAILURE), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, &failure->key);
    aoticache_index_bind_text(statement, 2, failure->op);
    aoticache_index_bind_text(statement, 3, failure->description);
    size_t length = strnlen(failure->message, MAX_MESSAGE_BYTES); /* a compiler's output may be long */
    sqlite3_bind_text(statement, 4, failure->message, (int)length, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 5, failure->failed_ns);
    sqlite3_bind_int64(statement, 6, retry_time(failure, earlier));
    sqlite3_bind_int64(statement, 7, earlier < UINT32_MAX ? (sqlite3_int64)earlier + 1 : UINT32_MAX);
    index->change.failures += earlier == 0 ? 1 : 0;
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

static bool text_fits(const char *text)
{
    return text != NULL && strnlen(text, MAX_MESSAGE_BYTES + 1) <= MAX_MESSAGE_BYTES;
}

aoticache_status aoticache_index_put_failure(aoticache_index *index, const aoticache_index_failure *failure,
                                             aoticache_error *ret_error)
{
    if (index == NULL || failure == NULL || failure->message == NULL || !text_fits(failure->op) ||
        !text_fits(failure->description))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "aoticache_index_put_failure: an argument or text is NULL, or a text has more "
                                   "than %d bytes",
                                   MAX_MESSAGE_BYTES);
    aoticache_status status = aoticache_index_enter_write(index, AOTICACHE_INDEX_DURABLE, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_index_leave_write(index, put_row(index, failure, ret_error), ret_error);
}

static aoticache_status copy_message(aoticache_index *index, sqlite3_stmt *row, char **ret_message,
                                     aoticache_error *ret_error)
{
    const char *message;
    if (!aoticache_index_read_text(row, 0, &message))
        return aoticache_index_fail_row(index, "failures", ret_error);
    char *copy = strdup(message);
    if (copy == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "index %s: out of memory", index->path);
    *ret_message = copy;
    return AOTICACHE_OK;
}

aoticache_status aoticache_index_lookup_failure(aoticache_index *index, const aoticache_digest *key, int64_t now_ns,
                                                char **ret_message, aoticache_error *ret_error)
{
    if (index == NULL || key == NULL || ret_message == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, key, ret_message);
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, SQL(LOOKUP_FAILURE), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, key);
    sqlite3_bind_int64(statement, 2, now_ns);
    status = aoticache_index_fetch(index, statement, ret_error);
    if (status == AOTICACHE_OK)
        status = copy_message(index, statement, ret_message, ret_error);
    aoticache_index_leave_statement(index, statement);
    return status;
}

static aoticache_status forget_rows(aoticache_index *index, const aoticache_digest *key, int64_t before_ns,
                                    aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    uint64_t forgotten = 0;
    aoticache_status status;
    if (key != NULL) {
        status = aoticache_index_execute_digest(index, SQL(FORGET_FAILURE), key, &forgotten, ret_error);
    } else {
        status = aoticache_index_prepare(index, SQL(FORGET_FAILURES), &statement, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        sqlite3_bind_int64(statement, 1, before_ns);
        status = aoticache_index_execute(index, statement, &forgotten, ret_error);
    }
    index->change.failures -= (int64_t)forgotten;
    return status;
}

aoticache_status aoticache_index_forget_failures(aoticache_index *index, const aoticache_digest *key, int64_t before_ns,
                                                 aoticache_error *ret_error)
{
    if (index == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index);
    aoticache_status status = aoticache_index_enter_write(index, AOTICACHE_INDEX_DURABLE, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_index_leave_write(index, forget_rows(index, key, before_ns, ret_error), ret_error);
}
