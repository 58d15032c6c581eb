/*
 * index/query_cache/file_facts: files that were hashed already are not read again until something changes them. The kernel counts
 * the bytes that this process has read (/proc/self/io).
 */
#include "tests/unit/fixtures/clock_fixture.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/digest.h"
#include "base/files/file_state.h"
#include "base/hash_map.h"
#include "base/names.h"
#include "cache/cache.h"
#include "cache/eager_face.h"
#include "cache/request/cpu_detect.h"
#include "index/query_cache/query_cache.h"
#include "tests/unit/fixtures/own_directory.h"

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
    FILE *file = fopen("/proc/self/io", "re");
    if (file == NULL)
        cr_skip_test("this kernel does not count what a process reads");
    fclose(file);
    own_directory_make(directory, sizeof directory);
    snprintf(cache_path, sizeof cache_path, "%s/cache", directory);
    cache = open_cache(false);
}

static void teardown(void)
{
    aoticache_cache_close(cache);
}

TestSuite(hashed_files, .init = setup, .fini = teardown, .timeout = 120);

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

/* Gets the file's digest, compares it with that of hashing, and returns whether the file was read. */
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
    const struct timespec times[2] = {found.st_atim, found.st_mtim}; /* as somebody who hides the change would */
    cr_assert_eq(futimens(fd, times), 0);
    close(fd);
}

Test(hashed_files, a_file_is_hashed_once_until_it_changes)
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

Test(hashed_files, what_others_can_write_is_not_believed)
{
    write_file("b", LARGE, 'b');
    cr_assert_eq(chmod(path_of("b"), 0660), 0);
    settle();
    for (int i = 0; i < 2; i++)
        cr_expect(is_read(cache, "b"));
}

/* A process that is open, and the next one, know what another process has hashed since, although it has not closed the cache. */
Test(hashed_files, a_digest_is_known_to_other_processes_at_once)
{
    write_file("a", LARGE, 'a');
    settle();
    aoticache_cache *earlier = open_cache(false);
    cr_expect(is_read(cache, "a"));
    cr_expect_not(is_read(earlier, "a"));
    aoticache_cache *later = open_cache(false);
    cr_expect_not(is_read(later, "a"));
    aoticache_cache_close(earlier);
    aoticache_cache_close(later);
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
    aoticache_status status = aoticache_cache_lookup(cache, request, NULL, &artifact, &error);
    *ret_is_read = bytes_read() - before >= LARGE;
    aoticache_artifact_unref(artifact);
    return status;
}

/* Puts a library with a large side file, "weights". The caller frees the request. */
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

Test(hashed_files, a_cache_that_always_hashes_believes_and_remembers_nothing)
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

Test(hashed_files, the_environment_turns_it_off)
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

/* ---- facts that are recorded next to the index ---- */

/*
 * From outside one cannot see whether bytes were hashed or their checksum was used. So these tests write forged facts,
 * and check whether these were trusted.
 */

#define HEADER_BYTES 72 /* of the query cache; the hash at 8 covers everything after 16 */
#define AHEAD 3         /* seconds: recent changes count as settled */

struct noted_digest {
    aoticache_file_state state;
    aoticache_digest digest;
};

struct noted_sum {
    aoticache_file_state state;
    aoticache_checksum checksum;
};

static const char *query_cache_path(void)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/index.sqlite3-answers", cache_path);
    return path;
}

/* Overwrites the first bytes of the fact about a digest. */
static void forge(aoticache_index_question question, const aoticache_digest *about, const void *with, size_t size)
{
    static uint8_t bytes[AOTICACHE_QUERY_CACHE_MAX_BYTES];
    cleanup_file FILE *file = fopen(query_cache_path(), "r+be");
    cr_assert_not_null(file);
    const size_t have = fread(bytes, 1, sizeof bytes, file);
    uint32_t head[3];
    for (size_t at = HEADER_BYTES; at + sizeof head <= have; at += sizeof head + head[1] + head[2]) {
        memcpy(head, bytes + at, sizeof head);
        if (head[0] != question || memcmp(bytes + at + sizeof head, about->bytes, head[1]) != 0)
            continue;
        cr_assert_leq(size, head[2]);
        memcpy(bytes + at + sizeof head + head[1], with, size);
        const uint64_t hash = aoticache_hash_bytes(bytes + 16, have - 16);
        memcpy(bytes + 8, &hash, sizeof hash);
        rewind(file);
        cr_assert_eq(fwrite(bytes, 1, have, file), have);
        return;
    }
    cr_assert_fail("nothing is noted of it: question %d, %02x%02x, %zu bytes", (int)question, about->bytes[0],
                   about->bytes[1], have);
}

