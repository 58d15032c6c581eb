/*
 * Unit tests of eager/holder/dispatch_holder.c: calls through the dispatcher that the cache serves, with the hook for kernels
 * in C.
 */
#include "eager/compile/hook_internal.h"
#include "eager/holder/dispatch_holder.h"
#include "tests/unit/fixtures/eager_fixture.h"
#include "loader/loader.h"

TestSuite(dispatch_holder, .init = fixture_begin, .fini = fixture_end, .timeout = 600);

static aoticache_error error;
static aoticache_cache *cache;
static aoticache_hook *hook;
static aoticache_context *eager;
static aoticache_dispatcher *dispatcher;
static aoticache_oplib *def, *usual, *impl;
static aoticache_operator *op;
static int eager_calls;

#define succeeds(call) cr_assert_eq(call, AOTICACHE_OK, "%s", error.message)

static aoticache_oplib *open_oplib(aoticache_oplib_kind kind, const char *namespace_name, const char *key)
{
    aoticache_oplib *oplib = NULL;
    succeeds(aoticache_oplib_create(dispatcher, kind, namespace_name, key, __FILE__, __LINE__, &oplib, &error));
    return oplib;
}

static void begin(const char *schema, const char *name, aoticache_miss miss)
{
    aoticache_hook_options hook_options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_cache_options cache_options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_context_options options = AOTICACHE_CONTEXT_OPTIONS_INIT;
    if (system("command -v \"${AOTICACHE_CC:-cc}\" >/dev/null") != 0)
        cr_skip_test("there is no C compiler");
    cache_options.directory = in_directory("cache");
    succeeds(aoticache_cache_open(&cache_options, &cache, &error));
    succeeds(aoticache_hook_create_c(&hook_options, &hook, &error));
    options.cache = cache;
    options.hook = hook;
    options.miss = miss;
    succeeds(aoticache_context_create(&options, &eager, &error));
    succeeds(aoticache_dispatcher_create(&dispatcher, &error));
    def = open_oplib(AOTICACHE_OPLIB_DEF, "aten", NULL);
    usual = open_oplib(AOTICACHE_OPLIB_IMPL, "_", NULL);
    impl = open_oplib(AOTICACHE_OPLIB_IMPL, "aten", "CPU");
    succeeds(aoticache_oplib_fall_through_usual(usual, &error));
    succeeds(aoticache_oplib_def(def, schema, AOTICACHE_ALIAS_DEFAULT, &error));
    succeeds(aoticache_dispatcher_find(dispatcher, name, &op, &error));
}

static void end(void)
{
    aoticache_oplib_free(impl);
    aoticache_oplib_free(usual);
    aoticache_oplib_free(def);
    aoticache_dispatcher_free(dispatcher);
    aoticache_context_free(eager);
    aoticache_hook_free(hook);
    aoticache_cache_close(cache);
}

/* The kernel that the holder replaces: returns its argument's first element plus 1000, not a tensor. */
static aoticache_status eager_kernel(void *user, const aoticache_operator *called, aoticache_key_set keys,
                                     aoticache_stack *stack, aoticache_error *ret_error)
{
    (void)user, (void)called, (void)keys, (void)ret_error;
    const aoticache_tensor_view *view = stack->values[--stack->count].as.tensor;
    double number = ((const float *)view->data)[0];
    eager_calls++;
    stack->values[stack->count++] = (aoticache_value){.kind = AOTICACHE_VALUE_DOUBLE, .as.double_value = number + 1000};
    return AOTICACHE_OK;
}

static void add_eager_kernel(aoticache_oplib *oplib)
{
    aoticache_boxed_kernel kernel = AOTICACHE_BOXED_KERNEL_INIT;
    kernel.call = eager_kernel;
    succeeds(aoticache_oplib_impl(oplib, "abs", "CPU", &kernel, &error));
}

static aoticache_value places[2];
static aoticache_stack stack = {.values = places, .capacity = 2};
static float data[] = {-3, 4};

static aoticache_status call(bool requires_grad)
{
    static const int64_t size[] = {2}, stride[] = {1};
    static aoticache_tensor_view view;
    AtenTensorHandle handle;
    succeeds(aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, 1, size, stride, &handle, &error));
    view = (aoticache_tensor_view){.data = data,
                                   .dtype = AOTICACHE_DTYPE_FLOAT32,
                                   .device = AOTICACHE_DEVICE_CPU,
                                   .ndim = 1,
                                   .numel = 2,
                                   .sizes = size,
                                   .strides = stride,
                                   .handle = handle,
                                   .requires_grad = requires_grad};
    places[0] = (aoticache_value){.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &view};
    stack.count = 1;
    aoticache_status status = aoticache_operator_call(op, &stack, &error);
    aoticache_tensor_free(handle);
    return status;
}

