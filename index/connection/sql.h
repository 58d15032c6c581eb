/*
 * index/connection/sql: all SQL of the directory: the tables, and every statement, prepared on first use. The code that reads a
 * statement's rows names it in a comment.
 */
#ifndef AOTICACHE_INDEX_CONNECTION_SQL_H
#define AOTICACHE_INDEX_CONNECTION_SQL_H

/*
 * ---- collections ----
 *
 * Keys and digests are spread randomly over their trees, so for each row found by one a removal writes a separate page, to
 * the log and to the file. Therefore there are no other tables and indexes than these: an artifact is the row of its
 * manifest in objects.
 *
 * totals: one row, updated by every transaction (connection_internal.h, `change`). objects.refs: how many artifacts name the
 * object, so that a removal need not search for others; objects.artifact: one of those artifacts, x'' if it is not known.
 * objects.entry: in the row of a manifest, an entry of the artifact, otherwise 0; sharers: its other entries. objects.parts:
 * in the row of a manifest, the digests of the artifact's objects in order, including the manifest itself. details_last_use:
 * the order of last use (last_used_ns begins as created_ns). removals: objects whose rows are deleted and whose files still
 * exist; kind 0: a file, 1: a manifest, 2: a manifest whose artifact has a directory of side files.
 */

/*
 * The digests in objects.parts, one per row: for short artifacts, nearly all, with a join with the first four numbers; the
 * rest of long artifacts with the recursive table `long`. n: has the column parts; g: other columns wanted with each digest.
 */
#define AOTICACHE_INDEX_SHORT_PART_SQL "substr(n.parts, p.column1 * 32 + 1, 32)"
#define AOTICACHE_INDEX_SHORT_SQL "CROSS JOIN (VALUES(0), (1), (2), (3)) p WHERE p.column1 * 32 < length(n.parts)"
#define AOTICACHE_INDEX_LONG_PART_SQL "substr(parts, i * 32 + 1, 32)"
#define AOTICACHE_INDEX_LONG_SQL(group, from, join)                                                     \
    "long(g, parts, i) AS (SELECT " group ", n.parts, 4 FROM " from join " WHERE length(n.parts) > 128" \
    " UNION ALL SELECT g, parts, i + 1 FROM long WHERE (i + 2) * 32 <= length(parts))"

#define AOTICACHE_INDEX_COLLECT_TABLES                                                                         \
    "CREATE TABLE sharers("                                                                                    \
    " artifact BLOB NOT NULL, entry INTEGER NOT NULL, PRIMARY KEY(artifact, entry)) STRICT, WITHOUT ROWID;"    \
    "CREATE TABLE removals("                                                                                   \
    " id INTEGER PRIMARY KEY AUTOINCREMENT," /* a number that was processed is not reused */                   \
    " object BLOB NOT NULL,"                                                                                   \
    " bytes INTEGER NOT NULL,"                                                                                 \
    " kind INTEGER NOT NULL) STRICT;"                                                                          \
    "CREATE TABLE totals("                                                                                     \
    " id INTEGER PRIMARY KEY,"                                                                                 \
    " entries INTEGER NOT NULL, artifacts INTEGER NOT NULL, objects INTEGER NOT NULL, bytes INTEGER NOT NULL," \
    " failures INTEGER NOT NULL) STRICT;"                                                                      \
    "INSERT INTO totals VALUES(1, 0, 0, 0, 0, 0);"

#define AOTICACHE_INDEX_NOT_PINNED_SQL "NOT EXISTS (SELECT 1 FROM marks m WHERE m.key = d.key AND m.pinned = 1)"

/* Includes failures recorded in the future; both halves are ranges of the index failures_retry. */
#define AOTICACHE_INDEX_EXPIRED_SQL "(retry_ns <= ?1 OR (retry_ns > ?1 AND failed_ns > ?1))"

