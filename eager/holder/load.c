/*
 * eager/holder/load: libraries of a holder: loading them, publishing them to calls, unloading the least recently used
 * ones where there is a budget.
 */
#include "base/cleanup.h"
#include "eager/artifact_runner.h"
#include "eager/holder/state.h"
#include "cache/stats/statistics.h"

#include <string.h>

/* ---- the budget ---- */

/* A runner on its way out, until nobody can be running it. */
typedef struct leaving_runner {
    aoticache_retired retired;
    aoticache_runner *runner;
} leaving_runner;

static void release_runner(aoticache_retired *retired)
{
    leaving_runner *leaving = (leaving_runner *)(void *)((char *)retired - offsetof(leaving_runner, retired));
    aoticache_runner_unref(leaving->runner);
    free(leaving);
}

/* Takes it off the list of loaded ones. Under eager->lock. */
static void unlink_loaded(aoticache_context *eager, aoticache_held *held)
{
    *held->loaded_link = held->loaded_next;
    if (held->loaded_next != NULL)
        held->loaded_next->loaded_link = held->loaded_link;
    held->loaded_link = NULL;
    eager->loaded_count--;
    eager->loaded_bytes -= held->loaded_bytes;
}

/* The one that was not used for longest; not `keep`. Under eager->lock. */
static aoticache_held *least_recent(const aoticache_context *eager, const aoticache_held *keep)
{
    aoticache_held *found = NULL;
    uint64_t oldest = UINT64_MAX;
    for (aoticache_held *held = eager->loaded; held != NULL; held = held->loaded_next) {
        uint64_t tick = atomic_load_explicit(&held->unit->last_tick, memory_order_relaxed);
        if (held != keep && tick <= oldest) { /* of equal ones the one that was loaded first */
            oldest = tick;
            found = held;
        }
    }
    return found;
}

static bool exceeds(const aoticache_context *eager)
{
    return (eager->max_loaded > 0 && eager->loaded_count > eager->max_loaded) ||
           (eager->max_loaded_bytes > 0 && eager->loaded_bytes > eager->max_loaded_bytes);
}

/* Unloads until the budget is kept, or there is nothing but `keep`. */
static void keep_budget(aoticache_context *eager, const aoticache_held *keep)
{
    for (;;) {
        leaving_runner *leaving = NULL;
        pthread_mutex_lock(&eager->lock);
        aoticache_held *held = exceeds(eager) ? least_recent(eager, keep) : NULL;
        if (held != NULL && (leaving = malloc(sizeof *leaving)) != NULL) {
            leaving->runner = atomic_exchange(&held->unit->runner, NULL);
            unlink_loaded(eager, held);
        }
        pthread_mutex_unlock(&eager->lock);
        if (leaving == NULL)
            return;
        aoticache_epoch_retire(&leaving->retired, release_runner);
    }
}

static uint64_t bytes_of(const aoticache_runner *runner)
{
    uint64_t bytes = aoticache_library_bytes(aoticache_runner_library(runner));
    for (size_t i = 0; i < aoticache_runner_num_constants(runner); i++) {
        aoticache_constant constant;
        if (aoticache_runner_read_constant(runner, i, &constant, NULL) == AOTICACHE_OK && constant.has_bytes)
            bytes += constant.bytes;
    }
    return bytes;
}

/* From now on calls find the runner. */
static void publish(aoticache_held *held, aoticache_runner *runner)
{
    aoticache_context *eager = held->holder->eager;
    uint64_t bytes = eager->max_loaded_bytes > 0 ? bytes_of(runner) : 0;
    pthread_mutex_lock(&eager->lock);
    held->loaded_bytes = bytes;
    held->loaded_next = eager->loaded;
    held->loaded_link = &eager->loaded;
    if (held->loaded_next != NULL)
        held->loaded_next->loaded_link = &held->loaded_next;
    eager->loaded = held;
    eager->loaded_count++;
    eager->loaded_bytes += bytes;
    /* After all that was used before, and before all that is used from now on. */
    uint64_t tick = atomic_fetch_add(&eager->tick, 2) + 1;
    atomic_store_explicit(&held->unit->last_tick, tick, memory_order_relaxed);
    atomic_store(&held->unit->runner, runner);
    pthread_mutex_unlock(&eager->lock);
    atomic_fetch_add_explicit(&held->holder->loads, 1, memory_order_relaxed);
    keep_budget(eager, held);
}

void aoticache_holder_unload_all(aoticache_holder *holder)
{
    for (aoticache_held *held = holder->held; held != NULL; held = held->next) {
        pthread_mutex_lock(&holder->eager->lock);
        aoticache_runner *runner = held->unit != NULL ? atomic_exchange(&held->unit->runner, NULL) : NULL;
        if (runner != NULL)
            unlink_loaded(holder->eager, held);
        pthread_mutex_unlock(&holder->eager->lock);
        aoticache_runner_unref(runner);
    }
}

/* ---- loading ---- */

static aoticache_status check_runner(const aoticache_holder *holder, const aoticache_runner *runner,
                                     aoticache_error *ret_error)
{
    size_t outputs = aoticache_runner_num_outputs(runner);
    if (aoticache_library_needs_proxy_executor(aoticache_runner_library(runner)))
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "library %.80s: PyTorch compiled %s into a call of its proxy executor, which is no "
                                   "faster than the operator itself",
                                   aoticache_library_name(aoticache_runner_library(runner)), holder->op);
    if (holder->returns == AOTICACHE_RETURNS_LIST || outputs == holder->num_returns)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "library %.80s gives %zu outputs, %s has %zu",
                               aoticache_library_name(aoticache_runner_library(runner)), outputs, holder->op,
                               holder->num_returns);
}

