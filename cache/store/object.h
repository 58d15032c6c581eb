/*
 * cache/store/object: immutable bytes named by their own SHA-256, objects/ab/cdef... with mode 0444.
 *
 * Owns how an object is written, opened, verified, held and removed. The index knows which objects are needed, and callers
 * take the store's lock (cache/store/lock.h).
 *
 * A descriptor that comes from here carries the in-use mark: a shared flock on its open file description, which lives
 * until the last descriptor *and the last mapping* of that description are gone. Whoever removes an object must get that
 * lock exclusively first.
 */
#ifndef AOTICACHE_CACHE_STORE_OBJECT_H
#define AOTICACHE_CACHE_STORE_OBJECT_H

#include "base/digest.h"
#include "cache/store/directory.h"
#include "index/index.h"
#include "cache/store/hash_records.h"

#define AOTICACHE_OBJECT_FOLDER_BYTES 16 /* "objects/ab" */
#define AOTICACHE_OBJECT_NAME_BYTES 63   /* 62 digits */
#define AOTICACHE_OBJECT_PATH_BYTES 96   /* "objects/ab/cdef..." */
#define AOTICACHE_OBJECT_ANY_SIZE UINT64_MAX
#define AOTICACHE_OBJECT_MANIFEST_SIZE (UINT64_MAX - 1) /* any that a manifest may have */
/* Larger libraries are not copied while they are verified: who only looks one up should not pay for its weights. */
#define AOTICACHE_OBJECT_MAX_COPY_BYTES (UINT64_C(64) << 20)
/* No manifest is larger. What is larger need not be read to know that it is none. */
#define AOTICACHE_OBJECT_MAX_MANIFEST_BYTES (UINT64_C(36) << 20)

void aoticache_object_path(const aoticache_digest *digest, char ret_path[AOTICACHE_OBJECT_PATH_BYTES]);

/*
 * Opens an object for reading, marks it as in use, and verifies owner, mode, size and digest on that descriptor.
 *
 * expected_bytes: AOTICACHE_OBJECT_ANY_SIZE if it is not records. It is compared before anything is read, so that a file
 *                 which somebody made large costs nothing.
 * ret_bytes:      may be NULL.
 * Returns: OK; NOT_FOUND (not there, or removed before it was marked); CORRUPT (it was looked at and cannot be used: other
 * bytes or another size, a symbolic link, another's); DENIED (it could not be looked at: no permission, the disk fails;
 * that says nothing of its bytes); IO (this process has no descriptors left; stopped); LOCKED; NO_MEMORY.
 */
aoticache_status aoticache_object_open(aoticache_directory *directory, const aoticache_digest *digest,
                                       uint64_t expected_bytes, int *ret_fd, uint64_t *ret_bytes,
                                       aoticache_error *ret_error);
/* The same, asking now and then whether to go on (NULL: nobody is asked); where not, IO. */
aoticache_status aoticache_object_open_while(aoticache_directory *directory, const aoticache_digest *digest,
                                             uint64_t expected_bytes, aoticache_continue_fn continues, void *user,
                                             int *ret_fd, uint64_t *ret_bytes, aoticache_error *ret_error);

/* The same, for a file that is mapped and not loaded: a large one whose digest is known is not read. known: may be NULL. */
aoticache_status aoticache_object_open_recorded(aoticache_directory *directory, const aoticache_digest *digest,
                                                uint64_t expected_bytes, aoticache_hash_records *records, int *ret_fd,
                                                aoticache_error *ret_error);

/*
 * For those who remove what is unusable: they look at an object without a lock, take the store's lock, and ask whether it is
 * still what they looked at. So no lock is held while anything is read.
 *
 * look: as aoticache_object_open_while(), but keeps nothing open, and takes named_bytes (what the index or a manifest
 * says) by aoticache_object_size_to_expect(). ret_state is for is_as_seen().
 */
typedef struct aoticache_object_state {
    aoticache_status status; /* what look() said */
    struct stat found;       /* of the name */
    bool has_found;          /* else nothing could be said of the name */
} aoticache_object_state;

aoticache_status aoticache_object_look(aoticache_directory *directory, const aoticache_digest *digest,
                                       uint64_t named_bytes, aoticache_continue_fn continues, void *user,
                                       aoticache_object_state *ret_state, aoticache_error *ret_error);
/*
 * The size by which to judge an object before it is read. The index may be wrong where the object is sound, and only the
 * digest tells. So the index is believed only where the file is so much larger (64 MiB) that reading it would take long.
 */
uint64_t aoticache_object_size_to_expect(aoticache_directory *directory, const aoticache_digest *digest,
                                         uint64_t named_bytes);
bool aoticache_object_is_unchanged(aoticache_directory *directory, const aoticache_digest *digest,
                                   const aoticache_object_state *state);
/* Returns whether it is known that nothing has this name. */
bool aoticache_object_is_absent(aoticache_directory *directory, const aoticache_digest *digest);
/* Returns whether an error of open(2) or stat(2) tells of what lies there: a link or a directory, where a file should be.
 * Other errors (permission, descriptors, memory, the disk) tell of nothing but that it could not be looked at. */
bool aoticache_object_errno_is_damage(int errno_value);

