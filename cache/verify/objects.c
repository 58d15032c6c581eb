/*
 * cache/verify/objects: iterates over objects/ and the index together, some directories at a time.
 *
 * Both are in the order of digests, so a batch of directories is a range of the index: an object that is only in the index
 * is missing, one that is only in objects/ does not belong to an entry. Nothing is kept of a batch that is done.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "cache/store/lock.h"
#include "cache/verify/verify_internal.h"

#define DIRECTORIES 256
/* Directories are added to a batch until it has this many objects: at its end threads wait for each other. */
#define BATCH_OBJECTS 4096
#define SAVE_NS UINT64_C(1000000000)

/* ---- problems of one object ---- */

static aoticache_status remove_entries_of(aoticache_verification *verification, const aoticache_digest *digest,
                                          aoticache_error *ret_error)
{
    uint64_t removed;
    if (verification->index == NULL)
        return AOTICACHE_OK;
    return aoticache_index_remove_object(verification->index, digest, &removed, ret_error);
}

/* Call this with the store locked. A damaged object is quarantined, and the entries that need it are removed; so are those
 * of a missing object. */
static aoticache_status retire(aoticache_verification *verification, const aoticache_digest *digest,
                               const aoticache_object_state *state, aoticache_error *ret_error)
{
    aoticache_directory *directory = verification->cache->directory;
    if (!aoticache_object_is_unchanged(directory, digest, state))
        return AOTICACHE_OK;
    aoticache_status status = AOTICACHE_OK;
    if (state->status == AOTICACHE_CORRUPT)
        status = aoticache_object_quarantine(directory, digest, ret_error);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND)
        status = remove_entries_of(verification, digest, ret_error);
    if (status == AOTICACHE_OK)
        verification->report.repaired++;
    return status;
}

/* Repairs an object. state: CORRUPT or NOT_FOUND, determined without the lock. */
static aoticache_status repair(aoticache_verification *verification, const aoticache_digest *digest,
                               const aoticache_object_state *state, aoticache_error *ret_error)
{
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    if (!verification->options.repair)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_lock_store(verification->cache->directory, true, &lock, ret_error);
    if (status == AOTICACHE_OK)
        status = retire(verification, digest, state, ret_error);
    aoticache_lock_release(&lock);
    return status;
}

static bool poll_in_object(void *user)
{
    aoticache_verification *verification = user;
    verification->is_interrupted = !aoticache_verification_poll(verification, verification->report.objects);
    return !verification->is_interrupted;
}

static aoticache_status read_again(aoticache_verification *verification, const aoticache_verify_item *item,
                                   aoticache_object_state *ret_state, aoticache_error *ret_error)
{
    aoticache_directory *directory = verification->cache->directory;
    return aoticache_object_look(directory, &item->digest, item->named_bytes, poll_in_object, verification, ret_state,
                                 ret_error);
}

/* Compares only sizes and reads nothing; before anything is repaired the object is read, because the row may be wrong
 * instead. */
static aoticache_status examine_quickly(aoticache_verification *verification, aoticache_verify_item *item,
                                        aoticache_object_state *ret_state, aoticache_error *ret_error)
{
    *ret_state = (aoticache_object_state){.status = AOTICACHE_OK};
    aoticache_status status =
        aoticache_verify_item_examine(verification->cache->directory, true, NULL, NULL, item, ret_error);
    if (status == AOTICACHE_CORRUPT && verification->options.repair)
        read_again(verification, item, ret_state, NULL);
    return status;
}

