/*
 * aoticache show: everything known about one key: its entries, the request, the files, the requirements of the library, and
 * whether this machine and the shim meet them.
 */
#include "base/cleanup.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/aoticache/entries/entries.h"
#include "aoticache/runner.h"
#include "tools/aoticache/aoticache_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The data of one entry; parts that could not be read are NULL, with the reason in `problem`. */
struct detail {
    json_t *manifest;
    aoticache_request *request;
    aoticache_artifact *artifact;
    aoticache_library_description *library;
    const aoticache_pins *mark; /* of the key; borrowed from the list of all pins and tags */
    aoticache_error problem;
};

/* Returns whether it is a library. A record of torch.compile or Triton is read and not loaded; only some of those that are
 * separate objects are libraries. */
static bool is_library(const aoticache_entry *entry, const aoticache_artifact *artifact)
{
    char begin[4] = "";
    size_t size;
    if (aoticache_artifact_content(artifact, &size) != NULL)
        return false;
    return strncmp(entry->op, "aoticache::", strlen("aoticache::")) != 0 ||
           (pread(aoticache_artifact_library_fd(artifact), begin, sizeof begin, 0) == sizeof begin &&
            memcmp(begin, "\177ELF", sizeof begin) == 0);
}

static void read_detail(aoticache_cache *cache, const aoticache_entry *entry, struct detail *ret_detail)
{
    struct detail detail = {.problem = {.message = ""}};
    aoticache_status status =
        aoticache_manifest_decode(cache, &entry->artifact, &detail.manifest, &detail.request, &detail.problem);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_open_artifact(cache, &entry->artifact, &detail.artifact, &detail.problem);
    if (status == AOTICACHE_OK && is_library(entry, detail.artifact))
        status = aoticache_library_describe(aoticache_artifact_library_fd(detail.artifact), &detail.library,
                                            &detail.problem);
    if (status != AOTICACHE_OK && detail.problem.message[0] == '\0')
        aoticache_error_set(&detail.problem, status, "%s", aoticache_status_text(status));
    *ret_detail = detail;
}

static void free_detail(struct detail *detail)
{
    json_decref(detail->manifest);
    aoticache_request_free(detail->request);
    aoticache_library_description_free(detail->library);
    aoticache_artifact_unref(detail->artifact);
}

/* ---- JSON ---- */

static json_t *names_to_json(const char **names, size_t count)
{
    json_t *array = aoticache_cli_json_array();
    for (size_t i = 0; i < count; i++)
        aoticache_cli_json_append(array, aoticache_cli_json_text(names[i]));
    return array;
}

static json_t *environment_to_json(const aoticache_request *request)
{
    json_t *object = aoticache_cli_json_object();
    for (size_t i = 0; i < aoticache_request_environment_count(request); i++) {
        const char *name, *value;
        aoticache_request_environment_at(request, i, &name, &value);
        aoticache_cli_json_set(object, name, aoticache_cli_json_text(value));
    }
    return object;
}

static json_t *library_to_json(const aoticache_library_description *library)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "machine", aoticache_cli_json_text(library->machine));
    aoticache_cli_json_set(object, "needed", names_to_json(library->needed, library->needed_count));
    aoticache_cli_json_set(object, "symbols", names_to_json(library->symbols, library->symbol_count));
    aoticache_cli_json_set(object, "missing", names_to_json(library->missing, library->missing_count));
    aoticache_cli_json_set(object, "exports", names_to_json(library->exports, library->export_count));
    aoticache_cli_json_set(object, "proxy_executor", json_boolean(library->proxy_executor));
    aoticache_cli_json_set(object, "cuda", json_boolean(library->cuda));
    return object;
}

static json_t *detail_to_json(aoticache_cache *cache, const aoticache_entry *entry, const struct detail *detail)
{
    json_t *object = aoticache_entry_to_json(entry);
    aoticache_pin_add_to_json(object, detail->mark);
    aoticache_cli_json_set(object, "judgements", aoticache_judgements_to_json(cache, &entry->key));
    aoticache_cli_json_set(object, "signatures", aoticache_signatures_to_json(cache, &entry->artifact));
    aoticache_cli_json_set(object, "problem",
                           detail->problem.message[0] != '\0' ? aoticache_cli_json_text(detail->problem.message)
                                                              : json_null());
    aoticache_cli_json_set(object, "environment",
                           detail->request != NULL ? environment_to_json(detail->request) : json_null());
    aoticache_cli_json_set(object, "manifest", detail->manifest != NULL ? json_incref(detail->manifest) : json_null());
    aoticache_cli_json_set(object, "library_description",
                           detail->library != NULL ? library_to_json(detail->library) : json_null());
    return object;
}

