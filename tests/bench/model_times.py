"""Measures thirty models at sizes where the mathematics counts: our runtime without PyTorch, aoti_load_package and ONNX Runtime.

`make models` runs it. It writes tests/bench/model_times.json, the first part of docs/results/models.md from that file,
BUILD/models.json and docs/images/models.svg. Each model (tests/python/models/large_models.py) is compiled by PyTorch to a package and to a frozen
package, and exported to ONNX. Three processes (model_player.py) run it alternately, with one thread and with two. Fresh
processes give the time to the first output. All outputs are compared with those of eager PyTorch. Prints one JSON object per
figure, as the other benchmarks do.

    model_times.py [--resume] [--write] [--render] [--turns 7] [MODEL...]

MODEL...   measure only these, and write no document unless --write is given
--resume   skip models that BUILD/models has a result for; otherwise all are measured
--render   only write docs/results/models.md from the recorded figures
Compiled files are kept below BUILD/models and used again as long as the models and PyTorch's version stay the same.
transformers, torchvision, onnx, onnxscript and onnxruntime are used if PYTHONPATH has them; missing ones are reported.
Environment: BUILD, the build directory.
"""
import argparse
import concurrent.futures
import fcntl
import hashlib
import importlib.metadata
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(1, os.path.join(ROOT, "tests", "python", "models"))

import models  # noqa: E402 - it is next to large_models.py
from asked_process import AskedProcess, Ended  # noqa: E402
from large_models import LARGE  # noqa: E402

DIRECTORY = os.path.join(models.BUILD, "models")
RECORD = os.path.join(HERE, "model_times.json")
FIGURES = os.path.join(models.BUILD, "models.json")
PLAYER = os.path.join(HERE, "model_player.py")
SECONDS = 0.12  # of one turn
FRESH_ROUNDS = 3
THREADS = (1, 2)
LIMIT = models.TOLERANCE["rtol"]
TO_TORCH, TO_TORCH_ANY, TO_ONNX = 1.0, 1.15, 1.0  # limits: of geometric means, and of any model
PACKAGES = {"default": False, "frozen": True}  # Inductor's `freezing`
KINDS = {"ours": ["default.pt2", "frozen.pt2"], "torch": ["default.pt2", "frozen.pt2"], "onnxruntime": ["model.onnx"]}


# ---- compiling ----

def directory_of(name):
    return os.path.join(DIRECTORY, name.replace(" ", "-"))


def read_json(name, file):
    try:
        with open(os.path.join(directory_of(name), file)) as source:
            return json.load(source)
    except (OSError, ValueError):
        return None


def write_json(name, file, content):
    path = os.path.join(directory_of(name), file)
    with open(path + ".new", "w") as target:
        json.dump(content, target, indent=1)
    os.rename(path + ".new", path)


def made_of():
    """Returns a digest of what a model's files depend on."""
    digest = hashlib.sha256(json.dumps([os.cpu_count(), version_of("torch"), version_of("onnxscript")]).encode())
    for file in ("real_models.py", "large_models.py"):
        with open(os.path.join(ROOT, "tests", "python", "models", file), "rb") as source:
            digest.update(source.read())
    return digest.hexdigest()


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def short(error):
    message = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return " ".join(message.split())[:200].replace("|", "/")


def export_onnx(torch, module, inputs, path):
    if version_of("onnxruntime") is None:
        return "not tried: onnxruntime is not installed"
    if version_of("onnxscript") is None:
        return "not tried: onnxscript is not installed"
    with torch.no_grad():
        torch.onnx.export(module, inputs, dynamo=True, verbose=False).save(path)
    return "made"


def attempt(make):
    try:
        return make()
    except Exception as error:  # the reason is in the document
        return short(error)


