/*
 * base/clock: identifies the current boot of the machine. base.h declares the clocks themselves.
 *
 * Private.
 */
#ifndef AOTICACHE_BASE_CLOCK_H
#define AOTICACHE_BASE_CLOCK_H

#include <stdint.h>

/* Returns a number for the current boot; 0: not known. It is derived from the kernel's file, which is read once. */
int64_t aoticache_boot_number(void);

#endif
