/*
 * The budget of a cache: puts keep the store within it, and nothing else collects.
 */
#include "tests/unit/fixtures/cache_fixture.h"

#include <sys/file.h>

#include "cache/entries.h"
#include "cache/cache_internal.h"
#include "cache/stats/statistics.h"
#include "tests/helpers/index.h"

TestSuite(collect_budget, .init = fixture_setup, .fini = fixture_teardown, .timeout = 300);

#define LIBRARY_BYTES 20000

static const char *library(int number)
{
    static char text[LIBRARY_BYTES + 1];
    memset(text, 'x', LIBRARY_BYTES);
    text[0] = (char)('0' + number / 10);
    text[1] = (char)('0' + number % 10);
    return text;
}

static aoticache_cache *open_with(uint64_t max_bytes, uint64_t max_entries)
{
    aoticache_cache_options options = fixture_options();
    options.max_bytes = max_bytes;
    options.max_entries = max_entries;
    return fixture_open_with(&options);
}

static aoticache_statistics read_statistics(aoticache_cache *cache)
{
    aoticache_statistics statistics;
    cr_assert_eq(aoticache_cache_get_statistics(cache, NULL, &statistics, NULL), AOTICACHE_OK);
    return statistics;
}

static bool has(aoticache_cache *cache, int64_t number)
{
    aoticache_artifact *artifact = NULL;
    bool found = fixture_lookup(cache, number, &artifact) == AOTICACHE_OK;
    aoticache_artifact_unref(artifact);
    return found;
}

Test(collect_budget, puts_stay_below_max_bytes_and_come_down_to_nine_tenths)
{
    const uint64_t budget = 20 * LIBRARY_BYTES;
    aoticache_cache *cache = open_with(budget, UINT64_MAX);
    uint64_t lowest = UINT64_MAX;
    for (int i = 1; i <= 60; i++) {
        uint64_t before = read_statistics(cache).bytes;
        fixture_put(cache, i, library(i));
        uint64_t after = read_statistics(cache).bytes;
        cr_assert_leq(after, budget, "put %d", i);
        if (after < before && after < lowest)
            lowest = after;
        cr_assert(has(cache, i), "what was put last is there");
    }
    cr_assert_leq(lowest, budget / 10 * 9, "%llu of %llu", (unsigned long long)lowest, (unsigned long long)budget);
    cr_assert_gt(read_statistics(cache).bytes, budget / 2, "no more goes than has to");
    cr_assert_not(has(cache, 1));
    cr_assert_eq(index_verify(aoticache_cache_index(cache), NULL), AOTICACHE_OK);
    cr_assert_eq(fixture_verify(cache, false).unreferenced, 0);
    cr_assert_gt(read_statistics(cache).counters.evicted, 30);
    aoticache_cache_close(cache);
}

Test(collect_budget, max_entries_holds_too)
{
    aoticache_cache *cache = open_with(UINT64_MAX, 10);
    for (int i = 1; i <= 40; i++) {
        fixture_put(cache, i, library(i));
        cr_assert_leq(read_statistics(cache).entries, 10);
    }
    aoticache_cache_close(cache);
}

Test(collect_budget, no_limit_collects_nothing)
{
    aoticache_cache *cache = open_with(UINT64_MAX, UINT64_MAX);
    for (int i = 1; i <= 10; i++)
        fixture_put(cache, i, library(i));
    cr_assert_eq(read_statistics(cache).entries, 10);
    aoticache_cache_close(cache);
}

Test(collect_budget, lookups_never_collect)
{
    aoticache_cache *cache = open_with(UINT64_MAX, UINT64_MAX);
    for (int i = 1; i <= 5; i++)
        fixture_put(cache, i, library(i));
    aoticache_cache_close(cache);
    cache = open_with(1, 1);
    for (int i = 1; i <= 5; i++)
        cr_assert(has(cache, i));
    cr_assert_not(has(cache, 6));
    cr_assert_eq(read_statistics(cache).entries, 5);
    aoticache_cache_close(cache);
}

Test(collect_budget, what_a_process_holds_stays_although_it_is_too_much)
{
    aoticache_cache *cache = open_with(UINT64_MAX, 2);
    aoticache_artifact *held[4];
    for (int i = 0; i < 4; i++)
        cr_assert_eq(fixture_try_put(cache, i, library(i), &held[i], NULL), AOTICACHE_OK);
    cr_assert_eq(read_statistics(cache).entries, 4);
    for (int i = 0; i < 4; i++) {
        cr_assert_geq(aoticache_artifact_library_fd(held[i]), 0);
        aoticache_artifact_unref(held[i]);
    }
    usleep(1100000); /* after a step that freed nothing, puts do not try again for a second */
    fixture_put(cache, 9, library(9));
    cr_assert_leq(read_statistics(cache).entries, 2);
    aoticache_cache_close(cache);
}

Test(collect_budget, put_does_not_wait_for_another_collector)
{
    aoticache_cache *cache = open_with(UINT64_MAX, 2);
    char path[4400];
    for (int i = 0; i < 2; i++)
        fixture_put(cache, i, library(i));
    snprintf(path, sizeof path, "%s/collect.lock", fixture_cache);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    fixture_put(cache, 2, library(2));
    cr_assert_eq(read_statistics(cache).entries, 3, "somebody else is at it");
    close(fd);
    fixture_put(cache, 3, library(3));
    cr_assert_leq(read_statistics(cache).entries, 2, "and the next put does it");
    aoticache_cache_close(cache);
}
