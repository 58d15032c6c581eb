/*
 * aoticache config: prints every setting, its value, and its origin; one value for scripts; checks a file.
 */
#include "base/cleanup.h"
#include "cache/config/config.h"
#include "tools/aoticache/aoticache_internal.h"

#include <string.h>

/* A setting, with its effective value and the origin of that. */
struct row {
    aoticache_config_setting setting;
    char value[PATH_MAX];
    const char *origin;
};

static struct row find_row(const aoticache_cli *cli, const aoticache_config *config, aoticache_config_name name)
{
    struct row row = {.setting = aoticache_config_get(config, name)};
    row.origin = row.setting.origin;
    if (name == AOTICACHE_CONFIG_directory)
        aoticache_cli_directory(cli, row.value);
    else
        snprintf(row.value, sizeof row.value, "%s", row.setting.text);
    if (name == AOTICACHE_CONFIG_directory && cli->directory != NULL)
        row.origin = "--cache-dir";
    if (name == AOTICACHE_CONFIG_allow_shared && cli->allow_shared) {
        snprintf(row.value, sizeof row.value, "true");
        row.origin = "--allow-shared";
    }
    return row;
}

static json_t *row_to_json(const struct row *row)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "name", aoticache_cli_json_text(row->setting.name));
    aoticache_cli_json_set(object, "value", aoticache_cli_json_text(row->value));
    aoticache_cli_json_set(object, "origin", aoticache_cli_json_text(row->origin));
    aoticache_cli_json_set(object, "variable", aoticache_cli_json_text(row->setting.variable));
    aoticache_cli_json_set(object, "description", aoticache_cli_json_text(row->setting.description));
    return object;
}

/* ---- one setting ---- */

static int print_one(const aoticache_cli *cli, const char *text)
{
    aoticache_config_name name;
    const char *nearest = NULL;
    if (aoticache_config_name_parse(text, &name, &nearest) != AOTICACHE_OK)
        return nearest != NULL
                   ? aoticache_cli_usage_error(cli, "unknown setting '%s' (did you mean %s?)", text, nearest)
                   : aoticache_cli_usage_error(cli, "unknown setting '%s'", text);
    struct row row = find_row(cli, aoticache_cli_config(cli), name);
    if (cli->json)
        aoticache_cli_json_print(row_to_json(&row));
    else
        printf("%s\n", row.value); /* for scripts: unchanged */
    return AOTICACHE_CLI_EXIT_OK;
}

/* ---- all settings ---- */

static void print_files(const aoticache_cli *cli, const aoticache_config *config)
{
    const aoticache_config_info *info = aoticache_config_get_info(config);
    for (size_t i = 0; i < info->file_count; i++)
        aoticache_cli_print_field(cli, i == 0 ? "files" : "", "%s: %s", info->files[i].path, info->files[i].state);
    if (info->file_count == 0)
        aoticache_cli_print_field(cli, "files", "none: $" AOTICACHE_CONFIG_FILE_VARIABLE " is empty");
}

static void print_table(const aoticache_cli *cli, const aoticache_config *config)
{
    static const aoticache_cli_column columns[] = {
        {.title = "NAME"}, {.title = "VALUE"}, {.title = "FROM"}, {.title = "WHAT", .gives_way = 1}};
    aoticache_cli_table *table = aoticache_cli_table_create(columns, sizeof columns / sizeof columns[0]);
    for (aoticache_config_name name = 0; name < AOTICACHE_CONFIG_COUNT; name++) {
        struct row row = find_row(cli, config, name);
        const char *cells[] = {row.setting.name, row.value[0] != '\0' ? row.value : "-", row.origin,
                               row.setting.description};
        bool is_default = strcmp(row.origin, "default") == 0;
        aoticache_cli_table_add(table, is_default ? AOTICACHE_CLI_DIM : AOTICACHE_CLI_PLAIN, cells);
    }
    aoticache_cli_table_print(table, cli);
    aoticache_cli_table_free(table);
}

