"""Whether real models run in a process without PyTorch, with PyTorch's results: makes the last table of docs/models.md.

`make model-results` runs it: each model (real_models.py), small and with random weights of a fixed seed, is compiled by
torch._inductor.aoti_compile_and_package, run by `aoticache run-package`, where PyTorch never is, and compared with the
same package in torch._inductor.aoti_load_package and with eager PyTorch. Models of transformers and torchvision are taken
where these are installed (pip install --target=DIR, PYTHONPATH=DIR) and are said to be missing otherwise. Not a test:
it takes minutes. tests/python/test_models.py runs eight of the thirty; tests/bench/model_times.py measures them at larger
sizes.

usage: models.py [--bfloat16] [--free-batch] [--write] [MODEL...]
Says of each of thirty models whether it runs: in float32 or in bfloat16, with the batch that it was exported with or with
other ones. --write puts what was found into the last table of docs/models.md; what this run did not try stays there as it
is.
Environment: BUILD, the build folder.
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

from real_models import MODELS, PLAIN, THIRTY, build  # noqa: F401 - tests take them from here

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
TOOL = os.path.join(BUILD, "bin", "aoticache")
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "models.md")
NOT_TRIED = "not tried"
# What sums in another order differ by over some layers, where the largest element of an output is 1.
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
            shapes[tensor] = {0: torch.export.Dim.DYNAMIC}  # an error where the model fixes it
    with torch.no_grad():
        return torch.export.export(module, inputs, strict=False, dynamic_shapes=shapes)


def compile_package(torch, module, inputs, path, freezing=False):
    with torch.no_grad(), torch._inductor.config.patch(freezing=freezing):
        torch._inductor.aoti_compile_and_package(export(torch, module, inputs), package_path=path)


def flat(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def input_words(inputs, folder):
    words = []
    for i, tensor in enumerate(inputs):
        file = os.path.join(folder, "input%d.bin" % i)
        with open(file, "wb") as target:
            target.write(bytes(tensor.contiguous().flatten().view(dtype=sys.modules["torch"].uint8).tolist()))
        sizes = "x".join(str(size) for size in tensor.shape)
        words += ["--input", "%s:%s=@%s" % (str(tensor.dtype).removeprefix("torch."), sizes, file)]
    return words


# A process counts what the one that started it had in memory as its own, so that a small one is put between.
LAUNCHER = """
import os, sys, time
begun = time.monotonic()
_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
print(time.monotonic() - begun, usage.ru_maxrss * 1024, os.waitstatus_to_exitcode(status), file=sys.stderr)
"""


def measured(command, environment=os.environ):
    """(exit status, standard output, standard error, seconds, bytes of resident memory at most), on one thread."""
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
        except (ValueError, LookupError, TypeError):  # not what --json prints: a crash, most likely
            self.message = str(self)


def run_alone(torch, path, inputs, folder, *more, environment=os.environ):
    """The outputs in a process of the tool, in which PyTorch never is, and what `measured` and the tool say."""
    code, out, err, seconds, memory = measured([TOOL, "run-package", path, "--json", "--all-values", "--cache-dir",
                                                os.path.join(folder, "cache"), *more, *input_words(inputs, folder)],
                                               environment)
    if code != 0:
        raise ToolFailed(code, err.strip())
    report = json.loads(out)
    outputs = [torch.tensor(o["values"], dtype=getattr(torch, o["dtype"])).reshape(o["sizes"])
               for o in report["outputs"]]
    return outputs, {"seconds": seconds, "memory": memory, "run": report.get("run_median_ns", 0) / 1e9}


def relative(tensors, eager):
    """Each as a part of the largest element of eager PyTorch's: random weights make outputs of 1e-9, too."""
    return [tensor / (wanted.abs().max() or 1) for tensor, wanted in zip(tensors, eager)]


def compare(torch, ours, theirs, eager):
    """PyTorch's own run of the package must meet the tolerance, too: else it is not ours to meet."""
    assert len(ours) == len(theirs) == len(eager), "%d outputs, %d wanted" % (len(ours), len(theirs))
    for a, b, c in zip(*(relative(tensors, eager) for tensors in (ours, theirs, eager))):
        assert float(c.abs().max()) == 1, "an output of zeros shows nothing"
        torch.testing.assert_close(b, c, **TOLERANCE, check_stride=False, msg=lambda m: "PyTorch's own run: " + m)
        torch.testing.assert_close(a, c, **TOLERANCE, check_stride=False)
        torch.testing.assert_close(a, b, **TOLERANCE, check_stride=False)


# ---- whether it runs ----

COLUMNS = ("float32", "bfloat16", "float32, free batch", "bfloat16, free batch")
BATCHES = (2, 3, 5)  # the first is exported; PyTorch compiles a free size for two and more
# The least that an output may differ by, where its largest element is 1. Where PyTorch's own run of the package differs by
# more from eager, since it rounds at other places, the next power of two that this run keeps to holds for both.
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
    """Inputs of that batch, with elements of these: each row another one."""
    return tuple(one.flatten()[torch.randint(one.numel(), (batch, *one.shape[1:]))] for one in inputs)


def largest_difference(ours, theirs):
    return max((float((a - b).abs().max()) for a, b in zip(ours, theirs) if a.numel() > 0), default=0.0)


