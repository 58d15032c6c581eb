/*
 * index/entries/internal: reading objects, and removing entries inside a transaction that the caller has begun: put
 * replaces an entry so, and an eviction removes many.
 */
#ifndef AOTICACHE_INDEX_ENTRIES_INTERNAL_H
#define AOTICACHE_INDEX_ENTRIES_INTERNAL_H

#include "index/connection/internal.h"

/* Gives each row of a list of objects (digest, bytes) to a function: an aoticache_index_row_fn, whose user is a reader. */
typedef struct aoticache_index_object_reader {
    aoticache_index_object_fn callback;
    void *user;
} aoticache_index_object_reader;
bool aoticache_index_give_object(void *reader, sqlite3_stmt *row, bool *ret_continues);

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
/* The same for who has counted it, and knows what its artifact consists of: the manifest is the first of the objects. */
aoticache_status aoticache_index_remove_known(aoticache_index *index, const aoticache_index_found *found,
                                              const aoticache_index_object *objects, size_t count,
                                              aoticache_error *ret_error);
/* Removes entries as long as `find` finds one. ret_removed: how many; may be NULL. */
aoticache_status aoticache_index_remove_found(aoticache_index *index, sqlite3_stmt *find, uint64_t *ret_removed,
                                              aoticache_error *ret_error);

/* Forgets removals (ascending numbers) whose files have gone. */
aoticache_status aoticache_index_delete_removals(aoticache_index *index, const int64_t *done, size_t count,
                                                 aoticache_error *ret_error);

/* Removes what an artifact is: the rows of the objects that it alone names. They are needed again: no file is to go. */
aoticache_status aoticache_index_drop_artifact(aoticache_index *index, const aoticache_digest *artifact,
                                               aoticache_error *ret_error);
/* The entry has the artifact of another one. */
aoticache_status aoticache_index_add_sharer(aoticache_index *index, const aoticache_digest *artifact, int64_t entry_id,
                                            aoticache_error *ret_error);

#endif
