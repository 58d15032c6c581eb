"""Finds out whether real models run in a process without PyTorch, with PyTorch's results: writes the last part of
docs/results/models.md.

`make model-results` runs it. Each model (real_models.py), small and with random weights from a fixed seed, is compiled by
torch._inductor.aoti_compile_and_package. `aoticache run-package` runs the package in a process without PyTorch, and the result
is compared with that of the same package in torch._inductor.aoti_load_package and with eager PyTorch. Models of transformers
and torchvision are included if these are installed (pip install --target=DIR, PYTHONPATH=DIR); otherwise they are reported as
missing. This is not a test: it takes minutes. tests/python/models/test_models.py runs eight of the thirty models, and
tests/bench/model_times.py measures them at larger sizes.

usage: models.py [--bfloat16] [--free-batch] [--write] [MODEL...]
Reports for each of thirty models whether it runs: in float32 or in bfloat16, with the batch that it was exported with or with
other batches. --write records the results in tests/python/models/model_results.json and writes the last part of
docs/results/models.md from that file. Results of models that this run did not try stay as they are.
Environment: BUILD, the build directory.
"""
import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import warnings

from real_models import MODELS, PLAIN, THIRTY, build  # noqa: F401 - tests import them from here

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
TOOL = os.path.join(BUILD, "bin", "aoticache")
HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "..", "..", "..", "docs", "results", "models.md")
RESULTS = os.path.join(HERE, "model_results.json")
NOT_TRIED = "not tried"
# Sums in another order differ by this much after some layers, relative to the largest element of an output.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
os.environ.setdefault("AOTICACHE_HOME", BUILD)
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


# ---- compiling and running ----

def export(torch, module, inputs, free_batch=False):
    shapes = None
    if free_batch:
        shapes = torch.export.ShapesCollection()
        for tensor in inputs:
            shapes[tensor] = {0: torch.export.Dim.DYNAMIC}  # an error if the model fixes it
    with torch.no_grad():
        return torch.export.export(module, inputs, strict=False, dynamic_shapes=shapes)


def compile_package(torch, module, inputs, path, freezing=False):
    with torch.no_grad(), torch._inductor.config.patch(freezing=freezing):
        torch._inductor.aoti_compile_and_package(export(torch, module, inputs), package_path=path)


def flat(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def input_words(inputs, directory):
    words = []
    for i, tensor in enumerate(inputs):
        file = os.path.join(directory, "input%d.bin" % i)
        with open(file, "wb") as target:
            target.write(bytes(tensor.contiguous().flatten().view(dtype=sys.modules["torch"].uint8).tolist()))
        sizes = "x".join(str(size) for size in tensor.shape)
        words += ["--input", "%s:%s=@%s" % (str(tensor.dtype).removeprefix("torch."), sizes, file)]
    return words


# The peak memory of a process includes that of the process that started it. So a small process starts the measured one.
LAUNCHER = """
import os, sys, time
begun = time.monotonic()
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
print(time.monotonic() - begun, usage.ru_maxrss * 1024, os.waitstatus_to_exitcode(status), file=sys.stderr)
"""


def measured(command, environment=os.environ):
    """Returns (exit status, standard output, standard error, seconds, peak resident memory in bytes), on one thread."""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", LAUNCHER, *command], capture_output=True, text=True,
                          env={**environment, "OMP_NUM_THREADS": "1"}, check=True)
    *messages, last = done.stderr.rstrip("\n").split("\n")
    seconds, memory, code = last.split()
    return int(code), done.stdout, "\n".join(messages), float(seconds), int(memory)


class ToolFailed(Exception):
    def __init__(self, code, err):
        super().__init__("exit %d: %s" % (code, err))
        try:
            self.message = json.loads(err.splitlines()[-1])["message"].split(".pt2: ")[-1]
        except (ValueError, LookupError, TypeError):  # not the output of --json: most likely a crash
            self.message = str(self)


def run_alone(torch, path, inputs, directory, *more, environment=os.environ):
    """Runs a package with the tool, in a process without PyTorch. Returns the outputs, and times and memory."""
    code, out, err, seconds, memory = measured([TOOL, "run-package", path, "--json", "--all-values", "--cache-dir",
                                                os.path.join(directory, "cache"), *more, *input_words(inputs, directory)],
                                               environment)
    if code != 0:
        raise ToolFailed(code, err.strip())
    report = json.loads(out)
    outputs = [torch.tensor(o["values"], dtype=getattr(torch, o["dtype"])).reshape(o["sizes"])
               for o in report["outputs"]]
    return outputs, {"seconds": seconds, "memory": memory, "run": report.get("run_median_ns", 0) / 1e9}


def relative(tensors, eager):
    """Divides each tensor by the largest element of eager PyTorch's, since random weights can make outputs of 1e-9."""
    return [tensor / (wanted.abs().max() or 1) for tensor, wanted in zip(tensors, eager)]


