/*
 * Unit tests of numbers that differ from call to call: when a library takes them as inputs, what it serves, which are
 * not substituted.
 */
#include "tests/unit/fixtures/holder_fixture.h"

#include <math.h>

TestSuite(holder_numbers, .init = fixture_begin, .fini = fixture_end, .timeout = 300);

static aoticache_context_options number_options(aoticache_miss miss)
{
    aoticache_context_options options = eager_options();
    options.dynamic = AOTICACHE_DYNAMIC_AFTER;
    options.dynamic_after = 4;
    options.miss = miss;
    return options;
}

/* Begins; misses wait, so the kernel exists when a call returns. */
static void begin_numbers(bool dynamic)
{
    if (!patched_open_numbers(test_directory, dynamic, &hook))
        cr_skip_test("there is no C compiler");
    cache = open_cache();
    x = tensor_create(2, SIZES(2, 3));
    atomic_store(&fallbacks, 0);
    atomic_store(&warnings, 0);
    aoticache_context_options options = number_options(AOTICACHE_MISS_WAIT);
    make_eager(&options);
    holder = make_holder(SCALE);
}

/* Begins with another context on the same cache. */
static void begin_anew(const aoticache_context_options *options)
{
    aoticache_holder_unref(holder);
    aoticache_context_free(eager);
    make_eager(options);
    holder = make_holder(SCALE);
}

/* Calls with several values; the first three get their own libraries. */
static void ask_for_values(int count)
{
    for (int i = 0; i < count; i++)
        cr_expect(scales(x, 1.5 + i, 0), "%d: %s", i, error.message);
}

Test(holder_numbers, one_library_serves_a_number_that_keeps_changing)
{
    begin_numbers(false);
    for (int i = 0; i < 40; i++)
        cr_expect(scales(x, 1.5 + i, 3), "%d: %s", i, error.message);
    cr_expect_eq(hook.compiles, 4, "three values have libraries of their own, all others share one");
    cr_expect_eq(hook.number_compiles, 1);
    for (int i = 40; i-- > 0;)
        cr_expect(scales(x, 1.5 + i, 3), "%d: %s", i, error.message);
    cr_expect_eq(hook.compiles, 4);
    cr_expect_eq(counts_now().hits, 40 - 4 + 40);
    cr_expect_eq(fallbacks, 0);
    end_all();
}

Test(holder_numbers, such_a_library_serves_all_shapes_where_the_hook_can)
{
    begin_numbers(true);
    for (int i = 0; i < 8; i++) {
        test_tensor *tensor = tensor_create(2, SIZES(2 + i, 3 + i));
        for (int k = 0; k < 6; k++)
            cr_expect(scales(tensor, 1.5 + k, 0), "%d, %d: %s", i, k, error.message);
        tensor_free(tensor);
    }
    cr_expect_eq(hook.number_compiles, 1);
    end_all();
}

Test(holder_numbers, the_next_process_knows_from_the_index)
{
    begin_numbers(false);
    ask_for_values(5);
    cr_expect_eq(hook.compiles, 4);
    aoticache_context_options options = number_options(AOTICACHE_MISS_NEVER);
    begin_anew(&options);
    for (int i = 0; i < 20; i++)
        cr_expect(scales(x, 100 + i, 0), "%s", error.message);
    cr_expect(scales(x, 1.5, 0), "the libraries with a value in them are there as well: %s", error.message);
    cr_expect_eq(hook.compiles, 4);
    cr_expect_eq(counts_now().misses, 0);
    end_all();
}

Test(holder_numbers, values_in_the_index_count_too)
{
    begin_numbers(false);
    ask_for_values(3);
    aoticache_context_options options = number_options(AOTICACHE_MISS_WAIT);
    begin_anew(&options);
    cr_expect(scales(x, 10, 0), "%s", error.message);
    cr_expect_eq(hook.compiles, 4);
    cr_expect_eq(hook.number_compiles, 1);
    end_all();
}

/* A hook without support for this is not asked, and nothing is substituted if each shape must have its own library. */
Test(holder_numbers, only_where_hook_and_policy_say_so)
{
    begin_with("", false);
    aoticache_context_options options = number_options(AOTICACHE_MISS_WAIT);
    make_eager(&options);
    holder = make_holder(SCALE);
    ask_for_values(6);
    cr_expect_eq(hook.compiles, 6);
    end_all();

    begin_numbers(false);
    options = number_options(AOTICACHE_MISS_WAIT);
    options.dynamic = AOTICACHE_DYNAMIC_NEVER;
    begin_anew(&options);
    for (int i = 0; i < 6; i++)
        cr_expect(scales(x, 10.5 + i, 0), "%s", error.message);
    cr_expect_eq(hook.number_compiles, 0);
    end_all();
}

Test(holder_numbers, a_hook_that_cannot_is_asked_once)
{
    begin_numbers(false);
    ask_for_values(3);
    hook.number_fail_status = AOTICACHE_UNSUPPORTED;
    cr_expect(falls_back(x, 10, 0), "%s", error.message);
    cr_expect_eq(hook.begun, 4);
    for (int i = 0; i < 4; i++)
        cr_expect(scales(x, 11 + i, 0), "%s", error.message);
    cr_expect_eq(hook.begun, 8);
    cr_expect_eq(hook.compiles, 7);
    end_all();
}

