/*
 * cache/transfer/commit: adds a batch of artifacts to the store.
 *
 * The order is that of a put, for the whole batch: the bytes are durable; with the store's lock held, shared, signatures are
 * written, the files get their names, the directories are durable, and only then the entries are recorded. If the process
 * dies in between, it leaves objects that no entry names, as a killed put does. If there are many files, one syncfs(2)
 * replaces many calls of fsync(2).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/syscalls.h"
#include "cache/store/lock.h"
#include "cache/transfer/transfer_internal.h"
#include "index/index.h"

/* From this number on, one syncfs is cheaper than waiting for each file, even if other processes write to the file system
 * too. */
#define MANY_FILES 16
#define DIRECTORIES 256
#define BATCH_BYTES (UINT64_C(256) << 20)
/* Bytes of manifests, which are kept in memory. Most have a few KiB. */
#define BATCH_TEXT_BYTES (UINT64_C(16) << 20)
/* Entries that arrive slowly, over a network, become visible after this time. */
#define BATCH_NS (UINT64_C(5) * 1000000000u)

/* ---- durable bytes ---- */

static aoticache_status sync_all(const aoticache_intake *intake, aoticache_error *ret_error)
{
    if (aoticache_syscall_hook_ask("syncfs", NULL) != 0 || syncfs(intake->directory_fd) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot make the file system of %s durable",
                                         intake->cache->directory->path);
    return AOTICACHE_OK;
}

