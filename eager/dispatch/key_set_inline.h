/*
 * eager/dispatch/key_set_inline: what a call computes with key sets, inline: the key set of a call from its tensors'
 * and this thread's, and the place in an operator's table. The same as the functions of dispatch_key.h, which are
 * made of these.
 *
 * Private to eager/. The layout of a set: bits 0 to 15 are backends, bit 15 + n is functionality n.
 */
#ifndef AOTICACHE_EAGER_DISPATCH_KEY_SET_INLINE_H
#define AOTICACHE_EAGER_DISPATCH_KEY_SET_INLINE_H

#include "eager/dispatch/dispatch_key.h"

#define KEY_SET_BACKEND_BITS ((UINT64_C(1) << AOTICACHE_DISPATCH_BACKENDS) - 1)
/* Of a functionality that is not Undefined. */
#define KEY_SET_BIT(functionality) (UINT64_C(1) << ((functionality) + AOTICACHE_DISPATCH_BACKENDS - 1))
#define KEY_SET_BIT_OF(name) KEY_SET_BIT(AOTICACHE_DISPATCH_KEY_##name)

/* Where a functionality's places in a table begin, and which bits choose among them: none where it has no backends. */
typedef struct key_set_place {
    uint16_t offset, backend_mask;
} key_set_place;

/*
 * By functionality. Behind the last one stand two for the bits 62 and 63, which are no keys: place 0, which is
 * Undefined's.
 */
#define KEY_SET_PLACES (AOTICACHE_DISPATCH_FUNCTIONALITIES + 2)
extern const key_set_place aoticache_key_set_places[KEY_SET_PLACES] __attribute__((visibility("hidden")));

/* Of this thread. */
typedef struct dispatch_local {
    aoticache_key_set included, excluded;
} dispatch_local;
extern __thread dispatch_local aoticache_dispatch_local
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Undefined (0) where only backends are set. The bit below the lowest functionality's stands in for it, so that there
 * always is a highest bit. */
static inline unsigned key_set_functionality(aoticache_key_set set)
{
    return 63u ^ (unsigned)__builtin_clzll((set >> (AOTICACHE_DISPATCH_BACKENDS - 1)) | 1);
}

/*
 * From 0 to AOTICACHE_DISPATCH_ENTRIES - 1, whatever the set. Without backends a functionality's place is that of its
 * first.
 */
static inline int32_t key_set_entry(aoticache_key_set set)
{
    key_set_place place = aoticache_key_set_places[key_set_functionality(set)];
    return (int32_t)(place.offset + (63u ^ (unsigned)__builtin_clzll((set & place.backend_mask) | 1)));
}

/* As c10::DispatchKeySet::operator-: backends stay. */
static inline aoticache_key_set key_set_minus(aoticache_key_set a, aoticache_key_set b)
{
    return a & (KEY_SET_BACKEND_BITS | ~b);
}

/*
 * The set that a call dispatches on: of all its tensors, with this thread's. mask: without what falls through
 * (c10::impl::computeDispatchKeySet).
 */
static inline aoticache_key_set key_set_of_call(aoticache_key_set tensors, aoticache_key_set mask)
{
    const dispatch_local *local = &aoticache_dispatch_local;
    return key_set_minus(tensors | local->included, local->excluded) & mask;
}

#endif
