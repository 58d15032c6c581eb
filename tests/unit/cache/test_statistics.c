/*
 * cache/stats/statistics: what is counted where, numbers of many processes, groups, pins and tags, and the history, as
 * a user of the library sees them. The index underneath is in test_statistics_index.c.
 */
#include "cache/eager_face.h"
#include "tests/unit/fixtures/cache_fixture.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "cache/entries.h"
#include "cache/cache_internal.h"
#include "cache/stats/statistics.h"
#include "cache/store/lock.h"

TestSuite(statistics, .init = fixture_setup, .fini = fixture_teardown);

static aoticache_statistics read_since(aoticache_cache *cache, aoticache_statistics_since since, int64_t since_ns)
{
    aoticache_statistics statistics;
    aoticache_error error = {.message = ""};
    aoticache_statistics_options options = AOTICACHE_STATISTICS_OPTIONS_INIT;
    options.since = since;
    options.since_ns = since_ns;
    cr_assert_eq(aoticache_cache_get_statistics(cache, &options, &statistics, &error), AOTICACHE_OK, "%s",
                 error.message);
    return statistics;
}

static aoticache_statistics read_all(aoticache_cache *cache)
{
    return read_since(cache, AOTICACHE_STATISTICS_SINCE_CREATED, 0);
}

struct wanted_group {
    const char *name;
    aoticache_group found, sum;
    int count;
};

static bool find_group(void *user, const aoticache_group *group)
{
    struct wanted_group *wanted = user;
    wanted->count++;
    if (strcmp(group->name, wanted->name) == 0)
        wanted->found = *group;
#define ADD_COLUMN(column, text) wanted->sum.column += group->column;
    AOTICACHE_GROUP_COLUMN_LIST(ADD_COLUMN)
#undef ADD_COLUMN
    return true;
}

static struct wanted_group group_of(aoticache_cache *cache, aoticache_group_kind kind, const char *name,
                                    aoticache_statistics_since since)
{
    struct wanted_group wanted = {.name = name};
    aoticache_error error = {.message = ""};
    aoticache_statistics_options options = AOTICACHE_STATISTICS_OPTIONS_INIT;
    options.since = since;
    cr_assert_eq(aoticache_cache_list_groups(cache, kind, &options, find_group, &wanted, &error), AOTICACHE_OK, "%s",
                 error.message);
    return wanted;
}

static aoticache_status deliver_library(void *user, const aoticache_request *request, const char *directory,
                                        aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    (void)request, (void)directory;
    if (user == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_COMPILE_FAILED, "error: no");
    aoticache_file file = {.name = "k.so", .path = user};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    product.producer = "testcc 1";
    product.compile_ns = 7000;
    return deliver(deliver_user, &product);
}

static aoticache_status get(aoticache_cache *cache, int64_t number, const char *text)
{
    aoticache_request *request = fixture_request(number);
    aoticache_artifact *artifact = NULL;
    char *path = text != NULL ? (char *)(uintptr_t)fixture_write("made.so", text) : NULL;
    aoticache_request_set_environment(request, "framework", "testcc", NULL);
    aoticache_request_set_environment(request, "framework_version", "1", NULL);
    aoticache_status status =
        aoticache_cache_get_or_compile(cache, request, NULL, deliver_library, path, &artifact, NULL);
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
    return status;
}

Test(statistics, tiers_and_reasons_add_up)
{
    aoticache_cache *cache = fixture_open();
    cr_assert_eq(get(cache, 1, "one"), AOTICACHE_OK);
    cr_assert_eq(get(cache, 1, "one"), AOTICACHE_OK);
    cr_assert_eq(get(cache, 2, NULL), AOTICACHE_COMPILE_FAILED);
    cr_assert_eq(get(cache, 2, NULL), AOTICACHE_COMPILE_FAILED);
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, 9, &artifact), AOTICACHE_NOT_FOUND);
    aoticache_counters counters = read_all(cache).counters;
    cr_assert_eq(counters.hits, 1);
    cr_assert_eq(aoticache_counters_hits_index(&counters), 1);
    cr_assert_eq(counters.misses, 4);
    cr_assert_eq(counters.misses_failed, 1);
    cr_assert_eq(aoticache_counters_misses_absent(&counters), 3);
    cr_assert_eq(counters.compiles, 1);
    cr_assert_eq(counters.compile_failures, 1);
    aoticache_cache_close(cache);
}

