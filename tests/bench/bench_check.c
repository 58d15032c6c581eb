/*
 * Measures the time to find that 1, 4 and 16 tensors of 2 to 4 dimensions pass a check, with exact and with symbolic
 * sizes.
 *
 * There are two baselines: the plain way in C for tensors that must be exactly the same, a comparison of each field and
 * memcmp() of sizes and strides, in the same run and alternating; and PyTorch's TensorGuards, called from Python, if
 * AOTICACHE_PYTHON (which scripts/bench sets) has torch. The time of the latter includes a call from Python; symbolic
 * sizes are compared with guards with all sizes free. Medians of many short rounds. Prints one JSON object per line.
 */
#include "base/clock.h"
#include "loader/check/check.h"
#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 401, CHECKS = 2000, MOST_TENSORS = 16, KINDS = 2 };

static const size_t counts[] = {1, 4, 16};
static const char *const kinds[KINDS] = {"exact", "symbolic"};

static unsigned sink; /* so that nothing measured is optimised away */

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_check: %s: %s\n", what, why);
    exit(1);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double values[ROUNDS])
{
    qsort(values, ROUNDS, sizeof values[0], compare_doubles);
    return values[ROUNDS / 2];
}

/* ---- what is checked ---- */

static aoticache_tensor_view views[MOST_TENSORS], wanted[MOST_TENSORS];
static int64_t numbers[2][MOST_TENSORS][2][4];

/* Makes contiguous float32 tensors of 2, 3, 4 dimensions in turn; called twice, so that nothing is shared. */
static void make_views(aoticache_tensor_view *tensors, int64_t memory[][2][4])
{
    static const int64_t sizes[] = {2, 3, 4, 5};
    for (size_t i = 0; i < MOST_TENSORS; i++) {
        int64_t ndim = 2 + (int64_t)(i % 3), stride = 1;
        for (int64_t d = ndim - 1; d >= 0; d--) {
            memory[i][0][d] = sizes[d];
            memory[i][1][d] = stride;
            stride *= sizes[d];
        }
        tensors[i] = (aoticache_tensor_view){.dtype = AOTICACHE_DTYPE_FLOAT32,
                                             .device = AOTICACHE_DEVICE_CPU,
                                             .ndim = ndim,
                                             .numel = stride,
                                             .sizes = memory[i][0],
                                             .strides = memory[i][1],
                                             .dispatch_key_set = 0x8001};
    }
}

static aoticache_check *make_check(int kind, size_t count)
{
    static const char *const shapes[] = {"[s0, s1]", "[s0, s1, 2*s0]", "[s0, s1, 2*s0, s2]"};
    aoticache_check *check;
    aoticache_error error;
    char text[4096];
    size_t length = 0;
    if (kind == 0) {
        if (aoticache_check_create_exact(views, count, &check, &error) != AOTICACHE_OK)
            fail("cannot make a check", error.message);
        return check;
    }
    for (size_t i = 0; i < count; i++)
        length += (size_t)snprintf(text + length, sizeof text - length,
                                   "%sfloat32%s{contiguous}@cpu:0 layout=strided grad=0 keys=0x8001", i > 0 ? ", " : "",
                                   shapes[i % 3]);
    length += (size_t)snprintf(text + length, sizeof text - length, "; s0=2..64, s1=1..1024");
    if (count >= 3)
        snprintf(text + length, sizeof text - length, ", s2=0..%%5");
    if (aoticache_check_parse(text, &check, &error) != AOTICACHE_OK)
        fail(text, error.message);
    return check;
}

static __attribute__((noinline)) bool compare_plainly(const aoticache_tensor_view *a, const aoticache_tensor_view *b,
                                                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (a[i].dtype != b[i].dtype || a[i].device.type != b[i].device.type ||
            a[i].device.index != b[i].device.index || a[i].layout != b[i].layout ||
            a[i].requires_grad != b[i].requires_grad || a[i].dispatch_key_set != b[i].dispatch_key_set ||
            a[i].ndim != b[i].ndim || memcmp(a[i].sizes, b[i].sizes, (size_t)a[i].ndim * sizeof a[i].sizes[0]) != 0 ||
            memcmp(a[i].strides, b[i].strides, (size_t)a[i].ndim * sizeof a[i].strides[0]) != 0)
            return false;
    }
    return true;
}

static double time_check(const aoticache_check *check, size_t count)
{
    unsigned passed = 0;
    uint64_t start = aoticache_monotonic_ns();
    for (int i = 0; i < CHECKS; i++)
        passed += aoticache_check_passes(check, views, count);
    uint64_t end = aoticache_monotonic_ns();
    if (passed != CHECKS)
        fail("check", "tensors that must pass do not");
    sink += passed;
    return (double)(end - start) / CHECKS;
}

