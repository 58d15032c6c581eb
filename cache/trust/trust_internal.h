/*
 * cache/trust/trust_internal: types and functions shared by the files of this directory, and used by import and merge.
 */
#ifndef AOTICACHE_CACHE_TRUST_INTERNAL_H
#define AOTICACHE_CACHE_TRUST_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache/store/directory.h"
#include "cache/store/manifest.h"
#include "cache/trust/trust.h"

/* ---- text.c: base64, names, and the text forms ---- */

/* Writes `size` bytes as base64 with padding: ret_text has space for 4 * ((size + 2) / 3) + 1. */
void aoticache_base64_encode(const uint8_t *bytes, size_t size, char *ret_text);
/* Decodes exactly `size` bytes; accepts only the form that the encoder writes. */
bool aoticache_base64_decode(const char *text, size_t size, uint8_t *ret_bytes);
/* Checks a name: OK, or INVALID with the reason. */
aoticache_status aoticache_signer_name_check(const char *name, aoticache_error *ret_error);
/*
 * Parses `name:base64` of exactly `size` bytes: every key and every signature is read by this function. what: "public key",
 * for messages, which may repeat the part before the ':'. OK, or INVALID with the reason.
 */
aoticache_status aoticache_named_bytes_parse(const char *what, const char *text, size_t size,
                                             char ret_name[AOTICACHE_SIGNER_NAME_BYTES], uint8_t *ret_bytes,
                                             aoticache_error *ret_error);

/* The signatures parsed from a text. Blank lines and other text are refused. */
typedef struct aoticache_signature_list {
    aoticache_signature items[AOTICACHE_MAX_SIGNATURES];
    size_t count;
} aoticache_signature_list;

/* Parses a text of signatures. NULL is "". OK, INVALID (with the line's number), and INVALID for more than
 * AOTICACHE_MAX_SIGNATURES. Names may repeat. */
aoticache_status aoticache_signature_list_parse(const char *text, aoticache_signature_list *ret_list,
                                                aoticache_error *ret_error);
/* Writes the text, which the caller frees with free(); NULL if memory is short. */
char *aoticache_signature_list_format(const aoticache_signature_list *list);
/* Adds a signature, or replaces the one of the same name. Returns false if the list is full. */
bool aoticache_signature_list_add(aoticache_signature_list *list, const aoticache_signature *signature);

/* ---- ed25519.c: the three operations, with libcrypto, which is loaded on the first call ---- */

/* Returns: OK, UNSUPPORTED, NO_MEMORY. verify: also CORRUPT. */
aoticache_status aoticache_ed25519_public(const uint8_t seed[32], uint8_t ret_public[32], aoticache_error *ret_error);
aoticache_status aoticache_ed25519_sign(const uint8_t seed[32], const void *message, size_t size,
                                        uint8_t ret_signature[64], aoticache_error *ret_error);
aoticache_status aoticache_ed25519_verify(const uint8_t public_key[32], const void *message, size_t size,
                                          const uint8_t signature[64], aoticache_error *ret_error);

/* ---- secret_key.c ---- */

struct aoticache_secret_key {
    aoticache_public_key public_key;
    uint8_t seed[32];
};

/* Parses the text of a file, with or without a line end. Returns: OK, INVALID, UNSUPPORTED, NO_MEMORY. name: for messages. */
aoticache_status aoticache_secret_key_parse(const char *text, const char *name, aoticache_secret_key **ret_key,
                                            aoticache_error *ret_error);

/* ---- statement.c ---- */

#define AOTICACHE_STATEMENT_MAGIC "aoticache statement"
#define AOTICACHE_STATEMENT_VERSION 1

/* Converts a statement of any size to one of this library's size, with strings that are not NULL. OK, INVALID. */
aoticache_status aoticache_statement_read(const aoticache_statement *given, aoticache_statement *ret_statement,
                                          aoticache_error *ret_error);
/* Makes the statement of a manifest, borrowing from the manifest. */
aoticache_statement aoticache_statement_of_manifest(const aoticache_digest *digest, const aoticache_manifest *manifest);
/* Does the same for bytes from statement_encode(). */
aoticache_status aoticache_statement_verify_bytes(const uint8_t *bytes, size_t size, const aoticache_public_key *key,
                                                  const aoticache_signature *signature, aoticache_error *ret_error);

/* ---- key_files.c: trusted_keys and revoked_keys of a directory of keys ---- */

/* What a revocation applies to. */
typedef enum aoticache_revocation_kind {
    AOTICACHE_REVOKES_KEY,         /* these 32 bytes, whatever the name */
    AOTICACHE_REVOKES_FINGERPRINT, /* the same, given by their SHA-256 */
    AOTICACHE_REVOKES_NAME,
    AOTICACHE_REVOKES_ENTRY,
} aoticache_revocation_kind;

typedef struct aoticache_revocation {
    aoticache_revocation_kind kind;
    aoticache_public_key key; /* NAME: only its name */
    char fingerprint[AOTICACHE_FINGERPRINT_BYTES];
    aoticache_digest artifact;
} aoticache_revocation;

