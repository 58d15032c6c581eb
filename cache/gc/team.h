/*
 * cache/gc/team: threads that wait for work of a few milliseconds, again and again, beside the thread that has it.
 *
 * Making a thread costs more than some of the pieces of work that a collection has for it. Used by one thread at a time.
 */
#ifndef AOTICACHE_CACHE_GC_TEAM_H
#define AOTICACHE_CACHE_GC_TEAM_H

#include <stddef.h>

typedef struct aoticache_team aoticache_team;

/* A team without threads; NULL: out of memory. aoticache_team_free() ends it, with no work under way; NULL is allowed. */
aoticache_team *aoticache_team_new(void);
void aoticache_team_free(aoticache_team *team);

/*
 * Has up to `count` of its threads do `work`, and makes those that are lacking, as far as there can be some. `work` is to
 * be for any number of threads, none included, and `argument` to last until aoticache_team_wait() has returned.
 */
void aoticache_team_start(aoticache_team *team, size_t count, void (*work)(void *argument), void *argument);
/* Waits for those who have begun; the others do not begin any more. Without work under way it does nothing. */
void aoticache_team_wait(aoticache_team *team);

#endif
