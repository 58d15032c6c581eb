/*
 * eager/compile/command: the hook that starts a user's program for every compile, with the request on its standard
 * input.
 */
#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/digest.h"
#include "base/names.h"
#include "eager/compile/hook_internal.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

struct command_state {
    _Atomic uint64_t last_id;
    char **arguments; /* including the program, NULL-terminated */
    char version[AOTICACHE_DIGEST_HEX_BYTES];
    char producer[192];
};

/* ---- the environment ---- */

/*
 * Computes the digest that represents the program in the key: of its bytes and of its arguments, each preceded by its length.
 * The path is left out, because the same program in another directory compiles the same.
 */
static aoticache_status digest_program(const char *program, char *const *arguments, aoticache_digest *ret_digest,
                                       aoticache_error *ret_error)
{
    cleanup_fd int fd = open(program, O_RDONLY | O_CLOEXEC);
    aoticache_digest digest;
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "hook command: cannot read program %s", program);
    aoticache_status status = aoticache_digest_of_fd(fd, &digest, NULL, ret_error);
    for (size_t i = 1; status == AOTICACHE_OK && arguments[i] != NULL; i++) {
        uint64_t length = strlen(arguments[i]);
        cleanup_free uint8_t *bytes = malloc(sizeof digest.bytes + sizeof length + length);
        if (bytes == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook command: out of memory");
        memcpy(bytes, digest.bytes, sizeof digest.bytes);
        for (size_t byte = 0; byte < sizeof length; byte++)
            bytes[sizeof digest.bytes + byte] = (uint8_t)(length >> (8 * byte));
        memcpy(bytes + sizeof digest.bytes + sizeof length, arguments[i], length);
        status = aoticache_digest_of(bytes, sizeof digest.bytes + sizeof length + length, &digest);
        if (status != AOTICACHE_OK)
            aoticache_error_set(ret_error, status, "hook command: cannot hash its arguments");
    }
    if (status == AOTICACHE_OK)
        *ret_digest = digest;
    return status;
}

static aoticache_status command_set_environment(const aoticache_hook *hook, aoticache_request *request,
                                                aoticache_error *ret_error)
{
    const struct command_state *state = hook->state;
    aoticache_status status = aoticache_request_set_environment(request, "framework", "command", ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_request_set_environment(request, "framework_version", state->version, ret_error);
}

/* ---- compiling ---- */

/* Returns true for space, which alone may follow the answer's line. */
static bool is_blank(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (strchr(" \t\r\n", bytes[i]) == NULL || bytes[i] == '\0')
            return false;
    return true;
}

/* Reads the answer of a program that has ended: one line. A success counts only if the program exited with status 0. */
static aoticache_status read_answer(const aoticache_hook *hook, aoticache_process *process, uint64_t id,
                                    const char *doing, const char *directory, aoticache_answer *ret_answer,
                                    aoticache_error *ret_error)
{
    bool failed = process->how_code != 0 && (process->how_code != CLD_EXITED || process->how_status != 0);
    if (process->size == 0 && failed)
        return aoticache_hook_explain(hook, process, AOTICACHE_PROCESS_END, doing, ret_error);
    if (process->size == 0 || is_blank(process->bytes, process->size))
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "hook %.160s: it ended without a response",
                                   hook->program);
    const char *newline = memchr(process->bytes, '\n', process->size);
    size_t length = newline != NULL ? (size_t)(newline - process->bytes) : process->size;
    if (!is_blank(process->bytes + length, process->size - length))
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "hook %.160s: its response has more than one line; messages belong on standard "
                                   "error",
                                   hook->program);
    aoticache_answer answer;
    aoticache_status status =
        aoticache_protocol_read_answer(process->bytes, length, id, hook->program, directory, &answer, ret_error);
    if (status == AOTICACHE_OK && failed) {
        aoticache_answer_free(&answer);
        return aoticache_hook_explain(hook, process, AOTICACHE_PROCESS_END, doing, ret_error);
    }
    if (status == AOTICACHE_OK)
        *ret_answer = answer;
    return status;
}

