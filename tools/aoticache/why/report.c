/*
 * tools/aoticache/why/report: prints the results of `aoticache why`, as text and as JSON.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/why/why_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool aoticache_why_is_hit(const aoticache_why *why)
{
    return why->reason == AOTICACHE_WHY_stored || why->reason == AOTICACHE_WHY_guard;
}

static const char *reason_word(aoticache_why_reason reason)
{
    static const char *const words[] = {
#define REASON_WORD(name, text) #name,
        AOTICACHE_WHY_REASON_LIST(REASON_WORD)
#undef REASON_WORD
    };
    return words[reason];
}

static const char *reason_text(aoticache_why_reason reason)
{
    static const char *const texts[] = {
#define REASON_TEXT(name, text) text,
        AOTICACHE_WHY_REASON_LIST(REASON_TEXT)
#undef REASON_TEXT
    };
    return texts[reason];
}

/* Finds the differences of an entry. Returns false if its request cannot be read. */
static bool read_differences(const aoticache_why *why, const aoticache_entry *entry,
                             aoticache_differences *ret_differences, aoticache_error *ret_error)
{
    aoticache_request *stored = NULL;
    aoticache_status status = aoticache_manifest_decode(why->cache, &entry->artifact, NULL, &stored, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        aoticache_error_set(ret_error, status, "its manifest is missing");
    if (status != AOTICACHE_OK)
        return false;
    aoticache_requests_compare(why->asked, stored, entry->guard, why->producer != NULL, ret_differences);
    aoticache_differences_add_requirement(ret_differences, &entry->requirements);
    aoticache_request_free(stored);
    return true;
}

static size_t shown_candidates(const aoticache_why *why)
{
    if (aoticache_why_is_hit(why))
        return 0;
    return why->nearest < why->candidates.count ? why->nearest : why->candidates.count;
}

/* ---- JSON ---- */

static json_t *difference_to_json(const aoticache_difference *difference)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "kind", aoticache_cli_json_text(difference->kind));
    aoticache_cli_json_set(object, "place", aoticache_cli_json_text(difference->place));
    aoticache_cli_json_set(object, "property", aoticache_cli_json_text(difference->property));
    aoticache_cli_json_set(object, "asked", aoticache_cli_json_text(difference->asked));
    aoticache_cli_json_set(object, "stored", aoticache_cli_json_text(difference->stored));
    return object;
}

static json_t *candidate_to_json(const aoticache_why *why, const aoticache_entry *entry)
{
    aoticache_differences differences = {0};
    aoticache_error error = {.message = ""};
    json_t *object = aoticache_entry_to_json(entry);
    json_t *array = aoticache_cli_json_array();
    bool is_read = read_differences(why, entry, &differences, &error);
    for (size_t i = 0; i < differences.count; i++)
        aoticache_cli_json_append(array, difference_to_json(&differences.items[i]));
    aoticache_cli_json_set(object, "problem", is_read ? json_null() : aoticache_cli_json_text(error.message));
    aoticache_cli_json_set(object, "differences", array);
    aoticache_differences_free(&differences);
    return object;
}

static json_t *failure_to_json(const aoticache_failure *failure)
{
    if (failure->op == NULL)
        return json_null();
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "key", aoticache_cli_json_digest(&failure->key));
    aoticache_cli_json_set(object, "message", aoticache_cli_json_text(failure->message));
    aoticache_cli_json_set(object, "failed_ns", json_integer(failure->failed_ns));
    aoticache_cli_json_set(object, "retry_ns", json_integer(failure->retry_ns));
    aoticache_cli_json_set(object, "count", json_integer(failure->count));
    return object;
}

static json_t *operators_to_json(const aoticache_why *why)
{
    json_t *array = aoticache_cli_json_array();
    for (size_t i = 0; i < why->operator_count; i++) {
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "op", aoticache_cli_json_text(why->operators[i].op));
        aoticache_cli_json_set(object, "entries", aoticache_cli_json_count(why->operators[i].entries));
        aoticache_cli_json_append(array, object);
    }
    return array;
}

