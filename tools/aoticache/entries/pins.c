/*
 * tools/aoticache/entries/pins: pins and tags for the tool: reads all of them, finds them by key, prints them as text and
 * JSON, and changes many.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"

#include <stdlib.h>
#include <string.h>

/* ---- a copy ---- */

static bool append_pin(void *user, const aoticache_pins *pin)
{
    aoticache_pin_list *list = user;
    list->marks = aoticache_cli_grow(list->marks, list->count, sizeof *pin);
    char **tags = aoticache_cli_allocate(pin->tag_count + 1, sizeof *tags);
    for (size_t i = 0; i < pin->tag_count; i++)
        tags[i] = aoticache_cli_text("%s", pin->tags[i]);
    list->marks[list->count++] = (aoticache_pins){
        .key = pin->key, .is_pinned = pin->is_pinned, .tags = (const char *const *)tags, .tag_count = pin->tag_count};
    return true;
}

int aoticache_pin_list_read(const aoticache_cli *cli, aoticache_cache *cache, const char *tag,
                            aoticache_pin_list *ret_list)
{
    aoticache_pin_list list = {0};
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_list_pins(cache, tag, append_pin, &list, &error);
    if (status != AOTICACHE_OK) {
        aoticache_pin_list_free(&list);
        return aoticache_cli_fail(cli, status, &error);
    }
    *ret_list = list;
    return AOTICACHE_CLI_EXIT_OK;
}

void aoticache_pin_list_free(aoticache_pin_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        for (size_t k = 0; k < list->marks[i].tag_count; k++)
            free((void *)(uintptr_t)list->marks[i].tags[k]);
        free((void *)(uintptr_t)list->marks[i].tags);
    }
    free(list->marks);
    *list = (aoticache_pin_list){0};
}

static int compare_keys(const void *left, const void *right)
{
    const aoticache_pins *a = left, *b = right;
    return memcmp(a->key.bytes, b->key.bytes, sizeof a->key.bytes);
}

const aoticache_pins *aoticache_pin_list_find(const aoticache_pin_list *list, const aoticache_key *key)
{
    aoticache_pins wanted = {.key = *key};
    return list->count > 0 ? bsearch(&wanted, list->marks, list->count, sizeof wanted, compare_keys) : NULL;
}

/* ---- words and JSON ---- */

char *aoticache_pin_text(const aoticache_pins *pin)
{
    char *text = aoticache_cli_text("%s", pin != NULL && pin->is_pinned ? "pinned" : "");
    for (size_t i = 0; pin != NULL && i < pin->tag_count; i++) {
        char *longer = aoticache_cli_text("%s%s%s", text, text[0] != '\0' ? " " : "", pin->tags[i]);
        free(text);
        text = longer;
    }
    return text;
}

bool aoticache_pin_has_tag(const aoticache_pins *pin, const char *tag)
{
    for (size_t i = 0; pin != NULL && i < pin->tag_count; i++)
        if (strcmp(pin->tags[i], tag) == 0)
            return true;
    return false;
}

void aoticache_pin_add_to_json(json_t *object, const aoticache_pins *pin)
{
    json_t *tags = aoticache_cli_json_array();
    for (size_t i = 0; pin != NULL && i < pin->tag_count; i++)
        aoticache_cli_json_append(tags, aoticache_cli_json_text(pin->tags[i]));
    aoticache_cli_json_set(object, "pinned", json_boolean(pin != NULL && pin->is_pinned));
    aoticache_cli_json_set(object, "tags", tags);
}

/* ---- printing keys ---- */

/* The result for each key; a list has only `done`. */
struct outcome {
    const char *done, *not_done; /* "unpinned", "not pinned" */
    const bool *changed;         /* by key; NULL for a list */
};

static json_t *chosen_to_json(const aoticache_chosen_key *chosen, const aoticache_pins *pin, const bool *changed)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "key", aoticache_cli_json_digest(&chosen->key));
    aoticache_cli_json_set(object, "description", aoticache_cli_json_text(chosen->description));
    aoticache_pin_add_to_json(object, pin);
    if (changed != NULL)
        aoticache_cli_json_set(object, "changed", json_boolean(*changed));
    return object;
}

static void print_chosen(const aoticache_chosen_key *chosen, const aoticache_pins *pin, const char *word)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(&chosen->key, hex);
    cleanup_free char *marks = aoticache_pin_text(pin);
    cleanup_free char *description =
        aoticache_cli_escape(chosen->description != NULL ? chosen->description : "(nothing is stored for it yet)");
    printf("%s %.12s %s%s%s%s\n", word, hex, description, marks[0] != '\0' ? "  [" : "", marks,
           marks[0] != '\0' ? "]" : "");
}

