/*
 * tools/stat/html: one page that needs nothing else: numbers, plots, tables. What others wrote is escaped; the
 * page has no script.
 */
#include "tools/stat/stat.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_SECOND INT64_C(1000000000)
#define PLOTTED_OPERATORS 12
#define LEAST_SLOTS 12

typedef struct page {
    FILE *out;
    stat_view *view;
    stat_groups operators, devices, environments;
    stat_slots slots;
    int64_t step_seconds;
} page;

static const char style[] =
    ":root{color-scheme:light dark;--back:#f6f7f9;--card:#fff;--ink:#1c2330;--dim:#5f6b7c;--line:#dfe4ea;"
    "--c1:#2563c9;--c2:#c2571a;--c3:#23804a;--c4:#8a4bb8}\n"
    "@media(prefers-color-scheme:dark){:root{--back:#12161c;--card:#1b212a;--ink:#e6eaf0;--dim:#9aa6b6;--line:#303946;"
    "--c1:#6ea8ff;--c2:#ff9d5c;--c3:#62cf8d;--c4:#c895f0}}\n"
    "*{box-sizing:border-box}body{margin:0;background:var(--back);color:var(--ink);"
    "font:15px/1.45 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\n"
    "main{max-width:1240px;margin:0 auto;padding:28px 20px 48px}h1{font-size:22px;margin:0}"
    "h2{font-size:15px;margin:0 0 10px}\n"
    "header p{margin:4px 0 0;color:var(--dim);overflow-wrap:anywhere}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:14px;margin:22px 0}\n"
    ".tile,section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px}\n"
    ".tile b{display:block;font-size:23px;line-height:1.25;white-space:nowrap;font-variant-numeric:tabular-nums}"
    ".tile span{color:var(--dim);font-size:13px}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(480px,100%),1fr));gap:14px}\n"
    "section{min-width:0}.tables section{margin-top:14px;overflow-x:auto}\n"
    ".plot{display:block;width:100%;height:auto}.plot text{fill:var(--dim);font-size:12px}"
    ".plot .name{fill:var(--ink)}.plot .empty{font-size:14px}.plot .grid{stroke:var(--line);stroke-width:1}"
    ".plot .tip{fill:transparent}.plot .tip:hover{fill:var(--dim);opacity:.12}\n"
    ".legend{display:flex;gap:16px;flex-wrap:wrap;margin:8px 0 0;color:var(--dim);font-size:13px}"
    ".legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px}\n"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
    "th,td{padding:5px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}"
    "th{color:var(--dim);font-weight:600;font-size:13px}th:first-child,td:first-child{text-align:left}"
    "td:first-child{white-space:normal;overflow-wrap:anywhere;min-width:150px}tr:last-child td{border-bottom:0}\n";

/* ---- values ---- */

static void format_percent(double value, char *ret_text, size_t size)
{
    snprintf(ret_text, size, value == 0 || value >= 9.95 ? "%.0f %%" : "%.1f %%", value);
}

static void format_bytes(double value, char *ret_text, size_t size)
{
    char text[AOTICACHE_CLI_UNIT_BYTES];
    snprintf(ret_text, size, "%s", aoticache_cli_format_bytes((uint64_t)value, text));
}

static void format_seconds(double value, char *ret_text, size_t size)
{
    snprintf(ret_text, size, "%.4g s", value);
}

static void format_minutes(double value, char *ret_text, size_t size)
{
    snprintf(ret_text, size, "%.4g min", value);
}

static void format_hours(double value, char *ret_text, size_t size)
{
    snprintf(ret_text, size, "%.4g h", value);
}

/* ---- tiles ---- */

static void tile(const page *to, const char *value, const char *name)
{
    fprintf(to->out, "<div class=\"tile\"><b>%s</b><span>%s</span></div>\n", value, name);
}

static void write_tiles(const page *to)
{
    const aoticache_statistics *statistics = &to->view->statistics;
    const aoticache_counters *counters = &statistics->counters;
    char text[AOTICACHE_CLI_UNIT_BYTES];
    fputs("<div class=\"tiles\">\n", to->out);
    snprintf(text, sizeof text, "%.1f %%", 100 * stat_hit_rate(counters));
    tile(to, counters->hits + counters->misses > 0 ? text : "&ndash;", "hit rate");
    snprintf(text, sizeof text, "%" PRIu64, counters->hits + counters->misses);
    tile(to, text, "lookups and calls");
    snprintf(text, sizeof text, "%" PRIu64, counters->compiles);
    tile(to, text, "compiles");
    tile(to, aoticache_cli_format_duration(counters->saved_ns, text), "of compiling saved");
    snprintf(text, sizeof text, "%" PRIu64, statistics->entries);
    tile(to, text, "entries now");
    tile(to, aoticache_cli_format_bytes(statistics->bytes, text), "on disk now");
    fputs("</div>\n", to->out);
}