/* ---- text ---- */

static void print_fallback(const aoticache_cli *cli, const json_t *manifest)
{
    const char *fallback = json_string_value(json_object_get(manifest, "fallback"));
    if (fallback != NULL)
        aoticache_cli_print_field(cli, "built", "PyTorch's way, not for our container: %s", fallback);
}

/* Prints where the stored compiler output is, and how to see it: it may have a thousand lines. */
static void print_output_place(const aoticache_cli *cli, const aoticache_entry *entry, const json_t *manifest)
{
    const json_t *output = json_object_get(manifest, "output");
    char hex[AOTICACHE_DIGEST_HEX_BYTES], size[AOTICACHE_CLI_UNIT_BYTES];
    if (!json_is_string(output))
        return;
    aoticache_digest_to_hex(&entry->artifact, hex);
    aoticache_cli_print_field(cli, "output", "%s of the compiler's, in the manifest: aoticache show --output %.12s",
                              aoticache_cli_format_bytes(json_string_length(output), size), hex);
}

static void print_request(const aoticache_cli *cli, const aoticache_request *request)
{
    for (size_t i = 0; i < aoticache_request_argument_count(request); i++) {
        const aoticache_argument *argument = aoticache_request_argument(request, i);
        char text[1024] = "";
        aoticache_argument_format(argument, text, sizeof text);
        cleanup_free char *title = aoticache_cli_text("argument %zu", i);
        aoticache_cli_print_field(cli, title, "%s%s%s", argument->name, argument->name[0] != '\0' ? " = " : "", text);
    }
    for (size_t i = 0; i < aoticache_request_environment_count(request); i++) {
        const char *name, *value;
        aoticache_request_environment_at(request, i, &name, &value);
        aoticache_cli_print_field(cli, i == 0 ? "environment" : "", "%s = %s", name, value);
    }
}

static void print_files(const aoticache_cli *cli, const json_t *manifest)
{
    const json_t *files = json_object_get(manifest, "files");
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *file = json_array_get(files, i);
        const char *name = json_string_value(json_object_get(file, "name"));
        const char *digest = json_string_value(json_object_get(file, "digest"));
        json_int_t bytes = json_integer_value(json_object_get(file, "bytes"));
        char size[AOTICACHE_CLI_UNIT_BYTES];
        aoticache_cli_print_field(cli, i == 0 ? "files" : "", "%.64s  %s  %s", digest != NULL ? digest : "?",
                                  aoticache_cli_format_bytes(bytes > 0 ? (uint64_t)bytes : 0, size),
                                  name != NULL ? name : "?");
    }
}

static void print_requirements(const aoticache_cli *cli, const aoticache_entry *entry)
{
    cleanup_free char *names = aoticache_features_list(&entry->requirements);
    aoticache_cpu_features lacking = aoticache_cpu_features_lacking(aoticache_cpu_features_get(), &entry->requirements);
    cleanup_free char *lacking_names = aoticache_features_list(&lacking);
    aoticache_cli_print_field(cli, "CPU needs", "%s", names[0] != '\0' ? names : "nothing beyond the architecture");
    if (aoticache_cpu_features_count(&lacking) > 0)
        aoticache_cli_print_field(cli, "runs here", "no: this CPU lacks %s", lacking_names);
    else
        aoticache_cli_print_field(cli, "runs here", "yes, as far as the CPU is concerned");
}

static void print_names(const aoticache_cli *cli, const char *title, const char **names, size_t count)
{
    size_t length = 1;
    for (size_t i = 0; i < count; i++)
        length += strlen(names[i]) + 2;
    cleanup_free char *joined = aoticache_cli_allocate(length, 1);
    char *end = joined;
    for (size_t i = 0; i < count; i++)
        end += sprintf(end, "%s%s", i > 0 ? ", " : "", names[i]);
    aoticache_cli_print_field(cli, title, "%s", count > 0 ? joined : "none");
}

