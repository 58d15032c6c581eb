/*
 * base/clock: which boot this is. base.h has the clocks themselves.
 *
 * Private.
 */
#ifndef AOTICACHE_BASE_CLOCK_H
#define AOTICACHE_BASE_CLOCK_H

#include <stdint.h>

/* A number for this boot; 0: not known. From the kernel's file, which is read once. */
int64_t aoticache_boot_number(void);

#endif
