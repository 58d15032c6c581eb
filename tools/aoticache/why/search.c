/*
 * tools/aoticache/why/search: finds the entries of an operator that differ least from a request, and operators with similar
 * names.
 *
 * Requests are read from the index if this machine can run the entry (one pass, no file is read), otherwise from the
 * manifest.
 */
#include "base/cleanup.h"
#include "base/text/name_distance.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/why/why_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- entries ---- */

struct search {
    aoticache_cache *cache;
    const aoticache_request *asked;
    bool environment;
    aoticache_candidates *candidates; /* sorted by key and artifact until all are compared */
};

static int compare_ids(const void *left, const void *right)
{
    const aoticache_entry *a = ((const aoticache_candidate *)left)->entry;
    const aoticache_entry *b = ((const aoticache_candidate *)right)->entry;
    int order = memcmp(a->key.bytes, b->key.bytes, sizeof a->key.bytes);
    return order != 0 ? order : memcmp(a->artifact.bytes, b->artifact.bytes, sizeof a->artifact.bytes);
}

/* Sorts by the number of differences; among equal ones the most used first, then the newest. */
static int compare_nearness(const void *left, const void *right)
{
    const aoticache_candidate *a = left, *b = right;
    if (a->difference_count != b->difference_count)
        return a->difference_count < b->difference_count ? -1 : 1;
    if (a->entry->uses != b->entry->uses)
        return a->entry->uses > b->entry->uses ? -1 : 1;
    if (a->entry->created_ns != b->entry->created_ns)
        return a->entry->created_ns > b->entry->created_ns ? -1 : 1;
    return compare_ids(left, right);
}

static void compare_candidate(const struct search *search, aoticache_candidate *candidate,
                              const aoticache_request *stored)
{
    aoticache_differences differences = {0};
    aoticache_requests_compare(search->asked, stored, candidate->entry->guard, search->environment, &differences);
    candidate->difference_count = differences.count + !candidate->fits;
    candidate->compared = true;
    aoticache_differences_free(&differences);
}

/* Compares all candidates of this artifact: they have the same request. */
static bool compare_stored(void *user, const aoticache_stored *stored)
{
    struct search *search = user;
    aoticache_candidates *candidates = search->candidates;
    aoticache_entry wanted = {.key = stored->key, .artifact = stored->artifact};
    aoticache_candidate probe = {.entry = &wanted};
    aoticache_candidate *found =
        bsearch(&probe, candidates->items, candidates->count, sizeof *candidates->items, compare_ids);
    if (found == NULL) /* it was added after the list was made */
        return true;
    while (found > candidates->items && compare_ids(found - 1, &probe) == 0)
        found--;
    for (; found < candidates->items + candidates->count && compare_ids(found, &probe) == 0; found++)
        if (!found->compared && strcmp(found->entry->guard, stored->guard) == 0)
            compare_candidate(search, found, stored->request);
    return true;
}

/* Compares candidates that the index did not list, because this machine cannot run them. */
static void compare_rest(const struct search *search)
{
    for (size_t i = 0; i < search->candidates->count; i++) {
        aoticache_candidate *candidate = &search->candidates->items[i];
        aoticache_request *stored = NULL;
        if (candidate->compared ||
            aoticache_manifest_decode(search->cache, &candidate->entry->artifact, NULL, &stored, NULL) != AOTICACHE_OK)
            continue;
        compare_candidate(search, candidate, stored);
        aoticache_request_free(stored);
    }
}

