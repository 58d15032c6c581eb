/*
 * aoticache ls: what is in the cache, as a table; or which compiles failed.
 */
#include "base/cleanup.h"
#include "eager/tools/commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_FAILED = 1, OPTION_SORT, OPTION_REVERSE };

static const aoticache_cli_option ls_options[] = {
    {OPTION_SORT, "sort", 's', "BY", "op (default), size, age (newest first), used (latest first), uses"},
    {OPTION_REVERSE, "reverse", 'r', NULL, "the other way round"},
    {OPTION_FAILED, "failed", 0, NULL, "compiles that failed and are not tried again yet, with their message"},
    {0, NULL, 0, NULL, NULL},
};

typedef int (*comparison)(const void *a, const void *b);

struct ls {
    const char *op;
    comparison compare; /* NULL: as the library lists */
    bool reverse, failed;
};

#define COMPARE(name, left, right)                                       \
    static int name(const void *left_pointer, const void *right_pointer) \
    {                                                                    \
        const aoticache_entry *a = left_pointer, *b = right_pointer;     \
        return ((left) > (right)) - ((left) < (right));                  \
    }

COMPARE(by_size, b->bytes, a->bytes)
COMPARE(by_age, b->created_ns, a->created_ns)
COMPARE(by_use, b->last_used_ns, a->last_used_ns)
COMPARE(by_uses, b->uses, a->uses)

static int set_sort(const aoticache_cli *cli, struct ls *ls, const char *value)
{
    static const struct {
        const char *name;
        comparison compare;
    } orders[] = {{"op", NULL}, {"size", by_size}, {"age", by_age}, {"used", by_use}, {"uses", by_uses}};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        if (strcmp(value, orders[i].name) == 0) {
            ls->compare = orders[i].compare;
            return AOTICACHE_CLI_EXIT_OK;
        }
    }
    return aoticache_cli_usage_error(cli, "option --sort: '%s' is not op, size, age, used or uses", value);
}

static int parse(aoticache_cli *cli, struct ls *ls)
{
    for (;;) {
        const char *value = NULL;
        int id = aoticache_cli_next(cli, &value);
        if (id == AOTICACHE_CLI_STOP)
            return cli->exit_code;
        if (id == AOTICACHE_CLI_END)
            return AOTICACHE_CLI_END;
        ls->failed |= id == OPTION_FAILED;
        ls->reverse |= id == OPTION_REVERSE;
        if (id == OPTION_SORT && set_sort(cli, ls, value) != AOTICACHE_CLI_EXIT_OK)
            return AOTICACHE_CLI_EXIT_USAGE;
        if (id == AOTICACHE_CLI_OPERAND && ls->op != NULL)
            return aoticache_cli_usage_error(cli, "unexpected argument '%s': the operator is %s", value, ls->op);
        if (id == AOTICACHE_CLI_OPERAND)
            ls->op = value;
    }
}

static void reverse_entries(aoticache_entry_list *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        aoticache_entry other = list->entries[i];
        list->entries[i] = list->entries[list->count - 1 - i];
        list->entries[list->count - 1 - i] = other;
    }
}

/* ---- entries ---- */

static void print_entries_json(const char *directory, const aoticache_entry_list *list)
{
    json_t *object = aoticache_cli_json_object();
    json_t *entries = aoticache_cli_json_array();
    for (size_t i = 0; i < list->count; i++)
        aoticache_cli_json_append(entries, aoticache_entry_to_json(&list->entries[i]));
    aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(directory));
    aoticache_cli_json_set(object, "entries", entries);
    aoticache_cli_json_print(object);
}

