/*
 * cache/snapshot: see snapshot.h.
 */
#include "cache/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

struct copying {
    aoticache_snapshot *snapshot;
    bool is_out_of_memory;
};

static char *append_text(char **cursor, const char *text)
{
    char *start = *cursor;
    size_t size = text != NULL ? strlen(text) + 1 : 1;
    if (text != NULL)
        memcpy(start, text, size);
    else
        *start = '\0';
    *cursor += size;
    return start;
}

static size_t text_size(const char *text)
{
    return text != NULL ? strlen(text) + 1 : 1;
}

bool aoticache_snapshot_copy(const aoticache_index_entry *from, aoticache_snapshot_entry *to)
{
    size_t size = text_size(from->op) + text_size(from->device) + text_size(from->description) +
                  text_size(from->producer) + text_size(from->guard);
    char *cursor = malloc(size);
    if (cursor == NULL)
        return false;
    *to = (aoticache_snapshot_entry){
        .entry = {.key = from->key,
                  .artifact = from->artifact,
                  .library = from->library,
                  .requirements = aoticache_requirements_from_bytes(from->requirements),
                  .bytes = from->bytes,
                  .compile_ns = from->compile_ns,
                  .created_ns = from->created_ns,
                  .last_used_ns = from->last_used_ns,
                  .uses = from->uses},
        .entry_id = from->entry_id,
        .texts = cursor,
    };
    to->entry.op = append_text(&cursor, from->op);
    to->entry.device = append_text(&cursor, from->device);
    to->entry.description = append_text(&cursor, from->description);
    to->entry.producer = append_text(&cursor, from->producer);
    to->entry.guard = append_text(&cursor, from->guard);
    return true;
}

static bool add_entry(void *user, const aoticache_index_entry *entry)
{
    struct copying *copying = user;
    aoticache_snapshot *snapshot = copying->snapshot;
    if (snapshot->count == snapshot->capacity) {
        size_t capacity = snapshot->capacity != 0 ? snapshot->capacity * 2 : 64;
        aoticache_snapshot_entry *entries = realloc(snapshot->entries, capacity * sizeof *entries);
        copying->is_out_of_memory = entries == NULL;
        if (entries == NULL)
            return false;
        snapshot->entries = entries;
        snapshot->capacity = capacity;
    }
    copying->is_out_of_memory = !aoticache_snapshot_copy(entry, &snapshot->entries[snapshot->count]);
    if (copying->is_out_of_memory)
        return false;
    snapshot->count++;
    return true;
}

aoticache_status aoticache_snapshot_take(aoticache_cache *cache, aoticache_index_order order, const char *op,
                                         aoticache_snapshot *ret_snapshot, aoticache_error *ret_error)
{
    aoticache_snapshot snapshot = {.entries = NULL};
    struct copying copying = {.snapshot = &snapshot};
    aoticache_index *index = aoticache_cache_index(cache);
    aoticache_status status = AOTICACHE_OK;
    if (index != NULL) {
        do {
            aoticache_snapshot_free(&snapshot);
            status = aoticache_index_list(index, order, op, add_entry, &copying, ret_error);
        } while (aoticache_cache_recovered(cache, status, &index));
    }
    if (status == AOTICACHE_OK && copying.is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of entries");
    if (status != AOTICACHE_OK)
        aoticache_snapshot_free(&snapshot);
    else
        *ret_snapshot = snapshot;
    return status;
}

void aoticache_snapshot_free(aoticache_snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->count; i++)
        free(snapshot->entries[i].texts);
    free(snapshot->entries);
    *snapshot = (aoticache_snapshot){.entries = NULL};
}
