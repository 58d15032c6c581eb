/* aten::neg(Tensor self) -> Tensor. Integers wrap. */
#include "unary.h"

static inline TYPE apply(TYPE x)
{
    return (TYPE)-x;
}

EXPORT_UNARY_KERNEL