static json_t *environment_to_json(const aoticache_why *why)
{
    if (why->producer == NULL)
        return json_null();
    json_t *object = aoticache_cli_json_object();
    for (size_t i = 0; i < aoticache_request_environment_count(why->asked); i++) {
        const char *name, *value;
        aoticache_request_environment_at(why->asked, i, &name, &value);
        aoticache_cli_json_set(object, name, aoticache_cli_json_text(value));
    }
    return object;
}

static void print_json(const aoticache_why *why)
{
    cleanup_free char *description = aoticache_kernel_describe(why->asked);
    json_t *object = aoticache_cli_json_object();
    json_t *nearest = aoticache_cli_json_array();
    for (size_t i = 0; i < shown_candidates(why); i++)
        aoticache_cli_json_append(nearest, candidate_to_json(why, why->candidates.items[i].entry));
    aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(aoticache_cache_directory(why->cache)));
    aoticache_cli_json_set(object, "op", aoticache_cli_json_text(aoticache_request_op(why->asked)));
    aoticache_cli_json_set(object, "description", aoticache_cli_json_text(description));
    aoticache_cli_json_set(object, "key", why->producer != NULL ? aoticache_cli_json_digest(&why->key) : json_null());
    aoticache_cli_json_set(object, "producer", aoticache_cli_json_text(why->producer));
    aoticache_cli_json_set(object, "environment", environment_to_json(why));
    aoticache_cli_json_set(object, "hit", json_boolean(aoticache_why_is_hit(why)));
    aoticache_cli_json_set(object, "reason", aoticache_cli_json_text(reason_word(why->reason)));
    aoticache_cli_json_set(object, "text", aoticache_cli_json_text(reason_text(why->reason)));
    aoticache_cli_json_set(object, "entry", why->answer != NULL ? aoticache_entry_to_json(why->answer) : json_null());
    aoticache_cli_json_set(object, "judgements",
                           why->answer != NULL ? aoticache_judgements_to_json(why->cache, &why->answer->key)
                                               : json_null());
    aoticache_cli_json_set(object, "failure", failure_to_json(&why->failure));
    aoticache_cli_json_set(object, "damage", aoticache_cli_json_text(why->damage));
    aoticache_cli_json_set(object, "entries_of_operator", aoticache_cli_json_count(why->candidates.count));
    aoticache_cli_json_set(object, "nearest", nearest);
    aoticache_cli_json_set(object, "operators", operators_to_json(why));
    aoticache_cli_json_set(object, "remotes", aoticache_remote_findings_to_json(&why->remotes));
    aoticache_cli_json_print(object);
}

/* ---- text ---- */

static void print_failure(const aoticache_why *why)
{
    const aoticache_failure *failure = &why->failure;
    char age[AOTICACHE_CLI_UNIT_BYTES], wait[AOTICACHE_CLI_UNIT_BYTES];
    int64_t left = failure->retry_ns - aoticache_wall_ns();
    if (failure->op == NULL)
        return;
    cleanup_free char *times = failure->count > 1 ? aoticache_cli_text(", %" PRIu32 " times in a row", failure->count)
                                                  : aoticache_cli_text("%s", "");
    aoticache_cli_print_field(why->cli, "failure", "%s ago%s, %s%s", aoticache_cli_format_age(failure->failed_ns, age),
                              times, left > 0 ? "not tried again for " : "the next request tries again",
                              left > 0 ? aoticache_cli_format_duration((uint64_t)left, wait) : "");
    cleanup_free char *escaped = aoticache_cli_escape_lines(failure->message);
    char *rest = NULL;
    for (char *line = strtok_r(escaped, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        printf("    %s\n", line);
}

static char *entry_text(const aoticache_entry *entry)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES], age[AOTICACHE_CLI_UNIT_BYTES];
    bool has_guard = entry->guard[0] != '\0';
    aoticache_digest_to_hex(&entry->key, hex);
    return aoticache_cli_text("%.12s  %s%s%s, made %s ago by %s", hex, entry->description, has_guard ? " where " : "",
                              has_guard ? entry->guard : "", aoticache_cli_format_age(entry->created_ns, age),
                              entry->producer[0] != '\0' ? entry->producer : "an unnamed producer");
}

