/*
 * What stays loaded: budgets, the order of unloading, holds, failures, fork. Runners are those of one fixture library
 * loaded from copies, so each resident has a library of its own.
 */
#include "loader_fixture.h"

#include "loader/runner/residency.h"

#include <sys/wait.h>

enum { MANY = 6 };

static aoticache_residency *residency;
static aoticache_resident *residents[MANY];
static int loads[MANY], released[MANY];
static bool fails[MANY];
static int kernel_fd;

static void setup(void)
{
    fixture_setup();
    kernel_fd = fixture_kernel("kernel.so", "");
}

TestSuite(residency, .init = setup, .fini = fixture_teardown);

static aoticache_status load(void *user, aoticache_runner **ret_runner, aoticache_error *ret_error)
{
    size_t i = (size_t)((int *)user - loads);
    loads[i]++;
    if (fails[i])
        return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "resident %zu will not load", i);
    aoticache_library *library = fixture_load(kernel_fd);
    aoticache_status status = aoticache_runner_create(library, NULL, ret_runner, ret_error);
    aoticache_library_unref(library);
    return status;
}

static void release_user(void *user)
{
    released[(int *)user - loads]++;
}

static void make(size_t max_count, uint64_t max_bytes)
{
    aoticache_residency_options options = AOTICACHE_RESIDENCY_OPTIONS_INIT;
    aoticache_error error = {0};
    options.max_count = max_count;
    options.max_bytes = max_bytes;
    cr_assert_eq(aoticache_residency_create(&options, &residency, &error), AOTICACHE_OK, "%s", error.message);
    for (size_t i = 0; i < MANY; i++)
        cr_assert_eq(aoticache_residency_add(residency, load, &loads[i], release_user, &residents[i], &error),
                     AOTICACHE_OK, "%s", error.message);
}

