/*
 * aoticache merge: takes what another cache directory has into this one.
 */
#include "tools/aoticache/transfer_command.h"

static const aoticache_cli_option merge_options[] = {
    AOTICACHE_TRANSFER_MANIFEST_ROWS,
    AOTICACHE_TRANSFER_INDEX_ROWS,
    AOTICACHE_TRANSFER_PINS_ROW,
    AOTICACHE_TRANSFER_REPLACE_ROW,
    AOTICACHE_TRANSFER_DRY_RUN_ROW,
    {0, NULL, 0, NULL, NULL},
};

static int merge_command(aoticache_cli *cli)
{
    aoticache_transfer_command command;
    int result = aoticache_transfer_parse(&command, cli, "a cache directory to merge from", "entries merged");
    return result == AOTICACHE_CLI_END ? aoticache_transfer_merge(&command, command.operand, NULL, "merged") : result;
}

const aoticache_command aoticache_command_merge = {
    .word = "merge",
    .program =
        {
            .name = "aoticache merge",
            .help_hint = "aoticache help merge",
            .usage = "DIRECTORY [OPTION]...",
            .summary = "Takes what another cache directory has into this one.",
            .details = "Every byte is verified. What is here already stays, and stays what is found: see --replace.\n"
                       "The other directory is not changed. Exit code 1 where something was refused: it is damaged there; the rest came.",
            .options = merge_options,
        },
    .run = merge_command,
};
