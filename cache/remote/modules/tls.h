/*
 * cache/remote/modules/tls: TLS over a connection whose bytes the caller sends and receives, with its own deadlines and
 * without signals. The server's certificate must be valid according to the system's authorities or those in a file, and must
 * match the server's name.
 *
 * Private to the module redis.
 */
#ifndef AOTICACHE_CACHE_REMOTE_MODULES_TLS_H
#define AOTICACHE_CACHE_REMOTE_MODULES_TLS_H

#include "base/base.h"

/* The underlying connection. Each function returns OK or the status that ends the exchange. */
typedef struct tls_transport {
    void *user;
    aoticache_status (*send)(void *user, const char *bytes, size_t size, aoticache_error *ret_error); /* all of them */
    /* Waits for bytes and returns some. *ret_size 0: the other side has closed. */
    aoticache_status (*receive)(void *user, char *bytes, size_t size, size_t *ret_size, aoticache_error *ret_error);
} tls_transport;

typedef struct tls_session tls_session;

/* PEM files. */
typedef struct tls_files {
    char *authorities;       /* NULL: the system's */
    char *certificate, *key; /* the client's certificate and key; NULL: none */
} tls_files;

/* Connects. host: the name or address that the certificate must have. */
aoticache_status tls_connect(const char *host, const tls_files *files, const tls_transport *transport,
                             tls_session **ret_session, aoticache_error *ret_error);
/* Frees the session without notifying the server. NULL is allowed. */
void tls_free(tls_session *session);
aoticache_status tls_send(tls_session *session, const char *bytes, size_t size, aoticache_error *ret_error);
/* Waits, and returns at least one byte. */
aoticache_status tls_receive(tls_session *session, char *bytes, size_t size, size_t *ret_size,
                             aoticache_error *ret_error);

#endif
