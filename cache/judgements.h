/*
 * cache/judgements: whether a kernel earns its place: on which kinds of machine it was faster than the kernel that the host
 * has itself (PyTorch's own), and on which slower. Holders find that out on live calls (eager/holder/holder.h, `judge`).
 *
 * A judgement is of a key, not of an entry, so that a kernel that lost is not compiled again because a collection has removed
 * it. It is advice: losing it loses nothing, and a rebuilt index has none.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_CACHE_JUDGEMENTS_H
#define AOTICACHE_CACHE_JUDGEMENTS_H

#include "cache/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are borrowed. */
typedef struct aoticache_judgement {
    aoticache_key key;   /* of the request, that of a dynamic kernel for a dynamic one */
    const char *machine; /* aoticache_machine_name() */
    uint32_t threads;    /* at most so many: a power of two */
    /* Of a dynamic kernel: the class of the number of elements. 0: up to 15, 1: up to 63, each further one four times as many, 11: all
     * that are more. 0 of an exact one. */
    uint32_t size_class;
    bool is_slower;                  /* than the host's own */
    uint64_t kernel_ns, fallback_ns; /* of one call; 0: not known */
    int64_t judged_ns;               /* wall clock */
} aoticache_judgement;

/*
 * The kind of this machine's processor, "AMD EPYC 7B13": the model name that the kernel of the operating system gives,
 * otherwise the architecture. Static storage.
 */
AOTICACHE_API const char *aoticache_machine_name(void);

/* Return false to stop. The callback must not use the cache. */
typedef bool (*aoticache_judgement_fn)(void *user, const aoticache_judgement *judgement);

/* The judgements of a key on all machines, the newest first. Returns: OK, INVALID, LOCKED, IO, NO_MEMORY. */
AOTICACHE_API aoticache_status aoticache_cache_list_judgements(aoticache_cache *cache, const aoticache_key *key,
                                                               aoticache_judgement_fn callback, void *user,
                                                               aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
