/*
 * cache/verify/verify_internal: the state of one verification, for the files of this directory.
 *
 * verify.c runs the parts in order; objects.c iterates over objects/ and the index together, in batches made by batch.c;
 * examine.c reads objects in threads; entries.c compares entries with manifests and restores lost entries; links.c checks
 * artifacts/ and marks/; signatures.c checks signatures/; state.c lets a later run continue; findings.c has functions for
 * all of them.
 */
#ifndef AOTICACHE_CACHE_VERIFY_INTERNAL_H
#define AOTICACHE_CACHE_VERIFY_INTERNAL_H

#include <dirent.h>

#include "cache/cache_internal.h"
#include "cache/verify/verify.h"

/* ---- one object, and its verdict ---- */

typedef enum aoticache_verdict_of_object {
    AOTICACHE_OBJECT_UNSEEN,
    AOTICACHE_OBJECT_SOUND,
    AOTICACHE_OBJECT_GONE,         /* removed meanwhile */
    AOTICACHE_OBJECT_SUSPECT,      /* to be examined again */
    AOTICACHE_OBJECT_CONTRADICTED, /* sound, but it is a manifest and an entry contradicts it */
} aoticache_verdict_of_object;

/* An entry in the index; free its guard with free(). */
typedef struct aoticache_verify_claim {
    aoticache_digest artifact, key, library;
    int64_t entry_id;
    uint64_t library_bytes, content_offset;
    uint32_t file_count;
    uint8_t requirements[AOTICACHE_INDEX_REQUIREMENT_BYTES];
    char *guard;
} aoticache_verify_claim;

/* An object of an artifact, according to the index. */
typedef struct aoticache_verify_part {
    aoticache_digest artifact, object;
    uint64_t bytes;
} aoticache_verify_part;

typedef struct aoticache_verify_item {
    aoticache_digest digest;
    uint64_t bytes;                       /* on disk */
    uint64_t named_bytes;                 /* in the index; AOTICACHE_OBJECT_ANY_SIZE if it does not name the object */
    const aoticache_verify_claim *claims; /* the entries of which it is the manifest */
    size_t claim_count;
    const aoticache_verify_part *parts; /* its objects, if it is a manifest */
    size_t part_count;
    aoticache_verdict_of_object verdict;
} aoticache_verify_item;

/* Other files in objects/. */
typedef struct aoticache_verify_odd {
    char *path;   /* relative to the root */
    char *detail; /* why it cannot be read; NULL: it is foreign */
} aoticache_verify_odd;

/* Some directories of objects/, sorted. */
typedef struct aoticache_verify_batch {
    aoticache_verify_item *items;
    size_t count, capacity;
    aoticache_object_array named; /* what the index names in the same range */
    aoticache_verify_claim *claims;
    size_t claim_count, claim_capacity;
    aoticache_verify_part *parts;
    size_t part_count, part_capacity;
    aoticache_verify_odd *odd;
    size_t odd_count, odd_capacity;
    aoticache_digest last; /* the last digest of the range */
    bool is_out_of_memory;
} aoticache_verify_batch;

/* ---- the whole verification ---- */

typedef struct aoticache_lost_manifest {
    aoticache_digest digest;
    int64_t created_ns;
} aoticache_lost_manifest;

typedef enum aoticache_verify_phase {
    AOTICACHE_VERIFY_OBJECTS,
    AOTICACHE_VERIFY_LINKS, /* and marks/ */
    AOTICACHE_VERIFY_DONE,
} aoticache_verify_phase;

typedef struct aoticache_verification {
    aoticache_cache *cache;
    aoticache_index *index; /* NULL: there is no usable index */
    aoticache_verify_options options;
    aoticache_verify_fn callback;
    aoticache_verify_progress_fn progress;
    void *user;
    uint64_t deadline_ns; /* 0: none */
    uint64_t all;         /* objects, as far as known */
    uint64_t saved_ns;    /* when the state was last written */
    bool is_stopped;
    bool is_interrupted;   /* stopped inside an object, which is not done */
    bool is_index_checked; /* and is sound, according to this part or an earlier one */
    aoticache_verify_phase phase;
    unsigned first_directory; /* of the batch in progress */
    bool has_cursor;
    aoticache_digest cursor; /* objects up to this one are done */
    aoticache_lost_manifest *lost;
    size_t lost_count, lost_capacity;
    aoticache_verify_report report;
    aoticache_verify_report again; /* counts of the batch in progress, which the next part will count itself */
} aoticache_verification;

/* ---- findings.c ---- */

/* Calls the caller's function. */
void aoticache_verification_report_finding(const aoticache_verification *verification, const char *what,
                                           const char *name, const char *detail);
/* Reports a foreign file, and with options.repair moves it to quarantine/. path: relative to the root. */
aoticache_status aoticache_verification_report_foreign(aoticache_verification *verification, const char *path,
                                                       aoticache_error *ret_error);
/* Counts and reports what could not be examined. name: relative to the root. */
void aoticache_verification_note_unreadable(aoticache_verification *verification, const char *name, const char *detail);
/*
 * Opens a directory to list it. Returns NULL with OK if it is missing or not trusted, which is reported where its name is
 * checked. Returns: OK; DENIED (it is trusted, but cannot be listed); IO, NO_MEMORY.
 */
