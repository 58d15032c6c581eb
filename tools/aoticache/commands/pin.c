/*
 * aoticache pin and unpin: protects kernels from collections, and ends that.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/aoticache_internal.h"

#include <stdlib.h>

struct pin {
    aoticache_key_choice choice;
    bool list;
};

static const aoticache_cli_option pin_options[] = {
    {"op", 0, "PATTERN", "all keys of operators like this: 'aten::*', a shell pattern",
     AOTICACHE_CLI_TEXT(struct pin, choice.op)},
    {"tag", 't', "TAG", "all keys with this tag", AOTICACHE_CLI_TEXT(struct pin, choice.tag)},
    {"list", 'l', NULL, "list what is pinned", AOTICACHE_CLI_SET(struct pin, list)},
    {0},
};

static int check_options(const aoticache_cli *cli, const struct pin *pin)
{
    int ways = (pin->choice.keys.count > 0) + (pin->choice.op != NULL) + (pin->choice.tag != NULL) + pin->list;
    if (ways > 1)
        return aoticache_cli_usage_error(cli, "keys, --op, --tag and --list cannot be combined");
    if (ways == 0)
        return aoticache_cli_usage_error(cli, "specify a key, as 'aoticache ls' prints it, --op PATTERN or --tag TAG");
    return AOTICACHE_CLI_EXIT_OK;
}

/* ---- --list ---- */

struct listing {
    aoticache_key_choice choice;
    aoticache_chosen_keys pinned;
};

static bool append_pinned(void *user, const aoticache_pins *mark)
{
    struct listing *listing = user;
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(&mark->key, hex);
    if (mark->is_pinned)
        aoticache_cli_list_add(&listing->choice.keys, aoticache_cli_text("%s", hex));
    return true;
}

static int list_pinned(const aoticache_cli *cli, aoticache_cache *cache)
{
    struct listing listing = {.pinned = {0}};
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_list_pins(cache, NULL, append_pinned, &listing, &error);
    int result = status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(cli, status, &error);
    if (result == AOTICACHE_CLI_EXIT_OK && listing.choice.keys.count > 0)
        result = aoticache_key_choice_resolve(cli, cache, &listing.choice, &listing.pinned);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_pin_list_print(cli, cache, &listing.pinned, "pinned");
    if (result == AOTICACHE_CLI_EXIT_OK && listing.pinned.count == 0 && !cli->json)
        aoticache_cli_note(cli, "nothing is pinned");
    for (size_t i = 0; i < listing.choice.keys.count; i++)
        free((void *)(uintptr_t)listing.choice.keys.items[i]);
    free(listing.choice.keys.items);
    aoticache_chosen_keys_free(&listing.pinned);
    return result;
}

static int change_pins(aoticache_cli *cli, bool pins)
{
    struct pin pin = {0};
    aoticache_chosen_keys keys = {0};
    aoticache_cache *cache = NULL;
    if (!aoticache_cli_parse(cli, &pin))
        return cli->exit_code;
    int result = check_options(cli, &pin);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_cli_open_or_report(cli, false, &cache);
    if (result == AOTICACHE_CLI_EXIT_OK && pin.list)
        result = list_pinned(cli, cache);
    else if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_key_choice_resolve(cli, cache, &pin.choice, &keys);
    if (result == AOTICACHE_CLI_EXIT_OK && !pin.list)
        result = aoticache_pin_list_change(cli, cache, &keys, pins ? AOTICACHE_PIN : AOTICACHE_UNPIN, NULL);
    aoticache_chosen_keys_free(&keys);
    aoticache_cache_close(cache);
    free(pin.choice.keys.items);
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
            .summary = "Pins kernels. No collection removes a pinned kernel.",
            .details =
                "KEY is written as for 'aoticache show'. All 64 digits may also name a key that has no entry yet.\n"
                "A pin covers every entry of its key, present and future, and survives the loss of the index.\n"
                "'aoticache rm' removes a pinned kernel only with --force.\n"
                "--op and --tag pin the keys that are in the cache now, not those added later.",
            .options = pin_options,
            .operand = {AOTICACHE_CLI_LIST(struct pin, choice.keys)},
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
            .summary = "Removes pins. Collections may remove these kernels again.",
            .details =
                "KEY is written as for 'aoticache pin'. Each key is printed with the result: unpinned, or not pinned\n"
                "if it had no pin.",
            .options = pin_options,
            .operand = {AOTICACHE_CLI_LIST(struct pin, choice.keys)},
        },
    .run = unpin_command,
};
