/*
 * cache/trust/trust: the keys that a cache trusts: those of its options and those of the user's files.
 *
 * Nothing is read before the first decision, so a process that imports nothing has no costs. The set is read once; a key
 * that the user accepts is added to it.
 */
#include "base/arguments.h"
#include "cache/trust/trust_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "cache/cache_internal.h"

#define NO_MEMORY(ret_error) aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for keys")

/* ---- the options when the cache was opened ---- */

static bool copy_text(const char *text, char **ret_copy)
{
    if (text == NULL || text[0] == '\0')
        return true;
    *ret_copy = strdup(text);
    return *ret_copy != NULL;
}

aoticache_status aoticache_trust_init(aoticache_trust *trust, const aoticache_cache_options *options,
                                      aoticache_error *ret_error)
{
    pthread_mutex_init(&trust->mutex, NULL);
    trust->rule = options->signatures;
    if (!copy_text(options->trusted_keys, &trust->trusted_text) ||
        !copy_text(options->revoked_keys, &trust->revoked_text) || !copy_text(options->sign_with, &trust->sign_with) ||
        !copy_text(options->key_directory, &trust->directory))
        return NO_MEMORY(ret_error);
    return AOTICACHE_OK;
}

void aoticache_trust_clear(aoticache_trust *trust)
{
    for (size_t i = 0; i < trust->signer_count; i++)
        aoticache_secret_key_free(trust->signers[i]);
    free(trust->signers);
    free(trust->trusted);
    free(trust->revoked);
    free(trust->trusted_text);
    free(trust->revoked_text);
    free(trust->sign_with);
    free(trust->directory);
    pthread_mutex_destroy(&trust->mutex);
    memset(trust, 0, sizeof *trust);
}

/* ---- loading the keys, with the mutex held ---- */

struct loading {
    aoticache_trust *trust;
    const aoticache_logger *logger;
    aoticache_trust_origin origin;
    aoticache_error *ret_error;
};

aoticache_status aoticache_trust_add(aoticache_trust *trust, const aoticache_public_key *key,
                                     aoticache_trust_origin origin, aoticache_error *ret_error)
{
    for (size_t i = 0; i < trust->trusted_count; i++)
        if (memcmp(&trust->trusted[i].key, key, sizeof *key) == 0)
            return AOTICACHE_OK;
    if (!AOTICACHE_ARRAY_RESERVE(trust->trusted, trust->trusted_capacity, trust->trusted_count + 1))
        return NO_MEMORY(ret_error);
    trust->trusted[trust->trusted_count++] = (aoticache_trusted_key){.key = *key, .origin = origin};
    return AOTICACHE_OK;
}

static aoticache_status load_trusted(void *user, const char *word, const char *place)
{
    struct loading *loading = user;
    aoticache_error detail = {.message = ""};
    aoticache_public_key key;
    if (aoticache_public_key_parse(word, &key, &detail) == AOTICACHE_OK)
        return aoticache_trust_add(loading->trust, &key, loading->origin, loading->ret_error);
    aoticache_log(loading->logger, AOTICACHE_LOG_WARNING, "%s: not used: %s", place, detail.message);
    return AOTICACHE_OK;
}

/* Loads a line of revoked keys. A line that cannot be parsed may have revoked the very key that signs: nothing is accepted
 * then. */
static aoticache_status load_revoked(void *user, const char *word, const char *place)
{
    struct loading *loading = user;
    aoticache_trust *trust = loading->trust;
    aoticache_error detail = {.message = ""};
    aoticache_revocation revocation;
    if (aoticache_revocation_parse(word, &revocation, &detail) != AOTICACHE_OK)
        return aoticache_error_set(loading->ret_error, AOTICACHE_INVALID,
                                   "%s: %s; nothing from elsewhere is accepted until this line is corrected", place,
                                   detail.message);
    if (!AOTICACHE_ARRAY_RESERVE(trust->revoked, trust->revoked_capacity, trust->revoked_count + 1))
        return NO_MEMORY(loading->ret_error);
    trust->revoked[trust->revoked_count++] = revocation;
    return AOTICACHE_OK;
}

static aoticache_status load_words(const char *text, const char *place, aoticache_key_word_fn callback,
                                   struct loading *loading)
{
    cleanup_free char *words = strdup(text != NULL ? text : "");
    char *rest = NULL;
    aoticache_status status = words != NULL ? AOTICACHE_OK : NO_MEMORY(loading->ret_error);
    for (char *word = words != NULL ? strtok_r(words, " \t\n", &rest) : NULL; status == AOTICACHE_OK && word != NULL;
         word = strtok_r(NULL, " \t\n", &rest))
        status = callback(loading, word, place);
    return status;
}

