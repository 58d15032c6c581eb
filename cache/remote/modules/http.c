/*
 * cache/remote/modules/http: remotes over HTTP: any server that answers GET, HEAD and PUT (WebDAV, a cache of Bazel's
 * kind), and S3, whose requests libcurl signs (AWS Signature Version 4).
 *
 * One easy handle is one connection.
 */
#include "cache/remote/modules/http.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Returns the value of `name` in the query of a URL, copied; NULL if it is not there. */
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

/* Converts "s3://bucket/prefix?endpoint=URL&region=REGION" to the URL of the directory. */
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
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "the URL has no bucket: s3://BUCKET/PREFIX?region=...");
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
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the URL of a directory must not contain '?' or '#'");
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

/* Reads the secrets. Only S3 uses the environment variables of Amazon's own tools. */
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

static aoticache_status open_connection(const aoticache_remote_settings *settings, void **ret_connection,
                                        aoticache_error *ret_error)
{
    /* libcurl opens this file when it starts, with the rights of the program, and no option prevents that. */
    if (http_has_callers_environment() && getenv("SSLKEYLOGFILE") != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                   "SSLKEYLOGFILE is set, but this program runs with other rights than its "
                                   "caller's, and libcurl would write to that file with these rights; start it "
                                   "without the variable");
    pthread_once(&once, start_curl);
    http_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL || global != CURLE_OK || (connection->curl = curl_easy_init()) == NULL) {
        free(connection);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "cannot start libcurl");
    }
    connection->connect_timeout_ms = settings->connect_timeout_ms;
    connection->continues = settings->continues;
    connection->continues_user = settings->continues_user;
    aoticache_status status = read_url(connection, settings->url, ret_error);
    if (status == AOTICACHE_OK && (!read_secrets(connection, settings) || !copy_files(connection, settings)))
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    if (status == AOTICACHE_OK && connection->sigv4 != NULL && connection->userpwd == NULL)
        status = aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                     "no access key for S3: set user= and secret-file= or secret-env=, or "
                                     "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
    if (status == AOTICACHE_OK)
        *ret_connection = connection;
    else
        close_connection(connection);
    return status;
}

/* ---- the interface ---- */

static aoticache_status get(void *connection, const char *name, uint64_t max_bytes, uint32_t timeout_ms,
                            aoticache_remote_sink_fn sink, void *user, char *ret_version, aoticache_error *ret_error)
{
    http_answer answer = {.sink = sink, .user = user, .left = max_bytes, .version = ret_version};
    if (ret_version != NULL)
        ret_version[0] = '\0';
    return http_request(connection, HTTP_GET, name, (http_body){.size = 0}, timeout_ms, &answer, ret_error);
}

static aoticache_status exists(void *connection, const char *name, uint32_t timeout_ms, aoticache_error *ret_error)
{
    http_answer answer = {.left = HTTP_SMALL_ANSWER};
    return http_request(connection, HTTP_HEAD, name, (http_body){.size = 0}, timeout_ms, &answer, ret_error);
}

static aoticache_status remove_file(void *connection, const char *name, uint32_t timeout_ms, aoticache_error *ret_error)
{
    http_answer answer = {.left = HTTP_SMALL_ANSWER};
    return http_request(connection, HTTP_DELETE, name, (http_body){.size = 0}, timeout_ms, &answer, ret_error);
}

/* Gives the time, which every answer has, even a refusal. */
static aoticache_status tell_time(void *connection, uint32_t timeout_ms, int64_t *ret_unix_ms,
                                  aoticache_error *ret_error)
{
    http_answer answer = {.left = HTTP_SMALL_ANSWER, .date = -1};
    aoticache_error detail = {.message = ""};
    aoticache_status status =
        http_request(connection, HTTP_HEAD, "probe", (http_body){.size = 0}, timeout_ms, &answer, &detail);
    *ret_unix_ms = (int64_t)answer.date * 1000;
    if (answer.date != -1)
        return AOTICACHE_OK;
    return status == AOTICACHE_IO
               ? aoticache_error_set(ret_error, status, "%s", detail.message)
               : aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "the server does not report its time");
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
                                                   .put = http_put,
                                                   .exists = exists,
                                                   .acquire = http_acquire,
                                                   .release = http_release,
                                                   .time = tell_time,
                                                   .remove = remove_file};
    return &module;
}
