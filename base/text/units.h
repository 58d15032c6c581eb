/*
 * base/text/units: numbers with units as people write them in options and configuration files.
 *
 * Not among the installed headers; linked into the tools, too. Strict: the whole text must be the number, and it must fit.
 * The decimal point is a point, whatever the locale of the program says. False where it is not so, and nothing is
 * written.
 */
#ifndef AOTICACHE_BASE_UNITS_H
#define AOTICACHE_BASE_UNITS_H

#include "base/base.h"

/*
 * "512B", "10G", "1.5GiB", "64KiB" (powers of 1024), "10GB" (powers of 1000); part of a byte is dropped. A number alone is
 * refused, except for 0: "20" usually stands for 20 GiB, and 20 bytes would empty a cache.
 */
bool aoticache_size_parse(const char *text, uint64_t *ret_bytes);
/* "30d", "12h", "15m", "15min", "90s", "2w", "1.5d": seconds. A number alone is refused, except for 0. */
bool aoticache_age_parse(const char *text, uint64_t *ret_seconds);
/* "5%", "0.5 %": 0.05, 0.005. At most 100%. */
bool aoticache_share_parse(const char *text, double *ret_share);
/*
 * Returns whether `text` is a number other than 0 that lacks its unit, as "20", and then says so in ret_advice:
 * "has no unit (did you mean 20G? 20B for bytes)". unit: the most likely one, "G", "%", "d" or "s".
 */
#define AOTICACHE_UNIT_ADVICE_BYTES 128
bool aoticache_unit_is_missing(const char *text, const char *unit, char ret_advice[AOTICACHE_UNIT_ADVICE_BYTES]);
/* "1500": digits alone. */
bool aoticache_count_parse(const char *text, uint64_t *ret_count);

#endif
