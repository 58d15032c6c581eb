/*
 * Entries copied from one cache to another, by archives and from directory to directory.
 */
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "cache/pins/pins.h"
#include "cache/transfer/transfer.h"
#include "cache/stats/statistics.h"
#include "cache/verify/verify.h"
#include "tests/unit/fixtures/cache_fixture.h"
#include "base/names.h"
#include "cache/entries.h"
#include "cache/request/cpu_detect.h"
#include "tests/helpers/pins.h"

static char other_path[4200]; /* a second cache directory */

static void setup(void)
{
    fixture_setup();
    snprintf(other_path, sizeof other_path, "%s/other", fixture_root);
}

TestSuite(transfer, .init = setup, .fini = fixture_teardown);

static aoticache_cache *open_other(void)
{
    aoticache_cache_options options = fixture_options();
    options.directory = other_path;
    return fixture_open_with(&options);
}

static int new_archive(void)
{
    int fd = memfd_create("archive", MFD_CLOEXEC);
    cr_assert_geq(fd, 0);
    return fd;
}

/* Exports all entries; skips the test if there is no libarchive. */
static aoticache_transfer_report export_all(aoticache_cache *cache, int fd, const aoticache_transfer_options *options)
{
    aoticache_transfer_report report;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_export(cache, fd, options, &report, &error);
    if (status == AOTICACHE_UNSUPPORTED)
        cr_skip_test("%s", error.message);
    cr_assert_eq(status, AOTICACHE_OK, "%s: %s", aoticache_status_name(status), error.message);
    cr_assert_eq((uint64_t)lseek(fd, 0, SEEK_END), report.archive_bytes);
    lseek(fd, 0, SEEK_SET);
    return report;
}

static aoticache_transfer_report import_all(aoticache_cache *cache, int fd, const aoticache_transfer_options *options)
{
    aoticache_transfer_report report;
    aoticache_error error = {.message = ""};
    aoticache_transfer_options chosen = AOTICACHE_TRANSFER_OPTIONS_INIT;
    if (options != NULL)
        chosen = *options;
    chosen.allow_unsigned = true; /* tests/unit/cache/trust/test_trust_transfer.c tests signed ones */
    aoticache_status status = aoticache_cache_import(cache, fd, &chosen, &report, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s: %s", aoticache_status_name(status), error.message);
    return report;
}

static aoticache_transfer_report merge_all(aoticache_cache *target, aoticache_cache *source,
                                           const aoticache_transfer_options *options)
{
    aoticache_transfer_report report;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_merge(target, source, options, &report, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s: %s", aoticache_status_name(status), error.message);
    return report;
}

static void assert_sound(aoticache_cache *cache, uint64_t entries)
{
    aoticache_verify_report report = fixture_verify(cache, false);
    cr_assert_eq(report.entries, entries);
    cr_assert_eq(report.damaged + report.missing + report.foreign + report.unindexed + report.unreferenced, 0);
}

/* Puts an artifact of several files, two of them with equal bytes. */
static void put_side_files(aoticache_cache *cache, int64_t number)
{
    aoticache_request *request = fixture_request(number);
    const aoticache_file files[] = {{.name = "library.so", .path = fixture_write("l.so", "library with side files")},
                                    {.name = "one.json", .path = fixture_write("1.json", "{\"side\":1}")},
                                    {.name = "two.json", .path = fixture_write("2.json", "{\"side\":1}")},
                                    {.name = "empty", .path = fixture_write("empty", "")}};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = files;
    product.file_count = 4;
    product.requirements.words[0] = 1; /* the same on every machine */
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, NULL), AOTICACHE_OK);
    aoticache_request_free(request);
}

Test(transfer, export_and_import_bring_everything)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    int fd = new_archive();
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library two");
    fixture_put(cache, 3, "library one"); /* an object that two artifacts share */
    put_side_files(cache, 4);
    aoticache_transfer_report out = export_all(cache, fd, NULL);
    cr_assert_eq(out.entries, 4);
    cr_assert_eq(out.objects, 9);
    cr_assert_eq(out.refused, 0);
    aoticache_transfer_report in = import_all(other, fd, NULL);
    cr_assert_eq(in.entries, 4);
    cr_assert_eq(in.objects, 9);
    cr_assert_eq(in.bytes, out.bytes);
    cr_assert_eq(in.entries_present, 0);
    cr_assert_eq(in.refused, 0);
    cr_assert_eq(in.archive_bytes, out.archive_bytes);
    cr_assert(fixture_finds(other, 1, "library one"));
    cr_assert(fixture_finds(other, 2, "library two"));
    cr_assert(fixture_finds(other, 3, "library one"));
    assert_sound(other, 4);
    cr_assert_eq(fixture_warnings, 0, "%s", fixture_last_warning);
    aoticache_cache_close(other);
    snprintf(fixture_cache, sizeof fixture_cache, "%s", other_path);
    cr_assert_eq(fixture_names("tmp"), 0);
    aoticache_cache_close(cache);
    close(fd);
}

