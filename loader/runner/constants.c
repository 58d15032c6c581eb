/*
 * loader/runner/constants: lists a container's constants and finds them by name. The library's functions for this read
 * data that never changes, so nothing is locked.
 */
#include "base/arguments.h"
#include "loader/runner/runner_internal.h"

#include "base/text/name_distance.h"
#include "loader/runner/constants.h"

#include <stdlib.h>
#include <string.h>

const char *aoticache_runner_constant_name(const aoticache_runner *runner, size_t position, bool fqn)
{
    const aoticache_library_functions *functions = &runner->library->functions;
    AOTIRuntimeError (*ask)(AOTInductorModelContainerHandle, size_t, const char **) =
        fqn ? functions->AOTInductorModelContainerGetConstantOriginalFQN
            : functions->AOTInductorModelContainerGetConstantName;
    const char *name = NULL;
    if (ask == NULL || ask(runner->container, position, &name) != 0 || name == NULL)
        return "";
    return name;
}

bool aoticache_runner_constant_is_folded(const aoticache_runner *runner, size_t position)
{
    const aoticache_library_functions *functions = &runner->library->functions;
    bool folded = false;
    return functions->AOTInductorModelContainerGetConstantFromFolded != NULL &&
           functions->AOTInductorModelContainerGetConstantFromFolded(runner->container, position, &folded) == 0 &&
           folded;
}

aoticache_status aoticache_runner_read_constant(const aoticache_runner *runner, size_t position,
                                                aoticache_constant *ret_constant, aoticache_error *ret_error)
{
    if (runner == NULL || ret_constant == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, runner, ret_constant);
    if (position >= runner->num_constants)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "library %.200s has %zu constants; there is no constant %zu", runner->library->name,
                                   runner->num_constants, position);
    const aoticache_library_functions *functions = &runner->library->functions;
    aoticache_constant constant = {.name = NULL, .dtype = -1, .type = AOTICACHE_CONSTANT_UNKNOWN};
    size_t bytes = 0;
#define ASK(what, place)                                                                                     \
    if (functions->AOTInductorModelContainerGetConstant##what != NULL) {                                     \
        AOTIRuntimeError code =                                                                              \
            functions->AOTInductorModelContainerGetConstant##what(runner->container, position, place);       \
        if (code != 0)                                                                                       \
            return aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED,                          \
                                             "AOTInductorModelContainerGetConstant" #what, code, ret_error); \
    }
    ASK(Name, &constant.name)
    ASK(OriginalFQN, &constant.original_fqn)
    ASK(Dtype, &constant.dtype)
    ASK(Type, &constant.type)
    ASK(FromFolded, &constant.from_folded)
    ASK(DataSize, &bytes)
#undef ASK
    if (constant.name == NULL)
        constant.name = "";
    if (constant.original_fqn == NULL)
        constant.original_fqn = "";
    constant.has_bytes = functions->AOTInductorModelContainerGetConstantDataSize != NULL;
    constant.bytes = bytes;
    *ret_constant = constant;
    return AOTICACHE_OK;
}

/* ---- by name ---- */

static int compare_names(const void *a, const void *b)
{
    const struct aoticache_constant_name *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order != 0 ? order : (left->position > right->position) - (left->position < right->position);
}

aoticache_status aoticache_constant_names_read(const aoticache_runner *runner, bool fqn,
                                               aoticache_constant_names *ret_names, aoticache_error *ret_error)
{
    aoticache_constant_names names = {0};
    names.names = calloc(runner->num_constants > 0 ? runner->num_constants : 1, sizeof *names.names);
    if (names.names == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the names of %zu constants",
                                   runner->num_constants);
    for (size_t i = 0; i < runner->num_constants; i++) {
        const char *name = aoticache_runner_constant_name(runner, i, fqn);
        if (name[0] != '\0')
            names.names[names.count++] = (struct aoticache_constant_name){name, i};
    }
    qsort(names.names, names.count, sizeof *names.names, compare_names);
    *ret_names = names;
    return AOTICACHE_OK;
}

size_t aoticache_constant_names_find(const aoticache_constant_names *names, const char *name)
{
    size_t low = 0, high = names->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(names->names[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < names->count && strcmp(names->names[low].name, name) == 0 ? low : names->count;
}

/* Finds the nearest name by edit distance. Names longer than AOTICACHE_NAME_DISTANCE_LONGEST are never found. */
const char *aoticache_constant_names_nearest(const aoticache_constant_names *names, const char *name)
{
    size_t least = strnlen(name, AOTICACHE_NAME_DISTANCE_LONGEST) / 3 + 2;
    const char *nearest = NULL;
    for (size_t i = 0; i < names->count; i++) {
        size_t found = aoticache_name_distance(name, names->names[i].name, least, false);
        if (found < least) {
            least = found;
            nearest = names->names[i].name;
        }
    }
    return nearest;
}
