/*
 * eager/compile/cpu_target: maps names of CPU features (cache/request/cpu.h) to the macros by which compilers show that they
 * use them, and to the options that allow them.
 *
 * "-march=native" cannot be stored as a requirement: a machine with fewer features would stop with SIGILL. So the compiler
 * itself is queried for the meaning of the word on this machine.
 */
#include "cache/request/cpu_detect.h"
#include "eager/compile/hook_internal.h"

#include <stdio.h>
#include <string.h>

/*
 * Features that a compiler uses without being asked: architecture, name, macro, option ("" if there is none; on aarch64 the
 * suffix of -march=armv8-a, where features without one come with a version of the architecture or with another feature). The
 * same macro may have another meaning, or none, on another architecture: __GCC_HAVE_SYNC_COMPARE_AND_SWAP_16 is x86's cx16, and
 * all aarch64 processors have it. Features that a compiler only uses if the source requests them (RDRAND, PKU, MOVDIR64B ...)
 * are not in the list. worker.py has the same list.
 */
#define CPU_TARGET_LIST(X)                                                               \
    X("x86_64", "pni", "__SSE3__", "-msse3")                                             \
    X("x86_64", "ssse3", "__SSSE3__", "-mssse3")                                         \
    X("x86_64", "sse4_1", "__SSE4_1__", "-msse4.1")                                      \
    X("x86_64", "sse4_2", "__SSE4_2__", "-msse4.2")                                      \
    X("x86_64", "sse4a", "__SSE4A__", "-msse4a")                                         \
    X("x86_64", "popcnt", "__POPCNT__", "-mpopcnt")                                      \
    X("x86_64", "cx16", "__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16", "-mcx16")                 \
    X("x86_64", "lahf_lm", "__LAHF_SAHF__", "-msahf")                                    \
    X("x86_64", "abm", "__LZCNT__", "-mlzcnt")                                           \
    X("x86_64", "movbe", "__MOVBE__", "-mmovbe")                                         \
    X("x86_64", "aes", "__AES__", "-maes")                                               \
    X("x86_64", "pclmulqdq", "__PCLMUL__", "-mpclmul")                                   \
    X("x86_64", "adx", "__ADX__", "-madx")                                               \
    X("x86_64", "bmi1", "__BMI__", "-mbmi")                                              \
    X("x86_64", "bmi2", "__BMI2__", "-mbmi2")                                            \
    X("x86_64", "avx", "__AVX__", "-mavx")                                               \
    X("x86_64", "f16c", "__F16C__", "-mf16c")                                            \
    X("x86_64", "fma", "__FMA__", "-mfma")                                               \
    X("x86_64", "fma4", "__FMA4__", "-mfma4")                                            \
    X("x86_64", "xop", "__XOP__", "-mxop")                                               \
    X("x86_64", "tbm", "__TBM__", "-mtbm")                                               \
    X("x86_64", "avx2", "__AVX2__", "-mavx2")                                            \
    X("x86_64", "avx_vnni", "__AVXVNNI__", "-mavxvnni")                                  \
    X("x86_64", "vaes", "__VAES__", "-mvaes")                                            \
    X("x86_64", "vpclmulqdq", "__VPCLMULQDQ__", "-mvpclmulqdq")                          \
    X("x86_64", "gfni", "__GFNI__", "-mgfni")                                            \
    X("x86_64", "avx512f", "__AVX512F__", "-mavx512f")                                   \
    X("x86_64", "avx512dq", "__AVX512DQ__", "-mavx512dq")                                \
    X("x86_64", "avx512cd", "__AVX512CD__", "-mavx512cd")                                \
    X("x86_64", "avx512bw", "__AVX512BW__", "-mavx512bw")                                \
    X("x86_64", "avx512vl", "__AVX512VL__", "-mavx512vl")                                \
    X("x86_64", "avx512ifma", "__AVX512IFMA__", "-mavx512ifma")                          \
    X("x86_64", "avx512vbmi", "__AVX512VBMI__", "-mavx512vbmi")                          \
    X("x86_64", "avx512_vbmi2", "__AVX512VBMI2__", "-mavx512vbmi2")                      \
    X("x86_64", "avx512_vnni", "__AVX512VNNI__", "-mavx512vnni")                         \
    X("x86_64", "avx512_bitalg", "__AVX512BITALG__", "-mavx512bitalg")                   \
    X("x86_64", "avx512_vpopcntdq", "__AVX512VPOPCNTDQ__", "-mavx512vpopcntdq")          \
    X("x86_64", "avx512_vp2intersect", "__AVX512VP2INTERSECT__", "-mavx512vp2intersect") \
    X("x86_64", "avx512_bf16", "__AVX512BF16__", "-mavx512bf16")                         \
    X("x86_64", "avx512_fp16", "__AVX512FP16__", "-mavx512fp16")                         \
    X("x86_64", "amx_tile", "__AMX_TILE__", "-mamx-tile")                                \
    X("x86_64", "amx_int8", "__AMX_INT8__", "-mamx-int8")                                \
    X("x86_64", "amx_bf16", "__AMX_BF16__", "-mamx-bf16")                                \
    X("x86_64", "amx_fp16", "__AMX_FP16__", "-mamx-fp16")                                \
    X("x86_64", "amx_complex", "__AMX_COMPLEX__", "-mamx-complex")                       \
    X("x86_64", "3dnowprefetch", "__PRFCHW__", "-mprfchw")                               \
    X("x86_64", "avx_ifma", "__AVXIFMA__", "-mavxifma")                                  \
    X("x86_64", "avx_vnni_int8", "__AVXVNNIINT8__", "-mavxvnniint8")                     \
    X("x86_64", "avx_ne_convert", "__AVXNECONVERT__", "-mavxneconvert")                  \
    X("x86_64", "avx_vnni_int16", "__AVXVNNIINT16__", "-mavxvnniint16")                  \
    X("x86_64", "cmpccxadd", "__CMPCCXADD__", "-mcmpccxadd")                             \
    X("x86_64", "apx_f", "__APX_F__", "-mapxf")                                          \
    X("x86_64", "avx10_1", "__AVX10_1__", "-mavx10.1")                                   \
    X("x86_64", "avx10_2", "__AVX10_2__", "-mavx10.2")                                   \
    X("x86_64", "avx512er", "__AVX512ER__", "-mavx512er")                                \
    X("x86_64", "avx512pf", "__AVX512PF__", "-mavx512pf")                                \
    X("x86_64", "avx512_4vnniw", "__AVX5124VNNIW__", "-mavx5124vnniw")                   \
    X("x86_64", "avx512_4fmaps", "__AVX5124FMAPS__", "-mavx5124fmaps")                   \
    X("aarch64", "atomics", "__ARM_FEATURE_ATOMICS", "+lse")                             \
    X("aarch64", "crc32", "__ARM_FEATURE_CRC32", "+crc")                                 \
    X("aarch64", "aes", "__ARM_FEATURE_AES", "+aes")                                     \
    X("aarch64", "pmull", "__ARM_FEATURE_AES", "+aes")                                   \
    X("aarch64", "sha1", "__ARM_FEATURE_SHA2", "+sha2")                                  \
    X("aarch64", "sha2", "__ARM_FEATURE_SHA2", "+sha2")                                  \
    X("aarch64", "sha3", "__ARM_FEATURE_SHA3", "+sha3")                                  \
    X("aarch64", "sha512", "__ARM_FEATURE_SHA512", "+sha3")                              \
    X("aarch64", "sm3", "__ARM_FEATURE_SM3", "+sm4")                                     \
    X("aarch64", "sm4", "__ARM_FEATURE_SM4", "+sm4")                                     \
    X("aarch64", "fphp", "__ARM_FEATURE_FP16_SCALAR_ARITHMETIC", "+fp16")                \
    X("aarch64", "asimdhp", "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC", "+fp16")             \
    X("aarch64", "asimdrdm", "__ARM_FEATURE_QRDMX", "")                                  \
    X("aarch64", "asimddp", "__ARM_FEATURE_DOTPROD", "+dotprod")                         \
    X("aarch64", "asimdfhm", "__ARM_FEATURE_FP16_FML", "+fp16fml")                       \
    X("aarch64", "jscvt", "__ARM_FEATURE_JCVT", "")                                      \
    X("aarch64", "fcma", "__ARM_FEATURE_COMPLEX", "")                                    \
    X("aarch64", "lrcpc", "__ARM_FEATURE_COMPLEX", "")                                   \
    X("aarch64", "lrcpc", "__ARM_FEATURE_RCPC", "")                                      \
    X("aarch64", "frint", "__ARM_FEATURE_FRINT", "")                                     \
    X("aarch64", "ilrcpc", "__ARM_FEATURE_FRINT", "")                                    \
    X("aarch64", "flagm", "__ARM_FEATURE_FRINT", "")                                     \
    X("aarch64", "bf16", "__ARM_FEATURE_BF16_VECTOR_ARITHMETIC", "+bf16")                \
    X("aarch64", "i8mm", "__ARM_FEATURE_MATMUL_INT8", "+i8mm")                           \
    X("aarch64", "sve", "__ARM_FEATURE_SVE", "+sve")                                     \
    X("aarch64", "svef32mm", "__ARM_FEATURE_SVE_MATMUL_FP32", "+f32mm")                  \
    X("aarch64", "svef64mm", "__ARM_FEATURE_SVE_MATMUL_FP64", "+f64mm")                  \
    X("aarch64", "svebf16", "__ARM_FEATURE_SVE_BF16", "")                                \
    X("aarch64", "svei8mm", "__ARM_FEATURE_SVE_MATMUL_INT8", "")                         \
    X("aarch64", "sve2", "__ARM_FEATURE_SVE2", "+sve2")                                  \
    X("aarch64", "sveaes", "__ARM_FEATURE_SVE2_AES", "+sve2-aes")                        \
    X("aarch64", "svepmull", "__ARM_FEATURE_SVE2_AES", "+sve2-aes")                      \
    X("aarch64", "svebitperm", "__ARM_FEATURE_SVE2_BITPERM", "+sve2-bitperm")            \
    X("aarch64", "svesha3", "__ARM_FEATURE_SVE2_SHA3", "+sve2-sha3")                     \
    X("aarch64", "svesm4", "__ARM_FEATURE_SVE2_SM4", "+sve2-sm4")

