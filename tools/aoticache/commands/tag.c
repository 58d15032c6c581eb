/*
 * aoticache tag: names that users give to kernels, to find, keep, list or move them together.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/aoticache_internal.h"

#include <stdlib.h>
#include <string.h>

struct tag {
    aoticache_key_choice choice;
    aoticache_cli_list words; /* KEY and tags, or tags, or with --list keys */
    const char *const *tags;  /* after the key in `words`; NULL-terminated */
    bool remove, list;
};

static const aoticache_cli_option tag_options[] = {
    {"op", 0, "PATTERN", "all keys of operators like this, a shell pattern; then all words are tags",
     AOTICACHE_CLI_TEXT(struct tag, choice.op)},
    {"tag", 't', "TAG", "all keys with this tag; then all words are tags", AOTICACHE_CLI_TEXT(struct tag, choice.tag)},
    {"delete", 'd', NULL, "remove the tags", AOTICACHE_CLI_SET(struct tag, remove)},
    {"list", 'l', NULL, "list the tags and how many keys have each, or the tags of these keys",
     AOTICACHE_CLI_SET(struct tag, list)},
    {0},
};

static int divide_words(const aoticache_cli *cli, struct tag *tag)
{
    bool chosen = tag->choice.op != NULL || tag->choice.tag != NULL;
    size_t keys = tag->list ? tag->words.count : chosen ? 0 : 1;
    if (tag->choice.op != NULL && tag->choice.tag != NULL)
        return aoticache_cli_usage_error(cli, "--op and --tag cannot be combined");
    if (tag->list && (tag->remove || chosen))
        return aoticache_cli_usage_error(cli, "--list cannot be combined with --delete, --op or --tag");
    if (!tag->list && tag->words.count <= keys)
        return aoticache_cli_usage_error(cli, chosen ? "a tag is needed"
                                                     : "a key, as 'aoticache ls' prints it, and a tag are needed");
    for (size_t i = 0; i < keys; i++)
        aoticache_cli_list_add(&tag->choice.keys, tag->words.items[i]);
    tag->tags = tag->words.count > 0 ? tag->words.items + keys : NULL;
    for (size_t i = keys; i < tag->words.count; i++) {
        aoticache_error error = {.message = ""};
        if (aoticache_tag_check(tag->words.items[i], &error) != AOTICACHE_OK)
            return aoticache_cli_usage_error(cli, "%s", error.message);
    }
    return AOTICACHE_CLI_EXIT_OK;
}

/* ---- changing ---- */

static int change_tags(const aoticache_cli *cli, aoticache_cache *cache, const struct tag *tag)
{
    aoticache_chosen_keys keys = {0};
    int result = aoticache_key_choice_resolve(cli, cache, &tag->choice, &keys);
    if (result == AOTICACHE_CLI_EXIT_OK && tag->list)
        result = aoticache_pin_list_print(cli, cache, &keys, "key");
    else if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_pin_list_change(cli, cache, &keys, tag->remove ? AOTICACHE_UNTAG : AOTICACHE_TAG, tag->tags);
    aoticache_chosen_keys_free(&keys);
    return result;
}

/* ---- all tags ---- */

typedef struct tag_count {
    const char *tag; /* borrowed from the list */
    uint64_t keys, pinned;
} tag_count;

static int compare_tags(const void *left, const void *right)
{
    const tag_count *a = left, *b = right;
    return strcmp(a->tag, b->tag);
}

/* Returns one count for each tag, sorted; the caller frees them with free(). */
static tag_count *count_tags(const aoticache_pin_list *marks, size_t *ret_count)
{
    size_t all = 0, count = 0;
    for (size_t i = 0; i < marks->count; i++)
        all += marks->marks[i].tag_count;
    tag_count *counts = aoticache_cli_allocate(all + 1, sizeof *counts);
    all = 0;
    for (size_t i = 0; i < marks->count; i++)
        for (size_t k = 0; k < marks->marks[i].tag_count; k++)
            counts[all++] = (tag_count){marks->marks[i].tags[k], 1, marks->marks[i].is_pinned};
    qsort(counts, all, sizeof *counts, compare_tags);
    for (size_t i = 0; i < all; i++) {
        if (count > 0 && strcmp(counts[count - 1].tag, counts[i].tag) == 0) {
            counts[count - 1].keys += counts[i].keys;
            counts[count - 1].pinned += counts[i].pinned;
        } else {
            counts[count++] = counts[i];
        }
    }
    *ret_count = count;
    return counts;
}

