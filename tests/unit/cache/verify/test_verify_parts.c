/*
 * Verification in parts: quick, in several threads, stopped and resumed; entries, links, pins and tags, and the index
 * itself.
 */
#include "tests/unit/fixtures/cache_fixture.h"

#include <sqlite3.h>

#include "base/names.h"
#include "cache/cache_internal.h"
#include "cache/pins/pins.h"
#include "cache/verify/verify.h"
#include "index/entries/integrity.h"
#include "tests/helpers/pins.h"

#define MANY 80

static aoticache_cache *cache;
static char seen[8192];
static int seen_count;

static void see(void *user, const char *what, const char *name, const char *detail)
{
    (void)user;
    seen_count++;
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s %s: %s\n", what, name, detail);
}

static void setup(void)
{
    fixture_setup();
    setenv("AOTICACHE_CONFIG", "", 1);
    cache = fixture_open();
}

static void teardown(void)
{
    aoticache_cache_close(cache);
    fixture_teardown();
}

TestSuite(verify_parts, .init = setup, .fini = teardown);

static aoticache_verify_report verify_with(aoticache_verify_options options, aoticache_verify_progress_fn progress,
                                           void *user)
{
    aoticache_verify_report report = {.entries = 0};
    aoticache_error error = {.message = ""};
    seen[0] = '\0';
    seen_count = 0;
    aoticache_status status = aoticache_cache_verify(cache, &options, see, progress, user, &report, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s: %s", aoticache_status_name(status), error.message);
    return report;
}

#define VERIFY(...) \
    verify_with((aoticache_verify_options){.size = sizeof(aoticache_verify_options), __VA_ARGS__}, NULL, NULL)

static void put_many(int count)
{
    char text[64];
    for (int i = 0; i < count; i++) {
        snprintf(text, sizeof text, "library number %d", i);
        fixture_put(cache, i, text);
    }
}

static void run_sql(const char *sql)
{
    char path[4400];
    sqlite3 *db = NULL;
    char *message = NULL;
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    int result = sqlite3_exec(db, sql, NULL, NULL, &message);
    cr_assert_eq(result, SQLITE_OK, "%s: %s", sql, message);
    sqlite3_close(db);
}

/* ---- kinds and threads ---- */

Test(verify_parts, quick_sees_sizes_and_not_bytes)
{
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library two");
    fixture_damage(fixture_object_of("library one"));
    cr_assert_eq(aoticache_verify_report_problems(&(aoticache_verify_report){0}), 0);
    aoticache_verify_report report = VERIFY(.quick = true);
    cr_assert_eq(aoticache_verify_report_problems(&report), 0, "%s", seen);
    cr_assert_eq(report.objects, 4);
    const char *path = fixture_object_of("library two");
    cr_assert_eq(chmod(path, 0600), 0);
    cr_assert_eq(truncate(path, 5), 0);
    report = VERIFY(.quick = true);
    cr_assert_eq(report.damaged, 1);
    cr_assert_not_null(strstr(seen, "5 bytes on disk, the index says 11"));
    report = VERIFY(.quick = true, .repair = true);
    cr_assert_eq(report.repaired, 1);
    report = VERIFY(.quick = true);
    cr_assert_eq(aoticache_verify_report_problems(&report), 0, "%s", seen);
    cr_assert_eq(report.entries, 1);
    cr_assert_eq(VERIFY().damaged, 1);
}

Test(verify_parts, any_number_of_threads_finds_the_same)
{
    put_many(MANY);
    fixture_damage(fixture_object_of("library number 7"));
    fixture_damage(fixture_object_of("library number 57"));
    cr_assert_eq(unlink(fixture_object_of("library number 8")), 0);
    cr_assert_eq(unlink(fixture_object_of("library number 68")), 0);
    for (uint32_t jobs = 0; jobs <= 9; jobs += 3) {
        aoticache_verify_report report = VERIFY(.jobs = jobs);
        cr_assert_eq(report.objects, 2 * MANY - 2);
        cr_assert_eq(report.damaged, 2);
        cr_assert_eq(report.missing, 2);
        cr_assert_eq(report.entries, MANY);
        cr_assert_not(report.is_partial);
        cr_assert_eq(seen_count, 4);
    }
    aoticache_verify_report report = VERIFY(.repair = true, .jobs = 4);
    cr_assert_eq(report.repaired, 4);
    cr_assert_eq(report.entries, MANY - 4);
    report = VERIFY();
    cr_assert_eq(aoticache_verify_report_problems(&report), 0, "%s", seen);
    cr_assert_eq(report.unreferenced, 4); /* the manifests, no libraries: that of a missing one is gone, too */
}

/* ---- stopping and resuming ---- */

static bool stop_at_once(void *user, uint64_t done, uint64_t all)
{
    int *calls = user;
    cr_assert_leq(done, all);
    return --*calls > 0;
}

/* Writes the state of a run that had checked the objects up to this one. */
static void write_state(const char *cursor, unsigned directory, int quick, int repair, const char *damaged)
{
    char text[1024];
    snprintf(text, sizeof text, "cache/verify.state");
    FILE *file = fopen(fixture_write(text, ""), "w");
    cr_assert_not_null(file);
    fprintf(file, "aoticache-verify 1\nquick %d\nrepair %d\nindex 1\nphase 0\nfolder %u\ncursor %s\n", quick, repair,
            directory, cursor);
    fprintf(file,
            "objects 100\nbytes 1000\ndamaged %s\nmissing 0\nforeign 0\nunindexed 0\nwrong_entries 0\n"
            "wrong_links 0\nwrong_marks 0\nwrong_signatures 0\nunreferenced 0\nrepaired 0\nunreadable 0\n",
            damaged);
    fclose(file);
}

static const char middle[] = "7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";

static uint64_t count_after_middle(void)
{
    uint64_t count = 0;
    char directory[64];
    for (unsigned i = 0x80; i < 0x100; i++) {
        snprintf(directory, sizeof directory, "objects/%02x", i);
        count += (uint64_t)fixture_names(directory);
    }
    return count;
}

Test(verify_parts, stopped_run_says_so_and_leaves_its_state)
{
    put_many(20);
    int calls = 1;
    aoticache_verify_report report =
        verify_with((aoticache_verify_options)AOTICACHE_VERIFY_OPTIONS_INIT, stop_at_once, &calls);
    cr_assert(report.is_partial);
    cr_assert_eq(fixture_files("verify.state"), 1);
    report = VERIFY(.resume = true);
    cr_assert_not(report.is_partial);
    cr_assert_eq(report.objects, 40);
    cr_assert_eq(fixture_files("verify.state"), 0);
    cr_assert_eq(aoticache_verify_report_problems(&report), 0, "%s", seen);
}

Test(verify_parts, resumed_run_continues_after_the_cursor)
{
    put_many(MANY);
    write_state(middle, 0x7f, 0, 0, "0");
    aoticache_verify_report report = VERIFY(.resume = true);
    cr_assert_eq(report.resumed_objects, 100);
    cr_assert_eq(report.resumed_bytes, 1000);
    cr_assert_eq(report.objects, 100 + count_after_middle());
    cr_assert_lt(count_after_middle(), 2 * MANY);
    cr_assert_eq(aoticache_verify_report_problems(&report), 0, "%s", seen);
    write_state(middle, 0x7f, 0, 0, "0");
    cr_assert_eq(VERIFY().objects, 2 * MANY); /* not requested */
}

Test(verify_parts, state_of_another_kind_is_not_taken_up)
{
    put_many(10);
    write_state(middle, 0x7f, 1, 0, "0");
    cr_assert_eq(VERIFY(.resume = true).objects, 20);
    write_state(middle, 0x7f, 0, 0, "1");
    cr_assert_eq(VERIFY(.resume = true, .repair = true).objects, 20);
    write_state(middle, 0x7f, 0, 0, "1");
    cr_assert_eq(VERIFY(.resume = true).damaged, 1);
    write_state(middle, 0x7f, 0, 0, "0");
    cr_assert_eq(VERIFY(.resume = true, .repair = true).resumed_objects, 100);
}

Test(verify_parts, odd_states_begin_at_the_beginning)
{
    put_many(10);
    static const char *const cursors[] = {"xyz", "", "7f"};
    for (size_t i = 0; i < sizeof cursors / sizeof cursors[0]; i++) {
        write_state(cursors[i], 0x7f, 0, 0, "0");
        cr_assert_eq(VERIFY(.resume = true).objects, 20);
    }
    write_state("-", 0, 0, 0, "0"); /* a valid state in which nothing was done */
    cr_assert_eq(VERIFY(.resume = true).objects, 120);
    write_state(middle, 999, 0, 0, "0");
    cr_assert_eq(VERIFY(.resume = true).objects, 20);
    write_state(middle, 0x7f, 0, 0, "-1");
    cr_assert_eq(VERIFY(.resume = true).objects, 20);
    fixture_write("cache/verify.state", "aoticache-verify 2\n");
    cr_assert_eq(VERIFY(.resume = true).objects, 20);
    fixture_write("cache/verify.state", "");
    cr_assert_eq(VERIFY(.resume = true).objects, 20);
}

static bool stop_in_the_middle(void *user, uint64_t done, uint64_t all)
{
    (void)all;
    return done < *(uint64_t *)user;
}

/* Whatever each part does, together they check everything once. */
Test(verify_parts, parts_add_up_to_the_whole)
{
    put_many(MANY);
    fixture_damage(fixture_object_of("library number 7"));
    cr_assert_eq(unlink(fixture_object_of("library number 9")), 0);
    fixture_write("cache/objects/00-odd", "?");
    aoticache_verify_report report;
    uint64_t limit = 1;
    int parts = 0;
    do {
        aoticache_verify_options options = AOTICACHE_VERIFY_OPTIONS_INIT;
        options.resume = true;
        report = verify_with(options, stop_in_the_middle, &limit);
        limit = report.objects + 1;
        parts++;
        cr_assert_lt(parts, 2000);
        if (parts == 3)
            limit = UINT64_MAX;
    } while (report.is_partial);
    cr_assert_geq(parts, 2);
    cr_assert_eq(report.objects, 2 * MANY - 1);
    cr_assert_eq(report.damaged, 1);
    cr_assert_eq(report.missing, 1);
    cr_assert_eq(report.foreign, 1);
}

Test(verify_parts, time_limit_stops)
{
    put_many(5);
    aoticache_verify_report report = VERIFY(.time_limit_ms = 3600000);
    cr_assert_not(report.is_partial);
}

/* ---- entries ---- */

static void expect_wrong_entry(const char *sql, const char *says)
{
    run_sql(sql);
    aoticache_verify_report report = VERIFY();
    cr_assert_eq(report.wrong_entries, 1, "%s: %s", sql, seen);
    cr_assert_eq(aoticache_verify_report_problems(&report), 1, "%s: %s", sql, seen);
    cr_assert_not_null(strstr(seen, says), "%s", seen);
    report = VERIFY(.repair = true);
    cr_assert_eq(report.repaired, 1, "%s: %s", sql, seen);
    report = VERIFY();
    cr_assert_eq(aoticache_verify_report_problems(&report), 0, "%s: %s", sql, seen);
    cr_assert(fixture_finds(cache, 1, "library one"), "%s", sql);
}

Test(verify_parts, entries_at_odds_with_their_manifest_are_recorded_again)
{
    fixture_put(cache, 1, "library one");
    expect_wrong_entry("UPDATE entries SET library_bytes = library_bytes + 1", "another size of the library");
    expect_wrong_entry("UPDATE entries SET file_count = 2", "another number of files");
    expect_wrong_entry("UPDATE details SET guard = 'x'", "another guard");
    expect_wrong_entry("UPDATE entries SET requirements = x'01000000000000000000000000000000', rank = 1",
                       "other requirements");
    expect_wrong_entry("UPDATE objects SET bytes = bytes + 1 WHERE digest = (SELECT library FROM entries)",
                       "other objects or sizes");
}

/* ---- the index ---- */

Test(verify_parts, rows_that_lack_each_other_are_damage_and_the_index_is_rebuilt)
{
    static const char *const damage[] = {
        "DELETE FROM details",
        "DELETE FROM entries WHERE id > 0",
        "UPDATE objects SET parts = x''",
        "UPDATE objects SET entry = 0",
        "UPDATE objects SET entry = entry + 1 WHERE entry <> 0",
        "INSERT INTO sharers SELECT digest, 12345 FROM objects WHERE entry <> 0",
        "UPDATE objects SET parts = CAST(parts || zeroblob(32) AS BLOB) WHERE entry <> 0",
        "DELETE FROM objects WHERE digest = (SELECT library FROM entries)"};
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        fixture_put(cache, 1, "library one");
        run_sql(damage[i]);
        aoticache_error error = {.message = ""};
        cr_assert_eq(aoticache_cache_check_index(cache, false, &error), AOTICACHE_CORRUPT, "%s", damage[i]);
        aoticache_verify_report report = VERIFY(.quick = i % 2 == 0);
        cr_assert_eq(report.damaged, 1, "%s: %s", damage[i], seen);
        report = VERIFY(.repair = true);
        cr_assert_eq(report.repaired, 1, "%s: %s", damage[i], seen);
        cr_assert_eq(aoticache_cache_check_index(cache, true, &error), AOTICACHE_OK, "%s", error.message);
        report = VERIFY();
        cr_assert_eq(aoticache_verify_report_problems(&report), 0, "%s: %s", damage[i], seen);
        cr_assert(fixture_finds(cache, 1, "library one"));
        aoticache_cache_close(cache); /* an index may be replaced only this often while it is open */
        cache = fixture_open();
    }
}

