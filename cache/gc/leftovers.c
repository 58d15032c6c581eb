/*
 * cache/gc/leftovers: removes files without an entry. Three parts: leftovers of dead processes in tmp/, leases/, artifacts/
 * and signatures/; objects that nothing names; damaged files that were quarantined long ago.
 *
 * Only locks show whether a process still lives, never process numbers, which are reused.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/files/listing.h"
#include "base/log.h"
#include "base/names.h"
#include "base/syscalls.h"
#include "cache/gc/gc_internal.h"

#define BATCH 64

struct names {
    char **items;
    size_t count, capacity;
};

static void free_names(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->items[i]);
    free(names->items);
    *names = (struct names){.items = NULL};
}

static bool add_name(struct names *names, const char *name)
{
    if (!AOTICACHE_ARRAY_RESERVE(names->items, names->capacity, names->count + 1))
        return false;
    names->items[names->count] = strdup(name);
    return names->items[names->count] != NULL && names->count++ < SIZE_MAX;
}

static aoticache_status list_names(int directory_fd, const char *prefix, struct names *ret_names,
                                   aoticache_error *ret_error)
{
    struct names names = {.items = NULL};
    cleanup_dir DIR *listing = aoticache_directory_list(directory_fd);
    if (listing == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot list a directory of the cache");
    for (const char *name; (name = aoticache_listing_next(listing)) != NULL;) {
        if (strncmp(name, prefix, strlen(prefix)) != 0)
            continue;
        if (!add_name(&names, name)) {
            free_names(&names);
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
        }
    }
    *ret_names = names;
    return AOTICACHE_OK;
}

/* Removes the file or directory of this name if it belongs to no live process. Returns true if it is gone. */
typedef bool (*remove_fn)(aoticache_cache *cache, int directory_fd, const char *name);

/* Removes a temporary file or directory. No put is active while the store is locked exclusively, so a file in tmp/ has no
 * owner; a directory may belong to a compile. */
static bool remove_temporary(aoticache_cache *cache, int directory_fd, const char *name)
{
    (void)cache;
    cleanup_fd int fd = openat(directory_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 ? aoticache_syscall_flock(fd, LOCK_EX | LOCK_NB) != 0 : errno != ENOTDIR && errno != ELOOP)
        return false; /* or that cannot be determined */
    return aoticache_directory_remove_tree(directory_fd, name) == 0;
}

static bool remove_lease(aoticache_cache *cache, int directory_fd, const char *name)
{
    (void)cache;
    cleanup_fd int fd = openat(directory_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0 && aoticache_syscall_flock(fd, LOCK_EX | LOCK_NB) == 0 &&
           aoticache_directory_is_same(directory_fd, name, fd) &&
           aoticache_syscall_unlinkat(directory_fd, name, 0) == 0;
}

static bool remove_side_files(aoticache_cache *cache, int directory_fd, const char *name)
{
    aoticache_digest artifact;
    (void)directory_fd;
    return aoticache_digest_from_hex(name, &artifact) == AOTICACHE_OK &&
           aoticache_index_has_object(aoticache_cache_index(cache), &artifact, NULL) == AOTICACHE_NOT_FOUND &&
           aoticache_cache_remove_side_files(cache, &artifact);
}

static bool remove_signatures(aoticache_cache *cache, int directory_fd, const char *name)
{
    aoticache_digest artifact;
    return aoticache_digest_from_hex(name, &artifact) == AOTICACHE_OK &&
           aoticache_index_has_object(aoticache_cache_index(cache), &artifact, NULL) == AOTICACHE_NOT_FOUND &&
           aoticache_syscall_unlinkat(directory_fd, name, 0) == 0;
}

static bool remove_format(aoticache_cache *cache, int directory_fd, const char *name)
{
    (void)cache;
    return aoticache_syscall_unlinkat(directory_fd, name, 0) == 0;
}

static aoticache_status remove_names(aoticache_cache *cache, int directory_fd, const struct names *names,
                                     remove_fn remove, uint64_t *ret_removed, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < names->count; i += BATCH) {
        aoticache_lock lock = AOTICACHE_LOCK_INIT;
        status = aoticache_lock_store(cache->directory, true, &lock, ret_error);
        for (size_t k = i; status == AOTICACHE_OK && k < names->count && k < i + BATCH; k++)
            *ret_removed += remove(cache, directory_fd, names->items[k]) ? 1 : 0;
        aoticache_lock_release(&lock);
    }
    return status;
}

