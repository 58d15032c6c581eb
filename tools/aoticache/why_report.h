/*
 * tools/aoticache/why_report: what `aoticache why` has found out, for people and as JSON.
 *
 * Private to the tool.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_WHY_REPORT_H
#define AOTICACHE_TOOLS_AOTICACHE_WHY_REPORT_H

#include "tools/aoticache/why.h"

/* word, what it means. A hit has one of the first two. */
#define AOTICACHE_WHY_REASON_LIST(X)                                               \
    X(stored, "it is stored for exactly this")                                     \
    X(guard, "a kernel for many shapes serves these tensors")                      \
    X(failed, "its compile failed before, and is not tried again yet")             \
    X(requirement, "it is stored, but this CPU cannot run it")                     \
    X(damaged, "it is stored, but its files are damaged or lost")                  \
    X(environment, "it is stored for the same arguments in another environment")   \
    X(arguments, "the operator is stored for other arguments only")                \
    X(operator, "nothing is stored for the operator")                              \
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
    const char *producer; /* who would compile it; NULL where nobody is asked, and environments are not compared */
    const char *no_environment; /* why not, else NULL */
    aoticache_key key;          /* where there is a producer */
    aoticache_why_reason reason;
    aoticache_candidates candidates;
    size_t nearest; /* how many of them to show */
    const aoticache_entry *answer; /* of a hit, or of what cannot be run or read */
    aoticache_failure failure;     /* its texts are owned; op NULL: none */
    char *damage;                  /* what the lookup said */
    aoticache_near_operator operators[AOTICACHE_WHY_MAX_OPERATORS];
    size_t operator_count;
    uint64_t all_entries;
} aoticache_why;

bool aoticache_why_is_hit(const aoticache_why *why);
void aoticache_why_print(const aoticache_why *why);

#endif
