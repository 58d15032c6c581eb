/*
 * cache/verify/verify: runs the parts of a verification in order, and contains two of them: the index and the root of the
 * cache.
 *
 * Examining takes no lock. Because entries are added and removed meanwhile, a problem is examined again before it counts,
 * and with the store locked if it is repaired.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/files/listing.h"
#include "base/options.h"
#include "cache/store/lock.h"
#include "cache/verify/verify_internal.h"
#include "index/entries/integrity.h"

/* ---- the index ---- */

static bool poll(void *user)
{
    aoticache_verification *verification = user;
    return aoticache_verification_poll(verification, verification->report.objects);
}

/* Uses a separate connection, so that other threads need not wait for it. It may write if the cache may, to undo what a dead
 * process left in a rollback journal. verification: NULL: the check cannot be stopped. */
static aoticache_status check_integrity(aoticache_cache *cache, bool is_full, aoticache_verification *verification,
                                        bool *ret_completed, aoticache_error *ret_error)
{
    const aoticache_directory *directory = cache->directory;
    char path[AOTICACHE_INDEX_PATH_BYTES];
    aoticache_index *index = NULL;
    aoticache_index_options options = aoticache_cache_index_options(directory, path);
    options.read_only = directory->read_only;
    options.logger = (aoticache_logger){.log = NULL};
    aoticache_status status = aoticache_index_open(&options, &index, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_check_integrity(index, is_full, verification != NULL ? poll : NULL, verification,
                                                 ret_completed, ret_error);
    aoticache_index_close(index);
    return status;
}

aoticache_status aoticache_cache_check_index(aoticache_cache *cache, bool is_full, aoticache_error *ret_error)
{
    bool completed;
    if (cache == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache);
    aoticache_cache_enter(cache);
    if (aoticache_cache_index(cache) == NULL)
        return AOTICACHE_NOT_FOUND;
    return check_integrity(cache, is_full, NULL, &completed, ret_error);
}

static aoticache_status report_damaged_index(aoticache_verification *verification, const char *detail,
                                             aoticache_error *ret_error)
{
    verification->report.damaged++;
    aoticache_verification_report_finding(verification, "damaged", AOTICACHE_INDEX_FILE, detail);
    if (!verification->options.repair) {
        verification->index = NULL; /* its results are useless now */
        return AOTICACHE_OK;
    }
    if (!aoticache_cache_recovered(verification->cache, AOTICACHE_CORRUPT, &verification->index))
        return aoticache_error_set(ret_error, AOTICACHE_IO, "cannot rebuild the index: %.900s", detail);
    verification->report.repaired++;
    return AOTICACHE_OK;
}

/* Reports a missing index. A read-only cache that was opened without an index finds nothing, which is correct only if it is
 * empty. */
static aoticache_status explain_no_index(aoticache_verification *verification, aoticache_error *ret_error)
{
    const aoticache_directory *directory = verification->cache->directory;
    aoticache_error detail = {.message = ""};
    bool completed;
    aoticache_status status = check_integrity(verification->cache, false, NULL, &completed, &detail);
    if (status == AOTICACHE_CORRUPT)
        return report_damaged_index(verification, detail.message, ret_error);
    if (status == AOTICACHE_OK)
        return aoticache_error_set(ret_error, AOTICACHE_IO,
                                   "%s/" AOTICACHE_INDEX_FILE
                                   " could not be read when the cache was opened, and can be read now: verify "
                                   "again",
                                   directory->path);
    if (status != AOTICACHE_NOT_FOUND)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    if (faccessat(directory->fd, AOTICACHE_OBJECTS, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
        return AOTICACHE_OK;
    verification->report.missing++;
    aoticache_verification_report_finding(verification, "missing", AOTICACHE_INDEX_FILE,
                                          "there are objects, but no index to find them");
    return AOTICACHE_OK;
}

static aoticache_status check_index(aoticache_verification *verification, aoticache_error *ret_error)
{
    if (verification->index == NULL)
        return explain_no_index(verification, ret_error);
    aoticache_error detail = {.message = ""};
    bool completed = true;
    aoticache_cache_refreshed(verification->cache, &verification->index);
    if (verification->is_index_checked)
        return AOTICACHE_OK;
    aoticache_status status =
        check_integrity(verification->cache, !verification->options.quick, verification, &completed, &detail);
    if (status == AOTICACHE_CORRUPT)
        return report_damaged_index(verification, detail.message, ret_error);
    verification->is_index_checked = status == AOTICACHE_OK && completed;
    return status == AOTICACHE_OK ? status : aoticache_error_set(ret_error, status, "%s", detail.message);
}

/* ---- the root ---- */

static bool belongs_to_root(const aoticache_directory *directory, const char *name)
{
    struct stat found;
    mode_t type;
    if (aoticache_directory_leaves_alone(name) || fstatat(directory->fd, name, &found, AT_SYMLINK_NOFOLLOW) != 0)
        return true;
    return aoticache_directory_knows(name, &type) &&
           aoticache_directory_trust(directory, &found, type, name, NULL) == AOTICACHE_OK;
}

static aoticache_status check_root(aoticache_verification *verification, aoticache_error *ret_error)
{
    const aoticache_directory *directory = verification->cache->directory;
    cleanup_dir DIR *listing = aoticache_directory_list(directory->fd);
    if (listing == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot list %s", directory->path);
    for (const char *name; (name = aoticache_listing_next(listing)) != NULL;) {
        aoticache_status status = belongs_to_root(directory, name)
                                      ? AOTICACHE_OK
                                      : aoticache_verification_report_foreign(verification, name, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    return errno == 0 ? AOTICACHE_OK : aoticache_error_set_errno(ret_error, errno, "cannot list %s", directory->path);
}

/* ---- the whole verification ---- */

/* Checks the objects. Lost entries are restored even if the run was stopped: the next one will not see their manifests
 * again. */
static aoticache_status check_objects(aoticache_verification *verification, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_verification_check_objects(verification, ret_error);
    if (status == AOTICACHE_OK && verification->index != NULL)
        status = aoticache_verification_check_unindexed(verification, ret_error);
    if (status == AOTICACHE_OK && !verification->is_stopped)
        verification->phase = AOTICACHE_VERIFY_LINKS;
    return status;
}

/* Notes what was counted since `before`: if another run continues from here, it will find and count that itself. */
static void count_again(aoticache_verification *verification, const aoticache_verify_report *before)
{
#define ADD_DIFFERENCE(name, text) verification->again.name += verification->report.name - before->name;
    AOTICACHE_VERIFY_COUNT_LIST(ADD_DIFFERENCE)
#undef ADD_DIFFERENCE
}

/* Checks the index and the root, in every run. */
static aoticache_status check_index_and_root(aoticache_verification *verification, aoticache_index_totals *ret_totals,
                                             aoticache_error *ret_error)
{
    const aoticache_verify_report before = verification->report;
    aoticache_status status = check_index(verification, ret_error);
    if (status == AOTICACHE_OK && verification->index != NULL)
        status = aoticache_index_read_totals(verification->index, ret_totals, ret_error);
    if (status == AOTICACHE_OK)
        status = check_root(verification, ret_error);
    verification->all = ret_totals->objects;
    count_again(verification, &before);
    return status;
}

static aoticache_status check_links_and_pins(aoticache_verification *verification, aoticache_error *ret_error)
{
    const aoticache_verify_report before = verification->report;
    aoticache_status status = aoticache_verification_check_links(verification, ret_error);
    if (status == AOTICACHE_OK && !verification->is_stopped)
        status = aoticache_verification_check_pins(verification, ret_error);
    if (status == AOTICACHE_OK && !verification->is_stopped)
        status = aoticache_verification_check_signatures(verification, ret_error);
    if (status == AOTICACHE_OK && !verification->is_stopped)
        verification->phase = AOTICACHE_VERIFY_DONE;
    else
        count_again(verification, &before); /* these directories have no order in which to continue */
    return status;
}

static aoticache_status verify(aoticache_verification *verification, aoticache_error *ret_error)
{
    aoticache_index_totals totals = {.entries = 0};
    aoticache_status status = check_index_and_root(verification, &totals, ret_error);
    if (status == AOTICACHE_OK && !verification->is_stopped && verification->phase == AOTICACHE_VERIFY_OBJECTS)
        status = check_objects(verification, ret_error);
    if (status == AOTICACHE_OK && !verification->is_stopped && verification->phase == AOTICACHE_VERIFY_LINKS)
        status = check_links_and_pins(verification, ret_error);
    if (status == AOTICACHE_OK && verification->phase == AOTICACHE_VERIFY_DONE && verification->report.repaired > 0)
        status = aoticache_verification_count_unreferenced(verification, ret_error);
    if (status == AOTICACHE_OK && verification->index != NULL)
        status = aoticache_index_read_totals(verification->index, &totals, ret_error);
    if (verification->index == NULL)
        verification->report.unreferenced = 0; /* it is not known which objects are unreferenced */
    verification->report.entries = totals.entries;
    return status;
}

static aoticache_status run_verification(aoticache_verification *verification, aoticache_error *ret_error)
{
    if (verification->options.resume)
        aoticache_verification_restore(verification);
    aoticache_status status = verify(verification, ret_error);
    verification->report.is_partial = verification->phase != AOTICACHE_VERIFY_DONE;
    if (verification->phase == AOTICACHE_VERIFY_DONE)
        aoticache_verification_forget(verification);
    else
        aoticache_verification_save(verification);
    free(verification->lost);
    return status;
}

aoticache_status aoticache_cache_verify(aoticache_cache *cache, const aoticache_verify_options *options,
                                        aoticache_verify_fn callback, aoticache_verify_progress_fn progress, void *user,
                                        aoticache_verify_report *ret_report, aoticache_error *ret_error)
{
    aoticache_verify_options chosen;
    aoticache_status status =
        AOTICACHE_OPTIONS_READ(aoticache_verify_options, AOTICACHE_VERIFY_OPTIONS_INIT, options, &chosen, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (cache == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache);
    aoticache_cache_enter(cache);
    status = chosen.repair ? aoticache_cache_check_writable(cache, ret_error) : AOTICACHE_OK;
    if (status != AOTICACHE_OK)
        return status;
    uint64_t limit = chosen.time_limit_ms < UINT64_MAX / 2000000 ? chosen.time_limit_ms : 0; /* otherwise: centuries */
    aoticache_verification verification = {
        .cache = cache,
        .index = aoticache_cache_index(cache),
        .options = chosen,
        .callback = callback,
        .progress = progress,
        .user = user,
        .deadline_ns = limit != 0 ? aoticache_monotonic_ns() + limit * 1000000 : 0,
    };
    status = run_verification(&verification, ret_error);
    if (status == AOTICACHE_OK && ret_report != NULL)
        *ret_report = verification.report;
    return aoticache_cache_index_result(status, ret_error);
}
