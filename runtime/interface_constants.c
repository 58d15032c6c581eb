/*
 * runtime/interface_constants: the exported AOTInductor functions that ask about constants.
 */
#include "runtime/interface.h"

AOTIRuntimeError AOTInductorModelContainerGetNumConstants(AOTInductorModelContainerHandle handle,
                                                          size_t *ret_num_constants)
{
    const aoticache_container *container = aoticache_interface_container(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    if (ret_num_constants == NULL)
        return aoticache_interface_fail_result("number of constants");
    *ret_num_constants = container->kernel->num_constants;
    return AOTICACHE_KERNEL_OK;
}

/* NULL, with a message. */
static const aoticache_kernel_constant *find_constant(AOTInductorModelContainerHandle handle, size_t position,
                                                      const void *ret_place)
{
    const aoticache_container *container = aoticache_interface_container(handle);
    if (container == NULL)
        return NULL;
    if (ret_place == NULL) {
        aoticache_interface_fail_result("result");
        return NULL;
    }
    if (position >= container->kernel->num_constants) {
        aoticache_message_set("constant %zu of a kernel with %zu", position, container->kernel->num_constants);
        return NULL;
    }
    return &container->kernel->constants[position];
}

/* Functions that give one field of a constant. */
#define DEFINE_CONSTANT_QUERY(name, type, field)                                                              \
    AOTIRuntimeError AOTInductorModelContainerGetConstant##name(AOTInductorModelContainerHandle handle,       \
                                                                size_t position, type *ret_value)             \
    {                                                                                                         \
        const aoticache_kernel_constant *constant = find_constant(handle, position, ret_value);               \
        if (constant == NULL)                                                                                 \
            return AOTICACHE_KERNEL_FAILURE;                                                                  \
        *ret_value = constant->field;                                                                         \
        return AOTICACHE_KERNEL_OK;                                                                           \
    }

DEFINE_CONSTANT_QUERY(Name, const char *, name)
DEFINE_CONSTANT_QUERY(OriginalFQN, const char *, original_fqn)
DEFINE_CONSTANT_QUERY(FromFolded, bool, from_folded)
DEFINE_CONSTANT_QUERY(Type, int32_t, type)
DEFINE_CONSTANT_QUERY(Dtype, int32_t, dtype)
DEFINE_CONSTANT_QUERY(DataSize, size_t, data_size)
