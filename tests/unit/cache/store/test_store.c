/*
 * Objects, artifacts and the directory: what is written, trusted, verified and quarantined.
 */
#include "cache/eager_face.h"
#include "tests/unit/fixtures/cache_fixture.h"
#include "base/names.h"
#include "cache/entries.h"
#include "cache/stats/statistics.h"
#include "cache/verify/verify.h"

#include <sys/file.h>
#include <sys/resource.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>

TestSuite(store, .init = fixture_setup, .fini = fixture_teardown);

static aoticache_product two_files(aoticache_file files[2], const char *library, const char *weights)
{
    files[0] = (aoticache_file){.name = "model.so", .path = fixture_write("a.so", library)};
    files[1] = (aoticache_file){.name = "weights.bin", .path = fixture_write("b.bin", weights)};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = files;
    product.file_count = 2;
    return product;
}

static aoticache_artifact *put_two_files(aoticache_cache *cache, int64_t number)
{
    aoticache_file files[2];
    aoticache_product product = two_files(files, "library two", "weights two");
    aoticache_request *request = fixture_request(number);
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_cache_put(cache, request, &product, &artifact, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_request_free(request);
    return artifact;
}

Test(store, put_then_lookup_gives_the_bytes)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    cr_assert(fixture_finds(cache, 1, "library one"));
    aoticache_cache_close(cache);
    cache = fixture_open();
    cr_assert(fixture_finds(cache, 1, "library one"));
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, 2, &artifact), AOTICACHE_NOT_FOUND);
    cr_assert_null(artifact);
    aoticache_cache_close(cache);
}

Test(store, put_twice_keeps_one_object)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "same bytes");
    struct stat before, after;
    cr_assert_eq(stat(fixture_object_of("same bytes"), &before), 0);
    fixture_put(cache, 2, "same bytes");
    cr_assert_eq(stat(fixture_object_of("same bytes"), &after), 0);
    cr_assert_eq(before.st_ino, after.st_ino);
    aoticache_statistics statistics;
    cr_assert_eq(aoticache_cache_get_statistics(cache, NULL, &statistics, NULL), AOTICACHE_OK);
    cr_assert_eq(statistics.objects, 3); /* one library, two manifests */
    cr_assert_eq(statistics.entries, 2);
    aoticache_cache_close(cache);
}

Test(store, objects_are_immutable_and_private)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    struct stat found;
    cr_assert_eq(stat(fixture_object_of("library one"), &found), 0);
    cr_assert_eq(found.st_mode & 07777, 0444);
    cr_assert_eq(stat(fixture_cache, &found), 0);
    cr_assert_eq(found.st_mode & 07777, 0700);
    cr_assert_eq(fixture_names("tmp"), 0);
    aoticache_cache_close(cache);
}

Test(store, format_file_is_as_documented)
{
    aoticache_cache_close(fixture_open());
    char path[4400], text[64] = "";
    snprintf(path, sizeof path, "%s/format", fixture_cache);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    cr_assert_eq(fread(text, 1, sizeof text, file), 12);
    fclose(file);
    cr_assert_str_eq(text, "aoticache 1\n");
}

Test(store, newer_format_is_refused_and_kept)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache_close(cache);
    fixture_write("cache/format", "aoticache 2\n");
    aoticache_cache_options options = fixture_options();
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_cache_open(&options, &cache, &error), AOTICACHE_UNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "format 2"), "%s", error.message);
}

Test(store, directory_of_somebody_elses_is_not_taken_over)
{
    cr_assert_eq(mkdir(fixture_cache, 0700), 0);
    fixture_write("cache/letters.txt", "dear");
    aoticache_cache_options options = fixture_options();
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_cache_open(&options, &cache, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "letters.txt"), "%s", error.message);
    cr_assert_eq(fixture_files("."), 1);
}

Test(store, directory_writable_by_others_is_refused_unless_allowed)
{
    cr_assert_eq(mkdir(fixture_cache, 0700), 0);
    cr_assert_eq(chmod(fixture_cache, 0777), 0);
    aoticache_cache_options options = fixture_options();
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_cache_open(&options, &cache, &error), AOTICACHE_DENIED);
    cr_assert_not_null(strstr(error.message, fixture_cache), "%s", error.message);
    options.allow_shared = true;
    aoticache_cache_close(fixture_open_with(&options));
}

