/*
 * base/files/file_state: when a file's inode, size and times prove that its bytes are unchanged. index/query_cache/file_facts.c says why,
 * and when they do not.
 *
 * Private.
 */
#ifndef AOTICACHE_BASE_FILE_STATE_H
#define AOTICACHE_BASE_FILE_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* A file that was changed less than this time before it was examined may be changed again in the same tick of the clock. */
#define AOTICACHE_FILE_SETTLED_NS INT64_C(2000000000)

/* Returns whether this kernel itself sets the file's change times: false for network file systems and for those that
 * programs provide. */
bool aoticache_file_system_is_local(int fd);
/* Returns whether only this user and root can write to it. */
bool aoticache_file_is_ours(const struct stat *found);
/* Identifies a file and its bytes. All of its bytes have defined values, so it can be compared as bytes. */
typedef struct aoticache_file_state {
    uint64_t device, inode; /* of struct stat */
    int64_t size, modified_ns, changed_ns;
} aoticache_file_state;

aoticache_file_state aoticache_file_state_of(const struct stat *found);

#endif
