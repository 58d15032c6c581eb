/*
 * cache/remote/modules/http: types and functions shared by the files of the module http: http.c reads settings and
 * implements the interface, http_request.c makes requests, http_answers.c interprets answers, http_lease.c builds leases
 * from small files.
 */
#ifndef AOTICACHE_CACHE_REMOTE_MODULES_HTTP_H
#define AOTICACHE_CACHE_REMOTE_MODULES_HTTP_H

#include "cache/remote/module.h"

#include <curl/curl.h>
#include <sys/auxv.h>
#include <time.h>

#define HTTP_PAGE_BYTES 1024 /* of an error's page, to find the code in it */
#define HTTP_SMALL_ANSWER (UINT64_C(1) << 20)

typedef enum http_method { HTTP_GET, HTTP_HEAD, HTTP_PUT, HTTP_DELETE, HTTP_MKCOL } http_method;

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
    bool (*continues)(void *user); /* or NULL */
    void *continues_user;
    enum { HTTP_NOT_TRIED, HTTP_HONOURED, HTTP_IGNORED } conditions; /* conditions, as leases need them */
    bool lacks_conditions; /* the server refuses requests that have conditions */
} http_connection;

/* One answer. The caller sets the first three members. */
typedef struct http_answer {
    aoticache_remote_sink_fn sink; /* NULL: the body is discarded */
    void *user;
    char *version; /* NULL: not wanted */
    CURL *curl;
    uint64_t left;       /* bytes that may still come */
    uint64_t page_bytes; /* bytes received of an error's page */
    char page[HTTP_PAGE_BYTES];
    bool is_too_large, is_stopped;
    time_t date, modified; /* by the server's clock; -1: not reported */
    long retry_after_s;    /* 0: not reported */
    long code;
} http_answer;

/* What to send. */
typedef struct http_body {
    const void *bytes;
    size_t size;
    const char *condition; /* as of a module's put() */
} http_body;

/* Returns the milliseconds of a monotonic clock. */
static inline int64_t http_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Returns whether this program runs with other rights than its caller's. Then the caller controls its environment, which is
 * ignored. */
static inline bool http_has_callers_environment(void)
{
    return getauxval(AT_SECURE) != 0;
}

/* Returns what an answer with this status means, and writes the message. */
aoticache_status http_judge(const http_connection *connection, http_method method, const http_body *body,
                            const http_answer *answer, aoticache_error *ret_error);

/* Makes one request, and any further requests that the answers require, within timeout_ms. */
aoticache_status http_request(http_connection *connection, http_method method, const char *name, http_body body,
                              uint32_t timeout_ms, http_answer *answer, aoticache_error *ret_error);
aoticache_status http_put(void *connection, const char *name, const void *bytes, size_t size, const char *condition,
                          uint32_t timeout_ms, aoticache_error *ret_error);

/* Behave as the module's functions of these names. */
aoticache_status http_acquire(void *connection, const char *name, const char *token, uint32_t ttl_ms,
                              uint32_t timeout_ms, aoticache_error *ret_error);
aoticache_status http_release(void *connection, const char *name, const char *token, uint32_t timeout_ms,
                              aoticache_error *ret_error);

#endif
