/*
 * tools/aoticache/doctor/directory: checks the cache directory, its owner, its file system, and its index.
 *
 * It first uses lstat and statfs, to be able to give advice, and then lets the library open the directory, whose result is
 * decisive.
 */
#include "base/cleanup.h"
#include "base/files/listing.h"
#include "tools/aoticache/doctor/doctor_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define OK AOTICACHE_VERDICT_OK
#define WARN AOTICACHE_VERDICT_WARN
#define FAIL AOTICACHE_VERDICT_FAIL

#define MIB ((uint64_t)1 << 20)

/* ---- the file system ---- */

enum file_system_kind { LOCAL, NETWORK, MEMORY, LAYERED };

static const struct file_system {
    uint32_t magic; /* linux/magic.h, and statfs(2) for numbers missing there */
    const char *name;
    enum file_system_kind kind;
} file_systems[] = {
    {0xef53, "ext4", LOCAL},         {0x58465342, "xfs", LOCAL},      {0x9123683e, "btrfs", LOCAL},
    {0x2fc12fc1, "zfs", LOCAL},      {0xf2f52010, "f2fs", LOCAL},     {0x794c7630, "overlayfs", LAYERED},
    {0xca451a4e, "bcachefs", LOCAL}, {0x01021994, "tmpfs", MEMORY},   {0x858458f6, "ramfs", MEMORY},
    {0x6969, "NFS", NETWORK},        {0x517b, "SMB", NETWORK},        {0xff534d42, "CIFS", NETWORK},
    {0xfe534d42, "SMB2", NETWORK},   {0x65735546, "FUSE", NETWORK},   {0x01021997, "9p", NETWORK},
    {0x00c36400, "Ceph", NETWORK},   {0x0bd00bd0, "Lustre", NETWORK}, {0x47504653, "GPFS", NETWORK},
    {0x5346414f, "AFS", NETWORK},    {0x73757245, "Coda", NETWORK},   {0x61756673, "aufs", LAYERED},
};

static const struct file_system *find_file_system(uint32_t magic)
{
    for (size_t i = 0; i < sizeof file_systems / sizeof file_systems[0]; i++)
        if (file_systems[i].magic == magic)
            return &file_systems[i];
    return NULL;
}

static void check_kind(aoticache_doctor *doctor, const struct statfs *information)
{
    const struct file_system *known = find_file_system((uint32_t)information->f_type);
    if (known == NULL)
        aoticache_doctor_report(doctor, OK, "file system", NULL, "unknown type 0x%x", (unsigned)information->f_type);
    else if (known->kind == NETWORK)
        aoticache_doctor_report(doctor, WARN, "file system",
                                "set AOTICACHE_DIR or --cache-dir to a directory on a local disk",
                                "%s, which may be a network file system: locks are slow there and not always "
                                "reliable",
                                known->name);
    else if (known->kind == MEMORY)
        aoticache_doctor_report(doctor, WARN, "file system",
                                "fine for experiments; otherwise set AOTICACHE_DIR to a disk",
                                "%s: the cache is lost when the machine restarts", known->name);
    else if (known->kind == LAYERED)
        aoticache_doctor_report(doctor, WARN, "file system", "keep the cache on a separate volume",
                                "%s: kernels that a container stores are lost with it", known->name);
    else
        aoticache_doctor_report(doctor, OK, "file system", NULL, "%s", known->name);
}

static void check_flags(aoticache_doctor *doctor, const struct statfs *information)
{
    if ((information->f_flags & ST_NOEXEC) != 0)
        aoticache_doctor_report(doctor, WARN, "mount", "mount it without noexec, or set AOTICACHE_DIR elsewhere",
                                "mounted noexec: libraries that are loaded from their file will not load");
    if ((information->f_flags & ST_RDONLY) != 0)
        aoticache_doctor_report(doctor, WARN, "mount", "set AOTICACHE_DIR to a directory that can be written",
                                "mounted read-only: nothing new can be stored");
}

/* Checks whether the file system has locks, which puts and collections need. Nothing stays locked. */
static void check_locks(aoticache_doctor *doctor, const char *path)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && (errno == ENOSYS || errno == EOPNOTSUPP))
        aoticache_doctor_report(
            doctor, FAIL, "locks",
            "mount it with locks (Lustre: -o flock), or set AOTICACHE_DIR to a directory on a local disk",
            "the file system does not support flock: nothing can be stored there");
}

