/*
 * cache/transfer/import: imports an untrusted archive, member by member.
 *
 * A member must be a plain file with exactly a name that an export writes; its digest then determines its bytes, and the
 * archive's announced size limits how many are read. The signatures of an entry, which precede its manifest immediately,
 * decide whether it may be imported. Manifests are recognized by their bytes, as when an index is rebuilt: every object that
 * parses as a manifest and has all its objects is an entry.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/names.h"
#include "base/syscalls.h"
#include "cache/transfer/archive.h"
#include "cache/transfer/transfer_internal.h"

/* Objects up to this size are collected in memory, hashed there and written with one call. */
#define SMALL_BYTES (UINT64_C(4) << 20)
/*
 * Allowance for an archive beyond the bytes that it announces: for each object a header, perhaps a second one for a long
 * number, and the padding of the last block; pins and tags of each entry. The bytes themselves may be twice as many and some
 * more, because entries are added and removed while an archive is written.
 */
#define OBJECT_OVERHEAD_BYTES 4096
#define MARK_OVERHEAD_BYTES 8192
#define ANY_OVERHEAD_BYTES (UINT64_C(64) << 20)
#define MANIFEST_FIRST_BYTE '{'
#define SHOWN_PATH_BYTES 200

struct import {
    aoticache_intake intake;
    aoticache_transfer_report report;
    aoticache_tar_reader *reader;
    char *buffer; /* SMALL_BYTES */
    aoticache_transfer_counts head;
    uint64_t objects; /* members that are objects, imported or not */
    int64_t now_ns;
    bool has_head, has_end;
    aoticache_digest signed_manifest; /* manifest of the last signatures that are not used yet */
    char *signatures;                 /* NULL: there are none */
    aoticache_status pins_status;
    aoticache_error *ret_error; /* of pins and tags */
};

/* Makes a path from the archive printable on one line of a log. */
static const char *make_printable(const char *path, char ret_text[SHOWN_PATH_BYTES])
{
    size_t i = 0;
    for (; path != NULL && path[i] != '\0' && i + 1 < SHOWN_PATH_BYTES; i++)
        ret_text[i] = (unsigned char)path[i] < ' ' || (unsigned char)path[i] >= 0x7f ? '?' : path[i];
    ret_text[i] = '\0';
    return path != NULL ? ret_text : "(no name)";
}

/* ---- the bytes of a member ---- */

static aoticache_status write_piece(struct import *import, int fd, const void *piece, size_t size,
                                    aoticache_error *ret_error)
{
    if (aoticache_syscall_write(fd, piece, size) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot write to %s", import->intake.scratch.path);
    if (!aoticache_intake_poll(&import->intake))
        return aoticache_error_set(ret_error, AOTICACHE_IO, "stopped; the entries that were complete are stored");
    return AOTICACHE_OK;
}

/* Reads the whole member into `to`, which has space for it, or if that is NULL, into the file; *ret_got: number of bytes. */
static aoticache_status read_member(struct import *import, char *to, int fd, uint64_t *ret_got,
                                    aoticache_error *ret_error)
{
    const void *piece = NULL;
    size_t size = 0;
    uint64_t got = 0;
    for (;;) {
        aoticache_status status = aoticache_tar_reader_read(import->reader, &piece, &size, ret_error);
        if (status == AOTICACHE_OK && size > 0 && to == NULL)
            status = write_piece(import, fd, piece, size, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        if (size == 0)
            break;
        if (to != NULL)
            memcpy(to + got, piece, size);
        got += size;
    }
    *ret_got = got;
    return AOTICACHE_OK;
}

/* Returns whether the bytes match the digest in the name; if not, that is reported. */
static bool verify_member(struct import *import, const aoticache_tar_member *member, const aoticache_digest *digest,
                          const aoticache_digest *actual, uint64_t got)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES], path[SHOWN_PATH_BYTES];
    if (got == member->bytes && aoticache_digest_equal(digest, actual))
        return true;
    aoticache_digest_to_hex(actual, hex);
    if (got != member->bytes)
        aoticache_intake_refuse(&import->intake, "%s has %llu bytes, but the archive declares %llu",
                                make_printable(member->path, path), (unsigned long long)got,
                                (unsigned long long)member->bytes);
    else
        aoticache_intake_refuse(&import->intake, "%s: its bytes hash to %s", make_printable(member->path, path), hex);
    return false;
}

