/*
 * cache/collect_waiting: the files of objects that have left the index. The index keeps a list of them, so that whoever
 * comes after a killed process knows what to remove without looking for it.
 *
 * With the store locked exclusively no put is at work, so an object that has no row now is nobody's; one that a process
 * holds stays on the list until it is let go.
 *
 * Files go folder by folder, which spares opening each folder anew and is what file systems do best; all the manifests
 * of a list before the rest, so that a rebuilt index does not bring an entry back.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/threads.h"
#include "cache/collection.h"
#include "cache/lock.h"

#define ROWS 64       /* of a list that is gone through */
#define CHUNK 192     /* files: about as many as go in a stretch */
#define AT_ONCE 4096 /* objects that are put in order: some of each of the 256 folders */
#define MAX_DONE 8192
#define HELPERS 3     /* threads beside the collection's own, */
#define HELPERS_THAT_WAIT 15 /* and where they mostly wait for the disk */
#define FILES_OF_A_THREAD 8
#define STACK_BYTES (256 * 1024)

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

/* ---- a chunk of files ---- */

/* What came of one. */
struct outcome {
    aoticache_status status;
    uint64_t bytes;
};

struct chunk {
    aoticache_cache *cache;
    const aoticache_index_removal *removals;
    struct outcome *outcomes;
    size_t count;
    uint64_t end_ns;
    atomic_size_t next;    /* to take; what lies behind the last one taken was not reached in time */
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

/* At least one, whatever the time. */
static void *remove_from_chunk(void *argument)
{
    struct chunk *chunk = argument;
    aoticache_object_folder folder = AOTICACHE_OBJECT_FOLDER_INIT;
    do {
        size_t at = atomic_fetch_add(&chunk->next, 1);
        if (at >= chunk->count)
            break;
        remove_one(chunk, at, &folder);
    } while (aoticache_monotonic_ns() <= chunk->end_ns);
    if (folder.fd >= 0)
        close(folder.fd);
    return NULL;
}

/*
 * A disk takes its time for each file (where freed blocks are discarded at once, nearly all of an unlink is waiting), and
 * takes it for several at once: sixteen threads remove nine times as many there as one (docs/performance.md). A thread
 * costs some 20 us, so only for a chunk that is worth it, and none beside a put: those are its program's processors.
 */
static size_t start_helpers(const aoticache_collection *collection, struct chunk *chunk, pthread_t *threads)
{
    const size_t most = collection->is_waiting ? HELPERS_THAT_WAIT : HELPERS, useful = chunk->count / FILES_OF_A_THREAD;
    pthread_attr_t attributes;
    if (collection->is_step || useful < 2 || pthread_attr_init(&attributes) != 0)
        return 0;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    const size_t started =
        aoticache_threads_start(threads, useful < most ? useful : most, &attributes, remove_from_chunk, chunk);
    pthread_attr_destroy(&attributes);
    return started;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now = {.tv_sec = 0};
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* This thread's part of the work, and what it was: a processor's or the disk's. */
static void take_part(aoticache_collection *collection, struct chunk *chunk)
{
    const uint64_t begun = clock_ns(CLOCK_MONOTONIC), worked = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    remove_from_chunk(chunk);
    collection->is_waiting =
        clock_ns(CLOCK_MONOTONIC) - begun > 2 * (clock_ns(CLOCK_THREAD_CPUTIME_ID) - worked);
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
        note_done(collection, removal->id);
    else if (outcome->status != AOTICACHE_LOCKED && collection->late_status == AOTICACHE_OK) {
        collection->late_status = outcome->status;
        collection->late_error = *error;
    }
}

/* Returns how many it came to, one at least. */
static size_t remove_chunk(aoticache_collection *collection, const aoticache_index_removal *removals, size_t count,
                           uint64_t end_ns)
{
    struct outcome outcomes[CHUNK];
    pthread_t threads[HELPERS_THAT_WAIT];
    struct chunk chunk = {
        .cache = collection->cache, .removals = removals, .outcomes = outcomes, .count = count, .end_ns = end_ns,
        .mutex = PTHREAD_MUTEX_INITIALIZER, .error = {.message = ""},
    };
    size_t started = start_helpers(collection, &chunk, threads);
    take_part(collection, &chunk);
    while (started > 0)
        pthread_join(threads[--started], NULL);
    size_t reached = atomic_load(&chunk.next);
    reached = reached < count ? reached : count;
    for (size_t i = 0; i < reached; i++)
        note_outcome(collection, &removals[i], &outcomes[i], &chunk.error);
    return reached;
}

static bool is_file(const aoticache_index_removal *removal)
{
    return removal->kind == AOTICACHE_INDEX_REMOVAL_FILE;
}

/* The files of a list in order, from *at on: as many as there is time for. With the store locked. */
static aoticache_status remove_some(aoticache_collection *collection, aoticache_index_removal *removals, size_t count,
                                    size_t *at, aoticache_error *ret_error)
{
    const uint64_t end_ns = aoticache_monotonic_ns() + AOTICACHE_COLLECTION_STRETCH_NS;
    aoticache_status status = AOTICACHE_OK;
    while (status == AOTICACHE_OK && *at < count && aoticache_monotonic_ns() <= end_ns) {
        size_t in_chunk = 1; /* no file beside a manifest: those go before */
        const size_t most = count - *at < CHUNK ? count - *at : CHUNK;
        while (in_chunk < most && is_file(&removals[*at]) == is_file(&removals[*at + in_chunk]))
            in_chunk++;
        status = aoticache_index_check_removals(collection->index, removals + *at, in_chunk, ret_error);
        if (status == AOTICACHE_OK)
            *at += remove_chunk(collection, removals + *at, in_chunk, end_ns);
    }
    return status;
}

/* ---- lists ---- */

/* One stretch with the lock. */
static aoticache_status stretch(aoticache_collection *collection, aoticache_index_removal *removals, size_t count,
                                size_t *at, aoticache_error *ret_error)
{
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    aoticache_status status = aoticache_lock_store(collection->cache->directory, true, &lock, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    /* A new index was built of the manifests that are there: what the old one no longer names may be named again. */
    if (aoticache_cache_index_is_current(collection->cache)) {
        status = remove_some(collection, removals, count, at, ret_error);
    } else {
        collection->is_replaced = collection->is_stopped = collection->report.is_partial = true;
        *at = count;
    }
    aoticache_lock_release(&lock);
    return status;
}

static int by_folder(const void *a, const void *b)
{
    const aoticache_index_removal *x = a, *y = b;
    const int order = is_file(x) - is_file(y), by_name = memcmp(&x->object, &y->object, sizeof x->object);
    return order != 0 ? order : by_name != 0 ? by_name : (int)x->kind - (int)y->kind;
}

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* No file may go before it is on disk that no entry needs it. */
static aoticache_status make_durable(aoticache_collection *collection, aoticache_error *ret_error)
{
    if (collection->is_durable)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_settle(collection->index, ret_error);
    if (status != AOTICACHE_OK && aoticache_index_is_out_of_room(collection->index)) {
        aoticache_index_truncate_log(collection->index); /* has its room for what is to be written */
        status = aoticache_index_settle(collection->index, ret_error);
    }
    collection->is_durable = status == AOTICACHE_OK;
    return status;
}

static aoticache_status remove_list(aoticache_collection *collection, aoticache_index_removal *removals, size_t count,
                                    aoticache_error *ret_error)
{
    aoticache_status status = make_durable(collection, ret_error);
    collection->removal_id = removals[count - 1].id;
    qsort(removals, count, sizeof *removals, by_folder);
    for (size_t at = 0; status == AOTICACHE_OK && at < count;) {
        status = stretch(collection, removals, count, &at, ret_error);
        if (collection->is_backlog && at < count && !aoticache_collection_goes_on(collection))
            break;
    }
    if (collection->done_count > 1)
        qsort(collection->done, collection->done_count, sizeof *collection->done, by_number);
    /* A backlog is there because collections were killed: this one may be, too, and the next is to go on from here. */
    if (status == AOTICACHE_OK && (collection->is_backlog || collection->done_count > MAX_DONE))
        status = aoticache_collection_forget_done(collection, ret_error);
    return status;
}

aoticache_status aoticache_collection_remove_waiting(aoticache_collection *collection, aoticache_error *ret_error)
{
    aoticache_index_removal *removals = malloc(AT_ONCE * sizeof *removals);
    size_t count = removals != NULL ? AT_ONCE : 0;
    aoticache_status status = AOTICACHE_OK;
    if (removals == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    while (status == AOTICACHE_OK && count == AT_ONCE && !collection->is_replaced &&
           !(collection->is_backlog && collection->is_stopped)) {
        status = aoticache_index_list_removals(collection->index, collection->removal_id, removals, AT_ONCE, &count,
                                               ret_error);
        if (status == AOTICACHE_OK && count > 0)
            status = remove_list(collection, removals, count, ret_error);
    }
    free(removals);
    return status;
}

aoticache_status aoticache_collection_forget_done(aoticache_collection *collection, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_forget_removals(collection->index, collection->done, collection->done_count,
                                                              ret_error);
    collection->done_count = 0;
    return status;
}

/* ---- before anything is done ---- */

static bool add_waiting(aoticache_collection *collection, const aoticache_digest *digest)
{
    if ((collection->waiting_count & (collection->waiting_count - 1)) == 0) {
        size_t capacity = collection->waiting_count == 0 ? 1 : collection->waiting_count * 2;
        aoticache_digest *waiting = reallocarray(collection->waiting, capacity, sizeof *waiting);
        if (waiting == NULL)
            return false;
        collection->waiting = waiting;
    }
    collection->waiting[collection->waiting_count++] = *digest;
    return true;
}

static int by_digest(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(aoticache_digest));
}

aoticache_status aoticache_collection_count_waiting(aoticache_collection *collection, aoticache_error *ret_error)
{
    aoticache_index_removal rows[ROWS];
    size_t count = ROWS;
    aoticache_status status = AOTICACHE_OK;
    for (int64_t after = INT64_MIN; status == AOTICACHE_OK && count == ROWS; after = rows[count - 1].id) {
        status = aoticache_index_list_removals(collection->index, after, rows, ROWS, &count, ret_error);
        if (status == AOTICACHE_OK)
            status = aoticache_index_check_removals(collection->index, rows, count, ret_error);
        for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
            const aoticache_digest *object = &rows[i].object;
            if (rows[i].is_named)
                continue;
            collection->report.bytes_before += rows[i].bytes;
            if (!add_waiting(collection, object))
                return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
            if (aoticache_object_is_held(collection->cache->directory, object))
                continue;
            collection->report.objects_removed++;
            collection->report.bytes_removed += rows[i].bytes;
        }
        if (count == 0)
            break;
    }
    if (collection->waiting_count > 1)
        qsort(collection->waiting, collection->waiting_count, sizeof *collection->waiting, by_digest);
    return status;
}
