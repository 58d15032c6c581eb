/*
 * loader/runner: what a runner is, for the files that make it up: runner.c (creating, names), runner_run.c,
 * constants.c (listing, finding by name), update.c (new values, through the best function that the library has), blob.c
 * (all values from one blob), shapes.c (which tensors fit), values.c (which constants have a value), buffers.c
 * (folding, swapping, freeing, extracting).
 *
 * Private to loader/. run_lock.h, which depends on none of this, orders runs and changes inside a container.
 */
#ifndef AOTICACHE_LOADER_RUNNER_INTERNAL_H
#define AOTICACHE_LOADER_RUNNER_INTERNAL_H

#include "loader/check/check.h"
#include "loader/loader_internal.h"
#include "loader/loader.h"
#include "loader/runner/backend.h"
#include "loader/runner/constants.h"
#include "loader/runner/runner_hot.h"
#include "loader/runner/run_lock.h"
#include "loader/runner/runner.h"
#include "runtime/kernel.h"

/* ---- devices ---- */

/*
 * Finds the backend for a device string, which lives as long as the process, and the index in the string, -1 without.
 * Returns: OK, INVALID (unknown, or not a device string; the message lists those that are known).
 */
aoticache_status aoticache_device_backend_find(const char *device, const aoticache_device_backend **ret_backend,
                                               int32_t *ret_index, aoticache_error *ret_error);

/* ---- the runner ---- */

#define AOTICACHE_RUNNER_CACHE_LINE 64

/* Up to this many handles are on the stack during a run. */
#define AOTICACHE_RUNNER_HANDLES_ON_STACK 32

typedef AOTIRuntimeError (*aoticache_library_run_fn)(AOTInductorModelContainerHandle, AtenTensorHandle *, size_t,
                                                     AtenTensorHandle *, size_t, AOTInductorStreamHandle,
                                                     AOTIProxyExecutorHandle);

/* The shape of a constant, as the library laid it out. */
typedef struct aoticache_constant_shape {
    int64_t ndim, offset; /* offset: of the first element in its storage */
    int64_t *sizes;       /* NULL: unknown. The strides follow, in the same memory */
    int64_t *strides;     /* NULL: unknown */
    int32_t device_type;
    bool opaque; /* not a strided tensor */
} aoticache_constant_shape;

typedef struct aoticache_constant_buffer {
    bool *stale; /* for each constant: the library's tensor is over memory that is gone */
    bool folded; /* it may have folded constants */
    bool made;   /* the library has it. Before PyTorch 2.13 the inactive one is made when it is first changed; a
                    library that is asked for it earlier ends the process */
} aoticache_constant_buffer;

struct aoticache_runner {
    /* The fields that every run reads come first, next to each other. */
    aoticache_runner_hot hot;
    const aoticache_torch *torch;
    AOTInductorModelContainerHandle container;
    aoticache_library_run_fn run_alone; /* for runs that do not overlap with any other */
    AOTInductorStreamHandle (*current_stream)(void *user, int32_t index);
    aoticache_check *expected;   /* what inputs must be like; NULL: they are not compared */
    const char **expected_names; /* for messages; may be NULL */
    /* Every run writes to it, so it has its own cache line. */
    _Alignas(AOTICACHE_RUNNER_CACHE_LINE) aoticache_run_lock run_lock;
    /* The other fields. */
    _Alignas(AOTICACHE_RUNNER_CACHE_LINE) aoticache_library_run_fn run_in_pool;
    aoticache_library *library;
    const aoticache_device_backend *backend;
    char *device;
    int32_t device_index;
    size_t num_constants;
    aoticache_runner_info info; /* the same facts for users; complete when the runner is */
    /* Changed only while no other thread is inside: */
    size_t first_missing; /* first constant of the active buffer without a value; num_constants: all have one */
    /* Changed and read only inside a change: */
    aoticache_constant_buffer buffers[2];
    int active; /* index of the active buffer */
    bool has_folded;
    bool shapes_learned;
    aoticache_constant_shape *shapes;
    atomic_size_t references;
    atomic_flag attached;
    void *owner;
    void (*release)(void *owner);
};

/* Sets the provider's functions as the host's, unless cheaper ones are set. */
void aoticache_runner_prepare_host(const aoticache_torch *torch);

/* Returns the stream for runs whose options name none. */
static inline AOTInductorStreamHandle aoticache_runner_stream(const aoticache_runner *runner)
{
    return __builtin_expect(runner->current_stream != NULL, 0)
               ? runner->current_stream(runner->backend->user, runner->device_index)
               : NULL;
}

/* Returns the model's (fqn) or the library's name for a constant, never NULL; "" if the library does not have it. */
const char *aoticache_runner_constant_name(const aoticache_runner *runner, size_t position, bool fqn);
bool aoticache_runner_constant_is_folded(const aoticache_runner *runner, size_t position);

