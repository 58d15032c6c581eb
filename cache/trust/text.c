/*
 * cache/trust/text: the text forms of keys, signatures and fingerprints, and base64 (RFC 4648).
 *
 * The parsed texts are untrusted. Every value has exactly one text: base64 with padding, and with zeros in the unused bits
 * of the last character. So two different texts are two different signatures.
 */
#include "base/arguments.h"
#include "base/digest.h"
#include "base/names.h"
#include "cache/trust/trust_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FINGERPRINT_DIGITS 43

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* ---- base64 ---- */

void aoticache_base64_encode(const uint8_t *bytes, size_t size, char *ret_text)
{
    for (size_t i = 0; i < size; i += 3) {
        const uint32_t group = (uint32_t)bytes[i] << 16 | (i + 1 < size ? (uint32_t)bytes[i + 1] << 8 : 0) |
                               (i + 2 < size ? (uint32_t)bytes[i + 2] : 0);
        *ret_text++ = alphabet[group >> 18];
        *ret_text++ = alphabet[group >> 12 & 63];
        *ret_text++ = i + 1 < size ? alphabet[group >> 6 & 63] : '=';
        *ret_text++ = i + 2 < size ? alphabet[group & 63] : '=';
    }
    *ret_text = '\0';
}

bool aoticache_base64_decode(const char *text, size_t size, uint8_t *ret_bytes)
{
    const size_t length = 4 * ((size + 2) / 3), digits = (size * 8 + 5) / 6;
    uint32_t bits = 0;
    unsigned have = 0;
    size_t done = 0;
    if (strlen(text) != length || strspn(text + digits, "=") != length - digits)
        return false;
    for (size_t i = 0; i < digits; i++) {
        const char *found = memchr(alphabet, text[i], sizeof alphabet - 1);
        if (found == NULL)
            return false;
        bits = bits << 6 | (uint32_t)(found - alphabet);
        have += 6;
        if (have >= 8) {
            have -= 8;
            ret_bytes[done++] = (uint8_t)(bits >> have);
        }
    }
    return (bits & ((1u << have) - 1)) == 0;
}

/* ---- names ---- */

/* Checks a name. A name is the beginning of a word in a list of keys: it ends at the ':', a space would end the word, and a
 * '#' at its beginning would begin a comment. */
static bool is_name(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (name[i] <= ' ' || name[i] > '~' || name[i] == ':')
            return false;
    return length > 0 && length < AOTICACHE_SIGNER_NAME_BYTES && name[0] != '#';
}

aoticache_status aoticache_signer_name_check(const char *name, aoticache_error *ret_error)
{
    if (name == NULL || !is_name(name, strlen(name)))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "the name of a key must have 1 to %d printable ASCII characters without ':' "
                                   "and spaces, and must not begin with '#'",
                                   AOTICACHE_SIGNER_NAME_BYTES - 1);
    aoticache_digest digest;
    if (strcmp(name, "SHA256") == 0 || (strlen(name) == 64 && aoticache_digest_from_hex(name, &digest) == AOTICACHE_OK))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "'%s' cannot be the name of a key: it looks like a fingerprint or a digest", name);
    return AOTICACHE_OK;
}

/* ---- name:base64 ---- */

aoticache_status aoticache_named_bytes_parse(const char *what, const char *text, size_t size,
                                             char ret_name[AOTICACHE_SIGNER_NAME_BYTES], uint8_t *ret_bytes,
                                             aoticache_error *ret_error)
{
    const char *colon = text != NULL ? strchr(text, ':') : NULL;
    if (colon == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "not a %s: expected name:base64", what);
    char name[AOTICACHE_SIGNER_NAME_BYTES] = "";
    const size_t length = (size_t)(colon - text);
    if (length < sizeof name)
        memcpy(name, text, length);
    aoticache_status status = aoticache_signer_name_check(length < sizeof name ? name : NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (!aoticache_base64_decode(colon + 1, size, ret_bytes))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s '%s': expected %zu bytes in base64, with padding, after the ':'", what, name,
                                   size);
    memcpy(ret_name, name, sizeof name);
    return AOTICACHE_OK;
}

