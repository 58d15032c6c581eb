/*
 * tools/aoticache/aoticache_internal: the commands of the tool `aoticache`. Each is declared here and has its own file or
 * subdirectory; arguments/ and entries/ have what several commands need.
 *
 * Functions of the tool that can fail print their message and return an exit code (AOTICACHE_CLI_EXIT_OK to continue).
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_INTERNAL_H
#define AOTICACHE_TOOLS_AOTICACHE_INTERNAL_H

#include "aoticache/admin.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/cli/cli.h"

typedef struct aoticache_command {
    const char *word; /* "run" */
    aoticache_cli_program program;
    int (*run)(aoticache_cli *cli); /* returns the exit code */
} aoticache_command;

/* A text that `aoticache help WORD` prints in addition to the help of commands. */
typedef struct aoticache_topic {
    const char *word, *summary, *text; /* text: lines */
} aoticache_topic;

/* Returns NULL after the last. */
const aoticache_topic *aoticache_topic_at(size_t index);
/* Returns false if there is no such topic. */
bool aoticache_topic_print(const char *word);

extern const aoticache_command aoticache_command_run;
extern const aoticache_command aoticache_command_compile;
extern const aoticache_command aoticache_command_ls;
extern const aoticache_command aoticache_command_show;
extern const aoticache_command aoticache_command_verify;
extern const aoticache_command aoticache_command_rm;
extern const aoticache_command aoticache_command_doctor;
extern const aoticache_command aoticache_command_add;
extern const aoticache_command aoticache_command_run_package;
extern const aoticache_command aoticache_command_model;
extern const aoticache_command aoticache_command_inspect;
extern const aoticache_command aoticache_command_warm;
extern const aoticache_command aoticache_command_record;
extern const aoticache_command aoticache_command_pin;
extern const aoticache_command aoticache_command_unpin;
extern const aoticache_command aoticache_command_tag;
extern const aoticache_command aoticache_command_du;
extern const aoticache_command aoticache_command_why;
extern const aoticache_command aoticache_command_config;
extern const aoticache_command aoticache_command_export;
extern const aoticache_command aoticache_command_import;
extern const aoticache_command aoticache_command_merge;
extern const aoticache_command aoticache_command_copy;
extern const aoticache_command aoticache_command_key;
extern const aoticache_command aoticache_command_push;
extern const aoticache_command aoticache_command_pull;
extern const aoticache_command aoticache_command_prefetch;

/* ---- warm/: lists of requests (docs/warm.md) ---- */

/* Gives the keys of the requests in files, with the environment of a hook, in the order of memcmp(); the caller frees them
 * with free(). Returns an exit code. */
int aoticache_warm_keys(const aoticache_cli *cli, const aoticache_cli_list *paths, aoticache_kernel_options *hook,
                        aoticache_key **ret_keys, size_t *ret_count);

#endif