/* Constants in the order of their names. */
typedef struct aoticache_constant_names {
    size_t count;
    struct aoticache_constant_name {
        const char *name; /* borrowed from the library */
        size_t position;
    } *names;
} aoticache_constant_names;

/* Reads the names, without constants that have no such name. The caller frees names. Returns: OK, NO_MEMORY. */
aoticache_status aoticache_constant_names_read(const aoticache_runner *runner, bool fqn,
                                               aoticache_constant_names *ret_names, aoticache_error *ret_error);
/* Returns the first with the name (several may share an FQN), or names.count. */
size_t aoticache_constant_names_find(const aoticache_constant_names *names, const char *name);
/* Returns the most similar name; NULL if none is similar. */
const char *aoticache_constant_names_nearest(const aoticache_constant_names *names, const char *name);

/* Returns UNSUPPORTED: the library has none of the functions that `what` needs; the message names them. */
aoticache_status aoticache_runner_lacks(const aoticache_runner *runner, const char *function, const char *what,
                                        aoticache_error *ret_error);

static inline aoticache_constant_buffer *aoticache_runner_buffer(aoticache_runner *runner, bool inactive)
{
    return &runner->buffers[inactive ? 1 - runner->active : runner->active];
}

static inline bool aoticache_runner_is_stale(const aoticache_runner *runner, bool inactive, size_t position)
{
    return runner->buffers[inactive ? 1 - runner->active : runner->active].stale[position];
}

/* ---- values: inside a change, except for the first function ---- */

/* Returns whether the library can list its constants. */
bool aoticache_runner_can_list(const aoticache_runner *runner);
/*
 * Lists the tensors of a buffer, by position, borrowed until it changes; NULL for folded ones and those without a
 * value.
 * stale_too: include those over memory that is gone. tensors: num_constants elements.
 */
aoticache_status aoticache_runner_list_tensors(const aoticache_runner *runner, bool inactive, bool stale_too,
                                               AtenTensorHandle *tensors, aoticache_error *ret_error);
/* Does the same in new memory, which the caller frees. Returns: also NO_MEMORY. */
aoticache_status aoticache_runner_read_tensors(const aoticache_runner *runner, bool inactive, bool stale_too,
                                               AtenTensorHandle **ret_tensors, aoticache_error *ret_error);
void aoticache_runner_set_stale(aoticache_runner *runner, bool inactive, bool stale);
/* Sets first_missing again, after a change of the active buffer and while no other thread is inside. */
void aoticache_runner_find_missing(aoticache_runner *runner);
/* Returns the first constant of a buffer that has no value, or num_constants. */
size_t aoticache_runner_first_missing(const aoticache_runner *runner, bool inactive);
/* Returns RUN_FAILED, with the constant's name in the message. */
aoticache_status aoticache_runner_fail_missing(const aoticache_runner *runner, size_t position,
                                               aoticache_error *ret_error);

/* ---- shapes: inside a change ---- */

/* Reads the shapes, before the first change; again: after the library has made tensors of a blob. */
aoticache_status aoticache_runner_learn_shapes(aoticache_runner *runner, bool again, aoticache_error *ret_error);
/* Checks that a tensor may become the constant. Returns: OK, INVALID with both sides, RUN_FAILED. */
aoticache_status aoticache_runner_check_tensor(const aoticache_runner *runner, size_t position, AtenTensorHandle tensor,
                                               const aoticache_update_options *options, aoticache_error *ret_error);
/*
 * Checks it after the change, for a constant whose sizes were unknown, and records them. taken: the library's tensor.
 */
aoticache_status aoticache_runner_check_taken(aoticache_runner *runner, size_t position, AtenTensorHandle given,
                                              AtenTensorHandle taken, aoticache_error *ret_error);
/* Returns the bytes that a constant takes in a library and in a blob. */
uint64_t aoticache_constant_padded(uint64_t bytes);

/* ---- new values ---- */

/*
 * Passes a list to the best function that the library has for it, inside a change. Checks nothing.
 * Returns: as aoticache_runner_update_constants().
 */
aoticache_status aoticache_runner_hand_over(aoticache_runner *runner, const aoticache_update_options *options,
                                            const AOTInductorConstantMapEntry *list, size_t count,
                                            aoticache_error *ret_error);

/*
 * Begin and end a change or listing of constants. active: it changes the active buffer, so no run may be inside. No
 * other change happens between begin and end.
 */
typedef struct aoticache_runner_change {
    aoticache_runner *runner;
    bool alone;
} aoticache_runner_change;
aoticache_runner_change aoticache_runner_change_begin(aoticache_runner *runner, bool active);
/* Records, inside a change of the active buffer, that it must be folded again and may lack other constants. */
void aoticache_runner_active_changed(aoticache_runner *runner);
void aoticache_runner_change_end(aoticache_runner_change *change);

#endif
