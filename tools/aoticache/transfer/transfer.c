/*
 * tools/aoticache/transfer/transfer: shared by export, import, merge and copy: reading the options, the progress, the final
 * report, and stopping cleanly at Ctrl-C.
 */
#include "tools/aoticache/transfer/transfer_internal.h"

#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- stopping ---- */

static volatile sig_atomic_t stopped_by;

static void note_signal(int signal_number)
{
    stopped_by = signal_number;
}

/* Installs the handlers without SA_RESTART, so that a transfer that waits for a pipe notices the signal. */
void aoticache_transfer_catch_signals(void)
{
    aoticache_cli_catch_signals(note_signal, 0);
}

void aoticache_transfer_die_if_stopped(void)
{
    if (stopped_by == 0)
        return;
    fflush(NULL);
    signal(stopped_by, SIG_DFL);
    raise(stopped_by);
}

static bool show_progress(void *user, uint64_t done, uint64_t all)
{
    aoticache_transfer_command *command = user;
    aoticache_cli_progress_show(&command->progress, done, all > done ? all : done);
    return stopped_by == 0;
}

const aoticache_cli_option aoticache_transfer_manifest_table[] = {
    {"op", 0, "PATTERN", "only operators that match this: 'aten::*'",
     AOTICACHE_CLI_TEXT(aoticache_transfer_command, options.op)},
    {"device", 0, "DEVICE", "only kernels for this device",
     AOTICACHE_CLI_TEXT(aoticache_transfer_command, options.device)},
    {"key", 0, "KEY", "only keys that begin with this",
     AOTICACHE_CLI_TEXT(aoticache_transfer_command, options.key_prefix)},
    {0},
};

const aoticache_cli_option aoticache_transfer_index_table[] = {
    {"tag", 0, "TAG", "only keys that have this tag", AOTICACHE_CLI_TEXT(aoticache_transfer_command, options.tag)},
    {"used-since", 0, "AGE", "only kernels used in the last 30d, 12h, ...",
     AOTICACHE_CLI_MOMENT(aoticache_transfer_command, options.used_since_ns, 1, "an age such as 30d or 12h")},
    {0},
};

const aoticache_cli_option aoticache_transfer_target_table[] = {
    {"allow-unsigned", 0, NULL,
     "accept entries that no trusted key signed: their maker, or anyone "
     "who\nchanged them on the way, can run code as you; revoked ones stay out",
     AOTICACHE_CLI_SET(aoticache_transfer_command, options.allow_unsigned)},
    {"replace", 0, NULL,
     "also accept entries that the target has a kernel for; they replace\nit, or lookups find them before it",
     AOTICACHE_CLI_SET(aoticache_transfer_command, options.replace)},
    {"dry-run", 'n', NULL, "verify and count, but store nothing",
     AOTICACHE_CLI_SET(aoticache_transfer_command, options.dry_run)},
    {0},
};

bool aoticache_transfer_parse(aoticache_transfer_command *command, aoticache_cli *cli, const char *progress)
{
    *command = (aoticache_transfer_command){
        .cli = cli, .options = AOTICACHE_TRANSFER_OPTIONS_INIT, .progress = {.cli = cli, .what = progress}};
    command->options.progress = show_progress;
    command->options.user = command;
    return aoticache_cli_parse(cli, command);
}

/* ---- caches ---- */

static aoticache_cache_options cache_options(const aoticache_transfer_command *command, const char *directory)
{
    aoticache_cache_options options = aoticache_cli_cache_options(command->cli);
    if (directory != NULL)
        options.directory = directory;
    return options;
}

static int open_cache(const aoticache_transfer_command *command, const aoticache_cache_options *options,
                      aoticache_cache **ret_cache)
{
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_open(options, ret_cache, &error);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(command->cli, status, &error);
}

int aoticache_transfer_open_source(const aoticache_transfer_command *command, const char *directory,
                                   aoticache_cache **ret_cache)
{
    aoticache_cache_options options = cache_options(command, directory);
    options.must_exist = true;
    options.read_only = true;
    const char *origin = directory != NULL ? "the command line" : aoticache_cli_directory_origin(command->cli);
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_open(&options, ret_cache, &error);
    if (status == AOTICACHE_NOT_FOUND && origin != NULL)
        return aoticache_cli_report_absent(command->cli, options.directory, origin);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(command->cli, status, &error);
}

/* Creates an empty cache, so that a dry run has something to compare with if there is no cache, without creating one. */
static int open_empty(aoticache_transfer_command *command, aoticache_cache_options *options,
                      aoticache_cache **ret_cache)
{
    const char *parent = getenv("TMPDIR");
    int length = snprintf(command->empty, sizeof command->empty, "%s/aoticache-empty-XXXXXX",
                          parent != NULL && parent[0] == '/' && strlen(parent) < 32 ? parent : "/tmp");
    if (length < 0 || mkdtemp(command->empty) == NULL) {
        command->empty[0] = '\0';
        return aoticache_cli_error(command->cli, "cannot make a temporary directory; set TMPDIR");
    }
    options->directory = command->empty;
    options->must_exist = false;
    return open_cache(command, options, ret_cache);
}

int aoticache_transfer_open_target(aoticache_transfer_command *command, const char *directory,
                                   aoticache_cache **ret_cache)
{
    aoticache_cache_options options = cache_options(command, directory);
    aoticache_error error = {.message = ""};
    options.must_exist = command->options.dry_run;
    aoticache_status status = aoticache_cache_open(&options, ret_cache, &error);
    if (status == AOTICACHE_NOT_FOUND && command->options.dry_run)
        return open_empty(command, &options, ret_cache);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(command->cli, status, &error);
}

