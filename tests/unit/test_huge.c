/*
 * Files that somebody made huge cost nothing: what is known of their size is compared before they are read, and what
 * must be read can be stopped.
 */
#include "cache_fixture.h"

#define HUGE_BYTES (INT64_C(1) << 40) /* of nothing; to hash it takes half an hour */
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
    fixture_object_path(aoticache_artifact_digest(artifact), path, sizeof path);
    aoticache_artifact_unref(artifact);
    assert_missed_and_set_aside(cache, path);
    aoticache_cache_close(cache);
}
