/*
 * Collections: every option, every number of the report, and what a collection leaves to the next.
 */
#include "tests/unit/fixtures/cache_fixture.h"
#include "tests/unit/fixtures/emulator.h"
#include "tests/unit/fixtures/clock_fixture.h"

#include <sys/mount.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "cache/cache_internal.h"
#include "cache/pins/pins.h"
#include "index/eviction/eviction.h"
#include "tests/helpers/index.h"
#include "tests/helpers/pins.h"

TestSuite(collect_options, .init = fixture_setup, .fini = fixture_teardown, .timeout = 300);

#define LIBRARY_BYTES 20000

static const char *library(int number)
{
    static char text[LIBRARY_BYTES + 1];
    memset(text, 'a' + number, LIBRARY_BYTES);
    return text;
}

static void put_op(aoticache_cache *cache, const char *op, int64_t number, const char *text, uint64_t compile_ns)
{
    aoticache_request *request = NULL;
    aoticache_error error = {.message = ""};
    aoticache_file file = {.name = "library.so", .path = fixture_write("made.so", text)};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    product.compile_ns = compile_ns;
    cr_assert_eq(aoticache_request_create(op, (aoticache_device){.type = 0, .index = -1}, &request, &error),
                 AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_int(request, NULL, number, &error), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_request_free(request);
}

static aoticache_cache *cache_of(int entries)
{
    aoticache_cache *cache = fixture_open();
    for (int i = 1; i <= entries; i++)
        fixture_put(cache, i, library(i));
    return cache;
}

static aoticache_collect_report collect(aoticache_cache *cache, const aoticache_collect_options *options)
{
    aoticache_collect_report report;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_collect(cache, options, NULL, NULL, &report, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s: %s", aoticache_status_name(status), error.message);
    cr_assert_eq(report.entries_after, report.entries_before - report.entries_removed);
    cr_assert_eq(report.bytes_after, report.bytes_before - report.bytes_removed);
    return report;
}

/* Returns whether there is an entry, without marking it as used as a lookup would. */
static bool has(aoticache_cache *cache, int64_t number)
{
    aoticache_key key = fixture_key(number);
    aoticache_index_hit hit;
    size_t count;
    return aoticache_index_lookup(aoticache_cache_index(cache), &key, &hit, 1, &count, NULL) == AOTICACHE_OK;
}

static void check_index(aoticache_cache *cache)
{
    aoticache_error error = {.message = ""};
    cr_assert_eq(index_verify(aoticache_cache_index(cache), &error), AOTICACHE_OK, "%s", error.message);
}

/* ---- limits ---- */

Test(collect_options, nothing_is_due_without_limits)
{
    aoticache_cache *cache = cache_of(3);
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    aoticache_collect_report report = collect(cache, &options);
    cr_assert_eq(report.entries_before, 3);
    cr_assert_eq(report.entries_removed + report.objects_removed + report.held + report.pinned + report.kept, 0);
    cr_assert_not(report.is_partial);
    aoticache_cache_close(cache);
}

Test(collect_options, max_entries_goes_down_to_low_entries_once_it_is_crossed)
{
    aoticache_cache *cache = cache_of(6);
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.max_entries = 6;
    options.low_entries = 2;
    cr_assert_eq(collect(cache, &options).entries_removed, 0, "not above it");
    options.max_entries = 5;
    cr_assert_eq(collect(cache, &options).entries_after, 2);
    cr_assert(has(cache, 5));
    cr_assert(has(cache, 6));
    check_index(cache);
    aoticache_cache_close(cache);
}

Test(collect_options, max_bytes_goes_down_to_low_bytes_once_it_is_crossed)
{
    aoticache_cache *cache = cache_of(6);
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.low_bytes = 3 * LIBRARY_BYTES;
    options.max_bytes = 7 * LIBRARY_BYTES;
    cr_assert_eq(collect(cache, &options).entries_removed, 0);
    options.max_bytes = 5 * LIBRARY_BYTES;
    aoticache_collect_report report = collect(cache, &options);
    cr_assert_eq(report.entries_after, 2, "manifests count too");
    cr_assert_leq(report.bytes_after, options.low_bytes);
    aoticache_cache_close(cache);
}

Test(collect_options, low_watermark_above_the_limit_means_the_limit)
{
    aoticache_cache *cache = cache_of(4);
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.max_entries = 3;
    options.low_entries = 100;
    cr_assert_eq(collect(cache, &options).entries_after, 3);
    aoticache_cache_close(cache);
}

Test(collect_options, min_free_evicts_what_the_file_system_lacks)
{
    aoticache_cache *cache = cache_of(4);
    struct statvfs filesystem;
    cr_assert_eq(statvfs(fixture_cache, &filesystem), 0);
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.dry_run = true;
    options.min_free_bytes = 1;
    cr_assert_eq(collect(cache, &options).entries_removed, 0);
    options.min_free_bytes = UINT64_MAX / 2;
    cr_assert_eq(collect(cache, &options).entries_removed, 4, "all that there is, and no failure");
    options.min_free_bytes = 0;
    options.min_free_share = 0.999999;
    cr_assert_eq(collect(cache, &options).entries_removed, 4);
    aoticache_cache_close(cache);
}

/* Uses a separate file system, which no other process fills meanwhile. */
Test(collect_options, for_free_space_what_nobody_finds_goes_first)
{
    struct statvfs filesystem;
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    if (mkdir(fixture_cache, 0700) != 0 || mount("tmpfs", fixture_cache, "tmpfs", 0, "size=16m,mode=0700") != 0)
        cr_skip_test("a file system cannot be mounted here");
    aoticache_cache *cache = cache_of(4);
    char command[3 * PATH_MAX];
    snprintf(command, sizeof command,
             "mkdir -p -m 700 '%s/quarantine' && head -c 4000000 /dev/zero >'%s/quarantine/damaged'", fixture_cache,
             fixture_cache);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(statvfs(fixture_cache, &filesystem), 0);
    options.min_free_bytes = (uint64_t)filesystem.f_bavail * filesystem.f_frsize + 2000000;
    options.dry_run = true;
    aoticache_collect_report dry = collect(cache, &options);
    cr_expect_eq(dry.entries_removed, 0);
    cr_expect_eq(dry.quarantine_removed, 1);
    options.dry_run = false;
    aoticache_collect_report report = collect(cache, &options);
    cr_expect_eq(report.entries_removed, 0, "%llu", (unsigned long long)report.entries_removed);
    cr_expect_eq(report.quarantine_removed, 1);
    options.quarantine_age_seconds = UINT64_MAX;
    cr_assert_eq(system(command), 0);
    report = collect(cache, &options);
    cr_expect_eq(report.quarantine_removed, 0, "who says never keeps it");
    cr_expect_gt(report.entries_removed, 0);
    aoticache_cache_close(cache);
    cr_expect_eq(umount2(fixture_cache, MNT_DETACH), 0);
}

Test(collect_options, many_windows_and_batches_go_to_the_last_entry)
{
    aoticache_cache *cache = fixture_open();
    aoticache_index *index = aoticache_cache_index(cache);
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_index_bulk_begin(index, &error), AOTICACHE_OK);
    for (uint32_t i = 0; i < 6000; i++) { /* more than a round; only rows: their files do not exist */
        aoticache_index_object object = {.bytes = 10};
        aoticache_index_entry entry = {.op = "x", .device = "", .description = "", .producer = "", .created_ns = 1 + i};
        memcpy(object.digest.bytes, &i, sizeof i);
        object.digest.bytes[31] = 1;
        entry.key = entry.artifact = entry.library = object.digest;
        entry.objects = &object;
        entry.object_count = entry.file_count = 1;
        cr_assert_eq(index_put(index, &entry, &error), AOTICACHE_OK, "%s", error.message);
    }
    cr_assert_eq(aoticache_index_bulk_end(index, AOTICACHE_OK, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    for (int policy = 0; policy < 2; policy++) {
        options.policy = policy;
        options.max_entries = policy == 0 ? 1500 : 700;
        cr_assert_eq(collect(cache, &options).entries_after, options.max_entries);
        check_index(cache);
    }
    options.max_bytes = 1;
    cr_assert_eq(collect(cache, &options).entries_after, 0);
    aoticache_index_removal waiting;
    size_t count = 1;
    cr_assert_eq(aoticache_index_list_removals(index, INT64_MIN, &waiting, 1, &count, NULL), AOTICACHE_OK);
    cr_assert_eq(count, 0, "nothing is left to remove");
    check_index(cache);
    aoticache_cache_close(cache);
}

/* ---- which entries are removed ---- */

Test(collect_options, cost_takes_what_is_large_and_quick_to_compile)
{
    aoticache_cache *cache = fixture_open();
    put_op(cache, "aten::abs", 1, "small", 1000000000);
    put_op(cache, "aten::abs", 2, library(2), 60000000000);
    put_op(cache, "aten::abs", 3, library(3), 10000000); /* removed first: many bytes for a hundredth of a second */
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.policy = AOTICACHE_COLLECT_COST;
    options.max_entries = 2;
    collect(cache, &options);
    cr_assert(has(cache, 1) && has(cache, 2));
    cr_assert_not(has(cache, 3));
    options.policy = AOTICACHE_COLLECT_LRU;
    options.max_entries = 1;
    collect(cache, &options);
    cr_assert(has(cache, 2));
    aoticache_cache_close(cache);
}

Test(collect_options, cost_still_takes_what_is_too_old)
{
    aoticache_cache *cache = cache_of(2);
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.policy = AOTICACHE_COLLECT_COST;
    options.max_age_seconds = 1;
    fixture_ahead = 2;
    cr_assert_eq(collect(cache, &options).entries_after, 0);
    aoticache_cache_close(cache);
}

Test(collect_options, kept_operators_stay_and_are_counted)
{
    aoticache_cache *cache = fixture_open();
    put_op(cache, "aten::mm", 1, "one", 1);
    put_op(cache, "aten::bmm", 2, "two", 1);
    put_op(cache, "my::abs", 3, "three", 1);
    const char *const keep[] = {"none::*", "aten::?mm", "my::*", NULL};
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.max_bytes = 1;
    options.keep = keep;
    options.dry_run = true;
    aoticache_collect_report dry = collect(cache, &options);
    options.dry_run = false;
    aoticache_collect_report report = collect(cache, &options);
    cr_assert_eq(report.kept, 2);
    cr_assert_eq(report.entries_removed, 1);
    cr_assert_eq(dry.kept, report.kept);
    cr_assert_eq(dry.entries_removed, report.entries_removed);
    aoticache_cache_close(cache);
}

Test(collect_options, pinned_entries_stay_and_are_counted)
{
    aoticache_cache *cache = cache_of(3);
    aoticache_key key = fixture_key(2);
    aoticache_error error = {.message = ""};
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    cr_assert_eq(pin_key(cache, &key, &error), AOTICACHE_OK, "%s", error.message);
    options.max_bytes = 1;
    aoticache_collect_report report = collect(cache, &options);
    cr_assert_eq(report.pinned, 1);
    cr_assert_eq(report.entries_removed, 2);
    cr_assert(has(cache, 2));
    cr_assert_eq(unpin_key(cache, &key, NULL), AOTICACHE_OK);
    cr_assert_eq(collect(cache, &options).entries_removed, 1);
    aoticache_cache_close(cache);
}

Test(collect_options, entry_used_after_it_was_chosen_stays)
{
    aoticache_cache *cache = cache_of(1);
    aoticache_index *index = aoticache_cache_index(cache);
    aoticache_index_victim victim = {.entry_id = 0};
    aoticache_index_hit hit;
    size_t count;
    aoticache_key key = fixture_key(1);
    cr_assert_eq(aoticache_index_lookup(index, &key, &hit, 1, &count, NULL), AOTICACHE_OK);
    victim = (aoticache_index_victim){.entry_id = hit.entry_id, .last_used_ns = 12345};
    aoticache_index_eviction eviction;
    cr_assert_eq(aoticache_index_evict(index, &victim, 1, NULL, 0, 1000000, true, &eviction, NULL), AOTICACHE_OK);
    cr_assert_eq(eviction.tried, 1);
    cr_assert_eq(eviction.entries, 0);
    cr_assert_not(victim.is_gone);
    cr_assert(has(cache, 1));
    aoticache_cache_close(cache);
}

/* ---- stopping ---- */

static bool stop_at_once(void *user, uint64_t done, uint64_t all)
{
    ++*(int *)user;
    cr_assert_leq(done, all);
    return false;
}

static bool count_call(void *user, uint64_t done, uint64_t all)
{
    cr_assert_leq(done, all);
    ++*(int *)user;
    return true;
}

Test(collect_options, progress_is_told_and_may_stop_it)
{
    aoticache_cache *cache = cache_of(3);
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    aoticache_collect_report report;
    int calls = 0;
    options.max_bytes = 1;
    options.progress = stop_at_once;
    cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, &calls, &report, NULL), AOTICACHE_OK);
    cr_assert_eq(calls, 1, "it is not asked again");
    cr_assert(report.is_partial);
    fixture_put(cache, 9, library(9));
    options.progress = count_call;
    cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, &calls, &report, NULL), AOTICACHE_OK);
    cr_assert_gt(calls, 1);
    cr_assert_not(report.is_partial);
    cr_assert_eq(fixture_files("objects"), 0);
    aoticache_cache_close(cache);
}

