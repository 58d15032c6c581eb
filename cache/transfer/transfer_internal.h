/*
 * cache/transfer/transfer_internal: types and functions shared by exports, imports and merges, for the files of this directory.
 *
 * Objects and manifests are added to a cache by an import batch (aoticache_intake), whatever their source. Files are written
 * and verified in a private directory in tmp/, which no collector removes. A manifest whose objects are all present is
 * queued; a batch of them is made durable, moved into the store and recorded, all under the store's lock, shared. Objects
 * that no manifest names never enter the store.
 */
#ifndef AOTICACHE_CACHE_TRANSFER_INTERNAL_H
#define AOTICACHE_CACHE_TRANSFER_INTERNAL_H

#include "base/hash_map.h"
#include "cache/cache_internal.h"
#include "cache/pins/pins.h"
#include "cache/entry_list.h"
#include "cache/store/scratch.h"
#include "cache/transfer/transfer.h"

/*
 * ---- format.c: the names of an archive's members, and the small texts among them (docs/transfer.md) ----
 *
 * The parsed texts are untrusted.
 */

#define AOTICACHE_TRANSFER_HEAD "aoticache.json" /* the first member */
#define AOTICACHE_TRANSFER_END "end.json"        /* the last member: an archive without it was truncated */
#define AOTICACHE_TRANSFER_MAX_TEXT_BYTES (64u << 10)
#define AOTICACHE_TRANSFER_PATH_BYTES 96

typedef enum aoticache_transfer_kind {
    AOTICACHE_TRANSFER_IS_HEAD,
    AOTICACHE_TRANSFER_IS_END,
    AOTICACHE_TRANSFER_IS_OBJECT,
    AOTICACHE_TRANSFER_IS_PIN,
    AOTICACHE_TRANSFER_IS_SIGNATURES,
    AOTICACHE_TRANSFER_IS_FOREIGN,
} aoticache_transfer_kind;

/* Recognizes exactly the names that an export writes. ret_digest: of an object, the key of pins, or the manifest of
 * signatures. */
aoticache_transfer_kind aoticache_transfer_kind_of(const char *path, aoticache_digest *ret_digest);
/* Writes "marks/<64 digits>". */
void aoticache_transfer_pin_path(const aoticache_key *key, char ret_path[AOTICACHE_TRANSFER_PATH_BYTES]);

/* Writes "signatures/<64 digits>". */
void aoticache_transfer_signatures_path(const aoticache_digest *artifact, char ret_path[AOTICACHE_TRANSFER_PATH_BYTES]);

/* Public keys that an archive lists as those of its signers. They are not trusted. */
typedef struct aoticache_transfer_keys {
    aoticache_public_key items[AOTICACHE_MAX_SIGNATURES];
    size_t count;
} aoticache_transfer_keys;

/* The counts in the first and the last member. */
typedef struct aoticache_transfer_counts {
    uint64_t entries, objects, bytes;
} aoticache_transfer_counts;

/* Write the texts; the caller frees *ret_text with free(). NO_MEMORY. */
aoticache_status aoticache_transfer_format_head(const aoticache_transfer_counts *counts,
                                                const aoticache_transfer_keys *keys, char **ret_text,
                                                aoticache_error *ret_error);
aoticache_status aoticache_transfer_format_end(const aoticache_transfer_counts *counts, char **ret_text,
                                               aoticache_error *ret_error);
aoticache_status aoticache_transfer_format_pin(const aoticache_pins *pins, char **ret_text, aoticache_error *ret_error);

/* OK, CORRUPT, UNSUPPORTED (a newer format), NO_MEMORY. */
/* Parses the first member. ret_keys: the valid keys, at most as many as it has space for. */
aoticache_status aoticache_transfer_parse_head(const char *text, size_t size, aoticache_transfer_counts *ret_counts,
                                               aoticache_transfer_keys *ret_keys, aoticache_error *ret_error);
