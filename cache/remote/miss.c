/*
 * cache/remote/miss: requests of a miss to the remotes (cache/get_or_compile.c): the entry, and the right to compile it, among
 * all machines. sender.c sends compiled entries.
 *
 * A remote that backs off is not contacted, nor is one that recently did not have the key. Failures here do not fail the
 * request: if no remote helps, the kernel is compiled.
 *
 * The lease of a key is on the first writable remote that has leases, for LEASE_MS at a time. A thread renews it until the
 * kernel was sent. If its machine dies, the lease expires, and a waiting machine takes it. If the compile hangs, the other
 * machines compile after they have waited as long as for a compile of their own.
 *
 * A server that can (Redis) notifies waiting machines when the lease is released. They also poll, because a message may be
 * lost or an owner dead. Pauses vary at random by a quarter, so that machines do not poll in step.
 */
#include "cache/remote/remote_internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/names.h"
#include "base/threads.h"

#define LEASE_MS 30000
#define RENEW_MS 10000
#define TOLD_PAUSE_MS 1000    /* if the server notifies */
#define SHORTEST_PAUSE_MS 500 /* docs/fleet.md: S3 cannot answer 300 machines that poll more often */
#define LONGEST_PAUSE_MS 2000
#define PAUSES_IN_A_WAIT 8 /* a pause is this fraction of the time waited */
#define GRACE_MS 5000 /* how long a waiting machine tolerates a server that does not answer: it may be restarting */
#define SLICE_MS 100  /* interval of checks whether the program ends */
#define TOKEN_BYTES 33
#define NS_PER_MS UINT64_C(1000000)

void aoticache_remote_miss_count(aoticache_cache *cache, aoticache_remote *remote, aoticache_latency_kind kind,
                                 uint64_t begun_ns, bool has_failed)
{
    aoticache_cache_note_latency(cache, kind, aoticache_monotonic_ns() - begun_ns);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_remote_errors, has_failed);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_remote_backoffs, atomic_exchange(&remote->backoffs, 0));
}

/* ---- fetching ---- */

static bool fetch_from(aoticache_cache *cache, aoticache_remote *remote, const aoticache_lookup_target *target)
{
    aoticache_intake intake = {.cache = NULL};
    aoticache_transfer_report report = {.entries = 0};
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    aoticache_error detail = {.message = ""};
    size_t brought = 0;
    const uint64_t begun = aoticache_monotonic_ns();
    options.replace = true; /* no local entry serves this machine */
    options.allow_unsigned = remote->config.allow_unsigned;
    aoticache_status status = aoticache_intake_begin(&intake, cache, &options, &report, &detail);
    if (status == AOTICACHE_OK) {
        intake.is_foreign = intake.is_remote = true;
        intake.place = remote->config.url;
        intake.told = remote->told;
        aoticache_remote_begin_fetch(remote);
        status = aoticache_remote_fetch_key(&intake, remote, &target->key, target->filter, &brought, &detail);
        aoticache_remote_end_fetch();
    }
    if (status == AOTICACHE_OK)
        status = aoticache_intake_commit(&intake, &detail);
    aoticache_intake_end(&intake);
    aoticache_remote_note_result(remote, &target->key,
                                 report.entries > 0                                        ? AOTICACHE_REMOTE_NOT_SEEN
                                 : report.refused > 0 || status == AOTICACHE_CORRUPT       ? AOTICACHE_REMOTE_REFUSED
                                 : status == AOTICACHE_NOT_FOUND || status == AOTICACHE_OK ? AOTICACHE_REMOTE_NOTHING
                                                                                           : AOTICACHE_REMOTE_NOT_SEEN);
    const bool has_failed = status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND;
    aoticache_remote_miss_count(cache, remote, AOTICACHE_LATENCY_fetch, begun, has_failed);
    if (has_failed) /* an unreachable server was already reported once (connection.c) */
        aoticache_log(&cache->directory->logger,
                      status == AOTICACHE_CORRUPT ? AOTICACHE_LOG_WARNING : AOTICACHE_LOG_DEBUG,
                      "a kernel is not fetched: %s", detail.message);
    if (report.entries_gone > 0) /* a server may delete what was not used for long */
        aoticache_log(&cache->directory->logger, AOTICACHE_LOG_INFO,
                      "a kernel is not fetched: remote %s: it has the record, but not all of its objects",
                      remote->config.url);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_remote_refused, report.refused + report.entries_gone);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_fetched_bytes, report.bytes);
    return report.entries > 0;
}

