/*
 * aoticache key rotate: replaces the user's own key.
 *
 * The user always has exactly one own key: the new file is written completely before it is renamed. The old file stays next
 * to it. If the old key is not revoked, it is added to the trusted keys, and the entries of this cache that it signed are
 * signed with the new key as well, so that other machines need to trust only the new one.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/key/key_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define MOST_OLD_KEYS 1000

/* ---- the old key ---- */

struct search {
    const aoticache_public_key *key;
    bool is_revoked;
};

static bool find_revoked(void *user, const aoticache_public_key *key, aoticache_trust_origin origin, bool is_revoked)
{
    struct search *search = user;
    (void)origin;
    search->is_revoked |= is_revoked && memcmp(key->bytes, search->key->bytes, sizeof key->bytes) == 0;
    return !search->is_revoked;
}

bool aoticache_key_is_revoked(const aoticache_key_command *command, const aoticache_public_key *key)
{
    aoticache_asked asked;
    struct search search = {.key = key};
    if (aoticache_asked_open(command->cli, &asked, NULL) == AOTICACHE_OK)
        aoticache_cache_list_trusted(asked.cache, find_revoked, &search, NULL);
    aoticache_asked_close(&asked);
    return search.is_revoked;
}

/* Returns the next name: "ann@laptop-2" after "ann@laptop-1"; a name without a number gets "-2". The caller frees it with
 * free(). */
static char *next_name(const char *name)
{
    const char *hyphen = strrchr(name, '-');
    const char *digits = hyphen != NULL ? hyphen + 1 : "";
    const size_t length = strlen(digits);
    if (length == 0 || length > 9 || strspn(digits, "0123456789") != length)
        return aoticache_cli_text("%s-2", name);
    return aoticache_cli_text("%.*s-%lu", (int)(hyphen - name), name, strtoul(digits, NULL, 10) + 1);
}

/* ---- the files ---- */

/* Gives the file of the old key a second, unused name. The caller frees it with free(); NULL: errno has the reason. */
static char *keep_old(int directory)
{
    for (int number = 1; number <= MOST_OLD_KEYS; number++) {
        cleanup_free char *name = aoticache_cli_text(AOTICACHE_SECRET_KEY_FILE ".old-%d", number);
        if (linkat(directory, AOTICACHE_SECRET_KEY_FILE, directory, name, 0) == 0)
            return steal_ptr(&name);
        if (errno != EEXIST)
            return NULL;
    }
    return NULL;
}

