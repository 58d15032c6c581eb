/*
 * cache/remote/module: the interface of a module for a remote: a shared library that moves named bytes to and from one kind
 * of server.
 *
 * libaoticache loads `libaoticache_remote_NAME.so` only when a remote that needs it is configured, and calls the one
 * function that it exports, aoticache_remote_module_1(). The modules http and redis come with the library; docs/remotes.md
 * describes how to add others, and docs/examples/remote_directory.c is a complete one. A module does not interpret the
 * bytes: the library limits the size of everything that it fetches, verifies it and checks its signature.
 *
 * The result of a request decides what the library does next (cache/remote/health.c):
 *
 *     NOT_FOUND    nothing is there; with a message: the server does not say whether something is there, and the
 *                  message is logged once
 *     LOCKED       a condition does not hold, or another token has the lease
 *     DENIED       the server answers, and refuses this kind of request: rights, a full disk, a method that it lacks. Requests
 *                  of this kind (reads, writes, leases) pause
 *     UNSUPPORTED  the server answers, but will never accept this object (put), or does not support the request
 *     IO           no answer, none in time, or an unintelligible one; after a read the whole remote pauses
 *     NO_MEMORY    out of memory in this process
 *
 * A connection is used by one thread at a time. Calls return within about timeout_ms. They raise no signals (not even for a
 * socket whose other end is closed), print nothing, and put no secret into a message. A message begins with the problem, in
 * lower case, without the name of the remote, which the library adds.
 *
 * Authors of modules include only this header.
 */
#ifndef AOTICACHE_CACHE_REMOTE_MODULE_H
#define AOTICACHE_CACHE_REMOTE_MODULE_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AOTICACHE_REMOTE_MODULE_ABI 1
#define AOTICACHE_REMOTE_VERSION_BYTES 128 /* of a version's text, with the zero byte */

/* The configuration of a remote. Borrowed during open(); `continues` may be called until close(). */
typedef struct aoticache_remote_settings {
    uint32_t bytes;      /* sizeof this struct: later versions only add to its end */
    const char *url;     /* without secrets */
    const char *user;    /* NULL: none */
    const char *secret;  /* password, token or secret key; NULL: none */
    const char *ca_file; /* trusted certificates; NULL: the system's */
    uint32_t connect_timeout_ms;
    const char *client_certificate; /* the client's certificate and its secret key: PEM files; NULL: none */
    const char *client_key;
    /* Called periodically, at least once a second, while a request is in progress: if it returns false, the request ends
     * with IO. NULL: every request may use its whole time. */
    bool (*continues)(void *user);
    void *continues_user;
} aoticache_remote_settings;

/* Takes the next bytes of an answer. Returns false to stop: the bytes are not wanted. */
typedef bool (*aoticache_remote_sink_fn)(void *user, const void *bytes, size_t size);

typedef struct aoticache_remote_module {
    uint32_t bytes;      /* sizeof this struct: later versions only add to its end */
    uint32_t abi;        /* AOTICACHE_REMOTE_MODULE_ABI */
    bool is_conditional; /* the condition of put() holds regardless of concurrent changes by other machines */

    /* Reads the settings. It need not connect yet. Returns: OK, INVALID (the URL), UNSUPPORTED, IO, DENIED, NO_MEMORY. */
    aoticache_status (*open)(const aoticache_remote_settings *settings, void **ret_connection,
                             aoticache_error *ret_error);
    void (*close)(void *connection);

    /*
     * Passes the bytes that are stored as `name` to the sink, at most max_bytes of them. ret_version: NULL, or space for
     * AOTICACHE_REMOTE_VERSION_BYTES: a text that changes with the bytes, for put(); "" if the server has none. With
     * ret_version, no cache between here and the server may answer in the server's place.
     */
    aoticache_status (*get)(void *connection, const char *name, uint64_t max_bytes, uint32_t timeout_ms,
                            aoticache_remote_sink_fn sink, void *user, char *ret_version, aoticache_error *ret_error);
    /*
     * Stores bytes as `name`; a reader sees the old bytes or the new ones. condition: NULL: in any case; "": only if nothing
     * is stored; otherwise only if the stored bytes have this version. A server without conditions stores in any case: the
     * library then checks afterwards (is_conditional).
     */
    aoticache_status (*put)(void *connection, const char *name, const void *bytes, size_t size, const char *condition,
                            uint32_t timeout_ms, aoticache_error *ret_error);
    aoticache_status (*exists)(void *connection, const char *name, uint32_t timeout_ms, aoticache_error *ret_error);

    /*
     * Acquires the lease `name` for ttl_ms if it is free, or extends it if `token` has it. NULL: this kind of server has no
     * leases. UNSUPPORTED: this server has none.
     */
    aoticache_status (*acquire)(void *connection, const char *name, const char *token, uint32_t ttl_ms,
                                uint32_t timeout_ms, aoticache_error *ret_error);
    /* Releases the lease if `token` has it. */
    aoticache_status (*release)(void *connection, const char *name, const char *token, uint32_t timeout_ms,
                                aoticache_error *ret_error);

    /*
     * Waits until the lease `name` is released, on a connection that is used for nothing else. The first call subscribes,
     * and does not wait. NULL: the server cannot notify; then the library polls.
     * OK: it was released since the last call. NOT_FOUND: not within timeout_ms.
     */
    aoticache_status (*wait)(void *connection, const char *name, uint32_t timeout_ms, aoticache_error *ret_error);

    /*
     * Gives the time of the server's clock, in milliseconds since 1970, even if the server refuses everything else. NULL:
     * the server cannot report it. UNSUPPORTED: this server does not report it.
     */
    aoticache_status (*time)(void *connection, uint32_t timeout_ms, int64_t *ret_unix_ms, aoticache_error *ret_error);

    /* Removes what is stored as `name`, if anything is. NULL: this kind of server cannot remove. */
    aoticache_status (*remove)(void *connection, const char *name, uint32_t timeout_ms, aoticache_error *ret_error);
} aoticache_remote_module;

/* The function that a module exports. Static storage. */
typedef const aoticache_remote_module *(*aoticache_remote_module_fn)(void);
#define AOTICACHE_REMOTE_MODULE_SYMBOL "aoticache_remote_module_1"
AOTICACHE_API const aoticache_remote_module *aoticache_remote_module_1(void);

#ifdef __cplusplus
}
#endif
#endif
