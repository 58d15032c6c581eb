/*
 * tools/aoticache/doctor/remotes: checks whether the remotes of the configuration answer, and what may be fetched from them.
 */
#include "base/clock.h"
#include "base/cleanup.h"
#include "tools/aoticache/doctor/doctor_internal.h"
#include "tools/aoticache/entries/entries.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)
#define CLOCK_DISTANCE_MS 60000 /* smaller differences mean nothing: web servers give their time in seconds */

/* Returns whether the files written for the check are removed again. */
static bool removes(const aoticache_remote_state *state)
{
    for (size_t i = 0; i < state->step_count; i++)
        if (strcmp(state->steps[i].what, "removal") == 0)
            return state->steps[i].status == AOTICACHE_OK;
    return true;
}

/* Describes what the remote can be used for. */
static void describe(const aoticache_remote_state *state, char *ret_text, size_t size)
{
    const char *use = !state->writes ? "read only" : state->reads ? "read and written" : "written only";
    const char *why = strstr(state->lease_message, state->url); /* the message names the remote, as this line does */
    why = why != NULL ? why + strlen(state->url) : "";
    snprintf(ret_text, size, "%s%s%s%s", use,
             !state->writes || !state->reads       ? ""
             : state->lease_status == AOTICACHE_OK ? ", one compile for all machines"
                                                   : ", one compile for each machine",
             state->writes && state->reads && state->lease_status != AOTICACHE_OK ? why : "",
             removes(state) ? "" : "; the objects that doctor wrote stay there");
}

struct remotes {
    aoticache_doctor *doctor;
    aoticache_cache *cache; /* to get the trusted keys; NULL: not available */
    bool has_key;           /* entries sent from here are signed */
};

/* Reports a wrong clock. S3 refuses requests if the clock is wrong by 15 minutes. */
static void report_clock(aoticache_doctor *doctor, const aoticache_remote_state *state)
{
    char time[AOTICACHE_CLI_UNIT_BYTES];
    const int64_t ahead_ms = state->clock_ahead_ms;
    const uint64_t distance_ms = (uint64_t)(ahead_ms < 0 ? -ahead_ms : ahead_ms);
    if (state->has_clock && distance_ms >= CLOCK_DISTANCE_MS)
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_WARN, "remote clock",
                                "synchronize the clocks by NTP: S3 refuses requests with a clock that is 15 "
                                "minutes off, and ages are wrong",
                                "%s: this machine's clock is %s %s", state->url,
                                aoticache_cli_format_duration(distance_ms * NS_PER_MS, time),
                                ahead_ms < 0 ? "ahead" : "behind");
}

/* Reports whether this machine would trust the machine that checked the remote before. */
static void report_probe(const struct remotes *remotes, const aoticache_remote_state *state)
{
    char age[AOTICACHE_CLI_UNIT_BYTES];
    bool is_trusted = false;
    if (state->probe == NULL || remotes->cache == NULL || state->probe_signatures[0] == '\0')
        return;
    const int64_t age_ns = aoticache_wall_ns() - state->probe->created_ns;
    aoticache_cli_format_duration(age_ns > 0 ? (uint64_t)age_ns : 0, age);
    cleanup_free char *signers =
        aoticache_statement_signers_text(remotes->cache, state->probe, state->probe_signatures, &is_trusted);
    if (is_trusted || state->allow_unsigned)
        aoticache_doctor_report(remotes->doctor, AOTICACHE_VERDICT_OK, "remote probe", NULL,
                                "%s: written %s ago, signed by %s", state->url, age, signers);
    else
        aoticache_doctor_report(remotes->doctor, AOTICACHE_VERDICT_WARN, "remote probe",
                                "to accept kernels of that machine, run 'aoticache key trust' with its key",
                                "%s: written %s ago, signed by %s: kernels of this signer are refused here", state->url,
                                age, signers);
}