aoticache_status aoticache_transfer_parse_end(const char *text, size_t size, aoticache_transfer_counts *ret_counts,
                                              aoticache_error *ret_error);
/* Parses pins, which must be those of `key`; calls back once with them. The tags are not checked. OK, CORRUPT, NO_MEMORY. */
aoticache_status aoticache_transfer_parse_pin(const char *text, size_t size, const aoticache_key *key,
                                              aoticache_pins_fn callback, void *user, aoticache_error *ret_error);

/* ---- select.c: which entries the options of a transfer select ---- */

/*
 * Reads and checks the caller's options; NULL gives the defaults. is_import: an archive has neither tags nor times of use.
 * Returns: OK, INVALID.
 */
aoticache_status aoticache_transfer_options_read(const aoticache_transfer_options *options, bool is_import,
                                                 aoticache_transfer_options *ret_options, aoticache_error *ret_error);

/* Returns whether the options select an entry, according to its manifest only. */
bool aoticache_transfer_names(const aoticache_transfer_options *options, const char *op, const char *device,
                              const aoticache_key *key);

/* Lists the entries that match all the options, by operator, key and artifact. Like aoticache_entries_walk(). */
aoticache_status aoticache_transfer_select(aoticache_cache *cache, const aoticache_transfer_options *options,
                                           aoticache_entry_list *ret_snapshot, aoticache_error *ret_error);

/* Lists pins and tags of the keys of a selection: one call for each key that has some. */
aoticache_status aoticache_transfer_list_pins(aoticache_cache *cache, const aoticache_entry_list *selection,
                                              aoticache_pins_fn callback, void *user, aoticache_error *ret_error);

/* ---- intake.c: which objects have been received, by digest; 48 bytes an object and 16 to find it, at most twice that ---- */

typedef enum aoticache_transfer_state {
    AOTICACHE_TRANSFER_PENDING = 1, /* its bytes are in the private directory, verified */
    AOTICACHE_TRANSFER_STORED = 2,  /* it is in the store: it was already, or has been moved there */
} aoticache_transfer_state;

typedef struct aoticache_transfer_object {
    aoticache_digest digest;
    uint64_t bytes;
    uint8_t state;
    bool is_named; /* by a manifest that was imported or existed already */
    bool has_come; /* received as a member of the archive */
    bool is_manifest;
    bool is_ours; /* a manifest whose entry this transfer records */
} aoticache_transfer_object;

/* Returns the object, borrowed until the next add; NULL if it is not there. */
aoticache_transfer_object *aoticache_transfer_table_find(const aoticache_hash_map *table,
                                                         const aoticache_digest *digest);
/* Returns the object, added if it is not there. NULL if memory is short. */
aoticache_transfer_object *aoticache_transfer_table_add(aoticache_hash_map *table, const aoticache_digest *digest);

/* ---- intake.c: one transfer into a cache ---- */

#define AOTICACHE_INTAKE_BATCH 512

typedef struct aoticache_intake_entry {
    aoticache_digest digest; /* of the manifest */
    uint64_t bytes;
    aoticache_manifest *manifest;
    int64_t last_used_ns;
    uint64_t uses;
    char *signatures; /* as text; NULL: none */
} aoticache_intake_entry;

#define AOTICACHE_UNTRUSTED_SIGNERS 8
#define AOTICACHE_UNTRUSTED_NAMED 3

/* Entries that were refused because no trusted key signed them, grouped by signer. */
typedef struct aoticache_untrusted {
    aoticache_public_key signer; /* as aoticache_trust_verdict.key; the name is "" if the entries are not signed */
    uint64_t count;
    aoticache_key named[AOTICACHE_UNTRUSTED_NAMED]; /* the keys of the first such entries */
} aoticache_untrusted;

