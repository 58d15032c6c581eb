/*
 * record: what a process does to the files below one folder, and what a power loss in between could leave of it.
 *
 * inject.c hands over every call that changes something. record_replay() makes a folder as the disk may hold it after the
 * first calls: what was synced is there, of the rest a policy says what is. Names are durable once their folder was synced,
 * bytes once their file was. Nothing is assumed of the order in which a file system writes the rest.
 */
#ifndef AOTICACHE_TESTS_FAULT_RECORD_H
#define AOTICACHE_TESTS_FAULT_RECORD_H

#include <stdbool.h>
#include <sys/types.h>

/* What is left of what was not synced. */
enum loss {
    LOSE_ALL,       /* nothing */
    LOSE_BYTES,     /* the names: new files are empty */
    LOSE_TO_ZEROS,  /* names and sizes: the bytes are zeros */
    LOSE_NAMES,     /* the bytes of files that have durable names */
    LOSE_LAST,      /* all but the last call that was not synced, of which the first half is there: a torn write */
    LOSE_AT_RANDOM, /* any subset of names, and of sectors of 512 bytes */
    LOSS_COUNT,
};
extern const char *const loss_names[LOSS_COUNT];

/* Begins with the files that are below `root` now, which are durable. */
void record_begin(const char *root);
/* Notes that the operation has returned OK. */
void record_mark(void);
void record_end(void);
bool record_is_on(void);
/* Calls so far; how many of them were syncs. */
long record_calls(void);
long record_syncs(void);
/* Whether record_mark() was before that call. */
bool record_is_marked(long call);
/* "rename objects/ab/cdef": the call before which power is lost. */
void record_describe(long call, char ret_text[200]);
/* Makes `into` (which is removed first) as power loss before that call may leave it. */
void record_replay(long call, enum loss loss, unsigned seed, const char *into);

/* For inject.c, after the call: each returns `result` and leaves errno alone. */
int record_open(int fd, int flags);
ssize_t record_write(int fd, const void *bytes, ssize_t result, off_t offset);
int record_truncate(int fd, off_t size, int result);
int record_mode(int fd, mode_t mode, int result);
int record_sync(int fd, int result);
int record_sync_all(int result);
int record_made(int folder, const char *path, int result);
int record_rename(int from_folder, const char *from, int to_folder, const char *to, int result);
int record_link(int folder, const char *path, int result);
int record_unlink(int folder, const char *path, int flags, int result);

#endif
