/*
 * Threads call operators for several keys while others register and remove kernels, fallbacks, definitions and an
 * observer, and dump and check. Every call must reach a kernel that was registered at some moment during it; a kernel
 * must not run after its end, and every one must end exactly once. Meant for ThreadSanitizer; also run without it.
 *
 * Argument: seconds (default 5).
 */
#include "base/base.h"
#include "eager/dispatch/dispatcher.h"
#include "eager/dispatch/questions.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { OPERATORS = 4, CALLERS = 4, REGISTRARS = 2, MAX_RECORDS = 300000, BATCH = 4 };

/* One registered kernel; the record stays until the end of the program, so that its state can be checked. */
typedef struct record {
    struct record *next;
    unsigned operator_number;
    atomic_ulong gone_at; /* the clock when removing it had returned; 0: it had not */
    atomic_uint ends;
    unsigned long plain; /* written at the end without synchronisation: a kernel that still runs would race */
} record;

static aoticache_dispatcher *dispatcher;
static aoticache_operator *operators[OPERATORS], *flaky;
static record base_records[OPERATORS];
static atomic_ulong now = 1, calls, reached, missed, failures, registrations, ends, observed;
static _Atomic(record *) all_records;
static atomic_bool stop;
static __thread const record *reached_record;

static void complain(const char *what, const char *detail)
{
    fprintf(stderr, "not ok - %s: %s\n", what, detail);
    atomic_fetch_add(&failures, 1);
}

/* ---- kernels ---- */

static aoticache_status kernel(void *user, const aoticache_operator *op, aoticache_key_set keys, aoticache_stack *stack,
                               aoticache_error *ret_error)
{
    const record *mine = user;
    (void)keys, (void)ret_error;
    if (atomic_load(&mine->ends) != 0 || mine->plain != 42)
        complain("kernel", "runs after its end");
    if (op != operators[mine->operator_number])
        complain("kernel", "runs for another operator");
    reached_record = mine;
    stack->count -= 2;
    if (atomic_load(&mine->ends) != 0 || mine->plain != 42)
        complain("kernel", "ended while it ran");
    return AOTICACHE_OK;
}

static void end_of_kernel(void *user)
{
    record *mine = user;
    mine->plain = 0;
    if (atomic_fetch_add(&mine->ends, 1) != 0)
        complain("kernel", "ended twice");
    atomic_fetch_add(&ends, 1);
}

static aoticache_boxed_kernel boxed(record *mine, unsigned operator_number)
{
    aoticache_boxed_kernel made = AOTICACHE_BOXED_KERNEL_INIT;
    mine->operator_number = operator_number;
    mine->plain = 42;
    made.call = kernel;
    made.user = mine;
    made.release = end_of_kernel;
    return made;
}

/* ---- calling ---- */

/* Calls. held: NULL, or the kernel to call whatever the key is. */
static aoticache_status call(aoticache_operator *op, aoticache_dispatch_key key, const aoticache_computed_kernel *held,
                             aoticache_error *error)
{
    const int64_t one[] = {1};
    float data[1] = {0};
    aoticache_tensor_view view = {.data = data,
                                  .dtype = AOTICACHE_DTYPE_FLOAT32,
                                  .ndim = 1,
                                  .numel = 1,
                                  .sizes = one,
                                  .strides = one,
                                  .dispatch_key_set = aoticache_key_set_of(key)};
    aoticache_value values[2] = {{.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &view},
                                 {.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &view}};
    aoticache_stack stack = {.values = values, .count = 2, .capacity = 2};
    reached_record = NULL;
    return held != NULL ? aoticache_computed_kernel_call(held, view.dispatch_key_set, &stack, error)
                        : aoticache_operator_call(op, &stack, error);
}

/* Calls once. CPU has a permanent kernel; others are registered and removed. */
static void call_once(unsigned number, aoticache_dispatch_key key, const aoticache_computed_kernel *held)
{
    aoticache_error error = {.message = ""};
    unsigned long begin = atomic_load(&now);
    aoticache_status status = call(operators[number], key, held, &error);
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    if (status == AOTICACHE_NOT_FOUND && (key != AOTICACHE_DISPATCH_KEY_CPU || held != NULL)) {
        atomic_fetch_add_explicit(&missed, 1, memory_order_relaxed);
        return;
    }
    if (status != AOTICACHE_OK || reached_record == NULL) {
        complain("call", error.message);
        return;
    }
    unsigned long gone = atomic_load(&reached_record->gone_at);
    if (gone != 0 && gone < begin)
        complain("call", "reached a kernel that had been taken back before it began");
    atomic_fetch_add_explicit(&reached, 1, memory_order_relaxed);
}

