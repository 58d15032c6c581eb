/*
 * index/stats/history: slots of time. A flush adds to the current slot of five minutes. Slots older than a day are added to
 * the slot of their hour, hours older than 31 days to that of their day. The last 3653 days with any counts are kept, which
 * is ten years. So every number is in one slot, and the sum of all slots from a time on is exact. A level is cut at the
 * length of the next one: an hour has all its slots of five minutes, or none.
 */
#include "index/stats/stats_internal.h"

#include <string.h>

#include "base/arguments.h"

#define DAY_SECONDS INT64_C(86400)
#define KEPT_DAYS 3653

static const struct {
    int64_t length;  /* of the next longer slots; 0: there are none */
    int64_t seconds; /* how long slots of this level are kept */
} levels[] = {{3600, DAY_SECONDS}, {DAY_SECONDS, 31 * DAY_SECONDS}, {0, KEPT_DAYS *DAY_SECONDS}};

#define LEVELS ((int)(sizeof levels / sizeof levels[0]))

static int64_t floor_to(int64_t seconds, int64_t length)
{
    return seconds - (seconds % length + length) % length;
}

/* ---- histograms in slots ---- */

typedef struct slot {
    int level;
    int64_t start;
    char name[64];
    uint64_t sum, maximum;
    uint64_t counts[AOTICACHE_INDEX_BUCKETS];
} slot;

static uint64_t add_capped(uint64_t a, uint64_t b)
{
    return a > (uint64_t)INT64_MAX - b || b > (uint64_t)INT64_MAX ? (uint64_t)INT64_MAX : a + b;
}

/* Adds the row of `statement` to `into`. The columns are start, name, sum, maximum and counts. NOT_FOUND: no row. */
static aoticache_status add_row(aoticache_index *index, sqlite3_stmt *statement, slot *into, aoticache_error *ret_error)
{
    const char *name;
    uint64_t sum, maximum;
    aoticache_status status = AOTICACHE_OK;
    int result = sqlite3_step(statement);
    if (result == SQLITE_DONE) {
        status = AOTICACHE_NOT_FOUND;
    } else if (result != SQLITE_ROW) {
        status = aoticache_index_fail(index, result, "cannot read", ret_error);
    } else if (!aoticache_index_read_integer(statement, 0, &into->start) ||
               !aoticache_index_read_text(statement, 1, &name) || strlen(name) >= sizeof into->name ||
               !aoticache_index_read_unsigned(statement, 2, &sum) ||
               !aoticache_index_read_unsigned(statement, 3, &maximum) ||
               sqlite3_column_type(statement, 4) != SQLITE_BLOB ||
               !aoticache_index_vector_add(sqlite3_column_blob(statement, 4),
                                           (size_t)sqlite3_column_bytes(statement, 4), into->counts)) {
        status = aoticache_index_fail_row(index, "latencies", ret_error);
    } else {
        strcpy(into->name, name);
        into->sum = add_capped(into->sum, sum);
        into->maximum = maximum > into->maximum ? maximum : into->maximum;
    }
    sqlite3_reset(statement);
    return status;
}

static void bind_slot(sqlite3_stmt *statement, const slot *where)
{
    sqlite3_bind_int64(statement, 1, where->level);
    sqlite3_bind_int64(statement, 2, where->start);
    aoticache_index_bind_text(statement, 3, where->name);
}

/* Adds the stored slot to `added`, and stores the sum. */
static aoticache_status merge_slot(aoticache_index *index, slot *added, aoticache_error *ret_error)
{
    uint8_t bytes[AOTICACHE_INDEX_VECTOR_BYTES];
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(LATENCY_GET), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    bind_slot(statement, added);
    status = add_row(index, statement, added, ret_error);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND)
        status = aoticache_index_prepare(index, SQL(LATENCY_PUT), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    bind_slot(statement, added);
    aoticache_index_bind_unsigned(statement, 4, added->sum);
    aoticache_index_bind_unsigned(statement, 5, added->maximum);
    size_t size = aoticache_index_vector_encode(added->counts, bytes);
    sqlite3_bind_blob(statement, 6, bytes, (int)size, SQLITE_STATIC);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

static aoticache_status add_histogram(aoticache_index *index, const aoticache_index_histogram *histogram, int level,
                                      int64_t start, aoticache_error *ret_error)
{
    slot added = {.level = level, .start = start, .sum = histogram->sum, .maximum = histogram->maximum};
    if (strlen(histogram->name) >= sizeof added.name)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "index flush: the histogram's name %.80s is too long",
                                   histogram->name);
    strcpy(added.name, histogram->name);
    memcpy(added.counts, histogram->counts, sizeof added.counts);
    return merge_slot(index, &added, ret_error);
}