/* ---- plots over time ---- */

/* Every slot from the first one with something in it to now: those in which nothing happened too. */
typedef struct timeline {
    size_t count;
    char **labels;
    double *hit_rate, *saved, *spent;
    void (*format)(double value, char *ret_text, size_t size); /* of saved and spent */
} timeline;

static char *slot_label(int64_t start_ns, int64_t step_seconds)
{
    char text[32] = "";
    time_t seconds = (time_t)(start_ns / NS_PER_SECOND);
    struct tm parts;
    if (gmtime_r(&seconds, &parts) == NULL)
        return aoticache_cli_text("?");
    if (step_seconds == AOTICACHE_SLOT_FINE_SECONDS)
        strftime(text, sizeof text, "%H:%M", &parts);
    else if (step_seconds == AOTICACHE_SLOT_HOUR_SECONDS)
        strftime(text, sizeof text, "%d %b %H:%M", &parts);
    else
        strftime(text, sizeof text, "%Y-%m-%d", &parts);
    return aoticache_cli_text("%s", text);
}

static void fill_slot(timeline *line, size_t at, const aoticache_counters *counters)
{
    line->saved[at] = (double)counters->saved_ns / 1e9;
    line->spent[at] = (double)counters->compile_ns / 1e9;
    if (counters->hits + counters->misses > 0)
        line->hit_rate[at] = 100 * stat_hit_rate(counters);
}

/* In the unit that makes round numbers on the axis. */
static void scale_times(timeline *line)
{
    const double largest = fmax(line->saved[line->count - 1], line->spent[line->count - 1]);
    const double unit = largest >= 7200 ? 3600 : largest >= 120 ? 60 : 1;
    line->format = unit == 3600 ? format_hours : unit == 60 ? format_minutes : format_seconds;
    for (size_t i = 0; i < line->count; i++) {
        line->saved[i] /= unit;
        line->spent[i] /= unit;
    }
}

static timeline make_timeline(const page *to)
{
    timeline line = {.format = format_seconds};
    if (to->slots.count == 0)
        return line;
    const int64_t step = to->step_seconds * NS_PER_SECOND;
    const int64_t now = aoticache_wall_ns();
    int64_t first = to->slots.items[0].start_ns;
    int64_t last = to->slots.items[to->slots.count - 1].start_ns;
    last = now - now % step > last ? now - now % step : last;
    if (last - first < (LEAST_SLOTS - 1) * step)
        first = last - (LEAST_SLOTS - 1) * step;
    line.count = (size_t)((last - first) / step) + 1;
    line.labels = aoticache_cli_allocate(line.count, sizeof *line.labels);
    line.hit_rate = aoticache_cli_allocate(line.count, sizeof *line.hit_rate);
    line.saved = aoticache_cli_allocate(line.count, sizeof *line.saved);
    line.spent = aoticache_cli_allocate(line.count, sizeof *line.spent);
    for (size_t i = 0; i < line.count; i++) {
        line.labels[i] = slot_label(first + (int64_t)i * step, to->step_seconds);
        line.hit_rate[i] = NAN;
    }
    for (size_t i = 0; i < to->slots.count; i++)
        fill_slot(&line, (size_t)((to->slots.items[i].start_ns - first) / step), &to->slots.items[i].counters);
    for (size_t i = 1; i < line.count; i++) {
        line.saved[i] += line.saved[i - 1];
        line.spent[i] += line.spent[i - 1];
    }
    scale_times(&line);
    return line;
}

static void free_timeline(timeline *line)
{
    for (size_t i = 0; i < line->count; i++)
        free(line->labels[i]);
    free(line->labels);
    free(line->hit_rate);
    free(line->saved);
    free(line->spent);
}

static void begin_section(const page *to, const char *title)
{
    fputs("<section><h2>", to->out);
    stat_html_escape(to->out, title);
    fputs("</h2>\n", to->out);
}