typedef struct aoticache_intake {
    aoticache_cache *cache;
    const aoticache_transfer_options *options;
    aoticache_transfer_report *report;
    aoticache_scratch scratch;
    int directory_fd;              /* of the private directory */
    aoticache_hash_map table;      /* of aoticache_transfer_object, by digest */
    aoticache_intake_entry *queue; /* AOTICACHE_INTAKE_BATCH of them */
    size_t count;
    uint64_t queued_bytes;
    uint64_t queued_text; /* bytes of the queued manifests, which are in memory */
    uint64_t begun_ns;    /* when the first entry of the batch was queued */
    uint64_t logged;      /* refusals */
    uint64_t done, all;   /* objects, for the progress report */
    bool is_stopped;
    bool is_foreign; /* imported entries need a trusted signature */
    aoticache_transfer_keys offered;
    const char *place; /* the source, for messages; for a remote: its URL */
    bool is_remote;
    _Atomic uint64_t *told; /* AOTICACHE_UNTRUSTED_SIGNERS slots: signers already reported; may be NULL */
    aoticache_untrusted untrusted[AOTICACHE_UNTRUSTED_SIGNERS]; /* reported at the end, in one line each */
    size_t untrusted_count;
} aoticache_intake;

/* Begins an import batch. `report` must outlive it. Returns: OK, DENIED, IO, NO_MEMORY, INVALID. */
aoticache_status aoticache_intake_begin(aoticache_intake *intake, aoticache_cache *cache,
                                        const aoticache_transfer_options *options, aoticache_transfer_report *report,
                                        aoticache_error *ret_error);
/* Removes files that have not been moved. Does nothing if `intake` is all zero. */
void aoticache_intake_end(aoticache_intake *intake);

/* Frees what an entry owns: its manifest and its signatures. */
void aoticache_intake_free_entry(const aoticache_intake_entry *entry);

/* Logs and counts a refusal. */
void aoticache_intake_refuse(aoticache_intake *intake, const char *format, ...) AOTICACHE_PRINTF(2, 3);

/* Reports the progress; returns false if the caller wants to stop. Also an aoticache_tar_poll_fn. */
bool aoticache_intake_poll(void *intake);
/* Counts one more object. Returns IO if the caller wants to stop. */
aoticache_status aoticache_intake_step(aoticache_intake *intake, aoticache_error *ret_error);

/* An entry to import. */
typedef struct aoticache_intake_claim {
    const aoticache_key *key;
    const aoticache_digest *artifact;
    const aoticache_cpu_features *requirements;
    const char *guard; /* may be NULL */
} aoticache_intake_claim;

/*
 * Decides whether it may be added to the existing entries; if not, it has been counted.
 * Returns: OK, IO, LOCKED, NO_MEMORY, CORRUPT.
 */
aoticache_status aoticache_intake_wants_entry(aoticache_intake *intake, const aoticache_intake_claim *claim,
                                              bool *ret_wanted, aoticache_error *ret_error);
/* Does the same with the store's lock held: CORRUPT if the index is damaged; it is not rebuilt in that case. */
aoticache_status aoticache_intake_wants_still(aoticache_intake *intake, const aoticache_intake_claim *claim,
                                              bool *ret_wanted, aoticache_error *ret_error);
/* Checks whether an object has been received or is in the store, sound and with this size. Returns: OK, IO, LOCKED,
 * NO_MEMORY. */
aoticache_status aoticache_intake_has(aoticache_intake *intake, const aoticache_digest *digest, uint64_t bytes,
                                      bool *ret_has, aoticache_error *ret_error);
/* Returns whether there is space for this many bytes in addition to the space that stays free for other programs. If not,
 * `name` is refused. */
bool aoticache_intake_has_space(aoticache_intake *intake, const char *name, uint64_t bytes);

/* Creates a file for an object, for writing and reading. Returns: OK, IO, DENIED. */
aoticache_status aoticache_intake_create_file(aoticache_intake *intake, const aoticache_digest *digest, int *ret_fd,
                                              aoticache_error *ret_error);
/* Notes that the file has these bytes and they hash to the digest: the object counts as received. Returns: OK, IO,
 * NO_MEMORY. */
