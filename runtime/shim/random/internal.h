/*
 * shim/random: the generator behind all random functions: Mersenne Twister 19937, drawn from as PyTorch draws
 * from its CPU generator, so that the same seed gives the same numbers.
 *
 * This is the one state that all of the process shares, as PyTorch's default generator is. A function that fills a
 * tensor holds the lock until the tensor is filled, so its numbers are consecutive.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_RANDOM_INTERNAL_H
#define AOTICACHE_RUNTIME_SHIM_RANDOM_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

enum { ENGINE_WORDS = 624 };

struct random_engine {
    uint32_t words[ENGINE_WORDS];
    uint32_t used;   /* words already given */
    bool has_normal; /* normal numbers come in pairs; the second is kept */
    double next_normal;
};

/* Takes the lock; the engine is the caller's until it is given back. */
struct random_engine *aoticache_shim_engine_take(void);
void aoticache_shim_engine_give(struct random_engine *engine);

uint32_t aoticache_shim_random_32(struct random_engine *engine);
uint64_t aoticache_shim_random_64(struct random_engine *engine);
/* In [0, 1) with the bits of a float, or of a double; `bits` of a smaller format. */
float aoticache_shim_random_float(struct random_engine *engine, int bits);
double aoticache_shim_random_double(struct random_engine *engine);
/* Mean 0, deviation 1. */
double aoticache_shim_random_normal(struct random_engine *engine);

#endif
