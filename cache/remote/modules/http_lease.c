/*
 * cache/remote/modules/http_lease: leases on a web server: small files that are written only if no other client wrote them
 * meanwhile (If-None-Match, If-Match).
 *
 * Many servers ignore these conditions, so that is tested first; such a server has no leases. A lease's age is the server's
 * Date less its Last-Modified, so only the server's clock counts. If it has no Last-Modified, a lease has expired when its
 * bytes have not changed for its duration, by this machine's clock: each renewal writes different bytes.
 */
#include "cache/remote/modules/http.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBE "lease/probe" /* written to find out whether conditions are honoured */
#define LEASE_BYTES 160     /* "TOKEN MILLISECONDS NUMBER"; an empty file: a free lease. The number changes each time */
#define SEEN 64

/* Checks whether a PUT with this condition is refused, as it must be. */
static aoticache_status is_refused(http_connection *connection, const char *condition, uint32_t timeout_ms,
                                   bool *ret_refused, aoticache_error *ret_error)
{
    aoticache_status status = http_put(connection, PROBE, "probe", 5, condition, timeout_ms, ret_error);
    *ret_refused = status == AOTICACHE_LOCKED;
    return *ret_refused ? AOTICACHE_OK : status;
}

/* Called once for each connection. UNSUPPORTED: the server ignores conditions. */
static aoticache_status try_conditions(http_connection *connection, uint32_t timeout_ms, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    if (connection->conditions == HTTP_NOT_TRIED) {
        bool is_new_refused = false, is_other_refused = false;
        status = is_refused(connection, "", timeout_ms, &is_new_refused, ret_error);
        if (status == AOTICACHE_OK && !is_new_refused) /* it did not exist; now it does */
            status = is_refused(connection, "", timeout_ms, &is_new_refused, ret_error);
        if (status == AOTICACHE_OK && is_new_refused)
            status = is_refused(connection, "\"another version\"", timeout_ms, &is_other_refused, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        connection->conditions = is_new_refused && is_other_refused ? HTTP_HONOURED : HTTP_IGNORED;
    }
    return connection->conditions == HTTP_HONOURED
               ? AOTICACHE_OK
               : aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                     "the server ignores If-None-Match and If-Match of a PUT, so leases are not "
                                     "supported");
}

/* The state of a lease. */
struct lease {
    char text[LEASE_BYTES];
    size_t size;
    char version[AOTICACHE_REMOTE_VERSION_BYTES]; /* "": there is none */
    bool has_expired;
};

static bool take_lease(void *user, const void *bytes, size_t size)
{
    struct lease *lease = user;
    if (size >= sizeof lease->text - lease->size)
        return false;
    memcpy(lease->text + lease->size, bytes, size);
    lease->size += size;
    lease->text[lease->size] = '\0';
    return true;
}

static uint64_t hash(uint64_t start, const char *text)
{
    for (; *text != '\0'; text++)
        start = (start ^ (unsigned char)*text) * UINT64_C(1099511628211); /* FNV-1a */
    return start;
}

/* Returns how long this process has seen a lease with these bytes. */
static uint64_t unchanged_ms(const http_connection *connection, const char *name, const char *text)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        uint64_t name, text, since_ms;
    } seen[SEEN];
    const uint64_t of_name = hash(hash(UINT64_C(14695981039346656037), connection->base), name),
                   of_text = hash(of_name, text);
    const uint64_t now = (uint64_t)http_now_ms();
    pthread_mutex_lock(&mutex);
    if (seen[of_name % SEEN].name != of_name || seen[of_name % SEEN].text != of_text) {
        seen[of_name % SEEN].name = of_name;
        seen[of_name % SEEN].text = of_text;
        seen[of_name % SEEN].since_ms = now;
    }
    const uint64_t ms = now - seen[of_name % SEEN].since_ms;
    pthread_mutex_unlock(&mutex);
    return ms;
}

static aoticache_status read_lease(http_connection *connection, const char *name, uint32_t timeout_ms,
                                   struct lease *ret_lease, aoticache_error *ret_error)
{
    *ret_lease = (struct lease){.size = 0};
    http_answer answer = {
        .sink = take_lease, .user = ret_lease, .left = HTTP_SMALL_ANSWER, .version = ret_lease->version};
    answer.date = answer.modified = -1;
    aoticache_status status =
        http_request(connection, HTTP_GET, name, (http_body){.size = 0}, timeout_ms, &answer, ret_error);
    const char *space = strchr(ret_lease->text, ' ');
    const unsigned long ms = space != NULL ? strtoul(space, NULL, 10) : 0;
    if (answer.date >= 0 && answer.modified >= 0) /* these clocks have a resolution of one second */
        ret_lease->has_expired = difftime(answer.date, answer.modified) > (double)ms / 1000 + 1;
    else if (ret_lease->size > 0)
        ret_lease->has_expired = unchanged_ms(connection, name, ret_lease->text) > ms + 1000;
    if (answer.is_stopped) /* the file is not a lease: it may be replaced */
        status = AOTICACHE_OK;
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

static bool is_of(const struct lease *lease, const char *token)
{
    const size_t length = strlen(token);
    return strncmp(lease->text, token, length) == 0 && lease->text[length] == ' ';
}

aoticache_status http_acquire(void *opaque, const char *name, const char *token, uint32_t ttl_ms, uint32_t timeout_ms,
                              aoticache_error *ret_error)
{
    http_connection *connection = opaque;
    struct lease lease;
    char text[LEASE_BYTES];
    aoticache_status status = try_conditions(connection, timeout_ms, ret_error);
    if (status == AOTICACHE_OK)
        status = read_lease(connection, name, timeout_ms, &lease, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (lease.size > 0 && !is_of(&lease, token) && !lease.has_expired)
        return aoticache_error_set(ret_error, AOTICACHE_LOCKED, "another machine holds the lease");
    const int length = snprintf(text, sizeof text, "%s %u %llu\n", token, ttl_ms, (unsigned long long)http_now_ms());
    if (length < 0 || (size_t)length >= sizeof text)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the token is too long");
    return http_put(connection, name, text, (size_t)length, lease.version, timeout_ms, ret_error);
}

aoticache_status http_release(void *opaque, const char *name, const char *token, uint32_t timeout_ms,
                              aoticache_error *ret_error)
{
    struct lease lease;
    aoticache_status status = read_lease(opaque, name, timeout_ms, &lease, ret_error);
    if (status != AOTICACHE_OK || !is_of(&lease, token))
        return status;
    status = http_put(opaque, name, "", 0, lease.version, timeout_ms, ret_error);
    return status == AOTICACHE_LOCKED ? AOTICACHE_OK : status; /* another client has it by now */
}