static bool see_use(void *user, const aoticache_entry *entry)
{
    *(int64_t *)user = entry->last_used_ns;
    return true;
}

Test(transfer, imported_entries_count_as_used_now)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    int fd = new_archive();
    int64_t last_used_ns = 0;
    fixture_put(cache, 1, "library one");
    export_all(cache, fd, NULL);
    int64_t before = aoticache_wall_ns();
    import_all(other, fd, NULL);
    cr_assert_eq(aoticache_cache_list(other, NULL, NULL, see_use, &last_used_ns, NULL), AOTICACHE_OK);
    cr_assert_geq(last_used_ns, before);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}

Test(transfer, import_again_finds_all_present)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    int fd = new_archive();
    fixture_put(cache, 1, "library one");
    put_side_files(cache, 4);
    export_all(cache, fd, NULL);
    import_all(other, fd, NULL);
    lseek(fd, 0, SEEK_SET);
    aoticache_transfer_report again = import_all(other, fd, NULL);
    cr_assert_eq(again.entries, 0);
    cr_assert_eq(again.objects, 0);
    cr_assert_eq(again.entries_present, 2);
    cr_assert_eq(again.refused, 0);
    assert_sound(other, 2);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}

Test(transfer, import_keeps_what_the_target_compiled_itself)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    int fd = new_archive();
    fixture_put(cache, 1, "theirs");
    fixture_put(other, 1, "ours");
    export_all(cache, fd, NULL);
    aoticache_transfer_report report = import_all(other, fd, NULL);
    cr_assert_eq(report.entries, 0);
    cr_assert_eq(report.entries_present, 1);
    cr_assert(fixture_finds(other, 1, "ours"));
    assert_sound(other, 1);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}

/* Puts a library that requires the first `features` CPU features that this machine has. */
static void put_demanding(aoticache_cache *cache, int64_t number, const char *text, unsigned features)
{
    const aoticache_cpu_features *have = aoticache_cpu_features_get();
    aoticache_request *request = fixture_request(number);
    aoticache_file file = {.name = "library.so", .path = fixture_write("made.so", text)};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    for (unsigned bit = 0; bit < 64 * AOTICACHE_CPU_FEATURE_WORDS && features > 0; bit++)
        if ((have->words[bit / 64] >> bit % 64 & 1) != 0) {
            product.requirements.words[bit / 64] |= UINT64_C(1) << bit % 64;
            features--;
        }
    if (features > 0)
        cr_skip_test("this CPU has too few features");
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, NULL), AOTICACHE_OK);
    aoticache_request_free(request);
}

Test(transfer, import_puts_nothing_before_what_is_here)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    int fd = new_archive();
    put_demanding(other, 1, "ours", 1);
    put_demanding(cache, 1, "less demanding", 0);
    put_demanding(cache, 1, "more demanding", 2);
    put_demanding(cache, 2, "only theirs", 2);
    put_demanding(cache, 2, "theirs for others", 1);
    export_all(cache, fd, NULL);
    aoticache_transfer_report report = import_all(other, fd, NULL);
    cr_assert_eq(report.entries, 3);
    cr_assert_eq(report.entries_passed_over, 1);
    cr_assert_eq(report.entries_present, 0);
    cr_assert(fixture_finds(other, 1, "ours"), "another's kernel took the place of ours");
    cr_assert(fixture_finds(other, 2, "only theirs"));
    assert_sound(other, 4);
    lseek(fd, 0, SEEK_SET);
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    options.replace = true;
    report = import_all(other, fd, &options);
    cr_assert_eq(report.entries, 1);
    cr_assert_eq(report.entries_present, 3);
    cr_assert_eq(report.entries_passed_over, 0);
    cr_assert(fixture_finds(other, 1, "more demanding"));
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}

