/*
 * aoticache model: whole models in the cache, by the names under which they were stored: lists, shows, runs and removes
 * them, and compiles one from an exported program.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/aoticache_internal.h"
#include "tools/aoticache/run/run_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL_OP "aoticache::model"
#define COMPILE_WORDS 16

struct model {
    const aoticache_cli *cli;
    aoticache_cli_list words; /* the action and its operands */
    const char *weights, *device, *name, *python;
    bool map_weights;
    bool frozen, replace, tensors;
    aoticache_run_inputs inputs;
    aoticache_timed_runs runs;
    aoticache_cache *cache;
    aoticache_runner *runner;
};

/* ---- entries and their names ---- */

/* Returns the name under which an entry was stored; "" if its manifest cannot be read. The caller frees it with free(). */
static char *name_of(aoticache_cache *cache, const aoticache_entry *entry)
{
    aoticache_request *request = NULL;
    const char *name = "";
    if (aoticache_manifest_decode(cache, &entry->artifact, NULL, &request, NULL) == AOTICACHE_OK) {
        const aoticache_argument *argument = aoticache_request_argument(request, 0);
        if (argument != NULL && argument->kind == AOTICACHE_ARGUMENT_STRING)
            name = argument->value.string_value;
    }
    char *copy = strdup(name);
    aoticache_request_free(request);
    return copy;
}

static int read_entries(struct model *model, aoticache_entry_list *ret_list)
{
    aoticache_error error = {.message = ""};
    int result = aoticache_cli_open_or_report(model->cli, false, &model->cache);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    aoticache_status status = aoticache_entries_read(model->cache, MODEL_OP, NULL, ret_list, &error);
    return status == AOTICACHE_OK ? result : aoticache_cli_fail(model->cli, status, &error);
}

/* ---- ls ---- */

static void add_row(aoticache_cli_table *table, const aoticache_entry *entry, const char *name)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES], bytes[AOTICACHE_CLI_UNIT_BYTES], age[AOTICACHE_CLI_UNIT_BYTES];
    char used[AOTICACHE_CLI_UNIT_BYTES];
    aoticache_digest_to_hex(&entry->key, hex);
    hex[12] = '\0';
    cleanup_free char *cpu = aoticache_features_text(&entry->requirements);
    const char *const cells[] = {name,
                                 hex,
                                 aoticache_cli_format_bytes(entry->bytes, bytes),
                                 aoticache_cli_format_age(entry->created_ns, age),
                                 entry->uses > 0 ? aoticache_cli_format_age(entry->last_used_ns, used) : "never",
                                 entry->device,
                                 entry->producer,
                                 cpu};
    aoticache_cli_table_add(table, AOTICACHE_CLI_PLAIN, cells);
}

static int list_models(struct model *model, const char *const *words, size_t count)
{
    static const aoticache_cli_column columns[] = {
        {.title = "NAME", .gives_way = 1},     {.title = "KEY"},
        {.title = "SIZE", .right = true},      {.title = "AGE", .right = true},
        {.title = "USED", .right = true},      {.title = "DEVICE"},
        {.title = "PRODUCER", .gives_way = 2}, {.title = "CPU", .gives_way = 3}};
    aoticache_entry_list list = {0};
    (void)words;
    if (count > 0)
        return aoticache_cli_usage_error(model->cli, "ls takes no arguments");
    int result = read_entries(model, &list);
    json_t *array = model->cli->json ? aoticache_cli_json_array() : NULL;
    aoticache_cli_table *table = aoticache_cli_table_create(columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; result == AOTICACHE_CLI_EXIT_OK && i < list.count; i++) {
        cleanup_free char *name = name_of(model->cache, &list.entries[i]);
        if (array == NULL) {
            add_row(table, &list.entries[i], name != NULL ? name : "");
            continue;
        }
        json_t *object = aoticache_entry_to_json(&list.entries[i]);
        aoticache_cli_json_set(object, "name", aoticache_cli_json_text(name != NULL ? name : ""));
        aoticache_cli_json_append(array, object);
    }
    if (result == AOTICACHE_CLI_EXIT_OK && array != NULL)
        aoticache_cli_json_print(json_incref(array));
    else if (result == AOTICACHE_CLI_EXIT_OK && list.count > 0)
        aoticache_cli_table_print(table, model->cli);
    else if (result == AOTICACHE_CLI_EXIT_OK)
        aoticache_cli_note(model->cli, "no model is stored; aoticache.compile(..., id=NAME) in Python stores one");
    json_decref(array);
    aoticache_cli_table_free(table);
    aoticache_entries_free(&list);
    return result;
}

/* ---- rm ---- */

