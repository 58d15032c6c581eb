/*
 * tools/cli/numbers: numbers from the command line; sizes and ages are read by base/units.
 *
 * Strict: the whole text must be the number, and it must fit. The program never sets a locale, so the decimal point is
 * a point.
 */
#include "base/units.h"
#include "tools/cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

bool aoticache_cli_parse_int(const char *text, int64_t minimum, int64_t maximum, int64_t *ret_value)
{
    /* strtoll skips leading space, which is no part of a number here. */
    if (!isdigit((unsigned char)text[0]) && text[0] != '-' && text[0] != '+')
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < minimum || value > maximum)
        return false;
    *ret_value = value;
    return true;
}

bool aoticache_cli_parse_double(const char *text, double *ret_value)
{
    if (text[0] == '\0' || isspace((unsigned char)text[0]))
        return false;
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end != '\0')
        return false;
    /* Too small a number is rounded, as a compiler would; too big a one is a mistake. */
    if (errno == ERANGE && isinf(value))
        return false;
    *ret_value = value;
    return true;
}

bool aoticache_cli_parse_size(const char *text, uint64_t *ret_bytes)
{
    return aoticache_size_parse(text, ret_bytes);
}

bool aoticache_cli_parse_age(const char *text, uint64_t *ret_seconds)
{
    return aoticache_age_parse(text, ret_seconds);
}
