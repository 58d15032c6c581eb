/*
 * cache/verify/entries: checks whether entries agree with their manifests, and restores entries that the index has lost.
 *
 * A lookup trusts the row (it reads no manifest if the library is the only file), so a wrong row makes a sound object look
 * damaged, or serves another key.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "cache/store/lock.h"
#include "cache/verify/verify_internal.h"
#include "index/entries/integrity.h"

static aoticache_status refuse_difference(aoticache_error *ret_error, const char *what)
{
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "an entry differs from this manifest: it has %s", what);
}

static aoticache_status compare_claim(const aoticache_verify_claim *claim, const aoticache_manifest *manifest,
                                      aoticache_error *ret_error)
{
    uint8_t requirements[AOTICACHE_INDEX_REQUIREMENT_BYTES];
    aoticache_requirements_to_bytes(&manifest->requirements, requirements);
    if (!aoticache_digest_equal(&claim->key, &manifest->key))
        return refuse_difference(ret_error, "another key");
    if (!aoticache_digest_equal(&claim->library, &manifest->files[0].digest))
        return refuse_difference(ret_error, "another library");
    if (claim->library_bytes != manifest->files[0].bytes)
        return refuse_difference(ret_error, "another size of the library");
    if (claim->content_offset != manifest->content_offset)
        return refuse_difference(ret_error, "another offset of the library");
    if (claim->file_count != manifest->file_count)
        return refuse_difference(ret_error, "another number of files");
    if (memcmp(claim->requirements, requirements, sizeof requirements) != 0)
        return refuse_difference(ret_error, "other requirements");
    if (strcmp(claim->guard, manifest->guard != NULL ? manifest->guard : "") != 0)
        return refuse_difference(ret_error, "another guard");
    return AOTICACHE_OK;
}

static bool has_part(const aoticache_verify_item *item, const aoticache_digest *digest, uint64_t bytes)
{
    for (size_t i = 0; i < item->part_count; i++)
        if (aoticache_digest_equal(&item->parts[i].object, digest))
            return item->parts[i].bytes == bytes;
    return false;
}

/* Compares the objects. An object that is missing from the artifact's objects in the index would be collected while it is
 * needed. */
static aoticache_status compare_objects(const aoticache_verify_item *item, const aoticache_manifest *manifest,
                                        aoticache_error *ret_error)
{
    const size_t count =
        item->part_count > 0 ? aoticache_manifest_object_count(manifest) : 0; /* none: removed meanwhile */
    for (size_t i = 0; i < count; i++)
        if (!has_part(item, &manifest->files[i].digest, manifest->files[i].bytes))
            return refuse_difference(ret_error, "other objects or sizes");
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

/* ---- comparing again ---- */

/* Compares the current state. OK also if no entry names the artifact any longer. */
static aoticache_status compare_again(aoticache_verification *verification, const aoticache_digest *artifact,
                                      int64_t *ret_entry_id, aoticache_error *ret_error)
{
    aoticache_verify_batch batch = {.items = NULL};
    aoticache_status status =
        aoticache_verify_batch_read_entries(verification->index, artifact, artifact, &batch, ret_error);
    aoticache_verify_item item = {.digest = *artifact,
                                  .claims = batch.claims,
                                  .claim_count = batch.claim_count,
                                  .parts = batch.parts,
                                  .part_count = batch.part_count};
    if (status == AOTICACHE_OK && batch.claim_count > 0)
        status = aoticache_verify_item_compare(verification->cache, &item, ret_entry_id, ret_error);
    aoticache_verify_batch_release(&batch);
    return status;
}

/* Call this with the store locked. Removes the wrong entries, and records the manifest's contents instead. */
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
            return aoticache_error_set(ret_error, AOTICACHE_IO, "cannot remove entry %lld", (long long)entry_id);
    }
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND && status != AOTICACHE_UNSUPPORTED)
        return aoticache_error_set(ret_error, status, "cannot examine an entry again");
    status = aoticache_cache_load_manifest(cache->directory, artifact, &manifest, &bytes, NULL);
    if (status == AOTICACHE_OK) {
        aoticache_index_entry same = {.key = manifest->key, .guard = manifest->guard};
        aoticache_requirements_to_bytes(&manifest->requirements, same.requirements);
        if (aoticache_index_has_same(verification->index, &same, NULL) != AOTICACHE_OK)
            status = aoticache_cache_index_manifest(cache->directory, verification->index, artifact, bytes, manifest,
                                                    ret_error);
        aoticache_manifest_free(manifest);
    }
    /* If it is not a manifest, or one of its files is gone, there is nothing to record. */
    bool is_settled = status == AOTICACHE_NOT_FOUND || status == AOTICACHE_CORRUPT || status == AOTICACHE_UNSUPPORTED;
    if (is_settled || status == AOTICACHE_OK)
        verification->report.repaired++;
    return is_settled ? AOTICACHE_OK : status;
}

