/*
 * remote_liar: the server of remote_mutant.h as the module of a remote of this process: it changes one response, or
 * each of a kind.
 */
#ifndef AOTICACHE_TESTS_FAULT_REMOTE_LIAR_H
#define AOTICACHE_TESTS_FAULT_REMOTE_LIAR_H

#include "tests/fault/remote_changes.h"

/* ---- the module ---- */

static aoticache_status mutant_open(const aoticache_remote_settings *settings, void **ret_connection,
                                    aoticache_error *ret_error)
{
    static const char *const urls[MUTANT_SERVERS] = {"mutant:/truth", "mutant:/foreign", "mutant:/push"};
    static enum mutant_server servers[MUTANT_SERVERS] = {MUTANT_TRUTH, MUTANT_ELSE, MUTANT_WRITTEN};
    for (int i = 0; i < MUTANT_SERVERS; i++)
        if (strcmp(settings->url, urls[i]) == 0) {
            *ret_connection = &servers[i];
            return AOTICACHE_OK;
        }
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "no such server");
}

static void mutant_close(void *connection)
{
    (void)connection;
}

/* Delivers the response in pieces. */
static aoticache_status mutant_deliver(const struct mutant_bytes *bytes, uint64_t max_bytes, bool is_endless,
                                       aoticache_remote_sink_fn sink, void *user, aoticache_error *ret_error)
{
    uint64_t sent = 0;
    do {
        for (size_t at = 0; at < bytes->size;) {
            size_t piece = bytes->size - at;
            if (is_endless) /* there are enough bytes */
                piece = bytes->size - at;
            else if (mutant.pieces == 1 || (mutant.pieces == 2 && bytes->size > 4000))
                piece = 1 + next_random((unsigned)piece);
            else if (mutant.pieces == 2)
                piece = 1;
            if (sent + piece > max_bytes && !mutant.is_careless)
                return aoticache_error_set(ret_error, AOTICACHE_IO, "more bytes than were wanted");
            if (!sink(user, bytes->data + at, piece))
                return aoticache_error_set(ret_error, AOTICACHE_IO, "stopped");
            at += piece;
            sent += piece;
        }
    } while (is_endless && bytes->size > 0 && sent < MUTANT_ENDLESS_BYTES);
    return AOTICACHE_OK;
}

/* Returns whether this response is the one to change. */
static bool mutant_is_target(enum mutant_server server, enum mutant_class class)
{
    if (server != MUTANT_TRUTH || mutant.kind >= MUTANT_PUSH || mutant.key == NULL || class != mutant.target)
        return false;
    const unsigned asked = mutant.asked[class]++;
    return mutant.which == 3 || mutant.which == asked;
}

/* How a malicious server answers a push. */
enum {
    MUTANT_HAS_ALL,
    MUTANT_HAS_NOTHING,
    MUTANT_FORGETS,
    MUTANT_REFUSES,
    MUTANT_STORES_OTHERS,
    MUTANT_FAILS,
    MUTANT_INVENTS, /* returns bytes for every name */
    MUTANT_WAVERS,
    MUTANT_SENDS_FOR_EVER,
    MUTANT_LIES /* 9: an honest one */
};

static unsigned mutant_lie(void)
{
    return mutant.variant % (MUTANT_LIES + 1);
}

static aoticache_status mutant_answer_push(struct mutant_bytes *bytes, bool *ret_endless)
{
    *ret_endless = mutant_lie() == MUTANT_SENDS_FOR_EVER;
    if (mutant_lie() == MUTANT_INVENTS || *ret_endless)
        mutant_change_bytes(bytes, MUTANT_GARBAGE, mutant.variant / 10);
    return AOTICACHE_OK;
}

