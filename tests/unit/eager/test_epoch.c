/*
 * Unit tests of eager/epoch.c: retired memory is released once no thread is inside, and not earlier; fork, ending
 * threads.
 */
#include "eager/epoch.h"
#include "tests/unit/fixtures/emulator.h"

#include <criterion/criterion.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(section, .timeout = 600);

static atomic_int released;

static void release(aoticache_retired *retired)
{
    (void)retired;
    atomic_fetch_add(&released, 1);
}

static aoticache_retired things[4];

Test(section, outside_all_is_released_at_once)
{
    aoticache_epoch_retire(&things[0], release);
    cr_expect_eq(released, 0, "releasing is reclaim's: retire() may be called with locks held");
    aoticache_epoch_reclaim();
    cr_expect_eq(released, 1);
}

Test(section, inside_nothing_is_released_that_was_seen)
{
    aoticache_epoch_slot *section = aoticache_epoch_enter(), *again = aoticache_epoch_enter();
    aoticache_epoch_retire(&things[0], release);
    aoticache_epoch_leave(again);
    aoticache_epoch_reclaim();
    cr_expect_eq(released, 0);
    aoticache_epoch_leave(section);
    aoticache_epoch_reclaim();
    cr_expect_eq(released, 1);
    section = aoticache_epoch_enter();
    aoticache_epoch_leave(section);
    aoticache_epoch_retire(&things[1], release);
    aoticache_epoch_reclaim();
    cr_expect_eq(released, 2);
}

static pthread_barrier_t inside, may_leave;

static void *stay_inside(void *unused)
{
    (void)unused;
    aoticache_epoch_slot *section = aoticache_epoch_enter();
    pthread_barrier_wait(&inside);
    pthread_barrier_wait(&may_leave);
    aoticache_epoch_leave(section);
    return NULL;
}

Test(section, other_threads_are_waited_for)
{
    pthread_t thread;
    pthread_barrier_init(&inside, NULL, 2);
    pthread_barrier_init(&may_leave, NULL, 2);
    cr_assert_eq(pthread_create(&thread, NULL, stay_inside, NULL), 0);
    pthread_barrier_wait(&inside);
    aoticache_epoch_retire(&things[0], release);
    aoticache_epoch_reclaim();
    cr_expect_eq(released, 0);
    pthread_barrier_wait(&may_leave);
    aoticache_epoch_synchronize();
    cr_expect_eq(released, 1);
    pthread_join(thread, NULL);
}

static void *enter_once(void *ret_slot)
{
    aoticache_epoch_slot *section = aoticache_epoch_enter();
    *(aoticache_epoch_slot **)ret_slot = section;
    aoticache_epoch_leave(section);
    return NULL;
}

static aoticache_epoch_slot *slot_of_a_thread(void)
{
    pthread_t thread;
    aoticache_epoch_slot *slot = NULL;
    cr_assert_eq(pthread_create(&thread, NULL, enter_once, &slot), 0);
    pthread_join(thread, NULL);
    return slot;
}

Test(section, slots_of_ended_threads_are_used_again)
{
    aoticache_epoch_slot *slot = slot_of_a_thread();
    cr_assert_not_null(slot);
    for (int i = 0; i < 20; i++)
        cr_expect_eq(slot_of_a_thread(), slot);
}

Test(section, new_slot_has_no_uses_whatever_its_memory_held)
{
    mallopt(M_PERTURB, 0xa5);
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    cr_assert_not_null(slot);
    cr_expect_null(slot->uses);
    cr_expect_eq(slot->uses_count, 0);
    cr_expect_eq(slot->last_used, 0);
    aoticache_epoch_leave(slot);
}

/* Runs in the child, in which only this thread exists. */
static int child_reclaims(aoticache_epoch_slot *section)
{
    aoticache_epoch_reclaim();
    if (released != 0) /* this thread is still inside */
        return 1;
    aoticache_epoch_slot *slot = slot_of_a_thread();
    if (slot == section) /* a new thread takes another slot, not this one */
        return 2;
    aoticache_epoch_leave(section);
    aoticache_epoch_reclaim();
    return released == 1 ? 0 : 3;
}

Test(section, child_forgets_the_parents_other_threads)
{
    SKIP_UNDER_EMULATOR(EMULATOR_FORKS_ONE_THREAD);
    pthread_t thread;
    pthread_barrier_init(&inside, NULL, 2);
    pthread_barrier_init(&may_leave, NULL, 2);
    aoticache_epoch_slot *section = aoticache_epoch_enter();
    cr_assert_eq(pthread_create(&thread, NULL, stay_inside, NULL), 0);
    pthread_barrier_wait(&inside);
    aoticache_epoch_retire(&things[0], release);
    pid_t child = fork();
    if (child == 0)
        _exit(child_reclaims(section));
    int status;
    waitpid(child, &status, 0);
    cr_expect_eq(status, 0, "status %x", (unsigned)status);
    pthread_barrier_wait(&may_leave);
    pthread_join(thread, NULL);
    aoticache_epoch_leave(section);
    aoticache_epoch_synchronize();
    cr_expect_eq(released, 1);
}
