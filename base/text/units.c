/*
 * base/text/units: parses numbers with units. It does not use strtod(), which takes the decimal separator from the program's
 * locale.
 */
#include "base/text/units.h"

#include <stdio.h>
#include <string.h>

#define MAX_DIGITS 40

/* A plain decimal number: digits / 10^decimals. */
typedef struct decimal {
    long double digits;
    long double divisor;
} decimal;

/* Reads the number at the start of `text`: digits with at most one point among them. Returns what follows, or NULL. */
static const char *read_decimal(const char *text, decimal *ret_number)
{
    decimal number = {.digits = 0, .divisor = 1};
    bool has_point = false;
    size_t length = 0;
    if (text == NULL || text[0] < '0' || text[0] > '9')
        return NULL;
    for (; (text[length] >= '0' && text[length] <= '9') || (text[length] == '.' && !has_point); length++) {
        if (length >= MAX_DIGITS)
            return NULL;
        if (text[length] == '.') {
            has_point = true;
            continue;
        }
        number.digits = number.digits * 10 + (text[length] - '0');
        number.divisor *= has_point ? 10 : 1;
    }
    *ret_number = number;
    return text[length] == '.' || text[length - 1] == '.' ? NULL : text + length;
}

static const char *skip_spaces(const char *text)
{
    return text + strspn(text, " ");
}

/* Multiplies before it divides, so that 0.1KB is 100 bytes, not 99. */
static bool scale(const decimal *number, long double factor, uint64_t *ret_value)
{
    long double value = number->digits * factor / number->divisor;
    if (!(value >= 0) || value >= 18446744073709551616.0L)
        return false;
    *ret_value = (uint64_t)value;
    return true;
}

static long double power(long double base, size_t exponent)
{
    long double value = 1;
    while (exponent-- > 0)
        value *= base;
    return value;
}

bool aoticache_size_parse(const char *text, uint64_t *ret_bytes)
{
    static const char prefixes[] = "KMGTPE";
    decimal number;
    const char *rest = read_decimal(text, &number);
    if (rest == NULL)
        return false;
    if (*rest == '\0' && number.digits == 0) {
        *ret_bytes = 0;
        return true;
    }
    rest = skip_spaces(rest);
    if (strcmp(rest, "B") == 0)
        return scale(&number, 1, ret_bytes);
    const char letter = *rest >= 'a' && *rest <= 'z' ? (char)(*rest - 'a' + 'A') : *rest;
    const char *prefix = letter != '\0' ? strchr(prefixes, letter) : NULL;
    if (prefix == NULL)
        return false;
    rest++;
    size_t exponent = (size_t)(prefix - prefixes) + 1;
    if (*rest == '\0' || strcmp(rest, "i") == 0 || strcmp(rest, "iB") == 0)
        return scale(&number, power(1024, exponent), ret_bytes);
    return strcmp(rest, "B") == 0 && scale(&number, power(1000, exponent), ret_bytes);
}

bool aoticache_age_parse(const char *text, uint64_t *ret_seconds)
{
    static const struct {
        const char *unit;
        uint32_t seconds;
    } units[] = {{"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400}, {"w", 604800}};

    decimal number;
    const char *rest = read_decimal(text, &number);
    if (rest == NULL)
        return false;
    if (*rest == '\0' && number.digits == 0) {
        *ret_seconds = 0;
        return true;
    }
    rest = skip_spaces(rest);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(rest, units[i].unit) == 0)
            return scale(&number, units[i].seconds, ret_seconds);
    return false;
}

bool aoticache_share_parse(const char *text, double *ret_share)
{
    decimal number;
    const char *rest = read_decimal(text, &number);
    if (rest == NULL || strcmp(skip_spaces(rest), "%") != 0 || number.digits > 100 * number.divisor)
        return false;
    *ret_share = (double)(number.digits / number.divisor / 100);
    return true;
}

/* From this number on, a number without unit probably means bytes, not GiB. */
#define LEAST_BYTES (1 << 20)

bool aoticache_unit_is_missing(const char *text, const char *unit, char ret_advice[AOTICACHE_UNIT_ADVICE_BYTES])
{
    decimal number;
    const char *rest = read_decimal(text, &number);
    if (rest == NULL || *rest != '\0' || number.digits == 0)
        return false;
    const bool is_share = strcmp(unit, "%") == 0;
    const bool is_size = is_share || strcmp(unit, "G") == 0;
    if (is_size && number.digits >= LEAST_BYTES * number.divisor)
        snprintf(ret_advice, AOTICACHE_UNIT_ADVICE_BYTES, "has no unit (did you mean %sB?)", text);
    else if (is_share && number.digits <= 100 * number.divisor)
        snprintf(ret_advice, AOTICACHE_UNIT_ADVICE_BYTES, "has no unit (did you mean %s%% or %sG? %sB for bytes)", text,
                 text, text);
    else if (is_size)
        snprintf(ret_advice, AOTICACHE_UNIT_ADVICE_BYTES, "has no unit (did you mean %sG? %sB for bytes)", text, text);
    else
        snprintf(ret_advice, AOTICACHE_UNIT_ADVICE_BYTES, "has no unit (did you mean %s%s?)", text, unit);
    return true;
}

bool aoticache_count_parse(const char *text, uint64_t *ret_count)
{
    uint64_t value = 0;
    if (text == NULL || text[0] == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9' || value > (UINT64_MAX - (uint64_t)(*text - '0')) / 10)
            return false;
        value = value * 10 + (uint64_t)(*text - '0');
    }
    *ret_count = value;
    return true;
}
