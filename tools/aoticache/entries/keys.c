/*
 * tools/aoticache/entries/keys: finds the keys that a command line selects, by prefix, by operator or by tag, in one pass
 * over the cache, however many there are.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX_MINIMUM 4
#define PREFIXES_LISTED 10

/* The result for one word of the command line; keys beyond the number listed are not kept. */
struct prefix {
    const char *word;
    char digits[AOTICACHE_DIGEST_HEX_BYTES]; /* in lower case */
    size_t length;
    aoticache_chosen_keys found;
};

struct search {
    const aoticache_key_choice *choice;
    struct prefix *prefixes;
    aoticache_pin_list tagged; /* choice->tag */
    aoticache_chosen_keys all;
};

/* ---- lists ---- */

/* Entries are in the order of their keys within an operator: a duplicate is usually the last one. */
static void add_key(aoticache_chosen_keys *keys, const aoticache_key *key, const char *description)
{
    for (size_t i = keys->count, looked = 0; i-- > 0 && looked < PREFIXES_LISTED; looked++)
        if (aoticache_digest_equal(&keys->items[i].key, key))
            return;
    keys->items = aoticache_cli_grow(keys->items, keys->count, sizeof *keys->items);
    keys->items[keys->count++] = (aoticache_chosen_key){
        .key = *key, .description = description != NULL ? aoticache_cli_text("%s", description) : NULL};
}

/* Compares keys; among equal ones, those with a description come first. */
static int compare_keys(const void *left, const void *right)
{
    const aoticache_chosen_key *a = left, *b = right;
    int order = memcmp(a->key.bytes, b->key.bytes, sizeof a->key.bytes);
    return order != 0 ? order : (a->description == NULL) - (b->description == NULL);
}

static void sort_and_unite(aoticache_chosen_keys *keys)
{
    size_t kept = 0;
    if (keys->count > 0)
        qsort(keys->items, keys->count, sizeof *keys->items, compare_keys);
    for (size_t i = 0; i < keys->count; i++) {
        if (kept > 0 && aoticache_digest_equal(&keys->items[kept - 1].key, &keys->items[i].key))
            free(keys->items[i].description);
        else
            keys->items[kept++] = keys->items[i];
    }
    keys->count = kept;
}

void aoticache_chosen_keys_free(aoticache_chosen_keys *keys)
{
    for (size_t i = 0; i < keys->count; i++)
        free(keys->items[i].description);
    free(keys->items);
    *keys = (aoticache_chosen_keys){0};
}

/* ---- prefixes ---- */

static int read_prefix(const aoticache_cli *cli, const char *word, struct prefix *ret_prefix)
{
    size_t length = strlen(word);
    if (strstr(word, "::") != NULL)
        return aoticache_keys_say_operator(cli, word);
    if (length < PREFIX_MINIMUM || length >= AOTICACHE_DIGEST_HEX_BYTES ||
        strspn(word, "0123456789abcdefABCDEF") != length)
        return aoticache_cli_usage_error(
            cli, "'%s' is not a key: %d to 64 hexadecimal digits, as 'aoticache ls' prints", word, PREFIX_MINIMUM);
    *ret_prefix = (struct prefix){.word = word, .length = length};
    for (size_t i = 0; i < length; i++)
        ret_prefix->digits[i] = (char)tolower((unsigned char)word[i]);
    return AOTICACHE_CLI_EXIT_OK;
}

static bool has_prefix(const aoticache_digest *digest, const struct prefix *prefix)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(digest, hex);
    return memcmp(hex, prefix->digits, prefix->length) == 0;
}

static int resolve_prefix(const aoticache_cli *cli, const struct prefix *prefix, aoticache_chosen_keys *all)
{
    aoticache_key key;
    if (prefix->found.count == 1) {
        add_key(all, &prefix->found.items[0].key, prefix->found.items[0].description);
        return AOTICACHE_CLI_EXIT_OK;
    }
    if (prefix->found.count == 0 && aoticache_digest_from_hex(prefix->digits, &key) == AOTICACHE_OK) {
        add_key(all, &key, NULL);
        return AOTICACHE_CLI_EXIT_OK;
    }
    if (prefix->found.count == 0) {
        aoticache_cli_error(cli, "no key, artifact or library begins with %s", prefix->word);
        return AOTICACHE_CLI_EXIT_NOT_FOUND;
    }
    const char *listed[PREFIXES_LISTED];
    const aoticache_key *keys[PREFIXES_LISTED];
    size_t count = 0;
    for (; count < prefix->found.count && count < PREFIXES_LISTED; count++) {
        keys[count] = &prefix->found.items[count].key;
        listed[count] = prefix->found.items[count].description;
    }
    return aoticache_keys_refuse_ambiguous(cli, prefix->word, keys, listed, count);
}

