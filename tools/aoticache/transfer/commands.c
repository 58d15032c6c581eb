/*
 * aoticache export, import, merge and copy: kernels into an archive and out of one, from one directory into another.
 */
#include "base/cleanup.h"
#include "tools/aoticache/internal.h"
#include "tools/aoticache/transfer/internal.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

/* ---- export ---- */

#define TABLE(table_) {.kind = AOTICACHE_CLI_KIND_TABLE, .table = (table_)}

static const aoticache_cli_option export_options[] = {
    TABLE(aoticache_transfer_manifest_table),
    TABLE(aoticache_transfer_index_table),
    {"marks", 0, NULL, "pins and tags, too", AOTICACHE_CLI_SET(aoticache_transfer_command, options.with_marks)},
    {"sign-with", 0, "FILE", "sign with this secret key; may be repeated; default: sign_with of the\n"
     "configuration, else your own key, made at its first use",
     AOTICACHE_CLI_LIST(aoticache_transfer_command, sign_with)},
    {"no-sign", 0, NULL, "add no signature; those that are there go", AOTICACHE_CLI_SET(aoticache_transfer_command, no_sign)},
    {"level", 0, "N", "of compression, 1 (fast) to 19 (small); default 3",
     AOTICACHE_CLI_INTEGER(aoticache_transfer_command, options.level, 1, 19, "a number from 1 to 19")},
    {0},
};

/* Where the archive goes. */
struct output {
    int fd;
    char temporary[PATH_MAX]; /* "" where it is written directly */
};

/* A device or a pipe that has a name is written to, never replaced. */
static int open_output(const aoticache_transfer_command *command, struct output *output)
{
    struct stat found;
    const char *path = command->operand;
    bool is_special = stat(path, &found) == 0 && !S_ISREG(found.st_mode);
    int length = 0;
    if (!is_special)
        length = snprintf(output->temporary, sizeof output->temporary, "%s.new-%ld", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof output->temporary)
        return aoticache_cli_usage_error(command->cli, "the name of the archive is too long");
    output->fd = is_special ? open(path, O_WRONLY | O_CLOEXEC)
                            : open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (output->fd >= 0)
        return AOTICACHE_CLI_EXIT_OK;
    int saved = errno;
    output->temporary[0] = '\0';
    return aoticache_cli_error(command->cli, "cannot write %s: %s", path, strerror(saved));
}

static int sync_parent(const char *path)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(parent, sizeof parent, "%.*s", slash != NULL ? (int)(slash - path) + 1 : 1, slash != NULL ? path : ".");
    cleanup_fd int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? fsync(fd) : -1;
}

/* The whole archive gets its name, or what is there of it goes. */
static int finish_output(const aoticache_transfer_command *command, struct output *output, bool is_whole)
{
    const char *path = command->operand;
    if (output->temporary[0] == '\0')
        return AOTICACHE_CLI_EXIT_OK;
    if (is_whole && fsync(output->fd) == 0 && rename(output->temporary, path) == 0) {
        output->temporary[0] = '\0';
        if (sync_parent(path) == 0)
            return AOTICACHE_CLI_EXIT_OK;
    }
    int saved = errno;
    if (output->temporary[0] != '\0')
        unlink(output->temporary);
    return is_whole ? aoticache_cli_error(command->cli, "cannot write %s: %s", path, strerror(saved))
                    : AOTICACHE_CLI_EXIT_FAILURE;
}

static int export_to(aoticache_transfer_command *command, aoticache_cache *cache, struct output *output, bool to_pipe)
{
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_export(cache, output->fd, &command->options, &command->report, &error);
    if (status == AOTICACHE_NOT_FOUND)
        aoticache_error_set(&error, status, "nothing matches in %s; no archive was written",
                            aoticache_cache_directory(cache));
    int finished = finish_output(command, output, status == AOTICACHE_OK);
    if (status == AOTICACHE_OK && finished != AOTICACHE_CLI_EXIT_OK)
        return finished;
    if (to_pipe && status != AOTICACHE_OK && aoticache_cli_reader_is_gone())
        return AOTICACHE_CLI_EXIT_FAILURE; /* without a word, as export_command() ends then */
    return aoticache_transfer_tell(command, "exported", to_pipe, status, &error);
}

static int export_file(aoticache_transfer_command *command, aoticache_cache *cache)
{
    struct output output = {.fd = -1};
    int result = open_output(command, &output);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = export_to(command, cache, &output, false);
    cleanup_fd_release(&output.fd);
    return result;
}

