/*
 * cache/remote/remote_internal: types and functions shared by the files of this directory.
 *
 * Private. settings.c parses the setting, connection.c owns a remote: its module, its connections and its limits; health.c
 * decides whether it is used at all. record.c owns the texts on a server, zstd.c compression, fetch.c how entries are
 * fetched and send.c how they are sent. push.c and pull.c transfer many entries, miss.c handles a miss, sender.c sends
 * entries after a compile.
 */
#ifndef AOTICACHE_CACHE_REMOTE_INTERNAL_H
#define AOTICACHE_CACHE_REMOTE_INTERNAL_H

#include "cache/cache_internal.h"
#include "cache/remote/module.h"
#include "cache/remote/remote.h"
#include "cache/transfer/transfer_internal.h"

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

/* Parses the setting `remote`. *ret_configs: an array, freed with aoticache_remote_configs_free(). OK (also for ""),
 * INVALID, NO_MEMORY. */
aoticache_status aoticache_remote_configs_parse(const char *text, aoticache_remote_config **ret_configs,
                                                size_t *ret_count, aoticache_error *ret_error);
void aoticache_remote_configs_free(aoticache_remote_config *configs, size_t count);
void aoticache_remote_config_clear(aoticache_remote_config *config);

/* ---- zstd.c ---- */

/* Compresses to one frame; the caller frees it with free(). OK, NO_MEMORY, UNSUPPORTED (no libzstd). */
aoticache_status aoticache_zstd_compress(const void *bytes, size_t size, void **ret_packed, size_t *ret_size,
                                         aoticache_error *ret_error);
/* Returns the largest size that a frame of that many bytes can have. */
uint64_t aoticache_zstd_bound(uint64_t bytes);

/* Unpacks a frame that arrives in pieces, to a descriptor or into memory; stops as soon as there is more than `expected`. */
typedef struct aoticache_unpacker aoticache_unpacker;
/* Creates an unpacker. fd: -1: into `memory`, which has space for `expected` bytes. OK, NO_MEMORY, UNSUPPORTED. */
aoticache_status aoticache_unpacker_create(int fd, uint8_t *memory, uint64_t expected,
                                           aoticache_unpacker **ret_unpacker, aoticache_error *ret_error);
/* Takes a piece; an aoticache_remote_sink_fn. */
bool aoticache_unpacker_take(void *unpacker, const void *bytes, size_t size);
/* Like aoticache_unpacker_take(), for bytes that are not a frame but the object itself. */
bool aoticache_unpacker_take_plain(void *unpacker, const void *bytes, size_t size);
/* Returns OK if exactly one frame with exactly `expected` bytes was received, and nothing after it. CORRUPT, IO (the file
 * cannot be written). */
aoticache_status aoticache_unpacker_finish(const aoticache_unpacker *unpacker, aoticache_error *ret_error);
/* Returns whether the received bytes were found to be wrong before their end. */
bool aoticache_unpacker_has_refused(const aoticache_unpacker *unpacker);
/* NULL is allowed. */
void aoticache_unpacker_free(aoticache_unpacker *unpacker);

/* ---- bazel.c ---- */

/* Maps a name to its name on the server. space: the namespace, or NULL. */
aoticache_status aoticache_bazel_name(const char *space, const char *name, char *ret_name, size_t size,
                                      aoticache_error *ret_error);
/* Wraps a text in an ActionResult; the caller frees it with free(). */
aoticache_status aoticache_bazel_wrap(const char *text, size_t size, char **ret_bytes, size_t *ret_size,
                                      aoticache_error *ret_error);
/* Finds the text in an ActionResult. OK, CORRUPT. */
aoticache_status aoticache_bazel_unwrap(const char *bytes, size_t size, size_t *ret_at, size_t *ret_size,
                                        aoticache_error *ret_error);

/* ---- connection.c ---- */

#define AOTICACHE_REMOTE_NAME_BYTES 384
#define AOTICACHE_REMOTE_MISSES 256
#define AOTICACHE_REMOTE_CONNECTIONS 4

struct aoticache_remote_connection {
    void *opened;            /* NULL: not opened yet */
    bool is_used;            /* by one request; only its thread uses it */
    aoticache_digest secret; /* digest of the secret that it was opened with; zeros: no secret */
};

