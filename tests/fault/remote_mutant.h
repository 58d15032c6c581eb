/*
 * remote_mutant: what a server in memory has, and which response the number of a case changes. remote_changes.h makes
 * the changes, remote_liar.h is the module that responds.
 *
 * There are three servers: `mutant:/truth`, whose responses are changed, `mutant:/foreign`, from which forged entries
 * are taken, and `mutant:/push`, which responds falsely to writes. Included by one program, fault_remote.c, which
 * defines the truth and checks the results.
 */
#ifndef AOTICACHE_TESTS_FAULT_REMOTE_MUTANT_H
#define AOTICACHE_TESTS_FAULT_REMOTE_MUTANT_H

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "cache/remote/remote_internal.h"
#include "tests/helpers/cache_process.h"

#define MUTANT_ENDLESS_BYTES (UINT64_C(256) << 20) /* "endless" responses end here: the test must end */

#define MUTANT_KIND_LIST(X)                                        \
    X(FLIP, "bits flipped")                                        \
    X(ZEROS, "zeros in it")                                        \
    X(OTHERS, "other bytes in it")                                 \
    X(CUT, "cut off")                                              \
    X(CONTINUE, "continued")                                       \
    X(DOUBLE, "doubled")                                           \
    X(EMPTY, "empty")                                              \
    X(GARBAGE, "random bytes")                                     \
    X(SWAP, "the bytes of another name")                           \
    X(ABSENT, "not there any more")                                \
    X(STOPPED, "stopped in the middle, too slow")                  \
    X(FAILED, "an error, before or after all bytes")               \
    X(ENDLESS, "endless")                                          \
    X(FRAME, "a hostile frame of zstd")                            \
    X(REPACK, "another object in a sound frame")                   \
    X(RECORD, "a record that says something else")                 \
    X(WEIGHT, "a record that is heavy to parse")                   \
    X(LIST, "a list that says something else")                     \
    X(FOREIGN, "a whole entry that somebody else made and signed") \
    X(REPLAY, "a record of before")                                \
    X(PUSH, "a server that lies to a push")

enum mutant_kind {
#define MUTANT_KIND(name, text) MUTANT_##name,
    MUTANT_KIND_LIST(MUTANT_KIND)
#undef MUTANT_KIND
        MUTANT_KINDS
};

static const char *mutant_kind_name(int kind)
{
    static const char *const names[] = {
#define MUTANT_KIND(name, text) text,
        MUTANT_KIND_LIST(MUTANT_KIND)
#undef MUTANT_KIND
    };
    return names[kind];
}

struct mutant_bytes {
    unsigned char *data;
    size_t size;
};

/* ---- stored by name ---- */

enum mutant_server { MUTANT_TRUTH, MUTANT_ELSE, MUTANT_WRITTEN, MUTANT_SERVERS };
enum mutant_class { MUTANT_A_LIST, MUTANT_A_RECORD, MUTANT_A_MANIFEST, MUTANT_A_FILE, MUTANT_CLASSES };

struct mutant_item {
    char name[120];
    struct mutant_bytes bytes;
};

static struct mutant_item mutant_items[MUTANT_SERVERS][80];
static size_t mutant_counts[MUTANT_SERVERS];

/* An object, uncompressed. */
struct mutant_object {
    aoticache_digest digest;
    struct mutant_bytes bytes;
};
static struct mutant_object mutant_objects[40];
static size_t mutant_object_count;

static char mutant_manifests[40][80]; /* names */
static size_t mutant_manifest_count;
static struct mutant_bytes mutant_old_records[4];
static size_t mutant_old_count;

/* Returns the space for `size` bytes: a larger power of two, so that growing blocks are seldom moved. */
static size_t mutant_space(size_t size)
{
    size_t space = 64;
    while (space <= size)
        space *= 2;
    return space;
}

static struct mutant_bytes mutant_copy(const void *bytes, size_t size, size_t more)
{
    struct mutant_bytes copy = {.data = malloc(mutant_space(size + more)), .size = size};
    if (copy.data == NULL)
        fail("mutant", "out of memory");
    if (size > 0)
        memcpy(copy.data, bytes, size);
    return copy;
}

static struct mutant_item *mutant_find(enum mutant_server server, const char *name)
{
    for (size_t i = 0; i < mutant_counts[server]; i++)
        if (strcmp(mutant_items[server][i].name, name) == 0)
            return &mutant_items[server][i];
    return NULL;
}

