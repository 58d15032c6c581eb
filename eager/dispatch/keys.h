/*
 * eager/dispatch/keys: functions on dispatch keys and their sets that only the dispatcher needs: tables, aliases, backends.
 *
 * Private. AOTICACHE_API makes a function visible to the tests that call it from Python; the library does not export it
 * (scripts/link/libaoticache.map).
 */
#ifndef AOTICACHE_EAGER_DISPATCH_KEYS_H
#define AOTICACHE_EAGER_DISPATCH_KEYS_H

#include "eager/dispatch/dispatch_key.h"

/*
 * Parses the key of a type of device ("cuda" -> CUDA). Returns: OK, INVALID (an unknown type, one without a key, or a device
 * with an index).
 */
AOTICACHE_API aoticache_status aoticache_dispatch_key_for_device(const char *device, aoticache_dispatch_key *ret_key,
                                                                 aoticache_error *ret_error);

AOTICACHE_API bool aoticache_dispatch_key_is_alias(aoticache_dispatch_key key);
AOTICACHE_API bool aoticache_dispatch_key_is_runtime(aoticache_dispatch_key key); /* one that has an entry in a table */

/* Returns whether `alias` (Autograd, CompositeImplicitAutograd, ...) stands for `key` too. */
AOTICACHE_API bool aoticache_dispatch_key_in_alias(aoticache_dispatch_key key, aoticache_dispatch_key alias);

/* Returns whether it is a backend's key: CPU, SparseCUDA, Dense, MkldnnCPU; false for autograd (c10::isBackendDispatchKey). */
AOTICACHE_API bool aoticache_dispatch_key_is_backend(aoticache_dispatch_key key);

/*
 * Returns Dense, AutogradFunctionality ... for a runtime key; the key itself if it has no backends; Undefined for an alias.
 */
AOTICACHE_API aoticache_dispatch_key aoticache_dispatch_key_functionality(aoticache_dispatch_key key);

/*
 * Returns the runtime key of a functionality on a backend (a number from 0 to num_backends - 1, in the order of the bits);
 * Undefined if there is none.
 */
AOTICACHE_API aoticache_dispatch_key aoticache_dispatch_key_of(aoticache_dispatch_key functionality, int32_t backend);

/* Returns the backend of a runtime key, or -1 if it has none. */
AOTICACHE_API int32_t aoticache_dispatch_key_backend(aoticache_dispatch_key key);
AOTICACHE_API int32_t aoticache_dispatch_num_backends(void);

/*
 * Returns the number of entries in an operator's table, and the index of a runtime key's entry in it (-1 for others; PyTorch's
 * functions take Dense for CPU there, as aoticache_key_set_entry() of the key's set does).
 */
AOTICACHE_API int32_t aoticache_dispatch_num_entries(void);
AOTICACHE_API int32_t aoticache_dispatch_key_entry(aoticache_dispatch_key key);
AOTICACHE_API aoticache_dispatch_key aoticache_dispatch_key_of_entry(int32_t entry);

/* ---- sets ---- */

AOTICACHE_API aoticache_key_set aoticache_key_set_full(void);

AOTICACHE_API aoticache_key_set aoticache_key_set_or(aoticache_key_set a, aoticache_key_set b);
AOTICACHE_API aoticache_key_set aoticache_key_set_and(aoticache_key_set a, aoticache_key_set b);

/* Subtracts as c10::DispatchKeySet::operator-. */
AOTICACHE_API aoticache_key_set aoticache_key_set_minus(aoticache_key_set a, aoticache_key_set b);

/*
 * Returns the index in an operator's table of the highest key; 0 for the empty set. Hot: does no lookup except the one that
 * PyTorch's own function does.
 */
AOTICACHE_API int32_t aoticache_key_set_entry(aoticache_key_set set);

typedef bool (*aoticache_dispatch_key_fn)(void *user, aoticache_dispatch_key key);
/* Lists runtime keys from the lowest to the highest, as PyTorch iterates. The callback returns false to stop. */
AOTICACHE_API void aoticache_key_set_list(aoticache_key_set set, aoticache_dispatch_key_fn callback, void *user);

/* Return the keys that an alias stands for (c10::getRuntimeDispatchKeySet), the backends of an autograd key, of AutogradOther. */
AOTICACHE_API aoticache_key_set aoticache_key_set_of_alias(aoticache_dispatch_key key);
AOTICACHE_API aoticache_key_set aoticache_key_set_backends_of_autograd(aoticache_dispatch_key key);
AOTICACHE_API aoticache_key_set aoticache_key_set_autogradother_backends(void);

/* Returns the autograd key of a backend's key; AutogradOther for those that have no own one. */
AOTICACHE_API aoticache_dispatch_key aoticache_dispatch_key_autograd_of(aoticache_dispatch_key key);

#endif
