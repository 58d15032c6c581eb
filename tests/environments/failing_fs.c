/*
 * failing_fs: a FUSE file system that forwards all calls to a directory, and fails on purpose.
 *
 *   failing_fs DIRECTORY MOUNTPOINT [direct_io] [FUSE OPTION]...
 *
 * Which calls fail is written into the file .control of the mount point, which no directory lists:
 *
 *   EIO 7 read,write     each seventh call of these kinds fails with EIO (EIO, ENOSPC, EINTR, EROFS, EACCES, EDQUOT)
 *   short 3 read,write   each third processes only half
 *   well                 nothing fails
 *
 * Reading .control returns how many calls have failed. Kinds: read write create open unlink mkdir rmdir rename link fsync list
 * change (mode, owner, size, times) stat; all; changes (all except read, open, list and stat). Half a read is only for
 * direct_io: otherwise the kernel treats it as the end of the file. direct_io: no page cache, so that no file can be mapped
 * and shared.
 */
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* clang-format off */
#define KIND_LIST(X) \
    X(read) X(write) X(create) X(open) X(unlink) X(mkdir) X(rmdir) X(rename) X(link) X(fsync) X(list) X(change) X(stat)
/* clang-format on */

enum kind {
#define KIND_ENUM(name) KIND_##name,
    KIND_LIST(KIND_ENUM)
#undef KIND_ENUM
        KIND_COUNT
};
static const char *const kind_names[] = {
#define KIND_NAME(name) #name,
    KIND_LIST(KIND_NAME)
#undef KIND_NAME
};
#define READING (1u << KIND_read | 1u << KIND_open | 1u << KIND_list | 1u << KIND_stat)
#define CONTROL "/.control"

static int directory;
static bool is_direct;
static _Atomic int error_now, each; /* error 0: half is processed; each 0: nothing fails */
static _Atomic unsigned kinds;
static _Atomic long calls, failures;

/* ---- failures ---- */

static bool is_due(enum kind kind)
{
    const int every = each;
    if (every == 0 || (kinds & 1u << kind) == 0 || calls++ % every != every - 1)
        return false;
    failures++;
    return true;
}

/* Returns 0, or the error, negative. */
static int failure(enum kind kind)
{
    return error_now != 0 && is_due(kind) ? -error_now : 0;
}

static size_t share(enum kind kind, size_t size)
{
    return error_now == 0 && size > 1 && is_due(kind) ? size / 2 : size;
}

static unsigned read_kinds(char *words)
{
    unsigned found = 0;
    for (char *rest, *word = strtok_r(words, ", \n", &rest); word != NULL; word = strtok_r(NULL, ", \n", &rest)) {
        for (int kind = 0; kind < KIND_COUNT; kind++)
            if (strcmp(word, kind_names[kind]) == 0)
                found |= 1u << kind;
        if (strcmp(word, "all") == 0)
            found |= (1u << KIND_COUNT) - 1;
        if (strcmp(word, "changes") == 0)
            found |= ((1u << KIND_COUNT) - 1) & ~READING;
    }
    return found;
}

static int control(const char *bytes, size_t size)
{
    static const struct {
        const char *name;
        int error;
    } errors[] = {
        {"short", 0},     {"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EINTR", EINTR},
        {"EROFS", EROFS}, {"EACCES", EACCES}, {"EDQUOT", EDQUOT},
    };
    char text[200] = "", name[20] = "", words[150] = "";
    int every = 0;
    memcpy(text, bytes, size < sizeof text - 1 ? size : sizeof text - 1);
    const int count = sscanf(text, "%19s %d %149s", name, &every, words);
    each = 0;
    failures = 0;
    if (strcmp(name, "well") == 0)
        return 0;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (count == 3 && every > 0 && strcmp(name, errors[i].name) == 0) {
            error_now = errors[i].error;
            kinds = read_kinds(words);
            each = every;
            return 0;
        }
    return -EINVAL;
}

/* ---- forwarded calls ---- */

static bool is_control(const char *path)
{
    return path != NULL && strcmp(path, CONTROL) == 0;
}

static const char *below(const char *path)
{
    return path[1] == '\0' ? "." : path + 1;
}

static int result_of(int result)
{
    return result < 0 ? -errno : 0;
}

#define FAIL_IF_DUE(kind)                      \
    do {                                       \
        const int failed_with = failure(kind); \
        if (failed_with != 0)                  \
            return failed_with;                \
    } while (0)

