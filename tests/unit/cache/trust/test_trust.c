/*
 * Keys, signatures and statements: their text forms and canonical bytes compared with the vectors that an independent
 * program wrote (tests/golden/signatures), Ed25519 with RFC 8032, and files of secret keys.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/names.h"
#include "cache/config/config.h"
#include "cache/trust/trust_internal.h"
#include "tests/unit/fixtures/own_directory.h"

#define VECTORS "tests/golden/signatures/vectors.json"

static char work[128];

static void setup(void)
{
    own_directory_make(work, sizeof work);
}

TestSuite(trust, .init = setup);

static const char *path_of(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", work, name);
    return path;
}

static const char *write_file(const char *name, const char *text, mode_t mode)
{
    const char *path = path_of(name);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
    chmod(path, mode);
    return path;
}

static json_t *load_vectors(void)
{
    json_error_t error;
    json_t *file = json_load_file(VECTORS, 0, &error);
    cr_assert_not_null(file, "%s", error.text);
    return file;
}

static const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static size_t bytes_of(const char *hex, uint8_t *ret_bytes)
{
    size_t size = strlen(hex) / 2;
    for (size_t i = 0; i < size; i++)
        cr_assert_eq(sscanf(hex + 2 * i, "%2hhx", &ret_bytes[i]), 1);
    return size;
}

static aoticache_secret_key *parse_secret(const char *text)
{
    aoticache_secret_key *key = NULL;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_secret_key_parse(text, "a test", &key, &error);
    if (status == AOTICACHE_UNSUPPORTED)
        cr_skip_test("%s", error.message);
    cr_assert_eq(status, AOTICACHE_OK, "%s", error.message);
    return key;
}

static aoticache_status verify(const aoticache_statement *statement, const aoticache_public_key *key,
                               const aoticache_signature *signature, aoticache_error *ret_error)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    cr_assert_eq(aoticache_statement_encode(statement, &bytes, &size, NULL), AOTICACHE_OK);
    const aoticache_status status = aoticache_statement_verify_bytes(bytes, size, key, signature, ret_error);
    free(bytes);
    return status;
}

/* ---- RFC 8032, section 7.1: TEST 1, 2, 3 ---- */

