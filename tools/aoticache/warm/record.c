/*
 * aoticache record: makes lists of requests for `aoticache warm`: the requests of a program while it runs, or those in the
 * cache.
 *
 * The program itself writes its list: every host that uses the library's holders appends to the file named by
 * $AOTICACHE_RECORD. This command sets the variable and waits.
 */
#include "base/cleanup.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/aoticache_internal.h"
#include "tools/aoticache/warm/warm_internal.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define DEFAULT_LIST "aoticache-requests.txt"
#define PROGRAM_NOT_FOUND 127 /* as in shells */
#define PROGRAM_NOT_STARTED 126

struct record {
    const char *output;
    bool from_cache;
    const char *op, *device;
    int64_t used_since_ns; /* 0: any */
    char **program;        /* with its arguments, NULL-terminated; NULL: none */
};

static const aoticache_cli_option record_options[] = {
    {"output", 'o', "FILE",
     "the file for the list. A program's requests are appended to it;\n"
     "default " DEFAULT_LIST ". --from-cache overwrites it;\n"
     "default standard output",
     AOTICACHE_CLI_NAME(struct record, output, "the name of a file")},
    {"from-cache", 0, NULL, "run no program; list what the cache holds", AOTICACHE_CLI_SET(struct record, from_cache)},
    {"op", 0, "OPERATOR", "with --from-cache: only this operator",
     AOTICACHE_CLI_NAME(struct record, op, "an operator")},
    {"device", 0, "DEVICE", "with --from-cache: only kernels for this device",
     AOTICACHE_CLI_FUNCTION(struct record, device, aoticache_device_name_read)},
    {"used", 0, "AGE", "with --from-cache: only kernels used in the last 30d, 12h, ...",
     AOTICACHE_CLI_MOMENT(struct record, used_since_ns, 0, "an age such as 30d or 12h")},
    {0},
};

static int check_options(const aoticache_cli *cli, const struct record *record)
{
    if (record->from_cache && record->program != NULL)
        return aoticache_cli_usage_error(cli, "--from-cache runs no program, but '%s' is given", record->program[0]);
    if (!record->from_cache && (record->program == NULL || record->program[0][0] == '\0'))
        return aoticache_cli_usage_error(cli, "a program is needed, or --from-cache");
    if (!record->from_cache && (record->op != NULL || record->device != NULL || record->used_since_ns != 0))
        return aoticache_cli_usage_error(cli, "--op, --device and --used require --from-cache");
    return AOTICACHE_CLI_EXIT_OK;
}

/* ---- a program ---- */

/* Returns the number of lines that are requests; 0 if there is no file. */
static size_t count_requests(const char *path)
{
    cleanup_file FILE *file = fopen(path, "re");
    cleanup_free char *line = NULL;
    size_t size = 0, count = 0;
    if (file == NULL)
        return 0;
    while (getline(&line, &size, file) > 0)
        count += aoticache_warm_line_is_request(line);
    return count;
}

/* Makes the path absolute, because the program may change its directory; creates the file, so that an error is reported
 * before the program runs. */
static int prepare_list(const aoticache_cli *cli, const char *name, char ret_path[PATH_MAX])
{
    struct stat found;
    cleanup_fd int fd = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
    if (fd < 0 || fstat(fd, &found) != 0 || realpath(name, ret_path) == NULL)
        return aoticache_cli_error(cli, "cannot write the list %s: %s", name, strerror(errno));
    if (!S_ISREG(found.st_mode))
        return aoticache_cli_error(cli, "cannot write the list %s: not a regular file", name);
    return AOTICACHE_CLI_EXIT_OK;
}

static _Noreturn void become_program(const aoticache_cli *cli, char **program, const char *list)
{
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    if (setenv("AOTICACHE_RECORD", list, 1) == 0)
        execvp(program[0], program);
    int error = errno;
    aoticache_cli_error(cli, "cannot start %s: %s", program[0], strerror(error));
    _exit(error == ENOENT ? PROGRAM_NOT_FOUND : PROGRAM_NOT_STARTED);
}