static aoticache_runner *acquire(size_t i)
{
    aoticache_runner *runner = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_resident_acquire(residents[i], &runner, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_not_null(runner);
    return runner;
}

static void use(size_t i)
{
    acquire(i);
    aoticache_resident_release(residents[i]);
}

static bool is_loaded(size_t i)
{
    if (aoticache_resident_try_acquire(residents[i]) == NULL)
        return false;
    aoticache_resident_release(residents[i]);
    return true;
}

static aoticache_residency_totals totals(void)
{
    aoticache_residency_totals result = {0};
    aoticache_residency_get_totals(residency, &result);
    return result;
}

static float run_on_one(aoticache_runner *runner)
{
    float data = 1;
    AtenTensorHandle input = NULL, output = NULL;
    aoticache_tensor_view view;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_tensor_from_blob(&data, AOTICACHE_DTYPE_FLOAT32, 1, (int64_t[]){1}, NULL, &input, &error),
                 AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_runner_run(runner, &input, 1, &output, 1, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_tensor_get_view(output, &view, &error), AOTICACHE_OK, "%s", error.message);
    float result = *(float *)view.data;
    aoticache_tensor_free(output);
    aoticache_tensor_free(input);
    return result;
}

/* Mapped segments of fixture libraries: they are loaded from copies of this name. */
static int mapped_copies(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int count = 0;
    cr_assert_not_null(maps);
    while (fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, "aoticache-kernel") != NULL;
    fclose(maps);
    return count;
}

Test(residency, first_acquire_loads_and_later_ones_do_not)
{
    make(0, 0);
    cr_assert_null(aoticache_resident_try_acquire(residents[0]));
    cr_assert_eq(loads[0], 0);
    aoticache_runner *runner = acquire(0);
    cr_assert_eq(run_on_one(runner), 2.0f);
    cr_assert_eq(acquire(0), runner);
    cr_assert_eq(aoticache_resident_try_acquire(residents[0]), runner);
    cr_assert_eq(totals().acquired, 1);
    for (int i = 0; i < 3; i++)
        aoticache_resident_release(residents[0]);
    cr_assert_eq(totals().acquired, 0);
    cr_assert(is_loaded(0));
    cr_assert_eq(loads[0], 1);
    cr_assert_eq(totals().loads, 1);
    aoticache_residency_free(residency);
    cr_assert_eq(released[0], 1);
    cr_assert_eq(released[MANY - 1], 1);
    cr_assert_eq(mapped_copies(), 0);
}

Test(residency, least_recently_used_is_unloaded_beyond_the_count)
{
    make(3, 0);
    for (size_t i = 0; i < 3; i++)
        use(i);
    use(0);
    use(3);
    cr_assert(!is_loaded(1), "1 was used before all others");
    cr_assert(is_loaded(2) && is_loaded(0) && is_loaded(3)); /* used in this order by looking */
    use(4);
    cr_assert(!is_loaded(2));
    cr_assert(is_loaded(0));
    use(1);
    cr_assert(!is_loaded(3));
    cr_assert_eq(loads[1], 2);
    cr_assert_eq(totals().loaded, 3);
    cr_assert_eq(totals().loads, 6);
    cr_assert_eq(totals().unloads, 3);
    aoticache_residency_free(residency);
}

Test(residency, bytes_are_a_budget_too)
{
    aoticache_library *library = fixture_load(kernel_fd);
    uint64_t each = aoticache_library_bytes(library);
    aoticache_library_unref(library);
    cr_assert_gt(each, 4096);
    make(0, 2 * each + 100);
    use(0);
    cr_assert_eq(totals().bytes, each);
    use(1);
    cr_assert_eq(totals().bytes, 2 * each);
    use(2);
    cr_assert_eq(totals().bytes, 2 * each);
    cr_assert(!is_loaded(0));
    cr_assert(is_loaded(1) && is_loaded(2));
    aoticache_residency_free(residency);
}

Test(residency, acquired_runners_stay_beyond_the_budget_until_they_are_released)
{
    make(1, 0);
    aoticache_runner *runners[3];
    for (size_t i = 0; i < 3; i++)
        runners[i] = acquire(i);
    cr_assert_eq(totals().loaded, 3);
    aoticache_residency_trim(residency, 0, 0);
    cr_assert_eq(totals().loaded, 3);
    for (size_t i = 0; i < 3; i++)
        cr_assert_eq(run_on_one(runners[i]), 2.0f);
    aoticache_resident_release(residents[1]);
    cr_assert_eq(totals().loaded, 2);
    cr_assert(!is_loaded(1));
    aoticache_resident_release(residents[0]);
    cr_assert_eq(totals().loaded, 1);
    aoticache_resident_release(residents[2]);
    cr_assert(is_loaded(2), "one may stay");
    aoticache_residency_free(residency);
}

Test(residency, failed_load_is_told_and_tried_again)
{
    make(2, 0);
    aoticache_runner *runner = NULL;
    aoticache_error error = {0};
    fails[0] = true;
    for (int i = 1; i <= 2; i++) {
        cr_assert_eq(aoticache_resident_acquire(residents[0], &runner, &error), AOTICACHE_LOAD_FAILED);
        cr_assert_str_eq(error.message, "resident 0 will not load");
        cr_assert_null(runner);
        cr_assert_eq(totals().failed_loads, (uint64_t)i);
    }
    fails[0] = false;
    cr_assert_eq(run_on_one(acquire(0)), 2.0f);
    aoticache_resident_release(residents[0]);
    cr_assert_eq(loads[0], 3);
    aoticache_residency_free(residency);
    cr_assert_eq(released[0], 1);
}

Test(residency, removed_resident_goes_with_its_last_release)
{
    make(0, 0);
    use(0);
    aoticache_resident_remove(residents[0]);
    cr_assert_eq(released[0], 1);
    cr_assert_eq(totals().residents, MANY - 1);
    cr_assert_eq(totals().loaded, 0);
    cr_assert_eq(mapped_copies(), 0);
    aoticache_runner *runner = acquire(1);
    acquire(1);
    aoticache_resident_remove(residents[1]);
    aoticache_residency_trim(residency, 0, 0);
    cr_assert_eq(run_on_one(runner), 2.0f);
    aoticache_resident_release(residents[1]);
    cr_assert_eq(run_on_one(runner), 2.0f);
    cr_assert_eq(released[1], 0);
    cr_assert_eq(totals().loaded, 1);
    aoticache_resident_release(residents[1]);
    cr_assert_eq(released[1], 1);
    cr_assert_eq(totals().loaded, 0);
    aoticache_resident_remove(residents[2]); /* never loaded */
    cr_assert_eq(released[2], 1);
    cr_assert_eq(totals().unloads, 2);
    aoticache_residency_free(residency);
}

Test(residency, trim_unloads_down_to_what_is_given)
{
    make(0, 0);
    for (size_t i = 0; i < MANY; i++)
        use(i);
    aoticache_residency_trim(residency, 4, 0);
    cr_assert_eq(totals().loaded, 4);
    cr_assert(!is_loaded(0) && !is_loaded(1) && is_loaded(2));
    aoticache_residency_trim(residency, 0, totals().bytes / 2);
    cr_assert_eq(totals().loaded, 2);
    cr_assert(is_loaded(2), "looked at last");
    aoticache_residency_trim(residency, 0, 0);
    cr_assert_eq(totals().loaded, 0);
    cr_assert_eq(totals().bytes, 0);
    cr_assert_eq(mapped_copies(), 0);
    aoticache_residency_free(residency);
}

Test(residency, loaded_runner_is_added_with_its_reference)
{
    make(1, 0);
    aoticache_runner *runner = NULL;
    aoticache_resident *added = NULL;
    aoticache_error error = {0};
    int index = MANY - 1;
    use(0);
    cr_assert_eq(load(&loads[index], &runner, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_residency_add_loaded(residency, load, &loads[index], NULL, runner, &added, &error),
                 AOTICACHE_OK, "%s", error.message);
    cr_assert(!is_loaded(0), "the budget holds for it");
    cr_assert_eq(aoticache_resident_try_acquire(added), runner);
    aoticache_resident_release(added);
    use(0);
    cr_assert_null(aoticache_resident_try_acquire(added));
    cr_assert_eq(aoticache_resident_acquire(added, &runner, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(loads[index], 2);
    aoticache_resident_release(added);
    aoticache_residency_free(residency);
    cr_assert_eq(mapped_copies(), 0);
}

Test(residency, child_goes_on_loading_and_unloading)
{
    make(2, 0);
    aoticache_runner *runner = acquire(0);
    use(1);
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        bool good = run_on_one(runner) == 2.0f && run_on_one(acquire(2)) == 2.0f && !is_loaded(1);
        aoticache_resident_release(residents[2]);
        aoticache_resident_release(residents[0]);
        use(1);
        good &= totals().loaded == 2 && !is_loaded(0);
        aoticache_residency_free(residency);
        _exit(good && mapped_copies() == 0 ? 0 : 1);
    }
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    cr_assert(is_loaded(1));
    cr_assert_eq(run_on_one(runner), 2.0f);
    aoticache_resident_release(residents[0]);
    aoticache_residency_free(residency);
}

Test(residency, misuse_is_invalid)
{
    aoticache_residency_options options = {.size = sizeof options + 1};
    aoticache_runner *runner = NULL;
    aoticache_error error = {0};
    make(0, 0);
    cr_assert_eq(aoticache_residency_create(&options, &residency, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_residency_create(NULL, NULL, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_residency_add(residency, NULL, NULL, NULL, &residents[0], &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_residency_add_loaded(residency, load, NULL, NULL, NULL, &residents[0], &error),
                 AOTICACHE_INVALID);
    cr_assert_eq(aoticache_resident_acquire(NULL, &runner, &error), AOTICACHE_INVALID);
    cr_assert_null(aoticache_resident_try_acquire(NULL));
    aoticache_resident_release(NULL);
    aoticache_resident_remove(NULL);
    aoticache_residency_trim(NULL, 0, 0);
    aoticache_residency_free(NULL);
    cr_assert_eq(totals().residents, MANY);
    aoticache_residency_free(residency);
}