Test(statistics, groups_have_what_the_counters_have)
{
    aoticache_cache *cache = fixture_open();
    cr_assert_eq(get(cache, 1, "one"), AOTICACHE_OK);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(get(cache, 1, "one"), AOTICACHE_OK);
    cr_assert_eq(get(cache, 2, NULL), AOTICACHE_COMPILE_FAILED);
    cr_assert_eq(get(cache, 2, NULL), AOTICACHE_COMPILE_FAILED);
    for (int kind = 0; kind < 3; kind++) {
        static const char *const names[] = {"aten::abs", "cpu", "testcc 1"};
        struct wanted_group wanted = group_of(cache, kind, names[kind], AOTICACHE_STATISTICS_SINCE_CREATED);
        cr_assert_eq(wanted.count, 1, "%s", names[kind]);
        cr_assert_eq(wanted.found.hits, 5);
        cr_assert_eq(wanted.found.misses, 3);
        cr_assert_eq(wanted.found.compiles, 1);
        cr_assert_eq(wanted.found.compile_failures, 1);
        cr_assert_eq(wanted.found.compile_ns, 7000);
        cr_assert_eq(wanted.found.saved_ns, 0, "this process has compiled it");
    }
    aoticache_cache_close(cache);
}

Test(statistics, contents_of_groups_follow_puts_and_removals)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library number two");
    fixture_put(cache, 2, "library number two again");
    struct wanted_group wanted =
        group_of(cache, AOTICACHE_GROUP_OPERATOR, "aten::abs", AOTICACHE_STATISTICS_SINCE_CREATED);
    cr_assert_eq(wanted.found.entries, 2);
    cr_assert_eq(wanted.found.bytes, read_all(cache).bytes);
    aoticache_key key = fixture_key(1);
    cr_assert_eq(aoticache_cache_remove(cache, &key, NULL), AOTICACHE_OK);
    wanted = group_of(cache, AOTICACHE_GROUP_ENVIRONMENT, "test", AOTICACHE_STATISTICS_SINCE_CREATED);
    cr_assert_eq(wanted.found.entries, 1);
    cr_assert_eq(wanted.found.bytes, read_all(cache).bytes);
    aoticache_cache_close(cache);
}

Test(statistics, use_of_an_entry_that_is_gone_counts_as_others)
{
    aoticache_cache *cache = fixture_open();
    aoticache_artifact *artifact = NULL;
    fixture_put(cache, 1, "library one");
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_OK);
    aoticache_artifact_unref(artifact);
    aoticache_key key = fixture_key(1);
    cr_assert_eq(aoticache_cache_remove(cache, &key, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_flush(cache, NULL), AOTICACHE_OK);
    struct wanted_group wanted = group_of(cache, AOTICACHE_GROUP_DEVICE, "(other)", AOTICACHE_STATISTICS_SINCE_CREATED);
    cr_assert_eq(wanted.found.hits, 1);
    cr_assert_eq(wanted.sum.hits, read_all(cache).counters.hits);
    aoticache_cache_close(cache);
}

