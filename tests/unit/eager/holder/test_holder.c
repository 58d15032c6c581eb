/* Unit tests of eager/holder/holder.c: creation, the boxed call, what goes to the fallback, defaults. */
#include "eager/dispatch/schema/schema.h"
#include "tests/unit/fixtures/holder_fixture.h"

#include <pthread.h>
#include <sys/wait.h>

#include "cache/stats/statistics.h"
#include "eager/holder/dispatch_holder.h"
#include "eager/holder/holder_internal.h"

TestSuite(holder, .init = fixture_begin, .fini = fixture_end, .timeout = 300);

/* ---- hits, misses, publication ---- */

Test(holder, miss_is_compiled_then_hit)
{
    begin_scale();
    cr_expect(scales(x, 2, 0), "%s", error.message);
    aoticache_holder_counts counts = counts_now();
    cr_expect_eq(counts.misses, 1);
    cr_expect_eq(counts.compiles, 1);
    cr_expect_eq(counts.loads, 1);
    cr_expect_eq(counts.hits, 0);
    for (int i = 0; i < 3; i++)
        cr_expect(scales(x, 2, 0));
    cr_expect(scales(x, 3, 0));
    cr_expect(scales(x, 3, 4));
    test_tensor *other = tensor_create(2, SIZES(3, 2));
    cr_expect(scales(other, 3, 4));
    counts = counts_now();
    cr_expect_eq(counts.hits, 3);
    cr_expect_eq(counts.misses, 4);
    cr_expect_eq(counts.entries, 4);
    cr_expect_eq(counts.libraries, 4);
    cr_expect_eq(counts.loaded, 4);
    cr_expect_eq(counts.fallbacks, 0);
    cr_expect_eq(hook.compiles, 4);
    tensor_free(other);
    end_all();
}

#define CALLERS 4
#define CALLS 50000

static void *call_many(void *unused)
{
    aoticache_error own_error;
    for (int i = 0; i < CALLS; i++) {
        aoticache_value values[PLACES] = {VALUE_TENSOR(x), VALUE_DOUBLE(2), VALUE_INT(0)};
        aoticache_stack own = {.values = values, .count = 3, .capacity = PLACES};
        cr_assert_eq(aoticache_holder_call(holder, 0, &own, &own_error), AOTICACHE_OK);
        aoticache_stack_drop(&own, 0);
    }
    return unused;
}

static void call_from_threads(void)
{
    pthread_t threads[CALLERS];
    for (int i = 0; i < CALLERS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, call_many, NULL), 0);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
}

