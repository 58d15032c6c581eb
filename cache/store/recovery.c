/*
 * cache/store/recovery: opens the index, detects that it is damaged, lost or replaced, and builds a new one from the
 * manifests.
 *
 * The new index is built in tmp/ and renamed. A process that is killed meanwhile leaves either the old index or none, and an
 * index is built for a store that has objects but no index.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/syscalls.h"
#include "cache/cache_internal.h"
#include "cache/pins/pins_internal.h"
#include "cache/store/lock.h"

/* After this number the disk is assumed to be at fault: rebuilding the index again does not help. */
#define MAX_RECOVERIES 3

#define MANIFESTS_AT_ONCE 20000 /* in one transaction of a new index */

static const char *const side_suffixes[] = {"-wal", "-shm", "-journal"};
#define SIDE_SUFFIX_COUNT (sizeof side_suffixes / sizeof side_suffixes[0])

/* Files that belong to an index. The side files come first: a log that outlived its database would be replayed into the new
 * one. So would pending statistics, which name entries by numbers that the new index assigns again. */
static const char *const index_files[] = {AOTICACHE_INDEX_FILE "-wal",     AOTICACHE_INDEX_FILE "-shm",
                                          AOTICACHE_INDEX_FILE "-journal", AOTICACHE_INDEX_FILE "-uses",
                                          AOTICACHE_INDEX_FILE "-answers", AOTICACHE_INDEX_FILE};

/* Returns OK, NOT_FOUND, DENIED (a link, another owner) or IO. */
static aoticache_status check_index_file(const aoticache_directory *directory, const char *name, struct stat *ret_found,
                                         aoticache_error *ret_error)
{
    if (fstatat(directory->fd, name, ret_found, AT_SYMLINK_NOFOLLOW) == 0) {
        char path[AOTICACHE_INDEX_PATH_BYTES + 16];
        snprintf(path, sizeof path, "%s/%s", directory->path, name);
        return aoticache_directory_trust(directory, ret_found, S_IFREG, path, ret_error);
    }
    if (errno == ENOENT)
        return AOTICACHE_NOT_FOUND;
    return aoticache_error_set_errno(ret_error, errno, "cannot examine %s/%s", directory->path, name);
}

/* Checks the side files of the index. SQLite opens these by name next to the database, so a link there would be followed. */
static aoticache_status examine_side_files(const aoticache_directory *directory, aoticache_error *ret_error)
{
    for (size_t i = 0; i < SIDE_SUFFIX_COUNT; i++) {
        char name[64];
        struct stat found;
        snprintf(name, sizeof name, AOTICACHE_INDEX_FILE "%s", side_suffixes[i]);
        aoticache_status status = check_index_file(directory, name, &found, ret_error);
        if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
            return status;
    }
    return AOTICACHE_OK;
}

aoticache_index_options aoticache_cache_index_options(const aoticache_directory *directory,
                                                      char path[AOTICACHE_INDEX_PATH_BYTES])
{
    snprintf(path, AOTICACHE_INDEX_PATH_BYTES, "%s/" AOTICACHE_INDEX_FILE, directory->path);
    return (aoticache_index_options){.path = path,
                                     .directory_fd = &directory->fd,
                                     .lock_timeout_ms = directory->lock_timeout_ms,
                                     .logger = directory->logger,
                                     .is_group_shared = directory->is_group_shared};
}

static aoticache_status open_current(const aoticache_directory *directory, bool read_only, aoticache_index **ret_index,
                                     aoticache_error *ret_error)
{
    char path[AOTICACHE_INDEX_PATH_BYTES];
    aoticache_index_options options = aoticache_cache_index_options(directory, path);
    options.read_only = read_only;
    return aoticache_index_open(&options, ret_index, ret_error);
}

/* Makes an index the current one. */
static aoticache_status make_current(aoticache_cache *cache, aoticache_index *index, aoticache_error *ret_error)
{
    struct stat found;
    aoticache_open_index *opened = calloc(1, sizeof *opened);
    if (opened == NULL) {
        aoticache_index_close(index);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    }
    opened->index = index;
    if (fstatat(cache->directory->fd, AOTICACHE_INDEX_FILE, &found, AT_SYMLINK_NOFOLLOW) == 0) {
        opened->device = found.st_dev;
        opened->inode = found.st_ino;
    }
    opened->older = atomic_load(&cache->current);
    atomic_store(&cache->current, opened);
    return AOTICACHE_OK;
}

