/*
 * cache/verify/verify: see verify.h. The order of things, the index, and files that do not belong here.
 *
 * Looks without locks. What is found wrong is looked at again before it counts, with the store locked where it is
 * repaired, because entries come and go meanwhile.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/options.h"
#include "cache/store/lock.h"
#include "cache/verify/verification.h"
#include "index/entries/integrity.h"

void aoticache_verification_tell(const aoticache_verification *verification, const char *what, const char *name,
                                 const char *detail)
{
    if (verification->callback != NULL)
        verification->callback(verification->user, what, name, detail);
}

void aoticache_verification_note_unreadable(aoticache_verification *verification, const char *name, const char *detail)
{
    verification->report.unreadable++;
    aoticache_verification_tell(verification, "unreadable", name, detail);
}

static aoticache_status unreadable(int errno_value, const char *what, aoticache_error *ret_error)
{
    aoticache_error_set_errno(ret_error, errno_value, "%s", what);
    return AOTICACHE_DENIED;
}

aoticache_status aoticache_verification_open_listing(aoticache_verification *verification, const char *path,
                                                     DIR **ret_listing, aoticache_error *ret_error)
{
    aoticache_directory *directory = verification->cache->directory;
    struct stat found;
    int fd = -1;
    *ret_listing = NULL;
    if (fstatat(directory->fd, path, &found, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? AOTICACHE_OK : unreadable(errno, "cannot examine it", ret_error);
    if (aoticache_directory_trust(directory, &found, S_IFDIR, path, NULL) != AOTICACHE_OK)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_directory_open_folder(directory, path, false, &fd, ret_error);
    if (status == AOTICACHE_IO && errno == EIO)
        return unreadable(errno, "cannot open it", ret_error);
    if (status != AOTICACHE_OK)
        return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
    *ret_listing = fdopendir(fd);
    if (*ret_listing != NULL)
        return AOTICACHE_OK;
    close(fd);
    return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
}

bool aoticache_verification_goes_on(aoticache_verification *verification, uint64_t done)
{
    if (verification->all < done)
        verification->all = done;
    if (verification->deadline_ns != 0 && aoticache_monotonic_ns() >= verification->deadline_ns)
        verification->is_stopped = true;
    if (verification->progress != NULL && !verification->progress(verification->user, done, verification->all))
        verification->is_stopped = true;
    return !verification->is_stopped;
}

uint64_t aoticache_verify_report_problems(const aoticache_verify_report *report)
{
    return report == NULL ? 0
                          : report->damaged + report->missing + report->foreign + report->unindexed +
                                report->wrong_entries + report->wrong_links + report->wrong_marks;
}

/* ---- the index ---- */

static bool goes_on(void *user)
{
    aoticache_verification *verification = user;
    return aoticache_verification_goes_on(verification, verification->report.objects);
}

