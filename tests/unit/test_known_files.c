/*
 * cache/known_files: files that were hashed before are not read again, and whatever changes them makes that end. What this
 * process has read, the kernel counts (/proc/self/io).
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache/known_files.h"
#include "cache/cache.h"

#define LARGE (2u << 20)
#define SETTLE_NS 2200000000L

static char directory[128], cache_path[160];
static aoticache_cache *cache;
static aoticache_error error;

static aoticache_cache *open_with(bool read_only, bool hash_always)
{
    aoticache_cache *opened = NULL;
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    options.directory = cache_path;
    options.read_only = read_only;
    options.hash_always = hash_always;
    cr_assert_eq(aoticache_cache_open(&options, &opened, &error), AOTICACHE_OK, "%s", error.message);
    return opened;
}

static aoticache_cache *open_cache(bool read_only)
{
    return open_with(read_only, false);
}

static void setup(void)
{
    const char *base = getenv("TMPDIR");
    FILE *file = fopen("/proc/self/io", "re");
    if (file == NULL)
        cr_skip_test("this kernel does not count what a process reads");
    fclose(file);
    snprintf(directory, sizeof directory, "%s/aoticache-known-XXXXXX", base != NULL ? base : "/tmp");
    cr_assert_not_null(mkdtemp(directory));
    snprintf(cache_path, sizeof cache_path, "%s/cache", directory);
    cache = open_cache(false);
}

static void teardown(void)
{
    char command[256];
    aoticache_cache_close(cache);
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    cr_assert_eq(system(command), 0);
}

TestSuite(known_files, .init = setup, .fini = teardown, .timeout = 120);

static uint64_t bytes_read(void)
{
    unsigned long long count = 0;
    FILE *file = fopen("/proc/self/io", "re");
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "rchar: %llu", &count), 1);
    fclose(file);
    return count;
}

static void settle(void)
{
    nanosleep(&(struct timespec){.tv_sec = SETTLE_NS / 1000000000, .tv_nsec = SETTLE_NS % 1000000000}, NULL);
}

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void write_file(const char *name, size_t size, char fill)
{
    char *bytes = malloc(size);
    cr_assert_not_null(bytes);
    memset(bytes, fill, size);
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, bytes, size), (ssize_t)size);
    close(fd);
    free(bytes);
}

/* Digests the file, says whether it was read, and compares with what hashing gives. */
static bool is_read(aoticache_cache *with, const char *name)
{
    aoticache_digest known, hashed;
    int fd = open(path_of(name), O_RDONLY | O_CLOEXEC);
    struct stat found;
    cr_assert_geq(fd, 0);
    cr_assert_eq(fstat(fd, &found), 0);
    const uint64_t before = bytes_read();
    cr_assert_eq(aoticache_cache_digest_file(with, fd, &known, &error), AOTICACHE_OK, "%s", error.message);
    const uint64_t read = bytes_read() - before;
    cr_assert_eq(aoticache_digest_of_fd(fd, &hashed, NULL, &error), AOTICACHE_OK);
    cr_assert(aoticache_digest_equal(&known, &hashed), "%s has another digest", name);
    close(fd);
    return read >= (uint64_t)found.st_size;
}

static void change_in_place(const char *path)
{
    struct stat found;
    char byte = 'z';
    int fd = open(path, O_RDWR | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    cr_assert_eq(fstat(fd, &found), 0);
    cr_assert_eq(pwrite(fd, &byte, 1, 100), 1);
    const struct timespec times[2] = {found.st_atim, found.st_mtim}; /* as one who hides it would */
    cr_assert_eq(futimens(fd, times), 0);
    close(fd);
}

static void execute(const char *sql)
{
    sqlite3 *db = NULL;
    char path[200];
    snprintf(path, sizeof path, "%s/index.sqlite3", cache_path);
    cr_assert_eq(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    sqlite3_busy_timeout(db, 10000);
    cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
    cr_assert_gt(sqlite3_changes(db), 0);
    sqlite3_close(db);
}

Test(known_files, a_file_is_hashed_once_until_it_changes)
{
    write_file("a", LARGE, 'a');
    write_file("small", 1000, 's');
    cr_expect(is_read(cache, "a"));
    cr_expect(is_read(cache, "a"), "it had just been written: it could change again within a tick of the clock");
    settle();
    cr_expect(is_read(cache, "a"));
    cr_expect_not(is_read(cache, "a"));
    cr_expect(is_read(cache, "small"));
    cr_expect(is_read(cache, "small"));
    aoticache_cache *reader = open_cache(true);
    cr_expect_not(is_read(reader, "a"));
    aoticache_cache_close(reader);

    change_in_place(path_of("a")); /* same size, same time of modification */
    cr_expect(is_read(cache, "a"));
    settle();
    cr_expect(is_read(cache, "a"));
    cr_expect_not(is_read(cache, "a"));

    char other[256];
    write_file("b", LARGE, 'b');
    snprintf(other, sizeof other, "%s", path_of("b"));
    cr_assert_eq(rename(other, path_of("a")), 0);
    cr_expect(is_read(cache, "a"));
    cr_assert_eq(truncate(path_of("a"), LARGE - 1), 0);
    cr_expect(is_read(cache, "a"));
}

Test(known_files, what_others_can_write_and_what_was_known_before_a_start_is_not_believed)
{
    write_file("a", LARGE, 'a');
    write_file("b", LARGE, 'b');
    cr_assert_eq(chmod(path_of("b"), 0660), 0);
    settle();
    for (int i = 0; i < 2; i++)
        cr_expect(is_read(cache, "b"));
    cr_expect(is_read(cache, "a"));
    cr_expect_not(is_read(cache, "a"));
    const char *const changes[] = {"boot = boot + 1", "size = size + 1", "modified_ns = modified_ns - 1",
                                   "changed_ns = changed_ns - 1", "inode = inode + 1000000"};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        char sql[128];
        snprintf(sql, sizeof sql, "UPDATE file_digests SET %s", changes[i]);
        execute(sql);
        cr_expect(is_read(cache, "a"), "%s", changes[i]);
        cr_expect_not(is_read(cache, "a"));
    }
}

/* ---- side files of an artifact ---- */

static aoticache_request *make_request(void)
{
    aoticache_request *request = NULL;
    cr_assert_eq(aoticache_request_create("test::op", AOTICACHE_DEVICE_CPU, &request, &error), AOTICACHE_OK);
    aoticache_request_set_environment(request, "arch", aoticache_cpu_arch(), &error);
    return request;
}

static aoticache_status look_up(const aoticache_request *request, bool *ret_is_read)
{
    aoticache_artifact *artifact = NULL;
    const uint64_t before = bytes_read();
    aoticache_status status = aoticache_cache_lookup(cache, request, &artifact, &error);
    *ret_is_read = bytes_read() - before >= LARGE;
    aoticache_artifact_unref(artifact);
    return status;
}

/* Puts a library with a large side file, "weights". The request is the caller's. */
static aoticache_request *put_large(void)
{
    char library[256], weights[256];
    write_file("library", 5000, 'l');
    write_file("weights", LARGE, 'w');
    snprintf(library, sizeof library, "%s", path_of("library"));
    snprintf(weights, sizeof weights, "%s", path_of("weights"));
    const aoticache_file files[] = {{"model.so", library}, {"weights", weights}};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = files;
    product.file_count = 2;
    aoticache_request *request = make_request();
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, &error), AOTICACHE_OK, "%s", error.message);
    settle();
    return request;
}

