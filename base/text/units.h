/*
 * base/text/units: numbers with units as people write them in options and configuration files.
 *
 * Not among the installed headers; exported for the tools. Strict: the whole text must be the number, and it must fit.
 * The decimal point is a point, whatever the locale of the program says. False where it is not so, and nothing is
 * written.
 */
#ifndef AOTICACHE_BASE_UNITS_H
#define AOTICACHE_BASE_UNITS_H

#include "base/base.h"

/* "512", "10G", "1.5GiB", "64KiB" (powers of 1024), "10GB" (powers of 1000); part of a byte is dropped. */
AOTICACHE_API bool aoticache_size_parse(const char *text, uint64_t *ret_bytes);
/* "30d", "12h", "15m", "15min", "90s", "2w", "1.5d": seconds. A number alone is refused, but for 0. */
AOTICACHE_API bool aoticache_age_parse(const char *text, uint64_t *ret_seconds);
/* "5%", "0.5 %": 0.05, 0.005. At most 100%. */
AOTICACHE_API bool aoticache_share_parse(const char *text, double *ret_share);
/* "1500": digits alone. */
AOTICACHE_API bool aoticache_count_parse(const char *text, uint64_t *ret_count);

#endif
