/*
 * cache/store/rebuild: entries of the index made from the manifests in the store: all of them for a new index, one at a time for
 * a repair.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "cache/state.h"

/* Every manifest begins so; what does not need not be read and hashed to know that it is none. */
#define MANIFEST_FIRST_BYTE '{'

bool aoticache_cache_may_be_manifest(aoticache_directory *directory, const aoticache_digest *digest)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    struct stat found;
    char first;
    aoticache_object_path(digest, path);
    cleanup_fd int fd = aoticache_directory_openat(directory, path, 0);
    if (fd < 0)
        return errno != ENOENT && !aoticache_object_errno_is_damage(errno); /* reading it will tell why */
    return fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_size > 0 &&
           (uint64_t)found.st_size <= AOTICACHE_OBJECT_MAX_MANIFEST_BYTES && pread(fd, &first, 1, 0) == 1 &&
           first == MANIFEST_FIRST_BYTE;
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

/* Present with the size that the manifest says, or nothing can be said of it; the bytes are verified whenever they are
 * used. */
static bool has_files(aoticache_directory *directory, const aoticache_manifest *manifest)
{
    for (size_t i = 0; i < manifest->file_count; i++) {
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

aoticache_status aoticache_cache_put_manifest_entry(aoticache_index *index, const aoticache_digest *digest,
                                                    uint64_t manifest_bytes, const aoticache_manifest *manifest,
                                                    int64_t *ret_entry_id, aoticache_error *ret_error)
{
    cleanup_free aoticache_index_object *objects = calloc(manifest->file_count + 1, sizeof *objects);
    if (objects == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    size_t count = 0;
    objects[count++] = (aoticache_index_object){.digest = *digest, .bytes = manifest_bytes};
    for (size_t i = 0; i < manifest->file_count; i++) {
        bool is_repeated = false; /* files with equal bytes are one object */
        for (size_t k = 0; k < count; k++)
            is_repeated = is_repeated || aoticache_digest_equal(&objects[k].digest, &manifest->files[i].digest);
        if (!is_repeated)
            objects[count++] = (aoticache_index_object){.digest = manifest->files[i].digest,
                                                        .bytes = manifest->files[i].bytes};
    }
    aoticache_index_entry entry = {.key = manifest->key,
                                   .artifact = *digest,
                                   .library = manifest->files[0].digest,
                                   .objects = objects,
                                   .object_count = count,
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
    return aoticache_index_put_numbered(index, &entry, ret_entry_id, ret_error);
}

aoticache_status aoticache_cache_index_manifest(aoticache_directory *directory, aoticache_index *index,
                                                const aoticache_digest *digest, uint64_t manifest_bytes,
                                                const aoticache_manifest *manifest, aoticache_error *ret_error)
{
    int64_t entry_id;
    /* A plain lookup must never take an entry with a guard for an exact one: it tells them by the request alone. */
    if (!aoticache_manifest_guard_fits(manifest) || !has_files(directory, manifest))
        return AOTICACHE_NOT_FOUND;
    return aoticache_cache_put_manifest_entry(index, digest, manifest_bytes, manifest, &entry_id, ret_error);
}

/* ---- all of them ---- */

struct found_manifest {
    aoticache_digest digest;
    int64_t created_ns;
};

struct search {
    aoticache_directory *directory;
    struct found_manifest *found;
    size_t count, capacity;
    uint64_t unreadable;         /* manifests and folders */
    aoticache_error first_unreadable;
    aoticache_error failure;     /* what ends the search; OK where nothing has */
};

static void note_unreadable(void *user, const aoticache_error *error)
{
    struct search *search = user;
    if (search->unreadable++ == 0)
        search->first_unreadable = *error;
}

static bool remember(struct search *search, const aoticache_digest *digest, int64_t created_ns)
{
    if (search->count == search->capacity) {
        size_t capacity = search->capacity != 0 ? search->capacity * 2 : 64;
        struct found_manifest *found = realloc(search->found, capacity * sizeof *found);
        if (found == NULL) {
            aoticache_error_set(&search->failure, AOTICACHE_NO_MEMORY, "out of memory for a list of manifests");
            return false;
        }
        search->found = found;
        search->capacity = capacity;
    }
    search->found[search->count++] = (struct found_manifest){.digest = *digest, .created_ns = created_ns};
    return true;
}

static bool look_at(void *user, const aoticache_digest *digest)
{
    struct search *search = user;
    aoticache_manifest *manifest = NULL;
    uint64_t bytes;
    aoticache_error detail = {.message = ""};
    if (!aoticache_cache_may_be_manifest(search->directory, digest))
        return true;
    aoticache_status status =
        aoticache_cache_load_manifest(search->directory, digest, &manifest, &bytes, &detail);
    if (status == AOTICACHE_DENIED)
        note_unreadable(search, &detail);
    if (status == AOTICACHE_IO || status == AOTICACHE_NO_MEMORY || status == AOTICACHE_LOCKED) {
        search->failure = detail; /* with a part of them an index would be built that lacks the others */
        search->failure.status = status;
        return false;
    }
    if (status != AOTICACHE_OK)
        return true;
    bool goes_on = remember(search, digest, manifest->created_ns);
    aoticache_manifest_free(manifest);
    return goes_on;
}

static int by_age(const void *left, const void *right)
{
    const struct found_manifest *a = left, *b = right;
    if (a->created_ns != b->created_ns)
        return a->created_ns < b->created_ns ? -1 : 1;
    return memcmp(a->digest.bytes, b->digest.bytes, sizeof a->digest.bytes);
}

static aoticache_status index_one(struct search *search, aoticache_index *index, const aoticache_digest *digest,
                                  aoticache_error *ret_error)
{
    aoticache_manifest *manifest = NULL;
    uint64_t bytes;
    aoticache_status status =
        aoticache_cache_load_manifest(search->directory, digest, &manifest, &bytes, ret_error);
    if (status == AOTICACHE_IO || status == AOTICACHE_NO_MEMORY || status == AOTICACHE_LOCKED)
        return status;
    if (status != AOTICACHE_OK)
        return AOTICACHE_NOT_FOUND;
    status =
        aoticache_cache_index_manifest(search->directory, index, digest, bytes, manifest, ret_error);
    aoticache_manifest_free(manifest);
    return status;
}

#define PUTS_AT_ONCE 20000

/* One transaction, from *at on. */
static aoticache_status index_some(struct search *search, aoticache_index *index, size_t *at, uint64_t *entries,
                                   aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_bulk_begin(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    for (size_t n = 0; status == AOTICACHE_OK && *at < search->count && n < PUTS_AT_ONCE; n++) {
        status = index_one(search, index, &search->found[(*at)++].digest, ret_error);
        if (status == AOTICACHE_OK)
            ++*entries;
        else if (status == AOTICACHE_NOT_FOUND)
            status = AOTICACHE_OK;
    }
    return aoticache_index_bulk_end(index, status, ret_error);
}

aoticache_status aoticache_cache_index_all_manifests(aoticache_directory *directory, aoticache_index *index,
                                                     uint64_t *ret_entries, aoticache_error *ret_error)
{
    struct search search = {.directory = directory, .failure = {.status = AOTICACHE_OK}};
    uint64_t entries = 0;
    aoticache_status status = aoticache_object_list(directory, look_at, note_unreadable, &search, ret_error);
    if (status == AOTICACHE_OK && search.failure.status != AOTICACHE_OK)
        status = aoticache_error_set(ret_error, search.failure.status, "%s", search.failure.message);
    if (search.count > 0)
        qsort(search.found, search.count, sizeof *search.found, by_age);
    /* Nobody else has this index yet: a transaction for each entry would wait for the disk as often. */
    for (size_t i = 0; status == AOTICACHE_OK && i < search.count;)
        status = index_some(&search, index, &i, &entries, ret_error);
    free(search.found);
    if (search.unreadable > 0)
        aoticache_log(&directory->logger, AOTICACHE_LOG_WARNING,
                      "the index is built without %llu files or folders that cannot be read (the first: %s); run by "
                      "somebody who may read them, 'aoticache verify --repair' adds them",
                      (unsigned long long)search.unreadable, search.first_unreadable.message);
    if (status == AOTICACHE_OK)
        *ret_entries = entries;
    return status;
}

/* ---- requirements between the index and the rest ---- */

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