/* Returns true if the file with this name is still the one that was found unusable. */
static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static aoticache_status quarantine_index(aoticache_directory *directory, aoticache_error *ret_error)
{
    for (size_t i = 0; i < sizeof index_files / sizeof index_files[0]; i++) {
        const char *name = index_files[i];
        aoticache_status status = aoticache_directory_quarantine(directory, directory->fd, name, name, ret_error);
        if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
            return status;
    }
    return AOTICACHE_OK;
}

/* ---- a new index from the manifests ---- */

struct found_manifest {
    aoticache_digest digest;
    int64_t created_ns;
};

struct manifest_search {
    aoticache_directory *directory;
    struct found_manifest *found;
    size_t count, capacity;
    uint64_t unreadable; /* number of manifests and directories */
    aoticache_error first_unreadable;
    aoticache_error failure; /* the error that ends the search; OK if there is none */
};

static void note_unreadable(void *user, const aoticache_error *error)
{
    struct manifest_search *search = user;
    if (search->unreadable++ == 0)
        search->first_unreadable = *error;
}

static bool append_manifest(struct manifest_search *search, const aoticache_digest *digest, int64_t created_ns)
{
    if (!AOTICACHE_ARRAY_RESERVE(search->found, search->capacity, search->count + 1)) {
        aoticache_error_set(&search->failure, AOTICACHE_NO_MEMORY, "out of memory for a list of manifests");
        return false;
    }
    search->found[search->count++] = (struct found_manifest){.digest = *digest, .created_ns = created_ns};
    return true;
}

static bool remember_manifest(void *user, const aoticache_digest *digest)
{
    struct manifest_search *search = user;
    aoticache_manifest *manifest = NULL;
    uint64_t bytes;
    aoticache_error detail = {.message = ""};
    if (!aoticache_cache_may_be_manifest(search->directory, digest))
        return true;
    aoticache_status status = aoticache_cache_load_manifest(search->directory, digest, &manifest, &bytes, &detail);
    if (status == AOTICACHE_DENIED)
        note_unreadable(search, &detail);
    if (status == AOTICACHE_IO || status == AOTICACHE_NO_MEMORY || status == AOTICACHE_LOCKED) {
        search->failure = detail; /* an index built with only some of the manifests would lack the others */
        search->failure.status = status;
        return false;
    }
    if (status != AOTICACHE_OK)
        return true;
    bool continues = append_manifest(search, digest, manifest->created_ns);
    aoticache_manifest_free(manifest);
    return continues;
}

static int compare_ages(const void *left, const void *right)
{
    const struct found_manifest *a = left, *b = right;
    if (a->created_ns != b->created_ns)
        return a->created_ns < b->created_ns ? -1 : 1;
    return memcmp(a->digest.bytes, b->digest.bytes, sizeof a->digest.bytes);
}

static aoticache_status index_one(struct manifest_search *search, aoticache_index *index,
                                  const aoticache_digest *digest, aoticache_error *ret_error)
{
    aoticache_manifest *manifest = NULL;
    uint64_t bytes;
    aoticache_status status = aoticache_cache_load_manifest(search->directory, digest, &manifest, &bytes, ret_error);
    if (status == AOTICACHE_IO || status == AOTICACHE_NO_MEMORY || status == AOTICACHE_LOCKED)
        return status;
    if (status != AOTICACHE_OK)
        return AOTICACHE_NOT_FOUND;
    status = aoticache_cache_index_manifest(search->directory, index, digest, bytes, manifest, ret_error);
    aoticache_manifest_free(manifest);
    return status;
}