/* Removes all entries of the name, or of the key with this prefix. */
static int remove_model(struct model *model, const aoticache_entry_list *list, const char *word)
{
    size_t removed = 0;
    for (size_t i = 0; i < list->count; i++) {
        char hex[AOTICACHE_DIGEST_HEX_BYTES];
        aoticache_error error = {.message = ""};
        cleanup_free char *name = name_of(model->cache, &list->entries[i]);
        aoticache_digest_to_hex(&list->entries[i].key, hex);
        if ((name == NULL || strcmp(name, word) != 0) && (strlen(word) < 8 || strncmp(hex, word, strlen(word)) != 0))
            continue;
        aoticache_status status = aoticache_cache_remove(model->cache, &list->entries[i].key, &error);
        if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
            return aoticache_cli_fail(model->cli, status, &error);
        removed++;
    }
    if (removed > 0)
        return AOTICACHE_CLI_EXIT_OK;
    aoticache_cli_error(model->cli, "no model named %s; 'aoticache model ls' lists the stored models", word);
    return AOTICACHE_CLI_EXIT_NOT_FOUND;
}

static int remove_models(struct model *model, const char *const *words, size_t count)
{
    aoticache_entry_list list = {0};
    if (count == 0)
        return aoticache_cli_usage_error(model->cli, "rm needs names or keys of models");
    int result = read_entries(model, &list);
    for (size_t i = 0; result == AOTICACHE_CLI_EXIT_OK && i < count; i++)
        result = remove_model(model, &list, words[i]);
    aoticache_entries_free(&list);
    return result;
}

/* ---- show and run ---- */

static int open_model(struct model *model, const char *word, bool partial, aoticache_model_report *ret_report)
{
    aoticache_error error = {.message = ""};
    aoticache_model_options options = AOTICACHE_MODEL_OPTIONS_INIT;
    options.weights = model->weights;
    options.map_weights = model->map_weights;
    options.device = model->device;
    options.partial_weights = partial;
    int result = aoticache_cli_open_or_report(model->cli, false, &model->cache);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    aoticache_status status = aoticache_model_open(model->cache, word, &options, &model->runner, ret_report, &error);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(model->cli, status, &error);
}

static json_t *report_json(const struct model *model, const aoticache_model_report *report)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "name", aoticache_cli_json_text(report->name));
    aoticache_cli_json_set(object, "key", aoticache_cli_json_digest(&report->key));
    aoticache_cli_json_set(object, "framework", aoticache_cli_json_text(report->framework));
    aoticache_cli_json_set(object, "device", aoticache_cli_json_text(aoticache_runner_get_info(model->runner)->device));
    aoticache_cli_json_set(object, "weights", aoticache_cli_json_count(report->tensors));
    aoticache_cli_json_set(object, "missing", aoticache_cli_json_count(report->missing));
    aoticache_cli_json_set(object, "weight_bytes", aoticache_cli_json_count(report->weight_bytes));
    aoticache_cli_json_set(object, "lookup_ns", aoticache_cli_json_count(report->lookup_ns));
    aoticache_cli_json_set(object, "load_ns", aoticache_cli_json_count(report->load_ns));
    aoticache_cli_json_set(object, "weights_ns", aoticache_cli_json_count(report->weights_ns));
    return object;
}

static void print_report(const struct model *model, const aoticache_model_report *report)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES], text[AOTICACHE_CLI_UNIT_BYTES];
    aoticache_digest_to_hex(&report->key, hex);
    aoticache_cli_print_field(model->cli, "model", "%s on %s", report->name[0] != '\0' ? report->name : "a program",
                              aoticache_runner_get_info(model->runner)->device);
    aoticache_cli_print_field(model->cli, "key", "%.12s", hex);
    aoticache_cli_print_field(model->cli, "made by", "%s", report->framework);
    aoticache_cli_print_field(model->cli, "weights", "%zu, %s", report->tensors,
                              aoticache_cli_format_bytes(report->weight_bytes, text));
    if (report->missing > 0)
        aoticache_cli_print_field(model->cli, "not stored", "%zu of them", report->missing);
    aoticache_cli_print_field(
        model->cli, "load", "%s",
        aoticache_cli_format_duration(report->lookup_ns + report->load_ns + report->weights_ns, text));
}

struct listed_tensors {
    const aoticache_cli *cli;
    json_t *array; /* NULL: as text */
};

