/*
 * tools/aoticache/warm: lists of requests (docs/warm.md), as `aoticache warm` reads them.
 *
 * Private to the tool.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_WARM_INTERNAL_H
#define AOTICACHE_TOOLS_AOTICACHE_WARM_INTERNAL_H

#include "aoticache/admin.h"
#include "tools/cli/cli.h"

/* The result of a request: name, machine-readable word. */
#define AOTICACHE_WARM_RESULT_LIST(X)                                                    \
    X(PENDING, "pending") /* not started: another one failed before, with --fail-fast */ \
    X(THERE, "there")                                                                    \
    X(COMPILED, "compiled")                                                              \
    X(WAITED, "waited")   /* compiled by another process meanwhile */                    \
    X(FETCHED, "fetched") /* from a remote, by prefetch */                               \
    X(MISSING, "missing") /* with --dry-run, or for prefetch */                          \
    X(FAILED, "failed")                                                                  \
    X(UNSUPPORTED, "unsupported")

typedef enum aoticache_warm_result {
#define AOTICACHE_WARM_RESULT_ENUM(name, word) AOTICACHE_WARM_##name,
    AOTICACHE_WARM_RESULT_LIST(AOTICACHE_WARM_RESULT_ENUM)
#undef AOTICACHE_WARM_RESULT_ENUM
        AOTICACHE_WARM_RESULTS
} aoticache_warm_result;

typedef struct aoticache_warm_item {
    aoticache_request *request;
    char *text;       /* AOTICACHE_REQUEST_TEXT */
    const char *file; /* file that has it first; borrowed from the command line */
    size_t line;

    aoticache_warm_result result;
    char *message; /* why it failed; otherwise NULL */
    aoticache_key key;
    bool has_key;
    uint64_t compile_ns; /* spent by this run */
} aoticache_warm_item;

typedef struct aoticache_warm_list {
    aoticache_warm_item *items;
    size_t count;
    size_t wrong; /* lines that are not requests */
} aoticache_warm_list;

/*
 * Appends the requests of a file; "-" is the standard input. Wrong lines are reported with FILE:LINE:COLUMN and counted.
 * Returns AOTICACHE_CLI_EXIT_OK, also if lines are wrong, or the exit code if the file cannot be read.
 */
int aoticache_warm_read(const aoticache_cli *cli, const char *path, aoticache_warm_list *list);
/* Returns whether a line of a list is a request: not empty, not a comment, and not a note about what was left out. */
bool aoticache_warm_line_is_request(const char *line);
/* Keeps each request once, in the order of their first lines. */
void aoticache_warm_remove_repeated(aoticache_warm_list *list);
void aoticache_warm_free(aoticache_warm_list *list);

typedef struct aoticache_warm_work {
    const aoticache_cli *cli;
    aoticache_warm_list *list;
    aoticache_cache *cache; /* NULL: there is none, everything is missing (dry_run only) */
    aoticache_hook *hook;
    size_t jobs;    /* number of concurrent compiles */
    bool dry_run;   /* look up only */
    bool fetches;   /* query remotes, compile nothing */
    bool retry;     /* forget remembered failures */
    bool fail_fast; /* start nothing more after a failure */
    /* Called in this thread for each failed item, as soon as it fails; with --verbose for all. */
    void (*tell)(const aoticache_cli *cli, const aoticache_warm_item *item);
} aoticache_warm_work;

/* Fills in the result of every item. Returns when all are done. */
void aoticache_warm_run(aoticache_warm_work *work);

#endif
