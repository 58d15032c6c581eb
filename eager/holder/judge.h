/*
 * eager/holder/judge: which of two ways answers a call faster, the kernel of the cache or the host's own (the fallback):
 * a trial is a number of real calls that go by turns to the one and to the other, and a finding is what their times come
 * to. Knows nothing of kernels and clocks; eager/holder/verdict.c makes trials of calls.
 *
 * Private to holder/ and torch/. A trial is used under a lock of its owner's.
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
    AOTICACHE_FINDING_FASTER,   /* the kernel is */
    AOTICACHE_FINDING_SLOWER,   /* or as fast, as far as can be told: the fallback answers from now on */
} aoticache_finding;

/* Turns go to each way in blocks. The first call of a block is not counted: it finds the caches as the other way left them. */
#define AOTICACHE_TRIAL_BLOCK 4
/* A trial counts at most this many of each way. */
#define AOTICACHE_TRIAL_PAIRS 33

/* Zero it to begin. */
typedef struct aoticache_trial {
    uint32_t given[2]; /* turns of each way that were handed out */
    uint32_t noted[2]; /* and have come back with their time */
    uint32_t counted[2];
    uint64_t ns[2][AOTICACHE_TRIAL_PAIRS];
} aoticache_trial;

/* Whose turn the next call is. Blocks of kernel, fallback, fallback, kernel, ..., so that what drifts weighs on both alike. */
aoticache_contender aoticache_trial_turn(aoticache_trial *trial);
/* A call has taken so long. Turns that never come back do no harm. */
void aoticache_trial_note(aoticache_trial *trial, aoticache_contender way, uint64_t ns);
/* NONE until the times are clear, or all of them are there. */
aoticache_finding aoticache_trial_find(const aoticache_trial *trial);
/* The median time of a way; 0 where there is none. */
uint64_t aoticache_trial_median(const aoticache_trial *trial, aoticache_contender way);

#endif
