/*
 * cache/remote/modules/resolve: finds the addresses of a host within a time limit, which getaddrinfo() does not have.
 */
#ifndef AOTICACHE_CACHE_REMOTE_MODULES_RESOLVE_H
#define AOTICACHE_CACHE_REMOTE_MODULES_RESOLVE_H

#include "cache/remote/module.h"

#define RESOLVE_ADDRESSES 4

typedef struct resolved_address {
    char text[64];
} resolved_address;

/* Finds at most RESOLVE_ADDRESSES. Returns: OK, with at least one; IO (no such host, or no answer in time); NO_MEMORY. */
aoticache_status resolve(const char *host, uint32_t timeout_ms, resolved_address *ret_addresses, size_t *ret_count,
                         aoticache_error *ret_error);

#endif