/* name, SQL */
#define AOTICACHE_INDEX_COLLECT_STATEMENTS(X)                                                                         \
    X(TOTALS, "SELECT entries, artifacts, objects, bytes, failures,"                                                  \
              " (SELECT value FROM meta WHERE name = 'created_ns') FROM totals WHERE id = 1")                         \
    X(CHANGE_TOTALS, "UPDATE totals SET entries = entries + ?1, artifacts = artifacts + ?2, objects = objects + ?3,"  \
                     " bytes = bytes + ?4, failures = failures + ?5 WHERE id = 1")                                    \
    /* In the order of the index details_last_use, whose entries end with the id. */                                  \
    X(CANDIDATES, "SELECT d.id, d.last_used_ns, d.bytes, d.compile_ns, d.op, NOT " AOTICACHE_INDEX_NOT_PINNED_SQL     \
                  ", d.key, " AOTICACHE_INDEX_LOST_SQL(                                                               \
                      "d.key") " FROM details d"                                                                      \
                               " WHERE (d.last_used_ns, d.id) > (?1, ?2) ORDER BY d.last_used_ns, d.id LIMIT ?3")     \
    X(FIND_VICTIM, "SELECT e.key, e.id, e.artifact, e.file_count FROM details d"                                      \
                   " CROSS JOIN entries e ON e.key = d.key AND e.id = d.id WHERE d.id = ?1 AND d.last_used_ns = ?2"   \
                   " AND " AOTICACHE_INDEX_NOT_PINNED_SQL)                                                            \
    /* Before the transaction that removes it, and inside it: whether it is still to be removed. */                   \
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
    /* Always writes a page. */                                                                                       \
    X(SETTLE, "INSERT INTO meta(name, value) VALUES('settled', 1) ON CONFLICT(name) DO UPDATE SET value = value + 1") \
    X(GET_META, "SELECT value FROM meta WHERE name = ?1")                                                             \
    X(PUT_META, "INSERT INTO meta(name, value) VALUES(?1, ?2) ON CONFLICT(name) DO UPDATE SET value = excluded.value")

/*
 * ---- statistics ----
 *
 * history.level and latencies.level: 0, 1, 2: slots of five minutes, an hour, a day; 3: everything (latencies alone:
 * counters have the table counts); 4: the totals at the time when the numbers were zeroed, at start 0. groups.kind: 0
 * operator, 1 device, 2 environment; plus 16: at the time when the numbers were zeroed.
 */

#define AOTICACHE_LEVEL_TOTAL 3
#define AOTICACHE_LEVEL_ZERO 4
#define AOTICACHE_GROUP_ZERO 16 /* as in the statements below */

#define AOTICACHE_INDEX_STATISTICS_TABLES                                                                        \
    "CREATE TABLE history("                                                                                      \
    " level INTEGER NOT NULL,"                                                                                   \
    " start INTEGER NOT NULL," /* seconds since 1970 */                                                          \
    " name TEXT NOT NULL,"                                                                                       \
    " value INTEGER NOT NULL,"                                                                                   \
    " PRIMARY KEY(level, start, name)) STRICT, WITHOUT ROWID;"                                                   \
    "CREATE TABLE latencies("                                                                                    \
    " level INTEGER NOT NULL,"                                                                                   \
    " start INTEGER NOT NULL,"                                                                                   \
    " name TEXT NOT NULL,"                                                                                       \
    " sum INTEGER NOT NULL,"                                                                                     \
    " maximum INTEGER NOT NULL,"                                                                                 \
    " counts BLOB NOT NULL," /* index/stats/history.c encodes them */                                            \
    " PRIMARY KEY(level, start, name)) STRICT, WITHOUT ROWID;"                                                   \
    "CREATE TABLE groups("                                                                                       \
    " kind INTEGER NOT NULL,"                                                                                    \
    " name TEXT NOT NULL,"                                                                                       \
    " hits INTEGER NOT NULL, misses INTEGER NOT NULL, compiles INTEGER NOT NULL, failures INTEGER NOT NULL,"     \
    " compile_ns INTEGER NOT NULL, saved_ns INTEGER NOT NULL, entries INTEGER NOT NULL, bytes INTEGER NOT NULL," \
    " PRIMARY KEY(kind, name)) STRICT, WITHOUT ROWID;"

/* Sums stop at the largest integer, as in ADD_COUNT. */
#define AOTICACHE_SQL_SUM(column, added) column " = min(" column ", 9223372036854775807 - " added ") + " added

