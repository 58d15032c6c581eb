/*
 * cache/remote/internal: what the files of this room share.
 *
 * Private. settings.c reads the text of the setting, connection.c owns a remote: its module, its connections and its limits;
 * health.c decides whether it is asked at all. record.c owns the texts on a server, zstd.c compression, fetch.c how an entry comes in and
 * send.c how one goes out. push.c and pull.c go through many entries, miss.c is what a miss asks for, sender.c is what goes
 * out after it.
 */
#ifndef AOTICACHE_CACHE_REMOTE_INTERNAL_H
#define AOTICACHE_CACHE_REMOTE_INTERNAL_H

#include "cache/internal.h"
#include "cache/remote/module.h"
#include "cache/remote/remote.h"
#include "cache/transfer/internal.h"

/* ---- settings.c ---- */

typedef struct aoticache_remote_config {
    char *url, *module, *user, *ca_file, *namespace_;
    char *secret_file, *secret_variable;
    char *client_certificate, *client_key;
    bool reads, writes, allow_unsigned;
    bool is_bazel; /* the layout (bazel.c) */
    uint32_t connect_timeout_ms, timeout_ms;
    uint64_t max_object; /* bytes, before compression */
} aoticache_remote_config;

/* *ret_configs: an array, by aoticache_remote_configs_free(). OK (also for ""), INVALID, NO_MEMORY. */
aoticache_status aoticache_remote_configs_parse(const char *text, aoticache_remote_config **ret_configs,
                                                size_t *ret_count, aoticache_error *ret_error);
void aoticache_remote_configs_free(aoticache_remote_config *configs, size_t count);
void aoticache_remote_config_clear(aoticache_remote_config *config);

/* ---- zstd.c ---- */

/* As a frame, by free(). OK, NO_MEMORY, UNSUPPORTED (no libzstd). */
aoticache_status aoticache_zstd_compress(const void *bytes, size_t size, void **ret_packed, size_t *ret_size,
                                         aoticache_error *ret_error);
/* What a frame of so many bytes can have at most. */
uint64_t aoticache_zstd_bound(uint64_t bytes);

/* Unpacks a frame that comes in pieces, to a descriptor or into memory; stops as soon as there is more than `expected`. */
typedef struct aoticache_unpacker aoticache_unpacker;
/* fd: -1: into `memory`, which has space for `expected` bytes. OK, NO_MEMORY, UNSUPPORTED. */
aoticache_status aoticache_unpacker_create(int fd, uint8_t *memory, uint64_t expected,
                                           aoticache_unpacker **ret_unpacker, aoticache_error *ret_error);
/* An aoticache_remote_sink_fn. */
bool aoticache_unpacker_take(void *unpacker, const void *bytes, size_t size);
/* The same of bytes that are no frame, but the object itself. */
bool aoticache_unpacker_take_plain(void *unpacker, const void *bytes, size_t size);
/* OK: one whole frame with exactly `expected` bytes came, and nothing after it. CORRUPT, IO (the file cannot be written). */
aoticache_status aoticache_unpacker_finish(const aoticache_unpacker *unpacker, aoticache_error *ret_error);
/* Returns whether what came was found to be wrong before its end. */
bool aoticache_unpacker_has_refused(const aoticache_unpacker *unpacker);
/* NULL is allowed. */
void aoticache_unpacker_free(aoticache_unpacker *unpacker);

/* ---- bazel.c ---- */

/* What a name is called there. space: the namespace, or NULL. */
aoticache_status aoticache_bazel_name(const char *space, const char *name, char *ret_name, size_t size,
                                      aoticache_error *ret_error);
/* A text as an ActionResult, by free(). */
aoticache_status aoticache_bazel_wrap(const char *text, size_t size, char **ret_bytes, size_t *ret_size,
                                      aoticache_error *ret_error);
/* Where in an ActionResult the text is. OK, CORRUPT. */
aoticache_status aoticache_bazel_unwrap(const char *bytes, size_t size, size_t *ret_at, size_t *ret_size,
                                        aoticache_error *ret_error);

/* ---- connection.c ---- */

#define AOTICACHE_REMOTE_NAME_BYTES 384
#define AOTICACHE_REMOTE_MISSES 256
#define AOTICACHE_REMOTE_CONNECTIONS 4

struct aoticache_remote_connection {
    void *opened;            /* NULL: not opened yet */
    bool is_used;            /* by one request, whose thread alone touches it */
    aoticache_digest secret; /* of the secret that it was opened with; zeros: it has none */
};

