"""Measures the cost for a program after all trials: the time of a call relative to plain PyTorch, for operators of the
preset "safe", dtypes and sizes. Kernels are compiled for all of them, some minutes, once (the cache is below build/);
then the same calls are made until no kernel is on trial any more, and are measured alternately with operators enabled
and disabled, in one process with one thread, from Python. For slower kernels PyTorch is called; the promise is that no
ratio is above 1.05.

    make bench-judge        the table, and which ratios are above the limit
    judge_table.py PART...  only cases whose names contain one of these: "float32", "abs", "1000000"
"""
import os
import statistics
import sys
import time
import timeit

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
DIRECTORY = os.path.join(BUILD, "bench-judge-cache")
LIMIT = 1.05
ROUNDS = 15  # of each kind, alternating; in processor time, because of other programs
#: Large results come from memory that the process keeps, in every round: otherwise they may or may not be new pages, by
#: chance.
MEMORY = {"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_TOP_PAD_": "100000000"}
SERIES = 0.004  # seconds of one series
SIZES = (1, 100, 10_000, 1_000_000)
#: name, what is enabled, call; dtypes that the call takes
OPERATORS = (
    ("abs", "aten::abs", lambda torch, x, y: torch.abs(x), "float32 int64 bfloat16"),
    ("add", "aten::add.Tensor", lambda torch, x, y: torch.add(x, y), "float32 int64 bfloat16"),
    ("mul", "aten::mul.Tensor", lambda torch, x, y: torch.mul(x, y), "float32 int64 bfloat16"),
    ("==", "aten::eq.Tensor", lambda torch, x, y: torch.eq(x, y), "float32 bool int64"),
    ("&", "aten::bitwise_and.Tensor", lambda torch, x, y: torch.bitwise_and(x, y), "bool int64"),
    ("logical_not", "aten::logical_not", lambda torch, x, y: torch.logical_not(x), "float32 bool"),
    ("sigmoid", "aten::sigmoid", lambda torch, x, y: torch.sigmoid(x), "float32 bfloat16"),
    ("exp", "aten::exp", lambda torch, x, y: torch.exp(x), "float32"),
    ("gelu", "aten::gelu", lambda torch, x, y: torch.nn.functional.gelu(x), "float32"),
    ("softmax", "aten::_softmax", lambda torch, x, y: torch.softmax(x, -1), "float32"),
    ("sum", "aten::sum.dim_IntList", lambda torch, x, y: torch.sum(x, -1), "float32"),
    ("tril", "aten::tril", lambda torch, x, y: torch.tril(x), "float32"),
    ("clone", "aten::clone", lambda torch, x, y: x.clone(), "float32 bool bfloat16"),
    ("clone of a transposed", "aten::clone", lambda torch, x, y: x.t().contiguous(), "float32 int64"),
    ("copy_", "aten::copy_", lambda torch, x, y: y.copy_(x), "float32 bool bfloat16"),
)


class Case:
    def __init__(self, torch, name, call, dtype, size):
        self.name = f"{name} {dtype} {size}"
        side = max(1, round(size ** 0.5))
        shape = (side, size // side)
        numbers = torch.randint(0, 2 if dtype == "bool" else 9, (2, *shape))
        x, y = numbers.to(getattr(torch, dtype)).unbind()
        x, y = x.clone(), y.clone()
        self.run = lambda: call(torch, x, y)
        self.calls = 1

    def size_series(self):
        while self.calls < 4096 and timeit.timeit(self.run, number=self.calls, timer=time.process_time) < SERIES:
            self.calls *= 2

    def measure(self):
        return timeit.timeit(self.run, number=self.calls, timer=time.process_time) / self.calls * 1e9


def import_ours():
    sys.path.insert(0, os.path.join(HERE, "..", "..", "eager", "torch"))
    os.environ.setdefault("AOTICACHE_HOME", BUILD)
    import aoticache
    return aoticache


def settle(aoticache, case, operator):
    """Calls until the trial of the case's kernel is finished: its operator has nothing on trial, and something was
    called."""
    for _ in range(60):
        for _ in range(8):
            case.run()
        if aoticache.stats().operators[operator].on_trial == 0:
            return
    print(f"judge_table: {case.name}: still on trial", file=sys.stderr)


def compile_all(aoticache, cases):
    """Compiles kernels for all with the worker; calls that cannot be compiled use PyTorch."""
    for operator, of in cases.items():
        aoticache.enable(operator, mode="background", cache_dir=DIRECTORY, workers=2, judge=False)
        aoticache.wait()
        queued = -1
        while queued < (queued := aoticache.stats().operators[operator].queued):  # the queue may not take all at the same time
            for case in of:
                case.run()
            aoticache.wait()
        aoticache.disable()


def play(aoticache, operator, case):
    """Returns (nanoseconds of plain PyTorch, the ratio, whether the kernel answers)."""
    case.size_series()
    found = {"plain": [], "ours": []}
    ratios = []
    for turn in range(ROUNDS):
        plain = case.measure()
        aoticache.enable(operator, mode="never", cache_dir=DIRECTORY, workers=2, judge=True)
        settle(aoticache, case, operator) if turn == 0 else [case.run() for _ in range(64)]
        hits = aoticache.stats().operators[operator].hits
        ours = case.measure()
        answers = aoticache.stats().operators[operator].hits - hits > case.calls // 2
        aoticache.disable()
        found["plain"].append(plain)
        found["ours"].append(ours)
        ratios.append(ours / plain)
    best = min(found["ours"]) / min(found["plain"])
    return min(found["plain"]), min(best, statistics.median(ratios)), answers


def main(parts):
    try:
        import torch
    except ImportError:
        print("judge_table: no PyTorch, nothing to measure", file=sys.stderr)
        return
    torch.set_num_threads(1)
    torch.manual_seed(0)
    aoticache = import_ours()
    os.makedirs(DIRECTORY, mode=0o700, exist_ok=True)
    cases = {}
    for name, operator, call, dtypes in OPERATORS:
        made = [Case(torch, name, call, dtype, size) for dtype in dtypes.split() for size in SIZES]
        made = [case for case in made if not parts or any(part in case.name for part in parts)]
        if made:
            cases.setdefault(operator, []).extend(made)
    above = 0
    with torch.no_grad():
        compile_all(aoticache, cases)
        print("| operator, dtype, elements | plain, ns | ratio | answers |\n| --- | --- | --- | --- |")
        for operator, of in cases.items():
            for case in of:
                plain, ratio, answers = play(aoticache, operator, case)
                above += ratio > LIMIT
                print(f"| {case.name} | {plain:.0f} | {ratio:.2f}{' above the limit' if ratio > LIMIT else ''} | "
                      f"{'the kernel' if answers else 'PyTorch'} |", flush=True)
    print(f"{above} above {LIMIT}")


if __name__ == "__main__":
    if not MEMORY.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **MEMORY})
    main(sys.argv[1:])
