"""Which operators of PyTorch's operator database run in a process without PyTorch: makes docs/operators.md.

`make operators` runs it: a sample of the database, each operator with its first CPU sample that exports (float32 where
it can be), is compiled by AOTInductor, run by tests/helpers/run_library on libaoticache_torchshim.so, and compared with
eager PyTorch. Libraries are kept in $BUILD/operators and are compiled once. Results go to
tests/python/operator_results.json, and the table is made from those alone. Not a test: it takes minutes.
tests/python/test_operator_table.py is its short form.

usage: operator_table.py [--render] [--jobs N] [--list] [OPERATOR...]    (OPERATOR...: only these, nothing is written)
Environment: BUILD, the build folder.
"""
import argparse
import collections
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
# Their elements are whatever memory held.
UNINITIALISED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted", "resize_",
                 "resize_as_"}
# A compiled library draws its numbers in another way than eager PyTorch, so the reference is the same library on
# libtorch, with the same seed.
RANDOM = {"bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal",
          "normal.in_place", "normal.number_mean", "rand_like", "randint", "randint_like", "randn", "randn_like",
          "uniform", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
          "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout.with_train", "nn.functional.rrelu",
          "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"}


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
    from torch.testing._internal.common_methods_invocations import op_db
    operators = {}
    for info in op_db:
        operators.setdefault(info.name + ("." + info.variant_test_name if info.variant_test_name else ""), info)
    return operators


def chosen(operators):
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

def file_of(name, linked=True):
    return os.path.join(LIBRARIES, re.sub(r"[^A-Za-z0-9_.-]", "_", name) + ("" if linked else ".unlinked"))


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


def compile_sample(info, sample, path, linked):
    module, tensors = module_of(info, sample)
    exported = torch.export.export(module.eval(), tuple(copies(tensors)), strict=False)
    options = {"aot_inductor.output_path": path + ".so", "aot_inductor.enable_line_tables": False,
               "aot_inductor.link_libtorch": linked}
    torch._inductor.aot_compile(exported.module(), tuple(copies(tensors)), options=options)


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


def compile_operator(info, name, linked):
    """Leaves a library and, last, a note of which sample it is for, or why there is none."""
    path, note = file_of(name, linked), {"sample": None, "reason": "the database has no sample"}
    try:
        samples = samples_of(info)
    except Exception as error:
        samples, note["reason"] = [], first_line(error)
    for number in order_of(info, samples, note):
        try:
            with torch.no_grad():
                compile_sample(info, samples[number], path, linked)
            note = {"sample": number}
            break
        except Exception as error:
            note["reason"] = first_line(error)
    with open(path + ".tmp", "w") as file:
        json.dump(note, file)
    os.rename(path + ".tmp", path + ".json")


def worker(part, jobs, names):
    """Compiles every `jobs`th of what is missing."""
    import signal

    def late(*_):
        raise TimeoutError("compiling took more than %d seconds" % COMPILE_SECONDS)

    signal.signal(signal.SIGALRM, late)
    operators = database()
    for name, linked in [(name, linked) for name, linked in work(names)][part::jobs]:
        if os.path.exists(file_of(name, linked) + ".json"):
            continue
        signal.alarm(COMPILE_SECONDS)
        try:
            compile_operator(operators[name], name, linked)
        except Exception as error:
            print("%s: %s" % (name, first_line(error)), flush=True)
        signal.alarm(0)


def work(names):
    """Each is compiled twice: with the NEEDED entry for libtorch, and without."""
    return [(name, linked) for linked in (True, False) for name in names]