static void print_json(const aoticache_cli *cli, const aoticache_config *config)
{
    json_t *object = aoticache_cli_json_object();
    json_t *files = aoticache_cli_json_array();
    json_t *settings = aoticache_cli_json_array();
    const aoticache_config_info *info = aoticache_config_get_info(config);
    for (size_t i = 0; i < info->file_count; i++) {
        json_t *file = aoticache_cli_json_object();
        aoticache_cli_json_set(file, "path", aoticache_cli_json_text(info->files[i].path));
        aoticache_cli_json_set(file, "state", aoticache_cli_json_text(info->files[i].state));
        aoticache_cli_json_append(files, file);
    }
    for (aoticache_config_name name = 0; name < AOTICACHE_CONFIG_COUNT; name++) {
        struct row row = find_row(cli, config, name);
        aoticache_cli_json_append(settings, row_to_json(&row));
    }
    aoticache_cli_json_set(object, "files", files);
    aoticache_cli_json_set(object, "problems", aoticache_cli_json_count(info->problem_count));
    aoticache_cli_json_set(object, "settings", settings);
    aoticache_cli_json_print(object);
}

static int print_all(const aoticache_cli *cli)
{
    const aoticache_config *config = aoticache_cli_config(cli);
    if (cli->json) {
        print_json(cli, config);
        return AOTICACHE_CLI_EXIT_OK;
    }
    print_files(cli, config);
    printf("\n");
    print_table(cli, config);
    return AOTICACHE_CLI_EXIT_OK;
}

/* ---- a file ---- */

struct check {
    const aoticache_cli *cli;
    json_t *problems; /* with --json */
};

static void print_problem(void *user, aoticache_log_level level, const char *line)
{
    const struct check *check = user;
    (void)level;
    if (check->problems != NULL)
        aoticache_cli_json_append(check->problems, aoticache_cli_json_text(line));
    else
        aoticache_cli_error(check->cli, "%s", line);
}

static int check_file(const aoticache_cli *cli, const char *path)
{
    struct check check = {.cli = cli, .problems = cli->json ? aoticache_cli_json_array() : NULL};
    aoticache_logger logger = {.log = print_problem, .user = &check};
    aoticache_config *config = NULL;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_config_read(path, logger, &config, &error);
    if (status != AOTICACHE_OK) {
        json_decref(check.problems);
        return aoticache_cli_fail(cli, status, &error);
    }
    size_t count = aoticache_config_get_info(config)->problem_count;
    aoticache_config_free(config);
    if (cli->json) {
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "path", aoticache_cli_json_text(path));
        aoticache_cli_json_set(object, "problems", check.problems);
        aoticache_cli_json_print(object);
    } else if (count == 0) {
        aoticache_cli_note(cli, "%s: no problems found", path);
    }
    return count == 0 ? AOTICACHE_CLI_EXIT_OK : AOTICACHE_CLI_EXIT_FAILURE;
}

struct config {
    const char *name, *file;
};

static const aoticache_cli_option config_options[] = {
    {"check", 0, "FILE", "only report the problems of a configuration file", AOTICACHE_CLI_TEXT(struct config, file)},
    {0},
};

static int config_command(aoticache_cli *cli)
{
    struct config config = {NULL, NULL};
    if (!aoticache_cli_parse(cli, &config))
        return cli->exit_code;
    if (config.name != NULL && config.file != NULL)
        return aoticache_cli_usage_error(cli, "--check and the name of a setting exclude each other");
    if (config.file != NULL)
        return check_file(cli, config.file);
    return config.name != NULL ? print_one(cli, config.name) : print_all(cli);
}

const aoticache_command aoticache_command_config = {
    .word = "config",
    .program =
        {
            .name = "aoticache config",
            .help_hint = "aoticache help config",
            .usage = "[NAME] [OPTION]...",
            .summary = "Shows the settings, their values, and where each comes from; with NAME, one value.",
            .details = "Settings come from " AOTICACHE_CONFIG_SYSTEM_FILE ", $XDG_CONFIG_HOME/aoticache/config (or\n"
                       "~/.config/aoticache/config), the environment and options; later ones take precedence. The "
                       "variable\n" AOTICACHE_CONFIG_FILE_VARIABLE
                       " names a file that is read instead of both files; if it is empty, no file is read.\n"
                       "A file consists of lines 'name = value' and comments that begin with '#'.",
            .options = config_options,
            .operand = {AOTICACHE_CLI_TEXT(struct config, name)},
        },
    .run = config_command,
};
