/*
 * eager/holder/miss: a call whose kernel is not ready. It tries, in this order: a library that is known but not loaded, a
 * dynamic library, entries that other processes have added to the index meanwhile. Then the policy decides: compile now
 * (holder_compile.c), compile in the background, or leave the call to the fallback.
 *
 * holder_run.c runs the library. docs/architecture.md, "One miss", follows a call from here to the compiler.
 */
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "cache/eager_face.h"
#include "cache/request/text.h"
#include "eager/compile/eager_face.h"
#include "eager/holder/holder_hot.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The uses of all holders are reported to the cache after this many misses. */
#define FLUSH_EVERY 64

/* A call that is not a hit, and its state. */
typedef struct slow_call {
    aoticache_holder *holder;
    aoticache_stack *stack;
    const aoticache_packed *packed;
    aoticache_miss_request miss;
    bool *ret_compiles; /* as in aoticache_holder_call_slow_path() */
    aoticache_timed_call *timed;
    bool prepares;           /* the fallback has answered; only a compile is prepared */
    bool ran;                /* a kernel was run: its status is the call's */
    bool is_counted;         /* the lookup that found its kernel has counted it as a hit of the cache */
    bool is_left;            /* left to the fallback, which is faster, or has its turn of a trial */
    aoticache_status status; /* of the kernel, or of the last failed load */
    aoticache_error error;
} slow_call;

static const aoticache_value *arguments_of(const aoticache_holder *holder, const aoticache_stack *stack)
{
    return stack->values + stack->count - holder->num_arguments;
}

/* ---- running a library that is loaded or can be loaded ---- */

/*
 * Loads and runs a library, inside an epoch, because the runner may be unloaded as soon as no thread is inside. Returns true if
 * the kernel was run. is_hit: false for the call for which the library was compiled.
 */
static bool load_and_run(slow_call *call, aoticache_verdict *verdict, bool is_hit)
{
    aoticache_known_kernel *known = verdict->known;
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    if (slot == NULL)
        return false;
    aoticache_runner *runner = atomic_load(&known->runner);
    bool is_loaded = runner != NULL;
    call->status = AOTICACHE_OK;
    if (!is_loaded)
        call->status = aoticache_known_kernel_load(known, &runner, &call->is_counted, &call->error);
    if (call->status == AOTICACHE_OK) {
        call->status = aoticache_holder_run(call->holder, runner, call->stack, &call->error);
        call->ran = call->status != AOTICACHE_LOAD_FAILED;
        if (is_hit && call->ran)
            aoticache_holder_note_use(call->holder, verdict->hot);
        if (is_hit && call->ran && call->is_counted)
            aoticache_call_counts_take_one(known->number);
    }
    aoticache_epoch_leave(slot);
    if (!is_loaded && call->ran) /* not in the epoch, since a host's logger may wait */
        aoticache_log(&call->holder->context->logger, AOTICACHE_LOG_DEBUG, "%s: hit: a kernel of the cache was loaded",
                      call->holder->op);
    return call->ran;
}

/* Runs the call as a hit. False: the kernel has just been unloaded. */
static bool run_as_hit(slow_call *call)
{
    aoticache_packed packed;
    bool packs;
    aoticache_holder *holder = call->holder;
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    if (slot == NULL)
        return false;
    bool ready = aoticache_holder_call_hot(holder, call->stack, call->stack->count - holder->num_arguments, &packed,
                                           &packs, &call->status, &call->error);
    if (!ready && !packs)
        ready = aoticache_holder_call_ready(holder, call->stack, &packed, &packs, &call->status, &call->error);
    aoticache_epoch_leave(slot);
    return ready;
}

/*
 * Runs the next turn of a trial. The first call of a kernel, which loads it, takes no turn. True: the call is done, by the
 * kernel or by leaving it to the fallback.
 */
