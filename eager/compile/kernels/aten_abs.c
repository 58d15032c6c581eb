/* aten::abs(Tensor self) -> Tensor. The smallest integer of a signed type is unchanged, as in PyTorch. */
#include "unary.h"

static inline TYPE apply(TYPE x)
{
#if ARG0_IS_FLOATING
    return (TYPE)(sizeof(TYPE) == sizeof(float) ? __builtin_fabsf((float)x) : __builtin_fabs((double)x));
#else
    return (TYPE)(x < 0 ? -x : x);
#endif
}

EXPORT_UNARY_KERNEL