/* name, SQL */
#define AOTICACHE_INDEX_STATISTICS_STATEMENTS(X)                                                                                                                                                      \
    X(BEGIN_READ, "BEGIN")                                                                                                                                                                            \
    /* A use after ?4, which is now, was recorded by a clock that was ahead: ?2 replaces it. */                                                                                                       \
    X(TALLY,                                                                                                                                                                                          \
      "UPDATE details SET last_used_ns = iif(last_used_ns > ?4, ?2, max(last_used_ns, ?2)), " AOTICACHE_SQL_SUM(                                                                                      \
          "uses", "?3") " WHERE id = ?1 RETURNING op, device, producer")                                                                                                                              \
    X(HISTORY_ADD, "INSERT INTO history(level, start, name, value) VALUES(?1, ?2, ?3, ?4)"                                                                                                            \
                   " ON CONFLICT(level, start, name) DO UPDATE SET " AOTICACHE_SQL_SUM("value", "?4"))                                                                                                \
    X(HISTORY_OLDEST, "SELECT start FROM history WHERE level = ?1 ORDER BY start LIMIT 1")                                                                                                            \
    X(HISTORY_ROLL, "INSERT INTO history(level, start, name, value)"                                                                                                                                  \
                    " SELECT ?1 + 1, start - start % ?3 AS longer, name, sum(value) FROM history"                                                                                                     \
                    " WHERE level = ?1 AND start < ?2 GROUP BY longer, name"                                                                                                                          \
                    " ON CONFLICT(level, start, name) DO UPDATE SET " AOTICACHE_SQL_SUM("value", "excluded.value"))                                                                                   \
    X(HISTORY_DROP, "DELETE FROM history WHERE level = ?1 AND start < ?2")                                                                                                                            \
    /* For days the limit is a number of slots, not of years: a clock that was briefly ahead drops none. */                                                                                           \
    X(HISTORY_CUT, "SELECT DISTINCT start FROM history WHERE level = ?1 ORDER BY start DESC LIMIT 1 OFFSET ?2")                                                                                       \
    X(LATENCY_GET, "SELECT start, name, sum, maximum, counts FROM latencies"                                                                                                                          \
                   " WHERE level = ?1 AND start = ?2 AND name = ?3")                                                                                                                                  \
    X(LATENCY_PUT, "INSERT OR REPLACE INTO latencies(level, start, name, sum, maximum, counts)"                                                                                                       \
                   " VALUES(?1, ?2, ?3, ?4, ?5, ?6)")                                                                                                                                                 \
    X(LATENCY_OLDEST, "SELECT start, name, sum, maximum, counts FROM latencies WHERE level = ?1 AND start < ?2"                                                                                       \
                      " ORDER BY start, name LIMIT 1")                                                                                                                                                \
    X(LATENCY_DELETE, "DELETE FROM latencies WHERE level = ?1 AND start = ?2 AND name = ?3")                                                                                                          \
    X(LATENCY_DROP, "DELETE FROM latencies WHERE level = ?1 AND start < ?2")                                                                                                                          \
    X(LATENCIES, "SELECT level, name, sum, maximum, counts FROM latencies WHERE level BETWEEN ?1 AND ?2"                                                                                              \
                 " AND start >= ?3 AND start <= ?4 ORDER BY level, start, name")                                                                                                                      \
    X(COUNTS_SINCE_ZERO, "SELECT c.name, c.value - ifnull(z.value, 0) FROM counts c LEFT JOIN history z"                                                                                              \
                         " ON z.level = 4 AND z.start = 0 AND z.name = c.name ORDER BY c.name")                                                                                                       \
    X(COUNTS_SINCE, "SELECT name, sum(value) FROM history WHERE level IN (0, 1, 2) AND start >= ?1 AND start <= ?2"                                                                                   \
                    " GROUP BY name")                                                                                                                                                                 \
    X(HISTORY, "SELECT start - start % ?2 AS slot, name, sum(value) FROM history"                                                                                                                     \
               " WHERE level IN (0, 1, 2) AND start >= ?1 GROUP BY slot, name ORDER BY slot, name")                                                                                                   \
    X(READ_ZERO_TIME, "SELECT ifnull((SELECT value FROM meta WHERE name = 'zero_ns'), 0)")                                                                                                            \
    X(ZERO_TIME, "INSERT OR REPLACE INTO meta(name, value) VALUES('zero_ns', ?1)")                                                                                                                    \
    X(ZERO_COUNTS, "INSERT OR REPLACE INTO history(level, start, name, value) SELECT 4, 0, name, value FROM counts")                                                                                  \
    X(ZERO_LATENCIES, "INSERT OR REPLACE INTO latencies(level, start, name, sum, maximum, counts)"                                                                                                    \
                      " SELECT 4, 0, name, sum, maximum, counts FROM latencies WHERE level = 3")                                                                                                      \
    X(ZERO_GROUPS, "INSERT OR REPLACE INTO groups SELECT kind + 16, name, hits, misses,"                                                                                                              \
                   " compiles, failures, compile_ns, saved_ns, 0, 0 FROM groups WHERE kind < 16")                                                                                                     \
    X(GROUP_OF, "SELECT op, device, producer, bytes FROM details WHERE id = ?1")                                                                                                                      \
    X(GROUP_ADD,                                                                                                                                                                                      \
      "UPDATE groups SET " AOTICACHE_SQL_SUM("hits", "?3") ", " AOTICACHE_SQL_SUM("misses", "?4") ", " AOTICACHE_SQL_SUM(                                                                             \
          "compiles",                                                                                                                                                                                 \
          "?5") ", " AOTICACHE_SQL_SUM("failures",                                                                                                                                                    \
                                       "?6") ", " AOTICACHE_SQL_SUM("compile_ns",                                                                                                                     \
                                                                    "?7") ", " AOTICACHE_SQL_SUM("saved_ns",                                                                                          \
                                                                                                 "?8") ", entries = max(entries + ?9, 0), bytes = max(bytes + ?10, 0) WHERE kind = ?1 AND name = ?2") \
    X(GROUP_COUNT, "SELECT count(*) FROM groups WHERE kind = ?1")                                                                                                                                     \
    X(GROUP_MAKE, "INSERT OR IGNORE INTO groups(kind, name, hits, misses, compiles, failures, compile_ns, saved_ns,"                                                                                  \
                  " entries, bytes) VALUES(?1, ?2, 0, 0, 0, 0, 0, 0, 0, 0)")                                                                                                                          \
    X(GROUPS, "SELECT g.name, g.hits - ifnull(z.hits, 0), g.misses - ifnull(z.misses, 0),"                                                                                                            \
              " g.compiles - ifnull(z.compiles, 0), g.failures - ifnull(z.failures, 0),"                                                                                                              \
              " g.compile_ns - ifnull(z.compile_ns, 0), g.saved_ns - ifnull(z.saved_ns, 0), g.entries, g.bytes"                                                                                       \
              " FROM groups g LEFT JOIN groups z ON z.kind = ?2 AND z.name = g.name WHERE g.kind = ?1")                                                                                               \
    X(COLDEST, AOTICACHE_INDEX_LIST_COLUMNS                                                                                                                                                           \
      " FROM (SELECT id FROM details ORDER BY last_used_ns LIMIT ?1) n"                                                                                                                               \
      " CROSS JOIN details d ON d.id = n.id CROSS JOIN entries e ON e.key = d.key AND e.id = d.id"                                                                                                    \
      " ORDER BY d.last_used_ns, e.id LIMIT ?1")                                                                                                                                                      \
    X(LARGEST, AOTICACHE_INDEX_LIST_COLUMNS                                                                                                                                                           \
      " FROM (SELECT id FROM details ORDER BY bytes DESC LIMIT ?1) n"                                                                                                                                 \
      " CROSS JOIN details d ON d.id = n.id CROSS JOIN entries e ON e.key = d.key AND e.id = d.id"                                                                                                    \
      " ORDER BY d.bytes DESC, e.id LIMIT ?1")

