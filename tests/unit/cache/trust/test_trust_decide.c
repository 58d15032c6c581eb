/*
 * The decision about an entry from elsewhere, and which keys sign.
 */
#include "trust_fixture.h"

TestSuite(trust_decide, .init = setup, .fini = teardown);

static aoticache_trust_verdict decide(aoticache_cache *cache, const aoticache_statement *statement,
                                      const char *signatures, const aoticache_key *wanted)
{
    aoticache_trust_claim claim = AOTICACHE_TRUST_CLAIM_INIT;
    aoticache_trust_verdict verdict;
    aoticache_error error = {.message = ""};
    claim.statement = statement;
    claim.signatures = signatures;
    claim.wanted = wanted;
    aoticache_status status = aoticache_cache_decide(cache, &claim, &verdict, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s", error.message);
    cr_assert(verdict.message[0] != '\0' && strchr(verdict.message, '\n') == NULL);
    cr_assert_eq(verdict.is_accepted, verdict.reason <= AOTICACHE_TRUST_UNCHECKED);
    return verdict;
}

static void sign_text(const aoticache_statement *statement, const aoticache_secret_key *key, char *ret_text)
{
    aoticache_signature signature;
    cr_assert_eq(aoticache_statement_sign(statement, key, &signature, NULL), AOTICACHE_OK);
    aoticache_signature_format(&signature, ret_text);
}

Test(trust_decide, decision_has_a_reason_for_each_refusal)
{
    if (ann == NULL)
        cr_skip_test("no libcrypto");
    aoticache_cache *cache = open_other(ann_text, NULL);
    aoticache_statement statement = AOTICACHE_STATEMENT_INIT, another;
    char by_ann[AOTICACHE_SIGNATURE_TEXT_BYTES], by_bob[AOTICACHE_SIGNATURE_TEXT_BYTES], text[1024], many[8192] = "";
    aoticache_key other_key = {.bytes = {1}};
    statement.producer = "test";
    another = statement;
    another.key = other_key;
    sign_text(&statement, ann, by_ann);
    sign_text(&statement, bob, by_bob);
    aoticache_trust_verdict verdict = decide(cache, &statement, by_ann, &statement.key);
    cr_assert_eq(verdict.reason, AOTICACHE_TRUST_SIGNED);
    cr_assert_arr_eq(&verdict.key, aoticache_secret_key_public(ann), sizeof verdict.key);
    snprintf(text, sizeof text, "%s\n%s\n", by_bob, by_ann);
    cr_assert_eq(decide(cache, &statement, text, NULL).reason, AOTICACHE_TRUST_SIGNED);

    cr_assert_eq(decide(cache, &statement, NULL, NULL).reason, AOTICACHE_TRUST_UNSIGNED);
    cr_assert_eq(decide(cache, &statement, "", NULL).reason, AOTICACHE_TRUST_UNSIGNED);
    cr_assert_eq(decide(cache, &statement, by_bob, NULL).reason, AOTICACHE_TRUST_UNKNOWN_KEY);
    cr_assert_eq(decide(cache, &statement, by_ann, &other_key).reason, AOTICACHE_TRUST_OTHER_KEY);
    cr_assert_eq(decide(cache, &another, by_ann, &other_key).reason,
                 AOTICACHE_TRUST_WRONG_SIGNATURE); /* one of another entry */
    snprintf(text, sizeof text, "%s\n%s\n", by_ann, by_ann);
    cr_assert_eq(decide(cache, &statement, text, NULL).reason, AOTICACHE_TRUST_REPEATED_SIGNATURE);
    snprintf(text, sizeof text, "%s\n\n", by_ann);
    cr_assert_eq(decide(cache, &statement, text, NULL).reason, AOTICACHE_TRUST_NO_SIGNATURE_TEXT);
    for (int i = 0; i <= AOTICACHE_MAX_SIGNATURES; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "k%d%s\n", i, strchr(by_bob, ':'));
    cr_assert_eq(decide(cache, &statement, many, NULL).reason, AOTICACHE_TRUST_NO_SIGNATURE_TEXT);
    /* bob's signature under ann's name */
    snprintf(text, sizeof text, "ann%s", strchr(by_bob, ':'));
    cr_assert_eq(decide(cache, &statement, text, NULL).reason, AOTICACHE_TRUST_WRONG_SIGNATURE);
    cr_assert_eq(refused_count(cache), 9);
    aoticache_cache_close(cache);
}

/* Acts as a remote: passes the statement and the signatures of an entry to another cache, which decides. */
Test(trust_decide, statement_and_signatures_of_an_entry_are_enough_to_decide_elsewhere)
{
    aoticache_manifest *manifest = NULL;
    aoticache_signature_list list = {.count = 0};
    uint64_t bytes;
    if (ann == NULL)
        cr_skip_test("no libcrypto");
    aoticache_cache *cache = fixture_open(), *other = open_other(ann_text, NULL);
    fixture_put(cache, 1, "library one");
    const aoticache_digest artifact = artifact_of(cache, 1), unknown = {.bytes = {1}};
    const aoticache_key key = fixture_key(1);
    cr_assert_eq(aoticache_cache_sign(cache, &unknown, ann, NULL), AOTICACHE_NOT_FOUND);
    cr_assert_eq(aoticache_cache_load_manifest(cache->directory, &artifact, &manifest, &bytes, NULL), AOTICACHE_OK);
    aoticache_statement statement = aoticache_statement_of_manifest(&artifact, manifest);
    cr_assert(aoticache_digest_equal(&statement.key, &key));
    cr_assert(aoticache_digest_equal(&statement.artifact, &artifact));
    cr_assert_str_eq(statement.producer, "test");
    cr_assert_null(statement.guard);
    cr_assert_eq(aoticache_cache_sign(cache, &artifact, ann, NULL), AOTICACHE_OK);
    char *text = signatures_of(cache, &artifact);
    cr_assert_eq(decide(other, &statement, text, &key).reason, AOTICACHE_TRUST_SIGNED);
    statement.created_ns++;
    cr_assert_eq(decide(other, &statement, text, &key).reason, AOTICACHE_TRUST_WRONG_SIGNATURE);
    /* Signatures may be stored before their entry, and wrong text changes nothing. */
    cr_assert_eq(aoticache_signature_list_parse(text, &list, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_signature_file_add(other->directory, &artifact, &list, true, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_signature_list_parse("ann:x\n", &list, NULL), AOTICACHE_INVALID);
    char *again = signatures_of(other, &artifact);
    cr_assert_str_eq(again, text);
    free(again);
    free(text);
    aoticache_manifest_free(manifest);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
}

/* A list that cannot be read may have revoked the signing key. */
Test(trust_decide, damaged_list_of_revoked_keys_refuses_everything)
{
    aoticache_cache_options options = fixture_options();
    aoticache_statement statement = AOTICACHE_STATEMENT_INIT;
    aoticache_trust_claim claim = AOTICACHE_TRUST_CLAIM_INIT;
    aoticache_trust_verdict verdict;
    aoticache_error error = {.message = ""};
    cr_assert_eq(mkdir(keys_path, 0700), 0);
    fixture_write("keys/revoked_keys", "# stolen\nann:not-base64\n");
    options.key_directory = keys_path;
    options.is_configured = true;
    aoticache_cache *cache = fixture_open_with(&options);
    claim.statement = &statement;
    claim.allow_unsigned = true;
    cr_assert_eq(aoticache_cache_decide(cache, &claim, &verdict, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "revoked_keys:2"), "%s", error.message);
    fixture_write("keys/revoked_keys", "# stolen\nann\n");
    cr_assert_eq(aoticache_cache_decide(cache, &claim, &verdict, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_cache_close(cache);
}

Test(trust_decide, own_key_is_trusted_by_who_has_it)
{
    aoticache_cache *cache = fixture_open(), *other;
    aoticache_cache_options options = fixture_options();
    aoticache_secret_key *own = NULL;
    bool is_new = false;
    if (ann == NULL)
        cr_skip_test("no libcrypto");
    cr_assert_eq(aoticache_key_directory_own_key(keys_path, "me@here-1", &own, &is_new, NULL), AOTICACHE_OK);
    cr_assert(is_new);
    fixture_put(cache, 1, "library one");
    int fd = export_by(cache, own);
    aoticache_secret_key_free(own);
    cr_assert_eq(aoticache_key_directory_own_key(keys_path, "other", &own, &is_new, NULL), AOTICACHE_OK);
    cr_assert_not(is_new);
    cr_assert_str_eq(aoticache_secret_key_public(own)->name, "me@here-1");
    options.directory = other_path;
    options.key_directory = keys_path;
    options.is_configured = true;
    other = fixture_open_with(&options);
    import_one(other, fd, NULL, NULL);
    aoticache_secret_key_free(own);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}

Test(trust_decide, revoked_key_signs_nothing)
{
    aoticache_cache *cache = fixture_open();
    aoticache_cache_options cache_options = fixture_options();
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    aoticache_secret_key *own = NULL;
    const aoticache_secret_key *const *signers = NULL;
    size_t count = 0;
    aoticache_error error = {.message = ""};
    if (ann == NULL)
        cr_skip_test("no libcrypto");
    fixture_put(cache, 1, "library one");
    const aoticache_digest artifact = artifact_of(cache, 1);
    aoticache_cache_close(cache);
    cr_assert_eq(aoticache_key_directory_own_key(keys_path, "me@here-1", &own, NULL, NULL), AOTICACHE_OK);
    cache_options.key_directory = keys_path;
    cache_options.is_configured = true;
    cache = fixture_open_with(&cache_options);
    cr_assert_eq(aoticache_cache_signers(cache, &signers, &count, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(count, 1);
    aoticache_cache_close(cache);

    cr_assert_eq(aoticache_key_directory_revoke(keys_path, "me@here-1", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_key_directory_revoke(keys_path, ann_text, NULL), AOTICACHE_OK);
    cache = fixture_open_with(&cache_options);
    cr_expect_eq(aoticache_cache_signers(cache, &signers, &count, &error), AOTICACHE_DENIED);
    cr_expect_not_null(strstr(error.message, "key 'me@here-1' (SHA256:"), "%s", error.message);
    cr_expect_not_null(strstr(error.message, "aoticache key rotate"), "%s", error.message);
    cr_expect_eq(aoticache_cache_sign(cache, &artifact, own, &error), AOTICACHE_DENIED);
    cr_expect_eq(aoticache_cache_sign(cache, &artifact, ann, &error), AOTICACHE_DENIED);
    cr_expect_not_null(strstr(error.message, "sign with another key"), "%s", error.message);
    cr_expect_eq(aoticache_cache_sign(cache, &artifact, bob, &error), AOTICACHE_OK, "%s", error.message);
    const aoticache_secret_key *both[] = {bob, ann};
    int fd = memfd_create("archive", MFD_CLOEXEC);
    options.signers = both;
    options.signer_count = 2;
    cr_expect_eq(aoticache_cache_export(cache, fd, &options, NULL, &error), AOTICACHE_DENIED);
    cr_expect_eq(lseek(fd, 0, SEEK_END), 0);
    cr_expect_eq(aoticache_cache_push(cache, "http://127.0.0.1:9/", &options, NULL, &error), AOTICACHE_DENIED);
    close(fd);
    aoticache_secret_key_free(own);
    aoticache_cache_close(cache);
}

/* The bytes of the key are revoked: a signature with another name is recognised by them. */
Test(trust_decide, revoked_key_is_known_under_any_name)
{
    aoticache_cache *cache = fixture_open(), *other;
    char text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES];
    if (ann == NULL)
        cr_skip_test("no libcrypto");
    fixture_put(cache, 1, "library one");
    int fd = export_by(cache, ann);
    snprintf(text, sizeof text, "another%s", strchr(ann_text, ':'));
    other = open_other(ann_text, NULL);
    import_one(other, fd, NULL, NULL);
    aoticache_cache_close(other);
    other = open_other(NULL, text); /* not trusted any more */
    cr_expect_not(fixture_finds(other, 1, "library one"));
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}
