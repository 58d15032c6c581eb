/*
 * index/sql_statistics: tables (version 3) and statements for history, groups and histograms.
 *
 * history.level and latencies.level: 0, 1, 2: slots of five minutes, an hour, a day; 3: everything (latencies alone:
 * counters have the table counts); 4: what everything was when the numbers were zeroed, at start 0. groups.kind: 0
 * operator, 1 device, 2 environment; 16 more: when the numbers were zeroed.
 */
#ifndef AOTICACHE_INDEX_SQL_STATISTICS_H
#define AOTICACHE_INDEX_SQL_STATISTICS_H

#define AOTICACHE_LEVEL_TOTAL 3
#define AOTICACHE_LEVEL_ZERO 4
#define AOTICACHE_GROUP_ZERO 16 /* as in the statements below */

#define AOTICACHE_SCHEMA_3_STATISTICS                                                                           \
    "CREATE TABLE history("                                                                                     \
    " level INTEGER NOT NULL,"                                                                                  \
    " start INTEGER NOT NULL," /* seconds since 1970 */                                                         \
    " name TEXT NOT NULL,"                                                                                      \
    " value INTEGER NOT NULL,"                                                                                  \
    " PRIMARY KEY(level, start, name)) STRICT, WITHOUT ROWID;"                                                  \
    "CREATE TABLE latencies("                                                                                   \
    " level INTEGER NOT NULL,"                                                                                  \
    " start INTEGER NOT NULL,"                                                                                  \
    " name TEXT NOT NULL,"                                                                                      \
    " sum INTEGER NOT NULL,"                                                                                    \
    " maximum INTEGER NOT NULL,"                                                                                \
    " counts BLOB NOT NULL," /* index/statistics_vector.c */                                                    \
    " PRIMARY KEY(level, start, name)) STRICT, WITHOUT ROWID;"                                                  \
    "CREATE TABLE groups("                                                                                      \
    " kind INTEGER NOT NULL,"                                                                                   \
    " name TEXT NOT NULL,"                                                                                      \
    " hits INTEGER NOT NULL, misses INTEGER NOT NULL, compiles INTEGER NOT NULL, failures INTEGER NOT NULL,"    \
    " compile_ns INTEGER NOT NULL, saved_ns INTEGER NOT NULL, entries INTEGER NOT NULL, bytes INTEGER NOT NULL," \
    " PRIMARY KEY(kind, name)) STRICT, WITHOUT ROWID;"                                                          \
    "INSERT INTO meta(name, value) VALUES('statistics_ns', CAST(strftime('%s', 'now') AS INTEGER) * 1000000000);" \
    /* What an index of an older version holds becomes groups: names beyond the limit become one. */            \
    "INSERT INTO groups SELECT k, iif(row_number() OVER (PARTITION BY k ORDER BY n) <= 4096"                    \
    " AND length(CAST(n AS BLOB)) < 256, n, '(other)'), 0, 0, 0, 0, 0, 0, c, b FROM ("                          \
    "SELECT 0 AS k, op AS n, count(*) AS c, sum(bytes) AS b FROM details GROUP BY op"                           \
    " UNION ALL SELECT 1, device, count(*), sum(bytes) FROM details GROUP BY device"                            \
    " UNION ALL SELECT 2, producer, count(*), sum(bytes) FROM details GROUP BY producer) WHERE true"            \
    " ON CONFLICT(kind, name) DO UPDATE SET entries = entries + excluded.entries, bytes = bytes + excluded.bytes;"

/* Sums stop at the largest integer, as in ADD_COUNT. */
#define AOTICACHE_SQL_SUM(column, added) column " = min(" column ", 9223372036854775807 - " added ") + " added

/* The columns of AOTICACHE_INDEX_LIST_SQL. */
#define AOTICACHE_INDEX_EXTREME_COLUMNS                                                                               \
    "SELECT e.id, e.key, e.artifact, e.library, e.file_count, e.requirements, d.guard, d.op, d.device, d.description," \
    " d.producer, e.compile_ns, e.created_ns, d.last_used_ns, d.uses, d.bytes"