Test(transfer, equally_demanding_entries_do_not_go_before_each_other)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    const aoticache_cpu_features *have = aoticache_cpu_features_get();
    if (aoticache_cpu_features_count(have) < 2)
        cr_skip_test("this CPU has too few features");
    put_demanding(other, 1, "ours", 1);
    aoticache_request *request = fixture_request(1);
    aoticache_file file = {.name = "library.so", .path = fixture_write("made.so", "theirs, newer")};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    for (unsigned bit = 64 * AOTICACHE_CPU_FEATURE_WORDS; bit-- > 0;) /* the last one */
        if ((have->words[bit / 64] >> bit % 64 & 1) != 0) {
            product.requirements.words[bit / 64] = UINT64_C(1) << bit % 64;
            break;
        }
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, NULL), AOTICACHE_OK);
    aoticache_request_free(request);
    cr_assert_eq(merge_all(other, cache, NULL).entries_passed_over, 1);
    cr_assert(fixture_finds(other, 1, "ours"));
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
}

Test(transfer, merge_replaces_where_it_is_asked_to)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    options.replace = true;
    fixture_put(cache, 1, "theirs");
    fixture_put(other, 1, "ours");
    cr_assert_eq(merge_all(other, cache, NULL).entries_present, 1);
    cr_assert(fixture_finds(other, 1, "ours"));
    cr_assert_eq(merge_all(other, cache, &options).entries, 1);
    cr_assert(fixture_finds(other, 1, "theirs"));
    cr_assert_eq(merge_all(other, cache, &options).entries_present, 1);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
}

Test(transfer, import_brings_back_an_entry_whose_objects_remained)
{
    aoticache_cache *cache = fixture_open();
    int fd = new_archive();
    aoticache_artifact *held = NULL;
    fixture_put(cache, 1, "library one");
    export_all(cache, fd, NULL);
    cr_assert_eq(fixture_lookup(cache, 1, &held), AOTICACHE_OK); /* so that its library stays */
    aoticache_key key = fixture_key(1);
    cr_assert_eq(aoticache_cache_remove(cache, &key, NULL), AOTICACHE_OK);
    aoticache_transfer_report report = import_all(cache, fd, NULL);
    cr_assert_eq(report.entries, 1);
    cr_assert_eq(report.objects, 1); /* only the manifest */
    cr_assert(fixture_finds(cache, 1, "library one"));
    aoticache_artifact_unref(held);
    assert_sound(cache, 1);
    aoticache_cache_close(cache);
    close(fd);
}

Test(transfer, import_replaces_a_damaged_object)
{
    aoticache_cache *cache = fixture_open();
    int fd = new_archive();
    fixture_put(cache, 1, "library one");
    export_all(cache, fd, NULL);
    fixture_damage(fixture_object_of("library one"));
    cr_assert_not(fixture_finds(cache, 1, "library one")); /* this removes the entry and quarantines the object */
    cr_assert_eq(import_all(cache, fd, NULL).entries, 1);
    cr_assert(fixture_finds(cache, 1, "library one"));
    assert_sound(cache, 1);
    aoticache_cache_close(cache);
    close(fd);
}

Test(transfer, equal_caches_give_equal_archives)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    int first = new_archive(), second = new_archive();
    for (int i = 0; i < 20; i++) {
        char text[32];
        snprintf(text, sizeof text, "library %d", i);
        fixture_put(cache, i, text);
    }
    aoticache_transfer_report out = export_all(cache, first, NULL);
    import_all(other, first, NULL); /* stored in another order, at other times */
    cr_assert_eq(export_all(other, second, NULL).archive_bytes, out.archive_bytes);
    char *a = mmap(NULL, (size_t)out.archive_bytes, PROT_READ, MAP_PRIVATE, first, 0);
    char *b = mmap(NULL, (size_t)out.archive_bytes, PROT_READ, MAP_PRIVATE, second, 0);
    cr_assert(a != MAP_FAILED && b != MAP_FAILED);
    cr_assert_eq(memcmp(a, b, (size_t)out.archive_bytes), 0);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
}

static char *make_text(size_t size)
{
    char *text = malloc(size + 1);
    uint64_t state = 88172645463325252;
    for (size_t i = 0; i < size; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        text[i] = (char)('a' + state % 26);
    }
    text[size] = '\0';
    return text;
}

