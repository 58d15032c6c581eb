/*
 * record: records changes of files, and replays them with a power loss (record.h).
 *
 * A file is identified by its inode, a name by the inode of its directory. The initial files become calls too, synced
 * by one record of kind SYNC_ALL, so that a replay has only one way to make files.
 */
#include "tests/fault/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/helpers/cache_process.h"

#define SECTOR 512

const char *const loss_names[LOSS_COUNT] = {"nothing unsynced left", "empty files", "zeros",
                                            "no unsynced names",     "torn",        "a random part"};

enum kind { ADD, RENAME, UNLINK, WRITE, TRUNCATE, MODE, SYNC, SYNC_ALL };
static const char *const kind_names[] = {"make", "rename", "unlink", "write", "truncate", "chmod", "sync", "sync all"};

struct call {
    enum kind kind;
    ino_t directory, inode; /* RENAME: the source directory is in `from_directory` */
    ino_t from_directory;
    bool is_directory; /* ADD */
    mode_t mode;
    off_t offset; /* TRUNCATE: the size */
    size_t size;
    void *bytes;
    char name[NAME_MAX + 1], from_name[NAME_MAX + 1];
};

static struct call *calls;
static long count, first, marked, capacity;
static bool is_on;
static char root_path[PATH_MAX];
static ino_t root_inode;
static dev_t device;

static struct call *append(enum kind kind)
{
    if (count == capacity) {
        capacity = capacity == 0 ? 1024 : 2 * capacity;
        calls = realloc(calls, (size_t)capacity * sizeof *calls);
        if (calls == NULL)
            fail("record", "out of memory");
    }
    calls[count] = (struct call){.kind = kind};
    return &calls[count++];
}

bool record_is_on(void)
{
    return is_on;
}

/* Runs `statement` with recording off and errno preserved, if recording is on and the call has succeeded. */
#define RECORDING(result, statement)  \
    do {                              \
        if (is_on && (result) >= 0) { \
            const int saved = errno;  \
            is_on = false;            \
            statement;                \
            is_on = true;             \
            errno = saved;            \
        }                             \
        return result;                \
    } while (0)

/* Finds the inode of the directory of a path, and its last component. False: it is not on the root's file system. */
static bool find_name(int directory, const char *path, ino_t *ret_directory, char ret_name[NAME_MAX + 1])
{
    const char *slash = strrchr(path, '/');
    char parent[PATH_MAX];
    struct stat found;
    snprintf(parent, sizeof parent, "%.*s", slash == NULL ? 1 : (int)(slash - path) + 1, slash == NULL ? "." : path);
    snprintf(ret_name, NAME_MAX + 1, "%s", slash == NULL ? path : slash + 1);
    if (fstatat(directory, parent, &found, 0) != 0 || found.st_dev != device)
        return false;
    *ret_directory = found.st_ino;
    return true;
}

static void add(ino_t directory, const char *name, const struct stat *found)
{
    struct call *call = append(ADD);
    call->directory = directory;
    call->inode = found->st_ino;
    call->is_directory = S_ISDIR(found->st_mode);
    call->mode = found->st_mode & 07777;
    snprintf(call->name, sizeof call->name, "%s", name);
}

static void add_write(ino_t inode, off_t offset, const void *bytes, size_t size)
{
    struct call *call = append(WRITE);
    call->inode = inode;
    call->offset = offset;
    call->size = size;
    call->bytes = malloc(size + 1);
    if (call->bytes == NULL)
        fail("record", "out of memory");
    memcpy(call->bytes, bytes, size);
}

/* ---- recording ---- */

static void note_open(int fd, int flags)
{
    char link[64], path[PATH_MAX];
    struct stat found;
    ino_t directory;
    char name[NAME_MAX + 1];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0 || fstat(fd, &found) != 0 || found.st_dev != device || found.st_nlink == 0)
        return;
    path[length] = '\0';
    if ((flags & O_CREAT) != 0 && find_name(AT_FDCWD, path, &directory, name))
        add(directory, name, &found);
    if ((flags & O_TRUNC) != 0) {
        struct call *call = append(TRUNCATE);
        call->inode = found.st_ino;
    }
}

int record_open(int fd, int flags)
{
    RECORDING(fd, if ((flags & (O_CREAT | O_TRUNC)) != 0) note_open(fd, flags));
}