static int remove_one(const char *path, const struct stat *found, int kind, struct FTW *walk)
{
    (void)found, (void)kind, (void)walk;
    return remove(path);
}

void aoticache_transfer_close_target(aoticache_transfer_command *command, aoticache_cache *cache)
{
    aoticache_cache_close(cache);
    if (command->empty[0] != '\0')
        nftw(command->empty, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- the final report ---- */

static void print_json(const aoticache_transfer_command *command, const char *done, aoticache_status status)
{
    const aoticache_transfer_report *report = &command->report;
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "result", aoticache_cli_json_text(done));
    aoticache_cli_json_set(object, "status", aoticache_cli_json_text(aoticache_status_name(status)));
    aoticache_cli_json_set(object, "place", aoticache_cli_json_text(command->operand));
    aoticache_cli_json_set(object, "dry_run", json_boolean(command->options.dry_run));
    aoticache_cli_json_set(object, "entries", aoticache_cli_json_count(report->entries));
    aoticache_cli_json_set(object, "entries_present", aoticache_cli_json_count(report->entries_present));
    aoticache_cli_json_set(object, "entries_passed_over", aoticache_cli_json_count(report->entries_passed_over));
    aoticache_cli_json_set(object, "objects", aoticache_cli_json_count(report->objects));
    aoticache_cli_json_set(object, "bytes", aoticache_cli_json_count(report->bytes));
    aoticache_cli_json_set(object, "marks", aoticache_cli_json_count(report->marks));
    aoticache_cli_json_set(object, "refused", aoticache_cli_json_count(report->refused));
    aoticache_cli_json_set(object, "entries_gone", aoticache_cli_json_count(report->entries_gone));
    aoticache_cli_json_set(object, "entries_signed", aoticache_cli_json_count(report->entries_signed));
    aoticache_cli_json_set(object, "entries_untrusted", aoticache_cli_json_count(report->entries_untrusted));
    aoticache_cli_json_set(object, "archive_bytes", aoticache_cli_json_count(report->archive_bytes));
    aoticache_cli_json_print(object);
}

static void print_text(const aoticache_transfer_command *command, const char *done, FILE *to)
{
    const aoticache_transfer_report *report = &command->report;
    char bytes[AOTICACHE_CLI_UNIT_BYTES], archive[AOTICACHE_CLI_UNIT_BYTES];
    fprintf(to, "%s%s %" PRIu64 " %s, %" PRIu64 " %s, %s", command->options.dry_run ? "would have " : "", done,
            report->entries, report->entries == 1 ? "entry" : "entries", report->objects,
            report->objects == 1 ? "object" : "objects", aoticache_cli_format_bytes(report->bytes, bytes));
    if (report->archive_bytes > 0)
        fprintf(to, "; %s %s", command->operand != NULL ? "the archive has" : "compressed",
                aoticache_cli_format_bytes(report->archive_bytes, archive));
    if (report->entries_present > 0)
        fprintf(to, "; %" PRIu64 " %s there already", report->entries_present,
                report->entries_present == 1 ? "was" : "were");
    if (report->entries_passed_over > 0)
        fprintf(to, "; %" PRIu64 " skipped: %s would be found before the existing one (--replace takes %s)",
                report->entries_passed_over, report->entries_passed_over == 1 ? "it" : "they",
                report->entries_passed_over == 1 ? "it" : "them");
    if (report->entries_gone > 0)
        fprintf(to, "; the server has forgotten %" PRIu64, report->entries_gone);
    if (report->marks > 0)
        fprintf(to, "; marks of %" PRIu64 " %s", report->marks, report->marks == 1 ? "key" : "keys");
    if (report->refused > 0)
        fprintf(to, "; %" PRIu64 " refused", report->refused);
    if (report->entries_untrusted > 0)
        fprintf(to, ", %" PRIu64 " of them because no trusted key signed them", report->entries_untrusted);
    fputc('\n', to);
}

int aoticache_transfer_tell(aoticache_transfer_command *command, const char *done, bool to_stderr,
                            aoticache_status status, const aoticache_error *error)
{
    const aoticache_cli *cli = command->cli;
    bool has_done_something = command->report.entries + command->report.entries_present +
                                  command->report.entries_passed_over + command->report.refused >
                              0;
    aoticache_cli_progress_clear(&command->progress);
    if (cli->json)
        print_json(command, done, status);
    else if (!cli->quiet && (status == AOTICACHE_OK || has_done_something))
        print_text(command, done, to_stderr ? stderr : stdout);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(cli, status, error);
    if (command->report.refused == 0)
        return AOTICACHE_CLI_EXIT_OK;
    if (cli->quiet && !cli->json) /* --quiet hides the warnings that name each refusal */
        return aoticache_cli_error(cli, "%" PRIu64 " refused; run without --quiet to see each",
                                   command->report.refused);
    return AOTICACHE_CLI_EXIT_FAILURE;
}

int aoticache_transfer_merge(aoticache_transfer_command *command, const char *from, const char *to, const char *done)
{
    aoticache_cache *source = NULL, *target = NULL;
    aoticache_error error = {.message = ""};
    int result = aoticache_transfer_open_source(command, from, &source);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_transfer_open_target(command, to, &target);
    if (result == AOTICACHE_CLI_EXIT_OK) {
        aoticache_transfer_catch_signals();
        aoticache_status status = aoticache_cache_merge(target, source, &command->options, &command->report, &error);
        result = aoticache_transfer_tell(command, done, false, status, &error);
    }
    aoticache_transfer_close_target(command, target);
    aoticache_cache_close(source);
    aoticache_transfer_die_if_stopped();
    return result;
}
