/*
 * tools/aoticache/doctor/remotes: whether the remotes of the configuration answer, and what may come from them.
 */
#include "tools/aoticache/doctor/internal.h"

static bool report_remote(void *user, const aoticache_remote_state *state)
{
    aoticache_doctor *doctor = user;
    char time[AOTICACHE_CLI_UNIT_BYTES];
    const char *use = !state->writes ? "read only" : state->reads ? "read and written" : "written only";
    if (state->status != AOTICACHE_OK)
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_WARN, "remote",
                                "until it answers, kernels are compiled here (docs/remotes.md)", "%s", state->message);
    else if (state->allow_unsigned)
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_WARN, "remote",
                                "whoever may write there can run code here: sign, and take unsigned=allow away",
                                "%s answers in %s; entries without a trusted signature come in", state->url,
                                aoticache_cli_format_duration(state->answer_ns, time));
    else
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_OK, "remote", NULL, "%s answers in %s; %s%s", state->url,
                                aoticache_cli_format_duration(state->answer_ns, time), use,
                                state->has_leases ? ", one compile for all machines" : "");
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
