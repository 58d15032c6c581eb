/*
 * cache/remote/record: the texts on a server: names, the record of a key, and the lists of keys. docs/remotes.md specifies
 * them.
 *
 * The parsed texts are untrusted. A record only decides what is fetched: the contents of an entry are determined by its
 * manifest.
 */
#include "cache/remote/remote_internal.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/names.h"

#define KIND "aoticache record"
#define FORMAT 1

#define MAX_SIGNATURES 16
#define MAX_SIGNATURE_BYTES 256
#define MAX_GUARD_BYTES 65536
#define REQUIREMENT_DIGITS (2 * AOTICACHE_INDEX_REQUIREMENT_BYTES)

/* ---- names ---- */

static void print_name(const char *directory, const aoticache_digest *digest,
                       char ret_name[AOTICACHE_REMOTE_NAME_BYTES])
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(digest, hex);
    snprintf(ret_name, AOTICACHE_REMOTE_NAME_BYTES, "%s/%s", directory, hex);
}

void aoticache_remote_object_name(const aoticache_digest *digest, char ret_name[AOTICACHE_REMOTE_NAME_BYTES])
{
    print_name("cas", digest, ret_name);
}

void aoticache_remote_record_name(const aoticache_key *key, char ret_name[AOTICACHE_REMOTE_NAME_BYTES])
{
    print_name("ac", key, ret_name);
}

void aoticache_remote_lease_name(const aoticache_key *key, char ret_name[AOTICACHE_REMOTE_NAME_BYTES])
{
    print_name("lease", key, ret_name);
}

void aoticache_remote_list_name(unsigned first_byte, char ret_name[AOTICACHE_REMOTE_NAME_BYTES])
{
    snprintf(ret_name, AOTICACHE_REMOTE_NAME_BYTES, "keys/%02x", first_byte & 0xff);
}

/* ---- reading a record ---- */

static aoticache_status refuse(const char *what, aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "record: %s", what);
}

static aoticache_status out_of_memory(aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a record");
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static aoticache_status read_requirements(const json_t *object, aoticache_cpu_features *ret_features,
                                          aoticache_error *ret_error)
{
    uint8_t bytes[AOTICACHE_INDEX_REQUIREMENT_BYTES];
    const char *hex = json_string_value(json_object_get(object, "requirements"));
    if (hex == NULL || strlen(hex) != REQUIREMENT_DIGITS || strspn(hex, "0123456789abcdef") != REQUIREMENT_DIGITS)
        return refuse("\"requirements\" is not a set of CPU features", ret_error);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(digit(hex[2 * i]) * 16 + digit(hex[2 * i + 1]));
    *ret_features = aoticache_requirements_from_bytes(bytes);
    return AOTICACHE_OK;
}

static bool is_printable(const char *text, bool with_spaces)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f ||
            (!with_spaces && (*text == ' ' || (unsigned char)*text > '~')))
            return false;
    return true;
}

static aoticache_status read_signatures(const json_t *object, char **ret_text, aoticache_error *ret_error)
{
    const json_t *list = json_object_get(object, "signatures"), *value;
    size_t i, used = 0;
    if (!json_is_array(list) || json_array_size(list) > MAX_SIGNATURES)
        return refuse("\"signatures\" is not a list of at most 16 strings", ret_error);
    char *text = malloc(json_array_size(list) * (MAX_SIGNATURE_BYTES + 1) + 1);
    if (text == NULL)
        return out_of_memory(ret_error);
    text[0] = '\0';
    json_array_foreach(list, i, value)
    {
        const char *one = json_string_value(value);
        if (one == NULL || one[0] == '\0' || strlen(one) > MAX_SIGNATURE_BYTES || !is_printable(one, false)) {
            free(text);
            return refuse("\"signatures\" has an item that is not a signature", ret_error);
        }
        used += (size_t)sprintf(text + used, "%s\n", one);
    }
    *ret_text = text;
    return AOTICACHE_OK;
}

