/*
 * eager/dispatch/dispatch_local: the key sets that this thread adds to and takes from those of its calls, and guards
 * that bring back what was before.
 */
#include "eager/dispatch/key_set_inline.h"

/* A new thread starts with PyTorch's defaults (c10::default_included_set, c10::default_excluded_set). */
__thread dispatch_local aoticache_dispatch_local = {
    .included = KEY_SET_BIT_OF(BackendSelect) | KEY_SET_BIT_OF(ADInplaceOrView),
    .excluded = KEY_SET_BIT_OF(AutocastCPU) | KEY_SET_BIT_OF(AutocastMTIA) | KEY_SET_BIT_OF(AutocastMAIA) |
                KEY_SET_BIT_OF(AutocastXPU) | KEY_SET_BIT_OF(AutocastIPU) | KEY_SET_BIT_OF(AutocastHPU) |
                KEY_SET_BIT_OF(AutocastXLA) | KEY_SET_BIT_OF(AutocastMPS) | KEY_SET_BIT_OF(AutocastCUDA) |
                KEY_SET_BIT_OF(AutocastPrivateUse1),
};

aoticache_key_set aoticache_dispatch_included(void)
{
    return aoticache_dispatch_local.included;
}

aoticache_key_set aoticache_dispatch_excluded(void)
{
    return aoticache_dispatch_local.excluded;
}

void aoticache_dispatch_set_local(aoticache_key_set included, aoticache_key_set excluded)
{
    aoticache_dispatch_local = (dispatch_local){included, excluded};
}

/*
 * Taking away a key that is not there must not take the functionality of another: AutogradCUDA's where AutogradCPU
 * is.
 */
static aoticache_key_set with(aoticache_key_set set, aoticache_dispatch_key key, bool on)
{
    if (on)
        return aoticache_key_set_add(set, key);
    return aoticache_key_set_has(set, key) ? aoticache_key_set_remove(set, key) : set;
}

void aoticache_dispatch_include(aoticache_dispatch_key key, bool on)
{
    aoticache_dispatch_local.included = with(aoticache_dispatch_local.included, key, on);
}

void aoticache_dispatch_exclude(aoticache_dispatch_key key, bool on)
{
    aoticache_dispatch_local.excluded = with(aoticache_dispatch_local.excluded, key, on);
}

void aoticache_dispatch_guard_add(aoticache_dispatch_guard *guard, aoticache_key_set include, aoticache_key_set exclude)
{
    dispatch_local *local = &aoticache_dispatch_local;
    aoticache_dispatch_guard_force(guard, local->included | include, local->excluded | exclude);
}

void aoticache_dispatch_guard_force(aoticache_dispatch_guard *guard, aoticache_key_set include,
                                    aoticache_key_set exclude)
{
    dispatch_local *local = &aoticache_dispatch_local;
    *guard = (aoticache_dispatch_guard){local->included, local->excluded};
    *local = (dispatch_local){include, exclude};
}

void aoticache_dispatch_guard_end(const aoticache_dispatch_guard *guard)
{
    aoticache_dispatch_local = (dispatch_local){guard->included, guard->excluded};
}
