"""Compares PyTorch's operators with compiled kernels and with PyTorch alone, over dtypes, sizes, layouts, values, numbers and
settings of the process.

    torch_differences.py campaign [SECONDS [PATTERN]]  all entries of PyTorch's operator database, or those whose NAME:DTYPE the
                                                regular expression is found in, in an order that SEED decides, until the time is
                                                over; continues where earlier runs ended, and adds to the table
                                                (make long FORMS=python/torch_differences: hours)
    torch_differences.py sample SEED COUNT      that many pairs of an entry and a dtype
    torch_differences.py table                  records the results in torch_checks.json and writes docs/results/torch-checks.md
    torch_differences.py child NAME:DTYPE ...   those pairs; a line of JSON for each case
    torch_differences.py show NAME:DTYPE        describes the differences

Every operator is enabled that can be, including those that patterns and presets leave out. Each entry is called with each dtype
that it takes. A case is a sample of the database with the change that its name gives: the last dimension has another size, the
tensors have another memory layout, their elements are limits, NaN, zeros or indices at both ends and beyond, its numbers are
replaced one after the other, the default dtype is float64, deterministic algorithms are requested, or there is one thread.

Most kernels are dynamic, so that one serves many sizes; a part of the pairs has exact ones. The campaign compares values (bits,
or within the rounding of the dtype), dtypes, sizes, strides, including those of dimensions of size 1, and the type and message of
exceptions.

Environment: BUILD; SEED (1); CACHE: where kernels are kept; JOBS: processes at a time (2); RESULTS: the file of results.
"""
import collections
import concurrent.futures
import copy
import ctypes
import itertools
import json
import logging
import os
import random
import re
import resource
import sys
import time
import warnings

import operator_table
import torch_checks
import torch_writes

BUILD = torch_checks.BUILD
SEED = int(os.environ.get("SEED", "1"))
CACHE = os.environ.get("CACHE", os.path.join(BUILD, "torch-differences-cache"))
RESULTS = os.environ.get("RESULTS", os.path.join(BUILD, "torch-differences.jsonl"))
JOBS = int(os.environ.get("JOBS", "2"))
SECONDS = 3600  # limit for one process
PAIRS_A_PROCESS = 12
ACTIVATIONS = [f"nn.functional.{one}" for one in (
    "celu", "elu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "logsigmoid", "mish", "relu6",
    "selu", "silu", "softplus", "softshrink", "softsign", "threshold")]
# Small results of these are differences of larger numbers, so PyTorch's kernels have no more digits either.
DIFFERENCES = ("nn.functional.tanhshrink", "special.ndtr", "digamma", "lgamma", "mvlgamma", "polygamma", "special.bessel_j0",
               "special.bessel_j1", "special.bessel_y0", "special.bessel_y1", "logit", "erfinv")
# Operators that most others call, with as many kernels as there are cases; nearly all of these have pairs of their own.
HELPERS = ("copy_", "clone", "_to_copy", "_unsafe_view", "empty_like", "fill_", "zeros_like", "lift_fresh_copy")
WITH_HELPERS = 0.15  # fraction of the processes in which they are enabled
EXACT = 0.08  # fraction of the processes whose kernels are exact: each case has one, or several
SAMPLES, MOST_ELEMENTS = 2, 20000
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
          "complex128")
