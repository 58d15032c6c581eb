/*
 * tools/aoticache/entries/signatures: the signers of an entry, as text and as JSON; the secret keys with which this user
 * signs.
 */
#include "base/cleanup.h"
#include "tools/aoticache/entries/entries.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- signers ---- */

/* Returns "trusted", "unknown key", "revoked", "wrong". */
static const char *signature_state_text(aoticache_signature_state state)
{
    switch (state) {
    case AOTICACHE_SIGNATURE_TRUSTED:
        return "trusted";
    case AOTICACHE_SIGNATURE_UNKNOWN:
        return "unknown key";
    case AOTICACHE_SIGNATURE_REVOKED:
        return "revoked";
    case AOTICACHE_SIGNATURE_WRONG:
        return "wrong";
    }
    return "?";
}

struct text {
    char *joined;
    bool is_brief, is_trusted;
};

static bool add_text(void *user, const aoticache_signature *signature, aoticache_signature_state state,
                     const aoticache_public_key *key)
{
    struct text *text = user;
    char fingerprint[AOTICACHE_FINGERPRINT_BYTES] = "";
    bool is_quiet = text->is_brief && state == AOTICACHE_SIGNATURE_TRUSTED;
    if (key != NULL && !text->is_brief)
        aoticache_public_key_fingerprint(key, fingerprint);
    char *more = aoticache_cli_text("%s%s%s%s%s%s%s%s", text->joined != NULL ? text->joined : "",
                                    text->joined != NULL ? ", " : "", signature->name, is_quiet ? "" : " (",
                                    is_quiet ? "" : signature_state_text(state), fingerprint[0] != '\0' ? ", " : "",
                                    fingerprint, is_quiet ? "" : ")");
    free(text->joined);
    text->joined = more;
    text->is_trusted = text->is_trusted || state == AOTICACHE_SIGNATURE_TRUSTED;
    return true;
}

static char *end_text(struct text *text, aoticache_status status, const aoticache_error *error)
{
    if (status == AOTICACHE_OK)
        return text->joined != NULL ? text->joined : aoticache_cli_text("%s", text->is_brief ? "-" : "nobody");
    free(text->joined);
    return aoticache_cli_text("cannot be checked: %s", error->message);
}

char *aoticache_signatures_text(aoticache_cache *cache, const aoticache_digest *artifact, bool is_brief)
{
    struct text text = {.is_brief = is_brief};
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_check_signatures(cache, artifact, add_text, &text, &error);
    return end_text(&text, status, &error);
}

char *aoticache_statement_signers_text(aoticache_cache *cache, const aoticache_statement *statement,
                                       const char *signatures, bool *ret_trusted)
{
    struct text text = {.joined = NULL};
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cache_check_statement(cache, statement, signatures, add_text, &text, &error);
    *ret_trusted = status == AOTICACHE_OK && text.is_trusted;
    return end_text(&text, status, &error);
}

static bool add_json(void *user, const aoticache_signature *signature, aoticache_signature_state state,
                     const aoticache_public_key *key)
{
    char fingerprint[AOTICACHE_FINGERPRINT_BYTES] = "";
    json_t *object = aoticache_cli_json_object();
    if (key != NULL)
        aoticache_public_key_fingerprint(key, fingerprint);
    aoticache_cli_json_set(object, "name", aoticache_cli_json_text(signature->name));
    aoticache_cli_json_set(object, "state", aoticache_cli_json_text(signature_state_text(state)));
    aoticache_cli_json_set(object, "fingerprint", key != NULL ? aoticache_cli_json_text(fingerprint) : json_null());
    aoticache_cli_json_append(user, object);
    return true;
}

json_t *aoticache_signatures_to_json(aoticache_cache *cache, const aoticache_digest *artifact)
{
    json_t *array = aoticache_cli_json_array();
    if (aoticache_cache_check_signatures(cache, artifact, add_json, array, NULL) == AOTICACHE_OK)
        return array;
    json_decref(array);
    return json_null();
}

/* ---- the user's own key ---- */

/* Makes a name as ssh-keygen does, which users recognize. Invalid characters become '_'. */
void aoticache_own_key_name(char ret_name[AOTICACHE_SIGNER_NAME_BYTES])
{
    char host[64] = "";
    const struct passwd *user = getpwuid(geteuid());
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0')
        snprintf(host, sizeof host, "localhost");
    if (user != NULL)
        snprintf(ret_name, AOTICACHE_SIGNER_NAME_BYTES, "%.48s@%.60s-1", user->pw_name, host);
    else
        snprintf(ret_name, AOTICACHE_SIGNER_NAME_BYTES, "user%ld@%.60s-1", (long)geteuid(), host);
    for (char *c = ret_name; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~' || *c == ':' || (*c == '#' && c == ret_name))
            *c = '_';
}

static int make_own_key(const aoticache_cli *cli, const char *directory)
{
    char name[AOTICACHE_SIGNER_NAME_BYTES], fingerprint[AOTICACHE_FINGERPRINT_BYTES];
    char text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES];
    aoticache_secret_key *key = NULL;
    aoticache_error error = {.message = ""};
    bool is_new = false;
    aoticache_own_key_name(name);
    aoticache_status status = aoticache_key_directory_own_key(directory, name, &key, &is_new, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(cli, status, &error);
    if (is_new) {
        aoticache_public_key_fingerprint(aoticache_secret_key_public(key), fingerprint);
        aoticache_public_key_format(aoticache_secret_key_public(key), text);
        aoticache_cli_note(cli,
                           "made the key '%s' (%s) to sign with, in %s/" AOTICACHE_SECRET_KEY_FILE
                           "; on other machines: aoticache key trust %s",
                           aoticache_secret_key_public(key)->name, fingerprint, directory, text);
    }
    aoticache_secret_key_free(key);
    return AOTICACHE_CLI_EXIT_OK;
}

int aoticache_signers_prepare(const aoticache_cli *cli)
{
    const aoticache_config *config = aoticache_cli_config(cli);
    const char *directory = aoticache_config_get_info(config)->key_directory;
    if (aoticache_config_get(config, AOTICACHE_CONFIG_sign_with).text[0] != '\0')
        return AOTICACHE_CLI_EXIT_OK;
    if (directory[0] == '\0')
        return aoticache_cli_error(cli, "no directory for a key to sign with: set HOME, or AOTICACHE_KEYS");
    return make_own_key(cli, directory);
}
