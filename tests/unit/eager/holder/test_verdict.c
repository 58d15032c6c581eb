/* Unit tests of eager/holder/verdict.c: kernels that are used only if faster. Calls are timed with the test's clock. */
#include "cache/eager_face.h"
#include "tests/unit/fixtures/holder_fixture.h"

#include "tests/unit/fixtures/clock_fixture.h"
#include <pthread.h>
#include "base/clock.h"
#include "cache/entries.h"
#include "eager/holder/holder_internal.h"

TestSuite(verdict, .init = fixture_begin, .fini = fixture_end, .timeout = 300);

/* The time between two readings of the clock, which is the time of a call, for kernel and fallback. */
static uint64_t fake_ns, kernel_takes, fallback_takes;
static uint32_t threads = 4;
static size_t readings;

/* Reads the clock. Blocks of a trial are kernel, fallback, fallback, kernel; each call reads the clock twice. */
static uint64_t fake_clock(void)
{
    size_t block = readings / 2 / AOTICACHE_TRIAL_BLOCK;
    bool is_kernel = block % 4 == 0 || block % 4 == 3;
    if (readings++ % 2 == 1)
        fake_ns += is_kernel ? kernel_takes : fallback_takes;
    return fake_ns;
}

static uint32_t fake_threads(void *user)
{
    (void)user;
    return threads;
}

static void open_holder(void)
{
    holder = make_holder(SCALE);
    holder->num_threads = fake_threads;
}

static void begin_judging(uint64_t kernel_ns, uint64_t fallback_ns)
{
    begin_with("", false);
    aoticache_context_options options = eager_options();
    options.judge = true;
    make_eager(&options);
    eager->clock_ns = fake_clock;
    readings = 0;
    kernel_takes = kernel_ns;
    fallback_takes = fallback_ns;
    open_holder();
}

/* Calls; returns how many calls the kernel answered. Each result must be that of kernel or fallback. */
static int kernels_of(int calls)
{
    int before = atomic_load(&fallbacks), answered = 0;
    for (int i = 0; i < calls; i++) {
        aoticache_value values[] = {VALUE_TENSOR(x), VALUE_DOUBLE(2), VALUE_INT(0)};
        cr_assert_eq(call_values(holder, values, 3), AOTICACHE_OK, "%s", error.message);
        bool is_kernels = output_is(&places[0], x, 2, 0);
        cr_assert(is_kernels || output_is(&places[0], x, 1, FALLBACK_ADDS));
        answered += is_kernels;
        aoticache_stack_drop(&stack, 0);
    }
    cr_expect_eq(answered + (atomic_load(&fallbacks) - before), calls, "each call runs one of the two");
    return answered;
}

/* Plays the miss, which compiles, and a trial to its end. */
static void play_trial(void)
{
    kernels_of(1);
    for (int i = 0; i < 150 && (i == 0 || counts_now().on_trial > 0); i++)
        kernels_of(1);
    cr_assert_eq(counts_now().on_trial, 0);
    cr_assert_eq(counts_now().judged, 1);
}

Test(verdict, winner_answers_from_then_on)
{
    begin_judging(500, 1000);
    play_trial();
    cr_expect_geq(counts_now().fallbacks, 4);
    cr_expect_eq(counts_now().judged_slower, 0);
    cr_expect_eq(counts_now().calls_lost, 0);
    readings = 0;
    cr_expect_eq(kernels_of(100), 100);
    cr_expect_eq(readings, 0, "a hit reads no clock");
    cr_expect_eq(counts_now().gained_ns, 500 * counts_now().hits);
    end_all();
}

Test(verdict, loser_is_not_called_again)
{
    begin_judging(100000, 1000);
    play_trial();
    cr_expect_eq(counts_now().judged_slower, 1);
    readings = 0;
    uint64_t hits = counts_now().hits;
    cr_expect_eq(kernels_of(100), 0);
    cr_expect_eq(readings, 0);
    cr_expect_eq(counts_now().hits, hits);
    cr_expect_eq(counts_now().calls_lost, 100);
    cr_expect_eq(counts_now().gained_ns, 0);
    end_all();
}

Test(verdict, turns_are_calls_of_both_and_of_one_each)
{
    begin_judging(980, 1000); /* too little for an early end */
    kernels_of(1);
    int kernels = kernels_of(40);
    cr_expect_eq(counts_now().on_trial, 1);
    cr_expect_geq(kernels, 18);
    cr_expect_leq(kernels, 22);
    end_all();
}

Test(verdict, nothing_is_judged_unless_asked)
{
    begin_scale();
    kernels_of(1);
    cr_expect_eq(kernels_of(100), 100);
    cr_expect_eq(counts_now().judged + counts_now().on_trial, 0);
    end_all();
}