static void print_library(const aoticache_cli *cli, const aoticache_library_description *library)
{
    aoticache_cli_print_field(cli, "library", "%s, exports %zu AOTInductor functions%s%s", library->machine,
                              library->export_count, library->cuda ? ", uses CUDA" : "",
                              library->proxy_executor ? ", calls operators through PyTorch" : "");
    print_names(cli, "needs", library->needed, library->needed_count);
    if (cli->verbose) {
        print_names(cli, "takes", library->symbols, library->symbol_count);
        print_names(cli, "exports", library->exports, library->export_count);
    } else {
        aoticache_cli_print_field(cli, "takes", "%zu aoti_torch_* functions (--verbose names them)",
                                  library->symbol_count);
    }
    if (library->missing_count == 0)
        aoticache_cli_print_field(cli, "PyTorch", "not needed: the shim has all of them");
    else
        print_names(cli, "shim lacks", library->missing, library->missing_count);
}

static void print_entry(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_entry *entry,
                        const struct detail *detail)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES], text[AOTICACHE_CLI_UNIT_BYTES], age[AOTICACHE_CLI_UNIT_BYTES];
    aoticache_digest_to_hex(&entry->key, hex);
    aoticache_cli_print_field(cli, "kernel", "%s", entry->description);
    aoticache_cli_print_field(cli, "key", "%s", hex);
    if (entry->guard != NULL && entry->guard[0] != '\0')
        aoticache_cli_print_field(cli, "guard", "%s", entry->guard);
    aoticache_digest_to_hex(&entry->artifact, hex);
    aoticache_cli_print_field(cli, "artifact", "%s", hex);
    aoticache_cli_print_field(cli, "producer", "%s", entry->producer);
    cleanup_free char *signatures = aoticache_signatures_text(cache, &entry->artifact, false);
    aoticache_cli_print_field(cli, "signed by", "%s", signatures);
    aoticache_cli_print_field(
        cli, "compiled", "%s (%s ago), took %s", aoticache_cli_format_time(entry->created_ns, text),
        aoticache_cli_format_age(entry->created_ns, age), aoticache_cli_format_duration(entry->compile_ns, hex));
    aoticache_cli_print_field(cli, "used", "%" PRIu64 " %s, last %s%s", entry->uses,
                              entry->uses == 1 ? "time" : "times", aoticache_cli_format_age(entry->last_used_ns, age),
                              entry->last_used_ns > 0 ? " ago" : "");
    aoticache_cli_print_field(cli, "size", "%s", aoticache_cli_format_bytes(entry->bytes, text));
    if (detail->mark != NULL) {
        char *marks = aoticache_pin_text(detail->mark);
        aoticache_cli_print_field(cli, "marks", "%s", marks);
        free(marks);
    }
    aoticache_judgements_print(cli, cache, &entry->key);
    print_requirements(cli, entry);
    if (detail->request != NULL)
        print_request(cli, detail->request);
    if (detail->manifest != NULL)
        print_files(cli, detail->manifest);
    if (detail->manifest != NULL) {
        print_output_place(cli, entry, detail->manifest);
        print_fallback(cli, detail->manifest);
    }
    if (detail->library != NULL)
        print_library(cli, detail->library);
}

/* ---- the command ---- */