Test(verify_parts, damaged_page_is_found_and_the_index_is_rebuilt)
{
    put_many(MANY);
    aoticache_cache_close(cache);
    char path[4400];
    struct stat found;
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    cr_assert_eq(stat(path, &found), 0);
    int fd = open(path, O_WRONLY);
    static const char rubbish[2048] = "rubbish";
    for (off_t page = 8; page * 4096 < found.st_size; page += 5)
        cr_assert_eq(pwrite(fd, rubbish, sizeof rubbish, page * 4096 + 1024), sizeof rubbish);
    close(fd);
    cache = fixture_open();
    aoticache_verify_report report = VERIFY();
    cr_assert_geq(report.damaged, 1);
    report = VERIFY(.repair = true);
    cr_assert_geq(report.repaired, 1);
    report = VERIFY();
    cr_assert_eq(aoticache_verify_report_problems(&report), 0, "%s", seen);
    cr_assert_eq(report.entries, MANY);
    cr_assert(fixture_finds(cache, 17, "library number 17"));
}

static bool never(void *user)
{
    (void)user;
    return false;
}

Test(verify_parts, check_of_the_index_can_be_stopped)
{
    put_many(MANY);
    bool completed = true;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_index_check_integrity(aoticache_cache_index(cache), true, NULL, NULL, &completed, &error),
                 AOTICACHE_OK, "%s", error.message);
    cr_assert(completed);
    aoticache_status status =
        aoticache_index_check_integrity(aoticache_cache_index(cache), true, never, NULL, &completed, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s", error.message); /* with few entries it may end before its first callback */
}

