/*
 * cache/gc/scan: objects that nothing names and that nobody has put on the list of waiting.c: a put that was
 * killed before it recorded its entry, files that an older version left.
 *
 * Each of the 256 folders is listed, sorted and walked beside the index, which has the same order. A large store is looked
 * through a part at a time: each collection goes on where the last one stopped, for about three milliseconds.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cache/gc/collection.h"
#include "cache/store/lock.h"

#define POSITION "scan_position" /* the first two bytes of the next digest to look at */
#define SMALL_STORE 2000         /* objects: a few milliseconds for all of them */
#define SCAN_NS UINT64_C(3000000)
#define ROWS 512
#define STRETCH_OBJECTS 64

struct scan {
    aoticache_collection *collection;
    aoticache_digest *names; /* of one folder */
    size_t name_count, name_capacity;
    aoticache_digest rows[ROWS];
    size_t row_count, row_at;
    bool rows_end;
    aoticache_object_array garbage;
    uint16_t from; /* in this folder: only names with this prefix or a higher one */
    bool is_whole;
    uint64_t begun_ns;
    bool is_out_of_memory;
};

static uint16_t prefix_of(const aoticache_digest *digest)
{
    return (uint16_t)(digest->bytes[0] << 8 | digest->bytes[1]);
}

static bool add_name(void *user, const aoticache_digest *digest)
{
    struct scan *scan = user;
    if (prefix_of(digest) < scan->from)
        return true;
    if (scan->name_count == scan->name_capacity) {
        size_t capacity = scan->name_capacity != 0 ? scan->name_capacity * 2 : 256;
        aoticache_digest *names = reallocarray(scan->names, capacity, sizeof *names);
        scan->is_out_of_memory = names == NULL;
        if (names == NULL)
            return false;
        scan->names = names;
        scan->name_capacity = capacity;
    }
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

/* *ret_is_named: whether the index has a row for `digest`. Digests are asked for in ascending order. */
static aoticache_status ask(struct scan *scan, const aoticache_digest *digest, bool *ret_is_named,
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

/* *ret_next: where to go on. */
static aoticache_status scan_folder(struct scan *scan, unsigned folder, uint32_t *ret_next, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    scan->name_count = 0;
    scan->row_count = scan->row_at = 0;
    scan->rows_end = false;
    status = aoticache_object_list_folder(scan->collection->cache->directory, (uint8_t)folder, add_name, scan, ret_error);
    if (status == AOTICACHE_OK && scan->name_count > 1)
        qsort(scan->names, scan->name_count, sizeof *scan->names, by_digest);
    *ret_next = (folder + 1) << 8;
    for (size_t i = 0; status == AOTICACHE_OK && i < scan->name_count && !scan->is_out_of_memory; i++) {
        bool is_named = true;
        if (i % ROWS == ROWS - 1 && time_is_up(scan)) {
            *ret_next = prefix_of(&scan->names[i]);
            break;
        }
        status = ask(scan, &scan->names[i], &is_named, ret_error);
        if (status == AOTICACHE_OK && !is_named)
            add_garbage(scan, &scan->names[i]);
    }
    if (status == AOTICACHE_OK && scan->is_out_of_memory)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the names of a folder");
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

/* Asked again with the store locked: a put may have recorded it, or be about to. */
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
            at = scan->garbage.count; /* the new one may name what the old one does not */
        for (size_t n = 0; status == AOTICACHE_OK && at < scan->garbage.count && n < STRETCH_OBJECTS; n++) {
            status = aoticache_cache_remove_objects(collection->cache, &scan->garbage.items[at++], 1, &removal, ret_error);
            if (aoticache_monotonic_ns() - begun > AOTICACHE_COLLECTION_STRETCH_NS)
                break;
        }
        aoticache_lock_release(&lock);
        collection->report.objects_removed += removal.objects;
        collection->report.bytes_removed += removal.bytes;
    }
    return status;
}

static aoticache_status deal_with_garbage(struct scan *scan, aoticache_error *ret_error)
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

static aoticache_status scan_folders(struct scan *scan, uint32_t *position, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (unsigned n = 0; status == AOTICACHE_OK && n <= 256; n++) { /* 256 folders, and the first part of the first */
        unsigned folder = *position >> 8 & 255;
        scan->from = (uint16_t)*position;
        aoticache_error detail;
        status = scan_folder(scan, folder, position, &detail);
        if (status == AOTICACHE_DENIED) { /* another's: what is in the folders after it goes all the same */
            aoticache_log(&scan->collection->cache->directory->logger, AOTICACHE_LOG_WARNING,
                          "a collection cannot look for what nobody needs: %s", detail.message);
            status = AOTICACHE_OK;
        } else if (status != AOTICACHE_OK && ret_error != NULL) {
            *ret_error = detail;
        }
        if (status == AOTICACHE_OK && scan->garbage.count > 0)
            status = deal_with_garbage(scan, ret_error);
        *position &= 0xffff;
        if (time_is_up(scan) || (scan->is_whole && *position == 0) || !aoticache_collection_goes_on(scan->collection))
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
    status = scan_folders(scan, &at, ret_error);
    if (status == AOTICACHE_OK && !collection->options->dry_run && at != position)
        status = aoticache_index_write_meta(collection->index, POSITION, at, ret_error);
out:
    free(scan->names);
    free(scan->garbage.items);
    free(scan);
    return status;
}
