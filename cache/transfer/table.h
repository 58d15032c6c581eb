/*
 * cache/transfer/table: which objects have come in, by digest.
 *
 * Private. Not thread-safe. 48 bytes an object, at most twice that.
 */
#ifndef AOTICACHE_CACHE_TRANSFER_TABLE_H
#define AOTICACHE_CACHE_TRANSFER_TABLE_H

#include "base/base.h"

typedef enum aoticache_transfer_state {
    AOTICACHE_TRANSFER_PENDING = 1, /* its bytes lie, verified, in the private folder */
    AOTICACHE_TRANSFER_STORED = 2,  /* it is in the store: it was, or has been moved there */
} aoticache_transfer_state;

typedef struct aoticache_transfer_object {
    aoticache_digest digest;
    uint64_t bytes;
    uint8_t state; /* 0: the slot is free */
    bool is_named; /* by a manifest that was taken in or was there already */
    bool has_come; /* as a member of the archive */
    bool is_manifest;
    bool is_ours;  /* a manifest whose entry this transfer records */
} aoticache_transfer_object;

typedef struct aoticache_transfer_table {
    aoticache_transfer_object *slots; /* open addressing */
    size_t capacity;                  /* a power of two, or 0 */
    size_t count;
} aoticache_transfer_table;

/* Borrowed until the next add; NULL where it is not there. */
aoticache_transfer_object *aoticache_transfer_table_find(const aoticache_transfer_table *table,
                                                         const aoticache_digest *digest);
/* The object, added where it is not there. NULL: out of memory. */
aoticache_transfer_object *aoticache_transfer_table_add(aoticache_transfer_table *table,
                                                        const aoticache_digest *digest);
void aoticache_transfer_table_free(aoticache_transfer_table *table);

#endif
