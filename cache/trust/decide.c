/*
 * cache/trust/decide: evaluates the signatures of one entry, and decides whether an entry from elsewhere may be imported.
 *
 * The order of the reasons is fixed: first those that are independent of signatures, then wrong signatures, then trusted
 * keys, and only then questions to the user.
 */
#include "base/arguments.h"
#include "cache/trust/trust_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "base/options.h"
#include "cache/cache_internal.h"

/* ---- one signature ---- */

struct message {
    uint8_t *bytes;
    size_t size;
};

/* Returns whether the signature has the name of a key that is revoked, by that name or by its bytes. */
static bool has_revoked_name(const aoticache_trust *trust, const aoticache_signature *signature)
{
    for (size_t i = 0; i < trust->revoked_count; i++)
        if (trust->revoked[i].key.name[0] != '\0' && strcmp(trust->revoked[i].key.name, signature->name) == 0)
            return true;
    for (size_t i = 0; i < trust->trusted_count; i++) /* one that is trusted here and revoked there */
        if (strcmp(trust->trusted[i].key.name, signature->name) == 0 &&
            aoticache_trust_revokes_key(trust, &trust->trusted[i].key))
            return true;
    return false;
}

/* Determines whether the signature was made by a key that is revoked by its bytes, whatever name the signature has. */
static aoticache_status is_made_by_revoked(const aoticache_trust *trust, const struct message *message,
                                           const aoticache_signature *signature, bool *ret_is_made,
                                           aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_CORRUPT;
    for (size_t i = 0; status == AOTICACHE_CORRUPT && i < trust->revoked_count; i++)
        if (trust->revoked[i].kind == AOTICACHE_REVOKES_KEY)
            status = aoticache_statement_verify_bytes(message->bytes, message->size, &trust->revoked[i].key, signature,
                                                      ret_error);
    *ret_is_made = status == AOTICACHE_OK;
    return status == AOTICACHE_CORRUPT ? AOTICACHE_OK : status;
}

