/*
 * aoticache copy: puts what this cache has into another directory.
 */
#include "tools/aoticache/transfer_command.h"

static const aoticache_cli_option copy_options[] = {
    AOTICACHE_TRANSFER_MANIFEST_ROWS,
    AOTICACHE_TRANSFER_INDEX_ROWS,
    AOTICACHE_TRANSFER_PINS_ROW,
    AOTICACHE_TRANSFER_REPLACE_ROW,
    AOTICACHE_TRANSFER_DRY_RUN_ROW,
    {0, NULL, 0, NULL, NULL},
};

static int copy_command(aoticache_cli *cli)
{
    aoticache_transfer_command command;
    int result = aoticache_transfer_parse(&command, cli, "a directory to copy to", "entries copied");
    return result == AOTICACHE_CLI_END ? aoticache_transfer_merge(&command, NULL, command.operand, "copied") : result;
}

const aoticache_command aoticache_command_copy = {
    .word = "copy",
    .program =
        {
            .name = "aoticache copy",
            .help_hint = "aoticache help copy",
            .usage = "DIRECTORY [OPTION]...",
            .summary = "Puts what this cache has into another directory, which is made where it is missing.",
            .details = "Every byte is verified. What is there already stays, and stays what is found: see --replace\n"
                       "(\"here\" is there, then). This cache is not changed.\n"
                       "Exit code 1 where something was refused: it is damaged here; the rest went.",
            .options = copy_options,
        },
    .run = copy_command,
};