Test(known_files, side_files_are_hashed_once_and_damage_is_found)
{
    bool is_hashed;
    char object[400], hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest digest;
    aoticache_request *request = put_large();
    cr_assert_eq(look_up(request, &is_hashed), AOTICACHE_OK, "%s", error.message);
    cr_expect(is_hashed);
    cr_assert_eq(look_up(request, &is_hashed), AOTICACHE_OK);
    cr_expect_not(is_hashed);
    /* A digest that the index has wrong is never taken for the one that is asked for. */
    execute("UPDATE file_digests SET digest = zeroblob(32)");
    cr_assert_eq(look_up(request, &is_hashed), AOTICACHE_OK);
    cr_expect(is_hashed);

    int fd = open(path_of("weights"), O_RDONLY | O_CLOEXEC);
    cr_assert_eq(aoticache_digest_of_fd(fd, &digest, NULL, &error), AOTICACHE_OK);
    close(fd);
    aoticache_digest_to_hex(&digest, hex);
    snprintf(object, sizeof object, "%s/objects/%.2s/%s", cache_path, hex, hex + 2);
    cr_assert_eq(chmod(object, 0600), 0);
    change_in_place(object);
    cr_assert_eq(look_up(request, &is_hashed), AOTICACHE_NOT_FOUND);
    aoticache_request_free(request);
}

Test(known_files, a_cache_that_always_hashes_believes_and_remembers_nothing)
{
    bool is_hashed;
    write_file("a", LARGE, 'a');
    aoticache_request *request = put_large();
    aoticache_cache *remembering = cache;
    cache = open_with(false, true);
    for (int i = 0; i < 2; i++) {
        cr_expect(is_read(cache, "a"));
        cr_assert_eq(look_up(request, &is_hashed), AOTICACHE_OK, "%s", error.message);
        cr_expect(is_hashed);
    }
    cr_expect(is_read(remembering, "a"), "the other cache has remembered it");
    cr_expect_not(is_read(remembering, "a"));
    cr_expect(is_read(cache, "a"), "what others remember is believed");
    aoticache_cache_close(remembering);
    aoticache_request_free(request);
}

Test(known_files, the_environment_turns_it_off)
{
    write_file("a", LARGE, 'a');
    settle();
    setenv("AOTICACHE_REMEMBER_DIGESTS", "false", 1);
    aoticache_cache *off = open_cache(false);
    unsetenv("AOTICACHE_REMEMBER_DIGESTS");
    for (int i = 0; i < 2; i++)
        cr_expect(is_read(off, "a"));
    aoticache_cache_close(off);
    setenv("AOTICACHE_REMEMBER_DIGESTS", "true", 1);
    aoticache_cache *on = open_cache(false);
    unsetenv("AOTICACHE_REMEMBER_DIGESTS");
    cr_expect(is_read(on, "a"));
    cr_expect_not(is_read(on, "a"));
    aoticache_cache_close(on);
}

Test(known_files, null_arguments_are_refused)
{
    aoticache_digest digest;
    cr_assert_eq(aoticache_cache_digest_file(NULL, 0, &digest, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_cache_digest_file(cache, 0, NULL, &error), AOTICACHE_INVALID);
    cr_assert_neq(aoticache_cache_digest_file(cache, -1, &digest, &error), AOTICACHE_OK);
}
