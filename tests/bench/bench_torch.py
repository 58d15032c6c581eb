"""Benchmark: PyTorch's operators from Python: plain eager, through PyTorch's own AOTI-eager, and with aoticache.enable(),
with one compiled kernel in the operator's table and with 1 000.

The 1 000 are different sizes of one tensor that all have entries in the table of `aten::abs`; a kernel for symbolic shapes
answers them, so that they take one compile; what is measured then is a call that this kernel answers. (Tables of a
hundred thousand kernels of their own are bench_holder.c's.)

Every configuration is a process of its own, since operators are replaced for a whole process; they take turns, and values
are the least of all series, since other programs on the machine only add to them. Kernels are kept in
$BUILD/bench-torch. Only the small `aten::abs` is compiled where it is missing: the rest is left out, which is said, unless
BENCH_LONG is set (minutes, once). AOTI-eager's kernels are bench_aoti_eager.py's.

Prints one JSON object per line (scripts/bench collects them). Environment: BUILD, the build folder; BENCH_LONG;
BENCH_ROUNDS: turns.
"""
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
FOLDER = os.path.join(BUILD, "bench-torch")
AOTI_EAGER = os.path.join(BUILD, "bench-aoti-eager", "1-kernels")
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
MANY, REPEATS, SERIES_NS, MOST_CALLS = 1000, 7, 4e6, 2000
SMALL = (4, 4)
OPERATORS = ("aten::abs", "aten::add.Tensor", "aten::mul.Tensor", "aten::tanh", "aten::relu", "aten::_softmax",
             "aten::native_layer_norm", "aten::mm")
SIZES = (1, 1000, 1000000)


# ---- what is measured ----

def make_cases(torch):
    """{name: function}; the chain is four operators."""
    cases, F = {}, torch.nn.functional
    small = -torch.ones(SMALL)
    cases["aten::abs, 4x4"] = lambda: torch.abs(small)
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


# ---- configurations, each in a process of its own ----

def import_ours():
    sys.path.insert(0, os.path.join(HERE, "..", "..", "eager", "torch"))
    os.environ.setdefault("AOTICACHE_HOME", BUILD)
    import aoticache
    return aoticache


def served_by(aoticache, call):
    """Whether all its operators are answered by compiled kernels."""
    call()
    before, _, after = aoticache.stats(), call(), aoticache.stats()
    return (after.total("hits") > before.total("hits") and after.total("fallbacks") == before.total("fallbacks")
            and after.total("refused") == before.total("refused"))


def play_plain(torch, cases):
    return {name: measure(call) for name, call in cases.items()}


def play_aoti_eager(torch, cases):
    library = torch.library.Library("aten", "IMPL")
    library._impl_with_aoti_compile("abs", "CPU")
    name = "aten::abs, 4x4"
    found = {name: measure(cases[name])}
    del library
    return found


def enable(aoticache, mode="never", dynamic="never", operators=OPERATORS):
    enabled = aoticache.enable(*operators, mode=mode, dynamic=dynamic, cache_dir=FOLDER, workers=2)
    if enabled.pending:  # the bridge is compiled
        aoticache.wait()
        enabled = aoticache.enable(*operators, mode=mode, dynamic=dynamic)
    assert len(enabled.operators) == len(operators), f"{enabled}"


def play_ours(torch, cases):
    aoticache = import_ours()
    enable(aoticache)
    found = {name: measure(call) for name, call in cases.items() if served_by(aoticache, call)}
    return {**found, "interface": aoticache.stats().interface}


def play_many(torch, cases):
    aoticache = import_ours()
    enable(aoticache, dynamic="always", operators=OPERATORS[:1])
    name = "aten::abs, 4x4"
    assert served_by(aoticache, cases[name])
    found = {"alone": measure(cases[name])}
    for size in range(2, MANY + 1):
        torch.abs(torch.ones(size, 3))
    found[name] = measure(cases[name])
    return {**found, "entries": aoticache.stats().operators["aten::abs"].entries}


def play_first(torch, ours):
    """Milliseconds to the first result of a compiled kernel, PyTorch being there."""
    tensor, begun = -torch.ones(SMALL), time.perf_counter_ns()
    if ours:
        aoticache = import_ours()
        enable(aoticache, operators=OPERATORS[:1])
    else:
        library = torch.library.Library("aten", "IMPL")
        library._impl_with_aoti_compile("abs", "CPU")
    result = torch.abs(tensor)
    found = {"first": (time.perf_counter_ns() - begun) / 1e6}
    assert torch.equal(result, -tensor)
    assert not ours or aoticache.stats().total("fallbacks") == 0
    return found