/* Calls a kernel that is held for some calls, during which it may be removed. */
static void call_held(unsigned number, aoticache_dispatch_key key)
{
    aoticache_computed_kernel *held = NULL;
    aoticache_error error;
    if (aoticache_operator_get_computed_kernel(operators[number], key, &held, &error) != AOTICACHE_OK)
        return;
    for (int i = 0; i < 8; i++)
        call_once(number, key, held);
    aoticache_computed_kernel_free(held);
}

static void *caller(void *seed_of_thread)
{
    static const aoticache_dispatch_key keys[] = {AOTICACHE_DISPATCH_KEY_CPU, AOTICACHE_DISPATCH_KEY_CUDA,
                                                  AOTICACHE_DISPATCH_KEY_CPU, AOTICACHE_DISPATCH_KEY_XLA};
    unsigned seed = *(unsigned *)seed_of_thread;
    aoticache_error error;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        int drawn = rand_r(&seed);
        call_once((unsigned)drawn % OPERATORS, keys[(unsigned)drawn / OPERATORS % 4], NULL);
        if (drawn % 16 == 0)
            call_held((unsigned)drawn / 16 % OPERATORS, keys[(unsigned)drawn / 64 % 4]);
        aoticache_status status = call(flaky, AOTICACHE_DISPATCH_KEY_CPU, NULL, &error);
        if (status != AOTICACHE_NOT_FOUND)
            complain("call", "of an operator without kernels succeeds");
    }
    return NULL;
}

/* ---- registering ---- */

static aoticache_oplib *open_oplib(aoticache_oplib_kind kind, const char *namespace_name)
{
    aoticache_oplib *oplib = NULL;
    aoticache_error error;
    if (aoticache_oplib_create(dispatcher, kind, namespace_name, NULL, __FILE__, __LINE__, &oplib, &error) !=
        AOTICACHE_OK) {
        complain("oplib", error.message);
        exit(1);
    }
    return oplib;
}

static record *new_record(void)
{
    record *made = calloc(1, sizeof *made);
    if (made == NULL)
        exit(1);
    made->next = atomic_load(&all_records);
    while (!atomic_compare_exchange_weak(&all_records, &made->next, made))
        continue;
    return made;
}

/* Registers some kernels in one oplib, which is freed after a while. */
static void register_some(unsigned *seed)
{
    static const char *const keys[] = {"CPU", "CUDA", "CompositeExplicitAutograd", "XLA", "CompositeImplicitAutograd"};
    char name[8];
    record *mine[BATCH];
    aoticache_error error;
    aoticache_oplib *oplib = open_oplib(AOTICACHE_OPLIB_IMPL, "race");
    for (int i = 0; i < BATCH; i++) {
        unsigned number = (unsigned)rand_r(seed) % OPERATORS;
        mine[i] = new_record();
        aoticache_boxed_kernel made = boxed(mine[i], number);
        snprintf(name, sizeof name, "f%u", number % OPERATORS);
        if (aoticache_oplib_impl(oplib, name, keys[rand_r(seed) % 5], &made, &error) != AOTICACHE_OK)
            complain("impl", error.message);
        atomic_fetch_add(&registrations, 1);
    }
    if (rand_r(seed) % 4 == 0)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    aoticache_oplib_free(oplib);
    unsigned long gone = atomic_fetch_add(&now, 1);
    for (int i = 0; i < BATCH; i++)
        atomic_store(&mine[i]->gone_at, gone);
}

static void *registrar(void *seed_of_thread)
{
    unsigned seed = *(unsigned *)seed_of_thread;
    while (!atomic_load_explicit(&stop, memory_order_relaxed) && atomic_load(&registrations) < MAX_RECORDS)
        register_some(&seed);
    return NULL;
}

static void *before_call(void *user, const aoticache_operator *op, aoticache_key_set keys, const aoticache_stack *stack)
{
    (void)user, (void)keys, (void)stack;
    return (void *)(uintptr_t)op;
}

static void after_call(void *user, void *token, const aoticache_operator *op, aoticache_status status)
{
    (void)user, (void)status;
    if (token != op)
        complain("observer", "is given another call's token");
    atomic_fetch_add_explicit(&observed, 1, memory_order_relaxed);
}

