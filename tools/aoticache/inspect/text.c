/*
 * tools/aoticache/inspect/text: human-readable reports, made from the JSON of --json. Members that are missing or of another
 * kind (a library can have written a part of them) are treated as absent.
 */
#include "base/cleanup.h"
#include "tools/aoticache/inspect/inspect_internal.h"

#include <string.h>

/* Without --verbose this many items of a list are shown. */
enum { LISTED = 16, LISTED_TENSORS = 32 };

static const char *text_of(const json_t *object, const char *member)
{
    return json_string_value(json_object_get(object, member));
}

static uint64_t count_of(const json_t *object, const char *member)
{
    json_int_t value = json_integer_value(json_object_get(object, member));
    return value > 0 ? (uint64_t)value : 0;
}

/* Joins the strings of an array: "a, b", at most `limit` of them; "none". The caller frees the text with free(). */
static char *join(const json_t *array, size_t limit)
{
    size_t count = json_array_size(array), length = 64;
    for (size_t i = 0; i < count && i < limit; i++)
        length += json_string_length(json_array_get(array, i)) + 2;
    char *joined = aoticache_cli_allocate(length, 1), *end = joined;
    for (size_t i = 0; i < count && i < limit; i++) {
        const char *name = json_string_value(json_array_get(array, i));
        end += sprintf(end, "%s%s", i > 0 ? ", " : "", name != NULL ? name : "?");
    }
    if (count > limit)
        sprintf(end, " and %zu more (--verbose)", count - limit);
    else if (count == 0)
        sprintf(end, "none");
    return joined;
}

static void print_names(const aoticache_cli *cli, const char *title, const json_t *array)
{
    cleanup_free char *names = join(array, cli->verbose ? SIZE_MAX : LISTED);
    aoticache_cli_print_field(cli, title, "%s", names);
}

/* ---- the file ---- */

static void print_made_by(const aoticache_cli *cli, const json_t *report)
{
    const json_t *made_by = json_object_get(report, "made_by");
    const char *producer = text_of(made_by, "producer"), *compiler = text_of(made_by, "compiler");
    const char *words = "unknown";
    if (producer != NULL && strcmp(producer, "pytorch") == 0)
        words = "PyTorch's AOTInductor";
    else if (producer != NULL && strcmp(producer, "aoticache-runtime") == 0)
        words = "a C kernel over libaoticache_runtime";
    else if (producer != NULL && strcmp(producer, "aoticache-inductor") == 0)
        words = "PyTorch's Inductor, built for our container";
    aoticache_cli_print_field(cli, "made by", "%s%s%s", words, compiler != NULL ? "; compiled by " : "",
                              compiler != NULL ? compiler : "");
}

static void print_interface(const aoticache_cli *cli, const json_t *interface)
{
    const char *generation = text_of(interface, "generation");
    size_t present = json_array_size(json_object_get(interface, "present"));
    size_t missing = json_array_size(json_object_get(interface, "missing"));
    aoticache_cli_print_field(cli, "interface", "%s, %zu of %zu functions", generation != NULL ? generation : "none",
                              present, present + missing);
    if (cli->verbose)
        print_names(cli, "has", json_object_get(interface, "present"));
    if (missing > 0 && present > 0)
        print_names(cli, "has not", json_object_get(interface, "missing"));
    if (json_array_size(json_object_get(interface, "other")) > 0)
        print_names(cli, "has also", json_object_get(interface, "other"));
}

static void print_symbols(const aoticache_cli *cli, const json_t *report)
{
    const json_t *symbols = json_object_get(report, "symbols"), *torch = json_object_get(report, "torch");
    size_t count = json_array_size(symbols);
    if (!cli->verbose)
        aoticache_cli_print_field(cli, "takes", "%zu functions of PyTorch%s", count,
                                  count > 0 ? " (--verbose names them)" : "");
    for (size_t i = 0; cli->verbose && i < count; i++) {
        const json_t *symbol = json_array_get(symbols, i);
        const char *name = text_of(symbol, "name");
        aoticache_cli_print_field(cli, i == 0 ? "takes" : "", "%s%s%s", name != NULL ? name : "?",
                                  json_is_true(json_object_get(symbol, "shim")) ? "" : ", not in the shim",
                                  json_is_false(json_object_get(symbol, "torch")) ? ", not in that PyTorch" : "");
    }
    if (json_array_size(json_object_get(report, "shim_lacks")) > 0)
        print_names(cli, "shim lacks", json_object_get(report, "shim_lacks"));
    else
        aoticache_cli_print_field(cli, "shim", "has all of them");
    if (!json_is_object(torch))
        return;
    if (text_of(torch, "problem") != NULL)
        aoticache_cli_print_field(cli, "--torch", "%s", text_of(torch, "problem"));
    else if (json_array_size(json_object_get(torch, "lacks")) > 0)
        print_names(cli, "torch lacks", json_object_get(torch, "lacks"));
    else
        aoticache_cli_print_field(cli, "--torch", "has all of them");
}

