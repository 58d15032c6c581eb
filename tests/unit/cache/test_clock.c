/*
 * A wall clock that is ahead for a while: times recorded meanwhile are not trusted for ever, and a collection meanwhile
 * does not treat everything as old.
 */
#include "tests/unit/fixtures/cache_fixture.h"
#include "tests/unit/fixtures/clock_fixture.h"

#include "base/clock.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "cache/cache_internal.h"
#include "cache/stats/statistics.h"
#include "index/eviction/eviction.h"

TestSuite(clock, .init = fixture_setup, .fini = fixture_teardown);

#define YEAR (365 * FIXTURE_DAY)

static aoticache_collect_report collect_with(aoticache_cache *cache, const aoticache_collect_options *options)
{
    aoticache_collect_report report;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_collect(cache, options, NULL, NULL, &report, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s: %s", aoticache_status_name(status), error.message);
    return report;
}

static aoticache_collect_report collect(aoticache_cache *cache, uint64_t max_age_seconds, bool trust_clock)
{
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.max_age_seconds = max_age_seconds;
    options.trust_clock = trust_clock;
    return collect_with(cache, &options);
}

static void fill(aoticache_cache *cache, int from, int count)
{
    for (int i = from; i < from + count; i++) {
        char text[32];
        snprintf(text, sizeof text, "library %d", i);
        fixture_put(cache, i, text);
    }
    cr_assert_eq(aoticache_cache_flush(cache, NULL), AOTICACHE_OK);
}

static void use(aoticache_cache *cache, int64_t number)
{
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, number, &artifact), AOTICACHE_OK);
    aoticache_artifact_unref(artifact);
    cr_assert_eq(aoticache_cache_flush(cache, NULL), AOTICACHE_OK);
}

static int64_t meta(aoticache_cache *cache, const char *name)
{
    int64_t value = 0;
    cr_assert_eq(aoticache_index_read_meta(aoticache_cache_index(cache), name, &value, NULL), AOTICACHE_OK);
    return value;
}

static void set_meta(aoticache_cache *cache, const char *name, int64_t value)
{
    cr_assert_eq(aoticache_index_write_meta(aoticache_cache_index(cache), name, value, NULL), AOTICACHE_OK);
}

/* ---- failures ---- */

static int compiles;

static aoticache_status fail(void *user, const aoticache_request *request, const char *directory,
                             aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    (void)user, (void)request, (void)directory, (void)deliver, (void)deliver_user;
    compiles++;
    return aoticache_error_set(ret_error, AOTICACHE_COMPILE_FAILED, "does not compile");
}

static void compile(aoticache_cache *cache)
{
    aoticache_request *request = fixture_request(1);
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(aoticache_cache_get_or_compile(cache, request, NULL, fail, NULL, &artifact, NULL),
                 AOTICACHE_COMPILE_FAILED);
    aoticache_request_free(request);
}

static bool see_failure(void *user, const aoticache_failure *failure)
{
    *(int64_t *)user = failure->retry_ns;
    return true;
}

Test(clock, failure_of_the_future_is_tried_again)
{
    aoticache_cache *cache = fixture_open();
    int64_t retry_ns = 0;
    fixture_ahead = 10 * YEAR;
    compile(cache);
    compile(cache);
    cr_assert_eq(compiles, 1, "it is remembered");
    fixture_ahead = 0;
    cr_assert_eq(aoticache_cache_list_failures(cache, see_failure, &retry_ns, NULL), AOTICACHE_OK);
    cr_assert_leq(retry_ns, aoticache_wall_ns(), "it may be tried now");
    compile(cache);
    cr_assert_eq(compiles, 2);
    compile(cache);
    cr_assert_eq(compiles, 2, "the new one is remembered");
    aoticache_cache_close(cache);
}

Test(clock, failure_of_the_future_is_collected)
{
    aoticache_cache *cache = fixture_open();
    fixture_ahead = 10 * YEAR;
    compile(cache);
    fixture_ahead = 0;
    cr_assert_eq(collect(cache, 0, false).failures_removed, 1);
    compile(cache);
    cr_assert_eq(collect(cache, 0, false).failures_removed, 0);
    aoticache_cache_close(cache);
}

/* ---- last uses ---- */

Test(clock, use_of_the_future_counts_as_now)
{
    aoticache_cache *cache = fixture_open();
    fixture_ahead = 10 * YEAR;
    fill(cache, 1, 3);
    fixture_ahead = 0;
    cr_assert_eq(collect(cache, (uint64_t)FIXTURE_DAY, false).entries_removed, 0);
    fixture_ahead = 2 * FIXTURE_DAY;
    cr_assert_eq(collect(cache, (uint64_t)FIXTURE_DAY, false).entries_removed, 3, "they grow old like others");
    aoticache_cache_close(cache);
}