/*
 * ---- pins, tags and usage ----
 *
 * Rows belong to keys, not to entries: a key may be pinned or tagged before anything is stored for it. Each such key has a
 * row in the table `marks`, even if it only has tags.
 */

#define AOTICACHE_INDEX_PINS_TABLES                                                                         \
    "CREATE TABLE marks(key BLOB PRIMARY KEY NOT NULL, pinned INTEGER NOT NULL) STRICT, WITHOUT ROWID;"     \
    "CREATE TABLE tags(key BLOB NOT NULL, tag TEXT NOT NULL, PRIMARY KEY(key, tag)) STRICT, WITHOUT ROWID;" \
    "CREATE INDEX tags_tag ON tags(tag);"

/* Bytes of a group: each object counts once, however many of its entries name it. */
#define AOTICACHE_INDEX_NAMED_SQL " named n CROSS JOIN details d ON d.id = n.entry"
#define AOTICACHE_INDEX_USAGE_SQL(group, join)                                                                              \
    "WITH RECURSIVE named(parts, entry) AS NOT MATERIALIZED (SELECT parts, entry FROM objects WHERE entry <> 0"             \
    " UNION ALL SELECT o.parts, s.entry FROM sharers s JOIN objects o ON o.digest = s.artifact)," AOTICACHE_INDEX_LONG_SQL( \
        group, AOTICACHE_INDEX_NAMED_SQL,                                                                                   \
        join) " SELECT g, sum(n), sum(bytes), max(used) FROM"                                                               \
              " (SELECT " group " AS g, count(*) AS n, 0 AS bytes, max(d.last_used_ns) AS used FROM details d" join         \
              " GROUP BY g UNION ALL SELECT g, 0, sum(o.bytes), 0 FROM"                                                     \
              " (SELECT " group " AS g, " AOTICACHE_INDEX_SHORT_PART_SQL                                                    \
              " AS object FROM" AOTICACHE_INDEX_NAMED_SQL join " " AOTICACHE_INDEX_SHORT_SQL                                \
              " UNION SELECT g, " AOTICACHE_INDEX_LONG_PART_SQL " FROM long)"                                               \
              " JOIN objects o ON o.digest = object GROUP BY g)"                                                            \
              " GROUP BY g ORDER BY 3 DESC, g"

