/*
 * cache/remote/sender: sends compiled entries to the remotes in a separate thread, so that no caller waits for a network.
 *
 * An entry that waits for the thread is recorded in unsent/ (unsent.c), so a later process sends the entries that were not
 * sent before the process ended. If one server refuses an entry, the other entries are still sent. The lease of the key is
 * released after its entry was sent, so that a machine that waits for it finds the entry. If more than QUEUE entries wait,
 * the caller sends its entry itself.
 */
#include "cache/remote/remote_internal.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"

#define QUEUE 64
#define FINISH_NS UINT64_C(5000000000) /* how long closing a cache or the end of a process waits for the rest */

struct parcel {
    aoticache_key key;
    aoticache_digest artifact;
    aoticache_remote_lease *lease;
    size_t remotes; /* number of remotes to send to, from the first on */
    bool is_ours;   /* compiled here: it is then signed, and recorded until it is sent */
};

struct aoticache_sender {
    aoticache_cache *cache;
    pthread_t thread;
    pthread_mutex_t mutex; /* protects the members below */
    pthread_cond_t change;
    struct parcel queue[QUEUE];
    size_t first, count;
    bool is_sending, is_over;
};

/* ---- one entry ---- */

static bool continues(void *user)
{
    return !atomic_load(&((aoticache_cache *)user)->remotes->is_abandoned);
}

/* Logs once that entries are not signed although remotes are written to: other machines refuse entries without a signature. */
static void tell_unsigned(aoticache_cache *cache, const aoticache_remote *remote)
{
    if (remote->config.allow_unsigned || atomic_exchange(&cache->remotes->has_told_unsigned, true))
        return;
    aoticache_log(&cache->directory->logger, AOTICACHE_LOG_WARNING,
                  "remote %s: kernels are sent there without a signature, and other machines "
                  "refuse them; to sign them: aoticache key generate, then aoticache push --all",
                  remote->config.url);
}

/* Returns: OK; CORRUPT: it will never be sent; UNSUPPORTED: the remote does not accept it; otherwise the remote's failure. */
static aoticache_status send_to(aoticache_cache *cache, aoticache_remote *remote, const aoticache_digest *artifact,
                                bool replaces, bool signs, aoticache_error *ret_error)
{
    aoticache_transfer_report report = {.entries = 0};
    aoticache_remote_sending sending = {.report = &report, .replaces = replaces, .poll = continues, .user = cache};
    aoticache_error detail = {.message = ""};
    const uint64_t begun = aoticache_monotonic_ns();
    aoticache_status status =
        signs ? aoticache_cache_signers(cache, &sending.signers, &sending.signer_count, &detail) : AOTICACHE_OK;
    const bool has_signers = status == AOTICACHE_OK;
    if (has_signers && signs && sending.signer_count == 0)
        tell_unsigned(cache, remote);
    if (has_signers)
        status = aoticache_remote_send(cache, remote, artifact, &sending, &detail);
    if (status == AOTICACHE_OK)
        status = aoticache_remote_list_entry(cache, remote, artifact, &detail);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_sent_bytes, report.archive_bytes);
    aoticache_remote_miss_count(cache, remote, AOTICACHE_LATENCY_send, begun, status != AOTICACHE_OK);
    if (status == AOTICACHE_OK)
        return status;
    /* A failing server was reported once already (connection.c); an unreadable secret key, or a kernel that is too large,
     * was not. */
    const bool is_ours = !has_signers || status == AOTICACHE_CORRUPT || status == AOTICACHE_UNSUPPORTED;
    aoticache_log(&cache->directory->logger, is_ours ? AOTICACHE_LOG_WARNING : AOTICACHE_LOG_DEBUG,
                  "a kernel is not sent to %s: %s", remote->config.url,
                  aoticache_remote_reason(remote, detail.message));
    return aoticache_error_set(ret_error, status, "%s", detail.message);
}

/*
 * Sends to the writable remotes. is_first: this is the first try. Returns: OK: nothing is left to do. UNSUPPORTED: a remote
 * will never accept it, and ret_error has the reason. IO: it must be tried again.
 */
