/*
 * clock_fixture: a wall clock that a test sets ahead. The functions of the library call this clock_gettime(), since the
 * program defines it, instead of the C library's; other clocks do not change.
 */
#ifndef AOTICACHE_TESTS_CLOCK_FIXTURE_H
#define AOTICACHE_TESTS_CLOCK_FIXTURE_H

#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FIXTURE_DAY INT64_C(86400)

static int64_t fixture_ahead; /* seconds */

int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    int result = (int)syscall(SYS_clock_gettime, clock, ret_time);
    if (result == 0 && clock == CLOCK_REALTIME)
        ret_time->tv_sec += fixture_ahead;
    return result;
}

#endif
