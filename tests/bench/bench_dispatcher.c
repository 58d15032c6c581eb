/*
 * Compares the dispatcher with PyTorch's, in one process: a boxed call of an empty kernel with two tensors, key set
 * included, with 10 and with 10 000 operators; and the registration of 10 000. PyTorch's side is compiled here from its
 * headers; without them nothing is compared. Both kernels pop their arguments, and each call pushes them: in PyTorch
 * that counts references. A second pair of numbers leaves them on the stack, so that only the call is measured.
 *
 * Prints one JSON object per line (scripts/bench collects them).
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "eager/dispatch/dispatcher.h"
#include "tests/bench/bench.h"

enum { MOST_ROUNDS = 15, CALLS = 400000, FEW = 10, MANY = 10000 };

/* A call must not cost more than PyTorch's, nor a registration. */
#define PEER_LIMIT 1
/* A call uses one operator, however many there are: a seventh is allowed for cache misses. */
#define MANY_LIMIT 1.15

static int rounds = MOST_ROUNDS;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_dispatcher: %s: %s\n", what, why);
    exit(1);
}

/* ---- PyTorch's side ---- */

typedef struct torch_peer {
    double (*register_many)(const char *space, int operators, int leaving);
    double (*call)(int operators, int calls);
    double (*call_leaving)(int operators, int calls);
} torch_peer;

static const char *venv(void)
{
    const char *directory = getenv("VENV");
    return directory != NULL ? directory : "build/venv";
}

static bool compile_peer(const char *directory)
{
    char command[4 * PATH_MAX];
    snprintf(command, sizeof command,
             "torch=$(realpath %s/lib/python3*/site-packages/torch) && c++ -std=c++20 -O2 -w -shared -fPIC "
             "-fvisibility=hidden -I\"$torch/include\" -I\"$torch/include/torch/csrc/api/include\" "
             "tests/bench/peers/torch_boxed_call.cpp -o %s/peer.so "
             "-L\"$torch/lib\" -Wl,-rpath,\"$torch/lib\" -ltorch_cpu -lc10 >/dev/null 2>&1",
             venv(), directory);
    return system(command) == 0;
}

static void find(void *module, const char *name, void *ret_function)
{
    void *symbol = dlsym(module, name);
    if (symbol == NULL)
        fail(name, dlerror());
    memcpy(ret_function, &symbol, sizeof symbol);
}

static torch_peer load_peer(const char *directory)
{
    char path[PATH_MAX];
    torch_peer peer;
    snprintf(path, sizeof path, "%s/peer.so", directory);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (module == NULL)
        fail(path, dlerror());
    find(module, "torch_register", &peer.register_many);
    find(module, "torch_call", &peer.call);
    find(module, "torch_call_leaving", &peer.call_leaving);
    return peer;
}

/* ---- ours ---- */

typedef struct operators {
    aoticache_dispatcher *dispatcher;
    aoticache_oplib *usual, *oplib;
    aoticache_operator *handles[MANY];
    double register_ns;
} operators;

static aoticache_error error;

static void check(aoticache_status status)
{
    if (status != AOTICACHE_OK)
        fail("ours", error.message);
}

static aoticache_status empty_kernel(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                     aoticache_stack *stack, aoticache_error *ret_error)
{
    (void)user, (void)op, (void)keys, (void)ret_error;
    stack->count -= 2;
    return AOTICACHE_OK;
}

static aoticache_status leaving_kernel(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                       aoticache_stack *stack, aoticache_error *ret_error)
{
    (void)user, (void)op, (void)keys, (void)stack, (void)ret_error;
    return AOTICACHE_OK;
}

static void register_many(operators *all, int count, aoticache_boxed_fn call)
{
    static char names[MANY][16], schemas[MANY][64];
    aoticache_boxed_kernel kernel = AOTICACHE_BOXED_KERNEL_INIT;
    kernel.call = call;
    for (int i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "f%d", i);
        snprintf(schemas[i], sizeof schemas[i], "f%d(Tensor a, Tensor b) -> ()", i);
    }
    check(aoticache_dispatcher_create(&all->dispatcher, &error));
    check(aoticache_oplib_create(all->dispatcher, AOTICACHE_OPLIB_IMPL, "_", NULL, __FILE__, __LINE__, &all->usual,
                                 &error));
    check(aoticache_oplib_fall_through_usual(all->usual, &error));
    uint64_t begin = aoticache_monotonic_ns();
    check(aoticache_oplib_create(all->dispatcher, AOTICACHE_OPLIB_DEF, "bench", NULL, __FILE__, __LINE__, &all->oplib,
                                 &error));
    for (int i = 0; i < count; i++) {
        check(aoticache_oplib_def(all->oplib, schemas[i], AOTICACHE_ALIAS_DEFAULT, &error));
        check(aoticache_oplib_impl(all->oplib, names[i], "CPU", &kernel, &error));
    }
    all->register_ns = (double)(aoticache_monotonic_ns() - begin);
    for (int i = 0; i < count; i++) {
        char full[32];
        snprintf(full, sizeof full, "bench::f%d", i);
        check(aoticache_dispatcher_find(all->dispatcher, full, &all->handles[i], &error));
    }
}

static void end(operators *all)
{
    aoticache_oplib_free(all->oplib);
    aoticache_oplib_free(all->usual);
    aoticache_dispatcher_free(all->dispatcher);
}

