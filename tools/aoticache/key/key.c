/*
 * aoticache key: makes keys, prints them, and sets which keys are trusted.
 *
 * A secret key is a file: no option takes one, and none is ever printed.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/aoticache_internal.h"
#include "tools/aoticache/key/key_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- generate, public ---- */

static int generate(const aoticache_key_command *command, const char *const *words, size_t count)
{
    char own[AOTICACHE_SIGNER_NAME_BYTES];
    aoticache_secret_key *key = NULL;
    aoticache_error error = {.message = ""};
    bool is_new = true;
    aoticache_status status;
    if (count > 1)
        return aoticache_cli_usage_error(command->cli, "generate takes at most one name");
    aoticache_own_key_name(own);
    const char *name = count > 0 ? words[0] : own;
    if (command->output != NULL) {
        status = aoticache_secret_key_generate(name, &key, &error);
        if (status == AOTICACHE_OK)
            status = aoticache_secret_key_write(key, command->output, &error);
    } else {
        status = aoticache_key_directory_own_key(aoticache_key_command_directory(command), name, &key, &is_new, &error);
        if (status == AOTICACHE_OK && !is_new && aoticache_key_is_revoked(command, aoticache_secret_key_public(key))) {
            aoticache_secret_key_free(key);
            return aoticache_key_rotate(command, words, count);
        }
        if (status == AOTICACHE_OK && !is_new)
            status =
                aoticache_error_set(&error, AOTICACHE_INVALID,
                                    "you have the key '%s' in %s/" AOTICACHE_SECRET_KEY_FILE
                                    " already, and it is kept; 'aoticache key rotate' replaces it, --output FILE "
                                    "creates another",
                                    aoticache_secret_key_public(key)->name, aoticache_key_command_directory(command));
    }
    if (status == AOTICACHE_OK)
        aoticache_key_print_public(command, aoticache_secret_key_public(key));
    aoticache_secret_key_free(key);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(command->cli, status, &error);
}

/* Prints the public key of a file. is_own: the user's own key, which may not exist yet. */
static int print_of_file(const aoticache_key_command *command, const char *path, bool is_own)
{
    aoticache_secret_key *key = NULL;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_secret_key_read(path, &key, &error);
    if (status == AOTICACHE_NOT_FOUND && is_own)
        aoticache_error_set(&error, status, "you have no key to sign with yet; create one: aoticache key generate");
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(command->cli, status, &error);
    aoticache_key_print_public(command, aoticache_secret_key_public(key));
    aoticache_secret_key_free(key);
    return AOTICACHE_CLI_EXIT_OK;
}

/* Prints the key that signs: the first of sign_with, otherwise the user's own. */
static int public(const aoticache_key_command *command, const char *const *words, size_t count)
{
    const char *configured = aoticache_config_get(aoticache_cli_config(command->cli), AOTICACHE_CONFIG_sign_with).text;
    if (count > 1)
        return aoticache_cli_usage_error(command->cli, "public takes at most one file");
    if (count == 1)
        return print_of_file(command, words[0], false);
    if (configured[0] == '\0') {
        if (aoticache_key_command_directory(command)[0] == '\0')
            return aoticache_cli_error(command->cli,
                                       "no directory for a key to sign with: set HOME, or AOTICACHE_KEYS");
        cleanup_free char *own =
            aoticache_cli_text("%s/" AOTICACHE_SECRET_KEY_FILE, aoticache_key_command_directory(command));
        return print_of_file(command, own, true);
    }
    cleanup_free char *paths = aoticache_cli_text("%s", configured);
    int result = AOTICACHE_CLI_EXIT_OK;
    char *rest = NULL;
    for (char *path = strtok_r(paths, " \t", &rest); result == AOTICACHE_CLI_EXIT_OK && path != NULL;
         path = strtok_r(NULL, " \t", &rest))
        result = print_of_file(command, path, false);
    return result;
}

/* ---- trust, distrust ---- */

