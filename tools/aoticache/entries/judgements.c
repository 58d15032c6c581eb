/*
 * tools/aoticache/entries/judgements: timing results of a kernel against the host's own, for `show` and `why`.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"

#include <inttypes.h>

struct printing {
    const aoticache_cli *cli;
    const char *title; /* of the next line */
};

/* Returns "", or the range of numbers of elements: those of a class are between powers of four. */
static char *sizes_text(const aoticache_judgement *judgement)
{
    uint32_t first = judgement->size_class;
    if (first == 0)
        return aoticache_cli_text("%s", "");
    return aoticache_cli_text(", from %" PRIu64 " elements on", UINT64_C(1) << (2 * (first + 1)));
}

static bool print_judgement(void *user, const aoticache_judgement *judgement)
{
    struct printing *printing = user;
    char kernel[AOTICACHE_CLI_UNIT_BYTES], own[AOTICACHE_CLI_UNIT_BYTES], age[AOTICACHE_CLI_UNIT_BYTES];
    cleanup_free char *sizes = sizes_text(judgement);
    cleanup_free char *machine = aoticache_cli_escape_lines(judgement->machine);
    double times = judgement->fallback_ns > 0 ? (double)judgement->kernel_ns / (double)judgement->fallback_ns : 0;
    aoticache_cli_print_field(
        printing->cli, printing->title,
        "%s than the host's own kernel, %.2f times its time (%s, %s): %s%s, up to %" PRIu32 " %s%s, %s ago",
        judgement->is_slower ? "slower" : "faster", times, aoticache_cli_format_duration(judgement->kernel_ns, kernel),
        aoticache_cli_format_duration(judgement->fallback_ns, own), machine,
        judgement->is_this_machine ? " (this machine)" : "", judgement->threads,
        judgement->threads == 1 ? "thread" : "threads", sizes, aoticache_cli_format_age(judgement->judged_ns, age));
    printing->title = "";
    return true;
}

void aoticache_judgements_print(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_key *key)
{
    struct printing printing = {.cli = cli, .title = "judged"};
    aoticache_cache_list_judgements(cache, key, print_judgement, &printing, NULL);
}

static bool append_judgement(void *user, const aoticache_judgement *judgement)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "machine", aoticache_cli_json_text(judgement->machine));
    aoticache_cli_json_set(object, "is_this_machine", json_boolean(judgement->is_this_machine));
    aoticache_cli_json_set(object, "threads", aoticache_cli_json_count(judgement->threads));
    aoticache_cli_json_set(object, "size_class", aoticache_cli_json_count(judgement->size_class));
    aoticache_cli_json_set(object, "is_slower", json_boolean(judgement->is_slower));
    aoticache_cli_json_set(object, "kernel_ns", aoticache_cli_json_count(judgement->kernel_ns));
    aoticache_cli_json_set(object, "fallback_ns", aoticache_cli_json_count(judgement->fallback_ns));
    aoticache_cli_json_set(object, "judged_ns", json_integer(judgement->judged_ns));
    aoticache_cli_json_append(user, object);
    return true;
}

json_t *aoticache_judgements_to_json(aoticache_cache *cache, const aoticache_key *key)
{
    json_t *array = aoticache_cli_json_array();
    aoticache_cache_list_judgements(cache, key, append_judgement, array, NULL);
    return array;
}
