/*
 * index/entries/file_facts: facts about files of the store that a process determined, for later processes. They are stored
 * next to the index, in the query cache (connection/query_cache.h), not in it: no process waits for them, and if they are
 * lost they are only computed again. They are trusted until the next boot.
 *
 * Private to the library. Thread and fork safety as index/index.h.
 */
#ifndef AOTICACHE_INDEX_ENTRIES_FILE_FACTS_H
#define AOTICACHE_INDEX_ENTRIES_FILE_FACTS_H

#include "index/index.h"

typedef enum aoticache_index_file_fact {
    AOTICACHE_INDEX_FILE_FACT_CHECKSUM, /* of an object */
    AOTICACHE_INDEX_FILE_FACT_MANIFEST, /* its parsed contents */
} aoticache_index_file_fact;

#define AOTICACHE_INDEX_FILE_FACT_MAX_BYTES 4096

/* Returns false if none is recorded. Otherwise *ret_size bytes of ret_bytes are the recorded fact. */
bool aoticache_index_find_file_fact(aoticache_index *index, aoticache_index_file_fact kind,
                                    const aoticache_digest *about,
                                    uint8_t ret_bytes[AOTICACHE_INDEX_FILE_FACT_MAX_BYTES], size_t *ret_size);
/* Records a fact. It is not kept if it is larger than AOTICACHE_INDEX_FILE_FACT_MAX_BYTES, or if it could not be trusted
 * later. */
void aoticache_index_note_file_fact(aoticache_index *index, aoticache_index_file_fact kind,
                                    const aoticache_digest *about, const void *bytes, size_t size);

#endif
