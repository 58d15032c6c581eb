/*
 * inject: overrides functions of the C library so that chosen calls fail (inject.h).
 *
 * Each function here calls `fails()` with its class, which determines its possible errnos, and then the real function.
 */
#include "tests/fault/inject.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fault/record.h"

#pragma GCC visibility push(default) /* otherwise shared objects would not find them */

/* The class of a call determines its possible errnos. */
enum call_class {
    OPEN_TO_READ,
    OPEN_TO_WRITE,
    READ,
    WRITE,
    SYNC,
    NAME,
    SPACE,
    MODE,
    LOOK,
    LOOK_AT_FILE,
    LOCK,
    MAP,
    SPAWN,
    WAIT,
    CLASS_COUNT
};

static const int class_errors[CLASS_COUNT][9] = {
    [OPEN_TO_READ] = {EIO, EACCES, EMFILE, ENOMEM}, /* Linux restarts it by itself */
    [OPEN_TO_WRITE] = {EIO, EACCES, EMFILE, ENOMEM, EINTR, ENOSPC, EDQUOT, EROFS},
    [READ] = {EIO, EINTR},
    [WRITE] = {EIO, EINTR, ENOSPC, EDQUOT},
    [SYNC] = {EIO, ENOSPC, EDQUOT},
    [NAME] = {EIO, EACCES, ENOSPC, EDQUOT, EROFS},
    [SPACE] = {EIO, EINTR, ENOSPC, EDQUOT},
    [MODE] = {EIO, EACCES, EROFS},
    [LOOK] = {EIO, EACCES},
    [LOOK_AT_FILE] = {EIO},
    [LOCK] = {EIO, EINTR, ENOLCK},
    [MAP] = {ENOMEM, EMFILE},
    [SPAWN] = {EMFILE, ENOMEM, EAGAIN},
    [WAIT] = {EINTR},
};

#define MAX_CALLS 65536
static uint8_t *classes; /* of the last injection's calls; shared with forked processes */