Test(trust, ed25519_meets_rfc_8032)
{
    static const struct {
        const char *seed, *public_key, *message, *signature;
    } vectors[] = {
        {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
         "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
         "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe246551"
         "41438e7a100b"},
        {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
         "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
         "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d"
         "291612bb0c00"},
        {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
         "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
         "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027"
         "beceea1ec40a"},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        uint8_t seed[32], public_key[32], found_key[32], message[2], signature[64], found[64];
        aoticache_error error = {.message = ""};
        bytes_of(vectors[i].seed, seed);
        bytes_of(vectors[i].public_key, public_key);
        const size_t size = bytes_of(vectors[i].message, message);
        bytes_of(vectors[i].signature, signature);
        if (aoticache_ed25519_public(seed, found_key, &error) == AOTICACHE_UNSUPPORTED)
            cr_skip_test("%s", error.message);
        cr_assert_arr_eq(found_key, public_key, 32);
        cr_assert_eq(aoticache_ed25519_sign(seed, message, size, found, &error), AOTICACHE_OK, "%s", error.message);
        cr_assert_arr_eq(found, signature, 64);
        cr_assert_eq(aoticache_ed25519_verify(public_key, message, size, signature, &error), AOTICACHE_OK);
        for (size_t bit = 0; bit < 512; bit += 37) {
            signature[bit / 8] ^= (uint8_t)(1 << bit % 8);
            cr_assert_eq(aoticache_ed25519_verify(public_key, message, size, signature, &error), AOTICACHE_CORRUPT);
            signature[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        cr_assert_eq(aoticache_ed25519_verify(public_key, "another", 7, signature, NULL), AOTICACHE_CORRUPT);
    }
}

/* The order of the group is added to the second half: the equation still holds, but RFC 8032 requires refusing it. */
Test(trust, signature_with_a_scalar_beyond_the_order_is_refused)
{
    static const uint8_t order[32] = {0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7,
                                      0xa2, 0xde, 0xf9, 0xde, 0x14, 0,    0,    0,    0,    0,    0,
                                      0,    0,    0,    0,    0,    0,    0,    0,    0,    0x10};
    uint8_t seed[32] = {7}, public_key[32], signature[64];
    aoticache_error error = {.message = ""};
    if (aoticache_ed25519_public(seed, public_key, &error) == AOTICACHE_UNSUPPORTED)
        cr_skip_test("%s", error.message);
    cr_assert_eq(aoticache_ed25519_sign(seed, "m", 1, signature, NULL), AOTICACHE_OK);
    unsigned carry = 0;
    for (size_t i = 0; i < 32; i++) {
        carry += signature[32 + i] + order[i];
        signature[32 + i] = (uint8_t)carry;
        carry >>= 8;
    }
    cr_assert_eq(aoticache_ed25519_verify(public_key, "m", 1, signature, NULL), AOTICACHE_CORRUPT);
}

/* ---- golden ---- */

static aoticache_statement build_statement(const json_t *from)
{
    aoticache_statement statement = AOTICACHE_STATEMENT_INIT;
    const json_t *bit;
    size_t i;
    cr_assert_eq(aoticache_digest_from_hex(text_of(from, "key"), &statement.key), AOTICACHE_OK);
    cr_assert_eq(aoticache_digest_from_hex(text_of(from, "artifact"), &statement.artifact), AOTICACHE_OK);
    json_array_foreach(json_object_get(from, "requirements"), i, bit)
    {
        const json_int_t number = json_integer_value(bit);
        statement.requirements.words[number / 64] |= UINT64_C(1) << number % 64;
    }
    statement.guard = text_of(from, "guard");
    statement.producer = text_of(from, "producer");
    statement.created_ns = json_integer_value(json_object_get(from, "created_ns"));
    return statement;
}

Test(trust, golden_keys_are_met)
{
    json_t *file = load_vectors(), *vector;
    size_t i;
    json_array_foreach(json_object_get(file, "keys"), i, vector)
    {
        char text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES], fingerprint[AOTICACHE_FINGERPRINT_BYTES];
        aoticache_secret_key *key = parse_secret(text_of(vector, "secret"));
        aoticache_public_key parsed;
        aoticache_public_key_format(aoticache_secret_key_public(key), text);
        cr_assert_str_eq(text, text_of(vector, "public"));
        aoticache_public_key_fingerprint(aoticache_secret_key_public(key), fingerprint);
        cr_assert_str_eq(fingerprint, text_of(vector, "fingerprint"));
        cr_assert_eq(aoticache_public_key_parse(text, &parsed, NULL), AOTICACHE_OK);
        cr_assert_arr_eq(&parsed, aoticache_secret_key_public(key), sizeof parsed);
        aoticache_secret_key_free(key);
    }
    json_decref(file);
}

Test(trust, golden_statements_and_their_signatures_are_met)
{
    json_t *file = load_vectors(), *vector;
    size_t i;
    json_array_foreach(json_object_get(file, "statements"), i, vector)
    {
        const aoticache_statement statement = build_statement(json_object_get(vector, "statement"));
        const char *hex = text_of(vector, "bytes");
        uint8_t *wanted = malloc(strlen(hex)), *bytes = NULL;
        size_t size = 0, wanted_size = bytes_of(hex, wanted);
        cr_assert_eq(aoticache_statement_encode(&statement, &bytes, &size, NULL), AOTICACHE_OK);
        cr_assert_eq(size, wanted_size);
        cr_assert_arr_eq(bytes, wanted, size);
        for (size_t k = 0; k < 3; k++) {
            char text[AOTICACHE_SIGNATURE_TEXT_BYTES];
            aoticache_signature signature, parsed;
            aoticache_secret_key *key =
                parse_secret(text_of(json_array_get(json_object_get(file, "keys"), k), "secret"));
            cr_assert_eq(aoticache_statement_sign(&statement, key, &signature, NULL), AOTICACHE_OK);
            aoticache_signature_format(&signature, text);
            cr_assert_str_eq(text, json_string_value(json_array_get(json_object_get(vector, "signatures"), k)));
            cr_assert_eq(aoticache_signature_parse(text, &parsed, NULL), AOTICACHE_OK);
            cr_assert_eq(verify(&statement, aoticache_secret_key_public(key), &parsed, NULL), AOTICACHE_OK);
            aoticache_secret_key_free(key);
        }
        free(bytes);
        free(wanted);
    }
    json_decref(file);
}

/* Every member is signed: changing any of them makes the signature wrong. */
Test(trust, signature_is_of_every_member_of_the_statement)
{
    json_t *file = load_vectors();
    const aoticache_statement statement =
        build_statement(json_object_get(json_array_get(json_object_get(file, "statements"), 1), "statement"));
    aoticache_secret_key *key = parse_secret(text_of(json_array_get(json_object_get(file, "keys"), 0), "secret"));
    aoticache_statement changed[6];
    aoticache_signature signature;
    cr_assert_eq(aoticache_statement_sign(&statement, key, &signature, NULL), AOTICACHE_OK);
    for (size_t i = 0; i < 6; i++)
        changed[i] = statement;
    changed[0].key.bytes[31] ^= 1;
    changed[1].requirements.words[1] ^= 2;
    changed[2].guard = "s0 >= 3";
    changed[3].artifact.bytes[0] ^= 128;
    changed[4].producer = "other";
    changed[5].created_ns++;
    for (size_t i = 0; i < 6; i++)
        cr_assert_eq(verify(&changed[i], aoticache_secret_key_public(key), &signature, NULL), AOTICACHE_CORRUPT,
                     "member %zu", i);
    aoticache_secret_key_free(key);
    json_decref(file);
}

/* ---- text forms ---- */

#define KEY_BASE64 "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="

Test(trust, text_that_is_no_public_key_is_refused_with_the_reason)
{
    static const struct {
        const char *text, *reason;
    } wrong[] = {
        {"", "name:base64"},
        {"ann", "name:base64"},
        {":" KEY_BASE64, "the name of a key"},
        {"an n:" KEY_BASE64, "the name of a key"},
        {"a\nn:" KEY_BASE64, "the name of a key"},
        {"größe:" KEY_BASE64, "the name of a key"},
        {"SHA256:" KEY_BASE64, "looks like a fingerprint"},
        {"ann:", "32 bytes in base64"},
        {"ann:" KEY_BASE64 "\n", "32 bytes in base64"},
        {"ann:" KEY_BASE64 "=", "32 bytes in base64"},
        {"ann:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo", "32 bytes in base64"},
        {"ann:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURp=",
         "32 bytes in base64"}, /* a second form of the same bytes */
        {"ann:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo=", "32 bytes in base64"},
        {"ann: 1qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=", "32 bytes in base64"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        aoticache_public_key key = {.name = "untouched"};
        aoticache_error error = {.message = ""};
        cr_assert_eq(aoticache_public_key_parse(wrong[i].text, &key, &error), AOTICACHE_INVALID, "%s", wrong[i].text);
        cr_assert_not_null(strstr(error.message, wrong[i].reason), "%s: %s", wrong[i].text, error.message);
        cr_assert_str_eq(key.name, "untouched");
    }
    cr_assert_eq(aoticache_public_key_parse(NULL, &(aoticache_public_key){.name = ""}, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_public_key_parse("ann:" KEY_BASE64, NULL, NULL), AOTICACHE_INVALID);
}

Test(trust, longest_name_fits_and_one_more_is_refused)
{
    char text[400], again[AOTICACHE_PUBLIC_KEY_TEXT_BYTES];
    aoticache_public_key key;
    snprintf(text, sizeof text, "%0*d:" KEY_BASE64, AOTICACHE_SIGNER_NAME_BYTES - 1, 0);
    cr_assert_eq(aoticache_public_key_parse(text, &key, NULL), AOTICACHE_OK);
    aoticache_public_key_format(&key, again);
    cr_assert_str_eq(text, again);
    snprintf(text, sizeof text, "%0*d:" KEY_BASE64, AOTICACHE_SIGNER_NAME_BYTES, 0);
    cr_assert_eq(aoticache_public_key_parse(text, &key, NULL), AOTICACHE_INVALID);
}

Test(trust, list_of_signatures_keeps_its_order_and_its_limit)
{
    aoticache_signature_list list, again;
    aoticache_signature one = {.name = ""};
    aoticache_error error = {.message = ""};
    list.count = 0;
    for (int i = 0; i < AOTICACHE_MAX_SIGNATURES; i++) {
        snprintf(one.name, sizeof one.name, "signer-%d", i);
        one.bytes[0] = (uint8_t)i;
        cr_assert(aoticache_signature_list_add(&list, &one));
    }
    cr_assert(aoticache_signature_list_add(&list, &one)); /* the same name: replaced */
    cr_assert_eq(list.count, AOTICACHE_MAX_SIGNATURES);
    snprintf(one.name, sizeof one.name, "one-more");
    cr_assert_not(aoticache_signature_list_add(&list, &one));
    char *text = aoticache_signature_list_format(&list);
    cr_assert_eq(aoticache_signature_list_parse(text, &again, NULL), AOTICACHE_OK);
    cr_assert_eq(again.count, list.count);
    for (size_t i = 0; i < list.count; i++)
        cr_assert_str_eq(again.items[i].name, list.items[i].name);
    char *longer = malloc(2 * strlen(text) + 1);
    sprintf(longer, "%s%s", text, text);
    cr_assert_eq(aoticache_signature_list_parse(longer, &again, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "more than 16"), "%s", error.message);
    sprintf(longer, "%s\n", text); /* an empty line is not a signature */
    cr_assert_eq(aoticache_signature_list_parse(longer + strlen(text) - 1, &again, &error), AOTICACHE_INVALID);
    free(longer);
    free(text);
    cr_assert_eq(aoticache_signature_list_parse(NULL, &again, NULL), AOTICACHE_OK);
    cr_assert_eq(again.count, 0);
}

/* ---- secret keys ---- */

Test(trust, generated_key_is_written_for_the_user_alone_and_read_back)
{
    aoticache_secret_key *key = NULL, *again = NULL;
    aoticache_error error = {.message = ""};
    struct stat found;
    aoticache_status status = aoticache_secret_key_generate("ann@box-1", &key, &error);
    if (status == AOTICACHE_UNSUPPORTED)
        cr_skip_test("%s", error.message);
    cr_assert_eq(status, AOTICACHE_OK, "%s", error.message);
    umask(0);
    cr_assert_eq(aoticache_secret_key_write(key, path_of("secret"), &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(stat(path_of("secret"), &found), 0);
    cr_assert_eq(found.st_mode & 07777, 0600);
    cr_assert_eq(aoticache_secret_key_read(path_of("secret"), &again, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_arr_eq(again, key, sizeof *key);
    cr_assert_eq(aoticache_secret_key_write(key, path_of("secret"), &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "never replaced"), "%s", error.message);
    aoticache_secret_key_free(again);
    cr_assert_eq(aoticache_secret_key_generate("ann@box-1", &again, NULL), AOTICACHE_OK);
    cr_assert(memcmp(again->seed, key->seed, 32) != 0);
    aoticache_secret_key_free(again);
    aoticache_secret_key_free(key);
    aoticache_secret_key_free(NULL);
}

Test(trust, secret_key_that_others_can_read_is_refused)
{
    json_t *file = load_vectors();
    const char *secret = text_of(json_array_get(json_object_get(file, "keys"), 0), "secret");
    static const mode_t modes[] = {0640, 0604, 0620, 0660, 0666, 0610};
    aoticache_secret_key *key = NULL;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        aoticache_error error = {.message = ""};
        cr_assert_eq(aoticache_secret_key_read(write_file("open", secret, modes[i]), &key, &error), AOTICACHE_DENIED);
        cr_assert_not_null(strstr(error.message, "chmod 600"), "%s", error.message);
        cr_assert_null(strstr(error.message, "nWGx"));
    }
    if (geteuid() == 0) {
        aoticache_error error = {.message = ""};
        const char *path = write_file("other", secret, 0600);
        cr_assert_eq(chown(path, 12345, 12345), 0);
        cr_assert_eq(aoticache_secret_key_read(path, &key, &error), AOTICACHE_DENIED);
        cr_assert_not_null(strstr(error.message, "belongs to user 12345"), "%s", error.message);
    }
    cr_assert_null(key);
    json_decref(file);
}

Test(trust, text_that_is_no_secret_key_is_refused_and_not_repeated)
{
    static const char *const wrong[] = {
        "",
        "\n",
        "rfc8032-1",
        "rfc8032-1:nWGxne==",
        /* a public key; the halves of two keys; two lines; characters after it */
        "rfc8032-1:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=",
        "k:nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A9QBfD6EOJWpK3CqdNG368nJgszy7ElozAzVXxKvRmDA==",
        "k:nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2DXWpgBgrEKt9VL/tPJZAc6DuFy89qmIyWvAhpo9wdRGg==\nk:x\n",
        "k:nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2DXWpgBgrEKt9VL/tPJZAc6DuFy89qmIyWvAhpo9wdRGg== ",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        aoticache_secret_key *key = NULL;
        aoticache_error error = {.message = ""};
        aoticache_status status = aoticache_secret_key_read(write_file("wrong", wrong[i], 0600), &key, &error);
        if (status == AOTICACHE_UNSUPPORTED)
            continue;
        cr_assert_eq(status, AOTICACHE_INVALID, "%zu", i);
        cr_assert_null(strstr(error.message, "nWGx"), "%s", error.message);
        cr_assert_null(key);
    }
    aoticache_secret_key *key = NULL;
    cr_assert_eq(aoticache_secret_key_read(path_of("nowhere"), &key, NULL), AOTICACHE_NOT_FOUND);
    cr_assert_eq(aoticache_secret_key_read(work, &key, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_secret_key_generate("a b", &key, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_secret_key_generate(NULL, &key, NULL), AOTICACHE_INVALID);
}

/* ---- the files of a key directory ---- */

static aoticache_status append_word(void *user, const char *word, const char *place)
{
    (void)place;
    strcat(strcat(user, word), " ");
    return AOTICACHE_OK;
}

static const char *words_of(const char *name)
{
    static char words[4096];
    aoticache_error error = {.message = ""};
    words[0] = '\0';
    cr_assert_eq(aoticache_key_file_read(path_of("keys"), name, append_word, words, &error), AOTICACHE_OK, "%s",
                 error.message);
    return words;
}

static aoticache_public_key public_of(const char *name, uint8_t byte)
{
    aoticache_public_key key = {.name = ""};
    snprintf(key.name, sizeof key.name, "%s", name);
    memset(key.bytes, byte, sizeof key.bytes);
    return key;
}

Test(trust, trusting_and_revoking_change_one_line_each)
{
    char directory[200], ann_text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES], words[600];
    const aoticache_public_key ann = public_of("ann", 1), bob = public_of("bob", 2), other_ann = public_of("ann", 3);
    aoticache_error error = {.message = ""};
    snprintf(directory, sizeof directory, "%s", path_of("keys"));
    aoticache_public_key_format(&ann, ann_text);
    cr_assert_eq(aoticache_key_directory_trust(directory, &ann, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_key_directory_trust(directory, &ann, &error), AOTICACHE_OK);
    snprintf(words, sizeof words, "%s ", ann_text);
    cr_assert_str_eq(words_of(AOTICACHE_TRUSTED_KEYS_FILE), words);
    cr_assert_eq(aoticache_key_directory_trust(directory, &other_ann, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "distrust ann"), "%s", error.message);

    FILE *file = fopen(path_of("keys/" AOTICACHE_TRUSTED_KEYS_FILE), "a");
    fputs("# of the build machine\n", file);
    fclose(file);
    cr_assert_eq(aoticache_key_directory_trust(directory, &bob, &error), AOTICACHE_OK);
    cr_assert_eq(aoticache_key_directory_revoke(directory, ann_text, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_null(strstr(words_of(AOTICACHE_TRUSTED_KEYS_FILE), "ann"));
    cr_assert_not_null(strstr(words_of(AOTICACHE_TRUSTED_KEYS_FILE), "bob"));
    cr_assert_str_eq(words_of(AOTICACHE_REVOKED_KEYS_FILE), words);
    /* A new key of the same name does not make the old one valid again. */
    cr_assert_eq(aoticache_key_directory_trust(directory, &other_ann, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_str_eq(words_of(AOTICACHE_REVOKED_KEYS_FILE), words);
    cr_assert_eq(aoticache_key_directory_revoke(directory, "bob", &error), AOTICACHE_OK);
    cr_assert_null(strstr(words_of(AOTICACHE_TRUSTED_KEYS_FILE), "bob"));
    cr_assert_eq(aoticache_key_directory_revoke(directory, "b o b", &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_key_directory_revoke("", "bob", &error), AOTICACHE_INVALID);
    /* Trusting it again cancels the revocation. */
    cr_assert_eq(aoticache_key_directory_revoke(directory, "ann", &error), AOTICACHE_OK);
    cr_assert_eq(aoticache_key_directory_trust(directory, &ann, &error), AOTICACHE_OK);
    cr_assert_null(strstr(words_of(AOTICACHE_REVOKED_KEYS_FILE), "ann"));
    char *line = NULL;
    size_t size = 0;
    bool has_comment = false;
    file = fopen(path_of("keys/" AOTICACHE_TRUSTED_KEYS_FILE), "r");
    while (getline(&line, &size, file) > 0)
        has_comment |= strcmp(line, "# of the build machine\n") == 0;
    fclose(file);
    free(line);
    cr_assert(has_comment);
}

/*
 * Checks that every list of keys returns the name unchanged: the files of the directory, the configuration, the text
 * forms.
 */
static void expect_name_comes_back(const char *name)
{
    char directory[200], text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES], words[400], line[400];
    const aoticache_public_key key = public_of(name, 7);
    const aoticache_signature signature = {.bytes = {7}};
    aoticache_public_key parsed;
    aoticache_signature_list list = {.count = 1, .items = {signature}}, again;
    aoticache_revocation revocation;
    aoticache_config *config = NULL;
    aoticache_error error = {.message = ""};
    snprintf(directory, sizeof directory, "%s", path_of("keys"));
    aoticache_public_key_format(&key, text);
    snprintf(words, sizeof words, "%s ", text);
    cr_assert_eq(aoticache_public_key_parse(text, &parsed, &error), AOTICACHE_OK, "%s: %s", name, error.message);
    cr_expect_str_eq(parsed.name, name);
    memcpy(list.items[0].name, key.name, sizeof key.name);
    char *lines = aoticache_signature_list_format(&list);
    cr_expect_eq(aoticache_signature_list_parse(lines, &again, NULL), AOTICACHE_OK, "%s", name);
    cr_expect_str_eq(again.items[0].name, name);
    free(lines);

    cr_assert_eq(aoticache_key_directory_trust(directory, &key, &error), AOTICACHE_OK, "%s: %s", name, error.message);
    cr_expect_str_eq(words_of(AOTICACHE_TRUSTED_KEYS_FILE), words);
    cr_assert_eq(aoticache_key_directory_revoke(directory, text, &error), AOTICACHE_OK, "%s: %s", name, error.message);
    cr_expect_str_eq(words_of(AOTICACHE_TRUSTED_KEYS_FILE), "", "%s", name);
    cr_expect_str_eq(words_of(AOTICACHE_REVOKED_KEYS_FILE), words);
    cr_assert_eq(aoticache_key_directory_trust(directory, &key, &error), AOTICACHE_OK, "%s: %s", name, error.message);
    cr_expect_str_eq(words_of(AOTICACHE_REVOKED_KEYS_FILE), "", "%s", name);
    cr_assert_eq(aoticache_key_directory_revoke(directory, name, &error), AOTICACHE_OK, "%s: %s", name, error.message);
    snprintf(line, sizeof line, "%s ", name);
    cr_expect_str_eq(words_of(AOTICACHE_REVOKED_KEYS_FILE), line);
    cr_assert_eq(aoticache_revocation_parse(name, &revocation, NULL), AOTICACHE_OK);
    cr_expect(aoticache_revocation_names_key(&revocation, &key), "%s", name);

    snprintf(line, sizeof line, "trusted_keys = %s\nrevoked_keys = %s\n", text, name);
    cr_assert_eq(
        aoticache_config_read(write_file("config", line, 0600), (aoticache_logger){.log = NULL}, &config, &error),
        AOTICACHE_OK, "%s", error.message);
    cr_expect_str_eq(aoticache_config_get(config, AOTICACHE_CONFIG_trusted_keys).text, text);
    cr_expect_str_eq(aoticache_config_get(config, AOTICACHE_CONFIG_revoked_keys).text, name);
    aoticache_config_free(config);
    cr_assert_eq(unlink(path_of("keys/" AOTICACHE_REVOKED_KEYS_FILE)), 0);
    cr_assert_eq(unlink(path_of("keys/" AOTICACHE_TRUSTED_KEYS_FILE)), 0);
}

/* Checks that a name which cannot be written and read again is refused everywhere. */
static void expect_name_is_refused(const char *name)
{
    char text[300];
    const aoticache_public_key key = public_of(name, 7);
    aoticache_secret_key *secret = NULL;
    aoticache_public_key parsed;
    snprintf(text, sizeof text, "%s:" KEY_BASE64, name);
    cr_expect_eq(aoticache_public_key_parse(text, &parsed, NULL), AOTICACHE_INVALID, "'%s'", name);
    cr_expect_eq(aoticache_secret_key_generate(name, &secret, NULL), AOTICACHE_INVALID, "'%s'", name);
    cr_expect_eq(aoticache_key_directory_trust(path_of("keys"), &key, NULL), AOTICACHE_INVALID, "'%s'", name);
    cr_expect_eq(aoticache_key_directory_revoke(path_of("keys"), name, NULL), AOTICACHE_INVALID, "'%s'", name);
}

Test(trust, name_with_any_byte_comes_back_or_is_refused_everywhere)
{
    for (int byte = 1; byte < 256; byte++) {
        const char names[][4] = {{(char)byte, 'b', 'c'}, {'a', (char)byte, 'c'}, {'a', 'b', (char)byte}, {(char)byte}};
        for (size_t i = 0; i < 4; i++) {
            const bool is_first = i == 0 || i == 3;
            const bool is_name = byte > ' ' && byte <= '~' && byte != ':' && !(byte == '#' && is_first);
            if (is_name)
                expect_name_comes_back(names[i]);
            else
                expect_name_is_refused(names[i]);
        }
    }
}

Test(trust, line_of_a_list_of_keys_is_read_whole)
{
    cr_assert_eq(mkdir(path_of("keys"), 0700), 0);
    write_file("keys/" AOTICACHE_REVOKED_KEYS_FILE, "# stolen\n  x#y \t# stolen too\r\n#all\n\t\nbob#\nann bob\nlast",
               0600);
    /* No parser accepts the two words of one line, so the second one is not silently ignored. */
    cr_assert_str_eq(words_of(AOTICACHE_REVOKED_KEYS_FILE), "x#y bob# ann bob last ");
    cr_assert_eq(aoticache_revocation_parse("ann bob", &(aoticache_revocation){.kind = 0}, NULL), AOTICACHE_INVALID);
}

Test(trust, directory_of_keys_that_others_can_write_is_refused)
{
    const aoticache_public_key ann = public_of("ann", 1);
    char directory[200];
    aoticache_error error = {.message = ""};
    snprintf(directory, sizeof directory, "%s", path_of("keys"));
    cr_assert_eq(mkdir(directory, 0700), 0);
    cr_assert_eq(chmod(directory, 0770), 0);
    cr_assert_eq(aoticache_key_directory_trust(directory, &ann, &error), AOTICACHE_DENIED);
    cr_assert_not_null(strstr(error.message, "chmod go-w"), "%s", error.message);
    cr_assert_eq(chmod(directory, 0700), 0);
    cr_assert_eq(aoticache_key_directory_trust(directory, &ann, &error), AOTICACHE_OK);
    cr_assert_eq(chmod(path_of("keys/" AOTICACHE_TRUSTED_KEYS_FILE), 0622), 0);
    cr_assert_eq(aoticache_key_file_read(directory, AOTICACHE_TRUSTED_KEYS_FILE, append_word, NULL, &error),
                 AOTICACHE_DENIED);
}

Test(trust, word_that_revokes_is_known_by_its_form)
{
    static const struct {
        const char *text;
        aoticache_revocation_kind kind;
    } words[] = {
        {"ann:" KEY_BASE64, AOTICACHE_REVOKES_KEY},
        {"SHA256:If4x36FUomFia/hUBG/SJxt77UtqvkWqWId+9H+XIbk", AOTICACHE_REVOKES_FINGERPRINT},
        {"ann", AOTICACHE_REVOKES_NAME},
        {"b08a4660ef2dd158c49a61e1012ac7a7744b90cbfd9d55877025fa505170fb83", AOTICACHE_REVOKES_ENTRY},
    };
    aoticache_public_key same, other = public_of("ann", 9);
    cr_assert_eq(aoticache_public_key_parse("other-name:" KEY_BASE64, &same, NULL), AOTICACHE_OK);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        aoticache_revocation revocation;
        cr_assert_eq(aoticache_revocation_parse(words[i].text, &revocation, NULL), AOTICACHE_OK, "%s", words[i].text);
        cr_assert_eq(revocation.kind, words[i].kind);
        /* A key is revoked under any name; a name for any key. */
        cr_assert_eq(aoticache_revocation_names_key(&revocation, &same), i < 2, "%s", words[i].text);
        cr_assert_eq(aoticache_revocation_names_key(&revocation, &other), i == 2, "%s", words[i].text);
    }
    static const char *const wrong[] = {"", "SHA256:short", "ann:xyz", "a b"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        cr_assert_eq(aoticache_revocation_parse(wrong[i], &(aoticache_revocation){.kind = 0}, NULL), AOTICACHE_INVALID);
}
