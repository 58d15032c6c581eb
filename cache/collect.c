/*
 * cache/collect: throwing away what was not used for long, then the least recently used, then what nobody names.
 *
 * Works from a plan made without any lock; every step is checked again with the store locked, because entries come, go and
 * are taken into use meanwhile. "held" is told by the in-use marks (object.h).
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cache/lock.h"
#include "cache/snapshot.h"

/* One stretch with the store locked exclusively. */
#define BATCH_OBJECTS 64
#define BATCH_NS UINT64_C(5000000)

/* How many of the planned entries need an object. */
struct reference {
    aoticache_digest digest;
    uint64_t bytes;
    uint32_t count; /* 0 with bytes UINT64_MAX: a free slot */
    bool is_used;
};

struct plan {
    aoticache_cache *cache;
    const aoticache_collect_options *options;
    aoticache_entry_fn callback;
    void *user;
    aoticache_snapshot snapshot;   /* least recently used first */
    aoticache_object_array *owned;  /* objects of each entry of the snapshot */
    struct reference *references;  /* open addressing */
    size_t reference_capacity;     /* a power of two */
    aoticache_object_array garbage; /* objects without a row */
    uint64_t referenced_bytes;
    aoticache_collect_report report;
};

static struct reference *find_reference(const struct plan *plan, const aoticache_digest *digest)
{
    uint64_t hash;
    memcpy(&hash, digest->bytes, sizeof hash); /* a digest is as good a hash as there is */
    size_t at = (size_t)hash & (plan->reference_capacity - 1);
    while (plan->references[at].is_used && !aoticache_digest_equal(&plan->references[at].digest, digest))
        at = (at + 1) & (plan->reference_capacity - 1);
    return &plan->references[at];
}

/* ---- the plan ---- */

static aoticache_status read_owned(struct plan *plan, size_t *ret_objects, aoticache_error *ret_error)
{
    aoticache_index *index = aoticache_cache_index(plan->cache);
    plan->owned = calloc(plan->snapshot.count + 1, sizeof *plan->owned);
    if (plan->owned == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < plan->snapshot.count; i++) {
        aoticache_object_array *owned = &plan->owned[i];
        aoticache_status status = aoticache_index_artifact_objects(index, &plan->snapshot.entries[i].entry.artifact,
                                                                   &owned->items, &owned->count, ret_error);
        if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND) /* removed since the snapshot */
            return status;
        *ret_objects += owned->count;
    }
    return AOTICACHE_OK;
}