static int show_entries(const aoticache_cli *cli, aoticache_cache *cache, const char *prefix)
{
    aoticache_entry_list list = {0};
    aoticache_pin_list marks = {0};
    aoticache_cache_flush_deferred(cache);
    int result = aoticache_entries_find(cli, cache, prefix, &list);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_pin_list_read(cli, cache, NULL, &marks);
    json_t *array = cli->json ? aoticache_cli_json_array() : NULL;
    for (size_t i = 0; i < list.count; i++) {
        struct detail detail;
        read_detail(cache, &list.entries[i], &detail);
        detail.mark = aoticache_pin_list_find(&marks, &list.entries[i].key);
        if (cli->json)
            aoticache_cli_json_append(array, detail_to_json(cache, &list.entries[i], &detail));
        else
            print_entry(cli, cache, &list.entries[i], &detail);
        if (!cli->json && i + 1 < list.count)
            printf("\n");
        if (detail.problem.message[0] != '\0') {
            aoticache_cli_error(cli, "%s; 'aoticache verify --repair' moves damaged files to quarantine/",
                                detail.problem.message);
            result = AOTICACHE_CLI_EXIT_FAILURE;
        }
        free_detail(&detail);
    }
    if (cli->json && list.count > 0) {
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(aoticache_cache_directory(cache)));
        aoticache_cli_json_set(object, "entries", array);
        aoticache_cli_json_print(object);
    } else {
        json_decref(array);
    }
    aoticache_pin_list_free(&marks);
    aoticache_entries_free(&list);
    return result;
}

static json_t *output_to_json(const aoticache_entry *entry, const char *text)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "key", aoticache_cli_json_digest(&entry->key));
    aoticache_cli_json_set(object, "artifact", aoticache_cli_json_digest(&entry->artifact));
    aoticache_cli_json_set(object, "output", text != NULL ? aoticache_cli_json_text(text) : json_null());
    return object;
}

/* Prints the output of one entry; increments *kept if there is any. */
static int print_output(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_entry *entry, json_t *array,
                        size_t *kept)
{
    cleanup_free char *text = NULL;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_read_output(cache, &entry->artifact, &text, &error);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        return aoticache_cli_fail(cli, status, &error);
    *kept += text != NULL;
    if (array != NULL) {
        aoticache_cli_json_append(array, output_to_json(entry, text));
    } else if (text != NULL) {
        cleanup_free char *escaped = aoticache_cli_escape_lines(text);
        size_t length = strlen(escaped);
        printf("%s%s", escaped, length > 0 && escaped[length - 1] == '\n' ? "" : "\n");
    }
    return AOTICACHE_CLI_EXIT_OK;
}

static int show_output(const aoticache_cli *cli, aoticache_cache *cache, const char *prefix)
{
    aoticache_entry_list list = {0};
    size_t kept = 0;
    int result = aoticache_entries_find(cli, cache, prefix, &list);
    json_t *array = cli->json ? aoticache_cli_json_array() : NULL;
    for (size_t i = 0; i < list.count && result == AOTICACHE_CLI_EXIT_OK; i++)
        result = print_output(cli, cache, &list.entries[i], array, &kept);
    if (result == AOTICACHE_CLI_EXIT_OK && kept == 0) {
        aoticache_cli_error(cli, "no compiler output is kept for %s", prefix);
        result = AOTICACHE_CLI_EXIT_NOT_FOUND;
    }
    if (cli->json && list.count > 0) {
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "outputs", array);
        aoticache_cli_json_print(object);
    } else {
        json_decref(array);
    }
    aoticache_entries_free(&list);
    return result;
}

struct show {
    const char *prefix; /* of a key */
    bool output;
};

static const aoticache_cli_option show_options[] = {
    {"output", 0, NULL, "only what the compiler said when it made the kernel", AOTICACHE_CLI_SET(struct show, output)},
    {0},
};

static int show_command(aoticache_cli *cli)
{
    struct show request = {0};
    aoticache_cache *cache = NULL;
    if (!aoticache_cli_parse(cli, &request))
        return cli->exit_code;
    int result = aoticache_cli_open_or_report(cli, false, &cache);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    result = request.output ? show_output(cli, cache, request.prefix) : show_entries(cli, cache, request.prefix);
    aoticache_cache_close(cache);
    return result;
}

const aoticache_command aoticache_command_show = {
    .word = "show",
    .program =
        {
            .name = "aoticache show",
            .help_hint = "aoticache help show",
            .usage = "KEY [OPTION]...",
            .summary = "Shows everything about one kernel: the request, its files, what it needs.",
            .details = "KEY is at least the first 4 digits of a key, of an artifact's digest or of a library's digest.",
            .options = show_options,
            .operand = {AOTICACHE_CLI_TEXT(struct show, prefix), .help = ": one key at a time",
                        .wanted = "a key is needed, as 'aoticache ls' prints them"},
        },
    .run = show_command,
};
