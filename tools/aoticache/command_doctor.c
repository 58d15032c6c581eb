/*
 * aoticache doctor: looks at everything that can make the cache slow or useless on this machine, and says what to do.
 *
 * The checks are in doctor_directory.c, doctor_compilers.c and doctor_machine.c. None of them creates or changes
 * anything.
 */
#include "base/cleanup.h"
#include "tools/aoticache/commands.h"

#include <stdarg.h>
#include <stdlib.h>

enum { OPTION_PYTHON = 1, OPTION_CC };

static const aoticache_cli_option doctor_options[] = {
    {OPTION_PYTHON, "python", 0, "PATH", "the Python to look for PyTorch in; default $AOTICACHE_PYTHON, python3"},
    {OPTION_CC, "cc", 0, "PATH", "the C compiler; default $AOTICACHE_CC, cc"},
    {0, NULL, 0, NULL, NULL},
};

static const char *const verdict_names[] = {"OK", "WARN", "FAIL"};

static void say_json(aoticache_doctor *doctor, aoticache_verdict verdict, const char *name, const char *advice,
                     const char *text)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "name", aoticache_cli_json_text(name));
    aoticache_cli_json_set(object, "verdict", aoticache_cli_json_text(verdict_names[verdict]));
    aoticache_cli_json_set(object, "detail", aoticache_cli_json_text(text));
    aoticache_cli_json_set(object, "advice", aoticache_cli_json_text(advice));
    aoticache_cli_json_append(doctor->checks, object);
}

static void say_text(const aoticache_doctor *doctor, aoticache_verdict verdict, const char *name, const char *advice,
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

void aoticache_doctor_say(aoticache_doctor *doctor, aoticache_verdict verdict, const char *name, const char *advice,
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
        say_json(doctor, verdict, name, advice, text != NULL ? text : "");
    else if (!doctor->cli->quiet || verdict != AOTICACHE_VERDICT_OK)
        say_text(doctor, verdict, name, advice, text != NULL ? text : "");
}

static void print_end(aoticache_doctor *doctor)
{
    unsigned warnings = doctor->counts[AOTICACHE_VERDICT_WARN], failures = doctor->counts[AOTICACHE_VERDICT_FAIL];
    if (doctor->checks != NULL) {
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "version", aoticache_cli_json_text(aoticache_version()));
        aoticache_cli_json_set(object, "ok", json_boolean(failures == 0));
        aoticache_cli_json_set(object, "warnings", json_integer(warnings));
        aoticache_cli_json_set(object, "failures", json_integer(failures));
        aoticache_cli_json_set(object, "checks", doctor->checks);
        aoticache_cli_json_print(object);
    } else if (!doctor->cli->quiet) {
        printf("\n%s", failures > 0 ? "Something is wrong" : warnings > 0 ? "It works" : "All is well");
        if (failures + warnings > 0)
            printf(": %u %s, %u %s", failures, failures == 1 ? "failure" : "failures", warnings,
                   warnings == 1 ? "warning" : "warnings");
        printf(".\n");
    }
}

static int doctor_command(aoticache_cli *cli)
{
    aoticache_doctor doctor = {.cli = cli};
    for (;;) {
        const char *value = NULL;
        int id = aoticache_cli_next(cli, &value);
        if (id == AOTICACHE_CLI_STOP)
            return cli->exit_code;
        if (id == AOTICACHE_CLI_END)
            break;
        if (id == AOTICACHE_CLI_OPERAND)
            return aoticache_cli_usage_error(cli, "unexpected argument '%s'", value);
        if (id == OPTION_PYTHON)
            doctor.python = value;
        else
            doctor.cc = value;
    }
    doctor.checks = cli->json ? aoticache_cli_json_array() : NULL;
    aoticache_doctor_say(&doctor, AOTICACHE_VERDICT_OK, "version", NULL, "aoticache %s for %s", aoticache_version(),
                         aoticache_cpu_arch());
    aoticache_doctor_check_directory(&doctor);
    aoticache_doctor_check_compilers(&doctor);
    aoticache_doctor_check_machine(&doctor);
    print_end(&doctor);
    return doctor.counts[AOTICACHE_VERDICT_FAIL] > 0 ? AOTICACHE_CLI_EXIT_FAILURE : AOTICACHE_CLI_EXIT_OK;
}

const aoticache_command aoticache_command_doctor = {
    .word = "doctor",
    .program =
        {
            .name = "aoticache doctor",
            .help_hint = "aoticache help doctor",
            .usage = "[OPTION]...",
            .summary = "Checks the directory, compilers, PyTorch and the machine, and says what to do.",
            .details = "Nothing is created or changed. Exit code 1 where a check fails; warnings alone give 0.",
            .options = doctor_options,
        },
    .run = doctor_command,
};
