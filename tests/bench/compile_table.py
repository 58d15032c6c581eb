"""Benchmark: the first result of torch.compile in a fresh machine's state, with everything in the cache (docs/performance.md).

For each program of tests/python/compile_cache/compile_programs.py, in separate processes: the seconds from installing the cache to
the program's results, once PyTorch's compiler has been imported (two seconds more in every case), and the processor
seconds, which depend less on other load,
- with the cache exported and imported, an empty directory for PyTorch and no compiler on the PATH,
- with PyTorch's own cache, its local directory warm (the baseline),
- with PyTorch's portable artifacts loaded into an empty directory, for which it needs a compiler (one run, some
  programs).
The first two alternate, with the median of ROUNDS. Served programs must start no process and give the bits of the
process that compiled. Last, AT_ONCE processes that all start cold with one cache, compared with one process, and
AT_ONCE that find everything in it; and the same with PyTorch alone.

Prints one JSON object per line, as the benchmarks of `make bench` do. By hand: `make bench-compile [PROGRAMS='...']`. It takes
half an hour. Programs whose package is not installed (transformers, torchvision; PYTHONPATH may have them) are skipped.
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
import traceback

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(TOP, "tests", "python", "compile_cache"), os.path.join(TOP, "eager", "torch")]
import compile_programs  # noqa: E402
import torch._inductor.compile_fx  # noqa: E402, F401 - for the forked processes

sys.dont_write_bytecode = False  # an installed package has its bytecode; without it each process would compile the package
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
TOOL = os.path.join(BUILD, "bin", "aoticache")
ROUNDS = int(os.environ.get("ROUNDS", "3"))
AT_ONCE = 8
GOAL, WORST, TENTH, TOGETHER = 0.5, 1.0, 0.1, 1.3
PORTABLE = ("pointwise", "chain", "dynamic", "training", "attention", "bert")  # programs that are measured with artifacts


class Directories:
    """Temporary directories, removed at the end."""

    def __init__(self):
        self.top = tempfile.mkdtemp(prefix="aoticache-bench-")

    def make(self):
        return tempfile.mkdtemp(dir=self.top)


def variables(cache):
    return {**os.environ, "AOTICACHE_HOME": BUILD, "AOTICACHE_CONFIG": "", "AOTICACHE_DIR": cache,
            "AOTICACHE_KEYS": os.path.join(BUILD, "bench-keys")}


class Player:
    """A process that runs programs. It is forked from this one, which has imported PyTorch's compiler and done nothing
    with it, so that the import happens once."""

    def __init__(self, words, environment):
        self.words = words
        self.channel, out = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self.play(out, environment)
        os.close(out)

    def play(self, out, environment):
        status = 1
        try:
            os.environ.clear()
            os.environ.update(environment)
            os.dup2(out, 1)
            sys.argv = [compile_programs.__file__, "--ready", *self.words]
            status = compile_programs.main()
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def result(self):
        with open(self.channel) as file:
            said = file.read()
        if os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]) != 0:
            raise RuntimeError(f"{self.words} failed: {said[-1000:]}")
        return json.loads(said.splitlines()[-1])


def start(subdirectories, *words, inductor=None, cache="", compiler=True):
    """Starts a process that runs programs; without a cache PyTorch is not changed."""
    environment = {**variables(cache), "TORCHINDUCTOR_CACHE_DIR": inductor or subdirectories.make()}
    if not compiler:
        environment["PATH"] = subdirectories.make()
    return Player(words if cache else ("--uninstalled", *words), environment)


def finish(player):
    """Returns its report; `seconds`, `processor` and `compiler` are of setup and the last program together."""
    found = player.result()
    for name, program in found["programs"].items():
        if not program["same"]:
            raise RuntimeError(f"{name} has other results than eager PyTorch")
    for what in ("seconds", "processor", "compiler"):
        found[what] = program[what] + found["setup"][what]
    found["digest"] = program["digest"]
    return found


def run(*arguments, **more):
    return finish(start(*arguments, **more))


def report(name, value, peer, peer_value, target=None, unit="s"):
    ratio = value / peer_value if peer_value else 0
    print(json.dumps({"name": name, "value": value, "unit": unit, "peer": peer, "peer_value": peer_value, "ratio": ratio,
                      "target": target, "met": None if target is None else ratio <= target}), flush=True)
    return ratio


def moved(subdirectories, cache):
    """Returns the cache as another machine receives it."""
    archive, other = os.path.join(subdirectories.make(), "warm.tar"), os.path.join(subdirectories.make(), "cache")
    subprocess.run([TOOL, "export", archive], env=variables(cache), check=True, capture_output=True)
    subprocess.run([TOOL, "import", archive], env=variables(other), check=True, capture_output=True)
    return other


def check(name, filled, served):
    """Checks that a served program starts nothing, compiles nothing and gives the same bits."""
    counts = served["counts"]["inductor-cpp"]
    said = [one for one in served["warnings"] if "aoticache" in one]
    if served["started"] or counts["misses"] or said:
        raise RuntimeError(f"{name} was not served: {served['started'][:2]} {counts} {said[:2]}")
    if served["digest"] != filled[name]["digest"]:
        raise RuntimeError(f"{name} gave other bits than the process that compiled it")


def fill(subdirectories, names):
    """Runs all programs in one process without the cache and one with it; returns PyTorch's directory, the cache, and
    the results."""
    own, cache = subdirectories.make(), os.path.join(subdirectories.make(), "cache")
    finish(start(subdirectories, *names, inductor=own))
    filled = finish(start(subdirectories, *names, cache=cache))
    return own, moved(subdirectories, cache), filled["programs"]


def measure(subdirectories, own, cache, filled, name):
    """Prints the ratios to PyTorch's warm directory `own`, and to its artifacts."""
    artifacts = os.path.join(subdirectories.make(), "artifacts")
    ours, warm = [], []
    for _ in range(ROUNDS):
        ours.append(run(subdirectories, name, cache=cache, compiler=False))
        check(name, filled, ours[-1])
        warm.append(run(subdirectories, name, inductor=own))
    portable = None
    if name in PORTABLE:
        run(subdirectories, name, "--save", artifacts, inductor=own)
        portable = run(subdirectories, name, "--load", artifacts)
    values = {}
    for what, title in (("processor", "processor time"), ("seconds", "elapsed")):
        value, peer = (statistics.median(one[what] for one in results) for results in (ours, warm))
        title = f"torch.compile, fresh state, {title}: {name}"
        values[what, "warm"] = report(title, value, "PyTorch, warm directory", peer, WORST)
        if portable is not None:
            values[what, "portable"] = report(title, value, "PyTorch's artifacts, fresh directory", portable[what], TENTH)
    report(f"torch.compile, processes started: {name}", 0, "PyTorch, warm directory", len(warm[-1]["started"]), unit="")
    return values


