/*
 * aoticache why: explains a hit or a miss: the entries nearest to the request, and exactly what differs.
 *
 * It changes nothing: the lookup uses a cache opened for reading, so statistics do not count it.
 */
#include "base/cleanup.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/aoticache_internal.h"
#include "tools/aoticache/why/why_internal.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_NEAREST 3

struct question {
    aoticache_kernel_options kernel;
    size_t nearest; /* how many of the nearest kernels to show */
    aoticache_hook *hook;
    aoticache_error no_environment; /* why the hook has none for this request */
};

static const aoticache_cli_option why_options[] = {
    AOTICACHE_CLI_TABLE(struct question, kernel, aoticache_kernel_option_table),
    {"nearest", 'n', "N", "how many of the nearest kernels to show; default 3",
     AOTICACHE_CLI_INTEGER(struct question, nearest, 0, 1000, "a number from 0 to 1000")},
    {0},
};

/* ---- the request ---- */

/* Parses "aten::abs(float32[3]) on cpu", as logs and `ls` print it, or a line of a list. */
static int make_request_of_line(const aoticache_cli *cli, const aoticache_kernel_options *kernel,
                                aoticache_request **ret_request)
{
    aoticache_error error = {.message = ""};
    if (kernel->word_count > 0)
        return aoticache_cli_usage_error(cli, "the line '%s' already has its arguments; none can be added", kernel->op);
    if (aoticache_kernel_parse_line(kernel->op, ret_request, &error) != AOTICACHE_OK)
        return aoticache_cli_usage_error(cli, "'%s': %s", kernel->op, error.message);
    return AOTICACHE_CLI_EXIT_OK;
}

static int make_request(const aoticache_cli *cli, struct question *question, aoticache_why *why)
{
    if (strpbrk(question->kernel.op, "({") != NULL)
        return make_request_of_line(cli, &question->kernel, &why->asked);
    int result = aoticache_kernel_make_tensors(&question->kernel, cli);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    return aoticache_kernel_make_request(&question->kernel, cli, &why->asked);
}