static char *difference_title(const aoticache_difference *difference)
{
    if (strcmp(difference->kind, AOTICACHE_WHY_ENVIRONMENT) == 0)
        return aoticache_cli_text("environment %s", difference->place);
    if (strcmp(difference->kind, AOTICACHE_WHY_REQUIREMENT) == 0)
        return aoticache_cli_text("CPU");
    if (difference->place[0] == '\0')
        return aoticache_cli_text("%s", difference->kind);
    return aoticache_cli_text("%s%s%s", difference->place, difference->property[0] != '\0' ? ": " : "",
                              difference->property);
}

static void print_differences(const aoticache_why *why, const aoticache_differences *differences)
{
    static const aoticache_cli_column columns[] = {
        {"  DIFFERENCE", false, false}, {"ASKED", false, false}, {"STORED", false, false}};
    aoticache_cli_table *table = aoticache_cli_table_create(columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < differences->count; i++) {
        const aoticache_difference *difference = &differences->items[i];
        cleanup_free char *title = difference_title(difference);
        cleanup_free char *indented = aoticache_cli_text("  %s", title);
        const char *cells[] = {indented, difference->asked, difference->stored};
        aoticache_cli_table_add(table, AOTICACHE_CLI_PLAIN, cells);
    }
    aoticache_cli_table_print(table, why->cli);
    aoticache_cli_table_free(table);
}

/* Entries stored by PyTorch have key sets, which the options of the command line do not give. */
static bool lacks_key_sets(const aoticache_differences *differences)
{
    for (size_t i = 0; i < differences->count; i++)
        if (strcmp(differences->items[i].property, AOTICACHE_WHY_KEY_SETS) == 0 &&
            strncmp(differences->items[i].asked, "0x0 ", 4) == 0)
            return true;
    return false;
}

static void print_candidates(const aoticache_why *why)
{
    bool key_sets = false;
    for (size_t i = 0; i < shown_candidates(why); i++) {
        const aoticache_entry *entry = why->candidates.items[i].entry;
        aoticache_differences differences = {0};
        aoticache_error error = {.message = ""};
        cleanup_free char *text = entry_text(entry);
        printf("\n");
        aoticache_cli_print_field(why->cli, i == 0 ? "nearest" : "next", "%s", text);
        if (!read_differences(why, entry, &differences, &error))
            printf("  its request cannot be read: %s\n", error.message);
        else if (differences.count > 0)
            print_differences(why, &differences);
        else
            printf("  no difference: it is this kernel\n");
        key_sets |= lacks_key_sets(&differences);
        aoticache_differences_free(&differences);
    }
    if (key_sets)
        printf("\n  What PyTorch asks for has dispatch keys. 'aoticache record --from-cache --op %s'\n"
               "  prints lines that have them, as 'why' takes them.\n",
               aoticache_request_op(why->asked));
}

static void print_operators(const aoticache_why *why)
{
    for (size_t i = 0; i < why->operator_count; i++)
        aoticache_cli_print_field(why->cli, i == 0 ? "stored are" : "", "%s (%" PRIu64 " %s)", why->operators[i].op,
                                  why->operators[i].entries, why->operators[i].entries == 1 ? "kernel" : "kernels");
    if (why->operator_count == 0 && why->reason == AOTICACHE_WHY_operator)
        aoticache_cli_print_field(why->cli, "stored are",
                                  "%" PRIu64 " kernels of operators with other names: "
                                  "'aoticache du --by op' lists them",
                                  why->all_entries);
}