# Sizes around every width of a vector: of 8, 16, 32 and 64 elements, and of their parts.
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 11, 15, 16, 17, 23, 31, 32, 33, 37, 47, 48, 49, 63, 64, 65, 70)
# Passed one after the other: the first two have their own kernels, the others share one. Most are not float32 numbers.
NUMBERS = (1 / 3, 0.1, -2.5, 1 / 7, 1.0000001, 1e-6, 3.0)
# These have their own kernels.
ODD_NUMBERS = (70000.5, 0.0, -0.0, float("inf"), float("nan"))
INTEGERS = (3, -2, 0, 1, 16777217, 2147483653, -1, 7)
# Relative and absolute: how far apart results of the same arithmetic may be. Only the order of sums may differ.
TOLERANCES = {"float64": (1e-11, 1e-12), "complex128": (1e-11, 1e-12)}
# For operators that compute element by element, so that small results have as many digits as others.
ELEMENTWISE = {"float16": (4e-3, 1e-7), "bfloat16": (2e-2, 1e-37), "float32": (2e-5, 1e-37), "float64": (1e-11, 1e-300)}
ANOTHER, NEARER = "another of PyTorch's answers", "nearer to the exact result"
COLUMNS = ("cases", "served", "equal", "within tolerance", ANOTHER, NEARER, "same exception", "wrong")
MEMORY = 10 << 30  # the address space of a process: calls that need more fail in both


# ---- cases ----

