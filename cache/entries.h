/*
 * cache/entries: what a cache contains: its entries, manifests, compilers' output and remembered failures, and the files of an
 * artifact. For tools, and for bindings that load libraries themselves. The cache is opened with cache/cache.h.
 *
 * Users include <aoticache/admin.h>.
 */
#ifndef AOTICACHE_CACHE_ENTRIES_H
#define AOTICACHE_CACHE_ENTRIES_H

#include "base/base.h"
#include "cache/cache.h"
#include "cache/request/request.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the cache of a process ---- */

/* Gives the default directory, which is used if options.directory is NULL. Returns: OK, or NOT_FOUND if $HOME is unset too. */
AOTICACHE_API aoticache_status aoticache_cache_default_directory(char *ret_path, size_t size,
                                                                 aoticache_error *ret_error);

/*
 * Writes the counts as aoticache_cache_close() does, and merges the index's log if it has grown, so that the next process
 * opens the index fast. For a program that ends and cannot close the cache because its threads may still use it. The cache
 * stays usable; kernels compiled after this call are not sent to a remote automatically.
 */
AOTICACHE_API void aoticache_cache_at_exit(aoticache_cache *cache);

/* ---- the files of an artifact ---- */

/*
 * Returns the descriptor of the library, open for reading. The bytes were verified against their digest on this very
 * descriptor. Borrowed: aoticache_artifact_close_files() or the last unref closes it. -1 after it is closed.
 *
 * If aoticache_artifact_content() has the bytes, the descriptor is that of a sealed file in memory with a copy of them,
 * which the first call makes; -1 with errno if that is not possible.
 */
AOTICACHE_API int aoticache_artifact_library_fd(const aoticache_artifact *artifact);

/*
 * Returns the library's bytes in memory if the artifact keeps them in its manifest (aoticache_product.in_manifest): the very
 * bytes that were hashed. Borrowed from the artifact, until its last unref. NULL if the library is a separate object.
 */
AOTICACHE_API const void *aoticache_artifact_content(const aoticache_artifact *artifact, size_t *ret_size);

/*
 * Returns a file in memory with the library's bytes as they were hashed, even if the object is changed later; for
 * aoticache_load_options.copy. The caller then owns the descriptor. -1: there is none (the artifact was just compiled, its
 * library has more than 64 MiB, memory is short, the cache makes no copies), or it was taken already.
 */
AOTICACHE_API int aoticache_artifact_take_copy(aoticache_artifact *artifact);

/*
 * Closes the descriptors and the copy, for processes with many libraries. The artifact stays protected from collection.
 */
AOTICACHE_API void aoticache_artifact_close_files(aoticache_artifact *artifact);

/* ---- fetching and forgetting ---- */

/*
 * Fetches an entry for a request from the remotes (cache/remote/remote.h) if the cache has none, so that a later call
 * needs neither network nor compiler. The request must be for exact shapes. Nothing is compiled, and no hit is counted.
 *
 * ret_fetched: may be NULL; false if the cache had it already.
 * Returns: OK, NOT_FOUND (no remote has an entry that this machine may run, or none answers), INVALID, IO, DENIED (the
 *          directory cannot be written), LOCKED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_cache_prefetch(aoticache_cache *cache, const aoticache_request *request,
                                                        bool *ret_fetched, aoticache_error *ret_error);

/* Forgets remembered failures: of this key, or all if key is NULL. */
AOTICACHE_API aoticache_status aoticache_cache_forget_failures(aoticache_cache *cache, const aoticache_key *key,
                                                               aoticache_error *ret_error);

/* ---- listing and inspecting the contents ---- */

/* One entry, for tools and for display. Pointers are borrowed during the callback. */
typedef struct aoticache_entry {
    aoticache_key key;
    aoticache_digest artifact; /* digest of the manifest */
    aoticache_digest library;
    const char *op;
    const char *device;
    const char *description; /* aoticache_request_format() */
    const char *producer;
    aoticache_cpu_features requirements;
    uint64_t bytes; /* of all objects of the artifact, including the manifest */
    uint64_t compile_ns;
    int64_t created_ns;   /* wall clock */
    int64_t last_used_ns; /* wall clock; as of the last flush (aoticache_cache_flush_deferred()) */
    uint64_t uses;
    const char *guard; /* "" for an exact entry */
} aoticache_entry;

/* Return false to stop. */
typedef bool (*aoticache_entry_fn)(void *user, const aoticache_entry *entry);

