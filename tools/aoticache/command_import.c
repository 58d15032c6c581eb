/*
 * aoticache import: takes in what an archive holds, believing nothing of it.
 */
#include "base/cleanup.h"
#include "tools/aoticache/transfer_command.h"

#include <fcntl.h>
#include <string.h>

static const aoticache_cli_option import_options[] = {
    AOTICACHE_TRANSFER_MANIFEST_ROWS,
    AOTICACHE_TRANSFER_PINS_ROW,
    {AOTICACHE_TRANSFER_MAX_SIZE, "max-size", 0, "SIZE", "what the archive may unpack to; default 1024G, and beyond 1G\n"
     "1000 times its own size"},
    AOTICACHE_TRANSFER_REPLACE_ROW,
    AOTICACHE_TRANSFER_DRY_RUN_ROW,
    {0, NULL, 0, NULL, NULL},
};

static int import_from(aoticache_transfer_command *command, int fd)
{
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    int result = aoticache_transfer_open_target(command, NULL, &cache);
    if (result == AOTICACHE_CLI_EXIT_OK) {
        aoticache_transfer_catch_signals();
        aoticache_status status =
            aoticache_cache_import(cache, fd, &command->options, &command->report, &error);
        result = aoticache_transfer_tell(command, "imported", false, status, &error);
    }
    aoticache_transfer_close_target(command, cache);
    aoticache_transfer_die_if_stopped();
    return result;
}

static int import_command(aoticache_cli *cli)
{
    aoticache_transfer_command command;
    int result =
        aoticache_transfer_parse(&command, cli, "an archive, or - for the standard input,", "objects imported");
    if (result != AOTICACHE_CLI_END)
        return result;
    if (strcmp(command.operand, "-") == 0) {
        if (isatty(STDIN_FILENO))
            return aoticache_cli_usage_error(cli, "there is no archive on a terminal; pipe one, or name a file");
        return import_from(&command, STDIN_FILENO);
    }
    cleanup_fd int fd = open(command.operand, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return aoticache_cli_error(cli, "cannot open %s: %s", command.operand, strerror(errno));
    return import_from(&command, fd);
}

const aoticache_command aoticache_command_import = {
    .word = "import",
    .program =
        {
            .name = "aoticache import",
            .help_hint = "aoticache help import",
            .usage = "FILE|- [OPTION]...",
            .summary = "Takes in the kernels of an archive that 'aoticache export' made.",
            .details = "Every name, size, digest and manifest is verified; what is wrong or foreign is refused by\n"
                       "name, and the rest comes. What is here already stays, and stays what is found: an entry that\n"
                       "would be found before one of the same key that is here is passed over, without --replace.\n"
                       "That says nothing of who made the archive: what comes in is code that runs here. - is the\n"
                       "standard input. Exit code 1 where something was refused or the archive ends early; what was\n"
                       "complete stays.\n"
                       "16 MiB of the file system are left free. Beyond max_size of the configuration the least\n"
                       "recently used goes.",
            .options = import_options,
        },
    .run = import_command,
};
