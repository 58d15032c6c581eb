/*
 * eager/compile/worker: the hook that keeps Python processes with PyTorch (worker.py).
 *
 * Owns these processes. A compile that finds no free worker starts one. A worker gets one request at a time. It is restarted if
 * it is dead or has sent something unrequested, and killed with its group if a compile takes too long. A worker serves one
 * thread at a time and ends with this process by itself: it sees its standard input close, and also checks whether its parent
 * has changed, in case a fork of this process holds the other end. (PR_SET_PDEATHSIG does not work here: it fires when the
 * thread that started the worker ends.)
 */
#include "base/clock.h"
#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/process/home.h"
#include "eager/compile/eager_face.h"
#include "eager/compile/hook_internal.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_WORKERS 1024

/* A slot for one worker process; it belongs to the thread that has taken it. */
typedef struct worker_place {
    aoticache_process process; /* pid 0: no process runs */
    uint64_t last_id;
    bool taken;
} worker_place;

typedef struct worker_pool worker_pool;

/* The pools of a hook: that of this process, and those inherited by fork(). Initially {0}. */
typedef struct worker_pools {
    _Atomic(worker_pool *) current;
    size_t worker_count; /* of each pool: 1 to MAX_WORKERS */
} worker_pools;

struct worker_pool {
    pthread_mutex_t lock; /* protects `taken`; never held during a compile */
    pthread_cond_t given_back;
    pid_t owner; /* the parent process of the workers */
    worker_pool *inherited;
    size_t count;
    worker_place workers[];
};

struct worker_state {
    worker_pools pools;
    char script[PATH_MAX];
    char include[PATH_MAX], runtime[PATH_MAX],
        torch[PATH_MAX]; /* libraries are linked with it; "" if it is not installed */
    char version[AOTICACHE_PYTHON_VERSION_BYTES];
    char producer[AOTICACHE_PYTHON_VERSION_BYTES + 16];
};

/* ---- which process has which pool ---- */

/*
 * A child made by fork() must not use its parent's workers, and the parent's lock may be held by a thread that does not exist
 * in the child. So the child gets its own pool, and closes its copies of the parent's channels, so that they close when the
 * parent ends. The parent's struct is kept until the hook is freed, because other threads may be reading it.
 */

static worker_pool *pool_create(size_t count)
{
    worker_pool *pool = calloc(1, sizeof *pool + count * sizeof pool->workers[0]);
    if (pool == NULL)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->given_back, NULL);
    pool->owner = getpid();
    pool->count = count;
    for (size_t i = 0; i < count; i++)
        pool->workers[i].process = (aoticache_process)AOTICACHE_PROCESS_INIT;
    return pool;
}

static void pool_forget(worker_pool *pool)
{
    for (size_t i = 0; i < pool->count; i++)
        aoticache_process_forget(&pool->workers[i].process);
}

static void pool_free(worker_pool *pool)
{
    while (pool != NULL) {
        worker_pool *inherited = pool->inherited;
        if (pool->owner != getpid()) {
            pool_forget(pool);
        } else {
            pthread_cond_destroy(&pool->given_back);
            pthread_mutex_destroy(&pool->lock);
        }
        for (size_t i = 0; i < pool->count; i++)
            aoticache_process_free(&pool->workers[i].process);
        free(pool);
        pool = inherited;
    }
}

/* Ends the workers of this process. For workers of a process that it was forked from, only closes our copies. */
static void pools_free(worker_pools *pools)
{
    pool_free(atomic_load(&pools->current));
    atomic_store(&pools->current, NULL);
}

static worker_pool *pool_of_this_process(worker_pools *pools)
{
    worker_pool *current = atomic_load(&pools->current);
    while (current == NULL || current->owner != getpid()) {
        worker_pool *fresh = pool_create(pools->worker_count);
        if (fresh == NULL)
            return NULL;
        fresh->inherited = current;
        if (!atomic_compare_exchange_strong(&pools->current, &current, fresh)) {
            fresh->inherited = NULL;
            pool_free(fresh);
            continue;
        }
        if (current != NULL)
            pool_forget(current);
        return fresh;
    }
    return current;
}

/* ---- which thread has which worker ---- */

static worker_place *find_free(worker_pool *pool)
{
    worker_place *idle = NULL;
    for (size_t i = 0; i < pool->count; i++) {
        worker_place *worker = &pool->workers[i];
        if (worker->taken)
            continue;
        if (worker->process.pid != 0)
            return worker;
        if (idle == NULL)
            idle = worker;
    }
    return idle;
}

/*
 * Takes a worker for this thread alone: a free one whose process runs, or else a free slot without a process. If none
 * is free, waits for one. The wait has no limit of its own, but each compile has one, so the wait ends. Returns NULL if
 * out of memory. ret_pool: the pool to which the worker must be returned.
 */
