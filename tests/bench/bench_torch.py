"""Benchmark: PyTorch's operators from Python: plain eager, through PyTorch's own AOTI-eager, and with
aoticache.enable(), all in one process and alternating, with one thread and with all; and ours with one compiled kernel
in the operator's table and with 1 000.

The 1 000 are separate libraries, each loaded: kernels written in C for 1 000 shapes of `aten::abs`, since PyTorch's
compiler would take an hour for them. They are in a separate cache, and the one kernel that they are compared with is of
the same kind. All other kernels come from PyTorch's compiler.

Every process runs all configurations TURNS times, and there are ROUNDS processes; values are the minimum of all series,
since other programs on the machine can only increase them.

The small `aten::abs`, which has goals, is measured again, in processes of one configuration each that run on one
processor and alternate after each series, some milliseconds long: if other machines share the processor its speed
halves and doubles within seconds, which then affects all of them alike. The ratio is the median of the ratios of all
rounds.

Kernels are kept in $BUILD/bench-torch, $BUILD/bench-torch-many and $BUILD/bench-aoti-eager. Only the small `aten::abs`
and the 1 000 are compiled if they are missing (a minute or two, once): the rest is left out, which is reported, unless
BENCH_LONG is set (some ten minutes more, once).

BENCH_QUICK measures only the small `aten::abs` and the first result, with 40 rounds of one set of processes.

Prints one JSON object per line (scripts/bench collects them). Environment: BUILD, the build directory; BENCH_LONG;
BENCH_QUICK;
BENCH_ROUNDS: processes.
"""
import atexit
import concurrent.futures
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
import timeit

from asked_process import AskedProcess, answer
from bench_lines import IS_QUICK, left_out

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
DIRECTORY, DIRECTORY_OF_MANY = os.path.join(BUILD, "bench-torch"), os.path.join(BUILD, "bench-torch-many")
#: AOTI-eager's kernels: the one of bench_aoti_eager.py, and those of all cases.
PEER_ONE, PEER_ALL = (os.path.join(BUILD, "bench-aoti-eager", name) for name in ("1-kernels", "all-kernels"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "1" if IS_QUICK else "3"))
SERIES_TURNS, EACH_TURNS = (40, 0) if IS_QUICK else (100, 60)
TURNS, MANY, REPEATS, SERIES, MOST_CALLS = 2, 1000, 7, 0.004, 2000  # SERIES: seconds
SMALL, SMALL_SHAPE = "aten::abs, 4x4", (4, 4)
CONFIGURATIONS = ("plain", "AOTI-eager", "ours", *(() if IS_QUICK else ("1 kernel in C", "1000 kernels in C")))
OPERATORS = ("aten::abs", "aten::add.Tensor", "aten::mul.Tensor", "aten::tanh", "aten::relu", "aten::_softmax",
             "aten::native_layer_norm", "aten::mm")
SIZES = (1, 1000, 1000000)


# ---- what is measured ----

class Case(timeit.Timer):
    """A statement and its local names. It is timed as by torch.utils.benchmark: no function around it, and Python's
    garbage collector is off."""

    def __init__(self, statement, **names):
        super().__init__(statement, f"{', '.join(names)}, = given", globals={"given": tuple(names.values())})

    def __call__(self):
        self.timeit(1)


