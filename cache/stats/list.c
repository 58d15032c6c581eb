/*
 * cache/stats/list: sums by group, the history, the largest and the coldest entries, and how much of the store each
 * operator, device, producer or tag uses.
 */
#include <stdlib.h>
#include <string.h>

#include "base/arguments.h"
#include "base/array.h"
#include "base/clock.h"
#include "cache/entries.h"
#include "cache/cache_internal.h"
#include "cache/stats/usage.h"

#define NS_PER_SECOND INT64_C(1000000000)

static uint64_t not_negative(int64_t value)
{
    return value > 0 ? (uint64_t)value : 0;
}

/* ---- groups ---- */

typedef struct group_walk {
    aoticache_group_fn callback;
    void *user;
    bool stopped;
} group_walk;

static bool forward_group(void *user, const char *name, const aoticache_index_group *group)
{
    group_walk *walk = user;
    const aoticache_group given = {.name = name,
                                   .hits = not_negative(group->hits),
                                   .misses = not_negative(group->misses),
                                   .compiles = not_negative(group->compiles),
                                   .compile_failures = not_negative(group->failures),
                                   .compile_ns = not_negative(group->compile_ns),
                                   .saved_ns = not_negative(group->saved_ns),
                                   .entries = not_negative(group->entries),
                                   .bytes = not_negative(group->bytes)};
    walk->stopped = !walk->callback(walk->user, &given);
    return !walk->stopped;
}

aoticache_status aoticache_cache_list_groups(aoticache_cache *cache, aoticache_group_kind kind,
                                             const aoticache_statistics_options *options, aoticache_group_fn callback,
                                             void *user, aoticache_error *ret_error)
{
    aoticache_statistics_options chosen;
    aoticache_status status = aoticache_statistics_options_read(options, &chosen, ret_error);
    if (status == AOTICACHE_OK && (cache == NULL || callback == NULL))
        status = AOTICACHE_REFUSE_NULL(ret_error, cache, callback);
    if (status == AOTICACHE_OK && (unsigned)kind >= AOTICACHE_INDEX_GROUP_KINDS)
        status = aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_list_groups: unknown kind %d",
                                     (int)kind);
    if (status == AOTICACHE_OK && chosen.since == AOTICACHE_STATISTICS_SINCE_TIME)
        status = aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                     "aoticache_cache_list_groups: groups have no history; request all, or since "
                                     "they were zeroed");
    if (status != AOTICACHE_OK)
        return status;
    group_walk walk = {.callback = callback, .user = user};
    const bool since_zero = chosen.since == AOTICACHE_STATISTICS_SINCE_ZERO;
    aoticache_cache_flush(cache, NULL);
    aoticache_index *index = aoticache_cache_index(cache);
    if (index == NULL)
        return AOTICACHE_OK;
    status = aoticache_index_list_groups(index, (aoticache_index_group_kind)kind, since_zero, forward_group, &walk,
                                         ret_error);
    return aoticache_cache_index_result(status, ret_error);
}

/* ---- history ---- */

typedef struct slot_walk {
    aoticache_slot_fn callback;
    void *user;
    aoticache_slot slot; /* the slot being filled; start_ns 0: none */
    int64_t now_ns;
    bool stopped;
} slot_walk;

static void forward_slot(slot_walk *walk)
{
    if (walk->slot.start_ns != 0 && !walk->stopped)
        walk->stopped = !walk->callback(walk->user, &walk->slot);
}

static bool fill_slot(void *user, int64_t start_seconds, const char *name, uint64_t value)
{
    slot_walk *walk = user;
    const int64_t start = start_seconds * NS_PER_SECOND;
    if (start > walk->now_ns)
        return false; /* a clock that was ahead made it, and all following slots */
    if (walk->slot.start_ns != start) {
        forward_slot(walk);
        walk->slot = (aoticache_slot){.start_ns = start, .length_ns = walk->slot.length_ns};
    }
#define FILL_FIELD(counter, text) walk->slot.counters.counter += strcmp(name, #counter) == 0 ? value : 0;
    AOTICACHE_COUNTER_LIST(FILL_FIELD)
#undef FILL_FIELD
    return !walk->stopped;
}

/* Returns the time since which slots shorter than `step` are certainly kept. */
static int64_t kept_since(int64_t step)
{
    const int64_t now = aoticache_wall_ns() / NS_PER_SECOND;
    if (step == AOTICACHE_SLOT_FINE_SECONDS)
        return now - AOTICACHE_SLOT_DAY_SECONDS;
    return step == AOTICACHE_SLOT_HOUR_SECONDS ? now - INT64_C(31) * AOTICACHE_SLOT_DAY_SECONDS : 0;
}

