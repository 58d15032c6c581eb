/*
 * cache/remote/remote: kernels to servers that many machines share, and from them.
 *
 * A remote is a server that keeps bytes by name: Redis, a web server, S3, or what a module makes of something else
 * (cache/remote/module.h). docs/remotes.md has the form of `remotes`, the layout on the server, and configurations of
 * servers.
 *
 * Nothing that a remote says is believed. Objects are verified by their digests, sizes are bounded before bytes are
 * fetched, and an entry comes in only if a trusted key signed it, or the remote's settings say `unsigned=allow`.
 *
 * Thread safety: as a cache's. Nothing is called back with a lock held.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_CACHE_REMOTE_REMOTE_H
#define AOTICACHE_CACHE_REMOTE_REMOTE_H

#include "cache/transfer/transfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a remote answers. */
typedef struct aoticache_remote_state {
    const char *url;
    bool reads, writes, allow_unsigned;
    aoticache_status status;       /* of one small request; OK also where it has nothing yet */
    const char *message;           /* of a failure; otherwise "" */
    uint64_t answer_ns;            /* how long it took */
    aoticache_status write_status; /* of what is written there, and read again; OK if nothing is to be written */
    const char *write_message;
    aoticache_status lease_status; /* OK: one machine compiles for all; UNSUPPORTED: each machine compiles */
    const char *lease_message;     /* why not; "" where nobody asked */
    bool has_clock;                /* the server says its time */
    int64_t clock_ahead_ms;        /* how far its clock is ahead of this machine's, to about a second */
    /* What was found as `probe` where the remote is read: the last one that asked had written and signed it; otherwise what
     * was just written. Nobody has checked the signatures. NULL: there is none. */
    const struct aoticache_statement *probe;
    const char *probe_signatures; /* one on each line; "": none */
    /* What was tried, in its order: as for a miss and a compile, in the directories where kernels lie. */
    const struct aoticache_remote_step *steps;
    size_t step_count;
} aoticache_remote_state;

/* One thing that was tried. */
typedef struct aoticache_remote_step {
    const char *what; /* "read", "object", "record", "condition", "list", "lease", "removal" */
    /* UNSUPPORTED of a condition, a lease or a removal: the server has none, and does without. */
    aoticache_status status;
    const char *message; /* of a failure; otherwise "" */
} aoticache_remote_step;

/* Return false to stop. What it points to is valid during the call. */
typedef bool (*aoticache_remote_state_fn)(void *user, const aoticache_remote_state *state);
/*
 * Asks each remote of a text, one after the other. One that is written to gets a file `probe`, which `signers` sign, and for
 * a moment an object, a record, a list and a lease of no kernel, which are removed again as far as the server removes anything.
 * Returns: OK, INVALID, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_remotes_check_health(const char *remotes,
                                                              const aoticache_secret_key *const *signers,
                                                              size_t signer_count, aoticache_remote_state_fn callback,
                                                              void *user, aoticache_error *ret_error);

/* What a remote has for a key: one entry, or nothing. */
typedef struct aoticache_remote_entry {
    const char *url;
    aoticache_status
        status;          /* OK: there is this entry; NOT_FOUND: nothing is there; otherwise the record cannot be read */
    const char *message; /* of a failure; otherwise "" */
    /* Of the entry, as its record says. Nothing of it was verified. */
    aoticache_digest artifact;
    aoticache_cpu_features requirements;
    const char *guard;      /* "": an exact entry */
    const char *signatures; /* texts name:base64, one on each line; "": none */
    int64_t created_ns;     /* wall clock */
} aoticache_remote_entry;

/* Return false to stop. What it points to is valid during the call. */
typedef bool (*aoticache_remote_entry_fn)(void *user, const aoticache_remote_entry *entry);
/*
 * Says what each remote of a text that is read has for a key; nothing is fetched or counted.
 * Returns: OK, INVALID, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_remotes_query(const char *remotes, const aoticache_key *key,
                                                       aoticache_remote_entry_fn callback, void *user,
                                                       aoticache_error *ret_error);

/*
 * Sends the entries that the options name to each remote that is written to, with their signatures: objects that are there
 * already are not sent again, except with `replace`: they may be damaged. An entry becomes visible there after its objects. Of
 * the options `level`, `with_marks`, `max_bytes` and `allow_unsigned` mean nothing here. An entry is signed with `signers`,
 * too. An entry that a server refuses is left out, and the others go on; after three refusals in a row the rest stays here.
 *
 * remotes: as the setting `remote`; NULL: the cache's own.
 * ret_report: may be NULL; written on failure too. `archive_bytes` counts what was sent.
 * Returns: OK (look at `refused`: damaged here, or too large for the remote); NOT_FOUND (nothing matches, or no remote is
 * written to); INVALID; IO (a remote fails: what was complete stays); DENIED; LOCKED; NO_MEMORY; UNSUPPORTED (no module, no
 * libzstd).
 */
AOTICACHE_API aoticache_status aoticache_cache_push(aoticache_cache *cache, const char *remotes,
                                                    const aoticache_transfer_options *options,
                                                    aoticache_transfer_report *ret_report, aoticache_error *ret_error);
/*
 * Brings what the options name from each remote that is read, in their order: of each key the entries that this CPU meets,
 * the most demanding first for each guard. What is here already stays, as in an import. Of the options `used_since_ns`,
 * `level`, `with_marks`, `max_bytes`, `allow_unsigned` and `ask` mean nothing here: whether an entry needs a trusted
 * signature, the remote's settings say. Returns as a push; `refused` counts what was damaged or not
 * signed, `entries_gone` what the server had forgotten.
 */
AOTICACHE_API aoticache_status aoticache_cache_pull(aoticache_cache *cache, const char *remotes,
                                                    const aoticache_transfer_options *options,
                                                    aoticache_transfer_report *ret_report, aoticache_error *ret_error);

/* An entry that still has to go to a remote. */
typedef struct aoticache_unsent {
    aoticache_digest artifact;
    const char *reason; /* why a remote takes it never: it is set aside; "": it waits for its turn */
    int64_t tried_ns;   /* wall clock */
} aoticache_unsent;

/* Return false to stop. What it points to is valid during the call. */
typedef bool (*aoticache_unsent_fn)(void *user, const aoticache_unsent *unsent);
/* Lists what the processes of this cache could not send yet, in no order. Returns: OK, INVALID. */
AOTICACHE_API aoticache_status aoticache_cache_list_unsent(aoticache_cache *cache, aoticache_unsent_fn callback,
                                                           void *user, aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