static aoticache_status send_everywhere(aoticache_cache *cache, const struct parcel *parcel, bool is_first,
                                        aoticache_error *ret_error)
{
    aoticache_status worst = AOTICACHE_OK;
    for (size_t i = 0; i < parcel->remotes; i++) {
        aoticache_remote *remote = &cache->remotes->items[i];
        if (!remote->config.writes)
            continue;
        const bool replaces =
            is_first && aoticache_remote_recent_result(remote, &parcel->key) == AOTICACHE_REMOTE_REFUSED;
        aoticache_status status = aoticache_remote_may_ask(remote, AOTICACHE_REMOTE_WRITE)
                                      ? send_to(cache, remote, &parcel->artifact, replaces, parcel->is_ours, ret_error)
                                      : AOTICACHE_IO;
        if (status != AOTICACHE_OK && status != AOTICACHE_CORRUPT && worst != AOTICACHE_IO)
            worst = status == AOTICACHE_UNSUPPORTED ? status : AOTICACHE_IO;
    }
    return worst;
}

/* Returns whether any remote could be written to now. */
static bool may_write(aoticache_cache *cache)
{
    for (size_t i = 0; i < cache->remotes->count; i++)
        if (cache->remotes->items[i].config.writes &&
            aoticache_remote_may_ask(&cache->remotes->items[i], AOTICACHE_REMOTE_WRITE))
            return true;
    return false;
}

/* Sends an entry, and updates its record. */
static void send_noted(aoticache_cache *cache, const struct parcel *parcel, bool is_first)
{
    aoticache_error detail = {.message = ""};
    aoticache_status status = send_everywhere(cache, parcel, is_first, &detail);
    if (!parcel->is_ours)
        return;
    if (status == AOTICACHE_OK)
        aoticache_unsent_forget(cache, &parcel->artifact);
    else if (continues(cache)) /* otherwise the try was not completed */
        aoticache_unsent_postpone(cache, &parcel->artifact, status == AOTICACHE_UNSUPPORTED ? detail.message : NULL);
}

/* Returns whether any of the first `count` remotes is writable. */
static bool is_written_to(const aoticache_remotes *remotes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (remotes->items[i].config.writes)
            return true;
    return false;
}

static void send_parcel(aoticache_cache *cache, const struct parcel *parcel)
{
    send_noted(cache, parcel, true);
    aoticache_remote_lease_release(parcel->lease);
}

/* Returns whether an entry is in the queue: it is then sent from there. */
static bool is_queued(aoticache_sender *sender, const aoticache_digest *artifact)
{
    bool is_there = false;
    pthread_mutex_lock(&sender->mutex);
    for (size_t i = 0; i < sender->count && !is_there; i++)
        is_there = aoticache_digest_equal(&sender->queue[(sender->first + i) % QUEUE].artifact, artifact);
    pthread_mutex_unlock(&sender->mutex);
    return is_there;
}

/* Sends some entries that could not be sent earlier, if there are any. */
static void send_rest(aoticache_sender *sender)
{
    aoticache_cache *cache = sender->cache;
    aoticache_digest rest[AOTICACHE_UNSENT_AT_ONCE];
    if (!may_write(cache))
        return;
    const size_t count = aoticache_unsent_list(cache, rest, AOTICACHE_UNSENT_AT_ONCE);
    for (size_t i = 0; i < count && continues(cache) && may_write(cache); i++) {
        const struct parcel parcel = {.artifact = rest[i], .remotes = cache->remotes->count, .is_ours = true};
        if (!is_queued(sender, &rest[i]))
            send_noted(cache, &parcel, false);
    }
}

/* ---- the thread ---- */

static void *run(void *user)
{
    aoticache_sender *sender = user;
    pthread_mutex_lock(&sender->mutex);
    while (!sender->is_over || sender->count > 0) {
        if (sender->count == 0) {
            pthread_cond_wait(&sender->change, &sender->mutex);
            continue;
        }
        const struct parcel parcel = sender->queue[sender->first];
        sender->first = (sender->first + 1) % QUEUE;
        const bool is_last = --sender->count == 0;
        sender->is_sending = true;
        pthread_mutex_unlock(&sender->mutex);
        send_parcel(sender->cache, &parcel);
        if (is_last)
            send_rest(sender);
        pthread_mutex_lock(&sender->mutex);
        sender->is_sending = false;
        pthread_cond_broadcast(&sender->change);
    }
    pthread_mutex_unlock(&sender->mutex);
    return NULL;
}

