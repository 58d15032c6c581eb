/*
 * CPU features: sets, their text, and that CPUID agrees with the kernel's list.
 */
#include "cache/request/cpu_detect.h"
#include "cache/request/cpu_list.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static aoticache_cpu_features parse(const char *text)
{
    aoticache_cpu_features features = {{0}};
    aoticache_error error = {0};
    cr_expect_eq(aoticache_cpu_features_parse_for("x86_64", text, &features, &error), AOTICACHE_OK, "%s: %s", text,
                 error.message);
    return features;
}

static void expect_text(const char *parsed, const char *expected)
{
    char text[1024];
    aoticache_cpu_features features = parse(parsed);
    size_t length = aoticache_cpu_features_format(&features, text, sizeof text);
    cr_expect_str_eq(text, expected, "%s gives %s", parsed, text);
    cr_expect_eq(length, strlen(expected));
}

Test(cpu, numbers_of_bits_never_change)
{
    static const struct {
        const char *name;
        unsigned bit;
    } fixed[] = {{"pni", 0},       {"avx", 8},    {"avx2", 9},      {"fma", 10},
                 {"abm", 14},      {"xsave", 15}, {"avx512f", 32},  {"avx512_bf16", 43},
                 {"amx_tile", 50}, {"lwp", 63},   {"xsaveopt", 64}, {"avx10_2", 87}};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        aoticache_cpu_features features = parse(fixed[i].name);
        cr_expect_eq(aoticache_cpu_features_count(&features), 1, "%s", fixed[i].name);
        cr_expect(aoticache_cpu_features_has(&features, fixed[i].bit), "%s", fixed[i].name);
    }
}

Test(cpu, list_has_no_number_twice)
{
    static const unsigned numbers[] = {
#define NUMBER(number, name, reg, reg_bit, state) number,
        AOTICACHE_CPU_X86_LIST(NUMBER)
#undef NUMBER
#define NUMBER(number, name, word, word_bit) number,
            AOTICACHE_CPU_AARCH64_LIST(NUMBER)
#undef NUMBER
    };
    aoticache_cpu_features all = {{0}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        cr_assert_lt(numbers[i], AOTICACHE_CPU_FEATURE_BITS);
        cr_expect(!aoticache_cpu_features_has(&all, numbers[i]), "%u", numbers[i]);
        aoticache_cpu_features_add(&all, numbers[i]);
    }
}

Test(cpu, format_is_in_the_order_of_bits)
{
    expect_text("", "");
    expect_text("fma,avx,  avx2", "avx,avx2,fma");
    expect_text("avx2,avx2", "avx2");
    expect_text("bit77,bit8", "avx,bit77");
}

Test(cpu, format_cuts_off_as_snprintf_does)
{
    aoticache_cpu_features features = parse("avx,avx2,fma");
    char text[8];
    cr_expect_eq(aoticache_cpu_features_format(&features, NULL, 0), 12);
    cr_expect_eq(aoticache_cpu_features_format(&features, text, sizeof text), 12);
    cr_expect_str_eq(text, "avx,avx");
    cr_expect_eq(aoticache_cpu_features_format(&features, text, 1), 12);
    cr_expect_str_eq(text, "");
    features = (aoticache_cpu_features){{0}};
    cr_expect_eq(aoticache_cpu_features_format(&features, text, sizeof text), 0);
    cr_expect_str_eq(text, "");
}

Test(cpu, parse_understands_compilers)
{
    expect_text("sse3,sse4.1,sse4.2,lzcnt,pclmul,rdrnd,sha,bmi,prfchw,sahf",
                "pni,sse4_1,sse4_2,lahf_lm,bmi1,abm,pclmulqdq,sha_ni,rdrand,3dnowprefetch");
    expect_text("avx512f,avx512vbmi2,avx512vnni,avx512bitalg,avx512vpopcntdq,avx512bf16,avx512fp16,avx512vp2intersect",
                "avx512f,avx512_vbmi2,avx512_vnni,avx512_bitalg,avx512_vpopcntdq,avx512_bf16,avx512_fp16,"
                "avx512_vp2intersect");
    expect_text("amx-tile,amx-int8,amx_bf16,avxvnni,avxifma,avx5124fmaps",
                "avx_vnni,avx_ifma,avx512_4fmaps,amx_tile,amx_int8,amx_bf16");
    expect_text("mmx,fxsr,sse,sse2,shstk,xsaves,wbnoinvd,x87", "");
    expect_text("sse4,crc32", "sse4_1,sse4_2");
}