__attribute__((constructor)) static void share_classes(void)
{
    void *memory = mmap(NULL, MAX_CALLS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        _exit(99);
    classes = memory;
}

static struct injection *current;
static atomic_bool is_on;
static atomic_long calls, allocations, threads, live_blocks;
static atomic_bool has_happened;
static __thread bool is_beginner; /* injection_begin() was called on this thread */
static __thread bool is_inside;   /* calls from this file are not counted */

void injection_begin(struct injection *injection)
{
    current = injection;
    is_beginner = true;
    atomic_store(&calls, 0);
    atomic_store(&allocations, 0);
    atomic_store(&threads, 0);
    atomic_store(&has_happened, false);
    atomic_store(&is_on, true);
}

void injection_end(void)
{
    atomic_store(&is_on, false);
    current->calls = atomic_load(&calls);
    current->allocations = atomic_load(&allocations);
    current->threads = atomic_load(&threads);
    current->happened = atomic_load(&has_happened);
}

void injection_pause(void)
{
    is_inside = true;
}

void injection_resume(void)
{
    is_inside = false;
}

static bool is_possible(enum call_class class, int error)
{
    for (size_t i = 0; class_errors[class][i] != 0; i++)
        if (class_errors[class][i] == error)
            return true;
    return false;
}

unsigned injection_possible(long call, const int *errors, size_t count)
{
    unsigned bits = 0;
    for (size_t i = 0; call < MAX_CALLS && i < count; i++)
        bits |= (unsigned)is_possible(classes[call], errors[i]) << i;
    return bits;
}

bool injection_can_be_short(long call)
{
    return call < MAX_CALLS && (classes[call] == READ || classes[call] == WRITE);
}

static void note_happened(const char *call, const char *path)
{
    if (atomic_exchange(&has_happened, true))
        return;
    is_inside = true;
    snprintf(current->call, sizeof current->call, "%s", call);
    snprintf(current->path, sizeof current->path, "%s", path != NULL ? path : "");
    if (current->traces) {
        void *frames[32];
        backtrace_symbols_fd(frames, backtrace(frames, 32), 2);
    }
    is_inside = false;
}

/* Returns whether this call must fail, with errno set. */
static bool fails(enum call_class class, const char *call, const char *path)
{
    if (__builtin_expect(!atomic_load_explicit(&is_on, memory_order_relaxed), 1) || is_inside)
        return false;
    const long number = atomic_fetch_add(&calls, 1);
    if (number < MAX_CALLS)
        classes[number] = class;
    if (current->kind != INJECT_ERROR || (current->persists ? number < current->at : number != current->at) ||
        !is_possible(class, current->error))
        return false;
    if (current->persists && class == LOCK) /* SQLite retries for ten seconds */
        return false;
    note_happened(call, path);
    errno = current->error;
    return true;
}

/* Returns how many of `size` bytes a call may transfer. */
static size_t shortened(size_t size)
{
    if (!atomic_load_explicit(&is_on, memory_order_relaxed) || is_inside || current->kind != INJECT_SHORT ||
        atomic_load(&calls) - 1 != current->at || size < 2)
        return size;
    note_happened("short", NULL);
    return size / 2;
}

/* The real function of a name, looked up once. */
#define REAL(name)                                 \
    static __typeof__(&name) real;                 \
    if (__builtin_expect(real == NULL, 0)) {       \
        const bool was_inside = is_inside;         \
        is_inside = true;                          \
        *(void **)&real = dlsym(RTLD_NEXT, #name); \
        is_inside = was_inside;                    \
    }

/* ---- memory ---- */

static const char *const spared_names[] = {"libarchive", "libzstd", "ld-linux"};
#define SPARED_COUNT (sizeof spared_names / sizeof spared_names[0])
static uintptr_t spared_from[SPARED_COUNT], spared_to[SPARED_COUNT];

static int find_spared(struct dl_phdr_info *object, size_t size, void *user)
{
    const char *slash = strrchr(object->dlpi_name, '/'), *name = slash != NULL ? slash + 1 : object->dlpi_name;
    (void)size, (void)user;
    for (size_t spared = 0; spared < SPARED_COUNT; spared++)
        for (size_t i = 0; i < object->dlpi_phnum; i++)
            if (strncmp(name, spared_names[spared], strlen(spared_names[spared])) == 0 &&
                object->dlpi_phdr[i].p_type == PT_LOAD && (object->dlpi_phdr[i].p_flags & PF_X) != 0) {
                spared_from[spared] = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
                spared_to[spared] = spared_from[spared] + object->dlpi_phdr[i].p_memsz;
            }
    return 0;
}

void injection_spare_others(void)
{
    dl_iterate_phdr(find_spared, NULL);
}

static bool allocation_fails(const void *caller)
{
    for (size_t i = 0; i < SPARED_COUNT; i++)
        if ((uintptr_t)caller >= spared_from[i] && (uintptr_t)caller < spared_to[i])
            return false;
    if (__builtin_expect(!atomic_load_explicit(&is_on, memory_order_relaxed), 1) || is_inside)
        return false;
#ifdef INJECT_BESIDE_SANITIZER
    if (!is_beginner) /* the sanitizer needs memory for each thread that starts */
        return false;
#endif
    const long number = atomic_fetch_add(&allocations, 1);
    if (current->kind != INJECT_MEMORY || (current->persists ? number < current->at : number != current->at))
        return false;
    note_happened("allocation", NULL);
    errno = ENOMEM;
    return true;
}

#ifdef INJECT_BESIDE_SANITIZER
void *__interceptor_malloc(size_t size);
void *__interceptor_calloc(size_t count, size_t size);
void *__interceptor_realloc(void *old, size_t size);
void *__interceptor_aligned_alloc(size_t alignment, size_t size);
#define REAL_malloc __interceptor_malloc
#define REAL_calloc __interceptor_calloc
#define REAL_realloc __interceptor_realloc
#define REAL_aligned __interceptor_aligned_alloc

long injection_live_blocks(void)
{
    return -1;
}
#else
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);
#define REAL_malloc __libc_malloc
#define REAL_calloc __libc_calloc
#define REAL_realloc __libc_realloc
#define REAL_aligned __libc_memalign

void free(void *block)
{
    if (block != NULL)
        atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
    __libc_free(block);
}

long injection_live_blocks(void)
{
    return atomic_load(&live_blocks);
}
#endif

static void *counted(void *block)
{
    if (block != NULL)
        atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    return block;
}

void *malloc(size_t size)
{
    return allocation_fails(__builtin_return_address(0)) ? NULL : counted(REAL_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    return allocation_fails(__builtin_return_address(0)) ? NULL : counted(REAL_calloc(count, size));
}

void *realloc(void *old, size_t size)
{
    if (size != 0 && allocation_fails(__builtin_return_address(0)))
        return NULL;
    void *block = REAL_realloc(old, size);
    if (old == NULL)
        counted(block);
    else if (size == 0)
        atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
    return block;
}

void *reallocarray(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return allocation_fails(__builtin_return_address(0)) ? NULL : counted(REAL_aligned(alignment, size));
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*begin)(void *), void *user)
{
    REAL(pthread_create);
    if (atomic_load(&is_on) && !is_inside) {
        const long number = atomic_fetch_add(&threads, 1);
        if (current->kind == INJECT_THREAD && (current->persists ? number >= current->at : number == current->at)) {
            note_happened("pthread_create", NULL);
            return EAGAIN;
        }
    }
    return real(thread, attributes, begin, user);
}

/* ---- opening ---- */

static int open_class(int flags)
{
    return (flags & (O_CREAT | O_TRUNC)) != 0 || (flags & O_ACCMODE) != O_RDONLY ? OPEN_TO_WRITE : OPEN_TO_READ;
}

#define MODE_ARGUMENT(flags, mode)                                    \
    mode_t mode = 0;                                                  \
    if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) { \
        va_list rest;                                                 \
        va_start(rest, flags);                                        \
        mode = va_arg(rest, mode_t);                                  \
        va_end(rest);                                                 \
    }