/* ---- links, pins and tags ---- */

static void put_with_side_file(char ret_directory[4400])
{
    aoticache_request *request = fixture_request(5);
    const aoticache_file files[] = {{.name = "library.so", .path = fixture_write("made.so", "with side file")},
                                    {.name = "kernel.cubin", .path = fixture_write("made.cubin", "cubin")}};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    aoticache_artifact *artifact = NULL;
    product.files = files;
    product.file_count = 2;
    product.producer = "test";
    cr_assert_eq(aoticache_cache_put(cache, request, &product, &artifact, NULL), AOTICACHE_OK);
    snprintf(ret_directory, 4400, "%s", aoticache_artifact_get_info(artifact)->directory);
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
}

Test(verify_parts, directories_of_side_files_are_those_of_the_artifact)
{
    char directory[4400], path[4500];
    put_with_side_file(directory);
    cr_assert_eq(VERIFY().wrong_links, 0, "%s", seen);
    static const char *const kinds[] = {"replaced", "missing", "added"};
    for (int kind = 0; kind < 3; kind++) {
        snprintf(path, sizeof path, "%s/%s", directory, kind < 2 ? "kernel.cubin" : "other");
        if (kind < 2)
            cr_assert_eq(unlink(path), 0);
        if (kind != 1)
            close(open(path, O_CREAT | O_WRONLY, 0600));
        aoticache_verify_report report = VERIFY();
        cr_assert_eq(report.wrong_links, 1, "%s: %s", kinds[kind], seen);
        cr_assert_eq(aoticache_verify_report_problems(&report), 1, "%s: %s", kinds[kind], seen);
        report = VERIFY(.repair = true);
        cr_assert_eq(report.repaired, 1, "%s: %s", kinds[kind], seen);
        report = VERIFY();
        cr_assert_eq(aoticache_verify_report_problems(&report), 0, "%s: %s", kinds[kind], seen);
        put_with_side_file(directory);
    }
}

