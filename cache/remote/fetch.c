/*
 * cache/remote/fetch: fetches one entry from a remote into an import batch (cache/transfer/transfer_internal.h).
 *
 * The manifest is fetched first and is small. It is verified, and decides whether the entry may be imported, before its
 * files are requested. A file is unpacked into the batch's private directory, never beyond its size in the manifest, and
 * hashed there. The import batch makes everything durable and visible as for an archive.
 */
#include "cache/remote/remote_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/names.h"
#include "base/syscalls.h"

aoticache_status aoticache_remote_read_record(aoticache_remote *remote, const aoticache_key *key,
                                              aoticache_record *ret_record, aoticache_error *ret_error)
{
    char name[AOTICACHE_REMOTE_NAME_BYTES];
    cleanup_free char *text = NULL;
    size_t size = 0;
    aoticache_error detail = {.message = ""};
    aoticache_remote_record_name(key, name);
    aoticache_status status = aoticache_remote_get_text(remote, AOTICACHE_REMOTE_READ, name, AOTICACHE_RECORD_MAX_BYTES,
                                                        &text, &size, NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_record_parse(text, size, key, ret_record, &detail);
    return status == AOTICACHE_OK
               ? status
               : aoticache_error_set(ret_error, status, "remote %s: %s: %s", remote->config.url, name, detail.message);
}

/* ---- objects ---- */

static void refuse_object(aoticache_intake *intake, const aoticache_remote *remote, const aoticache_digest *digest,
                          const char *reason)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(digest, hex);
    aoticache_intake_refuse(intake, "object %s of remote %s: %s", hex, remote->config.url, reason);
}

/*
 * Unpacks an object to a descriptor, or into memory with `bytes` of space. *ret_good: exactly that many bytes were received;
 * otherwise the object was refused, or does not exist any longer. OK; IO and DENIED (the remote, or the disk here),
 * NO_MEMORY, UNSUPPORTED.
 */
