/*
 * aoticache rm: removes kernels from the cache, by key, by operator, or all.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/aoticache_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rm {
    const aoticache_cli *cli;
    aoticache_cache *cache;
    aoticache_cli_list keys; /* prefixes of keys */
    const char *op;
    bool all, failed, yes, force;
};

static const aoticache_cli_option rm_options[] = {
    {"op", 0, "OPERATOR", "remove all entries of this operator", AOTICACHE_CLI_TEXT(struct rm, op)},
    {"all", 0, NULL, "remove all entries, and forget all failed compiles", AOTICACHE_CLI_SET(struct rm, all)},
    {"failed", 0, NULL, "forget all failed compiles; they are tried again", AOTICACHE_CLI_SET(struct rm, failed)},
    {"yes", 'y', NULL, "do not ask", AOTICACHE_CLI_SET(struct rm, yes)},
    {"force", 'f', NULL, "remove pinned entries as well", AOTICACHE_CLI_SET(struct rm, force)},
    {0},
};

static int check_options(const struct rm *rm)
{
    int ways = (rm->keys.count > 0) + (rm->op != NULL) + rm->all;
    if (ways > 1)
        return aoticache_cli_usage_error(rm->cli, "keys, --op and --all cannot be combined");
    if (ways == 0 && !rm->failed)
        return aoticache_cli_usage_error(rm->cli, "specify what to remove: a key, --op OPERATOR, --all or --failed");
    if (rm->all && !rm->yes && !isatty(STDIN_FILENO))
        return aoticache_cli_usage_error(rm->cli, "--all asks first, but there is no terminal to ask on; add --yes");
    return AOTICACHE_CLI_EXIT_OK;
}

/* Moves the entries of `more` into `list`. */
static void append_entries(aoticache_entry_list *list, aoticache_entry_list *more)
{
    list->entries = aoticache_cli_resize(list->entries, list->count + more->count, sizeof *list->entries);
    memcpy(list->entries + list->count, more->entries, more->count * sizeof *more->entries);
    list->count += more->count;
    free(more->entries);
}

static int find_targets(const struct rm *rm, aoticache_entry_list *ret_list)
{
    for (size_t i = 0; i < rm->keys.count; i++) {
        aoticache_entry_list found = {0};
        int result = aoticache_entries_find(rm->cli, rm->cache, rm->keys.items[i], &found);
        if (result != AOTICACHE_CLI_EXIT_OK)
            return result;
        append_entries(ret_list, &found);
    }
    if (rm->op == NULL && !rm->all)
        return AOTICACHE_CLI_EXIT_OK;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_entries_read(rm->cache, rm->op, NULL, ret_list, &error);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        return aoticache_cli_fail(rm->cli, status, &error);
    if (ret_list->count == 0 && rm->op != NULL) {
        cleanup_free char *hint = aoticache_operator_hint(rm->cache, rm->op);
        aoticache_cli_error(rm->cli, "no entry for operator %s%s", rm->op, hint);
        return AOTICACHE_CLI_EXIT_NOT_FOUND;
    }
    return AOTICACHE_CLI_EXIT_OK;
}

/* Moves the entries of pinned keys from the list into another. */
static void split_off_pinned(const aoticache_pin_list *marks, aoticache_entry_list *list,
                             aoticache_entry_list *ret_pinned)
{
    size_t kept = 0;
    aoticache_entry_list pinned = {.entries = aoticache_cli_allocate(list->count + 1, sizeof *list->entries)};
    for (size_t i = 0; i < list->count; i++) {
        const aoticache_pins *mark = aoticache_pin_list_find(marks, &list->entries[i].key);
        if (mark != NULL && mark->is_pinned)
            pinned.entries[pinned.count++] = list->entries[i];
        else
            list->entries[kept++] = list->entries[i];
    }
    list->count = kept;
    *ret_pinned = pinned;
}

/* Handles pinned keys: if keys are named one by one, a pinned one is refused, together with all others; --op and --all skip
 * pinned ones. */
static int spare_pinned(const struct rm *rm, aoticache_entry_list *list)
{
    aoticache_pin_list marks = {0};
    aoticache_entry_list pinned = {0};
    if (rm->force)
        return AOTICACHE_CLI_EXIT_OK;
    int result = aoticache_pin_list_read(rm->cli, rm->cache, NULL, &marks);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    split_off_pinned(&marks, list, &pinned);
    if (pinned.count > 0 && rm->keys.count > 0) {
        char hex[AOTICACHE_DIGEST_HEX_BYTES];
        aoticache_digest_to_hex(&pinned.entries[0].key, hex);
        cleanup_free char *description = aoticache_cli_escape(pinned.entries[0].description);
        result = aoticache_cli_error(rm->cli, "%.12s is pinned (%s); nothing was removed: unpin it, or add --force",
                                     hex, description);
    } else if (pinned.count > 0) {
        aoticache_cli_note(rm->cli, "%zu %s pinned and stay%s; --force removes them, too", pinned.count,
                           pinned.count == 1 ? "entry is" : "entries are", pinned.count == 1 ? "s" : "");
    }
    aoticache_pin_list_free(&marks);
    aoticache_entries_free(&pinned);
    return result;
}

