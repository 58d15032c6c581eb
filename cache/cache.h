/*
 * cache: the content-addressed cache of compiled kernel libraries on this machine.
 *
 * Owns the directory (docs/formats/store.md): objects, manifests, leases, quarantine, and (through index/) the index.
 * Looks up entries by key, returns verified descriptors, stores the products of compile hooks, makes every compile
 * happen only once across threads and processes, and removes unused entries. It does not load or run libraries.
 *
 * Versions: an index whose tables have another version is refused with UNSUPPORTED, and stays as it is.
 *
 * Thread safety: any number of threads may use an aoticache_cache concurrently, and any number of processes a directory.
 * Fork safety: a child may continue to use a cache that its parent opened. It reopens the index on first use; counts that
 * the parent had not flushed stay with the parent. No lock is held while the caller's code runs, except for the lease of a
 * key during its compile.
 *
 * Trust: the directory must belong to the effective user (or root) and not be writable by others, nor may others be able to
 * rename a directory above it (docs/formats/store.md lists what is accepted). A directory that fails these checks is
 * refused with AOTICACHE_DENIED, unless options.allow_shared or the configuration (`allow_shared`) is set. Symbolic
 * links inside the directory are never followed, whatever allow_shared is.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_CACHE_CACHE_H
#define AOTICACHE_CACHE_CACHE_H

#include "base/base.h"
#include "cache/request/cpu.h"
#include "cache/request/request.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aoticache_cache aoticache_cache;

/* Use the configured time limit, or the default if none is configured (cache/config/config.h). */
#define AOTICACHE_AS_CONFIGURED UINT32_MAX

/* Whether an entry from elsewhere (an archive, a remote) needs a signature that this machine trusts. */
typedef enum aoticache_signature_rule {
    AOTICACHE_SIGNATURES_AS_CONFIGURED = 0, /* REQUIRED if nothing is configured */
    AOTICACHE_SIGNATURES_REQUIRED =
        1, /* unless a call accepts unsigned entries (aoticache_transfer_options.allow_unsigned) */
    AOTICACHE_SIGNATURES_NOT_REQUIRED = 2,
    AOTICACHE_SIGNATURES_ALWAYS = 3, /* even if a call accepts unsigned entries */
} aoticache_signature_rule;

typedef struct aoticache_cache_options {
    size_t size;           /* sizeof this struct, set by the initializer */
    const char *directory; /* NULL: as configured, or $XDG_CACHE_HOME/aoticache, or $HOME/.cache/aoticache */
    bool read_only; /* never write: no recency, no counters, no store. A read-only file system has the same effect */
    /* Accept a directory that belongs to another user or that others can write, and such directories above it. false: as
     * configured. */
    bool allow_shared;
    bool must_exist;          /* AOTICACHE_NOT_FOUND instead of creating the directory */
    uint32_t lock_timeout_ms; /* how long to wait for SQLite's and the store's locks, or AOTICACHE_AS_CONFIGURED */
    /* how long get_or_compile waits for another process's compile; 0: without limit; or AS_CONFIGURED */
    uint32_t compile_timeout_ms;
    /* How long a failed compile is remembered, or AOTICACHE_AS_CONFIGURED. After each further failure it is remembered
     * twice as long, up to failure_max_ttl_seconds. */
    uint32_t failure_ttl_seconds;
    aoticache_logger logger;
    uint32_t failure_max_ttl_seconds;
    /* The size limit of the store. A put that exceeds it removes the least recently used entries; later puts continue
     * until the store is below nine tenths of the limit. Each put removes what exceeds the limit, and then continues
     * for ten milliseconds. A hit never collects. If another process is already collecting, the put does not collect.
     * Entries that are in use or pinned are never removed, even if the cache then stays above its limit. 0: as
     * configured; UINT64_MAX: no limit. */
    uint64_t max_bytes;
    uint64_t max_entries; /* the same for the number of entries */
    /* For a program that is about to collect: if the disk is too full to open the cache for writing, opening it releases the
     * reserve (docs/formats/store.md). Other programs must leave the reserve for that. */
    bool may_use_reserve;
    /* The caller has decided everything. Options left unset above get their defaults, and opening reads no files and no
     * environment, unless directory is NULL. aoticache_config_apply() sets this. */
    bool is_configured;
    /* Which signatures are trusted (cache/trust/trust.h). Words separated by spaces; NULL: as configured. */
    const char *trusted_keys;  /* public keys */
    const char *revoked_keys;  /* public keys, fingerprints, names, digests of manifests */
    const char *sign_with;     /* files of secret keys; empty: the one in key_directory */
    const char *key_directory; /* the user's directory of keys; NULL: as configured; empty: none */
    aoticache_signature_rule signatures;
    /* Servers shared by many machines, in the form of the setting `remote` (docs/remotes.md). NULL: as configured; "": none. */
    const char *remote;
    /* Hash every file at every load: records of files hashed earlier are not trusted, and none are made
     * (docs/formats/store.md, "What was hashed before"). false: as configured. */
    bool hash_always;
} aoticache_cache_options;

