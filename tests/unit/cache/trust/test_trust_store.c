/*
 * What happens to signatures in the store, and what the settings require.
 */
#include "base/names.h"
#include "cache/entries.h"
#include "trust_fixture.h"

TestSuite(trust_store, .init = setup, .fini = teardown);

/* ---- in the store ---- */

Test(trust_store, signatures_survive_a_rebuilt_index_and_go_with_their_entry)
{
    aoticache_cache *cache = fixture_open(), *other;
    aoticache_collect_options collect = AOTICACHE_COLLECT_OPTIONS_INIT;
    char path[4400];
    if (ann == NULL)
        cr_skip_test("no libcrypto");
    fixture_put(cache, 1, "library one");
    const aoticache_digest artifact = artifact_of(cache, 1);
    cr_assert_eq(aoticache_cache_sign(cache, &artifact, ann, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_sign(cache, &artifact, bob, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_sign(cache, &artifact, ann, NULL), AOTICACHE_OK);
    aoticache_cache_close(cache);
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    cr_assert_eq(unlink(path), 0);
    cache = fixture_open();
    char *text = signatures_of(cache, &artifact);
    cr_assert(strncmp(text, "ann:", 4) == 0 && strstr(text, "\nbob:") != NULL, "%s", text);
    cr_assert_eq(fixture_verify(cache, false).wrong_signatures, 0);

    other = open_other(NULL, NULL); /* a copy has them too, and needs none: the source is our own cache */
    cr_assert_eq(aoticache_cache_merge(other, cache, NULL, NULL, NULL), AOTICACHE_OK);
    char *copied = signatures_of(other, &artifact);
    cr_assert_str_eq(copied, text);
    free(copied);
    free(text);
    aoticache_cache_close(other);

    const aoticache_key key = fixture_key(1);
    cr_assert_eq(aoticache_cache_remove(cache, &key, NULL), AOTICACHE_OK);
    cr_assert_eq(fixture_names("signatures"), 1);
    cr_assert_eq(aoticache_cache_collect(cache, &collect, NULL, NULL, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(fixture_names("signatures"), 0);
    aoticache_cache_close(cache);
}

Test(trust_store, repair_removes_what_only_a_revoked_key_signed)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache_options options = fixture_options();
    if (ann == NULL)
        cr_skip_test("no libcrypto");
    for (int64_t i = 1; i <= 4; i++) {
        char library[64];
        snprintf(library, sizeof library, "library %d", (int)i);
        fixture_put(cache, i, library);
    }
    aoticache_digest artifacts[4];
    for (int64_t i = 1; i <= 4; i++)
        artifacts[i - 1] = artifact_of(cache, i);
    aoticache_cache_sign(cache, &artifacts[0], ann, NULL); /* signed only by the revoked key */
    aoticache_cache_sign(cache, &artifacts[1], ann, NULL);
    aoticache_cache_sign(cache, &artifacts[1], bob, NULL); /* signed by another one, too; the third is not signed */
    aoticache_cache_close(cache);
    char revoked[400], hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(&artifacts[3], hex); /* the fourth is revoked itself */
    snprintf(revoked, sizeof revoked, "%s %s", ann_text, hex);
    options.trusted_keys = bob_text;
    options.revoked_keys = revoked;
    cache = fixture_open_with(&options);
    cr_assert_eq(fixture_verify(cache, false).wrong_signatures, 2);
    /* Lookups do not find them before the repair either. */
    fixture_warnings = 0;
    cr_assert_not(fixture_finds(cache, 1, "library 1"));
    cr_assert_not(fixture_finds(cache, 4, "library 4"));
    cr_assert_eq(fixture_warnings, 1, "%s", fixture_last_warning);
    cr_assert_not_null(strstr(fixture_last_warning, "only the revoked key ann signed it"), "%s", fixture_last_warning);
    cr_assert(fixture_finds(cache, 2, "library 2"));
    cr_assert(fixture_finds(cache, 3, "library 3"));
    aoticache_verify_report report = fixture_verify(cache, true);
    cr_assert_eq(report.wrong_signatures, 2);
    cr_assert_eq(report.repaired, 2);
    cr_assert_not(fixture_finds(cache, 1, "library 1"));
    cr_assert(fixture_finds(cache, 2, "library 2"));
    cr_assert(fixture_finds(cache, 3, "library 3"));
    cr_assert_not(fixture_finds(cache, 4, "library 4"));
    cr_assert_eq(fixture_verify(cache, false).wrong_signatures, 0);
    aoticache_cache_close(cache);
    char path[4400]; /* nor does a new index bring them back */
    snprintf(path, sizeof path, "%s/index.sqlite3", fixture_cache);
    cr_assert_eq(unlink(path), 0);
    cache = fixture_open();
    cr_assert_not(fixture_finds(cache, 1, "library 1"));
    cr_assert(fixture_finds(cache, 3, "library 3"));
    aoticache_cache_close(cache);
}

/*
 * The user's file is used like the options; if it cannot be read, entries from elsewhere are not found, and only those.
 */
Test(trust_store, lookups_heed_the_users_file_of_revoked_keys)
{
    static const char *const files[] = {NULL, "# none\n", "ann\n", "ann:not-base64\n"};
    aoticache_cache *cache = fixture_open();
    aoticache_cache_options options = fixture_options();
    if (ann == NULL)
        cr_skip_test("no libcrypto");
    fixture_put(cache, 1, "library 1");
    fixture_put(cache, 2, "library 2");
    const aoticache_digest artifact = artifact_of(cache, 1);
    cr_assert_eq(aoticache_cache_sign(cache, &artifact, ann, NULL), AOTICACHE_OK);
    aoticache_cache_close(cache);
    cr_assert_eq(mkdir(keys_path, 0700), 0);
    options.key_directory = keys_path;
    options.is_configured = true;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (files[i] != NULL)
            fixture_write("keys/revoked_keys", files[i]);
        cache = fixture_open_with(&options);
        cr_expect_eq(fixture_finds(cache, 1, "library 1"), i < 2, "file %zu", i);
        cr_expect(fixture_finds(cache, 2, "library 2"), "file %zu", i);
        aoticache_cache_close(cache);
    }
    cr_expect_not_null(strstr(fixture_last_warning, "revoked_keys:1"), "%s", fixture_last_warning);
    fixture_write("keys/revoked_keys", "# fixed\n");
    cache = fixture_open_with(&options);
    cr_expect(fixture_finds(cache, 1, "library 1"));
    aoticache_cache_close(cache);
}

Test(trust_store, damaged_file_of_signatures_is_found_and_set_aside)
{
    aoticache_cache *cache = fixture_open();
    char path[4500], hex[AOTICACHE_DIGEST_HEX_BYTES];
    if (ann == NULL)
        cr_skip_test("no libcrypto");
    fixture_put(cache, 1, "library one");
    const aoticache_digest artifact = artifact_of(cache, 1);
    cr_assert_eq(aoticache_cache_sign(cache, &artifact, ann, NULL), AOTICACHE_OK);
    aoticache_digest_to_hex(&artifact, hex);
    snprintf(path, sizeof path, "%s/signatures/%s", fixture_cache, hex);
    fixture_damage(path);
    chmod(path, 0600);
    char *text = NULL;
    cr_assert_eq(aoticache_cache_read_signatures(cache, &artifact, &text, NULL), AOTICACHE_CORRUPT);
    cr_assert_eq(fixture_verify(cache, false).wrong_signatures, 1);
    aoticache_verify_report report = fixture_verify(cache, true);
    cr_assert_eq(report.repaired, 1);
    cr_assert_eq(fixture_names("signatures"), 0);
    cr_assert_eq(fixture_names("quarantine"), 1);
    cr_assert(fixture_finds(cache, 1, "library one"));
    aoticache_cache_close(cache);
}

/* ---- settings ---- */

/* As if the machine's file had it: the origin says so. */
Test(trust_store, what_the_machine_requires_nobody_takes_back)
{
    aoticache_config *config = NULL;
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    const aoticache_config_name name = AOTICACHE_CONFIG_require_signatures;
    cr_assert_eq(aoticache_config_read(fixture_write("config", ""), (aoticache_logger){.log = NULL}, &config, NULL),
                 AOTICACHE_OK);
    config->logger.log = fixture_log;
    fixture_warnings = 0;
    cr_assert_eq(aoticache_config_take(config, name, "no", "/home/ann/config:1", true), AOTICACHE_OK);
    cr_assert_eq(aoticache_config_get(config, name).number, 0);
    cr_assert_eq(aoticache_config_take(config, name, "yes", AOTICACHE_CONFIG_SYSTEM_FILE ":3", true), AOTICACHE_OK);
    cr_assert_eq(aoticache_config_take(config, name, "yes", "/home/ann/config:1", true), AOTICACHE_OK);
    cr_assert_eq(fixture_warnings, 0);
    cr_assert_eq(aoticache_config_take(config, name, "no", "$AOTICACHE_REQUIRE_SIGNATURES", false), AOTICACHE_OK);
    cr_assert_eq(aoticache_config_get(config, name).number, 1);
    cr_assert_not_null(strstr(fixture_last_warning, "requires it"), "%s", fixture_last_warning);
    aoticache_config_apply(config, &options);
    cr_assert_eq(options.signatures, AOTICACHE_SIGNATURES_ALWAYS);
    aoticache_config_free(config);
}

Test(trust_store, configuration_adds_keys_up_and_names_those_that_are_none)
{
    aoticache_config *config = NULL;
    char text[1000];
    if (ann == NULL)
        cr_skip_test("no libcrypto");
    snprintf(text, sizeof text,
             "trusted_keys = %s nonsense\ntrusted_keys = %s\nrevoked_keys = stolen-1\nrequire_signatures = no\n",
             ann_text, bob_text);
    const char *path = fixture_write("config", text);
    const aoticache_logger logger = {.log = fixture_log};
    fixture_warnings = 0;
    cr_assert_eq(aoticache_config_read(path, logger, &config, NULL), AOTICACHE_OK);
    snprintf(text, sizeof text, "%s %s", ann_text, bob_text);
    cr_assert_str_eq(aoticache_config_get(config, AOTICACHE_CONFIG_trusted_keys).text, text);
    cr_assert_eq(fixture_warnings, 1);
    cr_assert_not_null(strstr(fixture_last_warning, "'nonsense' is not used"), "%s", fixture_last_warning);
    cr_assert_null(strstr(fixture_last_warning, ann_text));
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_config_apply(config, &options);
    cr_assert_eq(options.signatures, AOTICACHE_SIGNATURES_NOT_REQUIRED);
    cr_assert_str_eq(options.trusted_keys, text);
    cr_assert_str_eq(options.revoked_keys, "stolen-1");
    aoticache_config_free(config);
}

/* The unreadable revocation may be the relevant one. */
Test(trust_store, revocation_of_the_configuration_that_cannot_be_read_refuses_everything)
{
    aoticache_cache *cache = fixture_open(), *other;
    aoticache_cache_options options = fixture_options();
    aoticache_config *config = NULL;
    aoticache_error error = {.message = ""};
    if (ann == NULL)
        cr_skip_test("no libcrypto");
    fixture_put(cache, 1, "library one");
    int fd = export_by(cache, ann);
    const char *path = fixture_write("config", "revoked_keys = bob:not-base64\n");
    const aoticache_logger logger = {.log = fixture_log};
    cr_assert_eq(aoticache_config_read(path, logger, &config, NULL), AOTICACHE_OK);
    cr_expect_not_null(strstr(fixture_last_warning, "nothing from elsewhere is accepted until it is corrected"), "%s",
                       fixture_last_warning);
    aoticache_config_apply(config, &options);
    options.directory = other_path;
    options.trusted_keys = ann_text;
    options.is_configured = true;
    other = fixture_open_with(&options);
    lseek(fd, 0, SEEK_SET);
    cr_expect_eq(aoticache_cache_import(other, fd, NULL, NULL, &error), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "until this line is corrected"), "%s", error.message);
    aoticache_cache_close(other);
    aoticache_config_free(config);
    aoticache_cache_close(cache);
    close(fd);
}
