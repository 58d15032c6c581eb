/*
 * cache/request/cpu_detect: detects the features of this CPU that programs can use.
 *
 * x86-64: CPUID, and XGETBV for the registers that the operating system saves: a CPU with AVX-512 under a system that does
 * not save its registers cannot run it. AMX counts as available if the system saves tiles; on Linux every process must still
 * request them (arch_prctl ARCH_REQ_XCOMP_PERM), which the code that uses them does. aarch64: the auxiliary vector.
 */
#include "cache/request/cpu_list.h"

#include <sys/auxv.h>

#if defined(__x86_64__)

#include <cpuid.h>
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

enum cpuid_register {
    REGISTER_NOWHERE,
    REGISTER_1_ECX,
    REGISTER_7_EBX,
    REGISTER_7_ECX,
    REGISTER_7_EDX,
    REGISTER_7_1_EAX,
    REGISTER_7_1_EDX,
    REGISTER_D_1_EAX,
    REGISTER_14_EBX,
    REGISTER_80000001_ECX,
    REGISTER_80000008_EBX,
    REGISTER_COUNT,
};

/* What the operating system has enabled: bits of a mask. */
enum state {
    STATE_NONE = 0,
    STATE_XSAVE = 1 << 0,
    STATE_YMM = 1 << 1,
    STATE_ZMM = 1 << 2,
    STATE_TILE = 1 << 3,
    STATE_APX = 1 << 4,
    STATE_LWP = 1 << 5,
    STATE_FSGSBASE = 1 << 6,
};

struct feature {
    uint8_t bit, reg, reg_bit;
    uint8_t state;
};

static const struct feature features[] = {
#define FEATURE(number, name, reg, reg_bit, state) {number, REGISTER_##reg, reg_bit, STATE_##state},
    AOTICACHE_CPU_X86_LIST(FEATURE)
#undef FEATURE
};

static void read_leaf(unsigned leaf, unsigned subleaf, unsigned ret_registers[4])
{
    unsigned *r = ret_registers;
    if (!__get_cpuid_count(leaf, subleaf, &r[0], &r[1], &r[2], &r[3]))
        r[0] = r[1] = r[2] = r[3] = 0;
}

/*
 * The values that the dynamic linker of glibc 2.33 and later has read already (sys/platform/x86.h): in a virtual machine
 * each CPUID instruction exits to the host, which takes some 4 us. The function is looked up by name, so that the library
 * loads with an older glibc, and with another C library.
 */
enum known_leaf {
    KNOWN_1,
    KNOWN_7,
    KNOWN_80000001,
    KNOWN_D_1,
    KNOWN_80000007,
    KNOWN_80000008,
    KNOWN_7_1,
    KNOWN_19,
    KNOWN_14
};

struct known_feature { /* struct cpuid_feature */
    unsigned cpuid[4], active[4];
};

typedef const struct known_feature *(*get_leaf_fn)(unsigned known);

static void read_known(get_leaf_fn get_leaf, enum known_leaf known, unsigned leaf, unsigned subleaf,
                       unsigned ret_registers[4])
{
    const struct known_feature *feature = get_leaf != NULL ? get_leaf(known) : NULL;
    if (feature != NULL)
        memcpy(ret_registers, feature->cpuid, sizeof feature->cpuid);
    else
        read_leaf(leaf, subleaf, ret_registers);
}

