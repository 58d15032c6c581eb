/*
 * shim/pool: see pool.h. What happens when a list is empty or full, when a thread uses the shim for the first time, and
 * when it ends.
 */
#include "runtime/shim/pool.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/load_gate.h"

#define POOL_BYTES(name, bytes, kept) bytes,
static const size_t block_bytes[SHIM_POOL_LISTS] = {SHIM_POOL_LIST(POOL_BYTES)};
#undef POOL_BYTES

static void *allocate_block(enum shim_pool_list list)
{
    if (list >= SHIM_POOL_STORAGE)
        return aligned_alloc(64, block_bytes[list]);
    return malloc(block_bytes[list]);
}

#ifdef SHIM_POOL_OFF

void *aoticache_shim_pool_allocate(enum shim_pool_list list)
{
    return allocate_block(list);
}

void aoticache_shim_pool_release(enum shim_pool_list list, void *block)
{
    (void)list;
    free(block);
}

#else

#define POOL_KEPT(name, bytes, kept) kept,
const uint32_t aoticache_shim_pool_kept[SHIM_POOL_LISTS] = {SHIM_POOL_LIST(POOL_KEPT)};
#undef POOL_KEPT

__thread struct shim_pool *aoticache_shim_pool;

/* Set once the thread's pool is gone: other destructors of the thread may still drop tensors. */
static __thread bool thread_is_ending;

static pthread_key_t pool_key;
static bool have_pool_key;
static pthread_once_t pool_key_once = PTHREAD_ONCE_INIT;

static void free_pool(void *argument)
{
    struct shim_pool *pool = argument;
    thread_is_ending = true;
    aoticache_shim_pool = NULL;
    for (int list = 0; list < SHIM_POOL_LISTS; list++) {
        for (void *block = pool->lists[list].head; block != NULL;) {
            void *next = *(void **)block;
            free(block);
            block = next;
        }
    }
    free(pool);
}

/* Threads that end call free_pool(): this library must not be unloaded before them, whoever closes it. */
static bool pin_this_library(void)
{
    Dl_info info;
    aoticache_load_gate_enter();
    bool pinned = dladdr(&aoticache_shim_pool_kept, &info) != 0 && info.dli_fname != NULL &&
                  dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) != NULL;
    aoticache_load_gate_leave();
    return pinned;
}

static void create_pool_key(void)
{
    have_pool_key = pin_this_library() && pthread_key_create(&pool_key, free_pool) == 0;
}

/* A thread without a pool (out of memory, out of keys, ending) works, slower. */
static struct shim_pool *create_pool(void)
{
    if (thread_is_ending)
        return NULL;
    pthread_once(&pool_key_once, create_pool_key);
    if (!have_pool_key)
        return NULL;
    struct shim_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL || pthread_setspecific(pool_key, pool) != 0) {
        free(pool);
        return NULL;
    }
    aoticache_shim_pool = pool;
    return pool;
}

void *aoticache_shim_pool_allocate(enum shim_pool_list list)
{
    return allocate_block(list);
}

void aoticache_shim_pool_release(enum shim_pool_list list, void *block)
{
    struct shim_pool *pool = aoticache_shim_pool;
    if (pool != NULL || (pool = create_pool()) == NULL) {
        free(block); /* the list is full, or there is none */
        return;
    }
    shim_pool_give(list, block);
}

#endif
