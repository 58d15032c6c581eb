/*
 * index/entries/file_facts: stores facts about files of the store in the query cache.
 */
#include "index/entries/file_facts.h"
#include "index/connection/connection_internal.h"

static aoticache_index_question question_of(aoticache_index_file_fact kind)
{
    return kind == AOTICACHE_INDEX_FILE_FACT_CHECKSUM ? AOTICACHE_INDEX_KEEPS_CHECKSUM : AOTICACHE_INDEX_KEEPS_MANIFEST;
}

bool aoticache_index_find_file_fact(aoticache_index *index, aoticache_index_file_fact kind,
                                    const aoticache_digest *about,
                                    uint8_t ret_bytes[AOTICACHE_INDEX_FILE_FACT_MAX_BYTES], size_t *ret_size)
{
    return aoticache_query_cache_find_fact(index, question_of(kind), about->bytes, sizeof about->bytes, ret_bytes,
                                           AOTICACHE_INDEX_FILE_FACT_MAX_BYTES, ret_size);
}

void aoticache_index_note_file_fact(aoticache_index *index, aoticache_index_file_fact kind,
                                    const aoticache_digest *about, const void *bytes, size_t size)
{
    if (size <= AOTICACHE_INDEX_FILE_FACT_MAX_BYTES)
        aoticache_query_cache_note_fact(index, question_of(kind), about->bytes, sizeof about->bytes, bytes, size);
}