#define DEFINE_OPEN(name)                                   \
    int name(const char *path, int flags, ...)              \
    {                                                       \
        REAL(name);                                         \
        MODE_ARGUMENT(flags, mode)                          \
        if (fails(open_class(flags), "open", path))         \
            return -1;                                      \
        return record_open(real(path, flags, mode), flags); \
    }
#define DEFINE_OPENAT(name)                                            \
    int name(int directory, const char *path, int flags, ...)          \
    {                                                                  \
        REAL(name);                                                    \
        MODE_ARGUMENT(flags, mode)                                     \
        if (fails(open_class(flags), "openat", path))                  \
            return -1;                                                 \
        return record_open(real(directory, path, flags, mode), flags); \
    }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

/* openat2 has no function in the C library. */
long syscall(long number, ...)
{
    REAL(syscall);
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (size_t i = 0; i < 6; i++)
        a[i] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_openat2 && fails(OPEN_TO_READ, "openat2", (const char *)a[1]))
        return -1;
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

FILE *fopen(const char *path, const char *mode)
{
    REAL(fopen);
    return fails(mode[0] == 'r' ? OPEN_TO_READ : OPEN_TO_WRITE, "fopen", path) ? NULL : real(path, mode);
}

/* Overridden because buffered bytes are written here. */
int fclose(FILE *file)
{
    REAL(fclose);
    const bool has_failed = fileno(file) >= 0 && fails(WRITE, "fclose", NULL); /* otherwise the file is in memory */
    const int error = errno, result = real(file);
    errno = has_failed ? error : errno;
    return has_failed ? EOF : result;
}

DIR *opendir(const char *path)
{
    REAL(opendir);
    return fails(OPEN_TO_READ, "opendir", path) ? NULL : real(path);
}

#define DEFINE_READDIR(name, type)                                            \
    struct type *name(DIR *directory)                                         \
    {                                                                         \
        REAL(name);                                                           \
        return fails(LOOK_AT_FILE, "readdir", NULL) ? NULL : real(directory); \
    }
DEFINE_READDIR(readdir, dirent)
DEFINE_READDIR(readdir64, dirent64)

int scandir(const char *path, struct dirent ***names, int (*filter)(const struct dirent *),
            int (*compare)(const struct dirent **, const struct dirent **))
{
    REAL(scandir);
    return fails(OPEN_TO_READ, "scandir", path) ? -1 : real(path, names, filter, compare);
}

char *realpath(const char *path, char *into)
{
    REAL(realpath);
    return fails(LOOK, "realpath", path) ? NULL : real(path, into);
}

/* ---- bytes ---- */

/* Returns the class. Output of another process has no disk that could fail. */
static enum call_class class_of_reading(int fd)
{
    const bool was_inside = is_inside;
    struct stat found;
    is_inside = true;
    const enum call_class class = fstat(fd, &found) == 0 && !S_ISREG(found.st_mode) ? WAIT : READ;
    is_inside = was_inside;
    return class;
}

ssize_t read(int fd, void *bytes, size_t size)
{
    REAL(read);
    return fails(class_of_reading(fd), "read", NULL) ? -1 : real(fd, bytes, shortened(size));
}

#define DEFINE_PREAD(name, type)                                                           \
    ssize_t name(int fd, void *bytes, size_t size, type offset)                            \
    {                                                                                      \
        REAL(name);                                                                        \
        return fails(READ, "pread", NULL) ? -1 : real(fd, bytes, shortened(size), offset); \
    }
DEFINE_PREAD(pread, off_t)
DEFINE_PREAD(pread64, off64_t)

ssize_t write(int fd, const void *bytes, size_t size)
{
    REAL(write);
    if (fails(WRITE, "write", NULL))
        return -1;
    const off_t offset = record_is_on() ? lseek(fd, 0, SEEK_CUR) : 0;
    return record_write(fd, bytes, real(fd, bytes, shortened(size)), offset);
}

