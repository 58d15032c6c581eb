/*
 * tools/aoticache/key: the keys that sign entries, the keys that this user trusts, and the signatures of entries.
 *
 * Private to the command `key`.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_KEY_INTERNAL_H
#define AOTICACHE_TOOLS_AOTICACHE_KEY_INTERNAL_H

#include "aoticache/admin.h"
#include "tools/cli/cli.h"

typedef struct aoticache_key_command {
    const aoticache_cli *cli;
    aoticache_cli_list words; /* the action and its operands */
    const char *output;       /* generate: the file */
    const char *op;           /* sign, verify: the pattern */
    bool all;                 /* sign */
    aoticache_cli_list sign_with;
} aoticache_key_command;

/* Returns the user's directory of keys; "" if there is none. */
const char *aoticache_key_command_directory(const aoticache_key_command *command);
/* Returns a public key's name, text and fingerprint. */
json_t *aoticache_key_to_json(const aoticache_public_key *key);
/* Prints only a public key: scripts read it. */
void aoticache_key_print_public(const aoticache_key_command *command, const aoticache_public_key *key);

/* Returns whether this own key of the user is revoked, by any list. Returns false if that cannot be determined. */
bool aoticache_key_is_revoked(const aoticache_key_command *command, const aoticache_public_key *key);

/* Handle the words after the action. Each returns an exit code. */
int aoticache_key_rotate(const aoticache_key_command *command, const char *const *words, size_t count);
int aoticache_key_sign(const aoticache_key_command *command, const char *const *words, size_t count);
int aoticache_key_verify(const aoticache_key_command *command, const char *const *words, size_t count);

#endif
