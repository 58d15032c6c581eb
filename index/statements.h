/*
 * index/statements: every SQL statement of the folder but those of schema.c, prepared on first use, and how values go
 * in and out of them. Nothing that is read is trusted: a column of another type, size or sign is refused.
 */
#ifndef AOTICACHE_INDEX_STATEMENTS_H
#define AOTICACHE_INDEX_STATEMENTS_H

#include <sqlite3.h>

#include "index/index.h"
#include "index/sql_collect.h"
#include "index/sql_pins.h"
#include "index/sql_statistics.h"

/* name, SQL */
#define AOTICACHE_INDEX_STATEMENT_LIST(X) \
    AOTICACHE_INDEX_COLLECT_STATEMENTS(X) \
    AOTICACHE_INDEX_STATISTICS_STATEMENTS(X) \
    AOTICACHE_INDEX_PINS_STATEMENTS(X) \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                                       \
    X(COMMIT, "COMMIT")                                                                                               \
    /* The order is that of the primary key: one range of it, nothing is sorted. */                                   \
    X(LOOKUP, "SELECT id, artifact, library, library_bytes, file_count, compile_ns, requirements FROM entries"        \
              " WHERE key = ?1 ORDER BY rank DESC, created_ns DESC, id DESC")                                         \
    X(LOOKUP_ENTRY, "SELECT e.id, e.artifact, e.library, e.library_bytes, e.file_count, e.compile_ns, e.requirements"  \
                    " FROM details d CROSS JOIN entries e ON e.key = d.key AND e.id = d.id WHERE d.id = ?1")          \
    X(READ_GUARD, "SELECT guard FROM details WHERE id = ?1")                                                          \
    /* What one removal needs to know: key, id, artifact, files. */                                                   \
    X(FIND_SAME, "SELECT e.key, e.id, e.artifact, e.file_count FROM entries e JOIN details d ON d.id = e.id"          \
                 " WHERE e.key = ?1 AND e.requirements = ?2 AND d.guard = ?3 LIMIT 1")                                \
    X(FIND_KEY, "SELECT key, id, artifact, file_count FROM entries WHERE key = ?1 LIMIT 1")                           \
    X(FIND_ID, "SELECT e.key, e.id, e.artifact, e.file_count FROM details d JOIN entries e"                           \
               " ON e.key = d.key AND e.id = d.id WHERE d.id = ?1 LIMIT 1")                                           \
    /* By the artifact that the object's row names; where it names none, by looking through all artifacts. */         \
    X(FIND_OBJECT, "SELECT e.key, e.id, e.artifact, e.file_count FROM objects o"                                      \
                   " CROSS JOIN objects m ON m.digest = o.artifact CROSS JOIN details d ON d.id = m.entry"            \
                   " CROSS JOIN entries e ON e.key = d.key AND e.id = d.id WHERE o.digest = ?1 LIMIT 1")              \
    X(SEARCH_OBJECT, "SELECT e.key, e.id, e.artifact, e.file_count FROM objects m CROSS JOIN details d"               \
                     " ON d.id = m.entry CROSS JOIN entries e ON e.key = d.key AND e.id = d.id"                       \
                     " WHERE m.entry <> 0 AND instr(m.parts, ?1) % 32 = 1 LIMIT 1")                                   \
    X(INSERT_DETAILS, "INSERT INTO details(key, guard, op, device, description, producer, last_used_ns, uses,"        \
                      " encoding, bytes, compile_ns) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?9, ?10)")             \
    X(INSERT_ENTRY, "INSERT INTO entries(key, rank, created_ns, id, artifact, library, library_bytes, file_count,"    \
                    " compile_ns, requirements) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")                     \
    X(DELETE_ENTRY, "DELETE FROM entries WHERE key = ?1 AND id = ?2")                                                 \
    X(DELETE_DETAILS, "DELETE FROM details WHERE id = ?1")                                                            \
    X(READ_ARTIFACT, "SELECT parts, entry FROM objects WHERE digest = ?1 AND entry <> 0")                             \
    X(FIND_SHARER, "SELECT entry FROM sharers WHERE artifact = ?1 LIMIT 1")                                           \
    X(ADD_SHARER, "INSERT OR IGNORE INTO sharers(artifact, entry) VALUES(?1, ?2)")                                    \
    X(DELETE_SHARER, "DELETE FROM sharers WHERE artifact = ?1 AND entry = ?2")                                        \
    X(HAND_ARTIFACT_ON, "UPDATE objects SET entry = ?2 WHERE digest = ?1")                                            \
    X(READ_OBJECT, "SELECT bytes, refs FROM objects WHERE digest = ?1")                                               \
    X(INSERT_OBJECT, "INSERT INTO objects(digest, bytes, refs, artifact, entry, parts) VALUES(?1, ?2, 1, ?3, ?4, ?5)" \
                     " ON CONFLICT(digest) DO UPDATE SET bytes = excluded.bytes, refs = refs + 1,"                    \
                     " entry = iif(excluded.entry <> 0, excluded.entry, entry),"                                      \
                     " parts = iif(excluded.entry <> 0, excluded.parts, parts)")                                      \
    X(DELETE_LAST_OBJECT, "DELETE FROM objects WHERE digest = ?1 AND refs <= 1")                                      \
    X(RELEASE_OBJECT, "UPDATE objects SET refs = refs - 1, artifact = iif(artifact = ?2, x'', artifact),"             \
                      " entry = iif(digest = ?2, 0, entry), parts = iif(digest = ?2, x'', parts) WHERE digest = ?1")  \
    X(LIST_ENTRY, AOTICACHE_INDEX_LIST_COLUMNS " WHERE d.id = ?1")                                                    \
    /* Two ranges of the index details_op, whose entries end with the id: the rest of an operator, what is behind. */ \
    X(LIST_OF_OP, AOTICACHE_INDEX_LIST_COLUMNS " WHERE d.op = ?1 AND d.id > ?2 ORDER BY d.id LIMIT ?3")               \
    X(LIST_BEHIND_OP, AOTICACHE_INDEX_LIST_COLUMNS " WHERE d.op > ?1 AND ?2 IS NOT NULL ORDER BY d.op, d.id LIMIT ?3") \
    /* One range of the index details_op, whose entries end with the id. */                                           \
    X(LIST_STORED, "SELECT e.id, e.key, e.artifact, e.rank, e.created_ns, e.compile_ns, e.requirements, d.guard,"     \
                   " d.encoding FROM details d CROSS JOIN entries e ON e.key = d.key AND e.id = d.id"                 \
                   " WHERE d.op = ?1 AND d.id > ?2 ORDER BY d.id LIMIT ?3")                                           \
    X(FILL_ENCODING, "UPDATE details SET encoding = ?2 WHERE id = ?1 AND encoding = x''")                             \
    X(LIST_OBJECTS, "SELECT digest, bytes FROM objects")                                                              \
    X(HAS_OBJECT, "SELECT 1 FROM objects WHERE digest = ?1")                                                          \
    X(COUNT_FAILURES, "SELECT count FROM failures WHERE key = ?1")                                                    \
    X(PUT_FAILURE, "INSERT OR REPLACE INTO failures(key, op, description, message, failed_ns, retry_ns, count)"       \
                   " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)")                                                             \
    /* What was recorded in the future was recorded by a wrong clock, and is not believed. */                         \
    X(LOOKUP_FAILURE, "SELECT message FROM failures WHERE key = ?1 AND retry_ns > ?2 AND failed_ns <= ?2")            \
    X(FORGET_FAILURE, "DELETE FROM failures WHERE key = ?1")                                                          \
    X(FORGET_FAILURES, "DELETE FROM failures WHERE retry_ns <= ?1")                                                   \
    X(LIST_FAILURES, "SELECT key, op, description, message, failed_ns, retry_ns, count FROM failures"                 \
                     " ORDER BY failed_ns DESC, key")                                                                 \
    /* Sums stop at the largest integer: SQLite would go on in floating point, which a strict column refuses. */      \
    X(ADD_USE, "UPDATE details SET last_used_ns = max(last_used_ns, ?2),"                                             \
               " uses = min(uses, 9223372036854775807 - ?3) + ?3 WHERE id = ?1")                                      \
    X(ADD_COUNT, "INSERT INTO counts(name, value) VALUES(?1, ?2)"                                                     \
                 " ON CONFLICT(name) DO UPDATE SET value = min(value, 9223372036854775807 - ?2) + ?2")                \
    X(LIST_COUNTS, "SELECT name, value FROM counts ORDER BY name")                                                    \
    X(VERIFY, "PRAGMA quick_check(1)")

