/*
 * index/query_cache/file_facts: when facts about files are trusted, and when they are recorded.
 *
 * Any write to a file, and any change of its size or its times, sets its change time, which no program can set back. So the
 * same device, inode, size and times mean the same bytes, with these exceptions, in which facts are not trusted:
 *
 * - The clock of change times ticks every few milliseconds: a file that was changed less than two seconds before it was
 *   hashed may have been changed again in the same tick.
 * - Another user who has the file mapped for writing can change it after its change time.
 * - Network file systems, and those provided by programs, may set times and numbers arbitrarily.
 * - After a reboot, device numbers may mean other devices, the clock may have been set, and disks may have lost unwritten
 *   data. So after each boot every file is hashed once.
 */
#include "index/query_cache/file_facts.h"
#include "index/connection/connection_internal.h"

#include <string.h>

#include "base/clock.h"
#include "base/files/file_state.h"

/* About a device and inode. */
struct digest_fact {
    aoticache_file_state state;
    aoticache_digest digest;
};

/* About a digest. */
struct checksum_fact {
    aoticache_file_state state;
    aoticache_checksum checksum;
};

static bool is_same_state(const aoticache_file_state *a, const aoticache_file_state *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Returns whether a file was only read from begun_ns on, and its state proves its bytes. */
static bool is_settled(int fd, const struct stat *found, int64_t begun_ns)
{
    struct stat after;
    if (!aoticache_file_is_ours(found) || !aoticache_file_system_is_local(fd) || fstat(fd, &after) != 0)
        return false;
    const aoticache_file_state before = aoticache_file_state_of(found), now = aoticache_file_state_of(&after);
    return before.changed_ns <= begun_ns - AOTICACHE_FILE_SETTLED_NS && is_same_state(&before, &now);
}

bool aoticache_index_find_file_digest(aoticache_index *index, int fd, const struct stat *found,
                                      aoticache_digest *ret_digest)
{
    const aoticache_file_state now = aoticache_file_state_of(found);
    const uint64_t file[] = {now.device, now.inode};
    struct digest_fact then;
    size_t size;
    if (index == NULL || !aoticache_file_is_ours(found) || !aoticache_file_system_is_local(fd) ||
        now.changed_ns > aoticache_wall_ns() ||
        !aoticache_query_cache_find_fact(index, AOTICACHE_INDEX_KEEPS_DIGEST, file, sizeof file, &then, sizeof then,
                                         &size) ||
        size != sizeof then || !is_same_state(&now, &then.state))
        return false;
    *ret_digest = then.digest;
    return true;
}

void aoticache_index_note_file_digest(aoticache_index *index, int fd, const struct stat *found, int64_t begun_ns,
                                      const aoticache_digest *digest)
{
    const struct digest_fact now = {aoticache_file_state_of(found), *digest};
    const uint64_t file[] = {now.state.device, now.state.inode};
    if (index != NULL && is_settled(fd, found, begun_ns))
        aoticache_query_cache_note_fact(index, AOTICACHE_INDEX_KEEPS_DIGEST, file, sizeof file, &now, sizeof now);
}

bool aoticache_index_find_file_checksum(aoticache_index *index, const struct stat *found,
                                        const aoticache_digest *digest, aoticache_checksum *ret_checksum)
{
    const aoticache_file_state now = aoticache_file_state_of(found);
    struct checksum_fact then;
    size_t size;
    if (index == NULL || !aoticache_file_is_ours(found) ||
        !aoticache_query_cache_find_fact(index, AOTICACHE_INDEX_KEEPS_CHECKSUM, digest->bytes, sizeof digest->bytes,
                                         &then, sizeof then, &size) ||
        size != sizeof then)
        return false;
    *ret_checksum = then.checksum;
    return is_same_state(&now, &then.state);
}

void aoticache_index_note_file_checksum(aoticache_index *index, int fd, const struct stat *found, int64_t begun_ns,
                                        const aoticache_digest *digest, const aoticache_checksum *checksum)
{
    const struct checksum_fact now = {aoticache_file_state_of(found), *checksum};
    if (index != NULL && is_settled(fd, found, begun_ns))
        aoticache_query_cache_note_fact(index, AOTICACHE_INDEX_KEEPS_CHECKSUM, digest->bytes, sizeof digest->bytes,
                                        &now, sizeof now);
}

bool aoticache_index_find_manifest_fact(aoticache_index *index, const aoticache_digest *manifest,
                                        uint8_t ret_bytes[AOTICACHE_FILE_FACT_MAX_BYTES], size_t *ret_size)
{
    return index != NULL &&
           aoticache_query_cache_find_fact(index, AOTICACHE_INDEX_KEEPS_MANIFEST, manifest->bytes,
                                           sizeof manifest->bytes, ret_bytes, AOTICACHE_FILE_FACT_MAX_BYTES, ret_size);
}

void aoticache_index_note_manifest_fact(aoticache_index *index, const aoticache_digest *manifest, const void *bytes,
                                        size_t size)
{
    if (index != NULL && size <= AOTICACHE_FILE_FACT_MAX_BYTES)
        aoticache_query_cache_note_fact(index, AOTICACHE_INDEX_KEEPS_MANIFEST, manifest->bytes, sizeof manifest->bytes,
                                        bytes, size);
}