/* ---- manifests ---- */

/* Returns the signatures that preceded this manifest. NULL if there are none. */
static char *take_signatures(struct import *import, const aoticache_digest *manifest)
{
    bool are_of_it = import->signatures != NULL && aoticache_digest_equal(&import->signed_manifest, manifest);
    return are_of_it ? steal_ptr(&import->signatures) : NULL;
}

/* Refuses signatures whose manifest did not follow: the archive was modified. */
static void refuse_leftover(struct import *import)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    if (import->signatures == NULL)
        return;
    aoticache_digest_to_hex(&import->signed_manifest, hex);
    aoticache_intake_refuse(&import->intake, "the signatures of manifest %s are not followed by that manifest", hex);
    free(steal_ptr(&import->signatures));
}

/* Handles an object that was received, or is in the store: does nothing if it is not a manifest. */
static aoticache_status add_if_manifest(struct import *import, const aoticache_digest *digest, const char *text,
                                        uint64_t bytes, aoticache_error *ret_error)
{
    aoticache_intake_entry entry = {.digest = *digest, .bytes = bytes, .last_used_ns = import->now_ns};
    aoticache_error detail = {.message = ""};
    if (bytes == 0 || bytes > AOTICACHE_OBJECT_MAX_MANIFEST_BYTES || text[0] != MANIFEST_FIRST_BYTE)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_manifest_parse(text, (size_t)bytes, &entry.manifest, &detail);
    if (status == AOTICACHE_OK || status == AOTICACHE_UNSUPPORTED)
        aoticache_intake_note_manifest(&import->intake, digest);
    if (status == AOTICACHE_OK) {
        entry.signatures = take_signatures(import, digest);
        return aoticache_intake_add_manifest(&import->intake, &entry, ret_error);
    }
    if (status == AOTICACHE_UNSUPPORTED) {
        char hex[AOTICACHE_DIGEST_HEX_BYTES];
        aoticache_digest_to_hex(digest, hex);
        aoticache_intake_refuse(&import->intake, "object %s: %s", hex, detail.message);
        return AOTICACHE_OK;
    }
    /* Any other object that begins like a manifest: a side file, which a later manifest may name. */
    return status == AOTICACHE_NO_MEMORY ? aoticache_error_set(ret_error, status, "%s", detail.message) : AOTICACHE_OK;
}

/* Handles a manifest whose entry was removed: its object still exists. */
static aoticache_status add_stored_manifest(struct import *import, const aoticache_digest *digest,
                                            aoticache_error *ret_error)
{
    cleanup_free char *text = NULL;
    size_t size = 0;
    if (!aoticache_cache_may_be_manifest(import->intake.cache->directory, digest))
        return AOTICACHE_OK;
    aoticache_status status = aoticache_object_read(import->intake.cache->directory, digest, &text, &size, ret_error);
    if (status == AOTICACHE_OK)
        return add_if_manifest(import, digest, text, size, ret_error);
    bool is_unusable = status == AOTICACHE_NOT_FOUND || status == AOTICACHE_CORRUPT || status == AOTICACHE_DENIED;
    return is_unusable ? AOTICACHE_OK : status;
}

/* Handles a manifest that was too large for the buffer. */
static aoticache_status add_manifest_in_file(struct import *import, const aoticache_digest *digest, int fd,
                                             uint64_t bytes, aoticache_error *ret_error)
{
    char first = '\0';
    if (bytes > AOTICACHE_OBJECT_MAX_MANIFEST_BYTES || pread(fd, &first, 1, 0) != 1 || first != MANIFEST_FIRST_BYTE)
        return AOTICACHE_OK;
    cleanup_free char *text = malloc((size_t)bytes);
    if (text == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a manifest of %llu bytes",
                                   (unsigned long long)bytes);
    for (uint64_t have = 0; have < bytes;) {
        ssize_t got = pread(fd, text + have, (size_t)(bytes - have), (off_t)have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) /* EIO: it had these bytes a moment ago */
            return aoticache_error_set_errno(ret_error, got < 0 ? errno : EIO, "cannot read from %s",
                                             import->intake.scratch.path);
        have += (uint64_t)got;
    }
    return add_if_manifest(import, digest, text, bytes, ret_error);
}