#define DEFINE_PWRITE(name, type)                                                         \
    ssize_t name(int fd, const void *bytes, size_t size, type offset)                     \
    {                                                                                     \
        REAL(name);                                                                       \
        if (fails(WRITE, "pwrite", NULL))                                                 \
            return -1;                                                                    \
        return record_write(fd, bytes, real(fd, bytes, shortened(size), offset), offset); \
    }
DEFINE_PWRITE(pwrite, off_t)
DEFINE_PWRITE(pwrite64, off64_t)

ssize_t copy_file_range(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t size, unsigned flags)
{
    REAL(copy_file_range);
    if (record_is_on()) { /* its bytes would not be recorded; callers have a substitute */
        errno = EXDEV;
        return -1;
    }
    return fails(WRITE, "copy_file_range", NULL) ? -1 : real(from, from_offset, to, to_offset, shortened(size), flags);
}

ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
    REAL(send);
    return fails(WAIT, "send", NULL) ? -1 : real(fd, bytes, shortened(size), flags);
}

/* ---- syncs and space ---- */

int fsync(int fd)
{
    REAL(fsync);
    return fails(SYNC, "fsync", NULL) ? -1 : record_sync(fd, real(fd));
}

int fdatasync(int fd)
{
    REAL(fdatasync);
    return fails(SYNC, "fdatasync", NULL) ? -1 : record_sync(fd, real(fd));
}

int syncfs(int fd)
{
    REAL(syncfs);
    return fails(SYNC, "syncfs", NULL) ? -1 : record_sync_all(real(fd));
}

#define DEFINE_TRUNCATE(name, type)                                                              \
    int name(int fd, type size)                                                                  \
    {                                                                                            \
        REAL(name);                                                                              \
        return fails(SPACE, "ftruncate", NULL) ? -1 : record_truncate(fd, size, real(fd, size)); \
    }
DEFINE_TRUNCATE(ftruncate, off_t)
DEFINE_TRUNCATE(ftruncate64, off64_t)

#define DEFINE_ALLOCATE(name, type)                                                    \
    int name(int fd, type offset, type size)                                           \
    {                                                                                  \
        REAL(name);                                                                    \
        return fails(SPACE, "posix_fallocate", NULL) ? errno : real(fd, offset, size); \
    }
DEFINE_ALLOCATE(posix_fallocate, off_t)
DEFINE_ALLOCATE(posix_fallocate64, off64_t)

/* ---- names ---- */

int mkdirat(int directory, const char *path, mode_t mode)
{
    REAL(mkdirat);
    return fails(NAME, "mkdirat", path) ? -1 : record_made(directory, path, real(directory, path, mode));
}

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir);
    return fails(NAME, "mkdir", path) ? -1 : record_made(AT_FDCWD, path, real(path, mode));
}

char *mkdtemp(char *path)
{
    REAL(mkdtemp);
    return fails(NAME, "mkdtemp", path) ? NULL : real(path);
}

int renameat(int from_directory, const char *from, int to_directory, const char *to)
{
    REAL(renameat);
    if (fails(NAME, "renameat", to))
        return -1;
    return record_rename(from_directory, from, to_directory, to, real(from_directory, from, to_directory, to));
}

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags)
{
    REAL(linkat);
    return fails(NAME, "linkat", to)
               ? -1
               : record_link(to_directory, to, real(from_directory, from, to_directory, to, flags));
}

int symlink(const char *target, const char *path)
{
    REAL(symlink);
    return fails(NAME, "symlink", path) ? -1 : real(target, path);
}

int unlinkat(int directory, const char *path, int flags)
{
    REAL(unlinkat);
    if (fails(NAME, "unlinkat", path))
        return -1;
    return record_unlink(directory, path, flags, real(directory, path, flags));
}

int unlink(const char *path)
{
    REAL(unlink);
    return fails(NAME, "unlink", path) ? -1 : record_unlink(AT_FDCWD, path, 0, real(path));
}

int fchmod(int fd, mode_t mode)
{
    REAL(fchmod);
    return fails(MODE, "fchmod", NULL) ? -1 : record_mode(fd, mode, real(fd, mode));
}

int fchown(int fd, uid_t owner, gid_t group)
{
    REAL(fchown);
    return fails(MODE, "fchown", NULL) ? -1 : real(fd, owner, group);
}

/* ---- reading metadata ---- */