Test(cpu, parse_levels_are_those_of_the_psabi)
{
    expect_text("x86-64", "");
    expect_text("x86-64-v2", "pni,ssse3,sse4_1,sse4_2,popcnt,cx16,lahf_lm");
    expect_text("x86-64-v3", "pni,ssse3,sse4_1,sse4_2,popcnt,cx16,lahf_lm,movbe,avx,avx2,fma,f16c,bmi1,bmi2,abm,xsave");
    expect_text("x86-64-v4", "pni,ssse3,sse4_1,sse4_2,popcnt,cx16,lahf_lm,movbe,avx,avx2,fma,f16c,bmi1,bmi2,abm,xsave,"
                             "avx512f,avx512cd,avx512dq,avx512bw,avx512vl");
    expect_text("x86-64-v2, gfni", "pni,ssse3,sse4_1,sse4_2,popcnt,cx16,lahf_lm,gfni");
}

Test(cpu, parse_unknown_names_are_refused)
{
    static const char *const bad[] = {"native",    "avx3",     "avx,,fma", "avx,",    ",avx",  " avx",
                                      "avx fma",   "AVX",      "bit128",   "bit",     "bit-1", "bit1234567",
                                      "x86-64-v5", "avx\nfma", "_",        "avx2\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        aoticache_cpu_features features = {{1, 2}};
        aoticache_error error = {0};
        cr_expect_eq(aoticache_cpu_features_parse(bad[i], &features, &error), AOTICACHE_INVALID, "%s", bad[i]);
        cr_expect_eq(features.words[0], 1, "%s", bad[i]);
        cr_expect_null(strchr(error.message, '\n'));
        cr_expect(strstr(error.message, "CPU features: ") == error.message);
    }
    aoticache_error error = {0};
    aoticache_cpu_features features;
    cr_expect_eq(aoticache_cpu_features_parse("avx,native", &features, &error), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "\"native\""));
    cr_expect_eq(aoticache_cpu_features_parse(NULL, &features, &error), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_cpu_features_parse("avx", NULL, &error), AOTICACHE_INVALID);
}