/* name, SQL */
#define AOTICACHE_INDEX_PINS_STATEMENTS(X)                                                              \
    X(PUT_MARK, "INSERT INTO marks(key, pinned) VALUES(?1, ?2)"                                         \
                " ON CONFLICT(key) DO UPDATE SET pinned = excluded.pinned")                             \
    X(DELETE_MARK, "DELETE FROM marks WHERE key = ?1")                                                  \
    X(INSERT_TAG, "INSERT OR IGNORE INTO tags(key, tag) VALUES(?1, ?2)")                                \
    X(DELETE_TAGS, "DELETE FROM tags WHERE key = ?1")                                                   \
    X(LIST_MARKS, "SELECT m.key, m.pinned, t.tag FROM marks m LEFT JOIN tags t ON t.key = m.key"        \
                  " ORDER BY m.key, t.tag")                                                             \
    X(LIST_MARKS_OF_KEY, "SELECT m.key, m.pinned, t.tag FROM marks m LEFT JOIN tags t ON t.key = m.key" \
                         " WHERE m.key = ?1 ORDER BY m.key, t.tag")                                     \
    X(LIST_MARKS_OF_TAG, "SELECT m.key, m.pinned, t.tag FROM marks m LEFT JOIN tags t ON t.key = m.key" \
                         " WHERE m.key IN (SELECT key FROM tags WHERE tag = ?1) ORDER BY m.key, t.tag") \
    X(USAGE_BY_OP, AOTICACHE_INDEX_USAGE_SQL("d.op", ""))                                               \
    X(USAGE_BY_DEVICE, AOTICACHE_INDEX_USAGE_SQL("d.device", ""))                                       \
    X(USAGE_BY_PRODUCER, AOTICACHE_INDEX_USAGE_SQL("d.producer", ""))                                   \
    X(USAGE_BY_TAG, AOTICACHE_INDEX_USAGE_SQL("ifnull(t.tag, '')", " LEFT JOIN tags t ON t.key = d.key"))

/*
 * ---- timing results ----
 *
 * Rows belong to keys, not to entries, so that a slower kernel is not compiled again just because a collection has removed
 * it. size: the size class of a dynamic kernel, 0 for an exact one. slower: 1: the host's own kernel is faster.
 */