static bool run_trial_turn(slow_call *call, aoticache_verdict *verdict)
{
    aoticache_timed_call *timed = call->timed;
    uint64_t (*clock_ns)(void) = call->holder->context->clock_ns;
    timed->was_wanted = timed->is_untimed;
    if (timed->is_untimed || atomic_load(&verdict->known->runner) == NULL ||
        !aoticache_timed_call_begin(timed, verdict))
        return load_and_run(call, verdict, true);
    if (timed->contender == AOTICACHE_CONTENDER_FALLBACK)
        return call->is_left = true;
    uint64_t begin_ns = clock_ns();
    bool ready = run_as_hit(call);
    uint64_t ns = clock_ns() - begin_ns;
    call->ran = ready && call->status != AOTICACHE_LOAD_FAILED;
    aoticache_timed_call_end(timed, call->holder, call->ran && call->status == AOTICACHE_OK ? ns : 0);
    return ready ? call->ran : load_and_run(call, verdict, true);
}

/* Runs a call that has a kernel. The kernel answers, or the fallback does because it is faster, or has its turn. */
static bool run_verdict(slow_call *call, aoticache_verdict *verdict)
{
    if (!call->holder->judges)
        return load_and_run(call, verdict, true);
    switch (aoticache_verdict_settle(verdict)) {
    case AOTICACHE_VERDICT_SLOWER:
        return call->is_left = true;
    case AOTICACHE_VERDICT_TRIAL:
        return run_trial_turn(call, verdict);
    default:
        return load_and_run(call, verdict, true);
    }
}

/* Finds the state of this miss; NULL if it never missed before. */
static aoticache_miss_state *find_miss_state(const slow_call *call)
{
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    if (slot == NULL)
        return NULL;
    aoticache_table_entry *entry = aoticache_table_find(&call->holder->misses, call->packed);
    aoticache_epoch_leave(slot);
    return entry != NULL ? entry->own.detail : NULL;
}

/* Returns true if it is too early to retry this miss; the call's error has the reason. */
static bool must_wait(slow_call *call)
{
    aoticache_holder *holder = call->holder;
    aoticache_miss_state *state = find_miss_state(call);
    if (state == NULL)
        return false;
    int queued = atomic_load(&state->queued);
    if (queued != 0 && queued == (int)getpid()) { /* otherwise it was queued before a fork, by the parent */
        call->status = aoticache_error_set(&call->error, AOTICACHE_NOT_FOUND, "the compile is running");
        return true;
    }
    if (aoticache_monotonic_ns() >= atomic_load(&state->retry_ns))
        return false;
    pthread_mutex_lock(&holder->lock);
    call->status = state->status != AOTICACHE_OK ? state->status : AOTICACHE_NOT_FOUND;
    aoticache_error_set(&call->error, call->status, "%s", state->message != NULL ? state->message : "not in the cache");
    pthread_mutex_unlock(&holder->lock);
    return true;
}

/* Records the request of a library that was loaded, as for a miss. */
static void record_request(slow_call *call)
{
    aoticache_holder *holder = call->holder;
    aoticache_request *request = NULL;
    if (holder->context->recorder == NULL ||
        aoticache_holder_request(holder, arguments_of(holder, call->stack), holder->num_arguments, &request, NULL) !=
            AOTICACHE_OK)
        return;
    aoticache_recorder_add(holder->context->recorder, request);
    aoticache_request_free(request);
}

static bool run_from_table(slow_call *call)
{
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    if (slot == NULL)
        return false;
    aoticache_table_entry *entry = aoticache_table_find(&call->holder->table, call->packed);
    aoticache_verdict *verdict = entry != NULL ? atomic_load(&entry->known)->detail : NULL;
    aoticache_epoch_leave(slot);
    if (verdict == NULL || atomic_load(&verdict->known->gone))
        return false;
    if (atomic_load(&verdict->known->runner) == NULL) {
        if (must_wait(call))
            return false;
        record_request(call);
    }
    return run_verdict(call, verdict);
}

static aoticache_known_kernel *find_dynamic(const aoticache_dynamic_state *state, const aoticache_tensor_view *views,
                                            size_t count)
{
    aoticache_known_kernel *found = NULL;
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    if (slot == NULL)
        return NULL;
    const aoticache_dynamic_list *list = atomic_load(&state->list);
    for (size_t i = 0; list != NULL && i < list->count && found == NULL; i++)
        if (!atomic_load(&list->known_kernels[i]->gone) &&
            aoticache_check_passes(list->known_kernels[i]->check, views, count))
            found = list->known_kernels[i];
    aoticache_epoch_leave(slot);
    return found;
}

