/*
 * base/threads: starts the library's threads, and waits with a limit.
 *
 * Private. Signals must only reach the program's own threads: a signal that is delivered to a thread of this library would
 * interrupt code that does not expect it.
 */
#ifndef AOTICACHE_BASE_THREADS_H
#define AOTICACHE_BASE_THREADS_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Starts up to `count` threads to which no signal is delivered. attributes: may be NULL. Returns how many were started. */
static inline size_t aoticache_threads_start(pthread_t *ret_threads, size_t count, const pthread_attr_t *attributes,
                                             void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    size_t started = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < count && pthread_create(&ret_threads[started], attributes, run, argument) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* Returns whether aoticache_compiles_cancel() was called. A thread that waits for a compile checks this periodically, and
 * gives up. */
bool aoticache_compiles_are_cancelled(void);

/* Initializes a condition whose timed waits use CLOCK_MONOTONIC, which nobody sets; for deadlines of
 * aoticache_deadline_after(). */
static inline void aoticache_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static inline struct timespec aoticache_deadline_after(uint64_t nanoseconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    nanoseconds += (uint64_t)at.tv_nsec;
    at.tv_sec += (time_t)(nanoseconds / 1000000000u);
    at.tv_nsec = (long)(nanoseconds % 1000000000u);
    return at;
}

#endif
