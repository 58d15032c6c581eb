/*
 * index/entries/lookup: the one query that a cold hit waits for, and queries for an entry whose number is known.
 */
#include "index/connection/connection_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/arguments.h"

#define MAX_KEPT_HITS 8 /* of one key; there are not more kinds of processors */

/* Reads the columns of the statements LOOKUP and LOOKUP_ENTRY. */
static bool read_hit(sqlite3_stmt *statement, aoticache_index_hit *ret_hit)
{
    return aoticache_index_read_integer(statement, 0, &ret_hit->entry_id) &&
           aoticache_index_read_blob(statement, 1, ret_hit->artifact.bytes, AOTICACHE_DIGEST_BYTES) &&
           aoticache_index_read_blob(statement, 2, ret_hit->library.bytes, AOTICACHE_DIGEST_BYTES) &&
           aoticache_index_read_unsigned(statement, 3, &ret_hit->library_bytes) &&
           aoticache_index_read_count(statement, 4, &ret_hit->file_count) &&
           aoticache_index_read_unsigned(statement, 5, &ret_hit->compile_ns) &&
           aoticache_index_read_blob(statement, 6, ret_hit->requirements, AOTICACHE_INDEX_REQUIREMENT_BYTES) &&
           aoticache_index_read_unsigned(statement, 7, &ret_hit->content_offset);
}

/*
 * Checks the key of the row. SQLite assumes that rows are in the order of their keys: after a row with a damaged key it
 * takes other rows for rows of the key that it searches.
 */
static bool is_of_key(sqlite3_stmt *statement, const aoticache_digest *key)
{
    aoticache_digest found;
    return aoticache_index_read_blob(statement, 8, found.bytes, AOTICACHE_DIGEST_BYTES) &&
           aoticache_digest_equal(&found, key);
}

/* ---- hits in the query cache (query_cache/query_cache.c) ---- */

struct kept_hit {
    int64_t entry_id;
    aoticache_digest artifact, library;
    uint64_t library_bytes, content_offset, file_count, compile_ns;
    uint8_t requirements[AOTICACHE_INDEX_REQUIREMENT_BYTES];
};
static_assert(sizeof(struct kept_hit) == 120, "no byte of it is without a value");

static struct kept_hit keep_hit(const aoticache_index_hit *hit)
{
    struct kept_hit kept = {.entry_id = hit->entry_id,
                            .artifact = hit->artifact,
                            .library = hit->library,
                            .library_bytes = hit->library_bytes,
                            .content_offset = hit->content_offset,
                            .file_count = hit->file_count,
                            .compile_ns = hit->compile_ns};
    memcpy(kept.requirements, hit->requirements, sizeof kept.requirements);
    return kept;
}

static void recall_hit(const uint8_t *bytes, aoticache_index_hit *ret_hit)
{
    struct kept_hit kept;
    memcpy(&kept, bytes, sizeof kept);
    *ret_hit = (aoticache_index_hit){.entry_id = kept.entry_id,
                                     .artifact = kept.artifact,
                                     .library = kept.library,
                                     .library_bytes = kept.library_bytes,
                                     .content_offset = kept.content_offset,
                                     .file_count = (uint32_t)kept.file_count,
                                     .compile_ns = kept.compile_ns};
    memcpy(ret_hit->requirements, kept.requirements, sizeof kept.requirements);
}

/* Records all entries of a key, or none if not all of them fitted in `hits`. */
static void note_hits(aoticache_index *index, const aoticache_digest *key, const aoticache_index_hit *hits,
                      size_t capacity, size_t count)
{
    struct kept_hit kept[MAX_KEPT_HITS];
    if (!aoticache_query_cache_wants(index) || count > capacity || count > MAX_KEPT_HITS)
        return;
    for (size_t i = 0; i < count; i++)
        kept[i] = keep_hit(&hits[i]);
    aoticache_query_cache_note(index, AOTICACHE_INDEX_ASKS_LOOKUP, key->bytes, sizeof key->bytes, kept,
                               count * sizeof kept[0]);
}

static bool recall_hits(aoticache_index *index, const aoticache_digest *key, aoticache_index_hit *ret_hits,
                        size_t capacity, size_t *ret_count)
{
    const uint8_t *answer;
    size_t size;
    if (!aoticache_query_cache_find(index, AOTICACHE_INDEX_ASKS_LOOKUP, key->bytes, sizeof key->bytes, &answer,
                                    &size) ||
        size % sizeof(struct kept_hit) != 0)
        return false;
    *ret_count = size / sizeof(struct kept_hit);
    for (size_t i = 0; i < *ret_count && i < capacity; i++)
        recall_hit(answer + i * sizeof(struct kept_hit), &ret_hits[i]);
    return *ret_count > 0;
}

/* ---- by key ---- */