struct row {
    const char *arch, *name, *macro, *option;
};

#define ROW(arch, name, macro, option) {arch, name, macro, option},
static const struct row rows[] = {CPU_TARGET_LIST(ROW)};
#define ROW_COUNT (sizeof rows / sizeof rows[0])

bool aoticache_cpu_target_row(size_t position, const char **ret_arch, const char **ret_name, const char **ret_macro,
                              const char **ret_option)
{
    if (position >= ROW_COUNT)
        return false;
    *ret_arch = rows[position].arch;
    *ret_name = rows[position].name;
    *ret_macro = rows[position].macro;
    *ret_option = rows[position].option;
    return true;
}

/* ---- options ---- */

/* Adds one item of an x86-64 list such as "x86-64-v3,avx512f": a level sets *march, a feature adds its option. */
static bool add_token(const char *token, size_t length, const char **march, const char **flags, size_t *count)
{
    static const char *const levels[][2] = {{"x86-64", "-march=x86-64"},
                                            {"x86-64-v2", "-march=x86-64-v2"},
                                            {"x86-64-v3", "-march=x86-64-v3"},
                                            {"x86-64-v4", "-march=x86-64-v4"}};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (strlen(levels[i][0]) == length && memcmp(levels[i][0], token, length) == 0) {
            *march = levels[i][1];
            return true;
        }
    }
    for (size_t i = 0; i < ROW_COUNT; i++) {
        bool same = strcmp(rows[i].arch, "x86_64") == 0 && strlen(rows[i].name) == length &&
                    memcmp(rows[i].name, token, length) == 0;
        if (!same || rows[i].option[0] == '\0' || *count + 2 >= AOTICACHE_CPU_TARGET_FLAGS)
            continue;
        flags[(*count)++] = rows[i].option;
        return true;
    }
    return false;
}

