/* The data that is written into a library made from patched.c: which sizes it serves and what it computes. */
#ifndef AOTICACHE_TESTS_PATCHED_ORDER_H
#define AOTICACHE_TESTS_PATCHED_ORDER_H

#include <stdint.h>

#define PATCHED_MAGIC "order of a test"

typedef struct patched_order {
    char magic[16];
    int64_t ndim; /* -1: any sizes */
    int64_t sizes[4];
    double scale, offset;
    uint64_t serial; /* so that all libraries differ */
} patched_order;

#endif
