/*
 * remote_changes: changes a response of the server of remote_mutant.h, as the case requires.
 */
#ifndef AOTICACHE_TESTS_FAULT_REMOTE_CHANGES_H
#define AOTICACHE_TESTS_FAULT_REMOTE_CHANGES_H

#include "base/names.h"
#include "tests/fault/remote_mutant.h"

/* ---- frames of zstd, by hand (RFC 8878) ---- */

static void mutant_add(struct mutant_bytes *bytes, const void *more, size_t size)
{
    const size_t space = mutant_space(bytes->size + size);
    if (space != mutant_space(bytes->size) && (bytes->data = realloc(bytes->data, space)) == NULL)
        fail("mutant", "out of memory");
    memcpy(bytes->data + bytes->size, more, size);
    bytes->size += size;
}

static void mutant_add_number(struct mutant_bytes *bytes, uint64_t number, size_t size)
{
    unsigned char little[8];
    for (size_t i = 0; i < size; i++)
        little[i] = (unsigned char)(number >> 8 * i);
    mutant_add(bytes, little, size);
}

enum { MUTANT_RAW, MUTANT_REPEAT, MUTANT_RESERVED = 3 };

/* Adds a block of one repeated byte, of raw bytes that are missing, or of the reserved type. */
static void mutant_add_blocks(struct mutant_bytes *bytes, unsigned type, uint32_t size, unsigned count, bool has_end)
{
    for (unsigned i = 0; i < count; i++) {
        mutant_add_number(bytes, (uint64_t)(size << 3 | type << 1 | (has_end && i + 1 == count ? 1 : 0)), 3);
        if (type == MUTANT_REPEAT)
            mutant_add_number(bytes, 0, 1);
    }
}

/* Adds a header. window: the descriptor; or a frame of one segment with a size of eight bytes, which may be false. */
static void mutant_add_header(struct mutant_bytes *bytes, unsigned window, bool is_single, uint64_t content)
{
    mutant_add_number(bytes, 0xFD2FB528u, 4);
    mutant_add_number(bytes, is_single ? 0xe0 : 0x00, 1);
    mutant_add_number(bytes, is_single ? content : window, is_single ? 8 : 1);
}

static void mutant_add_skippable(struct mutant_bytes *bytes, uint32_t said, uint32_t size)
{
    mutant_add_number(bytes, 0x184D2A50u + next_random(16), 4);
    mutant_add_number(bytes, said, 4);
    for (uint32_t i = 0; i < size; i++)
        mutant_add_number(bytes, i, 1);
}

static void mutant_add_zeros(struct mutant_bytes *bytes, unsigned window, uint32_t size, unsigned count)
{
    mutant_add_header(bytes, window, false, 0);
    mutant_add_blocks(bytes, MUTANT_REPEAT, size, count, true);
}

static void mutant_add_empty_frame(struct mutant_bytes *bytes)
{
    mutant_add_header(bytes, 0, false, 0);
    mutant_add_blocks(bytes, MUTANT_RAW, 0, 1, true);
}

