/*
 * cache/transfer/intake: receives and counts objects, decides whether an entry may be imported, and adds its pins and tags.
 */
#include "cache/transfer/transfer_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/names.h"
#include "base/syscalls.h"

/* Up to this number refusals are logged one by one. */
/* Entries of one key that are examined first. */
#define USUAL_HITS 8
/* Left free on the file system, for the index and other programs. */
#define SPARE_MIB 16
#define SPARE_BYTES ((uint64_t)SPARE_MIB << 20)

/* ---- the table ---- */

static const aoticache_hash_map_type object_type = {.item_size = sizeof(aoticache_transfer_object),
                                                    .key_size = sizeof(aoticache_digest)};

aoticache_transfer_object *aoticache_transfer_table_find(const aoticache_hash_map *table,
                                                         const aoticache_digest *digest)
{
    return aoticache_hash_map_find(table, &object_type, digest);
}

aoticache_transfer_object *aoticache_transfer_table_add(aoticache_hash_map *table, const aoticache_digest *digest)
{
    bool is_new;
    aoticache_transfer_object *object = aoticache_hash_map_add(table, &object_type, digest, &is_new);
    if (object != NULL && is_new)
        object->state = AOTICACHE_TRANSFER_PENDING;
    return object;
}

/* ---- begin and end ---- */

void aoticache_intake_free_entry(const aoticache_intake_entry *entry)
{
    aoticache_manifest_free(entry->manifest);
    free(entry->signatures);
}

