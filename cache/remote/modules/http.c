/*
 * cache/remote/modules/http: remotes over HTTP: any server that answers GET, HEAD and PUT (WebDAV, a cache of Bazel's
 * kind), and S3, whose requests libcurl signs (AWS Signature Version 4).
 *
 * One easy handle is one connection. Redirections are not followed: a cache has no need to lead elsewhere, and credentials
 * would go with them.
 *
 * A lease is a small file that is written only if nobody else wrote it meanwhile (If-None-Match, If-Match). Many servers
 * ignore these conditions, so that is tried first; such a server has no leases. How old a lease is, the server's own clock
 * says (Date, Last-Modified).
 */
#include "cache/remote/module.h"

#include <curl/curl.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <time.h>

#define FIRST_RETRY_MS 100
#define MOST_OF_A_PAGE (64 * 1024) /* of an error's body that is read, so that the connection stays open */
#define EXPECT_MS \
    100L /* how long an answer to "Expect: 100-continue" is waited for, before the body goes all the same */

typedef struct http_connection {
    CURL *curl;
    char *base;    /* the URL before "/name" */
    char *userpwd; /* "user:secret", or NULL */
    char *bearer;  /* or NULL */
    char *sigv4;   /* for S3, or NULL */
    char *session; /* "x-amz-security-token: ...", or NULL */
    char *ca_file;
    char *client_certificate, *client_key; /* or NULL */
    uint32_t connect_timeout_ms;
    enum { NOT_TRIED, HONOURED, IGNORED } conditions;
} http_connection;

/* One answer. */
struct answer {
    aoticache_remote_sink_fn sink;
    void *user;
    CURL *curl;
    uint64_t left;       /* bytes that may still come */
    uint64_t page_bytes; /* of an error's body */
    bool is_too_large, is_stopped;
    char *version;         /* NULL: not wanted */
    time_t date, modified; /* by the server's clock; -1: it does not say */
};

/* What is sent. */
struct body {
    const void *bytes;
    size_t size;
    struct curl_slist *headers;
};

/* ---- opening ---- */

static void close_connection(void *opaque)
{
    http_connection *connection = opaque;
    if (connection == NULL)
        return;
    curl_easy_cleanup(connection->curl);
    free(connection->base);
    free(connection->userpwd);
    free(connection->bearer);
    free(connection->sigv4);
    free(connection->session);
    free(connection->ca_file);
    free(connection->client_certificate);
    free(connection->client_key);
    free(connection);
}

/* The value of `name` in the query of a URL, copied; NULL where it is not there. */
static char *query_value(const char *query, const char *name)
{
    const size_t length = strlen(name);
    while (query != NULL && *query != '\0') {
        const char *end = query + strcspn(query, "&");
        if (strncmp(query, name, length) == 0 && query[length] == '=')
            return strndup(query + length + 1, (size_t)(end - query) - length - 1);
        query = *end == '&' ? end + 1 : end;
    }
    return NULL;
}

/* "s3://bucket/prefix?endpoint=URL&region=REGION" as the URL of the folder. */
static aoticache_status read_s3_url(http_connection *connection, const char *url, aoticache_error *ret_error)
{
    const char *bucket = url + strlen("s3://");
    const size_t bucket_length = strcspn(bucket, "/?");
    const char *rest = bucket + bucket_length;
    const char *question = strchr(rest, '?');
    size_t prefix_length = question != NULL ? (size_t)(question - rest) : strlen(rest);
    while (prefix_length > 0 && rest[prefix_length - 1] == '/')
        prefix_length--;
    if (bucket_length == 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "there is no bucket: s3://BUCKET/PREFIX?region=...");
    char *endpoint = query_value(question != NULL ? question + 1 : NULL, "endpoint");
    char *region = query_value(question != NULL ? question + 1 : NULL, "region");
    int length = -1;
    if (region == NULL)
        region = strdup("us-east-1");
    if (region != NULL && endpoint != NULL)
        length =
            asprintf(&connection->base, "%s/%.*s%.*s", endpoint, (int)bucket_length, bucket, (int)prefix_length, rest);
    else if (region != NULL)
        length = asprintf(&connection->base, "https://%.*s.s3.%s.amazonaws.com%.*s", (int)bucket_length, bucket, region,
                          (int)prefix_length, rest);
    if (length < 0)
        connection->base = NULL;
    else if (asprintf(&connection->sigv4, "aws:amz:%s:s3", region) < 0)
        connection->sigv4 = NULL;
    free(endpoint);
    free(region);
    return connection->base != NULL && connection->sigv4 != NULL
               ? AOTICACHE_OK
               : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
}

