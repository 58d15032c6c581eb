"""Thirty models at sizes where the mathematics counts: our runtime without PyTorch beside aoti_load_package and ONNX Runtime.

`make models` runs it and writes docs/models.md (its first part), docs/images/models.svg and BUILD/models.json. Each model
(tests/python/large_models.py) is compiled by PyTorch to a package, to a frozen package, and exported to ONNX. Three processes
(model_player.py) then run it by turns, with one thread and with two; fresh processes give the time to the first output. All
outputs are compared with those of eager PyTorch. Prints one JSON object per figure, as the other benchmarks do.

    model_times.py [--resume] [--write] [--turns 7] [MODEL...]

MODEL...   only these, and nothing is written to docs, unless --write is given
--resume   leaves out the models that BUILD/models has a result of; without it all are measured anew
What was compiled is kept below BUILD/models and is used again as long as it was made of the same models by the same PyTorch.
transformers, torchvision, onnx, onnxscript and onnxruntime are used where PYTHONPATH has them; what is missing is said.
Environment: BUILD, the build folder.
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
sys.path.insert(1, os.path.join(ROOT, "tests", "python"))

import models  # noqa: E402 - it is beside large_models.py
from asked_process import AskedProcess, Ended  # noqa: E402
from large_models import LARGE  # noqa: E402

FOLDER = os.path.join(models.BUILD, "models")
FIGURES = os.path.join(models.BUILD, "models.json")
PLAYER = os.path.join(HERE, "model_player.py")
SECONDS = 0.12  # of one turn
FRESH_ROUNDS = 3
THREADS = (1, 2)
LIMIT = models.TOLERANCE["rtol"]
TO_TORCH, TO_TORCH_ANY, TO_ONNX = 1.0, 1.15, 1.0  # at most: geometric means, and any model's
PACKAGES = {"default": False, "frozen": True}  # Inductor's `freezing`
KINDS = {"ours": ["default.pt2", "frozen.pt2"], "torch": ["default.pt2", "frozen.pt2"], "onnxruntime": ["model.onnx"]}


# ---- compiling ----

def folder_of(name):
    return os.path.join(FOLDER, name.replace(" ", "-"))


def read_json(name, file):
    try:
        with open(os.path.join(folder_of(name), file)) as source:
            return json.load(source)
    except (OSError, ValueError):
        return None


def write_json(name, file, content):
    path = os.path.join(folder_of(name), file)
    with open(path + ".new", "w") as target:
        json.dump(content, target, indent=1)
    os.rename(path + ".new", path)


def made_of():
    """What a model's files depend on."""
    digest = hashlib.sha256(json.dumps([os.cpu_count(), version_of("torch"), version_of("onnxscript")]).encode())
    for file in ("real_models.py", "large_models.py"):
        with open(os.path.join(ROOT, "tests", "python", file), "rb") as source:
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
    except Exception as error:  # what is not made is said in the table
        return short(error)


def prepare(name):
    """Compiles the packages, exports to ONNX, keeps the inputs and eager PyTorch's outputs. In a process of its own."""
    import numpy
    import torch
    import torch._inductor.package

    from large_models import build
    torch.set_num_threads(os.cpu_count())  # with another number Inductor writes it into the code
    folder = folder_of(name)
    os.makedirs(folder, exist_ok=True)
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
            numpy.save(os.path.join(folder, "%s%d.npy" % (kind, i)), tensor.contiguous().numpy())

    def compile_package(package, freezing):
        models.compile_package(torch, module, inputs, os.path.join(folder, package + ".pt2"), freezing)
        return "made"
    for package, freezing in PACKAGES.items():
        about[package + ".pt2"] = attempt(lambda: compile_package(package, freezing))
    about["model.onnx"] = attempt(lambda: export_onnx(torch, module, inputs, os.path.join(folder, "model.onnx")))
    write_json(name, "about.json", about)


def is_prepared(name):
    """Not if something was not installed then."""
    about = read_json(name, "about.json") or {}
    return about.get("made of") == made_of() and not any(said.startswith("not tried") for said in about.values())


def prepare_all(names):
    """As many at a time as there are processors; each takes a minute or more."""
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
    """A process that has loaded a model's files and waits for its turns."""

    def __init__(self, kind, name, threads, packages, outputs=""):
        words = [sys.executable, "-W", "ignore", PLAYER, kind, folder_of(name), str(threads), outputs, *packages]
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
    """The largest from eager PyTorch's, whose largest element counts as 1."""
    import numpy
    largest, i = 0.0, 0
    while os.path.exists(os.path.join(folder_of(name), "eager%d.npy" % i)):
        wanted = numpy.load(os.path.join(folder_of(name), "eager%d.npy" % i)).astype(numpy.float64)
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
    """{package: "runs", how far it is from eager PyTorch, or why it does not run}"""
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
    """Medians in milliseconds, of each kind and package. The three take turns."""
    players = {kind: Player(kind, name, threads, packages) for kind, packages in running.items() if packages}
    times = {(kind, package): [] for kind in players for package in running[kind]}
    order = sorted(times, key=lambda pair: pair[1])  # the same package's runs are neighbours in time
    for _ in range(turns):
        for kind, package in order:
            times[kind, package] += players[kind].play(package)
    for player in players.values():
        player.close()
    return {"%s %s" % pair: statistics.median(found) * 1e3 for pair, found in times.items()}


