/*
 * cache/transfer/internal: what exports, imports and merges share, for the files of this folder.
 *
 * Objects and manifests come into a cache by an intake, whoever sends them. Files are filled in a private directory in tmp/,
 * where no collector takes them, and verified there. A manifest whose objects are all there is queued; a batch of them is
 * made durable, moved into the store and recorded, all under the store's lock, shared. Objects that no manifest names
 * never enter the store.
 */
#ifndef AOTICACHE_CACHE_TRANSFER_INTERNAL_H
#define AOTICACHE_CACHE_TRANSFER_INTERNAL_H

#include "base/hash_map.h"
#include "cache/internal.h"
#include "cache/pins/pins.h"
#include "cache/entry_list.h"
#include "cache/store/scratch.h"
#include "cache/transfer/transfer.h"

/*
 * ---- format.c: what the members of an archive are called, and the small texts among them (docs/transfer.md) ----
 *
 * What is parsed may have been written by anybody.
 */

#define AOTICACHE_TRANSFER_HEAD "aoticache.json" /* the first member */
#define AOTICACHE_TRANSFER_END "end.json"        /* the last: an archive without it was cut off */
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

/* Knows exactly the names that an export writes. ret_digest: of an object, the key of pins, or the manifest of signatures. */
aoticache_transfer_kind aoticache_transfer_kind_of(const char *path, aoticache_digest *ret_digest);
/* "marks/<64 digits>" */
void aoticache_transfer_pin_path(const aoticache_key *key, char ret_path[AOTICACHE_TRANSFER_PATH_BYTES]);

/* "signatures/<64 digits>" */
void aoticache_transfer_signatures_path(const aoticache_digest *artifact, char ret_path[AOTICACHE_TRANSFER_PATH_BYTES]);

/* Public keys that an archive names as its signers'. Nobody vouches for them. */
typedef struct aoticache_transfer_keys {
    aoticache_public_key items[AOTICACHE_MAX_SIGNATURES];
    size_t count;
} aoticache_transfer_keys;

/* What the first and the last member count. */
typedef struct aoticache_transfer_counts {
    uint64_t entries, objects, bytes;
} aoticache_transfer_counts;

/* The texts: *ret_text is the caller's, by free(). NO_MEMORY. */
aoticache_status aoticache_transfer_format_head(const aoticache_transfer_counts *counts,
                                                const aoticache_transfer_keys *keys, char **ret_text,
                                                aoticache_error *ret_error);
aoticache_status aoticache_transfer_format_end(const aoticache_transfer_counts *counts, char **ret_text,
                                               aoticache_error *ret_error);
aoticache_status aoticache_transfer_format_pin(const aoticache_pins *pins, char **ret_text, aoticache_error *ret_error);

/* OK, CORRUPT, UNSUPPORTED (a newer format), NO_MEMORY. */
/* ret_keys: those that are keys, at most as many as it holds. */
aoticache_status aoticache_transfer_parse_head(const char *text, size_t size, aoticache_transfer_counts *ret_counts,
                                               aoticache_transfer_keys *ret_keys, aoticache_error *ret_error);
aoticache_status aoticache_transfer_parse_end(const char *text, size_t size, aoticache_transfer_counts *ret_counts,
                                              aoticache_error *ret_error);
/* The text must be that of `key`; calls back once with its pins. The tags are not checked. OK, CORRUPT, NO_MEMORY. */
aoticache_status aoticache_transfer_parse_pin(const char *text, size_t size, const aoticache_key *key,
                                              aoticache_pins_fn callback, void *user, aoticache_error *ret_error);

/* ---- select.c: which entries the options of a transfer name ---- */

/*
 * Reads and checks the caller's options; NULL gives the defaults. is_import: an archive knows neither tags nor times of use.
 * Returns: OK, INVALID.
 */
aoticache_status aoticache_transfer_options_read(const aoticache_transfer_options *options, bool is_import,
                                                 aoticache_transfer_options *ret_options, aoticache_error *ret_error);

/* Returns whether the options name an entry, by what its manifest says alone. */
bool aoticache_transfer_names(const aoticache_transfer_options *options, const char *op, const char *device,
                              const aoticache_key *key);

/* The entries that all of the options name, by operator, key and artifact. As aoticache_entries_walk. */
aoticache_status aoticache_transfer_select(aoticache_cache *cache, const aoticache_transfer_options *options,
                                           aoticache_entry_list *ret_snapshot, aoticache_error *ret_error);

