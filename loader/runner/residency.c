/*
 * loader/runner/residency: see residency.h.
 *
 * Everything that decides whether a runner may go is in one word per resident: how many hold it, whether it is loaded,
 * whether it has been removed. Who wants to use a resident raises the count first and looks at the flags afterwards;
 * who wants to unload it exchanges "loaded, held by nobody" for "not loaded, held by me" in one step. So one of them
 * always sees the other. Loaders, unloaders and removers are holders too, which keeps the resident itself alive under
 * them: the last holder of a removed one destroys it.
 *
 * Two kinds of locks. A resident's own orders its loadings and unloadings, and is only taken by holders; the
 * residency's guards the lists and the sums, and is never held while a callback, a library or another lock is waited
 * for. A resident's own lock comes first; the other way round it is only tried.
 */
#include "loader/runner/residency.h"

#include "base/cleanup.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

/* The word: holders in the lower half, flags above. */
#define HOLDERS ((uint64_t)UINT32_MAX)
#define LOADED ((uint64_t)1 << 32)
#define REMOVED ((uint64_t)1 << 33)

struct aoticache_resident {
    /* What an acquire and a release touch comes first, and together. */
    _Atomic uint64_t state;
    _Atomic uint64_t last_use;
    aoticache_runner *runner; /* written under `own`, while LOADED is not set; read by holders that have seen LOADED */
    aoticache_residency *residency;
    uint64_t bytes; /* of the runner; the residency's lock */
    pthread_mutex_t own;
    aoticache_resident_load_fn load;
    void *user;
    void (*release_user)(void *user);
    LIST_ENTRY(aoticache_resident) in_all, in_loaded; /* the residency's lock */
};

LIST_HEAD(resident_list, aoticache_resident);

struct aoticache_residency {
    /* More is loaded than the budget allows, because it is acquired: a release has to look. */
    atomic_bool exceeded;
    size_t max_count; /* 0: any, here and in the next */
    uint64_t max_bytes;
    pthread_mutex_t lock; /* guards what follows */
    struct resident_list all, loaded;
    aoticache_residency_totals totals; /* `acquired` is counted when it is asked for */
};

/* A time for comparing, in any unit: it is read in every acquire, so the processor's own counter is taken. */
static inline uint64_t use_time(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
#endif
}

/* ---- sums; all under the residency's lock ---- */

static bool fits(const aoticache_residency *residency, size_t max_count, uint64_t max_bytes)
{
    return residency->totals.loaded <= max_count && residency->totals.bytes <= max_bytes;
}

static bool fits_budget(const aoticache_residency *residency)
{
    return fits(residency, residency->max_count > 0 ? residency->max_count : SIZE_MAX,
                residency->max_bytes > 0 ? residency->max_bytes : UINT64_MAX);
}

static void count_loaded(aoticache_resident *resident, uint64_t bytes)
{
    aoticache_residency *residency = resident->residency;
    resident->bytes = bytes;
    LIST_INSERT_HEAD(&residency->loaded, resident, in_loaded);
    residency->totals.loaded++;
    residency->totals.bytes += bytes;
}

static void count_unloaded(aoticache_resident *resident)
{
    aoticache_residency *residency = resident->residency;
    LIST_REMOVE(resident, in_loaded);
    residency->totals.loaded--;
    residency->totals.bytes -= resident->bytes;
    residency->totals.unloads++;
}

/* What a runner keeps in memory, as far as its library tells. */
static uint64_t runner_bytes(aoticache_runner *runner)
{
    uint64_t bytes = aoticache_library_bytes(aoticache_runner_library(runner));
    size_t count = aoticache_runner_num_constants(runner);
    for (size_t i = 0; i < count; i++) {
        aoticache_constant constant = {0};
        if (aoticache_runner_read_constant(runner, i, &constant, NULL) == AOTICACHE_OK && constant.has_bytes &&
            __builtin_add_overflow(bytes, constant.bytes, &bytes))
            return UINT64_MAX / 4; /* nonsense, but not small; sums of it do not overflow at once */
    }
    return bytes < UINT64_MAX / 4 ? bytes : UINT64_MAX / 4;
}

