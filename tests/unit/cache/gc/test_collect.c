/*
 * Collections: what is removed, what stays, in which order, and what dead processes left.
 */
#include "cache/eager_face.h"
#include "tests/unit/fixtures/cache_fixture.h"
#include "tests/unit/fixtures/clock_fixture.h"

#include <sys/file.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/names.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "cache/cache_internal.h"
#include "cache/judgements.h"
#include "index/eviction/eviction.h"

TestSuite(collect, .init = fixture_setup, .fini = fixture_teardown);

#define LIBRARY_BYTES 20000

/* Returns a library of a known size, different for every number. */
static const char *library(int number)
{
    static char text[LIBRARY_BYTES + 1];
    memset(text, 'a' + number, LIBRARY_BYTES);
    return text;
}

static aoticache_collect_report collect(aoticache_cache *cache, uint64_t max_bytes, uint64_t max_age, bool dry_run)
{
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    aoticache_collect_report report;
    aoticache_error error = {.message = ""};
    options.max_bytes = max_bytes;
    options.max_age_seconds = max_age;
    options.dry_run = dry_run;
    aoticache_status status = aoticache_cache_collect(cache, &options, NULL, NULL, &report, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s: %s", aoticache_status_name(status), error.message);
    return report;
}

/* Returns whether there is an entry, by its key only: libraries are larger than the fixture compares. */
static bool has(aoticache_cache *cache, int64_t number)
{
    aoticache_artifact *artifact = NULL;
    bool found = fixture_lookup(cache, number, &artifact) == AOTICACHE_OK;
    aoticache_artifact_unref(artifact);
    return found;
}

Test(collect, least_recently_used_goes_first)
{
    aoticache_cache *cache = fixture_open();
    for (int i = 1; i <= 4; i++)
        fixture_put(cache, i, library(i));
    cr_assert(has(cache, 1)); /* now 2 is the oldest */
    aoticache_collect_report report = collect(cache, 3 * LIBRARY_BYTES, UINT64_MAX, false);
    cr_assert_eq(report.entries_before, 4);
    cr_assert_eq(report.entries_after, 2); /* manifests count too */
    cr_assert_eq(report.entries_removed, 2);
    cr_assert_eq(report.objects_removed, 4);
    cr_assert_eq(report.bytes_after, report.bytes_before - report.bytes_removed);
    cr_assert_leq(report.bytes_after, 3 * LIBRARY_BYTES);
    cr_assert(has(cache, 1));
    cr_assert(has(cache, 4));
    cr_assert_not(has(cache, 2));
    cr_assert_not(has(cache, 3));
    cr_assert_eq(fixture_files("objects"), 4);
    aoticache_cache_close(cache);
}

static void judge(aoticache_cache *cache, int64_t number, const char *machine, bool is_slower)
{
    aoticache_judgement judgement = {.key = fixture_key(number),
                                     .machine = machine,
                                     .threads = 1,
                                     .is_slower = is_slower,
                                     .kernel_ns = 5,
                                     .fallback_ns = 4,
                                     .judged_ns = aoticache_wall_ns()};
    cr_assert_eq(aoticache_cache_put_judgements(cache, &judgement, 1, NULL), AOTICACHE_OK);
}

Test(collect, kernels_that_lost_everywhere_go_first)
{
    for (int policy = 0; policy < 2; policy++) {
        aoticache_cache *cache = fixture_open();
        for (int i = 1; i <= 5; i++) {
            fixture_put(cache, i, library(i));
            fixture_ahead++;
        }
        judge(cache, 4, "here", true);
        judge(cache, 5, "here", true);
        judge(cache, 5, "there", false); /* faster elsewhere */
        judge(cache, 3, "here", false);
        aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
        aoticache_collect_report report;
        options.policy = policy == 0 ? AOTICACHE_COLLECT_LRU : AOTICACHE_COLLECT_COST;
        options.max_entries = 4;
        for (int dry = 1; dry >= 0; dry--) {
            options.dry_run = dry == 1;
            cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, NULL, &report, NULL), AOTICACHE_OK);
            cr_expect_eq(report.entries_removed, 1);
        }
        cr_expect_not(has(cache, 4));
        options.max_entries = 3;
        cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, NULL, &report, NULL), AOTICACHE_OK);
        cr_expect(has(cache, 5), "the newest, though it lost here");
        cr_expect_eq(report.entries_removed, 1);
        options.max_bytes = 1;
        cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, NULL, &report, NULL), AOTICACHE_OK);
        aoticache_cache_close(cache);
    }
}