static uint64_t hits_in_the_index(void)
{
    aoticache_statistics statistics;
    cr_assert_eq(aoticache_context_flush(eager, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_cache_get_statistics(cache, NULL, &statistics, &error), AOTICACHE_OK, "%s", error.message);
    return statistics.counters.hits_loaded;
}

Test(holder, hits_of_several_threads_are_counted_exactly)
{
    begin_scale();
    cr_expect(scales(x, 2, 0), "%s", error.message);
    call_from_threads();
    cr_expect_eq(counts_now().hits, CALLERS * CALLS);
    cr_expect_eq(hits_in_the_index(), CALLERS * CALLS);
    call_from_threads();
    pid_t child = fork();
    if (child == 0) { /* counts its own calls, not those of the parent */
        for (int i = 0; i < 5; i++)
            scales(x, 2, 0);
        _exit(aoticache_context_flush(eager, NULL) == AOTICACHE_OK ? 0 : 1);
    }
    int status = -1;
    cr_expect_eq(waitpid(child, &status, 0), child);
    cr_expect_eq(status, 0);
    cr_expect_eq(hits_in_the_index(), 2 * CALLERS * CALLS + 5);
    end_all();
}

Test(holder, second_one_is_filled_from_the_index)
{
    begin_scale();
    cr_expect(scales(x, 2, 0) && scales(x, 3, 0) && scales(x, 3, 1));
    aoticache_holder_unref(holder);
    holder = make_holder(SCALE);
    cr_expect_eq(counts_now().entries, 3);
    cr_expect_eq(counts_now().loaded, 0);
    cr_expect(scales(x, 2, 0) && scales(x, 3, 0) && scales(x, 3, 1));
    aoticache_holder_counts counts = counts_now();
    cr_expect_eq(counts.loads, 3);
    cr_expect_eq(counts.misses, 0);
    cr_expect_eq(counts.hits, 3);
    cr_expect_eq(hook.compiles, 3);
    end_all();
}

Test(holder, default_given_or_not_is_the_same_kernel)
{
    begin_scale();
    places[0] = VALUE_TENSOR(x);
    stack.count = 1;
    cr_assert_eq(aoticache_holder_push_defaults(holder, 1, &stack, &error), AOTICACHE_OK);
    cr_assert_eq(stack.count, 3);
    cr_expect_eq(places[1].as.double_value, 2.0);
    cr_expect_eq(places[2].kind, AOTICACHE_VALUE_INT);
    cr_assert_eq(aoticache_holder_call(holder, 0, &stack, &error), AOTICACHE_OK, "%s", error.message);
    cr_expect(output_is(&places[0], x, 2, 0));
    aoticache_stack_drop(&stack, 0);
    cr_expect(scales(x, 2, 0));
    cr_expect_eq(hook.compiles, 1);
    stack.count = 0;
    cr_expect_eq(aoticache_holder_push_defaults(holder, 0, &stack, &error), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "self"), "%s", error.message);
    cr_expect_eq(stack.count, 0);
    cr_expect_eq(aoticache_holder_push_defaults(holder, 4, &stack, &error), AOTICACHE_INVALID);
    end_all();
}

Test(holder, call_with_arrays_fills_in_defaults_and_checks_both_counts)
{
    aoticache_value arguments[3], result;
    begin_scale();
    arguments[0] = VALUE_TENSOR(x);
    cr_assert_eq(aoticache_holder_call_values(holder, 0, arguments, 1, &result, 1, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_expect(output_is(&result, x, 2, 0));
    aoticache_tensor_free(result.as.output);
    arguments[1] = aoticache_value_of_double(3);
    arguments[2] = aoticache_value_of_int(1);
    cr_assert_eq(aoticache_holder_call_values(holder, 0, arguments, 3, &result, 1, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_expect(output_is(&result, x, 3, 1));
    cr_expect_eq(arguments[0].kind, AOTICACHE_VALUE_TENSOR, "arguments are only read");
    aoticache_tensor_free(result.as.output);
    const uint64_t compiles = hook.compiles;
    cr_expect_eq(aoticache_holder_call_values(holder, 0, arguments, 4, &result, 1, &error), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "takes 3 arguments and has 1 results; 4 and 1"), "%s", error.message);
    cr_expect_eq(aoticache_holder_call_values(holder, 0, arguments, 1, &result, 0, &error), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_holder_call_values(holder, 0, NULL, 0, &result, 1, &error), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "self"), "%s", error.message);
    cr_expect_eq(aoticache_holder_call_values(holder, 0, NULL, 1, &result, 1, &error), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_holder_call_values(holder, 0, arguments, 1, NULL, 1, &error), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_holder_call_values(NULL, 0, arguments, 1, &result, 1, &error), AOTICACHE_INVALID);
    cr_expect_eq(hook.compiles, compiles);
    end_all();
}

/* ---- the stack ---- */

Test(holder, call_replaces_only_its_arguments)
{
    begin_scale();
    aoticache_value values[] = {VALUE_INT(77), VALUE_TENSOR(x), VALUE_DOUBLE(2), VALUE_INT(0)};
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(call_values(holder, values, 4), AOTICACHE_OK);
        cr_assert_eq(stack.count, 2);
        cr_expect_eq(places[0].as.int_value, 77);
        cr_expect(output_is(&places[1], x, 2, 0));
        aoticache_stack_drop(&stack, 0);
    }
    end_all();
}

Test(holder, several_results)
{
    begin_with("-DOUTPUTS=3", false);
    aoticache_context_options options = eager_options();
    make_eager(&options);
    holder = make_holder("test::three(Tensor self) -> (Tensor, Tensor, Tensor)");
    aoticache_value value = VALUE_TENSOR(x);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(call_values(holder, &value, 1), AOTICACHE_OK, "%s", error.message);
        cr_assert_eq(stack.count, 3);
        for (int k = 0; k < 3; k++)
            cr_expect(output_is(&places[k], x, 2, k));
        aoticache_stack_drop(&stack, 0);
    }
    stack.capacity = 2; /* no space for the results: the stack does not change, and no fallback is called */
    cr_expect_eq(call_values(holder, &value, 1), AOTICACHE_INVALID);
    cr_expect_eq(stack.count, 1);
    cr_expect_eq(places[0].as.tensor, &x->view);
    end_all();
}

