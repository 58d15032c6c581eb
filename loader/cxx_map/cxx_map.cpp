/*
 * loader/cxx_map/cxx_map: the map itself, in C++. No exception leaves these functions: they return NULL on failure.
 */
#include "loader/cxx_map/cxx_map_internal.h"

#include <new>
#include <string>
#include <unordered_map>

using constant_map = std::unordered_map<std::string, AtenTensorHandle>;

static constant_map *map_of(AOTInductorConstantMapHandle handle)
{
    return reinterpret_cast<constant_map *>(handle);
}

AOTInductorConstantMapHandle aoticache_cxx_map_new(const AOTInductorConstantMapEntry *pairs, size_t num_pairs)
{
    constant_map *map = nullptr;
    try {
        map = new constant_map;
        map->reserve(num_pairs);
        for (size_t i = 0; i < num_pairs; i++)
            map->emplace(pairs[i].name, pairs[i].handle);
    } catch (...) {
        delete map;
        return nullptr;
    }
    return reinterpret_cast<AOTInductorConstantMapHandle>(map);
}

void aoticache_cxx_map_free(AOTInductorConstantMapHandle map)
{
    delete map_of(map);
}

void aoticache_cxx_map_list(AOTInductorConstantMapHandle map,
                            bool (*callback)(void *user, const char *name, AtenTensorHandle tensor), void *user)
{
    for (const auto &entry : *map_of(map))
        if (!callback(user, entry.first.c_str(), entry.second))
            return;
}
