/*
 * cache/remote/modules/redis: remotes on a Redis server (or one that speaks its protocol: Valkey, KeyDB), by TCP or a
 * Unix socket, with TLS or without.
 *
 * hiredis connects, writes commands and reads answers. This file sends and receives the bytes itself, because hiredis's own
 * loop has a time limit for each read but none for a whole answer, has no size limit, and raises SIGPIPE. Conditions on a
 * version and leases are scripts, which a server runs one at a time; everything else is GET, SET, EXISTS and DEL, which an
 * access list may allow without scripts.
 */
#include "cache/remote/module.h"
#include "cache/remote/modules/redis_answers.h"
#include "cache/remote/modules/resolve.h"
#include "cache/remote/modules/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define PREFIX "aoticache/"
#define PIECE_BYTES 65536
#define MAX_DATABASE 65535
#define SLICE_MS 100 /* interval of checks whether the request is to end */
#define VERSION_DIGITS 40

typedef struct redis_connection {
    redisContext *context; /* NULL: not connected */
    char *host;            /* or the path of a socket */
    int port;              /* 0: a Unix socket */
    unsigned database;
    char *user, *secret;
    tls_files files;
    bool has_tls;
    tls_session *tls; /* of the current connection; NULL: it has none */
    int64_t deadline; /* of the request in progress */
    bool listens;     /* it has subscribed, and cannot be used for anything else */
    bool was_lost;    /* it was open, and the server or the network closed it */
    uint32_t connect_timeout_ms;
    bool (*continues)(void *user); /* or NULL */
    void *continues_user;
} redis_connection;

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- the URL ---- */

static bool read_number(const char *text, unsigned long most, unsigned long *ret_number)
{
    char *end = NULL;
    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *ret_number = strtoul(text, &end, 10);
    return errno == 0 && *end == '\0' && *ret_number <= most;
}

static aoticache_status bad_url(aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                               "the URL must be redis[s]://HOST[:PORT][/DATABASE] or unix:/PATH[?db=DATABASE]");
}

static aoticache_status read_socket_url(redis_connection *connection, const char *path, aoticache_error *ret_error)
{
    unsigned long database = 0;
    const size_t length = strcspn(path, "?");
    if (path[0] != '/' || (path[length] == '?' && (strncmp(path + length, "?db=", 4) != 0 ||
                                                   !read_number(path + length + 4, MAX_DATABASE, &database))))
        return bad_url(ret_error);
    connection->database = (unsigned)database;
    connection->host = strndup(path, length);
    return connection->host != NULL ? AOTICACHE_OK : AOTICACHE_NO_MEMORY;
}

static aoticache_status read_url(redis_connection *connection, const char *url, aoticache_error *ret_error)
{
    unsigned long port = 6379, database = 0;
    if (strncmp(url, "unix:", 5) == 0)
        return read_socket_url(connection, url + 5, ret_error);
    connection->has_tls = strncmp(url, "rediss://", 9) == 0;
    if (!connection->has_tls && strncmp(url, "redis://", 8) != 0)
        return bad_url(ret_error);
    char *host = strdup(strchr(url, '/') + 2);
    if (host == NULL)
        return AOTICACHE_NO_MEMORY;
    connection->host = host;
    char *slash = strchr(host, '/');
    if (slash != NULL)
        *slash++ = '\0';
    char *colon = strrchr(host, ':');
    if (host[0] == '[') { /* an IPv6 address in brackets */
        char *end = strchr(host, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':'))
            return bad_url(ret_error);
        colon = end[1] == ':' ? end + 1 : NULL;
        *end = '\0';
        memmove(host, host + 1, strlen(host)); /* the text after the address stays at its position */
    }
    if (colon != NULL)
        *colon++ = '\0';
    if (host[0] == '\0' || (colon != NULL && (!read_number(colon, 65535, &port) || port == 0)) ||
        (slash != NULL && slash[0] != '\0' && !read_number(slash, MAX_DATABASE, &database)))
        return bad_url(ret_error);
    connection->port = (int)port;
    connection->database = (unsigned)database;
    return AOTICACHE_OK;
}