static void *fs_init(struct fuse_conn_info *connection, struct fuse_config *config)
{
    (void)connection;
    config->use_ino = 1;
    config->nullpath_ok = 0;
    config->hard_remove = 1; /* a file that is removed while open is not renamed, so it has no path any longer */
    config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
    return NULL;
}

static int fs_getattr(const char *path, struct stat *found, struct fuse_file_info *file)
{
    if (is_control(path)) {
        memset(found, 0, sizeof *found);
        found->st_mode = S_IFREG | 0600;
        found->st_nlink = 1;
        return 0;
    }
    FAIL_IF_DUE(KIND_stat);
    if (file != NULL)
        return result_of(fstat((int)file->fh, found));
    return result_of(fstatat(directory, below(path), found, AT_SYMLINK_NOFOLLOW));
}

static int fs_readlink(const char *path, char *target, size_t size)
{
    const ssize_t got = readlinkat(directory, below(path), target, size - 1);
    if (got < 0)
        return -errno;
    target[got] = '\0';
    return 0;
}

static int fs_create(const char *path, mode_t mode, struct fuse_file_info *file)
{
    FAIL_IF_DUE(KIND_create);
    const int fd = openat(directory, below(path), (file->flags & ~O_DIRECT) | O_CLOEXEC, mode);
    if (fd < 0)
        return -errno;
    file->fh = (uint64_t)fd;
    file->direct_io = is_direct;
    return 0;
}