/* ---- unloading ---- */

/* The last holder of a removed resident. */
static void resident_destroy(aoticache_resident *resident)
{
    aoticache_residency *residency = resident->residency;
    int saved = errno;
    if (resident->runner != NULL) {
        pthread_mutex_lock(&residency->lock);
        count_unloaded(resident);
        if (fits_budget(residency))
            atomic_store(&residency->exceeded, false);
        pthread_mutex_unlock(&residency->lock);
        aoticache_runner_unref(resident->runner);
    }
    if (resident->release_user != NULL)
        resident->release_user(resident->user);
    pthread_mutex_destroy(&resident->own);
    free(resident);
    errno = saved;
}

/* Gives up a hold. The resident may be gone afterwards. Returns whether nobody else holds it, if it is still there. */
static inline bool drop(aoticache_resident *resident)
{
    uint64_t before = atomic_fetch_sub(&resident->state, 1);
    if ((before & HOLDERS) != 1)
        return false;
    if (__builtin_expect((before & REMOVED) == 0, 1))
        return true;
    resident_destroy(resident);
    return false;
}

static aoticache_resident *least_recently_used(const aoticache_residency *residency)
{
    aoticache_resident *found = NULL, *resident;
    uint64_t oldest = UINT64_MAX;
    LIST_FOREACH (resident, &residency->loaded, in_loaded) {
        uint64_t last_use = atomic_load_explicit(&resident->last_use, memory_order_relaxed);
        if (atomic_load_explicit(&resident->state, memory_order_relaxed) == LOADED && last_use <= oldest) {
            oldest = last_use;
            found = resident;
        }
    }
    return found;
}

/*
 * Under the residency's lock: takes the runner of a resident that nobody holds, and becomes its holder, with its own
 * lock taken, so that nobody loads it again before this runner is gone. False where somebody came first.
 */
static bool claim(aoticache_resident *resident, aoticache_runner **ret_runner)
{
    uint64_t expected = LOADED;
    if (pthread_mutex_trylock(&resident->own) != 0)
        return false;
    if (!atomic_compare_exchange_strong(&resident->state, &expected, 1)) {
        pthread_mutex_unlock(&resident->own);
        return false;
    }
    *ret_runner = resident->runner;
    resident->runner = NULL;
    count_unloaded(resident);
    return true;
}

/* Unloads until no more than this is loaded, or all of it is acquired. With the residency's lock, given up meanwhile. */
static void unload_down_to(aoticache_residency *residency, size_t max_count, uint64_t max_bytes)
{
    aoticache_resident *oldest;
    while (!fits(residency, max_count, max_bytes) && (oldest = least_recently_used(residency)) != NULL) {
        aoticache_runner *runner;
        if (!claim(oldest, &runner))
            continue;
        pthread_mutex_unlock(&residency->lock);
        aoticache_runner_unref(runner);
        pthread_mutex_unlock(&oldest->own);
        drop(oldest);
        pthread_mutex_lock(&residency->lock);
    }
}

/*
 * The flag is raised before the residents are looked at, and a release lowers the count before it looks at the flag:
 * what cannot be unloaded here, since it is acquired, is unloaded by its release.
 */
static void keep_budget(aoticache_residency *residency)
{
    pthread_mutex_lock(&residency->lock);
    if (!fits_budget(residency)) {
        atomic_store(&residency->exceeded, true);
        unload_down_to(residency, residency->max_count > 0 ? residency->max_count : SIZE_MAX,
                       residency->max_bytes > 0 ? residency->max_bytes : UINT64_MAX);
    }
    if (fits_budget(residency))
        atomic_store(&residency->exceeded, false);
    pthread_mutex_unlock(&residency->lock);
}

/* ---- loading ---- */

