"""Which operators of PyTorch's operator database run in a process without PyTorch: makes docs/operators.md.

`make operators` runs it: the whole database, each operator with its first CPU sample that exports (float32 where it can
be), is compiled by AOTInductor as a package, run by tests/helpers/run_library on libaoticache_torchshim.so, and compared
with eager PyTorch. Packages are kept in $BUILD/operators and are compiled once; results are kept in $BUILD/operators too
until the shim or the package changes, so that a run goes on where the last one ended. Results go to
tests/python/operator_results.json, and the table is made from those alone. Not a test: the first run takes an hour or two.
tests/python/test_operator_table.py is its short form.

A package is built in three ways. `own`: PyTorch's kernels in our container (eager/inductor/build.py), which takes a second
or two; it calls the same functions. `linked` and `unlinked`: PyTorch's own build, which takes most of a minute; only every
fifth operator and those that matter most, and only with --pytorch-builds. Without it their last results stay.

usage: operator_table.py [--render] [--jobs N] [--list] [--pytorch-builds] [OPERATOR...]
       (OPERATOR...: only these, nothing is written)
Environment: BUILD, the build folder.
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

import own_build

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "operator_results.json")
TABLE = os.path.join(HERE, "..", "..", "docs", "operators.md")
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
LIBRARIES = os.path.join(BUILD, "operators")
HELPER = os.path.join(BUILD, "tests", "helpers", "run_library")
EVERY = 5
SAMPLES = 8
COMPILE_SECONDS = 600
# PyTorch's seed of a process that sets none, which the shim has too (c10/core/GeneratorImpl.h).
DEFAULT_SEED = 67280421310721
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("AOTICACHE_HOME", BUILD)

# What programs use most, and one of each kind of function that libraries take from libtorch.
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
# What the loader and a package's executor say is missing.
MISSING = re.compile(r"\b(?:[a-z]\w*::\w+(?:\.\w+)?|(?:aoti_torch_|torch_|Sleef_|_Z)\w+)")
# Their elements are whatever memory held.
UNINITIALISED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted", "resize_",
                 "resize_as_"}
# Results whose columns are eigenvectors or singular vectors: each may have the other sign (of complex numbers, another phase).
VECTORS = {"linalg.eigh": (1,), "pca_lowrank": (0, 2), "svd_lowrank": (0, 2)}
# What PyTorch's own tests allow, absolute and relative, where it is more than torch.testing.assert_close() does.
TOLERANCES = {"addbmm": (1.3e-5, 1.3e-5)}
# A compiled library draws its numbers in another way than eager PyTorch, so the reference is the same library on
# libtorch, with the same seed.
RANDOM = {"bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal",
          "normal.in_place", "normal.number_mean", "rand_like", "randint", "randint_like", "randn", "randn_like",
          "uniform", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
          "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout.with_train", "nn.functional.rrelu",
          "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "pca_lowrank",
          "svd_lowrank"}


def load_torch():
    """PyTorch and its operator database; False where there is no PyTorch."""
    global torch, pytree, read_tensors, write_tensors
    try:
        import torch
    except ImportError:
        return False
    from torch.utils import _pytree as pytree
    from tensor_file import read_tensors, write_tensors
    warnings.simplefilter("ignore")
    os.environ["PYTHONWARNINGS"] = "ignore"
    # PyTorch's test utilities derive one class from this package's; nothing here uses it.
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
    """Those that PyTorch's own build compiles, too."""
    names = list(operators)[::EVERY] + [name for name in IMPORTANT if name in operators]
    return sorted(set(names))


# ---- samples ----

def dtype_of(info):
    """float32, or for operators that do not take it int64 or complex64."""
    supported = info.supported_dtypes("cpu")
    for dtype in (torch.float32, torch.int64, torch.complex64):
        if dtype in supported:
            return dtype
    return torch.float32


def samples_of(info):
    """The first samples; the same ones in every process."""
    import numpy
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    return list(itertools.islice(info.sample_inputs("cpu", dtype_of(info), requires_grad=False), SAMPLES))


