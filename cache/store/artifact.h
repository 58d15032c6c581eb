/*
 * cache/store/artifact: the handle on the product of one compile: open descriptors, in-use locks, the directory of side
 * files. cache.h has its public functions.
 */
#ifndef AOTICACHE_CACHE_STORE_ARTIFACT_H
#define AOTICACHE_CACHE_STORE_ARTIFACT_H

#include "index/query_cache/file_facts.h"
#include "cache/store/directory.h"
#include "cache/store/manifest.h"
#include "cache/store/scratch.h"
#include "index/index.h"

struct aoticache_artifact {
    _Atomic uint32_t references;
    _Atomic int library_fd; /* -1: closed; AOTICACHE_ARTIFACT_FD_UNMADE: of the content, not requested yet */
    _Atomic int copy;       /* the library's bytes in memory, -1: none, taken, or closed */
    int mark_fd;            /* the in-use lock on the library if the file system cannot map it, otherwise -1 */
    void *mark;             /* the in-use lock on the library after its descriptor is closed */
    void **side_marks;      /* mappings of the side files */
    size_t side_mark_count, side_mark_capacity;
    aoticache_artifact_info info;
    int64_t entry_id;          /* 0: not found by an entry, or not stored */
    char *guard;               /* what info.guard points to, or NULL */
    char *directory;           /* what info.directory points to, or NULL */
    aoticache_scratch scratch; /* that directory, if it is removed with the artifact; usually none */
    char *text;                /* the object of a manifest that has the content, otherwise NULL */
    const char *content;       /* in text */
    size_t content_size;
};

#define AOTICACHE_ARTIFACT_FD_UNMADE (-2)

/* Takes ownership of library_fd, on failure too. */
aoticache_status aoticache_artifact_create(int library_fd, const aoticache_digest *digest,
                                           const aoticache_digest *library, uint64_t compile_ns, bool is_stored,
                                           aoticache_artifact **ret_artifact, aoticache_error *ret_error);

/* Sets the guard of a dynamic artifact; NULL and "" for an exact one. OK, NO_MEMORY. */
aoticache_status aoticache_artifact_set_guard(aoticache_artifact *artifact, const char *guard,
                                              aoticache_error *ret_error);

/*
 * Creates the artifact of a manifest `digest` in the store, whose files are open: fds[i] on the object of files[i]. Makes
 * the directory of side files. Takes fds[0] and sets it to -1, on failure too; the caller keeps the other descriptors.
 */
aoticache_status aoticache_artifact_create_opened(aoticache_directory *directory, const aoticache_digest *digest,
                                                  const aoticache_manifest *manifest, int *fds,
                                                  aoticache_artifact **ret_artifact, aoticache_error *ret_error);

/*
 * Creates the artifact of a manifest `digest` whose object is `text`, with the content from content_offset to content_offset
 * + content_size. No file is open or locked as in use, because none is needed. Takes ownership of `text`, on failure too.
 * OK, NO_MEMORY.
 */
aoticache_status aoticache_artifact_create_content(char *text, size_t content_offset, size_t content_size,
                                                   const aoticache_digest *digest, const aoticache_digest *library,
                                                   uint64_t compile_ns, aoticache_artifact **ret_artifact,
                                                   aoticache_error *ret_error);

/*
 * Opens and verifies an entry of the index whose content is in its manifest. The manifest is not parsed: the content is
 * everything after its first line. Also CORRUPT if the index has another offset. index: as that of
 * aoticache_object_open_recorded(). Returns as open_manifest().
 */
aoticache_status aoticache_artifact_open_content(aoticache_directory *directory, const aoticache_index_hit *hit,
                                                 aoticache_index *index, aoticache_artifact **ret_artifact,
                                                 aoticache_error *ret_error);

/* A file of an artifact that is unusable. */
typedef struct aoticache_artifact_part {
    aoticache_digest digest;
    uint64_t bytes; /* as the expected_bytes of aoticache_object_open() */
} aoticache_artifact_part;

/*
 * Opens and verifies all files of a manifest that is stored under `digest`, and makes the directory of side files. index: as
 * that of aoticache_object_open_recorded(). A manifest of which facts are recorded is not read.
 * ret_damaged: on CORRUPT and NOT_FOUND the object concerned, with the size that it should have.
 * Returns: OK, NOT_FOUND, CORRUPT, DENIED (it cannot be read), IO, LOCKED, NO_MEMORY.
 */
aoticache_status aoticache_artifact_open_manifest(aoticache_directory *directory, const aoticache_digest *digest,
                                                  aoticache_index *index, aoticache_artifact **ret_artifact,
                                                  aoticache_artifact_part *ret_damaged, aoticache_error *ret_error);

/* ---- side files (side_files.c) ---- */

/*
 * Finds the directory artifacts/<digest>/ with a hard link for every file under its own name, or creates it if it is missing
 * or stale. If it cannot be created, a temporary directory of symbolic links lives as long as the artifact. fds[i] is open
 * on the object of files[i].
 */
aoticache_status aoticache_artifact_provide_directory(aoticache_directory *directory, aoticache_artifact *artifact,
                                                      const aoticache_manifest_file *files, const int *fds,
                                                      size_t count, aoticache_error *ret_error);

/* ---- the product that a compile hook delivered (product.c) ---- */

/* Reads the caller's product and checks its files. Returns: OK, INVALID. */
aoticache_status aoticache_product_read(const aoticache_product *product, aoticache_product *ret_product,
                                        aoticache_error *ret_error);
/* Opens a file of a product for reading; it must be a regular file. ret_bytes may be NULL. */
aoticache_status aoticache_product_open_file(const aoticache_file *file, bool may_be_empty, int *ret_fd,
                                             uint64_t *ret_bytes, aoticache_error *ret_error);

/*
 * Opens and digests the files of a checked product. With side files, the directory that contains them belongs to the
 * artifact: the scratch directory itself if all of them are directly in it under their names (it is taken over: *scratch is
 * empty afterwards), otherwise a new one under $TMPDIR with links or copies.
 */
aoticache_status aoticache_artifact_create_unstored(const aoticache_product *product, aoticache_scratch *scratch,
                                                    aoticache_artifact **ret_artifact, aoticache_error *ret_error);

#endif
