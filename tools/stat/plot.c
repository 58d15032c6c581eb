/*
 * tools/stat/plot: line and bar plots as SVG. Sizes are in units of the viewBox; colours are classes and
 * variables of the page's style sheet, so that one drawing is readable on light and on dark.
 */
#include "tools/stat/stat.h"

#include <math.h>
#include <string.h>

#define WIDTH 640.0
#define HEIGHT 270.0
#define LEFT 62.0
#define RIGHT 14.0
#define TOP 14.0
#define BOTTOM 30.0
#define MAX_LABELS 6

#define BAR_HEIGHT 22.0
#define BAR_GAP 6.0
#define BAR_LEFT 210.0
#define BAR_RIGHT 84.0
#define BAR_LABEL_BYTES 30

void stat_html_escape(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '\'':
            fputs("&#39;", out);
            break;
        default:
            fputc(*text, out);
        }
    }
}

static void begin(FILE *out, const stat_plot *plot, double height)
{
    fprintf(out, "<svg class=\"plot\" id=\"%s\" viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"", plot->id, WIDTH,
            height);
    stat_html_escape(out, plot->title);
    fputs("\">\n", out);
}

static void say_empty(FILE *out, const stat_plot *plot)
{
    fprintf(out, "<text class=\"empty\" x=\"%g\" y=\"%g\" text-anchor=\"middle\">", WIDTH / 2, HEIGHT / 2);
    stat_html_escape(out, plot->empty);
    fputs("</text>\n</svg>\n", out);
}

static double largest(const stat_plot *plot, size_t series_count)
{
    double maximum = 0;
    for (size_t k = 0; k < series_count; k++)
        for (size_t i = 0; i < plot->count; i++)
            if (!isnan(plot->series[k].values[i]))
                maximum = fmax(maximum, plot->series[k].values[i]);
    return maximum;
}

/* 1, 2, 2.5 or 5 times a power of ten, so that some four of them make the maximum. */
static double tick_of(double maximum)
{
    static const double steps[] = {1, 2, 2.5, 5, 10};
    double power = pow(10, floor(log10(maximum / 4)));
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (steps[i] * power >= maximum / 4.5)
            return steps[i] * power;
    return 10 * power;
}

static double x_of(const stat_plot *plot, size_t i)
{
    double span = WIDTH - LEFT - RIGHT;
    return plot->count > 1 ? LEFT + span * (double)i / (double)(plot->count - 1) : LEFT + span / 2;
}

static double y_of(double value, double maximum)
{
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / maximum;
}

static void draw_axes(FILE *out, const stat_plot *plot, double maximum, double tick)
{
    char text[64];
    for (double value = 0; value <= maximum * 1.0001; value += tick) {
        double y = y_of(value, maximum);
        plot->format(value, text, sizeof text);
        fprintf(out, "<line class=\"grid\" x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%g\" y=\"%.1f\" "
                     "text-anchor=\"end\">",
                LEFT, WIDTH - RIGHT, y, y, LEFT - 8, y + 4);
        stat_html_escape(out, text);
        fputs("</text>\n", out);
    }
    size_t labels = plot->count < MAX_LABELS ? plot->count : MAX_LABELS;
    for (size_t k = 0; k < labels; k++) {
        size_t i = labels > 1 ? k * (plot->count - 1) / (labels - 1) : 0;
        const char *anchor = labels == 1 ? "middle" : k == 0 ? "start" : k + 1 == labels ? "end" : "middle";
        fprintf(out, "<text x=\"%.1f\" y=\"%g\" text-anchor=\"%s\">", x_of(plot, i), HEIGHT - 10, anchor);
        stat_html_escape(out, plot->labels[i]);
        fputs("</text>\n", out);
    }
}

/* From one point to the next ones that have values: a run of them is one path. */
static void draw_run(FILE *out, const stat_plot *plot, const stat_series *series, size_t first, size_t end,
                     double maximum)
{
    if (end - first == 1) {
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n", x_of(plot, first),
                y_of(series->values[first], maximum), series->color);
        return;
    }
    for (int pass = series->is_area ? 0 : 1; pass < 2; pass++) {
        fputs("<path d=\"", out);
        for (size_t i = first; i < end; i++)
            fprintf(out, "%c%.1f %.1f", i == first ? 'M' : 'L', x_of(plot, i), y_of(series->values[i], maximum));
        if (pass == 0)
            fprintf(out, "L%.1f %.1fL%.1f %.1fZ\" fill=\"%s\" opacity=\".16\"/>\n", x_of(plot, end - 1), y_of(0, maximum),
                    x_of(plot, first), y_of(0, maximum), series->color);
        else
            fprintf(out, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-linejoin=\"round\"/>\n",
                    series->color);
    }
}