/* Makes new frames: bombs and false ones. */
static void mutant_make_bomb(struct mutant_bytes *bytes, unsigned variant)
{
    static const char *const names[] = {
        "1 GiB of zeros in 32 KiB", "the largest window",        "a size of 2^62",
        "a size that is a lie",     "a reserved block",          "empty blocks for ever",
        "an empty frame",           "a block beyond its window", "zeros without an end"};
    const unsigned which = variant % (sizeof names / sizeof names[0]);
    snprintf(mutant.detail, sizeof mutant.detail, "%s", names[which]);
    switch (which) {
    case 0:
        mutant_add_zeros(bytes, 7 << 3, 1 << 17, 8192);
        break;
    case 1:
        mutant_add_zeros(bytes, 0xff, 1 << 17, 64);
        break;
    case 2:
        mutant_add_header(bytes, 0, true, UINT64_C(1) << 62);
        mutant_add_blocks(bytes, MUTANT_REPEAT, 1 << 17, 64, true);
        break;
    case 3:
        mutant_add_header(bytes, 0, true, 3000);
        mutant_add_blocks(bytes, MUTANT_REPEAT, 3001, 1 + variant / 16 % 9, true);
        break;
    case 4:
        mutant_add_header(bytes, 0, false, 0);
        mutant_add_blocks(bytes, MUTANT_RESERVED, 100, 3, true);
        break;
    case 5:
        mutant_add_header(bytes, 0, false, 0);
        mutant_add_blocks(bytes, MUTANT_RAW, 0, 40000, false);
        break;
    case 6:
        mutant_add_empty_frame(bytes);
        break;
    case 7:
        mutant_add_zeros(bytes, 0, (1 << 21) - 1, 2);
        break;
    default:
        mutant_add_header(bytes, 7 << 3, false, 0);
        mutant_add_blocks(bytes, MUTANT_REPEAT, 1 << 10, 200, false);
    }
}

/* Makes the valid frame, with something before it, after it, or in its header. */
static void mutant_make_around(struct mutant_bytes *bytes, const struct mutant_bytes *sound, unsigned variant)
{
    static const char *const names[] = {"a skippable frame of 4 GiB",
                                        "skippable frames before it",
                                        "twice",
                                        "an empty frame before it",
                                        "a dictionary",
                                        "a wrong checksum",
                                        "an old format"};
    const unsigned which = variant % (sizeof names / sizeof names[0]), count = which == 1 ? 1 + variant / 16 % 50 : 0;
    snprintf(mutant.detail, sizeof mutant.detail, "%s", names[which]);
    if (which == 0)
        mutant_add_skippable(bytes, UINT32_MAX, 4096);
    for (unsigned i = 0; i < count; i++)
        mutant_add_skippable(bytes, i, i);
    if (which == 2)
        mutant_add(bytes, sound->data, sound->size);
    if (which == 3)
        mutant_add_empty_frame(bytes);
    if (which == 6)
        mutant_add_number(bytes, 0xFD2FB520u + variant / 16 % 8, 4);
    mutant_add(bytes, sound->data, sound->size);
    if ((which == 4 || which == 5) && bytes->size > 4)
        bytes->data[4] |= which == 4 ? 1 : 4;
    if (which == 5)
        mutant_add_number(bytes, variant, 4);
}

/* Makes a frame to replace a valid one. */
static void mutant_make_frame(struct mutant_bytes *bytes, unsigned variant)
{
    const struct mutant_bytes sound = *bytes;
    *bytes = mutant_copy(NULL, 0, 0);
    if (variant % 2 == 0)
        mutant_make_bomb(bytes, variant / 2);
    else
        mutant_make_around(bytes, &sound, variant / 2);
    free(sound.data);
}

/* Makes a valid frame of something that is not the object. */
static void mutant_repack(struct mutant_bytes *bytes, const char *name, unsigned variant)
{
    aoticache_digest digest;
    void *packed = NULL;
    size_t size = 0;
    const struct mutant_object *object =
        aoticache_digest_from_hex(name + strlen("cas/"), &digest) == AOTICACHE_OK ? mutant_find_object(&digest) : NULL;
    if (object == NULL || variant % 4 == 3)
        object = &mutant_objects[variant % mutant_object_count];
    struct mutant_bytes plain = mutant_copy(object->bytes.data, object->bytes.size, 64);
    snprintf(mutant.detail, sizeof mutant.detail, "variant %u", variant % 4);
    if (variant % 4 == 0 && plain.size > 0)
        plain.data[variant / 4 % plain.size] ^= (unsigned char)(1 << variant / 4 % 8);
    else if (variant % 4 == 1)
        plain.size -= plain.size > 0 ? 1 + variant / 4 % plain.size : 0;
    else if (variant % 4 == 2)
        memset(plain.data + plain.size, ' ', 1 + variant / 4 % 64), plain.size += 1 + variant / 4 % 64;
    if (aoticache_zstd_compress(plain.data, plain.size, &packed, &size, NULL) != AOTICACHE_OK)
        fail("mutant", "libzstd cannot be used");
    free(plain.data);
    free(bytes->data);
    *bytes = mutant_copy(packed, size, 0);
    free(packed);
}

