/*
 * tools/aoticache/entries/entries: entries of the cache for the tool: copies, search by a prefix, JSON, readable
 * requirements, decoded manifests.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX_MINIMUM 4
#define PREFIXES_LISTED 10

/* ---- copies: callbacks must not use the cache, and sorting needs all ---- */

static const char *copy_text(const char *text)
{
    return aoticache_cli_text("%s", text != NULL ? text : "");
}

void aoticache_entries_append(aoticache_entry_list *list, const aoticache_entry *entry)
{
    list->entries = aoticache_cli_grow(list->entries, list->count, sizeof *entry);
    aoticache_entry *copy = &list->entries[list->count++];
    *copy = *entry;
    copy->op = copy_text(entry->op);
    copy->device = copy_text(entry->device);
    copy->description = copy_text(entry->description);
    copy->producer = copy_text(entry->producer);
    copy->guard = copy_text(entry->guard);
}

static bool append_entry(void *user, const aoticache_entry *entry)
{
    aoticache_entries_append(user, entry);
    return true;
}

aoticache_status aoticache_entries_read(aoticache_cache *cache, const char *op, const char *prefix,
                                        aoticache_entry_list *ret_list, aoticache_error *ret_error)
{
    aoticache_entry_list list = {0};
    aoticache_status status = aoticache_cache_list(cache, op, prefix, append_entry, &list, ret_error);
    if (status == AOTICACHE_OK)
        *ret_list = list;
    else
        aoticache_entries_free(&list);
    return status;
}

void aoticache_entries_free(aoticache_entry_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free((void *)(uintptr_t)list->entries[i].op);
        free((void *)(uintptr_t)list->entries[i].device);
        free((void *)(uintptr_t)list->entries[i].description);
        free((void *)(uintptr_t)list->entries[i].producer);
        free((void *)(uintptr_t)list->entries[i].guard);
    }
    free(list->entries);
    *list = (aoticache_entry_list){0};
}

/* ---- finding ---- */

static bool is_prefix(const char *text)
{
    size_t length = strlen(text);
    return length >= PREFIX_MINIMUM && length < AOTICACHE_DIGEST_HEX_BYTES &&
           strspn(text, "0123456789abcdefABCDEF") == length;
}

int aoticache_keys_refuse_ambiguous(const aoticache_cli *cli, const char *prefix, const aoticache_key *const *keys,
                                    const char *const *descriptions, size_t count)
{
    char *list = aoticache_cli_text("%s", "");
    for (size_t i = 0; i < count; i++) {
        char hex[AOTICACHE_DIGEST_HEX_BYTES];
        aoticache_digest_to_hex(keys[i], hex);
        cleanup_free char *description =
            aoticache_cli_escape(descriptions[i] != NULL ? descriptions[i] : "(nothing stored)");
        char *longer = aoticache_cli_text("%s\n  %.16s %s", list, hex, description);
        free(list);
        list = longer;
    }
    aoticache_cli_error(cli, "prefix %s is ambiguous; it begins:%s", prefix, list);
    free(list);
    return AOTICACHE_CLI_EXIT_USAGE;
}

int aoticache_keys_say_operator(const aoticache_cli *cli, const char *word)
{
    return aoticache_cli_usage_error(cli, "'%s' is an operator, not a key: 'aoticache ls %s' lists its keys", word,
                                     word);
}

static int refuse_ambiguous(const aoticache_cli *cli, const char *prefix, const aoticache_entry_list *list)
{
    const aoticache_key *keys[PREFIXES_LISTED];
    const char *descriptions[PREFIXES_LISTED];
    size_t count = 0;
    for (size_t i = 0; i < list->count && count < PREFIXES_LISTED; i++) {
        if (count > 0 && aoticache_digest_equal(keys[count - 1], &list->entries[i].key))
            continue;
        keys[count] = &list->entries[i].key;
        descriptions[count++] = list->entries[i].description;
    }
    return aoticache_keys_refuse_ambiguous(cli, prefix, keys, descriptions, count);
}

