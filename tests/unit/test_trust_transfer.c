/*
 * Which entries are accepted: archives that are signed, stripped, changed in transit, replayed, or made by somebody
 * else; and what happens to signatures in the store. Each refusal has its line in the log, and is counted.
 */
#include <sys/mman.h>

#include "cache/config/internal.h"
#include "cache/gc/collect.h"
#include "cache/internal.h"
#include "cache/remote/remote.h"
#include "cache/stats/statistics.h"
#include "cache/transfer/transfer.h"
#include "cache/trust/internal.h"
#include "cache_fixture.h"

static char other_path[4200], keys_path[4200];
static aoticache_secret_key *ann, *bob;
static char ann_text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES], bob_text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES];

static void setup(void)
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

static void teardown(void)
{
    aoticache_secret_key_free(ann);
    aoticache_secret_key_free(bob);
    fixture_teardown();
}

TestSuite(trust_transfer, .init = setup, .fini = teardown);

/* ---- caches and archives ---- */

static aoticache_cache *open_other(const char *trusted, const char *revoked)
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

static aoticache_digest artifact_of(aoticache_cache *cache, int64_t number)
{
    aoticache_artifact *artifact = NULL;
    cr_assert_eq(fixture_lookup(cache, number, &artifact), AOTICACHE_OK);
    aoticache_digest digest = *&aoticache_artifact_get_info(artifact)->digest;
    aoticache_artifact_unref(artifact);
    return digest;
}

/* Exports a cache that has one entry, signed by the given signers. */
static int export_with(aoticache_cache *cache, const aoticache_secret_key *const *signers, size_t count)
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

static int export_by(aoticache_cache *cache, const aoticache_secret_key *signer)
{
    return export_with(cache, &signer, signer != NULL ? 1 : 0);
}

static aoticache_transfer_report import_with(aoticache_cache *cache, int fd, const aoticache_transfer_options *options)
{
    aoticache_transfer_report report;
    aoticache_error error = {.message = ""};
    lseek(fd, 0, SEEK_SET);
    aoticache_status status = aoticache_cache_import(cache, fd, options, &report, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s: %s", aoticache_status_name(status), error.message);
    return report;
}

static uint64_t refused_count(aoticache_cache *cache)
{
    aoticache_statistics statistics;
    cr_assert_eq(aoticache_cache_statistics(cache, NULL, &statistics, NULL), AOTICACHE_OK);
    return statistics.counters.refused_untrusted;
}

/* Imports one entry, which is accepted, or refused for `reason` (a part of its line). */
static void import_one(aoticache_cache *cache, int fd, const aoticache_transfer_options *options, const char *reason)
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

static char *signatures_of(aoticache_cache *cache, const aoticache_digest *artifact)
{
    char *text = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_cache_read_signatures(cache, artifact, &text, &error), AOTICACHE_OK, "%s", error.message);
    return text;
}

/* ---- archives ---- */

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
    own_folder_remove(other_path);
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
    own_folder_remove(other_path);
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
        own_folder_remove(other_path);
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
    own_folder_remove(other_path);
    other = open_other(NULL, ann_text); /* a revoked key is not asked about */
    asked = (struct asked){.answer = true};
    report = import_with(other, fd, &options);
    cr_assert_eq(report.entries, 0);
    cr_assert_eq(asked.times, 0);
    aoticache_cache_close(other);
    aoticache_cache_close(cache);
    close(fd);
}

/* ---- the decision itself, as used for a remote ---- */

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

Test(trust_transfer, decision_has_a_reason_for_each_refusal)
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
Test(trust_transfer, statement_and_signatures_of_an_entry_are_enough_to_decide_elsewhere)
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
Test(trust_transfer, damaged_list_of_revoked_keys_refuses_everything)
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

Test(trust_transfer, own_key_is_trusted_by_who_has_it)
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

Test(trust_transfer, revoked_key_signs_nothing)
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
Test(trust_transfer, revoked_key_is_known_under_any_name)
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

/* ---- in the store ---- */

Test(trust_transfer, signatures_survive_a_rebuilt_index_and_go_with_their_entry)
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

Test(trust_transfer, repair_removes_what_only_a_revoked_key_signed)
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
Test(trust_transfer, lookups_heed_the_users_file_of_revoked_keys)
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

Test(trust_transfer, damaged_file_of_signatures_is_found_and_set_aside)
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
Test(trust_transfer, what_the_machine_requires_nobody_takes_back)
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

Test(trust_transfer, configuration_adds_keys_up_and_names_those_that_are_none)
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
Test(trust_transfer, revocation_of_the_configuration_that_cannot_be_read_refuses_everything)
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
