/*
 * eager/torch/binding_shell: what PyTorch's dispatcher is given for an operator: one shell for each operator, dispatch
 * key and way, made once and never freed, and the place in the pool that goes with it. binding_state.h says why.
 *
 * Also the fork handlers, since all that is enabled is found from here.
 */
#include "base/cleanup.h"
#include "eager/torch/binding_state.h"

#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static aoticache_shell *shells;
static _Atomic(aoticache_shell *) slots[AOTICACHE_STABLE_SLOTS];
static uint32_t used_slots;
static pthread_once_t handlers_once = PTHREAD_ONCE_INIT;

/* ---- fork ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void)
{
    for (aoticache_shell *shell = shells; shell != NULL; shell = shell->next) {
        aoticache_binding_operator *op = atomic_load(&shell->op);
        if (op != NULL)
            aoticache_binding_recount(op);
    }
    pthread_mutex_unlock(&lock);
}

static void add_handlers(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* ---- the list ---- */

static void shell_free(aoticache_shell *shell)
{
    free(shell->name);
    free(shell->overload);
    free(shell->dispatch_key);
    free(shell);
}

static aoticache_shell *find(const char *name, const char *overload, const char *dispatch_key, bool is_stable)
{
    for (aoticache_shell *shell = shells; shell != NULL; shell = shell->next)
        if (shell->is_stable == is_stable && strcmp(shell->name, name) == 0 &&
            strcmp(shell->overload, overload) == 0 && strcmp(shell->dispatch_key, dispatch_key) == 0)
            return shell;
    return NULL;
}

static aoticache_shell *make(const char *name, const char *overload, const char *dispatch_key, bool is_stable)
{
    aoticache_shell *shell = calloc(1, sizeof *shell);
    if (shell == NULL)
        return NULL;
    shell->name = strdup(name);
    shell->overload = strdup(overload);
    shell->dispatch_key = strdup(dispatch_key);
    shell->is_stable = is_stable;
    if (shell->name == NULL || shell->overload == NULL || shell->dispatch_key == NULL) {
        shell_free(shell);
        return NULL;
    }
    if (is_stable) {
        shell->slot = used_slots++;
        atomic_store(&slots[shell->slot], shell);
    }
    shell->next = shells;
    shells = shell;
    return shell;
}

static aoticache_status acquire(const aoticache_schema *schema, const char *dispatch_key, bool is_stable,
                                aoticache_shell **ret_shell, aoticache_error *ret_error)
{
    const char *name = aoticache_schema_name(schema), *overload = aoticache_schema_overload(schema);
    const char *full = aoticache_schema_full_name(schema);
    aoticache_shell *shell = find(name, overload, dispatch_key, is_stable);
    aoticache_shell *other = find(name, overload, dispatch_key, !is_stable);
    if ((shell != NULL && shell->taken) || (other != NULL && other->taken))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%.200s is enabled for %.60s already; disable it first", full, dispatch_key);
    if (shell == NULL && is_stable && used_slots == AOTICACHE_STABLE_SLOTS)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "%.200s: all %d functions for operators are in use; the bridge needs none", full,
                                   AOTICACHE_STABLE_SLOTS);
    if (shell == NULL)
        shell = make(name, overload, dispatch_key, is_stable);
    if (shell == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%.200s: no memory to enable it", full);
    shell->taken = true;
    *ret_shell = shell;
    return AOTICACHE_OK;
}

aoticache_status aoticache_shell_acquire(const aoticache_schema *schema, const char *dispatch_key, bool is_stable,
                                         aoticache_shell **ret_shell, aoticache_error *ret_error)
{
    pthread_once(&handlers_once, add_handlers);
    pthread_mutex_lock(&lock);
    aoticache_status status = acquire(schema, dispatch_key, is_stable, ret_shell, ret_error);
    pthread_mutex_unlock(&lock);
    return status;
}

void aoticache_shell_release(aoticache_shell *shell)
{
    pthread_mutex_lock(&lock);
    shell->taken = false;
    pthread_mutex_unlock(&lock);
}

aoticache_shell *aoticache_shell_of_slot(uint32_t slot)
{
    return atomic_load_explicit(&slots[slot], memory_order_acquire);
}
