"""Benchmark: the first result of torch.compile in a fresh machine's state, with everything in the cache (docs/torch-compile.md).

For each program, in processes of their own: the seconds from the first call to its result, once PyTorch's compiler has been
imported (two seconds more for everybody), and the processor's seconds of it, which a busy machine does not change,
- with the cache full, an empty directory of PyTorch's and no compiler on the PATH,
- PyTorch's own, with its local directory warm (the peer),
- PyTorch's portable artifacts loaded into an empty directory, where it needs a compiler (ROUNDS of one).
The first two by turns, the median of ROUNDS. Last, AT_ONCE processes that all start cold with one cache, against one.

Prints one JSON object per line, as the benchmarks of `make bench` do. By hand: `make bench-compile`. It takes ten minutes.
"""
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROUNDS = 3
AT_ONCE = 8
GOAL, WORST = 0.5, 1.0

PROGRAM = """
import json, resource, sys, time
import torch, torch._inductor.compile_fx
torch.manual_seed(0)
name, ours, load, save = sys.argv[1:]
nn = torch.nn
class Step:
    def __init__(self, model):
        self.forward = torch.compile(model)
    def __call__(self, *arguments):
        self.forward(*arguments).square().mean().backward()
PROGRAMS = {
    "pointwise": lambda: ((lambda x: x.sin() * 2 + x.relu()), [torch.randn(1000)]),
    "reductions": lambda: ((lambda x: x.softmax(1).sum(0) + x.mean() + x.amax()), [torch.randn(64, 100)]),
    "bfloat16": lambda: ((lambda x: x.tanh() * x + x.exp()), [torch.randn(512).bfloat16()]),
    "layers": lambda: (nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)), [torch.randn(16, 64)]),
    "training step": lambda: (Step(nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))),
                              [torch.randn(16, 64)]),
    "convolutions": lambda: (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3),
                                           nn.ReLU(), nn.AdaptiveAvgPool2d(1)).eval(), [torch.randn(2, 3, 16, 16)]),
    "transformer": lambda: (nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True), 2,
                                                  enable_nested_tensor=False), [torch.randn(2, 16, 64)]),
}
function, arguments = PROGRAMS[name]()
def processor():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
begun, spent = time.perf_counter(), processor()
if ours == "ours":
    import aoticache
    aoticache.install_compile_cache()
if load:
    torch.compiler.load_cache_artifacts(open(load, "rb").read())
(function if isinstance(function, Step) else torch.compile(function))(*arguments)
seconds, spent = time.perf_counter() - begun, processor() - spent
if save:
    open(save, "wb").write(torch.compiler.save_cache_artifacts()[0])
counts = vars(aoticache.stats().compile["inductor-cpp"]) if ours == "ours" else {}
print(json.dumps({"seconds": seconds, "processor": spent, "counts": counts}))
"""
NAMES = ("pointwise", "reductions", "bfloat16", "layers", "training step", "convolutions", "transformer")


class Folders:
    """Temporary folders, removed at the end."""

    def __init__(self):
        self.top = tempfile.mkdtemp(prefix="aoticache-bench-")

    def make(self):
        return tempfile.mkdtemp(dir=self.top)


def start(folders, name, ours, inductor=None, cache="", load="", save="", compiler=True):
    variables = {**os.environ, "PYTHONPATH": os.path.join(TOP, "eager", "torch"), "AOTICACHE_HOME": BUILD,
                 "AOTICACHE_CONFIG": "", "AOTICACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": inductor or folders.make()}
    if not compiler:
        variables["PATH"] = folders.make()
    words = [sys.executable, "-W", "ignore", "-c", PROGRAM, name, "ours" if ours else "own", load, save]
    return subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True)


def finish(process):
    said = process.communicate()[0]
    if process.returncode != 0:
        raise RuntimeError(f"{process.args[5:]} ended with status {process.returncode}")
    return json.loads(said.splitlines()[-1])


def run(*arguments, **more):
    return finish(start(*arguments, **more))


def report(name, value, peer, peer_value, target=None, unit="s"):
    ratio = value / peer_value if peer_value else 0
    print(json.dumps({"name": name, "value": value, "unit": unit, "peer": peer, "peer_value": peer_value, "ratio": ratio,
                      "target": target, "met": None if target is None else ratio <= target}), flush=True)
    return ratio


def measure(folders, cache, name):
    """The ratios to PyTorch's warm directory."""
    own, artifacts = folders.make(), os.path.join(folders.make(), "artifacts")
    run(folders, name, False, inductor=own, save=artifacts)
    run(folders, name, True, cache=cache)
    portable = run(folders, name, False, load=artifacts)
    ours, warm = [], []
    for _ in range(ROUNDS):
        ours.append(run(folders, name, True, cache=cache, compiler=False))
        warm.append(run(folders, name, False, inductor=own))
    values = {}
    for what, title in (("processor", "processor time"), ("seconds", "elapsed")):
        value, peer = (statistics.median(one[what] for one in results) for results in (ours, warm))
        report(f"torch.compile, fresh state, {title}: {name}", value, "PyTorch's artifacts, fresh directory", portable[what])
        values[what] = report(f"torch.compile, fresh state, {title}: {name}", value, "PyTorch, warm directory", peer, WORST)
    return values


def processes_at_once(folders):
    begun = time.perf_counter()
    run(folders, "layers", True, cache=os.path.join(folders.make(), "cache"))
    alone = time.perf_counter() - begun
    cache, begun = os.path.join(folders.make(), "cache"), time.perf_counter()
    counts = [finish(one)["counts"] for one in [start(folders, "layers", True, cache=cache) for _ in range(AT_ONCE)]]
    together = time.perf_counter() - begun
    report(f"torch.compile, cold: {AT_ONCE} processes at once", together, "one process", alone)
    compiled, served = sum(one["misses"] for one in counts), sum(one["hits"] for one in counts)
    report(f"torch.compile, cold: libraries compiled by {AT_ONCE} processes", compiled, "libraries that each needs",
           (compiled + served) / AT_ONCE, 1.0, "")


def main():
    folders = Folders()
    try:
        cache = os.path.join(folders.make(), "cache")
        names = sys.argv[1:] or NAMES
        ratios = [measure(folders, cache, name) for name in names]
        for what in ("processor", "seconds"):
            mean = math.exp(statistics.mean(math.log(one[what]) for one in ratios))
            report(f"torch.compile, fresh state: geometric mean of the ratios, {what}", mean, "PyTorch, warm directory", 1.0,
                   GOAL, "")
        processes_at_once(folders)
    finally:
        shutil.rmtree(folders.top, ignore_errors=True)


if __name__ == "__main__":
    main()
