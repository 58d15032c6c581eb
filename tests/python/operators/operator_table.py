"""Finds out which operators of PyTorch's operator database run in a process without PyTorch, and writes docs/results/operators.md.

`make operators` runs it over the whole database. AOTInductor compiles the first CPU sample of each operator that exports
(float32 if the operator takes it) as a package. tests/helpers/run_library runs the package on libaoticache_torchshim.so, and
the result is compared with eager PyTorch. A package is compiled once and kept in $BUILD/operators. Its result is kept there
too, until the shim or the package changes, so an interrupted run can be continued. All results go to
tests/python/operators/operator_results.json; the document is made from that file alone. This is not a test: the first run takes
an hour or two. tests/python/operators/test_operator_table.py repeats a small part of it.

A package is built in three ways. `own`: PyTorch's kernels in our container (eager/compile/inductor/build.py), which takes a
second or two and calls the same functions. `linked` and `unlinked`: PyTorch's own build, which takes most of a minute. These
two are built only for every fifth operator and for the most used ones, and only with --pytorch-builds. Without that option their
recorded results stay.

usage: operator_table.py [--render] [--jobs N] [--list] [--pytorch-builds] [OPERATOR...]
       (OPERATOR...: only these, and nothing is written)
Environment: BUILD, the build directory.
"""
import argparse
import collections
import contextlib
import io
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import types
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import search_path  # noqa: E402, F401
import own_build

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "operator_results.json")
TABLE = os.path.join(HERE, "..", "..", "..", "docs", "results", "operators.md")
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
LIBRARIES = os.path.join(BUILD, "operators")
HELPER = os.path.join(BUILD, "tests", "helpers", "run_library")
EVERY = 5
SAMPLES = 8
COMPILE_SECONDS = 600
# The seed that PyTorch uses if the process sets none; the shim uses it too (c10/core/GeneratorImpl.h).
DEFAULT_SEED = 67280421310721
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("AOTICACHE_HOME", BUILD)

# The most used operators, and one for each kind of function that libraries take from libtorch.
IMPORTANT = """
    add sub mul div.no_rounding_mode exp log sqrt rsqrt abs neg sin cos tanh sigmoid pow maximum minimum clamp where
    sum mean amax argmax prod var std softmax log_softmax cumsum cumprod sort topk argsort gather scatter scatter_add
    scatter_reduce.sum index_select index_put index_add index_reduce.mean masked_select masked_fill nonzero
    matmul mm bmm addmm baddbmm linalg.vector_norm cat stack flip roll permute transpose squeeze unsqueeze view
    nn.functional.relu nn.functional.gelu nn.functional.silu nn.functional.linear nn.functional.layer_norm
    nn.functional.batch_norm nn.functional.conv2d nn.functional.max_pool2d nn.functional.embedding
    nn.functional.cross_entropy nn.functional.dropout nn.functional.scaled_dot_product_attention nn.functional.pdist
    grid_sampler_2d grid_sampler_3d fft.fft fft.rfft fft.irfft fft.fft2 fft.ifft fft.rfftn searchsorted bucketize
    histc gcd view_as_complex view_as_real _segment_reduce.lengths rand_like randn_like randint bernoulli
    normal kthvalue median mode cummax cdist unique_consecutive nn.functional.embedding_bag uniform
    logcumsumexp masked_scatter repeat_interleave triangular_solve
""".split()
WAYS = ("own", "linked", "unlinked")
# The names of missing functions in messages of the loader and of a package's executor.
MISSING = re.compile(r"\b(?:[a-z]\w*::\w+(?:\.\w+)?|(?:aoti_torch_|torch_|Sleef_|_Z)\w+)")
# Operators that return uninitialized memory.
UNINITIALISED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted", "resize_",
                 "resize_as_"}
# Results whose columns are eigenvectors or singular vectors. Each may have the opposite sign (or another phase if complex).
VECTORS = {"linalg.eigh": (1,), "pca_lowrank": (0, 2), "svd_lowrank": (0, 2)}
# Tolerances of PyTorch's own tests, absolute and relative, if they are larger than those of torch.testing.assert_close().
TOLERANCES = {"addbmm": (1.3e-5, 1.3e-5)}
# A compiled library draws random numbers in a different way from eager PyTorch. So the reference is the same library on
# libtorch, with the same seed.
RANDOM = {"bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal",
          "normal.in_place", "normal.number_mean", "rand_like", "randint", "randint_like", "randn", "randn_like",
          "uniform", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
          "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout.with_train", "nn.functional.rrelu",
          "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "pca_lowrank",
          "svd_lowrank"}


