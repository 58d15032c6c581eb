/*
 * tools/stat/stat: shared by the parts of aoticache-stat: the request, the data read, and writers for each format.
 */
#ifndef AOTICACHE_TOOLS_STAT_STAT_H
#define AOTICACHE_TOOLS_STAT_STAT_H

#include "tools/cli/cli.h"
#include "cache/stats/statistics.h"

typedef enum stat_form {
    STAT_FORM_TEXT,
    STAT_FORM_JSON,
    STAT_FORM_CSV,
    STAT_FORM_PROMETHEUS,
    STAT_FORM_HTML,
    STAT_FORM_WATCH,
} stat_form;

/* The options of the command line. */
typedef struct stat_request {
    stat_form form;
    const char *form_option;  /* the option that chose the format; NULL: none */
    const char *file;         /* of Prometheus and HTML; NULL: standard output */
    const char *since_option; /* "--since", "--day", "--all"; NULL: since the numbers were zeroed, if they were */
    aoticache_statistics_options since;
    bool zero;
    bool by_group;
    aoticache_group_kind by;
    size_t top;
    const char *sort; /* a column of groups; NULL: the default */
    bool with_entries;
    size_t entries;
    bool with_history;
    int64_t step_seconds;
    double watch_seconds;
} stat_request;

/* Disk usage in addition to the objects in the index. */
typedef struct stat_disk {
    uint64_t index_bytes; /* including its log */
    uint64_t quarantine_files, quarantine_bytes;
    uint64_t filesystem_bytes, filesystem_free_bytes;
} stat_disk;

typedef struct stat_group {
    char *name;
    aoticache_group sums; /* its name is `name` */
} stat_group;

typedef struct stat_groups {
    stat_group *items;
    size_t count;
} stat_groups;

typedef struct stat_slots {
    aoticache_slot *items;
    size_t count;
} stat_slots;

typedef struct stat_entry {
    char *op, *description, *producer, *device;
    aoticache_key key;
    uint64_t bytes, compile_ns, uses;
    int64_t last_used_ns;
} stat_entry;

typedef struct stat_entries {
    stat_entry *items;
    size_t count;
} stat_entries;

/* Everything that one view needs. */
typedef struct stat_view {
    const aoticache_cli *cli;
    const stat_request *request;
    aoticache_cache *cache; /* NULL: there is none yet, and all figures are 0 */
    const char *directory;
    aoticache_statistics statistics;
    stat_disk disk;
    stat_groups groups; /* all groups, sorted */
    stat_entries largest, coldest;
    stat_slots history;
    int64_t step_seconds; /* of the history; 0: it was not read */
} stat_view;

/* ---- read.c; each function returns an exit code and prints errors ---- */

int stat_read(stat_view *view);
int stat_read_groups(stat_view *view, aoticache_group_kind kind, const char *sort, stat_groups *ret_groups);
int stat_read_history(stat_view *view, int64_t since_ns, int64_t step_seconds);
void stat_free_groups(stat_groups *groups);
void stat_view_free(stat_view *view);

/* ---- names.c: words of the command line ---- */

/* Parses "1h", "2d", "2025-01-31", "2025-01-31T12:00[:30]" (UTC): returns false if it is none of these. */
bool stat_parse_since(const char *text, int64_t now_ns, int64_t *ret_ns);
extern const char *const stat_kind_names[];   /* by aoticache_group_kind; NULL at the end */
extern const char *const stat_column_names[]; /* of groups */
extern const char *const stat_step_names[];
int64_t stat_step_seconds(size_t position);
uint64_t stat_group_value(const stat_group *group, const char *column);

#define STAT_LABEL_BYTES 64
/* Writes a name as readable text, "lease_wait_ns" as "lease wait time", and returns it. */
const char *stat_label(const char *name, char ret_label[STAT_LABEL_BYTES]);

double stat_hit_rate(const aoticache_counters *counters);
uint64_t stat_mean(uint64_t sum, uint64_t count);
/* Returns latencies by their number. */
const aoticache_latency *stat_latency(const aoticache_statistics *statistics, aoticache_latency_kind kind);

/* ---- the output formats ---- */

void stat_print_summary(const stat_view *view); /* text.c: the most important lines */
void stat_print_all(const stat_view *view);     /* all numbers */
void stat_print_short(const stat_view *view);   /* the most important lines and the latencies, for small windows */
void stat_print_groups(const stat_view *view);  /* tables.c */
void stat_print_entries(const stat_view *view);
void stat_print_history(const stat_view *view);
json_t *stat_json(const stat_view *view); /* json.c */
json_t *stat_json_of_groups(const stat_groups *groups, aoticache_group_kind kind, const char *sort, size_t top);
json_t *stat_json_of_rest(const stat_groups *groups, size_t top); /* the sums of those not among the first */
void stat_print_csv(const stat_view *view);                       /* csv.c */
int stat_write_prometheus(stat_view *view);                       /* prometheus.c */
int stat_write_html(stat_view *view);                             /* html.c */
int stat_watch(stat_view *view);                                  /* watch.c */

#endif
