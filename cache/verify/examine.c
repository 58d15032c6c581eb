/*
 * cache/verify/examine: reads the objects of a batch in several threads.
 *
 * Each thread takes the next object of the sorted batch, so all objects before the first unseen one are done: another run
 * can continue there. The threads report and repair nothing; the caller's thread meanwhile checks whether to continue.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/threads.h"
#include "cache/verify/verify_internal.h"

#define MAX_JOBS 256
#define QUESTION_NS 50000000 /* between checks whether to continue */

struct pool {
    aoticache_verification *verification;
    aoticache_verify_batch *batch;
    atomic_size_t next; /* next item to take */
    atomic_size_t done;
    atomic_bool is_stopped;
    pthread_mutex_t mutex;
    pthread_cond_t finished;
    size_t running; /* protected by mutex */
};

/* ---- one object ---- */

static aoticache_status examine_names(aoticache_directory *directory, const char *path, aoticache_verify_item *item,
                                      aoticache_error *ret_error)
{
    struct stat found;
    cleanup_fd int fd = aoticache_directory_openat(directory, path, O_PATH);
    if (fd < 0 && errno == ENOENT)
        return AOTICACHE_NOT_FOUND;
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        return aoticache_error_set_errno(ret_error, errno, "cannot open %s", path);
    if (fd < 0 || fstat(fd, &found) != 0) {
        const bool is_damage = aoticache_object_errno_is_damage(errno);
        aoticache_error_set_errno(ret_error, errno, "cannot open %s", path);
        return is_damage ? AOTICACHE_CORRUPT : AOTICACHE_DENIED;
    }
    item->bytes = (uint64_t)found.st_size;
    if (aoticache_directory_trust(directory, &found, S_IFREG, path, ret_error) != AOTICACHE_OK)
        return AOTICACHE_CORRUPT;
    if (item->named_bytes != AOTICACHE_OBJECT_ANY_SIZE && item->named_bytes != item->bytes)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s: %llu bytes on disk, the index says %llu", path,
                                   (unsigned long long)item->bytes, (unsigned long long)item->named_bytes);
    return AOTICACHE_OK;
}

aoticache_status aoticache_verify_item_examine(aoticache_directory *directory, bool is_quick,
                                               aoticache_continue_fn is_running, void *user,
                                               aoticache_verify_item *item, aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    cleanup_fd int fd = -1;
    aoticache_object_path(&item->digest, path);
    if (is_quick)
        return examine_names(directory, path, item, ret_error);
    const uint64_t expected = aoticache_object_size_to_expect(directory, &item->digest, item->named_bytes);
    return aoticache_object_open_while(directory, &item->digest, expected, is_running, user, &fd, &item->bytes,
                                       ret_error);
}

/* Called by the threads; the caller's thread checks the clock and calls the caller. */
static bool is_running(void *user)
{
    const struct pool *pool = user;
    return !atomic_load_explicit(&pool->is_stopped, memory_order_relaxed);
}

static void examine(struct pool *pool, aoticache_verify_item *item)
{
    aoticache_verification *verification = pool->verification;
    bool is_manifest = !verification->options.quick && item->claim_count > 0;
    aoticache_status compared = AOTICACHE_OK;
    int64_t entry_id;
    /* Reading a manifest verifies its digest: only if something is wrong it is read again to find out what. */
    if (is_manifest) {
        compared = aoticache_verify_item_compare(verification->cache, item, &entry_id, NULL);
        item->verdict = AOTICACHE_OBJECT_SOUND;
        if (compared == AOTICACHE_OK)
            return;
    }
    aoticache_status status = aoticache_verify_item_examine(verification->cache->directory, verification->options.quick,
                                                            is_running, pool, item, NULL);
    if (status == AOTICACHE_IO && !is_running(pool))
        item->verdict = AOTICACHE_OBJECT_UNSEEN;
    else if (status == AOTICACHE_NOT_FOUND)
        item->verdict = AOTICACHE_OBJECT_GONE;
    else if (status != AOTICACHE_OK)
        item->verdict = AOTICACHE_OBJECT_SUSPECT;
    else
        item->verdict = compared == AOTICACHE_OK || compared == AOTICACHE_UNSUPPORTED ? AOTICACHE_OBJECT_SOUND
                                                                                      : AOTICACHE_OBJECT_CONTRADICTED;
}

/* ---- threads ---- */

static void examine_items(struct pool *pool)
{
    while (!atomic_load_explicit(&pool->is_stopped, memory_order_relaxed)) {
        size_t i = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (i >= pool->batch->count)
            return;
        examine(pool, &pool->batch->items[i]);
        atomic_fetch_add_explicit(&pool->done, 1, memory_order_relaxed);
    }
}

static void *examine_in_thread(void *user)
{
    struct pool *pool = user;
    examine_items(pool);
    pthread_mutex_lock(&pool->mutex);
    pool->running--;
    if (pool->running == 0)
        pthread_cond_signal(&pool->finished);
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

static size_t count_jobs(const aoticache_verification *verification, size_t items)
{
    cpu_set_t allowed;
    size_t jobs = verification->options.jobs;
    if (jobs == 0)
        jobs = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? (size_t)CPU_COUNT(&allowed) : 1;
    if (jobs > MAX_JOBS)
        jobs = MAX_JOBS;
    return jobs < items ? jobs : items;
}

/* Returns how many threads were started. */
static size_t start(struct pool *pool, size_t jobs, pthread_t threads[MAX_JOBS])
{
    pthread_mutex_lock(&pool->mutex);
    pool->running = aoticache_threads_start(threads, jobs, NULL, examine_in_thread, pool);
    const size_t count = pool->running;
    pthread_mutex_unlock(&pool->mutex);
    return count;
}

static void wait_for(struct pool *pool)
{
    const uint64_t before = pool->verification->report.objects;
    pthread_mutex_lock(&pool->mutex);
    while (pool->running > 0) {
        const struct timespec until = aoticache_deadline_after(QUESTION_NS);
        if (pthread_cond_timedwait(&pool->finished, &pool->mutex, &until) != ETIMEDOUT)
            continue;
        pthread_mutex_unlock(&pool->mutex);
        if (!aoticache_verification_poll(pool->verification, before + atomic_load(&pool->done)))
            atomic_store(&pool->is_stopped, true);
        pthread_mutex_lock(&pool->mutex);
    }
    pthread_mutex_unlock(&pool->mutex);
}

void aoticache_verification_examine(aoticache_verification *verification, aoticache_verify_batch *batch)
{
    struct pool pool = {.verification = verification, .batch = batch};
    pthread_t threads[MAX_JOBS];
    pthread_mutex_init(&pool.mutex, NULL);
    aoticache_condition_init(&pool.finished);
    size_t count = start(&pool, count_jobs(verification, batch->count), threads);
    if (count == 0)
        examine_items(&pool); /* no thread could be started */
    wait_for(&pool);
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    pthread_cond_destroy(&pool.finished);
    pthread_mutex_destroy(&pool.mutex);
}