/* Pins and tags of the keys of a selection: one call for each key that has some. */
aoticache_status aoticache_transfer_list_pins(aoticache_cache *cache, const aoticache_entry_list *selection,
                                              aoticache_pins_fn callback, void *user, aoticache_error *ret_error);

/* ---- intake.c: which objects have come in, by digest; 48 bytes an object and 16 to find it, at most twice that ---- */

typedef enum aoticache_transfer_state {
    AOTICACHE_TRANSFER_PENDING = 1, /* its bytes lie, verified, in the private directory */
    AOTICACHE_TRANSFER_STORED = 2,  /* it is in the store: it was, or has been moved there */
} aoticache_transfer_state;

typedef struct aoticache_transfer_object {
    aoticache_digest digest;
    uint64_t bytes;
    uint8_t state;
    bool is_named; /* by a manifest that was taken in or was there already */
    bool has_come; /* as a member of the archive */
    bool is_manifest;
    bool is_ours; /* a manifest whose entry this transfer records */
} aoticache_transfer_object;

/* Borrowed until the next add; NULL if it is not there. */
aoticache_transfer_object *aoticache_transfer_table_find(const aoticache_hash_map *table,
                                                         const aoticache_digest *digest);
/* The object, added where it is not there. NULL: out of memory. */
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

/* Entries that were refused because no trusted key signed them, by who did. */
typedef struct aoticache_untrusted {
    aoticache_public_key signer; /* as aoticache_trust_verdict.key; the name is "" if nobody signed them */
    uint64_t count;
    aoticache_key named[AOTICACHE_UNTRUSTED_NAMED]; /* what the first of them answer */
} aoticache_untrusted;

typedef struct aoticache_intake {
    aoticache_cache *cache;
    const aoticache_transfer_options *options;
    aoticache_transfer_report *report;
    aoticache_scratch scratch;
    int folder_fd;                 /* of the private directory */
    aoticache_hash_map table;      /* of aoticache_transfer_object, by digest */
    aoticache_intake_entry *queue; /* AOTICACHE_INTAKE_BATCH of them */
    size_t count;
    uint64_t queued_bytes;
    uint64_t queued_text; /* bytes of the manifests, which are held in memory */
    uint64_t begun_ns;    /* when the first of the batch was queued */
    uint64_t logged;      /* refusals */
    uint64_t done, all;   /* objects, for the progress */
    bool is_stopped;
    bool is_foreign; /* what comes needs a trusted signature */
    aoticache_transfer_keys offered;
    const char *place; /* where it comes from, for messages; of a remote: its URL */
    bool is_remote;
    _Atomic uint64_t
        *told; /* AOTICACHE_UNTRUSTED_SIGNERS slots: signers that were told of before are not again; may be NULL */
    aoticache_untrusted untrusted[AOTICACHE_UNTRUSTED_SIGNERS]; /* told at the end, in one line each */
    size_t untrusted_count;
} aoticache_intake;

/* `report` must outlive it. Returns: OK, DENIED, IO, NO_MEMORY, INVALID. */
aoticache_status aoticache_intake_begin(aoticache_intake *intake, aoticache_cache *cache,
                                        const aoticache_transfer_options *options, aoticache_transfer_report *report,
                                        aoticache_error *ret_error);
/* Removes what has not been moved. For an intake that is all zero it does nothing. */
void aoticache_intake_end(aoticache_intake *intake);

/* What an entry owns: its manifest and its signatures. */
void aoticache_intake_free_entry(const aoticache_intake_entry *entry);

/* Logs and counts something that is not taken in. */
void aoticache_intake_refuse(aoticache_intake *intake, const char *format, ...) AOTICACHE_PRINTF(2, 3);

/* Reports the progress; false: the caller wants to stop. Also an aoticache_tar_poll_fn. */
bool aoticache_intake_poll(void *intake);
/* Counts one more object. IO: the caller wants to stop. */
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
/* The same with the store's lock held: CORRUPT if the index is damaged, which is not rebuilt then. */
aoticache_status aoticache_intake_wants_still(aoticache_intake *intake, const aoticache_intake_claim *claim,
                                              bool *ret_wanted, aoticache_error *ret_error);
/* Whether an object has come in or is, sound and with so many bytes, in the store. Returns: OK, IO, LOCKED, NO_MEMORY. */
aoticache_status aoticache_intake_has(aoticache_intake *intake, const aoticache_digest *digest, uint64_t bytes,
                                      bool *ret_has, aoticache_error *ret_error);
