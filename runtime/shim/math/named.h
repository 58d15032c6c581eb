/*
 * shim/math/named: operators that are called by name (runtime/named_operators.h) and need no LAPACK. Private to
 * runtime/shim/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_NAMED_H
#define AOTICACHE_RUNTIME_SHIM_MATH_NAMED_H

#include "runtime/named_operators.h"

#define NAMED_OPERATOR(name) \
    AOTITorchError aoticache_shim_##name(const aoticache_named_argument *a, AtenTensorHandle *ret);

/* antialias.c */
NAMED_OPERATOR(resize_bilinear)
NAMED_OPERATOR(resize_bicubic)
NAMED_OPERATOR(resize_lanczos)

/* matrix_exponential.c */
NAMED_OPERATOR(matrix_exponential)

/* complex.c: aoticache_shim_complex_NAME for each function of one tensor, and for two functions of two tensors. */
#define SHIM_COMPLEX_UNARY_LIST(X) \
    X(exp)                         \
    X(log)                         \
    X(neg)                         \
    X(reciprocal)                  \
    X(sqrt)                        \
    X(rsqrt)                       \
    X(sigmoid)                     \
    X(sin)                         \
    X(cos)                         \
    X(tan)                         \
    X(sinh)                        \
    X(cosh)                        \
    X(tanh)
#define SHIM_DECLARE_COMPLEX(name) NAMED_OPERATOR(complex_##name)
SHIM_COMPLEX_UNARY_LIST(SHIM_DECLARE_COMPLEX)
SHIM_DECLARE_COMPLEX(div)
SHIM_DECLARE_COMPLEX(sub)
#undef SHIM_DECLARE_COMPLEX
#undef NAMED_OPERATOR

#endif
