/*
 * cache/gc/choose: who goes next. A window of the least recently used entries is read from the index and sorted; the
 * first of them go as long as they are due.
 *
 * By cost, an entry goes the sooner the more bytes it has, the longer it was not used and the less its compile took. To
 * compare all entries so would mean to read all; of a window of the WINDOW_COST least recently used the best quarter goes
 * before the window is filled up again, which keeps memory bounded and never touches what was used a moment ago.
 */
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cache/gc/collection.h"

#define WINDOW_LRU AOTICACHE_COLLECTION_ROUND
#define WINDOW_STEP 512
#define WINDOW_COST 4096
#define LEAST_COMPILE_NS 1e6 /* what was compiled in no time is not worth infinitely little */

static bool is_over(const aoticache_collection *collection)
{
    return collection->bytes > collection->wanted_bytes || collection->entries > collection->wanted_entries;
}

static bool is_old(const aoticache_collection *collection, int64_t last_used_ns)
{
    uint64_t limit = collection->max_age_seconds;
    return limit != UINT64_MAX && collection->now_ns > last_used_ns &&
           (uint64_t)(collection->now_ns - last_used_ns) / 1000000000u >= limit;
}

static bool is_kept(const aoticache_collection *collection, const char *op)
{
    for (const char *const *pattern = collection->options->keep; pattern != NULL && *pattern != NULL; pattern++)
        if (fnmatch(*pattern, op, 0) == 0)
            return true;
    return false;
}

static double score_of(const aoticache_collection *collection, const aoticache_index_candidate *candidate)
{
    double age = collection->now_ns > candidate->last_used_ns ? (double)(collection->now_ns - candidate->last_used_ns) : 0;
    double compile = (double)candidate->compile_ns;
    if (is_old(collection, candidate->last_used_ns))
        return HUGE_VAL;
    if (collection->options->policy != AOTICACHE_COLLECT_COST)
        return 0; /* all the same: the order of last use decides */
    return (double)candidate->bytes * age / (compile > LEAST_COMPILE_NS ? compile : LEAST_COMPILE_NS);
}

/* FNV-1a: the same for the same name, and hardly ever for another. */
static uint64_t number_of(const char *op)
{
    uint64_t number = UINT64_C(0xcbf29ce484222325);
    for (; *op != '\0'; op++)
        number = (number ^ (unsigned char)*op) * UINT64_C(0x100000001b3);
    return number;
}

static bool add_candidate(void *user, const aoticache_index_candidate *candidate)
{
    aoticache_collection *collection = user;
    if (!is_over(collection) && !is_old(collection, candidate->last_used_ns)) {
        collection->is_read = true; /* all that come after were used later */
        return false;
    }
    collection->window[collection->window_count++] =
        (aoticache_collection_item){.entry_id = candidate->entry_id,
                                    .last_used_ns = candidate->last_used_ns,
                                    .key = candidate->key,
                                    .bytes = candidate->bytes,
                                    .op = number_of(candidate->op),
                                    .score = score_of(collection, candidate),
                                    .is_pinned = candidate->is_pinned,
                                    .is_kept = is_kept(collection, candidate->op)};
    collection->read_used_ns = candidate->last_used_ns;
    collection->read_id = candidate->entry_id;
    return true;
}

static int by_order(const void *a, const void *b)
{
    const aoticache_collection_item *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->last_used_ns != y->last_used_ns)
        return x->last_used_ns < y->last_used_ns ? -1 : 1;
    return (x->entry_id > y->entry_id) - (x->entry_id < y->entry_id);
}

static bool needs_filling(const aoticache_collection *collection)
{
    size_t left = collection->window_count - collection->window_next;
    bool by_cost = collection->options->policy == AOTICACHE_COLLECT_COST;
    return !collection->is_read && left <= (by_cost ? collection->window_capacity / 4 * 3 : 0);
}

static aoticache_status fill(aoticache_collection *collection, aoticache_error *ret_error)
{
    bool by_cost = collection->options->policy == AOTICACHE_COLLECT_COST;
    if (collection->window == NULL) {
        collection->window_capacity = by_cost ? WINDOW_COST : collection->is_step ? WINDOW_STEP : WINDOW_LRU;
        collection->window = calloc(collection->window_capacity, sizeof *collection->window);
        if (collection->window == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    }
    collection->window_count -= collection->window_next;
    memmove(collection->window, collection->window + collection->window_next,
            collection->window_count * sizeof *collection->window);
    collection->window_next = 0;
    size_t before = collection->window_count, room = collection->window_capacity - before;
    aoticache_status status = aoticache_index_list_candidates(collection->index, collection->read_used_ns,
                                                              collection->read_id, room, add_candidate, collection,
                                                              ret_error);
    if (status == AOTICACHE_OK && collection->window_count - before < room)
        collection->is_read = true;
    if (status == AOTICACHE_OK && by_cost)
        qsort(collection->window, collection->window_count, sizeof *collection->window, by_order);
    return status;
}

/* Sizes are those of whole artifacts, so what several share makes this choose too few, never too many. */
static bool is_due(const aoticache_collection *collection, const aoticache_collection_item *item, uint64_t chosen,
                   uint64_t chosen_bytes)
{
    uint64_t bytes = collection->bytes > chosen_bytes ? collection->bytes - chosen_bytes : 0;
    uint64_t entries = collection->entries > chosen ? collection->entries - chosen : 0;
    return bytes > collection->wanted_bytes || entries > collection->wanted_entries ||
           is_old(collection, item->last_used_ns);
}

aoticache_status aoticache_collection_choose(aoticache_collection *collection, aoticache_collection_item *ret_items,
                                             size_t *ret_count, aoticache_error *ret_error)
{
    size_t count = 0;
    uint64_t bytes = 0;
    while (count < AOTICACHE_COLLECTION_ROUND) {
        if (needs_filling(collection) && count == 0) {
            aoticache_status status = fill(collection, ret_error);
            if (status != AOTICACHE_OK)
                return status;
        }
        if (collection->window_next == collection->window_count) {
            if (collection->is_read || count > 0)
                break;
            continue;
        }
        const aoticache_collection_item *item = &collection->window[collection->window_next];
        if (!is_due(collection, item, count, bytes))
            break;
        collection->window_next++;
        if (item->is_pinned || item->is_kept) {
            *(item->is_pinned ? &collection->report.pinned : &collection->report.kept) += 1;
            continue;
        }
        ret_items[count++] = *item;
        bytes += item->bytes;
    }
    *ret_count = count;
    return AOTICACHE_OK;
}
