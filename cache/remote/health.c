/*
 * cache/remote/health: decides whether a remote is used at all.
 *
 * Reads, writes and leases each have their own state: a server that refuses kernels can still provide some. After a failure,
 * requests of that kind back off: for a second, then twice as long each time, at most five minutes. If a server cannot be
 * read from, all requests back off, so that a dead server costs one timeout per backoff instead of one for each kind of
 * request and each miss.
 *
 * A backoff ends when a request succeeds: a read (which also ends that of the whole remote), a record (the last step of a
 * write), a lease. Each beginning and each end of a backoff is one line in the log.
 */
#include "base/clock.h"
#include "base/log.h"
#include "cache/remote/remote_internal.h"

#define FIRST_BACKOFF_NS UINT64_C(1000000000)
#define LONGEST_BACKOFF_NS (300 * FIRST_BACKOFF_NS)

/* The log messages when a backoff begins and when it ends, by use. */
static const struct {
    const char *begins, *ends;
} words[AOTICACHE_REMOTE_USES] = {
    [AOTICACHE_REMOTE_READ] = {"it is not read for a while, and kernels are compiled here", "reading works again"},
    [AOTICACHE_REMOTE_WRITE] = {"it is not written to for a while; kernels wait in unsent/", "writing works again"},
    [AOTICACHE_REMOTE_LEASE] = {"other machines may compile the same kernels for a while", "leases work again"},
    [AOTICACHE_REMOTE_WHOLE] = {"it is not used for a while, and kernels are compiled here", "it responds again"},
};

bool aoticache_remote_may_ask(aoticache_remote *remote, aoticache_remote_use use)
{
    const uint64_t now = aoticache_monotonic_ns();
    atomic_store(&remote->serves_misses, true);
    return now >= atomic_load(&remote->health[use].backoff_until_ns) &&
           now >= atomic_load(&remote->health[AOTICACHE_REMOTE_WHOLE].backoff_until_ns);
}

static void begin_backoff(aoticache_remote *remote, aoticache_remote_use use, bool is_long, const char *message)
{
    struct aoticache_remote_health *health = &remote->health[use];
    const uint32_t before = atomic_fetch_add(&health->failures, 1);
    uint64_t backoff = before < 9 ? FIRST_BACKOFF_NS << before : LONGEST_BACKOFF_NS;
    if (backoff > LONGEST_BACKOFF_NS || is_long)
        backoff = LONGEST_BACKOFF_NS;
    atomic_store(&health->backoff_until_ns, aoticache_monotonic_ns() + backoff);
    if (before > 0)
        return;
    atomic_fetch_add(&remote->backoffs, 1);
    if (atomic_load(&remote->serves_misses))
        aoticache_log(remote->logger, AOTICACHE_LOG_WARNING, "remote %s: %s; %s", remote->config.url, message,
                      words[use].begins);
}

static void end_backoff(aoticache_remote *remote, aoticache_remote_use use)
{
    atomic_store(&remote->health[use].backoff_until_ns, 0);
    if (atomic_exchange(&remote->health[use].failures, 0) > 0 && atomic_load(&remote->serves_misses))
        aoticache_log(remote->logger, AOTICACHE_LOG_WARNING, "remote %s: %s", remote->config.url, words[use].ends);
}

void aoticache_remote_note_opening(aoticache_remote *remote, aoticache_status status, const char *message)
{
    if (status != AOTICACHE_OK && status != AOTICACHE_NO_MEMORY)
        begin_backoff(remote, AOTICACHE_REMOTE_WHOLE, status == AOTICACHE_UNSUPPORTED || status == AOTICACHE_INVALID,
                      message);
}

void aoticache_remote_note_answer(aoticache_remote *remote, aoticache_remote_use use, bool is_step,
                                  aoticache_status status, const char *message)
{
    switch (status) {
    case AOTICACHE_NO_MEMORY: /* does not depend on the remote */
    case AOTICACHE_INVALID:
        return;
    case AOTICACHE_OK:
    case AOTICACHE_NOT_FOUND:
    case AOTICACHE_LOCKED:
    case AOTICACHE_UNSUPPORTED: /* for this object, or for leases: the server has answered */
        if (use == AOTICACHE_REMOTE_READ)
            end_backoff(remote, AOTICACHE_REMOTE_WHOLE);
        if (!is_step)
            end_backoff(remote, use);
        return;
    case AOTICACHE_DENIED:
        if (use == AOTICACHE_REMOTE_READ)
            end_backoff(remote, AOTICACHE_REMOTE_WHOLE);
        begin_backoff(remote, use, false, message);
        return;
    default: /* for a server that is known to be failing, further failures are the same */
        begin_backoff(remote,
                      use == AOTICACHE_REMOTE_READ || atomic_load(&remote->health[AOTICACHE_REMOTE_WHOLE].failures) > 0
                          ? AOTICACHE_REMOTE_WHOLE
                          : use,
                      false, message);
    }
}