static bool run_dynamic(slow_call *call)
{
    cleanup_free aoticache_tensor_view *views = NULL;
    size_t count = 0;
    if (call->miss.dynamic_state == NULL || atomic_load(&call->miss.dynamic_state->list) == NULL ||
        aoticache_request_views(call->miss.exact, &views, &count, NULL) != AOTICACHE_OK)
        return false;
    /* A library that turned out to be gone is not found again. */
    for (aoticache_known_kernel *known; (known = find_dynamic(call->miss.dynamic_state, views, count)) != NULL;) {
        aoticache_verdict *verdict = aoticache_known_kernel_verdict(known, call->miss.elements);
        if (run_verdict(call, verdict)) {
            aoticache_holder_add_alias(call->holder, call->packed, verdict);
            return true;
        }
        if (!atomic_load(&known->gone))
            return false;
    }
    return false;
}

/* ---- the state of a miss ---- */

/*
 * The budget for background compiles. A number that changes with every call (the step size of an optimizer) requires another
 * kernel each time, and each compile takes seconds. So the first few different calls of an operator are compiled immediately,
 * and later ones only after two requests, four requests, ...
 */
#define COMPILED_AT_ONCE 8
#define MOST_ASKS_LOG2 10

static uint32_t asks_needed(uint32_t earlier)
{
    uint32_t steps = earlier / COMPILED_AT_ONCE;
    return UINT32_C(1) << (steps < MOST_ASKS_LOG2 ? steps : MOST_ASKS_LOG2);
}

/* Finds or creates the state of this miss. NULL: no memory. The caller holds holder->lock. */
static aoticache_miss_state *miss_state(aoticache_holder *holder, const aoticache_packed *packed)
{
    aoticache_table_entry *entry = aoticache_table_find(&holder->misses, packed);
    if (entry != NULL)
        return entry->own.detail;
    aoticache_miss_state *state = calloc(1, sizeof *state);
    if (state == NULL || aoticache_table_insert(&holder->misses, packed, NULL, state) == NULL) {
        free(state);
        return NULL;
    }
    state->next = holder->miss_states;
    state->needed = asks_needed(holder->miss_count++);
    holder->miss_states = state;
    return state;
}

/* ---- the policy ---- */

/*
 * Returns whether to compile a dynamic library. shapes: of the dynamic state, including this one. An operator that takes its
 * numbers from tensors belongs to an optimizer: it is called for all parameters of a model in sequence, and one library's code
 * stays in the processor's caches.
 */
static bool wants_dynamic(const aoticache_holder *holder, const aoticache_miss_request *miss, uint32_t shapes)
{
    const aoticache_context *context = holder->context;
    const aoticache_dynamic_state *state = miss->dynamic_state;
    if (state == NULL || state->not_dynamic || !aoticache_hook_is_dynamic(context->hook))
        return false;
    return holder->dynamic == AOTICACHE_DYNAMIC_ALWAYS ||
           (holder->dynamic == AOTICACHE_DYNAMIC_AFTER && (shapes > context->dynamic_after || miss->substituted != 0));
}

/* The text of the request begins with the operator. */
static void log_miss(const slow_call *call)
{
    const aoticache_context *context = call->holder->context;
    char request[512];
    if (context->logger.log == NULL)
        return;
    aoticache_request_format(call->miss.exact, request, sizeof request);
    const char *answer = "nothing is compiled";
    if (context->hook != NULL && context->miss == AOTICACHE_MISS_BACKGROUND)
        answer = "it is compiled in the background, unless the cache has it";
    else if (context->hook != NULL && context->miss == AOTICACHE_MISS_WAIT)
        answer = "the call waits for a compile, unless the cache has it";
    aoticache_log(&context->logger, AOTICACHE_LOG_INFO, "%s: miss: no kernel is known; %s", request, answer);
}

