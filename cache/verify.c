/*
 * cache/verify: reading and hashing everything, comparing the index with the store, and repairing what differs.
 *
 * Looks without locks. What is found wrong is looked at again before it counts, with the store locked where it is
 * repaired, because entries come and go meanwhile.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cache/lock.h"
#include "cache/snapshot.h"
#include "cache/verify.h"

#define MAX_FOREIGN 10000

static void tell(const aoticache_verification *verification, const char *what, const char *name, const char *detail)
{
    if (verification->callback != NULL)
        verification->callback(verification->user, what, name, detail);
}

static bool add_digest(void *user, const aoticache_digest *digest)
{
    aoticache_verification *verification = user;
    verification->is_out_of_memory = !aoticache_object_array_add(&verification->objects, digest, 0);
    return !verification->is_out_of_memory;
}

static void add_foreign(void *user, const char *path)
{
    aoticache_verification *verification = user;
    verification->report.foreign++;
    char **items = NULL;
    if (verification->foreign_count < MAX_FOREIGN)
        items = realloc(verification->foreign, (verification->foreign_count + 1) * sizeof *items);
    if (items == NULL)
        return;
    verification->foreign = items;
    items[verification->foreign_count] = strdup(path);
    if (items[verification->foreign_count] != NULL)
        verification->foreign_count++;
}

/* ---- objects ---- */

/* With the store locked. The object is still damaged: it goes to quarantine, and with it the entries that need it. */
static aoticache_status repair_damaged(aoticache_verification *verification, const aoticache_digest *digest,
                                       aoticache_error *ret_error)
{
    aoticache_cache *cache = verification->cache;
    cleanup_fd int fd = -1;
    uint64_t removed;
    aoticache_status now =
        aoticache_object_open(cache->directory, digest, AOTICACHE_OBJECT_ANY_SIZE, &fd, NULL, NULL);
    if (now == AOTICACHE_OK)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_object_set_aside(cache->directory, digest, ret_error);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND)
        status = aoticache_index_remove_object(aoticache_cache_index(cache), digest, &removed, ret_error);
    if (status == AOTICACHE_OK)
        verification->report.repaired++;
    return status;
}

/* With the store locked. An object that an entry names is not there: such entries go. */
static aoticache_status repair_missing(aoticache_verification *verification, const aoticache_digest *digest,
                                       aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    uint64_t removed = 0;
    aoticache_object_path(digest, path);
    cleanup_fd int fd = aoticache_directory_openat(verification->cache->directory, path, O_PATH);
    if (fd >= 0 || errno != ENOENT)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_remove_object(aoticache_cache_index(verification->cache), digest,
                                                            &removed, ret_error);
    if (status == AOTICACHE_OK)
        verification->report.repaired++;
    return status;
}

typedef aoticache_status (*repair_fn)(aoticache_verification *, const aoticache_digest *, aoticache_error *);

static aoticache_status repair_locked(aoticache_verification *verification, repair_fn repair,
                                      const aoticache_digest *digest, aoticache_error *ret_error)
{
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    if (!verification->is_repair)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_lock_store(verification->cache->directory, true, &lock, ret_error);
    if (status == AOTICACHE_OK)
        status = repair(verification, digest, ret_error);
    aoticache_lock_release(&lock);
    return status;
}

/* What cannot be used because it is not ours at all, as opposed to ours and damaged. */
static bool is_foreign_object(const aoticache_verification *verification, const char *path)
{
    struct stat found;
    return fstatat(verification->cache->directory->fd, path, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
           aoticache_directory_trust(verification->cache->directory, &found, S_IFREG, path, NULL) != AOTICACHE_OK;
}

static aoticache_status check_object(aoticache_verification *verification, aoticache_index_object *object,
                                     aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    cleanup_fd int fd = -1;
    aoticache_error detail = {.message = ""};
    aoticache_status status = aoticache_object_open(verification->cache->directory, &object->digest,
                                                    AOTICACHE_OBJECT_ANY_SIZE, &fd, &object->bytes, &detail);
    verification->report.objects++;
    verification->report.bytes += object->bytes;
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND) /* collected meanwhile; missing ones are counted later */
        return AOTICACHE_OK;
    if (status != AOTICACHE_CORRUPT)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    aoticache_object_path(&object->digest, path);
    bool is_foreign = is_foreign_object(verification, path);
    verification->report.foreign += is_foreign ? 1 : 0;
    verification->report.damaged += is_foreign ? 0 : 1;
    aoticache_cache_count(verification->cache, AOTICACHE_COUNTER_damaged, is_foreign ? 0 : 1);
    tell(verification, is_foreign ? "foreign" : "damaged", path, detail.message);
    return repair_locked(verification, repair_damaged, &object->digest, ret_error);
}

