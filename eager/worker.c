/*
 * eager/worker: the hook that keeps a Python process with PyTorch (worker.py).
 *
 * Owns its life: started by the first compile, asked one thing at a time, started again when it is dead or has said
 * something that nobody asked for, killed with its group when it takes too long. It ends with this process by itself:
 * it sees its standard input close, and looks whether its parent has changed, for the case that a fork of this process
 * holds the other end. (PR_SET_PDEATHSIG would not do: it fires when the thread ends that started the worker.)
 */
#include "base/cleanup.h"
#include "base/home.h"
#include "eager/hook.h"
#include "eager/python.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* One worker process of one host process. */
struct worker {
    pthread_mutex_t turn; /* held during a compile: one at a time */
    pid_t owner;          /* whose child it is: after a fork() of the host it is not the new process's */
    aoticache_process process;
    uint64_t last_id;
    struct worker *inherited; /* those of the processes that this one was forked from */
};

struct worker_state {
    _Atomic(struct worker *) current;
    char script[PATH_MAX];
    char version[AOTICACHE_PYTHON_VERSION_BYTES];
    char producer[AOTICACHE_PYTHON_VERSION_BYTES + 16];
};

/* ---- whose worker ---- */

static struct worker *worker_create(void)
{
    struct worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL)
        return NULL;
    pthread_mutex_init(&worker->turn, NULL);
    worker->owner = getpid();
    worker->process = (aoticache_process)AOTICACHE_PROCESS_INIT;
    return worker;
}

/* Ends our own; of a parent's, only what fork() copied of it goes. */
static void worker_free(struct worker *worker)
{
    while (worker != NULL) {
        struct worker *inherited = worker->inherited;
        if (worker->owner != getpid())
            aoticache_process_forget(&worker->process);
        else
            pthread_mutex_destroy(&worker->turn);
        aoticache_process_free(&worker->process);
        free(worker);
        worker = inherited;
    }
}

/*
 * The worker of this process. In a child made by fork() the mutex may be held by a thread that is not there, and the
 * worker answers to the parent: the child gets one of its own, and lets go of the parent's channels, so that they close
 * when the parent ends. The parent's struct stays until the hook goes, since other threads may be looking at it.
 */
static struct worker *worker_get(struct worker_state *state)
{
    struct worker *current = atomic_load(&state->current);
    while (current == NULL || current->owner != getpid()) {
        struct worker *fresh = worker_create();
        if (fresh == NULL)
            return NULL;
        fresh->inherited = current;
        if (!atomic_compare_exchange_strong(&state->current, &current, fresh)) {
            fresh->inherited = NULL;
            worker_free(fresh);
            continue;
        }
        if (current != NULL)
            aoticache_process_forget(&current->process);
        return fresh;
    }
    return current;
}

/* ---- starting ---- */

/* The key says which PyTorch compiled; another one than was found at first must not answer. */
static aoticache_status check_producer(const aoticache_hook *hook, const aoticache_hello *hello,
                                       aoticache_error *ret_error)
{
    const struct worker_state *state = hook->state;
    if (strcmp(hello->producer, state->producer) == 0)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                               "hook worker: %.160s imports %.64s, but %s was found there; make the hook anew",
                               hook->program, hello->producer, state->producer);
}

static aoticache_status greet(aoticache_hook *hook, struct worker *worker, uint64_t deadline_ns,
                              aoticache_error *ret_error)
{
    aoticache_process *process = &worker->process;
    aoticache_process_event event =
        aoticache_process_read_line(process, AOTICACHE_PROTOCOL_LINE_BYTES, deadline_ns);
    if (event != AOTICACHE_PROCESS_DATA) {
        aoticache_process_end(process);
        return aoticache_hook_explain(hook, process, event, "while starting", ret_error);
    }
    size_t length = (size_t)((char *)memchr(process->bytes, '\n', process->size) - process->bytes);
    aoticache_hello hello;
    aoticache_status status = aoticache_protocol_read_hello(process->bytes, length, "worker", &hello, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = check_producer(hook, &hello, ret_error);
    if (status == AOTICACHE_OK)
        aoticache_log(&hook->logger, AOTICACHE_LOG_INFO, "worker %d: %s in Python %s", (int)process->pid,
                      hello.producer, hello.python);
    json_decref(hello.json);
    aoticache_process_take(process, length + 1);
    return status;
}

static aoticache_status worker_start(aoticache_hook *hook, struct worker *worker, uint64_t deadline_ns,
                                     aoticache_error *ret_error)
{
    const struct worker_state *state = hook->state;
    const char *const arguments[] = {hook->program, "-u", state->script, NULL};
    aoticache_process_options options = {.program = hook->program, .arguments = arguments, .conversation = true};
    aoticache_status status = aoticache_process_start(&options, &worker->process, ret_error);
    if (status == AOTICACHE_OK)
        status = greet(hook, worker, deadline_ns, ret_error);
    if (status != AOTICACHE_OK)
        aoticache_process_free(&worker->process);
    return status;
}

/* A worker that is there and silent; what has died or talks unasked goes first. */
static aoticache_status worker_ready(aoticache_hook *hook, struct worker *worker, uint64_t deadline_ns,
                                     aoticache_error *ret_error)
{
    if (worker->process.pid != 0 && !aoticache_process_is_restless(&worker->process))
        return AOTICACHE_OK;
    if (worker->process.pid != 0)
        aoticache_log(&hook->logger, AOTICACHE_LOG_WARNING, "worker %d has died or spoke unasked; starting another",
                      (int)worker->process.pid);
    aoticache_process_free(&worker->process);
    return worker_start(hook, worker, deadline_ns, ret_error);
}

/* ---- asking ---- */

/* The answer is there, a line and nothing more. */
static aoticache_status take_answer(struct worker *worker, const char *directory, aoticache_answer *ret_answer,
                                    aoticache_error *ret_error)
{
    aoticache_process *process = &worker->process;
    size_t length = (size_t)((char *)memchr(process->bytes, '\n', process->size) - process->bytes);
    if (length + 1 != process->size)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "hook worker: its answer has more than one line");
    aoticache_status status = aoticache_protocol_read_answer(process->bytes, length, worker->last_id, "worker",
                                                             directory, ret_answer, ret_error);
    aoticache_process_take(process, length + 1);
    return status;
}