/* ---- the pass ---- */

static bool match_entry(void *user, const aoticache_entry *entry)
{
    struct search *search = user;
    const aoticache_key_choice *choice = search->choice;
    if ((choice->op != NULL && fnmatch(choice->op, entry->op, 0) == 0) ||
        aoticache_pin_list_find(&search->tagged, &entry->key) != NULL)
        add_key(&search->all, &entry->key, entry->description);
    for (size_t i = 0; i < choice->keys.count; i++) {
        struct prefix *prefix = &search->prefixes[i];
        if (prefix->found.count <= PREFIXES_LISTED &&
            (has_prefix(&entry->key, prefix) || has_prefix(&entry->artifact, prefix) ||
             has_prefix(&entry->library, prefix)))
            add_key(&prefix->found, &entry->key, entry->description);
    }
    return true;
}

static bool match_pins(void *user, const aoticache_pins *pin)
{
    struct search *search = user;
    for (size_t i = 0; i < search->choice->keys.count; i++)
        if (search->prefixes[i].found.count <= PREFIXES_LISTED && has_prefix(&pin->key, &search->prefixes[i]))
            add_key(&search->prefixes[i].found, &pin->key, NULL);
    return true;
}

static int find_matches(const aoticache_cli *cli, aoticache_cache *cache, struct search *search)
{
    aoticache_error error = {.message = ""};
    if (search->choice->tag != NULL) {
        int result = aoticache_pin_list_read(cli, cache, search->choice->tag, &search->tagged);
        if (result != AOTICACHE_CLI_EXIT_OK)
            return result;
    }
    aoticache_status status = aoticache_cache_list(cache, NULL, NULL, match_entry, search, &error);
    if (status == AOTICACHE_OK && search->choice->keys.count > 0)
        status = aoticache_cache_list_pins(cache, NULL, match_pins, search, &error);
    for (size_t i = 0; i < search->tagged.count; i++)
        add_key(&search->all, &search->tagged.marks[i].key, NULL);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(cli, status, &error);
}

static int resolve_matches(const aoticache_cli *cli, aoticache_cache *cache, struct search *search)
{
    const aoticache_key_choice *choice = search->choice;
    int result = AOTICACHE_CLI_EXIT_OK;
    for (size_t i = 0; i < choice->keys.count && result == AOTICACHE_CLI_EXIT_OK; i++) {
        sort_and_unite(&search->prefixes[i].found);
        result = resolve_prefix(cli, &search->prefixes[i], &search->all);
    }
    sort_and_unite(&search->all);
    if (result != AOTICACHE_CLI_EXIT_OK || search->all.count > 0)
        return result;
    cleanup_free char *hint = aoticache_operator_hint(cache, choice->op != NULL ? choice->op : "*");
    if (choice->op != NULL)
        aoticache_cli_error(cli, "no entry for operators like %s%s", choice->op, hint);
    else
        aoticache_cli_error(cli, "no key has the tag %s", choice->tag);
    return AOTICACHE_CLI_EXIT_NOT_FOUND;
}

int aoticache_key_choice_resolve(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_key_choice *choice,
                                 aoticache_chosen_keys *ret_keys)
{
    struct search search = {.choice = choice};
    int result = AOTICACHE_CLI_EXIT_OK;
    search.prefixes = aoticache_cli_allocate(choice->keys.count + 1, sizeof *search.prefixes);
    for (size_t i = 0; i < choice->keys.count && result == AOTICACHE_CLI_EXIT_OK; i++)
        result = read_prefix(cli, choice->keys.items[i], &search.prefixes[i]);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = find_matches(cli, cache, &search);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = resolve_matches(cli, cache, &search);
    for (size_t i = 0; i < choice->keys.count; i++)
        aoticache_chosen_keys_free(&search.prefixes[i].found);
    free(search.prefixes);
    aoticache_pin_list_free(&search.tagged);
    if (result == AOTICACHE_CLI_EXIT_OK)
        *ret_keys = search.all;
    else
        aoticache_chosen_keys_free(&search.all);
    return result;
}
