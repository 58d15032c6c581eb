/*
 * aoticache/kernel: for authors of kernel libraries in C.
 */
#ifndef AOTICACHE_FOR_KERNEL_H
#define AOTICACHE_FOR_KERNEL_H

#include "runtime/kernel.h"

#endif