Test(statistics, latencies_are_counted_and_flushed)
{
    aoticache_cache *cache = fixture_open();
    cr_assert_eq(get(cache, 1, "one"), AOTICACHE_OK);
    for (int i = 0; i < 10; i++)
        cr_assert_eq(get(cache, 1, "one"), AOTICACHE_OK);
    aoticache_cache_note_load(cache, 1000000);
    aoticache_cache_note_load(cache, 3000000);
    aoticache_cache_note_eviction(cache, UINT64_C(86400000000000), 500);
    for (int pass = 0; pass < 2; pass++) { /* unflushed, then from the index */
        aoticache_statistics statistics = read_all(cache);
        aoticache_latencies *latencies = &statistics.latencies;
        cr_assert_eq(latencies->lookup.count, 10);
        cr_assert_eq(latencies->lookup.sum_ns, statistics.counters.lookup_ns);
        cr_assert_gt(latencies->lookup.p50_ns, 0);
        cr_assert_leq(latencies->lookup.p50_ns, latencies->lookup.p99_ns);
        cr_assert_leq(latencies->lookup.p99_ns, latencies->lookup.max_ns);
        cr_assert_eq(latencies->compile.count, 1);
        cr_assert_eq(latencies->compile.max_ns, 7000);
        cr_assert_eq(latencies->load.count, 2);
        cr_assert_eq(latencies->load.sum_ns, 4000000);
        cr_assert_eq(latencies->load.max_ns, 3000000);
        cr_assert_eq(latencies->eviction_age.max_ns, UINT64_C(86400000000000));
        cr_assert_eq(statistics.counters.loads, 2);
        cr_assert_eq(statistics.counters.evicted, 1);
        cr_assert_eq(statistics.counters.evicted_bytes, 500);
        aoticache_cache_close(cache);
        cache = fixture_open();
    }
    aoticache_cache_close(cache);
}

static bool add_bucket(void *user, uint64_t lower_ns, uint64_t upper_ns, uint64_t count)
{
    uint64_t *seen = user;
    cr_assert_leq(lower_ns, upper_ns);
    seen[0] += count;
    seen[1] += lower_ns <= 5000 && 5000 <= upper_ns ? count : 0;
    return true;
}

Test(statistics, buckets_hold_all_values)
{
    aoticache_cache *cache = fixture_open();
    uint64_t seen[2] = {0};
    for (int i = 0; i < 30; i++)
        aoticache_cache_note_load(cache, i < 10 ? 5000 : 123456);
    cr_assert_eq(aoticache_cache_list_latency(cache, AOTICACHE_LATENCY_load, NULL, add_bucket, seen, NULL),
                 AOTICACHE_OK);
    cr_assert_eq(seen[0], 30);
    cr_assert_eq(seen[1], 10);
    cr_assert_eq(aoticache_cache_list_latency(cache, AOTICACHE_LATENCY_COUNT, NULL, add_bucket, seen, NULL),
                 AOTICACHE_INVALID);
    aoticache_cache_close(cache);
}

Test(statistics, zeroing_restarts_the_counts_and_loses_nothing)
{
    aoticache_cache *cache = fixture_open();
    cr_assert_eq(get(cache, 1, "one"), AOTICACHE_OK);
    cr_assert_eq(get(cache, 1, "one"), AOTICACHE_OK);
    aoticache_statistics before = read_since(cache, AOTICACHE_STATISTICS_SINCE_ZERO, 0);
    cr_assert_eq(before.counters.hits, 1, "never zeroed: everything");
    cr_assert_eq(before.zeroed_ns, 0);
    cr_assert_eq(aoticache_cache_zero_statistics(cache, NULL), AOTICACHE_OK);
    aoticache_statistics after = read_since(cache, AOTICACHE_STATISTICS_SINCE_ZERO, 0);
    cr_assert_eq(after.counters.hits, 0);
    cr_assert_eq(after.counters.misses, 0);
    cr_assert_eq(after.latencies.lookup.count, 0);
    cr_assert_eq(after.since_ns, after.zeroed_ns);
    cr_assert_gt(after.since_ns, after.created_ns);
    cr_assert_eq(get(cache, 1, "one"), AOTICACHE_OK);
    aoticache_cache_close(cache);
    cache = fixture_open();
    after = read_since(cache, AOTICACHE_STATISTICS_SINCE_ZERO, 0);
    cr_assert_eq(after.counters.hits, 1);
    cr_assert_eq(after.latencies.lookup.count, 1);
    cr_assert_eq(read_all(cache).counters.hits, 2);
    cr_assert_eq(read_all(cache).latencies.lookup.count, 2);
    cr_assert_eq(group_of(cache, AOTICACHE_GROUP_OPERATOR, "aten::abs", AOTICACHE_STATISTICS_SINCE_ZERO).found.hits, 1);
    cr_assert_eq(group_of(cache, AOTICACHE_GROUP_OPERATOR, "aten::abs", AOTICACHE_STATISTICS_SINCE_CREATED).found.hits,
                 2);
    cr_assert_eq(aoticache_cache_zero_statistics(cache, NULL), AOTICACHE_OK);
    cr_assert_eq(read_since(cache, AOTICACHE_STATISTICS_SINCE_ZERO, 0).counters.hits, 0);
    aoticache_cache_close(cache);
}

