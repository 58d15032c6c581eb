/*
 * Entries whose only file is kept in the manifest: one object, which is verified, counted, moved and removed as one.
 */
#include "base/digest.h"
#include "tests/unit/fixtures/cache_fixture.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "cache/pins/pins.h"
#include "cache/stats/statistics.h"
#include "cache/transfer/transfer.h"
#include "cache/trust/trust.h"

#include <sqlite3.h>
#include <sys/mman.h>

#define MOST (1 << 20) /* limit of the content in a manifest */

TestSuite(in_manifest, .init = fixture_setup, .fini = fixture_teardown);

static aoticache_status try_put_bytes(aoticache_cache *cache, int64_t number, const void *bytes, size_t size,
                                      aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    const char *path = fixture_write("made", "");
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    fclose(file);
    aoticache_request *request = fixture_request(number);
    const aoticache_file made = {.name = "content", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &made;
    product.file_count = 1;
    product.producer = "test";
    product.in_manifest = true;
    aoticache_status status = aoticache_cache_put(cache, request, &product, ret_artifact, ret_error);
    aoticache_request_free(request);
    return status;
}

static void put_record(aoticache_cache *cache, int64_t number, const char *text)
{
    aoticache_error error = {.message = ""};
    cr_assert_eq(try_put_bytes(cache, number, text, strlen(text), NULL, &error), AOTICACHE_OK, "%s", error.message);
}

static aoticache_artifact *must_look_up(aoticache_cache *cache, int64_t number)
{
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, number, &artifact), AOTICACHE_OK);
    return artifact;
}

/* Returns the path of the one object of an entry. */
static const char *object_of(aoticache_cache *cache, int64_t number)
{
    static char path[4400];
    aoticache_artifact *artifact = must_look_up(cache, number);
    fixture_object_path(&aoticache_artifact_get_info(artifact)->digest, path, sizeof path);
    aoticache_artifact_unref(artifact);
    return path;
}

static aoticache_statistics statistics_of(aoticache_cache *cache)
{
    aoticache_statistics statistics;
    cr_assert_eq(aoticache_cache_get_statistics(cache, NULL, &statistics, NULL), AOTICACHE_OK);
    return statistics;
}

static void assert_sound(aoticache_cache *cache, uint64_t entries)
{
    const aoticache_verify_report report = fixture_verify(cache, false);
    cr_assert_eq(report.entries, entries);
    cr_assert_eq(aoticache_verify_report_problems(&report), 0);
    cr_assert_eq(report.unreferenced, 0);
}

static void collect(aoticache_cache *cache, uint64_t max_entries)
{
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    aoticache_error error = {.message = ""};
    options.max_entries = max_entries;
    options.scan = true;
    cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, NULL, NULL, &error), AOTICACHE_OK, "%s", error.message);
}

static void run_sql(const char *sql)
{
    char path[4400];
    sqlite3 *db = NULL;
    char *message = NULL;
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, &message), SQLITE_OK, "%s", message);
    sqlite3_close(db);
}

/* ---- one file, and its bytes ---- */

Test(in_manifest, entry_is_one_file)
{
    aoticache_cache *cache = fixture_open();
    struct stat found;
    put_record(cache, 1, "content one");
    cr_assert_eq(fixture_files("objects"), 1);
    cr_assert_eq(fixture_files("artifacts") + fixture_files("tmp"), 0);
    cr_assert_eq(stat(object_of(cache, 1), &found), 0);
    const aoticache_statistics statistics = statistics_of(cache);
    cr_assert_eq(statistics.objects, 1);
    cr_assert_eq(statistics.bytes, (uint64_t)found.st_size);
    cr_assert_eq(statistics.counters.stored_bytes, (uint64_t)found.st_size);
    cr_assert(fixture_finds(cache, 1, "content one"));
    assert_sound(cache, 1);
    aoticache_cache_close(cache);
    cache = fixture_open();
    cr_assert(fixture_finds(cache, 1, "content one"));
    aoticache_cache_close(cache);
}

