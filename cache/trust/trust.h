/*
 * cache/trust/trust: signatures of entries, and the keys that this machine trusts.
 *
 * Digests prove that objects are unchanged, but not that a library computes what its key promises. Therefore a statement is
 * signed: this key, with these requirements and this guard, is served by this manifest, made by this producer at this time.
 * docs/signatures.md specifies its bytes. Signatures are Ed25519 (RFC 8032). Keys and signatures have the text form of Nix,
 * `name:base64`, and secret keys of `nix key generate-secret` work.
 *
 * An entry that was compiled here needs no signature. An entry from elsewhere (an archive, a remote) is imported only if a
 * key that this machine trusts signed its statement. docs/security.md says which attacks that prevents.
 *
 * libcrypto is loaded only when the first signature is made or checked. If it is missing, these calls return UNSUPPORTED,
 * and nothing is accepted unchecked.
 *
 * Thread safety: that of a cache. Keys, signatures and statements are plain data.
 *
 * Users include <aoticache/admin.h>.
 */
#ifndef AOTICACHE_CACHE_TRUST_TRUST_H
#define AOTICACHE_CACHE_TRUST_TRUST_H

#include "cache/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- keys and signatures ---- */

#define AOTICACHE_SIGNER_NAME_BYTES \
    128 /* of a key's name, with the zero byte: printable ASCII without ':' and ' ', not '#' first */
#define AOTICACHE_PUBLIC_KEY_TEXT_BYTES 176 /* "name:base64 of 32 bytes", with the zero byte */
#define AOTICACHE_SIGNATURE_TEXT_BYTES 224  /* "name:base64 of 64 bytes", with the zero byte */
#define AOTICACHE_FINGERPRINT_BYTES 51 /* "SHA256:" and 43 characters, as ssh-keygen prints it, with the zero byte */
#define AOTICACHE_MAX_SIGNATURES 16    /* of one entry */

typedef struct aoticache_public_key {
    char name[AOTICACHE_SIGNER_NAME_BYTES];
    uint8_t bytes[32];
} aoticache_public_key;

typedef struct aoticache_signature {
    char name[AOTICACHE_SIGNER_NAME_BYTES]; /* of the key that made it */
    uint8_t bytes[64];
} aoticache_signature;

/* Parses a text that is exactly one key or signature: no spaces, no line end, one base64 form. Returns: OK, INVALID with the
 * reason. */
AOTICACHE_API aoticache_status aoticache_public_key_parse(const char *text, aoticache_public_key *ret_key,
                                                          aoticache_error *ret_error);
AOTICACHE_API void aoticache_public_key_format(const aoticache_public_key *key,
                                               char ret_text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES]);
/* Writes the SHA-256 of the 32 bytes, in base64 without padding. It does not depend on the name. */
AOTICACHE_API void aoticache_public_key_fingerprint(const aoticache_public_key *key,
                                                    char ret_text[AOTICACHE_FINGERPRINT_BYTES]);

/* ---- secret keys ---- */

/* Its memory is overwritten when it is freed. No message ever contains a part of it. */
typedef struct aoticache_secret_key aoticache_secret_key;

/* Creates a key. Returns: OK, INVALID (the name), UNSUPPORTED (no libcrypto), IO (no random bytes), NO_MEMORY. */
AOTICACHE_API aoticache_status aoticache_secret_key_generate(const char *name, aoticache_secret_key **ret_key,
                                                             aoticache_error *ret_error);
/*
 * Reads a file with one line `name:base64` of 64 bytes: the seed, then the public key, which must be that of the seed. The
 * file must be a regular file of the effective user, and no other user may read or write it (0600 or 0400). Returns: OK,
 * NOT_FOUND, DENIED (owner, mode), INVALID (not a secret key), UNSUPPORTED, IO, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_secret_key_read(const char *path, aoticache_secret_key **ret_key,
                                                         aoticache_error *ret_error);
/* Writes a new file with mode 0600, durably. Returns: OK, IO, DENIED, INVALID (the file exists: it is never replaced). */
AOTICACHE_API aoticache_status aoticache_secret_key_write(const aoticache_secret_key *key, const char *path,
                                                          aoticache_error *ret_error);
/* Returns the public key, borrowed from the secret key. */
AOTICACHE_API const aoticache_public_key *aoticache_secret_key_public(const aoticache_secret_key *key);
/* NULL is allowed. */
AOTICACHE_API void aoticache_secret_key_free(aoticache_secret_key *key);