/* Counts a miss; also logs and records the request and counts its shape, if this is its first miss. */
static void enter_miss(slow_call *call)
{
    aoticache_holder *holder = call->holder;
    aoticache_miss_request *miss = &call->miss;
    bool is_new = true;
    pthread_mutex_lock(&holder->lock);
    miss->miss_state = miss_state(holder, call->packed);
    if (miss->miss_state != NULL) {
        is_new = !miss->miss_state->entered;
        miss->miss_state->entered = true;
    }
    if (is_new && miss->dynamic_state != NULL)
        miss->dynamic_state->shapes++;
    miss->prefer_dynamic = holder->context->hook != NULL && miss->dynamic_state != NULL &&
                           wants_dynamic(holder, miss, miss->dynamic_state->shapes);
    pthread_mutex_unlock(&holder->lock);
    atomic_fetch_add_explicit(&holder->misses_count, 1, memory_order_relaxed);
    if (is_new && holder->context->recorder != NULL)
        aoticache_recorder_add(holder->context->recorder, miss->exact);
    if (is_new)
        log_miss(call);
    if (atomic_fetch_add_explicit(&holder->context->misses_until_flush, 1, memory_order_relaxed) % FLUSH_EVERY == 0)
        aoticache_holder_flush(holder);
}

/*
 * Looks in the cache if nothing may be compiled. The cache counts a miss, and may have an entry that the list of the index did
 * not contain.
 */
static void lookup_in_cache(slow_call *call)
{
    aoticache_artifact *artifact = NULL;
    aoticache_known_kernel *known = NULL;
    aoticache_holder *holder = call->holder;
    call->status = aoticache_cache_lookup(holder->context->cache, call->miss.exact, NULL, &artifact, &call->error);
    call->is_counted = call->status == AOTICACHE_OK;
    if (call->status == AOTICACHE_NOT_FOUND)
        aoticache_error_set(&call->error, call->status, "not in the cache, and the context does not compile");
    if (call->status == AOTICACHE_OK)
        call->status = aoticache_holder_adopt(holder, &call->miss, artifact, &known, &call->error);
    aoticache_artifact_unref(artifact);
    if (call->status != AOTICACHE_OK) {
        aoticache_holder_note_failure(holder, call->miss.miss_state, call->status, call->error.message);
        return;
    }
    aoticache_log(&holder->context->logger, AOTICACHE_LOG_DEBUG, "%s: hit: found in the cache", holder->op);
    load_and_run(call, aoticache_known_kernel_verdict(known, call->miss.elements), true);
}

static void compile_later(slow_call *call)
{
    aoticache_miss_state *state = call->miss.miss_state;
    call->status = aoticache_error_set(&call->error, AOTICACHE_NOT_FOUND, "the compile is running");
    int self = (int)getpid(), queued = state != NULL ? atomic_load(&state->queued) : self;
    if (queued == self || !atomic_compare_exchange_strong(&state->queued, &queued, self))
        return;
    if (aoticache_queue_add(call->holder, &call->miss)) {
        atomic_fetch_add_explicit(&call->holder->queued, 1, memory_order_relaxed);
        return;
    }
    atomic_fetch_add_explicit(&call->holder->dropped, 1, memory_order_relaxed);
    atomic_store(&state->queued, 0);
}

static void compile_now(slow_call *call)
{
    aoticache_known_kernel *known = NULL;
    call->status = aoticache_holder_compile(call->holder, &call->miss, &known, &call->error);
    if (call->status != AOTICACHE_OK || call->prepares)
        return;
    aoticache_verdict *verdict = aoticache_known_kernel_verdict(known, call->miss.elements);
    if (load_and_run(call, verdict, false) && known->check != NULL)
        aoticache_holder_add_alias(call->holder, call->packed, verdict);
}

/* Returns true for a kernel that a collection removed because the fallback is faster: it is not compiled again. */
static bool lost_trial(slow_call *call)
{
    if (!aoticache_holder_was_slower(call->holder, call->miss.exact))
        return false;
    call->status = aoticache_error_set(&call->error, AOTICACHE_UNSUPPORTED,
                                       "the kernel that was compiled for this call was slower than the fallback");
    aoticache_holder_note_failure(call->holder, call->miss.miss_state, call->status, call->error.message);
    return true;
}