/* The purpose of a request. Each purpose has its own state (health.c). */
typedef enum aoticache_remote_use {
    AOTICACHE_REMOTE_READ,  /* for a miss, or a user's command */
    AOTICACHE_REMOTE_WRITE, /* including what a write reads before and after */
    AOTICACHE_REMOTE_LEASE,
    AOTICACHE_REMOTE_WHOLE, /* not a purpose: the state of the server itself */
    AOTICACHE_REMOTE_USES,
} aoticache_remote_use;

struct aoticache_remote_health {
    _Atomic uint64_t backoff_until_ns; /* monotonic: no requests before this time */
    _Atomic uint32_t failures;         /* consecutive failures */
};

typedef struct aoticache_remote {
    aoticache_remote_config config;
    const aoticache_logger *logger;
    aoticache_remote_module module; /* all zero: not loaded yet */
    struct aoticache_remote_connection connections[AOTICACHE_REMOTE_CONNECTIONS];
    pid_t pid;                       /* process that owns the connections; the child of a fork opens its own */
    pthread_mutex_t mutex;           /* protects the module and the connections */
    pthread_cond_t is_free;          /* signalled when a connection is free */
    const _Atomic uint64_t *ends_ns; /* monotonic: requests end at this time (aoticache_remotes.ends_ns) */
    struct aoticache_remote_health health[AOTICACHE_REMOTE_USES];
    _Atomic bool has_answered;    /* to this process, at least once */
    _Atomic uint32_t backoffs;    /* backoffs that began and are not counted yet */
    _Atomic bool lacks_leases;    /* the server has reported that it has none */
    _Atomic bool serves_misses;   /* then the log reports when a backoff begins; user requests get errors instead */
    _Atomic bool has_told_unsure; /* the log has said that an answer may mean "not there" or "not allowed" */
    _Atomic uint64_t told[AOTICACHE_UNTRUSTED_SIGNERS]; /* reported signers (aoticache_intake.told) */
    struct {
        _Atomic uint64_t key;      /* the first bytes of a key */
        _Atomic uint64_t until_ns; /* it is not requested before this time */
        _Atomic bool was_refused;  /* an entry was found, and was damaged or not signed */
    } misses[AOTICACHE_REMOTE_MISSES];
} aoticache_remote;

typedef struct aoticache_sender aoticache_sender;

typedef struct aoticache_remotes {
    aoticache_remote *items;
    size_t count;
    aoticache_sender *sender;  /* NULL: not needed yet */
    bool is_finished;          /* and none will be created */
    pthread_mutex_t mutex;     /* protects the two members above */
    _Atomic bool is_abandoned; /* no more entries are sent */
    _Atomic uint64_t ends_ns;  /* monotonic: while the cache is being closed, all requests end then; 0: it is not */
    _Atomic bool has_told_unsigned;
    uint64_t fingerprint; /* of the text from which they were created */
} aoticache_remotes;

/* Creates the remotes of a text. logger: must outlive the remotes. *ret_remotes is NULL for a text without remotes. */
aoticache_status aoticache_remotes_create(const char *text, const aoticache_logger *logger,
                                          aoticache_remotes **ret_remotes, aoticache_error *ret_error);
/* NULL is allowed. */
void aoticache_remotes_free(aoticache_remotes *remotes);
/* Resets the remotes in the child of a fork: resources held by the parent's threads are freed, and the parent's connections
 * are left alone. */
void aoticache_remotes_reset_after_fork(aoticache_remotes *remotes);

/* Loads the module and reads the secret if that is not done yet. Returns OK, or why the remote cannot be used. */
aoticache_status aoticache_remote_prepare(aoticache_remote *remote, aoticache_error *ret_error);

/* Each makes one request, within the remote's time limits; `bytes` is the maximum size of an answer or a body. The message
 * names the remote. Returns as the module's functions, and UNSUPPORTED or INVALID if there is no module. NOT_FOUND may have
 * a message, too (module.h). */
aoticache_status aoticache_remote_get(aoticache_remote *remote, aoticache_remote_use use, const char *name,
                                      uint64_t max_bytes, aoticache_remote_sink_fn sink, void *user, char *ret_version,
                                      aoticache_error *ret_error);
aoticache_status aoticache_remote_put(aoticache_remote *remote, const char *name, const void *bytes, size_t size,
                                      const char *condition, aoticache_error *ret_error);
aoticache_status aoticache_remote_exists(aoticache_remote *remote, aoticache_remote_use use, const char *name,
                                         aoticache_error *ret_error);
