/*
 * aoticache unpin: takes pins away.
 */
#include "tools/aoticache/commands.h"

static const aoticache_cli_option unpin_options[] = {AOTICACHE_PIN_OPTION_ROWS, {0, NULL, 0, NULL, NULL}};

static int unpin_command(aoticache_cli *cli)
{
    return aoticache_pin_command(cli, false);
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
            .options = unpin_options,
        },
    .run = unpin_command,
};