Test(collect, kernel_that_lost_stays_without_a_reason_to_collect_and_goes_when_it_is_old)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, library(1));
    fixture_put(cache, 2, library(2));
    judge(cache, 1, "here", true);
    cr_expect_eq(collect(cache, UINT64_MAX, 3600, false).entries_removed, 0);
    fixture_ahead = 3601;
    cr_expect_eq(collect(cache, UINT64_MAX, 3600, false).entries_removed, 2);
    aoticache_cache_close(cache);
}

static bool count_judgement(void *user, const aoticache_judgement *judgement)
{
    (void)judgement;
    ++*(int *)user;
    return true;
}

Test(collect, judgements_are_forgotten_after_a_month)
{
    aoticache_cache *cache = fixture_open();
    aoticache_key key = fixture_key(1);
    judge(cache, 1, "here", true);
    for (int days = 29; days <= 31; days += 2) {
        int count = 0;
        fixture_ahead = days * FIXTURE_DAY;
        collect(cache, UINT64_MAX, UINT64_MAX, false);
        cr_assert_eq(aoticache_cache_list_judgements(cache, &key, count_judgement, &count, NULL), AOTICACHE_OK);
        cr_expect_eq(count, days < 30, "after %d days", days);
    }
    aoticache_cache_close(cache);
}

static bool count_entry(void *user, const aoticache_entry *entry)
{
    cr_assert_str_eq(entry->op, "aten::abs");
    (*(int *)user)++;
    return true;
}

Test(collect, dry_run_tells_the_same_and_removes_nothing)
{
    aoticache_cache *cache = fixture_open();
    for (int i = 1; i <= 3; i++)
        fixture_put(cache, i, library(i));
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    aoticache_collect_report dry, real;
    int would_go = 0, went = 0;
    options.max_bytes = 1;
    options.dry_run = true;
    cr_assert_eq(aoticache_cache_collect(cache, &options, count_entry, &would_go, &dry, NULL), AOTICACHE_OK);
    for (int i = 1; i <= 3; i++)
        cr_assert(has(cache, i));
    options.dry_run = false;
    cr_assert_eq(aoticache_cache_collect(cache, &options, count_entry, &went, &real, NULL), AOTICACHE_OK);
    cr_assert_eq(would_go, 3);
    cr_assert_eq(went, 3);
    cr_assert_eq(dry.entries_removed, real.entries_removed);
    cr_assert_eq(dry.objects_removed, real.objects_removed);
    cr_assert_eq(dry.bytes_removed, real.bytes_removed);
    cr_assert_eq(real.bytes_after, 0);
    cr_assert_eq(fixture_files("objects"), 0);
    aoticache_cache_close(cache);
}

Test(collect, limits_of_0_are_none)
{
    aoticache_cache *cache = fixture_open();
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    aoticache_collect_report report;
    options.max_bytes = options.max_age_seconds = options.max_entries = 0;
    fixture_put(cache, 1, "library one");
    fixture_ahead = 3601;
    cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, NULL, &report, NULL), AOTICACHE_OK);
    cr_assert_eq(report.entries_removed, 0);
    aoticache_cache_close(cache);
}

Test(collect, age_decides)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    cr_assert_eq(collect(cache, UINT64_MAX, 3600, false).entries_removed, 0);
    fixture_ahead = 3601;
    cr_assert_eq(collect(cache, UINT64_MAX, 3600, false).entries_removed, 1);
    cr_assert_not(has(cache, 1));
    aoticache_cache_close(cache);
}