static aoticache_status load(const aoticache_holder *holder, aoticache_artifact *artifact,
                             aoticache_runner **ret_runner, aoticache_error *ret_error)
{
    const aoticache_context *eager = holder->eager;
    /* Where libraries are to be unloaded, they must be such that they can be. */
    bool private_copy = eager->max_loaded > 0 || eager->max_loaded_bytes > 0;
    aoticache_runner *runner;
    const uint64_t begun = aoticache_monotonic_ns();
    aoticache_status status =
        aoticache_artifact_load_runner(artifact, holder->device, private_copy, &runner, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_cache_note_load(eager->cache, aoticache_monotonic_ns() - begun);
    status = check_runner(holder, runner, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_runner_unref(runner);
        return status;
    }
    *ret_runner = runner;
    return AOTICACHE_OK;
}

/* NOT_FOUND: it is gone, and nobody asks for it again before it was made anew. */
static aoticache_status open_held(aoticache_held *held, aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    aoticache_holder *holder = held->holder;
    pthread_mutex_lock(&holder->lock);
    int64_t entry_id = held->entry_id;
    aoticache_digest digest = held->artifact;
    pthread_mutex_unlock(&holder->lock);
    aoticache_status status = AOTICACHE_NOT_FOUND;
    if (entry_id != 0)
        status = aoticache_cache_open_stored(holder->eager->cache, entry_id, &digest, ret_artifact, ret_error);
    if (status != AOTICACHE_NOT_FOUND)
        return status;
    pthread_mutex_lock(&holder->lock);
    if (held->entry_id == entry_id)
        atomic_store(&held->gone, true);
    pthread_mutex_unlock(&holder->lock);
    return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%s: the library is not in the cache any more",
                               holder->op);
}

/* Under load_lock, not loaded. */
static aoticache_status load_held(aoticache_held *held, aoticache_runner **ret_runner, aoticache_error *ret_error)
{
    aoticache_holder *holder = held->holder;
    aoticache_artifact *artifact = NULL;
    aoticache_runner *runner = NULL;
    aoticache_status status = open_held(held, &artifact, ret_error);
    if (status == AOTICACHE_OK)
        status = load(holder, artifact, &runner, ret_error);
    aoticache_artifact_unref(artifact);
    if (status != AOTICACHE_OK)
        return status;
    publish(held, runner);
    *ret_runner = runner;
    return AOTICACHE_OK;
}

aoticache_status aoticache_held_load(aoticache_held *held, aoticache_runner **ret_runner, aoticache_error *ret_error)
{
    aoticache_holder *holder = held->holder;
    aoticache_status status = AOTICACHE_OK;
    pthread_mutex_lock(&holder->load_lock);
    aoticache_runner *runner = atomic_load(&held->unit->runner);
    if (runner != NULL)
        *ret_runner = runner;
    else
        status = load_held(held, ret_runner, ret_error);
    pthread_mutex_unlock(&holder->load_lock);
    return status;
}

/* ---- making known ---- */

static aoticache_status know(aoticache_holder *holder, const aoticache_wanted *wanted, aoticache_artifact *artifact,
                             aoticache_held **ret_held, aoticache_error *ret_error)
{
    const char *guard = aoticache_artifact_guard(artifact);
    const aoticache_digest *digest = aoticache_artifact_digest(artifact);
    int64_t entry_id = aoticache_artifact_entry(artifact);
    aoticache_check *check = NULL;
    if (guard[0] != '\0' && wanted->family_state != NULL) {
        aoticache_status status = aoticache_check_parse(guard, &check, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    pthread_mutex_lock(&holder->lock);
    aoticache_held *held =
        check != NULL ? aoticache_holder_know_guarded(holder, wanted->family_state, digest, entry_id, check)
                      : aoticache_holder_know_exact(holder, wanted->packed, digest, entry_id);
    pthread_mutex_unlock(&holder->lock);
    if (held == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: no memory for a library", holder->op);
    *ret_held = held;
    return AOTICACHE_OK;
}

aoticache_status aoticache_holder_adopt(aoticache_holder *holder, const aoticache_wanted *wanted,
                                        aoticache_artifact *artifact, aoticache_held **ret_held,
                                        aoticache_error *ret_error)
{
    aoticache_held *held = NULL;
    aoticache_runner *runner = NULL;
    pthread_mutex_lock(&holder->load_lock);
    aoticache_status status = know(holder, wanted, artifact, &held, ret_error);
    if (status == AOTICACHE_OK && atomic_load(&held->unit->runner) == NULL) {
        status = load(holder, artifact, &runner, ret_error);
        if (status == AOTICACHE_OK)
            publish(held, runner);
    }
    pthread_mutex_unlock(&holder->load_lock);
    if (status == AOTICACHE_OK)
        *ret_held = held;
    return status;
}

/* ---- use ---- */

void aoticache_holder_flush(aoticache_holder *holder)
{
    pthread_mutex_lock(&holder->lock);
    for (aoticache_held *held = holder->held; held != NULL; held = held->next) {
        uint64_t uses = aoticache_uses_take(held->number);
        if (held->entry_id != 0)
            aoticache_cache_note_use(holder->eager->cache, held->entry_id, uses);
    }
    pthread_mutex_unlock(&holder->lock);
}
