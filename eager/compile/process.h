/*
 * eager/compile/process: starts programs (compilers, the worker, command hooks), communicates with them and ends them.
 *
 * Private to compile/ and torch/. A program runs in its own process group, with default signals, those of a terminal blocked,
 * and no descriptor of the host except its standard three. If it must end with the host, a small watcher leads that group and
 * kills it when the host is gone. The host gets no signal from it (nothing is written to a pipe), needs no SIGCHLD handler,
 * and waits for exactly these children, so hosts with children, handlers or SIGCHLD ignored are not disturbed.
 *
 * Ending is SIGKILL to the whole group, immediately: a compiler has nothing to save, because its output is in a directory
 * that is deleted with it, and programs that ignore SIGTERM must end too.
 *
 * Not thread-safe: one process belongs to one thread at a time.
 */
#ifndef AOTICACHE_EAGER_COMPILE_PROCESS_H
#define AOTICACHE_EAGER_COMPILE_PROCESS_H

#include "base/clock.h"
#include "base/base.h"

#include <limits.h>
#include <sys/types.h>

/* Number of bytes of a program's standard error that are kept: the last ones, and of longer output also the beginning. */
#define AOTICACHE_PROCESS_MESSAGE_BYTES (64 * 1024)
#define AOTICACHE_PROCESS_HEAD_BYTES (AOTICACHE_PROCESS_MESSAGE_BYTES / 2)

typedef struct aoticache_process {
    pid_t pid;     /* 0: no process runs */
    pid_t watcher; /* leads the program's group; 0: none, and the program leads its group itself */
    int output;    /* its standard output, in a conversation also its standard input; -1: closed */
    int messages;  /* its standard error; -1: closed */
    char *bytes;   /* read from `output` and not taken yet; terminated if not NULL */
    size_t size, capacity;
    char *tail; /* its standard error, terminated; NULL: nothing */
    size_t tail_size;
    char *head;     /* its first AOTICACHE_PROCESS_HEAD_BYTES, when the tail does not contain them any more */
    uint64_t said;  /* bytes on standard error, including dropped ones */
    bool ended;     /* it has exited; how_code and how_status are set */
    int how_code;   /* CLD_EXITED, CLD_KILLED, CLD_DUMPED; 0: another waiter took its status */
    int how_status; /* the exit status or the signal */
} aoticache_process;

#define AOTICACHE_PROCESS_INIT {.output = -1, .messages = -1}

typedef struct aoticache_process_options {
    const char *program;          /* a path */
    const char *const *arguments; /* NULL-terminated, with the program's name as the first */
    bool conversation;            /* standard input and output are one socket, which stays open */
    const void *input;            /* without conversation: its standard input, a file in memory */
    size_t input_size;
    const char *const *environment; /* the whole environment, "NAME=VALUE", NULL-terminated; NULL: see below */
    const char *directory;          /* its working directory; absolute. NULL: the host's */
    uint64_t memory_limit_bytes;    /* of data memory (RLIMIT_DATA), for it and each process it starts; 0: none */
    bool ends_with_host;            /* its group is killed when the host ends, however that happens */
} aoticache_process_options;

/*
 * Working directory of programs that look for files there, or start others that do (Python's -c, an empty directory in
 * PYTHONPATH, PATH or CPATH): the host's working directory may belong to another user.
 */
#define AOTICACHE_PROCESS_NEUTRAL_DIRECTORY "/"

/* The result of reading. */
typedef enum aoticache_process_event {
    AOTICACHE_PROCESS_DATA,     /* the line is complete */
    AOTICACHE_PROCESS_END,      /* it has closed its output, or is dead */
    AOTICACHE_PROCESS_TIMEOUT,  /* the deadline has passed */
    AOTICACHE_PROCESS_OVERFLOW, /* it wrote more than was allowed */
    AOTICACHE_PROCESS_FAILURE,  /* errno has the reason; ECANCELED: aoticache_compiles_cancel() */
} aoticache_process_event;

/*
 * Finds a program: a name with a '/' as it is, any other name in $PATH (empty and relative directories of it are skipped) or, if
 * the environment must be ignored, in the system's directories. ret_path: absolute.
 * Returns: OK, NOT_FOUND (ret_error is set, unlike elsewhere), DENIED (it exists, but is not executable).
 */
aoticache_status aoticache_program_find(const char *name, char ret_path[PATH_MAX], aoticache_error *ret_error);

/* Starts a program. Returns: OK, NOT_FOUND, DENIED, NO_MEMORY, IO. */
aoticache_status aoticache_process_start(const aoticache_process_options *options, aoticache_process *ret_process,
                                         aoticache_error *ret_error);

/* Kills the group, takes the child's status and closes descriptors. Keeps the output. Does nothing if no process runs. */
void aoticache_process_end(aoticache_process *process);
/* Ends it and frees its output. */
void aoticache_process_free(aoticache_process *process);

/* For a child made by fork(): closes our copies of the descriptors of the parent's process, which continues. */
void aoticache_process_forget(aoticache_process *process);

/* Sends all bytes to a conversation, without raising SIGPIPE. Returns DATA when done, END, TIMEOUT or FAILURE. */
aoticache_process_event aoticache_process_send(aoticache_process *process, const void *bytes, size_t size,
                                               uint64_t deadline_ns);

/*
 * Reads until `bytes` holds a whole line (DATA), at most max_bytes long. deadline_ns: of aoticache_monotonic_ns().
 * Also keeps the program's standard error meanwhile.
 */
aoticache_process_event aoticache_process_read_line(aoticache_process *process, size_t max_bytes, uint64_t deadline_ns);

/* Reads until the output ends (END), at most max_bytes, then waits for the program itself to exit. */
aoticache_process_event aoticache_process_read_all(aoticache_process *process, size_t max_bytes, uint64_t deadline_ns);

/* Returns whether a conversation has sent something unrequested, or has ended. Does not wait. */
bool aoticache_process_is_restless(aoticache_process *process);

/* Removes the first `size` of `bytes`. */
void aoticache_process_take(aoticache_process *process, size_t size);

/* Writes "exited with status 3", "was killed by signal 9 (Killed)" or "closed its output". Call it after the end. */
void aoticache_process_describe_end(const aoticache_process *process, char *ret_text, size_t size);

/* Returns the end of its standard error that fits in that many bytes, beginning at a line; "" if there is none. */
const char *aoticache_process_last_words(aoticache_process *process, size_t room);

/*
 * Returns its standard error until now, at most AOTICACHE_PROCESS_MESSAGE_BYTES: of longer output the beginning and the end, with
 * a line between them that says how much is missing. Bytes of value 0 become '?'. The caller frees it with free(); NULL
 * without output, or out of memory.
 */
char *aoticache_process_output(aoticache_process *process);

/* Drops its output: later output belongs to the next compile. */
void aoticache_process_drop_words(aoticache_process *process);

/*
 * Runs a program to its end and keeps its output in ret_process, which the caller frees in every case.
 * Returns: OK (it exited with status 0), COMPILE_FAILED (ret_error: how it ended and the end of its error output), and the
 * results of aoticache_process_start().
 */
aoticache_status aoticache_process_run(const aoticache_process_options *options, size_t max_bytes, uint64_t deadline_ns,
                                       aoticache_process *ret_process, aoticache_error *ret_error);

#endif