def resized(torch, sample, size):
    """Resizes the last dimension of all tensors in which it had the size of the first tensor's."""
    first = next((one for one in tensors_of(torch, sample) if one.dim() > 0), None)
    if first is None or first.shape[-1] == 0:
        return None
    old = first.shape[-1]

    def change(_, tensor):
        if tensor.dim() == 0 or tensor.shape[-1] != old:
            return tensor
        return torch.cat([tensor] * (size // old + 1), -1)[..., :size].contiguous()

    return torch_checks.map_tensors(torch, sample, change)


def tensors_of(torch, sample):
    from torch.utils import _pytree as pytree
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return [one for one in leaves if isinstance(one, torch.Tensor)]


def renumbered(sample, numbers, kind, wanted=lambda value: True):
    """Yields the sample with its first number of this kind replaced, once for each of the numbers."""
    places = [(list(sample.args), at, value) for at, value in enumerate(sample.args)]
    for number in numbers:
        for _, at, value in places:
            if type(value) is kind and wanted(value):
                changed = copy.copy(sample)
                changed.args = (*sample.args[:at], number, *sample.args[at + 1:])
                yield number, changed
                break
        else:
            for name, value in sample.kwargs.items():
                if type(value) is kind and wanted(value):
                    changed = copy.copy(sample)
                    changed.kwargs = {**sample.kwargs, name: number}
                    yield number, changed
                    break


def with_number(torch, sample, numbers):
    """Yields the sample of an operator of two tensors with each of the numbers instead of the second tensor."""
    if not sample.args or not isinstance(sample.args[0], torch.Tensor) or not isinstance(sample.input, torch.Tensor):
        return
    for number in numbers:
        changed = copy.copy(sample)
        changed.args = (number, *sample.args[1:])
        yield number, changed


def layouts(torch):
    """Yields (name, function that changes the layout of a tensor)."""
    def offset(tensor):
        memory = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype)
        memory[1:] = tensor.flatten()
        return memory[1:].view(tensor.shape)

    def channels_last(tensor):
        return tensor.movedim(1, -1).contiguous().movedim(-1, 1) if tensor.dim() > 2 else tensor

    def one_channel(tensor):
        return channels_last(tensor[:, :1]) if tensor.dim() > 2 else tensor

    def odd_strides(tensor):  # for a dimension of size 1
        return tensor[:1].as_strided(tensor[:1].shape, (7, *tensor.stride()[1:])) if tensor.dim() and len(tensor) else tensor

    def expanded(tensor):
        return tensor[:1].expand(tensor.shape) if tensor.dim() and tensor.numel() else tensor

    yield "offset", offset
    yield "turned", lambda tensor: torch_writes.turned(torch, tensor)[0] if tensor.dim() > 1 else tensor
    yield "every second", lambda tensor: torch_writes.embedded(torch, tensor)[0] if tensor.dim() else tensor
    yield "channels last", channels_last
    yield "one channel, last", one_channel
    yield "odd strides of a size of 1", odd_strides
    yield "expanded", expanded
    yield "empty", lambda tensor: tensor[:0] if tensor.dim() else tensor
    yield "without dimensions", lambda tensor: tensor.flatten()[0] if tensor.numel() else tensor


def values(torch):
    """Yields (name, a change for torch_checks.map_tensors())."""
    def integers(tensor):
        return not tensor.dtype.is_floating_point and not tensor.dtype.is_complex and tensor.dtype != torch.bool

    def fill(numbers, wanted=lambda tensor: True, place=None):
        def change(at, tensor):
            if (place is not None and at != place) or not wanted(tensor):
                return tensor
            found = numbers(tensor.dtype) if callable(numbers) else numbers
            return torch_checks.filled(torch, tensor, found)
        return change

    def limits(dtype):
        return torch_checks.limits_of(torch, dtype)

    yield "limits", fill(limits)
    yield "small numbers", fill([1e-7, -1e-7, 3e-5, -3e-5, 1e-3, -0.0, 1e-20], lambda tensor: tensor.dtype.is_floating_point)
    yield "limits in the second", fill(limits, place=1)
    yield "edges of activations", fill([0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 0.0, 20.0, 0.01],
                                       lambda tensor: tensor.dtype.is_floating_point)
    yield "zeros in the second", fill([0], place=1)
    yield "near numbers in integers", fill([5, 0, 1], integers)
    yield "far numbers in integers", fill([0, 100], integers)
    yield "minus one in integers", fill([0, -1], lambda tensor: integers(tensor) and tensor.dtype != torch.uint8)
    yield "large bytes", fill([250, 5, 127, 128, 77], lambda tensor: tensor.dtype == torch.uint8)
    yield "negative bytes", fill([-128, -5, -127, -77], lambda tensor: tensor.dtype == torch.int8)


def cases_of(torch, name, dtype, seed):
    """Yields (what was changed, the sample, settings) for one entry and dtype."""
    info = operator_table.database()[name]
    draw = random.Random(f"{seed} {name} {dtype}")
    torch.manual_seed(7)
    random.seed(7)
    samples = itertools.islice(info.sample_inputs("cpu", getattr(torch, dtype)), 16)
    fitting = [one for one in samples if torch_checks.total(torch, one) <= 4096]
    chosen = sorted(fitting, key=lambda one: -min(torch_checks.total(torch, one), 64))[:SAMPLES]
    if len(fitting) > SAMPLES:
        chosen[-1] = draw.choice(fitting)
    for number, sample in enumerate(chosen):
        for what, changed, settings in changes_of(torch, name, sample, number, draw):
            yield f"sample {number}, {what}", changed, settings


def changes_of(torch, name, sample, number, draw):
    yield "as it is", sample, {}
    for size in draw.sample(SIZES, 6 if number == 0 else 2):
        changed = attempt(torch, lambda size=size: resized(torch, sample, size))
        if changed is None or torch_checks.total(torch, changed) > MOST_ELEMENTS:
            continue
        yield f"a last size of {size}", changed, {"threads": draw.choice((1, 2))}
        what, change = draw.choice(list(values(torch)))
        changed = attempt(torch, lambda: torch_checks.map_tensors(torch, changed, change))
        if changed is not None:
            yield f"a last size of {size}, {what}", changed, {}
    for what, change in values(torch):
        changed = attempt(torch, lambda change=change: torch_checks.map_tensors(torch, sample, change))
        if changed is not None:
            yield what, changed, {}
    for what, change in draw.sample(list(layouts(torch)), 2 if number == 0 else 0):  # each has its own kernel
        changed = attempt(torch, lambda change=change: torch_checks.map_tensors(torch, sample, lambda _, one: change(one)))
        if changed is not None:
            yield what, changed, {}
    if number == 0:
        numbers = (*NUMBERS, draw.choice(ODD_NUMBERS))
        # All values of the 16777217th derivative of log gamma are infinite or NaN.
        is_count = name.startswith("polygamma") or "split" in name or "chunk" in name  # of steps, or of results: millions
        allowed = [one for one in INTEGERS if one < 100 or not is_count]
        integers = draw.sample(allowed, 2)
        for value, changed in itertools.chain(renumbered(sample, numbers, float), renumbered(sample, integers, int)):
            yield f"the number {value!r}", changed, {}
        for value, changed in with_number(torch, sample, (*NUMBERS[:5], draw.choice(ODD_NUMBERS), draw.choice(allowed))):
            yield f"the number {value!r} in the place of the second tensor", changed, {}
        yield "the default dtype float64", sample, {"default dtype": "float64"}
        if any(one.dtype.is_floating_point for one in tensors_of(torch, sample)):
            yield "gradients", sample, {"gradients": True}
            for what, change in draw.sample(list(values(torch)), 2):
                changed = attempt(torch, lambda change=change: torch_checks.map_tensors(torch, sample, change))
                if changed is not None:
                    yield f"gradients, {what}", changed, {"gradients": True}
        yield "deterministic algorithms", sample, {"deterministic": True}


def attempt(torch, change):
    try:
        return change()
    except (RuntimeError, ValueError, TypeError, IndexError, OverflowError):
        return None


# ---- one process ----

def gradients(torch, operator, sample):
    """Returns the gradients of the inputs, which other operators compute."""
    import numpy

    sought = []

    def leaf(_, tensor):
        if not tensor.dtype.is_floating_point:
            return tensor
        sought.append(tensor.detach().requires_grad_())
        return sought[-1]

    sample = torch_checks.map_tensors(torch, sample, leaf)
    from torch.utils import _pytree as pytree
    results = [one for one in pytree.tree_leaves(operator(sample.input, *sample.args, **sample.kwargs))
               if isinstance(one, torch.Tensor) and one.requires_grad and one.dtype.is_floating_point]
    if not results:
        return ()
    given = [torch.from_numpy(numpy.cos(numpy.arange(one.numel()))).to(one.dtype).view(one.shape) for one in results]
    return torch.autograd.grad(results, sought, given, allow_unused=True)


def run_with(torch, settings, operator, sample):
    torch.set_num_threads(settings.get("threads", 2))
    try:
        torch.set_default_dtype(getattr(torch, settings.get("default dtype", "float32")))
        torch.use_deterministic_algorithms(settings.get("deterministic", False))
        if settings.get("gradients"):
            return torch_checks.outcome(torch, lambda: gradients(torch, operator, sample))
        return torch_checks.outcome(torch, lambda: operator(sample.input, *sample.args, **sample.kwargs))
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def copied(torch, result):
    from torch.utils import _pytree as pytree

    def one(leaf):  # byte by byte: clone() and copy_() are operators that have kernels too
        if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided or leaf.is_conj() or leaf.is_neg():
            return leaf
        kept = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype)
        if leaf.numel() > 0:
            reach = sum((size - 1) * stride for size, stride in zip(leaf.shape, leaf.stride())) + 1
            ctypes.memmove(kept.data_ptr(), leaf.data_ptr(), reach * leaf.element_size())
        return kept

    return pytree.tree_map(one, result[0]), result[1]


