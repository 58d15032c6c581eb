/*
 * Entries with a guard, the stored entries that fill a holder's table, use without a lookup, compiles that fail
 * repeatedly, and the part of a compiler's output that is kept.
 */
#include "cache/eager_face.h"
#include "cache/request/cpu_list.h"
#include "cache/stats/statistics.h"
#include "tests/unit/fixtures/cache_fixture.h"
#include "cache/entries.h"
#include "cache/request/cpu_detect.h"
#include "index/index.h"

#include <sqlite3.h>

TestSuite(dynamic_entries, .init = fixture_setup, .fini = fixture_teardown);

static aoticache_request *dynamic_request(void)
{
    aoticache_request *request = fixture_request(0);
    cr_assert_eq(aoticache_request_set_environment(request, AOTICACHE_SHAPES_NAME, AOTICACHE_SHAPES_DYNAMIC, NULL),
                 AOTICACHE_OK);
    return request;
}

static aoticache_status try_put(aoticache_cache *cache, const aoticache_request *request, const char *guard,
                                const char *text, const char *output, aoticache_error *ret_error)
{
    aoticache_file file = {.name = "library.so", .path = fixture_write("made.so", text)};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    product.producer = "test";
    product.compile_ns = 1000;
    product.guard = guard;
    product.output = output;
    return aoticache_cache_put(cache, request, &product, NULL, ret_error);
}