/* Removes what is stored as `name`; OK also if there is nothing. UNSUPPORTED: this kind of server, or module, cannot. */
aoticache_status aoticache_remote_remove(aoticache_remote *remote, const char *name, aoticache_error *ret_error);
/* Gives how far the server's clock is ahead of this machine's. UNSUPPORTED: the server does not report its time. */
aoticache_status aoticache_remote_clock(aoticache_remote *remote, int64_t *ret_ahead_ms, aoticache_error *ret_error);
aoticache_status aoticache_remote_acquire(aoticache_remote *remote, const char *name, const char *token,
                                          uint32_t ttl_ms, aoticache_error *ret_error);
aoticache_status aoticache_remote_release(aoticache_remote *remote, const char *name, const char *token,
                                          aoticache_error *ret_error);

/* Returns a message without the name of the remote before it. */
const char *aoticache_remote_reason(const aoticache_remote *remote, const char *message);

/* Begin and end a fetch: between the two calls all requests of this thread share the time limit of one request, so a lookup
 * waits no longer than that. */
void aoticache_remote_begin_fetch(const aoticache_remote *remote);
void aoticache_remote_end_fetch(void);

/* A subscription to the release of a lease. */
typedef struct aoticache_lease_subscription {
    aoticache_remote *remote;
    void *opened; /* a separate connection; NULL: not subscribed */
    char name[AOTICACHE_REMOTE_NAME_BYTES + 80];
} aoticache_lease_subscription;
/* Subscribes, so that wait() is notified. OK; UNSUPPORTED: this kind of server does not notify; otherwise why not. Pass
 * *ret_subscription to stop_listening() in any case. */
aoticache_status aoticache_remote_listen(aoticache_remote *remote, const char *name,
                                         aoticache_lease_subscription *ret_subscription);
/* Waits for the release of the lease. OK: the lease was released. NOT_FOUND: it was not released in that time. Otherwise the
 * connection is no longer usable. */
aoticache_status aoticache_remote_wait(aoticache_lease_subscription *subscription, uint32_t ms);
void aoticache_remote_stop_listening(aoticache_lease_subscription *subscription);

/* Gets a small text, followed by a zero byte; the caller frees it with free(). CORRUPT if it contains a zero byte, or is not
 * an ActionResult although it must be one. */
aoticache_status aoticache_remote_get_text(aoticache_remote *remote, aoticache_remote_use use, const char *name,
                                           uint64_t max_bytes, char **ret_text, size_t *ret_size, char *ret_version,
                                           aoticache_error *ret_error);
aoticache_status aoticache_remote_put_text(aoticache_remote *remote, const char *name, const char *text, size_t size,
                                           const char *condition, aoticache_error *ret_error);

/* ---- health.c ---- */

/* Returns whether a miss may send requests of this kind, which it may not during a backoff. From then on the log reports
 * when a backoff begins. Requests of a user are made in any case. */
bool aoticache_remote_may_ask(aoticache_remote *remote, aoticache_remote_use use);
/* Note the result of opening a connection and of a request. is_step: the request is a step of a write before the last one:
 * it checked the server's contents, or wrote an object whose record follows. Its success does not mean that the write
 * succeeds. */
void aoticache_remote_note_opening(aoticache_remote *remote, aoticache_status status, const char *message);
void aoticache_remote_note_answer(aoticache_remote *remote, aoticache_remote_use use, bool is_step,
                                  aoticache_status status, const char *message);

/* ---- connection.c: recent negative results ---- */

/* A recent result for a key. */
typedef enum aoticache_remote_recent {
    AOTICACHE_REMOTE_NOT_SEEN, /* it was not requested, or had the wanted entry */
    AOTICACHE_REMOTE_NOTHING,
    AOTICACHE_REMOTE_REFUSED, /* an entry that was damaged, or not signed by a trusted key */
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
    char *signatures; /* one per line; "": none */
    int64_t created_ns;
} aoticache_record_entry;

typedef struct aoticache_record {
    aoticache_key key;
    aoticache_record_entry *entries; /* the most demanding first, and the newest first of equally demanding ones */
    size_t count;
} aoticache_record;

/* Parses a record. The text is untrusted. OK, CORRUPT, UNSUPPORTED (a newer format), NO_MEMORY. */
aoticache_status aoticache_record_parse(const char *text, size_t size, const aoticache_key *key,
                                        aoticache_record *ret_record, aoticache_error *ret_error);
