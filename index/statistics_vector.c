/*
 * index/statistics_vector: the counts of a histogram in few bytes.
 */
#include "index/statistics.h"

static size_t put_number(uint8_t *bytes, uint64_t value)
{
    size_t size = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[size++] = (uint8_t)(value | 0x80);
    bytes[size++] = (uint8_t)value;
    return size;
}

/* 0 where there is no number. */
static size_t get_number(const uint8_t *bytes, size_t size, uint64_t *ret_value)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size && i < 10; i++) {
        if (i == 9 && bytes[i] > 1)
            return 0;
        value |= (uint64_t)(bytes[i] & 0x7f) << (7 * i);
        if (bytes[i] < 0x80) {
            *ret_value = value;
            return i + 1;
        }
    }
    return 0;
}

size_t aoticache_index_vector_encode(const uint64_t counts[AOTICACHE_INDEX_BUCKETS],
                                     uint8_t ret_bytes[AOTICACHE_INDEX_VECTOR_BYTES])
{
    size_t size = 0, next = 0;
    for (size_t i = 0; i < AOTICACHE_INDEX_BUCKETS; i++) {
        if (counts[i] == 0)
            continue;
        size += put_number(ret_bytes + size, i - next);
        size += put_number(ret_bytes + size, counts[i]);
        next = i + 1;
    }
    return size;
}

bool aoticache_index_vector_add(const uint8_t *bytes, size_t size, uint64_t counts[AOTICACHE_INDEX_BUCKETS])
{
    uint64_t next = 0;
    for (size_t at = 0; at < size;) {
        uint64_t skipped, count;
        size_t used = get_number(bytes + at, size - at, &skipped);
        if (used == 0 || skipped >= AOTICACHE_INDEX_BUCKETS || next + skipped >= AOTICACHE_INDEX_BUCKETS)
            return false;
        at += used;
        used = get_number(bytes + at, size - at, &count);
        if (used == 0)
            return false;
        at += used;
        next += skipped;
        counts[next] = counts[next] > UINT64_MAX - count ? UINT64_MAX : counts[next] + count;
        next++;
    }
    return true;
}
