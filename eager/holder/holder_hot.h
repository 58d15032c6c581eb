/*
 * eager/holder/holder_hot: a hit, from its arguments to its results: packs and hashes the metadata, probes the table, runs the
 * runner. The holder and the bindings share it, inline, because every function call saved on this path is measurable. It serves
 * arguments that are tensors and numbers; aoticache_holder_call_ready() serves the rest.
 *
 * Private to holder/ and torch/.
 */
#ifndef AOTICACHE_EAGER_HOLDER_HOT_H
#define AOTICACHE_EAGER_HOLDER_HOT_H

#include "eager/dispatch/dispatch_key_list.h"
#include "eager/holder/holder_internal.h"
#include "loader/runner/runner_hot.h"

#include <string.h>

#define XXH_INLINE_ALL
#define XXH_NO_STREAM
#include <xxhash.h>

/* ---- packing ---- */

/* Each function writes at `at` and returns the position after it; NULL if it does not fit, or if no kernel takes the value. */

/* Returns a head word: kind in the lowest byte, the rest depends on the kind. */
static inline uint64_t aoticache_pack_head(int32_t kind, uint64_t rest)
{
    return (uint64_t)(uint8_t)kind | rest << 8;
}

static inline uint64_t aoticache_pack_device_bits(aoticache_device device)
{
    /* "cpu" and "cpu:0" are the same device. */
    int32_t index = device.type == AOTICACHE_DEVICE_TYPE_CPU ? -1 : device.index;
    return (uint64_t)(uint8_t)device.type | (uint64_t)(uint16_t)(index + 1) << 8;
}

