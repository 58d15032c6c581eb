/*
 * What programs that kill processes or let them race share: a cache of numbered entries, and an immediate exit on an
 * error.
 */
#ifndef AOTICACHE_TESTS_HELPERS_CACHE_PROCESS_H
#define AOTICACHE_TESTS_HELPERS_CACHE_PROCESS_H

#include "cache/verify/verify.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Fails. A child's exit must not run exit handlers of its parent. */
static inline void fail(const char *what, const char *detail)
{
    printf("not ok - %s: %s\n", what, detail);
    fflush(stdout);
    _exit(1);
}

/* The state of the random numbers, which are the same in every run with the same initial state. */
static unsigned random_state __attribute__((unused));

static inline unsigned next_random(unsigned limit)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % limit;
}

/* ---- files ---- */

static inline int remove_one(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)found, (void)kind, (void)walk;
    return remove(path);
}

static inline void remove_directory(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0)
        fail("write", path);
}

/* ---- the cache ---- */

static inline aoticache_cache *open_with(const aoticache_cache_options *options)
{
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    if (aoticache_cache_open(options, &cache, &error) != AOTICACHE_OK)
        fail("open", error.message);
    return cache;
}

static inline aoticache_cache *open_in(const char *directory)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    options.directory = directory;
    return open_with(&options);
}

static inline aoticache_request *make_request(int number)
{
    aoticache_request *request = NULL;
    aoticache_error error = {.message = ""};
    if (aoticache_request_create("aten::abs", (aoticache_device){.type = 0, .index = -1}, &request, &error) !=
            AOTICACHE_OK ||
        aoticache_request_add_int(request, NULL, number, &error) != AOTICACHE_OK)
        fail("request", error.message);
    return request;
}

static inline void library_text(int library, char ret_text[64])
{
    snprintf(ret_text, 64, "bytes of library %d", library);
}

/* Returns whether an entry has its file in the manifest: every fourth number, if it has one file. */
static inline bool is_record(int number, bool has_second_file)
{
    return number % 4 == 3 && !has_second_file;
}

/*
 * Puts entry `number`, whose library is library_text() of `library`, with a second file if requested; made in `directory`.
 */
static inline aoticache_status put_numbered(aoticache_cache *cache, const char *directory, int number, int library,
                                            bool has_second_file, aoticache_error *ret_error)
{
    char path[2][700], text[64];
    library_text(library, text);
    snprintf(path[0], sizeof path[0], "%s/made.so", directory);
    snprintf(path[1], sizeof path[1], "%s/made.bin", directory);
    write_file(path[0], text);
    write_file(path[1], "side file");
    aoticache_file files[2] = {{.name = "k.so", .path = path[0]}, {.name = "w.bin", .path = path[1]}};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = files;
    product.file_count = has_second_file ? 2 : 1;
    product.in_manifest = is_record(number, has_second_file);
    product.producer = "test";
    aoticache_request *request = make_request(number);
    aoticache_status status = aoticache_cache_put(cache, request, &product, NULL, ret_error);
    aoticache_request_free(request);
    return status;
}

/* ---- verification ---- */

static inline void tell_finding(void *user, const char *what, const char *name, const char *detail)
{
    printf("# %s: %s: %s: %s\n", (const char *)user, what, name, detail);
}

static inline void fail_unsound(const char *when, const aoticache_verify_report *report)
{
    char detail[200];
    snprintf(detail, sizeof detail,
             "the cache is not sound: damaged %llu, missing %llu, foreign %llu, unindexed %llu, unreferenced %llu",
             (unsigned long long)report->damaged, (unsigned long long)report->missing,
             (unsigned long long)report->foreign, (unsigned long long)report->unindexed,
             (unsigned long long)report->unreferenced);
    fail(when, detail);
}

/*
 * Checks what must be true even after a kill, which may leave unreferenced objects and manifests without an entry.
 * Prints each error.
 */
static inline aoticache_verify_report verify(aoticache_cache *cache, const char *when)
{
    aoticache_verify_report report;
    aoticache_error error = {.message = ""};
    if (aoticache_cache_verify(cache, NULL, tell_finding, NULL, (void *)when, &report, &error) != AOTICACHE_OK)
        fail(when, error.message);
    if (report.damaged + report.missing + report.foreign != 0)
        fail_unsound(when, &report);
    return report;
}

/* Checks the same, and that nothing is left over. */
static inline void verify_tidy(aoticache_cache *cache, const char *when)
{
    const aoticache_verify_report report = verify(cache, when);
    if (report.unindexed + report.unreferenced != 0)
        fail_unsound(when, &report);
}

/* Returns n, if a process is killed before every n-th call: CRASH_STRIDE, or the argument. */
static inline long crash_stride(long otherwise)
{
    const char *text = getenv("CRASH_STRIDE");
    const long stride = text != NULL ? strtol(text, NULL, 10) : otherwise;
    return stride > 0 ? stride : 1;
}

#endif
