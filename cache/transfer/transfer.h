/*
 * cache/transfer/transfer: moves entries from one cache to another: as an archive (tar, compressed with zstd), or from one
 * directory to another.
 *
 * Everything imported is verified: names, sizes, digests, manifests, signatures. Paths, owners, modes and links in an
 * archive are not trusted. docs/transfer.md specifies the format, docs/signatures.md the required signatures.
 *
 * Thread safety: that of the caches. The functions call back only from the thread that called them, with no lock held.
 *
 * Users include <aoticache/admin.h>.
 */
#ifndef AOTICACHE_CACHE_TRANSFER_TRANSFER_H
#define AOTICACHE_CACHE_TRANSFER_TRANSFER_H

#include "cache/cache.h"
#include "cache/trust/trust.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which entries are transferred. All given conditions must hold. */
typedef struct aoticache_transfer_options {
    size_t size;
    const char *op;         /* shell pattern: "aten::*"; NULL: any */
    const char *device;     /* "cpu"; NULL: any */
    const char *key_prefix; /* hexadecimal digits; NULL: any */
    const char *tag;        /* export, merge: NULL: any */
    int64_t used_since_ns;  /* export, merge: wall clock; 0: any */
    int level;              /* export: of zstd, 1 to 19; 0: 3 */
    bool with_marks;        /* also transfer pins and tags; the target adds them to its own */
    bool dry_run;           /* import, merge: verify and count, store nothing */
    /*
     * Called for every object (merge: entry), with how many are done and in total (0: not known), and whenever a signal
     * interrupts the wait for a descriptor. Return false to stop: the call ends with IO, and entries transferred completely
     * stay. May be NULL.
     */
    bool (*progress)(void *user, uint64_t done, uint64_t all);
    void *user;
    uint64_t max_bytes; /* import: maximum unpacked size; 0: 1 TiB, but at most 1 GiB plus 1000 times the archive */
    /*
     * import, merge: also import the entries that are otherwise skipped: those that replace an existing entry (with the
     * same key, requirements and guard), and those that a lookup would prefer to an existing entry of the same key.
     * With this option the caller trusts the maker of the imported entries to decide which code runs here.
     */
    bool replace;
    /* import, merge: an entry needs no trusted signature. Revoked entries and wrong signatures are still refused. */
    bool allow_unsigned;
    /* export: also sign exported entries with these keys; existing signatures of an entry are exported in any case. */
    const aoticache_secret_key *const *signers;
    size_t signer_count;
    /*
     * import: returns whether to trust a key that came with the archive and that verifiably signed an entry. Called once for
     * each key, on the caller's thread, and must not use the cache. The trust lasts until this cache is closed; to make it
     * permanent, call aoticache_key_directory_trust(). NULL: no such key is trusted.
     */
    bool (*ask)(void *user, const aoticache_public_key *key);
    /* Only entries of these keys, which must be sorted as memcmp() compares them. NULL: any. */
    const aoticache_key *keys;
    size_t key_count;
} aoticache_transfer_options;

#define AOTICACHE_TRANSFER_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_transfer_options)

typedef struct aoticache_transfer_report {
    uint64_t entries, objects, bytes; /* written or imported; manifests count as objects too */
    uint64_t entries_present;         /* import, merge: existed already: key, requirements and guard are the same */
    uint64_t refused;                 /* damaged, incomplete or foreign: each was logged as a warning with its name */
    uint64_t archive_bytes;           /* compressed, as written or read */
    uint64_t marks;                   /* keys whose pins or tags were transferred */
    uint64_t entries_passed_over;     /* import, merge: skipped, because lookups would prefer them to existing ones */
    uint64_t entries_signed;          /* with a signature (export), or with a trusted signature (import, merge) */
    uint64_t entries_untrusted;       /* import, merge: refused because no trusted key signed them, or a check failed */
    uint64_t entries_gone;            /* pull: named in a list or a record of the server, but no longer stored there */
} aoticache_transfer_report;

/*
 * Writes the selected entries to the caller's descriptor: a file, a pipe. With the same libarchive and libzstd, the same
 * entries give the same bytes, whatever the order in which they were stored. A damaged artifact is left out, logged and
 * counted. The caller must make the output durable.
 *
 * options, ret_report: may be NULL. ret_report is written on failure too, and then counts what was done.
 * Locks:   none; objects being written have their in-use lock.
 * Returns: OK; NOT_FOUND (nothing matches; nothing was written); INVALID; IO; LOCKED; NO_MEMORY; UNSUPPORTED (no
 * libarchive).
 */
AOTICACHE_API aoticache_status aoticache_cache_export(aoticache_cache *cache, int fd,
                                                      const aoticache_transfer_options *options,
                                                      aoticache_transfer_report *ret_report,
                                                      aoticache_error *ret_error);

/*
 * Imports an archive, reading a descriptor from its current position: a file, a pipe. Digests show that nothing was damaged,
 * but not who made it, and imported entries are code that runs here. So each entry needs the signature of a key that is
 * trusted here, unless allow_unsigned or the configuration says otherwise.
 *
 * Existing entries stay, and lookups still find them: among the entries of a key a lookup takes the most demanding one that
 * the machine meets, so an entry is imported only if it requires fewer CPU features than every existing one with the same
 * key. Entries for other CPUs are stored too. A member that is damaged, incomplete or foreign is refused, logged and
 * counted, and the import continues. Entries become visible in batches, each after all its objects are durable; on OK
 * everything is. Imported entries count as used now. After each batch the budget is enforced
 * (aoticache_cache_options.max_bytes), as after a put. 16 MiB of the file system are left free: entries that do not fit are
 * refused.
 *
 * options, ret_report: may be NULL. ret_report is written on failure too, and then counts what was done.
 * Locks:   the store, shared, once for each batch; with a budget, the locks of a collection. Other processes, including a
 *          collector, may use the cache at the same time.
 * Returns: OK (look at `refused`); CORRUPT (not such an archive, damaged, ends early, or has more than it announces; what
 * was complete before stays); DENIED (read-only; more than max_bytes); INVALID; IO (a full disk; stopped); LOCKED;
 * NO_MEMORY; UNSUPPORTED (no libarchive, no libcrypto, an archive of a newer format). Also INVALID and DENIED if the lists
 * of trusted and revoked keys cannot be used: nothing is imported then.
 */
AOTICACHE_API aoticache_status aoticache_cache_import(aoticache_cache *cache, int fd,
                                                      const aoticache_transfer_options *options,
                                                      aoticache_transfer_report *ret_report,
                                                      aoticache_error *ret_error);

/*
 * Copies entries from one cache directory to another; existing objects are not copied. Afterwards the directories share
 * nothing except blocks, if the file system supports that. Entries keep their last use and number of uses. Signatures are
 * copied with the entries. They are required, as for an import, if the source belongs neither to this user nor to root, or
 * if others may write to it. Otherwise it behaves as aoticache_cache_import(). INVALID if both are the same directory.
 */
AOTICACHE_API aoticache_status aoticache_cache_merge(aoticache_cache *target, aoticache_cache *source,
                                                     const aoticache_transfer_options *options,
                                                     aoticache_transfer_report *ret_report, aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
