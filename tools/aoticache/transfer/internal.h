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

enum {
    AOTICACHE_TRANSFER_OP = 1,
    AOTICACHE_TRANSFER_DEVICE,
    AOTICACHE_TRANSFER_KEY,
    AOTICACHE_TRANSFER_TAG,
    AOTICACHE_TRANSFER_USED_SINCE,
    AOTICACHE_TRANSFER_PINS,
    AOTICACHE_TRANSFER_LEVEL,
    AOTICACHE_TRANSFER_MAX_SIZE,
    AOTICACHE_TRANSFER_REPLACE,
    AOTICACHE_TRANSFER_DRY_RUN,
};

/* Rows of the table of options: by what a manifest says; by what an archive does not. */
#define AOTICACHE_TRANSFER_MANIFEST_ROWS                                                      \
    {AOTICACHE_TRANSFER_OP, "op", 0, "PATTERN", "only operators like this: 'aten::*'"},      \
    {AOTICACHE_TRANSFER_DEVICE, "device", 0, "DEVICE", "only kernels for this device"},      \
    {AOTICACHE_TRANSFER_KEY, "key", 0, "KEY", "only keys that begin so"}
#define AOTICACHE_TRANSFER_INDEX_ROWS                                                         \
    {AOTICACHE_TRANSFER_TAG, "tag", 0, "TAG", "only keys that have this tag"},               \
    {AOTICACHE_TRANSFER_USED_SINCE, "used-since", 0, "AGE", "only what was used in the last 30d, 12h, ..."}
#define AOTICACHE_TRANSFER_PINS_ROW {AOTICACHE_TRANSFER_PINS, "marks", 0, NULL, "pins and tags, too"}
#define AOTICACHE_TRANSFER_REPLACE_ROW                                                        \
    {AOTICACHE_TRANSFER_REPLACE, "replace", 0, NULL,                                         \
     "entries come also where one that is here serves the same key and\n"                   \
     "would be replaced, or no longer be the one that is found"}
#define AOTICACHE_TRANSFER_DRY_RUN_ROW \
    {AOTICACHE_TRANSFER_DRY_RUN, "dry-run", 'n', NULL, "verify and count, store nothing"}

typedef struct aoticache_transfer_command {
    const aoticache_cli *cli;
    const char *operand; /* the file or directory */
    aoticache_transfer_options options;
    aoticache_cli_progress progress;
    aoticache_transfer_report report;
    char empty[64]; /* a directory made for a dry run, or "" */
} aoticache_transfer_command;

/* AOTICACHE_CLI_END where the command line is right, else what the program returns. operand: what it is called. */
int aoticache_transfer_parse(aoticache_transfer_command *command, aoticache_cli *cli, const char *operand,
                             const char *progress);

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

/* source into target, all of a merge but the command line. */
int aoticache_transfer_merge(aoticache_transfer_command *command, const char *from, const char *to, const char *done);

#endif
