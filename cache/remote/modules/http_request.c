/*
 * cache/remote/modules/http_request: one request to a web server, and any further requests that its answers require.
 *
 * Redirections are not followed: a cache has no need for them, and credentials would be sent along. If a server does not
 * store into a missing directory (WebDAV), the module requests its creation, once for each such answer.
 */
#include "cache/remote/modules/http.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FIRST_RETRY_MS 100
#define MOST_OF_A_PAGE (64 * 1024) /* of an error's body that is read, so that the connection can stay open */
#define EXPECT_MS \
    100L /* how long an answer to "Expect: 100-continue" is waited for before the body is sent without it */

static size_t take_body(char *bytes, size_t unit, size_t count, void *user)
{
    http_answer *answer = user;
    const size_t size = unit * count;
    long code = 0;
    curl_easy_getinfo(answer->curl, CURLINFO_RESPONSE_CODE, &code);
    if (code < 200 || code >= 300) { /* only the beginning of an error's page is useful, and it has its own limit */
        const uint64_t at = answer->page_bytes, space = at < HTTP_PAGE_BYTES - 1 ? HTTP_PAGE_BYTES - 1 - at : 0;
        memcpy(answer->page + (space > 0 ? at : 0), bytes, size < space ? size : (size_t)space);
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

/* Returns the value of a header line, without spaces around it; NULL: it is another header. */
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
    http_answer *answer = user;
    const size_t size = unit * count;
    size_t length = 0;
    const char *version = answer->version != NULL ? header_value(line, size, "etag:", &length) : NULL;
    if (version != NULL && length < AOTICACHE_REMOTE_VERSION_BYTES) {
        memcpy(answer->version, version, length);
        answer->version[length] = '\0';
    }
    take_date(line, size, "date:", &answer->date);
    take_date(line, size, "last-modified:", &answer->modified);
    const char *after = header_value(line, size, "retry-after:", &length);
    if (after != NULL && length < 10 && after[0] >= '0' && after[0] <= '9')
        answer->retry_after_s = strtol(after, NULL, 10); /* stops at the end of the line */
    return size;
}

/* Called by libcurl at least once a second. Returns non-zero to end the request. */
static int look_whether_to_stop(void *user, curl_off_t down_all, curl_off_t down, curl_off_t up_all, curl_off_t up)
{
    const http_connection *connection = user;
    (void)down_all, (void)down, (void)up_all, (void)up;
    return connection->continues(connection->continues_user) ? 0 : 1;
}

/* Writes "x-amz-content-sha256: ...", the digest of the body, which Amazon requires and libcurl signs. Returns false if
 * memory is short. */
static bool write_payload_header(const http_body *body, char *line, size_t size)
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

/* Makes the headers. A weak version (W/"...") cannot be used in a condition. */
static struct curl_slist *make_headers(const http_connection *connection, const http_body *body, bool is_fresh,
                                       bool *ret_ok)
{
    const char *condition = connection->lacks_conditions ? NULL : body->condition;
    char line[AOTICACHE_REMOTE_VERSION_BYTES + 32], payload[128];
    struct curl_slist *headers = NULL, *more = NULL;
    bool is_ok = true;
#define ADD(text) \
    (more = curl_slist_append(headers, text), is_ok = is_ok && more != NULL, headers = more != NULL ? more : headers)
    if (connection->sigv4 == NULL)
        ADD("Expect:");
    else if (write_payload_header(body, payload, sizeof payload)) /* a removed header would still be signed */
        ADD(payload);
    else
        is_ok = false;
    ADD("Content-Type: application/octet-stream");
    if (is_fresh) /* not a proxy's copy */
        ADD("Cache-Control: no-cache");
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
 * Sets all options for which libcurl would otherwise read the environment (http_proxy, HTTPS_PROXY, ALL_PROXY, NO_PROXY, and
 * HOME for a .netrc file). With HTTP/3 it would write to QLOGDIR.
 */
static void ignore_environment(CURL *curl)
{
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
}

static void set_options(http_connection *connection, http_answer *answer, const char *url, uint32_t timeout_ms)
{
    CURL *curl = connection->curl;
    curl_easy_reset(curl); /* connections stay open */
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    if (http_has_callers_environment())
        ignore_environment(curl);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)connection->connect_timeout_ms);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
#if LIBCURL_VERSION_NUM >= 0x075700 /* the time limit also covers a name server that does not answer */
    curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);
