/*
 * index/query_cache/query_cache: results of queries by earlier processes, in a file next to the index.
 *
 * Most processes query an unchanged index for what another process has queried before. Starting SQLite, reading the tables'
 * definitions and running statements would be most of the time that such a process waits. So a process that had to query the
 * index leaves the answers here, and later processes read them here. They connect only for other queries, or to write.
 *
 * An answer is trusted while the index is in the state in which it was queried:
 *
 * - The WAL is empty. A process that changes the index writes there first. The WAL is merged into the index before it is
 *   emptied, and that sets the index's change time, which no program can set back.
 * - The index is the same file, with the same times. The clock of such times ticks every few milliseconds, so the state of a
 *   file that was changed less than two seconds ago is not recorded: a change within the same tick would not be visible.
 * - The machine was not rebooted, the file system is local, and only this user and root can write to the index.
 *
 * File facts (file_facts.h) are not answers of the index: they are compared with the files themselves, so they stay valid when
 * the index changes, until the next boot.
 *
 * The state is read before the first query and again before the file is written: a change in between is in the WAL, or has
 * changed the time. It is compared at each query, too. The file is overwritten in place, without waiting for the disk, with
 * what other processes wrote meanwhile. A hash shows whether it is complete; nothing else in it is trusted.
 */
#include "index/connection/connection_internal.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/files/file_state.h"
#include "base/hash_map.h"
#include "base/syscalls.h"

#define VERSION "aotcans1" /* changed whenever an encoding changes */

struct header {
    char version[8];
    uint64_t hash; /* of everything after it */
    aoticache_index_state state;
};

struct record {
    uint32_t question, key_size, answer_size;
};

#define MAX_RECORD_BYTES (AOTICACHE_QUERY_CACHE_MAX_BYTES - sizeof(struct header))

/* ---- the state of the index ---- */

static bool is_ours(const struct stat *found)
{
    return S_ISREG(found->st_mode) && aoticache_file_is_ours(found);
}

/* Returns false if nothing can be trusted now. */
static bool read_state(const aoticache_index *index, aoticache_index_state *ret_state)
{
    struct stat file;
    if (aoticache_index_has_wal(index) || aoticache_index_vfs_stat(index, "", &file) != 0 || !is_ours(&file))
        return false;
    *ret_state = (aoticache_index_state){
        .version = AOTICACHE_INDEX_VERSION, .boot = aoticache_boot_number(), .file = aoticache_file_state_of(&file)};
    return ret_state->boot != 0;
}