Test(holder, list_result_is_one_value)
{
    begin_with("-DOUTPUTS=3", false);
    aoticache_context_options options = eager_options();
    make_eager(&options);
    holder = make_holder("test::three(Tensor self) -> Tensor[]");
    aoticache_value value = VALUE_TENSOR(x);
    cr_assert_eq(call_values(holder, &value, 1), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(stack.count, 1);
    cr_assert_eq(places[0].kind, AOTICACHE_VALUE_OUTPUT_LIST);
    cr_assert_eq(places[0].count, 3);
    for (int k = 0; k < 3; k++) {
        aoticache_value one = {.kind = AOTICACHE_VALUE_OUTPUT, .as.output = places[0].as.outputs[k]};
        cr_expect(output_is(&one, x, 2, k));
    }
    aoticache_stack_drop(&stack, 0);
    end_all();
}

Test(holder, failing_kernel_leaves_the_stack)
{
    begin_scale();
    for (int i = 0; i < 2; i++) { /* for the first call and for a hit */
        x->data[0] = -1;
        aoticache_value values[] = {VALUE_TENSOR(x), VALUE_DOUBLE(2), VALUE_INT(0)};
        cr_expect_eq(call_values(holder, values, 3), AOTICACHE_RUN_FAILED);
        cr_expect_not_null(strstr(error.message, "on purpose"), "%s", error.message);
        cr_assert_eq(stack.count, 3);
        cr_expect_eq(places[0].as.tensor, &x->view);
        cr_expect_eq(places[1].as.double_value, 2);
        x->data[0] = 0;
        cr_expect(scales(x, 2, 0));
    }
    cr_expect_eq(fallbacks, 0);
    end_all();
}

Test(holder, wrong_arguments_are_named)
{
    begin_scale();
    aoticache_value few[] = {VALUE_TENSOR(x), VALUE_DOUBLE(2)};
    cr_expect_eq(call_values(holder, few, 2), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "3 arguments, but 2"), "%s", error.message);
    aoticache_value wrong[] = {VALUE_TENSOR(x), VALUE_STRING("two"), VALUE_INT(0)};
    cr_expect_eq(call_values(holder, wrong, 3), AOTICACHE_INVALID);
    cr_expect(strstr(error.message, "factor") && strstr(error.message, "string") && strstr(error.message, "float"),
              "%s", error.message);
    cr_expect_eq(stack.count, 3);
    /* A value that cannot be packed is wrong too. */
    wrong[1] = (aoticache_value){.kind = AOTICACHE_VALUE_GENERATOR};
    cr_expect_eq(call_values(holder, wrong, 3), AOTICACHE_INVALID);
    cr_expect(strstr(error.message, "factor") && strstr(error.message, "generator"), "%s", error.message);
    wrong[1] = VALUE_DOUBLE(1);
    wrong[0] = VALUE_NONE;
    cr_expect_eq(call_values(holder, wrong, 3), AOTICACHE_INVALID);
    cr_expect(strstr(error.message, "self") && strstr(error.message, "none"), "%s", error.message);
    wrong[0] = (aoticache_value){.kind = AOTICACHE_VALUE_TENSOR};
    cr_expect_eq(call_values(holder, wrong, 3), AOTICACHE_INVALID);
    cr_expect_eq(fallbacks, 0);
    end_all();
}

