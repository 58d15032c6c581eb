/*
 * eager/dispatch/oplib_kernels: registers kernels and fallbacks: for which names and keys a library may register them.
 */
#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/options.h"
#include "eager/dispatch/dispatch_internal.h"
#include "eager/dispatch/eager_face.h"
#include "eager/dispatch/questions.h"
#include "eager/dispatch/schema/eager_face.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

aoticache_status aoticache_oplib_check_namespace(const aoticache_oplib *oplib, const char *full_name,
                                                 aoticache_error *ret_error)
{
    const char *own = oplib->namespace_name, *colons = strstr(full_name, "::");
    size_t length = colons != NULL ? (size_t)(colons - full_name) : 0;
    if (colons == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%.200s: a library for any namespace only accepts fallbacks (%.300s)", full_name,
                                   oplib->debug);
    if (own != NULL && strlen(own) == length && memcmp(full_name, own, length) == 0)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%.200s: namespace %.*s in a library for %s (%.300s)",
                               full_name, (int)(length < 100 ? length : 100), full_name,
                               aoticache_oplib_namespace(oplib), oplib->debug);
}

/* Makes the full name of an operator; the caller frees *ret_full. */
static aoticache_status parse_operator_name(const aoticache_oplib *oplib, const char *name, char **ret_full,
                                            aoticache_error *ret_error)
{
    cleanup_free char *full = NULL;
    aoticache_schema *parsed = NULL;
    aoticache_status status = aoticache_schema_parse_name(name, &parsed, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const char *written = parsed->full_name;
    bool bare = oplib->namespace_name != NULL && strstr(written, "::") == NULL;
    if (asprintf(&full, "%s%s%s", bare ? oplib->namespace_name : "", bare ? "::" : "", written) < 0) {
        full = NULL;
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a name");
    }
    aoticache_schema_free(parsed);
    if (status == AOTICACHE_OK)
        status = aoticache_oplib_check_namespace(oplib, full, ret_error);
    if (status == AOTICACHE_OK)
        *ret_full = steal_ptr(&full);
    return status;
}

/* Checks a key given by its number: any key is allowed. Undefined means "no key" (-1), as its name does. */
static aoticache_status check_key(aoticache_dispatch_key key, aoticache_dispatch_key *ret_given,
                                  aoticache_error *ret_error)
{
    if (key < AOTICACHE_DISPATCH_KEY_Undefined || key >= AOTICACHE_DISPATCH_KEY_COUNT ||
        strcmp(aoticache_dispatch_key_name(key), "UNKNOWN_TENSOR_TYPE_ID") == 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%d is not the number of a key that a kernel can be registered for", (int)key);
    *ret_given = key == AOTICACHE_DISPATCH_KEY_Undefined ? -1 : key;
    return AOTICACHE_OK;
}

/* ---- kernels ---- */

static aoticache_status read_kernel(const aoticache_boxed_kernel *kernel, aoticache_boxed_kernel *ret_kernel,
                                    aoticache_error *ret_error)
{
    if (kernel == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "registering a kernel: kernel is NULL");
    aoticache_status status =
        AOTICACHE_OPTIONS_READ(aoticache_boxed_kernel, AOTICACHE_BOXED_KERNEL_INIT, kernel, ret_kernel, ret_error);
    if (status == AOTICACHE_OK && ret_kernel->call == NULL && ret_kernel->signature != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "a fallthrough must not have a signature, but has \"%.200s\"",
                                   ret_kernel->signature);
    return status;
}

aoticache_status aoticache_oplib_make_kernel(const aoticache_oplib *oplib, const aoticache_boxed_kernel *kernel,
                                             aoticache_dispatch_key key, aoticache_op_kernel **ret_kernel,
                                             aoticache_error *ret_error)
{
    aoticache_boxed_kernel read;
    aoticache_schema *signature = NULL;
    aoticache_status status = read_kernel(kernel, &read, ret_error);
    if (status == AOTICACHE_OK && read.signature != NULL)
        status = aoticache_op_signature_parse(read.signature, &signature, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_op_kernel_create(&read, oplib->debug, key, signature, ret_kernel, ret_error);
    if (status != AOTICACHE_OK)
        aoticache_schema_free(signature);
    return status;
}

aoticache_status aoticache_oplib_choose_key(const aoticache_oplib *oplib, const char *name,
                                            aoticache_dispatch_key given, aoticache_dispatch_key *ret_key,
                                            aoticache_error *ret_error)
{
    if (given >= 0 && oplib->key >= 0 && given != oplib->key)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%.200s: key %s in a library for %s (%.300s)", name,
                                   aoticache_dispatch_key_name(given), aoticache_dispatch_key_name(oplib->key),
                                   oplib->debug);
    *ret_key = given >= 0 ? given : oplib->key >= 0 ? oplib->key : AOTICACHE_DISPATCH_KEY_CompositeImplicitAutograd;
    return AOTICACHE_OK;
}

static aoticache_status add_kernel(aoticache_oplib *oplib, const char *name, aoticache_op_kernel *kernel,
                                   aoticache_op_notice *ret_notice, aoticache_error *ret_error)
{
    aoticache_operator *op;
    aoticache_status status = aoticache_oplib_reserve(oplib, 1, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_dispatcher_take_operator(oplib->dispatcher, name, &op, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_operator_note_override(op, kernel, ret_notice);
    status = aoticache_operator_add_kernel(op, kernel, ret_error);
    if (status == AOTICACHE_OK)
        aoticache_oplib_record(oplib, op, kernel);
    return status;
}

static aoticache_status impl(aoticache_oplib *oplib, const char *name, aoticache_dispatch_key given,
                             const aoticache_boxed_kernel *kernel, aoticache_error *ret_error)
{
    cleanup_free char *full = NULL;
    aoticache_op_kernel *made = NULL;
    aoticache_dispatch_key chosen = -1;
    aoticache_status status = parse_operator_name(oplib, name, &full, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_oplib_choose_key(oplib, name, given, &chosen, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_oplib_make_kernel(oplib, kernel, chosen, &made, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_op_notice notice = {.text = ""};
    aoticache_dispatcher_lock(oplib->dispatcher);
    status = add_kernel(oplib, full, made, &notice, ret_error);
    aoticache_dispatcher_unlock(oplib->dispatcher);
    if (status == AOTICACHE_OK)
        aoticache_op_notice_give(&notice);
    else
        aoticache_op_kernel_discard(made);
    aoticache_epoch_reclaim();
    return status;
}

aoticache_status aoticache_oplib_impl(aoticache_oplib *oplib, const char *name, const char *key,
                                      const aoticache_boxed_kernel *kernel, aoticache_error *ret_error)
{
    aoticache_dispatch_key given = -1;
    if (oplib == NULL || name == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, oplib, name);
    aoticache_status status = aoticache_oplib_parse_key(key, &given, ret_error);
    return status == AOTICACHE_OK ? impl(oplib, name, given, kernel, ret_error) : status;
}

aoticache_status aoticache_oplib_impl_for_key(aoticache_oplib *oplib, const char *name, aoticache_dispatch_key key,
                                              const aoticache_boxed_kernel *kernel, aoticache_error *ret_error)
{
    aoticache_dispatch_key given = -1;
    if (oplib == NULL || name == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, oplib, name);
    aoticache_status status = check_key(key, &given, ret_error);
    return status == AOTICACHE_OK ? impl(oplib, name, given, kernel, ret_error) : status;
}

/* Checks a fallback. given: -1: none. */
static aoticache_status check_fallback(const aoticache_oplib *oplib, aoticache_dispatch_key given,
                                       aoticache_dispatch_key *ret_key, aoticache_error *ret_error)
{
    if (oplib->kind != AOTICACHE_OPLIB_IMPL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "a fallback requires a library of kind IMPL, not of kind %s (%.300s)",
                                   aoticache_oplib_kind_names[oplib->kind], oplib->debug);
    given = given >= 0 ? given : oplib->key;
    if (given < 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "a fallback needs a key (%.300s)", oplib->debug);
    if (oplib->namespace_name != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "a fallback is for all namespaces: the namespace of its library must be \"_\", "
                                   "not %.200s (%.300s)",
                                   oplib->namespace_name, oplib->debug);
    *ret_key = given;
    return AOTICACHE_OK;
}

static aoticache_status fallback(aoticache_oplib *oplib, aoticache_dispatch_key given,
                                 const aoticache_boxed_kernel *kernel, aoticache_error *ret_error)
{
    aoticache_dispatch_key chosen = -1;
    aoticache_op_kernel *made = NULL;
    aoticache_status status = check_fallback(oplib, given, &chosen, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_oplib_make_kernel(oplib, kernel, chosen, &made, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_dispatcher_lock(oplib->dispatcher);
    status = aoticache_oplib_reserve(oplib, 1, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_dispatcher_add_fallback(oplib->dispatcher, made, ret_error);
    if (status == AOTICACHE_OK) {
        aoticache_oplib_record(oplib, NULL, made);
        made = NULL;
    }
    aoticache_dispatcher_unlock(oplib->dispatcher);
    if (made != NULL) { /* tables that calls are reading may have contained it briefly */
        made->release = NULL;
        aoticache_op_kernel_retire(oplib->dispatcher, made);
    }
    aoticache_epoch_reclaim();
    return status;
}

aoticache_status aoticache_oplib_fallback(aoticache_oplib *oplib, const char *key, const aoticache_boxed_kernel *kernel,
                                          aoticache_error *ret_error)
{
    aoticache_dispatch_key given = -1;
    if (oplib == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, oplib);
    aoticache_status status = aoticache_oplib_parse_key(key, &given, ret_error);
    return status == AOTICACHE_OK ? fallback(oplib, given, kernel, ret_error) : status;
}

aoticache_status aoticache_oplib_fallback_for_key(aoticache_oplib *oplib, aoticache_dispatch_key key,
                                                  const aoticache_boxed_kernel *kernel, aoticache_error *ret_error)
{
    aoticache_dispatch_key given = -1;
    if (oplib == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, oplib);
    aoticache_status status = check_key(key, &given, ret_error);
    return status == AOTICACHE_OK ? fallback(oplib, given, kernel, ret_error) : status;
}

/* Registers fallthroughs for the keys that calls of a new thread have, and for those that tensors with gradients add. */
aoticache_status aoticache_oplib_fall_through_usual(aoticache_oplib *oplib, aoticache_error *ret_error)
{
    static const aoticache_dispatch_key usual[] = {
        AOTICACHE_DISPATCH_KEY_BackendSelect, AOTICACHE_DISPATCH_KEY_ADInplaceOrView, AOTICACHE_DISPATCH_KEY_Autograd};
    const aoticache_boxed_kernel fallthrough = AOTICACHE_BOXED_KERNEL_INIT;
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; i < sizeof usual / sizeof usual[0] && status == AOTICACHE_OK; i++)
        status = aoticache_oplib_fallback_for_key(oplib, usual[i], &fallthrough, ret_error);
    return status;
}