/* Asks on a terminal, unless --yes is given. Any answer except y or yes means no. */
static bool ask_for_confirmation(const struct rm *rm, size_t count)
{
    if (rm->yes || count == 0 || !isatty(STDIN_FILENO))
        return true;
    fprintf(stderr, "Remove %zu %s from %s? [y/N] ", count, count == 1 ? "entry" : "entries",
            aoticache_cache_directory(rm->cache));
    char answer[16] = "";
    if (fgets(answer, sizeof answer, stdin) == NULL)
        fputc('\n', stderr);
    answer[strcspn(answer, "\n")] = '\0';
    return strcasecmp(answer, "y") == 0 || strcasecmp(answer, "yes") == 0;
}

/* Entries of one key are listed one after the other. */
static bool already_removed(const aoticache_entry_list *list, size_t position)
{
    return position > 0 && aoticache_digest_equal(&list->entries[position - 1].key, &list->entries[position].key);
}

/* Removes the entries. Removal is by key and includes all its entries: later ones of the same key are gone already. */
static int remove_entries(const struct rm *rm, const aoticache_entry_list *list, json_t *removed)
{
    for (size_t i = 0; i < list->count; i++) {
        const aoticache_entry *entry = &list->entries[i];
        aoticache_error error = {.message = ""};
        aoticache_status status = AOTICACHE_OK;
        if (!already_removed(list, i))
            status = aoticache_cache_remove(rm->cache, &entry->key, &error);
        /* Another process was faster: the result is the requested one. */
        if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
            return aoticache_cli_fail(rm->cli, status, &error);
        if (removed != NULL) {
            aoticache_cli_json_append(removed, aoticache_entry_to_json(entry));
        } else if (!rm->cli->quiet) {
            char hex[AOTICACHE_DIGEST_HEX_BYTES];
            aoticache_digest_to_hex(&entry->key, hex);
            cleanup_free char *description = aoticache_cli_escape(entry->description);
            printf("removed %.12s %s\n", hex, description);
        }
    }
    return AOTICACHE_CLI_EXIT_OK;
}

static int forget_failures(const struct rm *rm)
{
    aoticache_error error = {.message = ""};
    if (!rm->failed && !rm->all)
        return AOTICACHE_CLI_EXIT_OK;
    aoticache_status status = aoticache_cache_forget_failures(rm->cache, NULL, &error);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(rm->cli, status, &error);
}

static int remove_targets(const struct rm *rm, const aoticache_entry_list *list)
{
    if (!ask_for_confirmation(rm, list->count)) {
        aoticache_cli_note(rm->cli, "nothing removed");
        return AOTICACHE_CLI_EXIT_FAILURE;
    }
    json_t *removed = rm->cli->json ? aoticache_cli_json_array() : NULL;
    int result = remove_entries(rm, list, removed);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = forget_failures(rm);
    if (removed != NULL) {
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(aoticache_cache_directory(rm->cache)));
        aoticache_cli_json_set(object, "removed", removed);
        aoticache_cli_json_print(object);
    }
    return result;
}

static int rm_command(aoticache_cli *cli)
{
    struct rm rm = {.cli = cli};
    aoticache_entry_list list = {0};
    if (!aoticache_cli_parse(cli, &rm))
        return cli->exit_code;
    int result = check_options(&rm);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_cli_open_or_report(cli, false, &rm.cache);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = find_targets(&rm, &list);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = spare_pinned(&rm, &list);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = remove_targets(&rm, &list);
    aoticache_entries_free(&list);
    aoticache_cache_close(rm.cache);
    free(rm.keys.items);
    return result;
}

const aoticache_command aoticache_command_rm = {
    .word = "rm",
    .program =
        {
            .name = "aoticache rm",
            .help_hint = "aoticache help rm",
            .usage = "KEY...|--op OPERATOR|--all|--failed [OPTION]...",
            .summary = "Removes kernels from the cache.",
            .details = "KEY is the same as for 'aoticache show'. On a terminal, rm asks before it removes anything. A\n"
                       "kernel that a running program has loaded continues to work; the next collection removes its\n"
                       "files. A pinned KEY is refused, and --op and --all skip pinned entries. --force removes them\n"
                       "too; the pin stays with the key. To remove the whole cache, remove its directory:\n"
                       "  rm -rf \"$(aoticache config directory)\"",
            .options = rm_options,
            .operand = {AOTICACHE_CLI_LIST(struct rm, keys)},
        },
    .run = rm_command,
};