/* Determines which trusted key made a signature. *ret_key: borrowed from the set; NULL if none did. */
static aoticache_status judge_signature(const aoticache_trust *trust, const struct message *message,
                                        const aoticache_signature *signature, aoticache_signature_state *ret_state,
                                        const aoticache_public_key **ret_key, aoticache_error *ret_error)
{
    bool has_name = false, is_revoked = has_revoked_name(trust, signature);
    *ret_key = NULL;
    for (size_t i = 0; i < trust->trusted_count; i++) {
        const aoticache_public_key *key = &trust->trusted[i].key;
        if (strcmp(key->name, signature->name) != 0 || aoticache_trust_revokes_key(trust, key))
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
    aoticache_status status = AOTICACHE_OK;
    if (!has_name && !is_revoked)
        status = is_made_by_revoked(trust, message, signature, &is_revoked, ret_error);
    *ret_state = has_name     ? AOTICACHE_SIGNATURE_WRONG
                 : is_revoked ? AOTICACHE_SIGNATURE_REVOKED
                              : AOTICACHE_SIGNATURE_UNKNOWN;
    return status;
}

/* ---- deciding ---- */

struct decision {
    aoticache_cache *cache;
    const aoticache_trust_claim *claim;
    bool is_required; /* a trusted signature is required */
    struct message message;
    aoticache_signature_list signatures;
    aoticache_public_key signer; /* whose key is not trusted: see aoticache_trust_verdict.key */
    aoticache_trust_verdict verdict;
    char entry[AOTICACHE_DIGEST_HEX_BYTES]; /* the entry's key, which users know from `aoticache ls` */
};

static const char *text_of(aoticache_trust_verdict_reason reason)
{
    switch (reason) {
#define CASE(name, number, text) \
    case AOTICACHE_TRUST_##name: \
        return text;
        AOTICACHE_TRUST_LIST(CASE)
#undef CASE
    }
    return "it is refused";
}

static void refuse(struct decision *decision, aoticache_trust_verdict_reason reason, const char *format, ...)
    AOTICACHE_PRINTF(3, 4);

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

/* Checks the conditions that are independent of signatures. Returns false if the entry is refused. */
static bool passes_without_keys(struct decision *decision)
{
    const aoticache_trust_claim *claim = decision->claim;
    const aoticache_statement *statement = claim->statement;
    aoticache_error detail = {.message = ""};
    if (claim->wanted != NULL && !aoticache_digest_equal(claim->wanted, &statement->key)) {
        char wanted[AOTICACHE_DIGEST_HEX_BYTES], found[AOTICACHE_DIGEST_HEX_BYTES];
        aoticache_digest_to_hex(claim->wanted, wanted);
        aoticache_digest_to_hex(&statement->key, found);
        refuse(decision, AOTICACHE_TRUST_OTHER_KEY, "the request is for %.12s, but the entry is for %.12s", wanted,
               found);
    } else if (aoticache_trust_has_revoked(&decision->cache->trust, &statement->artifact)) {
        char artifact[AOTICACHE_DIGEST_HEX_BYTES];
        aoticache_digest_to_hex(&statement->artifact, artifact);
        refuse(decision, AOTICACHE_TRUST_REVOKED_ENTRY, "revoked_keys names its manifest %s", artifact);
    } else if (decision->is_required && statement->created_ns < claim->replaces_created_ns) {
        refuse(decision, AOTICACHE_TRUST_REPLAYED, "it was made %.0f s before the entry that it would replace",
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

/* Asks about keys that were received with the entry and made one of the signatures. *ret_key: one that is trusted now. The
 * first of the others becomes decision->signer. */
static aoticache_status ask_for_keys(struct decision *decision, aoticache_public_key *ret_key, bool *ret_has,
                                     aoticache_error *ret_error)
{
    const aoticache_trust_claim *claim = decision->claim;
    aoticache_trust *trust = &decision->cache->trust;
    for (size_t i = 0; i < claim->offered_count; i++) {
        const aoticache_public_key *key = &claim->offered[i];
        for (size_t k = 0; k < decision->signatures.count && !aoticache_trust_revokes_key(trust, key); k++) {
            const aoticache_signature *signature = &decision->signatures.items[k];
            if (strcmp(signature->name, key->name) != 0)
                continue;
            aoticache_status status = aoticache_statement_verify_bytes(decision->message.bytes, decision->message.size,
                                                                       key, signature, ret_error);
            if (status != AOTICACHE_OK && status != AOTICACHE_CORRUPT)
                return status;
            if (status == AOTICACHE_CORRUPT)
                continue;
            if (claim->ask == NULL || !claim->ask(claim->user, key)) {
                decision->signer = decision->signer.name[0] == '\0' ? *key : decision->signer;
                continue;
            }
            *ret_key = *key;
            *ret_has = true;
            return aoticache_trust_add(trust, key, AOTICACHE_TRUST_ORIGIN_USER, ret_error);
        }
    }
    return AOTICACHE_OK;
}

/* Called if no signature is by a trusted key and none is wrong. */
static void refuse_untrusted(struct decision *decision, const char *revoked)
{
    const aoticache_signature_list *list = &decision->signatures;
    aoticache_public_key *signer = &decision->signer;
    if (revoked != NULL) {
        refuse(decision, AOTICACHE_TRUST_REVOKED_KEY, "%s", revoked);
        return;
    }
    if (list->count == 0) {
        refuse(decision, AOTICACHE_TRUST_UNSIGNED, "its maker can sign it with 'aoticache key sign'%s",
               decision->cache->trust.rule == AOTICACHE_SIGNATURES_ALWAYS
                   ? ""
                   : ", or you can accept unsigned entries (--allow-unsigned)");
        return;
    }
    if (signer->name[0] == '\0')
        memcpy(signer->name, list->items[0].name, sizeof signer->name);
    refuse(decision, AOTICACHE_TRUST_UNKNOWN_KEY,
           "it was signed by %s; if you trust the owner with the code that runs here, get "
           "the public key from them and run 'aoticache key trust KEY'",
           signer->name);
    decision->verdict.key = *signer;
}

/* Call this with the mutex held. */
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
        if (state == AOTICACHE_SIGNATURE_WRONG) { /* one of the two was modified */
            refuse(decision, AOTICACHE_TRUST_WRONG_SIGNATURE, "it has the name of %s, but another key made it",
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
        return AOTICACHE_REFUSE_NULL(ret_error, cache, given.statement, ret_verdict);
    aoticache_cache_enter(cache);
    aoticache_digest_to_hex(&given.statement->key, decision.entry);
    status = aoticache_statement_encode(given.statement, &decision.message.bytes, &decision.message.size, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_trust_lock(cache, ret_error);
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

/* ---- checking existing entries ---- */

aoticache_status aoticache_trust_check(aoticache_cache *cache, const aoticache_statement *statement,
                                       const aoticache_signature_list *list, aoticache_signature_fn callback,
                                       void *user, aoticache_error *ret_error)
{
    struct message message = {.bytes = NULL};
    aoticache_status status = aoticache_statement_encode(statement, &message.bytes, &message.size, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_trust_lock(cache, ret_error);
    if (status == AOTICACHE_OK) {
        bool continues = true;
        for (size_t i = 0; status == AOTICACHE_OK && continues && i < list->count; i++) {
            aoticache_signature_state state = AOTICACHE_SIGNATURE_UNKNOWN;
            const aoticache_public_key *key = NULL;
            status = judge_signature(&cache->trust, &message, &list->items[i], &state, &key, ret_error);
            if (status == AOTICACHE_OK)
                continues = callback(user, &list->items[i], state, key);
        }
        pthread_mutex_unlock(&cache->trust.mutex);
    }
    free(message.bytes);
    return status;
}