int aoticache_entries_find(const aoticache_cli *cli, aoticache_cache *cache, const char *prefix,
                           aoticache_entry_list *ret_list)
{
    if (!is_prefix(prefix) && strstr(prefix, "::") != NULL)
        return aoticache_keys_say_operator(cli, prefix);
    if (!is_prefix(prefix))
        return aoticache_cli_usage_error(
            cli, "'%s' is not a key: %d to 64 hexadecimal digits, as 'aoticache ls' prints", prefix, PREFIX_MINIMUM);
    cleanup_free char *lower = aoticache_cli_text("%s", prefix);
    for (char *c = lower; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    aoticache_error error = {.message = ""};
    aoticache_entry_list list = {0};
    aoticache_status status = aoticache_entries_read(cache, NULL, lower, &list, &error);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        return aoticache_cli_fail(cli, status, &error);
    if (list.count == 0) {
        aoticache_cli_error(cli, "no entry, artifact or library begins with %s", prefix);
        return AOTICACHE_CLI_EXIT_NOT_FOUND;
    }
    for (size_t i = 1; i < list.count; i++) {
        if (!aoticache_digest_equal(&list.entries[0].key, &list.entries[i].key)) {
            int result = refuse_ambiguous(cli, prefix, &list);
            aoticache_entries_free(&list);
            return result;
        }
    }
    *ret_list = list;
    return AOTICACHE_CLI_EXIT_OK;
}

const aoticache_entry *aoticache_entries_fitting(const aoticache_entry_list *list)
{
    const aoticache_entry *best = NULL;
    for (size_t i = 0; i < list->count; i++) {
        const aoticache_entry *entry = &list->entries[i];
        if (!aoticache_cpu_features_include(aoticache_cpu_features_get(), &entry->requirements))
            continue;
        unsigned count = aoticache_cpu_features_count(&entry->requirements);
        unsigned best_count = best != NULL ? aoticache_cpu_features_count(&best->requirements) : 0;
        if (best == NULL || count > best_count || (count == best_count && entry->created_ns > best->created_ns))
            best = entry;
    }
    return best;
}

/* ---- requirements ---- */

char *aoticache_features_list(const aoticache_cpu_features *features)
{
    size_t length = aoticache_cpu_features_format(features, NULL, 0);
    char *text = aoticache_cli_allocate(length + 1, 1);
    aoticache_cpu_features_format(features, text, length + 1);
    return text;
}

const char *const *aoticache_cpu_levels(void)
{
    static const char *const x86_64[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", NULL};
    static const char *const aarch64[] = {"armv8-a",   "armv8.2-a", "armv8.3-a", "armv8.4-a",
                                          "armv8.5-a", "armv8.6-a", "armv9-a",   NULL};
    if (strcmp(aoticache_cpu_arch(), "x86_64") == 0)
        return x86_64;
    return strcmp(aoticache_cpu_arch(), "aarch64") == 0 ? aarch64 : aarch64 + sizeof aarch64 / sizeof aarch64[0] - 1;
}

/* Returns the level that leaves the fewest further features (the lowest of equals), and these features. */
static const char *nearest_level(const aoticache_cpu_features *features, aoticache_cpu_features *ret_over)
{
    const char *nearest = NULL;
    *ret_over = *features;
    for (const char *const *name = aoticache_cpu_levels(); *name != NULL; name++) {
        aoticache_cpu_features level;
        if (aoticache_cpu_features_parse(*name, &level, NULL) != AOTICACHE_OK)
            break;
        aoticache_cpu_features over = aoticache_cpu_features_lacking(&level, features);
        if (aoticache_cpu_features_count(&over) < aoticache_cpu_features_count(ret_over)) {
            nearest = *name;
            *ret_over = over;
        }
    }
    return nearest;
}

char *aoticache_features_text(const aoticache_cpu_features *features)
{
    aoticache_cpu_features over;
    if (aoticache_cpu_features_count(features) == 0)
        return aoticache_cli_text("any");
    const char *level = nearest_level(features, &over);
    unsigned count = aoticache_cpu_features_count(&over);
    cleanup_free char *names = aoticache_features_list(&over);
    if (level != NULL && count == 0)
        return aoticache_cli_text("%s", level);
    if (strlen(names) <= 16)
        return aoticache_cli_text("%s%s%s", level != NULL ? level : "", level != NULL ? "," : "", names);
    return level != NULL ? aoticache_cli_text("%s and %u more", level, count)
                         : aoticache_cli_text("%u features", count);
}

/* ---- JSON ---- */

static json_t *features_to_json(const aoticache_cpu_features *features)
{
    cleanup_free char *names = aoticache_features_list(features);
    json_t *array = aoticache_cli_json_array();
    char *rest = NULL;
    for (char *name = strtok_r(names, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest))
        aoticache_cli_json_append(array, aoticache_cli_json_text(name));
    return array;
}

json_t *aoticache_entry_to_json(const aoticache_entry *entry)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "key", aoticache_cli_json_digest(&entry->key));
    aoticache_cli_json_set(object, "op", aoticache_cli_json_text(entry->op));
    aoticache_cli_json_set(object, "device", aoticache_cli_json_text(entry->device));
    aoticache_cli_json_set(object, "description", aoticache_cli_json_text(entry->description));
    aoticache_cli_json_set(object, "producer", aoticache_cli_json_text(entry->producer));
    bool has_guard = entry->guard != NULL && entry->guard[0] != '\0';
    aoticache_cli_json_set(object, "guard", has_guard ? aoticache_cli_json_text(entry->guard) : json_null());
    aoticache_cli_json_set(object, "artifact", aoticache_cli_json_digest(&entry->artifact));
    aoticache_cli_json_set(object, "library", aoticache_cli_json_digest(&entry->library));
    aoticache_cli_json_set(object, "bytes", aoticache_cli_json_count(entry->bytes));
    aoticache_cli_json_set(object, "compile_ns", aoticache_cli_json_count(entry->compile_ns));
    aoticache_cli_json_set(object, "created_ns", json_integer(entry->created_ns));
    aoticache_cli_json_set(object, "last_used_ns", json_integer(entry->last_used_ns));
    aoticache_cli_json_set(object, "uses", aoticache_cli_json_count(entry->uses));
    aoticache_cli_json_set(object, "requirements", features_to_json(&entry->requirements));
    aoticache_cpu_features lacking = aoticache_cpu_features_lacking(aoticache_cpu_features_get(), &entry->requirements);
    aoticache_cli_json_set(object, "lacking", features_to_json(&lacking));
    return object;
}