/* Parses a word of revoked_keys. OK, INVALID. */
aoticache_status aoticache_revocation_parse(const char *text, aoticache_revocation *ret_revocation,
                                            aoticache_error *ret_error);
bool aoticache_revocation_names_key(const aoticache_revocation *revocation, const aoticache_public_key *key);

/*
 * Called for each line of a file that is not empty, without its comment and the spaces around the rest; place: "FILE:LINE". A
 * comment begins with a '#' at the beginning of the line or after a space.
 */
typedef aoticache_status (*aoticache_key_word_fn)(void *user, const char *word, const char *place);
/* Reads a file of keys and calls back for each line. OK (also if there is no such file), DENIED (owner, mode), IO,
 * NO_MEMORY, and the callback's results. */
aoticache_status aoticache_key_file_read(const char *directory, const char *name, aoticache_key_word_fn callback,
                                         void *user, aoticache_error *ret_error);

/* ---- trust.c: the keys that a cache trusts ---- */

typedef struct aoticache_trusted_key {
    aoticache_public_key key;
    aoticache_trust_origin origin;
} aoticache_trusted_key;

typedef struct aoticache_trust {
    /* The cache's options, copied when it is opened. NULL: not set. */
    char *trusted_text, *revoked_text, *sign_with, *directory;
    aoticache_signature_rule rule;
    /* The keys from these options and the user's files; loaded when first needed, with the mutex held. */
    pthread_mutex_t mutex;
    bool is_loaded;
    aoticache_trusted_key *trusted;
    size_t trusted_count, trusted_capacity;
    aoticache_revocation *revoked;
    size_t revoked_count, revoked_capacity;
    aoticache_secret_key **signers;
    size_t signer_count, signer_capacity;
    bool has_signers;
    /* For lookups (revoked.c). */
    atomic_int revocations;
    atomic_bool has_told_barred;
} aoticache_trust;

/* Copies the options; reads and loads nothing. OK, NO_MEMORY. */
aoticache_status aoticache_trust_init(aoticache_trust *trust, const aoticache_cache_options *options,
                                      aoticache_error *ret_error);
void aoticache_trust_clear(aoticache_trust *trust);

/* Loads the keys if that is not done yet, and leaves the mutex locked on OK. Unlock it with pthread_mutex_unlock(). */
aoticache_status aoticache_trust_lock(aoticache_cache *cache, aoticache_error *ret_error);
/* Call these with the mutex held. */
bool aoticache_trust_revokes_key(const aoticache_trust *trust, const aoticache_public_key *key);
bool aoticache_trust_has_revoked(const aoticache_trust *trust, const aoticache_digest *artifact);
aoticache_status aoticache_trust_add(aoticache_trust *trust, const aoticache_public_key *key,
                                     aoticache_trust_origin origin, aoticache_error *ret_error);

/* Checks that none of the keys is revoked here. Takes the mutex itself. Returns: OK, DENIED (one is revoked), and why that
 * cannot be determined. */
aoticache_status aoticache_trust_check_signers(aoticache_cache *cache, const aoticache_secret_key *const *keys,
                                               size_t count, aoticache_error *ret_error);

/* Checks whether an entry is revoked by its digest. Takes the mutex itself, as the next function does. */
aoticache_status aoticache_trust_revokes_entry(aoticache_cache *cache, const aoticache_digest *artifact,
                                               bool *ret_revoked, aoticache_error *ret_error);

/* Gives the i-th entry that is revoked by its digest: OK, NOT_FOUND (there are fewer), or why that cannot be determined. */
aoticache_status aoticache_trust_revoked_entry_at(aoticache_cache *cache, size_t position,
                                                  aoticache_digest *ret_artifact, aoticache_error *ret_error);

/* ---- decide.c ---- */

/* Like aoticache_cache_check_signatures(), for a list. The callback is called with the mutex held and must not use the
 * cache. */
aoticache_status aoticache_trust_check(aoticache_cache *cache, const aoticache_statement *statement,
                                       const aoticache_signature_list *list, aoticache_signature_fn callback,
                                       void *user, aoticache_error *ret_error);

/* ---- revoked.c: entries that would be refused now ---- */

#define AOTICACHE_TRUST_FAULT_BYTES 256

/* Checks whether the entry would be refused now. ret_reason: one line if *ret_faulty. Returns as
 * aoticache_cache_check_signatures(). */
aoticache_status aoticache_trust_find_fault(aoticache_cache *cache, const aoticache_digest *artifact,
                                            char ret_reason[AOTICACHE_TRUST_FAULT_BYTES], bool *ret_faulty,
                                            aoticache_error *ret_error);
/*
 * Returns whether a lookup must not use an entry because it would be refused now; logged the first time. If that cannot be
 * determined (a list of revoked keys that cannot be read), signed entries are barred.
 */
