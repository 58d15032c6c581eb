/*
 * cache/list: lists the contents, for tools and for display: entries, remembered failures, and the manifest of an artifact.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/arguments.h"
#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "cache/eager_face.h"
#include "cache/entries.h"
#include "cache/entry_list.h"

static bool digest_begins(const aoticache_digest *digest, const char *prefix, size_t length)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(digest, hex);
    return strncasecmp(hex, prefix, length) == 0;
}

static bool entry_has_prefix(const aoticache_entry *entry, const char *prefix)
{
    size_t length = prefix != NULL ? strlen(prefix) : 0;
    return length == 0 || digest_begins(&entry->key, prefix, length) ||
           digest_begins(&entry->artifact, prefix, length) || digest_begins(&entry->library, prefix, length);
}

struct listing {
    const char *prefix;
    aoticache_entry_fn callback;
    void *user;
};

static bool forward_entry(void *user, aoticache_listed_entry *entry)
{
    struct listing *listing = user;
    return !entry_has_prefix(&entry->entry, listing->prefix) || listing->callback(listing->user, &entry->entry);
}

aoticache_status aoticache_cache_list(aoticache_cache *cache, const char *op, const char *prefix,
                                      aoticache_entry_fn callback, void *user, aoticache_error *ret_error)
{
    struct listing listing = {.prefix = prefix, .callback = callback, .user = user};
    if (cache == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, callback);
    aoticache_cache_enter(cache);
    return aoticache_entries_walk(cache, op, forward_entry, &listing, ret_error);
}

/* ---- failures ---- */

struct failures {
    aoticache_failure *items;
    size_t count, capacity;
    bool is_out_of_memory;
    int64_t now_ns;
};

static void free_failures(struct failures *failures)
{
    for (size_t i = 0; i < failures->count; i++) {
        free((char *)failures->items[i].op);
        free((char *)failures->items[i].description);
        free((char *)failures->items[i].message);
    }
    free(failures->items);
    *failures = (struct failures){.items = NULL};
}

static bool add_failure(void *user, const aoticache_index_failure *from)
{
    struct failures *failures = user;
    failures->is_out_of_memory = !AOTICACHE_ARRAY_RESERVE(failures->items, failures->capacity, failures->count + 1);
    if (failures->is_out_of_memory)
        return false;
    aoticache_failure *to = &failures->items[failures->count++];
    *to = (aoticache_failure){
        .key = from->key, .failed_ns = from->failed_ns, .retry_ns = from->retry_ns, .count = from->count};
    if (from->failed_ns > failures->now_ns) /* lookups do not trust it */
        to->retry_ns = failures->now_ns;
    to->op = strdup(from->op != NULL ? from->op : "");
    to->description = strdup(from->description != NULL ? from->description : "");
    to->message = strdup(from->message != NULL ? from->message : "");
    failures->is_out_of_memory = to->op == NULL || to->description == NULL || to->message == NULL;
    return !failures->is_out_of_memory;
}

aoticache_status aoticache_cache_list_failures(aoticache_cache *cache, aoticache_failure_fn callback, void *user,
                                               aoticache_error *ret_error)
{
    if (cache == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, callback);
    struct failures failures = {.now_ns = aoticache_wall_ns()};
    aoticache_cache_enter(cache);
    aoticache_index *index = aoticache_cache_index(cache);
    aoticache_status status = AOTICACHE_OK;
    if (index != NULL)
        status = aoticache_index_list_failures(index, add_failure, &failures, ret_error);
    if (status == AOTICACHE_OK && failures.is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of failures");
    for (size_t i = 0; status == AOTICACHE_OK && i < failures.count; i++)
        if (!callback(user, &failures.items[i]))
            break;
    free_failures(&failures);
    return status;
}

/* ---- the store's data on one artifact, whatever the index has and this CPU can run ---- */

aoticache_status aoticache_cache_open_artifact(aoticache_cache *cache, const aoticache_digest *artifact,
                                               aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    if (cache == NULL || artifact == NULL || ret_artifact == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, artifact, ret_artifact);
    aoticache_artifact_part unusable;
    aoticache_cache_enter(cache);
    return aoticache_artifact_open_manifest(cache->directory, artifact, NULL, ret_artifact, &unusable, ret_error);
}

aoticache_status aoticache_cache_read_manifest(aoticache_cache *cache, const aoticache_digest *artifact,
                                               char **ret_text, aoticache_error *ret_error)
{
    if (cache == NULL || artifact == NULL || ret_text == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, artifact, ret_text);
    cleanup_free char *text = NULL;
    size_t size = 0;
    aoticache_manifest *manifest = NULL;
    aoticache_cache_enter(cache);
    aoticache_status status = aoticache_object_read(cache->directory, artifact, &text, &size, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_manifest_parse(text, size, &manifest, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (manifest->content_offset > 0)
        text[manifest->content_offset] = '\0';
    aoticache_manifest_free(manifest);
    *ret_text = steal_ptr(&text);
    return AOTICACHE_OK;
}

/* Reads the manifest of `artifact` and gives the text selected by `field`. */
static aoticache_status read_manifest_text(aoticache_cache *cache, const aoticache_digest *artifact,
                                           const char *function, char **(*field)(aoticache_manifest *manifest),
                                           char **ret_text, aoticache_error *ret_error)
{
    if (cache == NULL || artifact == NULL || ret_text == NULL)
        return AOTICACHE_REFUSE_NULL_OF(function, ret_error, cache, artifact, ret_text);
    aoticache_manifest *manifest = NULL;
    uint64_t bytes;
    aoticache_cache_enter(cache);
    aoticache_status status = aoticache_cache_load_manifest(cache->directory, artifact, &manifest, &bytes, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    char *text = steal_ptr(field(manifest));
    aoticache_manifest_free(manifest);
    if (text == NULL)
        return AOTICACHE_NOT_FOUND;
    *ret_text = text;
    return AOTICACHE_OK;
}

static char **output_of(aoticache_manifest *manifest)
{
    return &manifest->output;
}

static char **metadata_of(aoticache_manifest *manifest)
{
    return &manifest->metadata;
}

aoticache_status aoticache_cache_read_output(aoticache_cache *cache, const aoticache_digest *artifact, char **ret_text,
                                             aoticache_error *ret_error)
{
    return read_manifest_text(cache, artifact, __func__, output_of, ret_text, ret_error);
}

aoticache_status aoticache_cache_read_metadata(aoticache_cache *cache, const aoticache_digest *artifact,
                                               char **ret_text, aoticache_error *ret_error)
{
    return read_manifest_text(cache, artifact, __func__, metadata_of, ret_text, ret_error);
}
