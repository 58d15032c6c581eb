/*
 * tools/aoticache/ls/filter: selects the entries that `aoticache ls` lists, and their order.
 */
#include "base/cleanup.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/ls/ls_internal.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define AGE "an age such as 90s, 12h, 30d"

static int read_environment(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value,
                            void *member)
{
    const char *equals = strchr(value, '=');
    if (equals == NULL || equals == value)
        return aoticache_cli_usage_error(cli, "option --%s: '%s' is not NAME=PATTERN, such as framework='pytorch*'",
                                         option->name, value);
    aoticache_cli_list_add(member, value);
    return AOTICACHE_CLI_EXIT_OK;
}

/* Reads a kind. A name without wildcards must be a kind that this library, its binding or its tools store. A pattern may be
 * any text. */
static int read_kind(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    static const char *const kinds[] = {"operator",       "model",
                                        "program",        "package",
                                        "torch-bridge",   "inductor-cpp",
                                        "inductor-probe", "inductor-sources",
                                        "inductor-graph", "aotautograd",
                                        "autotune",       "dynamo-profile",
                                        "triton",         NULL};
    const char **kind = member;
    size_t position = 0;
    *kind = value;
    if (strpbrk(value, "*?[") != NULL)
        return AOTICACHE_CLI_EXIT_OK;
    if (!aoticache_cli_parse_word(cli, option->name, value, kinds, &position))
        return AOTICACHE_CLI_EXIT_USAGE;
    *kind = kinds[position];
    return AOTICACHE_CLI_EXIT_OK;
}

const aoticache_cli_option aoticache_ls_filter_option_table[] = {
    {"op", 0, "PATTERN", "only operators that match this: 'aten::*'", AOTICACHE_CLI_TEXT(aoticache_ls_filter, op)},
    {"kind", 0, "PATTERN",
     "only this kind: operator, model, program, package, torch-bridge,\n"
     "inductor-cpp, inductor-probe, inductor-sources, inductor-graph,\n"
     "aotautograd, autotune, dynamo-profile or triton;\n"
     "'inductor-*' for several",
     AOTICACHE_CLI_FUNCTION(aoticache_ls_filter, kind, read_kind)},
    {"device", 0, "DEVICE", "only kernels for this device: cpu, cuda:1, or cuda (all of them)",
     AOTICACHE_CLI_FUNCTION(aoticache_ls_filter, device, aoticache_device_name_read)},
    {"producer", 0, "PATTERN", "only kernels of this producer: 'pytorch 2.1*'",
     AOTICACHE_CLI_TEXT(aoticache_ls_filter, producer), .is_rare = true},
    {"environment", 'e', "NAME=PATTERN",
     "only kernels whose environment has this pair, as\n'aoticache show' prints it; reads the manifests",
     AOTICACHE_CLI_FUNCTION(aoticache_ls_filter, environment, read_environment)},
    {"tag", 't', "TAG", "only kernels with this tag", AOTICACHE_CLI_TEXT(aoticache_ls_filter, tag)},
    {"pinned", 0, NULL, "only pinned kernels", AOTICACHE_CLI_SET(aoticache_ls_filter, pinned)},
    {"used-since", 0, "AGE", "only kernels used in the last 12h, 30d, ...",
     AOTICACHE_CLI_MOMENT(aoticache_ls_filter, used_since_ns, 0, AGE)},
    {"unused-for", 0, "AGE",
     "only kernels not used in the last 12h, 30d, ...; a kernel that was\nnever used counts from when it was made",
     AOTICACHE_CLI_MOMENT(aoticache_ls_filter, unused_since_ns, 0, AGE)},
    {"larger", 0, "SIZE", "only kernels larger than 512K, 10M, ...",
     AOTICACHE_CLI_SIZE(aoticache_ls_filter, larger, 0, "a size such as 512K or 10M")},
    {"newer", 0, "AGE", "only kernels made in the last 12h, 30d, ...",
     AOTICACHE_CLI_MOMENT(aoticache_ls_filter, newer_ns, 0, AGE)},
    {"cpu", 0, NULL, "only kernels that this machine's CPU can run", AOTICACHE_CLI_SET(aoticache_ls_filter, cpu),
     .is_rare = true},
    {0},
};

/* ---- conditions ---- */

bool aoticache_ls_filter_is_set(const aoticache_ls_filter *filter)
{
    return filter->exact_op != NULL || filter->op != NULL || filter->kind != NULL || filter->device != NULL ||
           filter->producer != NULL || filter->tag != NULL || filter->environment.count > 0 || filter->pinned ||
           filter->cpu || filter->larger > 0 || filter->used_since_ns != 0 || filter->unused_since_ns != 0 ||
           filter->newer_ns != 0;
}

/* Returns whether the device matches: "cuda" matches "cuda:0", "cuda:1", ... */
static bool is_device(const char *wanted, const char *device)
{
    size_t length = strlen(wanted);
    return strncmp(wanted, device, length) == 0 && (device[length] == '\0' || device[length] == ':');
}

