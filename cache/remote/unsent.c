/*
 * cache/remote/unsent: unsent/<digest of the manifest>, an empty file for each entry that still has to go to a remote.
 *
 * The note is made before the first request and taken away after the last. So what a process that is killed, or a server that
 * is gone, leaves behind is sent after a later compile, by whichever process makes it. Notes are hints: they need not survive
 * a power loss, and of more than MOST_NOTES no more are made.
 */
#include "cache/remote/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/syscalls.h"

#define MOST_NOTES 4096

static int open_folder(aoticache_cache *cache, bool create)
{
    int fd = -1;
    return aoticache_directory_open_folder(cache->directory, AOTICACHE_UNSENT, create, &fd, NULL) == AOTICACHE_OK ? fd
                                                                                                                  : -1;
}

/* Digests of notes, at most `most`. */
static size_t list(int folder, aoticache_digest *ret_artifacts, size_t most)
{
    size_t count = 0;
    cleanup_dir DIR *listing = aoticache_directory_list(folder);
    for (struct dirent *item; listing != NULL && count < most && (item = readdir(listing)) != NULL;) {
        aoticache_digest artifact;
        if (aoticache_digest_from_hex(item->d_name, &artifact) != AOTICACHE_OK)
            continue;
        if (ret_artifacts != NULL)
            ret_artifacts[count] = artifact;
        count++;
    }
    return count;
}

void aoticache_unsent_note(aoticache_cache *cache, const aoticache_digest *artifact)
{
    char name[AOTICACHE_DIGEST_HEX_BYTES];
    cleanup_fd int folder = open_folder(cache, true);
    if (folder < 0 || list(folder, NULL, MOST_NOTES) == MOST_NOTES)
        return;
    aoticache_digest_to_hex(artifact, name);
    cleanup_fd int fd = aoticache_syscall_openat(folder, name, O_WRONLY | O_CREAT | O_NOFOLLOW, 0600);
    if (fd >= 0)
        aoticache_directory_hand_over(cache->directory, fd, 0600);
}

void aoticache_unsent_forget(aoticache_cache *cache, const aoticache_digest *artifact)
{
    char name[AOTICACHE_DIGEST_HEX_BYTES];
    cleanup_fd int folder = open_folder(cache, false);
    aoticache_digest_to_hex(artifact, name);
    if (folder >= 0)
        aoticache_syscall_unlinkat(folder, name, 0);
}

size_t aoticache_unsent_list(aoticache_cache *cache, aoticache_digest *ret_artifacts, size_t most)
{
    cleanup_fd int folder = open_folder(cache, false);
    return folder >= 0 ? list(folder, ret_artifacts, most) : 0;
}