/* ---- records ---- */

/* Returns a value that is seldom right. */
static json_t *mutant_odd_value(unsigned variant)
{
    static char long_text[70001];
    memset(long_text, 'a', sizeof long_text - 1);
    switch (variant % 16) {
    case 0:
        return json_null();
    case 1:
        return json_true();
    case 2:
        return json_integer(-1);
    case 3:
        return json_integer(0);
    case 4:
        return json_integer(INT64_MAX);
    case 5:
        return json_integer(1 + variant / 16 % 100000);
    case 6:
        return json_real(1.5);
    case 7:
        return json_string("");
    case 8:
        return json_string("two\nlines of a log");
    case 9:
        return json_string("\x1b[31m%s%n");
    case 10:
        return json_string(long_text);
    case 11:
        return json_stringn("a\0b", 3);
    case 12:
        return json_array();
    case 13:
        return json_pack("[[i]]", 1);
    case 14:
        return json_object();
    default:
        return json_string("0000000000000000000000000000000000000000000000000000000000000000");
    }
}

static json_t *mutant_other_entry(unsigned variant)
{
    const struct mutant_item *items = mutant_items[MUTANT_TRUTH];
    for (size_t i = 0; i < mutant_counts[MUTANT_TRUTH]; i++) {
        const struct mutant_item *item = &items[(i + variant) % mutant_counts[MUTANT_TRUTH]];
        if (mutant_class_of(item->name) != MUTANT_A_RECORD)
            continue;
        json_t *entries = mutant_entries_of(&item->bytes), *entry = json_incref(json_array_get(entries, 0));
        json_decref(entries);
        return entry;
    }
    return json_object();
}

/* Returns a changed signature: another letter, another name, or cut off. */
static json_t *mutant_change_signature(const char *text, unsigned variant)
{
    char changed[300];
    const size_t length = strlen(text), colon = strcspn(text, ":");
    snprintf(changed, sizeof changed, "%s", text);
    switch (variant % 4) {
    case 0:
        changed[colon + 1 + variant / 4 % 80] ^= 1;
        break;
    case 1:
        snprintf(changed, sizeof changed, "%s%s", strncmp(text, "ann", 3) == 0 ? "bob" : "ann", text + colon);
        break;
    case 2:
        changed[length - 1 - variant / 4 % 60] = '\0';
        break;
    default:
        snprintf(changed, sizeof changed, "%s=", text);
        break;
    }
    return json_string(changed);
}

static void mutant_change_signatures(json_t *entry, unsigned variant)
{
    json_t *list = json_object_get(entry, "signatures"), *other = mutant_other_entry(variant / 8);
    const unsigned which = variant % 8, position = variant / 8 % 2;
    const char *one = json_string_value(json_array_get(list, position));
    snprintf(mutant.detail, sizeof mutant.detail, "signatures %u", which);
    switch (which) {
    case 0:
        json_array_clear(list);
        break;
    case 1:
        json_array_append(list, json_array_get(list, position));
        break;
    case 2:
        json_array_remove(list, position);
        break;
    case 3:
        json_object_set(entry, "signatures", json_object_get(other, "signatures"));
        break;
    case 4:
        json_array_extend(list, json_object_get(other, "signatures"));
        break;
    case 5:
        for (int i = 0; i < 20; i++)
            json_array_append(list, json_array_get(list, position));
        break;
    default:
        if (one != NULL)
            json_array_set_new(list, position, mutant_change_signature(one, variant / 16));
    }
    json_decref(other);
}