static void read_registers(unsigned ret_values[REGISTER_COUNT])
{
    unsigned r[4];
    unsigned *values = ret_values;
    get_leaf_fn get_leaf;
    *(void **)&get_leaf = dlsym(RTLD_DEFAULT, "__x86_get_cpuid_feature_leaf");
    values[REGISTER_NOWHERE] = 0;
    read_known(get_leaf, KNOWN_1, 1, 0, r);
    values[REGISTER_1_ECX] = r[2];
    read_known(get_leaf, KNOWN_7, 7, 0, r);
    unsigned last_subleaf = r[0];
    values[REGISTER_7_EBX] = r[1];
    values[REGISTER_7_ECX] = r[2];
    values[REGISTER_7_EDX] = r[3];
    read_known(get_leaf, KNOWN_7_1, 7, 1, r);
    values[REGISTER_7_1_EAX] = last_subleaf >= 1 ? r[0] : 0;
    values[REGISTER_7_1_EDX] = last_subleaf >= 1 ? r[3] : 0;
    read_known(get_leaf, KNOWN_D_1, 0xd, 1, r);
    values[REGISTER_D_1_EAX] = r[0];
    read_known(get_leaf, KNOWN_14, 0x14, 0, r);
    values[REGISTER_14_EBX] = r[1];
    read_known(get_leaf, KNOWN_80000001, 0x80000001, 0, r);
    values[REGISTER_80000001_ECX] = r[2];
    read_known(get_leaf, KNOWN_80000008, 0x80000008, 0, r);
    values[REGISTER_80000008_EBX] = r[1];
}

/* Reads XCR0. Only if CPUID reports OSXSAVE: otherwise the instruction faults. */
static uint64_t read_xcr0(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Reads the state that the system saves. Intel SDM volume 1, 13.1: the registers for each bit of XCR0. */
static unsigned read_state(bool has_osxsave)
{
    const uint64_t ymm = 0x6, zmm = 0xe6, tile = 0x60000, apx = 1 << 19, lwp = UINT64_C(1) << 62;
    const unsigned long hwcap2_fsgsbase = 1 << 1; /* asm/hwcap2.h */
    unsigned state = getauxval(AT_HWCAP2) & hwcap2_fsgsbase ? STATE_FSGSBASE : 0;
    if (!has_osxsave)
        return state;
    uint64_t xcr0 = read_xcr0();
    state |= STATE_XSAVE;
    state |= (xcr0 & ymm) == ymm ? STATE_YMM : 0;
    state |= (xcr0 & zmm) == zmm ? STATE_ZMM : 0;
    state |= (xcr0 & tile) == tile ? STATE_TILE : 0;
    state |= (xcr0 & apx) == apx ? STATE_APX : 0;
    state |= (xcr0 & lwp) == lwp ? STATE_LWP : 0;
    return state;
}

/* Returns 0 if there is no AVX10. */
static unsigned read_avx10_version(const unsigned values[REGISTER_COUNT])
{
    unsigned r[4];
    if ((values[REGISTER_7_1_EDX] >> 19 & 1) == 0)
        return 0;
    read_leaf(0x24, 0, r);
    return r[1] & 0xff;
}

void aoticache_cpu_detect(aoticache_cpu_features *ret_features)
{
    aoticache_cpu_features found = {{0}};
    unsigned values[REGISTER_COUNT];
    read_registers(values);
    unsigned state = read_state(values[REGISTER_1_ECX] >> 27 & 1);
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        const struct feature *feature = features + i;
        if ((values[feature->reg] >> feature->reg_bit & 1) != 0 && (feature->state & ~state) == 0)
            aoticache_cpu_features_add(&found, feature->bit);
    }
    unsigned avx10 = state & STATE_ZMM ? read_avx10_version(values) : 0;
    if (avx10 >= 1)
        aoticache_cpu_features_add(&found, 86);
    if (avx10 >= 2)
        aoticache_cpu_features_add(&found, 87);
    *ret_features = found;
}

#elif defined(__aarch64__)

void aoticache_cpu_detect(aoticache_cpu_features *ret_features)
{
    aoticache_cpu_features found = {{0}};
    const unsigned long words[3] = {0, getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
#define FEATURE(number, name, word, word_bit) \
    if ((words[word] >> (word_bit) & 1) != 0) \
        aoticache_cpu_features_add(&found, number);
    AOTICACHE_CPU_AARCH64_LIST(FEATURE)
#undef FEATURE
    *ret_features = found;
}

#else

void aoticache_cpu_detect(aoticache_cpu_features *ret_features)
{
    *ret_features = (aoticache_cpu_features){{0}};
}

#endif
