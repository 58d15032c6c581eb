/*
 * loader/bridge_load: libaoticache_cxxbridge.so, found and loaded when it is first needed.
 *
 * Private.
 */
#ifndef AOTICACHE_LOADER_BRIDGE_LOAD_H
#define AOTICACHE_LOADER_BRIDGE_LOAD_H

#include "base/base.h"
#include "loader/bridge.h"

typedef struct aoticache_bridge {
    __typeof__(&aoticache_bridge_map_new) map_new;
    __typeof__(&aoticache_bridge_map_free) map_free;
    __typeof__(&aoticache_bridge_map_list) map_list;
} aoticache_bridge;

/* ret_bridge: lives as long as the process. Returns: OK, LOAD_FAILED (not found, or refused: why), NO_MEMORY. */
aoticache_status aoticache_bridge_get(const aoticache_bridge **ret_bridge, aoticache_error *ret_error);

#endif
