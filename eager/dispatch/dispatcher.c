/*
 * eager/dispatch/dispatcher: the dispatcher itself: creation and end, fallbacks and observer.
 */
#include "base/arguments.h"
#include "eager/dispatch/dispatcher.h"
#include "eager/dispatch/dispatch_internal.h"
#include "eager/dispatch/keys.h"
#include "eager/dispatch/questions.h"

#include <stdlib.h>
#include <string.h>

/* ---- creation and end ---- */

static aoticache_dispatcher *allocate(void)
{
    aoticache_dispatcher *dispatcher = aligned_alloc(_Alignof(aoticache_dispatcher), sizeof *dispatcher);
    if (dispatcher == NULL)
        return NULL;
    memset(dispatcher, 0, sizeof *dispatcher);
    pthread_mutex_init(&dispatcher->lock, NULL);
    dispatcher->table_without_kernels = aoticache_op_table_create(dispatcher, NULL);
    if (dispatcher->table_without_kernels != NULL)
        return dispatcher;
    pthread_mutex_destroy(&dispatcher->lock);
    free(dispatcher);
    return NULL;
}

aoticache_status aoticache_dispatcher_create(aoticache_dispatcher **ret_dispatcher, aoticache_error *ret_error)
{
    if (ret_dispatcher == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, ret_dispatcher);
    aoticache_dispatcher *dispatcher = allocate();
    if (dispatcher == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a dispatcher");
    *ret_dispatcher = dispatcher;
    return AOTICACHE_OK;
}

void aoticache_dispatcher_free(aoticache_dispatcher *dispatcher)
{
    if (dispatcher == NULL)
        return;
    aoticache_operator **all = dispatcher->names.items;
    for (size_t i = 0; i < dispatcher->names.count; i++)
        aoticache_operator_free(all[i]);
    aoticache_hash_map_free(&dispatcher->names);
    free(dispatcher->operators);
    aoticache_op_table_free(dispatcher->table_without_kernels);
    free(atomic_load(&dispatcher->observation));
    pthread_mutex_destroy(&dispatcher->lock);
    free(dispatcher);
    aoticache_epoch_reclaim();
}

static aoticache_dispatcher *process_dispatcher;

static void make_process_dispatcher(void)
{
    process_dispatcher = allocate();
}

aoticache_dispatcher *aoticache_dispatcher_get(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_process_dispatcher);
    return process_dispatcher;
}

/* ---- fallbacks ---- */

static void share_table(aoticache_dispatcher *dispatcher, aoticache_op_table *table)
{
    aoticache_op_table *old = dispatcher->table_without_kernels;
    dispatcher->table_without_kernels = table;
    for (size_t i = 0; i < dispatcher->operator_count; i++)
        if (dispatcher->operators[i]->kernels == NULL)
            atomic_store(&dispatcher->operators[i]->table, table);
    if (old != table)
        aoticache_op_table_retire(dispatcher, old);
}

/* Rebuilds all tables. NO_MEMORY: some operators have the substitute table. */
static aoticache_status dispatcher_rebuild_all(aoticache_dispatcher *dispatcher, aoticache_error *ret_error)
{
    aoticache_op_table *table = aoticache_op_table_create(dispatcher, NULL);
    aoticache_status status = AOTICACHE_OK;
    if (table == NULL)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the operators' tables");
    share_table(dispatcher, table != NULL ? table : aoticache_op_table_exhausted());
    for (size_t i = 0; i < dispatcher->operator_count; i++) {
        aoticache_operator *op = dispatcher->operators[i];
        if (op->kernels != NULL && aoticache_operator_rebuild(op, ret_error) != AOTICACHE_OK)
            status = AOTICACHE_NO_MEMORY;
    }
    return status;
}

typedef struct fallback_places {
    int32_t entries[AOTICACHE_DISPATCH_ENTRIES];
    size_t count;
} fallback_places;

static bool add_place(void *user, aoticache_dispatch_key key)
{
    fallback_places *places = user;
    places->entries[places->count++] = aoticache_dispatch_key_entry(key);
    return true;
}