static int trust(const aoticache_key_command *command, const char *const *words, size_t count)
{
    if (count == 0)
        return aoticache_cli_usage_error(command->cli, "trust needs a public key, as 'aoticache key public' prints it");
    for (size_t i = 0; i < count; i++) {
        aoticache_public_key key;
        char fingerprint[AOTICACHE_FINGERPRINT_BYTES];
        aoticache_error error = {.message = ""};
        if (aoticache_public_key_parse(words[i], &key, &error) != AOTICACHE_OK)
            return aoticache_cli_usage_error(command->cli, "%s", error.message);
        aoticache_status status = aoticache_key_directory_trust(aoticache_key_command_directory(command), &key, &error);
        if (status != AOTICACHE_OK)
            return aoticache_cli_fail(command->cli, status, &error);
        aoticache_public_key_fingerprint(&key, fingerprint);
        aoticache_cli_note(command->cli, "'%s' (%s) is trusted", key.name, fingerprint);
    }
    return AOTICACHE_CLI_EXIT_OK;
}

/* A word to revoke, and what was found for it. */
struct distrust {
    const aoticache_key_command *command;
    const char *word;
    size_t found;
    aoticache_status status;
    aoticache_error error;
};

static void revoke_word(struct distrust *distrust, const char *word, const char *remark)
{
    const char *directory = aoticache_key_command_directory(distrust->command);
    distrust->status = aoticache_key_directory_revoke(directory, word, &distrust->error);
    if (distrust->status == AOTICACHE_OK)
        aoticache_cli_note(distrust->command->cli, "%s is revoked%s", word, remark);
}

/* Revokes a key. Revoking a name is weaker than revoking the keys that have it: so each of these keys is written down. */
static bool revoke_if_meant(void *user, const aoticache_public_key *key, aoticache_trust_origin origin, bool is_revoked)
{
    struct distrust *distrust = user;
    char fingerprint[AOTICACHE_FINGERPRINT_BYTES], text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES];
    (void)is_revoked;
    aoticache_public_key_fingerprint(key, fingerprint);
    aoticache_public_key_format(key, text);
    if (strcmp(key->name, distrust->word) != 0 && strcmp(fingerprint, distrust->word) != 0 &&
        strcmp(text, distrust->word) != 0)
        return true;
    distrust->found++;
    revoke_word(distrust, text,
                origin == AOTICACHE_TRUST_ORIGIN_CONFIGURED
                    ? "; trusted_keys of the configuration still has it, which has no effect"
                : origin == AOTICACHE_TRUST_ORIGIN_OWN
                    ? "; it is your own key and no longer signs: 'aoticache key rotate' creates another"
                    : "");
    return distrust->status == AOTICACHE_OK;
}

static int distrust_one(const aoticache_key_command *command, aoticache_cache *cache, const char *word)
{
    struct distrust distrust = {.command = command, .word = word, .error = {.message = ""}};
    if (cache != NULL)
        aoticache_cache_list_trusted(cache, revoke_if_meant, &distrust, NULL);
    if (distrust.found == 0)
        revoke_word(&distrust, word, "");
    return distrust.status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK
                                           : aoticache_cli_fail(command->cli, distrust.status, &distrust.error);
}

static void print_removed(void *user, const aoticache_digest *artifact, const char *reason)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    const aoticache_cli *cli = user;
    aoticache_digest_to_hex(artifact, hex);
    if (!cli->json)
        printf("removed %.12s: %s\n", hex, reason);
}

