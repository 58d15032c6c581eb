/*
 * base/digest: the digest of a file that may be large, which can be stopped.
 *
 * Private; base.h has the rest.
 */
#ifndef AOTICACHE_BASE_DIGEST_H
#define AOTICACHE_BASE_DIGEST_H

#include "base/base.h"

/* Asked now and then, from the thread that works; false: stop. */
typedef bool (*aoticache_goes_on_fn)(void *user);

/* As aoticache_digest_of_fd(), and IO where it was told to stop. goes_on may be NULL. */
aoticache_status aoticache_digest_of_fd_while(int fd, aoticache_goes_on_fn goes_on, void *user,
                                              aoticache_digest *ret_digest, uint64_t *ret_size,
                                              aoticache_error *ret_error);

#endif
