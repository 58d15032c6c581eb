/*
 * tests/unit/own_directory: a private directory for one test below TMPDIR, which is removed when the process of the test
 * ends. A skipped test does not run the .fini of its suite, but its process exits.
 */
#ifndef AOTICACHE_TESTS_OWN_DIRECTORY_H
#define AOTICACHE_TESTS_OWN_DIRECTORY_H

#include <criterion/criterion.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *own_directories[8]; /* NULL: the slot is free */
static pid_t own_directories_owner;

static inline int own_directory_open_one(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)found, (void)walk;
    if (kind == FTW_D || kind == FTW_DNR)
        chmod(path, 0700);
    return 0;
}

static inline int own_directory_remove_one(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)found, (void)kind, (void)walk;
    remove(path);
    return 0;
}

/* Removes a directory with its contents, whatever its permissions are. */
static inline void own_directory_remove(const char *path)
{
    nftw(path, own_directory_open_one, 16, FTW_PHYS);
    nftw(path, own_directory_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    for (size_t i = 0; i < sizeof own_directories / sizeof own_directories[0]; i++)
        if (own_directories[i] != NULL && own_directories[i] != path && strcmp(own_directories[i], path) == 0) {
            free(own_directories[i]);
            own_directories[i] = NULL;
        }
}

static inline void own_directories_end(void)
{
    if (getpid() != own_directories_owner) /* a child that a test forked */
        return;
    for (size_t i = 0; i < sizeof own_directories / sizeof own_directories[0]; i++)
        if (own_directories[i] != NULL) {
            own_directory_remove(own_directories[i]);
            free(own_directories[i]);
        }
}

/* Makes a directory that only this user can enter. ret_path: has `size` bytes. */
static inline void own_directory_make(char *ret_path, size_t size)
{
    const char *parent = getenv("TMPDIR");
    size_t place = 0;
    snprintf(ret_path, size, "%s/aoticache-test-XXXXXX",
             parent != NULL && parent[0] == '/' && strlen(parent) + 32 < size ? parent : "/tmp");
    cr_assert_not_null(mkdtemp(ret_path), "%s: %s", ret_path, strerror(errno));
    while (place < sizeof own_directories / sizeof own_directories[0] - 1 && own_directories[place] != NULL)
        place++;
    cr_assert_null(own_directories[place], "more directories than one test may have");
    own_directories[place] = strdup(ret_path);
    if (own_directories_owner != getpid()) {
        own_directories_owner = getpid();
        atexit(own_directories_end);
    }
}

#endif
