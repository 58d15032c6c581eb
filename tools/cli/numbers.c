/*
 * tools/cli/numbers: parses numbers of the command line, and prints bytes, durations, ages and times in readable form.
 *
 * Parsing is strict: the whole text must be the number, and it must fit. The program never sets a locale, so the decimal
 * separator is a point. base/text/units reads sizes and ages.
 */
#include "base/clock.h"
#include "base/text/units.h"
#include "tools/cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

/* ---- parsing ---- */

bool aoticache_cli_parse_int(const char *text, int64_t minimum, int64_t maximum, int64_t *ret_value)
{
    /* strtoll skips leading spaces, which are not allowed here. */
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
    /* Too small a number is rounded, as by a compiler; too large a one is an error. */
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

/* ---- printing ---- */

#define NS_PER_SECOND 1000000000

const char *aoticache_cli_format_bytes(uint64_t bytes, char ret_text[AOTICACHE_CLI_UNIT_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    double value = (double)bytes;
    /* 1023.95 would be printed as 1024.0. */
    while (value >= 1023.95 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        unit++;
    }
    snprintf(ret_text, AOTICACHE_CLI_UNIT_BYTES, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return ret_text;
}

/* Prints three significant digits, whatever the magnitude. */
static void format_three(double value, const char *unit, char ret_text[AOTICACHE_CLI_UNIT_BYTES])
{
    int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(ret_text, AOTICACHE_CLI_UNIT_BYTES, "%.*f %s", decimals, value, unit);
}

const char *aoticache_cli_format_duration(uint64_t ns, char ret_text[AOTICACHE_CLI_UNIT_BYTES])
{
    uint64_t seconds = ns / NS_PER_SECOND;
    if (ns < 1000)
        snprintf(ret_text, AOTICACHE_CLI_UNIT_BYTES, "%u ns", (unsigned)ns);
    else if (ns < 999500)
        format_three((double)ns / 1e3, "us", ret_text);
    else if (ns < 999500000)
        format_three((double)ns / 1e6, "ms", ret_text);
    else if (seconds < 120)
        format_three((double)ns / 1e9, "s", ret_text);
    else if (seconds < 7200)
        snprintf(ret_text, AOTICACHE_CLI_UNIT_BYTES, "%u min %u s", (unsigned)(seconds / 60), (unsigned)(seconds % 60));
    else
        snprintf(ret_text, AOTICACHE_CLI_UNIT_BYTES, "%llu h %u min", (unsigned long long)(seconds / 3600),
                 (unsigned)(seconds / 60 % 60));
    return ret_text;
}

const char *aoticache_cli_format_age(int64_t wall_ns, char ret_text[AOTICACHE_CLI_UNIT_BYTES])
{
    int64_t now = aoticache_wall_ns();
    /* Ages are negative after a clock was set back. */
    uint64_t seconds = wall_ns > 0 && now > wall_ns ? (uint64_t)(now - wall_ns) / NS_PER_SECOND : 0;
    if (wall_ns <= 0)
        snprintf(ret_text, AOTICACHE_CLI_UNIT_BYTES, "never");
    else if (seconds < 120)
        snprintf(ret_text, AOTICACHE_CLI_UNIT_BYTES, "%u s", (unsigned)seconds);
    else if (seconds < 7200)
        snprintf(ret_text, AOTICACHE_CLI_UNIT_BYTES, "%u min", (unsigned)(seconds / 60));
    else if (seconds < 172800)
        snprintf(ret_text, AOTICACHE_CLI_UNIT_BYTES, "%u h", (unsigned)(seconds / 3600));
    else
        snprintf(ret_text, AOTICACHE_CLI_UNIT_BYTES, "%llu d", (unsigned long long)(seconds / 86400));
    return ret_text;
}

const char *aoticache_cli_format_time(int64_t wall_ns, char ret_text[AOTICACHE_CLI_UNIT_BYTES])
{
    time_t seconds = (time_t)(wall_ns / NS_PER_SECOND);
    struct tm parts;
    if (gmtime_r(&seconds, &parts) == NULL ||
        strftime(ret_text, AOTICACHE_CLI_UNIT_BYTES, "%Y-%m-%d %H:%M:%S UTC", &parts) == 0)
        snprintf(ret_text, AOTICACHE_CLI_UNIT_BYTES, "unknown");
    return ret_text;
}