static aoticache_status read_url(http_connection *connection, const char *url, aoticache_error *ret_error)
{
    if (strncmp(url, "s3://", 5) == 0)
        return read_s3_url(connection, url, ret_error);
    if (strchr(url, '?') != NULL || strchr(url, '#') != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "a URL of a folder has neither '?' nor '#'");
    size_t length = strlen(url);
    while (length > 0 && url[length - 1] == '/')
        length--;
    connection->base = strndup(url, length);
    return connection->base != NULL ? AOTICACHE_OK
                                    : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
}

static bool join(char **place, const char *first, const char *between, const char *last)
{
    int length = asprintf(place, "%s%s%s", first, between, last);
    if (length < 0)
        *place = NULL;
    return length >= 0;
}

/* S3 alone takes what the environment of Amazon's own tools says. */
static bool read_secrets(http_connection *connection, const aoticache_remote_settings *settings)
{
    const char *user = settings->user, *secret = settings->secret;
    if (connection->sigv4 != NULL && user == NULL && secret == NULL) {
        const char *session = secure_getenv("AWS_SESSION_TOKEN");
        user = secure_getenv("AWS_ACCESS_KEY_ID");
        secret = secure_getenv("AWS_SECRET_ACCESS_KEY");
        if (session != NULL && session[0] != '\0' && !join(&connection->session, "x-amz-security-token", ": ", session))
            return false;
    }
    if (secret == NULL)
        return true;
    return user != NULL ? join(&connection->userpwd, user, ":", secret) : join(&connection->bearer, secret, "", "");
}

static bool copy(char **place, const char *text)
{
    *place = text != NULL ? strdup(text) : NULL;
    return text == NULL || *place != NULL;
}

static bool copy_files(http_connection *connection, const aoticache_remote_settings *settings)
{
    return copy(&connection->ca_file, settings->ca_file) &&
           copy(&connection->client_certificate, settings->client_certificate) &&
           copy(&connection->client_key, settings->client_key);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CURLcode global;

static void start_curl(void)
{
    global = curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* Whether this program runs with other rights than its caller's. Then its environment is the caller's, and says nothing. */
static bool has_callers_environment(void)
{
    return getauxval(AT_SECURE) != 0;
}

static aoticache_status open_connection(const aoticache_remote_settings *settings, void **ret_connection,
                                        aoticache_error *ret_error)
{
    /* libcurl opens this file when it starts, with the rights of the program, and no option keeps it from that. */
    if (has_callers_environment() && getenv("SSLKEYLOGFILE") != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                   "SSLKEYLOGFILE is set for a program that runs with other rights than its caller's, "
                                   "and libcurl would write to that file with these rights; start it without the "
                                   "variable");
    pthread_once(&once, start_curl);
    http_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL || global != CURLE_OK || (connection->curl = curl_easy_init()) == NULL) {
        free(connection);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "libcurl cannot be started");
    }
    connection->connect_timeout_ms = settings->connect_timeout_ms;
    aoticache_status status = read_url(connection, settings->url, ret_error);
    if (status == AOTICACHE_OK && (!read_secrets(connection, settings) || !copy_files(connection, settings)))
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    if (status == AOTICACHE_OK && connection->sigv4 != NULL && connection->userpwd == NULL)
        status =
            aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                "no key for S3: set user= and secret-file= or secret-env=, or AWS_ACCESS_KEY_ID and "
                                "AWS_SECRET_ACCESS_KEY");
    if (status == AOTICACHE_OK)
        *ret_connection = connection;
    else
        close_connection(connection);
    return status;
}

