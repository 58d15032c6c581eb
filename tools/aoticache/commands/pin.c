/*
 * aoticache pin and unpin: kernels that no collection removes.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/internal.h"

#include <stdlib.h>

enum { OPTION_OP = 1, OPTION_TAG, OPTION_LIST };

static const aoticache_cli_option pin_options[] = {
    {OPTION_OP, "op", 0, "PATTERN", "all keys of operators like this: 'aten::*', a shell pattern"},
    {OPTION_TAG, "tag", 't', "TAG", "all keys with this tag"},
    {OPTION_LIST, "list", 'l', NULL, "list what is pinned"},
    {0, NULL, 0, NULL, NULL},
};

static int parse(aoticache_cli *cli, aoticache_key_choice *choice, bool *ret_list)
{
    for (;;) {
        const char *value = NULL;
        int id = aoticache_cli_next(cli, &value);
        if (id == AOTICACHE_CLI_STOP)
            return cli->exit_code;
        if (id == AOTICACHE_CLI_END)
            break;
        *ret_list |= id == OPTION_LIST;
        if (id == OPTION_OP)
            choice->op = value;
        else if (id == OPTION_TAG)
            choice->tag = value;
        else if (id == AOTICACHE_CLI_OPERAND)
            aoticache_key_choice_add(choice, value);
    }
    int ways = (choice->prefix_count > 0) + (choice->op != NULL) + (choice->tag != NULL) + *ret_list;
    if (ways > 1)
        return aoticache_cli_usage_error(cli, "keys, --op, --tag and --list cannot be combined");
    if (ways == 0)
        return aoticache_cli_usage_error(
            cli, "say which: a key, as 'aoticache ls' prints it, --op PATTERN or --tag TAG");
    return AOTICACHE_CLI_END;
}

/* ---- --list ---- */

struct listing {
    aoticache_key_choice choice;
    aoticache_chosen_keys pinned;
};

static bool take_pinned(void *user, const aoticache_pins *mark)
{
    struct listing *listing = user;
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(&mark->key, hex);
    if (mark->is_pinned)
        aoticache_key_choice_add(&listing->choice, aoticache_cli_text("%s", hex));
    return true;
}

static int list_pinned(const aoticache_cli *cli, aoticache_cache *cache)
{
    struct listing listing = {.choice = {0}};
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_list_pins(cache, NULL, take_pinned, &listing, &error);
    int result = status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(cli, status, &error);
    if (result == AOTICACHE_CLI_EXIT_OK && listing.choice.prefix_count > 0)
        result = aoticache_key_choice_resolve(cli, cache, &listing.choice, &listing.pinned);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_pin_list_print(cli, cache, &listing.pinned, "pinned");
    if (result == AOTICACHE_CLI_EXIT_OK && listing.pinned.count == 0 && !cli->json)
        aoticache_cli_note(cli, "nothing is pinned");
    for (size_t i = 0; i < listing.choice.prefix_count; i++)
        free((void *)(uintptr_t)listing.choice.prefixes[i]);
    free(listing.choice.prefixes);
    aoticache_chosen_keys_free(&listing.pinned);
    return result;
}

/* ---- the commands ---- */

static int change_pins(aoticache_cli *cli, bool pin)
{
    aoticache_key_choice choice = {0};
    aoticache_chosen_keys keys = {0};
    aoticache_cache *cache = NULL;
    bool list = false;
    int result = parse(cli, &choice, &list);
    if (result == AOTICACHE_CLI_END) {
        result = aoticache_cli_open_or_say(cli, false, &cache);
        if (result == AOTICACHE_CLI_EXIT_OK && list)
            result = list_pinned(cli, cache);
        else if (result == AOTICACHE_CLI_EXIT_OK)
            result = aoticache_key_choice_resolve(cli, cache, &choice, &keys);
        if (result == AOTICACHE_CLI_EXIT_OK && !list)
            result = aoticache_pin_list_change(cli, cache, &keys, pin ? AOTICACHE_PIN : AOTICACHE_UNPIN, NULL);
    }
    aoticache_chosen_keys_free(&keys);
    aoticache_cache_close(cache);
    free(choice.prefixes);
    return result;
}

static int pin_command(aoticache_cli *cli)
{
    return change_pins(cli, true);
}

const aoticache_command aoticache_command_pin = {
    .word = "pin",
    .program =
        {
            .name = "aoticache pin",
            .help_hint = "aoticache help pin",
            .usage = "KEY...|--op PATTERN|--tag TAG|--list [OPTION]...",
            .summary = "Keeps kernels: no collection removes what is pinned.",
            .details = "KEY is as 'aoticache show' takes it; all 64 digits name a key for which nothing is there yet.\n"
                       "A pin holds for all entries of the key, those that come later too, and survives the loss of\n"
                       "the index. 'aoticache rm' refuses to remove what is pinned, unless --force is given.\n"
                       "--op and --tag pin the keys that are there now, not those that come later.",
            .options = pin_options,
        },
    .run = pin_command,
};

static int unpin_command(aoticache_cli *cli)
{
    return change_pins(cli, false);
}

const aoticache_command aoticache_command_unpin = {
    .word = "unpin",
    .program =
        {
            .name = "aoticache unpin",
            .help_hint = "aoticache help unpin",
            .usage = "KEY...|--op PATTERN|--tag TAG|--list [OPTION]...",
            .summary = "Takes pins away: the kernels may be collected again.",
            .details = "KEY is as 'aoticache pin' takes it. Each key is printed with what was done: unpinned, or not pinned,\n"
                       "where there was nothing to do.",
            .options = pin_options,
        },
    .run = unpin_command,
};
