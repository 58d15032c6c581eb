/*
 * cache/trust/key_files: the files trusted_keys and revoked_keys of a user's directory of keys: reads them, and changes them
 * line by line. Comments and other lines stay unchanged.
 *
 * A change is a new file that is renamed over the old one, with the directory locked, so that concurrent changes of two
 * processes are not lost and no reader sees a partial change.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "base/syscalls.h"
#include "cache/trust/trust_internal.h"

#define MAX_FILE_BYTES (1u << 20)
#define SPACES " \t\r"

/* ---- revocations ---- */

static bool is_fingerprint(const char *text)
{
    uint8_t bytes[32];
    char padded[48];
    return strncmp(text, "SHA256:", 7) == 0 && strlen(text) == AOTICACHE_FINGERPRINT_BYTES - 1 &&
           snprintf(padded, sizeof padded, "%s=", text + 7) == 44 &&
           aoticache_base64_decode(padded, sizeof bytes, bytes);
}

aoticache_status aoticache_revocation_parse(const char *text, aoticache_revocation *ret_revocation,
                                            aoticache_error *ret_error)
{
    aoticache_revocation revocation = {.kind = AOTICACHE_REVOKES_NAME};
    aoticache_status status = AOTICACHE_OK;
    if (text == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, text);
    if (strlen(text) == 64 && aoticache_digest_from_hex(text, &revocation.artifact) == AOTICACHE_OK) {
        revocation.kind = AOTICACHE_REVOKES_ENTRY;
    } else if (is_fingerprint(text)) {
        revocation.kind = AOTICACHE_REVOKES_FINGERPRINT;
        memcpy(revocation.fingerprint, text, strlen(text));
    } else if (strchr(text, ':') != NULL) {
        revocation.kind = AOTICACHE_REVOKES_KEY;
        status = aoticache_public_key_parse(text, &revocation.key, ret_error);
    } else if ((status = aoticache_signer_name_check(text, ret_error)) == AOTICACHE_OK) {
        memcpy(revocation.key.name, text, strlen(text));
    }
    if (status == AOTICACHE_OK)
        *ret_revocation = revocation;
    return status;
}

bool aoticache_revocation_names_key(const aoticache_revocation *revocation, const aoticache_public_key *key)
{
    char fingerprint[AOTICACHE_FINGERPRINT_BYTES];
    switch (revocation->kind) {
    case AOTICACHE_REVOKES_KEY:
        return memcmp(revocation->key.bytes, key->bytes, sizeof key->bytes) == 0;
    case AOTICACHE_REVOKES_FINGERPRINT:
        aoticache_public_key_fingerprint(key, fingerprint);
        return strcmp(fingerprint, revocation->fingerprint) == 0;
    case AOTICACHE_REVOKES_NAME:
        return strcmp(revocation->key.name, key->name) == 0;
    case AOTICACHE_REVOKES_ENTRY:
        break;
    }
    return false;
}

/* ---- reading ---- */

static aoticache_status check_trust(const char *path, const struct stat *found, mode_t type, aoticache_error *ret_error)
{
    if ((found->st_mode & S_IFMT) != type)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED, "%s is not a %s", path,
                                   type == S_IFDIR ? "directory" : "regular file");
    if (found->st_uid != 0 && found->st_uid != geteuid())
        return aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                   "%s belongs to user %ld; it must belong to this user or root", path,
                                   (long)found->st_uid);
    if ((found->st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED, "%s can be written by others (mode 0%o); chmod go-w %s",
                                   path, (unsigned)(found->st_mode & 07777), path);
    return AOTICACHE_OK;
}

