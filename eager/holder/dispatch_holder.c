/*
 * eager/holder/dispatch_holder: see dispatch_holder.h. Owns the way from the dispatcher's kernel to the holder's call and back
 * to the kernel below.
 */
#include "eager/holder/dispatch_holder.h"
#include "base/cleanup.h"
#include "eager/holder/holder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one registration holds; ends with it. */
typedef struct held_kernel {
    aoticache_holder *holder;
    const aoticache_operator *op;
    aoticache_dispatch_key key;
} held_kernel;

static aoticache_status serve(void *user, const aoticache_operator *op, aoticache_key_set keys, aoticache_stack *stack,
                              aoticache_error *ret_error)
{
    const held_kernel *held = user;
    (void)op;
    return aoticache_holder_call(held->holder, keys, stack, ret_error);
}

static aoticache_status fall_back(void *user, uint64_t key_set, aoticache_stack *stack, aoticache_error *ret_error)
{
    const held_kernel *held = user;
    return aoticache_operator_call_previous(held->op, held->key, held, key_set, stack, ret_error);
}

static void release(void *user)
{
    held_kernel *held = user;
    aoticache_holder_unref(held->holder);
    free(held);
}

/* ---- what is asked for ---- */

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
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%.100s is not the key of a device that kernels are "
                               "compiled for: CPU, CUDA, XPU, MPS or PrivateUse1",
                               key);
}

/* The text of the schema, which may go with its definition as soon as it is looked at. *ret_text is the caller's. */
static aoticache_status find(const aoticache_oplib *oplib, const char *name, aoticache_operator **ret_operator,
                             char **ret_text, aoticache_error *ret_error)
{
    cleanup_free char *full = NULL;
    bool qualified = strstr(name, "::") != NULL;
    if (asprintf(&full, "%s%s%s", qualified ? "" : aoticache_oplib_namespace(oplib), qualified ? "" : "::", name) < 0) {
        full = NULL;
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "no memory for a name");
    }
    aoticache_status status = aoticache_dispatcher_find(aoticache_oplib_dispatcher(oplib), full, ret_operator,
                                                        ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_operator_schema_text(*ret_operator, ret_text, ret_error);
}

static aoticache_status make(aoticache_context *eager, const char *schema, const char *key, aoticache_device device,
                             bool dynamic, held_kernel *held, aoticache_error *ret_error)
{
    static const aoticache_dynamic always = AOTICACHE_DYNAMIC_ALWAYS;
    aoticache_holder_options options = AOTICACHE_HOLDER_OPTIONS_INIT;
    options.schema = schema;
    options.dispatch_key = key;
    options.device = device;
    options.fallback = fall_back;
    options.fallback_user = held;
    options.dynamic = dynamic ? &always : NULL;
    return aoticache_holder_create(eager, &options, &held->holder, ret_error);
}

static aoticache_status prepare(aoticache_oplib *oplib, aoticache_context *eager, const char *name, const char *key,
                                bool dynamic, held_kernel *held, aoticache_error *ret_error)
{
    cleanup_free char *schema = NULL;
    aoticache_operator *op = NULL;
    aoticache_device device = {.index = -1};
    aoticache_status status = device_of(key, &held->key, &device, ret_error);
    if (status == AOTICACHE_OK)
        status = find(oplib, name, &op, &schema, ret_error);
    held->op = op;
    return status == AOTICACHE_OK ? make(eager, schema, key, device, dynamic, held, ret_error) : status;
}

aoticache_status aoticache_oplib_impl_with_aoti_compile(aoticache_oplib *oplib, aoticache_context *eager,
                                                        const char *name, const char *key, bool dynamic,
                                                        aoticache_error *ret_error)
{
    if (oplib == NULL || eager == NULL || name == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "a holder needs a library, an eager and an "
                                   "operator's name");
    if (key == NULL || *key == '\0')
        key = aoticache_oplib_key_name(oplib);
    held_kernel *held = calloc(1, sizeof *held);
    if (held == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%.200s: no memory for a holder", name);
    aoticache_status status = prepare(oplib, eager, name, key, dynamic, held, ret_error);
    if (status == AOTICACHE_OK) {
        aoticache_boxed_kernel kernel = AOTICACHE_BOXED_KERNEL_INIT;
        kernel.call = serve;
        kernel.user = held;
        kernel.release = release;
        kernel.wants_previous = true;
        status = aoticache_oplib_impl(oplib, name, key, &kernel, ret_error);
    }
    if (status != AOTICACHE_OK)
        release(held);
    return status;
}