/* ---- bytes ---- */

static aoticache_status wait_for(redis_connection *connection, short events, int64_t deadline,
                                 aoticache_error *ret_error)
{
    for (;;) {
        struct pollfd one = {.fd = connection->context->fd, .events = events};
        const int64_t left = deadline - now_ms();
        int ready = left > 0 ? poll(&one, 1, left < SLICE_MS ? (int)left : SLICE_MS) : 0;
        if (ready > 0)
            return AOTICACHE_OK;
        if (left <= 0)
            return aoticache_error_set(ret_error, AOTICACHE_IO, "the server does not respond in time");
        if (ready < 0 && errno != EINTR)
            return aoticache_error_set_errno(ret_error, errno, "cannot wait for a response");
        if (connection->continues != NULL && !connection->continues(connection->continues_user))
            return aoticache_error_set(ret_error, AOTICACHE_IO, "stopped");
    }
}

/* The functions below are those of a tls_transport: `user` is the connection. */
static aoticache_status send_plain(void *user, const char *bytes, size_t size, aoticache_error *ret_error)
{
    redis_connection *connection = user;
    while (size > 0) {
        aoticache_status status = wait_for(connection, POLLOUT, connection->deadline, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        ssize_t sent = send(connection->context->fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
            connection->was_lost = true;
            return aoticache_error_set_errno(ret_error, errno, "cannot send");
        }
        bytes += sent > 0 ? sent : 0;
        size -= sent > 0 ? (size_t)sent : 0;
    }
    return AOTICACHE_OK;
}

static aoticache_status receive_plain(void *user, char *bytes, size_t size, size_t *ret_size,
                                      aoticache_error *ret_error)
{
    redis_connection *connection = user;
    for (;;) {
        aoticache_status status = wait_for(connection, POLLIN, connection->deadline, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        ssize_t got = recv(connection->context->fd, bytes, size, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        connection->was_lost = got <= 0;
        if (got < 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot receive");
        *ret_size = (size_t)got;
        return AOTICACHE_OK;
    }
}

static aoticache_status send_all(redis_connection *connection, const char *bytes, size_t size, int64_t deadline,
                                 aoticache_error *ret_error)
{
    connection->deadline = deadline;
    return connection->tls != NULL ? tls_send(connection->tls, bytes, size, ret_error)
                                   : send_plain(connection, bytes, size, ret_error);
}

static aoticache_status receive_some(redis_connection *connection, char *bytes, size_t size, size_t *ret_size,
                                     aoticache_error *ret_error)
{
    aoticache_status status = connection->tls != NULL ? tls_receive(connection->tls, bytes, size, ret_size, ret_error)
                                                      : receive_plain(connection, bytes, size, ret_size, ret_error);
    return status == AOTICACHE_OK && *ret_size == 0
               ? aoticache_error_set(ret_error, AOTICACHE_IO, "the server closed the connection")
               : status;
}

/* Receives an answer, which must be one text, number or error: an array would let a server make hiredis allocate memory
 * without sending the bytes. */
static aoticache_status receive(redis_connection *connection, uint64_t max_bytes, int64_t deadline,
                                redisReply **ret_reply, aoticache_error *ret_error)
{
    char piece[PIECE_BYTES];
    uint64_t have = 0;
    void *reply = NULL;
    connection->deadline = deadline;
    while (reply == NULL) {
        size_t got = 0;
        aoticache_status status = receive_some(connection, piece, sizeof piece, &got, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        if (have == 0 && strchr("+-:$", piece[0]) == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_IO, "not a Redis server");
        have += got;
        if (have > max_bytes + 1024)
            return aoticache_error_set(ret_error, AOTICACHE_IO, "the response has more bytes than allowed");
        if (redisReaderFeed(connection->context->reader, piece, got) != REDIS_OK ||
            redisReaderGetReply(connection->context->reader, &reply) != REDIS_OK)
            return aoticache_error_set(ret_error, AOTICACHE_IO, "not a Redis server");
    }
    *ret_reply = reply;
    return AOTICACHE_OK;
}

static void disconnect(redis_connection *connection)
{
    tls_free(connection->tls);
    connection->tls = NULL;
    if (connection->context != NULL)
        redisFree(connection->context);
    connection->context = NULL;
    connection->listens = false;
}

/* Sends one command and receives its answer, which is not an error on OK. */
static aoticache_status talk(redis_connection *connection, int count, const char **words, const size_t *sizes,
                             uint64_t max_bytes, int64_t deadline, redisReply **ret_reply, aoticache_error *ret_error)
{
    char *command = NULL;
    redisReply *reply = NULL;
    long long length = redisFormatCommandArgv(&command, count, words, sizes);
    if (length < 0)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    aoticache_status status = send_all(connection, command, (size_t)length, deadline, ret_error);
    redisFreeCommand(command);
    if (status == AOTICACHE_OK)
        status = receive(connection, max_bytes, deadline, &reply, ret_error);
    if (status != AOTICACHE_OK) {
        disconnect(connection); /* a late answer must not be taken for that of another request */
        return status;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        bool connects_anew = false;
        status = redis_judge_error(reply->str, &connects_anew, ret_error);
        freeReplyObject(reply);
        if (connects_anew) /* another server may have the address by now */
            disconnect(connection);
        return status;
    }
    *ret_reply = reply;
    return AOTICACHE_OK;
}

/* ---- the connection ---- */

static aoticache_status command(redis_connection *connection, const char *first, const char *second, const char *third,
                                int64_t deadline, aoticache_error *ret_error)
{
    const char *words[] = {first, second, third};
    const size_t sizes[] = {strlen(first), strlen(second), third != NULL ? strlen(third) : 0};
    redisReply *reply = NULL;
    aoticache_status status =
        talk(connection, third != NULL ? 3 : 2, words, sizes, PIECE_BYTES, deadline, &reply, ret_error);
    if (status == AOTICACHE_OK)
        freeReplyObject(reply);
    return status;
}

static aoticache_status greet(redis_connection *connection, int64_t deadline, aoticache_error *ret_error)
{
    char database[16];
    aoticache_status status = AOTICACHE_OK;
    if (connection->secret != NULL)
        status = connection->user != NULL
                     ? command(connection, "AUTH", connection->user, connection->secret, deadline, ret_error)
                     : command(connection, "AUTH", connection->secret, NULL, deadline, ret_error);
    if (status == AOTICACHE_OK && connection->database != 0) {
        snprintf(database, sizeof database, "%u", connection->database);
        status = command(connection, "SELECT", database, NULL, deadline, ret_error);
    }
    if (status != AOTICACHE_OK)
        disconnect(connection);
    return status;
}

/* Connects to one address of a host, within its time limit. */
static aoticache_status connect_to_address(redis_connection *connection, const char *address,
                                           aoticache_error *ret_error)
{
    const struct timeval limit = {.tv_sec = connection->connect_timeout_ms / 1000,
                                  .tv_usec = (connection->connect_timeout_ms % 1000) * 1000};
    connection->context = connection->port != 0 ? redisConnectWithTimeout(address, connection->port, limit)
                                                : redisConnectUnixWithTimeout(address, limit);
    if (connection->context == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    if (connection->context->err == 0) {
        fcntl(connection->context->fd, F_SETFD, FD_CLOEXEC);
        return AOTICACHE_OK;
    }
    aoticache_error_set(ret_error, AOTICACHE_IO, "cannot connect: %s", connection->context->errstr);
    disconnect(connection);
    return AOTICACHE_IO;
}

/* Connects to the first address of the host that answers. */
static aoticache_status connect_socket(redis_connection *connection, int64_t deadline, aoticache_error *ret_error)
{
    resolved_address addresses[RESOLVE_ADDRESSES];
    size_t count = 0;
    if (connection->port == 0)
        return connect_to_address(connection, connection->host, ret_error);
    const int64_t left = deadline - now_ms();
    aoticache_status status = resolve(connection->host, left > 0 ? (uint32_t)left : 0, addresses, &count, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        status = connect_to_address(connection, addresses[i].text, ret_error);
        if (status != AOTICACHE_IO || now_ms() >= deadline)
            break;
    }
    return status;
}

static aoticache_status connect_to(redis_connection *connection, int64_t deadline, aoticache_error *ret_error)
{
    if (connection->context != NULL)
        return AOTICACHE_OK;
    aoticache_status status = connect_socket(connection, deadline, ret_error);
    if (status == AOTICACHE_OK && connection->has_tls) {
        const tls_transport transport = {.user = connection, .send = send_plain, .receive = receive_plain};
        connection->deadline = deadline;
        status = tls_connect(connection->host, &connection->files, &transport, &connection->tls, ret_error);
    }
    if (status == AOTICACHE_OK)
        return greet(connection, deadline, ret_error);
    disconnect(connection);
    return status;
}

static void close_connection(void *opaque)
{
    redis_connection *connection = opaque;
    if (connection == NULL)
        return;
    disconnect(connection);
    free(connection->host);
    free(connection->user);
    free(connection->secret);
    free(connection->files.authorities);
    free(connection->files.certificate);
    free(connection->files.key);
    free(connection);
}

static bool copy(char **place, const char *text)
{
    *place = text != NULL ? strdup(text) : NULL;
    return text == NULL || *place != NULL;
}

static aoticache_status open_connection(const aoticache_remote_settings *settings, void **ret_connection,
                                        aoticache_error *ret_error)
{
    redis_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    connection->connect_timeout_ms = settings->connect_timeout_ms;
    connection->continues = settings->continues;
    connection->continues_user = settings->continues_user;
    aoticache_status status = read_url(connection, settings->url, ret_error);
    if (status == AOTICACHE_OK &&
        !(copy(&connection->user, settings->user) && copy(&connection->secret, settings->secret) &&
          copy(&connection->files.authorities, settings->ca_file) &&
          copy(&connection->files.certificate, settings->client_certificate) &&
          copy(&connection->files.key, settings->client_key)))
        status = AOTICACHE_NO_MEMORY;
    if (status == AOTICACHE_NO_MEMORY)
        aoticache_error_set(ret_error, status, "out of memory");
    if (status == AOTICACHE_OK)
        *ret_connection = connection;
    else
        close_connection(connection);
    return status;
}

/* ---- commands ---- */

static aoticache_status ask_once(redis_connection *connection, int count, const char **words, const size_t *sizes,
                                 uint64_t max_bytes, int64_t deadline, redisReply **ret_reply,
                                 aoticache_error *ret_error)
{
    connection->was_lost = false;
    aoticache_status status = connect_to(connection, deadline, ret_error);
    return status == AOTICACHE_OK ? talk(connection, count, words, sizes, max_bytes, deadline, ret_reply, ret_error)
                                  : status;
}

/*
 * Makes a request, and repeats it on a new connection if the server has closed the connection since the last one, or another
 * server took over. If a new connection is lost too, it is repeated once more. A server that cannot be connected to is not
 * tried again.
 */
static aoticache_status ask(redis_connection *connection, int count, const char **words, const size_t *sizes,
                            uint64_t max_bytes, uint32_t timeout_ms, redisReply **ret_reply, aoticache_error *ret_error)
{
    const int64_t deadline = now_ms() + timeout_ms;
    const bool was_connected = connection->context != NULL;
    aoticache_status status = ask_once(connection, count, words, sizes, max_bytes, deadline, ret_reply, ret_error);
    if (status != AOTICACHE_OK && was_connected && connection->context == NULL && now_ms() < deadline)
        status = ask_once(connection, count, words, sizes, max_bytes, deadline, ret_reply, ret_error);
    if (status != AOTICACHE_OK && connection->was_lost && now_ms() < deadline)
        status = ask_once(connection, count, words, sizes, max_bytes, deadline, ret_reply, ret_error);
    return status;
}

/* Sends one command, whose word `at` is the key of `name`. */
static aoticache_status ask_for_key(redis_connection *connection, int count, const char **words, size_t *sizes, int at,
                                    const char *name, uint64_t max_bytes, uint32_t timeout_ms, redisReply **ret_reply,
                                    aoticache_error *ret_error)
{
    char key[512];
    const int length = snprintf(key, sizeof key, PREFIX "%s", name);
    if (length < 0 || (size_t)length >= sizeof key)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the name is too long");
    words[at] = key;
    sizes[at] = (size_t)length;
    return ask(connection, count, words, sizes, max_bytes, timeout_ms, ret_reply, ret_error);
}

/* Writes the version of a value: the hexadecimal digits of its SHA-1, as in a script (redis.sha1hex). */
static aoticache_status write_version(const char *bytes, size_t size, char *ret_version, aoticache_error *ret_error)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    if (EVP_Digest(bytes, size, digest, &length, EVP_sha1(), NULL) != 1 || 2 * length != VERSION_DIGITS)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "cannot compute a digest");
    for (unsigned int i = 0; i < length; i++)
        snprintf(ret_version + (size_t)2 * i, 3, "%02x", digest[i]);
    return AOTICACHE_OK;
}

static aoticache_status pass_on(const redisReply *reply, aoticache_remote_sink_fn sink, void *user, char *ret_version,
                                aoticache_error *ret_error)
{
    if (reply->type == REDIS_REPLY_NIL)
        return AOTICACHE_NOT_FOUND;
    if (reply->type != REDIS_REPLY_STRING)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "unexpected response: expected a string");
    if (ret_version != NULL && write_version(reply->str, reply->len, ret_version, ret_error) != AOTICACHE_OK)
        return AOTICACHE_NO_MEMORY;
    return sink(user, reply->str, reply->len)
               ? AOTICACHE_OK
               : aoticache_error_set(ret_error, AOTICACHE_IO, "the download was cancelled");
}

static aoticache_status get(void *connection, const char *name, uint64_t max_bytes, uint32_t timeout_ms,
                            aoticache_remote_sink_fn sink, void *user, char *ret_version, aoticache_error *ret_error)
{
    const char *words[] = {"GET", NULL};
    size_t sizes[] = {3, 0};
    redisReply *reply = NULL;
    aoticache_status status =
        ask_for_key(connection, 2, words, sizes, 1, name, max_bytes, timeout_ms, &reply, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = pass_on(reply, sink, user, ret_version, ret_error);
    freeReplyObject(reply);
    return status;
}

/* Returns OK if the answer is positive (a number other than 0, or "OK"), and otherwise `no`. Frees the reply. */
static aoticache_status yes_or(aoticache_status no, redisReply *reply, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    if (reply->type != REDIS_REPLY_INTEGER && reply->type != REDIS_REPLY_NIL && reply->type != REDIS_REPLY_STATUS)
        status = aoticache_error_set(ret_error, AOTICACHE_IO, "unexpected response: expected yes or no");
    else if (reply->type == REDIS_REPLY_NIL || (reply->type == REDIS_REPLY_INTEGER && reply->integer == 0))
        status = no == AOTICACHE_LOCKED ? aoticache_error_set(ret_error, no, "another machine holds the lease") : no;
    freeReplyObject(reply);
    return status;
}

/* Runs a script with one key and two arguments, whose answer is positive or negative. */
static aoticache_status run_script(aoticache_status no, redis_connection *connection, const char *script,
                                   const char *name, const void *first, size_t first_size, const char *second,
                                   uint32_t timeout_ms, aoticache_error *ret_error)
{
    const char *words[] = {"EVAL", script, "1", NULL, first, second};
    size_t sizes[] = {4, strlen(script), 1, 0, first_size, strlen(second)};
    redisReply *reply = NULL;
    aoticache_status status =
        ask_for_key(connection, 6, words, sizes, 3, name, PIECE_BYTES, timeout_ms, &reply, ret_error);
    return status == AOTICACHE_OK ? yes_or(no, reply, ret_error) : status;
}

static aoticache_status put(void *connection, const char *name, const void *bytes, size_t size, const char *condition,
                            uint32_t timeout_ms, aoticache_error *ret_error)
{
    static const char same[] =
        "local v = redis.call('GET', KEYS[1]) if not v or redis.sha1hex(v) ~= ARGV[2] then return 0 end "
        "redis.call('SET', KEYS[1], ARGV[1]) return 1";
    const char *words[] = {"SET", NULL, bytes, "NX"};
    size_t sizes[] = {3, 0, size, 2};
    redisReply *reply = NULL;
    if (condition != NULL && condition[0] != '\0')
        return run_script(AOTICACHE_LOCKED, connection, same, name, bytes, size, condition, timeout_ms, ret_error);
    aoticache_status status = ask_for_key(connection, condition != NULL ? 4 : 3, words, sizes, 1, name, PIECE_BYTES,
                                          timeout_ms, &reply, ret_error);
    return status == AOTICACHE_OK ? yes_or(AOTICACHE_LOCKED, reply, ret_error) : status;
}

/* Sends EXISTS or DEL, whose answer is a number of keys. */
static aoticache_status ask_number(void *connection, const char *command, const char *name, uint32_t timeout_ms,
                                   aoticache_error *ret_error)
{
    const char *words[] = {command, NULL};
    size_t sizes[] = {strlen(command), 0};
    redisReply *reply = NULL;
    aoticache_status status =
        ask_for_key(connection, 2, words, sizes, 1, name, PIECE_BYTES, timeout_ms, &reply, ret_error);
    return status == AOTICACHE_OK ? yes_or(AOTICACHE_NOT_FOUND, reply, ret_error) : status;
}

static aoticache_status exists(void *connection, const char *name, uint32_t timeout_ms, aoticache_error *ret_error)
{
    return ask_number(connection, "EXISTS", name, timeout_ms, ret_error);
}

static aoticache_status remove_key(void *connection, const char *name, uint32_t timeout_ms, aoticache_error *ret_error)
{
    return ask_number(connection, "DEL", name, timeout_ms, ret_error);
}

static aoticache_status acquire(void *connection, const char *name, const char *token, uint32_t ttl_ms,
                                uint32_t timeout_ms, aoticache_error *ret_error)
{
    static const char script[] = "local v = redis.call('GET', KEYS[1]) if v and v ~= ARGV[1] then return 0 end "
                                 "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1";
    char ttl[16];
    snprintf(ttl, sizeof ttl, "%u", ttl_ms);
    return run_script(AOTICACHE_LOCKED, connection, script, name, token, strlen(token), ttl, timeout_ms, ret_error);
}

static aoticache_status release(void *connection, const char *name, const char *token, uint32_t timeout_ms,
                                aoticache_error *ret_error)
{
    /* If the user is not allowed to publish, the lease is still released. */
    static const char script[] = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) "
                                 "redis.pcall('PUBLISH', KEYS[1], '') end return 1";
    return run_script(AOTICACHE_OK, connection, script, name, token, strlen(token), "", timeout_ms, ret_error);
}

static aoticache_status tell_time(void *connection, uint32_t timeout_ms, int64_t *ret_unix_ms,
                                  aoticache_error *ret_error)
{
    redisReply *reply = NULL;
    const char *word = "TIME";
    aoticache_status status = ask(connection, 1, &word, &(size_t){4}, PIECE_BYTES, timeout_ms, &reply, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[0]->type == REDIS_REPLY_STRING &&
        reply->element[1]->type == REDIS_REPLY_STRING)
        *ret_unix_ms =
            strtoll(reply->element[0]->str, NULL, 10) * 1000 + strtoll(reply->element[1]->str, NULL, 10) / 1000;
    else
        status = aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "the server does not report its time");
    freeReplyObject(reply);
    return status;
}

/* ---- waiting for a lease: release() publishes to the channel of that name ---- */

static aoticache_status subscribe(redis_connection *connection, const char *name, uint32_t timeout_ms,
                                  aoticache_error *ret_error)
{
    char channel[512], answer[1024], *line = NULL;
    size_t have = 0;
    const int64_t deadline = now_ms() + timeout_ms;
    const int length = snprintf(channel, sizeof channel, PREFIX "%s", name);
    const char *words[] = {"SUBSCRIBE", channel};
    const size_t sizes[] = {9, (size_t)length};
    if (length < 0 || (size_t)length >= sizeof channel)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the name is too long");
    aoticache_status status = connect_to(connection, deadline, ret_error);
    const long long size = status == AOTICACHE_OK ? redisFormatCommandArgv(&line, 2, words, sizes) : -1;
    if (status == AOTICACHE_OK)
        status = size > 0 ? send_all(connection, line, (size_t)size, deadline, ret_error) : AOTICACHE_NO_MEMORY;
    if (line != NULL)
        redisFreeCommand(line);
    /* An array of three: "subscribe", the channel, and the number of channels: one. Anything else is an error. */
    while (status == AOTICACHE_OK && !(have > 4 && memcmp(answer + have - 4, ":1\r\n", 4) == 0)) {
        size_t got = 0;
        if (have == sizeof answer || (have > 0 && answer[0] != '*'))
            status = aoticache_error_set(ret_error, AOTICACHE_DENIED, "the server does not allow subscribing");
        else
            status = receive_some(connection, answer + have, sizeof answer - have, &got, ret_error);
        have += status == AOTICACHE_OK ? got : 0;
    }
    connection->listens = status == AOTICACHE_OK;
    if (status != AOTICACHE_OK)
        disconnect(connection);
    return status;
}

/* Waits for any data, which is a message of the channel. Its content does not matter: the library checks the lease. */
static aoticache_status wait_for_release(void *opaque, const char *name, uint32_t timeout_ms,
                                         aoticache_error *ret_error)
{
    redis_connection *connection = opaque;
    char message[PIECE_BYTES];
    size_t got = 0;
    if (!connection->listens) {
        aoticache_status status = subscribe(connection, name, timeout_ms, ret_error);
        return status == AOTICACHE_OK ? AOTICACHE_NOT_FOUND : status;
    }
    struct pollfd one = {.fd = connection->context->fd, .events = POLLIN};
    int ready = poll(&one, 1, (int)timeout_ms);
    if (ready == 0 || (ready < 0 && errno == EINTR))
        return AOTICACHE_NOT_FOUND;
    if (ready < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot wait for a message");
    connection->deadline = now_ms() + connection->connect_timeout_ms;
    aoticache_status status = receive_some(connection, message, sizeof message, &got, ret_error);
    if (status != AOTICACHE_OK)
        disconnect(connection);
    return status;
}

const aoticache_remote_module *aoticache_remote_module_1(void)
{
    static const aoticache_remote_module module = {.bytes = sizeof module,
                                                   .abi = AOTICACHE_REMOTE_MODULE_ABI,
                                                   .is_conditional = true,
                                                   .open = open_connection,
                                                   .close = close_connection,
                                                   .get = get,
                                                   .put = put,
                                                   .exists = exists,
                                                   .acquire = acquire,
                                                   .release = release,
                                                   .wait = wait_for_release,
                                                   .time = tell_time,
                                                   .remove = remove_key};
    return &module;
}
