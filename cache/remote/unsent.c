/*
 * cache/remote/unsent: unsent/<digest of the manifest>, a file for each entry that still has to be sent to a remote.
 *
 * The file is created before the first request and removed after the last. So if a process is killed, or a server is
 * unavailable, the entry is sent after a later compile, by the process that does it. The entry that was tried longest ago is
 * tried next, so none delays the others. If a server will never accept an entry, the file has the reason, and the entry is
 * tried again after a day, or when the setting `remote` has changed. The files are hints: they need not survive a power
 * loss, and at most MOST_NOTES are created.
 */
#include "base/arguments.h"
#include "cache/remote/remote_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/syscalls.h"

#define MOST_NOTES 4096
#define SET_ASIDE_S (24 * 60 * 60)
#define REASON_BYTES (AOTICACHE_ERROR_MESSAGE_BYTES + 32)

struct note {
    aoticache_digest artifact;
    struct timespec tried;
};

static int open_directory(aoticache_cache *cache, bool create)
{
    int fd = -1;
    return aoticache_directory_open_subdirectory(cache->directory, AOTICACHE_UNSENT, create, &fd, NULL) == AOTICACHE_OK
               ? fd
               : -1;
}

static size_t count_notes(int directory)
{
    size_t count = 0;
    aoticache_digest artifact;
    cleanup_dir DIR *listing = aoticache_directory_list(directory);
    for (struct dirent *item; listing != NULL && (item = readdir(listing)) != NULL;)
        count += aoticache_digest_from_hex(item->d_name, &artifact) == AOTICACHE_OK ? 1 : 0;
    return count;
}

/* Reads why an entry is not sent, without the end of line. Returns false if it has no such reason. */
static bool read_reason(int directory, const char *name, uint64_t *ret_fingerprint, char ret_reason[REASON_BYTES])
{
    char text[REASON_BYTES + 20], *end = NULL;
    cleanup_fd int fd = aoticache_syscall_openat(directory, name, O_RDONLY | O_NOFOLLOW, 0);
    const ssize_t size = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (size <= 0)
        return false;
    text[size] = '\0';
    *ret_fingerprint = strtoull(text, &end, 16);
    if (*end != ' ')
        return false;
    snprintf(ret_reason, REASON_BYTES, "%s", end + 1);
    ret_reason[strcspn(ret_reason, "\n")] = '\0';
    return true;
}

void aoticache_unsent_note(aoticache_cache *cache, const aoticache_digest *artifact)
{
    char name[AOTICACHE_DIGEST_HEX_BYTES];
    cleanup_fd int subdirectory = open_directory(cache, true);
    if (subdirectory < 0 || count_notes(subdirectory) >= MOST_NOTES)
        return;
    aoticache_digest_to_hex(artifact, name);
    cleanup_fd int fd = aoticache_syscall_openat(subdirectory, name, O_WRONLY | O_CREAT | O_NOFOLLOW, 0600);
    if (fd >= 0)
        aoticache_directory_hand_over(cache->directory, fd, 0600);
}

void aoticache_unsent_postpone(aoticache_cache *cache, const aoticache_digest *artifact, const char *reason)
{
    char name[AOTICACHE_DIGEST_HEX_BYTES], text[REASON_BYTES + 20];
    cleanup_fd int directory = open_directory(cache, false);
    aoticache_digest_to_hex(artifact, name);
    cleanup_fd int fd =
        directory >= 0 ? aoticache_syscall_openat(directory, name, O_WRONLY | O_TRUNC | O_NOFOLLOW, 0) : -1;
    if (fd < 0)
        return;
    const int size = snprintf(text, sizeof text, "%016llx %s\n", (unsigned long long)cache->remotes->fingerprint,
                              reason != NULL ? reason : "");
    if (reason == NULL || size < 0 ||
        aoticache_syscall_write(fd, text, (size_t)size < sizeof text ? (size_t)size : sizeof text - 1) != 0)
        futimens(fd, NULL);
}

void aoticache_unsent_forget(aoticache_cache *cache, const aoticache_digest *artifact)
{
    char name[AOTICACHE_DIGEST_HEX_BYTES];
    cleanup_fd int directory = open_directory(cache, false);
    aoticache_digest_to_hex(artifact, name);
    if (directory >= 0)
        aoticache_syscall_unlinkat(directory, name, 0);
}

/* Returns whether the entry was refused a short time ago, for remotes with these settings. */
static bool is_quarantined(const aoticache_cache *cache, int directory, const char *name, const struct stat *found)
{
    char reason[REASON_BYTES];
    uint64_t fingerprint = 0;
    const int64_t age_s = aoticache_wall_ns() / 1000000000 - (int64_t)found->st_mtim.tv_sec;
    return found->st_size > 0 && age_s < SET_ASIDE_S && read_reason(directory, name, &fingerprint, reason) &&
           fingerprint == cache->remotes->fingerprint;
}

static bool is_before(const struct timespec *left, const struct timespec *right)
{
    return left->tv_sec != right->tv_sec ? left->tv_sec < right->tv_sec : left->tv_nsec < right->tv_nsec;
}

/* Inserts a note among at most `most`, sorted by when it was tried. */
static void insert(struct note *notes, size_t *count, size_t most, const struct note *note)
{
    size_t at = *count < most ? (*count)++ : most;
    while (at > 0 && is_before(&note->tried, &notes[at - 1].tried)) {
        if (at < most)
            notes[at] = notes[at - 1];
        at--;
    }
    if (at < most)
        notes[at] = *note;
}

size_t aoticache_unsent_list(aoticache_cache *cache, aoticache_digest *ret_artifacts, size_t most)
{
    struct note notes[AOTICACHE_UNSENT_AT_ONCE], note;
    struct stat found;
    size_t count = 0;
    cleanup_fd int directory = open_directory(cache, false);
    cleanup_dir DIR *listing = directory >= 0 ? aoticache_directory_list(directory) : NULL;
    for (struct dirent *item; listing != NULL && (item = readdir(listing)) != NULL;) {
        if (aoticache_digest_from_hex(item->d_name, &note.artifact) != AOTICACHE_OK ||
            fstatat(directory, item->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0 ||
            is_quarantined(cache, directory, item->d_name, &found))
            continue;
        note.tried = found.st_mtim;
        insert(notes, &count, most < AOTICACHE_UNSENT_AT_ONCE ? most : AOTICACHE_UNSENT_AT_ONCE, &note);
    }
    for (size_t i = 0; i < count; i++)
        ret_artifacts[i] = notes[i].artifact;
    return count;
}

aoticache_status aoticache_cache_list_unsent(aoticache_cache *cache, aoticache_unsent_fn callback, void *user,
                                             aoticache_error *ret_error)
{
    aoticache_unsent one;
    char reason[REASON_BYTES];
    uint64_t fingerprint = 0;
    struct stat found;
    if (cache == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, callback);
    aoticache_cache_enter(cache);
    cleanup_fd int directory = open_directory(cache, false);
    cleanup_dir DIR *listing = directory >= 0 ? aoticache_directory_list(directory) : NULL;
    for (struct dirent *item; listing != NULL && (item = readdir(listing)) != NULL;) {
        if (aoticache_digest_from_hex(item->d_name, &one.artifact) != AOTICACHE_OK ||
            fstatat(directory, item->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        one.reason = read_reason(directory, item->d_name, &fingerprint, reason) ? reason : "";
        one.tried_ns = (int64_t)found.st_mtim.tv_sec * 1000000000 + found.st_mtim.tv_nsec;
        if (!callback(user, &one))
            break;
    }
    return AOTICACHE_OK;
}
