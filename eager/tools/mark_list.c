/*
 * eager/tools/mark_list: pins and tags as the tool needs them: all at once, found by key, in words, as JSON; and the
 * change of many.
 */
#include "base/cleanup.h"
#include "eager/tools/commands.h"

#include <stdlib.h>
#include <string.h>

/* ---- a copy ---- */

static bool append_mark(void *user, const aoticache_mark *mark)
{
    aoticache_mark_list *list = user;
    /* Grown in doublings: capacity is the next power of two. */
    if ((list->count & (list->count - 1)) == 0)
        list->marks = aoticache_cli_resize(list->marks, list->count > 0 ? list->count * 2 : 1, sizeof *mark);
    char **tags = aoticache_cli_allocate(mark->tag_count + 1, sizeof *tags);
    for (size_t i = 0; i < mark->tag_count; i++)
        tags[i] = aoticache_cli_text("%s", mark->tags[i]);
    list->marks[list->count++] = (aoticache_mark){.key = mark->key,
                                                  .is_pinned = mark->is_pinned,
                                                  .tags = (const char *const *)tags,
                                                  .tag_count = mark->tag_count};
    return true;
}

int aoticache_marks_read(const aoticache_cli *cli, aoticache_cache *cache, const char *tag,
                         aoticache_mark_list *ret_list)
{
    aoticache_mark_list list = {0};
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_list_marks(cache, tag, append_mark, &list, &error);
    if (status != AOTICACHE_OK) {
        aoticache_marks_free(&list);
        return aoticache_cli_fail(cli, status, &error);
    }
    *ret_list = list;
    return AOTICACHE_CLI_EXIT_OK;
}

void aoticache_marks_free(aoticache_mark_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        for (size_t k = 0; k < list->marks[i].tag_count; k++)
            free((void *)(uintptr_t)list->marks[i].tags[k]);
        free((void *)(uintptr_t)list->marks[i].tags);
    }
    free(list->marks);
    *list = (aoticache_mark_list){0};
}

static int compare_keys(const void *left, const void *right)
{
    const aoticache_mark *a = left, *b = right;
    return memcmp(a->key.bytes, b->key.bytes, sizeof a->key.bytes);
}

const aoticache_mark *aoticache_marks_find(const aoticache_mark_list *list, const aoticache_key *key)
{
    aoticache_mark wanted = {.key = *key};
    return list->count > 0 ? bsearch(&wanted, list->marks, list->count, sizeof wanted, compare_keys) : NULL;
}

/* ---- words and JSON ---- */

char *aoticache_mark_text(const aoticache_mark *mark)
{
    char *text = aoticache_cli_text("%s", mark != NULL && mark->is_pinned ? "pinned" : "");
    for (size_t i = 0; mark != NULL && i < mark->tag_count; i++) {
        char *longer = aoticache_cli_text("%s%s%s", text, text[0] != '\0' ? " " : "", mark->tags[i]);
        free(text);
        text = longer;
    }
    return text;
}

bool aoticache_mark_has_tag(const aoticache_mark *mark, const char *tag)
{
    for (size_t i = 0; mark != NULL && i < mark->tag_count; i++)
        if (strcmp(mark->tags[i], tag) == 0)
            return true;
    return false;
}

void aoticache_mark_add_to_json(json_t *object, const aoticache_mark *mark)
{
    json_t *tags = aoticache_cli_json_array();
    for (size_t i = 0; mark != NULL && i < mark->tag_count; i++)
        aoticache_cli_json_append(tags, aoticache_cli_json_text(mark->tags[i]));
    aoticache_cli_json_set(object, "pinned", json_boolean(mark != NULL && mark->is_pinned));
    aoticache_cli_json_set(object, "tags", tags);
}

/* ---- changing many ---- */

static json_t *chosen_to_json(const aoticache_chosen_key *chosen, const aoticache_mark *mark)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "key", aoticache_cli_json_digest(&chosen->key));
    aoticache_cli_json_set(object, "description", aoticache_cli_json_text(chosen->description));
    aoticache_mark_add_to_json(object, mark);
    return object;
}

static void print_chosen(const aoticache_chosen_key *chosen, const aoticache_mark *mark, const char *done)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(&chosen->key, hex);
    cleanup_free char *marks = aoticache_mark_text(mark);
    cleanup_free char *description = aoticache_cli_escape(
        chosen->description != NULL ? chosen->description : "(nothing is stored for it yet)");
    printf("%s %.12s %s%s%s%s\n", done, hex, description, marks[0] != '\0' ? "  [" : "", marks,
           marks[0] != '\0' ? "]" : "");
}

int aoticache_marks_print(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_chosen_keys *keys,
                          const char *done)
{
    aoticache_mark_list marks = {0};
    int result = aoticache_marks_read(cli, cache, NULL, &marks);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    json_t *changed = cli->json ? aoticache_cli_json_array() : NULL;
    for (size_t i = 0; i < keys->count; i++) {
        const aoticache_mark *mark = aoticache_marks_find(&marks, &keys->items[i].key);
        if (changed != NULL)
            aoticache_cli_json_append(changed, chosen_to_json(&keys->items[i], mark));
        else if (!cli->quiet)
            print_chosen(&keys->items[i], mark, done);
    }
    if (changed != NULL) {
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(aoticache_cache_directory(cache)));
        aoticache_cli_json_set(object, "keys", changed);
        aoticache_cli_json_print(object);
    }
    aoticache_marks_free(&marks);
    return AOTICACHE_CLI_EXIT_OK;
}

#define AT_ONCE 1024 /* keys between two looks at the progress */

int aoticache_marks_change(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_chosen_keys *chosen,
                           aoticache_mark_action action, const char *const *tags, const char *done)
{
    static const char *const no_tags[] = {"", NULL}; /* one change, without any */
    aoticache_cli_progress progress = {.cli = cli, .what = "keys"};
    aoticache_status status = AOTICACHE_OK;
    aoticache_error error = {.message = ""};
    cleanup_free aoticache_key *keys = aoticache_cli_allocate(chosen->count + 1, sizeof *keys);
    for (size_t i = 0; i < chosen->count; i++)
        keys[i] = chosen->items[i].key;
    for (size_t i = 0; i < chosen->count && status == AOTICACHE_OK; i += AT_ONCE) {
        const size_t count = chosen->count - i < AT_ONCE ? chosen->count - i : AT_ONCE;
        aoticache_cli_progress_show(&progress, i, chosen->count);
        for (const char *const *tag = tags != NULL ? tags : no_tags; *tag != NULL && status == AOTICACHE_OK; tag++)
            status = aoticache_cache_mark_keys(cache, keys + i, count, action, *tag, NULL, &error);
    }
    aoticache_cli_progress_clear(&progress);
    return status == AOTICACHE_OK ? aoticache_marks_print(cli, cache, chosen, done)
                                  : aoticache_cli_fail(cli, status, &error);
}
