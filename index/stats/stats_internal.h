/*
 * index/stats/stats_internal: the history and the encoding of its histograms, for the files of this directory.
 */
#ifndef AOTICACHE_INDEX_STATS_INTERNAL_H
#define AOTICACHE_INDEX_STATS_INTERNAL_H

#include "index/connection/connection_internal.h"
#include "index/stats/statistics.h"

#define AOTICACHE_INDEX_SLOT_SECONDS 300

/* ---- adding, inside a transaction ---- */

/* Adds all of the deltas, or only counters. */
aoticache_status aoticache_index_add_deltas(aoticache_index *index, const aoticache_index_deltas *deltas,
                                            aoticache_error *ret_error);
aoticache_status aoticache_index_add_counts(aoticache_index *index, const aoticache_index_count *counts, size_t count,
                                            aoticache_error *ret_error);
/* Adds to the slot of `now_ns`; merges slots that are too old into longer ones. */
aoticache_status aoticache_index_history_add(aoticache_index *index, const aoticache_index_deltas *deltas,
                                             aoticache_error *ret_error);

/* ---- numbers as bytes ---- */

/* Encode and decode a number in base 128, the lower digits first. Both return the number of bytes; decode returns 0 if it is
 * not valid. */
#define AOTICACHE_INDEX_NUMBER_BYTES 10
size_t aoticache_index_number_encode(uint8_t ret_bytes[AOTICACHE_INDEX_NUMBER_BYTES], uint64_t value);
size_t aoticache_index_number_decode(const uint8_t *bytes, size_t size, uint64_t *ret_value);

/* Encodes the counts of a histogram: those that are not 0, each as the distance from the last and the count, in base 128. */
#define AOTICACHE_INDEX_VECTOR_BYTES (AOTICACHE_INDEX_BUCKETS * 12)
size_t aoticache_index_vector_encode(const uint64_t counts[AOTICACHE_INDEX_BUCKETS],
                                     uint8_t ret_bytes[AOTICACHE_INDEX_VECTOR_BYTES]);
/* Adds to `counts`. Returns false if the bytes are not a valid encoding. */
bool aoticache_index_vector_add(const uint8_t *bytes, size_t size, uint64_t counts[AOTICACHE_INDEX_BUCKETS]);

#endif
