/*
 * index/eviction/candidates: the queries of a collection. Nothing is sorted or searched: every statement iterates over a
 * range of a tree, a limited number of rows at a time, so that other threads do not wait long for the mutex.
 */
#include "index/eviction/eviction.h"
#include "index/connection/connection_internal.h"

#include <string.h>

/* ---- candidates ---- */

struct candidates {
    aoticache_index_candidate_fn callback;
    void *user;
};

static bool read_candidate(void *user, sqlite3_stmt *row, bool *ret_continues)
{
    struct candidates *candidates = user;
    aoticache_index_candidate candidate;
    uint32_t is_pinned, is_lost;
    if (!aoticache_index_read_integer(row, 0, &candidate.entry_id) ||
        !aoticache_index_read_integer(row, 1, &candidate.last_used_ns) ||
        !aoticache_index_read_unsigned(row, 2, &candidate.bytes) ||
        !aoticache_index_read_unsigned(row, 3, &candidate.compile_ns) ||
        !aoticache_index_read_text(row, 4, &candidate.op) || !aoticache_index_read_count(row, 5, &is_pinned) ||
        !aoticache_index_read_blob(row, 6, candidate.key.bytes, AOTICACHE_DIGEST_BYTES) ||
        !aoticache_index_read_count(row, 7, &is_lost))
        return false;
    candidate.is_pinned = is_pinned != 0;
    candidate.is_lost = is_lost != 0;
    *ret_continues = candidates->callback(candidates->user, &candidate);
    return true;
}

/* Forwards the rows of a statement whose first parameters are bound; the last parameter is the limit. Leaves the statement. */
static aoticache_status list_candidates(aoticache_index *index, sqlite3_stmt *statement, size_t limit,
                                        struct candidates candidates, aoticache_error *ret_error)
{
    sqlite3_bind_int64(statement, 3, (sqlite3_int64)limit);
    return aoticache_index_walk_and_leave(index, statement, "details", read_candidate, &candidates, ret_error);
}

aoticache_status aoticache_index_list_candidates(aoticache_index *index, int64_t after_used_ns, int64_t after_id,
                                                 size_t limit, aoticache_index_candidate_fn callback, void *user,
                                                 aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, SQL(CANDIDATES), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, after_used_ns);
    sqlite3_bind_int64(statement, 2, after_id);
    return list_candidates(index, statement, limit, (struct candidates){.callback = callback, .user = user}, ret_error);
}

aoticache_status aoticache_index_list_lost(aoticache_index *index, const aoticache_digest *after_key, int64_t after_id,
                                           size_t limit, aoticache_index_candidate_fn callback, void *user,
                                           aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, SQL(LOST_CANDIDATES), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, after_key);
    sqlite3_bind_int64(statement, 2, after_id);
    return list_candidates(index, statement, limit, (struct candidates){.callback = callback, .user = user}, ret_error);
}

/* ---- rows into arrays ---- */

struct array {
    void *items;
    size_t capacity, count;
};

struct owned_array {
    aoticache_index *index;
    aoticache_index_owned *items;
    size_t capacity, count;  /* count continues beyond capacity */
    aoticache_status status; /* of reading objects */
    aoticache_error *error;
};

/* Adds one object of an artifact; an object without a row is left out. Returns false if array->status has an error. */
static bool add_owned(struct owned_array *array, const uint8_t *digest, const aoticache_digest *manifest)
{
    aoticache_index_owned owned;
    aoticache_index_object_row object;
    memcpy(owned.digest.bytes, digest, sizeof owned.digest.bytes);
    aoticache_status status = aoticache_index_read_object(array->index, &owned.digest, &object, array->error);
    if (status == AOTICACHE_NOT_FOUND)
        return true;
    array->status = status;
    if (status != AOTICACHE_OK)
        return false;
    owned.bytes = object.bytes;
    owned.refs = object.refs;
    owned.is_manifest = aoticache_digest_equal(&owned.digest, manifest);
    if (array->count < array->capacity)
        array->items[array->count] = owned;
    array->count++;
    return true;
}

/* Reads the columns of the statement ENTRY_PARTS. */
static bool read_owned(void *user, sqlite3_stmt *row, bool *ret_continues)
{
    const uint8_t *digests;
    size_t count;
    aoticache_digest manifest;
    if (!aoticache_index_read_parts(row, 0, &digests, &count) ||
        !aoticache_index_read_blob(row, 1, manifest.bytes, AOTICACHE_DIGEST_BYTES))
        return false;
    *ret_continues = false;
    for (size_t i = 0; i < count; i++)
        if (!add_owned(user, digests + i * AOTICACHE_DIGEST_BYTES, &manifest))
            break;
    return true;
}

aoticache_status aoticache_index_entry_objects(aoticache_index *index, int64_t entry_id,
                                               aoticache_index_owned *ret_owned, size_t capacity, size_t *ret_count,
                                               aoticache_error *ret_error)
{
    struct owned_array array = {
        .index = index, .items = ret_owned, .capacity = capacity, .status = AOTICACHE_OK, .error = ret_error};
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, SQL(ENTRY_PARTS), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, entry_id);
    status = aoticache_index_walk_and_leave(index, statement, "objects", read_owned, &array, ret_error);
    status = status == AOTICACHE_OK ? array.status : status;
    if (status == AOTICACHE_OK)
        *ret_count = array.count;
    return status;
}

