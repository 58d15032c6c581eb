/*
 * aoticache ls: lists the contents of the cache, as a table; or failed compiles.
 *
 * Entries to be sorted are copied; otherwise they are printed directly from the index (a table in blocks, because its widths
 * must be known).
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/aoticache_internal.h"
#include "tools/aoticache/ls/ls_internal.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_BLOCK 4096
#define NARROW 160 /* columns of a terminal */

struct ls {
    const aoticache_cli *cli;
    aoticache_cache *cache;
    aoticache_ls_filter filter;
    aoticache_ls_sort sort;
    bool failed, signatures;
    int64_t limit;
    aoticache_pin_list marks;

    aoticache_entry_list list;        /* the entries to print, if they must be sorted */
    aoticache_cli_column columns[11]; /* of the table */
    aoticache_cli_table *table;
    bool is_narrow; /* CPU only says whether this machine can run it */
    uint64_t shown, unfit;
    aoticache_cpu_features features; /* whose text is below: most entries of a cache have the same */
    char *features_text;
};

static int reverse_order(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    aoticache_ls_sort *sort = member;
    (void)cli, (void)option, (void)value;
    sort->reverse = !sort->reverse;
    return AOTICACHE_CLI_EXIT_OK;
}

static const aoticache_cli_option ls_options[] = {
    {"sort", 's', "operator|size|age|used|uses|compile",
     "sort by this; default operator. age puts the newest first,\n"
     "used the most recently used, the others the largest;\n"
     "--sort=-size reverses the order",
     AOTICACHE_CLI_FUNCTION(struct ls, sort, aoticache_ls_sort_read)},
    {"reverse", 'r', NULL, "reverse the order", AOTICACHE_CLI_FUNCTION(struct ls, sort, reverse_order)},
    {"limit", 'n', "N", "print only the first N",
     AOTICACHE_CLI_INTEGER(struct ls, limit, 1, INT64_MAX, "a number from 1 on")},
    AOTICACHE_CLI_TABLE(struct ls, filter, aoticache_ls_filter_option_table),
    {"signatures", 0, NULL, "show who signed each; every signature is checked",
     AOTICACHE_CLI_SET(struct ls, signatures), .is_rare = true},
    {"failed", 0, NULL, "list compiles that failed, with their messages; each is tried again\nlater",
     AOTICACHE_CLI_SET(struct ls, failed)},
    {0},
};

/* ---- one entry ---- */

/* Prints an element of the array, indented like the rest of the object. */
static void print_json(struct ls *ls, const aoticache_entry *entry, const aoticache_pins *mark)
{
    json_t *object = aoticache_entry_to_json(entry);
    aoticache_pin_add_to_json(object, mark);
    if (ls->signatures)
        aoticache_cli_json_set(object, "signatures", aoticache_signatures_to_json(ls->cache, &entry->artifact));
    cleanup_free char *text = json_dumps(object, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    json_decref(object);
    fputs(ls->shown > 0 ? ",\n    " : "\n    ", stdout);
    for (const char *c = text != NULL ? text : "null"; *c != '\0'; c++) {
        putchar_unlocked(*c);
        if (*c == '\n')
            fputs("    ", stdout);
    }
}

static const char *features_text(struct ls *ls, const aoticache_cpu_features *features)
{
    if (ls->features_text == NULL || memcmp(features, &ls->features, sizeof *features) != 0) {
        free(ls->features_text);
        ls->features_text = aoticache_features_text(features);
        ls->features = *features;
    }
    return ls->features_text;
}

static void add_row(struct ls *ls, const aoticache_entry *entry, const aoticache_pins *mark)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES], bytes[AOTICACHE_CLI_UNIT_BYTES];
    char age[AOTICACHE_CLI_UNIT_BYTES], used[AOTICACHE_CLI_UNIT_BYTES];
    aoticache_digest_to_hex(&entry->key, hex);
    hex[12] = '\0';
    bool runs_here = aoticache_cpu_features_include(aoticache_cpu_features_get(), &entry->requirements);
    const char *features = ls->is_narrow ? (runs_here ? "yes" : "no") : features_text(ls, &entry->requirements);
    cleanup_free char *needs = aoticache_cli_text("%s%s", runs_here ? "" : "! ", features);
    cleanup_free char *uses = aoticache_cli_text("%" PRIu64, entry->uses);
    cleanup_free char *marks = aoticache_pin_text(mark);
    bool has_guard = entry->guard != NULL && entry->guard[0] != '\0';
    cleanup_free char *kernel =
        aoticache_cli_text("%s%s%s", entry->description, has_guard ? " where " : "", has_guard ? entry->guard : "");
    cleanup_free char *signers = ls->signatures ? aoticache_signatures_text(ls->cache, &entry->artifact, true) : NULL;
    const char *cells[] = {hex,
                           kernel,
                           aoticache_cli_format_bytes(entry->bytes, bytes),
                           aoticache_cli_format_age(entry->created_ns, age),
                           aoticache_cli_format_age(entry->last_used_ns, used),
                           uses,
                           entry->producer,
                           needs,
                           ls->marks.count > 0 ? (marks[0] != '\0' ? marks : "-") : signers,
                           signers};
    aoticache_cli_table_add(ls->table, runs_here ? AOTICACHE_CLI_PLAIN : AOTICACHE_CLI_YELLOW, cells);
    ls->unfit += !runs_here;
}