/* Adds an entry, or replaces the one with the same requirements and guard; if the artifact is the same, signatures of other
 * keys are kept. If there are too many entries, the oldest is dropped. *ret_changed: the record has changed. NO_MEMORY. */
aoticache_status aoticache_record_put(aoticache_record *record, const aoticache_record_entry *entry, bool *ret_changed,
                                      aoticache_error *ret_error);
/* Returns whether the entry has no signature but would replace one that has. */
bool aoticache_record_prefers_signed(const aoticache_record *record, const aoticache_record_entry *entry);
/* Writes canonical JSON; the caller frees it with free(). NO_MEMORY. */
aoticache_status aoticache_record_format(const aoticache_record *record, char **ret_text, size_t *ret_size,
                                         aoticache_error *ret_error);
void aoticache_record_clear(aoticache_record *record);

/* One line of a list of keys. */
typedef struct aoticache_list_row {
    aoticache_key key;
    const char *op, *device;
    const char *tags; /* separated by commas; "": none */
} aoticache_list_row;
/* Return false to stop. The strings are valid during the call. */
typedef bool (*aoticache_list_fn)(void *user, const aoticache_list_row *row);
/* Parses a list in place: it changes the text. OK, CORRUPT. */
aoticache_status aoticache_list_parse(char *text, unsigned first_byte, aoticache_list_fn callback, void *user,
                                      aoticache_error *ret_error);

/* ---- fetch.c, signature_check.c, send.c ---- */

/* Reads the record of a key. OK, NOT_FOUND, and the results of a request; CORRUPT, UNSUPPORTED if the record cannot be used. */
aoticache_status aoticache_remote_read_record(aoticache_remote *remote, const aoticache_key *key,
                                              aoticache_record *ret_record, aoticache_error *ret_error);

/*
 * Decides whether a received entry may be imported; the statement that must be signed is built from its manifest.
 * Returns OK (see ret_verdict), or why it could not be decided, which means no.
 */
aoticache_status aoticache_remote_decide(aoticache_cache *cache, const aoticache_remote *remote,
                                         const aoticache_digest *artifact, const aoticache_manifest *manifest,
                                         const char *signatures, const aoticache_key *wanted,
                                         aoticache_trust_verdict *ret_verdict, aoticache_error *ret_error);

/* Gives the signatures of an entry of the cache and those of the signers, one per line; the caller frees the text with
 * free(). */
aoticache_status aoticache_remote_signatures(aoticache_cache *cache, const aoticache_digest *artifact,
                                             const aoticache_manifest *manifest,
                                             const aoticache_secret_key *const *signers, size_t count, char **ret_text,
                                             aoticache_error *ret_error);

/*
 * Fetches an entry of a record into an import batch. *ret_good: it was queued or exists already; otherwise it was refused
 * and logged. Returns: OK; IO, DENIED: the remote fails; and the errors of the import batch.
 */
aoticache_status aoticache_remote_fetch(aoticache_intake *intake, aoticache_remote *remote, const aoticache_key *key,
                                        const aoticache_record_entry *entry, bool *ret_good,
                                        aoticache_error *ret_error);

/*
 * Brings those entries of a key that this CPU meets and that are not served here yet: the most demanding first, for each
 * guard one. filter: NULL: exact entries and all guards; otherwise one whose guard it accepts.
 * Returns: OK, NOT_FOUND (no record); CORRUPT, UNSUPPORTED (a record that cannot be used); and as aoticache_remote_fetch().
 */
aoticache_status aoticache_remote_fetch_key(aoticache_intake *intake, aoticache_remote *remote,
                                            const aoticache_key *key, const aoticache_guard_filter *filter,
                                            size_t *ret_brought, aoticache_error *ret_error);

/* Parameters for sending entries. */
typedef struct aoticache_remote_sending {
    const aoticache_secret_key *const *signers;
    size_t signer_count;
    bool replaces;              /* also send objects that exist on the server: they may be damaged */
    aoticache_continue_fn poll; /* NULL: never stop early */
    void *user;
    aoticache_transfer_report *report; /* objects, bytes and archive_bytes are added to */
} aoticache_remote_sending;

/* Sends an entry of the cache: its objects, then its record. Returns: OK; CORRUPT, UNSUPPORTED (it is not sent, with the
 * reason); the results of a request. */
