/*
 * aoticache key sign and verify: signatures of the entries of this cache.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/key/key_internal.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- selecting entries ---- */

static int add_all(const aoticache_key_command *command, aoticache_cache *cache, aoticache_entry_list *list)
{
    aoticache_entry_list every = {0};
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_entries_read(cache, NULL, NULL, &every, &error);
    for (size_t i = 0; i < every.count; i++)
        if (command->op == NULL || fnmatch(command->op, every.entries[i].op, 0) == 0)
            aoticache_entries_append(list, &every.entries[i]);
    aoticache_entries_free(&every);
    return status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND ? AOTICACHE_CLI_EXIT_OK
                                                                   : aoticache_cli_fail(command->cli, status, &error);
}

static int choose(const aoticache_key_command *command, aoticache_cache *cache, const char *const *words, size_t count,
                  aoticache_entry_list *list)
{
    int result = count == 0 ? add_all(command, cache, list) : AOTICACHE_CLI_EXIT_OK;
    for (size_t i = 0; result == AOTICACHE_CLI_EXIT_OK && i < count; i++) {
        aoticache_entry_list found = {0};
        result = aoticache_entries_find(command->cli, cache, words[i], &found);
        for (size_t k = 0; k < found.count; k++)
            aoticache_entries_append(list, &found.entries[k]);
        aoticache_entries_free(&found);
    }
    if (result == AOTICACHE_CLI_EXIT_OK && list->count == 0 && command->op != NULL) {
        aoticache_cli_error(command->cli, "no entry for operators like %s", command->op);
        return AOTICACHE_CLI_EXIT_NOT_FOUND;
    }
    return result;
}

/* ---- sign ---- */

static int sign_with(const aoticache_key_command *command, aoticache_cache *cache, const aoticache_entry_list *list,
                     const aoticache_secret_key *key)
{
    aoticache_error error = {.message = ""};
    for (size_t i = 0; i < list->count; i++) {
        aoticache_status status = aoticache_cache_sign(cache, &list->entries[i].artifact, key, &error);
        if (status != AOTICACHE_OK)
            return aoticache_cli_fail(command->cli, status, &error);
    }
    aoticache_cli_note(command->cli, "signed %zu %s with '%s'", list->count, list->count == 1 ? "entry" : "entries",
                       aoticache_secret_key_public(key)->name);
    return AOTICACHE_CLI_EXIT_OK;
}

static int sign_with_files(const aoticache_key_command *command, aoticache_cache *cache,
                           const aoticache_entry_list *list)
{
    int result = AOTICACHE_CLI_EXIT_OK;
    for (size_t i = 0; result == AOTICACHE_CLI_EXIT_OK && i < command->sign_with.count; i++) {
        aoticache_secret_key *key = NULL;
        aoticache_error error = {.message = ""};
        aoticache_status status = aoticache_secret_key_read(command->sign_with.items[i], &key, &error);
        result = status == AOTICACHE_OK ? sign_with(command, cache, list, key)
                                        : aoticache_cli_fail(command->cli, status, &error);
        aoticache_secret_key_free(key);
    }
    return result;
}

static int sign_with_own(const aoticache_key_command *command, aoticache_cache *cache, const aoticache_entry_list *list)
{
    const aoticache_secret_key *const *keys = NULL;
    size_t count = 0;
    aoticache_error error = {.message = ""};
    int result = aoticache_signers_prepare(command->cli);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    aoticache_status status = aoticache_cache_signers(cache, &keys, &count, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(command->cli, status, &error);
    for (size_t i = 0; result == AOTICACHE_CLI_EXIT_OK && i < count; i++)
        result = sign_with(command, cache, list, keys[i]);
    return result;
}

int aoticache_key_sign(const aoticache_key_command *command, const char *const *words, size_t count)
{
    aoticache_entry_list list = {0};
    aoticache_cache *cache = NULL;
    if ((count > 0) + (command->op != NULL) + command->all != 1)
        return aoticache_cli_usage_error(command->cli, "specify what to sign: keys, --op PATTERN or --all");
    int result = aoticache_cli_open_or_report(command->cli, false, &cache);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = choose(command, cache, words, count, &list);
    if (result == AOTICACHE_CLI_EXIT_OK && list.count == 0)
        aoticache_cli_note(command->cli, "no entries to sign");
    else if (result == AOTICACHE_CLI_EXIT_OK)
        result = command->sign_with.count > 0 ? sign_with_files(command, cache, &list)
                                              : sign_with_own(command, cache, &list);
    aoticache_entries_free(&list);
    aoticache_cache_close(cache);
    return result;
}

/* ---- verify ---- */

struct tally {
    uint64_t trusted, faulty;
};

static bool count_state(void *user, const aoticache_signature *signature, aoticache_signature_state state,
                        const aoticache_public_key *key)
{
    struct tally *tally = user;
    (void)signature, (void)key;
    tally->trusted += state == AOTICACHE_SIGNATURE_TRUSTED;
    tally->faulty += state == AOTICACHE_SIGNATURE_WRONG || state == AOTICACHE_SIGNATURE_REVOKED;
    return true;
}

static json_t *entry_to_json(aoticache_cache *cache, const aoticache_entry *entry)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "key", aoticache_cli_json_digest(&entry->key));
    aoticache_cli_json_set(object, "artifact", aoticache_cli_json_digest(&entry->artifact));
    aoticache_cli_json_set(object, "description", aoticache_cli_json_text(entry->description));
    aoticache_cli_json_set(object, "signatures", aoticache_signatures_to_json(cache, &entry->artifact));
    return object;
}

/* Verifies an entry. must_be_trusted: the entry was selected by its key. */
static int verify_entry(const aoticache_key_command *command, aoticache_cache *cache, const aoticache_entry *entry,
                        bool must_be_trusted, json_t *array)
{
    struct tally tally = {0};
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_check_signatures(cache, &entry->artifact, count_state, &tally, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(command->cli, status, &error);
    if (array != NULL) {
        aoticache_cli_json_append(array, entry_to_json(cache, entry));
    } else {
        char hex[AOTICACHE_DIGEST_HEX_BYTES];
        cleanup_free char *text = aoticache_signatures_text(cache, &entry->artifact, false);
        cleanup_free char *escaped = aoticache_cli_escape(entry->description);
        aoticache_digest_to_hex(&entry->key, hex);
        printf("%.12s  %s  signed by %s\n", hex, escaped, text);
    }
    bool is_well = tally.faulty == 0 && (!must_be_trusted || tally.trusted > 0);
    return is_well ? AOTICACHE_CLI_EXIT_OK : AOTICACHE_CLI_EXIT_FAILURE;
}

int aoticache_key_verify(const aoticache_key_command *command, const char *const *words, size_t count)
{
    aoticache_entry_list list = {0};
    aoticache_cache *cache = NULL;
    int result = aoticache_cli_open_or_report(command->cli, false, &cache);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = choose(command, cache, words, count, &list);
    json_t *array = command->cli->json ? aoticache_cli_json_array() : NULL;
    for (size_t i = 0; i < list.count; i++) {
        int one = verify_entry(command, cache, &list.entries[i], count > 0, array);
        result = result == AOTICACHE_CLI_EXIT_OK ? one : result;
    }
    if (array != NULL && list.count > 0)
        aoticache_cli_json_print(json_incref(array));
    json_decref(array);
    aoticache_entries_free(&list);
    aoticache_cache_close(cache);
    return result;
}
