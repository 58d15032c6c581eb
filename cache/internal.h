/*
 * cache/internal: what an aoticache_cache is made of, and the functions that its parts share.
 *
 * Private. Members that change after opening are atomic or have their mutex named beside them.
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
#include "cache/stats/internal.h"
#include "cache/trust/internal.h"
#include "index/index.h"

/* An index that was opened. Older ones stay open until the cache closes, because other threads may be inside them. */
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
    _Atomic pid_t pid;                       /* of the process that may use what is below (enter.c) */
    _Atomic(aoticache_open_index *) current; /* NULL: read-only, and there is no usable index */
    aoticache_trust trust;                   /* whose signatures are believed (trust/trust.c) */
    pthread_mutex_t index_mutex;             /* held by whoever replaces `current` */
    aoticache_unflushed unflushed;
    _Atomic bool has_warned_not_stored, has_warned_unreadable;
    bool may_use_reserve; /* store/reserve.c */
    bool hash_always;     /* hashed_files.c: nothing is believed, and nothing is remembered */
    _Atomic bool has_tried_reserve, has_given_up_reserve;
    uint64_t max_bytes, max_entries;  /* the budget; 0: no limit */
    size_t round;                     /* entries in a round of a collection; 0: the usual number. Tests set it */
    _Atomic bool is_shrinking;        /* the budget was exceeded, and the low watermark is not reached yet */
    _Atomic uint64_t shrink_after_ns; /* monotonic: until then no put collects, because nothing may go */
};

/* ---- what every function begins with (enter.c) ---- */

/* Every public function calls this first. In the child of a fork it empties counters and recency: what the parent has not
 * flushed stays the parent's. */
void aoticache_cache_enter(aoticache_cache *cache);

/* The index to use now, or NULL if there is none. */
aoticache_index *aoticache_cache_index(aoticache_cache *cache);

/* DENIED with the reason where the cache cannot be written. */
aoticache_status aoticache_cache_check_writable(const aoticache_cache *cache, aoticache_error *ret_error);

/* ---- the index that is open (store/recovery.c) ---- */

#define AOTICACHE_INDEX_PATH_BYTES (PATH_MAX + 32)
/* How to open the index of a directory in the very directory that was checked. path: a buffer for its name in messages. */
aoticache_index_options aoticache_cache_index_options(const aoticache_directory *directory,
                                                      char path[AOTICACHE_INDEX_PATH_BYTES]);
/* Opens the index for the first time. A damaged or missing one is rebuilt. */
aoticache_status aoticache_cache_open_index(aoticache_cache *cache, aoticache_error *ret_error);

/*
 * For loops around calls of the index: `do status = aoticache_index_lookup(index, ...);
 * while (aoticache_cache_recovered(cache, status, &index));`. True where `status` was CORRUPT and there is a sound index
 * now, in *index.
 */
bool aoticache_cache_recovered(aoticache_cache *cache, aoticache_status status, aoticache_index **index);
/* What a caller of the cache is told of it: an index that is CORRUPT, and could not be recovered, is IO, in the detail too. */
aoticache_status aoticache_cache_index_result(aoticache_status status, aoticache_error *error);

/* Returns whether the index that is open is the one that lies in the directory. */
bool aoticache_cache_index_is_current(aoticache_cache *cache);
/* Opens the index again where another process has replaced or deleted it. True where *index has changed. Takes the store's
 * lock where it has to build an index. */
bool aoticache_cache_refreshed(aoticache_cache *cache, aoticache_index **index);

/* ---- looking up (lookup.c) ---- */

/* What a lookup is for: the entries of a key, or one entry by its number. */
typedef struct aoticache_lookup_target {
    aoticache_key key; /* used where entry_id is 0 */
    int64_t entry_id;  /* else only this entry, and only while it is that of `artifact` */
    const aoticache_digest *artifact;
    aoticache_guard_fn accept; /* NULL: exact entries; otherwise dynamic ones whose guard it accepts */
    void *accept_user;
} aoticache_lookup_target;

typedef struct aoticache_find_report {
    int64_t entry_id;
    uint64_t compile_ns;
    bool is_dynamic;        /* the entry that was found is */
    bool lacks_requirement; /* there were entries, but this CPU can run none of them */
    bool is_refused;        /* there were entries, but no guard accepts the tensors */
    bool was_damaged;       /* an object was, and its entries are removed */
    bool has_failed;        /* a compile failed a short time ago */
} aoticache_find_report;

/* A lookup that counts nothing. Without accept the key must be that of a request for exact shapes, whose entries have no
 * guards. Returns as aoticache_cache_lookup(). */