def rewritten(torch, sample):
    """Yields the same values with gaps between them, so that PyTorch's kernels do not read vectors, and repeated, so that they
    do."""
    def with_gaps(_, tensor):
        return torch_writes.embedded(torch, tensor)[0] if tensor.dim() else tensor

    def many(_, tensor):
        return torch.cat([tensor] * 64, -1) if tensor.dim() and tensor.shape[-1] > 1 else tensor

    for change in with_gaps, many:
        changed = attempt(torch, lambda change=change: torch_checks.map_tensors(torch, sample, change))
        if changed is not None:
            yield changed


def look_again(torch, got, expected, call, settings):
    """Returns why a result that is not PyTorch's is still acceptable, or "". PyTorch's results at the edges of a dtype may depend
    on how it reads the memory, and on the position in it (which of 0.0 and -0.0 is greater, the GELU of infinity); and with 16
    bits it rounds between the steps of an operator."""
    operator, sample = call
    others = [expected, *(run_with(torch, settings, operator, one) for one in rewritten(torch, sample))]
    if is_among(torch, got, others):
        return ANOTHER
    tensors = tensors_of(torch, sample)
    if tensors and all(one.dtype in (torch.float16, torch.bfloat16) for one in tensors if one.is_floating_point()):
        wide = torch_checks.map_tensors(
            torch, sample, lambda _, one: one.double() if one.is_floating_point() else one)
        if is_nearer(torch, got, expected, run_with(torch, settings, operator, wide)):
            return NEARER
    return ""


