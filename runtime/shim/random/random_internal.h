/*
 * shim/random: the generator of all random functions: Mersenne Twister 19937, used as PyTorch uses its CPU generator,
 * so that the same seed gives the same numbers.
 *
 * The whole process shares one state, as with PyTorch's default generator. A function that fills a tensor holds the
 * lock until the tensor is filled, so its numbers are consecutive.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_RANDOM_INTERNAL_H
#define AOTICACHE_RUNTIME_SHIM_RANDOM_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

enum { ENGINE_WORDS = 624 };

struct random_engine {
    uint32_t words[ENGINE_WORDS];
    uint32_t used;   /* words already used */
    bool has_normal; /* normal numbers are made in pairs; the second is kept for the next call */
    double next_normal;
};

/* Takes the lock; only the caller may use the engine until it gives it back. */
struct random_engine *aoticache_shim_engine_take(void);
void aoticache_shim_engine_give(struct random_engine *engine);

uint32_t aoticache_shim_random_32(struct random_engine *engine);
uint64_t aoticache_shim_random_64(struct random_engine *engine);
/* Return a number in [0, 1) with the precision of a float or a double; `bits`: the precision of a smaller format. */
float aoticache_shim_random_float(struct random_engine *engine, int bits);
double aoticache_shim_random_double(struct random_engine *engine);
/* Returns a normal number, mean 0 and standard deviation 1. */
double aoticache_shim_random_normal(struct random_engine *engine);

#endif