static void draw_series(FILE *out, const stat_plot *plot, const stat_series *series, double maximum)
{
    for (size_t i = 0; i < plot->count;) {
        size_t end = i;
        while (end < plot->count && !isnan(series->values[end]))
            end++;
        if (end > i)
            draw_run(out, plot, series, i, end, maximum);
        i = end + 1;
    }
}

/* A strip for each point that tells its values under the pointer. */
static void draw_tips(FILE *out, const stat_plot *plot)
{
    const double width = (WIDTH - LEFT - RIGHT) / (double)(plot->count > 1 ? plot->count - 1 : 1);
    for (size_t i = 0; i < plot->count; i++) {
        bool any = false;
        char text[64];
        for (size_t k = 0; k < plot->series_count; k++)
            any = any || !isnan(plot->series[k].values[i]);
        if (!any)
            continue;
        fprintf(out, "<rect class=\"tip\" x=\"%.1f\" y=\"%g\" width=\"%.1f\" height=\"%g\"><title>",
                x_of(plot, i) - width / 2, TOP, width, HEIGHT - TOP - BOTTOM);
        stat_html_escape(out, plot->labels[i]);
        for (size_t k = 0; k < plot->series_count; k++) {
            if (isnan(plot->series[k].values[i]))
                continue;
            plot->format(plot->series[k].values[i], text, sizeof text);
            fprintf(out, "\n%s: %s", plot->series[k].name, text);
        }
        fputs("</title></rect>\n", out);
    }
}

void stat_plot_lines(FILE *out, const stat_plot *plot)
{
    double maximum = plot->maximum > 0 ? plot->maximum : largest(plot, plot->series_count);
    begin(out, plot, HEIGHT);
    if (plot->count == 0 || !(maximum > 0)) {
        say_empty(out, plot);
        return;
    }
    double tick = tick_of(maximum);
    if (plot->maximum == 0)
        maximum = ceil(maximum / tick - 1e-9) * tick;
    draw_axes(out, plot, maximum, tick);
    for (size_t k = 0; k < plot->series_count; k++)
        draw_series(out, plot, &plot->series[k], maximum);
    draw_tips(out, plot);
    fputs("</svg>\n", out);
}

/* The end of a name says more than its beginning. A cut falls between characters. */
static const char *shorten(const char *text, const char **ret_dots)
{
    size_t length = strlen(text);
    *ret_dots = "";
    if (length <= BAR_LABEL_BYTES)
        return text;
    *ret_dots = "\xe2\x80\xa6";
    text += length - BAR_LABEL_BYTES + 1;
    while (((unsigned char)*text & 0xc0) == 0x80)
        text++;
    return text;
}

void stat_plot_bars(FILE *out, const stat_plot *plot)
{
    const double maximum = largest(plot, 1);
    double height = TOP + (double)plot->count * (BAR_HEIGHT + BAR_GAP) + 4;
    begin(out, plot, plot->count == 0 || !(maximum > 0) ? HEIGHT : height);
    if (plot->count == 0 || !(maximum > 0)) {
        say_empty(out, plot);
        return;
    }
    for (size_t i = 0; i < plot->count; i++) {
        const double y = TOP + (double)i * (BAR_HEIGHT + BAR_GAP);
        const double width = (WIDTH - BAR_LEFT - BAR_RIGHT) * plot->series[0].values[i] / maximum;
        const char *dots;
        const char *label = shorten(plot->labels[i], &dots);
        char text[64];
        plot->format(plot->series[0].values[i], text, sizeof text);
        fprintf(out, "<g><title>");
        stat_html_escape(out, plot->labels[i]);
        fprintf(out, ": %s</title><text class=\"name\" x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%s", text, BAR_LEFT - 10,
                y + 15, dots);
        stat_html_escape(out, label);
        fprintf(out, "</text><rect x=\"%g\" y=\"%.1f\" width=\"%.1f\" height=\"%g\" rx=\"3\" fill=\"%s\"/>"
                     "<text x=\"%.1f\" y=\"%.1f\">%s</text></g>\n",
                BAR_LEFT, y, fmax(width, 1), BAR_HEIGHT, plot->series[0].color, BAR_LEFT + fmax(width, 1) + 8, y + 15,
                text);
    }
    fputs("</svg>\n", out);
}