Test(in_manifest, any_bytes_come_back)
{
    static const char odd[] = "\n{\"a\":[\0}\n\n\xff\"\\ {{{{";
    aoticache_cache *cache = fixture_open();
    aoticache_error error = {.message = ""};
    cr_assert_eq(try_put_bytes(cache, 1, odd, sizeof odd, NULL, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_artifact *artifact = must_look_up(cache, 1);
    size_t size = 0;
    const void *content = aoticache_artifact_content(artifact, &size);
    cr_assert_eq(size, sizeof odd);
    cr_assert_arr_eq(content, odd, sizeof odd);
    aoticache_digest digest;
    cr_assert_eq(aoticache_digest_of(odd, sizeof odd, &digest), AOTICACHE_OK);
    cr_assert(aoticache_digest_equal(&digest, &aoticache_artifact_get_info(artifact)->library));
    cr_assert_eq(aoticache_artifact_take_copy(artifact), -1);
    aoticache_artifact_unref(artifact);
    assert_sound(cache, 1);
    aoticache_cache_close(cache);
}

Test(in_manifest, descriptor_is_of_the_content_alone_and_sealed)
{
    aoticache_cache *cache = fixture_open();
    put_record(cache, 1, "content one");
    aoticache_artifact *artifact = must_look_up(cache, 1);
    const int fd = aoticache_artifact_library_fd(artifact);
    cr_assert(fixture_fd_has(fd, "content one"));
    cr_assert_eq(aoticache_artifact_library_fd(artifact), fd);
    cr_assert_eq(pwrite(fd, "x", 1, 0), -1);
    cr_assert_eq(errno, EPERM);
    aoticache_artifact_close_files(artifact);
    cr_assert_eq(aoticache_artifact_library_fd(artifact), -1);
    size_t size = 0;
    cr_assert_not_null(aoticache_artifact_content(artifact, &size));
    cr_assert_eq(size, strlen("content one"));
    aoticache_artifact_unref(artifact);
    fixture_put(cache, 2, "library");
    artifact = must_look_up(cache, 2);
    cr_assert_null(aoticache_artifact_content(artifact, &size));
    aoticache_artifact_unref(artifact);
    aoticache_cache_close(cache);
}

Test(in_manifest, put_and_compile_give_the_content)
{
    aoticache_cache *cache = fixture_open();
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(try_put_bytes(cache, 1, "new", 3, &artifact, &error), AOTICACHE_OK, "%s", error.message);
    size_t size = 0;
    cr_assert_arr_eq(aoticache_artifact_content(artifact, &size), "new", 3);
    cr_assert_eq(size, 3);
    cr_assert(fixture_fd_has(aoticache_artifact_library_fd(artifact), "new"));
    cr_assert(aoticache_artifact_get_info(artifact)->is_stored);
    aoticache_artifact *again = NULL;
    cr_assert_eq(aoticache_cache_open_artifact(cache, &aoticache_artifact_get_info(artifact)->digest, &again, &error),
                 AOTICACHE_OK, "%s", error.message);
    cr_assert_arr_eq(aoticache_artifact_content(again, &size), "new", 3);
    aoticache_artifact_unref(again);
    aoticache_artifact_unref(artifact);
    aoticache_cache_close(cache);
}

Test(in_manifest, only_small_files_are)
{
    aoticache_cache *cache = fixture_open();
    char *large = calloc(1, MOST + 1);
    cr_assert_not_null(large);
    aoticache_error error = {.message = ""};
    cr_assert_eq(try_put_bytes(cache, 1, large, MOST, NULL, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(fixture_files("objects"), 1);
    cr_assert_eq(try_put_bytes(cache, 2, large, MOST + 1, NULL, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(fixture_files("objects"), 3);
    aoticache_artifact *artifact = must_look_up(cache, 2);
    cr_assert_null(aoticache_artifact_content(artifact, NULL));
    cr_assert_geq(aoticache_artifact_library_fd(artifact), 0);
    aoticache_artifact_unref(artifact);
    artifact = must_look_up(cache, 1);
    size_t size = 0;
    cr_assert_not_null(aoticache_artifact_content(artifact, &size));
    cr_assert_eq(size, MOST);
    aoticache_artifact_unref(artifact);
    assert_sound(cache, 2);
    aoticache_cache_close(cache);
    free(large);
}

Test(in_manifest, several_or_empty_files_are_refused)
{
    aoticache_cache *cache = fixture_open();
    aoticache_error error = {.message = ""};
    cr_assert_eq(try_put_bytes(cache, 1, "", 0, NULL, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "empty"), "%s", error.message);
    aoticache_request *request = fixture_request(1);
    const aoticache_file files[] = {{.name = "a", .path = fixture_write("a", "a")},
                                    {.name = "b", .path = fixture_write("b", "b")}};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = files;
    product.file_count = 2;
    product.in_manifest = true;
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "in_manifest"), "%s", error.message);
    aoticache_request_free(request);
    cr_assert_eq(fixture_files("objects"), 0);
    aoticache_cache_close(cache);
}

Test(in_manifest, text_of_the_manifest_is_without_the_content)
{
    aoticache_cache *cache = fixture_open();
    put_record(cache, 1, "content one");
    aoticache_artifact *artifact = must_look_up(cache, 1);
    char *text = NULL;
    cr_assert_eq(aoticache_cache_read_manifest(cache, &aoticache_artifact_get_info(artifact)->digest, &text, NULL),
                 AOTICACHE_OK);
    cr_assert_not_null(strstr(text, "\"format\":2"));
    cr_assert_not_null(strstr(text, "\"inline\":true"));
    cr_assert_null(strstr(text, "content one"));
    cr_assert_eq(text[strlen(text) - 1], '\n');
    free(text);
    aoticache_artifact_unref(artifact);
    aoticache_cache_close(cache);
}

/* ---- damage ---- */

static void damage_at(const char *path, off_t offset)
{
    cr_assert_eq(chmod(path, 0600), 0);
    int fd = open(path, O_WRONLY);
    cr_assert_eq(pwrite(fd, "\x01", 1, offset), 1);
    close(fd);
    chmod(path, 0444);
}

Test(in_manifest, damaged_anywhere_is_set_aside_and_missed)
{
    aoticache_cache *cache = fixture_open();
    put_record(cache, 2, "content two");
    struct stat found;
    cr_assert_eq(stat(object_of(cache, 2), &found), 0);
    const off_t places[] = {0, found.st_size / 2, found.st_size - 1};
    for (int i = 0; i < 3; i++) {
        put_record(cache, 1, "content one");
        damage_at(object_of(cache, 1), places[i]);
        aoticache_artifact *artifact = NULL;
        cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_NOT_FOUND);
        cr_assert_eq(fixture_names("quarantine"), i + 1);
        cr_assert_eq(statistics_of(cache).entries, 1);
        cr_assert_eq(statistics_of(cache).counters.damaged, (uint64_t)i + 1);
    }
    cr_assert(fixture_finds(cache, 2, "content two"));
    put_record(cache, 1, "content one");
    const char *object = object_of(cache, 1);
    cr_assert(chmod(object, 0600) == 0 && truncate(object, found.st_size - 2) == 0);
    cr_assert_not(fixture_finds(cache, 1, "content one"));
    cr_assert_eq(fixture_names("quarantine"), 4);
    put_record(cache, 1, "content one");
    cr_assert_eq(unlink(object_of(cache, 1)), 0);
    cr_assert_not(fixture_finds(cache, 1, "content one"));
    cr_assert_eq(statistics_of(cache).entries, 1);
    assert_sound(cache, 1);
    aoticache_cache_close(cache);
}

Test(in_manifest, verify_finds_and_repairs_damage)
{
    aoticache_cache *cache = fixture_open();
    put_record(cache, 1, "content one");
    put_record(cache, 2, "content two");
    struct stat found;
    cr_assert_eq(stat(object_of(cache, 1), &found), 0);
    damage_at(object_of(cache, 1), found.st_size - 1);
    cr_assert_eq(fixture_verify(cache, false).damaged, 1);
    fixture_verify(cache, true);
    assert_sound(cache, 1);
    cr_assert_eq(fixture_names("quarantine"), 1);
    cr_assert(fixture_finds(cache, 2, "content two"));
    aoticache_cache_close(cache);
}

/* A row has the offset of the content. It is not trusted: the object is intact, and stays. */
Test(in_manifest, wrong_row_gives_no_other_bytes_and_is_repaired)
{
    static const char *const changes[] = {"content_offset = content_offset + 1, library_bytes = library_bytes - 1",
                                          "content_offset = content_offset - 1, library_bytes = library_bytes + 1",
                                          "content_offset = content_offset + 1",
                                          "content_offset = 1",
                                          "library_bytes = library_bytes + 1",
                                          "content_offset = 0"}; /* the index is rebuilt for this one */
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        char sql[200];
        aoticache_cache *cache = fixture_open();
        put_record(cache, 1, "content one");
        aoticache_cache_close(cache);
        snprintf(sql, sizeof sql, "UPDATE entries SET %s", changes[i]);
        run_sql(sql);
        cache = fixture_open();
        aoticache_artifact *artifact = NULL;
        cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_NOT_FOUND, "%s", changes[i]);
        cr_assert_eq(fixture_names("quarantine"), 0, "%s", changes[i]);
        const aoticache_verify_report report = fixture_verify(cache, true);
        cr_assert_gt(aoticache_verify_report_problems(&report), 0, "%s", changes[i]);
        cr_assert(fixture_finds(cache, 1, "content one"), "%s", changes[i]);
        collect(cache, 10); /* the replaced object of the round before */
        assert_sound(cache, 1);
        aoticache_cache_close(cache);
    }
}

Test(in_manifest, lost_index_is_rebuilt)
{
    aoticache_cache *cache = fixture_open();
    put_record(cache, 1, "content one");
    fixture_put(cache, 2, "library two");
    const uint64_t bytes = statistics_of(cache).bytes;
    aoticache_cache_close(cache);
    char path[4400];
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    cr_assert_eq(unlink(path), 0);
    cache = fixture_open();
    cr_assert(fixture_finds(cache, 1, "content one"));
    cr_assert(fixture_finds(cache, 2, "library two"));
    cr_assert_eq(statistics_of(cache).bytes, bytes);
    assert_sound(cache, 2);
    aoticache_cache_close(cache);
}

Test(in_manifest, lost_row_is_put_back)
{
    aoticache_cache *cache = fixture_open();
    put_record(cache, 1, "content one");
    aoticache_cache_close(cache);
    run_sql("DELETE FROM entries; DELETE FROM details; DELETE FROM objects;"
            "UPDATE totals SET entries = 0, artifacts = 0, objects = 0, bytes = 0");
    cache = fixture_open();
    cr_assert_eq(fixture_verify(cache, true).unindexed, 1);
    cr_assert(fixture_finds(cache, 1, "content one"));
    aoticache_cache_close(cache);
}

/* ---- removal and replacement ---- */

Test(in_manifest, remove_and_collect_leave_nothing)
{
    aoticache_cache *cache = fixture_open();
    put_record(cache, 1, "content one");
    put_record(cache, 2, "content two");
    put_record(cache, 3, "content three");
    const aoticache_key key = fixture_key(1);
    cr_assert_eq(aoticache_cache_remove(cache, &key, NULL), AOTICACHE_OK);
    cr_assert_eq(fixture_files("objects"), 2);
    collect(cache, 1);
    cr_assert_eq(fixture_files("objects"), 1);
    cr_assert_eq(statistics_of(cache).objects, 1);
    assert_sound(cache, 1);
    aoticache_cache_close(cache);
}

/* Replaces an entry as older versions stored it, and the reverse. */
Test(in_manifest, replaces_and_is_replaced_by_one_with_an_object)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "stored apart");
    cr_assert_eq(fixture_files("objects"), 2);
    put_record(cache, 1, "in the manifest");
    cr_assert(fixture_finds(cache, 1, "in the manifest"));
    collect(cache, 10);
    cr_assert_eq(fixture_files("objects"), 1);
    fixture_put(cache, 1, "stored apart");
    cr_assert(fixture_finds(cache, 1, "stored apart"));
    collect(cache, 10);
    cr_assert_eq(fixture_files("objects"), 2);
    assert_sound(cache, 1);
    aoticache_cache_close(cache);
}

