/*
 * loader/dlopen_fd: see dlopen_fd.h.
 *
 * A descriptor is loaded as /proc/thread-self/fd/N (/proc/self/fd is empty once the first thread has ended). glibc
 * looks for a loaded library of the same *name* before it opens anything (_dl_map_object, elf/dl-load.c), and numbers
 * of descriptors are used again: the second library loaded as number 5 would be the first one. So every load spells the
 * path in a way not used before in this process. "//" and "/./" mean nothing to the kernel and make a different name to
 * glibc: a counter is written with them, one bit each.
 */
#include "loader/dlopen_fd.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* "/proc/thread-self/fd", two numbers of at most 64 bits with two characters each, "/", a number. */
#define SPELLED_PATH_BYTES 320

static atomic_uint_least64_t load_count;

/* Bits from the lowest: "/." is 1, "/" is 0. Fixed widths and the ever leading 1 keep different numbers different. */
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
 * The counter's own address goes in too: where the library is in the process twice (linked statically into a plugin),
 * each copy counts for itself. "/../fd" ends it, so that no two pairs of numbers run into the same text.
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

aoticache_status aoticache_dlopen_fd(int fd, void **ret_handle, aoticache_error *ret_error)
{
    char path[SPELLED_PATH_BYTES];
    spell_path(fd, path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle != NULL) {
        *ret_handle = handle;
        return AOTICACHE_OK;
    }
    const char *message = dlerror();
    if (message == NULL)
        message = "it gives no reason";
    /* The path says nothing to a reader, and messages begin with it. */
    size_t length = strlen(path);
    if (strncmp(message, path, length) == 0 && strncmp(message + length, ": ", 2) == 0)
        message += length + 2;
    return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "the dynamic linker says: %s", message);
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
