/*
 * eager/dispatch/keys: functions on dispatch keys and their sets that only the dispatcher needs: tables, aliases, backends.
 *
 * Private. AOTICACHE_API makes a function visible to the tests that call it from Python; the library does not export it
 * (scripts/libaoticache.map).
 */
#ifndef AOTICACHE_EAGER_DISPATCH_KEYS_H
#define AOTICACHE_EAGER_DISPATCH_KEYS_H

#include "eager/dispatch/dispatch_key.h"

/*
 * The key of a type of device ("cuda" -> CUDA). Returns: OK, INVALID (none such, one without a key, one with an
 * index).
 */
AOTICACHE_API aoticache_status aoticache_dispatch_key_for_device(const char *device, aoticache_dispatch_key *ret_key,
                                                                 aoticache_error *ret_error);

AOTICACHE_API bool aoticache_dispatch_key_is_alias(aoticache_dispatch_key key);
AOTICACHE_API bool aoticache_dispatch_key_is_runtime(aoticache_dispatch_key key); /* one that a table has a place for */

/* Whether `alias` (Autograd, CompositeImplicitAutograd, ...) stands for `key` too. */
AOTICACHE_API bool aoticache_dispatch_key_in_alias(aoticache_dispatch_key key, aoticache_dispatch_key alias);

/* Whether it is a backend's: CPU, SparseCUDA, Dense, MkldnnCPU; not autograd's (c10::isBackendDispatchKey). */
AOTICACHE_API bool aoticache_dispatch_key_is_backend(aoticache_dispatch_key key);

/*
 * Dense, AutogradFunctionality ... of a runtime key; the key itself where it has no backends; Undefined for an alias.
 */
AOTICACHE_API aoticache_dispatch_key aoticache_dispatch_key_functionality(aoticache_dispatch_key key);

/*
 * The runtime key of a functionality on a backend (a number from 0 to num_backends - 1, in the order of the bits);
 * Undefined where there is none.
 */
AOTICACHE_API aoticache_dispatch_key aoticache_dispatch_key_of(aoticache_dispatch_key functionality, int32_t backend);

/* The backend of a runtime key; -1 where it has none. */
AOTICACHE_API int32_t aoticache_dispatch_key_backend(aoticache_dispatch_key key);
AOTICACHE_API int32_t aoticache_dispatch_num_backends(void);

/*
 * How many places an operator's table has, and the place of a runtime key in it (-1 for others; PyTorch's functions
 * take Dense for CPU there, as aoticache_key_set_entry() of the key's set does).
 */
AOTICACHE_API int32_t aoticache_dispatch_num_entries(void);
AOTICACHE_API int32_t aoticache_dispatch_key_entry(aoticache_dispatch_key key);
AOTICACHE_API aoticache_dispatch_key aoticache_dispatch_key_of_entry(int32_t entry);

/* ---- sets ---- */

AOTICACHE_API aoticache_key_set aoticache_key_set_full(void);

AOTICACHE_API aoticache_key_set aoticache_key_set_add(aoticache_key_set set, aoticache_dispatch_key key);

/* As c10::DispatchKeySet::remove: only the functionality's bit goes, backends stay. */
AOTICACHE_API aoticache_key_set aoticache_key_set_remove(aoticache_key_set set, aoticache_dispatch_key key);

AOTICACHE_API aoticache_key_set aoticache_key_set_or(aoticache_key_set a, aoticache_key_set b);
AOTICACHE_API aoticache_key_set aoticache_key_set_and(aoticache_key_set a, aoticache_key_set b);

/* As c10::DispatchKeySet::operator-. */
AOTICACHE_API aoticache_key_set aoticache_key_set_minus(aoticache_key_set a, aoticache_key_set b);

/*
 * The place in an operator's table of the highest key; 0 for the empty set. Hot: no lookup but for what PyTorch's own
 * does.
 */
AOTICACHE_API int32_t aoticache_key_set_entry(aoticache_key_set set);

/* Runtime keys from the lowest to the highest, as PyTorch iterates. Return false to stop. */
AOTICACHE_API void aoticache_key_set_list(aoticache_key_set set, aoticache_dispatch_key_fn callback, void *user);

/* What alias keys stand for (c10::getRuntimeDispatchKeySet), backends of an autograd key, of AutogradOther. */
AOTICACHE_API aoticache_key_set aoticache_key_set_of_alias(aoticache_dispatch_key key);
AOTICACHE_API aoticache_key_set aoticache_key_set_backends_of_autograd(aoticache_dispatch_key key);
AOTICACHE_API aoticache_key_set aoticache_key_set_autogradother_backends(void);

/* The autograd key that belongs to a backend's key, AutogradOther for those that have none of their own. */
AOTICACHE_API aoticache_dispatch_key aoticache_dispatch_key_autograd_of(aoticache_dispatch_key key);

/* ---- this thread's ---- */

/* As aoticache_dispatch_guard_add(), but replaces what is included and excluded. */
AOTICACHE_API void aoticache_dispatch_guard_force(aoticache_dispatch_guard *guard, aoticache_key_set include,
                                                  aoticache_key_set exclude);

#endif
