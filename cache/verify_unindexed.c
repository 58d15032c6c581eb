/*
 * cache/verify_unindexed: manifests in the store that the index does not know, and putting their entries back.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cache/lock.h"
#include "cache/verify.h"

/* A manifest that another entry of the same key, requirements and guard has replaced is garbage, not a lost entry. */
static bool is_superseded(aoticache_index *index, const aoticache_manifest *manifest)
{
    aoticache_index_entry same = {.key = manifest->key, .guard = manifest->guard};
    aoticache_requirements_to_bytes(&manifest->requirements, same.requirements);
    return aoticache_index_has_same(index, &same, NULL) == AOTICACHE_OK;
}

/* A manifest of which a file is gone (found damaged, or removed by a person) can answer nothing: it is garbage too. */
static bool is_complete(aoticache_directory *directory, const aoticache_manifest *manifest)
{
    for (size_t i = 0; i < manifest->file_count; i++) {
        char path[AOTICACHE_OBJECT_PATH_BYTES];
        aoticache_object_path(&manifest->files[i].digest, path);
        cleanup_fd int fd = aoticache_directory_openat(directory, path, O_PATH);
        if (fd < 0 && errno == ENOENT)
            return false;
    }
    return true;
}

struct lost {
    aoticache_digest digest;
    aoticache_manifest *manifest;
    uint64_t bytes;
};

static int newest_first(const void *left, const void *right)
{
    const struct lost *a = left, *b = right;
    if (a->manifest->created_ns != b->manifest->created_ns)
        return a->manifest->created_ns > b->manifest->created_ns ? -1 : 1;
    return memcmp(a->digest.bytes, b->digest.bytes, sizeof a->digest.bytes);
}

/* Those that were read, newest first. */
static aoticache_status find_lost(aoticache_verification *verification, struct lost **ret_lost, size_t *ret_count,
                                  aoticache_error *ret_error)
{
    aoticache_index *index = aoticache_cache_index(verification->cache);
    const aoticache_object_array *objects = &verification->objects;
    struct lost *lost = calloc(objects->count + 1, sizeof *lost);
    size_t count = 0;
    if (lost == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of manifests");
    for (size_t i = 0; i < objects->count; i++) {
        const aoticache_digest *digest = &objects->items[i].digest;
        if (aoticache_index_has_object(index, digest, NULL) != AOTICACHE_NOT_FOUND ||
            !aoticache_cache_may_be_manifest(verification->cache->directory, digest))
            continue;
        if (aoticache_cache_load_manifest(verification->cache->directory, digest, &lost[count].manifest,
                                          &lost[count].bytes, NULL) == AOTICACHE_OK)
            lost[count++].digest = *digest;
    }
    qsort(lost, count, sizeof *lost, newest_first);
    *ret_lost = lost;
    *ret_count = count;
    return AOTICACHE_OK;
}

/* With the store locked, shared: nothing is removed between looking at the files and recording the entry. */
static aoticache_status put_back(aoticache_verification *verification, const struct lost *lost,
                                 aoticache_error *ret_error)
{
    aoticache_cache *cache = verification->cache;
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    aoticache_status status = aoticache_lock_store(cache->directory, false, &lock, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (!is_superseded(aoticache_cache_index(cache), lost->manifest))
        status = aoticache_cache_index_manifest(cache->directory, aoticache_cache_index(cache), &lost->digest,
                                                lost->bytes, lost->manifest, ret_error);
    aoticache_lock_release(&lock);
    if (status == AOTICACHE_OK)
        verification->report.repaired++;
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status; /* a file of it is gone: garbage */
}

aoticache_status aoticache_verification_check_unindexed(aoticache_verification *verification,
                                                        aoticache_error *ret_error)
{
    aoticache_index *index = aoticache_cache_index(verification->cache);
    struct lost *lost = NULL;
    size_t count = 0;
    aoticache_status status = find_lost(verification, &lost, &count, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        char path[AOTICACHE_OBJECT_PATH_BYTES];
        if (!aoticache_manifest_guard_fits(lost[i].manifest) || is_superseded(index, lost[i].manifest) ||
            !is_complete(verification->cache->directory, lost[i].manifest))
            continue;
        verification->report.unindexed++;
        aoticache_object_path(&lost[i].digest, path);
        if (verification->callback != NULL)
            verification->callback(verification->user, "unindexed", path, lost[i].manifest->description);
        if (verification->is_repair)
            status = put_back(verification, &lost[i], ret_error);
    }
    for (size_t i = 0; i < count; i++)
        aoticache_manifest_free(lost[i].manifest);
    free(lost);
    return status;
}