Test(holder, tensor_lists_and_optional_tensors_are_inputs_in_order)
{
    begin_with("-DINPUTS=3", false);
    aoticache_context_options options = eager_options();
    make_eager(&options);
    holder = make_holder("test::sum(Tensor?[] tensors, Tensor? more=None) -> Tensor");
    const aoticache_tensor_view *views[] = {&x->view, NULL, &x->view};
    aoticache_value values[] = {{.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = 3, .as.tensors = views},
                                VALUE_TENSOR(x)};
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(call_values(holder, values, 2), AOTICACHE_OK, "%s", error.message);
        cr_expect(output_is(&places[0], x, 4, 0));
        aoticache_stack_drop(&stack, 0);
    }
    cr_expect_eq(counts_now().hits, 1);
    /* Two tensors for a library with three inputs: none serves these arguments. */
    values[1] = VALUE_NONE;
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(call_values(holder, values, 2), AOTICACHE_OK);
        cr_expect(output_is(&places[0], x, 1, FALLBACK_ADDS));
        aoticache_stack_drop(&stack, 0);
    }
    cr_expect_eq(fallbacks, 2);
    end_all();
}

Test(holder, absent_tensor_in_a_list_of_tensors_is_refused)
{
    begin_with("", false);
    aoticache_context_options options = eager_options();
    make_eager(&options);
    holder = make_holder("test::sum(Tensor[] tensors) -> Tensor");
    const aoticache_tensor_view *views[] = {&x->view, NULL};
    aoticache_value value = {.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = 2, .as.tensors = views};
    cr_expect_eq(call_values(holder, &value, 1), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "tensors"), "%s", error.message);
    end_all();
}

/* ---- the fallback ---- */

Test(holder, what_no_kernel_takes_goes_to_the_fallback)
{
    begin_with("", false);
    aoticache_context_options options = eager_options();
    make_eager(&options);
    holder = make_holder("test::random(Tensor self, Generator? generator=None, str? text=None) -> Tensor");
    aoticache_value values[] = {VALUE_TENSOR(x), VALUE_NONE, VALUE_NONE};
    cr_expect_eq(call_values(holder, values, 3), AOTICACHE_OK, "%s", error.message);
    aoticache_stack_drop(&stack, 0);
    cr_expect_eq(fallbacks, 0);
    values[1] = (aoticache_value){.kind = AOTICACHE_VALUE_GENERATOR};
    cr_expect_eq(call_values(holder, values, 3), AOTICACHE_OK, "%s", error.message);
    aoticache_stack_drop(&stack, 0);
    cr_expect_eq(fallbacks, 1);
    values[1] = VALUE_NONE;
    char large[5000];
    memset(large, 'a', sizeof large);
    large[sizeof large - 1] = '\0';
    values[2] = VALUE_STRING(large);
    cr_expect_eq(call_values(holder, values, 3), AOTICACHE_OK);
    aoticache_stack_drop(&stack, 0);
    cr_expect_eq(fallbacks, 2);
    values[2] = VALUE_NONE;
    aoticache_tensor_view view = x->view;
    values[0].as.tensor = &view;
    view.device = (aoticache_device){.type = AOTICACHE_DEVICE_TYPE_CUDA, .index = 0};
    cr_expect_eq(call_values(holder, values, 3), AOTICACHE_OK);
    aoticache_stack_drop(&stack, 0);
    cr_expect_eq(fallbacks, 3);
    view = x->view;
    view.layout = AOTICACHE_LAYOUT_SPARSE_COO;
    cr_expect_eq(call_values(holder, values, 3), AOTICACHE_OK);
    aoticache_stack_drop(&stack, 0);
    cr_expect_eq(counts_now().fallbacks, 4);
    cr_expect_eq(hook.compiles, 1);
    end_all();
}