/* Runs the program. Ctrl-C reaches both processes but is for the program: the command then reports what was recorded. */
static int run_program(const aoticache_cli *cli, char **program, const char *list)
{
    int state = 0;
    void (*interrupt)(int) = signal(SIGINT, SIG_IGN);
    void (*quit)(int) = signal(SIGQUIT, SIG_IGN);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        become_program(cli, program, list);
    pid_t ended = child;
    while (child > 0 && (ended = waitpid(child, &state, 0)) < 0 && errno == EINTR)
        continue;
    signal(SIGINT, interrupt);
    signal(SIGQUIT, quit);
    if (ended < 0)
        return aoticache_cli_error(cli, "cannot start %s: %s", program[0], strerror(errno));
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

static int record_program(const aoticache_cli *cli, const struct record *record)
{
    char path[PATH_MAX];
    const char *name = record->output != NULL ? record->output : DEFAULT_LIST;
    int result = prepare_list(cli, name, path);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    size_t before = count_requests(path);
    result = run_program(cli, record->program, path);
    size_t after = count_requests(path);
    aoticache_cli_note(cli, "%zu new request%s in %s, %zu in all", after > before ? after - before : 0,
                       after == before + 1 ? "" : "s", name, after);
    return result;
}

/* ---- the cache ---- */

struct line {
    char *text; /* human-readable; for an omitted entry it begins with '#' */
    char *json; /* for the list */
};

struct lines {
    const struct record *record;
    aoticache_cache *cache;
    struct line *items;
    size_t count;
    size_t left_out;
};

static bool is_asked_for(const struct record *record, const aoticache_entry *entry)
{
    if (record->used_since_ns != 0 && entry->last_used_ns < record->used_since_ns)
        return false;
    aoticache_device asked, device;
    return record->device == NULL || (aoticache_device_parse(record->device, &asked) == AOTICACHE_OK &&
                                      aoticache_device_parse(entry->device, &device) == AOTICACHE_OK &&
                                      device.type == asked.type && device.index == asked.index);
}

/* Returns why a request is omitted: a hook does not compile models of packages, or libraries for symbolic shapes, from one
 * request. */
static const char *why_not(const aoticache_request *request)
{
    const char *framework = aoticache_request_get_environment(request, "framework");
    if (framework != NULL && strcmp(framework, "pt2") == 0)
        return "a model of a package: see aoticache add";
    if (aoticache_request_get_environment(request, AOTICACHE_RESULTS_NAME) != NULL)
        return "it writes to its arguments";
    if (aoticache_request_get_environment(request, AOTICACHE_NUMBERS_NAME) != NULL)
        return "it takes numbers at run time";
    return aoticache_request_get_environment(request, AOTICACHE_SHAPES_NAME) != NULL ? "for symbolic shapes" : NULL;
}

/* Makes a line for an entry whose request cannot be in a list, with the reason. */
static struct line left_out_line(const aoticache_entry *entry, const char *reason)
{
    cleanup_free char *what = aoticache_cli_escape(entry->description);
    cleanup_free char *why = aoticache_cli_escape(reason);
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "left_out", aoticache_cli_json_text(what));
    aoticache_cli_json_set(object, "reason", aoticache_cli_json_text(why));
    struct line line = {.text = aoticache_cli_text("# %s: left out: %s", what, why),
                        .json = json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII)};
    json_decref(object);
    return line;
}

static struct line entry_line(aoticache_cache *cache, const aoticache_entry *entry)
{
    aoticache_error error = {.message = ""};
    aoticache_request *request = NULL;
    struct line line = {NULL, NULL};
    aoticache_status status = aoticache_manifest_decode(cache, &entry->artifact, NULL, &request, &error);
    const char *reason = status == AOTICACHE_OK ? why_not(request) : error.message;
    if (status == AOTICACHE_OK && reason == NULL) {
        status = aoticache_request_write(request, AOTICACHE_REQUEST_TEXT, &line.text, &error);
        if (status == AOTICACHE_OK)
            status = aoticache_request_write(request, AOTICACHE_REQUEST_JSON, &line.json, &error);
        reason = status != AOTICACHE_OK ? error.message : NULL;
    }
    aoticache_request_free(request);
    if (reason == NULL)
        return line;
    free(line.text);
    return left_out_line(entry, reason);
}

static bool add_line(void *user, const aoticache_entry *entry)
{
    struct lines *lines = user;
    if (!is_asked_for(lines->record, entry))
        return true;
    lines->items = aoticache_cli_grow(lines->items, lines->count, sizeof *lines->items);
    lines->items[lines->count++] = entry_line(lines->cache, entry);
    return true;
}

static int compare_lines(const void *left, const void *right)
{
    const struct line *a = left, *b = right;
    return strcmp(a->text, b->text);
}

static void free_line(struct line *line)
{
    free(line->text);
    free(line->json);
}

