/*
 * cache/store/object: immutable bytes named by their own SHA-256, objects/ab/cdef... with mode 0444.
 *
 * Owns how an object is written, opened, verified, held and removed. The index knows which objects are needed, and callers
 * take the store's lock (cache/store/lock.h).
 *
 * A descriptor from these functions carries the in-use lock: a shared flock on its open file description, which lives until
 * the last descriptor *and the last mapping* of that description are gone. A process that removes an object must first take
 * that lock exclusively.
 */
#ifndef AOTICACHE_CACHE_STORE_OBJECT_H
#define AOTICACHE_CACHE_STORE_OBJECT_H

#include "base/digest.h"
#include "cache/store/directory.h"
#include "index/index.h"
#include "index/query_cache/file_facts.h"

#define AOTICACHE_OBJECT_DIRECTORY_BYTES 16 /* "objects/ab" */
#define AOTICACHE_OBJECT_NAME_BYTES 63      /* 62 digits */
#define AOTICACHE_OBJECT_PATH_BYTES 96      /* "objects/ab/cdef..." */
#define AOTICACHE_OBJECT_ANY_SIZE UINT64_MAX
#define AOTICACHE_OBJECT_MANIFEST_SIZE (UINT64_MAX - 1) /* any size that a manifest may have */
/* Larger libraries are not copied while they are verified: a process that only looks one up should not need memory for its
 * weights. */
#define AOTICACHE_OBJECT_MAX_COPY_BYTES (UINT64_C(64) << 20)
/* No manifest is larger, so a larger object need not be read to know that it is not one. */
#define AOTICACHE_OBJECT_MAX_MANIFEST_BYTES (UINT64_C(36) << 20)

void aoticache_object_path(const aoticache_digest *digest, char ret_path[AOTICACHE_OBJECT_PATH_BYTES]);

/*
 * Opens an object for reading, takes its in-use lock, and verifies owner, mode, size and digest on that descriptor.
 *
 * expected_bytes: AOTICACHE_OBJECT_ANY_SIZE if it is not known. It is compared before anything is read, so that a file that
 *                 was made large costs nothing.
 * ret_bytes:      may be NULL.
 * Returns: OK; NOT_FOUND (missing, or removed before it was locked); CORRUPT (it was examined and cannot be used: other
 * bytes or another size, a symbolic link, owned by another user); DENIED (it could not be examined: no permission, or the
 * disk fails; its bytes may be correct); IO (this process has no descriptors left; stopped); LOCKED; NO_MEMORY.
 */
aoticache_status aoticache_object_open(aoticache_directory *directory, const aoticache_digest *digest,
                                       uint64_t expected_bytes, int *ret_fd, uint64_t *ret_bytes,
                                       aoticache_error *ret_error);
/* Does the same, and periodically calls a function to check whether to continue (may be NULL); if not, returns IO. */
aoticache_status aoticache_object_open_while(aoticache_directory *directory, const aoticache_digest *digest,
                                             uint64_t expected_bytes, aoticache_continue_fn continues, void *user,
                                             int *ret_fd, uint64_t *ret_bytes, aoticache_error *ret_error);

/* Does the same for a file that is mapped and not loaded: a large file whose digest is recorded is not read. index: has
 * the facts about files (index/query_cache/file_facts.h); NULL: the file is hashed, and nothing is recorded. */
aoticache_status aoticache_object_open_recorded(aoticache_directory *directory, const aoticache_digest *digest,
                                                uint64_t expected_bytes, aoticache_index *index, int *ret_fd,
                                                aoticache_error *ret_error);

/*
 * For removing unusable objects: the caller examines an object without a lock, takes the store's lock, and checks that the
 * object is unchanged since. So no lock is held while anything is read.
 *
 * look: as aoticache_object_open_while(), but keeps nothing open, and takes named_bytes (what the index or a manifest
 * says) by aoticache_object_size_to_expect(). ret_state is for is_as_seen().
 */
typedef struct aoticache_object_state {
    aoticache_status status; /* the result of look() */
    struct stat found;       /* of the name */
    bool has_found;          /* otherwise the file of that name could not be examined */
} aoticache_object_state;

aoticache_status aoticache_object_look(aoticache_directory *directory, const aoticache_digest *digest,
                                       uint64_t named_bytes, aoticache_continue_fn continues, void *user,
                                       aoticache_object_state *ret_state, aoticache_error *ret_error);
/*
 * Returns the size with which to compare an object before it is read. The index may be wrong although the object is sound,
 * and only the digest decides. So the index is trusted only if the file is so much larger (64 MiB) that reading it would
 * take long.
 */
uint64_t aoticache_object_size_to_expect(aoticache_directory *directory, const aoticache_digest *digest,
                                         uint64_t named_bytes);
bool aoticache_object_is_unchanged(aoticache_directory *directory, const aoticache_digest *digest,
                                   const aoticache_object_state *state);
/* Returns whether it is certain that nothing has this name. */
bool aoticache_object_is_absent(aoticache_directory *directory, const aoticache_digest *digest);
/* Returns whether an error of open(2) or stat(2) shows that something else than a file has this name: a link or a directory.
 * Other errors (permission, descriptors, memory, the disk) only show that it could not be examined. */
bool aoticache_object_errno_is_damage(int errno_value);

