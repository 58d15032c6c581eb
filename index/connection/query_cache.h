/*
 * index/connection/query_cache: what the index said to questions of earlier processes, in a file beside it.
 *
 * Private to the directory index. A question is its kind and some bytes; an answer is bytes, as the file that reads the rows
 * encodes them (entries/).
 */
#ifndef AOTICACHE_INDEX_CONNECTION_QUERY_CACHE_H
#define AOTICACHE_INDEX_CONNECTION_QUERY_CACHE_H

#include <sys/types.h>

#include "base/file_state.h"
#include "index/index.h"

#define AOTICACHE_QUERY_CACHE_SUFFIX "-answers"
#define AOTICACHE_QUERY_CACHE_MAX_BYTES \
    (64 << 10) /* of the file: some 300 entries. Read and hashed at each start: 20 us */

typedef enum aoticache_index_question {
    AOTICACHE_INDEX_ASKS_LOOKUP = 1, /* a key; the answer: its entries */
    AOTICACHE_INDEX_ASKS_ENTRY,      /* a number */
    AOTICACHE_INDEX_ASKS_GUARD,      /* a number */
    AOTICACHE_INDEX_ASKS_STORED,     /* how many, behind which number, of what operator */
    AOTICACHE_INDEX_ASKS_FILE,       /* device and inode */
    AOTICACHE_INDEX_ASKS_JUDGEMENTS, /* a key */
    /* File facts (entries/file_facts.h), which the index never said and no change of it makes untrue. */
    AOTICACHE_INDEX_KEEPS_CHECKSUM, /* a digest */
    AOTICACHE_INDEX_KEEPS_MANIFEST, /* a digest */
} aoticache_index_question;

/* The state in which the index was asked. Any change of it is another time of change. version: of the tables. */
typedef struct aoticache_index_state {
    int64_t version, boot;
    aoticache_file_state file;
} aoticache_index_state;

typedef struct aoticache_query_cache {
    aoticache_index_state state;
    bool is_noting;        /* answers are noted: they are of this state, if that is still so in the end */
    bool is_believed;      /* `file` is of this state, as far as is known */
    bool was_believed;     /* when the index was opened, and so without a connection */
    bool keeps_file_facts; /* those of `file` are believed, others are noted */
    bool has_news;         /* something was noted that `file` does not have */
    uint8_t *file;         /* records; NULL: none that is believed. Stays where it is until the index is closed */
    size_t file_size;
    uint8_t *noted; /* records of what this process asked */
    size_t noted_size, noted_capacity;
} aoticache_query_cache;

/* Reads the file, where it may be believed, and begins to note. Before anybody else has the index. */
void aoticache_query_cache_open(aoticache_index *index);

/*
 * What was said to a question, while the index has no connection. Nothing of the index is to be held. True: *ret_answer is
 * borrowed until the index is closed.
 */
bool aoticache_query_cache_find(aoticache_index *index, aoticache_index_question question, const void *key,
                                size_t key_size, const uint8_t **ret_answer, size_t *ret_size);

/* Returns whether a note would be kept. Between enter and leave, as is the note. */
bool aoticache_query_cache_wants(const aoticache_index *index);
void aoticache_query_cache_note(aoticache_index *index, aoticache_index_question question, const void *key,
                                size_t key_size, const void *answer, size_t size);

/* An answer of several rows, gathered while they are read. Begins with is_wanted alone; its bytes are freed by note_rows. */
typedef struct aoticache_query_rows {
    bool is_wanted; /* all rows are in it so far */
    uint8_t *bytes;
    size_t size, capacity;
} aoticache_query_rows;

void aoticache_query_cache_add(aoticache_query_rows *rows, const void *part, size_t size);
void aoticache_query_cache_note_rows(aoticache_index *index, aoticache_index_question question, const void *key,
                                     size_t key_size, aoticache_query_rows *rows);

/* The same for file facts, at any time. find: false: there is none, or it is larger than `capacity`. */
bool aoticache_query_cache_find_fact(aoticache_index *index, aoticache_index_question question, const void *key,
                                     size_t key_size, void *ret_fact, size_t capacity, size_t *ret_size);
void aoticache_query_cache_note_fact(aoticache_index *index, aoticache_index_question question, const void *key,
                                     size_t key_size, const void *fact, size_t size);

/* Writes the file, if there is news and the index is as it was. With the mutex, or when nobody else has the index. */
void aoticache_query_cache_keep(aoticache_index *index);
void aoticache_query_cache_clear(aoticache_query_cache *cache);

#endif
