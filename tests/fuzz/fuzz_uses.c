/*
 * tests/fuzz/fuzz_uses: any bytes as the pending statistics file next to an index. A parsed record can be written
 * again, and parses to the same. So that a fuzzer need not find hashes, each input is read twice: unchanged, and as the
 * payload of a record with the right hash.
 */
#include <stdlib.h>
#include <string.h>

#include "index/stats/pending.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static bool is_same(const aoticache_index_record *a, const aoticache_index_record *b)
{
    return a->deltas.now_ns == b->deltas.now_ns && a->deltas.count_count == b->deltas.count_count &&
           a->deltas.histogram_count == b->deltas.histogram_count && a->deltas.tally_count == b->deltas.tally_count &&
           memcmp(a->tallies, b->tallies, a->deltas.tally_count * sizeof *a->tallies) == 0;
}

static void check_again(const aoticache_index_record *record)
{
    aoticache_index_record again;
    size_t at = 0;
    uint8_t *bytes = malloc(AOTICACHE_PENDING_STATS_MAX_BYTES);
    require(bytes != NULL);
    const size_t size = aoticache_index_record_encode(&record->deltas, bytes, AOTICACHE_PENDING_STATS_MAX_BYTES);
    require(size > 0 && aoticache_index_record_next(bytes, size, &at, &again) == AOTICACHE_OK && at == size);
    require(is_same(record, &again));
    aoticache_index_record_clear(&again);
    free(bytes);
}

static void read_all(const uint8_t *bytes, size_t size)
{
    aoticache_index_record record;
    for (size_t at = 0, before = 0; aoticache_index_record_next(bytes, size, &at, &record) == AOTICACHE_OK;
         before = at) {
        require(at > before && at <= size);
        check_again(&record);
        aoticache_index_record_clear(&record);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size > AOTICACHE_PENDING_STATS_MAX_BYTES - AOTICACHE_INDEX_RECORD_FRAME_BYTES) /* no more is ever read */
        return 0;
    const uint32_t mark = AOTICACHE_INDEX_RECORD_MARK, payload = (uint32_t)size;
    const uint64_t hash = aoticache_hash_bytes(bytes, size);
    uint8_t *framed = malloc(AOTICACHE_INDEX_RECORD_FRAME_BYTES + size);
    require(framed != NULL);
    memcpy(framed, &mark, sizeof mark);
    memcpy(framed + 4, &payload, sizeof payload);
    memcpy(framed + 8, &hash, sizeof hash);
    if (size > 0)
        memcpy(framed + AOTICACHE_INDEX_RECORD_FRAME_BYTES, bytes, size);
    read_all(bytes, size);
    read_all(framed, AOTICACHE_INDEX_RECORD_FRAME_BYTES + size);
    free(framed);
    return 0;
}
