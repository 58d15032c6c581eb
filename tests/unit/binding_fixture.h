/*
 * What the tests of the binding share: a stand-in for PyTorch's dispatcher (kernels/torch_stand_in.c), compiled by the
 * test and loaded as a separate library; tensors come from the shim.
 */
#ifndef TESTS_UNIT_BINDING_FIXTURE_H
#define TESTS_UNIT_BINDING_FIXTURE_H

#include "eager/torch/torch_internal.h"
#include "loader/loader.h"
#include "holder_fixture.h"

#include <dlfcn.h>

typedef struct stand_in_library {
    char name[128], key[32];
    aoticache_stable_fn fn;
} stand_in_library;

static void *stand_in;
static char stand_in_path[PATH_MAX];
static aoticache_binding *binding;
static aoticache_binding_operator *op;
static const aoticache_torch *torch;
static atomic_int fallback_calls;
static const char *fallback_fails; /* the message that it fails with */
static void (*fallback_meanwhile)(void);

#define STAND_IN(type, name) (*(type *)dlsym(stand_in, #name))
#define STAND_IN_COUNT(name) STAND_IN(int, stand_in_##name)

static uint64_t stand_in_list(const uint64_t *items, size_t count)
{
    uint64_t (*make)(const uint64_t *, size_t);
    *(void **)&make = dlsym(stand_in, "stand_in_list");
    return make(items, count);
}

static uint64_t stand_in_box(uint64_t value)
{
    uint64_t (*make)(uint64_t);
    *(void **)&make = dlsym(stand_in, "stand_in_box");
    return make(value);
}

static uint64_t stand_in_string(const char *text)
{
    uint64_t (*make)(const char *);
    *(void **)&make = dlsym(stand_in, "stand_in_string");
    return make(text);
}

/* Calls a function. Returns the thrown message; NULL: nothing was thrown. */
static const char *stand_in_call(aoticache_stable_fn fn, uint64_t *values, uint64_t inputs, uint64_t outputs)
{
    const char *(*invoke)(aoticache_stable_fn, uint64_t *, uint64_t, uint64_t);
    *(void **)&invoke = dlsym(stand_in, "stand_in_call");
    return invoke(fn, values, inputs, outputs);
}

static void load_stand_in(void)
{
    char command[PATH_MAX + 256];
    snprintf(stand_in_path, sizeof stand_in_path, "%s", in_directory("stand_in.so"));
    snprintf(
        command, sizeof command,
        "cc -std=gnu11 -D_GNU_SOURCE -O1 -I. -shared -fPIC -fvisibility=hidden tests/unit/kernels/torch_stand_in.c -o %s",
        stand_in_path);
    cr_assert_eq(system(command), 0, "%s", command);
    stand_in = dlopen(stand_in_path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(stand_in, "%s", dlerror());
    cr_assert_eq(aoticache_torch_get(&torch, &error), AOTICACHE_OK, "%s", error.message);
}

/* Makes a new handle of a tensor, as PyTorch passes it to a kernel. */
static uint64_t handle_of(const test_tensor *tensor)
{
    AtenTensorHandle handle;
    cr_assert_eq(torch->aoti_torch_new_tensor_handle(tensor->view.handle, &handle), 0);
    return (uint64_t)(uintptr_t)handle;
}

static void delete_handle(uint64_t handle)
{
    torch->aoti_torch_delete_tensor_object((AtenTensorHandle)(uintptr_t)handle);
}

/* The fallback of an operator whose first argument is its only tensor and whose others are numbers: returns 77. */
static int number_fallback(void *user, uint64_t *values, uint64_t num_inputs, uint64_t num_outputs, char *message,
                           size_t message_size)
{
    (void)user, (void)num_inputs, (void)num_outputs;
    atomic_fetch_add(&fallback_calls, 1);
    if (fallback_meanwhile != NULL)
        fallback_meanwhile();
    delete_handle(values[0]);
    values[0] = 77;
    if (fallback_fails != NULL)
        snprintf(message, message_size, "%s", fallback_fails);
    return fallback_fails != NULL;
}

static aoticache_binding_operator_options operator_options(const char *schema)
{
    aoticache_binding_operator_options options = AOTICACHE_BINDING_OPERATOR_OPTIONS_INIT;
    options.schema = schema;
    options.dispatch_key = "CPU";
    options.device = AOTICACHE_DEVICE_CPU;
    options.fallback = number_fallback;
    return options;
}

static aoticache_status try_enable(const char *schema)
{
    aoticache_binding_operator_options options = operator_options(schema);
    error.message[0] = '\0';
    return aoticache_binding_enable(binding, &options, &op, &error);
}

static void begin_binding_with(const char *flags, const aoticache_context_options *changes, bool with_bridge)
{
    aoticache_binding_options options = AOTICACHE_BINDING_OPTIONS_INIT;
    begin_with(flags, false);
    aoticache_context_options all = eager_options();
    if (changes != NULL) {
        all.miss = changes->miss;
        all.fail_calls = changes->fail_calls;
    }
    make_eager(&all);
    load_stand_in();
    options.context = eager;
    options.bridge = with_bridge ? stand_in_path : NULL;
    options.torch_library = stand_in_path;
    cr_assert_eq(aoticache_binding_create(&options, &binding, &error), AOTICACHE_OK, "%s", error.message);
    atomic_store(&fallback_calls, 0);
    fallback_fails = NULL;
    fallback_meanwhile = NULL;
}

/* Ends the test; checks that nothing from a call is left. */
static void end_binding(void)
{
    aoticache_binding_free(binding);
    cr_expect_eq(STAND_IN_COUNT(libraries), 0);
    cr_expect_eq(STAND_IN_COUNT(lists), 0);
    cr_expect_eq(STAND_IN_COUNT(strings), 0);
    cr_expect_eq(STAND_IN_COUNT(boxes), 0);
    cr_expect_eq(STAND_IN_COUNT(registrations), 0);
    holder = NULL;
    end_all();
}

static aoticache_binding_counts binding_counts(void)
{
    aoticache_binding_counts counts;
    aoticache_binding_get_counts(op, &counts);
    return counts;
}

static uint64_t bits_of(double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

#endif