aoticache_status aoticache_verification_confirm_entries(aoticache_verification *verification,
                                                        const aoticache_verify_item *item, aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    int64_t entry_id;
    aoticache_error detail = {.message = ""};
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    aoticache_status status = compare_again(verification, &item->digest, &entry_id, &detail);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND || status == AOTICACHE_UNSUPPORTED)
        return AOTICACHE_OK; /* changed or removed meanwhile; or of a newer program */
    if (status != AOTICACHE_CORRUPT)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    verification->report.wrong_entries++;
    aoticache_object_path(&item->digest, path);
    aoticache_verification_report_finding(verification, "entry", path, detail.message);
    if (!verification->options.repair)
        return AOTICACHE_OK;
    status = aoticache_lock_store(verification->cache->directory, true, &lock, ret_error);
    if (status == AOTICACHE_OK)
        status = record_again(verification, &item->digest, ret_error);
    aoticache_lock_release(&lock);
    return status;
}

/* ---- manifests without an entry ---- */

/* Returns whether the manifest was replaced. A manifest that another entry of the same key, requirements and guard has
 * replaced is garbage, not a lost entry. */
static bool is_superseded(aoticache_index *index, const aoticache_manifest *manifest)
{
    aoticache_index_entry same = {.key = manifest->key, .guard = manifest->guard};
    aoticache_requirements_to_bytes(&manifest->requirements, same.requirements);
    return aoticache_index_has_same(index, &same, NULL) == AOTICACHE_OK;
}

/*
 * Returns whether all files exist. A manifest with a missing file (found damaged, or removed by a user) cannot be served: it
 * is garbage too. If a file cannot be examined, its state is unknown, and the manifest is left for a process that can
 * examine it.
 */
static bool is_complete(aoticache_directory *directory, const aoticache_manifest *manifest)
{
    for (size_t i = 0; i < aoticache_manifest_object_count(manifest); i++) {
        char path[AOTICACHE_OBJECT_PATH_BYTES];
        aoticache_object_path(&manifest->files[i].digest, path);
        cleanup_fd int fd = aoticache_directory_openat(directory, path, O_PATH);
        if (fd < 0)
            return false;
    }
    return true;
}

/* Notes a manifest without an entry. Only the digest and the age are kept: after the loss of an index there may be a million
 * of them. */
aoticache_status aoticache_verification_note_unnamed(aoticache_verification *verification,
                                                     const aoticache_digest *digest, aoticache_error *ret_error)
{
    aoticache_directory *directory = verification->cache->directory;
    aoticache_manifest *manifest = NULL;
    uint64_t bytes;
    if (!aoticache_cache_may_be_manifest(directory, digest) ||
        aoticache_cache_load_manifest(directory, digest, &manifest, &bytes, NULL) != AOTICACHE_OK)
        return AOTICACHE_OK;
    int64_t created_ns = manifest->created_ns;
    aoticache_manifest_free(manifest);
    if (!AOTICACHE_ARRAY_RESERVE(verification->lost, verification->lost_capacity, verification->lost_count + 1))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of manifests");
    verification->lost[verification->lost_count++] =
        (aoticache_lost_manifest){.digest = *digest, .created_ns = created_ns};
    return AOTICACHE_OK;
}

static int newest_first(const void *left, const void *right)
{
    const aoticache_lost_manifest *a = left, *b = right;
    if (a->created_ns != b->created_ns)
        return a->created_ns > b->created_ns ? -1 : 1;
    return memcmp(a->digest.bytes, b->digest.bytes, sizeof a->digest.bytes);
}

/* Call this with the store locked, shared: nothing is removed between checking the files and recording the entry. */
static aoticache_status put_back(aoticache_verification *verification, const aoticache_digest *digest, uint64_t bytes,
                                 const aoticache_manifest *manifest, aoticache_error *ret_error)
{
    aoticache_directory *directory = verification->cache->directory;
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    aoticache_status status = aoticache_lock_store(directory, false, &lock, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (!is_superseded(verification->index, manifest))
        status = aoticache_cache_index_manifest(directory, verification->index, digest, bytes, manifest, ret_error);
    aoticache_lock_release(&lock);
    if (status == AOTICACHE_OK)
        verification->report.repaired++;
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status; /* one of its files is gone: garbage */
}

static aoticache_status report_lost(aoticache_verification *verification, const aoticache_digest *digest,
                                    const aoticache_manifest *manifest, uint64_t bytes, aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    if (!aoticache_manifest_guard_fits(manifest) || is_superseded(verification->index, manifest) ||
        !is_complete(verification->cache->directory, manifest))
        return AOTICACHE_OK;
    verification->report.unindexed++;
    aoticache_object_path(digest, path);
    aoticache_verification_report_finding(verification, "unindexed", path, manifest->description);
    return verification->options.repair ? put_back(verification, digest, bytes, manifest, ret_error) : AOTICACHE_OK;
}

aoticache_status aoticache_verification_check_unindexed(aoticache_verification *verification,
                                                        aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    if (verification->lost_count > 1)
        qsort(verification->lost, verification->lost_count, sizeof *verification->lost, newest_first);
    for (size_t i = 0; status == AOTICACHE_OK && i < verification->lost_count; i++) {
        const aoticache_digest *digest = &verification->lost[i].digest;
        aoticache_manifest *manifest = NULL;
        uint64_t bytes;
        if (aoticache_cache_load_manifest(verification->cache->directory, digest, &manifest, &bytes, NULL) !=
            AOTICACHE_OK)
            continue; /* collected meanwhile */
        status = report_lost(verification, digest, manifest, bytes, ret_error);
        aoticache_manifest_free(manifest);
    }
    verification->lost_count = 0;
    return status;
}
