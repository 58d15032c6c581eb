/*
 * aoticache-stat: statistics that help to find out why something is slow: counters of all processes that use a cache
 * directory, and its contents. This file parses the command line; the other files read and print.
 */
#include "base/clock.h"
#include "tools/stat/stat.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- the command line ---- */

static int set_form(const aoticache_cli *cli, stat_request *request, stat_form form, const char *option)
{
    if (request->form != STAT_FORM_TEXT && request->form != form)
        return aoticache_cli_usage_error(cli, "%s and %s are two forms of output: choose one", request->form_option,
                                         option);
    request->form = form;
    request->form_option = option;
    return AOTICACHE_CLI_EXIT_OK;
}

enum { SINCE, DAY, ALL };

/* Reads --since, --day and --all. */
static int read_since(const aoticache_cli *cli, const aoticache_cli_option *row, const char *value, void *member)
{
    static const char *const options[] = {[SINCE] = "--since", [DAY] = "--day", [ALL] = "--all"};
    stat_request *request = member;
    const char *option = options[row->id];
    const int64_t now = aoticache_wall_ns();
    if (request->since_option != NULL && strcmp(request->since_option, option) != 0)
        return aoticache_cli_usage_error(cli, "%s and %s exclude each other", request->since_option, option);
    request->since_option = option;
    request->since.since = AOTICACHE_STATISTICS_SINCE_CREATED;
    if (row->id == ALL)
        return AOTICACHE_CLI_EXIT_OK;
    request->since.since = AOTICACHE_STATISTICS_SINCE_TIME;
    value = row->id == DAY ? "1d" : value;
    if (!stat_parse_since(value, now, &request->since.since_ns))
        return aoticache_cli_usage_error(
            cli, "option %s: '%s' is not a time: 90m, 1h, 2d, 2025-01-31, 2025-01-31T12:00", option, value);
    if (request->since.since_ns > now)
        return aoticache_cli_usage_error(cli, "option %s: '%s' is in the future", option, value);
    return AOTICACHE_CLI_EXIT_OK;
}

static int read_by(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    stat_request *request = member;
    size_t position;
    if (!aoticache_cli_parse_word(cli, option->name, value, stat_kind_names, &position))
        return AOTICACHE_CLI_EXIT_USAGE;
    request->by_group = true;
    request->by = (aoticache_group_kind)position;
    return AOTICACHE_CLI_EXIT_OK;
}

static int read_sort(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    stat_request *request = member;
    size_t position;
    if (!aoticache_cli_parse_word(cli, option->name, value, stat_column_names, &position))
        return AOTICACHE_CLI_EXIT_USAGE;
    request->sort = stat_column_names[position];
    return AOTICACHE_CLI_EXIT_OK;
}

static int read_history(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    stat_request *request = member;
    size_t position;
    if (!aoticache_cli_parse_word(cli, option->name, value != NULL ? value : "hour", stat_step_names, &position))
        return AOTICACHE_CLI_EXIT_USAGE;
    request->with_history = true;
    request->step_seconds = stat_step_seconds(position);
    return AOTICACHE_CLI_EXIT_OK;
}

static int read_watch(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    stat_request *request = member;
    double seconds = 2;
    if (value != NULL && (!aoticache_cli_parse_double(value, &seconds) || !(seconds >= 0.1) || seconds > 86400))
        return aoticache_cli_usage_error(cli, "option --%s: '%s' is not a number of seconds from 0.1 to 86400",
                                         option->name, value);
    request->watch_seconds = seconds;
    return set_form(cli, request, STAT_FORM_WATCH, "--watch");
}

/* Reads --csv, --prometheus and --html, whose ids are their forms. */
static int read_form(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    static const char *const options[] = {
        [STAT_FORM_CSV] = "--csv", [STAT_FORM_PROMETHEUS] = "--prometheus", [STAT_FORM_HTML] = "--html"};
    stat_request *request = member;
    if (value != NULL && value[0] == '\0')
        return aoticache_cli_usage_error(cli, "option --%s needs the name of a file", option->name);
    request->file = value;
    return set_form(cli, request, (stat_form)option->id, options[option->id]);
}

#define READ(read_, id_) .kind = AOTICACHE_CLI_KIND_FUNCTION, .read = (read_), .id = (id_)
#define NUMBER "a number from 1 to 1000000"

