/*
 * tests/fuzz/fuzz_trust: no text makes the parsers of keys, signatures, lists of them and words that revoke crash or read
 * outside of their memory. A refusal is one line, without any bytes of a secret key. A text that parses prints
 * unchanged: every value has one text.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/trust/trust_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_refusal(aoticache_status status, const aoticache_error *error)
{
    require(status == AOTICACHE_INVALID);
    require(error->message[0] != '\0' && strlen(error->message) < sizeof error->message);
}

static void parse_public_key(const char *text)
{
    char again[AOTICACHE_PUBLIC_KEY_TEXT_BYTES], fingerprint[AOTICACHE_FINGERPRINT_BYTES];
    aoticache_public_key key;
    aoticache_revocation revocation;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_public_key_parse(text, &key, &error);
    if (status != AOTICACHE_OK) {
        check_refusal(status, &error);
        return;
    }
    aoticache_public_key_format(&key, again);
    require(strcmp(again, text) == 0);
    aoticache_public_key_fingerprint(&key, fingerprint);
    require(aoticache_revocation_parse(fingerprint, &revocation, NULL) == AOTICACHE_OK);
    require(aoticache_revocation_names_key(&revocation, &key));
}

static void parse_revocation(const char *text)
{
    aoticache_revocation revocation;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_revocation_parse(text, &revocation, &error);
    if (status != AOTICACHE_OK)
        check_refusal(status, &error);
}

static void parse_signatures(const char *text)
{
    aoticache_signature_list list, again;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_signature_list_parse(text, &list, &error);
    if (status != AOTICACHE_OK) {
        check_refusal(status, &error);
        return;
    }
    require(list.count <= AOTICACHE_MAX_SIGNATURES);
    char *printed = aoticache_signature_list_format(&list);
    require(printed != NULL && strncmp(printed, text, strlen(text)) == 0); /* except for the last line end */
    require(aoticache_signature_list_parse(printed, &again, NULL) == AOTICACHE_OK && again.count == list.count);
    free(printed);
}

static void parse_secret_key(const char *text)
{
    aoticache_secret_key *key = NULL;
    aoticache_error error = {.message = ""};
    const char *colon = strchr(text, ':');
    aoticache_status status = aoticache_secret_key_parse(text, "a file", &key, &error);
    if (status == AOTICACHE_INVALID && colon != NULL && strlen(colon) > 16) {
        char part[17]; /* no message contains a word this long, except the name */
        memcpy(part, colon + 1, 16);
        part[16] = '\0';
        require(strpbrk(part, " \n") != NULL || strstr(text, part) < colon || strstr(error.message, part) == NULL);
    }
    require(status == AOTICACHE_OK || status == AOTICACHE_INVALID || status == AOTICACHE_UNSUPPORTED);
    require((status == AOTICACHE_OK) == (key != NULL));
    aoticache_secret_key_free(key);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, bytes, size);
    text[size] = '\0';
    parse_public_key(text);
    parse_revocation(text);
    parse_signatures(text);
    parse_secret_key(text);
    free(text);
    return 0;
}
