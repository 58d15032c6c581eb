/*
 * cache/store/reserve: a file of the cache directory that holds nothing but room. Where the disk is full to the last byte a
 * collection could not begin, as SQLite needs room for its log before anything can go: it gives this file up first.
 *
 * Private. No content of the cache: nothing counts it, and nothing depends on its being there.
 */
#ifndef AOTICACHE_CACHE_STORE_RESERVE_H
#define AOTICACHE_CACHE_STORE_RESERVE_H

#include "cache/state.h"

#define AOTICACHE_RESERVE_BYTES (UINT64_C(1) << 20)

/*
 * Makes it where it is missing, after a put or a collection. Not where there is no room for it, nor in a small budget
 * or on a small file system. What fails is passed over; each open cache tries once.
 */
void aoticache_reserve_keep(aoticache_cache *cache);

/* Whether so little is free that a collection needs it. */
bool aoticache_reserve_is_needed(const aoticache_cache *cache);
/* True where there was one: its room is free now. */
bool aoticache_reserve_give_up(aoticache_cache *cache);

#endif
