/*
 * aoticache key: the location of the user's keys, and the form in which a public key is printed.
 */
#include "tools/aoticache/aoticache_internal.h"
#include "tools/aoticache/key/key_internal.h"

const char *aoticache_key_command_directory(const aoticache_key_command *command)
{
    return aoticache_config_get_info(aoticache_cli_config(command->cli))->key_directory;
}

json_t *aoticache_key_to_json(const aoticache_public_key *key)
{
    char text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES], fingerprint[AOTICACHE_FINGERPRINT_BYTES];
    json_t *object = aoticache_cli_json_object();
    aoticache_public_key_format(key, text);
    aoticache_public_key_fingerprint(key, fingerprint);
    aoticache_cli_json_set(object, "name", aoticache_cli_json_text(key->name));
    aoticache_cli_json_set(object, "key", aoticache_cli_json_text(text));
    aoticache_cli_json_set(object, "fingerprint", aoticache_cli_json_text(fingerprint));
    return object;
}

void aoticache_key_print_public(const aoticache_key_command *command, const aoticache_public_key *key)
{
    char text[AOTICACHE_PUBLIC_KEY_TEXT_BYTES];
    aoticache_public_key_format(key, text);
    if (command->cli->json)
        aoticache_cli_json_print(aoticache_key_to_json(key));
    else
        printf("%s\n", text);
}