static bool report_remote(void *user, const aoticache_remote_state *state)
{
    const struct remotes *remotes = user;
    aoticache_doctor *doctor = remotes->doctor;
    char time[AOTICACHE_CLI_UNIT_BYTES], use[512];
    describe(state, use, sizeof use);
    if (state->status != AOTICACHE_OK)
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_WARN, "remote",
                                "until it responds, kernels are compiled here (docs/remotes.md)", "%s", state->message);
    else if (state->write_status != AOTICACHE_OK)
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_WARN, "remote",
                                "kernels stay on this machine: allow it to write there, or set read-only", "%s",
                                state->write_message);
    else if (state->allow_unsigned)
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_WARN, "remote",
                                "all who may write there can run code here: sign, and remove unsigned=allow",
                                "%s responds in %s; entries without a trusted signature are accepted", state->url,
                                aoticache_cli_format_duration(state->answer_ns, time));
    else if (state->writes && !remotes->has_key)
        aoticache_doctor_report(
            doctor, AOTICACHE_VERDICT_WARN, "remote",
            "'aoticache key generate' creates a key; other machines trust it after 'aoticache key trust'",
            "%s responds in %s; kernels are sent there without a signature, and other machines refuse them", state->url,
            aoticache_cli_format_duration(state->answer_ns, time));
    else
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_OK, "remote", NULL, "%s responds in %s; %s", state->url,
                                aoticache_cli_format_duration(state->answer_ns, time), use);
    if (state->status == AOTICACHE_OK && state->message[0] != '\0')
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_WARN, "remote",
                                "if nothing is ever found there, check the permissions of its user "
                                "(docs/remotes.md)",
                                "%s", state->message);
    report_clock(doctor, state);
    report_probe(remotes, state);
    return true;
}

struct unsent {
    uint64_t waiting, refused;
    char reason[512]; /* of an entry that is not sent */
};

static bool count_unsent(void *user, const aoticache_unsent *one)
{
    struct unsent *unsent = user;
    if (one->reason[0] == '\0')
        unsent->waiting++;
    else if (unsent->refused++ == 0)
        snprintf(unsent->reason, sizeof unsent->reason, "%s", one->reason);
    return true;
}

/* Reports entries that processes of this cache could not send. */
static void report_unsent(aoticache_doctor *doctor, aoticache_cache *cache)
{
    struct unsent unsent = {.waiting = 0};
    if (cache == NULL || aoticache_cache_list_unsent(cache, count_unsent, &unsent, NULL) != AOTICACHE_OK)
        return;
    if (unsent.refused > 0)
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_WARN, "unsent kernels",
                                "they are sent again after a day, when `remote` changes, and by 'aoticache "
                                "push --all'",
                                "%" PRIu64 " that a remote refused: %s", unsent.refused, unsent.reason);
    if (unsent.waiting > 0)
        aoticache_doctor_report(doctor, AOTICACHE_VERDICT_OK, "unsent kernels", NULL,
                                "%" PRIu64 " wait for the next compile, or for 'aoticache push --all'", unsent.waiting);
}

/* Returns whether this user has an own key, or the configuration names one. keys.c checks whether it can be read. */
static bool has_key(const aoticache_config *config)
{
    const char *directory = aoticache_config_get_info(config)->key_directory;
    const char *others = aoticache_config_get(config, AOTICACHE_CONFIG_sign_with).text;
    cleanup_free char *path = aoticache_cli_text("%s/" AOTICACHE_SECRET_KEY_FILE, directory);
    return (others != NULL && others[0] != '\0') || (directory[0] != '\0' && access(path, F_OK) == 0);
}

void aoticache_doctor_check_remotes(aoticache_doctor *doctor)
{
    aoticache_config *config = NULL;
    aoticache_asked asked;
    const aoticache_secret_key *const *signers = NULL;
    size_t count = 0;
    if (aoticache_config_read(NULL, (aoticache_logger){.log = NULL}, &config, NULL) != AOTICACHE_OK)
        aoticache_cli_out_of_memory();
    const char *text = aoticache_config_get(config, AOTICACHE_CONFIG_remote).text;
    struct remotes remotes = {.doctor = doctor, .has_key = has_key(config)};
    if (text[0] != '\0') {
        /* Problems with the cache or with keys are reported by other findings. */
        if (aoticache_asked_open(doctor->cli, &asked, NULL) == AOTICACHE_OK)
            aoticache_cache_signers(asked.cache, &signers, &count, NULL);
        remotes.cache = asked.cache;
        aoticache_remotes_check_health(text, signers, count, report_remote, &remotes, NULL);
        report_unsent(doctor, asked.cache);
        aoticache_asked_close(&asked);
    }
    aoticache_config_free(config);
}
