/*
 * tools/aoticache/warm_work: gets the kernels of a list, several at a time.
 *
 * Private to the tool.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_WARM_WORK_H
#define AOTICACHE_TOOLS_AOTICACHE_WARM_WORK_H

#include "tools/aoticache/warm.h"

typedef struct aoticache_warm_work {
    const aoticache_cli *cli;
    aoticache_warm_list *list;
    aoticache_cache *cache; /* NULL: there is none, everything is missing (dry_run alone) */
    aoticache_hook *hook;
    size_t jobs;    /* at once */
    bool dry_run;   /* look up only */
    bool retry;     /* forget failures that are remembered */
    bool fail_fast; /* begin nothing more when one has failed */
    /* Called in this thread for each that failed, as soon as that is known; with --verbose for all. */
    void (*tell)(const aoticache_cli *cli, const aoticache_warm_item *item);
} aoticache_warm_work;

/* Fills in what became of every item. Returns when all is done. */
void aoticache_warm_run(aoticache_warm_work *work);

#endif
