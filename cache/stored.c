/*
 * cache/stored: the entries of one operator, with their requests.
 *
 * Rows are copied in batches, so that neither SQLite nor the index is locked while the caller's function runs, nor for long
 * while they are read. The encoding of a request that is too long for the index is read from the manifest.
 */
#include <stdlib.h>
#include <string.h>

#include "base/arguments.h"
#include "base/array.h"
#include "base/cleanup.h"
#include "base/digest.h"
#include "base/log.h"
#include "cache/eager_face.h"
#include "cache/entries.h"
#include "cache/cache_internal.h"
#include "cache/request/cpu_detect.h"
#include "cache/request/text.h"

#define BATCH 256

struct row {
    int64_t entry_id;
    aoticache_key key;
    aoticache_digest artifact;
    int64_t rank, created_ns;
    uint64_t compile_ns;
    size_t encoding_size; /* 0: it must come from the manifest */
    uint8_t *encoding;    /* of this row, as guard is */
    char *guard;
};

struct rows {
    struct row *items;
    size_t count, capacity;
    size_t seen; /* in this batch */
    int64_t last_entry;
    bool is_out_of_memory;
};

static void free_rows(struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        free(rows->items[i].encoding);
        free(rows->items[i].guard);
    }
    free(rows->items);
    *rows = (struct rows){.items = NULL};
}

static bool copy_row(struct rows *rows, const aoticache_index_stored *from)
{
    if (!AOTICACHE_ARRAY_RESERVE(rows->items, rows->capacity, rows->count + 1))
        return false;
    struct row *to = &rows->items[rows->count];
    *to = (struct row){.entry_id = from->entry_id,
                       .key = from->key,
                       .artifact = from->artifact,
                       .rank = from->rank,
                       .created_ns = from->created_ns,
                       .compile_ns = from->compile_ns,
                       .encoding_size = from->encoding_size};
    to->guard = strdup(from->guard);
    to->encoding = malloc(from->encoding_size + 1);
    rows->count++;
    if (to->guard == NULL || to->encoding == NULL)
        return false;
    if (from->encoding_size > 0)
        memcpy(to->encoding, from->encoding, from->encoding_size);
    return true;
}

static bool add_row(void *user, const aoticache_index_stored *stored)
{
    struct rows *rows = user;
    aoticache_cpu_features required = aoticache_requirements_from_bytes(stored->requirements);
    rows->seen++;
    rows->last_entry = stored->entry_id;
    if (!aoticache_cpu_features_include(aoticache_cpu_features_get(), &required))
        return true;
    rows->is_out_of_memory = !copy_row(rows, stored);
    return !rows->is_out_of_memory;
}