static bool stop_after_first(void *user, const aoticache_entry *entry)
{
    (void)entry;
    ++*(int *)user;
    return false;
}

Test(collect_options, callback_that_had_enough_stops_it)
{
    aoticache_cache *cache = cache_of(3);
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    aoticache_collect_report report;
    int calls = 0;
    options.max_bytes = 1;
    cr_assert_eq(aoticache_cache_collect(cache, &options, stop_after_first, &calls, &report, NULL), AOTICACHE_OK);
    cr_assert_eq(calls, 1);
    cr_assert(report.is_partial);
    cr_assert_eq(fixture_verify(cache, false).unreferenced, 0, "what had left the index has left the disk");
    aoticache_cache_close(cache);
}

enum { MANY = 20000 };

static aoticache_digest digest_of_row(uint32_t number)
{
    aoticache_digest digest = {.bytes = {0}};
    memcpy(digest.bytes, &number, sizeof number);
    digest.bytes[31] = 1;
    return digest;
}

/* Adds entries without files. */
static void put_rows(aoticache_index *index)
{
    cr_assert_eq(aoticache_index_bulk_begin(index, NULL), AOTICACHE_OK);
    for (uint32_t i = 0; i < MANY; i++) {
        aoticache_index_object object = {.digest = digest_of_row(i), .bytes = 10};
        aoticache_index_entry entry = {.op = "x", .device = "", .description = "", .producer = "", .created_ns = 1 + i};
        entry.key = entry.artifact = entry.library = object.digest;
        entry.objects = &object;
        entry.object_count = entry.file_count = 1;
        cr_assert_eq(index_put(index, &entry, NULL), AOTICACHE_OK);
    }
    cr_assert_eq(aoticache_index_bulk_end(index, AOTICACHE_OK, NULL), AOTICACHE_OK);
}