static void mutant_change_entry(json_t *entry, unsigned variant)
{
    static const char *const fields[] = {"artifact", "bytes", "created_ns", "requirements", "guard", "signatures"};
    const char *field = fields[variant / 8 % 6];
    const json_int_t number = json_integer_value(json_object_get(entry, "bytes"));
    const json_int_t most = (json_int_t)AOTICACHE_OBJECT_MAX_MANIFEST_BYTES;
    const char *name = mutant_items[MUTANT_TRUTH][variant / 8 % mutant_counts[MUTANT_TRUTH]].name;
    json_t *other = mutant_other_entry(variant / 64);
    snprintf(mutant.detail, sizeof mutant.detail, "an entry's %s, %u", field, variant % 8);
    switch (variant % 8) {
    case 0:
        json_object_del(entry, field);
        break;
    case 1:
        json_object_set(entry, field, json_object_get(other, field));
        break;
    case 2:
        json_object_set_new(entry, "bytes", json_integer(number + 1 - (json_int_t)(variant / 8 % 3)));
        break;
    case 3:
        json_object_set_new(entry, "bytes", json_integer(most - variant / 8 % 2));
        break;
    case 4:
        json_object_set_new(entry, "artifact", json_string(strrchr(name, '/') + 1));
        break;
    default:
        json_object_set_new(entry, field, mutant_odd_value(variant / 64));
    }
    json_decref(other);
}

static void mutant_change_root(json_t *root, unsigned variant)
{
    static const char *const fields[] = {"kind", "format", "key", "entries", "more"};
    json_t *entries = json_object_get(root, "entries");
    const char *field = fields[variant / 8 % 5];
    snprintf(mutant.detail, sizeof mutant.detail, "its %s, %u", field, variant % 8);
    switch (variant % 8) {
    case 0:
        json_object_del(root, field);
        break;
    case 1:
        json_object_set_new(root, "format", json_integer(2));
        break;
    case 2:
        json_array_insert_new(entries, 0, mutant_other_entry(variant / 8));
        break;
    case 3:
        for (unsigned i = 0; i < 61 + variant / 8 % 6; i++)
            json_array_append(entries, json_array_get(entries, 0));
        break;
    case 4:
        json_array_remove(entries, json_array_size(entries) - 1);
        break;
    default:
        json_object_set_new(root, field, mutant_odd_value(variant / 64));
    }
}

static void mutant_change_record(struct mutant_bytes *bytes, unsigned variant)
{
    json_t *loaded = json_loadb((const char *)bytes->data, bytes->size, 0, NULL), *root = json_deep_copy(loaded);
    json_t *entries = json_object_get(root, "entries");
    json_t *entry = json_array_get(entries, variant / 4 % (json_array_size(entries) + (json_array_size(entries) == 0)));
    json_decref(loaded);
    if (entry == NULL || variant % 4 == 0)
        mutant_change_root(root, variant / 32);
    else if (variant % 4 == 1)
        mutant_change_signatures(entry, variant / 32);
    else
        mutant_change_entry(entry, variant / 32);
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    json_decref(root);
    if (text == NULL)
        return;
    free(bytes->data);
    *bytes = mutant_copy(text, strlen(text), 0);
    free(text);
}

/* Makes a record of the largest allowed size for which a parser needs much memory. */
static void mutant_make_heavy(struct mutant_bytes *bytes, unsigned variant)
{
    static const char *const units[] = {"1,", "[],",     "{},",          "\"\",",
                                        "[",  "{\"a\":", "\"\\u0041\",", "{\"entries\":[],\"b\":1},"};
    const char *unit = units[variant % 8];
    const size_t size = variant / 8 % 16 == 0 ? AOTICACHE_RECORD_MAX_BYTES : (size_t)1024 << variant / 8 % 6;
    struct mutant_bytes text = mutant_copy("{\"entries\":[", 12, size);
    snprintf(mutant.detail, sizeof mutant.detail, "%s, %zu bytes", unit, size);
    while (text.size + strlen(unit) + 4 < size) {
        memcpy(text.data + text.size, unit, strlen(unit));
        text.size += strlen(unit);
    }
    memcpy(text.data + text.size, "1]}", 3);
    text.size += 3;
    free(bytes->data);
    *bytes = text;
}

