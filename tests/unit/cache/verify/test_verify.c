/*
 * Verification and repair.
 */
#include "tests/unit/fixtures/cache_fixture.h"
#include "cache/verify/verify.h"

TestSuite(verify, .init = fixture_setup, .fini = fixture_teardown);

Test(verify, sound_cache_has_nothing_to_report)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library two");
    aoticache_verify_report report = fixture_verify(cache, false);
    cr_assert_eq(report.entries, 2);
    cr_assert_eq(report.objects, 4);
    cr_assert_gt(report.bytes, 22);
    cr_assert_eq(report.damaged + report.missing + report.foreign + report.unindexed + report.unreferenced, 0);
    aoticache_cache_close(cache);
}

static uint64_t progress_done, progress_all;
static bool see_progress(void *user, uint64_t done, uint64_t all)
{
    (void)user;
    progress_done = done;
    progress_all = all;
    return true;
}

static char seen_what[64], seen_name[512];
static void see(void *user, const char *what, const char *name, const char *detail)
{
    (void)user;
    cr_assert_null(strchr(detail, '\n'));
    snprintf(seen_what, sizeof seen_what, "%s", what);
    snprintf(seen_name, sizeof seen_name, "%s", name);
}

Test(verify, damaged_object_is_named_and_repaired)
{
    aoticache_cache *cache = fixture_open();
    aoticache_verify_report report;
    fixture_put(cache, 1, "library one");
    fixture_damage(fixture_object_of("library one"));
    cr_assert_eq(aoticache_cache_verify(cache, NULL, see, see_progress, NULL, &report, NULL), AOTICACHE_OK);
    cr_assert_eq(report.damaged, 1);
    cr_assert_str_eq(seen_what, "damaged");
    cr_assert_not_null(strstr(fixture_object_of("library one"), seen_name));
    cr_assert_eq(progress_done, 2);
    cr_assert_eq(progress_all, 2);
    cr_assert_eq(fixture_names("quarantine"), 0);
    report = fixture_verify(cache, true);
    cr_assert_eq(report.damaged, 1);
    cr_assert_eq(report.repaired, 1);
    cr_assert_eq(fixture_names("quarantine"), 1);
    report = fixture_verify(cache, false);
    cr_assert_eq(report.damaged, 0);
    cr_assert_eq(report.entries, 0);
    aoticache_cache_close(cache);
}

Test(verify, missing_object_is_named_and_its_entry_removed)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    cr_assert_eq(unlink(fixture_object_of("library one")), 0);
    cr_assert_eq(fixture_verify(cache, false).missing, 1);
    aoticache_verify_report report = fixture_verify(cache, true);
    cr_assert_eq(report.missing, 1);
    cr_assert_eq(report.entries, 0);
    cr_assert_eq(fixture_verify(cache, false).missing, 0);
    aoticache_cache_close(cache);
}

Test(verify, foreign_files_are_counted_and_moved)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    char path[4400];
    snprintf(path, sizeof path, "%s/objects/notes", fixture_cache);
    cr_assert_eq(symlink("/etc/passwd", path), 0);
    fixture_write("cache/README", "?");
    cr_assert_eq(fixture_verify(cache, false).foreign, 2);
    aoticache_verify_report report = fixture_verify(cache, true);
    cr_assert_eq(report.foreign, 2);
    cr_assert_eq(report.repaired, 2);
    cr_assert_eq(fixture_verify(cache, false).foreign, 0);
    cr_assert(fixture_finds(cache, 1, "library one"));
    aoticache_cache_close(cache);
}

Test(verify, entries_the_index_lacks_are_put_back)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library two");
    aoticache_cache_close(cache);
    char path[4400], kept[4400];
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    snprintf(kept, sizeof kept, "%s/objects.kept", fixture_root);
    /* Make an index without entries, like a restored older one. */
    char objects[4400];
    snprintf(objects, sizeof objects, "%s/objects", fixture_cache);
    cr_assert_eq(rename(objects, kept), 0);
    cr_assert_eq(unlink(path), 0);
    aoticache_cache_close(fixture_open());
    cr_assert_eq(rename(kept, objects), 0);
    cache = fixture_open();
    aoticache_verify_report report = fixture_verify(cache, false);
    cr_assert_eq(report.unindexed, 2);
    cr_assert_eq(report.unreferenced, 4);
    report = fixture_verify(cache, true);
    cr_assert_eq(report.unindexed, 2);
    cr_assert_eq(report.repaired, 2);
    cr_assert_eq(report.unreferenced, 0);
    cr_assert(fixture_finds(cache, 1, "library one"));
    cr_assert(fixture_finds(cache, 2, "library two"));
    aoticache_cache_close(cache);
}

Test(verify, replaced_manifest_is_garbage_not_a_lost_entry)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "old");
    fixture_put(cache, 1, "new");
    aoticache_verify_report report = fixture_verify(cache, true);
    cr_assert_eq(report.unindexed, 0);
    cr_assert_eq(report.unreferenced, 2);
    cr_assert(fixture_finds(cache, 1, "new"));
    aoticache_cache_close(cache);
}

Test(verify, repair_of_a_read_only_cache_is_refused)
{
    aoticache_cache_close(fixture_open());
    aoticache_cache_options options = fixture_options();
    options.read_only = true;
    aoticache_cache *cache = fixture_open_with(&options);
    aoticache_error error = {.message = ""};
    aoticache_verify_options repair = AOTICACHE_VERIFY_OPTIONS_INIT;
    repair.repair = true;
    cr_assert_eq(aoticache_cache_verify(cache, &repair, NULL, NULL, NULL, NULL, &error), AOTICACHE_DENIED);
    cr_assert_eq(fixture_verify(cache, false).damaged, 0);
    aoticache_cache_close(cache);
}
