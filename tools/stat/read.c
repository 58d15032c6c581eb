/*
 * tools/stat/read: reads the data of a view from the cache and its directory.
 */
#include "base/cleanup.h"
#include "base/files/listing.h"
#include "cache/entries.h"
#include "tools/stat/stat.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- groups ---- */

static bool add_group(void *user, const aoticache_group *group)
{
    stat_groups *groups = user;
    groups->items = aoticache_cli_resize(groups->items, groups->count + 1, sizeof *groups->items);
    stat_group *added = &groups->items[groups->count++];
    *added = (stat_group){.name = aoticache_cli_text("%s", group->name), .sums = *group};
    added->sums.name = added->name;
    return true;
}

static int compare_groups(const void *left, const void *right, void *column)
{
    const stat_group *a = left, *b = right;
    uint64_t a_value = stat_group_value(a, column), b_value = stat_group_value(b, column);
    if (a_value != b_value)
        return a_value > b_value ? -1 : 1;
    return strcmp(a->name, b->name);
}

int stat_read_groups(stat_view *view, aoticache_group_kind kind, const char *sort, stat_groups *ret_groups)
{
    aoticache_error error = {.message = ""};
    aoticache_statistics_options since = view->request->since;
    if (since.since == AOTICACHE_STATISTICS_SINCE_TIME) /* a page may show them in addition to data with a history */
        since.since = AOTICACHE_STATISTICS_SINCE_CREATED;
    aoticache_status status = aoticache_cache_list_groups(view->cache, kind, &since, add_group, ret_groups, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(view->cli, status, &error);
    if (ret_groups->count > 1)
        qsort_r(ret_groups->items, ret_groups->count, sizeof *ret_groups->items, compare_groups,
                (void *)(uintptr_t)sort);
    return AOTICACHE_CLI_EXIT_OK;
}

void stat_free_groups(stat_groups *groups)
{
    for (size_t i = 0; i < groups->count; i++)
        free(groups->items[i].name);
    free(groups->items);
    *groups = (stat_groups){.items = NULL};
}

/* ---- history ---- */

static bool add_slot(void *user, const aoticache_slot *slot)
{
    stat_slots *slots = user;
    slots->items = aoticache_cli_resize(slots->items, slots->count + 1, sizeof *slots->items);
    slots->items[slots->count++] = *slot;
    return true;
}

int stat_read_history(stat_view *view, int64_t since_ns, int64_t step_seconds)
{
    aoticache_error error = {.message = ""};
    view->step_seconds = step_seconds;
    aoticache_status status =
        aoticache_cache_list_history(view->cache, since_ns, step_seconds, add_slot, &view->history, &error);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(view->cli, status, &error);
}

/* ---- entries ---- */

static bool add_entry(void *user, const aoticache_entry *entry)
{
    stat_entries *entries = user;
    entries->items = aoticache_cli_resize(entries->items, entries->count + 1, sizeof *entries->items);
    entries->items[entries->count++] = (stat_entry){.op = aoticache_cli_text("%s", entry->op),
                                                    .description = aoticache_cli_text("%s", entry->description),
                                                    .producer = aoticache_cli_text("%s", entry->producer),
                                                    .device = aoticache_cli_text("%s", entry->device),
                                                    .key = entry->key,
                                                    .bytes = entry->bytes,
                                                    .compile_ns = entry->compile_ns,
                                                    .uses = entry->uses,
                                                    .last_used_ns = entry->last_used_ns};
    return true;
}

static void free_entries(stat_entries *entries)
{
    for (size_t i = 0; i < entries->count; i++) {
        free(entries->items[i].op);
        free(entries->items[i].description);
        free(entries->items[i].producer);
        free(entries->items[i].device);
    }
    free(entries->items);
    *entries = (stat_entries){.items = NULL};
}

static int read_entries(stat_view *view)
{
    aoticache_error error = {.message = ""};
    const size_t limit = view->request->entries;
    aoticache_status status =
        aoticache_cache_list_extreme(view->cache, AOTICACHE_EXTREME_LARGEST, limit, add_entry, &view->largest, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_list_extreme(view->cache, AOTICACHE_EXTREME_COLDEST, limit, add_entry, &view->coldest,
                                              &error);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(view->cli, status, &error);
}

/* ---- the disk ---- */

static uint64_t file_bytes(int directory, const char *name)
{
    struct stat found;
    return fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(found.st_mode)
               ? (uint64_t)found.st_size
               : 0;
}

static void read_quarantine(int directory, stat_disk *disk)
{
    cleanup_dir DIR *listing =
        aoticache_listing_open(openat(directory, "quarantine", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    for (struct dirent *item; listing != NULL && (item = readdir(listing)) != NULL;) {
        if (item->d_name[0] == '.')
            continue;
        disk->quarantine_files++;
        disk->quarantine_bytes += file_bytes(dirfd(listing), item->d_name);
    }
}

/* Values that cannot be read are 0: they are not worth a failure. */
static void read_disk(const char *directory, stat_disk *disk)
{
    struct statvfs filesystem;
    cleanup_fd int subdirectory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *disk = (stat_disk){.index_bytes = 0};
    if (subdirectory < 0)
        return;
    disk->index_bytes = file_bytes(subdirectory, "index.sqlite3") + file_bytes(subdirectory, "index.sqlite3-wal");
    read_quarantine(subdirectory, disk);
    if (fstatvfs(subdirectory, &filesystem) == 0) {
        disk->filesystem_bytes = (uint64_t)filesystem.f_blocks * filesystem.f_frsize;
        disk->filesystem_free_bytes = (uint64_t)filesystem.f_bavail * filesystem.f_frsize;
    }
}

/* ---- everything ---- */

int stat_read(stat_view *view)
{
    const stat_request *request = view->request;
    aoticache_error error = {.message = ""};
    if (view->cache == NULL)
        return AOTICACHE_CLI_EXIT_OK;
    aoticache_status status = aoticache_cache_get_statistics(view->cache, &request->since, &view->statistics, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(view->cli, status, &error);
    read_disk(view->directory, &view->disk);
    int result = AOTICACHE_CLI_EXIT_OK;
    if (request->by_group)
        result = stat_read_groups(view, request->by, request->sort, &view->groups);
    if (result == AOTICACHE_CLI_EXIT_OK && request->with_entries)
        result = read_entries(view);
    if (result == AOTICACHE_CLI_EXIT_OK && request->with_history)
        result = stat_read_history(
            view, request->since.since == AOTICACHE_STATISTICS_SINCE_CREATED ? 0 : view->statistics.since_ns,
            request->step_seconds);
    return result;
}

void stat_view_free(stat_view *view)
{
    stat_free_groups(&view->groups);
    free(view->history.items);
    free_entries(&view->largest);
    free_entries(&view->coldest);
}
