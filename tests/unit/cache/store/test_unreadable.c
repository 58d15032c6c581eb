/*
 * Files that a process may not or cannot read are not damaged: lookups miss, the files stay, and messages name them.
 *
 * The tests become a user that may not read, and root again to check the result.
 */
#include <sys/resource.h>

#include "cache/pins/pins.h"
#include "cache/gc/collect.h"
#include "cache/stats/statistics.h"
#include "cache/verify/verify.h"
#include "tests/unit/fixtures/emulator.h"
#include "tests/unit/fixtures/cache_fixture.h"
#include "tests/helpers/pins.h"

#define SOMEBODY 65534

static void give(const char *path, uid_t user)
{
    cr_assert_eq(chown(path, user, user), 0, "%s", path);
}

static int give_one(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)found, (void)kind, (void)walk;
    return lchown(path, SOMEBODY, SOMEBODY);
}

static char warnings[8192];

static void note_warning(void *user, aoticache_log_level level, const char *line)
{
    fixture_log(user, level, line);
    if (level <= AOTICACHE_LOG_WARNING)
        strncat(warnings, line, sizeof warnings - strlen(warnings) - 1);
}

static aoticache_cache *open_noting(void)
{
    aoticache_cache_options options = fixture_options();
    options.logger.log = note_warning;
    return fixture_open_with(&options);
}

static void become(uid_t user)
{
    cr_assert_eq(seteuid(user), 0);
}

/* Opens the cache as root; the directory then belongs to the other user. */
static aoticache_cache *open_as_root(void)
{
    aoticache_cache_options options = fixture_options();
    options.allow_shared = true;
    become(0);
    return fixture_open_with(&options);
}

static void setup(void)
{
    const char *parent = getenv("TMPDIR");
    if (parent != NULL && seteuid(SOMEBODY) == 0) {
        if (eaccess(parent, X_OK) != 0)
            setenv("TMPDIR", "/tmp", 1);
        become(0);
    }
    fixture_setup();
    setenv("HOME", fixture_root, 1); /* the configuration of the user who runs the tests must not be read */
    setenv("XDG_CONFIG_HOME", fixture_root, 1);
    if (geteuid() != 0)
        cr_skip_test("only root can become a user who may not read");
}

static void teardown(void)
{
    bool is_root = geteuid() == 0 || seteuid(0) == 0; /* fails if root did not run this, and nothing was done then */
    (void)is_root;
    fixture_teardown();
}

TestSuite(unreadable, .init = setup, .fini = teardown);

/* Makes the directory of an object one that only root may enter; everything else belongs to the other user. */
static const char *shut_directory_of(const char *text)
{
    static char directory[4400];
    cr_assert_eq(nftw(fixture_root, give_one, 16, FTW_PHYS), 0);
    snprintf(directory, sizeof directory, "%s", fixture_object_of(text));
    *strrchr(directory, '/') = '\0';
    give(directory, 0);
    cr_assert_eq(chmod(directory, 0700), 0);
    return directory;
}

static uint64_t entries_of(aoticache_cache *cache)
{
    aoticache_statistics statistics;
    cr_assert_eq(aoticache_cache_get_statistics(cache, NULL, &statistics, NULL), AOTICACHE_OK);
    return statistics.entries;
}

static void prepare(const char *shut)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library two");
    aoticache_cache_close(cache);
    shut_directory_of(shut);
    become(SOMEBODY);
}

Test(unreadable, object_is_a_miss_and_its_entry_stays)
{
    prepare("library one");
    aoticache_cache *cache = fixture_open();
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_NOT_FOUND);
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_NOT_FOUND);
    cr_assert_eq(fixture_warnings, 1, "%s", fixture_last_warning);
    cr_assert_not_null(strstr(fixture_last_warning, "Permission denied"), "%s", fixture_last_warning);
    cr_assert_eq(entries_of(cache), 2, "the entry was removed");
    cr_assert_eq(fixture_names("quarantine"), 0);
    cr_assert(fixture_finds(cache, 2, "library two"));
    aoticache_cache_close(cache);
    cache = open_as_root();
    cr_assert(fixture_finds(cache, 1, "library one"));
    aoticache_cache_close(cache);
}

Test(unreadable, new_index_is_built_without_it_and_says_so)
{
    prepare("library one");
    become(0);
    char path[4400];
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    cr_assert_eq(unlink(path), 0);
    aoticache_cache *cache;
    /* Every directory of objects: usually four, but the digests of manifests depend on the time, so two may share one. */
    int count = 0;
    for (int i = 0; i < 256; i++) {
        snprintf(path, sizeof path, "%s/objects/%02x", fixture_cache, i);
        if (access(path, F_OK) == 0) {
            give(path, 0);
            cr_assert_eq(chmod(path, 0700), 0);
            count++;
        }
    }
    char expected[80];
    snprintf(expected, sizeof expected, "without %d files or directories that cannot be read", count);
    become(SOMEBODY);
    cache = open_noting();
    cr_assert_eq(entries_of(cache), 0);
    cr_assert_not_null(strstr(warnings, expected), "%s: %s", expected, warnings);
    aoticache_cache_close(cache);
    cache = open_as_root();
    cr_assert_eq(fixture_verify(cache, true).repaired, 2);
    cr_assert(fixture_finds(cache, 1, "library one"));
    cr_assert(fixture_finds(cache, 2, "library two"));
    aoticache_cache_close(cache);
}

