/*
 * tests/helpers/whole/inline_functions: inline functions of eager/dispatch/dispatch_key.h as symbols of libaoticache_whole.so, for
 * tests in Python. inline_key_set_has() calls aoticache_key_set_has().
 */
#include "eager/dispatch/dispatch_key.h"

#define INLINE_SYMBOL(result, name, parameters, call) \
    AOTICACHE_API result inline_##name parameters;    \
    result inline_##name parameters                   \
    {                                                 \
        call;                                         \
    }

INLINE_SYMBOL(bool, key_set_has, (aoticache_key_set set, aoticache_dispatch_key key),
              return aoticache_key_set_has(set, key))
INLINE_SYMBOL(aoticache_key_set, key_set_remove, (aoticache_key_set set, aoticache_dispatch_key key),
              return aoticache_key_set_remove(set, key))
INLINE_SYMBOL(aoticache_key_set, key_set_full_after, (aoticache_dispatch_key key),
              return aoticache_key_set_full_after(key))
INLINE_SYMBOL(aoticache_dispatch_key, key_set_highest, (aoticache_key_set set), return aoticache_key_set_highest(set))
INLINE_SYMBOL(aoticache_dispatch_local, dispatch_add_local, (aoticache_key_set include, aoticache_key_set exclude),
              return aoticache_dispatch_add_local(include, exclude))
INLINE_SYMBOL(void, dispatch_include, (aoticache_dispatch_key key, bool on), aoticache_dispatch_include(key, on))
INLINE_SYMBOL(void, dispatch_exclude, (aoticache_dispatch_key key, bool on), aoticache_dispatch_exclude(key, on))
