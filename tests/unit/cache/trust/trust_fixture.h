/*
 * For the tests of trust: two keys, caches that trust some of them, and archives that they sign.
 */
#ifndef TESTS_UNIT_TRUST_FIXTURE_H
#define TESTS_UNIT_TRUST_FIXTURE_H

#include <sys/mman.h>

#include "cache/config/config_internal.h"
#include "cache/gc/collect.h"
#include "cache/cache_internal.h"
#include "cache/remote/remote.h"
#include "cache/stats/statistics.h"
#include "cache/transfer/transfer.h"
#include "cache/trust/trust_internal.h"
#include "tests/unit/fixtures/cache_fixture.h"

static char other_path[4200], keys_path[4200];
static aoticache_secret_key *ann, *bob;
static char ann_text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES], bob_text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES];

static inline void setup(void)
{
    aoticache_error error = {.message = ""};
    fixture_setup();
    snprintf(other_path, sizeof other_path, "%s/other", fixture_root);
    snprintf(keys_path, sizeof keys_path, "%s/keys", fixture_root);
    if (aoticache_secret_key_generate("ann", &ann, &error) == AOTICACHE_UNSUPPORTED)
        return; /* each test skips */
    cr_assert_eq(aoticache_secret_key_generate("bob", &bob, NULL), AOTICACHE_OK);
    aoticache_public_key_format(aoticache_secret_key_public(ann), ann_text);
    aoticache_public_key_format(aoticache_secret_key_public(bob), bob_text);
}

static inline void teardown(void)
{
    aoticache_secret_key_free(ann);
    aoticache_secret_key_free(bob);
    fixture_teardown();
}

/* ---- caches and archives ---- */

static inline aoticache_cache *open_other(const char *trusted, const char *revoked)
{
    aoticache_cache_options options = fixture_options();
    options.directory = other_path;
    options.trusted_keys = trusted;
    options.revoked_keys = revoked;
    options.is_configured = true;
    fixture_warnings = 0;
    fixture_last_warning[0] = '\0';
    return fixture_open_with(&options);
}

static inline aoticache_digest artifact_of(aoticache_cache *cache, int64_t number)
{
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, number, &artifact), AOTICACHE_OK);
    aoticache_digest digest = *&aoticache_artifact_get_info(artifact)->digest;
    aoticache_artifact_unref(artifact);
    return digest;
}

/* Exports a cache that has one entry, signed by the given signers. */
static inline int export_with(aoticache_cache *cache, const aoticache_secret_key *const *signers, size_t count)
{
    int fd = memfd_create("archive", MFD_CLOEXEC);
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    aoticache_transfer_report report;
    aoticache_error error = {.message = ""};
    options.signers = signers;
    options.signer_count = count;
    aoticache_status status = aoticache_cache_export(cache, fd, &options, &report, &error);
    if (status == AOTICACHE_UNSUPPORTED || ann == NULL)
        cr_skip_test("%s", error.message);
    cr_assert_eq(status, AOTICACHE_OK, "%s", error.message);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

static inline int export_by(aoticache_cache *cache, const aoticache_secret_key *signer)
{
    return export_with(cache, &signer, signer != NULL ? 1 : 0);
}

static inline aoticache_transfer_report import_with(aoticache_cache *cache, int fd,
                                                    const aoticache_transfer_options *options)
{
    aoticache_transfer_report report;
    aoticache_error error = {.message = ""};
    lseek(fd, 0, SEEK_SET);
    aoticache_status status = aoticache_cache_import(cache, fd, options, &report, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s: %s", aoticache_status_name(status), error.message);
    return report;
}

static inline uint64_t refused_count(aoticache_cache *cache)
{
    aoticache_statistics statistics;
    cr_assert_eq(aoticache_cache_get_statistics(cache, NULL, &statistics, NULL), AOTICACHE_OK);
    return statistics.counters.refused_untrusted;
}

/* Imports one entry, which is accepted, or refused for `reason` (a part of its line). */
static inline void import_one(aoticache_cache *cache, int fd, const aoticache_transfer_options *options,
                              const char *reason)
{
    const uint64_t before = refused_count(cache);
    const aoticache_transfer_report report = import_with(cache, fd, options);
    cr_assert_eq(report.entries, reason == NULL ? 1 : 0, "%s", fixture_last_warning);
    cr_assert_eq(report.entries_untrusted, reason == NULL ? 0 : 1);
    cr_assert_eq(report.refused, reason == NULL ? 0 : 1);
    cr_assert_eq(refused_count(cache) - before, reason == NULL ? 0 : 1);
    if (reason != NULL)
        cr_assert_not_null(strstr(fixture_last_warning, reason), "%s", fixture_last_warning);
    else
        cr_assert_eq(fixture_warnings, 0, "%s", fixture_last_warning);
    cr_assert_null(strchr(fixture_last_warning, '\n'));
}

static inline char *signatures_of(aoticache_cache *cache, const aoticache_digest *artifact)
{
    char *text = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_cache_read_signatures(cache, artifact, &text, &error), AOTICACHE_OK, "%s", error.message);
    return text;
}

#endif