/* ---- objects ---- */

static aoticache_status keep_object(struct import *import, const aoticache_digest *digest, uint64_t bytes, int fd,
                                    aoticache_error *ret_error)
{
    aoticache_status status = aoticache_intake_keep_file(&import->intake, digest, bytes, fd, ret_error);
    if (status == AOTICACHE_OK)
        aoticache_transfer_table_find(&import->intake.table, digest)->has_come = true;
    return status;
}

static aoticache_status import_small_object(struct import *import, const aoticache_tar_member *member,
                                            const aoticache_digest *digest, aoticache_error *ret_error)
{
    aoticache_digest actual;
    uint64_t got = 0;
    cleanup_fd int fd = -1;
    aoticache_status status = read_member(import, import->buffer, -1, &got, ret_error);
    if (status == AOTICACHE_OK && (status = aoticache_digest_of(import->buffer, (size_t)got, &actual)) != AOTICACHE_OK)
        aoticache_error_set(ret_error, status, "cannot compute the digest of an object");
    if (status != AOTICACHE_OK || !verify_member(import, member, digest, &actual, got))
        return status;
    if (!import->intake.options->dry_run) {
        status = aoticache_intake_create_file(&import->intake, digest, &fd, ret_error);
        if (status == AOTICACHE_OK && aoticache_syscall_write(fd, import->buffer, (size_t)got) != 0) {
            status = aoticache_error_set_errno(ret_error, errno, "cannot write to %s", import->intake.scratch.path);
            aoticache_intake_discard_file(&import->intake, digest);
        }
    }
    if (status == AOTICACHE_OK)
        status = keep_object(import, digest, got, fd, ret_error);
    return status == AOTICACHE_OK ? add_if_manifest(import, digest, import->buffer, got, ret_error) : status;
}

