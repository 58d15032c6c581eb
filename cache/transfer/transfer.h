/*
 * cache/transfer/transfer: entries out of one cache and into another: as an archive (tar, compressed with zstd), or from one
 * directory to another.
 *
 * Everything that comes in is verified: names, sizes, digests, manifests, signatures. Nothing that an archive says of paths,
 * owners, modes or links is believed. docs/transfer.md has the bytes, docs/signatures.md says who must have signed.
 *
 * Thread safety: as the caches'. The functions call back only from the thread that called them, with no lock held.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_CACHE_TRANSFER_TRANSFER_H
#define AOTICACHE_CACHE_TRANSFER_TRANSFER_H

#include "cache/cache.h"
#include "cache/trust/trust.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What goes. All that are given must hold. */
typedef struct aoticache_transfer_options {
    size_t size;
    const char *op;         /* shell pattern: "aten::*"; NULL: any */
    const char *device;     /* "cpu"; NULL: any */
    const char *key_prefix; /* hexadecimal digits; NULL: any */
    const char *tag;        /* export, merge: NULL: any */
    int64_t used_since_ns;  /* export, merge: wall clock; 0: any */
    int level;              /* export: of zstd, 1 to 19; 0: 3 */
    bool with_marks;        /* pins and tags of what goes, too; in the target they are added to those that are there */
    bool dry_run;           /* import, merge: verify and count, store nothing */
    /*
     * Called for every object (merge: entry), with how many are done and in all (0: not known), and whenever a signal
     * interrupts the waiting for a descriptor. Return false to stop: the call ends with IO, what was complete stays.
     * NULL.
     */
    bool (*progress)(void *user, uint64_t done, uint64_t all);
    void *user;
    uint64_t max_bytes; /* import: what an archive may unpack to; 0: 1 TiB, and beyond 1 GiB 1000 times its size */
    /*
     * import, merge: an entry comes also where one with the same key, requirements and guard is there, which it
     * replaces, and where a lookup would take it before one of the same key that is there. Who asks for it trusts the
     * maker of what comes with what runs here from now on.
     */
    bool replace;
    /* import, merge: an entry needs no trusted signature. Revoked entries and wrong signatures are refused all the same. */
    bool allow_unsigned;
    /* export: what is exported is signed with these too; what signatures an entry has go with it in any case. */
    const aoticache_secret_key *const *signers;
    size_t signer_count;
    /*
     * import: whether to trust a key that came with the archive and signed an entry, which was verified. Called once for
     * each key, from the thread that called, and must not use the cache. It holds for this cache until it is closed; who
     * wants more of it calls aoticache_key_directory_trust(). NULL: no.
     */
    bool (*ask)(void *user, const aoticache_public_key *key);
    /* Only these keys, in the order of memcmp(); of all others nothing goes. NULL: any. */
    const aoticache_key *keys;
    size_t key_count;
} aoticache_transfer_options;

#define AOTICACHE_TRANSFER_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_transfer_options)

typedef struct aoticache_transfer_report {
    uint64_t entries, objects, bytes; /* that were written, or taken in; manifests are objects too */
    uint64_t entries_present;         /* import, merge: were there already: key, requirements and guard are the same */
    uint64_t refused;                 /* damaged, incomplete or foreign: each was logged, a warning with its name */
    uint64_t archive_bytes;           /* compressed, as written or read */
    uint64_t marks;                   /* keys whose pins or tags went */
    uint64_t entries_passed_over;     /* import, merge: would have gone before entries that are there; see `replace` */
    uint64_t entries_signed;          /* export: have a signature; import, merge: came by, or got, a trusted one */
    uint64_t entries_untrusted;       /* import, merge: of the refused: no trusted key signed them, or a check failed */
    uint64_t entries_gone;            /* pull: a list or a record there names them, and the server forgot them since */
} aoticache_transfer_report;

/*
 * Writes what the options name to a descriptor of the caller's: a file, a pipe. The same entries give the same bytes,
 * whatever the order in which they were stored, with the same libarchive and libzstd. An artifact that is damaged is
 * left out, logged and counted. Nothing is made durable: that is the caller's.
 *
 * options, ret_report: may be NULL. ret_report is written on failure too, as far as it came.
 * Locks:   none; what is being written is marked as in use.
 * Returns: OK; NOT_FOUND (nothing matches; nothing was written); INVALID; IO; LOCKED; NO_MEMORY; UNSUPPORTED (no
 * libarchive).
 */
AOTICACHE_API aoticache_status aoticache_cache_export(aoticache_cache *cache, int fd,
                                                      const aoticache_transfer_options *options,
                                                      aoticache_transfer_report *ret_report,
                                                      aoticache_error *ret_error);

/*
 * Takes in what an archive holds, reading a descriptor from where it stands: a file, a pipe. Digests say that nothing
 * was damaged, not who made it, and what comes in is code that runs here. So each entry needs the signature of a key that
 * is trusted here, unless allow_unsigned or the configuration says otherwise.
 *
 * What is there already stays, and stays what a lookup finds: of the entries of a key a lookup takes the most demanding
 * that the machine meets, so an entry comes only where it requires fewer CPU features than each that is there with the
 * same key. Entries that need a CPU that this machine is not are stored too. A member that is damaged, incomplete or
 * foreign is refused, logged and counted, and the import goes on. Entries become visible in batches, each after all
 * its objects are durable; on OK everything is. Imported entries count as used now. After each batch the budget holds
 * (aoticache_cache_options.max_bytes), as after a put. 16 MiB of the file system are left free: what does not fit beside
 * them is refused.
 *
 * options, ret_report: may be NULL. ret_report is written on failure too, as far as it came.
 * Locks:   the store, shared, once for each batch; with a budget, what a collection takes. Another process may be at work in the cache, a collector too.
 * Returns: OK (look at `refused`); CORRUPT (no such archive, damaged, it ends early, or has more than it announces; what
 * was complete before stays); DENIED (read-only; more than max_bytes); INVALID; IO (a full disk; stopped); LOCKED; NO_MEMORY; UNSUPPORTED
 * (no libarchive, no libcrypto, an archive of a newer format). INVALID and DENIED also where the lists of trusted and
 * revoked keys cannot be used: nothing is taken in then.
 */
AOTICACHE_API aoticache_status aoticache_cache_import(aoticache_cache *cache, int fd,
                                                      const aoticache_transfer_options *options,
                                                      aoticache_transfer_report *ret_report,
                                                      aoticache_error *ret_error);

/*
 * From one cache directory into another: objects that are there already are not copied. Nothing is shared between the
 * directories afterwards but, where the file system can, blocks. Entries keep when they were used last and how often.
 * Signatures go with the entries. They are needed, as for an import, where the source is neither this user's nor root's, or
 * others may write to it. Otherwise as aoticache_cache_import(). INVALID if both are one directory.
 */
AOTICACHE_API aoticache_status aoticache_cache_merge(aoticache_cache *target, aoticache_cache *source,
                                                     const aoticache_transfer_options *options,
                                                     aoticache_transfer_report *ret_report, aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