/* What a request is for. Each use has its own state (health.c). */
typedef enum aoticache_remote_use {
    AOTICACHE_REMOTE_READ,  /* for a miss, or a person */
    AOTICACHE_REMOTE_WRITE, /* what a write reads before and after is part of it */
    AOTICACHE_REMOTE_LEASE,
    AOTICACHE_REMOTE_WHOLE, /* no use: the state of the server itself */
    AOTICACHE_REMOTE_USES,
} aoticache_remote_use;

struct aoticache_remote_health {
    _Atomic uint64_t backoff_until_ns; /* monotonic: it is not asked before */
    _Atomic uint32_t failures;         /* one after the other */
};

typedef struct aoticache_remote {
    aoticache_remote_config config;
    const aoticache_logger *logger;
    aoticache_remote_module module; /* all zero: not loaded yet */
    struct aoticache_remote_connection connections[AOTICACHE_REMOTE_CONNECTIONS];
    pid_t pid;                       /* whose connections they are: the child of a fork makes its own */
    pthread_mutex_t mutex;           /* of the module and the connections */
    pthread_cond_t is_free;          /* a connection is */
    const _Atomic uint64_t *ends_ns; /* monotonic: requests end then (aoticache_remotes.ends_ns) */
    struct aoticache_remote_health health[AOTICACHE_REMOTE_USES];
    _Atomic bool has_answered;    /* this process, at least once */
    _Atomic uint32_t backoffs;    /* that began, and are not counted yet */
    _Atomic bool lacks_leases;    /* it was asked */
    _Atomic bool serves_misses;   /* then the log says when a backoff begins; a person's requests get errors instead */
    _Atomic bool has_told_unsure; /* that an answer may mean "not there" or "not allowed" */
    _Atomic uint64_t told[AOTICACHE_UNTRUSTED_SIGNERS]; /* whose entries were refused (aoticache_intake.told) */
    struct {
        _Atomic uint64_t key;      /* the first bytes of one */
        _Atomic uint64_t until_ns; /* until then it is not asked for */
        _Atomic bool was_refused;  /* there was something, and it was damaged or not signed */
    } misses[AOTICACHE_REMOTE_MISSES];
} aoticache_remote;

typedef struct aoticache_sender aoticache_sender;

typedef struct aoticache_remotes {
    aoticache_remote *items;
    size_t count;
    aoticache_sender *sender;  /* NULL: none was needed yet */
    bool is_finished;          /* and none will be */
    pthread_mutex_t mutex;     /* of these two */
    _Atomic bool is_abandoned; /* nothing more is sent */
    _Atomic uint64_t ends_ns;  /* monotonic: when the cache is being closed, all requests end then; 0: it is not */
    _Atomic bool has_told_unsigned;
    uint64_t fingerprint; /* of the text that they were made from */
} aoticache_remotes;

/* logger: must outlive them. NULL is given for a text without remotes. */
aoticache_status aoticache_remotes_create(const char *text, const aoticache_logger *logger,
                                          aoticache_remotes **ret_remotes, aoticache_error *ret_error);
/* NULL is allowed. */
void aoticache_remotes_free(aoticache_remotes *remotes);
/* In the child of a fork: what a thread of the parent held is free, its connections are left alone. */
void aoticache_remotes_reset_after_fork(aoticache_remotes *remotes);

/* Loads the module and reads the secret, if it was not done. OK, or why the remote cannot be used. */
aoticache_status aoticache_remote_prepare(aoticache_remote *remote, aoticache_error *ret_error);

/* One request each, with the remote's limits of time; `bytes` is what an answer or a body may have. The message names the
 * remote. As the module's functions, and UNSUPPORTED, INVALID if there is no module. NOT_FOUND may have a message, too
 * (module.h). */
aoticache_status aoticache_remote_get(aoticache_remote *remote, aoticache_remote_use use, const char *name,
                                      uint64_t max_bytes, aoticache_remote_sink_fn sink, void *user, char *ret_version,
                                      aoticache_error *ret_error);
aoticache_status aoticache_remote_put(aoticache_remote *remote, const char *name, const void *bytes, size_t size,
                                      const char *condition, aoticache_error *ret_error);
aoticache_status aoticache_remote_exists(aoticache_remote *remote, aoticache_remote_use use, const char *name,
                                         aoticache_error *ret_error);
/* Takes away what `name` is; OK also where there is nothing. UNSUPPORTED: this kind of server, or module, cannot. */
aoticache_status aoticache_remote_remove(aoticache_remote *remote, const char *name, aoticache_error *ret_error);
/* How far the server's clock is ahead of this machine's. UNSUPPORTED: the server does not say its time. */
aoticache_status aoticache_remote_clock(aoticache_remote *remote, int64_t *ret_ahead_ms, aoticache_error *ret_error);
aoticache_status aoticache_remote_acquire(aoticache_remote *remote, const char *name, const char *token,
                                          uint32_t ttl_ms, aoticache_error *ret_error);