Test(collect_options, time_limit_stops_it_with_a_sound_store)
{
    aoticache_cache *cache = cache_of(1);
    put_rows(aoticache_cache_index(cache));
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.max_bytes = 1;
    options.time_limit_ms = 1;
    aoticache_collect_report report = collect(cache, &options);
    cr_assert(report.is_partial);
    cr_assert_gt(report.entries_removed, 0, "it does something however short the time");
    cr_assert_gt(report.entries_after, 0);
    check_index(cache);
    options.time_limit_ms = 0;
    cr_assert_eq(collect(cache, &options).entries_after, 0);
    aoticache_cache_close(cache);
}

static size_t count_waiting(aoticache_cache *cache)
{
    static aoticache_index_removal waiting[MANY];
    size_t count = 0;
    cr_assert_eq(aoticache_index_list_removals(aoticache_cache_index(cache), INT64_MIN, waiting, MANY, &count, NULL),
                 AOTICACHE_OK);
    return count;
}

/*
 * Works off what killed collections left: entries removed from the index whose files still exist. Returns the number of
 * collections of a millisecond that this takes.
 */
static size_t work_off_a_backlog(void)
{
    aoticache_cache *cache = cache_of(1);
    aoticache_index *index = aoticache_cache_index(cache);
    put_rows(index);
    cr_assert_eq(aoticache_index_bulk_begin(index, NULL), AOTICACHE_OK);
    for (uint32_t i = 0; i < MANY; i++) {
        const aoticache_digest key = digest_of_row(i);
        uint64_t removed = 0;
        cr_assert_eq(aoticache_index_remove_key(index, &key, &removed, NULL), AOTICACHE_OK);
    }
    cr_assert_eq(aoticache_index_bulk_end(index, AOTICACHE_OK, NULL), AOTICACHE_OK);
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.time_limit_ms = 1;
    size_t left = count_waiting(cache), runs = 0;
    cr_assert_eq(left, MANY);
    while (left > 0) {
        const aoticache_collect_report report = collect(cache, &options);
        const size_t before = left;
        left = count_waiting(cache);
        cr_assert_lt(left, before);
        cr_assert(left == 0 || report.is_partial);
        runs++;
    }
    cr_assert(has(cache, 1));
    check_index(cache);
    aoticache_cache_close(cache);
    return runs;
}

