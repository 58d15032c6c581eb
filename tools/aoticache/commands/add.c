/*
 * aoticache add: adds the models of .pt2 packages to the cache, so that later loads unpack nothing.
 */
#include "base/cleanup.h"
#include "aoticache/runner.h"
#include "tools/aoticache/aoticache_internal.h"

#include <stdlib.h>
#include <string.h>

struct add {
    const aoticache_cli *cli;
    aoticache_cli_list paths;
    const char *model;
    aoticache_cpu_features features;
    bool has_features;

    const char *path; /* the current one */
    json_t *models;   /* with --json */
};

static int read_cpu(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    struct add *add = member;
    aoticache_error error = {.message = ""};
    if (aoticache_cpu_features_parse(value, &add->features, &error) != AOTICACHE_OK)
        return aoticache_cli_usage_error(cli, "option --%s: %s", option->name, error.message);
    add->has_features = true;
    return AOTICACHE_CLI_EXIT_OK;
}

static const aoticache_cli_option add_options[] = {
    {"model", 'm', "NAME", "store only this model; default: all", AOTICACHE_CLI_TEXT(struct add, model)},
    {"cpu", 0, "LEVEL", "what the code needs of the CPU: x86-64-v3, or avx2,fma;\ndefault: what the package says",
     AOTICACHE_CLI_FUNCTION(struct add, cli, read_cpu)},
    {0},
};

static json_t *report_to_json(const char *path, const aoticache_package_report *report)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "package", aoticache_cli_json_text(path));
    aoticache_cli_json_set(object, "model", aoticache_cli_json_text(report->model));
    aoticache_cli_json_set(object, "device", aoticache_cli_json_text(report->device));
    aoticache_cli_json_set(object, "key", aoticache_cli_json_digest(&report->key));
    aoticache_cli_json_set(object, "bytes", aoticache_cli_json_count(report->bytes));
    aoticache_cli_json_set(object, "added", json_boolean(report->added));
    aoticache_cli_json_set(object, "digest_ns", aoticache_cli_json_count(report->digest_ns));
    aoticache_cli_json_set(object, "add_ns", aoticache_cli_json_count(report->add_ns));
    return object;
}

static bool show_report(void *user, const aoticache_package_report *report)
{
    struct add *add = user;
    char hex[AOTICACHE_DIGEST_HEX_BYTES], size[AOTICACHE_CLI_UNIT_BYTES];
    if (add->models != NULL) {
        aoticache_cli_json_append(add->models, report_to_json(add->path, report));
        return true;
    }
    if (add->cli->quiet)
        return true;
    aoticache_digest_to_hex(&report->key, hex);
    cleanup_free char *path = aoticache_cli_escape(add->path);
    cleanup_free char *model = aoticache_cli_escape(report->model);
    printf("%.12s  %s  %s  %s on %s: %s\n", hex, aoticache_cli_format_bytes(report->bytes, size), path, model,
           report->device, report->added ? "added" : "was there already");
    return true;
}

static int add_all(struct add *add, aoticache_cache *cache)
{
    int result = AOTICACHE_CLI_EXIT_OK;
    for (size_t i = 0; i < add->paths.count; i++) {
        aoticache_error error = {.message = ""};
        add->path = add->paths.items[i];
        aoticache_status status = aoticache_package_add(
            cache, add->path, add->model, add->has_features ? &add->features : NULL, show_report, add, &error);
        if (status == AOTICACHE_OK)
            continue;
        int failure = aoticache_cli_fail(add->cli, status, &error);
        result = result == AOTICACHE_CLI_EXIT_OK ? failure : result; /* the others are still added */
    }
    return result;
}

static int add_command(aoticache_cli *cli)
{
    struct add add = {.cli = cli};
    aoticache_cache *cache = NULL;
    if (!aoticache_cli_parse(cli, &add))
        return cli->exit_code;
    int result = aoticache_cli_open_or_report(cli, true, &cache);
    if (cache != NULL) {
        add.models = cli->json ? aoticache_cli_json_array() : NULL;
        result = add_all(&add, cache);
        if (cli->json)
            aoticache_cli_json_print(add.models);
        aoticache_cache_close(cache);
    }
    free(add.paths.items);
    return result;
}

const aoticache_command aoticache_command_add = {
    .word = "add",
    .program =
        {
            .name = "aoticache add",
            .help_hint = "aoticache help add",
            .usage = "FILE.pt2... [OPTION]...",
            .summary = "Stores the models of .pt2 packages. Loading them then unpacks nothing.",
            .details = "torch._inductor.aoti_compile_and_package() makes packages. Their libraries, weights and other\n"
                       "files are stored. Models that the cache has already stay as they are.",
            .options = add_options,
            .operand = {AOTICACHE_CLI_LIST(struct add, paths), .wanted = "a package is needed, such as model.pt2"},
        },
    .run = add_command,
};