#define AOTICACHE_INDEX_LIST_COLUMNS                                                                                  \
    "SELECT e.id, e.key, e.artifact, e.library, e.file_count, e.requirements, d.guard, d.op, d.device, d.description," \
    " d.producer, e.compile_ns, e.created_ns, d.last_used_ns, d.uses, d.bytes"                                        \
    " FROM details d CROSS JOIN entries e ON e.key = d.key AND e.id = d.id"

typedef enum aoticache_index_statement {
#define AOTICACHE_INDEX_STATEMENT_ENUM(name, sql) AOTICACHE_INDEX_SQL_##name,
    AOTICACHE_INDEX_STATEMENT_LIST(AOTICACHE_INDEX_STATEMENT_ENUM)
#undef AOTICACHE_INDEX_STATEMENT_ENUM
    AOTICACHE_INDEX_STATEMENT_COUNT
} aoticache_index_statement;

/* Short name for the enumerators. */
#define SQL(name) AOTICACHE_INDEX_SQL_##name

/* The statement, reset and without bindings of interest; borrowed. To be reset by its user (sqlite3_reset). */
aoticache_status aoticache_index_prepare(aoticache_index *index, aoticache_index_statement which,
                                         sqlite3_stmt **ret_statement, aoticache_error *ret_error);

