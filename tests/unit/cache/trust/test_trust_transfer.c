/*
 * Which entries of archives are accepted: signed, stripped, changed in transit, replayed, or made by somebody else. Each
 * refusal has its line in the log, and is counted.
 */
#include "base/names.h"
#include "trust_fixture.h"

TestSuite(trust_transfer, .init = setup, .fini = teardown);

Test(trust_transfer, signature_of_a_trusted_key_lets_an_entry_in_and_is_kept)
{
    aoticache_cache *cache = fixture_open(), *other;
    fixture_put(cache, 1, "library one");
    int fd = export_by(cache, ann);
    other = open_other(ann_text, NULL);
    import_one(other, fd, NULL, NULL);
    cr_assert(fixture_finds(other, 1, "library one"));
    const aoticache_digest artifact = artifact_of(cache, 1);
    char *text = signatures_of(other, &artifact), *own = signatures_of(cache, &artifact);
    cr_assert_eq(strncmp(text, "ann:", 4), 0, "%s", text);
    cr_assert_str_eq(own, ""); /* an export changes nothing */
    free(text);
    free(own);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}

Test(trust_transfer, unsigned_stranger_and_stripped_are_refused_and_leave_nothing)
{
    aoticache_cache *cache = fixture_open(), *other;
    fixture_put(cache, 1, "library one");
    int plain = export_by(cache, NULL), strangers = export_by(cache, bob);
    other = open_other(ann_text, NULL);
    import_one(other, plain, NULL, "the archive: 1 entry refused (");
    cr_assert_not_null(strstr(fixture_last_warning, "): it is not signed; on the machine that made it, run: "
                                                    "aoticache key sign --all"));
    import_one(other, strangers, NULL, "): signed by 'bob', a key that is not trusted here; ");
    cr_assert_not_null(strstr(fixture_last_warning, "aoticache key trust"));
    cr_assert_not(fixture_finds(other, 1, "library one"));
    snprintf(fixture_cache, sizeof fixture_cache, "%s", other_path);
    cr_assert_eq(fixture_files("objects"), 0);
    cr_assert_eq(fixture_names("signatures"), 0);
    cr_assert_eq(fixture_names("tmp"), 0);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(plain);
    close(strangers);
}

/* Administrators want to know what to do, not to read a line for each kernel. */
Test(trust_transfer, entries_of_one_signer_are_refused_in_one_line)
{
    aoticache_cache *cache = fixture_open(), *other;
    for (int64_t i = 1; i <= 20; i++)
        fixture_put(cache, i, "library");
    int fd = export_by(cache, bob);
    other = open_other(ann_text, NULL);
    fixture_warnings = 0;
    const aoticache_transfer_report report = import_with(other, fd, NULL);
    cr_assert_eq(report.refused, 20);
    cr_assert_eq(report.entries_untrusted, 20);
    cr_assert_eq(fixture_warnings, 1, "%s", fixture_last_warning);
    char remedy[400];
    snprintf(remedy, sizeof remedy,
             ", ...): signed by 'bob', a key that is not trusted here; if its owner may run code here, "
             "repeat this after: aoticache key trust %s",
             bob_text);
    const char *found = strstr(fixture_last_warning, remedy);
    cr_assert_not_null(found, "%s", fixture_last_warning);
    cr_assert_str_eq(found, remedy);
    cr_assert_eq(strncmp(fixture_last_warning, "the archive: 20 entries refused (", 33), 0);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}

/* With more signers than have a line, entries are logged one by one: none is left out. */
Test(trust_transfer, many_signers_are_all_told)
{
    aoticache_cache *cache = fixture_open(), *other;
    for (int64_t i = 1; i <= 12; i++) {
        char name[16];
        aoticache_secret_key *key = NULL;
        snprintf(name, sizeof name, "signer-%d", (int)i);
        fixture_put(cache, i, "library");
        const aoticache_digest artifact = artifact_of(cache, i);
        if (aoticache_secret_key_generate(name, &key, NULL) == AOTICACHE_UNSUPPORTED)
            cr_skip_test("there is no libcrypto");
        cr_assert_eq(aoticache_cache_sign(cache, &artifact, key, NULL), AOTICACHE_OK);
        aoticache_secret_key_free(key);
    }
    int fd = export_by(cache, NULL);
    other = open_other(ann_text, NULL);
    fixture_warnings = 0;
    const aoticache_transfer_report report = import_with(other, fd, NULL);
    cr_assert_eq(report.refused, 12);
    cr_assert_eq(fixture_warnings, 12, "%s", fixture_last_warning);
    cr_assert_not_null(strstr(fixture_last_warning, "run 'aoticache key public' there"), "%s", fixture_last_warning);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}