aoticache_status aoticache_verification_open_listing(aoticache_verification *verification, const char *path,
                                                     DIR **ret_listing, aoticache_error *ret_error);
/* Checks the clock and calls the caller to decide whether to continue; once false, always false. done: number of objects. */
bool aoticache_verification_poll(aoticache_verification *verification, uint64_t done);

/* ---- batch.c ---- */

/* Adds claims and parts of the artifacts from first to last, both included. */
aoticache_status aoticache_verify_batch_read_entries(aoticache_index *index, const aoticache_digest *first,
                                                     const aoticache_digest *last, aoticache_verify_batch *batch,
                                                     aoticache_error *ret_error);
/* Empties a batch and frees its contents. */
void aoticache_verify_batch_clear(aoticache_verify_batch *batch);
void aoticache_verify_batch_release(aoticache_verify_batch *batch);
/* Returns whether an earlier part has examined it. */
bool aoticache_verification_is_done(const aoticache_verification *verification, const aoticache_digest *digest);
/* Adds the objects of a directory, 0 to 255, that are not done. OK, IO, NO_MEMORY. */
aoticache_status aoticache_verification_list_directory(aoticache_verification *verification, unsigned directory,
                                                       aoticache_verify_batch *batch, aoticache_error *ret_error);
/* Adds the rows of the index for directories from first to last, sorts, and links each object to its rows. */
aoticache_status aoticache_verification_read_rows(const aoticache_verification *verification, unsigned first,
                                                  unsigned last, aoticache_verify_batch *batch,
                                                  aoticache_error *ret_error);
/* Reports files directly in objects/ that do not belong there. */
aoticache_status aoticache_verification_check_top(aoticache_verification *verification, aoticache_error *ret_error);

/* ---- objects.c ---- */

aoticache_status aoticache_verification_check_objects(aoticache_verification *verification, aoticache_error *ret_error);
/* Counts objects that no entry names now: call it after repairs. */
aoticache_status aoticache_verification_count_unreferenced(aoticache_verification *verification,
                                                           aoticache_error *ret_error);

/* ---- examine.c ---- */

/* Fills in the verdicts of a batch; objects that a stopped run did not reach stay UNSEEN. */
void aoticache_verification_examine(aoticache_verification *verification, aoticache_verify_batch *batch);
/* Examines one of them: OK, NOT_FOUND (gone), CORRUPT, or why it cannot be read (DENIED; IO). */
aoticache_status aoticache_verify_item_examine(aoticache_directory *directory, bool is_quick,
                                               aoticache_continue_fn continues, void *user, aoticache_verify_item *item,
                                               aoticache_error *ret_error);

/* ---- entries.c ---- */

/*
 * Reads and verifies a manifest and compares it with the entries that name it. If the store changes concurrently, a result
 * may be wrong once; only a repeated result counts.
 * Returns: OK; CORRUPT (damaged, not a manifest, or with the difference; *ret_entry_id is the entry's number); NOT_FOUND;
 * UNSUPPORTED (of a newer program); IO, NO_MEMORY, LOCKED.
 */
aoticache_status aoticache_verify_item_compare(aoticache_cache *cache, aoticache_verify_item *item,
                                               int64_t *ret_entry_id, aoticache_error *ret_error);
/* Compares again; entries that are still wrong are counted, reported and repaired. */
aoticache_status aoticache_verification_confirm_entries(aoticache_verification *verification,
                                                        const aoticache_verify_item *item, aoticache_error *ret_error);

/* Notes an object that no entry names, if it is a manifest. OK, NO_MEMORY. */
aoticache_status aoticache_verification_note_unnamed(aoticache_verification *verification,
                                                     const aoticache_digest *digest, aoticache_error *ret_error);
/* Reports and repairs noted manifests that have no entry, unless an equivalent manifest has replaced their entry. */
aoticache_status aoticache_verification_check_unindexed(aoticache_verification *verification,
                                                        aoticache_error *ret_error);

/* ---- links.c ---- */

aoticache_status aoticache_verification_check_links(aoticache_verification *verification, aoticache_error *ret_error);
aoticache_status aoticache_verification_check_pins(aoticache_verification *verification, aoticache_error *ret_error);

/* Called for each name in a directory of the root, until the verification is stopped. */
typedef aoticache_status (*aoticache_verification_name_fn)(aoticache_verification *verification, int directory,
                                                           const char *name, aoticache_error *ret_error);
aoticache_status aoticache_verification_for_each_name(aoticache_verification *verification, const char *path,
                                                      aoticache_verification_name_fn check, aoticache_error *ret_error);
/* Checks that the name is gone, or is a trusted file of this type with a digest as its name; otherwise it is foreign. */
aoticache_status aoticache_verification_check_name(aoticache_verification *verification, int directory,
                                                   const char *path, const char *name, mode_t type, bool *ret_usable,
                                                   aoticache_error *ret_error);

/* ---- signatures.c ---- */

aoticache_status aoticache_verification_check_signatures(aoticache_verification *verification,
                                                         aoticache_error *ret_error);

/* ---- state.c: an optimization: a state that cannot be written or read is treated as missing ---- */

/* Continues an earlier run, if its state fits. */
void aoticache_verification_restore(aoticache_verification *verification);
void aoticache_verification_save(aoticache_verification *verification);
void aoticache_verification_forget(aoticache_verification *verification);

#endif