aoticache_status aoticache_remote_send(aoticache_cache *cache, aoticache_remote *remote,
                                       const aoticache_digest *artifact, const aoticache_remote_sending *sending,
                                       aoticache_error *ret_error);

/* ---- push.c ---- */

/* Adds the key of an entry of the cache to the remote's lists. Returns as aoticache_remote_send(). */
aoticache_status aoticache_remote_list_entry(aoticache_cache *cache, aoticache_remote *remote,
                                             const aoticache_digest *artifact, aoticache_error *ret_error);

/* ---- probe.c: the file that health checks leave on a remote ---- */

#define AOTICACHE_REMOTE_PROBE "probe"
typedef struct aoticache_remote_probe {
    char *text; /* freed with free(); the other members borrow from it */
    aoticache_statement statement;
    const char *signatures; /* one per line; not verified */
} aoticache_remote_probe;

/* Returns as aoticache_statement_sign() and a request. */
aoticache_status aoticache_remote_write_probe(aoticache_remote *remote, const aoticache_secret_key *const *signers,
                                              size_t signer_count, aoticache_error *ret_error);
/* Returns: OK, NOT_FOUND, CORRUPT (not a probe), and the results of a request. */
aoticache_status aoticache_remote_read_probe(aoticache_remote *remote, aoticache_remote_probe *ret_probe,
                                             aoticache_error *ret_error);

/* ---- unsent.c: entries that still have to be sent to a remote. Failures are ignored ---- */

#define AOTICACHE_UNSENT_AT_ONCE 8
void aoticache_unsent_note(aoticache_cache *cache, const aoticache_digest *artifact);
/* Moves the entry to the end of the queue. reason: why no remote accepts it; NULL: it is tried again in its turn. */
void aoticache_unsent_postpone(aoticache_cache *cache, const aoticache_digest *artifact, const char *reason);
void aoticache_unsent_forget(aoticache_cache *cache, const aoticache_digest *artifact);
/* Lists entries that may be tried, the one that was tried longest ago first. Returns how many, at most `most` and
 * AOTICACHE_UNSENT_AT_ONCE. */
size_t aoticache_unsent_list(aoticache_cache *cache, aoticache_digest *ret_artifacts, size_t most);

/* ---- miss.c: what cache/get_or_compile.c does with remotes on a miss. Failures are not reported: the kernel is then compiled ---- */

/* Returns true if an entry for the target was fetched: look it up again. *ret_from: the number of the remote. */
bool aoticache_remote_miss_fetch(aoticache_cache *cache, const aoticache_lookup_target *target, size_t *ret_from);
/*
 * The right to compile a key, among all machines. Returns true if another machine compiled it during the wait and its entry
 * was fetched. Otherwise *ret_lease is for release(), or NULL: no remote has leases, or none could be acquired.
 */
typedef struct aoticache_remote_lease aoticache_remote_lease;
bool aoticache_remote_lease_take(aoticache_cache *cache, const aoticache_lookup_target *target,
                                 aoticache_remote_lease **ret_lease);
/* NULL is allowed. */
void aoticache_remote_lease_release(aoticache_remote_lease *lease);

/* Counts the use of a remote by a miss or a compile: how long it took, whether it failed, and backoffs that began. */
void aoticache_remote_miss_count(aoticache_cache *cache, aoticache_remote *remote, aoticache_latency_kind kind,
                                 uint64_t begun_ns, bool has_failed);

/* ---- sender.c ---- */

/* Queues an entry that was just stored for sending to all writable remotes; afterwards the lease, which may be NULL, is
 * released. */
void aoticache_remote_miss_publish(aoticache_cache *cache, const aoticache_key *key, const aoticache_digest *artifact,
                                   aoticache_remote_lease *lease);
/* Queues an entry fetched from remote `from` for sending, with its signatures, to the writable remotes before that one: the
 * nearer remotes are queried first. */
void aoticache_remote_miss_spread(aoticache_cache *cache, const aoticache_key *key, const aoticache_digest *artifact,
                                  size_t from);
/* Waits a few seconds for pending sends. The rest stays recorded. After that nothing is sent automatically. */
void aoticache_remote_miss_finish(aoticache_cache *cache);

/*
 * Checks whether a text names remotes in the form of the setting `remote`: OK, or INVALID with the reason. It does not
 * connect to them.
 */
aoticache_status aoticache_remotes_check(const char *remotes, aoticache_error *ret_error);

#endif
