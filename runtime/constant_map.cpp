/*
 * runtime/constant_map: the exported functions whose constants come in the host's std::unordered_map<std::string,
 * AtenTensorHandle>, as PyTorch's own C++ runner passes them. Each turns the map into pairs, or entries into the map,
 * and leaves the rest to runtime/update.
 *
 * The only C++ file. A kernel library has to export these functions: PyTorch's runner loads no library without
 * UpdateConstantBuffer and UpdateInactiveConstantBuffer. It must not need libstdc++ for them, which a C process does
 * not have. So the Makefile makes this object's references to libstdc++ weak: a host that has such a map has libstdc++,
 * and a process without libstdc++ never calls these functions. Reading a map uses nothing from libstdc++; filling one
 * first checks that it is there.
 *
 * Source: torch/csrc/inductor/aoti_runtime/interface.h.
 */
#include <cstdlib>
#include <string>
#include <unordered_map>

#include "runtime/kernel.h"
#include "runtime/update.h"

/* std::terminate() represents all of libstdc++: NULL if the process does not have it. */
extern "C" void _ZSt9terminatev(void) __attribute__((weak));

namespace {

using constant_map = std::unordered_map<std::string, AtenTensorHandle>;

/* The pairs of a map, in the map's order; the map owns the names. */
class pairs_of_map {
  public:
    AOTInductorConstantMapEntry *list = nullptr;
    size_t count = 0;
    AOTIRuntimeError status = 0; /* if not 0, there is a message */

    explicit pairs_of_map(AOTInductorConstantMapHandle handle)
    {
        const constant_map *map = reinterpret_cast<const constant_map *>(handle);
        if (map == nullptr) {
            status = aoticache_update_fail("the map of constants is NULL");
            return;
        }
        list = static_cast<AOTInductorConstantMapEntry *>(calloc(map->size() + 1, sizeof *list));
        if (list == nullptr) {
            status = aoticache_update_fail("out of memory for a map of constants");
            return;
        }
        for (const constant_map::value_type &entry : *map)
            list[count++] = {entry.first.c_str(), entry.second};
    }
    ~pairs_of_map() { free(list); }
    pairs_of_map(const pairs_of_map &) = delete;
    pairs_of_map &operator=(const pairs_of_map &) = delete;
};

AOTIRuntimeError update(AOTInductorModelContainerHandle container, AOTInductorConstantMapHandle constants,
                        bool use_inactive, bool validate_full_update, unsigned flags)
{
    pairs_of_map pairs(constants);
    if (pairs.status != 0)
        return pairs.status;
    flags |= use_inactive ? AOTICACHE_UPDATE_INACTIVE : 0;
    flags |= validate_full_update ? AOTICACHE_UPDATE_VALIDATE : 0;
    return aoticache_update_constants(container, pairs.list, pairs.count, flags);
}

} // namespace

AOTIRuntimeError AOTInductorModelContainerUpdateConstantBuffer(AOTInductorModelContainerHandle container,
                                                               AOTInductorConstantMapHandle constants,
                                                               bool use_inactive, bool validate_full_update)
{
    return update(container, constants, use_inactive, validate_full_update, 0);
}

AOTIRuntimeError AOTInductorModelContainerUpdateInactiveConstantBuffer(AOTInductorModelContainerHandle container,
                                                                       AOTInductorConstantMapHandle constants)
{
    return update(container, constants, true, true, 0);
}

AOTIRuntimeError AOTInductorModelContainerUpdateConstantBufferFromCpu(AOTInductorModelContainerHandle container,
                                                                      AOTInductorConstantMapHandle constants,
                                                                      bool use_inactive, bool validate_full_update)
{
    return update(container, constants, use_inactive, validate_full_update, AOTICACHE_UPDATE_FROM_CPU);
}

AOTIRuntimeError AOTInductorModelContainerUpdateUserManagedConstantBuffer(AOTInductorModelContainerHandle container,
                                                                          AOTInductorConstantMapHandle constants,
                                                                          bool use_inactive, bool validate_full_update)
{
    return update(container, constants, use_inactive, validate_full_update, AOTICACHE_UPDATE_USER_MANAGED);
}

/*
 * Adds the constants to the map. Entries that the map has already do not change. On failure it may have some of the new
 * ones.
 */
AOTIRuntimeError AOTInductorModelContainerExtractConstantsMap(AOTInductorModelContainerHandle container,
                                                              AOTInductorConstantMapHandle constants, bool use_inactive)
{
    const AOTInductorConstantMapEntry *entries = nullptr;
    size_t count = 0;
    if (constants == nullptr)
        return aoticache_update_fail("the map of constants is NULL");
    if (_ZSt9terminatev == nullptr)
        return aoticache_update_fail("this process has no libstdc++, which is needed to fill a map of constants");
    AOTIRuntimeError status = aoticache_update_extract(container, use_inactive, &entries, &count);
    if (status != 0)
        return status;
    try {
        constant_map *map = reinterpret_cast<constant_map *>(constants);
        for (size_t i = 0; i < count; i++)
            map->emplace(entries[i].name, entries[i].handle);
    } catch (...) {
        return aoticache_update_fail("out of memory for a map of constants");
    }
    return 0;
}

/* Creates a model. Without a map, or with an empty one, it has the library's own weights. */
AOTIRuntimeError AOTInductorModelCreate(AOTInductorModelHandle *ret_model, AOTInductorConstantMapHandle constants)
{
    if (constants == nullptr)
        return aoticache_update_create_model(ret_model, nullptr, 0);
    pairs_of_map pairs(constants);
    return pairs.status != 0 ? pairs.status : aoticache_update_create_model(ret_model, pairs.list, pairs.count);
}

AOTIRuntimeError AOTInductorModelUpdateConstantsMap(AOTInductorModelHandle model,
                                                    AOTInductorConstantMapHandle constants)
{
    pairs_of_map pairs(constants);
    return pairs.status != 0 ? pairs.status : aoticache_update_model(model, pairs.list, pairs.count);
}

/* The objects that a kernel library links: one function of each object is enough for the linker to include it. */
const aoticache_kernel_any_fn aoticache_kernel_core[] = {
    reinterpret_cast<aoticache_kernel_any_fn>(AOTInductorModelContainerRun),
    reinterpret_cast<aoticache_kernel_any_fn>(AOTInductorModelContainerUpdateConstantBuffer),
};