def compile_all(names, jobs):
    os.makedirs(LIBRARIES, exist_ok=True)
    missing = [name for name, linked in work(names) if not os.path.exists(file_of(name, linked) + ".json")]
    if not missing:
        return
    print("compiling %d libraries in %d processes" % (len(missing), jobs), flush=True)
    command = [sys.executable, os.path.abspath(__file__), "--jobs", str(jobs), "--worker"]
    workers = [subprocess.Popen(command + [str(part), *names], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
               for part in range(jobs)]
    for process in workers:
        process.wait()


# ---- running ----

def run_alone(library, inputs):
    """(outputs, None) or (None, why not)"""
    with tempfile.TemporaryDirectory(prefix="aoticache-operators.") as directory:
        given, got = os.path.join(directory, "inputs"), os.path.join(directory, "outputs")
        write_tensors(given, inputs)
        ran = subprocess.run([HELPER, library, given, got], capture_output=True, text=True, timeout=300)
        if ran.returncode == 0:
            return read_tensors(got), None
        if ran.returncode == 3:
            missing = sorted(set(re.findall(r"\b(?:aoti_torch_|torch_|Sleef_|_Z)\w+", ran.stderr)))
            return None, "refused: " + (", ".join(missing) if missing else ran.stderr.strip())
        return None, "failed: " + (ran.stderr.strip().splitlines() or ["exit %d" % ran.returncode])[-1]


def reference(name, info, sample, library):
    module, tensors = module_of(info, sample)
    inputs = copies(tensors)
    with torch.no_grad():
        if name in RANDOM:
            torch.manual_seed(DEFAULT_SEED)
            outputs = torch._C._aoti.AOTIModelContainerRunnerCpu(library, 1).run(inputs)
        else:
            outputs = module(*inputs)
    return [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def compare(name, seen, wanted):
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
            torch.testing.assert_close(ours, theirs.resolve_conj().resolve_neg(), equal_nan=True, check_stride=False)
        except AssertionError as error:
            return "differs: " + re.sub(r"\s+", " ", str(error))[:120]
        exact = exact and torch.equal(torch.nan_to_num(ours), torch.nan_to_num(theirs))
    return "equal" if exact else "within tolerance"


def judge(name, info, linked):
    with open(file_of(name, linked) + ".json") as file:
        note = json.load(file)
    if note["sample"] is None:
        return "not compiled by PyTorch: " + note["reason"][:160]
    sample = samples_of(info)[note["sample"]]
    library = file_of(name, linked) + ".so"
    try:
        inputs = copies(module_of(info, sample)[1])
        seen, why = run_alone(library, inputs)
        return why if seen is None else compare(name, seen, reference(name, info, sample, file_of(name) + ".so"))
    except Exception as error:
        return "failed: " + first_line(error)[:160]


def judge_all(names):
    operators, results = database(), {"linked": {}, "unlinked": {}}
    for name, linked in work(names):
        if os.path.exists(file_of(name, linked) + ".json"):
            results["linked" if linked else "unlinked"][name] = judge(name, operators[name], linked)
        else:
            results["linked" if linked else "unlinked"][name] = "not compiled by PyTorch: it ended or took too long"
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
    linked, unlinked = results["linked"], results["unlinked"]
    counts, out = counts_of(linked), io.StringIO()
    ran = counts["equal"] + counts["within tolerance"]
    unlinked_counts = counts_of(unlinked)
    out.write("""# Operators of PyTorch that run without PyTorch

Made by `make operators` (tests/python/operator_table.py) from tests/python/operator_results.json; not edited by hand.

This table was made with PyTorch %s on the CPU, with float32 (int64 or complex64 for operators that do not take it). It has every %dth of
the %d operators of PyTorch's test database, and those that matter most. Of an operator's first %d samples, the first that `torch.export`
accepts is taken (preferably one whose result has elements). AOTInductor compiles it, a C process runs it on
`libaoticache_torchshim.so`, and `torch.testing.assert_close` compares the result with eager PyTorch. An operator that draws random
numbers is compared with the same library on libtorch and the same seed. For an operator that returns uninitialised memory only sizes and
dtype are compared.

| result | operators | meaning |
| --- | --- | --- |
""" % (results["torch"], results["every"], results["database"], SAMPLES))
    meanings = ("the same values, bit for bit but for the kind of NaN", "within PyTorch's own tolerances",
                "the loader names what is missing and loads nothing", "an error while running",
                "another result than PyTorch's", "`torch.export` or AOTInductor cannot compile it, or its result is not a tensor")
    for kind, meaning in zip(KINDS, meanings):
        out.write("| %s | %d | %s |\n" % (kind, counts[kind], meaning))
    out.write("\n%d operators; %d of the %d libraries run and give PyTorch's results.\n" % (
        len(linked), ran, len(linked) - counts["not compiled by PyTorch"]))
    out.write("Of the %d that are compiled a second time with `link_libtorch=False`, %d do.\n" % (
        len(unlinked) - unlinked_counts["not compiled by PyTorch"],
        unlinked_counts["equal"] + unlinked_counts["within tolerance"]))
    missing = missing_functions(linked)
    if missing:
        out.write("\n## Functions that are missing\n\n| function | operators that need it |\n| --- | --- |\n")
        for function in sorted(missing, key=lambda key: (-len(missing[key]), key)):
            out.write("| `%s` | %s |\n" % (cell(function), ", ".join(missing[function])))
    out.write("\n## All\n\n| operator | result | without link |\n| --- | --- | --- |\n")
    for name in sorted(linked):
        out.write("| %s | %s | %s |\n" % (name, cell(linked[name]), cell(unlinked.get(name, ""))))
    return out.getvalue()


def summary(results):
    counts = counts_of(results["linked"])
    return ", ".join("%d %s" % (counts[kind], kind) for kind in KINDS)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--render", action="store_true", help="make the table anew from recorded results")
    parser.add_argument("--list", action="store_true", help="the operators that are taken")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--worker", type=int)
    parser.add_argument("operators", nargs="*")
    options = parser.parse_args()
    if options.render:
        with open(RESULTS) as file:
            results = json.load(file)
    else:
        if not load_torch():
            print("operator_table: this Python has no PyTorch", file=sys.stderr)
            return 1
        names = options.operators or chosen(database())
        if options.list:
            print("\n".join(names))
            return 0
        if options.worker is not None:
            worker(options.worker, options.jobs, names)
            return 0
        compile_all(names, options.jobs)
        results = judge_all(names)
        print(summary(results))
        if options.operators:
            for name, result in sorted(results["linked"].items()):
                print("%-40s %s  %s" % (name, result, results["unlinked"].get(name, "")))
            return 0
        with open(RESULTS, "w") as file:
            json.dump(results, file, indent=1, sort_keys=True)
            file.write("\n")
    with open(TABLE, "w") as file:
        file.write(render(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