#define AOTICACHE_INDEX_JUDGEMENTS_TABLES                                                         \
    "CREATE TABLE judgements("                                                                    \
    " key BLOB NOT NULL, machine TEXT NOT NULL, threads INTEGER NOT NULL, size INTEGER NOT NULL," \
    " slower INTEGER NOT NULL, kernel_ns INTEGER NOT NULL, fallback_ns INTEGER NOT NULL,"         \
    " judged_ns INTEGER NOT NULL,"                                                                \
    " PRIMARY KEY(key, machine, threads, size)) STRICT, WITHOUT ROWID;"                           \
    "CREATE INDEX judgements_slower ON judgements(key) WHERE slower = 1;"

/* Whether the kernel was slower on every machine that timed it. */
#define AOTICACHE_INDEX_LOST_SQL(key) "ifnull((SELECT min(v.slower) FROM judgements v WHERE v.key = " key "), 0)"

/* name, SQL */
#define AOTICACHE_INDEX_JUDGEMENTS_STATEMENTS(X)                                                                       \
    X(PUT_JUDGEMENT, "INSERT OR REPLACE INTO judgements(key, machine, threads, size, slower, kernel_ns, fallback_ns,"  \
                     " judged_ns) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")                                             \
    X(LIST_JUDGEMENTS, "SELECT key, machine, threads, size, slower, kernel_ns, fallback_ns, judged_ns"                 \
                       " FROM judgements WHERE key = ?1 ORDER BY judged_ns DESC")                                      \
    X(FORGET_JUDGEMENTS, "DELETE FROM judgements WHERE judged_ns < ?1 OR judged_ns > ?2")                              \
    /* Each key of the partial index once, in order; the columns are those of CANDIDATES. */                           \
    X(LOST_CANDIDATES, "SELECT d.id, d.last_used_ns, d.bytes, d.compile_ns, d.op, NOT " AOTICACHE_INDEX_NOT_PINNED_SQL \
                       ", d.key, 1 FROM (SELECT DISTINCT key FROM judgements WHERE slower = 1 AND key >= ?1) l"        \
                       " CROSS JOIN entries e ON e.key = l.key CROSS JOIN details d ON d.id = e.id"                    \
                       " WHERE " AOTICACHE_INDEX_LOST_SQL("l.key") " AND (l.key, e.id) > (?1, ?2)"                     \
                                                                   " ORDER BY l.key, e.id LIMIT ?3")

/*
 * ---- entries, objects and failures ----
 *
 * entries.rank: how many bits its requirements have. entries.content_offset: where the only file of the artifact begins in the
 * object of its manifest; 0: it is a separate object. details.guard: '' for an exact entry. details.encoding: the encoding of
 * the request, '' if it is too long. failures.count: how many compiles in a row have failed.
 */