static const aoticache_cli_option stat_options[] = {
    {"since", 0, "WHEN",
     "only what happened since then, from the history: 90m, 1h, 2d,\n2025-01-31, 2025-01-31T12:00 (UTC)",
     READ(read_since, SINCE)},
    {"day", 0, NULL, "the same as --since 1d", READ(read_since, DAY), .is_rare = true},
    {"all", 0, NULL, "count since the cache was made, and ignore --zero", READ(read_since, ALL)},
    {"zero", 0, NULL, "start counting from zero; --all still shows everything", AOTICACHE_CLI_SET(stat_request, zero)},
    {"by", 0, "operator|device|environment", "one row for each of these", READ(read_by, 0)},
    {"top", 0, "N", "with --by: the number of rows; default 20",
     AOTICACHE_CLI_INTEGER(stat_request, top, 1, 1000000, NUMBER), .is_rare = true},
    {"sort", 0, "hits|misses|compiles|compile_ns|saved_ns|entries|bytes|name",
     "with --by: sort by this or compile_failures, the largest\nfirst; default hits", READ(read_sort, 0)},
    {"entries", 0, "N", "show the N largest entries and the N least recently used",
     AOTICACHE_CLI_INTEGER(stat_request, entries, 1, 1000000, NUMBER)},
    {"history", 0, "[=5min|hour|day]",
     "show slots of 5 minutes (kept for a day), of an hour (31 days;\ndefault) or of a day (ten years)",
     READ(read_history, 0)},
    {"csv", 0, NULL, "print comma-separated values", READ(read_form, STAT_FORM_CSV)},
    {"prometheus", 0, "[=FILE]", "print Prometheus' text format, or replace FILE with it\natomically",
     READ(read_form, STAT_FORM_PROMETHEUS)},
    {"html", 0, "FILE", "write a page with plots for a browser; it loads nothing else",
     READ(read_form, STAT_FORM_HTML)},
    {"watch", 0, "[=SECONDS]", "refresh on a terminal, every 2 seconds by default, as much as\nfits; q quits",
     READ(read_watch, 0)},
    {0},
};

static const aoticache_cli_program stat_program = {
    .name = "aoticache-stat",
    .help_hint = "aoticache-stat --help",
    .usage = "[OPTION]...",
    .summary =
        "Prints the statistics of a cache: hits, misses, compiles, time spent and saved, size; --verbose prints all numbers.",
    .options = stat_options,
    .details = "Lines below the entries report what needs attention, and what to do. --verbose prints all numbers.\n"
               "Counters are the sum of all processes since the cache was made, or since --zero. A process adds its\n"
               "own when it misses, stores or ends, and at lookups every 30 seconds. So the latest hits of a running\n"
               "process may not be counted yet. aoticache-stat(1) explains every number.",
};

/* Reports options that cannot be combined. */
static int check_combination(const aoticache_cli *cli, stat_request *request)
{
    const int topics = request->by_group + request->with_entries + request->with_history;
    const bool is_table = request->form == STAT_FORM_TEXT || request->form == STAT_FORM_CSV;
    if (cli->json && set_form(cli, request, STAT_FORM_JSON, "--json") != AOTICACHE_CLI_EXIT_OK)
        return AOTICACHE_CLI_EXIT_USAGE;
    if (topics > 1 && request->form != STAT_FORM_JSON && is_table)
        return aoticache_cli_usage_error(cli,
                                         "--by, --entries and --history print three tables: choose one, or --json");
    if (topics > 0 && (request->form == STAT_FORM_HTML || request->form == STAT_FORM_WATCH))
        return aoticache_cli_usage_error(cli, "%s has its own tables: it excludes --by, --entries and --history",
                                         request->form_option);
    if (request->by_group && request->since.since == AOTICACHE_STATISTICS_SINCE_TIME)
        return aoticache_cli_usage_error(cli,
                                         "only the totals have a history, sums by %s do not: %s and --by exclude each "
                                         "other; --zero counts from now on, and 'aoticache ls --used-since AGE' lists "
                                         "the kernels used since then",
                                         stat_kind_names[request->by], request->since_option);
    if (request->sort != NULL && !request->by_group)
        return aoticache_cli_usage_error(cli, "--sort requires --by");
    if (request->form == STAT_FORM_PROMETHEUS && request->since.since == AOTICACHE_STATISTICS_SINCE_TIME)
        return aoticache_cli_usage_error(cli, "--prometheus counts since the cache was made: it excludes %s",
                                         request->since_option);
    if (request->form == STAT_FORM_WATCH && !isatty(STDOUT_FILENO))
        return aoticache_cli_usage_error(cli,
                                         "--watch needs a terminal, but standard output is not one; --json or --csv "
                                         "print once");
    return AOTICACHE_CLI_EXIT_OK;
}