static aoticache_status sweep(aoticache_cache *cache, int directory_fd, const char *prefix, remove_fn remove,
                              uint64_t *ret_removed, aoticache_error *ret_error)
{
    struct names names = {.items = NULL};
    aoticache_status status = list_names(directory_fd, prefix, &names, ret_error);
    if (status == AOTICACHE_OK)
        status = remove_names(cache, directory_fd, &names, remove, ret_removed, ret_error);
    free_names(&names);
    return status;
}

/*
 * Directories of side files, and signatures, whose artifact no entry has. The index is queried before any lock is taken, and
 * a cache with many directories is searched a part at a time. The position at which to continue is that of the file system
 * (telldir): if it is no longer valid, that only costs time.
 */
#define PART 1024

/* Directories whose names are those of manifests, and the position at which the next collection continues in them. */
struct by_manifest {
    const char *directory;
    const char *place;
    remove_fn remove;
};

static aoticache_status list_orphans(aoticache_index *index, const char *remembered, DIR *listing, bool all,
                                     struct names *names, aoticache_error *ret_error)
{
    int64_t place = 0;
    struct dirent *item = NULL;
    aoticache_status status = all ? AOTICACHE_OK : aoticache_index_read_meta(index, remembered, &place, ret_error);
    if (status == AOTICACHE_OK && place != 0)
        seekdir(listing, (long)place);
    for (int n = 0; status == AOTICACHE_OK && (all || n < PART) && (item = readdir(listing)) != NULL; n++) {
        aoticache_digest artifact;
        if (aoticache_digest_from_hex(item->d_name, &artifact) == AOTICACHE_OK &&
            aoticache_index_has_object(index, &artifact, NULL) == AOTICACHE_NOT_FOUND && !add_name(names, item->d_name))
            status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    }
    int64_t next = item != NULL ? telldir(listing) : 0;
    if (status == AOTICACHE_OK && next != place)
        status = aoticache_index_write_meta(index, remembered, next, ret_error);
    return status;
}

static aoticache_status sweep_by_manifest(aoticache_cache *cache, const struct by_manifest *what, bool all,
                                          uint64_t *ret_removed, aoticache_error *ret_error)
{
    struct names names = {.items = NULL};
    int fd = -1;
    aoticache_status status =
        aoticache_directory_open_subdirectory(cache->directory, what->directory, false, &fd, ret_error);
    if (status != AOTICACHE_OK)
        return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
    cleanup_dir DIR *listing = aoticache_listing_open(fd);
    if (listing == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot list %s/%s", cache->directory->path,
                                         what->directory);
    status = list_orphans(aoticache_cache_index(cache), what->place, listing, all, &names, ret_error);
    if (status == AOTICACHE_OK)
        status = remove_names(cache, fd, &names, what->remove, ret_removed, ret_error);
    free_names(&names);
    return status;
}