static void check_space(aoticache_doctor *doctor, const struct statfs *information)
{
    char text[AOTICACHE_CLI_UNIT_BYTES];
    uint64_t free_bytes = (uint64_t)information->f_bavail * (uint64_t)information->f_bsize;
    aoticache_verdict verdict = free_bytes < 16 * MIB ? FAIL : free_bytes < 1024 * MIB ? WARN : OK;
    aoticache_doctor_report(
        doctor, verdict, "free space",
        verdict != OK ? "free some space: aoticache-gc --max-size 1G, or set AOTICACHE_DIR elsewhere" : NULL, "%s",
        aoticache_cli_format_bytes(free_bytes, text));
    if (information->f_files > 0 && information->f_ffree < 1000)
        aoticache_doctor_report(doctor, WARN, "free inodes", "remove files, or set AOTICACHE_DIR elsewhere",
                                "only %llu more files fit", (unsigned long long)information->f_ffree);
}

static void check_file_system(aoticache_doctor *doctor, const char *path)
{
    struct statfs information;
    if (statfs(path, &information) != 0) {
        aoticache_doctor_report(doctor, WARN, "file system", NULL, "cannot examine it: %s", strerror(errno));
        return;
    }
    check_kind(doctor, &information);
    check_flags(doctor, &information);
    check_locks(doctor, path);
    check_space(doctor, &information);
}

/* ---- the directory ---- */

/* Gives the nearest directory above `path` that exists. */
static void existing_parent(const char *path, char ret_parent[PATH_MAX])
{
    struct stat information;
    snprintf(ret_parent, PATH_MAX, "%s", path);
    while (stat(ret_parent, &information) != 0) {
        char *slash = strrchr(ret_parent, '/');
        if (slash == NULL || slash == ret_parent) {
            snprintf(ret_parent, PATH_MAX, "%s", slash == NULL ? "." : "/");
            return;
        }
        *slash = '\0';
    }
}

/* Reports a missing directory. A directory named only for doctor should exist; a configuration may be older than its cache. */
static void check_absent(aoticache_doctor *doctor, const char *path, const char *origin)
{
    char parent[PATH_MAX];
    cleanup_free char *named =
        origin != NULL ? aoticache_cli_text("; %s names it", origin) : aoticache_cli_text("%s", "");
    existing_parent(path, parent);
    if (access(parent, W_OK | X_OK) == 0 && doctor->cli->directory != NULL)
        aoticache_doctor_report(doctor, WARN, "directory", "correct the name, if there should be a cache",
                                "%s: not there yet, the first compile creates it%s", path, named);
    else if (access(parent, W_OK | X_OK) == 0)
        aoticache_doctor_report(doctor, OK, "directory", NULL, "%s: not there yet, the first compile creates it%s",
                                path, named);
    else
        aoticache_doctor_report(doctor, FAIL, "directory", "set AOTICACHE_DIR to a directory that you may write",
                                "%s: does not exist, and cannot be created in %s: %s", path, parent, strerror(errno));
    check_file_system(doctor, parent);
}

/*
 * Checks the mode. A directory that is shared on purpose is not a finding, except if all users of the machine may write. The
 * advice then only removes the permission of others; a directory that is not shared must be writable only by its owner, as
 * the library requires.
 */
static void check_mode(aoticache_doctor *doctor, const char *path, bool allowed, const struct stat *information)
{
    const unsigned mode = (unsigned)information->st_mode & 07777;
    const bool by_group = (mode & S_IWGRP) != 0, by_all = (mode & S_IWOTH) != 0;
    cleanup_free char *close_all = aoticache_cli_text("chmod %s-w %s", allowed ? "o" : "go", path);
    cleanup_free char *close_both =
        aoticache_cli_text("chmod go-w %s; or, if you trust all of the group, allow_shared = true in the configuration "
                           "(docs/operations.md)",
                           path);
    if (by_all)
        aoticache_doctor_report(doctor, allowed ? WARN : FAIL, "mode", close_all,
                                "%04o: everyone may write to it, and so put code into your programs", mode);
    else if (by_group && !allowed)
        aoticache_doctor_report(doctor, FAIL, "mode", close_both,
                                "%04o: group %u may write to it, and so put code into your programs", mode,
                                (unsigned)information->st_gid);
    else if (by_group)
        aoticache_doctor_report(doctor, OK, "mode", NULL, "%04o: shared with group %u, as the configuration allows",
                                mode, (unsigned)information->st_gid);
    else
        aoticache_doctor_report(doctor, OK, "mode", NULL, "%04o", mode);
}

