/*
 * tools/cli/exposition: writes metrics in Prometheus' text format, for the textfile collector of its node exporter. Every
 * sample has the directory as a label, so that a machine can have several caches.
 */
#include "base/text/stream.h"
#include "tools/cli/cli.h"

#include <stdint.h>
#include <stdlib.h>

void aoticache_cli_exposition_begin(aoticache_cli_exposition *exposition, const char *directory)
{
    *exposition = (aoticache_cli_exposition){.directory = directory};
    exposition->out = aoticache_text_stream_open(&exposition->text, &exposition->size);
    if (exposition->out == NULL)
        aoticache_cli_out_of_memory();
}

/*
 * Prints the value of a label: only backslash, quotation mark and newline are escaped. It must be UTF-8, or the whole file
 * is refused: an invalid byte becomes the replacement character, U+FFFD.
 */
static void print_label(FILE *out, const char *text)
{
    uint32_t point;
    for (size_t bytes; *text != '\0'; text += bytes > 0 ? bytes : 1) {
        bytes = aoticache_cli_decode_utf8((const unsigned char *)text, &point);
        if (bytes == 0)
            fputs("\xef\xbf\xbd", out);
        else if (*text == '\n')
            fputs("\\n", out);
        else if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else
            fwrite(text, 1, bytes, out);
    }
}

void aoticache_cli_exposition_describe(aoticache_cli_exposition *exposition, const char *name, const char *type,
                                       const char *help)
{
    fprintf(exposition->out, "# HELP aoticache_%s %s\n# TYPE aoticache_%s %s\n", name, help, name, type);
}

/* Prints the part before the other labels of a sample. */
static void begin_sample(aoticache_cli_exposition *exposition, const char *name)
{
    fprintf(exposition->out, "aoticache_%s{directory=\"", name);
    print_label(exposition->out, exposition->directory);
    fputc('"', exposition->out);
}

void aoticache_cli_exposition_sample(aoticache_cli_exposition *exposition, const char *name, const char *label,
                                     const char *label_value, double value)
{
    begin_sample(exposition, name);
    if (label != NULL) {
        fprintf(exposition->out, ",%s=\"", label);
        print_label(exposition->out, label_value);
        fputc('"', exposition->out);
    }
    fprintf(exposition->out, "} %.15g\n", value);
}

void aoticache_cli_exposition_single(aoticache_cli_exposition *exposition, const char *name, const char *type,
                                     const char *help, double value)
{
    aoticache_cli_exposition_describe(exposition, name, type, help);
    aoticache_cli_exposition_sample(exposition, name, NULL, NULL, value);
}

/* Files of several programs may have this name, so its help is the same in all; the label distinguishes the samples. */
void aoticache_cli_exposition_build_info(aoticache_cli_exposition *exposition, const char *program)
{
    aoticache_cli_exposition_describe(exposition, "build_info", "gauge",
                                      "The version of the program that wrote this, as a label.");
    begin_sample(exposition, "build_info");
    fprintf(exposition->out, ",program=\"%s\",version=\"%s\"} 1\n", program, aoticache_version());
}

char *aoticache_cli_exposition_end(aoticache_cli_exposition *exposition)
{
    bool failed = ferror(exposition->out) != 0;
    if (fclose(exposition->out) != 0 || failed)
        aoticache_cli_out_of_memory();
    return exposition->text;
}
