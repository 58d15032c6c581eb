/*
 * cache/remote/check: the health check of remotes.
 *
 * It makes the same requests as a program, in the directories of kernels, because servers differ by directory and by kind of
 * request: an object, a record with a condition, a list, a lease. All of them use a key that does not exist otherwise.
 */
#include "base/arguments.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/names.h"
#include "cache/remote/remote_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LEASE_MS 2000

enum step { READ, OBJECT, RECORD, CONDITION, LIST, LEASE, REMOVAL, STEPS };

struct question {
    const aoticache_secret_key *const *signers;
    size_t signer_count;
};

struct answers {
    aoticache_remote *remote;
    aoticache_remote_state state;
    aoticache_error errors[STEPS];
    aoticache_remote_step steps[STEPS]; /* those that were tried */
    size_t count;
    aoticache_error written; /* a message about what was written */
    aoticache_key key;       /* a key without entries */
    aoticache_remote_probe probe;
};

static void note(struct answers *answers, enum step step, aoticache_status status)
{
    static const char *const names[] = {"read", "object", "record", "condition", "list", "lease", "removal"};
    answers->steps[answers->count++] =
        (aoticache_remote_step){.what = names[step], .status = status, .message = answers->errors[step].message};
}

/* Reads a list of keys: this shows how the server answers for a file that may be missing. */
static void ask_to_read(struct answers *answers)
{
    char name[AOTICACHE_REMOTE_NAME_BYTES], *text = NULL;
    size_t size = 0;
    aoticache_remote_state *state = &answers->state;
    const uint64_t begun = aoticache_monotonic_ns();
    aoticache_remote_list_name(0, name);
    if (state->reads)
        state->status = aoticache_remote_get_text(answers->remote, AOTICACHE_REMOTE_READ, name,
                                                  AOTICACHE_LIST_MAX_BYTES, &text, &size, NULL, &answers->errors[READ]);
    else
        state->status = aoticache_remote_exists(answers->remote, AOTICACHE_REMOTE_WRITE, name, &answers->errors[READ]);
    state->answer_ns = aoticache_monotonic_ns() - begun;
    free(text);
    if (state->status == AOTICACHE_NOT_FOUND || state->status == AOTICACHE_CORRUPT) /* push and pull report more */
        state->status = AOTICACHE_OK;
    note(answers, READ, state->status);
}

/* Writes a signed probe. Another machine may do the same meanwhile: its probe is as good. */
static aoticache_status ask_to_sign(struct answers *answers, const struct question *question)
{
    aoticache_remote_probe written = {.text = NULL};
    aoticache_remote *remote = answers->remote;
    aoticache_status status =
        aoticache_remote_write_probe(remote, question->signers, question->signer_count, &answers->written);
    if (status != AOTICACHE_OK || !answers->state.reads)
        return status;
    status = aoticache_remote_read_probe(remote, &written, &answers->written);
    if (status == AOTICACHE_NOT_FOUND || status == AOTICACHE_CORRUPT)
        status = aoticache_error_set(&answers->written, AOTICACHE_IO,
                                     "remote %s: data that was written could not be read back", remote->config.url);
    if (answers->probe.text == NULL)
        answers->probe = written;
    else
        free(written.text);
    return status;
}

/* Reports a failed write with what was written. */
static aoticache_status note_write(struct answers *answers, enum step step, aoticache_status status,
                                   const aoticache_error *detail)
{
    const char *url = answers->remote->config.url;
    const char *reason = aoticache_remote_reason(answers->remote, detail->message);
    if (status != AOTICACHE_OK) {
        aoticache_error_set(&answers->errors[step], status, "remote %s: cannot write %s: %s", url,
                            step == OBJECT   ? "an object (cas/)"
                            : step == RECORD ? "a record (ac/)"
                                             : "a list (keys/)",
                            reason);
        answers->written = answers->errors[step];
    }
    note(answers, step, status);
    return status;
}

