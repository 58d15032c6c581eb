/*
 * tools/aoticache/transfer: what export, import, merge and copy share: their options, the progress, what they say
 * at the end, and what Ctrl-C does.
 *
 * Private to those four commands.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_TRANSFER_INTERNAL_H
#define AOTICACHE_TOOLS_AOTICACHE_TRANSFER_INTERNAL_H

#include "aoticache.h"
#include "tools/cli/cli.h"

typedef struct aoticache_transfer_command {
    const aoticache_cli *cli;
    const char *operand; /* the file or directory; NULL: remotes */
    aoticache_transfer_options options;
    aoticache_cli_progress progress;
    aoticache_transfer_report report;
    char empty[64];               /* a directory made for a dry run, or "" */
    aoticache_cli_list sign_with; /* export: files of secret keys */
    bool no_sign;
    aoticache_cli_list trust; /* import: keys and fingerprints that are trusted without being asked for */
    aoticache_public_key asked[AOTICACHE_MAX_SIGNATURES]; /* that are not trusted */
    size_t asked_count;
} aoticache_transfer_command;

/* Options of an aoticache_transfer_command: what is chosen by what a manifest says; how the target takes it. */
extern const aoticache_cli_option aoticache_transfer_manifest_table[];
extern const aoticache_cli_option aoticache_transfer_index_table[]; /* by what an archive does not say */
extern const aoticache_cli_option aoticache_transfer_target_table[];

/* False where there is nothing to do: return cli->exit_code. progress: what is counted. */
bool aoticache_transfer_parse(aoticache_transfer_command *command, aoticache_cli *cli, const char *progress);

/* From now on SIGINT, SIGTERM and SIGHUP stop the transfer, which then cleans up. */
void aoticache_transfer_catch_signals(void);
/* Dies of the signal that has come, if one has. To be called when all is cleaned up. */
void aoticache_transfer_die_if_stopped(void);

/* A cache to read, left as it is: AOTICACHE_CLI_EXIT_OK, or what the program returns. NULL: --cache-dir. */
int aoticache_transfer_open_source(const aoticache_transfer_command *command, const char *directory,
                                   aoticache_cache **ret_cache);
/* A cache to write, made where it is missing; for a dry run an empty one stands in for it. */
int aoticache_transfer_open_target(aoticache_transfer_command *command, const char *directory,
                                   aoticache_cache **ret_cache);
/* NULL is allowed. Removes what stood in. */
void aoticache_transfer_close_target(aoticache_transfer_command *command, aoticache_cache *cache);

/*
 * Says what came of it and returns the exit code: a result on standard output ("exported", ...), to standard error
 * where that is taken by the archive; or the failure, and what was done before it.
 */
int aoticache_transfer_tell(aoticache_transfer_command *command, const char *done, bool to_stderr,
                            aoticache_status status, const aoticache_error *error);

/* ---- signatures.c ---- */

/* The keys that an export signs with, for the options: an exit code. Borrowed from the cache, or by free_signers(). */
int aoticache_transfer_open_signers(aoticache_transfer_command *command, aoticache_cache *cache);
void aoticache_transfer_free_signers(aoticache_transfer_command *command);

/* Whether the words of --trust are keys or fingerprints: an exit code. */
int aoticache_transfer_check_trust(const aoticache_transfer_command *command);
/* For aoticache_transfer_options.ask: by --trust, otherwise by asking on the terminal. Who is trusted is remembered. */
bool aoticache_transfer_ask(void *user, const aoticache_public_key *key);

/* source into target, all of a merge but the command line. */
int aoticache_transfer_merge(aoticache_transfer_command *command, const char *from, const char *to, const char *done);

#endif