/* Returns whether it cannot be used because it is foreign, as opposed to a damaged object of the cache. */
static bool is_foreign_object(const aoticache_verification *verification, const char *path)
{
    struct stat found;
    return fstatat(verification->cache->directory->fd, path, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
           aoticache_directory_trust(verification->cache->directory, &found, S_IFREG, path, NULL) != AOTICACHE_OK;
}

static aoticache_status confirm_suspect(aoticache_verification *verification, aoticache_verify_item *item,
                                        aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    aoticache_error detail = {.message = ""};
    aoticache_object_state state;
    aoticache_status status = verification->options.quick ? examine_quickly(verification, item, &state, &detail)
                                                          : read_again(verification, item, &state, &detail);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND || verification->is_interrupted)
        return AOTICACHE_OK; /* collected meanwhile; missing objects are counted later */
    aoticache_object_path(&item->digest, path);
    if (status == AOTICACHE_DENIED)
        aoticache_verification_note_unreadable(verification, path, detail.message);
    if (status != AOTICACHE_CORRUPT)
        return status == AOTICACHE_DENIED ? AOTICACHE_OK : aoticache_error_set(ret_error, status, "%s", detail.message);
    bool is_foreign = is_foreign_object(verification, path);
    verification->report.foreign += is_foreign ? 1 : 0;
    verification->report.damaged += is_foreign ? 0 : 1;
    aoticache_verification_report_finding(verification, is_foreign ? "foreign" : "damaged", path, detail.message);
    if (state.status != AOTICACHE_CORRUPT)
        return AOTICACHE_OK;
    const uint64_t repaired = verification->report.repaired;
    status = repair(verification, &item->digest, &state, ret_error);
    /* Only the process that quarantines a damaged object counts it, so that it counts once, however often it is found. */
    if (!is_foreign && verification->report.repaired > repaired)
        aoticache_cache_count(verification->cache, AOTICACHE_COUNTER_damaged, 1);
    return status;
}

static aoticache_status note_unnamed(aoticache_verification *verification, const aoticache_verify_item *item,
                                     aoticache_error *ret_error)
{
    if (verification->index == NULL) {
        verification->report.unreferenced++;
        return AOTICACHE_OK;
    }
    aoticache_status status = aoticache_index_has_object(verification->index, &item->digest, NULL);
    if (status != AOTICACHE_NOT_FOUND)
        return AOTICACHE_OK; /* stored since the index was read */
    verification->report.unreferenced++;
    return verification->options.quick ? AOTICACHE_OK
                                       : aoticache_verification_note_unnamed(verification, &item->digest, ret_error);
}

static aoticache_status judge_item(aoticache_verification *verification, aoticache_verify_item *item,
                                   aoticache_error *ret_error)
{
    bool is_named = item->named_bytes != AOTICACHE_OBJECT_ANY_SIZE;
    verification->report.objects++;
    verification->report.bytes += item->bytes;
    switch (item->verdict) {
    case AOTICACHE_OBJECT_SUSPECT:
        return confirm_suspect(verification, item, ret_error);
    case AOTICACHE_OBJECT_CONTRADICTED:
        return aoticache_verification_confirm_entries(verification, item, ret_error);
    case AOTICACHE_OBJECT_SOUND:
        return is_named ? AOTICACHE_OK : note_unnamed(verification, item, ret_error);
    default:
        return AOTICACHE_OK;
    }
}

static aoticache_status confirm_absent(aoticache_verification *verification, const aoticache_digest *digest,
                                       aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    if (!aoticache_object_is_absent(verification->cache->directory, digest) ||
        aoticache_index_has_object(verification->index, digest, NULL) != AOTICACHE_OK)
        return AOTICACHE_OK;
    verification->report.missing++;
    aoticache_object_path(digest, path);
    aoticache_verification_report_finding(verification, "missing", path,
                                          "an entry names this object, but it does not exist");
    return repair(verification, digest, &(aoticache_object_state){.status = AOTICACHE_NOT_FOUND}, ret_error);
}

/* ---- all objects ---- */

/* Confirms rows of the index that come before `digest` and were not found on disk; NULL: all remaining rows. */
static aoticache_status confirm_rows_before(aoticache_verification *verification, const aoticache_verify_batch *batch,
                                            const aoticache_digest *digest, size_t *position,
                                            aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (; status == AOTICACHE_OK && *position < batch->named.count; (*position)++) {
        const aoticache_digest *named = &batch->named.items[*position].digest;
        int order = digest != NULL ? memcmp(named->bytes, digest->bytes, sizeof named->bytes) : -1;
        if (order > 0)
            break;
        if (order < 0 && !aoticache_verification_is_done(verification, named))
            status = confirm_absent(verification, named, ret_error);
    }
    return status;
}

