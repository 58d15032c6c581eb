/*
 * tests/unit/own_folder: a private directory for one test below TMPDIR, which is removed when the process of the test
 * ends. A skipped test does not run the .fini of its suite, but its process exits.
 */
#ifndef AOTICACHE_TESTS_OWN_FOLDER_H
#define AOTICACHE_TESTS_OWN_FOLDER_H

#include <criterion/criterion.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *own_folders[8]; /* NULL: the slot is free */
static pid_t own_folders_owner;

static inline int own_folder_open_one(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)found, (void)walk;
    if (kind == FTW_D || kind == FTW_DNR)
        chmod(path, 0700);
    return 0;
}

static inline int own_folder_remove_one(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)found, (void)kind, (void)walk;
    remove(path);
    return 0;
}

/* Removes a directory with its contents, whatever its permissions are. */
static inline void own_folder_remove(const char *path)
{
    nftw(path, own_folder_open_one, 16, FTW_PHYS);
    nftw(path, own_folder_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    for (size_t i = 0; i < sizeof own_folders / sizeof own_folders[0]; i++)
        if (own_folders[i] != NULL && own_folders[i] != path && strcmp(own_folders[i], path) == 0) {
            free(own_folders[i]);
            own_folders[i] = NULL;
        }
}

static inline void own_folders_end(void)
{
    if (getpid() != own_folders_owner) /* a child that a test forked */
        return;
    for (size_t i = 0; i < sizeof own_folders / sizeof own_folders[0]; i++)
        if (own_folders[i] != NULL) {
            own_folder_remove(own_folders[i]);
            free(own_folders[i]);
        }
}

/* Makes a directory that only this user can enter. ret_path: has `size` bytes. */
static inline void own_folder_make(char *ret_path, size_t size)
{
    const char *parent = getenv("TMPDIR");
    size_t place = 0;
    snprintf(ret_path, size, "%s/aoticache-test-XXXXXX",
             parent != NULL && parent[0] == '/' && strlen(parent) + 32 < size ? parent : "/tmp");
    cr_assert_not_null(mkdtemp(ret_path), "%s: %s", ret_path, strerror(errno));
    while (place < sizeof own_folders / sizeof own_folders[0] - 1 && own_folders[place] != NULL)
        place++;
    cr_assert_null(own_folders[place], "more folders than one test may have");
    own_folders[place] = strdup(ret_path);
    if (own_folders_owner != getpid()) {
        own_folders_owner = getpid();
        atexit(own_folders_end);
    }
}

#endif
