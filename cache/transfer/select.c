/*
 * cache/transfer/select: reads the options of a transfer and copies the entries that they select, in a fixed order.
 */
#include "cache/transfer/transfer_internal.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "base/options.h"
#include "cache/entries.h"

/* ---- options ---- */

static aoticache_status check(const aoticache_transfer_options *options, bool is_import, aoticache_error *ret_error)
{
    const char *prefix = options->key_prefix;
    if (prefix != NULL &&
        (strlen(prefix) >= AOTICACHE_DIGEST_HEX_BYTES || strspn(prefix, "0123456789abcdefABCDEF") != strlen(prefix)))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "'%.80s' is not the beginning of a key: expected at most 64 hexadecimal digits",
                                   prefix);
    if (is_import && (options->tag != NULL || options->used_since_ns != 0))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "an import cannot select by tag or last use: archives do not record them for "
                                   "an entry");
    return AOTICACHE_OK;
}

aoticache_status aoticache_transfer_options_read(const aoticache_transfer_options *options, bool is_import,
                                                 aoticache_transfer_options *ret_options, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OPTIONS_READ(aoticache_transfer_options, AOTICACHE_TRANSFER_OPTIONS_INIT,
                                                     options, ret_options, ret_error);
    return status == AOTICACHE_OK ? check(ret_options, is_import, ret_error) : status;
}

static int compare_keys(const void *left, const void *right)
{
    return memcmp(left, right, sizeof(aoticache_key));
}

bool aoticache_transfer_names(const aoticache_transfer_options *options, const char *op, const char *device,
                              const aoticache_key *key)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    if (options->op != NULL && fnmatch(options->op, op, 0) != 0)
        return false;
    if (options->device != NULL && strcmp(options->device, device) != 0)
        return false;
    if (options->keys != NULL &&
        bsearch(key, options->keys, options->key_count, sizeof *options->keys, compare_keys) == NULL)
        return false;
    if (options->key_prefix == NULL)
        return true;
    aoticache_digest_to_hex(key, hex);
    return strncasecmp(hex, options->key_prefix, strlen(options->key_prefix)) == 0;
}

/* ---- keys, sorted ---- */

struct keys {
    aoticache_key *items;
    size_t count, capacity;
    bool is_out_of_memory;
};

static bool add_marked(void *user, const aoticache_pins *pins)
{
    struct keys *keys = user;
    keys->is_out_of_memory = !AOTICACHE_ARRAY_RESERVE(keys->items, keys->capacity, keys->count + 1);
    if (keys->is_out_of_memory)
        return false;
    keys->items[keys->count++] = pins->key;
    return true;
}

static aoticache_status read_tagged(aoticache_cache *cache, const char *tag, struct keys *keys,
                                    aoticache_error *ret_error)
{
    aoticache_status status = aoticache_cache_list_pins(cache, tag, add_marked, keys, ret_error);
    if (status == AOTICACHE_OK && keys->is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of tagged keys");
    if (status == AOTICACHE_OK && keys->count > 0)
        qsort(keys->items, keys->count, sizeof *keys->items, compare_keys);
    return status;
}

static bool has_key(const struct keys *keys, const aoticache_key *key)
{
    return keys->count > 0 && bsearch(key, keys->items, keys->count, sizeof *keys->items, compare_keys) != NULL;
}

/* ---- selecting ---- */

static bool is_selected(const aoticache_transfer_options *options, const struct keys *tagged,
                        const aoticache_entry *entry)
{
    return aoticache_transfer_names(options, entry->op, entry->device, &entry->key) &&
           (options->used_since_ns == 0 || entry->last_used_ns >= options->used_since_ns) &&
           (options->tag == NULL || has_key(tagged, &entry->key));
}

/* Ignores when and in which order entries were stored, so that equal caches give equal archives. */
static int compare_entries(const void *left, const void *right)
{
    const aoticache_entry *a = &((const aoticache_listed_entry *)left)->entry;
    const aoticache_entry *b = &((const aoticache_listed_entry *)right)->entry;
    int order = strcmp(a->op, b->op);
    if (order == 0)
        order = compare_keys(&a->key, &b->key);
    return order != 0 ? order : memcmp(a->artifact.bytes, b->artifact.bytes, sizeof a->artifact.bytes);
}

struct selecting {
    const aoticache_transfer_options *options;
    const struct keys *tagged;
    aoticache_entry_list list;
    bool is_out_of_memory;
};

static bool keep_selected(void *user, aoticache_listed_entry *entry)
{
    struct selecting *selecting = user;
    if (is_selected(selecting->options, selecting->tagged, &entry->entry))
        selecting->is_out_of_memory = !aoticache_entry_list_add(&selecting->list, entry);
    return !selecting->is_out_of_memory;
}

aoticache_status aoticache_transfer_select(aoticache_cache *cache, const aoticache_transfer_options *options,
                                           aoticache_entry_list *ret_snapshot, aoticache_error *ret_error)
{
    struct keys tagged = {.items = NULL};
    struct selecting selecting = {.options = options, .tagged = &tagged};
    aoticache_entry_list *list = &selecting.list;
    aoticache_status status = AOTICACHE_OK;
    if (options->tag != NULL)
        status = read_tagged(cache, options->tag, &tagged, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_entries_walk(cache, NULL, keep_selected, &selecting, ret_error);
    if (status == AOTICACHE_OK && selecting.is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of entries");
    free(tagged.items);
    if (status != AOTICACHE_OK) {
        aoticache_entry_list_free(list);
        return status;
    }
    if (list->count > 0)
        qsort(list->entries, list->count, sizeof *list->entries, compare_entries);
    *ret_snapshot = *list;
    return AOTICACHE_OK;
}

/* ---- pins and tags ---- */

struct marks {
    struct keys keys; /* of the selection */
    aoticache_pins_fn callback;
    void *user;
};

static bool pass_on(void *user, const aoticache_pins *pins)
{
    struct marks *marks = user;
    return !has_key(&marks->keys, &pins->key) || marks->callback(marks->user, pins);
}

aoticache_status aoticache_transfer_list_pins(aoticache_cache *cache, const aoticache_entry_list *selection,
                                              aoticache_pins_fn callback, void *user, aoticache_error *ret_error)
{
    struct marks marks = {.callback = callback, .user = user};
    marks.keys.items = reallocarray(NULL, selection->count + 1, sizeof *marks.keys.items);
    if (marks.keys.items == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of keys");
    for (size_t i = 0; i < selection->count; i++)
        marks.keys.items[marks.keys.count++] = selection->entries[i].entry.key;
    qsort(marks.keys.items, marks.keys.count, sizeof *marks.keys.items, compare_keys);
    aoticache_status status = aoticache_cache_list_pins(cache, NULL, pass_on, &marks, ret_error);
    free(marks.keys.items);
    return status;
}