static aoticache_status fill_x86_64(const char *cpu_features, aoticache_cpu_target *target, aoticache_error *ret_error)
{
    const char *march = "-march=x86-64";
    size_t count = 1;
    for (const char *token = cpu_features; *token != '\0';) {
        token += strspn(token, " ,");
        size_t length = strcspn(token, " ,");
        if (length > 0 && !add_token(token, length, &march, target->flags, &count))
            return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                       "CPU feature %.*s: compilers have no option that enables it", (int)length,
                                       token);
        token += length;
    }
    target->flags[0] = march;
    target->flags[count] = NULL;
    return AOTICACHE_OK;
}

/* Returns true if all features in `names`, parsed for this machine, are in the set. */
static bool includes(const aoticache_cpu_features *features, const char *names)
{
    aoticache_cpu_features named;
    return aoticache_cpu_features_parse(names, &named, NULL) == AOTICACHE_OK &&
           aoticache_cpu_features_include(features, &named);
}

/*
 * Writes the highest version whose features are all in the set, and the remaining ones as extensions. Only versions that a
 * compiler's macros show are used: nothing shows Armv8.4, which would let the compiler use ilrcpc.
 */
void aoticache_cpu_target_march_aarch64(const aoticache_cpu_features *features, char *ret_march, size_t size)
{
    static const char *const versions[] = {"armv8.6-a", "armv8.5-a", "armv8.3-a", "armv8.2-a", "armv8-a"};
    aoticache_cpu_features base;
    const char *last = "";
    size_t version = 0;
    while (!includes(features, versions[version]))
        version++;
    aoticache_cpu_features_parse(versions[version], &base, NULL);
    size_t used = (size_t)snprintf(ret_march, size, "-march=%s", versions[version]);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        const char *option = rows[i].option;
        bool wanted = strcmp(rows[i].arch, "aarch64") == 0 && includes(features, rows[i].name) &&
                      !includes(&base, rows[i].name) && strcmp(option, last) != 0;
        if (!wanted || used + strlen(option) >= size)
            continue;
        used += (size_t)snprintf(ret_march + used, size - used, "%s", option);
        last = option;
    }
}

