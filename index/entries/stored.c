/*
 * index/entries/stored: the entries of one operator with their requests.
 */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/arguments.h"
#include "index/connection/connection_internal.h"

#define MAX_BATCH 100000 /* maximum number of entries read by one call */

/* ---- rows in the query cache (query_cache/query_cache.c) ---- */

/* Followed by the guard with its NUL, and the encoding. */
struct kept_row {
    int64_t entry_id, rank, created_ns;
    uint64_t compile_ns;
    aoticache_digest key, artifact;
    uint8_t requirements[AOTICACHE_INDEX_REQUIREMENT_BYTES];
    uint32_t guard_size, encoding_size;
};
static_assert(sizeof(struct kept_row) == 120, "no byte of it is without a value");

struct question {
    int64_t limit, after_entry;
    char op[240];
};

struct walk {
    aoticache_index_stored_fn callback;
    void *user;
    aoticache_query_rows kept;
};

/* Returns its size; 0: the name is too long to be cached. */
static size_t make_question(const char *op, int64_t after_entry, size_t limit, struct question *ret_question)
{
    const size_t size = strlen(op);
    if (size > sizeof ret_question->op)
        return 0;
    ret_question->limit = (int64_t)limit;
    ret_question->after_entry = after_entry;
    memcpy(ret_question->op, op, size);
    return offsetof(struct question, op) + size;
}

static void keep_row(aoticache_query_rows *rows, const aoticache_index_stored *stored)
{
    struct kept_row row = {.entry_id = stored->entry_id,
                           .rank = stored->rank,
                           .created_ns = stored->created_ns,
                           .compile_ns = stored->compile_ns,
                           .key = stored->key,
                           .artifact = stored->artifact,
                           .guard_size = (uint32_t)strlen(stored->guard) + 1,
                           .encoding_size = (uint32_t)stored->encoding_size};
    memcpy(row.requirements, stored->requirements, sizeof row.requirements);
    aoticache_query_cache_add(rows, &row, sizeof row);
    aoticache_query_cache_add(rows, stored->guard, row.guard_size);
    aoticache_query_cache_add(rows, stored->encoding, row.encoding_size);
}

/* Returns the bytes of the row; 0: it is not valid. */
static size_t recall_row(const uint8_t *bytes, size_t size, aoticache_index_stored *ret_stored)
{
    struct kept_row row;
    if (size < sizeof row)
        return 0;
    memcpy(&row, bytes, sizeof row);
    const uint64_t all = sizeof row + (uint64_t)row.guard_size + row.encoding_size;
    const char *guard = (const char *)bytes + sizeof row;
    if (size < all || row.guard_size == 0 || guard[row.guard_size - 1] != '\0')
        return 0;
    *ret_stored = (aoticache_index_stored){.entry_id = row.entry_id,
                                           .key = row.key,
                                           .artifact = row.artifact,
                                           .rank = row.rank,
                                           .created_ns = row.created_ns,
                                           .compile_ns = row.compile_ns,
                                           .guard = guard,
                                           .encoding = bytes + sizeof row + row.guard_size,
                                           .encoding_size = row.encoding_size};
    memcpy(ret_stored->requirements, row.requirements, sizeof row.requirements);
    return (size_t)all;
}

static bool are_rows(const uint8_t *bytes, size_t size)
{
    aoticache_index_stored stored;
    for (size_t at = 0, row; at < size; at += row)
        if ((row = recall_row(bytes + at, size - at, &stored)) == 0)
            return false;
    return true;
}

static bool recall(aoticache_index *index, const struct question *question, size_t question_size,
                   aoticache_index_stored_fn callback, void *user)
{
    const uint8_t *answer;
    size_t size;
    if (question_size == 0 ||
        !aoticache_query_cache_find(index, AOTICACHE_INDEX_ASKS_STORED, question, question_size, &answer, &size) ||
        !are_rows(answer, size))
        return false;
    for (size_t at = 0; at < size;) {
        aoticache_index_stored stored;
        at += recall_row(answer + at, size - at, &stored);
        if (!callback(user, &stored))
            break;
    }
    return true;
}

/* ---- reading them ---- */

/* Reads the encoding. The bytes are borrowed until the next step. An empty encoding has no address. */
static bool read_encoding(sqlite3_stmt *row, int column, aoticache_index_stored *stored)
{
    if (sqlite3_column_type(row, column) != SQLITE_BLOB)
        return false;
    stored->encoding = sqlite3_column_blob(row, column);
    stored->encoding_size = (size_t)sqlite3_column_bytes(row, column);
    return stored->encoding != NULL || stored->encoding_size == 0;
}

/* Reads the columns of the statement LIST_STORED. */
static bool read_stored(sqlite3_stmt *row, aoticache_index_stored *stored)
{
    return aoticache_index_read_integer(row, 0, &stored->entry_id) &&
           aoticache_index_read_blob(row, 1, stored->key.bytes, AOTICACHE_DIGEST_BYTES) &&
           aoticache_index_read_blob(row, 2, stored->artifact.bytes, AOTICACHE_DIGEST_BYTES) &&
           aoticache_index_read_integer(row, 3, &stored->rank) &&
           aoticache_index_read_integer(row, 4, &stored->created_ns) &&
           aoticache_index_read_unsigned(row, 5, &stored->compile_ns) &&
           aoticache_index_read_blob(row, 6, stored->requirements, AOTICACHE_INDEX_REQUIREMENT_BYTES) &&
           aoticache_index_read_text(row, 7, &stored->guard) && read_encoding(row, 8, stored);
}

static bool forward_row(void *user, sqlite3_stmt *row, bool *ret_continues)
{
    struct walk *walk = user;
    aoticache_index_stored stored;
    memset(&stored, 0, sizeof stored);
    if (!read_stored(row, &stored))
        return false;
    if (walk->kept.is_wanted)
        keep_row(&walk->kept, &stored);
    *ret_continues = walk->callback(walk->user, &stored);
    walk->kept.is_wanted = walk->kept.is_wanted && *ret_continues;
    return true;
}

aoticache_status aoticache_index_list_stored(aoticache_index *index, const char *op, int64_t after_entry, size_t limit,
                                             aoticache_index_stored_fn callback, void *user, aoticache_error *ret_error)
{
    if (index == NULL || op == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, op, callback);
    struct question question;
    const size_t question_size = make_question(op, after_entry, limit, &question);
    if (recall(index, &question, question_size, callback, user))
        return AOTICACHE_OK;
    struct walk walk = {.callback = callback, .user = user};
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, SQL(LIST_STORED), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    walk.kept.is_wanted = question_size > 0 && aoticache_query_cache_wants(index);
    aoticache_index_bind_text(statement, 1, op);
    sqlite3_bind_int64(statement, 2, after_entry);
    sqlite3_bind_int64(statement, 3, limit < MAX_BATCH ? (sqlite3_int64)limit : MAX_BATCH);
    status = aoticache_index_walk(index, statement, "details", forward_row, &walk, ret_error);
    walk.kept.is_wanted = walk.kept.is_wanted && status == AOTICACHE_OK;
    aoticache_query_cache_note_rows(index, AOTICACHE_INDEX_ASKS_STORED, &question, question_size, &walk.kept);
    aoticache_index_leave_statement(index, statement);
    return status;
}