/* ---- one request ---- */

static size_t take_body(char *bytes, size_t unit, size_t count, void *user)
{
    struct answer *answer = user;
    const size_t size = unit * count;
    long code = 0;
    curl_easy_getinfo(answer->curl, CURLINFO_RESPONSE_CODE, &code);
    if (code < 200 || code >= 300) { /* what an error says is of no use, and it has bounds of its own */
        answer->page_bytes += size;
        return answer->page_bytes <= MOST_OF_A_PAGE ? size : 0;
    }
    if (size > answer->left) {
        answer->is_too_large = true;
        return 0;
    }
    answer->left -= size;
    if (answer->sink == NULL || code != 200)
        return size;
    if (!answer->sink(answer->user, bytes, size)) {
        answer->is_stopped = true;
        return 0;
    }
    return size;
}

/* The value of a header line, without spaces around it; NULL: it is another header. */
static const char *header_value(const char *line, size_t size, const char *name, size_t *ret_length)
{
    size_t begin = strlen(name), end = size;
    if (size < begin || strncasecmp(line, name, begin) != 0)
        return NULL;
    while (begin < end && line[begin] == ' ')
        begin++;
    while (end > begin && (unsigned char)line[end - 1] <= ' ')
        end--;
    *ret_length = end - begin;
    return line + begin;
}

static void take_date(const char *line, size_t size, const char *name, time_t *date)
{
    char text[64];
    size_t length = 0;
    const char *value = header_value(line, size, name, &length);
    if (value == NULL || length >= sizeof text)
        return;
    memcpy(text, value, length);
    text[length] = '\0';
    *date = curl_getdate(text, NULL);
}

static size_t take_header(char *line, size_t unit, size_t count, void *user)
{
    struct answer *answer = user;
    const size_t size = unit * count;
    size_t length = 0;
    const char *version = answer->version != NULL ? header_value(line, size, "etag:", &length) : NULL;
    if (version != NULL && length < AOTICACHE_REMOTE_VERSION_BYTES) {
        memcpy(answer->version, version, length);
        answer->version[length] = '\0';
    }
    take_date(line, size, "date:", &answer->date);
    take_date(line, size, "last-modified:", &answer->modified);
    return size;
}

/* "x-amz-content-sha256: ...", the digest of what is sent, which Amazon requires and libcurl signs. False: out of memory. */
static bool write_payload_header(const struct body *body, char *line, size_t size)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    if (EVP_Digest(body->size > 0 ? body->bytes : "", body->size, digest, &length, EVP_sha256(), NULL) != 1)
        return false;
    int at = snprintf(line, size, "x-amz-content-sha256: ");
    for (unsigned int i = 0; i < length; i++)
        at += snprintf(line + at, size - (size_t)at, "%02x", digest[i]);
    return true;
}

/* A weak version (W/"...") is good for no condition. */
static struct curl_slist *make_headers(const http_connection *connection, const struct body *body,
                                       const char *condition, bool *ret_ok)
{
    char line[AOTICACHE_REMOTE_VERSION_BYTES + 32], payload[128];
    struct curl_slist *headers = NULL, *more = NULL;
    bool is_ok = true;
#define ADD(text) \
    (more = curl_slist_append(headers, text), is_ok = is_ok && more != NULL, headers = more != NULL ? more : headers)
    if (connection->sigv4 == NULL)
        ADD("Expect:");
    else if (write_payload_header(body, payload,
                                  sizeof payload)) /* a header that is taken away would be signed all the same */
        ADD(payload);
    else
        is_ok = false;
    ADD("Content-Type: application/octet-stream");
    if (connection->session != NULL)
        ADD(connection->session);
    if (condition != NULL && condition[0] == '\0')
        ADD("If-None-Match: *");
    else if (condition != NULL && strncmp(condition, "W/", 2) != 0) {
        snprintf(line, sizeof line, "If-Match: %s", condition);
        ADD(line);
    }
#undef ADD
    *ret_ok = is_ok;
    return headers;
}