Test(statistics, zeroing_a_read_only_cache_is_denied)
{
    aoticache_cache_close(fixture_open());
    aoticache_cache_options options = fixture_options();
    options.read_only = true;
    aoticache_cache *cache = fixture_open_with(&options);
    cr_assert_eq(aoticache_cache_zero_statistics(cache, NULL), AOTICACHE_DENIED);
    cr_assert_eq(group_of(cache, AOTICACHE_GROUP_OPERATOR, "x", AOTICACHE_STATISTICS_SINCE_CREATED).count, 0);
    aoticache_cache_close(cache);
}

struct slots {
    int count;
    uint64_t hits;
    int64_t last_ns;
};

static bool add_slot(void *user, const aoticache_slot *slot)
{
    struct slots *slots = user;
    cr_assert_gt(slot->start_ns, slots->last_ns, "slots are in their order");
    cr_assert_eq(slot->start_ns % slot->length_ns, 0);
    slots->last_ns = slot->start_ns;
    slots->count++;
    slots->hits += slot->counters.hits;
    return true;
}

Test(statistics, history_has_all_that_was_flushed)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    for (int i = 0; i < 6; i++)
        cr_assert(fixture_finds(cache, 1, "library one"));
    static const int64_t steps[] = {300, 3600, 86400};
    for (int i = 0; i < 3; i++) {
        struct slots slots = {.count = 0};
        cr_assert_eq(aoticache_cache_list_history(cache, 0, steps[i], add_slot, &slots, NULL), AOTICACHE_OK);
        cr_assert_geq(slots.count, 1);
        cr_assert_eq(slots.hits, 6);
    }
    int64_t now = aoticache_wall_ns();
    cr_assert_eq(read_since(cache, AOTICACHE_STATISTICS_SINCE_TIME, now - INT64_C(3600000000000)).counters.hits, 6);
    cr_assert_eq(read_since(cache, AOTICACHE_STATISTICS_SINCE_TIME, now + INT64_C(3600000000000)).counters.hits, 0);
    cr_assert_eq(aoticache_cache_list_history(cache, 0, 7, add_slot, NULL, NULL), AOTICACHE_INVALID);
    aoticache_cache_close(cache);
}

static bool count_entry(void *user, const aoticache_entry *entry)
{
    int64_t *last = user;
    cr_assert_geq(entry->last_used_ns, last[1]);
    last[1] = entry->last_used_ns;
    last[0]++;
    return true;
}

static bool see_bytes(void *user, const aoticache_entry *entry)
{
    uint64_t *last = user;
    cr_assert_leq(entry->bytes, last[1]);
    last[1] = entry->bytes;
    last[0]++;
    return true;
}

