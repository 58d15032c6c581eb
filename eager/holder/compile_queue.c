/*
 * eager/holder/compile_queue: background compiles: a bounded queue of misses and the threads that work it off. Threads begin when
 * there is work for them and end with the eager. A child after fork() has neither the threads nor the jobs of its parent.
 */
#include "base/threads.h"
#include "eager/holder/state.h"

#include <stdlib.h>
#include <unistd.h>

static void job_free(aoticache_job *job)
{
    if (job->wanted.miss_state != NULL)
        atomic_store(&job->wanted.miss_state->queued, 0);
    aoticache_wanted_free(&job->wanted);
    aoticache_holder_unref(job->holder);
    free(job);
}

static void free_jobs(aoticache_job *job)
{
    for (aoticache_job *next; job != NULL; job = next) {
        next = job->next;
        job_free(job);
    }
}

/* Under eager->lock. */
static aoticache_job *take_first(aoticache_context *eager)
{
    aoticache_job *job = eager->first;
    eager->first = job->next;
    if (eager->first == NULL)
        eager->last = &eager->first;
    eager->queued--;
    return job;
}

static void work(aoticache_job *job)
{
    aoticache_error error;
    aoticache_held *held = NULL;
    aoticache_status status = aoticache_holder_compile(job->holder, &job->wanted, &held, &error);
    if (status == AOTICACHE_OK && held->check != NULL)
        aoticache_holder_add_alias(job->holder, job->wanted.packed, held);
}

/* Nobody but jobs has a reference to the holder any more. Under eager->lock. */
static bool is_abandoned(const aoticache_job *job)
{
    return atomic_load(&job->holder->references) <= job->holder->jobs;
}

/* Under eager->lock, which is let go during the compile. */
static void *work_off(void *user)
{
    aoticache_context *eager = user;
    pthread_mutex_lock(&eager->lock);
    while (!eager->ending) {
        if (eager->first == NULL) {
            eager->idle++;
            pthread_cond_wait(&eager->changed, &eager->lock);
            eager->idle--;
            continue;
        }
        aoticache_job *job = take_first(eager);
        bool abandoned = is_abandoned(job);
        job->holder->jobs--;
        eager->running++;
        pthread_mutex_unlock(&eager->lock);
        if (!abandoned)
            work(job);
        job_free(job);
        aoticache_epoch_reclaim();
        pthread_mutex_lock(&eager->lock);
        eager->running--;
        pthread_cond_broadcast(&eager->changed);
    }
    eager->threads--;
    pthread_cond_broadcast(&eager->changed);
    pthread_mutex_unlock(&eager->lock);
    return NULL;
}

/* Under eager->lock. */
static bool start_thread(aoticache_context *eager)
{
    pthread_t thread;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const bool started = aoticache_threads_start(&thread, 1, &attributes, work_off, eager) == 1;
    pthread_attr_destroy(&attributes);
    eager->threads += started;
    return started;
}

/* All that is queued, taken off. Under eager->lock. */
static aoticache_job *take_all(aoticache_context *eager)
{
    aoticache_job *jobs = eager->first;
    for (aoticache_job *job = jobs; job != NULL; job = job->next)
        job->holder->jobs--;
    eager->first = NULL;
    eager->last = &eager->first;
    eager->queued = 0;
    return jobs;
}

/* What fork() copied of the parent's queue belongs to threads that are not there: to be freed. Under eager->lock. */
static aoticache_job *begin_anew_after_fork(aoticache_context *eager)
{
    if (eager->owner == (int)getpid())
        return NULL;
    eager->owner = (int)getpid();
    eager->threads = eager->idle = eager->running = 0;
    return take_all(eager);
}

bool aoticache_queue_add(aoticache_holder *holder, aoticache_wanted *wanted)
{
    aoticache_context *eager = holder->eager;
    aoticache_job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return false;
    pthread_mutex_lock(&eager->lock);
    aoticache_job *parents = begin_anew_after_fork(eager);
    bool room = !eager->ending && eager->queued < eager->queue_length;
    if (room && eager->idle <= eager->queued && eager->threads < eager->max_threads)
        start_thread(eager);
    bool added = room && eager->threads > 0;
    if (added) {
        *job = (aoticache_job){.holder = aoticache_holder_ref(holder), .wanted = *wanted};
        *wanted = (aoticache_wanted){.exact = NULL};
        *eager->last = job;
        eager->last = &job->next;
        eager->queued++;
        holder->jobs++;
        pthread_cond_broadcast(&eager->changed);
    }
    pthread_mutex_unlock(&eager->lock);
    if (!added)
        free(job);
    free_jobs(parents);
    return added;
}

void aoticache_queue_end(aoticache_context *eager)
{
    pthread_mutex_lock(&eager->lock);
    aoticache_job *parents = begin_anew_after_fork(eager);
    eager->ending = true;
    aoticache_job *dropped = take_all(eager);
    pthread_cond_broadcast(&eager->changed);
    while (eager->threads > 0)
        pthread_cond_wait(&eager->changed, &eager->lock);
    pthread_mutex_unlock(&eager->lock);
    free_jobs(parents);
    free_jobs(dropped);
}