/* Sorts by text and keeps each line once. */
static void sort_lines(struct lines *lines)
{
    size_t kept = 0;
    if (lines->count > 0)
        qsort(lines->items, lines->count, sizeof *lines->items, compare_lines);
    for (size_t i = 0; i < lines->count; i++) {
        if (kept > 0 && strcmp(lines->items[kept - 1].text, lines->items[i].text) == 0)
            free_line(&lines->items[i]);
        else
            lines->items[kept++] = lines->items[i];
    }
    lines->count = kept;
    for (size_t i = 0; i < kept; i++)
        lines->left_out += lines->items[i].text[0] == '#';
}

static void print_json(const struct lines *lines)
{
    json_t *object = aoticache_cli_json_object();
    json_t *requests = aoticache_cli_json_array(), *left_out = aoticache_cli_json_array();
    for (size_t i = 0; i < lines->count; i++)
        aoticache_cli_json_append(lines->items[i].text[0] == '#' ? left_out : requests,
                                  aoticache_cli_json_text(lines->items[i].text));
    aoticache_cli_json_set(object, "requests", requests);
    aoticache_cli_json_set(object, "left_out", left_out);
    aoticache_cli_json_print(object);
}

static int write_lines(const aoticache_cli *cli, const struct record *record, const struct lines *lines)
{
    cleanup_file FILE *opened = record->output != NULL ? fopen(record->output, "we") : NULL;
    FILE *file = record->output != NULL ? opened : stdout;
    if (cli->json && record->output == NULL) {
        print_json(lines);
        return AOTICACHE_CLI_EXIT_OK;
    }
    if (file == NULL)
        return aoticache_cli_error(cli, "cannot write %s: %s", record->output, strerror(errno));
    for (size_t i = 0; i < lines->count; i++)
        fprintf(file, "%s\n", lines->items[i].json);
    if (opened != NULL && fclose(steal_ptr(&opened)) != 0)
        return aoticache_cli_error(cli, "cannot write %s: %s", record->output, strerror(errno));
    return AOTICACHE_CLI_EXIT_OK;
}

static int report_written(const aoticache_cli *cli, const struct record *record, const struct lines *lines)
{
    if (lines->count == 0) {
        aoticache_cli_error(cli, "the cache has no entries that match");
        return AOTICACHE_CLI_EXIT_NOT_FOUND;
    }
    if (lines->left_out > 0)
        aoticache_cli_note(cli, "%zu of %zu left out; the list says why", lines->left_out, lines->count);
    else if (record->output != NULL)
        aoticache_cli_note(cli, "%zu request%s in %s", lines->count, lines->count == 1 ? "" : "s", record->output);
    return AOTICACHE_CLI_EXIT_OK;
}

static int record_cache(const aoticache_cli *cli, const struct record *record)
{
    aoticache_error error = {.message = ""};
    aoticache_cache *cache = NULL;
    int result = aoticache_cli_open_or_report(cli, false, &cache);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    struct lines lines = {.record = record, .cache = cache};
    aoticache_status status = aoticache_cache_list(cache, record->op, NULL, add_line, &lines, &error);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        result = aoticache_cli_fail(cli, status, &error);
    sort_lines(&lines);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = write_lines(cli, record, &lines);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = report_written(cli, record, &lines);
    for (size_t i = 0; i < lines.count; i++)
        free_line(&lines.items[i]);
    free(lines.items);
    aoticache_cache_close(cache);
    return result;
}

static int record_command(aoticache_cli *cli)
{
    struct record record = {0};
    if (!aoticache_cli_parse(cli, &record))
        return cli->exit_code;
    if (check_options(cli, &record) != AOTICACHE_CLI_EXIT_OK)
        return AOTICACHE_CLI_EXIT_USAGE;
    return record.from_cache ? record_cache(cli, &record) : record_program(cli, &record);
}

const aoticache_command aoticache_command_record = {
    .word = "record",
    .program =
        {
            .name = "aoticache record",
            .help_hint = "aoticache help record",
            .usage = "[OPTION]... -- PROGRAM [ARGUMENT]...\n       aoticache record --from-cache [OPTION]...",
            .summary = "Lists the kernels that a program requests, or that the cache holds, for 'aoticache warm'.",
            .details =
                "PROGRAM runs with AOTICACHE_RECORD=FILE in its environment. Each request that it, or a program\n"
                "it starts, makes to this library is appended to FILE once. The exit code is PROGRAM's.\n"
                "A request that needs the data of constants is left out, and a line of the list reports it.",
            .options = record_options,
            .operand = {.kind = AOTICACHE_CLI_KIND_REST, .offset = offsetof(struct record, program)},
        },
    .run = record_command,
};