def at_once(subdirectories, name, cached):
    """Runs one process, and then AT_ONCE that start together, cold, with one cache, or with one directory for PyTorch.
    The same number again finds everything there: the cost that no cache can save."""
    what = "torch.compile" if cached else "PyTorch alone"
    goal = TOGETHER if cached else None
    results = []
    for count, is_cold in ((1, True), (AT_ONCE, True), (AT_ONCE, False)):
        if is_cold:
            cache, own = (os.path.join(subdirectories.make(), "cache") if cached else ""), subdirectories.make()
        begun = time.perf_counter()
        ended = [finish(one) for one in [start(subdirectories, name, cache=cache, inductor=None if cached else own)
                                         for _ in range(count)]]
        sums = {one: sum(process[one] for process in ended) for one in ("processor", "compiler")}
        results.append({"elapsed": time.perf_counter() - begun, **sums, "ended": ended})
    alone, together, warm = results
    titles = {"elapsed": "elapsed", "processor": "processor time", "compiler": "the compiler's processor time"}
    for one, title in titles.items():
        report(f"{what}, cold: {AT_ONCE} processes at once, {title}: {name}", together[one], "one process", alone[one], goal)
    for one in ("elapsed", "processor"):
        report(f"{what}, warm: {AT_ONCE} processes at once, {titles[one]}: {name}", warm[one], "one cold process", alone[one])
    if cached:
        once_each(name, together["ended"], alone["ended"][0])


def once_each(name, together, alone):
    """Checks that each artifact is made by one of the processes."""
    for kind, title in (("inductor-cpp", "libraries compiled"), ("inductor-graph", "graphs lowered"),
                        ("aotautograd", "results of AOTAutograd made")):
        made = sum(one["counts"][kind]["misses"] for one in together)
        report(f"torch.compile, cold: {title} by {AT_ONCE} processes: {name}", made, "by one process",
               alone["counts"][kind]["misses"], 1.0, "")


def chosen_programs():
    names = sys.argv[1:] or compile_programs.MEASURED
    unknown = [name for name in names if name not in compile_programs.PROGRAMS]
    if unknown:
        sys.exit(f"no program {', '.join(unknown)}; there are: {', '.join(compile_programs.PROGRAMS)}")
    for name in names:
        package = compile_programs.missing_package(name)
        if package is None:
            yield name
        else:
            print(f"skip - {name}: {package} is not installed", file=sys.stderr, flush=True)


def main():
    subdirectories = Directories()
    try:
        names = list(chosen_programs())
        full = fill(subdirectories, names)
        ratios = [measure(subdirectories, *full, name) for name in names]
        for what, against, peer, goal in (("processor", "warm", "PyTorch, warm directory", GOAL),
                                          ("seconds", "warm", "PyTorch, warm directory", GOAL),
                                          ("seconds", "portable", "PyTorch's artifacts", TENTH)):
            logarithms = [math.log(one[what, against]) for one in ratios if (what, against) in one]
            if logarithms:
                report(f"torch.compile, fresh state: geometric mean of {len(logarithms)} ratios, {what}",
                       math.exp(statistics.mean(logarithms)), peer, 1.0, goal, "")
        for cached in (True, False):
            at_once(subdirectories, "training", cached)
    finally:
        shutil.rmtree(subdirectories.top, ignore_errors=True)


if __name__ == "__main__":
    main()
