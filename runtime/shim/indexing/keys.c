/*
 * shim/indexing/keys: makes keys, sorts them by their bytes, and finds the key at a rank by its bits from the highest
 * on.
 */
#include "runtime/shim/indexing/keys.h"

#include <string.h>

/* ---- making keys ---- */

/* The elements of a block. */
union block {
    int64_t ints[SHIM_KEY_BLOCK];
    uint64_t uints[SHIM_KEY_BLOCK];
    float floats[SHIM_KEY_BLOCK];
    double doubles[SHIM_KEY_BLOCK];
};

/* Positive numbers compare as their bits do, negative ones in reverse. Loops of fixed length become vectors. */
#define DEFINE_KEYS_OF(name, type, bits_type, signed_type, bits_max)                          \
    static void name(const type *restrict values, uint64_t flip, uint64_t *restrict ret_keys) \
    {                                                                                         \
        const bits_type sign = bits_max - (bits_max >> 1);                                    \
        for (int i = 0; i < SHIM_KEY_BLOCK; i++) {                                            \
            const type value = values[i] + 0; /* minus zero becomes zero */                   \
            bits_type bits;                                                                   \
            memcpy(&bits, &value, sizeof bits);                                               \
            bits ^= (bits_type)((signed_type)bits >> (8 * sizeof bits - 1)) | sign;           \
            ret_keys[i] = (value != value ? bits_max : bits) ^ flip;                          \
        }                                                                                     \
    }
DEFINE_KEYS_OF(keys_of_floats, float, uint32_t, int32_t, UINT32_MAX)
DEFINE_KEYS_OF(keys_of_doubles, double, uint64_t, int64_t, UINT64_MAX)

static void keys_of_ints(const uint64_t *restrict values, uint64_t flip, uint64_t *restrict ret_keys)
{
    for (int i = 0; i < SHIM_KEY_BLOCK; i++)
        ret_keys[i] = values[i] ^ flip;
}

bool aoticache_shim_keys_of(int32_t dtype, bool descending, struct shim_keys *ret_keys)
{
    struct shim_keys keys = {.access = aoticache_shim_dtype_access(dtype), .flip = descending ? UINT64_MAX : 0};
    if (keys.access == NULL)
        return false;
    switch (keys.access->load_class) {
    case SHIM_CLASS_FLOAT:
        keys.nan = UINT32_MAX ^ keys.flip;
        break;
    case SHIM_CLASS_INT:
    case SHIM_CLASS_UINT:
    case SHIM_CLASS_DOUBLE:
        keys.nan = UINT64_MAX ^ keys.flip;
        break;
    default:
        return false;
    }
    if (dtype == AOTICACHE_DTYPE_FLOAT32 || dtype == AOTICACHE_DTYPE_FLOAT64 || dtype == AOTICACHE_DTYPE_INT64 ||
        dtype == AOTICACHE_DTYPE_UINT64)
        keys.ready_stride = shim_item_bytes(dtype);
    keys.has_nan = keys.access->load_class == SHIM_CLASS_FLOAT || keys.access->load_class == SHIM_CLASS_DOUBLE;
    *ret_keys = keys;
    return true;
}

static void keys_of_block(const struct shim_keys *keys, const void *values, uint64_t *ret_keys)
{
    const uint8_t class = keys->access->load_class;
    if (class == SHIM_CLASS_FLOAT)
        keys_of_floats(values, keys->flip, ret_keys);
    else if (class == SHIM_CLASS_DOUBLE)
        keys_of_doubles(values, keys->flip, ret_keys);
    else
        keys_of_ints(values, keys->flip ^ (class == SHIM_CLASS_INT ? UINT64_C(1) << 63 : 0), ret_keys);
}

void aoticache_shim_keys_read(const struct shim_keys *keys, int64_t count, const char *source, ptrdiff_t stride,
                              uint64_t *ret_keys)
{
    union block block;
    int64_t i = 0;
    if (stride == keys->ready_stride)
        for (; i + SHIM_KEY_BLOCK <= count; i += SHIM_KEY_BLOCK)
            keys_of_block(keys, source + i * stride, ret_keys + i);
    for (; i < count; i += SHIM_KEY_BLOCK) {
        const size_t some = count - i < SHIM_KEY_BLOCK ? (size_t)(count - i) : SHIM_KEY_BLOCK;
        if (some < SHIM_KEY_BLOCK)
            memset(&block, 0, sizeof block);
        keys->access->load(some, &block, source + i * stride, stride);
        keys_of_block(keys, &block, ret_keys + i);
    }
}