aoticache_status aoticache_intake_begin(aoticache_intake *intake, aoticache_cache *cache,
                                        const aoticache_transfer_options *options, aoticache_transfer_report *report,
                                        aoticache_error *ret_error)
{
    *intake = (aoticache_intake){
        .cache = cache, .options = options, .report = report, .scratch = AOTICACHE_SCRATCH_INIT, .directory_fd = -1};
    aoticache_status status = options->dry_run ? AOTICACHE_OK : aoticache_cache_check_writable(cache, ret_error);
    if (status == AOTICACHE_OK)
        status = options->dry_run ? aoticache_scratch_create_outside(&intake->scratch, ret_error)
                                  : aoticache_scratch_create(cache->directory, &intake->scratch, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    intake->directory_fd = open(intake->scratch.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (intake->directory_fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open %s", intake->scratch.path);
    intake->queue = calloc(AOTICACHE_INTAKE_BATCH, sizeof *intake->queue);
    if (intake->queue == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a batch of entries");
    return AOTICACHE_OK;
}

void aoticache_intake_end(aoticache_intake *intake)
{
    if (intake->cache == NULL)
        return;
    aoticache_intake_tell_untrusted(intake);
    for (size_t i = 0; i < intake->count; i++)
        aoticache_intake_free_entry(&intake->queue[i]);
    free(intake->queue);
    aoticache_hash_map_free(&intake->table);
    cleanup_fd_release(&intake->directory_fd);
    aoticache_scratch_remove(&intake->scratch);
    intake->cache = NULL;
}

/* ---- progress ---- */

bool aoticache_intake_poll(void *user)
{
    aoticache_intake *intake = user;
    const aoticache_transfer_options *options = intake->options;
    if (!intake->is_stopped && options->progress != NULL)
        intake->is_stopped = !options->progress(options->user, intake->done, intake->all);
    return !intake->is_stopped;
}

aoticache_status aoticache_intake_step(aoticache_intake *intake, aoticache_error *ret_error)
{
    intake->done++;
    if (aoticache_intake_poll(intake))
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_IO, "stopped; the entries that were complete are stored");
}

/* ---- objects ---- */

static aoticache_status out_of_memory(aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a table of objects");
}

static aoticache_status add(aoticache_intake *intake, const aoticache_digest *digest, uint64_t bytes,
                            aoticache_transfer_state state, aoticache_error *ret_error)
{
    aoticache_transfer_object *object = aoticache_transfer_table_add(&intake->table, digest);
    if (object == NULL)
        return out_of_memory(ret_error);
    object->bytes = bytes;
    object->state = (uint8_t)state;
    return AOTICACHE_OK;
}

aoticache_status aoticache_intake_has(aoticache_intake *intake, const aoticache_digest *digest, uint64_t bytes,
                                      bool *ret_has, aoticache_error *ret_error)
{
    cleanup_fd int fd = -1;
    aoticache_error detail = {.message = ""};
    *ret_has = true;
    if (aoticache_transfer_table_find(&intake->table, digest) != NULL)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_object_open_while(intake->cache->directory, digest, bytes,
                                                          aoticache_intake_poll, intake, &fd, NULL, &detail);
    if (status == AOTICACHE_OK)
        return add(intake, digest, bytes, AOTICACHE_TRANSFER_STORED, ret_error);
    *ret_has = false;
    bool is_unusable = status == AOTICACHE_CORRUPT || status == AOTICACHE_DENIED;
    if (is_unusable)
        aoticache_log(&intake->cache->directory->logger, AOTICACHE_LOG_WARNING,
                      "%s; it is replaced if the import contains it", detail.message);
    if (is_unusable || status == AOTICACHE_NOT_FOUND)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, status, "%s", detail.message);
}

bool aoticache_intake_has_space(aoticache_intake *intake, const char *name, uint64_t bytes)
{
    struct statvfs file_system;
    if (fstatvfs(intake->directory_fd, &file_system) != 0)
        return true; /* then it is tried */
    uint64_t available = (uint64_t)file_system.f_bavail * file_system.f_frsize;
    if (available >= SPARE_BYTES && bytes <= available - SPARE_BYTES)
        return true;
    aoticache_intake_refuse(intake,
                            "%s has %llu bytes, but the file system has no space for it (%llu bytes are "
                            "free, and an import leaves %d MiB free)",
                            name, (unsigned long long)bytes, (unsigned long long)available, SPARE_MIB);
    return false;
}

aoticache_status aoticache_intake_create_file(aoticache_intake *intake, const aoticache_digest *digest, int *ret_fd,
                                              aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(digest, hex);
    *ret_fd = aoticache_syscall_openat(intake->directory_fd, hex, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (*ret_fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot create %s/%s", intake->scratch.path, hex);
    aoticache_directory_hand_over(intake->cache->directory, *ret_fd, 0600);
    return AOTICACHE_OK;
}

void aoticache_intake_note_manifest(aoticache_intake *intake, const aoticache_digest *digest)
{
    aoticache_transfer_object *object = aoticache_transfer_table_find(&intake->table, digest);
    if (object != NULL)
        object->is_manifest = true;
}

/* Notes a manifest. Most files of artifacts do not begin like a manifest. */
aoticache_status aoticache_intake_note_if_manifest(aoticache_intake *intake, const aoticache_digest *digest, int fd,
                                                   uint64_t bytes, aoticache_error *ret_error)
{
    char first = '\0';
    aoticache_manifest *manifest = NULL;
    if (bytes == 0 || bytes > AOTICACHE_OBJECT_MAX_MANIFEST_BYTES || pread(fd, &first, 1, 0) != 1 || first != '{')
        return AOTICACHE_OK;
    cleanup_free char *text = malloc((size_t)bytes);
    if (text == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a manifest");
    size_t have = 0;
    for (ssize_t got = 1; got > 0 && have < bytes; have += got > 0 ? (size_t)got : 0)
        while ((got = pread(fd, text + have, (size_t)bytes - have, (off_t)have)) < 0 && errno == EINTR)
            continue;
    aoticache_status status = aoticache_manifest_parse(text, have, &manifest, NULL);
    aoticache_manifest_free(manifest);
    if (status == AOTICACHE_OK || status == AOTICACHE_UNSUPPORTED)
        aoticache_intake_note_manifest(intake, digest);
    return status == AOTICACHE_NO_MEMORY ? aoticache_error_set(ret_error, status, "out of memory for a manifest")
                                         : AOTICACHE_OK;
}

void aoticache_intake_discard_file(aoticache_intake *intake, const aoticache_digest *digest)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    int saved = errno;
    aoticache_digest_to_hex(digest, hex);
    aoticache_syscall_unlinkat(intake->directory_fd, hex, 0);
    errno = saved;
}

aoticache_status aoticache_intake_keep_file(aoticache_intake *intake, const aoticache_digest *digest, uint64_t bytes,
                                            int fd, aoticache_error *ret_error)
{
    if (intake->options->dry_run)
        aoticache_intake_discard_file(intake, digest);
    else if (aoticache_syscall_fchmod(fd, 0444) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot complete a file in %s", intake->scratch.path);
    else
        sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE); /* the disk begins writing now; the batch waits for it */
    return add(intake, digest, bytes, AOTICACHE_TRANSFER_PENDING, ret_error);
}

/* ---- which entries are wanted ---- */

aoticache_status aoticache_intake_read_hits(aoticache_index *index, const aoticache_key *key,
                                            aoticache_index_hit **ret_hits, size_t *ret_count,
                                            aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    size_t capacity = USUAL_HITS, count = 0;
    cleanup_free aoticache_index_hit *hits = NULL;
    for (;; capacity = count) {
        aoticache_index_hit *larger = reallocarray(hits, capacity, sizeof *hits);
        if (larger == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu entries", capacity);
        hits = larger;
        status = aoticache_index_lookup(index, key, hits, capacity, &count, ret_error);
        if (status != AOTICACHE_OK || count <= capacity)
            break;
    }
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        return status;
    *ret_count = status == AOTICACHE_OK ? count : 0;
    *ret_hits = steal_ptr(&hits);
    return AOTICACHE_OK;
}

static aoticache_status has_same(aoticache_index *index, const aoticache_intake_claim *claim, bool *ret_has,
                                 aoticache_error *ret_error)
{
    aoticache_index_entry same = {.key = *claim->key, .guard = claim->guard};
    aoticache_requirements_to_bytes(claim->requirements, same.requirements);
    aoticache_status status = aoticache_index_has_same(index, &same, ret_error);
    *ret_has = status == AOTICACHE_OK;
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

static bool was_added_here(const aoticache_intake *intake, const aoticache_digest *artifact)
{
    const aoticache_transfer_object *object = aoticache_transfer_table_find(&intake->table, artifact);
    return object != NULL && object->is_ours;
}

/*
 * Returns whether a lookup would prefer the new entry. A lookup takes the most demanding entry that the machine meets, and
 * among equally demanding ones the newest according to its manifest, which is untrusted. So only the number of features is
 * compared, and it decides for every machine that will ever use this cache. Guards are not compared: their texts do not show
 * whether two of them accept the same tensors.
 */
static bool would_win(const aoticache_intake *intake, const aoticache_intake_claim *claim,
                      const aoticache_index_hit *hit)
{
    const aoticache_cpu_features required = aoticache_requirements_from_bytes(hit->requirements);
    return !was_added_here(intake, &hit->artifact) &&
           aoticache_cpu_features_count(claim->requirements) >= aoticache_cpu_features_count(&required);
}

static aoticache_status judge_claim(aoticache_intake *intake, aoticache_index *index,
                                    const aoticache_intake_claim *claim, bool *ret_wanted, aoticache_error *ret_error)
{
    cleanup_free aoticache_index_hit *hits = NULL;
    size_t count = 0;
    bool is_present = false, is_before = false;
    aoticache_status status = aoticache_intake_read_hits(index, claim->key, &hits, &count, ret_error);
    if (status == AOTICACHE_OK && count > 0 && !intake->options->replace)
        status = has_same(index, claim, &is_present, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        is_present = is_present || aoticache_digest_equal(&hits[i].artifact, claim->artifact);
        is_before = is_before || (!intake->options->replace && would_win(intake, claim, &hits[i]));
    }
    *ret_wanted = !is_present && !is_before;
    intake->report->entries_present += is_present ? 1 : 0;
    intake->report->entries_passed_over += !is_present && is_before ? 1 : 0;
    return AOTICACHE_OK;
}

aoticache_status aoticache_intake_wants_still(aoticache_intake *intake, const aoticache_intake_claim *claim,
                                              bool *ret_wanted, aoticache_error *ret_error)
{
    aoticache_index *index = aoticache_cache_index(intake->cache);
    *ret_wanted = index == NULL;
    return index != NULL ? judge_claim(intake, index, claim, ret_wanted, ret_error) : AOTICACHE_OK;
}

aoticache_status aoticache_intake_wants_entry(aoticache_intake *intake, const aoticache_intake_claim *claim,
                                              bool *ret_wanted, aoticache_error *ret_error)
{
    aoticache_index *index = aoticache_cache_index(intake->cache);
    aoticache_status status;
    do
        status = aoticache_intake_wants_still(intake, claim, ret_wanted, ret_error);
    while (aoticache_cache_recovered(intake->cache, status, &index));
    return status;
}

/* ---- pins and tags ---- */

/* Checks whether the key has an entry: OK, NOT_FOUND. */
static aoticache_status find_key(aoticache_intake *intake, const aoticache_key *key, aoticache_error *ret_error)
{
    aoticache_index *index = aoticache_cache_index(intake->cache);
    aoticache_index_hit hit;
    aoticache_status status;
    size_t count = 0;
    if (index == NULL)
        return AOTICACHE_NOT_FOUND;
    do
        status = aoticache_index_lookup(index, key, &hit, 1, &count, ret_error);
    while (aoticache_cache_recovered(intake->cache, status, &index));
    return status;
}

static aoticache_status add_tag(aoticache_intake *intake, const aoticache_pins *pins, const char *tag,
                                aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_error detail = {.message = ""};
    aoticache_status status =
        aoticache_cache_change_pins(intake->cache, &pins->key, 1, AOTICACHE_TAG, tag, NULL, &detail);
    if (status == AOTICACHE_OK)
        return status;
    if (status != AOTICACHE_INVALID)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    aoticache_digest_to_hex(&pins->key, hex);
    aoticache_intake_refuse(intake, "a tag of key %s: %s", hex, detail.message);
    return AOTICACHE_OK;
}

aoticache_status aoticache_transfer_add_pin(aoticache_intake *intake, const aoticache_pins *pins,
                                            aoticache_error *ret_error)
{
    if (intake->options->dry_run) { /* it is then unknown which keys would exist */
        intake->report->marks++;
        return AOTICACHE_OK;
    }
    aoticache_status status = find_key(intake, &pins->key, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        return AOTICACHE_OK;
    if (status == AOTICACHE_OK && pins->is_pinned)
        status = aoticache_cache_change_pins(intake->cache, &pins->key, 1, AOTICACHE_PIN, NULL, NULL, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < pins->tag_count; i++)
        status = add_tag(intake, pins, pins->tags[i], ret_error);
    intake->report->marks += status == AOTICACHE_OK ? 1 : 0;
    return status;
}