/* If other programs keep the processor from the thread that reads the clock, one collection can do all of it. */
Test(collect_options, backlog_is_worked_off_however_short_the_time)
{
    enum { TRIES = 8 };
    size_t runs = 0;
    SKIP_UNDER_EMULATOR(EMULATOR_IS_SLOW);
    for (int i = 0; i < TRIES && runs <= 1; i++)
        runs = work_off_a_backlog();
    cr_assert_gt(runs, 1, "one was enough each time: this shows nothing");
}

/* ---- files that do not belong to entries ---- */

Test(collect_options, expired_failures_go_and_others_stay)
{
    aoticache_cache *cache = cache_of(1);
    aoticache_index *index = aoticache_cache_index(cache);
    for (int i = 0; i < 3; i++) {
        aoticache_index_failure failure = {.op = "x", .description = "", .message = "no", .failed_ns = 1};
        failure.key.bytes[0] = (uint8_t)(i + 1);
        failure.retry_ns = i < 2 ? 10 : INT64_MAX;
        cr_assert_eq(aoticache_index_put_failure(index, &failure, NULL), AOTICACHE_OK);
    }
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.dry_run = true;
    cr_assert_eq(collect(cache, &options).failures_removed, 2);
    options.dry_run = false;
    cr_assert_eq(collect(cache, &options).failures_removed, 2);
    cr_assert_eq(collect(cache, &options).failures_removed, 0);
    check_index(cache);
    aoticache_index_totals totals;
    cr_assert_eq(aoticache_index_read_totals(index, &totals, NULL), AOTICACHE_OK);
    cr_assert_eq(totals.failures, 1);
    check_index(cache);
    aoticache_cache_close(cache);
}

