/*
 * loader/copy/own_functions: what a copy gets instead of __cxa_thread_atexit, mmap and munmap, so that it can be
 * unloaded completely, and instead of malloc, so that its weights are on huge pages.
 */
#include "loader/copy/copy_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/queue.h>

/*
 * ---- destructors that are due when a thread ends ----
 *
 * Each thread that registers anything has an anchor, which glibc calls when the thread ends; the anchor also makes
 * glibc keep this code mapped until then. One lock guards all anchors and is held while destructors run, so that a
 * thread that ends and a library that is unloaded do not run the same one: it is recursive, since a destructor may
 * register another. A destructor must not wait for another thread.
 */

typedef struct exit_entry {
    SLIST_ENTRY(exit_entry) next; /* latest first */
    void (*destructor)(void *object);
    void *object;
    uintptr_t library_address;
} exit_entry;

typedef struct thread_anchor {
    SLIST_HEAD(, exit_entry) entries;
    LIST_ENTRY(thread_anchor) in_all;
} thread_anchor;

extern int __cxa_thread_atexit_impl(void (*function)(void *), void *argument, void *dso) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

static pthread_mutex_t exit_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static LIST_HEAD(, thread_anchor) anchors = LIST_HEAD_INITIALIZER(anchors);
static _Thread_local thread_anchor *own_anchor;

static void run_entry(exit_entry *entry)
{
    entry->destructor(entry->object);
    free(entry);
}

static void end_of_thread(void *argument)
{
    thread_anchor *anchor = argument;
    exit_entry *entry;
    pthread_mutex_lock(&exit_lock);
    while ((entry = SLIST_FIRST(&anchor->entries)) != NULL) {
        SLIST_REMOVE_HEAD(&anchor->entries, next);
        run_entry(entry);
    }
    LIST_REMOVE(anchor, in_all);
    own_anchor = NULL;
    pthread_mutex_unlock(&exit_lock);
    free(anchor);
}

/*
 * Returns this thread's anchor. The caller holds the lock. NULL: no memory, or a C library without a callback for the
 * end of a thread.
 */
static thread_anchor *anchor_of_this_thread(void)
{
    if (own_anchor != NULL || __cxa_thread_atexit_impl == NULL)
        return own_anchor;
    thread_anchor *anchor = calloc(1, sizeof *anchor);
    if (anchor == NULL)
        return NULL;
    if (__cxa_thread_atexit_impl(end_of_thread, anchor, &__dso_handle) != 0) {
        free(anchor);
        return NULL;
    }
    LIST_INSERT_HEAD(&anchors, anchor, in_all);
    return own_anchor = anchor;
}

int aoticache_thread_exit_add(void (*destructor)(void *object), void *object, void *library_address)
{
    exit_entry *entry = malloc(sizeof *entry);
    if (entry == NULL)
        return -1;
    *entry = (exit_entry){.destructor = destructor, .object = object, .library_address = (uintptr_t)library_address};
    pthread_mutex_lock(&exit_lock);
    thread_anchor *anchor = anchor_of_this_thread();
    if (anchor != NULL)
        SLIST_INSERT_HEAD(&anchor->entries, entry, next);
    pthread_mutex_unlock(&exit_lock);
    if (anchor == NULL)
        free(entry);
    return anchor != NULL ? 0 : -1;
}

/*
 * Finds the anchor's first entry for code between these addresses. A destructor may change the list, so each search
 * starts again.
 */
static exit_entry *find_entry(const thread_anchor *anchor, uintptr_t first, uintptr_t end)
{
    exit_entry *entry;
    SLIST_FOREACH(entry, &anchor->entries, next)
    if (entry->library_address >= first && entry->library_address < end)
        return entry;
    return NULL;
}

