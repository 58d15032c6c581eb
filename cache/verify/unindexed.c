/*
 * cache/verify/unindexed: manifests in the store that the index does not know, and putting their entries back.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cache/store/lock.h"
#include "cache/verify/verification.h"

/* A manifest that another entry of the same key, requirements and guard has replaced is garbage, not a lost entry. */
static bool is_superseded(aoticache_index *index, const aoticache_manifest *manifest)
{
    aoticache_index_entry same = {.key = manifest->key, .guard = manifest->guard};
    aoticache_requirements_to_bytes(&manifest->requirements, same.requirements);
    return aoticache_index_has_same(index, &same, NULL) == AOTICACHE_OK;
}

/*
 * A manifest of which a file is gone (found damaged, or removed by a person) can answer nothing: it is garbage too. Where a
 * file cannot be looked at it is not known whether it is, and the manifest is left to who can.
 */
static bool is_complete(aoticache_directory *directory, const aoticache_manifest *manifest)
{
    for (size_t i = 0; i < manifest->file_count; i++) {
        char path[AOTICACHE_OBJECT_PATH_BYTES];
        aoticache_object_path(&manifest->files[i].digest, path);
        cleanup_fd int fd = aoticache_directory_openat(directory, path, O_PATH);
        if (fd < 0)
            return false;
    }
    return true;
}

/* Only the digest and the age are kept: after the loss of an index there may be a million of them. */
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
    if (verification->lost_count == verification->lost_capacity) {
        size_t capacity = verification->lost_capacity != 0 ? verification->lost_capacity * 2 : 64;
        aoticache_lost_manifest *lost = reallocarray(verification->lost, capacity, sizeof *lost);
        if (lost == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of manifests");
        verification->lost = lost;
        verification->lost_capacity = capacity;
    }
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

/* With the store locked, shared: nothing is removed between looking at the files and recording the entry. */
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
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status; /* a file of it is gone: garbage */
}

static aoticache_status treat(aoticache_verification *verification, const aoticache_digest *digest,
                              const aoticache_manifest *manifest, uint64_t bytes, aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    if (!aoticache_manifest_guard_fits(manifest) || is_superseded(verification->index, manifest) ||
        !is_complete(verification->cache->directory, manifest))
        return AOTICACHE_OK;
    verification->report.unindexed++;
    aoticache_object_path(digest, path);
    aoticache_verification_tell(verification, "unindexed", path, manifest->description);
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
        status = treat(verification, digest, manifest, bytes, ret_error);
        aoticache_manifest_free(manifest);
    }
    verification->lost_count = 0;
    return status;
}
