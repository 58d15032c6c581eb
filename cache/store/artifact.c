/*
 * cache/store/artifact: the handle on the product of one compile, and opening it through its manifest.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/files/memory_file.h"
#include "base/names.h"
#include "cache/eager_face.h"
#include "cache/entries.h"
#include "cache/cache_internal.h"

/* Any length except 0 maps one page; the memory is never accessed. */
#define MARK_BYTES 1

/*
 * Takes an in-use lock without a descriptor. flock belongs to the open file description, and a mapping keeps that alive
 * after the descriptor is closed: so an in-use lock needs no descriptor (flock(2), "when all duplicates have been closed";
 * the kernel releases the lock in __fput(), which is called with the last reference).
 */
static void *map_mark(int fd)
{
    void *mark = mmap(NULL, MARK_BYTES, PROT_NONE, MAP_PRIVATE, fd, 0);
    return mark != MAP_FAILED ? mark : NULL;
}

aoticache_status aoticache_artifact_create(int library_fd, const aoticache_digest *digest,
                                           const aoticache_digest *library, uint64_t compile_ns, bool is_stored,
                                           aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    aoticache_artifact *artifact = calloc(1, sizeof *artifact);
    if (artifact == NULL) {
        cleanup_fd_release(&library_fd);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    }
    atomic_init(&artifact->references, 1);
    atomic_init(&artifact->library_fd, library_fd);
    atomic_init(&artifact->copy, -1);
    artifact->mark_fd = -1;
    artifact->info.guard = "";
    artifact->info.is_stored = is_stored;
    artifact->info.digest = *digest;
    artifact->info.library = *library;
    artifact->info.compile_ns = compile_ns;
    artifact->scratch = (aoticache_scratch)AOTICACHE_SCRATCH_INIT;
    *ret_artifact = artifact;
    return AOTICACHE_OK;
}