/*
 * Lists all entries, sorted by operator, and for each operator in the order in which they were stored.
 *
 * op:     only this operator; may be NULL.
 * prefix: only entries whose key, artifact or library has a hexadecimal digest with this prefix; may be NULL.
 *
 * Entries are read in batches, so memory is bounded and no other thread or process waits for a slow callback. The callback
 * may use and change the cache. Entries that are added or removed meanwhile may or may not be listed.
 * Returns: OK, INVALID, IO, LOCKED, NO_MEMORY, CORRUPT.
 */
AOTICACHE_API aoticache_status aoticache_cache_list(aoticache_cache *cache, const char *op, const char *prefix,
                                                    aoticache_entry_fn callback, void *user,
                                                    aoticache_error *ret_error);

/* ---- the entries of one operator, for a holder that fills its table ---- */

/* An entry with the request that it answers. Pointers are borrowed during the callback. */
typedef struct aoticache_stored {
    int64_t entry_id;
    aoticache_key key;
    aoticache_digest artifact;
    const aoticache_request *request;
    const char *guard; /* "" for an exact entry */
    uint64_t compile_ns;
} aoticache_stored;

/* Return false to stop. */
typedef bool (*aoticache_stored_fn)(void *user, const aoticache_stored *stored);

/*
 * Lists the entries of an operator (by its exact name) whose requirements this machine meets, from the index alone. For each
 * key the most demanding come first, then the newest.
 *
 * after_entry: only entries with a higher number; 0 for all. Numbers only grow, so a caller that keeps the highest one can
 *              list the entries added since.
 * Returns: OK, INVALID, NO_MEMORY, IO, LOCKED.
 */
AOTICACHE_API aoticache_status aoticache_cache_list_stored(aoticache_cache *cache, const char *op, int64_t after_entry,
                                                           aoticache_stored_fn callback, void *user,
                                                           aoticache_error *ret_error);

/*
 * Opens and verifies an entry that list_stored() listed, as a lookup does. Hits and damage are counted. An entry that has
 * been removed is not counted as a miss, because the lookup by its key that follows counts one.
 * Returns: as aoticache_cache_lookup(); also NOT_FOUND if the entry has been removed meanwhile.
 */
AOTICACHE_API aoticache_status aoticache_cache_open_stored(aoticache_cache *cache, int64_t entry_id,
                                                           const aoticache_digest *artifact,
                                                           aoticache_artifact **ret_artifact,
                                                           aoticache_error *ret_error);

/* Reads the compiler's output from the artifact's compile; the caller frees *ret_text with free(). NOT_FOUND: none was
 * stored. */
AOTICACHE_API aoticache_status aoticache_cache_read_output(aoticache_cache *cache, const aoticache_digest *artifact,
                                                           char **ret_text, aoticache_error *ret_error);

/* A remembered failure. Pointers are borrowed during the callback. */
typedef struct aoticache_failure {
    aoticache_key key;
    const char *op;
    const char *description;
    const char *message;
    int64_t failed_ns;
    /* Wall clock: when the compile may be tried again. If failed_ns is in the future, the clock was wrong: retry_ns is
     * then the current time. */
    int64_t retry_ns;
    uint32_t count; /* number of consecutive failures */
} aoticache_failure;
typedef bool (*aoticache_failure_fn)(void *user, const aoticache_failure *failure);
AOTICACHE_API aoticache_status aoticache_cache_list_failures(aoticache_cache *cache, aoticache_failure_fn callback,
                                                             void *user, aoticache_error *ret_error);

/* Reads the JSON text of an artifact's manifest (docs/formats/store.md); the caller frees *ret_text with free().
 * NOT_FOUND, CORRUPT, DENIED (it cannot be read). */
AOTICACHE_API aoticache_status aoticache_cache_read_manifest(aoticache_cache *cache, const aoticache_digest *artifact,
                                                             char **ret_text, aoticache_error *ret_error);

/* Opens and verifies the artifact of an entry, whatever this CPU can run (to inspect it). */
AOTICACHE_API aoticache_status aoticache_cache_open_artifact(aoticache_cache *cache, const aoticache_digest *artifact,
                                                             aoticache_artifact **ret_artifact,
                                                             aoticache_error *ret_error);

/* Removes the entries of a key, and the objects that no other entry names and no process holds. NOT_FOUND if there are none. */
AOTICACHE_API aoticache_status aoticache_cache_remove(aoticache_cache *cache, const aoticache_key *key,
                                                      aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif

#endif