def prepare(name):
    """Compiles the packages, exports to ONNX, and keeps the inputs and eager PyTorch's outputs. Runs in its own process."""
    import numpy
    import torch
    import torch._inductor.package

    from large_models import build
    torch.set_num_threads(os.cpu_count())  # Inductor writes any other number into the code
    directory = directory_of(name)
    os.makedirs(directory, exist_ok=True)
    about = {"made of": made_of()}
    try:
        module, inputs = build(torch, name)
    except ImportError as error:
        write_json(name, "about.json", {**about, "missing": "not tried: %s" % error})
        return
    with torch.no_grad():
        eager = models.flat(module(*inputs))
    for kind, tensors in (("input", inputs), ("eager", eager)):
        for i, tensor in enumerate(tensors):
            numpy.save(os.path.join(directory, "%s%d.npy" % (kind, i)), tensor.contiguous().numpy())

    def compile_package(package, freezing):
        models.compile_package(torch, module, inputs, os.path.join(directory, package + ".pt2"), freezing)
        return "made"
    for package, freezing in PACKAGES.items():
        about[package + ".pt2"] = attempt(lambda: compile_package(package, freezing))
    about["model.onnx"] = attempt(lambda: export_onnx(torch, module, inputs, os.path.join(directory, "model.onnx")))
    write_json(name, "about.json", about)


def is_prepared(name):
    """Returns whether a model is compiled. If something was not installed then, it is compiled again."""
    about = read_json(name, "about.json") or {}
    return about.get("made of") == made_of() and not any(said.startswith("not tried") for said in about.values())


def prepare_all(names):
    """Compiles as many models at a time as there are processors. Each takes a minute or more."""
    wanted = [name for name in names if not is_prepared(name)]

    def run(name):
        done = subprocess.run([sys.executable, "-W", "ignore", __file__, "--prepare", name], capture_output=True, text=True)
        print("model_times: %s %s" % (name, "is compiled" if done.returncode == 0 else "is not: " + done.stderr[-2000:]),
              file=sys.stderr)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as executor:
        list(executor.map(run, wanted))


# ---- running ----

class Failed(Exception):
    pass


