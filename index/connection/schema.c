/*
 * index/connection/schema: the tables, their version, and migrations from older versions.
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

/*
 * One step per version: migrations[n] converts version n to version n + 1. Released steps never change. Each changes the
 * tables, so statements of an older library that still has the index open notice it (aoticache_index_refuse_newer).
 */
static const char *const migrations[AOTICACHE_INDEX_VERSION] = {
    "CREATE TABLE entries("
    " key BLOB NOT NULL,"
    " rank INTEGER NOT NULL," /* bits in requirements */
    " created_ns INTEGER NOT NULL,"
    " id INTEGER NOT NULL,"
    " artifact BLOB NOT NULL,"
    " library BLOB NOT NULL,"
    " library_bytes INTEGER NOT NULL,"
    " file_count INTEGER NOT NULL,"
    " compile_ns INTEGER NOT NULL,"
    " requirements BLOB NOT NULL,"
    " PRIMARY KEY(key, rank DESC, created_ns DESC, id DESC)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX entries_artifact ON entries(artifact);"
    "CREATE TABLE details("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " key BLOB NOT NULL,"
    " guard TEXT NOT NULL,"
    " op TEXT NOT NULL,"
    " device TEXT NOT NULL,"
    " description TEXT NOT NULL,"
    " producer TEXT NOT NULL,"
    " last_used_ns INTEGER NOT NULL,"
    " uses INTEGER NOT NULL) STRICT;"
    "CREATE TABLE objects(digest BLOB PRIMARY KEY NOT NULL, bytes INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE artifact_objects("
    " artifact BLOB NOT NULL,"
    " position INTEGER NOT NULL,"
    " object BLOB NOT NULL,"
    " PRIMARY KEY(artifact, position)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX artifact_objects_object ON artifact_objects(object);"
    "CREATE TABLE failures("
    " key BLOB PRIMARY KEY NOT NULL,"
    " op TEXT NOT NULL,"
    " description TEXT NOT NULL,"
    " message TEXT NOT NULL,"
    " failed_ns INTEGER NOT NULL,"
    " retry_ns INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE counts(name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE meta(name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;",
    /* 2: the encoding of the request, '' if unknown; an index over the entries of an operator in the order of their ids */
    "ALTER TABLE details ADD COLUMN encoding BLOB NOT NULL DEFAULT x'';"
    "CREATE INDEX details_op ON details(op);"
    "ALTER TABLE failures ADD COLUMN count INTEGER NOT NULL DEFAULT 1;",
    /* 3: columns and tables for collections; index/connection/sql.h describes them */
    AOTICACHE_SCHEMA_3_COLLECT AOTICACHE_SCHEMA_3_STATISTICS AOTICACHE_SCHEMA_3_MARKS,
    /* 4: timing results, which say on which machines the host's own kernel is faster */
    AOTICACHE_SCHEMA_4_JUDGEMENTS,
    /* 5: digests of files that were hashed before */
    AOTICACHE_SCHEMA_5_FILE_DIGESTS,
    /* 6: where the only file of an artifact begins in the object of its manifest; 0: it is a separate object */
    "ALTER TABLE entries ADD COLUMN content_offset INTEGER NOT NULL DEFAULT 0;",
};

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
    return aoticache_index_check_version(index, schema->version, ret_error);
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
static aoticache_status migrate_steps(aoticache_index *index, aoticache_error *ret_error)
{
    schema_version schema = {0};
    aoticache_status status = read_version(index, &schema, ret_error);
    if (status == AOTICACHE_OK) /* checked again: another process may have been faster */
        status = check_version(index, &schema, ret_error);
    if (status != AOTICACHE_OK || schema.version == AOTICACHE_INDEX_VERSION)
        return status;
    if (schema.version == 0)
        status = check_empty(index, ret_error);
    for (int64_t version = schema.version; status == AOTICACHE_OK && version < AOTICACHE_INDEX_VERSION; version++) {
        int result = sqlite3_exec(index->db, migrations[version], NULL, NULL, NULL);
        if (result != SQLITE_OK)
            status = aoticache_index_fail(index, result, "cannot create the tables", ret_error);
    }
    if (status != AOTICACHE_OK)
        return status;
    char sql[320];
    snprintf(sql, sizeof sql,
             "PRAGMA application_id=%d; PRAGMA user_version=%d;"
             "INSERT OR IGNORE INTO meta(name, value) VALUES('created_ns', %lld);"
             "INSERT INTO sqlite_sequence(name, seq) SELECT 'details', %lld"
             " WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'details')",
             APPLICATION_ID, AOTICACHE_INDEX_VERSION, (long long)aoticache_wall_ns(), (long long)first_id());
    int result = sqlite3_exec(index->db, sql, NULL, NULL, NULL);
    return result == SQLITE_OK ? AOTICACHE_OK
                               : aoticache_index_fail(index, result, "cannot set the version", ret_error);
}

static aoticache_status migrate(aoticache_index *index, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_begin(index, AOTICACHE_INDEX_DURABLE, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_index_end(index, migrate_steps(index, ret_error), ret_error);
}

/* Reports that tables must be created or changed in an index that is read-only. */
static aoticache_status refuse_read_only(const aoticache_index *index, const schema_version *schema,
                                         aoticache_error *ret_error)
{
    if (!index->read_only && aoticache_index_vfs_is_writable(index, "")) /* SQLite continues with what it can open */
        return aoticache_error_set(ret_error, AOTICACHE_IO, "index %s: could not be opened for writing", index->path);
    if (schema->version != 0)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "index %s: version %lld must be migrated to %d: open it once for writing",
                                   index->path, (long long)schema->version, AOTICACHE_INDEX_VERSION);
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
    if (status != AOTICACHE_OK || schema.version == AOTICACHE_INDEX_VERSION)
        return status;
    if (schema.version == 0)
        status = check_empty(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (sqlite3_db_readonly(index->db, "main") != 0)
        return refuse_read_only(index, &schema, ret_error);
    /* This lets a collection release pages. It takes effect only in an empty file, so older indexes lack it. */
    if (schema.version == 0)
        sqlite3_exec(index->db, "PRAGMA auto_vacuum=INCREMENTAL", NULL, NULL, NULL);
    if (schema.version == 0)
        status = aoticache_index_journal_choose(index, ret_error);
    return status == AOTICACHE_OK ? migrate(index, ret_error) : status;
}
