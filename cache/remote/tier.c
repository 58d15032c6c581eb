/*
 * cache/remote/tier: what a miss asks of the remotes (cache/compile.c): the entry; the right to compile it, for all machines;
 * and that others get what was compiled.
 *
 * A remote that rests is not asked, and a key that it did not have a short time ago is not asked for. Nothing here fails a
 * miss: where a remote does not help, the kernel is compiled.
 *
 * The lease of a key lies on the first remote that is written to and has leases, for LEASE_MS at a time. A thread makes it
 * longer while the compile runs. If its machine dies, the lease ends by itself, and one that waits takes it. If the compile
 * hangs, the others compile when they have waited as long as for a compile of their own machine.
 */
#include "cache/remote/internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/cleanup.h"

#define LEASE_MS 30000
#define RENEW_MS 10000
#define FIRST_PAUSE_MS 20
#define LONGEST_PAUSE_MS 250
#define TOKEN_BYTES 33
#define SENT_AT_ONCE 8
#define NS_PER_MS UINT64_C(1000000)

/* ---- fetching ---- */

static bool may_ask(aoticache_remote *remote)
{
    atomic_store(&remote->serves_misses, true);
    return aoticache_remote_is_awake(remote);
}

static bool fetch_from(aoticache_cache *cache, aoticache_remote *remote, const aoticache_lookup_target *target)
{
    aoticache_intake intake = {.cache = NULL};
    aoticache_transfer_report report = {.entries = 0};
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    aoticache_error detail = {.message = ""};
    size_t brought = 0;
    options.replace = true; /* nothing that is here serves this machine */
    options.allow_unsigned = remote->config.allow_unsigned;
    aoticache_status status = aoticache_intake_begin(&intake, cache, &options, &report, &detail);
    if (status == AOTICACHE_OK) {
        intake.is_foreign = true;
        status = aoticache_remote_fetch_key(&intake, remote, &target->key, target->accept, target->accept_user, &brought,
                                            &detail);
    }
    if (status == AOTICACHE_OK)
        status = aoticache_intake_commit(&intake, &detail);
    aoticache_intake_end(&intake);
    aoticache_remote_note_sight(remote, &target->key,
                                report.entries > 0                                ? AOTICACHE_REMOTE_NOT_SEEN
                                : report.refused > 0 || status == AOTICACHE_CORRUPT ? AOTICACHE_REMOTE_REFUSED
                                : status == AOTICACHE_NOT_FOUND || status == AOTICACHE_OK
                                    ? AOTICACHE_REMOTE_NOTHING
                                    : AOTICACHE_REMOTE_NOT_SEEN);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND) {
        aoticache_cache_count(cache, AOTICACHE_COUNTER_remote_errors, 1);
        /* When a server cannot be reached, that has been said once (server.c). */
        aoticache_log(&cache->directory->logger,
                      status == AOTICACHE_CORRUPT ? AOTICACHE_LOG_WARNING : AOTICACHE_LOG_DEBUG,
                      "a kernel is not fetched: %s", detail.message);
    }
    aoticache_cache_count(cache, AOTICACHE_COUNTER_remote_refused, report.refused);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_fetched_bytes, report.bytes);
    return report.entries > 0;
}

/* least: what was seen a moment ago that is no reason not to ask again: nothing may have become something. */
static bool fetch(aoticache_cache *cache, const aoticache_lookup_target *target, aoticache_remote_sight least)
{
    bool is_found = false;
    for (size_t i = 0; cache->remotes != NULL && !is_found && i < cache->remotes->count; i++) {
        aoticache_remote *remote = &cache->remotes->items[i];
        if (remote->config.reads && may_ask(remote) && aoticache_remote_look_back(remote, &target->key) <= least)
            is_found = fetch_from(cache, remote, target);
    }
    return is_found;
}

bool aoticache_tier_fetch(aoticache_cache *cache, const aoticache_lookup_target *target)
{
    return fetch(cache, target, AOTICACHE_REMOTE_NOT_SEEN);
}

/* ---- the lease ---- */