#endif
    if (connection->continues != NULL) {
        curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
        curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look_whether_to_stop);
        curl_easy_setopt(curl, CURLOPT_XFERINFODATA, connection);
    }
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

/*
 * Waits before a request is repeated because the server is overloaded (S3 answers 503 if a prefix is requested too often):
 * the time that the server gave, or 100 ms, then twice as long each time. Pauses vary at random by a half, so that machines
 * do not come back together. Returns false if there is not enough time.
 */
static bool wait_for_next_try(unsigned tries, long retry_after_s, int64_t deadline)
{
    int64_t ms = FIRST_RETRY_MS << tries;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    ms = ms / 2 + ms * (now.tv_nsec / 1000 % 1024) / 1024;
    ms += (int64_t)retry_after_s * 1000;
    if (http_now_ms() + ms >= deadline)
        return false;
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
    return true;
}

static void set_method(CURL *curl, http_method method, const http_body *body)
{
    static const char *const names[] = {[HTTP_DELETE] = "DELETE", [HTTP_MKCOL] = "MKCOL"};
    if (method == HTTP_PUT) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->size);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body->bytes);
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, "PUT");
    } else if (method == HTTP_DELETE || method == HTTP_MKCOL)
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, names[method]);
    else
        curl_easy_setopt(curl, CURLOPT_NOBODY, method == HTTP_HEAD ? 1L : 0L);
}

/*
 * Returns whether the connection was lost before any part of the answer was forwarded. libcurl itself tries again only if
 * the connection had served another request before.
 */
static bool was_lost(CURLcode result, const http_answer *answer, uint64_t left)
{
    return (result == CURLE_GOT_NOTHING || result == CURLE_SEND_ERROR || result == CURLE_RECV_ERROR ||
            result == CURLE_PARTIAL_FILE) &&
           answer->left == left;
}

/* Repeats a request while the server is overloaded, as far as there is time, and once if its connection is lost: all of
 * these methods may be repeated. */