Test(holder, requires_grad_goes_to_the_fallback_unless_served)
{
    begin_scale();
    x->view.requires_grad = true;
    cr_expect(falls_back(x, 2, 0));
    cr_expect_eq(hook.compiles, 0);
    aoticache_holder_unref(holder);
    aoticache_context_free(eager);
    aoticache_context_options options = eager_options();
    options.serve_requires_grad = true;
    make_eager(&options);
    holder = make_holder(SCALE);
    cr_expect(scales(x, 2, 0));
    x->view.requires_grad = false;
    cr_expect(scales(x, 2, 0));
    cr_expect_eq(hook.compiles, 2, "it is part of the metadata");
    end_all();
}

Test(holder, key_sets_of_tensors_are_metadata)
{
    begin_scale();
    cr_expect(scales(x, 2, 0));
    x->view.dispatch_key_set = 0x8001;
    cr_expect(scales(x, 2, 0));
    cr_expect_eq(hook.compiles, 2);
    end_all();
}

Test(holder, without_a_fallback_the_reason_is_the_error)
{
    begin_with("", false);
    aoticache_context_options options = eager_options();
    aoticache_holder_options holder_says = holder_options(SCALE);
    make_eager(&options);
    holder_says.fallback = NULL;
    cr_assert_eq(aoticache_holder_create(eager, &holder_says, &holder, &error), AOTICACHE_OK);
    hook.fail_status = AOTICACHE_COMPILE_FAILED;
    aoticache_value values[] = {VALUE_TENSOR(x), VALUE_DOUBLE(2), VALUE_INT(0)};
    cr_expect_eq(call_values(holder, values, 3), AOTICACHE_COMPILE_FAILED);
    cr_expect_not_null(strstr(error.message, "on purpose"), "%s", error.message);
    cr_expect_eq(stack.count, 3);
    x->view.requires_grad = true;
    cr_expect_eq(call_values(holder, values, 3), AOTICACHE_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "requires gradients"), "%s", error.message);
    end_all();
}

/* ---- creation ---- */

static aoticache_status create_with(const char *schema, bool allow_mutation)
{
    aoticache_holder_options options = holder_options(schema);
    aoticache_holder *made = NULL;
    options.allow_mutation = allow_mutation;
    aoticache_status status = aoticache_holder_create(eager, &options, &made, &error);
    aoticache_holder_unref(made);
    return status;
}

Test(holder, operators_that_kernels_cannot_be_are_refused)
{
    begin_scale();
    cr_expect_eq(create_with("aten::add_(Tensor(a!) self, Tensor other) -> Tensor(a!)", false), AOTICACHE_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "writes to its arguments"), "%s", error.message);
    cr_expect_not_null(strstr(error.message, "set options.in_place"), "%s", error.message);
    cr_expect_null(strstr(error.message, "allow_mutation"), "%s", error.message);
    cr_expect_eq(create_with("aten::add_(Tensor(a!) self, Tensor other) -> Tensor(a!)", true), AOTICACHE_OK);
    cr_expect_eq(create_with("aten::t(Tensor(a) self) -> Tensor(a)", false), AOTICACHE_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "view"), "%s", error.message);
    cr_expect_null(strstr(error.message, "allow_mutation"), "%s", error.message);
    cr_expect_eq(create_with("test::slip(tensor self) -> Tensor", false), AOTICACHE_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "did you mean Tensor?"), "%s", error.message);
    cr_expect_eq(create_with("test::slip(Tensor self, flot by) -> Tensor", false), AOTICACHE_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "(by) is flot, which kernel libraries do not accept; did you mean float?"),
                       "%s", error.message);
    cr_expect_eq(create_with("test::slip(Tensor self) -> tensor", false), AOTICACHE_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "did you mean Tensor?"), "%s", error.message);
    cr_expect_eq(create_with("test::size(Tensor self) -> int", false), AOTICACHE_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "int"), "%s", error.message);
    cr_expect_eq(create_with("test::none(Tensor self) -> ()", false), AOTICACHE_UNSUPPORTED);
    cr_expect_eq(create_with("test::many(Tensor self, ...) -> Tensor", false), AOTICACHE_UNSUPPORTED);
    cr_expect_eq(create_with("test::stream(Tensor self, Stream s) -> Tensor", false), AOTICACHE_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "(s)"), "%s", error.message);
    cr_expect_eq(create_with("test::bad(Tensor self -> Tensor", false), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "column"), "%s", error.message);
    end_all();
}

