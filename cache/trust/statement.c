/*
 * cache/trust/statement: the canonical bytes that are signed for an entry (docs/signatures.md), and signing and verifying
 * them.
 *
 * The digest of the manifest determines everything after it. The rest is included so that the signature can be checked with
 * only a row of an index, without the manifest, and so that it can never be valid for anything else.
 */
#include "base/arguments.h"
#include "cache/trust/trust_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/options.h"

#define FEATURE_BITS (AOTICACHE_CPU_FEATURE_WORDS * 64)

static uint8_t *put_number(uint8_t *at, uint64_t number, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(number >> (8 * i));
    return at + bytes;
}

static uint8_t *put_bytes(uint8_t *at, const void *bytes, size_t size)
{
    memcpy(at, bytes, size);
    return at + size;
}

static uint8_t *put_text(uint8_t *at, const char *text)
{
    return put_bytes(put_number(at, strlen(text), 4), text, strlen(text));
}

static uint8_t *put_requirements(uint8_t *at, const aoticache_cpu_features *features)
{
    at = put_number(at, aoticache_cpu_features_count(features), 4);
    for (unsigned bit = 0; bit < FEATURE_BITS; bit++)
        if ((features->words[bit / 64] >> (bit % 64) & 1) != 0)
            at = put_number(at, bit, 2);
    return at;
}

aoticache_status aoticache_statement_read(const aoticache_statement *given, aoticache_statement *ret_statement,
                                          aoticache_error *ret_error)
{
    aoticache_status status =
        given != NULL
            ? AOTICACHE_OPTIONS_READ(aoticache_statement, AOTICACHE_STATEMENT_INIT, given, ret_statement, ret_error)
            : aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_statement: statement is NULL");
    if (status != AOTICACHE_OK)
        return status;
    if (ret_statement->guard == NULL)
        ret_statement->guard = "";
    if (ret_statement->producer == NULL)
        ret_statement->producer = "";
    if (strlen(ret_statement->guard) > UINT32_MAX || strlen(ret_statement->producer) > UINT32_MAX)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "aoticache_statement: a text is longer than 2^32-1 bytes");
    return AOTICACHE_OK;
}

aoticache_status aoticache_statement_encode(const aoticache_statement *statement, uint8_t **ret_bytes, size_t *ret_size,
                                            aoticache_error *ret_error)
{
    aoticache_statement given;
    aoticache_status status = aoticache_statement_read(statement, &given, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (ret_bytes == NULL || ret_size == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, ret_bytes, ret_size);
    const size_t most = sizeof AOTICACHE_STATEMENT_MAGIC + 2 + 32 + 4 + 2 * FEATURE_BITS + 4 + strlen(given.guard) +
                        32 + 4 + strlen(given.producer) + 8;
    uint8_t *bytes = malloc(most);
    if (bytes == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a statement");
    uint8_t *at = put_bytes(bytes, AOTICACHE_STATEMENT_MAGIC, sizeof AOTICACHE_STATEMENT_MAGIC);
    at = put_number(at, AOTICACHE_STATEMENT_VERSION, 2);
    at = put_bytes(at, given.key.bytes, sizeof given.key.bytes);
    at = put_requirements(at, &given.requirements);
    at = put_text(at, given.guard);
    at = put_bytes(at, given.artifact.bytes, sizeof given.artifact.bytes);
    at = put_text(at, given.producer);
    at = put_number(at, (uint64_t)given.created_ns, 8);
    *ret_bytes = bytes;
    *ret_size = (size_t)(at - bytes);
    return AOTICACHE_OK;
}

aoticache_status aoticache_statement_sign(const aoticache_statement *statement, const aoticache_secret_key *key,
                                          aoticache_signature *ret_signature, aoticache_error *ret_error)
{
    cleanup_free uint8_t *bytes = NULL;
    size_t size = 0;
    aoticache_signature signature = {.name = ""};
    aoticache_status status = aoticache_statement_encode(statement, &bytes, &size, ret_error);
    if (status == AOTICACHE_OK && (key == NULL || ret_signature == NULL))
        return AOTICACHE_REFUSE_NULL(ret_error, key, ret_signature);
    if (status == AOTICACHE_OK)
        status = aoticache_ed25519_sign(key->seed, bytes, size, signature.bytes, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    memcpy(signature.name, key->public_key.name, sizeof signature.name);
    *ret_signature = signature;
    return AOTICACHE_OK;
}

aoticache_status aoticache_statement_verify_bytes(const uint8_t *bytes, size_t size, const aoticache_public_key *key,
                                                  const aoticache_signature *signature, aoticache_error *ret_error)
{
    return aoticache_ed25519_verify(key->bytes, bytes, size, signature->bytes, ret_error);
}

aoticache_statement aoticache_statement_of_manifest(const aoticache_digest *digest, const aoticache_manifest *manifest)
{
    aoticache_statement statement = AOTICACHE_STATEMENT_INIT;
    statement.key = manifest->key;
    statement.requirements = manifest->requirements;
    statement.guard = manifest->guard;
    statement.artifact = *digest;
    statement.producer = manifest->producer;
    statement.created_ns = manifest->created_ns;
    return statement;
}
