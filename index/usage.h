/*
 * index/usage: how many bytes groups of entries take. Private to the library.
 */
#ifndef AOTICACHE_INDEX_USAGE_H
#define AOTICACHE_INDEX_USAGE_H

#include "index/index.h"

typedef enum aoticache_index_usage_group {
    AOTICACHE_INDEX_USAGE_BY_OP,
    AOTICACHE_INDEX_USAGE_BY_DEVICE,
    AOTICACHE_INDEX_USAGE_BY_PRODUCER,
    AOTICACHE_INDEX_USAGE_BY_TAG, /* "" for entries without; an entry counts under each of its tags */
} aoticache_index_usage_group;

typedef struct aoticache_index_usage {
    const char *name;
    uint64_t entries;
    uint64_t bytes; /* of objects; each once in its group */
    int64_t last_used_ns;
} aoticache_index_usage;

typedef bool (*aoticache_index_usage_fn)(void *user, const aoticache_index_usage *usage);

/* The largest group first. Reads all rows: seconds for a million entries. The callback must not use the index. */
aoticache_status aoticache_index_list_usage(aoticache_index *index, aoticache_index_usage_group by,
                                            aoticache_index_usage_fn callback, void *user, aoticache_error *ret_error);

#endif
