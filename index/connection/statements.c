/*
 * index/connection/statements: prepares each statement when it is first used, runs it, and moves values in and out. Also
 * begins and ends the write transaction. The file that uses a statement documents its meaning.
 */
#include "index/connection/connection_internal.h"

#include <limits.h>
#include <string.h>

static const char *const statement_sql[AOTICACHE_INDEX_STATEMENT_COUNT] = {
#define STATEMENT_SQL(name, sql) [AOTICACHE_INDEX_SQL_##name] = sql,
    AOTICACHE_INDEX_STATEMENT_LIST(STATEMENT_SQL)
#undef STATEMENT_SQL
};

aoticache_status aoticache_index_prepare(aoticache_index *index, aoticache_index_statement which,
                                         sqlite3_stmt **ret_statement, aoticache_error *ret_error)
{
    sqlite3_stmt **slot = &index->statements[which];
    if (*slot == NULL) {
        int result = sqlite3_prepare_v3(index->db, statement_sql[which], -1, SQLITE_PREPARE_PERSISTENT, slot, NULL);
        if (result != SQLITE_OK)
            return aoticache_index_fail(index, result, "cannot prepare a statement", ret_error);
    }
    *ret_statement = *slot;
    return AOTICACHE_OK;
}

aoticache_status aoticache_index_execute(aoticache_index *index, sqlite3_stmt *statement, uint64_t *ret_changes,
                                         aoticache_error *ret_error)
{
    int result = sqlite3_step(statement);
    aoticache_status status = AOTICACHE_OK;
    if (result == SQLITE_ROW)
        status = aoticache_index_fail(index, SQLITE_CORRUPT, "unexpected row", ret_error);
    else if (result != SQLITE_DONE)
        status = aoticache_index_fail(index, result, "cannot write", ret_error);
    else if (ret_changes != NULL)
        *ret_changes = (uint64_t)sqlite3_changes(index->db);
    sqlite3_reset(statement);
    return status;
}

aoticache_status aoticache_index_execute_digest(aoticache_index *index, aoticache_index_statement which,
                                                const aoticache_digest *digest, uint64_t *ret_changes,
                                                aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, which, &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (digest != NULL)
        aoticache_index_bind_digest(statement, 1, digest);
    return aoticache_index_execute(index, statement, ret_changes, ret_error);
}

aoticache_status aoticache_index_put_meta(aoticache_index *index, const char *name, int64_t value,
                                          aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(PUT_META), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_text(statement, 1, name);
    sqlite3_bind_int64(statement, 2, value);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

aoticache_status aoticache_index_fetch(aoticache_index *index, sqlite3_stmt *statement, aoticache_error *ret_error)
{
    int result = sqlite3_step(statement);
    if (result == SQLITE_ROW)
        return AOTICACHE_OK;
    return result == SQLITE_DONE ? AOTICACHE_NOT_FOUND : aoticache_index_fail(index, result, "cannot read", ret_error);
}

aoticache_status aoticache_index_probe_digest(aoticache_index *index, aoticache_index_statement which,
                                              const aoticache_digest *digest, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, which, &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, digest);
    status = aoticache_index_fetch(index, statement, ret_error);
    sqlite3_reset(statement);
    return status;
}

aoticache_status aoticache_index_walk(aoticache_index *index, sqlite3_stmt *statement, const char *table,
                                      aoticache_index_row_fn read, void *user, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    bool continues = true;
    int result = SQLITE_ROW;
    while (status == AOTICACHE_OK && continues && (result = sqlite3_step(statement)) == SQLITE_ROW)
        if (!read(user, statement, &continues))
            status = aoticache_index_fail_row(index, table, ret_error);
    if (status == AOTICACHE_OK && result != SQLITE_ROW && result != SQLITE_DONE)
        status = aoticache_index_fail(index, result, "cannot list", ret_error);
    sqlite3_reset(statement);
    return status;
}

/* ---- transactions ---- */

const char *aoticache_index_relaxed_sql(aoticache_index *index)
{
    char mode[16];
    aoticache_index_journal_pragma(index, NULL, mode);
    /* With a journal that was synced once, NORMAL could roll back a page that was only partly written to the disk. */
    return strcmp(mode, "wal") == 0 ? "PRAGMA synchronous=NORMAL" : "PRAGMA synchronous=FULL";
}

/*
 * Sets the durability. EXTRA rather than FULL: the same with WAL, but with a rollback journal only EXTRA makes a commit (the
 * journal's removal) survive power loss.
 */
static aoticache_status set_durability(aoticache_index *index, aoticache_index_durability durability,
                                       aoticache_error *ret_error)
{
    if (index->durability == durability)
        return AOTICACHE_OK;
    const char *sql =
        durability == AOTICACHE_INDEX_DURABLE ? "PRAGMA synchronous=EXTRA" : aoticache_index_relaxed_sql(index);
    int result = sqlite3_exec(index->db, sql, NULL, NULL, NULL);
    if (result != SQLITE_OK)
        return aoticache_index_fail(index, result, sql, ret_error);
    index->durability = durability;
    return AOTICACHE_OK;
}

struct beginning {
    aoticache_index_durability durability;
    aoticache_status status; /* of the step before the statement */
    aoticache_error *error;
};