static bool show_entry(struct ls *ls, const aoticache_entry *entry)
{
    const aoticache_pins *mark = aoticache_pin_list_find(&ls->marks, &entry->key);
    if (ls->cli->json)
        print_json(ls, entry, mark);
    else
        add_row(ls, entry, mark);
    if (++ls->shown % TABLE_BLOCK == 0 && !ls->cli->json)
        aoticache_cli_table_print(ls->table, ls->cli);
    return (ls->limit == 0 || ls->shown < (uint64_t)ls->limit) && !aoticache_cli_output_failed();
}

/* ---- all entries ---- */

static bool must_collect(const struct ls *ls)
{
    return ls->sort.order != NULL || ls->sort.reverse;
}

static bool show_or_collect_entry(void *user, const aoticache_entry *entry)
{
    struct ls *ls = user;
    const aoticache_pins *mark = aoticache_pin_list_find(&ls->marks, &entry->key);
    if (!aoticache_ls_filter_accepts(&ls->filter, ls->cache, entry, mark))
        return true;
    if (!must_collect(ls))
        return show_entry(ls, entry);
    aoticache_entries_append(&ls->list, entry);
    return true;
}

static void reverse_entries(aoticache_entry_list *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        aoticache_entry other = list->entries[i];
        list->entries[i] = list->entries[list->count - 1 - i];
        list->entries[list->count - 1 - i] = other;
    }
}

