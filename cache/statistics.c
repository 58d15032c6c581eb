/*
 * cache/statistics: counters of all processes and what the store holds.
 */
#include <string.h>

#include "cache/state.h"

static uint64_t *counter_field(aoticache_counters *counters, const char *name)
{
#define COUNTER_FIELD(field, text)  \
    if (strcmp(name, #field) == 0) \
        return &counters->field;
    AOTICACHE_COUNTER_LIST(COUNTER_FIELD)
#undef COUNTER_FIELD
    return NULL; /* a later program's */
}

static bool add_count(void *user, const char *name, uint64_t value)
{
    uint64_t *field = counter_field(user, name);
    if (field != NULL)
        *field += value;
    return true;
}

aoticache_status aoticache_cache_statistics(aoticache_cache *cache, aoticache_statistics *ret_statistics,
                                            aoticache_error *ret_error)
{
    if (cache == NULL || ret_statistics == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_statistics: an argument is NULL");
    aoticache_statistics statistics = {.entries = 0};
    aoticache_index_totals totals = {.entries = 0};
    aoticache_status status = AOTICACHE_OK;
    aoticache_cache_enter(cache);
    aoticache_index *index = aoticache_cache_index(cache);
    if (index != NULL) {
        do {
            statistics.counters = (aoticache_counters){.hits = 0};
            status = aoticache_index_list_counts(index, add_count, &statistics.counters, ret_error);
            if (status == AOTICACHE_OK)
                status = aoticache_index_read_totals(index, &totals, ret_error);
        } while (aoticache_cache_recovered(cache, status, &index));
    }
    if (status != AOTICACHE_OK)
        return status;
    for (int i = 0; i < AOTICACHE_COUNTER_COUNT; i++)
        add_count(&statistics.counters, aoticache_cache_counter_name(i), atomic_load(&cache->counters[i]));
    statistics.entries = totals.entries;
    statistics.artifacts = totals.artifacts;
    statistics.objects = totals.objects;
    statistics.bytes = totals.bytes;
    statistics.failures = totals.failures;
    statistics.created_ns = totals.created_ns;
    *ret_statistics = statistics;
    return AOTICACHE_OK;
}
