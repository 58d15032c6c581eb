/*
 * loader/dlopen_fd: loads the file that a descriptor is open on.
 *
 * A descriptor is loaded as /proc/thread-self/fd/N (/proc/self/fd is empty once the first thread has ended). glibc looks
 * for a loaded library of the same *name* before it opens anything (_dl_map_object, elf/dl-load.c), and numbers of
 * descriptors are reused: the second library loaded as number 5 would be taken for the first one. So every load spells
 * the path in a way that this process has not used yet. "//" and "/./" mean nothing to the kernel but make a different
 * name for glibc: a counter is encoded in them, one bit each.
 *
 * If /proc is not mounted (a minimal chroot) a descriptor has no name. Then its bytes are copied to a file in a new
 * directory that only this user can enter, and that is removed once the file is loaded.
 */
#include "loader/dlopen_fd.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

/* "/proc/thread-self/fd", two numbers of at most 64 bits with two characters each, "/", a number. */
#define SPELLED_PATH_BYTES 320

static atomic_uint_least64_t load_count;

/* Writes bits from the lowest: "/." is 1, "/" is 0. Fixed widths and the leading 1 keep different numbers different. */
static char *spell_number(char *end, uint64_t number)
{
    for (; number != 0; number >>= 1) {
        *end++ = '/';
        if (number & 1)
            *end++ = '.';
    }
    return end;
}

/*
 * Writes the path. The counter's own address is encoded too: if the library is in the process twice (linked statically
 * into a plugin), each copy has its own counter. "/../fd" ends the address, so that two different pairs of numbers
 * never give the same text.
 */
static void spell_path(int fd, char ret_path[SPELLED_PATH_BYTES])
{
    static const char directory[] = "/proc/thread-self/fd", separator[] = "/../fd";
    memcpy(ret_path, directory, sizeof directory - 1);
    char *end = spell_number(ret_path + sizeof directory - 1, (uint64_t)(uintptr_t)&load_count >> 3);
    memcpy(end, separator, sizeof separator - 1);
    end = spell_number(end + sizeof separator - 1, atomic_fetch_add(&load_count, 1) + 1);
    snprintf(end, 16, "/%d", fd);
}

/* Reports the dynamic linker's message without the path that it begins with, which means nothing to a reader. */
static aoticache_status report_dlerror(const char *path, aoticache_error *ret_error)
{
    const char *message = dlerror();
    if (message == NULL)
        message = "it gives no reason";
    size_t length = strlen(path);
    if (strncmp(message, path, length) == 0 && strncmp(message + length, ": ", 2) == 0)
        message += length + 2;
    return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "the dynamic linker reports: %s", message);
}

/* ---- without /proc ---- */

#define DIRECTORY_PATTERN "aoticache-load-XXXXXX"
#define COPY_NAME "/library.so"

static bool has_proc(void)
{
    return access("/proc/thread-self/fd", F_OK) == 0;
}

/* Copies the file. Returns 0 or an errno. The descriptor's position does not change. */
static int copy_to(int fd, const char *path)
{
    char bytes[64 * 1024];
    off_t offset = 0;
    cleanup_fd int copy = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (copy < 0)
        return errno;
    for (;;) {
        const ssize_t count = pread(fd, bytes, sizeof bytes, offset);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count == 0 ? 0 : errno;
        for (ssize_t done = 0; done < count;) {
            const ssize_t written = write(copy, bytes + done, (size_t)(count - done));
            if (written < 0 && errno != EINTR)
                return errno;
            done += written > 0 ? written : 0;
        }
        offset += count;
    }
}

static aoticache_status open_copy(int fd, void **ret_handle, aoticache_error *ret_error)
{
    const char *temporary = secure_getenv("TMPDIR");
    char directory[PATH_MAX], path[PATH_MAX + sizeof COPY_NAME];
    snprintf(directory, sizeof directory - 1, "%.3000s/" DIRECTORY_PATTERN,
             temporary != NULL && temporary[0] == '/' ? temporary : "/tmp");
    if (mkdtemp(directory) == NULL)
        return aoticache_error_set_errno(
            ret_error, errno, "/proc is not mounted, and cannot create a directory for a copy of the library (%s)",
            directory);
    snprintf(path, sizeof path, "%s" COPY_NAME, directory);
    const int failed = copy_to(fd, path);
    aoticache_status status = AOTICACHE_OK;
    if (failed != 0)
        status = aoticache_error_set_errno(ret_error, failed, "/proc is not mounted, and cannot copy the library to %s",
                                           path);
    else if ((*ret_handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)) == NULL)
        status = report_dlerror(path, ret_error);
    unlink(path);
    rmdir(directory);
    return status;
}

/* ---- loading ---- */

aoticache_status aoticache_dlopen_fd(int fd, void **ret_handle, aoticache_error *ret_error)
{
    char path[SPELLED_PATH_BYTES];
    spell_path(fd, path);
    *ret_handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (*ret_handle != NULL)
        return AOTICACHE_OK;
    if (!has_proc()) {
        (void)dlerror();
        return open_copy(fd, ret_handle, ret_error);
    }
    return report_dlerror(path, ret_error);
}

bool aoticache_fd_opens_again(int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/thread-self/fd/%d", fd);
    int again = open(path, O_RDONLY | O_CLOEXEC);
    if (again >= 0)
        close(again);
    return again >= 0;
}