/* Reads the user's own key, or those of sign_with. */
static aoticache_status load_signers(aoticache_trust *trust, aoticache_error *ret_error)
{
    cleanup_free char *paths = NULL;
    char *rest = NULL;
    aoticache_status status = AOTICACHE_OK;
    if (trust->sign_with != NULL)
        paths = strdup(trust->sign_with);
    else if (trust->directory == NULL || asprintf(&paths, "%s/" AOTICACHE_SECRET_KEY_FILE, trust->directory) < 0)
        return trust->directory == NULL ? AOTICACHE_OK : NO_MEMORY(ret_error);
    if (paths == NULL)
        return NO_MEMORY(ret_error);
    /* Without sign_with it is one path, which may contain spaces. */
    for (char *path = trust->sign_with != NULL ? strtok_r(paths, " \t", &rest) : paths;
         status == AOTICACHE_OK && path != NULL;
         path = trust->sign_with != NULL ? strtok_r(NULL, " \t", &rest) : NULL) {
        aoticache_secret_key *key = NULL;
        status = aoticache_secret_key_read(path, &key, ret_error);
        if (status == AOTICACHE_NOT_FOUND && trust->sign_with == NULL)
            return AOTICACHE_OK;
        if (status != AOTICACHE_OK)
            break;
        if (!AOTICACHE_ARRAY_RESERVE(trust->signers, trust->signer_capacity, trust->signer_count + 1)) {
            aoticache_secret_key_free(key);
            return NO_MEMORY(ret_error);
        }
        trust->signers[trust->signer_count++] = key;
    }
    return status;
}

static aoticache_status need_signers(aoticache_trust *trust, aoticache_error *ret_error)
{
    if (trust->has_signers)
        return AOTICACHE_OK;
    for (size_t i = 0; i < trust->signer_count; i++) /* from a failed try */
        aoticache_secret_key_free(trust->signers[i]);
    trust->signer_count = 0;
    aoticache_status status = load_signers(trust, ret_error);
    trust->has_signers = status == AOTICACHE_OK;
    return status;
}