def compare(torch, ours, theirs, eager):
    """Checks the tolerance, also for PyTorch's own run of the package: if that fails, the model does not suit."""
    assert len(ours) == len(theirs) == len(eager), "%d outputs, %d wanted" % (len(ours), len(theirs))
    for a, b, c in zip(*(relative(tensors, eager) for tensors in (ours, theirs, eager))):
        assert float(c.abs().max()) == 1, "an output of zeros shows nothing"
        torch.testing.assert_close(b, c, **TOLERANCE, check_stride=False, msg=lambda m: "PyTorch's own run: " + m)
        torch.testing.assert_close(a, c, **TOLERANCE, check_stride=False)
        torch.testing.assert_close(a, b, **TOLERANCE, check_stride=False)


# ---- whether it runs ----

COLUMNS = ("float32", "bfloat16", "float32, free batch", "bfloat16, free batch")
BATCHES = (2, 3, 5)  # the first is exported; PyTorch compiles a free size for two and more
# How far an output may be from eager PyTorch's, relative to its largest element. If PyTorch's own run of the package is further
# away, because it rounds at other points, the limit is doubled until that run keeps to it.
LEAST = {"float32": 1e-4, "bfloat16": 2.0**-6}


class Refused(Exception):
    pass


@contextlib.contextmanager
def refusal(who):
    try:
        yield
    except ImportError:
        raise
    except Exception as error:
        message = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        if isinstance(error, ToolFailed):
            message = error.message
        raise Refused("%s: %s" % (who, message)) from error


def as_bfloat16(torch, module, inputs):
    return module.to(torch.bfloat16), tuple(one.to(torch.bfloat16) if one.is_floating_point() else one for one in inputs)


def with_batch(torch, inputs, batch):
    """Returns inputs with this batch size, whose rows are random elements of the given inputs."""
    return tuple(one.flatten()[torch.randint(one.numel(), (batch, *one.shape[1:]))] for one in inputs)


def largest_difference(ours, theirs):
    return max((float((a - b).abs().max()) for a, b in zip(ours, theirs) if a.numel() > 0), default=0.0)


def difference_from(torch, tensors, eager):
    """Returns the largest difference, relative to the largest element of eager PyTorch's output."""
    with refusal("outputs"):
        assert len(tensors) == len(eager), "%d outputs, %d wanted" % (len(tensors), len(eager))
        for one, wanted in zip(tensors, eager):
            assert one.dtype == wanted.dtype and one.shape == wanted.shape, "%s %s, %s %s wanted" % (
                one.dtype, list(one.shape), wanted.dtype, list(wanted.shape))
            assert 0 < float(wanted.abs().max()) < float("inf"), "an output of zeros, or not finite, shows nothing"
            assert bool(one.isfinite().all()), "not finite"
    tensors, eager = [one.double() for one in tensors], [one.double() for one in eager]
    return largest_difference(relative(tensors, eager), relative(eager, eager))


def difference_of_all(torch, results, wanted):
    """Returns the largest difference of several runs."""
    return max(difference_from(torch, *pair) for pair in zip(results, wanted))


def exact_results(torch, module, input_sets):
    """Computes the results in float64 and returns them in the model's own dtype."""
    dtype = next(module.parameters()).dtype
    module = module.double()
    with torch.no_grad(), refusal("eager PyTorch in float64"):
        found = [flat(module(*(one.double() if one.is_floating_point() else one for one in inputs))) for inputs in input_sets]
    return [[one.to(dtype) if one.is_floating_point() else one for one in tensors] for tensors in found]


def tolerance_kept_by(theirs, least):
    while least < theirs:
        least *= 2
    return least


def find_result(torch, name, column, directory):
    """Returns what the file of results keeps: whether it runs, and how far ours and PyTorch's run are from eager PyTorch."""
    module, inputs = build(torch, name)
    dtype, free = column.split(", ")[0], "free" in column
    if dtype == "bfloat16":
        module, inputs = as_bfloat16(torch, module, inputs)
    input_sets = [with_batch(torch, inputs, batch) for batch in BATCHES] if free else [inputs]
    path = os.path.join(directory, "model.pt2")
    with torch.no_grad(), refusal("eager PyTorch refuses it"):
        eager = [flat(module(*one)) for one in input_sets]
    with refusal("PyTorch does not export it"):
        program = export(torch, module, input_sets[0], free)
    with torch.no_grad(), refusal("PyTorch does not compile it"):
        torch._inductor.aoti_compile_and_package(program, package_path=path)
    ours, theirs = [], []
    with refusal("refused"):
        for one in input_sets:
            ours.append(run_alone(torch, path, one, directory)[0])
    with refusal("PyTorch's own run fails"):
        model = torch._inductor.aoti_load_package(path)
        for one in input_sets:
            theirs.append(flat(model(*one)))
    our_difference, their_difference = (difference_of_all(torch, results, eager) for results in (ours, theirs))
    found = {"says": "runs", "ours": one_digit(our_difference), "PyTorch": one_digit(their_difference)}
    if our_difference <= tolerance_kept_by(their_difference, LEAST[dtype]):
        return found
    exact = exact_results(torch, module, input_sets)
    our_error, eager_error = (difference_of_all(torch, results, exact) for results in (ours, eager))
    return {**found, "says": "runs" if our_error <= eager_error else "differs",
            "from float64": {"ours": one_digit(our_error), "eager": one_digit(eager_error)}}


