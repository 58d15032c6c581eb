/*
 * cache/judgements: timing results of kernels: on which kinds of machine a kernel was faster than the host's own
 * (PyTorch's), and on which slower. Holders measure that on live calls (eager/holder/holder.h, option `judge`).
 *
 * A result belongs to a key, not to an entry, so that a slower kernel is not compiled again after a collection has removed
 * it. Results are advisory: losing them does no harm, and a rebuilt index has none.
 *
 * Users include <aoticache/admin.h>.
 */
#ifndef AOTICACHE_CACHE_JUDGEMENTS_H
#define AOTICACHE_CACHE_JUDGEMENTS_H

#include "cache/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are borrowed. */
typedef struct aoticache_judgement {
    aoticache_key key; /* of the request; for a dynamic kernel, of the dynamic request */
    /* The kind of the processor, "AMD EPYC 7B13": the model name reported by the operating system's kernel, otherwise the
     * architecture. */
    const char *machine;
    bool is_this_machine; /* it is the kind of this machine's processor */
    uint32_t threads;     /* up to this many: a power of two */
    /* For a dynamic kernel: the class of the number of elements. 0: up to 15, 1: up to 63, each further class up to four
     * times as many, 11: no limit. For an exact kernel: 0. */
    uint32_t size_class;
    bool is_slower;                  /* slower than the host's own kernel */
    uint64_t kernel_ns, fallback_ns; /* duration of one call; 0: not known */
    int64_t judged_ns;               /* wall clock */
} aoticache_judgement;

/* Return false to stop. The callback must not use the cache. */
typedef bool (*aoticache_judgement_fn)(void *user, const aoticache_judgement *judgement);

/* Lists the timing results of a key on all machines, the newest first. Returns: OK, INVALID, LOCKED, IO, NO_MEMORY. */
AOTICACHE_API aoticache_status aoticache_cache_list_judgements(aoticache_cache *cache, const aoticache_key *key,
                                                               aoticache_judgement_fn callback, void *user,
                                                               aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