aoticache_status aoticache_public_key_parse(const char *text, aoticache_public_key *ret_key, aoticache_error *ret_error)
{
    aoticache_public_key key = {.name = ""};
    if (ret_key == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, ret_key);
    aoticache_status status =
        aoticache_named_bytes_parse("public key", text, sizeof key.bytes, key.name, key.bytes, ret_error);
    if (status == AOTICACHE_OK)
        *ret_key = key;
    return status;
}

aoticache_status aoticache_signature_parse(const char *text, aoticache_signature *ret_signature,
                                           aoticache_error *ret_error)
{
    aoticache_signature signature = {.name = ""};
    if (ret_signature == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, ret_signature);
    aoticache_status status = aoticache_named_bytes_parse("signature", text, sizeof signature.bytes, signature.name,
                                                          signature.bytes, ret_error);
    if (status == AOTICACHE_OK)
        *ret_signature = signature;
    return status;
}

void aoticache_public_key_format(const aoticache_public_key *key, char ret_text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES])
{
    const int length =
        snprintf(ret_text, AOTICACHE_SIGNER_NAME_BYTES + 1, "%.*s:", AOTICACHE_SIGNER_NAME_BYTES - 1, key->name);
    aoticache_base64_encode(key->bytes, sizeof key->bytes, ret_text + length);
}

void aoticache_signature_format(const aoticache_signature *signature, char ret_text[AOTICACHE_SIGNATURE_TEXT_BYTES])
{
    const int length =
        snprintf(ret_text, AOTICACHE_SIGNER_NAME_BYTES + 1, "%.*s:", AOTICACHE_SIGNER_NAME_BYTES - 1, signature->name);
    aoticache_base64_encode(signature->bytes, sizeof signature->bytes, ret_text + length);
}

void aoticache_public_key_fingerprint(const aoticache_public_key *key, char ret_text[AOTICACHE_FINGERPRINT_BYTES])
{
    aoticache_digest digest = {.bytes = {0}};
    char text[FINGERPRINT_DIGITS + 2]; /* including the '=' that a fingerprint omits */
    aoticache_digest_of(key->bytes, sizeof key->bytes, &digest);
    aoticache_base64_encode(digest.bytes, sizeof digest.bytes, text);
    memcpy(ret_text, "SHA256:", 7);
    memcpy(ret_text + 7, text, FINGERPRINT_DIGITS);
    ret_text[7 + FINGERPRINT_DIGITS] = '\0';
}

/* ---- the signatures of an entry ---- */

aoticache_status aoticache_signature_list_parse(const char *text, aoticache_signature_list *ret_list,
                                                aoticache_error *ret_error)
{
    aoticache_signature_list list = {.count = 0};
    for (size_t line = 1; text != NULL && *text != '\0'; line++) {
        char one[AOTICACHE_SIGNATURE_TEXT_BYTES];
        aoticache_error detail = {.message = ""};
        const size_t length = strcspn(text, "\n");
        if (list.count == AOTICACHE_MAX_SIGNATURES)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "more than %d signatures",
                                       AOTICACHE_MAX_SIGNATURES);
        if (length >= sizeof one)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "line %zu is too long for a signature", line);
        memcpy(one, text, length);
        one[length] = '\0';
        if (aoticache_signature_parse(one, &list.items[list.count], &detail) != AOTICACHE_OK)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "line %zu: %s", line, detail.message);
        list.count++;
        text += length + (text[length] == '\n');
    }
    *ret_list = list;
    return AOTICACHE_OK;
}

char *aoticache_signature_list_format(const aoticache_signature_list *list)
{
    char *text = malloc(list->count * AOTICACHE_SIGNATURE_TEXT_BYTES + 1);
    size_t used = 0;
    if (text == NULL)
        return NULL;
    text[0] = '\0';
    for (size_t i = 0; i < list->count; i++) {
        aoticache_signature_format(&list->items[i], text + used);
        used += strlen(text + used);
        memcpy(text + used++, "\n", 2);
    }
    return text;
}

bool aoticache_signature_list_add(aoticache_signature_list *list, const aoticache_signature *signature)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i].name, signature->name) == 0) {
            list->items[i] = *signature;
            return true;
        }
    }
    if (list->count == AOTICACHE_MAX_SIGNATURES)
        return false;
    list->items[list->count++] = *signature;
    return true;
}