/* Sets the environment; without a compiler there is still much to compare. */
static int set_environment(const aoticache_cli *cli, struct question *question, aoticache_why *why)
{
    bool is_any = strcmp(question->kernel.hook, "auto") == 0;
    int result = aoticache_kernel_choose_hook(&question->kernel, cli, &question->hook);
    if (result != AOTICACHE_CLI_EXIT_OK && !is_any)
        return result;
    if (question->hook == NULL) {
        why->no_environment = is_any ? "there is none" : "none is asked";
        return AOTICACHE_CLI_EXIT_OK;
    }
    aoticache_error *error = &question->no_environment;
    aoticache_status status = aoticache_hook_set_environment(question->hook, why->asked, error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_key(why->asked, &why->key, error);
    if (status == AOTICACHE_OK)
        why->producer = aoticache_hook_get_info(question->hook).producer;
    else
        why->no_environment = error->message;
    return AOTICACHE_CLI_EXIT_OK;
}

/* ---- the contents of the cache ---- */

typedef struct failure_search {
    aoticache_why *why;
    const char *description;
} failure_search;

static bool copy_failure(void *user, const aoticache_failure *failure)
{
    const failure_search *search = user;
    aoticache_why *why = search->why;
    bool is_it = why->producer != NULL ? aoticache_digest_equal(&failure->key, &why->key)
                                       : strcmp(failure->description, search->description) == 0;
    if (!is_it)
        return true;
    why->failure = *failure;
    why->failure.op = aoticache_cli_text("%s", failure->op);
    why->failure.description = aoticache_cli_text("%s", failure->description);
    why->failure.message = aoticache_cli_text("%s", failure->message);
    return false;
}

/* Returns whether it differs at most in what this CPU can run. */
static bool is_the_kernel(const aoticache_why *why, const aoticache_candidate *candidate)
{
    if (candidate->difference_count == SIZE_MAX)
        return why->producer != NULL && aoticache_digest_equal(&candidate->entry->key, &why->key);
    return candidate->difference_count - !candidate->fits == 0;
}

/* Returns OK, or NOT_FOUND if the files cannot be used: *ret_damage has the reason. */
static aoticache_status try_lookup(const aoticache_why *why, const aoticache_entry *entry, char **ret_damage)
{
    aoticache_cache_options options = aoticache_cli_cache_options(why->cli);
    aoticache_artifact *artifact = NULL;
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    options.directory = aoticache_cache_directory(why->cache);
    options.read_only = options.must_exist = true;
    aoticache_status status = aoticache_cache_open(&options, &cache, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_open_artifact(cache, &entry->artifact, &artifact, &error);
    if (status != AOTICACHE_OK)
        *ret_damage =
            aoticache_cli_text("%s", error.message[0] != '\0' ? error.message : aoticache_status_text(status));
    aoticache_artifact_unref(artifact);
    aoticache_cache_close(cache);
    return status;
}

/* Finds among entries that are the kernel: one that can be used, otherwise one that this CPU cannot run, otherwise a damaged
 * one. */
static bool find_kernel(aoticache_why *why)
{
    const aoticache_entry *unfit = NULL, *damaged = NULL;
    for (size_t i = 0; i < why->candidates.count; i++) {
        const aoticache_candidate *candidate = &why->candidates.items[i];
        if (!is_the_kernel(why, candidate))
            continue;
        if (!candidate->fits) {
            unfit = unfit != NULL ? unfit : candidate->entry;
            continue;
        }
        free(why->damage);
        why->damage = NULL;
        if (try_lookup(why, candidate->entry, &why->damage) == AOTICACHE_OK) {
            why->answer = candidate->entry;
            why->reason = candidate->entry->guard[0] != '\0' ? AOTICACHE_WHY_guard : AOTICACHE_WHY_stored;
            return true;
        }
        damaged = candidate->entry;
    }
    why->answer = damaged != NULL ? damaged : unfit;
    why->reason = damaged != NULL ? AOTICACHE_WHY_damaged : AOTICACHE_WHY_requirement;
    return why->answer != NULL;
}

/* Returns whether the nearest entry differs only in its environment. */
static bool differs_in_environment_only(const aoticache_why *why)
{
    aoticache_request *stored = NULL;
    aoticache_differences differences = {0};
    const aoticache_entry *entry = why->candidates.items[0].entry;
    if (aoticache_manifest_decode(why->cache, &entry->artifact, NULL, &stored, NULL) != AOTICACHE_OK)
        return false;
    aoticache_requests_compare(why->asked, stored, entry->guard, why->producer != NULL, &differences);
    bool only = differences.count > 0;
    for (size_t i = 0; i < differences.count; i++)
        only = only && strcmp(differences.items[i].kind, AOTICACHE_WHY_ENVIRONMENT) == 0;
    aoticache_differences_free(&differences);
    aoticache_request_free(stored);
    return only;
}

static void explain_absence(aoticache_why *why)
{
    if (why->candidates.count > 0) {
        why->reason = differs_in_environment_only(why) ? AOTICACHE_WHY_environment : AOTICACHE_WHY_arguments;
        return;
    }
    why->operator_count = aoticache_near_operators(why->cache, aoticache_request_op(why->asked), why->operators,
                                                   AOTICACHE_WHY_MAX_OPERATORS, &why->all_entries);
    why->reason = why->all_entries > 0 ? AOTICACHE_WHY_operator : AOTICACHE_WHY_empty;
}

static int find_reason(aoticache_why *why)
{
    aoticache_error error = {.message = ""};
    int result = aoticache_candidates_read(why->cli, why->cache, why->asked, why->producer != NULL, &why->candidates);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    cleanup_free char *description = aoticache_kernel_describe(why->asked);
    failure_search search = {.why = why, .description = description};
    bool is_known = find_kernel(why);
    if (aoticache_why_is_hit(why) && is_known)
        return AOTICACHE_CLI_EXIT_OK;
    aoticache_status status = aoticache_cache_list_failures(why->cache, copy_failure, &search, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(why->cli, status, &error);
    if (!is_known)
        explain_absence(why);
    if (why->failure.op != NULL)
        why->reason = AOTICACHE_WHY_failed;
    return AOTICACHE_CLI_EXIT_OK;
}

/* ---- the command ---- */

static int explain_miss(aoticache_cli *cli, struct question *question, aoticache_why *why)
{
    why->nearest = question->nearest;
    int result = make_request(cli, question, why);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = set_environment(cli, question, why);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_cli_open_or_report(cli, false, &why->cache);
    if (result == AOTICACHE_CLI_EXIT_ABSENT) /* a miss, as for a program that has not stored anything yet */
        result = AOTICACHE_CLI_EXIT_NOT_FOUND;
    const bool has_no_cache = result == AOTICACHE_CLI_EXIT_NOT_FOUND;
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = find_reason(why);
    if ((has_no_cache || (result == AOTICACHE_CLI_EXIT_OK && !aoticache_why_is_hit(why))) && why->producer != NULL)
        aoticache_remote_findings_read(cli, &why->key, &why->remotes);
    if (has_no_cache && !cli->json)
        aoticache_remote_findings_print(cli, &why->remotes);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    aoticache_why_print(why);
    return aoticache_why_is_hit(why) ? AOTICACHE_CLI_EXIT_OK : AOTICACHE_CLI_EXIT_NOT_FOUND;
}

static void free_why(aoticache_why *why)
{
    for (size_t i = 0; i < why->operator_count; i++)
        free(why->operators[i].op);
    if (why->failure.op != NULL) {
        free((void *)(uintptr_t)why->failure.op);
        free((void *)(uintptr_t)why->failure.description);
        free((void *)(uintptr_t)why->failure.message);
    }
    free(why->damage);
    aoticache_remote_findings_free(&why->remotes);
    aoticache_candidates_free(&why->candidates);
    aoticache_request_free(why->asked);
    aoticache_cache_close(why->cache);
}

static int why_command(aoticache_cli *cli)
{
    struct question question = {.nearest = DEFAULT_NEAREST, .no_environment = {.message = ""}};
    aoticache_why why = {.cli = cli};
    aoticache_kernel_options_begin(&question.kernel, cli);
    int result = aoticache_cli_parse(cli, &question) ? explain_miss(cli, &question, &why) : cli->exit_code;
    free_why(&why);
    aoticache_hook_free(question.hook);
    aoticache_kernel_options_free(&question.kernel);
    return result;
}

const aoticache_command aoticache_command_why = {
    .word = "why",
    .program =
        {
            .name = "aoticache why",
            .help_hint = "aoticache help why",
            .usage = "OPERATOR [ARGUMENT OPTION]... [OPTION]...|LINE [OPTION]...",
            .summary = "Explains a miss: the nearest kernels, and exactly what differs.",
            .details =
                "LINE is a request in quotes, as 'aoticache ls' and 'record' print it:\n"
                "  aoticache why 'aten::add.Tensor(float32[2, 3], float32[2, 3], alpha=1) on cpu'\n"
                "Nothing is compiled, stored or counted. The exit code is 0 for a hit and 3 for a miss.\n\n" AOTICACHE_KERNEL_DETAILS,
            .options = why_options,
            .operand = {AOTICACHE_CLI_FUNCTION(struct question, kernel.op, aoticache_operator_read),
                        .wanted = "an operator is needed, such as aten::abs, or a line of 'aoticache ls'"},
        },
    .run = why_command,
};