static void note_write(int fd, const void *bytes, size_t size, off_t offset)
{
    struct stat found;
    if (fstat(fd, &found) == 0 && found.st_dev == device)
        add_write(found.st_ino, offset, bytes, size);
}

ssize_t record_write(int fd, const void *bytes, ssize_t result, off_t offset)
{
    RECORDING(result, note_write(fd, bytes, (size_t)result, offset));
}

static void note_file(enum kind kind, int fd, off_t size, mode_t mode)
{
    struct stat found;
    if (fstat(fd, &found) != 0 || found.st_dev != device)
        return;
    struct call *call = append(kind);
    call->inode = found.st_ino;
    call->offset = size;
    call->mode = mode;
}

int record_truncate(int fd, off_t size, int result)
{
    RECORDING(result, note_file(TRUNCATE, fd, size, 0));
}

int record_mode(int fd, mode_t mode, int result)
{
    RECORDING(result, note_file(MODE, fd, 0, mode));
}

int record_sync(int fd, int result)
{
    RECORDING(result, note_file(SYNC, fd, 0, 0));
}

int record_sync_all(int result)
{
    RECORDING(result, append(SYNC_ALL));
}

static void note_made(int directory, const char *path)
{
    struct stat found;
    ino_t parent;
    char name[NAME_MAX + 1];
    if (fstatat(directory, path, &found, AT_SYMLINK_NOFOLLOW) == 0 && find_name(directory, path, &parent, name))
        add(parent, name, &found);
}

int record_made(int directory, const char *path, int result)
{
    RECORDING(result, note_made(directory, path));
}

int record_link(int directory, const char *path, int result)
{
    RECORDING(result, note_made(directory, path));
}

static void note_rename(int from_directory, const char *from, int to_directory, const char *to)
{
    struct call call = {.kind = RENAME};
    struct stat found;
    if (!find_name(from_directory, from, &call.from_directory, call.from_name) ||
        !find_name(to_directory, to, &call.directory, call.name) ||
        fstatat(to_directory, to, &found, AT_SYMLINK_NOFOLLOW) != 0)
        return;
    call.inode = found.st_ino;
    *append(RENAME) = call;
}

int record_rename(int from_directory, const char *from, int to_directory, const char *to, int result)
{
    RECORDING(result, note_rename(from_directory, from, to_directory, to));
}

static void note_unlink(int directory, const char *path)
{
    struct call call = {.kind = UNLINK};
    if (find_name(directory, path, &call.directory, call.name))
        *append(UNLINK) = call;
}

int record_unlink(int directory, const char *path, int flags, int result)
{
    (void)flags;
    RECORDING(result, note_unlink(directory, path));
}

/* ---- the initial files ---- */

static void add_bytes_of(const char *path, ino_t inode)
{
    char bytes[65536];
    off_t offset = 0;
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        fail("record", path);
    for (ssize_t got; (got = pread(fd, bytes, sizeof bytes, offset)) > 0; offset += got)
        add_write(inode, offset, bytes, (size_t)got);
    close(fd);
}

static void add_directory(const char *path, ino_t inode)
{
    DIR *directory = opendir(path);
    if (directory == NULL)
        return; /* the operation will make it */
    for (struct dirent *item; (item = readdir(directory)) != NULL;) {
        char below[PATH_MAX];
        struct stat found;
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0)
            continue;
        snprintf(below, sizeof below, "%s/%s", path, item->d_name);
        if (lstat(below, &found) != 0)
            fail("record", below);
        add(inode, item->d_name, &found);
        if (S_ISDIR(found.st_mode))
            add_directory(below, found.st_ino);
        else if (S_ISREG(found.st_mode))
            add_bytes_of(below, found.st_ino);
    }
    closedir(directory);
}

void record_begin(const char *root)
{
    struct stat found;
    for (long i = 0; i < count; i++)
        free(calls[i].bytes);
    count = 0;
    marked = LONG_MAX;
    snprintf(root_path, sizeof root_path, "%s", root);
    if (stat(root, &found) != 0)
        fail("record", root);
    root_inode = found.st_ino;
    device = found.st_dev;
    add_directory(root, root_inode);
    append(SYNC_ALL);
    first = count;
    is_on = true;
}

void record_mark(void)
{
    marked = record_calls();
}

