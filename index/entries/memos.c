/*
 * index/entries/memos: see memos.h.
 */
#include "index/entries/memos.h"
#include "index/connection/internal.h"

static aoticache_index_question question_of(aoticache_index_memo kind)
{
    return kind == AOTICACHE_INDEX_MEMO_CHECKSUM ? AOTICACHE_INDEX_KEEPS_CHECKSUM : AOTICACHE_INDEX_KEEPS_MANIFEST;
}

bool aoticache_index_find_memo(aoticache_index *index, aoticache_index_memo kind, const aoticache_digest *about,
                               uint8_t ret_bytes[AOTICACHE_INDEX_MEMO_MAX_BYTES], size_t *ret_size)
{
    return aoticache_index_answers_find_memo(index, question_of(kind), about->bytes, sizeof about->bytes, ret_bytes,
                                             AOTICACHE_INDEX_MEMO_MAX_BYTES, ret_size);
}

void aoticache_index_note_memo(aoticache_index *index, aoticache_index_memo kind, const aoticache_digest *about,
                               const void *bytes, size_t size)
{
    if (size <= AOTICACHE_INDEX_MEMO_MAX_BYTES)
        aoticache_index_answers_note_memo(index, question_of(kind), about->bytes, sizeof about->bytes, bytes, size);
}