/* Registers and removes everything except kernels. */
static void *meddler(void *unused)
{
    const aoticache_call_observer observer = {.before = before_call, .after = after_call};
    const aoticache_boxed_kernel fallthrough = AOTICACHE_BOXED_KERNEL_INIT;
    aoticache_error error;
    (void)unused;
    for (unsigned round = 0; !atomic_load_explicit(&stop, memory_order_relaxed); round++) {
        char *text = NULL;
        aoticache_oplib *fragment = open_oplib(AOTICACHE_OPLIB_FRAGMENT, "race"),
                        *any = open_oplib(AOTICACHE_OPLIB_IMPL, "_");
        if (aoticache_oplib_def(fragment, "flaky(Tensor a, Tensor b) -> ()", AOTICACHE_ALIAS_DEFAULT, &error) !=
                AOTICACHE_OK ||
            aoticache_oplib_fallback(any, "Tracer", &fallthrough, &error) != AOTICACHE_OK ||
            aoticache_dispatcher_observe(dispatcher, round % 2 == 0 ? &observer : NULL, &error) != AOTICACHE_OK ||
            aoticache_operator_dump(operators[round % OPERATORS], &text, &error) != AOTICACHE_OK ||
            aoticache_dispatcher_check(dispatcher, &error) != AOTICACHE_OK)
            complain("meddler", error.message);
        free(text);
        aoticache_oplib_free(fragment);
        aoticache_oplib_free(any);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return NULL;
}

/* ---- the program ---- */

static aoticache_operator *take(const char *name)
{
    aoticache_operator *op = NULL;
    aoticache_error error;
    if (aoticache_dispatcher_find(dispatcher, name, &op, &error) != AOTICACHE_OK)
        complain("find", error.message);
    return op;
}

static aoticache_oplib *define(void)
{
    char text[64], name[16];
    aoticache_error error;
    aoticache_oplib *oplib = open_oplib(AOTICACHE_OPLIB_DEF, "race");
    for (unsigned i = 0; i < OPERATORS; i++) {
        aoticache_boxed_kernel made = boxed(&base_records[i], i);
        snprintf(text, sizeof text, "f%u(Tensor a, Tensor b) -> ()", i % OPERATORS);
        snprintf(name, sizeof name, "race::f%u", i % OPERATORS);
        if (aoticache_oplib_def(oplib, text, AOTICACHE_ALIAS_DEFAULT, &error) != AOTICACHE_OK ||
            aoticache_oplib_impl(oplib, name, "CPU", &made, &error) != AOTICACHE_OK)
            complain("def", error.message);
        operators[i] = take(name);
    }
    aoticache_oplib *fragment = open_oplib(AOTICACHE_OPLIB_FRAGMENT, "race");
    aoticache_oplib_def(fragment, "flaky(Tensor a, Tensor b) -> ()", AOTICACHE_ALIAS_DEFAULT, &error);
    flaky = take("race::flaky");
    aoticache_oplib_free(fragment);
    return oplib;
}

static void check_ends(void)
{
    unsigned long wrong = 0;
    for (record *one = atomic_load(&all_records), *next; one != NULL; one = next) {
        next = one->next;
        wrong += atomic_load(&one->ends) != 1;
        free(one);
    }
    for (unsigned i = 0; i < OPERATORS; i++)
        wrong += atomic_load(&base_records[i].ends) != 1;
    if (wrong > 0)
        complain("kernels", "some did not end exactly once");
}

int main(int argc, char **argv)
{
    int seconds = argc > 1 ? atoi(argv[1]) : 5;
    pthread_t threads[CALLERS + REGISTRARS + 1];
    unsigned seeds[CALLERS + REGISTRARS];
    aoticache_error error;
    if (aoticache_dispatcher_create(&dispatcher, &error) != AOTICACHE_OK)
        return 1;
    aoticache_oplib *any = open_oplib(AOTICACHE_OPLIB_IMPL, "_"), *oplib = define();
    if (aoticache_oplib_fall_through_usual(any, &error) != AOTICACHE_OK)
        complain("fallbacks", error.message);
    for (unsigned i = 0; i < CALLERS + REGISTRARS; i++) {
        seeds[i] = i + 1;
        pthread_create(&threads[i], NULL, i < CALLERS ? caller : registrar, &seeds[i]);
    }
    pthread_create(&threads[CALLERS + REGISTRARS], NULL, meddler, NULL);
    nanosleep(&(struct timespec){.tv_sec = seconds}, NULL);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < CALLERS + REGISTRARS + 1; i++)
        pthread_join(threads[i], NULL);
    aoticache_oplib_free(oplib);
    aoticache_oplib_free(any);
    aoticache_dispatcher_free(dispatcher);
    check_ends();
    printf("%lu calls, %lu reached, %lu missed, %lu observed, %lu registrations, %lu ends, %lu failures\n",
           atomic_load(&calls), atomic_load(&reached), atomic_load(&missed), atomic_load(&observed),
           atomic_load(&registrations), atomic_load(&ends), atomic_load(&failures));
    return atomic_load(&failures) == 0 && atomic_load(&reached) > 0 ? 0 : 1;
}
