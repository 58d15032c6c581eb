/*
 * cache/request/cpu: sets of CPU features, and their text: names as /proc/cpuinfo, GCC and Clang write them, and the levels
 * of the x86-64 psABI and the versions of Arm's architecture. cpu_detect.c detects this machine's features.
 */
#include "base/arguments.h"
#include "cache/request/cpu_detect.h"
#include "cache/request/cpu_list.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cpu_name {
    const char *name;
    unsigned bit;
};

/* The meaning of a name that is not a feature's own: a text to parse instead, "" for a name that needs no bit. */
struct cpu_alias {
    const char *name;
    const char *text;
};

static const struct cpu_name x86_names[] = {
#define NAME(number, name, reg, reg_bit, state) {#name, number},
    AOTICACHE_CPU_X86_LIST(NAME)
#undef NAME
        {NULL, 0},
};

static const struct cpu_name aarch64_names[] = {
#define NAME(number, name, word, word_bit) {#name, number},
    AOTICACHE_CPU_AARCH64_LIST(NAME)
#undef NAME
        {NULL, 0},
};

/* OSXSAVE of level v3 is "xsave", which is set only if the operating system has enabled it. */
#define X86_64_V2 "cx16,lahf_lm,popcnt,pni,sse4_1,sse4_2,ssse3"
#define X86_64_V3 X86_64_V2 ",avx,avx2,bmi1,bmi2,f16c,fma,abm,movbe,xsave"
#define X86_64_V4 X86_64_V3 ",avx512f,avx512bw,avx512cd,avx512dq,avx512vl"

static const struct cpu_alias x86_aliases[] = {
    {"x86-64", ""},
    {"x86-64-v2", X86_64_V2},
    {"x86-64-v3", X86_64_V3},
    {"x86-64-v4", X86_64_V4},
    /* other spellings */
    {"sse3", "pni"},
    {"sse4", "sse4_1,sse4_2"},
    {"crc32", "sse4_2"},
    {"cmpxchg16b", "cx16"},
    {"sahf", "lahf_lm"},
    {"lahf_sahf", "lahf_lm"},
    {"lzcnt", "abm"},
    {"bmi", "bmi1"},
    {"pclmul", "pclmulqdq"},
    {"rdrnd", "rdrand"},
    {"sha", "sha_ni"},
    {"prfchw", "3dnowprefetch"},
    {"prefetchw", "3dnowprefetch"},
    {"ospke", "pku"},
    {"osxsave", "xsave"},
    {"evex512", "avx512f"},
    {"avx10.1-256", "avx10_1"},
    {"avx10.1-512", "avx10_1"},
    {"avx10.2-256", "avx10_2"},
    {"avx10.2-512", "avx10_2"},
    /* every x86-64 has these */
    {"fpu", ""},
    {"80387", ""},
    {"x87", ""},
    {"cmov", ""},
    {"cx8", ""},
    {"mmx", ""},
    {"fxsr", ""},
    {"sse", ""},
    {"sse2", ""},
    {"syscall", ""},
    /* encoded so that a CPU without them ignores them */
    {"shstk", ""},
    {"user_shstk", ""},
    {"ibt", ""},
    {"cldemote", ""},
    {"prefetchi", ""},
    {"hle", ""},
    /* only the operating system may execute these, so no library does */
    {"xsaves", ""},
    {"wbnoinvd", ""},
    {"invpcid", ""},
    {"mwait", ""},
    {"monitor", ""},
    {"pconfig", ""},
    {"hreset", ""},
    {NULL, NULL},
};

/*
 * What a version of the architecture requires of a processor (Arm Architecture Reference Manual, "Armv8-A architecture
 * extensions"), as GCC's -march defines it; Armv9.0 is Armv8.5 and SVE2.
 */
#define ARMV8_1 "crc32,atomics,asimdrdm"
#define ARMV8_3 ARMV8_1 ",jscvt,fcma,lrcpc"
#define ARMV8_4 ARMV8_3 ",asimddp,ilrcpc,flagm"
#define ARMV8_5 ARMV8_4 ",sb,flagm2,frint"
#define ARMV8_6 ARMV8_5 ",i8mm,bf16"
#define ARMV9_0 ARMV8_5 ",fphp,asimdhp,asimdfhm,sve,sve2"