static void write_legend(const page *to, const stat_plot *plot)
{
    fputs("<p class=\"legend\">", to->out);
    for (size_t k = 0; k < plot->series_count; k++)
        fprintf(to->out, "<span><i style=\"background:%s\"></i>%s</span>", plot->series[k].color, plot->series[k].name);
    fputs("</p>\n", to->out);
}

static void write_line_plot(const page *to, const stat_plot *plot)
{
    begin_section(to, plot->title);
    stat_plot_lines(to->out, plot);
    if (plot->series_count > 1)
        write_legend(to, plot);
    fputs("</section>\n", to->out);
}

static const char *period_of(const page *to)
{
    return to->step_seconds == AOTICACHE_SLOT_FINE_SECONDS   ? "5 minutes each"
           : to->step_seconds == AOTICACHE_SLOT_HOUR_SECONDS ? "an hour each"
                                                             : "a day each";
}

static void write_time_plots(const page *to, bool is_saved)
{
    timeline line = make_timeline(to);
    const stat_series rate = {.name = "hit rate", .color = "var(--c1)", .values = line.hit_rate, .is_area = true};
    const stat_series seconds[] = {
        {.name = "saved by hits", .color = "var(--c3)", .values = line.saved, .is_area = true},
        {.name = "spent compiling", .color = "var(--c2)", .values = line.spent}};
    char title[96];
    snprintf(title, sizeof title, is_saved ? "Compile time saved, summed up" : "Hit rate over time (%s, UTC)",
             period_of(to));
    const stat_plot plot = {.id = is_saved ? "plot-saved" : "plot-hit-rate",
                            .title = title,
                            .labels = (const char *const *)line.labels,
                            .count = line.count,
                            .series = is_saved ? seconds : &rate,
                            .series_count = is_saved ? 2 : 1,
                            .maximum = is_saved ? 0 : 100,
                            .format = is_saved ? line.format : format_percent,
                            .empty = "nothing happened in this time"};
    write_line_plot(to, &plot);
    free_timeline(&line);
}

/* ---- bytes by operator ---- */

static void write_operator_plot(const page *to)
{
    const char *labels[PLOTTED_OPERATORS + 1];
    double values[PLOTTED_OPERATORS + 1];
    size_t count = 0;
    for (; count < PLOTTED_OPERATORS && count < to->operators.count; count++) {
        labels[count] = to->operators.items[count].name;
        values[count] = (double)to->operators.items[count].sums.bytes;
        if (values[count] == 0)
            break;
    }
    double rest = 0;
    for (size_t i = count; i < to->operators.count; i++)
        rest += (double)to->operators.items[i].sums.bytes;
    if (rest > 0) {
        labels[count] = "all others";
        values[count++] = rest;
    }
    const stat_series series = {.name = "bytes", .color = "var(--c1)", .values = values};
    const stat_plot plot = {.id = "plot-bytes",
                            .title = "Bytes by operator",
                            .labels = labels,
                            .count = count,
                            .series = &series,
                            .series_count = 1,
                            .format = format_bytes,
                            .empty = "there are no entries"};
    begin_section(to, plot.title);
    stat_plot_bars(to->out, &plot);
    fputs("</section>\n", to->out);
}

/* ---- latencies ---- */

#define OCTAVES 64
#define SHOWN_LATENCIES 3

typedef struct octaves {
    double counts[OCTAVES];
    double all;
} octaves;

static bool add_octave(void *user, uint64_t lower_ns, uint64_t upper_ns, uint64_t count)
{
    octaves *to = user;
    (void)upper_ns;
    to->counts[lower_ns > 1 ? 63 - __builtin_clzll(lower_ns) : 0] += (double)count;
    to->all += (double)count;
    return true;
}

/* In per cent; none where neither the octave nor its neighbours have any. */
static void make_shares(octaves *of)
{
    double shares[OCTAVES];
    for (size_t i = 0; i < OCTAVES; i++) {
        bool is_near = of->counts[i] > 0 || (i > 0 && of->counts[i - 1] > 0) ||
                       (i + 1 < OCTAVES && of->counts[i + 1] > 0);
        shares[i] = is_near ? 100 * of->counts[i] / of->all : NAN;
    }
    memcpy(of->counts, shares, sizeof shares);
}