Test(verify_parts, odd_names_next_to_links_and_marks_are_foreign)
{
    char directory[4400], path[4500];
    put_with_side_file(directory);
    snprintf(path, sizeof path, "%s/artifacts/odd", fixture_cache);
    cr_assert_eq(symlink("/etc", path), 0);
    aoticache_key key = fixture_key(1);
    cr_assert_eq(pin_key(cache, &key, NULL), AOTICACHE_OK);
    fixture_write("cache/marks/odd", "?");
    cr_assert_eq(VERIFY().foreign, 2);
    cr_assert_eq(VERIFY(.repair = true).repaired, 2);
    aoticache_verify_report report = VERIFY();
    cr_assert_eq(aoticache_verify_report_problems(&report), 0, "%s", seen);
}

static bool is_marked(void *user, const aoticache_pins *mark)
{
    *(int *)user += mark->is_pinned ? 1 : 0;
    return true;
}

Test(verify_parts, damaged_mark_is_written_again_from_the_index)
{
    aoticache_key key = fixture_key(1);
    char hex[AOTICACHE_DIGEST_HEX_BYTES], path[4400];
    int pinned = 0;
    cr_assert_eq(pin_key(cache, &key, NULL), AOTICACHE_OK);
    aoticache_digest_to_hex(&key, hex);
    snprintf(path, sizeof path, "%s/marks/%s", fixture_cache, hex);
    cr_assert_eq(truncate(path, 3), 0);
    aoticache_verify_report report = VERIFY();
    cr_assert_eq(report.wrong_marks, 1, "%s", seen);
    cr_assert_eq(VERIFY(.repair = true).repaired, 1);
    report = VERIFY();
    cr_assert_eq(aoticache_verify_report_problems(&report), 0, "%s", seen);
    cr_assert_eq(aoticache_cache_list_pins(cache, NULL, is_marked, &pinned, NULL), AOTICACHE_OK);
    cr_assert_eq(pinned, 1);
}

Test(verify_parts, options_without_a_size_are_refused)
{
    aoticache_verify_options options = {.size = 0};
    cr_assert_eq(aoticache_cache_verify(cache, &options, NULL, NULL, NULL, NULL, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_cache_verify(NULL, NULL, NULL, NULL, NULL, NULL, NULL), AOTICACHE_INVALID);
}
