/*
 * cache/gc/thread_pool: the existing threads do the work, and no thread begins after the caller has waited.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <time.h>

#include "cache/gc/thread_pool.h"

static atomic_int begun, ended, at_once, most;
static atomic_bool is_open;

static void pause_us(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static void count(void *argument)
{
    atomic_fetch_add((atomic_int *)argument, 1);
}

static void stand(void *argument)
{
    (void)argument;
    int now = atomic_fetch_add(&at_once, 1) + 1, seen = atomic_load(&most);
    while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now))
        ;
    atomic_fetch_add(&begun, 1);
    while (!atomic_load(&is_open))
        pause_us(100);
    atomic_fetch_sub(&at_once, 1);
    atomic_fetch_add(&ended, 1);
}

Test(team, nothing_is_under_way_after_wait)
{
    aoticache_thread_pool *team = aoticache_thread_pool_new();
    cr_assert_not_null(team);
    aoticache_thread_pool_wait(team);
    for (int round = 0; round < 2000; round++) {
        atomic_int done = 0; /* gone after this round: a late thread would write into reused memory */
        aoticache_thread_pool_start(team, 4, count, &done);
        aoticache_thread_pool_wait(team);
        cr_assert_leq(atomic_load(&done), 4);
    }
    aoticache_thread_pool_free(team);
    aoticache_thread_pool_free(NULL);
}

Test(team, as_many_work_at_once_as_are_asked_for)
{
    aoticache_thread_pool *team = aoticache_thread_pool_new();
    aoticache_thread_pool_start(team, 3, stand, NULL);
    while (atomic_load(&begun) < 3)
        pause_us(100);
    atomic_store(&is_open, true);
    aoticache_thread_pool_wait(team);
    cr_assert_eq(atomic_load(&ended), 3);
    atomic_store(&is_open, false);
    aoticache_thread_pool_start(team, 5, stand, NULL); /* two more threads */
    while (atomic_load(&begun) < 8)
        pause_us(100);
    atomic_store(&is_open, true);
    aoticache_thread_pool_wait(team);
    cr_assert_eq(atomic_load(&ended), 8);
    cr_assert_eq(atomic_load(&most), 5);
    aoticache_thread_pool_free(team);
}

Test(team, none_and_far_too_many)
{
    aoticache_thread_pool *team = aoticache_thread_pool_new();
    atomic_int done = 0;
    aoticache_thread_pool_start(team, 0, count, &done);
    aoticache_thread_pool_wait(team);
    cr_assert_eq(atomic_load(&done), 0);
    aoticache_thread_pool_start(team, 1000000, count, &done);
    aoticache_thread_pool_wait(team);
    aoticache_thread_pool_free(team);
}
