/*
 * trial: one operation on a cache, again and again, each time with another call that fails.
 *
 * A first run counts the operation's calls, allocations and threads. Then, for each of them and each error that it can
 * have, a child process works on a fresh copy of the cache: it opens it, performs the operation while that call fails,
 * performs it again without, closes, opens once more and looks. It must not crash or hang; it must leak no memory and no
 * descriptor; its status and its message must fit the failure; the second try must succeed; the cache must be sound, and
 * what was stored before must be there.
 */
#ifndef AOTICACHE_TESTS_FAULT_TRIAL_H
#define AOTICACHE_TESTS_FAULT_TRIAL_H

#include "cache/cache.h"
#include "tests/fault/inject.h"

#define TRIAL_STORED \
    4 /* entries that a cache has before: two files for even numbers, one for odd ones; is_record(): 3 */
#define TRIAL_NEW_KEY 10 /* the first number that is free; the next one is a record, too */

typedef aoticache_status (*trial_perform_fn)(aoticache_cache *cache, aoticache_error *ret_error);

struct operation {
    const char *name;
    trial_perform_fn perform; /* a miss that is as it should be, the second time, is OK too */
    /* Changes the cache before; once. May be NULL. */
    void (*spoil)(void);
    /* perform() is given NULL and opens the cache itself, or needs none. */
    bool opens_itself;
    /* Results, by bits, that it may have beside those that follow from the failure. */
    unsigned may_be;
    int puts;              /* the number of the entry that is there once it has returned OK; 0: none */
    bool removes;          /* entries may go */
    bool may_not_store;    /* OK, and the artifact is not stored: a program goes on with it */
    bool lacks_unreadable; /* what could not be read comes back with a repair (docs/store.md, What survives what) */
    int keeps_blocks;      /* of memory: the dynamic linker and the C library keep some for the next time */
    bool is_unsound;       /* the cache is not sound before: only the second try makes it so */
    bool without_cache;    /* it uses none: only it and its memory are looked at */
    /* Looks at what it made, without failures; may be NULL. Returns what is wrong, or NULL. */
    const char *(*look)(aoticache_cache *cache);
};

#define TRIAL_MAY_BE(status) (1u << AOTICACHE_##status)

/* Makes the folder below. trial_main() does. */
void trial_make_root(void);
/* Another cache than that of before. */
void trial_use_cache(const char *name);
/* The folder of the trial; the cache is `cache` in it. */
const char *trial_root(void);
const char *trial_cache(void);

aoticache_cache *trial_open(void);
/* A request that is made whatever fails: "request" is an operation of its own. */
aoticache_request *trial_request(int number);
aoticache_key trial_key(int number);
/* Stores entry `number`; its bytes are those of its number. */
aoticache_status trial_put(aoticache_cache *cache, int number, bool has_second_file, aoticache_error *ret_error);
/* Whether a lookup finds the entry, with its bytes. */
bool trial_finds(aoticache_cache *cache, int number);

/*
 * Tries each operation, or those whose names contain the argument, and prints a line for each. FAULT_STRIDE: each how
 * many-th case, `stride` unless it is set; 1: each. FAULT_VERBOSE=1: also each message.
 * FAULT_ONLY="memory - 612" or "error EIO 70+": that case alone (+: all that follows fails, too), and from where it is
 * called. Returns the exit code.
 */
int trial_main(int argc, char **argv, const struct operation *operations, size_t count, long stride);

#endif
