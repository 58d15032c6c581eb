/*
 * aoticache pin: kernels that no collection removes.
 */
#include "tools/aoticache/commands.h"

static const aoticache_cli_option pin_options[] = {AOTICACHE_PIN_OPTION_ROWS, {0, NULL, 0, NULL, NULL}};

static int pin_command(aoticache_cli *cli)
{
    return aoticache_pin_command(cli, true);
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
