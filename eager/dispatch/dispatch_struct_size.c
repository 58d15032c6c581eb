/*
 * eager/dispatch/dispatch_struct_size: how large the structures of the interface are, for those who cannot ask a compiler.
 */
#include "eager/dispatch/dispatcher.h"

#include <string.h>

#define STRUCT(name) {#name, sizeof(name)}

static const struct {
    const char *name;
    size_t bytes;
} structs[] = {
    STRUCT(aoticache_error),       STRUCT(aoticache_tensor_view),   STRUCT(aoticache_value),
    STRUCT(aoticache_stack),       STRUCT(aoticache_boxed_kernel),  STRUCT(aoticache_dispatch_mode),
    STRUCT(aoticache_call_observer), STRUCT(aoticache_dispatch_guard),
};

size_t aoticache_dispatch_struct_size(const char *name)
{
    for (size_t i = 0; name != NULL && i < sizeof structs / sizeof structs[0]; i++)
        if (strcmp(structs[i].name, name) == 0)
            return structs[i].bytes;
    return 0;
}