/* Call this with the mutex of the remotes. Returns NULL if memory is short or there is no thread. */
static aoticache_sender *start(aoticache_cache *cache)
{
    aoticache_sender *sender = calloc(1, sizeof *sender);
    if (sender == NULL)
        return NULL;
    sender->cache = cache;
    pthread_mutex_init(&sender->mutex, NULL);
    aoticache_condition_init(&sender->change);
    if (aoticache_threads_start(&sender->thread, 1, NULL, run, sender) == 1)
        return sender;
    pthread_cond_destroy(&sender->change);
    pthread_mutex_destroy(&sender->mutex);
    free(sender);
    return NULL;
}

/* Returns false if the queue is full, or there is no thread. */
static bool enqueue(aoticache_cache *cache, const struct parcel *parcel)
{
    pthread_mutex_lock(&cache->remotes->mutex);
    if (cache->remotes->sender == NULL && !cache->remotes->is_finished)
        cache->remotes->sender = start(cache);
    aoticache_sender *sender = cache->remotes->sender;
    bool has_room = false;
    if (sender != NULL) {
        pthread_mutex_lock(&sender->mutex);
        has_room = sender->count < QUEUE && !sender->is_over;
        if (has_room)
            sender->queue[(sender->first + sender->count++) % QUEUE] = *parcel;
        pthread_cond_broadcast(&sender->change);
        pthread_mutex_unlock(&sender->mutex);
    }
    pthread_mutex_unlock(&cache->remotes->mutex);
    return has_room;
}

void aoticache_remote_miss_publish(aoticache_cache *cache, const aoticache_key *key, const aoticache_digest *artifact,
                                   aoticache_remote_lease *lease)
{
    const size_t count = cache->remotes != NULL ? cache->remotes->count : 0;
    const struct parcel parcel = {
        .key = *key, .artifact = *artifact, .lease = lease, .remotes = count, .is_ours = true};
    if (!is_written_to(cache->remotes, count)) {
        aoticache_remote_lease_release(lease);
        return;
    }
    aoticache_unsent_note(cache, artifact);
    if (!enqueue(cache, &parcel))
        send_parcel(cache, &parcel);
}

void aoticache_remote_miss_spread(aoticache_cache *cache, const aoticache_key *key, const aoticache_digest *artifact,
                                  size_t from)
{
    const struct parcel parcel = {.key = *key, .artifact = *artifact, .remotes = from};
    if (is_written_to(cache->remotes, from))
        enqueue(cache, &parcel); /* if there is no space, the next machine fetches it from the farther remote as well */
}

/* ---- the end ---- */

static void wait_until_sent(aoticache_remotes *remotes, aoticache_sender *sender)
{
    const struct timespec until = aoticache_deadline_after(FINISH_NS);
    atomic_store(&remotes->ends_ns, aoticache_monotonic_ns() + FINISH_NS); /* also for a request in progress */
    pthread_mutex_lock(&sender->mutex);
    sender->is_over = true;
    pthread_cond_broadcast(&sender->change);
    while (sender->count > 0 || sender->is_sending)
        if (pthread_cond_timedwait(&sender->change, &sender->mutex, &until) != 0)
            break;
    atomic_store(&remotes->is_abandoned, true);
    pthread_mutex_unlock(&sender->mutex);
}

void aoticache_remote_miss_finish(aoticache_cache *cache)
{
    if (cache->remotes == NULL)
        return;
    aoticache_cache_enter(cache);
    pthread_mutex_lock(&cache->remotes->mutex);
    aoticache_sender *sender = cache->remotes->sender;
    cache->remotes->is_finished = true;
    pthread_mutex_unlock(&cache->remotes->mutex);
    if (sender == NULL)
        return;
    wait_until_sent(cache->remotes, sender);
    pthread_join(sender->thread, NULL);
    pthread_mutex_lock(&cache->remotes->mutex);
    cache->remotes->sender = NULL;
    pthread_mutex_unlock(&cache->remotes->mutex);
    pthread_cond_destroy(&sender->change);
    pthread_mutex_destroy(&sender->mutex);
    free(sender);
}
