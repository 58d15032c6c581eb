/*
 * tools/aoticache/transfer: shared by export, import, merge and copy: their options, the progress, the final report, and the
 * handling of Ctrl-C.
 *
 * Private to those four commands.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_TRANSFER_INTERNAL_H
#define AOTICACHE_TOOLS_AOTICACHE_TRANSFER_INTERNAL_H

#include "aoticache/admin.h"
#include "aoticache/remote.h"
#include "tools/cli/cli.h"

typedef struct aoticache_transfer_command {
    const aoticache_cli *cli;
    const char *operand; /* the file or directory; NULL: remotes */
    aoticache_transfer_options options;
    aoticache_cli_progress progress;
    aoticache_transfer_report report;
    char empty[64];               /* temporary directory for a dry run, or "" */
    aoticache_cli_list sign_with; /* export: files of secret keys */
    bool no_sign;
    aoticache_cli_list trust; /* import: keys and fingerprints that are trusted without a question */
    aoticache_public_key asked[AOTICACHE_MAX_SIGNATURES]; /* keys that the user did not accept */
    size_t asked_count;
} aoticache_transfer_command;

/* Options of an aoticache_transfer_command: selection by the contents of manifests; how the target stores entries. */
extern const aoticache_cli_option aoticache_transfer_manifest_table[];
extern const aoticache_cli_option aoticache_transfer_index_table[]; /* selection by data that archives do not have */
extern const aoticache_cli_option aoticache_transfer_target_table[];

/* Returns false if there is nothing to do: return cli->exit_code. progress: the unit that is counted. */
bool aoticache_transfer_parse(aoticache_transfer_command *command, aoticache_cli *cli, const char *progress);

/* Makes SIGINT, SIGTERM and SIGHUP stop the transfer, which then cleans up. */
void aoticache_transfer_catch_signals(void);
/* Ends the process with the signal that was received, if any. Call this after cleaning up. */
void aoticache_transfer_die_if_stopped(void);

/* Opens a cache for reading, and does not change it: AOTICACHE_CLI_EXIT_OK, or the program's exit code. NULL: --cache-dir. */
int aoticache_transfer_open_source(const aoticache_transfer_command *command, const char *directory,
                                   aoticache_cache **ret_cache);
/* Opens a cache for writing, and creates it if it is missing; for a dry run a temporary empty one is used instead. */
int aoticache_transfer_open_target(aoticache_transfer_command *command, const char *directory,
                                   aoticache_cache **ret_cache);
/* NULL is allowed. Removes the temporary one. */
void aoticache_transfer_close_target(aoticache_transfer_command *command, aoticache_cache *cache);

/*
 * Reports the outcome and returns the exit code: a result on standard output ("exported", ...), or on standard error if the
 * archive is written to standard output; or the failure, and what was done before it.
 */
int aoticache_transfer_tell(aoticache_transfer_command *command, const char *done, bool to_stderr,
                            aoticache_status status, const aoticache_error *error);

/* ---- signatures.c ---- */

/* Gives the keys with which an export signs, for the options; returns an exit code. Borrowed from the cache, or freed with
 * free_signers(). */
int aoticache_transfer_open_signers(aoticache_transfer_command *command, aoticache_cache *cache);
void aoticache_transfer_free_signers(aoticache_transfer_command *command);

/* Checks that the words of --trust are keys or fingerprints; returns an exit code. */
int aoticache_transfer_check_trust(const aoticache_transfer_command *command);
/* Answers aoticache_transfer_options.ask: according to --trust, otherwise by asking on the terminal. A key that is accepted
 * is added to the trusted keys. */
bool aoticache_transfer_ask(void *user, const aoticache_public_key *key);

/* Merges source into target: everything of a merge except the command line. */
int aoticache_transfer_merge(aoticache_transfer_command *command, const char *from, const char *to, const char *done);

#endif
