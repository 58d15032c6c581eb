/*
 * record: records changes of the files below one directory, and replays what a power loss in between could leave.
 *
 * inject.c passes every call that changes something. record_replay() makes a directory as the disk may have it after
 * the first calls: what was synced is there; a policy decides about everything else. Names are durable once their
 * directory was synced, bytes once their file was. The order in which a file system writes the rest is arbitrary.
 */
#ifndef AOTICACHE_TESTS_FAULT_RECORD_H
#define AOTICACHE_TESTS_FAULT_RECORD_H

#include <stdbool.h>
#include <sys/types.h>

/* What remains of changes that were not synced. */
enum loss {
    LOSE_ALL,       /* nothing */
    LOSE_BYTES,     /* names: new files are empty */
    LOSE_TO_ZEROS,  /* names and sizes: the bytes are zeros */
    LOSE_NAMES,     /* bytes of files that have durable names */
    LOSE_LAST,      /* everything, but only half of the last unsynced call: a torn write */
    LOSE_AT_RANDOM, /* any subset of names, and of sectors of 512 bytes */
    LOSS_COUNT,
};
extern const char *const loss_names[LOSS_COUNT];

/* Begins recording; the files below `root` now are durable. */
void record_begin(const char *root);
/* Records that the operation has returned OK. */
void record_mark(void);
void record_end(void);
bool record_is_on(void);
/* Return the number of calls up to now, and how many were syncs. */
long record_calls(void);
long record_syncs(void);
/* Returns whether record_mark() was called before that call. */
bool record_is_marked(long call);
/* Describes the call before which power is lost: "rename objects/ab/cdef". */
void record_describe(long call, char ret_text[200]);
/* Makes `into` (removed first) as a power loss before that call may leave it. */
void record_replay(long call, enum loss loss, unsigned seed, const char *into);

/* For inject.c, called after the call: each returns `result` and preserves errno. */
int record_open(int fd, int flags);
ssize_t record_write(int fd, const void *bytes, ssize_t result, off_t offset);
int record_truncate(int fd, off_t size, int result);
int record_mode(int fd, mode_t mode, int result);
int record_sync(int fd, int result);
int record_sync_all(int result);
int record_made(int directory, const char *path, int result);
int record_rename(int from_directory, const char *from, int to_directory, const char *to, int result);
int record_link(int directory, const char *path, int result);
int record_unlink(int directory, const char *path, int flags, int result);

#endif