def play_compile(torch, cases, everything):
    aoticache = import_ours()
    wanted = cases if everything else {name: call for name, call in cases.items() if "abs, 4x4" in name}
    for mode in ("background", "wait"):
        enable(aoticache, mode=mode)
        for call in wanted.values():
            call()
        aoticache.wait()
        aoticache.disable()
    enable(aoticache, mode="wait", dynamic="always", operators=OPERATORS[:1])
    for size in (2, 3, 5):
        torch.abs(torch.ones(size, 3))
    return {"compiles": aoticache.stats().total("compiles")}


def play(what, threads):
    import torch
    torch.set_num_threads(int(threads) or os.cpu_count())
    torch.manual_seed(0)
    with torch.no_grad():
        if what.startswith("first"):
            found = play_first(torch, what == "first-ours")
        elif what.startswith("compile"):
            found = play_compile(torch, make_cases(torch), what == "compile-all")
        else:
            found = {"plain": play_plain, "aoti-eager": play_aoti_eager, "ours": play_ours,
                     "many": play_many}[what](torch, make_cases(torch))
    print(json.dumps(found))


# ---- all of them ----

def run(what, threads=1):
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": AOTI_EAGER} if "aoti" in what else None
    command = [sys.executable, "-W", "ignore", os.path.abspath(__file__), what, str(threads)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def say(name, value, unit, peer, peer_value, target=None):
    ratio = value / peer_value
    print(json.dumps({"name": name, "value": round(value, 2), "unit": unit, "peer": peer,
                      "peer_value": round(peer_value, 2), "ratio": round(ratio, 4), "target": target,
                      "met": None if target is None else ratio <= target}), flush=True)


def least(found, name):
    return min((one[name] for one in found if name in one), default=None)


def take_turns(kinds, threads):
    found = {what: [] for what in kinds}
    for _ in range(ROUNDS):
        for what in kinds:
            found[what].append(run(what, threads))
    return found


def report_small(found):
    name = "aten::abs, 4x4"
    ours, plain, many = least(found["ours"], name), least(found["plain"], name), least(found["many"], name)
    if ours is None:
        print("bench_torch: the compiled aten::abs does not answer", file=sys.stderr)
        return
    say(f"PyTorch on the cache, {name}", ours, "ns", "plain", plain, 0.75)
    if found.get("aoti-eager"):
        say(f"PyTorch on the cache, {name}, AOTI-eager", ours, "ns", "AOTI-eager",
            least(found["aoti-eager"], name), 0.6)
    entries = found["many"][0]["entries"]
    say(f"PyTorch on the cache, {name}, {entries} entries", many, "ns", "1 entry, same process",
        least(found["many"], "alone"), 1.1)


def report_all(found, threads):
    missing = []
    for name, plain in found["plain"][0].items():
        ours = least(found["ours"], name)
        if ours is None:
            missing.append(name)
        elif name != "aten::abs, 4x4" or threads != 1:
            say(f"PyTorch on the cache, {name}, {threads or 'all'} thread{'s' * (threads != 1)}", ours, "ns", "plain",
                least(found["plain"], name))
    if missing and threads == 1:
        print(f"bench_torch: no compiled kernel answers in: {'; '.join(missing)} (BENCH_LONG=1 compiles what can be, "
              "minutes, once)", file=sys.stderr)


def main():
    try:
        import torch  # noqa: F401
    except ImportError:
        print("bench_torch: no PyTorch, nothing to measure", file=sys.stderr)
        return
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    run("compile-all" if os.environ.get("BENCH_LONG") else "compile-small")
    peer = os.path.exists(os.path.join(AOTI_EAGER, "aoti_eager", "aten", "cpu", "abs.json"))
    if not peer:
        print("bench_torch: no kernels of AOTI-eager's: bench_aoti_eager.py makes them", file=sys.stderr)
    found = take_turns(["plain", "ours", "many"] + ["aoti-eager"] * peer, 1)
    report_small(found)
    report_all(found, 1)
    if any(name.endswith("1000000") for one in found["ours"] for name in one):
        report_all(take_turns(["plain", "ours"], 0), 0)
    first = take_turns(["first-ours"] + ["first-aoti-eager"] * peer, 1)
    if peer:
        say("PyTorch on the cache, first result in a new process", least(first["first-ours"], "first"), "ms",
            "AOTI-eager", least(first["first-aoti-eager"], "first"))


if __name__ == "__main__":
    play(*sys.argv[1:]) if len(sys.argv) == 3 else main()
