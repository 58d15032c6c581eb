/*
 * index/removal: taking entries out inside a transaction that somebody else began: put replaces with it.
 */
#ifndef AOTICACHE_INDEX_REMOVAL_H
#define AOTICACHE_INDEX_REMOVAL_H

#include "index/connection.h"

/*
 * Removes entries as long as `find` (bound by the caller; gives key, id, artifact of one entry) finds one, and what only
 * they needed. ret_removed: how many; may be NULL.
 */
aoticache_status aoticache_index_remove_found(aoticache_index *index, sqlite3_stmt *find, uint64_t *ret_removed,
                                              aoticache_error *ret_error);

/* Removes the rows of an artifact and of the objects that it alone names. */
aoticache_status aoticache_index_drop_artifact(aoticache_index *index, const aoticache_digest *artifact,
                                               aoticache_error *ret_error);

#endif
