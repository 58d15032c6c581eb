/*
 * base/digest: the digest of a file that may be large, which can be stopped; and a checksum that tells fast whether bytes are
 * those that were hashed.
 *
 * Private; base.h has the rest.
 */
#ifndef AOTICACHE_BASE_DIGEST_H
#define AOTICACHE_BASE_DIGEST_H

#include "base/base.h"
#include "base/memory_file.h"

/* XXH3 of 128 bits. It finds damage, and does not stop who makes bytes to fit. */
typedef struct aoticache_checksum {
    uint64_t low, high;
} aoticache_checksum;

aoticache_checksum aoticache_checksum_of(const void *bytes, size_t size);
bool aoticache_checksum_equal(const aoticache_checksum *a, const aoticache_checksum *b);

/* Asked now and then, from the thread that works; false: stop. */
typedef bool (*aoticache_continue_fn)(void *user);

/* What is made of a file's bytes while they are read, once. Each member may be NULL. */
typedef struct aoticache_digest_pass {
    aoticache_continue_fn continues;
    void *user;
    aoticache_memory_copy *copy; /* what cannot be copied is told there alone: the rest is of all bytes */
    aoticache_digest *ret_digest;
    aoticache_checksum *ret_checksum;
} aoticache_digest_pass;

/* Like aoticache_digest_of_fd(), and IO if it was told to stop. */
aoticache_status aoticache_digest_pass_over(int fd, const aoticache_digest_pass *pass, uint64_t *ret_size,
                                            aoticache_error *ret_error);

/* The same for a digest alone. continues may be NULL. */
aoticache_status aoticache_digest_of_fd_while(int fd, aoticache_continue_fn continues, void *user,
                                              aoticache_digest *ret_digest, uint64_t *ret_size,
                                              aoticache_error *ret_error);

#endif