/* With a connection of its own, so that other threads need not wait for it. verification: NULL: nobody is asked. */
static aoticache_status check_integrity(aoticache_cache *cache, bool is_full, aoticache_verification *verification,
                                        bool *ret_completed, aoticache_error *ret_error)
{
    const aoticache_directory *directory = cache->directory;
    char path[AOTICACHE_INDEX_PATH_BYTES];
    aoticache_index *index = NULL;
    aoticache_index_options options = aoticache_cache_index_options(directory, path);
    options.read_only = true;
    options.logger = (aoticache_logger){.log = NULL};
    aoticache_status status = aoticache_index_open(&options, &index, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_check_integrity(index, is_full, verification != NULL ? goes_on : NULL, verification,
                                                 ret_completed, ret_error);
    aoticache_index_close(index);
    return status;
}

aoticache_status aoticache_cache_check_index(aoticache_cache *cache, bool is_full, aoticache_error *ret_error)
{
    bool completed;
    if (cache == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_check_index: cache is NULL");
    aoticache_cache_enter(cache);
    if (aoticache_cache_index(cache) == NULL)
        return AOTICACHE_NOT_FOUND;
    return check_integrity(cache, is_full, NULL, &completed, ret_error);
}

static aoticache_status treat_damaged_index(aoticache_verification *verification, const char *detail,
                                            aoticache_error *ret_error)
{
    verification->report.damaged++;
    aoticache_verification_tell(verification, "damaged", AOTICACHE_INDEX_FILE, detail);
    if (!verification->options.repair) {
        verification->index = NULL; /* what it says is worth nothing now */
        return AOTICACHE_OK;
    }
    if (!aoticache_cache_recovered(verification->cache, AOTICACHE_CORRUPT, &verification->index))
        return aoticache_error_set(ret_error, AOTICACHE_IO, "cannot rebuild the index: %.900s", detail);
    verification->report.repaired++;
    return AOTICACHE_OK;
}

/* A read-only cache that was opened without an index answers nothing, which is well only where it is empty. */
static aoticache_status explain_no_index(aoticache_verification *verification, aoticache_error *ret_error)
{
    const aoticache_directory *directory = verification->cache->directory;
    aoticache_error detail = {.message = ""};
    bool completed;
    aoticache_status status = check_integrity(verification->cache, false, NULL, &completed, &detail);
    if (status == AOTICACHE_CORRUPT)
        return treat_damaged_index(verification, detail.message, ret_error);
    if (status == AOTICACHE_OK)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "%s/" AOTICACHE_INDEX_FILE " could not be read when the "
                                   "cache was opened, and can be now: verify again", directory->path);
    if (status != AOTICACHE_NOT_FOUND)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    if (faccessat(directory->fd, AOTICACHE_OBJECTS, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
        return AOTICACHE_OK;
    verification->report.missing++;
    aoticache_verification_tell(verification, "missing", AOTICACHE_INDEX_FILE,
                                "there are objects, and no index to find them by");
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
    aoticache_status status = check_integrity(verification->cache, !verification->options.quick, verification,
                                              &completed, &detail);
    if (status == AOTICACHE_CORRUPT)
        return treat_damaged_index(verification, detail.message, ret_error);
    verification->is_index_checked = status == AOTICACHE_OK && completed;
    return status == AOTICACHE_OK ? status : aoticache_error_set(ret_error, status, "%s", detail.message);
}

/* ---- foreign files ---- */

static aoticache_status move_foreign(aoticache_verification *verification, const char *path,
                                     aoticache_error *ret_error)
{
    aoticache_directory *directory = verification->cache->directory;
    cleanup_fd int parent = -1;
    char folder[512];
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - path) : 0, path);
    aoticache_status status = AOTICACHE_OK;
    if (slash != NULL)
        status = aoticache_directory_open_folder(directory, folder, false, &parent, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_directory_quarantine(directory, slash != NULL ? parent : directory->fd, name, name,
                                                ret_error);
    if (status == AOTICACHE_OK)
        verification->report.repaired++;
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

aoticache_status aoticache_verification_treat_foreign(aoticache_verification *verification, const char *path,
                                                      aoticache_error *ret_error)
{
    verification->report.foreign++;
    aoticache_verification_tell(verification, "foreign", path,
                                "not a file of the cache: a symbolic link, another's, or an odd name");
    return verification->options.repair ? move_foreign(verification, path, ret_error) : AOTICACHE_OK;
}

static bool belongs_to_root(const aoticache_directory *directory, const char *name)
{
    struct stat found;
    mode_t type;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        fstatat(directory->fd, name, &found, AT_SYMLINK_NOFOLLOW) != 0)
        return true;
    return aoticache_directory_knows(name, &type) &&
           aoticache_directory_trust(directory, &found, type, name, NULL) == AOTICACHE_OK;
}

static aoticache_status check_root(aoticache_verification *verification, aoticache_error *ret_error)
{
    const aoticache_directory *directory = verification->cache->directory;
    int fd = openat(directory->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_dir DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;
    if (listing == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot list %s", directory->path);
    aoticache_status status = AOTICACHE_OK;
    for (struct dirent *item; status == AOTICACHE_OK && (item = readdir(listing)) != NULL;)
        if (!belongs_to_root(directory, item->d_name))
            status = aoticache_verification_treat_foreign(verification, item->d_name, ret_error);
    return status;
}

/* ---- all of it ---- */

/* Lost entries are put back also where the run was stopped: the next part will not see their manifests again. */
static aoticache_status go_through_objects(aoticache_verification *verification, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_verification_check_objects(verification, ret_error);
    if (status == AOTICACHE_OK && verification->index != NULL)
        status = aoticache_verification_check_unindexed(verification, ret_error);
    if (status == AOTICACHE_OK && !verification->is_stopped)
        verification->phase = AOTICACHE_VERIFY_LINKS;
    return status;
}

/* What was counted since `before` will be found and counted again by the next part, where there is to be one. */
static void count_again(aoticache_verification *verification, const aoticache_verify_report *before)
{
#define ADD_DIFFERENCE(name, text) verification->again.name += verification->report.name - before->name;
    AOTICACHE_VERIFY_COUNT_LIST(ADD_DIFFERENCE)
#undef ADD_DIFFERENCE
}

/* What each part looks at: a damaged index, and the root. */
static aoticache_status begin(aoticache_verification *verification, aoticache_index_totals *ret_totals,
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

static aoticache_status go_through_links(aoticache_verification *verification, aoticache_error *ret_error)
{
    const aoticache_verify_report before = verification->report;
    aoticache_status status = aoticache_verification_check_links(verification, ret_error);
    if (status == AOTICACHE_OK && !verification->is_stopped)
        status = aoticache_verification_check_pins(verification, ret_error);
    if (status == AOTICACHE_OK && !verification->is_stopped)
        verification->phase = AOTICACHE_VERIFY_DONE;
    else
        count_again(verification, &before); /* these folders have no order to go on in */
    return status;
}

static aoticache_status verify(aoticache_verification *verification, aoticache_error *ret_error)
{
    aoticache_index_totals totals = {.entries = 0};
    aoticache_status status = begin(verification, &totals, ret_error);
    if (status == AOTICACHE_OK && !verification->is_stopped && verification->phase == AOTICACHE_VERIFY_OBJECTS)
        status = go_through_objects(verification, ret_error);
    if (status == AOTICACHE_OK && !verification->is_stopped && verification->phase == AOTICACHE_VERIFY_LINKS)
        status = go_through_links(verification, ret_error);
    if (status == AOTICACHE_OK && verification->phase == AOTICACHE_VERIFY_DONE && verification->report.repaired > 0)
        status = aoticache_verification_count_unreferenced(verification, ret_error);
    if (status == AOTICACHE_OK && verification->index != NULL)
        status = aoticache_index_read_totals(verification->index, &totals, ret_error);
    if (verification->index == NULL)
        verification->report.unreferenced = 0; /* nobody knows which are */
    verification->report.entries = totals.entries;
    return status;
}

static aoticache_status run(aoticache_verification *verification, aoticache_error *ret_error)
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
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_verify: cache is NULL");
    aoticache_cache_enter(cache);
    status = chosen.repair ? aoticache_cache_check_writable(cache, ret_error) : AOTICACHE_OK;
    if (status != AOTICACHE_OK)
        return status;
    uint64_t limit = chosen.time_limit_ms < UINT64_MAX / 2000000 ? chosen.time_limit_ms : 0; /* else: centuries */
    aoticache_verification verification = {
        .cache = cache,
        .index = aoticache_cache_index(cache),
        .options = chosen,
        .callback = callback,
        .progress = progress,
        .user = user,
        .deadline_ns = limit != 0 ? aoticache_monotonic_ns() + limit * 1000000 : 0,
    };
    status = run(&verification, ret_error);
    if (status == AOTICACHE_OK && ret_report != NULL)
        *ret_report = verification.report;
    return status == AOTICACHE_CORRUPT ? AOTICACHE_IO : status;
}