static bool show_tensor(void *user, const aoticache_model_tensor *tensor)
{
    const struct listed_tensors *listed = user;
    const char *dtype = aoticache_dtype_name(tensor->dtype);
    char sizes[256] = "", bytes[AOTICACHE_CLI_UNIT_BYTES];
    size_t used = 0;
    json_t *list = listed->array != NULL ? aoticache_cli_json_array() : NULL;
    for (int64_t d = 0; d < tensor->ndim; d++) {
        if (list != NULL)
            aoticache_cli_json_append(list, json_integer(tensor->sizes[d]));
        if (used < sizeof sizes)
            used += (size_t)snprintf(sizes + used, sizeof sizes - used, "%s%lld", d > 0 ? "x" : "",
                                     (long long)tensor->sizes[d]);
    }
    if (list == NULL) {
        aoticache_cli_print_field(listed->cli, "weight", "%s  %s:%s  %s%s", tensor->name, dtype, sizes,
                                  aoticache_cli_format_bytes(tensor->bytes, bytes),
                                  tensor->is_stored ? "" : "  not stored");
        return true;
    }
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "name", aoticache_cli_json_text(tensor->name));
    aoticache_cli_json_set(object, "dtype", aoticache_cli_json_text(dtype));
    aoticache_cli_json_set(object, "sizes", list);
    aoticache_cli_json_set(object, "bytes", aoticache_cli_json_count(tensor->bytes));
    aoticache_cli_json_set(object, "stored", json_boolean(tensor->is_stored));
    aoticache_cli_json_append(listed->array, object);
    return true;
}

static int show_model(struct model *model, const char *const *words, size_t count)
{
    aoticache_model_report report;
    aoticache_error error = {.message = ""};
    if (count != 1)
        return aoticache_cli_usage_error(model->cli, "show needs the name or the key of one model");
    int result = open_model(model, words[0], true, &report);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    json_t *object = model->cli->json ? report_json(model, &report) : NULL;
    struct listed_tensors listed = {.cli = model->cli, .array = object != NULL ? aoticache_cli_json_array() : NULL};
    if (object == NULL)
        print_report(model, &report);
    for (size_t i = 0; object == NULL && i < aoticache_runner_num_inputs(model->runner); i++)
        aoticache_cli_print_field(model->cli, "input", "%s", aoticache_runner_tensor_name(model->runner, false, i));
    if (model->tensors) {
        aoticache_status status = aoticache_model_list_tensors(model->cache, words[0], show_tensor, &listed, &error);
        if (status != AOTICACHE_OK)
            result = aoticache_cli_fail(model->cli, status, &error);
    }
    if (object == NULL)
        return result;
    if (model->tensors)
        aoticache_cli_json_set(object, "tensors", json_incref(listed.array));
    json_decref(listed.array);
    aoticache_cli_json_print(object);
    return result;
}

static int run_model(struct model *model, const char *const *words, size_t count)
{
    aoticache_model_report report;
    if (count != 1)
        return aoticache_cli_usage_error(model->cli, "run needs the name or the key of one model");
    int result = aoticache_run_inputs_make(&model->inputs, model->cli);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = open_model(model, words[0], false, &report);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_run_inputs_add(&model->inputs, model->cli, &model->runs);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_timed_runs_execute(&model->runs, model->cli, model->runner);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    if (model->cli->json)
        return aoticache_timed_runs_print_json(&model->runs, model->cli, report_json(model, &report));
    result = aoticache_timed_runs_print_outputs(&model->runs, model->cli, NULL);
    if (result != AOTICACHE_CLI_EXIT_OK || model->cli->quiet)
        return result;
    printf("\n");
    print_report(model, &report);
    aoticache_timed_runs_print_times(&model->runs, model->cli);
    return result;
}

/* ---- why ---- */

static int explain_models(struct model *model, const char *const *words, size_t count)
{
    if (count != 2)
        return aoticache_cli_usage_error(model->cli, "why needs the names or keys of two models");
    int result = aoticache_cli_open_or_report(model->cli, false, &model->cache);
    return result == AOTICACHE_CLI_EXIT_OK
               ? aoticache_model_compare_graphs(model->cli, model->cache, words[0], words[1])
               : result;
}

/* ---- compile: the Python package does it ---- */

static int compile_model(struct model *model, const char *const *words, size_t count)
{
    const char *python = model->python, *arguments[COMPILE_WORDS];
    char directory[PATH_MAX];
    size_t used = 0;
    if (count != 1)
        return aoticache_cli_usage_error(model->cli, "compile needs one file that torch.export.save() wrote");
    if (access(words[0], R_OK) != 0)
        return aoticache_cli_error(model->cli, "cannot read %s: %s", words[0], strerror(errno));
    if (python == NULL || python[0] == '\0')
        python = getenv("AOTICACHE_PYTHON");
    if (python == NULL || python[0] == '\0')
        python = "python3";
    aoticache_cli_directory(model->cli, directory);
    arguments[used++] = python;
    arguments[used++] = "-m";
    arguments[used++] = "aoticache";
    arguments[used++] = "--cache-dir";
    arguments[used++] = directory;
    if (model->cli->json)
        arguments[used++] = "--json";
    arguments[used++] = "compile-model";
    if (model->name != NULL) {
        arguments[used++] = "--name";
        arguments[used++] = model->name;
    }
    if (model->frozen)
        arguments[used++] = "--frozen";
    if (model->replace)
        arguments[used++] = "--replace";
    arguments[used++] = "--";
    arguments[used++] = words[0];
    arguments[used] = NULL;
    execvp(python, (char *const *)arguments);
    return aoticache_cli_error(model->cli, "cannot start %s: %s; set --python to a Python with PyTorch and aoticache",
                               python, strerror(errno));
}