static int print_keys(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_chosen_keys *keys,
                      const struct outcome *outcome)
{
    aoticache_pin_list marks = {0};
    int result = aoticache_pin_list_read(cli, cache, NULL, &marks);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    json_t *array = cli->json ? aoticache_cli_json_array() : NULL;
    for (size_t i = 0; i < keys->count; i++) {
        const aoticache_pins *pin = aoticache_pin_list_find(&marks, &keys->items[i].key);
        const bool *changed = outcome->changed != NULL ? &outcome->changed[i] : NULL;
        if (array != NULL)
            aoticache_cli_json_append(array, chosen_to_json(&keys->items[i], pin, changed));
        else if (!cli->quiet)
            print_chosen(&keys->items[i], pin, changed == NULL || *changed ? outcome->done : outcome->not_done);
    }
    if (array != NULL) {
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(aoticache_cache_directory(cache)));
        aoticache_cli_json_set(object, "keys", array);
        aoticache_cli_json_print(object);
    }
    aoticache_pin_list_free(&marks);
    return AOTICACHE_CLI_EXIT_OK;
}

int aoticache_pin_list_print(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_chosen_keys *keys,
                             const char *word)
{
    return print_keys(cli, cache, keys, &(struct outcome){.done = word});
}

/* ---- changing many ---- */

#define AT_ONCE 1024 /* keys between two updates of the progress */

static bool would_change(const aoticache_pins *pin, aoticache_pin_action action, const char *const *tags)
{
    const bool is_pinned = pin != NULL && pin->is_pinned;
    if (action == AOTICACHE_PIN || action == AOTICACHE_UNPIN)
        return is_pinned != (action == AOTICACHE_PIN);
    for (; *tags != NULL; tags++)
        if (aoticache_pin_has_tag(pin, *tags) != (action == AOTICACHE_TAG))
            return true;
    return false;
}

/* Returns which keys the action would change, given the current pins and tags. The caller frees it with free(). */
static int predict_changes(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_chosen_keys *chosen,
                           aoticache_pin_action action, const char *const *tags, bool **ret_changed)
{
    aoticache_pin_list marks = {0};
    int result = aoticache_pin_list_read(cli, cache, NULL, &marks);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    bool *changed = aoticache_cli_allocate(chosen->count + 1, sizeof *changed);
    for (size_t i = 0; i < chosen->count; i++)
        changed[i] = would_change(aoticache_pin_list_find(&marks, &chosen->items[i].key), action, tags);
    aoticache_pin_list_free(&marks);
    *ret_changed = changed;
    return AOTICACHE_CLI_EXIT_OK;
}

static aoticache_status change_all(const aoticache_cli *cli, aoticache_cache *cache,
                                   const aoticache_chosen_keys *chosen, aoticache_pin_action action,
                                   const char *const *tags, aoticache_error *ret_error)
{
    static const char *const no_tags[] = {"", NULL}; /* one change, without tags */
    aoticache_cli_progress progress = {.cli = cli, .what = "keys"};
    aoticache_status status = AOTICACHE_OK;
    cleanup_free aoticache_key *keys = aoticache_cli_allocate(chosen->count + 1, sizeof *keys);
    for (size_t i = 0; i < chosen->count; i++)
        keys[i] = chosen->items[i].key;
    for (size_t i = 0; i < chosen->count && status == AOTICACHE_OK; i += AT_ONCE) {
        const size_t count = chosen->count - i < AT_ONCE ? chosen->count - i : AT_ONCE;
        aoticache_cli_progress_show(&progress, i, chosen->count);
        for (const char *const *tag = tags != NULL ? tags : no_tags; *tag != NULL && status == AOTICACHE_OK; tag++)
            status = aoticache_cache_change_pins(cache, keys + i, count, action, *tag, NULL, ret_error);
    }
    aoticache_cli_progress_clear(&progress);
    return status;
}

static void print_summary(const aoticache_cli *cli, const aoticache_chosen_keys *chosen, const struct outcome *outcome)
{
    size_t count = 0;
    for (size_t i = 0; i < chosen->count; i++)
        count += outcome->changed[i];
    if (count == 0)
        aoticache_cli_note(cli, "nothing was changed: %zu %s %s", chosen->count,
                           chosen->count == 1 ? "key is" : "keys are", outcome->not_done);
    else if (count < chosen->count)
        aoticache_cli_note(cli, "%zu %s %s, %zu %s", count, count == 1 ? "key" : "keys", outcome->done,
                           chosen->count - count, outcome->not_done);
}

int aoticache_pin_list_change(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_chosen_keys *chosen,
                              aoticache_pin_action action, const char *const *tags)
{
    static const struct outcome outcomes[] = {
        [AOTICACHE_PIN] = {.done = "pinned", .not_done = "already pinned"},
        [AOTICACHE_UNPIN] = {.done = "unpinned", .not_done = "not pinned"},
        [AOTICACHE_TAG] = {.done = "tagged", .not_done = "already tagged"},
        [AOTICACHE_UNTAG] = {.done = "untagged", .not_done = "not tagged"},
    };
    struct outcome outcome = outcomes[action];
    aoticache_error error = {.message = ""};
    cleanup_free bool *changed = NULL;
    int result = predict_changes(cli, cache, chosen, action, tags, &changed);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    aoticache_status status = change_all(cli, cache, chosen, action, tags, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(cli, status, &error);
    outcome.changed = changed;
    result = print_keys(cli, cache, chosen, &outcome);
    if (result == AOTICACHE_CLI_EXIT_OK)
        print_summary(cli, chosen, &outcome);
    return result;
}
