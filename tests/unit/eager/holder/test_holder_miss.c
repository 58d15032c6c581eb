/*
 * Unit tests of eager/holder/miss.c, known_kernel.c and holder_compile.c: the policies, failures, missing files, the budget.
 */
#include "tests/unit/fixtures/holder_fixture.h"
#include "tests/unit/fixtures/emulator.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "cache/stats/statistics.h"

#include <dirent.h>

TestSuite(holder_miss, .init = fixture_begin, .fini = fixture_end, .timeout = 300);

static void begin_policy(aoticache_context_options options)
{
    options.cache = cache;
    options.hook = hook.hook;
    make_eager(&options);
    holder = make_holder(SCALE);
}

/* ---- failures ---- */

Test(holder_miss, failed_compile_is_the_fallbacks_and_remembered)
{
    begin_scale();
    hook.fail_status = AOTICACHE_COMPILE_FAILED;
    for (int i = 0; i < 5; i++)
        cr_expect(falls_back(x, 2, 0), "%s", error.message);
    aoticache_holder_counts counts = counts_now();
    cr_expect_eq(counts.fallbacks, 5);
    cr_expect_eq(counts.misses, 1, "the others came before the next try");
    cr_expect_eq(counts.compile_failures, 1);
    cr_expect_eq(warnings, 1);
    hook.fail_status = 0;
    cr_expect(scales(x, 3, 0), "other metadata is not concerned");
    sleep_ms(2200); /* the holder's back-off, and the cache's */
    cr_expect(scales(x, 2, 0), "%s", error.message);
    end_all();
}

Test(holder_miss, failed_compile_is_the_calls_where_asked)
{
    begin_with("", false);
    aoticache_context_options options = eager_options();
    options.fail_calls = true;
    begin_policy(options);
    hook.fail_status = AOTICACHE_COMPILE_FAILED;
    aoticache_value values[] = {VALUE_TENSOR(x), VALUE_DOUBLE(2), VALUE_INT(0)};
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(call_values(holder, values, 3), AOTICACHE_COMPILE_FAILED);
        cr_expect_not_null(strstr(error.message, "on purpose"), "%s", error.message);
        cr_expect_eq(stack.count, 3);
    }
    hook.fail_status = AOTICACHE_UNSUPPORTED;
    cr_expect(falls_back(x, 3, 0), "what cannot be compiled at all is no failure");
    cr_expect_eq(counts_now().fallbacks, 1);
    end_all();
}

Test(holder_miss, unsupported_is_asked_once)
{
    begin_scale();
    hook.fail_status = AOTICACHE_UNSUPPORTED;
    cr_expect(falls_back(x, 2, 0));
    hook.fail_status = 0;
    sleep_ms(1500);
    cr_expect(falls_back(x, 2, 0));
    cr_expect_eq(counts_now().misses, 1);
    cr_expect_eq(warnings, 0);
    end_all();
}

Test(holder_miss, library_that_cannot_be_loaded_is_said_once)
{
    begin_scale();
    memset(hook.fixed.bytes, 'x', 4); /* not an ELF file any more */
    for (int i = 0; i < 5; i++)
        cr_expect(falls_back(x, 2, 0));
    cr_expect_eq(warnings, 1);
    cr_expect_eq(counts_now().loads, 0);
    end_all();
}

Test(holder_miss, wrong_number_of_results_is_not_loaded)
{
    begin_with("-DOUTPUTS=2", false);
    begin_policy(eager_options());
    for (int i = 0; i < 3; i++)
        cr_expect(falls_back(x, 2, 0));
    cr_expect_eq(warnings, 1);
    end_all();
}

/* ---- never ---- */

