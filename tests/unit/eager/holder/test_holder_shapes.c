/* Unit tests of the holder with dynamic libraries: when they are made, what they serve, which kernel comes first. */
#include "tests/unit/fixtures/holder_fixture.h"
#include "cache/gc/collect.h"

TestSuite(holder_shapes, .init = fixture_begin, .fini = fixture_end, .timeout = 300);

static void begin_dynamic(aoticache_dynamic dynamic, uint32_t after, aoticache_miss miss)
{
    begin_with("", true);
    aoticache_context_options options = eager_options();
    options.dynamic = dynamic;
    options.dynamic_after = after;
    options.miss = miss;
    make_eager(&options);
    holder = make_holder(SCALE);
}

static bool scales_shape(int64_t rows, int64_t columns, double factor, int64_t offset)
{
    test_tensor *tensor = tensor_create(2, SIZES(rows, columns));
    bool right = scales(tensor, factor, offset);
    tensor_free(tensor);
    return right;
}

Test(holder_shapes, sweep_is_served_by_a_handful)
{
    begin_dynamic(AOTICACHE_DYNAMIC_AFTER, 4, AOTICACHE_MISS_WAIT);
    for (int64_t i = 0; i < 200; i++)
        cr_expect(scales_shape(2 + i, 3 + i % 17, 2, 0), "%s", error.message);
    aoticache_holder_counts counts = counts_now();
    cr_expect_eq(hook.compiles, 5, "4 exact ones, then one for all");
    cr_expect_eq(hook.dynamic_compiles, 1);
    cr_expect_eq(counts.libraries, 5);
    cr_expect_eq(counts.entries, 200);
    cr_expect_eq(counts.misses, 5);
    cr_expect_eq(counts.hits_dynamic, 195);
    for (int64_t i = 0; i < 200; i++)
        cr_expect(scales_shape(2 + i, 3 + i % 17, 2, 0), "%s", error.message);
    counts = counts_now();
    cr_expect_eq(counts.hits, 395);
    cr_expect_eq(counts.loads, 5);
    end_all();
}

Test(holder_shapes, second_process_serves_all_shapes_from_the_index)
{
    begin_dynamic(AOTICACHE_DYNAMIC_AFTER, 1, AOTICACHE_MISS_WAIT);
    for (int64_t i = 0; i < 5; i++)
        cr_expect(scales_shape(2 + i, 5, 2, 0));
    cr_expect_eq(hook.compiles, 2);
    aoticache_holder_unref(holder);
    holder = make_holder(SCALE);
    cr_expect_eq(counts_now().libraries, 2);
    cr_expect_eq(counts_now().entries, 1);
    for (int64_t i = 0; i < 50; i++)
        cr_expect(scales_shape(2 + i, 5, 2, 0));
    cr_expect_eq(hook.compiles, 2);
    cr_expect_eq(counts_now().loads, 2);
    cr_expect_eq(counts_now().misses, 0);
    cr_expect_eq(counts_now().libraries, 2, "what it knew is not known twice");
    end_all();
}

Test(holder_shapes, shapes_that_others_compiled_count_too)
{
    begin_dynamic(AOTICACHE_DYNAMIC_AFTER, 4, AOTICACHE_MISS_WAIT);
    for (int64_t i = 0; i < 3; i++)
        cr_expect(scales_shape(2 + i, 5, 2, 0));
    aoticache_holder_unref(holder);
    holder = make_holder(SCALE);
    for (int64_t i = 3; i < 10; i++)
        cr_expect(scales_shape(2 + i, 5, 2, 0));
    cr_expect_eq(hook.compiles, 5, "3 before, 1 now, then one for all");
    cr_expect_eq(hook.dynamic_compiles, 1);
    end_all();
}

Test(holder_shapes, always_compiles_for_all_shapes_at_once)
{
    begin_dynamic(AOTICACHE_DYNAMIC_ALWAYS, 0, AOTICACHE_MISS_WAIT);
    for (int64_t i = 0; i < 20; i++)
        cr_expect(scales_shape(2 + i, 2 + i, 2, 0));
    cr_expect_eq(hook.compiles, 1);
    /* Size 1 has its own kernel: compilers treat it specially. */
    cr_expect(scales_shape(1, 4, 2, 0), "%s", error.message);
    end_all();
}

Test(holder_shapes, never_is_exact)
{
    begin_dynamic(AOTICACHE_DYNAMIC_NEVER, 0, AOTICACHE_MISS_WAIT);
    for (int64_t i = 0; i < 8; i++)
        cr_expect(scales_shape(2 + i, 2, 2, 0));
    cr_expect_eq(hook.compiles, 8);
    cr_expect_eq(hook.dynamic_compiles, 0);
    end_all();
}

Test(holder_shapes, scalars_separate_dynamic_requests)
{
    begin_dynamic(AOTICACHE_DYNAMIC_ALWAYS, 0, AOTICACHE_MISS_WAIT);
    for (int64_t i = 0; i < 6; i++)
        for (int factor = 0; factor < 3; factor++)
            cr_expect(scales_shape(2 + i, 3, factor, i % 2), "%s", error.message);
    cr_expect_eq(hook.compiles, 6);
    aoticache_holder_unref(holder);
    holder = make_holder(SCALE);
    for (int64_t i = 10; i < 16; i++)
        for (int factor = 0; factor < 3; factor++)
            cr_expect(scales_shape(2 + i, 3, factor, i % 2), "%s", error.message);
    cr_expect_eq(hook.compiles, 6);
    end_all();
}

