/*
 * base/text/units: parses numbers with units in options and configuration files.
 *
 * This header is not installed; the code is linked into the tools, too. Parsing is strict: the whole text must be the
 * number, and it must fit. The decimal separator is a point, whatever the program's locale is. Otherwise the functions
 * return false and write nothing.
 */
#ifndef AOTICACHE_BASE_UNITS_H
#define AOTICACHE_BASE_UNITS_H

#include "base/base.h"

/*
 * Parses "512B", "10G", "1.5GiB", "64KiB" (powers of 1024), "10GB" (powers of 1000); a fraction of a byte is dropped. A
 * number without a unit is refused, except 0: "20" usually means 20 GiB, and 20 bytes would empty a cache.
 */
bool aoticache_size_parse(const char *text, uint64_t *ret_bytes);
/* Parses "30d", "12h", "15m", "15min", "90s", "2w", "1.5d" to seconds. A number without a unit is refused, except 0. */
bool aoticache_age_parse(const char *text, uint64_t *ret_seconds);
/* Parses "5%", "0.5 %" to 0.05, 0.005. At most 100%. */
bool aoticache_share_parse(const char *text, double *ret_share);
/*
 * Returns whether `text` is a number other than 0 without a unit, such as "20", and if so writes an advice to ret_advice:
 * "has no unit (did you mean 20G? 20B for bytes)". unit: the most likely one, "G", "%", "d" or "s".
 */
#define AOTICACHE_UNIT_ADVICE_BYTES 128
bool aoticache_unit_is_missing(const char *text, const char *unit, char ret_advice[AOTICACHE_UNIT_ADVICE_BYTES]);
/* Parses "1500": digits only. */
bool aoticache_count_parse(const char *text, uint64_t *ret_count);

#endif