static double time_plain(size_t count)
{
    unsigned passed = 0;
    uint64_t start = aoticache_monotonic_ns();
    for (int i = 0; i < CHECKS; i++) {
        __asm__ volatile("" ::: "memory");
        passed += compare_plainly(views, wanted, count);
    }
    uint64_t end = aoticache_monotonic_ns();
    if (passed != CHECKS)
        fail("plain comparison", "tensors that must be equal are not");
    sink += passed;
    return (double)(end - start) / CHECKS;
}

/* ---- PyTorch ---- */

/* Prints exact and symbolic nanoseconds for each count, in the order of `counts`. */
static const char guards_script[] =
    "import time, torch\n"
    "from torch._C._dynamo.guards import TensorGuards\n"
    "def median(guards, tensors):\n"
    "    check, rounds = guards.check, []\n"
    "    assert check(*tensors)\n"
    "    for _ in range(31):\n"
    "        start = time.perf_counter_ns()\n"
    "        for _ in range(2000): check(*tensors)\n"
    "        rounds.append((time.perf_counter_ns() - start) / 2000)\n"
    "    return sorted(rounds)[15]\n"
    "for count in (1, 4, 16):\n"
    "    tensors = [torch.empty((2, 3, 4, 5)[:2 + i % 3]) for i in range(count)]\n"
    "    exact = TensorGuards(*tensors, dynamic_dims_sizes=[list(t.shape) for t in tensors],\n"
    "                         dynamic_dims_strides=[list(t.stride()) for t in tensors])\n"
    "    free = TensorGuards(*tensors, dynamic_dims_sizes=[[None] * t.dim() for t in tensors],\n"
    "                        dynamic_dims_strides=[[None] * t.dim() for t in tensors])\n"
    "    assert not exact.check(*[torch.empty(9)] * count)\n"
    "    print(median(exact, tensors), median(free, tensors))\n";

/* Returns false, and prints the reason, if there is no PyTorch. */
static bool measure_guards(double ret_times[3][KINDS])
{
    const char *python = getenv("AOTICACHE_PYTHON");
    char command[4096];
    if (python == NULL || strchr(python, '\'') != NULL) {
        bench_left_out("checks beside PyTorch's TensorGuards", "AOTICACHE_PYTHON names no Python");
        return false;
    }
    snprintf(command, sizeof command, "'%s' -c '%s' 2>/dev/null", python, guards_script);
    FILE *output = popen(command, "r");
    unsigned rows = 0;
    while (output != NULL && rows < 3 && fscanf(output, "%lf %lf", &ret_times[rows][0], &ret_times[rows][1]) == 2)
        rows++;
    if (output != NULL && pclose(output) == 0 && rows == 3)
        return true;
    bench_left_out("checks beside PyTorch's TensorGuards", "the Python of AOTICACHE_PYTHON has no PyTorch");
    return false;
}

/* ---- rows ---- */

static void report(int kind, size_t count, const char *peer, double value, double peer_value, double target)
{
    double ratio = value / peer_value;
    printf("{\"name\":\"check of %zu tensor%s, %s\",\"value\":%.1f,\"unit\":\"ns\",\"peer\":\"%s\",\"peer_value\":%.1f,"
           "\"ratio\":%.3f,\"target\":%.1f,\"met\":%s}\n",
           count, count > 1 ? "s" : "", kinds[kind], value, peer, peer_value, ratio, target,
           ratio <= target ? "true" : "false");
    fflush(stdout);
}

int main(void)
{
    static double ours[ROUNDS], plain[ROUNDS], guards[3][KINDS];
    /* The plain comparison compares with one fixed tensor: no masks, no ranges, no products, no contiguity. These may
       double the time if all sizes are given, and quadruple it if they are symbols. */
    static const double targets[KINDS] = {2.0, 4.0};
    make_views(views, numbers[0]);
    make_views(wanted, numbers[1]);
    bool has_guards = measure_guards(guards);
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        for (int kind = 0; kind < KINDS; kind++) {
            aoticache_check *check = make_check(kind, counts[c]);
            for (int round = 0; round < ROUNDS; round++) {
                ours[round] = time_check(check, counts[c]);
                plain[round] = time_plain(counts[c]);
            }
            double value = median(ours);
            report(kind, counts[c], "fields compared one by one", value, median(plain), targets[kind]);
            if (has_guards)
                report(kind, counts[c], "PyTorch TensorGuards from Python", value, guards[c][kind], 1.0);
            aoticache_check_free(check);
        }
    }
    return sink == 0;
}
