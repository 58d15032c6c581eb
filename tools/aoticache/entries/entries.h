/*
 * tools/aoticache/entries/entries: entries found by a prefix, the keys that a command line selects, pins and tags.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_ENTRIES_H
#define AOTICACHE_TOOLS_AOTICACHE_ENTRIES_H

#include "aoticache/admin.h"
#include "cache/pins/pins.h"
#include "tools/cli/cli.h"

/* ---- entries ---- */

/* A copy of an aoticache_entry that owns its strings. */
typedef struct aoticache_entry_list {
    aoticache_entry *entries;
    size_t count;
} aoticache_entry_list;

aoticache_status aoticache_entries_read(aoticache_cache *cache, const char *op, const char *prefix,
                                        aoticache_entry_list *ret_list, aoticache_error *ret_error);
/* Adds a copy. */
void aoticache_entries_append(aoticache_entry_list *list, const aoticache_entry *entry);
void aoticache_entries_free(aoticache_entry_list *list);

/*
 * Gives the entries of the one key that a prefix selects (4 to 64 hexadecimal digits of a key, an artifact or a library).
 * Prints an error if the prefix selects none (exit code 3) or several (2, with their keys).
 */
int aoticache_entries_find(const aoticache_cli *cli, aoticache_cache *cache, const char *prefix,
                           aoticache_entry_list *ret_list);

/* Returns "; did you mean aten::abs?": the operator of the cache that `op` may stand for; "" if there is none, or if `op`
 * itself exists or is a pattern. The caller frees it with free(). */
char *aoticache_operator_hint(aoticache_cache *cache, const char *op);
/* Prints "prefix 51fb is ambiguous; it begins:" and the keys, each with its description (NULL: nothing is stored). Returns
 * the exit code. */
int aoticache_keys_refuse_ambiguous(const aoticache_cli *cli, const char *prefix, const aoticache_key *const *keys,
                                    const char *const *descriptions, size_t count);

/* Prints that a word is an operator although keys are expected, and how to find them. Returns the exit code. */
int aoticache_keys_say_operator(const aoticache_cli *cli, const char *word);

/* Returns the entry that a lookup of the key finds on this machine: NULL if no entry of the list fits. */
const aoticache_entry *aoticache_entries_fitting(const aoticache_entry_list *list);

json_t *aoticache_entry_to_json(const aoticache_entry *entry);
/*
 * Returns the levels of this machine's architecture, the lowest first: those of the x86-64 psABI, or versions of Arm's. NULL
 * at the end; other architectures have none.
 */
const char *const *aoticache_cpu_levels(void);

/* Returns features in readable form: "any", "x86-64-v3", "x86-64-v3,aes", "x86-64-v4 and 9 more". The caller frees it with
 * free(). */
char *aoticache_features_text(const aoticache_cpu_features *features);
/* Returns the same in full: "avx,avx2,...". The caller frees it with free(). */
char *aoticache_features_list(const aoticache_cpu_features *features);

/* Gives the manifest of an artifact as JSON (freed with json_decref()) and the request decoded from it. ret_json may be
 * NULL. */
aoticache_status aoticache_manifest_decode(aoticache_cache *cache, const aoticache_digest *artifact, json_t **ret_json,
                                           aoticache_request **ret_request, aoticache_error *ret_error);

/* ---- pins and tags ---- */

/* Pins and tags that own their strings, sorted by key. */
typedef struct aoticache_pin_list {
    aoticache_pins *marks;
    size_t count;
} aoticache_pin_list;

/* Reads pins and tags. tag: only keys with this tag; NULL for all. Prints errors; returns an exit code. */
int aoticache_pin_list_read(const aoticache_cli *cli, aoticache_cache *cache, const char *tag,
                            aoticache_pin_list *ret_list);