aoticache_status aoticache_remote_release(aoticache_remote *remote, const char *name, const char *token,
                                          aoticache_error *ret_error);

/* Returns a message without the name of the remote before it. */
const char *aoticache_remote_reason(const aoticache_remote *remote, const char *message);

/* Between these two all requests of this thread together have the time of one: a lookup waits no longer. */
void aoticache_remote_begin_fetch(const aoticache_remote *remote);
void aoticache_remote_end_fetch(void);

/* A subscription to the release of a lease. */
typedef struct aoticache_lease_subscription {
    aoticache_remote *remote;
    void *opened; /* a connection of its own; NULL: not subscribed */
    char name[AOTICACHE_REMOTE_NAME_BYTES + 80];
} aoticache_lease_subscription;
/* From now on wait() learns of it. OK; UNSUPPORTED: this kind of server does not tell; otherwise why not. *ret_subscription
 * is for stop_listening() in any case. */
aoticache_status aoticache_remote_listen(aoticache_remote *remote, const char *name,
                                         aoticache_lease_subscription *ret_subscription);
/* OK: it was given back. NOT_FOUND: not within so long. Otherwise the connection is of no use any more. */
aoticache_status aoticache_remote_wait(aoticache_lease_subscription *subscription, uint32_t ms);
void aoticache_remote_stop_listening(aoticache_lease_subscription *subscription);

/* A small text, with a zero byte after it, by free(). CORRUPT if it has one inside, or is no ActionResult where it must be
 * one. */
aoticache_status aoticache_remote_get_text(aoticache_remote *remote, aoticache_remote_use use, const char *name,
                                           uint64_t max_bytes, char **ret_text, size_t *ret_size, char *ret_version,
                                           aoticache_error *ret_error);
aoticache_status aoticache_remote_put_text(aoticache_remote *remote, const char *name, const char *text, size_t size,
                                           const char *condition, aoticache_error *ret_error);

/* ---- health.c ---- */

/* Returns whether a miss may send requests of this kind, which it may not during a backoff. From then on the log says when a
 * backoff begins. A person's requests are made in any case. */
bool aoticache_remote_may_ask(aoticache_remote *remote, aoticache_remote_use use);
/* Note what came of opening a connection, and of a request. is_step: of a write, before its last step: it looked at what is there,
 * or wrote an object, whose record is still to come. That it succeeds does not mean that a write does. */
void aoticache_remote_note_opening(aoticache_remote *remote, aoticache_status status, const char *message);
void aoticache_remote_note_answer(aoticache_remote *remote, aoticache_remote_use use, bool is_step,
                                  aoticache_status status, const char *message);

/* ---- connection.c: what was not there ---- */

/* A recent result for a key. */
typedef enum aoticache_remote_recent {
    AOTICACHE_REMOTE_NOT_SEEN, /* it was not asked, or had what was wanted */
    AOTICACHE_REMOTE_NOTHING,
    AOTICACHE_REMOTE_REFUSED, /* something that was damaged, or that nobody trusted signed */
} aoticache_remote_recent;
aoticache_remote_recent aoticache_remote_recent_result(const aoticache_remote *remote, const aoticache_key *key);
void aoticache_remote_note_result(aoticache_remote *remote, const aoticache_key *key, aoticache_remote_recent result);

/* ---- record.c: the texts on a server (docs/remotes.md) ---- */

#define AOTICACHE_RECORD_MAX_BYTES (UINT64_C(1) << 20)
#define AOTICACHE_RECORD_MAX_ENTRIES 64
#define AOTICACHE_LIST_MAX_BYTES (UINT64_C(8) << 20)
#define AOTICACHE_LIST_HEAD "list of keys 1\n"

void aoticache_remote_object_name(const aoticache_digest *digest, char ret_name[AOTICACHE_REMOTE_NAME_BYTES]);
void aoticache_remote_record_name(const aoticache_key *key, char ret_name[AOTICACHE_REMOTE_NAME_BYTES]);
void aoticache_remote_lease_name(const aoticache_key *key, char ret_name[AOTICACHE_REMOTE_NAME_BYTES]);
void aoticache_remote_list_name(unsigned first_byte, char ret_name[AOTICACHE_REMOTE_NAME_BYTES]);