/*
 * What libcurl takes from the environment (http_proxy, HTTPS_PROXY, ALL_PROXY, NO_PROXY, and HOME for a .netrc file), it takes
 * only where it is not told. With HTTP/3 it would write to QLOGDIR.
 */
static void ignore_environment(CURL *curl)
{
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
}

static void set_options(http_connection *connection, struct answer *answer, const char *url, uint32_t timeout_ms)
{
    CURL *curl = connection->curl;
    curl_easy_reset(curl); /* connections stay open */
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    if (has_callers_environment())
        ignore_environment(curl);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)connection->connect_timeout_ms);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "libaoticache/" AOTICACHE_VERSION);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, answer);
    curl_easy_setopt(curl, CURLOPT_CAINFO, connection->ca_file); /* NULL: as libcurl was built */
    if (connection->ca_file == NULL)
        curl_easy_setopt(curl, CURLOPT_SSL_OPTIONS, 0L);
    curl_easy_setopt(curl, CURLOPT_SSLCERT, connection->client_certificate);
    curl_easy_setopt(curl, CURLOPT_SSLKEY, connection->client_key);
    if (connection->sigv4 != NULL) {
        curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, connection->sigv4);
        curl_easy_setopt(curl, CURLOPT_EXPECT_100_TIMEOUT_MS, EXPECT_MS);
    }
    if (connection->userpwd != NULL)
        curl_easy_setopt(curl, CURLOPT_USERPWD, connection->userpwd);
    if (connection->bearer != NULL) {
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, connection->bearer);
    }
}

static aoticache_status judge(const struct answer *answer, CURLcode result, long code, aoticache_error *ret_error)
{
    if (answer->is_too_large)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "the answer has more bytes than are allowed");
    if (answer->is_stopped)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "the answer was not wanted to its end");
    if (result != CURLE_OK && answer->page_bytes <= MOST_OF_A_PAGE)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "%s", curl_easy_strerror(result));
    if (code >= 200 && code < 300)
        return AOTICACHE_OK;
    if (code == 404 || code == 410)
        return AOTICACHE_NOT_FOUND;
    if (code == 401 || code == 403)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED, "the server refuses (HTTP status %ld)", code);
    if (code == 409 || code == 412)
        return aoticache_error_set(ret_error, AOTICACHE_LOCKED, "it has changed there meanwhile");
    return aoticache_error_set(ret_error, AOTICACHE_IO, "the server answers with HTTP status %ld", code);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * A server that has too much to do (S3 answers 503 where a prefix is asked too often) is asked again after 100 ms, then after
 * twice as long each time, as far as there is time. Random by a half, so that machines do not come back together. False: no
 * time is left.
 */
static bool wait_for_next_try(unsigned tries, int64_t deadline)
{
    int64_t ms = FIRST_RETRY_MS << tries;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    ms = ms / 2 + ms * (now.tv_nsec / 1000 % 1024) / 1024;
    if (now_ms() + ms >= deadline)
        return false;
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
    return true;
}

static CURLcode perform(http_connection *connection, struct answer *answer, const char *url, uint32_t timeout_ms,
                        void (*set_method)(CURL *curl, const struct body *body), const struct body *body,
                        long *ret_code)
{
    const int64_t deadline = now_ms() + timeout_ms;
    CURLcode result = CURLE_OK;
    for (unsigned tries = 0;; tries++) {
        const int64_t left = deadline - now_ms();
        answer->page_bytes = 0;
        set_options(connection, answer, url, left > 1 ? (uint32_t)left : 1);
        curl_easy_setopt(connection->curl, CURLOPT_HTTPHEADER, body->headers);
        set_method(connection->curl, body);
        result = curl_easy_perform(connection->curl);
        curl_easy_getinfo(connection->curl, CURLINFO_RESPONSE_CODE, ret_code);
        if (result != CURLE_OK || (*ret_code != 503 && *ret_code != 429) || !wait_for_next_try(tries, deadline))
            return result;
    }
}