/* Steps a statement that gives no rows, and resets it. ret_changes: rows it changed, may be NULL. */
aoticache_status aoticache_index_execute(aoticache_index *index, sqlite3_stmt *statement, uint64_t *ret_changes,
                                         aoticache_error *ret_error);
/* Prepares and executes a statement with one digest, or none (NULL). */
aoticache_status aoticache_index_execute_digest(aoticache_index *index, aoticache_index_statement which,
                                                const aoticache_digest *digest, uint64_t *ret_changes,
                                                aoticache_error *ret_error);
/* Steps to the next row: OK, or NOT_FOUND: there is none. To be reset by its user once the row has been read. */
aoticache_status aoticache_index_fetch(aoticache_index *index, sqlite3_stmt *statement, aoticache_error *ret_error);
/* Whether the statement, given one digest, has a row: OK or NOT_FOUND. */
aoticache_status aoticache_index_probe_digest(aoticache_index *index, aoticache_index_statement which,
                                              const aoticache_digest *digest, aoticache_error *ret_error);

/* Reads one row; false: it is damaged. *ret_goes_on, true before, says whether more are wanted. */
typedef bool (*aoticache_index_row_fn)(void *user, sqlite3_stmt *row, bool *ret_goes_on);
/* Gives the rows of a statement, its bindings made, to `read`, and resets it. table: what they are, for messages. */
aoticache_status aoticache_index_walk(aoticache_index *index, sqlite3_stmt *statement, const char *table,
                                      aoticache_index_row_fn read, void *user, aoticache_error *ret_error);

typedef enum aoticache_index_durability {
    AOTICACHE_INDEX_DURABILITY_UNSET, /* whatever this SQLite was built with */
    AOTICACHE_INDEX_RELAXED,          /* power loss may take the last moments, never the consistency */
    AOTICACHE_INDEX_DURABLE,          /* survives power loss once the commit has returned */
} aoticache_index_durability;

/* A write transaction. end commits where `status` is OK, else rolls back; it returns the first failure. */
aoticache_status aoticache_index_begin(aoticache_index *index, aoticache_index_durability durability,
                                       aoticache_error *ret_error);
aoticache_status aoticache_index_end(aoticache_index *index, aoticache_status status, aoticache_error *ret_error);

/* Bindings borrow what they are given until the statement is reset. They cannot fail but for memory: step notices. */
void aoticache_index_bind_digest(sqlite3_stmt *statement, int parameter, const aoticache_digest *digest);
void aoticache_index_bind_text(sqlite3_stmt *statement, int parameter, const char *text);
/* Stops at the largest number that SQLite can keep. */
void aoticache_index_bind_unsigned(sqlite3_stmt *statement, int parameter, uint64_t value);

/* Each returns false where the column is not what it should be. */
bool aoticache_index_read_blob(sqlite3_stmt *statement, int column, void *ret_bytes, size_t size);
bool aoticache_index_read_integer(sqlite3_stmt *statement, int column, int64_t *ret_value);
bool aoticache_index_read_unsigned(sqlite3_stmt *statement, int column, uint64_t *ret_value);
bool aoticache_index_read_count(sqlite3_stmt *statement, int column, uint32_t *ret_value);
/* Borrowed until the next step or reset. */
bool aoticache_index_read_text(sqlite3_stmt *statement, int column, const char **ret_text);

#endif