static void print_advice(const aoticache_why *why)
{
    static const char *const advice[] = {
        [AOTICACHE_WHY_guard] = "holders find it; 'aoticache run' and 'compile' look for exactly these shapes only",
        [AOTICACHE_WHY_failed] = "correct what the message says; 'aoticache compile --retry' retries "
                                 "immediately,\n'aoticache rm --failed' forgets all failures",
        [AOTICACHE_WHY_requirement] = "'aoticache compile' on this machine also stores one that runs here; --cpu "
                                      "LEVEL compiles one for several machines",
        [AOTICACHE_WHY_damaged] = "'aoticache verify --repair' moves the damaged files away; the next request "
                                  "compiles again",
        [AOTICACHE_WHY_environment] = "make the environments equal, or compile it for this one",
        [AOTICACHE_WHY_arguments] = "the first call with these arguments compiles it; 'aoticache compile' or 'warm' do "
                                    "it beforehand",
        [AOTICACHE_WHY_operator] = "the first call compiles it; 'aoticache compile' or 'warm' do it beforehand",
        [AOTICACHE_WHY_empty] = "check with 'aoticache doctor' that the program uses this directory",
    };
    const bool is_there = aoticache_remote_findings_have_one(&why->remotes);
    const char *directory = is_there ? aoticache_cache_directory(why->cache) : NULL;
    const char *words =
        !is_there ? advice[why->reason]
        : access(directory, F_OK) == 0 && access(directory, W_OK) != 0
            ? "make this directory writable, or use another one: a read-only directory does not use remotes"
            : "nothing: the next request fetches it, if a key that is trusted here signed it";
    if (words == NULL || why->cli->quiet)
        return;
    cleanup_free char *text = aoticache_cli_text("%s", words);
    char *rest = NULL;
    const char *name = "to do";
    printf("\n");
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest), name = "")
        aoticache_cli_print_field(why->cli, name, "%s", line);
}

static char *miss_text(const aoticache_why *why)
{
    size_t count = why->candidates.count;
    if (why->reason == AOTICACHE_WHY_arguments)
        return aoticache_cli_text("miss: %zu %s of %s %s stored, none for these arguments", count,
                                  count == 1 ? "kernel" : "kernels", aoticache_request_op(why->asked),
                                  count == 1 ? "is" : "are");
    if (why->reason == AOTICACHE_WHY_operator)
        return aoticache_cli_text("miss: no kernel of %s is stored", aoticache_request_op(why->asked));
    if (why->reason == AOTICACHE_WHY_empty)
        return aoticache_cli_text("miss: the cache at %s is empty", aoticache_cache_directory(why->cache));
    return aoticache_cli_text("miss: %s", reason_text(why->reason));
}

static void print_text(const aoticache_why *why)
{
    cleanup_free char *description = aoticache_kernel_describe(why->asked);
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    bool is_hit = aoticache_why_is_hit(why);
    cleanup_free char *result = is_hit ? aoticache_cli_text("hit: %s", reason_text(why->reason)) : miss_text(why);
    aoticache_cli_print_field(why->cli, "result", "%s", result);
    aoticache_cli_print_field(why->cli, "asked for", "%s", description);
    if (why->producer != NULL) {
        aoticache_digest_to_hex(&why->key, hex);
        aoticache_cli_print_field(why->cli, "key", "%s", hex);
        aoticache_cli_print_field(why->cli, "compiler", "%s", why->producer);
    } else {
        aoticache_cli_print_field(why->cli, "compiler", "%s; environments are not compared", why->no_environment);
    }
    if (is_hit) {
        cleanup_free char *text = entry_text(why->answer);
        aoticache_cli_print_field(why->cli, "entry", "%s", text);
        aoticache_judgements_print(why->cli, why->cache, &why->answer->key);
    }
    if (why->damage != NULL)
        aoticache_cli_print_field(why->cli, "damage", "%s", why->damage);
    print_failure(why);
    aoticache_remote_findings_print(why->cli, &why->remotes);
    print_operators(why);
    print_candidates(why);
    print_advice(why);
}

void aoticache_why_print(const aoticache_why *why)
{
    if (why->cli->json)
        print_json(why);
    else
        print_text(why);
}