def float_leaves(torch, result):
    """Returns the tensors if all results are tensors of floats, otherwise None: other results are not compared again."""
    from torch.utils import _pytree as pytree
    leaves = pytree.tree_leaves(result[0])
    return leaves if leaves and all(isinstance(one, torch.Tensor) and one.is_floating_point() for one in leaves) else None


def is_among(torch, got, others):
    """Returns whether each element equals that of one of these answers, including signs of zeros."""
    ours = float_leaves(torch, got)
    answers = [found for one in others if (found := float_leaves(torch, one)) and ours and len(found) == len(ours)]
    for tensor, *theirs in zip(ours or (), *answers):
        right = torch.zeros(tensor.shape, dtype=torch.bool)
        for one in theirs:
            if tensor.dim() > 0 and one.dim() == tensor.dim():
                one = one[..., :tensor.shape[-1]]
            if one.shape == tensor.shape:
                same = (one == tensor) & (one.signbit() == tensor.signbit())
                right |= same | (one.isnan() & tensor.isnan())
                right |= (one - tensor).abs() <= torch.finfo(tensor.dtype).eps * 4 * one.abs().nan_to_num(0, 0, 0)
        if not right.all():
            return False
    return bool(ours)


def is_nearer(torch, got, expected, exact):
    """Returns whether no error is larger than PyTorch's for the same element, or than two units of rounding."""
    ours, theirs, right = (float_leaves(torch, one) for one in (got, expected, exact))
    if not ours or not theirs or not right or not len(ours) == len(theirs) == len(right):
        return False
    for a, b, c in zip(ours, theirs, right):
        if a.shape != b.shape or a.shape != c.shape or a.stride() != b.stride():
            return False
        c, unit = c.double(), torch.finfo(a.dtype).eps
        known = c.isfinite() & a.isfinite() & b.isfinite()
        if not torch.equal(torch.where(known, 0, a).nan_to_num(7), torch.where(known, 0, b).nan_to_num(7)):
            return False
        errors = [(one.double() - c)[known].abs() for one in (a, b)]
        if errors[0].numel() and not (errors[0] <= torch.maximum(errors[1], 2 * unit * c[known].abs() + 1e-7)).all():
            return False
    return True


def is_elementwise(info):
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo
    if info.name in DIFFERENCES:
        return False
    return isinstance(info, (BinaryUfuncInfo, UnaryUfuncInfo)) or info.name in ACTIVATIONS


def compare(torch, got, expected, limits):
    from torch.utils import _pytree as pytree
    if got[1] or expected[1]:
        # Compared without the numbers: threads race to find the first invalid index.
        if len({re.sub(r"-?\d+", "N", one[1].partition("\n")[0]) for one in (got, expected)}) == 1:
            return "same exception"
        return f"wrong: {got[1][:160] or 'no exception'}; PyTorch: {expected[1][:160] or 'no exception'}"
    ours, theirs = pytree.tree_leaves(got[0]), pytree.tree_leaves(expected[0])
    if len(ours) != len(theirs):
        return f"wrong: {len(ours)} values, PyTorch has {len(theirs)}"
    verdicts = [compare_leaf(torch, *pair, limits) for pair in zip(ours, theirs)] or ["equal"]
    return max(verdicts, key=lambda one: (one != "equal") + 2 * one.startswith("wrong"))


