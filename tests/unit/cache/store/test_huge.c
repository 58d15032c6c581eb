/*
 * Maliciously huge files cost nothing: known sizes are compared before files are read, and reading can be stopped.
 */
#include "base/clock.h"
#include "tests/unit/fixtures/cache_fixture.h"
#include "cache/verify/verify.h"

#define HUGE_BYTES (INT64_C(1) << 40) /* of zeroes; hashing them takes half an hour */
#define SOON_NS (UINT64_C(20) * 1000000000u)

TestSuite(huge, .init = fixture_setup, .fini = fixture_teardown, .timeout = 60);

static void make_huge(const char *path)
{
    cr_assert_eq(chmod(path, 0600), 0, "%s", path);
    if (truncate(path, HUGE_BYTES) != 0)
        cr_skip_test("this file system has no files of a terabyte");
    cr_assert_eq(chmod(path, 0444), 0);
}

static aoticache_artifact *put_two_files(aoticache_cache *cache)
{
    aoticache_request *request = fixture_request(1);
    const aoticache_file files[] = {{.name = "model.so", .path = fixture_write("model", "library")},
                                    {.name = "side.bin", .path = fixture_write("side", "beside")}};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    aoticache_artifact *artifact = NULL;
    product.files = files;
    product.file_count = 2;
    cr_assert_eq(aoticache_cache_put(cache, request, &product, &artifact, NULL), AOTICACHE_OK);
    aoticache_request_free(request);
    return artifact;
}

static void assert_missed_and_set_aside(aoticache_cache *cache, const char *object)
{
    const uint64_t begun = aoticache_monotonic_ns();
    aoticache_artifact *artifact = NULL;
    make_huge(object);
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_NOT_FOUND);
    cr_assert_lt(aoticache_monotonic_ns() - begun, SOON_NS);
    cr_assert_eq(fixture_names("quarantine"), 1);
    cr_assert_neq(access(object, F_OK), 0);
}

Test(huge, library_is_missed_at_once)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    assert_missed_and_set_aside(cache, fixture_object_of("library one"));
    fixture_put(cache, 1, "library one");
    cr_assert(fixture_finds(cache, 1, "library one"));
    aoticache_cache_close(cache);
}

Test(huge, side_file_is_missed_at_once)
{
    aoticache_cache *cache = fixture_open();
    aoticache_artifact_unref(put_two_files(cache));
    assert_missed_and_set_aside(cache, fixture_object_of("beside"));
    aoticache_cache_close(cache);
}

Test(huge, manifest_is_missed_at_once)
{
    aoticache_cache *cache = fixture_open();
    char path[4400];
    aoticache_artifact *artifact = put_two_files(cache);
    fixture_object_path(&aoticache_artifact_get_info(artifact)->digest, path, sizeof path);
    aoticache_artifact_unref(artifact);
    assert_missed_and_set_aside(cache, path);
    aoticache_cache_close(cache);
}

/* ---- verify ---- */

struct asked {
    uint64_t enough; /* number of objects done from which on it stops */
    uint64_t when;   /* number at the first stop; 0: never */
};

static bool continues(void *user, uint64_t done, uint64_t all)
{
    struct asked *asked = user;
    (void)all;
    if (done < asked->enough)
        return true;
    asked->when = asked->when != 0 ? asked->when : aoticache_monotonic_ns();
    return false;
}

static aoticache_verify_report verify(aoticache_cache *cache, bool repair, bool resume, uint64_t enough)
{
    aoticache_verify_report report = {.entries = 0};
    aoticache_error error = {.message = ""};
    aoticache_verify_options options = AOTICACHE_VERIFY_OPTIONS_INIT;
    struct asked asked = {.enough = enough};
    options.repair = repair;
    options.resume = resume;
    cr_assert_eq(aoticache_cache_verify(cache, &options, NULL, continues, &asked, &report, &error), AOTICACHE_OK, "%s",
                 error.message);
    if (asked.when != 0)
        cr_assert_lt(aoticache_monotonic_ns() - asked.when, UINT64_C(5) * 1000000000u, "it did not stop");
    return report;
}

Test(huge, library_is_found_by_verify_at_once)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    make_huge(fixture_object_of("library one"));
    aoticache_verify_report report = verify(cache, false, false, UINT64_MAX);
    cr_assert_eq(report.damaged, 1);
    cr_assert_eq(verify(cache, true, false, UINT64_MAX).repaired, 1);
    report = verify(cache, false, false, UINT64_MAX);
    cr_assert_eq(aoticache_verify_report_problems(&report), 0);
    aoticache_cache_close(cache);
}

/* The right size is unknown, so the file is read; the callback can stop that. */
Test(huge, verify_stops_inside_an_object)
{
    aoticache_cache *cache = fixture_open();
    char path[4500], directory[4400], name[63] = "";
    fixture_put(cache, 1, "library one");
    snprintf(directory, sizeof directory, "%s/objects/ff", fixture_cache);
    cr_assert(mkdir(directory, 0700) == 0 || errno == EEXIST);
    memset(name, 'f', sizeof name - 1); /* after the manifest, whose digest differs each time */
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    cr_assert_geq(fd, 0);
    close(fd);
    make_huge(path);
    /* The library and its manifest are done; later callbacks happen while the huge file is read. */
    aoticache_verify_report report = verify(cache, true, false, 2);
    cr_assert(report.is_partial);
    cr_assert_eq(report.objects, 2);
    cr_assert_eq(aoticache_verify_report_problems(&report), 0);
    cr_assert_eq(unlink(path), 0);
    report = verify(cache, true, true, UINT64_MAX);
    cr_assert_not(report.is_partial);
    cr_assert_eq(report.objects, 2);
    cr_assert_eq(aoticache_verify_report_problems(&report), 0);
    aoticache_cache_close(cache);
}