/* ---- the key at a rank ---- */

/* Up to FEW keys are sorted directly. More than FEW_ITEMS items are sorted by their bytes. */
enum { FEW = 32, FEW_ITEMS = 64 };
enum { RANK_BITS = 11, RANK_DIGITS = 1 << RANK_BITS };

/* Copies the keys that have this digit; source and target may be the same. Returns their number. */
static int64_t keep_digit(const uint64_t *keys, int64_t count, int shift, uint64_t digit, uint64_t *to)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint64_t key = keys[i];
        to[kept] = key;
        kept += (key >> shift & (RANK_DIGITS - 1)) == digit;
    }
    return kept;
}

/* Finds the digit of the key at *rank. *rank becomes the rank among the keys with this digit. */
static uint64_t find_digit(const uint64_t *keys, int64_t count, int shift, int64_t *rank)
{
    int64_t counts[RANK_DIGITS] = {0};
    uint64_t digit = 0;
    for (int64_t i = 0; i < count; i++)
        counts[keys[i] >> shift & (RANK_DIGITS - 1)]++;
    for (; *rank >= counts[digit]; digit++)
        *rank -= counts[digit];
    return digit;
}

static uint64_t select_of_few(const uint64_t *keys, int64_t count, int64_t rank, int64_t *ret_equals)
{
    uint64_t sorted[FEW];
    for (int64_t i = 0, at; i < count; i++) {
        for (at = i; at > 0 && sorted[at - 1] > keys[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = keys[i];
    }
    *ret_equals = 0;
    while (*ret_equals < rank && sorted[rank - *ret_equals - 1] == sorted[rank])
        ++*ret_equals;
    return sorted[rank];
}

uint64_t aoticache_shim_keys_select(const uint64_t *keys, uint64_t *spare, int64_t count, int64_t rank,
                                    int64_t *ret_equals)
{
    while (count > FEW) {
        uint64_t varied = 0;
        for (int64_t i = 1; i < count; i++)
            varied |= keys[i] ^ keys[0];
        if (varied == 0) {
            *ret_equals = rank;
            return keys[0];
        }
        const int bits = 64 - __builtin_clzll(varied), shift = bits > RANK_BITS ? bits - RANK_BITS : 0;
        const uint64_t digit = find_digit(keys, count, shift, &rank);
        count = keep_digit(keys, count, shift, digit, spare);
        keys = spare;
    }
    return select_of_few(keys, count, rank, ret_equals);
}

/* ---- sorting ---- */

static void sort_few(struct shim_key_item *items, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        const struct shim_key_item item = items[i];
        int64_t at = i;
        for (; at > 0 && items[at - 1].key > item.key; at--)
            items[at] = items[at - 1];
        items[at] = item;
    }
}

/* Sorts by the byte at `shift`. */
static void sort_byte(const struct shim_key_item *from, struct shim_key_item *to, int64_t count, int shift)
{
    int64_t places[256] = {0}, place = 0;
    for (int64_t i = 0; i < count; i++)
        places[from[i].key >> shift & 255]++;
    for (int byte = 0; byte < 256; byte++) {
        const int64_t found = places[byte];
        places[byte] = place;
        place += found;
    }
    for (int64_t i = 0; i < count; i++)
        to[places[from[i].key >> shift & 255]++] = from[i];
}

void aoticache_shim_items_sort(struct shim_key_item *items, struct shim_key_item *spare, int64_t count)
{
    struct shim_key_item *from = items, *to = spare;
    uint64_t varied = 0;
    bool in_order = true;
    if (count <= FEW_ITEMS) {
        sort_few(items, count);
        return;
    }
    for (int64_t i = 1; i < count; i++) {
        varied |= items[i].key ^ items[0].key;
        in_order &= items[i - 1].key <= items[i].key;
    }
    if (in_order)
        return;
    for (int shift = 0; shift < 64; shift += 8) {
        if ((varied >> shift & 255) == 0)
            continue;
        sort_byte(from, to, count, shift);
        struct shim_key_item *const held = from;
        from = to;
        to = held;
    }
    if (from != items)
        memcpy(items, from, (size_t)count * sizeof *items);
}
