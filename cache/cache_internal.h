/*
 * cache/cache_internal: the members of an aoticache_cache, and the functions that its parts share.
 *
 * Private. Members that change after opening are atomic, or a comment names their mutex.
 */
#ifndef AOTICACHE_CACHE_INTERNAL_H
#define AOTICACHE_CACHE_INTERNAL_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "cache/store/artifact.h"
#include "cache/cache.h"
#include "cache/store/directory.h"
#include "cache/store/object.h"
#include "cache/stats/stats_internal.h"
#include "cache/trust/trust_internal.h"
#include "index/index.h"

/* An opened index. Older ones stay open until the cache closes, because other threads may be using them. */
typedef struct aoticache_open_index {
    aoticache_index *index;
    struct aoticache_open_index *older;
    dev_t device; /* of the file, to notice that another process has replaced it */
    ino_t inode;
} aoticache_open_index;

struct aoticache_remotes;

struct aoticache_cache {
    aoticache_directory *directory;
    struct aoticache_remotes *remotes; /* cache/remote/; NULL: none is configured */
    uint32_t compile_timeout_ms;
    uint32_t failure_ttl_seconds;
    uint32_t failure_max_ttl_seconds;        /* not less than failure_ttl_seconds */
    _Atomic pid_t pid;                       /* the process that may use the members below (enter.c) */
    _Atomic(aoticache_open_index *) current; /* NULL: the cache is read-only, and there is no usable index */
    aoticache_trust trust;                   /* which signatures are trusted (trust/trust.c) */
    pthread_mutex_t index_mutex;             /* held by the thread that replaces `current` */
    aoticache_unflushed unflushed;
    _Atomic bool has_warned_not_stored, has_warned_unreadable;
    bool may_use_reserve; /* store/reserve.c */
    bool hash_always;     /* facts about files are neither trusted nor recorded */
    _Atomic bool has_tried_reserve, has_given_up_reserve;
    uint64_t max_bytes, max_entries;  /* the budget; 0: no limit */
    size_t round;                     /* entries in a round of a collection; 0: the default. Set by tests */
    _Atomic bool is_shrinking;        /* the budget was exceeded, and the low watermark is not reached yet */
    _Atomic uint64_t shrink_after_ns; /* monotonic: until then no put collects, because nothing can be removed */
};

/* ---- called first by every function (enter.c) ---- */

/* Prepares the cache for a call; every public function calls this first. In the child of a fork it empties counters and
 * recency: what the parent has not flushed stays with the parent. */
void aoticache_cache_enter(aoticache_cache *cache);

/* Returns the index to use now, or NULL if there is none. */
aoticache_index *aoticache_cache_index(aoticache_cache *cache);

/* Returns OK, or DENIED with the reason if the cache cannot be written. */
aoticache_status aoticache_cache_check_writable(const aoticache_cache *cache, aoticache_error *ret_error);

/* ---- the current index (store/recovery.c) ---- */

#define AOTICACHE_INDEX_PATH_BYTES (PATH_MAX + 32)
/* Returns the options that open the index in exactly the directory that was checked. path: a buffer for its name in
 * messages. */
aoticache_index_options aoticache_cache_index_options(const aoticache_directory *directory,
                                                      char path[AOTICACHE_INDEX_PATH_BYTES]);
/* Opens the index for the first time. A damaged or missing index is rebuilt. */
aoticache_status aoticache_cache_open_index(aoticache_cache *cache, aoticache_error *ret_error);

/*
 * Controls a loop around calls of the index: `do status = aoticache_index_lookup(index, ...);
 * while (aoticache_cache_recovered(cache, status, &index));`. Returns true if `status` was CORRUPT and a sound index is now
 * in *index, or if it was IO and another process has replaced the index, which is then open in *index.
 */
bool aoticache_cache_recovered(aoticache_cache *cache, aoticache_status status, aoticache_index **index);
/* Converts a result of the index for the cache's caller: CORRUPT (an index that could not be recovered) becomes IO, in the
 * detail too. */
aoticache_status aoticache_cache_index_result(aoticache_status status, aoticache_error *error);

/* Returns whether the open index is still the one in the directory. */
bool aoticache_cache_index_is_current(aoticache_cache *cache);
/* Reopens the index if another process has replaced or deleted it. Returns true if *index has changed. Takes the store's
 * lock if it has to build an index. */
bool aoticache_cache_refreshed(aoticache_cache *cache, aoticache_index **index);

/* Tries to write. *ret_is_stale: the index was replaced before the store's lock was acquired, and nothing is done. */
typedef aoticache_status (*aoticache_cache_write_fn)(void *user, aoticache_index *index, bool *ret_is_stale,
                                                     aoticache_error *ret_error);
/* Writes to the current index: tries again if it is replaced meanwhile, or damaged. The result is for the cache's caller. */
aoticache_status aoticache_cache_write_index(aoticache_cache *cache, aoticache_cache_write_fn write, void *user,
                                             aoticache_error *ret_error);

/* ---- looking up (lookup.c) ---- */

/* What a lookup searches for: the entries of a key, or one entry by its number. */
typedef struct aoticache_lookup_target {
    aoticache_key key; /* used if entry_id is 0 */
    int64_t entry_id;  /* otherwise only this entry, and only while its artifact is `artifact` */
    const aoticache_digest *artifact;
    const aoticache_guard_filter *filter; /* NULL: exact entries; otherwise dynamic ones whose guard it accepts */
} aoticache_lookup_target;

