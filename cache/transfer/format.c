/*
 * cache/transfer/format: names of members, and the JSON texts of the first and last member and of pins and tags.
 */
#include "cache/transfer/transfer_internal.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/names.h"
#include "base/text/json.h"

#define FORMAT 1
#define KIND "aoticache archive"
#define END_KIND "aoticache archive end"
#define OBJECTS "objects/"
#define MARKS "marks/"
#define SIGNATURES "signatures/"

/* ---- names ---- */

static bool is_lower_hex(const char *text, size_t length)
{
    return strspn(text, "0123456789abcdef") >= length;
}

static bool read_object_path(const char *path, aoticache_digest *ret_digest)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    const char *rest = path + strlen(OBJECTS);
    if (strlen(path) != strlen(OBJECTS) + 2 + 1 + 62 || strncmp(path, OBJECTS, strlen(OBJECTS)) != 0 ||
        !is_lower_hex(rest, 2) || rest[2] != '/' || !is_lower_hex(rest + 3, 62))
        return false;
    snprintf(hex, sizeof hex, "%.2s%.62s", rest, rest + 3);
    return aoticache_digest_from_hex(hex, ret_digest) == AOTICACHE_OK;
}

/* Parses a directory's name followed by 64 digits. */
static bool read_digest_path(const char *directory, const char *path, aoticache_digest *ret_key)
{
    if (strncmp(path, directory, strlen(directory)) != 0)
        return false;
    const char *rest = path + strlen(directory);
    return strlen(rest) == 64 && is_lower_hex(rest, 64) && aoticache_digest_from_hex(rest, ret_key) == AOTICACHE_OK;
}

aoticache_transfer_kind aoticache_transfer_kind_of(const char *path, aoticache_digest *ret_digest)
{
    if (path == NULL)
        return AOTICACHE_TRANSFER_IS_FOREIGN;
    if (read_object_path(path, ret_digest))
        return AOTICACHE_TRANSFER_IS_OBJECT;
    if (read_digest_path(MARKS, path, ret_digest))
        return AOTICACHE_TRANSFER_IS_PIN;
    if (read_digest_path(SIGNATURES, path, ret_digest))
        return AOTICACHE_TRANSFER_IS_SIGNATURES;
    if (strcmp(path, AOTICACHE_TRANSFER_HEAD) == 0)
        return AOTICACHE_TRANSFER_IS_HEAD;
    return strcmp(path, AOTICACHE_TRANSFER_END) == 0 ? AOTICACHE_TRANSFER_IS_END : AOTICACHE_TRANSFER_IS_FOREIGN;
}

void aoticache_transfer_pin_path(const aoticache_key *key, char ret_path[AOTICACHE_TRANSFER_PATH_BYTES])
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(key, hex);
    snprintf(ret_path, AOTICACHE_TRANSFER_PATH_BYTES, MARKS "%s", hex);
}

void aoticache_transfer_signatures_path(const aoticache_digest *artifact, char ret_path[AOTICACHE_TRANSFER_PATH_BYTES])
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(artifact, hex);
    snprintf(ret_path, AOTICACHE_TRANSFER_PATH_BYTES, SIGNATURES "%s", hex);
}

/* ---- writing ---- */

/* Takes ownership of `object`; NULL: memory is short. The text is sorted and ends with a newline, as manifests are. */
static aoticache_status finish(json_t *object, char **ret_text, aoticache_error *ret_error)
{
    char *text = object != NULL ? aoticache_json_write(object, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    size_t size = text != NULL ? strlen(text) : 0;
    char *grown = text != NULL ? realloc(text, size + 2) : NULL;
    json_decref(object);
    if (grown == NULL) {
        free(text);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to write an archive");
    }
    memcpy(grown + size, "\n", 2);
    *ret_text = grown;
    return AOTICACHE_OK;
}

static json_t *format_counts(const char *kind, const aoticache_transfer_counts *counts)
{
    return json_pack("{s:s, s:i, s:I, s:I, s:I}", "kind", kind, "format", FORMAT, "entries",
                     (json_int_t)counts->entries, "objects", (json_int_t)counts->objects, "bytes",
                     (json_int_t)counts->bytes);
}

static bool add_keys(json_t *object, const aoticache_transfer_keys *keys)
{
    json_t *array = json_array();
    bool is_good = array != NULL;
    for (size_t i = 0; is_good && i < keys->count; i++) {
        char text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES];
        aoticache_public_key_format(&keys->items[i], text);
        is_good = json_array_append_new(array, json_string(text)) == 0;
    }
    if (!is_good || keys->count == 0) {
        json_decref(array);
        return is_good;
    }
    return json_object_set_new(object, "keys", array) == 0;
}

aoticache_status aoticache_transfer_format_head(const aoticache_transfer_counts *counts,
                                                const aoticache_transfer_keys *keys, char **ret_text,
                                                aoticache_error *ret_error)
{
    json_t *object = format_counts(KIND, counts);
    if (object != NULL &&
        (json_object_set_new(object, "library", json_string(AOTICACHE_VERSION)) != 0 || !add_keys(object, keys))) {
        json_decref(object);
        object = NULL;
    }
    return finish(object, ret_text, ret_error);
}

aoticache_status aoticache_transfer_format_end(const aoticache_transfer_counts *counts, char **ret_text,
                                               aoticache_error *ret_error)
{
    return finish(format_counts(END_KIND, counts), ret_text, ret_error);
}

