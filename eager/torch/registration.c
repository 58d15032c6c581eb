/*
 * eager/torch/registration: the objects that the bridge has for an operator: one registration for each operator and dispatch
 * key, created once and never freed. Also the fork handlers, because all enabled operators are found from here.
 */
#include "base/cleanup.h"
#include "eager/dispatch/schema/schema.h"
#include "eager/torch/torch_internal.h"

#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static aoticache_registration *registrations;
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
    for (aoticache_registration *registration = registrations; registration != NULL;
         registration = registration->next) {
        aoticache_binding_operator *op = atomic_load(&registration->op);
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

static void registration_free(aoticache_registration *registration)
{
    free(registration->name);
    free(registration->overload);
    free(registration->dispatch_key);
    free(registration);
}

static aoticache_registration *find_registration(const char *name, const char *overload, const char *dispatch_key)
{
    for (aoticache_registration *registration = registrations; registration != NULL; registration = registration->next)
        if (strcmp(registration->name, name) == 0 && strcmp(registration->overload, overload) == 0 &&
            strcmp(registration->dispatch_key, dispatch_key) == 0)
            return registration;
    return NULL;
}

static aoticache_registration *make_registration(const char *name, const char *overload, const char *dispatch_key)
{
    aoticache_registration *registration = calloc(1, sizeof *registration);
    if (registration == NULL)
        return NULL;
    registration->name = strdup(name);
    registration->overload = strdup(overload);
    registration->dispatch_key = strdup(dispatch_key);
    if (registration->name == NULL || registration->overload == NULL || registration->dispatch_key == NULL) {
        registration_free(registration);
        return NULL;
    }
    registration->next = registrations;
    registrations = registration;
    return registration;
}

static aoticache_status take_registration(const aoticache_schema *schema, const char *dispatch_key,
                                          aoticache_registration **ret_registration, aoticache_error *ret_error)
{
    const char *name = schema->name, *overload = schema->overload;
    const char *full = schema->full_name;
    aoticache_registration *registration = find_registration(name, overload, dispatch_key);
    if (registration != NULL && registration->taken)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%.200s is already enabled for %.60s; disable it first", full, dispatch_key);
    if (registration == NULL)
        registration = make_registration(name, overload, dispatch_key);
    if (registration == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%.200s: out of memory to enable it", full);
    registration->taken = true;
    *ret_registration = registration;
    return AOTICACHE_OK;
}

aoticache_status aoticache_registration_acquire(const aoticache_schema *schema, const char *dispatch_key,
                                                aoticache_registration **ret_registration, aoticache_error *ret_error)
{
    pthread_once(&handlers_once, add_handlers);
    pthread_mutex_lock(&lock);
    aoticache_status status = take_registration(schema, dispatch_key, ret_registration, ret_error);
    pthread_mutex_unlock(&lock);
    return status;
}

void aoticache_registration_release(aoticache_registration *registration)
{
    pthread_mutex_lock(&lock);
    registration->taken = false;
    pthread_mutex_unlock(&lock);
}