def difference_from(torch, tensors, eager):
    """The largest part of the largest element of eager PyTorch's."""
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
    """The largest of several runs."""
    return max(difference_from(torch, *pair) for pair in zip(results, wanted))


def exact_results(torch, module, input_sets):
    """The results in float64, in the dtypes of the model's own."""
    dtype = next(module.parameters()).dtype
    module = module.double()
    with torch.no_grad(), refusal("eager PyTorch in float64"):
        found = [flat(module(*(one.double() if one.is_floating_point() else one for one in inputs))) for inputs in input_sets]
    return [[one.to(dtype) if one.is_floating_point() else one for one in tensors] for tensors in found]


def tolerance_kept_by(theirs, least):
    while least < theirs:
        least *= 2
    return least


def find_result(torch, name, column, folder):
    """A cell of the last table: "runs" and how far ours and PyTorch's run of the package are from eager PyTorch."""
    module, inputs = build(torch, name)
    dtype, free = column.split(", ")[0], "free" in column
    if dtype == "bfloat16":
        module, inputs = as_bfloat16(torch, module, inputs)
    input_sets = [with_batch(torch, inputs, batch) for batch in BATCHES] if free else [inputs]
    path = os.path.join(folder, "model.pt2")
    with torch.no_grad(), refusal("eager PyTorch refuses it"):
        eager = [flat(module(*one)) for one in input_sets]
    with refusal("PyTorch does not export it"):
        program = export(torch, module, input_sets[0], free)
    with torch.no_grad(), refusal("PyTorch does not compile it"):
        torch._inductor.aoti_compile_and_package(program, package_path=path)
    ours, theirs = [], []
    with refusal("refused"):
        for one in input_sets:
            ours.append(run_alone(torch, path, one, folder)[0])
    with refusal("PyTorch's own run fails"):
        model = torch._inductor.aoti_load_package(path)
        for one in input_sets:
            theirs.append(flat(model(*one)))
    our_difference, their_difference = (difference_of_all(torch, results, eager) for results in (ours, theirs))
    said = "by %.1g (%.1g)" % (our_difference, their_difference)
    if our_difference <= tolerance_kept_by(their_difference, LEAST[dtype]):
        return "runs, " + said
    exact = exact_results(torch, module, input_sets)
    our_error, eager_error = (difference_of_all(torch, results, exact) for results in (ours, eager))
    return "%s %s; from float64 by %.1g (eager by %.1g)" % ("runs," if our_error <= eager_error else "differs", said,
                                                            our_error, eager_error)


def result(torch, name, column):
    try:
        with tempfile.TemporaryDirectory() as folder:
            return find_result(torch, name, column, folder)
    except ImportError as error:
        return "%s: %s" % (NOT_TRIED, error)
    except Refused as error:
        return " ".join(str(error).split())[:300].replace("|", "/")


RESULTS_TITLE = "## Thirty models in float32, bfloat16 and with a free batch"
RESULTS_HEAD = RESULTS_TITLE + """

Made by `make model-results` (tests/python/models.py `--write`); not edited by hand. Nothing was measured here.

*runs, by A (B)*: without PyTorch the outputs differ from eager PyTorch's by A at most, where the largest element of an output
is 1; those of `aoti_load_package`, which runs the same package, by B. A may be %g in float32 and %g in bfloat16. Where B is
more than that, the limit is doubled until B keeps to it. Where A is more, it counts how far the outputs are from the model's in
float64: it *runs* if that is no more than eager PyTorch's are. Else it *differs*. *Free batch*: the package is exported with a
batch of %d whose size is free, and runs with batches of %s.

""" % (LEAST["float32"], LEAST["bfloat16"], BATCHES[0], ", ".join(map(str, BATCHES)))


def parsed_cells(text):
    """What the last table says: {(model, column): cell}."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {(cells[0], column): cell for cells in rows[2:] for column, cell in zip(rows[0][1:], cells[1:])}


def write_results(found):
    """Puts these cells into the last table, but for models that were not tried. Locked, so that runs of two columns can end
    at the same time."""
    with open(TABLE, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        first, _, second = file.read().partition(RESULTS_TITLE)
        tried = {where: cell for where, cell in found.items() if not cell.startswith(NOT_TRIED)}
        cells = {**parsed_cells(second), **tried}
        columns = [column for column in COLUMNS if any(where[1] == column for where in cells)]
        rows = [["model", *columns], ["---"] * (len(columns) + 1)]
        rows += [[name, *[cells.get((name, column)) or NOT_TRIED for column in columns]] for name in THIRTY]
        file.seek(0)
        file.write(first.rstrip("\n") + "\n\n" + RESULTS_HEAD + "".join("| %s |\n" % " | ".join(row) for row in rows))
        file.truncate()


def show_results(torch, words):
    column = ("bfloat16" if words.bfloat16 else "float32") + (", free batch" if words.free_batch else "")
    for name in words.names or THIRTY:
        found = result(torch, name, column)
        print("%s: %s: %s" % (column, name, found), flush=True)
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
    parser.add_argument("--free-batch", action="store_true", help="export with a free batch, run with three")
    parser.add_argument("--write", action="store_true", help="put the results into docs/models.md")
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
