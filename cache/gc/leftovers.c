/*
 * cache/gc/leftovers: what processes that died left behind: tmp/, leases/, artifacts/. Whether somebody still lives is told
 * by locks alone, never by process numbers, which are used again.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/syscalls.h"
#include "cache/store/lock.h"
#include "cache/internal.h"
#include "index/eviction/eviction.h"

#define BATCH 64

struct names {
    char **items;
    size_t count;
};

static void free_names(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->items[i]);
    free(names->items);
    *names = (struct names){.items = NULL};
}

static bool add_name(struct names *names, const char *name)
{
    char **items = realloc(names->items, (names->count + 1) * sizeof *items);
    if (items == NULL)
        return false;
    names->items = items;
    items[names->count] = strdup(name);
    return items[names->count] != NULL && names->count++ < SIZE_MAX;
}

static aoticache_status list_names(int folder_fd, const char *prefix, struct names *ret_names,
                                   aoticache_error *ret_error)
{
    struct names names = {.items = NULL};
    int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_dir DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;
    if (listing == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot list a folder of the cache");
    for (struct dirent *item; (item = readdir(listing)) != NULL;) {
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0 ||
            strncmp(item->d_name, prefix, strlen(prefix)) != 0)
            continue;
        if (!add_name(&names, item->d_name)) {
            free_names(&names);
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
        }
    }
    *ret_names = names;
    return AOTICACHE_OK;
}

/* True where the file or folder of this name belongs to nobody any more and is gone. */
typedef bool (*remove_fn)(aoticache_cache *cache, int folder_fd, const char *name);

/* No put is at work while the store is locked exclusively, so a file here is nobody's; a folder may be a compile's. */
static bool remove_temporary(aoticache_cache *cache, int folder_fd, const char *name)
{
    (void)cache;
    cleanup_fd int fd = openat(folder_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 ? aoticache_syscall_flock(fd, LOCK_EX | LOCK_NB) != 0 : errno != ENOTDIR && errno != ELOOP)
        return false; /* or it cannot be told */
    return aoticache_directory_remove_tree(folder_fd, name) == 0;
}

static bool remove_lease(aoticache_cache *cache, int folder_fd, const char *name)
{
    (void)cache;
    cleanup_fd int fd = openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0 && aoticache_syscall_flock(fd, LOCK_EX | LOCK_NB) == 0 &&
           aoticache_directory_is_same(folder_fd, name, fd) && aoticache_syscall_unlinkat(folder_fd, name, 0) == 0;
}

static bool remove_side_files(aoticache_cache *cache, int folder_fd, const char *name)
{
    aoticache_digest artifact;
    (void)folder_fd;
    return aoticache_digest_from_hex(name, &artifact) == AOTICACHE_OK &&
           aoticache_index_has_object(aoticache_cache_index(cache), &artifact, NULL) == AOTICACHE_NOT_FOUND &&
           aoticache_cache_remove_side_files(cache, &artifact);
}

static bool remove_format(aoticache_cache *cache, int folder_fd, const char *name)
{
    (void)cache;
    return aoticache_syscall_unlinkat(folder_fd, name, 0) == 0;
}

static aoticache_status remove_names(aoticache_cache *cache, int folder_fd, const struct names *names, remove_fn remove,
                                     uint64_t *ret_removed, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < names->count; i += BATCH) {
        aoticache_lock lock = AOTICACHE_LOCK_INIT;
        status = aoticache_lock_store(cache->directory, true, &lock, ret_error);
        for (size_t k = i; status == AOTICACHE_OK && k < names->count && k < i + BATCH; k++)
            *ret_removed += remove(cache, folder_fd, names->items[k]) ? 1 : 0;
        aoticache_lock_release(&lock);
    }
    return status;
}

static aoticache_status sweep(aoticache_cache *cache, int folder_fd, const char *prefix, remove_fn remove,
                              uint64_t *ret_removed, aoticache_error *ret_error)
{
    struct names names = {.items = NULL};
    aoticache_status status = list_names(folder_fd, prefix, &names, ret_error);
    if (status == AOTICACHE_OK)
        status = remove_names(cache, folder_fd, &names, remove, ret_removed, ret_error);
    free_names(&names);
    return status;
}

/*
 * Folders of side files whose artifact no entry has: their manifests' rows are asked for before any lock is taken, and a
 * cache with many is looked through a part at a time. The place to go on is what the file system says it is: one that it
 * no longer understands costs nothing but a detour.
 */
#define PLACE "scan_artifacts"
#define PART 1024

static aoticache_status list_orphans(aoticache_index *index, DIR *listing, bool all, struct names *names,
                                     aoticache_error *ret_error)
{
    int64_t place = 0;
    struct dirent *item = NULL;
    aoticache_status status = all ? AOTICACHE_OK : aoticache_index_read_meta(index, PLACE, &place, ret_error);
    if (status == AOTICACHE_OK && place != 0)
        seekdir(listing, (long)place);
    for (int n = 0; status == AOTICACHE_OK && (all || n < PART) && (item = readdir(listing)) != NULL; n++) {
        aoticache_digest artifact;
        if (aoticache_digest_from_hex(item->d_name, &artifact) == AOTICACHE_OK &&
            aoticache_index_has_object(index, &artifact, NULL) == AOTICACHE_NOT_FOUND && !add_name(names, item->d_name))
            status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    }
    int64_t next = item != NULL ? telldir(listing) : 0;
    if (status == AOTICACHE_OK && next != place)
        status = aoticache_index_write_meta(index, PLACE, next, ret_error);
    return status;
}

static aoticache_status sweep_artifacts(aoticache_cache *cache, bool all, uint64_t *ret_removed,
                                        aoticache_error *ret_error)
{
    struct names names = {.items = NULL};
    int fd = -1;
    aoticache_status status =
        aoticache_directory_open_folder(cache->directory, AOTICACHE_ARTIFACTS, false, &fd, ret_error);
    if (status != AOTICACHE_OK)
        return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
    cleanup_dir DIR *listing = fdopendir(fd);
    if (listing == NULL) {
        close(fd);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    }
    status = list_orphans(aoticache_cache_index(cache), listing, all, &names, ret_error);
    if (status == AOTICACHE_OK)
        status = remove_names(cache, fd, &names, remove_side_files, ret_removed, ret_error);
    free_names(&names);
    return status;
}

aoticache_status aoticache_cache_remove_leftovers(aoticache_cache *cache, bool all, uint64_t *ret_removed,
                                                  aoticache_error *ret_error)
{
    static const struct {
        const char *folder;
        remove_fn remove;
    } places[] = {{AOTICACHE_TMP, remove_temporary}, {AOTICACHE_LEASES, remove_lease}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        cleanup_fd int folder = -1;
        aoticache_status status =
            aoticache_directory_open_folder(cache->directory, places[i].folder, false, &folder, ret_error);
        if (status == AOTICACHE_OK)
            status = sweep(cache, folder, "", places[i].remove, ret_removed, ret_error);
        if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
            return status;
    }
    aoticache_status status = sweep_artifacts(cache, all, ret_removed, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return sweep(cache, cache->directory->fd, AOTICACHE_FORMAT_FILE ".new-", remove_format, ret_removed, ret_error);
}
