/*
 * cache/transfer/intake: how objects and manifests come into a cache, whoever sends them.
 *
 * Private to cache/transfer/. Files are filled in a private folder in tmp/, where no collector takes them, and verified
 * there. A manifest whose objects are all there is queued; a batch of them is made durable, moved into the store and
 * recorded, all under the store's lock, shared. Objects that no manifest names never enter the store.
 */
#ifndef AOTICACHE_CACHE_TRANSFER_INTAKE_H
#define AOTICACHE_CACHE_TRANSFER_INTAKE_H

#include "cache/store/scratch.h"
#include "cache/internal.h"
#include "cache/transfer/transfer.h"
#include "cache/transfer/table.h"

#define AOTICACHE_INTAKE_BATCH 512

typedef struct aoticache_intake_entry {
    aoticache_digest digest; /* of the manifest */
    uint64_t bytes;
    aoticache_manifest *manifest;
    int64_t last_used_ns;
    uint64_t uses;
} aoticache_intake_entry;

typedef struct aoticache_intake {
    aoticache_cache *cache;
    const aoticache_transfer_options *options;
    aoticache_transfer_report *report;
    aoticache_scratch scratch;
    int folder_fd; /* of the private folder */
    aoticache_transfer_table table;
    aoticache_intake_entry *queue; /* AOTICACHE_INTAKE_BATCH of them */
    size_t count;
    uint64_t queued_bytes;
    uint64_t queued_text; /* bytes of the manifests, which are held in memory */
    uint64_t begun_ns; /* when the first of the batch was queued */
    uint64_t told;     /* refusals that were logged */
    uint64_t done, all; /* objects, for the progress */
    bool is_stopped;
} aoticache_intake;

/* `report` must outlive it. Returns: OK, DENIED, IO, NO_MEMORY, INVALID. */
aoticache_status aoticache_intake_begin(aoticache_intake *intake, aoticache_cache *cache,
                                        const aoticache_transfer_options *options, aoticache_transfer_report *report,
                                        aoticache_error *ret_error);
/* Removes what has not been moved. For an intake that is all zero it does nothing. */
void aoticache_intake_end(aoticache_intake *intake);

/* Logs and counts something that is not taken in. */
void aoticache_intake_refuse(aoticache_intake *intake, const char *format, ...) AOTICACHE_PRINTF(2, 3);

/* Tells the progress; false where the caller wants to stop. For aoticache_tar_goes_on_fn, too. */
bool aoticache_intake_goes_on(void *intake);
/* One object more, or, where the caller wants to stop, IO. */
aoticache_status aoticache_intake_step(aoticache_intake *intake, aoticache_error *ret_error);

/* An entry that wants to come in. */
typedef struct aoticache_intake_claim {
    const aoticache_key *key;
    const aoticache_digest *artifact;
    const aoticache_cpu_features *requirements;
    const char *guard; /* may be NULL */
} aoticache_intake_claim;

/*
 * Whether it may come beside those that are there; where not, it has been counted.
 * Returns: OK, IO, LOCKED, NO_MEMORY, CORRUPT.
 */
aoticache_status aoticache_intake_wants_entry(aoticache_intake *intake, const aoticache_intake_claim *claim,
                                              bool *ret_wanted, aoticache_error *ret_error);
/* The same for who holds the store's lock: CORRUPT where the index is damaged, which is not built anew then. */
aoticache_status aoticache_intake_wants_still(aoticache_intake *intake, const aoticache_intake_claim *claim,
                                              bool *ret_wanted, aoticache_error *ret_error);
/* Whether an object has come in or is, sound and with so many bytes, in the store. Returns: OK, IO, LOCKED, NO_MEMORY. */
aoticache_status aoticache_intake_has(aoticache_intake *intake, const aoticache_digest *digest, uint64_t bytes,
                                      bool *ret_has, aoticache_error *ret_error);
/* Whether there is room for so many bytes beside what is left free for others; where not, `name` is refused. */
bool aoticache_intake_has_room(aoticache_intake *intake, const char *name, uint64_t bytes);

/* A new file for an object, for writing and reading. Returns: OK, IO, DENIED. */
aoticache_status aoticache_intake_create_file(aoticache_intake *intake, const aoticache_digest *digest, int *ret_fd,
                                              aoticache_error *ret_error);
/* The file has these bytes and they hash to the digest: it counts as come in. Returns: OK, IO, NO_MEMORY. */
aoticache_status aoticache_intake_keep_file(aoticache_intake *intake, const aoticache_digest *digest, uint64_t bytes,
                                            int fd, aoticache_error *ret_error);
/*
 * Takes note that an object is a manifest. It is none of the files of another artifact, then: as a file it would come
 * into the store whatever is said of its entry, and an index that is built anew would find it there.
 */
void aoticache_intake_note_manifest(aoticache_intake *intake, const aoticache_digest *digest);
void aoticache_intake_discard_file(aoticache_intake *intake, const aoticache_digest *digest);

/*
 * A manifest that has come in: queued, passed over (the entry is there, or the options do not name it), or refused.
 * Takes `manifest` over. entry: its digest, bytes and use. Returns: OK, and what ends everything: IO, LOCKED,
 * NO_MEMORY, CORRUPT.
 */
aoticache_status aoticache_intake_add_manifest(aoticache_intake *intake, const aoticache_intake_entry *entry,
                                               aoticache_error *ret_error);

/* Objects that came in and that no manifest named: refused. */
void aoticache_intake_refuse_unnamed(aoticache_intake *intake);

/* Makes the queue durable, visible and empty (commit.c). Returns: OK, IO, DENIED, LOCKED, NO_MEMORY. */
aoticache_status aoticache_intake_commit(aoticache_intake *intake, aoticache_error *ret_error);

#endif