static aoticache_status sync_file(const aoticache_intake *intake, const aoticache_digest *digest,
                                  aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(digest, hex);
    cleanup_fd int fd = openat(intake->directory_fd, hex, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || aoticache_syscall_fsync(fd) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot make object %s durable", hex);
    return AOTICACHE_OK;
}

static bool is_pending(const aoticache_intake *intake, const aoticache_digest *digest)
{
    const aoticache_transfer_object *object = aoticache_transfer_table_find(&intake->table, digest);
    return object != NULL && object->state == AOTICACHE_TRANSFER_PENDING;
}

/* Returns the digest of the i-th object of an entry, its manifest last. */
static const aoticache_digest *digest_at(const aoticache_intake_entry *entry, size_t i)
{
    return i < aoticache_manifest_object_count(entry->manifest) ? &entry->manifest->files[i].digest : &entry->digest;
}

static size_t count_pending(const aoticache_intake *intake)
{
    size_t count = 0;
    for (size_t i = 0; i < intake->count; i++)
        for (size_t k = 0; k <= aoticache_manifest_object_count(intake->queue[i].manifest); k++)
            count += is_pending(intake, digest_at(&intake->queue[i], k)) ? 1 : 0;
    return count;
}

static aoticache_status sync_files(const aoticache_intake *intake, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    if (count_pending(intake) >= MANY_FILES)
        return sync_all(intake, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < intake->count; i++)
        for (size_t k = 0; status == AOTICACHE_OK && k <= aoticache_manifest_object_count(intake->queue[i].manifest);
             k++)
            if (is_pending(intake, digest_at(&intake->queue[i], k)))
                status = sync_file(intake, digest_at(&intake->queue[i], k), ret_error);
    return status;
}

/* ---- names ---- */

/* Directories below objects/ that one batch has open. */
struct directories {
    int objects;
    int fds[DIRECTORIES]; /* by the first byte of the digest; -1: not open */
    size_t count;
};

static void close_directories(struct directories *directories)
{
    cleanup_fd_release(&directories->objects);
    for (size_t i = 0; i < DIRECTORIES; i++)
        cleanup_fd_release(&directories->fds[i]);
}

/* Opens a directory. A new one is made durable together with the other changes of the batch, not separately as elsewhere. */
static aoticache_status open_directory(aoticache_intake *intake, struct directories *directories,
                                       const aoticache_digest *digest, int *ret_fd, aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_DIRECTORY_BYTES];
    int *fd = &directories->fds[digest->bytes[0]];
    snprintf(path, sizeof path, AOTICACHE_OBJECTS "/%02x", digest->bytes[0]);
    if (*fd < 0) {
        aoticache_directory *directory = intake->cache->directory;
        const char *name = path + strlen(AOTICACHE_OBJECTS "/");
        if (aoticache_directory_make_subdirectory(directory, directories->objects, name) != 0 && errno != EEXIST)
            return aoticache_error_set_errno(ret_error, errno, "cannot create %s/%s", directory->path, path);
        aoticache_status status = aoticache_directory_open_subdirectory(directory, path, true, fd, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        directories->count++;
    }
    *ret_fd = *fd;
    return AOTICACHE_OK;
}

static aoticache_status move_object(aoticache_intake *intake, struct directories *directories,
                                    aoticache_transfer_object *object, aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    int directory = -1;
    aoticache_digest_to_hex(&object->digest, hex);
    aoticache_status status = open_directory(intake, directories, &object->digest, &directory, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (aoticache_syscall_renameat(intake->directory_fd, hex, directory, hex + 2) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot move object %s to its final path", hex);
    object->state = AOTICACHE_TRANSFER_STORED;
    intake->report->objects++;
    intake->report->bytes += object->bytes;
    aoticache_cache_count(intake->cache, AOTICACHE_COUNTER_stored_bytes, object->bytes);
    return AOTICACHE_OK;
}

/* Checks an object that was in the store earlier: it may have been collected before the lock was acquired. OK, NOT_FOUND, or
 * why it cannot be determined. */
static aoticache_status check_still_stored(const aoticache_intake *intake, const aoticache_transfer_object *object,
                                           aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    struct stat found;
    aoticache_object_path(&object->digest, path);
    if (fstatat(intake->cache->directory->fd, path, &found, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? AOTICACHE_NOT_FOUND
                               : aoticache_error_set_errno(ret_error, errno, "cannot examine %s", path);
    return S_ISREG(found.st_mode) && (uint64_t)found.st_size == object->bytes ? AOTICACHE_OK : AOTICACHE_NOT_FOUND;
}

static aoticache_status move_entry(aoticache_intake *intake, struct directories *directories,
                                   const aoticache_intake_entry *entry, bool *ret_complete, aoticache_error *ret_error)
{
    *ret_complete = true;
    for (size_t i = 0; i <= aoticache_manifest_object_count(entry->manifest); i++) {
        aoticache_transfer_object *object = aoticache_transfer_table_find(&intake->table, digest_at(entry, i));
        aoticache_status status = AOTICACHE_OK;
        if (object->state == AOTICACHE_TRANSFER_PENDING) {
            status = move_object(intake, directories, object, ret_error);
        } else if ((status = check_still_stored(intake, object, ret_error)) == AOTICACHE_NOT_FOUND) {
            char hex[AOTICACHE_DIGEST_HEX_BYTES], manifest[AOTICACHE_DIGEST_HEX_BYTES];
            aoticache_digest_to_hex(&object->digest, hex);
            aoticache_digest_to_hex(&entry->digest, manifest);
            aoticache_intake_refuse(
                intake, "manifest %s names object %s, which was removed from the store in the meantime", manifest, hex);
            *ret_complete = false;
            return AOTICACHE_OK;
        }
        if (status != AOTICACHE_OK)
            return status;
    }
    return AOTICACHE_OK;
}

static aoticache_status sync_directories(const aoticache_intake *intake, const struct directories *directories,
                                         aoticache_error *ret_error)
{
    if (directories->count >= MANY_FILES)
        return sync_all(intake, ret_error);
    for (size_t i = 0; i <= DIRECTORIES; i++) {
        int fd = i < DIRECTORIES ? directories->fds[i] : directories->objects;
        if (fd >= 0 && aoticache_syscall_fsync(fd) != 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot make %s/" AOTICACHE_OBJECTS " durable",
                                             intake->cache->directory->path);
    }
    return AOTICACHE_OK;
}

/* Moves all entries; those that turn out incomplete are removed from the queue. */
static aoticache_status move_all(aoticache_intake *intake, aoticache_error *ret_error)
{
    struct directories directories = {.objects = -1};
    memset(directories.fds, -1, sizeof directories.fds);
    aoticache_status status = aoticache_directory_open_subdirectory(intake->cache->directory, AOTICACHE_OBJECTS, true,
                                                                    &directories.objects, ret_error);
    size_t kept = 0, i = 0;
    for (; status == AOTICACHE_OK && i < intake->count; i++) {
        bool is_complete = false;
        status = move_entry(intake, &directories, &intake->queue[i], &is_complete, ret_error);
        if (status == AOTICACHE_OK && !is_complete)
            aoticache_intake_free_entry(&intake->queue[i]);
        else
            intake->queue[kept++] = intake->queue[i];
    }
    for (; i < intake->count; i++)
        intake->queue[kept++] = intake->queue[i];
    intake->count = kept;
    if (status == AOTICACHE_OK)
        status = sync_directories(intake, &directories, ret_error);
    close_directories(&directories);
    return status;
}

/* ---- signatures ---- */

/* Writes the signatures durably before the manifest is in the store, so that neither a lookup nor a rebuilt index finds it
 * without them. */
static aoticache_status write_signatures(const aoticache_intake *intake, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    size_t count = 0;
    for (size_t i = 0; i < intake->count; i++)
        count += intake->queue[i].signatures != NULL ? 1 : 0;
    for (size_t i = 0; status == AOTICACHE_OK && i < intake->count; i++) {
        const aoticache_intake_entry *entry = &intake->queue[i];
        aoticache_signature_list list = {.count = 0};
        status = aoticache_signature_list_parse(entry->signatures, &list, ret_error); /* as when it was checked */
        if (status == AOTICACHE_OK)
            status = aoticache_signature_file_add(intake->cache->directory, &entry->digest, &list, count < MANY_FILES,
                                                  ret_error);
    }
    return status == AOTICACHE_OK && count >= MANY_FILES ? sync_all(intake, ret_error) : status;
}

/* ---- entries ---- */

/* The queue as the index reads it; objects belong to the last requested entry. */
struct rows {
    const aoticache_intake *intake;
    aoticache_index_object *objects;
    size_t capacity;
};

static aoticache_status next_row(void *user, size_t position, aoticache_index_entry *ret_entry,
                                 aoticache_error *ret_error)
{
    struct rows *rows = user;
    const aoticache_intake_entry *from = &rows->intake->queue[position];
    const aoticache_manifest *manifest = from->manifest;
    if (!AOTICACHE_ARRAY_RESERVE(rows->objects, rows->capacity, manifest->file_count + 1))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the objects of an entry");
    *ret_entry = aoticache_manifest_entry(&from->digest, from->bytes, manifest, rows->objects);
    return AOTICACHE_OK;
}

static aoticache_status record_entries(const aoticache_intake *intake, int64_t *ret_ids, aoticache_error *ret_error)
{
    const aoticache_directory *directory = intake->cache->directory;
    char path[AOTICACHE_INDEX_PATH_BYTES];
    struct rows rows = {.intake = intake};
    const aoticache_index_options options = aoticache_cache_index_options(directory, path);
    aoticache_status status = aoticache_index_put_batch(&options, intake->count, next_row, &rows, ret_ids, ret_error);
    free(rows.objects);
    return status;
}

/* Records last uses, as a hint for the collector: otherwise imported entries that were compiled long ago would be collected
 * first. */
static void record_uses(aoticache_intake *intake, const int64_t *ids)
{
    cleanup_free aoticache_index_use *uses = calloc(intake->count, sizeof *uses);
    for (size_t i = 0; uses != NULL && i < intake->count; i++)
        uses[i] = (aoticache_index_use){
            .entry_id = ids[i], .last_used_ns = intake->queue[i].last_used_ns, .uses = intake->queue[i].uses};
    if (uses != NULL)
        aoticache_index_flush(aoticache_cache_index(intake->cache), uses, intake->count, NULL, 0, NULL);
}

/* ---- the batch ---- */

/* Drops queued entries that would replace what was stored here since they were queued. Done before anything of them is in
 * the store, where a rebuilt index would find it. */
static aoticache_status drop_unwanted(aoticache_intake *intake, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    size_t kept = 0, i = 0;
    for (; status == AOTICACHE_OK && i < intake->count; i++) {
        aoticache_manifest *manifest = intake->queue[i].manifest;
        const aoticache_intake_claim claim = {.key = &manifest->key,
                                              .artifact = &intake->queue[i].digest,
                                              .requirements = &manifest->requirements,
                                              .guard = manifest->guard};
        bool is_wanted = false;
        status = aoticache_intake_wants_still(intake, &claim, &is_wanted, ret_error);
        if (status == AOTICACHE_OK && !is_wanted)
            aoticache_intake_free_entry(&intake->queue[i]);
        else
            intake->queue[kept++] = intake->queue[i];
    }
    for (; i < intake->count; i++)
        intake->queue[kept++] = intake->queue[i];
    intake->count = kept;
    return status;
}

/* Call this with the store's lock held, shared. */
static aoticache_status publish(aoticache_intake *intake, aoticache_error *ret_error)
{
    aoticache_status status = drop_unwanted(intake, ret_error);
    if (status == AOTICACHE_OK)
        status = write_signatures(intake, ret_error);
    if (status == AOTICACHE_OK && intake->count > 0)
        status = move_all(intake, ret_error);
    if (status != AOTICACHE_OK || intake->count == 0)
        return status;
    cleanup_free int64_t *ids = calloc(intake->count, sizeof *ids);
    if (ids == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a batch of entries");
    status = record_entries(intake, ids, ret_error);
    if (status == AOTICACHE_OK)
        record_uses(intake, ids);
    return status;
}

/* Tries once. Files that it has moved are not moved again. */
static aoticache_status try_commit(void *user, aoticache_index *index, bool *ret_stale, aoticache_error *ret_error)
{
    aoticache_intake *intake = user;
    (void)index; /* it is that of the cache */
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    aoticache_status status = aoticache_lock_store(intake->cache->directory, false, &lock, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *ret_stale = !aoticache_cache_index_is_current(intake->cache);
    if (!*ret_stale)
        status = publish(intake, ret_error);
    aoticache_lock_release(&lock);
    return status;
}

static void clear_queue(aoticache_intake *intake)
{
    intake->report->entries += intake->count;
    for (size_t i = 0; i < intake->count; i++)
        aoticache_intake_free_entry(&intake->queue[i]);
    intake->count = 0;
    intake->queued_bytes = intake->queued_text = 0;
}

/* Counts what a dry run would have moved. */
static void count_queued(aoticache_intake *intake)
{
    for (size_t i = 0; i < intake->count; i++) {
        for (size_t k = 0; k <= aoticache_manifest_object_count(intake->queue[i].manifest); k++) {
            aoticache_transfer_object *object =
                aoticache_transfer_table_find(&intake->table, digest_at(&intake->queue[i], k));
            if (object->state != AOTICACHE_TRANSFER_PENDING)
                continue;
            object->state = AOTICACHE_TRANSFER_STORED;
            intake->report->objects++;
            intake->report->bytes += object->bytes;
        }
    }
    clear_queue(intake);
}

aoticache_status aoticache_intake_commit(aoticache_intake *intake, aoticache_error *ret_error)
{
    if (intake->options->dry_run)
        count_queued(intake);
    if (intake->count == 0)
        return AOTICACHE_OK;
    aoticache_status status = sync_files(intake, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_write_index(intake->cache, try_commit, intake, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    clear_queue(intake);
    aoticache_cache_keep_budget(intake->cache);
    aoticache_reserve_keep(intake->cache);
    return AOTICACHE_OK;
}

/* ---- the queue ---- */

static void name_object(aoticache_intake *intake, const aoticache_digest *digest)
{
    aoticache_transfer_object *object = aoticache_transfer_table_find(&intake->table, digest);
    if (object != NULL)
        object->is_named = true;
}

static void name_objects(aoticache_intake *intake, const aoticache_intake_entry *entry)
{
    name_object(intake, &entry->digest);
    for (size_t i = 0; i < aoticache_manifest_object_count(entry->manifest); i++)
        name_object(intake, &entry->manifest->files[i].digest);
}

static aoticache_status check_file(aoticache_intake *intake, const char *manifest, const aoticache_manifest_file *file,
                                   bool *ret_fits, aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    bool has = false;
    aoticache_digest_to_hex(&file->digest, hex);
    *ret_fits = false;
    aoticache_status status = aoticache_intake_has(intake, &file->digest, file->bytes, &has, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const aoticache_transfer_object *object = aoticache_transfer_table_find(&intake->table, &file->digest);
    if (!has)
        aoticache_intake_refuse(intake, "manifest %s names object %s, which is neither in the archive nor in the store",
                                manifest, hex);
    else if (object->bytes != file->bytes)
        aoticache_intake_refuse(intake, "manifest %s says that object %s has %llu bytes, but it has %llu", manifest,
                                hex, (unsigned long long)file->bytes, (unsigned long long)object->bytes);
    else if (object->is_manifest)
        aoticache_intake_refuse(intake, "manifest %s lists object %s as a file, but it is a manifest", manifest, hex);
    else
        *ret_fits = true;
    return AOTICACHE_OK;
}

static aoticache_status check_files(aoticache_intake *intake, const aoticache_intake_entry *entry, bool *ret_fit,
                                    aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_status status = AOTICACHE_OK;
    aoticache_digest_to_hex(&entry->digest, hex);
    *ret_fit = aoticache_manifest_guard_fits(entry->manifest);
    if (!*ret_fit)
        aoticache_intake_refuse(intake,
                                "manifest %s: a guard is required for a dynamic request, and not allowed for "
                                "any other",
                                hex);
    for (size_t i = 0; status == AOTICACHE_OK && *ret_fit && i < aoticache_manifest_object_count(entry->manifest); i++)
        status = check_file(intake, hex, &entry->manifest->files[i], ret_fit, ret_error);
    return status;
}

static bool queue_is_full(const aoticache_intake *intake)
{
    return intake->count == AOTICACHE_INTAKE_BATCH || intake->queued_bytes >= BATCH_BYTES ||
           intake->queued_text >= BATCH_TEXT_BYTES ||
           (intake->count > 0 && aoticache_monotonic_ns() - intake->begun_ns >= BATCH_NS);
}

static aoticache_status enqueue(aoticache_intake *intake, const aoticache_intake_entry *entry,
                                aoticache_error *ret_error)
{
    if (intake->count == 0)
        intake->begun_ns = aoticache_monotonic_ns();
    intake->queue[intake->count++] = *entry;
    const aoticache_manifest *manifest = entry->manifest;
    intake->queued_text += manifest->content_offset > 0 ? manifest->content_offset : entry->bytes;
    for (size_t i = 0; i < manifest->file_count; i++)
        intake->queued_bytes += manifest->files[i].bytes;
    name_objects(intake, entry);
    aoticache_transfer_table_find(&intake->table, &entry->digest)->is_ours = true;
    return queue_is_full(intake) ? aoticache_intake_commit(intake, ret_error) : AOTICACHE_OK;
}

aoticache_status aoticache_intake_add_manifest(aoticache_intake *intake, const aoticache_intake_entry *entry,
                                               aoticache_error *ret_error)
{
    const aoticache_manifest *manifest = entry->manifest;
    const aoticache_intake_claim claim = {.key = &manifest->key,
                                          .artifact = &entry->digest,
                                          .requirements = &manifest->requirements,
                                          .guard = manifest->guard};
    bool is_wanted = false, fits = false;
    aoticache_status status = AOTICACHE_OK;
    if (aoticache_transfer_names(intake->options, manifest->op, manifest->device, &manifest->key))
        status = aoticache_intake_wants_entry(intake, &claim, &is_wanted, ret_error);
    if (status == AOTICACHE_OK && !is_wanted)
        status = aoticache_intake_add_signatures(intake, &entry->digest, entry->signatures, ret_error);
    if (status == AOTICACHE_OK && is_wanted)
        status = check_files(intake, entry, &fits, ret_error);
    if (status == AOTICACHE_OK && fits)
        status = aoticache_intake_check_trust(intake, entry, &claim, &fits, ret_error);
    if (status == AOTICACHE_OK && fits)
        return enqueue(intake, entry, ret_error);
    name_objects(intake, entry); /* errors have been reported already */
    aoticache_intake_free_entry(entry);
    return status;
}

void aoticache_intake_refuse_unnamed(aoticache_intake *intake)
{
    const aoticache_transfer_object *objects = intake->table.items;
    for (size_t i = 0; i < intake->table.count; i++) {
        const aoticache_transfer_object *object = &objects[i];
        char hex[AOTICACHE_DIGEST_HEX_BYTES];
        if (object->state != AOTICACHE_TRANSFER_PENDING || object->is_named)
            continue;
        aoticache_digest_to_hex(&object->digest, hex);
        aoticache_intake_refuse(intake, "object %s is not named by any manifest that came with it", hex);
    }
}