static aoticache_status load_all(aoticache_cache *cache, aoticache_error *ret_error)
{
    aoticache_trust *trust = &cache->trust;
    aoticache_error detail = {.message = ""};
    struct loading loading = {.trust = trust,
                              .logger = &cache->directory->logger,
                              .origin = AOTICACHE_TRUST_ORIGIN_CONFIGURED,
                              .ret_error = ret_error};
    trust->trusted_count = trust->revoked_count = 0;
    aoticache_status status = load_words(trust->trusted_text, "trusted_keys", load_trusted, &loading);
    if (status == AOTICACHE_OK)
        status = load_words(trust->revoked_text, "revoked_keys", load_revoked, &loading);
    loading.origin = AOTICACHE_TRUST_ORIGIN_USER;
    if (status == AOTICACHE_OK && trust->directory != NULL)
        status =
            aoticache_key_file_read(trust->directory, AOTICACHE_TRUSTED_KEYS_FILE, load_trusted, &loading, ret_error);
    if (status == AOTICACHE_OK && trust->directory != NULL)
        status =
            aoticache_key_file_read(trust->directory, AOTICACHE_REVOKED_KEYS_FILE, load_revoked, &loading, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    /* If the user's own key cannot be read, entries of other keys are still accepted. */
    if (need_signers(trust, &detail) != AOTICACHE_OK)
        aoticache_log(loading.logger, AOTICACHE_LOG_WARNING, "%s; entries that your own key signed are not trusted",
                      detail.message);
    for (size_t i = 0; status == AOTICACHE_OK && i < trust->signer_count; i++)
        status = aoticache_trust_add(trust, &trust->signers[i]->public_key, AOTICACHE_TRUST_ORIGIN_OWN, ret_error);
    trust->is_loaded = status == AOTICACHE_OK;
    return status;
}

aoticache_status aoticache_trust_lock(aoticache_cache *cache, aoticache_error *ret_error)
{
    pthread_mutex_lock(&cache->trust.mutex);
    aoticache_status status = cache->trust.is_loaded ? AOTICACHE_OK : load_all(cache, ret_error);
    if (status != AOTICACHE_OK)
        pthread_mutex_unlock(&cache->trust.mutex);
    return status;
}

bool aoticache_trust_revokes_key(const aoticache_trust *trust, const aoticache_public_key *key)
{
    for (size_t i = 0; i < trust->revoked_count; i++)
        if (aoticache_revocation_names_key(&trust->revoked[i], key))
            return true;
    return false;
}

bool aoticache_trust_has_revoked(const aoticache_trust *trust, const aoticache_digest *artifact)
{
    for (size_t i = 0; i < trust->revoked_count; i++)
        if (trust->revoked[i].kind == AOTICACHE_REVOKES_ENTRY &&
            aoticache_digest_equal(&trust->revoked[i].artifact, artifact))
            return true;
    return false;
}

/* ---- listing ---- */

aoticache_status aoticache_trust_revokes_entry(aoticache_cache *cache, const aoticache_digest *artifact,
                                               bool *ret_revoked, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_trust_lock(cache, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *ret_revoked = aoticache_trust_has_revoked(&cache->trust, artifact);
    pthread_mutex_unlock(&cache->trust.mutex);
    return AOTICACHE_OK;
}

aoticache_status aoticache_trust_revoked_entry_at(aoticache_cache *cache, size_t position,
                                                  aoticache_digest *ret_artifact, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_trust_lock(cache, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = AOTICACHE_NOT_FOUND;
    for (size_t i = 0; i < cache->trust.revoked_count && status == AOTICACHE_NOT_FOUND; i++) {
        if (cache->trust.revoked[i].kind != AOTICACHE_REVOKES_ENTRY || position-- > 0)
            continue;
        *ret_artifact = cache->trust.revoked[i].artifact;
        status = AOTICACHE_OK;
    }
    pthread_mutex_unlock(&cache->trust.mutex);
    return status;
}

aoticache_status aoticache_cache_list_trusted(aoticache_cache *cache, aoticache_trusted_fn callback, void *user,
                                              aoticache_error *ret_error)
{
    if (cache == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, callback);
    aoticache_cache_enter(cache);
    aoticache_status status = aoticache_trust_lock(cache, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const aoticache_trust *trust = &cache->trust;
    bool continues = true;
    for (size_t i = 0; continues && i < trust->trusted_count; i++) {
        const aoticache_trusted_key *trusted = &trust->trusted[i];
        continues = callback(user, &trusted->key, trusted->origin, aoticache_trust_revokes_key(trust, &trusted->key));
    }
    pthread_mutex_unlock(&cache->trust.mutex);
    return AOTICACHE_OK;
}

/* ---- signers ---- */

/* Call this with the mutex held and everything loaded. */
static aoticache_status check_signers(const aoticache_trust *trust, const aoticache_secret_key *const *keys,
                                      size_t count, aoticache_error *ret_error)
{
    for (size_t i = 0; i < count; i++) {
        char fingerprint[AOTICACHE_FINGERPRINT_BYTES];
        const aoticache_public_key *key = aoticache_secret_key_public(keys[i]);
        const bool is_own = trust->sign_with == NULL && trust->signer_count > 0 &&
                            memcmp(&trust->signers[0]->public_key, key, sizeof *key) == 0;
        if (!aoticache_trust_revokes_key(trust, key))
            continue;
        aoticache_public_key_fingerprint(key, fingerprint);
        return aoticache_error_set(ret_error, AOTICACHE_DENIED, "key '%s' (%s): it is revoked and cannot sign; %s",
                                   key->name, fingerprint,
                                   is_own ? "create another with 'aoticache key rotate'" : "sign with another key");
    }
    return AOTICACHE_OK;
}

aoticache_status aoticache_trust_check_signers(aoticache_cache *cache, const aoticache_secret_key *const *keys,
                                               size_t count, aoticache_error *ret_error)
{
    if (count == 0)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_trust_lock(cache, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = check_signers(&cache->trust, keys, count, ret_error);
    pthread_mutex_unlock(&cache->trust.mutex);
    return status;
}

aoticache_status aoticache_cache_signers(aoticache_cache *cache, const aoticache_secret_key *const **ret_keys,
                                         size_t *ret_count, aoticache_error *ret_error)
{
    if (cache == NULL || ret_keys == NULL || ret_count == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, ret_keys, ret_count);
    aoticache_cache_enter(cache);
    aoticache_trust *trust = &cache->trust;
    pthread_mutex_lock(&trust->mutex);
    aoticache_status status = need_signers(trust, ret_error);
    if (status == AOTICACHE_OK && trust->signer_count > 0 && !trust->is_loaded)
        status = load_all(cache, ret_error);
    const aoticache_secret_key *const *keys = (const aoticache_secret_key *const *)trust->signers;
    if (status == AOTICACHE_OK)
        status = check_signers(trust, keys, trust->signer_count, ret_error);
    if (status == AOTICACHE_OK) {
        *ret_keys = keys;
        *ret_count = trust->signer_count;
    }
    pthread_mutex_unlock(&trust->mutex);
    return status;
}
