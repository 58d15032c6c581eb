/*
 * cache/trust/ed25519: signs and verifies (RFC 8032, pure Ed25519), with libcrypto.
 *
 * libcrypto's shared library costs a process 1.6 MB and half a millisecond, and a process that checks no signature should
 * not pay for that. So it is loaded on the first call, and stays loaded. The SHA-256 that is linked from its archive is a
 * separate copy.
 */
#include "cache/trust/trust_internal.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/process/optional_library.h"

/* The library that the header belongs to; then other versions. */
#ifdef OPENSSL_SHLIB_VERSION
#define TEXT_OF(number) #number
#define SONAME(number) "libcrypto.so." TEXT_OF(number)
#define OWN_SONAME SONAME(OPENSSL_SHLIB_VERSION)
#else
#define OWN_SONAME "libcrypto.so.1.1"
#endif

/* result, name, parameters: the same in OpenSSL 1.1.1 and 3. The engine is always NULL. */
/* clang-format off */ /* it parses the types of parameters as products */
#define FUNCTION_LIST(X)                                                                                              \
    X(EVP_PKEY *, EVP_PKEY_new_raw_private_key, (int type, void *engine, const unsigned char *key, size_t size))    \
    X(EVP_PKEY *, EVP_PKEY_new_raw_public_key, (int type, void *engine, const unsigned char *key, size_t size))     \
    X(int, EVP_PKEY_get_raw_public_key, (const EVP_PKEY *key, unsigned char *ret_key, size_t *size))                  \
    X(void, EVP_PKEY_free, (EVP_PKEY * key))                                                                          \
    X(EVP_MD_CTX *, EVP_MD_CTX_new, (void))                                                                           \
    X(void, EVP_MD_CTX_free, (EVP_MD_CTX * context))                                                                  \
    X(int, EVP_DigestSignInit,                                                                                        \
      (EVP_MD_CTX * context, EVP_PKEY_CTX **key_context, const EVP_MD *digest, void *engine, EVP_PKEY *key))        \
    X(int, EVP_DigestSign,                                                                                            \
      (EVP_MD_CTX * context, unsigned char *ret_signature, size_t *size, const unsigned char *message, size_t length)) \
    X(int, EVP_DigestVerifyInit,                                                                                      \
      (EVP_MD_CTX * context, EVP_PKEY_CTX **key_context, const EVP_MD *digest, void *engine, EVP_PKEY *key))        \
    X(int, EVP_DigestVerify,                                                                                          \
      (EVP_MD_CTX * context, const unsigned char *signature, size_t size, const unsigned char *message, size_t length)) \
    X(void, ERR_clear_error, (void))
/* clang-format on */

static struct {
#define MEMBER(result, name, parameters) result(*name##_) parameters;
    FUNCTION_LIST(MEMBER)
#undef MEMBER
} crypto;

static atomic_bool is_there;

static aoticache_status open_crypto(aoticache_error *ret_error)
{
    static const char *const names[] = {OWN_SONAME, "libcrypto.so.3", "libcrypto.so.1.1"};
    static const aoticache_library_function table[] = {
#define ENTRY(result, name, parameters) {#name, &crypto.name##_},
        FUNCTION_LIST(ENTRY)
#undef ENTRY
    };
    char problem[AOTICACHE_OPTIONAL_LIBRARY_PROBLEM_BYTES] = OWN_SONAME " cannot be opened";
    if (aoticache_optional_library_open(&is_there, names, sizeof names / sizeof names[0], table,
                                        sizeof table / sizeof table[0], "OpenSSL 1.1.1", problem))
        return AOTICACHE_OK;
    return aoticache_error_set(
        ret_error, AOTICACHE_UNSUPPORTED,
        "signatures need libcrypto, and %s: install OpenSSL (Debian: libssl3; Fedora: openssl-libs)", problem);
}

/* Reports that libcrypto gave no key, or no context: memory is short, or its configuration forbids Ed25519. */
static aoticache_status refused(aoticache_error *ret_error)
{
    crypto.ERR_clear_error_(); /* the host's own calls of libcrypto use the same error queue */
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "libcrypto does not support Ed25519 here: it is out of memory, or openssl.cnf "
                               "forbids it");
}

aoticache_status aoticache_ed25519_public(const uint8_t seed[32], uint8_t ret_public[32], aoticache_error *ret_error)
{
    uint8_t found[32];
    size_t size = sizeof found;
    aoticache_status status = open_crypto(ret_error);
    if (status != AOTICACHE_OK)
        return status;
    EVP_PKEY *key = crypto.EVP_PKEY_new_raw_private_key_(EVP_PKEY_ED25519, NULL, seed, 32);
    const bool is_good = key != NULL && crypto.EVP_PKEY_get_raw_public_key_(key, found, &size) == 1 && size == 32;
    crypto.EVP_PKEY_free_(key);
    if (!is_good)
        return refused(ret_error);
    memcpy(ret_public, found, sizeof found);
    return AOTICACHE_OK;
}

aoticache_status aoticache_ed25519_sign(const uint8_t seed[32], const void *message, size_t size,
                                        uint8_t ret_signature[64], aoticache_error *ret_error)
{
    uint8_t signature[64];
    size_t length = sizeof signature;
    aoticache_status status = open_crypto(ret_error);
    if (status != AOTICACHE_OK)
        return status;
    EVP_PKEY *key = crypto.EVP_PKEY_new_raw_private_key_(EVP_PKEY_ED25519, NULL, seed, 32);
    EVP_MD_CTX *context = crypto.EVP_MD_CTX_new_();
    const bool is_good = key != NULL && context != NULL &&
                         crypto.EVP_DigestSignInit_(context, NULL, NULL, NULL, key) == 1 &&
                         crypto.EVP_DigestSign_(context, signature, &length, message, size) == 1 && length == 64;
    crypto.EVP_MD_CTX_free_(context);
    crypto.EVP_PKEY_free_(key);
    if (!is_good)
        return refused(ret_error);
    memcpy(ret_signature, signature, sizeof signature);
    return AOTICACHE_OK;
}

aoticache_status aoticache_ed25519_verify(const uint8_t public_key[32], const void *message, size_t size,
                                          const uint8_t signature[64], aoticache_error *ret_error)
{
    aoticache_status status = open_crypto(ret_error);
    if (status != AOTICACHE_OK)
        return status;
    EVP_PKEY *key = crypto.EVP_PKEY_new_raw_public_key_(EVP_PKEY_ED25519, NULL, public_key, 32);
    EVP_MD_CTX *context = crypto.EVP_MD_CTX_new_();
    const bool is_ready =
        key != NULL && context != NULL && crypto.EVP_DigestVerifyInit_(context, NULL, NULL, NULL, key) == 1;
    const bool is_valid = is_ready && crypto.EVP_DigestVerify_(context, signature, 64, message, size) == 1;
    crypto.EVP_MD_CTX_free_(context);
    crypto.EVP_PKEY_free_(key);
    if (!is_ready)
        return refused(ret_error);
    crypto.ERR_clear_error_();
    return is_valid ? AOTICACHE_OK
                    : aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "the key did not make this signature");
}
