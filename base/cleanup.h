/*
 * base/cleanup: variables that release what they hold when they go out of scope (GCC and Clang's cleanup attribute).
 *
 * Private. Every release preserves errno, so that the error that made a function return is still set afterwards.
 */
#ifndef AOTICACHE_BASE_CLEANUP_H
#define AOTICACHE_BASE_CLEANUP_H

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_fd_release(int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        close(*fd);
        errno = saved;
    }
}

static inline void cleanup_free_release(void *pointer)
{
    int saved = errno;
    free(*(void **)pointer);
    errno = saved;
}

static inline void cleanup_dir_release(DIR **dir)
{
    if (*dir != NULL) {
        int saved = errno;
        closedir(*dir);
        errno = saved;
    }
}

static inline void cleanup_file_release(FILE **file)
{
    if (*file != NULL) {
        int saved = errno;
        fclose(*file);
        errno = saved;
    }
}

/* Initialize with -1. */
#define cleanup_fd __attribute__((cleanup(cleanup_fd_release)))
/* Initialize with NULL. */
#define cleanup_free __attribute__((cleanup(cleanup_free_release)))
#define cleanup_dir __attribute__((cleanup(cleanup_dir_release)))
#define cleanup_file __attribute__((cleanup(cleanup_file_release)))

static inline int steal_fd(int *fd)
{
    int stolen = *fd;
    *fd = -1;
    return stolen;
}

static inline void *steal_ptr_void(void *pointer)
{
    void *stolen = *(void **)pointer;
    *(void **)pointer = NULL;
    return stolen;
}

/* Takes the pointer out of a cleanup variable; the caller then owns it. */
#define steal_ptr(pointer) ((__typeof__(*(pointer)))steal_ptr_void(pointer))

#endif
