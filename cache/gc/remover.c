/*
 * cache/gc/remover: removes the files of objects that were removed from the index. The index keeps a list of these objects,
 * so after a process is killed the next one knows what to remove without searching.
 *
 * With the store locked exclusively no put is active, so an object that has no row now is not needed; one that a process
 * holds stays on the list until it is released. Files are removed directory by directory, because that is fastest on
 * most file systems. All manifests of a list are removed first, so that rebuilding the index does not restore an entry.
 *
 * Removing files is mostly waiting for the disk, removing rows is a processor's work, merging the log is both: so a
 * background thread removes the files of one round during the transactions of the next, and merges the log up to there. It
 * has its own connections, because the collection's is busy, and no thread may wait for that with the store locked.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/array.h"
#include "base/threads.h"
#include "cache/gc/gc_internal.h"

#define LISTED 4096            /* objects that are sorted together: some of each of the 256 directories */
#define LISTED_BACKGROUND 8192 /* number of objects that a round of entries with a few objects each leaves */
#define CHUNK 192              /* files, about as many as fit into a stretch */
#define LEAST_CHUNK 16
#define MAX_DONE 8192
#define HELPERS 3 /* threads in addition to the remover's own */
#define HELPERS_DISK_BOUND 15
#define FILES_OF_A_THREAD 8

/* ---- one chunk: a few files removed concurrently by several threads ---- */

struct chunk {
    aoticache_cache *cache;
    const aoticache_index_removal *removals;
    struct outcome {
        aoticache_status status;
        uint64_t bytes;
    } outcomes[CHUNK];
    size_t count;
    uint64_t end_ns;
    atomic_size_t next;    /* next file to take; those after the last one taken were not reached in time */
    bool is_disk_bound;    /* written by the thread that has the first file */
    pthread_mutex_t mutex; /* protects: */
    aoticache_error error; /* the first error */
};

/* Returns whether the object was listed before: it may wait more than once, in neighbouring rows here. If it must stay, only
 * the first row is kept. */
static bool is_repeated(const struct chunk *chunk, size_t at)
{
    const aoticache_index_removal *this = &chunk->removals[at];
    return at > 0 && this[-1].kind == this->kind && aoticache_digest_equal(&this[-1].object, &this->object);
}

