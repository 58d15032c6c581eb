/*
 * base/threads: threads beside a program's own.
 *
 * Private. Signals are the program's business, and its threads': one that is delivered to a thread which the program does
 * not know would interrupt what it cannot expect.
 */
#ifndef AOTICACHE_BASE_THREADS_H
#define AOTICACHE_BASE_THREADS_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* Up to `count` threads that no signal is delivered to. attributes: may be NULL. Returns how many there are. */
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

#endif
