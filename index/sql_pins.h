/*
 * index/sql_pins: tables (version 3) and statements for pins and tags.
 *
 * Rows are of keys, not of entries: a key may be marked before anything is stored for it. Every marked key has a row in
 * marks, a tagged one that is not pinned too.
 */
#ifndef AOTICACHE_INDEX_SQL_PINS_H
#define AOTICACHE_INDEX_SQL_PINS_H

#define AOTICACHE_SCHEMA_3_MARKS                                                                            \
    "CREATE TABLE marks(key BLOB PRIMARY KEY NOT NULL, pinned INTEGER NOT NULL) STRICT, WITHOUT ROWID;"     \
    "CREATE TABLE tags(key BLOB NOT NULL, tag TEXT NOT NULL, PRIMARY KEY(key, tag)) STRICT, WITHOUT ROWID;" \
    "CREATE INDEX tags_tag ON tags(tag);"

/* Bytes of a group: each object counts once in it, however many of its entries name it. */
#define AOTICACHE_INDEX_NAMED_SQL " named n CROSS JOIN details d ON d.id = n.entry"
#define AOTICACHE_INDEX_USAGE_SQL(group, join)                                                                   \
    "WITH RECURSIVE named(parts, entry) AS NOT MATERIALIZED (SELECT parts, entry FROM objects WHERE entry <> 0"  \
    " UNION ALL SELECT o.parts, s.entry FROM sharers s JOIN objects o ON o.digest = s.artifact),"                \
    AOTICACHE_INDEX_LONG_SQL(group, AOTICACHE_INDEX_NAMED_SQL, join)                                             \
    " SELECT g, sum(n), sum(bytes), max(used) FROM"                                                              \
    " (SELECT " group " AS g, count(*) AS n, 0 AS bytes, max(d.last_used_ns) AS used FROM details d" join        \
    " GROUP BY g UNION ALL SELECT g, 0, sum(o.bytes), 0 FROM"                                                    \
    " (SELECT " group " AS g, " AOTICACHE_INDEX_SHORT_PART_SQL " AS object FROM" AOTICACHE_INDEX_NAMED_SQL join  \
    " " AOTICACHE_INDEX_SHORT_SQL " UNION SELECT g, " AOTICACHE_INDEX_LONG_PART_SQL " FROM long)"                \
    " JOIN objects o ON o.digest = object GROUP BY g)"                                                           \
    " GROUP BY g ORDER BY 3 DESC, g"

/* name, SQL */
#define AOTICACHE_INDEX_PINS_STATEMENTS(X)                                                              \
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
