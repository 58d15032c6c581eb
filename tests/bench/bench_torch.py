"""Benchmark: PyTorch's operators from Python: plain eager, through PyTorch's own AOTI-eager, and with
aoticache.enable(), all in one process and by turns, with one thread and with all; and ours with one compiled kernel in
the operator's table and with 1 000.

The 1 000 are libraries of their own, each loaded: kernels written in C for 1 000 shapes of `aten::abs`, since PyTorch's
compiler would take an hour for them. They lie in a cache of their own, and the one kernel that they are compared with
is of the same kind. All other kernels are PyTorch's compiler's.

Every process plays all configurations TURNS times, and there are ROUNDS processes; values are the least of all series,
since other programs on the machine only add to them. Kernels are kept in $BUILD/bench-torch, $BUILD/bench-torch-many
and $BUILD/bench-aoti-eager. Only the small `aten::abs` and the 1 000 are compiled where they are missing (a minute or
two, once): the rest is left out, which is said, unless BENCH_LONG is set (some ten minutes more, once).

Prints one JSON object per line (scripts/bench collects them). Environment: BUILD, the build folder; BENCH_LONG;
BENCH_ROUNDS: processes.
"""
import concurrent.futures
import ctypes
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
FOLDER, FOLDER_OF_MANY = os.path.join(BUILD, "bench-torch"), os.path.join(BUILD, "bench-torch-many")
#: AOTI-eager's kernels: bench_aoti_eager.py's one, and those of all cases.
PEER_ONE, PEER_ALL = (os.path.join(BUILD, "bench-aoti-eager", name) for name in ("1-kernels", "all-kernels"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
TURNS, MANY, REPEATS, SERIES_NS, MOST_CALLS = 2, 1000, 7, 4e6, 2000
SMALL, SMALL_SHAPE = "aten::abs, 4x4", (4, 4)
OPERATORS = ("aten::abs", "aten::add.Tensor", "aten::mul.Tensor", "aten::tanh", "aten::relu", "aten::_softmax",
             "aten::native_layer_norm", "aten::mm")
SIZES = (1, 1000, 1000000)


# ---- what is measured ----

def make_cases(torch):
    """{name: function}; the chain is four operators."""
    cases, F = {}, torch.nn.functional
    small = -torch.ones(SMALL_SHAPE)
    cases[SMALL] = lambda: torch.abs(small)
    for size in SIZES:
        x, y = torch.randn(size), torch.randn(size)
        rows, side = (1, 1) if size == 1 else (size // 100, 100), round(size ** 0.5)
        table, weight = torch.randn(rows), torch.ones(rows[-1:])
        square = torch.randn(side, side)
        cases.update({
            f"aten::abs, {size}": lambda x=x: torch.abs(x),
            f"aten::add.Tensor, {size}": lambda x=x, y=y: torch.add(x, y),
            f"chain of 4 pointwise, {size}":
                lambda x=x, y=y: torch.relu(torch.tanh(torch.mul(torch.add(x, y), y))),
            f"softmax, {size}": lambda t=table: torch.softmax(t, -1),
            f"layer norm, {size}": lambda t=table, w=weight: F.layer_norm(t, w.shape, w, w),
            f"matmul, {side}x{side}": lambda m=square: torch.mm(m, m),
        })
    return cases


def many_tensors(torch):
    """The first is of the small case's shape."""
    return [-torch.ones(SMALL_SHAPE[0] + i, SMALL_SHAPE[1]) for i in range(MANY)]


def measure(call):
    """Nanoseconds of one call, the least of some series."""
    found, calls = [], 1
    while True:
        begun = time.perf_counter_ns()
        for _ in range(calls):
            call()
        spent = time.perf_counter_ns() - begun
        if spent < SERIES_NS / 2 and calls < MOST_CALLS:
            calls = min(MOST_CALLS, 2 * calls)
            continue
        found.append(spent / calls)
        if len(found) == REPEATS:
            return min(found)


def measure_each(torch, tensors):
    """The same, of a call with each of the tensors in turn."""
    def call(op=torch.abs):
        for tensor in tensors:
            op(tensor)
    return measure(call) / len(tensors)


# ---- ours ----

def import_ours():
    sys.path.insert(0, os.path.join(HERE, "..", "..", "eager", "torch"))
    os.environ.setdefault("AOTICACHE_HOME", BUILD)
    import aoticache
    return aoticache


def compile_in_c(aoticache):
    """From now on misses are compiled from eager/kernels, which is fast; modes that compile nothing are as ever."""
    library = aoticache._library

    def create_hook(session):
        hook = ctypes.c_void_p()
        options = library.HookOptions(size=ctypes.sizeof(library.HookOptions), timeout_seconds=300)
        session.library.call("aoticache_hook_create_c", ctypes.byref(options), ctypes.byref(hook))
        return hook

    assert hasattr(aoticache._session.Session, "_create_hook")
    aoticache._session.Session._create_hook = create_hook


def enable(aoticache, mode="never", dynamic="never", operators=OPERATORS, folder=FOLDER):
    enabled = aoticache.enable(*operators, mode=mode, dynamic=dynamic, cache_dir=folder, workers=2)
    if enabled.pending:  # the bridge is compiled
        aoticache.wait()
        enabled = aoticache.enable(*operators, mode=mode, dynamic=dynamic)
    assert len(enabled.operators) == len(operators), f"{enabled}"


def served_by(aoticache, call):
    """Whether all its operators are answered by compiled kernels."""
    call()
    before, _, after = aoticache.stats(), call(), aoticache.stats()
    return (after.total("hits") > before.total("hits") and after.total("fallbacks") == before.total("fallbacks")
            and after.total("refused") == before.total("refused"))


def load_many(torch, aoticache, tensors):
    """All kernels of the table become loaded, and compiled where they are missing."""
    def call(tensor):
        with torch.no_grad():  # is said for each thread
            torch.abs(tensor)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(call, tensors))
    counts = aoticache.stats().operators["aten::abs"]
    assert counts.loaded >= len(tensors) and counts.fallbacks == 0, f"{counts}"


# ---- in a process of its own: compiling ----

def play_compile(torch, everything):
    """Returns the cases that kernels answer then."""
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
    aoticache, tensors = import_ours(), many_tensors(torch)
    compile_in_c(aoticache)
    for folder, wanted in ((FOLDER, tensors[:1]), (FOLDER_OF_MANY, tensors)):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        enable(aoticache, mode="wait", operators=OPERATORS[:1], folder=folder)
        load_many(torch, aoticache, wanted)
        aoticache.disable()
    return {}


def play_compile_peer(torch):
    """AOTI-eager's own kernels for all cases. What it cannot compile is left out."""
    with AotiEager(torch, PEER_ALL, OPERATORS, may_compile=True):
        for name, call in make_cases(torch).items():
            try:
                call()
            except (RuntimeError, NotImplementedError) as error:
                print(f"bench_torch: AOTI-eager, {name}: {str(error).splitlines()[0]}", file=sys.stderr)
    return {}


# ---- in a process of its own: measuring ----

class AotiEager:
    """PyTorch's AOTI-eager behind operators, with the kernels of a folder."""

    def __init__(self, torch, folder, operators, may_compile=False):
        self.torch, self.operators = torch, operators
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
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

    def __exit__(self, *exception):
        self.library._destroy()


def has_table(folder):
    return os.path.exists(os.path.join(folder, "aoti_eager", "aten", "cpu", "abs.json"))


def measure_peer(torch, cases):
    """With one kernel for the small case; the others where they were compiled."""
    found = {}
    for folder, operators in ((PEER_ONE, OPERATORS[:1]), (PEER_ALL, OPERATORS)):
        if not has_table(folder):
            continue
        with AotiEager(torch, folder, operators):
            for name, call in cases.items():
                if (name == SMALL) != (folder == PEER_ONE):
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


def measure_many(torch, aoticache, call, tensors, folder):
    enable(aoticache, mode="wait", operators=OPERATORS[:1], folder=folder)
    try:
        load_many(torch, aoticache, tensors)
        return {"one": measure(call), "each": measure_each(torch, tensors)}
    finally:
        aoticache.disable()


def play_turns(torch, names, with_many):
    """{configuration: {case: nanoseconds}}. Before its first turn nothing of ours is registered with PyTorch."""
    cases = {name: call for name, call in make_cases(torch).items() if name in names}
    tensors, aoticache, found = many_tensors(torch), None, []
    for _ in range(8):  # memory of that size comes from the heap from now on, in every configuration
        torch.zeros(8000000)
    for _ in range(TURNS):
        turn = {"plain": {name: measure(call) for name, call in cases.items()}, "peer": measure_peer(torch, cases)}
        if with_many:
            turn["plain each"] = {"each": measure_each(torch, tensors)}
        if aoticache is None:
            aoticache = import_ours()
            compile_in_c(aoticache)
        turn["ours"] = measure_ours(aoticache, cases)
        if with_many:
            turn["alone"] = measure_many(torch, aoticache, cases[SMALL], tensors[:1], FOLDER)
            turn["many"] = measure_many(torch, aoticache, cases[SMALL], tensors, FOLDER_OF_MANY)
        found.append(turn)
    return least(found)


def play_first(torch, ours):
    """Milliseconds to the first result of a compiled kernel, PyTorch being there."""
    tensor, begun = -torch.ones(SMALL_SHAPE), time.perf_counter_ns()
    if ours:
        aoticache = import_ours()
        enable(aoticache, operators=OPERATORS[:1])
    else:
        AotiEager(torch, PEER_ONE, OPERATORS[:1]).__enter__()
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
        "turns": lambda: play_turns(torch, names, threads == 1),
        "first-ours": lambda: play_first(torch, True),
        "first-peer": lambda: play_first(torch, False),
    }
    with torch.no_grad():
        print(json.dumps(plays[what]()))


# ---- all of them ----

def run(what, threads=1, names=()):
    command = [sys.executable, "-W", "ignore", os.path.abspath(__file__), what, str(threads), json.dumps(list(names))]
    # AOTI-eager warns that it is deprecated, once for each kernel.
    environment = {**os.environ, "TORCH_LOGS": "-all"} if what == "compile-peer" else None
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def least(found):
    """Of some {configuration: {case: value}}."""
    result = {}
    for one in found:
        for what, values in one.items():
            for name, value in values.items():
                kept = result.setdefault(what, {})
                kept[name] = min(value, kept.get(name, value))
    return result


def say(name, value, unit, peer, peer_value, target=None):
    ratio = value / peer_value
    print(json.dumps({"name": f"PyTorch on the cache, {name}", "value": round(value, 2), "unit": unit, "peer": peer,
                      "peer_value": round(peer_value, 2), "ratio": round(ratio, 4), "target": target,
                      "met": None if target is None else ratio <= target}), flush=True)


def report_small(found):
    say(SMALL, found["ours"][SMALL], "ns", "plain", found["plain"][SMALL], 0.75)
    if SMALL in found.get("peer", {}):
        say(f"{SMALL}, against AOTI-eager", found["ours"][SMALL], "ns", "AOTI-eager", found["peer"][SMALL], 0.6)
    say(f"{SMALL}, {MANY} kernels in C", found["many"]["one"], "ns", "1 kernel in C", found["alone"]["one"], 1.1)
    say(f"aten::abs, {MANY} kernels in C, each in turn", found["many"]["each"], "ns", "plain",
        found["plain each"]["each"])


def report_all(found, threads):
    for name, ours in found["ours"].items():
        if name == SMALL and threads == 1:
            continue
        title = f"{name}, {'1 thread' if threads == 1 else f'all {os.cpu_count()} threads'}"
        say(title, ours, "ns", "plain", found["plain"][name])
        if name in found.get("peer", {}):
            say(f"{title}, against AOTI-eager", ours, "ns", "AOTI-eager", found["peer"][name])


def compile_all():
    """The cases that there are kernels for."""
    thorough = bool(os.environ.get("BENCH_LONG"))
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    served = run("compile-all" if thorough else "compile-small")["served"]
    run("compile-many")
    if thorough:
        os.makedirs(PEER_ALL, exist_ok=True)
        run("compile-peer")
    if not has_table(PEER_ONE):
        print("bench_torch: no kernel of AOTI-eager's: bench_aoti_eager.py makes it", file=sys.stderr)
    return served


def main():
    try:
        import torch
    except ImportError:
        print("bench_torch: no PyTorch, nothing to measure", file=sys.stderr)
        return
    served = compile_all()
    if SMALL not in served:
        print("bench_torch: the compiled aten::abs does not answer", file=sys.stderr)
        return
    missing = [name for name in make_cases(torch) if name not in served]
    if missing:
        print(f"bench_torch: no compiled kernel answers in: {'; '.join(missing)} (BENCH_LONG=1 compiles what can be, "
              "some ten minutes, once)", file=sys.stderr)
    found = least(run("turns", 1, served) for _ in range(ROUNDS))
    report_small(found)
    report_all(found, 1)
    if os.cpu_count() > 1:
        report_all(least(run("turns", 0, served) for _ in range(ROUNDS)), 0)
    if has_table(PEER_ONE):
        first = [least(run(what) for _ in range(ROUNDS)) for what in ("first-ours", "first-peer")]
        say("first result in a new process", first[0]["first"]["ms"], "ms", "AOTI-eager", first[1]["first"]["ms"])


if __name__ == "__main__":
    play(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])) if len(sys.argv) == 4 else main()
