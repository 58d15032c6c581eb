/*
 * eager/holder/judge: trials: whose turn it is, and the evaluation of the times.
 *
 * Times of single calls have noise that makes them longer: an interrupt, another process, a page that is touched for the first
 * time. Two numbers are robust against that in different ways: the median of the ratios of neighbouring calls, and the ratio of
 * the shortest times. A trial ends early if both are conclusive; the fewer calls there are, the clearer the difference must be.
 * So a kernel that takes a hundred times as long costs its host four calls.
 *
 * PyTorch's path to a kernel is long and fills the caches of the CPU. PyTorch is therefore slower if its calls alternate with
 * others, and the shorter path is not: single alternating calls would favour the cache's kernel. Hence the blocks.
 *
 * In the end the kernel must be faster by KEEP and by KEEP_NS: a gain that is within the noise, or within the effect of a call
 * on the caches, is not worth a library in memory. On a tie the fallback is used, because a call never loses by using PyTorch's
 * own kernel.
 */
#include "eager/holder/judge.h"

#include <stdlib.h>
#include <string.h>

#define KEEP 0.98
#define KEEP_NS 40

/* After this many pairs, a ratio above this one or below its inverse is conclusive. */
static const struct step {
    uint32_t pairs;
    double ratio;
} steps[] = {{3, 3.0}, {9, 1.5}, {15, 1.15}};

/* ---- turns ---- */

aoticache_contender aoticache_trial_turn(aoticache_trial *trial)
{
    uint32_t block = (trial->given[0] + trial->given[1]) / AOTICACHE_TRIAL_BLOCK;
    aoticache_contender contender =
        block % 4 == 0 || block % 4 == 3 ? AOTICACHE_CONTENDER_KERNEL : AOTICACHE_CONTENDER_FALLBACK;
    /* Turns whose call failed are replaced by additional ones. */
    aoticache_contender other =
        contender == AOTICACHE_CONTENDER_KERNEL ? AOTICACHE_CONTENDER_FALLBACK : AOTICACHE_CONTENDER_KERNEL;
    if (trial->noted[contender] > trial->noted[other] + 2 * AOTICACHE_TRIAL_BLOCK)
        contender = other;
    trial->given[contender]++;
    return contender;
}

void aoticache_trial_note(aoticache_trial *trial, aoticache_contender contender, uint64_t ns)
{
    bool is_first = trial->noted[contender]++ % AOTICACHE_TRIAL_BLOCK == 0;
    if (!is_first && trial->counted[contender] < AOTICACHE_TRIAL_PAIRS)
        trial->ns[contender][trial->counted[contender]++] = ns > 0 ? ns : 1;
}

/* ---- evaluating the times ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, by_size);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static double median_of_ratios(const aoticache_trial *trial, uint32_t pairs)
{
    double ratios[AOTICACHE_TRIAL_PAIRS];
    for (uint32_t i = 0; i < pairs; i++)
        ratios[i] =
            (double)trial->ns[AOTICACHE_CONTENDER_KERNEL][i] / (double)trial->ns[AOTICACHE_CONTENDER_FALLBACK][i];
    return median(ratios, pairs);
}

static double least(const aoticache_trial *trial, aoticache_contender contender, uint32_t pairs)
{
    uint64_t found = trial->ns[contender][0];
    for (uint32_t i = 1; i < pairs; i++)
        if (trial->ns[contender][i] < found)
            found = trial->ns[contender][i];
    return (double)found;
}

aoticache_finding aoticache_trial_find(const aoticache_trial *trial)
{
    uint32_t pairs = trial->counted[AOTICACHE_CONTENDER_KERNEL], others = trial->counted[AOTICACHE_CONTENDER_FALLBACK];
    pairs = pairs < others ? pairs : others;
    double clear = steps[0].ratio;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        clear = pairs >= steps[i].pairs ? steps[i].ratio : clear;
    /* Between the steps nothing is computed, because that would affect the next timed call. */
    bool is_step = pairs == AOTICACHE_TRIAL_PAIRS;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        is_step |= pairs == steps[i].pairs;
    if (!is_step)
        return AOTICACHE_FINDING_NONE;
    double middle = median_of_ratios(trial, pairs);
    double best = least(trial, AOTICACHE_CONTENDER_KERNEL, pairs) / least(trial, AOTICACHE_CONTENDER_FALLBACK, pairs);
    if (middle > clear && best > clear)
        return AOTICACHE_FINDING_SLOWER;
    bool gains = aoticache_trial_median(trial, AOTICACHE_CONTENDER_KERNEL) + KEEP_NS <=
                 aoticache_trial_median(trial, AOTICACHE_CONTENDER_FALLBACK);
    if (gains && middle < 1 / clear && best < 1 / clear)
        return AOTICACHE_FINDING_FASTER;
    if (pairs < AOTICACHE_TRIAL_PAIRS)
        return AOTICACHE_FINDING_NONE;
    return gains && (middle + best) / 2 <= KEEP ? AOTICACHE_FINDING_FASTER : AOTICACHE_FINDING_SLOWER;
}

uint64_t aoticache_trial_median(const aoticache_trial *trial, aoticache_contender contender)
{
    double values[AOTICACHE_TRIAL_PAIRS];
    uint32_t count = trial->counted[contender];
    for (uint32_t i = 0; i < count; i++)
        values[i] = (double)trial->ns[contender][i];
    return count > 0 ? (uint64_t)median(values, count) : 0;
}