static void print_cuda(const aoticache_cli *cli, const json_t *cuda)
{
    cleanup_free char *images = join(json_object_get(cuda, "images"), SIZE_MAX);
    bool has_images = json_array_size(json_object_get(cuda, "images")) > 0;
    if (text_of(cuda, "problem") != NULL)
        aoticache_cli_print_field(cli, "CUDA", "%s", text_of(cuda, "problem"));
    else if (has_images || json_is_true(json_object_get(cuda, "used")))
        aoticache_cli_print_field(cli, "CUDA", "%s%s", has_images ? "device code for " : "used, no device code inside",
                                  has_images ? images : "");
}

static void print_remarks(const aoticache_cli *cli, const json_t *report)
{
    char size[AOTICACHE_CLI_UNIT_BYTES];
    const json_t *proxy = json_object_get(report, "proxy_executor");
    if (json_is_true(json_object_get(proxy, "used"))) {
        bool named = json_array_size(json_object_get(proxy, "operators")) > 0;
        cleanup_free char *operators = join(json_object_get(proxy, "operators"), SIZE_MAX);
        aoticache_cli_print_field(cli, "remark", "calls operators through PyTorch's proxy executor%s%s",
                                  named ? ": " : "", named ? operators : "");
    }
    if (json_is_true(json_object_get(report, "executable_stack")))
        aoticache_cli_print_field(cli, "remark", "needs an executable stack: hardened systems refuse to load it");
    if (count_of(report, "unique_symbols") > 0)
        aoticache_cli_print_field(cli, "remark",
                                  "has %llu unique symbols: in a process with PyTorch it is never unloaded",
                                  (unsigned long long)count_of(report, "unique_symbols"));
    if (count_of(report, "appended_bytes") > 0)
        aoticache_cli_print_field(cli, "remark", "has %s after the end of the ELF file: appended weights",
                                  aoticache_cli_format_bytes(count_of(report, "appended_bytes"), size));
    if (json_is_true(json_object_get(report, "finds_itself")))
        aoticache_cli_print_field(cli, "remark", "can find its own file, to map weights from it");
}

/* ---- results of loading ---- */

static void print_tensors(const aoticache_cli *cli, const char *title, const json_t *names)
{
    size_t count = json_array_size(names);
    for (size_t i = 0; i < count && (cli->verbose || i < LISTED_TENSORS); i++) {
        cleanup_free char *field = aoticache_cli_text("%s %zu", title, i);
        const char *name = json_string_value(json_array_get(names, i));
        aoticache_cli_print_field(cli, field, "%s", name != NULL ? name : "(no name)");
    }
    if (!cli->verbose && count > LISTED_TENSORS)
        aoticache_cli_print_field(cli, "", "and %zu more (--verbose)", count - LISTED_TENSORS);
}

static void print_constants(const aoticache_cli *cli, const json_t *constants)
{
    size_t count = json_array_size(constants);
    for (size_t i = 0; i < count && (cli->verbose || i < LISTED_TENSORS); i++) {
        const json_t *constant = json_array_get(constants, i);
        const char *name = text_of(constant, "name"), *fqn = text_of(constant, "original_fqn");
        const char *dtype = text_of(constant, "dtype"), *type = text_of(constant, "type");
        bool sized = json_is_integer(json_object_get(constant, "bytes"));
        char size[AOTICACHE_CLI_UNIT_BYTES];
        cleanup_free char *field = aoticache_cli_text("constant %zu", i);
        aoticache_cli_print_field(
            cli, field, "%s%s%s, %s, %s%s, %s", name != NULL ? name : "(no name)",
            fqn != NULL && fqn[0] != '\0' ? " = " : "", fqn != NULL ? fqn : "", dtype != NULL ? dtype : "unknown dtype",
            type != NULL ? type : "unknown", json_is_true(json_object_get(constant, "from_folded")) ? " (folded)" : "",
            sized ? aoticache_cli_format_bytes(count_of(constant, "bytes"), size) : "unknown size");
    }
    if (!cli->verbose && count > LISTED_TENSORS)
        aoticache_cli_print_field(cli, "", "and %zu more (--verbose)", count - LISTED_TENSORS);
}

