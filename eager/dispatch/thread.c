/*
 * eager/dispatch/thread: per-thread state of calls: the key sets that are added to and removed from theirs, modes, and which
 * modes are on and which keys excluded while one runs. operator_call.c decides when modes are called.
 */
#include "base/arguments.h"
#include "eager/dispatch/dispatch_internal.h"
#include "eager/dispatch/keys.h"
#include "eager/dispatch/questions.h"

#include <stdlib.h>

/* ---- key sets of this thread ---- */

/* A new thread starts with PyTorch's defaults (c10::default_included_set, c10::default_excluded_set). */
__thread aoticache_dispatch_local aoticache_dispatch_thread_sets = {
    .included = KEY_SET_BIT_OF(BackendSelect) | KEY_SET_BIT_OF(ADInplaceOrView),
    .excluded = KEY_SET_BIT_OF(AutocastCPU) | KEY_SET_BIT_OF(AutocastMTIA) | KEY_SET_BIT_OF(AutocastMAIA) |
                KEY_SET_BIT_OF(AutocastXPU) | KEY_SET_BIT_OF(AutocastIPU) | KEY_SET_BIT_OF(AutocastHPU) |
                KEY_SET_BIT_OF(AutocastXLA) | KEY_SET_BIT_OF(AutocastMPS) | KEY_SET_BIT_OF(AutocastCUDA) |
                KEY_SET_BIT_OF(AutocastPrivateUse1),
};

aoticache_dispatch_local aoticache_dispatch_get_local(void)
{
    return aoticache_dispatch_thread_sets;
}

void aoticache_dispatch_set_local(aoticache_dispatch_local local)
{
    aoticache_dispatch_thread_sets = local;
}

/* ---- modes ---- */

enum { MAX_MODES = 64 };

__thread uint64_t aoticache_dispatch_modes_on __attribute__((tls_model("initial-exec")));

/*
 * The modes that were pushed, including those that are off because they or lower ones are running. The first push allocates the
 * stack and the last pop frees it: thread-local memory is scarce, and libraries that are loaded later also need some.
 */
typedef struct mode_stack {
    unsigned count;
    aoticache_dispatch_mode modes[MAX_MODES];
} mode_stack;

static __thread mode_stack *mine __attribute__((tls_model("initial-exec")));

aoticache_status aoticache_dispatch_mode_push(const aoticache_dispatch_mode *mode, aoticache_error *ret_error)
{
    if (mode == NULL || mode->call == NULL)
        return mode == NULL ? AOTICACHE_REFUSE_NULL(ret_error, mode) : AOTICACHE_REFUSE_NULL(ret_error, mode->call);
    if (mine == NULL && (mine = calloc(1, sizeof *mine)) == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a stack of modes");
    if (mine->count == MAX_MODES)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "this thread already has %d modes, the maximum",
                                   MAX_MODES);
    mine->modes[mine->count] = *mode;
    aoticache_dispatch_modes_on |= UINT64_C(1) << mine->count++;
    return AOTICACHE_OK;
}

/* Pops the top mode. A running mode is not on top for its own calls, so it cannot pop itself. */
void aoticache_dispatch_mode_pop(void)
{
    if (mine == NULL)
        return;
    uint64_t top = UINT64_C(1) << (mine->count - 1);
    if ((aoticache_dispatch_modes_on & top) == 0)
        return;
    aoticache_dispatch_modes_on &= ~top;
    if (--mine->count == 0) {
        free(mine);
        mine = NULL;
    }
}

size_t aoticache_dispatch_mode_count(void)
{
    return (size_t)__builtin_popcountll(aoticache_dispatch_modes_on);
}

/* Returns the keys above Python. They are done when a mode is called: its own calls begin below them, as in PyTorch. */
static aoticache_key_set above_python(void)
{
    return aoticache_key_set_full() &
           ~(aoticache_key_set_full_after(AOTICACHE_DISPATCH_KEY_Python) | KEY_SET_BIT_OF(Python));
}

/* Runs a mode while it and those above it are off, and pops modes that it pushed and did not pop. */
static aoticache_status call_mode(unsigned number, const aoticache_operator *op, aoticache_key_set keys,
                                  aoticache_stack *stack, aoticache_error *ret_error)
{
    const aoticache_dispatch_mode mode = mine->modes[number];
    uint64_t on = aoticache_dispatch_modes_on;
    unsigned count = mine->count;
    aoticache_dispatch_local before = aoticache_dispatch_add_local(0, above_python());
    aoticache_dispatch_modes_on = on & ((UINT64_C(1) << number) - 1);
    aoticache_status status = mode.call(mode.user, op, keys, stack, ret_error);
    aoticache_dispatch_set_local(before);
    aoticache_dispatch_modes_on = on;
    mine->count = count; /* it cannot have popped itself, so the stack still exists */
    return status;
}

aoticache_status aoticache_dispatch_ask_modes(const aoticache_operator *op, aoticache_key_set keys,
                                              aoticache_stack *stack, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_UNSUPPORTED;
    for (uint64_t left = aoticache_dispatch_modes_on; left != 0 && status == AOTICACHE_UNSUPPORTED;) {
        unsigned number = 63u ^ (unsigned)__builtin_clzll(left);
        left &= (UINT64_C(1) << number) - 1;
        status = call_mode(number, op, keys, stack, ret_error);
    }
    return status;
}