Test(store, directory_of_another_user_is_refused)
{
    if (geteuid() != 0)
        cr_skip_test("only root can make a directory of another user");
    cr_assert_eq(mkdir(fixture_cache, 0755), 0);
    cr_assert_eq(chown(fixture_cache, 12345, 12345), 0);
    aoticache_cache_options options = fixture_options();
    aoticache_cache *cache = NULL;
    cr_assert_eq(aoticache_cache_open(&options, &cache, NULL), AOTICACHE_DENIED);
}

Test(store, must_exist_does_not_create)
{
    aoticache_cache_options options = fixture_options();
    options.must_exist = true;
    aoticache_cache *cache = NULL;
    cr_assert_eq(aoticache_cache_open(&options, &cache, NULL), AOTICACHE_NOT_FOUND);
    cr_assert_neq(access(fixture_cache, F_OK), 0);
}

Test(store, damaged_object_is_set_aside_and_missed)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library two");
    fixture_damage(fixture_object_of("library one"));
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_NOT_FOUND);
    cr_assert_eq(fixture_names("quarantine"), 1);
    cr_assert_eq(fixture_warnings, 1, "%s", fixture_last_warning);
    cr_assert_not_null(strstr(fixture_last_warning, "quarantine"));
    cr_assert(fixture_finds(cache, 2, "library two"));
    aoticache_statistics statistics;
    cr_assert_eq(aoticache_cache_get_statistics(cache, NULL, &statistics, NULL), AOTICACHE_OK);
    cr_assert_eq(statistics.counters.damaged, 1);
    cr_assert_eq(statistics.counters.misses_damaged, 1);
    cr_assert_eq(statistics.entries, 1);
    fixture_put(cache, 1, "library one");
    cr_assert(fixture_finds(cache, 1, "library one"));
    aoticache_cache_close(cache);
}

Test(store, truncated_object_is_set_aside)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    const char *object = fixture_object_of("library one");
    cr_assert(chmod(object, 0600) == 0 && truncate(object, 3) == 0);
    cr_assert_not(fixture_finds(cache, 1, "library one"));
    cr_assert_eq(fixture_names("quarantine"), 1);
    aoticache_cache_close(cache);
}

Test(store, symbolic_link_in_place_of_an_object_is_not_followed)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    const char *object = fixture_object_of("library one");
    cr_assert_eq(unlink(object), 0);
    cr_assert_eq(symlink(fixture_write("elsewhere", "library one"), object), 0);
    cr_assert_not(fixture_finds(cache, 1, "library one"));
    aoticache_cache_close(cache);
}

Test(store, object_of_another_user_is_not_served)
{
    if (geteuid() != 0)
        cr_skip_test("only root can make a file of another user");
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    cr_assert_eq(chown(fixture_object_of("library one"), 12345, 12345), 0);
    cr_assert_not(fixture_finds(cache, 1, "library one"));
    aoticache_cache_close(cache);
}

Test(store, missing_object_is_missed_and_its_entry_removed)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    cr_assert_eq(unlink(fixture_object_of("library one")), 0);
    cr_assert_not(fixture_finds(cache, 1, "library one"));
    aoticache_statistics statistics;
    cr_assert_eq(aoticache_cache_get_statistics(cache, NULL, &statistics, NULL), AOTICACHE_OK);
    cr_assert_eq(statistics.entries, 0);
    aoticache_cache_close(cache);
}

Test(store, put_replaces_a_damaged_object)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    fixture_damage(fixture_object_of("library one"));
    fixture_put(cache, 2, "library one");
    cr_assert(fixture_finds(cache, 1, "library one"));
    cr_assert(fixture_finds(cache, 2, "library one"));
    aoticache_cache_close(cache);
}

Test(store, mark_outlives_its_descriptor_by_a_mapping)
{
    const char *path = fixture_write("marked", "bytes");
    int holder = open(path, O_RDONLY);
    cr_assert_eq(flock(holder, LOCK_SH | LOCK_NB), 0);
    void *mark = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE, holder, 0);
    cr_assert_neq(mark, MAP_FAILED);
    close(holder);
    int other = open(path, O_RDONLY);
    cr_assert_neq(flock(other, LOCK_EX | LOCK_NB), 0);
    cr_assert_eq(errno, EWOULDBLOCK);
    munmap(mark, 1);
    cr_assert_eq(flock(other, LOCK_EX | LOCK_NB), 0);
    close(other);
}