/* Writes the object to a file, which is read again to be hashed: so the written bytes are verified. */
static aoticache_status import_large_object(struct import *import, const aoticache_tar_member *member,
                                            const aoticache_digest *digest, aoticache_error *ret_error)
{
    aoticache_digest actual;
    uint64_t got = 0;
    cleanup_fd int fd = -1;
    bool is_good = false;
    aoticache_status status = aoticache_intake_create_file(&import->intake, digest, &fd, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = read_member(import, NULL, fd, &got, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_digest_of_fd_while(fd, aoticache_intake_poll, &import->intake, &actual, NULL, ret_error);
    if (status == AOTICACHE_OK)
        is_good = verify_member(import, member, digest, &actual, got);
    if (!is_good) {
        aoticache_intake_discard_file(&import->intake, digest);
        return status;
    }
    status = keep_object(import, digest, got, fd, ret_error);
    return status == AOTICACHE_OK ? add_manifest_in_file(import, digest, fd, got, ret_error) : status;
}

/* Decides about an object. ret_wanted: its bytes are to be read. */
static aoticache_status judge_object(struct import *import, const aoticache_tar_member *member,
                                     const aoticache_digest *digest, bool *ret_wanted, aoticache_error *ret_error)
{
    char path[SHOWN_PATH_BYTES];
    bool has = false;
    const aoticache_transfer_object *object = aoticache_transfer_table_find(&import->intake.table, digest);
    *ret_wanted = false;
    if (object != NULL && object->has_come) {
        aoticache_intake_refuse(&import->intake, "%s is in the archive twice", make_printable(member->path, path));
        return AOTICACHE_OK;
    }
    aoticache_status status = AOTICACHE_OK;
    if (!import->intake.options->dry_run)
        status = aoticache_intake_has(&import->intake, digest, member->bytes, &has, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (has) {
        aoticache_transfer_table_find(&import->intake.table, digest)->has_come = true;
        return add_stored_manifest(import, digest, ret_error);
    }
    *ret_wanted = aoticache_intake_has_space(&import->intake, make_printable(member->path, path), member->bytes);
    return AOTICACHE_OK;
}

static aoticache_status import_object(struct import *import, const aoticache_tar_member *member,
                                      const aoticache_digest *digest, aoticache_error *ret_error)
{
    bool is_wanted = false;
    import->objects++;
    aoticache_status status = judge_object(import, member, digest, &is_wanted, ret_error);
    if (status == AOTICACHE_OK && is_wanted)
        status = member->bytes <= SMALL_BYTES ? import_small_object(import, member, digest, ret_error)
                                              : import_large_object(import, member, digest, ret_error);
    return status == AOTICACHE_OK ? aoticache_intake_step(&import->intake, ret_error) : status;
}

/* ---- the other members ---- */

static bool add_pin(void *user, const aoticache_pins *pins)
{
    struct import *import = user;
    import->pins_status = aoticache_transfer_add_pin(&import->intake, pins, import->ret_error);
    return true;
}

static aoticache_status import_pins(struct import *import, const aoticache_key *key, uint64_t size,
                                    aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_error detail = {.message = ""};
    if (!import->intake.options->with_marks)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_intake_commit(&import->intake, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    import->pins_status = AOTICACHE_OK;
    import->ret_error = ret_error;
    status = aoticache_transfer_parse_pin(import->buffer, (size_t)size, key, add_pin, import, &detail);
    aoticache_digest_to_hex(key, hex);
    if (status == AOTICACHE_CORRUPT)
        aoticache_intake_refuse(&import->intake, "the pins and tags of key %s: %s", hex, detail.message);
    else if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    return import->pins_status;
}

/* Keeps signatures until their manifest, with which they are parsed and checked. */
static aoticache_status keep_signatures(struct import *import, const aoticache_digest *manifest, uint64_t size,
                                        aoticache_error *ret_error)
{
    refuse_leftover(import);
    import->signatures = strndup(import->buffer, (size_t)size);
    if (import->signatures == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for signatures");
    import->signed_manifest = *manifest;
    return AOTICACHE_OK;
}

/* Returns the limit for unpacked bytes. The counts are untrusted: more than 64 bits means no limit. */
static uint64_t most_bytes(const aoticache_transfer_counts *head)
{
    uint64_t objects, marks, bytes;
    if (__builtin_mul_overflow(head->objects, OBJECT_OVERHEAD_BYTES, &objects) ||
        __builtin_mul_overflow(head->entries, MARK_OVERHEAD_BYTES, &marks) ||
        __builtin_mul_overflow(head->bytes, 2, &bytes) || __builtin_add_overflow(bytes, objects, &bytes) ||
        __builtin_add_overflow(bytes, marks, &bytes) || __builtin_add_overflow(bytes, ANY_OVERHEAD_BYTES, &bytes))
        return UINT64_MAX;
    return bytes;
}

static aoticache_status read_head(struct import *import, uint64_t size, aoticache_error *ret_error)
{
    aoticache_status status =
        aoticache_transfer_parse_head(import->buffer, (size_t)size, &import->head, &import->intake.offered, ret_error);
    import->has_head = status == AOTICACHE_OK;
    import->intake.all = import->head.objects;
    if (status == AOTICACHE_OK)
        aoticache_tar_reader_expect(import->reader, most_bytes(&import->head));
    return status;
}

static aoticache_status read_end(struct import *import, uint64_t size, aoticache_error *ret_error)
{
    aoticache_transfer_counts counts;
    aoticache_status status = aoticache_transfer_parse_end(import->buffer, (size_t)size, &counts, ret_error);
    if (status == AOTICACHE_OK && counts.objects != import->objects)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "the archive has %llu objects, but its end declares %llu: members are missing",
                                   (unsigned long long)import->objects, (unsigned long long)counts.objects);
    import->has_end = status == AOTICACHE_OK;
    return status;
}

static aoticache_status import_text(struct import *import, aoticache_transfer_kind kind, const aoticache_key *key,
                                    aoticache_error *ret_error)
{
    uint64_t size = 0;
    aoticache_status status = read_member(import, import->buffer, -1, &size, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (kind == AOTICACHE_TRANSFER_IS_HEAD)
        return read_head(import, size, ret_error);
    if (kind == AOTICACHE_TRANSFER_IS_END)
        return read_end(import, size, ret_error);
    if (kind == AOTICACHE_TRANSFER_IS_SIGNATURES)
        return keep_signatures(import, key, size, ret_error);
    return import_pins(import, key, size, ret_error);
}

/* Returns why a member cannot be imported; NULL if it can. */
static const char *reason_against(const struct import *import, const aoticache_tar_member *member,
                                  aoticache_transfer_kind kind)
{
    if (member->oddity != NULL)
        return member->oddity;
    if (kind == AOTICACHE_TRANSFER_IS_FOREIGN)
        return "a name that is not used in archives of kernels";
    if (import->has_end)
        return "a member after the end";
    if (kind == AOTICACHE_TRANSFER_IS_HEAD && import->has_head)
        return "a duplicate";
    if (kind != AOTICACHE_TRANSFER_IS_OBJECT && member->bytes > AOTICACHE_TRANSFER_MAX_TEXT_BYTES)
        return "too large";
    return NULL;
}

static aoticache_status import_member(struct import *import, const aoticache_tar_member *member,
                                      aoticache_error *ret_error)
{
    aoticache_digest digest = {.bytes = {0}};
    char path[SHOWN_PATH_BYTES];
    aoticache_transfer_kind kind = aoticache_transfer_kind_of(member->path, &digest);
    const char *reason = reason_against(import, member, kind);
    if (!import->has_head && (kind != AOTICACHE_TRANSFER_IS_HEAD || reason != NULL))
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "the archive begins with %s, not with " AOTICACHE_TRANSFER_HEAD
                                   ": it was not made by 'aoticache export'",
                                   make_printable(member->path, path));
    if (reason != NULL)
        aoticache_intake_refuse(&import->intake, "%s: %s", make_printable(member->path, path), reason);
    else if (kind == AOTICACHE_TRANSFER_IS_OBJECT)
        return import_object(import, member, &digest, ret_error);
    else
        return import_text(import, kind, &digest, ret_error);
    return AOTICACHE_OK;
}

/* ---- the whole import ---- */

static aoticache_status import_members(struct import *import, aoticache_error *ret_error)
{
    for (;;) {
        aoticache_tar_member member;
        aoticache_status status = aoticache_tar_reader_next(import->reader, &member, ret_error);
        if (status == AOTICACHE_NOT_FOUND)
            break;
        if (status == AOTICACHE_OK)
            status = import_member(import, &member, ret_error);
        if (status == AOTICACHE_OK)
            status = aoticache_tar_reader_skip(import->reader, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    if (!import->has_end)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "the archive is truncated: it has no " AOTICACHE_TRANSFER_END);
    refuse_leftover(import);
    aoticache_intake_refuse_unnamed(&import->intake);
    return AOTICACHE_OK;
}

static aoticache_status run_import(struct import *import, int fd, const aoticache_transfer_options *options,
                                   aoticache_error *ret_error)
{
    import->buffer = malloc(SMALL_BYTES);
    if (import->buffer == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to read an archive");
    aoticache_status status = aoticache_tar_reader_open(fd, options->max_bytes, aoticache_intake_poll, &import->intake,
                                                        &import->reader, ret_error);
    if (status == AOTICACHE_OK)
        status = import_members(import, ret_error);
    /* Entries that were complete before the end or the error stay; the first of two errors is reported. */
    aoticache_status committed = aoticache_intake_commit(&import->intake, status == AOTICACHE_OK ? ret_error : NULL);
    return status != AOTICACHE_OK ? status : committed;
}

aoticache_status aoticache_cache_import(aoticache_cache *cache, int fd, const aoticache_transfer_options *options,
                                        aoticache_transfer_report *ret_report, aoticache_error *ret_error)
{
    struct import import = {.now_ns = aoticache_wall_ns()};
    aoticache_transfer_options chosen;
    aoticache_status status = aoticache_transfer_options_read(options, true, &chosen, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (cache == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache);
    if (fd < 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_import: fd is %d", fd);
    aoticache_cache_enter(cache);
    status = aoticache_intake_begin(&import.intake, cache, &chosen, &import.report, ret_error);
    import.intake.is_foreign = true;
    import.intake.place = "the archive";
    if (status == AOTICACHE_OK)
        status = run_import(&import, fd, &chosen, ret_error);
    free(import.signatures);
    if (import.reader != NULL)
        import.report.archive_bytes = aoticache_tar_reader_bytes(import.reader);
    aoticache_tar_reader_close(import.reader);
    aoticache_intake_end(&import.intake);
    free(import.buffer);
    if (!chosen.dry_run)
        aoticache_cache_flush(cache, NULL);
    if (ret_report != NULL)
        *ret_report = import.report;
    return status;
}