Test(transfer, large_objects_come_through)
{
    const size_t size = 9u << 20; /* more than is assembled in memory */
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    int fd = new_archive();
    char *text = make_text(size);
    fixture_put(cache, 1, text);
    export_all(cache, fd, NULL);
    cr_assert_eq(import_all(other, fd, NULL).entries, 1);
    assert_sound(other, 1);
    free(text);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}

/* A write beyond the limit would end the process with a signal. */
Test(transfer, limit_of_file_sizes_fails_an_export_and_a_merge)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    aoticache_transfer_report report;
    aoticache_error exported = {.message = ""}, merged = {.message = ""};
    struct rlimit usual;
    const int fd = new_archive();
    char *text = make_text(4u << 20);
    fixture_put(cache, 1, text);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &usual), 0);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 1 << 20, .rlim_max = usual.rlim_max}), 0);
    const aoticache_status export_status = aoticache_cache_export(cache, fd, NULL, &report, &exported);
    const aoticache_status merge_status = aoticache_cache_merge(other, cache, NULL, &report, &merged);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &usual), 0);
    cr_expect_neq(merge_status, AOTICACHE_OK);
    cr_expect_not_null(strstr(merged.message, "File too large"), "%s", merged.message);
    if (export_status != AOTICACHE_UNSUPPORTED) /* no libarchive */ {
        cr_expect_neq(export_status, AOTICACHE_OK);
        cr_expect_not_null(strstr(exported.message, "File too large"), "%s", exported.message);
    }
    assert_sound(other, 0);
    assert_sound(cache, 1);
    cr_assert_eq(merge_all(other, cache, NULL).entries, 1);
    free(text);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}

Test(transfer, filters_choose)
{
    aoticache_cache *cache = fixture_open();
    int fd = new_archive();
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    aoticache_key key = fixture_key(2);
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library two");
    aoticache_digest_to_hex(&key, hex);
    hex[12] = '\0';
    options.key_prefix = hex;
    cr_assert_eq(export_all(cache, fd, &options).entries, 1);
    options = (aoticache_transfer_options)AOTICACHE_TRANSFER_OPTIONS_INIT;
    options.op = "aten::*";
    options.device = "cpu";
    cr_assert_eq(ftruncate(fd, 0), 0);
    cr_assert_eq(export_all(cache, fd, &options).entries, 2);
    options.op = "prims::*";
    cr_assert_eq(aoticache_cache_export(cache, fd, &options, NULL, NULL), AOTICACHE_NOT_FOUND);
    options.op = NULL;
    options.device = "cuda";
    cr_assert_eq(aoticache_cache_export(cache, fd, &options, NULL, NULL), AOTICACHE_NOT_FOUND);
    options.device = NULL;
    options.used_since_ns = aoticache_wall_ns() + 3600 * INT64_C(1000000000);
    cr_assert_eq(aoticache_cache_export(cache, fd, &options, NULL, NULL), AOTICACHE_NOT_FOUND);
    options.used_since_ns -= 7200 * INT64_C(1000000000);
    cr_assert_eq(ftruncate(fd, 0), 0);
    cr_assert_eq(export_all(cache, fd, &options).entries, 2);
    aoticache_cache_close(cache);
    close(fd);
}

Test(transfer, import_takes_only_what_the_filter_names)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    int fd = new_archive();
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_key key = fixture_key(2);
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library two");
    export_all(cache, fd, NULL);
    aoticache_digest_to_hex(&key, hex);
    options.key_prefix = hex;
    aoticache_transfer_report report = import_all(other, fd, &options);
    cr_assert_eq(report.entries, 1);
    cr_assert_eq(report.refused, 0);
    cr_assert_eq(report.objects, 2);
    cr_assert(fixture_finds(other, 2, "library two"));
    assert_sound(other, 1);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}

struct marks_seen {
    int pinned, tags;
};

static bool see_mark(void *user, const aoticache_pins *mark)
{
    struct marks_seen *seen = user;
    seen->pinned += mark->is_pinned;
    seen->tags += (int)mark->tag_count;
    return true;
}

static void put_marked(aoticache_cache *cache)
{
    aoticache_key one = fixture_key(1), two = fixture_key(2), unknown = fixture_key(99);
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library two");
    fixture_put(cache, 3, "library three");
    cr_assert_eq(pin_key(cache, &one, NULL), AOTICACHE_OK);
    cr_assert_eq(tag_key(cache, &one, "release:1", NULL), AOTICACHE_OK);
    cr_assert_eq(tag_key(cache, &two, "release:1", NULL), AOTICACHE_OK);
    cr_assert_eq(pin_key(cache, &unknown, NULL), AOTICACHE_OK);
}

