/*
 * aoticache warm and prefetch: compile a list of operators and shapes into the cache, or fetch them from the remotes,
 * several concurrently.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/aoticache/aoticache_internal.h"
#include "tools/aoticache/warm/warm_internal.h"

#include <inttypes.h>
#include <sched.h>
#include <string.h>

#define MOST_DEFAULT_JOBS 8 /* a compiler takes up to a gigabyte */
#define DEFAULT_FETCHES 4   /* the number of connections of a remote */

struct warm {
    aoticache_kernel_options kernel; /* of the hook */
    aoticache_cli_list paths;
    aoticache_warm_list list;
    aoticache_warm_work work;
    uint64_t elapsed_ns;
    size_t counts[AOTICACHE_WARM_RESULTS];
};

/* ---- the command line ---- */

static size_t default_jobs(void)
{
    cpu_set_t processors;
    size_t count = sched_getaffinity(0, sizeof processors, &processors) == 0 ? (size_t)CPU_COUNT(&processors) : 1;
    return count < MOST_DEFAULT_JOBS ? count : MOST_DEFAULT_JOBS;
}

static const aoticache_cli_option warm_options[] = {
    {"jobs", 'j', "N", "run N compiles at the same time; default: one for each processor, at\nmost 8",
     AOTICACHE_CLI_INTEGER(struct warm, work.jobs, 1, 256, "a number from 1 to 256")},
    {"dry-run", 'n', NULL, "compile nothing; print the requests that are missing, as a list",
     AOTICACHE_CLI_SET(struct warm, work.dry_run)},
    {"keep-going", 'k', NULL, "continue after a compile has failed (default)",
     AOTICACHE_CLI_CLEAR(struct warm, work.fail_fast)},
    {"fail-fast", 0, NULL, "start no further compile after one has failed",
     AOTICACHE_CLI_SET(struct warm, work.fail_fast)},
    {"hook", 0, "auto|worker|c|command:PROGRAM", "what compiles on a miss; default auto",
     AOTICACHE_CLI_FUNCTION(struct warm, kernel, aoticache_hook_kind_read)},
    AOTICACHE_CLI_TABLE(struct warm, kernel, aoticache_hook_option_table),
    {"timeout", 0, "SECONDS", "the time limit of each compile; default 300",
     AOTICACHE_CLI_INTEGER(struct warm, kernel.hook_options.timeout_seconds, 1, 86400,
                           "a number of seconds from 1 to 86400")},
    {"retry", 0, NULL, "forget that some of these compiles failed before",
     AOTICACHE_CLI_SET(struct warm, kernel.retry)},
    {0},
};

static const aoticache_cli_option prefetch_options[] = {
    {"jobs", 'j', "N", "fetch N at the same time; default 4",
     AOTICACHE_CLI_INTEGER(struct warm, work.jobs, 1, 256, "a number from 1 to 256")},
    {"hook", 0, "auto|worker|c|command:PROGRAM",
     "the hook that would compile: its versions are part of the keys;\ndefault auto",
     AOTICACHE_CLI_FUNCTION(struct warm, kernel, aoticache_hook_kind_read)},
    AOTICACHE_CLI_TABLE(struct warm, kernel, aoticache_hook_option_table),
    {0},
};

/* ---- preparation ---- */

/* Reads the lists. done: what was not done if a line is wrong. */
static int read_lists(const aoticache_cli *cli, const aoticache_cli_list *paths, const char *done,
                      aoticache_warm_list *list)
{
    for (size_t i = 0; i < paths->count; i++) {
        int result = aoticache_warm_read(cli, paths->items[i], list);
        if (result != AOTICACHE_CLI_EXIT_OK)
            return result;
    }
    if (list->wrong > 0) {
        aoticache_cli_error(cli, "%zu line%s cannot be read; nothing was %s", list->wrong, list->wrong == 1 ? "" : "s",
                            done);
        return AOTICACHE_CLI_EXIT_USAGE;
    }
    aoticache_warm_remove_repeated(list);
    return AOTICACHE_CLI_EXIT_OK;
}