Test(collect, shared_object_stays_as_long_as_one_entry_needs_it)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, library(1));
    fixture_put(cache, 2, library(1));
    fixture_put(cache, 3, library(3));
    aoticache_collect_report report = collect(cache, UINT64_MAX, UINT64_MAX, false);
    cr_assert_lt(report.bytes_before, 3 * LIBRARY_BYTES);
    /* 1 and 2 must both go before their library frees anything. */
    report = collect(cache, LIBRARY_BYTES + 5000, UINT64_MAX, false);
    cr_assert_eq(report.entries_removed, 2);
    cr_assert(has(cache, 3));
    aoticache_cache_close(cache);
}

/*
 * As in large stores, the files of a round are removed, and the log is merged, in parallel with the transactions of the
 * next round.
 */
Test(collect, many_rounds_remove_what_one_does)
{
    aoticache_cache *cache = fixture_open();
    aoticache_artifact *held = NULL;
    for (int i = 0; i < 24; i++)
        fixture_put(cache, i, library(i / 2)); /* two have the same library */
    cr_assert_eq(fixture_lookup(cache, 4, &held), AOTICACHE_OK);
    cache->round = 3;
    aoticache_collect_report report = collect(cache, 1, UINT64_MAX, false);
    cr_assert_eq(report.held, 2, "the entry of the library that is open, and the other one that has it");
    cr_assert_eq(report.entries_removed, 22);
    cr_assert_eq(report.entries_after, 2);
    cr_assert_eq(report.objects_removed, 22 + 11);
    cr_assert_eq(fixture_files("objects"), 2 + 1, "two manifests and the library");
    cr_assert_eq(fixture_verify(cache, false).unreferenced, 0);
    aoticache_artifact_unref(held);
    report = collect(cache, 1, UINT64_MAX, false);
    cr_assert_eq(report.entries_after, 0);
    cr_assert_eq(report.bytes_after, 0);
    cr_assert_eq(fixture_files("objects"), 0);
    aoticache_cache_close(cache);
}

Test(collect, held_artifact_stays)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_OK);
    aoticache_artifact_close_files(artifact);
    aoticache_collect_report report = collect(cache, 1, UINT64_MAX, true);
    cr_assert_eq(report.held, 1);
    report = collect(cache, 1, UINT64_MAX, false);
    cr_assert_eq(report.held, 1);
    cr_assert_eq(report.entries_removed, 0);
    cr_assert(has(cache, 1));
    aoticache_artifact_unref(artifact);
    report = collect(cache, 1, UINT64_MAX, false);
    cr_assert_eq(report.entries_removed, 1);
    aoticache_cache_close(cache);
}

static bool lock_manifest(void *user, const aoticache_entry *entry)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES], path[sizeof fixture_cache + 100];
    aoticache_digest_to_hex(&entry->artifact, hex);
    snprintf(path, sizeof path, "%s/objects/%.2s/%s", fixture_cache, hex, hex + 2);
    *(int *)user = open(path, O_RDONLY | O_CLOEXEC);
    return flock(*(int *)user, LOCK_SH) == 0;
}

Test(collect, manifest_that_somebody_reads_goes_all_the_same)
{
    aoticache_cache *cache = fixture_open();
    int fd = -1;
    fixture_put(cache, 1, "library one");
    cr_assert_eq(aoticache_cache_list(cache, NULL, NULL, lock_manifest, &fd, NULL), AOTICACHE_OK);
    cr_assert_geq(fd, 0);
    cr_assert_eq(collect(cache, 1, UINT64_MAX, false).objects_removed, 2);
    cr_assert_eq(fixture_files("objects"), 0);
    close(fd);
    aoticache_cache_close(cache);
}

/* ---- the order of what reaches the disk ---- */

static struct {
    bool is_unsynced; /* SQLite has written since it synced */
    int files, files_too_soon;
    int last_manifest; /* the number of files removed before it */
    aoticache_digest manifests[8];
    size_t manifest_count;
} disk;

static bool note_manifest(void *user, const aoticache_entry *entry)
{
    (void)user;
    disk.manifests[disk.manifest_count++] = entry->artifact;
    return true;
}

