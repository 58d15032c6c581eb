/* aten::mul.Tensor(Tensor self, Tensor other) -> Tensor. Integers wrap. */
#include "binary.h"

#if ARGUMENT_COUNT != 2
#error "AOTICACHE_UNSUPPORTED: mul is served with two tensors and nothing else"
#endif

static inline TYPE apply(TYPE x, TYPE y)
{
    /* Of a type at least as wide as int: uint16_t * uint16_t would overflow int otherwise. */
    return (TYPE)((TYPE)x * y);
}

EXPORT_BINARY_KERNEL