static void put(aoticache_cache *cache, const char *guard, const char *text)
{
    aoticache_request *request = dynamic_request();
    aoticache_error error = {.message = ""};
    cr_assert_eq(try_put(cache, request, guard, text, NULL, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_request_free(request);
}

/* Accepts one guard; counts the guards that it was asked about. */
struct chooser {
    const char *wanted;
    int asked;
};

static bool choose(void *user, const char *guard)
{
    struct chooser *chooser = user;
    chooser->asked++;
    return chooser->wanted == NULL || strcmp(guard, chooser->wanted) == 0;
}

static aoticache_status lookup(aoticache_cache *cache, const char *wanted, aoticache_artifact **ret_artifact)
{
    aoticache_request *request = dynamic_request();
    struct chooser chooser = {.wanted = wanted};
    aoticache_status status =
        aoticache_cache_lookup(cache, request, &(aoticache_guard_filter){choose, &chooser}, ret_artifact, NULL);
    aoticache_request_free(request);
    return status;
}

static bool finds(aoticache_cache *cache, const char *wanted, const char *text)
{
    aoticache_artifact *artifact = NULL;
    if (lookup(cache, wanted, &artifact) != AOTICACHE_OK)
        return false;
    bool is_right = fixture_fd_has(aoticache_artifact_library_fd(artifact), text) &&
                    (wanted == NULL || strcmp(aoticache_artifact_get_info(artifact)->guard, wanted) == 0) &&
                    aoticache_artifact_entry(artifact) > 0;
    aoticache_artifact_unref(artifact);
    return is_right;
}

static aoticache_counters counters(aoticache_cache *cache)
{
    aoticache_statistics statistics;
    cr_assert_eq(aoticache_cache_get_statistics(cache, NULL, &statistics, NULL), AOTICACHE_OK);
    return statistics.counters;
}

Test(dynamic_entries, different_guards_coexist_and_the_same_replaces)
{
    aoticache_cache *cache = fixture_open();
    put(cache, "s0 < 10", "small");
    put(cache, "s0 >= 10", "large");
    cr_expect(finds(cache, "s0 < 10", "small"));
    cr_expect(finds(cache, "s0 >= 10", "large"));
    cr_expect(finds(cache, NULL, "large"), "the newest first");
    cr_expect_not(finds(cache, "s0 == 3", ""));
    put(cache, "s0 < 10", "smaller");
    cr_expect(finds(cache, "s0 < 10", "smaller"));
    cr_expect(finds(cache, "s0 >= 10", "large"));
    aoticache_counters counted = counters(cache);
    cr_expect_eq(counted.hits, 5);
    cr_expect_eq(counted.hits_dynamic, 5);
    cr_expect_eq(counted.misses, 1);
    aoticache_cache_close(cache);
}

Test(dynamic_entries, put_wants_guard_and_request_to_fit)
{
    aoticache_cache *cache = fixture_open();
    aoticache_request *exact = fixture_request(0), *dynamic = dynamic_request();
    aoticache_error error = {.message = ""};
    cr_expect_eq(try_put(cache, exact, "s0 > 1", "x", NULL, &error), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "shapes"), "%s", error.message);
    cr_expect_eq(try_put(cache, dynamic, NULL, "x", NULL, &error), AOTICACHE_INVALID);
    cr_expect_eq(try_put(cache, dynamic, "", "x", NULL, &error), AOTICACHE_INVALID);
    cr_expect_eq(try_put(cache, dynamic, "two\nlines", "x", NULL, &error), AOTICACHE_INVALID);
    cr_expect_eq(try_put(cache, exact, "", "x", NULL, &error), AOTICACHE_OK, "an empty guard is none");
    aoticache_request_free(exact);
    aoticache_request_free(dynamic);
    aoticache_cache_close(cache);
}

Test(dynamic_entries, plain_lookup_never_sees_one)
{
    aoticache_cache *cache = fixture_open();
    aoticache_request *dynamic = dynamic_request(), *exact = fixture_request(0);
    aoticache_artifact *artifact = NULL;
    struct chooser chooser = {.wanted = NULL};
    put(cache, "s0 > 1", "dynamic");
    cr_expect_eq(aoticache_cache_lookup(cache, dynamic, NULL, &artifact, NULL), AOTICACHE_NOT_FOUND);
    cr_expect_eq(aoticache_cache_lookup(cache, exact, NULL, &artifact, NULL), AOTICACHE_NOT_FOUND);
    fixture_put(cache, 0, "exact");
    cr_expect(fixture_finds(cache, 0, "exact"));
    cr_expect_eq(aoticache_cache_lookup(cache, exact, &(aoticache_guard_filter){choose, &chooser}, &artifact, NULL),
                 AOTICACHE_NOT_FOUND);
    cr_expect_eq(chooser.asked, 0);
    aoticache_request_free(dynamic);
    aoticache_request_free(exact);
    aoticache_cache_close(cache);
}

Test(dynamic_entries, rebuilt_index_has_them_again)
{
    char path[4400];
    aoticache_cache *cache = fixture_open();
    put(cache, "s0 < 10", "small");
    put(cache, "s0 >= 10", "large");
    fixture_put(cache, 0, "exact");
    aoticache_cache_close(cache);
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    cr_assert_eq(unlink(path), 0);
    cache = fixture_open();
    cr_expect(finds(cache, "s0 < 10", "small"));
    cr_expect(finds(cache, "s0 >= 10", "large"));
    cr_expect(fixture_finds(cache, 0, "exact"));
    cr_expect_eq(fixture_verify(cache, false).unindexed, 0);
    aoticache_cache_close(cache);
}

static void run_sql(const char *sql)
{
    char path[4400];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

static int64_t last_entry_id(void)
{
    char path[4400];
    sqlite3 *db;
    sqlite3_stmt *statement;
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_prepare_v2(db, "SELECT max(id) FROM details", -1, &statement, NULL), SQLITE_OK);
    cr_assert_eq(sqlite3_step(statement), SQLITE_ROW);
    int64_t id = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return id;
}

/* Removes the entry with this guard from the index, with its artifact and objects; the files stay. */
static void lose_entry(const char *guard)
{
    char path[4400];
    aoticache_index *index = NULL;
    aoticache_index_options options = {.path = path, .lock_timeout_ms = 10000};
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    cr_assert_eq(aoticache_index_open(&options, &index, NULL), AOTICACHE_OK);
    bool is_lost = false;
    for (int64_t id = last_entry_id(); id > 0 && !is_lost; id--) {
        char *found = NULL;
        if (aoticache_index_read_guard(index, id, &found, NULL) != AOTICACHE_OK)
            break;
        is_lost = strcmp(found, guard) == 0;
        if (is_lost)
            cr_assert_eq(aoticache_index_remove_entry(index, id, NULL, NULL), AOTICACHE_OK);
        free(found);
    }
    cr_assert(is_lost);
    aoticache_index_close(index);
}

Test(dynamic_entries, repair_puts_back_what_the_index_lost)
{
    aoticache_cache *cache = fixture_open();
    put(cache, "s0 < 10", "small");
    put(cache, "s0 >= 10", "large");
    aoticache_cache_close(cache);
    lose_entry("s0 < 10");
    cache = fixture_open();
    cr_expect_not(finds(cache, "s0 < 10", "small"));
    cr_expect_eq(fixture_verify(cache, true).unindexed, 1, "the other one is not taken for a replacement");
    cr_expect(finds(cache, "s0 < 10", "small"));
    cr_expect_eq(fixture_verify(cache, false).unindexed, 0);
    aoticache_cache_close(cache);
}

Test(dynamic_entries, damaged_object_is_a_miss_and_the_other_guard_still_serves)
{
    aoticache_cache *cache = fixture_open();
    put(cache, "s0 < 10", "small");
    put(cache, "s0 > 0", "large");
    fixture_damage(fixture_object_of("large"));
    cr_expect(finds(cache, NULL, "small"));
    cr_expect_eq(fixture_names("quarantine"), 1);
    cr_expect_not(finds(cache, "s0 > 0", "large"));
    aoticache_cache_close(cache);
}

/* ---- get or compile ---- */

struct hook {
    const char *guard;
    const char *text;
    aoticache_status result;
    int calls;
};

static aoticache_status compile(void *user, const aoticache_request *request, const char *directory,
                                aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    struct hook *hook = user;
    (void)request;
    hook->calls++;
    if (hook->result != AOTICACHE_OK)
        return aoticache_error_set(ret_error, hook->result, "refused %d", hook->calls);
    char path[4400];
    snprintf(path, sizeof path, "%s/made.so", directory);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(hook->text, file);
    fclose(file);
    aoticache_file made = {.name = "library.so", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &made;
    product.file_count = 1;
    product.guard = hook->guard;
    return deliver(deliver_user, &product);
}

static aoticache_status get(aoticache_cache *cache, const char *wanted, struct hook *hook,
                            aoticache_artifact **ret_artifact)
{
    aoticache_request *request = dynamic_request();
    struct chooser chooser = {.wanted = wanted};
    aoticache_status status = aoticache_cache_get_or_compile(
        cache, request, &(aoticache_guard_filter){choose, &chooser}, compile, hook, ret_artifact, NULL);
    aoticache_request_free(request);
    return status;
}

Test(dynamic_entries, get_or_compile_hands_out_what_was_compiled_whatever_its_guard)
{
    aoticache_cache *cache = fixture_open();
    aoticache_artifact *artifact = NULL;
    struct hook hook = {.guard = "s0 < 10", .text = "small"};
    cr_assert_eq(get(cache, "s0 >= 10", &hook, &artifact), AOTICACHE_OK);
    cr_expect_str_eq(aoticache_artifact_get_info(artifact)->guard, "s0 < 10");
    cr_expect_eq(aoticache_artifact_get_info(artifact)->source, AOTICACHE_SOURCE_COMPILED);
    cr_expect_gt(aoticache_artifact_entry(artifact), 0);
    aoticache_artifact_unref(artifact);
    cr_assert_eq(get(cache, "s0 < 10", &hook, &artifact), AOTICACHE_OK);
    cr_expect_eq(aoticache_artifact_get_info(artifact)->source, AOTICACHE_SOURCE_INDEX);
    aoticache_artifact_unref(artifact);
    cr_expect_eq(hook.calls, 1);
    hook = (struct hook){.guard = NULL, .text = "none"};
    cr_expect_eq(get(cache, "s0 >= 10", &hook, &artifact), AOTICACHE_INVALID, "a product without a guard");
    aoticache_cache_close(cache);
}

Test(dynamic_entries, get_or_compile_wants_the_request_that_fits)
{
    aoticache_cache *cache = fixture_open();
    aoticache_artifact *artifact = NULL;
    aoticache_request *dynamic = dynamic_request(), *exact = fixture_request(0);
    struct hook hook = {.guard = "g", .text = "x"};
    struct chooser chooser = {.wanted = NULL};
    cr_expect_eq(aoticache_cache_get_or_compile(cache, dynamic, NULL, compile, &hook, &artifact, NULL),
                 AOTICACHE_INVALID);
    cr_expect_eq(aoticache_cache_get_or_compile(cache, exact, &(aoticache_guard_filter){choose, &chooser}, compile,
                                                &hook, &artifact, NULL),
                 AOTICACHE_INVALID);
    cr_expect_eq(hook.calls, 0);
    aoticache_request_free(dynamic);
    aoticache_request_free(exact);
    aoticache_cache_close(cache);
}

Test(dynamic_entries, artifact_that_cannot_be_stored_has_its_guard)
{
    aoticache_cache_close(fixture_open());
    aoticache_cache_options options = fixture_options();
    options.read_only = true;
    aoticache_cache *cache = fixture_open_with(&options);
    aoticache_artifact *artifact = NULL;
    struct hook hook = {.guard = "s0 < 10", .text = "small"};
    cr_assert_eq(get(cache, NULL, &hook, &artifact), AOTICACHE_OK);
    cr_expect_str_eq(aoticache_artifact_get_info(artifact)->guard, "s0 < 10");
    cr_expect_eq(aoticache_artifact_entry(artifact), 0);
    aoticache_artifact_unref(artifact);
    aoticache_cache_close(cache);
}

/* ---- failures ---- */

struct seen_failure {
    int64_t delay_ns;
    uint32_t count;
    int failures;
};

static bool see_failure(void *user, const aoticache_failure *failure)
{
    struct seen_failure *seen = user;
    *seen = (struct seen_failure){failure->retry_ns - failure->failed_ns, failure->count, seen->failures + 1};
    return true;
}

static struct seen_failure fail_once_more(aoticache_cache *cache)
{
    struct hook hook = {.result = AOTICACHE_COMPILE_FAILED};
    struct seen_failure seen = {.failures = 0};
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(get(cache, NULL, &hook, &artifact), AOTICACHE_COMPILE_FAILED);
    cr_assert_eq(hook.calls, 1);
    cr_assert_eq(aoticache_cache_list_failures(cache, see_failure, &seen, NULL), AOTICACHE_OK);
    cr_assert_eq(seen.failures, 1);
    hook.calls = 0;
    cr_assert_eq(get(cache, NULL, &hook, &artifact), AOTICACHE_COMPILE_FAILED);
    cr_assert_eq(hook.calls, 0, "it is remembered");
    run_sql("UPDATE failures SET retry_ns = 1"); /* as if the time had passed */
    return seen;
}

Test(dynamic_entries, compile_that_fails_again_is_tried_after_twice_the_time)
{
    aoticache_cache_options options = fixture_options();
    options.failure_ttl_seconds = 100;
    options.failure_max_ttl_seconds = 350;
    aoticache_cache *cache = fixture_open_with(&options);
    static const int64_t seconds[] = {100, 200, 350, 350};
    for (uint32_t i = 0; i < 4; i++) {
        struct seen_failure seen = fail_once_more(cache);
        cr_expect_eq(seen.delay_ns, seconds[i] * 1000000000, "failure %u: %lld", i, (long long)seen.delay_ns);
        cr_expect_eq(seen.count, i + 1);
    }
    struct hook hook = {.guard = "g", .text = "at last"};
    struct seen_failure seen = {.failures = 0};
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(get(cache, NULL, &hook, &artifact), AOTICACHE_OK);
    aoticache_artifact_unref(artifact);
    cr_assert_eq(aoticache_cache_list_failures(cache, see_failure, &seen, NULL), AOTICACHE_OK);
    cr_expect_eq(seen.failures, 0, "success forgets");
    aoticache_cache_close(cache);
}

/* ---- stored entries ---- */

struct seen_stored {
    int count, guarded;
    int64_t last, ids[8];
    aoticache_digest artifacts[8];
    int64_t numbers[8]; /* the argument */
};

static bool see_stored(void *user, const aoticache_stored *stored)
{
    struct seen_stored *seen = user;
    aoticache_key key;
    cr_assert_eq(aoticache_request_key(stored->request, &key, NULL), AOTICACHE_OK);
    cr_expect(aoticache_digest_equal(&key, &stored->key), "the request is the one that the key names");
    seen->guarded += stored->guard[0] != '\0';
    seen->last = stored->entry_id > seen->last ? stored->entry_id : seen->last;
    if (seen->count < 8) {
        seen->ids[seen->count] = stored->entry_id;
        seen->artifacts[seen->count] = stored->artifact;
        seen->numbers[seen->count] = aoticache_request_argument(stored->request, 0)->value.int_value;
    }
    seen->count++;
    return true;
}

static struct seen_stored list_after(aoticache_cache *cache, int64_t after)
{
    struct seen_stored seen = {.count = 0};
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_cache_list_stored(cache, "aten::abs", after, see_stored, &seen, &error), AOTICACHE_OK, "%s",
                 error.message);
    return seen;
}

Test(dynamic_entries, list_stored_shows_requests_and_what_was_added_since)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "one");
    put(cache, "s0 > 1", "dynamic");
    struct seen_stored seen = list_after(cache, 0);
    cr_expect_eq(seen.count, 2);
    cr_expect_eq(seen.guarded, 1);
    cr_expect_eq(list_after(cache, seen.last).count, 0);
    aoticache_cache *other = fixture_open();
    fixture_put(other, 7, "seven");
    aoticache_cache_close(other);
    struct seen_stored added = list_after(cache, seen.last);
    cr_assert_eq(added.count, 1, "what another process added");
    cr_expect_eq(added.numbers[0], 7);
    struct seen_stored none = {.count = 0};
    cr_expect_eq(aoticache_cache_list_stored(cache, "aten::ab", 0, see_stored, &none, NULL), AOTICACHE_OK);
    cr_expect_eq(none.count, 0, "the exact name");
    cr_expect_eq(aoticache_cache_list_stored(cache, NULL, 0, see_stored, &none, NULL), AOTICACHE_INVALID);
    aoticache_cache_close(cache);
}