static void mutant_store(enum mutant_server server, const char *name, const void *bytes, size_t size)
{
    struct mutant_item *item = mutant_find(server, name);
    if (item == NULL) {
        if (mutant_counts[server] == sizeof mutant_items[server] / sizeof mutant_items[server][0])
            fail("mutant", "too many names");
        item = &mutant_items[server][mutant_counts[server]++];
        snprintf(item->name, sizeof item->name, "%s", name);
    }
    free(item->bytes.data);
    item->bytes = mutant_copy(bytes, size, 0);
}

static void mutant_empty(enum mutant_server server)
{
    for (size_t i = 0; i < mutant_counts[server]; i++)
        free(mutant_items[server][i].bytes.data);
    memset(mutant_items[server], 0, sizeof mutant_items[server]);
    mutant_counts[server] = 0;
}

/* Records an object that may be in the client's store. */
static void mutant_learn(const aoticache_digest *digest, const void *bytes, size_t size)
{
    if (mutant_object_count == sizeof mutant_objects / sizeof mutant_objects[0])
        fail("mutant", "too many objects");
    struct mutant_object *object = &mutant_objects[mutant_object_count++];
    *object = (struct mutant_object){.digest = *digest, .bytes = mutant_copy(bytes, size, 0)};
}

static const struct mutant_object *mutant_find_object(const aoticache_digest *digest)
{
    for (size_t i = 0; i < mutant_object_count; i++)
        if (aoticache_digest_equal(&mutant_objects[i].digest, digest))
            return &mutant_objects[i];
    return NULL;
}

static void mutant_note_manifest(const aoticache_digest *digest)
{
    aoticache_remote_object_name(digest, mutant_manifests[mutant_manifest_count++]);
}

/* Keeps the key's present record as an old one. */
static void mutant_keep_record(const aoticache_key *key)
{
    char name[AOTICACHE_REMOTE_NAME_BYTES];
    aoticache_remote_record_name(key, name);
    const struct mutant_item *item = mutant_find(MUTANT_TRUTH, name);
    if (item == NULL)
        fail("mutant", "a push has left no record");
    mutant_old_records[mutant_old_count++] = mutant_copy(item->bytes.data, item->bytes.size, 0);
}

static enum mutant_class mutant_class_of(const char *name)
{
    if (strncmp(name, "keys/", 5) == 0)
        return MUTANT_A_LIST;
    if (strncmp(name, "ac/", 3) == 0)
        return MUTANT_A_RECORD;
    for (size_t i = 0; i < mutant_manifest_count; i++)
        if (strcmp(mutant_manifests[i], name) == 0)
            return MUTANT_A_MANIFEST;
    return MUTANT_A_FILE;
}

/* ---- the case ---- */

static struct {
    enum mutant_kind kind; /* MUTANT_KINDS: none yet, responses are true */
    enum mutant_class target;
    unsigned which;   /* which response of the class; 3: each */
    unsigned variant; /* variant of the kind */
    unsigned pieces;  /* how the bytes are delivered */
    bool is_careless; /* a module that ignores the limit it is given */
    bool is_second;   /* another change is made, too */
    unsigned asked[MUTANT_CLASSES];
    const aoticache_key *key;
    char detail[120];
    /* results */
    bool has_changed, must_refuse;
    bool has_list, lists_key, has_record;
    aoticache_status record_status;
    struct mutant_bytes record;
} mutant = {.kind = MUTANT_KINDS};

static uint32_t mutant_mix(uint32_t number)
{
    number = (number ^ number >> 16) * 0x85ebca6bu;
    number = (number ^ number >> 13) * 0xc2b2ae35u;
    return number ^ number >> 16;
}

/* Chooses what case `number` changes. Returns its kind. */
static int mutant_choose(uint32_t number)
{
    free(mutant.record.data);
    memset(&mutant, 0, sizeof mutant);
    random_state = mutant_mix(number + 1);
    mutant.kind = next_random(1000) < 2 ? MUTANT_PUSH : (enum mutant_kind)next_random(MUTANT_PUSH);
    mutant.target = (enum mutant_class)next_random(MUTANT_CLASSES);
    if (mutant.kind == MUTANT_RECORD || mutant.kind == MUTANT_WEIGHT || mutant.kind == MUTANT_FOREIGN ||
        mutant.kind == MUTANT_REPLAY)
        mutant.target = MUTANT_A_RECORD;
    if (mutant.kind == MUTANT_FRAME || mutant.kind == MUTANT_REPACK)
        mutant.target = next_random(2) == 0 ? MUTANT_A_MANIFEST : MUTANT_A_FILE;
    if (mutant.kind == MUTANT_LIST)
        mutant.target = MUTANT_A_LIST;
    const unsigned which = next_random(10);
    mutant.which = mutant.target <= MUTANT_A_RECORD || which < 7 ? 0 : which - 6;
    mutant.variant = next_random(1u << 20);
    mutant.pieces = next_random(4);
    mutant.is_careless = next_random(2) == 0;
    mutant.is_second = next_random(5) == 0;
    return (int)mutant.kind;
}