aoticache_status aoticache_cache_list_history(aoticache_cache *cache, int64_t since_ns, int64_t step_seconds,
                                              aoticache_slot_fn callback, void *user, aoticache_error *ret_error)
{
    if (cache == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, callback);
    if (step_seconds != AOTICACHE_SLOT_FINE_SECONDS && step_seconds != AOTICACHE_SLOT_HOUR_SECONDS &&
        step_seconds != AOTICACHE_SLOT_DAY_SECONDS)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "aoticache_cache_list_history: no slots of %lld s; use %d, %d or %d",
                                   (long long)step_seconds, AOTICACHE_SLOT_FINE_SECONDS, AOTICACHE_SLOT_HOUR_SECONDS,
                                   AOTICACHE_SLOT_DAY_SECONDS);
    slot_walk walk = {.callback = callback, .user = user, .slot.length_ns = step_seconds * NS_PER_SECOND};
    int64_t since = since_ns / NS_PER_SECOND;
    if (since < kept_since(step_seconds))
        since = kept_since(step_seconds);
    since = since > 0 ? since - since % step_seconds : 0;
    aoticache_cache_flush(cache, NULL);
    walk.now_ns = aoticache_wall_ns();
    aoticache_index *index = aoticache_cache_index(cache);
    if (index == NULL)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_list_history(index, since, step_seconds, fill_slot, &walk, ret_error);
    if (status == AOTICACHE_OK)
        forward_slot(&walk);
    return aoticache_cache_index_result(status, ret_error);
}

/* ---- entries ---- */

typedef struct entry_walk {
    aoticache_entry_fn callback;
    void *user;
} entry_walk;

static bool forward_entry(void *user, const aoticache_index_entry *entry)
{
    entry_walk *walk = user;
    const aoticache_entry given = {.key = entry->key,
                                   .artifact = entry->artifact,
                                   .library = entry->library,
                                   .op = entry->op,
                                   .device = entry->device,
                                   .description = entry->description,
                                   .producer = entry->producer,
                                   .requirements = aoticache_requirements_from_bytes(entry->requirements),
                                   .bytes = entry->bytes,
                                   .compile_ns = entry->compile_ns,
                                   .created_ns = entry->created_ns,
                                   .last_used_ns = entry->last_used_ns,
                                   .uses = entry->uses,
                                   .guard = entry->guard};
    return walk->callback(walk->user, &given);
}

aoticache_status aoticache_cache_list_extreme(aoticache_cache *cache, aoticache_extreme which, size_t limit,
                                              aoticache_entry_fn callback, void *user, aoticache_error *ret_error)
{
    if (cache == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, callback);
    if ((unsigned)which > AOTICACHE_EXTREME_COLDEST)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_list_extreme: unknown extreme %d",
                                   (int)which);
    entry_walk walk = {.callback = callback, .user = user};
    aoticache_cache_flush(cache, NULL);
    aoticache_index *index = aoticache_cache_index(cache);
    if (index == NULL)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_list_extreme(
        index, which == AOTICACHE_EXTREME_LARGEST ? AOTICACHE_INDEX_LARGEST : AOTICACHE_INDEX_COLDEST, limit,
        forward_entry, &walk, ret_error);
    return aoticache_cache_index_result(status, ret_error);
}

/* ---- usage ---- */

struct usages {
    aoticache_usage *items; /* they own their names */
    size_t count, capacity;
    bool is_out_of_memory;
};

static void clear_usages(struct usages *usages)
{
    for (size_t i = 0; i < usages->count; i++)
        free((char *)usages->items[i].name);
    free(usages->items);
    *usages = (struct usages){.items = NULL};
}

static bool copy_usage(void *user, const aoticache_index_usage *from)
{
    struct usages *usages = user;
    usages->is_out_of_memory = !AOTICACHE_ARRAY_RESERVE(usages->items, usages->capacity, usages->count + 1);
    if (usages->is_out_of_memory)
        return false;
    const char *name = strdup(from->name);
    usages->is_out_of_memory = name == NULL;
    if (name == NULL)
        return false;
    usages->items[usages->count++] = (aoticache_usage){
        .name = name, .entries = from->entries, .bytes = from->bytes, .last_used_ns = from->last_used_ns};
    return true;
}

aoticache_status aoticache_cache_list_usage(aoticache_cache *cache, aoticache_usage_group by,
                                            aoticache_usage_fn callback, void *user, aoticache_error *ret_error)
{
    if (cache == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, callback);
    struct usages usages = {.items = NULL};
    aoticache_cache_enter(cache);
    aoticache_index *index = aoticache_cache_index(cache);
    aoticache_status status = AOTICACHE_OK;
    if (index != NULL) {
        do {
            clear_usages(&usages);
            status = aoticache_index_list_usage(index, (aoticache_index_usage_group)by, copy_usage, &usages, ret_error);
        } while (aoticache_cache_recovered(cache, status, &index));
    }
    if (status == AOTICACHE_OK && usages.is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of groups");
    for (size_t i = 0; status == AOTICACHE_OK && i < usages.count; i++)
        if (!callback(user, &usages.items[i]))
            break;
    clear_usages(&usages);
    return aoticache_cache_index_result(status, ret_error);
}