/*
 * Does the same, and makes a copy in memory of the very bytes that were verified, which no other process can change.
 * index:    as above.
 * ret_copy: base/files/memory_file.h, the caller closes it; -1 if the object has more than AOTICACHE_OBJECT_MAX_COPY_BYTES, the
 * directory makes no copies, or memory is short.
 */
aoticache_status aoticache_object_open_copied(aoticache_directory *directory, const aoticache_digest *digest,
                                              uint64_t expected_bytes, aoticache_index *index, int *ret_fd,
                                              int *ret_copy, aoticache_error *ret_error);

/* ---- writing (object_put.c) ---- */

/* The result of a put: an open, locked, verified descriptor, which the caller closes. */
typedef struct aoticache_object {
    aoticache_digest digest;
    uint64_t bytes;
    int fd;
    bool is_new; /* written by this call */
} aoticache_object;

/*
 * Stores the contents of `source_fd` (a regular file); an existing object is verified and used, or replaced if it is
 * damaged. Durable on OK. The caller holds the store's lock, shared, until the index names the object. name: of the source,
 * for messages. Returns: OK, INVALID (the source changes meanwhile), IO, DENIED, NO_MEMORY.
 */
aoticache_status aoticache_object_put_fd(aoticache_directory *directory, int source_fd, const char *name,
                                         aoticache_object *ret_object, aoticache_error *ret_error);
aoticache_status aoticache_object_put_bytes(aoticache_directory *directory, const void *bytes, size_t size,
                                            aoticache_object *ret_object, aoticache_error *ret_error);

/* ---- reading, removing, listing ---- */

/* Reads and verifies a whole small object. The caller frees *ret_bytes, which has a zero byte after it. Returns as open, and
 * CORRUPT if it is larger than a manifest may be. */
aoticache_status aoticache_object_read(aoticache_directory *directory, const aoticache_digest *digest, char **ret_bytes,
                                       size_t *ret_size, aoticache_error *ret_error);

/* Does the same for an object that must have this many bytes. CORRUPT if it does not. index: as above. */
aoticache_status aoticache_object_read_sized(aoticache_directory *directory, const aoticache_digest *digest,
                                             uint64_t expected_bytes, aoticache_index *index, char **ret_bytes,
                                             size_t *ret_size, aoticache_error *ret_error);

/*
 * Removes an object. The caller holds the store's lock exclusively and knows that no entry names it.
 * ret_bytes: may be NULL. Returns: OK, NOT_FOUND, LOCKED (a live process holds it; it stays), IO, DENIED.
 */
aoticache_status aoticache_object_remove(aoticache_directory *directory, const aoticache_digest *digest,
                                         uint64_t *ret_bytes, aoticache_error *ret_error);
/* The directory of the last removed object, kept open for the next one. Its user closes it. */
typedef struct aoticache_object_directory {
    int fd; /* -1: none */
    uint8_t first;
} aoticache_object_directory;
#define AOTICACHE_OBJECT_DIRECTORY_INIT {.fd = -1}

/*
 * Removes one of many. Consecutive objects of one directory cost the least. is_manifest: removes it even if it is held,
 * because a manifest is not needed after it was read.
 */
aoticache_status aoticache_object_remove_next(aoticache_directory *directory, aoticache_object_directory *subdirectory,
                                              const aoticache_digest *digest, bool is_manifest, uint64_t *ret_bytes,
                                              aoticache_error *ret_error);
/* Moves an object to quarantine/. The caller holds the store's lock exclusively. OK, NOT_FOUND, IO, DENIED. */
aoticache_status aoticache_object_quarantine(aoticache_directory *directory, const aoticache_digest *digest,
                                             aoticache_error *ret_error);
/* Returns whether a live process holds it, or whether that cannot be checked because descriptors are short. Returns false if
 * it is missing. */
bool aoticache_object_is_held(aoticache_directory *directory, const aoticache_digest *digest);

/* Lists all names below objects/ that are valid for objects. Return false to stop. The order is that of the file system. */
typedef bool (*aoticache_object_fn)(void *user, const aoticache_digest *digest);
/* Called for a directory that could not be listed, because permission is missing or the disk fails. */
typedef void (*aoticache_object_unreadable_fn)(void *user, const aoticache_error *error);
/* Lists the objects. unreadable may be NULL. Returns: OK, IO, DENIED, NO_MEMORY. */
aoticache_status aoticache_object_list(aoticache_directory *directory, aoticache_object_fn callback,
                                       aoticache_object_unreadable_fn unreadable, void *user,
                                       aoticache_error *ret_error);
/* Lists the objects of one of the 256 directories. Returns: OK (also if it is missing), IO, DENIED, NO_MEMORY. */
aoticache_status aoticache_object_list_directory(aoticache_directory *directory, uint8_t first,
                                                 aoticache_object_fn callback, void *user, aoticache_error *ret_error);

/* A growing array of objects. Initially all zero; free `items` with free(). */
typedef struct aoticache_object_array {
    aoticache_index_object *items;
    size_t count, capacity;
} aoticache_object_array;

/* Returns false if memory is short; the array is then unchanged. */
bool aoticache_object_array_add(aoticache_object_array *array, const aoticache_digest *digest, uint64_t bytes);

#endif
