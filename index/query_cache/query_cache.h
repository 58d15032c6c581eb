/*
 * index/query_cache/query_cache: results of queries by earlier processes, in a file next to the index.
 *
 * Private to the directory index. A question is its kind and some bytes; an answer is bytes, as encoded by the file that
 * reads the rows (entries/).
 */
#ifndef AOTICACHE_INDEX_QUERY_CACHE_QUERY_CACHE_H
#define AOTICACHE_INDEX_QUERY_CACHE_QUERY_CACHE_H

#include <sys/types.h>

#include "base/files/file_state.h"
#include "index/index.h"

#define AOTICACHE_QUERY_CACHE_SUFFIX "-answers"
#define AOTICACHE_QUERY_CACHE_MAX_BYTES \
    (64 << 10) /* of the file: some 300 entries. Reading and hashing it at each start takes 20 us */

typedef enum aoticache_index_question {
    AOTICACHE_INDEX_ASKS_LOOKUP = 1, /* a key; the answer: its entries */
    AOTICACHE_INDEX_ASKS_ENTRY,      /* a number */
    AOTICACHE_INDEX_ASKS_GUARD,      /* a number */
    AOTICACHE_INDEX_ASKS_STORED,     /* how many, after which number, of which operator */
    AOTICACHE_INDEX_ASKS_JUDGEMENTS, /* a key */
    /* File facts (file_facts.h), which are not results of the index and which no change of it makes invalid. */
    AOTICACHE_INDEX_KEEPS_CHECKSUM, /* a digest */
    AOTICACHE_INDEX_KEEPS_MANIFEST, /* a digest */
    AOTICACHE_INDEX_KEEPS_DIGEST,   /* device and inode */
} aoticache_index_question;

/* The state of the index when it was queried. Any change of the index changes its time. version: of the tables. */
typedef struct aoticache_index_state {
    int64_t version, boot;
    aoticache_file_state file;
} aoticache_index_state;

/* Questions with their answers, one after the other. Initialize it with zeros. */
typedef struct aoticache_query_records {
    uint8_t *bytes;
    size_t size, capacity;
} aoticache_query_records;

typedef struct aoticache_query_cache {
    aoticache_index_state state;
    bool is_noting;    /* answers are recorded: they are of this state, if it is still the same at the end */
    bool is_believed;  /* `file` is of this state, as far as is known */
    bool was_believed; /* when the index was opened, and therefore without a connection */
    bool trusts_file_facts, keeps_file_facts;
    bool has_news;                 /* an answer was recorded that is not in `file` */
    bool has_new_facts;            /* a file fact was recorded that is not on disk */
    aoticache_query_records file;  /* not moved until the index is closed */
    aoticache_query_records noted; /* of this process */
} aoticache_query_cache;

/* Reads the file, if it may be trusted, and begins to record. Called before other threads have the index. */
void aoticache_query_cache_open(aoticache_index *index);

/*
 * Gives the recorded answer to a question while the index has no connection. Call it without any lock of the index. Returns
 * true if there is one: *ret_answer is borrowed until the index is closed.
 */
bool aoticache_query_cache_find(aoticache_index *index, aoticache_index_question question, const void *key,
                                size_t key_size, const uint8_t **ret_answer, size_t *ret_size);

/* Returns whether a recorded answer would be kept. Call it between enter and leave, like the function that records. */
bool aoticache_query_cache_wants(const aoticache_index *index);
void aoticache_query_cache_note(aoticache_index *index, aoticache_index_question question, const void *key,
                                size_t key_size, const void *answer, size_t size);

/* An answer of several rows, collected while they are read. Initialize only is_wanted; note_rows frees the bytes. */
typedef struct aoticache_query_rows {
    bool is_wanted; /* no row is missing in it yet */
    uint8_t *bytes;
    size_t size, capacity;
} aoticache_query_rows;

void aoticache_query_cache_add(aoticache_query_rows *rows, const void *part, size_t size);
void aoticache_query_cache_note_rows(aoticache_index *index, aoticache_index_question question, const void *key,
                                     size_t key_size, aoticache_query_rows *rows);

/* Do the same for file facts, at any time. find: returns false if there is none, or it is larger than `capacity`. */
bool aoticache_query_cache_find_fact(aoticache_index *index, aoticache_index_question question, const void *key,
                                     size_t key_size, void *ret_fact, size_t capacity, size_t *ret_size);
void aoticache_query_cache_note_fact(aoticache_index *index, aoticache_index_question question, const void *key,
                                     size_t key_size, const void *fact, size_t size);

/* Writes the file, if there are new file facts, or new answers and the index is unchanged. Call it with the mutex, or when no
 * other thread has the index. */
void aoticache_query_cache_keep(aoticache_index *index);
void aoticache_query_cache_clear(aoticache_query_cache *cache);

#endif
