/*
 * inject: functions of the C library that a test program defines in front of the real ones, so that one of them fails.
 *
 * A definition in the program comes first for every shared object of the process. So the calls of this library, of SQLite,
 * jansson, libarchive and libzip are all counted in one row, and any of them can be made to fail: with an errno that this
 * call can have, by doing less than it was asked for, or for lack of memory. What the C library calls inside itself is not
 * seen, so functions such as opendir() and fopen() count as calls too. Other processes are not touched.
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
    bool persists; /* all that could fail so fail from there on */
    /* out */
    long calls, allocations, threads; /* how many there were */
    bool happened;
    char call[24];  /* the first that failed */
    char path[160]; /* its file, where it has a name */
    bool traces;    /* print where the failing call comes from */
};

/* Until injection_end(), in all threads of this process. */
void injection_begin(struct injection *injection);
void injection_end(void);
/* What this thread does in between is not the operation's: it is not counted and does not fail. */
void injection_pause(void);
void injection_resume(void);

/*
 * Allocations of libarchive, libzstd and the dynamic linker do not fail, where they are loaded by now: without memory
 * libarchive 3.6 ends the process, zstd 1.5 reads through NULL, and that of glibc 2.36 ends the process or forgets what a library
 * needs. That is not this library's to fix.
 */
void injection_spare_others(void);
/* Has file systems be of a kind that several machines share, where the index has a rollback journal and no WAL. */
void injection_pretend_network(bool is_network);

/* Which of `errors`, by a bit for each position, call number `call` of the last injection_begin() can have. */
unsigned injection_possible(long call, const int *errors, size_t count);
/* Whether that call transfers bytes, so that it can transfer fewer. */
bool injection_can_be_short(long call);

/* Blocks of memory that are in use; -1 where nobody counts them (a sanitizer has its own allocator). */
long injection_live_blocks(void);

#endif
