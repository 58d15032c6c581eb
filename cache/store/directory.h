/*
 * cache/store/directory: the cache directory: chooses it, creates it, decides whether to trust it, and opens files in it
 * without following symbolic links. It does not interpret the files.
 */
#ifndef AOTICACHE_CACHE_STORE_DIRECTORY_H
#define AOTICACHE_CACHE_STORE_DIRECTORY_H

#include <dirent.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "cache/cache.h"

#define AOTICACHE_FORMAT_FILE "format"
#define AOTICACHE_INDEX_FILE "index.sqlite3"
#define AOTICACHE_LOCK_FILE "lock"
#define AOTICACHE_GATE_FILE "gate"
#define AOTICACHE_COLLECT_LOCK_FILE "collect.lock"
#define AOTICACHE_RESERVE_FILE "reserve"
#define AOTICACHE_VERIFY_FILE "verify.state" /* position of a verification that was stopped */
#define AOTICACHE_OBJECTS "objects"
#define AOTICACHE_ARTIFACTS "artifacts"
#define AOTICACHE_LEASES "leases"
#define AOTICACHE_TMP "tmp"
#define AOTICACHE_QUARANTINE "quarantine"
#define AOTICACHE_PINS "marks"
#define AOTICACHE_SIGNATURES "signatures"
#define AOTICACHE_UNSENT "unsent" /* cache/remote/unsent.c */

typedef struct aoticache_directory {
    int fd;          /* of the root, for reading */
    char *path;      /* absolute, as configured */
    char *real_path; /* without links, for compilers and loaders, which take no descriptor */
    uid_t owner;     /* of the root; what the user root creates in it is changed to this user and group */
    gid_t group;
    bool read_only;
    bool allow_shared;
    bool is_group_shared; /* allow_shared, and the group may write the root: then it may write what is created in it */
    uint32_t lock_timeout_ms;
    aoticache_logger logger;
    _Atomic bool no_openat2;
    _Atomic unsigned durable_names; /* which directories of the root have durable names: subdirectory.c */
    _Atomic bool no_copies;         /* verifying a library makes no copy: aoticache_cache_copy_libraries() */
    _Atomic uint64_t serial;        /* makes names in tmp/ unique within this process */
} aoticache_directory;

/* ---- the root (directory.c) ---- */

/*
 * Opens the root, creates it if that is allowed, and checks its owner, mode and format. Writes nothing if nothing is
 * missing. Returns: OK, INVALID, NO_MEMORY, IO, DENIED, UNSUPPORTED, NOT_FOUND (with a message).
 */
aoticache_status aoticache_directory_open(const aoticache_cache_options *options, aoticache_directory **ret_directory,
                                          aoticache_error *ret_error);
/* NULL is allowed. */
void aoticache_directory_close(aoticache_directory *directory);

/* Returns whether a name in the root belongs to the cache, and its type. */
bool aoticache_directory_knows(const char *name, mode_t *ret_type);
/*
 * Returns whether a name in the cache's directory belongs to the file system or to backups, which put it at the root of a
 * volume: lost+found, snapshots, CACHEDIR.TAG, files that NFS keeps until no process has them open (.nfs...).
 */
bool aoticache_directory_leaves_alone(const char *name);

/* ---- the directories above the root (ancestors.c) ---- */

/*
 * Sets real_path and checks the directories above the root: each must belong to root or the effective user, and other users
 * must not be able to rename its entries. allow_shared skips these checks. root: the result of fstat(2) on the root.
 * Returns: OK, DENIED, IO, NO_MEMORY.
 */
aoticache_status aoticache_directory_find_real_path(aoticache_directory *directory, const struct stat *root,
                                                    aoticache_error *ret_error);
/* Checks the directories above a root that does not exist yet, in the same way. */
aoticache_status aoticache_directory_trust_place(const aoticache_directory *directory, aoticache_error *ret_error);

/* ---- inside the root (subdirectory.c) ---- */

/*
 * Does openat(2) for reading, relative to the root. It follows no symbolic link anywhere in `path`, never leaves the root,
 * and never blocks on a FIFO. Returns a descriptor, or -1 with errno (ELOOP: a symbolic link).
 */
int aoticache_directory_openat(aoticache_directory *directory, const char *path, int flags);

/*
 * Opens a directory by its path inside the root ("objects/ab"). With `create`, missing directories of the path are created,
 * durably. Returns: OK, NOT_FOUND (never with create), DENIED, IO, NO_MEMORY.
 */
aoticache_status aoticache_directory_open_subdirectory(aoticache_directory *directory, const char *path, bool create,
                                                       int *ret_fd, aoticache_error *ret_error);

/*
 * Return the modes of new files and directories: for the user alone, or also for the group of a root that is shared with it.
 * hand_over() must be called with each file or directory that was just created. In a shared directory it restores the bits
 * that the umask removed. If root created it, hand_over() gives it to the directory's owner.
 */
mode_t aoticache_directory_file_mode(const aoticache_directory *directory);
mode_t aoticache_directory_subdirectory_mode(const aoticache_directory *directory);
void aoticache_directory_hand_over(const aoticache_directory *directory, int fd, mode_t mode);

/* Creates a directory in one of the cache's, for the users who may use the cache. It is not durable. Returns 0, or -1 with
 * errno. */
int aoticache_directory_make_subdirectory(const aoticache_directory *directory, int parent_fd, const char *name);

/* Checks whether a found file may be used: it has this file type and a trusted owner, and others cannot write it. OK,
 * DENIED. */
aoticache_status aoticache_directory_trust(const aoticache_directory *directory, const struct stat *found, mode_t type,
                                           const char *name, aoticache_error *ret_error);

/*
 * Moves `name` of the directory `parent_fd` to quarantine/<label>-<nanoseconds>.
 * Returns: OK, NOT_FOUND (it is gone already), DENIED, IO.
 */
aoticache_status aoticache_directory_quarantine(aoticache_directory *directory, int parent_fd, const char *name,
                                                const char *label, aoticache_error *ret_error);

/* Lists the files of an open directory, from its beginning even if another thread lists it. Close it with closedir(); NULL
 * with errno. */
DIR *aoticache_directory_list(int directory_fd);

/* Removes a file or a whole directory, following no symbolic link. Returns 0, also if it is gone already; or -1 with errno. */
int aoticache_directory_remove_tree(int parent_fd, const char *name);

/* Returns whether `name` below `parent_fd` is still the file that `fd` has open, neither unlinked nor replaced. */
bool aoticache_directory_is_same(int parent_fd, const char *name, int fd);

#endif