/* Returns true if there is something to do; otherwise *ret_exit is the result. */
static bool parse_request(aoticache_cli *cli, stat_request *request, int *ret_exit)
{
    if (!aoticache_cli_parse(cli, request)) {
        *ret_exit = cli->exit_code;
        return false;
    }
    request->with_entries = request->entries > 0;
    *ret_exit = check_combination(cli, request);
    if (request->form == STAT_FORM_PROMETHEUS)
        request->since.since = AOTICACHE_STATISTICS_SINCE_CREATED;
    if (request->sort == NULL)
        request->sort = "hits";
    return *ret_exit == AOTICACHE_CLI_EXIT_OK;
}

/* ---- printing ---- */

static void print_table(const stat_view *view)
{
    if (view->request->by_group)
        stat_print_groups(view);
    else if (view->request->with_entries)
        stat_print_entries(view);
    else if (view->request->with_history)
        stat_print_history(view);
    else if (view->cli->verbose)
        stat_print_all(view);
    else
        stat_print_summary(view);
}

static int print(stat_view *view)
{
    if (view->request->form == STAT_FORM_WATCH)
        return stat_watch(view);
    int result = stat_read(view);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    switch (view->request->form) {
    case STAT_FORM_JSON:
        aoticache_cli_json_print(stat_json(view));
        return AOTICACHE_CLI_EXIT_OK;
    case STAT_FORM_CSV:
        stat_print_csv(view);
        return AOTICACHE_CLI_EXIT_OK;
    case STAT_FORM_PROMETHEUS:
        return stat_write_prometheus(view);
    case STAT_FORM_HTML:
        return stat_write_html(view);
    default:
        print_table(view);
        return AOTICACHE_CLI_EXIT_OK;
    }
}

static int zero_statistics(const aoticache_cli *cli, aoticache_cache *cache)
{
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_zero_statistics(cache, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(cli, status, &error);
    aoticache_cli_note(cli, "counting from zero now; --all shows everything");
    return AOTICACHE_CLI_EXIT_OK;
}

/*
 * Opens the cache. If there is no cache yet at the default path, all figures are 0 and *ret_cache is NULL; forms that need a
 * cache report that there is none. UNSUPPORTED means an index of another version here, not an unavailable kernel.
 */
static int open_cache(const aoticache_cli *cli, const stat_request *request, aoticache_cache **ret_cache)
{
    const bool needs_cache = request->zero || request->form == STAT_FORM_HTML || request->form == STAT_FORM_WATCH;
    int result =
        needs_cache ? aoticache_cli_open_or_report(cli, false, ret_cache) : aoticache_cli_open_if_there(cli, ret_cache);
    return result == AOTICACHE_CLI_EXIT_COMPILE ? AOTICACHE_CLI_EXIT_FAILURE : result;
}

static int parse_and_print(aoticache_cli *cli)
{
    stat_request request = {.since = AOTICACHE_STATISTICS_OPTIONS_INIT, .top = 20};
    request.since.since = AOTICACHE_STATISTICS_SINCE_ZERO;
    int result;
    if (!parse_request(cli, &request, &result))
        return result;
    aoticache_cache *cache = NULL;
    char directory[PATH_MAX];
    result = open_cache(cli, &request, &cache);
    aoticache_cli_directory(cli, directory);
    if (result == AOTICACHE_CLI_EXIT_OK && request.zero)
        result = zero_statistics(cli, cache);
    if (result == AOTICACHE_CLI_EXIT_OK) {
        stat_view view = {.cli = cli,
                          .request = &request,
                          .cache = cache,
                          .directory = cache != NULL ? aoticache_cache_directory(cache) : directory};
        result = print(&view);
        stat_view_free(&view);
    }
    aoticache_cache_close(cache);
    return result;
}

int main(int argc, char **argv)
{
    aoticache_cli cli;
    aoticache_cli_begin(&cli, &stat_program, argc, argv, 1);
    return aoticache_cli_finish(&cli, parse_and_print(&cli));
}