/* Records a batch of manifests from *at on in one transaction. */
static aoticache_status index_batch(struct manifest_search *search, aoticache_index *index, size_t *at,
                                    uint64_t *entries, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_bulk_begin(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    for (size_t n = 0; status == AOTICACHE_OK && *at < search->count && n < MANIFESTS_AT_ONCE; n++) {
        status = index_one(search, index, &search->found[(*at)++].digest, ret_error);
        if (status == AOTICACHE_OK)
            ++*entries;
        else if (status == AOTICACHE_NOT_FOUND)
            status = AOTICACHE_OK;
    }
    return aoticache_index_bulk_end(index, status, ret_error);
}

/* Records the entries of all manifests of the store, the newest last, so that it replaces older ones. */
static aoticache_status index_all_manifests(aoticache_directory *directory, aoticache_index *index,
                                            uint64_t *ret_entries, aoticache_error *ret_error)
{
    struct manifest_search search = {.directory = directory, .failure = {.status = AOTICACHE_OK}};
    uint64_t entries = 0;
    aoticache_status status = aoticache_object_list(directory, remember_manifest, note_unreadable, &search, ret_error);
    if (status == AOTICACHE_OK && search.failure.status != AOTICACHE_OK)
        status = aoticache_error_set(ret_error, search.failure.status, "%s", search.failure.message);
    if (search.count > 0)
        qsort(search.found, search.count, sizeof *search.found, compare_ages);
    /* No other process uses this index yet, and a transaction for each entry would wait for the disk each time. */
    for (size_t i = 0; status == AOTICACHE_OK && i < search.count;)
        status = index_batch(&search, index, &i, &entries, ret_error);
    free(search.found);
    if (search.unreadable > 0)
        aoticache_log(&directory->logger, AOTICACHE_LOG_WARNING,
                      "the index is built without %llu files or directories that cannot be read (the "
                      "first: %s); to add them, run 'aoticache verify --repair' as a user who may "
                      "read them",
                      (unsigned long long)search.unreadable, search.first_unreadable.message);
    if (status == AOTICACHE_OK)
        *ret_entries = entries;
    return status;
}

static aoticache_status build_index(aoticache_directory *directory, const aoticache_scratch *scratch,
                                    uint64_t *ret_entries, aoticache_error *ret_error)
{
    aoticache_index *index = NULL;
    char path[AOTICACHE_INDEX_PATH_BYTES];
    aoticache_index_options options = aoticache_cache_index_options(directory, path);
    options.directory_fd = &scratch->fd;
    snprintf(path, sizeof path, "%s/" AOTICACHE_INDEX_FILE, scratch->path);
    aoticache_status status = aoticache_index_open(&options, &index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = index_all_manifests(directory, index, ret_entries, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_load_pins(directory, index, ret_error);
    aoticache_index_close(index);
    if (status == AOTICACHE_OK && faccessat(scratch->fd, AOTICACHE_INDEX_FILE "-wal", F_OK, 0) == 0)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "cannot complete the new index in %s", scratch->path);
    return status;
}

/* Builds a new index. The caller holds the store's lock exclusively. */
static aoticache_status replace_index(aoticache_directory *directory, const char *reason, aoticache_error *ret_error)
{
    aoticache_scratch scratch = AOTICACHE_SCRATCH_INIT;
    uint64_t entries = 0;
    aoticache_status status = aoticache_scratch_create(directory, &scratch, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = build_index(directory, &scratch, &entries, ret_error);
    if (status == AOTICACHE_OK)
        status = quarantine_index(directory, ret_error);
    if (status == AOTICACHE_OK &&
        (aoticache_syscall_renameat(scratch.fd, AOTICACHE_INDEX_FILE, directory->fd, AOTICACHE_INDEX_FILE) != 0 ||
         aoticache_syscall_fsync(directory->fd) != 0))
        status = aoticache_error_set_errno(ret_error, errno, "cannot install a new index in %s", directory->path);
    aoticache_scratch_remove(&scratch);
    if (status == AOTICACHE_OK)
        aoticache_log(&directory->logger, AOTICACHE_LOG_WARNING,
                      "%s: %s; it was rebuilt from the manifests: %llu entries", directory->path, reason,
                      (unsigned long long)entries);
    return status;
}

/* Rebuilds the index. `unusable` is the file to replace, or NULL if there was none. Another process may have replaced it
 * during the wait. */
static aoticache_status rebuild_index(aoticache_cache *cache, const struct stat *unusable, const char *reason,
                                      aoticache_index **ret_index, aoticache_error *ret_error)
{
    aoticache_directory *directory = cache->directory;
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    struct stat found;
    aoticache_status status = aoticache_lock_store(directory, true, &lock, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    bool is_there = fstatat(directory->fd, AOTICACHE_INDEX_FILE, &found, AT_SYMLINK_NOFOLLOW) == 0;
    if (!is_there || (unusable != NULL && is_same_file(&found, unusable)))
        status = replace_index(directory, reason, ret_error);
    aoticache_lock_release(&lock);
    return status == AOTICACHE_OK ? open_current(directory, false, ret_index, ret_error) : status;
}

/* Returns true if the store has an object, which an index must contain. */
static bool has_objects(aoticache_directory *directory)
{
    return faccessat(directory->fd, AOTICACHE_OBJECTS, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
           faccessat(directory->fd, AOTICACHE_PINS, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static aoticache_status open_writable(aoticache_cache *cache, aoticache_index **ret_index, aoticache_error *ret_error)
{
    aoticache_directory *directory = cache->directory;
    aoticache_error detail = {.message = ""};
    struct stat found;
    aoticache_status examined = check_index_file(directory, AOTICACHE_INDEX_FILE, &found, ret_error);
    if (examined != AOTICACHE_OK && examined != AOTICACHE_NOT_FOUND)
        return examined;
    if (examined == AOTICACHE_NOT_FOUND && has_objects(directory))
        return rebuild_index(cache, NULL, "the index is missing", ret_index, ret_error);
    aoticache_status status = open_current(directory, false, ret_index, &detail);
    if (status == AOTICACHE_OK)
        return status;
    if (status != AOTICACHE_CORRUPT)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    if (examined == AOTICACHE_NOT_FOUND &&
        check_index_file(directory, AOTICACHE_INDEX_FILE, &found, ret_error) != AOTICACHE_OK)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "%s", detail.message);
    return rebuild_index(cache, &found, detail.message, ret_index, ret_error);
}

/* Without an index a read-only cache finds nothing, and the program continues. */
static aoticache_status open_for_reading(aoticache_cache *cache, aoticache_index **ret_index,
                                         aoticache_error *ret_error)
{
    aoticache_directory *directory = cache->directory;
    aoticache_error detail = {.message = ""};
    struct stat found;
    aoticache_status status = check_index_file(directory, AOTICACHE_INDEX_FILE, &found, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        return AOTICACHE_OK;
    if (status != AOTICACHE_OK)
        return status;
    status = open_current(directory, true, ret_index, &detail);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND)
        return AOTICACHE_OK;
    if (status == AOTICACHE_UNSUPPORTED || status == AOTICACHE_NO_MEMORY)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    aoticache_log(&directory->logger, AOTICACHE_LOG_WARNING, "%s; lookups in this read-only cache find nothing",
                  detail.message);
    return AOTICACHE_OK;
}

aoticache_status aoticache_cache_index_result(aoticache_status status, aoticache_error *error)
{
    if (status != AOTICACHE_CORRUPT)
        return status;
    if (error != NULL)
        error->status = AOTICACHE_IO;
    return AOTICACHE_IO;
}

aoticache_status aoticache_cache_open_index(aoticache_cache *cache, aoticache_error *ret_error)
{
    aoticache_directory *directory = cache->directory;
    aoticache_index *index = NULL;
    aoticache_error detail = {.status = AOTICACHE_OK, .message = ""};
    aoticache_status status = examine_side_files(directory, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (!directory->read_only) {
        status = open_writable(cache, &index, &detail);
        if (status == AOTICACHE_IO && cache->may_use_reserve && aoticache_reserve_is_needed(cache) &&
            aoticache_reserve_give_up(cache))
            status = open_writable(cache, &index, &detail);
        status = aoticache_cache_index_result(status, &detail);
        if (status != AOTICACHE_OK && status != AOTICACHE_IO)
            return aoticache_error_set(ret_error, status, "%s", detail.message);
        if (status == AOTICACHE_IO) { /* most likely a full disk */
            directory->read_only = true;
            aoticache_log(&directory->logger, AOTICACHE_LOG_WARNING,
                          "%s; the cache is opened for reading only, and stores nothing", detail.message);
        }
    }
    if (directory->read_only) {
        status = open_for_reading(cache, &index, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    return index != NULL ? make_current(cache, index, ret_error) : AOTICACHE_OK;
}

/* Returns how many indexes this cache has opened. */
static unsigned count_opened(aoticache_cache *cache)
{
    unsigned count = 0;
    for (aoticache_open_index *opened = atomic_load(&cache->current); opened != NULL; opened = opened->older)
        count++;
    return count;
}

/* Opens the current index, or builds one if `reason` says that it is unusable. The caller holds index_mutex. */
static bool replace_current(aoticache_cache *cache, const char *reason)
{
    aoticache_index *index = NULL;
    aoticache_error detail = {.message = ""};
    aoticache_open_index *current = atomic_load(&cache->current);
    aoticache_status status;
    if (reason != NULL) {
        struct stat unusable = {.st_dev = current->device, .st_ino = current->inode};
        status = rebuild_index(cache, &unusable, reason, &index, &detail);
    } else {
        status = open_writable(cache, &index, &detail);
    }
    if (status == AOTICACHE_OK)
        status = make_current(cache, index, &detail);
    if (status != AOTICACHE_OK)
        aoticache_log(&cache->directory->logger, AOTICACHE_LOG_WARNING, "cannot open a new index: %s", detail.message);
    return status == AOTICACHE_OK;
}

bool aoticache_cache_recovered(aoticache_cache *cache, aoticache_status status, aoticache_index **index)
{
    if (status == AOTICACHE_IO) /* on NFS and FUSE, an index that another process has replaced fails with ESTALE */
        return aoticache_cache_refreshed(cache, index);
    if (status != AOTICACHE_CORRUPT || *index == NULL || cache->directory->read_only)
        return false;
    bool recovered = false;
    pthread_mutex_lock(&cache->index_mutex);
    if (atomic_load(&cache->current)->index != *index)
        recovered = true;
    else if (count_opened(cache) <= MAX_RECOVERIES)
        recovered = replace_current(cache, "the index is damaged");
    if (recovered)
        *index = atomic_load(&cache->current)->index;
    pthread_mutex_unlock(&cache->index_mutex);
    return recovered;
}

bool aoticache_cache_index_is_current(aoticache_cache *cache)
{
    struct stat found;
    aoticache_open_index *current = atomic_load(&cache->current);
    return current == NULL || (fstatat(cache->directory->fd, AOTICACHE_INDEX_FILE, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
                               found.st_dev == current->device && found.st_ino == current->inode);
}

bool aoticache_cache_refreshed(aoticache_cache *cache, aoticache_index **index)
{
    if (*index == NULL || cache->directory->read_only || aoticache_cache_index_is_current(cache))
        return false;
    bool changed = false;
    pthread_mutex_lock(&cache->index_mutex);
    if (aoticache_cache_index_is_current(cache) ||
        (count_opened(cache) <= MAX_RECOVERIES && replace_current(cache, NULL)))
        changed = atomic_load(&cache->current)->index != *index;
    *index = atomic_load(&cache->current)->index;
    pthread_mutex_unlock(&cache->index_mutex);
    return changed;
}

#define MAX_WRITE_TRIES 4

aoticache_status aoticache_cache_write_index(aoticache_cache *cache, aoticache_cache_write_fn write, void *user,
                                             aoticache_error *ret_error)
{
    aoticache_index *index = aoticache_cache_index(cache);
    for (int i = 0; i < MAX_WRITE_TRIES; i++) {
        bool is_stale = false;
        aoticache_cache_refreshed(cache, &index);
        aoticache_status status = write(user, index, &is_stale, ret_error);
        if (status == AOTICACHE_OK && !is_stale)
            return AOTICACHE_OK;
        if (status != AOTICACHE_OK && !aoticache_cache_recovered(cache, status, &index))
            return aoticache_cache_index_result(status, ret_error);
    }
    return aoticache_error_set(ret_error, AOTICACHE_IO,
                               "%s: another process replaced the index again and again; try again",
                               cache->directory->path);
}
