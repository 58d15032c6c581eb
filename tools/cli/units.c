/*
 * tools/cli/units: bytes, durations, ages and times as people read them.
 */
#include "tools/cli/cli.h"

#include <time.h>

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

/* Three significant digits, whatever the size. */
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
    /* A clock that was set back makes ages negative. */
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
