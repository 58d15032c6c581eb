/*
 * cache/transfer/merge: copies the entries of one cache directory to another.
 *
 * Files are copied, never linked: the in-use lock is a lock on an object's inode, and two caches that shared an inode would
 * hold each other's objects. copy_file_range(2) shares the blocks if the file system can. The copy is hashed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/names.h"
#include "base/syscalls.h"
#include "cache/entries.h"
#include "cache/transfer/transfer_internal.h"

#define PIECE_BYTES (1024 * 1024)
/* One call copies at most this much, so that a request to stop is noticed. */
#define COPY_BYTES (UINT64_C(64) << 20)

struct merge {
    aoticache_intake intake;
    aoticache_transfer_report report;
    aoticache_cache *source;
    aoticache_entry_list selection;
    bool cannot_copy_range; /* between these file systems */
    aoticache_status pins_status;
    aoticache_error *ret_error; /* of pins and tags */
};

/* ---- one object ---- */

static aoticache_status refuse_stopped(aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_IO, "stopped; the entries that were complete are stored");
}

static aoticache_status copy_by_reading(struct merge *merge, int from, int to, uint64_t offset, uint64_t bytes,
                                        aoticache_error *ret_error)
{
    cleanup_free char *piece = malloc(PIECE_BYTES);
    if (piece == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to copy an object");
    while (offset < bytes) {
        ssize_t got = pread(from, piece, PIECE_BYTES, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot read an object of %s",
                                             merge->source->directory->path);
        if (got == 0)
            break; /* the digest will show it */
        if (aoticache_syscall_write(to, piece, (size_t)got) != 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot write to %s", merge->intake.scratch.path);
        if (!aoticache_intake_poll(&merge->intake))
            return refuse_stopped(ret_error);
        offset += (uint64_t)got;
    }
    return AOTICACHE_OK;
}

static bool is_unsupported(int errno_value)
{
    return errno_value == EXDEV || errno_value == EINVAL || errno_value == ENOSYS || errno_value == EOPNOTSUPP ||
           errno_value == EPERM;
}

static aoticache_status copy_bytes(struct merge *merge, int from, int to, uint64_t bytes, aoticache_error *ret_error)
{
    uint64_t done = 0;
    while (done < bytes && !merge->cannot_copy_range) {
        const uint64_t left = bytes - done, piece = left < COPY_BYTES ? left : COPY_BYTES;
        ssize_t copied = -1;
        if (aoticache_syscall_hook_ask("write", NULL) == 0 && aoticache_syscall_ask_limit(to, piece) == 0)
            copied = copy_file_range(from, NULL, to, NULL, (size_t)piece, 0);
        if (copied < 0 && errno == EINTR)
            continue;
        if (copied == 0)
            return AOTICACHE_OK; /* it has become shorter: the digest will show it */
        if (copied < 0 && !is_unsupported(errno))
            return aoticache_error_set_errno(ret_error, errno, "cannot write to %s", merge->intake.scratch.path);
        merge->cannot_copy_range = copied < 0;
        done += copied > 0 ? (uint64_t)copied : 0;
        if (!aoticache_intake_poll(&merge->intake))
            return refuse_stopped(ret_error);
    }
    return done < bytes ? copy_by_reading(merge, from, to, done, bytes, ret_error) : AOTICACHE_OK;
}

static void refuse_object(struct merge *merge, const aoticache_digest *digest, const char *reason)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(digest, hex);
    aoticache_intake_refuse(&merge->intake, "object %s of %s: %s", hex, merge->source->directory->path, reason);
}

/* Verifies only its size: the copy will be hashed. NOT_FOUND; CORRUPT or DENIED if it must not be trusted or cannot be read. */
static aoticache_status open_source(struct merge *merge, const aoticache_digest *digest, uint64_t bytes, int *ret_fd,
                                    aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    struct stat found;
    aoticache_object_path(digest, path);
    cleanup_fd int fd = aoticache_directory_openat(merge->source->directory, path, O_RDONLY);
    if (fd < 0 && errno == ENOENT)
        return AOTICACHE_NOT_FOUND;
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        return aoticache_error_set_errno(ret_error, errno, "cannot open %s", path);
    if (fd < 0 || fstat(fd, &found) != 0) {
        aoticache_error_set_errno(ret_error, errno, "it cannot be opened");
        return AOTICACHE_DENIED;
    }
    if (aoticache_directory_trust(merge->source->directory, &found, S_IFREG, path, ret_error) != AOTICACHE_OK)
        return AOTICACHE_CORRUPT;
    if ((uint64_t)found.st_size != bytes)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "it has %lld bytes, but its manifest says %llu",
                                   (long long)found.st_size, (unsigned long long)bytes);
    *ret_fd = steal_fd(&fd);
    return AOTICACHE_OK;
}