Test(transfer, marks_go_where_they_are_asked_for)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    int fd = new_archive();
    struct marks_seen seen = {0};
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    put_marked(cache);
    options.with_marks = true;
    cr_assert_eq(export_all(cache, fd, &options).marks, 2); /* without that of a key without an entry */
    cr_assert_eq(import_all(other, fd, NULL).marks, 0);
    cr_assert_eq(aoticache_cache_list_pins(other, NULL, see_mark, &seen, NULL), AOTICACHE_OK);
    cr_assert_eq(seen.pinned + seen.tags, 0);
    lseek(fd, 0, SEEK_SET);
    cr_assert_eq(import_all(other, fd, &options).marks, 2);
    cr_assert_eq(aoticache_cache_list_pins(other, NULL, see_mark, &seen, NULL), AOTICACHE_OK);
    cr_assert_eq(seen.pinned, 1);
    cr_assert_eq(seen.tags, 2);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}

Test(transfer, a_tag_chooses)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    put_marked(cache);
    options.tag = "release:1";
    cr_assert_eq(merge_all(other, cache, &options).entries, 2);
    options.tag = "release:2";
    cr_assert_eq(merge_all(other, cache, &options).entries, 0);
    cr_assert_eq(aoticache_cache_import(other, 0, &options, NULL, NULL), AOTICACHE_INVALID);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
}

Test(transfer, dry_run_verifies_and_stores_nothing)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    int fd = new_archive();
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    fixture_put(cache, 1, "library one");
    put_side_files(cache, 4);
    export_all(cache, fd, NULL);
    options.dry_run = true;
    aoticache_transfer_report report = import_all(other, fd, &options);
    cr_assert_eq(report.entries, 2);
    cr_assert_eq(report.objects, 6);
    report = merge_all(other, cache, &options);
    cr_assert_eq(report.entries, 2);
    cr_assert_eq(report.objects, 6);
    assert_sound(other, 0);
    aoticache_cache_close(other);
    snprintf(fixture_cache, sizeof fixture_cache, "%s", other_path);
    cr_assert_eq(fixture_files("objects") + fixture_files("tmp"), 0);
    aoticache_cache_close(cache);
    close(fd);
}

Test(transfer, damaged_artifact_is_left_out_of_an_export)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    int fd = new_archive();
    fixture_put(cache, 1, "library one");
    put_side_files(cache, 4);
    fixture_damage(fixture_object_of("{\"side\":1}"));
    aoticache_transfer_report out = export_all(cache, fd, NULL);
    cr_assert_eq(out.entries, 1);
    cr_assert_eq(out.objects, 2);
    cr_assert_eq(out.refused, 1);
    aoticache_transfer_report in = import_all(other, fd, NULL);
    cr_assert_eq(in.entries, 1);
    cr_assert_eq(in.refused, 0);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}

static bool stop_at_second(void *user, uint64_t done, uint64_t all)
{
    (void)all;
    *(uint64_t *)user = done;
    return done < 4;
}

Test(transfer, stopped_import_keeps_what_was_complete)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    int fd = new_archive();
    uint64_t done = 0;
    aoticache_transfer_report report;
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library two");
    fixture_put(cache, 3, "library three");
    export_all(cache, fd, NULL);
    options.allow_unsigned = true;
    options.progress = stop_at_second;
    options.user = &done;
    cr_assert_eq(aoticache_cache_import(other, fd, &options, &report, NULL), AOTICACHE_IO);
    cr_assert_eq(done, 4);
    cr_assert_eq(report.entries, 2);
    assert_sound(other, 2);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}

static aoticache_entry seen_entry;
static bool see_entry(void *user, const aoticache_entry *entry)
{
    (void)user;
    seen_entry = *entry;
    return true;
}