def one_digit(value):
    return float("%.1g" % value)


def result(torch, name, column):
    try:
        with tempfile.TemporaryDirectory() as directory:
            return find_result(torch, name, column, directory)
    except ImportError as error:
        return {"says": "%s: %s" % (NOT_TRIED, error)}
    except Refused as error:
        return {"says": " ".join(str(error).split())[:300].replace("|", "/")}


# ---- the document ----

RESULTS_TITLE = "## Thirty models in float32, bfloat16 and with a free batch"
RESULTS_HEAD = RESULTS_TITLE + """

Made by `make model-results` (tests/python/models/models.py) from `tests/python/models/model_results.json`; not edited
by hand. The models are smaller here, and nothing is timed.

Differences are from eager PyTorch's output and relative to its largest element. *PyTorch*: `aoti_load_package` with the same
package. A model runs if its difference is at most %g in float32 and %g in bfloat16; if PyTorch's is larger, that limit is
doubled until PyTorch keeps to it. A model with a larger difference still counts as running if it is no further from the result in
float64 than eager PyTorch is. *Free batch*: exported with a batch of %d whose size is free, and run with batches of %s.

""" % (LEAST["float32"], LEAST["bfloat16"], BATCHES[0], ", ".join(map(str, BATCHES)))


def render_results(results):
    """Returns the last part of the document. results: {model: {column: what find_result() returned}}"""
    lines = ["| | run | largest difference, ours | largest difference, PyTorch |", "| --- | --- | --- | --- |"]
    for column in COLUMNS:
        found = [row[column] for row in results.values() if column in row]
        if found:
            far = ["%g" % max(one.get(kind, 0) for one in found) for kind in ("ours", "PyTorch")]
            runs = sum(one["says"] == "runs" for one in found)
            lines.append("| %s | %d of %d | %s | %s |" % (column, runs, len(found), *far))
    exceptions = ["- %s, %s: %s" % (name, column, described(results[name][column])) for name in THIRTY for column in COLUMNS
                  if is_exception(results.get(name, {}).get(column))]
    return RESULTS_HEAD + "\n".join(lines) + "\n" + ("\nExceptions:\n\n" + "\n".join(exceptions) + "\n" if exceptions else "")


def is_exception(one):
    return one is not None and (one["says"] != "runs" or "from float64" in one)


def described(one):
    if "ours" not in one:
        return one["says"]
    text = "%s, difference %g (PyTorch %g)" % (one["says"], one["ours"], one["PyTorch"])
    exact = one.get("from float64")
    return text + ("; from the result in float64 %g (eager PyTorch %g)" % (exact["ours"], exact["eager"]) if exact else "")


def read_results():
    with open(RESULTS) as file:
        return json.load(file)


def write_results(found):
    """Records results, except those of models that were not tried, and writes the last part of the document. The file is locked,
    so that runs for two columns can end at the same time."""
    with open(RESULTS, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        results = json.load(file)
        for (name, column), one in found.items():
            if not one["says"].startswith(NOT_TRIED):
                results.setdefault(name, {})[column] = one
        file.seek(0)
        file.write(json.dumps(results, indent=1) + "\n")
        file.truncate()
        with open(TABLE) as document:
            first = document.read().partition(RESULTS_TITLE)[0]
        with open(TABLE, "w") as document:
            document.write(first.rstrip("\n") + "\n\n" + render_results(results))


def show_results(torch, words):
    column = ("bfloat16" if words.bfloat16 else "float32") + (", free batch" if words.free_batch else "")
    for name in words.names or THIRTY:
        found = result(torch, name, column)
        print("%s: %s: %s" % (column, name, described(found)), flush=True)
        if words.write:
            write_results({(name, column): found})
    return 0


def onednn_version():
    for name in ("libdnnl.so.3", "libdnnl.so.2"):
        try:
            version = ctypes.CDLL(name).dnnl_version
        except OSError:
            continue
        version.restype = ctypes.POINTER(ctypes.c_int)
        return "%d.%d.%d" % tuple(version()[:3])
    return "(none)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bfloat16", action="store_true", help="weights and inputs in bfloat16")
    parser.add_argument("--free-batch", action="store_true", help="export with a free batch, run with three batches")
    parser.add_argument("--write", action="store_true", help="record the results and write docs/results/models.md")
    parser.add_argument("names", nargs="*", metavar="MODEL")
    words = parser.parse_args()
    unknown = [name for name in words.names if name not in MODELS]
    if unknown:
        parser.error("no model %s; there are: %s" % (", ".join(unknown), ", ".join(MODELS)))
    import torch
    import torch._inductor.package
    warnings.simplefilter("ignore")
    return show_results(torch, words)


if __name__ == "__main__":
    sys.exit(main())