static bool is_same_state(const aoticache_index_state *a, const aoticache_index_state *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static bool is_as_noted(const aoticache_index *index)
{
    aoticache_index_state now;
    return read_state(index, &now) && is_same_state(&now, &index->query_cache.state);
}

/* ---- records ---- */

/* Reads the record at *at, and moves *at after it. Returns false if there is none. */
static bool next_record(const uint8_t *bytes, size_t size, size_t *at, struct record *ret_record)
{
    if (size - *at < sizeof *ret_record)
        return false;
    memcpy(ret_record, bytes + *at, sizeof *ret_record);
    if (size - *at - sizeof *ret_record < (uint64_t)ret_record->key_size + ret_record->answer_size)
        return false;
    *at += sizeof *ret_record + ret_record->key_size + ret_record->answer_size;
    return true;
}

static const uint8_t *find_record(const uint8_t *bytes, size_t size, aoticache_index_question question, const void *key,
                                  size_t key_size, size_t *ret_size)
{
    struct record record;
    for (size_t at = 0, begin = 0; next_record(bytes, size, &at, &record); begin = at)
        if (record.question == question && record.key_size == key_size &&
            memcmp(bytes + begin + sizeof record, key, key_size) == 0) {
            *ret_size = record.answer_size;
            return bytes + begin + sizeof record + key_size;
        }
    return NULL;
}

static const uint8_t *find_among(const aoticache_query_records *records, aoticache_index_question question,
                                 const void *key, size_t key_size, size_t *ret_size)
{
    return find_record(records->bytes, records->size, question, key, key_size, ret_size);
}

static bool has_record(const aoticache_query_records *records, aoticache_index_question question, const void *key,
                       size_t key_size)
{
    size_t size;
    return find_among(records, question, key, key_size, &size) != NULL;
}

/* Returns false if there is no space. */
static bool add_record(aoticache_query_records *records, aoticache_index_question question, const void *key,
                       size_t key_size, const void *answer, size_t size)
{
    const size_t bytes = sizeof(struct record) + key_size + size;
    if (bytes > MAX_RECORD_BYTES - records->size ||
        !AOTICACHE_ARRAY_RESERVE(records->bytes, records->capacity, records->size + bytes))
        return false;
    const struct record record = {question, (uint32_t)key_size, (uint32_t)size};
    uint8_t *to = records->bytes + records->size;
    memcpy(to, &record, sizeof record);
    memcpy(to + sizeof record, key, key_size);
    if (size > 0)
        memcpy(to + sizeof record + key_size, answer, size);
    records->size += bytes;
    return true;
}

static bool is_fact(uint32_t question)
{
    return question >= AOTICACHE_INDEX_KEEPS_CHECKSUM;
}

/* Adds the records of `from` that are missing in `to`, as far as there is space: digests of large files first, because making
 * one again can take seconds. */
static void add_others(aoticache_query_records *to, const aoticache_query_records *from, bool has_answers)
{
    struct record record;
    for (int pass = 0; pass < 2; pass++)
        for (size_t at = 0, begin = 0; next_record(from->bytes, from->size, &at, &record); begin = at) {
            const uint8_t *key = from->bytes + begin + sizeof record;
            if ((record.question == AOTICACHE_INDEX_KEEPS_DIGEST) == (pass == 0) &&
                (has_answers || is_fact(record.question)) && !has_record(to, record.question, key, record.key_size))
                add_record(to, record.question, key, record.key_size, key + record.key_size, record.answer_size);
        }
}

/* ---- the file ---- */

/* Fills *ret_state and *records, which the caller frees. Returns false if there is no file of this boot that can be trusted. */
static bool read_file(const aoticache_index *index, aoticache_index_state *ret_state, aoticache_query_records *records)
{
    struct stat found;
    struct header header;
    cleanup_fd int fd = aoticache_index_vfs_open(index, AOTICACHE_QUERY_CACHE_SUFFIX, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &found) != 0 || !is_ours(&found) || found.st_nlink != 1 ||
        found.st_size <= (off_t)sizeof header || found.st_size > AOTICACHE_QUERY_CACHE_MAX_BYTES)
        return false;
    const size_t size = (size_t)found.st_size, hashed = offsetof(struct header, state);
    cleanup_free uint8_t *bytes = malloc(size);
    if (bytes == NULL || pread(fd, bytes, size, 0) != (ssize_t)size)
        return false;
    memcpy(&header, bytes, sizeof header);
    if (memcmp(header.version, VERSION, sizeof header.version) != 0 ||
        header.hash != aoticache_hash_bytes(bytes + hashed, size - hashed) ||
        header.state.boot != aoticache_boot_number() || header.state.version != AOTICACHE_INDEX_VERSION)
        return false;
    *ret_state = header.state;
    memmove(bytes, bytes + sizeof header, size - sizeof header);
    *records = (aoticache_query_records){.size = size - sizeof header, .capacity = size};
    records->bytes = steal_ptr(&bytes);
    return true;
}

static bool may_trust(const aoticache_index *index)
{
    return !index->is_group_shared && aoticache_file_system_is_local(index->directory_fd) &&
           aoticache_boot_number() != 0;
}

void aoticache_query_cache_open(aoticache_index *index)
{
    aoticache_query_cache *cache = &index->query_cache;
    aoticache_index_state then;
    const int64_t now_ns = aoticache_wall_ns();
    if (!may_trust(index))
        return;
    cache->keeps_file_facts = !index->read_only && faccessat(index->directory_fd, ".", W_OK, AT_EACCESS) == 0;
    /* If the index should be writable and is not, SQLite reports that when it connects. */
    cache->trusts_file_facts = index->read_only || cache->keeps_file_facts;
    const bool has_state = cache->trusts_file_facts &&
                           (index->read_only || aoticache_index_vfs_is_writable(index, "")) &&
                           read_state(index, &cache->state) && cache->state.file.changed_ns <= now_ns;
    cache->is_noting =
        has_state && !index->read_only && cache->state.file.changed_ns <= now_ns - AOTICACHE_FILE_SETTLED_NS;
    if (cache->trusts_file_facts && read_file(index, &then, &cache->file))
        cache->is_believed = cache->was_believed = has_state && is_same_state(&then, &cache->state);
}