static int watch_disk(void *user, const char *call, const char *path)
{
    (void)user;
    if (strcmp(call, "pwrite") == 0)
        disk.is_unsynced = true;
    if (strcmp(call, "fsync") == 0)
        disk.is_unsynced = false;
    if (strcmp(call, "unlink") != 0 || strlen(path) != AOTICACHE_DIGEST_HEX_BYTES - 3)
        return 0;
    disk.files_too_soon += disk.is_unsynced ? 1 : 0;
    for (size_t i = 0; i < disk.manifest_count; i++) {
        char hex[AOTICACHE_DIGEST_HEX_BYTES];
        aoticache_digest_to_hex(&disk.manifests[i], hex);
        if (strcmp(hex + 2, path) == 0)
            disk.last_manifest = disk.files;
    }
    disk.files++;
    return 0;
}

/* Makes a cache with six entries; is_unsynced is as the collection finds it. */
static aoticache_cache *watched_cache(void)
{
    aoticache_index_syscall_hooks_install();
    aoticache_cache *cache = fixture_open();
    for (int i = 1; i <= 6; i++)
        fixture_put(cache, i, library(i));
    cr_assert_eq(aoticache_cache_list(cache, NULL, NULL, note_manifest, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(disk.manifest_count, 6);
    disk.is_unsynced = true;
    aoticache_syscall_hook_set(watch_disk, NULL);
    return cache;
}

Test(collect, files_go_once_it_is_on_disk_that_nobody_needs_them)
{
    for (int hurried = 0; hurried < 2; hurried++) {
        memset(&disk, 0, sizeof disk);
        aoticache_cache *cache = watched_cache();
        aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
        aoticache_collect_report report;
        options.max_bytes = 1;
        options.time_limit_ms = hurried ? 3600000 : 0;
        cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, NULL, &report, NULL), AOTICACHE_OK);
        cr_assert_eq(report.objects_removed, 12);
        cr_assert_eq(disk.files, 12);
        cr_assert_eq(disk.files_too_soon, 0);
        aoticache_syscall_hook_set(NULL, NULL);
        aoticache_cache_close(cache);
    }
}

static bool choose(void *user, const aoticache_index_candidate *candidate)
{
    *(aoticache_index_victim *)user =
        (aoticache_index_victim){.entry_id = candidate->entry_id, .last_used_ns = candidate->last_used_ns};
    return false;
}

/* The state that a collection leaves if it is killed between its transaction and removing the files. */
Test(collect, files_of_a_killed_collection_wait_for_the_disk_too)
{
    aoticache_cache *cache = watched_cache();
    aoticache_index *index = aoticache_cache_index(cache);
    aoticache_index_eviction eviction;
    aoticache_index_victim victim = {.entry_id = 0};
    cr_assert_eq(aoticache_index_list_candidates(index, INT64_MIN, 0, 1, choose, &victim, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_index_evict(index, &victim, 1, NULL, 0, 1000000, false, &eviction, NULL), AOTICACHE_OK);
    cr_assert_eq(eviction.objects, 2);
    cr_assert_eq(disk.files, 0);
    cr_assert_eq(collect(cache, UINT64_MAX, UINT64_MAX, false).objects_removed, 2);
    cr_assert_eq(disk.files, 2);
    cr_assert_eq(disk.files_too_soon, 0);
    aoticache_syscall_hook_set(NULL, NULL);
    aoticache_cache_close(cache);
}

Test(collect, manifests_go_before_other_objects)
{
    aoticache_cache *cache = watched_cache();
    cr_assert_eq(collect(cache, 1, UINT64_MAX, false).objects_removed, 12);
    cr_assert_eq(disk.last_manifest, 5);
    aoticache_syscall_hook_set(NULL, NULL);
    aoticache_cache_close(cache);
}

Test(collect, artifact_held_by_another_process_stays)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    int ready[2], stop[2];
    cr_assert_eq(pipe(ready), 0);
    cr_assert_eq(pipe(stop), 0);
    pid_t child = fork();
    if (child == 0) {
        aoticache_artifact *artifact = NULL;
        char byte;
        close(stop[1]);
        bool held = fixture_lookup(cache, 1, &artifact) == AOTICACHE_OK;
        if (!held || write(ready[1], "x", 1) != 1)
            _exit(1);
        _exit((int)read(stop[0], &byte, 1));
    }
    char byte;
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    cr_assert_eq(collect(cache, 1, UINT64_MAX, false).held, 1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    cr_assert_eq(collect(cache, 1, UINT64_MAX, false).entries_removed, 1);
    aoticache_cache_close(cache);
}

Test(collect, replaced_artifact_is_garbage)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "old");
    fixture_put(cache, 1, "new");
    aoticache_collect_report report = collect(cache, UINT64_MAX, UINT64_MAX, false);
    cr_assert_eq(report.objects_removed, 2);
    cr_assert_eq(report.entries_removed, 0);
    cr_assert(fixture_finds(cache, 1, "new"));
    cr_assert_eq(fixture_files("objects"), 2);
    aoticache_cache_close(cache);
}