def module_of(info, sample):
    """A module whose inputs are the sample's tensors, and those; everything else is part of it."""
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
    """How many numbers eager PyTorch gives; an error where it refuses: then there is no reference."""
    module, tensors = module_of(info, sample)
    outputs = [leaf for leaf in pytree.tree_leaves(module(*copies(tensors))) if isinstance(leaf, torch.Tensor)]
    if not outputs:
        raise ValueError("its result is no tensor")
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
    """The samples that have a reference, those whose result has elements first."""
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
    """Leaves a package and, last, a note of which sample it is for, or why there is none."""
    path, note = file_of(name, way), {"sample": None, "reason": "the database has no sample"}
    # What stands where the compiler takes the process down.
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
    """Compiles every `jobs`th of what is missing."""
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
    """PyTorch's own builds are for the sample alone."""
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
    """(outputs, None) or (None, why not)"""
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
    """Columns whose largest element is a positive number."""
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
    """Changes where the result may: with what compiled it, and with what runs it."""
    files = [path + ".note", os.path.join(BUILD, "lib", "libaoticache_torchshim.so"),
             HELPER, __file__]
    return " ".join("%d" % os.stat(file).st_mtime_ns for file in files)


def judge_kept(name, info, way):
    """The result, from the last run where nothing has changed since."""
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


def render(results):
    own, linked, unlinked = (results[way] for way in WAYS)
    counts, out = counts_of(own), io.StringIO()
    ran = counts["equal"] + counts["within tolerance"]
    out.write("""# Operators of PyTorch that run without PyTorch

Made by `make operators` (tests/python/operator_table.py) from tests/python/operator_results.json; not edited by hand.

This table was made with PyTorch %s on the CPU, with float32 (int64 or complex64 for operators that do not take it). It has
the %d operators of PyTorch's test database. Of an operator's first %d samples, the first that `torch.export`
accepts is taken (preferably one whose result has elements). AOTInductor compiles it, a C process runs the package on
`libaoticache_torchshim.so`, and `torch.testing.assert_close` compares the result with eager PyTorch. An operator that draws random
numbers is compared with the same package on libtorch and the same seed. For an operator that returns uninitialised memory only sizes and
dtype are compared. Eigenvectors and singular vectors may have the
other sign.

| result | operators | meaning |
| --- | --- | --- |
""" % (results["torch"], results["database"], SAMPLES))
    meanings = ("the same values, bit for bit but for the kind of NaN", "within PyTorch's own tolerances",
                "the loader names what is missing and loads nothing", "an error while running",
                "another result than PyTorch's", "`torch.export` or AOTInductor cannot compile it, or its result is not a tensor")
    for kind, meaning in zip(KINDS, meanings):
        out.write("| %s | %d | %s |\n" % (kind, counts[kind], meaning))
    out.write("\n%d operators; %d of the %d packages run and give PyTorch's results.\n" % (
        len(own), ran, len(own) - counts["not compiled by PyTorch"]))
    out.write("They are built in our container. Every %dth operator, and those that matter most, are built by PyTorch, too:\n" %
              results["every"])
    for way, what in ((linked, ""), (unlinked, " with `link_libtorch=False`")):
        found = counts_of(way)
        out.write("of %d packages%s %d run and give PyTorch's results%s\n" % (
            len(way) - found["not compiled by PyTorch"], what, found["equal"] + found["within tolerance"],
            ";" if way is linked else "."))
    if results.get("pytorch_builds"):
        out.write("These are results of an earlier run, %s; `operator_table.py --pytorch-builds` makes them anew.\n" %
                  results["pytorch_builds"])
    missing = missing_functions(own)
    if missing:
        out.write("\n## What is missing\n\n| function | operators that need it |\n| --- | --- |\n")
        for function in sorted(missing, key=lambda key: (-len(missing[key]), key)):
            out.write("| `%s` | %s |\n" % (cell(function), ", ".join(missing[function])))
    out.write("\n## All\n\n| operator | result | PyTorch's build | without link |\n| --- | --- | --- | --- |\n")
    for name in sorted(own):
        out.write("| %s | %s | %s | %s |\n" % (name, cell(own[name]), cell(linked.get(name, "")).split(":")[0],
                                             cell(unlinked.get(name, "")).split(":")[0]))
    return out.getvalue()


def summary(results):
    counts = counts_of(results["own"])
    return ", ".join("%d %s" % (counts[kind], kind) for kind in KINDS)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--render", action="store_true", help="make the table anew from recorded results")
    parser.add_argument("--list", action="store_true", help="the operators that are taken")
    parser.add_argument("--pytorch-builds", action="store_true", help="compile the sample as PyTorch does, too: hours")
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