static bool see_name(void *user, const aoticache_stored *stored)
{
    strcat(user, aoticache_request_argument(stored->request, 0)->value.string_value);
    strcat(user, ";");
    return true;
}

Test(dynamic_entries, list_stored_with_shows_those_that_have_the_text)
{
    static const char *const names[] = {"tiny", "tinier", "large", "a tiny one", ""};
    aoticache_cache *cache = fixture_open();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        aoticache_request *request = NULL;
        cr_assert_eq(aoticache_request_create("test::named", AOTICACHE_DEVICE_CPU, &request, NULL), AOTICACHE_OK);
        cr_assert_eq(aoticache_request_add_string(request, "name", names[i], NULL), AOTICACHE_OK);
        aoticache_file file = {.name = "library.so",
                               .path = fixture_write("made.so", names[i][0] != 0 ? names[i] : "-")};
        aoticache_product product = AOTICACHE_PRODUCT_INIT;
        product.files = &file;
        product.file_count = 1;
        cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, NULL), AOTICACHE_OK);
        aoticache_request_free(request);
    }
    const struct {
        const char *text;
        size_t count;
    } cases[] = {{"tiny", 2}, {"tini", 1}, {"large", 1}, {"huge", 0}, {"", 5}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char seen[200] = "";
        size_t count = 0;
        cr_expect_eq(aoticache_cache_list_stored_with(cache, "test::named", cases[i].text, see_name, seen, NULL),
                     AOTICACHE_OK);
        for (const char *at = seen; (at = strchr(at, ';')) != NULL; at++)
            count++;
        cr_expect_eq(count, cases[i].count, "'%s': %s", cases[i].text, seen);
        cr_expect(count == 0 || strstr(seen, cases[i].text) != NULL);
    }
    char seen[200] = "";
    cr_expect_eq(aoticache_cache_list_stored_with(cache, "test::named", NULL, see_name, seen, NULL), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_cache_list_stored_with(NULL, "test::named", "tiny", see_name, seen, NULL),
                 AOTICACHE_INVALID);
    aoticache_cache_close(cache);
}