def compare_leaf(torch, got, expected, limits):
    if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor) and expected.layout == torch.strided:
        if got.shape == expected.shape and got.numel() > 0 and got.stride() != expected.stride():
            return f"wrong: strides {got.stride()}, PyTorch has {expected.stride()} of {tuple(got.shape)}"
    verdict = torch_checks.compare_leaf(torch, got, expected)
    tolerance = isinstance(expected, torch.Tensor) and limits.get(str(expected.dtype).removeprefix("torch."))
    if verdict == "within tolerance" and tolerance:
        try:
            torch.testing.assert_close(got, expected, rtol=tolerance[0], atol=tolerance[1], equal_nan=True)
        except AssertionError as error:
            return f"wrong: {' '.join(str(error).split())[:200]}"
    return verdict


def child(pairs):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    operator_table.load_torch()
    import torch

    import aoticache
    logging.getLogger("aoticache").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    database = operator_table.database()
    cases = []
    for pair in pairs:
        name, _, dtype = pair.rpartition(":")
        try:
            for what, sample, settings in cases_of(torch, name, dtype, SEED):
                cases.append((pair, what, (database[name].op, sample), settings))
        except Exception as error:  # the database itself cannot make samples of some
            print(json.dumps({"pair": pair, "skipped": f"{type(error).__name__}: {error}"[:200]}), flush=True)
    expected = [run_with(torch, settings, *call) for _, _, call, settings in cases]
    kept = [at for at, theirs in enumerate(expected) if elements_of(torch, theirs) <= 64 * MOST_ELEMENTS]
    cases, expected = [cases[at] for at in kept], [copied(torch, expected[at]) for at in kept]
    aoticache.configure(cache_dir=CACHE)
    draw = random.Random(f"{SEED} {pairs}")
    helpers = draw.random() < WITH_HELPERS
    operators = [one for one in aoticache._operators.catalogue.known_operators("cpu")
                 if helpers or one.removeprefix("aten::").partition(".")[0] not in HELPERS]
    aoticache.enable(*operators, mode="wait", judge=False, dynamic="never" if draw.random() < EXACT else "always")
    done = []
    for pair, what, call, settings in cases:
        print(json.dumps({"at": pair, "what": what}), flush=True)
        before = hits(aoticache)
        got = [copied(torch, run_with(torch, settings, *call)) for _ in range(2)]
        done.append((pair, what, call, settings, hits(aoticache) > before, got))
    aoticache.disable()  # comparing calls operators too
    for (pair, what, call, settings, served, got), theirs in zip(done, expected):
        is_whole = is_elementwise(database[pair.rpartition(":")[0]]) and not settings.get("gradients")
        limits = ELEMENTWISE if is_whole else TOLERANCES
        verdicts = [compare(torch, one, theirs, limits) for one in got]
        if any(one.startswith("wrong") for one in verdicts):
            verdicts = [verdict if not verdict.startswith("wrong") else look_again(torch, one, theirs, call, settings) or verdict
                        for one, verdict in zip(got, verdicts)]
        print(json.dumps({"pair": pair, "what": what, "served": served,
                          "verdict": max(verdicts, key=lambda one: one.startswith("wrong"))}), flush=True)


def elements_of(torch, result):
    from torch.utils import _pytree as pytree
    return sum(one.numel() for one in pytree.tree_leaves(result[0]) if isinstance(one, torch.Tensor))


def hits(aoticache):
    return sum(one.hits + one.loads for one in aoticache.stats().operators.values())


# ---- all processes ----

def run_pairs(pairs):
    status, lines, errors = torch_checks.run_child(__file__, pairs, SECONDS)
    found = [line for line in lines if "verdict" in line or "skipped" in line]
    if status == 0:
        return found
    at = next((line for line in reversed(lines) if "at" in line), {"at": pairs[0], "what": "its samples"})
    verdict = "skipped" if status == "no end" else "verdict"
    found.append({"pair": at["at"], "what": at["what"], "served": True,
                  verdict: f"wrong: the process ended with {status}: {' '.join(errors.split())[-200:]}"})
    return found + [one for pair in pairs if pair != at["at"] for one in run_pairs([pair])]