static int try_to_begin(aoticache_index *index, void *user)
{
    struct beginning *beginning = user;
    sqlite3_stmt *statement = NULL;
    beginning->status = set_durability(index, beginning->durability, beginning->error);
    if (beginning->status == AOTICACHE_OK)
        beginning->status = aoticache_index_prepare(index, SQL(BEGIN), &statement, beginning->error);
    if (beginning->status != AOTICACHE_OK)
        return SQLITE_ERROR;
    int result = sqlite3_step(statement);
    sqlite3_reset(statement);
    return result;
}

/* Rolls back, unless SQLite has done so already, as after a full disk. */
static void roll_back(aoticache_index *index)
{
    if (sqlite3_get_autocommit(index->db) == 0)
        sqlite3_exec(index->db, "ROLLBACK", NULL, NULL, NULL);
}

aoticache_status aoticache_index_begin(aoticache_index *index, aoticache_index_durability durability,
                                       aoticache_error *ret_error)
{
    if (index->is_bulk)
        return AOTICACHE_OK;
    struct beginning beginning = {.durability = durability, .error = ret_error};
    int result = aoticache_index_writer_queue_step(index, try_to_begin, &beginning);
    index->change = (aoticache_index_change){.entries = 0};
    if (beginning.status != AOTICACHE_OK)
        return beginning.status;
    if (result != SQLITE_DONE)
        return aoticache_index_fail(index, result, "cannot begin a write", ret_error);
    return AOTICACHE_OK;
}

static aoticache_status write_totals(aoticache_index *index, aoticache_error *ret_error)
{
    const aoticache_index_change *change = &index->change;
    sqlite3_stmt *statement = NULL;
    if ((change->entries | change->artifacts | change->objects | change->bytes | change->failures) == 0)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_prepare(index, SQL(CHANGE_TOTALS), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, change->entries);
    sqlite3_bind_int64(statement, 2, change->artifacts);
    sqlite3_bind_int64(statement, 3, change->objects);
    sqlite3_bind_int64(statement, 4, change->bytes);
    sqlite3_bind_int64(statement, 5, change->failures);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

aoticache_status aoticache_index_end(aoticache_index *index, aoticache_status status, aoticache_error *ret_error)
{
    if (index->is_bulk) {
        if (index->bulk_status == AOTICACHE_OK)
            index->bulk_status = status;
        return status;
    }
    if (status == AOTICACHE_OK)
        status = write_totals(index, ret_error);
    if (status == AOTICACHE_OK) {
        sqlite3_stmt *statement = NULL;
        status = aoticache_index_prepare(index, SQL(COMMIT), &statement, ret_error);
        if (status == AOTICACHE_OK)
            status = aoticache_index_execute(index, statement, NULL, ret_error);
    }
    if (status != AOTICACHE_OK)
        roll_back(index);
    index->change = (aoticache_index_change){.entries = 0}; /* a transaction that only reads ends here, too */
    return status;
}

/* ---- values ---- */

void aoticache_index_bind_digest(sqlite3_stmt *statement, int parameter, const aoticache_digest *digest)
{
    sqlite3_bind_blob(statement, parameter, digest->bytes, AOTICACHE_DIGEST_BYTES, SQLITE_STATIC);
}

void aoticache_index_bind_text(sqlite3_stmt *statement, int parameter, const char *text)
{
    sqlite3_bind_text(statement, parameter, text, -1, SQLITE_STATIC);
}

void aoticache_index_bind_unsigned(sqlite3_stmt *statement, int parameter, uint64_t value)
{
    sqlite3_bind_int64(statement, parameter, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

bool aoticache_index_read_blob(sqlite3_stmt *statement, int column, void *ret_bytes, size_t size)
{
    if (sqlite3_column_type(statement, column) != SQLITE_BLOB)
        return false;
    const void *bytes = sqlite3_column_blob(statement, column);
    if (bytes == NULL || (size_t)sqlite3_column_bytes(statement, column) != size)
        return false;
    memcpy(ret_bytes, bytes, size);
    return true;
}

bool aoticache_index_read_integer(sqlite3_stmt *statement, int column, int64_t *ret_value)
{
    if (sqlite3_column_type(statement, column) != SQLITE_INTEGER)
        return false;
    *ret_value = sqlite3_column_int64(statement, column);
    return true;
}

bool aoticache_index_read_unsigned(sqlite3_stmt *statement, int column, uint64_t *ret_value)
{
    int64_t value;
    if (!aoticache_index_read_integer(statement, column, &value) || value < 0)
        return false;
    *ret_value = (uint64_t)value;
    return true;
}

bool aoticache_index_read_count(sqlite3_stmt *statement, int column, uint32_t *ret_value)
{
    int64_t value;
    if (!aoticache_index_read_integer(statement, column, &value) || value < 0 || value > UINT32_MAX)
        return false;
    *ret_value = (uint32_t)value;
    return true;
}

bool aoticache_index_read_text(sqlite3_stmt *statement, int column, const char **ret_text)
{
    if (sqlite3_column_type(statement, column) != SQLITE_TEXT)
        return false;
    const char *text = (const char *)sqlite3_column_text(statement, column);
    /* NULL: out of memory. With a NUL inside, readers would see a different text than the stored one. */
    if (text == NULL || strlen(text) != (size_t)sqlite3_column_bytes(statement, column))
        return false;
    *ret_text = text;
    return true;
}
