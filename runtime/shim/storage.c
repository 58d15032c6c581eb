/*
 * shim/storage: memory with a count of who uses it. The data of an owned storage follows its header in one block.
 */
#include "runtime/shim/tensor.h"

static enum shim_pool_list list_for(size_t bytes)
{
    if (bytes <= 64)
        return bytes == 0 ? SHIM_POOL_STORAGE : SHIM_POOL_STORAGE_64;
    if (bytes <= 1024)
        return bytes <= 256 ? SHIM_POOL_STORAGE_256 : SHIM_POOL_STORAGE_1K;
    return bytes <= 4096 ? SHIM_POOL_STORAGE_4K : SHIM_POOL_NONE;
}

static void *allocate_large(size_t bytes)
{
    size_t total;
    if (__builtin_add_overflow(bytes, SHIM_STORAGE_HEADER_BYTES + 63, &total))
        return NULL;
    return aligned_alloc(64, total & ~(size_t)63);
}

struct shim_storage *aoticache_shim_storage_create(size_t bytes)
{
    enum shim_pool_list list = list_for(bytes);
    struct shim_storage *storage = list == SHIM_POOL_NONE ? allocate_large(bytes) : shim_pool_take(list);
    if (storage == NULL)
        return NULL;
    atomic_init(&storage->refs, 1);
    storage->list = list;
    storage->data = bytes > 0 ? (char *)storage + SHIM_STORAGE_HEADER_BYTES : NULL;
    storage->bytes = bytes;
    storage->deleter = NULL;
    storage->context = NULL;
    return storage;
}

struct shim_storage *aoticache_shim_storage_wrap(void *data, size_t bytes, shim_deleter deleter, void *context)
{
    struct shim_storage *storage = shim_pool_take(SHIM_POOL_STORAGE);
    if (storage == NULL)
        return NULL;
    atomic_init(&storage->refs, 1);
    storage->list = SHIM_POOL_STORAGE;
    storage->data = data;
    storage->bytes = bytes;
    storage->deleter = deleter;
    storage->context = context;
    return storage;
}

void aoticache_shim_storage_free(struct shim_storage *storage)
{
    if (storage->deleter != NULL)
        storage->deleter(storage->data, storage->context);
    if (storage->list == SHIM_POOL_NONE)
        free(storage);
    else
        shim_pool_give((enum shim_pool_list)storage->list, storage);
}