Test(dynamic_entries, list_stored_most_demanding_first_and_without_what_the_cpu_lacks)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cpu_features have = *aoticache_cpu_features_get();
    unsigned has = AOTICACHE_CPU_FEATURE_BITS, lacks = AOTICACHE_CPU_FEATURE_BITS;
    for (unsigned bit = 0; bit < AOTICACHE_CPU_FEATURE_BITS; bit++) {
        if (aoticache_cpu_features_has(&have, bit))
            has = bit;
        else
            lacks = bit;
    }
    if (has == AOTICACHE_CPU_FEATURE_BITS || lacks == AOTICACHE_CPU_FEATURE_BITS)
        cr_skip_test("this CPU has all features, or none");
    unsigned bits[] = {has, lacks};
    static const char *const texts[] = {"demanding", "impossible"};
    aoticache_request *request = fixture_request(1);
    for (int i = 0; i < 2; i++) {
        aoticache_file file = {.name = "library.so", .path = fixture_write("made.so", texts[i])};
        aoticache_product product = AOTICACHE_PRODUCT_INIT;
        product.files = &file;
        product.file_count = 1;
        product.requirements.words[bits[i] / 64] |= UINT64_C(1) << (bits[i] % 64);
        cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, NULL), AOTICACHE_OK);
    }
    aoticache_request_free(request);
    fixture_put(cache, 1, "modest");
    struct seen_stored seen = list_after(cache, 0);
    cr_assert_eq(seen.count, 2);
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(aoticache_cache_open_stored(cache, seen.ids[0], &seen.artifacts[0], &artifact, NULL), AOTICACHE_OK);
    cr_expect(fixture_fd_has(aoticache_artifact_library_fd(artifact), "demanding"));
    aoticache_artifact_unref(artifact);
    aoticache_cache_close(cache);
}