Test(statistics, extremes_are_in_their_order)
{
    aoticache_cache *cache = fixture_open();
    for (int i = 1; i <= 8; i++) {
        char text[64];
        snprintf(text, sizeof text, "%0*d", i * 3, i);
        fixture_put(cache, i, text);
    }
    int64_t coldest[2] = {0};
    uint64_t largest[2] = {0, UINT64_MAX};
    cr_assert_eq(aoticache_cache_list_extreme(cache, AOTICACHE_EXTREME_COLDEST, 5, count_entry, coldest, NULL),
                 AOTICACHE_OK);
    cr_assert_eq(coldest[0], 5);
    cr_assert_eq(aoticache_cache_list_extreme(cache, AOTICACHE_EXTREME_LARGEST, 3, see_bytes, largest, NULL),
                 AOTICACHE_OK);
    cr_assert_eq(largest[0], 3);
    aoticache_cache_close(cache);
}

/* ---- damage counts once for each object ---- */

static uint64_t count_damaged(aoticache_cache *cache)
{
    return read_all(cache).counters.damaged;
}

static aoticache_cache *open_with_damage(const aoticache_cache_options *options)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library one"); /* two entries, one object */
    aoticache_cache_close(cache);
    fixture_damage(fixture_object_of("library one"));
    return fixture_open_with(options);
}

Test(statistics, damaged_object_that_verifications_found_before_counts_once)
{
    aoticache_cache_options options = fixture_options();
    aoticache_cache *cache = open_with_damage(&options);
    for (int i = 0; i < 2; i++)
        cr_expect_eq(fixture_verify(cache, false).damaged, 1, "it repairs nothing");
    cr_expect_eq(count_damaged(cache), 0, "it is still there");
    for (int number = 1; number <= 2; number++)
        cr_expect_eq(fixture_lookup(cache, number, &(aoticache_artifact *){NULL}), AOTICACHE_NOT_FOUND);
    cr_expect_eq(count_damaged(cache), 1);
    fixture_verify(cache, true);
    cr_expect_eq(count_damaged(cache), 1);
    aoticache_cache_close(cache);
}

Test(statistics, damaged_object_that_a_verification_takes_away_counts_once)
{
    aoticache_cache_options options = fixture_options();
    aoticache_cache *cache = open_with_damage(&options);
    for (int i = 0; i < 2; i++)
        fixture_verify(cache, true);
    cr_expect_eq(fixture_lookup(cache, 1, &(aoticache_artifact *){NULL}), AOTICACHE_NOT_FOUND);
    cr_expect_eq(count_damaged(cache), 1);
    cr_expect_eq(read_all(cache).counters.misses_damaged, 0, "the entry is gone");
    aoticache_cache_close(cache);
}

/* While another process has the store locked, no process can quarantine the object, and all processes find it. */
Test(statistics, damaged_object_that_cannot_be_taken_away_yet_counts_once)
{
    aoticache_cache_options options = fixture_options();
    options.lock_timeout_ms = 10;
    aoticache_cache *cache = open_with_damage(&options), *other = fixture_open();
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    cr_assert_eq(aoticache_lock_store(other->directory, true, &lock, NULL), AOTICACHE_OK);
    for (uint64_t i = 1; i <= 3; i++) {
        cr_expect_eq(fixture_lookup(cache, 1, &(aoticache_artifact *){NULL}), AOTICACHE_NOT_FOUND);
        cr_expect_eq(read_all(cache).counters.misses_damaged, i);
        cr_expect_eq(count_damaged(cache), 0);
    }
    aoticache_lock_release(&lock);
    cr_expect_eq(fixture_lookup(cache, 1, &(aoticache_artifact *){NULL}), AOTICACHE_NOT_FOUND);
    cr_expect_eq(count_damaged(cache), 1);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
}