static int compare_keys(const void *left, const void *right)
{
    return memcmp(left, right, sizeof(aoticache_key));
}

static int make_keys(const aoticache_cli *cli, const aoticache_warm_list *list, aoticache_hook *hook,
                     aoticache_key *ret_keys)
{
    for (size_t i = 0; i < list->count; i++) {
        const aoticache_warm_item *item = &list->items[i];
        aoticache_error error = {.message = ""};
        aoticache_status status = aoticache_hook_set_environment(hook, item->request, &error);
        if (status == AOTICACHE_OK)
            status = aoticache_request_key(item->request, &ret_keys[i], &error);
        if (status != AOTICACHE_OK) {
            aoticache_cli_error(cli, "%s:%zu: %s", item->file, item->line, error.message);
            return AOTICACHE_CLI_EXIT_FAILURE;
        }
    }
    return AOTICACHE_CLI_EXIT_OK;
}

int aoticache_warm_keys(const aoticache_cli *cli, const aoticache_cli_list *paths, aoticache_kernel_options *options,
                        aoticache_key **ret_keys, size_t *ret_count)
{
    aoticache_warm_list list = {.count = 0};
    aoticache_hook *hook = NULL;
    aoticache_key *keys = NULL;
    int result = read_lists(cli, paths, "moved", &list);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_kernel_choose_hook(options, cli, &hook);
    if (result == AOTICACHE_CLI_EXIT_OK && hook == NULL)
        result = aoticache_cli_usage_error(
            cli, "option --hook: the keys of a list contain the versions of the compiling hook");
    if (result == AOTICACHE_CLI_EXIT_OK) {
        keys = aoticache_cli_allocate(list.count + 1, sizeof *keys);
        result = make_keys(cli, &list, hook, keys);
        qsort(keys, list.count, sizeof *keys, compare_keys);
    }
    *ret_keys = keys;
    *ret_count = list.count;
    aoticache_hook_free(hook);
    aoticache_warm_free(&list);
    return result;
}

/* Creates the hook, as `run` and `compile` do. */
static int create_hook(const aoticache_cli *cli, struct warm *warm)
{
    warm->kernel.hook_options.workers = (uint32_t)warm->work.jobs;
    return aoticache_kernel_choose_hook(&warm->kernel, cli, &warm->work.hook);
}

/* Opens the cache. Looking up creates no directory: if there is none, everything is missing. */
static int open_cache(const aoticache_cli *cli, struct warm *warm)
{
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cli_open_cache(cli, !warm->work.dry_run, &warm->work.cache, &error);
    if (status == AOTICACHE_OK || (status == AOTICACHE_NOT_FOUND && warm->work.dry_run))
        return AOTICACHE_CLI_EXIT_OK;
    return aoticache_cli_fail(cli, status, &error);
}

/* ---- results ---- */

static const char *result_word(aoticache_warm_result result)
{
    static const char *const words[] = {
#define RESULT_WORD(name, word) word,
        AOTICACHE_WARM_RESULT_LIST(RESULT_WORD)
#undef RESULT_WORD
    };
    return words[result];
}

static void report_item(const aoticache_cli *cli, const aoticache_warm_item *item)
{
    if (item->message != NULL)
        aoticache_cli_error(cli, "%s:%zu: %s: %s", item->file, item->line, item->text, item->message);
    else
        aoticache_cli_note(cli, "%s: %s", item->text, result_word(item->result));
}

static json_t *item_to_json(const aoticache_warm_item *item)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "request", aoticache_cli_json_text(item->text));
    aoticache_cli_json_set(object, "file", aoticache_cli_json_text(item->file));
    aoticache_cli_json_set(object, "line", aoticache_cli_json_count(item->line));
    aoticache_cli_json_set(object, "key", item->has_key ? aoticache_cli_json_digest(&item->key) : json_null());
    aoticache_cli_json_set(object, "result", aoticache_cli_json_text(result_word(item->result)));
    aoticache_cli_json_set(object, "message", aoticache_cli_json_text(item->message));
    aoticache_cli_json_set(object, "compile_ns", aoticache_cli_json_count(item->compile_ns));
    return object;
}