Test(unreadable, lack_of_descriptors_is_no_damage)
{
    become(0);
    aoticache_cache *cache = fixture_open();
    aoticache_artifact *artifact = NULL;
    struct rlimit limit;
    fixture_put(cache, 1, "library one");
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    aoticache_status status = fixture_lookup(cache, 1, &artifact);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_assert_neq(status, AOTICACHE_OK);
    cr_assert_eq(entries_of(cache), 1);
    cr_assert(fixture_finds(cache, 1, "library one"));
    aoticache_cache_close(cache);
}

/* ---- verify ---- */

static char told[8192];

static void tell(void *user, const char *what, const char *name, const char *detail)
{
    (void)user;
    const size_t used = strlen(told);
    snprintf(told + used, sizeof told - used, "%s %s: %s\n", what, name, detail);
}

static aoticache_verify_report verify(aoticache_cache *cache, bool repair, bool quick)
{
    aoticache_verify_report report = {.entries = 0};
    aoticache_error error = {.message = ""};
    aoticache_verify_options options = AOTICACHE_VERIFY_OPTIONS_INIT;
    options.repair = repair;
    options.quick = quick;
    told[0] = '\0';
    cr_assert_eq(aoticache_cache_verify(cache, &options, tell, NULL, NULL, &report, &error), AOTICACHE_OK, "%s",
                 error.message);
    return report;
}

Test(unreadable, directory_is_named_by_verify_and_left_as_it_is)
{
    prepare("library one");
    aoticache_cache *cache = fixture_open();
    for (int i = 0; i < 4; i++) {
        aoticache_verify_report report = verify(cache, i >= 2, i % 2 == 1);
        cr_assert_eq(report.unreadable, 1, "%s", told);
        cr_assert_eq(aoticache_verify_report_problems(&report), 0, "%s", told);
        cr_assert_eq(report.repaired, 0);
        cr_assert_not_null(strstr(told, "unreadable objects/"), "%s", told);
        cr_assert_not_null(strstr(told, "Permission denied"), "%s", told);
    }
    cr_assert_eq(entries_of(cache), 2);
    aoticache_cache_close(cache);
    cache = open_as_root();
    cr_assert_eq(verify(cache, false, false).unreadable, 0, "%s", told);
    cr_assert(fixture_finds(cache, 1, "library one"));
    aoticache_cache_close(cache);
}

Test(unreadable, directory_does_not_keep_a_collection_from_the_others)
{
    prepare("library one");
    become(0);
    char path[4400];
    snprintf(path, sizeof path, "%s/objects/ff", fixture_cache);
    cr_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
    give(path, SOMEBODY);
    strcat(path, "/00000000000000000000000000000000000000000000000000000000000000");
    close(open(path, O_WRONLY | O_CREAT, 0444));
    give(path, SOMEBODY);
    become(SOMEBODY);
    warnings[0] = '\0';
    aoticache_cache *cache = open_noting();
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    aoticache_collect_report report;
    aoticache_error error = {.message = ""};
    options.scan = true;
    cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, NULL, &report, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(report.objects_removed, 1);
    cr_assert_eq(access(path, F_OK), -1, "what lies behind the directory is still there");
    cr_assert_not_null(strstr(warnings, "Permission denied"), "%s", warnings);
    aoticache_cache_close(cache);
}

Test(unreadable, all_of_objects_is_named_once)
{
    SKIP_UNDER_EMULATOR("another user cannot open directories that are its own (the reason is not known)");
    prepare("library one");
    become(0);
    char path[4400];
    snprintf(path, sizeof path, "%s/objects", fixture_cache);
    give(path, 0);
    static const mode_t modes[] = {0700, 0744, 0711}; /* closed; names can be listed; names can be guessed */
    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(chmod(path, modes[i]), 0);
        become(SOMEBODY);
        aoticache_cache *cache = fixture_open();
        aoticache_verify_report report = verify(cache, true, false);
        cr_assert_eq(report.unreadable, modes[i] == 0711 ? 2 : 1, "%o: %s", modes[i], told);
        cr_assert_eq(aoticache_verify_report_problems(&report), 0, "%s", told);
        cr_assert_eq(entries_of(cache), 2);
        aoticache_cache_close(cache);
        become(0);
    }
}

Test(unreadable, objects_links_and_marks_are_named_one_by_one)
{
    become(0);
    aoticache_cache *cache = fixture_open();
    aoticache_request *request = fixture_request(1);
    const aoticache_file files[] = {{.name = "model.so", .path = fixture_write("model", "library one")},
                                    {.name = "side.bin", .path = fixture_write("side", "beside")}};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    char command[9000];
    product.files = files;
    product.file_count = 2;
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, NULL), AOTICACHE_OK);
    aoticache_request_free(request);
    const aoticache_key key = fixture_key(1);
    cr_assert_eq(pin_key(cache, &key, NULL), AOTICACHE_OK);
    aoticache_cache_close(cache);
    cr_assert_eq(nftw(fixture_root, give_one, 16, FTW_PHYS), 0);
    give(fixture_object_of("library one"), 0);
    cr_assert_eq(chmod(fixture_object_of("library one"), 0400), 0);
    snprintf(command, sizeof command,
             "find %s/artifacts %s/marks -mindepth 1 -maxdepth 1 -exec chown 0:0 {} + -exec chmod 700 {} +",
             fixture_cache, fixture_cache);
    cr_assert_eq(system(command), 0);
    become(SOMEBODY);
    cache = fixture_open();
    aoticache_verify_report report = verify(cache, true, false);
    cr_assert_eq(report.unreadable, 3, "%s", told);
    cr_assert_eq(aoticache_verify_report_problems(&report), 0, "%s", told);
    cr_assert_eq(fixture_names("quarantine"), 0);
    cr_assert_eq(entries_of(cache), 1);
    aoticache_cache_close(cache);
}