Test(holder_shapes, guard_that_does_not_admit_the_call_means_exact)
{
    begin_dynamic(AOTICACHE_DYNAMIC_ALWAYS, 0, AOTICACHE_MISS_WAIT);
    hook.guard = "float32[s0, s1]@cpu; s0=2..10, s1=2..10";
    cr_expect(scales_shape(4, 4, 2, 0), "%s", error.message);
    cr_expect(scales_shape(5, 6, 2, 0));
    cr_expect_eq(hook.compiles, 1);
    cr_expect(scales_shape(40, 4, 2, 0), "%s", error.message);
    cr_expect(scales_shape(41, 4, 2, 0), "%s", error.message);
    cr_expect_eq(hook.dynamic_compiles, 2, "it is tried once");
    cr_expect_eq(hook.compiles, 4);
    cr_expect(scales_shape(7, 7, 2, 0));
    cr_expect_eq(hook.compiles, 4);
    end_all();
}

Test(holder_shapes, exact_comes_before_dynamic)
{
    begin_dynamic(AOTICACHE_DYNAMIC_ALWAYS, 0, AOTICACHE_MISS_WAIT);
    hook.guard = "float32[s0, s1]@cpu; s0=2..10, s1=2..10";
    cr_expect(scales_shape(4, 4, 2, 0));
    cr_expect(scales_shape(5, 5, 2, 0));
    /* Another process, whose policy is to compile exactly. */
    aoticache_context *before = eager;
    aoticache_holder *general = holder;
    aoticache_context_options options = eager_options();
    make_eager(&options);
    holder = make_holder(SCALE);
    cr_expect(scales_shape(5, 5, 2, 0));
    cr_expect_eq(counts_now().hits_dynamic, 1, "what is there is taken");
    cr_expect(scales_shape(50, 5, 2, 0));
    cr_expect_eq(hook.compiles, 2);
    aoticache_holder_unref(holder);
    aoticache_context_free(eager);
    eager = before;
    holder = general;
    uint64_t hits = counts_now().hits_dynamic;
    cr_expect(scales_shape(50, 5, 2, 0), "%s", error.message);
    cr_expect_eq(counts_now().hits_dynamic, hits);
    cr_expect_eq(hook.compiles, 2);
    end_all();
}

Test(holder_shapes, hook_that_fails_for_all_shapes_is_asked_for_each)
{
    begin_dynamic(AOTICACHE_DYNAMIC_ALWAYS, 0, AOTICACHE_MISS_WAIT);
    hook.guard = "float32[s0, s1]@cpu; s0=100.., s1=100..";
    for (int64_t i = 0; i < 4; i++)
        cr_expect(scales_shape(2 + i, 4, 2, 0), "%s", error.message);
    cr_expect_eq(hook.dynamic_compiles, 1);
    cr_expect_eq(hook.compiles, 5);
    cr_expect_eq(counts_now().dynamic_refused, 1);
    end_all();
}

Test(holder_shapes, background_makes_one_for_all)
{
    begin_dynamic(AOTICACHE_DYNAMIC_ALWAYS, 0, AOTICACHE_MISS_BACKGROUND);
    test_tensor *tensors[6];
    for (int64_t i = 0; i < 6; i++)
        tensors[i] = tensor_create(2, SIZES(2 + i, 3));
    hook.is_shut = true;
    for (int i = 0; i < 6; i++)
        cr_expect(falls_back(tensors[i], 2, 0));
    hook.is_shut = false;
    cr_assert_eq(aoticache_context_wait(eager, 0, &error), AOTICACHE_OK);
    for (int i = 0; i < 6; i++)
        cr_expect(scales(tensors[i], 2, 0));
    cr_expect_eq(hook.compiles, 1);
    cr_expect_eq(counts_now().libraries, 1);
    for (int i = 0; i < 6; i++)
        tensor_free(tensors[i]);
    end_all();
}

Test(holder_shapes, collected_library_is_made_again_for_all_its_shapes)
{
    begin_dynamic(AOTICACHE_DYNAMIC_ALWAYS, 0, AOTICACHE_MISS_WAIT);
    for (int64_t i = 0; i < 5; i++)
        cr_expect(scales_shape(2 + i, 3, 2, 0));
    aoticache_holder_unref(holder);
    holder = make_holder(SCALE);
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.max_bytes = 1;
    cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, NULL, NULL, &error), AOTICACHE_OK, "%s", error.message);
    for (int round = 0; round < 2; round++)
        for (int64_t i = 0; i < 5; i++)
            cr_expect(scales_shape(2 + i, 3, 2, 0), "%s", error.message);
    cr_expect_eq(hook.compiles, 2);
    cr_expect_eq(counts_now().misses, 1);
    cr_expect_eq(counts_now().loads, 1);
    end_all();
}

Test(holder_shapes, strides_of_another_order_make_another_dynamic_request)
{
    begin_dynamic(AOTICACHE_DYNAMIC_ALWAYS, 0, AOTICACHE_MISS_WAIT);
    hook.guard = "float32[s0, s1]{contiguous}@cpu; s0=2.., s1=2..";
    cr_expect(scales_shape(4, 5, 2, 0));
    test_tensor *tensor = tensor_create(2, SIZES(4, 5));
    int64_t gaps[] = {10, 2}, transposed[] = {1, 4};
    aoticache_value value[] = {VALUE_TENSOR(tensor), VALUE_DOUBLE(2), VALUE_INT(0)};
    tensor->view.strides = transposed;
    cr_expect_eq(call_values(holder, value, 3), AOTICACHE_OK);
    aoticache_stack_drop(&stack, 0);
    tensor->view.strides = gaps; /* strides that no other sizes can have */
    cr_expect_eq(call_values(holder, value, 3), AOTICACHE_OK);
    aoticache_stack_drop(&stack, 0);
    cr_expect_eq(hook.compiles, 4, "one for all contiguous ones; one in vain and an exact one; an exact one");
    end_all();
    tensor_free(tensor);
}