/* Looks up a library of `size` bytes; returns the size of its copy, -1 if there is none. */
static long long size_of_copy(aoticache_cache *cache, int64_t number, size_t size)
{
    char *text = malloc(size + 1);
    aoticache_artifact *artifact = NULL;
    aoticache_digest digest;
    uint64_t bytes = 0;
    memset(text, 'x', size);
    text[size] = '\0';
    fixture_put(cache, number, text);
    free(text);
    cr_assert_eq(fixture_lookup(cache, number, &artifact), AOTICACHE_OK);
    int copy = aoticache_artifact_take_copy(artifact);
    cr_assert_eq(aoticache_artifact_take_copy(artifact), -1, "it is taken once");
    if (copy >= 0) {
        cr_assert_eq(aoticache_digest_of_fd(copy, &digest, &bytes, NULL), AOTICACHE_OK);
        cr_assert(aoticache_digest_equal(&digest, &aoticache_artifact_get_info(artifact)->library));
        close(copy);
    }
    aoticache_artifact_unref(artifact);
    return copy >= 0 ? (long long)bytes : -1;
}

Test(store, lookup_copies_the_library_while_it_hashes_it)
{
    aoticache_cache *cache = fixture_open();
    cr_assert_eq(size_of_copy(cache, 1, 100), 100);
    cr_assert_eq(size_of_copy(cache, 2, 16384), 16384);
    cr_assert_eq(size_of_copy(cache, 3, 16385), 16385);
    cr_assert_eq(size_of_copy(cache, 4, 4 << 20), 4 << 20);
    cr_assert_eq(size_of_copy(cache, 5, (4 << 20) + 1), (4 << 20) + 1);
    cr_assert_eq(size_of_copy(cache, 6, 64 << 20), 64 << 20);
    cr_assert_eq(size_of_copy(cache, 7, (64 << 20) + 1), -1);
    aoticache_cache_copy_libraries(cache, false);
    cr_assert_eq(size_of_copy(cache, 1, 100), -1);
    aoticache_cache_copy_libraries(cache, true);
    cr_assert_eq(size_of_copy(cache, 1, 100), 100);
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_OK);
    aoticache_artifact_close_files(artifact);
    cr_assert_eq(aoticache_artifact_take_copy(artifact), -1, "it is closed with the files");
    aoticache_artifact_unref(artifact);
    aoticache_cache_close(cache);
}

/* Writing to a file in memory beyond the limit of the process would end the process with a signal. */
Test(store, lookup_under_a_limit_of_file_sizes_makes_no_copy)
{
    aoticache_cache *cache = fixture_open();
    aoticache_artifact *artifact = NULL;
    struct rlimit limit;
    cr_assert_eq(size_of_copy(cache, 1, 50000), 50000);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 20000, .rlim_max = limit.rlim_max}), 0);
    aoticache_status status = fixture_lookup(cache, 1, &artifact);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(status, AOTICACHE_OK);
    cr_assert_eq(aoticache_artifact_take_copy(artifact), -1);
    aoticache_artifact_unref(artifact);
    aoticache_cache_close(cache);
}

Test(store, artifact_holds_its_object_after_closing_its_files)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_OK);
    cr_assert_eq(aoticache_artifact_ref(artifact), artifact);
    aoticache_artifact_close_files(artifact);
    cr_assert_eq(aoticache_artifact_library_fd(artifact), -1);
    aoticache_artifact_unref(artifact);
    int other = open(fixture_object_of("library one"), O_RDONLY);
    cr_assert_neq(flock(other, LOCK_EX | LOCK_NB), 0);
    aoticache_artifact_unref(artifact);
    cr_assert_eq(flock(other, LOCK_EX | LOCK_NB), 0);
    close(other);
    aoticache_cache_close(cache);
}

Test(store, side_files_are_next_to_the_library_under_their_names)
{
    aoticache_cache *cache = fixture_open();
    aoticache_artifact_unref(put_two_files(cache, 1));
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_OK);
    const char *subdirectory = aoticache_artifact_get_info(artifact)->directory;
    cr_assert_not_null(subdirectory);
    char path[5000];
    snprintf(path, sizeof path, "%s/weights.bin", subdirectory);
    int fd = open(path, O_RDONLY);
    cr_assert_geq(fd, 0);
    cr_assert(fixture_fd_has(fd, "weights two"));
    close(fd);
    snprintf(path, sizeof path, "%s/model.so", subdirectory);
    struct stat linked, object;
    cr_assert_eq(stat(path, &linked), 0);
    cr_assert_eq(stat(fixture_object_of("library two"), &object), 0);
    cr_assert_eq(linked.st_ino, object.st_ino);
    aoticache_artifact_unref(artifact);
    aoticache_cache_close(cache);
}

