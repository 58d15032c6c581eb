/*
 * cache/stats/list: groups, history, and the entries at the ends.
 */
#include "cache/stats/statistics.h"

#include <string.h>

#include "cache/state.h"
#include "cache/stats/internal.h"

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

static bool give_group(void *user, const char *name, const aoticache_index_group *group)
{
    group_walk *walk = user;
    aoticache_group given = {.name = name};
#define GIVE_FIELD(column, text) given.column = not_negative(group->column);
    AOTICACHE_GROUP_COLUMN_LIST(GIVE_FIELD)
#undef GIVE_FIELD
    walk->stopped = !walk->callback(walk->user, &given);
    return !walk->stopped;
}

aoticache_status aoticache_cache_list_groups(aoticache_cache *cache, aoticache_group_kind kind,
                                             const aoticache_statistics_options *options, aoticache_group_fn callback,
                                             void *user, aoticache_error *ret_error)
{
    aoticache_statistics_options chosen;
    aoticache_status status = aoticache_statistics_options_read(options, &chosen, ret_error);
    if (status == AOTICACHE_OK &&
        (cache == NULL || callback == NULL || (unsigned)kind >= AOTICACHE_INDEX_GROUP_KINDS))
        status = aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                     "aoticache_cache_list_groups: an argument is NULL, or there is no kind %d",
                                     (int)kind);
    if (status == AOTICACHE_OK && chosen.since == AOTICACHE_STATISTICS_SINCE_TIME)
        status = aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                     "aoticache_cache_list_groups: groups have no history: ask for all, or since they"
                                     " were zeroed");
    if (status != AOTICACHE_OK)
        return status;
    group_walk walk = {.callback = callback, .user = user};
    const bool since_zero = chosen.since == AOTICACHE_STATISTICS_SINCE_ZERO;
    aoticache_cache_flush(cache, NULL);
    aoticache_index *index = aoticache_cache_index(cache);
    if (index == NULL)
        return AOTICACHE_OK;
    status = aoticache_index_list_groups(index, (aoticache_index_group_kind)kind, since_zero, give_group, &walk,
                                         ret_error);
    return status == AOTICACHE_CORRUPT ? AOTICACHE_IO : status;
}

/* ---- history ---- */

typedef struct slot_walk {
    aoticache_slot_fn callback;
    void *user;
    aoticache_slot slot; /* that is being filled; start_ns 0: none */
    int64_t now_ns;
    bool stopped;
} slot_walk;

static void give_slot(slot_walk *walk)
{
    if (walk->slot.start_ns != 0 && !walk->stopped)
        walk->stopped = !walk->callback(walk->user, &walk->slot);
}

static bool fill_slot(void *user, int64_t start_seconds, const char *name, uint64_t value)
{
    slot_walk *walk = user;
    const int64_t start = start_seconds * NS_PER_SECOND;
    if (start > walk->now_ns)
        return false; /* a clock that was ahead made it, and all that come after */
    if (walk->slot.start_ns != start) {
        give_slot(walk);
        walk->slot = (aoticache_slot){.start_ns = start, .length_ns = walk->slot.length_ns};
    }
#define FILL_FIELD(member, counter, text) walk->slot.counters.member += strcmp(name, counter) == 0 ? value : 0;
    AOTICACHE_COUNTER_LIST(FILL_FIELD)
#undef FILL_FIELD
    return !walk->stopped;
}

/* Slots that are shorter than `step` are kept at least from here on. */
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
    if (cache == NULL || callback == NULL ||
        (step_seconds != AOTICACHE_SLOT_FINE_SECONDS && step_seconds != AOTICACHE_SLOT_HOUR_SECONDS &&
         step_seconds != AOTICACHE_SLOT_DAY_SECONDS))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "aoticache_cache_list_history: an argument is NULL, or there are no slots of %lld s "
                                   "(but of %d, %d and %d)",
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
    aoticache_status status =
        aoticache_index_list_history(index, since, step_seconds, fill_slot, &walk, ret_error);
    if (status == AOTICACHE_OK)
        give_slot(&walk);
    return status == AOTICACHE_CORRUPT ? AOTICACHE_IO : status;
}

/* ---- entries ---- */

typedef struct entry_walk {
    aoticache_entry_fn callback;
    void *user;
} entry_walk;

static bool give_entry(void *user, const aoticache_index_entry *entry)
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
    if (cache == NULL || callback == NULL || (unsigned)which > AOTICACHE_EXTREME_COLDEST)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_list_extreme: an argument is NULL");
    entry_walk walk = {.callback = callback, .user = user};
    aoticache_cache_flush(cache, NULL);
    aoticache_index *index = aoticache_cache_index(cache);
    if (index == NULL)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_list_extreme(
        index, which == AOTICACHE_EXTREME_LARGEST ? AOTICACHE_INDEX_LARGEST : AOTICACHE_INDEX_COLDEST, limit,
        give_entry, &walk, ret_error);
    return status == AOTICACHE_CORRUPT ? AOTICACHE_IO : status;
}