static CURLcode perform(http_connection *connection, http_method method, const char *url, const http_body *body,
                        int64_t deadline, http_answer *answer)
{
    bool is_ok = false;
    CURLcode result = CURLE_OUT_OF_MEMORY;
    bool may_be_lost = true;
    const uint64_t bytes_left = answer->left;
    struct curl_slist *headers = make_headers(connection, body, answer->version != NULL, &is_ok);
    for (unsigned tries = 0; is_ok; tries++) {
        const int64_t left = deadline - http_now_ms();
        answer->page_bytes = 0;
        answer->code = answer->retry_after_s = 0;
        memset(answer->page, 0, sizeof answer->page);
        set_options(connection, answer, url, left > 1 ? (uint32_t)left : 1);
        curl_easy_setopt(connection->curl, CURLOPT_HTTPHEADER, headers);
        set_method(connection->curl, method, body);
        result = curl_easy_perform(connection->curl);
        curl_easy_getinfo(connection->curl, CURLINFO_RESPONSE_CODE, &answer->code);
        is_ok = result == CURLE_OK && (answer->code == 503 || answer->code == 429) &&
                wait_for_next_try(tries, answer->retry_after_s, deadline);
        if (may_be_lost && was_lost(result, answer, bytes_left) && http_now_ms() < deadline) {
            may_be_lost = false;
            is_ok = true;
        }
    }
    curl_easy_setopt(connection->curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    return result;
}

/*
 * Asks the server to create the directories of a URL (RFC 4918, MKCOL), from the first one of its path on. Returns whether
 * the last one exists, as far as the server reports: it has created it, or answers that MKCOL is not allowed, as a server
 * without MKCOL does too.
 */
static bool make_directories(http_connection *connection, const char *url, int64_t deadline)
{
    char *directory = strdup(url), *path = directory != NULL ? strstr(directory, "://") : NULL;
    long last = 0;
    path = path != NULL ? strchr(path + 3, '/') : NULL;
    for (char *end = path != NULL ? strchr(path + 1, '/') : NULL; end != NULL; end = strchr(end + 1, '/')) {
        const http_body nothing = {.size = 0};
        http_answer answer = {.left = HTTP_SMALL_ANSWER};
        const char after = end[1];
        end[1] = '\0'; /* a directory's name ends with a slash */
        answer.curl = connection->curl;
        if (perform(connection, HTTP_MKCOL, directory, &nothing, deadline, &answer) != CURLE_OK)
            break;
        end[1] = after;
        last = answer.code;
    }
    free(directory);
    return last == 201 || last == 405;
}

/* Returns whether a PUT with a condition was refused because of the condition: some servers do not know such headers. */
static bool lacks_conditions(const http_connection *connection, const http_body *body, long code)
{
    return body->condition != NULL && !connection->lacks_conditions && (code == 400 || code == 501);
}

/* Returns whether a PUT may have been refused because its directory is missing. */
static bool lacks_directory(const http_connection *connection, long code)
{
    return connection->sigv4 == NULL && (code == 404 || code == 409 || code == 500);
}

static CURLcode perform_put(http_connection *connection, const char *url, const http_body *body, int64_t deadline,
                            http_answer *answer)
{
    CURLcode result = perform(connection, HTTP_PUT, url, body, deadline, answer);
    if (result == CURLE_OK && lacks_conditions(connection, body, answer->code)) {
        connection->lacks_conditions = true;
        result = perform(connection, HTTP_PUT, url, body, deadline, answer);
        connection->lacks_conditions = answer->code != 400 && answer->code != 501; /* the condition was not the cause */
    }
    if (result == CURLE_OK && lacks_directory(connection, answer->code)) {
        const long code = answer->code;
        if (make_directories(connection, url, deadline))
            return perform(connection, HTTP_PUT, url, body, deadline, answer);
        answer->code = code;
    }
    return result;
}

aoticache_status http_request(http_connection *connection, http_method method, const char *name, http_body body,
                              uint32_t timeout_ms, http_answer *answer, aoticache_error *ret_error)
{
    char *url = NULL;
    const int64_t deadline = http_now_ms() + timeout_ms;
    if (asprintf(&url, "%s/%s", connection->base, name) < 0)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    answer->curl = connection->curl;
    CURLcode result = method == HTTP_PUT ? perform_put(connection, url, &body, deadline, answer)
                                         : perform(connection, method, url, &body, deadline, answer);
    free(url);
    if (result == CURLE_OUT_OF_MEMORY)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    if (answer->is_too_large)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "the response has more bytes than allowed");
    if (answer->is_stopped)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "the download was cancelled");
    if (result != CURLE_OK && answer->page_bytes <= MOST_OF_A_PAGE)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "%s", curl_easy_strerror(result));
    return http_judge(connection, method, &body, answer, ret_error);
}

aoticache_status http_put(void *connection, const char *name, const void *bytes, size_t size, const char *condition,
                          uint32_t timeout_ms, aoticache_error *ret_error)
{
    http_answer answer = {.left = HTTP_SMALL_ANSWER};
    const http_body body = {.bytes = bytes, .size = size, .condition = condition};
    return http_request(connection, HTTP_PUT, name, body, timeout_ms, &answer, ret_error);
}