/* Returns whether there is space for so many bytes and for what is left free for others. If not, `name` is refused. */
bool aoticache_intake_has_space(aoticache_intake *intake, const char *name, uint64_t bytes);

/* A new file for an object, for writing and reading. Returns: OK, IO, DENIED. */
aoticache_status aoticache_intake_create_file(aoticache_intake *intake, const aoticache_digest *digest, int *ret_fd,
                                              aoticache_error *ret_error);
/* The file has these bytes and they hash to the digest: it counts as come in. Returns: OK, IO, NO_MEMORY. */
aoticache_status aoticache_intake_keep_file(aoticache_intake *intake, const aoticache_digest *digest, uint64_t bytes,
                                            int fd, aoticache_error *ret_error);
/*
 * Notes that an object is a manifest. Another artifact may then not name it as a file: as a file it would come into the
 * store whatever is said of its entry, and a rebuilt index would find it there.
 */
void aoticache_intake_note_manifest(aoticache_intake *intake, const aoticache_digest *digest);
/* The same where the file of an object, which is kept, reads as a manifest. Returns: OK, NO_MEMORY. */
aoticache_status aoticache_intake_note_if_manifest(aoticache_intake *intake, const aoticache_digest *digest, int fd,
                                                   uint64_t bytes, aoticache_error *ret_error);
void aoticache_intake_discard_file(aoticache_intake *intake, const aoticache_digest *digest);

/*
 * Adds pins and tags to those that are there, where the key has an entry; those of an entry that was not taken in are
 * passed over. A tag that is not valid is refused.
 * Returns: OK, IO, DENIED, LOCKED, NO_MEMORY.
 */
aoticache_status aoticache_transfer_add_pin(aoticache_intake *intake, const aoticache_pins *pins,
                                            aoticache_error *ret_error);

/* All entries of a key that are there: an array of the caller's, by free(). OK (also where there is none), ... */
aoticache_status aoticache_intake_read_hits(aoticache_index *index, const aoticache_key *key,
                                            aoticache_index_hit **ret_hits, size_t *ret_count,
                                            aoticache_error *ret_error);

/* ---- trust.c ---- */

/* Whether it may come in by its signatures, unless its source is ours; where not, it has been refused. Returns: OK, IO,
 * LOCKED, NO_MEMORY, CORRUPT, and what aoticache_cache_decide() returns. */
aoticache_status aoticache_intake_check_trust(aoticache_intake *intake, const aoticache_intake_entry *entry,
                                              const aoticache_intake_claim *claim, bool *ret_fits,
                                              aoticache_error *ret_error);

/* Counts an entry that `verdict` refuses. If only trust in its signer is missing, it is told with others of that signer by
 * the next function, otherwise at once. */
void aoticache_intake_refuse_untrusted(aoticache_intake *intake, const aoticache_trust_verdict *verdict,
                                       const aoticache_key *key);
/* Tells of them: one warning for each signer, with what to do. Then there are none. */
void aoticache_intake_tell_untrusted(aoticache_intake *intake);

/*
 * An entry is here already, and another copy of it came with these signatures: those of trusted keys that it lacks are added.
 * Does nothing where the manifest is another one. Returns: OK, IO, DENIED, LOCKED, NO_MEMORY, UNSUPPORTED.
 */
aoticache_status aoticache_intake_add_signatures(aoticache_intake *intake, const aoticache_digest *artifact,
                                                 const char *signatures, aoticache_error *ret_error);

/* ---- commit.c: manifests are queued, and a batch of them becomes part of the store ---- */

/*
 * A manifest that has come in: queued, passed over (the entry is there, or the options do not name it), or refused.
 * Takes `manifest` and `signatures` over. entry: its digest, bytes and use. Returns: OK, and what ends everything: IO, LOCKED,
 * NO_MEMORY, CORRUPT.
 */
aoticache_status aoticache_intake_add_manifest(aoticache_intake *intake, const aoticache_intake_entry *entry,
                                               aoticache_error *ret_error);

/* Refuses objects that came in and that no manifest named. */
void aoticache_intake_refuse_unnamed(aoticache_intake *intake);

/* Makes the queue durable, visible and empty. Returns: OK, IO, DENIED, LOCKED, NO_MEMORY. */
aoticache_status aoticache_intake_commit(aoticache_intake *intake, aoticache_error *ret_error);

#endif