void record_end(void)
{
    is_on = false;
}

long record_calls(void)
{
    return count - first;
}

long record_syncs(void)
{
    long syncs = 0;
    for (long i = first; i < count; i++)
        syncs += calls[i].kind == SYNC || calls[i].kind == SYNC_ALL;
    return syncs;
}

bool record_is_marked(long call)
{
    return call >= marked;
}

void record_describe(long call, char ret_text[200])
{
    if (first + call >= count) {
        snprintf(ret_text, 200, "the end");
        return;
    }
    const struct call *at = &calls[first + call];
    const char *name = at->name;
    for (long i = first + call; name[0] == '\0' && i >= 0; i--) /* the last name that it was given */
        if (calls[i].kind == ADD && calls[i].inode == at->inode)
            name = calls[i].name;
    snprintf(ret_text, 200, "%s %.100s", kind_names[at->kind], name);
}

/* ---- a model of the disk ---- */

struct file {
    ino_t inode;
    bool is_directory;
    mode_t mode;
    uint8_t *bytes;
    size_t size;
    char path[PATH_MAX]; /* path of its first written name; "" until then */
};
struct name {
    ino_t directory, inode;
    char name[NAME_MAX + 1];
};
struct disk {
    struct file *files;
    size_t file_count;
    struct name *names;
    size_t name_count;
};

static struct file *find_file(struct disk *disk, ino_t inode)
{
    for (size_t i = 0; i < disk->file_count; i++)
        if (disk->files[i].inode == inode)
            return &disk->files[i];
    return NULL;
}

static struct name *find_in(struct disk *disk, ino_t directory, const char *name)
{
    for (size_t i = 0; i < disk->name_count; i++)
        if (disk->names[i].directory == directory && strcmp(disk->names[i].name, name) == 0)
            return &disk->names[i];
    return NULL;
}

static void set_name(struct disk *disk, ino_t directory, const char *name, ino_t inode)
{
    struct name *there = find_in(disk, directory, name);
    if (there == NULL) {
        there = &disk->names[disk->name_count++];
        there->directory = directory;
        snprintf(there->name, sizeof there->name, "%s", name);
    }
    there->inode = inode;
}

static void drop_name(struct disk *disk, struct name *name)
{
    *name = disk->names[--disk->name_count];
}

static void resize(struct file *file, size_t size)
{
    if (size > file->size) {
        file->bytes = realloc(file->bytes, size);
        if (file->bytes == NULL)
            fail("replay", "out of memory");
        memset(file->bytes + file->size, 0, size - file->size);
    }
    file->size = size;
}

/* The part of an unsynced call that is applied. */
enum part { NONE, ALL, HALF, ZEROS, SOME };

static void apply_write(struct file *file, const struct call *call, enum part part)
{
    const size_t end = (size_t)call->offset + call->size;
    const uint8_t *from = call->bytes;
    if (part == HALF) { /* torn at the end of a sector, or in the middle of a single one */
        size_t half = call->size / 2 >= SECTOR ? call->size / 2 / SECTOR * SECTOR : call->size / 2;
        resize(file, (size_t)call->offset + half > file->size ? (size_t)call->offset + half : file->size);
        memcpy(file->bytes + call->offset, from, half);
        return;
    }
    resize(file, end > file->size ? end : file->size);
    for (size_t at = 0; at < call->size;) {
        size_t length = SECTOR - ((size_t)call->offset + at) % SECTOR;
        length = length < call->size - at ? length : call->size - at;
        if (part == ALL || (part == SOME && next_random(2) == 0))
            memcpy(file->bytes + call->offset + at, from + at, length);
        at += length;
    }
}