def measure_fresh(name, running):
    """Of fresh processes with one thread: milliseconds to the first output and of the imports, MiB of resident memory."""
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
    """The same of `aoticache run-package`, a program in C, until its end. Its inputs are files."""
    import numpy
    words = []
    for i in range(len([file for file in os.listdir(folder_of(name)) if file.startswith("input") and file.endswith(".npy")])):
        path = os.path.join(folder_of(name), "input%d" % i)
        array = numpy.load(path + ".npy")
        array.tofile(path + ".bin")
        words += ["--input", "%s:%s=@%s" % (array.dtype, "x".join(map(str, array.shape)), path + ".bin")]
    each = []
    for _ in range(FRESH_ROUNDS):
        code, _, _, seconds, memory = models.measured([models.TOOL, "run-package", os.path.join(folder_of(name), package), "--json",
                                                       "--cache-dir", os.path.join(folder_of(name), "cache"), *words])
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
    """The faster package of a kind; None where none runs."""
    return min((value for key, value in found.items() if key.startswith(kind + " ")), default=None)


def ratio(found, kind, peer):
    ours, theirs = best(found, kind), best(found, peer)
    return ours / theirs if ours and theirs else None


def same_package_ratios(found):
    """{package: ours / PyTorch's of the same package}"""
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
    """{(threads, peer): (geometric mean of our times relative to the peer's, the largest, of which model, how many)}"""
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


# ---- the document ----

def cell(value, digits=2):
    return "-" if value is None else "%.*f" % (digits, value)


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| %s |\n" % " | ".join(line) for line in lines)


def runs_table(results, threads):
    rows = []
    for name in LARGE:
        found = results.get(name, {}).get("runs", {}).get(str(threads))
        if found is None:
            rows.append([name, *["-"] * 8])
            continue
        same = same_package_ratios(found)
        times = [cell(found.get(key)) for key in ("ours default.pt2", "torch default.pt2", "ours frozen.pt2", "torch frozen.pt2",
                                                  "onnxruntime model.onnx")]
        rows.append([name, *times, cell(max(same.values(), default=None)), cell(ratio(found, "ours", "torch")),
                     cell(ratio(found, "ours", "onnxruntime"))])
    found = means(results)
    averages = [cell(found[str(threads), kind][0]) if (str(threads), kind) in found else "-" for kind in PEERS]
    rows.append(["**geometric mean**", *[""] * 6, *["**%s**" % average for average in averages]])
    return table(["model", "ours, default", "PyTorch, default", "ours, frozen", "PyTorch, frozen", "ONNX Runtime",
                  "same package, worst", "ours / PyTorch", "ours / ONNX Runtime"], rows)


def fresh_table(results):
    rows = []
    for name in LARGE:
        fresh = results.get(name, {}).get("fresh", {})
        kinds = [fresh.get(kind) or {} for kind in ("C", "ours", "torch", "onnxruntime")]
        rows.append([name, *[" / ".join(cell(kind.get(key), 0) for kind in kinds) for key in ("first", "memory")],
                     " / ".join(cell(kind.get("import"), 0) for kind in kinds[1:])])
    return table(["model", "first output, ms", "memory, MiB", "imports, ms"], rows)


def said(check):
    return check["says"] if check["says"] != "runs" else "%.1g" % check["difference"]


def result_table(results):
    rows = []
    for name in LARGE:
        result = results.get(name, {"missing": "not measured"})
        if "missing" in result:
            rows.append([name, result["missing"], "", ""])
            continue
        checks = result["checks"]
        rows.append([name, *[" / ".join(said(checks[kind][package]) for kind in ("ours", "torch")) for package in KINDS["ours"]],
                     said(checks["onnxruntime"]["model.onnx"])])
    return table(["model", "default, ours / PyTorch", "frozen, ours / PyTorch", "ONNX Runtime"], rows)


def what_to_choose(results):
    """How frozen packages compare with default ones, in words."""
    lines = []
    for threads in THREADS:
        pairs = {name: found["ours frozen.pt2"] / found["ours default.pt2"] for name, result in results.items()
                 for found in [result.get("runs", {}).get(str(threads), {})]
                 if found.get("ours frozen.pt2") and found.get("ours default.pt2")}
        if pairs:
            faster = sum(value < 1 for value in pairs.values())
            lines.append("With %s, frozen packages take %.2f of the time of default ones in the geometric mean and are faster in "
                         "%d of %s (from %.2f in %s to %.2f in %s)." % (
                             counted(threads, "thread"), geometric_mean(pairs.values()), faster, counted(len(pairs), "model"),
                             min(pairs.values()), min(pairs, key=pairs.get), max(pairs.values()), max(pairs, key=pairs.get)))
    return "\n".join(lines)


