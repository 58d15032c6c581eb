/* Unit tests of eager/compile/cpu_target.c. */
#include "cache/request/cpu_detect.h"
#include "cache/request/cpu_list.h"
#include "compiler_macros.h"
#include "eager/compile/hook_internal.h"

#include <criterion/criterion.h>
#include <string.h>

Test(cpu_target, every_name_is_known_to_the_cache)
{
    const char *arch, *name, *macro, *option;
    for (size_t i = 0; aoticache_cpu_target_row(i, &arch, &name, &macro, &option); i++) {
        aoticache_cpu_features features;
        cr_assert_eq(aoticache_cpu_features_parse_for(arch, name, &features, NULL), AOTICACHE_OK, "%s", name);
    }
}

Test(cpu_target, macros_become_features)
{
    if (strcmp(aoticache_cpu_arch(), "x86_64") != 0)
        cr_skip_test("the macros are those of x86-64");
    aoticache_cpu_features features;
    char names[256];
    cr_assert_eq(aoticache_cpu_target_from_macros("#define __AVX2__ 1\n#define X __FMA__ \n#define __BMI__ 1\n",
                                                  &features, NULL),
                 AOTICACHE_OK);
    aoticache_cpu_features_format(&features, names, sizeof names);
    cr_assert_str_eq(names, "avx2,bmi1");
}

static void expect_march(const char *names, const char *expected)
{
    aoticache_cpu_features features;
    char march[256];
    cr_assert_eq(aoticache_cpu_features_parse(names, &features, NULL), AOTICACHE_OK, "%s", names);
    aoticache_cpu_target_march_aarch64(&features, march, sizeof march);
    cr_expect_str_eq(march, expected, "%s: %s", names, march);
}

/* Names that both architectures have (aes, sm3, sm4, sha512) mean this machine's, so none of them is here. */
Test(cpu_target, march_of_aarch64_has_a_version_and_extensions)
{
    expect_march("", "-march=armv8-a");
    expect_march("fp,neon", "-march=armv8-a");
    expect_march("dotprod,lse", "-march=armv8-a+lse+dotprod");
    expect_march("armv8.2-a", "-march=armv8.2-a");
    expect_march("armv8.2-a,fphp,asimdhp,asimddp,sve", "-march=armv8.2-a+fp16+dotprod+sve");
    expect_march("armv8.4-a", "-march=armv8.3-a+dotprod");
    expect_march("armv8.6-a,fp16,sve,sve2,svebf16,svei8mm", "-march=armv8.6-a+fp16+sve+sve2");
    expect_march("armv9-a,i8mm,bf16", "-march=armv8.6-a+fp16+fp16fml+sve+sve2");
    expect_march("jscvt,fcma,frint", "-march=armv8-a"); /* they have no option */
}

Test(cpu_target, features_of_the_other_architecture_are_refused)
{
    aoticache_cpu_target target;
    aoticache_error error = {.message = ""};
    bool is_arm = strcmp(aoticache_cpu_arch(), "aarch64") == 0;
    const char *other = is_arm ? "avx2" : "sve2";
    cr_assert_eq(aoticache_cpu_target_flags(other, &target, &error), AOTICACHE_UNSUPPORTED);
    cr_assert_not_null(strstr(error.message, other), "%s", error.message);
}

/* A macro of one architecture's list may exist on another one, for which it is not a feature. */
Test(cpu_target, macros_are_those_of_the_architecture_that_is_compiled_for)
{
    static const char *const lists[][3] = {{AARCH64_MACROS, "aarch64", AARCH64_FEATURES},
                                           {AARCH64_SVE2_MACROS, "aarch64", AARCH64_SVE2_FEATURES},
                                           {AARCH64_PLAIN_MACROS, "aarch64", ""},
                                           {X86_64_MACROS, "x86_64", X86_64_FEATURES}};
    char names[AOTICACHE_CPU_TARGET_NAMES_BYTES];
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        aoticache_cpu_features features;
        aoticache_error error = {.message = ""};
        cr_assert_str_eq(aoticache_cpu_target_names(lists[i][0], names), lists[i][1]);
        cr_assert_str_eq(names, lists[i][2]);
        bool is_here = strcmp(lists[i][1], aoticache_cpu_arch()) == 0;
        aoticache_status status = aoticache_cpu_target_from_macros(lists[i][0], &features, &error);
        cr_assert_eq(status, is_here ? AOTICACHE_OK : AOTICACHE_UNSUPPORTED, "%s", error.message);
        cr_assert(is_here || strstr(error.message, lists[i][1]) != NULL, "%s", error.message);
    }
}