static void begin_output(struct ls *ls)
{
    static const aoticache_cli_column columns[] = {
        {"KEY", false, 0}, {"KERNEL", false, 1}, {"SIZE", true, 0},      {"AGE", true, 4},
        {"USED", true, 2}, {"USES", true, 3},    {"PRODUCER", false, 5}, {"CPU", false, 0},
    };
    size_t count = sizeof columns / sizeof columns[0];
    const size_t width = aoticache_cli_terminal_width();
    ls->is_narrow = width > 0 && width < NARROW;
    if (!ls->cli->json) {
        memcpy(ls->columns, columns, sizeof columns);
        if (ls->marks.count > 0)
            ls->columns[count++] = (aoticache_cli_column){"MARKS", false, 0};
        if (ls->signatures)
            ls->columns[count++] = (aoticache_cli_column){"SIGNED BY", false, 0};
        ls->table = aoticache_cli_table_create(ls->columns, count);
        return;
    }
    json_t *directory = aoticache_cli_json_text(aoticache_cache_directory(ls->cache));
    cleanup_free char *text = json_dumps(directory, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    json_decref(directory);
    printf("{\n  \"directory\": %s,\n  \"entries\": [", text != NULL ? text : "null");
}

static void end_output(struct ls *ls)
{
    if (ls->cli->json)
        printf("%s]\n}\n", ls->shown > 0 ? "\n  " : "");
    else if (ls->shown > 0)
        aoticache_cli_table_print(ls->table, ls->cli);
    if (ls->table != NULL)
        aoticache_cli_table_free(ls->table);
    if (ls->unfit > 0)
        aoticache_cli_note(ls->cli, "! marks kernels that this machine's CPU cannot run: 'aoticache show KEY' says "
                                    "why");
}

static void show_collected(struct ls *ls)
{
    if (ls->sort.order != NULL && ls->list.count > 0)
        qsort(ls->list.entries, ls->list.count, sizeof *ls->list.entries, ls->sort.order);
    if (ls->sort.reverse)
        reverse_entries(&ls->list);
    size_t count = ls->limit > 0 && (uint64_t)ls->limit < ls->list.count ? (size_t)ls->limit : ls->list.count;
    begin_output(ls);
    for (size_t i = 0; i < count; i++)
        show_entry(ls, &ls->list.entries[i]);
}

static int report_nothing_found(const struct ls *ls)
{
    const char *exact = ls->filter.exact_op, *pattern = ls->filter.op;
    if (!aoticache_ls_filter_is_set(&ls->filter)) {
        aoticache_cli_note(ls->cli, "the cache at %s is empty", aoticache_cache_directory(ls->cache));
        return AOTICACHE_CLI_EXIT_OK;
    }
    aoticache_ls_filter rest = ls->filter;
    rest.exact_op = rest.op = NULL;
    if (aoticache_ls_filter_is_set(&rest) || (exact != NULL && pattern != NULL)) {
        aoticache_cli_error(ls->cli, "no entry matches");
        return AOTICACHE_CLI_EXIT_NOT_FOUND;
    }
    cleanup_free char *hint = aoticache_operator_hint(ls->cache, exact != NULL ? exact : pattern);
    aoticache_cli_error(ls->cli, "no entry for %s %s%s", exact != NULL ? "operator" : "operators like",
                        exact != NULL ? exact : pattern, hint);
    return AOTICACHE_CLI_EXIT_NOT_FOUND;
}

static int list_entries(struct ls *ls)
{
    aoticache_error error = {.message = ""};
    int result = aoticache_pin_list_read(ls->cli, ls->cache, NULL, &ls->marks);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    if (!must_collect(ls))
        begin_output(ls);
    aoticache_cache_flush_deferred(ls->cache);
    aoticache_status status =
        aoticache_cache_list(ls->cache, ls->filter.exact_op, NULL, show_or_collect_entry, ls, &error);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        result = aoticache_cli_fail(ls->cli, status, &error);
    else if (must_collect(ls))
        show_collected(ls);
    end_output(ls);
    if (result == AOTICACHE_CLI_EXIT_OK && ls->shown == 0)
        result = report_nothing_found(ls);
    aoticache_entries_free(&ls->list);
    aoticache_pin_list_free(&ls->marks);
    return result;
}

/* ---- --failed: failed compiles, with their messages, and when they are retried ---- */

struct failures {
    const aoticache_cli *cli;
    const char *op, *pattern;
    json_t *array; /* with --json */
    size_t count;
};

static json_t *failure_to_json(const aoticache_failure *failure)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "key", aoticache_cli_json_digest(&failure->key));
    aoticache_cli_json_set(object, "op", aoticache_cli_json_text(failure->op));
    aoticache_cli_json_set(object, "description", aoticache_cli_json_text(failure->description));
    aoticache_cli_json_set(object, "message", aoticache_cli_json_text(failure->message));
    aoticache_cli_json_set(object, "failed_ns", json_integer(failure->failed_ns));
    aoticache_cli_json_set(object, "retry_ns", json_integer(failure->retry_ns));
    aoticache_cli_json_set(object, "count", json_integer(failure->count));
    return object;
}