static int export_command(aoticache_cli *cli)
{
    aoticache_transfer_command command;
    aoticache_cache *cache = NULL;
    if (!aoticache_transfer_parse(&command, cli, "objects exported"))
        return cli->exit_code;
    bool to_pipe = strcmp(command.operand, "-") == 0;
    if (to_pipe && cli->json)
        return aoticache_cli_usage_error(cli, "--json and - cannot be combined: both write to standard output");
    if (to_pipe && isatty(STDOUT_FILENO))
        return aoticache_cli_usage_error(cli, "an archive is not written to a terminal; name a file, or pipe it");
    int result = aoticache_transfer_open_source(&command, NULL, &cache);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    result = aoticache_transfer_open_signers(&command, cache);
    if (result != AOTICACHE_CLI_EXIT_OK) {
        aoticache_transfer_free_signers(&command);
        aoticache_cache_close(cache);
        return result;
    }
    aoticache_transfer_catch_signals();
    struct output pipe = {.fd = STDOUT_FILENO};
    result = to_pipe ? export_to(&command, cache, &pipe, true) : export_file(&command, cache);
    aoticache_transfer_free_signers(&command);
    aoticache_cache_close(cache);
    aoticache_transfer_die_if_stopped();
    if (to_pipe && result != AOTICACHE_CLI_EXIT_OK && aoticache_cli_reader_is_gone())
        aoticache_cli_end_by_broken_pipe();
    return result;
}

const aoticache_command aoticache_command_export = {
    .word = "export",
    .program =
        {
            .name = "aoticache export",
            .help_hint = "aoticache help export",
            .usage = "FILE|- [OPTION]...",
            .summary = "Writes kernels into an archive: tar, compressed with zstd.",
            .details = "The file appears when it is whole. - is the standard output. The same kernels and keys give\n"
                       "the same bytes. Each kernel is signed, so that 'aoticache import' can tell who made the archive\n"
                       "and that nobody changed it; 'aoticache key public' prints what others need for that. Kernels for other processors go too. Exit code 1 where something damaged was left\n"
                       "out, 3 where nothing matches (no file is written then).",
            .options = export_options,
            .operand = {AOTICACHE_CLI_TEXT(aoticache_transfer_command, operand),
                        .wanted = "a file, or - for the standard output, is needed"},
        },
    .run = export_command,
};

/* ---- import ---- */

static const aoticache_cli_option import_options[] = {
    TABLE(aoticache_transfer_manifest_table),
    {"marks", 0, NULL, "pins and tags, too", AOTICACHE_CLI_SET(aoticache_transfer_command, options.with_marks)},
    {"trust", 0, "PUBLIC-KEY", "a public key or a fingerprint that is trusted from now on; may be\nrepeated",
     AOTICACHE_CLI_LIST(aoticache_transfer_command, trust)},
    {"max-size", 0, "SIZE", "what the archive may unpack to; default 1024G, and beyond 1G\n1000 times its own size",
     AOTICACHE_CLI_SIZE(aoticache_transfer_command, options.max_bytes, 1, "a size such as 10G")},
    TABLE(aoticache_transfer_target_table),
    {0},
};

static int import_from(aoticache_transfer_command *command, int fd)
{
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    int result = aoticache_transfer_check_trust(command);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_transfer_open_target(command, NULL, &cache);
    command->options.ask = aoticache_transfer_ask;
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
    if (!aoticache_transfer_parse(&command, cli, "objects imported"))
        return cli->exit_code;
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
                       "What comes in is code that runs here, so a key that you trust must have signed it. On a terminal\n"
                       "you are asked once for a key that is new; elsewhere say --trust KEY, or first 'aoticache key\n"
                       "trust KEY'. Your own key is trusted. - is the standard input. Exit code 1 where something was refused or the archive ends early; what was\n"
                       "complete stays.\n"
                       "16 MiB of the file system are left free. Beyond max_size of the configuration the least\n"
                       "recently used goes.",
            .options = import_options,
            .operand = {AOTICACHE_CLI_TEXT(aoticache_transfer_command, operand),
                        .wanted = "an archive, or - for the standard input, is needed"},
        },
    .run = import_command,
};

/* ---- merge ---- */

static const aoticache_cli_option merge_options[] = {
    TABLE(aoticache_transfer_manifest_table),
    TABLE(aoticache_transfer_index_table),
    {"marks", 0, NULL, "pins and tags, too", AOTICACHE_CLI_SET(aoticache_transfer_command, options.with_marks)},
    TABLE(aoticache_transfer_target_table),
    {0},
};

static int merge_command(aoticache_cli *cli)
{
    aoticache_transfer_command command;
    if (!aoticache_transfer_parse(&command, cli, "entries merged"))
        return cli->exit_code;
    return aoticache_transfer_merge(&command, command.operand, NULL, "merged");
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
            .operand = {AOTICACHE_CLI_TEXT(aoticache_transfer_command, operand),
                        .wanted = "a cache directory to merge from is needed"},
        },
    .run = merge_command,
};

/* ---- copy ---- */

static int copy_command(aoticache_cli *cli)
{
    aoticache_transfer_command command;
    if (!aoticache_transfer_parse(&command, cli, "entries copied"))
        return cli->exit_code;
    return aoticache_transfer_merge(&command, NULL, command.operand, "copied");
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
            .options = merge_options,
            .operand = {AOTICACHE_CLI_TEXT(aoticache_transfer_command, operand),
                        .wanted = "a directory to copy to is needed"},
        },
    .run = copy_command,
};