/* Returns whether the budget leaves the call to the fallback, and counts the request. Dynamic libraries are always compiled. */
static bool is_deferred(slow_call *call)
{
    aoticache_holder *holder = call->holder;
    const aoticache_dynamic_state *dynamic = call->miss.dynamic_state;
    if (holder->context->miss != AOTICACHE_MISS_BACKGROUND || call->miss.substituted != 0)
        return false;
    uint32_t asked = 1, needed = 1;
    pthread_mutex_lock(&holder->lock);
    aoticache_miss_state *state = miss_state(holder, call->packed);
    if (state != NULL) {
        needed = state->needed;
        asked = state->asked < needed ? ++state->asked : needed;
    }
    if (dynamic != NULL && wants_dynamic(holder, &call->miss, dynamic->shapes + (state != NULL && !state->entered)))
        needed = asked;
    pthread_mutex_unlock(&holder->lock);
    if (asked >= needed)
        return false;
    call->status = aoticache_error_set(
        &call->error, AOTICACHE_NOT_FOUND,
        "requested %u times; will be compiled after %u requests, because this operator already has many kernels", asked,
        needed);
    if (call->timed != NULL)
        call->timed->is_deferred = true;
    return true;
}

static void handle_miss(slow_call *call)
{
    const aoticache_context *context = call->holder->context;
    bool compiles = context->hook != NULL && context->miss != AOTICACHE_MISS_NEVER;
    if (compiles && aoticache_numbers_note(call->holder, arguments_of(call->holder, call->stack)) &&
        context->miss == AOTICACHE_MISS_BACKGROUND) {
        call->status = aoticache_error_set(&call->error, AOTICACHE_NOT_FOUND, "one of its numbers keeps changing");
        return;
    }
    if ((call->prepares && !compiles) || (compiles && is_deferred(call)))
        return;
    if (compiles && call->ret_compiles != NULL) {
        *call->ret_compiles = true;
        return;
    }
    enter_miss(call);
    if (lost_trial(call))
        return;
    if (!compiles)
        lookup_in_cache(call);
    else if (context->miss == AOTICACHE_MISS_BACKGROUND)
        compile_later(call);
    else
        compile_now(call);
}

/* ---- the call ---- */

static bool runs_elsewhere(const aoticache_holder *holder, const aoticache_tensor_view *view)
{
    /* A number on the CPU may be combined with tensors of any device, as in PyTorch. */
    if (view == NULL || (view->ndim == 0 && view->device.type == AOTICACHE_DEVICE_TYPE_CPU))
        return false;
    return view->device.type != holder->device.type ||
           (view->device.type != AOTICACHE_DEVICE_TYPE_CPU && holder->device.index >= 0 &&
            view->device.index != holder->device.index);
}

static bool has_foreign_tensor(const aoticache_holder *holder, const aoticache_value *arguments)
{
    for (size_t i = 0; i < holder->num_arguments; i++) {
        const aoticache_value *value = &arguments[i];
        if (value->kind == AOTICACHE_VALUE_TENSOR && runs_elsewhere(holder, value->as.tensor))
            return true;
        for (uint32_t k = 0; value->kind == AOTICACHE_VALUE_TENSOR_LIST && k < value->count; k++)
            if (runs_elsewhere(holder, value->as.tensors[k]))
                return true;
    }
    return false;
}

/* Makes the requests of the call, and finds the state of the dynamic one. */
static bool make_miss_request(slow_call *call)
{
    aoticache_holder *holder = call->holder;
    call->status = aoticache_holder_make_miss_request(holder, arguments_of(holder, call->stack), call->packed,
                                                      &call->miss, &call->error);
    if (call->status != AOTICACHE_OK)
        return false;
    if (call->miss.dynamic != NULL) {
        pthread_mutex_lock(&holder->lock);
        call->miss.dynamic_state = aoticache_holder_dynamic_state(holder, call->miss.dynamic);
        pthread_mutex_unlock(&holder->lock);
    }
    return true;
}

/* Restores the numbers, for the fallback. */
static void take_back(slow_call *call)
{
    if (call->timed->substituted != NULL)
        aoticache_numbers_take_back(call->timed->substituted);
}