/* Forges an entry for the key, with the signatures of the true one in half of the cases. */
static void mutant_forge(struct mutant_bytes *bytes, const char *name, unsigned variant)
{
    const struct mutant_item *forged = mutant_find(MUTANT_ELSE, name);
    json_t *root = json_loadb((const char *)forged->bytes.data, forged->bytes.size, 0, NULL);
    json_t *entry = json_array_get(json_object_get(root, "entries"), 0), *truth = mutant_entries_of(bytes);
    json_t *signatures = json_object_get(json_array_get(truth, 0), "signatures");
    snprintf(mutant.detail, sizeof mutant.detail, "signatures: %u", variant % 4);
    if (variant % 4 == 1)
        json_object_set(entry, "signatures", signatures);
    else if (variant % 4 == 2)
        json_array_extend(json_object_get(entry, "signatures"), signatures);
    else if (variant % 4 == 3)
        json_object_set_new(entry, "signatures", json_array());
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(root);
    json_decref(truth);
    free(bytes->data);
    *bytes = mutant_copy(text, strlen(text), 0);
    free(text);
    mutant.must_refuse = true;
}

/* ---- lists ---- */

static void mutant_add_row(struct mutant_bytes *bytes, const char *hex, const char *rest)
{
    mutant_add(bytes, hex, strlen(hex));
    mutant_add(bytes, rest, strlen(rest));
}

static void mutant_change_list(struct mutant_bytes *bytes, unsigned variant)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES], other[AOTICACHE_DIGEST_HEX_BYTES];
    const unsigned which = variant % 8;
    aoticache_digest_to_hex(mutant.key, hex);
    memcpy(other, hex, sizeof other);
    other[2 + variant / 8 % 62] = other[2 + variant / 8 % 62] == '0' ? '1' : '0';
    snprintf(mutant.detail, sizeof mutant.detail, "variant %u", which);
    if (which <= 1 && bytes->size > strlen(AOTICACHE_LIST_HEAD))
        bytes->size = strlen(AOTICACHE_LIST_HEAD); /* the key is missing, or further down */
    for (unsigned i = 0; which == 1 && i < 1 + variant / 8 % 100; i++)
        mutant_add_row(bytes, i % 2 == 0 ? hex : other, " cpu aten::abs a,b\n");
    switch (which) {
    case 2:
        bytes->data[strlen(AOTICACHE_LIST_HEAD) - 2] = '2';
        break; /* another format */
    case 3:
        mutant_add_row(bytes, other, " cpu aten::abs\n");
        break;
    case 4:
        mutant_add_row(bytes, hex, " cpu aten::abs tag and more words than a line may have\n");
        break;
    case 5:
        mutant_add_row(bytes, hex, "\n");
        break;
    case 6:
        mutant_add_row(bytes, "../../../etc/passwd", " cpu aten::abs\n");
        break;
    case 7:
        mutant_add_row(bytes, hex, " \x1b[31mcpu aten::abs\n");
        break;
    default:
        break;
    }
}

/* ---- any response ---- */

static void mutant_swap(struct mutant_bytes *bytes, unsigned variant)
{
    const enum mutant_server server = variant % 3 == 0 ? MUTANT_ELSE : MUTANT_TRUTH;
    const struct mutant_item *item = &mutant_items[server][variant / 3 % mutant_counts[server]];
    snprintf(mutant.detail, sizeof mutant.detail, "%.60s", item->name);
    free(bytes->data);
    *bytes = mutant_copy(item->bytes.data, item->bytes.size, 0);
}

