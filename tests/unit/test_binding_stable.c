/* Unit tests of the binding on the stable C ABI (eager/torch/stable_*.c, binding.c), with a stand-in for PyTorch. */
#include "binding_fixture.h"
#include "loader/loader.h"

TestSuite(binding_stable, .init = fixture_begin, .fini = fixture_end, .timeout = 300);

#define LISTS                                                                                             \
    "test::lists(Tensor self, float[] factors, Tensor[] others, int[]? sizes, bool[2] flags, str? name, " \
    "ScalarType? dtype, Device? device, Tensor?[] last) -> Tensor"

/* Calls the most recently registered function. */
static const char *call_last(uint64_t *values, uint64_t inputs)
{
    stand_in_library *library = STAND_IN(stand_in_library *, stand_in_last);
    cr_assert_not_null(library);
    return stand_in_call(library->fn, values, inputs, 1);
}

/* Calls scale(tensor, factor, offset): returns the result's handle, or 0 with the thrown message. */
static uint64_t call_scale(const test_tensor *tensor, double factor, int64_t offset, const char **ret_thrown)
{
    uint64_t values[3] = {handle_of(tensor), bits_of(factor), (uint64_t)offset};
    *ret_thrown = call_last(values, 3);
    return values[0];
}

static bool gives(uint64_t result, const test_tensor *tensor, double factor, double offset)
{
    aoticache_value value = {.kind = AOTICACHE_VALUE_OUTPUT, .as.output = (AtenTensorHandle)(uintptr_t)result};
    bool right = output_is(&value, tensor, factor, offset);
    delete_handle(result);
    return right;
}

static void begin(void)
{
    begin_binding_with("", NULL, false);
    cr_assert_eq(try_enable(SCALE), AOTICACHE_OK, "%s", error.message);
}

/* ---- calls ---- */

Test(binding_stable, miss_then_hits_give_the_kernels_result)
{
    const char *thrown;
    begin();
    stand_in_library *library = STAND_IN(stand_in_library *, stand_in_last);
    cr_expect_str_eq(library->name, "test::scale");
    cr_expect_str_eq(library->key, "CPU");
    for (int i = 0; i < 4; i++)
        cr_expect(gives(call_scale(x, 3, 4, &thrown), x, 3, 4));
    cr_expect_eq(binding_counts().calls, 4);
    cr_expect_eq(binding_counts().holder.hits, 3);
    cr_expect_eq(binding_counts().holder.misses, 1);
    cr_expect_eq(binding_counts().refused, 0);
    cr_expect_eq(fallback_calls, 0);
    end_binding();
}

Test(binding_stable, overload_is_part_of_the_name)
{
    begin_binding_with("", NULL, false);
    cr_assert_eq(try_enable("test::scale.out_of_place(Tensor self, float factor=2.0) -> Tensor"), AOTICACHE_OK, "%s",
                 error.message);
    cr_expect_str_eq(STAND_IN(stand_in_library *, stand_in_last)->name, "test::scale.out_of_place");
    end_binding();
}

Test(binding_stable, miss_that_is_not_compiled_goes_to_the_fallback)
{
    const char *thrown;
    aoticache_context_options never = {.miss = AOTICACHE_MISS_NEVER};
    begin_binding_with("", &never, false);
    cr_assert_eq(try_enable(SCALE), AOTICACHE_OK, "%s", error.message);
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(call_scale(x, 3, 4, &thrown), 77);
        cr_expect_null(thrown);
    }
    cr_expect_eq(binding_counts().holder.fallbacks, 3);
    cr_expect_eq(binding_counts().calls, 3);
    cr_expect_eq(fallback_calls, 3);
    end_binding();
}

Test(binding_stable, failing_kernel_is_an_exception_with_its_message)
{
    const char *thrown;
    begin();
    cr_expect(gives(call_scale(x, 3, 0, &thrown), x, 3, 0));
    x->data[0] = -1; /* makes the kernel fail */
    for (int i = 0; i < 2; i++) {
        call_scale(x, 3, 0, &thrown);
        cr_assert_not_null(thrown);
        cr_expect_not_null(strstr(thrown, "x is -1, on purpose"), "%s", thrown);
    }
    x->data[0] = 0;
    cr_expect(gives(call_scale(x, 3, 0, &thrown), x, 3, 0));
    cr_expect_eq(fallback_calls, 0);
    end_binding();
}