int aoticache_candidates_read(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_request *asked,
                              bool environment, aoticache_candidates *ret_candidates)
{
    aoticache_error error = {.message = ""};
    aoticache_candidates candidates = {.list = {0}};
    const char *op = aoticache_request_op(asked);
    aoticache_status status = aoticache_entries_read(cache, op, NULL, &candidates.list, &error);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        return aoticache_cli_fail(cli, status, &error);
    candidates.count = candidates.list.count;
    candidates.items = aoticache_cli_allocate(candidates.count + 1, sizeof *candidates.items);
    for (size_t i = 0; i < candidates.count; i++) {
        const aoticache_entry *entry = &candidates.list.entries[i];
        bool fits = aoticache_cpu_features_include(aoticache_cpu_features_get(), &entry->requirements);
        candidates.items[i] = (aoticache_candidate){.entry = entry, .difference_count = SIZE_MAX, .fits = fits};
    }
    qsort(candidates.items, candidates.count, sizeof *candidates.items, compare_ids);
    struct search search = {.cache = cache, .asked = asked, .environment = environment, .candidates = &candidates};
    status = aoticache_cache_list_stored(cache, op, 0, compare_stored, &search, &error);
    if (status != AOTICACHE_OK) {
        aoticache_candidates_free(&candidates);
        return aoticache_cli_fail(cli, status, &error);
    }
    compare_rest(&search);
    qsort(candidates.items, candidates.count, sizeof *candidates.items, compare_nearness);
    *ret_candidates = candidates;
    return AOTICACHE_CLI_EXIT_OK;
}

void aoticache_candidates_free(aoticache_candidates *candidates)
{
    free(candidates->items);
    aoticache_entries_free(&candidates->list);
    *candidates = (aoticache_candidates){.list = {0}};
}

/* ---- operators ---- */

struct operators {
    aoticache_near_operator *items;
    size_t count;
    uint64_t entries;
};

/* Adds an operator; entries are sorted by operator. */
static bool add_operator(void *user, const aoticache_entry *entry)
{
    struct operators *operators = user;
    operators->entries++;
    if (operators->count > 0 && strcmp(operators->items[operators->count - 1].op, entry->op) == 0) {
        operators->items[operators->count - 1].entries++;
        return true;
    }
    operators->items = aoticache_cli_resize(operators->items, operators->count + 1, sizeof *operators->items);
    operators->items[operators->count++] =
        (aoticache_near_operator){.op = aoticache_cli_text("%s", entry->op), .entries = 1};
    return true;
}

static void move_operator(struct operators *operators, size_t at, aoticache_near_operator *ret_operators, size_t *count)
{
    ret_operators[(*count)++] = operators->items[at];
    operators->items[at] = operators->items[--operators->count];
}

/* Returns the nearest operators, the nearest first. */
static size_t choose_nearest(struct operators *operators, const char *op, aoticache_near_operator *ret_operators,
                             size_t limit)
{
    size_t count = 0;
    while (count < limit && operators->count > 0) {
        size_t at = 0, least = AOTICACHE_NOT_NEAR;
        for (size_t i = 0; i < operators->count; i++) {
            const size_t distance = aoticache_operator_distance(op, operators->items[i].op);
            if (distance < least || (distance == least && distance != AOTICACHE_NOT_NEAR &&
                                     strcmp(operators->items[i].op, operators->items[at].op) < 0)) {
                least = distance;
                at = i;
            }
        }
        if (least == AOTICACHE_NOT_NEAR)
            break;
        move_operator(operators, at, ret_operators, &count);
    }
    return count;
}

size_t aoticache_near_operators(aoticache_cache *cache, const char *op, aoticache_near_operator *ret_operators,
                                size_t limit, uint64_t *ret_all_entries)
{
    struct operators operators = {.items = NULL};
    aoticache_cache_list(cache, NULL, NULL, add_operator, &operators, NULL);
    *ret_all_entries = operators.entries;
    size_t count = choose_nearest(&operators, op, ret_operators, limit);
    for (size_t i = 0; i < operators.count; i++)
        free(operators.items[i].op);
    free(operators.items);
    return count;
}

char *aoticache_operator_hint(aoticache_cache *cache, const char *op)
{
    aoticache_near_operator nearest;
    uint64_t all;
    if (strpbrk(op, "*?[") != NULL || aoticache_near_operators(cache, op, &nearest, 1, &all) == 0)
        return aoticache_cli_text("%s", "");
    char *hint = strcmp(nearest.op, op) == 0 ? aoticache_cli_text("%s", "")
                                             : aoticache_cli_text("; did you mean %s?", nearest.op);
    free(nearest.op);
    return hint;
}