static void set_put(CURL *curl, const struct body *body)
{
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->size);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body->bytes);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, "PUT");
}

static void set_get(CURL *curl, const struct body *body)
{
    (void)body;
    curl_easy_setopt(curl, CURLOPT_NOBODY, 0L);
}

static void set_head(CURL *curl, const struct body *body)
{
    (void)body;
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
}

static aoticache_status request(http_connection *connection, void (*set_method)(CURL *curl, const struct body *body),
                                const char *name, struct body body, const char *condition, uint32_t timeout_ms,
                                struct answer *answer, aoticache_error *ret_error)
{
    char *url = NULL;
    long code = 0;
    bool is_ok = false;
    if (!join(&url, connection->base, "/", name))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    body.headers = make_headers(connection, &body, condition, &is_ok);
    answer->curl = connection->curl;
    CURLcode result =
        is_ok ? perform(connection, answer, url, timeout_ms, set_method, &body, &code) : CURLE_OUT_OF_MEMORY;
    curl_easy_setopt(connection->curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(body.headers);
    free(url);
    return judge(answer, result, code, ret_error);
}

/* ---- the interface ---- */

#define SMALL_ANSWER (UINT64_C(1) << 20)

static aoticache_status get(void *connection, const char *name, uint64_t max_bytes, uint32_t timeout_ms,
                            aoticache_remote_sink_fn sink, void *user, char *ret_version, aoticache_error *ret_error)
{
    struct answer answer = {.sink = sink, .user = user, .left = max_bytes, .version = ret_version};
    if (ret_version != NULL)
        ret_version[0] = '\0';
    return request(connection, set_get, name, (struct body){.size = 0}, NULL, timeout_ms, &answer, ret_error);
}

static aoticache_status put(void *connection, const char *name, const void *bytes, size_t size, const char *condition,
                            uint32_t timeout_ms, aoticache_error *ret_error)
{
    struct answer answer = {.left = SMALL_ANSWER};
    const struct body body = {.bytes = bytes, .size = size};
    aoticache_status status = request(connection, set_put, name, body, condition, timeout_ms, &answer, ret_error);
    return status == AOTICACHE_NOT_FOUND
               ? aoticache_error_set(ret_error, AOTICACHE_IO, "the server answers a PUT with HTTP status 404")
               : status;
}

static aoticache_status exists(void *connection, const char *name, uint32_t timeout_ms, aoticache_error *ret_error)
{
    struct answer answer = {.left = SMALL_ANSWER};
    return request(connection, set_head, name, (struct body){.size = 0}, NULL, timeout_ms, &answer, ret_error);
}

/* Any answer has the time, a refusal too. */
static aoticache_status tell_time(void *connection, uint32_t timeout_ms, int64_t *ret_unix_ms,
                                  aoticache_error *ret_error)
{
    struct answer answer = {.left = SMALL_ANSWER, .date = -1};
    aoticache_status status =
        request(connection, set_head, "probe", (struct body){.size = 0}, NULL, timeout_ms, &answer, ret_error);
    *ret_unix_ms = (int64_t)answer.date * 1000;
    if (answer.date != -1)
        return AOTICACHE_OK;
    return status == AOTICACHE_IO
               ? status
               : aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "the server does not say its time");
}

/* ---- leases ---- */

#define PROBE "lease/probe" /* what is written to find out whether conditions are honoured */
#define LEASE_BYTES 128     /* "TOKEN MILLISECONDS"; an empty file: nobody has it */

/* Whether a PUT under this condition is refused, as it must be. */
static aoticache_status is_refused(http_connection *connection, const char *condition, uint32_t timeout_ms,
                                   bool *ret_refused, aoticache_error *ret_error)
{
    aoticache_status status = put(connection, PROBE, "probe", 5, condition, timeout_ms, ret_error);
    *ret_refused = status == AOTICACHE_LOCKED;
    return *ret_refused ? AOTICACHE_OK : status;
}

