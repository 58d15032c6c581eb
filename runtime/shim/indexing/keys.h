/*
 * shim/indexing/keys: elements of any real dtype as integers (keys) that compare as the elements do. NaN is the
 * largest, minus zero equals zero. Also sorts lists of keys, and finds the key at a rank.
 *
 * Private to runtime/shim/indexing/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_INDEXING_KEYS_H
#define AOTICACHE_RUNTIME_SHIM_INDEXING_KEYS_H

#include "runtime/shim/tensors/convert.h"

/* Keys are made in blocks of this many: arrays of keys have space for whole blocks. */
enum { SHIM_KEY_BLOCK = 64 };

struct shim_keys {
    const struct shim_dtype_access *access;
    ptrdiff_t ready_stride; /* the stride at which elements need no gathering; 0: this dtype always needs it */
    uint64_t flip;          /* all bits set: the largest element has the smallest key; otherwise 0 */
    uint64_t nan;           /* the key of NaN; for integers the key of the largest one, without a meaning */
    bool has_nan;
};

/* Describes the keys of a dtype. False: the dtype has no order. */
bool aoticache_shim_keys_of(int32_t dtype, bool descending, struct shim_keys *ret_keys);
/*
 * Makes keys. source: aligned; stride: in bytes. ret_keys: whole blocks; what follows the first `count` has no meaning.
 */
void aoticache_shim_keys_read(const struct shim_keys *keys, int64_t count, const char *source, ptrdiff_t stride,
                              uint64_t *ret_keys);

/*
 * Returns the key that sorting would put at `rank`, which is below `count`.
 *
 * spare:      as large as `keys`.
 * ret_equals: the number of equal keys that sorting would put before it.
 */
uint64_t aoticache_shim_keys_select(const uint64_t *keys, uint64_t *spare, int64_t count, int64_t rank,
                                    int64_t *ret_equals);

struct shim_key_item {
    uint64_t key;
    int64_t place;
};

/* Sorts by key; items with equal keys keep their order. spare: as large as `items`. */
void aoticache_shim_items_sort(struct shim_key_item *items, struct shim_key_item *spare, int64_t count);

#endif
