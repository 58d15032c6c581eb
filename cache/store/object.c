/*
 * cache/store/object: opens, verifies, lists and removes objects. object_put.c writes them.
 */
#include "cache/store/object.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/files/listing.h"
#include "base/files/memory_file.h"
#include "base/names.h"
#include "base/syscalls.h"

void aoticache_object_path(const aoticache_digest *digest, char ret_path[AOTICACHE_OBJECT_PATH_BYTES])
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(digest, hex);
    snprintf(ret_path, AOTICACHE_OBJECT_PATH_BYTES, AOTICACHE_OBJECTS "/%.2s/%s", hex, hex + 2);
}

/*
 * Takes the in-use lock. It does not go through a syscall hook, because it changes nothing on disk, and a hit must make no
 * call that does. A collector holds the lock only for an instant. A file system without such locks has no collector (it cannot
 * lock the store), so the lock is not needed there.
 */
static aoticache_status mark_in_use(const aoticache_directory *directory, int fd, const char *path,
                                    aoticache_error *ret_error)
{
    const uint64_t begun = aoticache_monotonic_ns();
    while (flock(fd, LOCK_SH | LOCK_NB) != 0) {
        if (errno == EINTR)
            continue;
        if (errno != EWOULDBLOCK)
            return AOTICACHE_OK;
        if (aoticache_monotonic_ns() - begun > (uint64_t)directory->lock_timeout_ms * 1000000u)
            return aoticache_error_set(ret_error, AOTICACHE_LOCKED, "timed out after %u ms: %s/%s is locked",
                                       (unsigned)directory->lock_timeout_ms, directory->path, path);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return AOTICACHE_OK;
}

bool aoticache_object_errno_is_damage(int errno_value)
{
    /* EXDEV: a path that would leave the root; ENXIO: a socket. */
    return errno_value == ELOOP || errno_value == ENOTDIR || errno_value == EISDIR || errno_value == EXDEV ||
           errno_value == ENXIO;
}

/* Reports the message of errno with a given status. */
static aoticache_status refuse_as(aoticache_status status, int errno_value, const char *path,
                                  aoticache_error *ret_error)
{
    aoticache_error_set_errno(ret_error, errno_value, "cannot open %s", path);
    if (ret_error != NULL)
        ret_error->status = status;
    return status;
}

static aoticache_status refuse_open(int errno_value, const char *path, aoticache_error *ret_error)
{
    if (errno_value == ENOENT)
        return AOTICACHE_NOT_FOUND;
    if (errno_value == EMFILE || errno_value == ENFILE || errno_value == ENOMEM)
        return aoticache_error_set_errno(ret_error, errno_value, "cannot open %s", path);
    return refuse_as(aoticache_object_errno_is_damage(errno_value) ? AOTICACHE_CORRUPT : AOTICACHE_DENIED, errno_value,
                     path, ret_error);
}

#define DOUBTFUL_BYTES (UINT64_C(64) << 20)

/* Opens the object, takes its in-use lock, and then checks that it is still linked. The bytes are not read. */
static aoticache_status open_marked(aoticache_directory *directory, const char *path, int *ret_fd,
                                    struct stat *ret_found, aoticache_error *ret_error)
{
    cleanup_fd int fd = aoticache_directory_openat(directory, path, O_RDONLY);
    if (fd < 0)
        return refuse_open(errno, path, ret_error);
    aoticache_status status = mark_in_use(directory, fd, path, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (fstat(fd, ret_found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot examine %s", path);
    if (ret_found->st_nlink == 0)
        return AOTICACHE_NOT_FOUND;
    if (aoticache_directory_trust(directory, ret_found, S_IFREG, path, ret_error) != AOTICACHE_OK) {
        if (ret_error != NULL)
            ret_error->status = AOTICACHE_CORRUPT;
        return AOTICACHE_CORRUPT;
    }
    *ret_fd = steal_fd(&fd);
    return AOTICACHE_OK;
}

/* Reads the first `size` bytes, or all if there are fewer. */
static aoticache_status read_bytes(int fd, char *bytes, size_t size, size_t *ret_have, aoticache_error *ret_error)
{
    size_t have = 0;
    while (have < size) {
        ssize_t got = pread(fd, bytes + have, size - have, (off_t)have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot read at byte %zu", have);
        if (got == 0)
            break;
        have += (size_t)got;
    }
    *ret_have = have;
    return AOTICACHE_OK;
}

/* How an object is read. Each member may be NULL. */
typedef struct reading {
    aoticache_continue_fn continues; /* called to check whether to continue */
    void *user;
    aoticache_index *index;
    int *ret_copy; /* where to put a copy of its bytes; -1: none */
} reading;

static aoticache_status judge_digest(aoticache_status status, const aoticache_digest *actual,
                                     const aoticache_digest *digest, const char *path, const aoticache_error *detail,
                                     aoticache_error *ret_error)
{
    if (status == AOTICACHE_IO) /* a disk that fails now may work later, and the bytes may be correct */
        return aoticache_error_set(ret_error, AOTICACHE_DENIED, "%s: %s", path, detail->message);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "%s: %s", path, detail->message);
    if (aoticache_digest_equal(actual, digest))
        return AOTICACHE_OK;
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(actual, hex);
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s: its bytes hash to %s", path, hex);
}

static aoticache_status check_size(const char *path, uint64_t bytes, uint64_t expected_bytes,
                                   aoticache_error *ret_error)
{
    if (expected_bytes == AOTICACHE_OBJECT_ANY_SIZE || bytes == expected_bytes)
        return AOTICACHE_OK;
    if (expected_bytes != AOTICACHE_OBJECT_MANIFEST_SIZE)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s: %llu bytes on disk, expected %llu", path,
                                   (unsigned long long)bytes, (unsigned long long)expected_bytes);
    if (bytes <= AOTICACHE_OBJECT_MAX_MANIFEST_BYTES)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s: an object of %llu bytes is too large for a manifest",
                               path, (unsigned long long)bytes);
}

/* Opens an object with its in-use lock and checks its size; nothing is read. ret_path is written in any case. */
static aoticache_status open_sized(aoticache_directory *directory, const aoticache_digest *digest,
                                   uint64_t expected_bytes, char ret_path[AOTICACHE_OBJECT_PATH_BYTES], int *ret_fd,
                                   struct stat *ret_found, aoticache_error *ret_error)
{
    cleanup_fd int fd = -1;
    aoticache_object_path(digest, ret_path);
    aoticache_status status = open_marked(directory, ret_path, &fd, ret_found, ret_error);
    if (status == AOTICACHE_OK)
        status = check_size(ret_path, (uint64_t)ret_found->st_size, expected_bytes, ret_error);
    if (status == AOTICACHE_OK)
        *ret_fd = steal_fd(&fd);
    return status;
}

/* Returns whether all bytes have the checksum that they had when they were hashed. copy: may be NULL; emptied if they do
 * not. */
static bool has_known_checksum(int fd, const struct stat *found, const aoticache_digest *digest, aoticache_index *index,
                               aoticache_memory_copy *copy)
{
    aoticache_checksum then, now;
    const aoticache_digest_pass pass = {.copy = copy, .ret_checksum = &now};
    if (!aoticache_index_find_file_checksum(index, found, digest, &then))
        return false;
    if (aoticache_digest_pass_over(fd, &pass, NULL, NULL) == AOTICACHE_OK && aoticache_checksum_equal(&now, &then))
        return true;
    if (copy != NULL && ftruncate(copy->file, 0) != 0)
        copy->failed = errno;
    return false;
}

/* Hashes the bytes, and records the result. */
static aoticache_status check_digest(int fd, const struct stat *found, const aoticache_digest *digest, const char *path,
                                     const reading *how, aoticache_memory_copy *copy, aoticache_error *ret_error)
{
    aoticache_digest actual;
    aoticache_checksum checksum;
    aoticache_error detail = {.message = ""};
    const int64_t begun_ns = how->index != NULL ? aoticache_wall_ns() : 0;
    const aoticache_digest_pass pass = {.continues = how->continues,
                                        .user = how->user,
                                        .copy = copy,
                                        .ret_digest = &actual,
                                        .ret_checksum = how->index != NULL ? &checksum : NULL};
    aoticache_status status = aoticache_digest_pass_over(fd, &pass, NULL, &detail);
    if (status == AOTICACHE_IO && how->continues != NULL && !how->continues(how->user))
        return aoticache_error_set(ret_error, AOTICACHE_IO, "%s: %s", path, detail.message);
    status = judge_digest(status, &actual, digest, path, &detail, ret_error);
    if (status == AOTICACHE_OK && how->index != NULL)
        aoticache_index_note_file_checksum(how->index, fd, found, begun_ns, digest, &checksum);
    return status;
}

static aoticache_status verify_bytes(aoticache_directory *directory, int fd, const struct stat *found,
                                     const aoticache_digest *digest, const char *path, const reading *how,
                                     aoticache_error *ret_error)
{
    const bool is_copied = how->ret_copy != NULL &&
                           !atomic_load_explicit(&directory->no_copies, memory_order_relaxed) &&
                           (uint64_t)found->st_size <= AOTICACHE_OBJECT_MAX_COPY_BYTES;
    cleanup_fd int file = is_copied ? aoticache_memory_file_create() : -1;
    aoticache_memory_copy copy = {.file = file, .kept = AOTICACHE_OBJECT_MAX_COPY_BYTES};
    aoticache_memory_copy *copying = file >= 0 ? &copy : NULL;
    aoticache_status status = AOTICACHE_OK;
    if (!has_known_checksum(fd, found, digest, how->index, copying))
        status = check_digest(fd, found, digest, path, how, copying, ret_error);
    if (how->ret_copy != NULL)
        *how->ret_copy = status == AOTICACHE_OK && copy.failed == 0 ? steal_fd(&file) : -1;
    return status;
}

/* Opens and verifies an object. ret_bytes may be NULL. */
static aoticache_status open_verified(aoticache_directory *directory, const aoticache_digest *digest,
                                      uint64_t expected_bytes, const reading *how, int *ret_fd, uint64_t *ret_bytes,
                                      aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    struct stat found;
    cleanup_fd int fd = -1;
    aoticache_status status = open_sized(directory, digest, expected_bytes, path, &fd, &found, ret_error);
    if (status == AOTICACHE_OK)
        status = verify_bytes(directory, fd, &found, digest, path, how, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *ret_fd = steal_fd(&fd);
    if (ret_bytes != NULL)
        *ret_bytes = (uint64_t)found.st_size;
    return AOTICACHE_OK;
}

aoticache_status aoticache_object_open(aoticache_directory *directory, const aoticache_digest *digest,
                                       uint64_t expected_bytes, int *ret_fd, uint64_t *ret_bytes,
                                       aoticache_error *ret_error)
{
    return aoticache_object_open_while(directory, digest, expected_bytes, NULL, NULL, ret_fd, ret_bytes, ret_error);
}

aoticache_status aoticache_object_open_while(aoticache_directory *directory, const aoticache_digest *digest,
                                             uint64_t expected_bytes, aoticache_continue_fn continues, void *user,
                                             int *ret_fd, uint64_t *ret_bytes, aoticache_error *ret_error)
{
    const reading how = {.continues = continues, .user = user};
    return open_verified(directory, digest, expected_bytes, &how, ret_fd, ret_bytes, ret_error);
}

aoticache_status aoticache_object_open_recorded(aoticache_directory *directory, const aoticache_digest *digest,
                                                uint64_t expected_bytes, aoticache_index *index, int *ret_fd,
                                                aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    struct stat found;
    cleanup_fd int fd = -1;
    const reading how = {.index = index};
    if (index == NULL || expected_bytes < AOTICACHE_FILE_FACT_MIN_BYTES)
        return open_verified(directory, digest, expected_bytes, &how, ret_fd, NULL, ret_error);
    aoticache_status status = open_sized(directory, digest, expected_bytes, path, &fd, &found, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_digest actual;
    if (!aoticache_index_find_file_digest(index, fd, &found, &actual) || !aoticache_digest_equal(&actual, digest)) {
        aoticache_error detail = {.message = ""};
        const int64_t begun_ns = aoticache_wall_ns();
        status = aoticache_digest_of_fd_while(fd, NULL, NULL, &actual, NULL, &detail);
        status = judge_digest(status, &actual, digest, path, &detail, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        aoticache_index_note_file_digest(index, fd, &found, begun_ns, &actual);
    }
    *ret_fd = steal_fd(&fd);
    return AOTICACHE_OK;
}

aoticache_status aoticache_object_open_copied(aoticache_directory *directory, const aoticache_digest *digest,
                                              uint64_t expected_bytes, aoticache_index *index, int *ret_fd,
                                              int *ret_copy, aoticache_error *ret_error)
{
    const reading how = {.index = index, .ret_copy = ret_copy};
    return open_verified(directory, digest, expected_bytes, &how, ret_fd, NULL, ret_error);
}

uint64_t aoticache_object_size_to_expect(aoticache_directory *directory, const aoticache_digest *digest,
                                         uint64_t named_bytes)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    struct stat found;
    if (named_bytes == AOTICACHE_OBJECT_ANY_SIZE || named_bytes == AOTICACHE_OBJECT_MANIFEST_SIZE)
        return named_bytes;
    aoticache_object_path(digest, path);
    bool is_huge = fstatat(directory->fd, path, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
                   (uint64_t)found.st_size > named_bytes && (uint64_t)found.st_size - named_bytes > DOUBTFUL_BYTES;
    return is_huge ? named_bytes : AOTICACHE_OBJECT_ANY_SIZE;
}

aoticache_status aoticache_object_look(aoticache_directory *directory, const aoticache_digest *digest,
                                       uint64_t named_bytes, aoticache_continue_fn continues, void *user,
                                       aoticache_object_state *ret_state, aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    cleanup_fd int fd = -1;
    aoticache_object_path(digest, path);
    *ret_state = (aoticache_object_state){.status = AOTICACHE_OK};
    /* This must happen before the object is opened. If the file is replaced in between, it then counts as changed and
     * is not removed. */
    ret_state->has_found = fstatat(directory->fd, path, &ret_state->found, AT_SYMLINK_NOFOLLOW) == 0;
    const uint64_t expected = aoticache_object_size_to_expect(directory, digest, named_bytes);
    ret_state->status = aoticache_object_open_while(directory, digest, expected, continues, user, &fd, NULL, ret_error);
    return ret_state->status;
}

bool aoticache_object_is_absent(aoticache_directory *directory, const aoticache_digest *digest)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    aoticache_object_path(digest, path);
    cleanup_fd int fd = aoticache_directory_openat(directory, path, O_PATH);
    return fd < 0 && errno == ENOENT;
}

bool aoticache_object_is_unchanged(aoticache_directory *directory, const aoticache_digest *digest,
                                   const aoticache_object_state *state)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    const struct stat *then = &state->found;
    struct stat now;
    if (state->status == AOTICACHE_NOT_FOUND)
        return aoticache_object_is_absent(directory, digest);
    aoticache_object_path(digest, path);
    if (fstatat(directory->fd, path, &now, AT_SYMLINK_NOFOLLOW) != 0)
        return !state->has_found && aoticache_object_errno_is_damage(errno);
    return state->has_found && now.st_dev == then->st_dev && now.st_ino == then->st_ino &&
           now.st_size == then->st_size && now.st_mode == then->st_mode && now.st_ctim.tv_sec == then->st_ctim.tv_sec &&
           now.st_ctim.tv_nsec == then->st_ctim.tv_nsec;
}

/* Reads all of a file into `text`, which has space for found->st_size bytes. index: may be NULL. */
static aoticache_status read_verified(int fd, const struct stat *found, const aoticache_digest *digest,
                                      const char *path, aoticache_index *index, char *text, size_t *ret_have,
                                      aoticache_error *ret_error)
{
    aoticache_digest actual;
    aoticache_checksum then, now;
    aoticache_error detail = {.message = ""};
    const int64_t begun_ns = index != NULL ? aoticache_wall_ns() : 0;
    aoticache_status status = read_bytes(fd, text, (size_t)found->st_size, ret_have, &detail);
    if (status == AOTICACHE_OK && index != NULL) {
        now = aoticache_checksum_of(text, *ret_have);
        if (aoticache_index_find_file_checksum(index, found, digest, &then) && aoticache_checksum_equal(&now, &then))
            return AOTICACHE_OK;
    }
    if (status == AOTICACHE_OK)
        status = aoticache_digest_of(text, *ret_have, &actual);
    status = judge_digest(status, &actual, digest, path, &detail, ret_error);
    if (status == AOTICACHE_OK && index != NULL)
        aoticache_index_note_file_checksum(index, fd, found, begun_ns, digest, &now);
    return status;
}

aoticache_status aoticache_object_read(aoticache_directory *directory, const aoticache_digest *digest, char **ret_bytes,
                                       size_t *ret_size, aoticache_error *ret_error)
{
    return aoticache_object_read_sized(directory, digest, AOTICACHE_OBJECT_MANIFEST_SIZE, NULL, ret_bytes, ret_size,
                                       ret_error);
}

aoticache_status aoticache_object_read_sized(aoticache_directory *directory, const aoticache_digest *digest,
                                             uint64_t expected_bytes, aoticache_index *index, char **ret_bytes,
                                             size_t *ret_size, aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    struct stat found;
    cleanup_fd int fd = -1;
    aoticache_status status = open_sized(directory, digest, expected_bytes, path, &fd, &found, ret_error);
    if (status == AOTICACHE_OK)
        status = check_size(path, (uint64_t)found.st_size, AOTICACHE_OBJECT_MANIFEST_SIZE, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const size_t size = (size_t)found.st_size;
    cleanup_free char *text = malloc(size + 1);
    if (text == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a manifest of %zu bytes", size);
    size_t have = 0;
    status = read_verified(fd, &found, digest, path, index, text, &have, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    text[have] = '\0';
    *ret_bytes = steal_ptr(&text);
    *ret_size = have;
    return AOTICACHE_OK;
}

/*
 * Opens the directory of an object that is to be removed or moved, and names the object in it. NOT_FOUND: there is no such
 * directory.
 */
static aoticache_status open_parent(aoticache_directory *directory, const aoticache_digest *digest, int *ret_directory,
                                    char ret_name[AOTICACHE_OBJECT_NAME_BYTES], aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    char subdirectory[AOTICACHE_OBJECT_DIRECTORY_BYTES];
    aoticache_digest_to_hex(digest, hex);
    snprintf(subdirectory, sizeof subdirectory, AOTICACHE_OBJECTS "/%.2s", hex);
    memcpy(ret_name, hex + 2, AOTICACHE_OBJECT_NAME_BYTES);
    return aoticache_directory_open_subdirectory(directory, subdirectory, false, ret_directory, ret_error);
}

static aoticache_status remove_unheld(int directory, const char *name, bool is_manifest, uint64_t *ret_bytes,
                                      aoticache_error *ret_error)
{
    struct stat found;
    /* The lock is kept until after the unlink: a reader that opens meanwhile waits for it and then sees no link. */
    cleanup_fd int fd = is_manifest ? -1 : openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && !is_manifest && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) /* it may be held */
        return aoticache_error_set_errno(ret_error, errno, "cannot open object %s", name);
    if ((fd >= 0 ? fstat(fd, &found) : fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW)) != 0)
        return errno == ENOENT ? AOTICACHE_NOT_FOUND
                               : aoticache_error_set_errno(ret_error, errno, "cannot examine object %s", name);
    if (fd >= 0 && aoticache_syscall_flock(fd, LOCK_EX | LOCK_NB) != 0)
        return AOTICACHE_LOCKED;
    if (aoticache_syscall_unlinkat(directory, name, 0) != 0)
        return errno == ENOENT ? AOTICACHE_NOT_FOUND
                               : aoticache_error_set_errno(ret_error, errno, "cannot remove object %s", name);
    if (ret_bytes != NULL)
        *ret_bytes = (uint64_t)found.st_size;
    return AOTICACHE_OK;
}

aoticache_status aoticache_object_remove_next(aoticache_directory *directory, aoticache_object_directory *subdirectory,
                                              const aoticache_digest *digest, bool is_manifest, uint64_t *ret_bytes,
                                              aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    if (subdirectory->fd >= 0 && subdirectory->first != digest->bytes[0]) {
        close(subdirectory->fd);
        subdirectory->fd = -1;
    }
    if (subdirectory->fd < 0) {
        char name[AOTICACHE_OBJECT_NAME_BYTES];
        aoticache_status status = open_parent(directory, digest, &subdirectory->fd, name, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        subdirectory->first = digest->bytes[0];
    }
    aoticache_digest_to_hex(digest, hex);
    return remove_unheld(subdirectory->fd, hex + 2, is_manifest, ret_bytes, ret_error);
}

aoticache_status aoticache_object_remove(aoticache_directory *directory, const aoticache_digest *digest,
                                         uint64_t *ret_bytes, aoticache_error *ret_error)
{
    aoticache_object_directory subdirectory = AOTICACHE_OBJECT_DIRECTORY_INIT;
    aoticache_status status =
        aoticache_object_remove_next(directory, &subdirectory, digest, false, ret_bytes, ret_error);
    if (subdirectory.fd >= 0)
        close(subdirectory.fd);
    return status;
}

aoticache_status aoticache_object_quarantine(aoticache_directory *directory, const aoticache_digest *digest,
                                             aoticache_error *ret_error)
{
    cleanup_fd int subdirectory = -1;
    char name[AOTICACHE_OBJECT_NAME_BYTES];
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_status status = open_parent(directory, digest, &subdirectory, name, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_digest_to_hex(digest, hex);
    return aoticache_directory_quarantine(directory, subdirectory, name, hex, ret_error);
}

bool aoticache_object_is_held(aoticache_directory *directory, const aoticache_digest *digest)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    aoticache_object_path(digest, path);
    cleanup_fd int fd = aoticache_directory_openat(directory, path, O_RDONLY);
    if (fd < 0)
        return errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    return flock(fd, LOCK_EX | LOCK_NB) != 0;
}

static bool is_lower_hex(const char *text, size_t length)
{
    return strlen(text) == length && strspn(text, "0123456789abcdef") == length;
}

struct listing {
    aoticache_object_fn callback;
    aoticache_object_unreadable_fn unreadable;
    void *user;
    bool stopped;
};

/* Returns 0, or the errno of a directory that cannot be listed completely. */
static int list_directory(struct listing *listing, const char *prefix, DIR *directory)
{
    for (const char *name; !listing->stopped;) {
        if ((name = aoticache_listing_next(directory)) == NULL)
            return errno;
        char hex[AOTICACHE_DIGEST_HEX_BYTES];
        aoticache_digest digest;
        if (!is_lower_hex(name, AOTICACHE_OBJECT_NAME_BYTES - 1))
            continue;
        snprintf(hex, sizeof hex, "%.2s%.62s", prefix, name);
        if (aoticache_digest_from_hex(hex, &digest) == AOTICACHE_OK && !listing->callback(listing->user, &digest))
            listing->stopped = true;
    }
    return 0;
}

aoticache_status aoticache_object_list_directory(aoticache_directory *directory, uint8_t first,
                                                 aoticache_object_fn callback, void *user, aoticache_error *ret_error)
{
    struct listing listing = {.callback = callback, .user = user};
    char path[AOTICACHE_OBJECT_DIRECTORY_BYTES];
    int fd = -1;
    snprintf(path, sizeof path, AOTICACHE_OBJECTS "/%02x", first);
    aoticache_status status = aoticache_directory_open_subdirectory(directory, path, false, &fd, ret_error);
    if (status != AOTICACHE_OK)
        return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
    cleanup_dir DIR *subdirectory = aoticache_listing_open(fd);
    if (subdirectory == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot list %s", path);
    const int error = list_directory(&listing, path + strlen(AOTICACHE_OBJECTS "/"), subdirectory);
    return error == 0 ? AOTICACHE_OK : aoticache_error_set_errno(ret_error, error, "cannot list %s", path);
}

/* Lists a directory of objects. If the directory is gone, or is not a directory, it contains no objects. */
static aoticache_status list_named_directory(struct listing *listing, int objects, const char *name,
                                             aoticache_error *ret_error)
{
    aoticache_error detail = {.message = ""};
    int fd = openat(objects, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || aoticache_object_errno_is_damage(errno)))
        return AOTICACHE_OK;
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        return aoticache_error_set_errno(ret_error, errno, "cannot list " AOTICACHE_OBJECTS "/%s", name);
    if (fd < 0) {
        aoticache_error_set_errno(&detail, errno, "cannot list " AOTICACHE_OBJECTS "/%s", name);
        if (listing->unreadable != NULL)
            listing->unreadable(listing->user, &detail);
        return AOTICACHE_OK;
    }
    cleanup_dir DIR *directory = aoticache_listing_open(fd);
    if (directory == NULL && errno == ENOMEM)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY,
                                   "cannot list " AOTICACHE_OBJECTS "/%s: out of memory", name);
    const int error = directory == NULL ? errno : list_directory(listing, name, directory);
    if (error != 0 && listing->unreadable != NULL) {
        aoticache_error_set_errno(&detail, error, "cannot list " AOTICACHE_OBJECTS "/%s", name);
        listing->unreadable(listing->user, &detail);
    }
    return AOTICACHE_OK;
}

aoticache_status aoticache_object_list(aoticache_directory *directory, aoticache_object_fn callback,
                                       aoticache_object_unreadable_fn unreadable, void *user,
                                       aoticache_error *ret_error)
{
    struct listing listing = {.callback = callback, .unreadable = unreadable, .user = user};
    int objects_fd = -1;
    aoticache_status status =
        aoticache_directory_open_subdirectory(directory, AOTICACHE_OBJECTS, false, &objects_fd, ret_error);
    if (status != AOTICACHE_OK)
        return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
    cleanup_dir DIR *objects = aoticache_listing_open(objects_fd);
    if (objects == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot list " AOTICACHE_OBJECTS);
    for (const char *name; status == AOTICACHE_OK && !listing.stopped;) {
        if ((name = aoticache_listing_next(objects)) == NULL)
            return errno == 0 ? AOTICACHE_OK
                              : aoticache_error_set_errno(ret_error, errno, "cannot list " AOTICACHE_OBJECTS);
        if (is_lower_hex(name, 2))
            status = list_named_directory(&listing, objects_fd, name, ret_error);
    }
    return status;
}

bool aoticache_object_array_add(aoticache_object_array *array, const aoticache_digest *digest, uint64_t bytes)
{
    if (!AOTICACHE_ARRAY_RESERVE(array->items, array->capacity, array->count + 1))
        return false;
    array->items[array->count++] = (aoticache_index_object){.digest = *digest, .bytes = bytes};
    return true;
}
