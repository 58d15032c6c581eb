/*
 * shim/random/engine: the generator's state, and drawing numbers from it.
 *
 * Source: M. Matsumoto and T. Nishimura's recurrence; c10 and ATen's MT19937RNGEngine.h, CPUGeneratorImpl.cpp and
 * DistributionsHelper.h for the numbers that are drawn and how.
 */
#include "runtime/shim/random/random_internal.h"

#include "runtime/shim/operators.h"

#include <math.h>
#include <pthread.h>

enum { ENGINE_MIDDLE = 397 };

/* PyTorch begins with this seed if none is set: c10::detail::default_rng_seed_val. */
static const uint64_t default_seed = UINT64_C(67280421310721);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct random_engine shared;
static bool is_seeded;

static void seed_engine(struct random_engine *engine, uint64_t seed)
{
    engine->words[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < ENGINE_WORDS; i++) {
        uint32_t before = engine->words[i - 1];
        engine->words[i] = UINT32_C(1812433253) * (before ^ (before >> 30)) + i;
    }
    engine->used = ENGINE_WORDS;
    engine->has_normal = false;
}

struct random_engine *aoticache_shim_engine_take(void)
{
    pthread_mutex_lock(&lock);
    if (!is_seeded) {
        seed_engine(&shared, default_seed);
        is_seeded = true;
    }
    return &shared;
}

void aoticache_shim_engine_give(struct random_engine *engine)
{
    (void)engine;
    pthread_mutex_unlock(&lock);
}

void torch_aoticache_manual_seed(uint64_t seed)
{
    struct random_engine *engine = aoticache_shim_engine_take();
    seed_engine(engine, seed);
    aoticache_shim_engine_give(engine);
}

static uint32_t mix(uint32_t word, uint32_t next, uint32_t other)
{
    const uint32_t mixed = (word & 0x80000000u) | (next & 0x7fffffffu);
    return other ^ (mixed >> 1) ^ (0x9908b0dfu & -(mixed & 1));
}

/*
 * Computes the next words. Each word is mixed with the one after it and the one ENGINE_MIDDLE further on, wrapping
 * around.
 */
static void next_words(struct random_engine *engine)
{
    uint32_t *words = engine->words;
    int i = 0;
    for (; i < ENGINE_WORDS - ENGINE_MIDDLE; i++)
        words[i] = mix(words[i], words[i + 1], words[i + ENGINE_MIDDLE]);
    for (; i < ENGINE_WORDS - 1; i++)
        words[i] = mix(words[i], words[i + 1], words[i + ENGINE_MIDDLE - ENGINE_WORDS]);
    words[i] = mix(words[i], words[0], words[ENGINE_MIDDLE - 1]);
    engine->used = 0;
}

uint32_t aoticache_shim_random_32(struct random_engine *engine)
{
    if (engine->used == ENGINE_WORDS)
        next_words(engine);
    uint32_t word = engine->words[engine->used++];
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c5680u;
    word ^= (word << 15) & 0xefc60000u;
    return word ^ (word >> 18);
}

uint64_t aoticache_shim_random_64(struct random_engine *engine)
{
    uint64_t high = aoticache_shim_random_32(engine);
    return high << 32 | aoticache_shim_random_32(engine);
}

float aoticache_shim_random_float(struct random_engine *engine, int bits)
{
    const uint32_t range = UINT32_C(1) << bits;
    return (float)(aoticache_shim_random_32(engine) & (range - 1)) / (float)range; /* exact: a power of two */
}

double aoticache_shim_random_double(struct random_engine *engine)
{
    return (double)(aoticache_shim_random_64(engine) & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

/* Makes a normal number with the method of G. Box and M. Muller, which makes pairs. */
double aoticache_shim_random_normal(struct random_engine *engine)
{
    if (engine->has_normal) {
        engine->has_normal = false;
        return engine->next_normal;
    }
    double angle = 2.0 * M_PI * aoticache_shim_random_double(engine);
    double radius = sqrt(-2.0 * log1p(-aoticache_shim_random_double(engine)));
    engine->next_normal = radius * sin(angle);
    engine->has_normal = true;
    return radius * cos(angle);
}