aoticache_status aoticache_transfer_format_pin(const aoticache_pins *pins, char **ret_text, aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    json_t *tags = json_array();
    aoticache_digest_to_hex(&pins->key, hex);
    for (size_t i = 0; tags != NULL && i < pins->tag_count; i++) {
        if (json_array_append_new(tags, json_string(pins->tags[i])) != 0) {
            json_decref(tags);
            tags = NULL;
        }
    }
    return finish(json_pack("{s:s, s:b, s:o}", "key", hex, "pinned", pins->is_pinned ? 1 : 0, "tags", tags), ret_text,
                  ret_error);
}

/* ---- reading ---- */

static aoticache_status load(const char *what, const char *text, size_t size, json_t **ret_object,
                             aoticache_error *ret_error)
{
    json_error_t error;
    json_t *object = aoticache_json_parse(text, size, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(object)) {
        *ret_object = object;
        return AOTICACHE_OK;
    }
    json_decref(object);
    if (object == NULL && aoticache_json_is_out_of_memory(&error))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to read an archive");
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s is not a JSON object", what);
}

static bool read_count(const json_t *object, const char *name, uint64_t *ret_count)
{
    const json_t *value = json_object_get(object, name);
    *ret_count = json_is_integer(value) ? (uint64_t)json_integer_value(value) : 0;
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

static aoticache_status read_counts(const char *what, const char *kind, const json_t *object,
                                    aoticache_transfer_counts *ret_counts, aoticache_error *ret_error)
{
    const char *found = json_string_value(json_object_get(object, "kind"));
    const json_t *format = json_object_get(object, "format");
    aoticache_transfer_counts counts;
    if (found == NULL || strcmp(found, kind) != 0 || !json_is_integer(format) || json_integer_value(format) < 1)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s does not belong to a kernel archive", what);
    if (json_integer_value(format) > FORMAT)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "the archive has format %lld; this library knows %d; use a newer one",
                                   (long long)json_integer_value(format), FORMAT);
    if (!read_count(object, "entries", &counts.entries) || !read_count(object, "objects", &counts.objects) ||
        !read_count(object, "bytes", &counts.bytes))
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s lacks a count", what);
    *ret_counts = counts;
    return AOTICACHE_OK;
}

/* Reads the keys. Invalid keys are skipped: a later version may have others. */
static void read_keys(const json_t *object, aoticache_transfer_keys *ret_keys)
{
    const json_t *list = json_object_get(object, "keys");
    ret_keys->count = 0;
    for (size_t i = 0; i < json_array_size(list) && ret_keys->count < AOTICACHE_MAX_SIGNATURES; i++)
        if (aoticache_public_key_parse(json_string_value(json_array_get(list, i)), &ret_keys->items[ret_keys->count],
                                       NULL) == AOTICACHE_OK)
            ret_keys->count++;
}

/* Parses the counts. ret_keys: may be NULL. */
static aoticache_status parse_counts(const char *what, const char *kind, const char *text, size_t size,
                                     aoticache_transfer_counts *ret_counts, aoticache_transfer_keys *ret_keys,
                                     aoticache_error *ret_error)
{
    json_t *object = NULL;
    aoticache_status status = load(what, text, size, &object, ret_error);
    if (status == AOTICACHE_OK)
        status = read_counts(what, kind, object, ret_counts, ret_error);
    if (status == AOTICACHE_OK && ret_keys != NULL)
        read_keys(object, ret_keys);
    json_decref(object);
    return status;
}

aoticache_status aoticache_transfer_parse_head(const char *text, size_t size, aoticache_transfer_counts *ret_counts,
                                               aoticache_transfer_keys *ret_keys, aoticache_error *ret_error)
{
    return parse_counts(AOTICACHE_TRANSFER_HEAD, KIND, text, size, ret_counts, ret_keys, ret_error);
}

aoticache_status aoticache_transfer_parse_end(const char *text, size_t size, aoticache_transfer_counts *ret_counts,
                                              aoticache_error *ret_error)
{
    return parse_counts(AOTICACHE_TRANSFER_END, END_KIND, text, size, ret_counts, NULL, ret_error);
}

/* Returns false if it is not the pins and tags of this key. tags: space for AOTICACHE_MAX_TAGS, borrowed from `object`. */
static bool read_pin(const json_t *object, const aoticache_key *key, const char **tags, aoticache_pins *ret_pin)
{
    const char *hex = json_string_value(json_object_get(object, "key"));
    const json_t *pinned = json_object_get(object, "pinned"), *list = json_object_get(object, "tags"), *tag;
    aoticache_digest named;
    size_t i;
    if (hex == NULL || aoticache_digest_from_hex(hex, &named) != AOTICACHE_OK || !aoticache_digest_equal(&named, key) ||
        !json_is_boolean(pinned) || !json_is_array(list) || json_array_size(list) > AOTICACHE_MAX_TAGS)
        return false;
    json_array_foreach(list, i, tag)
    {
        if (!json_is_string(tag))
            return false;
        tags[i] = json_string_value(tag);
    }
    *ret_pin = (aoticache_pins){
        .key = *key, .is_pinned = json_is_true(pinned), .tags = tags, .tag_count = json_array_size(list)};
    return true;
}

aoticache_status aoticache_transfer_parse_pin(const char *text, size_t size, const aoticache_key *key,
                                              aoticache_pins_fn callback, void *user, aoticache_error *ret_error)
{
    const char *tags[AOTICACHE_MAX_TAGS];
    aoticache_pins pin;
    json_t *object = NULL;
    aoticache_status status = load("a file of pins and tags", text, size, &object, ret_error);
    if (status == AOTICACHE_OK && !read_pin(object, key, tags, &pin))
        status = aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "it is not the text of pins and tags of this key");
    if (status == AOTICACHE_OK)
        callback(user, &pin);
    json_decref(object);
    return status;
}
