/*
 * tools/aoticache/why: what the files of `aoticache why` share: how a request differs from what is stored, and which
 * entries differ least.
 *
 * Private to the tool.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_WHY_H
#define AOTICACHE_TOOLS_AOTICACHE_WHY_H

#include "tools/aoticache/commands.h"

#define AOTICACHE_WHY_ENVIRONMENT "environment"
#define AOTICACHE_WHY_GUARD "guard"
#define AOTICACHE_WHY_REQUIREMENT "requirement"
#define AOTICACHE_WHY_KEY_SETS "dispatch keys" /* a property */

/* ---- differences (why_difference.c) ---- */

/* One property in which what is asked for and what is stored differ. All texts but kind are its own. */
typedef struct aoticache_difference {
    const char *kind; /* "argument", "device", and the words above */
    char *place;      /* "argument 1 (alpha)", "argument 0, item 2", "framework"; "" where the kind says all */
    char *property;   /* "dtype", "sizes", ...; "" where the place says all */
    char *asked, *stored;
} aoticache_difference;

typedef struct aoticache_differences {
    aoticache_difference *items;
    size_t count;
} aoticache_differences;

/*
 * All of them, in the order of the arguments. guard: of the stored entry; where it is not "", sizes and strides are
 * asked of it. environment: whether environments are compared.
 */
void aoticache_requests_compare(const aoticache_request *asked, const aoticache_request *stored, const char *guard,
                                bool environment, aoticache_differences *ret_differences);
/* What this machine's CPU lacks of an entry's requirements, if anything, is added. */
void aoticache_differences_add_requirement(aoticache_differences *differences,
                                           const aoticache_cpu_features *requirements);
void aoticache_differences_free(aoticache_differences *differences);

/* ---- entries of the operator (why_search.c) ---- */

typedef struct aoticache_candidate {
    const aoticache_entry *entry; /* of the list below */
    size_t difference_count;      /* SIZE_MAX: its request cannot be read */
    bool fits;                    /* this CPU can run it */
    bool compared;
} aoticache_candidate;

typedef struct aoticache_candidates {
    aoticache_entry_list list;
    aoticache_candidate *items; /* nearest first */
    size_t count;
} aoticache_candidates;

/* Says what is wrong; returns an exit code. */
int aoticache_candidates_read(const aoticache_cli *cli, aoticache_cache *cache, const aoticache_request *asked,
                              bool environment, aoticache_candidates *ret_candidates);
void aoticache_candidates_free(aoticache_candidates *candidates);

/* Operators that have entries and whose names are like this one, the likeliest first: at most `limit`. */
typedef struct aoticache_near_operator {
    char *op;
    uint64_t entries;
} aoticache_near_operator;
size_t aoticache_near_operators(aoticache_cache *cache, const char *op, aoticache_near_operator *ret_operators,
                                size_t limit, uint64_t *ret_all_entries);

#endif