def summary(results):
    lines = []
    for (threads, kind), (mean, worst, worst_name, count) in means(results).items():
        goal = TO_TORCH if kind == "torch" else TO_ONNX
        line = "- %s, ours / %s: geometric mean **%.2f** of %s (goal: at most %.1f, %s); the largest is %.2f, %s" % (
            counted(int(threads), "thread"), "PyTorch" if kind == "torch" else PEERS[kind], mean, counted(count, "model"), goal,
            "met" if mean <= goal else "missed", worst, worst_name)
        if kind == "torch":
            line += " (goal: none above %.2f, %s)" % (TO_TORCH_ANY, "met" if worst <= TO_TORCH_ANY else "missed")
        lines.append(line + ".")
    return "\n".join(lines)


def processor():
    with open("/proc/cpuinfo") as file:
        name = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown processor")
    return "%s of %s" % (counted(os.cpu_count(), "processor"), name)


HEAD = """# Models that run without PyTorch

Made by `make models` (tests/bench/model_times.py); not edited by hand.

Thirty models (tests/python/large_models.py: float32, random weights of a fixed seed) run in three ways: without PyTorch by our
runtime; by PyTorch %(torch)s's `aoti_load_package`, from the same package; and by ONNX Runtime %(onnxruntime)s's
CPUExecutionProvider, from what `torch.onnx.export` makes of the same module. All three are driven from Python with NumPy's
arrays, in processes that take turns of %(seconds)g s, %(turns)s each; the numbers are medians. %(machine)s; load average %(before)s before
and %(after)s after.

*Frozen* packages are compiled with Inductor's `freezing`: the compile lays their weights out for oneDNN. Both kinds are compiled
with as many threads as the machine has processors, so that Inductor leaves the number to the program that runs them. Ours ran
with OpenBLAS and oneDNN %(onednn)s of the machine ([packages.md](packages.md) says what is without them). PyTorch and ONNX
Runtime have libraries of their own inside.

*ours / PyTorch* and *ours / ONNX Runtime* compare the faster package of each side. *Same package, worst*: the larger of the
ratios ours / PyTorch of the two packages, each with itself.

%(busy)s%(summary)s

**Which package to make:** compile with `freezing` where the weights need not be replaced at run time. %(choice)s
Default packages keep their weights in the plain order, so that other weights can take their place, and take less memory.

![Times of runs relative to PyTorch's and to ONNX Runtime's](images/models.svg)

## Runs with one thread, in ms

%(one)s
## Runs with two threads, in ms

%(two)s
## Fresh processes

With one thread and the default package; medians of %(rounds)d. *First output*: from the start of the process until the output is there.
*Memory*: the largest resident memory until then. The numbers are `aoticache run-package` (a program in C, until it ends) / our
runtime in Python / PyTorch / ONNX Runtime; *imports* are those of the last three, NumPy included. Our package is in the cache.

%(fresh)s
## Results of these models

How far each output is from eager PyTorch's at most, where the largest element of an output is 1. What is within %(limit)g is measured.

%(results)s"""


BUSY = """**The machine had other work.** Times are longer than on a quiet one, and those with two threads say little: threads of OpenMP,
ours and PyTorch's, wait for one that does not get a processor.

"""


def write_document(results, turns, loads):
    is_busy = max(map(float, loads)) > os.cpu_count() + 1
    text = HEAD % {
        "torch": version_of("torch"), "onnxruntime": version_of("onnxruntime") or "(not installed)", "seconds": SECONDS,
        "turns": turns, "machine": processor(), "before": loads[0], "after": loads[1],
        "onednn": models.onednn_version(), "busy": BUSY if is_busy else "", "summary": summary(results), "choice": what_to_choose(results),
        "one": runs_table(results, 1), "two": runs_table(results, 2), "rounds": FRESH_ROUNDS, "fresh": fresh_table(results),
        "limit": LIMIT, "results": result_table(results)}
    with open(models.TABLE, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _, title, second = file.read().partition(models.RESULTS_TITLE)
        file.seek(0)
        file.write(text + (title and "\n") + title + second)
        file.truncate()


def load_average():
    return "%.2f" % os.getloadavg()[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--resume", action="store_true", help="leave out models that were measured before")
    parser.add_argument("--write", action="store_true", help="write docs/models.md though only some MODELs are measured")
    parser.add_argument("--turns", type=int, default=7, help="of each process (default: 7)")
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="MODEL")
    words = parser.parse_args()
    unknown = [name for name in words.names if name not in LARGE]
    if unknown:
        parser.error("no model %s; there are: %s" % (", ".join(unknown), ", ".join(LARGE)))
    if words.prepare:
        return prepare(words.prepare)
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
    """Writes what all results say, those of former runs with the same models included."""
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
        write_document(results, words.turns, loads)
        subprocess.run([os.path.join(ROOT, "scripts", "plot-models"), FIGURES,
                        os.path.normpath(os.path.join(ROOT, "docs", "images", "models.svg"))], check=True)


if __name__ == "__main__":
    sys.exit(main())