static int remove_revoked(const aoticache_key_command *command)
{
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    uint64_t removed = 0;
    aoticache_status status = aoticache_cli_open_cache(command->cli, false, &cache, &error);
    if (status == AOTICACHE_NOT_FOUND)
        return AOTICACHE_CLI_EXIT_OK;
    if (status == AOTICACHE_OK)
        status =
            aoticache_cache_remove_revoked(cache, print_removed, (void *)(uintptr_t)command->cli, &removed, &error);
    if (status == AOTICACHE_OK && command->cli->json) {
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(aoticache_cache_directory(cache)));
        aoticache_cli_json_set(object, "removed", aoticache_cli_json_count(removed));
        aoticache_cli_json_print(object);
    } else if (status == AOTICACHE_OK) {
        aoticache_cli_note(command->cli,
                           "%" PRIu64 " %s removed from %s; in other caches 'aoticache verify --repair' removes "
                           "them",
                           removed, removed == 1 ? "entry" : "entries", aoticache_cache_directory(cache));
    }
    aoticache_cache_close(cache);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(command->cli, status, &error);
}

static int distrust(const aoticache_key_command *command, const char *const *words, size_t count)
{
    aoticache_asked asked;
    int result = AOTICACHE_CLI_EXIT_OK;
    if (count == 0)
        return aoticache_cli_usage_error(command->cli,
                                         "distrust needs a public key, a fingerprint, the name of a key, or the "
                                         "64 digits of an artifact");
    aoticache_asked_open(command->cli, &asked,
                         NULL); /* for the key that has a name; if that fails the name is revoked */
    for (size_t i = 0; result == AOTICACHE_CLI_EXIT_OK && i < count; i++)
        result = distrust_one(command, asked.cache, words[i]);
    aoticache_asked_close(&asked);
    return result == AOTICACHE_CLI_EXIT_OK ? remove_revoked(command) : result;
}

/* ---- list ---- */

struct listing {
    aoticache_cli_table *table;
    json_t *array;
    size_t count;
};

static bool add_key(void *user, const aoticache_public_key *key, aoticache_trust_origin origin, bool is_revoked)
{
    static const char *const origins[] = {"configuration", "you", "own key"};
    struct listing *listing = user;
    char fingerprint[AOTICACHE_FINGERPRINT_BYTES];
    listing->count++;
    if (listing->array != NULL) {
        json_t *object = aoticache_key_to_json(key);
        aoticache_cli_json_set(object, "trusted_by", aoticache_cli_json_text(origins[origin]));
        aoticache_cli_json_set(object, "revoked", json_boolean(is_revoked));
        aoticache_cli_json_append(listing->array, object);
        return true;
    }
    aoticache_public_key_fingerprint(key, fingerprint);
    const char *cells[] = {key->name, fingerprint, origins[origin], is_revoked ? "revoked" : "trusted"};
    aoticache_cli_table_add(listing->table, is_revoked ? AOTICACHE_CLI_RED : AOTICACHE_CLI_PLAIN, cells);
    return true;
}

static int list(const aoticache_key_command *command, const char *const *words, size_t count)
{
    static const aoticache_cli_column columns[] = {
        {.title = "NAME"}, {.title = "FINGERPRINT"}, {.title = "TRUSTED BY"}, {.title = "STATE"}};
    const aoticache_cli *cli = command->cli;
    aoticache_asked asked;
    aoticache_error error = {.message = ""};
    int result = AOTICACHE_CLI_EXIT_OK;
    struct listing listing = {.array = cli->json ? aoticache_cli_json_array() : NULL};
    (void)words;
    if (count > 0)
        return aoticache_cli_usage_error(cli, "list takes no arguments");
    aoticache_status status = aoticache_asked_open(cli, &asked, &error);
    listing.table = aoticache_cli_table_create(columns, sizeof columns / sizeof columns[0]);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_list_trusted(asked.cache, add_key, &listing, &error);
    if (status != AOTICACHE_OK)
        result = aoticache_cli_fail(cli, status, &error);
    else if (listing.array != NULL)
        aoticache_cli_json_print(json_incref(listing.array));
    else if (listing.count > 0)
        aoticache_cli_table_print(listing.table, cli);
    else
        aoticache_cli_note(cli, "no key is trusted; 'aoticache key trust KEY' trusts one");
    json_decref(listing.array);
    aoticache_cli_table_free(listing.table);
    aoticache_asked_close(&asked);
    return result;
}