def load_torch():
    """Imports PyTorch and prepares for its operator database. Returns False if there is no PyTorch."""
    global torch, pytree, read_tensors, write_tensors
    try:
        import torch
    except ImportError:
        return False
    from torch.utils import _pytree as pytree
    from tensor_file import read_tensors, write_tensors
    warnings.simplefilter("ignore")
    os.environ["PYTHONWARNINGS"] = "ignore"
    # PyTorch's test utilities derive a class from a class of this package. Nothing here uses it.
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase
    sys.modules.setdefault("expecttest", stand_in)
    return True


def database():
    load_torch()
    from torch.testing._internal.common_methods_invocations import op_db
    operators = {}
    for info in op_db:
        operators.setdefault(info.name + ("." + info.variant_test_name if info.variant_test_name else ""), info)
    return operators


def sampled(operators):
    """Returns the operators that PyTorch's own build compiles, too."""
    names = list(operators)[::EVERY] + [name for name in IMPORTANT if name in operators]
    return sorted(set(names))


# ---- samples ----

def dtype_of(info):
    """Returns float32, or int64 or complex64 if the operator does not take it."""
    supported = info.supported_dtypes("cpu")
    for dtype in (torch.float32, torch.int64, torch.complex64):
        if dtype in supported:
            return dtype
    return torch.float32


def samples_of(info):
    """Returns the first samples, the same ones in every process."""
    import numpy
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    return list(itertools.islice(info.sample_inputs("cpu", dtype_of(info), requires_grad=False), SAMPLES))


def module_of(info, sample):
    """Returns a module that takes the sample's tensors as inputs, and these tensors. All other arguments are part of the module."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    class Operator(torch.nn.Module):
        def forward(self, *tensors):
            filled = [None if place in places else leaf for place, leaf in enumerate(leaves)]
            for place, tensor in zip(places, tensors):
                filled[place] = tensor
            first, args, kwargs = pytree.tree_unflatten(filled, spec)
            result = info.op(first, *args, **kwargs)
            # torch.export does not know the types of named results.
            return tuple(result) if isinstance(result, tuple) else result

    return Operator(), [leaves[place] for place in places]


def copies(tensors):
    return [torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor) for tensor in tensors]


# ---- compiling ----

def file_of(name, way):
    return os.path.join(LIBRARIES, "%s.%s" % (re.sub(r"[^A-Za-z0-9_.-]", "_", name), way))


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "%s: %s" % (type(error).__name__, lines[0] if lines else "")


def result_elements(info, sample):
    """Returns the number of elements that eager PyTorch computes. Raises an error if PyTorch refuses the sample."""
    module, tensors = module_of(info, sample)
    outputs = [leaf for leaf in pytree.tree_leaves(module(*copies(tensors))) if isinstance(leaf, torch.Tensor)]
    if not outputs:
        raise ValueError("its result is not a tensor")
    return sum(output.numel() for output in outputs)


def compile_sample(info, sample, path, way):
    module, tensors = module_of(info, sample)
    exported = torch.export.export(module.eval(), tuple(copies(tensors)), strict=False)
    options = {"aot_inductor.enable_line_tables": False, "aot_inductor.link_libtorch": way != "unlinked"}
    builder = own_build.make_builder(torch) if way == "own" else None
    with builder.active() if builder is not None else contextlib.nullcontext():
        torch._inductor.aoti_compile_and_package(exported, package_path=path + ".pt2", inductor_configs=options)
    return builder.report()["by"] if builder is not None else "pytorch"


def order_of(info, samples, note):
    """Returns the numbers of the samples that PyTorch computes, those whose result has elements first."""
    full, empty = [], []
    for number, sample in enumerate(samples):
        try:
            with torch.no_grad():
                (full if result_elements(info, sample) > 0 else empty).append(number)
        except Exception as error:
            note["reason"] = first_line(error)
    return full + empty


def write_json(path, value):
    with open(path + ".tmp", "w") as file:
        json.dump(value, file)
    os.rename(path + ".tmp", path)


def compile_operator(info, name, way):
    """Writes a package and then a note: which sample it is for, or why there is none."""
    path, note = file_of(name, way), {"sample": None, "reason": "the database has no sample"}
    # This note stays if the compiler ends the process.
    write_json(path + ".note", {"sample": None, "reason": "compiling ended the process"})
    try:
        samples = samples_of(info)
    except Exception as error:
        samples, note["reason"] = [], first_line(error)
    for number in order_of(info, samples, note):
        try:
            with torch.no_grad():
                by = compile_sample(info, samples[number], path, way)
            note = {"sample": number, "by": by}
            break
        except Exception as error:
            note["reason"] = first_line(error)
        finally:
            torch._dynamo.reset()
    write_json(path + ".note", note)


def worker(part, jobs, names, ways):
    """Compiles every `jobs`th of the missing packages."""
    import signal

    def late(*_):
        raise TimeoutError("compiling took more than %d seconds" % COMPILE_SECONDS)

    signal.signal(signal.SIGALRM, late)
    operators = database()
    for name, way in work(names, ways, operators)[part::jobs]:
        if os.path.exists(file_of(name, way) + ".note"):
            continue
        signal.alarm(COMPILE_SECONDS)
        try:
            compile_operator(operators[name], name, way)
        except Exception as error:
            write_json(file_of(name, way) + ".note", {"sample": None, "reason": first_line(error)})
        signal.alarm(0)


def work(names, ways, operators):
    """Returns what to build: pairs of a name and a way. PyTorch's own builds are only for the sampled operators."""
    few = set(sampled(operators))
    return [(name, way) for way in ways for name in names if way == "own" or name in few]


