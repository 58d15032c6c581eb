/*
 * cache/trust/revoked: entries of this cache that would be refused now: revoked entries, those that only a revoked key
 * signed, and those with a signature that is not valid for them. Finds and removes them, and hides them from lookups, which
 * matters if a revocation has reached a machine but `aoticache verify --repair` was not run there yet.
 *
 * Entries compiled here have no signature and are not affected. If nothing is revoked, a lookup only checks whether the user
 * has a file of revoked keys, once for each opened cache.
 */
#include "base/arguments.h"
#include "cache/trust/trust_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/names.h"
#include "cache/cache_internal.h"
#include "cache/store/lock.h"

/* ---- one entry ---- */

struct faults {
    char revoked[AOTICACHE_SIGNER_NAME_BYTES], wrong[AOTICACHE_SIGNER_NAME_BYTES];
    bool is_trusted;
};

static bool note_state(void *user, const aoticache_signature *signature, aoticache_signature_state state,
                       const aoticache_public_key *key)
{
    struct faults *faults = user;
    (void)key;
    faults->is_trusted |= state == AOTICACHE_SIGNATURE_TRUSTED;
    if (state == AOTICACHE_SIGNATURE_REVOKED)
        memcpy(faults->revoked, signature->name, sizeof faults->revoked);
    if (state == AOTICACHE_SIGNATURE_WRONG)
        memcpy(faults->wrong, signature->name, sizeof faults->wrong);
    return true;
}

