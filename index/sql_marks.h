/*
 * index/sql_marks: tables (version 3) and statements for pins and tags.
 *
 * Rows are of keys, not of entries: a key may be marked before anything is stored for it. Every marked key has a row in
 * marks, a tagged one that is not pinned too.
 */
#ifndef AOTICACHE_INDEX_SQL_MARKS_H
#define AOTICACHE_INDEX_SQL_MARKS_H

#define AOTICACHE_SCHEMA_3_MARKS                                                                            \
    "CREATE TABLE marks(key BLOB PRIMARY KEY NOT NULL, pinned INTEGER NOT NULL) STRICT, WITHOUT ROWID;"     \
    "CREATE TABLE tags(key BLOB NOT NULL, tag TEXT NOT NULL, PRIMARY KEY(key, tag)) STRICT, WITHOUT ROWID;" \
    "CREATE INDEX tags_tag ON tags(tag);"

/* Bytes of a group: each object counts once in it, however many of its entries name it. */
#define AOTICACHE_INDEX_USAGE_SQL(group, join)                                                                   \
    "WITH RECURSIVE part(g, parts, i) AS (SELECT DISTINCT " group ", m.parts, 0 FROM details d"                  \
    " CROSS JOIN entries e ON e.key = d.key AND e.id = d.id" join                                                \
    " JOIN objects m ON m.digest = e.artifact WHERE m.parts <> x''"                                              \
    " UNION ALL SELECT g, parts, i + 1 FROM part WHERE (i + 2) * 32 <= length(parts))"                           \
    " SELECT g, sum(n), sum(bytes), max(used) FROM"                                                              \
    " (SELECT " group " AS g, count(*) AS n, 0 AS bytes, max(d.last_used_ns) AS used FROM details d" join        \
    " GROUP BY g UNION ALL SELECT g, 0, sum(o.bytes), 0 FROM"                                                    \
    " (SELECT DISTINCT g, substr(parts, i * 32 + 1, 32) AS object FROM part)"                                    \
    " JOIN objects o ON o.digest = object GROUP BY g)"                                                           \
    " GROUP BY g ORDER BY 3 DESC, g"

/* name, SQL */
#define AOTICACHE_INDEX_MARKS_STATEMENTS(X)                                                              \
    X(PUT_MARK, "INSERT INTO marks(key, pinned) VALUES(?1, ?2)"                                          \
                " ON CONFLICT(key) DO UPDATE SET pinned = excluded.pinned")                              \
    X(DELETE_MARK, "DELETE FROM marks WHERE key = ?1")                                                   \
    X(INSERT_TAG, "INSERT OR IGNORE INTO tags(key, tag) VALUES(?1, ?2)")                                 \
    X(DELETE_TAGS, "DELETE FROM tags WHERE key = ?1")                                                    \
    X(LIST_MARKS, "SELECT m.key, m.pinned, t.tag FROM marks m LEFT JOIN tags t ON t.key = m.key"         \
                  " ORDER BY m.key, t.tag")                                                              \
    X(LIST_MARKS_OF_KEY, "SELECT m.key, m.pinned, t.tag FROM marks m LEFT JOIN tags t ON t.key = m.key"  \
                         " WHERE m.key = ?1 ORDER BY m.key, t.tag")                                      \
    X(LIST_MARKS_OF_TAG, "SELECT m.key, m.pinned, t.tag FROM marks m LEFT JOIN tags t ON t.key = m.key"  \
                         " WHERE m.key IN (SELECT key FROM tags WHERE tag = ?1) ORDER BY m.key, t.tag")  \
    X(USAGE_BY_OP, AOTICACHE_INDEX_USAGE_SQL("d.op", ""))                                                \
    X(USAGE_BY_DEVICE, AOTICACHE_INDEX_USAGE_SQL("d.device", ""))                                        \
    X(USAGE_BY_PRODUCER, AOTICACHE_INDEX_USAGE_SQL("d.producer", ""))                                    \
    X(USAGE_BY_TAG, AOTICACHE_INDEX_USAGE_SQL("ifnull(t.tag, '')", " LEFT JOIN tags t ON t.key = d.key"))

#endif
