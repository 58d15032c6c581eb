/*
 * trial: one operation on a cache, repeated, each time with another call that fails.
 *
 * A first run counts the operation's calls, allocations and threads. Then, for each of them and each error that it can
 * have, a child process works on a fresh copy of the cache: it opens it, performs the operation while that call fails,
 * performs it again without a failure, closes, opens once more and checks. It must not crash or hang; it must leak no
 * memory and no descriptor; its status and its message must fit the failure; the second try must succeed; the cache
 * must verify, and entries that were stored earlier must be there.
 */
#ifndef AOTICACHE_TESTS_FAULT_TRIAL_H
#define AOTICACHE_TESTS_FAULT_TRIAL_H

#include "cache/cache.h"
#include "tests/fault/inject.h"

#define TRIAL_STORED \
    4 /* entries that a cache has initially: two files for even numbers, one file for odd ones; is_record(): number 3 */
#define TRIAL_NEW_KEY 10 /* the first unused number; the next one is a record, too */

typedef aoticache_status (*trial_perform_fn)(aoticache_cache *cache, aoticache_error *ret_error);

struct operation {
    const char *name;
    trial_perform_fn perform; /* an expected miss at the second try is OK too */
    /* Changes the cache first, once. May be NULL. */
    void (*spoil)(void);
    /* perform() is given NULL and opens the cache itself, or needs none. */
    bool opens_itself;
    /* Results, one bit each, that it may have in addition to those that follow from the failure. */
    unsigned may_be;
    int puts;              /* the number of the entry that must exist after OK; 0: none */
    bool removes;          /* may remove entries */
    bool may_not_store;    /* may return OK without storing: the program uses the artifact */
    bool lacks_unreadable; /* unreadable entries come back with a repair (docs/formats/store.md) */
    int keeps_blocks;      /* memory blocks that the dynamic linker and the C library keep */
    bool is_unsound;       /* the cache is damaged first; the second try repairs it */
    bool without_cache;    /* uses no cache: only result and memory are checked */
    /* Checks the result, without failures; may be NULL. Returns what is wrong, or NULL. */
    const char *(*look)(aoticache_cache *cache);
};

#define TRIAL_MAY_BE(status) (1u << AOTICACHE_##status)

/* Makes the directory below. trial_main() calls it. */
void trial_make_root(void);
/* Switches to another cache. */
void trial_use_cache(const char *name);
/* Returns the directory of the trial; the cache is `cache` in it. */
const char *trial_root(void);
const char *trial_cache(void);

aoticache_cache *trial_open(void);
/* Makes a request without failures: "request" is a separate operation. */
aoticache_request *trial_request(int number);
aoticache_key trial_key(int number);
/* Stores entry `number`; its bytes follow from its number. */
aoticache_status trial_put(aoticache_cache *cache, int number, bool has_second_file, aoticache_error *ret_error);
/* Returns whether a lookup finds the entry, with its bytes. */
bool trial_finds(aoticache_cache *cache, int number);

/*
 * Tries each operation, or those whose names contain the argument, and prints a line for each. FAULT_STRIDE: only every
 * n-th case, default `stride`; 1: each. FAULT_VERBOSE=1: also prints each message. FAULT_ONLY="memory - 612" or "error
 * EIO 70+": runs only that case (+: all later calls fail, too), and prints the stack of the call. Returns the exit
 * code.
 */
int trial_main(int argc, char **argv, const struct operation *operations, size_t count, long stride);

#endif
