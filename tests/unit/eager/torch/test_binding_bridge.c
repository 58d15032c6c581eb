/*
 * Unit tests of the binding (eager/torch/binding.c, binding_call.c, bridge_open.c), with a stand-in for the bridge
 * (kernels/bridge_stand_in.c), compiled by the test and loaded as a separate library. Tensors come from the shim.
 */
#include "eager/torch/torch_internal.h"
#include "tests/unit/fixtures/holder_fixture.h"

#include <dlfcn.h>

TestSuite(binding_bridge, .init = fixture_begin, .fini = fixture_end, .timeout = 300);

static void *stand_in;
static char stand_in_path[PATH_MAX];
static aoticache_binding *binding;
static aoticache_binding_operator *op;

#define STAND_IN(type, name) (*(type *)dlsym(stand_in, #name))
#define STAND_IN_COUNT(name) STAND_IN(int, stand_in_##name)

static void load_stand_in(void)
{
    char command[PATH_MAX + 256];
    snprintf(stand_in_path, sizeof stand_in_path, "%s", in_directory("stand_in.so"));
    snprintf(
        command, sizeof command,
        "cc -std=gnu11 -D_GNU_SOURCE -O1 -I. -shared -fPIC -fvisibility=hidden tests/unit/kernels/bridge_stand_in.c -o "
        "%s",
        stand_in_path);
    cr_assert_eq(system(command), 0, "%s", command);
    stand_in = dlopen(stand_in_path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(stand_in, "%s", dlerror());
}

static aoticache_status try_enable(const char *schema)
{
    aoticache_binding_operator_options options = AOTICACHE_BINDING_OPERATOR_OPTIONS_INIT;
    options.schema = schema;
    options.dispatch_key = "CPU";
    options.device = AOTICACHE_DEVICE_CPU;
    error.message[0] = '\0';
    return aoticache_binding_enable(binding, &options, &op, &error);
}

static void begin_binding(const aoticache_context_options *changes)
{
    aoticache_binding_options options = AOTICACHE_BINDING_OPTIONS_INIT;
    begin_with("", false);
    aoticache_context_options all = eager_options();
    if (changes != NULL) {
        all.miss = changes->miss;
        all.fail_calls = changes->fail_calls;
    }
    make_eager(&all);
    load_stand_in();
    options.context = eager;
    options.bridge = stand_in_path;
    cr_assert_eq(aoticache_binding_create(&options, &binding, &error), AOTICACHE_OK, "%s", error.message);
}

/* Ends the test; checks that no registration is left. */
static void end_binding(void)
{
    aoticache_binding_free(binding);
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

static void begin_as(const aoticache_context_options *changes)
{
    begin_binding(changes);
    cr_assert_eq(try_enable(SCALE), AOTICACHE_OK, "%s", error.message);
}

static void begin(void)
{
    begin_as(NULL);
}

/* Calls as the bridge does; the stack and its values are left in `places`. */
static aoticache_bridge_result call_with(void *registration, const test_tensor *tensor, double factor, uint64_t wrapped)
{
    const aoticache_bridge_host *host = STAND_IN(const aoticache_bridge_host *, stand_in_host);
    places[0] = VALUE_TENSOR(tensor);
    places[1] = VALUE_DOUBLE(factor);
    places[2] = VALUE_INT(0);
    stack.count = 3;
    error.message[0] = '\0';
    return host->call(registration, 0, wrapped, &stack, &error);
}

static aoticache_bridge_result call_bridge(const test_tensor *tensor, double factor)
{
    return call_with(STAND_IN(void *, stand_in_op), tensor, factor, 0);
}

static aoticache_bridge_result attempt_with(const test_tensor *tensor, double factor)
{
    const aoticache_bridge_host *host = STAND_IN(const aoticache_bridge_host *, stand_in_host);
    places[0] = VALUE_TENSOR(tensor);
    places[1] = VALUE_DOUBLE(factor);
    places[2] = VALUE_INT(0);
    stack.count = 3;
    return host->attempt(STAND_IN(void *, stand_in_op), 0, 0, &stack, &error);
}

static bool is_served(const test_tensor *tensor, double factor)
{
    bool right = call_bridge(tensor, factor) == AOTICACHE_BRIDGE_SERVED && stack.count == 1 &&
                 output_is(&places[0], tensor, factor, 0);
    if (right)
        aoticache_stack_drop(&stack, 0);
    return right;
}

static bool is_untouched(const test_tensor *tensor)
{
    return stack.count == 3 && places[0].kind == AOTICACHE_VALUE_TENSOR && places[0].as.tensor == &tensor->view;
}

Test(binding_bridge, hits_are_served_and_inputs_stay_the_callers)
{
    begin();
    cr_expect_str_eq((const char *)dlsym(stand_in, "stand_in_enabled"),
                     "test::scale||CPU|test::scale(Tensor self, float factor=2., *, int offset=0) -> Tensor");
    for (int i = 0; i < 4; i++)
        cr_expect(is_served(x, 3));
    cr_expect_eq(binding_counts().calls, 4);
    cr_expect_eq(binding_counts().holder.hits, 3);
    cr_expect_eq(binding_counts().holder.misses, 1);
    cr_expect_eq(binding_counts().refused, 0);
    end_binding();
}

Test(binding_bridge, miss_that_is_not_compiled_is_the_bridges)
{
    aoticache_context_options never = {.miss = AOTICACHE_MISS_NEVER};
    begin_as(&never);
    cr_expect_eq(call_bridge(x, 3), AOTICACHE_BRIDGE_FALLBACK);
    cr_expect(is_untouched(x));
    cr_expect_eq(binding_counts().holder.fallbacks, 1);
    cr_expect_eq(binding_counts().calls, 1);
    end_binding();
}

Test(binding_bridge, failing_kernel_is_pytorchs_call)
{
    begin();
    x->data[0] = -1;
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(call_bridge(x, 3), AOTICACHE_BRIDGE_FALLBACK);
        cr_expect(is_untouched(x));
    }
    end_binding();
}

Test(binding_bridge, failing_kernel_is_a_failure_with_its_message_where_that_is_asked_for)
{
    aoticache_context_options changes = eager_options();
    changes.fail_calls = true;
    begin_as(&changes);
    x->data[0] = -1;
    cr_expect_eq(call_bridge(x, 3), AOTICACHE_BRIDGE_FAILED);
    cr_expect_not_null(strstr(error.message, "x is -1, on purpose"), "%s", error.message);
    cr_expect(is_untouched(x));
    end_binding();
}

Test(binding_bridge, failed_compile_is_a_failure_only_where_that_is_asked_for)
{
    aoticache_context_options changes = {.fail_calls = true};
    begin();
    atomic_store(&hook.fail_status, AOTICACHE_COMPILE_FAILED);
    cr_expect_eq(call_bridge(x, 3), AOTICACHE_BRIDGE_FALLBACK);
    cr_expect(is_untouched(x));
    end_binding();
    fixture_end();
    fixture_begin();
    begin_as(&changes);
    atomic_store(&hook.fail_status, AOTICACHE_COMPILE_FAILED);
    cr_expect_eq(call_bridge(x, 3), AOTICACHE_BRIDGE_FAILED);
    cr_expect_not_null(strstr(error.message, "this hook fails on purpose"), "%s", error.message);
    cr_expect(is_untouched(x));
    end_binding();
}

Test(binding_bridge, attempt_compiles_nothing_and_counts_nothing_where_the_kernel_is_missing)
{
    begin();
    cr_expect_eq(attempt_with(x, 3), AOTICACHE_BRIDGE_FALLBACK_FIRST);
    cr_expect(is_untouched(x));
    cr_expect_eq(binding_counts().calls, 0);
    cr_expect_eq(binding_counts().holder.misses, 0);
    cr_expect_eq(binding_counts().holder.compiles, 0);
    cr_expect(is_served(x, 3));
    cr_expect_eq(attempt_with(x, 3), AOTICACHE_BRIDGE_SERVED);
    aoticache_stack_drop(&stack, 0);
    cr_expect_eq(binding_counts().holder.compiles, 1);
    end_binding();
}

Test(binding_bridge, wrong_number_of_arguments_is_pytorchs)
{
    const aoticache_bridge_host *host;
    begin();
    host = STAND_IN(const aoticache_bridge_host *, stand_in_host);
    places[0] = VALUE_TENSOR(x);
    stack.count = 1;
    cr_expect_eq(host->call(STAND_IN(void *, stand_in_op), 0, 0, &stack, &error), AOTICACHE_BRIDGE_FALLBACK);
    host->refuse(STAND_IN(void *, stand_in_op));
    cr_expect_eq(binding_counts().refused, 2);
    cr_expect_eq(binding_counts().calls, 2);
    end_binding();
}

Test(binding_bridge, late_call_is_pytorchs_until_it_is_enabled_again)
{
    begin();
    cr_expect(is_served(x, 3));
    void *registration = STAND_IN(void *, stand_in_op);
    aoticache_binding_disable(op);
    cr_expect_eq(STAND_IN_COUNT(registrations), 0);
    cr_expect_eq(call_with(registration, x, 3, 0), AOTICACHE_BRIDGE_FALLBACK);
    cr_expect(is_untouched(x));
    STAND_IN(const aoticache_bridge_host *, stand_in_host)->refuse(registration);
    cr_assert_eq(try_enable(SCALE), AOTICACHE_OK, "%s", error.message);
    cr_expect_eq(STAND_IN(void *, stand_in_op), registration);
    cr_expect(is_served(x, 3));
    end_binding();
}

/* ---- disabling during a call ---- */

static atomic_bool is_disabled;

static void *call_once(void *unused)
{
    aoticache_value values[3] = {VALUE_TENSOR(x), VALUE_DOUBLE(7), VALUE_INT(0)};
    aoticache_stack own = {.values = values, .count = 3, .capacity = 3};
    aoticache_error own_error;
    (void)unused;
    const aoticache_bridge_host *host = STAND_IN(const aoticache_bridge_host *, stand_in_host);
    cr_expect_eq(host->call(STAND_IN(void *, stand_in_op), 0, 0, &own, &own_error), AOTICACHE_BRIDGE_SERVED);
    cr_expect_not(atomic_load(&is_disabled));
    aoticache_stack_drop(&own, 0);
    return NULL;
}

static void *disable_in_thread(void *unused)
{
    (void)unused;
    aoticache_binding_disable(op);
    atomic_store(&is_disabled, true);
    return NULL;
}

/* Begins a call in another thread, and waits until it is in its compile, which ends when the hook is opened. */
static pthread_t begin_call(void)
{
    pthread_t caller;
    hook.is_shut = true;
    pthread_create(&caller, NULL, call_once, NULL);
    while (hook.begun == 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return caller;
}

Test(binding_bridge, disabling_waits_for_calls_inside)
{
    pthread_t disabler;
    begin();
    pthread_t caller = begin_call();
    pthread_create(&disabler, NULL, disable_in_thread, NULL);
    while (STAND_IN_COUNT(registrations) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    cr_expect_not(atomic_load(&is_disabled));
    hook.is_shut = false;
    pthread_join(caller, NULL);
    pthread_join(disabler, NULL);
    cr_expect(atomic_load(&is_disabled));
    end_binding();
}

/* A child does not have the threads that would return from its parent's calls. */
Test(binding_bridge, child_of_a_fork_disables_without_its_parents_calls)
{
    int status;
    begin();
    pthread_t caller = begin_call();
    pid_t child = fork();
    if (child == 0) {
        alarm(300);
        aoticache_binding_disable(op);
        bool right = call_with(STAND_IN(void *, stand_in_op), x, 3, 0) == AOTICACHE_BRIDGE_FALLBACK;
        _exit(right ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d", status);
    hook.is_shut = false;
    pthread_join(caller, NULL);
    end_binding();
}

/* Makes the operator's compiles call this function. */
static aoticache_hook *make_calling_hook(aoticache_status (*compile)(void *, const aoticache_request *, const char *,
                                                                     aoticache_deliver_fn, void *, aoticache_error *))
{
    aoticache_callback callback = AOTICACHE_CALLBACK_INIT;
    callback.user = &hook;
    callback.compile = compile;
    callback.producer = "patched 1";
    aoticache_hook *calling;
    cr_assert_eq(aoticache_hook_create_callback(&callback, &calling, &error), AOTICACHE_OK);
    eager->hook = calling;
    return calling;
}

static aoticache_status disable_and_compile(void *user, const aoticache_request *request, const char *directory,
                                            aoticache_deliver_fn hand_over, void *deliver_user,
                                            aoticache_error *ret_error)
{
    aoticache_binding_disable(op);
    return patched_hook_compile(user, request, directory, hand_over, deliver_user, ret_error);
}

Test(binding_bridge, disabling_inside_of_its_call_does_not_wait_for_itself)
{
    begin();
    aoticache_hook *usual = hook.hook, *calling = make_calling_hook(disable_and_compile);
    cr_expect(is_served(x, 3));
    cr_expect_eq(STAND_IN_COUNT(registrations), 0);
    eager->hook = usual;
    aoticache_hook_free(calling);
    end_binding();
}

/* ---- recursion ---- */

static aoticache_bridge_result nested;
static void *nested_registration;

/* A hook that calls the operator that it compiles for, as a kernel library may. */
static aoticache_status compile_and_call(void *user, const aoticache_request *request, const char *directory,
                                         aoticache_deliver_fn hand_over, void *deliver_user, aoticache_error *ret_error)
{
    aoticache_value values[3] = {VALUE_TENSOR(x), VALUE_DOUBLE(7), VALUE_INT(0)};
    aoticache_stack inner = {.values = values, .count = 3, .capacity = 3};
    aoticache_error inner_error;
    nested =
        STAND_IN(const aoticache_bridge_host *, stand_in_host)->call(nested_registration, 0, 0, &inner, &inner_error);
    return patched_hook_compile(user, request, directory, hand_over, deliver_user, ret_error);
}

Test(binding_bridge, call_of_an_operator_from_within_itself_is_pytorchs)
{
    begin();
    aoticache_hook *usual = hook.hook, *calling = make_calling_hook(compile_and_call);
    nested_registration = STAND_IN(void *, stand_in_op);
    nested = AOTICACHE_BRIDGE_FAILED;
    cr_expect(is_served(x, 3));
    cr_expect_eq(nested, AOTICACHE_BRIDGE_FALLBACK);
    cr_expect_eq(binding_counts().refused, 1);
    cr_expect_eq(hook.compiles, 1);
    eager->hook = usual;
    cr_expect(is_served(x, 7), "once outside, it is served");
    aoticache_hook_free(calling);
    end_binding();
}

/* ---- wrapped numbers ---- */

static aoticache_tensor_view views[4];

static aoticache_value tensor_value(int i, int32_t dtype, int64_t ndim)
{
    views[i] = (aoticache_tensor_view){.dtype = dtype, .ndim = ndim};
    return (aoticache_value){.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &views[i]};
}

static bool do_not_matter(int32_t tensor, int64_t ndim, int32_t number)
{
    aoticache_value values[] = {tensor_value(0, tensor, ndim), tensor_value(1, number, 0), VALUE_INT(1)};
    return aoticache_wrapped_numbers_do_not_matter(values, 3, 2);
}

Test(binding_bridge, wrapped_numbers_matter_where_no_tensor_with_dimensions_reaches_their_category)
{
    cr_expect(do_not_matter(AOTICACHE_DTYPE_FLOAT32, 1, AOTICACHE_DTYPE_FLOAT64));
    cr_expect(do_not_matter(AOTICACHE_DTYPE_BFLOAT16, 3, AOTICACHE_DTYPE_INT64));
    cr_expect(do_not_matter(AOTICACHE_DTYPE_UINT8, 1, AOTICACHE_DTYPE_INT64));
    cr_expect(do_not_matter(AOTICACHE_DTYPE_BOOL, 1, AOTICACHE_DTYPE_BOOL));
    cr_expect(do_not_matter(AOTICACHE_DTYPE_COMPLEX64, 1, AOTICACHE_DTYPE_COMPLEX128));
    cr_expect_not(do_not_matter(AOTICACHE_DTYPE_FLOAT32, 0, AOTICACHE_DTYPE_FLOAT64), "a tensor without dimensions");
    cr_expect_not(do_not_matter(AOTICACHE_DTYPE_INT64, 2, AOTICACHE_DTYPE_FLOAT64));
    cr_expect_not(do_not_matter(AOTICACHE_DTYPE_BOOL, 2, AOTICACHE_DTYPE_INT64));
    cr_expect_not(do_not_matter(AOTICACHE_DTYPE_FLOAT64, 2, AOTICACHE_DTYPE_COMPLEX128));
}

Test(binding_bridge, wrapped_numbers_do_not_matter_next_to_scalars_of_a_higher_category_or_of_their_dtype)
{
    cr_expect(do_not_matter(AOTICACHE_DTYPE_FLOAT32, 0, AOTICACHE_DTYPE_INT64), "the step of an optimizer, plus 1");
    cr_expect(do_not_matter(AOTICACHE_DTYPE_INT32, 0, AOTICACHE_DTYPE_BOOL));
    cr_expect(do_not_matter(AOTICACHE_DTYPE_FLOAT64, 0, AOTICACHE_DTYPE_FLOAT64));
    cr_expect(do_not_matter(AOTICACHE_DTYPE_INT64, 0, AOTICACHE_DTYPE_INT64));
    cr_expect_not(do_not_matter(AOTICACHE_DTYPE_INT32, 0, AOTICACHE_DTYPE_INT64), "int32, and not int64");
    cr_expect_not(do_not_matter(AOTICACHE_DTYPE_INT64, 0, AOTICACHE_DTYPE_FLOAT64), "float32, and not float64");
    cr_expect_not(do_not_matter(AOTICACHE_DTYPE_COMPLEX64, 0, AOTICACHE_DTYPE_FLOAT64),
                  "complex64, and not complex128");
    cr_expect_not(do_not_matter(AOTICACHE_DTYPE_BOOL, 0, AOTICACHE_DTYPE_INT64));
}

Test(binding_bridge, wrapped_numbers_are_computed_over_all_arguments)
{
    aoticache_value values[] = {tensor_value(0, AOTICACHE_DTYPE_INT32, 1), tensor_value(1, AOTICACHE_DTYPE_FLOAT64, 0),
                                tensor_value(2, AOTICACHE_DTYPE_FLOAT16, 2), tensor_value(3, AOTICACHE_DTYPE_INT64, 0)};
    cr_expect(aoticache_wrapped_numbers_do_not_matter(values, 4, 2 | 8));
    cr_expect_not(aoticache_wrapped_numbers_do_not_matter(values, 2, 2));
    cr_expect(aoticache_wrapped_numbers_do_not_matter(values + 2, 2, 2));
    const aoticache_tensor_view *list[] = {&views[0], NULL, &views[2]};
    aoticache_value lists[] = {{.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = 3, .as.tensors = list}, values[1]};
    cr_expect(aoticache_wrapped_numbers_do_not_matter(lists, 2, 2));
    cr_expect_not(aoticache_wrapped_numbers_do_not_matter(lists, 2, 1), "a number in a list");
}

Test(binding_bridge, wrapped_number_that_matters_is_pytorchs)
{
    begin();
    cr_expect_eq(call_with(STAND_IN(void *, stand_in_op), x, 3, 1), AOTICACHE_BRIDGE_SERVED);
    aoticache_stack_drop(&stack, 0);
    test_tensor *scalar = tensor_create(0, NULL);
    cr_expect_eq(call_with(STAND_IN(void *, stand_in_op), scalar, 3, 1), AOTICACHE_BRIDGE_FALLBACK);
    cr_expect_eq(binding_counts().refused, 1);
    cr_expect_eq(call_with(STAND_IN(void *, stand_in_op), scalar, 3, 0), AOTICACHE_BRIDGE_SERVED);
    aoticache_stack_drop(&stack, 0);
    tensor_free(scalar);
    end_binding();
}

/* ---- threads ---- */

static atomic_bool ending;
static atomic_int wrong, served_in_threads;

static void *call_in_thread(void *registration)
{
    const aoticache_bridge_host *host = STAND_IN(const aoticache_bridge_host *, stand_in_host);
    while (!atomic_load(&ending)) {
        aoticache_value values[3] = {VALUE_TENSOR(x), VALUE_DOUBLE(3), VALUE_INT(0)};
        aoticache_stack own = {.values = values, .count = 3, .capacity = 3};
        aoticache_error own_error;
        aoticache_bridge_result result = host->call(registration, 0, 0, &own, &own_error);
        if (result == AOTICACHE_BRIDGE_SERVED) {
            if (own.count != 1 || !output_is(&values[0], x, 3, 0))
                atomic_fetch_add(&wrong, 1);
            aoticache_stack_drop(&own, 0);
            atomic_fetch_add(&served_in_threads, 1);
        } else if (result != AOTICACHE_BRIDGE_FALLBACK || own.count != 3) {
            atomic_fetch_add(&wrong, 1);
        }
    }
    return NULL;
}

Test(binding_bridge, enabling_and_disabling_under_calls_is_safe)
{
    pthread_t threads[3];
    begin();
    cr_expect(is_served(x, 3));
    void *registration = STAND_IN(void *, stand_in_op);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, call_in_thread, registration);
    for (int i = 0; i < 60; i++) {
        int before = atomic_load(&served_in_threads);
        while (atomic_load(&served_in_threads) == before)
            nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
        aoticache_binding_disable(op);
        cr_assert_eq(try_enable(SCALE), AOTICACHE_OK, "%s", error.message);
    }
    atomic_store(&ending, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    cr_expect_eq(wrong, 0);
    end_binding();
}

/* ---- invalid bridges ---- */

static aoticache_status open_another(const char *path)
{
    aoticache_binding *other = NULL;
    aoticache_binding_options options = AOTICACHE_BINDING_OPTIONS_INIT;
    options.context = eager;
    options.bridge = path;
    error.message[0] = '\0';
    aoticache_status status = aoticache_binding_create(&options, &other, &error);
    cr_expect_null(other);
    return status;
}

Test(binding_bridge, bridge_that_does_not_fit_is_refused_and_says_why)
{
    begin_binding(NULL);
    const char *missing = in_directory("bridge.so");
    cr_expect_eq(open_another(missing), AOTICACHE_LOAD_FAILED);
    cr_expect_not_null(strstr(error.message, missing), "%s", error.message);
    cr_expect_eq(open_another(write_file("text.so", "no library", 0600)), AOTICACHE_LOAD_FAILED);
    STAND_IN_COUNT(open_status) = AOTICACHE_UNSUPPORTED;
    cr_expect_eq(open_another(stand_in_path), AOTICACHE_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "made for 2.10.0"), "%s", error.message);
    STAND_IN_COUNT(open_status) = 0;
    STAND_IN(uint32_t, stand_in_abi) = AOTICACHE_BRIDGE_ABI + 1;
    cr_expect_eq(open_another(stand_in_path), AOTICACHE_UNSUPPORTED);
    cr_expect_eq(open_another(NULL), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "options.bridge is NULL"), "%s", error.message);
    end_binding();
}

Test(binding_bridge, refusal_by_the_bridge_is_handed_on)
{
    begin_binding(NULL);
    STAND_IN_COUNT(enable_status) = AOTICACHE_NOT_FOUND;
    cr_expect_eq(try_enable(SCALE), AOTICACHE_NOT_FOUND);
    cr_expect_str_eq(error.message, "the bridge says no");
    STAND_IN_COUNT(enable_status) = 0;
    cr_expect_eq(try_enable(SCALE), AOTICACHE_OK, "%s", error.message);
    cr_expect_eq(try_enable("test::op(Tensor self, Scalar other) -> Tensor[]"), AOTICACHE_OK, "%s", error.message);
    end_binding();
}

/* ---- enabling ---- */

Test(binding_bridge, overload_is_separate_from_the_name)
{
    begin_binding(NULL);
    cr_assert_eq(try_enable("test::scale.other(Tensor self, float factor=2.0) -> Tensor"), AOTICACHE_OK, "%s",
                 error.message);
    cr_expect_str_eq((const char *)dlsym(stand_in, "stand_in_enabled"),
                     "test::scale|other|CPU|test::scale.other(Tensor self, float factor=2.) -> Tensor");
    end_binding();
}

static void expect_refused(const char *schema, aoticache_status status, const char *word)
{
    cr_expect_eq(try_enable(schema), status, "%s: %s", schema, error.message);
    cr_expect_not_null(strstr(error.message, word), "%s: %s", schema, error.message);
    cr_expect_eq(STAND_IN_COUNT(registrations), 0);
}

Test(binding_bridge, schemas_it_cannot_serve_are_refused_with_the_reason)
{
    begin_binding(NULL);
    expect_refused("test::op(Tensor(a) self) -> Tensor(a)", AOTICACHE_UNSUPPORTED, "view");
    expect_refused("test::op(Tensor self) -> int", AOTICACHE_UNSUPPORTED, "result 0 is int");
    expect_refused("test::op(int size) -> Tensor", AOTICACHE_UNSUPPORTED, "has no tensor arguments");
    expect_refused("test::op(Tensor self -> Tensor", AOTICACHE_INVALID, "column");
    end_binding();
}

Test(binding_bridge, enabling_twice_is_refused_and_names_the_operator)
{
    begin();
    aoticache_binding_operator *first = op;
    cr_expect_eq(try_enable(SCALE), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "test::scale is already enabled for CPU"), "%s", error.message);
    op = first;
    cr_expect_eq(STAND_IN_COUNT(registrations), 1);
    cr_expect(is_served(x, 3), "the first one still is");
    end_binding();
}

/* ---- kernels that are used only if faster ---- */

static uint64_t fake_ns;

static uint64_t fake_clock(void)
{
    return fake_ns;
}

static void begin_judging(void)
{
    begin();
    op->holder->judges = true;
    eager->clock_ns = fake_clock;
    cr_assert(is_served(x, 3)); /* the miss; its holder does no trials yet, otherwise the runner would not be visible */
}

/*
 * Makes a timed call as the bridge does; the arguments are the times of kernel and fallback. False: nothing is on
 * trial.
 */
static bool take_turn(uint64_t kernel_ns, uint64_t fallback_ns)
{
    const aoticache_bridge_host *host = STAND_IN(const aoticache_bridge_host *, stand_in_host);
    void *registration = STAND_IN(void *, stand_in_op);
    aoticache_bridge_timed_call timed;
    places[0] = VALUE_TENSOR(x);
    places[1] = VALUE_DOUBLE(3);
    places[2] = VALUE_INT(0);
    stack.count = 3;
    aoticache_bridge_turn turn = host->turn(registration, 0, &stack, &timed);
    cr_assert(is_untouched(x));
    if (turn == AOTICACHE_BRIDGE_KERNELS_TURN) {
        uint64_t hits = binding_counts().holder.hits;
        cr_assert(is_served(x, 3));
        cr_assert_eq(binding_counts().holder.hits, hits + 1, "what is timed is a hit");
    }
    if (turn != AOTICACHE_BRIDGE_NO_TURN)
        host->end(registration, &timed, turn == AOTICACHE_BRIDGE_KERNELS_TURN ? kernel_ns : fallback_ns);
    return turn != AOTICACHE_BRIDGE_NO_TURN;
}

Test(binding_bridge, trial_asks_to_be_timed_and_ends_that)
{
    begin_judging();
    cr_expect(is_served(x, 3)); /* on trial, untimed: the kernel is loaded and answers */
    cr_expect_eq(STAND_IN(int, stand_in_call_mode), AOTICACHE_BRIDGE_TIME);
    cr_expect_geq(STAND_IN(uint64_t, stand_in_call_mode_calls), 2 * (AOTICACHE_TRIAL_PAIRS / 3 * 4));
    cr_expect_eq(binding_counts().holder.on_trial, 1);
    int turns = 0;
    while (turns < 100 && take_turn(500, 1000))
        turns++;
    cr_expect_gt(turns, 4);
    cr_expect_leq(turns, 40);
    cr_expect_eq(STAND_IN(int, stand_in_call_mode), AOTICACHE_BRIDGE_SERVE);
    cr_expect_eq(binding_counts().holder.judged, 1);
    cr_expect_eq(binding_counts().holder.judged_slower, 0);
    uint64_t hits = binding_counts().holder.hits;
    for (int i = 0; i < 10; i++)
        cr_expect(is_served(x, 3));
    cr_expect_eq(binding_counts().holder.hits, hits + 10);
    end_binding();
}

Test(binding_bridge, calls_that_are_lost_are_passed_on_more_and_more)
{
    begin_judging();
    cr_expect(is_served(x, 3));
    while (take_turn(100000, 1000))
        continue;
    cr_expect_eq(binding_counts().holder.judged_slower, 1);
    uint64_t before = binding_counts().holder.calls_lost;
    int rounds = 0;
    for (uint64_t expected = 16; rounds < 3; rounds++, expected *= 2) {
        for (int tries = 0; tries < 64 && STAND_IN(uint64_t, stand_in_call_mode_calls) != expected; tries++)
            cr_assert_eq(call_bridge(x, 3), AOTICACHE_BRIDGE_FALLBACK);
        cr_expect_eq(STAND_IN(int, stand_in_call_mode), AOTICACHE_BRIDGE_PASS);
        cr_expect_eq(STAND_IN(uint64_t, stand_in_call_mode_calls), expected);
    }
    cr_expect_gt(binding_counts().holder.calls_lost, before);
    const aoticache_bridge_host *host = STAND_IN(const aoticache_bridge_host *, stand_in_host);
    aoticache_binding_counts counts = binding_counts();
    host->passed(STAND_IN(void *, stand_in_op), 100);
    cr_expect_eq(binding_counts().holder.calls_lost, counts.holder.calls_lost + 100);
    cr_expect_eq(binding_counts().holder.fallbacks, counts.holder.fallbacks + 100);
    cr_expect_eq(binding_counts().calls, counts.calls + 100);
    /* A different call in between starts the count over. */
    cr_assert_eq(call_bridge(x, 7), AOTICACHE_BRIDGE_SERVED);
    aoticache_stack_drop(&stack, 0);
    STAND_IN(uint64_t, stand_in_call_mode_calls) = 0;
    for (int i = 0; i < 16; i++)
        call_bridge(x, 3);
    cr_expect_eq(STAND_IN(uint64_t, stand_in_call_mode_calls), 0);
    for (int i = 0; i < 16; i++)
        call_bridge(x, 3);
    cr_expect_eq(STAND_IN(uint64_t, stand_in_call_mode_calls), 16);
    end_binding();
}

/* ---- settings of PyTorch's process ---- */

Test(binding_bridge, with_another_default_dtype_only_tensors_of_floats_are_served)
{
    begin();
    int *settings = dlsym(stand_in, "stand_in_settings");
    cr_expect(is_served(x, 3));
    *settings = AOTICACHE_BRIDGE_DEFAULT_DTYPE;
    cr_expect(is_served(x, 3));
    x->view.dtype = AOTICACHE_DTYPE_INT32;
    cr_expect_eq(call_bridge(x, 3), AOTICACHE_BRIDGE_FALLBACK);
    cr_expect_eq(attempt_with(x, 3), AOTICACHE_BRIDGE_FALLBACK);
    cr_expect_eq(binding_counts().refused, 2);
    *settings = AOTICACHE_BRIDGE_DETERMINISTIC;
    x->view.dtype = AOTICACHE_DTYPE_FLOAT32;
    cr_expect(is_served(x, 3));
    end_binding();
}