struct aoticache_tier_lease {
    aoticache_remote *remote;
    char name[AOTICACHE_REMOTE_NAME_BYTES], token[TOKEN_BYTES];
    pthread_t thread;
    bool has_thread, is_over; /* is_over: with the mutex */
    pthread_mutex_t mutex;
    pthread_cond_t end;
};

static void *renew(void *user)
{
    aoticache_tier_lease *lease = user;
    pthread_mutex_lock(&lease->mutex);
    while (!lease->is_over) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += RENEW_MS / 1000;
        if (pthread_cond_timedwait(&lease->end, &lease->mutex, &until) == 0 || lease->is_over)
            continue;
        pthread_mutex_unlock(&lease->mutex); /* a request must not keep release() waiting for the mutex */
        aoticache_remote_acquire(lease->remote, lease->name, lease->token, LEASE_MS, NULL);
        pthread_mutex_lock(&lease->mutex);
    }
    pthread_mutex_unlock(&lease->mutex);
    return NULL;
}

/* Where no thread can be started, the lease ends early, and another machine may compile too. */
static void begin_renewing(aoticache_tier_lease *lease)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&lease->end, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&lease->mutex, NULL);
    sigset_t all, before;
    sigfillset(&all); /* the host's signals are for the host's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    lease->has_thread = pthread_create(&lease->thread, NULL, renew, lease) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static aoticache_tier_lease *make_lease(aoticache_remote *remote, const aoticache_key *key)
{
    uint8_t random[(TOKEN_BYTES - 1) / 2];
    aoticache_tier_lease *lease = calloc(1, sizeof *lease);
    if (lease == NULL || getrandom(random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random) {
        free(lease);
        return NULL;
    }
    lease->remote = remote;
    aoticache_remote_lease_name(key, lease->name);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(lease->token + 2 * i, 3, "%02x", random[i]);
    return lease;
}

static aoticache_remote *remote_with_leases(aoticache_cache *cache)
{
    for (size_t i = 0; cache->remotes != NULL && i < cache->remotes->count; i++) {
        aoticache_remote *remote = &cache->remotes->items[i];
        if (remote->config.reads && remote->config.writes && may_ask(remote) &&
            aoticache_remote_prepare(remote, NULL) == AOTICACHE_OK && remote->module->acquire != NULL)
            return remote;
    }
    return NULL;
}

static void pause_ms(uint32_t ms)
{
    const struct timespec pause = {.tv_nsec = (long)ms * 1000000};
    nanosleep(&pause, NULL);
}

bool aoticache_tier_lease_take(aoticache_cache *cache, const aoticache_lookup_target *target, aoticache_tier_lease **ret_lease)
{
    const uint64_t begun = aoticache_monotonic_ns();
    const uint64_t limit = cache->compile_timeout_ms * NS_PER_MS; /* 0: none */
    aoticache_remote *remote = remote_with_leases(cache);
    aoticache_tier_lease *lease = remote != NULL ? make_lease(remote, &target->key) : NULL;
    *ret_lease = NULL;
    if (lease == NULL)
        return false;
    bool has_waited = false;
    for (uint32_t ms = FIRST_PAUSE_MS;; ms = ms * 2 < LONGEST_PAUSE_MS ? ms * 2 : LONGEST_PAUSE_MS) {
        aoticache_status status = aoticache_remote_acquire(remote, lease->name, lease->token, LEASE_MS, NULL);
        /* Who had it may have stored the entry between our question and this moment. */
        if ((has_waited || status == AOTICACHE_OK) &&
            fetch(cache, target, has_waited ? AOTICACHE_REMOTE_REFUSED : AOTICACHE_REMOTE_NOTHING)) {
            if (status == AOTICACHE_OK)
                aoticache_remote_release(remote, lease->name, lease->token, NULL);
            free(lease);
            return true;
        }
        if (status == AOTICACHE_OK) {
            begin_renewing(lease);
            *ret_lease = lease;
            return false;
        }
        if (status != AOTICACHE_LOCKED || (limit != 0 && aoticache_monotonic_ns() - begun >= limit)) {
            free(lease);
            return false;
        }
        has_waited = true;
        pause_ms(ms);
    }
}

