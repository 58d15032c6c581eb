/*
 * tools/aoticache/arguments/options: what `run` and `compile` are asked for: the operator, its arguments in the order given,
 * the hook's options. Collects words; requests are made of them by request.c.
 */
#include "tools/aoticache/arguments/arguments.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void aoticache_kernel_options_begin(aoticache_kernel_options *options, const aoticache_cli *cli)
{
    *options = (aoticache_kernel_options){
        .device = {.type = AOTICACHE_DEVICE_TYPE_CPU, .index = -1},
        .hook = "auto",
        .hook_options = AOTICACHE_HOOK_OPTIONS_INIT,
    };
    options->hook_options.logger = aoticache_cli_logger(cli);
}

void aoticache_kernel_options_free(aoticache_kernel_options *options)
{
    for (size_t i = 0; i < options->word_count; i++)
        free(options->words[i].name);
    for (size_t i = 0; i < options->tensor_count; i++) {
        free(options->tensors[i].row_major);
        free(options->tensors[i].data);
    }
    free(options->words);
    free(options->tensors);
    free(options->kernel_folders);
}

/* Length of an identifier at the start of `text`. */
static size_t identifier_length(const char *text)
{
    size_t length = 0;
    if (isalpha((unsigned char)text[0]) || text[0] == '_')
        while (isalnum((unsigned char)text[length]) || text[length] == '_')
            length++;
    return length;
}

/* "NAME=VALUE", "=VALUE" or "VALUE". */
static void add_word(aoticache_kernel_options *options, int id, const char *value)
{
    aoticache_kernel_word word = {.id = id, .value = value};
    size_t length = identifier_length(value);
    if (value[length] == '=') {
        word.name = length > 0 ? aoticache_cli_text("%.*s", (int)length, value) : NULL;
        word.value = value + length + 1;
    }
    options->words = aoticache_cli_resize(options->words, options->word_count + 1, sizeof *options->words);
    options->words[options->word_count++] = word;
}

/* --none takes its keyword as --none=NAME, all others before their value. */
static int add_none(aoticache_kernel_options *options, const aoticache_cli *cli, const char *name)
{
    if (name != NULL && (identifier_length(name) == 0 || name[identifier_length(name)] != '\0'))
        return aoticache_cli_usage_error(cli, "option --none: '%s' is not the name of an argument", name);
    aoticache_kernel_word word = {.id = AOTICACHE_KERNEL_NONE, .value = ""};
    word.name = name != NULL ? aoticache_cli_text("%s", name) : NULL;
    options->words = aoticache_cli_resize(options->words, options->word_count + 1, sizeof *options->words);
    options->words[options->word_count++] = word;
    return AOTICACHE_CLI_EXIT_OK;
}

static int take_operator(aoticache_kernel_options *options, const aoticache_cli *cli, const char *op)
{
    if (options->op != NULL)
        return aoticache_cli_usage_error(cli, "unexpected argument '%s': the operator is %s", op, options->op);
    options->op = op;
    return AOTICACHE_CLI_EXIT_OK;
}

static int take_device(aoticache_kernel_options *options, const aoticache_cli *cli, const char *value)
{
    if (aoticache_device_parse(value, &options->device) != AOTICACHE_OK)
        return aoticache_cli_usage_error(cli, "option --device: '%s' is not a device such as cpu or cuda:0", value);
    return AOTICACHE_CLI_EXIT_OK;
}

static int take_timeout(aoticache_kernel_options *options, const aoticache_cli *cli, const char *value)
{
    int64_t seconds;
    if (!aoticache_cli_parse_int(value, 1, 86400, &seconds))
        return aoticache_cli_usage_error(cli, "option --timeout: '%s' is not a number of seconds from 1 to 86400",
                                         value);
    options->hook_options.timeout_seconds = (uint32_t)seconds;
    return AOTICACHE_CLI_EXIT_OK;
}

static int take_cpu(aoticache_kernel_options *options, const aoticache_cli *cli, const char *value)
{
    aoticache_cpu_features features;
    aoticache_error error = {.message = ""};
    if (aoticache_cpu_features_parse(value, &features, &error) != AOTICACHE_OK)
        return aoticache_cli_usage_error(cli, "option --cpu: %s", error.message);
    options->hook_options.cpu_features = value;
    return AOTICACHE_CLI_EXIT_OK;
}

static int take_seed(aoticache_kernel_options *options, const aoticache_cli *cli, const char *value)
{
    int64_t seed;
    if (!aoticache_cli_parse_int(value, 0, INT64_MAX, &seed))
        return aoticache_cli_usage_error(cli, "option --seed: '%s' is not a number of 0 or more", value);
    options->seed = (uint64_t)seed;
    return AOTICACHE_CLI_EXIT_OK;
}

static int take_hook(aoticache_kernel_options *options, const aoticache_cli *cli, const char *value)
{
    static const char *const names[] = {"auto", "worker", "c", "none"};
    options->hook = value;
    for (size_t i = 0; i < 4; i++)
        if (strcmp(value, names[i]) == 0)
            return AOTICACHE_CLI_EXIT_OK;
    if (strncmp(value, "command:", 8) == 0 && value[8] != '\0')
        return AOTICACHE_CLI_EXIT_OK;
    return aoticache_cli_usage_error(cli, "option --hook: '%s' is not auto, worker, c, command:PROGRAM or none", value);
}

static int take_path(const char **place, const aoticache_cli *cli, const char *option, const char *value)
{
    if (value[0] == '\0')
        return aoticache_cli_usage_error(cli, "option --%s: the path is empty", option);
    *place = value;
    return AOTICACHE_CLI_EXIT_OK;
}

static int take_folder(aoticache_kernel_options *options, const aoticache_cli *cli, const char *value)
{
    const char *folder = NULL;
    int result = take_path(&folder, cli, "kernels", value);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    options->kernel_folders = aoticache_cli_resize(options->kernel_folders, options->kernel_folder_count + 2,
                                                   sizeof *options->kernel_folders);
    options->kernel_folders[options->kernel_folder_count++] = folder;
    options->kernel_folders[options->kernel_folder_count] = NULL;
    options->hook_options.kernel_folders = options->kernel_folders;
    return AOTICACHE_CLI_EXIT_OK;
}

int aoticache_kernel_options_take(aoticache_kernel_options *options, const aoticache_cli *cli, int id,
                                  const char *value)
{
    switch (id) {
    case AOTICACHE_CLI_OPERAND:
        return take_operator(options, cli, value);
    case AOTICACHE_KERNEL_NONE:
        return add_none(options, cli, value);
    case AOTICACHE_KERNEL_DEVICE:
        return take_device(options, cli, value);
    case AOTICACHE_KERNEL_SEED:
        return take_seed(options, cli, value);
    case AOTICACHE_KERNEL_HOOK:
        return take_hook(options, cli, value);
    case AOTICACHE_KERNEL_PYTHON:
        return take_path(&options->python, cli, "python", value);
    case AOTICACHE_KERNEL_CC:
        return take_path(&options->cc, cli, "cc", value);
    case AOTICACHE_KERNEL_KERNELS:
        return take_folder(options, cli, value);
    case AOTICACHE_KERNEL_CPU:
        return take_cpu(options, cli, value);
    case AOTICACHE_KERNEL_TIMEOUT:
        return take_timeout(options, cli, value);
    case AOTICACHE_KERNEL_RETRY:
        options->retry = true;
        return AOTICACHE_CLI_EXIT_OK;
    default:
        add_word(options, id, value);
        return AOTICACHE_CLI_EXIT_OK;
    }
}