Test(trust_transfer, allow_unsigned_takes_what_nobody_trusted_signed_but_not_what_is_wrong)
{
    aoticache_cache *cache = fixture_open(), *other;
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    aoticache_secret_key *false_ann = NULL;
    options.allow_unsigned = true;
    fixture_put(cache, 1, "library one");
    int plain = export_by(cache, NULL), fd;
    cr_assert_eq(aoticache_secret_key_generate("ann", &false_ann, NULL), AOTICACHE_OK);
    fd = export_by(cache, false_ann);
    other = open_other(ann_text, NULL);
    import_one(other, fd, NULL, "a signature is not valid for this entry");
    import_one(other, fd, &options, "a signature is not valid for this entry");
    fixture_warnings = 0;
    import_one(other, plain, &options, NULL);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    aoticache_secret_key_free(false_ann);
    close(plain);
    close(fd);
}

Test(trust_transfer, two_signatures_serve_while_a_key_is_rotated)
{
    aoticache_cache *cache = fixture_open(), *other;
    const aoticache_secret_key *const both[] = {ann, bob};
    fixture_put(cache, 1, "library one");
    int fd = export_with(cache, both, 2);
    other = open_other(bob_text, NULL); /* only the new key; the old one is unknown */
    import_one(other, fd, NULL, NULL);
    aoticache_cache_close(other);
    own_directory_remove(other_path);
    other = open_other(bob_text, ann_text); /* or revoked */
    import_one(other, fd, NULL, NULL);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}

/* A cache that has the entry gets the new key's signature for it, but no signature of an unknown key. */
Test(trust_transfer, entry_that_is_here_gets_the_trusted_signatures_of_its_copies)
{
    aoticache_cache *cache = fixture_open(), *other;
    const aoticache_secret_key *const both[] = {ann, bob};
    aoticache_secret_key *carol = NULL;
    char trusted[400];
    fixture_put(cache, 1, "library one");
    int first = export_by(cache, ann), second = export_with(cache, both, 2), strangers;
    cr_assert_eq(aoticache_secret_key_generate("carol", &carol, NULL), AOTICACHE_OK);
    strangers = export_by(cache, carol);
    snprintf(trusted, sizeof trusted, "%s %s", ann_text, bob_text);
    other = open_other(trusted, NULL);
    const aoticache_digest artifact = artifact_of(cache, 1);
    import_one(other, first, NULL, NULL);
    aoticache_transfer_report report = import_with(other, strangers, NULL);
    cr_assert_eq(report.entries_present, 1);
    cr_assert_eq(report.entries_signed, 0);
    report = import_with(other, second, NULL);
    cr_assert_eq(report.entries_present, 1);
    cr_assert_eq(report.entries_signed, 1);
    char *text = signatures_of(other, &artifact);
    cr_assert(strncmp(text, "ann:", 4) == 0 && strstr(text, "\nbob:") != NULL && strstr(text, "carol") == NULL, "%s",
              text);
    free(text);
    report = import_with(other, second, NULL);
    cr_assert_eq(report.entries_signed, 0); /* it has them */
    aoticache_cache_sign(cache, &artifact, bob, NULL);
    own_directory_remove(other_path);
    aoticache_cache_close(other);
    other = open_other(trusted, NULL);
    import_one(other, first, NULL, NULL);
    cr_assert_eq(aoticache_cache_merge(other, cache, NULL, &report, NULL), AOTICACHE_OK);
    cr_assert_eq(report.entries_signed, 1);
    text = signatures_of(other, &artifact);
    cr_assert_not_null(strstr(text, "\nbob:"), "%s", text);
    free(text);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    aoticache_secret_key_free(carol);
    close(first);
    close(second);
    close(strangers);
}

Test(trust_transfer, revoked_key_and_revoked_entry_are_refused_whatever_else_is_said)
{
    aoticache_cache *cache = fixture_open(), *other;
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    char fingerprint[AOTICACHE_FINGERPRINT_BYTES], artifact[AOTICACHE_DIGEST_HEX_BYTES];
    fixture_put(cache, 1, "library one");
    int fd = export_by(cache, ann);
    const aoticache_digest digest = artifact_of(cache, 1);
    aoticache_public_key_fingerprint(aoticache_secret_key_public(ann), fingerprint);
    aoticache_digest_to_hex(&digest, artifact);
    options.allow_unsigned = true;
    const char *const words[] = {ann_text, fingerprint, "ann", artifact};
    for (size_t i = 0; i < 4; i++) {
        const char *reason = i < 3 ? "a revoked key signed it: ann" : "the entry is revoked";
        other = open_other(ann_text, words[i]);
        import_one(other, fd, NULL, reason);
        import_one(other, fd, &options, reason);
        aoticache_cache_close(other);
    }
    aoticache_cache_close(cache);
    close(fd);
}