Test(verdict, nothing_is_judged_without_a_fallback)
{
    begin_with("", false);
    aoticache_context_options options = eager_options();
    options.judge = true;
    make_eager(&options);
    aoticache_holder_options alone = holder_options(SCALE);
    alone.fallback = NULL;
    cr_assert_eq(aoticache_holder_create(eager, &alone, &holder, &error), AOTICACHE_OK, "%s", error.message);
    cr_expect_eq(kernels_of(100), 100);
    end_all();
}

static aoticache_judgement found;
static char found_machine[128];

static bool keep_judgement(void *user, const aoticache_judgement *judgement)
{
    found = *judgement;
    snprintf(found_machine, sizeof found_machine, "%s", judgement->machine);
    ++*(int *)user;
    return true;
}

static int judgements_in_the_cache(void)
{
    int count = 0;
    cr_assert_eq(aoticache_cache_list_judgements(cache, &holder->known_kernels->key, keep_judgement, &count, &error),
                 AOTICACHE_OK, "%s", error.message);
    return count;
}

Test(verdict, judgement_is_kept_and_a_new_holder_begins_with_it)
{
    begin_judging(100000, 1000);
    play_trial();
    cr_expect_eq(judgements_in_the_cache(), 1);
    cr_expect(found.is_slower);
    cr_expect_eq(found.kernel_ns, 100000);
    cr_expect_eq(found.fallback_ns, 1000);
    cr_expect_eq(found.threads, 4);
    cr_expect_str_eq(found_machine, aoticache_machine_name());
    cr_expect(found.is_this_machine);
    aoticache_holder_unref(holder);
    open_holder();
    readings = 0;
    cr_expect_eq(kernels_of(50), 0, "not one call of the loser");
    cr_expect_eq(readings, 0);
    cr_expect_eq(counts_now().loaded, 0, "it is not even loaded");
    cr_expect_eq(counts_now().judged_slower, 1);
    end_all();
}

Test(verdict, judgement_of_another_machine_says_nothing)
{
    begin_judging(500, 1000);
    kernels_of(1);
    aoticache_judgement foreign = {.key = holder->known_kernels->key,
                                   .machine = "a processor of tomorrow",
                                   .threads = 4,
                                   .is_slower = true,
                                   .judged_ns = aoticache_wall_ns()};
    cr_assert_eq(aoticache_cache_put_judgements(cache, &foreign, 1, &error), AOTICACHE_OK, "%s", error.message);
    cr_expect_eq(judgements_in_the_cache(), 1);
    cr_expect_not(found.is_this_machine);
    kernels_of(1);
    cr_expect_eq(counts_now().on_trial, 1);
    end_all();
}

Test(verdict, another_number_of_threads_is_another_trial)
{
    begin_judging(500, 1000);
    play_trial();
    kernels_of(AOTICACHE_VERDICT_LOOKS);
    cr_expect_eq(counts_now().on_trial, 0, "nothing has changed");
    threads = 3; /* rounded up: the same */
    kernels_of(AOTICACHE_VERDICT_LOOKS);
    cr_expect_eq(counts_now().on_trial, 0);
    threads = 8;
    kernels_of(AOTICACHE_VERDICT_LOOKS + 1);
    cr_expect_eq(counts_now().on_trial, 1);
    threads = 4;
    end_all();
}

Test(verdict, loser_is_judged_again_after_a_day)
{
    begin_judging(100000, 1000);
    play_trial();
    kernels_of(AOTICACHE_VERDICT_LOOKS);
    cr_expect_eq(counts_now().judged_slower, 1);
    fixture_ahead = FIXTURE_DAY + 1;
    kernel_takes = 500;
    readings = 0;
    kernels_of(2 * AOTICACHE_VERDICT_LOOKS);
    cr_expect_eq(counts_now().judged, 1);
    cr_expect_eq(counts_now().judged_slower, 0);
    cr_expect_eq(kernels_of(10), 10);
    cr_expect_eq(judgements_in_the_cache(), 1);
    cr_expect_not(found.is_slower);
    end_all();
}