/* Returns the features that no -march of aarch64 expresses, such as those of x86-64. */
static aoticache_cpu_features lacking_options(const aoticache_cpu_features *features)
{
    aoticache_cpu_features known, one;
    aoticache_cpu_features_parse("fp,asimd,sb,flagm2,rng,sme", &known, NULL); /* used only if the source requests it */
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (strcmp(rows[i].arch, "aarch64") == 0 &&
            aoticache_cpu_features_parse(rows[i].name, &one, NULL) == AOTICACHE_OK)
            for (size_t word = 0; word < AOTICACHE_CPU_FEATURE_WORDS; word++)
                known.words[word] |= one.words[word];
    return aoticache_cpu_features_lacking(&known, features);
}

/*
 * Fills in the options for aarch64. "-march=native" would let the compiler use features that have no bit, and so could not be
 * required. Cross compilers do not support the word either.
 */
static aoticache_status fill_aarch64(const char *cpu_features, aoticache_cpu_target *target, aoticache_error *ret_error)
{
    aoticache_cpu_features features = *aoticache_cpu_features_get();
    if (cpu_features != NULL) {
        aoticache_status status = aoticache_cpu_features_parse(cpu_features, &features, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    aoticache_cpu_features lacking = lacking_options(&features);
    if (aoticache_cpu_features_count(&lacking) > 0) {
        char names[256];
        aoticache_cpu_features_format(&lacking, names, sizeof names);
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "CPU feature %s: compilers have no option that enables it", names);
    }
    aoticache_cpu_target_march_aarch64(&features, target->march, sizeof target->march);
    target->flags[0] = target->march;
    target->flags[1] = NULL;
    return AOTICACHE_OK;
}

aoticache_status aoticache_cpu_target_flags(const char *cpu_features, aoticache_cpu_target *ret_target,
                                            aoticache_error *ret_error)
{
    if (strcmp(aoticache_cpu_arch(), "aarch64") == 0)
        return fill_aarch64(cpu_features, ret_target, ret_error);
    if (cpu_features == NULL) {
        ret_target->flags[0] = "-march=native";
        ret_target->flags[1] = NULL;
        return AOTICACHE_OK;
    }
    if (strcmp(aoticache_cpu_arch(), "x86_64") == 0)
        return fill_x86_64(cpu_features, ret_target, ret_error);
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "compiling for less than this machine (%s) is not supported on %s", cpu_features,
                               aoticache_cpu_arch());
}

/* ---- macros ---- */

/* Returns true if a line of `text` is "#define <macro> ...". */
static bool defines_macro(const char *text, const char *macro)
{
    char line[96];
    int length = snprintf(line, sizeof line, "#define %s ", macro);
    for (const char *found = strstr(text, line); found != NULL; found = strstr(found + length, line))
        if (found == text || found[-1] == '\n')
            return true;
    return false;
}