aoticache_status aoticache_cache_find(aoticache_cache *cache, const aoticache_lookup_target *target,
                                      aoticache_artifact **ret_artifact, aoticache_find_report *ret_report,
                                      aoticache_error *ret_error);
/* Count what every lookup counts. A miss flushes, too. */
void aoticache_cache_count_hit(aoticache_cache *cache, const aoticache_artifact *artifact,
                               const aoticache_find_report *report, uint64_t begun_ns);
void aoticache_cache_count_miss(aoticache_cache *cache, const aoticache_find_report *report);

/* ---- removing (remove.c); the caller holds the store's lock exclusively ---- */

typedef struct aoticache_removal {
    uint64_t objects;
    uint64_t bytes;
} aoticache_removal;

/* Removes those of the objects that no entry names and nobody holds, and adds them to *ret_removal. */
aoticache_status aoticache_cache_remove_objects(aoticache_cache *cache, const aoticache_index_object *objects,
                                                size_t count, aoticache_removal *ret_removal,
                                                aoticache_error *ret_error);
/* Removes the directory artifacts/<digest>/, unless a process holds one of its files. True where it was there and is gone. */
bool aoticache_cache_remove_side_files(aoticache_cache *cache, const aoticache_digest *artifact);

/* ---- collecting (gc/) ---- */

/* Collects after a put or a batch of an import, as aoticache_cache_options.max_bytes and max_entries promise. Takes the
 * collector's and the store's lock. */
void aoticache_cache_keep_budget(aoticache_cache *cache);

/*
 * Removes what dead processes left: temporary files and directories, leases, directories of side files without an artifact.
 * Takes the store's lock exclusively itself, in short batches; ret_removed is added to. all: all directories of side files,
 * otherwise the next part of them.
 */
aoticache_status aoticache_cache_remove_leftovers(aoticache_cache *cache, bool all, uint64_t *ret_removed,
                                                  aoticache_error *ret_error);

/* ---- manifests and their entries (store/entry.c) ---- */

/* A set of CPU features, as the index keeps it. */
void aoticache_requirements_to_bytes(const aoticache_cpu_features *features,
                                     uint8_t ret_bytes[AOTICACHE_INDEX_REQUIREMENT_BYTES]);
aoticache_cpu_features aoticache_requirements_from_bytes(const uint8_t bytes[AOTICACHE_INDEX_REQUIREMENT_BYTES]);

/* Reads and parses the manifest `digest`. NOT_FOUND, CORRUPT (that object is no manifest, or damaged), UNSUPPORTED. */
aoticache_status aoticache_cache_load_manifest(aoticache_directory *directory, const aoticache_digest *digest,
                                               aoticache_manifest **ret_manifest, uint64_t *ret_bytes,
                                               aoticache_error *ret_error);
/* Returns whether it is worth reading an object to see if it is a manifest. */
bool aoticache_cache_may_be_manifest(aoticache_directory *directory, const aoticache_digest *digest);
/*
 * A manifest's entry, as the index takes it; what it points to is borrowed from the manifest and from `objects`.
 *
 * objects: space for one more than the manifest has files; filled with the manifest's object and each of theirs, once.
 */
aoticache_index_entry aoticache_manifest_entry(const aoticache_digest *digest, uint64_t manifest_bytes,
                                               const aoticache_manifest *manifest, aoticache_index_object *objects);
/* Records the entry of a manifest without looking at the store. */
aoticache_status aoticache_cache_put_manifest_entry(aoticache_index *index, const aoticache_digest *digest,
                                                    uint64_t manifest_bytes, const aoticache_manifest *manifest,
                                                    int64_t *ret_entry_id, aoticache_error *ret_error);
/* Records the entry of a manifest that lies in the store. NOT_FOUND if one of its files is missing, or where its guard does
 * not agree with its request. */
aoticache_status aoticache_cache_index_manifest(aoticache_directory *directory, aoticache_index *index,
                                                const aoticache_digest *digest, uint64_t manifest_bytes,
                                                const aoticache_manifest *manifest, aoticache_error *ret_error);

/* ---- the reserve (store/reserve.c) ---- */

#define AOTICACHE_RESERVE_BYTES (UINT64_C(1) << 20)

/*
 * Makes the reserve where it is missing, after a put or a collection. There is none where the disk has no space for it, nor
 * in a small budget or on a small file system. Failures are ignored; each open cache tries once.
 */
void aoticache_reserve_keep(aoticache_cache *cache);

/* Returns whether so little space is free that a collection needs it. */
bool aoticache_reserve_is_needed(const aoticache_cache *cache);
/* True where there was one: its space is free now. */
bool aoticache_reserve_give_up(aoticache_cache *cache);

#endif