/* A call that has no other kernel gets an exact one in the same call. */
Test(holder_numbers, without_a_fallback_the_exact_library_is_next)
{
    begin_numbers(false);
    aoticache_holder_unref(holder);
    aoticache_holder_options options = holder_options(SCALE);
    options.fallback = NULL;
    cr_assert_eq(aoticache_holder_create(eager, &options, &holder, &error), AOTICACHE_OK, "%s", error.message);
    ask_for_values(3);
    hook.number_fail_status = AOTICACHE_COMPILE_FAILED;
    for (int i = 0; i < 3; i++)
        cr_expect(scales(x, 10 + i, 0), "%s", error.message);
    cr_expect_eq(hook.begun, 7, "one was tried");
    cr_expect_eq(hook.compiles, 6);
    end_all();
}

/*
 * Values that PyTorch refuses for some dtypes or handles specially, and values that are not numbers, are compiled in as
 * before.
 */
Test(holder_numbers, some_values_are_not_substituted)
{
    begin_numbers(false);
    ask_for_values(5);
    cr_expect_eq(hook.number_compiles, 1);
    const double others[] = {65505, -1e30, INFINITY, NAN, 0};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        aoticache_value values[] = {VALUE_TENSOR(x), VALUE_DOUBLE(others[i]), VALUE_INT(0)};
        cr_expect_eq(call_values(holder, values, 3), AOTICACHE_OK, "%s", error.message);
        aoticache_stack_drop(&stack, 0);
        cr_expect_eq(hook.compiles, (int)(4 + i + 1));
    }
    cr_expect_eq(hook.number_compiles, 1);
    end_all();
}

static int32_t kind_seen;
static double value_seen;

static aoticache_status look(void *user, uint64_t key_set, aoticache_stack *called, aoticache_error *ret_error)
{
    const aoticache_value *factor = &called->values[called->count - 2];
    kind_seen = factor->kind;
    value_seen = factor->as.double_value;
    return fall_back(user, key_set, called, ret_error);
}

Test(holder_numbers, the_fallback_sees_the_number)
{
    static size_t arguments = 3;
    begin_numbers(false);
    ask_for_values(3);
    aoticache_holder_unref(holder);
    aoticache_context_free(eager);
    aoticache_context_options options = number_options(AOTICACHE_MISS_BACKGROUND);
    make_eager(&options);
    aoticache_holder_options made = holder_options(SCALE);
    made.fallback = look;
    made.fallback_user = &arguments;
    cr_assert_eq(aoticache_holder_create(eager, &made, &holder, &error), AOTICACHE_OK, "%s", error.message);
    hook.is_shut = true;
    for (int i = 0; i < 3; i++) {
        kind_seen = -1;
        cr_expect(falls_back(x, 10.5 + i, 0), "%s", error.message);
        cr_expect_eq(kind_seen, AOTICACHE_VALUE_DOUBLE);
        cr_expect_eq(value_seen, 10.5 + i);
    }
    hook.is_shut = false;
    cr_assert_eq(aoticache_context_wait(eager, 60000, &error), AOTICACHE_OK, "%s", error.message);
    cr_expect(scales(x, 20.5, 0), "%s", error.message);
    cr_expect_eq(hook.number_compiles, 1);
    end_all();
}

Test(holder_numbers, exponents_are_not_substituted)
{
    begin_numbers(false);
    aoticache_holder_unref(holder);
    holder = make_holder("test::scale(Tensor self, float exponent=2.0, *, int offset=0) -> Tensor");
    ask_for_values(6);
    cr_expect_eq(hook.compiles, 6);
    cr_expect_eq(hook.number_compiles, 0);
    end_all();
}

/* A call whose arguments do not match the schema is still refused. */
Test(holder_numbers, a_tensor_of_the_caller_is_no_number)
{
    begin_numbers(false);
    aoticache_value values[] = {VALUE_TENSOR(x), VALUE_TENSOR(x), VALUE_INT(0)};
    cr_expect_eq(call_values(holder, values, 3), AOTICACHE_INVALID);
    ask_for_values(5);
    cr_expect_eq(hook.number_compiles, 1);
    cr_expect_eq(call_values(holder, values, 3), AOTICACHE_INVALID, "also where numbers are substituted");
    end_all();
}

enum { THREADS = 4, CALLS = 2000 };

static void *call_often(void *user)
{
    const double first = *(const double *)user;
    for (int i = 0; i < CALLS; i++) {
        aoticache_value own[PLACES] = {VALUE_TENSOR(x), VALUE_DOUBLE(first + i % 100), VALUE_INT(0)};
        aoticache_stack called = {.values = own, .count = 3, .capacity = PLACES};
        aoticache_error failed;
        if (aoticache_holder_call(holder, 0, &called, &failed) != AOTICACHE_OK || called.count != 1 ||
            !output_is(&own[0], x, first + i % 100, 0))
            return user;
        aoticache_stack_drop(&called, 0);
    }
    return NULL;
}

/* Each thread substitutes its own tensors. */
Test(holder_numbers, threads_do_not_see_each_others_numbers)
{
    begin_numbers(false);
    ask_for_values(5);
    pthread_t threads[THREADS];
    double first[THREADS];
    for (int i = 0; i < THREADS; i++) {
        first[i] = 1000 * (i + 1);
        cr_assert_eq(pthread_create(&threads[i], NULL, call_often, &first[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        cr_expect_null(wrong, "thread %d", i);
    }
    end_all();
}
