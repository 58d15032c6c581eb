/*
 * aoticache export, import, merge and copy: transfer kernels to and from an archive, or from one directory to another.
 */
#include "base/cleanup.h"
#include "tools/aoticache/aoticache_internal.h"
#include "tools/aoticache/transfer/transfer_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

/* ---- export ---- */

#define TABLE(table_) {.kind = AOTICACHE_CLI_KIND_TABLE, .table = (table_)}

static const aoticache_cli_option export_options[] = {
    TABLE(aoticache_transfer_manifest_table),
    TABLE(aoticache_transfer_index_table),
    {"marks", 0, NULL, "transfer pins and tags as well",
     AOTICACHE_CLI_SET(aoticache_transfer_command, options.with_marks)},
    {"sign-with", 0, "FILE",
     "sign with this secret key; may be repeated; default: sign_with of\nthe "
     "configuration, or your own key, created at its first use",
     AOTICACHE_CLI_LIST(aoticache_transfer_command, sign_with)},
    {"no-sign", 0, NULL, "add no signature, and leave out existing signatures",
     AOTICACHE_CLI_SET(aoticache_transfer_command, no_sign)},
    {"level", 0, "N", "compression level, 1 (fast) to 19 (small); default 3",
     AOTICACHE_CLI_INTEGER(aoticache_transfer_command, options.level, 1, 19, "a number from 1 to 19")},
    {0},
};

/* The target of the archive. */
struct output {
    int fd;
    char temporary[PATH_MAX]; /* "" if it is written directly */
};

/* Opens the output. A device or a named pipe is written to, never replaced. */
static int open_output(const aoticache_transfer_command *command, struct output *output)
{
    struct stat found;
    const char *path = command->operand;
    bool is_special = stat(path, &found) == 0 && !S_ISREG(found.st_mode);
    int length = 0;
    uint32_t number = 0;
    /* Not the process id: in containers that share a directory, a killed process may have had the same. */
    if (!is_special && getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return aoticache_cli_error(command->cli, "cannot get random numbers: %s", strerror(errno));
    if (!is_special)
        length = snprintf(output->temporary, sizeof output->temporary, "%s.new-%08" PRIx32, path, number);
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

/* Renames the complete archive, or removes an incomplete one. */
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
        return AOTICACHE_CLI_EXIT_FAILURE; /* without a message, as export_command() ends then */
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
        return aoticache_cli_usage_error(cli,
                                         "an archive is not written to a terminal; name a file, or pipe the output");
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
            .summary = "Writes kernels into an archive: a tar file compressed with zstd.",
            .details =
                "FILE appears only when it is complete. - means the standard output. The same kernels always give\n"
                "the same bytes. Kernels for other processors are exported as well. The exit code is 1 if\n"
                "something damaged was left out. It is 3 if nothing matches, and no file is written then.\n\n"
                "Each kernel is signed, so that 'aoticache import' can verify who made the archive and that it was\n"
                "not changed. 'aoticache key public' prints the key that others need for that.",
            .options = export_options,
            .operand = {AOTICACHE_CLI_TEXT(aoticache_transfer_command, operand),
                        .wanted = "a file, or - for the standard output, is needed"},
        },
    .run = export_command,
};

/* ---- import ---- */

static const aoticache_cli_option import_options[] = {
    TABLE(aoticache_transfer_manifest_table),
    {"marks", 0, NULL, "transfer pins and tags as well",
     AOTICACHE_CLI_SET(aoticache_transfer_command, options.with_marks)},
    {"trust", 0, "PUBLIC-KEY", "trust this public key or fingerprint from now on; may be repeated",
     AOTICACHE_CLI_LIST(aoticache_transfer_command, trust)},
    {"max-size", 0, "SIZE",
     "refuse to unpack more than this; default 1024G. Beyond 1G, 1000\ntimes the archive's own size is a further limit",
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
        aoticache_status status = aoticache_cache_import(cache, fd, &command->options, &command->report, &error);
        result = aoticache_transfer_tell(command, "imported", false, status, &error);
    }
    aoticache_transfer_close_target(command, cache);
    aoticache_transfer_die_if_stopped();
    return result;
}

static int import_operand(aoticache_transfer_command *command)
{
    const aoticache_cli *cli = command->cli;
    if (strcmp(command->operand, "-") == 0) {
        if (isatty(STDIN_FILENO))
            return aoticache_cli_usage_error(cli,
                                             "an archive cannot be read from a terminal; specify a file, or a pipe");
        return import_from(command, STDIN_FILENO);
    }
    cleanup_fd int fd = open(command->operand, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return aoticache_cli_error(cli, "cannot open %s: %s", command->operand, strerror(errno));
    return import_from(command, fd);
}

static int import_command(aoticache_cli *cli)
{
    aoticache_transfer_command command;
    if (!aoticache_transfer_parse(&command, cli, "objects imported"))
        return cli->exit_code;
    int result = import_operand(&command);
    free(command.trust.items);
    return result;
}

const aoticache_command aoticache_command_import = {
    .word = "import",
    .program =
        {
            .name = "aoticache import",
            .help_hint = "aoticache help import",
            .usage = "FILE|- [OPTION]...",
            .summary = "Adds the kernels of an archive that 'aoticache export' made to this cache.",
            .details =
                "An archive holds code that will run here: a key that you trust must have signed it. On a terminal\n"
                "you are asked once about a new key. Elsewhere, use --trust KEY, or 'aoticache key trust KEY'\n"
                "before. Your own key is trusted. Every name, size, digest and manifest is verified. Wrong or\n"
                "foreign members are named and refused, and the rest is imported. Existing entries stay, and\n"
                "lookups still find them: without --replace, an entry that lookups would find before an\n"
                "existing one of the same key is skipped. - means the standard input.\n\n"
                "The exit code is 1 if something was refused or the archive is truncated; complete entries\n"
                "stay. 16 MiB of the file system are left free. If the cache exceeds max_size of the\n"
                "configuration, the least recently used entries are removed.",
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
    {"marks", 0, NULL, "transfer pins and tags as well",
     AOTICACHE_CLI_SET(aoticache_transfer_command, options.with_marks)},
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
            .summary = "Adds the kernels of another cache directory to this cache.",
            .details = "Every byte is verified. Existing entries stay, and lookups still find them, except with\n"
                       "--replace. The other directory is not changed. The exit code is 1 if something was refused\n"
                       "because it is damaged there; the rest was merged.",
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
            .summary = "Adds the kernels of this cache to another cache directory, and creates that if it is missing.",
            .details = "Every byte is verified. Existing entries of the other directory stay, and lookups there still\n"
                       "find them, except with --replace. This cache is not changed. The exit code is 1 if\n"
                       "something was refused because it is damaged here; the rest was copied.",
            .options = merge_options,
            .operand = {AOTICACHE_CLI_TEXT(aoticache_transfer_command, operand),
                        .wanted = "a directory to copy to is needed"},
        },
    .run = copy_command,
};