Test(binding_stable, failing_fallback_is_an_exception_with_its_message)
{
    const char *thrown;
    aoticache_context_options never = {.miss = AOTICACHE_MISS_NEVER};
    begin_binding_with("", &never, false);
    cr_assert_eq(try_enable(SCALE), AOTICACHE_OK, "%s", error.message);
    fallback_fails = "index 7 is out of range";
    call_scale(x, 3, 4, &thrown);
    cr_assert_not_null(thrown);
    cr_expect_str_eq(thrown, "index 7 is out of range");
    end_binding();
}

Test(binding_stable, failed_compile_is_an_exception_only_where_it_is_asked_for)
{
    const char *thrown;
    aoticache_context_options fail = {.fail_calls = true};
    begin();
    atomic_store(&hook.fail_status, AOTICACHE_COMPILE_FAILED);
    cr_expect_eq(call_scale(x, 3, 4, &thrown), 77);
    end_binding();
    fixture_end();
    fixture_begin();
    begin_binding_with("", &fail, false);
    cr_assert_eq(try_enable(SCALE), AOTICACHE_OK, "%s", error.message);
    atomic_store(&hook.fail_status, AOTICACHE_COMPILE_FAILED);
    call_scale(x, 3, 4, &thrown);
    cr_assert_not_null(thrown);
    cr_expect_not_null(strstr(thrown, "this hook fails on purpose"), "%s", thrown);
    end_binding();
}

/* ---- values ---- */

static void fill_lists(uint64_t values[9], bool full)
{
    uint64_t factors[] = {bits_of(3), bits_of(4)}, others[] = {handle_of(x), handle_of(x)};
    uint64_t sizes[] = {5, (uint64_t)-6}, flags[] = {1, 0}, last[] = {0, full ? stand_in_box(handle_of(x)) : 0};
    values[0] = handle_of(x);
    values[1] = stand_in_list(factors, 2);
    values[2] = stand_in_list(others, 2);
    values[3] = full ? stand_in_box(stand_in_list(sizes, 2)) : 0;
    values[4] = stand_in_list(flags, 2);
    values[5] = full ? stand_in_box(stand_in_string("name")) : 0;
    values[6] = full ? stand_in_box(AOTICACHE_DTYPE_FLOAT32) : 0;
    values[7] = full ? stand_in_box((uint64_t)AOTICACHE_DEVICE_TYPE_CPU << 32 | UINT32_MAX) : 0;
    values[8] = stand_in_list(last, 2);
}

static AOTITorchError (*delete_tensor)(AtenTensorHandle tensor);
static int deleted;

static AOTITorchError count_delete(AtenTensorHandle tensor)
{
    deleted++;
    return delete_tensor(tensor);
}

/* Counts the handles that the binding deletes from here on. */
static void count_deletes(void)
{
    static aoticache_torch counting;
    counting = *binding->stable.torch;
    delete_tensor = counting.aoti_torch_delete_tensor_object;
    counting.aoti_torch_delete_tensor_object = count_delete;
    binding->stable.torch = &counting;
    deleted = 0;
}

