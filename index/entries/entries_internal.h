/*
 * index/entries/entries_internal: reads objects, and removes entries inside a transaction that the caller has begun: put
 * replaces an entry in this way, and an eviction removes many.
 */
#ifndef AOTICACHE_INDEX_ENTRIES_INTERNAL_H
#define AOTICACHE_INDEX_ENTRIES_INTERNAL_H

#include "index/connection/connection_internal.h"

/* Passes each row of a list of objects (digest, bytes) to a function: an aoticache_index_row_fn, whose user is a reader. */
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

/* Reads one entry that `find` (bound by the caller) gives: OK or NOT_FOUND. Leaves `find` reset, with its bindings. */
aoticache_status aoticache_index_find(aoticache_index *index, sqlite3_stmt *find, aoticache_index_found *ret_found,
                                      aoticache_error *ret_error);
/* Removes the entry and the rows that only it needed. */
aoticache_status aoticache_index_remove_one(aoticache_index *index, const aoticache_index_found *found,
                                            aoticache_error *ret_error);
/* Does the same for a caller that has already counted the entry, and knows its artifact's objects: the manifest is the
 * first. */
aoticache_status aoticache_index_remove_known(aoticache_index *index, const aoticache_index_found *found,
                                              const aoticache_index_object *objects, size_t count,
                                              aoticache_error *ret_error);
/* Removes entries until `find` finds no more. ret_removed: how many; may be NULL. */
aoticache_status aoticache_index_remove_found(aoticache_index *index, sqlite3_stmt *find, uint64_t *ret_removed,
                                              aoticache_error *ret_error);

/* Deletes removals (ascending numbers) whose files are gone. */
aoticache_status aoticache_index_delete_removals(aoticache_index *index, const int64_t *done, size_t count,
                                                 aoticache_error *ret_error);

/* Removes an artifact: the rows of the objects that only it names. They will be needed again: no file is to be removed. */
aoticache_status aoticache_index_drop_artifact(aoticache_index *index, const aoticache_digest *artifact,
                                               aoticache_error *ret_error);
/* Adds an entry that has the same artifact as another one. */
aoticache_status aoticache_index_add_sharer(aoticache_index *index, const aoticache_digest *artifact, int64_t entry_id,
                                            aoticache_error *ret_error);

#endif