def compile_all(names, jobs, ways):
    os.makedirs(LIBRARIES, exist_ok=True)
    operators = database()
    count = None
    while True:  # a compile may end its process
        missing = [one for one in work(names, ways, operators) if not os.path.exists(file_of(*one) + ".note")]
        if not missing or len(missing) == count:
            return
        count = len(missing)
        print("compiling %d packages in %d processes" % (count, jobs), flush=True)
        command = [sys.executable, os.path.abspath(__file__), "--jobs", str(jobs), "--ways", ",".join(ways), "--worker"]
        workers = [subprocess.Popen(command + [str(part), *names], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                   for part in range(jobs)]
        for process in workers:
            process.wait()


# ---- running ----

def run_alone(package, inputs):
    """Returns (outputs, None), or (None, the reason)."""
    with tempfile.TemporaryDirectory(prefix="aoticache-operators.") as directory:
        given, got = os.path.join(directory, "inputs"), os.path.join(directory, "outputs")
        write_tensors(given, inputs)
        ran = subprocess.run([HELPER, package, given, got], capture_output=True, text=True, timeout=300,
                             env={**os.environ, "AOTICACHE_DIR": os.path.join(directory, "cache")})
        if ran.returncode == 0:
            return read_tensors(got), None
        if ran.returncode == 3:
            missing = sorted(set(MISSING.findall(ran.stderr)))
            return None, "refused: " + (", ".join(missing) if missing else ran.stderr.strip())
        return None, "failed: " + (ran.stderr.strip().splitlines() or ["exit %d" % ran.returncode])[-1]


def reference(name, info, sample, package):
    module, tensors = module_of(info, sample)
    inputs = copies(tensors)
    with torch.no_grad():
        if name in RANDOM:
            model = torch._inductor.aoti_load_package(package)
            torch.manual_seed(DEFAULT_SEED)
            outputs = model(*inputs)
        else:
            outputs = module(*inputs)
    return [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def with_one_sign(vectors):
    """Returns the vectors with the sign (or phase) that makes the largest element of each column positive."""
    largest = torch.take_along_dim(vectors, vectors.abs().argmax(-2, keepdim=True), -2)
    return vectors * largest.conj() / largest.abs()


def compare(name, seen, wanted):
    if len(seen) == len(wanted):
        for place in VECTORS.get(name, ()):
            seen[place], wanted[place] = with_one_sign(seen[place]), with_one_sign(wanted[place])
    if len(seen) != len(wanted):
        return "differs: %d outputs, PyTorch has %d" % (len(seen), len(wanted))
    exact = True
    for ours, theirs in zip(seen, wanted):
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return "differs: %s %s, PyTorch has %s %s" % (ours.dtype, list(ours.shape), theirs.dtype,
                                                          list(theirs.shape))
        if name in UNINITIALISED:
            continue
        try:
            allowed = dict(zip(("atol", "rtol"), TOLERANCES.get(name, (None, None))))
            torch.testing.assert_close(ours, theirs.resolve_conj().resolve_neg(), equal_nan=True, check_stride=False, **allowed)
        except AssertionError as error:
            return "differs: " + re.sub(r"\s+", " ", str(error))[:120]
        if ours.dtype == torch.complex32 or (ours.dtype.is_floating_point and ours.itemsize == 1):  # PyTorch has no nan_to_num of them
            wide = torch.complex64 if ours.dtype.is_complex else torch.float32
            ours, theirs = ours.to(wide), theirs.to(wide)
        exact = exact and torch.equal(torch.nan_to_num(ours), torch.nan_to_num(theirs))
    return "equal" if exact else "within tolerance"


def judge(name, info, way):
    path = file_of(name, way)
    with open(path + ".note") as file:
        note = json.load(file)
    if note["sample"] is None:
        return "not compiled by PyTorch: " + note["reason"][:160]
    sample = samples_of(info)[note["sample"]]
    try:
        inputs = copies(module_of(info, sample)[1])
        seen, why = run_alone(path + ".pt2", inputs)
    except Exception as error:
        return "failed: " + first_line(error)[:160]
    if seen is None:
        return why
    try:
        wanted = reference(name, info, sample, path + ".pt2")
    except Exception as error:
        return "not compiled by PyTorch: PyTorch does not run it: " + first_line(error)[:140]
    return compare(name, seen, wanted)


def fingerprint(path):
    """Returns a text that changes if the package, the shim, the helper or this program changes."""
    files = [path + ".note", os.path.join(BUILD, "lib", "libaoticache_torchshim.so"),
             HELPER, __file__]
    return " ".join("%d" % os.stat(file).st_mtime_ns for file in files)


def judge_kept(name, info, way):
    """Returns the result: the kept one if its fingerprint is still the same."""
    path = file_of(name, way)
    if not os.path.exists(path + ".note"):
        return "not compiled by PyTorch: it ended or took too long"
    now = fingerprint(path)
    if os.path.exists(path + ".result"):
        with open(path + ".result") as file:
            kept = json.load(file)
        if kept["fingerprint"] == now:
            return kept["result"]
    result = judge(name, info, way)
    write_json(path + ".result", {"fingerprint": now, "result": result})
    return result


def judge_all(names, ways, before):
    operators = database()
    results = {way: dict(before.get(way, {})) if way not in ways else {} for way in WAYS}
    for name, way in work(names, ways, operators):
        results[way][name] = judge_kept(name, operators[name], way)
    if "linked" not in ways and "pytorch_builds" in before:
        results["pytorch_builds"] = before["pytorch_builds"]
    results["torch"] = torch.__version__
    results["every"] = EVERY
    results["database"] = len(operators)
    return results


# ---- the table ----

KINDS = ("equal", "within tolerance", "refused", "failed", "differs", "not compiled by PyTorch")


def counts_of(results):
    return collections.Counter(result.split(":")[0] for result in results.values())


def missing_functions(results):
    found = collections.defaultdict(list)
    for name, result in results.items():
        if result.startswith("refused: "):
            for function in result[len("refused: "):].split(", "):
                found[function].append(name)
    return found


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


MEANINGS = {
    "equal": "the same values, bit for bit, except for the kind of NaN",
    "within tolerance": "within PyTorch's own tolerances",
    "refused": "the loader names the missing function and loads nothing",
    "failed": "an error while running",
    "differs": "a result outside these tolerances",
    "not compiled by PyTorch": "`torch.export` or AOTInductor cannot compile it, or its result is not a tensor",
}
HEAD = """# Operators of PyTorch that run without PyTorch

Made by `make operators` (tests/python/operators/operator_table.py) from
`tests/python/operators/operator_results.json`, which has the result of every operator; not edited by hand.

This covers the %(database)d operators of PyTorch's test database, on the CPU, with PyTorch %(torch)s and float32 tensors (int64 or
complex64 if an operator does not take float32). For each operator, the first of its first %(samples)d samples that `torch.export`
accepts is used, preferably one whose result has elements. AOTInductor compiles it into a package, and a C process runs the
package on `libaoticache_torchshim.so`. `torch.testing.assert_close` then compares the result with eager PyTorch, with three
exceptions:

- An operator that draws random numbers is compared with the same package on libtorch, with the same seed.
- For an operator that returns uninitialized memory, only sizes and dtype are compared.
- Eigenvectors and singular vectors may have the opposite sign.

%(ran)d of the %(packages)d packages run and give PyTorch's results.

| result | operators | meaning |
| --- | --- | --- |
"""


def render(results):
    own, out = results["own"], io.StringIO()
    counts = counts_of(own)
    out.write(HEAD % {"database": results["database"], "torch": results["torch"], "samples": SAMPLES,
                      "ran": counts["equal"] + counts["within tolerance"],
                      "packages": len(own) - counts["not compiled by PyTorch"]})
    for kind in KINDS:
        out.write("| %s | %d | %s |\n" % (kind, counts[kind], MEANINGS[kind]))
    write_pytorch_builds(out, results)
    write_table(out, "What is missing", "function", {"`%s`" % name: found for name, found in missing_functions(own).items()})
    for kind in ("failed", "differs", "not compiled by PyTorch"):
        write_table(out, kind[0].upper() + kind[1:], "reason", reasons_of(own, kind))
    return out.getvalue()


def write_pytorch_builds(out, results):
    out.write("\nThese packages are linked by our own build (eager/compile/inductor/build.py). The JSON file also has every %dth\n"
              "operator and the most used ones as PyTorch's own build links them, with and without `link_libtorch`." % results["every"])
    if results.get("pytorch_builds"):
        out.write(" Those results were\nrecorded with an older shim, so they are not counted here. `operator_table.py --pytorch-builds` "
                  "records them again.\n")
        return
    for way, what in (("linked", "With it"), ("unlinked", "without it")):
        found = counts_of(results[way])
        out.write("%s %s, %d of %d packages run and give PyTorch's results" % (
            "" if way == "linked" else ";", what, found["equal"] + found["within tolerance"],
            len(results[way]) - found["not compiled by PyTorch"]))
    out.write(".\n")


def reasons_of(results, kind):
    """Returns the operators with this kind of result by the first sentence of the reason."""
    found = collections.defaultdict(list)
    for name, result in results.items():
        if result.startswith(kind + ": "):
            found[result[len(kind) + 2:].partition(". ")[0]].append(name)
    return found


def write_table(out, title, head, groups):
    """Writes a section with the operators of each group, the largest group first; writes nothing without groups."""
    if groups:
        out.write("\n## %s\n\n| %s | operators |\n| --- | --- |\n" % (title, head))
        for one in sorted(groups, key=lambda key: (-len(groups[key]), key)):
            out.write("| %s | %s |\n" % (cell(one), ", ".join("`%s`" % name for name in sorted(groups[one]))))


def summary(results):
    counts = counts_of(results["own"])
    return ", ".join("%d %s" % (counts[kind], kind) for kind in KINDS)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--render", action="store_true", help="write the document from the recorded results")
    parser.add_argument("--list", action="store_true", help="list the operators")
    parser.add_argument("--pytorch-builds", action="store_true", help="also compile with PyTorch's own build (hours)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--ways", type=lambda text: text.split(","), help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("operators", nargs="*")
    options = parser.parse_args()
    ways = options.ways or (list(WAYS) if options.pytorch_builds else ["own"])
    with open(RESULTS) as file:
        results = json.load(file)
    if not options.render:
        if not load_torch():
            print("operator_table: this Python has no PyTorch", file=sys.stderr)
            return 1
        names = options.operators or sorted(database())
        if options.list:
            print("\n".join(names))
            return 0
        if options.worker is not None:
            worker(options.worker, options.jobs, names, ways)
            return 0
        compile_all(names, options.jobs, ways)
        results = judge_all(names, ways, results)
        print(summary(results))
        if options.operators:
            for name in names:
                print("%-40s %s" % (name, "  ".join(results[way].get(name, "") for way in ways)))
            return 0
        with open(RESULTS, "w") as file:
            json.dump(results, file, indent=1, sort_keys=True)
            file.write("\n")
    with open(TABLE, "w") as file:
        file.write(render(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