static worker_place *worker_take(worker_pools *pools, worker_pool **ret_pool)
{
    worker_pool *pool = pool_of_this_process(pools);
    if (pool == NULL)
        return NULL;
    pthread_mutex_lock(&pool->lock);
    worker_place *worker = find_free(pool);
    while (worker == NULL) {
        pthread_cond_wait(&pool->given_back, &pool->lock);
        worker = find_free(pool);
    }
    worker->taken = true;
    pthread_mutex_unlock(&pool->lock);
    *ret_pool = pool;
    return worker;
}

static void worker_give_back(worker_pool *pool, worker_place *worker)
{
    pthread_mutex_lock(&pool->lock);
    worker->taken = false;
    pthread_cond_signal(&pool->given_back);
    pthread_mutex_unlock(&pool->lock);
}

/* ---- starting ---- */

/* Checks the worker's PyTorch: it must be the version found when the hook was created, because the key contains that. */
static aoticache_status check_producer(const aoticache_hook *hook, const aoticache_hello *hello,
                                       aoticache_error *ret_error)
{
    const struct worker_state *state = hook->state;
    if (strcmp(hello->producer, state->producer) == 0)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                               "hook worker: %.160s imports %.64s, but %s was found there before; create the "
                               "hook again",
                               hook->program, hello->producer, state->producer);
}

static aoticache_status read_greeting(aoticache_hook *hook, worker_place *worker, uint64_t deadline_ns,
                                      aoticache_error *ret_error)
{
    aoticache_process *process = &worker->process;
    aoticache_process_event event = aoticache_process_read_line(process, AOTICACHE_PROTOCOL_LINE_BYTES, deadline_ns);
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

static aoticache_status worker_start(aoticache_hook *hook, worker_place *worker, uint64_t deadline_ns,
                                     aoticache_error *ret_error)
{
    const struct worker_state *state = hook->state;
    const char *const arguments[] = {hook->program, "-u",           state->script,  "--include",  state->include,
                                     "--runtime",   state->runtime, "--torch-stub", state->torch, NULL};
    aoticache_process_options options = {.program = hook->program,
                                         .arguments = arguments,
                                         .directory = AOTICACHE_PROCESS_NEUTRAL_DIRECTORY,
                                         .conversation = true};
    aoticache_hook_set_process_options(hook, &options);
    aoticache_status status = aoticache_process_start(&options, &worker->process, ret_error);
    if (status == AOTICACHE_OK)
        status = read_greeting(hook, worker, deadline_ns, ret_error);
    if (status != AOTICACHE_OK)
        aoticache_process_free(&worker->process);
    return status;
}

/* Makes sure that the worker runs and is silent. Restarts one that has died or has sent something unrequested. */
static aoticache_status worker_ready(aoticache_hook *hook, worker_place *worker, uint64_t deadline_ns,
                                     aoticache_error *ret_error)
{
    if (worker->process.pid != 0 && !aoticache_process_is_restless(&worker->process))
        return AOTICACHE_OK;
    if (worker->process.pid != 0)
        aoticache_log(&hook->logger, AOTICACHE_LOG_WARNING,
                      "worker %d died or sent unexpected output; starting a new one", (int)worker->process.pid);
    aoticache_process_free(&worker->process);
    return worker_start(hook, worker, deadline_ns, ret_error);
}

/* ---- asking ---- */

/* Reads the answer, which has arrived: one line and nothing more. */
static aoticache_status read_answer(worker_place *worker, const char *directory, aoticache_answer *ret_answer,
                                    aoticache_error *ret_error)
{
    aoticache_process *process = &worker->process;
    size_t length = (size_t)((char *)memchr(process->bytes, '\n', process->size) - process->bytes);
    if (length + 1 != process->size)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "hook worker: its response has more than one line");
    aoticache_status status = aoticache_protocol_read_answer(process->bytes, length, worker->last_id, "worker",
                                                             directory, ret_answer, ret_error);
    aoticache_process_take(process, length + 1);
    return status;
}