static void add_row(aoticache_cli_table *table, const aoticache_entry *entry)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES], bytes[AOTICACHE_CLI_UNIT_BYTES];
    char age[AOTICACHE_CLI_UNIT_BYTES], used[AOTICACHE_CLI_UNIT_BYTES];
    aoticache_digest_to_hex(&entry->key, hex);
    hex[12] = '\0';
    bool runs_here = aoticache_cpu_features_include(aoticache_cpu_features_get(), &entry->requirements);
    cleanup_free char *features = aoticache_features_text(&entry->requirements);
    cleanup_free char *needs = aoticache_cli_text("%s%s", runs_here ? "" : "! ", features);
    cleanup_free char *uses = aoticache_cli_text("%" PRIu64, entry->uses);
    bool has_guard = entry->guard != NULL && entry->guard[0] != '\0';
    cleanup_free char *kernel = aoticache_cli_text("%s%s%s", entry->description, has_guard ? " where " : "",
                                                   has_guard ? entry->guard : "");
    const char *cells[] = {hex,
                           kernel,
                           aoticache_cli_format_bytes(entry->bytes, bytes),
                           aoticache_cli_format_age(entry->created_ns, age),
                           aoticache_cli_format_age(entry->last_used_ns, used),
                           uses,
                           entry->producer,
                           needs};
    aoticache_cli_table_add(table, runs_here ? AOTICACHE_CLI_PLAIN : AOTICACHE_CLI_YELLOW, cells);
}

static void print_entries_text(const aoticache_cli *cli, const aoticache_entry_list *list)
{
    static const aoticache_cli_column columns[] = {
        {"KEY", false, false}, {"KERNEL", false, true}, {"SIZE", true, false},      {"AGE", true, false},
        {"USED", true, false}, {"USES", true, false},   {"PRODUCER", false, false}, {"CPU", false, false},
    };
    if (list->count == 0)
        return;
    size_t unfit = 0;
    aoticache_cli_table *table = aoticache_cli_table_create(columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < list->count; i++) {
        add_row(table, &list->entries[i]);
        unfit += !aoticache_cpu_features_include(aoticache_cpu_features_get(), &list->entries[i].requirements);
    }
    aoticache_cli_table_print(table, cli);
    aoticache_cli_table_free(table);
    if (unfit > 0)
        aoticache_cli_note(cli, "! marks what this machine's CPU cannot run: 'aoticache show KEY' says why");
}

static int list_entries(const aoticache_cli *cli, aoticache_cache *cache, const struct ls *ls)
{
    aoticache_error error = {.message = ""};
    aoticache_entry_list list = {0};
    aoticache_status status = aoticache_entries_read(cache, ls->op, NULL, &list, &error);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        return aoticache_cli_fail(cli, status, &error);
    if (ls->compare != NULL && list.count > 0)
        qsort(list.entries, list.count, sizeof *list.entries, ls->compare);
    if (ls->reverse)
        reverse_entries(&list);
    if (cli->json)
        print_entries_json(aoticache_cache_directory(cache), &list);
    else
        print_entries_text(cli, &list);
    int result = AOTICACHE_CLI_EXIT_OK;
    if (list.count == 0 && ls->op != NULL) {
        aoticache_cli_error(cli, "no entry for operator %s", ls->op);
        result = AOTICACHE_CLI_EXIT_NOT_FOUND;
    } else if (list.count == 0) {
        aoticache_cli_note(cli, "the cache at %s is empty", aoticache_cache_directory(cache));
    }
    aoticache_entries_free(&list);
    return result;
}

/* ---- failures ---- */

struct failures {
    const aoticache_cli *cli;
    const char *op;
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
    if (failures->op != NULL && (failure->op == NULL || strcmp(failures->op, failure->op) != 0))
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

static int list_failures(const aoticache_cli *cli, aoticache_cache *cache, const struct ls *ls)
{
    aoticache_error error = {.message = ""};
    struct failures failures = {.cli = cli, .op = ls->op, .array = cli->json ? aoticache_cli_json_array() : NULL};
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
        aoticache_cli_note(cli, "no failed compiles are remembered");
    }
    return AOTICACHE_CLI_EXIT_OK;
}

static int ls_command(aoticache_cli *cli)
{
    struct ls ls = {0};
    int result = parse(cli, &ls);
    if (result != AOTICACHE_CLI_END)
        return result;
    aoticache_cache *cache = NULL;
    result = aoticache_cli_open_or_say(cli, false, &cache);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    result = ls.failed ? list_failures(cli, cache, &ls) : list_entries(cli, cache, &ls);
    aoticache_cache_close(cache);
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
            .details = "USED is when it was last used, as of the last flush of the processes that use it; CPU is\n"
                       "what it needs of the processor. A '!' marks what this machine cannot run. After 'where'\n"
                       "stands the guard of a kernel for many shapes. A compile that fails again is tried again\n"
                       "after twice the time.",
            .options = ls_options,
        },
    .run = ls_command,
};