aoticache_status aoticache_trust_find_fault(aoticache_cache *cache, const aoticache_digest *artifact,
                                            char ret_reason[AOTICACHE_TRUST_FAULT_BYTES], bool *ret_faulty,
                                            aoticache_error *ret_error)
{
    struct faults faults = {.revoked = ""};
    bool is_revoked = false;
    aoticache_status status = aoticache_trust_revokes_entry(cache, artifact, &is_revoked, ret_error);
    if (status == AOTICACHE_OK && !is_revoked)
        status = aoticache_cache_check_signatures(cache, artifact, note_state, &faults, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *ret_faulty = is_revoked || faults.wrong[0] != '\0' || (faults.revoked[0] != '\0' && !faults.is_trusted);
    if (is_revoked)
        snprintf(ret_reason, AOTICACHE_TRUST_FAULT_BYTES, "the entry is revoked");
    else if (faults.wrong[0] != '\0')
        snprintf(ret_reason, AOTICACHE_TRUST_FAULT_BYTES, "a signature has the name of %s, but another key made it",
                 faults.wrong);
    else
        snprintf(ret_reason, AOTICACHE_TRUST_FAULT_BYTES, "only the revoked key %s signed it", faults.revoked);
    return AOTICACHE_OK;
}

/* ---- lookups ---- */

enum { REVOCATIONS_UNKNOWN, REVOCATIONS_NONE, REVOCATIONS_SOME };

/* Returns whether anything may be revoked. If nothing is revoked, the keys themselves are not read. */
static bool may_have_revocations(const aoticache_trust *trust)
{
    cleanup_free char *path = NULL;
    if (trust->revoked_text != NULL)
        return true;
    if (trust->directory == NULL)
        return false;
    return asprintf(&path, "%s/" AOTICACHE_REVOKED_KEYS_FILE, trust->directory) < 0 || access(path, F_OK) == 0 ||
           (errno != ENOENT && errno != ENOTDIR);
}

/* Returns whether anything is revoked. A list that cannot be read may name any key: it counts as revoking something, and is
 * read again the next time. */
static bool has_revocations(aoticache_cache *cache)
{
    aoticache_trust *trust = &cache->trust;
    int known = atomic_load_explicit(&trust->revocations, memory_order_acquire);
    if (known == REVOCATIONS_UNKNOWN) {
        bool some = may_have_revocations(trust);
        if (some) {
            if (aoticache_trust_lock(cache, NULL) != AOTICACHE_OK)
                return true;
            some = trust->revoked_count > 0;
            pthread_mutex_unlock(&trust->mutex);
        }
        known = some ? REVOCATIONS_SOME : REVOCATIONS_NONE;
        atomic_store_explicit(&trust->revocations, known, memory_order_release);
    }
    return known == REVOCATIONS_SOME;
}

static bool is_signed(aoticache_cache *cache, const aoticache_digest *artifact)
{
    aoticache_signature_list list = {.count = 0};
    return aoticache_signature_file_read(cache->directory, artifact, &list, NULL) != AOTICACHE_OK || list.count > 0;
}

bool aoticache_trust_bars(aoticache_cache *cache, const aoticache_digest *artifact)
{
    char reason[AOTICACHE_TRUST_FAULT_BYTES] = "", hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_error detail = {.message = ""};
    bool is_faulty = false;
    if (!has_revocations(cache))
        return false;
    aoticache_status status = aoticache_trust_revokes_entry(cache, artifact, &is_faulty, &detail);
    if (!is_faulty && !is_signed(cache, artifact))
        return false;
    if (status == AOTICACHE_OK)
        status = aoticache_trust_find_fault(cache, artifact, reason, &is_faulty, &detail);
    if (status == AOTICACHE_OK && !is_faulty)
        return false;
    aoticache_digest_to_hex(artifact, hex);
    bool is_known = atomic_exchange(&cache->trust.has_told_barred, true);
    aoticache_log(&cache->directory->logger, is_known ? AOTICACHE_LOG_DEBUG : AOTICACHE_LOG_WARNING,
                  "entry %.12s is not used: %s; 'aoticache verify --repair' removes such entries", hex,
                  status == AOTICACHE_OK ? reason : detail.message);
    return true;
}

/* Call this with the store locked. The manifest is moved away, because a rebuilt index would otherwise restore the entry. */
static aoticache_status remove_locked(aoticache_cache *cache, aoticache_index *index, const aoticache_digest *artifact,
                                      aoticache_error *ret_error)
{
    uint64_t removed = 0;
    aoticache_status status = aoticache_index_remove_object(index, artifact, &removed, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_cache_remove_side_files(cache, artifact);
    status = aoticache_object_quarantine(cache->directory, artifact, ret_error);
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

aoticache_status aoticache_trust_remove_entry(aoticache_cache *cache, const aoticache_digest *artifact,
                                              aoticache_error *ret_error)
{
    aoticache_index *index = aoticache_cache_index(cache);
    aoticache_status status = aoticache_cache_check_writable(cache, ret_error);
    if (status != AOTICACHE_OK || index == NULL)
        return status;
    aoticache_cache_refreshed(cache, &index);
    do {
        aoticache_lock lock = AOTICACHE_LOCK_INIT;
        status = aoticache_lock_store(cache->directory, true, &lock, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        status = remove_locked(cache, index, artifact, ret_error);
        aoticache_lock_release(&lock);
    } while (aoticache_cache_recovered(cache, status, &index));
    return status;
}

/* ---- all of them ---- */

struct candidates {
    aoticache_digest *items;
    size_t count, capacity;
    bool is_out_of_memory;
};

static bool add_candidate(void *user, const aoticache_digest *artifact)
{
    struct candidates *candidates = user;
    candidates->is_out_of_memory =
        !AOTICACHE_ARRAY_RESERVE(candidates->items, candidates->capacity, candidates->count + 1);
    if (!candidates->is_out_of_memory)
        candidates->items[candidates->count++] = *artifact;
    return !candidates->is_out_of_memory;
}

/* Lists entries with signatures, and those that are revoked by their digest. */
static aoticache_status list_candidates(aoticache_cache *cache, struct candidates *candidates,
                                        aoticache_error *ret_error)
{
    aoticache_status status = aoticache_signature_files_list(cache->directory, add_candidate, candidates, ret_error);
    aoticache_digest revoked;
    for (size_t i = 0; status == AOTICACHE_OK && !candidates->is_out_of_memory; i++) {
        status = aoticache_trust_revoked_entry_at(cache, i, &revoked, ret_error);
        if (status == AOTICACHE_OK)
            add_candidate(candidates, &revoked);
    }
    if (status == AOTICACHE_NOT_FOUND)
        status = AOTICACHE_OK;
    if (status == AOTICACHE_OK && candidates->is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of entries");
    return status;
}

/* Returns whether the entry is left to verifications: an entry that is missing, or cannot be read, cannot be served, and a
 * verification reports it. */
static bool is_beyond_reach(aoticache_status status)
{
    return status == AOTICACHE_NOT_FOUND || status == AOTICACHE_CORRUPT || status == AOTICACHE_DENIED;
}

aoticache_status aoticache_cache_remove_revoked(aoticache_cache *cache, aoticache_revoked_fn callback, void *user,
                                                uint64_t *ret_removed, aoticache_error *ret_error)
{
    struct candidates candidates = {.items = NULL};
    uint64_t removed = 0;
    if (cache == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache);
    aoticache_cache_enter(cache);
    aoticache_status status = list_candidates(cache, &candidates, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < candidates.count; i++) {
        const aoticache_digest *artifact = &candidates.items[i];
        char reason[AOTICACHE_TRUST_FAULT_BYTES] = "";
        aoticache_error detail = {.message = ""};
        bool is_faulty = false;
        if (aoticache_index_has_object(aoticache_cache_index(cache), artifact, NULL) == AOTICACHE_NOT_FOUND)
            continue;
        status = aoticache_trust_find_fault(cache, artifact, reason, &is_faulty, &detail);
        if (status == AOTICACHE_OK && is_faulty)
            status = aoticache_trust_remove_entry(cache, artifact, &detail);
        if (status == AOTICACHE_OK && is_faulty) {
            removed++;
            if (callback != NULL)
                callback(user, artifact, reason);
        }
        if (is_beyond_reach(status))
            status = AOTICACHE_OK;
        else if (status != AOTICACHE_OK)
            aoticache_error_set(ret_error, status, "%s", detail.message);
    }
    free(candidates.items);
    if (ret_removed != NULL)
        *ret_removed = removed;
    return status;
}
