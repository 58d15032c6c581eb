/*
 * cache/eager_face: functions of the cache that eager/ needs in addition to the public headers.
 *
 * Private to cache/ and eager/.
 */
#ifndef AOTICACHE_CACHE_EAGER_FACE_H
#define AOTICACHE_CACHE_EAGER_FACE_H

#include "cache/cache.h"
#include "cache/entries.h"
#include "cache/judgements.h"

/* ---- entries and requests ---- */

/* Returns the number of the entry through which an artifact was found or as which it was recorded; 0 if there is none (not
 * stored). */
int64_t aoticache_artifact_entry(const aoticache_artifact *artifact);

/* Gives product.metadata of the artifact; the caller frees *ret_text with free(). NOT_FOUND: it has none. */
aoticache_status aoticache_cache_read_metadata(aoticache_cache *cache, const aoticache_digest *artifact,
                                               char **ret_text, aoticache_error *ret_error);

/*
 * Computes the SHA-256 of a regular file, from its beginning. A file of 64 KiB or more that was hashed since boot, and has
 * not changed since, is not read again (docs/formats/store.md, "What was hashed before").
 * Returns: OK, INVALID, IO, NO_MEMORY.
 */
aoticache_status aoticache_cache_digest_file(aoticache_cache *cache, int fd, aoticache_digest *ret_digest,
                                             aoticache_error *ret_error);

/* Like aoticache_cache_list_stored(), for requests that contain `text` in a string. Other requests are skipped unread, so
 * one of many is found fast. */
aoticache_status aoticache_cache_list_stored_with(aoticache_cache *cache, const char *op, const char *text,
                                                  aoticache_stored_fn callback, void *user, aoticache_error *ret_error);

/* Sets whether lookups copy a library while they hash it (aoticache_artifact_take_copy()); initially true. May be called
 * from any thread at any time. */
void aoticache_cache_copy_libraries(aoticache_cache *cache, bool copy);

/* Returns whether the environment of the request has "shapes" set to "dynamic". */
bool aoticache_request_is_dynamic(const aoticache_request *request);

/* Gives the canonical encoding; the caller frees *ret_bytes with free(). */
aoticache_status aoticache_request_encode(const aoticache_request *request, uint8_t **ret_bytes, size_t *ret_size,
                                          aoticache_error *ret_error);

/* ---- use that holders count ---- */

/*
 * Counts `uses` calls that a loaded runner has served without a lookup (excluding the call for which it was looked up and
 * loaded). The counts stay in memory until aoticache_cache_flush(), as all usage counts do. They are added to hits and
 * hits_loaded, not to saved_ns: the lookup that loaded the runner has already counted the saved compile.
 */
void aoticache_cache_note_use(aoticache_cache *cache, int64_t entry_id, uint64_t uses);

/* Counts one load of a library and creation of its runner, which took `ns` in all. */
void aoticache_cache_note_load(aoticache_cache *cache, uint64_t ns);

/* Counts calls that were passed to the host's own kernel because it is faster. */
void aoticache_cache_note_lost(aoticache_cache *cache, uint64_t calls);

/* ---- timing results of holders ---- */

/* Size classes by number of elements: class 0 up to 15, class 1 up to 63, each further class up to four times as many; the
 * last has no limit. */
#define AOTICACHE_SIZE_CLASSES 12
uint32_t aoticache_size_class(uint64_t elements);

/* Returns the kind of this machine's processor: aoticache_judgement.machine. Static storage. */
const char *aoticache_machine_name(void);

/*
 * Records timing results; each replaces the one for the same key, machine, threads and class. is_this_machine is ignored.
 * Does not wait for the disk, and waits for other processes a few milliseconds at most.
 * Returns: OK, INVALID, DENIED (read-only), LOCKED, IO, NO_MEMORY.
 */
aoticache_status aoticache_cache_put_judgements(aoticache_cache *cache, const aoticache_judgement *judgements,
                                                size_t count, aoticache_error *ret_error);

#endif
