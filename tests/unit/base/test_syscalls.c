/*
 * base/syscalls: the hook sees every call, and can make it fail. base/process/home: where the library's files are.
 */
#include "base/process/home.h"
#include "base/syscalls.h"
#include "tests/unit/fixtures/own_directory.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct recording {
    char calls[256];
    const char *fail; /* this call fails with ENOSPC */
};

static int record(void *user, const char *call, const char *path)
{
    struct recording *recording = user;
    (void)path;
    strncat(recording->calls, call, sizeof recording->calls - strlen(recording->calls) - 2);
    strcat(recording->calls, " ");
    return recording->fail != NULL && strcmp(recording->fail, call) == 0 ? ENOSPC : 0;
}

Test(syscalls, hook_sees_calls_and_lets_them_happen)
{
    char directory[256];
    own_directory_make(directory, sizeof directory);
    int dirfd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct recording recording = {0};
    aoticache_syscall_hook_set(record, &recording);
    int fd = aoticache_syscall_openat(dirfd, "a", O_WRONLY | O_CREAT | O_EXCL, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    cr_assert_eq(aoticache_syscall_write(fd, "hello", 5), 0);
    cr_assert_eq(aoticache_syscall_fsync(fd), 0);
    cr_assert_eq(aoticache_syscall_fchmod(fd, 0444), 0);
    close(fd);
    cr_assert_eq(aoticache_syscall_renameat(dirfd, "a", dirfd, "b"), 0);
    struct stat status;
    cr_assert_eq(fstatat(dirfd, "b", &status, 0), 0);
    cr_assert_eq(status.st_size, 5);
    cr_assert_eq(aoticache_syscall_unlinkat(dirfd, "b", 0), 0);
    cr_assert_str_eq(recording.calls, "open write fsync fchmod rename unlink ");
    aoticache_syscall_hook_set(NULL, NULL);
    close(dirfd);
}

Test(syscalls, hook_makes_a_call_fail_before_it_happens)
{
    char directory[256];
    own_directory_make(directory, sizeof directory);
    int dirfd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct recording recording = {.fail = "mkdir"};
    aoticache_syscall_hook_set(record, &recording);
    errno = 0;
    cr_assert_eq(aoticache_syscall_mkdirat(dirfd, "sub", 0700), -1);
    cr_assert_eq(errno, ENOSPC);
    aoticache_syscall_hook_set(NULL, NULL);
    struct stat status;
    cr_assert_eq(fstatat(dirfd, "sub", &status, 0), -1);
    close(dirfd);
}

Test(home, find_asks_the_environment_first)
{
    char directory[256];
    char file[PATH_MAX], found[PATH_MAX];
    own_directory_make(directory, sizeof directory);
    snprintf(file, sizeof file, "%s/thing", directory);
    close(open(file, O_WRONLY | O_CREAT, 0600));
    setenv("AOTICACHE_HOME", directory, 1);
    cr_assert_eq(aoticache_home_find("thing", found, NULL), AOTICACHE_OK);
    cr_assert_str_eq(found, file);
    aoticache_error error;
    cr_assert_eq(aoticache_home_find("no such thing", found, &error), AOTICACHE_NOT_FOUND);
    cr_assert_not_null(strstr(error.message, directory), "%s", error.message);
    cr_assert_not_null(strstr(error.message, "no such thing"), "%s", error.message);
}
