/*
 * aoticache push and pull: send kernels to the configured remotes, and fetch them.
 */
#include "tools/aoticache/aoticache_internal.h"
#include "tools/aoticache/transfer/transfer_internal.h"

#include <stdlib.h>

#define TABLE(table_) {.kind = AOTICACHE_CLI_KIND_TABLE, .table = (table_)}

typedef struct remote_command {
    aoticache_transfer_command transfer; /* first member: the option tables expect it there */
    const char *remote;
    bool is_all;
    aoticache_cli_list lists;        /* files that select requests */
    aoticache_kernel_options kernel; /* its environment is in the keys of a list */
    aoticache_key *keys;
} remote_command;

/* Options for lists. */
#define LIST_OPTIONS                                                                              \
    {"list", 0, "FILE", "only keys of this list ('aoticache help warm'); may be repeated",        \
     AOTICACHE_CLI_LIST(remote_command, lists)},                                                  \
        {"hook", 0, "auto|worker|c|command:PROGRAM",                                              \
         "with --list: the hook that compiles: its versions are part of the\nkeys; default auto", \
         AOTICACHE_CLI_FUNCTION(remote_command, kernel, aoticache_hook_kind_read)},               \
        AOTICACHE_CLI_TABLE(remote_command, kernel, aoticache_hook_option_table)

static const aoticache_cli_option push_options[] = {
    {"all", 'a', NULL, "all kernels", AOTICACHE_CLI_SET(remote_command, is_all)},
    TABLE(aoticache_transfer_manifest_table),
    TABLE(aoticache_transfer_index_table),
    LIST_OPTIONS,
    {"remote", 0, "REMOTE", "instead of the configured remotes: 'redis://host read-write'",
     AOTICACHE_CLI_TEXT(remote_command, remote)},
    {"sign-with", 0, "FILE",
     "sign with this secret key; may be repeated; default: sign_with of the\n"
     "configuration, or your own key, created at its first use",
     AOTICACHE_CLI_LIST(remote_command, transfer.sign_with)},
    {"no-sign", 0, NULL, "add no signature; existing signatures are sent",
     AOTICACHE_CLI_SET(remote_command, transfer.no_sign)},
    {"replace", 0, NULL, "also send objects that already exist there: they may be damaged",
     AOTICACHE_CLI_SET(remote_command, transfer.options.replace)},
    {"dry-run", 'n', NULL, "count what would be sent, send nothing",
     AOTICACHE_CLI_SET(remote_command, transfer.options.dry_run)},
    {0},
};

static const aoticache_cli_option pull_options[] = {
    {"all", 'a', NULL, "all kernels", AOTICACHE_CLI_SET(remote_command, is_all)},
    TABLE(aoticache_transfer_manifest_table),
    {"tag", 0, "TAG", "only keys that have this tag there", AOTICACHE_CLI_TEXT(remote_command, transfer.options.tag)},
    LIST_OPTIONS,
    {"remote", 0, "REMOTE", "instead of the configured remotes: 'redis://host read-only'",
     AOTICACHE_CLI_TEXT(remote_command, remote)},
    TABLE(aoticache_transfer_target_table),
    {0},
};

static void clear(remote_command *command)
{
    free(command->keys);
    free(command->lists.items);
    aoticache_transfer_free_signers(&command->transfer);
    aoticache_kernel_options_free(&command->kernel);
}