/* name, SQL */
#define AOTICACHE_INDEX_STATISTICS_STATEMENTS(X)                                                                      \
    X(BEGIN_READ, "BEGIN")                                                                                            \
    /* A use after ?4, which is now, was recorded by a clock that was ahead: the one of ?2 takes its place. */        \
    X(TALLY, "UPDATE details SET last_used_ns = iif(last_used_ns > ?4, ?2, max(last_used_ns, ?2)), "                  \
             AOTICACHE_SQL_SUM("uses", "?3") " WHERE id = ?1 RETURNING op, device, producer")                         \
    X(HISTORY_ADD, "INSERT INTO history(level, start, name, value) VALUES(?1, ?2, ?3, ?4)"                            \
                   " ON CONFLICT(level, start, name) DO UPDATE SET " AOTICACHE_SQL_SUM("value", "?4"))                \
    X(HISTORY_OLDEST, "SELECT start FROM history WHERE level = ?1 ORDER BY start LIMIT 1")                            \
    X(HISTORY_ROLL, "INSERT INTO history(level, start, name, value)"                                                  \
                    " SELECT ?1 + 1, start - start % ?3 AS longer, name, sum(value) FROM history"                     \
                    " WHERE level = ?1 AND start < ?2 GROUP BY longer, name"                                          \
                    " ON CONFLICT(level, start, name) DO UPDATE SET " AOTICACHE_SQL_SUM("value", "excluded.value"))   \
    X(HISTORY_DROP, "DELETE FROM history WHERE level = ?1 AND start < ?2")                                            \
    /* Of days so many are kept, not those of so many years: a clock that was ahead for a moment drops none. */       \
    X(HISTORY_CUT, "SELECT DISTINCT start FROM history WHERE level = ?1 ORDER BY start DESC LIMIT 1 OFFSET ?2")       \
    X(LATENCY_GET, "SELECT start, name, sum, maximum, counts FROM latencies"                                          \
                   " WHERE level = ?1 AND start = ?2 AND name = ?3")                                                  \
    X(LATENCY_PUT, "INSERT OR REPLACE INTO latencies(level, start, name, sum, maximum, counts)"                       \
                   " VALUES(?1, ?2, ?3, ?4, ?5, ?6)")                                                                 \
    X(LATENCY_OLDEST, "SELECT start, name, sum, maximum, counts FROM latencies WHERE level = ?1 AND start < ?2"       \
                      " ORDER BY start, name LIMIT 1")                                                                \
    X(LATENCY_DELETE, "DELETE FROM latencies WHERE level = ?1 AND start = ?2 AND name = ?3")                          \
    X(LATENCY_DROP, "DELETE FROM latencies WHERE level = ?1 AND start < ?2")                                          \
    X(LATENCIES, "SELECT level, name, sum, maximum, counts FROM latencies WHERE level BETWEEN ?1 AND ?2"              \
                 " AND start >= ?3 AND start <= ?4 ORDER BY level, start, name")                                                      \
    X(COUNTS_SINCE_ZERO, "SELECT c.name, c.value - ifnull(z.value, 0) FROM counts c LEFT JOIN history z"              \
                         " ON z.level = 4 AND z.start = 0 AND z.name = c.name ORDER BY c.name")                       \
    X(COUNTS_SINCE, "SELECT name, sum(value) FROM history WHERE level IN (0, 1, 2) AND start >= ?1 AND start <= ?2"   \
                    " GROUP BY name")                                                                                 \
    X(HISTORY, "SELECT start - start % ?2 AS slot, name, sum(value) FROM history"                                     \
               " WHERE level IN (0, 1, 2) AND start >= ?1 GROUP BY slot, name ORDER BY slot, name")                   \
    X(READ_TIMES, "SELECT ifnull((SELECT value FROM meta WHERE name = 'statistics_ns'), 0),"                          \
                  " ifnull((SELECT value FROM meta WHERE name = 'zero_ns'), 0)")                                      \
    X(ZERO_TIME, "INSERT OR REPLACE INTO meta(name, value) VALUES('zero_ns', ?1)")                                    \
    X(ZERO_COUNTS, "INSERT OR REPLACE INTO history(level, start, name, value) SELECT 4, 0, name, value FROM counts")  \
    X(ZERO_LATENCIES, "INSERT OR REPLACE INTO latencies(level, start, name, sum, maximum, counts)"                    \
                      " SELECT 4, 0, name, sum, maximum, counts FROM latencies WHERE level = 3")                      \
    X(ZERO_GROUPS, "INSERT OR REPLACE INTO groups SELECT kind + 16, name, hits, misses,"  \
                   " compiles, failures, compile_ns, saved_ns, 0, 0 FROM groups WHERE kind < 16")                       \
    X(GROUP_OF, "SELECT op, device, producer, bytes FROM details WHERE id = ?1")                                      \
    X(GROUP_ADD, "UPDATE groups SET " AOTICACHE_SQL_SUM("hits", "?3") ", " AOTICACHE_SQL_SUM("misses", "?4")          \
                 ", " AOTICACHE_SQL_SUM("compiles", "?5") ", " AOTICACHE_SQL_SUM("failures", "?6")                    \
                 ", " AOTICACHE_SQL_SUM("compile_ns", "?7") ", " AOTICACHE_SQL_SUM("saved_ns", "?8")                  \
                 ", entries = max(entries + ?9, 0), bytes = max(bytes + ?10, 0) WHERE kind = ?1 AND name = ?2")       \
    X(GROUP_COUNT, "SELECT count(*) FROM groups WHERE kind = ?1")                                                     \
    X(GROUP_MAKE, "INSERT OR IGNORE INTO groups(kind, name, hits, misses, compiles, failures, compile_ns, saved_ns,"  \
                  " entries, bytes) VALUES(?1, ?2, 0, 0, 0, 0, 0, 0, 0, 0)")                                          \
    X(GROUPS, "SELECT g.name, g.hits - ifnull(z.hits, 0), g.misses - ifnull(z.misses, 0),"                            \
              " g.compiles - ifnull(z.compiles, 0), g.failures - ifnull(z.failures, 0),"                              \
              " g.compile_ns - ifnull(z.compile_ns, 0), g.saved_ns - ifnull(z.saved_ns, 0), g.entries, g.bytes"       \
              " FROM groups g LEFT JOIN groups z ON z.kind = ?2 AND z.name = g.name WHERE g.kind = ?1")               \
    X(COLDEST, AOTICACHE_INDEX_EXTREME_COLUMNS " FROM (SELECT id FROM details ORDER BY last_used_ns LIMIT ?1) n" \
               " CROSS JOIN details d ON d.id = n.id CROSS JOIN entries e ON e.key = d.key AND e.id = d.id"           \
               " ORDER BY d.last_used_ns, e.id LIMIT ?1")                                                             \
    X(LARGEST, AOTICACHE_INDEX_EXTREME_COLUMNS " FROM (SELECT id FROM details ORDER BY bytes DESC LIMIT ?1) n"        \
               " CROSS JOIN details d ON d.id = n.id CROSS JOIN entries e ON e.key = d.key AND e.id = d.id"           \
               " ORDER BY d.bytes DESC, e.id LIMIT ?1")

#endif