typedef struct aoticache_record_entry {
    aoticache_digest artifact;
    uint64_t bytes; /* of the manifest */
    aoticache_cpu_features requirements;
    char *guard;      /* NULL: an exact entry */
    char *signatures; /* one on each line; "": none */
    int64_t created_ns;
} aoticache_record_entry;

typedef struct aoticache_record {
    aoticache_key key;
    aoticache_record_entry *entries; /* the most demanding first, of equal ones the newest */
    size_t count;
} aoticache_record;

/* The text may have been written by anybody. OK, CORRUPT, UNSUPPORTED (a newer format), NO_MEMORY. */
aoticache_status aoticache_record_parse(const char *text, size_t size, const aoticache_key *key,
                                        aoticache_record *ret_record, aoticache_error *ret_error);
/* Adds an entry, or replaces the one with the same requirements and guard; the same artifact keeps the signatures of other
 * keys. Of too many the oldest goes. *ret_changed: the
 * record is another than it was. NO_MEMORY. */
aoticache_status aoticache_record_put(aoticache_record *record, const aoticache_record_entry *entry, bool *ret_changed,
                                      aoticache_error *ret_error);
/* Returns whether the entry has no signature, and would take the place of one that has some. */
bool aoticache_record_prefers_signed(const aoticache_record *record, const aoticache_record_entry *entry);
/* Canonical JSON, by free(). NO_MEMORY. */
aoticache_status aoticache_record_format(const aoticache_record *record, char **ret_text, size_t *ret_size,
                                         aoticache_error *ret_error);
void aoticache_record_clear(aoticache_record *record);

/* One line of a list: which keys there are. */
typedef struct aoticache_list_row {
    aoticache_key key;
    const char *op, *device;
    const char *tags; /* separated by commas; "": none */
} aoticache_list_row;
/* Return false to stop. The strings are valid during the call. */
typedef bool (*aoticache_list_fn)(void *user, const aoticache_list_row *row);
/* Changes the text. OK, CORRUPT. */
aoticache_status aoticache_list_parse(char *text, unsigned first_byte, aoticache_list_fn callback, void *user,
                                      aoticache_error *ret_error);

/* ---- fetch.c, signature_check.c, send.c ---- */

/* The record of a key. OK, NOT_FOUND, and what a request returns; CORRUPT, UNSUPPORTED if it cannot be used. */
aoticache_status aoticache_remote_read_record(aoticache_remote *remote, const aoticache_key *key,
                                              aoticache_record *ret_record, aoticache_error *ret_error);

/*
 * Whether an entry that came may be taken in: what was signed is made of its manifest. 
 * OK (look at ret_verdict), or why it could not be decided, which is a no.
 */
aoticache_status aoticache_remote_decide(aoticache_cache *cache, const aoticache_remote *remote,
                                         const aoticache_digest *artifact, const aoticache_manifest *manifest,
                                         const char *signatures, const aoticache_key *wanted,
                                         aoticache_trust_verdict *ret_verdict, aoticache_error *ret_error);

/* The signatures of an entry of the cache, and those of the signers, one on each line, by free(). */
aoticache_status aoticache_remote_signatures(aoticache_cache *cache, const aoticache_digest *artifact,
                                             const aoticache_manifest *manifest,
                                             const aoticache_secret_key *const *signers, size_t count, char **ret_text,
                                             aoticache_error *ret_error);

/*
 * Brings an entry of a record into an intake. *ret_good: it was queued or is there; otherwise it was refused and logged.
 * Returns: OK; IO, DENIED: the remote fails; and what an intake returns.
 */
aoticache_status aoticache_remote_fetch(aoticache_intake *intake, aoticache_remote *remote, const aoticache_key *key,
                                        const aoticache_record_entry *entry, bool *ret_good,
                                        aoticache_error *ret_error);

/*
 * Brings those entries of a key that this CPU meets and that are not served here yet: the most demanding first, for each
 * guard one. accept: NULL: exact entries and all guards; otherwise one whose guard it accepts.
 * Returns: OK, NOT_FOUND (no record); CORRUPT, UNSUPPORTED (a record that cannot be used); and as aoticache_remote_fetch().
 */
aoticache_status aoticache_remote_fetch_key(aoticache_intake *intake, aoticache_remote *remote,
                                            const aoticache_key *key, aoticache_guard_fn accept, void *accept_user,
                                            size_t *ret_brought, aoticache_error *ret_error);

/* What entries are sent with. */
typedef struct aoticache_remote_sending {
    const aoticache_secret_key *const *signers;
    size_t signer_count;
    bool replaces;              /* also objects that are there already: they may be damaged */
    aoticache_continue_fn poll; /* NULL: goes on to the end */
    void *user;
    aoticache_transfer_report *report; /* objects, bytes, archive_bytes are added to */
} aoticache_remote_sending;