/* Reads all rows, from the beginning again if the index was damaged and has been rebuilt. */
static aoticache_status read_rows(aoticache_cache *cache, aoticache_index **index, const char *op, int64_t after_entry,
                                  struct rows *rows, aoticache_error *ret_error)
{
    aoticache_status status;
    do {
        free_rows(rows);
        rows->last_entry = after_entry;
        do {
            rows->seen = 0;
            status = aoticache_index_list_stored(*index, op, rows->last_entry, BATCH, add_row, rows, ret_error);
        } while (status == AOTICACHE_OK && !rows->is_out_of_memory && rows->seen == BATCH);
    } while (aoticache_cache_recovered(cache, status, index));
    if (status == AOTICACHE_OK && rows->is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of entries");
    return status;
}

static int compare_descending(int64_t a, int64_t b)
{
    return (b > a) - (b < a);
}

static int compare_rows(const void *left, const void *right)
{
    const struct row *a = left, *b = right;
    int order = memcmp(a->key.bytes, b->key.bytes, sizeof a->key.bytes);
    if (order == 0)
        order = compare_descending(a->rank, b->rank);
    if (order == 0)
        order = compare_descending(a->created_ns, b->created_ns);
    return order != 0 ? order : compare_descending(a->entry_id, b->entry_id);
}

/* ---- rows without an encoding, because it is too long for the index ---- */

/* Reads the encoding from the manifest. If the manifest cannot be read the row stays without: nothing is known of it, and
 * opening it will report the reason. */
static void read_encoding(aoticache_cache *cache, struct row *row)
{
    aoticache_manifest *manifest = NULL;
    uint64_t bytes;
    if (aoticache_cache_load_manifest(cache->directory, &row->artifact, &manifest, &bytes, NULL) != AOTICACHE_OK)
        return;
    if (aoticache_digest_equal(&manifest->key, &row->key)) {
        free(row->encoding);
        row->encoding = steal_ptr(&manifest->encoding);
        row->encoding_size = manifest->encoding_size;
    }
    aoticache_manifest_free(manifest);
}

static void complete_rows(aoticache_cache *cache, struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        if (rows->items[i].encoding_size == 0)
            read_encoding(cache, &rows->items[i]);
}

/* ---- passing them to the callback ---- */

/* Decodes the request of a row. The key is checked because the index is not authoritative: damaged bytes in it must not be
 * taken for another request. */
static aoticache_status decode_request(aoticache_cache *cache, const struct row *row, aoticache_request **ret_request)
{
    aoticache_digest digest;
    aoticache_error detail = {.message = ""};
    if (row->encoding_size == 0)
        return AOTICACHE_NOT_FOUND;
    aoticache_status status = aoticache_digest_of(row->encoding, row->encoding_size, &digest);
    if (status == AOTICACHE_OK && !aoticache_digest_equal(&digest, &row->key))
        status = aoticache_error_set(&detail, AOTICACHE_INVALID, "it does not hash to its key");
    if (status == AOTICACHE_OK)
        status = aoticache_request_decode(row->encoding, row->encoding_size, ret_request, &detail);
    if (status == AOTICACHE_INVALID)
        aoticache_log(&cache->directory->logger, AOTICACHE_LOG_WARNING,
                      "entry %lld is skipped: cannot decode its request in the index: %s", (long long)row->entry_id,
                      detail.message);
    return status;
}

/* Passes the rows to the callback. text: NULL, or a text that a request must contain. */
static aoticache_status show_rows(aoticache_cache *cache, const struct rows *rows, const char *text,
                                  aoticache_stored_fn callback, void *user, aoticache_error *ret_error)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct row *row = &rows->items[i];
        aoticache_request *request = NULL;
        if (text != NULL && memmem(row->encoding, row->encoding_size, text, strlen(text)) == NULL)
            continue;
        aoticache_status status = decode_request(cache, row, &request);
        if (status == AOTICACHE_NO_MEMORY)
            return aoticache_error_set(ret_error, status, "out of memory for a list of entries");
        if (status != AOTICACHE_OK)
            continue;
        aoticache_stored stored = {.entry_id = row->entry_id,
                                   .key = row->key,
                                   .artifact = row->artifact,
                                   .request = request,
                                   .guard = row->guard,
                                   .compile_ns = row->compile_ns};
        bool continues = callback(user, &stored);
        aoticache_request_free(request);
        if (!continues)
            break;
    }
    return AOTICACHE_OK;
}

static aoticache_status list(aoticache_cache *cache, const char *op, int64_t after_entry, const char *text,
                             aoticache_stored_fn callback, void *user, aoticache_error *ret_error)
{
    struct rows rows = {.items = NULL};
    aoticache_cache_enter(cache);
    aoticache_index *index = aoticache_cache_index(cache);
    if (index == NULL)
        return AOTICACHE_OK;
    aoticache_cache_refreshed(cache, &index);
    aoticache_status status = read_rows(cache, &index, op, after_entry, &rows, ret_error);
    if (status == AOTICACHE_OK && rows.count > 0) {
        complete_rows(cache, &rows);
        qsort(rows.items, rows.count, sizeof *rows.items, compare_rows);
        status = show_rows(cache, &rows, text, callback, user, ret_error);
    }
    free_rows(&rows);
    return aoticache_cache_index_result(status, ret_error);
}

aoticache_status aoticache_cache_list_stored(aoticache_cache *cache, const char *op, int64_t after_entry,
                                             aoticache_stored_fn callback, void *user, aoticache_error *ret_error)
{
    if (cache == NULL || op == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, op, callback);
    return list(cache, op, after_entry, NULL, callback, user, ret_error);
}

aoticache_status aoticache_cache_list_stored_with(aoticache_cache *cache, const char *op, const char *text,
                                                  aoticache_stored_fn callback, void *user, aoticache_error *ret_error)
{
    if (cache == NULL || op == NULL || text == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, op, text, callback);
    return list(cache, op, 0, text, callback, user, ret_error);
}