Test(clock, use_of_the_future_goes_in_its_turn_where_puts_collect)
{
    aoticache_cache_options options = fixture_options();
    options.max_entries = 10;
    aoticache_cache *cache = fixture_open_with(&options);
    fixture_ahead = 10 * YEAR;
    fill(cache, 1, 10);
    fixture_ahead = 0;
    fill(cache, 11, 30);
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_NOT_FOUND, "new ones took their places");
    cr_assert_eq(fixture_lookup(cache, 40, &artifact), AOTICACHE_OK);
    aoticache_artifact_unref(artifact);
    aoticache_cache_close(cache);
}

Test(clock, next_use_mends_one_of_the_future)
{
    aoticache_cache *cache = fixture_open();
    int64_t used_ns = 0;
    fixture_ahead = 10 * YEAR;
    fill(cache, 1, 1);
    fixture_ahead = 0;
    use(cache, 1);
    cr_assert_eq(aoticache_index_newest_use(aoticache_cache_index(cache), &used_ns, NULL), AOTICACHE_OK);
    cr_assert_leq(used_ns, aoticache_wall_ns());
    aoticache_cache_close(cache);
}

/* ---- a collection while the clock is ahead ---- */

Test(clock, collection_a_year_ahead_removes_nothing_for_its_age)
{
    aoticache_cache *cache = fixture_open();
    fill(cache, 1, 40);
    cr_assert_eq(collect(cache, 90 * FIXTURE_DAY, false).entries_removed, 0);
    int64_t collected_ns = meta(cache, "collected_ns");
    cr_assert_neq(collected_ns, 0);
    fixture_ahead = YEAR;
    aoticache_collect_report report = collect(cache, 90 * FIXTURE_DAY, false);
    cr_assert_eq(report.entries_removed, 0);
    cr_assert_eq(report.refused, 40);
    cr_assert_eq(report.previous_ns, collected_ns);
    cr_assert_geq(report.clock_ns, collected_ns + 364 * FIXTURE_DAY * 1000000000);
    cr_assert_eq(collect(cache, 90 * FIXTURE_DAY, false).refused, 40, "nor the next time");
    fixture_ahead = 0;
    cr_assert_eq(collect(cache, 90 * FIXTURE_DAY, false).refused, 0);
    fixture_ahead = YEAR;
    report = collect(cache, 90 * FIXTURE_DAY, true);
    cr_assert_eq(report.entries_removed, 40, "but where somebody says that the clock is right");
    cr_assert_eq(report.refused, 0);
    aoticache_cache_close(cache);
}

Test(clock, first_collection_knows_when_an_entry_was_used_last)
{
    aoticache_cache *cache = fixture_open();
    fill(cache, 1, 40);
    fixture_ahead = YEAR;
    cr_assert_eq(collect(cache, 90 * FIXTURE_DAY, false).refused, 40);
    aoticache_cache_close(cache);
}

Test(clock, limits_of_size_hold_whatever_the_clock_says)
{
    aoticache_cache *cache = fixture_open();
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.max_age_seconds = 90 * FIXTURE_DAY;
    options.max_entries = 35;
    fill(cache, 1, 40);
    fixture_ahead = YEAR;
    aoticache_collect_report report = collect_with(cache, &options);
    cr_assert_eq(report.refused, 40);
    cr_assert_eq(report.entries_after, 35);
    aoticache_cache_close(cache);
}

Test(clock, time_that_the_machine_has_seen_pass_is_believed)
{
    aoticache_cache *cache = fixture_open();
    fill(cache, 1, 40);
    collect(cache, 0, false);
    set_meta(cache, "collected_uptime_ns", meta(cache, "collected_uptime_ns") - YEAR * 1000000000);
    fixture_ahead = YEAR;
    aoticache_collect_report report = collect(cache, 90 * FIXTURE_DAY, false);
    cr_assert_eq(report.refused, 0);
    cr_assert_eq(report.entries_removed, 40);
    aoticache_cache_close(cache);
}

Test(clock, entries_that_are_in_use_let_the_others_go)
{
    aoticache_cache *cache = fixture_open();
    fill(cache, 1, 40);
    collect(cache, 0, false);
    fixture_ahead = YEAR;
    for (int i = 1; i <= 4; i++)
        use(cache, i);
    aoticache_collect_report report = collect(cache, 90 * FIXTURE_DAY, false);
    cr_assert_eq(report.refused, 0);
    cr_assert_eq(report.entries_removed, 36, "a tenth was used since");
    aoticache_cache_close(cache);
}

