/*
 * shim/indexing/named: operators of this directory that are called by name (runtime/named_operators.h). Private to
 * runtime/shim/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_INDEXING_NAMED_H
#define AOTICACHE_RUNTIME_SHIM_INDEXING_NAMED_H

#include "runtime/named_operators.h"

/*
 * unique.c: aten::_unique2 and aten::unique_consecutive; the latter for all elements, not for slices along a dimension.
 */
AOTITorchError aoticache_shim_unique(const aoticache_named_argument *a, AtenTensorHandle *ret);
AOTITorchError aoticache_shim_unique_consecutive(const aoticache_named_argument *a, AtenTensorHandle *ret);

/* sort.c: along one dimension */
AOTITorchError aoticache_shim_median(const aoticache_named_argument *a, AtenTensorHandle *ret);
AOTITorchError aoticache_shim_nanmedian(const aoticache_named_argument *a, AtenTensorHandle *ret);

/* histogram.c */
AOTITorchError aoticache_shim_histogram_edges(const aoticache_named_argument *a, AtenTensorHandle *ret);

#endif
