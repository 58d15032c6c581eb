/*
 * cache/remote/modules/http: what the files of the module http share: http.c reads settings and is the interface,
 * http_request.c makes requests, http_answers.c says what an answer means, http_lease.c makes leases of small files.
 */
#ifndef AOTICACHE_CACHE_REMOTE_MODULES_HTTP_H
#define AOTICACHE_CACHE_REMOTE_MODULES_HTTP_H

#include "cache/remote/module.h"

#include <curl/curl.h>
#include <sys/auxv.h>
#include <time.h>

#define HTTP_PAGE_BYTES 1024 /* of an error's page, for the code in it */
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
    enum { HTTP_NOT_TRIED, HTTP_HONOURED, HTTP_IGNORED } conditions; /* as leases need them */
    bool lacks_conditions;                                           /* the server refuses requests that have any */
} http_connection;

/* One answer. The first three are given. */
typedef struct http_answer {
    aoticache_remote_sink_fn sink; /* NULL: the body is dropped */
    void *user;
    char *version; /* NULL: not wanted */
    CURL *curl;
    uint64_t left;       /* bytes that may still come */
    uint64_t page_bytes; /* of an error's page that came */
    char page[HTTP_PAGE_BYTES];
    bool is_too_large, is_stopped;
    time_t date, modified; /* by the server's clock; -1: it does not say */
    long retry_after_s;    /* 0: it does not say */
    long code;
} http_answer;

/* What is sent. */
typedef struct http_body {
    const void *bytes;
    size_t size;
    const char *condition; /* as of a module's put() */
} http_body;

/* Milliseconds of a clock that only goes forward. */
static inline int64_t http_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Returns whether this program runs with other rights than its caller's. Then its environment is the caller's, and says
 * nothing. */
static inline bool http_has_callers_environment(void)
{
    return getauxval(AT_SECURE) != 0;
}

/* Returns what an answer with this status means, and says so. */
aoticache_status http_judge(const http_connection *connection, http_method method, const http_body *body,
                            const http_answer *answer, aoticache_error *ret_error);

/* Makes one request, and as many more as the answers ask for, within timeout_ms. */
aoticache_status http_request(http_connection *connection, http_method method, const char *name, http_body body,
                              uint32_t timeout_ms, http_answer *answer, aoticache_error *ret_error);
aoticache_status http_put(void *connection, const char *name, const void *bytes, size_t size, const char *condition,
                          uint32_t timeout_ms, aoticache_error *ret_error);

/* As the module's functions. */
aoticache_status http_acquire(void *connection, const char *name, const char *token, uint32_t ttl_ms,
                              uint32_t timeout_ms, aoticache_error *ret_error);
aoticache_status http_release(void *connection, const char *name, const char *token, uint32_t timeout_ms,
                              aoticache_error *ret_error);

#endif