/* Its bytes were read: the object is not in use. */
Test(in_manifest, artifact_outlives_its_object)
{
    aoticache_cache *cache = fixture_open();
    put_record(cache, 1, "content one");
    aoticache_artifact *artifact = must_look_up(cache, 1);
    const aoticache_key key = fixture_key(1);
    cr_assert_eq(aoticache_cache_remove(cache, &key, NULL), AOTICACHE_OK);
    cr_assert_eq(fixture_files("objects"), 0);
    cr_assert(fixture_fd_has(aoticache_artifact_library_fd(artifact), "content one"));
    aoticache_artifact_unref(artifact);
    aoticache_cache_close(cache);
}

/* ---- to other caches ---- */

static aoticache_cache *open_other(void)
{
    static char path[4300];
    aoticache_cache_options options = fixture_options();
    snprintf(path, sizeof path, "%s/other", fixture_root);
    options.directory = path;
    return fixture_open_with(&options);
}

Test(in_manifest, archives_and_merges_bring_it)
{
    for (int merges = 0; merges < 2; merges++) {
        aoticache_cache *cache = fixture_open(), *other = open_other();
        aoticache_transfer_report report;
        aoticache_error error = {.message = ""};
        aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
        options.allow_unsigned = true;
        put_record(cache, 1, "{\"content\":1}\n");
        fixture_put(cache, 2, "library two");
        aoticache_status status = AOTICACHE_OK;
        if (merges != 0) {
            status = aoticache_cache_merge(other, cache, NULL, &report, &error);
        } else {
            int fd = memfd_create("archive", MFD_CLOEXEC);
            status = aoticache_cache_export(cache, fd, NULL, &report, &error);
            if (status == AOTICACHE_UNSUPPORTED)
                cr_skip_test("%s", error.message);
            cr_assert_eq(report.objects, 3);
            lseek(fd, 0, SEEK_SET);
            status = aoticache_cache_import(other, fd, &options, &report, &error);
            close(fd);
        }
        cr_assert_eq(status, AOTICACHE_OK, "%s", error.message);
        cr_assert_eq(report.entries, 2);
        cr_assert_eq(report.objects, 3);
        cr_assert_eq(report.refused, 0);
        cr_assert(fixture_finds(other, 1, "{\"content\":1}\n"));
        cr_assert(fixture_finds(other, 2, "library two"));
        assert_sound(other, 2);
        aoticache_cache_close(other);
        aoticache_cache_close(cache);
        fixture_teardown();
        cr_assert_eq(mkdir(fixture_root, 0700), 0);
    }
    cr_assert_eq(fixture_warnings, 0, "%s", fixture_last_warning);
}