static aoticache_status check_objects(aoticache_verification *verification, aoticache_error *ret_error)
{
    aoticache_status status =
        aoticache_object_list(verification->cache->directory, add_digest, add_foreign, verification, ret_error);
    if (status == AOTICACHE_OK && verification->is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of objects");
    for (size_t i = 0; status == AOTICACHE_OK && i < verification->objects.count; i++) {
        status = check_object(verification, &verification->objects.items[i], ret_error);
        if (verification->progress != NULL)
            verification->progress(verification->user, i + 1, verification->objects.count);
    }
    return status;
}

/* ---- what the index names ---- */

static bool add_named(void *user, const aoticache_digest *digest, uint64_t bytes)
{
    aoticache_verification *verification = user;
    verification->is_out_of_memory = !aoticache_object_array_add(&verification->named, digest, bytes);
    return !verification->is_out_of_memory;
}

static aoticache_status check_named(aoticache_verification *verification, const aoticache_index_object *object,
                                    aoticache_error *ret_error)
{
    aoticache_cache *cache = verification->cache;
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    aoticache_object_path(&object->digest, path);
    cleanup_fd int fd = aoticache_directory_openat(cache->directory, path, O_PATH);
    struct stat found;
    if (fd >= 0 && fstat(fd, &found) == 0 && (uint64_t)found.st_size != object->bytes && S_ISREG(found.st_mode)) {
        /* Its bytes were verified above: then it is the row that is wrong. A lookup would refuse it all the same. */
        aoticache_log(&cache->directory->logger, AOTICACHE_LOG_WARNING, "%s: %lld bytes on disk, the index says %llu",
                      path, (long long)found.st_size, (unsigned long long)object->bytes);
    }
    if (fd >= 0 || errno != ENOENT ||
        aoticache_index_has_object(aoticache_cache_index(cache), &object->digest, NULL) != AOTICACHE_OK)
        return AOTICACHE_OK;
    verification->report.missing++;
    tell(verification, "missing", path, "an entry names this object and it is not there");
    return repair_locked(verification, repair_missing, &object->digest, ret_error);
}

static aoticache_status check_index(aoticache_verification *verification, aoticache_error *ret_error)
{
    aoticache_index *index = aoticache_cache_index(verification->cache);
    aoticache_error detail = {.message = ""};
    aoticache_status status = aoticache_index_verify(index, &detail);
    if (status == AOTICACHE_CORRUPT) {
        verification->report.damaged++;
        tell(verification, "damaged", AOTICACHE_INDEX_FILE, detail.message);
        if (!verification->is_repair)
            return AOTICACHE_OK;
        if (!aoticache_cache_recovered(verification->cache, status, &index))
            return aoticache_error_set(ret_error, AOTICACHE_IO, "cannot rebuild the index: %s", detail.message);
        verification->report.repaired++;
    } else if (status != AOTICACHE_OK) {
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    }
    return AOTICACHE_OK;
}

static aoticache_status check_all_named(aoticache_verification *verification, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_list_objects(aoticache_cache_index(verification->cache), add_named,
                                                           verification, ret_error);
    if (status == AOTICACHE_OK && verification->is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of objects");
    for (size_t i = 0; status == AOTICACHE_OK && i < verification->named.count; i++)
        status = check_named(verification, &verification->named.items[i], ret_error);
    return status;
}

/* What is still unreferenced when everything else has been looked at and repaired. */
static void count_unreferenced(aoticache_verification *verification)
{
    aoticache_index *index = aoticache_cache_index(verification->cache);
    for (size_t i = 0; i < verification->objects.count; i++)
        if (aoticache_index_has_object(index, &verification->objects.items[i].digest, NULL) == AOTICACHE_NOT_FOUND)
            verification->report.unreferenced++;
}

/* ---- foreign files ---- */

static aoticache_status check_root(aoticache_verification *verification, aoticache_error *ret_error)
{
    const aoticache_directory *directory = verification->cache->directory;
    int fd = openat(directory->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_dir DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;
    if (listing == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot list %s", directory->path);
    for (struct dirent *item; (item = readdir(listing)) != NULL;) {
        struct stat found;
        mode_t type;
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0 ||
            fstatat(directory->fd, item->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (!aoticache_directory_knows(item->d_name, &type) ||
            aoticache_directory_trust(directory, &found, type, item->d_name, NULL) != AOTICACHE_OK)
            add_foreign(verification, item->d_name);
    }
    return AOTICACHE_OK;
}

static aoticache_status move_foreign(aoticache_verification *verification, const char *path,
                                     aoticache_error *ret_error)
{
    aoticache_directory *directory = verification->cache->directory;
    cleanup_fd int parent = -1;
    char folder[512];
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - path) : 0, path);
    aoticache_status status = AOTICACHE_OK;
    if (slash != NULL)
        status = aoticache_directory_open_folder(directory, folder, false, &parent, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_directory_quarantine(directory, slash != NULL ? parent : directory->fd, name, name,
                                                ret_error);
    if (status == AOTICACHE_OK)
        verification->report.repaired++;
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

static aoticache_status treat_foreign(aoticache_verification *verification, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; i < verification->foreign_count; i++) {
        tell(verification, "foreign", verification->foreign[i],
             "not a file of the cache: a symbolic link, another's, or an odd name");
        if (status == AOTICACHE_OK && verification->is_repair)
            status = move_foreign(verification, verification->foreign[i], ret_error);
    }
    return status;
}

/* ---- all of it ---- */

static aoticache_status verify_without_index(aoticache_verification *verification, aoticache_error *ret_error)
{
    aoticache_status status = check_root(verification, ret_error);
    if (status == AOTICACHE_OK)
        status = check_objects(verification, ret_error);
    if (status == AOTICACHE_OK)
        status = treat_foreign(verification, ret_error);
    verification->report.unreferenced = verification->objects.count;
    return status;
}

static aoticache_status verify(aoticache_verification *verification, aoticache_error *ret_error)
{
    if (aoticache_cache_index(verification->cache) == NULL)
        return verify_without_index(verification, ret_error);
    aoticache_index_totals totals;
    aoticache_status status = check_index(verification, ret_error);
    if (status == AOTICACHE_OK)
        status = check_root(verification, ret_error);
    if (status == AOTICACHE_OK)
        status = check_objects(verification, ret_error);
    if (status == AOTICACHE_OK)
        status = treat_foreign(verification, ret_error);
    if (status == AOTICACHE_OK)
        status = check_all_named(verification, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_verification_check_unindexed(verification, ret_error);
    if (status == AOTICACHE_OK)
        count_unreferenced(verification);
    if (status == AOTICACHE_OK)
        status = aoticache_index_read_totals(aoticache_cache_index(verification->cache), &totals, ret_error);
    if (status == AOTICACHE_OK)
        verification->report.entries = totals.entries;
    return status;
}

static void free_verification(aoticache_verification *verification)
{
    for (size_t i = 0; i < verification->foreign_count; i++)
        free(verification->foreign[i]);
    free(verification->foreign);
    free(verification->objects.items);
    free(verification->named.items);
}

aoticache_status aoticache_cache_verify(aoticache_cache *cache, bool repair, aoticache_verify_fn callback,
                                        void (*progress)(void *user, uint64_t done, uint64_t all), void *user,
                                        aoticache_verify_report *ret_report, aoticache_error *ret_error)
{
    if (cache == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_verify: cache is NULL");
    aoticache_verification verification = {
        .cache = cache, .is_repair = repair, .callback = callback, .progress = progress, .user = user};
    aoticache_cache_enter(cache);
    aoticache_status status = repair ? aoticache_cache_check_writable(cache, ret_error) : AOTICACHE_OK;
    if (status != AOTICACHE_OK)
        return status;
    status = verify(&verification, ret_error);
    if (status == AOTICACHE_OK && ret_report != NULL)
        *ret_report = verification.report;
    free_verification(&verification);
    return status == AOTICACHE_CORRUPT ? AOTICACHE_IO : status;
}