/* Returns the bits of a double; every NaN has the same ones, as in a request. */
static inline uint64_t aoticache_pack_double_bits(double value)
{
    uint64_t bits;
    if (value != value)
        return UINT64_C(0x7ff8000000000000);
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Returns whether the strides follow from the sizes: then they are not written. */
static inline bool aoticache_pack_is_contiguous(const int64_t *sizes, const int64_t *strides, size_t ndim)
{
    uint64_t expected = 1;
    for (size_t i = ndim; i-- > 0;) {
        if ((uint64_t)strides[i] != expected)
            return false;
        expected *= sizes[i] > 0 ? (uint64_t)sizes[i] : 1;
    }
    return true;
}

/* Keys of tensors whose memory does not hold their values: a compiled kernel reads the memory. */
#define AOTICACHE_PACK_KEY_BIT(functionality) (UINT64_C(1) << (AOTICACHE_DISPATCH_BACKENDS - 1 + (functionality)))
#define AOTICACHE_PACK_LAZY_KEYS                                \
    (AOTICACHE_PACK_KEY_BIT(AOTICACHE_DISPATCH_KEY_Conjugate) | \
     AOTICACHE_PACK_KEY_BIT(AOTICACHE_DISPATCH_KEY_Negative) |  \
     AOTICACHE_PACK_KEY_BIT(AOTICACHE_DISPATCH_KEY_ZeroTensor))

static inline uint64_t *aoticache_pack_tensor(const aoticache_tensor_view *view, uint64_t *at, const uint64_t *end)
{
    size_t ndim = (size_t)view->ndim; /* a negative one is too large */
    if (view->layout != AOTICACHE_LAYOUT_STRIDED || ndim > AOTICACHE_MAX_DIMS || (size_t)(end - at) < 2 + 2 * ndim ||
        ((view->sizes == NULL || view->strides == NULL) && ndim > 0) ||
        ((uint32_t)view->dtype | (uint32_t)view->device.type) > UINT8_MAX ||
        (view->dispatch_key_set & AOTICACHE_PACK_LAZY_KEYS) != 0)
        return NULL;
    bool contiguous = aoticache_pack_is_contiguous(view->sizes, view->strides, ndim);
    uint64_t rest = (uint64_t)ndim | (uint64_t)(uint8_t)view->dtype << 8 | (uint64_t)view->requires_grad << 16 |
                    (uint64_t)contiguous << 17 | aoticache_pack_device_bits(view->device) << 24;
    at[0] = aoticache_pack_head(AOTICACHE_VALUE_TENSOR, rest);
    at[1] = view->dispatch_key_set;
    at += 2;
    for (size_t i = 0; i < ndim; i++)
        at[i] = (uint64_t)view->sizes[i];
    at += ndim;
    if (contiguous)
        return at;
    for (size_t i = 0; i < ndim; i++)
        at[i] = (uint64_t)view->strides[i];
    return at + ndim;
}

/* Packs a number, a bool or an absent value; there is space for three words. */
static inline uint64_t *aoticache_pack_number(const aoticache_value *value, uint64_t *at)
{
    at[0] = aoticache_pack_head(value->kind, 0);
    switch (value->kind) {
    case AOTICACHE_VALUE_NONE:
        return at + 1;
    case AOTICACHE_VALUE_BOOL:
        at[0] = aoticache_pack_head(value->kind, value->as.bool_value);
        return at + 1;
    case AOTICACHE_VALUE_DEVICE:
        at[0] = aoticache_pack_head(value->kind, aoticache_pack_device_bits(value->as.device));
        return at + 1;
    case AOTICACHE_VALUE_INT:
    case AOTICACHE_VALUE_DTYPE:
    case AOTICACHE_VALUE_LAYOUT:
    case AOTICACHE_VALUE_MEMORY_FORMAT:
        at[1] = (uint64_t)value->as.int_value;
        return at + 2;
    case AOTICACHE_VALUE_DOUBLE:
        at[1] = aoticache_pack_double_bits(value->as.double_value);
        return at + 2;
    case AOTICACHE_VALUE_COMPLEX:
        at[1] = aoticache_pack_double_bits(value->as.complex_value[0]);
        at[2] = aoticache_pack_double_bits(value->as.complex_value[1]);
        return at + 3;
    default:
        return NULL;
    }
}

/* Finishes the words, which end at `at`. */
static inline void aoticache_pack_finish(aoticache_packed *packed, const uint64_t *at)
{
    packed->count = (uint32_t)(at - packed->words);
    packed->hash = XXH3_64bits(packed->words, packed->count * sizeof *at);
}

/*
 * Packs as aoticache_pack() does, for arguments that are tensors and numbers only. Returns false also if there are other
 * arguments; then call aoticache_pack().
 */
static inline bool aoticache_pack_plainly(const aoticache_value *arguments, size_t count, aoticache_packed *ret_packed)
{
    uint64_t *at = ret_packed->words;
    const uint64_t *end = at + AOTICACHE_PACK_MAX_WORDS;
    ret_packed->requires_grad = false;
    for (size_t i = 0; i < count; i++) {
        const aoticache_value *value = &arguments[i];
        if (value->kind == AOTICACHE_VALUE_TENSOR) {
            if (value->as.tensor == NULL)
                return false;
            ret_packed->requires_grad |= value->as.tensor->requires_grad;
            at = aoticache_pack_tensor(value->as.tensor, at, end);
        } else {
            at = end - at < 3 ? NULL : aoticache_pack_number(value, at);
        }
        if (at == NULL)
            return false;
    }
    aoticache_pack_finish(ret_packed, at);
    return true;
}

/* ---- probing ---- */

/* Bytes of a cache line of the processor, and the approximate number of lines of a small kernel's code. */
#define AOTICACHE_HOT_LINE 64
#define AOTICACHE_HOT_CODE_LINES 7

/* Counts one use. Inside an epoch. Number 0 is not counted. Returns the approximate number of this thread's uses. */
static inline uint64_t aoticache_call_counts_note(uint32_t number)
{
    const aoticache_epoch_slot *mine = aoticache_epoch_mine;
    if (__builtin_expect(number >= mine->uses_count, 0)) {
        aoticache_call_counts_note_slow_path(number);
        return 1;
    }
    atomic_uint_least64_t *count = &mine->uses[number].count;
    uint64_t uses = atomic_load_explicit(count, memory_order_relaxed) + 1;
    atomic_store_explicit(count, uses, memory_order_relaxed);
    return uses;
}

/*
 * Prefetches what the next call will probably read. Programs call the same kernels in the same order, step after step. With
 * many kernels, or much data in between, the memory that a call reads for its kernel has left the processor's caches: the
 * table's slot and entry, the runner, its code. So each call records what it read in the use of the call before it, and
 * prefetches what followed it last time, while it runs itself. A kernel that is called repeatedly needs none of it. Inside an
 * epoch.
 */
static inline void aoticache_holder_fetch_next(const aoticache_holder *holder, const aoticache_packed *packed,
                                               const aoticache_known_kernel_hot *hot, const aoticache_runner *runner)
{
    aoticache_epoch_slot *mine = aoticache_epoch_mine;
    if (hot->number == mine->last_used || __builtin_expect(hot->number >= mine->uses_count, 0))
        return;
    aoticache_use *before = &mine->uses[mine->last_used], *now = &mine->uses[hot->number];
    if (before->next_known != hot) {
        const aoticache_table_slots *slots = atomic_load(&holder->table.slots);
        before->next_slot = &slots->slot[packed->hash & slots->mask];
        before->next_known = hot;
        before->next_runner = runner;
        before->next_code = aoticache_runner_hot_of(runner)->code;
    }
    mine->last_used = hot->number;
    __builtin_prefetch(now->next_slot);
    __builtin_prefetch(now->next_known);
    /* As integers: the pointers may be NULL, and pointer arithmetic on NULL is undefined. */
    __builtin_prefetch((const void *)((uintptr_t)now->next_known + AOTICACHE_HOT_LINE));
    __builtin_prefetch(now->next_runner);
    for (size_t line = 0; line < AOTICACHE_HOT_CODE_LINES; line++)
        __builtin_prefetch((const void *)((uintptr_t)now->next_code + line * AOTICACHE_HOT_LINE));
}

/* Counts a hit and sets the time of the kernel's last use. Inside an epoch. */
static inline void aoticache_holder_note_use(const aoticache_holder *holder, aoticache_known_kernel_hot *hot)
{
    uint64_t uses = aoticache_call_counts_note(hot->number);
    if (__builtin_expect((uses & (AOTICACHE_VERDICT_LOOKS - 1)) == 0, 0))
        aoticache_verdict_look_again(holder, hot);
    uint64_t tick = atomic_load_explicit(&holder->context->tick, memory_order_relaxed);
    if (atomic_load_explicit(&hot->last_tick, memory_order_relaxed) != tick)
        atomic_store_explicit(&hot->last_tick, tick, memory_order_relaxed);
}

/* Returns the runner that is ready for this metadata, and counts its use; NULL: none is ready. Inside an epoch. */
static inline aoticache_runner *aoticache_holder_find_ready(const aoticache_holder *holder,
                                                            const aoticache_packed *packed)
{
    if (__builtin_expect(packed->requires_grad, 0) && !holder->serve_requires_grad)
        return NULL;
    const aoticache_table_entry *entry = aoticache_table_find(&holder->table, packed);
    if (__builtin_expect(entry == NULL, 0))
        return NULL;
    aoticache_known_kernel_hot *hot = atomic_load(&entry->known);
    aoticache_runner *runner = atomic_load(&hot->runner);
    if (__builtin_expect(runner == NULL, 0))
        return NULL;
    aoticache_holder_note_use(holder, hot);
    aoticache_holder_fetch_next(holder, packed, hot, runner);
    return runner;
}

/*
 * Packs arguments that are tensors and numbers and finds the runner that is ready for them. NULL: none is; then *ret_packed is
 * valid if *ret_packs is true, otherwise call aoticache_pack(). Inside an epoch.
 */
static inline aoticache_runner *aoticache_holder_probe(const aoticache_holder *holder, const aoticache_value *arguments,
                                                       aoticache_packed *ret_packed, bool *ret_packs)
{
    *ret_packs = aoticache_pack_plainly(arguments, holder->num_arguments, ret_packed);
    return __builtin_expect(*ret_packs, 1) ? aoticache_holder_find_ready(holder, ret_packed) : NULL;
}

/* ---- running ---- */

/* A call with at most this many input and output tensors each runs inline; with more, the call itself dominates the cost. */
#define AOTICACHE_HOT_MAX_TENSORS 8

/*
 * Runs a library on the arguments on top of the stack, which are tensors and numbers, and replaces them with the results.
 * False: there are too many tensors, one has no handle, or the counts do not fit the library, and nothing was run.
 *
 * base: where the arguments begin on the stack.
 */
static inline bool aoticache_holder_run_hot(const aoticache_holder *holder, aoticache_runner *runner,
                                            aoticache_stack *stack, size_t base, aoticache_status *ret_status,
                                            aoticache_error *ret_error)
{
    AtenTensorHandle inputs[AOTICACHE_HOT_MAX_TENSORS], outputs[AOTICACHE_HOT_MAX_TENSORS];
    size_t used = 0, num_outputs = aoticache_runner_hot_of(runner)->num_outputs;
    for (size_t i = base; i < stack->count; i++) {
        if (stack->values[i].kind != AOTICACHE_VALUE_TENSOR)
            continue;
        if (__builtin_expect(used == AOTICACHE_HOT_MAX_TENSORS || stack->values[i].as.tensor->handle == NULL, 0))
            return false;
        inputs[used++] = stack->values[i].as.tensor->handle;
    }
    if (__builtin_expect(used != aoticache_runner_hot_of(runner)->num_inputs ||
                             num_outputs > AOTICACHE_HOT_MAX_TENSORS || base + num_outputs > stack->capacity ||
                             holder->returns != AOTICACHE_RETURNS_TENSORS,
                         0))
        return false;
    *ret_status = aoticache_runner_run_checked(runner, inputs, outputs, ret_error);
    if (__builtin_expect(*ret_status != AOTICACHE_OK, 0))
        return true;
    for (size_t i = 0; i < num_outputs; i++) {
        stack->values[base + i].kind = AOTICACHE_VALUE_OUTPUT;
        stack->values[base + i].as.output = outputs[i];
    }
    stack->count = base + num_outputs;
    return true;
}

/*
 * Calls the kernel that is ready for arguments that are tensors and numbers; *ret_status is its status, which
 * aoticache_holder_conclude() turns into the call's. False: none is ready; *ret_packed is valid if *ret_packs is true.
 * Inside an epoch, with all arguments on the stack from `base` on.
 */
static inline bool aoticache_holder_call_hot(aoticache_holder *holder, aoticache_stack *stack, size_t base,
                                             aoticache_packed *ret_packed, bool *ret_packs,
                                             aoticache_status *ret_status, aoticache_error *ret_error)
{
    aoticache_runner *runner = aoticache_holder_probe(holder, stack->values + base, ret_packed, ret_packs);
    if (__builtin_expect(runner == NULL, 0))
        return false;
    if (__builtin_expect(!aoticache_holder_run_hot(holder, runner, stack, base, ret_status, ret_error), 0))
        *ret_status = aoticache_holder_run(holder, runner, stack, ret_error);
    return true;
}

#endif
