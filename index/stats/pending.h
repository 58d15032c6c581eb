/*
 * index/stats/pending: the file next to the index in which processes that wrote nothing else leave their counts, and the
 * encoding of its records.
 *
 * Private to this directory and its tests.
 *
 * The file is a header and records, one for each aoticache_index_defer_deltas(). A record has a mark, the size and the XXH3
 * of what follows, and then numbers in base 128 and names. The file is not synced, and its contents are not trusted: a
 * record that is torn or damaged is dropped, and the search continues after it.
 */
#ifndef AOTICACHE_INDEX_STATS_PENDING_H
#define AOTICACHE_INDEX_STATS_PENDING_H

#include "index/stats/stats_internal.h"

#define AOTICACHE_PENDING_STATS_SUFFIX "-uses"
#define AOTICACHE_PENDING_STATS_MAX_BYTES (64 << 10) /* of the file. Some 500 processes, whose merge takes 25 ms */
#define AOTICACHE_PENDING_STATS_HEADER_BYTES 16      /* the version of the encoding, and the number of the file */

#define AOTICACHE_INDEX_RECORD_MARK 0x3153551bu /* ESC "US1" */
#define AOTICACHE_INDEX_RECORD_FRAME_BYTES 16   /* mark, size, hash */
#define AOTICACHE_PENDING_STATS_MAX_NAMES 128   /* of counters in a record, or of histograms */

/* A record's deltas, and what they point to. */
typedef struct aoticache_index_record {
    aoticache_index_deltas deltas;
    aoticache_index_tally *tallies;
    aoticache_index_count counts[AOTICACHE_PENDING_STATS_MAX_NAMES];
    aoticache_index_histogram histograms[AOTICACHE_PENDING_STATS_MAX_NAMES];
    uint64_t (*buckets)[AOTICACHE_INDEX_BUCKETS]; /* of each histogram */
} aoticache_index_record;

/* Writes the record of deltas without sums. Returns its size; 0: it does not fit, or has an impossible number. */
size_t aoticache_index_record_encode(const aoticache_index_deltas *deltas, uint8_t *ret_bytes, size_t size);

/*
 * Finds the first complete record at *at or after it, and moves *at to its end, or to the end of the bytes if there is none.
 *
 * ret_record: names are borrowed from `bytes`; the caller clears it if OK is returned.
 * Returns: OK, NOT_FOUND, NO_MEMORY.
 */
aoticache_status aoticache_index_record_next(const uint8_t *bytes, size_t size, size_t *at,
                                             aoticache_index_record *ret_record);
void aoticache_index_record_clear(aoticache_index_record *record);

/* ---- the file ---- */

/* What a transaction has merged. */
typedef struct aoticache_pending_stats {
    int fd;       /* -1: nothing to merge */
    int64_t size; /* number of merged bytes */
} aoticache_pending_stats;

/* Adds the contents of the file to the index, inside a transaction. The caller must end it, whatever is returned. */
aoticache_status aoticache_pending_stats_merge(aoticache_index *index, int64_t now_ns,
                                               aoticache_pending_stats *ret_uses, aoticache_error *ret_error);
/* Call this after the transaction: removes the file if the transaction was committed and nothing was added to the file
 * since. */
void aoticache_pending_stats_end(aoticache_index *index, aoticache_pending_stats *uses, bool is_committed);

#endif
