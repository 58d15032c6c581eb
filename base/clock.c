/*
 * base/clock: the two clocks, and the number of the current boot.
 */
#include "base/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/cleanup.h"

uint64_t aoticache_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int64_t aoticache_wall_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + (int64_t)now.tv_nsec;
}

/* ---- the current boot ---- */

static int64_t boot_number;
static pthread_once_t boot_once = PTHREAD_ONCE_INIT;

static void find_boot(void)
{
    char text[64];
    cleanup_fd int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof text) : -1;
    uint64_t number = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (ssize_t i = 0; i < got; i++)
        number = (number ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    boot_number = got > 0 ? (int64_t)(number >> 1) : 0;
}

int64_t aoticache_boot_number(void)
{
    pthread_once(&boot_once, find_boot);
    return boot_number;
}
