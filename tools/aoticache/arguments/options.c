/*
 * tools/aoticache/arguments/options: the options of `run` and `compile`: the operator, its arguments in the given order, the
 * hook's options. Words are collected here; request.c makes requests from them.
 */
#include "tools/aoticache/arguments/arguments.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void aoticache_kernel_options_begin(aoticache_kernel_options *options, const aoticache_cli *cli)
{
    *options = (aoticache_kernel_options){
        .device = AOTICACHE_DEVICE_CPU,
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
    free(options->kernel_directories.items);
}

/* Returns the length of an identifier at the start of `text`. */
static size_t identifier_length(const char *text)
{
    size_t length = 0;
    if (isalpha((unsigned char)text[0]) || text[0] == '_')
        while (isalnum((unsigned char)text[length]) || text[length] == '_')
            length++;
    return length;
}

/* Adds a word; takes ownership of the name. */
static void add_word(aoticache_kernel_options *options, const aoticache_cli_option *option, char *name,
                     const char *value)
{
    options->words = aoticache_cli_resize(options->words, options->word_count + 1, sizeof *options->words);
    options->words[options->word_count++] = (aoticache_kernel_word){.option = option, .name = name, .value = value};
}

/* Reads "NAME=VALUE", "=VALUE" or "VALUE". */
static int read_argument(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    (void)cli;
    char *name = NULL;
    size_t length = identifier_length(value);
    if (value[length] == '=') {
        name = length > 0 ? aoticache_cli_text("%.*s", (int)length, value) : NULL;
        value += length + 1;
    }
    add_word(member, option, name, value);
    return AOTICACHE_CLI_EXIT_OK;
}

/* Reads --none, which has its keyword as --none=NAME; all other options have it before their value. */
static int read_none(const aoticache_cli *cli, const aoticache_cli_option *option, const char *name, void *member)
{
    if (name != NULL && (identifier_length(name) == 0 || name[identifier_length(name)] != '\0'))
        return aoticache_cli_usage_error(cli, "option --none: '%s' is not the name of an argument", name);
    add_word(member, option, name != NULL ? aoticache_cli_text("%s", name) : NULL, "");
    return AOTICACHE_CLI_EXIT_OK;
}

int aoticache_operator_read(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value,
                            void *member)
{
    const char **op = member;
    (void)option;
    if (*op != NULL)
        return aoticache_cli_usage_error(cli, "unexpected argument '%s': the operator is %s", value, *op);
    *op = value;
    return AOTICACHE_CLI_EXIT_OK;
}

static int read_device(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    if (aoticache_device_parse(value, member) == AOTICACHE_OK)
        return AOTICACHE_CLI_EXIT_OK;
    return aoticache_cli_usage_error(cli, "option --%s: '%s' is not a device such as cpu or cuda:0", option->name,
                                     value);
}

int aoticache_device_name_read(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value,
                               void *member)
{
    aoticache_device device;
    *(const char **)member = value;
    return read_device(cli, option, value, &device);
}

static int read_cpu(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    aoticache_cpu_features features;
    aoticache_error error = {.message = ""};
    if (strcmp(value, AOTICACHE_CPU_NATIVE) != 0 &&
        aoticache_cpu_features_parse(value, &features, &error) != AOTICACHE_OK)
        return aoticache_cli_usage_error(cli, "option --%s: %s", option->name, error.message);
    *(const char **)member = value;
    return AOTICACHE_CLI_EXIT_OK;
}

int aoticache_hook_kind_read(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value,
                             void *member)
{
    static const char *const names[] = {"auto", "worker", "c", "none"};
    aoticache_kernel_options *options = member;
    options->hook = value;
    for (size_t i = 0; i < 4; i++)
        if (strcmp(value, names[i]) == 0)
            return AOTICACHE_CLI_EXIT_OK;
    if (strncmp(value, "command:", 8) == 0 && value[8] != '\0')
        return AOTICACHE_CLI_EXIT_OK;
    return aoticache_cli_usage_error(cli, "option --%s: '%s' is not auto, worker, c, command:PROGRAM or none",
                                     option->name, value);
}

/* ---- the tables ---- */

#define ARGUMENT(kind) \
    AOTICACHE_CLI_FUNCTION(aoticache_kernel_options, op, read_argument), .id = AOTICACHE_KERNEL_##kind

const aoticache_cli_option aoticache_hook_option_table[] = {
    {"python", 0, "PATH", "the Python with PyTorch; default $AOTICACHE_PYTHON, python3",
     AOTICACHE_CLI_NAME(aoticache_kernel_options, python, "a path")},
    {"cc", 0, "PATH", "the C compiler; default $AOTICACHE_CC, cc",
     AOTICACHE_CLI_NAME(aoticache_kernel_options, cc, "a path")},
    {"kernels", 0, "DIR", "a directory of C kernels, searched before the installed ones; may\nbe repeated",
     AOTICACHE_CLI_LIST(aoticache_kernel_options, kernel_directories), .wanted = "a path", .is_rare = true},
    {"cpu", 0, "LEVEL",
     "CPU features that the code may use: x86-64-v3, avx2,fma,\nor native: all that this machine has; default: the setting cpu",
     AOTICACHE_CLI_FUNCTION(aoticache_kernel_options, hook_options.cpu_features, read_cpu), .is_rare = true},
    {0},
};

const aoticache_cli_option aoticache_kernel_option_table[] = {
    {"input", 'i', "SPEC", "a tensor", ARGUMENT(INPUT)},
    {"inputs", 0, "SPEC,SPEC,...", "a list of tensors", ARGUMENT(INPUTS), .is_rare = true},
    {"weight", 'w', "SPEC", "a tensor whose data is compiled in", ARGUMENT(WEIGHT)},
    {"scalar", 's', "NUMBER", "a number: 2 is an integer, 2.0 and 2e0 are floating point", ARGUMENT(SCALAR)},
    {"int", 0, "NUMBER", "an integer", ARGUMENT(INT), .is_rare = true},
    {"double", 0, "NUMBER", "a floating-point number", ARGUMENT(DOUBLE), .is_rare = true},
    {"bool", 0, "true|false", "a boolean", ARGUMENT(BOOL), .is_rare = true},
    {"complex", 0, "RE,IM", "a complex number", ARGUMENT(COMPLEX), .is_rare = true},
    {"string", 0, "TEXT", "a string", ARGUMENT(STRING), .is_rare = true},
    {"none", 0, "[=NAME]", "an absent optional argument",
     AOTICACHE_CLI_FUNCTION(aoticache_kernel_options, op, read_none), .id = AOTICACHE_KERNEL_NONE},
    {"list", 0, "V,V,...", "a list of numbers, truth values or none; may be empty", ARGUMENT(LIST)},
    {"dtype", 0, "DTYPE", "a dtype: float64, bfloat16, ...", ARGUMENT(DTYPE)},
    {"layout", 0, "LAYOUT", "a layout: strided, ...", ARGUMENT(LAYOUT), .is_rare = true},
    {"memory-format", 0, "FORMAT", "a memory format: channels_last, ...", ARGUMENT(MEMORY_FORMAT), .is_rare = true},
    {"device-argument", 0, "DEVICE", "a device as an argument", ARGUMENT(DEVICE_ARGUMENT), .is_rare = true},
    {"device", 0, "DEVICE", "the device to compile for; default cpu",
     AOTICACHE_CLI_FUNCTION(aoticache_kernel_options, device, read_device)},
    {"seed", 0, "N", "the seed of random fills; default 0",
     AOTICACHE_CLI_INTEGER(aoticache_kernel_options, seed, 0, INT64_MAX, "a number of 0 or more")},
    {"hook", 0, "auto|worker|c|command:PROGRAM|none", "what compiles on a miss; default auto",
     AOTICACHE_CLI_FUNCTION(aoticache_kernel_options, op, aoticache_hook_kind_read)},
    {.kind = AOTICACHE_CLI_KIND_TABLE, .table = aoticache_hook_option_table},
    {"timeout", 0, "SECONDS", "the time limit of a compile; default 300",
     AOTICACHE_CLI_INTEGER(aoticache_kernel_options, hook_options.timeout_seconds, 1, 86400,
                           "a number of seconds from 1 to 86400")},
    {"retry", 0, NULL, "forget that this compile failed before", AOTICACHE_CLI_SET(aoticache_kernel_options, retry),
     .is_rare = true},
    {0},
};