static void print_counts_json(const char *directory, const tag_count *counts, size_t count)
{
    json_t *object = aoticache_cli_json_object();
    json_t *tags = aoticache_cli_json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *each = aoticache_cli_json_object();
        aoticache_cli_json_set(each, "tag", aoticache_cli_json_text(counts[i].tag));
        aoticache_cli_json_set(each, "keys", aoticache_cli_json_count(counts[i].keys));
        aoticache_cli_json_set(each, "pinned", aoticache_cli_json_count(counts[i].pinned));
        aoticache_cli_json_append(tags, each);
    }
    aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(directory));
    aoticache_cli_json_set(object, "tags", tags);
    aoticache_cli_json_print(object);
}

static void print_counts(const aoticache_cli *cli, const tag_count *counts, size_t count)
{
    static const aoticache_cli_column columns[] = {
        {"TAG", false, true}, {"KEYS", true, false}, {"PINNED", true, false}};
    aoticache_cli_table *table = aoticache_cli_table_create(columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < count; i++) {
        cleanup_free char *keys = aoticache_cli_text("%llu", (unsigned long long)counts[i].keys);
        cleanup_free char *pinned = aoticache_cli_text("%llu", (unsigned long long)counts[i].pinned);
        const char *cells[] = {counts[i].tag, keys, pinned};
        aoticache_cli_table_add(table, AOTICACHE_CLI_PLAIN, cells);
    }
    aoticache_cli_table_print(table, cli);
    aoticache_cli_table_free(table);
}

static int list_tags(const aoticache_cli *cli, aoticache_cache *cache)
{
    aoticache_pin_list marks = {0};
    size_t count = 0;
    int result = aoticache_pin_list_read(cli, cache, NULL, &marks);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    cleanup_free tag_count *counts = count_tags(&marks, &count);
    if (cli->json)
        print_counts_json(aoticache_cache_directory(cache), counts, count);
    else if (count > 0)
        print_counts(cli, counts, count);
    else
        aoticache_cli_note(cli, "there are no tags");
    aoticache_pin_list_free(&marks);
    return AOTICACHE_CLI_EXIT_OK;
}

static int tag_command(aoticache_cli *cli)
{
    struct tag tag = {.list = false};
    aoticache_cache *cache = NULL;
    if (!aoticache_cli_parse(cli, &tag))
        return cli->exit_code;
    int result = divide_words(cli, &tag);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_cli_open_or_report(cli, false, &cache);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = tag.list && tag.words.count == 0 ? list_tags(cli, cache) : change_tags(cli, cache, &tag);
    aoticache_cache_close(cache);
    free(tag.choice.keys.items);
    free(tag.words.items);
    return result;
}

const aoticache_command aoticache_command_tag = {
    .word = "tag",
    .program =
        {
            .name = "aoticache tag",
            .help_hint = "aoticache help tag",
            .usage = "KEY TAG... [OPTION]...\n"
                     "       aoticache tag --op PATTERN|--tag TAG TAG... [OPTION]...\n"
                     "       aoticache tag --list [KEY]... [OPTION]...",
            .summary = "Adds, removes and lists tags of kernels.",
            .details =
                "KEY is the same as for 'aoticache pin'. A tag has at most 63 characters: letters, digits and\n"
                ". _ - : /. Tags belong to the key, as pins do. 'ls --tag', 'du --by tag' and 'pin --tag' use them.",
            .options = tag_options,
            .operand = {AOTICACHE_CLI_LIST(struct tag, words)},
        },
    .run = tag_command,
};