static aoticache_status ask_for_object(struct answers *answers)
{
    aoticache_error detail = {.message = ""};
    aoticache_digest digest;
    char name[AOTICACHE_REMOTE_NAME_BYTES], text[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(&answers->key, text);
    aoticache_status status = aoticache_digest_of(text, sizeof text - 1, &digest);
    if (status == AOTICACHE_OK) {
        aoticache_remote_object_name(&digest, name);
        status = aoticache_remote_put(answers->remote, name, text, sizeof text - 1, NULL, &detail);
    }
    return note_write(answers, OBJECT, status, &detail);
}

/* Writes a record that must not exist yet; then writes it again, which must be refused. */
static aoticache_status ask_for_record(struct answers *answers)
{
    const aoticache_record record = {.key = answers->key};
    aoticache_error detail = {.message = ""};
    char name[AOTICACHE_REMOTE_NAME_BYTES], *text = NULL;
    size_t size = 0;
    aoticache_remote_record_name(&answers->key, name);
    aoticache_status status = aoticache_record_format(&record, &text, &size, &detail);
    if (status == AOTICACHE_OK)
        status = aoticache_remote_put_text(answers->remote, name, text, size, "", &detail);
    if (note_write(answers, RECORD, status, &detail) == AOTICACHE_OK) {
        aoticache_status again =
            aoticache_remote_put_text(answers->remote, name, text, size, "", &answers->errors[CONDITION]);
        if (again == AOTICACHE_OK)
            again = aoticache_error_set(&answers->errors[CONDITION], AOTICACHE_UNSUPPORTED,
                                        "the server ignores conditions, so each write is read back and checked");
        note(answers, CONDITION, again == AOTICACHE_LOCKED ? AOTICACHE_OK : again);
    }
    free(text);
    return status;
}

#define LIST_OF_DOCTOR "keys/doctor"

/* Writes a list. In the layout of Bazel's cache, lists are stored next to records. */
static aoticache_status ask_for_list(struct answers *answers)
{
    aoticache_error detail = {.message = ""};
    if (answers->remote->config.is_bazel)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_remote_put_text(answers->remote, LIST_OF_DOCTOR, AOTICACHE_LIST_HEAD,
                                                        sizeof AOTICACHE_LIST_HEAD - 1, NULL, &detail);
    return note_write(answers, LIST, status, &detail);
}

static void ask_for_lease(struct answers *answers)
{
    char name[AOTICACHE_REMOTE_NAME_BYTES], token[40];
    aoticache_error *error = &answers->errors[LEASE];
    aoticache_remote_lease_name(&answers->key, name);
    snprintf(token, sizeof token, "%016llx%016llx", (unsigned long long)aoticache_monotonic_ns(),
             (unsigned long long)getpid());
    aoticache_status status = aoticache_remote_acquire(answers->remote, name, token, LEASE_MS, error);
    if (status == AOTICACHE_OK)
        status = aoticache_remote_release(answers->remote, name, token, error);
    answers->state.lease_status = status;
    note(answers, LEASE, status);
}

static void ask_to_remove(struct answers *answers)
{
    aoticache_digest digest;
    aoticache_status status = AOTICACHE_OK;
    char names[4][AOTICACHE_REMOTE_NAME_BYTES] = {"", "", LIST_OF_DOCTOR, ""}, text[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(&answers->key, text);
    aoticache_digest_of(text, sizeof text - 1, &digest);
    aoticache_remote_object_name(&digest, names[0]);
    aoticache_remote_record_name(&answers->key, names[1]);
    if (answers->state.lease_status == AOTICACHE_OK)
        aoticache_remote_lease_name(&answers->key, names[3]);
    for (size_t i = 0; status == AOTICACHE_OK && i < sizeof names / sizeof names[0]; i++)
        if (names[i][0] != '\0' && !(i == 2 && answers->remote->config.is_bazel))
            status = aoticache_remote_remove(answers->remote, names[i], &answers->errors[REMOVAL]);
    note(answers, REMOVAL, status);
}

static void ask_to_write(struct answers *answers, const struct question *question)
{
    aoticache_remote_state *state = &answers->state;
    state->write_status = ask_for_object(answers);
    if (state->write_status == AOTICACHE_OK)
        state->write_status = ask_for_record(answers);
    if (state->write_status == AOTICACHE_OK)
        state->write_status = ask_for_list(answers);
    if (state->write_status == AOTICACHE_OK)
        state->write_status = ask_to_sign(answers, question);
    if (state->write_status == AOTICACHE_OK && state->reads)
        ask_for_lease(answers);
    if (state->write_status == AOTICACHE_OK)
        ask_to_remove(answers);
}

/* Makes a key without entries. */
static void make_key(aoticache_key *ret_key)
{
    const struct {
        uint64_t monotonic;
        int64_t wall;
        pid_t pid;
    } now = {aoticache_monotonic_ns(), aoticache_wall_ns(), getpid()};
    if (aoticache_digest_of(&now, sizeof now, ret_key) != AOTICACHE_OK)
        *ret_key = (aoticache_key){{0}};
}

static bool ask(aoticache_remote *remote, const struct question *question, aoticache_remote_state_fn callback,
                void *user)
{
    struct answers answers = {.remote = remote,
                              .state = {.url = remote->config.url,
                                        .reads = remote->config.reads,
                                        .writes = remote->config.writes,
                                        .allow_unsigned = remote->config.allow_unsigned,
                                        .lease_status = AOTICACHE_UNSUPPORTED}};
    aoticache_remote_state *state = &answers.state;
    make_key(&answers.key);
    ask_to_read(&answers);
    if (state->status == AOTICACHE_OK || state->status == AOTICACHE_DENIED) /* S3 refuses machines with a wrong clock */
        state->has_clock = aoticache_remote_clock(remote, &state->clock_ahead_ms, NULL) == AOTICACHE_OK;
    if (state->status == AOTICACHE_OK && state->reads)
        aoticache_remote_read_probe(remote, &answers.probe, NULL);
    if (state->status == AOTICACHE_OK && state->writes)
        ask_to_write(&answers, question);
    state->message = answers.errors[READ].message;
    state->write_message = answers.written.message;
    state->lease_message = answers.errors[LEASE].message;
    state->probe = answers.probe.text != NULL ? &answers.probe.statement : NULL;
    state->probe_signatures = answers.probe.text != NULL ? answers.probe.signatures : "";
    state->steps = answers.steps;
    state->step_count = answers.count;
    bool continues = callback(user, state);
    free(answers.probe.text);
    return continues;
}

aoticache_status aoticache_remotes_check_health(const char *remotes, const aoticache_secret_key *const *signers,
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