void aoticache_thread_exit_run(uintptr_t first, uintptr_t end)
{
    thread_anchor *anchor;
    exit_entry *entry;
    int saved = errno;
    pthread_mutex_lock(&exit_lock);
    LIST_FOREACH(anchor, &anchors, in_all)
    while ((entry = find_entry(anchor, first, end)) != NULL) {
        SLIST_REMOVE(&anchor->entries, entry, exit_entry, next);
        run_entry(entry);
    }
    pthread_mutex_unlock(&exit_lock);
    errno = saved;
}

/*
 * ---- mappings of files ----
 *
 * Libraries map once per container, so a list under a lock is enough. The lock covers the system calls too: as soon as
 * an address is free another thread may get it, and it must not be in the list then.
 */

typedef struct mapping {
    LIST_ENTRY(mapping) next;
    void *address;
    size_t bytes;
    uintptr_t caller;
} mapping;

static pthread_mutex_t mapping_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, mapping) mappings = LIST_HEAD_INITIALIZER(mappings);

/*
 * Maps and records. Without memory for the record, the mapping stays after unloading, as in a library that is not a
 * copy.
 */
__attribute__((noinline)) void *aoticache_own_mappings_map(void *address, size_t bytes, int protection, int flags,
                                                           int fd, off_t offset)
{
    mapping *noted = fd >= 0 && (flags & (MAP_ANONYMOUS | MAP_FIXED)) == 0 ? malloc(sizeof *noted) : NULL;
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);
    pthread_mutex_lock(&mapping_lock);
    void *mapped = mmap(address, bytes, protection, flags, fd, offset);
    if (mapped != MAP_FAILED && noted != NULL) {
        *noted = (mapping){.address = mapped, .bytes = bytes, .caller = caller};
        LIST_INSERT_HEAD(&mappings, noted, next);
        noted = NULL;
    }
    pthread_mutex_unlock(&mapping_lock);
    int saved = errno;
    free(noted);
    errno = saved;
    return mapped;
}

/* Unmapping a part of a mapping drops its record: the rest is not known well enough to be unmapped later. */
int aoticache_own_mappings_unmap(void *address, size_t bytes)
{
    mapping *noted, *found = NULL;
    pthread_mutex_lock(&mapping_lock);
    int result = munmap(address, bytes);
    if (result == 0)
        LIST_FOREACH(noted, &mappings, next)
    if ((uintptr_t)address < (uintptr_t)noted->address + noted->bytes &&
        (uintptr_t)noted->address < (uintptr_t)address + bytes)
        found = noted;
    if (found != NULL)
        LIST_REMOVE(found, next);
    pthread_mutex_unlock(&mapping_lock);
    int saved = errno;
    free(found);
    errno = saved;
    return result;
}

void aoticache_own_mappings_release(uintptr_t first, uintptr_t end)
{
    int saved = errno;
    mapping *noted, *following;
    pthread_mutex_lock(&mapping_lock);
    for (noted = LIST_FIRST(&mappings); noted != NULL; noted = following) {
        following = LIST_NEXT(noted, next);
        if (noted->caller < first || noted->caller >= end)
            continue;
        LIST_REMOVE(noted, next);
        munmap(noted->address, noted->bytes);
        free(noted);
    }
    pthread_mutex_unlock(&mapping_lock);
    errno = saved;
}

/* ---- large blocks ---- */

void *aoticache_large_malloc(size_t bytes)
{
    enum { HUGE_PAGE = 2 << 20, LEAST_PAGES = 2 };
    void *block = malloc(bytes);
    if (block == NULL || bytes < (size_t)HUGE_PAGE * LEAST_PAGES)
        return block;
    const uintptr_t first = ((uintptr_t)block + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
    const uintptr_t end = ((uintptr_t)block + bytes) & ~(uintptr_t)(HUGE_PAGE - 1);
    const int saved = errno;
    if (first < end) /* a hint: if the kernel ignores it, everything is only slower */
        madvise((void *)first, end - first, MADV_HUGEPAGE);
    errno = saved;
    return block;
}
