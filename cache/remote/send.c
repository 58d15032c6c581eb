/*
 * cache/remote/send: sends one entry of the cache to a remote: its objects, then its manifest, then the record of its key.
 * So a machine that reads a record finds everything that it names. Every object is verified immediately before it is sent.
 */
#include "cache/remote/remote_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"

#define MAX_TRIES 12
#define FIRST_PAUSE_NS 2000000

/* ---- objects ---- */

static aoticache_status send_bytes(aoticache_remote *remote, const aoticache_digest *digest, const void *bytes,
                                   size_t size, aoticache_transfer_report *report, aoticache_error *ret_error)
{
    char name[AOTICACHE_REMOTE_NAME_BYTES];
    cleanup_free void *packed = NULL;
    size_t packed_size = 0;
    aoticache_status status = AOTICACHE_OK;
    aoticache_remote_object_name(digest, name);
    if (!remote->config.is_bazel)
        status = aoticache_zstd_compress(bytes, size, &packed, &packed_size, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_remote_put(remote, name, packed != NULL ? packed : bytes,
                                      packed != NULL ? packed_size : size, NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    report->objects++;
    report->bytes += size;
    report->archive_bytes += packed != NULL ? packed_size : size;
    return AOTICACHE_OK;
}

/* Checks whether the remote has an object. *ret_has: it exists there already, and need not be sent. If the server does not
 * report that, it is sent. */
static aoticache_status has_object(aoticache_remote *remote, const aoticache_digest *digest,
                                   const aoticache_remote_sending *sending, bool *ret_has, aoticache_error *ret_error)
{
    char name[AOTICACHE_REMOTE_NAME_BYTES];
    *ret_has = false;
    if (sending->poll != NULL && !sending->poll(sending->user))
        return aoticache_error_set(ret_error, AOTICACHE_IO, "stopped");
    if (sending->replaces)
        return AOTICACHE_OK;
    aoticache_remote_object_name(digest, name);
    aoticache_status status = aoticache_remote_exists(remote, AOTICACHE_REMOTE_WRITE, name, ret_error);
    *ret_has = status == AOTICACHE_OK;
    return status == AOTICACHE_NOT_FOUND || status == AOTICACHE_DENIED ? AOTICACHE_OK : status;
}

static aoticache_status refuse_size(const aoticache_remote *remote, const aoticache_digest *digest, uint64_t bytes,
                                    aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(digest, hex);
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "its object %s has %llu bytes; max-object of the remote allows %llu", hex,
                               (unsigned long long)bytes, (unsigned long long)remote->config.max_object);
}

static aoticache_status send_file(aoticache_cache *cache, aoticache_remote *remote, const aoticache_manifest_file *file,
                                  const aoticache_remote_sending *sending, aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    bool has = false;
    cleanup_fd int fd = -1;
    aoticache_digest_to_hex(&file->digest, hex);
    if (file->bytes > remote->config.max_object)
        return refuse_size(remote, &file->digest, file->bytes, ret_error);
    aoticache_status status = has_object(remote, &file->digest, sending, &has, ret_error);
    if (status != AOTICACHE_OK || has)
        return status;
    status = aoticache_object_open_while(cache->directory, &file->digest, file->bytes, sending->poll, sending->user,
                                         &fd, NULL, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "its object %s is missing", hex);
    if (status != AOTICACHE_OK)
        return status;
    if (file->bytes == 0)
        return send_bytes(remote, &file->digest, "", 0, sending->report, ret_error);
    void *bytes = mmap(NULL, (size_t)file->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return aoticache_error_set_errno(ret_error, errno, "cannot map object %s", hex);
    status = send_bytes(remote, &file->digest, bytes, (size_t)file->bytes, sending->report, ret_error);
    munmap(bytes, (size_t)file->bytes);
    return status;
}

/* ---- the record ---- */

static bool has_entry(const aoticache_record *record, const aoticache_record_entry *entry)
{
    for (size_t i = 0; i < record->count; i++)
        if (aoticache_digest_equal(&record->entries[i].artifact, &entry->artifact))
            return true;
    return false;
}

/* Reads the current record, and its version for the condition of a put; an empty record if there is none, or none that can
 * be used. */
static aoticache_status read_current(aoticache_remote *remote, const aoticache_key *key, const char *name,
                                     aoticache_record *ret_record, char ret_version[AOTICACHE_REMOTE_VERSION_BYTES],
                                     bool *ret_exists, aoticache_error *ret_error)
{
    cleanup_free char *text = NULL;
    size_t size = 0;
    ret_version[0] = '\0';
    *ret_record = (aoticache_record){.key = *key};
    aoticache_status status = aoticache_remote_get_text(
        remote, AOTICACHE_REMOTE_WRITE, name, AOTICACHE_RECORD_MAX_BYTES, &text, &size, ret_version, ret_error);
    *ret_exists = status == AOTICACHE_OK || status == AOTICACHE_CORRUPT;
    if (status == AOTICACHE_OK)
        status = aoticache_record_parse(text, size, key, ret_record, ret_error);
    return status == AOTICACHE_CORRUPT || status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

static aoticache_status write_record(aoticache_remote *remote, const char *name, const aoticache_record *record,
                                     const char *condition, aoticache_error *ret_error)
{
    cleanup_free char *text = NULL;
    size_t size = 0;
    aoticache_status status = aoticache_record_format(record, &text, &size, ret_error);
    if (status == AOTICACHE_OK && size > AOTICACHE_RECORD_MAX_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "the record of its key would have %zu bytes",
                                   size);
    return status == AOTICACHE_OK ? aoticache_remote_put_text(remote, name, text, size, condition, ret_error) : status;
}

/* The result of one try to change a record. */
enum outcome { IS_DONE, HAS_CHANGED, DOES_NOT_COME_BACK };

/* Tries to change the record. IS_DONE: the entry is in the record on the server. */
static aoticache_status try_record(aoticache_remote *remote, const aoticache_key *key,
                                   const aoticache_record_entry *entry, enum outcome *ret_outcome,
                                   aoticache_error *ret_error)
{
    char name[AOTICACHE_REMOTE_NAME_BYTES], version[AOTICACHE_REMOTE_VERSION_BYTES];
    aoticache_record record;
    bool exists = false, has_changed = false;
    aoticache_remote_record_name(key, name);
    *ret_outcome = IS_DONE;
    aoticache_status status = read_current(remote, key, name, &record, version, &exists, ret_error);
    if (status == AOTICACHE_OK && !aoticache_record_prefers_signed(&record, entry))
        status = aoticache_record_put(&record, entry, &has_changed, ret_error);
    if (status == AOTICACHE_OK && has_changed)
        status = write_record(remote, name, &record, exists && version[0] == '\0' ? NULL : version, ret_error);
    aoticache_record_clear(&record);
    if (status == AOTICACHE_LOCKED) {
        *ret_outcome = HAS_CHANGED;
        return AOTICACHE_OK;
    }
    if (status != AOTICACHE_OK || !has_changed || remote->module.is_conditional)
        return status;
    /* This server may have let another machine's record replace this one: check that. */
    status = read_current(remote, key, name, &record, version, &exists, ret_error);
    if (status == AOTICACHE_OK && !has_entry(&record, entry))
        *ret_outcome = record.count > 0 ? HAS_CHANGED : DOES_NOT_COME_BACK;
    aoticache_record_clear(&record);
    return status;
}

static aoticache_status update_record(aoticache_remote *remote, const aoticache_key *key,
                                      const aoticache_record_entry *entry, aoticache_error *ret_error)
{
    enum outcome outcome = IS_DONE;
    for (int i = 0; i < MAX_TRIES; i++) {
        aoticache_status status = try_record(remote, key, entry, &outcome, ret_error);
        if (status != AOTICACHE_OK || outcome == IS_DONE)
            return status;
        const struct timespec pause = {.tv_nsec =
                                           FIRST_PAUSE_NS * (1 + (long)(aoticache_monotonic_ns() % 8) * (i + 1))};
        nanosleep(&pause, NULL);
    }
    return aoticache_error_set(ret_error, AOTICACHE_IO, "remote %s: %s", remote->config.url,
                               outcome == DOES_NOT_COME_BACK
                                   ? "data that was written could not be read back; check for a login page or a proxy"
                                   : "other machines keep changing the record of this key; try again");
}

/* ---- the entry ---- */

static aoticache_status send_manifest(aoticache_cache *cache, aoticache_remote *remote,
                                      const aoticache_digest *artifact, const char *text, size_t size,
                                      const aoticache_manifest *manifest, const aoticache_remote_sending *sending,
                                      aoticache_error *ret_error)
{
    bool has = false;
    cleanup_free char *signatures = NULL;
    if (manifest->content_offset > 0 && size > remote->config.max_object)
        return refuse_size(remote, artifact, size, ret_error);
    aoticache_status status = has_object(remote, artifact, sending, &has, ret_error);
    if (status == AOTICACHE_OK && !has)
        status = send_bytes(remote, artifact, text, size, sending->report, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_remote_signatures(cache, artifact, manifest, sending->signers, sending->signer_count,
                                             &signatures, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const aoticache_record_entry entry = {.artifact = *artifact,
                                          .bytes = size,
                                          .requirements = manifest->requirements,
                                          .guard = manifest->guard,
                                          .signatures = signatures,
                                          .created_ns = manifest->created_ns};
    return update_record(remote, &manifest->key, &entry, ret_error);
}

aoticache_status aoticache_remote_send(aoticache_cache *cache, aoticache_remote *remote,
                                       const aoticache_digest *artifact, const aoticache_remote_sending *sending,
                                       aoticache_error *ret_error)
{
    cleanup_free char *text = NULL;
    size_t size = 0;
    aoticache_manifest *manifest = NULL;
    aoticache_status status = aoticache_object_read(cache->directory, artifact, &text, &size, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "its manifest is missing");
    if (status == AOTICACHE_OK)
        status = aoticache_manifest_parse(text, size, &manifest, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    for (size_t i = 0; status == AOTICACHE_OK && i < aoticache_manifest_object_count(manifest); i++)
        status = send_file(cache, remote, &manifest->files[i], sending, ret_error);
    if (status == AOTICACHE_OK)
        status = send_manifest(cache, remote, artifact, text, size, manifest, sending, ret_error);
    aoticache_manifest_free(manifest);
    return status;
}