/* ---- statements ---- */

/* The content that is signed for an entry. Strings are borrowed during a call. */
typedef struct aoticache_statement {
    size_t size;
    aoticache_key key;
    aoticache_cpu_features requirements;
    const char *guard;         /* NULL or "": an exact entry */
    aoticache_digest artifact; /* of the manifest */
    const char *producer;      /* from the manifest; NULL is "" */
    int64_t created_ns;        /* from the manifest: wall clock */
} aoticache_statement;

#define AOTICACHE_STATEMENT_INIT AOTICACHE_SIZED_INIT(aoticache_statement)

/* ---- entries of a cache ---- */

/*
 * Signs the entry and adds the signature. Durable on OK. Returns: OK, NOT_FOUND, CORRUPT, UNSUPPORTED (no libcrypto), INVALID (too
 * many signatures), IO, DENIED (read-only; the key is revoked here), LOCKED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_cache_sign(aoticache_cache *cache, const aoticache_digest *artifact,
                                                    const aoticache_secret_key *key, aoticache_error *ret_error);

/* The state of one signature of an entry. */
typedef enum aoticache_signature_state {
    AOTICACHE_SIGNATURE_TRUSTED = 0, /* a trusted key made it */
    AOTICACHE_SIGNATURE_UNKNOWN = 1, /* there is no known key of this name, so it cannot be checked */
    AOTICACHE_SIGNATURE_REVOKED = 2, /* a key of this name is revoked, and no trusted key made it */
    AOTICACHE_SIGNATURE_WRONG = 3,   /* a trusted key has this name, but did not make the signature for this entry */
} aoticache_signature_state;

/* key: the key that made the signature; NULL if it is not known. Return false to stop. */
typedef bool (*aoticache_signature_fn)(void *user, const aoticache_signature *signature,
                                       aoticache_signature_state state, const aoticache_public_key *key);
/*
 * Checks the signatures of an entry. Returns: OK, NOT_FOUND, CORRUPT, UNSUPPORTED (no libcrypto), IO, DENIED, LOCKED, NO_MEMORY,
 * INVALID.
 */
AOTICACHE_API aoticache_status aoticache_cache_check_signatures(aoticache_cache *cache,
                                                                const aoticache_digest *artifact,
                                                                aoticache_signature_fn callback, void *user,
                                                                aoticache_error *ret_error);
/* Does the same for any statement; `text`: one signature per line, NULL or "": none. Returns: OK, INVALID, UNSUPPORTED (no
 * libcrypto), IO, DENIED, NO_MEMORY. */
AOTICACHE_API aoticache_status aoticache_cache_check_statement(aoticache_cache *cache,
                                                               const aoticache_statement *statement, const char *text,
                                                               aoticache_signature_fn callback, void *user,
                                                               aoticache_error *ret_error);

/*
 * Removes the entries that would be refused now: revoked entries, those that only a revoked key signed, and those with a
 * signature that has a trusted key's name but is not valid for them. Entries without signatures stay, unless they are
 * revoked. `aoticache_cache_verify()` with repair does the same.
 *
 * callback, ret_removed: may be NULL. callback is called for each entry that was removed, with the reason in one line.
 * Locks:   the store, exclusively, for each entry.
 * Returns: OK, INVALID, IO, DENIED (read-only), LOCKED, NO_MEMORY, UNSUPPORTED (no libcrypto).
 */
typedef void (*aoticache_revoked_fn)(void *user, const aoticache_digest *artifact, const char *reason);
AOTICACHE_API aoticache_status aoticache_cache_remove_revoked(aoticache_cache *cache, aoticache_revoked_fn callback,
                                                              void *user, uint64_t *ret_removed,
                                                              aoticache_error *ret_error);

/* ---- deciding about an entry from elsewhere ---- */

/* Why an entry is imported or refused: name, number, text. */
#define AOTICACHE_TRUST_LIST(X)                                      \
    X(SIGNED, 0, "a trusted key signed it")                          \
    X(UNCHECKED, 1, "no signature is required here")                 \
    X(UNSIGNED, 2, "it has no signature")                            \
    X(UNKNOWN_KEY, 3, "no key that is trusted here signed it")       \
    X(WRONG_SIGNATURE, 4, "a signature is not valid for this entry") \
    X(REPEATED_SIGNATURE, 5, "a key signed it twice")                \
    X(NO_SIGNATURE_TEXT, 6, "its signatures cannot be read")         \
    X(REVOKED_KEY, 7, "a revoked key signed it")                     \
    X(REVOKED_ENTRY, 8, "the entry is revoked")                      \
    X(OTHER_KEY, 9, "it is for another key than the requested one")  \
    X(REPLAYED, 10, "it is older than the existing entry")

