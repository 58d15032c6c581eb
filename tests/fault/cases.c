/*
 * cases: operations and states of a cache that several of these programs use.
 */
#include "cache/gc/collect.h"
#include "tests/fault/cases.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fault/trial.h"
#include "tests/helpers/cache_process.h"

void trial_index_path(char ret_path[700], const char *suffix)
{
    snprintf(ret_path, 700, "%s/index.sqlite3%s", trial_cache(), suffix);
}

aoticache_status trial_reopen(aoticache_cache *unused, aoticache_error *ret_error)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_cache *cache = NULL;
    (void)unused;
    options.directory = trial_cache();
    const aoticache_status status = aoticache_cache_open(&options, &cache, ret_error);
    aoticache_cache_close(cache);
    return status;
}

void trial_damage_index(void)
{
    char path[700];
    trial_index_path(path, "");
    write_file(path, "not a database");
}

static int archive = -1;

static void source_path(char ret_path[600])
{
    snprintf(ret_path, 600, "%s/source", trial_root());
}

static aoticache_cache *open_source(void)
{
    char path[600];
    source_path(path);
    injection_pause();
    aoticache_cache *source = open_in(path);
    injection_resume();
    return source;
}

static void make_source(const aoticache_secret_key *const *signers, size_t count)
{
    char path[600];
    aoticache_error error = {.message = ""};
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    options.signers = signers;
    options.signer_count = count;
    source_path(path);
    remove_directory(path);
    aoticache_cache *source = open_in(path);
    for (int number = TRIAL_NEW_KEY; number < TRIAL_NEW_KEY + 2; number++)
        if (trial_put(source, number, number % 2 == 0, &error) != AOTICACHE_OK)
            fail("put", error.message);
    close(archive);
    archive = memfd_create("archive", MFD_CLOEXEC);
    const aoticache_status status = aoticache_cache_export(source, archive, &options, NULL, &error);
    if (status != AOTICACHE_OK && status != AOTICACHE_UNSUPPORTED)
        fail("export", error.message);
    aoticache_cache_close(source);
}

void trial_make_source(void)
{
    make_source(NULL, 0);
}

void trial_make_signed_source(void)
{
    aoticache_error error = {.message = ""};
    aoticache_secret_key *key = NULL;
    if (aoticache_secret_key_generate("ann", &key, &error) != AOTICACHE_OK)
        fail("key", error.message);
    make_source((const aoticache_secret_key *const[]){key}, 1);
    aoticache_secret_key_free(key);
}

void trial_reopen_archive(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", archive);
    archive = open(path, O_RDONLY | O_CLOEXEC);
    if (archive < 0)
        fail("archive", strerror(errno));
}

aoticache_status trial_import(aoticache_cache *cache, aoticache_error *ret_error)
{
    aoticache_transfer_report report;
    injection_spare_others();
    lseek(archive, 0, SEEK_SET);
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    options.allow_unsigned = true; /* tests/unit/cache/trust/test_trust_transfer.c is about signatures */
    aoticache_status status = aoticache_cache_import(cache, archive, &options, &report, ret_error);
    if (status == AOTICACHE_OK && report.refused > 0) /* the report has what could not be imported */
        status = aoticache_error_set(ret_error, AOTICACHE_IO, "%d entries were refused", (int)report.refused);
    return status;
}

aoticache_status trial_merge(aoticache_cache *cache, aoticache_error *ret_error)
{
    aoticache_transfer_report report;
    aoticache_cache *source = open_source();
    aoticache_status status = aoticache_cache_merge(cache, source, NULL, &report, ret_error);
    if (status == AOTICACHE_OK && report.refused > 0)
        status = aoticache_error_set(ret_error, AOTICACHE_IO, "%d entries were refused", (int)report.refused);
    injection_pause();
    aoticache_cache_close(source);
    injection_resume();
    return status;
}
