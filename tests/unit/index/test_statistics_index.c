/*
 * index/stats: slots of the history over years, and groups beyond their limit.
 */
#include "index_fixture.h"

#include "base/clock.h"
#include "index/stats/statistics.h"

TestSuite(statistics_index, .init = fixture_make, .fini = fixture_remove);

#define SECOND_NS INT64_C(1000000000)
#define DAY INT64_C(86400)
#define START INT64_C(1699920000) /* midnight */

static void flush_at(aoticache_index *index, int64_t seconds, uint64_t hits, uint64_t nanoseconds)
{
    uint64_t counts[AOTICACHE_INDEX_BUCKETS] = {[40] = hits};
    const aoticache_index_count count = {.name = "hits", .value = hits};
    const aoticache_index_histogram histogram = {
        .name = "lookup", .sum = nanoseconds, .maximum = nanoseconds, .counts = counts};
    const aoticache_index_deltas deltas = {.now_ns = seconds * SECOND_NS,
                                           .counts = &count,
                                           .count_count = 1,
                                           .histograms = &histogram,
                                           .histogram_count = 1};
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_index_flush_deltas(index, &deltas, true, &error), AOTICACHE_OK, "%s", error.message);
}

struct seen {
    uint64_t hits, buckets, sum, maximum;
    int slots;
    int64_t first, last;
};

static bool see_count(void *user, const char *name, uint64_t value)
{
    struct seen *seen = user;
    cr_assert_str_eq(name, "hits");
    seen->hits += value;
    return true;
}

static bool see_histogram(void *user, const aoticache_index_histogram *histogram, bool is_less)
{
    struct seen *seen = user;
    cr_assert_not(is_less);
    seen->buckets += histogram->counts[40];
    seen->sum += histogram->sum;
    seen->maximum = histogram->maximum > seen->maximum ? histogram->maximum : seen->maximum;
    return true;
}

static bool see_slot(void *user, int64_t start_seconds, const char *name, uint64_t value)
{
    (void)name;
    struct seen *seen = user;
    seen->first = seen->slots == 0 ? start_seconds : seen->first;
    seen->last = start_seconds;
    seen->slots++;
    seen->hits += value;
    return true;
}

static struct seen read_from(aoticache_index *index, aoticache_index_from from, int64_t since)
{
    struct seen seen = {.hits = 0};
    int64_t zero_ns;
    const aoticache_index_reading reading = {
        .from = from, .since_seconds = since, .count = see_count, .histogram = see_histogram, .user = &seen};
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_index_read_statistics(index, &reading, &zero_ns, &error), AOTICACHE_OK, "%s", error.message);
    return seen;
}

static struct seen slots_from(aoticache_index *index, int64_t since, int64_t step)
{
    struct seen seen = {.hits = 0};
    cr_assert_eq(aoticache_index_list_history(index, since, step, see_slot, &seen, NULL), AOTICACHE_OK);
    return seen;
}

