/*
 * eager/dispatch/dispatch_key: dispatch keys and sets of them: PyTorch 2.13's names, numbers, order and bits
 * (c10/core/DispatchKey.h, c10/core/DispatchKeySet.h). The list of keys is in dispatch_key_list.h.
 *
 * A key set is PyTorch's raw representation: one bit for each backend in the lowest bits, then one bit for each
 * functionality. Functions take and return plain numbers, so that other languages can bind them; a union is `|`, an
 * intersection `&`. Short ones are inline and not symbols of the library: a binding computes the same. All functions except
 * those on the sets of this thread are pure. Nothing is owned: texts that are returned are static, texts that are passed are
 * read only during the call.
 *
 * Users include <aoticache/dispatch.h>.
 */
#ifndef AOTICACHE_EAGER_DISPATCH_DISPATCH_KEY_H
#define AOTICACHE_EAGER_DISPATCH_DISPATCH_KEY_H

#include "base/base.h"
#include "eager/dispatch/dispatch_key_list.h"

#ifdef __cplusplus
extern "C" {
#endif

/* PyTorch's number of a key (c10::DispatchKey as an integer). */
typedef int32_t aoticache_dispatch_key;
typedef uint64_t aoticache_key_set;

/* Returns "CPU", "AutogradCPU"; "UnknownUnknown" for a number outside the list, as PyTorch does. Static. */
AOTICACHE_API const char *aoticache_dispatch_key_name(aoticache_dispatch_key key);
/*
 * Parses a key that PyTorch accepts by name: all except some runtime keys that nothing uses ("QuantizedHIP").
 * Returns: OK, INVALID (the nearest name is suggested).
 */
AOTICACHE_API aoticache_status aoticache_dispatch_key_parse(const char *name, aoticache_dispatch_key *ret_key,
                                                            aoticache_error *ret_error);

/* ---- sets ---- */

#define AOTICACHE_KEY_SET_BACKENDS ((UINT64_C(1) << AOTICACHE_DISPATCH_BACKENDS) - 1) /* the bits of all backends */

/* Returns the bits of a key: of its functionality and of its backend. 0 for Undefined, an alias and a number outside the list. */
AOTICACHE_API aoticache_key_set aoticache_key_set_of(aoticache_dispatch_key key);
/*
 * Returns the set that a new tensor with this backend's key has, as in c10::TensorImpl: with autograd, ADInplaceOrView, and
 * autocast if the backend has it. inference: created in inference mode.
 */
AOTICACHE_API aoticache_key_set aoticache_key_set_of_tensor(aoticache_dispatch_key key, bool inference);
/* Prints "DispatchKeySet(CPU, AutogradCPU)", as PyTorch does. Returns the length, like snprintf. */
AOTICACHE_API size_t aoticache_key_set_format(aoticache_key_set set, char *ret_text, size_t size);

/* Returns whether the set has the key's functionality and its backend, even if different keys brought them. */
static inline bool aoticache_key_set_has(aoticache_key_set set, aoticache_dispatch_key key)
{
    aoticache_key_set wanted = aoticache_key_set_of(key);
    return (set & wanted) == wanted;
}

/* Removes the bit of the key's functionality, as c10::DispatchKeySet::remove. The backends stay. */
static inline aoticache_key_set aoticache_key_set_remove(aoticache_key_set set, aoticache_dispatch_key key)
{
    return set & (AOTICACHE_KEY_SET_BACKENDS | ~aoticache_key_set_of(key));
}

/* Returns all keys below this key, and PythonDispatcher: a kernel for the key redispatches with keys & this. */
static inline aoticache_key_set aoticache_key_set_full_after(aoticache_dispatch_key key)
{
    aoticache_key_set functionality = aoticache_key_set_of(key) & ~AOTICACHE_KEY_SET_BACKENDS;
    aoticache_key_set undefined = UINT64_C(1) << (AOTICACHE_DISPATCH_BACKENDS - 1); /* the bit below the first one */
    return ((functionality != 0 ? functionality : undefined) - 1) |
           aoticache_key_set_of(AOTICACHE_DISPATCH_KEY_PythonDispatcher);
}

/*
 * Returns the highest functionality on the highest backend; Undefined for the empty set. A functionality that needs a backend
 * but has none gives the number before its first runtime key, as in PyTorch.
 */
static inline aoticache_dispatch_key aoticache_key_set_highest(aoticache_key_set set)
{
    int32_t functionality = 0, backends = 0; /* backends: the number of the highest one, from 1; 0 for none */
    for (aoticache_key_set left = set >> AOTICACHE_DISPATCH_BACKENDS; left != 0; left >>= 1)
        functionality++;
    for (aoticache_key_set left = set & AOTICACHE_KEY_SET_BACKENDS; left != 0; left >>= 1)
        backends++;
    switch (functionality) {
#define AOTICACHE_KEY_SET_HIGHEST_OF_BLOCK(name, number, prefix, first, parsed, a) \
    case number:                                                                   \
        return (first) + backends;
        AOTICACHE_DISPATCH_BLOCK_LIST(AOTICACHE_KEY_SET_HIGHEST_OF_BLOCK, unused)
#undef AOTICACHE_KEY_SET_HIGHEST_OF_BLOCK
    default:
        return functionality;
    }
}

/* ---- this thread's ---- */

/* Keys that are added to, and removed from, the key set of every call of this thread (c10/core/impl/LocalDispatchKeySet.h). */
typedef struct aoticache_dispatch_local {
    aoticache_key_set included, excluded;
} aoticache_dispatch_local;
/* Return this thread's sets, and replace them. */
AOTICACHE_API aoticache_dispatch_local aoticache_dispatch_get_local(void);
AOTICACHE_API void aoticache_dispatch_set_local(aoticache_dispatch_local local);

/*
 * Begins a guard: adds to both sets and returns the previous ones. aoticache_dispatch_set_local() with these ends it and restores
 * both sets exactly (PyTorch's guards that add lose a backend that was already in the set). Begin and end guards on one thread,
 * in reverse order.
 */
static inline aoticache_dispatch_local aoticache_dispatch_add_local(aoticache_key_set include,
                                                                    aoticache_key_set exclude)
{
    aoticache_dispatch_local before = aoticache_dispatch_get_local(), local = before;
    local.included |= include;
    local.excluded |= exclude;
    aoticache_dispatch_set_local(local);
    return before;
}

/*
 * Returns the set with one key added or removed, as torch._C._dispatch_tls_set_dispatch_key_included does: the backend stays when
 * the key is removed again. Removing a key that is not in the set changes nothing: AutogradCUDA, if the set has AutogradCPU.
 */
static inline aoticache_key_set aoticache_key_set_change(aoticache_key_set set, aoticache_dispatch_key key, bool on)
{
    if (on)
        return set | aoticache_key_set_of(key);
    return aoticache_key_set_has(set, key) ? aoticache_key_set_remove(set, key) : set;
}

/* Adds one key to the included keys, or removes it. */
static inline void aoticache_dispatch_include(aoticache_dispatch_key key, bool on)
{
    aoticache_dispatch_local local = aoticache_dispatch_get_local();
    local.included = aoticache_key_set_change(local.included, key, on);
    aoticache_dispatch_set_local(local);
}

/* Adds one key to the excluded keys, or removes it. */
static inline void aoticache_dispatch_exclude(aoticache_dispatch_key key, bool on)
{
    aoticache_dispatch_local local = aoticache_dispatch_get_local();
    local.excluded = aoticache_key_set_change(local.excluded, key, on);
    aoticache_dispatch_set_local(local);
}

#ifdef __cplusplus
}
#endif
#endif