/* Copies an object. *ret_good: the copy has the digest; otherwise the reason has been reported. */
static aoticache_status copy_verified(struct merge *merge, const aoticache_digest *digest, int from, uint64_t bytes,
                                      bool *ret_good, aoticache_error *ret_error)
{
    aoticache_digest actual;
    uint64_t size = 0;
    cleanup_fd int to = -1;
    *ret_good = false;
    aoticache_status status = AOTICACHE_OK;
    if (!merge->intake.options->dry_run) {
        status = aoticache_intake_create_file(&merge->intake, digest, &to, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        status = copy_bytes(merge, from, to, bytes, ret_error);
    }
    if (status == AOTICACHE_OK)
        status = aoticache_digest_of_fd_while(to >= 0 ? to : from, aoticache_intake_poll, &merge->intake, &actual,
                                              &size, ret_error);
    if (status == AOTICACHE_OK) {
        *ret_good = aoticache_digest_equal(&actual, digest);
        if (!*ret_good)
            refuse_object(merge, digest, "its bytes do not hash to its name; it is damaged");
    }
    if (*ret_good) {
        const int fd = to >= 0 ? to : from;
        status = aoticache_intake_keep_file(&merge->intake, digest, size, to, ret_error);
        return status == AOTICACHE_OK ? aoticache_intake_note_if_manifest(&merge->intake, digest, fd, size, ret_error)
                                      : status;
    }
    aoticache_intake_discard_file(&merge->intake, digest);
    return status;
}

/* Copies an object if it is missing. *ret_good: it is in the target, or queued. */
static aoticache_status bring_object(struct merge *merge, const aoticache_digest *digest, uint64_t bytes,
                                     bool *ret_good, aoticache_error *ret_error)
{
    cleanup_fd int from = -1;
    aoticache_error detail = {.message = ""};
    aoticache_status status = aoticache_intake_has(&merge->intake, digest, bytes, ret_good, ret_error);
    if (status != AOTICACHE_OK || *ret_good)
        return status;
    status = open_source(merge, digest, bytes, &from, &detail);
    if (status == AOTICACHE_NOT_FOUND || status == AOTICACHE_CORRUPT || status == AOTICACHE_DENIED) {
        refuse_object(merge, digest, status != AOTICACHE_NOT_FOUND ? detail.message : "it is missing");
        return AOTICACHE_OK;
    }
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    return copy_verified(merge, digest, from, bytes, ret_good, ret_error);
}

/* ---- one entry ---- */

static aoticache_status bring_files(struct merge *merge, const aoticache_manifest *manifest, bool *ret_good,
                                    aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    *ret_good = true;
    for (size_t i = 0; status == AOTICACHE_OK && *ret_good && i < aoticache_manifest_object_count(manifest); i++)
        status = bring_object(merge, &manifest->files[i].digest, manifest->files[i].bytes, ret_good, ret_error);
    return status;
}

/* Reads the signatures; the caller frees them with free(). NULL if the entry has none. */
static char *read_signatures(struct merge *merge, const aoticache_digest *artifact)
{
    cleanup_free char *text = NULL;
    aoticache_error detail = {.message = ""};
    if (aoticache_cache_read_signatures(merge->source, artifact, &text, &detail) != AOTICACHE_OK)
        aoticache_log(&merge->source->directory->logger, AOTICACHE_LOG_WARNING,
                      "%s; the entry is copied without signatures", detail.message);
    return text != NULL && text[0] != '\0' ? steal_ptr(&text) : NULL;
}

/* Takes ownership of `manifest`. */
static aoticache_status bring_manifest(struct merge *merge, const aoticache_entry *entry, uint64_t bytes,
                                       aoticache_manifest *manifest, aoticache_error *ret_error)
{
    bool is_good = false;
    aoticache_status status = bring_files(merge, manifest, &is_good, ret_error);
    if (status == AOTICACHE_OK && is_good)
        status = bring_object(merge, &entry->artifact, bytes, &is_good, ret_error);
    if (status != AOTICACHE_OK || !is_good) {
        aoticache_manifest_free(manifest);
        return status;
    }
    char *signatures = read_signatures(merge, &entry->artifact);
    aoticache_intake_entry incoming = {.digest = entry->artifact,
                                       .bytes = bytes,
                                       .manifest = manifest,
                                       .signatures = signatures,
                                       .last_used_ns = entry->last_used_ns,
                                       .uses = entry->uses};
    return aoticache_intake_add_manifest(&merge->intake, &incoming, ret_error);
}

static aoticache_status merge_entry(struct merge *merge, const aoticache_entry *entry, aoticache_error *ret_error)
{
    aoticache_manifest *manifest = NULL;
    uint64_t bytes = 0;
    bool is_wanted = false;
    aoticache_error detail = {.message = ""};
    const aoticache_intake_claim claim = {
        .key = &entry->key, .artifact = &entry->artifact, .requirements = &entry->requirements, .guard = entry->guard};
    aoticache_status status = aoticache_intake_wants_entry(&merge->intake, &claim, &is_wanted, ret_error);
    if (status == AOTICACHE_OK && !is_wanted) {
        cleanup_free char *signatures = read_signatures(merge, &entry->artifact);
        return aoticache_intake_add_signatures(&merge->intake, &entry->artifact, signatures, ret_error);
    }
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_cache_load_manifest(merge->source->directory, &entry->artifact, &manifest, &bytes, &detail);
    if (status == AOTICACHE_NOT_FOUND &&
        aoticache_index_has_object(aoticache_cache_index(merge->source), &entry->artifact, NULL) == AOTICACHE_NOT_FOUND)
        return AOTICACHE_OK; /* removed meanwhile */
    if (status == AOTICACHE_NOT_FOUND || status == AOTICACHE_CORRUPT || status == AOTICACHE_DENIED ||
        status == AOTICACHE_UNSUPPORTED) {
        refuse_object(merge, &entry->artifact, status == AOTICACHE_NOT_FOUND ? "it is missing" : detail.message);
        return AOTICACHE_OK;
    }
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    return bring_manifest(merge, entry, bytes, manifest, ret_error);
}

/* ---- all of them ---- */

static bool merge_pin(void *user, const aoticache_pins *pins)
{
    struct merge *merge = user;
    merge->pins_status = aoticache_transfer_add_pin(&merge->intake, pins, merge->ret_error);
    return merge->pins_status == AOTICACHE_OK;
}

static aoticache_status merge_pins(struct merge *merge, aoticache_error *ret_error)
{
    merge->ret_error = ret_error;
    aoticache_status status =
        aoticache_transfer_list_pins(merge->source, &merge->selection, merge_pin, merge, ret_error);
    return status == AOTICACHE_OK ? merge->pins_status : status;
}

static aoticache_status merge_entries(struct merge *merge, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    merge->intake.all = merge->selection.count;
    for (size_t i = 0; status == AOTICACHE_OK && i < merge->selection.count; i++) {
        status = merge_entry(merge, &merge->selection.entries[i].entry, ret_error);
        if (status == AOTICACHE_OK)
            status = aoticache_intake_step(&merge->intake, ret_error);
    }
    /* As in an import: complete entries stay, and the first of two errors is reported. */
    aoticache_status committed = aoticache_intake_commit(&merge->intake, status == AOTICACHE_OK ? ret_error : NULL);
    return status != AOTICACHE_OK ? status : committed;
}

static aoticache_status run_merge(struct merge *merge, const aoticache_transfer_options *options,
                                  aoticache_error *ret_error)
{
    aoticache_status status = aoticache_transfer_select(merge->source, options, &merge->selection, ret_error);
    if (status == AOTICACHE_OK)
        status = merge_entries(merge, ret_error);
    if (status == AOTICACHE_OK && options->with_marks)
        status = merge_pins(merge, ret_error);
    return status;
}

/* Returns whether other users may write the source: what only this user and root may write is trusted already. */
static bool is_foreign(const aoticache_cache *source)
{
    struct stat found;
    return fstat(source->directory->fd, &found) != 0 || (found.st_uid != geteuid() && found.st_uid != 0) ||
           (found.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

static bool is_same_directory(const aoticache_cache *a, const aoticache_cache *b)
{
    struct stat first, second;
    return fstat(a->directory->fd, &first) == 0 && fstat(b->directory->fd, &second) == 0 &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

aoticache_status aoticache_cache_merge(aoticache_cache *target, aoticache_cache *source,
                                       const aoticache_transfer_options *options, aoticache_transfer_report *ret_report,
                                       aoticache_error *ret_error)
{
    struct merge merge = {.source = source};
    aoticache_transfer_options chosen;
    aoticache_status status = aoticache_transfer_options_read(options, false, &chosen, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (target == NULL || source == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, target, source);
    if (is_same_directory(target, source))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s and %s are the same cache",
                                   source->directory->path, target->directory->path);
    aoticache_cache_enter(target);
    aoticache_cache_enter(source);
    status = aoticache_intake_begin(&merge.intake, target, &chosen, &merge.report, ret_error);
    merge.intake.is_foreign = is_foreign(source);
    merge.intake.place = source->directory->path;
    if (status == AOTICACHE_OK)
        status = run_merge(&merge, &chosen, ret_error);
    aoticache_intake_end(&merge.intake);
    aoticache_entry_list_free(&merge.selection);
    if (!chosen.dry_run)
        aoticache_cache_flush(target, NULL);
    if (ret_report != NULL)
        *ret_report = merge.report;
    return aoticache_cache_index_result(status, ret_error);
}
