/*
 * cache/verify/entries: whether entries say what their manifests say.
 *
 * A lookup trusts the row (it reads no manifest where the library is the only file), so a row that is wrong makes a
 * sound object look damaged, or answers another's key.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cache/store/lock.h"
#include "cache/verify/verification.h"
#include "index/entries/integrity.h"

static aoticache_status differs(aoticache_error *ret_error, const char *what)
{
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "an entry of it has %s than it says", what);
}

static aoticache_status compare_claim(const aoticache_verify_claim *claim, const aoticache_manifest *manifest,
                                      aoticache_error *ret_error)
{
    uint8_t requirements[AOTICACHE_INDEX_REQUIREMENT_BYTES];
    aoticache_requirements_to_bytes(&manifest->requirements, requirements);
    if (!aoticache_digest_equal(&claim->key, &manifest->key))
        return differs(ret_error, "another key");
    if (!aoticache_digest_equal(&claim->library, &manifest->files[0].digest))
        return differs(ret_error, "another library");
    if (claim->library_bytes != manifest->files[0].bytes)
        return differs(ret_error, "another size of the library");
    if (claim->file_count != manifest->file_count)
        return differs(ret_error, "another number of files");
    if (memcmp(claim->requirements, requirements, sizeof requirements) != 0)
        return differs(ret_error, "other requirements");
    if (strcmp(claim->guard, manifest->guard != NULL ? manifest->guard : "") != 0)
        return differs(ret_error, "another guard");
    return AOTICACHE_OK;
}

static bool has_part(const aoticache_verify_item *item, const aoticache_digest *digest, uint64_t bytes)
{
    for (size_t i = 0; i < item->part_count; i++)
        if (aoticache_digest_equal(&item->parts[i].object, digest))
            return item->parts[i].bytes == bytes;
    return false;
}

/* What is not among an artifact's objects in the index would be collected under it. */
static aoticache_status compare_objects(const aoticache_verify_item *item, const aoticache_manifest *manifest,
                                        aoticache_error *ret_error)
{
    for (size_t i = 0; item->part_count > 0 && i < manifest->file_count; i++) /* none: removed meanwhile */
        if (!has_part(item, &manifest->files[i].digest, manifest->files[i].bytes))
            return differs(ret_error, "other objects or sizes");
    return AOTICACHE_OK;
}

aoticache_status aoticache_verify_item_compare(aoticache_cache *cache, aoticache_verify_item *item,
                                               int64_t *ret_entry_id, aoticache_error *ret_error)
{
    aoticache_manifest *manifest = NULL;
    *ret_entry_id = item->claims[0].entry_id;
    aoticache_status status =
        aoticache_cache_load_manifest(cache->directory, &item->digest, &manifest, &item->bytes, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < item->claim_count; i++) {
        *ret_entry_id = item->claims[i].entry_id;
        status = compare_claim(&item->claims[i], manifest, ret_error);
    }
    if (status == AOTICACHE_OK)
        status = compare_objects(item, manifest, ret_error);
    aoticache_manifest_free(manifest);
    return status;
}

/* ---- looking again ---- */

struct again {
    aoticache_verify_claim *claims;
    size_t count;
    bool is_out_of_memory;
};

static bool add_claim(void *user, const aoticache_index_claim *claim)
{
    struct again *again = user;
    aoticache_verify_claim *claims = reallocarray(again->claims, again->count + 1, sizeof *claims);
    char *guard = strdup(claim->guard);
    again->claims = claims != NULL ? claims : again->claims;
    again->is_out_of_memory = claims == NULL || guard == NULL;
    if (again->is_out_of_memory) {
        free(guard);
        return false;
    }
    aoticache_verify_claim *added = &claims[again->count++];
    *added = (aoticache_verify_claim){.artifact = claim->artifact,
                                      .key = claim->key,
                                      .library = claim->library,
                                      .entry_id = claim->entry_id,
                                      .library_bytes = claim->library_bytes,
                                      .file_count = claim->file_count,
                                      .guard = guard};
    memcpy(added->requirements, claim->requirements, sizeof added->requirements);
    return true;
}