/* ---- manifests ---- */

static int hex_digit(char digit)
{
    return digit >= '0' && digit <= '9' ? digit - '0' : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static aoticache_status decode_request(const char *hex, aoticache_request **ret_request, aoticache_error *ret_error)
{
    size_t size = hex != NULL ? strlen(hex) / 2 : 0;
    if (size == 0 || strlen(hex) % 2 != 0)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "manifest: it has no encoding of the request");
    cleanup_free uint8_t *bytes = aoticache_cli_allocate(size, 1);
    for (size_t i = 0; i < size; i++) {
        int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "manifest: its encoding is not hexadecimal");
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return aoticache_request_decode(bytes, size, ret_request, ret_error);
}

aoticache_status aoticache_manifest_decode(aoticache_cache *cache, const aoticache_digest *artifact, json_t **ret_json,
                                           aoticache_request **ret_request, aoticache_error *ret_error)
{
    cleanup_free char *text = NULL;
    aoticache_status status = aoticache_cache_read_manifest(cache, artifact, &text, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    json_error_t json_error;
    json_t *json = json_loads(text, 0, &json_error);
    if (json == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "manifest: not JSON: %s", json_error.text);
    status = decode_request(json_string_value(json_object_get(json, "encoding")), ret_request, ret_error);
    if (status == AOTICACHE_OK && ret_json != NULL)
        *ret_json = json;
    else
        json_decref(json);
    return status;
}