static aoticache_status judge_batch(aoticache_verification *verification, aoticache_verify_batch *batch,
                                    aoticache_error *ret_error)
{
    size_t position = 0;
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < batch->count; i++) {
        aoticache_verify_item *item = &batch->items[i];
        if (item->verdict == AOTICACHE_OBJECT_UNSEEN) {
            verification->is_stopped = true;
            return AOTICACHE_OK;
        }
        status = confirm_rows_before(verification, batch, &item->digest, &position, ret_error);
        const uint64_t bytes = verification->report.bytes;
        if (status == AOTICACHE_OK)
            status = judge_item(verification, item, ret_error);
        if (verification->is_interrupted) { /* the next part examines it */
            verification->report.objects--;
            verification->report.bytes = bytes;
            return status;
        }
        if (status == AOTICACHE_OK) {
            verification->cursor = item->digest;
            verification->has_cursor = true;
        }
    }
    if (status == AOTICACHE_OK)
        status = confirm_rows_before(verification, batch, NULL, &position, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < batch->odd_count; i++) {
        if (batch->odd[i].detail != NULL)
            aoticache_verification_note_unreadable(verification, batch->odd[i].path, batch->odd[i].detail);
        else
            status = aoticache_verification_report_foreign(verification, batch->odd[i].path, ret_error);
    }
    if (status == AOTICACHE_OK) {
        verification->first_directory = (unsigned)batch->last.bytes[0] + 1;
        verification->cursor = batch->last;
        verification->has_cursor = true;
    }
    return status;
}

static aoticache_status check_batch(aoticache_verification *verification, aoticache_verify_batch *batch,
                                    aoticache_error *ret_error)
{
    aoticache_verification_examine(verification, batch);
    aoticache_status status = judge_batch(verification, batch, ret_error);
    if (status == AOTICACHE_OK && !verification->is_stopped)
        aoticache_verification_poll(verification, verification->report.objects);
    if (status == AOTICACHE_OK && aoticache_monotonic_ns() - verification->saved_ns > SAVE_NS)
        aoticache_verification_save(verification);
    return status;
}

static aoticache_status count_batch(aoticache_verification *verification, aoticache_verify_batch *batch,
                                    aoticache_error *ret_error)
{
    (void)ret_error;
    for (size_t i = 0; i < batch->count; i++)
        verification->report.unreferenced += batch->items[i].named_bytes == AOTICACHE_OBJECT_ANY_SIZE ? 1 : 0;
    return AOTICACHE_OK;
}

typedef aoticache_status (*batch_fn)(aoticache_verification *, aoticache_verify_batch *, aoticache_error *);

static aoticache_status walk_directories(aoticache_verification *verification, unsigned first, batch_fn treat,
                                         aoticache_error *ret_error)
{
    aoticache_verify_batch batch = {.items = NULL};
    aoticache_status status = AOTICACHE_OK;
    for (unsigned directory = first; status == AOTICACHE_OK && !verification->is_stopped && directory < DIRECTORIES;
         directory++) {
        status = aoticache_verification_list_directory(verification, directory, &batch, ret_error);
        if (status != AOTICACHE_OK || (batch.count < BATCH_OBJECTS && directory + 1 < DIRECTORIES))
            continue;
        status = aoticache_verification_read_rows(verification, first, directory, &batch, ret_error);
        if (status == AOTICACHE_OK)
            status = treat(verification, &batch, ret_error);
        aoticache_verify_batch_clear(&batch);
        first = directory + 1;
    }
    aoticache_verify_batch_release(&batch);
    return status;
}

aoticache_status aoticache_verification_check_objects(aoticache_verification *verification, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    if (!verification->has_cursor)
        status = aoticache_verification_check_top(verification, ret_error);
    verification->has_cursor = true; /* at 0: no object precedes it, and objects/ itself is done */
    verification->saved_ns = aoticache_monotonic_ns();
    return status == AOTICACHE_OK
               ? walk_directories(verification, verification->first_directory, check_batch, ret_error)
               : status;
}

aoticache_status aoticache_verification_count_unreferenced(aoticache_verification *verification,
                                                           aoticache_error *ret_error)
{
    verification->report.unreferenced = 0;
    verification->has_cursor = false;
    return walk_directories(verification, 0, count_batch, ret_error);
}
