/*
 * inject: functions of the C library that a test program overrides, so that one of them fails.
 *
 * A definition in the program overrides those of all shared objects of the process. So the calls of this library, of
 * SQLite, jansson, libarchive and libzip are all counted in one sequence, and any of them can be made to fail: with an
 * errno that this call can have, by transferring less than requested, or for lack of memory. Calls inside the C library
 * are not seen, so functions such as opendir() and fopen() count as calls too. Other processes are not affected.
 */
#ifndef AOTICACHE_TESTS_FAULT_INJECT_H
#define AOTICACHE_TESTS_FAULT_INJECT_H

#include <stdbool.h>
#include <stddef.h>

enum injection_kind {
    INJECT_NOTHING = 0, /* count only */
    INJECT_ERROR,       /* a call fails with `error` */
    INJECT_SHORT,       /* a read or a write does only a part */
    INJECT_MEMORY,      /* an allocation fails */
    INJECT_THREAD,      /* pthread_create fails with EAGAIN */
};

struct injection {
    enum injection_kind kind;
    int error;
    long at;       /* the number of the call that fails, from 0 on */
    bool persists; /* all later calls that can fail in this way fail too */
    /* results */
    long calls, allocations, threads; /* number of each */
    bool happened;
    char call[24];  /* the first that failed */
    char path[160]; /* its file, if it has a name */
    bool traces;    /* print the stack of the failing call */
};

/* Begins injecting, until injection_end(), in all threads of this process. */
void injection_begin(struct injection *injection);
void injection_end(void);
/* Pause and resume: what this thread does in between is not part of the operation, is not counted and does not fail. */
void injection_pause(void);
void injection_resume(void);

/*
 * Makes allocations of libarchive, libzstd and the dynamic linker never fail, if they are loaded already: without
 * memory libarchive 3.6 ends the process, zstd 1.5 reads through NULL, and the linker of glibc 2.36 ends the process or
 * forgets what a library needs. This library cannot fix that.
 */
void injection_spare_others(void);
/* Makes file systems look like network file systems, on which the index has a rollback journal and no WAL. */
void injection_pretend_network(bool is_network);

/* Returns which of `errors`, one bit for each position, call number `call` of the last injection_begin() can have. */
unsigned injection_possible(long call, const int *errors, size_t count);
/* Returns whether that call transfers bytes, so that it can transfer fewer. */
bool injection_can_be_short(long call);

/* Returns the blocks of memory in use; -1 if they are not counted (a sanitizer has its own allocator). */
long injection_live_blocks(void);

#endif
