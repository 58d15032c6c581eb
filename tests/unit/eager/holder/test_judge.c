/*
 * Unit tests of eager/holder/judge.c: which side has the next call, and the verdict from the times. No clock is read.
 */
#include <criterion/criterion.h>

#include "eager/holder/judge.h"

/*
 * The time of a call of kernel or fallback, for play(), which runs a trial until it has a verdict and returns the
 * number of pairs.
 */
typedef uint64_t (*time_of)(aoticache_contender way, uint32_t number);

static aoticache_finding play(time_of time, aoticache_trial *ret_trial, uint32_t *ret_pairs)
{
    uint32_t numbers[2] = {0};
    *ret_trial = (aoticache_trial){.given = {0}};
    for (int turn = 0; turn < 1000; turn++) {
        aoticache_contender way = aoticache_trial_turn(ret_trial);
        aoticache_trial_note(ret_trial, way, time(way, numbers[way]++));
        aoticache_finding finding = aoticache_trial_find(ret_trial);
        if (finding != AOTICACHE_FINDING_NONE) {
            *ret_pairs = ret_trial->counted[0] < ret_trial->counted[1] ? ret_trial->counted[0] : ret_trial->counted[1];
            return finding;
        }
    }
    return AOTICACHE_FINDING_NONE;
}

Test(judge, turns_go_to_both_ways_alike)
{
    static const int expected[] = {0, 1, 1, 0, 0, 1, 1, 0};
    aoticache_trial trial = {.given = {0}};
    for (int i = 0; i < 8 * AOTICACHE_TRIAL_BLOCK; i++)
        cr_expect_eq((int)aoticache_trial_turn(&trial), expected[i / AOTICACHE_TRIAL_BLOCK], "turn %d", i);
}

static uint64_t hundred_times(aoticache_contender way, uint32_t number)
{
    (void)number;
    return way == AOTICACHE_CONTENDER_KERNEL ? 100000 : 1000;
}

Test(judge, what_is_clear_ends_early)
{
    aoticache_trial trial;
    uint32_t pairs = 0;
    cr_expect_eq(play(hundred_times, &trial, &pairs), AOTICACHE_FINDING_SLOWER);
    cr_expect_leq(trial.given[AOTICACHE_CONTENDER_KERNEL], 4);
    cr_expect_eq(aoticache_trial_median(&trial, AOTICACHE_CONTENDER_KERNEL), 100000);
    cr_expect_eq(aoticache_trial_median(&trial, AOTICACHE_CONTENDER_FALLBACK), 1000);
}

static uint64_t three_quarters(aoticache_contender way, uint32_t number)
{
    return (way == AOTICACHE_CONTENDER_KERNEL ? 750 : 1000) + number % 3;
}

Test(judge, clear_gain_wins_before_the_end)
{
    aoticache_trial trial;
    uint32_t pairs = 0;
    cr_expect_eq(play(three_quarters, &trial, &pairs), AOTICACHE_FINDING_FASTER);
    cr_expect_leq(pairs, 15);
}

static uint64_t cold_after_the_other(aoticache_contender way, uint32_t number)
{
    return three_quarters(way, number) +
           (number % AOTICACHE_TRIAL_BLOCK == 0 ? (way == AOTICACHE_CONTENDER_KERNEL ? 50000 : 0) : 0);
}

Test(judge, first_call_of_a_block_does_not_count)
{
    aoticache_trial trial;
    uint32_t pairs = 0;
    cr_expect_eq(play(cold_after_the_other, &trial, &pairs), AOTICACHE_FINDING_FASTER);
    cr_expect_lt(aoticache_trial_median(&trial, AOTICACHE_CONTENDER_KERNEL), 800);
}

/* A third of the kernel's calls and one of the fallback's is interrupted for a long time. */
static uint64_t interrupted(aoticache_contender way, uint32_t number)
{
    bool is_hit = way == AOTICACHE_CONTENDER_KERNEL ? number % 3 == 1 : number == 5;
    return three_quarters(way, number) + (is_hit ? 1000000 : 0);
}