static aoticache_status ask(aoticache_hook *hook, struct worker *worker, const aoticache_request *request,
                            const char *directory, uint64_t deadline_ns, aoticache_answer *ret_answer,
                            aoticache_error *ret_error)
{
    cleanup_free char *line = NULL;
    size_t size = 0;
    aoticache_status status = aoticache_protocol_write_request(request, ++worker->last_id, hook->cpu_features,
                                                               directory, &line, &size, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_protocol_write_constants(request, directory, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_process_event event = aoticache_process_send(&worker->process, line, size, deadline_ns);
    if (event == AOTICACHE_PROCESS_DATA)
        event = aoticache_process_read_line(&worker->process, AOTICACHE_PROTOCOL_LINE_BYTES, deadline_ns);
    if (event == AOTICACHE_PROCESS_DATA) {
        status = take_answer(worker, directory, ret_answer, ret_error);
    } else {
        char doing[160];
        snprintf(doing, sizeof doing, "compiling %s", aoticache_request_op(request));
        aoticache_process_end(&worker->process);
        status = aoticache_hook_explain(hook, &worker->process, event, doing, ret_error);
    }
    if (status == AOTICACHE_CORRUPT || event != AOTICACHE_PROCESS_DATA)
        aoticache_process_free(&worker->process);
    return status;
}

/* Waiting for the turn has no limit of its own: each compile before this one has, so the wait ends. */
static aoticache_status worker_compile(aoticache_hook *hook, const aoticache_request *request, const char *directory,
                                       uint64_t deadline_ns, aoticache_answer *ret_answer, aoticache_error *ret_error)
{
    (void)deadline_ns;
    struct worker *worker = worker_get(hook->state);
    if (worker == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook worker: out of memory");
    pthread_mutex_lock(&worker->turn);
    /* The time-out is of this compile alone: it begins when the turn has come. */
    uint64_t own_deadline_ns = aoticache_monotonic_ns() + (uint64_t)hook->timeout_seconds * 1000000000;
    aoticache_status status = worker_ready(hook, worker, own_deadline_ns, ret_error);
    if (status == AOTICACHE_OK)
        status = ask(hook, worker, request, directory, own_deadline_ns, ret_answer, ret_error);
    pthread_mutex_unlock(&worker->turn);
    return status;
}

/* ---- the hook ---- */

/* Flags that change results are none here: worker.py pins them, whatever its environment says. */
static aoticache_status worker_set_environment(const aoticache_hook *hook, aoticache_request *request,
                                               aoticache_error *ret_error)
{
    const struct worker_state *state = hook->state;
    aoticache_status status = aoticache_request_set_environment(request, "framework", "pytorch", ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_request_set_environment(request, "framework_version", state->version, ret_error);
}

static const char *worker_producer(const aoticache_hook *hook)
{
    return ((const struct worker_state *)hook->state)->producer;
}

static void worker_free_state(aoticache_hook *hook)
{
    struct worker_state *state = hook->state;
    worker_free(atomic_load(&state->current));
    free(state);
}

static const aoticache_hook_kind worker_kind = {
    .name = "worker",
    .set_environment = worker_set_environment,
    .compile = worker_compile,
    .producer = worker_producer,
    .free_state = worker_free_state,
};

/* The script need not be there for a hit, so its absence is told when it is needed: by Python, in the first compile. */
static struct worker_state *state_create(const aoticache_python *python)
{
    struct worker_state *state = calloc(1, sizeof *state);
    if (state == NULL)
        return NULL;
    if (aoticache_home_find("share/aoticache/worker.py", state->script, NULL) != AOTICACHE_OK)
        snprintf(state->script, sizeof state->script, "share/aoticache/worker.py");
    memcpy(state->version, python->torch_version, sizeof state->version);
    snprintf(state->producer, sizeof state->producer, "pytorch %s", python->torch_version);
    return state;
}

aoticache_status aoticache_hook_create_worker(const aoticache_hook_options *options, aoticache_hook **ret_hook,
                                              aoticache_error *ret_error)
{
    aoticache_hook_options all;
    aoticache_python python;
    aoticache_hook *hook;
    if (ret_hook == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "hook worker: ret_hook is NULL");
    aoticache_status status = aoticache_hook_read_options(options, &all, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_python_find(all.program, &python, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_hook_allocate(&worker_kind, &all, python.path, &hook, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    hook->state = state_create(&python);
    if (hook->state == NULL) {
        aoticache_hook_free(hook);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook worker: out of memory");
    }
    *ret_hook = hook;
    return AOTICACHE_OK;
}