Test(dynamic_entries, list_stored_reads_the_manifest_of_an_entry_without_its_encoding)
{
    aoticache_cache *cache = fixture_open();
    for (int i = 0; i < 3; i++)
        fixture_put(cache, i, "same");
    aoticache_cache_close(cache);
    run_sql("UPDATE details SET encoding = x''"); /* as for a request that is too long for the index */
    cache = fixture_open();
    cr_expect_eq(list_after(cache, 0).count, 3);
    aoticache_cache_close(cache);
}

Test(dynamic_entries, list_stored_passes_over_an_encoding_that_went_bad)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "one");
    fixture_put(cache, 2, "two");
    aoticache_cache_close(cache);
    run_sql("UPDATE details SET encoding = (SELECT encoding FROM details ORDER BY id DESC LIMIT 1)");
    cache = fixture_open();
    struct seen_stored seen = list_after(cache, 0);
    cr_assert_eq(seen.count, 1);
    cr_expect_eq(seen.numbers[0], 2);
    aoticache_cache_close(cache);
}

Test(dynamic_entries, open_stored_counts_as_a_lookup_and_notices_damage)
{
    aoticache_cache *cache = fixture_open();
    aoticache_artifact *artifact = NULL;
    fixture_put(cache, 1, "one");
    put(cache, "s0 > 1", "dynamic");
    struct seen_stored seen = list_after(cache, 0);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(aoticache_cache_open_stored(cache, seen.ids[i], &seen.artifacts[i], &artifact, NULL),
                     AOTICACHE_OK);
        cr_expect_eq(aoticache_artifact_entry(artifact), seen.ids[i]);
        aoticache_artifact_unref(artifact);
    }
    cr_expect_eq(counters(cache).hits, 2);
    cr_expect_eq(counters(cache).hits_dynamic, 1);
    cr_expect_eq(aoticache_cache_open_stored(cache, seen.ids[0], &seen.artifacts[1], &artifact, NULL),
                 AOTICACHE_NOT_FOUND, "a number of another entry");
    cr_expect_eq(aoticache_cache_open_stored(cache, seen.last + 1, &seen.artifacts[0], &artifact, NULL),
                 AOTICACHE_NOT_FOUND);
    fixture_damage(fixture_object_of("one"));
    cr_assert_eq(unlink(fixture_object_of("dynamic")), 0);
    for (int i = 0; i < 2; i++)
        cr_expect_eq(aoticache_cache_open_stored(cache, seen.ids[i], &seen.artifacts[i], &artifact, NULL),
                     AOTICACHE_NOT_FOUND);
    cr_expect_eq(fixture_names("quarantine"), 1);
    cr_expect_eq(list_after(cache, 0).count, 0, "both entries went");
    cr_expect_eq(counters(cache).misses_damaged, 1);
    aoticache_cache_close(cache);
}