Test(holder_miss, never_notices_what_others_add)
{
    begin_with("", false);
    aoticache_context_options options = eager_options();
    options.miss = AOTICACHE_MISS_NEVER;
    begin_policy(options);
    cr_expect(falls_back(x, 2, 0));
    cr_expect(falls_back(x, 2, 0));
    pid_t child = fork();
    if (child == 0) {
        aoticache_context_options says = AOTICACHE_CONTEXT_OPTIONS_INIT;
        says.cache = open_cache();
        says.hook = hook.hook;
        make_eager(&says);
        holder = make_holder(SCALE);
        _exit(scales(x, 2, 0) ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    cr_assert_eq(status, 0);
    sleep_ms(1100);
    cr_expect(scales(x, 2, 0), "%s", error.message);
    cr_expect_eq(hook.compiles, 0);
    cr_expect_eq(counts_now().compiles, 0);
    end_all();
}

/* ---- background ---- */

static void begin_background(uint32_t queue_length)
{
    begin_with("", false);
    aoticache_context_options options = eager_options();
    options.miss = AOTICACHE_MISS_BACKGROUND;
    options.queue_length = queue_length;
    begin_policy(options);
}

/* Tests a number that changes with every call, and calls that recur. */
Test(holder_miss, background_compiles_have_a_budget)
{
    begin_background(0);
    for (int i = 0; i < 40; i++)
        cr_expect(falls_back(x, 2, i));
    cr_assert_eq(aoticache_context_wait(eager, 0, &error), AOTICACHE_OK);
    cr_expect_eq(counts_now().queued, 8);
    cr_expect_eq(counts_now().fallbacks, 40);
    for (int i = 8; i < 24; i++) /* the second time: eight are due, eight have half of the requests needed */
        cr_expect(falls_back(x, 2, i));
    cr_assert_eq(aoticache_context_wait(eager, 0, &error), AOTICACHE_OK);
    cr_expect_eq(counts_now().queued, 16);
    cr_expect(scales(x, 2, 9));
    cr_expect(falls_back(x, 2, 16));
    cr_expect(falls_back(x, 2, 16)); /* the fourth time */
    cr_assert_eq(aoticache_context_wait(eager, 0, &error), AOTICACHE_OK);
    cr_expect_eq(counts_now().queued, 17);
    cr_expect(scales(x, 2, 16));
    end_all();
}

Test(holder_miss, background_answers_by_the_fallback_until_ready)
{
    begin_background(0);
    hook.is_shut = true;
    for (int i = 0; i < 3; i++)
        cr_expect(falls_back(x, 2, 0)); /* a call that waits for the compile would never return */
    cr_expect_eq(counts_now().queued, 1);
    cr_expect_eq(aoticache_context_wait(eager, 20, &error), AOTICACHE_LOCKED);
    hook.is_shut = false;
    cr_expect_eq(aoticache_context_wait(eager, 0, &error), AOTICACHE_OK);
    cr_expect(scales(x, 2, 0));
    aoticache_holder_counts counts = counts_now();
    cr_expect_eq(counts.hits, 1);
    cr_expect_eq(counts.fallbacks, 3);
    cr_expect_eq(counts.compiles, 1);
    end_all();
}

Test(holder_miss, background_queue_is_bounded)
{
    begin_background(2);
    hook.is_shut = true;
    for (int i = 0; i < 8; i++)
        cr_expect(falls_back(x, i, 0));
    aoticache_holder_counts counts = counts_now();
    hook.is_shut = false;
    cr_expect_eq(counts.queued + counts.dropped, 8);
    cr_expect(counts.queued == 2 || counts.queued == 3, "%d", (int)counts.queued);
    cr_expect_eq(aoticache_context_wait(eager, 0, &error), AOTICACHE_OK);
    int ready = 0;
    for (int i = 0; i < 8; i++) {
        aoticache_value values[] = {VALUE_TENSOR(x), VALUE_DOUBLE(i), VALUE_INT(0)};
        cr_assert_eq(call_values(holder, values, 3), AOTICACHE_OK);
        ready += output_is(&places[0], x, i, 0);
        aoticache_stack_drop(&stack, 0);
    }
    cr_expect_eq(ready, (int)counts.queued);
    end_all();
}

Test(holder_miss, background_failure_is_said_once)
{
    begin_background(0);
    hook.fail_status = AOTICACHE_COMPILE_FAILED;
    for (int i = 0; i < 3; i++) {
        cr_expect(falls_back(x, 2, 0));
        cr_expect_eq(aoticache_context_wait(eager, 0, &error), AOTICACHE_OK);
    }
    cr_expect_eq(warnings, 1);
    cr_expect_eq(counts_now().queued, 1);
    end_all();
}

Test(holder_miss, holder_freed_with_jobs_in_the_queue)
{
    begin_background(0);
    hook.is_shut = true;
    for (int i = 0; i < 20; i++)
        cr_expect(falls_back(x, i, 0));
    aoticache_holder_unref(holder);
    holder = NULL;
    hook.is_shut = false;
    cr_expect_eq(aoticache_context_wait(eager, 0, &error), AOTICACHE_OK);
    cr_expect_leq(hook.begun, 1, "what nobody can call is not compiled: %d were begun", hook.begun);
    end_all();
}

Test(holder_miss, eager_freed_with_jobs_in_the_queue)
{
    begin_background(0);
    hook.delay_ms = 100;
    for (int i = 0; i < 20; i++)
        cr_expect(falls_back(x, i, 0));
    end_all();
}

/* ---- missing or damaged files ---- */

static aoticache_status remove_all(aoticache_cache *from)
{
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    options.max_bytes = 1;
    return aoticache_cache_collect(from, &options, NULL, NULL, NULL, &error);
}

Test(holder_miss, entry_that_was_collected_is_compiled_again)
{
    begin_scale();
    cr_expect(scales(x, 2, 0));
    aoticache_holder_unref(holder);
    aoticache_cache_flush(cache, NULL);
    holder = make_holder(SCALE);
    cr_expect_eq(counts_now().entries, 1);
    sleep_ms(20);
    cr_assert_eq(remove_all(cache), AOTICACHE_OK, "%s", error.message);
    cr_expect(scales(x, 2, 0), "%s", error.message);
    cr_expect_eq(hook.compiles, 2);
    cr_expect(scales(x, 2, 0));
    cr_expect_eq(counts_now().entries, 1);
    cr_expect_eq(counts_now().libraries, 1);
    cr_expect_eq(warnings, 0);
    end_all();
}

static int damage(const char *path, const struct stat *status, int flag, struct FTW *walk)
{
    (void)walk;
    if (flag != FTW_F || status->st_size < 8192 || strstr(path, "/objects/") == NULL)
        return 0;
    chmod(path, 0600);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    cr_assert(fd >= 0 && pwrite(fd, "damage", 6, 4096) == 6);
    close(fd);
    return 0;
}

Test(holder_miss, damaged_object_is_compiled_again)
{
    begin_scale();
    cr_expect(scales(x, 2, 0));
    aoticache_holder_unref(holder);
    holder = make_holder(SCALE);
    nftw(in_directory("cache"), damage, 16, FTW_PHYS);
    cr_expect(scales(x, 2, 0), "%s", error.message);
    cr_expect_eq(hook.compiles, 2);
    end_all();
}

/* ---- the budget ---- */

Test(holder_miss, least_recently_used_is_unloaded)
{
    begin_with("", false);
    aoticache_context_options options = eager_options();
    options.max_loaded = 2;
    begin_policy(options);
    cr_expect(scales(x, 1, 0) && scales(x, 2, 0) && scales(x, 1, 0) && scales(x, 3, 0));
    aoticache_holder_counts counts = counts_now();
    cr_expect_eq(counts.loaded, 2);
    cr_expect_eq(counts.loads, 3);
    cr_expect(scales(x, 1, 0));
    cr_expect_eq(counts_now().loads, 3, "1 was used after 2, and is still there");
    cr_expect(scales(x, 2, 0));
    counts = counts_now();
    cr_expect_eq(counts.loads, 4);
    cr_expect_eq(counts.loaded, 2);
    for (int i = 0; i < 30; i++)
        cr_expect(scales(x, 1 + i % 5, 0));
    cr_expect_eq(counts_now().loaded, 2);
    cr_expect_eq(hook.compiles, 5);
    end_all();
}

Test(holder_miss, budget_in_bytes_holds_for_all_holders)
{
    begin_with("", false);
    aoticache_context_options options = eager_options();
    options.max_loaded_bytes = 1;
    begin_policy(options);
    aoticache_holder *other = make_holder("test::other(Tensor self, float factor, *, int offset=0) -> Tensor");
    aoticache_holder *first = holder;
    for (int i = 0; i < 6; i++) {
        holder = i % 2 == 0 ? other : first;
        cr_expect(scales(x, 2, 0));
        aoticache_holder_counts counts = counts_now();
        cr_expect_eq(counts.loaded, 1, "the one that is needed stays");
        cr_expect_eq(counts.loads, (uint64_t)i / 2 + 1);
    }
    aoticache_holder_unref(other);
    holder = first;
    end_all();
}

/* ---- use ---- */

static uint64_t hits_loaded(const aoticache_statistics *statistics)
{
    return statistics->counters.hits_loaded;
}

Test(holder_miss, flush_hands_use_to_the_cache)
{
    begin_scale();
    for (int i = 0; i < 6; i++)
        cr_expect(scales(x, 2, 0));
    aoticache_statistics before, after;
    cr_assert_eq(aoticache_cache_get_statistics(cache, NULL, &before, &error), AOTICACHE_OK);
    cr_assert_eq(aoticache_context_flush(eager, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_cache_get_statistics(cache, NULL, &after, &error), AOTICACHE_OK);
    cr_expect_eq(hits_loaded(&after) - hits_loaded(&before), 5);
    cr_assert_eq(aoticache_context_flush(eager, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_cache_get_statistics(cache, NULL, &after, &error), AOTICACHE_OK);
    cr_expect_eq(hits_loaded(&after) - hits_loaded(&before), 5, "not twice");
    end_all();
}

static aoticache_counters flushed_counters(void)
{
    aoticache_statistics statistics;
    cr_assert_eq(aoticache_context_flush(eager, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_cache_get_statistics(cache, NULL, &statistics, &error), AOTICACHE_OK, "%s", error.message);
    return statistics.counters;
}

/* Recreates context and holder as in a later process: kernels are known and not loaded. */
static void begin_again(aoticache_context_options options)
{
    aoticache_holder_unref(holder);
    aoticache_context_free(eager);
    begin_policy(options);
}

static bool add_uses(void *user, const aoticache_entry *entry)
{
    *(uint64_t *)user += entry->uses;
    return true;
}

Test(holder_miss, call_that_loads_its_kernel_counts_once)
{
    begin_scale();
    cr_expect(scales(x, 2, 0), "%s", error.message);
    begin_again(eager_options());
    const aoticache_counters before = flushed_counters();
    for (uint64_t call = 1; call <= 3; call++) {
        cr_expect(scales(x, 2, 0));
        aoticache_counters now = flushed_counters();
        cr_expect_eq(now.hits - before.hits, call);
        cr_expect_eq(now.hits_loaded - before.hits_loaded, call - 1, "the first call looked it up");
        cr_expect_eq(now.misses, before.misses);
        cr_expect_eq(counts_now().hits, call);
    }
    uint64_t uses = 0;
    cr_assert_eq(aoticache_cache_flush(cache, &error), AOTICACHE_OK);
    cr_assert_eq(aoticache_cache_list(cache, NULL, NULL, add_uses, &uses, &error), AOTICACHE_OK);
    cr_expect_eq(uses, 3);
    end_all();
}

Test(holder_miss, call_that_loads_a_kernel_again_counts_once)
{
    begin_scale();
    cr_expect(scales(x, 2, 0));
    cr_expect(scales(x, 3, 0));
    aoticache_context_options options = eager_options();
    options.max_loaded = 1;
    begin_again(options);
    const aoticache_counters before = flushed_counters();
    for (int call = 0; call < 10; call++)
        cr_expect(scales(x, 2 + call % 2, 0), "each call unloads the other kernel and loads its own");
    const aoticache_counters after = flushed_counters();
    cr_expect_eq(counts_now().loads, 10);
    cr_expect_eq(after.hits - before.hits, 10);
    cr_expect_eq(after.hits_loaded, before.hits_loaded);
    cr_expect_eq(after.misses, before.misses);
    end_all();
}

Test(holder_miss, call_whose_kernel_was_collected_counts_one_miss)
{
    begin_scale();
    cr_expect(scales(x, 2, 0));
    begin_again(eager_options());
    aoticache_cache_flush(cache, NULL);
    sleep_ms(20);
    cr_assert_eq(remove_all(cache), AOTICACHE_OK, "%s", error.message);
    const aoticache_counters before = flushed_counters();
    cr_expect(scales(x, 2, 0), "%s", error.message);
    const aoticache_counters after = flushed_counters();
    cr_expect_eq(hook.compiles, 2);
    cr_expect_eq(after.misses - before.misses, 1);
    cr_expect_eq(after.hits, before.hits);
    end_all();
}

Test(holder_miss, what_is_asked_for_is_recorded_once)
{
    begin_scale();
    cr_expect(scales(x, 2, 0));
    aoticache_holder_unref(holder);
    aoticache_context_free(eager);
    aoticache_context_options options = eager_options();
    options.record_file = in_directory("record");
    begin_policy(options);
    for (int i = 0; i < 3; i++)
        cr_expect(scales(x, 2, 0) && scales(x, 3, 0));
    char *text = read_text(in_directory("record"));
    int lines = 0;
    for (char *at = text; (at = strstr(at, "\"test::scale\"")) != NULL; at++)
        lines++;
    cr_expect_eq(lines, 2, "%s", text);
    end_all();
}

/* ---- fork ---- */

static int child_goes_on(void)
{
    if (!scales(x, 2, 0)) /* kernels that are loaded */
        return 1;
    if (!falls_back(x, 5, 0) || aoticache_context_wait(eager, 20000, &error) != AOTICACHE_OK || !scales(x, 5, 0))
        return 2; /* its own background compile */
    if (!falls_back(x, 9, 0) || aoticache_context_wait(eager, 20000, &error) != AOTICACHE_OK || !scales(x, 9, 0))
        return 3; /* queued in the parent, not in the child */
    end_all();
    return 0;
}

Test(holder_miss, child_continues_after_fork)
{
    SKIP_UNDER_EMULATOR(EMULATOR_FORKS_ONE_THREAD);
    begin_background(0);
    cr_expect(falls_back(x, 2, 0));
    cr_expect_eq(aoticache_context_wait(eager, 0, &error), AOTICACHE_OK);
    cr_expect(scales(x, 2, 0));
    hook.is_shut = true;
    cr_expect(falls_back(x, 8, 0));
    cr_expect(falls_back(x, 9, 0));
    while (hook.begun < 2)
        sleep_ms(1); /* now 8 is inside the hook, 9 in the queue */
    pid_t child = fork();
    if (child == 0) {
        hook.is_shut = false; /* each process has its own */
        _exit(child_goes_on());
    }
    int status;
    waitpid(child, &status, 0); /* the parent's stays shut until then: 9 must not be cached before the child asks */
    hook.is_shut = false;
    cr_expect_eq(status, 0, "status %x", (unsigned)status);
    cr_expect_eq(aoticache_context_wait(eager, 0, &error), AOTICACHE_OK);
    cr_expect(scales(x, 8, 0) && scales(x, 9, 0));
    end_all();
}