void aoticache_tier_lease_release(aoticache_tier_lease *lease)
{
    if (lease == NULL)
        return;
    pthread_mutex_lock(&lease->mutex);
    lease->is_over = true;
    pthread_cond_signal(&lease->end);
    pthread_mutex_unlock(&lease->mutex);
    if (lease->has_thread)
        pthread_join(lease->thread, NULL);
    aoticache_remote_release(lease->remote, lease->name, lease->token, NULL);
    pthread_cond_destroy(&lease->end);
    pthread_mutex_destroy(&lease->mutex);
    free(lease);
}

/* ---- sending what was compiled ---- */

/* OK; CORRUPT, UNSUPPORTED: it stays here for good; else what the remote's failure is. */
static aoticache_status send_to(aoticache_cache *cache, aoticache_remote *remote, const aoticache_digest *artifact,
                                bool replaces)
{
    aoticache_transfer_report report = {.entries = 0};
    aoticache_remote_sending sending = {.report = &report, .replaces = replaces};
    aoticache_error detail = {.message = ""};
    aoticache_status status = aoticache_cache_signers(cache, &sending.signers, &sending.signer_count, &detail);
    const bool has_signers = status == AOTICACHE_OK;
    if (has_signers)
        status = aoticache_remote_send(cache, remote, artifact, &sending, &detail);
    if (status == AOTICACHE_OK)
        status = aoticache_remote_list_entry(cache, remote, artifact, &detail);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_sent_bytes, report.archive_bytes);
    if (status == AOTICACHE_OK)
        return status;
    aoticache_cache_count(cache, AOTICACHE_COUNTER_remote_errors, 1);
    /* A server that fails has been named once (server.c); a secret key that cannot be read, or a kernel that is too large, not. */
    const bool is_ours = !has_signers || status == AOTICACHE_CORRUPT || status == AOTICACHE_UNSUPPORTED;
    aoticache_log(&cache->directory->logger, is_ours ? AOTICACHE_LOG_WARNING : AOTICACHE_LOG_DEBUG,
                  "a kernel is not sent to %s: %s", remote->config.url, detail.message);
    return status;
}

/* To all remotes that are written to; false where it is to be tried again. key: NULL: of one that was left before. */
static bool send_to_all(aoticache_cache *cache, const aoticache_key *key, const aoticache_digest *artifact)
{
    bool is_done = true;
    for (size_t i = 0; i < cache->remotes->count; i++) {
        aoticache_remote *remote = &cache->remotes->items[i];
        if (!remote->config.writes)
            continue;
        const bool replaces = key != NULL && aoticache_remote_look_back(remote, key) == AOTICACHE_REMOTE_REFUSED;
        aoticache_status status = may_ask(remote) ? send_to(cache, remote, artifact, replaces) : AOTICACHE_IO;
        is_done = is_done && (status == AOTICACHE_OK || status == AOTICACHE_CORRUPT || status == AOTICACHE_UNSUPPORTED);
    }
    return is_done;
}

static bool is_written_to(const aoticache_remotes *remotes)
{
    for (size_t i = 0; remotes != NULL && i < remotes->count; i++)
        if (remotes->items[i].config.writes)
            return true;
    return false;
}

void aoticache_tier_send(aoticache_cache *cache, const aoticache_key *key, const aoticache_digest *artifact)
{
    if (!is_written_to(cache->remotes))
        return;
    aoticache_unsent_note(cache, artifact);
    if (send_to_all(cache, key, artifact))
        aoticache_unsent_forget(cache, artifact);
}

void aoticache_tier_send_rest(aoticache_cache *cache)
{
    aoticache_digest rest[SENT_AT_ONCE];
    if (!is_written_to(cache->remotes))
        return;
    const size_t count = aoticache_unsent_list(cache, rest, SENT_AT_ONCE);
    for (size_t i = 0; i < count; i++) {
        if (!send_to_all(cache, NULL, &rest[i]))
            return; /* the remote is still not there */
        aoticache_unsent_forget(cache, &rest[i]);
    }
}