/* Keeps a side file from being collected as long as the artifact lives. The caller keeps the descriptor. */
static aoticache_status artifact_mark_file(aoticache_artifact *artifact, int fd, aoticache_error *ret_error)
{
    if (!AOTICACHE_ARRAY_RESERVE(artifact->side_marks, artifact->side_mark_capacity, artifact->side_mark_count + 1))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    void *mark = map_mark(fd);
    if (mark == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot map a side file");
    artifact->side_marks[artifact->side_mark_count++] = mark;
    return AOTICACHE_OK;
}

aoticache_artifact *aoticache_artifact_ref(aoticache_artifact *artifact)
{
    if (artifact != NULL)
        atomic_fetch_add_explicit(&artifact->references, 1, memory_order_relaxed);
    return artifact;
}

void aoticache_artifact_unref(aoticache_artifact *artifact)
{
    if (artifact == NULL || atomic_fetch_sub_explicit(&artifact->references, 1, memory_order_acq_rel) != 1)
        return;
    int saved = errno;
    int fd = atomic_load(&artifact->library_fd), copy = atomic_load(&artifact->copy);
    if (fd >= 0)
        close(fd);
    if (copy >= 0)
        close(copy);
    if (artifact->mark_fd >= 0)
        close(artifact->mark_fd);
    if (artifact->mark != NULL)
        munmap(artifact->mark, MARK_BYTES);
    for (size_t i = 0; i < artifact->side_mark_count; i++)
        munmap(artifact->side_marks[i], MARK_BYTES);
    aoticache_scratch_remove(&artifact->scratch);
    free(artifact->side_marks);
    free(artifact->text);
    free(artifact->directory);
    free(artifact->guard);
    free(artifact);
    errno = saved;
}

/* ---- content that is in the manifest ---- */

aoticache_status aoticache_artifact_create_content(char *text, size_t content_offset, size_t content_size,
                                                   const aoticache_digest *digest, const aoticache_digest *library,
                                                   uint64_t compile_ns, aoticache_artifact **ret_artifact,
                                                   aoticache_error *ret_error)
{
    aoticache_status status = aoticache_artifact_create(AOTICACHE_ARTIFACT_FD_UNMADE, digest, library, compile_ns, true,
                                                        ret_artifact, ret_error);
    if (status != AOTICACHE_OK) {
        free(text);
        return status;
    }
    (*ret_artifact)->text = text;
    (*ret_artifact)->content = text + content_offset;
    (*ret_artifact)->content_size = content_size;
    return AOTICACHE_OK;
}

aoticache_status aoticache_artifact_open_content(aoticache_directory *directory, const aoticache_index_hit *hit,
                                                 aoticache_index *index, aoticache_artifact **ret_artifact,
                                                 aoticache_error *ret_error)
{
    cleanup_free char *text = NULL;
    size_t size = 0;
    const size_t offset = (size_t)hit->content_offset;
    aoticache_status status = aoticache_object_read_sized(
        directory, &hit->artifact, hit->content_offset + hit->library_bytes, index, &text, &size, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (memchr(text, '\n', size) != text + offset - 1) {
        char hex[AOTICACHE_DIGEST_HEX_BYTES];
        aoticache_digest_to_hex(&hit->artifact, hex);
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "manifest %s: its content does not begin at byte %zu, as the index says", hex,
                                   offset);
    }
    return aoticache_artifact_create_content(steal_ptr(&text), offset, size - offset, &hit->artifact, &hit->library,
                                             hit->compile_ns, ret_artifact, ret_error);
}

const void *aoticache_artifact_content(const aoticache_artifact *artifact, size_t *ret_size)
{
    if (artifact == NULL || artifact->content == NULL)
        return NULL;
    if (ret_size != NULL)
        *ret_size = artifact->content_size;
    return artifact->content;
}

/* Makes the descriptor of the content. Two threads may both make one; the first one is kept. */
static int make_content_fd(aoticache_artifact *artifact)
{
    cleanup_fd int file = aoticache_memory_file_create();
    if (file < 0 || !aoticache_memory_file_write(file, artifact->content, artifact->content_size, 0) ||
        !aoticache_memory_file_seal(file))
        return -1;
    int found = AOTICACHE_ARTIFACT_FD_UNMADE;
    return atomic_compare_exchange_strong(&artifact->library_fd, &found, file) ? steal_fd(&file) : found;
}

/* ---- accessors ---- */

int aoticache_artifact_library_fd(const aoticache_artifact *artifact)
{
    const int fd = artifact != NULL ? atomic_load(&artifact->library_fd) : -1;
    return fd != AOTICACHE_ARTIFACT_FD_UNMADE ? fd : make_content_fd((aoticache_artifact *)artifact);
}

int aoticache_artifact_take_copy(aoticache_artifact *artifact)
{
    return artifact != NULL ? atomic_exchange(&artifact->copy, -1) : -1;
}

void aoticache_artifact_close_files(aoticache_artifact *artifact)
{
    int copy = aoticache_artifact_take_copy(artifact);
    if (copy >= 0)
        close(copy);
    int fd = artifact != NULL ? atomic_exchange(&artifact->library_fd, -1) : -1;
    if (fd < 0)
        return;
    if (artifact->info.is_stored && artifact->content == NULL) {
        artifact->mark = map_mark(fd);
        if (artifact->mark == NULL) {
            artifact->mark_fd = fd;
            return;
        }
    }
    close(fd);
}

const aoticache_artifact_info *aoticache_artifact_get_info(const aoticache_artifact *artifact)
{
    static const aoticache_artifact_info none = {.guard = ""};
    return artifact != NULL ? &artifact->info : &none;
}

int64_t aoticache_artifact_entry(const aoticache_artifact *artifact)
{
    return artifact != NULL ? artifact->entry_id : 0;
}

aoticache_status aoticache_artifact_set_guard(aoticache_artifact *artifact, const char *guard,
                                              aoticache_error *ret_error)
{
    char *copy = NULL;
    if (guard != NULL && guard[0] != '\0' && (copy = strdup(guard)) == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    free(artifact->guard);
    artifact->guard = copy;
    artifact->info.guard = copy != NULL ? copy : "";
    return AOTICACHE_OK;
}

/* ---- opening by manifest ---- */

/* Opens all files; the first one is the library. */
static aoticache_status open_files(aoticache_directory *directory, const aoticache_manifest *manifest,
                                   aoticache_index *index, int *fds, int *ret_copy,
                                   aoticache_artifact_part *ret_damaged, aoticache_error *ret_error)
{
    for (size_t i = 0; i < manifest->file_count; i++) {
        const aoticache_manifest_file *file = &manifest->files[i];
        aoticache_status status =
            i == 0 ? aoticache_object_open_copied(directory, &file->digest, file->bytes, index, &fds[i], ret_copy,
                                                  ret_error)
                   : aoticache_object_open_recorded(directory, &file->digest, file->bytes, index, &fds[i], ret_error);
        if (status != AOTICACHE_OK) {
            *ret_damaged = (aoticache_artifact_part){.digest = file->digest, .bytes = file->bytes};
            return status;
        }
    }
    return AOTICACHE_OK;
}

aoticache_status aoticache_artifact_create_opened(aoticache_directory *directory, const aoticache_digest *digest,
                                                  const aoticache_manifest *manifest, int *fds,
                                                  aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    aoticache_artifact *artifact = NULL;
    aoticache_status status = aoticache_artifact_create(steal_fd(&fds[0]), digest, &manifest->files[0].digest,
                                                        manifest->compile_ns, true, &artifact, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    for (size_t i = 1; status == AOTICACHE_OK && i < manifest->file_count; i++)
        status = artifact_mark_file(artifact, fds[i], ret_error);
    if (status == AOTICACHE_OK && manifest->file_count > 1) {
        fds[0] = artifact->library_fd; /* borrowed */
        status = aoticache_artifact_provide_directory(directory, artifact, manifest->files, fds, manifest->file_count,
                                                      ret_error);
        fds[0] = -1;
    }
    if (status != AOTICACHE_OK)
        aoticache_artifact_unref(artifact);
    else
        *ret_artifact = artifact;
    return status;
}

/* Reads the manifest. ret_text: freed by the caller with free(), if the artifact's content is in it. */
static aoticache_status read_manifest(aoticache_directory *directory, const aoticache_digest *digest,
                                      aoticache_index *index, aoticache_manifest **ret_manifest, char **ret_text,
                                      aoticache_error *ret_error)
{
    cleanup_free char *text = NULL;
    size_t size = 0;
    if ((*ret_manifest = aoticache_manifest_find_fact(index, digest)) != NULL)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_object_read(directory, digest, &text, &size, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_manifest_parse(text, size, ret_manifest, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if ((*ret_manifest)->content_offset > 0)
        *ret_text = steal_ptr(&text);
    else
        aoticache_manifest_note_fact(index, digest, *ret_manifest);
    return AOTICACHE_OK;
}

/* Opens separate files. */
static aoticache_status open_separate(aoticache_directory *directory, const aoticache_digest *digest,
                                      const aoticache_manifest *manifest, aoticache_index *index,
                                      aoticache_artifact **ret_artifact, aoticache_artifact_part *ret_damaged,
                                      aoticache_error *ret_error)
{
    cleanup_fd int copy = -1;
    cleanup_free int *fds = malloc(manifest->file_count * sizeof *fds);
    if (fds == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < manifest->file_count; i++)
        fds[i] = -1;
    aoticache_status status = open_files(directory, manifest, index, fds, &copy, ret_damaged, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_artifact_create_opened(directory, digest, manifest, fds, ret_artifact, ret_error);
    if (status == AOTICACHE_OK)
        atomic_init(&(*ret_artifact)->copy, steal_fd(&copy));
    for (size_t i = 0; i < manifest->file_count; i++)
        cleanup_fd_release(&fds[i]);
    return status;
}

aoticache_status aoticache_artifact_open_manifest(aoticache_directory *directory, const aoticache_digest *digest,
                                                  aoticache_index *index, aoticache_artifact **ret_artifact,
                                                  aoticache_artifact_part *ret_damaged, aoticache_error *ret_error)
{
    aoticache_manifest *manifest = NULL;
    char *text = NULL;
    *ret_damaged = (aoticache_artifact_part){.digest = *digest, .bytes = AOTICACHE_OBJECT_MANIFEST_SIZE};
    aoticache_status status = read_manifest(directory, digest, index, &manifest, &text, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (text != NULL)
        status = aoticache_artifact_create_content(text, manifest->content_offset, (size_t)manifest->files[0].bytes,
                                                   digest, &manifest->files[0].digest, manifest->compile_ns,
                                                   ret_artifact, ret_error);
    else
        status = open_separate(directory, digest, manifest, index, ret_artifact, ret_damaged, ret_error);
    aoticache_manifest_free(manifest);
    return status;
}
