/*
 * tools/stat/json: one JSON object; docs/statistics.md is its schema.
 */
#include "tools/stat/stat.h"

static json_t *json_of_latency(const aoticache_latency *latency)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "count", aoticache_cli_json_count(latency->count));
    aoticache_cli_json_set(object, "sum_ns", aoticache_cli_json_count(latency->sum_ns));
    aoticache_cli_json_set(object, "mean_ns", aoticache_cli_json_count(stat_mean(latency->sum_ns, latency->count)));
    aoticache_cli_json_set(object, "p50_ns", aoticache_cli_json_count(latency->p50_ns));
    aoticache_cli_json_set(object, "p90_ns", aoticache_cli_json_count(latency->p90_ns));
    aoticache_cli_json_set(object, "p99_ns", aoticache_cli_json_count(latency->p99_ns));
    aoticache_cli_json_set(object, "max_ns", aoticache_cli_json_count(latency->max_ns));
    return object;
}

/* clang-format off */ /* it would format a body of only macros as a list */
static json_t *json_of_counters(const aoticache_counters *counters)
{
    json_t *object = aoticache_cli_json_object();
#define SET_COUNTER(name, text) aoticache_cli_json_set(object, #name, aoticache_cli_json_count(counters->name));
    AOTICACHE_COUNTER_LIST(SET_COUNTER)
#undef SET_COUNTER
#define SET_DERIVED(name, text) \
    aoticache_cli_json_set(object, #name, aoticache_cli_json_count(aoticache_counters_##name(counters)));
    AOTICACHE_DERIVED_COUNTER_LIST(SET_DERIVED)
#undef SET_DERIVED
    return object;
}/* clang-format on */

static void set_latencies(json_t *object, const aoticache_statistics *statistics)
{
    json_t *latencies = aoticache_cli_json_object();
    for (int i = 0; i < AOTICACHE_LATENCY_COUNT; i++)
        aoticache_cli_json_set(latencies, aoticache_latency_name(i), json_of_latency(stat_latency(statistics, i)));
    aoticache_cli_json_set(object, "latencies", latencies);
}

static void set_disk(json_t *object, const stat_disk *disk)
{
    json_t *member = aoticache_cli_json_object();
    aoticache_cli_json_set(member, "index_bytes", aoticache_cli_json_count(disk->index_bytes));
    aoticache_cli_json_set(member, "quarantine_files", aoticache_cli_json_count(disk->quarantine_files));
    aoticache_cli_json_set(member, "quarantine_bytes", aoticache_cli_json_count(disk->quarantine_bytes));
    aoticache_cli_json_set(member, "filesystem_bytes", aoticache_cli_json_count(disk->filesystem_bytes));
    aoticache_cli_json_set(member, "filesystem_free_bytes", aoticache_cli_json_count(disk->filesystem_free_bytes));
    aoticache_cli_json_set(object, "disk", member);
}

/* clang-format off */ /* it would format a body of only macros as a list */
static void set_columns(json_t *row, const aoticache_group *sums)
{
#define SET_COLUMN(column, text) aoticache_cli_json_set(row, #column, aoticache_cli_json_count(sums->column));
    AOTICACHE_GROUP_COLUMN_LIST(SET_COLUMN)
#undef SET_COLUMN
}/* clang-format on */

json_t *stat_json_of_groups(const stat_groups *groups, aoticache_group_kind kind, const char *sort, size_t top)
{
    json_t *object = aoticache_cli_json_object(), *rows = aoticache_cli_json_array();
    aoticache_cli_json_set(object, "by", aoticache_cli_json_text(stat_kind_names[kind]));
    aoticache_cli_json_set(object, "sort", aoticache_cli_json_text(sort));
    aoticache_cli_json_set(object, "count", aoticache_cli_json_count(groups->count));
    for (size_t i = 0; i < groups->count && i < top; i++) {
        json_t *row = aoticache_cli_json_object();
        aoticache_cli_json_set(row, "name", aoticache_cli_json_text(groups->items[i].name));
        set_columns(row, &groups->items[i].sums);
        aoticache_cli_json_append(rows, row);
    }
    aoticache_cli_json_set(object, "rows", rows);
    return object;
}

json_t *stat_json_of_rest(const stat_groups *groups, size_t top)
{
    aoticache_group sums = {.name = NULL};
    json_t *object = aoticache_cli_json_object();
    for (size_t i = top; i < groups->count; i++) {
#define ADD_COLUMN(column, text) sums.column += groups->items[i].sums.column;
        AOTICACHE_GROUP_COLUMN_LIST(ADD_COLUMN)
#undef ADD_COLUMN
    }
    set_columns(object, &sums);
    return object;
}

static json_t *json_of_entries(const stat_entries *entries)
{
    json_t *array = aoticache_cli_json_array();
    for (size_t i = 0; i < entries->count; i++) {
        const stat_entry *entry = &entries->items[i];
        json_t *row = aoticache_cli_json_object();
        aoticache_cli_json_set(row, "key", aoticache_cli_json_digest(&entry->key));
        aoticache_cli_json_set(row, "op", aoticache_cli_json_text(entry->op));
        aoticache_cli_json_set(row, "device", aoticache_cli_json_text(entry->device));
        aoticache_cli_json_set(row, "description", aoticache_cli_json_text(entry->description));
        aoticache_cli_json_set(row, "producer", aoticache_cli_json_text(entry->producer));
        aoticache_cli_json_set(row, "bytes", aoticache_cli_json_count(entry->bytes));
        aoticache_cli_json_set(row, "compile_ns", aoticache_cli_json_count(entry->compile_ns));
        aoticache_cli_json_set(row, "uses", aoticache_cli_json_count(entry->uses));
        aoticache_cli_json_set(row, "last_used_ns", aoticache_cli_json_count((uint64_t)entry->last_used_ns));
        aoticache_cli_json_append(array, row);
    }
    return array;
}

static void set_history(json_t *object, const stat_view *view)
{
    json_t *member = aoticache_cli_json_object(), *slots = aoticache_cli_json_array();
    aoticache_cli_json_set(member, "step_seconds", aoticache_cli_json_count((uint64_t)view->step_seconds));
    for (size_t i = 0; i < view->history.count; i++) {
        const aoticache_slot *slot = &view->history.items[i];
        json_t *row = aoticache_cli_json_object();
        aoticache_cli_json_set(row, "start_ns", aoticache_cli_json_count((uint64_t)slot->start_ns));
        aoticache_cli_json_set(row, "counters", json_of_counters(&slot->counters));
        aoticache_cli_json_append(slots, row);
    }
    aoticache_cli_json_set(member, "slots", slots);
    aoticache_cli_json_set(object, "history", member);
}

static void set_times(json_t *object, const aoticache_statistics *statistics)
{
    aoticache_cli_json_set(object, "created_ns", aoticache_cli_json_count((uint64_t)statistics->created_ns));
    aoticache_cli_json_set(object, "since_ns", aoticache_cli_json_count((uint64_t)statistics->since_ns));
    aoticache_cli_json_set(object, "zeroed_ns",
                           statistics->zeroed_ns == 0 ? json_null()
                                                      : aoticache_cli_json_count((uint64_t)statistics->zeroed_ns));
}

json_t *stat_json(const stat_view *view)
{
    const aoticache_statistics *statistics = &view->statistics;
    const aoticache_counters *counters = &statistics->counters;
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(view->directory));
    set_times(object, statistics);
    aoticache_cli_json_set(object, "entries", aoticache_cli_json_count(statistics->entries));
    aoticache_cli_json_set(object, "artifacts", aoticache_cli_json_count(statistics->artifacts));
    aoticache_cli_json_set(object, "objects", aoticache_cli_json_count(statistics->objects));
    aoticache_cli_json_set(object, "bytes", aoticache_cli_json_count(statistics->bytes));
    aoticache_cli_json_set(object, "failures_remembered", aoticache_cli_json_count(statistics->failures_remembered));
    aoticache_cli_json_set(object, "counters", json_of_counters(counters));
    aoticache_cli_json_set(object, "hit_rate", aoticache_cli_json_number(stat_hit_rate(counters)));
    aoticache_cli_json_set(
        object, "mean_lookup_ns",
        aoticache_cli_json_count(stat_mean(counters->lookup_ns, aoticache_counters_hits_index(counters))));
    aoticache_cli_json_set(object, "mean_compile_ns",
                           aoticache_cli_json_count(stat_mean(counters->compile_ns, counters->compiles)));
    set_latencies(object, statistics);
    set_disk(object, &view->disk);
    if (view->request->by_group)
        aoticache_cli_json_set(
            object, "groups",
            stat_json_of_groups(&view->groups, view->request->by, view->request->sort, view->request->top));
    if (view->request->with_entries) {
        aoticache_cli_json_set(object, "largest", json_of_entries(&view->largest));
        aoticache_cli_json_set(object, "coldest", json_of_entries(&view->coldest));
    }
    if (view->step_seconds != 0)
        set_history(object, view);
    return object;
}
