/*
 * base/process/optional_library: which of the names is opened, and the message for a library that lacks functions.
 */
#include <criterion/criterion.h>

#include "base/process/optional_library.h"

static double (*cosine)(double);
static double (*nothing)(double);

static const aoticache_library_function complete[] = {{"cos", &cosine}};
static const aoticache_library_function incomplete[] = {{"cos", &cosine}, {"aoticache_no_such_function", &nothing}};

Test(optional_library, first_name_that_opens_is_taken)
{
    static const char *const names[] = {"", "libaoticache-no-such-library.so.1", "libm.so.6"};
    atomic_bool is_open = false;
    char problem[AOTICACHE_OPTIONAL_LIBRARY_PROBLEM_BYTES] = "unchanged";
    cr_assert(aoticache_optional_library_open(&is_open, names, 3, complete, 1, "libm", problem));
    cr_assert_eq(cosine(0), 1);
    cr_assert_str_eq(problem, "unchanged");
}

Test(optional_library, missing_library_leaves_the_problem)
{
    static const char *const names[] = {"", "libaoticache-no-such-library.so.1"};
    atomic_bool is_open = false;
    char problem[AOTICACHE_OPTIONAL_LIBRARY_PROBLEM_BYTES] = "unchanged";
    cr_assert_not(aoticache_optional_library_open(&is_open, names, 2, complete, 1, "libm", problem));
    cr_assert_str_eq(problem, "unchanged");
}

Test(optional_library, missing_function_names_library_and_version)
{
    static const char *const names[] = {"libm.so.6"};
    atomic_bool is_open = false;
    char problem[AOTICACHE_OPTIONAL_LIBRARY_PROBLEM_BYTES] = "unchanged";
    cr_assert_not(aoticache_optional_library_open(&is_open, names, 1, incomplete, 2, "libm 99", problem));
    cr_assert_str_eq(problem, "libm.so.6 lacks functions of libm 99");
}
