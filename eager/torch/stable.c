/*
 * eager/torch/stable: the binding's side of the stable C ABI: its functions, from the libtorch in this process; its calls,
 * whose values are read and which the core or the fallback answers; returning results or an exception; and the pool of
 * functions that PyTorch calls. Everything that a call owns is released before an exception leaves it.
 */
#include "base/cleanup.h"
#include "base/process/fork_guard.h"
#include "eager/holder/holder_internal.h"
#include "eager/torch/torch_internal.h"
#include "loader/loader.h"
#include "loader/torch.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

/* ---- the functions of the ABI ---- */

/* Opens a library that is already loaded: only its reference count changes. */
static void *open_loaded(const char *path, aoticache_error *ret_error)
{
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL)
        aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%.400s is not loaded in this process", path);
    return handle;
}

static bool bind_one(void *handle, const char *name, void *place)
{
    void *address = dlsym(handle, name);
    memcpy(place, &address, sizeof address);
    return address != NULL;
}

/*
 * Finds C++ functions of PyTorch by their symbol names, because the C ABI does not provide these settings. Returns the name of
 * a missing one; NULL: none is missing.
 */
static const char *bind_settings(void *handle, aoticache_bridge_settings *ret_settings)
{
    const void *(*global_context)(void);
    static const char context[] = "_ZN2at13globalContextEv",
                      deterministic[] = "_ZNK2at7Context23deterministicAlgorithmsEv",
                      dtype[] = "_ZN3c1031get_default_dtype_as_scalartypeEv";
    if (!bind_one(handle, context, &global_context))
        return context;
    if (!bind_one(handle, deterministic, &ret_settings->is_deterministic))
        return deterministic;
    ret_settings->context = global_context();
    return bind_one(handle, dtype, &ret_settings->default_dtype) ? NULL : dtype;
}

/*
 * Finds the functions. handle: never closed. Before 2.13 the boxes of optional values are freed as in PyTorch's own
 * extensions, by the operator delete of the C++ runtime that libtorch uses.
 */
static aoticache_status bind_functions(void *handle, const char *path, aoticache_stable *stable,
                                       aoticache_error *ret_error)
{
    const char *missing = NULL;
#define BIND(result, name, parameters)                              \
    if (!bind_one(handle, #name, &stable->name) && missing == NULL) \
        missing = #name;
    AOTICACHE_STABLE_LIST(BIND)
#undef BIND
    bind_one(handle, "torch_exception_get_what_without_backtrace", &stable->torch_exception_get_what);
    bind_one(handle, "torch_get_num_threads", &stable->torch_get_num_threads);
    if (!bind_one(handle, "torch_delete_stable_ivalue", &stable->torch_delete_stable_ivalue) &&
        !bind_one(handle, "_ZdlPv", &stable->operator_delete) && missing == NULL)
        missing = "torch_delete_stable_ivalue";
    if (missing == NULL)
        missing = bind_settings(handle, &stable->settings);
    if (missing == NULL)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "%.400s has no %s: PyTorch 2.10 or later is required",
                               path, missing);
}

aoticache_status aoticache_stable_bind(const char *path, const aoticache_torch *torch, aoticache_stable *ret_stable,
                                       aoticache_error *ret_error)
{
    aoticache_stable stable = {.torch = torch};
    if (path == NULL && torch->kind != AOTICACHE_TORCH_LIBTORCH)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND,
                                   "PyTorch is not loaded in this process (libtorch_cpu.so): import torch first");
    if (path == NULL)
        path = torch->path;
    aoticache_fork_guard_enter();
    void *handle = open_loaded(path, ret_error);
    aoticache_status status = handle != NULL ? bind_functions(handle, path, &stable, ret_error) : AOTICACHE_NOT_FOUND;
    if (status == AOTICACHE_OK)
        *ret_stable = stable;
    else if (handle != NULL)
        dlclose(handle);
    aoticache_fork_guard_leave();
    return status;
}

/* ---- a call ---- */

typedef struct stable_call {
    aoticache_binding_call core;
    aoticache_stable_arguments arguments;
    aoticache_error error;
} stable_call;

static void throw_in_torch(const aoticache_stable *stable, const char *message)
{
    stable->aoti_torch_check(false, __func__, __FILE__, __LINE__, message);
}

