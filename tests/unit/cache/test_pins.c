/*
 * Pins and tags: they are durable, belong to keys, survive the index, and damage to one file does not affect others.
 */
#include "tests/unit/fixtures/cache_fixture.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/wait.h>

#include "base/digest.h"
#include "base/names.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "cache/pins/pins.h"
#include "cache/request/text.h"
#include "cache/stats/usage.h"
#include "tests/helpers/pins.h"

TestSuite(pins, .init = fixture_setup, .fini = fixture_teardown, .timeout = 300);

static aoticache_cache *open_cache(void)
{
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    aoticache_cache_options options = fixture_options();
    cr_assert_eq(aoticache_cache_open(&options, &cache, &error), AOTICACHE_OK, "%s", error.message);
    return cache;
}

static aoticache_key make_key(const char *text)
{
    aoticache_key key;
    cr_assert_eq(aoticache_digest_of(text, strlen(text), &key), AOTICACHE_OK);
    return key;
}

static void mark_path(const aoticache_key *key, char path[4400])
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(key, hex);
    snprintf(path, 4400, "%s/marks/%s", fixture_cache, hex);
}

static void write_mark(const aoticache_key *key, const char *text)
{
    char path[4400];
    mark_path(key, path);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

static void remove_index(void)
{
    static const char *const names[] = {"index.sqlite3", "index.sqlite3-wal", "index.sqlite3-shm"};
    for (size_t i = 0; i < 3; i++) {
        char path[4400];
        snprintf(path, sizeof path, "%s/%s", fixture_cache, names[i]);
        unlink(path);
    }
}

/* All pins and tags in one text: "1 a,b;0 c;" in the order of the keys. */
struct listing {
    char text[32768];
    aoticache_key keys[512];
    size_t count, limit;
};

static bool take_pins(void *user, const aoticache_pins *pins)
{
    struct listing *listing = user;
    size_t used = strlen(listing->text);
    used += (size_t)snprintf(listing->text + used, sizeof listing->text - used, "%d ", pins->is_pinned);
    for (size_t i = 0; i < pins->tag_count; i++)
        used += (size_t)snprintf(listing->text + used, sizeof listing->text - used, "%s%s", i > 0 ? "," : "",
                                 pins->tags[i]);
    snprintf(listing->text + used, sizeof listing->text - used, ";");
    listing->keys[listing->count++] = pins->key;
    return listing->count != listing->limit;
}

static struct listing list_marks(aoticache_cache *cache, const char *tag)
{
    struct listing listing = {.text = ""};
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_cache_list_pins(cache, tag, take_pins, &listing, &error), AOTICACHE_OK, "%s", error.message);
    return listing;
}

#define assert_marks(cache, expected)                    \
    do {                                                 \
        struct listing listed = list_marks(cache, NULL); \
        cr_assert_str_eq(listed.text, expected);         \
    } while (0)

Test(pins, pin_and_unpin_are_idempotent_and_leave_nothing)
{
    aoticache_cache *cache = open_cache();
    aoticache_key key = make_key("a");
    char path[4400];
    mark_path(&key, path);
    assert_marks(cache, "");
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pin_key(cache, &key, NULL), AOTICACHE_OK);
    assert_marks(cache, "1 ;");
    cr_assert_eq(access(path, F_OK), 0);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(unpin_key(cache, &key, NULL), AOTICACHE_OK);
    assert_marks(cache, "");
    cr_assert_neq(access(path, F_OK), 0);
    aoticache_cache_close(cache);
}

Test(pins, tags_are_sorted_unique_and_limited)
{
    aoticache_cache *cache = open_cache();
    aoticache_key key = make_key("a");
    aoticache_error error = {.message = ""};
    const char *const tags[] = {"b", "a", "c", "a"};
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(tag_key(cache, &key, tags[i], NULL), AOTICACHE_OK);
    assert_marks(cache, "0 a,b,c;");
    cr_assert_eq(untag_key(cache, &key, "b", NULL), AOTICACHE_OK);
    cr_assert_eq(untag_key(cache, &key, "never", NULL), AOTICACHE_OK);
    assert_marks(cache, "0 a,c;");
    for (int i = 2; i < AOTICACHE_MAX_TAGS; i++) {
        char tag[16];
        snprintf(tag, sizeof tag, "t%d", i);
        cr_assert_eq(tag_key(cache, &key, tag, NULL), AOTICACHE_OK);
    }
    cr_assert_eq(tag_key(cache, &key, "a", NULL), AOTICACHE_OK, "one that is there is no more");
    cr_assert_eq(tag_key(cache, &key, "more", &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "already has 64 tags"), "%s", error.message);
    aoticache_cache_close(cache);
}

