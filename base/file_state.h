/*
 * base/file_state: when a file's inode, size and times say that its bytes are what they were. cache/hashed_files.c says why, and
 * when they do not.
 *
 * Private.
 */
#ifndef AOTICACHE_BASE_FILE_STATE_H
#define AOTICACHE_BASE_FILE_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* A file that was changed less than this before it was looked at may be changed once more in the same tick of the clock. */
#define AOTICACHE_FILE_SETTLED_NS INT64_C(2000000000)

/* Returns whether its times of change are this kernel's own: not on network file systems, nor on those that programs
 * provide. */
bool aoticache_file_system_is_local(int fd);
/* Returns whether nobody but this user and root can write to it. */
bool aoticache_file_is_ours(const struct stat *found);
/* By which a file and its bytes are known again. No byte of it is without a value. */
typedef struct aoticache_file_state {
    uint64_t device, inode; /* of struct stat */
    int64_t size, modified_ns, changed_ns;
} aoticache_file_state;

aoticache_file_state aoticache_file_state_of(const struct stat *found);

#endif
