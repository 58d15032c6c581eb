/*
 * index/entries/file_facts: facts about files of the store that a process found out, for those after it. They are kept beside the
 * index, with its answers (connection/query_cache.h), not in it: nothing waits for them, and losing them costs the time in which
 * they are found again. They are believed as long as the machine runs.
 *
 * Private to the library. Thread and fork safety as index/index.h.
 */
#ifndef AOTICACHE_INDEX_ENTRIES_FILE_FACTS_H
#define AOTICACHE_INDEX_ENTRIES_FILE_FACTS_H

#include "index/index.h"

typedef enum aoticache_index_file_fact {
    AOTICACHE_INDEX_FILE_FACT_CHECKSUM, /* of an object */
    AOTICACHE_INDEX_FILE_FACT_MANIFEST, /* what it says */
} aoticache_index_file_fact;

#define AOTICACHE_INDEX_FILE_FACT_MAX_BYTES 4096

/* False: nothing is known. Otherwise *ret_size bytes of ret_bytes are what was noted. */
bool aoticache_index_find_file_fact(aoticache_index *index, aoticache_index_file_fact kind,
                                    const aoticache_digest *about,
                                    uint8_t ret_bytes[AOTICACHE_INDEX_FILE_FACT_MAX_BYTES], size_t *ret_size);
/* What is larger than AOTICACHE_INDEX_FILE_FACT_MAX_BYTES is not kept, nor is what nobody may believe. */
void aoticache_index_note_file_fact(aoticache_index *index, aoticache_index_file_fact kind,
                                    const aoticache_digest *about, const void *bytes, size_t size);

#endif
