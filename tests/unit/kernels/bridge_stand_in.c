/*
 * A stand-in for the bridge, for the tests of the binding (tests/unit/eager/torch/test_binding_bridge.c): a separate
 * library with the function that a bridge exports. It counts registrations.
 */
#include "eager/torch/bridge.h"

#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT const aoticache_bridge_host *stand_in_host;
EXPORT void *stand_in_op;
EXPORT uint32_t stand_in_abi = AOTICACHE_BRIDGE_ABI;
EXPORT char stand_in_enabled[256];
EXPORT int stand_in_registrations, stand_in_enable_status, stand_in_open_status;

static aoticache_status enable(const char *name, const char *overload, const char *schema, const char *key, void *op,
                               void **ret_registration, char *message, size_t size)
{
    if (stand_in_enable_status != 0) {
        snprintf(message, size, "the bridge says no");
        return stand_in_enable_status;
    }
    snprintf(stand_in_enabled, sizeof stand_in_enabled, "%s|%s|%s|%s", name, overload, key, schema);
    stand_in_op = op;
    stand_in_registrations++;
    *ret_registration = &stand_in_registrations;
    return AOTICACHE_OK;
}

static void disable(void *registration)
{
    (void)registration;
    stand_in_registrations--;
}

EXPORT int stand_in_call_mode;
EXPORT uint64_t stand_in_call_mode_calls;
EXPORT uint32_t stand_in_threads = 1;

static void set_call_mode(void *registration, aoticache_call_mode how, uint64_t calls)
{
    (void)registration;
    stand_in_call_mode = how;
    stand_in_call_mode_calls = calls;
}

static uint64_t bypassed_now(void *registration)
{
    (void)registration;
    return 0;
}

EXPORT int stand_in_settings; /* bits of enum aoticache_bridge_setting */

static bool is_deterministic(const void *context)
{
    return (*(const int *)context & AOTICACHE_BRIDGE_DETERMINISTIC) != 0;
}

static int8_t default_dtype(void)
{
    return (stand_in_settings & AOTICACHE_BRIDGE_DEFAULT_DTYPE) != 0 ? AOTICACHE_DTYPE_FLOAT64
                                                                     : AOTICACHE_DTYPE_FLOAT32;
}

static uint32_t num_threads(void)
{
    return stand_in_threads;
}

/* Functions for kernels, which forward to the shim. */
static int32_t get_data_ptr(struct AtenTensorOpaque *tensor, void **ret_data)
{
    (void)tensor;
    (void)ret_data;
    return 1;
}

static int32_t empty_strided(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                             struct AtenTensorOpaque **ret_tensor, void **ret_data)
{
    (void)ndim;
    (void)sizes;
    (void)strides;
    (void)dtype;
    (void)ret_tensor;
    (void)ret_data;
    return 1;
}

EXPORT aoticache_status aoticache_bridge_open(const aoticache_bridge_host *host, aoticache_bridge *ret_bridge,
                                              char *message, size_t size)
{
    if (stand_in_open_status != 0) {
        snprintf(message, size, "made for 2.10.0, this is 2.13.0");
        return stand_in_open_status;
    }
    stand_in_host = host;
    ret_bridge->abi = stand_in_abi;
    ret_bridge->torch_version = "2.13.0";
    ret_bridge->enable = enable;
    ret_bridge->disable = disable;
    ret_bridge->set_call_mode = set_call_mode;
    ret_bridge->bypassed_now = bypassed_now;
    ret_bridge->num_threads = num_threads;
    ret_bridge->settings.context = &stand_in_settings;
    ret_bridge->settings.is_deterministic = is_deterministic;
    ret_bridge->settings.default_dtype = default_dtype;
    ret_bridge->get_data_ptr = get_data_ptr;
    ret_bridge->empty_strided = empty_strided;
    return AOTICACHE_OK;
}