static aoticache_status read_guard(const json_t *object, char **ret_guard, aoticache_error *ret_error)
{
    const json_t *value = json_object_get(object, "guard");
    *ret_guard = NULL;
    if (value == NULL)
        return AOTICACHE_OK;
    if (!json_is_string(value) || json_string_length(value) == 0 || json_string_length(value) > MAX_GUARD_BYTES ||
        !is_printable(json_string_value(value), true))
        return refuse("\"guard\" is not a single line", ret_error);
    *ret_guard = strdup(json_string_value(value));
    return *ret_guard != NULL ? AOTICACHE_OK : out_of_memory(ret_error);
}

static aoticache_status read_count(const json_t *object, const char *name, int64_t most, int64_t *ret_value,
                                   aoticache_error *ret_error)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > most)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "record: \"%s\" is missing or out of range", name);
    *ret_value = json_integer_value(value);
    return AOTICACHE_OK;
}

static aoticache_status read_entry(const json_t *object, aoticache_record_entry *entry, aoticache_error *ret_error)
{
    const char *hex = json_string_value(json_object_get(object, "artifact"));
    int64_t bytes = 0;
    if (hex == NULL || aoticache_digest_from_hex(hex, &entry->artifact) != AOTICACHE_OK)
        return refuse("\"artifact\" is not a digest", ret_error);
    aoticache_status status = read_count(object, "bytes", AOTICACHE_OBJECT_MAX_MANIFEST_BYTES, &bytes, ret_error);
    entry->bytes = (uint64_t)bytes;
    if (status == AOTICACHE_OK)
        status = read_count(object, "created_ns", INT64_MAX, &entry->created_ns, ret_error);
    if (status == AOTICACHE_OK)
        status = read_requirements(object, &entry->requirements, ret_error);
    if (status == AOTICACHE_OK)
        status = read_guard(object, &entry->guard, ret_error);
    if (status == AOTICACHE_OK)
        status = read_signatures(object, &entry->signatures, ret_error);
    return status;
}

static int compare_entries(const void *left, const void *right)
{
    const aoticache_record_entry *a = left, *b = right;
    const unsigned first = aoticache_cpu_features_count(&a->requirements);
    const unsigned second = aoticache_cpu_features_count(&b->requirements);
    if (first != second)
        return first > second ? -1 : 1;
    if (a->created_ns != b->created_ns)
        return a->created_ns > b->created_ns ? -1 : 1;
    return memcmp(&a->artifact, &b->artifact, sizeof a->artifact);
}

static aoticache_status read_entries(const json_t *root, aoticache_record *record, aoticache_error *ret_error)
{
    const json_t *list = json_object_get(root, "entries"), *value;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) > AOTICACHE_RECORD_MAX_ENTRIES)
        return refuse("\"entries\" is not a list of at most 64 entries", ret_error);
    record->entries = calloc(AOTICACHE_RECORD_MAX_ENTRIES + 1, sizeof *record->entries);
    if (record->entries == NULL)
        return out_of_memory(ret_error);
    json_array_foreach(list, i, value)
    {
        record->count++;
        aoticache_status status = read_entry(value, &record->entries[i], ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    qsort(record->entries, record->count, sizeof *record->entries, compare_entries);
    return AOTICACHE_OK;
}

static aoticache_status read_root(const json_t *root, const aoticache_key *key, aoticache_record *record,
                                  aoticache_error *ret_error)
{
    const char *kind = json_string_value(json_object_get(root, "kind"));
    const char *hex = json_string_value(json_object_get(root, "key"));
    const json_t *format = json_object_get(root, "format");
    if (kind == NULL || strcmp(kind, KIND) != 0 || !json_is_integer(format) || json_integer_value(format) < 1)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "not a record");
    if (json_integer_value(format) > FORMAT)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "record of format %lld; this version knows up to %d",
                                   (long long)json_integer_value(format), FORMAT);
    if (hex == NULL || aoticache_digest_from_hex(hex, &record->key) != AOTICACHE_OK ||
        !aoticache_digest_equal(&record->key, key))
        return refuse("it is for another key", ret_error);
    return read_entries(root, record, ret_error);
}

