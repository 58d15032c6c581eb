/*
 * cache/verify: the state of one verification, for the two files it is done in.
 *
 * Private; the public face is aoticache_cache_verify() in cache.h.
 */
#ifndef AOTICACHE_CACHE_VERIFY_H
#define AOTICACHE_CACHE_VERIFY_H

#include "cache/state.h"

typedef struct aoticache_verification {
    aoticache_cache *cache;
    bool is_repair;
    aoticache_verify_fn callback;
    void (*progress)(void *user, uint64_t done, uint64_t all);
    void *user;
    aoticache_object_array objects; /* found in objects/; bytes is 0 for those that could not be read */
    aoticache_object_array named;   /* by the index */
    char **foreign;                 /* paths relative to the root */
    size_t foreign_count;
    bool is_out_of_memory;
    aoticache_verify_report report;
} aoticache_verification;

/* Manifests among `objects` that have no entry, though none that is as good or better replaced theirs. */
aoticache_status aoticache_verification_check_unindexed(aoticache_verification *verification,
                                                        aoticache_error *ret_error);

#endif