static aoticache_status unpack(aoticache_intake *intake, aoticache_remote *remote, const aoticache_digest *digest,
                               uint64_t bytes, int fd, uint8_t *memory, bool *ret_good, aoticache_error *ret_error)
{
    char name[AOTICACHE_REMOTE_NAME_BYTES];
    aoticache_unpacker *unpacker = NULL;
    aoticache_error detail = {.message = ""};
    *ret_good = false;
    aoticache_remote_object_name(digest, name);
    aoticache_status status = aoticache_unpacker_create(fd, memory, bytes, &unpacker, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (remote->config.is_bazel && aoticache_unpacker_take_plain(unpacker, "", 0)) /* an empty object brings no bytes */
        status = aoticache_remote_get(remote, AOTICACHE_REMOTE_READ, name, bytes, aoticache_unpacker_take_plain,
                                      unpacker, NULL, ret_error);
    else
        status = aoticache_remote_get(remote, AOTICACHE_REMOTE_READ, name, aoticache_zstd_bound(bytes),
                                      aoticache_unpacker_take, unpacker, NULL, ret_error);
    const aoticache_status finished = aoticache_unpacker_finish(unpacker, &detail);
    const bool has_refused = aoticache_unpacker_has_refused(unpacker); /* before the end, so the request was stopped */
    aoticache_unpacker_free(unpacker);
    if (status == AOTICACHE_NOT_FOUND) {
        intake->report->entries_gone++;
        return AOTICACHE_OK;
    }
    if (status == AOTICACHE_OK && finished == AOTICACHE_OK) {
        *ret_good = true;
        return AOTICACHE_OK;
    }
    if (finished == AOTICACHE_IO)
        return aoticache_error_set(ret_error, finished, "%s", detail.message);
    if (status == AOTICACHE_OK || has_refused) {
        refuse_object(intake, remote, digest, detail.message);
        return AOTICACHE_OK;
    }
    return status;
}

static aoticache_status verify_file(aoticache_intake *intake, aoticache_remote *remote, const aoticache_digest *digest,
                                    int fd, bool *ret_good, aoticache_error *ret_error)
{
    aoticache_digest actual;
    uint64_t size = 0;
    aoticache_status status =
        aoticache_digest_of_fd_while(fd, aoticache_intake_poll, intake, &actual, &size, ret_error);
    *ret_good = status == AOTICACHE_OK && aoticache_digest_equal(&actual, digest);
    if (status == AOTICACHE_OK && !*ret_good)
        refuse_object(intake, remote, digest, "its bytes do not hash to its name");
    if (*ret_good)
        status = aoticache_intake_keep_file(intake, digest, size, fd, ret_error);
    return *ret_good && status == AOTICACHE_OK ? aoticache_intake_note_if_manifest(intake, digest, fd, size, ret_error)
                                               : status;
}

/* Fetches a file. *ret_good: it is in the store, or queued for import. */
static aoticache_status bring_file(aoticache_intake *intake, aoticache_remote *remote,
                                   const aoticache_manifest_file *file, bool *ret_good, aoticache_error *ret_error)
{
    cleanup_fd int fd = -1;
    aoticache_status status = aoticache_intake_has(intake, &file->digest, file->bytes, ret_good, ret_error);
    if (status != AOTICACHE_OK || *ret_good)
        return status;
    if (file->bytes > remote->config.max_object) {
        refuse_object(intake, remote, &file->digest, "it exceeds max-object of the remote");
        return AOTICACHE_OK;
    }
    if (!aoticache_intake_has_space(intake, file->name, file->bytes))
        return AOTICACHE_OK;
    status = aoticache_intake_create_file(intake, &file->digest, &fd, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = unpack(intake, remote, &file->digest, file->bytes, fd, NULL, ret_good, ret_error);
    if (status == AOTICACHE_OK && *ret_good)
        status = verify_file(intake, remote, &file->digest, fd, ret_good, ret_error);
    if (status != AOTICACHE_OK || !*ret_good)
        aoticache_intake_discard_file(intake, &file->digest);
    return status;
}

/* ---- the manifest ---- */

/* Fetches the manifest. *ret_text: verified, freed with free(); NULL if it was refused. */
static aoticache_status bring_manifest(aoticache_intake *intake, aoticache_remote *remote,
                                       const aoticache_record_entry *entry, char **ret_text, aoticache_error *ret_error)
{
    aoticache_digest actual;
    bool is_good = false;
    cleanup_free char *text = malloc((size_t)entry->bytes + 1);
    if (text == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a manifest");
    aoticache_status status =
        unpack(intake, remote, &entry->artifact, entry->bytes, -1, (uint8_t *)text, &is_good, ret_error);
    if (status != AOTICACHE_OK || !is_good)
        return status;
    status = aoticache_digest_of(text, (size_t)entry->bytes, &actual);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "cannot compute a digest");
    if (!aoticache_digest_equal(&actual, &entry->artifact)) {
        refuse_object(intake, remote, &entry->artifact, "its bytes do not hash to its name");
        return AOTICACHE_OK;
    }
    *ret_text = steal_ptr(&text);
    return AOTICACHE_OK;
}

/* Adds the manifest to the import batch as an object. */
static aoticache_status keep_manifest(aoticache_intake *intake, const aoticache_record_entry *entry, const char *text,
                                      aoticache_error *ret_error)
{
    cleanup_fd int fd = -1;
    bool has = false;
    aoticache_status status = aoticache_intake_has(intake, &entry->artifact, entry->bytes, &has, ret_error);
    if (status != AOTICACHE_OK || has)
        return status;
    status = aoticache_intake_create_file(intake, &entry->artifact, &fd, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (aoticache_syscall_write(fd, text, (size_t)entry->bytes) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot write in %s", intake->scratch.path);
    status = aoticache_intake_keep_file(intake, &entry->artifact, entry->bytes, fd, ret_error);
    if (status == AOTICACHE_OK)
        aoticache_intake_note_manifest(intake, &entry->artifact);
    return status;
}

/* Decides about the entry. *ret_good: it may be imported. */
static aoticache_status judge(aoticache_intake *intake, aoticache_remote *remote, const aoticache_key *key,
                              const aoticache_record_entry *entry, const aoticache_manifest *manifest, bool *ret_good,
                              aoticache_error *ret_error)
{
    aoticache_trust_verdict verdict;
    *ret_good = false;
    if (!aoticache_digest_equal(&manifest->key, key)) {
        refuse_object(intake, remote, &entry->artifact, "it is for another key than the requested one");
        return AOTICACHE_OK;
    }
    if (manifest->content_offset > 0 && entry->bytes > remote->config.max_object) {
        refuse_object(intake, remote, &entry->artifact, "it exceeds max-object of the remote");
        return AOTICACHE_OK;
    }
    aoticache_status status = aoticache_remote_decide(intake->cache, remote, &entry->artifact, manifest,
                                                      entry->signatures, key, &verdict, ret_error);
    *ret_good = status == AOTICACHE_OK && verdict.is_accepted;
    if (status == AOTICACHE_OK && !*ret_good)
        aoticache_intake_refuse_untrusted(intake, &verdict, key);
    return status;
}

/* Takes ownership of `manifest`. */
static aoticache_status bring_files(aoticache_intake *intake, aoticache_remote *remote,
                                    const aoticache_record_entry *entry, const char *text, aoticache_manifest *manifest,
                                    bool *ret_good, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && *ret_good && i < aoticache_manifest_object_count(manifest); i++)
        status = bring_file(intake, remote, &manifest->files[i], ret_good, ret_error);
    if (status == AOTICACHE_OK && *ret_good)
        status = keep_manifest(intake, entry, text, ret_error);
    if (status != AOTICACHE_OK || !*ret_good) {
        aoticache_manifest_free(manifest);
        return status;
    }
    const aoticache_intake_entry incoming = {.digest = entry->artifact,
                                             .bytes = entry->bytes,
                                             .manifest = manifest,
                                             .signatures =
                                                 entry->signatures[0] != '\0' ? strdup(entry->signatures) : NULL,
                                             .last_used_ns = aoticache_wall_ns()};
    if (incoming.signatures == NULL && entry->signatures[0] != '\0') {
        aoticache_intake_free_entry(&incoming);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for signatures");
    }
    return aoticache_intake_add_manifest(intake, &incoming, ret_error);
}

aoticache_status aoticache_remote_fetch(aoticache_intake *intake, aoticache_remote *remote, const aoticache_key *key,
                                        const aoticache_record_entry *entry, bool *ret_good, aoticache_error *ret_error)
{
    cleanup_free char *text = NULL;
    aoticache_manifest *manifest = NULL;
    aoticache_error detail = {.message = ""};
    *ret_good = false;
    aoticache_status status = bring_manifest(intake, remote, entry, &text, ret_error);
    if (status != AOTICACHE_OK || text == NULL)
        return status;
    status = aoticache_manifest_parse(text, (size_t)entry->bytes, &manifest, &detail);
    if (status == AOTICACHE_CORRUPT || status == AOTICACHE_UNSUPPORTED) {
        refuse_object(intake, remote, &entry->artifact, detail.message);
        return AOTICACHE_OK;
    }
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    status = judge(intake, remote, key, entry, manifest, ret_good, ret_error);
    if (status == AOTICACHE_OK && *ret_good)
        return bring_files(intake, remote, entry, text, manifest, ret_good, ret_error);
    aoticache_manifest_free(manifest);
    return status;
}