#ifdef __cplusplus
static inline aoticache_cache_options aoticache_cache_options_init()
{
    aoticache_cache_options made = AOTICACHE_SIZED_INIT(aoticache_cache_options);
    made.lock_timeout_ms = AOTICACHE_AS_CONFIGURED;
    made.compile_timeout_ms = AOTICACHE_AS_CONFIGURED;
    made.failure_ttl_seconds = AOTICACHE_AS_CONFIGURED;
    made.failure_max_ttl_seconds = 86400;
    return made;
}
#define AOTICACHE_CACHE_OPTIONS_INIT aoticache_cache_options_init()
#else
#define AOTICACHE_CACHE_OPTIONS_INIT                 \
    {.size = sizeof(aoticache_cache_options),        \
     .lock_timeout_ms = AOTICACHE_AS_CONFIGURED,     \
     .compile_timeout_ms = AOTICACHE_AS_CONFIGURED,  \
     .failure_ttl_seconds = AOTICACHE_AS_CONFIGURED, \
     .failure_max_ttl_seconds = 86400}
#endif

/*
 * Opens a cache directory, and creates it if it is missing. options may be NULL: everything is as configured.
 *
 * "As configured" means the settings of the machine's file, the user's file and the environment (cache/config/config.h).
 * They are read only here, in the same way for every program, tool and language. Errors in them are logged as warnings.
 *
 * A damaged or unreadable index is renamed and rebuilt from the manifests, with one warning in the log. If the directory
 * cannot be written, or the disk is full, the cache opens read-only, with one line in the log.
 *
 * Returns: OK, INVALID, NO_MEMORY, IO, DENIED (owner, mode, symbolic link), UNSUPPORTED (a newer format), NOT_FOUND
 * (must_exist), LOCKED.
 */
AOTICACHE_API aoticache_status aoticache_cache_open(const aoticache_cache_options *options, aoticache_cache **ret_cache,
                                                    aoticache_error *ret_error);
/*
 * Closes the cache and frees it. Counts since the last flush stay in a file next to the index until a process next writes to
 * the index. If that file cannot be written, they are flushed to the index: this waits for another writer for a second at
 * most and then drops them. Pending uploads to remotes get five seconds; after that a later process does them. NULL is
 * allowed. Artifacts that are still held stay valid.
 */
AOTICACHE_API void aoticache_cache_close(aoticache_cache *cache);

typedef struct aoticache_cache_info {
    const char *directory; /* its absolute path, borrowed from the cache */
    bool is_read_only;     /* nothing is stored */
} aoticache_cache_info;

/* Returns what is known of an open cache. NULL is allowed: then the directory is NULL. */
AOTICACHE_API aoticache_cache_info aoticache_cache_get_info(const aoticache_cache *cache);