typedef enum aoticache_trust_verdict_reason {
#define AOTICACHE_TRUST_REASON(name, number, text) AOTICACHE_TRUST_##name = (number),
    AOTICACHE_TRUST_LIST(AOTICACHE_TRUST_REASON)
#undef AOTICACHE_TRUST_REASON
} aoticache_trust_verdict_reason;

typedef struct aoticache_trust_verdict {
    bool is_accepted;
    aoticache_trust_verdict_reason reason;
    /* SIGNED: the signer. UNKNOWN_KEY: the first signer; only the name, with bytes of zero, if the key itself was not
     * received or did not make the signature. Otherwise all zero. */
    aoticache_public_key key;
    char message[512]; /* one line: the first digits of the entry's key, the reason, the names, and what to do */
} aoticache_trust_verdict;

/* ---- the keys that this machine trusts ---- */

/* Why a key is trusted. */
typedef enum aoticache_trust_origin {
    AOTICACHE_TRUST_ORIGIN_CONFIGURED = 0, /* trusted_keys of the configuration or the options */
    AOTICACHE_TRUST_ORIGIN_USER = 1,       /* the file trusted_keys of the user's directory of keys */
    AOTICACHE_TRUST_ORIGIN_OWN = 2,        /* the user's own key */
} aoticache_trust_origin;

/* Return false to stop. */
typedef bool (*aoticache_trusted_fn)(void *user, const aoticache_public_key *key, aoticache_trust_origin origin,
                                     bool is_revoked);
/* Lists the trusted keys. Returns: OK, NO_MEMORY, IO, DENIED. */
AOTICACHE_API aoticache_status aoticache_cache_list_trusted(aoticache_cache *cache, aoticache_trusted_fn callback,
                                                            void *user, aoticache_error *ret_error);
/*
 * Gives the secret keys with which this cache signs: those of `sign_with`, otherwise the user's own if there is one.
 * Borrowed from the cache. Returns: OK (also if there is none), the results of aoticache_secret_key_read(), and DENIED also
 * if one of them is revoked: a revoked key signs nothing.
 */
AOTICACHE_API aoticache_status aoticache_cache_signers(aoticache_cache *cache,
                                                       const aoticache_secret_key *const **ret_keys, size_t *ret_count,
                                                       aoticache_error *ret_error);

/*
 * The user's directory of keys: `secret-key` (the user's own), `trusted_keys` and `revoked_keys` (one on each line; '#' at
 * the beginning of a line or after a space begins a comment). These functions change the files even while caches are open; a
 * cache reads them when it first needs them. The directory must belong to the effective user or root, and must not be
 * writable by others.
 */
#define AOTICACHE_SECRET_KEY_FILE "secret-key"
#define AOTICACHE_TRUSTED_KEYS_FILE "trusted_keys"
#define AOTICACHE_REVOKED_KEYS_FILE "revoked_keys"

/*
 * Gives the user's own key; creates it under `name`, with its directory, if there is none. ret_is_new may be NULL.
 * Returns as aoticache_secret_key_read(), _generate() and _write().
 */
AOTICACHE_API aoticache_status aoticache_key_directory_own_key(const char *directory, const char *name,
                                                               aoticache_secret_key **ret_key, bool *ret_is_new,
                                                               aoticache_error *ret_error);

/* Trusts a key, and removes it from the revoked keys of this directory. Returns: OK (also if it was trusted already),
 * INVALID (another key of this name is trusted), IO, DENIED, NO_MEMORY. */
AOTICACHE_API aoticache_status aoticache_key_directory_trust(const char *directory, const aoticache_public_key *key,
                                                             aoticache_error *ret_error);
/*
 * Revokes `what`: a public key, a fingerprint, a name, or the digest of a manifest (64 digits). The key is also removed from
 * the trusted keys of this directory. Returns: OK, INVALID, IO, DENIED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_key_directory_revoke(const char *directory, const char *what,
                                                              aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