Test(pins, text_that_is_no_tag_is_refused)
{
    static const char *const wrong[] = {"", "a b", "a\nb", "\"", "-x", "\xc3\xa4", "a\\b"};
    static const char *const right[] = {"a", "A-z_0.9:/", "nightly/2026-01"};
    aoticache_cache *cache = open_cache();
    aoticache_key key = make_key("a");
    char longest[AOTICACHE_MAX_TAG_BYTES + 1];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        cr_assert_eq(tag_key(cache, &key, wrong[i], NULL), AOTICACHE_INVALID, "%zu", i);
        cr_assert_eq(untag_key(cache, &key, wrong[i], NULL), AOTICACHE_INVALID, "%zu", i);
    }
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++)
        cr_assert_eq(aoticache_tag_check(right[i], NULL), AOTICACHE_OK, "%s", right[i]);
    memset(longest, 'x', sizeof longest);
    longest[AOTICACHE_MAX_TAG_BYTES] = '\0';
    cr_assert_eq(aoticache_tag_check(longest, NULL), AOTICACHE_INVALID);
    longest[AOTICACHE_MAX_TAG_BYTES - 1] = '\0';
    cr_assert_eq(tag_key(cache, &key, longest, NULL), AOTICACHE_OK);
    cr_assert_eq(tag_key(cache, NULL, "a", NULL), AOTICACHE_INVALID);
    cr_assert_eq(pin_key(NULL, &key, NULL), AOTICACHE_INVALID);
    aoticache_cache_close(cache);
}

Test(pins, list_is_in_the_order_of_keys_and_by_tag)
{
    aoticache_cache *cache = open_cache();
    for (int i = 0; i < 20; i++) {
        char text[16];
        snprintf(text, sizeof text, "key %d", i);
        aoticache_key key = make_key(text);
        cr_assert_eq(tag_key(cache, &key, i % 4 == 0 ? "four" : "other", NULL), AOTICACHE_OK);
        if (i % 8 == 0)
            cr_assert_eq(pin_key(cache, &key, NULL), AOTICACHE_OK);
    }
    struct listing all = list_marks(cache, NULL), four = list_marks(cache, "four"), none = list_marks(cache, "five");
    cr_assert_eq(all.count, 20);
    for (size_t i = 1; i < all.count; i++)
        cr_assert_lt(memcmp(&all.keys[i - 1], &all.keys[i], sizeof all.keys[0]), 0);
    cr_assert_eq(four.count, 5);
    cr_assert_eq(none.count, 0);
    struct listing stopped = {.limit = 3};
    cr_assert_eq(aoticache_cache_list_pins(cache, NULL, take_pins, &stopped, NULL), AOTICACHE_OK);
    cr_assert_eq(stopped.count, 3);
    aoticache_cache_close(cache);
}

static int count_files(const char *directory)
{
    char path[4400];
    int count = 0;
    snprintf(path, sizeof path, "%s/%s", fixture_cache, directory);
    DIR *listing = opendir(path);
    for (struct dirent *item; listing != NULL && (item = readdir(listing)) != NULL;)
        count += item->d_name[0] != '.';
    if (listing != NULL)
        closedir(listing);
    return count;
}

struct fault {
    int calls, fails_at;
    bool dies;
    bool was_unlink; /* so the file stays */
};

static int fail_at(void *user, const char *call, const char *path)
{
    struct fault *fault = user;
    (void)path;
    if (++fault->calls != fault->fails_at)
        return 0;
    fault->was_unlink = strcmp(call, "unlink") == 0;
    if (fault->dies)
        _exit(7);
    return EIO;
}