static aoticache_file_state state_of(const char *path)
{
    struct stat found;
    cr_assert_eq(stat(path, &found), 0);
    return aoticache_file_state_of(&found);
}

/* Overwrites the first bytes of what is noted of a large file. */
static void forge_digest(const char *path, const void *with, size_t size)
{
    const aoticache_file_state state = state_of(path);
    aoticache_digest about = {.bytes = {0}};
    memcpy(about.bytes, &state, 2 * sizeof(uint64_t)); /* device and inode */
    forge(AOTICACHE_INDEX_KEEPS_DIGEST, &about, with, size);
}

/* Returns the fact for a file with these bytes in its present state. */
static struct noted_sum sum_of(const char *path, const char *bytes, size_t size)
{
    return (struct noted_sum){state_of(path), aoticache_checksum_of(bytes, size)};
}

/* Forges the state: as if the file had the recorded checksum in its present state. */
static void forge_state(const aoticache_digest *digest, const char *path)
{
    const struct noted_sum sum = sum_of(path, "", 0);
    forge(AOTICACHE_INDEX_KEEPS_CHECKSUM, digest, &sum, offsetof(struct noted_sum, checksum));
}

/* Forges the checksum: as if the file had these bytes in that state. */
static void forge_sum(const aoticache_digest *digest, const char *path, const char *bytes, size_t size)
{
    const struct noted_sum sum = sum_of(path, bytes, size);
    forge(AOTICACHE_INDEX_KEEPS_CHECKSUM, digest, &sum, sizeof sum);
}

static void reopen(bool hash_always)
{
    aoticache_cache_close(cache);
    cache = open_with(false, hash_always);
}

Test(hashed_files, side_files_are_hashed_once_and_damage_is_found)
{
    bool is_hashed;
    char object[400], hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest digest;
    aoticache_request *request = put_large();
    cr_assert_eq(look_up(request, &is_hashed), AOTICACHE_OK, "%s", error.message);
    cr_expect(is_hashed);
    cr_assert_eq(look_up(request, &is_hashed), AOTICACHE_OK);
    cr_expect_not(is_hashed);
    int fd = open(path_of("weights"), O_RDONLY | O_CLOEXEC);
    cr_assert_eq(aoticache_digest_of_fd(fd, &digest, NULL, &error), AOTICACHE_OK);
    close(fd);
    aoticache_digest_to_hex(&digest, hex);
    snprintf(object, sizeof object, "%s/objects/%.2s/%s", cache_path, hex, hex + 2);

    /* A wrong digest is never taken for the requested one. */
    const struct noted_digest wrong = {state_of(object), {.bytes = {0}}};
    forge_digest(object, &wrong, sizeof wrong);
    reopen(false);
    cr_assert_eq(look_up(request, &is_hashed), AOTICACHE_OK);
    cr_expect(is_hashed);
    cr_assert_eq(look_up(request, &is_hashed), AOTICACHE_OK);
    cr_expect_not(is_hashed);

    cr_assert_eq(chmod(object, 0600), 0);
    change_in_place(object);
    cr_assert_eq(look_up(request, &is_hashed), AOTICACHE_NOT_FOUND);
    aoticache_request_free(request);
}

Test(hashed_files, a_digest_of_another_state_is_not_believed)
{
    enum { MEMBERS = sizeof(aoticache_file_state) / sizeof(uint64_t) };
    write_file("a", LARGE, 'a');
    settle();
    cr_expect(is_read(cache, "a"));
    for (size_t member = 0; member < MEMBERS; member++) {
        uint64_t words[MEMBERS];
        const aoticache_file_state state = state_of(path_of("a"));
        memcpy(words, &state, sizeof words);
        words[member]--;
        forge_digest(path_of("a"), words, sizeof words);
        reopen(false);
        cr_expect(is_read(cache, "a"), "member %zu", member);
        cr_expect_not(is_read(cache, "a"));
    }
}

/*
 * The object that a test changes: in an artifact that is one object, in one whose only file is a separate object, and
 * in one with a small side file.
 */
enum part { MANIFEST_AND_LIBRARY, ONLY_LIBRARY, LIBRARY, SIDE_FILE, PARTS };