/* Returns whether the result is the compiled kernel's, |x|. Drops it. */
static bool result_is_abs(void)
{
    aoticache_tensor_view view;
    bool right = stack.count == 1 && places[0].kind == AOTICACHE_VALUE_OUTPUT &&
                 aoticache_tensor_get_view(places[0].as.output, &view, &error) == AOTICACHE_OK && view.numel == 2 &&
                 ((const float *)view.data)[0] == 3 && ((const float *)view.data)[1] == 4;
    aoticache_stack_drop(&stack, 0);
    return right;
}

#define ABS "abs(Tensor self) -> Tensor"

Test(dispatch_holder, call_is_served_by_a_compiled_kernel_and_falls_back_to_the_one_before)
{
    begin(ABS, "aten::abs", AOTICACHE_MISS_WAIT);
    add_eager_kernel(def);
    succeeds(aoticache_oplib_impl_with_aoti_compile(impl, eager, "abs", NULL, false, &error));
    succeeds(call(false));
    cr_expect(result_is_abs());
    cr_expect_eq(eager_calls, 0);
    /* Calls that a holder does not serve go to the kernel that it replaced. */
    succeeds(call(true));
    cr_expect_eq(eager_calls, 1);
    cr_expect(places[0].kind == AOTICACHE_VALUE_DOUBLE && places[0].as.double_value == 997);
    /* After removal the old kernel is active again; after registering again, the library is in the cache. */
    aoticache_oplib_free(impl);
    impl = open_oplib(AOTICACHE_OPLIB_IMPL, "aten", "CPU");
    succeeds(call(false));
    cr_expect_eq(eager_calls, 2);
    succeeds(aoticache_oplib_impl_with_aoti_compile(impl, eager, "aten::abs", "CPU", false, &error));
    succeeds(call(false));
    cr_expect(result_is_abs());
    end();
}

Test(dispatch_holder, without_a_kernel_before_a_call_that_is_not_served_says_so)
{
    begin(ABS, "aten::abs", AOTICACHE_MISS_NEVER);
    succeeds(aoticache_oplib_impl_with_aoti_compile(impl, eager, "abs", NULL, false, &error));
    cr_expect_eq(call(false), AOTICACHE_NOT_FOUND);
    cr_expect_eq(stack.count, 1);
    /* A kernel that is registered later for all backends is nevertheless below the holder. */
    aoticache_boxed_kernel kernel = AOTICACHE_BOXED_KERNEL_INIT;
    kernel.call = eager_kernel;
    succeeds(aoticache_oplib_impl(def, "abs", "CompositeExplicitAutograd", &kernel, &error));
    succeeds(call(false));
    cr_expect_eq(eager_calls, 1);
    end();
}

Test(dispatch_holder, what_cannot_be_served_is_refused)
{
    begin(ABS, "aten::abs", AOTICACHE_MISS_NEVER);
    succeeds(aoticache_oplib_def(def, "abs_(Tensor(a!) self) -> Tensor(a!)", AOTICACHE_ALIAS_DEFAULT, &error));
    cr_expect_eq(aoticache_oplib_impl_with_aoti_compile(impl, eager, "absent", NULL, false, &error),
                 AOTICACHE_NOT_FOUND);
    cr_expect_eq(aoticache_oplib_impl_with_aoti_compile(impl, eager, "abs_", NULL, false, &error),
                 AOTICACHE_UNSUPPORTED);
    cr_expect_eq(aoticache_oplib_impl_with_aoti_compile(def, eager, "abs", "AutogradCPU", false, &error),
                 AOTICACHE_INVALID);
    cr_expect_eq(aoticache_oplib_impl_with_aoti_compile(impl, eager, "abs", "CUDA", false, &error), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_oplib_impl_with_aoti_compile(def, eager, "abs", NULL, false, &error), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_oplib_impl_with_aoti_compile(impl, NULL, "abs", NULL, false, &error), AOTICACHE_INVALID);
    cr_expect_not(aoticache_operator_has_kernel_for_key(op, AOTICACHE_DISPATCH_KEY_CPU));
    end();
}