Test(collect_options, quarantine_goes_by_the_time_in_its_names)
{
    aoticache_cache *cache = cache_of(1);
    char path[4400];
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    snprintf(path, sizeof path, "%s/quarantine", fixture_cache);
    cr_assert_eq(mkdir(path, 0700), 0);
    int64_t hour_ago = aoticache_wall_ns() - INT64_C(3600) * 1000000000;
    snprintf(path, sizeof path, "cache/quarantine/0123-%lld", (long long)hour_ago);
    fixture_write(path, "damaged an hour ago");
    fixture_write("cache/quarantine/4567-1000", "damaged in 1970");
    fixture_write("cache/quarantine/odd", "by hand, just now");
    options.quarantine_age_seconds = UINT64_MAX;
    cr_assert_eq(collect(cache, &options).quarantine_removed, 0);
    options.quarantine_age_seconds = 0;
    options.dry_run = true;
    cr_assert_eq(collect(cache, &options).quarantine_removed, 1);
    options.dry_run = false;
    cr_assert_eq(collect(cache, &options).quarantine_removed, 1, "thirty days");
    options.quarantine_age_seconds = 600;
    cr_assert_eq(collect(cache, &options).quarantine_removed, 1);
    cr_assert_eq(fixture_names("quarantine"), 1);
    aoticache_cache_close(cache);
}