/* Puts a small artifact. The caller frees the request. */
static aoticache_request *put_small(enum part part)
{
    char library[256], side[256];
    write_file("library", 5000, 'l');
    write_file("side", 3000, 's');
    snprintf(library, sizeof library, "%s", path_of("library"));
    snprintf(side, sizeof side, "%s", path_of("side"));
    const aoticache_file files[] = {{"model.so", library}, {"side.txt", side}};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = files;
    product.file_count = part == LIBRARY || part == SIDE_FILE ? 2 : 1;
    product.in_manifest = part == MANIFEST_AND_LIBRARY;
    aoticache_request *request = make_request();
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, &error), AOTICACHE_OK, "%s", error.message);
    fixture_ahead = AHEAD;
    return request;
}

/* Looks it up as a separate process would, which leaves the facts that it recorded. */
static aoticache_status look_up_anew(const aoticache_request *request, bool hash_always)
{
    bool is_large;
    reopen(hash_always);
    aoticache_status status = look_up(request, &is_large);
    reopen(false);
    return status;
}

static void digests_of(const aoticache_request *request, aoticache_digest *ret_manifest, aoticache_digest *ret_library)
{
    aoticache_artifact *artifact = NULL;
    reopen(false);
    cr_assert_eq(aoticache_cache_lookup(cache, request, NULL, &artifact, &error), AOTICACHE_OK, "%s", error.message);
    *ret_manifest = *&aoticache_artifact_get_info(artifact)->digest;
    *ret_library = *&aoticache_artifact_get_info(artifact)->library;
    aoticache_artifact_unref(artifact);
    reopen(false);
}

static void object_path(const aoticache_digest *digest, char ret_path[400])
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(digest, hex);
    snprintf(ret_path, 400, "%s/objects/%.2s/%s", cache_path, hex, hex + 2);
}

/* Changes the last byte; *ret_bytes has all bytes afterwards. */
static size_t change_last_byte(const char *path, char ret_bytes[8192])
{
    cr_assert_eq(chmod(path, 0644), 0);
    cleanup_file FILE *file = fopen(path, "r+be");
    cr_assert_not_null(file);
    const size_t size = fread(ret_bytes, 1, 8192, file);
    ret_bytes[size - 1] ^= 1;
    rewind(file);
    cr_assert_eq(fwrite(ret_bytes, 1, size, file), size);
    fflush(file);
    cr_assert_eq(fchmod(fileno(file), 0444), 0);
    return size;
}

/* Puts the part's artifact, and lets a process hash and record it. The caller frees the request. */
static aoticache_request *put_part(enum part part, aoticache_digest *ret_digest, char ret_object[400])
{
    aoticache_digest manifest, library;
    fixture_ahead = 0;
    aoticache_request *request = put_small(part);
    digests_of(request, &manifest, &library);
    *ret_digest = part == MANIFEST_AND_LIBRARY ? manifest : library;
    if (part == SIDE_FILE) {
        cleanup_fd int fd = open(path_of("side"), O_RDONLY | O_CLOEXEC);
        cr_assert_eq(aoticache_digest_of_fd(fd, ret_digest, NULL, &error), AOTICACHE_OK);
    }
    object_path(ret_digest, ret_object);
    return request;
}

Test(hashed_files, a_file_whose_bytes_were_hashed_has_its_checksum_taken)
{
    for (enum part part = 0; part < PARTS; part++) {
        char object[400], bytes[8192];
        aoticache_digest digest;
        aoticache_request *request = put_part(part, &digest, object);
        size_t size = change_last_byte(object, bytes);
        forge_sum(&digest, object, bytes, size);
        cr_expect_eq(look_up_anew(request, false), AOTICACHE_OK, "part %d: the checksum is as it was noted", part);
        size = change_last_byte(object, bytes); /* as it was put */
        forge_state(&digest, object);
        cr_expect_eq(look_up_anew(request, false), AOTICACHE_OK,
                     "part %d: another checksum was noted, the digest is right", part);
        size = change_last_byte(object, bytes);
        forge_sum(&digest, object, bytes, size);
        cr_expect_eq(look_up_anew(request, true), AOTICACHE_NOT_FOUND, "part %d: who always hashes finds it", part);
        aoticache_request_free(request);
    }
}

Test(hashed_files, damage_shows_though_the_state_of_the_file_tells_nothing)
{
    for (enum part part = 0; part < PARTS; part++) {
        char object[400], bytes[8192];
        aoticache_digest digest;
        aoticache_request *request = put_part(part, &digest, object);
        change_last_byte(object, bytes);
        forge_state(&digest, object);
        cr_expect_eq(look_up_anew(request, false), AOTICACHE_NOT_FOUND, "part %d", part);
        cr_expect_neq(access(object, F_OK), 0, "it is set aside");
        aoticache_request_free(request);
    }
}

