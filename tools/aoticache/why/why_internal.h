/*
 * tools/aoticache/why: types and functions shared by the files of `aoticache why`: differences between a request and stored
 * entries, and the entries that differ least.
 *
 * Private to the tool.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_WHY_INTERNAL_H
#define AOTICACHE_TOOLS_AOTICACHE_WHY_INTERNAL_H

#include "aoticache/admin.h"
#include "aoticache/remote.h"
#include "aoticache/runner.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/cli/cli.h"

#define AOTICACHE_WHY_ENVIRONMENT "environment"
#define AOTICACHE_WHY_GUARD "guard"
#define AOTICACHE_WHY_REQUIREMENT "requirement"
#define AOTICACHE_WHY_KEY_SETS "dispatch keys" /* a property */

/* ---- differences (difference.c) ---- */

/* One property in which the request and a stored entry differ. It owns all strings except kind. */
typedef struct aoticache_difference {
    const char *kind; /* "argument", "device", and the words above */
    char *place;      /* "argument 1 (alpha)", "argument 0, item 2", "framework"; "" if kind suffices */
    char *property;   /* "dtype", "sizes", ...; "" if place suffices */
    char *asked, *stored;
} aoticache_difference;

typedef struct aoticache_differences {
    aoticache_difference *items;
    size_t count;
} aoticache_differences;

/*
 * Finds all differences, in the order of the arguments. guard: of the stored entry; if it is not "", it decides about sizes
 * and strides. environment: whether environments are compared.
 */
void aoticache_requests_compare(const aoticache_request *asked, const aoticache_request *stored, const char *guard,
                                bool environment, aoticache_differences *ret_differences);
/* Adds the features that an entry requires and this machine's CPU lacks, if any. */
void aoticache_differences_add_requirement(aoticache_differences *differences,
                                           const aoticache_cpu_features *requirements);
void aoticache_differences_free(aoticache_differences *differences);

/* ---- entries of the operator (search.c) ---- */

typedef struct aoticache_candidate {
    const aoticache_entry *entry; /* borrowed from the list below */
    size_t difference_count;      /* SIZE_MAX: its request cannot be read */
    bool fits;                    /* this CPU can run it */
    bool compared;
} aoticache_candidate;

typedef struct aoticache_candidates {
    aoticache_entry_list list;
    aoticache_candidate *items; /* nearest first */
    size_t count;
} aoticache_candidates;

/* Prints errors; returns an exit code. */
int aoticache_candidates_read(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_request *asked,
                              bool environment, aoticache_candidates *ret_candidates);
void aoticache_candidates_free(aoticache_candidates *candidates);

/* Operators that have entries and a similar name, the most likely first: at most `limit`. */
typedef struct aoticache_near_operator {
    char *op;
    uint64_t entries;
} aoticache_near_operator;
size_t aoticache_near_operators(aoticache_cache *cache, const char *op, aoticache_near_operator *ret_operators,
                                size_t limit, uint64_t *ret_all_entries);

/* ---- what remotes have for the key (remotes.c) ---- */

typedef struct aoticache_remote_finding {
    char *url, *text, *signers;
    aoticache_digest artifact; /* of an entry */
    bool has_entry, fits;
} aoticache_remote_finding;

typedef struct aoticache_remote_findings {
    aoticache_remote_finding *items;
    size_t count;
} aoticache_remote_findings;

void aoticache_remote_findings_read(const aoticache_cli *cli, const aoticache_key *key,
                                    aoticache_remote_findings *ret_findings);
/* Returns whether the next request will fetch one, if its signature is trusted. */
bool aoticache_remote_findings_have_one(const aoticache_remote_findings *findings);
void aoticache_remote_findings_print(const aoticache_cli *cli, const aoticache_remote_findings *findings);
json_t *aoticache_remote_findings_to_json(const aoticache_remote_findings *findings);
void aoticache_remote_findings_free(aoticache_remote_findings *findings);

/* word, meaning. A hit has one of the first two. */
#define AOTICACHE_WHY_REASON_LIST(X)                                             \
    X(stored, "it is stored for exactly this")                                   \
    X(guard, "a kernel for many shapes serves these tensors")                    \
    X(failed, "its compile failed before, and is not retried yet")               \
    X(requirement, "it is stored, but this CPU cannot run it")                   \
    X(damaged, "it is stored, but its files are damaged or missing")             \
    X(environment, "it is stored for the same arguments in another environment") \
    X(arguments, "the operator is stored for other arguments only")              \
    X(operator, "nothing is stored for the operator")                            \
    X(empty, "the cache is empty")

typedef enum aoticache_why_reason {
#define AOTICACHE_WHY_REASON_ENUM(name, text) AOTICACHE_WHY_##name,
    AOTICACHE_WHY_REASON_LIST(AOTICACHE_WHY_REASON_ENUM)
#undef AOTICACHE_WHY_REASON_ENUM
} aoticache_why_reason;

#define AOTICACHE_WHY_MAX_OPERATORS 5

typedef struct aoticache_why {
    const aoticache_cli *cli;
    aoticache_cache *cache;
    aoticache_request *asked;
    const char *producer;       /* the compiler that would be used; NULL: none, and environments are not compared */
    const char *no_environment; /* why not, otherwise NULL */
    aoticache_key key;          /* if there is a producer */
    aoticache_why_reason reason;
    aoticache_candidates candidates;
    size_t nearest;                /* how many of them to show */
    const aoticache_entry *answer; /* of a hit, or the entry that cannot be run or read */
    aoticache_failure failure;     /* it owns its strings; op NULL: none */
    char *damage;                  /* the message of the lookup */
    aoticache_near_operator operators[AOTICACHE_WHY_MAX_OPERATORS];
    size_t operator_count;
    uint64_t all_entries;
    aoticache_remote_findings remotes; /* of a miss */
} aoticache_why;

bool aoticache_why_is_hit(const aoticache_why *why);
void aoticache_why_print(const aoticache_why *why);

#endif