#define AOTICACHE_INDEX_ENTRIES_TABLES                                                                   \
    "CREATE TABLE entries("                                                                              \
    " key BLOB NOT NULL,"                                                                                \
    " rank INTEGER NOT NULL,"                                                                            \
    " created_ns INTEGER NOT NULL,"                                                                      \
    " id INTEGER NOT NULL,"                                                                              \
    " artifact BLOB NOT NULL,"                                                                           \
    " library BLOB NOT NULL,"                                                                            \
    " library_bytes INTEGER NOT NULL,"                                                                   \
    " file_count INTEGER NOT NULL,"                                                                      \
    " compile_ns INTEGER NOT NULL,"                                                                      \
    " requirements BLOB NOT NULL,"                                                                       \
    " content_offset INTEGER NOT NULL,"                                                                  \
    " PRIMARY KEY(key, rank DESC, created_ns DESC, id DESC)) STRICT, WITHOUT ROWID;"                     \
    "CREATE TABLE details("                                                                              \
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"                                                             \
    " key BLOB NOT NULL,"                                                                                \
    " guard TEXT NOT NULL,"                                                                              \
    " op TEXT NOT NULL,"                                                                                 \
    " device TEXT NOT NULL,"                                                                             \
    " description TEXT NOT NULL,"                                                                        \
    " producer TEXT NOT NULL,"                                                                           \
    " last_used_ns INTEGER NOT NULL,"                                                                    \
    " uses INTEGER NOT NULL,"                                                                            \
    " encoding BLOB NOT NULL,"                                                                           \
    " bytes INTEGER NOT NULL,"                                                                           \
    " compile_ns INTEGER NOT NULL) STRICT;"                                                              \
    "CREATE INDEX details_op ON details(op);"                                                            \
    "CREATE INDEX details_last_use ON details(last_used_ns);"                                            \
    "CREATE TABLE objects("                                                                              \
    " digest BLOB PRIMARY KEY NOT NULL,"                                                                 \
    " bytes INTEGER NOT NULL,"                                                                           \
    " refs INTEGER NOT NULL,"                                                                            \
    " artifact BLOB NOT NULL,"                                                                           \
    " entry INTEGER NOT NULL,"                                                                           \
    " parts BLOB NOT NULL) STRICT, WITHOUT ROWID;"                                                       \
    "CREATE TABLE failures("                                                                             \
    " key BLOB PRIMARY KEY NOT NULL,"                                                                    \
    " op TEXT NOT NULL,"                                                                                 \
    " description TEXT NOT NULL,"                                                                        \
    " message TEXT NOT NULL,"                                                                            \
    " failed_ns INTEGER NOT NULL,"                                                                       \
    " retry_ns INTEGER NOT NULL,"                                                                        \
    " count INTEGER NOT NULL) STRICT, WITHOUT ROWID;"                                                    \
    "CREATE INDEX failures_retry ON failures(retry_ns);"                                                 \
    "CREATE TABLE counts(name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;" \
    "CREATE TABLE meta(name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;"

/* The columns of an entry in a listing: details d and entries e (entries/list.c reads it). */
#define AOTICACHE_INDEX_LIST_COLUMNS                                                                                   \
    "SELECT e.id, e.key, e.artifact, e.library, e.file_count, e.requirements, d.guard, d.op, d.device, d.description," \
    " d.producer, e.compile_ns, e.created_ns, d.last_used_ns, d.uses, d.bytes"
#define AOTICACHE_INDEX_LIST_SQL \
    AOTICACHE_INDEX_LIST_COLUMNS " FROM details d CROSS JOIN entries e ON e.key = d.key AND e.id = d.id"

/* name, SQL */
#define AOTICACHE_INDEX_STATEMENT_LIST(X)                                                                             \
    AOTICACHE_INDEX_COLLECT_STATEMENTS(X)                                                                             \
    AOTICACHE_INDEX_STATISTICS_STATEMENTS(X)                                                                          \
    AOTICACHE_INDEX_PINS_STATEMENTS(X)                                                                                \
    AOTICACHE_INDEX_JUDGEMENTS_STATEMENTS(X)                                                                          \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                                       \
    X(COMMIT, "COMMIT")                                                                                               \
    /* The order is that of the primary key: one range of it, nothing is sorted. */                                   \
    X(LOOKUP, "SELECT id, artifact, library, library_bytes, file_count, compile_ns, requirements, content_offset,"    \
              " key FROM entries WHERE key = ?1 ORDER BY rank DESC, created_ns DESC, id DESC")                        \
    X(LOOKUP_ENTRY, "SELECT e.id, e.artifact, e.library, e.library_bytes, e.file_count, e.compile_ns,"                \
                    " e.requirements, e.content_offset FROM details d CROSS JOIN entries e"                           \
                    " ON e.key = d.key AND e.id = d.id WHERE d.id = ?1")                                              \
    X(READ_GUARD, "SELECT guard FROM details WHERE id = ?1")                                                          \
    /* The data that one removal needs: key, id, artifact, files. */                                                  \
    X(FIND_SAME, "SELECT e.key, e.id, e.artifact, e.file_count FROM entries e JOIN details d ON d.id = e.id"          \
                 " WHERE e.key = ?1 AND e.requirements = ?2 AND d.guard = ?3 LIMIT 1")                                \
    X(FIND_KEY, "SELECT key, id, artifact, file_count FROM entries WHERE key = ?1 LIMIT 1")                           \
    X(FIND_ID, "SELECT e.key, e.id, e.artifact, e.file_count FROM details d JOIN entries e"                           \
               " ON e.key = d.key AND e.id = d.id WHERE d.id = ?1 LIMIT 1")                                           \
    /* Through the artifact in the object's row; if it has none, by searching all artifacts. */                       \
    X(FIND_OBJECT, "SELECT e.key, e.id, e.artifact, e.file_count FROM objects o"                                      \
                   " CROSS JOIN objects m ON m.digest = o.artifact CROSS JOIN details d ON d.id = m.entry"            \
                   " CROSS JOIN entries e ON e.key = d.key AND e.id = d.id WHERE o.digest = ?1 LIMIT 1")              \
    X(SEARCH_OBJECT, "SELECT e.key, e.id, e.artifact, e.file_count FROM objects m CROSS JOIN details d"               \
                     " ON d.id = m.entry CROSS JOIN entries e ON e.key = d.key AND e.id = d.id"                       \
                     " WHERE m.entry <> 0 AND instr(m.parts, ?1) % 32 = 1 LIMIT 1")                                   \
    X(INSERT_DETAILS, "INSERT INTO details(key, guard, op, device, description, producer, last_used_ns, uses,"        \
                      " encoding, bytes, compile_ns) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?9, ?10)")             \
    X(INSERT_ENTRY, "INSERT INTO entries(key, rank, created_ns, id, artifact, library, library_bytes, file_count,"    \
                    " compile_ns, requirements, content_offset)"                                                      \
                    " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)")                                          \
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
    X(LIST_ENTRY, AOTICACHE_INDEX_LIST_SQL " WHERE d.id = ?1")                                                        \
    /* Two ranges of the index details_op, whose entries end with the id: the rest of an operator, later operators */ \
    X(LIST_OF_OP, AOTICACHE_INDEX_LIST_SQL " WHERE d.op = ?1 AND d.id > ?2 ORDER BY d.id LIMIT ?3")                   \
    X(LIST_BEHIND_OP, AOTICACHE_INDEX_LIST_SQL " WHERE d.op > ?1 AND ?2 IS NOT NULL ORDER BY d.op, d.id LIMIT ?3")    \
    /* One range of the index details_op, whose entries end with the id. */                                           \
    X(LIST_STORED, "SELECT e.id, e.key, e.artifact, e.rank, e.created_ns, e.compile_ns, e.requirements, d.guard,"     \
                   " d.encoding FROM details d CROSS JOIN entries e ON e.key = d.key AND e.id = d.id"                 \
                   " WHERE d.op = ?1 AND d.id > ?2 ORDER BY d.id LIMIT ?3")                                           \
    X(HAS_OBJECT, "SELECT 1 FROM objects WHERE digest = ?1")                                                          \
    X(COUNT_FAILURES, "SELECT count FROM failures WHERE key = ?1")                                                    \
    X(PUT_FAILURE, "INSERT OR REPLACE INTO failures(key, op, description, message, failed_ns, retry_ns, count)"       \
                   " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)")                                                             \
    /* A failure recorded in the future was recorded by a wrong clock, and is ignored. */                             \
    X(LOOKUP_FAILURE, "SELECT message FROM failures WHERE key = ?1 AND retry_ns > ?2 AND failed_ns <= ?2")            \
    X(FORGET_FAILURE, "DELETE FROM failures WHERE key = ?1")                                                          \
    X(FORGET_FAILURES, "DELETE FROM failures WHERE retry_ns <= ?1")                                                   \
    X(LIST_FAILURES, "SELECT key, op, description, message, failed_ns, retry_ns, count FROM failures"                 \
                     " ORDER BY failed_ns DESC, key")                                                                 \
    /* Sums stop at the largest integer: SQLite would continue in floating point, which a strict column refuses. */   \
    X(ADD_USE, "UPDATE details SET last_used_ns = max(last_used_ns, ?2),"                                             \
               " uses = min(uses, 9223372036854775807 - ?3) + ?3 WHERE id = ?1")                                      \
    X(ADD_COUNT, "INSERT INTO counts(name, value) VALUES(?1, ?2)"                                                     \
                 " ON CONFLICT(name) DO UPDATE SET value = min(value, 9223372036854775807 - ?2) + ?2")                \
    X(LIST_COUNTS, "SELECT name, value FROM counts ORDER BY name")

/* All tables of an empty index. */
#define AOTICACHE_INDEX_TABLES                                                                      \
    AOTICACHE_INDEX_ENTRIES_TABLES AOTICACHE_INDEX_COLLECT_TABLES AOTICACHE_INDEX_STATISTICS_TABLES \
        AOTICACHE_INDEX_PINS_TABLES AOTICACHE_INDEX_JUDGEMENTS_TABLES

#endif