static aoticache_status count_references(struct plan *plan, size_t objects, aoticache_error *ret_error)
{
    plan->reference_capacity = 64;
    while (plan->reference_capacity < objects * 2)
        plan->reference_capacity *= 2;
    plan->references = calloc(plan->reference_capacity, sizeof *plan->references);
    if (plan->references == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu objects", objects);
    for (size_t i = 0; i < plan->snapshot.count; i++) {
        for (size_t k = 0; k < plan->owned[i].count; k++) {
            const aoticache_index_object *object = &plan->owned[i].items[k];
            struct reference *reference = find_reference(plan, &object->digest);
            if (!reference->is_used) {
                *reference = (struct reference){.digest = object->digest, .bytes = object->bytes, .is_used = true};
                plan->referenced_bytes += object->bytes;
            }
            reference->count++;
        }
    }
    return AOTICACHE_OK;
}

struct garbage_search {
    struct plan *plan;
    aoticache_status status;
};

static bool add_garbage(void *user, const aoticache_digest *digest)
{
    struct garbage_search *search = user;
    struct plan *plan = search->plan;
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    struct stat found;
    if (find_reference(plan, digest)->is_used ||
        aoticache_index_has_object(aoticache_cache_index(plan->cache), digest, NULL) != AOTICACHE_NOT_FOUND)
        return true;
    aoticache_object_path(digest, path);
    cleanup_fd int fd = aoticache_directory_openat(plan->cache->directory, path, 0);
    if (fd < 0 || fstat(fd, &found) != 0)
        return true;
    if (!aoticache_object_array_add(&plan->garbage, digest, (uint64_t)found.st_size))
        search->status = AOTICACHE_NO_MEMORY;
    plan->report.bytes_before += (uint64_t)found.st_size;
    return search->status == AOTICACHE_OK;
}

static aoticache_status make_plan(struct plan *plan, aoticache_error *ret_error)
{
    size_t objects = 0;
    aoticache_status status =
        aoticache_snapshot_take(plan->cache, AOTICACHE_INDEX_BY_LAST_USE, NULL, &plan->snapshot, ret_error);
    if (status == AOTICACHE_OK)
        status = read_owned(plan, &objects, ret_error);
    if (status == AOTICACHE_OK)
        status = count_references(plan, objects, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    struct garbage_search search = {.plan = plan, .status = AOTICACHE_OK};
    status = aoticache_object_list(plan->cache->directory, add_garbage, NULL, &search, ret_error);
    if (status == AOTICACHE_OK && search.status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, search.status, "out of memory for a list of objects");
    plan->report.entries_before = plan->report.entries_after = plan->snapshot.count;
    plan->report.bytes_before += plan->referenced_bytes;
    return status;
}

static void free_plan(struct plan *plan)
{
    for (size_t i = 0; plan->owned != NULL && i < plan->snapshot.count; i++)
        free(plan->owned[i].items);
    free(plan->owned);
    free(plan->references);
    free(plan->garbage.items);
    aoticache_snapshot_free(&plan->snapshot);
}

/* ---- evicting ---- */

static bool is_due(const struct plan *plan, size_t entry, int64_t now_ns)
{
    const aoticache_entry *candidate = &plan->snapshot.entries[entry].entry;
    if (plan->referenced_bytes > plan->options->max_bytes)
        return true;
    if (plan->options->max_age_seconds == UINT64_MAX)
        return false;
    int64_t used = candidate->last_used_ns > candidate->created_ns ? candidate->last_used_ns : candidate->created_ns;
    return now_ns > used && (uint64_t)(now_ns - used) / 1000000000u >= plan->options->max_age_seconds;
}

/* The manifest carries no mark: nobody needs it once the artifact is open. */
static bool is_held(const struct plan *plan, size_t entry)
{
    const aoticache_digest *manifest = &plan->snapshot.entries[entry].entry.artifact;
    for (size_t i = 0; i < plan->owned[entry].count; i++)
        if (!aoticache_digest_equal(&plan->owned[entry].items[i].digest, manifest) &&
            aoticache_object_is_held(plan->cache->directory, &plan->owned[entry].items[i].digest))
            return true;
    return false;
}

/* What the plan knows of an entry that has gone. */
static void forget_references(struct plan *plan, size_t entry, bool is_dry_run)
{
    plan->report.entries_removed++;
    plan->report.entries_after--;
    for (size_t i = 0; i < plan->owned[entry].count; i++) {
        struct reference *reference = find_reference(plan, &plan->owned[entry].items[i].digest);
        if (--reference->count > 0)
            continue;
        plan->referenced_bytes -= reference->bytes;
        if (is_dry_run) {
            plan->report.objects_removed++;
            plan->report.bytes_removed += reference->bytes;
        }
    }
}

/* With the store locked. *ret_removed: false where it was gone already. */
static aoticache_status evict(struct plan *plan, size_t entry, bool *ret_removed, aoticache_error *ret_error)
{
    aoticache_cache *cache = plan->cache;
    aoticache_index *index = aoticache_cache_index(cache);
    const aoticache_snapshot_entry *victim = &plan->snapshot.entries[entry];
    aoticache_removal removal = {.objects = 0};
    uint64_t removed = 0;
    aoticache_status status = aoticache_index_remove_entry(index, victim->entry_id, &removed, ret_error);
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        return status;
    if (aoticache_index_has_object(index, &victim->entry.artifact, NULL) == AOTICACHE_NOT_FOUND)
        aoticache_cache_remove_side_files(cache, &victim->entry.artifact);
    status = aoticache_cache_remove_objects(cache, plan->owned[entry].items, plan->owned[entry].count, &removal,
                                            ret_error);
    plan->report.objects_removed += removal.objects;
    plan->report.bytes_removed += removal.bytes;
    *ret_removed = removed > 0;
    return status;
}

/* One batch from *next on: as many entries as fit between taking and giving back the lock. */
static aoticache_status evict_batch(struct plan *plan, size_t *next, int64_t now_ns, size_t *ret_evicted,
                                    size_t evicted[BATCH_OBJECTS], aoticache_error *ret_error)
{
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    size_t objects = 0;
    aoticache_status status = aoticache_lock_store(plan->cache->directory, true, &lock, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const uint64_t begun = aoticache_monotonic_ns();
    for (; status == AOTICACHE_OK && *next < plan->snapshot.count; (*next)++) {
        if (objects >= BATCH_OBJECTS || aoticache_monotonic_ns() - begun > BATCH_NS)
            break;
        if (plan->owned[*next].count == 0 || !is_due(plan, *next, now_ns))
            continue;
        bool removed = false;
        if (is_held(plan, *next)) {
            plan->report.held++;
            continue;
        }
        status = evict(plan, *next, &removed, ret_error);
        if (status == AOTICACHE_OK && removed) {
            forget_references(plan, *next, false);
            evicted[(*ret_evicted)++] = *next;
        }
        objects += plan->owned[*next].count;
    }
    aoticache_lock_release(&lock);
    return status;
}

static bool tell(const struct plan *plan, size_t entry)
{
    return plan->callback == NULL || plan->callback(plan->user, &plan->snapshot.entries[entry].entry);
}

static bool any_due(const struct plan *plan, size_t from, int64_t now_ns)
{
    for (size_t i = from; i < plan->snapshot.count; i++)
        if (plan->owned[i].count > 0 && is_due(plan, i, now_ns))
            return true;
    return false;
}

static aoticache_status evict_all(struct plan *plan, int64_t now_ns, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    bool goes_on = true;
    for (size_t next = 0; status == AOTICACHE_OK && goes_on && any_due(plan, next, now_ns);) {
        size_t evicted[BATCH_OBJECTS];
        size_t count = 0;
        status = evict_batch(plan, &next, now_ns, &count, evicted, ret_error);
        for (size_t i = 0; i < count; i++)
            goes_on = tell(plan, evicted[i]) && goes_on;
    }
    return status;
}

static void evict_nothing(struct plan *plan, int64_t now_ns)
{
    for (size_t i = 0; i < plan->snapshot.count; i++) {
        if (plan->owned[i].count == 0 || !is_due(plan, i, now_ns))
            continue;
        if (is_held(plan, i)) {
            plan->report.held++;
            continue;
        }
        forget_references(plan, i, true);
        if (!tell(plan, i))
            return;
    }
}

/* ---- objects that no entry names ---- */

static aoticache_status remove_garbage(struct plan *plan, aoticache_error *ret_error)
{
    for (size_t i = 0; i < plan->garbage.count; i += BATCH_OBJECTS) {
        aoticache_lock lock = AOTICACHE_LOCK_INIT;
        aoticache_removal removal = {.objects = 0};
        size_t count = plan->garbage.count - i < BATCH_OBJECTS ? plan->garbage.count - i : BATCH_OBJECTS;
        aoticache_status status = aoticache_lock_store(plan->cache->directory, true, &lock, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        status = aoticache_cache_remove_objects(plan->cache, plan->garbage.items + i, count, &removal, ret_error);
        aoticache_lock_release(&lock);
        plan->report.objects_removed += removal.objects;
        plan->report.bytes_removed += removal.bytes;
        if (status != AOTICACHE_OK)
            return status;
    }
    return AOTICACHE_OK;
}

static void count_garbage(struct plan *plan)
{
    for (size_t i = 0; i < plan->garbage.count; i++) {
        if (aoticache_object_is_held(plan->cache->directory, &plan->garbage.items[i].digest))
            continue;
        plan->report.objects_removed++;
        plan->report.bytes_removed += plan->garbage.items[i].bytes;
    }
}

static aoticache_status carry_out(struct plan *plan, aoticache_error *ret_error)
{
    const int64_t now = aoticache_wall_ns();
    if (plan->options->dry_run) {
        evict_nothing(plan, now);
        count_garbage(plan);
        return AOTICACHE_OK;
    }
    aoticache_status status = evict_all(plan, now, ret_error);
    if (status == AOTICACHE_OK)
        status = remove_garbage(plan, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_remove_leftovers(plan->cache, &plan->report.leftovers, ret_error);
    aoticache_cache_count(plan->cache, AOTICACHE_COUNTER_evicted, plan->report.entries_removed);
    aoticache_cache_count(plan->cache, AOTICACHE_COUNTER_evicted_bytes, plan->report.bytes_removed);
    aoticache_cache_flush(plan->cache, NULL);
    return status;
}

static aoticache_status collect(struct plan *plan, aoticache_error *ret_error)
{
    aoticache_cache *cache = plan->cache;
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    aoticache_status status = AOTICACHE_OK;
    if (!plan->options->dry_run) {
        status = aoticache_cache_check_writable(cache, ret_error);
        if (status == AOTICACHE_OK)
            status = aoticache_lock_collector(cache->directory, &lock, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    aoticache_index *index = aoticache_cache_index(cache);
    aoticache_cache_refreshed(cache, &index);
    aoticache_cache_flush(cache, NULL);
    if (index != NULL)
        status = make_plan(plan, ret_error);
    if (status == AOTICACHE_OK && index != NULL)
        status = carry_out(plan, ret_error);
    plan->report.bytes_after = plan->report.bytes_before - plan->report.bytes_removed;
    aoticache_lock_release(&lock);
    return status;
}

aoticache_status aoticache_cache_collect(aoticache_cache *cache, const aoticache_collect_options *options,
                                         aoticache_entry_fn callback, void *user,
                                         aoticache_collect_report *ret_report, aoticache_error *ret_error)
{
    static const aoticache_collect_options defaults = AOTICACHE_COLLECT_OPTIONS_INIT;
    if (options == NULL)
        options = &defaults;
    if (cache == NULL || options->size < sizeof *options)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "aoticache_cache_collect: no cache, or options without "
                                   "AOTICACHE_COLLECT_OPTIONS_INIT");
    struct plan plan = {.cache = cache, .options = options, .callback = callback, .user = user};
    aoticache_cache_enter(cache);
    aoticache_status status = collect(&plan, ret_error);
    if (status == AOTICACHE_OK && ret_report != NULL)
        *ret_report = plan.report;
    free_plan(&plan);
    return status == AOTICACHE_CORRUPT ? AOTICACHE_IO : status;
}
