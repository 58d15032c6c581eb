/*
 * cache/gc/background_removal: what is done beside the transactions of a round by a thread of its own: the files of the round
 * before go, and the index's log is merged up to there.
 *
 * Removing files is mostly waiting for the disk, taking rows out is a processor's work, merging is both. The thread uses
 * the index by connections of its own: that of the collection is busy, and whoever waits for it must not have the store
 * locked. It works on a collection of its own, with nothing in it but what removing files needs, whose results are added
 * when it has ended.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/threads.h"
#include "cache/gc/collection.h"

#define IN_FLIGHT 8192 /* what a round of entries with a few objects each leaves */

struct aoticache_collection_flight {
    aoticache_collection own;
    aoticache_index_removal removals[IN_FLIGHT];
    size_t count;
    aoticache_index *writable; /* to merge with; NULL: the collection's own does, when the log is very long */
    aoticache_status status;
    aoticache_error error;
    pthread_t thread;
    bool is_up; /* the thread is there; all above is its business */
};

static void *fly(void *argument)
{
    struct aoticache_collection_flight *flight = argument;
    flight->status =
        aoticache_collection_remove_listed(&flight->own, flight->removals, flight->count, &flight->error);
    if (flight->writable != NULL)
        aoticache_index_checkpoint(flight->writable);
    return NULL;
}

static aoticache_index *connect_again(const aoticache_directory *directory, bool read_only)
{
    char path[AOTICACHE_INDEX_PATH_BYTES];
    aoticache_index *index = NULL;
    aoticache_index_options options = aoticache_cache_index_options(directory, path);
    options.read_only = read_only;
    options.logger = (aoticache_logger){.log = NULL}; /* what there is to say the first connection has said */
    return aoticache_index_open(&options, &index, NULL) == AOTICACHE_OK ? index : NULL;
}

/* NULL: there is no memory, or no second connection. */
static struct aoticache_collection_flight *make_flight(aoticache_collection *collection)
{
    const aoticache_directory *directory = collection->cache->directory;
    struct aoticache_collection_flight *flight = calloc(1, sizeof *flight);
    if (flight == NULL)
        return NULL;
    flight->own.cache = collection->cache;
    flight->own.options = collection->options;
    flight->own.index = connect_again(directory, true);
    if (flight->own.index == NULL) {
        free(flight);
        return NULL;
    }
    flight->writable = connect_again(directory, false);
    return flight;
}

/* What has become of the files. */
static void add_results(aoticache_collection *collection, aoticache_collection *own)
{
    collection->report.objects_removed += own->report.objects_removed;
    collection->report.bytes_removed += own->report.bytes_removed;
    own->report = (aoticache_collect_report){.objects_removed = 0};
    for (size_t i = 0; i < own->done_count; i++)
        aoticache_collection_note_done(collection, own->done[i]);
    own->done_count = 0;
    if (collection->late_status == AOTICACHE_OK && own->late_status != AOTICACHE_OK) {
        collection->late_status = own->late_status;
        collection->late_error = own->late_error;
    }
    if (own->is_replaced)
        collection->is_replaced = collection->is_stopped = collection->report.is_partial = true;
}

aoticache_status aoticache_collection_land(aoticache_collection *collection, aoticache_error *ret_error)
{
    struct aoticache_collection_flight *flight = collection->flight;
    if (flight == NULL || !flight->is_up)
        return AOTICACHE_OK;
    pthread_join(flight->thread, NULL);
    flight->is_up = false;
    add_results(collection, &flight->own);
    if (flight->status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, flight->status, "%s", flight->error.message);
    return AOTICACHE_OK;
}

static aoticache_status take_off(aoticache_collection *collection, struct aoticache_collection_flight *flight,
                                 aoticache_error *ret_error)
{
    flight->error.message[0] = '\0';
    flight->is_up = aoticache_threads_start(&flight->thread, 1, NULL, fly, flight) == 1;
    return flight->is_up ? AOTICACHE_OK
                         : aoticache_collection_remove_listed(collection, flight->removals, flight->count, ret_error);
}

aoticache_status aoticache_collection_take_off(aoticache_collection *collection, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_collection_make_durable(collection, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_collection_land(collection, ret_error);
    if (status == AOTICACHE_OK && collection->flight == NULL)
        collection->flight = make_flight(collection);
    struct aoticache_collection_flight *flight = collection->flight;
    if (status != AOTICACHE_OK || flight == NULL)
        return status == AOTICACHE_OK ? aoticache_collection_remove_waiting(collection, ret_error) : status;
    status = aoticache_index_list_removals(collection->index, collection->removal_id, flight->removals, IN_FLIGHT,
                                           &flight->count, ret_error);
    if (status != AOTICACHE_OK || flight->count == 0)
        return status;
    collection->removal_id = flight->removals[flight->count - 1].id;
    status = take_off(collection, flight, ret_error);
    if (status != AOTICACHE_OK || flight->count < IN_FLIGHT)
        return status;
    status = aoticache_collection_land(collection, ret_error); /* there may be more than there is room for */
    return status == AOTICACHE_OK ? aoticache_collection_remove_waiting(collection, ret_error) : status;
}

void aoticache_collection_end_flights(aoticache_collection *collection)
{
    struct aoticache_collection_flight *flight = collection->flight;
    if (flight == NULL)
        return;
    aoticache_collection_land(collection, NULL);
    aoticache_index_close(flight->own.index);
    aoticache_index_close(flight->writable);
    aoticache_thread_pool_free(flight->own.pool);
    free(flight->own.done);
    free(flight);
    collection->flight = NULL;
}