static int64_t number_of(const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *statement;
    cr_assert_eq(sqlite3_open_v2(fixture_path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    cr_assert_eq(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
    cr_assert_eq(sqlite3_step(statement), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return value;
}

Test(statistics_index, history_of_months_is_exact_and_small, .timeout = 300)
{
    aoticache_index *index = fixture_must_open();
    const int64_t end = START + 60 * DAY;
    uint64_t hits = 0, sum = 0, last_day = 0;
    for (int64_t at = START; at < end; at += 2400) {
        uint64_t value = 1 + (uint64_t)(at / 2400 % 7);
        flush_at(index, at, value, value * 10);
        hits += value;
        sum += value * 10;
        last_day += at >= end - DAY ? value : 0;
    }
    struct seen all = read_from(index, AOTICACHE_INDEX_FROM_START, 0);
    cr_assert_eq(all.hits, hits);
    cr_assert_eq(all.buckets, hits);
    cr_assert_eq(all.sum, sum);
    struct seen by_time = read_from(index, AOTICACHE_INDEX_FROM_TIME, 0);
    cr_assert_eq(by_time.hits, hits, "the slots have all of it, each number once");
    cr_assert_eq(by_time.buckets, hits);
    cr_assert_eq(by_time.sum, sum);
    cr_assert_eq(by_time.maximum, 70);
    cr_assert_eq(slots_from(index, 0, 86400).hits, hits);
    cr_assert_eq(read_from(index, AOTICACHE_INDEX_FROM_TIME, end - DAY).hits, last_day);
    struct seen fine = slots_from(index, end - DAY, 300);
    cr_assert_eq(fine.hits, last_day);
    cr_assert_eq(fine.slots, 36, "slots of five minutes are kept for a day");
    struct seen hours = slots_from(index, end - 31 * DAY, 3600);
    cr_assert_geq(hours.slots, 30 * 18);
    aoticache_index_close(index);
    cr_assert_leq(number_of("SELECT count(*) FROM history"), 25 * 12 + 32 * 24 + 62);
    cr_assert_leq(number_of("SELECT count(*) FROM latencies"), 25 * 12 + 32 * 24 + 62 + 1);
    cr_assert_leq(number_of("SELECT count(*) FROM history WHERE level = 0"), 25 * 12);
}

Test(statistics_index, last_3653_days_are_kept_and_totals_stay)
{
    aoticache_index *index = fixture_must_open();
    flush_at(index, START, 5, 50);
    aoticache_index_close(index);
    fixture_sql("WITH RECURSIVE d(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM d WHERE n < 3700)"
                " INSERT INTO history SELECT 2, 1699920000 + n * 86400, 'hits', 1 FROM d");
    index = fixture_must_open();
    flush_at(index, START + 4000 * DAY, 8, 80);
    flush_at(index, START + 4040 * DAY, 8, 80); /* 4000 becomes a day */
    aoticache_index_close(index);
    cr_assert_eq(number_of("SELECT count(*) FROM history WHERE level = 2"), 3653);
    cr_assert_eq(number_of("SELECT min(start) FROM history WHERE level = 2"), START + 49 * DAY);
    cr_assert_eq(number_of("SELECT value FROM counts WHERE name = 'hits'"), 21);
}

Test(statistics_index, clock_that_is_decades_ahead_for_a_moment_drops_no_day)
{
    aoticache_index *index = fixture_must_open();
    flush_at(index, START, 5, 50);
    flush_at(index, START + 1000 * DAY, 6, 60);
    flush_at(index, START + 20000 * DAY, 7, 70);
    flush_at(index, START + 1001 * DAY, 8, 80);
    cr_assert_eq(slots_from(index, 0, 86400).slots, 4);
    cr_assert_eq(slots_from(index, 0, 86400).hits, 26);
    aoticache_index_close(index);
}

Test(statistics_index, clock_that_was_set_back_loses_nothing)
{
    aoticache_index *index = fixture_must_open();
    flush_at(index, START + 100 * DAY, 5, 50);
    flush_at(index, START, 6, 60);
    flush_at(index, 0, 1, 10);
    flush_at(index, START + 100 * DAY + 3600, 7, 70);
    cr_assert_eq(read_from(index, AOTICACHE_INDEX_FROM_START, 0).hits, 19);
    cr_assert_eq(read_from(index, AOTICACHE_INDEX_FROM_TIME, START - DAY).hits, 18);
    aoticache_index_close(index);
}

Test(statistics_index, damaged_histogram_is_told)
{
    aoticache_index *index = fixture_must_open();
    flush_at(index, START, 5, 50);
    aoticache_index_close(index);
    fixture_sql("UPDATE latencies SET counts = x'ffff'");
    index = fixture_must_open();
    struct seen seen = {.hits = 0};
    int64_t zero_ns;
    const aoticache_index_reading reading = {.count = see_count, .histogram = see_histogram, .user = &seen};
    cr_assert_eq(aoticache_index_read_statistics(index, &reading, &zero_ns, NULL), AOTICACHE_CORRUPT);
    aoticache_index_close(index);
}

/* ---- groups ---- */

struct groups {
    int count;
    int64_t hits, entries, bytes, other_hits;
};

static bool see_group(void *user, const char *name, const aoticache_index_group *group)
{
    struct groups *groups = user;
    groups->count++;
    groups->hits += group->hits;
    groups->entries += group->entries;
    groups->bytes += group->bytes;
    if (strcmp(name, AOTICACHE_INDEX_OTHER_GROUP) == 0)
        groups->other_hits = group->hits;
    return true;
}

static struct groups groups_of(aoticache_index *index, aoticache_index_group_kind kind)
{
    struct groups groups = {.count = 0};
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_index_list_groups(index, kind, false, see_group, &groups, &error), AOTICACHE_OK, "%s",
                 error.message);
    return groups;
}

static void flush_sums(aoticache_index *index, const aoticache_index_sums *sums)
{
    const aoticache_index_deltas deltas = {.now_ns = START * SECOND_NS, .sums = sums};
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_index_flush_deltas(index, &deltas, true, &error), AOTICACHE_OK, "%s", error.message);
}

Test(statistics_index, names_beyond_the_limit_count_as_others)
{
    aoticache_index *index = fixture_must_open();
    const int names = AOTICACHE_INDEX_MAX_GROUPS + 500;
    for (int pass = 1; pass <= 2; pass++) {
        aoticache_index_sums sums = {.by_name = {.count = 0}};
        for (int i = 0; i < names; i++) {
            char op[32];
            snprintf(op, sizeof op, "my::op%d", i);
            cr_assert_eq(aoticache_index_sums_add(&sums, op, "cpu", "cc", &(aoticache_index_group){.hits = 1}, NULL),
                         AOTICACHE_OK);
        }
        flush_sums(index, &sums);
        aoticache_index_sums_free(&sums);
        struct groups groups = groups_of(index, AOTICACHE_INDEX_GROUP_OPERATOR);
        cr_assert_eq(groups.count, AOTICACHE_INDEX_MAX_GROUPS + 1);
        cr_assert_eq(groups.hits, names * pass);
        cr_assert_eq(groups.other_hits, 500 * pass, "a name keeps its row, or has none");
    }
    cr_assert_eq(groups_of(index, AOTICACHE_INDEX_GROUP_DEVICE).count, 1);
    aoticache_index_close(index);
}

Test(statistics_index, name_that_is_too_long_counts_as_others)
{
    aoticache_index *index = fixture_must_open();
    aoticache_index_sums sums = {.by_name = {.count = 0}};
    char op[1000];
    memset(op, 'x', sizeof op);
    op[sizeof op - 1] = '\0';
    cr_assert_eq(aoticache_index_sums_add(&sums, op, NULL, "cc", &(aoticache_index_group){.hits = 3}, NULL),
                 AOTICACHE_OK);
    flush_sums(index, &sums);
    aoticache_index_sums_free(&sums);
    cr_assert_eq(groups_of(index, AOTICACHE_INDEX_GROUP_OPERATOR).other_hits, 3);
    cr_assert_eq(groups_of(index, AOTICACHE_INDEX_GROUP_DEVICE).other_hits, 3);
    cr_assert_eq(groups_of(index, AOTICACHE_INDEX_GROUP_ENVIRONMENT).other_hits, 0);
    aoticache_index_close(index);
}

Test(statistics_index, entries_count_while_they_are_there)
{
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 101, 201);
    put_numbers(index, 2, 102, 202);
    put_numbers(index, 1, 103, 203); /* replaces */
    struct groups groups = groups_of(index, AOTICACHE_INDEX_GROUP_OPERATOR);
    cr_assert_eq(groups.entries, 2);
    cr_assert_eq(groups.bytes, 2200);
    aoticache_digest key = digest_of(1);
    cr_assert_eq(aoticache_index_remove_key(index, &key, NULL, NULL), AOTICACHE_OK);
    groups = groups_of(index, AOTICACHE_INDEX_GROUP_ENVIRONMENT);
    cr_assert_eq(groups.entries, 1);
    cr_assert_eq(groups.bytes, 1100);
    aoticache_index_close(index);
}

Test(statistics_index, locked_index_is_not_waited_for_where_that_is_not_wanted)
{
    aoticache_index *index = fixture_must_open();
    sqlite3 *db;
    flush_at(index, START, 1, 1);
    cr_assert_eq(sqlite3_open(fixture_path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    const aoticache_index_count count = {.name = "hits", .value = 1};
    const aoticache_index_deltas deltas = {.now_ns = START * SECOND_NS, .counts = &count, .count_count = 1};
    uint64_t begun = aoticache_monotonic_ns();
    cr_assert_eq(aoticache_index_flush_deltas(index, &deltas, false, NULL), AOTICACHE_LOCKED);
    cr_assert_lt(aoticache_monotonic_ns() - begun, UINT64_C(15000000000), "the lock timeout is 30 s");
    sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_close(db);
    cr_assert_eq(aoticache_index_flush_deltas(index, &deltas, false, NULL), AOTICACHE_OK);
    cr_assert_eq(read_from(index, AOTICACHE_INDEX_FROM_START, 0).hits, 2);
    aoticache_index_close(index);
}

/* Reading has its own transaction, whose end must not write the changes of the previous put again. */
Test(statistics_index, read_after_a_put_leaves_the_totals)
{
    aoticache_index *index = fixture_must_open();
    put_numbers(index, 1, 2, 3);
    read_from(index, 0, 0);
    read_from(index, 0, 0);
    cr_assert_eq(must_read_totals(index).entries, 1u);
    aoticache_error error = {.message = ""};
    cr_assert_eq(index_verify(index, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_index_close(index);
}