/* Sends an entry of the cache: its objects, then its record. Returns: OK; CORRUPT, UNSUPPORTED (it stays here, with the
 * reason); what a request returns. */
aoticache_status aoticache_remote_send(aoticache_cache *cache, aoticache_remote *remote,
                                       const aoticache_digest *artifact, const aoticache_remote_sending *sending,
                                       aoticache_error *ret_error);

/* ---- push.c ---- */

/* Adds the key of an entry of the cache to the remote's lists. Returns as aoticache_remote_send(). */
aoticache_status aoticache_remote_list_entry(aoticache_cache *cache, aoticache_remote *remote,
                                             const aoticache_digest *artifact, aoticache_error *ret_error);

/* ---- probe.c: what people who look into a remote leave there ---- */

#define AOTICACHE_REMOTE_PROBE "probe"
typedef struct aoticache_remote_probe {
    char *text; /* by free(); the others borrow from it */
    aoticache_statement statement;
    const char *signatures; /* one on each line; nobody has checked them */
} aoticache_remote_probe;

/* Returns as aoticache_statement_sign() and a request. */
aoticache_status aoticache_remote_write_probe(aoticache_remote *remote, const aoticache_secret_key *const *signers,
                                              size_t signer_count, aoticache_error *ret_error);
/* Returns: OK, NOT_FOUND, CORRUPT (it is something else), and as a request. */
aoticache_status aoticache_remote_read_probe(aoticache_remote *remote, aoticache_remote_probe *ret_probe,
                                             aoticache_error *ret_error);

/* ---- unsent.c: entries that still have to go to a remote. Failures are ignored ---- */

#define AOTICACHE_UNSENT_AT_ONCE 8
void aoticache_unsent_note(aoticache_cache *cache, const aoticache_digest *artifact);
/* Puts it after the others. reason: why no remote takes it; NULL: it is tried again when its turn comes. */
void aoticache_unsent_postpone(aoticache_cache *cache, const aoticache_digest *artifact, const char *reason);
void aoticache_unsent_forget(aoticache_cache *cache, const aoticache_digest *artifact);
/* Lists those that may be tried, the one that was tried longest ago first. Returns how many, at most `most` and
 * AOTICACHE_UNSENT_AT_ONCE. */
size_t aoticache_unsent_list(aoticache_cache *cache, aoticache_digest *ret_artifacts, size_t most);

/* ---- miss.c: what a miss asks for (cache/compile.c). Nothing of it fails: then the kernel is compiled ---- */

/* True where an entry for the target has come: look again. *ret_from: the number of the remote. */
bool aoticache_remote_miss_fetch(aoticache_cache *cache, const aoticache_lookup_target *target, size_t *ret_from);
/*
 * The right to compile a key, among all machines. True where another machine compiled it while we waited, and its entry has
 * come. Otherwise *ret_lease is for release(), or NULL: no remote has leases, or none can be had.
 */
typedef struct aoticache_remote_lease aoticache_remote_lease;
bool aoticache_remote_lease_take(aoticache_cache *cache, const aoticache_lookup_target *target,
                                 aoticache_remote_lease **ret_lease);
/* NULL is allowed. */
void aoticache_remote_lease_release(aoticache_remote_lease *lease);

/* Counts what a miss or a compile had to do with a remote: how long, whether it failed, and backoffs that began. */
void aoticache_remote_miss_count(aoticache_cache *cache, aoticache_remote *remote, aoticache_latency_kind kind,
                                 uint64_t begun_ns, bool has_failed);

/* ---- sender.c ---- */

/* An entry that was just stored goes to all remotes that are written to, soon; then the lease, which may be NULL, is given
 * back. */
void aoticache_remote_miss_publish(aoticache_cache *cache, const aoticache_key *key, const aoticache_digest *artifact,
                                   aoticache_remote_lease *lease);
/* An entry that came from remote `from` goes to those before it that are written to, with the signatures that it has: the
 * nearer ones are asked first. */
void aoticache_remote_miss_spread(aoticache_cache *cache, const aoticache_key *key, const aoticache_digest *artifact,
                                  size_t from);
/* Waits a few seconds for what is still to be sent. The rest stays noted. From then on nothing goes by itself. */
void aoticache_remote_miss_finish(aoticache_cache *cache);

/*
 * Whether a text names remotes, as the setting `remote` does: OK, or INVALID with what is wrong. It is not tried to reach
 * them.
 */
aoticache_status aoticache_remotes_check(const char *remotes, aoticache_error *ret_error);

#endif
