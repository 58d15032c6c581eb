/*
 * shim/tensors/free_lists: what happens when a list is empty or full, when a thread uses the shim for the first time,
 * and when it ends.
 */
#include "runtime/shim/tensors/free_lists.h"

#include "base/process/load_gate.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#define BLOCK_BYTES(name, bytes, kept) bytes,
static const size_t block_bytes[SHIM_FREE_LISTS] = {SHIM_FREE_LIST(BLOCK_BYTES)};
#undef BLOCK_BYTES

static void *allocate_block(enum shim_free_list list)
{
    if (list >= SHIM_FREE_STORAGE)
        return aligned_alloc(64, block_bytes[list]);
    return malloc(block_bytes[list]);
}

static void *allocate_workspace(size_t bytes, size_t *ret_bytes)
{
    *ret_bytes = (bytes + 64) & ~(size_t)63;
    return *ret_bytes > bytes ? aligned_alloc(64, *ret_bytes) : NULL;
}

#ifdef SHIM_FREE_LISTS_OFF

void *aoticache_shim_workspace_take(size_t bytes, size_t *ret_bytes)
{
    return allocate_workspace(bytes, ret_bytes);
}

void aoticache_shim_workspace_give(void *block, size_t bytes)
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
    free(lists->workspace);
    free(lists);
}

/* Threads that end call free_lists(): this library must not be unloaded before them, whoever closes it. */
static bool pin_this_library(void)
{
    Dl_info info;
    aoticache_load_gate_enter();
    bool pinned = dladdr(&aoticache_shim_free_kept, &info) != 0 && info.dli_fname != NULL &&
                  dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) != NULL;
    aoticache_load_gate_leave();
    return pinned;
}

static void create_key(void)
{
    have_key = pin_this_library() && pthread_key_create(&lists_key, free_lists) == 0;
}

/* A thread without lists (out of memory, out of keys, ending) works, slower. */
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
        free(block); /* the list is full, or there is none */
        return;
    }
    shim_block_give(list, block);
}

enum { WORKSPACE_KEPT_BYTES = 16 << 20 };

void *aoticache_shim_workspace_take(size_t bytes, size_t *ret_bytes)
{
    struct shim_free_lists *lists = aoticache_shim_free_lists;
    if (lists == NULL || lists->workspace == NULL || lists->workspace_bytes < bytes)
        return allocate_workspace(bytes, ret_bytes);
    void *block = lists->workspace;
    *ret_bytes = lists->workspace_bytes;
    lists->workspace = NULL;
    return block;
}

void aoticache_shim_workspace_give(void *block, size_t bytes)
{
    struct shim_free_lists *lists = aoticache_shim_free_lists;
    if (block == NULL || bytes > WORKSPACE_KEPT_BYTES || (lists == NULL && (lists = create_lists()) == NULL) ||
        (lists->workspace != NULL && lists->workspace_bytes >= bytes)) {
        free(block);
        return;
    }
    free(lists->workspace);
    lists->workspace = block;
    lists->workspace_bytes = bytes;
}

#endif