/* Opens the directory of keys. NOT_FOUND if it is not there. */
static aoticache_status open_directory(const char *directory, int *ret_fd, aoticache_error *ret_error)
{
    struct stat found;
    cleanup_fd int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return AOTICACHE_NOT_FOUND;
    if (fd < 0 || fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open the key directory %s", directory);
    aoticache_status status = check_trust(directory, &found, S_IFDIR, ret_error);
    if (status == AOTICACHE_OK)
        *ret_fd = steal_fd(&fd);
    return status;
}

static aoticache_status read_all(int fd, const char *path, char **ret_text, aoticache_error *ret_error)
{
    cleanup_free char *text = malloc(MAX_FILE_BYTES + 1);
    if (text == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %s", path);
    size_t size = 0;
    for (ssize_t got = 1; got != 0 && size <= MAX_FILE_BYTES; size += got > 0 ? (size_t)got : 0) {
        got = read(fd, text + size, MAX_FILE_BYTES + 1 - size);
        if (got < 0 && errno != EINTR)
            return aoticache_error_set_errno(ret_error, errno, "cannot read %s", path);
    }
    if (size > MAX_FILE_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "%s has more than %u bytes", path, MAX_FILE_BYTES);
    text[size] = '\0';
    if (strlen(text) != size)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "%s has a zero byte at %zu", path, strlen(text));
    *ret_text = steal_ptr(&text);
    return AOTICACHE_OK;
}

/* Gives "" if there is no such file. */
static aoticache_status read_text(int directory, const char *path, const char *name, char **ret_text,
                                  aoticache_error *ret_error)
{
    struct stat found;
    cleanup_fd int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ENOENT) {
        *ret_text = strdup("");
        return *ret_text != NULL ? AOTICACHE_OK : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    }
    if (fd < 0 || fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read %s", path);
    aoticache_status status = check_trust(path, &found, S_IFREG, ret_error);
    return status == AOTICACHE_OK ? read_all(fd, path, ret_text, ret_error) : status;
}

static char *path_of(const char *directory, const char *name, aoticache_error *ret_error)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", directory, name) >= 0)
        return path;
    aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    return NULL;
}

/*
 * Removes the comment and surrounding spaces from a line, and returns the rest: "" if there is none. The rest is parsed as a
 * whole: a second word on a line makes it an invalid line. Changes the line.
 */
static char *word_of(char *line)
{
    for (char *c = line; *c != '\0'; c++)
        if (*c == '#' && (c == line || strchr(SPACES, c[-1]) != NULL)) {
            *c = '\0';
            break;
        }
    line += strspn(line, SPACES);
    for (size_t length = strlen(line); length > 0 && strchr(SPACES, line[length - 1]) != NULL;)
        line[--length] = '\0';
    return line;
}

