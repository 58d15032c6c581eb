/*
 * tools/aoticache/doctor/remotes: whether the remotes of the configuration answer, and what may come from them.
 */
#include "tools/aoticache/doctor/internal.h"

#include <stdio.h>
#include <string.h>

/* What it is good for, in words. */
static void describe(const aoticache_remote_state *state, char *ret_text, size_t size)
{
    const char *use = !state->writes ? "read only" : state->reads ? "read and written" : "written only";
    const char *why = strstr(state->lease_message, state->url); /* the message names the remote, as this line does */
    why = why != NULL ? why + strlen(state->url) : "";
    snprintf(ret_text, size, "%s%s%s", use,
             !state->writes || !state->reads       ? ""
             : state->lease_status == AOTICACHE_OK ? ", one compile for all machines"
                                                   : ", one compile for each machine",
             state->writes && state->reads && state->lease_status != AOTICACHE_OK ? why : "");
}

static bool report_remote(void *user, const aoticache_remote_state *state)
{
    aoticache_doctor *doctor = user;
    char time[AOTICACHE_CLI_UNIT_BYTES], use[512];
    describe(state, use, sizeof use);
    if (state->status != AOTICACHE_OK)
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_WARN, "remote",
                                "until it answers, kernels are compiled here (docs/remotes.md)", "%s", state->message);
    else if (state->write_status != AOTICACHE_OK)
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_WARN, "remote",
                                "kernels stay on this machine: give it the right to write, or say read-only", "%s",
                                state->write_message);
    else if (state->allow_unsigned)
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_WARN, "remote",
                                "whoever may write there can run code here: sign, and take unsigned=allow away",
                                "%s answers in %s; entries without a trusted signature come in", state->url,
                                aoticache_cli_format_duration(state->answer_ns, time));
    else
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_OK, "remote", NULL, "%s answers in %s; %s", state->url,
                                aoticache_cli_format_duration(state->answer_ns, time), use);
    return true;
}

void aoticache_doctor_check_remotes(aoticache_doctor *doctor)
{
    aoticache_config *config = NULL;
    if (aoticache_config_read((aoticache_logger){.log = NULL}, &config, NULL) != AOTICACHE_OK)
        aoticache_cli_out_of_memory();
    aoticache_remotes_ask(aoticache_config_value(config, AOTICACHE_CONFIG_remote), report_remote, doctor, NULL);
    aoticache_config_free(config);
}