Test(statistics, damaged_object_of_a_read_only_cache_counts_once_in_a_process)
{
    aoticache_cache_options options = fixture_options();
    options.read_only = true;
    aoticache_cache *cache = open_with_damage(&options);
    for (int i = 0; i < 3; i++)
        for (int number = 1; number <= 2; number++)
            cr_expect_eq(fixture_lookup(cache, number, &(aoticache_artifact *){NULL}), AOTICACHE_NOT_FOUND);
    cr_expect_eq(count_damaged(cache), 1);
    cr_expect_eq(read_all(cache).counters.misses_damaged, 6);
    aoticache_cache_close(cache);
}

/* ---- when it is flushed ---- */

Test(statistics, process_that_only_hits_flushes_now_and_then)
{
    aoticache_cache *cache = fixture_open(), *other = fixture_open();
    fixture_put(cache, 1, "library one");
    cr_assert(fixture_finds(cache, 1, "library one"));
    cr_assert_eq(read_all(other).counters.hits, 0, "not before its time");
    cache->unflushed.flush_after_ns = 1;
    cr_assert(fixture_finds(cache, 1, "library one"));
    cr_assert_eq(read_all(other).counters.hits, 2);
    aoticache_cache_close(cache);
    aoticache_cache_close(other);
}

Test(statistics, process_that_misses_all_the_time_leaves_pauses_between_its_flushes)
{
    aoticache_cache *cache = fixture_open(), *other = fixture_open();
    aoticache_artifact *artifact = NULL;
    uint64_t misses = 0, flushes = 0, seen = 0;
    const uint64_t begun = aoticache_monotonic_ns();
    do {
        cr_assert_eq(fixture_lookup(cache, 9, &artifact), AOTICACHE_NOT_FOUND);
        misses++;
        const uint64_t before = seen;
        seen = read_all(other).counters.misses;
        flushes += seen != before ? 1 : 0;
        cr_assert(misses > 1 || seen == 1, "a single miss is seen at once");
    } while (aoticache_monotonic_ns() - begun < 200000000);
    const uint64_t pauses = (aoticache_monotonic_ns() - begun) / 10000000;
    cr_assert_leq(flushes, pauses + 1, "%llu flushes of %llu misses in %llu pauses", (unsigned long long)flushes,
                  (unsigned long long)misses, (unsigned long long)pauses);
    aoticache_cache_close(cache);
    cr_assert_eq(read_all(other).counters.misses, misses, "none is lost");
    aoticache_cache_close(other);
}

static int fail_writes(void *user, const char *call, const char *path)
{
    (void)user, (void)path;
    return strcmp(call, "write") == 0 || strcmp(call, "pwrite") == 0 || strcmp(call, "sqlite_write") == 0 ? EIO : 0;
}

Test(statistics, flush_that_fails_is_made_up_for)
{
    aoticache_index_syscall_hooks_install();
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    for (int i = 0; i < 3; i++)
        cr_assert(fixture_finds(cache, 1, "library one"));
    cr_assert_eq(fixture_lookup(cache, 5, &(aoticache_artifact *){NULL}), AOTICACHE_NOT_FOUND);
    for (int i = 0; i < 4; i++)
        cr_assert(fixture_finds(cache, 1, "library one"));
    aoticache_syscall_hook_set(fail_writes, NULL);
    aoticache_status failed = aoticache_cache_flush(cache, NULL);
    aoticache_syscall_hook_set(NULL, NULL);
    cr_assert_neq(failed, AOTICACHE_OK);
    cr_assert_eq(read_all(cache).counters.hits, 7);
    cr_assert_eq(read_all(cache).latencies.lookup.count, 7);
    cr_assert_eq(aoticache_cache_flush(cache, NULL), AOTICACHE_OK);
    aoticache_cache_close(cache);
    cache = fixture_open();
    cr_assert_eq(read_all(cache).counters.hits, 7);
    cr_assert_eq(read_all(cache).latencies.lookup.count, 7);
    struct wanted_group wanted =
        group_of(cache, AOTICACHE_GROUP_OPERATOR, "aten::abs", AOTICACHE_STATISTICS_SINCE_CREATED);
    cr_assert_eq(wanted.found.hits, 7);
    cr_assert_eq(wanted.found.misses, 1);
    aoticache_cache_close(cache);
}