/* With the resident's own lock, by a holder. */
static aoticache_status load_runner(aoticache_resident *resident, aoticache_error *ret_error)
{
    aoticache_residency *residency = resident->residency;
    aoticache_runner *runner = NULL;
    aoticache_status status = resident->load(resident->user, &runner, ret_error);
    if (status == AOTICACHE_OK && runner == NULL)
        status = aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "the load function gave no runner");
    uint64_t bytes = status == AOTICACHE_OK ? runner_bytes(runner) : 0;
    pthread_mutex_lock(&residency->lock);
    if (status == AOTICACHE_OK) {
        resident->runner = runner;
        count_loaded(resident, bytes);
        residency->totals.loads++;
        atomic_fetch_or(&resident->state, LOADED);
    } else {
        residency->totals.failed_loads++;
    }
    pthread_mutex_unlock(&residency->lock);
    return status;
}

/* By a holder that has found the resident not loaded; on failure it holds it no longer. */
static aoticache_status acquire_unloaded(aoticache_resident *resident, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    bool loaded_here = false;
    pthread_mutex_lock(&resident->own);
    if ((atomic_load(&resident->state) & LOADED) == 0) {
        status = load_runner(resident, ret_error);
        loaded_here = status == AOTICACHE_OK;
    }
    pthread_mutex_unlock(&resident->own);
    if (loaded_here)
        keep_budget(resident->residency);
    if (status != AOTICACHE_OK)
        drop(resident);
    return status;
}

/* ---- the hot path ---- */

