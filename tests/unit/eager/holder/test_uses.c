/*
 * How often libraries were called: exact even if threads count concurrently, end, or are lost in a fork.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/fixtures/emulator.h"
#include "eager/holder/holder_hot.h"

#define THREADS 4
#define USES 250000

static uint32_t number;

static void note(uint32_t of, int count)
{
    aoticache_epoch_slot *section = aoticache_epoch_enter();
    cr_assert_not_null(section);
    for (int i = 0; i < count; i++)
        aoticache_call_counts_note(of);
    aoticache_epoch_leave(section);
}

static void *note_many(void *unused)
{
    for (int i = 0; i < USES / 1000; i++)
        note(number, 1000);
    return unused;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, note_many, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

Test(uses, threads_lose_none_and_leave_theirs_behind)
{
    number = aoticache_call_counts_open();
    cr_assert_neq(number, 0);
    for (int round = 1; round <= 3; round++) {
        run_threads();
        cr_assert_eq(aoticache_call_counts_take(number), THREADS * USES);
        cr_assert_eq(aoticache_call_counts_take(number), 0);
        cr_assert_eq(aoticache_call_counts_read(number), (uint64_t)round * THREADS * USES);
    }
    aoticache_call_counts_close(number);
}

static void *take_all_the_time(void *sum)
{
    while (*(volatile uint64_t *)sum < THREADS * USES)
        *(volatile uint64_t *)sum += aoticache_call_counts_take(number);
    return NULL;
}

Test(uses, what_is_taken_meanwhile_is_taken_once, .timeout = 60)
{
    uint64_t sum = 0;
    pthread_t taker;
    number = aoticache_call_counts_open();
    cr_assert_eq(pthread_create(&taker, NULL, take_all_the_time, &sum), 0);
    run_threads();
    pthread_join(taker, NULL);
    cr_assert_eq(sum, THREADS * USES);
    cr_assert_eq(aoticache_call_counts_take(number), 0);
    aoticache_call_counts_close(number);
}

Test(uses, numbers_are_used_again_from_0)
{
    uint32_t numbers[300];
    for (int i = 0; i < 300; i++) {
        numbers[i] = aoticache_call_counts_open();
        note(numbers[i], i);
    }
    for (int i = 0; i < 300; i++)
        cr_assert_eq(aoticache_call_counts_read(numbers[i]), (uint64_t)i);
    aoticache_call_counts_close(numbers[200]);
    uint32_t again = aoticache_call_counts_open();
    cr_assert_eq(again, numbers[200]);
    cr_assert_eq(aoticache_call_counts_read(again), 0);
    note(again, 5);
    cr_assert_eq(aoticache_call_counts_take(again), 5);
    for (int i = 0; i < 300; i++)
        aoticache_call_counts_close(numbers[i]);
}

Test(uses, child_of_a_fork_leaves_the_parents_to_it)
{
    SKIP_UNDER_EMULATOR(EMULATOR_FORKS_ONE_THREAD);
    number = aoticache_call_counts_open();
    run_threads();
    note(number, 7);
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        bool is_right = aoticache_call_counts_take(number) == 0;
        run_threads();
        note(number, 3);
        _exit(is_right && aoticache_call_counts_take(number) == THREADS * USES + 3 ? 0 : 1);
    }
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    cr_assert_eq(aoticache_call_counts_take(number), THREADS * USES + 7);
    aoticache_call_counts_close(number);
}