static int read_octaves(const page *to, octaves all[SHOWN_LATENCIES], size_t *ret_first, size_t *ret_end)
{
    size_t first = OCTAVES, end = 0;
    for (int k = 0; k < SHOWN_LATENCIES; k++) {
        aoticache_error error = {.message = ""};
        aoticache_status status = aoticache_cache_list_latency(to->view->cache, k, &to->view->request->since, add_octave,
                                                               &all[k], &error);
        if (status != AOTICACHE_OK)
            return aoticache_cli_fail(to->view->cli, status, &error);
        for (size_t i = 0; i < OCTAVES; i++) {
            if (all[k].counts[i] == 0)
                continue;
            first = i < first ? i : first;
            end = i + 1 > end ? i + 1 : end;
        }
        make_shares(&all[k]);
    }
    /* One empty octave on each side, so that lines begin and end on the axis. */
    *ret_first = first > 0 && first < OCTAVES ? first - 1 : first;
    *ret_end = end > 0 && end < OCTAVES ? end + 1 : end;
    return AOTICACHE_CLI_EXIT_OK;
}

static int write_latency_plot(const page *to)
{
    octaves all[SHOWN_LATENCIES] = {{.all = 0}};
    char texts[OCTAVES][AOTICACHE_CLI_UNIT_BYTES];
    const char *labels[OCTAVES];
    size_t first = 0, end = 0;
    int result = read_octaves(to, all, &first, &end);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    for (size_t i = first; i < end; i++)
        labels[i - first] = aoticache_cli_format_duration(UINT64_C(1) << i, texts[i]);
    first = first < end ? first : 0;
    const stat_series series[SHOWN_LATENCIES] = {
        {.name = "lookup", .color = "var(--c1)", .values = all[0].counts + first, .is_area = true},
        {.name = "load", .color = "var(--c3)", .values = all[1].counts + first, .is_area = true},
        {.name = "compile", .color = "var(--c2)", .values = all[2].counts + first, .is_area = true}};
    const stat_plot plot = {.id = "plot-latency",
                            .title = "Latencies (share of each, by powers of two)",
                            .labels = labels,
                            .count = end - first,
                            .series = series,
                            .series_count = SHOWN_LATENCIES,
                            .format = format_percent,
                            .empty = "nothing was measured yet"};
    write_line_plot(to, &plot);
    return result;
}

/* ---- tables ---- */

static void cell(const page *to, const char *text)
{
    fputs("<td>", to->out);
    stat_html_escape(to->out, text);
    fputs("</td>", to->out);
}

static void count_cell(const page *to, uint64_t count)
{
    fprintf(to->out, "<td>%" PRIu64 "</td>", count);
}

static void write_groups(const page *to, const char *title, const stat_groups *groups)
{
    char text[AOTICACHE_CLI_UNIT_BYTES];
    begin_section(to, title);
    fputs("<table><thead><tr><th>name</th><th>hits</th><th>misses</th><th>compiles</th><th>failures</th><th>spent</th>"
          "<th>saved</th><th>entries</th><th>bytes</th></tr></thead><tbody>\n",
          to->out);
    for (size_t i = 0; i < groups->count && i < to->view->request->top; i++) {
        const aoticache_group *sums = &groups->items[i].sums;
        fputs("<tr>", to->out);
        cell(to, groups->items[i].name);
        count_cell(to, sums->hits);
        count_cell(to, sums->misses);
        count_cell(to, sums->compiles);
        count_cell(to, sums->failures);
        cell(to, aoticache_cli_format_duration(sums->compile_ns, text));
        cell(to, aoticache_cli_format_duration(sums->saved_ns, text));
        count_cell(to, sums->entries);
        cell(to, aoticache_cli_format_bytes(sums->bytes, text));
        fputs("</tr>\n", to->out);
    }
    fputs("</tbody></table></section>\n", to->out);
}

static void write_latencies(const page *to)
{
    char text[AOTICACHE_CLI_UNIT_BYTES];
    begin_section(to, "Latencies");
    fputs("<table><thead><tr><th>of</th><th>count</th><th>mean</th><th>50 %</th><th>90 %</th><th>99 %</th>"
          "<th>longest</th></tr></thead><tbody>\n",
          to->out);
    static const char *const names[] = {
#define LATENCY_TEXT(name, meaning) #name ": " meaning,
        AOTICACHE_LATENCY_LIST(LATENCY_TEXT)
#undef LATENCY_TEXT
    };
    for (int i = 0; i < AOTICACHE_LATENCY_COUNT; i++) {
        const aoticache_latency *latency = stat_latency(&to->view->statistics, i);
        const uint64_t values[] = {stat_mean(latency->sum_ns, latency->count), latency->p50_ns, latency->p90_ns,
                                   latency->p99_ns, latency->max_ns};
        fputs("<tr>", to->out);
        cell(to, names[i]);
        count_cell(to, latency->count);
        for (size_t k = 0; k < sizeof values / sizeof values[0]; k++)
            cell(to, latency->count > 0 ? aoticache_cli_format_duration(values[k], text) : "-");
        fputs("</tr>\n", to->out);
    }
    fputs("</tbody></table></section>\n", to->out);
}