Test(store, lost_directory_of_side_files_is_made_again)
{
    aoticache_cache *cache = fixture_open();
    aoticache_artifact *artifact = put_two_files(cache, 1);
    char command[5000];
    snprintf(command, sizeof command, "%s/weights.bin", aoticache_artifact_get_info(artifact)->directory);
    cr_assert_eq(unlink(command), 0);
    aoticache_artifact_unref(artifact);
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_OK);
    snprintf(command, sizeof command, "%s/weights.bin", aoticache_artifact_get_info(artifact)->directory);
    cr_assert_eq(access(command, R_OK), 0);
    aoticache_artifact_unref(artifact);
    cr_assert_eq(fixture_names("tmp"), 0);
    aoticache_cache_close(cache);
}

Test(store, read_only_cache_serves_side_files_from_a_temporary_directory)
{
    aoticache_cache *cache = fixture_open();
    aoticache_artifact *artifact = put_two_files(cache, 1);
    char path[5000];
    snprintf(path, sizeof path, "%s/weights.bin", aoticache_artifact_get_info(artifact)->directory);
    cr_assert_eq(unlink(path), 0);
    aoticache_artifact_unref(artifact);
    aoticache_cache_close(cache);
    aoticache_cache_options options = fixture_options();
    options.read_only = true;
    cache = fixture_open_with(&options);
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_OK);
    snprintf(path, sizeof path, "%s/weights.bin", aoticache_artifact_get_info(artifact)->directory);
    int fd = open(path, O_RDONLY);
    cr_assert(fixture_fd_has(fd, "weights two"));
    close(fd);
    aoticache_artifact_unref(artifact);
    cr_assert_neq(access(path, F_OK), 0);
    aoticache_cache_close(cache);
}

Test(store, damaged_side_file_is_missed)
{
    aoticache_cache *cache = fixture_open();
    aoticache_artifact_unref(put_two_files(cache, 1));
    fixture_damage(fixture_object_of("weights two"));
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_NOT_FOUND);
    aoticache_artifact_unref(put_two_files(cache, 1));
    cr_assert_eq(fixture_lookup(cache, 1, &artifact), AOTICACHE_OK);
    char path[5000];
    snprintf(path, sizeof path, "%s/weights.bin", aoticache_artifact_get_info(artifact)->directory);
    int fd = open(path, O_RDONLY);
    cr_assert(fixture_fd_has(fd, "weights two"));
    close(fd);
    aoticache_artifact_unref(artifact);
    aoticache_cache_close(cache);
}

Test(store, bad_products_are_refused_and_leave_nothing)
{
    aoticache_cache *cache = fixture_open();
    aoticache_request *request = fixture_request(1);
    aoticache_file files[2];
    aoticache_error error = {.message = ""};
    const char *bad_names[] = {"", ".", "..", "a/b", "/etc/passwd", NULL};
    for (size_t i = 0; i < sizeof bad_names / sizeof bad_names[0]; i++) {
        aoticache_product product = two_files(files, "x", "y");
        files[1].name = bad_names[i];
        cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, &error), AOTICACHE_INVALID, "%zu", i);
    }
    aoticache_product product = two_files(files, "x", "y");
    files[1].name = files[0].name;
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, &error), AOTICACHE_INVALID);
    product = two_files(files, "", "y");
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "empty"), "%s", error.message);
    product = two_files(files, "x", "y");
    cr_assert_eq(unlink(files[0].path), 0);
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, &error), AOTICACHE_INVALID);
    files[0].path = fixture_root;
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, &error), AOTICACHE_INVALID);
    product.file_count = 0;
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, &error), AOTICACHE_INVALID);
    aoticache_request_free(request);
    cr_assert_eq(fixture_files("objects"), 0);
    cr_assert_eq(fixture_names("tmp"), 0);
    aoticache_cache_close(cache);
}

static char order[200][24];
static int order_count;

static int record_call(void *user, const char *call, const char *path)
{
    (void)user;
    bool is_object = path != NULL && strlen(path) == 62;
    if (order_count < 200)
        snprintf(order[order_count++], sizeof order[0], "%.12s%s", call, is_object ? " object" : "");
    return 0;
}

/* Power may fail at any time: a name must not appear before its bytes are on disk. */
Test(store, every_object_is_synced_before_and_its_directory_after_the_rename)
{
    aoticache_cache *cache = fixture_open();
    aoticache_syscall_hook_set(record_call, NULL);
    fixture_put(cache, 1, "library one");
    aoticache_syscall_hook_set(NULL, NULL);
    int renames = 0;
    for (int i = 2; i + 2 < order_count; i++) {
        if (strcmp(order[i], "rename object") != 0)
            continue;
        renames++;
        cr_assert_str_eq(order[i - 2], "fchmod");
        cr_assert_str_eq(order[i - 1], "fsync");
        cr_assert_str_eq(order[i + 1], "fsync"); /* objects/ab */
        cr_assert_str_eq(order[i + 2], "fsync"); /* objects */
    }
    cr_assert_eq(renames, 2);
    aoticache_cache_close(cache);
}

