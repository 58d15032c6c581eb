/*
 * tests/helpers/pins: pins and tags of one key.
 */
#ifndef AOTICACHE_TESTS_HELPERS_PINS_H
#define AOTICACHE_TESTS_HELPERS_PINS_H

#include "cache/pins/pins.h"

static inline aoticache_status pin_key(aoticache_cache *cache, const aoticache_key *key, aoticache_error *ret_error)
{
    return aoticache_cache_change_pins(cache, key, 1, AOTICACHE_PIN, NULL, NULL, ret_error);
}

static inline aoticache_status unpin_key(aoticache_cache *cache, const aoticache_key *key, aoticache_error *ret_error)
{
    return aoticache_cache_change_pins(cache, key, 1, AOTICACHE_UNPIN, NULL, NULL, ret_error);
}

static inline aoticache_status tag_key(aoticache_cache *cache, const aoticache_key *key, const char *tag,
                                       aoticache_error *ret_error)
{
    return aoticache_cache_change_pins(cache, key, 1, AOTICACHE_TAG, tag, NULL, ret_error);
}

static inline aoticache_status untag_key(aoticache_cache *cache, const aoticache_key *key, const char *tag,
                                         aoticache_error *ret_error)
{
    return aoticache_cache_change_pins(cache, key, 1, AOTICACHE_UNTAG, tag, NULL, ret_error);
}

#endif