/* Returns whether the kind matches. An entry that is not a kernel of an operator has a name in the namespace "aoticache::",
 * which is its kind with '_' instead of '-'. */
static bool is_kind(const char *pattern, const char *op)
{
    static const char namespace[] = "aoticache::";
    const bool is_other = strncmp(op, namespace, sizeof namespace - 1) == 0;
    cleanup_free char *kind = aoticache_cli_text("%s", is_other ? op + sizeof namespace - 1 : "operator");
    for (char *c = kind; *c != '\0'; c++)
        if (*c == '_')
            *c = '-';
    return fnmatch(pattern, kind, 0) == 0;
}

static bool accepts_texts(const aoticache_ls_filter *filter, const aoticache_entry *entry)
{
    return (filter->op == NULL || fnmatch(filter->op, entry->op, 0) == 0) &&
           (filter->kind == NULL || is_kind(filter->kind, entry->op)) &&
           (filter->device == NULL || is_device(filter->device, entry->device)) &&
           (filter->producer == NULL || fnmatch(filter->producer, entry->producer, 0) == 0);
}

static bool accepts_numbers(const aoticache_ls_filter *filter, const aoticache_entry *entry)
{
    int64_t last_ns = entry->last_used_ns > 0 ? entry->last_used_ns : entry->created_ns;
    return entry->bytes >= filter->larger + (filter->larger > 0) &&
           (filter->used_since_ns == 0 || entry->last_used_ns >= filter->used_since_ns) &&
           (filter->unused_since_ns == 0 || last_ns <= filter->unused_since_ns) &&
           (filter->newer_ns == 0 || entry->created_ns >= filter->newer_ns);
}

/* Checks the environment. An entry whose manifest cannot be read has no environment. */
static bool accepts_environment(const aoticache_ls_filter *filter, aoticache_cache *cache, const aoticache_entry *entry)
{
    aoticache_request *request = NULL;
    bool accepts = true;
    if (filter->environment.count == 0)
        return true;
    if (aoticache_manifest_decode(cache, &entry->artifact, NULL, &request, NULL) != AOTICACHE_OK)
        return false;
    for (size_t i = 0; i < filter->environment.count && accepts; i++) {
        const char *pair = filter->environment.items[i];
        size_t length = strcspn(pair, "=");
        cleanup_free char *name = aoticache_cli_text("%.*s", (int)length, pair);
        const char *value = aoticache_request_get_environment(request, name);
        accepts = value != NULL && fnmatch(pair + length + 1, value, 0) == 0;
    }
    aoticache_request_free(request);
    return accepts;
}

bool aoticache_ls_filter_accepts(const aoticache_ls_filter *filter, aoticache_cache *cache,
                                 const aoticache_entry *entry, const aoticache_pins *mark)
{
    return accepts_texts(filter, entry) && accepts_numbers(filter, entry) &&
           (!filter->pinned || (mark != NULL && mark->is_pinned)) &&
           (filter->tag == NULL || aoticache_pin_has_tag(mark, filter->tag)) &&
           (!filter->cpu || aoticache_cpu_features_include(aoticache_cpu_features_get(), &entry->requirements)) &&
           accepts_environment(filter, cache, entry);
}

/* ---- orders: equal entries are in the order of operators and keys, so that a list is the same each time ---- */

static int by_op(const aoticache_entry *a, const aoticache_entry *b)
{
    int order = strcmp(a->op, b->op);
    if (order == 0)
        order = memcmp(a->key.bytes, b->key.bytes, sizeof a->key.bytes);
    return order != 0 ? order : memcmp(a->artifact.bytes, b->artifact.bytes, sizeof a->artifact.bytes);
}

#define ORDER(name, left, right)                                         \
    static int name(const void *left_pointer, const void *right_pointer) \
    {                                                                    \
        const aoticache_entry *a = left_pointer, *b = right_pointer;     \
        int order = ((left) > (right)) - ((left) < (right));             \
        return order != 0 ? order : by_op(a, b);                         \
    }

ORDER(by_size, b->bytes, a->bytes)
ORDER(by_age, b->created_ns, a->created_ns)
ORDER(by_use, b->last_used_ns, a->last_used_ns)
ORDER(by_uses, b->uses, a->uses)
ORDER(by_compile, b->compile_ns, a->compile_ns)

int aoticache_ls_sort_read(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value,
                           void *member)
{
    static const char *const words[] = {"operator", "size", "age", "used", "uses", "compile", NULL};
    static const aoticache_ls_order orders[] = {NULL, by_size, by_age, by_use, by_uses, by_compile};
    aoticache_ls_sort *sort = member;
    const bool reverse = value[0] == '-';
    size_t position;
    if (!aoticache_cli_parse_word(cli, option->name, value + reverse, words, &position))
        return AOTICACHE_CLI_EXIT_USAGE;
    sort->order = orders[position];
    sort->reverse = sort->reverse != reverse;
    return AOTICACHE_CLI_EXIT_OK;
}