/*
 * The same, with a copy in memory of the very bytes that were verified, which nobody else can change.
 * known:    may be NULL.
 * ret_copy: base/memory_file.h, the caller's; -1 where the object has more than AOTICACHE_OBJECT_MAX_COPY_BYTES, the
 * directory makes no copies, or the system has no memory for it.
 */
aoticache_status aoticache_object_open_copied(aoticache_directory *directory, const aoticache_digest *digest,
                                              uint64_t expected_bytes, aoticache_hash_records *records, int *ret_fd,
                                              int *ret_copy, aoticache_error *ret_error);

/* ---- writing (object_put.c) ---- */

/* What a put made or found: an open, marked, verified descriptor, for the caller to close. */
typedef struct aoticache_object {
    aoticache_digest digest;
    uint64_t bytes;
    int fd;
    bool is_new; /* written by this call */
} aoticache_object;

/*
 * Stores what `source_fd` (a regular file) holds; an object that is there already is verified and used, or replaced where
 * it is damaged. Durable on OK. The caller holds the store's lock, shared, until the index names the object.
 * name: of the source, for messages. Returns: OK, INVALID (the source changes meanwhile), IO, DENIED, NO_MEMORY.
 */
aoticache_status aoticache_object_put_fd(aoticache_directory *directory, int source_fd, const char *name,
                                         aoticache_object *ret_object, aoticache_error *ret_error);
aoticache_status aoticache_object_put_bytes(aoticache_directory *directory, const void *bytes, size_t size,
                                            aoticache_object *ret_object, aoticache_error *ret_error);

/* ---- reading, removing, listing ---- */

/* Reads and verifies a whole small object. *ret_bytes is the caller's, with a zero byte after it. Returns as open, and
 * CORRUPT if it is larger than a manifest may be. */
aoticache_status aoticache_object_read(aoticache_directory *directory, const aoticache_digest *digest, char **ret_bytes,
                                       size_t *ret_size, aoticache_error *ret_error);

/* The same, of an object that is known to have so many bytes. CORRUPT if it has not. known: may be NULL. */
aoticache_status aoticache_object_read_sized(aoticache_directory *directory, const aoticache_digest *digest,
                                             uint64_t expected_bytes, aoticache_hash_records *records, char **ret_bytes,
                                             size_t *ret_size, aoticache_error *ret_error);

/*
 * Removes an object. The caller holds the store's lock exclusively and knows that no entry names it.
 * ret_bytes: may be NULL. Returns: OK, NOT_FOUND, LOCKED (a live process holds it; it stays), IO, DENIED.
 */
aoticache_status aoticache_object_remove(aoticache_directory *directory, const aoticache_digest *digest,
                                         uint64_t *ret_bytes, aoticache_error *ret_error);
/* The directory of the object that was removed last, kept open for the next one. Closed by its user. */
typedef struct aoticache_object_folder {
    int fd; /* -1: none */
    uint8_t first;
} aoticache_object_folder;
#define AOTICACHE_OBJECT_FOLDER_INIT {.fd = -1}

/*
 * Removes one of many. Objects of one directory after each other cost the least. is_manifest: removes it even if it is held,
 * because nobody needs a manifest after reading it.
 */
aoticache_status aoticache_object_remove_next(aoticache_directory *directory, aoticache_object_folder *folder,
                                              const aoticache_digest *digest, bool is_manifest, uint64_t *ret_bytes,
                                              aoticache_error *ret_error);
/* Moves an object to quarantine/. The caller holds the store's lock exclusively. OK, NOT_FOUND, IO, DENIED. */
aoticache_status aoticache_object_quarantine(aoticache_directory *directory, const aoticache_digest *digest,
                                             aoticache_error *ret_error);
/* Returns whether a live process holds it, or that cannot be told for want of descriptors. False where it is not there. */
bool aoticache_object_is_held(aoticache_directory *directory, const aoticache_digest *digest);

/* All names below objects/ that are an object's. Return false to stop. Order is that of the file system. */
typedef bool (*aoticache_object_fn)(void *user, const aoticache_digest *digest);
/* A directory that could not be listed, for want of permission or because the disk fails. */
typedef void (*aoticache_object_unreadable_fn)(void *user, const aoticache_error *error);
/* unreadable may be NULL. Returns: OK, IO, DENIED, NO_MEMORY. */
aoticache_status aoticache_object_list(aoticache_directory *directory, aoticache_object_fn callback,
                                       aoticache_object_unreadable_fn unreadable, void *user,
                                       aoticache_error *ret_error);
/* Those of one of the 256 folders. Returns: OK (also where it is not there), IO, DENIED, NO_MEMORY. */
aoticache_status aoticache_object_list_folder(aoticache_directory *directory, uint8_t first,
                                              aoticache_object_fn callback, void *user, aoticache_error *ret_error);

/* A growing array of objects. All zero at first; `items` is released by free(). */
typedef struct aoticache_object_array {
    aoticache_index_object *items;
    size_t count, capacity;
} aoticache_object_array;

/* False where memory is out; the array is as it was then. */
bool aoticache_object_array_add(aoticache_object_array *array, const aoticache_digest *digest, uint64_t bytes);

#endif
