/*
 * base/digest: the digest of a file that may be large, whose computation can be stopped; and a checksum that shows quickly
 * whether bytes are those that were hashed.
 *
 * Private; base.h has the rest.
 */
#ifndef AOTICACHE_BASE_DIGEST_H
#define AOTICACHE_BASE_DIGEST_H

#include "base/base.h"
#include "base/files/memory_file.h"

/* XXH3 of 128 bits. It detects damage, but does not stop an attacker who crafts matching bytes. */
typedef struct aoticache_checksum {
    uint64_t low, high;
} aoticache_checksum;

/* The digest of `size` bytes. Returns OK, NO_MEMORY, or UNSUPPORTED if libcrypto offers no SHA-256. */
aoticache_status aoticache_digest_of(const void *bytes, size_t size, aoticache_digest *ret_digest);

aoticache_checksum aoticache_checksum_of(const void *bytes, size_t size);
bool aoticache_checksum_equal(const aoticache_checksum *a, const aoticache_checksum *b);

/* Called periodically from the thread that does the work; returns false to stop it. */
typedef bool (*aoticache_continue_fn)(void *user);

/* The results computed from a file's bytes in one reading. Each member may be NULL. */
typedef struct aoticache_digest_pass {
    aoticache_continue_fn continues;
    void *user;
    aoticache_memory_copy *copy; /* a failed copy is reported only here: digest and checksum are of all bytes */
    aoticache_digest *ret_digest;
    aoticache_checksum *ret_checksum;
} aoticache_digest_pass;

/* Like aoticache_digest_of_fd(); returns also IO if it was stopped. */
aoticache_status aoticache_digest_pass_over(int fd, const aoticache_digest_pass *pass, uint64_t *ret_size,
                                            aoticache_error *ret_error);

/* Does the same for a digest alone. continues may be NULL. */
aoticache_status aoticache_digest_of_fd_while(int fd, aoticache_continue_fn continues, void *user,
                                              aoticache_digest *ret_digest, uint64_t *ret_size,
                                              aoticache_error *ret_error);

#endif
