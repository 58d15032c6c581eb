/*
 * cache/trust/entries: reads, adds, makes and checks the signatures of a cache's own entries.
 */
#include "base/arguments.h"
#include "cache/trust/trust_internal.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/names.h"
#include "cache/cache_internal.h"
#include "cache/store/lock.h"

static aoticache_status check_arguments(const aoticache_cache *cache, const aoticache_digest *artifact, bool has_rest,
                                        aoticache_error *ret_error)
{
    return cache != NULL && artifact != NULL && has_rest
               ? AOTICACHE_OK
               : aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                     "signatures of an entry: the cache, the entry or another "
                                     "argument is NULL");
}

static aoticache_status load_manifest(aoticache_cache *cache, const aoticache_digest *artifact,
                                      aoticache_manifest **ret_manifest, aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    uint64_t bytes;
    aoticache_status status =
        aoticache_cache_load_manifest(cache->directory, artifact, ret_manifest, &bytes, ret_error);
    aoticache_digest_to_hex(artifact, hex);
    return status == AOTICACHE_NOT_FOUND ? aoticache_error_set(ret_error, status, "manifest %s does not exist", hex)
                                         : status;
}

aoticache_status aoticache_cache_read_signatures(aoticache_cache *cache, const aoticache_digest *artifact,
                                                 char **ret_text, aoticache_error *ret_error)
{
    aoticache_signature_list list = {.count = 0};
    aoticache_status status = check_arguments(cache, artifact, ret_text != NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_cache_enter(cache);
    status = aoticache_signature_file_read(cache->directory, artifact, &list, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    char *text = aoticache_signature_list_format(&list);
    if (text == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for signatures");
    *ret_text = text;
    return AOTICACHE_OK;
}

static aoticache_status add_list(aoticache_cache *cache, const aoticache_digest *artifact,
                                 const aoticache_signature_list *list, aoticache_error *ret_error)
{
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    aoticache_status status = aoticache_cache_check_writable(cache, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_lock_store(cache->directory, false, &lock, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_signature_file_add(cache->directory, artifact, list, true, ret_error);
    aoticache_lock_release(&lock);
    return status;
}

aoticache_status aoticache_cache_sign(aoticache_cache *cache, const aoticache_digest *artifact,
                                      const aoticache_secret_key *key, aoticache_error *ret_error)
{
    aoticache_manifest *manifest = NULL;
    aoticache_signature_list list = {.count = 1};
    aoticache_status status = check_arguments(cache, artifact, key != NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_cache_enter(cache);
    status = aoticache_trust_check_signers(cache, &key, 1, ret_error);
    if (status == AOTICACHE_OK)
        status = load_manifest(cache, artifact, &manifest, ret_error);
    if (status == AOTICACHE_OK) {
        const aoticache_statement statement = aoticache_statement_of_manifest(artifact, manifest);
        status = aoticache_statement_sign(&statement, key, &list.items[0], ret_error);
    }
    aoticache_manifest_free(manifest);
    return status == AOTICACHE_OK ? add_list(cache, artifact, &list, ret_error) : status;
}

aoticache_status aoticache_cache_check_signatures(aoticache_cache *cache, const aoticache_digest *artifact,
                                                  aoticache_signature_fn callback, void *user,
                                                  aoticache_error *ret_error)
{
    aoticache_manifest *manifest = NULL;
    aoticache_signature_list list = {.count = 0};
    aoticache_status status = check_arguments(cache, artifact, callback != NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_cache_enter(cache);
    status = aoticache_signature_file_read(cache->directory, artifact, &list, ret_error);
    if (status != AOTICACHE_OK || list.count == 0)
        return status;
    status = load_manifest(cache, artifact, &manifest, ret_error);
    if (status == AOTICACHE_OK) {
        const aoticache_statement statement = aoticache_statement_of_manifest(artifact, manifest);
        status = aoticache_trust_check(cache, &statement, &list, callback, user, ret_error);
    }
    aoticache_manifest_free(manifest);
    return status;
}

aoticache_status aoticache_cache_check_statement(aoticache_cache *cache, const aoticache_statement *statement,
                                                 const char *text, aoticache_signature_fn callback, void *user,
                                                 aoticache_error *ret_error)
{
    aoticache_statement given;
    aoticache_signature_list list = {.count = 0};
    aoticache_status status = aoticache_statement_read(statement, &given, ret_error);
    if (status == AOTICACHE_OK && (cache == NULL || callback == NULL))
        status = AOTICACHE_REFUSE_NULL(ret_error, cache, callback);
    if (status == AOTICACHE_OK)
        status = aoticache_signature_list_parse(text, &list, ret_error);
    if (status != AOTICACHE_OK || list.count == 0)
        return status;
    aoticache_cache_enter(cache);
    return aoticache_trust_check(cache, &given, &list, callback, user, ret_error);
}
