/*
 * eager/dispatch/oplib: libraries of operators: creation and end, the namespaces that they own, and removing their
 * registrations.
 */
#include "base/arguments.h"
#include "eager/dispatch/dispatch_internal.h"
#include "eager/dispatch/eager_face.h"
#include "base/array.h"
#include "eager/dispatch/questions.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const aoticache_oplib_kind_names[3] = {"DEF", "IMPL", "FRAGMENT"};

aoticache_status aoticache_oplib_reserve(aoticache_oplib *oplib, size_t more, aoticache_error *ret_error)
{
    if (AOTICACHE_ARRAY_RESERVE(oplib->registrations, oplib->capacity, oplib->count + more))
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for registrations of %.200s",
                               oplib->debug);
}

void aoticache_oplib_record(aoticache_oplib *oplib, aoticache_operator *op, aoticache_op_kernel *kernel)
{
    oplib->registrations[oplib->count++] = (aoticache_op_registration){op, kernel};
}

/* ---- the namespace's one DEF ---- */

static aoticache_status claim_namespace(aoticache_oplib *oplib, aoticache_error *ret_error)
{
    aoticache_dispatcher *dispatcher = oplib->dispatcher;
    for (const aoticache_op_namespace *one = dispatcher->namespaces; one != NULL; one = one->next)
        if (strcmp(one->name, oplib->namespace_name) == 0)
            return aoticache_error_set(ret_error, AOTICACHE_EXISTS,
                                       "namespace %.100s already has a library of kind DEF: second library %.300s, "
                                       "first %.300s; further libraries must be of kind FRAGMENT",
                                       oplib->namespace_name, oplib->debug, one->debug);
    size_t size = strlen(oplib->namespace_name) + 1;
    aoticache_op_namespace *made = malloc(sizeof *made + size);
    if (made == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a namespace");
    memcpy(made->name, oplib->namespace_name, size);
    made->debug = oplib->debug;
    made->next = dispatcher->namespaces;
    dispatcher->namespaces = made;
    oplib->holds_namespace = true;
    return AOTICACHE_OK;
}

static void release_namespace(aoticache_oplib *oplib)
{
    aoticache_op_namespace **at = &oplib->dispatcher->namespaces;
    if (!oplib->holds_namespace)
        return;
    while (strcmp((*at)->name, oplib->namespace_name) != 0)
        at = &(*at)->next;
    aoticache_op_namespace *gone = *at;
    *at = gone->next;
    free(gone);
    oplib->holds_namespace = false;
}

/* ---- creation and end ---- */

static bool is_nonempty(const char *text)
{
    return text != NULL && *text != '\0';
}

aoticache_status aoticache_oplib_parse_key(const char *text, aoticache_dispatch_key *ret_key,
                                           aoticache_error *ret_error)
{
    aoticache_dispatch_key key = -1;
    if (is_nonempty(text)) {
        aoticache_status status = aoticache_dispatch_key_parse(text, &key, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    *ret_key = key == AOTICACHE_DISPATCH_KEY_Undefined ? -1 : key;
    return AOTICACHE_OK;
}

static aoticache_status check_new(aoticache_oplib_kind kind, const char *namespace_name, aoticache_dispatch_key key,
                                  const char *file, uint32_t line, aoticache_error *ret_error)
{
    if (kind != AOTICACHE_OPLIB_DEF && kind != AOTICACHE_OPLIB_IMPL && kind != AOTICACHE_OPLIB_FRAGMENT)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s:%u: unknown kind of library: %d", file, line,
                                   (int)kind);
    if (!is_nonempty(namespace_name))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s:%u: a library needs a namespace", file, line);
    if (kind == AOTICACHE_OPLIB_IMPL)
        return AOTICACHE_OK;
    if (strcmp(namespace_name, "_") == 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s:%u: a library of kind %s needs a namespace; \"_\" is only for IMPL", file, line,
                                   aoticache_oplib_kind_names[kind]);
    if (key >= 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s:%u: a library of kind %s must not have a key, but has %s", file, line,
                                   aoticache_oplib_kind_names[kind], aoticache_dispatch_key_name(key));
    return AOTICACHE_OK;
}

static void free_oplib(aoticache_oplib *oplib)
{
    free(oplib->registrations);
    free(oplib->namespace_name);
    free(oplib->debug);
    free(oplib);
}

static aoticache_oplib *allocate(aoticache_dispatcher *dispatcher, aoticache_oplib_kind kind,
                                 const char *namespace_name, aoticache_dispatch_key key, const char *file,
                                 uint32_t line)
{
    bool any = strcmp(namespace_name, "_") == 0;
    aoticache_oplib *oplib = calloc(1, sizeof *oplib);
    if (oplib == NULL)
        return NULL;
    oplib->dispatcher = dispatcher;
    oplib->kind = kind;
    oplib->key = key;
    oplib->namespace_name = any ? NULL : strdup(namespace_name);
    if (asprintf(&oplib->debug, "registered at %s:%u", file, line) < 0)
        oplib->debug = NULL;
    if (oplib->debug != NULL && (any || oplib->namespace_name != NULL))
        return oplib;
    free_oplib(oplib);
    return NULL;
}

aoticache_status aoticache_oplib_create(aoticache_dispatcher *dispatcher, aoticache_oplib_kind kind,
                                        const char *namespace_name, const char *key, const char *file, uint32_t line,
                                        aoticache_oplib **ret_oplib, aoticache_error *ret_error)
{
    aoticache_dispatch_key parsed = -1;
    if (dispatcher == NULL || ret_oplib == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, dispatcher, ret_oplib);
    if (file == NULL)
        file = "(unknown)";
    aoticache_status status = aoticache_oplib_parse_key(key, &parsed, ret_error);
    if (status == AOTICACHE_OK)
        status = check_new(kind, namespace_name, parsed, file, line, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_oplib *oplib = allocate(dispatcher, kind, namespace_name, parsed, file, line);
    if (oplib == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s:%u: out of memory for a library", file, line);
    aoticache_dispatcher_lock(dispatcher);
    if (kind == AOTICACHE_OPLIB_DEF)
        status = claim_namespace(oplib, ret_error);
    aoticache_dispatcher_unlock(dispatcher);
    if (status != AOTICACHE_OK) {
        free_oplib(oplib);
        return status;
    }
    *ret_oplib = oplib;
    return AOTICACHE_OK;
}

static void remove_registration(aoticache_oplib *oplib, const aoticache_op_registration *one)
{
    if (one->kernel == NULL) {
        aoticache_operator_undefine(one->op);
    } else if (one->op != NULL) {
        aoticache_operator_remove_kernel(one->op, one->kernel);
    } else {
        aoticache_dispatcher_remove_fallback(oplib->dispatcher, one->kernel);
        aoticache_op_kernel_retire(oplib->dispatcher, one->kernel);
    }
}

void aoticache_oplib_free(aoticache_oplib *oplib)
{
    if (oplib == NULL)
        return;
    int saved = errno;
    aoticache_dispatcher_lock(oplib->dispatcher);
    while (oplib->count > 0)
        remove_registration(oplib, &oplib->registrations[--oplib->count]);
    release_namespace(oplib);
    aoticache_dispatcher_unlock(oplib->dispatcher);
    aoticache_epoch_reclaim();
    free_oplib(oplib);
    errno = saved;
}

aoticache_dispatcher *aoticache_oplib_dispatcher(const aoticache_oplib *oplib)
{
    return oplib->dispatcher;
}

const char *aoticache_oplib_namespace(const aoticache_oplib *oplib)
{
    return oplib->namespace_name != NULL ? oplib->namespace_name : "_";
}

const char *aoticache_oplib_key_name(const aoticache_oplib *oplib)
{
    return oplib->key >= 0 ? aoticache_dispatch_key_name(oplib->key) : "";
}