aoticache_status aoticache_dispatcher_add_fallback(aoticache_dispatcher *dispatcher, aoticache_op_kernel *kernel,
                                                   aoticache_error *ret_error)
{
    fallback_places places = {.count = 0};
    aoticache_key_set_list(aoticache_key_set_of_alias(kernel->key), add_place, &places);
    for (size_t i = 0; i < places.count; i++) {
        const aoticache_op_kernel *before = atomic_load(&dispatcher->fallbacks[places.entries[i]]);
        if (before != NULL)
            return aoticache_error_set(ret_error, AOTICACHE_EXISTS,
                                       "%s already has a fallback: second registration %.300s, first %.300s",
                                       aoticache_dispatch_key_name(aoticache_dispatch_key_of_entry(places.entries[i])),
                                       kernel->debug, before->debug);
    }
    for (size_t i = 0; i < places.count; i++)
        atomic_store(&dispatcher->fallbacks[places.entries[i]], kernel);
    aoticache_status status = dispatcher_rebuild_all(dispatcher, ret_error);
    if (status != AOTICACHE_OK)
        aoticache_dispatcher_remove_fallback(dispatcher, kernel);
    return status;
}

void aoticache_dispatcher_remove_fallback(aoticache_dispatcher *dispatcher, const aoticache_op_kernel *kernel)
{
    bool found = false;
    for (size_t i = 0; i < AOTICACHE_DISPATCH_ENTRIES; i++) {
        if (atomic_load(&dispatcher->fallbacks[i]) == kernel) {
            atomic_store(&dispatcher->fallbacks[i], NULL);
            found = true;
        }
    }
    if (found)
        dispatcher_rebuild_all(dispatcher, NULL);
}

bool aoticache_dispatcher_has_fallback(aoticache_dispatcher *dispatcher, aoticache_dispatch_key key)
{
    if (key < 0 || key >= AOTICACHE_DISPATCH_KEY_COUNT || aoticache_dispatch_key_is_alias(key))
        return false;
    return atomic_load(&dispatcher->fallbacks[key_set_entry(aoticache_key_set_of(key))]) != NULL;
}

/* ---- the observer and the logger ---- */

static void release_observation(aoticache_retired *retired)
{
    free((char *)retired - offsetof(aoticache_op_observation, retired));
}

aoticache_status aoticache_dispatcher_observe(aoticache_dispatcher *dispatcher, const aoticache_call_observer *observer,
                                              aoticache_error *ret_error)
{
    aoticache_op_observation *observation = NULL;
    if (observer != NULL) {
        observation = malloc(sizeof *observation);
        if (observation == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for an observer");
        observation->observer = *observer;
    }
    aoticache_dispatcher_lock(dispatcher);
    aoticache_op_observation *old = atomic_exchange(&dispatcher->observation, observation);
    if (old != NULL)
        aoticache_dispatcher_retire(dispatcher, &old->retired, release_observation);
    aoticache_dispatcher_unlock(dispatcher);
    aoticache_epoch_reclaim();
    return AOTICACHE_OK;
}

void aoticache_dispatcher_set_logger(aoticache_dispatcher *dispatcher, const aoticache_logger *logger)
{
    aoticache_dispatcher_lock(dispatcher);
    dispatcher->logger = logger != NULL ? *logger : (aoticache_logger){.log = NULL};
    aoticache_dispatcher_unlock(dispatcher);
}

/* ---- sizes of structures, for bindings without a C compiler ---- */

#define STRUCT(name) {#name, sizeof(name)}

static const struct {
    const char *name;
    size_t bytes;
} structs[] = {
    STRUCT(aoticache_error),         STRUCT(aoticache_tensor_view),    STRUCT(aoticache_value),
    STRUCT(aoticache_stack),         STRUCT(aoticache_boxed_kernel),   STRUCT(aoticache_dispatch_mode),
    STRUCT(aoticache_call_observer), STRUCT(aoticache_dispatch_local),
};

size_t aoticache_dispatch_struct_size(const char *name)
{
    for (size_t i = 0; name != NULL && i < sizeof structs / sizeof structs[0]; i++)
        if (strcmp(structs[i].name, name) == 0)
            return structs[i].bytes;
    return 0;
}
