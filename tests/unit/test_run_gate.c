/*
 * The order between the fast path, runs and changes, step by step on one thread, and with a second one that must wait.
 */
#include "loader/runner/run_gate.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <time.h>

static void *enter_shared(void *gate)
{
    aoticache_run_gate_register(gate);
    aoticache_run_gate_enter_shared(gate);
    return gate;
}

static void *enter_exclusive(void *gate)
{
    aoticache_run_gate_register(gate);
    aoticache_run_gate_enter_exclusive(gate);
    return gate;
}

static void *enter_registered(void *gate)
{
    aoticache_run_gate_register(gate);
    return gate;
}

/* Starts a thread and makes sure that it has not come through after some time. */
static pthread_t expect_waiting(void *(*enter)(void *), aoticache_run_gate *gate, long ms)
{
    pthread_t thread;
    void *result = NULL;
    cr_assert_eq(pthread_create(&thread, NULL, enter, gate), 0);
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
    cr_assert_neq(pthread_tryjoin_np(thread, &result), 0, "it did not wait");
    return thread;
}

/* A new thread may take longer to begin than any time that a test could wait for it. */
static void await_waiting_run(aoticache_run_gate *gate)
{
    while (atomic_load(&gate->waiting) == 0)
        sched_yield();
}

/* It has announced itself by the highest bit (loader/runner/run_gate.c). */
static void await_waiting_change(aoticache_run_gate *gate)
{
    while (atomic_load(&gate->inside) >> 31 == 0)
        sched_yield();
}

Test(run_gate, fast_path_is_one_at_a_time_and_closed_while_anybody_is_registered)
{
    aoticache_run_gate gate;
    aoticache_run_gate_init(&gate, 1, false);
    cr_assert(aoticache_run_gate_try_single(&gate));
    cr_assert_not(aoticache_run_gate_try_single(&gate));
    aoticache_run_gate_leave_single(&gate);
    aoticache_run_gate_register(&gate);
    cr_assert_not(aoticache_run_gate_try_single(&gate));
    aoticache_run_gate_unregister(&gate);
    cr_assert(aoticache_run_gate_try_single(&gate));
    aoticache_run_gate_leave_single(&gate);
    aoticache_run_gate_block_single(&gate);
    cr_assert_not(aoticache_run_gate_try_single(&gate));
    aoticache_run_gate_unblock_single(&gate);
    cr_assert(aoticache_run_gate_try_single(&gate));
    pthread_t thread = expect_waiting(enter_registered, &gate, 5);
    aoticache_run_gate_leave_single(&gate);
    pthread_join(thread, NULL);
    cr_assert_not(aoticache_run_gate_try_single(&gate));
    aoticache_run_gate_destroy(&gate);
}

Test(run_gate, pool_only_never_takes_the_fast_path)
{
    aoticache_run_gate gate;
    aoticache_run_gate_init(&gate, 2, true);
    cr_assert_not(aoticache_run_gate_try_single(&gate));
    enter_shared(&gate);
    aoticache_run_gate_leave_shared(&gate);
    aoticache_run_gate_unregister(&gate);
    cr_assert_not(aoticache_run_gate_try_single(&gate));
    aoticache_run_gate_destroy(&gate);
}

/* 5 ms: sleeping; 40 ms: long enough to be starving. */
static void runs_wait_for_a_place(long ms)
{
    aoticache_run_gate gate;
    aoticache_run_gate_init(&gate, 2, false);
    enter_shared(&gate);
    enter_shared(&gate);
    pthread_t thread = expect_waiting(enter_shared, &gate, ms);
    aoticache_run_gate_leave_shared(&gate);
    pthread_join(thread, NULL);
    cr_assert_eq(gate.waiting, 0);
    cr_assert_eq(gate.starving, 0);
    aoticache_run_gate_leave_shared(&gate);
    aoticache_run_gate_leave_shared(&gate);
    cr_assert_eq(gate.inside, 0);
    aoticache_run_gate_destroy(&gate);
}

Test(run_gate, runs_beyond_the_limit_wait)
{
    runs_wait_for_a_place(5);
}

Test(run_gate, run_that_waited_long_still_comes_in_once)
{
    runs_wait_for_a_place(40);
}

Test(run_gate, change_waits_for_runs_and_runs_for_it)
{
    aoticache_run_gate gate;
    aoticache_run_gate_init(&gate, 2, false);
    enter_shared(&gate);
    pthread_t change = expect_waiting(enter_exclusive, &gate, 5);
    await_waiting_change(&gate);
    pthread_t run = expect_waiting(enter_shared, &gate, 5); /* behind the change, though there is a place */
    aoticache_run_gate_leave_shared(&gate);
    pthread_join(change, NULL);
    cr_assert_neq(pthread_tryjoin_np(run, NULL), 0);
    aoticache_run_gate_leave_exclusive(&gate);
    pthread_join(run, NULL);
    aoticache_run_gate_leave_shared(&gate);
    enter_exclusive(&gate);
    aoticache_run_gate_leave_exclusive(&gate);
    cr_assert_eq(gate.inside, 0);
    aoticache_run_gate_destroy(&gate);
}

/* Whoever waited for a change is inside before the next one begins, however closely that follows. */
Test(run_gate, run_comes_between_two_changes)
{
    aoticache_run_gate gate;
    aoticache_run_gate_init(&gate, 1, false);
    enter_exclusive(&gate);
    pthread_t run = expect_waiting(enter_shared, &gate, 5);
    await_waiting_run(&gate);
    aoticache_run_gate_leave_exclusive(&gate);
    pthread_t change = expect_waiting(enter_exclusive, &gate, 5);
    pthread_join(run, NULL);
    cr_assert_neq(pthread_tryjoin_np(change, NULL), 0);
    aoticache_run_gate_leave_shared(&gate);
    pthread_join(change, NULL);
    aoticache_run_gate_leave_exclusive(&gate);
    aoticache_run_gate_destroy(&gate);
}
