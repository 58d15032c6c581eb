/*
 * cache/tools/cli_numbers: numbers, sizes and ages from the command line.
 *
 * Strict: the whole text must be the number, and it must fit. The program never sets a locale, so the decimal point is
 * a point.
 */
#include "cache/tools/cli.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* A plain decimal number at the start of `text`: digits with at most one point. */
static bool parse_decimal(const char *text, long double *ret_value, const char **ret_rest)
{
    size_t length = strspn(text, "0123456789.");
    if (length == 0 || length > 40 || !isdigit((unsigned char)text[0]))
        return false;
    char digits[41];
    memcpy(digits, text, length);
    digits[length] = '\0';
    char *end;
    *ret_value = strtold(digits, &end);
    if (*end != '\0')
        return false;
    *ret_rest = text + length;
    return true;
}

static bool scale(long double number, long double factor, uint64_t *ret_value)
{
    long double value = floorl(number * factor);
    if (!(value >= 0) || value >= 18446744073709551616.0L)
        return false;
    *ret_value = (uint64_t)value;
    return true;
}

bool aoticache_cli_parse_size(const char *text, uint64_t *ret_bytes)
{
    static const char prefixes[] = "KMGTPE";
    long double number;
    const char *rest;
    if (!parse_decimal(text, &number, &rest))
        return false;
    while (*rest == ' ')
        rest++;
    if (*rest == '\0' || strcmp(rest, "B") == 0)
        return scale(number, 1, ret_bytes);
    const char *prefix = strchr(prefixes, toupper((unsigned char)*rest));
    if (prefix == NULL)
        return false;
    rest++;
    long double base;
    if (*rest == '\0' || strcmp(rest, "i") == 0 || strcmp(rest, "iB") == 0)
        base = 1024;
    else if (strcmp(rest, "B") == 0)
        base = 1000;
    else
        return false;
    return scale(number, powl(base, (long double)(prefix - prefixes + 1)), ret_bytes);
}

bool aoticache_cli_parse_age(const char *text, uint64_t *ret_seconds)
{
    static const struct {
        const char *unit;
        uint32_t seconds;
    } units[] = {{"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400}, {"w", 604800}};

    long double number;
    const char *rest;
    if (!parse_decimal(text, &number, &rest))
        return false;
    if (*rest == '\0' && number == 0) {
        *ret_seconds = 0;
        return true;
    }
    while (*rest == ' ')
        rest++;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(rest, units[i].unit) == 0)
            return scale(number, units[i].seconds, ret_seconds);
    return false;
}
