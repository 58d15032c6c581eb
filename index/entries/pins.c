/*
 * index/entries/pins: writes and lists the rows of pinned and tagged keys.
 */
#include "index/entries/pins.h"
#include "base/arguments.h"
#include "index/connection/connection_internal.h"

static aoticache_status insert_pin(aoticache_index *index, const aoticache_index_pins *pin, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(PUT_MARK), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, &pin->key);
    sqlite3_bind_int64(statement, 2, pin->is_pinned ? 1 : 0);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

static aoticache_status insert_tag(aoticache_index *index, const aoticache_digest *key, const char *tag,
                                   aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(INSERT_TAG), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, key);
    aoticache_index_bind_text(statement, 2, tag);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

static aoticache_status put_rows(aoticache_index *index, const aoticache_index_pins *pin, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_execute_digest(index, SQL(DELETE_TAGS), &pin->key, NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (!pin->is_pinned && pin->tag_count == 0)
        return aoticache_index_execute_digest(index, SQL(DELETE_MARK), &pin->key, NULL, ret_error);
    status = insert_pin(index, pin, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < pin->tag_count; i++)
        status = insert_tag(index, &pin->key, pin->tags[i], ret_error);
    return status;
}

aoticache_status aoticache_index_put_pins(aoticache_index *index, const aoticache_index_pins *pins, size_t count,
                                          aoticache_error *ret_error)
{
    if (index == NULL || pins == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, pins);
    aoticache_status status = aoticache_index_enter_write(index, AOTICACHE_INDEX_DURABLE, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++)
        status = put_rows(index, &pins[i], ret_error);
    return aoticache_index_leave_write(index, status, ret_error);
}

struct listing {
    aoticache_index_pins_fn callback;
    void *user;
};

static bool forward_pin(void *user, sqlite3_stmt *row, bool *ret_continues)
{
    const struct listing *listing = user;
    aoticache_digest key;
    int64_t pinned;
    const char *tag = NULL;
    const bool has_tag = sqlite3_column_type(row, 2) != SQLITE_NULL;
    if (!aoticache_index_read_blob(row, 0, key.bytes, AOTICACHE_DIGEST_BYTES) ||
        !aoticache_index_read_integer(row, 1, &pinned) || (has_tag && !aoticache_index_read_text(row, 2, &tag)))
        return false;
    *ret_continues = listing->callback(listing->user, &key, pinned == 1, tag);
    return true;
}

aoticache_status aoticache_index_list_pins(aoticache_index *index, const aoticache_digest *key, const char *tag,
                                           aoticache_index_pins_fn callback, void *user, aoticache_error *ret_error)
{
    if (index == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, callback);
    if (key != NULL && tag != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: key and tag exclude each other", __func__);
    struct listing listing = {.callback = callback, .user = user};
    aoticache_index_statement which = key != NULL   ? SQL(LIST_MARKS_OF_KEY)
                                      : tag != NULL ? SQL(LIST_MARKS_OF_TAG)
                                                    : SQL(LIST_MARKS);
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, which, &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (key != NULL)
        aoticache_index_bind_digest(statement, 1, key);
    else if (tag != NULL)
        aoticache_index_bind_text(statement, 1, tag);
    return aoticache_index_walk_and_leave(index, statement, "pins", forward_pin, &listing, ret_error);
}
