/*
 * cache/trust/trust: whom a cache believes: what its options say and what the user's files say, and the decision for one
 * entry that came from elsewhere.
 *
 * Nothing is read before the first decision, so a process that takes nothing in pays for nothing. The set is read once; a
 * key that is trusted on being asked joins it.
 */
#include "cache/trust/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/options.h"
#include "cache/internal.h"

#define NO_MEMORY(ret_error) aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for keys")

/* ---- what was said when the cache was opened ---- */

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
    if (!copy_text(options->trusted_keys, &trust->trusted_text) || !copy_text(options->revoked_keys, &trust->revoked_text) ||
        !copy_text(options->sign_with, &trust->sign_with) || !copy_text(options->key_directory, &trust->directory))
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

/* ---- reading it, with the mutex held ---- */

struct loading {
    aoticache_trust *trust;
    const aoticache_logger *logger;
    aoticache_trust_origin origin;
    aoticache_error *ret_error;
};

static aoticache_status add_trusted(aoticache_trust *trust, const aoticache_public_key *key, aoticache_trust_origin origin,
                                    aoticache_error *ret_error)
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
        return add_trusted(loading->trust, &key, loading->origin, loading->ret_error);
    aoticache_log(loading->logger, AOTICACHE_LOG_WARNING, "%s: not used: %s", place, detail.message);
    return AOTICACHE_OK;
}

/* What cannot be read may have revoked the very key that signs: nothing is accepted then. */
static aoticache_status load_revoked(void *user, const char *word, const char *place)
{
    struct loading *loading = user;
    aoticache_trust *trust = loading->trust;
    aoticache_error detail = {.message = ""};
    aoticache_revocation revocation;
    if (aoticache_revocation_parse(word, &revocation, &detail) != AOTICACHE_OK)
        return aoticache_error_set(loading->ret_error, AOTICACHE_INVALID, "%s: %s; nothing from elsewhere is accepted until "
                                   "this line is mended", place, detail.message);
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
    /* Without sign_with it is one path, which may have spaces. */
    for (char *path = trust->sign_with != NULL ? strtok_r(paths, " \t", &rest) : paths; status == AOTICACHE_OK && path != NULL;
         path = trust->sign_with != NULL ? strtok_r(NULL, " \t", &rest) : NULL) {
        aoticache_secret_key *key = NULL;
        status = aoticache_secret_key_read(path, &key, ret_error);
        if (status == AOTICACHE_NOT_FOUND && trust->sign_with == NULL)
            return AOTICACHE_OK;
        if (status == AOTICACHE_OK && !AOTICACHE_ARRAY_RESERVE(trust->signers, trust->signer_capacity, trust->signer_count + 1)) {
            aoticache_secret_key_free(key);
            status = NO_MEMORY(ret_error);
        }
        if (status == AOTICACHE_OK)
            trust->signers[trust->signer_count++] = key;
    }
    return status;
}