/* ---- many processes ---- */

#define PROCESSES 8
#define LOOKUPS 2000

/*
 * Works as one process. Even ones end normally; odd ones flush after half of their lookups, continue, and are killed.
 */
static void work(int number)
{
    aoticache_cache *cache = fixture_open();
    for (int i = 0; i < LOOKUPS; i++) {
        aoticache_artifact *artifact = NULL;
        if (fixture_lookup(cache, i % 16, &artifact) != AOTICACHE_OK)
            _exit(1);
        aoticache_artifact_unref(artifact);
        if (number % 2 == 1 && i + 1 == LOOKUPS / 2 && aoticache_cache_flush(cache, NULL) != AOTICACHE_OK)
            _exit(2);
    }
    if (number % 2 == 1)
        raise(SIGKILL);
    aoticache_cache_close(cache);
    _exit(0);
}

Test(statistics, numbers_of_many_processes_add_up, .timeout = 600)
{
    aoticache_cache *cache = fixture_open();
    for (int i = 0; i < 16; i++) {
        char text[32];
        snprintf(text, sizeof text, "library %d", i);
        fixture_put(cache, i, text);
    }
    aoticache_cache_close(cache);
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0)
            work(i);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int result;
        cr_assert_eq(waitpid(children[i], &result, 0), children[i]);
        cr_assert(i % 2 == 1 ? WIFSIGNALED(result) : WIFEXITED(result) && WEXITSTATUS(result) == 0, "process %d: %d", i,
                  result);
    }
    const uint64_t expected = PROCESSES / 2 * LOOKUPS + PROCESSES / 2 * (LOOKUPS / 2);
    cache = fixture_open();
    aoticache_statistics statistics = read_all(cache);
    cr_assert_eq(statistics.counters.hits, expected);
    const uint64_t saved = PROCESSES * 16 * 1000; /* each process has found each of 16 entries */
    cr_assert_eq(statistics.counters.saved_ns, saved);
    cr_assert_eq(statistics.latencies.lookup.count, expected);
    cr_assert_eq(statistics.latencies.lookup.sum_ns, statistics.counters.lookup_ns);
    struct wanted_group wanted =
        group_of(cache, AOTICACHE_GROUP_OPERATOR, "aten::abs", AOTICACHE_STATISTICS_SINCE_CREATED);
    cr_assert_eq(wanted.found.hits, expected);
    cr_assert_eq(wanted.found.saved_ns, saved);
    struct slots slots = {.count = 0};
    cr_assert_eq(aoticache_cache_list_history(cache, 0, 86400, add_slot, &slots, NULL), AOTICACHE_OK);
    cr_assert_eq(slots.hits, expected);
    aoticache_cache_close(cache);
}

#define LOOKING_THREADS 4
#define LOOKUPS 2000

static void *look_up_many(void *cache)
{
    for (int i = 0; i < LOOKUPS; i++) {
        aoticache_artifact *artifact = NULL;
        cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_OK);
        aoticache_artifact_unref(artifact);
        if (i % 100 == 0)
            aoticache_cache_flush(cache, NULL);
    }
    return NULL;
}

static bool see_uses(void *user, const aoticache_entry *entry)
{
    *(uint64_t *)user = entry->uses;
    return true;
}