/* Parses the options. Everything is selected only if the user says so explicitly. Returns false if there is nothing to do. */
static bool parse(remote_command *command, aoticache_cli *cli, const char *progress)
{
    aoticache_transfer_command *transfer = &command->transfer;
    *command = (remote_command){.is_all = false};
    aoticache_kernel_options_begin(&command->kernel, cli);
    if (!aoticache_transfer_parse(transfer, cli, progress))
        return false;
    aoticache_transfer_options *options = &transfer->options;
    const bool is_some = options->op != NULL || options->device != NULL || options->key_prefix != NULL ||
                         options->tag != NULL || options->used_since_ns != 0 || command->lists.count > 0;
    if (command->is_all == is_some) {
        cli->exit_code =
            aoticache_cli_usage_error(cli, is_some ? "--all excludes --op, --device, --key, --tag and --list"
                                                   : "specify --op, --device, --key, --tag or --list, or --all");
        return false;
    }
    if (command->lists.count == 0)
        return true;
    cli->exit_code = aoticache_warm_keys(cli, &command->lists, &command->kernel, &command->keys, &options->key_count);
    options->keys = command->keys;
    return cli->exit_code == AOTICACHE_CLI_EXIT_OK;
}

/* Returns whether there is a remote to sign for: if not, no key is made, and the cache reports what is missing. */
static bool has_remote(const remote_command *command)
{
    const aoticache_config *config = aoticache_cli_config(command->transfer.cli);
    return command->remote != NULL || aoticache_config_get(config, AOTICACHE_CONFIG_remote).text[0] != '\0';
}

static int push(remote_command *command)
{
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    int result = aoticache_transfer_open_source(&command->transfer, NULL, &cache);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    if (has_remote(command))
        result = aoticache_transfer_open_signers(&command->transfer, cache);
    if (result == AOTICACHE_CLI_EXIT_OK) {
        aoticache_transfer_catch_signals();
        aoticache_status status =
            aoticache_cache_push(cache, command->remote, &command->transfer.options, &command->transfer.report, &error);
        result = aoticache_transfer_tell(&command->transfer, "sent", false, status, &error);
    }
    aoticache_cache_close(cache);
    return result;
}

static int push_command(aoticache_cli *cli)
{
    remote_command command;
    int result = parse(&command, cli, "entries sent") ? push(&command) : cli->exit_code;
    clear(&command);
    aoticache_transfer_die_if_stopped();
    return result;
}

const aoticache_command aoticache_command_push = {
    .word = "push",
    .program =
        {
            .name = "aoticache push",
            .help_hint = "aoticache help push",
            .usage = "--all|FILTER... [OPTION]...",
            .summary = "Sends kernels, with their signatures, to the configured remotes.",
            .details =
                "Objects that a remote already has are not sent again, except with --replace. Every remote that is\n"
                "written to gets everything. An entry that a server refuses is left out, and the others are sent.\n"
                "Exit code 1 if something was left out: it is damaged here, or the server does not accept it;\n"
                "3 if nothing matches, or no remote is configured.",
            .options = push_options,
        },
    .run = push_command,
};

static int pull(remote_command *command)
{
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    int result = aoticache_transfer_open_target(&command->transfer, NULL, &cache);
    if (result == AOTICACHE_CLI_EXIT_OK) {
        aoticache_transfer_catch_signals();
        aoticache_status status =
            aoticache_cache_pull(cache, command->remote, &command->transfer.options, &command->transfer.report, &error);
        result = aoticache_transfer_tell(&command->transfer, "fetched", false, status, &error);
    }
    aoticache_transfer_close_target(&command->transfer, cache);
    return result;
}

static int pull_command(aoticache_cli *cli)
{
    remote_command command;
    int result = parse(&command, cli, "keys looked at") ? pull(&command) : cli->exit_code;
    clear(&command);
    aoticache_transfer_die_if_stopped();
    return result;
}

const aoticache_command aoticache_command_pull = {
    .word = "pull",
    .program =
        {
            .name = "aoticache pull",
            .help_hint = "aoticache help pull",
            .usage = "--all|FILTER... [OPTION]...",
            .summary = "Fetches kernels that this processor can run from the configured remotes.",
            .details =
                "Every byte is verified, and an entry is accepted only if a trusted key signed it, unless the remote\n"
                "is set to unsigned=allow. Existing entries stay, and lookups still find them: see --replace.\n"
                "Exit code 1 if something was refused; 3 if nothing matches, or no remote is configured.",
            .options = pull_options,
        },
    .run = pull_command,
};