static aoticache_status mutant_get(void *connection, const char *name, uint64_t max_bytes, uint32_t timeout_ms,
                                   aoticache_remote_sink_fn sink, void *user, char *ret_version,
                                   aoticache_error *ret_error)
{
    const enum mutant_server server = *(const enum mutant_server *)connection;
    const enum mutant_class class = mutant_class_of(name);
    const struct mutant_item *item = mutant_find(server, name);
    bool is_before = false, is_endless = false;
    aoticache_status status = AOTICACHE_OK;
    (void)timeout_ms;
    if (ret_version != NULL)
        ret_version[0] = '\0';
    if (item == NULL && server == MUTANT_TRUTH && mutant.kind == MUTANT_FOREIGN)
        item = mutant_find(MUTANT_ELSE, name);
    if (item == NULL && (server != MUTANT_WRITTEN || mutant_lie() != MUTANT_INVENTS))
        return AOTICACHE_NOT_FOUND;
    struct mutant_bytes answer = mutant_copy(NULL, 0, 0);
    if (item != NULL)
        mutant_add(&answer, item->bytes.data, item->bytes.size);
    if (server == MUTANT_WRITTEN) {
        status = mutant_answer_push(&answer, &is_endless);
    } else if (mutant_is_target(server, class)) {
        status = mutant_change(&answer, name, &is_before);
        is_endless = mutant.kind == MUTANT_ENDLESS;
        mutant.has_changed = mutant.has_changed || status != AOTICACHE_OK || is_endless ||
                             answer.size != item->bytes.size || memcmp(answer.data, item->bytes.data, answer.size) != 0;
    }
    if (server == MUTANT_TRUTH && mutant.key != NULL)
        mutant_note_answer(class, &answer, status);
    const aoticache_status delivered =
        is_before ? AOTICACHE_OK : mutant_deliver(&answer, max_bytes, is_endless, sink, user, ret_error);
    free(answer.data);
    if (delivered != AOTICACHE_OK || status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND)
        return delivered != AOTICACHE_OK ? delivered : status;
    return aoticache_error_set(ret_error, status, "an answer of the test's");
}

static aoticache_status mutant_put(void *connection, const char *name, const void *bytes, size_t size,
                                   const char *condition, uint32_t timeout_ms, aoticache_error *ret_error)
{
    const enum mutant_server server = *(const enum mutant_server *)connection;
    const unsigned lie = server == MUTANT_WRITTEN ? mutant_lie() : MUTANT_LIES;
    (void)condition, (void)timeout_ms; /* ignored, as by some servers */
    if (lie == MUTANT_REFUSES || (lie == MUTANT_WAVERS && next_random(2) == 0))
        return AOTICACHE_LOCKED;
    if (lie == MUTANT_FAILS)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED, "an answer of the test's");
    if (lie == MUTANT_FORGETS)
        return AOTICACHE_OK;
    struct mutant_bytes copy = mutant_copy(bytes, size, 0);
    if (lie == MUTANT_STORES_OTHERS && size > 0)
        copy.data[next_random((unsigned)size)] ^= 1;
    mutant_store(server, name, copy.data, copy.size);
    free(copy.data);
    return AOTICACHE_OK;
}

static aoticache_status mutant_exists(void *connection, const char *name, uint32_t timeout_ms,
                                      aoticache_error *ret_error)
{
    const enum mutant_server server = *(const enum mutant_server *)connection;
    const unsigned lie = server == MUTANT_WRITTEN ? mutant_lie() : MUTANT_LIES;
    (void)timeout_ms, (void)ret_error;
    if (lie == MUTANT_HAS_ALL)
        return AOTICACHE_OK;
    return lie != MUTANT_HAS_NOTHING && mutant_find(server, name) != NULL ? AOTICACHE_OK : AOTICACHE_NOT_FOUND;
}

/* Plugs the module in, instead of a library that would be loaded. */
static void mutant_plug(aoticache_cache *cache)
{
    static const aoticache_remote_module module = {.bytes = sizeof module,
                                                   .abi = AOTICACHE_REMOTE_MODULE_ABI,
                                                   .open = mutant_open,
                                                   .close = mutant_close,
                                                   .get = mutant_get,
                                                   .put = mutant_put,
                                                   .exists = mutant_exists};
    cache->remotes->items[0].module = module;
}

/*
 * Forgets failures, as if minutes had passed in another process: the remote is asked for everything again, and its
 * errors are logged.
 */
static void mutant_forget_failures(aoticache_cache *cache)
{
    aoticache_remote *remote = &cache->remotes->items[0];
    atomic_store(&remote->has_answered, false);
    for (size_t i = 0; i < AOTICACHE_REMOTE_USES; i++) {
        atomic_store(&remote->health[i].backoff_until_ns, 0);
        atomic_store(&remote->health[i].failures, 0);
    }
    for (size_t i = 0; i < AOTICACHE_REMOTE_MISSES; i++)
        atomic_store(&remote->misses[i].until_ns, 0);
    for (size_t i = 0; i < AOTICACHE_UNTRUSTED_SIGNERS; i++)
        atomic_store(&remote->told[i], 0); /* each case logs why something is refused */
}

#endif