static inline const char *aoticache_cache_directory(const aoticache_cache *cache)
{
    return aoticache_cache_get_info(cache).directory;
}

static inline bool aoticache_cache_is_read_only(const aoticache_cache *cache)
{
    return aoticache_cache_get_info(cache).is_read_only;
}

/* ---- artifacts: the product of one compile, open and verified ---- */

typedef struct aoticache_artifact aoticache_artifact;

/* The origin of an artifact. */
typedef enum aoticache_source {
    AOTICACHE_SOURCE_INDEX = 0,    /* found in this directory */
    AOTICACHE_SOURCE_COMPILED = 1, /* compiled by this call */
    AOTICACHE_SOURCE_WAITED = 2,   /* compiled by another thread, process or machine while this call waited */
    AOTICACHE_SOURCE_FETCHED = 3,  /* fetched from a remote by this call (docs/remotes.md) */
} aoticache_source;

AOTICACHE_API aoticache_artifact *aoticache_artifact_ref(aoticache_artifact *artifact);
/* Releases an artifact. While a process holds an artifact, no collector removes its objects, unless the artifact's content
 * is in memory. NULL is allowed. */
AOTICACHE_API void aoticache_artifact_unref(aoticache_artifact *artifact);

/* The facts about an artifact. Strings are borrowed from it. */
typedef struct aoticache_artifact_info {
    aoticache_digest digest;  /* of the manifest */
    aoticache_digest library; /* of the library */
    const char *directory;    /* has the library's side files under their own names; NULL: there are none */
    const char *guard;        /* of the entry through which it was found; "" for an exact entry */
    aoticache_source source;
    bool is_stored; /* false: it could not be stored (full disk, read-only directory) and runs from the hook's files */
    uint64_t compile_ns; /* duration of the compile that made it */
} aoticache_artifact_info;

/* Returns what is known of an artifact, borrowed from it. NULL is allowed: then all is zero, and the guard is "". */
AOTICACHE_API const aoticache_artifact_info *aoticache_artifact_get_info(const aoticache_artifact *artifact);

/* ---- looking up ---- */

/*
 * Dynamic entries: one library for many shapes. Such an entry is recorded under a dynamic request (AOTICACHE_SHAPES_NAME in
 * cache/request/request.h) together with a guard, a text that says which tensors the library serves. loader/check/check.h has
 * its form; the cache does not read it. One dynamic request may have several entries with different guards.
 *
 * A lookup of a dynamic request calls accept() for each entry, those with the most demanding requirements first, then the
 * newest. accept() returns whether the guard lets the caller's tensors pass. Its pointers are borrowed during the call, and it
 * must not use the cache.
 */
typedef struct aoticache_guard_filter {
    bool (*accept)(void *user, const char *guard);
    void *user;
} aoticache_guard_filter;

/*
 * Finds the entry for the request whose requirements this machine meets (the most demanding one of several), opens its
 * objects and verifies their digests. It writes nothing, except that it periodically saves recency and counters
 * (cache/stats/statistics.h), without waiting for other processes.
 *
 * An object whose bytes do not hash to its name is moved to quarantine/, its entries are removed, one warning is logged,
 * and the result is the next entry that fits or NOT_FOUND.
 *
 * filter: decides which entries of a dynamic request fit; NULL for a request for exact shapes. If it does not suit the
 *         kind of request, nothing is found.
 * Returns: OK; NOT_FOUND (nothing fits, or what was there was damaged); INVALID; NO_MEMORY; IO; LOCKED.
 */
AOTICACHE_API aoticache_status aoticache_cache_lookup(aoticache_cache *cache, const aoticache_request *request,
                                                      const aoticache_guard_filter *filter,
                                                      aoticache_artifact **ret_artifact, aoticache_error *ret_error);

/* ---- storing ---- */

/* One file that a compile produced. */
typedef struct aoticache_file {
    const char *name; /* the name that the library expects, in its own directory: one path component, no '/' */
    const char *path; /* its current path */
} aoticache_file;