/* ---- moving to longer slots ---- */

/* Runs a statement whose parameters are integers, as many as the statement has. */
static aoticache_status run_with_integers(aoticache_index *index, aoticache_index_statement which,
                                          const int64_t *values, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, which, &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    for (int i = 0; i < sqlite3_bind_parameter_count(statement); i++)
        sqlite3_bind_int64(statement, i + 1, values[i]);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

/* Moves the oldest histogram of the level to the next one. NOT_FOUND: none is older than `before`. */
static aoticache_status roll_histogram(aoticache_index *index, int level, int64_t before, aoticache_error *ret_error)
{
    slot moved = {.level = level};
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(LATENCY_OLDEST), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, level);
    sqlite3_bind_int64(statement, 2, before);
    status = add_row(index, statement, &moved, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_prepare(index, SQL(LATENCY_DELETE), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    bind_slot(statement, &moved);
    status = aoticache_index_execute(index, statement, NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    moved.level++;
    moved.start = floor_to(moved.start, levels[level].length);
    return merge_slot(index, &moved, ret_error);
}

/*
 * Finds the beginning of the kept days; INT64_MIN if there are not more days than that. It reads all days, so it is called
 * once a day.
 */
static aoticache_status find_cut(aoticache_index *index, int level, int64_t *ret_before, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(HISTORY_CUT), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, level);
    sqlite3_bind_int64(statement, 2, KEPT_DAYS - 1);
    status = aoticache_index_fetch(index, statement, ret_error);
    *ret_before = status == AOTICACHE_OK ? sqlite3_column_int64(statement, 0) : INT64_MIN;
    sqlite3_reset(statement);
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

static aoticache_status roll(aoticache_index *index, int level, int64_t before, aoticache_error *ret_error)
{
    int64_t values[] = {level, before, levels[level].length};
    aoticache_status status = AOTICACHE_OK;
    if (levels[level].length == 0) {
        status = find_cut(index, level, &values[1], ret_error);
    } else {
        status = run_with_integers(index, SQL(HISTORY_ROLL), values, ret_error);
        while (status == AOTICACHE_OK)
            status = roll_histogram(index, level, before, ret_error);
        status = status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
    }
    if (status == AOTICACHE_OK)
        status = run_with_integers(index, SQL(HISTORY_DROP), values, ret_error);
    return status == AOTICACHE_OK ? run_with_integers(index, SQL(LATENCY_DROP), values, ret_error) : status;
}

static aoticache_status has_older(aoticache_index *index, int level, int64_t before, bool *ret_has,
                                  aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(HISTORY_OLDEST), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, level);
    status = aoticache_index_fetch(index, statement, ret_error);
    *ret_has = status == AOTICACHE_OK && sqlite3_column_int64(statement, 0) < before;
    sqlite3_reset(statement);
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

/* Moves all slots that are too old. A slot of a longer level becomes too old only after a slot of a shorter level has moved. */
static aoticache_status roll_all(aoticache_index *index, int64_t now, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    bool has = true;
    for (int level = 0; level < LEVELS && status == AOTICACHE_OK && has; level++) {
        int64_t before =
            floor_to(now - levels[level].seconds, levels[level].length != 0 ? levels[level].length : DAY_SECONDS);
        status = has_older(index, level, before, &has, ret_error);
        if (status == AOTICACHE_OK && has)
            status = roll(index, level, before, ret_error);
    }
    return status;
}

/* ---- adding ---- */

static aoticache_status add_counts(aoticache_index *index, const aoticache_index_deltas *deltas, int64_t start,
                                   aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(HISTORY_ADD), &statement, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < deltas->count_count; i++) {
        sqlite3_bind_int64(statement, 1, 0);
        sqlite3_bind_int64(statement, 2, start);
        aoticache_index_bind_text(statement, 3, deltas->counts[i].name);
        aoticache_index_bind_unsigned(statement, 4, deltas->counts[i].value);
        status = aoticache_index_execute(index, statement, NULL, ret_error);
    }
    return status;
}

aoticache_status aoticache_index_history_add(aoticache_index *index, const aoticache_index_deltas *deltas,
                                             aoticache_error *ret_error)
{
    const int64_t now = deltas->now_ns / 1000000000;
    const int64_t start = floor_to(now, AOTICACHE_INDEX_SLOT_SECONDS);
    aoticache_status status = add_counts(index, deltas, start, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < deltas->histogram_count; i++) {
        status = add_histogram(index, &deltas->histograms[i], 0, start, ret_error);
        if (status == AOTICACHE_OK)
            status = add_histogram(index, &deltas->histograms[i], AOTICACHE_LEVEL_TOTAL, 0, ret_error);
    }
    return status == AOTICACHE_OK ? roll_all(index, now, ret_error) : status;
}

/* ---- listing ---- */

struct listing {
    aoticache_index_slot_fn callback;
    void *user;
};

static bool forward_slot(void *user, sqlite3_stmt *row, bool *ret_continues)
{
    const struct listing *listing = user;
    int64_t start;
    const char *name;
    uint64_t value;
    if (!aoticache_index_read_integer(row, 0, &start) || !aoticache_index_read_text(row, 1, &name) ||
        !aoticache_index_read_unsigned(row, 2, &value))
        return false;
    *ret_continues = listing->callback(listing->user, start, name, value);
    return true;
}

aoticache_status aoticache_index_list_history(aoticache_index *index, int64_t since_seconds, int64_t step,
                                              aoticache_index_slot_fn callback, void *user, aoticache_error *ret_error)
{
    if (index == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, callback);
    if (step <= 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: step is %lld; it must be positive", __func__,
                                   (long long)step);
    struct listing listing = {.callback = callback, .user = user};
    sqlite3_stmt *rows = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, SQL(HISTORY), &rows, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(rows, 1, since_seconds);
    sqlite3_bind_int64(rows, 2, step);
    return aoticache_index_walk_and_leave(index, rows, "history", forward_slot, &listing, ret_error);
}

/* ---- the counts of a histogram as bytes ---- */

size_t aoticache_index_number_encode(uint8_t ret_bytes[AOTICACHE_INDEX_NUMBER_BYTES], uint64_t value)
{
    size_t size = 0;
    for (; value >= 0x80; value >>= 7)
        ret_bytes[size++] = (uint8_t)(value | 0x80);
    ret_bytes[size++] = (uint8_t)value;
    return size;
}

size_t aoticache_index_number_decode(const uint8_t *bytes, size_t size, uint64_t *ret_value)
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
        size += aoticache_index_number_encode(ret_bytes + size, i - next);
        size += aoticache_index_number_encode(ret_bytes + size, counts[i]);
        next = i + 1;
    }
    return size;
}

bool aoticache_index_vector_add(const uint8_t *bytes, size_t size, uint64_t counts[AOTICACHE_INDEX_BUCKETS])
{
    uint64_t next = 0;
    for (size_t at = 0; at < size;) {
        uint64_t skipped, count;
        size_t used = aoticache_index_number_decode(bytes + at, size - at, &skipped);
        if (used == 0 || skipped >= AOTICACHE_INDEX_BUCKETS || next + skipped >= AOTICACHE_INDEX_BUCKETS)
            return false;
        at += used;
        used = aoticache_index_number_decode(bytes + at, size - at, &count);
        if (used == 0)
            return false;
        at += used;
        next += skipped;
        counts[next] = counts[next] > UINT64_MAX - count ? UINT64_MAX : counts[next] + count;
        next++;
    }
    return true;
}
