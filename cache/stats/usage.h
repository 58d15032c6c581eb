/*
 * cache/stats/usage: how much of the cache each operator, device, producer or tag uses.
 *
 * Users include <aoticache/admin.h>.
 */
#ifndef AOTICACHE_CACHE_STATS_USAGE_H
#define AOTICACHE_CACHE_STATS_USAGE_H

#include "cache/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum aoticache_usage_group {
    AOTICACHE_USAGE_BY_OP = 0,
    AOTICACHE_USAGE_BY_DEVICE = 1,
    AOTICACHE_USAGE_BY_PRODUCER = 2,
    AOTICACHE_USAGE_BY_TAG = 3, /* an entry counts under each of its tags; under "" if it has none */
} aoticache_usage_group;

/* One group. name is borrowed during the callback. */
typedef struct aoticache_usage {
    const char *name;
    uint64_t entries;
    uint64_t bytes; /* of the objects that its entries name, each counted once; groups may share objects, so their sum
                           * may exceed the total */
    int64_t last_used_ns; /* wall clock, of the entry that was used last; 0: never */
} aoticache_usage;

/* Return false to stop. */
typedef bool (*aoticache_usage_fn)(void *user, const aoticache_usage *usage);

/*
 * Lists the groups, the largest first. Reads only the index, but all of it (a second for some 1e5 entries). The callback may
 * use the cache. Returns: OK, INVALID, IO, LOCKED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_cache_list_usage(aoticache_cache *cache, aoticache_usage_group by,
                                                          aoticache_usage_fn callback, void *user,
                                                          aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
