/*
 * index/stats/record: converts deltas to bytes and back, for the file of pending.c. It does not access files.
 */
#include "index/stats/pending.h"

#include <stdlib.h>
#include <string.h>

#define MARK AOTICACHE_INDEX_RECORD_MARK
#define FRAME_BYTES AOTICACHE_INDEX_RECORD_FRAME_BYTES
#define MAX_NAME_BYTES 64

/* So that no sum of numbers in one file exceeds a signed number. In nanoseconds: three days. */
#define MAX_NUMBER (UINT64_C(1) << 48)

/* ---- encoding ---- */

typedef struct writer {
    uint8_t *bytes;
    size_t size, capacity;
    bool failed;
} writer;

static void write_bytes(writer *to, const void *bytes, size_t size)
{
    to->failed = to->failed || size > to->capacity - to->size;
    if (to->failed)
        return;
    memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

static void write_any(writer *to, uint64_t value)
{
    uint8_t bytes[AOTICACHE_INDEX_NUMBER_BYTES];
    write_bytes(to, bytes, aoticache_index_number_encode(bytes, value));
}

static void write_number(writer *to, uint64_t value)
{
    to->failed = to->failed || value > MAX_NUMBER;
    write_any(to, value);
}

/* Includes the NUL, so that a reader need not copy it. */
static void write_name(writer *to, const char *name)
{
    const size_t length = strnlen(name, MAX_NAME_BYTES);
    to->failed = to->failed || length == MAX_NAME_BYTES;
    write_any(to, length);
    write_bytes(to, name, length + 1);
}

static void write_tally(writer *to, const aoticache_index_tally *tally)
{
    write_any(to, (uint64_t)tally->entry_id);
    write_any(to, (uint64_t)tally->last_used_ns);
    write_number(to, tally->uses);
    write_number(to, tally->hits);
    write_number(to, tally->misses);
    write_number(to, tally->compiles);
    write_number(to, tally->compile_ns);
    write_number(to, tally->saved_ns);
}

static void write_histogram(writer *to, const aoticache_index_histogram *histogram)
{
    uint8_t bytes[AOTICACHE_INDEX_VECTOR_BYTES];
    const size_t size = aoticache_index_vector_encode(histogram->counts, bytes);
    write_name(to, histogram->name);
    write_number(to, histogram->sum);
    write_number(to, histogram->maximum);
    write_number(to, size);
    write_bytes(to, bytes, size);
}

static void write_deltas(writer *to, const aoticache_index_deltas *deltas)
{
    write_any(to, (uint64_t)deltas->now_ns);
    write_number(to, deltas->count_count);
    for (size_t i = 0; i < deltas->count_count; i++) {
        write_name(to, deltas->counts[i].name);
        write_number(to, deltas->counts[i].value);
    }
    write_number(to, deltas->tally_count);
    for (size_t i = 0; i < deltas->tally_count; i++)
        write_tally(to, &deltas->tallies[i]);
    write_number(to, deltas->histogram_count);
    for (size_t i = 0; i < deltas->histogram_count; i++)
        write_histogram(to, &deltas->histograms[i]);
}

size_t aoticache_index_record_encode(const aoticache_index_deltas *deltas, uint8_t *ret_bytes, size_t size)
{
    if (size < FRAME_BYTES || deltas->count_count > AOTICACHE_PENDING_STATS_MAX_NAMES ||
        deltas->histogram_count > AOTICACHE_PENDING_STATS_MAX_NAMES)
        return 0;
    writer to = {.bytes = ret_bytes + FRAME_BYTES, .capacity = size - FRAME_BYTES};
    write_deltas(&to, deltas);
    if (to.failed)
        return 0;
    const uint32_t mark = MARK, payload = (uint32_t)to.size;
    const uint64_t hash = aoticache_hash_bytes(to.bytes, to.size);
    memcpy(ret_bytes, &mark, sizeof mark);
    memcpy(ret_bytes + 4, &payload, sizeof payload);
    memcpy(ret_bytes + 8, &hash, sizeof hash);
    return FRAME_BYTES + to.size;
}

/* ---- decoding ---- */

typedef struct reader {
    const uint8_t *bytes;
    size_t size;
    bool failed;
} reader;

static uint64_t read_up_to(reader *from, uint64_t maximum)
{
    uint64_t value = 0;
    const size_t used = aoticache_index_number_decode(from->bytes, from->size, &value);
    from->failed = from->failed || used == 0 || value > maximum;
    if (from->failed)
        return 0;
    from->bytes += used;
    from->size -= used;
    return value;
}

static uint64_t read_number(reader *from)
{
    return read_up_to(from, MAX_NUMBER);
}

/* Returns the position of the next `size` bytes, or NULL if there are fewer. */
static const uint8_t *read_bytes(reader *from, size_t size)
{
    const uint8_t *bytes = from->bytes;
    from->failed = from->failed || size > from->size;
    if (from->failed)
        return NULL;
    from->bytes += size;
    from->size -= size;
    return bytes;
}

static const char *read_name(reader *from)
{
    const size_t length = (size_t)read_up_to(from, MAX_NAME_BYTES - 1);
    const char *name = (const char *)read_bytes(from, length + 1);
    from->failed = from->failed || name[length] != '\0' || strlen(name) != length;
    return name;
}

static aoticache_index_tally read_tally(reader *from)
{
    aoticache_index_tally tally = {.entry_id = (int64_t)read_up_to(from, INT64_MAX)};
    tally.last_used_ns = (int64_t)read_up_to(from, INT64_MAX);
    tally.uses = read_number(from);
    tally.hits = read_number(from);
    tally.misses = read_number(from);
    tally.compiles = read_number(from);
    tally.compile_ns = read_number(from);
    tally.saved_ns = read_number(from);
    return tally;
}

static void read_histogram(reader *from, aoticache_index_histogram *ret_histogram,
                           uint64_t ret_counts[AOTICACHE_INDEX_BUCKETS])
{
    ret_histogram->name = read_name(from);
    ret_histogram->sum = read_number(from);
    ret_histogram->maximum = read_number(from);
    ret_histogram->counts = ret_counts;
    const size_t size = (size_t)read_up_to(from, AOTICACHE_INDEX_VECTOR_BYTES);
    const uint8_t *bytes = read_bytes(from, size);
    from->failed = from->failed || !aoticache_index_vector_add(bytes, size, ret_counts);
}

/* Returns false if memory is short. from->failed is set if the bytes are invalid. */
static bool read_deltas(reader *from, aoticache_index_record *record)
{
    record->deltas.now_ns = (int64_t)read_up_to(from, INT64_MAX);
    record->deltas.count_count = (size_t)read_up_to(from, AOTICACHE_PENDING_STATS_MAX_NAMES);
    for (size_t i = 0; !from->failed && i < record->deltas.count_count; i++) {
        record->counts[i].name = read_name(from);
        record->counts[i].value = read_number(from);
    }
    record->deltas.tally_count = (size_t)read_up_to(from, from->size / 8);
    record->tallies = calloc(record->deltas.tally_count + 1, sizeof *record->tallies);
    for (size_t i = 0; record->tallies != NULL && !from->failed && i < record->deltas.tally_count; i++)
        record->tallies[i] = read_tally(from);
    record->deltas.histogram_count = (size_t)read_up_to(from, AOTICACHE_PENDING_STATS_MAX_NAMES);
    record->buckets = calloc(record->deltas.histogram_count + 1, sizeof *record->buckets);
    for (size_t i = 0; record->buckets != NULL && !from->failed && i < record->deltas.histogram_count; i++)
        read_histogram(from, &record->histograms[i], record->buckets[i]);
    from->failed = from->failed || from->size != 0;
    return record->tallies != NULL && record->buckets != NULL;
}

/* Returns the payload of the frame at `at`; NULL: there is none, or it is damaged. */
static const uint8_t *find_payload(const uint8_t *bytes, size_t size, size_t at, size_t *ret_size)
{
    uint32_t mark, payload;
    uint64_t hash;
    if (size - at < FRAME_BYTES)
        return NULL;
    memcpy(&mark, bytes + at, sizeof mark);
    memcpy(&payload, bytes + at + 4, sizeof payload);
    memcpy(&hash, bytes + at + 8, sizeof hash);
    if (mark != MARK || payload > size - at - FRAME_BYTES ||
        hash != aoticache_hash_bytes(bytes + at + FRAME_BYTES, payload))
        return NULL;
    *ret_size = payload;
    return bytes + at + FRAME_BYTES;
}

aoticache_status aoticache_index_record_next(const uint8_t *bytes, size_t size, size_t *at,
                                             aoticache_index_record *ret_record)
{
    while (*at < size) {
        size_t payload_size = 0;
        const uint8_t *payload = find_payload(bytes, size, *at, &payload_size);
        if (payload == NULL) {
            const uint8_t *next = memchr(bytes + *at + 1, MARK & 0xff, size - *at - 1);
            *at = next == NULL ? size : (size_t)(next - bytes);
            continue;
        }
        *at += FRAME_BYTES + payload_size;
        reader from = {.bytes = payload, .size = payload_size};
        *ret_record = (aoticache_index_record){.tallies = NULL};
        const bool has_memory = read_deltas(&from, ret_record);
        if (has_memory && !from.failed) {
            ret_record->deltas.counts = ret_record->counts;
            ret_record->deltas.tallies = ret_record->tallies;
            ret_record->deltas.histograms = ret_record->histograms;
            return AOTICACHE_OK;
        }
        aoticache_index_record_clear(ret_record);
        if (!has_memory)
            return AOTICACHE_NO_MEMORY;
    }
    return AOTICACHE_NOT_FOUND;
}

void aoticache_index_record_clear(aoticache_index_record *record)
{
    free(record->tallies);
    free(record->buckets);
    record->tallies = NULL;
    record->buckets = NULL;
}
