/*
 * cache/hashed_files: when records of files hashed earlier are trusted, and what is recorded.
 *
 * Any write to a file, and any change of its size or its times, sets its change time, which no program can set back. So the
 * same device, inode, size and times mean the same bytes, with these exceptions, in which records are not trusted:
 *
 * - The clock of change times ticks every few milliseconds: a file that was changed less than two seconds before it was
 *   hashed may have been changed again in the same tick.
 * - Another user who has the file mapped for writing can change it after its change time.
 * - Network file systems, and those provided by programs, may set times and numbers arbitrarily.
 * - After a reboot, device numbers may mean other devices, the clock may have been set, and disks may have lost unwritten
 *   data. So after each boot every file is hashed once.
 *
 * A cache that was opened with hash_always (the setting remember_digests = false) neither trusts nor makes records.
 */
#include "base/arguments.h"
#include "cache/hashed_files.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/files/file_state.h"
#include "base/names.h"
#include "cache/eager_face.h"
#include "cache/cache_internal.h"
#include "cache/store/store_internal.h"
#include "index/entries/file_facts.h"

/* Do not wait for another process that writes: if the digest cannot be stored now, the file is hashed again later. */
#define WAIT_MS 0

static aoticache_index_file_digest state_of(const struct stat *found, int64_t boot)
{
    const aoticache_file_state state = aoticache_file_state_of(found);
    return (aoticache_index_file_digest){.device = state.device,
                                         .inode = state.inode,
                                         .size = state.size,
                                         .modified_ns = state.modified_ns,
                                         .changed_ns = state.changed_ns,
                                         .boot = boot};
}

static bool is_same_state(const aoticache_index_file_digest *a, const aoticache_index_file_digest *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size && a->modified_ns == b->modified_ns &&
           a->changed_ns == b->changed_ns && a->boot == b->boot;
}

static bool has(aoticache_hash_records *records, int fd, const struct stat *found, const aoticache_digest *digest)
{
    const aoticache_hashed_files *files = (const aoticache_hashed_files *)(const void *)records;
    const aoticache_index_file_digest now = state_of(found, files->boot);
    aoticache_index_file_digest then;
    aoticache_index *index = aoticache_cache_index(files->cache);
    return index != NULL && files->boot != 0 && aoticache_file_is_ours(found) && aoticache_file_system_is_local(fd) &&
           now.changed_ns <= aoticache_wall_ns() &&
           aoticache_index_read_file_digest(index, now.device, now.inode, &then, NULL) == AOTICACHE_OK &&
           is_same_state(&now, &then) && aoticache_digest_equal(&then.digest, digest);
}

/* ---- checksums ---- */

/* The fact recorded for a file under its digest. */
struct summed {
    aoticache_file_state state;
    aoticache_checksum checksum;
};

static bool find_checksum(aoticache_hash_records *records, const struct stat *found, const aoticache_digest *digest,
                          aoticache_checksum *ret_checksum)
{
    const aoticache_hashed_files *files = (const aoticache_hashed_files *)(const void *)records;
    uint8_t bytes[AOTICACHE_INDEX_FILE_FACT_MAX_BYTES];
    struct summed then;
    size_t size;
    aoticache_index *index = aoticache_cache_index(files->cache);
    if (index == NULL || files->boot == 0 || !aoticache_file_is_ours(found) ||
        !aoticache_index_find_file_fact(index, AOTICACHE_INDEX_FILE_FACT_CHECKSUM, digest, bytes, &size) ||
        size != sizeof then)
        return false;
    memcpy(&then, bytes, sizeof then);
    const aoticache_file_state now = aoticache_file_state_of(found);
    *ret_checksum = then.checksum;
    return memcmp(&now, &then.state, sizeof now) == 0;
}

static void note_checksum(const aoticache_hashed_files *files, const struct stat *found, const aoticache_digest *digest,
                          const aoticache_checksum *checksum)
{
    aoticache_index *index = aoticache_cache_index(files->cache);
    const struct summed now = {aoticache_file_state_of(found), *checksum};
    if (index != NULL)
        aoticache_index_note_file_fact(index, AOTICACHE_INDEX_FILE_FACT_CHECKSUM, digest, &now, sizeof now);
}

/* ---- manifests ---- */

/* The record of a manifest: this, and for each file its digest, its size, and its name with the NUL. */
struct noted_manifest {
    uint64_t format; /* newest format known to its reader: a newer one may be incompatible with this library */
    uint64_t compile_ns, file_count;
};
struct noted_file {
    aoticache_digest digest;
    uint64_t bytes;
};

static void note_manifest(aoticache_hash_records *records, const aoticache_digest *digest,
                          const aoticache_manifest *manifest)
{
    const aoticache_hashed_files *files = (const aoticache_hashed_files *)(const void *)records;
    aoticache_index *index = aoticache_cache_index(files->cache);
    uint8_t bytes[AOTICACHE_INDEX_FILE_FACT_MAX_BYTES];
    const struct noted_manifest head = {MANIFEST_FORMAT, manifest->compile_ns, manifest->file_count};
    size_t used = sizeof head;
    if (index == NULL || files->boot == 0)
        return;
    memcpy(bytes, &head, sizeof head);
    for (size_t i = 0; i < manifest->file_count; i++) {
        const aoticache_manifest_file *file = &manifest->files[i];
        const struct noted_file noted = {file->digest, file->bytes};
        const size_t name_size = strlen(file->name) + 1;
        if (sizeof noted + name_size > sizeof bytes - used)
            return;
        memcpy(bytes + used, &noted, sizeof noted);
        memcpy(bytes + used + sizeof noted, file->name, name_size);
        used += sizeof noted + name_size;
    }
    aoticache_index_note_file_fact(index, AOTICACHE_INDEX_FILE_FACT_MANIFEST, digest, bytes, used);
}

