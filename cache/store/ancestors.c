/*
 * cache/store/ancestors: checks whether the directories above the cache directory may be trusted, as sshd does for those
 * above authorized_keys: a user who may rename entries of one of them controls what is at the path, whatever was checked
 * before, and compilers and loaders receive paths.
 *
 * The check goes from "/" downwards along the path without links: once a directory is known to be safe, no other user can
 * change its entries, so the next directory that is checked is the one that will be used.
 */
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cache/store/directory.h"

#define ACCOUNT_BYTES 16384

/*
 * Returns true for the group with the user's own name that has no other members. Systems that give each user such a group
 * (Red Hat, Debian) may have a umask of 002 with it. This is checked only if the group of one of the user's directories may
 * write to it.
 */
static bool is_private_group(gid_t group)
{
    cleanup_free char *buffer = malloc(2 * ACCOUNT_BYTES);
    struct passwd user, *found_user = NULL;
    struct group own, *found_group = NULL;
    if (buffer == NULL || getpwuid_r(geteuid(), &user, buffer, ACCOUNT_BYTES, &found_user) != 0 || found_user == NULL ||
        getgrgid_r(group, &own, buffer + ACCOUNT_BYTES, ACCOUNT_BYTES, &found_group) != 0 || found_group == NULL)
        return false;
    bool is_private = strcmp(user.pw_name, own.gr_name) == 0;
    for (char **member = own.gr_mem; is_private && *member != NULL; member++)
        is_private = strcmp(*member, user.pw_name) == 0;
    return is_private;
}

/*
 * Returns whether the owner is not mapped. In a user namespace (a container without root, a sandbox) all unmapped owners
 * look alike: root of the machine, to whom "/" belongs there, and other users. Only the mode can be checked then.
 */
static bool is_unmapped(uid_t user)
{
    cleanup_file FILE *map = fopen("/proc/self/uid_map", "re");
    unsigned long inside, outside, count;
    if (map == NULL)
        return false;
    while (fscanf(map, "%lu %lu %lu", &inside, &outside, &count) == 3)
        if (user >= inside && user - inside < count)
            return false;
    return true;
}

static bool is_trusted_owner(uid_t owner)
{
    return owner == 0 || owner == geteuid() || is_unmapped(owner);
}

/* Returns whether others may rename entries. In a sticky directory (/tmp) only the owner of an entry can rename it. */
static bool is_writable_by_others(const struct stat *directory)
{
    if ((directory->st_mode & (S_IWGRP | S_IWOTH)) == 0 || (directory->st_mode & S_ISVTX) != 0)
        return false;
    if ((directory->st_mode & S_IWOTH) != 0)
        return true;
    return directory->st_uid == geteuid() ? !is_private_group(directory->st_gid)
                                          : directory->st_uid != 0 || directory->st_gid != 0;
}

static aoticache_status check_directory(const aoticache_directory *directory, const char *path,
                                        aoticache_error *ret_error)
{
    struct stat found;
    if (lstat(path, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot examine %s above the cache directory", path);
    if (!is_trusted_owner(found.st_uid))
        return aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                   "%s belongs to user %ld, who could replace the cache directory %s in it; this "
                                   "process runs as user %ld: choose a directory below directories of your own or "
                                   "root's, or allow a shared one",
                                   path, (long)found.st_uid, directory->path, (long)geteuid());
    if (is_writable_by_others(&found))
        return aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                   "%s can be written by others (mode 0%o, group %ld), who could replace the "
                                   "cache directory %s in it: chmod go-w %s, choose another directory, or allow a "
                                   "shared one",
                                   path, (unsigned)(found.st_mode & 07777), (long)found.st_gid, directory->path, path);
    return AOTICACHE_OK;
}

/* Checks every directory in `path` that is followed by a slash. */
static aoticache_status check_directories(const aoticache_directory *directory, const char *real,
                                          aoticache_error *ret_error)
{
    char path[PATH_MAX];
    aoticache_status status = AOTICACHE_OK;
    snprintf(path, sizeof path, "%s", real);
    for (size_t i = 0; status == AOTICACHE_OK && real[i] != '\0' && real[1] != '\0'; i++) {
        if (real[i] != '/')
            continue;
        path[i == 0 ? 1 : i] = '\0';
        status = check_directory(directory, path, ret_error);
        path[i == 0 ? 1 : i] = real[i == 0 ? 1 : i];
    }
    return status;
}

aoticache_status aoticache_directory_trust_place(const aoticache_directory *directory, aoticache_error *ret_error)
{
    cleanup_free char *path = strdup(directory->path);
    cleanup_free char *real = NULL;
    for (char *slash = path; real == NULL && slash != NULL && (slash = strrchr(path, '/')) != NULL;) {
        slash[slash == path] = '\0';
        real = realpath(path, NULL);
        if (real == NULL && (errno != ENOENT || slash == path))
            return aoticache_error_set_errno(ret_error, errno, "cannot examine %s above the cache directory", path);
    }
    char *subdirectory = NULL;
    if (real == NULL || asprintf(&subdirectory, "%s/", real[1] != '\0' ? real : "") < 0)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    aoticache_status status =
        directory->allow_shared ? AOTICACHE_OK : check_directories(directory, subdirectory, ret_error);
    free(subdirectory);
    return status;
}

aoticache_status aoticache_directory_find_real_path(aoticache_directory *directory, const struct stat *root,
                                                    aoticache_error *ret_error)
{
    struct stat found;
    cleanup_free char *real = realpath(directory->path, NULL);
    if (real == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot examine the path of %s", directory->path);
    aoticache_status status = directory->allow_shared ? AOTICACHE_OK : check_directories(directory, real, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const bool is_there = lstat(real, &found) == 0;
    if (!is_there && errno != ENOENT)
        return aoticache_error_set_errno(ret_error, errno, "cannot examine %s", real);
    if (!is_there || found.st_dev != root->st_dev || found.st_ino != root->st_ino)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED, "%s was replaced while it was being opened; try again",
                                   directory->path);
    directory->real_path = steal_ptr(&real);
    return AOTICACHE_OK;
}