aoticache_status aoticache_cache_remove_leftovers(aoticache_cache *cache, bool all, uint64_t *ret_removed,
                                                  aoticache_error *ret_error)
{
    static const struct {
        const char *name;
        remove_fn remove;
    } places[] = {{AOTICACHE_TMP, remove_temporary}, {AOTICACHE_LEASES, remove_lease}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        cleanup_fd int subdirectory = -1;
        aoticache_status status =
            aoticache_directory_open_subdirectory(cache->directory, places[i].name, false, &subdirectory, ret_error);
        if (status == AOTICACHE_OK)
            status = sweep(cache, subdirectory, "", places[i].remove, ret_removed, ret_error);
        if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
            return status;
    }
    static const struct by_manifest directories[] = {{AOTICACHE_ARTIFACTS, "scan_artifacts", remove_side_files},
                                                     {AOTICACHE_SIGNATURES, "scan_signatures", remove_signatures}};
    for (size_t i = 0; i < sizeof directories / sizeof directories[0]; i++) {
        aoticache_status status = sweep_by_manifest(cache, &directories[i], all, ret_removed, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    return sweep(cache, cache->directory->fd, AOTICACHE_FORMAT_FILE ".new-", remove_format, ret_removed, ret_error);
}

/*
 * ---- objects that nothing names and that do not wait for removal ----
 *
 * A put that was killed before it recorded its entry leaves such objects. Each of the 256 directories is listed, sorted and
 * compared with the index, which has the same order. A large store is searched a part at a time: each collection continues
 * where the last one stopped, for about three milliseconds.
 */

#define POSITION "scan_position" /* the first two bytes of the next digest to examine */
#define SMALL_STORE 2000         /* objects: a few milliseconds for all of them */
#define SCAN_NS UINT64_C(3000000)
#define ROWS 512
#define STRETCH_OBJECTS 64

struct scan {
    aoticache_collection *collection;
    aoticache_digest *names; /* of one directory */
    size_t name_count, name_capacity;
    aoticache_digest rows[ROWS];
    size_t row_count, row_at;
    bool rows_end;
    aoticache_object_array garbage;
    uint16_t from; /* in this directory, skip names with a lower prefix */
    bool is_whole;
    uint64_t begun_ns;
    bool is_out_of_memory;
};

static uint16_t prefix_of(const aoticache_digest *digest)
{
    return (uint16_t)(digest->bytes[0] << 8 | digest->bytes[1]);
}

static bool add_object(void *user, const aoticache_digest *digest)
{
    struct scan *scan = user;
    if (prefix_of(digest) < scan->from)
        return true;
    scan->is_out_of_memory = !AOTICACHE_ARRAY_RESERVE(scan->names, scan->name_capacity, scan->name_count + 1);
    if (scan->is_out_of_memory)
        return false;
    scan->names[scan->name_count++] = *digest;
    return true;
}

static int by_digest(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(aoticache_digest));
}

static bool time_is_up(const struct scan *scan)
{
    return !scan->is_whole && aoticache_monotonic_ns() - scan->begun_ns > SCAN_NS;
}

/* Finds the row of a digest. *ret_is_named: whether the index has a row for `digest`. Must be called with digests in
 * ascending order. */
static aoticache_status find_row(struct scan *scan, const aoticache_digest *digest, bool *ret_is_named,
                                 aoticache_error *ret_error)
{
    int order = -1;
    for (;;) {
        while (scan->row_at < scan->row_count && (order = by_digest(&scan->rows[scan->row_at], digest)) < 0)
            scan->row_at++;
        if (scan->row_at < scan->row_count || scan->rows_end)
            break;
        aoticache_status status = aoticache_index_objects_from(scan->collection->index, digest, scan->rows, ROWS,
                                                               &scan->row_count, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        scan->row_at = 0;
        scan->rows_end = scan->row_count < ROWS;
    }
    *ret_is_named = scan->row_at < scan->row_count && order == 0;
    return AOTICACHE_OK;
}

static void add_garbage(struct scan *scan, const aoticache_digest *digest)
{
    aoticache_collection *collection = scan->collection;
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    struct stat found;
    if (collection->waiting_count > 0 &&
        bsearch(digest, collection->waiting, collection->waiting_count, sizeof *digest, by_digest) != NULL)
        return; /* counted already */
    aoticache_object_path(digest, path);
    cleanup_fd int fd = aoticache_directory_openat(collection->cache->directory, path, O_RDONLY);
    if (fd >= 0 && fstat(fd, &found) == 0)
        scan->is_out_of_memory = !aoticache_object_array_add(&scan->garbage, digest, (uint64_t)found.st_size);
}

/* Scans a directory. *ret_next: the position at which to continue. */
static aoticache_status scan_directory(struct scan *scan, unsigned subdirectory, uint32_t *ret_next,
                                       aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    scan->name_count = 0;
    scan->row_count = scan->row_at = 0;
    scan->rows_end = false;
    status = aoticache_object_list_directory(scan->collection->cache->directory, (uint8_t)subdirectory, add_object,
                                             scan, ret_error);
    if (status == AOTICACHE_OK && scan->name_count > 1)
        qsort(scan->names, scan->name_count, sizeof *scan->names, by_digest);
    *ret_next = (subdirectory + 1) << 8;
    for (size_t i = 0; status == AOTICACHE_OK && i < scan->name_count && !scan->is_out_of_memory; i++) {
        bool is_named = true;
        if (i % ROWS == ROWS - 1 && time_is_up(scan)) {
            *ret_next = prefix_of(&scan->names[i]);
            break;
        }
        status = find_row(scan, &scan->names[i], &is_named, ret_error);
        if (status == AOTICACHE_OK && !is_named)
            add_garbage(scan, &scan->names[i]);
    }
    if (status == AOTICACHE_OK && scan->is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the names in a directory");
    return status;
}

static void count_garbage(struct scan *scan)
{
    aoticache_collect_report *report = &scan->collection->report;
    for (size_t i = 0; i < scan->garbage.count; i++) {
        if (aoticache_object_is_held(scan->collection->cache->directory, &scan->garbage.items[i].digest))
            continue;
        report->objects_removed++;
        report->bytes_removed += scan->garbage.items[i].bytes;
    }
}

/* Queries the index again with the store locked: a put may have recorded the object meanwhile. */
static aoticache_status remove_garbage(struct scan *scan, aoticache_error *ret_error)
{
    aoticache_collection *collection = scan->collection;
    aoticache_status status = AOTICACHE_OK;
    for (size_t at = 0; status == AOTICACHE_OK && at < scan->garbage.count;) {
        aoticache_lock lock = AOTICACHE_LOCK_INIT;
        aoticache_removal removal = {.objects = 0};
        status = aoticache_lock_store(collection->cache->directory, true, &lock, ret_error);
        const uint64_t begun = aoticache_monotonic_ns();
        if (status == AOTICACHE_OK && !aoticache_cache_index_is_current(collection->cache))
            at = scan->garbage.count; /* the new index may name objects that the old one does not */
        for (size_t n = 0; status == AOTICACHE_OK && at < scan->garbage.count && n < STRETCH_OBJECTS; n++) {
            status =
                aoticache_cache_remove_objects(collection->cache, &scan->garbage.items[at++], 1, &removal, ret_error);
            if (aoticache_monotonic_ns() - begun > AOTICACHE_COLLECTION_STRETCH_NS)
                break;
        }
        aoticache_lock_release(&lock);
        collection->report.objects_removed += removal.objects;
        collection->report.bytes_removed += removal.bytes;
    }
    return status;
}

static aoticache_status remove_or_count_garbage(struct scan *scan, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; i < scan->garbage.count; i++)
        scan->collection->report.bytes_before += scan->garbage.items[i].bytes;
    if (scan->collection->options->dry_run)
        count_garbage(scan);
    else
        status = remove_garbage(scan, ret_error);
    scan->garbage.count = 0;
    return status;
}

static aoticache_status scan_directories(struct scan *scan, uint32_t *position, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (unsigned n = 0; status == AOTICACHE_OK && n <= 256; n++) { /* 256 directories, and the rest of the first one */
        unsigned subdirectory = *position >> 8 & 255;
        scan->from = (uint16_t)*position;
        aoticache_error detail;
        status = scan_directory(scan, subdirectory, position, &detail);
        if (status == AOTICACHE_DENIED) { /* another user's directory: the following ones are still searched */
            aoticache_log(&scan->collection->cache->directory->logger, AOTICACHE_LOG_WARNING,
                          "a collection cannot look for unreferenced files: %s", detail.message);
            status = AOTICACHE_OK;
        } else if (status != AOTICACHE_OK && ret_error != NULL) {
            *ret_error = detail;
        }
        if (status == AOTICACHE_OK && scan->garbage.count > 0)
            status = remove_or_count_garbage(scan, ret_error);
        *position &= 0xffff;
        if (time_is_up(scan) || (scan->is_whole && *position == 0) || !aoticache_collection_poll(scan->collection))
            break;
    }
    return status;
}

aoticache_status aoticache_collection_scan(aoticache_collection *collection, aoticache_error *ret_error)
{
    struct scan *scan = calloc(1, sizeof *scan);
    aoticache_index_totals totals;
    int64_t position = 0;
    if (scan == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    aoticache_status status = aoticache_index_read_totals(collection->index, &totals, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_read_meta(collection->index, POSITION, &position, ret_error);
    if (status != AOTICACHE_OK)
        goto out;
    scan->collection = collection;
    scan->is_whole = collection->options->scan || totals.objects <= SMALL_STORE;
    scan->begun_ns = aoticache_monotonic_ns();
    uint32_t at = scan->is_whole ? 0 : (uint32_t)position & 0xffff;
    status = scan_directories(scan, &at, ret_error);
    if (status == AOTICACHE_OK && !collection->options->dry_run && at != position)
        status = aoticache_index_write_meta(collection->index, POSITION, at, ret_error);
out:
    free(scan->names);
    free(scan->garbage.items);
    free(scan);
    return status;
}

/* ---- quarantine ---- */

#define QUARANTINE_SECONDS (UINT64_C(30) * 24 * 3600)

/* Names in quarantine/ end with a dash and the time of quarantine. Returns the dash; NULL: there is none. */
static const char *find_time(const char *name, int64_t *ret_ns)
{
    const char *dash = strrchr(name, '-');
    char *end = NULL;
    long long ns = dash != NULL ? strtoll(dash + 1, &end, 10) : 0;
    if (ns <= 0 || end == NULL || *end != '\0')
        return NULL;
    *ret_ns = ns;
    return dash;
}

static int64_t quarantined_ns(int directory, const char *name)
{
    struct stat found;
    int64_t ns;
    if (find_time(name, &ns) != NULL)
        return ns;
    return fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW) == 0 ? (int64_t)found.st_ctime * 1000000000
                                                                      : INT64_MAX;
}

/* Sets a time in the future to now: otherwise the file would stay until then. */
static void mend_time(const aoticache_collection *collection, int directory, const char *name)
{
    char fixed[NAME_MAX + 1];
    int64_t ns;
    const char *dash = find_time(name, &ns);
    int label = dash != NULL ? (int)(dash - name) : 200;
    snprintf(fixed, sizeof fixed, "%.*s-%lld", label, name, (long long)collection->now_ns);
    if (!collection->options->dry_run)
        aoticache_syscall_renameat(directory, name, directory, fixed);
}

void aoticache_collection_remove_quarantine(aoticache_collection *collection, bool all)
{
    uint64_t seconds = collection->options->quarantine_age_seconds;
    int fd = -1;
    if (seconds == UINT64_MAX ||
        aoticache_directory_open_subdirectory(collection->cache->directory, AOTICACHE_QUARANTINE, false, &fd, NULL) !=
            AOTICACHE_OK)
        return;
    seconds = seconds == 0 ? QUARANTINE_SECONDS : seconds;
    cleanup_dir DIR *listing = aoticache_listing_open(fd);
    for (const char *name; listing != NULL && (name = aoticache_listing_next(listing)) != NULL;) {
        int64_t came = quarantined_ns(dirfd(listing), name);
        if (came > collection->now_ns)
            mend_time(collection, dirfd(listing), name);
        if (!all && (came >= collection->now_ns || (uint64_t)(collection->now_ns - came) / 1000000000u < seconds))
            continue;
        struct stat found;
        if (collection->options->dry_run && all && fstatat(dirfd(listing), name, &found, AT_SYMLINK_NOFOLLOW) == 0)
            collection->found_bytes += (uint64_t)found.st_blocks * 512;
        if (collection->options->dry_run || aoticache_directory_remove_tree(dirfd(listing), name) == 0)
            collection->report.quarantine_removed++;
    }
}
