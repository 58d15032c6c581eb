/*
 * cache/remote/ask: how remotes answer, for people who look into it.
 */
#include "base/arguments.h"
#include "cache/remote/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LEASE_MS 2000

struct question {
    const aoticache_secret_key *const *signers;
    size_t signer_count;
};

struct answers {
    aoticache_remote_state state;
    aoticache_error read, write, lease;
    aoticache_remote_probe probe;
};

/* Another machine may do the same meanwhile: its probe is as good. */
static void ask_to_write(aoticache_remote *remote, const struct question *question, struct answers *answers)
{
    aoticache_remote_probe written = {.text = NULL};
    aoticache_remote_state *state = &answers->state;
    state->write_status =
        aoticache_remote_write_probe(remote, question->signers, question->signer_count, &answers->write);
    if (state->write_status != AOTICACHE_OK || !state->reads)
        return;
    state->write_status = aoticache_remote_read_probe(remote, &written, &answers->write);
    if (state->write_status == AOTICACHE_NOT_FOUND || state->write_status == AOTICACHE_CORRUPT)
        state->write_status = aoticache_error_set(&answers->write, AOTICACHE_IO,
                                                  "remote %s: what is written does not come back", remote->config.url);
    if (answers->probe.text == NULL)
        answers->probe = written;
    else
        free(written.text);
}

static void ask_for_lease(aoticache_remote *remote, struct answers *answers)
{
    char name[AOTICACHE_REMOTE_NAME_BYTES], token[40];
    aoticache_remote_lease_name(&(aoticache_key){{0}}, name);
    snprintf(token, sizeof token, "%016llx%016llx", (unsigned long long)aoticache_monotonic_ns(),
             (unsigned long long)getpid());
    aoticache_status status = aoticache_remote_acquire(remote, name, token, LEASE_MS, &answers->lease);
    if (status == AOTICACHE_OK)
        status = aoticache_remote_release(remote, name, token, &answers->lease);
    answers->state.lease_status = status == AOTICACHE_LOCKED ? AOTICACHE_OK : status; /* somebody else looks, too */
}

/* One small request, which says whether the server is there. */
static void ask_to_read(aoticache_remote *remote, struct answers *answers)
{
    char name[AOTICACHE_REMOTE_NAME_BYTES];
    aoticache_remote_state *state = &answers->state;
    const uint64_t begun = aoticache_monotonic_ns();
    aoticache_remote_list_name(0, name);
    state->status = aoticache_remote_exists(remote, name, &answers->read);
    state->answer_ns = aoticache_monotonic_ns() - begun;
    if (state->status == AOTICACHE_NOT_FOUND)
        state->status = AOTICACHE_OK;
}

static bool ask(aoticache_remote *remote, const struct question *question, aoticache_remote_state_fn callback,
                void *user)
{
    struct answers answers = {.state = {.url = remote->config.url,
                                        .reads = remote->config.reads,
                                        .writes = remote->config.writes,
                                        .allow_unsigned = remote->config.allow_unsigned,
                                        .lease_status = AOTICACHE_UNSUPPORTED}};
    aoticache_remote_state *state = &answers.state;
    ask_to_read(remote, &answers);
    if (state->status == AOTICACHE_OK || state->status == AOTICACHE_DENIED) /* S3 refuses whose clock is wrong */
        state->has_clock = aoticache_remote_clock(remote, &state->clock_ahead_ms, NULL) == AOTICACHE_OK;
    if (state->status == AOTICACHE_OK && state->reads)
        aoticache_remote_read_probe(remote, &answers.probe, NULL);
    if (state->status == AOTICACHE_OK && state->writes)
        ask_to_write(remote, question, &answers);
    if (state->status == AOTICACHE_OK && state->write_status == AOTICACHE_OK && state->writes && state->reads)
        ask_for_lease(remote, &answers);
    state->message = answers.read.message;
    state->write_message = answers.write.message;
    state->lease_message = answers.lease.message;
    state->probe = answers.probe.text != NULL ? &answers.probe.statement : NULL;
    state->probe_signatures = answers.probe.text != NULL ? answers.probe.signatures : "";
    bool goes_on = callback(user, state);
    free(answers.probe.text);
    return goes_on;
}

aoticache_status aoticache_remotes_ask(const char *remotes, const aoticache_secret_key *const *signers,
                                       size_t signer_count, aoticache_remote_state_fn callback, void *user,
                                       aoticache_error *ret_error)
{
    static const aoticache_logger silent = {.log = NULL};
    const struct question question = {.signers = signers, .signer_count = signer_count};
    aoticache_remotes *asked = NULL;
    if (remotes == NULL || callback == NULL || (signers == NULL && signer_count > 0))
        return AOTICACHE_REFUSE_NULL(ret_error, remotes, callback, signers);
    aoticache_status status = aoticache_remotes_create(remotes, &silent, &asked, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && asked != NULL && i < asked->count; i++)
        if (!ask(&asked->items[i], &question, callback, user))
            break;
    aoticache_remotes_free(asked);
    return status;
}
