/*
 * cache/remove: removes entries, and then the objects that only they needed. Of an artifact's objects the manifest is
 * removed first, so that a rebuilt index does not restore the entry.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/files/listing.h"
#include "base/names.h"
#include "cache/entries.h"
#include "cache/cache_internal.h"
#include "cache/store/lock.h"
#include "index/eviction/eviction.h"

aoticache_status aoticache_cache_remove_objects(aoticache_cache *cache, const aoticache_index_object *objects,
                                                size_t count, aoticache_removal *ret_removal,
                                                aoticache_error *ret_error)
{
    aoticache_index *index = aoticache_cache_index(cache);
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = 0;
        aoticache_status status = aoticache_index_has_object(index, &objects[i].digest, ret_error);
        if (status == AOTICACHE_OK)
            continue;
        if (status != AOTICACHE_NOT_FOUND)
            return status;
        status = aoticache_object_remove(cache->directory, &objects[i].digest, &bytes, ret_error);
        if (status == AOTICACHE_OK) {
            ret_removal->objects++;
            ret_removal->bytes += bytes;
        } else if (status != AOTICACHE_NOT_FOUND && status != AOTICACHE_LOCKED) {
            return status;
        }
    }
    return AOTICACHE_OK;
}

/* Returns whether a process holds a file of the directory. Hard links share the objects' inodes and therefore their in-use
 * locks. */
static bool has_held_file(DIR *directory)
{
    rewinddir(directory);
    for (const char *name; (name = aoticache_listing_next(directory)) != NULL;) {
        cleanup_fd int fd = openat(dirfd(directory), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 ? flock(fd, LOCK_EX | LOCK_NB) != 0 : errno == EMFILE || errno == ENFILE || errno == ENOMEM)
            return true; /* or that cannot be determined */
    }
    return errno != 0; /* there may be more names then */
}

bool aoticache_cache_remove_side_files(aoticache_cache *cache, const aoticache_digest *artifact)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    cleanup_fd int artifacts = -1;
    aoticache_digest_to_hex(artifact, hex);
    if (aoticache_directory_open_subdirectory(cache->directory, AOTICACHE_ARTIFACTS, false, &artifacts, NULL) !=
        AOTICACHE_OK)
        return false;
    cleanup_dir DIR *subdirectory =
        aoticache_listing_open(openat(artifacts, hex, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    return subdirectory != NULL && !has_held_file(subdirectory) && aoticache_directory_remove_tree(artifacts, hex) == 0;
}

/* The objects of a key's entries, which are removed after the entries. */
struct belongings {
    aoticache_digest artifact;
    aoticache_index_object *objects;
    size_t count;
};

static void free_belongings(struct belongings *belongings, size_t count)
{
    for (size_t i = 0; belongings != NULL && i < count; i++)
        free(belongings[i].objects);
    free(belongings);
}

static aoticache_status read_belongings(aoticache_index *index, const aoticache_key *key,
                                        struct belongings **ret_belongings, size_t *ret_count,
                                        aoticache_error *ret_error)
{
    size_t count = 0;
    aoticache_index_hit first;
    aoticache_status status = aoticache_index_lookup(index, key, &first, 1, &count, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    cleanup_free aoticache_index_hit *hits = calloc(count, sizeof *hits);
    struct belongings *belongings = calloc(count, sizeof *belongings);
    if (hits == NULL || belongings == NULL) {
        free(belongings);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu entries", count);
    }
    size_t capacity = count;
    status = aoticache_index_lookup(index, key, hits, capacity, &count, ret_error);
    count = count < capacity ? count : capacity;
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        belongings[i].artifact = hits[i].artifact;
        status = aoticache_index_artifact_objects(index, &hits[i].artifact, &belongings[i].objects,
                                                  &belongings[i].count, ret_error);
    }
    if (status != AOTICACHE_OK) {
        free_belongings(belongings, capacity);
        return status;
    }
    *ret_belongings = belongings;
    *ret_count = count;
    return AOTICACHE_OK;
}

/* Deletes the removals of objects that are removed now and need not wait for a collection; those that a process holds do. */
static aoticache_status forget_waiting_removals(aoticache_cache *cache, aoticache_index *index,
                                                const struct belongings *belongings, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < belongings->count; i++)
        if (!aoticache_object_is_held(cache->directory, &belongings->objects[i].digest))
            status = aoticache_index_forget_removal_of(index, &belongings->objects[i].digest, ret_error);
    return status;
}

/* Call this with the store locked. */
static aoticache_status remove_key(aoticache_cache *cache, aoticache_index *index, const aoticache_key *key,
                                   aoticache_error *ret_error)
{
    struct belongings *belongings = NULL;
    size_t count = 0;
    uint64_t removed = 0;
    aoticache_status status = read_belongings(index, key, &belongings, &count, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_remove_key(index, key, &removed, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        aoticache_removal removal = {.objects = 0};
        if (aoticache_index_has_object(index, &belongings[i].artifact, NULL) == AOTICACHE_NOT_FOUND)
            aoticache_cache_remove_side_files(cache, &belongings[i].artifact);
        status = aoticache_cache_remove_objects(cache, belongings[i].objects, belongings[i].count, &removal, ret_error);
        if (status == AOTICACHE_OK)
            status = forget_waiting_removals(cache, index, &belongings[i], ret_error);
    }
    free_belongings(belongings, count);
    if (status == AOTICACHE_OK && removed == 0)
        return AOTICACHE_NOT_FOUND;
    return status;
}

aoticache_status aoticache_cache_remove(aoticache_cache *cache, const aoticache_key *key, aoticache_error *ret_error)
{
    if (cache == NULL || key == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, key);
    aoticache_cache_enter(cache);
    aoticache_status status = aoticache_cache_check_writable(cache, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index *index = aoticache_cache_index(cache);
    aoticache_cache_refreshed(cache, &index);
    do {
        aoticache_lock lock = AOTICACHE_LOCK_INIT;
        status = aoticache_lock_store(cache->directory, true, &lock, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        status = remove_key(cache, index, key, ret_error);
        aoticache_lock_release(&lock);
    } while (aoticache_cache_recovered(cache, status, &index));
    return aoticache_cache_index_result(status, ret_error);
}