bool aoticache_trust_bars(aoticache_cache *cache, const aoticache_digest *artifact);
/* Removes the entries of a manifest, and moves the manifest to quarantine/. Takes the store's lock, exclusively. */
aoticache_status aoticache_trust_remove_entry(aoticache_cache *cache, const aoticache_digest *artifact,
                                              aoticache_error *ret_error);

/* ---- signature_file.c: signatures/<digest of the manifest> in the cache directory ---- */

#define AOTICACHE_SIGNATURE_FILE_BYTES (AOTICACHE_MAX_SIGNATURES * AOTICACHE_SIGNATURE_TEXT_BYTES)

/* Reads the signatures. OK (also if there are none: ""), CORRUPT, IO, DENIED, NO_MEMORY. */
aoticache_status aoticache_signature_file_read(aoticache_directory *directory, const aoticache_digest *artifact,
                                               aoticache_signature_list *ret_list, aoticache_error *ret_error);
/*
 * Adds signatures, durably. The caller holds the store's lock, shared. syncs: false: the caller makes the file durable.
 * Returns: OK, INVALID (too many), IO, DENIED, LOCKED, NO_MEMORY.
 */
aoticache_status aoticache_signature_file_add(aoticache_directory *directory, const aoticache_digest *artifact,
                                              const aoticache_signature_list *more, bool syncs,
                                              aoticache_error *ret_error);

/* Called for each name in signatures/ that is a digest. Return false to stop. OK, IO, DENIED, NO_MEMORY. */
typedef bool (*aoticache_signature_file_fn)(void *user, const aoticache_digest *artifact);
aoticache_status aoticache_signature_files_list(aoticache_directory *directory, aoticache_signature_file_fn callback,
                                                void *user, aoticache_error *ret_error);

/* ---- texts and statements ---- */

/* Like aoticache_public_key_parse() and aoticache_public_key_format(), for signatures. */
aoticache_status aoticache_signature_parse(const char *text, aoticache_signature *ret_signature,
                                           aoticache_error *ret_error);
void aoticache_signature_format(const aoticache_signature *signature, char ret_text[AOTICACHE_SIGNATURE_TEXT_BYTES]);

/* Gives the canonical bytes; the caller frees *ret_bytes with free(). Returns: OK, INVALID, NO_MEMORY. */
aoticache_status aoticache_statement_encode(const aoticache_statement *statement, uint8_t **ret_bytes, size_t *ret_size,
                                            aoticache_error *ret_error);

/* Returns: OK, INVALID, UNSUPPORTED (no libcrypto), NO_MEMORY. */
aoticache_status aoticache_statement_sign(const aoticache_statement *statement, const aoticache_secret_key *key,
                                          aoticache_signature *ret_signature, aoticache_error *ret_error);

/* ---- signatures of entries ---- */

/*
 * Reads the signatures of an entry as text: one `name:base64` per line, each line with a line end; "" if there are none.
 * They are not checked. The caller frees *ret_text with free().
 * Returns: OK, CORRUPT (the file is not one of signatures), IO, DENIED, NO_MEMORY, INVALID.
 */
aoticache_status aoticache_cache_read_signatures(aoticache_cache *cache, const aoticache_digest *artifact,
                                                 char **ret_text, aoticache_error *ret_error);

/* ---- deciding about an entry from elsewhere ---- */

/* An entry from elsewhere. Pointers are borrowed during the call. */
typedef struct aoticache_trust_claim {
    size_t size;
    const aoticache_statement *statement; /* made from the received manifest, whose digest was verified */
    const char *signatures;               /* one per line; NULL or "": none */
    const aoticache_key *wanted;          /* the requested key; NULL: any */
    int64_t replaces_created_ns;          /* when the entry was created that this one would replace; 0: there is none */
    bool is_ours;        /* its source can be written only by this user and root: no signature is needed */
    bool allow_unsigned; /* no trusted signature is needed, and it may be older than the entry that it replaces */
    /* Keys received with the entry. One is trusted only if ask() returns true, which is called after the key was found to
     * have signed the entry, and must not use the cache. */
    const aoticache_public_key *offered;
    size_t offered_count;
    bool (*ask)(void *user, const aoticache_public_key *key); /* NULL: no */
    void *user;
} aoticache_trust_claim;

#define AOTICACHE_TRUST_CLAIM_INIT AOTICACHE_SIZED_INIT(aoticache_trust_claim)

/*
 * Decides according to the cache's options and the configuration (trusted_keys, revoked_keys, require_signatures, the user's
 * directory of keys). Counts a refusal (`refused_untrusted`). Writes nothing; the caller logs verdict.message. Returns: OK
 * (check is_accepted); INVALID, NO_MEMORY, UNSUPPORTED (no libcrypto): the entry must not be imported.
 */
aoticache_status aoticache_cache_decide(aoticache_cache *cache, const aoticache_trust_claim *claim,
                                        aoticache_trust_verdict *ret_verdict, aoticache_error *ret_error);

#endif
