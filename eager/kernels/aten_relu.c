/* aten::relu(Tensor self) -> Tensor. A NaN stays one. */
#include "unary.h"

static inline TYPE apply(TYPE x)
{
    return (TYPE)(x < 0 ? 0 : x);
}

EXPORT_UNARY_KERNEL