static const struct cpu_alias aarch64_aliases[] = {
    {"armv8-a", ""},
    {"armv8.1-a", ARMV8_1},
    {"armv8.2-a", ARMV8_1},
    {"armv8.3-a", ARMV8_3},
    {"armv8.4-a", ARMV8_4},
    {"armv8.5-a", ARMV8_5},
    {"armv8.6-a", ARMV8_6},
    {"armv9-a", ARMV9_0},
    /* other spellings */
    {"simd", "asimd"},
    {"neon", "asimd"},
    {"crypto", "aes,pmull,sha1,sha2"},
    {"crc", "crc32"},
    {"lse", "atomics"},
    {"fp16", "fphp,asimdhp"},
    {"fp16fml", "asimdfhm"},
    {"rdma", "asimdrdm"},
    {"rdm", "asimdrdm"},
    {"dotprod", "asimddp"},
    {"rcpc", "lrcpc"},
    {"rcpc2", "ilrcpc"},
    {"frintts", "frint"},
    {"sve2-aes", "sveaes,svepmull"},
    {"sve2-bitperm", "svebitperm"},
    {"sve2-sha3", "svesha3"},
    {"sve2-sm4", "svesm4"},
    {"f32mm", "svef32mm"},
    {"f64mm", "svef64mm"},
    {NULL, NULL},
};

/* ---- sets ---- */

static pthread_once_t machine_once = PTHREAD_ONCE_INIT;
static aoticache_cpu_features machine_features;

static void detect_machine(void)
{
    aoticache_cpu_detect(&machine_features);
}

const aoticache_cpu_features *aoticache_cpu_features_get(void)
{
    pthread_once(&machine_once, detect_machine);
    return &machine_features;
}

const char *aoticache_cpu_arch(void)
{
#if defined(__x86_64__)
    return "x86_64";
#elif defined(__aarch64__)
    return "aarch64";
#elif defined(__riscv) && __riscv_xlen == 64
    return "riscv64";
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
    return "ppc64le";
#elif defined(__s390x__)
    return "s390x";
#elif defined(__loongarch64)
    return "loongarch64";
#else
    return "unknown";
#endif
}

/* ---- to text ---- */

static const char *name_of(unsigned bit)
{
    for (const struct cpu_name *entry = x86_names; entry->name != NULL; entry++)
        if (entry->bit == bit)
            return entry->name;
    for (const struct cpu_name *entry = aarch64_names; entry->name != NULL; entry++)
        if (entry->bit == bit)
            return entry->name;
    return NULL;
}

size_t aoticache_cpu_features_format(const aoticache_cpu_features *features, char *ret_text, size_t size)
{
    size_t length = 0;
    if (size > 0)
        ret_text[0] = '\0';
    for (unsigned bit = 0; bit < AOTICACHE_CPU_FEATURE_BITS; bit++) {
        if (!aoticache_cpu_features_has(features, bit))
            continue;
        const char *name = name_of(bit), *comma = length > 0 ? "," : "";
        char *end = length < size ? ret_text + length : NULL;
        size_t left = length < size ? size - length : 0;
        int added =
            name != NULL ? snprintf(end, left, "%s%s", comma, name) : snprintf(end, left, "%sbit%u", comma, bit);
        length += added > 0 ? (size_t)added : 0;
    }
    return length;
}

/* ---- from text ---- */

static bool is_separator(char c)
{
    return c == '_' || c == '-' || c == '.';
}

/* Compares names; compilers and kernels agree only on letters and digits: "avx512_vnni", "avx512vnni", "amx-tile", "sse4.1". */
static bool names_match(const char *name, const char *text, size_t length)
{
    const char *end = text + length;
    for (;;) {
        while (is_separator(*name))
            name++;
        while (text < end && is_separator(*text))
            text++;
        if (*name == '\0' || text == end)
            return *name == '\0' && text == end;
        if (*name++ != *text++)
            return false;
    }
}

static const struct cpu_name *find_name(const struct cpu_name *names, const char *text, size_t length)
{
    for (; names->name != NULL; names++)
        if (names_match(names->name, text, length))
            return names;
    return NULL;
}

static const struct cpu_alias *find_alias(const struct cpu_alias *aliases, const char *text, size_t length)
{
    for (; aliases->name != NULL; aliases++)
        if (names_match(aliases->name, text, length))
            return aliases;
    return NULL;
}

