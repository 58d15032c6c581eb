/*
 * index/removal: taking entries out inside a transaction that somebody else began: put replaces with it.
 */
#ifndef AOTICACHE_INDEX_REMOVAL_H
#define AOTICACHE_INDEX_REMOVAL_H

#include "index/connection.h"

/* The columns of the FIND_ statements. */
typedef struct aoticache_index_found {
    aoticache_digest key;
    aoticache_digest artifact;
    int64_t id;
    uint32_t file_count;
} aoticache_index_found;

/* One entry that `find` (bound by the caller) names: OK or NOT_FOUND. Leaves `find` reset, its bindings in place. */
aoticache_status aoticache_index_find(aoticache_index *index, sqlite3_stmt *find, aoticache_index_found *ret_found,
                                      aoticache_error *ret_error);
/* Removes the entry and what it alone needed. */
aoticache_status aoticache_index_remove_one(aoticache_index *index, const aoticache_index_found *found,
                                            aoticache_error *ret_error);
/* Removes entries as long as `find` finds one. ret_removed: how many; may be NULL. */
aoticache_status aoticache_index_remove_found(aoticache_index *index, sqlite3_stmt *find, uint64_t *ret_removed,
                                              aoticache_error *ret_error);

/*
 * Removes the rows of an artifact and of the objects that it alone names. With file_count those objects are recorded as
 * waiting for the removal of their files (a folder of side files too where it is above 1); 0: they are needed again.
 */
aoticache_status aoticache_index_drop_artifact(aoticache_index *index, const aoticache_digest *artifact,
                                               uint32_t file_count, aoticache_error *ret_error);

#endif