static void write_file(const aoticache_index *index, const aoticache_index_state *state,
                       const aoticache_query_records *records)
{
    const size_t hashed = offsetof(struct header, state), size = sizeof(struct header) + records->size;
    struct stat found;
    cleanup_free uint8_t *bytes = malloc(size);
    if (bytes == NULL)
        return;
    struct header header = {.version = VERSION, .state = *state};
    memcpy(bytes, &header, sizeof header);
    if (records->size > 0)
        memcpy(bytes + sizeof header, records->bytes, records->size);
    header.hash = aoticache_hash_bytes(bytes + hashed, size - hashed);
    memcpy(bytes, &header, sizeof header);
    cleanup_fd int fd = aoticache_index_vfs_create(index, AOTICACHE_QUERY_CACHE_SUFFIX, O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) || found.st_nlink != 1)
        return;
    /* Another process may be writing or reading now, too: a mixture of two files has a wrong hash. */
    if (aoticache_syscall_write(fd, bytes, size) != 0 ||
        (found.st_size > (off_t)size && aoticache_syscall_ftruncate(fd, (off_t)size) != 0))
        aoticache_syscall_ftruncate(fd, 0);
}

void aoticache_query_cache_keep(aoticache_index *index)
{
    aoticache_query_cache *cache = &index->query_cache;
    const bool has_answers = cache->has_news && cache->is_noting && is_as_noted(index);
    if (!has_answers && !cache->has_new_facts)
        return;
    /* If the index has changed since it was queried, the state and the answers in the file stay, which other processes may have
     * written meanwhile. */
    aoticache_index_state state = {.version = AOTICACHE_INDEX_VERSION, .boot = aoticache_boot_number()};
    aoticache_query_records others = {.bytes = NULL}, all = {.bytes = NULL};
    const bool has_others = read_file(index, &state, &others);
    const bool is_same = has_others && is_same_state(&state, &cache->state);
    if (has_answers)
        state = cache->state;
    add_others(&all, &cache->noted, has_answers);
    add_others(&all, &others, !has_answers || is_same);
    write_file(index, &state, &all);
    free(others.bytes);
    free(all.bytes);
    cache->has_news = cache->has_news && !has_answers;
    cache->has_new_facts = false;
}

void aoticache_query_cache_clear(aoticache_query_cache *cache)
{
    free(cache->file.bytes);
    free(cache->noted.bytes);
    *cache = (aoticache_query_cache){.is_noting = false};
}

/* ---- questions ---- */

static bool find(aoticache_index *index, aoticache_index_question question, const void *key, size_t key_size,
                 const uint8_t **ret_answer, size_t *ret_size)
{
    aoticache_query_cache *cache = &index->query_cache;
    if (index->db != NULL || !cache->is_believed)
        return false;
    cache->is_believed = is_as_noted(index);
    cache->is_noting = cache->is_noting && cache->is_believed;
    if (!cache->is_believed)
        return false;
    *ret_answer = find_among(&cache->file, question, key, key_size, ret_size);
    if (*ret_answer == NULL)
        return false;
    if (!has_record(&cache->noted, question, key, key_size))
        add_record(&cache->noted, question, key, key_size, *ret_answer, *ret_size);
    return true;
}

bool aoticache_query_cache_find(aoticache_index *index, aoticache_index_question question, const void *key,
                                size_t key_size, const uint8_t **ret_answer, size_t *ret_size)
{
    if (!index->query_cache.was_believed || aoticache_index_fork_enter(index->path, NULL) != AOTICACHE_OK)
        return false;
    pthread_mutex_lock(&index->lock);
    const bool found = find(index, question, key, key_size, ret_answer, ret_size);
    pthread_mutex_unlock(&index->lock);
    aoticache_index_fork_leave();
    return found;
}

bool aoticache_query_cache_wants(const aoticache_index *index)
{
    return index->query_cache.is_noting;
}