static double call_ours(const operators *all, int count, bool leaving)
{
    static float data[1];
    const int64_t one[] = {1};
    aoticache_tensor_view view = {.data = data,
                                  .dtype = AOTICACHE_DTYPE_FLOAT32,
                                  .ndim = 1,
                                  .numel = 1,
                                  .sizes = one,
                                  .strides = one,
                                  .dispatch_key_set = aoticache_key_set_of(AOTICACHE_DISPATCH_KEY_CPU)};
    aoticache_value values[8];
    aoticache_stack stack = {.values = values, .capacity = 8};
    const aoticache_value tensor = {.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &view};
    int next = 0;
    if (leaving)
        values[stack.count++] = tensor, values[stack.count++] = tensor;
    uint64_t begin = aoticache_monotonic_ns();
    for (int i = 0; i < CALLS; i++) {
        if (!leaving)
            values[stack.count++] = tensor, values[stack.count++] = tensor;
        if (aoticache_operator_call(all->handles[next], &stack, &error) != AOTICACHE_OK)
            fail("call", error.message);
        next = next + 1 == count ? 0 : next + 1;
    }
    return (double)(aoticache_monotonic_ns() - begin) / CALLS;
}

/* ---- measuring ---- */

static int ascending(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;
    return difference < 0 ? -1 : difference > 0;
}

static double median(double *values)
{
    qsort(values, (size_t)rounds, sizeof *values, ascending);
    return values[rounds / 2];
}

static void report(const char *name, double value, const char *unit, const char *peer, double peer_value, double target)
{
    double ratio = value / peer_value;
    printf("{\"name\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"peer\":\"%s\",\"peer_value\":%.4g,\"ratio\":%.3f,"
           "\"target\":%g,\"met\":%s}\n",
           name, value, unit, peer, peer_value, ratio, target, ratio <= target ? "true" : "false");
    fflush(stdout);
}

typedef struct measured {
    double ours_few, theirs_few, ours_turn, theirs_turn;
} measured;

/* Measures calls of the same 10 operators, and of all in turn (which tests the caches more than the dispatcher). */
static measured measure(const operators *all, double (*theirs)(int operators, int calls), int count, bool leaving)
{
    double ours_few[MOST_ROUNDS], theirs_few[MOST_ROUNDS], ours_turn[MOST_ROUNDS], theirs_turn[MOST_ROUNDS];
    for (int i = 0; i < rounds; i++) {
        ours_few[i] = call_ours(all, FEW, leaving);
        theirs_few[i] = theirs(FEW, CALLS);
        ours_turn[i] = call_ours(all, count, leaving);
        theirs_turn[i] = theirs(count, CALLS);
    }
    return (measured){median(ours_few), median(theirs_few), median(ours_turn), median(theirs_turn)};
}

static void compare_calls(const torch_peer *peer, bool leaving, operators *few, operators *many)
{
    const char *what = leaving ? " alone" : "";
    char name[80], space[32];
    double (*theirs)(int operators, int calls) = leaving ? peer->call_leaving : peer->call;
    aoticache_boxed_fn call = leaving ? leaving_kernel : empty_kernel;
    register_many(few, FEW, call);
    snprintf(space, sizeof space, "bench_few_%d", leaving);
    if (peer->register_many(space, FEW, leaving) < 0)
        fail("PyTorch", "throws");
    measured with_few = measure(few, theirs, FEW, leaving);
    register_many(many, MANY, call);
    snprintf(space, sizeof space, "bench_many_%d", leaving);
    double torch_ns = peer->register_many(space, MANY, leaving);
    if (torch_ns < 0)
        fail("PyTorch", "throws");
    measured with_many = measure(many, theirs, MANY, leaving);
    snprintf(name, sizeof name, "boxed call%s, 10 operators", what);
    report(name, with_few.ours_few, "ns", "PyTorch's callBoxed", with_few.theirs_few, PEER_LIMIT);
    snprintf(name, sizeof name, "boxed call%s, 10 of 10000 operators", what);
    report(name, with_many.ours_few, "ns", "PyTorch's callBoxed", with_many.theirs_few, PEER_LIMIT);
    snprintf(name, sizeof name, "boxed call%s, 10000 operators in turn", what);
    report(name, with_many.ours_turn, "ns", "PyTorch's callBoxed", with_many.theirs_turn, PEER_LIMIT);
    snprintf(name, sizeof name, "boxed call%s, from 10 to 10000 operators", what);
    report(name, with_many.ours_few, "ns", "with 10", with_few.ours_few, MANY_LIMIT);
    if (!leaving)
        report("registering 10000 operators", many->register_ns / 1e6, "ms", "PyTorch's def and impl", torch_ns / 1e6,
               PEER_LIMIT);
    end(few);
    end(many);
}

int main(void)
{
    static operators few, many;
    rounds = bench_is_quick() ? 5 : MOST_ROUNDS;
    char directory[] = "/tmp/aoticache-bench-XXXXXX", command[PATH_MAX];
    if (mkdtemp(directory) == NULL)
        fail(directory, "cannot be made");
    bool compiled = compile_peer(directory);
    torch_peer peer = {NULL, NULL, NULL};
    if (compiled)
        peer = load_peer(directory);
    snprintf(command, sizeof command, "rm -r %s", directory);
    int status = system(command);
    if (!compiled) {
        bench_left_out("all calls of the dispatcher", "there is no C++ compiler, or no PyTorch");
        return 0;
    }
    compare_calls(&peer, false, &few, &many);
    compare_calls(&peer, true, &few, &many);
    /* Do not use exit(): PyTorch would unregister its libraries of operators, which is slow. */
    _exit(status == 0 ? 0 : 1);
}
