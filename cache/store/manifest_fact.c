/*
 * cache/store/manifest_fact: what is recorded of a manifest that was read, so that a hit need not read it again.
 */
#include "cache/store/store_internal.h"
#include "index/query_cache/file_facts.h"

#include <stdlib.h>
#include <string.h>

/* The record of a manifest: this, and for each file its digest, its size, and its name with the NUL. */
struct noted_manifest {
    uint64_t format; /* newest format known to its reader: a newer one may be incompatible with this library */
    uint64_t compile_ns, file_count;
};
struct noted_file {
    aoticache_digest digest;
    uint64_t bytes;
};

void aoticache_manifest_note_fact(aoticache_index *index, const aoticache_digest *digest,
                                  const aoticache_manifest *manifest)
{
    uint8_t bytes[AOTICACHE_FILE_FACT_MAX_BYTES];
    const struct noted_manifest head = {MANIFEST_FORMAT, manifest->compile_ns, manifest->file_count};
    size_t used = sizeof head;
    if (index == NULL)
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
    aoticache_index_note_manifest_fact(index, digest, bytes, used);
}

/* Returns false if the bytes were not written by aoticache_manifest_note_fact(), or memory is short. */
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

aoticache_manifest *aoticache_manifest_find_fact(aoticache_index *index, const aoticache_digest *digest)
{
    uint8_t bytes[AOTICACHE_FILE_FACT_MAX_BYTES];
    struct noted_manifest head;
    size_t size;
    if (!aoticache_index_find_manifest_fact(index, digest, bytes, &size) || size < sizeof head)
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