static aoticache_status fall_back_for_failure(slow_call *call, uint64_t key_set, aoticache_error *ret_error)
{
    aoticache_holder *holder = call->holder;
    bool failed = call->status != AOTICACHE_NOT_FOUND && call->status != AOTICACHE_UNSUPPORTED;
    if (call->status == AOTICACHE_NO_MEMORY || (failed && holder->context->fail_calls))
        return aoticache_error_set(ret_error, call->status, "%s", call->error.message);
    take_back(call);
    return aoticache_holder_fall_back(holder, key_set, call->stack, call->status, call->error.message, ret_error);
}

/* Leaves the call to the fallback for a reason that is not a failure. */
static aoticache_status leave_to_fallback(slow_call *call, uint64_t key_set, aoticache_error *ret_error)
{
    if (call->timed->verdict != NULL)
        call->timed->begin_ns = call->holder->context->clock_ns();
    else
        atomic_fetch_add_explicit(&call->holder->left, 1, memory_order_relaxed);
    take_back(call);
    return aoticache_holder_fall_back(call->holder, key_set, call->stack, AOTICACHE_UNSUPPORTED,
                                      "the fallback is faster", ret_error);
}

/* Returns why no kernel can take these arguments, although the schema accepts them; NULL: a kernel can. */
static const char *reason_to_fall_back(const aoticache_holder *holder, const aoticache_value *arguments,
                                       const aoticache_packed *packed)
{
    if (packed == NULL)
        return "kernel libraries do not accept one of its arguments";
    if (packed->requires_grad && !holder->serve_requires_grad)
        return "an argument requires gradients";
    return has_foreign_tensor(holder, arguments) ? "a tensor is on another device" : NULL;
}

aoticache_status aoticache_holder_call_slow_path(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                                 const aoticache_packed *packed, aoticache_timed_call *timed,
                                                 bool *ret_compiles, aoticache_error *ret_error)
{
    slow_call call = {.holder = holder,
                      .stack = stack,
                      .packed = packed,
                      .timed = timed,
                      .ret_compiles = ret_compiles,
                      .status = AOTICACHE_NO_MEMORY,
                      .error = {.message = "out of memory for a thread's state"}};
    const aoticache_value *arguments = arguments_of(holder, stack);
    aoticache_status status = aoticache_holder_check_arguments(holder, arguments, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const char *reason = reason_to_fall_back(holder, arguments, packed);
    if (reason != NULL) {
        take_back(&call);
        return aoticache_holder_fall_back(holder, key_set, stack, AOTICACHE_UNSUPPORTED, reason, ret_error);
    }
    if (!run_from_table(&call) && !must_wait(&call) && make_miss_request(&call) && !run_dynamic(&call)) {
        /* Other processes may have added it: read the new entries of the index, which are few. */
        aoticache_holder_fill(holder);
        if (!run_from_table(&call) && !run_dynamic(&call))
            handle_miss(&call);
    }
    aoticache_miss_request_free(&call.miss);
    aoticache_epoch_reclaim();
    if (ret_compiles != NULL && *ret_compiles)
        return AOTICACHE_NOT_FOUND;
    if (call.is_left)
        return leave_to_fallback(&call, key_set, ret_error);
    if (!call.ran)
        return fall_back_for_failure(&call, key_set, ret_error);
    if (call.status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, call.status, "%s", call.error.message);
    return AOTICACHE_OK;
}

static bool is_known(const slow_call *call)
{
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    if (slot == NULL)
        return true; /* no kernel can serve it */
    bool known = aoticache_table_find(&call->holder->table, call->packed) != NULL;
    aoticache_epoch_leave(slot);
    return known;
}

void aoticache_holder_prepare(aoticache_holder *holder, aoticache_stack *stack, const aoticache_packed *packed)
{
    slow_call call = {.holder = holder, .stack = stack, .packed = packed, .prepares = true};
    const aoticache_value *arguments = arguments_of(holder, stack);
    atomic_fetch_add_explicit(&holder->fallbacks, 1, memory_order_relaxed);
    if (aoticache_holder_check_arguments(holder, arguments, NULL) != AOTICACHE_OK ||
        reason_to_fall_back(holder, arguments, packed) != NULL)
        return;
    if (!is_known(&call) && !must_wait(&call) && make_miss_request(&call))
        handle_miss(&call);
    aoticache_miss_request_free(&call.miss);
    aoticache_epoch_reclaim();
}
