/*
 * tools/aoticache/warm: lists of requests (docs/warm.md), as `aoticache warm` reads them.
 *
 * Private to the tool.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_WARM_INTERNAL_H
#define AOTICACHE_TOOLS_AOTICACHE_WARM_INTERNAL_H

#include "aoticache.h"
#include "tools/cli/cli.h"

/* What became of a request: name, word for programs. */
#define AOTICACHE_WARM_RESULT_LIST(X)                                                          \
    X(PENDING, "pending") /* nobody came to it: another one failed before, with --fail-fast */ \
    X(THERE, "there")                                                                          \
    X(COMPILED, "compiled")                                                                    \
    X(WAITED, "waited")   /* compiled by another process meanwhile */                          \
    X(FETCHED, "fetched") /* from a remote, by prefetch */                                     \
    X(MISSING, "missing") /* with --dry-run, or for prefetch */                                \
    X(FAILED, "failed")                                                                        \
    X(UNSUPPORTED, "unsupported")

typedef enum aoticache_warm_result {
#define AOTICACHE_WARM_RESULT_ENUM(name, word) AOTICACHE_WARM_##name,
    AOTICACHE_WARM_RESULT_LIST(AOTICACHE_WARM_RESULT_ENUM)
#undef AOTICACHE_WARM_RESULT_ENUM
        AOTICACHE_WARM_RESULTS
} aoticache_warm_result;

typedef struct aoticache_warm_item {
    aoticache_request *request;
    char *text;       /* aoticache_request_write_text() */
    const char *file; /* where it is asked for first; borrowed from the command line */
    size_t line;

    aoticache_warm_result result;
    char *message; /* why it failed; NULL */
    aoticache_key key;
    bool has_key;
    uint64_t compile_ns; /* that this run spent on it */
} aoticache_warm_item;

typedef struct aoticache_warm_list {
    aoticache_warm_item *items;
    size_t count;
    size_t wrong; /* lines that are no requests */
} aoticache_warm_list;

/*
 * Appends what a file asks for; "-" is the standard input. Lines that are wrong are told with FILE:LINE:COLUMN and
 * counted. Returns AOTICACHE_CLI_EXIT_OK, also where lines are wrong, or what to end with where it cannot be read.
 */
int aoticache_warm_read(const aoticache_cli *cli, const char *path, aoticache_warm_list *list);
/* Returns whether a line of a list is a request: not empty, not a comment, and not one that says what was left out. */
bool aoticache_warm_line_is_request(const char *line);
/* Leaves each request once, in the order of their first lines. */
void aoticache_warm_remove_repeated(aoticache_warm_list *list);
void aoticache_warm_free(aoticache_warm_list *list);

typedef struct aoticache_warm_work {
    const aoticache_cli *cli;
    aoticache_warm_list *list;
    aoticache_cache *cache; /* NULL: there is none, everything is missing (dry_run alone) */
    aoticache_hook *hook;
    size_t jobs;    /* at once */
    bool dry_run;   /* look up only */
    bool fetches;   /* ask remotes, compile nothing */
    bool retry;     /* forget failures that are remembered */
    bool fail_fast; /* begin nothing more when one has failed */
    /* Called in this thread for each that failed, as soon as that is known; with --verbose for all. */
    void (*tell)(const aoticache_cli *cli, const aoticache_warm_item *item);
} aoticache_warm_work;

/* Fills in what became of every item. Returns when all is done. */
void aoticache_warm_run(aoticache_warm_work *work);

#endif
