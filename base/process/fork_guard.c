/*
 * base/process/fork_guard: counts the threads inside the dynamic linker, and makes forks wait for them.
 *
 * Loads do not exclude each other: a thread that is already inside the dynamic linker for other code, in the constructor of
 * a plugin, may enter here, and must not wait for a thread that waits for the linker. For the same reason no wait is
 * unlimited: a load lets a waiting fork go first, but only for a short time, and a fork continues after some seconds as if
 * there were no guard.
 */
#include "base/process/fork_guard.h"
#include "base/threads.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#define LOAD_WAITS_NS UINT64_C(10000000)
#define FORK_WAITS_NS UINT64_C(5000000000)

static pthread_once_t guard_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t left;   /* a thread has left */
static pthread_cond_t forked; /* no fork is waiting any longer */
static unsigned long inside;  /* number of enters without a leave, of all threads */
static unsigned forks_waiting;
static __thread unsigned long mine; /* this thread's share of `inside` */

static void make_conditions(void)
{
    aoticache_condition_init(&left);
    aoticache_condition_init(&forked);
}

/* Takes the lock until the fork is over. A fork inside a constructor does not wait for its own thread. */
static void before_fork(void)
{
    int saved = errno;
    struct timespec until = aoticache_deadline_after(FORK_WAITS_NS);
    pthread_mutex_lock(&lock);
    forks_waiting++;
    while (inside > mine && pthread_cond_timedwait(&left, &lock, &until) == 0)
        continue;
    forks_waiting--;
    errno = saved;
}

static void after_fork(void)
{
    if (forks_waiting == 0)
        pthread_cond_broadcast(&forked);
    pthread_mutex_unlock(&lock);
}

/* Forgets the other threads: they do not exist in the child, so they neither wait nor leave. */
static void after_fork_in_child(void)
{
    inside = mine;
    forks_waiting = 0;
    make_conditions();
    pthread_mutex_unlock(&lock);
}

static void make_guard(void)
{
    make_conditions();
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

void aoticache_fork_guard_enter(void)
{
    pthread_once(&guard_once, make_guard);
    pthread_mutex_lock(&lock);
    if (mine == 0 && forks_waiting > 0) {
        struct timespec until = aoticache_deadline_after(LOAD_WAITS_NS);
        while (forks_waiting > 0 && pthread_cond_timedwait(&forked, &lock, &until) == 0)
            continue;
    }
    inside++;
    mine++;
    pthread_mutex_unlock(&lock);
}

void aoticache_fork_guard_leave(void)
{
    int saved = errno;
    pthread_mutex_lock(&lock);
    inside--;
    mine--;
    if (forks_waiting > 0)
        pthread_cond_broadcast(&left);
    pthread_mutex_unlock(&lock);
    errno = saved;
}