Test(collect, leftovers_of_dead_processes_go)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    char path[4400];
    snprintf(path, sizeof path, "%s/tmp/1-2-3", fixture_cache);
    cr_assert_eq(mkdir(path, 0700), 0);
    fixture_write("cache/tmp/1-2-3/a.o", "half");
    fixture_write("cache/tmp/4-5-6", "half an object");
    snprintf(path, sizeof path, "%s/leases", fixture_cache);
    cr_assert_eq(mkdir(path, 0700), 0);
    fixture_write("cache/leases/0123", "");
    snprintf(path, sizeof path, "%s/artifacts", fixture_cache);
    cr_assert_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/artifacts/%064d", fixture_cache, 7);
    cr_assert_eq(mkdir(path, 0700), 0);
    aoticache_collect_report report = collect(cache, UINT64_MAX, UINT64_MAX, false);
    cr_assert_eq(report.leftovers, 4);
    cr_assert_eq(fixture_names("tmp") + fixture_names("leases") + fixture_names("artifacts"), 0);
    cr_assert(fixture_finds(cache, 1, "library one"));
    aoticache_cache_close(cache);
}

static aoticache_status compile_and_collect(void *user, const aoticache_request *request, const char *directory,
                                            aoticache_deliver_fn deliver, void *deliver_user,
                                            aoticache_error *ret_error)
{
    aoticache_collect_report report;
    aoticache_cache *other = fixture_open();
    (void)user, (void)request;
    cr_assert_eq(aoticache_cache_collect(other, NULL, NULL, NULL, &report, ret_error), AOTICACHE_OK);
    aoticache_cache_close(other);
    cr_assert_eq(report.leftovers, 0);
    cr_assert_eq(access(directory, W_OK), 0);
    char path[4400];
    snprintf(path, sizeof path, "%s/k.so", directory);
    FILE *file = fopen(path, "w");
    fputs("compiled", file);
    fclose(file);
    aoticache_file made = {.name = "k.so", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &made;
    product.file_count = 1;
    return deliver(deliver_user, &product);
}

Test(collect, compile_at_work_keeps_its_lease_and_directory)
{
    aoticache_cache *cache = fixture_open();
    aoticache_request *request = fixture_request(1);
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_cache_get_or_compile(cache, request, NULL, compile_and_collect, NULL, &artifact, &error),
                 AOTICACHE_OK, "%s", error.message);
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
    aoticache_cache_close(cache);
}

Test(collect, read_only_cache_allows_only_a_dry_run)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    aoticache_cache_close(cache);
    aoticache_cache_options options = fixture_options();
    options.read_only = true;
    cache = fixture_open_with(&options);
    aoticache_collect_report report;
    cr_assert_eq(aoticache_cache_collect(cache, NULL, NULL, NULL, &report, NULL), AOTICACHE_DENIED);
    cr_assert_eq(collect(cache, 1, UINT64_MAX, true).entries_removed, 1);
    aoticache_cache_close(cache);
}