aoticache_status aoticache_intake_keep_file(aoticache_intake *intake, const aoticache_digest *digest, uint64_t bytes,
                                            int fd, aoticache_error *ret_error);
/*
 * Notes that an object is a manifest. Another artifact may then not name it as a file: as a file it would enter the store
 * even if its entry is refused, and a rebuilt index would find it there.
 */
void aoticache_intake_note_manifest(aoticache_intake *intake, const aoticache_digest *digest);
/* Does the same if the received file of an object is a manifest. Returns: OK, NO_MEMORY. */
aoticache_status aoticache_intake_note_if_manifest(aoticache_intake *intake, const aoticache_digest *digest, int fd,
                                                   uint64_t bytes, aoticache_error *ret_error);
void aoticache_intake_discard_file(aoticache_intake *intake, const aoticache_digest *digest);

/*
 * Adds pins and tags to the existing ones if the key has an entry; those of an entry that was not imported are skipped. A
 * tag that is not valid is refused.
 * Returns: OK, IO, DENIED, LOCKED, NO_MEMORY.
 */
aoticache_status aoticache_transfer_add_pin(aoticache_intake *intake, const aoticache_pins *pins,
                                            aoticache_error *ret_error);

/* Reads all existing entries of a key into an array, which the caller frees with free(). OK (also if there are none), ... */
aoticache_status aoticache_intake_read_hits(aoticache_index *index, const aoticache_key *key,
                                            aoticache_index_hit **ret_hits, size_t *ret_count,
                                            aoticache_error *ret_error);

/* ---- trust.c ---- */

/* Decides whether the entry may be imported by its signatures, unless its source is trusted; if not, it has been refused.
 * Returns: OK, IO, LOCKED, NO_MEMORY, CORRUPT, and the results of aoticache_cache_decide(). */
aoticache_status aoticache_intake_check_trust(aoticache_intake *intake, const aoticache_intake_entry *entry,
                                              const aoticache_intake_claim *claim, bool *ret_fits,
                                              aoticache_error *ret_error);

/* Counts an entry that `verdict` refuses. If only trust in its signer is missing, the next function reports it together with
 * other entries of that signer; otherwise it is reported immediately. */
void aoticache_intake_refuse_untrusted(aoticache_intake *intake, const aoticache_trust_verdict *verdict,
                                       const aoticache_key *key);
/* Reports them: one warning for each signer, with what to do. Then clears them. */
void aoticache_intake_tell_untrusted(aoticache_intake *intake);

/*
 * Adds signatures to an entry that exists already, of which another copy came with these signatures: signatures of trusted
 * keys that the entry lacks. Does nothing if the manifest is a different one. Returns: OK, IO, DENIED, LOCKED, NO_MEMORY,
 * UNSUPPORTED.
 */
aoticache_status aoticache_intake_add_signatures(aoticache_intake *intake, const aoticache_digest *artifact,
                                                 const char *signatures, aoticache_error *ret_error);

/* ---- commit.c: manifests are queued, and batches of them become part of the store ---- */

/*
 * Handles a received manifest: it is queued, skipped (the entry exists, or the options do not select it), or refused. Takes
 * ownership of `manifest` and `signatures`. entry: its digest, bytes and use. Returns: OK, and results that end the whole
 * transfer: IO, LOCKED, NO_MEMORY, CORRUPT.
 */
aoticache_status aoticache_intake_add_manifest(aoticache_intake *intake, const aoticache_intake_entry *entry,
                                               aoticache_error *ret_error);

/* Refuses received objects that no manifest named. */
void aoticache_intake_refuse_unnamed(aoticache_intake *intake);

/* Makes the queue durable, visible and empty. Returns: OK, IO, DENIED, LOCKED, NO_MEMORY. */
aoticache_status aoticache_intake_commit(aoticache_intake *intake, aoticache_error *ret_error);

#endif