static bool see_state(void *user, const aoticache_signature *signature, aoticache_signature_state state,
                      const aoticache_public_key *key)
{
    (void)signature, (void)key;
    *(int *)user = (int)state;
    return true;
}

Test(in_manifest, signatures_are_of_the_one_object)
{
    aoticache_cache *cache = fixture_open(), *other = open_other();
    aoticache_error error = {.message = ""};
    aoticache_secret_key *key = NULL;
    put_record(cache, 1, "content one");
    aoticache_artifact *artifact = must_look_up(cache, 1);
    const aoticache_digest digest = *&aoticache_artifact_get_info(artifact)->digest;
    aoticache_artifact_unref(artifact);
    aoticache_status status = aoticache_secret_key_generate("ann", &key, &error);
    if (status == AOTICACHE_UNSUPPORTED)
        cr_skip_test("%s", error.message);
    cr_assert_eq(status, AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_cache_sign(cache, &digest, key, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_secret_key_free(key);
    cr_assert_eq(aoticache_cache_merge(other, cache, NULL, NULL, &error), AOTICACHE_OK, "%s", error.message);
    int state = -1;
    cr_assert_eq(aoticache_cache_check_signatures(other, &digest, see_state, &state, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(state, AOTICACHE_SIGNATURE_UNKNOWN); /* no key is trusted here */
    cr_assert(fixture_finds(other, 1, "content one"));
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
}