static void mutant_aim(const aoticache_key *key)
{
    mutant.key = key;
    if (mutant.kind == MUTANT_PUSH)
        mutant_empty(MUTANT_WRITTEN);
}

static bool mutant_replays(void)
{
    return mutant.kind == MUTANT_REPLAY;
}

static bool mutant_is_push(void)
{
    return mutant.kind == MUTANT_PUSH;
}

static bool mutant_changes_list(void)
{
    return mutant.target == MUTANT_A_LIST && mutant.kind != MUTANT_PUSH;
}

static bool mutant_has_changed_something(void)
{
    return mutant.has_changed;
}

static bool mutant_must_refuse(void)
{
    return mutant.must_refuse;
}

static const char *mutant_description(void)
{
    static const char *const classes[] = {"list", "record", "manifest", "file"};
    static char text[300];
    snprintf(text, sizeof text, "%s %u: %s%s%s%s", classes[mutant.target], mutant.which,
             mutant_kind_name((int)mutant.kind), mutant.detail[0] != '\0' ? ", " : "", mutant.detail,
             mutant.is_careless ? ", no limit kept" : "");
    return text;
}

/* ---- offered entries ---- */

static json_t *mutant_entries_of(const struct mutant_bytes *record)
{
    json_t *root = json_loadb((const char *)record->data, record->size, 0, NULL);
    json_t *entries = json_object_get(root, "entries");
    json_incref(entries);
    json_decref(root);
    return entries;
}

static bool mutant_same_field(const json_t *one, const json_t *other, const char *field)
{
    const json_t *left = json_object_get(one, field), *right = json_object_get(other, field);
    return left == right || json_equal(left, right);
}

/* Returns the entry of an artifact, borrowed. like: NULL, or an entry with the same requirements and guard. */
static json_t *mutant_entry_of(json_t *entries, const char *artifact, const json_t *like)
{
    size_t i;
    json_t *entry;
    json_array_foreach(entries, i, entry)
    {
        const char *text = json_string_value(json_object_get(entry, "artifact"));
        if (text != NULL && strcmp(text, artifact) == 0 &&
            (like == NULL ||
             (mutant_same_field(entry, like, "requirements") && mutant_same_field(entry, like, "guard"))))
            return entry;
    }
    return NULL;
}

/*
 * Returns whether the responses of this case still offered the artifact to all machines that it was made for. If it is
 * missing then, it was refused, and there must be a reason. Otherwise the client never learnt of it.
 */
static bool mutant_offered(const aoticache_digest *artifact)
{
    char name[AOTICACHE_REMOTE_NAME_BYTES], hex[AOTICACHE_DIGEST_HEX_BYTES];
    if (mutant.has_list && !mutant.lists_key)
        return false;
    if (!mutant.has_record || mutant.record_status != AOTICACHE_OK)
        return mutant.record_status != AOTICACHE_NOT_FOUND;
    if (mutant.record.size > 65536) /* no case makes a valid record this long */
        return true;
    aoticache_digest_to_hex(artifact, hex);
    aoticache_remote_record_name(mutant.key, name);
    json_t *said = mutant_entries_of(&mutant.record);
    json_t *truth = mutant_entries_of(&mutant_find(MUTANT_TRUTH, name)->bytes);
    const json_t *like = mutant_entry_of(truth, hex, NULL);
    const bool is_offered = said == NULL || mutant_entry_of(said, hex, like) != NULL;
    json_decref(said);
    json_decref(truth);
    return is_offered;
}

/* Returns whether the list that was read has the key. */
static bool mutant_lists_key(void)
{
    return mutant.lists_key;
}

static void mutant_note_answer(enum mutant_class class, const struct mutant_bytes *answer, aoticache_status status)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    if (class == MUTANT_A_LIST) {
        aoticache_digest_to_hex(mutant.key, hex);
        mutant.has_list = true;
        mutant.lists_key = status != AOTICACHE_OK || memmem(answer->data, answer->size, hex, strlen(hex)) != NULL;
        mutant.lists_key = mutant.lists_key && status != AOTICACHE_NOT_FOUND;
    } else if (class == MUTANT_A_RECORD) {
        free(mutant.record.data);
        mutant.has_record = true;
        mutant.record_status = status;
        mutant.record = mutant_copy(answer->data, answer->size, 0);
    }
}

#endif
