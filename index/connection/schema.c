/*
 * index/connection/schema: creates the tables, and checks their version. An index of another version is refused: the tables of
 * an existing index never change, because statements of processes that have it open would misread it. Without its index a
 * cache builds one from the manifests.
 *
 * Lookups read the table entries: narrow rows, stored in the order of the primary key, so that one descent of one tree gives
 * all the entries of a key, most demanding first. Columns only for listings are in details, under the same id, so that
 * recording a use does not touch the rows that lookups read. Ids are never reused (AUTOINCREMENT): a late use or removal
 * must not affect a newer entry. They begin at a number derived from the time, so that those of a rebuilt index are above
 * those of its predecessor: a caller that lists entries "after number n" may have n from there.
 */
#include "base/clock.h"
#include "index/connection/connection_internal.h"

#include <stdio.h>

#define APPLICATION_ID 0x616f7463 /* "aotc" */

/* The ids of an index begin at the second in which it is created, times this. Fewer entries than this are stored per second. */
#define IDS_PER_SECOND (1 << 20)
#define FIRST_SECOND 1700000000 /* so that ids stay short */

static int64_t first_id(void)
{
    int64_t seconds = aoticache_wall_ns() / 1000000000 - FIRST_SECOND;
    return seconds > 0 && seconds < INT64_MAX / IDS_PER_SECOND / 2 ? seconds * IDS_PER_SECOND : 0;
}

typedef struct schema_version {
    int64_t application_id;
    int64_t version;
} schema_version;

static aoticache_status read_number(aoticache_index *index, const char *sql, int64_t *ret_value,
                                    aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = AOTICACHE_OK;
    int result = sqlite3_prepare_v2(index->db, sql, -1, &statement, NULL);
    if (result == SQLITE_OK)
        result = sqlite3_step(statement);
    if (result == SQLITE_ROW)
        *ret_value = sqlite3_column_int64(statement, 0);
    else
        status = aoticache_index_fail(index, result == SQLITE_DONE ? SQLITE_CORRUPT : result, "cannot read", ret_error);
    sqlite3_finalize(statement);
    return status;
}

/*
 * Does two reads outside a transaction; another process may create the tables between them. It sets both numbers at once, so
 * if only one is set, both are read again.
 */
static aoticache_status read_version(aoticache_index *index, schema_version *ret_schema, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (int attempt = 0; attempt < 2 && status == AOTICACHE_OK; attempt++) {
        status = read_number(index, "PRAGMA application_id", &ret_schema->application_id, ret_error);
        if (status == AOTICACHE_OK)
            status = read_number(index, "PRAGMA user_version", &ret_schema->version, ret_error);
        if ((ret_schema->application_id == 0) == (ret_schema->version == 0))
            break;
    }
    return status;
}

/* Checks only the two numbers; an empty file is OK, too. */
static aoticache_status check_version(const aoticache_index *index, const schema_version *schema,
                                      aoticache_error *ret_error)
{
    if (schema->application_id == 0 && schema->version == 0)
        return AOTICACHE_OK;
    if (schema->application_id != APPLICATION_ID)
        return aoticache_error_set(
            ret_error, AOTICACHE_CORRUPT,
            "index %s: the file belongs to another program: its application_id is 0x%08x, expected 0x%08x", index->path,
            (unsigned)schema->application_id, (unsigned)APPLICATION_ID);
    if (schema->version < 1)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "index %s: invalid version %lld", index->path,
                                   (long long)schema->version);
    if (schema->version == AOTICACHE_INDEX_VERSION)
        return AOTICACHE_OK;
    return aoticache_error_set(
        ret_error, AOTICACHE_UNSUPPORTED,
        "index %s: its tables have version %lld, and this library reads %d; use the library that made it, or another cache "
        "directory, or delete the file: a new one is then built from the manifests",
        index->path, (long long)schema->version, AOTICACHE_INDEX_VERSION);
}