/* ---- without the core ---- */

/*
 * Calls the operator by its name, because it was disabled after PyTorch had chosen our function: the dispatcher then finds
 * PyTorch's own kernel. The thread's own state says where this call is among the dispatch keys.
 */
static void call_again(const aoticache_registration *registration, uint64_t *stack)
{
    const aoticache_stable *stable = &registration->stable;
    if (stable->torch_call_dispatcher(registration->name, registration->overload, stack, registration->torch_version) ==
        0)
        return;
    const char *what = stable->torch_exception_get_what != NULL ? stable->torch_exception_get_what() : NULL;
    throw_in_torch(stable, what != NULL ? what : "the operator failed after aoticache had returned to it");
}

/* Calls the fallback of a retired operator: PyTorch still has our function, so calling it by name would come here again. */
static void let_through(const aoticache_registration *registration, uint64_t *stack, uint64_t num_inputs,
                        uint64_t num_outputs)
{
    aoticache_error error;
    error.message[0] = '\0';
    if (registration->fallback(registration->fallback_user, stack, num_inputs, num_outputs, error.message,
                               sizeof error.message) != 0)
        throw_in_torch(&registration->stable, error.message);
}

static __attribute__((noinline)) void call_without_operator(const aoticache_registration *registration, uint64_t *stack,
                                                            uint64_t num_inputs, uint64_t num_outputs)
{
    if (registration->library != NULL)
        let_through(registration, stack, num_inputs, num_outputs);
    else
        call_again(registration, stack);
}

/* ---- answers ---- */

static __attribute__((noinline)) bool refuse_results(stable_call *call, uint64_t num_outputs)
{
    aoticache_error_set(&call->error, AOTICACHE_RUN_FAILED, "%s: the kernel returned %zu results, not %llu",
                        aoticache_holder_op(call->core.op->holder), call->core.stack.count,
                        (unsigned long long)num_outputs);
    aoticache_stack_drop(&call->core.stack, 0);
    return false;
}

/* Pushes the results. False: the library returned another number of tensors than the operator has results. */
static inline bool push_results(stable_call *call, uint64_t *stack, uint64_t num_outputs)
{
    aoticache_stack *results = &call->core.stack;
    if (__builtin_expect(results->count != num_outputs, 0))
        return refuse_results(call, num_outputs);
    for (size_t i = 0; i < results->count; i++)
        stack[i] = (uint64_t)(uintptr_t)results->values[i].as.output;
    return true;
}

/* Calls the fallback, which owns the arguments from here on. The operator is kept until the fallback returns. */
static __attribute__((noinline)) bool fall_back(stable_call *call, uint64_t *stack, uint64_t num_inputs,
                                                uint64_t num_outputs)
{
    const aoticache_registration *registration = call->core.op->registration;
    call->error.message[0] = '\0';
    aoticache_binding_keep(&call->core);
    bool answers = registration->fallback(registration->fallback_user, stack, num_inputs, num_outputs,
                                          call->error.message, sizeof call->error.message) == 0;
    if (call->core.fallback_wanted && call->core.timed.verdict != NULL) {
        aoticache_holder *holder = call->core.op->holder;
        uint64_t ns = holder->context->clock_ns() - call->core.timed.begin_ns;
        aoticache_timed_call_end(&call->core.timed, holder, answers ? ns : 0);
    }
    return answers;
}

static __attribute__((noinline)) bool fail_or_fall_back(stable_call *call, aoticache_bridge_result result,
                                                        uint64_t *stack, uint64_t num_inputs, uint64_t num_outputs)
{
    const aoticache_binding_operator *op = call->core.op;
    if (result == AOTICACHE_BRIDGE_FALLBACK)
        return fall_back(call, stack, num_inputs, num_outputs);
    aoticache_stable_release(&op->registration->stable, op->plan, stack, call->core.consumed);
    return false;
}

