/*
 * cache/collect_files: the files of a few objects that go at the same time, by several threads.
 */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/threads.h"
#include "cache/collection.h"

#define HELPERS 3 /* threads beside the collection's own; where they mostly wait for the disk, AOTICACHE_COLLECTION_THREADS */
#define FILES_OF_A_THREAD 8
#define STACK_BYTES (256 * 1024)

/* An object may wait more than once, in rows that are neighbours here: the first one stays if it must. */
static bool is_repeated(const aoticache_collection_chunk *chunk, size_t at)
{
    const aoticache_index_removal *this = &chunk->removals[at];
    return at > 0 && this[-1].kind == this->kind && aoticache_digest_equal(&this[-1].object, &this->object);
}

static void remove_one(aoticache_collection_chunk *chunk, size_t at, aoticache_object_folder *folder)
{
    const aoticache_index_removal *removal = &chunk->removals[at];
    aoticache_collection_outcome *outcome = &chunk->outcomes[at];
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
static void *remove_from_chunk(void *argument)
{
    aoticache_collection_chunk *chunk = argument;
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
    return NULL;
}

/*
 * A disk takes its time for each file (where freed blocks are discarded at once, nearly all of an unlink is waiting), and
 * takes it for several at once: sixteen threads remove nine times as many there as one (docs/performance.md). A thread
 * costs some 20 us, so only for a chunk that is worth it, and none beside a put: those are its program's processors.
 */
static size_t start_threads(const aoticache_collection *collection, aoticache_collection_chunk *chunk)
{
    const size_t most = collection->is_waiting ? AOTICACHE_COLLECTION_THREADS : HELPERS, useful = chunk->count / FILES_OF_A_THREAD;
    pthread_attr_t attributes;
    if (collection->is_step || useful < 2 || pthread_attr_init(&attributes) != 0)
        return 0;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    const size_t started =
        aoticache_threads_start(chunk->threads, useful < most ? useful : most, &attributes, remove_from_chunk, chunk);
    pthread_attr_destroy(&attributes);
    return started;
}

static bool note_done(aoticache_collection *collection, int64_t id)
{
    if (collection->done_count == collection->done_capacity) {
        size_t capacity = collection->done_capacity != 0 ? collection->done_capacity * 2 : 256;
        int64_t *done = reallocarray(collection->done, capacity, sizeof *done);
        if (done == NULL)
            return false; /* it stays on the list, and is found gone by the next collection */
        collection->done = done;
        collection->done_capacity = capacity;
    }
    collection->done[collection->done_count++] = id;
    return true;
}

static void note_outcome(aoticache_collection *collection, const aoticache_index_removal *removal,
                         const aoticache_collection_outcome *outcome, const aoticache_error *error)
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
        note_done(collection, removal->id);
    else if (outcome->status != AOTICACHE_LOCKED && collection->late_status == AOTICACHE_OK) {
        collection->late_status = outcome->status;
        collection->late_error = *error;
    }
}

void aoticache_collection_chunk_start(const aoticache_collection *collection, aoticache_collection_chunk *chunk,
                                      const aoticache_index_removal *removals, size_t count, uint64_t end_ns)
{
    chunk->cache = collection->cache;
    chunk->removals = removals;
    chunk->count = count;
    chunk->end_ns = end_ns;
    chunk->is_waiting = collection->is_waiting;
    chunk->error.message[0] = '\0';
    atomic_init(&chunk->next, 0);
    pthread_mutex_init(&chunk->mutex, NULL);
    chunk->thread_count = start_threads(collection, chunk);
}

size_t aoticache_collection_chunk_end(aoticache_collection *collection, aoticache_collection_chunk *chunk)
{
    while (chunk->thread_count > 0)
        pthread_join(chunk->threads[--chunk->thread_count], NULL);
    pthread_mutex_destroy(&chunk->mutex);
    collection->is_waiting = chunk->is_waiting;
    const size_t taken = atomic_load(&chunk->next), reached = taken < chunk->count ? taken : chunk->count;
    for (size_t i = 0; i < reached; i++)
        note_outcome(collection, &chunk->removals[i], &chunk->outcomes[i], &chunk->error);
    return reached;
}

size_t aoticache_collection_remove_chunk(aoticache_collection *collection, const aoticache_index_removal *removals,
                                         size_t count, uint64_t end_ns)
{
    aoticache_collection_chunk chunk;
    aoticache_collection_chunk_start(collection, &chunk, removals, count, end_ns);
    remove_from_chunk(&chunk);
    return aoticache_collection_chunk_end(collection, &chunk);
}
