/*
 * loader/own_mappings: see own_mappings.h. Libraries map once per container, so a list under a lock is enough. The lock
 * covers the system calls too: an address that another thread gets again the moment it is free must not be in the list.
 */
#include "loader/own_mappings.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/queue.h>

typedef struct mapping {
    LIST_ENTRY(mapping) next;
    void *address;
    size_t bytes;
    uintptr_t caller;
} mapping;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, mapping) mappings = LIST_HEAD_INITIALIZER(mappings);

/* Without memory for the note it is not noted, and stays mapped as it would in a library that is not a copy. */
__attribute__((noinline)) void *aoticache_own_mappings_map(void *address, size_t bytes, int protection, int flags,
                                                           int fd, off_t offset)
{
    mapping *noted = fd >= 0 && (flags & (MAP_ANONYMOUS | MAP_FIXED)) == 0 ? malloc(sizeof *noted) : NULL;
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);
    pthread_mutex_lock(&lock);
    void *mapped = mmap(address, bytes, protection, flags, fd, offset);
    if (mapped != MAP_FAILED && noted != NULL) {
        *noted = (mapping){.address = mapped, .bytes = bytes, .caller = caller};
        LIST_INSERT_HEAD(&mappings, noted, next);
        noted = NULL;
    }
    pthread_mutex_unlock(&lock);
    int saved = errno;
    free(noted);
    errno = saved;
    return mapped;
}

/* A part that goes alone takes the note with it: the rest is not known well enough to be unmapped for anybody. */
int aoticache_own_mappings_unmap(void *address, size_t bytes)
{
    mapping *noted, *found = NULL;
    pthread_mutex_lock(&lock);
    int result = munmap(address, bytes);
    if (result == 0)
        LIST_FOREACH (noted, &mappings, next)
            if ((uintptr_t)address < (uintptr_t)noted->address + noted->bytes &&
                (uintptr_t)noted->address < (uintptr_t)address + bytes)
                found = noted;
    if (found != NULL)
        LIST_REMOVE(found, next);
    pthread_mutex_unlock(&lock);
    int saved = errno;
    free(found);
    errno = saved;
    return result;
}

void aoticache_own_mappings_release(uintptr_t first, uintptr_t end)
{
    int saved = errno;
    mapping *noted, *following;
    pthread_mutex_lock(&lock);
    for (noted = LIST_FIRST(&mappings); noted != NULL; noted = following) {
        following = LIST_NEXT(noted, next);
        if (noted->caller < first || noted->caller >= end)
            continue;
        LIST_REMOVE(noted, next);
        munmap(noted->address, noted->bytes);
        free(noted);
    }
    pthread_mutex_unlock(&lock);
    errno = saved;
}