Test(trust_transfer, rule_says_whether_a_signature_is_needed)
{
    static const struct {
        aoticache_signature_rule rule;
        bool allows, comes;
    } cases[] = {{AOTICACHE_SIGNATURES_AS_CONFIGURED, false, false}, {AOTICACHE_SIGNATURES_REQUIRED, false, false},
                 {AOTICACHE_SIGNATURES_REQUIRED, true, true},        {AOTICACHE_SIGNATURES_NOT_REQUIRED, false, true},
                 {AOTICACHE_SIGNATURES_ALWAYS, false, false},        {AOTICACHE_SIGNATURES_ALWAYS, true, false}};
    aoticache_cache *cache = fixture_open();
    fixture_put(cache, 1, "library one");
    int fd = export_by(cache, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        aoticache_cache_options options = fixture_options();
        aoticache_transfer_options transfer = AOTICACHE_TRANSFER_OPTIONS_INIT;
        options.directory = other_path;
        options.is_configured = true;
        options.signatures = cases[i].rule;
        transfer.allow_unsigned = cases[i].allows;
        fixture_warnings = 0;
        aoticache_cache *other = fixture_open_with(&options);
        import_one(other, fd, &transfer, cases[i].comes ? NULL : "): it is not signed; ");
        aoticache_cache_close(other);
        own_directory_remove(other_path);
    }
    aoticache_cache_close(cache);
    close(fd);
}

/* An old entry with a valid signature must not replace the entry that fixed it. */
Test(trust_transfer, replayed_old_entry_is_refused)
{
    aoticache_cache *cache = fixture_open(), *other = NULL;
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    options.replace = true;
    fixture_put(cache, 1, "library with a mistake");
    int old = export_by(cache, ann);
    fixture_put(cache, 1, "library fixed");
    int new = export_by(cache, ann);
    other = open_other(ann_text, NULL);
    import_one(other, new, NULL, NULL);
    import_one(other, old, &options, "it is older than the existing entry");
    cr_assert(fixture_finds(other, 1, "library fixed"));
    fixture_warnings = 0;
    options.allow_unsigned = true; /* the target shall have exactly the entries of the source */
    import_one(other, old, &options, NULL);
    options.allow_unsigned = false;
    import_one(other, new, &options, NULL); /* newer: accepted */
    cr_assert(fixture_finds(other, 1, "library fixed"));
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(old);
    close(new);
}

/* ---- asking ---- */

struct asked {
    int times;
    bool answer;
    char name[AOTICACHE_SIGNER_NAME_BYTES];
};

static bool answer(void *user, const aoticache_public_key *key)
{
    struct asked *asked = user;
    asked->times++;
    memcpy(asked->name, key->name, sizeof asked->name);
    return asked->answer;
}

Test(trust_transfer, key_that_came_along_is_trusted_only_if_asked_and_only_if_it_signed)
{
    aoticache_cache *cache = fixture_open(), *other;
    struct asked asked = {.answer = false};
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    options.ask = answer;
    options.user = &asked;
    fixture_put(cache, 1, "library one");
    fixture_put(cache, 2, "library two");
    int fd = export_by(cache, ann);
    other = open_other(NULL, NULL);
    aoticache_transfer_report report = import_with(other, fd, &options);
    cr_assert_eq(report.entries, 0);
    cr_assert_eq(report.entries_untrusted, 2);
    cr_assert_str_eq(asked.name, "ann");
    asked = (struct asked){.answer = true};
    report = import_with(other, fd, &options);
    cr_assert_eq(report.entries, 2);
    cr_assert_eq(report.entries_signed, 2);
    cr_assert_eq(asked.times, 1); /* the second entry finds it trusted */
    aoticache_cache_close(other);
    own_directory_remove(other_path);
    other = open_other(NULL, ann_text); /* a revoked key is not asked about */
    asked = (struct asked){.answer = true};
    report = import_with(other, fd, &options);
    cr_assert_eq(report.entries, 0);
    cr_assert_eq(asked.times, 0);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}