/* Parses "bit77", as format writes a bit without a name. */
static bool parse_bit(const char *text, size_t length, aoticache_cpu_features *features)
{
    unsigned bit = 0;
    if (length < 4 || length > 6 || memcmp(text, "bit", 3) != 0)
        return false;
    for (size_t i = 3; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        bit = 10 * bit + (unsigned)(text[i] - '0');
    }
    if (bit >= AOTICACHE_CPU_FEATURE_BITS)
        return false;
    aoticache_cpu_features_add(features, bit);
    return true;
}

static bool parse_list(bool arm, const char *text, aoticache_cpu_features *features, const char **ret_unknown,
                       size_t *ret_length);

/* Parses one name, of one architecture. Aliases expand to features' own names, so recursion is one level deep. */
static bool parse_name_of(bool arm, const char *text, size_t length, aoticache_cpu_features *features)
{
    const struct cpu_name *name = find_name(arm ? aarch64_names : x86_names, text, length);
    if (name != NULL) {
        aoticache_cpu_features_add(features, name->bit);
        return true;
    }
    const struct cpu_alias *alias = find_alias(arm ? aarch64_aliases : x86_aliases, text, length);
    const char *unknown;
    size_t unknown_length;
    return alias != NULL && parse_list(arm, alias->text, features, &unknown, &unknown_length);
}

static bool parse_name(bool arm, const char *text, size_t length, aoticache_cpu_features *features)
{
    return length > 0 && (parse_name_of(arm, text, length, features) || parse_name_of(!arm, text, length, features) ||
                          parse_bit(text, length, features));
}

/* Adds to `features`; if a name is unknown, returns it. */
static bool parse_list(bool arm, const char *text, aoticache_cpu_features *features, const char **ret_unknown,
                       size_t *ret_length)
{
    if (*text == '\0')
        return true;
    for (;;) {
        size_t length = strcspn(text, ",");
        if (!parse_name(arm, text, length, features)) {
            *ret_unknown = text;
            *ret_length = length;
            return false;
        }
        text += length;
        if (*text == '\0')
            return true;
        text++;
        text += strspn(text, " ");
    }
}

static aoticache_status refuse_name(const char *name, size_t length, aoticache_error *ret_error)
{
    char shown[48];
    size_t count = length < sizeof shown ? length : sizeof shown - 1;
    for (size_t i = 0; i < count; i++)
        shown[i] = name[i] >= ' ' && name[i] < 0x7f ? name[i] : '?';
    shown[count] = '\0';
    if (length == 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "CPU features: a name is missing between commas or at "
                                   "the end");
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "CPU features: unknown name \"%s\"", shown);
}

aoticache_status aoticache_cpu_features_parse_for(const char *arch, const char *text,
                                                  aoticache_cpu_features *ret_features, aoticache_error *ret_error)
{
    aoticache_cpu_features features = {{0}};
    const char *unknown = NULL;
    size_t length = 0;
    if (text == NULL || ret_features == NULL)
        return AOTICACHE_REFUSE_NULL_OF("aoticache_cpu_features_parse", ret_error, text, ret_features);
    if (!parse_list(strcmp(arch, "aarch64") == 0, text, &features, &unknown, &length))
        return refuse_name(unknown, length, ret_error);
    *ret_features = features;
    return AOTICACHE_OK;
}

aoticache_status aoticache_cpu_features_parse(const char *text, aoticache_cpu_features *ret_features,
                                              aoticache_error *ret_error)
{
    return aoticache_cpu_features_parse_for(aoticache_cpu_arch(), text, ret_features, ret_error);
}

void aoticache_cpu_feature_name_for(const char *arch, unsigned bit, char ret_name[AOTICACHE_CPU_FEATURE_NAME_BYTES])
{
    const char *name = name_of(bit);
    aoticache_cpu_features wanted = {{0}}, parsed = {{0}};
    aoticache_cpu_features_add(&wanted, bit);
    if (name != NULL && aoticache_cpu_features_parse_for(arch, name, &parsed, NULL) == AOTICACHE_OK &&
        memcmp(&wanted, &parsed, sizeof wanted) == 0)
        snprintf(ret_name, AOTICACHE_CPU_FEATURE_NAME_BYTES, "%s", name);
    else
        snprintf(ret_name, AOTICACHE_CPU_FEATURE_NAME_BYTES, "bit%u", bit);
}