/* Returns false if the bytes were not written by note_manifest(), or memory is short. */
static bool read_noted_files(const uint8_t *bytes, size_t size, aoticache_manifest *manifest)
{
    for (size_t i = 0; i < manifest->file_count; i++) {
        struct noted_file noted;
        if (size < sizeof noted)
            return false;
        memcpy(&noted, bytes, sizeof noted);
        bytes += sizeof noted;
        size -= sizeof noted;
        const size_t name_size = strnlen((const char *)bytes, size) + 1;
        if (name_size > size || !aoticache_manifest_file_name_is_safe((const char *)bytes))
            return false;
        manifest->files[i] = (aoticache_manifest_file){
            .name = strdup((const char *)bytes), .digest = noted.digest, .bytes = noted.bytes};
        if (manifest->files[i].name == NULL)
            return false;
        bytes += name_size;
        size -= name_size;
    }
    return size == 0;
}

static aoticache_manifest *find_manifest(aoticache_hash_records *records, const aoticache_digest *digest)
{
    const aoticache_hashed_files *files = (const aoticache_hashed_files *)(const void *)records;
    aoticache_index *index = aoticache_cache_index(files->cache);
    uint8_t bytes[AOTICACHE_INDEX_FILE_FACT_MAX_BYTES];
    struct noted_manifest head;
    size_t size;
    if (index == NULL || files->boot == 0 ||
        !aoticache_index_find_file_fact(index, AOTICACHE_INDEX_FILE_FACT_MANIFEST, digest, bytes, &size) ||
        size < sizeof head)
        return NULL;
    memcpy(&head, bytes, sizeof head);
    if (head.format != MANIFEST_FORMAT)
        return NULL;
    aoticache_manifest *manifest = calloc(1, sizeof *manifest);
    if (manifest == NULL || head.file_count == 0 || head.file_count > size / sizeof(struct noted_file)) {
        aoticache_manifest_free(manifest);
        return NULL;
    }
    manifest->compile_ns = head.compile_ns;
    manifest->file_count = (size_t)head.file_count;
    manifest->files = calloc(manifest->file_count, sizeof *manifest->files);
    if (manifest->files != NULL && read_noted_files(bytes + sizeof head, size - sizeof head, manifest))
        return manifest;
    aoticache_manifest_free(manifest);
    return NULL;
}

/* ---- digests of large files ---- */

static void note(aoticache_hash_records *records, int fd, const struct stat *found, int64_t begun_ns,
                 const aoticache_digest *digest, const aoticache_checksum *checksum)
{
    aoticache_hashed_files *files = (aoticache_hashed_files *)(void *)records;
    struct stat after;
    aoticache_index_file_digest state = state_of(found, files->boot);
    if (files->boot == 0 || !aoticache_file_is_ours(found) || !aoticache_file_system_is_local(fd) ||
        state.changed_ns > begun_ns - AOTICACHE_FILE_SETTLED_NS || fstat(fd, &after) != 0)
        return;
    const aoticache_index_file_digest now = state_of(&after, files->boot);
    if (!is_same_state(&state, &now))
        return;
    if (checksum != NULL) {
        note_checksum(files, &after, digest, checksum);
        return;
    }
    if (!AOTICACHE_ARRAY_RESERVE(files->found, files->capacity, files->count + 1))
        return;
    state.digest = *digest;
    files->found[files->count++] = state;
}

void aoticache_hashed_files_begin(aoticache_hashed_files *files, aoticache_cache *cache)
{
    /* Without a boot number, records are neither trusted nor made. */
    *files = (aoticache_hashed_files){.records = {.has = has,
                                                  .find_checksum = find_checksum,
                                                  .note = note,
                                                  .find_manifest = find_manifest,
                                                  .note_manifest = note_manifest},
                                      .cache = cache,
                                      .boot = cache->hash_always ? 0 : aoticache_boot_number()};
}

void aoticache_hashed_files_end(aoticache_hashed_files *files)
{
    aoticache_index *index =
        files->count > 0 && !files->cache->directory->read_only ? aoticache_cache_index(files->cache) : NULL;
    if (index != NULL)
        aoticache_index_put_file_digests(index, files->found, files->count, WAIT_MS, NULL);
    free(files->found);
    files->found = NULL;
}

/* ---- files outside the cache ---- */

aoticache_status aoticache_cache_digest_file(aoticache_cache *cache, int fd, aoticache_digest *ret_digest,
                                             aoticache_error *ret_error)
{
    struct stat found;
    aoticache_hashed_files files;
    aoticache_index_file_digest then;
    if (cache == NULL || ret_digest == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, ret_digest);
    aoticache_cache_enter(cache);
    aoticache_index *index = aoticache_cache_index(cache);
    if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) ||
        (uint64_t)found.st_size < AOTICACHE_HASH_RECORD_MIN_BYTES || index == NULL)
        return aoticache_digest_of_fd(fd, ret_digest, NULL, ret_error);
    if (aoticache_index_read_file_digest(index, found.st_dev, found.st_ino, &then, NULL) == AOTICACHE_OK) {
        aoticache_hashed_files_begin(&files, cache);
        if (has(&files.records, fd, &found, &then.digest)) {
            *ret_digest = then.digest;
            return AOTICACHE_OK;
        }
    }
    const int64_t begun_ns = aoticache_wall_ns();
    aoticache_status status = aoticache_digest_of_fd(fd, ret_digest, NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_hashed_files_begin(&files, cache);
    note(&files.records, fd, &found, begun_ns, ret_digest, NULL);
    aoticache_hashed_files_end(&files);
    return AOTICACHE_OK;
}
