/*
 * shim/tensors/free_lists: free lists of the calling thread for blocks that every run of a kernel makes and drops:
 * handles, tensors, storages, workspaces.
 *
 * A block that another thread made may be added to this thread's list: all blocks of a list have the same size and come
 * from the C library. Lists are bounded, and freed when their thread ends. Under AddressSanitizer nothing is kept, so
 * that it sees every allocation and release.
 *
 * The thread's lists are freed by a destructor in this library, which therefore stays loaded once it has made them.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_FREE_LISTS_H
#define AOTICACHE_RUNTIME_SHIM_FREE_LISTS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define SHIM_FREE_LISTS_OFF 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SHIM_FREE_LISTS_OFF 1
#endif
#endif

/* Name, bytes of a block, number of blocks that a thread keeps. Storages: 64 bytes of header, then the data. */
#define SHIM_FREE_LIST(X)   \
    X(HANDLE, 16, 64)       \
    X(TENSOR, 256, 32)      \
    X(STORAGE, 64, 32)      \
    X(STORAGE_64, 128, 16)  \
    X(STORAGE_256, 320, 16) \
    X(STORAGE_1K, 1088, 16) \
    X(STORAGE_4K, 4160, 8)

enum shim_free_list {
#define SHIM_FREE_ENUM(name, bytes, kept) SHIM_FREE_##name,
    SHIM_FREE_LIST(SHIM_FREE_ENUM)
#undef SHIM_FREE_ENUM
        SHIM_FREE_LISTS,
    SHIM_FREE_NONE = SHIM_FREE_LISTS /* a block of its own size */
};

/* Limits of the large blocks that a thread keeps: their number, and their bytes together. */
enum { SHIM_LARGE_KEPT = 32, SHIM_LARGE_KEPT_BYTES = 64 << 20 };

struct shim_large_block {
    void *block;
    size_t bytes;
};

struct shim_free_lists {
    struct {
        void *head; /* each free block begins with a pointer to the next */
        uint32_t count;
    } lists[SHIM_FREE_LISTS];
    uint32_t larges;
    size_t large_bytes;
    struct shim_large_block large[SHIM_LARGE_KEPT]; /* in the order in which they were given back */
};

/*
 * Returns a block of any size, aligned to 64 bytes; NULL: out of memory. Keeping blocks avoids that the C library gives
 * the end of its heap back to the kernel when a run has dropped its tensors, and that the next run pays a page fault
 * for each 4 KiB of them, a tenth of a small model's time. *ret_bytes is the size of the block, at least `bytes`; pass
 * it when giving the block back.
 */
void *aoticache_shim_large_take(size_t bytes, size_t *ret_bytes);
void aoticache_shim_large_give(void *block, size_t bytes);

/* The slow paths: an empty list, a full one, no lists yet. */
void *aoticache_shim_block_allocate(enum shim_free_list list);
void aoticache_shim_block_release(enum shim_free_list list, void *block);

#ifdef SHIM_FREE_LISTS_OFF

static inline void *shim_block_take(enum shim_free_list list)
{
    return aoticache_shim_block_allocate(list);
}

static inline void shim_block_give(enum shim_free_list list, void *block)
{
    aoticache_shim_block_release(list, block);
}

#else

/* Initial-exec: takes eight bytes of the static TLS block, and an access costs one instruction instead of a call. */
extern __thread struct shim_free_lists *aoticache_shim_free_lists
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

extern const uint32_t aoticache_shim_free_kept[SHIM_FREE_LISTS] __attribute__((visibility("hidden")));

/*
 * Returns a block of the list's size, 64-byte aligned for a storage, otherwise aligned as by malloc; NULL: out of
 * memory.
 */
static inline void *shim_block_take(enum shim_free_list list)
{
    struct shim_free_lists *mine = aoticache_shim_free_lists;
    if (__builtin_expect(mine == NULL || mine->lists[list].head == NULL, 0))
        return aoticache_shim_block_allocate(list);
    void *block = mine->lists[list].head;
    mine->lists[list].head = *(void **)block;
    mine->lists[list].count--;
    return block;
}

static inline void shim_block_give(enum shim_free_list list, void *block)
{
    struct shim_free_lists *mine = aoticache_shim_free_lists;
    if (__builtin_expect(mine == NULL || mine->lists[list].count >= aoticache_shim_free_kept[list], 0)) {
        aoticache_shim_block_release(list, block);
        return;
    }
    *(void **)block = mine->lists[list].head;
    mine->lists[list].head = block;
    mine->lists[list].count++;
}

#endif
#endif