/* Once for each connection. UNSUPPORTED: the server ignores conditions. */
static aoticache_status try_conditions(http_connection *connection, uint32_t timeout_ms, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    if (connection->conditions == NOT_TRIED) {
        bool is_new_refused = false, is_other_refused = false;
        status = is_refused(connection, "", timeout_ms, &is_new_refused, ret_error);
        if (status == AOTICACHE_OK && !is_new_refused) /* it was not there. Now it is */
            status = is_refused(connection, "", timeout_ms, &is_new_refused, ret_error);
        if (status == AOTICACHE_OK && is_new_refused)
            status = is_refused(connection, "\"another version\"", timeout_ms, &is_other_refused, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        connection->conditions = is_new_refused && is_other_refused ? HONOURED : IGNORED;
    }
    return connection->conditions == HONOURED
               ? AOTICACHE_OK
               : aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                     "the server ignores If-None-Match and If-Match of a PUT, so it has no leases");
}

/* What is known of a lease. */
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

static aoticache_status read_lease(http_connection *connection, const char *name, uint32_t timeout_ms,
                                   struct lease *ret_lease, aoticache_error *ret_error)
{
    *ret_lease = (struct lease){.size = 0};
    struct answer answer = {.sink = take_lease, .user = ret_lease, .left = SMALL_ANSWER, .version = ret_lease->version};
    answer.date = answer.modified = -1;
    aoticache_status status =
        request(connection, set_get, name, (struct body){.size = 0}, NULL, timeout_ms, &answer, ret_error);
    const char *space = strchr(ret_lease->text, ' ');
    const unsigned long ms = space != NULL ? strtoul(space, NULL, 10) : 0;
    /* These clocks have whole seconds. Without them a lease ends only when its owner says so, or with the others' patience. */
    ret_lease->has_expired =
        answer.date >= 0 && answer.modified >= 0 && difftime(answer.date, answer.modified) > (double)ms / 1000 + 1;
    if (answer.is_stopped) /* what lies there is no lease: it may be replaced */
        status = AOTICACHE_OK;
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

static bool is_of(const struct lease *lease, const char *token)
{
    const size_t length = strlen(token);
    return strncmp(lease->text, token, length) == 0 && lease->text[length] == ' ';
}

static aoticache_status acquire(void *opaque, const char *name, const char *token, uint32_t ttl_ms, uint32_t timeout_ms,
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
        return aoticache_error_set(ret_error, AOTICACHE_LOCKED, "another machine has it");
    const int length = snprintf(text, sizeof text, "%s %u\n", token, ttl_ms);
    if (length < 0 || (size_t)length >= sizeof text)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the token is too long");
    return put(connection, name, text, (size_t)length, lease.version, timeout_ms, ret_error);
}

static aoticache_status release(void *opaque, const char *name, const char *token, uint32_t timeout_ms,
                                aoticache_error *ret_error)
{
    struct lease lease;
    aoticache_status status = read_lease(opaque, name, timeout_ms, &lease, ret_error);
    if (status != AOTICACHE_OK || !is_of(&lease, token))
        return status;
    status = put(opaque, name, "", 0, lease.version, timeout_ms, ret_error);
    return status == AOTICACHE_LOCKED ? AOTICACHE_OK : status; /* another has it by now */
}

const aoticache_remote_module *aoticache_remote_module_1(void)
{
    static const aoticache_remote_module module = {.bytes = sizeof module,
                                                   .abi = AOTICACHE_REMOTE_MODULE_ABI,
                                                   .is_conditional =
                                                       false, /* many servers ignore conditions of a PUT */
                                                   .open = open_connection,
                                                   .close = close_connection,
                                                   .get = get,
                                                   .put = put,
                                                   .exists = exists,
                                                   .acquire = acquire,
                                                   .release = release,
                                                   .time = tell_time};
    return &module;
}
