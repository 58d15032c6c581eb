/*
 * eager/holder/fill: adds the operator's entries of the index to the table: their metadata immediately, their libraries on the
 * first hit.
 */
#include "base/cleanup.h"
#include "base/log.h"
#include "cache/entries.h"
#include "cache/request/text.h"
#include "eager/compile/eager_face.h"
#include "eager/holder/holder_internal.h"

#include <string.h>

/* The makers whose kernels a walk over the index adds. */
typedef enum fill_makers {
    MAKERS_NAMED,  /* the maker that the environment of the holder's requests names */
    MAKERS_C,      /* kernels written in C, of any version, which run in every process */
    MAKERS_OTHERS, /* all others */
} fill_makers;

typedef struct fill_walk {
    aoticache_holder *holder;
    const aoticache_request *like; /* a request with the environment of this holder's requests */
    fill_makers makers;
    int64_t last_entry;
} fill_walk;

static const char *const maker_names[] = {"framework", "framework_version", "worker"};

static bool takes_numbers(const aoticache_request *request)
{
    const char *numbers = aoticache_request_get_environment(request, AOTICACHE_NUMBERS_NAME);
    return numbers != NULL && strcmp(numbers, AOTICACHE_NUMBERS_TENSORS) == 0;
}

/* Returns whether the host names no framework and no maker. It then uses existing kernels of any maker. */
static bool takes_any_maker(const aoticache_request *like)
{
    for (size_t i = 0; i < sizeof maker_names / sizeof *maker_names; i++)
        if (aoticache_request_get_environment(like, maker_names[i]) != NULL)
            return false;
    return true;
}

/* Counts the pairs of a request that name the kernel's maker, if the walk adds kernels of makers that it does not know. */
static size_t count_maker_pairs(const fill_walk *walk, const aoticache_request *request)
{
    size_t count = 0;
    for (size_t i = 0; walk->makers != MAKERS_NAMED && i < sizeof maker_names / sizeof *maker_names; i++)
        count += aoticache_request_get_environment(request, maker_names[i]) != NULL;
    return count;
}

static bool is_of_these_makers(const fill_walk *walk, const aoticache_request *request)
{
    const char *framework = aoticache_request_get_environment(request, "framework");
    const char *worker = aoticache_request_get_environment(request, "worker");
    if (walk->makers == MAKERS_NAMED)
        return true;
    if (framework != NULL && strcmp(framework, "c") == 0)
        return walk->makers == MAKERS_C;
    /* Kernels of an earlier worker may be wrong. */
    const bool is_current = framework == NULL || strcmp(framework, "pytorch") != 0 ||
                            (worker != NULL && strcmp(worker, AOTICACHE_WORKER_REVISION) == 0);
    return walk->makers == MAKERS_OTHERS && is_current;
}

/* Returns true if the environments are equal except for the maker's pairs and those that come from a call's arguments. */
static bool same_environment(const fill_walk *walk, const aoticache_request *request, bool is_dynamic)
{
    const aoticache_request *like = walk->like;
    if (!is_of_these_makers(walk, request) ||
        aoticache_request_environment_count(request) != aoticache_request_environment_count(like) + is_dynamic +
                                                            takes_numbers(request) + count_maker_pairs(walk, request) ||
        (is_dynamic && aoticache_request_get_environment(request, AOTICACHE_SHAPES_NAME) == NULL))
        return false;
    for (size_t i = 0; i < aoticache_request_environment_count(like); i++) {
        const char *name, *value, *theirs;
        aoticache_request_environment_at(like, i, &name, &value);
        theirs = aoticache_request_get_environment(request, name);
        if (theirs == NULL || strcmp(theirs, value) != 0)
            return false;
    }
    return true;
}

/* Counts a shape that another process has compiled, for the policy AFTER. */
static void count_shape(aoticache_holder *holder, const aoticache_value *values)
{
    aoticache_request *request = NULL;
    if (holder->dynamic != AOTICACHE_DYNAMIC_AFTER || !aoticache_hook_is_dynamic(holder->context->hook) ||
        aoticache_holder_dynamic_request(holder, values, &request, NULL) != AOTICACHE_OK || request == NULL)
        return;
    aoticache_dynamic_state *state = aoticache_holder_dynamic_state(holder, request);
    if (state != NULL)
        state->shapes++;
    aoticache_request_free(request);
}

/*
 * Adds an exact library. Of several for the same metadata the first one is kept, which is the best. Without memory, nothing is
 * added, and a miss will look in the cache.
 */
