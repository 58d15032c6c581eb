/* aten::mul.Tensor(Tensor self, Tensor other) -> Tensor. Integers wrap. */
#include "binary.h"

#if ARGUMENT_COUNT != 2
#error "AOTICACHE_UNSUPPORTED: mul is served with two tensors and nothing else"
#endif

static inline TYPE apply(TYPE x, TYPE y)
{
    /* Small integers are multiplied as int; the result is converted back to TYPE. */
    return (TYPE)((TYPE)x * y);
}

EXPORT_BINARY_KERNEL