static void print_loaded(const aoticache_cli *cli, const json_t *loaded)
{
    char size[AOTICACHE_CLI_UNIT_BYTES];
    if (!json_is_object(loaded))
        return;
    const char *device = text_of(loaded, "device"), *provider = text_of(loaded, "provider");
    if (text_of(loaded, "problem") != NULL)
        aoticache_cli_print_field(cli, "not loaded", "%s", text_of(loaded, "problem"));
    else
        aoticache_cli_print_field(cli, "loaded", "on %s, with %s", device != NULL ? device : "?",
                                  provider != NULL && strcmp(provider, "shim") == 0 ? "the shim" : "libtorch");
    print_tensors(cli, "input", json_object_get(loaded, "inputs"));
    print_tensors(cli, "output", json_object_get(loaded, "outputs"));
    print_constants(cli, json_object_get(loaded, "constants"));
    if (count_of(loaded, "blob_bytes") > 0)
        aoticache_cli_print_field(cli, "blob", "%s for all constants",
                                  aoticache_cli_format_bytes(count_of(loaded, "blob_bytes"), size));
    if (cli->verbose && text_of(loaded, "in_spec") != NULL) {
        aoticache_cli_print_field(cli, "in spec", "%s", text_of(loaded, "in_spec"));
        aoticache_cli_print_field(cli, "out spec", "%s", text_of(loaded, "out_spec"));
    }
}

/* ---- whole reports ---- */

static void print_requirements(const aoticache_cli *cli, const json_t *entry)
{
    if (!json_is_object(entry))
        return;
    const char *key = text_of(entry, "key"), *description = text_of(entry, "description");
    aoticache_cli_print_field(cli, "kernel", "%s", description != NULL ? description : "?");
    aoticache_cli_print_field(cli, "key", "%s", key != NULL ? key : "?");
    print_names(cli, "CPU needs", json_object_get(entry, "requirements"));
    if (json_array_size(json_object_get(entry, "lacking")) > 0)
        print_names(cli, "CPU lacks", json_object_get(entry, "lacking"));
}

void aoticache_inspect_print_library(const aoticache_cli *cli, const json_t *report)
{
    char size[AOTICACHE_CLI_UNIT_BYTES];
    const char *name = text_of(report, "name"), *sha256 = text_of(report, "sha256");
    aoticache_cli_print_field(cli, "library", "%s", name != NULL ? name : "?");
    if (sha256 != NULL) {
        aoticache_cli_print_field(cli, "size", "%s", aoticache_cli_format_bytes(count_of(report, "bytes"), size));
        aoticache_cli_print_field(cli, "SHA-256", "%s", sha256);
    }
    print_requirements(cli, json_object_get(report, "entry"));
    if (text_of(report, "problem") != NULL) {
        aoticache_cli_print_field(cli, "problem", "%s", text_of(report, "problem"));
        return;
    }
    aoticache_cli_print_field(cli, "machine", "%s", text_of(report, "machine"));
    const char *generation = text_of(json_object_get(report, "interface"), "generation");
    if (generation != NULL && strcmp(generation, "unknown") == 0) { /* tables that were not parsed */
        print_loaded(cli, json_object_get(report, "loaded"));
        return;
    }
    print_made_by(cli, report);
    print_interface(cli, json_object_get(report, "interface"));
    print_names(cli, "needs", json_object_get(report, "needed"));
    print_symbols(cli, report);
    print_cuda(cli, json_object_get(report, "cuda"));
    print_remarks(cli, report);
    print_loaded(cli, json_object_get(report, "loaded"));
}

static void print_model(const aoticache_cli *cli, const json_t *model)
{
    static const char *const facts[] = {"device", "machine", "cpu_isa", "capability"};
    const char *name = text_of(model, "name"), *key;
    const json_t *parts = json_object_get(model, "parts");
    json_t *metadata = json_object_get(model, "metadata"), *value;
    aoticache_cli_print_field(cli, "model", "%s", name != NULL ? name : "?");
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        if (text_of(model, facts[i]) != NULL && text_of(model, facts[i])[0] != '\0')
            aoticache_cli_print_field(cli, facts[i], "%s", text_of(model, facts[i]));
    for (size_t i = 0; i < json_array_size(parts); i++) {
        char size[AOTICACHE_CLI_UNIT_BYTES];
        const json_t *part = json_array_get(parts, i);
        aoticache_cli_print_field(cli, text_of(part, "kind"), "%s, %s", text_of(part, "name"),
                                  aoticache_cli_format_bytes(count_of(part, "bytes"), size));
    }
    json_object_foreach(metadata, key, value)
        aoticache_cli_print_field(cli, "metadata", "%s = %s", key, json_string_value(value));
}

void aoticache_inspect_print_package(const aoticache_cli *cli, const json_t *report)
{
    const json_t *models = json_object_get(report, "models");
    aoticache_cli_print_field(cli, "package", "%s", text_of(report, "name"));
    for (size_t i = 0; i < json_array_size(models); i++) {
        printf("\n");
        print_model(cli, json_array_get(models, i));
        printf("\n");
        aoticache_inspect_print_library(cli, json_object_get(json_array_get(models, i), "library"));
    }
}