static bool see_uses(void *user, const aoticache_entry *entry)
{
    *(uint64_t *)user = entry->uses;
    return true;
}

Test(dynamic_entries, use_without_a_lookup_is_counted)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "one");
    aoticache_cache_close(cache);
    cache = fixture_open();
    struct seen_stored seen = list_after(cache, 0);
    aoticache_cache_note_use(cache, seen.ids[0], 41);
    aoticache_cache_note_use(cache, 0, 5);
    cr_expect(fixture_finds(cache, 1, "one"));
    cr_assert_eq(aoticache_cache_flush(cache, NULL), AOTICACHE_OK);
    uint64_t uses = 0;
    cr_assert_eq(aoticache_cache_list(cache, NULL, NULL, see_uses, &uses, NULL), AOTICACHE_OK);
    cr_expect_eq(uses, 42);
    aoticache_counters counted = counters(cache);
    cr_expect_eq(counted.hits, 42);
    cr_expect_eq(counted.hits_loaded, 41);
    cr_expect_eq(counted.saved_ns, 1000, "the lookup's alone");
    aoticache_cache_close(cache);
}

/* Refuses guards the first time, as if another process put the entry afterwards. */
static bool accept_later(void *user, const char *guard)
{
    (void)guard;
    return (*(int *)user)++ > 0;
}