aoticache_status aoticache_resident_acquire(aoticache_resident *resident, aoticache_runner **ret_runner,
                                            aoticache_error *ret_error)
{
    if (__builtin_expect(resident == NULL || ret_runner == NULL, 0))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "acquiring needs a resident and a place");
    uint64_t before = atomic_fetch_add_explicit(&resident->state, 1, memory_order_acquire);
    atomic_store_explicit(&resident->last_use, use_time(), memory_order_relaxed);
    if (__builtin_expect((before & LOADED) == 0, 0)) {
        aoticache_status status = acquire_unloaded(resident, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    *ret_runner = resident->runner;
    return AOTICACHE_OK;
}

aoticache_runner *aoticache_resident_try_acquire(aoticache_resident *resident)
{
    if (resident == NULL || (atomic_load_explicit(&resident->state, memory_order_relaxed) & LOADED) == 0)
        return NULL;
    uint64_t before = atomic_fetch_add_explicit(&resident->state, 1, memory_order_acquire);
    if (__builtin_expect((before & LOADED) == 0, 0)) {
        drop(resident);
        return NULL;
    }
    atomic_store_explicit(&resident->last_use, use_time(), memory_order_relaxed);
    return resident->runner;
}

void aoticache_resident_release(aoticache_resident *resident)
{
    if (resident == NULL)
        return;
    aoticache_residency *residency = resident->residency;
    if (drop(resident) && __builtin_expect(atomic_load(&residency->exceeded), 0)) {
        int saved = errno;
        keep_budget(residency);
        errno = saved;
    }
}

/* ---- residents come and go ---- */

static aoticache_status resident_new(aoticache_residency *residency, aoticache_resident_load_fn load, void *user,
                                     void (*release_user)(void *user), aoticache_resident **ret_resident,
                                     aoticache_error *ret_error)
{
    if (residency == NULL || load == NULL || ret_resident == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "a resident needs a residency, a load function and a place");
    aoticache_resident *resident = calloc(1, sizeof *resident);
    if (resident == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "no memory for a resident");
    pthread_mutex_init(&resident->own, NULL);
    atomic_init(&resident->state, 0);
    atomic_init(&resident->last_use, use_time());
    resident->residency = residency;
    resident->load = load;
    resident->user = user;
    resident->release_user = release_user;
    *ret_resident = resident;
    return AOTICACHE_OK;
}

static void enter(aoticache_resident *resident)
{
    LIST_INSERT_HEAD(&resident->residency->all, resident, in_all);
    resident->residency->totals.residents++;
}

aoticache_status aoticache_residency_add(aoticache_residency *residency, aoticache_resident_load_fn load, void *user,
                                         void (*release_user)(void *user), aoticache_resident **ret_resident,
                                         aoticache_error *ret_error)
{
    aoticache_status status = resident_new(residency, load, user, release_user, ret_resident, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    pthread_mutex_lock(&residency->lock);
    enter(*ret_resident);
    pthread_mutex_unlock(&residency->lock);
    return AOTICACHE_OK;
}

aoticache_status aoticache_residency_add_loaded(aoticache_residency *residency, aoticache_resident_load_fn load,
                                                void *user, void (*release_user)(void *user), aoticache_runner *runner,
                                                aoticache_resident **ret_resident, aoticache_error *ret_error)
{
    if (runner == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "there is no runner to add");
    aoticache_resident *resident = NULL;
    aoticache_status status = ret_resident == NULL
        ? aoticache_error_set(ret_error, AOTICACHE_INVALID, "there is no place for the resident")
        : resident_new(residency, load, user, release_user, &resident, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    uint64_t bytes = runner_bytes(runner);
    resident->runner = runner;
    /* Held until it is the caller's: what is over the budget may be this very one, but not before it is given out. */
    atomic_init(&resident->state, LOADED | 1);
    pthread_mutex_lock(&residency->lock);
    enter(resident);
    count_loaded(resident, bytes);
    pthread_mutex_unlock(&residency->lock);
    keep_budget(residency);
    *ret_resident = resident;
    aoticache_resident_release(resident);
    return AOTICACHE_OK;
}

void aoticache_resident_remove(aoticache_resident *resident)
{
    if (resident == NULL)
        return;
    aoticache_residency *residency = resident->residency;
    atomic_fetch_add(&resident->state, 1);
    pthread_mutex_lock(&residency->lock);
    LIST_REMOVE(resident, in_all);
    residency->totals.residents--;
    atomic_fetch_or(&resident->state, REMOVED);
    pthread_mutex_unlock(&residency->lock);
    drop(resident);
}

/* ---- the residency ---- */

aoticache_status aoticache_residency_create(const aoticache_residency_options *options,
                                            aoticache_residency **ret_residency, aoticache_error *ret_error)
{
    aoticache_residency_options chosen = AOTICACHE_RESIDENCY_OPTIONS_INIT;
    if (ret_residency == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "there is no place for the residency");
    if (options != NULL &&
        (options->size < offsetof(aoticache_residency_options, max_count) || options->size > sizeof chosen))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the options of a residency have %zu bytes, not %zu",
                                   options->size, sizeof chosen);
    if (options != NULL)
        memcpy(&chosen, options, options->size);
    aoticache_residency *residency = calloc(1, sizeof *residency);
    if (residency == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "no memory for a residency");
    pthread_mutex_init(&residency->lock, NULL);
    atomic_init(&residency->exceeded, false);
    residency->max_count = chosen.max_count;
    residency->max_bytes = chosen.max_bytes;
    *ret_residency = residency;
    return AOTICACHE_OK;
}

void aoticache_residency_free(aoticache_residency *residency)
{
    if (residency == NULL)
        return;
    int saved = errno;
    aoticache_resident *resident;
    while ((resident = LIST_FIRST(&residency->all)) != NULL)
        aoticache_resident_remove(resident);
    pthread_mutex_destroy(&residency->lock);
    free(residency);
    errno = saved;
}

void aoticache_residency_trim(aoticache_residency *residency, size_t max_count, uint64_t max_bytes)
{
    if (residency == NULL)
        return;
    bool everything = max_count == 0 && max_bytes == 0;
    if (!everything && max_count == 0)
        max_count = SIZE_MAX;
    if (!everything && max_bytes == 0)
        max_bytes = UINT64_MAX;
    pthread_mutex_lock(&residency->lock);
    unload_down_to(residency, max_count, max_bytes);
    pthread_mutex_unlock(&residency->lock);
}

void aoticache_residency_get_totals(aoticache_residency *residency, aoticache_residency_totals *ret_totals)
{
    aoticache_resident *resident;
    if (residency == NULL || ret_totals == NULL)
        return;
    pthread_mutex_lock(&residency->lock);
    *ret_totals = residency->totals;
    ret_totals->acquired = 0;
    LIST_FOREACH (resident, &residency->loaded, in_loaded)
        ret_totals->acquired += (atomic_load(&resident->state) & HOLDERS) > 0;
    pthread_mutex_unlock(&residency->lock);
}