/* What a compile produced and its properties. The hook fills it in. Strings are borrowed during the call. */
typedef struct aoticache_product {
    size_t size;                 /* sizeof this struct */
    const aoticache_file *files; /* files[0] is the library */
    size_t file_count;
    aoticache_cpu_features requirements; /* CPU features that the code uses */
    const char *guard;                   /* for a dynamic entry: which tensors it serves; NULL: an exact entry */
    const char *producer;                /* "pytorch 2.13.0", "cc": human-readable */
    uint64_t compile_ns;
    const char *output;   /* the compiler's output, stored with the entry (64 KiB at most); may be NULL */
    const char *metadata; /* one line for the producer's own use, stored unchanged (2 MiB at most); may be NULL */
    const char *fallback; /* why the producer's own container was used; NULL: this library's container was used */
    /*
     * Keeps the bytes of the only file in the manifest, so that the entry is one file on disk. For small files that are read
     * and not loaded. A file of more than 1 MiB is stored separately anyway. INVALID with several files.
     */
    bool in_manifest;
} aoticache_product;

#define AOTICACHE_PRODUCT_INIT AOTICACHE_SIZED_INIT(aoticache_product)

/*
 * Stores copies of the files and records the entry. When it returns OK everything is durable: it survives kill -9 and power
 * loss. For the same request and the same requirements, the new artifact replaces the old entry.
 *
 * ret_artifact: may be NULL.
 * Locks:   the store, shared, up to options.lock_timeout_ms.
 * Returns: OK, INVALID, NO_MEMORY, IO (a full disk), DENIED (read-only), LOCKED. On failure nothing is visible.
 */
AOTICACHE_API aoticache_status aoticache_cache_put(aoticache_cache *cache, const aoticache_request *request,
                                                   const aoticache_product *product, aoticache_artifact **ret_artifact,
                                                   aoticache_error *ret_error);

/*
 * A compile hook. Compiles `request` into files inside `directory` (private, empty, absolute) or anywhere else, and calls
 * deliver(deliver_user, &product) exactly once with the product and returns its result; or returns COMPILE_FAILED with the
 * compiler's message in ret_error (remembered, see failure_ttl_seconds), or UNSUPPORTED if it cannot serve the request at
 * all (not remembered).
 */
typedef aoticache_status (*aoticache_deliver_fn)(void *deliver_user, const aoticache_product *product);

typedef aoticache_status (*aoticache_compile_fn)(void *user, const aoticache_request *request, const char *directory,
                                                 aoticache_deliver_fn deliver, void *deliver_user,
                                                 aoticache_error *ret_error);

/*
 * Finds or compiles a kernel; this is the main path. It looks up; on a miss it takes the lease of the key, looks up again,
 * compiles, stores. Other threads and processes that request the same key meanwhile wait for that compile instead of
 * starting one. If the compiling process dies, one of the waiting processes takes over. A compile that failed less than
 * failure_ttl_seconds ago is not tried again: its message is returned.
 *
 * If the result cannot be stored, the artifact runs from the hook's own files and one line is logged.
 *
 * filter: as in aoticache_cache_lookup(). The output of a dynamic compile must have a guard. It need not accept the caller's
 *         tensors: *ret_artifact is what was compiled all the same.
 * Returns: OK, INVALID (also if the request is dynamic and filter is NULL, or the other way round), NO_MEMORY, COMPILE_FAILED
 * (message: the compiler's), UNSUPPORTED, LOCKED (waited compile_timeout_ms for another process's compile), IO.
 */
AOTICACHE_API aoticache_status aoticache_cache_get_or_compile(aoticache_cache *cache, const aoticache_request *request,
                                                              const aoticache_guard_filter *filter,
                                                              aoticache_compile_fn compile_hook, void *user,
                                                              aoticache_artifact **ret_artifact,
                                                              aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif

#endif
