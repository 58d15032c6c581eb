/*
 * eager/dispatch/dispatch_key: dispatch keys and sets of them: PyTorch 2.13's names, numbers, order and bits
 * (c10/core/DispatchKey.h, c10/core/DispatchKeySet.h). The list of keys is in dispatch_key_list.h.
 *
 * A key set is PyTorch's raw representation: one bit for each backend in the lowest bits, then one bit for each
 * functionality. Functions take and return plain numbers, so that other languages can bind them; a union is `|`, an
 * intersection `&`. All functions except those on the sets of this thread are pure. Nothing is owned: texts that are returned
 * are static, texts that are passed are read only during the call.
 *
 * Users include <aoticache.h>.
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

AOTICACHE_API aoticache_key_set aoticache_key_set_of(aoticache_dispatch_key key);
AOTICACHE_API aoticache_key_set aoticache_key_set_full_after(aoticache_dispatch_key key);
AOTICACHE_API bool aoticache_key_set_has(aoticache_key_set set, aoticache_dispatch_key key);
/* Returns Undefined for the empty set. */
AOTICACHE_API aoticache_dispatch_key aoticache_key_set_highest(aoticache_key_set set);
/* Prints "DispatchKeySet(CPU, AutogradCPU)", as PyTorch does. Returns the length, like snprintf. */
AOTICACHE_API size_t aoticache_key_set_format(aoticache_key_set set, char *ret_text, size_t size);

/* ---- this thread's ---- */

/* Sets that are added to, and removed from, the key set of every call of this thread (c10/core/impl/LocalDispatchKeySet.h). */
AOTICACHE_API aoticache_key_set aoticache_dispatch_included(void);
AOTICACHE_API aoticache_key_set aoticache_dispatch_excluded(void);
AOTICACHE_API void aoticache_dispatch_set_local(aoticache_key_set included, aoticache_key_set excluded);
/* Sets one key, as torch._C._dispatch_tls_set_dispatch_key_included: its backend stays when the key is removed again. */
AOTICACHE_API void aoticache_dispatch_include(aoticache_dispatch_key key, bool on);
AOTICACHE_API void aoticache_dispatch_exclude(aoticache_dispatch_key key, bool on);

/*
 * A guard: changes this thread's sets and remembers the previous ones; end() restores them exactly (PyTorch's guards that add
 * lose a backend that was already in the set). Begin and end guards on one thread, in reverse order.
 */
typedef struct aoticache_dispatch_guard {
    aoticache_key_set included, excluded;
} aoticache_dispatch_guard;
/* Adds to the included and excluded sets. */
AOTICACHE_API void aoticache_dispatch_guard_add(aoticache_dispatch_guard *guard, aoticache_key_set include,
                                                aoticache_key_set exclude);
AOTICACHE_API void aoticache_dispatch_guard_end(const aoticache_dispatch_guard *guard);

/*
 * Lists every key, by number: functionalities and runtime keys, then alias keys. Numbers that are not keys are left out. The
 * callback returns false to stop.
 */
typedef bool (*aoticache_dispatch_key_fn)(void *user, aoticache_dispatch_key key);
AOTICACHE_API void aoticache_dispatch_key_list(aoticache_dispatch_key_fn callback, void *user);

/*
 * Returns the set that a new tensor with this backend's key has, as in c10::TensorImpl: with autograd, ADInplaceOrView, and
 * autocast if the backend has it. inference: created in inference mode.
 */
AOTICACHE_API aoticache_key_set aoticache_key_set_of_tensor(aoticache_dispatch_key key, bool inference);

#ifdef __cplusplus
}
#endif
#endif