const char *aoticache_cpu_target_names(const char *text, char ret_names[AOTICACHE_CPU_TARGET_NAMES_BYTES])
{
    const char *arch = aoticache_cpu_arch();
    size_t used = 0;
    if (defines_macro(text, "__x86_64__"))
        arch = "x86_64";
    else if (defines_macro(text, "__aarch64__"))
        arch = "aarch64";
    ret_names[0] = '\0';
    const char *last = ""; /* two macros may stand for the same feature */
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (strcmp(rows[i].arch, arch) != 0 || !defines_macro(text, rows[i].macro) || strcmp(rows[i].name, last) == 0 ||
            used >= AOTICACHE_CPU_TARGET_NAMES_BYTES)
            continue;
        last = rows[i].name;
        used += (size_t)snprintf(ret_names + used, AOTICACHE_CPU_TARGET_NAMES_BYTES - used, "%s%s", used > 0 ? "," : "",
                                 last);
    }
    return arch;
}

aoticache_status aoticache_cpu_target_from_macros(const char *text, aoticache_cpu_features *ret_features,
                                                  aoticache_error *ret_error)
{
    char names[AOTICACHE_CPU_TARGET_NAMES_BYTES];
    const char *arch = aoticache_cpu_target_names(text, names);
    if (strcmp(arch, aoticache_cpu_arch()) != 0)
        return aoticache_error_set(
            ret_error, AOTICACHE_UNSUPPORTED,
            "the compiler compiles for %s, but this machine is %s: set AOTICACHE_CC to a compiler for it", arch,
            aoticache_cpu_arch());
    return aoticache_cpu_features_parse(names, ret_features, ret_error);
}

/* Finds the text of a macro that is a string: "12.2.0" of `#define __VERSION__ "12.2.0"`; the length is 0 if there is none. */
static const char *macro_string(const char *text, const char *macro, size_t *ret_length)
{
    const char *found = strstr(text, macro);
    const char *start = found != NULL ? strchr(found, '"') : NULL;
    *ret_length = start != NULL ? strcspn(start + 1, " \"\n") : 0;
    return start != NULL ? start + 1 : "";
}

static void producer_from_macros(const char *text, char ret_producer[AOTICACHE_COMPILER_VERSION_BYTES])
{
    bool clang = defines_macro(text, "__clang__");
    size_t length;
    const char *version = macro_string(text, clang ? "#define __clang_version__ " : "#define __VERSION__ ", &length);
    snprintf(ret_producer, AOTICACHE_COMPILER_VERSION_BYTES, "cc %s %.*s", clang ? "clang" : "gcc",
             length < 32 ? (int)length : 32, version);
}

aoticache_status aoticache_cpu_target_resolve(const char *program, const char *const *flags,
                                              const char *const *environment, uint64_t deadline_ns,
                                              aoticache_compiler *ret_compiler, aoticache_error *ret_error)
{
    static const char *const question[] = {"-dM", "-E", "-x", "c", "/dev/null"};
    const char *arguments[AOTICACHE_CPU_TARGET_FLAGS + 8] = {program};
    size_t count = 1;
    for (size_t i = 0; flags[i] != NULL && i < AOTICACHE_CPU_TARGET_FLAGS; i++)
        arguments[count++] = flags[i];
    for (size_t i = 0; i < sizeof question / sizeof question[0]; i++)
        arguments[count++] = question[i];
    aoticache_compiler compiler;
    aoticache_process process = AOTICACHE_PROCESS_INIT;
    aoticache_process_options options = {.program = program,
                                         .arguments = arguments,
                                         .environment = environment,
                                         .directory = AOTICACHE_PROCESS_NEUTRAL_DIRECTORY};
    aoticache_status status = aoticache_process_run(&options, 1 << 20, deadline_ns, &process, ret_error);
    if (status == AOTICACHE_OK && (process.bytes == NULL || strstr(process.bytes, "#define ") == NULL))
        status = aoticache_error_set(
            ret_error, AOTICACHE_COMPILE_FAILED,
            "compiler %s: -dM -E prints no macros, so the requirements of its code are unknown", program);
    if (status == AOTICACHE_OK)
        status = aoticache_cpu_target_from_macros(process.bytes, &compiler.features, ret_error);
    if (status == AOTICACHE_OK) {
        producer_from_macros(process.bytes, compiler.producer);
        *ret_compiler = compiler;
    }
    aoticache_process_free(&process);
    return status;
}
