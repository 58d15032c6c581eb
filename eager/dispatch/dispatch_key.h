/*
 * eager/dispatch/dispatch_key: dispatch keys and sets of them: PyTorch 2.13's names, numbers, order and bits
 * (c10/core/DispatchKey.h, c10/core/DispatchKeySet.h). The list of keys is in dispatch_key_list.h.
 *
 * A key set is PyTorch's raw representation: in the lowest bits one for each backend, above them one for each
 * functionality. Functions take and give plain numbers, so that other languages can bind them. All but those
 * on the sets of this thread are pure. Nothing here is owned: texts that come back are static, those given are read during
 * the call alone.
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

/* "CPU", "AutogradCPU"; "UnknownUnknown" for a number outside the list, as PyTorch says. Static. */
AOTICACHE_API const char *aoticache_dispatch_key_name(aoticache_dispatch_key key);
/*
 * A key that PyTorch takes by name: all but some runtime keys that nothing uses ("QuantizedHIP").
 * Returns: OK, INVALID (the nearest name is suggested).
 */
AOTICACHE_API aoticache_status aoticache_dispatch_key_parse(const char *name, aoticache_dispatch_key *ret_key,
                                                            aoticache_error *ret_error);
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

AOTICACHE_API aoticache_key_set aoticache_key_set_of(aoticache_dispatch_key key);
AOTICACHE_API aoticache_key_set aoticache_key_set_full(void);
AOTICACHE_API aoticache_key_set aoticache_key_set_full_after(aoticache_dispatch_key key);
AOTICACHE_API aoticache_key_set aoticache_key_set_add(aoticache_key_set set, aoticache_dispatch_key key);
/* As c10::DispatchKeySet::remove: only the functionality's bit goes, backends stay. */
AOTICACHE_API aoticache_key_set aoticache_key_set_remove(aoticache_key_set set, aoticache_dispatch_key key);
AOTICACHE_API aoticache_key_set aoticache_key_set_or(aoticache_key_set a, aoticache_key_set b);
AOTICACHE_API aoticache_key_set aoticache_key_set_and(aoticache_key_set a, aoticache_key_set b);
/* As c10::DispatchKeySet::operator-. */
AOTICACHE_API aoticache_key_set aoticache_key_set_minus(aoticache_key_set a, aoticache_key_set b);
AOTICACHE_API bool aoticache_key_set_has(aoticache_key_set set, aoticache_dispatch_key key);
/* Undefined for the empty set. */
AOTICACHE_API aoticache_dispatch_key aoticache_key_set_highest(aoticache_key_set set);
/*
 * The place in an operator's table of the highest key; 0 for the empty set. Hot: no lookup but for what PyTorch's own
 * does.
 */
AOTICACHE_API int32_t aoticache_key_set_entry(aoticache_key_set set);
/* Runtime keys from the lowest to the highest, as PyTorch iterates. Return false to stop. */
typedef bool (*aoticache_dispatch_key_fn)(void *user, aoticache_dispatch_key key);
AOTICACHE_API void aoticache_key_set_list(aoticache_key_set set, aoticache_dispatch_key_fn callback, void *user);
/* "DispatchKeySet(CPU, AutogradCPU)", as PyTorch prints. Like snprintf. */
AOTICACHE_API size_t aoticache_key_set_format(aoticache_key_set set, char *ret_text, size_t size);

/* What alias keys stand for (c10::getRuntimeDispatchKeySet), backends of an autograd key, of AutogradOther. */
AOTICACHE_API aoticache_key_set aoticache_key_set_of_alias(aoticache_dispatch_key key);
AOTICACHE_API aoticache_key_set aoticache_key_set_backends_of_autograd(aoticache_dispatch_key key);
AOTICACHE_API aoticache_key_set aoticache_key_set_autogradother_backends(void);
/* The autograd key that belongs to a backend's key, AutogradOther for those that have none of their own. */
AOTICACHE_API aoticache_dispatch_key aoticache_dispatch_key_autograd_of(aoticache_dispatch_key key);

/* ---- this thread's ---- */

/* Added to and taken from the key set of every call of this thread (c10/core/impl/LocalDispatchKeySet.h). */
AOTICACHE_API aoticache_key_set aoticache_dispatch_included(void);
AOTICACHE_API aoticache_key_set aoticache_dispatch_excluded(void);
AOTICACHE_API void aoticache_dispatch_set_local(aoticache_key_set included, aoticache_key_set excluded);
/* One key at a time, as torch._C._dispatch_tls_set_dispatch_key_included: its backend stays when it is taken back. */
AOTICACHE_API void aoticache_dispatch_include(aoticache_dispatch_key key, bool on);
AOTICACHE_API void aoticache_dispatch_exclude(aoticache_dispatch_key key, bool on);

/*
 * A guard: sets and remembers; end() brings back what was before, exactly (PyTorch's guards that add lose a backend
 * which was there before). Begin and end on one thread, the last begun first.
 */
typedef struct aoticache_dispatch_guard {
    aoticache_key_set included, excluded;
} aoticache_dispatch_guard;
/* Adds to what is included and excluded. */
AOTICACHE_API void aoticache_dispatch_guard_add(aoticache_dispatch_guard *guard, aoticache_key_set include,
                                                aoticache_key_set exclude);
/* Replaces both. */
AOTICACHE_API void aoticache_dispatch_guard_force(aoticache_dispatch_guard *guard, aoticache_key_set include,
                                                  aoticache_key_set exclude);
AOTICACHE_API void aoticache_dispatch_guard_end(const aoticache_dispatch_guard *guard);

/* ---- more of single keys ---- */

/*
 * Every key, by number: functionalities and runtime keys, then alias keys; what each is,
 * aoticache_dispatch_key_is_alias(), _is_runtime() and _functionality() tell. Numbers that are no keys are left out.
 * Return false to stop.
 */
AOTICACHE_API void aoticache_dispatch_key_list(aoticache_dispatch_key_fn callback, void *user);

/* Whether it is a backend's: CPU, SparseCUDA, Dense, MkldnnCPU; not autograd's (c10::isBackendDispatchKey). */
AOTICACHE_API bool aoticache_dispatch_key_is_backend(aoticache_dispatch_key key);
/*
 * The set that a new tensor with this backend's key has: with autograd, ADInplaceOrView and autocast where there is one
 * for the backend, as a c10::TensorImpl; inference: made in inference mode.
 */
AOTICACHE_API aoticache_key_set aoticache_key_set_of_tensor(aoticache_dispatch_key key, bool inference);

#ifdef __cplusplus
}
#endif
#endif
