/*
 * eager/hook/hook: what the kinds of compile hook have in common, and the door through which each is called.
 *
 * Private.
 */
#ifndef AOTICACHE_EAGER_HOOK_HOOK_H
#define AOTICACHE_EAGER_HOOK_HOOK_H

#include "eager/eager.h"
#include "eager/hook/process.h"
#include "eager/hook/protocol.h"

#define AOTICACHE_HOOK_DEFAULT_TIMEOUT_SECONDS 300

/* Whether a hook serves dynamic requests. */
typedef enum aoticache_hook_shapes {
    AOTICACHE_HOOK_SHAPES_EXACT,   /* a dynamic request is not even shown to it */
    AOTICACHE_HOOK_SHAPES_UNKNOWN, /* another's program: it is asked */
    AOTICACHE_HOOK_SHAPES_DYNAMIC,
} aoticache_hook_shapes;

/* What makes a kind of hook. */
typedef struct aoticache_hook_kind {
    const char *name; /* for messages: "worker", "command", "c" */
    aoticache_status (*set_environment)(const aoticache_hook *hook, aoticache_request *request,
                                        aoticache_error *ret_error);
    /* deadline_ns: of aoticache_monotonic_ns(). ret_answer: the caller frees it. CORRUPT stands for COMPILE_FAILED. */
    aoticache_status (*compile)(aoticache_hook *hook, const aoticache_request *request, const char *directory,
                                uint64_t deadline_ns, aoticache_answer *ret_answer, aoticache_error *ret_error);
    /* Or, where it is not NULL: compiles and delivers itself, to a function that checks what it is given. */
    aoticache_status (*compile_and_deliver)(aoticache_hook *hook, const aoticache_request *request,
                                            const char *directory, aoticache_deliver_fn deliver, void *deliver_user,
                                            aoticache_error *ret_error);
    const char *(*producer)(const aoticache_hook *hook);
    aoticache_hook_shapes (*shapes)(const aoticache_hook *hook);
    void (*free_state)(aoticache_hook *hook);
} aoticache_hook_kind;

struct aoticache_hook {
    const aoticache_hook_kind *kind;
    char *program;      /* a path */
    char *cpu_features; /* NULL: all of this machine */
    char **environment; /* of its programs; NULL: the host's */
    uint64_t memory_limit_bytes; /* 0: none */
    uint32_t timeout_seconds;
    aoticache_logger logger;
    void *state; /* of the kind */
};

/*
 * A hook with everything of the options but its state; checks options and cpu_features.
 * program: copied. Returns: OK, INVALID, NO_MEMORY.
 */
aoticache_status aoticache_hook_allocate(const aoticache_hook_kind *kind, const aoticache_hook_options *options,
                                         const char *program, aoticache_hook **ret_hook, aoticache_error *ret_error);

/* Reads the caller's options; NULL gives the defaults. Returns: OK, INVALID. */
aoticache_status aoticache_hook_read_options(const aoticache_hook_options *options, aoticache_hook_options *ret_options,
                                             aoticache_error *ret_error);

/* Fills what the hook's options say of its programs: their environment and their limit of memory. */
void aoticache_hook_set_process_options(const aoticache_hook *hook, aoticache_process_options *options);

/*
 * COMPILE_FAILED for a hook whose process did not do its part: "took longer than 300 s and was killed", "exited with
 * status 1", and its last words. Call it after the process's end. doing: "compiling aten::abs".
 */
aoticache_status aoticache_hook_explain(const aoticache_hook *hook, aoticache_process *process,
                                        aoticache_process_event event, const char *doing,
                                        aoticache_error *ret_error);

#endif