static void add_exact(aoticache_holder *holder, const aoticache_stored *stored)
{
    aoticache_packed packed;
    cleanup_free char *bytes = NULL;
    const aoticache_value *values = aoticache_holder_request_values(holder, stored->request, &bytes);
    if (values == NULL || !aoticache_pack(values, holder->num_arguments, &packed))
        return;
    aoticache_numbers_learn(holder, values);
    const aoticache_table_entry *entry = aoticache_table_find(&holder->table, &packed);
    const aoticache_known_kernel *known = entry != NULL ? aoticache_known_kernel_of(atomic_load(&entry->known)) : NULL;
    if (entry == NULL && aoticache_table_find(&holder->misses, &packed) == NULL)
        count_shape(holder, values); /* shapes that missed here were counted then */
    if (known == NULL || known->check != NULL || atomic_load(&known->gone))
        aoticache_holder_know_exact(holder, &packed, &stored->key, &stored->artifact, stored->entry_id);
}

static void add_dynamic(aoticache_holder *holder, const aoticache_stored *stored)
{
    aoticache_check *check;
    cleanup_free char *bytes = NULL;
    const aoticache_value *values =
        takes_numbers(stored->request) ? aoticache_holder_request_values(holder, stored->request, &bytes) : NULL;
    aoticache_dynamic_state *state = aoticache_holder_dynamic_state(holder, stored->request);
    if (values != NULL)
        aoticache_numbers_learn(holder, values);
    if (state != NULL && aoticache_check_parse(stored->guard, &check, NULL) == AOTICACHE_OK)
        aoticache_holder_know_dynamic(holder, state, &stored->key, &stored->artifact, stored->entry_id, check);
}

static bool add_stored(void *user, const aoticache_stored *stored)
{
    fill_walk *walk = user;
    aoticache_holder *holder = walk->holder;
    aoticache_device device = aoticache_request_device(stored->request);
    aoticache_device own = aoticache_request_device(walk->like);
    bool is_dynamic = stored->guard[0] != '\0';
    if (stored->entry_id > walk->last_entry)
        walk->last_entry = stored->entry_id;
    if (device.type != own.type || device.index != own.index || !same_environment(walk, stored->request, is_dynamic))
        return true;
    pthread_mutex_lock(&holder->lock);
    if (is_dynamic)
        add_dynamic(holder, stored);
    else
        add_exact(holder, stored);
    pthread_mutex_unlock(&holder->lock);
    return true;
}

/*
 * Makes a request with this holder's environment. ret_any: requests of any maker are accepted. If the context chose its hook by
 * itself, from what this machine has (such as one for kernels in C if there is no PyTorch), its owner did not ask for that
 * hook: so if the hook does not serve the operator, kernels of other makers are used.
 */
static aoticache_status make_request_like(const aoticache_holder *holder, aoticache_request **ret_like, bool *ret_any,
                                          aoticache_error *ret_error)
{
    const aoticache_context *context = holder->context;
    const aoticache_hook *hook = context->hook;
    aoticache_status status = aoticache_request_create(holder->op, holder->device, ret_like, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_holder_set_environment(holder, hook, *ret_like, ret_error);
    if (status == AOTICACHE_UNSUPPORTED && context->has_default_hook && hook != NULL) {
        hook = NULL;
        status = aoticache_holder_set_environment(holder, hook, *ret_like, ret_error);
    }
    *ret_any = status == AOTICACHE_OK && hook == NULL && takes_any_maker(*ret_like);
    return status;
}

static aoticache_status list_new_entries(aoticache_holder *holder, aoticache_error *ret_error)
{
    aoticache_request *like = NULL;
    bool any = false;
    aoticache_status status = make_request_like(holder, &like, &any, ret_error);
    if (status == AOTICACHE_OK) {
        fill_walk walk = {.holder = holder, .like = like, .makers = any ? MAKERS_C : MAKERS_NAMED};
        pthread_mutex_lock(&holder->lock);
        int64_t known = holder->last_entry;
        pthread_mutex_unlock(&holder->lock);
        status = aoticache_cache_list_stored(holder->context->cache, holder->op, known, add_stored, &walk, ret_error);
        walk.makers = MAKERS_OTHERS;
        if (status == AOTICACHE_OK && any)
            status =
                aoticache_cache_list_stored(holder->context->cache, holder->op, known, add_stored, &walk, ret_error);
        /* Only a complete walk has seen all entries up to there. */
        pthread_mutex_lock(&holder->lock);
        if (status == AOTICACHE_OK && walk.last_entry > holder->last_entry)
            holder->last_entry = walk.last_entry;
        pthread_mutex_unlock(&holder->lock);
    }
    aoticache_request_free(like);
    return status;
}

void aoticache_holder_fill(aoticache_holder *holder)
{
    aoticache_error error;
    aoticache_status status = list_new_entries(holder, &error);
    if (status == AOTICACHE_OK || status == AOTICACHE_UNSUPPORTED) /* UNSUPPORTED: the hook does not serve it */
        return;
    pthread_mutex_lock(&holder->lock);
    bool said = holder->fill_failed;
    holder->fill_failed = true;
    pthread_mutex_unlock(&holder->lock);
    if (!said)
        aoticache_log(&holder->context->logger, AOTICACHE_LOG_WARNING, "%s: cannot list the cached kernels: %s",
                      holder->op, error.message);
}
