/*
 * fault_store: opening a cache, looking up, putting, compiling once, removing, listing, pins, tags and statistics, with
 * each call in turn failing (trial.h).
 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/eager_face.h"
#include "cache/entries.h"
#include "cache/pins/pins.h"
#include "cache/request/text.h"
#include "cache/stats/statistics.h"
#include "cache/stats/usage.h"
#include "tests/fault/cases.h"
#include "tests/fault/trial.h"
#include "tests/helpers/cache_process.h"
#include "tests/helpers/pins.h"

static void remove_cache(void)
{
    remove_directory(trial_cache());
    if (mkdir(trial_cache(), 0700) != 0)
        fail("mkdir", trial_cache());
}

/* Writes a configuration, for settings from files. */
static void write_configuration(void)
{
    char path[600], text[800];
    snprintf(path, sizeof path, "%s/config", trial_root());
    snprintf(text, sizeof text, "directory = %s\nmax_size = 1G\nlock_timeout = 500ms\n", trial_cache());
    write_file(path, text);
}

static aoticache_status do_open_configured(aoticache_cache *unused, aoticache_error *ret_error)
{
    char path[600];
    aoticache_cache *cache = NULL;
    (void)unused;
    snprintf(path, sizeof path, "%s/config", trial_root());
    setenv("AOTICACHE_CONFIG", path, 1);
    setenv("AOTICACHE_DIR", trial_cache(), 1); /* not the user's own, if the file cannot be read */
    const aoticache_status status = aoticache_cache_open(NULL, &cache, ret_error);
    aoticache_cache_close(cache);
    setenv("AOTICACHE_CONFIG", "", 1);
    return status;
}

