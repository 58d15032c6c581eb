/*
 * base/clock: the two clocks, and which boot of the machine this is.
 *
 * Private.
 */
#ifndef AOTICACHE_BASE_CLOCK_H
#define AOTICACHE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds of CLOCK_MONOTONIC: for time limits and durations. */
static inline uint64_t aoticache_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Nanoseconds since 1970 of CLOCK_REALTIME: for what is stored. */
static inline int64_t aoticache_wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + (int64_t)now.tv_nsec;
}

/* Returns a number for this boot; 0: unknown. Read once, from the kernel's file. */
int64_t aoticache_boot_number(void);

#endif