/* least: skip remotes whose recent result for the key is above this level: NOTHING lets remotes be queried again that
 * recently lacked it. Returns the number of the remote that had it, or the number of remotes. */
static size_t fetch_from_one(aoticache_cache *cache, const aoticache_lookup_target *target,
                             aoticache_remote_recent least)
{
    const size_t count = cache->remotes != NULL ? cache->remotes->count : 0;
    for (size_t i = 0; i < count; i++) {
        aoticache_remote *remote = &cache->remotes->items[i];
        if (remote->config.reads && aoticache_remote_may_ask(remote, AOTICACHE_REMOTE_READ) &&
            aoticache_remote_recent_result(remote, &target->key) <= least && fetch_from(cache, remote, target))
            return i;
    }
    return count;
}

static bool fetch(aoticache_cache *cache, const aoticache_lookup_target *target, aoticache_remote_recent least)
{
    return cache->remotes != NULL && fetch_from_one(cache, target, least) < cache->remotes->count;
}

bool aoticache_remote_miss_fetch(aoticache_cache *cache, const aoticache_lookup_target *target, size_t *ret_from)
{
    *ret_from = fetch_from_one(cache, target, AOTICACHE_REMOTE_NOT_SEEN);
    return cache->remotes != NULL && *ret_from < cache->remotes->count;
}

/* ---- the lease ---- */

struct aoticache_remote_lease {
    aoticache_remote *remote;
    char name[AOTICACHE_REMOTE_NAME_BYTES], token[TOKEN_BYTES];
    pthread_t thread;
    bool has_thread, is_over; /* is_over: protected by the mutex */
    pthread_mutex_t mutex;
    pthread_cond_t end;
};

static void *renew(void *user)
{
    aoticache_remote_lease *lease = user;
    pthread_mutex_lock(&lease->mutex);
    while (!lease->is_over) {
        const struct timespec until = aoticache_deadline_after(RENEW_MS * NS_PER_MS);
        if (pthread_cond_timedwait(&lease->end, &lease->mutex, &until) == 0 || lease->is_over)
            continue;
        pthread_mutex_unlock(&lease->mutex); /* the request must not make release() wait for the mutex */
        aoticache_remote_acquire(lease->remote, lease->name, lease->token, LEASE_MS, NULL);
        pthread_mutex_lock(&lease->mutex);
    }
    pthread_mutex_unlock(&lease->mutex);
    return NULL;
}

/* Starts a thread that renews the lease. If no thread can be started, the lease expires early, and another machine may
 * compile too. */
static void begin_renewing(aoticache_remote_lease *lease)
{
    aoticache_condition_init(&lease->end);
    pthread_mutex_init(&lease->mutex, NULL);
    lease->has_thread = aoticache_threads_start(&lease->thread, 1, NULL, renew, lease) == 1;
}

/*
 * Makes the token of a key, which is the same for all processes of a directory until the next boot: if a process was killed,
 * the next one gets its lease immediately, and the directory's lease (store/lock.h) keeps them apart. Returns false if it
 * cannot be determined.
 */
static bool make_token(aoticache_cache *cache, const aoticache_key *key, char ret_token[TOKEN_BYTES])
{
    struct {
        int64_t boot;
        uint64_t device, inode;
        aoticache_key key;
        char host[HOST_NAME_MAX + 1];
    } named;
    struct stat root;
    aoticache_digest digest;
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    memset(&named, 0, sizeof named);
    named.boot = aoticache_boot_number();
    if (named.boot == 0 || fstat(cache->directory->fd, &root) != 0 ||
        gethostname(named.host, sizeof named.host - 1) != 0)
        return false;
    named.device = root.st_dev;
    named.inode = root.st_ino;
    named.key = *key;
    if (aoticache_digest_of(&named, sizeof named, &digest) != AOTICACHE_OK)
        return false;
    aoticache_digest_to_hex(&digest, hex);
    memcpy(ret_token, hex, TOKEN_BYTES - 1);
    ret_token[TOKEN_BYTES - 1] = '\0';
    return true;
}

