/*
 * eager/dispatch/dispatcher_names: operators by name: finding one, suggesting one, listing them.
 */
#include "base/cleanup.h"
#include "base/name_distance.h"
#include "eager/dispatch/dispatcher_state.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

/* The place of the name, or the empty one where it would be. The table has a free place. */
static size_t place_of(aoticache_operator *const *operators, size_t capacity, const char *name, uint64_t hash)
{
    size_t at = (hash ^ hash >> 32) & (capacity - 1);
    while (operators[at] != NULL && (operators[at]->name_hash != hash || strcmp(operators[at]->name, name) != 0))
        at = (at + 1) & (capacity - 1);
    return at;
}

aoticache_operator *aoticache_dispatcher_get_operator(const aoticache_dispatcher *dispatcher, const char *name)
{
    if (dispatcher->operator_capacity == 0)
        return NULL;
    return dispatcher->operators[place_of(dispatcher->operators, dispatcher->operator_capacity, name,
                                          aoticache_operator_hash(name))];
}

static aoticache_status grow(aoticache_dispatcher *dispatcher, aoticache_error *ret_error)
{
    size_t capacity = dispatcher->operator_capacity == 0 ? 64 : 2 * dispatcher->operator_capacity;
    if (2 * (dispatcher->operator_count + 1) <= dispatcher->operator_capacity)
        return AOTICACHE_OK;
    aoticache_operator **operators = calloc(capacity, sizeof *operators);
    if (operators == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "no memory for %zu operators", capacity);
    for (size_t i = 0; i < dispatcher->operator_capacity; i++) {
        aoticache_operator *op = dispatcher->operators[i];
        if (op != NULL)
            operators[place_of(operators, capacity, op->name, op->name_hash)] = op;
    }
    free(dispatcher->operators);
    dispatcher->operators = operators;
    dispatcher->operator_capacity = capacity;
    return AOTICACHE_OK;
}

aoticache_status aoticache_dispatcher_take_operator(aoticache_dispatcher *dispatcher, const char *name,
                                                    aoticache_operator **ret_operator, aoticache_error *ret_error)
{
    aoticache_operator *op = aoticache_dispatcher_get_operator(dispatcher, name);
    if (op == NULL) {
        aoticache_status status = grow(dispatcher, ret_error);
        if (status == AOTICACHE_OK)
            status = aoticache_operator_create(dispatcher, name, &op, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        dispatcher->operators[place_of(dispatcher->operators, dispatcher->operator_capacity, name, op->name_hash)] = op;
        dispatcher->operator_count++;
    }
    *ret_operator = op;
    return AOTICACHE_OK;
}

/* ---- the nearest name ---- */

enum { MAX_DISTANCE = 3 };

const char *aoticache_dispatcher_nearest(const aoticache_dispatcher *dispatcher, const char *name)
{
    const char *nearest = NULL;
    size_t best = MAX_DISTANCE + 1;
    for (size_t i = 0; i < dispatcher->operator_capacity; i++) {
        const aoticache_operator *op = dispatcher->operators[i];
        if (op == NULL || op->definition_debug == NULL)
            continue;
        /* One as far away as the best so far wins where it comes first by name. */
        size_t found = aoticache_name_distance(name, op->name, best + 1, false);
        if (found < best || (found == best && nearest != NULL && strcmp(op->name, nearest) < 0)) {
            best = found;
            nearest = op->name;
        }
    }
    return nearest;
}

/* ---- finding ---- */

static aoticache_status report_unknown(const aoticache_dispatcher *dispatcher, const aoticache_operator *op,
                                       const char *name, aoticache_error *ret_error)
{
    if (op != NULL && op->registrations > 0)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%.300s has kernels, but is not defined", name);
    const char *nearest = aoticache_dispatcher_nearest(dispatcher, name);
    return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "there is no operator %.300s%s%s%s", name,
                               nearest != NULL ? "; did you mean " : "", nearest != NULL ? nearest : "",
                               nearest != NULL ? "?" : "");
}

static aoticache_status find(aoticache_dispatcher *dispatcher, const char *name, bool defined,
                             aoticache_operator **ret_operator, aoticache_error *ret_error)
{
    if (dispatcher == NULL || name == NULL || ret_operator == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "an operator to find needs a dispatcher and a name");
    aoticache_status status = AOTICACHE_OK;
    aoticache_dispatcher_lock(dispatcher);
    aoticache_operator *op = aoticache_dispatcher_get_operator(dispatcher, name);
    if (op == NULL || op->registrations == 0 || (defined && op->definition_debug == NULL))
        status = report_unknown(dispatcher, op, name, ret_error);
    else
        *ret_operator = op;
    aoticache_dispatcher_unlock(dispatcher);
    return status;
}