/*
 * Checks a file without version. A file without version and without tables is new; one with tables belongs to another
 * program, unless another process has created the tables since the version was read: then it has set the version too, in the
 * same transaction.
 */
static aoticache_status check_empty(aoticache_index *index, aoticache_error *ret_error)
{
    int64_t tables;
    aoticache_status status = read_number(index, "SELECT count(*) FROM sqlite_schema", &tables, ret_error);
    if (status != AOTICACHE_OK || tables == 0)
        return status;
    schema_version schema = {0};
    status = read_version(index, &schema, ret_error);
    if (status != AOTICACHE_OK || schema.application_id == APPLICATION_ID)
        return status;
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                               "index %s: the file belongs to another program: it has tables but no application_id",
                               index->path);
}

/* Call this inside a transaction. */
static aoticache_status create_tables(aoticache_index *index, aoticache_error *ret_error)
{
    schema_version schema = {0};
    aoticache_status status = read_version(index, &schema, ret_error);
    if (status == AOTICACHE_OK) /* checked again: another process may have been faster */
        status = check_version(index, &schema, ret_error);
    if (status == AOTICACHE_OK && schema.version == 0)
        status = check_empty(index, ret_error);
    if (status != AOTICACHE_OK || schema.version != 0)
        return status;
    char sql[256];
    int result = sqlite3_exec(index->db, AOTICACHE_INDEX_TABLES, NULL, NULL, NULL);
    if (result != SQLITE_OK)
        return aoticache_index_fail(index, result, "cannot create the tables", ret_error);
    snprintf(
        sql, sizeof sql,
        "PRAGMA application_id=%d; PRAGMA user_version=%d; INSERT INTO meta(name, value) VALUES('created_ns', %lld);"
        "INSERT INTO sqlite_sequence(name, seq) VALUES('details', %lld)",
        APPLICATION_ID, AOTICACHE_INDEX_VERSION, (long long)aoticache_wall_ns(), (long long)first_id());
    result = sqlite3_exec(index->db, sql, NULL, NULL, NULL);
    return result == SQLITE_OK ? AOTICACHE_OK
                               : aoticache_index_fail(index, result, "cannot set the version", ret_error);
}

static aoticache_status initialise(aoticache_index *index, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_begin(index, AOTICACHE_INDEX_DURABLE, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_index_end(index, create_tables(index, ret_error), ret_error);
}

/* Reports that tables must be created in an index that is read-only. */
static aoticache_status refuse_read_only(const aoticache_index *index, aoticache_error *ret_error)
{
    if (!index->read_only && aoticache_index_vfs_is_writable(index, "")) /* SQLite continues with what it can open */
        return aoticache_error_set(ret_error, AOTICACHE_IO, "index %s: could not be opened for writing", index->path);
    if (index->read_only)
        return AOTICACHE_NOT_FOUND; /* treated as missing: the process that creates it has not created the tables yet */
    return aoticache_error_set(ret_error, AOTICACHE_DENIED, "index %s: is empty and cannot be written to", index->path);
}

aoticache_status aoticache_index_schema_check(aoticache_index *index, aoticache_error *ret_error)
{
    schema_version schema = {0};
    aoticache_status status = read_version(index, &schema, ret_error);
    if (status == AOTICACHE_OK)
        status = check_version(index, &schema, ret_error);
    if (status != AOTICACHE_OK || schema.version != 0)
        return status;
    status = check_empty(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (sqlite3_db_readonly(index->db, "main") != 0)
        return refuse_read_only(index, ret_error);
    /* This lets a collection release pages. It takes effect only in an empty file. */
    sqlite3_exec(index->db, "PRAGMA auto_vacuum=INCREMENTAL", NULL, NULL, NULL);
    status = aoticache_index_journal_choose(index, ret_error);
    return status == AOTICACHE_OK ? initialise(index, ret_error) : status;
}
