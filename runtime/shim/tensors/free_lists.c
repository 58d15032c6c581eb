/*
 * shim/tensors/free_lists: handles an empty or full list, the first use of the shim by a thread, and the end of a
 * thread.
 */
#include "runtime/shim/tensors/free_lists.h"

#include "base/process/fork_guard.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define BLOCK_BYTES(name, bytes, kept) bytes,
static const size_t block_bytes[SHIM_FREE_LISTS] = {SHIM_FREE_LIST(BLOCK_BYTES)};
#undef BLOCK_BYTES

static void *allocate_block(enum shim_free_list list)
{
    if (list >= SHIM_FREE_STORAGE)
        return aligned_alloc(64, block_bytes[list]);
    return malloc(block_bytes[list]);
}

/*
 * Allocates a block, rounded up by an eighth at most, so that a tensor which grows a little at each run fits into its
 * former block.
 */
static void *allocate_large(size_t bytes, size_t *ret_bytes)
{
    size_t unit = 64;
    while (unit < bytes / 16)
        unit *= 2;
    if (__builtin_add_overflow(bytes, unit, ret_bytes))
        return NULL;
    *ret_bytes &= ~(unit - 1);
    return aligned_alloc(64, *ret_bytes);
}

#ifdef SHIM_FREE_LISTS_OFF

void *aoticache_shim_large_take(size_t bytes, size_t *ret_bytes)
{
    return allocate_large(bytes, ret_bytes);
}

void aoticache_shim_large_give(void *block, size_t bytes)
{
    (void)bytes;
    free(block);
}

void *aoticache_shim_block_allocate(enum shim_free_list list)
{
    return allocate_block(list);
}

void aoticache_shim_block_release(enum shim_free_list list, void *block)
{
    (void)list;
    free(block);
}

#else

#define BLOCKS_KEPT(name, bytes, kept) kept,
const uint32_t aoticache_shim_free_kept[SHIM_FREE_LISTS] = {SHIM_FREE_LIST(BLOCKS_KEPT)};
#undef BLOCKS_KEPT

__thread struct shim_free_lists *aoticache_shim_free_lists;

/* Set once the thread's lists are gone: other destructors of the thread may still drop tensors. */
static __thread bool thread_is_ending;

static pthread_key_t lists_key;
static bool have_key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void free_lists(void *argument)
{
    struct shim_free_lists *lists = argument;
    thread_is_ending = true;
    aoticache_shim_free_lists = NULL;
    for (int list = 0; list < SHIM_FREE_LISTS; list++) {
        for (void *block = lists->lists[list].head; block != NULL;) {
            void *next = *(void **)block;
            free(block);
            block = next;
        }
    }
    for (uint32_t i = 0; i < lists->larges; i++)
        free(lists->large[i].block);
    free(lists);
}

/* Pins this library. Threads that end call free_lists(), so it must not be unloaded before them. */
static bool pin_this_library(void)
{
    Dl_info info;
    aoticache_fork_guard_enter();
    bool pinned = dladdr(&aoticache_shim_free_kept, &info) != 0 && info.dli_fname != NULL &&
                  dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) != NULL;
    aoticache_fork_guard_leave();
    return pinned;
}

static void create_key(void)
{
    have_key = pin_this_library() && pthread_key_create(&lists_key, free_lists) == 0;
}

/* Creates the lists. A thread without lists (out of memory, out of keys, ending) works, but is slower. */
static struct shim_free_lists *create_lists(void)
{
    if (thread_is_ending)
        return NULL;
    pthread_once(&key_once, create_key);
    if (!have_key)
        return NULL;
    struct shim_free_lists *lists = calloc(1, sizeof *lists);
    if (lists == NULL || pthread_setspecific(lists_key, lists) != 0) {
        free(lists);
        return NULL;
    }
    aoticache_shim_free_lists = lists;
    return lists;
}

void *aoticache_shim_block_allocate(enum shim_free_list list)
{
    return allocate_block(list);
}

void aoticache_shim_block_release(enum shim_free_list list, void *block)
{
    struct shim_free_lists *lists = aoticache_shim_free_lists;
    if (lists != NULL || (lists = create_lists()) == NULL) {
        free(block); /* the list is full or does not exist */
        return;
    }
    shim_block_give(list, block);
}

/* ---- large blocks, the oldest first ---- */

static void *remove_large(struct shim_free_lists *lists, uint32_t place)
{
    void *block = lists->large[place].block;
    lists->large_bytes -= lists->large[place].bytes;
    lists->larges--;
    memmove(&lists->large[place], &lists->large[place + 1], (lists->larges - place) * sizeof lists->large[0]);
    return block;
}

void *aoticache_shim_large_take(size_t bytes, size_t *ret_bytes)
{
    struct shim_free_lists *lists = aoticache_shim_free_lists;
    uint32_t best = SHIM_LARGE_KEPT;
    size_t best_bytes = 2 * bytes; /* larger blocks are for larger tensors; on overflow none is found */
    for (uint32_t i = lists != NULL ? lists->larges : 0; i-- > 0;) {
        if (lists->large[i].bytes >= bytes && lists->large[i].bytes < best_bytes) {
            best = i;
            best_bytes = lists->large[i].bytes;
        }
    }
    if (best == SHIM_LARGE_KEPT)
        return allocate_large(bytes, ret_bytes);
    *ret_bytes = best_bytes;
    return remove_large(lists, best);
}

void aoticache_shim_large_give(void *block, size_t bytes)
{
    struct shim_free_lists *lists = aoticache_shim_free_lists;
    if (block == NULL || bytes > SHIM_LARGE_KEPT_BYTES || (lists == NULL && (lists = create_lists()) == NULL)) {
        free(block);
        return;
    }
    while (lists->larges == SHIM_LARGE_KEPT || lists->large_bytes > SHIM_LARGE_KEPT_BYTES - bytes)
        free(remove_large(lists, 0));
    lists->large[lists->larges++] = (struct shim_large_block){block, bytes};
    lists->large_bytes += bytes;
}

#endif
