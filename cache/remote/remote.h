/*
 * cache/remote/remote: sends kernels to servers shared by many machines, and fetches kernels from them.
 *
 * A remote is a server that keeps bytes by name: Redis, a web server, S3, or another kind through a module
 * (cache/remote/module.h). docs/remotes.md has the form of `remotes`, the layout on the server, and configurations of
 * servers.
 *
 * Data from a remote is not trusted. Objects are verified by their digests, sizes are limited before bytes are fetched, and
 * an entry is imported only if a trusted key signed it, or if the remote's settings have `unsigned=allow`.
 *
 * Thread safety: that of a cache. No callback is called with a lock held.
 *
 * Users include <aoticache/remote.h>.
 */
#ifndef AOTICACHE_CACHE_REMOTE_REMOTE_H
#define AOTICACHE_CACHE_REMOTE_REMOTE_H

#include "cache/transfer/transfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The health of a remote. */
typedef struct aoticache_remote_state {
    const char *url;
    bool reads, writes, allow_unsigned;
    aoticache_status status;       /* result of one small request; OK also if the remote is empty */
    const char *message;           /* of a failure; otherwise "" */
    uint64_t answer_ns;            /* duration of that request */
    aoticache_status write_status; /* result of a write that is read back; OK if nothing is to be written */
    const char *write_message;
    aoticache_status lease_status; /* OK: one machine compiles for all; UNSUPPORTED: each machine compiles */
    const char *lease_message;     /* of a failure; otherwise, or if leases were not checked, "" */
    bool has_clock;                /* the server reports its time */
    int64_t clock_ahead_ms;        /* how far its clock is ahead of this machine's, accurate to about a second */
    /* The content of the file `probe`, if the remote is read: the probe that the last health check wrote and signed;
     * otherwise the one just written. The signatures are not verified. NULL: there is none. */
    const struct aoticache_statement *probe;
    const char *probe_signatures; /* one per line; "": none */
    /* The steps of the check, in order. They make the requests of a miss and a compile, in the same directories. */
    const struct aoticache_remote_step *steps;
    size_t step_count;
} aoticache_remote_state;

/* One step of the check. */
typedef struct aoticache_remote_step {
    const char *what; /* "read", "object", "record", "condition", "list", "lease", "removal" */
    /* UNSUPPORTED for a condition, a lease or a removal: the server has none, and the library works without it. */
    aoticache_status status;
    const char *message; /* of a failure; otherwise "" */
} aoticache_remote_step;

/* Return false to stop. Pointers are valid during the call. */
typedef bool (*aoticache_remote_state_fn)(void *user, const aoticache_remote_state *state);
/*
 * Checks each remote of a text, one after the other. A writable remote gets a file `probe`, which `signers` sign. It
 * also briefly gets a test object, record, list and lease that belong to no kernel. They are removed afterwards, if the
 * server supports removal. Returns: OK, INVALID, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_remotes_check_health(const char *remotes,
                                                              const aoticache_secret_key *const *signers,
                                                              size_t signer_count, aoticache_remote_state_fn callback,
                                                              void *user, aoticache_error *ret_error);

/* What a remote has for a key: one entry, or nothing. */
typedef struct aoticache_remote_entry {
    const char *url;
    aoticache_status status; /* OK: this entry exists; NOT_FOUND: there is none; otherwise the record cannot be read */
    const char *message;     /* of a failure; otherwise "" */
    /* The entry according to its record. None of this was verified. */
    aoticache_digest artifact;
    aoticache_cpu_features requirements;
    const char *guard;      /* "": an exact entry */
    const char *signatures; /* texts name:base64, one per line; "": none */
    int64_t created_ns;     /* wall clock */
} aoticache_remote_entry;

/* Return false to stop. Pointers are valid during the call. */
typedef bool (*aoticache_remote_entry_fn)(void *user, const aoticache_remote_entry *entry);
/*
 * Reports what each readable remote of a text has for a key; nothing is fetched or counted.
 * Returns: OK, INVALID, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_remotes_query(const char *remotes, const aoticache_key *key,
                                                       aoticache_remote_entry_fn callback, void *user,
                                                       aoticache_error *ret_error);

/*
 * Sends the entries that the options select to each writable remote, with their signatures. Objects that exist there are not
 * sent again, unless `replace` is set, because they may be damaged. An entry becomes visible after its objects. The
 * options `level`, `with_marks`, `max_bytes` and `allow_unsigned` are ignored. An entry is also signed with `signers`.
 * An entry that a server refuses is left out, and the others are still sent; after three consecutive refusals the rest
 * is not sent.
 *
 * remotes: as the setting `remote`; NULL: those of the cache.
 * ret_report: may be NULL; written on failure too. `archive_bytes` counts what was sent.
 * Returns: OK (look at `refused`: damaged here, or too large for the remote); NOT_FOUND (nothing matches, or no remote is
 * writable); INVALID; IO (a remote fails: entries sent completely stay); DENIED; LOCKED; NO_MEMORY; UNSUPPORTED (no
 * module, no libzstd).
 */
AOTICACHE_API aoticache_status aoticache_cache_push(aoticache_cache *cache, const char *remotes,
                                                    const aoticache_transfer_options *options,
                                                    aoticache_transfer_report *ret_report, aoticache_error *ret_error);
/*
 * Fetches what the options select from each readable remote, in their order: for each key the entries that this CPU can run,
 * the most demanding first for each guard. Entries that are here already stay, as in an import. The options `used_since_ns`,
 * `level`, `with_marks`, `max_bytes`, `allow_unsigned` and `ask` are ignored: the remote's settings decide whether an entry
 * needs a trusted signature. `refused` counts entries that were damaged or not signed, `entries_gone` those that the
 * server has lost. Returns: as aoticache_cache_push().
 */
AOTICACHE_API aoticache_status aoticache_cache_pull(aoticache_cache *cache, const char *remotes,
                                                    const aoticache_transfer_options *options,
                                                    aoticache_transfer_report *ret_report, aoticache_error *ret_error);

/* An entry that has not been sent to a remote yet. */
typedef struct aoticache_unsent {
    aoticache_digest artifact;
    const char *reason; /* why no remote will accept it, so that it is not tried again; "": it waits for its turn */
    int64_t tried_ns;   /* wall clock */
} aoticache_unsent;

/* Return false to stop. Pointers are valid during the call. */
typedef bool (*aoticache_unsent_fn)(void *user, const aoticache_unsent *unsent);
/* Lists the entries that the processes of this cache could not send yet, in no particular order. Returns: OK, INVALID. */
AOTICACHE_API aoticache_status aoticache_cache_list_unsent(aoticache_cache *cache, aoticache_unsent_fn callback,
                                                           void *user, aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