/* Writes an object as a put does before it is killed. */
static void orphan(const char *text)
{
    const char *path = fixture_object_of(text);
    char directory[4400];
    snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(path, '/') - path), path);
    mkdir(directory, 0700);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

Test(collect_options, objects_that_nothing_names_are_found)
{
    aoticache_cache *cache = cache_of(3);
    orphan("written by a put that was killed");
    orphan("and another");
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.dry_run = true;
    aoticache_collect_report dry = collect(cache, &options);
    cr_assert_eq(dry.objects_removed, 2);
    options.dry_run = false;
    options.scan = true;
    aoticache_collect_report report = collect(cache, &options);
    cr_assert_eq(report.objects_removed, 2);
    cr_assert_eq(report.bytes_removed, strlen("written by a put that was killed") + strlen("and another"));
    cr_assert_eq(dry.bytes_removed, report.bytes_removed);
    cr_assert_eq(fixture_files("objects"), 6);
    aoticache_cache_close(cache);
}

Test(collect_options, object_that_waits_and_is_held_is_removed_when_it_is_let_go)
{
    aoticache_cache *cache = fixture_open();
    aoticache_artifact *artifact = NULL;
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    fixture_put(cache, 1, "old");
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_OK);
    fixture_put(cache, 1, "new");
    aoticache_collect_report report = collect(cache, &options);
    cr_assert_eq(report.objects_removed, 1, "the manifest alone");
    cr_assert_eq(access(fixture_object_of("old"), F_OK), 0);
    aoticache_artifact_unref(artifact);
    options.dry_run = true;
    cr_assert_eq(collect(cache, &options).objects_removed, 1, "counted once, though it waits and is not named");
    options.dry_run = false;
    cr_assert_eq(collect(cache, &options).objects_removed, 1);
    cr_assert_neq(access(fixture_object_of("old"), F_OK), 0);
    aoticache_cache_close(cache);
}

Test(collect_options, object_that_waits_and_is_needed_again_stays)
{
    aoticache_cache *cache = fixture_open();
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    fixture_put(cache, 1, "bytes");
    fixture_put(cache, 1, "other");
    fixture_put(cache, 2, "bytes"); /* the library of the replaced entry waits for its removal */
    aoticache_collect_report report = collect(cache, &options);
    cr_assert_eq(report.objects_removed, 1, "the manifest that was replaced");
    cr_assert(fixture_finds(cache, 1, "other"));
    cr_assert(fixture_finds(cache, 2, "bytes"));
    check_index(cache);
    aoticache_cache_close(cache);
}