Test(judge, interruptions_decide_nothing)
{
    aoticache_trial trial;
    uint32_t pairs = 0;
    cr_expect_eq(play(interrupted, &trial, &pairs), AOTICACHE_FINDING_FASTER);
}

/* A machine that becomes slower all the time: every call takes longer than the one before. */
static uint64_t drifting(aoticache_contender way, uint32_t number)
{
    return (way == AOTICACHE_CONTENDER_KERNEL ? 900 : 1000) * (uint64_t)(100 + number) / 100;
}

Test(judge, drift_weighs_on_both)
{
    aoticache_trial trial;
    uint32_t pairs = 0;
    cr_expect_eq(play(drifting, &trial, &pairs), AOTICACHE_FINDING_FASTER);
}

static uint64_t same(aoticache_contender way, uint32_t number)
{
    (void)way;
    return 1000 + number % 5;
}

static uint64_t hardly_less(aoticache_contender way, uint32_t number)
{
    return (way == AOTICACHE_CONTENDER_KERNEL ? 9900 : 10000) + number % 5;
}

static uint64_t little_less(aoticache_contender way, uint32_t number)
{
    return (way == AOTICACHE_CONTENDER_KERNEL ? 9600 : 10000) + number % 5;
}

static uint64_t few_nanoseconds(aoticache_contender way, uint32_t number)
{
    (void)number;
    return way == AOTICACHE_CONTENDER_KERNEL ? 400 : 430;
}

static uint64_t little_more(aoticache_contender way, uint32_t number)
{
    return (way == AOTICACHE_CONTENDER_KERNEL ? 10300 : 10000) + number % 5;
}

Test(judge, tie_goes_to_the_fallback)
{
    aoticache_trial trial;
    uint32_t pairs = 0;
    cr_expect_eq(play(same, &trial, &pairs), AOTICACHE_FINDING_SLOWER);
    cr_expect_eq(pairs, AOTICACHE_TRIAL_PAIRS);
    cr_expect_eq(play(hardly_less, &trial, &pairs), AOTICACHE_FINDING_SLOWER);
    cr_expect_eq(play(few_nanoseconds, &trial, &pairs), AOTICACHE_FINDING_SLOWER);
    cr_expect_eq(play(little_more, &trial, &pairs), AOTICACHE_FINDING_SLOWER);
    cr_expect_eq(play(little_less, &trial, &pairs), AOTICACHE_FINDING_FASTER);
    cr_expect_eq(pairs, AOTICACHE_TRIAL_PAIRS);
}

Test(judge, turns_that_never_come_back_are_made_up_for)
{
    aoticache_trial trial = {.given = {0}};
    aoticache_finding finding = AOTICACHE_FINDING_NONE;
    int turns = 0;
    for (int kernels = 0; finding == AOTICACHE_FINDING_NONE && turns < 1000; turns++) {
        aoticache_contender way = aoticache_trial_turn(&trial);
        if (way == AOTICACHE_CONTENDER_KERNEL && kernels++ % 2 == 0)
            continue; /* it failed */
        aoticache_trial_note(&trial, way, same(way, (uint32_t)turns));
        finding = aoticache_trial_find(&trial);
    }
    cr_expect_eq(finding, AOTICACHE_FINDING_SLOWER);
    cr_expect_lt(turns, 8 * AOTICACHE_TRIAL_PAIRS);
}

Test(judge, clock_that_stands_still_divides_by_nothing)
{
    aoticache_trial trial = {.given = {0}};
    aoticache_finding finding = AOTICACHE_FINDING_NONE;
    for (int turn = 0; finding == AOTICACHE_FINDING_NONE && turn < 1000; turn++) {
        aoticache_trial_note(&trial, aoticache_trial_turn(&trial), 0);
        finding = aoticache_trial_find(&trial);
    }
    cr_expect_eq(finding, AOTICACHE_FINDING_SLOWER);
}