aoticache_status aoticache_key_file_read(const char *directory, const char *name, aoticache_key_word_fn callback,
                                         void *user, aoticache_error *ret_error)
{
    cleanup_fd int subdirectory = -1;
    cleanup_free char *path = path_of(directory, name, ret_error), *text = NULL;
    aoticache_status status = path != NULL ? open_directory(directory, &subdirectory, ret_error) : AOTICACHE_NO_MEMORY;
    if (status == AOTICACHE_OK)
        status = read_text(subdirectory, path, name, &text, ret_error);
    char *rest = text;
    for (size_t number = 1; status == AOTICACHE_OK && rest != NULL; number++) {
        cleanup_free char *place = NULL;
        char *word = word_of(strsep(&rest, "\n"));
        if (word[0] == '\0')
            continue;
        if (asprintf(&place, "%s:%zu", path, number) < 0) {
            place = NULL;
            status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
        } else {
            status = callback(user, word, place);
        }
    }
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

/* ---- changing ---- */

/* Creates the directory and its parents, for the user alone. */
static aoticache_status make_directory(const char *directory, aoticache_error *ret_error)
{
    cleanup_free char *path = strdup(directory);
    if (path == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    for (char *slash = path;; slash++) {
        slash = strchr(slash + 1, '/');
        if (slash != NULL)
            *slash = '\0';
        if (aoticache_syscall_mkdirat(AT_FDCWD, path, 0700) != 0 && errno != EEXIST)
            return aoticache_error_set_errno(ret_error, errno, "cannot create the key directory %s", path);
        if (slash == NULL)
            return AOTICACHE_OK;
        *slash = '/';
    }
}

/* Decides which lines are removed: returns true for those. Updates *user. */
typedef bool (*drops_fn)(void *user, const char *word);

/* Returns the text without the removed lines and with the added one; the caller frees it with free(). NULL if memory is
 * short. */
static char *edit(const char *text, drops_fn drops, void *user, const char *added)
{
    char *edited = malloc(strlen(text) + (added != NULL ? strlen(added) : 0) + 3);
    size_t used = 0;
    while (edited != NULL && *text != '\0') {
        const size_t length = strcspn(text, "\n");
        char *line = strndup(text, length);
        if (line == NULL) {
            free(edited);
            return NULL;
        }
        if (!drops(user, word_of(line))) {
            memcpy(edited + used, text, length);
            used += length;
            edited[used++] = '\n';
        }
        free(line);
        text += length + (text[length] == '\n');
    }
    if (edited != NULL)
        sprintf(edited + used, "%s%s", added != NULL ? added : "", added != NULL ? "\n" : "");
    return edited;
}

static aoticache_status replace_file(int directory, const char *path, const char *name, const char *text,
                                     aoticache_error *ret_error)
{
    char temporary[64];
    snprintf(temporary, sizeof temporary, "%s.new-%ld", name, (long)getpid());
    aoticache_syscall_unlinkat(directory, temporary, 0); /* left by a dead process with the same number */
    cleanup_fd int fd = aoticache_syscall_openat(directory, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd >= 0 && aoticache_syscall_write(fd, text, strlen(text)) == 0 && aoticache_syscall_fsync(fd) == 0 &&
        aoticache_syscall_renameat(directory, temporary, directory, name) == 0 &&
        aoticache_syscall_fsync(directory) == 0)
        return AOTICACHE_OK;
    const int saved = errno;
    aoticache_syscall_unlinkat(directory, temporary, 0);
    return aoticache_error_set_errno(ret_error, saved, "cannot write %s", path);
}

/* Rewrites one file of a directory that is open and locked, if that changes it. */
static aoticache_status change_file(int subdirectory, const char *directory, const char *name, drops_fn drops,
                                    void *user, const char *added, aoticache_error *ret_error)
{
    cleanup_free char *path = path_of(directory, name, ret_error), *text = NULL, *edited = NULL;
    aoticache_status status =
        path != NULL ? read_text(subdirectory, path, name, &text, ret_error) : AOTICACHE_NO_MEMORY;
    if (status != AOTICACHE_OK)
        return status;
    edited = edit(text, drops, user, added);
    if (edited == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %s", path);
    return strcmp(text, edited) == 0 ? AOTICACHE_OK : replace_file(subdirectory, path, name, edited, ret_error);
}

static aoticache_status open_to_change(const char *directory, int *ret_directory, aoticache_error *ret_error)
{
    if (directory == NULL || directory[0] == '\0')
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "no key directory: set HOME, or `keys` in the configuration");
    aoticache_status status = open_directory(directory, ret_directory, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        status = make_directory(directory, ret_error);
    if (status == AOTICACHE_OK && *ret_directory < 0)
        status = open_directory(directory, ret_directory, ret_error);
    if (status == AOTICACHE_OK && aoticache_syscall_flock(*ret_directory, LOCK_EX) != 0)
        status = aoticache_error_set_errno(ret_error, errno, "cannot lock the key directory %s", directory);
    return status;
}

aoticache_status aoticache_key_directory_own_key(const char *directory, const char *name,
                                                 aoticache_secret_key **ret_key, bool *ret_is_new,
                                                 aoticache_error *ret_error)
{
    cleanup_fd int subdirectory = -1;
    aoticache_secret_key *key = NULL;
    aoticache_status status = AOTICACHE_OK;
    if (ret_key == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, ret_key);
    status =
        open_to_change(directory, &subdirectory, ret_error); /* locked, so that two first exports make only one key */
    cleanup_free char *path = status == AOTICACHE_OK ? path_of(directory, AOTICACHE_SECRET_KEY_FILE, ret_error) : NULL;
    if (path == NULL)
        return status == AOTICACHE_OK ? AOTICACHE_NO_MEMORY : status;
    status = aoticache_secret_key_read(path, &key, ret_error);
    const bool is_new = status == AOTICACHE_NOT_FOUND;
    if (is_new)
        status = aoticache_secret_key_generate(name, &key, ret_error);
    if (is_new && status == AOTICACHE_OK)
        status = aoticache_secret_key_write(key, path, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_secret_key_free(key);
        return status;
    }
    if (ret_is_new != NULL)
        *ret_is_new = is_new;
    *ret_key = key;
    return AOTICACHE_OK;
}

struct trusting {
    const aoticache_public_key *key;
    bool is_there, has_namesake;
};

static bool drops_for_trust(void *user, const char *word)
{
    struct trusting *trusting = user;
    aoticache_public_key key;
    if (aoticache_public_key_parse(word, &key, NULL) != AOTICACHE_OK)
        return false;
    const bool is_same = memcmp(key.bytes, trusting->key->bytes, sizeof key.bytes) == 0;
    const bool is_named_so = strcmp(key.name, trusting->key->name) == 0;
    trusting->has_namesake |= is_named_so && !is_same;
    trusting->is_there |= is_named_so && is_same;
    return false;
}

static bool drops_revocation(void *user, const char *word)
{
    aoticache_revocation revocation;
    return aoticache_revocation_parse(word, &revocation, NULL) == AOTICACHE_OK &&
           aoticache_revocation_names_key(&revocation, user);
}

aoticache_status aoticache_key_directory_trust(const char *directory, const aoticache_public_key *key,
                                               aoticache_error *ret_error)
{
    char text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES];
    cleanup_fd int subdirectory = -1;
    struct trusting trusting = {.key = key};
    if (key == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, key);
    aoticache_status status = aoticache_signer_name_check(key->name, ret_error);
    if (status == AOTICACHE_OK)
        status = open_to_change(directory, &subdirectory, ret_error);
    if (status == AOTICACHE_OK) /* changes nothing: only reads */
        status = change_file(subdirectory, directory, AOTICACHE_TRUSTED_KEYS_FILE, drops_for_trust, &trusting, NULL,
                             ret_error);
    if (status == AOTICACHE_OK && trusting.has_namesake)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "another key named '%s' is already trusted; if it was replaced, first run "
                                   "'aoticache key distrust %s'",
                                   key->name, key->name);
    aoticache_public_key_format(key, text);
    trusting = (struct trusting){.key = key, .is_there = trusting.is_there};
    if (status == AOTICACHE_OK && !trusting.is_there)
        status = change_file(subdirectory, directory, AOTICACHE_TRUSTED_KEYS_FILE, drops_for_trust, &trusting, text,
                             ret_error);
    if (status == AOTICACHE_OK) {
        aoticache_public_key copy = *key;
        status =
            change_file(subdirectory, directory, AOTICACHE_REVOKED_KEYS_FILE, drops_revocation, &copy, NULL, ret_error);
    }
    return status;
}

static bool drops_trusted(void *user, const char *word)
{
    aoticache_public_key key;
    return aoticache_public_key_parse(word, &key, NULL) == AOTICACHE_OK && aoticache_revocation_names_key(user, &key);
}

static bool drops_same_word(void *user, const char *word)
{
    return strcmp(word, user) == 0;
}

aoticache_status aoticache_key_directory_revoke(const char *directory, const char *what, aoticache_error *ret_error)
{
    cleanup_fd int subdirectory = -1;
    aoticache_revocation revocation;
    aoticache_status status = aoticache_revocation_parse(what, &revocation, ret_error);
    if (status == AOTICACHE_OK)
        status = open_to_change(directory, &subdirectory, ret_error);
    cleanup_free char *word = what != NULL ? strdup(what) : NULL;
    if (status == AOTICACHE_OK && word == NULL)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    /* The revocation is written first: if the process dies in between, the key is in both files, and is refused. */
    if (status == AOTICACHE_OK)
        status =
            change_file(subdirectory, directory, AOTICACHE_REVOKED_KEYS_FILE, drops_same_word, word, word, ret_error);
    if (status == AOTICACHE_OK)
        status = change_file(subdirectory, directory, AOTICACHE_TRUSTED_KEYS_FILE, drops_trusted, &revocation, NULL,
                             ret_error);
    return status;
}
