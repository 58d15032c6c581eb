/*
 * index/stats/internal: the history and how its histograms are stored, for the files of this folder.
 */
#ifndef AOTICACHE_INDEX_STATS_INTERNAL_H
#define AOTICACHE_INDEX_STATS_INTERNAL_H

#include "index/connection/internal.h"
#include "index/stats/statistics.h"

#define AOTICACHE_INDEX_SLOT_SECONDS 300

/* Adds to the slot of `now_ns`; moves slots that are too old to longer ones. Inside a transaction. */
aoticache_status aoticache_index_history_add(aoticache_index *index, const aoticache_index_deltas *deltas,
                                             aoticache_error *ret_error);

/* Counts of a histogram as bytes: those that are not 0, each as the distance from the last and the count, in base 128. */
#define AOTICACHE_INDEX_VECTOR_BYTES (AOTICACHE_INDEX_BUCKETS * 12)
size_t aoticache_index_vector_encode(const uint64_t counts[AOTICACHE_INDEX_BUCKETS],
                                     uint8_t ret_bytes[AOTICACHE_INDEX_VECTOR_BYTES]);
/* Adds to `counts`. False where the bytes are not what encode makes. */
bool aoticache_index_vector_add(const uint8_t *bytes, size_t size, uint64_t counts[AOTICACHE_INDEX_BUCKETS]);

#endif