/* ---- the command ---- */

static const struct {
    const char *word;
    int (*run)(const aoticache_key_command *command, const char *const *words, size_t count);
} actions[] = {{"generate", generate},       {"rotate", aoticache_key_rotate},
               {"public", public},           {"trust", trust},
               {"distrust", distrust},       {"list", list},
               {"sign", aoticache_key_sign}, {"verify", aoticache_key_verify}};

#define ACTION_COUNT (sizeof actions / sizeof actions[0])

static int run_action(const aoticache_key_command *command)
{
    const char *names[ACTION_COUNT + 1] = {NULL};
    for (size_t i = 0; i < ACTION_COUNT; i++) {
        names[i] = actions[i].word;
        if (strcmp(command->words.items[0], names[i]) == 0)
            return actions[i].run(command, command->words.items + 1, command->words.count - 1);
    }
    const char *nearest = aoticache_cli_nearest(command->words.items[0], names);
    if (nearest != NULL)
        return aoticache_cli_usage_error(command->cli, "unknown command 'key %s' (did you mean %s?)",
                                         command->words.items[0], nearest);
    return aoticache_cli_usage_error(command->cli, "unknown command 'key %s'", command->words.items[0]);
}

static int key_command(aoticache_cli *cli)
{
    aoticache_key_command command = {.cli = cli};
    if (!aoticache_cli_parse(cli, &command))
        return cli->exit_code;
    int result = run_action(&command);
    free(command.words.items);
    free(command.sign_with.items);
    return result;
}

static const aoticache_cli_option key_options[] = {
    {"output", 'o', "FILE", "generate: the file of the new secret key; default: your own",
     AOTICACHE_CLI_NAME(aoticache_key_command, output, "a file is needed")},
    {"op", 0, "PATTERN", "sign, verify: only operators that match this: 'aten::*'",
     AOTICACHE_CLI_TEXT(aoticache_key_command, op)},
    {"all", 'a', NULL, "sign: all entries", AOTICACHE_CLI_SET(aoticache_key_command, all)},
    {"sign-with", 0, "FILE",
     "sign: with this secret key; may be repeated; default: sign_with of the\n"
     "configuration, or your own key, created at its first use",
     AOTICACHE_CLI_LIST(aoticache_key_command, sign_with)},
    {0},
};

const aoticache_command aoticache_command_key = {
    .word = "key",
    .program =
        {
            .name = "aoticache key",
            .help_hint = "aoticache help key",
            .usage = "ACTION [WORD]... [OPTION]...",
            .summary = "Creates and lists the keys that sign kernels, and manages the trusted keys.",
            .details =
                "  generate [NAME]  creates a key to sign with, and prints its public part\n"
                "  rotate [NAME]    replaces your own key by a new one; this also signs what the\n"
                "                   old one signed in this cache, unless that is revoked\n"
                "  public [FILE]    prints the public part of the key that signs, for other\n"
                "                   machines; creates no key: 'generate' and the first signing do\n"
                "  trust KEY...     accepts kernels signed by this public key\n"
                "  distrust WORD... revokes public keys, fingerprints, names, or artifacts (64\n"
                "                   digits), and removes from the cache what only they signed\n"
                "  list             trusted and revoked keys\n"
                "  sign KEY...      signs entries of the cache; --op PATTERN or --all for many\n"
                "  verify [KEY...]  shows who signed entries; exit code 1 if a signature is wrong\n"
                "                   or revoked, or if no trusted key signed a KEY\n\n"
                "KEY of sign and verify is the beginning of an entry's key or artifact, as for 'aoticache show'.\n"
                "Keys and signatures have the form of Nix: name:base64. A secret key is a file with mode 0600.",
            .options = key_options,
            .operand = {AOTICACHE_CLI_LIST(aoticache_key_command, words),
                        .wanted = "specify a command: generate, rotate, public, trust, distrust, list, sign or "
                                  "verify"},
        },
    .run = key_command,
};