Test(binding_stable, lists_optionals_and_strings_are_read_and_freed)
{
    uint64_t values[9];
    aoticache_stable_plan *plan;
    aoticache_stable_arguments arguments;
    begin_binding_with("", NULL, false);
    aoticache_schema *schema;
    count_deletes();
    cr_assert_eq(aoticache_schema_parse(LISTS, &schema, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_stable_plan_create(schema, &plan, &error), AOTICACHE_OK, "%s", error.message);
    fill_lists(values, true);
    cr_assert(aoticache_stable_read(&binding->stable, plan, values, &arguments));
    const aoticache_value *got = arguments.values;
    cr_expect_eq(got[0].as.tensor->ndim, 2);
    cr_expect(got[1].kind == AOTICACHE_VALUE_DOUBLE_LIST && got[1].count == 2 && got[1].as.doubles[1] == 4);
    cr_expect(got[2].kind == AOTICACHE_VALUE_TENSOR_LIST && got[2].count == 2 && got[2].as.tensors[1]->sizes[1] == 3);
    cr_expect(got[3].kind == AOTICACHE_VALUE_INT_LIST && got[3].count == 2 && got[3].as.ints[1] == -6);
    cr_expect(got[4].kind == AOTICACHE_VALUE_BOOL_LIST && got[4].as.bools[0] && !got[4].as.bools[1]);
    cr_expect(got[5].kind == AOTICACHE_VALUE_STRING && strcmp(got[5].as.string, "name") == 0);
    cr_expect(got[6].kind == AOTICACHE_VALUE_DTYPE && got[6].as.int_value == AOTICACHE_DTYPE_FLOAT32);
    cr_expect(got[7].kind == AOTICACHE_VALUE_DEVICE && got[7].as.device.type == 0 && got[7].as.device.index == -1);
    cr_expect(got[8].kind == AOTICACHE_VALUE_TENSOR_LIST && got[8].count == 2 && got[8].as.tensors[0] == NULL &&
              got[8].as.tensors[1]->strides[0] == 3);
    aoticache_stable_drop(plan, &arguments);
    cr_expect_eq(deleted, 0, "what the stack owns is its still");
    aoticache_stable_release(&binding->stable, plan, values, false);
    cr_expect_eq(deleted, 4);
    aoticache_stable_plan_free(plan);
    aoticache_schema_free(schema);
    end_binding();
}

static int lists_fallback(void *user, uint64_t *values, uint64_t num_inputs, uint64_t num_outputs, char *message,
                          size_t message_size)
{
    (void)num_inputs, (void)num_outputs, (void)message, (void)message_size;
    aoticache_stable_release(&binding->stable, *(aoticache_stable_plan **)user, values, false);
    atomic_fetch_add(&fallback_calls, 1);
    values[0] = 77;
    return 0;
}

/* If a list has a tensor that only PyTorch's kernel can serve, the stack does not change. */
Test(binding_stable, list_that_cannot_be_read_stays_the_stacks)
{
    float pair[2] = {1, 2};
    AtenTensorHandle complex;
    aoticache_schema *schema;
    aoticache_stable_plan *plan;
    aoticache_stable_arguments arguments;
    begin_binding_with("", NULL, false);
    count_deletes();
    cr_assert_eq(aoticache_schema_parse("test::op(Tensor[] list) -> Tensor", &schema, &error), AOTICACHE_OK);
    cr_assert_eq(aoticache_stable_plan_create(schema, &plan, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(torch->aoti_torch_create_tensor_from_blob(pair, 1, SIZES(1), SIZES(1), 0, AOTICACHE_DTYPE_COMPLEX64, 0,
                                                           0, &complex),
                 0);
    uint64_t items[] = {handle_of(x), (uint64_t)(uintptr_t)complex}, values[] = {stand_in_list(items, 2)};
    cr_expect_not(aoticache_stable_read(&binding->stable, plan, values, &arguments));
    cr_expect_eq(deleted, 0);
    aoticache_stable_release(&binding->stable, plan, values, false);
    cr_expect_eq(deleted, 2);
    aoticache_stable_plan_free(plan);
    aoticache_schema_free(schema);
    end_binding();
}

/* A hit takes the handles of all tensors, also of those in lists and boxes; a fallback gets everything unchanged. */
Test(binding_stable, calls_with_lists_are_served_and_fall_back)
{
    uint64_t values[9];
    begin_binding_with("-DINPUTS=4", NULL, false);
    count_deletes();
    aoticache_binding_operator_options options = operator_options(LISTS);
    aoticache_stable_plan *plan = NULL;
    options.fallback = lists_fallback;
    options.fallback_user = &plan;
    cr_assert_eq(aoticache_binding_enable(binding, &options, &op, &error), AOTICACHE_OK, "%s", error.message);
    plan = op->plan;
    for (int i = 0; i < 3; i++) { /* the first factor is the scale; the three other tensors are added */
        fill_lists(values, true);
        cr_assert_null(call_last(values, 9));
        cr_expect(gives(values[0], x, 3 + 3, 0));
    }
    cr_expect_eq(deleted, 0, "the kernel has taken all");
    fill_lists(values, false); /* one tensor less than the library takes */
    cr_assert_null(call_last(values, 9));
    cr_expect_eq(values[0], 77);
    cr_expect_eq(fallback_calls, 1);
    cr_expect_eq(deleted, 3);
    end_binding();
}

Test(binding_stable, what_cannot_be_told_apart_goes_to_the_fallback)
{
    const char *thrown;
    double number = 2;
    float pair[2] = {1, 2};
    begin();
    test_tensor scalar = {.data = NULL}, complex = {.data = NULL};
    cr_assert_eq(torch->aoti_torch_create_tensor_from_blob(&number, 0, NULL, NULL, 0, AOTICACHE_DTYPE_FLOAT64, 0, 0,
                                                           &scalar.view.handle),
                 0);
    cr_assert_eq(torch->aoti_torch_create_tensor_from_blob(pair, 1, SIZES(1), SIZES(1), 0, AOTICACHE_DTYPE_COMPLEX64, 0,
                                                           0, &complex.view.handle),
                 0);
    cr_expect_eq(call_scale(&scalar, 3, 4, &thrown), 77);
    cr_expect_eq(call_scale(&complex, 3, 4, &thrown), 77);
    cr_expect_eq(binding_counts().refused, 2);
    cr_expect_eq(binding_counts().holder.fallbacks, 0);
    cr_expect_eq(hook.compiles, 0);
    aoticache_tensor_free(scalar.view.handle);
    aoticache_tensor_free(complex.view.handle);
    end_binding();
}

Test(binding_stable, with_another_default_dtype_only_tensors_of_floats_are_served)
{
    const char *thrown;
    int32_t numbers[2] = {1, 2};
    begin();
    test_tensor integers = {.data = NULL};
    cr_assert_eq(torch->aoti_torch_create_tensor_from_blob(numbers, 1, SIZES(2), SIZES(1), 0, AOTICACHE_DTYPE_INT32, 0,
                                                           0, &integers.view.handle),
                 0);
    *(int *)dlsym(stand_in, "stand_in_settings") = AOTICACHE_BRIDGE_DEFAULT_DTYPE;
    cr_expect(gives(call_scale(x, 3, 4, &thrown), x, 3, 4));
    cr_expect_eq(call_scale(&integers, 3, 4, &thrown), 77);
    cr_expect_eq(binding_counts().refused, 1);
    aoticache_tensor_free(integers.view.handle);
    end_binding();
}

/* ---- enabling and disabling ---- */

static int other_fallback(void *user, uint64_t *values, uint64_t num_inputs, uint64_t num_outputs, char *message,
                          size_t message_size)
{
    (void)user, (void)values, (void)num_inputs, (void)num_outputs, (void)message, (void)message_size;
    cr_assert_fail("not this one");
    return 1;
}

Test(binding_stable, late_call_is_made_again_by_name)
{
    const char *thrown;
    uint64_t values[3] = {1, 2, 3};
    begin();
    cr_expect(gives(call_scale(x, 3, 4, &thrown), x, 3, 4));
    aoticache_stable_fn fn = STAND_IN(stand_in_library *, stand_in_last)->fn;
    aoticache_binding_disable(op);
    cr_expect_eq(STAND_IN_COUNT(libraries), 0);
    cr_expect_null(stand_in_call(fn, values, 3, 1));
    cr_expect_eq(values[0], 4242);
    cr_expect_eq(STAND_IN_COUNT(again), 1);
    cr_assert_eq(try_enable(SCALE), AOTICACHE_OK, "%s", error.message);
    cr_expect_eq(STAND_IN(stand_in_library *, stand_in_last)->fn, fn, "an operator keeps its function");
    cr_expect(gives(call_scale(x, 3, 4, &thrown), x, 3, 4));
    cr_expect_eq(binding_counts().holder.compiles, 0);
    end_binding();
}

Test(binding_stable, retired_operator_keeps_its_function_and_its_fallback)
{
    const char *thrown;
    begin();
    aoticache_stable_fn fn = STAND_IN(stand_in_library *, stand_in_last)->fn;
    cr_expect(gives(call_scale(x, 3, 4, &thrown), x, 3, 4));
    for (int turn = 1; turn <= 3; turn++) {
        aoticache_binding_retire(op);
        cr_expect_eq(STAND_IN_COUNT(libraries), 1);
        cr_expect_eq(call_scale(x, 3, 4, &thrown), 77);
        cr_expect_null(thrown);
        cr_expect_eq(fallback_calls, turn);
        aoticache_binding_operator_options options = operator_options(SCALE);
        options.fallback = other_fallback; /* PyTorch's kernel is our function, which this one would call */
        cr_assert_eq(aoticache_binding_enable(binding, &options, &op, &error), AOTICACHE_OK, "%s", error.message);
        cr_expect_eq(STAND_IN_COUNT(libraries), 1);
        cr_expect(gives(call_scale(x, 3, 4, &thrown), x, 3, 4));
        cr_expect_eq(binding_counts().holder.compiles, 0);
    }
    aoticache_binding_retire(op);
    fallback_fails = "index 7 is out of range";
    call_scale(x, 3, 4, &thrown);
    cr_assert_not_null(thrown);
    cr_expect_str_eq(thrown, "index 7 is out of range");
    fallback_fails = NULL;
    cr_assert_eq(try_enable(SCALE), AOTICACHE_OK, "%s", error.message);
    aoticache_binding_disable(op);
    cr_expect_eq(STAND_IN_COUNT(libraries), 0);
    uint64_t values[3] = {1, 2, 3};
    cr_expect_null(stand_in_call(fn, values, 3, 1));
    cr_expect_eq(STAND_IN_COUNT(again), 1);
    end_binding();
}

static void disable_now(void)
{
    aoticache_binding_disable(op);
}

Test(binding_stable, disabling_inside_of_its_fallback_does_not_wait_for_itself)
{
    const char *thrown;
    aoticache_context_options never = {.miss = AOTICACHE_MISS_NEVER};
    begin_binding_with("", &never, false);
    cr_assert_eq(try_enable(SCALE), AOTICACHE_OK, "%s", error.message);
    fallback_meanwhile = disable_now;
    cr_expect_eq(call_scale(x, 3, 4, &thrown), 77);
    cr_expect_eq(STAND_IN_COUNT(libraries), 0);
    end_binding();
}

static atomic_bool is_inside, may_go, is_disabled;

static void wait_inside(void)
{
    atomic_store(&is_inside, true);
    while (!atomic_load(&may_go))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    cr_expect_not(atomic_load(&is_disabled));
}

static void *call_in_thread(void *unused)
{
    const char *thrown;
    (void)unused;
    cr_expect_eq(call_scale(x, 3, 4, &thrown), 77);
    return NULL;
}

static void *disable_in_thread(void *unused)
{
    (void)unused;
    aoticache_binding_disable(op);
    atomic_store(&is_disabled, true);
    return NULL;
}

Test(binding_stable, disabling_waits_for_calls_inside)
{
    pthread_t caller, disabler;
    aoticache_context_options never = {.miss = AOTICACHE_MISS_NEVER};
    begin_binding_with("", &never, false);
    cr_assert_eq(try_enable(SCALE), AOTICACHE_OK, "%s", error.message);
    fallback_meanwhile = wait_inside;
    pthread_create(&caller, NULL, call_in_thread, NULL);
    while (!atomic_load(&is_inside))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    pthread_create(&disabler, NULL, disable_in_thread, NULL);
    while (STAND_IN_COUNT(libraries) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    cr_expect_not(atomic_load(&is_disabled));
    atomic_store(&may_go, true);
    pthread_join(caller, NULL);
    pthread_join(disabler, NULL);
    cr_expect(atomic_load(&is_disabled));
    end_binding();
}

/* A child does not have the threads that would return from its parent's calls. */
Test(binding_stable, child_of_a_fork_disables_without_its_parents_calls)
{
    pthread_t caller;
    int status;
    aoticache_context_options never = {.miss = AOTICACHE_MISS_NEVER};
    begin_binding_with("", &never, false);
    cr_assert_eq(try_enable(SCALE), AOTICACHE_OK, "%s", error.message);
    fallback_meanwhile = wait_inside;
    pthread_create(&caller, NULL, call_in_thread, NULL);
    while (!atomic_load(&is_inside))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    pid_t child = fork();
    if (child == 0) {
        const char *thrown;
        fallback_meanwhile = NULL;
        bool right = call_scale(x, 3, 4, &thrown) == 77;
        alarm(300);
        aoticache_binding_disable(op);
        _exit(right ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d", status);
    atomic_store(&may_go, true);
    pthread_join(caller, NULL);
    end_binding();
}

/* ---- refused ---- */

static void expect_refused(const char *schema, aoticache_status status, const char *word)
{
    cr_expect_eq(try_enable(schema), status, "%s: %s", schema, error.message);
    cr_expect_not_null(strstr(error.message, word), "%s: %s", schema, error.message);
    cr_expect_eq(STAND_IN_COUNT(libraries), 0);
}

Test(binding_stable, schemas_it_cannot_serve_are_refused_with_the_reason)
{
    begin_binding_with("", NULL, false);
    expect_refused("test::op(Tensor self, Scalar other) -> Tensor", AOTICACHE_UNSUPPORTED, "other");
    expect_refused("test::op(Tensor self, Generator? g=None) -> Tensor", AOTICACHE_UNSUPPORTED, "Generator?");
    expect_refused("test::op(Tensor self, int?[] list) -> Tensor", AOTICACHE_UNSUPPORTED, "int?[]");
    expect_refused("test::op_(Tensor(a!) self) -> Tensor(a!)", AOTICACHE_UNSUPPORTED, "writes to its arguments");
    expect_refused("test::op(Tensor(a) self) -> Tensor(a)", AOTICACHE_UNSUPPORTED, "view");
    expect_refused("test::op(Tensor self) -> int", AOTICACHE_UNSUPPORTED, "result 0 is int");
    expect_refused("test::op(Tensor self) -> Tensor[]", AOTICACHE_UNSUPPORTED, "list of tensors");
    expect_refused("test::op(int size) -> Tensor", AOTICACHE_UNSUPPORTED, "has no tensor arguments");
    expect_refused("test::op(Tensor self -> Tensor", AOTICACHE_INVALID, "column");
    end_binding();
}

Test(binding_stable, enabling_twice_is_refused_and_names_the_operator)
{
    aoticache_binding_operator *first;
    begin();
    first = op;
    cr_expect_eq(try_enable(SCALE), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "test::scale is already enabled for CPU"), "%s", error.message);
    op = first;
    cr_expect_eq(STAND_IN_COUNT(libraries), 1);
    end_binding();
}

Test(binding_stable, refusal_by_pytorch_leaves_nothing_behind)
{
    begin_binding_with("", NULL, false);
    STAND_IN_COUNT(fail_impl) = 1;
    expect_refused(SCALE, AOTICACHE_LOAD_FAILED, "PyTorch rejects a kernel for test::scale on CPU");
    STAND_IN_COUNT(fail_impl) = 0;
    cr_expect_eq(try_enable(SCALE), AOTICACHE_OK, "%s", error.message);
    end_binding();
}

Test(binding_stable, process_without_pytorch_is_told_so)
{
    aoticache_binding_options options = AOTICACHE_BINDING_OPTIONS_INIT;
    begin_binding_with("", NULL, false);
    aoticache_binding *other = NULL;
    options.context = eager;
    cr_expect_eq(aoticache_binding_create(&options, &other, &error), AOTICACHE_NOT_FOUND);
    cr_expect_not_null(strstr(error.message, "import torch"), "%s", error.message);
    options.torch_library = in_directory("libtorch_cpu.so");
    cr_expect_eq(aoticache_binding_create(&options, &other, &error), AOTICACHE_NOT_FOUND);
    options.torch_library = "libc.so.6";
    cr_expect_eq(aoticache_binding_create(&options, &other, &error), AOTICACHE_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "2.10"), "%s", error.message);
    options.context = NULL;
    cr_expect_eq(aoticache_binding_create(&options, &other, &error), AOTICACHE_INVALID);
    cr_expect_null(other);
    end_binding();
}

Test(binding_stable, pool_that_is_used_up_says_so)
{
    char schema[64];
    begin_binding_with("", NULL, false);
    for (int i = 0; i < AOTICACHE_STABLE_SLOTS; i++) {
        snprintf(schema, sizeof schema, "test::op%d(Tensor self) -> Tensor", i);
        cr_assert_eq(try_enable(schema), AOTICACHE_OK, "%d: %s", i, error.message);
        aoticache_stable_fn fn = STAND_IN(stand_in_library *, stand_in_last)->fn;
        cr_assert_eq(fn, aoticache_stable_functions[i]);
        cr_assert_eq(aoticache_registration_of_slot((uint32_t)i), op->registration);
        aoticache_binding_disable(op);
    }
    cr_expect_eq(try_enable("test::one_more(Tensor self) -> Tensor"), AOTICACHE_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "all 512 functions"), "%s", error.message);
    cr_expect_eq(try_enable("test::op7(Tensor self) -> Tensor"), AOTICACHE_OK, "%s", error.message);
    end_binding();
}
