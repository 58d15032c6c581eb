/*
 * cache/store/entry: converts a manifest in the store to its entry in the index: reads the manifest, fills in the entry, and
 * records it.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "cache/cache_internal.h"

/* ---- requirements in the format of the index ---- */

void aoticache_requirements_to_bytes(const aoticache_cpu_features *features,
                                     uint8_t ret_bytes[AOTICACHE_INDEX_REQUIREMENT_BYTES])
{
    for (size_t i = 0; i < AOTICACHE_INDEX_REQUIREMENT_BYTES; i++)
        ret_bytes[i] = (uint8_t)(features->words[i / 8] >> (i % 8 * 8));
}

aoticache_cpu_features aoticache_requirements_from_bytes(const uint8_t bytes[AOTICACHE_INDEX_REQUIREMENT_BYTES])
{
    aoticache_cpu_features features = {.words = {0}};
    for (size_t i = 0; i < AOTICACHE_INDEX_REQUIREMENT_BYTES; i++)
        features.words[i / 8] |= (uint64_t)bytes[i] << (i % 8 * 8);
    return features;
}

/* ---- manifests ---- */

/* Every manifest begins with this byte. Other objects need not be read and hashed. */
#define MANIFEST_FIRST_BYTE '{'

/* Returns true also if that cannot be determined now: reading it will report the reason. */
bool aoticache_cache_may_be_manifest(aoticache_directory *directory, const aoticache_digest *digest)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    struct stat found;
    char first;
    aoticache_object_path(digest, path);
    cleanup_fd int fd = aoticache_directory_openat(directory, path, 0);
    if (fd < 0)
        return errno != ENOENT && !aoticache_object_errno_is_damage(errno);
    if (fstat(fd, &found) != 0)
        return true;
    if (!S_ISREG(found.st_mode) || found.st_size <= 0 || (uint64_t)found.st_size > AOTICACHE_OBJECT_MAX_MANIFEST_BYTES)
        return false;
    const ssize_t got = pread(fd, &first, 1, 0);
    return got < 0 || (got == 1 && first == MANIFEST_FIRST_BYTE);
}

aoticache_status aoticache_cache_load_manifest(aoticache_directory *directory, const aoticache_digest *digest,
                                               aoticache_manifest **ret_manifest, uint64_t *ret_bytes,
                                               aoticache_error *ret_error)
{
    cleanup_free char *text = NULL;
    size_t size = 0;
    aoticache_status status = aoticache_object_read(directory, digest, &text, &size, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_manifest_parse(text, size, ret_manifest, ret_error);
    if (status == AOTICACHE_OK)
        *ret_bytes = size;
    return status;
}

/* Returns whether each file exists with the size in the manifest, or cannot be examined. Its bytes are verified whenever it
 * is used. */
static bool has_files(aoticache_directory *directory, const aoticache_manifest *manifest)
{
    for (size_t i = 0; i < aoticache_manifest_object_count(manifest); i++) {
        char path[AOTICACHE_OBJECT_PATH_BYTES];
        struct stat found;
        aoticache_object_path(&manifest->files[i].digest, path);
        cleanup_fd int fd = aoticache_directory_openat(directory, path, 0);
        if (fd < 0 && errno != ENOENT && !aoticache_object_errno_is_damage(errno))
            continue;
        if (fd < 0 || fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) ||
            (uint64_t)found.st_size != manifest->files[i].bytes)
            return false;
    }
    return true;
}

aoticache_index_entry aoticache_manifest_entry(const aoticache_digest *digest, uint64_t manifest_bytes,
                                               const aoticache_manifest *manifest, aoticache_index_object *objects)
{
    size_t count = 0;
    objects[count++] = (aoticache_index_object){.digest = *digest, .bytes = manifest_bytes};
    for (size_t i = 0; i < aoticache_manifest_object_count(manifest); i++) {
        const aoticache_manifest_file *file = &manifest->files[i];
        bool is_repeated = false; /* files with equal bytes are one object */
        for (size_t k = 0; k < count; k++)
            is_repeated = is_repeated || aoticache_digest_equal(&objects[k].digest, &file->digest);
        if (!is_repeated)
            objects[count++] = (aoticache_index_object){.digest = file->digest, .bytes = file->bytes};
    }
    aoticache_index_entry entry = {.key = manifest->key,
                                   .artifact = *digest,
                                   .library = manifest->files[0].digest,
                                   .objects = objects,
                                   .object_count = count,
                                   .content_offset = manifest->content_offset,
                                   .file_count = (uint32_t)manifest->file_count,
                                   .guard = manifest->guard,
                                   .op = manifest->op,
                                   .device = manifest->device,
                                   .description = manifest->description,
                                   .producer = manifest->producer,
                                   .compile_ns = manifest->compile_ns,
                                   .created_ns = manifest->created_ns,
                                   .encoding = manifest->encoding,
                                   .encoding_size = manifest->encoding_size};
    aoticache_requirements_to_bytes(&manifest->requirements, entry.requirements);
    return entry;
}

aoticache_status aoticache_cache_put_manifest_entry(aoticache_index *index, const aoticache_digest *digest,
                                                    uint64_t manifest_bytes, const aoticache_manifest *manifest,
                                                    int64_t *ret_entry_id, aoticache_error *ret_error)
{
    cleanup_free aoticache_index_object *objects = calloc(manifest->file_count + 1, sizeof *objects);
    if (objects == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    const aoticache_index_entry entry = aoticache_manifest_entry(digest, manifest_bytes, manifest, objects);
    return aoticache_index_put(index, &entry, ret_entry_id, ret_error);
}

aoticache_status aoticache_cache_index_manifest(aoticache_directory *directory, aoticache_index *index,
                                                const aoticache_digest *digest, uint64_t manifest_bytes,
                                                const aoticache_manifest *manifest, aoticache_error *ret_error)
{
    int64_t entry_id;
    /* A plain lookup must never use an entry with a guard as an exact one: it knows only from the request which of the two
     * an entry is. */
    if (!aoticache_manifest_guard_fits(manifest) || !has_files(directory, manifest))
        return AOTICACHE_NOT_FOUND;
    return aoticache_cache_put_manifest_entry(index, digest, manifest_bytes, manifest, &entry_id, ret_error);
}
