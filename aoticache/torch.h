/*
 * aoticache/torch: for a binding in a process with PyTorch.
 */
#ifndef AOTICACHE_FOR_TORCH_H
#define AOTICACHE_FOR_TORCH_H

#include "aoticache.h"
#include "eager/torch/binding.h"
#include "eager/torch/bridge.h"

#endif
