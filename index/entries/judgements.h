/*
 * index/entries/judgements: timing results: for the kernel of a key, on a kind of machine, whether the host's own kernel was
 * faster. Lost results are measured again: they are written without waiting for the disk, and a rebuilt index has none.
 *
 * Private to the library. Thread and fork safety as index/index.h.
 */
#ifndef AOTICACHE_INDEX_ENTRIES_JUDGEMENTS_H
#define AOTICACHE_INDEX_ENTRIES_JUDGEMENTS_H

#include "index/index.h"

/* Pointers are borrowed. */
typedef struct aoticache_index_judgement {
    aoticache_digest key; /* of the request */
    const char *machine;
    uint32_t threads;
    uint32_t size; /* size class of a dynamic kernel; 0 for an exact one */
    bool is_slower;
    uint64_t kernel_ns, fallback_ns;
    int64_t judged_ns; /* wall clock */
} aoticache_index_judgement;

/* Writes results; each replaces the result of the same key, machine, threads and size. Waits for the write lock wait_ms at
 * most. */
aoticache_status aoticache_index_put_judgements(aoticache_index *index, const aoticache_index_judgement *judgements,
                                                size_t count, uint32_t wait_ms, aoticache_error *ret_error);

/* Return false to stop. The callback must not use the index. */
typedef bool (*aoticache_index_judgement_fn)(void *user, const aoticache_index_judgement *judgement);

/* Lists the results of a key, the newest first. */
aoticache_status aoticache_index_list_judgements(aoticache_index *index, const aoticache_digest *key,
                                                 aoticache_index_judgement_fn callback, void *user,
                                                 aoticache_error *ret_error);
/* Deletes results from before before_ns, and those that a wrong clock dated after now_ns. */
aoticache_status aoticache_index_forget_judgements(aoticache_index *index, int64_t before_ns, int64_t now_ns,
                                                   aoticache_error *ret_error);

#endif
