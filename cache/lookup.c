/*
 * cache/lookup: finds the artifact of a key, opens and verifies it; and handles objects that turn out damaged or missing.
 *
 * A hit makes no call that changes the disk. A repair does. It takes the store's lock exclusively and then checks again,
 * because another process may have stored the same object again meanwhile.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/names.h"
#include "cache/eager_face.h"
#include "cache/entries.h"
#include "cache/cache_internal.h"
#include "cache/request/cpu_detect.h"
#include "cache/request/request_internal.h"
#include "cache/store/lock.h"

/* Number of entries of one key that need no allocation. */
#define USUAL_HITS 8
/* How often a lookup starts again because an object vanished after the index named it: a collector or another put removed
 * it. */
#define MAX_TRIES 4

/*
 * Removes an object that is CORRUPT or NOT_FOUND (`found`) from the store, and its entries from the index. It examines the
 * object again without a lock, and then checks with the store locked that the object is still the one examined, so that
 * nothing is read with the lock held.
 */
static void retire_object(aoticache_cache *cache, aoticache_index *index, const aoticache_artifact_part *part,
                          aoticache_status found, aoticache_error *detail)
{
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    aoticache_object_state state;
    const aoticache_digest *digest = &part->digest;
    const aoticache_logger *logger = &cache->directory->logger;
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    uint64_t removed = 0;
    aoticache_digest_to_hex(digest, hex);
    if (cache->directory->read_only) {
        if (found == AOTICACHE_CORRUPT)
            aoticache_cache_note_damaged(cache, digest);
        aoticache_log(logger, AOTICACHE_LOG_WARNING,
                      "object %s cannot be used (%s); it stays, because the cache is read-only", hex,
                      found == AOTICACHE_CORRUPT ? detail->message : "it is missing");
        return;
    }
    aoticache_status now = aoticache_object_look(cache->directory, digest, part->bytes, NULL, NULL, &state, detail);
    if ((now != found && now != AOTICACHE_CORRUPT) ||
        aoticache_lock_store(cache->directory, true, &lock, NULL) != AOTICACHE_OK)
        return;
    if (aoticache_object_is_unchanged(cache->directory, digest, &state)) {
        aoticache_status moved = aoticache_object_quarantine(cache->directory, digest, NULL);
        aoticache_index_remove_object(index, digest, &removed, NULL);
        /* Only the process that removes it counts it; none does while it cannot be removed. */
        if (state.status == AOTICACHE_CORRUPT && (moved == AOTICACHE_OK || removed > 0))
            aoticache_cache_count(cache, AOTICACHE_COUNTER_damaged, 1);
        if (moved == AOTICACHE_OK)
            aoticache_log(logger, AOTICACHE_LOG_WARNING,
                          "object %s is damaged (%s): moved to " AOTICACHE_QUARANTINE "/", hex, detail->message);
        else if (found == AOTICACHE_NOT_FOUND)
            aoticache_log(logger, AOTICACHE_LOG_WARNING, "object %s is missing: its entries are removed", hex);
        else
            aoticache_log(logger, AOTICACHE_LOG_WARNING, "object %s is damaged (%s): its entries are removed", hex,
                          detail->message);
    }
    aoticache_lock_release(&lock);
}

/* Logs that an object cannot be read. Another process may be able to read it, so this is only a miss. The first time it is a
 * warning, later a debug message. */
static void log_unreadable(aoticache_cache *cache, const aoticache_error *detail)
{
    bool is_known = atomic_exchange(&cache->has_warned_unreadable, true);
    aoticache_log(&cache->directory->logger, is_known ? AOTICACHE_LOG_DEBUG : AOTICACHE_LOG_WARNING,
                  "%s: this counts as a miss; 'aoticache verify' names what cannot be read", detail->message);
}

