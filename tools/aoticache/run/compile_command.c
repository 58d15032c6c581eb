/*
 * aoticache compile: compiles a kernel into the cache without running it, for any device that the hook supports.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/aoticache_internal.h"
#include "tools/aoticache/run/run_internal.h"

#include <stdlib.h>

struct compile {
    aoticache_kernel_options kernel;
    aoticache_cache *cache;
    aoticache_hook *hook;
    aoticache_request *request;
    aoticache_artifact *artifact;
    uint64_t lookup_ns;
};

static const aoticache_cli_option compile_options[] = {
    AOTICACHE_CLI_TABLE(struct compile, kernel, aoticache_kernel_option_table),
    {0},
};

static int get_artifact(const aoticache_cli *cli, struct compile *compile)
{
    aoticache_error error = {.message = ""};
    cleanup_free char *what = aoticache_cli_text("compiling %s", compile->kernel.op);
    aoticache_cli_waiting *waiting = aoticache_cli_waiting_begin(cli, what);
    uint64_t start = aoticache_monotonic_ns();
    aoticache_status status =
        compile->hook != NULL
            ? aoticache_cache_get_or_compile(compile->cache, compile->request, NULL, aoticache_hook_compile,
                                             compile->hook, &compile->artifact, &error)
            : aoticache_cache_lookup(compile->cache, compile->request, NULL, &compile->artifact, &error);
    compile->lookup_ns = aoticache_monotonic_ns() - start;
    aoticache_cli_waiting_end(waiting);
    if (status == AOTICACHE_NOT_FOUND && error.message[0] == '\0') {
        aoticache_cli_error(cli, "the kernel is not stored in a form that this machine can run");
        return AOTICACHE_CLI_EXIT_NOT_FOUND;
    }
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(cli, status, &error);
}

/* Returns the entry of the product, for its size and requirements; NULL if it is not stored. */
static const aoticache_entry *find_entry(const struct compile *compile, const aoticache_entry_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (aoticache_digest_equal(&list->entries[i].artifact, &aoticache_artifact_get_info(compile->artifact)->digest))
            return &list->entries[i];
    return NULL;
}

static void print_json(const struct compile *compile, const aoticache_key *key, const aoticache_entry *entry)
{
    cleanup_free char *description = aoticache_kernel_describe(compile->request);
    aoticache_source source = aoticache_artifact_get_info(compile->artifact)->source;
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "op", aoticache_cli_json_text(compile->kernel.op));
    aoticache_cli_json_set(object, "description", aoticache_cli_json_text(description));
    aoticache_cli_json_set(object, "key", aoticache_cli_json_digest(key));
    aoticache_cli_json_set(object, "source", aoticache_cli_json_text(aoticache_source_word(source)));
    aoticache_cli_json_set(object, "stored", json_boolean(aoticache_artifact_get_info(compile->artifact)->is_stored));
    aoticache_cli_json_set(object, "lookup_ns", aoticache_cli_json_count(compile->lookup_ns));
    aoticache_cli_json_set(object, "compile_ns",
                           aoticache_cli_json_count(aoticache_artifact_get_info(compile->artifact)->compile_ns));
    aoticache_cli_json_set(object, "entry", entry != NULL ? aoticache_entry_to_json(entry) : json_null());
    aoticache_cli_json_print(object);
}

static void print_text(const aoticache_cli *cli, const struct compile *compile, const aoticache_key *key,
                       const aoticache_entry *entry)
{
    cleanup_free char *description = aoticache_kernel_describe(compile->request);
    cleanup_free char *source =
        aoticache_source_text(aoticache_artifact_get_info(compile->artifact)->source,
                              aoticache_artifact_get_info(compile->artifact)->is_stored,
                              entry != NULL           ? entry->producer
                              : compile->hook != NULL ? aoticache_hook_get_info(compile->hook).producer
                                                      : NULL);
    char hex[AOTICACHE_DIGEST_HEX_BYTES], text[AOTICACHE_CLI_UNIT_BYTES];
    aoticache_digest_to_hex(key, hex);
    if (cli->quiet) {
        printf("%s\n", hex);
        return;
    }
    aoticache_cli_print_field(cli, "kernel", "%s", description);
    aoticache_cli_print_field(cli, "key", "%s", hex);
    aoticache_cli_print_field(cli, "source", "%s", source);
    aoticache_cli_print_field(
        cli, "compile", "%s",
        aoticache_cli_format_duration(aoticache_artifact_get_info(compile->artifact)->compile_ns, text));
    aoticache_digest_to_hex(&aoticache_artifact_get_info(compile->artifact)->library, hex);
    aoticache_cli_print_field(cli, "library", "%s", hex);
    if (entry == NULL)
        return;
    cleanup_free char *needs = aoticache_features_text(&entry->requirements);
    aoticache_digest_to_hex(&entry->artifact, hex);
    aoticache_cli_print_field(cli, "artifact", "%s", hex);
    aoticache_cli_print_field(cli, "size", "%s", aoticache_cli_format_bytes(entry->bytes, text));
    aoticache_cli_print_field(cli, "needs", "%s", needs);
}

static int print_result(const aoticache_cli *cli, const struct compile *compile)
{
    aoticache_error error = {.message = ""};
    aoticache_key key;
    aoticache_status status = aoticache_request_key(compile->request, &key, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(cli, status, &error);
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(&key, hex);
    aoticache_entry_list list = {0};
    if (aoticache_artifact_get_info(compile->artifact)->is_stored)
        aoticache_entries_read(compile->cache, NULL, hex, &list, NULL);
    const aoticache_entry *entry = find_entry(compile, &list);
    if (cli->json)
        print_json(compile, &key, entry);
    else
        print_text(cli, compile, &key, entry);
    aoticache_entries_free(&list);
    return AOTICACHE_CLI_EXIT_OK;
}

static int compile_and_print(const aoticache_cli *cli, struct compile *compile)
{
    int result = aoticache_kernel_prepare(&compile->kernel, cli, &compile->hook, &compile->cache, &compile->request);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = get_artifact(cli, compile);
    return result == AOTICACHE_CLI_EXIT_OK ? print_result(cli, compile) : result;
}

static int compile_command(aoticache_cli *cli)
{
    struct compile compile = {0};
    aoticache_kernel_options_begin(&compile.kernel, cli);
    int result = aoticache_cli_parse(cli, &compile) ? compile_and_print(cli, &compile) : cli->exit_code;
    aoticache_artifact_unref(compile.artifact);
    aoticache_request_free(compile.request);
    aoticache_hook_free(compile.hook);
    aoticache_cache_close(compile.cache);
    aoticache_kernel_options_free(&compile.kernel);
    return result;
}

const aoticache_command aoticache_command_compile = {
    .word = "compile",
    .program =
        {
            .name = "aoticache compile",
            .help_hint = "aoticache help compile",
            .usage = "OPERATOR [ARGUMENT OPTION]... [OPTION]...",
            .summary = "Compiles an operator into the cache without running it, unless the cache has the kernel.",
            .details = AOTICACHE_KERNEL_DETAILS,
            .options = compile_options,
            .operand = {AOTICACHE_CLI_FUNCTION(struct compile, kernel.op, aoticache_operator_read),
                        .wanted = "an operator is needed, such as aten::abs"},
        },
    .run = compile_command,
};