static void print_json(const struct warm *warm)
{
    json_t *object = aoticache_cli_json_object();
    json_t *results = aoticache_cli_json_array();
    for (size_t i = 0; i < warm->list.count; i++)
        aoticache_cli_json_append(results, item_to_json(&warm->list.items[i]));
    aoticache_cli_json_set(object, "requests", aoticache_cli_json_count(warm->list.count));
    for (int result = 0; result < AOTICACHE_WARM_RESULTS; result++)
        aoticache_cli_json_set(object, result_word((aoticache_warm_result)result),
                               aoticache_cli_json_count(warm->counts[result]));
    aoticache_cli_json_set(object, "jobs", aoticache_cli_json_count(warm->work.jobs));
    aoticache_cli_json_set(object, "elapsed_ns", aoticache_cli_json_count(warm->elapsed_ns));
    aoticache_cli_json_set(object, "results", results);
    aoticache_cli_json_print(object);
}

/* Prints the missing requests as a list. */
static int print_missing(const aoticache_cli *cli, const aoticache_warm_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        cleanup_free char *line = NULL;
        aoticache_error error = {.message = ""};
        if (list->items[i].result != AOTICACHE_WARM_MISSING)
            continue;
        aoticache_status status =
            aoticache_request_write(list->items[i].request, AOTICACHE_REQUEST_JSON, &line, &error);
        if (status != AOTICACHE_OK)
            return aoticache_cli_fail(cli, status, &error);
        printf("%s\n", line);
    }
    return AOTICACHE_CLI_EXIT_OK;
}

static void print_summary(const aoticache_cli *cli, const struct warm *warm)
{
    char elapsed[AOTICACHE_CLI_UNIT_BYTES];
    const size_t *counts = warm->counts;
    size_t there = counts[AOTICACHE_WARM_THERE] + counts[AOTICACHE_WARM_WAITED];
    size_t failed = counts[AOTICACHE_WARM_FAILED], unsupported = counts[AOTICACHE_WARM_UNSUPPORTED];
    aoticache_cli_format_duration(warm->elapsed_ns, elapsed);
    if (warm->work.dry_run) {
        aoticache_cli_note(cli, "%zu there, %zu missing, %zu failed, %zu unsupported", there,
                           counts[AOTICACHE_WARM_MISSING], failed, unsupported);
        return;
    }
    if (cli->quiet)
        return;
    if (warm->work.fetches) {
        printf("%zu there, %zu fetched, %zu missing, %zu failed, in %s\n", there, counts[AOTICACHE_WARM_FETCHED],
               counts[AOTICACHE_WARM_MISSING], failed + unsupported, elapsed);
        return;
    }
    printf("%zu there, %zu compiled, %zu failed, %zu unsupported", there, counts[AOTICACHE_WARM_COMPILED], failed,
           unsupported);
    if (counts[AOTICACHE_WARM_PENDING] > 0)
        printf(", %zu not tried", counts[AOTICACHE_WARM_PENDING]);
    printf(", in %s\n", elapsed);
}

static int print_results(const aoticache_cli *cli, struct warm *warm)
{
    for (size_t i = 0; i < warm->list.count; i++)
        warm->counts[warm->list.items[i].result]++;
    if (cli->json)
        print_json(warm);
    else if (warm->work.dry_run && print_missing(cli, &warm->list) != AOTICACHE_CLI_EXIT_OK)
        return AOTICACHE_CLI_EXIT_FAILURE;
    if (!cli->json)
        print_summary(cli, warm);
    if (warm->counts[AOTICACHE_WARM_FAILED] + warm->counts[AOTICACHE_WARM_UNSUPPORTED] > 0)
        return AOTICACHE_CLI_EXIT_FAILURE;
    return warm->counts[AOTICACHE_WARM_MISSING] > 0 ? AOTICACHE_CLI_EXIT_NOT_FOUND : AOTICACHE_CLI_EXIT_OK;
}