Test(cpu, names_of_both_architectures_mean_the_one_asked_for)
{
    aoticache_cpu_features x86, arm;
    char name[AOTICACHE_CPU_FEATURE_NAME_BYTES];
    cr_assert_eq(aoticache_cpu_features_parse_for("x86_64", "aes", &x86, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_cpu_features_parse_for("aarch64", "aes", &arm, NULL), AOTICACHE_OK);
    cr_expect(aoticache_cpu_features_has(&x86, 16));
    cr_expect(aoticache_cpu_features_has(&arm, 90));
    aoticache_cpu_feature_name_for("aarch64", 90, name);
    cr_expect_str_eq(name, "aes");
    aoticache_cpu_feature_name_for("x86_64", 90, name);
    cr_expect_str_eq(name, "bit90");
    cr_assert_eq(aoticache_cpu_features_parse_for("aarch64", "simd,fp16,dotprod,lse,crc", &arm, NULL), AOTICACHE_OK);
    cr_expect_eq(aoticache_cpu_features_count(&arm), 6);
}

Test(cpu, every_bit_comes_back_from_its_name)
{
    static const char *const archs[] = {"x86_64", "aarch64", "riscv64"};
    for (size_t i = 0; i < 3; i++)
        for (unsigned bit = 0; bit < AOTICACHE_CPU_FEATURE_BITS; bit++) {
            char name[AOTICACHE_CPU_FEATURE_NAME_BYTES];
            aoticache_cpu_features features = {{0}};
            aoticache_cpu_feature_name_for(archs[i], bit, name);
            cr_assert_eq(aoticache_cpu_features_parse_for(archs[i], name, &features, NULL), AOTICACHE_OK, "%s", name);
            cr_expect_eq(aoticache_cpu_features_count(&features), 1, "%s", name);
            cr_expect(aoticache_cpu_features_has(&features, bit), "%s: %s is not %u", archs[i], name, bit);
        }
}

static void expect_arm(const char *text, const char *expected)
{
    aoticache_cpu_features features = {{0}};
    char found[1024];
    cr_expect_eq(aoticache_cpu_features_parse_for("aarch64", text, &features, NULL), AOTICACHE_OK, "%s", text);
    aoticache_cpu_features_format(&features, found, sizeof found);
    cr_expect_str_eq(found, expected, "%s gives %s", text, found);
}

/* The names of GCC and Clang after -march=armv8-a+, next to those of Linux in /proc/cpuinfo. */
Test(cpu, names_of_arm_are_those_of_linux_and_of_compilers)
{
    expect_arm("neon", "asimd");
    expect_arm("dotprod,i8mm,bf16", "asimddp,i8mm,bf16");
    expect_arm("sve,sve2,sve2-bitperm", "sve,sve2,svebitperm");
    expect_arm("fp16,fp16fml", "fphp,asimdhp,asimdfhm");
    expect_arm("lse,rdma,crc,rcpc", "crc32,atomics,asimdrdm,lrcpc");
    expect_arm("f32mm,f64mm,sve2-aes", "sveaes,svepmull,svef32mm,svef64mm");
}

Test(cpu, versions_of_arm_are_what_they_demand)
{
    expect_arm("armv8-a", "");
    expect_arm("armv8.1-a", "crc32,atomics,asimdrdm");
    expect_arm("armv8.2-a", "crc32,atomics,asimdrdm");
    expect_arm("armv8.3-a", "crc32,atomics,asimdrdm,jscvt,fcma,lrcpc");
    expect_arm("armv8.4-a", "crc32,atomics,asimdrdm,jscvt,fcma,lrcpc,asimddp,ilrcpc,flagm");
    expect_arm("armv8.5-a", "crc32,atomics,asimdrdm,jscvt,fcma,lrcpc,asimddp,ilrcpc,flagm,sb,flagm2,frint");
    expect_arm("armv8.6-a", "crc32,atomics,asimdrdm,jscvt,fcma,lrcpc,asimddp,ilrcpc,flagm,sb,flagm2,frint,i8mm,bf16");
    expect_arm("armv9-a",
               "crc32,atomics,fphp,asimdhp,asimdrdm,jscvt,fcma,lrcpc,asimddp,sve,asimdfhm,ilrcpc,flagm,sb,sve2,"
               "flagm2,frint");
}

#if defined(__aarch64__)
#include <asm/hwcap.h>

/* Compares the list with the kernel's own header. */
Test(cpu, bits_of_arm_are_those_of_the_kernels_header)
{
    static const struct {
        const char *name;
        unsigned long hwcap, hwcap2;
    } header[] = {{"fp", HWCAP_FP, 0},
                  {"asimd", HWCAP_ASIMD, 0},
                  {"aes", HWCAP_AES, 0},
                  {"pmull", HWCAP_PMULL, 0},
                  {"sha1", HWCAP_SHA1, 0},
                  {"sha2", HWCAP_SHA2, 0},
                  {"crc32", HWCAP_CRC32, 0},
                  {"atomics", HWCAP_ATOMICS, 0},
                  {"fphp", HWCAP_FPHP, 0},
                  {"asimdhp", HWCAP_ASIMDHP, 0},
                  {"asimdrdm", HWCAP_ASIMDRDM, 0},
                  {"jscvt", HWCAP_JSCVT, 0},
                  {"fcma", HWCAP_FCMA, 0},
                  {"lrcpc", HWCAP_LRCPC, 0},
                  {"sha3", HWCAP_SHA3, 0},
                  {"sm3", HWCAP_SM3, 0},
                  {"sm4", HWCAP_SM4, 0},
                  {"asimddp", HWCAP_ASIMDDP, 0},
                  {"sha512", HWCAP_SHA512, 0},
                  {"sve", HWCAP_SVE, 0},
                  {"asimdfhm", HWCAP_ASIMDFHM, 0},
                  {"ilrcpc", HWCAP_ILRCPC, 0},
                  {"flagm", HWCAP_FLAGM, 0},
                  {"sb", HWCAP_SB, 0},
                  {"sve2", 0, HWCAP2_SVE2},
                  {"sveaes", 0, HWCAP2_SVEAES},
                  {"svepmull", 0, HWCAP2_SVEPMULL},
                  {"svebitperm", 0, HWCAP2_SVEBITPERM},
                  {"svesha3", 0, HWCAP2_SVESHA3},
                  {"svesm4", 0, HWCAP2_SVESM4},
                  {"flagm2", 0, HWCAP2_FLAGM2},
                  {"frint", 0, HWCAP2_FRINT},
                  {"svei8mm", 0, HWCAP2_SVEI8MM},
                  {"svef32mm", 0, HWCAP2_SVEF32MM},
                  {"svef64mm", 0, HWCAP2_SVEF64MM},
                  {"svebf16", 0, HWCAP2_SVEBF16},
                  {"i8mm", 0, HWCAP2_I8MM},
                  {"bf16", 0, HWCAP2_BF16},
                  {"rng", 0, HWCAP2_RNG},
                  {"sme", 0, HWCAP2_SME}};
    static const struct {
        const char *name;
        unsigned word, bit;
    } list[] = {
#define ROW(number, name, word, bit) {#name, word, bit},
        AOTICACHE_CPU_AARCH64_LIST(ROW)
#undef ROW
    };
    cr_assert_eq(sizeof list / sizeof list[0], sizeof header / sizeof header[0]);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        cr_expect_str_eq(list[i].name, header[i].name);
        cr_expect_eq(list[i].word == 1 ? header[i].hwcap : header[i].hwcap2, 1ul << list[i].bit, "%s", list[i].name);
    }
}
#endif

