/*
 * The order between the fast path, runs and changes, step by step on one thread, and with a second one that must wait.
 */
#include "loader/runner/run_lock.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <time.h>

static void *enter_shared(void *lock)
{
    aoticache_run_lock_register(lock);
    aoticache_run_lock_enter_shared(lock);
    return lock;
}

static void *enter_exclusive(void *lock)
{
    aoticache_run_lock_register(lock);
    aoticache_run_lock_enter_exclusive(lock);
    return lock;
}

static void *enter_registered(void *lock)
{
    aoticache_run_lock_register(lock);
    return lock;
}

/* Starts a thread and checks that it still waits after some time. */
static pthread_t expect_waiting(void *(*enter)(void *), aoticache_run_lock *lock, long ms)
{
    pthread_t thread;
    void *result = NULL;
    cr_assert_eq(pthread_create(&thread, NULL, enter, lock), 0);
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
    cr_assert_neq(pthread_tryjoin_np(thread, &result), 0, "it did not wait");
    return thread;
}

/* A new thread may take longer to begin than any time that a test could wait for it. */
static void await_waiting_run(aoticache_run_lock *lock)
{
    while (atomic_load(&lock->waiting) == 0)
        sched_yield();
}

/* Waits for a change, which announces itself by the highest bit (loader/runner/run_lock.c). */
static void await_waiting_change(aoticache_run_lock *lock)
{
    while (atomic_load(&lock->inside) >> 31 == 0)
        sched_yield();
}

Test(run_lock, fast_path_is_one_at_a_time_and_closed_while_anybody_is_registered)
{
    aoticache_run_lock lock;
    aoticache_run_lock_init(&lock, 1, false);
    cr_assert(aoticache_run_lock_try_single(&lock));
    cr_assert_not(aoticache_run_lock_try_single(&lock));
    aoticache_run_lock_leave_single(&lock);
    aoticache_run_lock_register(&lock);
    cr_assert_not(aoticache_run_lock_try_single(&lock));
    aoticache_run_lock_unregister(&lock);
    cr_assert(aoticache_run_lock_try_single(&lock));
    aoticache_run_lock_leave_single(&lock);
    aoticache_run_lock_block_single(&lock);
    cr_assert_not(aoticache_run_lock_try_single(&lock));
    aoticache_run_lock_unblock_single(&lock);
    cr_assert(aoticache_run_lock_try_single(&lock));
    pthread_t thread = expect_waiting(enter_registered, &lock, 5);
    aoticache_run_lock_leave_single(&lock);
    pthread_join(thread, NULL);
    cr_assert_not(aoticache_run_lock_try_single(&lock));
    aoticache_run_lock_destroy(&lock);
}

Test(run_lock, pool_only_never_takes_the_fast_path)
{
    aoticache_run_lock lock;
    aoticache_run_lock_init(&lock, 2, true);
    cr_assert_not(aoticache_run_lock_try_single(&lock));
    enter_shared(&lock);
    aoticache_run_lock_leave_shared(&lock);
    aoticache_run_lock_unregister(&lock);
    cr_assert_not(aoticache_run_lock_try_single(&lock));
    aoticache_run_lock_destroy(&lock);
}

/* Lets runs wait. 5 ms: sleeping; 40 ms: long enough to be starving. */
static void runs_wait_for_a_place(long ms)
{
    aoticache_run_lock lock;
    aoticache_run_lock_init(&lock, 2, false);
    enter_shared(&lock);
    enter_shared(&lock);
    pthread_t thread = expect_waiting(enter_shared, &lock, ms);
    aoticache_run_lock_leave_shared(&lock);
    pthread_join(thread, NULL);
    cr_assert_eq(lock.waiting, 0);
    cr_assert_eq(lock.starving, 0);
    aoticache_run_lock_leave_shared(&lock);
    aoticache_run_lock_leave_shared(&lock);
    cr_assert_eq(lock.inside, 0);
    aoticache_run_lock_destroy(&lock);
}

Test(run_lock, runs_beyond_the_limit_wait)
{
    runs_wait_for_a_place(5);
}

Test(run_lock, run_that_waited_long_still_comes_in_once)
{
    runs_wait_for_a_place(40);
}

Test(run_lock, change_waits_for_runs_and_runs_for_it)
{
    aoticache_run_lock lock;
    aoticache_run_lock_init(&lock, 2, false);
    enter_shared(&lock);
    pthread_t change = expect_waiting(enter_exclusive, &lock, 5);
    await_waiting_change(&lock);
    pthread_t run = expect_waiting(enter_shared, &lock, 5); /* after the change, though there is space for a run */
    aoticache_run_lock_leave_shared(&lock);
    pthread_join(change, NULL);
    cr_assert_neq(pthread_tryjoin_np(run, NULL), 0);
    aoticache_run_lock_leave_exclusive(&lock);
    pthread_join(run, NULL);
    aoticache_run_lock_leave_shared(&lock);
    enter_exclusive(&lock);
    aoticache_run_lock_leave_exclusive(&lock);
    cr_assert_eq(lock.inside, 0);
    aoticache_run_lock_destroy(&lock);
}

/* A run that waited for a change is inside before the next change begins, however soon that follows. */
Test(run_lock, run_comes_between_two_changes)
{
    aoticache_run_lock lock;
    aoticache_run_lock_init(&lock, 1, false);
    enter_exclusive(&lock);
    pthread_t run = expect_waiting(enter_shared, &lock, 5);
    await_waiting_run(&lock);
    aoticache_run_lock_leave_exclusive(&lock);
    pthread_t change = expect_waiting(enter_exclusive, &lock, 5);
    pthread_join(run, NULL);
    cr_assert_neq(pthread_tryjoin_np(change, NULL), 0);
    aoticache_run_lock_leave_shared(&lock);
    pthread_join(change, NULL);
    aoticache_run_lock_leave_exclusive(&lock);
    aoticache_run_lock_destroy(&lock);
}