static aoticache_status command_run(const aoticache_hook *hook, uint64_t id, const char *line, size_t size,
                                    const char *doing, const char *directory, uint64_t deadline_ns,
                                    aoticache_answer *ret_answer, aoticache_error *ret_error)
{
    const struct command_state *state = hook->state;
    aoticache_process process = AOTICACHE_PROCESS_INIT;
    aoticache_process_options options = {.program = hook->program,
                                         .arguments = (const char *const *)state->arguments,
                                         .input = line,
                                         .input_size = size,
                                         .ends_with_host = true};
    aoticache_hook_set_process_options(hook, &options);
    aoticache_status status = aoticache_process_start(&options, &process, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_process_event event = aoticache_process_read_all(&process, AOTICACHE_PROTOCOL_LINE_BYTES, deadline_ns);
    aoticache_process_end(&process);
    if (event == AOTICACHE_PROCESS_END)
        status = read_answer(hook, &process, id, doing, directory, ret_answer, ret_error);
    else
        status = aoticache_hook_explain(hook, &process, event, doing, ret_error);
    if (status == AOTICACHE_OK)
        ret_answer->output = aoticache_process_output(&process);
    aoticache_process_free(&process);
    return status;
}

static aoticache_status command_compile(aoticache_hook *hook, const aoticache_request *request, const char *directory,
                                        uint64_t deadline_ns, aoticache_answer *ret_answer, aoticache_error *ret_error)
{
    struct command_state *state = hook->state;
    uint64_t id = atomic_fetch_add(&state->last_id, 1) + 1;
    cleanup_free char *line = NULL;
    size_t size = 0;
    char doing[160];
    snprintf(doing, sizeof doing, "compiling %s", aoticache_request_op(request));
    aoticache_status status =
        aoticache_protocol_write_request(request, id, hook->cpu_features, directory, &line, &size, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_protocol_write_constants(request, directory, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return command_run(hook, id, line, size, doing, directory, deadline_ns, ret_answer, ret_error);
}

/* ---- the hook ---- */

static const char *command_producer(const aoticache_hook *hook)
{
    return ((const struct command_state *)hook->state)->producer;
}

static aoticache_hook_shapes command_shapes(const aoticache_hook *hook)
{
    (void)hook;
    return AOTICACHE_HOOK_SHAPES_UNKNOWN;
}

static void command_free_state(aoticache_hook *hook)
{
    struct command_state *state = hook->state;
    for (size_t i = 0; state->arguments != NULL && state->arguments[i] != NULL; i++)
        free(state->arguments[i]);
    free(state->arguments);
    free(state);
}

static const aoticache_hook_kind command_kind = {
    .name = "command",
    .set_environment = command_set_environment,
    .compile = command_compile,
    .producer = command_producer,
    .shapes = command_shapes,
    .free_state = command_free_state,
};

/* Copies the program and its arguments. After a failure the caller frees what was copied. */
static aoticache_status copy_arguments(struct command_state *state, const char *program, const char *const *arguments,
                                       aoticache_error *ret_error)
{
    size_t count = 0;
    while (arguments != NULL && arguments[count] != NULL)
        count++;
    state->arguments = calloc(count + 2, sizeof *state->arguments);
    for (size_t i = 0; state->arguments != NULL && i <= count; i++) {
        state->arguments[i] = strdup(i == 0 ? program : arguments[i - 1]);
        if (state->arguments[i] == NULL)
            break;
    }
    if (state->arguments == NULL || state->arguments[count] == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook command: out of memory");
    return AOTICACHE_OK;
}

static aoticache_status fill_state(struct command_state *state, const char *program, const char *const *arguments,
                                   aoticache_error *ret_error)
{
    aoticache_status status = copy_arguments(state, program, arguments, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_digest digest;
    status = digest_program(program, state->arguments, &digest, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_digest_to_hex(&digest, state->version);
    const char *slash = strrchr(program, '/');
    snprintf(state->producer, sizeof state->producer, "command %.160s", slash != NULL ? slash + 1 : program);
    return AOTICACHE_OK;
}

aoticache_status aoticache_hook_create_command(const aoticache_hook_options *options, aoticache_hook **ret_hook,
                                               aoticache_error *ret_error)
{
    aoticache_hook_options all;
    aoticache_hook *hook;
    char path[PATH_MAX];
    aoticache_status status = aoticache_hook_read_options(options, &all, ret_error);
    if (status == AOTICACHE_OK && ret_hook == NULL)
        status = AOTICACHE_REFUSE_NULL(ret_error, ret_hook);
    if (status == AOTICACHE_OK && (all.program == NULL || all.program[0] == '\0'))
        status = aoticache_error_set(ret_error, AOTICACHE_INVALID, "hook command: no program is specified");
    if (status == AOTICACHE_OK)
        status = aoticache_program_find(all.program, path, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_hook_allocate(&command_kind, &all, path, sizeof(struct command_state), &hook, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = fill_state(hook->state, hook->program, all.arguments, ret_error);
    if (status == AOTICACHE_OK)
        *ret_hook = hook;
    else
        aoticache_hook_free(hook);
    return status;
}
