/*
 * cache/trust/secret_key: makes secret keys, and reads and writes their files.
 *
 * A secret key leaves this file only as the seed of a signature. Buffers that contained it are overwritten, its text is in
 * no message, and a file that other users may read or write is not read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/syscalls.h"
#include "cache/trust/trust_internal.h"

#define SECRET_BYTES 64 /* the seed, then the public key */
#define SECRET_BASE64_BYTES 88
#define MAX_FILE_BYTES 512

aoticache_status aoticache_secret_key_parse(const char *text, const char *name, aoticache_secret_key **ret_key,
                                            aoticache_error *ret_error)
{
    char line[MAX_FILE_BYTES + 1], key_name[AOTICACHE_SIGNER_NAME_BYTES] = "";
    uint8_t bytes[SECRET_BYTES], public_key[32];
    aoticache_secret_key *key = NULL;
    const size_t length = strcspn(text, "\n");
    const bool is_line = length < sizeof line && text[length + (text[length] == '\n')] == '\0';
    memcpy(line, text, is_line ? length : 0);
    line[is_line ? length : 0] = '\0';
    /* The parser's own message is not forwarded: the part before a ':' may be the secret. */
    aoticache_status status =
        aoticache_named_bytes_parse("secret key", line, sizeof bytes, key_name, bytes, NULL) == AOTICACHE_OK
            ? AOTICACHE_OK
            : aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                  "%s: expected a secret key on a single line: name:base64 of %d bytes", name,
                                  SECRET_BYTES);
    if (status == AOTICACHE_OK)
        status = aoticache_ed25519_public(bytes, public_key, ret_error);
    if (status == AOTICACHE_OK && memcmp(public_key, bytes + 32, sizeof public_key) != 0)
        status = aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                     "%s: the two halves of the secret key '%s' do not match", name, key_name);
    if (status == AOTICACHE_OK && (key = calloc(1, sizeof *key)) == NULL)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a key");
    if (status == AOTICACHE_OK) {
        memcpy(key->public_key.name, key_name, sizeof key_name);
        memcpy(key->public_key.bytes, public_key, sizeof public_key);
        memcpy(key->seed, bytes, sizeof key->seed);
        *ret_key = key;
    }
    explicit_bzero(bytes, sizeof bytes);
    explicit_bzero(line, sizeof line);
    return status;
}

aoticache_status aoticache_secret_key_generate(const char *name, aoticache_secret_key **ret_key,
                                               aoticache_error *ret_error)
{
    if (ret_key == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, ret_key);
    aoticache_status status = aoticache_signer_name_check(name, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_secret_key *key = calloc(1, sizeof *key);
    if (key == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a key");
    memcpy(key->public_key.name, name, strlen(name));
    if (getrandom(key->seed, sizeof key->seed, 0) != sizeof key->seed) /* up to 256 bytes are returned completely */
        status = aoticache_error_set_errno(ret_error, errno, "cannot get random bytes for a key");
    if (status == AOTICACHE_OK)
        status = aoticache_ed25519_public(key->seed, key->public_key.bytes, ret_error);
    if (status == AOTICACHE_OK)
        *ret_key = key;
    else
        aoticache_secret_key_free(key);
    return status;
}

const aoticache_public_key *aoticache_secret_key_public(const aoticache_secret_key *key)
{
    return key != NULL ? &key->public_key : NULL;
}

void aoticache_secret_key_free(aoticache_secret_key *key)
{
    if (key == NULL)
        return;
    explicit_bzero(key, sizeof *key);
    free(key);
}

/* ---- files ---- */

static aoticache_status check_file(int fd, const char *path, aoticache_error *ret_error)
{
    struct stat found;
    if (fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot examine %s", path);
    if (!S_ISREG(found.st_mode))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s is not a regular file", path);
    if (found.st_uid != geteuid())
        return aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                   "the secret key %s belongs to user %ld; it must belong to this user (%ld)", path,
                                   (long)found.st_uid, (long)geteuid());
    if ((found.st_mode & 077) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                   "the secret key %s is accessible to others (mode 0%o): chmod 600 it; if others "
                                   "may have read it, create a new key",
                                   path, (unsigned)(found.st_mode & 07777));
    return AOTICACHE_OK;
}

aoticache_status aoticache_secret_key_read(const char *path, aoticache_secret_key **ret_key, aoticache_error *ret_error)
{
    char text[MAX_FILE_BYTES + 1];
    if (path == NULL || ret_key == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, path, ret_key);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "the secret key %s does not exist", path);
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open the secret key %s", path);
    aoticache_status status = check_file(fd, path, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    size_t size = 0;
    for (ssize_t got = 1; got != 0 && size < MAX_FILE_BYTES; size += got > 0 ? (size_t)got : 0) {
        got = read(fd, text + size, MAX_FILE_BYTES - size);
        if (got < 0 && errno != EINTR) {
            status = aoticache_error_set_errno(ret_error, errno, "cannot read the secret key %s", path);
            break;
        }
    }
    text[size] = '\0';
    if (status == AOTICACHE_OK && strlen(text) != size)
        status = aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: it has a zero byte: not a secret key", path);
    if (status == AOTICACHE_OK)
        status = aoticache_secret_key_parse(text, path, ret_key, ret_error);
    explicit_bzero(text, sizeof text);
    return status;
}

static aoticache_status sync_parent(const char *path, aoticache_error *ret_error)
{
    const char *slash = strrchr(path, '/');
    cleanup_free char *parent = slash != NULL ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    if (parent == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a key");
    cleanup_fd int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || aoticache_syscall_fsync(fd) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot make %s durable", path);
    return AOTICACHE_OK;
}

aoticache_status aoticache_secret_key_write(const aoticache_secret_key *key, const char *path,
                                            aoticache_error *ret_error)
{
    char text[AOTICACHE_SIGNER_NAME_BYTES + SECRET_BASE64_BYTES + 3];
    uint8_t bytes[SECRET_BYTES];
    if (key == NULL || path == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, key, path);
    cleanup_fd int fd = aoticache_syscall_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EEXIST)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s already exists; a secret key is never replaced: choose another file", path);
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot create %s", path);
    memcpy(bytes, key->seed, 32);
    memcpy(bytes + 32, key->public_key.bytes, 32);
    const int length = snprintf(text, AOTICACHE_SIGNER_NAME_BYTES + 1, "%s:", key->public_key.name);
    aoticache_base64_encode(bytes, sizeof bytes, text + length);
    strcat(text, "\n");
    aoticache_status status = AOTICACHE_OK;
    if (aoticache_syscall_write(fd, text, strlen(text)) != 0 || aoticache_syscall_fsync(fd) != 0) {
        status = aoticache_error_set_errno(ret_error, errno, "cannot write %s", path);
        aoticache_syscall_unlinkat(AT_FDCWD, path, 0);
    }
    explicit_bzero(bytes, sizeof bytes);
    explicit_bzero(text, sizeof text);
    return status == AOTICACHE_OK ? sync_parent(path, ret_error) : status;
}