def all_pairs():
    import torch
    pairs = []
    for name, info in sorted(operator_table.database().items()):
        if name in operator_table.RANDOM or name in operator_table.UNINITIALISED:
            continue
        pairs += [f"{name}:{dtype}" for dtype in DTYPES if getattr(torch, dtype) in info.supported_dtypes("cpu")]
    random.Random(SEED).shuffle(pairs)
    return pairs


def sampled(seed, count):
    operator_table.load_torch()
    return random.Random(seed).sample(all_pairs(), count)


def run_all(pairs, seconds=float("inf"), results=None):
    """Runs the pairs that can be begun in time. Returns their results, and appends each to the file `results`."""
    os.makedirs(CACHE, mode=0o700, exist_ok=True)
    end, found = time.monotonic() + seconds, []

    def run(some):
        return run_pairs(some) if time.monotonic() < end else []

    batches = [pairs[i:i + PAIRS_A_PROCESS] for i in range(0, len(pairs), PAIRS_A_PROCESS)]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for some in pool.map(run, batches):
            found += some
            if results is not None and some:
                with open(results, "a") as out:
                    out.writelines(json.dumps(one) + "\n" for one in some)
    return found


def read_results():
    if not os.path.exists(RESULTS):
        return []
    with open(RESULTS) as lines:
        return [json.loads(line) for line in lines]


# ---- the results ----

def report(found):
    wrong = [one for one in found if one.get("verdict", "").startswith("wrong")]
    for one in wrong:
        print(f"# {one['pair']}, {one['what']}: {one['verdict'][:300]}")
    return len(wrong)


def counts_of(found):
    """Returns the counts of each pair, in the order of COLUMNS."""
    pairs = {}
    for one in found:
        counts = pairs.setdefault(one["pair"], collections.Counter())
        if "verdict" in one:
            counts["cases"] += 1
            counts["served"] += one["served"]
            counts["wrong" if one["verdict"].startswith("wrong") else one["verdict"]] += 1
    return {pair: " ".join(str(counts[column]) for column in COLUMNS) for pair, counts in pairs.items()}


def write_table(found):
    """Adds the counts of each pair to the recorded ones, and writes the document. A pair that is there is replaced."""
    recorded = torch_checks.read_record()["dtypes"]
    played = {**recorded["played"], **counts_of(found)}
    by_dtype = {dtype: list(counts) for dtype, counts in recorded["earlier"]["counts"].items()}
    for pair, counts in played.items():
        sums = by_dtype.setdefault(pair.rpartition(":")[2], [0] * len(COLUMNS))
        sums[:] = map(sum, zip(sums, map(int, counts.split()), strict=True))
    torch_checks.write_record("dtypes", {
        "pairs": recorded["earlier"]["pairs"] + len(played), "of": len(all_pairs()),
        "counts": {dtype: dict(zip(COLUMNS, by_dtype[dtype], strict=True)) for dtype in DTYPES if dtype in by_dtype},
        "earlier": recorded["earlier"], "played": dict(sorted(played.items()))})


# ---- commands ----

def main(what, *words):
    if what == "child":
        return child(words)
    if not operator_table.load_torch():
        print("this Python has no PyTorch")
        return 77
    if what == "show":
        return 1 if report(run_pairs(list(words))) else 0
    if what == "table":
        return write_table(read_results())
    if what == "sample":
        found = run_all(sampled(int(words[0]), int(words[1])))
    else:
        done = {one["pair"] for one in read_results()} | set(torch_checks.read_record()["dtypes"]["played"])
        left = [pair for pair in all_pairs() if pair not in done and (len(words) < 2 or re.search(words[1], pair))]
        found = run_all(left, float(words[0]) if words else float("inf"), RESULTS)
        print(f"# {len(left)} pairs were left")
        write_table(read_results())
    served = sum(one.get("served", False) for one in found)
    wrong = report(found)
    print(f"# {len(found)} cases, a compiled kernel answers in {served}, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