/* ---- the whole command ---- */

static int warm_and_print(const aoticache_cli *cli, struct warm *warm)
{
    if (strcmp(warm->kernel.hook, "none") == 0)
        return aoticache_cli_usage_error(cli, "option --hook: none cannot compile");
    aoticache_interruption_prepare();
    int result = read_lists(cli, &warm->paths, warm->work.fetches ? "fetched" : "compiled", &warm->list);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = create_hook(cli, warm);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = open_cache(cli, warm);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    warm->work.cli = cli;
    warm->work.list = &warm->list;
    warm->work.retry = warm->kernel.retry;
    warm->work.tell = report_item;
    uint64_t start = aoticache_monotonic_ns();
    aoticache_warm_run(&warm->work);
    warm->elapsed_ns = aoticache_monotonic_ns() - start;
    return print_results(cli, warm);
}

static int run_command(aoticache_cli *cli, struct warm warm)
{
    aoticache_kernel_options_begin(&warm.kernel, cli);
    int result = aoticache_cli_parse(cli, &warm) ? warm_and_print(cli, &warm) : cli->exit_code;
    aoticache_warm_free(&warm.list);
    aoticache_hook_free(warm.work.hook);
    aoticache_cache_close(warm.work.cache);
    aoticache_kernel_options_free(&warm.kernel);
    free(warm.paths.items);
    return result;
}

static int warm_command(aoticache_cli *cli)
{
    return run_command(cli, (struct warm){.work = {.jobs = default_jobs()}});
}

static int prefetch_command(aoticache_cli *cli)
{
    return run_command(cli, (struct warm){.work = {.jobs = DEFAULT_FETCHES, .fetches = true}});
}

const aoticache_command aoticache_command_warm = {
    .word = "warm",
    .program =
        {
            .name = "aoticache warm",
            .help_hint = "aoticache help warm",
            .usage = "FILE...|- [OPTION]...",
            .summary = "Compiles a list of operators and shapes into the cache, several at the same time.",
            .details = "FILE has one request per line. It is JSON as 'aoticache record' writes it, or text as\n"
                       "'aoticache ls' shows it:\n"
                       "  aten::add.Tensor(float32[2, 3], float32[2, 3], alpha=1) on cpu\n"
                       "Empty lines and lines that begin with # are skipped. \"on cpu\" may be left out. - means the\n"
                       "standard input.\n\n"
                       "The exit code is 0 if the cache has all kernels at the end. It is 1 if some could not be\n"
                       "compiled; each is named, with the compiler's message. It is 2 if a line is wrong; file, line\n"
                       "and column are named, and nothing is compiled. It is 3 if --dry-run found some missing.",
            .options = warm_options,
            .operand = {AOTICACHE_CLI_LIST(struct warm, paths),
                        .wanted = "a list is needed: a file, or - for the standard input"},
        },
    .run = warm_command,
};

const aoticache_command aoticache_command_prefetch = {
    .word = "prefetch",
    .program =
        {
            .name = "aoticache prefetch",
            .help_hint = "aoticache help prefetch",
            .usage = "FILE...|- [OPTION]...",
            .summary = "Fetches a list of operators and shapes from the remotes, before a program starts.",
            .details =
                "FILE is a list as for 'aoticache warm'. Nothing is compiled.\n\n"
                "The exit code is 0 if the cache has all kernels at the end, and 3 if no remote has some of them:\n"
                "these are compiled when they are needed. It is 1 if some could not be fetched, and 2 if a line\n"
                "is wrong.",
            .options = prefetch_options,
            .operand = {AOTICACHE_CLI_LIST(struct warm, paths),
                        .wanted = "a list is needed: a file, or - for the standard input"},
        },
    .run = prefetch_command,
};
