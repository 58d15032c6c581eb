/*
 * tools/stat/names: names of times, kinds, columns and steps on the command line of aoticache-stat.
 */
#include "tools/stat/stat.h"

#include <string.h>
#include <time.h>

#define NS_PER_SECOND INT64_C(1000000000)

const char *const stat_kind_names[] = {"operator", "device", "environment", NULL};

const char *const stat_column_names[] = {
#define COLUMN_NAME(column, text) #column,
    AOTICACHE_GROUP_COLUMN_LIST(COLUMN_NAME)
#undef COLUMN_NAME
        "name",
    NULL};

const char *const stat_step_names[] = {"5min", "hour", "day", NULL};

int64_t stat_step_seconds(size_t position)
{
    static const int64_t seconds[] = {AOTICACHE_SLOT_FINE_SECONDS, AOTICACHE_SLOT_HOUR_SECONDS,
                                      AOTICACHE_SLOT_DAY_SECONDS};
    return seconds[position];
}

uint64_t stat_group_value(const stat_group *group, const char *column)
{
#define COLUMN_VALUE(name, text)    \
    if (strcmp(column, #name) == 0) \
        return group->sums.name;
    AOTICACHE_GROUP_COLUMN_LIST(COLUMN_VALUE)
#undef COLUMN_VALUE
    return 0;
}

const char *stat_label(const char *name, char ret_label[STAT_LABEL_BYTES])
{
    const size_t length = strlen(name);
    const bool is_time = length > 3 && strcmp(name + length - 3, "_ns") == 0;
    snprintf(ret_label, STAT_LABEL_BYTES, "%.*s%s", (int)(is_time ? length - 2 : length), name, is_time ? "time" : "");
    for (char *at = ret_label; (at = strchr(at, '_')) != NULL;)
        *at = ' ';
    return ret_label;
}

/* Parses an existing date, as UTC. strptime accepts 31 February: the normalized date must be the same day. */
static bool parse_date(const char *text, int64_t *ret_ns)
{
    static const char *const formats[] = {"%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M"};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        struct tm parts = {0};
        const char *end = strptime(text, formats[i], &parts);
        if (end == NULL || (end[0] != '\0' && strcmp(end, "Z") != 0))
            continue;
        const int day = parts.tm_mday;
        time_t seconds = timegm(&parts);
        if (parts.tm_mday != day || seconds < 0 || seconds > INT64_MAX / NS_PER_SECOND)
            return false;
        *ret_ns = (int64_t)seconds * NS_PER_SECOND;
        return true;
    }
    return false;
}

bool stat_parse_since(const char *text, int64_t now_ns, int64_t *ret_ns)
{
    uint64_t seconds;
    if (parse_date(text, ret_ns))
        return true;
    if (!aoticache_cli_parse_age(text, &seconds))
        return false;
    const uint64_t now = (uint64_t)(now_ns / NS_PER_SECOND);
    *ret_ns = seconds < now ? (int64_t)(now - seconds) * NS_PER_SECOND : 0;
    return true;
}

double stat_hit_rate(const aoticache_counters *counters)
{
    uint64_t lookups = counters->hits + counters->misses;
    return lookups > 0 ? (double)counters->hits / (double)lookups : 0;
}

uint64_t stat_mean(uint64_t sum, uint64_t count)
{
    return count > 0 ? sum / count : 0;
}

const aoticache_latency *stat_latency(const aoticache_statistics *statistics, aoticache_latency_kind kind)
{
    const aoticache_latency *const all[] = {
#define LATENCY_FIELD(name, text) &statistics->latencies.name,
        AOTICACHE_LATENCY_LIST(LATENCY_FIELD)
#undef LATENCY_FIELD
    };
    return all[kind];
}
