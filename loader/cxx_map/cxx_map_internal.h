/*
 * loader/cxx_map: a std::unordered_map<std::string, AtenTensorHandle> for libraries that take their constants as such a
 * map.
 *
 * Private to loader/. libaoticache_cxxbridge.so exports the first three functions with C linkage; it is the only part
 * of the host side that needs libstdc++, and is loaded when the first library asks for a map.
 */
#ifndef AOTICACHE_LOADER_CXX_MAP_INTERNAL_H
#define AOTICACHE_LOADER_CXX_MAP_INTERNAL_H

#include "base/base.h"
#include "runtime/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns a new map, or NULL if out of memory. */
AOTICACHE_ABI_EXPORT AOTInductorConstantMapHandle aoticache_cxx_map_new(const AOTInductorConstantMapEntry *pairs,
                                                                        size_t num_pairs);
AOTICACHE_ABI_EXPORT void aoticache_cxx_map_free(AOTInductorConstantMapHandle map);
/* Calls the callback for each pair, until it returns false. */
AOTICACHE_ABI_EXPORT void aoticache_cxx_map_list(AOTInductorConstantMapHandle map,
                                                 bool (*callback)(void *user, const char *name,
                                                                  AtenTensorHandle tensor),
                                                 void *user);

#ifdef __cplusplus
}
#endif

/* These functions, as found in the library. */
typedef struct aoticache_cxx_map_functions {
    __typeof__(&aoticache_cxx_map_new) new_map;
    __typeof__(&aoticache_cxx_map_free) free_map;
    __typeof__(&aoticache_cxx_map_list) list_map;
} aoticache_cxx_map_functions;

/*
 * Loads the library at the first call. ret_functions: valid as long as the process.
 * Returns: OK, LOAD_FAILED (not found, or refused; the message has the reason), NO_MEMORY.
 */
aoticache_status aoticache_cxx_map_functions_get(const aoticache_cxx_map_functions **ret_functions,
                                                 aoticache_error *ret_error);

#endif
