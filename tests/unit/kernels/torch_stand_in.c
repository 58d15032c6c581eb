/*
 * A stand-in for PyTorch's dispatcher, for the tests of the binding (tests/unit/binding_fixture.h): a separate library
 * with the functions of the stable C ABI that the binding uses (not those for tensors), and the function of the bridge.
 * It counts live objects. An exception is a longjmp out of the call, since nothing may be done after one is thrown.
 */
#include "eager/torch/bridge.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef void (*boxed_fn)(uint64_t *stack, uint64_t num_inputs, uint64_t num_outputs);

typedef struct library {
    char name[128], key[32];
    boxed_fn fn;
} library;

typedef struct list {
    size_t count;
    uint64_t items[16];
} list;

EXPORT library *stand_in_last;
EXPORT int stand_in_libraries, stand_in_lists, stand_in_strings, stand_in_boxes, stand_in_again, stand_in_fail_impl;

static __thread jmp_buf *target;
static __thread char thrown[1024];

/* ---- libraries ---- */

EXPORT int aoti_torch_library_init_impl(const char *ns, const char *key, const char *file, uint32_t line, library **ret)
{
    (void)file, (void)line;
    *ret = calloc(1, sizeof **ret);
    snprintf((*ret)->name, 64, "%s::", ns);
    snprintf((*ret)->key, 32, "%s", key);
    stand_in_libraries++;
    return 0;
}

EXPORT int torch_library_impl(library *self, const char *name, boxed_fn fn, uint64_t version)
{
    (void)version;
    if (stand_in_fail_impl)
        return 1;
    strncat(self->name, name, 60);
    self->fn = fn;
    stand_in_last = self;
    return 0;
}

EXPORT int aoti_torch_delete_library_object(library *self)
{
    if (stand_in_last == self)
        stand_in_last = NULL;
    free(self);
    stand_in_libraries--;
    return 0;
}

EXPORT int torch_call_dispatcher(const char *name, const char *overload, uint64_t *stack, uint64_t version)
{
    (void)name, (void)overload, (void)version;
    stand_in_again++;
    stack[0] = 4242;
    return 0;
}

/* ---- values ---- */

EXPORT int torch_list_size(list *self, size_t *ret_size)
{
    *ret_size = self->count;
    return 0;
}

/* Does the same as in PyTorch: makes no new handle for a tensor, and freeing the list does not free its items. */
EXPORT int torch_list_get_item(list *self, size_t index, uint64_t *ret_item)
{
    if (index >= self->count)
        return 1;
    *ret_item = self->items[index];
    return 0;
}

EXPORT int torch_delete_list(list *self)
{
    free(self);
    stand_in_lists--;
    return 0;
}

EXPORT uint64_t stand_in_list(const uint64_t *items, size_t count)
{
    list *self = calloc(1, sizeof *self);
    self->count = count;
    memcpy(self->items, items, count * sizeof *items);
    stand_in_lists++;
    return (uint64_t)self;
}

EXPORT int torch_delete_string(char *self)
{
    free(self);
    stand_in_strings--;
    return 0;
}

EXPORT int torch_string_length(char *self, size_t *ret_length)
{
    *ret_length = strlen(self);
    return 0;
}

EXPORT int torch_string_c_str(char *self, const char **ret_text)
{
    *ret_text = self;
    return 0;
}

EXPORT uint64_t stand_in_string(const char *text)
{
    stand_in_strings++;
    return (uint64_t)strdup(text);
}

EXPORT int torch_delete_stable_ivalue(uint64_t *box)
{
    free(box);
    stand_in_boxes--;
    return 0;
}

EXPORT uint64_t stand_in_box(uint64_t value)
{
    uint64_t *box = malloc(sizeof *box);
    *box = value;
    stand_in_boxes++;
    return (uint64_t)box;
}

/* ---- calls and exceptions ---- */

EXPORT void aoti_torch_check(bool condition, const char *function, const char *file, uint32_t line, const char *message)
{
    (void)function, (void)file, (void)line;
    if (condition)
        return;
    snprintf(thrown, sizeof thrown, "%s", message);
    longjmp(*target, 1);
}

EXPORT const char *stand_in_call(boxed_fn fn, uint64_t *stack, uint64_t num_inputs, uint64_t num_outputs)
{
    jmp_buf here, *outer = target;
    const char *volatile result = NULL;
    target = &here;
    if (setjmp(here) == 0)
        fn(stack, num_inputs, num_outputs);
    else
        result = thrown;
    target = outer;
    return result;
}

/* ---- the bridge ---- */

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

/* at::globalContext() and the functions of it that the binding calls, by the names of their symbols. */
EXPORT const void *_ZN2at13globalContextEv(void)
{
    return &stand_in_settings;
}

EXPORT bool _ZNK2at7Context23deterministicAlgorithmsEv(const void *context)
{
    return (*(const int *)context & AOTICACHE_BRIDGE_DETERMINISTIC) != 0;
}

EXPORT int8_t _ZN3c1031get_default_dtype_as_scalartypeEv(void)
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
    ret_bridge->settings.context = _ZN2at13globalContextEv();
    ret_bridge->settings.is_deterministic = _ZNK2at7Context23deterministicAlgorithmsEv;
    ret_bridge->settings.default_dtype = _ZN3c1031get_default_dtype_as_scalartypeEv;
    ret_bridge->get_data_ptr = get_data_ptr;
    ret_bridge->empty_strided = empty_strided;
    return AOTICACHE_OK;
}