Test(holder, options_are_checked)
{
    begin_scale();
    aoticache_holder *made = NULL;
    aoticache_holder_options options = AOTICACHE_HOLDER_OPTIONS_INIT;
    cr_expect_eq(aoticache_holder_create(eager, &options, &made, &error), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_holder_create(NULL, &options, &made, &error), AOTICACHE_INVALID);
    aoticache_context *other = NULL;
    aoticache_context_options wrong = eager_options();
    wrong.cache = NULL;
    cr_expect_eq(aoticache_context_create(&wrong, &other, &error), AOTICACHE_INVALID);
    wrong = eager_options();
    wrong.miss = 7;
    cr_expect_eq(aoticache_context_create(&wrong, &other, &error), AOTICACHE_INVALID);
    wrong = eager_options();
    wrong.environment = (const char *const[]){"framework", NULL};
    cr_expect_eq(aoticache_context_create(&wrong, &other, &error), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "framework"), "%s", error.message);
    cr_expect_null(other);
    cr_expect_str_eq(holder->op, "test::scale");
    cr_expect_str_eq(aoticache_holder_schema(holder),
                     "test::scale(Tensor self, float factor=2., *, int offset=0) -> Tensor", "as PyTorch prints it");
    end_all();
}

Test(holder, environment_of_a_host_without_hook_finds_the_hooks_entries)
{
    begin_scale();
    cr_expect(scales(x, 2, 0));
    aoticache_holder_unref(holder);
    aoticache_context_free(eager);
    aoticache_context_options options = eager_options();
    options.hook = NULL;
    options.environment = (const char *const[]){"framework=patched 1", NULL};
    make_eager(&options);
    holder = make_holder(SCALE);
    cr_expect_eq(counts_now().entries, 1);
    cr_expect(scales(x, 2, 0));
    cr_expect(falls_back(x, 3, 0));
    aoticache_holder_unref(holder);
    aoticache_context_free(eager);
    options.environment = (const char *const[]){"framework=other", NULL};
    make_eager(&options);
    holder = make_holder(SCALE);
    cr_expect_eq(counts_now().entries, 0);
    cr_expect(falls_back(x, 2, 0));
    end_all();
}

Test(holder, kernels_of_the_c_hook)
{
    begin_with("", false);
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *c_hook;
    aoticache_context_options says = eager_options();
    cr_assert_eq(aoticache_hook_create_c(&options, &c_hook, &error), AOTICACHE_OK, "%s", error.message);
    says.hook = c_hook;
    make_eager(&says);
    holder = make_holder("aten::neg(Tensor self) -> Tensor");
    aoticache_value value = VALUE_TENSOR(x);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(call_values(holder, &value, 1), AOTICACHE_OK, "%s", error.message);
        cr_expect(output_is(&places[0], x, -1, 0));
        aoticache_stack_drop(&stack, 0);
    }
    cr_expect_eq(counts_now().hits, 1);
    /* An operator that this hook has no source for. */
    aoticache_holder *other = make_holder("aten::unheard(Tensor self) -> Tensor");
    cr_expect_eq(call_values(other, &value, 1), AOTICACHE_OK, "%s", error.message);
    cr_expect(output_is(&places[0], x, 1, FALLBACK_ADDS));
    aoticache_stack_drop(&stack, 0);
    aoticache_holder_unref(other);
    end_all();
    aoticache_hook_free(c_hook);
}