class Player(AskedProcess):
    """A process that has loaded a model's files and waits for requests to run them."""

    def __init__(self, kind, name, threads, packages, outputs=""):
        words = [sys.executable, "-W", "ignore", PLAYER, kind, directory_of(name), str(threads), outputs, *packages]
        self.begun = time.monotonic()
        try:
            super().__init__(words, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
        except Ended as error:
            raise Failed(short(str(error))) from error

    def play(self, package):
        try:
            return self.ask("%s %g" % (package, SECONDS))
        except Ended as error:
            raise Failed(short(str(error))) from error


def difference(name, kind, package, outputs):
    """Returns the largest difference from eager PyTorch's output, relative to its largest element."""
    import numpy
    largest, i = 0.0, 0
    while os.path.exists(os.path.join(directory_of(name), "eager%d.npy" % i)):
        wanted = numpy.load(os.path.join(directory_of(name), "eager%d.npy" % i)).astype(numpy.float64)
        found = numpy.load(os.path.join(outputs, "%s-%s-%d.npy" % (kind, package, i))).astype(numpy.float64)
        if found.shape != wanted.shape:
            raise Failed("an output of %s, %s wanted" % (list(found.shape), list(wanted.shape)))
        if not 0 < abs(wanted).max() < math.inf:
            raise Failed("an output of zeros, or not finite, shows nothing")
        if not numpy.isfinite(found).all():
            raise Failed("not finite")
        largest, i = max(largest, float(abs(found - wanted).max() / abs(wanted).max())), i + 1
    return largest


def check(name, kind, packages):
    """Returns {package: "runs" and the difference from eager PyTorch, or why it does not run}."""
    found = {}
    with tempfile.TemporaryDirectory() as outputs:
        try:
            Player(kind, name, 1, packages, outputs).close()
        except Failed as error:
            if len(packages) == 1:
                return {packages[0]: {"says": str(error)}}
            return {package: found for one in packages for package, found in check(name, kind, [one]).items()}
        for package in packages:
            try:
                far = difference(name, kind, package, outputs)
                found[package] = {"says": "runs" if far <= LIMIT else "differs by %.2g" % far, "difference": far}
            except Failed as error:
                found[package] = {"says": str(error)}
    return found


def check_all(name, about):
    checks = {}
    for kind, packages in KINDS.items():
        made = [package for package in packages if about[package] == "made"]
        checks[kind] = {package: {"says": about[package]} for package in packages if package not in made}
        if made:
            checks[kind].update(check(name, kind, made))
    return checks


def measure_runs(name, threads, running, turns):
    """Returns the median in milliseconds for each kind and package. The three processes run alternately."""
    players = {kind: Player(kind, name, threads, packages) for kind, packages in running.items() if packages}
    times = {(kind, package): [] for kind in players for package in running[kind]}
    order = sorted(times, key=lambda pair: pair[1])  # runs of the same package follow each other
    for _ in range(turns):
        for kind, package in order:
            times[kind, package] += players[kind].play(package)
    for player in players.values():
        player.close()
    return {"%s %s" % pair: statistics.median(found) * 1e3 for pair, found in times.items()}


def measure_fresh(name, running):
    """Returns figures of fresh processes with one thread: ms to the first output, ms of the imports, MiB of peak memory."""
    found = {kind: [] for kind, packages in running.items() if packages}
    for _ in range(FRESH_ROUNDS):
        for kind, each in found.items():
            player = Player(kind, name, 1, running[kind][:1])
            player.close()
            each.append(((player.first["at"] - player.begun) * 1e3, player.first["import"] * 1e3,
                         player.first["memory"] / 2**20))
    rows = {kind: dict(zip(("first", "import", "memory"), map(statistics.median, zip(*each)))) for kind, each in found.items()}
    if running["ours"]:
        rows["C"] = measure_tool(name, running["ours"][0])
    return rows


def measure_tool(name, package):
    """Returns the same figures for `aoticache run-package`, a C program, until it ends. Its inputs are files."""
    import numpy
    words = []
    for i in range(len([file for file in os.listdir(directory_of(name)) if file.startswith("input") and file.endswith(".npy")])):
        path = os.path.join(directory_of(name), "input%d" % i)
        array = numpy.load(path + ".npy")
        array.tofile(path + ".bin")
        words += ["--input", "%s:%s=@%s" % (array.dtype, "x".join(map(str, array.shape)), path + ".bin")]
    each = []
    for _ in range(FRESH_ROUNDS):
        code, _, _, seconds, memory = models.measured([models.TOOL, "run-package", os.path.join(directory_of(name), package), "--json",
                                                       "--cache-dir", os.path.join(directory_of(name), "cache"), *words])
        if code != 0:
            return None
        each.append((seconds * 1e3, memory / 2**20))
    return dict(zip(("first", "memory"), map(statistics.median, zip(*each))))


def measure(name, turns):
    about = read_json(name, "about.json")
    if about is None or about["made of"] != made_of():
        return {"missing": "was not compiled"}
    if "missing" in about:
        return {"missing": about["missing"]}
    checks = check_all(name, about)
    running = {kind: [package for package in KINDS[kind] if each[package]["says"] == "runs"] for kind, each in checks.items()}
    return {"checks": checks, "fresh": measure_fresh(name, running),
            "runs": {str(threads): measure_runs(name, threads, running, turns) for threads in THREADS}}


# ---- figures ----

def best(found, kind):
    """Returns the time of the faster package of a kind, or None if none runs."""
    return min((value for key, value in found.items() if key.startswith(kind + " ")), default=None)


def ratio(found, kind, peer):
    ours, theirs = best(found, kind), best(found, peer)
    return ours / theirs if ours and theirs else None


def same_package_ratios(found):
    """Returns {package: our time / PyTorch's for the same package}."""
    return {package: found["ours " + package] / found["torch " + package] for package in KINDS["ours"]
            if found.get("ours " + package) and found.get("torch " + package)}


def geometric_mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


def counted(number, word):
    return "%d %s%s" % (number, word, "" if number == 1 else "s")


def figure(name, value, unit, peer, peer_value, target):
    made = value / peer_value
    return {"name": name, "value": round(value, 4), "unit": unit, "peer": peer, "peer_value": round(peer_value, 4),
            "ratio": round(made, 4), "target": target, "met": None if target is None else made <= target}


PEERS = {"torch": "aoti_load_package", "onnxruntime": "ONNX Runtime"}


def figures_of(name, result):
    rows = []
    for threads, found in result.get("runs", {}).items():
        for kind, target in (("torch", TO_TORCH_ANY), ("onnxruntime", None)):
            ours, theirs = best(found, "ours"), best(found, kind)
            if ours and theirs:
                rows.append(figure("a run of %s, %s" % (name, counted(int(threads), "thread")), ours, "ms", PEERS[kind], theirs, target))
    fresh = result.get("fresh", {})
    for kind, peer in PEERS.items():
        if fresh.get("ours") and fresh.get(kind):
            rows.append(figure("first output of %s in a fresh Python" % name, fresh["ours"]["first"], "ms", peer, fresh[kind]["first"], None))
            rows.append(figure("resident memory of %s" % name, fresh["ours"]["memory"], "MiB", peer, fresh[kind]["memory"], None))
    return rows


def means(results):
    """Returns {(threads, peer): (geometric mean of our time / the peer's, the largest ratio, its model, how many models)}."""
    found = {}
    for threads in map(str, THREADS):
        for kind in PEERS:
            ratios = {name: ratio(result["runs"][threads], "ours", kind) for name, result in results.items() if "runs" in result}
            ratios = {name: value for name, value in ratios.items() if value}
            if ratios:
                worst = max(ratios, key=ratios.get)
                found[threads, kind] = geometric_mean(ratios.values()), ratios[worst], worst, len(ratios)
    return found


def all_figures(results):
    rows = [row for name, result in results.items() for row in figures_of(name, result)]
    for (threads, kind), (mean, _, _, count) in means(results).items():
        rows.append(figure("geometric mean of the runs of %s, %s" % (counted(count, "model"), counted(int(threads), "thread")),
                           mean, "", PEERS[kind], 1.0, TO_TORCH if kind == "torch" else TO_ONNX))
    return rows


# ---- what is recorded ----

def summarize(results, turns, loads):
    """Returns what RECORD keeps of all results: rounded times, and the figures that come from times that are not rounded."""
    return {"measured": {"torch": version_of("torch"), "onnxruntime": version_of("onnxruntime"), "onednn": models.onednn_version(),
                         "machine": processor(), "processors": os.cpu_count(), "seconds": SECONDS, "turns": turns, "loads": loads},
            "means": rounded_means(results), "frozen": frozen_figures(results),
            "models": {name: summary_of(result) for name, result in results.items()}}


def summary_of(result):
    runs = {}
    for threads, found in result["runs"].items():
        ratios = {kind: ratio(found, "ours", kind) for kind in PEERS}
        ratios["same package"] = max(same_package_ratios(found).values(), default=None)
        runs[threads] = {"ms": {key: round(value, 2) for key, value in found.items()},
                         **{key: round(value, 2) for key, value in ratios.items() if value is not None}}
    fresh = {kind: {key: round(value) for key, value in each.items()} for kind, each in result["fresh"].items() if each}
    checks = {kind: {package: {key: models.one_digit(value) if key == "difference" else value for key, value in one.items()}
                     for package, one in each.items()} for kind, each in result["checks"].items()}
    return {"runs": runs, "fresh": fresh, "checks": checks}


def rounded_means(results):
    found = {}
    for (threads, kind), (mean, largest, name, count) in means(results).items():
        found.setdefault(threads, {})[kind] = {"mean": round(mean, 2), "largest": round(largest, 2), "of": name, "models": count}
    return found


def frozen_figures(results):
    """Returns, for each number of threads, how the times of frozen packages compare with those of default ones."""
    figures = {}
    for threads in map(str, THREADS):
        found = {name: result["runs"].get(threads, {}) for name, result in results.items()}
        ratios = {name: each["ours frozen.pt2"] / each["ours default.pt2"] for name, each in found.items()
                  if each.get("ours frozen.pt2") and each.get("ours default.pt2")}
        if ratios:
            least, most = min(ratios, key=ratios.get), max(ratios, key=ratios.get)
            figures[threads] = {"mean": round(geometric_mean(ratios.values()), 2), "models": len(ratios),
                                "faster": sum(value < 1 for value in ratios.values()),
                                "least": round(ratios[least], 2), "least of": least, "most": round(ratios[most], 2), "most of": most}
    return figures


# ---- the document ----

def cell(value, digits=2):
    return "-" if value is None else "%.*f" % (digits, value)


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| %s |\n" % " | ".join(line) for line in lines)


def runs_table(record):
    columns, rows = [(str(threads), kind) for threads in THREADS for kind in PEERS], []
    for name in LARGE:
        runs = record["models"].get(name, {}).get("runs", {})
        rows.append([name, *[cell(runs.get(threads, {}).get(kind)) for threads, kind in columns]])
    return table(["model", *["%s, %s" % (KIND_NAMES[kind], counted(int(threads), "thread")) for threads, kind in columns]], rows)


def means_table(record):
    rows = [[threads, KIND_NAMES[kind], cell(each["mean"]), "%s (%s)" % (cell(each["largest"]), each["of"])]
            for threads, found in record["means"].items() for kind, each in found.items()]
    return table(["threads", "relative to", "geometric mean", "largest"], rows)


KIND_NAMES = {"C": "tool", "ours": "Python", "torch": "PyTorch", "onnxruntime": "ONNX Runtime"}


def fresh_table(record):
    rows = []
    for name in LARGE:
        fresh = record["models"].get(name, {}).get("fresh", {})
        rows.append([name, *[cell(fresh.get(kind, {}).get("first"), 0) for kind in KIND_NAMES]])
    return table(["model", *KIND_NAMES.values()], rows)


def fresh_ranges(record, key, unit):
    """Returns in words, for each kind of process, the smallest and the largest value of all models."""
    fresh = [each.get("fresh", {}) for each in record["models"].values()]
    values = {kind: [each[kind][key] for each in fresh if key in each.get(kind, {})] for kind in KIND_NAMES}
    return ", ".join("%s %d to %d %s" % (KIND_NAMES[kind], min(found), max(found), unit) for kind, found in values.items() if found)


def what_to_choose(record):
    """Returns in words how frozen packages compare with default ones."""
    return "\n".join("With %s, frozen packages take %.2f of the time of default ones (geometric mean) and are faster for %d of %s\n"
                     "(%.2f for %s to %.2f for %s)." % (
                         counted(int(threads), "thread"), each["mean"], each["faster"], counted(each["models"], "model"),
                         each["least"], each["least of"], each["most"], each["most of"])
                     for threads, each in record["frozen"].items())


def results_text(record):
    """Returns in words which packages were measured, and a list of the others."""
    differences, exceptions = [], []
    for name in LARGE:
        for kind, packages in record["models"].get(name, {}).get("checks", {}).items():
            for package, each in packages.items():
                if each["says"] == "runs":
                    differences.append((each["difference"], name, kind))
                else:
                    exceptions.append("- %s, %s, %s: %s\n" % (name, KIND_NAMES[kind], package, each["says"]))
        if name not in record["models"]:
            exceptions.append("- %s: not measured\n" % name)
    far, name, _ = max(differences, default=(0, "-", ""))
    return "The largest\ndifference is %g (%s).\n%s" % (far, name, "\nExceptions:\n\n" + "".join(exceptions) if exceptions else "")


def processor():
    with open("/proc/cpuinfo") as file:
        name = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown processor")
    return "%s of %s" % (counted(os.cpu_count(), "processor"), name)


HEAD = """# Models that run without PyTorch

Made by `make models` (tests/bench/model_times.py) from `tests/bench/model_times.json`, which has all times;
not edited by hand.

Thirty models (tests/python/models/large_models.py: float32, random weights from a fixed seed) run in three ways:

- *ours*: our runtime, without PyTorch
- *PyTorch*: `aoti_load_package` of PyTorch %(torch)s, with the same package
- *ONNX Runtime*: the CPU provider of ONNX Runtime %(onnxruntime)s, with the result of `torch.onnx.export`

All three are called from Python with NumPy arrays. Their processes run alternately, %(turns)s times %(seconds)g s each, and the median
counts. Machine: %(machine)s; load average %(before)s before and %(after)s after. Ours uses OpenBLAS and
oneDNN %(onednn)s of the machine ([packages.md](../packages.md) says what happens without them). PyTorch and ONNX Runtime
contain their own libraries.

Each model is compiled to a default package and to a *frozen* one (Inductor's `freezing`, which lays out the weights for oneDNN).
All ratios are our time divided by theirs, with the faster package of each side. Below 1, ours is faster.

%(means)s
%(busy)s**Which package to make:** compile with `freezing` if the weights need not be replaced at run time.
%(choice)s
Default packages keep the weights in plain order, so that they can be replaced, and take less memory.

![Times of runs relative to PyTorch's and to ONNX Runtime's](../images/models.svg)

## Runs

%(runs)s
## Fresh processes

Milliseconds from the start of the process to the first output, with one thread and the default package, which is in the cache;
medians of %(rounds)d. *tool*: `aoticache run-package`, a C program, until it ends. *Python*: our runtime in Python. Peak memory until
then: %(memory)s. Imports, NumPy included: %(imports)s.

%(fresh)s
## Results of these models

A package is measured if its outputs are within %(limit)g of eager PyTorch's, relative to the largest element. %(results)s"""


BUSY = """**The machine had other work.** Times are longer than on an idle one. Those with two threads say little: OpenMP threads, ours and
PyTorch's, wait for a thread that does not get a processor.

"""


def render(record):
    """Returns the first part of the document."""
    about = record["measured"]
    loads = about["loads"]
    return HEAD % {
        "torch": about["torch"], "onnxruntime": about["onnxruntime"] or "(not installed)", "seconds": about["seconds"],
        "turns": about["turns"], "machine": about["machine"], "before": cell(loads[0]), "after": cell(loads[1]),
        "onednn": about["onednn"], "busy": BUSY if max(loads) > about["processors"] + 1 else "", "means": means_table(record),
        "choice": what_to_choose(record), "runs": runs_table(record), "rounds": FRESH_ROUNDS, "fresh": fresh_table(record),
        "memory": fresh_ranges(record, "memory", "MiB"), "imports": fresh_ranges(record, "import", "ms"), "limit": LIMIT,
        "results": results_text(record)}


def whole_document():
    """Returns the document as the recorded figures make it."""
    with open(RECORD) as file:
        return render(json.load(file)) + "\n" + models.render_results(models.read_results())


def write_document():
    with open(models.RESULTS) as lock:  # models.py writes the last part
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = whole_document()
        with open(models.TABLE, "w") as file:
            file.write(text)


def load_average():
    return round(os.getloadavg()[0], 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--resume", action="store_true", help="skip models that have a result")
    parser.add_argument("--write", action="store_true", help="write docs/results/models.md even if only some MODELs are measured")
    parser.add_argument("--render", action="store_true", help="only write docs/results/models.md from the recorded figures")
    parser.add_argument("--turns", type=int, default=7, help="of each process (default: 7)")
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="MODEL")
    words = parser.parse_args()
    unknown = [name for name in words.names if name not in LARGE]
    if unknown:
        parser.error("no model %s; there are: %s" % (", ".join(unknown), ", ".join(LARGE)))
    if words.prepare:
        return prepare(words.prepare)
    if words.render:
        return write_document()
    names = words.names or list(LARGE)
    if words.resume:
        names = [name for name in names if (read_json(name, "result.json") or {}).get("made of") != made_of()]
    prepare_all(names)
    before = load_average()
    for name in names:
        result = measure(name, words.turns)
        if "missing" not in result:
            write_json(name, "result.json", {**result, "made of": made_of()})
        for row in figures_of(name, result):
            print(json.dumps(row), flush=True)
        print("model_times: %s: %s" % (name, describe(result)), file=sys.stderr)
    finish(words, (before, load_average()))


def describe(result):
    if "missing" in result:
        return result["missing"]
    parts = []
    for threads, found in result["runs"].items():
        times = ", ".join("%s %.2f" % (key, value) for key, value in found.items())
        parts.append("%s: %s" % (counted(int(threads), "thread"), times))
    refused = ["%s %s: %s" % (kind, package, check["says"]) for kind, each in result["checks"].items()
               for package, check in each.items() if check["says"] != "runs"]
    return "; ".join(parts + refused)


def finish(words, loads):
    """Records all results, including those of earlier runs with the same models, and writes the document."""
    results = {name: read_json(name, "result.json") for name in LARGE}
    results = {name: result for name, result in results.items() if result and result["made of"] == made_of()}
    figures = all_figures(results)
    for row in figures:
        if row["name"].startswith("geometric mean"):
            print(json.dumps(row), flush=True)
    with open(FIGURES, "w") as file:
        json.dump(figures, file, indent=1)
        file.write("\n")
    if not words.names or words.write:
        with open(RECORD, "w") as file:
            file.write(json.dumps(summarize(results, words.turns, loads), indent=1) + "\n")
        write_document()
        subprocess.run([os.path.join(ROOT, "scripts", "pictures", "plot-models"), FIGURES,
                        os.path.normpath(os.path.join(ROOT, "docs", "images", "models.svg"))], check=True)


if __name__ == "__main__":
    sys.exit(main())