/* Answers a call whose arguments have been read; false: the call has failed, with a message. */
static inline bool answer_call(stable_call *call, uint64_t *stack, uint64_t num_inputs, uint64_t num_outputs)
{
    aoticache_binding_operator *op = call->core.op;
    const aoticache_stable *stable = &op->registration->stable;
    aoticache_stable_arguments *arguments = &call->arguments;
    call->core.stack.values = arguments->values;
    call->core.stack.count = arguments->count;
    call->core.stack.capacity = AOTICACHE_STABLE_MAX_ARGUMENTS;
    aoticache_bridge_result result =
        aoticache_binding_answer(&call->core, 0, arguments->wrapped, true, true, &call->error);
    if (op->plan->has_lists)
        aoticache_stable_drop(op->plan, arguments);
    if (__builtin_expect(result != AOTICACHE_BRIDGE_SERVED, 0))
        return fail_or_fall_back(call, result, stack, num_inputs, num_outputs);
    if (!op->plan->is_plain)
        aoticache_stable_release(stable, op->plan, stack, call->core.consumed);
    return push_results(call, stack, num_outputs);
}

static inline bool read_arguments(stable_call *call, const uint64_t *stack, uint64_t num_inputs)
{
    const aoticache_binding_operator *op = call->core.op;
    const aoticache_stable_plan *plan = op->plan;
    if (__builtin_expect(num_inputs != plan->count, 0))
        return false;
    return plan->is_plain ? aoticache_stable_read_plainly(&op->registration->stable, plan, stack, &call->arguments)
                          : aoticache_stable_read(&op->registration->stable, plan, stack, &call->arguments);
}

static inline bool serve_call(stable_call *call, uint64_t *stack, uint64_t num_inputs, uint64_t num_outputs)
{
    if (__builtin_expect(read_arguments(call, stack, num_inputs), 1))
        return answer_call(call, stack, num_inputs, num_outputs);
    aoticache_binding_count_refused(call->core.op);
    return fall_back(call, stack, num_inputs, num_outputs);
}

/* Answers a call of a function of the pool. Throws through aoti_torch_check() if the call fails. */
static void answer_stable(uint32_t slot, uint64_t *stack, uint64_t num_inputs, uint64_t num_outputs)
{
    stable_call call;
    const aoticache_registration *registration = aoticache_registration_of_slot(slot);
    aoticache_binding_entry entry = aoticache_binding_begin(registration, &call.core);
    if (__builtin_expect(entry == AOTICACHE_BINDING_GONE, 0)) {
        call_without_operator(registration, stack, num_inputs, num_outputs);
        return;
    }
    if (__builtin_expect(entry == AOTICACHE_BINDING_NO_THREAD, 0))
        throw_in_torch(&registration->stable,
                       "aoticache: out of memory for a thread's state"); /* without a plan the arguments leak */
    bool served = serve_call(&call, stack, num_inputs, num_outputs);
    aoticache_binding_end(&call.core);
    if (__builtin_expect(!served, 0))
        throw_in_torch(&registration->stable, call.error.message);
}

/* ---- the pool ---- */

/*
 * A call over the stable C ABI does not say which operator is called, so every operator has its own function, from this pool.
 */
#define FUNCTION(number)                                                                      \
    static void function_##number(uint64_t *stack, uint64_t num_inputs, uint64_t num_outputs) \
    {                                                                                         \
        answer_stable(0##number, stack, num_inputs, num_outputs);                             \
    }
#define NAME(number) function_##number,

/* Expands X for each number from 0 to 0777, in octal. */
/* clang-format off */
#define EIGHT(X, digits) \
    X(digits##0) X(digits##1) X(digits##2) X(digits##3) X(digits##4) X(digits##5) X(digits##6) X(digits##7)
#define SIXTY_FOUR(X, digits)                                                               \
    EIGHT(X, digits##0) EIGHT(X, digits##1) EIGHT(X, digits##2) EIGHT(X, digits##3)         \
    EIGHT(X, digits##4) EIGHT(X, digits##5) EIGHT(X, digits##6) EIGHT(X, digits##7)
#define ALL(X)                                                                      \
    SIXTY_FOUR(X, 0) SIXTY_FOUR(X, 1) SIXTY_FOUR(X, 2) SIXTY_FOUR(X, 3)             \
    SIXTY_FOUR(X, 4) SIXTY_FOUR(X, 5) SIXTY_FOUR(X, 6) SIXTY_FOUR(X, 7)
/* clang-format on */

ALL(FUNCTION)

const aoticache_stable_fn aoticache_stable_functions[AOTICACHE_STABLE_SLOTS] = {ALL(NAME)};
