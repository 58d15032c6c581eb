/*
 * What the tests of the holder share: a cache, a hook that is fast (patched_kernel.h), a fallback that is recognised by
 * its results, and calls.
 */
#ifndef TESTS_UNIT_HOLDER_FIXTURE_H
#define TESTS_UNIT_HOLDER_FIXTURE_H

#include "eager/dispatch/schema/schema.h"
#include "loader/tensor.h"
#include "eager_fixture.h"
#include "patched_kernel.h"

#pragma GCC diagnostic ignored "-Wunused-function"

#define SCALE "test::scale(Tensor self, float factor=2.0, *, int offset=0) -> Tensor"
#define FALLBACK_ADDS 5000 /* the fallback returns x + 5000 */
#define PLACES 16

static aoticache_cache *cache;
static patched_hook hook;
static aoticache_context *eager;
static aoticache_holder *holder;
static test_tensor *x; /* 2 by 3 */
static atomic_int fallbacks, warnings;
static aoticache_error error;
static float *fallback_data[256];
static size_t fallback_data_count;

static void holder_log(void *user, aoticache_log_level level, const char *line)
{
    (void)user, (void)line;
    atomic_fetch_add(&warnings, level <= AOTICACHE_LOG_WARNING);
}

static aoticache_cache *open_cache(void)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_cache *opened = NULL;
    options.directory = in_directory("cache");
    options.failure_ttl_seconds = 1;
    cr_assert_eq(aoticache_cache_open(&options, &opened, &error), AOTICACHE_OK, "%s", error.message);
    return opened;
}

static aoticache_context_options eager_options(void)
{
    aoticache_context_options options = AOTICACHE_CONTEXT_OPTIONS_INIT;
    options.cache = cache;
    options.hook = hook.hook;
    options.logger.log = holder_log;
    return options;
}

static aoticache_status fall_back(void *user, uint64_t key_set, aoticache_stack *stack, aoticache_error *ret_error)
{
    size_t arguments = *(size_t *)user;
    (void)key_set, (void)ret_error;
    atomic_fetch_add(&fallbacks, 1);
    const aoticache_value *first = &stack->values[stack->count - arguments];
    const aoticache_tensor_view *view = first->kind == AOTICACHE_VALUE_TENSOR        ? first->as.tensor
                                        : first->kind == AOTICACHE_VALUE_TENSOR_LIST ? first->as.tensors[0]
                                                                                     : &x->view;
    AtenTensorHandle output;
    int64_t numel = 1;
    for (int64_t i = 0; i < view->ndim; i++)
        numel *= view->sizes[i];
    float *data = malloc((size_t)numel * sizeof *data + 1); /* freed with the test */
    if (fallback_data_count < sizeof fallback_data / sizeof *fallback_data)
        fallback_data[fallback_data_count++] = data;
    for (int64_t k = 0; k < numel; k++)
        data[k] = ((const float *)view->data)[k] + FALLBACK_ADDS;
    cr_assert_eq(
        aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, view->ndim, view->sizes, NULL, &output, NULL),
        AOTICACHE_OK);
    stack->count -= arguments;
    stack->values[stack->count++] = (aoticache_value){.kind = AOTICACHE_VALUE_OUTPUT, .as.output = output};
    return AOTICACHE_OK;
}

static aoticache_holder_options holder_options(const char *schema)
{
    static size_t arguments; /* number of arguments of the last call: enough for a test with one holder */
    aoticache_holder_options options = AOTICACHE_HOLDER_OPTIONS_INIT;
    aoticache_schema *parsed;
    if (aoticache_schema_parse(schema, &parsed, NULL) == AOTICACHE_OK) {
        arguments = parsed->argument_count;
        aoticache_schema_free(parsed);
    }
    options.schema = schema;
    options.device = AOTICACHE_DEVICE_CPU;
    options.fallback = fall_back;
    options.fallback_user = &arguments;
    return options;
}

static aoticache_holder *make_holder(const char *schema)
{
    aoticache_holder_options options = holder_options(schema);
    aoticache_holder *made = NULL;
    cr_assert_eq(aoticache_holder_create(eager, &options, &made, &error), AOTICACHE_OK, "%s", error.message);
    return made;
}

static void make_eager(const aoticache_context_options *options)
{
    cr_assert_eq(aoticache_context_create(options, &eager, &error), AOTICACHE_OK, "%s", error.message);
}

/* Begins with a hook and its library; flags for the compiler. */
static void begin_with(const char *flags, bool dynamic)
{
    if (!patched_open(test_directory, flags, dynamic, &hook))
        cr_skip_test("there is no C compiler");
    cache = open_cache();
    x = tensor_create(2, SIZES(2, 3));
    atomic_store(&fallbacks, 0);
    atomic_store(&warnings, 0);
}

/* Begins with one operator with the default policy: misses wait. */
static void begin_scale(void)
{
    begin_with("", false);
    aoticache_context_options options = eager_options();
    make_eager(&options);
    holder = make_holder(SCALE);
}

static void end_all(void)
{
    aoticache_holder_unref(holder);
    aoticache_context_free(eager);
    patched_close(&hook);
    aoticache_cache_close(cache);
    tensor_free(x);
    while (fallback_data_count > 0)
        free(fallback_data[--fallback_data_count]);
}

/* ---- calls ---- */

static aoticache_value places[PLACES];
static aoticache_stack stack = {.values = places, .capacity = PLACES};

static aoticache_status call_values(aoticache_holder *called, const aoticache_value *values, size_t count)
{
    memcpy(places, values, count * sizeof *values);
    stack.count = count;
    error.message[0] = '\0';
    return aoticache_holder_call(called, 0, &stack, &error);
}

/* Return whether scale(tensor, factor, offset) has the kernel's result, or the fallback's. */
static bool scales(const test_tensor *tensor, double factor, int64_t offset)
{
    aoticache_value values[] = {VALUE_TENSOR(tensor), VALUE_DOUBLE(factor), VALUE_INT(offset)};
    aoticache_status status = call_values(holder, values, 3);
    bool right = status == AOTICACHE_OK && stack.count == 1 && output_is(&places[0], tensor, factor, (double)offset);
    if (status == AOTICACHE_OK)
        aoticache_stack_drop(&stack, 0);
    return right;
}

static bool falls_back(const test_tensor *tensor, double factor, int64_t offset)
{
    aoticache_value values[] = {VALUE_TENSOR(tensor), VALUE_DOUBLE(factor), VALUE_INT(offset)};
    aoticache_status status = call_values(holder, values, 3);
    bool right = status == AOTICACHE_OK && stack.count == 1 && output_is(&places[0], tensor, 1, FALLBACK_ADDS);
    if (status == AOTICACHE_OK)
        aoticache_stack_drop(&stack, 0);
    return right;
}

static aoticache_holder_counts counts_now(void)
{
    aoticache_holder_counts counts;
    aoticache_holder_get_counts(holder, &counts);
    return counts;
}

#endif