def make_cases(torch):
    """Returns {name: case}; the chain has four operators."""
    F = torch.nn.functional
    cases = {SMALL: Case("op(x)", op=torch.abs, x=-torch.ones(SMALL_SHAPE))}
    for size in SIZES:
        x, y = torch.randn(size), torch.randn(size)
        rows, side = (1, 1) if size == 1 else (size // 100, 100), round(size ** 0.5)
        table, weight = torch.randn(rows), torch.ones(rows[-1:])
        square = torch.randn(side, side)
        cases.update({
            f"aten::abs, {size}": Case("op(x)", op=torch.abs, x=x),
            f"aten::add.Tensor, {size}": Case("op(x, y)", op=torch.add, x=x, y=y),
            f"chain of 4 pointwise, {size}": Case("relu(tanh(mul(add(x, y), y)))", relu=torch.relu, tanh=torch.tanh,
                                                  mul=torch.mul, add=torch.add, x=x, y=y),
            f"softmax, {size}": Case("op(t, -1)", op=torch.softmax, t=table),
            f"layer norm, {size}": Case("op(t, w.shape, w, w)", op=F.layer_norm, t=table, w=weight),
            f"matmul, {side}x{side}": Case("op(m, m)", op=torch.mm, m=square),
        })
    return cases


def many_tensors(torch):
    """Returns the tensors; the first has the small case's shape."""
    return [-torch.ones(SMALL_SHAPE[0] + i, SMALL_SHAPE[1]) for i in range(MANY)]


def measure(case):
    """Returns the nanoseconds of one call, the minimum of some series."""
    calls = 1
    while calls < MOST_CALLS and case.timeit(calls) < SERIES / 2:
        calls = min(MOST_CALLS, 2 * calls)
    return min(case.repeat(REPEATS, calls)) / calls * 1e9


# ---- ours ----

def import_ours():
    sys.path.insert(0, os.path.join(HERE, "..", "..", "eager", "torch"))
    os.environ.setdefault("AOTICACHE_HOME", BUILD)
    import aoticache
    return aoticache


def compile_in_c(aoticache):
    """Makes misses compile from eager/compile/kernels, which is fast; modes that compile nothing do not change."""
    library = aoticache._core.capi

    def create_hook(session):
        hook = ctypes.c_void_p()
        options = library.HookOptions(size=ctypes.sizeof(library.HookOptions), timeout_seconds=300)
        session.library.call("aoticache_hook_create_c", ctypes.byref(options), ctypes.byref(hook))
        return hook

    assert hasattr(aoticache._operators.session.Session, "_create_hook")
    aoticache._operators.session.Session._create_hook = create_hook


def enable(aoticache, mode="never", dynamic="never", operators=OPERATORS, directory=DIRECTORY):
    enabled = aoticache.enable(*operators, mode=mode, dynamic=dynamic, cache_dir=directory, workers=2, judge=False)
    if enabled.pending:  # the bridge is being compiled
        aoticache.wait()
        enabled = aoticache.enable(*operators, mode=mode, dynamic=dynamic)
    assert len(enabled.operators) == len(operators), f"{enabled}"


def served_by(aoticache, call):
    """Returns whether compiled kernels answer all its operators."""
    call()
    before, _, after = aoticache.stats(), call(), aoticache.stats()
    return (after.total("hits") > before.total("hits") and after.total("fallbacks") == before.total("fallbacks")
            and after.total("refused") == before.total("refused"))


def load_many(torch, aoticache, tensors):
    """Loads all kernels of the table, and compiles missing ones."""
    def call(tensor):
        with torch.no_grad():  # set per thread
            torch.abs(tensor)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(call, tensors))
    counts = aoticache.stats().operators["aten::abs"]
    assert counts.loaded >= len(tensors) and counts.fallbacks == 0, f"{counts}"


# ---- in a separate process: compiling ----

def play_compile(torch, everything):
    """Compiles; returns the cases that kernels answer then."""
    aoticache, cases = import_ours(), make_cases(torch)
    for mode in ("background", "wait"):
        enable(aoticache, mode=mode)
        for name, call in cases.items():
            if everything or name == SMALL:
                call()
        aoticache.wait()
        aoticache.disable()
    enable(aoticache)
    return {"served": [name for name, call in cases.items() if served_by(aoticache, call)]}


def play_compile_many(torch):
    aoticache = import_ours()
    compile_in_c(aoticache)
    os.makedirs(DIRECTORY_OF_MANY, mode=0o700, exist_ok=True)
    enable(aoticache, mode="wait", operators=OPERATORS[:1], directory=DIRECTORY_OF_MANY)
    load_many(torch, aoticache, many_tensors(torch))
    return {}


def play_compile_peer(torch):
    """Compiles AOTI-eager's own kernels for all cases. Cases that it cannot compile are left out."""
    with AotiEager(torch, PEER_ALL, OPERATORS, may_compile=True):
        for name, call in make_cases(torch).items():
            try:
                call()
            except (RuntimeError, NotImplementedError) as error:
                print(f"bench_torch: AOTI-eager, {name}: {str(error).splitlines()[0]}", file=sys.stderr)
    return {}


# ---- in a separate process: measuring ----

class AotiEager:
    """PyTorch's AOTI-eager for operators, with the kernels of a directory."""

    def __init__(self, torch, directory, operators, may_compile=False):
        self.torch, self.operators = torch, operators
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = directory
        if not may_compile:
            import torch._inductor.aoti_eager as aoti_eager
            aoti_eager.aoti_compile_with_persistent_cache = self.refuse

    @staticmethod
    def refuse(*args, **kwargs):
        raise RuntimeError("it has no kernel for this")

    def __enter__(self):
        self.library = self.torch.library.Library("aten", "IMPL")
        for operator in self.operators:
            self.library._impl_with_aoti_compile(operator.split("::")[1], "CPU")

        return self

    def __exit__(self, *exception):
        self.library._destroy()

    def stay(self):
        """Stays until the process ends: a Library without references unregisters its kernels."""
        atexit.register(self.__enter__().__exit__)
        try:
            self.torch.abs(self.torch.ones(3, 3, 3))
        except RuntimeError:
            return
        raise AssertionError("AOTI-eager is not asked")


