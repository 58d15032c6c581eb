/*
 * tools/aoticache/ls_failures: `aoticache ls --failed`: the compiles that failed, with their messages, and when they are
 * tried again.
 */
#include "base/cleanup.h"
#include "tools/aoticache/ls.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct failures {
    const aoticache_cli *cli;
    const char *op, *pattern;
    json_t *array; /* with --json */
    size_t count;
};

static json_t *failure_to_json(const aoticache_failure *failure)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "key", aoticache_cli_json_digest(&failure->key));
    aoticache_cli_json_set(object, "op", aoticache_cli_json_text(failure->op));
    aoticache_cli_json_set(object, "description", aoticache_cli_json_text(failure->description));
    aoticache_cli_json_set(object, "message", aoticache_cli_json_text(failure->message));
    aoticache_cli_json_set(object, "failed_ns", json_integer(failure->failed_ns));
    aoticache_cli_json_set(object, "retry_ns", json_integer(failure->retry_ns));
    aoticache_cli_json_set(object, "count", json_integer(failure->count));
    return object;
}

static void print_message_lines(const char *message)
{
    cleanup_free char *escaped = aoticache_cli_escape_lines(message);
    char *rest = NULL;
    for (char *line = strtok_r(escaped, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        printf("    %s\n", line);
}

static bool print_failure(void *user, const aoticache_failure *failure)
{
    struct failures *failures = user;
    const char *op = failure->op != NULL ? failure->op : "";
    if ((failures->op != NULL && strcmp(failures->op, op) != 0) ||
        (failures->pattern != NULL && fnmatch(failures->pattern, op, 0) != 0))
        return true;
    failures->count++;
    if (failures->array != NULL) {
        aoticache_cli_json_append(failures->array, failure_to_json(failure));
        return true;
    }
    char hex[AOTICACHE_DIGEST_HEX_BYTES], age[AOTICACHE_CLI_UNIT_BYTES], wait[AOTICACHE_CLI_UNIT_BYTES];
    cleanup_free char *times = failure->count > 1 ? aoticache_cli_text(", %" PRIu32 " times in a row", failure->count)
                                                  : aoticache_cli_text("%s", "");
    aoticache_digest_to_hex(&failure->key, hex);
    int64_t left = failure->retry_ns - aoticache_wall_ns();
    cleanup_free char *description = aoticache_cli_escape(failure->description != NULL ? failure->description : "");
    printf("%s%.12s%s  %s\n", aoticache_cli_style_begin(failures->cli, AOTICACHE_CLI_BOLD), hex,
           aoticache_cli_style_begin(failures->cli, AOTICACHE_CLI_PLAIN), description);
    printf("  failed %s ago%s, %s%s\n", aoticache_cli_format_age(failure->failed_ns, age), times,
           left > 0 ? "not tried again for " : "will be tried again",
           left > 0 ? aoticache_cli_format_duration((uint64_t)left, wait) : "");
    print_message_lines(failure->message != NULL ? failure->message : "");
    return true;
}

int aoticache_ls_failures(const aoticache_cli *cli, aoticache_cache *cache, const char *op, const char *pattern)
{
    aoticache_error error = {.message = ""};
    struct failures failures = {
        .cli = cli, .op = op, .pattern = pattern, .array = cli->json ? aoticache_cli_json_array() : NULL};
    aoticache_status status = aoticache_cache_list_failures(cache, print_failure, &failures, &error);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND) {
        json_decref(failures.array);
        return aoticache_cli_fail(cli, status, &error);
    }
    if (cli->json) {
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(aoticache_cache_directory(cache)));
        aoticache_cli_json_set(object, "failures", failures.array);
        aoticache_cli_json_print(object);
    } else if (failures.count == 0) {
        aoticache_cli_note(cli, "no failed compiles%s%s are remembered", op != NULL || pattern != NULL ? " of " : "",
                           op != NULL ? op : pattern != NULL ? pattern : "");
    }
    return AOTICACHE_CLI_EXIT_OK;
}