static aoticache_status compile_nothing(void *user, const aoticache_request *request, const char *directory,
                                        aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    (void)user, (void)request, (void)directory, (void)deliver, (void)deliver_user;
    return aoticache_error_set(ret_error, AOTICACHE_COMPILE_FAILED, "this is not to be compiled");
}

Test(dynamic_entries, request_that_others_answer_after_it_missed_counts_once)
{
    aoticache_cache *cache = fixture_open();
    put(cache, "s0 > 1", "dynamic");
    aoticache_cache_close(cache);
    cache = fixture_open();
    aoticache_request *request = dynamic_request();
    for (int i = 0; i < 2; i++) {
        int asked = 0;
        aoticache_artifact *artifact = NULL;
        cr_assert_eq(aoticache_cache_get_or_compile(cache, request, &(aoticache_guard_filter){accept_later, &asked},
                                                    compile_nothing, NULL, &artifact, NULL),
                     AOTICACHE_OK);
        aoticache_artifact_unref(artifact);
        aoticache_counters counted = counters(cache);
        cr_expect_eq(counted.misses, (uint64_t)i + 1);
        cr_expect_eq(counted.waits, (uint64_t)i + 1);
        cr_expect_eq(counted.hits, 0, "the request is a miss already");
        cr_expect_eq(counted.saved_ns, 1000, "once in a process");
    }
    aoticache_request_free(request);
    aoticache_cache_close(cache);
}

