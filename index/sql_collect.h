/*
 * index/sql_collect: tables (version 3) and statements for what collections need.
 *
 * Keys and digests lie anywhere in their trees, so each row that is found by one costs a removal a page of its own, in the
 * log and in the file. Hence no table and no index more than these: an artifact is the row of its manifest in objects.
 *
 * totals: one row, kept right by every transaction (connection.h, `change`). objects.refs: how often artifacts name the
 * object, so that a removal asks no tree for others that do; objects.artifact: one of those artifacts, x'' where it is not
 * known. objects.entry: in the row of a manifest, an entry of the artifact, else 0; sharers: its other entries.
 * objects.parts: in the row of a manifest, the digests of the artifact's objects in their order, itself among them.
 * details_last_use: the order of last use (last_used_ns begins as created_ns). removals: objects whose rows are gone and
 * whose files still lie there; kind 0: a file, 1: a manifest, 2: a manifest whose artifact has a folder of side files.
 */
#ifndef AOTICACHE_INDEX_SQL_COLLECT_H
#define AOTICACHE_INDEX_SQL_COLLECT_H

#define AOTICACHE_INDEX_COUNTED_TOTALS                                                                      \
    "(SELECT count(*) FROM entries), (SELECT count(*) FROM objects WHERE entry <> 0),"                       \
    " (SELECT count(*) FROM objects), (SELECT ifnull(sum(bytes), 0) FROM objects),"                         \
    " (SELECT count(*) FROM failures)"

/*
 * The digests in objects.parts, one to a row: those of short artifacts, nearly all, by a join with the first four numbers;
 * the rest of the others' by the recursive table `long`. n: what has the column parts; g: whatever is wanted with each.
 */
#define AOTICACHE_INDEX_SHORT_PART_SQL "substr(n.parts, p.column1 * 32 + 1, 32)"
#define AOTICACHE_INDEX_SHORT_SQL "CROSS JOIN (VALUES(0), (1), (2), (3)) p WHERE p.column1 * 32 < length(n.parts)"
#define AOTICACHE_INDEX_LONG_PART_SQL "substr(parts, i * 32 + 1, 32)"
#define AOTICACHE_INDEX_LONG_SQL(group, from, join)                                                         \
    "long(g, parts, i) AS (SELECT " group ", n.parts, 4 FROM " from join " WHERE length(n.parts) > 128"     \
    " UNION ALL SELECT g, parts, i + 1 FROM long WHERE (i + 2) * 32 <= length(parts))"

#define AOTICACHE_SCHEMA_3_COLLECT                                                                          \
    "ALTER TABLE objects ADD COLUMN refs INTEGER NOT NULL DEFAULT 0;"                                       \
    "ALTER TABLE objects ADD COLUMN artifact BLOB NOT NULL DEFAULT x'';"                                    \
    "UPDATE objects SET refs = (SELECT count(*) FROM artifact_objects a WHERE a.object = objects.digest),"  \
    " artifact = ifnull((SELECT min(a.artifact) FROM artifact_objects a WHERE a.object = objects.digest), x'');" \
    "DELETE FROM objects WHERE refs = 0;"                                                                   \
    "ALTER TABLE objects ADD COLUMN entry INTEGER NOT NULL DEFAULT 0;"                                      \
    "ALTER TABLE objects ADD COLUMN parts BLOB NOT NULL DEFAULT x'';"                                       \
    "UPDATE objects SET entry = (SELECT min(e.id) FROM entries e WHERE e.artifact = objects.digest), parts =" \
    " (WITH RECURSIVE p(n, b) AS (SELECT 0, x'' UNION ALL SELECT p.n + 1, CAST(p.b || a.object AS BLOB)"    \
    " FROM p JOIN artifact_objects a ON a.artifact = objects.digest AND a.position = p.n)"                  \
    " SELECT b FROM p ORDER BY n DESC LIMIT 1)"                                                             \
    " WHERE EXISTS (SELECT 1 FROM entries e WHERE e.artifact = objects.digest);"                            \
    "CREATE TABLE sharers("                                                                                 \
    " artifact BLOB NOT NULL, entry INTEGER NOT NULL, PRIMARY KEY(artifact, entry)) STRICT, WITHOUT ROWID;" \
    "INSERT INTO sharers SELECT e.artifact, e.id FROM entries e JOIN objects o ON o.digest = e.artifact"    \
    " WHERE o.entry <> e.id;"                                                                               \
    "ALTER TABLE details ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;"                                      \
    "ALTER TABLE details ADD COLUMN compile_ns INTEGER NOT NULL DEFAULT 0;"                                 \
    "UPDATE details SET (last_used_ns, compile_ns, bytes) ="                                                \
    " (SELECT max(details.last_used_ns, e.created_ns), e.compile_ns, (SELECT ifnull(sum(o.bytes), 0)"       \
    " FROM artifact_objects a JOIN objects o ON o.digest = a.object WHERE a.artifact = e.artifact)"         \
    " FROM entries e WHERE e.key = details.key AND e.id = details.id)"                                      \
    " WHERE EXISTS (SELECT 1 FROM entries e WHERE e.key = details.key AND e.id = details.id);"              \
    "DROP TABLE artifact_objects;"                                                                          \
    "DROP INDEX entries_artifact;"                                                                          \
    "CREATE INDEX details_last_use ON details(last_used_ns);"                                               \
    "CREATE INDEX failures_retry ON failures(retry_ns);"                                                    \
    "CREATE TABLE removals("                                                                                \
    " id INTEGER PRIMARY KEY AUTOINCREMENT," /* a number that was dealt with does not come again */          \
    " object BLOB NOT NULL,"                                                                                \
    " bytes INTEGER NOT NULL,"                                                                              \
    " kind INTEGER NOT NULL) STRICT;"                                                                       \
    "CREATE TABLE totals("                                                                                  \
    " id INTEGER PRIMARY KEY,"                                                                              \
    " entries INTEGER NOT NULL, artifacts INTEGER NOT NULL, objects INTEGER NOT NULL, bytes INTEGER NOT NULL," \
    " failures INTEGER NOT NULL) STRICT;"                                                                   \
    "INSERT INTO totals SELECT 1, " AOTICACHE_INDEX_COUNTED_TOTALS ";"