static void check_owner(aoticache_doctor *doctor, const char *path, bool allowed, const struct stat *information)
{
    const unsigned owner = (unsigned)information->st_uid, own = (unsigned)geteuid();
    if (owner == own || owner == 0)
        aoticache_doctor_report(doctor, OK, "owner", NULL, "uid %u", owner);
    else if (allowed)
        aoticache_doctor_report(doctor, OK, "owner", NULL, "uid %u, not this process's %u, as the configuration allows",
                                owner, own);
    else
        aoticache_doctor_report(doctor, FAIL, "owner",
                                "use a directory of your own; or, if you trust its owner, allow_shared = true in the "
                                "configuration",
                                "uid %u owns it, this process is uid %u", owner, own);
    check_mode(doctor, path, allowed, information);
    if (access(path, W_OK | X_OK) != 0)
        aoticache_doctor_report(doctor, WARN, "access", NULL,
                                "not writable: existing entries are used, nothing is added");
}

/* ---- the index ---- */

/* Bytes 18 and 19 of an SQLite file give its journal mode: 2 is WAL, 1 a rollback journal (fileformat2.html). */
static const char *journal_mode(const char *directory)
{
    cleanup_free char *path = aoticache_cli_text("%s/index.sqlite3", directory);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    unsigned char versions[2];
    if (fd < 0 || pread(fd, versions, sizeof versions, 18) != (ssize_t)sizeof versions)
        return "unknown journal";
    return versions[0] == 2 ? "WAL" : "rollback journal";
}

/* Returns the version of the library's SQLite, which is in this process; the tool itself is not built with SQLite. */
static const char *sqlite_version(void)
{
    const char *(*version)(void) = NULL;
    void *symbol = dlsym(RTLD_DEFAULT, "sqlite3_libversion");
    memcpy(&version, &symbol, sizeof version);
    return version != NULL ? version() : "of unknown version";
}

static void check_journal(aoticache_doctor *doctor, const char *path)
{
    if (strcmp(journal_mode(path), "rollback journal") == 0)
        aoticache_doctor_report(doctor, WARN, "journal", "keep the cache on a local disk",
                                "the index does not use WAL here: lookups wait for writers");
}

static void check_integrity(aoticache_doctor *doctor, aoticache_cache *cache)
{
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_check_index(cache, false, &error);
    if (status == AOTICACHE_OK)
        aoticache_doctor_report(doctor, OK, "integrity", NULL, "SQLite's quick check of the index finds no errors");
    else if (status != AOTICACHE_NOT_FOUND)
        aoticache_doctor_report(doctor, FAIL, "integrity", "'aoticache verify --repair' rebuilds it from the manifests",
                                "%s", error.message);
}

