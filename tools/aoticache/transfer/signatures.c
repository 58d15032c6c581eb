/*
 * tools/aoticache/transfer/signatures: the keys with which an export signs, and the keys that an import trusts.
 *
 * The user is asked about a new key once, and only on a terminal, as ssh does for a host's key. Without a terminal the
 * import refuses, and the cache prints what to do: no user is there to compare a fingerprint.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/transfer/transfer_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- signing ---- */

static int open_named(aoticache_transfer_command *command)
{
    aoticache_secret_key **keys = aoticache_cli_allocate(command->sign_with.count, sizeof *keys);
    command->options.signers = (const aoticache_secret_key *const *)keys;
    for (size_t i = 0; i < command->sign_with.count; i++) {
        aoticache_error error = {.message = ""};
        aoticache_status status = aoticache_secret_key_read(command->sign_with.items[i], &keys[i], &error);
        if (status != AOTICACHE_OK)
            return aoticache_cli_fail(command->cli, status, &error);
        command->options.signer_count++;
    }
    return AOTICACHE_CLI_EXIT_OK;
}

int aoticache_transfer_open_signers(aoticache_transfer_command *command, aoticache_cache *cache)
{
    aoticache_error error = {.message = ""};
    if (command->no_sign && command->sign_with.count > 0)
        return aoticache_cli_usage_error(command->cli, "--sign-with and --no-sign cannot be combined");
    if (command->no_sign || command->options.dry_run)
        return AOTICACHE_CLI_EXIT_OK;
    if (command->sign_with.count > 0)
        return open_named(command);
    int result = aoticache_signers_prepare(command->cli);
    if (result != AOTICACHE_CLI_EXIT_OK) {
        aoticache_cli_note(command->cli, "--no-sign exports without a signature of yours");
        return result;
    }
    aoticache_status status =
        aoticache_cache_signers(cache, &command->options.signers, &command->options.signer_count, &error);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(command->cli, status, &error);
}

void aoticache_transfer_free_signers(aoticache_transfer_command *command)
{
    if (command->sign_with.count > 0) {
        for (size_t i = 0; i < command->options.signer_count; i++)
            aoticache_secret_key_free((aoticache_secret_key *)(uintptr_t)command->options.signers[i]);
        free((void *)(uintptr_t)command->options.signers);
    }
    free(command->sign_with.items);
}

/* ---- trusting ---- */

static bool is_fingerprint(const char *text)
{
    return strncmp(text, "SHA256:", 7) == 0;
}

int aoticache_transfer_check_trust(const aoticache_transfer_command *command)
{
    for (size_t i = 0; i < command->trust.count; i++) {
        const char *text = command->trust.items[i];
        aoticache_public_key key;
        aoticache_error error = {.message = ""};
        if (is_fingerprint(text) ? strlen(text) == AOTICACHE_FINGERPRINT_BYTES - 1
                                 : aoticache_public_key_parse(text, &key, &error) == AOTICACHE_OK)
            continue;
        return aoticache_cli_usage_error(
            command->cli,
            "--trust %.60s: expected a public key, name:base64, or a complete fingerprint, "
            "SHA256:...%s%s",
            text, error.message[0] != '\0' ? ": " : "", error.message);
    }
    return AOTICACHE_CLI_EXIT_OK;
}

static bool is_named(const aoticache_transfer_command *command, const aoticache_public_key *key)
{
    char fingerprint[AOTICACHE_FINGERPRINT_BYTES];
    aoticache_public_key_fingerprint(key, fingerprint);
    for (size_t i = 0; i < command->trust.count; i++) {
        const char *text = command->trust.items[i];
        aoticache_public_key named;
        if (is_fingerprint(text) ? strcmp(text, fingerprint) == 0
                                 : aoticache_public_key_parse(text, &named, NULL) == AOTICACHE_OK &&
                                       memcmp(named.bytes, key->bytes, sizeof key->bytes) == 0)
            return true;
    }
    return false;
}

/* Reads "yes" from the terminal, whatever standard input is. */
static bool asks_on_terminal(aoticache_transfer_command *command, const aoticache_public_key *key)
{
    char fingerprint[AOTICACHE_FINGERPRINT_BYTES], answer[16] = "";
    if (!isatty(STDERR_FILENO) || command->cli->quiet || command->cli->json)
        return false;
    cleanup_file FILE *terminal = fopen("/dev/tty", "r+e");
    if (terminal == NULL)
        return false;
    aoticache_cli_progress_clear(&command->progress);
    aoticache_public_key_fingerprint(key, fingerprint);
    cleanup_free char *place = aoticache_cli_escape(command->operand);
    fprintf(terminal,
            "%s is signed with the key '%s', which is not trusted here:\n  %s\n"
            "Its owner, who can print it with 'aoticache key list', could run anything as you.\n"
            "Trust this key from now on (yes/no)? ",
            place, key->name, fingerprint);
    fflush(terminal);
    return fgets(answer, sizeof answer, terminal) != NULL && strcmp(answer, "yes\n") == 0;
}

static void remember(const aoticache_transfer_command *command, const aoticache_public_key *key)
{
    const char *directory = aoticache_config_get_info(aoticache_cli_config(command->cli))->key_directory;
    aoticache_error error = {.message = ""};
    if (aoticache_key_directory_trust(directory, key, &error) != AOTICACHE_OK)
        aoticache_cli_error(command->cli, "'%s' is trusted for this import only: %s", key->name, error.message);
    else
        aoticache_cli_note(command->cli, "'%s' is trusted from now on", key->name);
}

bool aoticache_transfer_ask(void *user, const aoticache_public_key *key)
{
    aoticache_transfer_command *command = user;
    for (size_t i = 0; i < command->asked_count; i++)
        if (memcmp(&command->asked[i], key, sizeof *key) == 0)
            return false;
    if (is_named(command, key) || asks_on_terminal(command, key)) {
        if (!command->options.dry_run)
            remember(command, key);
        return true;
    }
    if (command->asked_count < AOTICACHE_MAX_SIGNATURES)
        command->asked[command->asked_count++] = *key;
    return false;
}
