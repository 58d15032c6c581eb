/*
 * tools/aoticache/doctor/finding: prints the finding of a check, as text or as JSON.
 */
#include "base/cleanup.h"
#include "tools/aoticache/doctor/doctor_internal.h"

#include <stdarg.h>
#include <stdlib.h>

static const char *const verdict_names[] = {"OK", "WARN", "FAIL"};

static void append_json(aoticache_doctor *doctor, aoticache_verdict verdict, const char *name, const char *advice,
                        const char *text)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "name", aoticache_cli_json_text(name));
    aoticache_cli_json_set(object, "verdict", aoticache_cli_json_text(verdict_names[verdict]));
    aoticache_cli_json_set(object, "detail", aoticache_cli_json_text(text));
    aoticache_cli_json_set(object, "advice", aoticache_cli_json_text(advice));
    aoticache_cli_json_append(doctor->checks, object);
}

static void print_text(const aoticache_doctor *doctor, aoticache_verdict verdict, const char *name, const char *advice,
                       const char *text)
{
    static const aoticache_cli_style styles[] = {AOTICACHE_CLI_GREEN, AOTICACHE_CLI_YELLOW, AOTICACHE_CLI_RED};
    cleanup_free char *escaped = aoticache_cli_escape(text);
    printf("%s%-4s%s  %-13s %s\n", aoticache_cli_style_begin(doctor->cli, styles[verdict]), verdict_names[verdict],
           aoticache_cli_style_begin(doctor->cli, AOTICACHE_CLI_PLAIN), name, escaped);
    if (advice != NULL) {
        cleanup_free char *escaped_advice = aoticache_cli_escape(advice);
        printf("      %-13s -> %s\n", "", escaped_advice);
    }
}

void aoticache_doctor_report(aoticache_doctor *doctor, aoticache_verdict verdict, const char *name, const char *advice,
                             const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    cleanup_free char *text = NULL;
    if (vasprintf(&text, format, arguments) < 0)
        text = NULL;
    va_end(arguments);
    doctor->counts[verdict]++;
    if (doctor->checks != NULL)
        append_json(doctor, verdict, name, advice, text != NULL ? text : "");
    else if (!doctor->cli->quiet || verdict != AOTICACHE_VERDICT_OK)
        print_text(doctor, verdict, name, advice, text != NULL ? text : "");
}