#define AOTICACHE_INDEX_NOT_PINNED_SQL "NOT EXISTS (SELECT 1 FROM marks m WHERE m.key = d.key AND m.pinned = 1)"

/* Also what was recorded in the future; both halves are ranges of the index failures_retry. */
#define AOTICACHE_INDEX_EXPIRED_SQL "(retry_ns <= ?1 OR (retry_ns > ?1 AND failed_ns > ?1))"

/* name, SQL */
#define AOTICACHE_INDEX_COLLECT_STATEMENTS(X)                                                                         \
    X(TOTALS, "SELECT entries, artifacts, objects, bytes, failures,"                                                  \
              " (SELECT value FROM meta WHERE name = 'created_ns') FROM totals WHERE id = 1")                         \
    X(COUNT_TOTALS, "SELECT " AOTICACHE_INDEX_COUNTED_TOTALS ", (SELECT value FROM meta WHERE name = 'created_ns')")  \
    X(CHANGE_TOTALS, "UPDATE totals SET entries = entries + ?1, artifacts = artifacts + ?2, objects = objects + ?3,"  \
                     " bytes = bytes + ?4, failures = failures + ?5 WHERE id = 1")                                    \
    /* In the order of the index details_last_use, whose entries end with the id. */                                  \
    X(CANDIDATES, "SELECT d.id, d.last_used_ns, d.bytes, d.compile_ns, d.op, NOT " AOTICACHE_INDEX_NOT_PINNED_SQL     \
                  ", d.key FROM details d WHERE (d.last_used_ns, d.id) > (?1, ?2) ORDER BY d.last_used_ns, d.id LIMIT ?3")   \
    X(FIND_VICTIM, "SELECT e.key, e.id, e.artifact, e.file_count FROM details d"                                      \
                   " CROSS JOIN entries e ON e.key = d.key AND e.id = d.id WHERE d.id = ?1 AND d.last_used_ns = ?2"   \
                   " AND " AOTICACHE_INDEX_NOT_PINNED_SQL)                                                            \
    /* Before the transaction in which it goes, and there: whether it still is to. */                                 \
    X(LOOK_UP_VICTIM, "SELECT e.artifact, e.file_count, m.bytes, m.parts FROM entries e"                              \
                      " CROSS JOIN objects m ON m.digest = e.artifact WHERE e.key = ?1 AND e.id = ?2")                \
    X(GROUP_OF_VICTIM, "SELECT d.op, d.device, d.producer, d.bytes FROM details d"                                    \
                       " WHERE d.id = ?1 AND d.last_used_ns = ?2 AND " AOTICACHE_INDEX_NOT_PINNED_SQL)                \
    X(DELETE_LAST_ARTIFACT, "DELETE FROM objects WHERE digest = ?1 AND entry = ?2 AND refs <= 1"                      \
                            " AND NOT EXISTS (SELECT 1 FROM sharers s WHERE s.artifact = ?1)")                        \
    X(ENTRY_PARTS, "SELECT m.parts, m.digest FROM details d CROSS JOIN entries e ON e.key = d.key AND e.id = d.id"    \
                   " CROSS JOIN objects m ON m.digest = e.artifact WHERE d.id = ?1")                                  \
    X(ADD_REMOVAL, "INSERT INTO removals(object, bytes, kind) VALUES(?1, ?2, ?3)")                                    \
    X(LIST_REMOVALS, "SELECT id, object, bytes, kind FROM removals WHERE id > ?1 ORDER BY id LIMIT ?2")               \
    X(DELETE_REMOVALS, "DELETE FROM removals WHERE id BETWEEN ?1 AND ?2")                                             \
    X(DELETE_REMOVALS_OF, "DELETE FROM removals WHERE object = ?1")                                                   \
    X(OBJECTS_FROM, "SELECT digest FROM objects WHERE digest >= ?1 ORDER BY digest LIMIT ?2")                         \
    X(COUNT_EXPIRED, "SELECT count(*) FROM failures WHERE " AOTICACHE_INDEX_EXPIRED_SQL)                              \
    X(FORGET_EXPIRED, "DELETE FROM failures WHERE key IN"                                                             \
                      " (SELECT key FROM failures WHERE " AOTICACHE_INDEX_EXPIRED_SQL " LIMIT ?2)")                   \
    X(MEND_USES, "UPDATE details SET last_used_ns = ?1 WHERE id IN"                                                   \
                 " (SELECT id FROM details WHERE last_used_ns > ?1 LIMIT ?2)")                                        \
    X(COUNT_USED_SINCE, "SELECT count(*) FROM details WHERE last_used_ns > ?1")                                       \
    X(NEWEST_USE, "SELECT ifnull(max(last_used_ns), 0) FROM details")                                                 \
    /* Writes a page, whatever there is. */                                                                           \
    X(SETTLE, "INSERT INTO meta(name, value) VALUES('settled', 1) ON CONFLICT(name) DO UPDATE SET value = value + 1")  \
    X(GET_META, "SELECT value FROM meta WHERE name = ?1")                                                             \
    X(PUT_META, "INSERT INTO meta(name, value) VALUES(?1, ?2) ON CONFLICT(name) DO UPDATE SET value = excluded.value")

#endif
