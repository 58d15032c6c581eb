/*
 * cache/stats/usage: see usage.h.
 */
#include "cache/stats/usage.h"

#include <stdlib.h>
#include <string.h>

#include "cache/state.h"
#include "index/stats/statistics.h"

struct groups {
    aoticache_usage *items; /* own their names */
    size_t count, capacity;
    bool is_out_of_memory;
};

static void clear_groups(struct groups *groups)
{
    for (size_t i = 0; i < groups->count; i++)
        free((char *)groups->items[i].name);
    free(groups->items);
    *groups = (struct groups){.items = NULL};
}

static bool add_group(void *user, const aoticache_index_usage *from)
{
    struct groups *groups = user;
    if (groups->count == groups->capacity) {
        size_t capacity = groups->capacity != 0 ? groups->capacity * 2 : 64;
        aoticache_usage *items = reallocarray(groups->items, capacity, sizeof *items);
        groups->is_out_of_memory = items == NULL;
        if (items == NULL)
            return false;
        groups->items = items;
        groups->capacity = capacity;
    }
    const char *name = strdup(from->name);
    groups->is_out_of_memory = name == NULL;
    if (name == NULL)
        return false;
    groups->items[groups->count++] = (aoticache_usage){
        .name = name, .entries = from->entries, .bytes = from->bytes, .last_used_ns = from->last_used_ns};
    return true;
}

aoticache_status aoticache_cache_list_usage(aoticache_cache *cache, aoticache_usage_group by,
                                            aoticache_usage_fn callback, void *user, aoticache_error *ret_error)
{
    if (cache == NULL || callback == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_list_usage: an argument is NULL");
    struct groups groups = {.items = NULL};
    aoticache_cache_enter(cache);
    aoticache_index *index = aoticache_cache_index(cache);
    aoticache_status status = AOTICACHE_OK;
    if (index != NULL) {
        do {
            clear_groups(&groups);
            status = aoticache_index_list_usage(index, (aoticache_index_usage_group)by, add_group, &groups, ret_error);
        } while (aoticache_cache_recovered(cache, status, &index));
    }
    if (status == AOTICACHE_OK && groups.is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of groups");
    for (size_t i = 0; status == AOTICACHE_OK && i < groups.count; i++)
        if (!callback(user, &groups.items[i]))
            break;
    clear_groups(&groups);
    return status == AOTICACHE_CORRUPT ? AOTICACHE_IO : status;
}
