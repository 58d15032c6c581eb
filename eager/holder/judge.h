/*
 * eager/holder/judge: finds out whether the kernel of the cache or the host's own (the fallback) answers calls faster. A trial
 * is a number of real calls that alternate between the two, and a finding is the result of their times. Knows nothing of kernels
 * and clocks; eager/holder/verdict.c turns calls into trials.
 *
 * Private to holder/ and torch/. A trial is used under a lock of its owner.
 */
#ifndef AOTICACHE_EAGER_HOLDER_JUDGE_H
#define AOTICACHE_EAGER_HOLDER_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum aoticache_contender {
    AOTICACHE_CONTENDER_KERNEL = 0,
    AOTICACHE_CONTENDER_FALLBACK = 1,
} aoticache_contender;

typedef enum aoticache_finding {
    AOTICACHE_FINDING_NONE = 0, /* not yet */
    AOTICACHE_FINDING_FASTER,   /* the kernel is faster */
    AOTICACHE_FINDING_SLOWER,   /* the kernel is slower or not measurably faster: the fallback answers from now on */
} aoticache_finding;

/* Turns go to each side in blocks. The first call of a block is not counted: it finds the caches as the other side left them. */
#define AOTICACHE_TRIAL_BLOCK 4
/* A trial counts at most this many calls of each side. */
#define AOTICACHE_TRIAL_PAIRS 33

/* Zero it to begin. */
typedef struct aoticache_trial {
    uint32_t given[2]; /* turns given to each side */
    uint32_t noted[2]; /* turns of each side whose time was noted */
    uint32_t counted[2];
    uint64_t ns[2][AOTICACHE_TRIAL_PAIRS];
} aoticache_trial;

/* Returns whose turn the next call is. Blocks: kernel, fallback, fallback, kernel, ..., so that drift affects both equally. */
aoticache_contender aoticache_trial_turn(aoticache_trial *trial);
/* Notes the time of a call. Turns whose time is never noted do no harm. */
void aoticache_trial_note(aoticache_trial *trial, aoticache_contender contender, uint64_t ns);
/* Returns NONE until the times are conclusive or complete. */
aoticache_finding aoticache_trial_find(const aoticache_trial *trial);
/* Returns the median time of a side; 0 if there is none. */
uint64_t aoticache_trial_median(const aoticache_trial *trial, aoticache_contender contender);

#endif