Test(clock, few_entries_are_not_worth_a_question)
{
    aoticache_cache *cache = fixture_open();
    fill(cache, 1, 31);
    collect(cache, 0, false);
    fixture_ahead = YEAR;
    cr_assert_eq(collect(cache, 90 * FIXTURE_DAY, false).entries_removed, 31);
    aoticache_cache_close(cache);
}

Test(clock, jump_of_some_days_is_believed)
{
    aoticache_cache *cache = fixture_open();
    fill(cache, 1, 40);
    collect(cache, 0, false);
    fixture_ahead = 6 * FIXTURE_DAY;
    cr_assert_eq(collect(cache, FIXTURE_DAY, false).entries_removed, 40);
    aoticache_cache_close(cache);
}

Test(clock, dry_run_refuses_and_changes_nothing)
{
    aoticache_cache *cache = fixture_open();
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.max_age_seconds = 90 * FIXTURE_DAY;
    options.dry_run = true;
    fill(cache, 1, 40);
    collect_with(cache, &options);
    cr_assert_eq(meta(cache, "collected_ns"), 0);
    fixture_ahead = YEAR;
    aoticache_collect_report report = collect_with(cache, &options);
    cr_assert_eq(report.refused, 40);
    cr_assert_eq(report.entries_removed, 0);
    options.trust_clock = true;
    cr_assert_eq(collect_with(cache, &options).entries_removed, 40);
    aoticache_cache_close(cache);
}

/* ---- quarantine/ ---- */

static int quarantined(void)
{
    char path[4300];
    int count = 0;
    snprintf(path, sizeof path, "%s/quarantine", fixture_cache);
    DIR *listing = opendir(path);
    for (struct dirent *item; listing != NULL && (item = readdir(listing)) != NULL;)
        count += item->d_name[0] != '.';
    if (listing != NULL)
        closedir(listing);
    return count;
}

Test(clock, file_of_the_future_in_quarantine_goes_in_its_turn)
{
    aoticache_cache *cache = fixture_open();
    char path[4400];
    snprintf(path, sizeof path, "%s/quarantine", fixture_cache);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/quarantine/index.sqlite3-%lld", fixture_cache,
             (long long)(aoticache_wall_ns() + 10 * YEAR * 1000000000));
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fclose(file);
    cr_assert_eq(collect(cache, 0, false).quarantine_removed, 0);
    cr_assert_eq(quarantined(), 1);
    fixture_ahead = 31 * FIXTURE_DAY;
    cr_assert_eq(collect(cache, 0, false).quarantine_removed, 1);
    cr_assert_eq(quarantined(), 0);
    aoticache_cache_close(cache);
}

/* ---- statistics ---- */

static bool add_hits(void *user, const aoticache_slot *slot)
{
    *(uint64_t *)user += slot->counters.hits;
    return true;
}

static uint64_t hits_of_a_day(aoticache_cache *cache)
{
    aoticache_statistics_options options = AOTICACHE_STATISTICS_OPTIONS_INIT;
    aoticache_statistics statistics;
    uint64_t hits = 0;
    options.since = AOTICACHE_STATISTICS_SINCE_TIME;
    options.since_ns = aoticache_wall_ns() - FIXTURE_DAY * 1000000000;
    cr_assert_eq(
        aoticache_cache_list_history(cache, options.since_ns, AOTICACHE_SLOT_HOUR_SECONDS, add_hits, &hits, NULL),
        AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_get_statistics(cache, &options, &statistics, NULL), AOTICACHE_OK);
    cr_assert_eq(statistics.counters.hits, hits);
    cr_assert_eq(statistics.latencies.lookup.count, hits);
    return hits;
}

Test(clock, history_of_the_future_is_not_of_today)
{
    aoticache_cache *cache = fixture_open();
    aoticache_statistics statistics;
    fill(cache, 1, 1);
    use(cache, 1);
    fixture_ahead = YEAR;
    use(cache, 1);
    use(cache, 1);
    cr_assert_eq(hits_of_a_day(cache), 2);
    fixture_ahead = 0;
    use(cache, 1);
    cr_assert_leq(hits_of_a_day(cache), 2, "two of its own; what was rolled up lies further back");
    cr_assert_eq(aoticache_cache_get_statistics(cache, NULL, &statistics, NULL), AOTICACHE_OK);
    cr_assert_eq(statistics.counters.hits, 4, "the counters have them all");
    aoticache_cache_close(cache);
}