static void print_message_lines(const char *message)
{
    cleanup_free char *escaped = aoticache_cli_escape_lines(message);
    char *rest = NULL;
    for (char *line = strtok_r(escaped, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        printf("    %s\n", line);
}

static bool print_failure(void *user, const aoticache_failure *failure)
{
    struct failures *failures = user;
    const char *op = failure->op != NULL ? failure->op : "";
    if ((failures->op != NULL && strcmp(failures->op, op) != 0) ||
        (failures->pattern != NULL && fnmatch(failures->pattern, op, 0) != 0))
        return true;
    failures->count++;
    if (failures->array != NULL) {
        aoticache_cli_json_append(failures->array, failure_to_json(failure));
        return true;
    }
    char hex[AOTICACHE_DIGEST_HEX_BYTES], age[AOTICACHE_CLI_UNIT_BYTES], wait[AOTICACHE_CLI_UNIT_BYTES];
    cleanup_free char *times = failure->count > 1 ? aoticache_cli_text(", %" PRIu32 " times in a row", failure->count)
                                                  : aoticache_cli_text("%s", "");
    aoticache_digest_to_hex(&failure->key, hex);
    int64_t left = failure->retry_ns - aoticache_wall_ns();
    cleanup_free char *description = aoticache_cli_escape(failure->description != NULL ? failure->description : "");
    printf("%s%.12s%s  %s\n", aoticache_cli_style_begin(failures->cli, AOTICACHE_CLI_BOLD), hex,
           aoticache_cli_style_begin(failures->cli, AOTICACHE_CLI_PLAIN), description);
    printf("  failed %s ago%s, %s%s\n", aoticache_cli_format_age(failure->failed_ns, age), times,
           left > 0 ? "not tried again for " : "will be tried again",
           left > 0 ? aoticache_cli_format_duration((uint64_t)left, wait) : "");
    print_message_lines(failure->message != NULL ? failure->message : "");
    return true;
}

static int list_failures(const aoticache_cli *cli, aoticache_cache *cache, const char *op, const char *pattern)
{
    aoticache_error error = {.message = ""};
    struct failures failures = {
        .cli = cli, .op = op, .pattern = pattern, .array = cli->json ? aoticache_cli_json_array() : NULL};
    aoticache_status status = aoticache_cache_list_failures(cache, print_failure, &failures, &error);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND) {
        json_decref(failures.array);
        return aoticache_cli_fail(cli, status, &error);
    }
    if (cli->json) {
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(aoticache_cache_directory(cache)));
        aoticache_cli_json_set(object, "failures", failures.array);
        aoticache_cli_json_print(object);
    } else if (failures.count == 0) {
        aoticache_cli_note(cli, "no failed compiles%s%s are remembered", op != NULL || pattern != NULL ? " of " : "",
                           op != NULL        ? op
                           : pattern != NULL ? pattern
                                             : "");
    }
    return AOTICACHE_CLI_EXIT_OK;
}

/* ---- the command ---- */

/* Prints the same as for an empty cache if there is no cache, after the note that was printed. */
static int list_nothing(const struct ls *ls)
{
    if (ls->cli->json) {
        char directory[PATH_MAX];
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_directory(ls->cli, directory);
        aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(directory));
        aoticache_cli_json_set(object, ls->failed ? "failures" : "entries", aoticache_cli_json_array());
        aoticache_cli_json_print(object);
    }
    return ls->failed || !aoticache_ls_filter_is_set(&ls->filter) ? AOTICACHE_CLI_EXIT_OK
                                                                  : AOTICACHE_CLI_EXIT_NOT_FOUND;
}

static int ls_command(aoticache_cli *cli)
{
    struct ls ls = {.cli = cli};
    bool continues = aoticache_cli_parse(cli, &ls);
    int result = continues ? aoticache_cli_open_if_there(cli, &ls.cache) : cli->exit_code;
    if (continues && result == AOTICACHE_CLI_EXIT_OK && ls.cache == NULL)
        result = list_nothing(&ls);
    else if (continues && result == AOTICACHE_CLI_EXIT_OK)
        result = ls.failed ? list_failures(cli, ls.cache, ls.filter.exact_op, ls.filter.op) : list_entries(&ls);
    aoticache_cache_close(ls.cache);
    free(ls.filter.environment.items);
    free(ls.features_text);
    return result;
}

const aoticache_command aoticache_command_ls = {
    .word = "ls",
    .program =
        {
            .name = "aoticache ls",
            .help_hint = "aoticache help ls",
            .usage = "[OPERATOR] [OPTION]...",
            .summary = "Lists the kernels in the cache, or with --failed the compiles that failed.",
            .details =
                "OPERATOR is the full name of an operator; --op takes a pattern. If several conditions are given,\n"
                "all must hold. Patterns are shell patterns.\n\n"
                "USED shows when the kernel was last used, as far as running processes have reported it. CPU\n"
                "shows the CPU features that it needs, and '!' marks kernels that this machine cannot run. The text\n"
                "after 'where' is the guard of a kernel that serves many shapes. MARKS shows pins and tags; the\n"
                "column is left out if there are none. After each further failure, a compile is tried again\n"
                "after twice the time. --signatures marks signatures that are not trusted:\n"
                "unknown key, revoked, wrong.\n\n"
                "On a terminal of less than 160 columns, CPU shows only whether this machine can run the kernel.\n"
                "If the table is still too wide, PRODUCER, AGE, USES and USED are left out in this order, and\n"
                "then KERNEL is cut. A pipe or a file gets the whole table.",
            .options = ls_options,
            .operand = {AOTICACHE_CLI_FUNCTION(struct ls, filter.exact_op, aoticache_operator_read)},
        },
    .run = ls_command,
};