static aoticache_status ask_worker(aoticache_hook *hook, worker_place *worker, const aoticache_request *request,
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
    aoticache_process_drop_words(&worker->process);
    aoticache_process_event event = aoticache_process_send(&worker->process, line, size, deadline_ns);
    if (event == AOTICACHE_PROCESS_DATA)
        event = aoticache_process_read_line(&worker->process, AOTICACHE_PROTOCOL_LINE_BYTES, deadline_ns);
    if (event == AOTICACHE_PROCESS_DATA) {
        status = read_answer(worker, directory, ret_answer, ret_error);
        if (status == AOTICACHE_OK)
            ret_answer->output = aoticache_process_output(&worker->process);
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

static aoticache_status worker_compile(aoticache_hook *hook, const aoticache_request *request, const char *directory,
                                       uint64_t deadline_ns, aoticache_answer *ret_answer, aoticache_error *ret_error)
{
    (void)deadline_ns;
    struct worker_state *state = hook->state;
    worker_pool *pool;
    worker_place *worker = worker_take(&state->pools, &pool);
    if (worker == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook worker: out of memory");
    /* The time limit is for this compile alone: it begins when the worker has been taken. */
    uint64_t own_deadline_ns = aoticache_monotonic_ns() + (uint64_t)hook->timeout_seconds * 1000000000;
    aoticache_status status = worker_ready(hook, worker, own_deadline_ns, ret_error);
    if (status == AOTICACHE_OK)
        status = ask_worker(hook, worker, request, directory, own_deadline_ns, ret_answer, ret_error);
    worker_give_back(pool, worker);
    return status;
}

/* ---- the hook ---- */

/*
 * Adds PyTorch's version. Flags that change results are left out: worker.py pins them, whatever its environment contains. Also
 * adds the revision, so that libraries of earlier revisions are not found:
 * 2: bytes are reduced correctly, and numbers that are read at run time are doubles (eager/compile/inductor/corrections.py).
 * 3: numbers are rounded as PyTorch does for 16-bit floats (rewrites.py); expm1, atanh and erf are accurate near zero.
 */
static aoticache_status worker_set_environment(const aoticache_hook *hook, aoticache_request *request,
                                               aoticache_error *ret_error)
{
    const struct worker_state *state = hook->state;
    aoticache_status status = aoticache_request_set_environment(request, "framework", "pytorch", ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_request_set_environment(request, "framework_version", state->version, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_request_set_environment(request, "worker", AOTICACHE_WORKER_REVISION, ret_error);
}

static const char *worker_producer(const aoticache_hook *hook)
{
    return ((const struct worker_state *)hook->state)->producer;
}

static aoticache_hook_shapes worker_shapes(const aoticache_hook *hook)
{
    (void)hook;
    return AOTICACHE_HOOK_SHAPES_DYNAMIC;
}

static bool worker_takes_numbers(const aoticache_hook *hook)
{
    (void)hook;
    return true;
}

static void worker_free_state(aoticache_hook *hook)
{
    struct worker_state *state = hook->state;
    pools_free(&state->pools);
    free(state);
}

static const aoticache_hook_kind worker_kind = {
    .name = "worker",
    .set_environment = worker_set_environment,
    .compile = worker_compile,
    .producer = worker_producer,
    .shapes = worker_shapes,
    .takes_numbers = worker_takes_numbers,
    .free_state = worker_free_state,
};

/* Finds the files that the worker's own build needs. If anything is missing, the worker builds as PyTorch does. */
static void find_runtime(struct worker_state *state)
{
    static const char header[] = "/runtime/kernel.h";
    if (aoticache_home_find("include/aoticache/runtime/kernel.h", state->include, NULL) != AOTICACHE_OK ||
        aoticache_home_find("lib/libaoticache_runtime.a", state->runtime, NULL) != AOTICACHE_OK ||
        aoticache_home_find("lib/aoticache/libtorch_cpu.so", state->torch, NULL) != AOTICACHE_OK)
        state->include[0] = state->runtime[0] = state->torch[0] = '\0';
    else
        state->include[strlen(state->include) - strlen(header)] = '\0';
}

/* Fills in the state. A hit does not need the script, so Python reports a missing script in the first compile. */
static void fill_state(struct worker_state *state, const aoticache_python *python, uint32_t workers)
{
    state->pools.worker_count = workers != 0 ? workers : 1;
    if (aoticache_home_find("share/aoticache/worker.py", state->script, NULL) != AOTICACHE_OK)
        snprintf(state->script, sizeof state->script, "share/aoticache/worker.py");
    find_runtime(state);
    memcpy(state->version, python->torch_version, sizeof state->version);
    snprintf(state->producer, sizeof state->producer, "pytorch %s", python->torch_version);
}

aoticache_status aoticache_hook_create_worker(const aoticache_hook_options *options, aoticache_hook **ret_hook,
                                              aoticache_error *ret_error)
{
    aoticache_hook_options all;
    aoticache_python python;
    aoticache_hook *hook;
    aoticache_status status = aoticache_hook_read_options(options, &all, ret_error);
    if (status == AOTICACHE_OK && ret_hook == NULL)
        status = AOTICACHE_REFUSE_NULL(ret_error, ret_hook);
    if (status == AOTICACHE_OK && all.workers > MAX_WORKERS)
        status = aoticache_error_set(ret_error, AOTICACHE_INVALID, "hook worker: %u workers; at most %d are allowed",
                                     (unsigned)all.workers, MAX_WORKERS);
    if (status == AOTICACHE_OK)
        status = aoticache_python_find(all.program, all.environment, &python, ret_error);
    if (status == AOTICACHE_OK)
        status =
            aoticache_hook_allocate(&worker_kind, &all, python.path, sizeof(struct worker_state), &hook, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    fill_state(hook->state, &python, all.workers);
    *ret_hook = hook;
    return AOTICACHE_OK;
}