#define DEFINE_LOOK(name, parameters, arguments, path)                                   \
    int name parameters                                                                  \
    {                                                                                    \
        REAL(name);                                                                      \
        const char *at = path;                                                           \
        return fails(at != NULL ? LOOK : LOOK_AT_FILE, #name, at) ? -1 : real arguments; \
    }
DEFINE_LOOK(fstat, (int fd, struct stat *found), (fd, found), NULL)
DEFINE_LOOK(fstat64, (int fd, struct stat64 *found), (fd, found), NULL)
DEFINE_LOOK(stat, (const char *path, struct stat *found), (path, found), path)
DEFINE_LOOK(stat64, (const char *path, struct stat64 *found), (path, found), path)
DEFINE_LOOK(lstat, (const char *path, struct stat *found), (path, found), path)
DEFINE_LOOK(lstat64, (const char *path, struct stat64 *found), (path, found), path)
DEFINE_LOOK(fstatat, (int directory, const char *path, struct stat *found, int flags), (directory, path, found, flags),
            path)

#define NFS 0x6969

static bool is_network;

void injection_pretend_network(bool network)
{
    is_network = network;
}

int fstatfs(int fd, struct statfs *found)
{
    REAL(fstatfs);
    const int result = fails(LOOK_AT_FILE, "fstatfs", NULL) ? -1 : real(fd, found);
    if (result == 0 && is_network)
        found->f_type = NFS;
    return result;
}
DEFINE_LOOK(fstatvfs, (int fd, struct statvfs *found), (fd, found), NULL)
DEFINE_LOOK(access, (const char *path, int mode), (path, mode), path)
DEFINE_LOOK(faccessat, (int directory, const char *path, int mode, int flags), (directory, path, mode, flags), path)

/* ---- locks, memory of files, processes ---- */

int flock(int fd, int operation)
{
    REAL(flock);
    return (operation & LOCK_UN) == 0 && fails(LOCK, "flock", NULL) ? -1 : real(fd, operation);
}

#define DEFINE_FCNTL(name)                                                                        \
    int name(int fd, int command, ...)                                                            \
    {                                                                                             \
        REAL(name);                                                                               \
        va_list rest;                                                                             \
        va_start(rest, command);                                                                  \
        void *argument = va_arg(rest, void *);                                                    \
        va_end(rest);                                                                             \
        const bool locks = command == F_SETLK || command == F_OFD_SETLK;                          \
        if (locks && ((struct flock *)argument)->l_type != F_UNLCK && fails(LOCK, "fcntl", NULL)) \
            return -1;                                                                            \
        if (command == F_DUPFD_CLOEXEC && fails(MAP, "fcntl", NULL))                              \
            return -1;                                                                            \
        return real(fd, command, argument);                                                       \
    }
DEFINE_FCNTL(fcntl)
DEFINE_FCNTL(fcntl64)

#ifndef INJECT_BESIDE_SANITIZER /* the sanitizer's own memory comes from here */
#define DEFINE_MMAP(name, type)                                                       \
    void *name(void *at, size_t size, int protection, int flags, int fd, type offset) \
    {                                                                                 \
        REAL(name);                                                                   \
        if (fd >= 0 && fails(MAP, "mmap", NULL))                                      \
            return MAP_FAILED;                                                        \
        return real(at, size, protection, flags, fd, offset);                         \
    }
DEFINE_MMAP(mmap, off_t)
DEFINE_MMAP(mmap64, off64_t)
#endif

int memfd_create(const char *name, unsigned flags)
{
    REAL(memfd_create);
    return fails(MAP, "memfd_create", NULL) ? -1 : real(name, flags);
}

int pipe2(int ends[2], int flags)
{
    REAL(pipe2);
    return fails(MAP, "pipe2", NULL) ? -1 : real(ends, flags);
}

int socketpair(int domain, int type, int protocol, int ends[2])
{
    REAL(socketpair);
    return fails(MAP, "socketpair", NULL) ? -1 : real(domain, type, protocol, ends);
}

int dup3(int from, int to, int flags)
{
    REAL(dup3);
    return fails(MAP, "dup3", NULL) ? -1 : real(from, to, flags);
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
    REAL(posix_spawn);
    return fails(SPAWN, "posix_spawn", path) ? errno : real(pid, path, actions, attributes, arguments, environment);
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    REAL(poll);
    return fails(WAIT, "poll", NULL) ? -1 : real(fds, count, timeout);
}

pid_t waitpid(pid_t pid, int *status, int options)
{
    REAL(waitpid);
    return fails(WAIT, "waitpid", NULL) ? -1 : real(pid, status, options);
}

int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
    REAL(waitid);
    return fails(WAIT, "waitid", NULL) ? -1 : real(type, id, info, options);
}
