/*
 * cache/remote/signature_check: the signatures of entries that are sent to a remote, and the check whether a received entry
 * may be imported.
 *
 * The import batch decides about all foreign entries (cache/transfer/commit.c). This decision is made before the files of an
 * entry are fetched, from its manifest, and with the requested key.
 */
#include "base/log.h"
#include "base/names.h"
#include "cache/remote/remote_internal.h"

#include <stdio.h>
#include <string.h>

aoticache_status aoticache_remote_decide(aoticache_cache *cache, const aoticache_remote *remote,
                                         const aoticache_digest *artifact, const aoticache_manifest *manifest,
                                         const char *signatures, const aoticache_key *wanted,
                                         aoticache_trust_verdict *ret_verdict, aoticache_error *ret_error)
{
    const aoticache_statement statement = aoticache_statement_of_manifest(artifact, manifest);
    aoticache_trust_claim claim = AOTICACHE_TRUST_CLAIM_INIT;
    char key[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(&statement.key, key);
    claim.statement = &statement;
    claim.signatures = signatures;
    claim.wanted = wanted;
    claim.allow_unsigned = remote->config.allow_unsigned;
    aoticache_status status = aoticache_cache_decide(cache, &claim, ret_verdict, ret_error);
    if (status != AOTICACHE_OK || !ret_verdict->is_accepted)
        return status;
    /* The cache may require no signatures for imports by the user. For a remote, its own settings must say so. */
    ret_verdict->is_accepted = ret_verdict->reason == AOTICACHE_TRUST_SIGNED || remote->config.allow_unsigned;
    if (!ret_verdict->is_accepted)
        snprintf(ret_verdict->message, sizeof ret_verdict->message,
                 "entry %.12s: no trusted key signed it, and the remote is not set to unsigned=allow", key);
    return AOTICACHE_OK;
}

aoticache_status aoticache_remote_signatures(aoticache_cache *cache, const aoticache_digest *artifact,
                                             const aoticache_manifest *manifest,
                                             const aoticache_secret_key *const *signers, size_t count, char **ret_text,
                                             aoticache_error *ret_error)
{
    const aoticache_statement statement = aoticache_statement_of_manifest(artifact, manifest);
    aoticache_signature_list list = {.count = 0};
    aoticache_error detail = {.message = ""};
    if (aoticache_signature_file_read(cache->directory, artifact, &list, &detail) != AOTICACHE_OK)
        aoticache_log(&cache->directory->logger, AOTICACHE_LOG_WARNING, "%s; these signatures are left out",
                      detail.message);
    for (size_t i = 0; i < count; i++) {
        aoticache_signature signature;
        aoticache_status status = aoticache_statement_sign(&statement, signers[i], &signature, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        if (!aoticache_signature_list_add(&list, &signature))
            return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "it has more than %d signatures",
                                       AOTICACHE_MAX_SIGNATURES);
    }
    *ret_text = aoticache_signature_list_format(&list);
    return *ret_text != NULL ? AOTICACHE_OK
                             : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for signatures");
}