Test(hashed_files, a_checksum_of_another_state_is_not_believed)
{
    enum { MEMBERS = offsetof(struct noted_sum, checksum) / sizeof(uint64_t) };
    for (size_t member = 0; member < MEMBERS; member++) {
        char object[400], bytes[8192];
        uint64_t words[MEMBERS];
        aoticache_digest digest;
        aoticache_request *request = put_part(LIBRARY, &digest, object);
        const size_t size = change_last_byte(object, bytes);
        const struct noted_sum sum = sum_of(object, bytes, size);
        memcpy(words, &sum, sizeof words);
        words[member]++;
        forge_sum(&digest, object, bytes, size);
        forge(AOTICACHE_INDEX_KEEPS_CHECKSUM, &digest, words, sizeof words);
        cr_expect_eq(look_up_anew(request, false), AOTICACHE_NOT_FOUND, "member %zu", member);
        aoticache_request_free(request);
    }
}

/* ---- manifests ---- */

Test(hashed_files, a_manifest_that_was_read_is_not_read_again)
{
    char object[400], aside[256];
    aoticache_digest manifest, library;
    aoticache_request *request = put_small(LIBRARY);
    digests_of(request, &manifest, &library);
    object_path(&manifest, object);
    snprintf(aside, sizeof aside, "%s/aside", directory);
    cr_assert_eq(rename(object, aside), 0);
    cr_expect_eq(look_up_anew(request, false), AOTICACHE_OK, "%s", error.message);
    cr_expect_eq(look_up_anew(request, true), AOTICACHE_NOT_FOUND);
    aoticache_request_free(request);
}

Test(hashed_files, a_manifest_that_a_newer_library_read_is_read)
{
    char object[400];
    aoticache_digest manifest, library;
    aoticache_request *request = put_small(LIBRARY);
    digests_of(request, &manifest, &library);
    object_path(&manifest, object);
    forge(AOTICACHE_INDEX_KEEPS_MANIFEST, &manifest, &(uint64_t){3}, 8);
    cr_assert_eq(unlink(object), 0);
    cr_expect_eq(look_up_anew(request, false), AOTICACHE_NOT_FOUND);
    aoticache_request_free(request);
}

Test(hashed_files, what_is_noted_of_a_manifest_is_checked)
{
    enum { FORMAT = 2, FILES_AT = 24, NAME_AT = FILES_AT + AOTICACHE_DIGEST_BYTES + 8 };
    aoticache_digest manifest, library;
    aoticache_request *request = put_small(LIBRARY);
    const uint64_t counts[] = {0, 1, 3, UINT64_MAX, UINT64_C(1) << 32};
    const char *const names[] = {"../el.so", "a/del.so", "", "model.sox\nside"};
    for (size_t i = 0; i < 9; i++) {
        uint8_t noted[128] = {0};
        digests_of(request, &manifest, &library);
        if (i < 5) {
            const uint64_t head[] = {FORMAT, 1, counts[i]};
            forge(AOTICACHE_INDEX_KEEPS_MANIFEST, &manifest, head, sizeof head);
        } else {
            const uint64_t head[] = {FORMAT, 1, 2};
            memcpy(noted, head, sizeof head);
            memcpy(noted + FILES_AT, library.bytes, sizeof library.bytes);
            memcpy(noted + FILES_AT + AOTICACHE_DIGEST_BYTES, &(uint64_t){5000}, 8);
            memcpy(noted + NAME_AT, names[i - 5], strlen(names[i - 5]) + 1);
            forge(AOTICACHE_INDEX_KEEPS_MANIFEST, &manifest, noted, NAME_AT + strlen(names[i - 5]) + 1);
        }
        cr_expect_eq(look_up_anew(request, false), AOTICACHE_OK, "%zu: the manifest is read: %s", i, error.message);
    }
    aoticache_request_free(request);
}

Test(hashed_files, null_arguments_are_refused)
{
    aoticache_digest digest;
    cr_assert_eq(aoticache_cache_digest_file(NULL, 0, &digest, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_cache_digest_file(cache, 0, NULL, &error), AOTICACHE_INVALID);
    cr_assert_neq(aoticache_cache_digest_file(cache, -1, &digest, &error), AOTICACHE_OK);
}