/* Opens the entry of a hit. ret_unusable: the object concerned on CORRUPT and NOT_FOUND. */
static aoticache_status open_hit(aoticache_cache *cache, const aoticache_index_hit *hit,
                                 aoticache_artifact **ret_artifact, aoticache_artifact_part *ret_unusable,
                                 aoticache_error *ret_error)
{
    aoticache_index *index = cache->hash_always ? NULL : aoticache_cache_index(cache);
    if (hit->file_count != 1)
        return aoticache_artifact_open_manifest(cache->directory, &hit->artifact, index, ret_artifact, ret_unusable,
                                                ret_error);
    if (hit->content_offset > 0) {
        *ret_unusable =
            (aoticache_artifact_part){.digest = hit->artifact, .bytes = hit->content_offset + hit->library_bytes};
        return aoticache_artifact_open_content(cache->directory, hit, index, ret_artifact, ret_error);
    }
    int fd = -1;
    cleanup_fd int copy = -1;
    *ret_unusable = (aoticache_artifact_part){.digest = hit->library, .bytes = hit->library_bytes};
    aoticache_status status =
        aoticache_object_open_copied(cache->directory, &hit->library, hit->library_bytes, index, &fd, &copy, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_artifact_create(fd, &hit->artifact, &hit->library, hit->compile_ns, true, ret_artifact,
                                           ret_error);
    if (status == AOTICACHE_OK)
        atomic_init(&(*ret_artifact)->copy, steal_fd(&copy));
    return status;
}

/*
 * Gives the guard of an entry if the search needs it, freed with free(); NULL if not.
 * Returns: OK; NOT_FOUND: the entry has gone meanwhile; UNSUPPORTED: the caller does not accept its guard; errors of the
 * index.
 */
static aoticache_status check_guard(aoticache_index *index, const aoticache_lookup_target *target, int64_t entry_id,
                                    char **ret_guard, aoticache_error *ret_error)
{
    *ret_guard = NULL;
    if (target->filter == NULL && target->entry_id == 0)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_read_guard(index, entry_id, ret_guard, ret_error);
    if (status != AOTICACHE_OK || target->filter == NULL)
        return status;
    bool accepted = (*ret_guard)[0] != '\0' && target->filter->accept(target->filter->user, *ret_guard);
    return accepted ? AOTICACHE_OK : AOTICACHE_UNSUPPORTED;
}

/* Opens an entry that fits. ret_unusable as open_hit. */
static aoticache_status open_entry(aoticache_cache *cache, const aoticache_index_hit *hit, const char *guard,
                                   aoticache_artifact **ret_artifact, aoticache_find_report *report,
                                   aoticache_artifact_part *ret_unusable, aoticache_error *ret_error)
{
    aoticache_artifact *artifact = NULL;
    aoticache_status status = open_hit(cache, hit, &artifact, ret_unusable, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    artifact->entry_id = hit->entry_id;
    status = aoticache_artifact_set_guard(artifact, guard, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_artifact_unref(artifact);
        return status;
    }
    report->entry_id = hit->entry_id;
    report->compile_ns = hit->compile_ns;
    report->is_dynamic = guard != NULL && guard[0] != '\0';
    *ret_artifact = artifact;
    return AOTICACHE_OK;
}

/* Opens the first entry that fits. NOT_FOUND with *ret_vanished: an object was missing. */
static aoticache_status try_hits(aoticache_cache *cache, aoticache_index *index, const aoticache_lookup_target *target,
                                 const aoticache_index_hit *hits, size_t count, bool is_last_try,
                                 aoticache_artifact **ret_artifact, aoticache_find_report *report, bool *ret_vanished,
                                 aoticache_error *ret_error)
{
    const aoticache_cpu_features *have = aoticache_cpu_features_get();
    bool any_fits = false;
    for (size_t i = 0; i < count; i++) {
        aoticache_cpu_features required = aoticache_requirements_from_bytes(hits[i].requirements);
        aoticache_error detail = {.message = ""};
        aoticache_artifact_part unusable;
        cleanup_free char *guard = NULL;
        if (!aoticache_cpu_features_include(have, &required))
            continue;
        any_fits = true;
        aoticache_status status = check_guard(index, target, hits[i].entry_id, &guard, ret_error);
        *ret_vanished = *ret_vanished || status == AOTICACHE_NOT_FOUND;
        report->is_refused = report->is_refused || status == AOTICACHE_UNSUPPORTED;
        if (status == AOTICACHE_NOT_FOUND || status == AOTICACHE_UNSUPPORTED)
            continue;
        if (status != AOTICACHE_OK)
            return status;
        if (aoticache_trust_bars(cache, &hits[i].artifact))
            continue;
        status = open_entry(cache, &hits[i], guard, ret_artifact, report, &unusable, &detail);
        if (status == AOTICACHE_OK)
            return status;
        if (status == AOTICACHE_NO_MEMORY || status == AOTICACHE_IO || status == AOTICACHE_LOCKED)
            return aoticache_error_set(ret_error, status, "%s", detail.message);
        if (status == AOTICACHE_DENIED) {
            log_unreadable(cache, &detail);
        } else if (status == AOTICACHE_CORRUPT) {
            report->was_damaged = true;
            retire_object(cache, index, &unusable, status, &detail);
        } else if (status == AOTICACHE_NOT_FOUND) {
            *ret_vanished = true;
            if (is_last_try)
                retire_object(cache, index, &unusable, status, &detail);
        }
    }
    report->lacks_requirement = count > 0 && !any_fits;
    return AOTICACHE_NOT_FOUND;
}

/* Reads the one entry that the target gives by its number. */
static aoticache_status read_hit(aoticache_index *index, const aoticache_lookup_target *target,
                                 aoticache_index_hit *ret_hit, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_lookup_entry(index, target->entry_id, ret_hit, ret_error);
    /* In a rebuilt index the number may belong to another entry. */
    if (status == AOTICACHE_OK && !aoticache_digest_equal(&ret_hit->artifact, target->artifact))
        return AOTICACHE_NOT_FOUND;
    return status;
}

/* Reads all entries of a key: into `usual` if they fit, otherwise into *ret_more, which the caller frees with free(). */
static aoticache_status read_hits(aoticache_index *index, const aoticache_key *key,
                                  aoticache_index_hit usual[USUAL_HITS], aoticache_index_hit **ret_more,
                                  size_t *ret_count, aoticache_error *ret_error)
{
    size_t count = 0;
    aoticache_status status = aoticache_index_lookup(index, key, usual, USUAL_HITS, &count, ret_error);
    if (status != AOTICACHE_OK || count <= USUAL_HITS) {
        *ret_count = count;
        return status;
    }
    size_t capacity = count;
    cleanup_free aoticache_index_hit *more = calloc(capacity, sizeof *more);
    if (more == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu entries", capacity);
    status = aoticache_index_lookup(index, key, more, capacity, &count, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *ret_count = count < capacity ? count : capacity;
    *ret_more = steal_ptr(&more);
    return AOTICACHE_OK;
}

aoticache_status aoticache_cache_find(aoticache_cache *cache, const aoticache_lookup_target *target,
                                      aoticache_artifact **ret_artifact, aoticache_find_report *ret_report,
                                      aoticache_error *ret_error)
{
    aoticache_index *index = aoticache_cache_index(cache);
    *ret_report = (aoticache_find_report){.entry_id = 0};
    if (index == NULL)
        return AOTICACHE_NOT_FOUND;
    aoticache_status status = AOTICACHE_NOT_FOUND;
    for (int tries = 0; tries < MAX_TRIES;) {
        aoticache_index_hit usual[USUAL_HITS];
        cleanup_free aoticache_index_hit *more = NULL;
        size_t count = 1;
        bool vanished = false;
        status = target->entry_id == 0 ? read_hits(index, &target->key, usual, &more, &count, ret_error)
                                       : read_hit(index, target, &usual[0], ret_error);
        const bool is_absent = status == AOTICACHE_NOT_FOUND;
        if (status == AOTICACHE_OK)
            status = try_hits(cache, index, target, more != NULL ? more : usual, count, tries + 1 == MAX_TRIES,
                              ret_artifact, ret_report, &vanished, ret_error);
        /* The index was damaged or replaced: ask the sound one. This does not count as a try. */
        if (aoticache_cache_recovered(cache, status, &index))
            continue;
        if (status != AOTICACHE_NOT_FOUND || !(vanished || (is_absent && aoticache_cache_refreshed(cache, &index))))
            return status;
        tries++;
    }
    return status;
}

void aoticache_cache_count_hit(aoticache_cache *cache, const aoticache_artifact *artifact,
                               const aoticache_find_report *report, uint64_t begun_ns)
{
    const uint64_t now = aoticache_monotonic_ns();
    const uint64_t saved_ns =
        aoticache_cache_spare(cache, &aoticache_artifact_get_info(artifact)->digest, report->compile_ns);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_hits, 1);
    if (report->is_dynamic)
        aoticache_cache_count(cache, AOTICACHE_COUNTER_hits_dynamic, 1);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_saved_ns, saved_ns);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_lookup_ns, now - begun_ns);
    aoticache_cache_note_latency(cache, AOTICACHE_LATENCY_lookup, now - begun_ns);
    aoticache_cache_note_tally(
        cache, (aoticache_index_tally){.entry_id = report->entry_id, .uses = 1, .hits = 1, .saved_ns = saved_ns});
    aoticache_cache_flush_if_due(cache, now);
}

/* Counts at most one reason: the one that helps most to decide what to do. */
void aoticache_cache_count_miss(aoticache_cache *cache, const aoticache_find_report *report)
{
    aoticache_cache_count(cache, AOTICACHE_COUNTER_misses, 1);
    if (report->has_failed)
        aoticache_cache_count(cache, AOTICACHE_COUNTER_misses_failed, 1);
    else if (report->was_damaged)
        aoticache_cache_count(cache, AOTICACHE_COUNTER_misses_damaged, 1);
    else if (report->lacks_requirement)
        aoticache_cache_count(cache, AOTICACHE_COUNTER_misses_requirement, 1);
    else if (report->is_refused)
        aoticache_cache_count(cache, AOTICACHE_COUNTER_misses_guard, 1);
    aoticache_cache_flush_missed(cache);
}

/* ---- the public lookups: each finds and counts ---- */

/* Counts a miss without a compile. request: NULL if the entry was requested by its number. */
static aoticache_status count_lookup_miss(aoticache_cache *cache, const aoticache_request *request,
                                          const aoticache_find_report *report)
{
    aoticache_cache_note_group(cache, request, &(aoticache_index_group){.misses = 1});
    aoticache_cache_count_miss(cache, report);
    return AOTICACHE_NOT_FOUND;
}

/* Finds and counts. An entry that was requested by its number and is gone does not count as a miss: the caller's next
 * lookup, by the key, does. */
static aoticache_status find_and_count(aoticache_cache *cache, const aoticache_request *request,
                                       const aoticache_lookup_target *target, uint64_t begun,
                                       aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    aoticache_find_report report;
    aoticache_status status = aoticache_cache_find(cache, target, ret_artifact, &report, ret_error);
    if (status == AOTICACHE_OK)
        aoticache_cache_count_hit(cache, *ret_artifact, &report, begun);
    else if (status == AOTICACHE_NOT_FOUND && (target->entry_id == 0 || report.was_damaged))
        count_lookup_miss(cache, request, &report);
    return aoticache_cache_index_result(status, ret_error);
}

aoticache_status aoticache_cache_lookup(aoticache_cache *cache, const aoticache_request *request,
                                        const aoticache_guard_filter *filter, aoticache_artifact **ret_artifact,
                                        aoticache_error *ret_error)
{
    if (cache == NULL || request == NULL || ret_artifact == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, request, ret_artifact);
    static const aoticache_find_report nothing;
    const uint64_t begun = aoticache_monotonic_ns();
    aoticache_lookup_target target = {.filter = filter};
    aoticache_cache_enter(cache);
    aoticache_status status = aoticache_request_key(request, &target.key, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    /* A dynamic request has no exact entry, and a request for exact shapes no dynamic one. */
    if (aoticache_request_is_dynamic(request) != (filter != NULL))
        return count_lookup_miss(cache, request, &nothing);
    return find_and_count(cache, request, &target, begun, ret_artifact, ret_error);
}

aoticache_status aoticache_cache_open_stored(aoticache_cache *cache, int64_t entry_id, const aoticache_digest *artifact,
                                             aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    if (cache == NULL || artifact == NULL || ret_artifact == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, artifact, ret_artifact);
    if (entry_id == 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_open_stored: entry_id is 0");
    const uint64_t begun = aoticache_monotonic_ns();
    const aoticache_lookup_target target = {.entry_id = entry_id, .artifact = artifact};
    aoticache_cache_enter(cache);
    return find_and_count(cache, NULL, &target, begun, ret_artifact, ret_error);
}