aoticache_status aoticache_record_parse(const char *text, size_t size, const aoticache_key *key,
                                        aoticache_record *ret_record, aoticache_error *ret_error)
{
    json_error_t detail;
    aoticache_record record = {.count = 0};
    if (size > AOTICACHE_RECORD_MAX_BYTES)
        return refuse("it is too large", ret_error);
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &detail);
    if (root == NULL)
        return json_error_code(&detail) == json_error_out_of_memory
                   ? out_of_memory(ret_error)
                   : refuse(size > 0 && text[0] == '<' ? "it is an HTML page; check for a login page or a proxy"
                                                       : "it is not JSON",
                            ret_error);
    aoticache_status status = read_root(root, key, &record, ret_error);
    json_decref(root);
    if (status == AOTICACHE_OK)
        *ret_record = record;
    else
        aoticache_record_clear(&record);
    return status;
}

/* ---- changing and writing a record ---- */

static void clear_entry(aoticache_record_entry *entry)
{
    free(entry->guard);
    free(entry->signatures);
}

void aoticache_record_clear(aoticache_record *record)
{
    for (size_t i = 0; i < record->count; i++)
        clear_entry(&record->entries[i]);
    free(record->entries);
    *record = (aoticache_record){.count = 0};
}

static bool serves_the_same(const aoticache_record_entry *a, const aoticache_record_entry *b)
{
    return memcmp(&a->requirements, &b->requirements, sizeof a->requirements) == 0 &&
           strcmp(a->guard != NULL ? a->guard : "", b->guard != NULL ? b->guard : "") == 0;
}

static size_t oldest(const aoticache_record *record)
{
    size_t found = 0;
    for (size_t i = 1; i < record->count; i++)
        if (record->entries[i].created_ns < record->entries[found].created_ns)
            found = i;
    return found;
}

static bool has_signer(const char *signatures, const char *name, size_t length)
{
    for (const char *line = signatures; *line != '\0';) {
        const char *end = line + strcspn(line, "\n");
        if (strncmp(line, name, length) == 0)
            return true;
        line = *end == '\n' ? end + 1 : end;
    }
    return false;
}

/* Joins the new signatures and the old ones of other keys, as many as a record may have. Returns NULL if memory is short. */
static char *join_signatures(const char *added, const char *old)
{
    size_t used = strlen(added), count = 0;
    char *all = malloc(used + strlen(old) + 2);
    if (all == NULL)
        return NULL;
    memcpy(all, added, used + 1);
    for (const char *c = added; *c != '\0'; c++)
        count += *c == '\n' ? 1 : 0;
    while (*old != '\0' && count < MAX_SIGNATURES) {
        const size_t length = strcspn(old, "\n"), name = strcspn(old, ":\n") + 1;
        if (length > 0 && !has_signer(added, old, name)) {
            used += (size_t)sprintf(all + used, "%.*s\n", (int)length, old);
            count++;
        }
        old += length + (old[length] == '\n' ? 1 : 0);
    }
    return all;
}

aoticache_status aoticache_record_put(aoticache_record *record, const aoticache_record_entry *entry, bool *ret_changed,
                                      aoticache_error *ret_error)
{
    size_t at = 0;
    if (record->entries == NULL &&
        (record->entries = calloc(AOTICACHE_RECORD_MAX_ENTRIES + 1, sizeof *record->entries)) == NULL)
        return out_of_memory(ret_error);
    while (at < record->count && !serves_the_same(&record->entries[at], entry))
        at++;
    const bool is_same = at < record->count && aoticache_digest_equal(&record->entries[at].artifact, &entry->artifact);
    aoticache_record_entry copy = *entry;
    copy.guard = entry->guard != NULL ? strdup(entry->guard) : NULL;
    copy.signatures = join_signatures(entry->signatures, is_same ? record->entries[at].signatures : "");
    *ret_changed =
        !is_same || (copy.signatures != NULL && strlen(record->entries[at].signatures) != strlen(copy.signatures));
    if (copy.signatures != NULL && is_same && !*ret_changed) {
        clear_entry(&copy);
        return AOTICACHE_OK;
    }
    if (copy.signatures == NULL || (entry->guard != NULL && copy.guard == NULL)) {
        clear_entry(&copy);
        return out_of_memory(ret_error);
    }
    if (at == AOTICACHE_RECORD_MAX_ENTRIES)
        at = oldest(record);
    if (at == record->count)
        record->count++;
    else
        clear_entry(&record->entries[at]);
    record->entries[at] = copy;
    qsort(record->entries, record->count, sizeof *record->entries, compare_entries);
    return AOTICACHE_OK;
}