void aoticache_pin_list_free(aoticache_pin_list *list);
/* Returns NULL if the key has neither pin nor tags. */
const aoticache_pins *aoticache_pin_list_find(const aoticache_pin_list *list, const aoticache_key *key);
/* Returns "pinned nightly v2"; "" for NULL. The caller frees it with free(). */
char *aoticache_pin_text(const aoticache_pins *mark);
bool aoticache_pin_has_tag(const aoticache_pins *mark, const char *tag);
/* Sets "pinned" and "tags"; mark may be NULL. */
void aoticache_pin_add_to_json(json_t *object, const aoticache_pins *mark);

/* A key selected by the command line. */
typedef struct aoticache_chosen_key {
    aoticache_key key;
    char *description; /* of one of its entries; NULL if nothing is stored for it */
} aoticache_chosen_key;

/* Sorted by key, without duplicates. */
typedef struct aoticache_chosen_keys {
    aoticache_chosen_key *items;
    size_t count;
} aoticache_chosen_keys;

/* Keys selected by prefixes, by a shell pattern for operators, or by a tag. */
typedef struct aoticache_key_choice {
    aoticache_cli_list keys; /* prefixes; the caller frees the items */
    const char *op, *tag;
} aoticache_key_choice;

/*
 * Finds them in one pass, among stored entries and among pins and tags; all 64 digits select a key even if there is nothing
 * for it. Prints errors: a wrong or ambiguous word (2), nothing found (3).
 */
int aoticache_key_choice_resolve(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_key_choice *choice,
                                 aoticache_chosen_keys *ret_keys);
void aoticache_chosen_keys_free(aoticache_chosen_keys *keys);

/* Prints each key, for the --list of `pin`, `unpin` and `tag`. word: "pinned", "key". */
int aoticache_pin_list_print(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_chosen_keys *keys,
                             const char *word);
/* Changes all keys, and prints what was done to each: "unpinned", or "not pinned" if nothing changed. tags: NULL-terminated,
 * for TAG and UNTAG; otherwise NULL. */
int aoticache_pin_list_change(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_chosen_keys *chosen,
                              aoticache_pin_action action, const char *const *tags);

/* ---- signatures.c: the signers of an entry, and the keys with which this user signs ---- */

/* Returns "ann@box-1 (trusted, SHA256:...), ci-2 (unknown key)"; brief: "ann@box-1, ci-2 (unknown key)", "-". The caller
 * frees it with free(). */
char *aoticache_signatures_text(aoticache_cache *cache, const aoticache_digest *artifact, bool is_brief);
/* Does the same for a statement. *ret_trusted: a trusted key made one of the signatures. */
char *aoticache_statement_signers_text(aoticache_cache *cache, const aoticache_statement *statement,
                                       const char *signatures, bool *ret_trusted);
/* Returns an array; null if they cannot be checked. */
json_t *aoticache_signatures_to_json(aoticache_cache *cache, const aoticache_digest *artifact);

/* Writes "ann@box-1": for this user on this host. */
void aoticache_own_key_name(char ret_name[AOTICACHE_SIGNER_NAME_BYTES]);
/* Creates the user's own key if there is none and `sign_with` names no other, and prints that. Returns an exit code. */
int aoticache_signers_prepare(const aoticache_cli *cli);

/* ---- asked.c ---- */

/* A cache from which to get the trusted keys: any cache will do. If there is none yet, an empty temporary one is used and
 * then removed. */
typedef struct aoticache_asked {
    aoticache_cache *cache; /* NULL if open() failed */
    char stand_in[64];      /* "" if there is none */
} aoticache_asked;

/* Opens the cache. Close it even if this fails. Returns as aoticache_cache_open(). */
aoticache_status aoticache_asked_open(const aoticache_cli *cli, aoticache_asked *asked, aoticache_error *ret_error);
void aoticache_asked_close(aoticache_asked *asked);

/* ---- judgements.c: timing results of a key's kernel against the host's own ---- */

/* Prints one line for each machine, number of threads and size class; nothing if there are no results. */
void aoticache_judgements_print(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_key *key);
json_t *aoticache_judgements_to_json(aoticache_cache *cache, const aoticache_key *key);

#endif