/* The comparison as of now. */
static aoticache_status compare_again(aoticache_verification *verification, const aoticache_digest *artifact,
                                      int64_t *ret_entry_id, aoticache_error *ret_error)
{
    struct again again = {.claims = NULL};
    aoticache_verify_parts parts = {.items = NULL};
    aoticache_status status = aoticache_index_list_claims_between(verification->index, artifact, artifact, add_claim,
                                                                  &again, ret_error);
    if (status == AOTICACHE_OK && again.is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of entries");
    if (status == AOTICACHE_OK)
        status = aoticache_index_list_parts_between(verification->index, artifact, artifact, aoticache_verify_add_part,
                                                    &parts, ret_error);
    if (status == AOTICACHE_OK && parts.is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of objects");
    aoticache_verify_item item = {.digest = *artifact,
                                  .claims = again.claims,
                                  .claim_count = again.count,
                                  .parts = parts.items,
                                  .part_count = parts.count};
    if (status == AOTICACHE_OK && again.count > 0)
        status = aoticache_verify_item_compare(verification->cache, &item, ret_entry_id, ret_error);
    free(parts.items);
    for (size_t i = 0; i < again.count; i++)
        free(again.claims[i].guard);
    free(again.claims);
    return status;
}

/* With the store locked. The wrong entries go, and what the manifest says is recorded in their place. */
static aoticache_status record_again(aoticache_verification *verification, const aoticache_digest *artifact,
                                     aoticache_error *ret_error)
{
    aoticache_cache *cache = verification->cache;
    aoticache_manifest *manifest = NULL;
    uint64_t bytes, removed;
    int64_t entry_id;
    aoticache_status status = AOTICACHE_CORRUPT;
    while ((status = compare_again(verification, artifact, &entry_id, NULL)) == AOTICACHE_CORRUPT) {
        status = aoticache_index_remove_entry(verification->index, entry_id, &removed, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        if (removed == 0)
            return aoticache_error_set(ret_error, AOTICACHE_IO, "entry %lld cannot be removed", (long long)entry_id);
    }
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND && status != AOTICACHE_UNSUPPORTED)
        return aoticache_error_set(ret_error, status, "cannot look at an entry again");
    status = aoticache_cache_load_manifest(cache->directory, artifact, &manifest, &bytes, NULL);
    if (status == AOTICACHE_OK) {
        aoticache_index_entry same = {.key = manifest->key, .guard = manifest->guard};
        aoticache_requirements_to_bytes(&manifest->requirements, same.requirements);
        if (aoticache_index_has_same(verification->index, &same, NULL) != AOTICACHE_OK)
            status = aoticache_cache_index_manifest(cache->directory, verification->index, artifact, bytes, manifest,
                                                    ret_error);
        aoticache_manifest_free(manifest);
    }
    /* Where it is no manifest, or a file of it is gone, there is nothing to record. */
    bool is_settled = status == AOTICACHE_NOT_FOUND || status == AOTICACHE_CORRUPT || status == AOTICACHE_UNSUPPORTED;
    if (is_settled || status == AOTICACHE_OK)
        verification->report.repaired++;
    return is_settled ? AOTICACHE_OK : status;
}

aoticache_status aoticache_verification_treat_entries(aoticache_verification *verification,
                                                      const aoticache_verify_item *item, aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    int64_t entry_id;
    aoticache_error detail = {.message = ""};
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    aoticache_status status = compare_again(verification, &item->digest, &entry_id, &detail);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND || status == AOTICACHE_UNSUPPORTED)
        return AOTICACHE_OK; /* changed or removed meanwhile; of a newer program */
    if (status != AOTICACHE_CORRUPT)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    verification->report.wrong_entries++;
    aoticache_object_path(&item->digest, path);
    aoticache_verification_tell(verification, "entry", path, detail.message);
    if (!verification->options.repair)
        return AOTICACHE_OK;
    status = aoticache_lock_store(verification->cache->directory, true, &lock, ret_error);
    if (status == AOTICACHE_OK)
        status = record_again(verification, &item->digest, ret_error);
    aoticache_lock_release(&lock);
    return status;
}