void aoticache_query_cache_note(aoticache_index *index, aoticache_index_question question, const void *key,
                                size_t key_size, const void *answer, size_t size)
{
    aoticache_query_cache *cache = &index->query_cache;
    /* A transaction of this connection sees its own changes before they are committed, and may be rolled back. */
    if (!cache->is_noting || sqlite3_get_autocommit(index->db) == 0)
        return;
    if (!has_record(&cache->noted, question, key, key_size) &&
        add_record(&cache->noted, question, key, key_size, answer, size))
        cache->has_news = true;
}

/* ---- file facts ---- */

static void remove_record(aoticache_query_records *records, aoticache_index_question question, const void *key,
                          size_t key_size)
{
    size_t size;
    const uint8_t *found = find_among(records, question, key, key_size, &size);
    if (found == NULL)
        return;
    const size_t end = (size_t)(found - records->bytes) + size, whole = sizeof(struct record) + key_size + size;
    memmove(records->bytes + end - whole, records->bytes + end, records->size - end);
    records->size -= whole;
}

static bool find_fact(aoticache_index *index, aoticache_index_question question, const void *key, size_t key_size,
                      void *ret_fact, size_t capacity, size_t *ret_size)
{
    aoticache_query_cache *cache = &index->query_cache;
    aoticache_query_records now = {.bytes = NULL};
    aoticache_index_state state;
    const uint8_t *fact = find_among(&cache->noted, question, key, key_size, ret_size);
    const bool is_noted = fact != NULL;
    if (!is_noted)
        fact = find_among(&cache->file, question, key, key_size, ret_size);
    /* Another process may have hashed a large file since this one opened the index. */
    if (fact == NULL && question == AOTICACHE_INDEX_KEEPS_DIGEST && read_file(index, &state, &now))
        fact = find_among(&now, question, key, key_size, ret_size);
    const bool fits = fact != NULL && *ret_size <= capacity;
    if (fits)
        memcpy(ret_fact, fact, *ret_size);
    if (fits && !is_noted)
        add_record(&cache->noted, question, key, key_size, fact, *ret_size);
    free(now.bytes);
    return fits;
}

bool aoticache_query_cache_find_fact(aoticache_index *index, aoticache_index_question question, const void *key,
                                     size_t key_size, void *ret_fact, size_t capacity, size_t *ret_size)
{
    if (!index->query_cache.trusts_file_facts || aoticache_index_fork_enter(index->path, NULL) != AOTICACHE_OK)
        return false;
    pthread_mutex_lock(&index->lock);
    const bool found = find_fact(index, question, key, key_size, ret_fact, capacity, ret_size);
    pthread_mutex_unlock(&index->lock);
    aoticache_index_fork_leave();
    return found;
}

void aoticache_query_cache_note_fact(aoticache_index *index, aoticache_index_question question, const void *key,
                                     size_t key_size, const void *fact, size_t size)
{
    aoticache_query_cache *cache = &index->query_cache;
    if (!cache->keeps_file_facts || aoticache_index_fork_enter(index->path, NULL) != AOTICACHE_OK)
        return;
    pthread_mutex_lock(&index->lock);
    remove_record(&cache->noted, question, key, key_size);
    if (add_record(&cache->noted, question, key, key_size, fact, size))
        cache->has_new_facts = true;
    /* A process that maps large files may never close the index, or be killed. */
    if (question == AOTICACHE_INDEX_KEEPS_DIGEST)
        aoticache_query_cache_keep(index);
    pthread_mutex_unlock(&index->lock);
    aoticache_index_fork_leave();
}

/* ---- answers of several rows ---- */

void aoticache_query_cache_add(aoticache_query_rows *rows, const void *part, size_t size)
{
    rows->is_wanted = rows->is_wanted && rows->size + size <= AOTICACHE_QUERY_CACHE_MAX_BYTES &&
                      AOTICACHE_ARRAY_RESERVE(rows->bytes, rows->capacity, rows->size + size);
    if (!rows->is_wanted || size == 0)
        return;
    memcpy(rows->bytes + rows->size, part, size);
    rows->size += size;
}

void aoticache_query_cache_note_rows(aoticache_index *index, aoticache_index_question question, const void *key,
                                     size_t key_size, aoticache_query_rows *rows)
{
    if (rows->is_wanted)
        aoticache_query_cache_note(index, question, key, key_size, rows->bytes, rows->size);
    free(rows->bytes);
    *rows = (aoticache_query_rows){.is_wanted = false};
}
