/*
 * cache/store/reserve: a file in the cache directory that only reserves space. On a completely full disk a collection could
 * not begin, because SQLite needs space for its log before anything can be removed. So it removes this file first. Nothing
 * else depends on the file, and it does not count as content of the cache.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/syscalls.h"
#include "cache/cache_internal.h"

/* There is no reserve if it would be more than a small part of the budget or of the disk. */
#define LEAST_BUDGET (64 * AOTICACHE_RESERVE_BYTES)
#define LEAST_FILESYSTEM (32 * AOTICACHE_RESERVE_BYTES)
#define LEAST_FREE (AOTICACHE_RESERVE_BYTES + AOTICACHE_RESERVE_BYTES / 2)

/* This is more than any measured collection needed. */
#define NEEDED_BYTES (UINT64_C(256) << 10)

static bool may_have_reserve(const aoticache_cache *cache)
{
    struct statvfs filesystem;
    if ((cache->max_bytes != 0 && cache->max_bytes < LEAST_BUDGET) || fstatvfs(cache->directory->fd, &filesystem) != 0)
        return false;
    return (uint64_t)filesystem.f_blocks * filesystem.f_frsize >= LEAST_FILESYSTEM &&
           (uint64_t)filesystem.f_bavail * filesystem.f_frsize >= LEAST_FREE;
}

static bool has_reserve(const aoticache_directory *directory)
{
    struct stat found;
    return fstatat(directory->fd, AOTICACHE_RESERVE_FILE, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
           (!S_ISREG(found.st_mode) || (uint64_t)found.st_size >= AOTICACHE_RESERVE_BYTES);
}

/* Several processes may make it at the same time; they make the same file. */
static bool make_reserve(aoticache_cache *cache)
{
    const aoticache_directory *directory = cache->directory;
    const mode_t mode = aoticache_directory_file_mode(directory);
    cleanup_fd int fd = aoticache_syscall_openat(directory->fd, AOTICACHE_RESERVE_FILE,
                                                 O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK, mode);
    if (fd < 0)
        return false;
    aoticache_directory_hand_over(directory, fd, mode);
    if (aoticache_syscall_allocate(fd, (off_t)AOTICACHE_RESERVE_BYTES) == 0) {
        atomic_store(&cache->has_given_up_reserve, false);
        return true;
    }
    aoticache_syscall_unlinkat(directory->fd, AOTICACHE_RESERVE_FILE, 0);
    return false;
}

void aoticache_reserve_keep(aoticache_cache *cache)
{
    if (cache->directory->read_only || atomic_exchange(&cache->has_tried_reserve, true))
        return;
    if (!has_reserve(cache->directory) && may_have_reserve(cache) && !make_reserve(cache))
        aoticache_log(&cache->directory->logger, AOTICACHE_LOG_DEBUG, "%s: not enough free space for the reserve",
                      cache->directory->path);
}

bool aoticache_reserve_is_needed(const aoticache_cache *cache)
{
    struct statvfs filesystem;
    return fstatvfs(cache->directory->fd, &filesystem) == 0 &&
           (uint64_t)filesystem.f_bavail * filesystem.f_frsize < NEEDED_BYTES;
}

bool aoticache_reserve_give_up(aoticache_cache *cache)
{
    if (aoticache_syscall_unlinkat(cache->directory->fd, AOTICACHE_RESERVE_FILE, 0) != 0)
        return false;
    atomic_store(&cache->has_tried_reserve, false);
    atomic_store(&cache->has_given_up_reserve, true);
    aoticache_log(&cache->directory->logger, AOTICACHE_LOG_INFO, "%s: the disk is full; the reserve was released",
                  cache->directory->path);
    return true;
}
