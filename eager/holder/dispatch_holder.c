/*
 * eager/holder/dispatch_holder: a holder as a kernel of the dispatcher: forwards calls from the dispatcher's kernel to the
 * holder, and to the kernel below if the holder falls back.
 */
#include "base/arguments.h"
#include "eager/holder/dispatch_holder.h"
#include "base/cleanup.h"
#include "eager/dispatch/eager_face.h"
#include "eager/holder/holder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of one registration. The dispatcher keeps it, and releases it with the registration. */
typedef struct registered_holder {
    aoticache_holder *holder;
    const aoticache_operator *op;
    aoticache_dispatch_key key;
} registered_holder;

static aoticache_status call_holder(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                    aoticache_stack *stack, aoticache_error *ret_error)
{
    const registered_holder *registered = user;
    (void)op;
    return aoticache_holder_call(registered->holder, keys, stack, ret_error);
}

static aoticache_status call_kernel_below(void *user, uint64_t key_set, aoticache_stack *stack,
                                          aoticache_error *ret_error)
{
    const registered_holder *registered = user;
    return aoticache_operator_call_previous(registered->op, registered->key, registered, key_set, stack, ret_error);
}

static void release_registered(void *user)
{
    registered_holder *registered = user;
    aoticache_holder_unref(registered->holder);
    free(registered);
}

/* ---- checking arguments ---- */

static aoticache_status device_of(const char *key, aoticache_dispatch_key *ret_key, aoticache_device *ret_device,
                                  aoticache_error *ret_error)
{
    static const struct {
        aoticache_dispatch_key key;
        int32_t device;
    } devices[] = {
        {AOTICACHE_DISPATCH_KEY_CPU, AOTICACHE_DEVICE_TYPE_CPU},
        {AOTICACHE_DISPATCH_KEY_CUDA, AOTICACHE_DEVICE_TYPE_CUDA},
        {AOTICACHE_DISPATCH_KEY_XPU, AOTICACHE_DEVICE_TYPE_XPU},
        {AOTICACHE_DISPATCH_KEY_MPS, AOTICACHE_DEVICE_TYPE_MPS},
        {AOTICACHE_DISPATCH_KEY_PrivateUse1, AOTICACHE_DEVICE_TYPE_PRIVATEUSE1},
    };
    aoticache_status status = aoticache_dispatch_key_parse(key, ret_key, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        if (devices[i].key == *ret_key) {
            *ret_device = (aoticache_device){.type = devices[i].device, .index = -1};
            return AOTICACHE_OK;
        }
    }
    return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                               "%.100s is not the key of a device that kernels are "
                               "compiled for: CPU, CUDA, XPU, MPS or PrivateUse1",
                               key);
}

/* Copies the text of the schema, which may be freed with its definition at any moment. The caller frees *ret_text. */
static aoticache_status find_schema(const aoticache_oplib *oplib, const char *name, aoticache_operator **ret_operator,
                                    char **ret_text, aoticache_error *ret_error)
{
    cleanup_free char *full = NULL;
    bool qualified = strstr(name, "::") != NULL;
    if (asprintf(&full, "%s%s%s", qualified ? "" : aoticache_oplib_namespace(oplib), qualified ? "" : "::", name) < 0) {
        full = NULL;
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a name");
    }
    aoticache_status status =
        aoticache_dispatcher_find(aoticache_oplib_dispatcher(oplib), full, ret_operator, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_operator_schema_text(*ret_operator, ret_text, ret_error);
}

static aoticache_status create_holder(aoticache_context *context, const char *schema, const char *key,
                                      aoticache_device device, bool dynamic, registered_holder *registered,
                                      aoticache_error *ret_error)
{
    static const aoticache_dynamic always = AOTICACHE_DYNAMIC_ALWAYS;
    aoticache_holder_options options = AOTICACHE_HOLDER_OPTIONS_INIT;
    options.schema = schema;
    options.dispatch_key = key;
    options.device = device;
    options.fallback = call_kernel_below;
    options.fallback_user = registered;
    options.dynamic = dynamic ? &always : NULL;
    return aoticache_holder_create(context, &options, &registered->holder, ret_error);
}

static aoticache_status prepare_kernel(aoticache_oplib *oplib, aoticache_context *context, const char *name,
                                       const char *key, bool dynamic, registered_holder *registered,
                                       aoticache_error *ret_error)
{
    cleanup_free char *schema = NULL;
    aoticache_operator *op = NULL;
    aoticache_device device = {.index = -1};
    aoticache_status status = device_of(key, &registered->key, &device, ret_error);
    if (status == AOTICACHE_OK)
        status = find_schema(oplib, name, &op, &schema, ret_error);
    registered->op = op;
    return status == AOTICACHE_OK ? create_holder(context, schema, key, device, dynamic, registered, ret_error)
                                  : status;
}

aoticache_status aoticache_oplib_impl_with_aoti_compile(aoticache_oplib *oplib, aoticache_context *context,
                                                        const char *name, const char *key, bool dynamic,
                                                        aoticache_error *ret_error)
{
    if (oplib == NULL || context == NULL || name == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, oplib, context, name);
    if (key == NULL || *key == '\0')
        key = aoticache_oplib_key_name(oplib);
    registered_holder *registered = calloc(1, sizeof *registered);
    if (registered == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%.200s: out of memory for a holder", name);
    aoticache_status status = prepare_kernel(oplib, context, name, key, dynamic, registered, ret_error);
    if (status == AOTICACHE_OK) {
        aoticache_boxed_kernel kernel = AOTICACHE_BOXED_KERNEL_INIT;
        kernel.call = call_holder;
        kernel.user = registered;
        kernel.release = release_registered;
        kernel.wants_previous = true;
        status = aoticache_oplib_impl(oplib, name, key, &kernel, ret_error);
    }
    if (status != AOTICACHE_OK)
        release_registered(registered);
    return status;
}
