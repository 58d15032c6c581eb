/*
 * tools/aoticache/ls/filter: which entries `aoticache ls` shows, and in which order.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/ls/internal.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_SECOND INT64_C(1000000000)

/* ---- the command line ---- */

/* *ret_ns: the moment so long ago. */
static int take_age(const aoticache_cli *cli, const char *option, const char *value, int64_t *ret_ns)
{
    uint64_t seconds;
    int64_t now = aoticache_wall_ns();
    if (!aoticache_cli_parse_age(value, &seconds))
        return aoticache_cli_usage_error(cli, "option --%s: '%s' is not an age such as 90s, 12h, 30d", option, value);
    *ret_ns = seconds < (uint64_t)(now / NS_PER_SECOND) ? now - (int64_t)seconds * NS_PER_SECOND : 1;
    return AOTICACHE_CLI_EXIT_OK;
}

static int take_environment(aoticache_ls_filter *filter, const aoticache_cli *cli, const char *value)
{
    const char *equals = strchr(value, '=');
    if (equals == NULL || equals == value)
        return aoticache_cli_usage_error(
            cli, "option --environment: '%s' is not NAME=PATTERN, such as framework='pytorch*'", value);
    filter->environment =
        aoticache_cli_resize(filter->environment, filter->environment_count + 1, sizeof *filter->environment);
    filter->environment[filter->environment_count++] = value;
    return AOTICACHE_CLI_EXIT_OK;
}

int aoticache_ls_filter_take(aoticache_ls_filter *filter, const aoticache_cli *cli, int id, const char *value)
{
    aoticache_device device;
    switch (id) {
    case AOTICACHE_LS_OP:
        filter->op = value;
        break;
    case AOTICACHE_LS_DEVICE:
        if (aoticache_device_parse(value, &device) != AOTICACHE_OK)
            return aoticache_cli_usage_error(cli, "option --device: '%s' is not a device such as cpu or cuda:0", value);
        filter->device = value;
        break;
    case AOTICACHE_LS_PRODUCER:
        filter->producer = value;
        break;
    case AOTICACHE_LS_ENVIRONMENT:
        return take_environment(filter, cli, value);
    case AOTICACHE_LS_TAG:
        filter->tag = value;
        break;
    case AOTICACHE_LS_PINNED:
        filter->pinned = true;
        break;
    case AOTICACHE_LS_USED_SINCE:
        return take_age(cli, "used-since", value, &filter->used_since_ns);
    case AOTICACHE_LS_UNUSED_FOR:
        return take_age(cli, "unused-for", value, &filter->unused_since_ns);
    case AOTICACHE_LS_LARGER:
        if (!aoticache_cli_parse_size(value, &filter->larger))
            return aoticache_cli_usage_error(cli, "option --larger: '%s' is not a size such as 512K or 10M", value);
        break;
    case AOTICACHE_LS_NEWER:
        return take_age(cli, "newer", value, &filter->newer_ns);
    default:
        filter->cpu = true;
        break;
    }
    return AOTICACHE_CLI_EXIT_OK;
}

/* ---- conditions ---- */

bool aoticache_ls_filter_is_set(const aoticache_ls_filter *filter)
{
    return filter->exact_op != NULL || filter->op != NULL || filter->device != NULL || filter->producer != NULL ||
           filter->tag != NULL || filter->environment_count > 0 || filter->pinned || filter->cpu ||
           filter->larger > 0 || filter->used_since_ns != 0 || filter->unused_since_ns != 0 || filter->newer_ns != 0;
}

/* "cuda" is all of "cuda:0", "cuda:1", ... */
static bool is_device(const char *wanted, const char *device)
{
    size_t length = strlen(wanted);
    return strncmp(wanted, device, length) == 0 && (device[length] == '\0' || device[length] == ':');
}

static bool accepts_texts(const aoticache_ls_filter *filter, const aoticache_entry *entry)
{
    return (filter->op == NULL || fnmatch(filter->op, entry->op, 0) == 0) &&
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

/* An entry whose manifest cannot be read has no environment. */
static bool accepts_environment(const aoticache_ls_filter *filter, aoticache_cache *cache,
                                const aoticache_entry *entry)
{
    aoticache_request *request = NULL;
    bool accepts = true;
    if (filter->environment_count == 0)
        return true;
    if (aoticache_manifest_decode(cache, &entry->artifact, NULL, &request, NULL) != AOTICACHE_OK)
        return false;
    for (size_t i = 0; i < filter->environment_count && accepts; i++) {
        const char *pair = filter->environment[i];
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

/* ---- orders: of equal ones, the order of operators and keys, so that a list is the same each time ---- */

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

int aoticache_ls_order_parse(const aoticache_cli *cli, const char *text, aoticache_ls_order *ret_order,
                             bool *ret_reverse)
{
    static const char *const words[] = {"operator", "size", "age", "used", "uses", "compile", NULL};
    static const aoticache_ls_order orders[] = {NULL, by_size, by_age, by_use, by_uses, by_compile};
    const bool reverse = text[0] == '-';
    size_t position;
    if (!aoticache_cli_parse_word(cli, "sort", text + reverse, words, &position))
        return AOTICACHE_CLI_EXIT_USAGE;
    *ret_order = orders[position];
    *ret_reverse = reverse;
    return AOTICACHE_CLI_EXIT_OK;
}