/* ---- output ---- */

static char *kept_output(const char *output)
{
    aoticache_cache *cache = fixture_open();
    aoticache_request *request = fixture_request(1);
    char *text = NULL;
    cr_assert_eq(try_put(cache, request, NULL, "library", output, NULL), AOTICACHE_OK);
    aoticache_request_free(request);
    struct seen_stored seen = list_after(cache, 0);
    aoticache_status status = aoticache_cache_read_output(cache, &seen.artifacts[0], &text, NULL);
    cr_assert_eq(status, text != NULL ? AOTICACHE_OK : AOTICACHE_NOT_FOUND);
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_OK);
    cr_expect_null(aoticache_artifact_get_info(artifact)->directory, "it is no side file");
    aoticache_artifact_unref(artifact);
    cr_expect_eq(fixture_verify(cache, false).unreferenced, 0);
    aoticache_cache_close(cache);
    return text;
}

Test(dynamic_entries, output_is_kept_with_its_lines)
{
    char *text = kept_output("warning: \xc3\xa4\n\tline two \xff\n");
    cr_assert_not_null(text);
    cr_expect_str_eq(text, "warning: \xc3\xa4\n\tline two ?\n");
    free(text);
}

Test(dynamic_entries, output_absent_is_not_found)
{
    cr_expect_null(kept_output(NULL));
}

Test(dynamic_entries, output_empty_is_not_found)
{
    cr_expect_null(kept_output(""));
}

Test(dynamic_entries, output_that_is_too_long_is_cut_in_the_middle)
{
    const size_t length = 200001;
    char *long_text = malloc(length + 1);
    cr_assert_not_null(long_text);
    for (size_t i = 0; i + 1 < length; i += 2)
        memcpy(long_text + i, "\xc3\xa4", 2); /* a cut between its bytes would be noticed */
    memcpy(long_text, "BEGIN", 5);
    long_text[5] = '!';
    memcpy(long_text + length - 3, "END", 4);
    char *text = kept_output(long_text);
    cr_assert_not_null(text);
    cr_expect_leq(strlen(text), 65536);
    cr_expect_gt(strlen(text), 65000);
    cr_expect_eq(strncmp(text, "BEGIN", 5), 0);
    cr_expect_str_eq(text + strlen(text) - 3, "END");
    cr_expect_not_null(strstr(text, "bytes left out ...]"));
    free(text);
    free(long_text);
}

/* ---- many ---- */

Test(dynamic_entries, list_stored_of_many_goes_in_batches)
{
    aoticache_cache *cache = fixture_open();
    for (int i = 0; i < 3; i++)
        fixture_put(cache, i, "same");
    aoticache_cache_close(cache);
    /* 600 more rows of the same keys: more than two batches. */
    run_sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)"
        " INSERT INTO details(key, guard, op, device, description, producer, last_used_ns, uses, encoding,"
        " bytes, compile_ns) SELECT d.key, d.guard, d.op, d.device, d.description, d.producer, n.i, 0, d.encoding,"
        " d.bytes, d.compile_ns FROM details d, n;"
        "INSERT INTO entries SELECT e.key, e.rank, d.last_used_ns, d.id, e.artifact, e.library, e.library_bytes,"
        " e.file_count, e.compile_ns, e.requirements, e.content_offset FROM details d JOIN entries e ON e.key = d.key"
        " AND e.created_ns > 1000000 WHERE NOT EXISTS (SELECT 1 FROM entries x WHERE x.id = d.id)");
    cache = fixture_open();
    cr_expect_eq(list_after(cache, 0).count, 603);
    aoticache_cache_close(cache);
}