static aoticache_status read_hits(aoticache_index *index, sqlite3_stmt *statement, const aoticache_digest *key,
                                  aoticache_index_hit *ret_hits, size_t capacity, size_t *ret_count,
                                  aoticache_error *ret_error)
{
    size_t count = 0;
    int result = sqlite3_step(statement);
    for (; result == SQLITE_ROW; result = sqlite3_step(statement)) {
        if (count < capacity && !(is_of_key(statement, key) && read_hit(statement, &ret_hits[count])))
            return aoticache_index_fail_row(index, "entries", ret_error);
        count++;
    }
    if (result != SQLITE_DONE)
        return aoticache_index_fail(index, result, "cannot look up", ret_error);
    if (count == 0)
        return AOTICACHE_NOT_FOUND;
    *ret_count = count;
    return AOTICACHE_OK;
}

aoticache_status aoticache_index_lookup(aoticache_index *index, const aoticache_digest *key,
                                        aoticache_index_hit *ret_hits, size_t capacity, size_t *ret_count,
                                        aoticache_error *ret_error)
{
    if (index == NULL || key == NULL || ret_count == NULL || (ret_hits == NULL && capacity > 0))
        return AOTICACHE_REFUSE_NULL(ret_error, index, key, ret_count, ret_hits);
    sqlite3_stmt *statement = NULL;
    if (recall_hits(index, key, ret_hits, capacity, ret_count))
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_enter_statement(index, SQL(LOOKUP), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, key);
    status = read_hits(index, statement, key, ret_hits, capacity, ret_count, ret_error);
    if (status == AOTICACHE_OK)
        note_hits(index, key, ret_hits, capacity, *ret_count);
    aoticache_index_leave_statement(index, statement);
    return status;
}

/* ---- by number ---- */

static aoticache_status copy_hit(aoticache_index *index, sqlite3_stmt *row, void *result, aoticache_error *ret_error)
{
    aoticache_index_hit hit;
    if (!read_hit(row, &hit))
        return aoticache_index_fail_row(index, "entries", ret_error);
    *(aoticache_index_hit *)result = hit;
    const struct kept_hit kept = keep_hit(&hit);
    aoticache_query_cache_note(index, AOTICACHE_INDEX_ASKS_ENTRY, &hit.entry_id, sizeof hit.entry_id, &kept,
                               sizeof kept);
    return AOTICACHE_OK;
}

aoticache_status aoticache_index_lookup_entry(aoticache_index *index, int64_t entry_id, aoticache_index_hit *ret_hit,
                                              aoticache_error *ret_error)
{
    if (index == NULL || ret_hit == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, ret_hit);
    const uint8_t *answer;
    size_t size;
    if (aoticache_query_cache_find(index, AOTICACHE_INDEX_ASKS_ENTRY, &entry_id, sizeof entry_id, &answer, &size) &&
        size == sizeof(struct kept_hit)) {
        recall_hit(answer, ret_hit);
        return AOTICACHE_OK;
    }
    return aoticache_index_read_row(index, SQL(LOOKUP_ENTRY), entry_id, copy_hit, ret_hit, ret_error);
}

struct guard {
    int64_t entry_id;
    char *text;
};

static aoticache_status copy_text(const aoticache_index *index, const char *text, char **ret_copy,
                                  aoticache_error *ret_error)
{
    *ret_copy = strdup(text);
    return *ret_copy != NULL
               ? AOTICACHE_OK
               : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "index %s: out of memory", index->path);
}

static aoticache_status copy_guard(aoticache_index *index, sqlite3_stmt *row, void *result, aoticache_error *ret_error)
{
    struct guard *guard = result;
    const char *text;
    if (!aoticache_index_read_text(row, 0, &text))
        return aoticache_index_fail_row(index, "details", ret_error);
    aoticache_query_cache_note(index, AOTICACHE_INDEX_ASKS_GUARD, &guard->entry_id, sizeof guard->entry_id, text,
                               strlen(text) + 1);
    return copy_text(index, text, &guard->text, ret_error);
}

aoticache_status aoticache_index_read_guard(aoticache_index *index, int64_t entry_id, char **ret_guard,
                                            aoticache_error *ret_error)
{
    if (index == NULL || ret_guard == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, ret_guard);
    const uint8_t *answer;
    size_t size;
    if (aoticache_query_cache_find(index, AOTICACHE_INDEX_ASKS_GUARD, &entry_id, sizeof entry_id, &answer, &size) &&
        size > 0 && answer[size - 1] == '\0')
        return copy_text(index, (const char *)answer, ret_guard, ret_error);
    struct guard guard = {.entry_id = entry_id};
    aoticache_status status = aoticache_index_read_row(index, SQL(READ_GUARD), entry_id, copy_guard, &guard, ret_error);
    if (status == AOTICACHE_OK)
        *ret_guard = guard.text;
    return status;
}
