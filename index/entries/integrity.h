/*
 * index/entries/integrity: checks whether the index is sound, and lists parts of it in the order of a verification of the
 * store.
 *
 * Private to the library, as index.h.
 */
#ifndef AOTICACHE_INDEX_ENTRIES_INTEGRITY_H
#define AOTICACHE_INDEX_ENTRIES_INTEGRITY_H

#include "index/index.h"

/* Called periodically during a long check; returns false to stop it. Must not use the index. */
typedef bool (*aoticache_index_continue_fn)(void *user);

/*
 * Runs SQLite's own check (PRAGMA quick_check, or with is_full integrity_check, which also compares indexes with tables),
 * and checks that rows that belong together exist: entries, their details, artifacts and objects.
 *
 * continues: may be NULL. *ret_completed: false if it stopped the check, which then has no result.
 * Locks:   the index's own mutex for the whole check (seconds with a million entries): other threads should open their own
 *          index.
 * Returns: OK; CORRUPT with the first thing that is wrong; IO, LOCKED, NO_MEMORY.
 */
aoticache_status aoticache_index_check_integrity(aoticache_index *index, bool is_full,
                                                 aoticache_index_continue_fn continues, void *user, bool *ret_completed,
                                                 aoticache_error *ret_error);

/* Lists objects that have a row with digests from first to last, inclusive, in order. */
aoticache_status aoticache_index_list_objects_between(aoticache_index *index, const aoticache_digest *first,
                                                      const aoticache_digest *last, aoticache_index_object_fn callback,
                                                      void *user, aoticache_error *ret_error);

/* The parts of an entry that its manifest states, too. guard is borrowed during the callback. */
typedef struct aoticache_index_claim {
    int64_t entry_id;
    aoticache_digest artifact;
    aoticache_digest key;
    aoticache_digest library;
    uint64_t library_bytes;
    uint64_t content_offset;
    uint32_t file_count;
    uint8_t requirements[AOTICACHE_INDEX_REQUIREMENT_BYTES];
    const char *guard;
} aoticache_index_claim;

/* Return false to stop. Must not use the index. */
typedef bool (*aoticache_index_claim_fn)(void *user, const aoticache_index_claim *claim);

/* Lists the entries whose artifacts have digests from first to last, inclusive, in the order of these digests. */
aoticache_status aoticache_index_list_claims_between(aoticache_index *index, const aoticache_digest *first,
                                                     const aoticache_digest *last, aoticache_index_claim_fn callback,
                                                     void *user, aoticache_error *ret_error);

/* One object of an artifact. Return false to stop. Must not use the index. */
typedef bool (*aoticache_index_part_fn)(void *user, const aoticache_digest *artifact, const aoticache_digest *object,
                                        uint64_t bytes);

/* Lists the objects of the artifacts with digests from first to last, inclusive, in the order of these digests. */
aoticache_status aoticache_index_list_parts_between(aoticache_index *index, const aoticache_digest *first,
                                                    const aoticache_digest *last, aoticache_index_part_fn callback,
                                                    void *user, aoticache_error *ret_error);

#endif
