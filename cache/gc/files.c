/*
 * cache/gc/files: the files of a few objects that go at the same time, by several threads.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cache/gc/collection.h"

#define HELPERS 3 /* threads beside the collection's own; where they mostly wait for the disk: */
#define MOST_HELPERS 15
#define FILES_OF_A_THREAD 8

/* Files on their way. */
struct chunk {
    aoticache_cache *cache;
    const aoticache_index_removal *removals;
    struct outcome {
        aoticache_status status;
        uint64_t bytes;
    } outcomes[AOTICACHE_COLLECTION_CHUNK];
    size_t count;
    uint64_t end_ns;
    atomic_size_t next;    /* to take; what lies behind the last one taken was not reached in time */
    bool is_waiting;       /* written by the thread that has the first one */
    pthread_mutex_t mutex; /* of: */
    aoticache_error error; /* the first one */
};

/* An object may wait more than once, in rows that are neighbours here: the first one stays if it must. */
static bool is_repeated(const struct chunk *chunk, size_t at)
{
    const aoticache_index_removal *this = &chunk->removals[at];
    return at > 0 && this[-1].kind == this->kind && aoticache_digest_equal(&this[-1].object, &this->object);
}

static void remove_one(struct chunk *chunk, size_t at, aoticache_object_folder *folder)
{
    const aoticache_index_removal *removal = &chunk->removals[at];
    struct outcome *outcome = &chunk->outcomes[at];
    aoticache_error error = {.message = ""};
    outcome->bytes = 0;
    outcome->status = AOTICACHE_NOT_FOUND;
    if (removal->is_named || is_repeated(chunk, at))
        return;
    if (removal->kind == AOTICACHE_INDEX_REMOVAL_FOLDER)
        aoticache_cache_remove_side_files(chunk->cache, &removal->object);
    outcome->status = aoticache_object_remove_next(chunk->cache->directory, folder, &removal->object,
                                                   removal->kind != AOTICACHE_INDEX_REMOVAL_FILE, &outcome->bytes,
                                                   &error);
    if (outcome->status == AOTICACHE_OK || outcome->status == AOTICACHE_NOT_FOUND ||
        outcome->status == AOTICACHE_LOCKED)
        return;
    pthread_mutex_lock(&chunk->mutex);
    if (chunk->error.message[0] == '\0')
        chunk->error = error;
    pthread_mutex_unlock(&chunk->mutex);
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now = {.tv_sec = 0};
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* At least one, whatever the time. Who has the first one says what it was: a processor's work or the disk's. */
static void remove_from_chunk(void *argument)
{
    struct chunk *chunk = argument;
    aoticache_object_folder folder = AOTICACHE_OBJECT_FOLDER_INIT;
    const uint64_t begun = clock_ns(CLOCK_MONOTONIC), worked = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    bool has_first = false;
    do {
        size_t at = atomic_fetch_add(&chunk->next, 1);
        if (at >= chunk->count)
            break;
        has_first |= at == 0;
        remove_one(chunk, at, &folder);
    } while (aoticache_monotonic_ns() <= chunk->end_ns);
    if (folder.fd >= 0)
        close(folder.fd);
    if (has_first)
        chunk->is_waiting =
            clock_ns(CLOCK_MONOTONIC) - begun > 2 * (clock_ns(CLOCK_THREAD_CPUTIME_ID) - worked);
}

/*
 * A disk takes its time for each file (where freed blocks are discarded at once, nearly all of an unlink is waiting), and
 * takes it for several at once: sixteen threads remove nine times as many there as one (docs/performance.md). Only for a
 * chunk that is worth it, and none beside a put: those are its program's processors.
 */
static void start_threads(aoticache_collection *collection, struct chunk *chunk)
{
    const size_t most = collection->is_waiting ? MOST_HELPERS : HELPERS, useful = chunk->count / FILES_OF_A_THREAD;
    if (collection->is_step || useful < 2)
        return;
    if (collection->pool == NULL)
        collection->pool = aoticache_thread_pool_new();
    if (collection->pool != NULL)
        aoticache_thread_pool_start(collection->pool, useful < most ? useful : most, remove_from_chunk, chunk);
}

void aoticache_collection_note_done(aoticache_collection *collection, int64_t id)
{
    if (collection->done_count == collection->done_capacity) {
        size_t capacity = collection->done_capacity != 0 ? collection->done_capacity * 2 : 256;
        int64_t *done = reallocarray(collection->done, capacity, sizeof *done);
        if (done == NULL)
            return; /* it stays on the list, and is found gone by the next collection */
        collection->done = done;
        collection->done_capacity = capacity;
    }
    collection->done[collection->done_count++] = id;
}

static void note_outcome(aoticache_collection *collection, const aoticache_index_removal *removal,
                         const struct outcome *outcome, const aoticache_error *error)
{
    if (outcome->status == AOTICACHE_OK) {
        collection->report.objects_removed++;
        collection->report.bytes_removed += outcome->bytes;
    }
    if (collection->is_backlog && outcome->status == AOTICACHE_OK)
        collection->report.bytes_before += outcome->bytes;
    else if (collection->is_backlog && outcome->status != AOTICACHE_NOT_FOUND)
        collection->report.bytes_before += removal->bytes; /* it stays for now */
    if (outcome->status == AOTICACHE_OK || outcome->status == AOTICACHE_NOT_FOUND)
        aoticache_collection_note_done(collection, removal->id);
    else if (outcome->status != AOTICACHE_LOCKED && collection->late_status == AOTICACHE_OK) {
        collection->late_status = outcome->status;
        collection->late_error = *error;
    }
}

size_t aoticache_collection_remove_chunk(aoticache_collection *collection, const aoticache_index_removal *removals,
                                         size_t count, uint64_t end_ns)
{
    struct chunk chunk = {.cache = collection->cache, .removals = removals, .count = count, .end_ns = end_ns,
                          .is_waiting = collection->is_waiting, .mutex = PTHREAD_MUTEX_INITIALIZER};
    start_threads(collection, &chunk);
    remove_from_chunk(&chunk);
    if (collection->pool != NULL)
        aoticache_thread_pool_wait(collection->pool);
    pthread_mutex_destroy(&chunk.mutex);
    collection->is_waiting = chunk.is_waiting;
    const size_t taken = atomic_load(&chunk.next), reached = taken < count ? taken : count;
    for (size_t i = 0; i < reached; i++)
        note_outcome(collection, &removals[i], &chunk.outcomes[i], &chunk.error);
    return reached;
}
