/*
 * tools/aoticache/warm/work: gets the kernels of a list, several concurrently.
 *
 * Threads take requests one after the other; the main thread shows the progress and reports failures immediately, so that
 * only one thread writes to the terminal. The main thread receives signals.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/threads.h"
#include "tools/aoticache/warm/warm_internal.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define PROGRESS_AFTER_NS 500000000u
#define TICK_NS 200000000

struct work {
    aoticache_warm_work *what;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t next, done;
    const aoticache_warm_item **finished; /* in the order in which they finished */
    bool stop;
};

/* ---- one request ---- */

static void fail(aoticache_warm_item *item, aoticache_status status, const aoticache_error *error)
{
    const char *message = error->message[0] != '\0' ? error->message : aoticache_status_text(status);
    item->result = status == AOTICACHE_UNSUPPORTED ? AOTICACHE_WARM_UNSUPPORTED : AOTICACHE_WARM_FAILED;
    item->message = aoticache_cli_text("%s", message);
}

static aoticache_status prepare(const aoticache_warm_work *what, aoticache_warm_item *item, aoticache_error *error)
{
    aoticache_status status = aoticache_hook_set_environment(what->hook, item->request, error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_key(item->request, &item->key, error);
    item->has_key = status == AOTICACHE_OK;
    if (status == AOTICACHE_OK && what->retry && what->cache != NULL && !what->dry_run)
        status = aoticache_cache_forget_failures(what->cache, &item->key, error);
    return status;
}

static void lookup_item(const aoticache_warm_work *what, aoticache_warm_item *item)
{
    aoticache_error error = {.message = ""};
    aoticache_artifact *artifact = NULL;
    aoticache_status status = prepare(what, item, &error);
    if (status == AOTICACHE_OK)
        status = what->cache != NULL ? aoticache_cache_lookup(what->cache, item->request, NULL, &artifact, &error)
                                     : AOTICACHE_NOT_FOUND;
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND)
        item->result = status == AOTICACHE_OK ? AOTICACHE_WARM_THERE : AOTICACHE_WARM_MISSING;
    else
        fail(item, status, &error);
    aoticache_artifact_unref(artifact);
}

static void get_or_compile(const aoticache_warm_work *what, aoticache_warm_item *item)
{
    aoticache_error error = {.message = ""};
    aoticache_artifact *artifact = NULL;
    aoticache_status status = prepare(what, item, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_get_or_compile(what->cache, item->request, NULL, aoticache_hook_compile, what->hook,
                                                &artifact, &error);
    if (status != AOTICACHE_OK) {
        fail(item, status, &error);
        return;
    }
    aoticache_source source = aoticache_artifact_get_info(artifact)->source;
    item->result = source == AOTICACHE_SOURCE_INDEX || source == AOTICACHE_SOURCE_FETCHED ? AOTICACHE_WARM_THERE
                   : source == AOTICACHE_SOURCE_COMPILED                                  ? AOTICACHE_WARM_COMPILED
                                                                                          : AOTICACHE_WARM_WAITED;
    item->compile_ns = source == AOTICACHE_SOURCE_COMPILED ? aoticache_artifact_get_info(artifact)->compile_ns : 0;
    if (!aoticache_artifact_get_info(artifact)->is_stored) {
        aoticache_error_set(&error, AOTICACHE_IO, "it was compiled, but could not be stored");
        fail(item, AOTICACHE_IO, &error);
    }
    aoticache_artifact_unref(artifact);
}

static void fetch_item(const aoticache_warm_work *what, aoticache_warm_item *item)
{
    aoticache_error error = {.message = ""};
    bool is_fetched = false;
    aoticache_status status = prepare(what, item, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_prefetch(what->cache, item->request, &is_fetched, &error);
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND)
        item->result = status != AOTICACHE_OK ? AOTICACHE_WARM_MISSING
                       : is_fetched           ? AOTICACHE_WARM_FETCHED
                                              : AOTICACHE_WARM_THERE;
    else
        fail(item, status, &error);
}

/* ---- threads ---- */

static aoticache_warm_item *next_item(struct work *work)
{
    pthread_mutex_lock(&work->lock);
    bool is_over = work->stop || work->next == work->what->list->count;
    aoticache_warm_item *item = is_over ? NULL : &work->what->list->items[work->next++];
    pthread_mutex_unlock(&work->lock);
    return item;
}

static void *work_through_list(void *argument)
{
    struct work *work = argument;
    for (aoticache_warm_item *item; (item = next_item(work)) != NULL;) {
        if (work->what->dry_run)
            lookup_item(work->what, item);
        else if (work->what->fetches)
            fetch_item(work->what, item);
        else
            get_or_compile(work->what, item);
        pthread_mutex_lock(&work->lock);
        work->finished[work->done++] = item;
        work->stop |= item->message != NULL && work->what->fail_fast;
        pthread_cond_signal(&work->changed);
        pthread_mutex_unlock(&work->lock);
    }
    return NULL;
}

/* ---- the main thread ---- */

/* Returns whether everything is done, or nothing more is started and everything started is done. */
static bool is_over(const struct work *work)
{
    return work->done == work->what->list->count || (work->stop && work->done == work->next);
}

static void report_until_over(struct work *work)
{
    aoticache_cli_progress progress = {.cli = work->what->cli,
                                       .what = work->what->dry_run ? "kernels looked up" : "kernels"};
    uint64_t begun = aoticache_monotonic_ns();
    bool over = false;
    for (size_t told = 0; !over;) {
        pthread_mutex_lock(&work->lock);
        const struct timespec tick = aoticache_deadline_after(TICK_NS);
        if (work->done == told && !is_over(work))
            pthread_cond_timedwait(&work->changed, &work->lock, &tick);
        over = is_over(work);
        size_t done = work->done;
        pthread_mutex_unlock(&work->lock);
        for (; told < done; told++) {
            const aoticache_warm_item *item = work->finished[told];
            if (item->message == NULL && !work->what->cli->verbose)
                continue;
            aoticache_cli_progress_clear(&progress);
            work->what->tell(work->what->cli, item);
        }
        if (!over && aoticache_monotonic_ns() - begun >= PROGRESS_AFTER_NS)
            aoticache_cli_progress_show(&progress, done, work->what->list->count);
    }
    aoticache_cli_progress_clear(&progress);
}

void aoticache_warm_run(aoticache_warm_work *what)
{
    struct work work = {.what = what, .lock = PTHREAD_MUTEX_INITIALIZER};
    size_t wanted = what->jobs < what->list->count ? what->jobs : what->list->count;
    if (wanted == 0)
        return;
    aoticache_condition_init(&work.changed);
    work.finished = aoticache_cli_allocate(what->list->count, sizeof(void *));
    pthread_t *threads = aoticache_cli_allocate(wanted, sizeof *threads);
    size_t started = aoticache_threads_start(threads, wanted, NULL, work_through_list, &work);
    if (started == 0)
        work_through_list(&work);
    report_until_over(&work);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_cond_destroy(&work.changed);
    free(threads);
    free(work.finished);
}
