/*
 * index/entries/integrity: SQLite's check of the file, joins that find rows without counterparts, and ranges of the tables.
 * The statements are prepared for each use, because only verification needs them.
 */
#include "index/entries/integrity.h"

#include <string.h>

#include "base/arguments.h"
#include "index/connection/connection_internal.h"
#include "index/entries/entries_internal.h"

#define OPERATIONS_PER_QUESTION 20000 /* of SQLite's virtual machine: a millisecond or so */

/* Enters the index and prepares the statement; unless it returns OK, nothing is held. */
static aoticache_status begin_query(aoticache_index *index, const char *sql, sqlite3_stmt **ret_statement,
                                    aoticache_error *ret_error)
{
    if (index == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index);
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    int result = sqlite3_prepare_v2(index->db, sql, -1, ret_statement, NULL);
    if (result == SQLITE_OK)
        return AOTICACHE_OK;
    status = aoticache_index_fail(index, result, "cannot prepare a statement", ret_error);
    aoticache_index_leave(index);
    return status;
}

static void end_query(aoticache_index *index, sqlite3_stmt *statement)
{
    sqlite3_finalize(statement);
    aoticache_index_leave(index);
}

/* ---- soundness ---- */

struct question {
    aoticache_index_continue_fn continues;
    void *user;
    bool stopped;
};

static int poll_caller(void *user)
{
    struct question *question = user;
    question->stopped = question->stopped || (question->continues != NULL && !question->continues(question->user));
    return question->stopped ? 1 : 0;
}

static aoticache_status refuse_damaged(const aoticache_index *index, const char *text, aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "index %s: is damaged: %.*s", index->path,
                               (int)strcspn(text, "\n"), text);
}