static bool is_same_key(const aoticache_secret_key *one, const aoticache_secret_key *other)
{
    const aoticache_public_key *a = aoticache_secret_key_public(one), *b = aoticache_secret_key_public(other);
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

/* Call this with the directory locked. *ret_kept: the path of the old key, freed with free(). */
static aoticache_status exchange_locked(int subdirectory, const char *directory, const aoticache_secret_key *old,
                                        const aoticache_secret_key *new, char **ret_kept, aoticache_error *ret_error)
{
    cleanup_free char *path = aoticache_cli_text("%s/" AOTICACHE_SECRET_KEY_FILE, directory);
    cleanup_free char *temporary = aoticache_cli_text(AOTICACHE_SECRET_KEY_FILE ".new-%ld", (long)getpid());
    cleanup_free char *temporary_path = aoticache_cli_text("%s/%s", directory, temporary);
    aoticache_secret_key *present = NULL;
    aoticache_status status = aoticache_secret_key_read(path, &present, ret_error);
    if (status == AOTICACHE_OK && !is_same_key(present, old))
        status = aoticache_error_set(ret_error, AOTICACHE_LOCKED, "%s: another process has just replaced it", path);
    aoticache_secret_key_free(present);
    if (status == AOTICACHE_OK) {
        unlinkat(subdirectory, temporary, 0); /* left by a dead process with the same number */
        status = aoticache_secret_key_write(new, temporary_path, ret_error);
    }
    if (status != AOTICACHE_OK)
        return status;
    cleanup_free char *kept = keep_old(subdirectory);
    if (kept == NULL || renameat(subdirectory, temporary, subdirectory, AOTICACHE_SECRET_KEY_FILE) != 0 ||
        fsync(subdirectory) != 0) {
        status = aoticache_error_set_errno(ret_error, errno, "cannot replace %s", path);
        unlinkat(subdirectory, temporary, 0);
        return status;
    }
    *ret_kept = aoticache_cli_text("%s/%s", directory, kept);
    return AOTICACHE_OK;
}

static aoticache_status exchange(const char *directory, const aoticache_secret_key *old,
                                 const aoticache_secret_key *new, char **ret_kept, aoticache_error *ret_error)
{
    cleanup_fd int subdirectory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (subdirectory < 0 || flock(subdirectory, LOCK_EX) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot lock the key directory %s", directory);
    return exchange_locked(subdirectory, directory, old, new, ret_kept, ret_error);
}

/* ---- entries signed by the old key ---- */

static bool find_signature(void *user, const aoticache_signature *signature, aoticache_signature_state state,
                           const aoticache_public_key *key)
{
    struct search *search = user;
    (void)signature;
    const bool is_by_old =
        state == AOTICACHE_SIGNATURE_TRUSTED && memcmp(key->bytes, search->key->bytes, sizeof key->bytes) == 0;
    search->key = is_by_old ? NULL : search->key;
    return !is_by_old;
}

static bool is_signed_by(aoticache_cache *cache, const aoticache_digest *artifact, const aoticache_public_key *key)
{
    struct search search = {.key = key};
    return aoticache_cache_check_signatures(cache, artifact, find_signature, &search, NULL) == AOTICACHE_OK &&
           search.key == NULL;
}

static aoticache_status sign_again(aoticache_cache *cache, const aoticache_public_key *old,
                                   const aoticache_secret_key *new, uint64_t *ret_signed, aoticache_error *ret_error)
{
    aoticache_entry_list list = {0};
    aoticache_status status = aoticache_entries_read(cache, NULL, NULL, &list, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < list.count; i++) {
        if (!is_signed_by(cache, &list.entries[i].artifact, old))
            continue;
        status = aoticache_cache_sign(cache, &list.entries[i].artifact, new, ret_error);
        *ret_signed += status == AOTICACHE_OK;
    }
    aoticache_entries_free(&list);
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

static int sign_again_here(const aoticache_key_command *command, const aoticache_public_key *old,
                           const aoticache_secret_key *new)
{
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    uint64_t signed_again = 0;
    aoticache_status status = aoticache_cli_open_cache(command->cli, false, &cache, &error);
    if (status == AOTICACHE_NOT_FOUND)
        return AOTICACHE_CLI_EXIT_OK;
    if (status == AOTICACHE_OK)
        status = sign_again(cache, old, new, &signed_again, &error);
    if (status == AOTICACHE_OK && signed_again > 0)
        aoticache_cli_note(command->cli, "signed %" PRIu64 " %s that '%s' had signed", signed_again,
                           signed_again == 1 ? "entry" : "entries", old->name);
    aoticache_cache_close(cache);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(command->cli, status, &error);
}

/* ---- the action ---- */

static aoticache_status replace(const aoticache_key_command *command, const aoticache_secret_key *old, bool is_revoked,
                                const char *name, aoticache_secret_key **ret_new, char **ret_kept,
                                aoticache_error *ret_error)
{
    const char *directory = aoticache_key_command_directory(command);
    const aoticache_public_key *public = aoticache_secret_key_public(old);
    if (strcmp(name, public->name) == 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "the old key is also named '%s'; choose another name for the new key", name);
    aoticache_status status = aoticache_secret_key_generate(name, ret_new, ret_error);
    if (status == AOTICACHE_OK && !is_revoked)
        status = aoticache_key_directory_trust(directory, public, ret_error);
    return status == AOTICACHE_OK ? exchange(directory, old, *ret_new, ret_kept, ret_error) : status;
}

static int report(const aoticache_key_command *command, const aoticache_public_key *old, bool is_revoked,
                  const aoticache_secret_key *new, const char *kept)
{
    aoticache_cli_note(command->cli,
                       "the old key '%s' is kept in %s, and %s; on other machines run 'aoticache key "
                       "trust' with the new key, which is printed",
                       old->name, kept, is_revoked ? "is still revoked" : "its signatures are still accepted here");
    const int result = is_revoked ? AOTICACHE_CLI_EXIT_OK : sign_again_here(command, old, new);
    aoticache_key_print_public(command, aoticache_secret_key_public(new));
    return result;
}

int aoticache_key_rotate(const aoticache_key_command *command, const char *const *words, size_t count)
{
    const char *directory = aoticache_key_command_directory(command);
    aoticache_secret_key *old = NULL, *new = NULL;
    aoticache_error error = {.message = ""};
    if (count > 1 || command->output != NULL)
        return aoticache_cli_usage_error(command->cli, "rotate takes at most one name, and no --output");
    if (directory[0] == '\0')
        return aoticache_cli_error(command->cli, "no directory for a key to sign with: set HOME, or AOTICACHE_KEYS");
    cleanup_free char *path = aoticache_cli_text("%s/" AOTICACHE_SECRET_KEY_FILE, directory);
    aoticache_status status = aoticache_secret_key_read(path, &old, &error);
    if (status == AOTICACHE_NOT_FOUND)
        aoticache_error_set(&error, status, "you have no key to replace; create one: aoticache key generate");
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(command->cli, status, &error);
    const aoticache_public_key *public = aoticache_secret_key_public(old);
    const bool is_revoked = aoticache_key_is_revoked(command, public);
    cleanup_free char *name = count > 0 ? aoticache_cli_text("%s", words[0]) : next_name(public->name);
    cleanup_free char *kept = NULL;
    status = replace(command, old, is_revoked, name, &new, &kept, &error);
    const int result = status == AOTICACHE_OK ? report(command, public, is_revoked, new, kept)
                                              : aoticache_cli_fail(command->cli, status, &error);
    aoticache_secret_key_free(old);
    aoticache_secret_key_free(new);
    return result;
}