struct countdown {
    int calls, fail_at, error;
};

static int fail_call(void *user, const char *call, const char *path)
{
    struct countdown *countdown = user;
    (void)call, (void)path;
    return countdown->calls++ == countdown->fail_at ? countdown->error : 0;
}

Test(store, put_survives_a_full_disk_at_every_call)
{
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "kept");
    int failures = 0;
    for (int at = 0;; at++) {
        struct countdown countdown = {.fail_at = at, .error = ENOSPC};
        char text[32];
        snprintf(text, sizeof text, "library %d", at);
        aoticache_syscall_hook_set(fail_call, &countdown);
        aoticache_status status = fixture_try_put(cache, 100 + at, text, NULL, NULL);
        aoticache_syscall_hook_set(NULL, NULL);
        cr_assert(fixture_finds(cache, 1, "kept"), "call %d", at);
        cr_assert_eq(fixture_names("tmp"), 0, "call %d leaves something in tmp/", at);
        if (status == AOTICACHE_OK)
            cr_assert(fixture_finds(cache, 100 + at, text));
        else
            cr_assert_eq(status, AOTICACHE_IO, "call %d: %s", at, aoticache_status_name(status));
        failures += status != AOTICACHE_OK;
        if (countdown.calls <= at)
            break;
    }
    cr_assert_geq(failures, 8);
    aoticache_verify_report report = fixture_verify(cache, false);
    cr_assert_eq(report.damaged + report.missing + report.foreign, 0);
    aoticache_cache_close(cache);
}

Test(store, really_full_disk_loses_nothing)
{
    cr_assert_eq(mkdir(fixture_cache, 0700), 0);
    if (mount("tmpfs", fixture_cache, "tmpfs", 0, "size=512k,mode=0700") != 0)
        cr_skip_test("mounting a small file system is not permitted here");
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "kept");
    static char large[400 * 1024];
    memset(large, 'x', sizeof large - 1);
    aoticache_error error = {.message = ""};
    aoticache_status status = fixture_try_put(cache, 2, large, NULL, &error);
    bool found = fixture_finds(cache, 1, "kept");
    int leftovers = fixture_names("tmp");
    aoticache_cache_close(cache);
    umount(fixture_cache);
    cr_assert_eq(status, AOTICACHE_IO, "%s", error.message);
    cr_assert(found);
    cr_assert_eq(leftovers, 0);
}

static uint64_t reserve_bytes(void)
{
    char path[4300];
    struct stat found;
    snprintf(path, sizeof path, "%s/reserve", fixture_cache);
    return stat(path, &found) == 0 ? (uint64_t)found.st_blocks * 512 : 0;
}

Test(store, first_put_makes_the_reserve)
{
    aoticache_cache *cache = fixture_open();
    cr_assert_eq(reserve_bytes(), 0);
    fixture_put(cache, 1, "one");
    if (reserve_bytes() == 0)
        cr_skip_test("next to nothing is free here");
    cr_assert_geq(reserve_bytes(), 1 << 20);
    cr_assert_eq(fixture_verify(cache, false).foreign, 0);
    aoticache_cache_close(cache);
}

Test(store, small_budget_does_without_a_reserve)
{
    aoticache_cache_options options = fixture_options();
    options.max_bytes = 10 << 20;
    aoticache_cache *cache = fixture_open_with(&options);
    fixture_put(cache, 1, "one");
    cr_assert_eq(reserve_bytes(), 0);
    aoticache_cache_close(cache);
}

static int refuse_to_allocate(void *user, const char *call, const char *path)
{
    (void)user, (void)path;
    return strcmp(call, "fallocate") == 0 ? ENOSPC : 0;
}

Test(store, reserve_that_cannot_be_made_leaves_nothing)
{
    aoticache_cache *cache = fixture_open();
    aoticache_syscall_hook_set(refuse_to_allocate, NULL);
    fixture_put(cache, 1, "one");
    aoticache_syscall_hook_set(NULL, NULL);
    char path[4300];
    snprintf(path, sizeof path, "%s/reserve", fixture_cache);
    cr_assert_neq(access(path, F_OK), 0);
    cr_assert_eq(fixture_warnings, 0);
    aoticache_cache_close(cache);
}