static void apply(struct disk *disk, const struct call *call, enum part part)
{
    struct file *file = find_file(disk, call->inode);
    struct name *name;
    switch (call->kind) {
    case ADD:
        if (file == NULL) {
            file = &disk->files[disk->file_count++];
            *file = (struct file){.inode = call->inode, .is_directory = call->is_directory, .mode = call->mode};
        }
        if (part != NONE)
            set_name(disk, call->directory, call->name, call->inode);
        break;
    case RENAME:
        name = find_in(disk, call->from_directory, call->from_name);
        if (part == NONE)
            break;
        if (name != NULL && name->inode == call->inode) /* the old name may never have reached the disk */
            drop_name(disk, name);
        set_name(disk, call->directory, call->name, call->inode);
        break;
    case UNLINK:
        name = find_in(disk, call->directory, call->name);
        if (part != NONE && name != NULL)
            drop_name(disk, name);
        break;
    case WRITE:
        if (part != NONE && file != NULL)
            apply_write(file, call, part);
        break;
    case TRUNCATE:
        if (part != NONE && part != HALF && file != NULL)
            resize(file, (size_t)call->offset);
        break;
    case MODE:
        if (file != NULL)
            file->mode = call->mode;
        break;
    case SYNC:
    case SYNC_ALL:
        break;
    }
}

static bool is_of_names(enum kind kind)
{
    return kind == ADD || kind == RENAME || kind == UNLINK;
}

/* Returns whether call i is certainly on the disk before call `end`. */
static bool is_durable(long i, long end)
{
    if (calls[i].kind == MODE)
        return true;
    for (long j = i + 1; j < end; j++) {
        if (calls[j].kind == SYNC_ALL)
            return true;
        if (calls[j].kind != SYNC)
            continue;
        if (is_of_names(calls[i].kind) ? calls[j].inode == calls[i].directory ||
                                             (calls[i].kind == RENAME && calls[j].inode == calls[i].from_directory)
                                       : calls[j].inode == calls[i].inode)
            return true;
    }
    return false;
}

static enum part part_of(const struct call *call, enum loss loss, bool is_last)
{
    switch (loss) {
    case LOSE_BYTES:
        return is_of_names(call->kind) ? ALL : NONE;
    case LOSE_TO_ZEROS:
        return call->kind == WRITE ? ZEROS : ALL;
    case LOSE_NAMES:
        return is_of_names(call->kind) ? NONE : ALL;
    case LOSE_LAST:
        return is_last ? (is_of_names(call->kind) ? NONE : HALF) : ALL;
    case LOSE_AT_RANDOM:
        return call->kind == WRITE ? SOME : next_random(2) == 0 ? ALL : NONE;
    default:
        return NONE;
    }
}

static void write_names(struct disk *disk, ino_t directory, const char *path)
{
    for (size_t i = 0; i < disk->name_count; i++) {
        char below[PATH_MAX];
        struct file *file = disk->names[i].directory == directory ? find_file(disk, disk->names[i].inode) : NULL;
        if (file == NULL)
            continue;
        snprintf(below, sizeof below, "%.3000s/%.255s", path, disk->names[i].name);
        if (file->is_directory) {
            mkdir(below, file->mode);
            chmod(below, file->mode);
            write_names(disk, file->inode, below);
            continue;
        }
        if (file->path[0] != '\0') {
            if (link(file->path, below) != 0)
                fail("replay", below);
            continue;
        }
        int fd = open(below, O_WRONLY | O_CREAT | O_EXCL, 0600);
        if (fd < 0 || (file->size > 0 && write(fd, file->bytes, file->size) != (ssize_t)file->size) ||
            fchmod(fd, file->mode) != 0)
            fail("replay", below);
        close(fd);
        snprintf(file->path, sizeof file->path, "%s", below);
    }
}

void record_replay(long call, enum loss loss, unsigned seed, const char *into)
{
    const long end = first + call;
    struct disk disk = {.files = calloc((size_t)count + 1, sizeof *disk.files),
                        .names = calloc((size_t)count + 1, sizeof *disk.names)};
    long last = -1;
    if (disk.files == NULL || disk.names == NULL)
        fail("replay", "out of memory");
    bool *durable = calloc((size_t)count + 1, sizeof *durable);
    for (long i = 0; i < end; i++) {
        durable[i] = i < first || is_durable(i, end);
        last = durable[i] || calls[i].kind == SYNC ? last : i;
    }
    random_state = seed;
    for (long i = 0; i < end; i++)
        apply(&disk, &calls[i], durable[i] ? ALL : part_of(&calls[i], loss, i == last));
    free(durable);
    remove_directory(into);
    if (mkdir(into, 0700) != 0)
        fail("replay", into);
    write_names(&disk, root_inode, into);
    for (size_t i = 0; i < disk.file_count; i++)
        free(disk.files[i].bytes);
    free(disk.files);
    free(disk.names);
}