Test(verdict, kernel_that_lost_and_was_collected_is_not_compiled_again)
{
    begin_judging(100000, 1000);
    play_trial();
    aoticache_key key = holder->known_kernels->key;
    cr_assert_eq(aoticache_cache_remove(cache, &key, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_holder_unref(holder);
    open_holder();
    cr_expect_eq(kernels_of(5), 0);
    cr_expect_eq(hook.compiles, 1);
    end_all();
}

/* Returns how many of the calls with a tensor of `rows` rows kernels answer. */
static int kernels_of_rows(int64_t rows, int calls)
{
    test_tensor *tensor = tensor_create(2, SIZES(rows, 5));
    int answered = 0;
    for (int i = 0; i < calls; i++) {
        aoticache_value values[] = {VALUE_TENSOR(tensor), VALUE_DOUBLE(2), VALUE_INT(0)};
        cr_assert_eq(call_values(holder, values, 3), AOTICACHE_OK, "%s", error.message);
        answered += output_is(&places[0], tensor, 2, 0);
        aoticache_stack_drop(&stack, 0);
    }
    tensor_free(tensor);
    return answered;
}

Test(verdict, dynamic_kernel_is_judged_for_each_class_of_sizes)
{
    begin_with("", true);
    aoticache_context_options options = eager_options();
    options.judge = true;
    options.dynamic = AOTICACHE_DYNAMIC_ALWAYS;
    make_eager(&options);
    eager->clock_ns = fake_clock;
    kernel_takes = 100000;
    fallback_takes = 1000;
    open_holder();
    kernels_of_rows(2, 100); /* 10 elements: the kernel is slower */
    cr_expect_eq(hook.compiles, 1);
    cr_expect_eq(counts_now().judged, 1);
    cr_expect_eq(kernels_of_rows(2, 20), 0);
    cr_expect_eq(kernels_of_rows(3, 20), 0, "15 are of the same class");
    kernel_takes = 500;
    readings = 0;
    kernels_of_rows(40, 100); /* 200 elements: the kernel is faster */
    cr_expect_eq(counts_now().judged, 2);
    cr_expect_eq(kernels_of_rows(40, 20), 20);
    cr_expect_eq(kernels_of_rows(41, 20), 20, "as many");
    cr_expect_eq(kernels_of_rows(2, 20), 0);
    cr_expect_eq(counts_now().judged_slower, 1);
    cr_expect_eq(judgements_in_the_cache(), 2);
    cr_expect_eq(hook.compiles, 1);
    end_all();
}

#define CALLERS 4
#define CALLS 3000

static void *call_many(void *ret_kernels)
{
    aoticache_error own_error;
    for (int i = 0; i < CALLS; i++) {
        aoticache_value values[PLACES] = {VALUE_TENSOR(x), VALUE_DOUBLE(2), VALUE_INT(0)};
        aoticache_stack own = {.values = values, .count = 3, .capacity = PLACES};
        cr_assert_eq(aoticache_holder_call(holder, 0, &own, &own_error), AOTICACHE_OK);
        bool is_kernels = output_is(&values[0], x, 2, 0);
        cr_assert(is_kernels || output_is(&values[0], x, 1, FALLBACK_ADDS));
        *(int *)ret_kernels += is_kernels;
        aoticache_stack_drop(&own, 0);
    }
    return NULL;
}

static uint64_t steady_clock(void)
{
    static _Thread_local uint64_t now;
    return now += 1000; /* both take the same: no early end */
}

Test(verdict, threads_share_a_trial)
{
    begin_judging(1000, 1000);
    eager->clock_ns = steady_clock;
    kernels_of(1);
    uint64_t before = counts_now().fallbacks;
    fallback_data_count = sizeof fallback_data / sizeof *fallback_data; /* the fixture's list is for one thread */
    pthread_t callers[CALLERS];
    int kernels[CALLERS] = {0}, all = 0;
    for (int i = 0; i < CALLERS; i++)
        cr_assert_eq(pthread_create(&callers[i], NULL, call_many, &kernels[i]), 0);
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i], NULL);
        all += kernels[i];
    }
    cr_expect_eq(counts_now().on_trial, 0);
    cr_expect_eq(counts_now().judged_slower, 1, "a tie is the fallback's");
    cr_expect_eq((uint64_t)all + counts_now().fallbacks - before, CALLERS * CALLS);
    cr_expect_null(atomic_load(&holder->known_kernels->verdicts[0].hot->runner), "no turn is left open");
    cr_expect_eq(kernels_of(10), 0);
    end_all();
}

Test(verdict, sizes_fall_into_classes)
{
    cr_expect_eq(aoticache_size_class(0), 0);
    cr_expect_eq(aoticache_size_class(15), 0);
    cr_expect_eq(aoticache_size_class(16), 1);
    cr_expect_eq(aoticache_size_class(63), 1);
    cr_expect_eq(aoticache_size_class(64), 2);
    cr_expect_eq(aoticache_size_class(UINT64_MAX), AOTICACHE_SIZE_CLASSES - 1);
    cr_expect_gt(strlen(aoticache_machine_name()), 0);
}