Test(transfer, merge_copies_and_keeps_when_it_was_used)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    fixture_put(cache, 1, "library one");
    for (int i = 0; i < 3; i++)
        cr_assert(fixture_finds(cache, 1, "library one"));
    cr_assert_eq(aoticache_cache_flush(cache, NULL), AOTICACHE_OK);
    aoticache_transfer_report report = merge_all(other, cache, NULL);
    cr_assert_eq(report.entries, 1);
    cr_assert_eq(report.objects, 2);
    aoticache_entry in_source;
    cr_assert_eq(aoticache_cache_list(cache, NULL, NULL, see_entry, NULL, NULL), AOTICACHE_OK);
    in_source = seen_entry;
    cr_assert_eq(aoticache_cache_list(other, NULL, NULL, see_entry, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(seen_entry.uses, 3);
    cr_assert_eq(seen_entry.last_used_ns, in_source.last_used_ns);
    cr_assert_eq(merge_all(other, cache, NULL).entries_present, 1);
    struct stat a, b;
    cr_assert_eq(stat(fixture_object_of("library one"), &a), 0);
    snprintf(fixture_cache, sizeof fixture_cache, "%s", other_path);
    cr_assert_eq(stat(fixture_object_of("library one"), &b), 0);
    cr_assert_neq(a.st_ino, b.st_ino); /* the pins and tags of the two caches must not mix */
    cr_assert_eq(b.st_mode & 07777, 0444);
    assert_sound(other, 1);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
}

Test(transfer, merge_refuses_what_is_damaged_and_continues)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *other = open_other();
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library two");
    fixture_put(cache, 3, "library three");
    fixture_damage(fixture_object_of("library one"));
    cr_assert_eq(unlink(fixture_object_of("library two")), 0);
    aoticache_transfer_report report = merge_all(other, cache, NULL);
    cr_assert_eq(report.entries, 1);
    cr_assert_eq(report.refused, 2);
    cr_assert(fixture_finds(other, 3, "library three"));
    assert_sound(other, 1);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
}

Test(transfer, misuse_is_invalid)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache *same = fixture_open();
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    aoticache_error error = {.message = ""};
    fixture_put(cache, 1, "library one");
    cr_assert_eq(aoticache_cache_merge(cache, same, NULL, NULL, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "same cache"));
    cr_assert_eq(aoticache_cache_export(NULL, 1, NULL, NULL, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_cache_import(cache, -1, NULL, NULL, NULL), AOTICACHE_INVALID);
    options.key_prefix = "nothex";
    cr_assert_eq(aoticache_cache_merge(cache, same, &options, NULL, NULL), AOTICACHE_INVALID);
    options.size = 4;
    cr_assert_eq(aoticache_cache_export(cache, 1, &options, NULL, NULL), AOTICACHE_INVALID);
    options = (aoticache_transfer_options)AOTICACHE_TRANSFER_OPTIONS_INIT;
    options.level = 20;
    int fd = new_archive();
    cr_assert_eq(aoticache_cache_export(cache, fd, &options, NULL, NULL), AOTICACHE_INVALID);
    cr_assert_eq(lseek(fd, 0, SEEK_END), 0);
    aoticache_cache_close(same);
    aoticache_cache_close(cache);
}

Test(transfer, read_only_target_is_denied)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache_options read_only = fixture_options();
    aoticache_cache_close(open_other());
    read_only.directory = other_path;
    read_only.read_only = true;
    aoticache_cache *other = fixture_open_with(&read_only);
    fixture_put(cache, 1, "library one");
    cr_assert_eq(aoticache_cache_merge(other, cache, NULL, NULL, NULL), AOTICACHE_DENIED);
    cr_assert_eq(merge_all(cache, other, NULL).entries, 0); /* but it can be read */
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
}

Test(transfer, import_keeps_the_budget)
{
    enum { COUNT = 60, MOST = 20 };
    char text[32];
    aoticache_cache *cache = fixture_open();
    aoticache_cache_options limited = fixture_options();
    limited.directory = other_path;
    limited.max_entries = MOST;
    aoticache_cache *other = fixture_open_with(&limited);
    fixture_put(other, COUNT + 1, "was there");
    for (int i = 1; i <= COUNT; i++) {
        snprintf(text, sizeof text, "library %d", i);
        fixture_put(cache, i, text);
    }
    int fd = new_archive();
    export_all(cache, fd, NULL);
    aoticache_transfer_report report = import_all(other, fd, NULL);
    close(fd);
    cr_assert_eq(report.entries, COUNT);
    cr_assert_eq(report.refused, 0);
    aoticache_statistics statistics;
    cr_assert_eq(aoticache_cache_get_statistics(other, NULL, &statistics, NULL), AOTICACHE_OK);
    cr_assert_leq(statistics.entries, MOST);
    cr_assert_gt(statistics.entries, MOST / 2);
    cr_assert_not(fixture_finds(other, COUNT + 1, "was there"));
    assert_sound(other, statistics.entries);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
}
