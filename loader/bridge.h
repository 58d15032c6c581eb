/*
 * loader/bridge: a std::unordered_map<std::string, AtenTensorHandle> for libraries that take their constants as one.
 *
 * Private. libaoticache_cxxbridge.so exports these functions with C linkage; it is the only part that needs libstdc++, and
 * is loaded when the first library asks for a map.
 */
#ifndef AOTICACHE_LOADER_BRIDGE_H
#define AOTICACHE_LOADER_BRIDGE_H

#include "runtime/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* NULL without memory. */
AOTICACHE_ABI_EXPORT AOTInductorConstantMapHandle aoticache_bridge_map_new(const AOTInductorConstantMapEntry *pairs,
                                                                           size_t num_pairs);
AOTICACHE_ABI_EXPORT void aoticache_bridge_map_free(AOTInductorConstantMapHandle map);
/* Return false to stop. */
AOTICACHE_ABI_EXPORT void aoticache_bridge_map_list(AOTInductorConstantMapHandle map,
                                                    bool (*callback)(void *user, const char *name,
                                                                     AtenTensorHandle tensor),
                                                    void *user);

#ifdef __cplusplus
}
#endif
#endif
