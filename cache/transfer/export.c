/*
 * cache/transfer/export: writes the entries of a cache to an archive.
 *
 * All objects of an artifact are opened and verified before its first byte is written, so that a damaged artifact is left
 * out completely. They are written before their manifest, so that a truncated archive contains complete artifacts up to that
 * point.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/names.h"
#include "cache/entries.h"
#include "cache/transfer/archive.h"
#include "cache/transfer/transfer_internal.h"

#define PIECE_BYTES (256 * 1024)
#define DEFAULT_LEVEL 3

struct export
{
    aoticache_cache *cache;
    const aoticache_transfer_options *options;
    aoticache_transfer_report report;
    aoticache_tar_writer *writer;
    aoticache_entry_list selection;
    aoticache_hash_map table; /* PENDING: to be written; STORED: written */
    aoticache_transfer_counts planned;
    char *piece;
    bool is_stopped;
    aoticache_transfer_keys keys; /* of the signers */
    aoticache_status pins_status;
    aoticache_error *ret_error; /* of pins and tags */
};

/* ---- planning ---- */

static aoticache_status plan_entry(struct export *export, const aoticache_entry *entry, aoticache_error *ret_error)
{
    cleanup_free aoticache_index_object *objects = NULL;
    size_t count = 0;
    aoticache_status status = aoticache_index_artifact_objects(aoticache_cache_index(export->cache), &entry->artifact,
                                                               &objects, &count, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        size_t before = export->table.count;
        if (aoticache_transfer_table_add(&export->table, &objects[i].digest) == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a table of objects");
        if (export->table.count > before) {
            export->planned.objects++;
            export->planned.bytes += objects[i].bytes;
        }
    }
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status; /* removed meanwhile */
}

static aoticache_status plan(struct export *export, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_transfer_select(export->cache, export->options, &export->selection, ret_error);
    if (status == AOTICACHE_OK && export->selection.count == 0)
        return AOTICACHE_NOT_FOUND;
    for (size_t i = 0; status == AOTICACHE_OK && i < export->selection.count; i++)
        status = plan_entry(export, &export->selection.entries[i].entry, ret_error);
    export->planned.entries = export->selection.count;
    return status;
}

/* ---- progress ---- */

static bool poll_export(void *user)
{
    struct export *export = user;
    const aoticache_transfer_options *options = export->options;
    if (!export->is_stopped && options->progress != NULL)
        export->is_stopped = !options->progress(options->user, export->report.objects, export->planned.objects);
    return !export->is_stopped;
}

/* ---- members ---- */

static aoticache_status write_text(struct export *export, const char *path, const char *text, size_t size,
                                   aoticache_error *ret_error)
{
    aoticache_status status = aoticache_tar_writer_begin(export->writer, path, size, ret_error);
    return status == AOTICACHE_OK ? aoticache_tar_writer_write(export->writer, text, size, ret_error) : status;
}

static aoticache_status copy_file(struct export *export, int fd, const char *path, uint64_t bytes,
                                  aoticache_error *ret_error)
{
    for (uint64_t offset = 0; offset < bytes;) {
        ssize_t got = pread(fd, export->piece, PIECE_BYTES, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return aoticache_error_set_errno(ret_error, got < 0 ? errno : EIO, "cannot read %s", path);
        if ((uint64_t)got > bytes - offset)
            got = (ssize_t)(bytes - offset);
        aoticache_status status = aoticache_tar_writer_write(export->writer, export->piece, (size_t)got, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        offset += (uint64_t)got;
    }
    return AOTICACHE_OK;
}

static bool is_written(const struct export *export, const aoticache_digest *digest)
{
    const aoticache_transfer_object *object = aoticache_transfer_table_find(&export->table, digest);
    return object != NULL && object->state == AOTICACHE_TRANSFER_STORED;
}

/* Counts an object that has been written. */
static aoticache_status note_written(struct export *export, const aoticache_digest *digest, uint64_t bytes,
                                     aoticache_error *ret_error)
{
    aoticache_transfer_object *object = aoticache_transfer_table_add(&export->table, digest);
    if (object == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a table of objects");
    object->state = AOTICACHE_TRANSFER_STORED;
    export->report.objects++;
    export->report.bytes += bytes;
    if (!poll_export(export))
        return aoticache_error_set(ret_error, AOTICACHE_IO, "stopped; the archive is not complete");
    return AOTICACHE_OK;
}

/* ---- artifacts ---- */

/* An artifact to be written: its manifest, its signatures, and its files open and verified. */
struct artifact {
    aoticache_signature_list signatures;
    char *text;
    size_t size;
    aoticache_manifest *manifest;
    int *fds; /* -1: written before */
};

static void close_artifact(struct artifact *artifact)
{
    for (size_t i = 0; artifact->fds != NULL && i < aoticache_manifest_object_count(artifact->manifest); i++)
        cleanup_fd_release(&artifact->fds[i]);
    free(artifact->fds);
    aoticache_manifest_free(artifact->manifest);
    free(artifact->text);
}

static aoticache_status open_files(struct export *export, struct artifact *artifact, aoticache_error *ret_error)
{
    const aoticache_manifest *manifest = artifact->manifest;
    aoticache_status status = AOTICACHE_OK;
    artifact->fds = calloc(manifest->file_count, sizeof *artifact->fds);
    if (artifact->fds == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the files of an artifact");
    memset(artifact->fds, -1, manifest->file_count * sizeof *artifact->fds);
    for (size_t i = 0; status == AOTICACHE_OK && i < aoticache_manifest_object_count(manifest); i++) {
        const aoticache_manifest_file *file = &manifest->files[i];
        char hex[AOTICACHE_DIGEST_HEX_BYTES];
        if (is_written(export, &file->digest))
            continue;
        status = aoticache_object_open_while(export->cache->directory, &file->digest, file->bytes, poll_export, export,
                                             &artifact->fds[i], NULL, ret_error);
        aoticache_digest_to_hex(&file->digest, hex);
        if (status == AOTICACHE_NOT_FOUND)
            return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "its object %s is missing", hex);
    }
    return status;
}

/* Gives the entry's signatures, and those of the exporting user. */
static aoticache_status sign(struct export *export, const aoticache_digest *digest, struct artifact *artifact,
                             aoticache_error *ret_error)
{
    const aoticache_statement statement = aoticache_statement_of_manifest(digest, artifact->manifest);
    aoticache_error detail = {.message = ""};
    aoticache_status status =
        aoticache_signature_file_read(export->cache->directory, digest, &artifact->signatures, &detail);
    if (status != AOTICACHE_OK)
        aoticache_log(&export->cache->directory->logger, AOTICACHE_LOG_WARNING, "%s; these signatures are left out",
                      detail.message);
    status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < export->options->signer_count; i++) {
        aoticache_signature signature;
        status = aoticache_statement_sign(&statement, export->options->signers[i], &signature, ret_error);
        if (status == AOTICACHE_OK && !aoticache_signature_list_add(&artifact->signatures, &signature))
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "an entry has more than %d signatures",
                                       AOTICACHE_MAX_SIGNATURES);
    }
    return status;
}

static aoticache_status open_artifact(struct export *export, const aoticache_entry *entry, struct artifact *artifact,
                                      aoticache_error *ret_error)
{
    aoticache_status status =
        aoticache_object_read(export->cache->directory, &entry->artifact, &artifact->text, &artifact->size, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "its manifest is missing");
    if (status == AOTICACHE_OK)
        status = aoticache_manifest_parse(artifact->text, artifact->size, &artifact->manifest, ret_error);
    if (status == AOTICACHE_OK)
        status = open_files(export, artifact, ret_error);
    return status == AOTICACHE_OK ? sign(export, &entry->artifact, artifact, ret_error) : status;
}

/* Writes the signatures immediately before the manifest, so that an import has them when it decides about the entry. */
static aoticache_status write_signatures(struct export *export, const aoticache_digest *digest,
                                         const struct artifact *artifact, aoticache_error *ret_error)
{
    char path[AOTICACHE_TRANSFER_PATH_BYTES];
    if (artifact->signatures.count == 0)
        return AOTICACHE_OK;
    cleanup_free char *text = aoticache_signature_list_format(&artifact->signatures);
    if (text == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for signatures");
    aoticache_transfer_signatures_path(digest, path);
    export->report.entries_signed++;
    return write_text(export, path, text, strlen(text), ret_error);
}

static aoticache_status write_artifact(struct export *export, const aoticache_digest *digest,
                                       const struct artifact *artifact, aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < aoticache_manifest_object_count(artifact->manifest); i++) {
        const aoticache_manifest_file *file = &artifact->manifest->files[i];
        if (is_written(export, &file->digest)) /* two files of one artifact may be one object */
            continue;
        aoticache_object_path(&file->digest, path);
        status = aoticache_tar_writer_begin(export->writer, path, file->bytes, ret_error);
        if (status == AOTICACHE_OK)
            status = copy_file(export, artifact->fds[i], path, file->bytes, ret_error);
        if (status == AOTICACHE_OK)
            status = note_written(export, &file->digest, file->bytes, ret_error);
    }
    aoticache_object_path(digest, path);
    if (status == AOTICACHE_OK)
        status = write_signatures(export, digest, artifact, ret_error);
    if (status == AOTICACHE_OK)
        status = write_text(export, path, artifact->text, artifact->size, ret_error);
    if (status == AOTICACHE_OK)
        status = note_written(export, digest, artifact->size, ret_error);
    return status;
}

/* Reports an entry that cannot be exported; an entry that another process has just removed is not an error. */
static void leave_out(struct export *export, const aoticache_entry *entry, aoticache_status status,
                      const aoticache_error *detail)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    if (aoticache_index_has_object(aoticache_cache_index(export->cache), &entry->artifact, NULL) == AOTICACHE_NOT_FOUND)
        return;
    aoticache_digest_to_hex(&entry->artifact, hex);
    export->report.refused++;
    aoticache_log(&export->cache->directory->logger, AOTICACHE_LOG_WARNING,
                  "artifact %s of %.200s is left out: %s; 'aoticache verify%s", hex, entry->op, detail->message,
                  status == AOTICACHE_DENIED ? "' names what cannot be read" : " --repair' removes it");
}

static aoticache_status export_entry(struct export *export, const aoticache_entry *entry, aoticache_error *ret_error)
{
    struct artifact artifact = {.text = NULL};
    aoticache_error detail = {.message = ""};
    if (is_written(export, &entry->artifact))
        return AOTICACHE_OK;
    aoticache_status status = open_artifact(export, entry, &artifact, &detail);
    if (status == AOTICACHE_CORRUPT || status == AOTICACHE_DENIED || status == AOTICACHE_UNSUPPORTED) {
        leave_out(export, entry, status, &detail);
        status = AOTICACHE_OK;
    } else if (status != AOTICACHE_OK) {
        aoticache_error_set(ret_error, status, "%s", detail.message);
    } else {
        status = write_artifact(export, &entry->artifact, &artifact, ret_error);
        export->report.entries += status == AOTICACHE_OK ? 1 : 0;
    }
    close_artifact(&artifact);
    return status;
}

/* ---- pins and tags ---- */

static bool export_pin(void *user, const aoticache_pins *pins)
{
    struct export *export = user;
    char path[AOTICACHE_TRANSFER_PATH_BYTES];
    cleanup_free char *text = NULL;
    aoticache_transfer_pin_path(&pins->key, path);
    export->pins_status = aoticache_transfer_format_pin(pins, &text, export->ret_error);
    if (export->pins_status == AOTICACHE_OK)
        export->pins_status = write_text(export, path, text, strlen(text), export->ret_error);
    export->report.marks += export->pins_status == AOTICACHE_OK ? 1 : 0;
    return export->pins_status == AOTICACHE_OK;
}

static aoticache_status export_pins(struct export *export, aoticache_error *ret_error)
{
    export->ret_error = ret_error;
    aoticache_status status =
        aoticache_transfer_list_pins(export->cache, &export->selection, export_pin, export, ret_error);
    return status == AOTICACHE_OK ? export->pins_status : status;
}

/* ---- the whole export ---- */

static aoticache_status write_head(struct export *export, aoticache_error *ret_error)
{
    cleanup_free char *text = NULL;
    aoticache_status status = aoticache_transfer_format_head(&export->planned, &export->keys, &text, ret_error);
    return status == AOTICACHE_OK ? write_text(export, AOTICACHE_TRANSFER_HEAD, text, strlen(text), ret_error) : status;
}

static aoticache_status write_end(struct export *export, aoticache_error *ret_error)
{
    cleanup_free char *text = NULL;
    aoticache_transfer_counts counts = {
        .entries = export->report.entries, .objects = export->report.objects, .bytes = export->report.bytes};
    aoticache_status status = aoticache_transfer_format_end(&counts, &text, ret_error);
    return status == AOTICACHE_OK ? write_text(export, AOTICACHE_TRANSFER_END, text, strlen(text), ret_error) : status;
}

static aoticache_status write_all(struct export *export, aoticache_error *ret_error)
{
    aoticache_status status = write_head(export, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < export->selection.count; i++)
        status = export_entry(export, &export->selection.entries[i].entry, ret_error);
    if (status == AOTICACHE_OK && export->options->with_marks)
        status = export_pins(export, ret_error);
    if (status == AOTICACHE_OK)
        status = write_end(export, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_tar_writer_finish(export->writer, &export->report.archive_bytes, ret_error);
    return status;
}

static aoticache_status run_export(struct export *export, int fd, aoticache_error *ret_error)
{
    int level = export->options->level != 0 ? export->options->level : DEFAULT_LEVEL;
    aoticache_status status = plan(export, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_tar_writer_open(fd, level, poll_export, export, &export->writer, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    export->piece = malloc(PIECE_BYTES);
    if (export->piece == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to write an archive");
    return write_all(export, ret_error);
}

aoticache_status aoticache_cache_export(aoticache_cache *cache, int fd, const aoticache_transfer_options *options,
                                        aoticache_transfer_report *ret_report, aoticache_error *ret_error)
{
    struct export export = {.cache = cache};
    aoticache_transfer_options chosen;
    aoticache_status status = aoticache_transfer_options_read(options, false, &chosen, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (cache == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache);
    if (fd < 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_export: fd is %d", fd);
    if (chosen.signer_count > AOTICACHE_MAX_SIGNATURES || (chosen.signers == NULL && chosen.signer_count > 0))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "aoticache_cache_export: %zu signers; at most %d are allowed", chosen.signer_count,
                                   AOTICACHE_MAX_SIGNATURES);
    export.options = &chosen;
    for (size_t i = 0; i < chosen.signer_count; i++)
        export.keys.items[export.keys.count++] = *aoticache_secret_key_public(chosen.signers[i]);
    aoticache_cache_enter(cache);
    status = aoticache_trust_check_signers(cache, chosen.signers, chosen.signer_count, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = run_export(&export, fd, ret_error);
    aoticache_tar_writer_close(export.writer);
    aoticache_entry_list_free(&export.selection);
    aoticache_hash_map_free(&export.table);
    free(export.piece);
    if (ret_report != NULL)
        *ret_report = export.report;
    return aoticache_cache_index_result(status, ret_error);
}