def has_table(directory):
    return os.path.exists(os.path.join(directory, "aoti_eager", "aten", "cpu", "abs.json"))


def measure_peer(torch, cases):
    """Uses one kernel for the small case, and the others if they were compiled."""
    found = {}
    for directory, operators in ((PEER_ONE, OPERATORS[:1]), (PEER_ALL, OPERATORS)):
        if not has_table(directory):
            continue
        with AotiEager(torch, directory, operators):
            for name, call in cases.items():
                if (name == SMALL) != (directory == PEER_ONE):
                    continue
                try:
                    call()
                except RuntimeError:
                    continue
                found[name] = measure(call)
    return found


def measure_ours(aoticache, cases):
    enable(aoticache)
    try:
        assert all(served_by(aoticache, call) for call in cases.values())
        return {name: measure(call) for name, call in cases.items()}
    finally:
        aoticache.disable()


def play_turns(torch, names):
    """Returns {configuration: {case: nanoseconds}}. Before our first round nothing of ours is registered with
    PyTorch."""
    cases = {name: call for name, call in make_cases(torch).items() if name in names}
    aoticache, found = import_ours(), []
    for _ in range(8):  # from now on memory of this size comes from the heap, in every configuration
        torch.zeros(8000000)
    for _ in range(TURNS):
        found.append({"plain": {name: measure(call) for name, call in cases.items()}, "peer": measure_peer(torch, cases),
                      "ours": measure_ours(aoticache, cases)})
    return least(found)


def configure(torch, what, tensors):
    """Measures one of CONFIGURATIONS, until the process ends."""
    if what == "AOTI-eager":
        AotiEager(torch, PEER_ONE, OPERATORS[:1]).stay()
    elif what != "plain":
        aoticache = import_ours()
        if what == "ours":
            enable(aoticache, operators=OPERATORS[:1])
            tensors = tensors[:1]
        else:
            compile_in_c(aoticache)
            enable(aoticache, mode="wait", operators=OPERATORS[:1], directory=DIRECTORY_OF_MANY)
            tensors = tensors if what == "1000 kernels in C" else tensors[:1]
        load_many(torch, aoticache, tensors)


def play_series(torch, what):
    """For each line of standard input, measures one series and prints the nanoseconds of a call: for "small" of the
    small case, for "each" of a call with each of the many tensors in turn."""
    tensors = many_tensors(torch)
    configure(torch, what, tensors)
    series = {"small": (make_cases(torch)[SMALL], MOST_CALLS, 1),
              "each": (Case("for x in tensors: op(x)", op=torch.abs, tensors=tensors), 1, MANY)}
    answer("ready")
    for line in sys.stdin:
        case, times, calls = series[line.strip()]
        answer(case.timeit(times) / times / calls * 1e9)


def play_first(torch, ours):
    """Returns the milliseconds to the first result of a compiled kernel, with PyTorch imported already."""
    tensor, begun = -torch.ones(SMALL_SHAPE), time.perf_counter_ns()
    if ours:
        aoticache = import_ours()
        enable(aoticache, operators=OPERATORS[:1])
    else:
        peer = AotiEager(torch, PEER_ONE, OPERATORS[:1])
        peer.__enter__()  # and kept: a Library without references unregisters its kernels
    result = torch.abs(tensor)
    found = {"first": {"ms": (time.perf_counter_ns() - begun) / 1e6}}
    assert torch.equal(result, -tensor)
    assert not ours or aoticache.stats().total("fallbacks") == 0
    return found


def play(what, threads, names):
    import torch
    torch.set_num_threads(threads or os.cpu_count())
    torch.manual_seed(0)
    plays = {
        "compile-small": lambda: play_compile(torch, False),
        "compile-all": lambda: play_compile(torch, True),
        "compile-many": lambda: play_compile_many(torch),
        "compile-peer": lambda: play_compile_peer(torch),
        "series": lambda: play_series(torch, *names),
        "turns": lambda: play_turns(torch, names),
        "first-ours": lambda: play_first(torch, True),
        "first-peer": lambda: play_first(torch, False),
    }
    with torch.no_grad():
        found = plays[what]()
    if found is not None:
        print(json.dumps(found))


# ---- all of them ----

def command(what, threads=1, names=()):
    return [sys.executable, "-W", "ignore", os.path.abspath(__file__), what, str(threads), json.dumps(list(names))]


