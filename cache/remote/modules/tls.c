/*
 * cache/remote/modules/tls: TLS for the module redis, with libssl over two buffers in memory.
 */
#include "cache/remote/modules/tls.h"

#include <arpa/inet.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES 16384 /* the maximum of one TLS record */

struct tls_session {
    SSL_CTX *context;
    SSL *ssl;
    BIO *in, *out; /* received bytes to be read, bytes to be sent; owned by ssl */
    tls_transport transport;
};

static aoticache_status fail(const char *what, aoticache_error *ret_error)
{
    char text[160] = "";
    const unsigned long code = ERR_get_error();
    if (code != 0)
        ERR_error_string_n(code, text, sizeof text);
    ERR_clear_error();
    return aoticache_error_set(ret_error, AOTICACHE_IO, "TLS: %s%s%s", what, text[0] != '\0' ? ": " : "", text);
}

/* ---- the two buffers ---- */

static aoticache_status send_pending(tls_session *session, aoticache_error *ret_error)
{
    char piece[PIECE_BYTES];
    int size;
    aoticache_status status = AOTICACHE_OK;
    while (status == AOTICACHE_OK && (size = BIO_read(session->out, piece, sizeof piece)) > 0)
        status = session->transport.send(session->transport.user, piece, (size_t)size, ret_error);
    return status;
}

static aoticache_status receive_some(tls_session *session, aoticache_error *ret_error)
{
    char piece[PIECE_BYTES];
    size_t size = 0;
    aoticache_status status =
        session->transport.receive(session->transport.user, piece, sizeof piece, &size, ret_error);
    if (status == AOTICACHE_OK && size == 0)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "the server closed the connection");
    if (status == AOTICACHE_OK && BIO_write(session->in, piece, (int)size) != (int)size)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    return status;
}

/* Called after a call of libssl that returned `result`: sends and receives what libssl waits for. OK: repeat the call. */
static aoticache_status go_on(tls_session *session, int result, const char *doing, aoticache_error *ret_error)
{
    const int why = SSL_get_error(session->ssl, result);
    aoticache_status status = send_pending(session, ret_error); /* including an alert */
    if (status != AOTICACHE_OK)
        return status;
    if (why == SSL_ERROR_WANT_READ)
        return receive_some(session, ret_error);
    if (why == SSL_ERROR_ZERO_RETURN)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "the server closed the connection");
    const long verdict = SSL_get_verify_result(session->ssl);
    if (verdict == X509_V_OK)
        return fail(doing, ret_error);
    ERR_clear_error();
    return aoticache_error_set(ret_error, AOTICACHE_IO,
                               "TLS: the server's certificate is not trusted: %s (ca-file=PATH)",
                               X509_verify_cert_error_string(verdict));
}

/* ---- the connection ---- */

static bool set_name(SSL *ssl, const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

static bool show_certificate(SSL_CTX *context, const tls_files *files)
{
    if (files->certificate == NULL)
        return true;
    return SSL_CTX_use_certificate_chain_file(context, files->certificate) == 1 &&
           SSL_CTX_use_PrivateKey_file(context, files->key != NULL ? files->key : files->certificate,
                                       SSL_FILETYPE_PEM) == 1;
}

static SSL_CTX *make_context(const tls_files *files, aoticache_error *ret_error)
{
    const char *ca_file = files->authorities;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL) {
        fail("cannot start", ret_error);
        return NULL;
    }
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    const int has_roots = ca_file != NULL ? SSL_CTX_load_verify_locations(context, ca_file, NULL)
                                          : SSL_CTX_set_default_verify_paths(context);
    const bool has_own = show_certificate(context, files);
    if (has_roots == 1 && has_own)
        return context;
    ERR_clear_error();
    aoticache_error_set(ret_error, AOTICACHE_IO,
                        has_own ? "TLS: cannot read certificates in %s"
                                : "TLS: cannot use the client's certificate in %s and its key",
                        !has_own          ? files->certificate
                        : ca_file != NULL ? ca_file
                                          : "the system's directory");
    SSL_CTX_free(context);
    return NULL;
}

static aoticache_status begin(tls_session *session, const char *host, aoticache_error *ret_error)
{
    session->ssl = SSL_new(session->context);
    session->in = BIO_new(BIO_s_mem());
    session->out = BIO_new(BIO_s_mem());
    if (session->ssl == NULL || session->in == NULL || session->out == NULL) {
        BIO_free(session->in);
        BIO_free(session->out);
        return fail("cannot start", ret_error);
    }
    SSL_set_bio(session->ssl, session->in, session->out);
    if (!set_name(session->ssl, host))
        return fail("cannot start", ret_error);
    for (;;) {
        const int result = SSL_connect(session->ssl);
        if (result == 1)
            return send_pending(session, ret_error);
        aoticache_status status = go_on(session, result, "handshake failed", ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
}

aoticache_status tls_connect(const char *host, const tls_files *files, const tls_transport *transport,
                             tls_session **ret_session, aoticache_error *ret_error)
{
    aoticache_error detail = {.message = ""};
    tls_session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    session->transport = *transport;
    session->context = make_context(files, &detail);
    aoticache_status status = session->context != NULL ? begin(session, host, &detail) : AOTICACHE_IO;
    if (status == AOTICACHE_OK) {
        *ret_session = session;
        return AOTICACHE_OK;
    }
    tls_free(session);
    return aoticache_error_set(ret_error, status, "%s", detail.message);
}

void tls_free(tls_session *session)
{
    if (session == NULL)
        return;
    SSL_free(session->ssl);
    SSL_CTX_free(session->context);
    free(session);
}

/* ---- bytes ---- */

aoticache_status tls_send(tls_session *session, const char *bytes, size_t size, aoticache_error *ret_error)
{
    while (size > 0) {
        const int most = size < PIECE_BYTES ? (int)size : PIECE_BYTES;
        const int written = SSL_write(session->ssl, bytes, most);
        aoticache_status status =
            written > 0 ? send_pending(session, ret_error) : go_on(session, written, "cannot send", ret_error);
        if (status != AOTICACHE_OK)
            return status;
        bytes += written > 0 ? written : 0;
        size -= written > 0 ? (size_t)written : 0;
    }
    return AOTICACHE_OK;
}

aoticache_status tls_receive(tls_session *session, char *bytes, size_t size, size_t *ret_size,
                             aoticache_error *ret_error)
{
    for (;;) {
        const int got = SSL_read(session->ssl, bytes, size < INT_MAX ? (int)size : INT_MAX);
        if (got > 0) {
            *ret_size = (size_t)got;
            return AOTICACHE_OK;
        }
        aoticache_status status = go_on(session, got, "cannot receive", ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
}