bool aoticache_record_prefers_signed(const aoticache_record *record, const aoticache_record_entry *entry)
{
    for (size_t i = 0; entry->signatures[0] == '\0' && i < record->count; i++)
        if (serves_the_same(&record->entries[i], entry) && record->entries[i].signatures[0] != '\0')
            return true;
    return false;
}

static json_t *format_signatures(const char *text)
{
    json_t *list = json_array();
    while (list != NULL && *text != '\0') {
        const size_t length = strcspn(text, "\n");
        if (length > 0 && json_array_append_new(list, json_stringn(text, length)) != 0) {
            json_decref(list);
            return NULL;
        }
        text += length + (text[length] == '\n' ? 1 : 0);
    }
    return list;
}

static json_t *format_entry(const aoticache_record_entry *entry)
{
    char artifact[AOTICACHE_DIGEST_HEX_BYTES], requirements[REQUIREMENT_DIGITS + 1];
    uint8_t bytes[AOTICACHE_INDEX_REQUIREMENT_BYTES];
    aoticache_digest_to_hex(&entry->artifact, artifact);
    aoticache_requirements_to_bytes(&entry->requirements, bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(requirements + 2 * i, 3, "%02x", bytes[i]);
    return json_pack("{s:s, s:I, s:I, s:s, s:s*, s:o}", "artifact", artifact, "bytes", (json_int_t)entry->bytes,
                     "created_ns", (json_int_t)entry->created_ns, "requirements", requirements, "guard", entry->guard,
                     "signatures", format_signatures(entry->signatures));
}

aoticache_status aoticache_record_format(const aoticache_record *record, char **ret_text, size_t *ret_size,
                                         aoticache_error *ret_error)
{
    char key[AOTICACHE_DIGEST_HEX_BYTES];
    json_t *entries = json_array();
    bool is_ok = entries != NULL;
    for (size_t i = 0; is_ok && i < record->count; i++)
        is_ok = json_array_append_new(entries, format_entry(&record->entries[i])) == 0;
    aoticache_digest_to_hex(&record->key, key);
    json_t *root =
        is_ok ? json_pack("{s:s, s:i, s:s, s:O}", "kind", KIND, "format", FORMAT, "key", key, "entries", entries)
              : NULL;
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    json_decref(entries);
    if (text == NULL)
        return out_of_memory(ret_error);
    *ret_text = text;
    *ret_size = strlen(text);
    return AOTICACHE_OK;
}

/* ---- lists ---- */

static bool parse_row(char *line, unsigned first_byte, aoticache_list_row *ret_row)
{
    char *words[4], *rest = NULL;
    size_t count = 0;
    if (!is_printable(line, true))
        return false;
    for (char *word = strtok_r(line, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        if (count == 4)
            return false;
        words[count++] = word;
    }
    if (count < 3 || strlen(words[0]) != AOTICACHE_DIGEST_HEX_BYTES - 1 ||
        aoticache_digest_from_hex(words[0], &ret_row->key) != AOTICACHE_OK || ret_row->key.bytes[0] != first_byte)
        return false;
    ret_row->device = words[1];
    ret_row->op = words[2];
    ret_row->tags = count == 4 ? words[3] : "";
    return true;
}

aoticache_status aoticache_list_parse(char *text, unsigned first_byte, aoticache_list_fn callback, void *user,
                                      aoticache_error *ret_error)
{
    aoticache_list_row row;
    if (strncmp(text, AOTICACHE_LIST_HEAD, strlen(AOTICACHE_LIST_HEAD)) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "not a list of keys");
    char *rest = text + strlen(AOTICACHE_LIST_HEAD);
    while (*rest != '\0') {
        char *line = rest, *end = strchr(rest, '\n');
        if (end == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "list of keys: it is truncated");
        *end = '\0';
        rest = end + 1;
        if (!parse_row(line, first_byte, &row))
            return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "list of keys: invalid line");
        if (!callback(user, &row))
            break;
    }
    return AOTICACHE_OK;
}