static void mutant_change_bytes(struct mutant_bytes *bytes, enum mutant_kind kind, unsigned variant)
{
    const size_t size = bytes->size, at = size > 0 ? variant % size : 0, length = size - at < 64 ? size - at : 64;
    snprintf(mutant.detail, sizeof mutant.detail, "at byte %zu of %zu", at, size);
    switch (kind) {
    case MUTANT_FLIP:
        for (unsigned i = 0; size > 0 && i <= variant / 8 % 3; i++)
            bytes->data[i == 0 ? at : next_random((unsigned)size)] ^= (unsigned char)(1 << next_random(8));
        break;
    case MUTANT_ZEROS:
        memset(bytes->data + at, 0, length);
        break;
    case MUTANT_OTHERS:
        for (size_t i = 0; i < length; i++)
            bytes->data[at + i] = (unsigned char)next_random(256);
        break;
    case MUTANT_CUT:
        bytes->size = at;
        break;
    case MUTANT_CONTINUE:
        for (unsigned i = 0; i <= variant % 5000; i++)
            mutant_add_number(bytes, variant % 3 == 0 ? ' ' : next_random(256), 1);
        break;
    case MUTANT_DOUBLE: {
        const struct mutant_bytes once = mutant_copy(bytes->data, size, 0);
        mutant_add(bytes, once.data, once.size);
        free(once.data);
        break;
    }
    case MUTANT_EMPTY:
        bytes->size = 0;
        break;
    case MUTANT_GARBAGE:
        free(bytes->data);
        *bytes = mutant_copy(NULL, 0, 0);
        for (unsigned i = 0; i <= variant % 3000; i++)
            mutant_add_number(bytes, next_random(256), 1);
        break;
    default:
        break;
    }
}

/* Changes the response. Returns the status with which it ends. */
static aoticache_status mutant_change(struct mutant_bytes *bytes, const char *name, bool *ret_before)
{
    static const int statuses[] = {AOTICACHE_IO,          AOTICACHE_DENIED,    AOTICACHE_NO_MEMORY,
                                   AOTICACHE_UNSUPPORTED, AOTICACHE_INVALID,   AOTICACHE_LOCKED,
                                   AOTICACHE_CORRUPT,     AOTICACHE_NOT_FOUND, 999};
    const unsigned variant = mutant.variant;
    const struct mutant_bytes *old = &mutant_old_records[variant % mutant_old_count];
    if (mutant.is_second && mutant.kind != MUTANT_FOREIGN && mutant.kind != MUTANT_REPLAY)
        mutant_change_bytes(bytes, (enum mutant_kind)next_random(MUTANT_GARBAGE + 1), next_random(1u << 20));
    switch (mutant.kind) {
    case MUTANT_SWAP:
        mutant_swap(bytes, variant);
        break;
    case MUTANT_ABSENT:
        *ret_before = true;
        return AOTICACHE_NOT_FOUND;
    case MUTANT_STOPPED:
        bytes->size = bytes->size > 0 ? variant % bytes->size : 0;
        return AOTICACHE_IO;
    case MUTANT_FAILED:
        *ret_before = variant % 2 == 0;
        return (aoticache_status)statuses[variant / 2 % 9];
    case MUTANT_FRAME:
        mutant_make_frame(bytes, variant);
        break;
    case MUTANT_REPACK:
        mutant_repack(bytes, name, variant);
        break;
    case MUTANT_RECORD:
        mutant_change_record(bytes, variant);
        break;
    case MUTANT_WEIGHT:
        mutant_make_heavy(bytes, variant);
        break;
    case MUTANT_LIST:
        mutant_change_list(bytes, variant);
        break;
    case MUTANT_FOREIGN:
        mutant_forge(bytes, name, variant);
        break;
    case MUTANT_REPLAY:
        free(bytes->data);
        *bytes = mutant_copy(old->data, old->size, 0);
        mutant.must_refuse = variant % mutant_old_count == 0; /* the first has an entry that is revoked */
        break;
    default:
        mutant_change_bytes(bytes, mutant.kind, variant);
    }
    return AOTICACHE_OK;
}

#endif