static aoticache_remote_lease *make_lease(aoticache_cache *cache, aoticache_remote *remote, const aoticache_key *key)
{
    aoticache_remote_lease *lease = calloc(1, sizeof *lease);
    if (lease == NULL || !make_token(cache, key, lease->token)) {
        free(lease);
        return NULL;
    }
    lease->remote = remote;
    aoticache_remote_lease_name(key, lease->name);
    return lease;
}

/* Returns whether a lease is requested from the remote. */
static bool may_have_leases(aoticache_remote *remote)
{
    return remote->config.reads && remote->config.writes && !remote->config.is_bazel &&
           !atomic_load(&remote->lacks_leases) && aoticache_remote_may_ask(remote, AOTICACHE_REMOTE_LEASE) &&
           aoticache_remote_may_ask(remote, AOTICACHE_REMOTE_WRITE) &&
           aoticache_remote_prepare(remote, NULL) == AOTICACHE_OK && remote->module.acquire != NULL;
}

static void note_lack(aoticache_remote *remote, const char *message)
{
    if (!atomic_exchange(&remote->lacks_leases, true))
        aoticache_log(remote->logger, AOTICACHE_LOG_INFO,
                      "%s; if no other remote supports leases, each machine compiles", message);
}

/* Requests the lease from the first remote that has leases. *ret_lease: NULL if none has. Returns the result of acquire. */
static aoticache_status ask_for_lease(aoticache_cache *cache, const aoticache_key *key,
                                      aoticache_remote_lease **ret_lease)
{
    *ret_lease = NULL;
    for (size_t i = 0; cache->remotes != NULL && i < cache->remotes->count; i++) {
        aoticache_remote *remote = &cache->remotes->items[i];
        aoticache_error detail = {.message = ""};
        aoticache_remote_lease *lease = may_have_leases(remote) ? make_lease(cache, remote, key) : NULL;
        if (lease == NULL)
            continue;
        aoticache_status status = aoticache_remote_acquire(remote, lease->name, lease->token, LEASE_MS, &detail);
        if (status == AOTICACHE_OK || status == AOTICACHE_LOCKED) {
            *ret_lease = lease;
            return status;
        }
        free(lease);
        if (status != AOTICACHE_UNSUPPORTED)
            return status;
        note_lack(remote, detail.message);
    }
    return AOTICACHE_UNSUPPORTED;
}

/* One machine's wait for another machine's compile. */
struct wait {
    aoticache_remote_lease *lease;
    aoticache_lease_subscription subscription;
    uint64_t begun_ns, limit_ns; /* limit_ns: 0: none */
    uint64_t answered_ns;        /* when the server last answered */
    bool is_subscribed, has_tried_to_subscribe;
};

static uint32_t pause_of(const struct wait *wait)
{
    const uint64_t now = aoticache_monotonic_ns();
    uint64_t ms = (now - wait->begun_ns) / NS_PER_MS / PAUSES_IN_A_WAIT;
    ms = ms < SHORTEST_PAUSE_MS ? SHORTEST_PAUSE_MS : ms > LONGEST_PAUSE_MS ? LONGEST_PAUSE_MS : ms;
    if (wait->is_subscribed)
        ms = TOLD_PAUSE_MS;
    return (uint32_t)(ms * (96 + (now / 1000 ^ wait->lease->token[0] ^ wait->lease->token[1]) % 64) / 128);
}

static bool is_over(const struct wait *wait)
{
    return aoticache_compiles_are_cancelled() ||
           (wait->limit_ns != 0 && aoticache_monotonic_ns() - wait->begun_ns >= wait->limit_ns);
}