typedef struct aoticache_find_report {
    int64_t entry_id;
    uint64_t compile_ns;
    bool is_dynamic;        /* the found entry is dynamic */
    bool lacks_requirement; /* there were entries, but this CPU can run none of them */
    bool is_refused;        /* there were entries, but no guard accepts the tensors */
    bool was_damaged;       /* an object was damaged, and its entries are removed */
    bool has_failed;        /* a compile failed a short time ago */
} aoticache_find_report;

/* A lookup that counts nothing. Without a filter the key must be that of a request for exact shapes, whose entries have no
 * guards. Returns as aoticache_cache_lookup(). */
aoticache_status aoticache_cache_find(aoticache_cache *cache, const aoticache_lookup_target *target,
                                      aoticache_artifact **ret_artifact, aoticache_find_report *ret_report,
                                      aoticache_error *ret_error);
/* Count what every lookup counts. A miss also flushes. */
void aoticache_cache_count_hit(aoticache_cache *cache, const aoticache_artifact *artifact,
                               const aoticache_find_report *report, uint64_t begun_ns);
void aoticache_cache_count_miss(aoticache_cache *cache, const aoticache_find_report *report);

/* ---- removing (remove.c); the caller holds the store's lock exclusively ---- */

typedef struct aoticache_removal {
    uint64_t objects;
    uint64_t bytes;
} aoticache_removal;

/* Removes the given objects that no entry names and no process holds, and adds them to *ret_removal. */
aoticache_status aoticache_cache_remove_objects(aoticache_cache *cache, const aoticache_index_object *objects,
                                                size_t count, aoticache_removal *ret_removal,
                                                aoticache_error *ret_error);
/* Removes the directory artifacts/<digest>/, unless a process holds one of its files. Returns true if it existed and is
 * removed. */
bool aoticache_cache_remove_side_files(aoticache_cache *cache, const aoticache_digest *artifact);

/* ---- collecting (gc/) ---- */

/* Collects after a put or an import batch, as aoticache_cache_options.max_bytes and max_entries promise. Takes the
 * collector's and the store's lock. */
void aoticache_cache_keep_budget(aoticache_cache *cache);

/*
 * Removes what dead processes left: temporary files and directories, leases, directories of side files without an artifact.
 * Takes the store's lock exclusively in short batches; adds to ret_removed. all: all directories of side files, otherwise
 * the next part of them.
 */
aoticache_status aoticache_cache_remove_leftovers(aoticache_cache *cache, bool all, uint64_t *ret_removed,
                                                  aoticache_error *ret_error);

/* ---- manifests and their entries (store/entry.c) ---- */

/* Converts a set of CPU features to the index's format. */
void aoticache_requirements_to_bytes(const aoticache_cpu_features *features,
                                     uint8_t ret_bytes[AOTICACHE_INDEX_REQUIREMENT_BYTES]);
aoticache_cpu_features aoticache_requirements_from_bytes(const uint8_t bytes[AOTICACHE_INDEX_REQUIREMENT_BYTES]);

/* Reads and parses the manifest `digest`. NOT_FOUND, CORRUPT (the object is not a manifest, or is damaged), UNSUPPORTED. */
aoticache_status aoticache_cache_load_manifest(aoticache_directory *directory, const aoticache_digest *digest,
                                               aoticache_manifest **ret_manifest, uint64_t *ret_bytes,
                                               aoticache_error *ret_error);
/* Returns whether an object can be a manifest, so that reading it is worthwhile. */
bool aoticache_cache_may_be_manifest(aoticache_directory *directory, const aoticache_digest *digest);
/*
 * Returns a manifest's entry in the index's form; its pointers are borrowed from the manifest and from `objects`.
 *
 * objects: space for one more than the manifest has files; filled with the manifest's object and those of its files, without
 *          duplicates.
 */
aoticache_index_entry aoticache_manifest_entry(const aoticache_digest *digest, uint64_t manifest_bytes,
                                               const aoticache_manifest *manifest, aoticache_index_object *objects);
/* Records the entry of a manifest without looking at the store. */
aoticache_status aoticache_cache_put_manifest_entry(aoticache_index *index, const aoticache_digest *digest,
                                                    uint64_t manifest_bytes, const aoticache_manifest *manifest,
                                                    int64_t *ret_entry_id, aoticache_error *ret_error);
/* Records the entry of a manifest that is in the store. NOT_FOUND if one of its files is missing, or if its guard does not
 * agree with its request. */
aoticache_status aoticache_cache_index_manifest(aoticache_directory *directory, aoticache_index *index,
                                                const aoticache_digest *digest, uint64_t manifest_bytes,
                                                const aoticache_manifest *manifest, aoticache_error *ret_error);

/* ---- the reserve (store/reserve.c) ---- */

#define AOTICACHE_RESERVE_BYTES (UINT64_C(1) << 20)

/*
 * Creates the reserve if it is missing, after a put or a collection. There is none if the disk lacks space for it, if the
 * budget is small, or on a small file system. Failures are ignored; each open cache tries once.
 */
void aoticache_reserve_keep(aoticache_cache *cache);

/* Returns whether free space is so short that a collection needs the reserve. */
bool aoticache_reserve_is_needed(const aoticache_cache *cache);
/* Releases the reserve; returns true if there was one: its space is now free. */
bool aoticache_reserve_give_up(aoticache_cache *cache);

#endif