aoticache_status aoticache_dispatcher_find(aoticache_dispatcher *dispatcher, const char *name,
                                           aoticache_operator **ret_operator, aoticache_error *ret_error)
{
    return find(dispatcher, name, true, ret_operator, ret_error);
}

aoticache_status aoticache_dispatcher_find_any(aoticache_dispatcher *dispatcher, const char *name,
                                               aoticache_operator **ret_operator, aoticache_error *ret_error)
{
    return find(dispatcher, name, false, ret_operator, ret_error);
}

bool aoticache_dispatcher_has_kernel(aoticache_dispatcher *dispatcher, const char *name)
{
    aoticache_operator *op;
    return find(dispatcher, name, false, &op, NULL) == AOTICACHE_OK;
}

/* ---- listing: the callbacks run without the lock, so that they may ask and register ---- */

typedef bool (*wanted_fn)(const aoticache_operator *op, aoticache_dispatch_key key);

static bool is_there(const aoticache_operator *op, aoticache_dispatch_key key)
{
    (void)key;
    return op->registrations > 0;
}

static bool is_dangling(const aoticache_operator *op, aoticache_dispatch_key key)
{
    (void)key;
    return op->registrations > 0 && op->definition_debug == NULL;
}

static bool has_registration(const aoticache_operator *op, aoticache_dispatch_key key)
{
    for (const aoticache_op_kernel *kernel = op->kernels; kernel != NULL; kernel = kernel->older)
        if (kernel->key == key)
            return true;
    return false;
}

static int by_name(const void *a, const void *b)
{
    const aoticache_operator *const *left = a, *const *right = b;
    return strcmp((*left)->name, (*right)->name);
}

/* Sorted; operators stay, so their handles do without the lock. *ret_found is the caller's. */
static aoticache_status collect(aoticache_dispatcher *dispatcher, wanted_fn wanted, aoticache_dispatch_key key,
                                aoticache_operator ***ret_found, size_t *ret_count, aoticache_error *ret_error)
{
    size_t count = 0;
    aoticache_dispatcher_lock(dispatcher);
    aoticache_operator **found = malloc((dispatcher->operator_count + 1) * sizeof *found);
    for (size_t i = 0; found != NULL && i < dispatcher->operator_capacity; i++)
        if (dispatcher->operators[i] != NULL && wanted(dispatcher->operators[i], key))
            found[count++] = dispatcher->operators[i];
    aoticache_dispatcher_unlock(dispatcher);
    if (found == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "no memory for a list of operators");
    qsort(found, count, sizeof *found, by_name);
    *ret_found = found;
    *ret_count = count;
    return AOTICACHE_OK;
}

static aoticache_status list(aoticache_dispatcher *dispatcher, wanted_fn wanted, aoticache_dispatch_key key,
                             aoticache_operator_name_fn callback, void *user, aoticache_error *ret_error)
{
    cleanup_free aoticache_operator **found = NULL;
    size_t count = 0;
    aoticache_status status = collect(dispatcher, wanted, key, &found, &count, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++)
        if (!callback(user, found[i]->name))
            break;
    return status;
}

aoticache_status aoticache_dispatcher_list(aoticache_dispatcher *dispatcher, bool dangling,
                                           aoticache_operator_name_fn callback, void *user, aoticache_error *ret_error)
{
    return list(dispatcher, dangling ? is_dangling : is_there, 0, callback, user, ret_error);
}

aoticache_status aoticache_dispatcher_list_registrations(aoticache_dispatcher *dispatcher, const char *key,
                                                         aoticache_operator_name_fn callback, void *user,
                                                         aoticache_error *ret_error)
{
    aoticache_dispatch_key parsed = 0;
    if (key == NULL || *key == '\0')
        return list(dispatcher, is_there, 0, callback, user, ret_error);
    aoticache_status status = aoticache_dispatch_key_parse(key, &parsed, ret_error);
    return status == AOTICACHE_OK ? list(dispatcher, has_registration, parsed, callback, user, ret_error) : status;
}

aoticache_status aoticache_dispatcher_list_dangling_dumps(aoticache_dispatcher *dispatcher,
                                                          aoticache_operator_name_fn callback, void *user,
                                                          aoticache_error *ret_error)
{
    cleanup_free aoticache_operator **found = NULL;
    size_t count = 0;
    aoticache_status status = collect(dispatcher, is_dangling, 0, &found, &count, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        cleanup_free char *text = NULL;
        status = aoticache_operator_dump(found[i], &text, ret_error);
        if (status == AOTICACHE_OK && !callback(user, text))
            break;
    }
    return status;
}
