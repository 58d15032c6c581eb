/* aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor: self + alpha * other. */
#include "binary.h"

#ifndef KEY_alpha_VALUE
#if ARGUMENT_COUNT != 2
#error "AOTICACHE_UNSUPPORTED: add is served with two tensors and alpha"
#endif
#define KEY_alpha_VALUE 1
#elif ARGUMENT_COUNT != 3
#error "AOTICACHE_UNSUPPORTED: add is served with two tensors and alpha"
#elif defined(KEY_alpha_IS_DOUBLE) && !ARG0_IS_FLOATING
#error "AOTICACHE_UNSUPPORTED: alpha of integer tensors must be an integer"
#endif

static inline TYPE apply(TYPE x, TYPE y)
{
    return (TYPE)(x + (TYPE)(KEY_alpha_VALUE)*y);
}

EXPORT_BINARY_KERNEL
