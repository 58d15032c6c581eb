/*
 * shim/order/unique: the different elements of a tensor; called by name (runtime/named_operators.h). Private to
 * runtime/shim/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_ORDER_UNIQUE_H
#define AOTICACHE_RUNTIME_SHIM_ORDER_UNIQUE_H

#include "runtime/named_operators.h"

/* aten::_unique2 and aten::unique_consecutive, the latter of all elements, not of slices along a dimension. */
AOTITorchError aoticache_shim_unique(const aoticache_named_argument *a, AtenTensorHandle *ret);
AOTITorchError aoticache_shim_unique_consecutive(const aoticache_named_argument *a, AtenTensorHandle *ret);

#endif