Test(cpu, sets_include_and_lack)
{
    aoticache_cpu_features have = parse("avx,avx2,fma,xsavec"), need = parse("avx2,xsavec");
    aoticache_cpu_features more = parse("avx2,amx_tile");
    cr_expect(aoticache_cpu_features_include(&have, &need));
    cr_expect(aoticache_cpu_features_include(&have, &have));
    cr_expect_not(aoticache_cpu_features_include(&need, &have));
    cr_expect_not(aoticache_cpu_features_include(&have, &more));
    aoticache_cpu_features lacking = aoticache_cpu_features_lacking(&have, &more), expected = parse("amx_tile");
    cr_expect_arr_eq(&lacking, &expected, sizeof lacking);
    cr_expect_eq(aoticache_cpu_features_count(&have), 4);
}

/* ---- this machine ---- */

/* Linux does not always list these if CPUID has them, so the test checks only that listed ones are found. */
static const struct {
    const char *name, *reason;
} one_sided[] = {
    {"rdrand", "Linux hides it on CPUs where it is faulty, though programs can still execute it"},
    {"rdseed", "Linux hides it on CPUs where it is faulty, though programs can still execute it"},
    {"avx_vnni_int8", "Linux gives it no name"},
    {"avx_ne_convert", "Linux gives it no name"},
    {"avx_vnni_int16", "Linux gives it no name"},
    {"avx_ifma", "Linux does not show it"},
    {"amx_fp16", "Linux does not show it"},
    {"amx_complex", "Linux gives it no name"},
    {"sha512", "Linux gives it no name"},
    {"sm3", "Linux gives it no name"},
    {"sm4", "Linux gives it no name"},
    {"cmpccxadd", "Linux does not show it"},
    {"raoint", "Linux gives it no name"},
    {"ptwrite", "Linux gives it no name"},
    {"prefetchwt1", "Linux gives it no name"},
    {"uintr", "Linux gives it no name"},
    {"apx_f", "shown since Linux 6.16"},
    {"avx10_1", "Linux gives it no name"},
    {"avx10_2", "Linux gives it no name"},
    {"lwp", "not used since Linux 5"},
    {"serialize", "shown since Linux 5.10"},
    {"tsxldtrk", "shown since Linux 5.10"},
    {"avx_vnni", "shown since Linux 5.12"},
    {"avx512_bf16", "shown since Linux 5.3"},
    {"avx512_fp16", "shown since Linux 5.11"},
    {"avx512_vp2intersect", "shown since Linux 5.4"},
    {"amx_tile", "shown since Linux 5.11"},
    {"amx_int8", "shown since Linux 5.11"},
    {"amx_bf16", "shown since Linux 5.11"},
    {"enqcmd", "shown since Linux 5.10, and switched off by some"},
    {"sgx", "shown only where the firmware has switched it on"},
    {"pku", "shown also where the system has not switched it on: ospke is what counts"},
};