def run(what, threads=1, names=()):
    # AOTI-eager warns once for each kernel that it is deprecated.
    environment = {**os.environ, "TORCH_LOGS": "-all"} if what == "compile-peer" else None
    done = subprocess.run(command(what, threads, names), env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def take_turns(configurations):
    """Returns {configuration: {"small" or "each": nanoseconds of every round}}, all on one processor."""
    processor = {min(os.sched_getaffinity(0))}
    processes = {what: AskedProcess(command("series", 1, [what]), preexec_fn=lambda: os.sched_setaffinity(0, processor))
                 for what in configurations}
    try:
        found = {what: {"small": [], "each": []} for what in configurations}
        for name, turns, some in ("small", SERIES_TURNS, configurations), ("each", EACH_TURNS, ("plain", "1000 kernels in C")):
            for what in tuple(some) * turns:
                found[what][name].append(processes[what].ask(name))
        return found
    finally:
        for process in processes.values():
            process.close()


def least(found):
    """Returns the minimum of some {configuration: {case: value}}."""
    result = {}
    for one in found:
        for what, values in one.items():
            for name, value in values.items():
                kept = result.setdefault(what, {})
                kept[name] = min(value, kept.get(name, value))
    return result


def say(name, value, unit, peer, peer_value, target=None, ratio=None):
    ratio = ratio or value / peer_value
    print(json.dumps({"name": f"PyTorch on the cache, {name}", "value": round(value, 2), "unit": unit, "peer": peer,
                      "peer_value": round(peer_value, 2), "ratio": round(ratio, 4), "target": target,
                      "met": None if target is None else ratio <= target}), flush=True)


def report_small():
    """Measures. Every round has new processes: the random memory layout of a process has an effect, too."""
    rounds = [take_turns(tuple(what for what in CONFIGURATIONS if what != "AOTI-eager" or has_table(PEER_ONE)))
              for _ in range(ROUNDS)]

    def report(name, of, peer, case="small", target=None):
        if of not in rounds[0] or peer not in rounds[0]:
            return
        ours, theirs = ([value for found in rounds for value in found[what][case]] for what in (of, peer))
        say(name, statistics.median(ours), "ns", peer, statistics.median(theirs), target,
            statistics.median(a / b for a, b in zip(ours, theirs)))

    report(SMALL, "ours", "plain", target=0.65)
    report(f"{SMALL}, against AOTI-eager", "ours", "AOTI-eager", target=0.6)
    report(f"{SMALL}, {MANY} kernels in C", "1000 kernels in C", "1 kernel in C", target=1.1)
    report(f"aten::abs, {MANY} kernels in C, each in turn", "1000 kernels in C", "plain", case="each", target=1.0)


def report_first():
    if has_table(PEER_ONE):
        first = [least(run(what) for _ in range(ROUNDS)) for what in ("first-ours", "first-peer")]
        say("first result in a new process", first[0]["first"]["ms"], "ms", "AOTI-eager", first[1]["first"]["ms"])


def report_all(found, threads):
    for name, ours in found["ours"].items():
        title = f"{name}, {'1 thread' if threads == 1 else f'all {os.cpu_count()} threads'}"
        say(title, ours, "ns", "plain", found["plain"][name])
        if name in found.get("peer", {}):
            say(f"{title}, against AOTI-eager", ours, "ns", "AOTI-eager", found["peer"][name])


def compile_all():
    """Returns the cases for which there are kernels."""
    thorough = bool(os.environ.get("BENCH_LONG"))
    os.makedirs(DIRECTORY, mode=0o700, exist_ok=True)
    served = run("compile-all" if thorough else "compile-small")["served"]
    if not IS_QUICK:
        run("compile-many")
    if thorough:
        os.makedirs(PEER_ALL, exist_ok=True)
        run("compile-peer")
    if not has_table(PEER_ONE):
        left_out("PyTorch on the cache beside AOTI-eager", "bench_aoti_eager has not made its kernel")
    return served


def main():
    try:
        import torch
    except ImportError:
        left_out("PyTorch on the cache", "there is no PyTorch")
        return
    served = compile_all()
    if SMALL not in served:
        print("bench_torch: the compiled aten::abs does not answer", file=sys.stderr)
        return
    missing = [name for name in make_cases(torch) if name not in served]
    if missing and not IS_QUICK:
        left_out(f"PyTorch on the cache: {'; '.join(missing)}", "BENCH_LONG=1 compiles what can be (some ten minutes, once)")
    report_small()
    report_first()
    if IS_QUICK:
        left_out("PyTorch on the cache with 1000 kernels, and all of its cases with 1 thread and with all", "QUICK=1")
        return
    report_all(least(run("turns", 1, served) for _ in range(ROUNDS)), 1)
    if os.cpu_count() > 1:
        report_all(least(run("turns", 0, served) for _ in range(ROUNDS)), 0)


if __name__ == "__main__":
    play(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])) if len(sys.argv) == 4 else main()