static void check_contents(aoticache_doctor *doctor, const char *path, const aoticache_config *config,
                           aoticache_cache_options options)
{
    aoticache_error error = {.message = ""};
    aoticache_cache *cache = NULL;
    aoticache_statistics statistics;
    options.directory = path;
    options.read_only = true;
    options.must_exist = true;
    options.logger = aoticache_cli_logger(doctor->cli);
    aoticache_status status = aoticache_cache_open(&options, &cache, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_get_statistics(cache, NULL, &statistics, &error);
    if (status == AOTICACHE_OK) {
        char bytes[AOTICACHE_CLI_UNIT_BYTES];
        aoticache_doctor_report(doctor, OK, "index", NULL, "%" PRIu64 " %s, %s; SQLite %s, %s", statistics.entries,
                                statistics.entries == 1 ? "entry" : "entries",
                                aoticache_cli_format_bytes(statistics.bytes, bytes), sqlite_version(),
                                journal_mode(path));
        check_journal(doctor, path);
        check_integrity(doctor, cache);
        aoticache_doctor_check_limits(doctor, config, path, &statistics);
        aoticache_doctor_check_quarantine(doctor, path);
        aoticache_doctor_check_keys(doctor, config, cache);
    } else if (status == AOTICACHE_NOT_FOUND) {
        aoticache_doctor_report(doctor, OK, "index", NULL, "not there yet; SQLite %s", sqlite_version());
    } else {
        aoticache_doctor_report(doctor, FAIL, "index",
                                status == AOTICACHE_DENIED
                                    ? "see above; an untrusted cache is not used"
                                    : "'aoticache verify --repair' rebuilds the index and moves damaged files to "
                                      "quarantine/",
                                "%s", error.message[0] != '\0' ? error.message : aoticache_status_text(status));
    }
    aoticache_cache_close(cache);
}

static bool is_empty_directory(const char *path)
{
    cleanup_dir DIR *directory = opendir(path);
    return directory != NULL && aoticache_listing_next(directory) == NULL;
}

/* Returns "group kernels", or "group 998" if it has no name. */
static char *describe_group(gid_t group)
{
    const struct group *found = getgrgid(group);
    return found != NULL ? aoticache_cli_text("%s", found->gr_name) : aoticache_cli_text("%u", (unsigned)group);
}

/* Reports a directory that this user may not enter, for example a user outside the group that shares it. */
static void report_closed(aoticache_doctor *doctor, const char *path, const struct stat *information)
{
    cleanup_free char *group = describe_group(information->st_gid);
    const bool is_for_group = (information->st_mode & (S_IRGRP | S_IXGRP)) == (S_IRGRP | S_IXGRP);
    cleanup_free char *join = is_for_group
                                  ? aoticache_cli_text("to use it, become a member of the group (as root: usermod "
                                                       "-aG %s USER; then log in again). Otherwise ",
                                                       group)
                                  : aoticache_cli_text("%s", "");
    cleanup_free char *advice =
        aoticache_cli_text("%sname a directory of your own: AOTICACHE_DIR, or directory = ... in "
                           "~/.config/aoticache/config",
                           join);
    aoticache_doctor_report(
        doctor, FAIL, "directory", advice,
        "%s cannot be opened: it belongs to uid %u and group %s, its mode is %04o, and this process "
        "is uid %u",
        path, (unsigned)information->st_uid, group, (unsigned)information->st_mode & 07777, (unsigned)geteuid());
}

static void check_present(aoticache_doctor *doctor, const char *path, const aoticache_config *config,
                          const aoticache_cache_options *options, const struct stat *information)
{
    if (!S_ISDIR(information->st_mode)) {
        aoticache_doctor_report(doctor, FAIL, "directory", "remove it, or set AOTICACHE_DIR to a directory",
                                "%s is not a directory", path);
        return;
    }
    if (access(path, R_OK | X_OK) != 0) {
        report_closed(doctor, path, information);
        return;
    }
    aoticache_doctor_report(doctor, OK, "directory", NULL, "%s", path);
    check_owner(doctor, path, options->allow_shared, information);
    check_file_system(doctor, path);
    if (is_empty_directory(path))
        aoticache_doctor_report(doctor, OK, "index", NULL, "not there yet; SQLite %s", sqlite_version());
    else
        check_contents(doctor, path, config, *options);
}

/* Checks the directory that the command line or the configuration names. Creates nothing. */
static void check_directory_of(aoticache_doctor *doctor, const aoticache_config *config)
{
    char path[PATH_MAX];
    struct stat information;
    aoticache_error error = {.message = ""};
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_config_apply(config, &options);
    options.allow_shared |= doctor->cli->allow_shared;
    if (doctor->cli->directory != NULL)
        options.directory = doctor->cli->directory;
    if (options.directory != NULL) {
        snprintf(path, sizeof path, "%s", options.directory);
    } else if (aoticache_cache_default_directory(path, sizeof path, &error) != AOTICACHE_OK) {
        aoticache_doctor_report(doctor, FAIL, "directory", "set AOTICACHE_DIR or HOME", "%s",
                                error.message[0] != '\0' ? error.message : "no directory is chosen");
        return;
    }
    /* A symbolic link to the directory is followed, as opening it does; inside it links are not followed. */
    if (stat(path, &information) == 0)
        check_present(doctor, path, config, &options, &information);
    else if (errno == ENOENT)
        check_absent(doctor, path,
                     doctor->cli->directory != NULL ? "--cache-dir"
                     : options.directory != NULL    ? aoticache_config_get(config, AOTICACHE_CONFIG_directory).origin
                                                    : NULL);
    else
        aoticache_doctor_report(doctor, FAIL, "directory", "set AOTICACHE_DIR to a directory that you may use",
                                "%s: %s", path, strerror(errno));
}

void aoticache_doctor_check_directory(aoticache_doctor *doctor)
{
    aoticache_config *config = aoticache_doctor_check_configuration(doctor);
    check_directory_of(doctor, config);
    aoticache_config_free(config);
}
