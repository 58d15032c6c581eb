/*
 * tools/aoticache/doctor/remotes: whether the remotes of the configuration answer, and what may come from them.
 */
#include "base/cleanup.h"
#include "tools/aoticache/doctor/internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

struct remotes {
    aoticache_doctor *doctor;
    bool has_key; /* what goes from here is signed */
};

static bool report_remote(void *user, const aoticache_remote_state *state)
{
    const struct remotes *remotes = user;
    aoticache_doctor *doctor = remotes->doctor;
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
    else if (state->writes && !remotes->has_key)
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_WARN, "remote",
                                "'aoticache key generate' makes a key; other machines trust it by 'aoticache key trust'",
                                "%s answers in %s; kernels go there without a signature, and others refuse them", state->url,
                                aoticache_cli_format_duration(state->answer_ns, time));
    else
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_OK, "remote", NULL, "%s answers in %s; %s", state->url,
                                aoticache_cli_format_duration(state->answer_ns, time), use);
    return true;
}

/* Whether this user has a key of their own, or the configuration names one. Whether it can be read, keys.c says. */
static bool has_key(const aoticache_config *config)
{
    const char *directory = aoticache_config_key_directory(config);
    const char *others = aoticache_config_value(config, AOTICACHE_CONFIG_sign_with);
    cleanup_free char *path = aoticache_cli_text("%s/" AOTICACHE_SECRET_KEY_FILE, directory);
    return (others != NULL && others[0] != '\0') || (directory[0] != '\0' && access(path, F_OK) == 0);
}

void aoticache_doctor_check_remotes(aoticache_doctor *doctor)
{
    aoticache_config *config = NULL;
    if (aoticache_config_read((aoticache_logger){.log = NULL}, &config, NULL) != AOTICACHE_OK)
        aoticache_cli_out_of_memory();
    struct remotes remotes = {.doctor = doctor, .has_key = has_key(config)};
    aoticache_remotes_ask(aoticache_config_value(config, AOTICACHE_CONFIG_remote), report_remote, &remotes, NULL);
    aoticache_config_free(config);
}
