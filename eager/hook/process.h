/*
 * eager/hook/process: programs that are started, spoken to and ended: compilers, the worker, command hooks.
 *
 * Private. A program runs in a process group of its own, with default signals, those of a terminal blocked, and no
 * descriptor of the host but its standard three. Where it is to end with the host, a small watcher leads that group and kills it when the host is gone.
 * The host gets no signal from it (nothing is written to a pipe), needs no SIGCHLD handler, and waits for exactly these
 * children, so that hosts with children, handlers or SIGCHLD ignored are not disturbed.
 *
 * Ending is SIGKILL to the whole group at once: a compiler has nothing to save, since what it writes lies in a folder
 * that goes with it, and whoever ignores SIGTERM must end too.
 *
 * Not thread-safe: one process belongs to one thread at a time.
 */
#ifndef AOTICACHE_EAGER_HOOK_PROCESS_H
#define AOTICACHE_EAGER_HOOK_PROCESS_H

#include "base/clock.h"
#include "base/base.h"

#include <limits.h>
#include <sys/types.h>

/* Of what a program says on its standard error, the last so many bytes are kept, and of more than that the beginning. */
#define AOTICACHE_PROCESS_MESSAGE_BYTES (64 * 1024)
#define AOTICACHE_PROCESS_HEAD_BYTES (AOTICACHE_PROCESS_MESSAGE_BYTES / 2)

typedef struct aoticache_process {
    pid_t pid;     /* 0: nothing runs */
    pid_t watcher; /* leads its group; 0: there is none, and it leads its group itself */
    int output;    /* its standard output, of a conversation its standard input too; -1: closed */
    int messages;  /* its standard error; -1: closed */
    char *bytes;   /* read from `output` and not taken yet; terminated where it is not NULL */
    size_t size, capacity;
    char *tail; /* what it said on standard error, terminated; NULL: nothing */
    size_t tail_size;
    char *head;     /* the first AOTICACHE_PROCESS_HEAD_BYTES of it, once the tail does not have them any more */
    uint64_t said;  /* bytes on standard error, those included that were dropped */
    bool ended;     /* it has exited, and how_code and how_status say how */
    int how_code;   /* CLD_EXITED, CLD_KILLED, CLD_DUMPED; 0: somebody else took its status */
    int how_status; /* the exit status or the signal */
} aoticache_process;

#define AOTICACHE_PROCESS_INIT {.output = -1, .messages = -1}

typedef struct aoticache_process_options {
    const char *program;          /* a path */
    const char *const *arguments; /* NULL-terminated, with the program's name as the first */
    bool conversation;            /* standard input and output are one socket, which stays open */
    const void *input;            /* else: what it reads on its standard input, which is a file in memory */
    size_t input_size;
    const char *const *environment; /* all of it, "NAME=VALUE", NULL-terminated; NULL: see below */
    const char *directory;          /* where it runs; absolute. NULL: the host's working directory */
    uint64_t memory_limit_bytes;    /* of data memory (RLIMIT_DATA), for it and each process it starts; 0: none */
    bool ends_with_host;            /* its group is killed when the host ends, however that happens */
} aoticache_process_options;

/*
 * Where programs run that look for files in their working directory, or hand on to others that do (Python's -c, an empty
 * folder in PYTHONPATH, PATH or CPATH): the host may stand in a folder of somebody else's.
 */
#define AOTICACHE_PROCESS_NEUTRAL_DIRECTORY "/"

/* What came of reading. */
typedef enum aoticache_process_event {
    AOTICACHE_PROCESS_DATA,     /* the line is there */
    AOTICACHE_PROCESS_END,      /* it has closed its output, or is dead */
    AOTICACHE_PROCESS_TIMEOUT,  /* the deadline has passed */
    AOTICACHE_PROCESS_OVERFLOW, /* it wrote more than was allowed */
    AOTICACHE_PROCESS_FAILURE,  /* errno says why; ECANCELED: aoticache_compiles_cancel() */
} aoticache_process_event;

/*
 * Finds a program: a name with a '/' as it stands, any other in $PATH (empty and relative folders of it are skipped),
 * or, where the environment counts for nothing, in the system's folders. ret_path: absolute.
 * Returns: OK, NOT_FOUND (ret_error says so, unlike elsewhere), DENIED (there, but not executable).
 */
aoticache_status aoticache_program_find(const char *name, char ret_path[PATH_MAX], aoticache_error *ret_error);

/* Returns: OK, NOT_FOUND, DENIED, NO_MEMORY, IO. */
aoticache_status aoticache_process_start(const aoticache_process_options *options, aoticache_process *ret_process,
                                         aoticache_error *ret_error);

/* Kills the group, takes the child's status, closes. What it said is kept. Does nothing where nothing runs. */
void aoticache_process_end(aoticache_process *process);
/* Ends it and frees what it said. */
void aoticache_process_free(aoticache_process *process);

/* For a child made by fork(): closes our copies of what belongs to a process of the parent, which goes on. */
void aoticache_process_forget(aoticache_process *process);

/* Sends all of it to a conversation, never raising SIGPIPE: DATA when it is done, END, TIMEOUT or FAILURE. */
aoticache_process_event aoticache_process_send(aoticache_process *process, const void *bytes, size_t size,
                                               uint64_t deadline_ns);

/*
 * Reads until `bytes` holds a whole line (DATA), at most max_bytes long. deadline_ns: of aoticache_monotonic_ns().
 * What it says on standard error meanwhile is kept.
 */
aoticache_process_event aoticache_process_read_line(aoticache_process *process, size_t max_bytes, uint64_t deadline_ns);

/* Reads until the output ends (END), at most max_bytes, then waits for the program itself to exit. */
aoticache_process_event aoticache_process_read_all(aoticache_process *process, size_t max_bytes, uint64_t deadline_ns);

/* Whether a conversation has something to say, or has ended, although nothing was asked. Does not wait. */
bool aoticache_process_is_restless(aoticache_process *process);

/* Removes the first `size` of `bytes`. */
void aoticache_process_take(aoticache_process *process, size_t size);

/* "exited with status 3", "was killed by signal 9 (Killed)", "closed its output". Call it after the end. */
void aoticache_process_describe_end(const aoticache_process *process, char *ret_text, size_t size);

/* The last part of what it said on standard error that fits in `room` bytes, beginning at a line; "" for nothing. */
const char *aoticache_process_last_words(aoticache_process *process, size_t room);

/*
 * What it said on standard error so far, at most AOTICACHE_PROCESS_MESSAGE_BYTES: of more, the beginning and the end,
 * with a line between them that says how much is missing. Bytes of value 0 become '?'. The caller's, by free(); NULL
 * where it said nothing, or memory ran out.
 */
char *aoticache_process_output(aoticache_process *process);

/* Forgets what it said: what comes is of the next compile. */
void aoticache_process_drop_words(aoticache_process *process);

/*
 * Runs a program to its end and keeps what it wrote in ret_process, which the caller frees in every case.
 * Returns: OK (it exited with status 0), COMPILE_FAILED (ret_error: how it ended and its last words), and those of
 * start.
 */
aoticache_status aoticache_process_run(const aoticache_process_options *options, size_t max_bytes, uint64_t deadline_ns,
                                       aoticache_process *ret_process, aoticache_error *ret_error);

#endif