static bool read_removal(void *user, sqlite3_stmt *row, bool *ret_continues)
{
    struct array *array = user;
    aoticache_index_removal *removal = (aoticache_index_removal *)array->items + array->count;
    uint32_t kind;
    (void)ret_continues;
    if (!aoticache_index_read_integer(row, 0, &removal->id) ||
        !aoticache_index_read_blob(row, 1, removal->object.bytes, AOTICACHE_DIGEST_BYTES) ||
        !aoticache_index_read_unsigned(row, 2, &removal->bytes) || !aoticache_index_read_count(row, 3, &kind) ||
        kind > AOTICACHE_INDEX_REMOVAL_DIRECTORY)
        return false;
    removal->kind = (aoticache_index_removal_kind)kind;
    array->count++;
    return true;
}

aoticache_status aoticache_index_list_removals(aoticache_index *index, int64_t after_id,
                                               aoticache_index_removal *ret_removals, size_t capacity,
                                               size_t *ret_count, aoticache_error *ret_error)
{
    struct array array = {.items = ret_removals, .capacity = capacity};
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, SQL(LIST_REMOVALS), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, after_id);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)capacity);
    status = aoticache_index_walk_and_leave(index, statement, "removals", read_removal, &array, ret_error);
    if (status == AOTICACHE_OK)
        *ret_count = array.count;
    return status;
}

static aoticache_status check_rows(aoticache_index *index, aoticache_index_removal *removals, size_t count,
                                   aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        status = aoticache_index_probe_digest(index, SQL(HAS_OBJECT), &removals[i].object, ret_error);
        removals[i].is_named = status == AOTICACHE_OK;
        status = status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
    }
    return status;
}

aoticache_status aoticache_index_check_removals(aoticache_index *index, aoticache_index_removal *removals, size_t count,
                                                aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_execute_digest(index, SQL(BEGIN_READ), NULL, NULL, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_end(index, check_rows(index, removals, count, ret_error), ret_error);
    aoticache_index_leave(index);
    return status;
}

static bool read_digest(void *user, sqlite3_stmt *row, bool *ret_continues)
{
    struct array *array = user;
    aoticache_digest *digest = (aoticache_digest *)array->items + array->count++;
    (void)ret_continues;
    return aoticache_index_read_blob(row, 0, digest->bytes, AOTICACHE_DIGEST_BYTES);
}

aoticache_status aoticache_index_objects_from(aoticache_index *index, const aoticache_digest *from,
                                              aoticache_digest *ret_digests, size_t capacity, size_t *ret_count,
                                              aoticache_error *ret_error)
{
    struct array array = {.items = ret_digests, .capacity = capacity};
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, SQL(OBJECTS_FROM), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, from);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)capacity);
    status = aoticache_index_walk_and_leave(index, statement, "objects", read_digest, &array, ret_error);
    if (status == AOTICACHE_OK)
        *ret_count = array.count;
    return status;
}

/* ---- single numbers ---- */

static bool read_number(void *user, sqlite3_stmt *row, bool *ret_continues)
{
    *ret_continues = false;
    return aoticache_index_read_integer(row, 0, user);
}

/* Runs a statement with one number or none as its parameter, and reads the one number of its row. */
static aoticache_status query_number(aoticache_index *index, aoticache_index_statement which, int64_t parameter,
                                     const char *table, int64_t *ret_number, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, which, &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (sqlite3_bind_parameter_count(statement) > 0)
        sqlite3_bind_int64(statement, 1, parameter);
    return aoticache_index_walk_and_leave(index, statement, table, read_number, ret_number, ret_error);
}

aoticache_status aoticache_index_count_expired(aoticache_index *index, int64_t now_ns, uint64_t *ret_count,
                                               aoticache_error *ret_error)
{
    int64_t count = 0;
    aoticache_status status = query_number(index, SQL(COUNT_EXPIRED), now_ns, "failures", &count, ret_error);
    if (status == AOTICACHE_OK)
        *ret_count = (uint64_t)count;
    return status;
}

aoticache_status aoticache_index_count_used_since(aoticache_index *index, int64_t since_ns, uint64_t *ret_count,
                                                  aoticache_error *ret_error)
{
    int64_t count = 0;
    aoticache_status status = query_number(index, SQL(COUNT_USED_SINCE), since_ns, "details", &count, ret_error);
    if (status == AOTICACHE_OK)
        *ret_count = (uint64_t)count;
    return status;
}

aoticache_status aoticache_index_newest_use(aoticache_index *index, int64_t *ret_used_ns, aoticache_error *ret_error)
{
    int64_t used = 0;
    aoticache_status status = query_number(index, SQL(NEWEST_USE), 0, "details", &used, ret_error);
    if (status == AOTICACHE_OK)
        *ret_used_ns = used;
    return status;
}

aoticache_status aoticache_index_read_meta(aoticache_index *index, const char *name, int64_t *ret_value,
                                           aoticache_error *ret_error)
{
    int64_t value = 0;
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, SQL(GET_META), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_text(statement, 1, name);
    status = aoticache_index_walk_and_leave(index, statement, "meta", read_number, &value, ret_error);
    if (status == AOTICACHE_OK)
        *ret_value = value;
    return status;
}