/* Waits until the lease was released, if the server notifies, or for a pause. Returns true if the server notified. */
static bool wait_a_while(struct wait *wait)
{
    if (!wait->has_tried_to_subscribe) { /* if it is released before the subscription, the next request finds that */
        wait->has_tried_to_subscribe = true;
        wait->is_subscribed =
            aoticache_remote_listen(wait->lease->remote, wait->lease->name, &wait->subscription) == AOTICACHE_OK;
        if (wait->is_subscribed)
            return false;
    }
    for (uint32_t left = pause_of(wait); left > 0 && !is_over(wait);) {
        const uint32_t ms = left < SLICE_MS ? left : SLICE_MS;
        left -= ms;
        if (!wait->is_subscribed) {
            nanosleep(&(struct timespec){.tv_nsec = (long)(ms * NS_PER_MS)}, NULL);
            continue;
        }
        aoticache_status status = aoticache_remote_wait(&wait->subscription, ms);
        if (status == AOTICACHE_OK)
            return true;
        if (status != AOTICACHE_NOT_FOUND) {
            aoticache_remote_stop_listening(&wait->subscription);
            wait->is_subscribed = wait->has_tried_to_subscribe = false;
        }
    }
    return false;
}

/* Notes an answer to a request for the lease. Returns whether to continue waiting: another machine has it, or the server is
 * unavailable for a moment. */
static bool continues(struct wait *wait, aoticache_status status)
{
    const uint64_t now = aoticache_monotonic_ns();
    if (status == AOTICACHE_OK || status == AOTICACHE_LOCKED)
        wait->answered_ns = now;
    return status != AOTICACHE_OK && now - wait->answered_ns < GRACE_MS * NS_PER_MS && !is_over(wait);
}

/* Waits until the entry was fetched (returns true), or this machine has the lease, or the wait ends (then *wait->lease is
 * not a lease). */
static bool wait_for_entry(aoticache_cache *cache, const aoticache_lookup_target *target, struct wait *wait,
                           aoticache_status *ret_status)
{
    do {
        const bool was_told = wait_a_while(wait);
        if (was_told && fetch(cache, target, AOTICACHE_REMOTE_REFUSED)) {
            *ret_status = AOTICACHE_LOCKED; /* it was not requested: many machines are notified at the same moment */
            return true;
        }
        *ret_status =
            aoticache_remote_acquire(wait->lease->remote, wait->lease->name, wait->lease->token, LEASE_MS, NULL);
        if (!was_told && fetch(cache, target, AOTICACHE_REMOTE_REFUSED))
            return true;
    } while (continues(wait, *ret_status));
    return false;
}

bool aoticache_remote_lease_take(aoticache_cache *cache, const aoticache_lookup_target *target,
                                 aoticache_remote_lease **ret_lease)
{
    const uint64_t begun = aoticache_monotonic_ns();
    struct wait wait = {.begun_ns = begun, .answered_ns = begun, .limit_ns = cache->compile_timeout_ms * NS_PER_MS};
    aoticache_status status = ask_for_lease(cache, &target->key, &wait.lease);
    bool has_come = false;
    *ret_lease = NULL;
    if (wait.lease == NULL)
        return false;
    if (status == AOTICACHE_OK) /* the previous owner may have stored the entry after the last request */
        has_come = fetch(cache, target, AOTICACHE_REMOTE_NOTHING);
    else
        has_come = wait_for_entry(cache, target, &wait, &status);
    aoticache_remote_stop_listening(&wait.subscription);
    if (has_come && status == AOTICACHE_OK)
        aoticache_remote_release(wait.lease->remote, wait.lease->name, wait.lease->token, NULL);
    if (has_come || status != AOTICACHE_OK) {
        free(wait.lease);
        return has_come;
    }
    begin_renewing(wait.lease);
    *ret_lease = wait.lease;
    return false;
}

void aoticache_remote_lease_release(aoticache_remote_lease *lease)
{
    if (lease == NULL)
        return;
    pthread_mutex_lock(&lease->mutex);
    lease->is_over = true;
    pthread_cond_signal(&lease->end);
    pthread_mutex_unlock(&lease->mutex);
    if (lease->has_thread)
        pthread_join(lease->thread, NULL);
    if (aoticache_remote_may_ask(lease->remote, AOTICACHE_REMOTE_LEASE)) /* otherwise it expires */
        aoticache_remote_release(lease->remote, lease->name, lease->token, NULL);
    pthread_cond_destroy(&lease->end);
    pthread_mutex_destroy(&lease->mutex);
    free(lease);
}