static int fs_open(const char *path, struct fuse_file_info *file)
{
    if (is_control(path)) {
        file->fh = UINT64_MAX;
        file->direct_io = 1;
        return 0;
    }
    FAIL_IF_DUE(KIND_open);
    /* the kernel does the appending, and reads the rest of what it writes in part */
    const int fd = openat(directory, below(path), (file->flags & ~(O_APPEND | O_DIRECT)) | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    file->fh = (uint64_t)fd;
    file->direct_io = is_direct;
    return 0;
}

static int fs_read(const char *path, char *bytes, size_t size, off_t offset, struct fuse_file_info *file)
{
    (void)path;
    if (file->fh == UINT64_MAX) {
        char text[32];
        const int length = snprintf(text, sizeof text, "%ld\n", (long)failures);
        if (offset >= length)
            return 0;
        memcpy(bytes, text + offset, (size_t)(length - offset));
        return length - (int)offset;
    }
    FAIL_IF_DUE(KIND_read);
    const ssize_t got = pread((int)file->fh, bytes, is_direct ? share(KIND_read, size) : size, offset);
    return got < 0 ? -errno : (int)got;
}

static int fs_write(const char *path, const char *bytes, size_t size, off_t offset, struct fuse_file_info *file)
{
    (void)path;
    if (file->fh == UINT64_MAX) {
        const int failed = control(bytes, size);
        return failed != 0 ? failed : (int)size;
    }
    FAIL_IF_DUE(KIND_write);
    const ssize_t put = pwrite((int)file->fh, bytes, share(KIND_write, size), offset);
    return put < 0 ? -errno : (int)put;
}

static int fs_release(const char *path, struct fuse_file_info *file)
{
    (void)path;
    if (file->fh != UINT64_MAX)
        close((int)file->fh);
    return 0;
}

static int fs_fsync(const char *path, int data_only, struct fuse_file_info *file)
{
    (void)path;
    FAIL_IF_DUE(KIND_fsync);
    return result_of(data_only ? fdatasync((int)file->fh) : fsync((int)file->fh));
}

static int fs_fallocate(const char *path, int mode, off_t offset, off_t length, struct fuse_file_info *file)
{
    (void)path;
    FAIL_IF_DUE(KIND_write);
    return result_of(fallocate((int)file->fh, mode, offset, length));
}

static int fs_truncate(const char *path, off_t size, struct fuse_file_info *file)
{
    if (is_control(path))
        return 0;
    FAIL_IF_DUE(KIND_change);
    if (file != NULL)
        return result_of(ftruncate((int)file->fh, size));
    const int fd = openat(directory, below(path), O_WRONLY | O_CLOEXEC);
    const int result = fd < 0 ? -errno : result_of(ftruncate(fd, size));
    if (fd >= 0)
        close(fd);
    return result;
}

static int fs_chmod(const char *path, mode_t mode, struct fuse_file_info *file)
{
    FAIL_IF_DUE(KIND_change);
    return result_of(file != NULL ? fchmod((int)file->fh, mode) : fchmodat(directory, below(path), mode, 0));
}

static int fs_chown(const char *path, uid_t owner, gid_t group, struct fuse_file_info *file)
{
    FAIL_IF_DUE(KIND_change);
    if (file != NULL)
        return result_of(fchown((int)file->fh, owner, group));
    return result_of(fchownat(directory, below(path), owner, group, AT_SYMLINK_NOFOLLOW));
}

static int fs_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *file)
{
    FAIL_IF_DUE(KIND_change);
    if (file != NULL)
        return result_of(futimens((int)file->fh, times));
    return result_of(utimensat(directory, below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int fs_unlink(const char *path)
{
    FAIL_IF_DUE(KIND_unlink);
    return result_of(unlinkat(directory, below(path), 0));
}

static int fs_mkdir(const char *path, mode_t mode)
{
    FAIL_IF_DUE(KIND_mkdir);
    return result_of(mkdirat(directory, below(path), mode));
}

static int fs_rmdir(const char *path)
{
    FAIL_IF_DUE(KIND_rmdir);
    return result_of(unlinkat(directory, below(path), AT_REMOVEDIR));
}

static int fs_rename(const char *from, const char *to, unsigned flags)
{
    FAIL_IF_DUE(KIND_rename);
    return result_of(renameat2(directory, below(from), directory, below(to), flags));
}

static int fs_link(const char *from, const char *to)
{
    FAIL_IF_DUE(KIND_link);
    return result_of(linkat(directory, below(from), directory, below(to), 0));
}

static int fs_symlink(const char *target, const char *path)
{
    FAIL_IF_DUE(KIND_link);
    return result_of(symlinkat(target, directory, below(path)));
}

static int fs_opendir(const char *path, struct fuse_file_info *file)
{
    FAIL_IF_DUE(KIND_open);
    const int fd = openat(directory, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    file->fh = (uint64_t)fd;
    return 0;
}

static int fs_readdir(const char *path, void *buffer, fuse_fill_dir_t add, off_t offset, struct fuse_file_info *file,
                      enum fuse_readdir_flags flags)
{
    (void)path, (void)offset, (void)flags;
    FAIL_IF_DUE(KIND_list);
    const int fd = openat((int)file->fh, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;
    if (listing == NULL)
        return -errno;
    for (struct dirent *item; (item = readdir(listing)) != NULL;) {
        const struct stat found = {.st_ino = item->d_ino, .st_mode = (mode_t)DTTOIF(item->d_type)};
        if (add(buffer, item->d_name, &found, 0, 0) != 0)
            break;
    }
    closedir(listing);
    return 0;
}

static int fs_statfs(const char *path, struct statvfs *found)
{
    (void)path;
    return result_of(fstatvfs(directory, found));
}

int main(int argc, char **argv)
{
    static const struct fuse_operations operations = {
        .init = fs_init,
        .getattr = fs_getattr,
        .readlink = fs_readlink,
        .create = fs_create,
        .open = fs_open,
        .read = fs_read,
        .write = fs_write,
        .release = fs_release,
        .fsync = fs_fsync,
        .fallocate = fs_fallocate,
        .truncate = fs_truncate,
        .chmod = fs_chmod,
        .chown = fs_chown,
        .utimens = fs_utimens,
        .unlink = fs_unlink,
        .mkdir = fs_mkdir,
        .rmdir = fs_rmdir,
        .rename = fs_rename,
        .link = fs_link,
        .symlink = fs_symlink,
        .opendir = fs_opendir,
        .releasedir = fs_release,
        .readdir = fs_readdir,
        .fsyncdir = fs_fsync,
        .statfs = fs_statfs,
    };
    if (argc < 3 || (directory = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        fprintf(stderr, "usage: failing_fs DIRECTORY MOUNTPOINT [direct_io] [FUSE OPTION]...\n");
        return 2;
    }
    argv[1] = argv[0];
    is_direct = argc > 3 && strcmp(argv[3], "direct_io") == 0;
    if (is_direct)
        memmove(&argv[3], &argv[4], (size_t)(argc - 3) * sizeof argv[0]);
    umask(0);
    return fuse_main(argc - (is_direct ? 2 : 1), argv + 1, &operations, NULL);
}