/* Checks that the first row's first column is `expected`; NULL: that there is no row. */
static aoticache_status check_one(aoticache_index *index, const char *sql, const char *expected,
                                  struct question *question, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = begin_query(index, sql, &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_progress_handler(index->db, OPERATIONS_PER_QUESTION, poll_caller, question);
    int result = sqlite3_step(statement);
    sqlite3_progress_handler(index->db, 0, NULL, NULL);
    if (result == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(statement, 0);
        if (text == NULL || expected == NULL || strcmp(text, expected) != 0)
            status = refuse_damaged(index, text != NULL ? text : "SQLite gives no details", ret_error);
    } else if (result != SQLITE_DONE && !question->stopped) {
        status = aoticache_index_fail(index, result, "cannot check it", ret_error);
    }
    end_query(index, statement);
    return status;
}

/*
 * Each statement gives a row if something lacks its counterpart. Every entry has details and an artifact that names it. If
 * there are not more of either than entries, each of them belongs to an entry.
 */
static const char *const relations[] = {
    "SELECT 'entry ' || e.id || CASE WHEN d.id IS NULL THEN ' has no details'"
    " WHEN m.digest IS NULL OR instr(m.parts, e.artifact) % 32 <> 1 THEN ' names an artifact without objects'"
    " WHEN e.content_offset = 0 AND instr(m.parts, e.library) % 32 <> 1 THEN ' names a library that its artifact has not'"
    " ELSE ' is not named by its artifact' END"
    " FROM entries e LEFT JOIN details d ON d.id = e.id AND d.key = e.key LEFT JOIN objects m ON m.digest = e.artifact"
    " WHERE d.id IS NULL OR m.digest IS NULL OR instr(m.parts, e.artifact) % 32 <> 1"
    " OR (e.content_offset = 0 AND instr(m.parts, e.library) % 32 <> 1) OR (m.entry <> e.id"
    " AND NOT EXISTS (SELECT 1 FROM sharers s WHERE s.artifact = e.artifact AND s.entry = e.id)) LIMIT 1",
    "SELECT 'there are ' || entries || ' entries, ' || details || ' details, and ' || named || ' that artifacts name'"
    " FROM (SELECT (SELECT count(*) FROM entries) AS entries, (SELECT count(*) FROM details) AS details,"
    " (SELECT count(*) FROM objects WHERE entry <> 0) + (SELECT count(*) FROM sharers) AS named)"
    " WHERE entries <> details OR entries <> named",
    "WITH RECURSIVE " AOTICACHE_INDEX_LONG_SQL(
        "digest", "objects n",
        "") " SELECT 'artifact ' || lower(hex(g)) || ' names an object without a size' FROM (SELECT n.digest AS g, " AOTICACHE_INDEX_SHORT_PART_SQL
            " AS object FROM objects n " AOTICACHE_INDEX_SHORT_SQL " UNION ALL SELECT g, " AOTICACHE_INDEX_LONG_PART_SQL
            " FROM long)"
            " WHERE object <> g AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.digest = object) LIMIT 1",
};

aoticache_status aoticache_index_check_integrity(aoticache_index *index, bool is_full,
                                                 aoticache_index_continue_fn continues, void *user, bool *ret_completed,
                                                 aoticache_error *ret_error)
{
    struct question question = {.continues = continues, .user = user};
    const char *sql = is_full ? "PRAGMA integrity_check(1)" : "PRAGMA quick_check(1)";
    aoticache_status status = check_one(index, sql, "ok", &question, ret_error);
    for (size_t i = 0; i < sizeof relations / sizeof relations[0]; i++)
        if (status == AOTICACHE_OK && !question.stopped)
            status = check_one(index, relations[i], NULL, &question, ret_error);
    if (status == AOTICACHE_OK)
        *ret_completed = !question.stopped;
    return status;
}

/* ---- parts ---- */

struct claim_user {
    aoticache_index_claim_fn callback;
    void *user;
};

struct part_user {
    aoticache_index_part_fn callback;
    void *user;
    aoticache_index *index;
    aoticache_status status; /* of reading objects */
    aoticache_error *error;
};

/* Runs a statement for a range. The statement has two parameters, the first and the last digest. */
static aoticache_status list_between(aoticache_index *index, const char *sql, const aoticache_digest *first,
                                     const aoticache_digest *last, aoticache_index_row_fn read, void *user,
                                     aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = begin_query(index, sql, &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, first);
    aoticache_index_bind_digest(statement, 2, last);
    status = aoticache_index_walk(index, statement, "objects or entries", read, user, ret_error);
    end_query(index, statement);
    return status;
}

aoticache_status aoticache_index_list_objects_between(aoticache_index *index, const aoticache_digest *first,
                                                      const aoticache_digest *last, aoticache_index_object_fn callback,
                                                      void *user, aoticache_error *ret_error)
{
    aoticache_index_object_reader object = {.callback = callback, .user = user};
    return list_between(index, "SELECT digest, bytes FROM objects WHERE digest BETWEEN ?1 AND ?2 ORDER BY digest",
                        first, last, aoticache_index_give_object, &object, ret_error);
}

static bool read_claim(void *user, sqlite3_stmt *row, bool *ret_continues)
{
    const struct claim_user *to = user;
    aoticache_index_claim claim;
    memset(&claim, 0, sizeof claim);
    if (!aoticache_index_read_integer(row, 0, &claim.entry_id) ||
        !aoticache_index_read_blob(row, 1, claim.artifact.bytes, AOTICACHE_DIGEST_BYTES) ||
        !aoticache_index_read_blob(row, 2, claim.key.bytes, AOTICACHE_DIGEST_BYTES) ||
        !aoticache_index_read_blob(row, 3, claim.library.bytes, AOTICACHE_DIGEST_BYTES) ||
        !aoticache_index_read_unsigned(row, 4, &claim.library_bytes) ||
        !aoticache_index_read_count(row, 5, &claim.file_count) ||
        !aoticache_index_read_blob(row, 6, claim.requirements, AOTICACHE_INDEX_REQUIREMENT_BYTES) ||
        !aoticache_index_read_unsigned(row, 7, &claim.content_offset) ||
        !aoticache_index_read_text(row, 8, &claim.guard))
        return false;
    *ret_continues = to->callback(to->user, &claim);
    return true;
}

aoticache_status aoticache_index_list_claims_between(aoticache_index *index, const aoticache_digest *first,
                                                     const aoticache_digest *last, aoticache_index_claim_fn callback,
                                                     void *user, aoticache_error *ret_error)
{
    struct claim_user claim = {.callback = callback, .user = user};
    return list_between(
        index,
        "SELECT e.id, e.artifact, e.key, e.library, e.library_bytes, e.file_count, e.requirements,"
        " e.content_offset, d.guard FROM (SELECT digest, entry FROM objects WHERE digest BETWEEN ?1 AND ?2 AND entry <> 0"
        " UNION ALL SELECT artifact, entry FROM sharers WHERE artifact BETWEEN ?1 AND ?2) n"
        " CROSS JOIN details d ON d.id = n.entry CROSS JOIN entries e ON e.key = d.key AND e.id = d.id"
        " ORDER BY n.digest, e.id",
        first, last, read_claim, &claim, ret_error);
}

/* Objects of the artifact that have no row are left out. */
static bool read_parts(void *user, sqlite3_stmt *row, bool *ret_continues)
{
    struct part_user *part = user;
    aoticache_digest artifact, object;
    const uint8_t *parts;
    size_t count;
    if (!aoticache_index_read_blob(row, 0, artifact.bytes, AOTICACHE_DIGEST_BYTES) ||
        !aoticache_index_read_parts(row, 1, &parts, &count))
        return false;
    for (size_t i = 0; i < count && *ret_continues; i++) {
        aoticache_index_object_row found;
        memcpy(object.bytes, parts + i * AOTICACHE_DIGEST_BYTES, AOTICACHE_DIGEST_BYTES);
        aoticache_status status = aoticache_index_read_object(part->index, &object, &found, part->error);
        if (status == AOTICACHE_OK)
            *ret_continues = part->callback(part->user, &artifact, &object, found.bytes);
        else if (status != AOTICACHE_NOT_FOUND) {
            part->status = status;
            *ret_continues = false;
        }
    }
    return true;
}

aoticache_status aoticache_index_list_parts_between(aoticache_index *index, const aoticache_digest *first,
                                                    const aoticache_digest *last, aoticache_index_part_fn callback,
                                                    void *user, aoticache_error *ret_error)
{
    struct part_user part = {
        .callback = callback, .user = user, .index = index, .status = AOTICACHE_OK, .error = ret_error};
    aoticache_status status =
        list_between(index,
                     "SELECT digest, parts FROM objects WHERE digest BETWEEN ?1 AND ?2 AND entry <> 0"
                     " ORDER BY digest",
                     first, last, read_parts, &part, ret_error);
    return status == AOTICACHE_OK ? part.status : status;
}
