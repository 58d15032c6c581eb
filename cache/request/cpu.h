/*
 * cache/request/cpu: the features of a CPU as named bits, and the features that an entry requires.
 *
 * A requirement is a set of resolved features ("avx2,fma"), never a word such as "native". Bit numbers are part of the
 * format on disk (docs/formats/store.md): fixed, never reused.
 *
 * Users include <aoticache/admin.h>.
 */
#ifndef AOTICACHE_CACHE_REQUEST_CPU_H
#define AOTICACHE_CACHE_REQUEST_CPU_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AOTICACHE_CPU_FEATURE_WORDS 2

/* A set of features; bit n is bit n % 64 of words[n / 64]. All zero: any CPU of the architecture will do. */
typedef struct aoticache_cpu_features {
    uint64_t words[AOTICACHE_CPU_FEATURE_WORDS];
} aoticache_cpu_features;

/* Returns the features of `required` that `have` lacks. */
static inline aoticache_cpu_features aoticache_cpu_features_lacking(const aoticache_cpu_features *have,
                                                                    const aoticache_cpu_features *required)
{
    aoticache_cpu_features lacking;
    for (size_t i = 0; i < AOTICACHE_CPU_FEATURE_WORDS; i++)
        lacking.words[i] = required->words[i] & ~have->words[i];
    return lacking;
}

/* Returns how many features are in the set: of two entries that both fit, the one with more features is the more demanding. */
static inline unsigned aoticache_cpu_features_count(const aoticache_cpu_features *features)
{
    unsigned count = 0;
    for (size_t i = 0; i < AOTICACHE_CPU_FEATURE_WORDS; i++)
        count += (unsigned)__builtin_popcountll(features->words[i]);
    return count;
}

/* Returns whether `have` includes all of `required`. */
static inline bool aoticache_cpu_features_include(const aoticache_cpu_features *have,
                                                  const aoticache_cpu_features *required)
{
    for (size_t i = 0; i < AOTICACHE_CPU_FEATURE_WORDS; i++)
        if ((required->words[i] & ~have->words[i]) != 0)
            return false;
    return true;
}

#ifdef __cplusplus
}
#endif
#endif