/* ---- the command ---- */

static const struct {
    const char *word;
    int (*run)(struct model *model, const char *const *words, size_t count);
} actions[] = {{"ls", list_models},   {"show", show_model},       {"run", run_model},
               {"rm", remove_models}, {"compile", compile_model}, {"why", explain_models}};

#define ACTION_COUNT (sizeof actions / sizeof actions[0])

static int run_action(struct model *model)
{
    const char *names[ACTION_COUNT + 1] = {NULL}, *word = model->words.items[0];
    for (size_t i = 0; i < ACTION_COUNT; i++) {
        names[i] = actions[i].word;
        if (strcmp(word, names[i]) == 0)
            return actions[i].run(model, model->words.items + 1, model->words.count - 1);
    }
    const char *nearest = aoticache_cli_nearest(word, names);
    if (nearest != NULL)
        return aoticache_cli_usage_error(model->cli, "unknown command 'model %s' (did you mean %s?)", word, nearest);
    return aoticache_cli_usage_error(model->cli, "unknown command 'model %s'", word);
}

static int model_command(aoticache_cli *cli)
{
    struct model model = {.cli = cli};
    int result = aoticache_cli_parse(cli, &model) ? run_action(&model) : cli->exit_code;
    aoticache_timed_runs_free(&model.runs);
    aoticache_run_inputs_free(&model.inputs);
    free(model.words.items);
    aoticache_runner_unref(model.runner);
    aoticache_cache_close(model.cache);
    return result;
}

static const aoticache_cli_option model_options[] = {
    AOTICACHE_CLI_TABLE(struct model, inputs, aoticache_run_inputs_option_table),
    {"weights", 'w', "FILE", "run, show: a .safetensors file; its tensors replace stored\ntensors of the same names",
     AOTICACHE_CLI_NAME(struct model, weights, "a file is needed")},
    {"map-weights", 0, NULL, "run, show: map that file, so that processes share it; it must not\nchange",
     AOTICACHE_CLI_SET(struct model, map_weights), .is_rare = true},
    {"device", 0, "DEVICE", "run, show: the device; default: the device that it was compiled for",
     AOTICACHE_CLI_TEXT(struct model, device)},
    {"tensors", 't', NULL, "show: every weight", AOTICACHE_CLI_SET(struct model, tensors), .is_rare = true},
    {"name", 0, "NAME", "compile: the name to store program and weights under",
     AOTICACHE_CLI_NAME(struct model, name, "a name is needed")},
    {"frozen", 0, NULL, "compile: weights are compiled in, folded and packed", AOTICACHE_CLI_SET(struct model, frozen)},
    {"replace", 0, NULL, "compile: even if the name is stored already", AOTICACHE_CLI_SET(struct model, replace)},
    {"python", 0, "PATH", "compile: the Python with PyTorch and aoticache; default\n$AOTICACHE_PYTHON, python3",
     AOTICACHE_CLI_NAME(struct model, python, "a path")},
    AOTICACHE_CLI_TABLE(struct model, runs, aoticache_timed_runs_option_table),
    {0},
};

const aoticache_command aoticache_command_model = {
    .word = "model",
    .program =
        {
            .name = "aoticache model",
            .help_hint = "aoticache help model",
            .usage = "ACTION [WORD]... [OPTION]...",
            .summary = "Lists, shows, runs, removes and compiles whole models.",
            .details = "  ls               the models that are stored under a name\n"
                       "  show NAME|KEY    everything about one; --tensors lists its weights\n"
                       "  run NAME|KEY     runs one: --input for each of its inputs, as in\n"
                       "                   'aoticache help run'; --weights for a program without weights\n"
                       "  rm NAME|KEY...   removes models; tensors shared with other models are kept\n"
                       "  why A B          the first difference between the graphs of two models; exit\n"
                       "                   code 3 if there is one\n"
                       "  compile FILE     compiles what torch.export.save() wrote (Python package)\n\n"
                       "KEY is the key of a model or a program, or its first digits (8 at least).",
            .options = model_options,
            .operand = {AOTICACHE_CLI_LIST(struct model, words),
                        .wanted = "specify a command: ls, show, run, rm, why or compile"},
        },
    .run = model_command,
};