/* Several batches; keys that are marked already do not change, and a failure reports the progress. */
Test(pins, many_keys_are_marked_together)
{
    enum { MANY = 300 };
    aoticache_cache *cache = open_cache();
    aoticache_key keys[MANY];
    size_t done = 0;
    for (int i = 0; i < MANY; i++) {
        char text[16];
        snprintf(text, sizeof text, "key %d", i);
        keys[i] = make_key(text);
    }
    cr_assert_eq(tag_key(cache, &keys[7], "seven", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_change_pins(cache, keys, MANY, AOTICACHE_PIN, NULL, &done, NULL), AOTICACHE_OK);
    cr_assert_eq(done, MANY);
    cr_assert_eq(aoticache_cache_change_pins(cache, keys, MANY, AOTICACHE_TAG, "all", NULL, NULL), AOTICACHE_OK);
    struct listing all = list_marks(cache, "all"), seven = list_marks(cache, "seven");
    cr_assert_eq(all.count, MANY);
    cr_assert_str_eq(seven.text, "1 all,seven;");
    aoticache_cache_close(cache);
    remove_index();
    cache = open_cache();
    cr_assert_eq(list_marks(cache, "all").count, MANY, "each has its file");
    cr_assert_eq(aoticache_cache_change_pins(cache, keys, MANY, AOTICACHE_UNPIN, NULL, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_change_pins(cache, keys, MANY, AOTICACHE_UNTAG, "all", NULL, NULL), AOTICACHE_OK);
    assert_marks(cache, "0 seven;");
    char text[16];
    for (int i = 1; i < AOTICACHE_MAX_TAGS; i++) {
        snprintf(text, sizeof text, "t%d", i);
        cr_assert_eq(tag_key(cache, &keys[200], text, NULL), AOTICACHE_OK);
    }
    cr_assert_eq(tag_key(cache, &keys[200], "last", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_change_pins(cache, keys, MANY, AOTICACHE_TAG, "more", &done, NULL), AOTICACHE_INVALID,
                 "one of them can have no more");
    cr_assert_eq(list_marks(cache, "more").count, done);
    cr_assert(done > 0 && done <= 200);
    cr_assert_eq(aoticache_cache_change_pins(cache, keys, 1, AOTICACHE_TAG, NULL, NULL, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_cache_change_pins(cache, keys, 1, (aoticache_pin_action)4, NULL, NULL, NULL),
                 AOTICACHE_INVALID);
    cr_assert_eq(aoticache_cache_change_pins(cache, NULL, 0, AOTICACHE_PIN, NULL, &done, NULL), AOTICACHE_OK);
    cr_assert_eq(done, 0);
    aoticache_cache_close(cache);
}

/* If writing several files fails part way, no temporary file stays. */
Test(pins, batch_that_fails_leaves_whole_marks)
{
    aoticache_cache *cache = open_cache();
    aoticache_key keys[20];
    int failures = 0;
    for (int i = 0; i < 20; i++) {
        char text[16];
        snprintf(text, sizeof text, "key %d", i);
        keys[i] = make_key(text);
    }
    for (int at = 1;; at++) {
        struct fault fault = {.fails_at = at};
        aoticache_syscall_hook_set(fail_at, &fault);
        aoticache_status status = aoticache_cache_change_pins(cache, keys, 20, AOTICACHE_TAG, "t", NULL, NULL);
        aoticache_syscall_hook_set(NULL, NULL);
        if (fault.calls < at)
            break;
        failures += status != AOTICACHE_OK;
        cr_assert_leq(count_files("tmp"), fault.was_unlink ? 1 : 0, "after call %d", at);
        cr_assert_eq(aoticache_cache_change_pins(cache, keys, 20, AOTICACHE_UNTAG, "t", NULL, NULL), AOTICACHE_OK);
        assert_marks(cache, "");
        cr_assert_eq(count_files("marks"), 0);
    }
    cr_assert_gt(failures, 40);
    aoticache_cache_close(cache);
}

Test(pins, index_that_is_lost_gets_them_back)
{
    aoticache_cache *cache = open_cache();
    aoticache_key key = make_key("a");
    cr_assert_eq(pin_key(cache, &key, NULL), AOTICACHE_OK);
    cr_assert_eq(tag_key(cache, &key, "a", NULL), AOTICACHE_OK);
    cr_assert_eq(tag_key(cache, &key, "b", NULL), AOTICACHE_OK);
    aoticache_cache_close(cache);
    remove_index();
    cache = open_cache();
    assert_marks(cache, "1 a,b;");
    /* The same if the index is removed while it is open. */
    remove_index();
    cr_assert_eq(tag_key(cache, &key, "c", NULL), AOTICACHE_OK);
    assert_marks(cache, "1 a,b,c;");
    aoticache_cache_close(cache);
}

Test(pins, damaged_file_is_set_aside_and_written_again)
{
    static const char *const damaged[] = {"", "nonsense", "[]", "{}", "{\"key\":\"0\",\"pinned\":true,\"tags\":[]}"};
    aoticache_cache *cache = open_cache();
    aoticache_key key = make_key("a"), other = make_key("b");
    cr_assert_eq(pin_key(cache, &key, NULL), AOTICACHE_OK);
    cr_assert_eq(tag_key(cache, &key, "a", NULL), AOTICACHE_OK);
    cr_assert_eq(pin_key(cache, &other, NULL), AOTICACHE_OK);
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        fixture_warnings = 0;
        write_mark(&key, damaged[i]);
        cr_assert_eq(tag_key(cache, &key, "a", NULL), AOTICACHE_OK, "%zu", i);
        cr_assert_eq(fixture_warnings, 1, "%zu", i);
        fixture_warnings = 0;
        cr_assert_eq(pin_key(cache, &key, NULL), AOTICACHE_OK);
        cr_assert_eq(fixture_warnings, 0, "%zu: it is whole again", i);
    }
    write_mark(&key, "{\"tags\":[\"later\"],\"unknown\":7,\"pinned\":true");
    aoticache_cache_close(cache);
    remove_index();
    cache = open_cache();
    assert_marks(cache, "1 ;"); /* of the other key; this one's is reported as lost */
    aoticache_cache_close(cache);
}

Test(pins, file_of_a_later_program_is_read)
{
    aoticache_cache *cache = open_cache();
    aoticache_key key = make_key("a");
    char hex[AOTICACHE_DIGEST_HEX_BYTES], text[256];
    cr_assert_eq(pin_key(cache, &key, NULL), AOTICACHE_OK);
    aoticache_digest_to_hex(&key, hex);
    snprintf(text, sizeof text, "{\"note\": [1], \"tags\": [\"b\", \"a\", \"b\"], \"pinned\": false, \"key\": \"%s\"}",
             hex);
    write_mark(&key, text);
    aoticache_cache_close(cache);
    remove_index();
    cache = open_cache();
    assert_marks(cache, "0 a,b;");
    aoticache_cache_close(cache);
}

Test(pins, file_that_differs_from_the_index_wins)
{
    aoticache_cache *cache = open_cache();
    aoticache_key key = make_key("a");
    char path[4400];
    cr_assert_eq(pin_key(cache, &key, NULL), AOTICACHE_OK);
    mark_path(&key, path);
    cr_assert_eq(unlink(path), 0);
    assert_marks(cache, "1 ;");
    cr_assert_eq(tag_key(cache, &key, "a", NULL), AOTICACHE_OK);
    assert_marks(cache, "0 a;");
    aoticache_cache_close(cache);
}

Test(pins, read_only_cache_refuses_changes_and_lists)
{
    aoticache_cache *cache = open_cache();
    aoticache_key key = make_key("a");
    cr_assert_eq(pin_key(cache, &key, NULL), AOTICACHE_OK);
    aoticache_cache_close(cache);
    aoticache_cache_options options = fixture_options();
    options.read_only = true;
    cr_assert_eq(aoticache_cache_open(&options, &cache, NULL), AOTICACHE_OK);
    cr_assert_eq(unpin_key(cache, &key, NULL), AOTICACHE_DENIED);
    assert_marks(cache, "1 ;");
    aoticache_cache_close(cache);
}

/* ---- every call that changes the disk fails once ---- */

Test(pins, call_that_fails_leaves_what_was)
{
    aoticache_cache *cache = open_cache();
    aoticache_key key = make_key("a");
    cr_assert_eq(tag_key(cache, &key, "a", NULL), AOTICACHE_OK);
    int failures = 0;
    for (int at = 1;; at++) {
        struct fault fault = {.fails_at = at};
        aoticache_syscall_hook_set(fail_at, &fault);
        aoticache_status status = pin_key(cache, &key, NULL);
        aoticache_syscall_hook_set(NULL, NULL);
        if (fault.calls < at)
            break;
        failures += status != AOTICACHE_OK;
        /* Whatever failed, the next change and a new index see one complete set of pins and tags. */
        cr_assert_eq(unpin_key(cache, &key, NULL), AOTICACHE_OK, "after call %d", at);
        assert_marks(cache, "0 a;");
    }
    cr_assert_gt(failures, 3);
    aoticache_cache_close(cache);
}

Test(pins, process_that_dies_leaves_one_whole_mark)
{
    aoticache_cache *cache = open_cache();
    aoticache_key key = make_key("a");
    cr_assert_eq(tag_key(cache, &key, "a", NULL), AOTICACHE_OK);
    aoticache_cache_close(cache);
    for (int at = 1;; at++) {
        pid_t child = fork();
        if (child == 0) {
            struct fault fault = {.fails_at = at, .dies = true};
            aoticache_cache_options options = fixture_options();
            if (aoticache_cache_open(&options, &cache, NULL) != AOTICACHE_OK)
                _exit(1);
            aoticache_syscall_hook_set(fail_at, &fault);
            _exit(pin_key(cache, &key, NULL) == AOTICACHE_OK ? 0 : 2);
        }
        int result;
        cr_assert_eq(waitpid(child, &result, 0), child);
        remove_index();
        cache = open_cache();
        struct listing listing = list_marks(cache, NULL);
        bool done = WIFEXITED(result) && WEXITSTATUS(result) == 0;
        cr_assert(done || WEXITSTATUS(result) == 7, "call %d: exit %d", at, WEXITSTATUS(result));
        cr_assert(strcmp(listing.text, "1 a;") == 0 || (!done && strcmp(listing.text, "0 a;") == 0), "call %d: %s", at,
                  listing.text);
        cr_assert_eq(unpin_key(cache, &key, NULL), AOTICACHE_OK);
        aoticache_cache_close(cache);
        if (done)
            break;
    }
}

/* ---- many concurrently ---- */

#define WORKERS 8
#define ROUNDS 8

static void *tag_often(void *user)
{
    int worker = *(int *)user;
    aoticache_cache *cache = open_cache();
    aoticache_key key = make_key("a");
    for (int i = 0; i < ROUNDS; i++) {
        char tag[32];
        snprintf(tag, sizeof tag, "w%d.%d", worker, i);
        cr_assert_eq(tag_key(cache, &key, tag, NULL), AOTICACHE_OK);
    }
    aoticache_cache_close(cache);
    return NULL;
}

Test(pins, changes_by_many_at_once_are_all_kept)
{
    pthread_t threads[WORKERS];
    int numbers[WORKERS];
    aoticache_cache *cache = open_cache();
    for (int i = 0; i < WORKERS; i++) {
        numbers[i] = i;
        cr_assert_eq(pthread_create(&threads[i], NULL, tag_often, &numbers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    struct listing listing = list_marks(cache, NULL);
    int commas = 0;
    for (const char *c = listing.text; *c != '\0'; c++)
        commas += *c == ',';
    cr_assert_eq(commas, WORKERS * ROUNDS - 1);
    aoticache_cache_close(cache);
    remove_index();
    cache = open_cache();
    assert_marks(cache, listing.text);
    aoticache_cache_close(cache);
}

/* ---- usage ---- */

static bool take_usage(void *user, const aoticache_usage *usage)
{
    char *text = user;
    size_t used = strlen(text);
    snprintf(text + used, 1024 - used, "%s %llu;", usage->name, (unsigned long long)usage->entries);
    return true;
}

static aoticache_key put(aoticache_cache *cache, const char *line, const char *library)
{
    char path[4400];
    aoticache_request *request = NULL;
    aoticache_error error = {.message = ""};
    aoticache_key key;
    snprintf(path, sizeof path, "%s/library.so", fixture_root);
    FILE *file = fopen(path, "w");
    fputs(library, file);
    fclose(file);
    aoticache_file files[] = {{"library.so", path}};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = files;
    product.file_count = 1;
    product.producer = "test";
    cr_assert_eq(aoticache_request_parse(line, AOTICACHE_REQUEST_TEXT, &request, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_request_key(request, &key, NULL), AOTICACHE_OK);
    aoticache_request_free(request);
    return key;
}

static bool count_entry(void *user, const aoticache_entry *entry)
{
    (void)entry;
    ++*(int *)user;
    return true;
}

static int count_entries(aoticache_cache *cache)
{
    int count = 0;
    cr_assert_eq(aoticache_cache_list(cache, NULL, NULL, count_entry, &count, NULL), AOTICACHE_OK);
    return count;
}

Test(pins, pinned_entry_is_not_collected)
{
    aoticache_cache *cache = open_cache();
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    aoticache_collect_report report;
    aoticache_key key = put(cache, "aten::abs(float32[2])", "one");
    put(cache, "aten::abs(float32[3])", "two");
    options.max_bytes = 1;
    cr_assert_eq(pin_key(cache, &key, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, NULL, &report, NULL), AOTICACHE_OK);
    cr_assert_eq(count_entries(cache), 1);
    cr_assert_eq(report.pinned, 1);
    /* Removed by name the entry goes, and the pin applies to the next entry for the key. */
    cr_assert_eq(aoticache_cache_remove(cache, &key, NULL), AOTICACHE_OK);
    cr_assert_eq(count_entries(cache), 0);
    put(cache, "aten::abs(float32[2])", "one");
    cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, NULL, &report, NULL), AOTICACHE_OK);
    cr_assert_eq(count_entries(cache), 1);
    cr_assert_eq(unpin_key(cache, &key, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, NULL, &report, NULL), AOTICACHE_OK);
    cr_assert_eq(count_entries(cache), 0);
    aoticache_cache_close(cache);
}

static bool add_bytes(void *user, const aoticache_usage *usage)
{
    *(uint64_t *)user += usage->bytes;
    return true;
}

Test(pins, usage_counts_objects_once_in_a_group)
{
    aoticache_cache *cache = open_cache();
    char library[5000], by_op[1024] = "", by_tag[1024] = "";
    uint64_t bytes = 0;
    memset(library, 'x', sizeof library);
    library[sizeof library - 1] = '\0';
    aoticache_key first = put(cache, "aten::abs(float32[2])", library);
    put(cache, "aten::abs(float32[3])", library);
    put(cache, "aten::neg(float32[2])", "small");
    cr_assert_eq(tag_key(cache, &first, "a", NULL), AOTICACHE_OK);
    cr_assert_eq(tag_key(cache, &first, "b", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_list_usage(cache, AOTICACHE_USAGE_BY_OP, take_usage, by_op, NULL), AOTICACHE_OK);
    cr_assert_str_eq(by_op, "aten::abs 2;aten::neg 1;");
    cr_assert_eq(aoticache_cache_list_usage(cache, AOTICACHE_USAGE_BY_TAG, take_usage, by_tag, NULL), AOTICACHE_OK);
    cr_assert_str_eq(by_tag, " 2;a 1;b 1;");
    cr_assert_eq(aoticache_cache_list_usage(cache, AOTICACHE_USAGE_BY_DEVICE, add_bytes, &bytes, NULL), AOTICACHE_OK);
    cr_assert_gt(bytes, sizeof library);
    cr_assert_lt(bytes, 2 * sizeof library + 200, "the library of two entries counts once");
    cr_assert_eq(aoticache_cache_list_usage(cache, (aoticache_usage_group)99, add_bytes, &bytes, NULL),
                 AOTICACHE_INVALID);
    aoticache_cache_close(cache);
}