static aoticache_status need_signers(aoticache_trust *trust, aoticache_error *ret_error)
{
    if (trust->has_signers)
        return AOTICACHE_OK;
    for (size_t i = 0; i < trust->signer_count; i++) /* of a try that failed */
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
        status = aoticache_key_file_read(trust->directory, AOTICACHE_TRUSTED_KEYS_FILE, load_trusted, &loading, ret_error);
    if (status == AOTICACHE_OK && trust->directory != NULL)
        status = aoticache_key_file_read(trust->directory, AOTICACHE_REVOKED_KEYS_FILE, load_revoked, &loading, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    /* An own key that cannot be read is no reason to refuse those of others. */
    if (need_signers(trust, &detail) != AOTICACHE_OK)
        aoticache_log(loading.logger, AOTICACHE_LOG_WARNING, "%s; what it signed is not trusted", detail.message);
    for (size_t i = 0; status == AOTICACHE_OK && i < trust->signer_count; i++)
        status = add_trusted(trust, &trust->signers[i]->public_key, AOTICACHE_TRUST_ORIGIN_OWN, ret_error);
    trust->is_loaded = status == AOTICACHE_OK;
    return status;
}

static aoticache_status lock_loaded(aoticache_cache *cache, aoticache_error *ret_error)
{
    pthread_mutex_lock(&cache->trust.mutex);
    aoticache_status status = cache->trust.is_loaded ? AOTICACHE_OK : load_all(cache, ret_error);
    if (status != AOTICACHE_OK)
        pthread_mutex_unlock(&cache->trust.mutex);
    return status;
}

static bool is_revoked_key(const aoticache_trust *trust, const aoticache_public_key *key)
{
    for (size_t i = 0; i < trust->revoked_count; i++)
        if (aoticache_revocation_names_key(&trust->revoked[i], key))
            return true;
    return false;
}

static bool is_revoked_entry(const aoticache_trust *trust, const aoticache_digest *artifact)
{
    for (size_t i = 0; i < trust->revoked_count; i++)
        if (trust->revoked[i].kind == AOTICACHE_REVOKES_ENTRY &&
            aoticache_digest_equal(&trust->revoked[i].artifact, artifact))
            return true;
    return false;
}

/* A signature by a key that is revoked under this name, or whose bytes are revoked. */
static bool is_revoked_signature(const aoticache_trust *trust, const aoticache_signature *signature)
{
    for (size_t i = 0; i < trust->revoked_count; i++)
        if (trust->revoked[i].key.name[0] != '\0' && strcmp(trust->revoked[i].key.name, signature->name) == 0)
            return true;
    for (size_t i = 0; i < trust->trusted_count; i++) /* one that is trusted here and revoked there */
        if (strcmp(trust->trusted[i].key.name, signature->name) == 0 && is_revoked_key(trust, &trust->trusted[i].key))
            return true;
    return false;
}

/* ---- one signature ---- */

struct message {
    uint8_t *bytes;
    size_t size;
};

/* Which of the trusted keys made a signature. *ret_key: borrowed from the set; NULL where none did. */
static aoticache_status judge_signature(const aoticache_trust *trust, const struct message *message,
                                        const aoticache_signature *signature, aoticache_signature_state *ret_state,
                                        const aoticache_public_key **ret_key, aoticache_error *ret_error)
{
    bool has_name = false;
    *ret_key = NULL;
    for (size_t i = 0; i < trust->trusted_count; i++) {
        const aoticache_public_key *key = &trust->trusted[i].key;
        if (strcmp(key->name, signature->name) != 0 || is_revoked_key(trust, key))
            continue;
        has_name = true;
        aoticache_status status =
            aoticache_statement_verify_bytes(message->bytes, message->size, key, signature, ret_error);
        if (status != AOTICACHE_OK && status != AOTICACHE_CORRUPT)
            return status;
        if (status == AOTICACHE_OK) {
            *ret_state = AOTICACHE_SIGNATURE_TRUSTED;
            *ret_key = key;
            return AOTICACHE_OK;
        }
    }
    *ret_state = has_name                                ? AOTICACHE_SIGNATURE_WRONG
                 : is_revoked_signature(trust, signature) ? AOTICACHE_SIGNATURE_REVOKED
                                                          : AOTICACHE_SIGNATURE_UNKNOWN;
    return AOTICACHE_OK;
}

/* ---- deciding ---- */

struct decision {
    aoticache_cache *cache;
    const aoticache_trust_claim *claim;
    bool is_required; /* a trusted signature is */
    struct message message;
    aoticache_signature_list signatures;
    aoticache_trust_verdict verdict;
    char entry[AOTICACHE_DIGEST_HEX_BYTES];
};

static const char *text_of(aoticache_trust_verdict_reason reason)
{
    switch (reason) {
#define CASE(name, number, text)         \
    case AOTICACHE_TRUST_##name: \
        return text;
        AOTICACHE_TRUST_LIST(CASE)
#undef CASE
    }
    return "it is refused";
}

static void refuse(struct decision *decision, aoticache_trust_verdict_reason reason, const char *format, ...) AOTICACHE_PRINTF(3, 4);

static void refuse(struct decision *decision, aoticache_trust_verdict_reason reason, const char *format, ...)
{
    char detail[384];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    decision->verdict = (aoticache_trust_verdict){.is_accepted = false, .reason = reason};
    snprintf(decision->verdict.message, sizeof decision->verdict.message, "entry %.12s: %s%s%s", decision->entry,
             text_of(reason), detail[0] != '\0' ? ": " : "", detail);
}

static void accept(struct decision *decision, aoticache_trust_verdict_reason reason, const aoticache_public_key *key)
{
    decision->verdict = (aoticache_trust_verdict){.is_accepted = true, .reason = reason};
    if (key != NULL)
        decision->verdict.key = *key;
    snprintf(decision->verdict.message, sizeof decision->verdict.message, "entry %.12s: %s%s%s", decision->entry,
             text_of(reason), key != NULL ? ": " : "", key != NULL ? key->name : "");
}

/* What holds whoever signed it. False: it is refused. */
static bool passes_without_keys(struct decision *decision)
{
    const aoticache_trust_claim *claim = decision->claim;
    const aoticache_statement *statement = claim->statement;
    aoticache_error detail = {.message = ""};
    if (claim->wanted != NULL && !aoticache_digest_equal(claim->wanted, &statement->key)) {
        char wanted[AOTICACHE_DIGEST_HEX_BYTES], found[AOTICACHE_DIGEST_HEX_BYTES];
        aoticache_digest_to_hex(claim->wanted, wanted);
        aoticache_digest_to_hex(&statement->key, found);
        refuse(decision, AOTICACHE_TRUST_OTHER_KEY, "%.12s was asked for, it is of %.12s", wanted, found);
    } else if (is_revoked_entry(&decision->cache->trust, &statement->artifact)) {
        refuse(decision, AOTICACHE_TRUST_REVOKED_ENTRY, "revoked_keys names its manifest %s", decision->entry);
    } else if (decision->is_required && statement->created_ns < claim->replaces_created_ns) {
        refuse(decision, AOTICACHE_TRUST_REPLAYED, "it was made %.0f s before that one, and would replace it",
               (double)(claim->replaces_created_ns - statement->created_ns) / 1e9);
    } else if (aoticache_signature_list_parse(claim->signatures, &decision->signatures, &detail) != AOTICACHE_OK) {
        refuse(decision, AOTICACHE_TRUST_NO_SIGNATURE_TEXT, "%s", detail.message);
    } else {
        for (size_t i = 0; i < decision->signatures.count; i++) {
            for (size_t k = 0; k < i; k++) {
                if (strcmp(decision->signatures.items[i].name, decision->signatures.items[k].name) != 0)
                    continue;
                refuse(decision, AOTICACHE_TRUST_REPEATED_SIGNATURE, "%s", decision->signatures.items[i].name);
                return false;
            }
        }
        return true;
    }
    return false;
}

/* Asks for keys that came along and made one of the signatures. *ret_key: one that is trusted now. */
static aoticache_status ask_for_keys(struct decision *decision, aoticache_public_key *ret_key, bool *ret_has,
                                     aoticache_error *ret_error)
{
    const aoticache_trust_claim *claim = decision->claim;
    aoticache_trust *trust = &decision->cache->trust;
    for (size_t i = 0; claim->ask != NULL && i < claim->offered_count; i++) {
        const aoticache_public_key *key = &claim->offered[i];
        for (size_t k = 0; k < decision->signatures.count && !is_revoked_key(trust, key); k++) {
            const aoticache_signature *signature = &decision->signatures.items[k];
            if (strcmp(signature->name, key->name) != 0)
                continue;
            aoticache_status status = aoticache_statement_verify_bytes(decision->message.bytes, decision->message.size, key,
                                                                       signature, ret_error);
            if (status != AOTICACHE_OK && status != AOTICACHE_CORRUPT)
                return status;
            if (status == AOTICACHE_CORRUPT || !claim->ask(claim->user, key))
                continue;
            *ret_key = *key;
            *ret_has = true;
            return add_trusted(trust, key, AOTICACHE_TRUST_ORIGIN_USER, ret_error);
        }
    }
    return AOTICACHE_OK;
}

/* None is by a trusted key, none is wrong. */
static void refuse_untrusted(struct decision *decision, const char *revoked)
{
    const aoticache_signature_list *list = &decision->signatures;
    if (revoked != NULL)
        refuse(decision, AOTICACHE_TRUST_REVOKED_KEY, "%s", revoked);
    else if (list->count == 0)
        refuse(decision, AOTICACHE_TRUST_UNSIGNED, "its maker can sign it with 'aoticache key sign'%s",
               decision->cache->trust.rule == AOTICACHE_SIGNATURES_ALWAYS
                   ? ""
                   : ", or you say that none is needed (--allow-unsigned)");
    else
        refuse(decision, AOTICACHE_TRUST_UNKNOWN_KEY, "%s did; if you trust its owner with what runs here, get the public "
               "key from them and run 'aoticache key trust KEY'", list->items[0].name);
}

/* With the mutex held. */
static aoticache_status decide(struct decision *decision, aoticache_error *ret_error)
{
    const aoticache_trust *trust = &decision->cache->trust;
    const char *revoked = NULL;
    aoticache_public_key accepted;
    bool has_accepted = false;
    decision->is_required = !decision->claim->is_ours &&
                            (trust->rule == AOTICACHE_SIGNATURES_ALWAYS ||
                             (trust->rule != AOTICACHE_SIGNATURES_NOT_REQUIRED && !decision->claim->allow_unsigned));
    if (!passes_without_keys(decision))
        return AOTICACHE_OK;
    for (size_t i = 0; i < decision->signatures.count; i++) {
        const aoticache_signature *signature = &decision->signatures.items[i];
        const aoticache_public_key *key = NULL;
        aoticache_signature_state state = AOTICACHE_SIGNATURE_UNKNOWN;
        aoticache_status status = judge_signature(trust, &decision->message, signature, &state, &key, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        if (state == AOTICACHE_SIGNATURE_WRONG) { /* somebody changed one or the other */
            refuse(decision, AOTICACHE_TRUST_WRONG_SIGNATURE, "it has the name of %s, whose key did not make it",
                   signature->name);
            return AOTICACHE_OK;
        }
        if (state == AOTICACHE_SIGNATURE_REVOKED)
            revoked = signature->name;
        if (state == AOTICACHE_SIGNATURE_TRUSTED && !has_accepted) {
            accepted = *key;
            has_accepted = true;
        }
    }
    if (!has_accepted && decision->is_required) {
        aoticache_status status = ask_for_keys(decision, &accepted, &has_accepted, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    if (has_accepted)
        accept(decision, AOTICACHE_TRUST_SIGNED, &accepted);
    else if (decision->is_required || revoked != NULL)
        refuse_untrusted(decision, revoked);
    else
        accept(decision, AOTICACHE_TRUST_UNCHECKED, NULL);
    return AOTICACHE_OK;
}

aoticache_status aoticache_cache_decide(aoticache_cache *cache, const aoticache_trust_claim *claim,
                                        aoticache_trust_verdict *ret_verdict, aoticache_error *ret_error)
{
    aoticache_trust_claim given;
    struct decision decision = {.cache = cache, .claim = &given};
    aoticache_status status =
        AOTICACHE_OPTIONS_READ(aoticache_trust_claim, AOTICACHE_TRUST_CLAIM_INIT, claim, &given, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (cache == NULL || ret_verdict == NULL || given.statement == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_decide: the cache, the claim's statement or "
                                   "the place for the verdict is NULL");
    aoticache_cache_enter(cache);
    aoticache_digest_to_hex(&given.statement->artifact, decision.entry);
    status = aoticache_statement_encode(given.statement, &decision.message.bytes, &decision.message.size, ret_error);
    if (status == AOTICACHE_OK)
        status = lock_loaded(cache, ret_error);
    if (status == AOTICACHE_OK) {
        status = decide(&decision, ret_error);
        pthread_mutex_unlock(&cache->trust.mutex);
    }
    free(decision.message.bytes);
    if (status != AOTICACHE_OK)
        return status;
    if (!decision.verdict.is_accepted)
        aoticache_cache_count(cache, AOTICACHE_COUNTER_refused_untrusted, 1);
    *ret_verdict = decision.verdict;
    return AOTICACHE_OK;
}

/* ---- listing ---- */

aoticache_status aoticache_trust_check(aoticache_cache *cache, const aoticache_statement *statement,
                                       const aoticache_signature_list *list, aoticache_signature_fn callback, void *user,
                                       aoticache_error *ret_error)
{
    struct message message = {.bytes = NULL};
    aoticache_status status = aoticache_statement_encode(statement, &message.bytes, &message.size, ret_error);
    if (status == AOTICACHE_OK)
        status = lock_loaded(cache, ret_error);
    if (status == AOTICACHE_OK) {
        bool goes_on = true;
        for (size_t i = 0; status == AOTICACHE_OK && goes_on && i < list->count; i++) {
            aoticache_signature_state state = AOTICACHE_SIGNATURE_UNKNOWN;
            const aoticache_public_key *key = NULL;
            status = judge_signature(&cache->trust, &message, &list->items[i], &state, &key, ret_error);
            if (status == AOTICACHE_OK)
                goes_on = callback(user, &list->items[i], state, key);
        }
        pthread_mutex_unlock(&cache->trust.mutex);
    }
    free(message.bytes);
    return status;
}

aoticache_status aoticache_trust_revokes_entry(aoticache_cache *cache, const aoticache_digest *artifact, bool *ret_revoked,
                                               aoticache_error *ret_error)
{
    aoticache_status status = lock_loaded(cache, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *ret_revoked = is_revoked_entry(&cache->trust, artifact);
    pthread_mutex_unlock(&cache->trust.mutex);
    return AOTICACHE_OK;
}

aoticache_status aoticache_trust_revoked_entry_at(aoticache_cache *cache, size_t position, aoticache_digest *ret_artifact,
                                                  aoticache_error *ret_error)
{
    aoticache_status status = lock_loaded(cache, ret_error);
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
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_list_trusted: the cache or callback is NULL");
    aoticache_cache_enter(cache);
    aoticache_status status = lock_loaded(cache, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const aoticache_trust *trust = &cache->trust;
    for (size_t i = 0; i < trust->trusted_count; i++)
        if (!callback(user, &trust->trusted[i].key, trust->trusted[i].origin, is_revoked_key(trust, &trust->trusted[i].key)))
            break;
    pthread_mutex_unlock(&cache->trust.mutex);
    return AOTICACHE_OK;
}

aoticache_status aoticache_cache_signers(aoticache_cache *cache, const aoticache_secret_key *const **ret_keys,
                                         size_t *ret_count, aoticache_error *ret_error)
{
    if (cache == NULL || ret_keys == NULL || ret_count == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_signers: the cache or an output is NULL");
    aoticache_cache_enter(cache);
    pthread_mutex_lock(&cache->trust.mutex);
    aoticache_status status = need_signers(&cache->trust, ret_error);
    pthread_mutex_unlock(&cache->trust.mutex);
    if (status == AOTICACHE_OK) {
        *ret_keys = (const aoticache_secret_key *const *)cache->trust.signers;
        *ret_count = cache->trust.signer_count;
    }
    return status;
}