/* Converts a request to each of its forms. */
static aoticache_status do_request(aoticache_cache *unused, aoticache_error *ret_error)
{
    aoticache_request *request = NULL, *again = NULL, *decoded = NULL;
    char *line = NULL, *text = NULL, shown[200];
    uint8_t *encoding = NULL;
    size_t size = 0;
    aoticache_key key;
    (void)unused;
    aoticache_status status = aoticache_request_parse("aten::add.Tensor(float32[2, 3], float32[2, 3]{1, 2}, alpha=1)",
                                                      AOTICACHE_REQUEST_TEXT, &request, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_add_string(request, "mode", "floor", ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_set_environment(request, "producer", "test 1", ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_key(request, &key, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_encode(request, &encoding, &size, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_decode(encoding, size, &decoded, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_write(request, AOTICACHE_REQUEST_TEXT, &text, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_write(request, AOTICACHE_REQUEST_JSON, &line, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_parse(line, AOTICACHE_REQUEST_JSON, &again, ret_error);
    if (status == AOTICACHE_OK)
        aoticache_request_format(again, shown, sizeof shown);
    free(encoding);
    free(text);
    free(line);
    aoticache_request_free(request);
    aoticache_request_free(again);
    aoticache_request_free(decoded);
    return status;
}

/* ---- looking up ---- */

static aoticache_status lookup(aoticache_cache *cache, int number, aoticache_error *ret_error)
{
    aoticache_artifact *artifact = NULL;
    aoticache_request *request = trial_request(number);
    const aoticache_status status = aoticache_cache_lookup(cache, request, NULL, &artifact, ret_error);
    char expected[64], actual[64] = "";
    injection_pause();
    library_text(number, expected);
    if (status == AOTICACHE_OK && (pread(aoticache_artifact_library_fd(artifact), actual, sizeof actual - 1, 0) < 0 ||
                                   strcmp(actual, expected) != 0))
        fail("lookup", "it returned other bytes");
    injection_resume();
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
    return status;
}

static aoticache_status do_lookup(aoticache_cache *cache, aoticache_error *ret_error)
{
    return lookup(cache, 1, ret_error);
}

static aoticache_status do_lookup_of_record(aoticache_cache *cache, aoticache_error *ret_error)
{
    return lookup(cache, 3, ret_error);
}

static aoticache_status do_lookup_of_two(aoticache_cache *cache, aoticache_error *ret_error)
{
    return lookup(cache, 2, ret_error);
}

static void remove_links(void)
{
    char path[700];
    snprintf(path, sizeof path, "%s/artifacts", trial_cache());
    remove_directory(path);
}

/* ---- storing ---- */

static aoticache_status do_put(aoticache_cache *cache, aoticache_error *ret_error)
{
    return trial_put(cache, TRIAL_NEW_KEY + 3, false, ret_error);
}

static aoticache_status do_put_record(aoticache_cache *cache, aoticache_error *ret_error)
{
    return trial_put(cache, TRIAL_NEW_KEY + 1, false, ret_error);
}

static aoticache_status do_put_two(aoticache_cache *cache, aoticache_error *ret_error)
{
    return trial_put(cache, TRIAL_NEW_KEY, true, ret_error);
}

static aoticache_status do_replace(aoticache_cache *cache, aoticache_error *ret_error)
{
    return trial_put(cache, 3, true, ret_error);
}

static aoticache_status compile(void *user, const aoticache_request *request, const char *directory,
                                aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    char path[700], text[64];
    (void)request, (void)ret_error;
    library_text(TRIAL_NEW_KEY, text);
    snprintf(path, sizeof path, "%s/k.so", directory);
    injection_pause();
    write_file(path, text);
    injection_resume();
    aoticache_file made = {.name = "k.so", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &made;
    product.file_count = 1;
    product.in_manifest = user != NULL;
    return deliver(deliver_user, &product);
}

static aoticache_status compile_new(aoticache_cache *cache, bool is_in_manifest, aoticache_error *ret_error)
{
    aoticache_artifact *artifact = NULL;
    aoticache_request *request = trial_request(TRIAL_NEW_KEY);
    const aoticache_status status = aoticache_cache_get_or_compile(cache, request, NULL, compile,
                                                                   is_in_manifest ? cache : NULL, &artifact, ret_error);
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
    return status;
}

static aoticache_status do_compile(aoticache_cache *cache, aoticache_error *ret_error)
{
    return compile_new(cache, false, ret_error);
}

static aoticache_status do_compile_record(aoticache_cache *cache, aoticache_error *ret_error)
{
    return compile_new(cache, true, ret_error);
}

static aoticache_status cannot_compile(void *user, const aoticache_request *request, const char *directory,
                                       aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    (void)user, (void)request, (void)directory, (void)deliver, (void)deliver_user;
    return aoticache_error_set(ret_error, AOTICACHE_COMPILE_FAILED, "compiler: there is no such operator");
}

/* Tests a failure that is remembered, and forgotten. */
static aoticache_status do_fail_to_compile(aoticache_cache *cache, aoticache_error *ret_error)
{
    aoticache_artifact *artifact = NULL;
    aoticache_request *request = trial_request(TRIAL_NEW_KEY);
    aoticache_status status =
        aoticache_cache_get_or_compile(cache, request, NULL, cannot_compile, NULL, &artifact, ret_error);
    aoticache_request_free(request);
    if (status != AOTICACHE_COMPILE_FAILED)
        return status;
    ret_error->message[0] = '\0';
    return aoticache_cache_forget_failures(cache, NULL, ret_error);
}

static aoticache_status do_remove(aoticache_cache *cache, aoticache_error *ret_error)
{
    const aoticache_key key = trial_key(2);
    const aoticache_status status = aoticache_cache_remove(cache, &key, ret_error);
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status; /* done the first time */
}

static const char *look_whether_removed(aoticache_cache *cache)
{
    for (int i = 1; i <= TRIAL_STORED; i++)
        if (trial_finds(cache, i) != (i != 2))
            return i == 2 ? "an entry that was removed is found" : "an entry that was not removed is lost";
    return NULL;
}

/* ---- listing and reading ---- */

static bool see_entry(void *user, const aoticache_entry *entry)
{
    *(int *)user += entry->bytes > 0;
    return true;
}

static aoticache_status do_list(aoticache_cache *cache, aoticache_error *ret_error)
{
    int seen = 0;
    const aoticache_status status = aoticache_cache_list(cache, NULL, NULL, see_entry, &seen, ret_error);
    return status == AOTICACHE_OK && seen != TRIAL_STORED ? AOTICACHE_CORRUPT : status;
}

static bool see_usage(void *user, const aoticache_usage *usage)
{
    (void)user, (void)usage;
    return true;
}

static aoticache_status do_usage(aoticache_cache *cache, aoticache_error *ret_error)
{
    return aoticache_cache_list_usage(cache, AOTICACHE_USAGE_BY_OP, see_usage, NULL, ret_error);
}

/* ---- pins, tags, statistics ---- */

static aoticache_status do_pin(aoticache_cache *cache, aoticache_error *ret_error)
{
    const aoticache_key key = trial_key(1);
    return pin_key(cache, &key, ret_error);
}

static aoticache_status do_tag_and_untag(aoticache_cache *cache, aoticache_error *ret_error)
{
    const aoticache_key key = trial_key(3);
    aoticache_status status = tag_key(cache, &key, "night", ret_error);
    return status == AOTICACHE_OK ? untag_key(cache, &key, "night", ret_error) : status;
}

static bool see_pins(void *user, const aoticache_pins *pins)
{
    *(bool *)user |= pins->is_pinned;
    return true;
}

static const char *look_for_pin(aoticache_cache *cache)
{
    bool has_pin = false;
    if (aoticache_cache_list_pins(cache, NULL, see_pins, &has_pin, NULL) != AOTICACHE_OK)
        return "the pins cannot be listed";
    return has_pin ? NULL : "a pin that was reported as set is gone";
}

static aoticache_status do_flush(aoticache_cache *cache, aoticache_error *ret_error)
{
    for (int i = 1; i <= TRIAL_STORED; i++)
        lookup(cache, i, NULL);
    lookup(cache, TRIAL_NEW_KEY, NULL);
    return aoticache_cache_flush(cache, ret_error);
}

static const struct operation operations[] = {
    {.name = "request", .perform = do_request, .without_cache = true},
    {.name = "open", .perform = trial_reopen, .opens_itself = true},
    {.name = "open, made anew", .perform = trial_reopen, .opens_itself = true, .spoil = remove_cache, .removes = true},
    {.name = "open, configured", .perform = do_open_configured, .opens_itself = true, .spoil = write_configuration},
    {.name = "lookup", .perform = do_lookup, .may_be = TRIAL_MAY_BE(NOT_FOUND)},
    {.name = "lookup with side files", .perform = do_lookup_of_two, .may_be = TRIAL_MAY_BE(NOT_FOUND)},
    {.name = "lookup that links",
     .perform = do_lookup_of_two,
     .spoil = remove_links,
     .may_be = TRIAL_MAY_BE(NOT_FOUND)},
    {.name = "lookup of a record", .perform = do_lookup_of_record, .may_be = TRIAL_MAY_BE(NOT_FOUND)},
    {.name = "put", .perform = do_put, .puts = TRIAL_NEW_KEY + 3},
    {.name = "put of a record", .perform = do_put_record, .puts = TRIAL_NEW_KEY + 1},
    {.name = "put of two files", .perform = do_put_two, .puts = TRIAL_NEW_KEY},
    {.name = "put that replaces", .perform = do_replace},
    {.name = "get or compile", .perform = do_compile, .puts = TRIAL_NEW_KEY, .may_not_store = true},
    {.name = "get or compile a record", .perform = do_compile_record, .puts = TRIAL_NEW_KEY, .may_not_store = true},
    {.name = "remembering a failure", .perform = do_fail_to_compile},
    {.name = "remove", .perform = do_remove, .removes = true, .look = look_whether_removed},
    {.name = "list",
     .perform = do_list,
     .may_be = TRIAL_MAY_BE(CORRUPT)}, /* cache.h: for an index that cannot be read */
    {.name = "usage", .perform = do_usage},
    {.name = "pin", .perform = do_pin, .look = look_for_pin},
    {.name = "tag", .perform = do_tag_and_untag},
    {.name = "flushing statistics", .perform = do_flush},
};

int main(int argc, char **argv)
{
    return trial_main(argc, argv, operations, sizeof operations / sizeof operations[0], 40);
}