static bool is_one_sided(const char *name)
{
    for (size_t i = 0; i < sizeof one_sided / sizeof one_sided[0]; i++)
        if (strcmp(one_sided[i].name, name) == 0)
            return true;
    return false;
}

/*
 * Reads " flag flag flag " from the first line that begins with `label`; NULL if there is none. Free *ret_flags with
 * free().
 */
static bool read_flags(const char *label, char **ret_flags)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char *line = NULL;
    size_t capacity = 0;
    bool found = false;
    ssize_t length;
    while (file != NULL && !found && (length = getline(&line, &capacity, file)) > 0) {
        char *colon = strchr(line, ':');
        if (colon == NULL || strncmp(line, label, strlen(label)) != 0)
            continue;
        line[length - 1] = ' ';
        *ret_flags = strdup(colon + 1);
        found = true;
    }
    if (file != NULL)
        fclose(file);
    free(line);
    return found;
}

static bool is_listed(const char *flags, const char *name)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", name);
    return strstr(flags, word) != NULL;
}

static size_t compare_flag(const char *flags, const char *name, unsigned bit)
{
    bool ours = aoticache_cpu_features_has(aoticache_cpu_features_get(), bit);
    bool listed = is_listed(flags, strcmp(name, "pku") == 0 ? "ospke" : name);
    if (listed || !is_one_sided(name))
        cr_expect_eq(ours, listed, "%s: CPUID says %d, /proc/cpuinfo says %d", name, ours, listed);
    return listed;
}

Test(cpu, machine_agrees_with_proc_cpuinfo)
{
    char *flags = NULL;
    size_t listed = 0;
#if defined(__x86_64__)
    if (!read_flags("flags", &flags))
        cr_skip_test("there is no /proc/cpuinfo with a line of flags");
#define COMPARE(number, name, reg, reg_bit, state) listed += compare_flag(flags, #name, number);
    AOTICACHE_CPU_X86_LIST(COMPARE)
#undef COMPARE
#elif defined(__aarch64__)
    if (!read_flags("Features", &flags))
        cr_skip_test("there is no /proc/cpuinfo with a line of features");
#define COMPARE(number, name, word, word_bit) listed += compare_flag(flags, #name, number);
    AOTICACHE_CPU_AARCH64_LIST(COMPARE)
#undef COMPARE
#else
    (void)compare_flag;
    (void)read_flags;
    cr_skip_test("no CPU features are known for this architecture");
#endif
    cr_expect_gt(listed, 0);
    free(flags);
}

Test(cpu, machine_is_asked_once)
{
    const aoticache_cpu_features *first = aoticache_cpu_features_get();
    aoticache_cpu_features now;
    aoticache_cpu_detect(&now);
    cr_expect_eq(aoticache_cpu_features_get(), first);
    cr_expect_arr_eq(first, &now, sizeof now);
}