Test(collect_options, removal_by_name_leaves_nothing_waiting)
{
    aoticache_cache *cache = cache_of(2);
    aoticache_key key = fixture_key(1);
    cr_assert_eq(aoticache_cache_remove(cache, &key, NULL), AOTICACHE_OK);
    aoticache_index_removal waiting;
    size_t count = 1;
    cr_assert_eq(aoticache_index_list_removals(aoticache_cache_index(cache), INT64_MIN, &waiting, 1, &count, NULL),
                 AOTICACHE_OK);
    cr_assert_eq(count, 0);
    check_index(cache);
    aoticache_cache_close(cache);
}

Test(collect_options, vacuum_gives_pages_back)
{
    aoticache_cache *cache = cache_of(1);
    aoticache_index *index = aoticache_cache_index(cache);
    static char text[1 << 16];
    memset(text, 'x', sizeof text - 1);
    for (int i = 0; i < 40; i++) {
        aoticache_index_failure failure = {
            .op = "x", .description = "", .message = text, .failed_ns = 1, .retry_ns = 2};
        failure.key.bytes[0] = (uint8_t)(i + 1);
        cr_assert_eq(aoticache_index_put_failure(index, &failure, NULL), AOTICACHE_OK);
    }
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    aoticache_collect_report report = collect(cache, &options);
    cr_assert_eq(report.failures_removed, 40);
    cr_assert_eq(report.vacuumed_bytes, 0, "only when it is asked to");
    options.vacuum = true;
    report = collect(cache, &options);
    cr_assert_gt(report.vacuumed_bytes, 40u * 60000);
    char path[4400];
    struct stat found;
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    aoticache_cache_close(cache);
    cr_assert_eq(stat(path, &found), 0);
    cr_assert_lt(found.st_size, 1 << 20);
}

Test(collect_options, second_collector_is_locked_out_at_once)
{
    aoticache_cache *cache = cache_of(1);
    aoticache_cache *other = fixture_open();
    char path[4400];
    snprintf(path, sizeof path, "%s/collect.lock", fixture_cache);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(aoticache_syscall_flock(fd, 2 /* LOCK_EX */), 0);
    uint64_t begun = aoticache_monotonic_ns();
    cr_assert_eq(aoticache_cache_collect(other, NULL, NULL, NULL, NULL, NULL), AOTICACHE_LOCKED);
    cr_assert_lt(aoticache_monotonic_ns() - begun, UINT64_C(5000000000));
    close(fd);
    cr_assert_eq(aoticache_cache_collect(other, NULL, NULL, NULL, NULL, NULL), AOTICACHE_OK);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
}

Test(collect_options, options_that_cannot_be_are_invalid)
{
    aoticache_cache *cache = fixture_open();
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.min_free_share = 1.5;
    cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, NULL, NULL, NULL), AOTICACHE_INVALID);
    options = (aoticache_collect_options)AOTICACHE_COLLECT_OPTIONS_INIT;
    options.policy = 7;
    cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, NULL, NULL, NULL), AOTICACHE_INVALID);
    options = (aoticache_collect_options)AOTICACHE_COLLECT_OPTIONS_INIT;
    options.size = 1;
    cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, NULL, NULL, NULL), AOTICACHE_INVALID);
    aoticache_cache_close(cache);
}

Test(collect_options, damaged_index_is_rebuilt_and_collected)
{
    aoticache_cache *cache = cache_of(3);
    aoticache_cache_close(cache);
    char path[4400];
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    cr_assert_eq(truncate(path, 4096), 0);
    cache = fixture_open();
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.max_entries = 1;
    cr_assert_eq(collect(cache, &options).entries_after, 1);
    cr_assert_eq(fixture_files("objects"), 2);
    aoticache_cache_close(cache);
}
