"""Benchmark: the cost of a call through PyTorch's own AOTI-eager, the baseline of the kernel holder: `aten::abs` from
Python on a float32 tensor, plain and with 1 and with 64 kernels in AOTI-eager's table, of which the last is called.

Its kernels are compiled once and kept in $BUILD/bench-aoti-eager, since 64 compiles take minutes. If they do not exist,
this program reports that and measures nothing, unless BENCH_LONG is set. BENCH_QUICK compiles none. Each measurement is
a separate process, since AOTI-eager replaces the operator for a whole process; the three alternate.

Prints one JSON object per line (scripts/bench collects them). Environment: BUILD, the build directory; BENCH_LONG;
BENCH_AOTI_EAGER_KERNELS: a number other than 64.
"""
import json
import os
import statistics
import subprocess
import sys
import time

from bench_lines import IS_QUICK, left_out

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
DIRECTORY = os.path.join(BUILD, "bench-aoti-eager")
MANY = int(os.environ.get("BENCH_AOTI_EAGER_KERNELS", "64"))
ROUNDS, REPEATS, CALLS = 5, 7, 20000
OPERATOR = "abs"


def cache_of(count):
    return os.path.join(DIRECTORY, f"{count}-kernels")


def table_of(count):
    return os.path.join(cache_of(count), "aoti_eager", "aten", "cpu", f"{OPERATOR}.json")


def kernels_in(count):
    """Returns the number of compiled kernels for a table of this size."""
    try:
        with open(table_of(count)) as file:
            return len(json.load(file))
    except (OSError, ValueError):
        return 0


def shapes(count):
    """Measures; the last kernel is called."""
    return [(2 + i, 8) for i in range(count - 1)] + [(4, 4)]


# ---- in a separate process ----

def override(torch):
    library = torch.library.Library("aten", "IMPL")
    library._impl_with_aoti_compile(OPERATOR, "CPU")
    return library


def compile_kernels(count):
    import torch
    library = override(torch)
    with torch.no_grad():
        for shape in shapes(count):
            torch.abs(torch.ones(shape))
    del library


def measure(torch, tensor):
    """Returns the nanoseconds of one call, the median of some series."""
    call, found = torch.abs, []
    for _ in range(REPEATS):
        begun = time.perf_counter_ns()
        for _ in range(CALLS):
            call(tensor)
        found.append((time.perf_counter_ns() - begun) / CALLS)
    return statistics.median(found)


def play(what, count):
    import torch
    torch.set_num_threads(1)
    with torch.no_grad():
        tensor = -torch.ones(shapes(1)[0])
        library = override(torch) if what == "table" else None
        assert torch.equal(torch.abs(tensor), -tensor)
        print(measure(torch, tensor))
    del library


# ---- all of them ----

def run(what, count):
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache_of(count), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", os.path.abspath(__file__), what, str(count)]
    # The compiler warns once for each kernel that it is deprecated.
    stderr = subprocess.DEVNULL if what == "compile" else None
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, stderr=stderr, text=True).stdout


def have_kernels(count):
    if kernels_in(count) == count:
        return True
    kernels = f"AOTI-eager with {count} kernel{'s' * (count > 1)}"
    if count > 1 and not os.environ.get("BENCH_LONG"):
        left_out(kernels, "BENCH_LONG=1 compiles them (minutes, once)")
        return False
    if IS_QUICK:
        left_out(kernels, "QUICK=1, and nothing has compiled them")
        return False
    os.makedirs(cache_of(count), exist_ok=True)
    run("compile", count)
    if kernels_in(count) == count:
        return True
    print(f"bench_aoti_eager: AOTI-eager's table has {kernels_in(count)} kernels, {count} were compiled",
          file=sys.stderr)
    return False


def main():
    try:
        import torch  # noqa: F401
    except ImportError:
        left_out("AOTI-eager", "there is no PyTorch")
        return
    counts = [count for count in (1, MANY) if have_kernels(count)]
    if not counts:
        return
    series = {("plain", 1): [], **{("table", count): [] for count in counts}}
    for _ in range(ROUNDS):
        for (what, count), found in series.items():
            found.append(float(run(what, count).split()[-1]))
    plain = statistics.median(series["plain", 1])
    for count in counts:
        value = statistics.median(series["table", count])
        print(json.dumps({"name": f"AOTI-eager from Python, aten::{OPERATOR}, {count} kernel{'s' * (count > 1)}",
                          "value": round(value, 1), "unit": "ns", "peer": f"plain aten::{OPERATOR}",
                          "peer_value": round(plain, 1), "ratio": round(value / plain, 4), "target": None,
                          "met": None}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        compile_kernels(int(sys.argv[2])) if sys.argv[1] == "compile" else play(sys.argv[1], int(sys.argv[2]))
    else:
        main()
