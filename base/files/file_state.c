/*
 * base/files/file_state: decides for which files, and on which file systems, the change times are reliable.
 */
#include "base/files/file_state.h"

#include <stddef.h>
#include <sys/vfs.h>
#include <unistd.h>

/* The magic numbers are listed in statfs(2) and linux/magic.h. */
static const unsigned long local_file_systems[] = {
    0xEF53,     /* ext2, ext3, ext4 */
    0x58465342, /* xfs */
    0x9123683E, /* btrfs */
    0xF2F52010, /* f2fs */
    0x01021994, /* tmpfs */
    0x2FC12FC1, /* zfs */
    0xCA451A4E, /* bcachefs */
    0x794C7630, /* overlayfs */
};

bool aoticache_file_system_is_local(int fd)
{
    struct statfs system;
    if (fstatfs(fd, &system) != 0)
        return false;
    for (size_t i = 0; i < sizeof local_file_systems / sizeof local_file_systems[0]; i++)
        if (((unsigned long)system.f_type & 0xffffffff) == local_file_systems[i])
            return true;
    return false;
}

bool aoticache_file_is_ours(const struct stat *found)
{
    return (found->st_uid == geteuid() || found->st_uid == 0) && (found->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static int64_t time_ns(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

aoticache_file_state aoticache_file_state_of(const struct stat *found)
{
    return (aoticache_file_state){.device = found->st_dev,
                                  .inode = found->st_ino,
                                  .size = found->st_size,
                                  .modified_ns = time_ns(&found->st_mtim),
                                  .changed_ns = time_ns(&found->st_ctim)};
}