static void write_counters(const page *to)
{
    const aoticache_counters *counters = &to->view->statistics.counters;
    begin_section(to, "Counters");
    fputs("<table><thead><tr><th>what</th><th>number</th></tr></thead><tbody>\n", to->out);
#define WRITE_COUNTER(member, name, meaning)                                                \
    fprintf(to->out, "<tr><td>%s</td>", meaning);                                           \
    count_cell(to, counters->member);                                                       \
    fputs("</tr>\n", to->out);
    AOTICACHE_COUNTER_LIST(WRITE_COUNTER)
#undef WRITE_COUNTER
    fputs("</tbody></table></section>\n", to->out);
}

/* ---- the page ---- */

static void write_header(const page *to)
{
    char since[AOTICACHE_CLI_UNIT_BYTES], now[AOTICACHE_CLI_UNIT_BYTES];
    fprintf(to->out,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
            "content=\"width=device-width,initial-scale=1\"><meta name=\"generator\" content=\"aoticache-stat %s\">"
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';style-src 'unsafe-inline'\">"
            "<title>aoticache</title><style>\n%s</style></head><body><main>\n<header><h1>Kernel cache</h1><p>",
            aoticache_version(), style);
    stat_html_escape(to->out, to->view->directory);
    fprintf(to->out, "</p><p>%s to %s</p></header>\n",
            aoticache_cli_format_time(to->view->statistics.since_ns, since),
            aoticache_cli_format_time(aoticache_wall_ns(), now));
}

static int write_page(const page *to)
{
    write_header(to);
    write_tiles(to);
    fputs("<div class=\"plots\">\n", to->out);
    write_time_plots(to, false);
    write_operator_plot(to);
    write_time_plots(to, true);
    int result = write_latency_plot(to);
    fputs("</div><div class=\"tables\">\n", to->out);
    write_groups(to, "By operator", &to->operators);
    write_groups(to, "By environment", &to->environments);
    write_groups(to, "By device", &to->devices);
    write_latencies(to);
    write_counters(to);
    fputs("</div></main></body></html>\n", to->out);
    return result;
}

/* The finest slots that reach back as far as there is something to show. */
static int64_t choose_step(const page *to)
{
    const int64_t hours = (aoticache_wall_ns() - to->view->statistics.since_ns) / NS_PER_SECOND / 3600;
    if (to->view->request->since.since == AOTICACHE_STATISTICS_SINCE_TIME && hours > 31 * 24)
        return AOTICACHE_SLOT_DAY_SECONDS;
    return hours > 25 ? AOTICACHE_SLOT_HOUR_SECONDS : AOTICACHE_SLOT_FINE_SECONDS;
}

static int read_page(page *to)
{
    to->step_seconds = choose_step(to);
    int result = stat_read_groups(to->view, AOTICACHE_GROUP_OPERATOR, "bytes", &to->operators);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = stat_read_groups(to->view, AOTICACHE_GROUP_DEVICE, "bytes", &to->devices);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = stat_read_groups(to->view, AOTICACHE_GROUP_ENVIRONMENT, "bytes", &to->environments);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = stat_read_history(to->view, to->view->statistics.since_ns, to->step_seconds, &to->slots);
    return result;
}

int stat_write_html(stat_view *view)
{
    char *text = NULL;
    size_t size = 0;
    page to = {.view = view, .out = open_memstream(&text, &size)};
    if (to.out == NULL)
        return aoticache_cli_error(view->cli, "out of memory");
    int result = read_page(&to);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = write_page(&to);
    bool failed = ferror(to.out) != 0;
    if ((fclose(to.out) != 0 || failed) && result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_cli_error(view->cli, "out of memory");
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = stat_write_file(view->cli, view->request->file, text, size);
    free(text);
    stat_free_groups(&to.operators);
    stat_free_groups(&to.devices);
    stat_free_groups(&to.environments);
    stat_free_slots(&to.slots);
    return result;
}