static void remove_file(struct chunk *chunk, size_t at, aoticache_object_directory *subdirectory)
{
    const aoticache_index_removal *removal = &chunk->removals[at];
    struct outcome *outcome = &chunk->outcomes[at];
    aoticache_error error = {.message = ""};
    outcome->bytes = 0;
    outcome->status = AOTICACHE_NOT_FOUND;
    if (removal->is_named || is_repeated(chunk, at))
        return;
    if (removal->kind == AOTICACHE_INDEX_REMOVAL_DIRECTORY)
        aoticache_cache_remove_side_files(chunk->cache, &removal->object);
    outcome->status =
        aoticache_object_remove_next(chunk->cache->directory, subdirectory, &removal->object,
                                     removal->kind != AOTICACHE_INDEX_REMOVAL_FILE, &outcome->bytes, &error);
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

/* Removes at least one file, however late it is. The thread with the first file measures whether it waited for the disk. */
static void remove_from_chunk(void *argument)
{
    struct chunk *chunk = argument;
    aoticache_object_directory directory = AOTICACHE_OBJECT_DIRECTORY_INIT;
    const uint64_t begun = clock_ns(CLOCK_MONOTONIC), worked = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    bool has_first = false;
    do {
        size_t at = atomic_fetch_add(&chunk->next, 1);
        if (at >= chunk->count)
            break;
        has_first |= at == 0;
        remove_file(chunk, at, &directory);
    } while (aoticache_monotonic_ns() <= chunk->end_ns);
    if (directory.fd >= 0)
        close(directory.fd);
    if (has_first)
        chunk->is_disk_bound = clock_ns(CLOCK_MONOTONIC) - begun > 2 * (clock_ns(CLOCK_THREAD_CPUTIME_ID) - worked);
}

/*
 * Starts helper threads. A disk takes time for each file (if freed blocks are discarded immediately, nearly all of an unlink
 * is waiting), but for several files concurrently: sixteen threads then remove nine times as many as one
 * (docs/performance.md). Small chunks are not worth threads.
 */
static void start_helpers(aoticache_remover *remover, struct chunk *chunk)
{
    const size_t most = remover->is_disk_bound ? HELPERS_DISK_BOUND : HELPERS,
                 useful = chunk->count / FILES_OF_A_THREAD;
    if (remover->has_one_thread || useful < 2)
        return;
    if (remover->pool == NULL)
        remover->pool = aoticache_thread_pool_new();
    if (remover->pool != NULL)
        aoticache_thread_pool_start(remover->pool, useful < most ? useful : most, remove_from_chunk, chunk);
}

/* Records that a removal is done. If memory is short it is not recorded: it stays on the list, and the next collection finds
 * the object gone. */
static void note_done(int64_t **done, size_t *count, size_t *capacity, int64_t id)
{
    if (AOTICACHE_ARRAY_RESERVE(*done, *capacity, *count + 1))
        (*done)[(*count)++] = id;
}

static void note_outcome(aoticache_remover *remover, const aoticache_index_removal *removal,
                         const struct outcome *outcome, const aoticache_error *error)
{
    if (outcome->status == AOTICACHE_OK) {
        remover->objects++;
        remover->bytes += outcome->bytes;
        remover->backlog_bytes += outcome->bytes;
    } else if (outcome->status != AOTICACHE_NOT_FOUND) {
        remover->backlog_bytes += removal->bytes; /* it stays for now */
    }
    if (outcome->status == AOTICACHE_OK || outcome->status == AOTICACHE_NOT_FOUND)
        note_done(&remover->done, &remover->done_count, &remover->done_capacity, removal->id);
    else if (outcome->status != AOTICACHE_LOCKED && remover->file_status == AOTICACHE_OK) {
        remover->file_status = outcome->status;
        remover->file_error = *error;
    }
}

/*
 * Removes files, at most CHUNK, with the store locked, until end_ns or a little later. Returns how many it reached, from the
 * first on and at least one, and records the result of each.
 */
static size_t remove_chunk(aoticache_remover *remover, const aoticache_index_removal *removals, size_t count,
                           uint64_t end_ns)
{
    struct chunk chunk = {.cache = remover->cache,
                          .removals = removals,
                          .count = count,
                          .end_ns = end_ns,
                          .is_disk_bound = remover->is_disk_bound,
                          .mutex = PTHREAD_MUTEX_INITIALIZER};
    start_helpers(remover, &chunk);
    remove_from_chunk(&chunk);
    if (remover->pool != NULL)
        aoticache_thread_pool_wait(remover->pool);
    pthread_mutex_destroy(&chunk.mutex);
    remover->is_disk_bound = chunk.is_disk_bound;
    const size_t taken = atomic_load(&chunk.next), reached = taken < count ? taken : count;
    for (size_t i = 0; i < reached; i++)
        note_outcome(remover, &removals[i], &chunk.outcomes[i], &chunk.error);
    return reached;
}

/* ---- one stretch: as many chunks as there is time for with the store locked ---- */

static bool is_file(const aoticache_index_removal *removal)
{
    return removal->kind == AOTICACHE_INDEX_REMOVAL_FILE;
}

/* Returns how many may be removed concurrently: no file together with a manifest, because manifests are removed first. */
static size_t next_chunk(const aoticache_remover *remover, const aoticache_index_removal *removals, size_t count)
{
    const size_t likely = remover->chunk > 0 ? remover->chunk : CHUNK;
    const size_t most = count < likely ? count : likely;
    size_t in_chunk = 1;
    while (in_chunk < most && is_file(&removals[0]) == is_file(&removals[in_chunk]))
        in_chunk++;
    return in_chunk;
}

/* Adapts the size of a chunk to the available time, because the index is queried needlessly for files that are not reached. */
static void adapt_chunk(aoticache_remover *remover, size_t count, size_t reached)
{
    const size_t next = reached < count ? reached : count + count / 8 + 1;
    remover->chunk = next < LEAST_CHUNK ? LEAST_CHUNK : next < CHUNK ? next : CHUNK;
}

/* Removes files for one stretch; a chunk that was begun in time may take as long again. */
static aoticache_status remove_stretch(aoticache_remover *remover, size_t *at, aoticache_error *ret_error)
{
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    aoticache_status status = aoticache_lock_store(remover->cache->directory, true, &lock, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    /* The index was rebuilt from the existing manifests: objects that the old one no longer named may be named again. */
    if (!aoticache_cache_index_is_current(remover->cache)) {
        remover->index_is_replaced = true;
        *at = remover->count;
    }
    const uint64_t end_ns = aoticache_monotonic_ns() + AOTICACHE_COLLECTION_STRETCH_NS;
    while (status == AOTICACHE_OK && *at < remover->count && aoticache_monotonic_ns() <= end_ns) {
        aoticache_index_removal *removals = remover->removals + *at;
        const size_t count = next_chunk(remover, removals, remover->count - *at);
        status = aoticache_index_check_removals(remover->index, removals, count, ret_error);
        if (status != AOTICACHE_OK)
            break;
        const size_t reached = remove_chunk(remover, removals, count, end_ns + AOTICACHE_COLLECTION_STRETCH_NS);
        adapt_chunk(remover, count, reached);
        *at += reached;
    }
    aoticache_lock_release(&lock);
    return status;
}

static int by_directory(const void *a, const void *b)
{
    const aoticache_index_removal *x = a, *y = b;
    const int order = is_file(x) - is_file(y), by_name = memcmp(&x->object, &y->object, sizeof x->object);
    return order != 0 ? order : by_name != 0 ? by_name : (int)x->kind - (int)y->kind;
}

/* Removes the listed files. polled: the collection, which may stop in between; NULL: none. */
static aoticache_status remove_list(aoticache_remover *remover, aoticache_collection *polled,
                                    aoticache_error *ret_error)
{
    size_t at = 0;
    aoticache_status status = AOTICACHE_OK;
    qsort(remover->removals, remover->count, sizeof *remover->removals, by_directory);
    while (status == AOTICACHE_OK && at < remover->count) {
        status = remove_stretch(remover, &at, ret_error);
        if (polled != NULL && at < remover->count && !aoticache_collection_poll(polled))
            break;
    }
    return status;
}

/* ---- the collection's side ---- */

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void report_results(aoticache_collection *collection, bool is_backlog)
{
    aoticache_remover *remover = &collection->remover;
    collection->report.objects_removed += remover->objects;
    collection->report.bytes_removed += remover->bytes;
    if (is_backlog)
        collection->report.bytes_before += remover->backlog_bytes;
    for (size_t i = 0; i < remover->done_count; i++)
        note_done(&collection->done, &collection->done_count, &collection->done_capacity, remover->done[i]);
    if (collection->done_count > 1)
        qsort(collection->done, collection->done_count, sizeof *collection->done, by_number);
    remover->objects = remover->bytes = remover->backlog_bytes = 0;
    remover->done_count = 0;
    if (remover->index_is_replaced)
        collection->is_stopped = collection->report.is_partial = true;
}

/* Ensures that the removal of entries is on the disk, before any file is removed. */
static aoticache_status make_durable(aoticache_collection *collection, aoticache_error *ret_error)
{
    if (collection->is_durable)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_settle(collection->index, ret_error);
    if (status != AOTICACHE_OK && aoticache_index_is_out_of_space(collection->index)) {
        aoticache_index_truncate_log(collection->index); /* the freed space suffices for the next writes */
        status = aoticache_index_settle(collection->index, ret_error);
    }
    collection->is_durable = status == AOTICACHE_OK;
    return status;
}

/* Lists at most `capacity` waiting objects, starting after the last ones. */
static aoticache_status list_next(aoticache_collection *collection, size_t capacity, aoticache_error *ret_error)
{
    aoticache_remover *remover = &collection->remover;
    if (remover->removals == NULL)
        remover->removals = malloc(LISTED_BACKGROUND * sizeof *remover->removals);
    if (remover->removals == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    aoticache_status status = aoticache_index_list_removals(collection->index, remover->last_id, remover->removals,
                                                            capacity, &remover->count, ret_error);
    if (status == AOTICACHE_OK && remover->count > 0)
        remover->last_id = remover->removals[remover->count - 1].id;
    return status;
}

aoticache_status aoticache_collection_remove_files(aoticache_collection *collection, bool is_backlog,
                                                   aoticache_error *ret_error)
{
    aoticache_remover *remover = &collection->remover;
    aoticache_status status = AOTICACHE_OK;
    if (remover->index_is_replaced || (is_backlog && collection->is_stopped))
        return AOTICACHE_OK;
    remover->index = collection->index;
    do {
        status = list_next(collection, LISTED, ret_error);
        if (status != AOTICACHE_OK || remover->count == 0)
            break;
        status = make_durable(collection, ret_error);
        if (status == AOTICACHE_OK)
            status = remove_list(remover, is_backlog ? collection : NULL, ret_error);
        report_results(collection, is_backlog);
        /* A backlog exists because collections were killed: this one may be killed too, and the next one continues from
         * here. */
        if (status == AOTICACHE_OK && (is_backlog || collection->done_count > MAX_DONE))
            status = aoticache_collection_forget_done(collection, ret_error);
    } while (status == AOTICACHE_OK && remover->count == LISTED && !remover->index_is_replaced &&
             !(is_backlog && collection->is_stopped));
    return status;
}

aoticache_status aoticache_collection_forget_done(aoticache_collection *collection, aoticache_error *ret_error)
{
    aoticache_status status =
        aoticache_index_forget_removals(collection->index, collection->done, collection->done_count, ret_error);
    collection->done_count = 0;
    return status;
}

/* ---- in the background ---- */

static void *remove_in_background(void *argument)
{
    aoticache_remover *remover = argument;
    remover->status = remove_list(remover, NULL, &remover->error);
    if (remover->background_log != NULL)
        aoticache_index_checkpoint(remover->background_log);
    return NULL;
}

static aoticache_index *connect_again(const aoticache_directory *directory, bool read_only)
{
    char path[AOTICACHE_INDEX_PATH_BYTES];
    aoticache_index *index = NULL;
    aoticache_index_options options = aoticache_cache_index_options(directory, path);
    options.read_only = read_only;
    options.logger = (aoticache_logger){.log = NULL}; /* the first connection has logged everything already */
    return aoticache_index_open(&options, &index, NULL) == AOTICACHE_OK ? index : NULL;
}

/* Returns false if there is no second connection. */
static bool connect_background(aoticache_remover *remover)
{
    if (remover->background_index != NULL)
        return true;
    remover->background_index = connect_again(remover->cache->directory, true);
    if (remover->background_index != NULL)
        remover->background_log = connect_again(remover->cache->directory, false);
    return remover->background_index != NULL;
}

aoticache_status aoticache_collection_start_removal(aoticache_collection *collection, aoticache_error *ret_error)
{
    aoticache_remover *remover = &collection->remover;
    aoticache_status status = make_durable(collection, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_collection_finish_removal(collection, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (!connect_background(remover))
        return aoticache_collection_remove_files(collection, false, ret_error);
    status = list_next(collection, LISTED_BACKGROUND, ret_error);
    if (status != AOTICACHE_OK || remover->count == 0)
        return status;
    const bool may_be_more = remover->count == LISTED_BACKGROUND;
    remover->index = remover->background_index;
    remover->error.message[0] = '\0';
    remover->is_running = aoticache_threads_start(&remover->thread, 1, NULL, remove_in_background, remover) == 1;
    if (!remover->is_running) {
        remover->index = collection->index;
        status = remove_list(remover, NULL, ret_error);
        report_results(collection, false);
    }
    if (status != AOTICACHE_OK || !may_be_more)
        return status;
    status = aoticache_collection_finish_removal(collection, ret_error);
    return status == AOTICACHE_OK ? aoticache_collection_remove_files(collection, false, ret_error) : status;
}

aoticache_status aoticache_collection_finish_removal(aoticache_collection *collection, aoticache_error *ret_error)
{
    aoticache_remover *remover = &collection->remover;
    if (!remover->is_running)
        return AOTICACHE_OK;
    pthread_join(remover->thread, NULL);
    remover->is_running = false;
    report_results(collection, false);
    if (remover->status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, remover->status, "%s", remover->error.message);
    return AOTICACHE_OK;
}

void aoticache_collection_close_remover(aoticache_collection *collection)
{
    aoticache_remover *remover = &collection->remover;
    aoticache_collection_finish_removal(collection, NULL);
    aoticache_index_close(remover->background_index);
    aoticache_index_close(remover->background_log);
    aoticache_thread_pool_free(remover->pool);
    free(remover->removals);
    free(remover->done);
}