Test(statistics, lookups_of_several_threads_during_flushes_are_exact)
{
    aoticache_cache *cache = fixture_open();
    pthread_t threads[LOOKING_THREADS];
    uint64_t uses = 0;
    fixture_put(cache, 1, "library one");
    for (int i = 0; i < LOOKING_THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, look_up_many, cache), 0);
    for (int i = 0; i < LOOKING_THREADS; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(aoticache_cache_flush(cache, NULL), AOTICACHE_OK);
    aoticache_statistics statistics = read_all(cache);
    cr_assert_eq(statistics.counters.hits, LOOKING_THREADS * LOOKUPS);
    cr_assert_eq(statistics.latencies.lookup.count, LOOKING_THREADS * LOOKUPS);
    cr_assert_eq(statistics.latencies.lookup.sum_ns, statistics.counters.lookup_ns);
    cr_assert_eq(aoticache_cache_list(cache, NULL, NULL, see_uses, &uses, NULL), AOTICACHE_OK);
    cr_assert_eq(uses, LOOKING_THREADS * LOOKUPS);
    aoticache_cache_close(cache);
}

Test(statistics, child_of_a_fork_counts_for_itself)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    for (int i = 0; i < 3; i++)
        cr_assert(fixture_finds(cache, 1, "library one"));
    pid_t child = fork();
    if (child == 0) {
        aoticache_cache_note_load(cache, 1000);
        aoticache_cache_close(cache);
        _exit(0);
    }
    int result;
    waitpid(child, &result, 0);
    cr_assert_eq(result, 0);
    aoticache_cache_close(cache);
    cache = fixture_open();
    cr_assert_eq(read_all(cache).latencies.lookup.count, 3);
    cr_assert_eq(read_all(cache).latencies.load.count, 1);
    aoticache_cache_close(cache);
}

/*
 * A process that had only hits writes its counters when it ends: it must not wait long for another process that is
 * stopped.
 */
Test(statistics, close_does_not_wait_long_for_a_writer_that_is_stopped)
{
    aoticache_cache *cache = fixture_open();
    aoticache_artifact *artifact = NULL;
    fixture_put(cache, 1, "library");
    aoticache_cache_close(cache);
    cache = fixture_open();
    pid_t stopped = fork();
    if (stopped == 0) {
        aoticache_cache *own = fixture_open();
        if (aoticache_index_bulk_begin(aoticache_cache_index(own), NULL) == AOTICACHE_OK)
            raise(SIGSTOP);
        _exit(1);
    }
    int how;
    cr_assert_eq(waitpid(stopped, &how, WUNTRACED), stopped);
    cr_assert(WIFSTOPPED(how));
    const uint64_t begun = aoticache_monotonic_ns();
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_OK);
    aoticache_artifact_unref(artifact);
    cr_expect_lt(aoticache_monotonic_ns() - begun, 900000000, "a hit needs no lock that somebody else has");
    aoticache_cache_close(cache);
    cr_expect_lt(aoticache_monotonic_ns() - begun, 4000000000);
    kill(stopped, SIGKILL);
    waitpid(stopped, NULL, 0);
}

Test(statistics, bad_arguments_are_refused)
{
    aoticache_cache *cache = fixture_open();
    aoticache_statistics statistics;
    aoticache_statistics_options options = {.size = 2};
    cr_assert_eq(aoticache_cache_get_statistics(NULL, NULL, &statistics, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_cache_get_statistics(cache, &options, &statistics, NULL), AOTICACHE_INVALID);
    options = (aoticache_statistics_options)AOTICACHE_STATISTICS_OPTIONS_INIT;
    options.since = AOTICACHE_STATISTICS_SINCE_TIME;
    cr_assert_eq(aoticache_cache_list_groups(cache, AOTICACHE_GROUP_DEVICE, &options, find_group, NULL, NULL),
                 AOTICACHE_INVALID, "groups have no history");
    cr_assert_eq(aoticache_cache_list_groups(cache, 3, NULL, find_group, NULL, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_cache_zero_statistics(NULL, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_cache_flush(NULL, NULL), AOTICACHE_INVALID);
    aoticache_cache_note_load(NULL, 1);
    aoticache_cache_close(cache);
}
