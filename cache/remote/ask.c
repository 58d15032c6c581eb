/*
 * cache/remote/ask: how remotes answer, for people who look into it.
 */
#include "cache/remote/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROBE "probe"
#define PROBE_TEXT "aoticache was here\n"
#define PROBE_TTL_MS 2000

struct answers {
    aoticache_remote_state state;
    aoticache_error read, write, lease;
};

/* Another machine may do the same meanwhile: it writes the same. */
static void ask_to_write(aoticache_remote *remote, struct answers *answers)
{
    char *text = NULL;
    size_t size = 0;
    aoticache_remote_state *state = &answers->state;
    state->write_status = aoticache_remote_put_text(remote, PROBE, PROBE_TEXT, strlen(PROBE_TEXT), NULL, &answers->write);
    if (state->write_status != AOTICACHE_OK || !state->reads)
        return;
    state->write_status = aoticache_remote_get_text(remote, PROBE, sizeof PROBE_TEXT, &text, &size, NULL, &answers->write);
    if (state->write_status == AOTICACHE_NOT_FOUND ||
        (state->write_status == AOTICACHE_OK && strcmp(text, PROBE_TEXT) != 0))
        state->write_status = aoticache_error_set(&answers->write, AOTICACHE_IO,
                                                  "remote %s: what is written does not come back", remote->config.url);
    free(text);
}

static void ask_for_lease(aoticache_remote *remote, struct answers *answers)
{
    char name[AOTICACHE_REMOTE_NAME_BYTES], token[40];
    aoticache_remote_lease_name(&(aoticache_key){{0}}, name);
    snprintf(token, sizeof token, "%016llx%016llx", (unsigned long long)aoticache_monotonic_ns(), (unsigned long long)getpid());
    aoticache_status status = aoticache_remote_acquire(remote, name, token, PROBE_TTL_MS, &answers->lease);
    if (status == AOTICACHE_OK)
        status = aoticache_remote_release(remote, name, token, &answers->lease);
    answers->state.lease_status = status == AOTICACHE_LOCKED ? AOTICACHE_OK : status; /* somebody else looks, too */
}

static bool ask(aoticache_remote *remote, aoticache_remote_state_fn callback, void *user)
{
    char name[AOTICACHE_REMOTE_NAME_BYTES];
    struct answers answers = {.state = {.url = remote->config.url,
                                        .reads = remote->config.reads,
                                        .writes = remote->config.writes,
                                        .allow_unsigned = remote->config.allow_unsigned,
                                        .lease_status = AOTICACHE_UNSUPPORTED}};
    aoticache_remote_state *state = &answers.state;
    const uint64_t begun = aoticache_monotonic_ns();
    aoticache_remote_list_name(0, name);
    state->status = aoticache_remote_exists(remote, name, &answers.read);
    state->answer_ns = aoticache_monotonic_ns() - begun;
    if (state->status == AOTICACHE_NOT_FOUND)
        state->status = AOTICACHE_OK;
    if (state->status == AOTICACHE_OK && state->writes)
        ask_to_write(remote, &answers);
    if (state->status == AOTICACHE_OK && state->write_status == AOTICACHE_OK && state->writes && state->reads)
        ask_for_lease(remote, &answers);
    state->message = answers.read.message;
    state->write_message = answers.write.message;
    state->lease_message = answers.lease.message;
    return callback(user, state);
}

aoticache_status aoticache_remotes_ask(const char *remotes, aoticache_remote_state_fn callback, void *user,
                                       aoticache_error *ret_error)
{
    static const aoticache_logger silent = {.log = NULL};
    aoticache_remotes *asked = NULL;
    if (remotes == NULL || callback == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_remotes_ask: an argument is NULL");
    aoticache_status status = aoticache_remotes_create(remotes, &silent, &asked, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && asked != NULL && i < asked->count; i++)
        if (!ask(&asked->items[i], callback, user))
            break;
    aoticache_remotes_free(asked);
    return status;
}
