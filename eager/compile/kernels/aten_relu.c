/* aten::relu(Tensor self) -> Tensor. NaN stays NaN. */
#include "unary.h"

static inline TYPE apply(TYPE x)
{
    return (TYPE)(x < 0 ? 0 : x);
}

EXPORT_UNARY_KERNEL
