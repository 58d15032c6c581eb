/*
 * cache_fixture: a temporary cache directory, requests and compile outputs for the tests of cache/. Any bytes serve as
 * a library.
 */
#ifndef AOTICACHE_TESTS_CACHE_FIXTURE_H
#define AOTICACHE_TESTS_CACHE_FIXTURE_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/names.h"
#include "base/syscalls.h"
#include "cache/cache.h"
#include "cache/entries.h"
#include "cache/verify/verify.h"
#include "own_directory.h"

#pragma GCC diagnostic ignored "-Wunused-function"

static char fixture_root[4096];  /* everything of one test */
static char fixture_cache[4200]; /* the cache directory in it */
static int fixture_warnings;
static char fixture_last_warning[2048];

static void fixture_setup(void)
{
    own_directory_make(fixture_root, sizeof fixture_root);
    snprintf(fixture_cache, sizeof fixture_cache, "%s/cache", fixture_root);
}

static void fixture_teardown(void)
{
    aoticache_syscall_hook_set(NULL, NULL);
    own_directory_remove(fixture_root);
}

static void fixture_log(void *user, aoticache_log_level level, const char *line)
{
    (void)user;
    if (level <= AOTICACHE_LOG_WARNING) {
        fixture_warnings++;
        snprintf(fixture_last_warning, sizeof fixture_last_warning, "%s", line);
    }
}

static aoticache_cache_options fixture_options(void)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    options.directory = fixture_cache;
    options.logger.log = fixture_log;
    options.key_directory = ""; /* not the keys of the user who runs the tests */
    return options;
}

static aoticache_cache *fixture_open_with(const aoticache_cache_options *options)
{
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_open(options, &cache, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s: %s", aoticache_status_name(status), error.message);
    return cache;
}

static aoticache_cache *fixture_open(void)
{
    aoticache_cache_options options = fixture_options();
    return fixture_open_with(&options);
}

static aoticache_request *fixture_request(int64_t number)
{
    aoticache_request *request = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_request_create("aten::abs", (aoticache_device){.type = 0, .index = -1}, &request, &error),
                 AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_request_add_int(request, NULL, number, &error), AOTICACHE_OK);
    return request;
}

static aoticache_key fixture_key(int64_t number)
{
    aoticache_request *request = fixture_request(number);
    aoticache_key key;
    cr_assert_eq(aoticache_request_key(request, &key, NULL), AOTICACHE_OK);
    aoticache_request_free(request);
    return key;
}

/* Writes a file in the test's directory, outside the cache. */
static const char *fixture_write(const char *name, const char *text)
{
    static char path[8][4400];
    static int next;
    char *into = path[next++ % 8];
    snprintf(into, sizeof path[0], "%s/%s", fixture_root, name);
    FILE *file = fopen(into, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
    return into;
}

static aoticache_status fixture_try_put(aoticache_cache *cache, int64_t number, const char *text,
                                        aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    aoticache_request *request = fixture_request(number);
    aoticache_file file = {.name = "library.so", .path = fixture_write("made.so", text)};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    product.producer = "test";
    product.compile_ns = 1000;
    aoticache_status status = aoticache_cache_put(cache, request, &product, ret_artifact, ret_error);
    aoticache_request_free(request);
    return status;
}

static void fixture_put(aoticache_cache *cache, int64_t number, const char *text)
{
    aoticache_error error = {.message = ""};
    aoticache_status status = fixture_try_put(cache, number, text, NULL, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s: %s", aoticache_status_name(status), error.message);
}

static aoticache_status fixture_lookup(aoticache_cache *cache, int64_t number, aoticache_artifact **ret_artifact)
{
    aoticache_request *request = fixture_request(number);
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_lookup(cache, request, NULL, ret_artifact, &error);
    aoticache_request_free(request);
    return status;
}

static bool fixture_fd_has(int fd, const char *text)
{
    char bytes[4096];
    ssize_t got = pread(fd, bytes, sizeof bytes - 1, 0);
    if (got < 0)
        return false;
    bytes[got] = '\0';
    return strcmp(bytes, text) == 0;
}

/* Returns whether the entry is found and its library has these bytes. */
static bool fixture_finds(aoticache_cache *cache, int64_t number, const char *text)
{
    aoticache_artifact *artifact = NULL;
    if (fixture_lookup(cache, number, &artifact) != AOTICACHE_OK)
        return false;
    bool is_right = fixture_fd_has(aoticache_artifact_library_fd(artifact), text);
    aoticache_artifact_unref(artifact);
    return is_right;
}

static void fixture_object_path(const aoticache_digest *digest, char *ret_path, size_t size)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(digest, hex);
    snprintf(ret_path, size, "%s/objects/%.2s/%s", fixture_cache, hex, hex + 2);
}

/* Returns the path of the object that has these bytes. */
static const char *fixture_object_of(const char *text)
{
    static char path[4400];
    aoticache_digest digest;
    aoticache_digest_of(text, strlen(text), &digest);
    fixture_object_path(&digest, path, sizeof path);
    return path;
}

static void fixture_damage(const char *path)
{
    cr_assert_eq(chmod(path, 0600), 0, "%s", path);
    int fd = open(path, O_WRONLY);
    cr_assert_geq(fd, 0);
    cr_assert_eq(pwrite(fd, "\x01", 1, 0), 1);
    close(fd);
    chmod(path, 0444);
}

static int fixture_counted;
static int fixture_count_one(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)path, (void)found, (void)walk;
    fixture_counted += kind == FTW_F || kind == FTW_SL;
    return 0;
}

/* Counts the files below a directory of the cache, at any depth. */
static int fixture_files(const char *directory)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", fixture_cache, directory);
    fixture_counted = 0;
    nftw(path, fixture_count_one, 16, FTW_PHYS);
    return fixture_counted;
}

/* Counts the entries directly in a directory of the cache; 0 if there is no such directory. */
static int fixture_names(const char *directory)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", fixture_cache, directory);
    DIR *listing = opendir(path);
    int count = 0;
    if (listing == NULL)
        return 0;
    for (struct dirent *item; (item = readdir(listing)) != NULL;)
        count += item->d_name[0] != '.';
    closedir(listing);
    return count;
}

static aoticache_verify_report fixture_verify(aoticache_cache *cache, bool repair)
{
    aoticache_verify_report report = {.entries = 0};
    aoticache_error error = {.message = ""};
    aoticache_verify_options options = AOTICACHE_VERIFY_OPTIONS_INIT;
    options.repair = repair;
    aoticache_status status = aoticache_cache_verify(cache, &options, NULL, NULL, NULL, &report, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s: %s", aoticache_status_name(status), error.message);
    return report;
}

#endif
