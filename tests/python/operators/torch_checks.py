"""Compares PyTorch's operators at their edges, with compiled kernels and with PyTorch alone.

    torch_checks.py table [OUTPUT]       every operator of a preset; records the results in torch_checks.json and writes
                                         docs/results/torch-checks.md (make torch-checks). OUTPUT: writes only this document
    torch_checks.py render               writes docs/results/torch-checks.md from torch_checks.json
    torch_checks.py sample SEED COUNT    that many operators, and the cases of `known`
    torch_checks.py child NAMES          one batch (names, separated by commas); a line of JSON for each case

The cases of an operator of the database are its error_inputs, its first samples, and those samples with their tensors replaced:
empty, expanded, overlapping, zero-dimensional, of another shape or dtype; filled with NaN, infinities, signed zeros, the limits
of integers, zeros, and with numbers around both ends of an index's range. A case is right if it gives PyTorch's values (to the
bit, or within torch.testing.assert_close's tolerances) or PyTorch's exception: type and text. Each case is called twice with
operators enabled and mode="wait", so that the second call is a hit if there can be one.
Batches run in separate processes. If a process dies, the case that it was running is reported.

Each entry is also called in place and with out= (torch_writes.py). For these calls the written tensors, the memory around
them, version counters and the identity of the result are compared.

Environment: BUILD; CACHE: where kernels are kept; JOBS: processes at a time; QUICK=1: without the changes of shape and
most dtypes, which need their own kernels (minutes instead of most of an hour); PART: "values" or "writes" alone;
CHANGE: only the cases with one of these changes ("turned,every second").
"""
import collections
import concurrent.futures
import copy
import itertools
import json
import os
import random
import subprocess
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
CACHE = os.environ.get("CACHE", os.path.join(BUILD, "torch-package-cache"))
TABLE = os.path.join(HERE, "..", "..", "..", "docs", "results", "torch-checks.md")
RECORD = os.path.join(HERE, "torch_checks.json")
JOBS = int(os.environ.get("JOBS", "2"))
QUICK = os.environ.get("QUICK", "") not in ("", "0")
PART = os.environ.get("PART", "")
CHANGE = [word for word in os.environ.get("CHANGE", "").split(",") if word]
SECONDS = 500  # for one batch
BATCH = 6
THREADS = (2, 1)
MOST_ERRORS, MOST_SAMPLES, MOST_ELEMENTS = 5, 1, 4096
os.environ.setdefault("AOTICACHE_HOME", BUILD)
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(BUILD, "inductor-cache"))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "eager", "torch"))

import operator_table  # noqa: E402
import torch_writes  # noqa: E402

# Changes that need their own kernels: only with one dtype, float32 if the operator has it.
OF_SHAPE = ("empty", "without dimensions", "turned", "channels last", "every second", "expanded", "overlapping",
            "the second of another shape", "the second of float64")
# Entries of the database whose values differ in some cases, and how.
ZERO = "the sign of a zero"
DIFFERENT = {
    "native_dropout_backward": ZERO + ", for integers",
    "nn.functional.celu": ZERO + ": 0 instead of -0",
    "nn.functional.elu": ZERO + ": 0 instead of -0",
    "nn.functional.gelu": "for infinity PyTorch's vectorized kernel gives NaN and the compiled one infinity; for the largest "
                          "number PyTorch's gives infinity and the compiled one that number. If the elements of `out=` are not "
                          "adjacent in memory, PyTorch writes nothing",
    "native_batch_norm": "if a weight is infinite, PyTorch gives NaN and the compiled kernel infinity",
    "nn.functional.interpolate.bilinear": "next to an infinity, PyTorch gives infinity and the compiled kernel NaN",
    "nn.functional.max_pool2d": "if a window has several NaNs, the compiled kernel may choose another one of them as the maximum",
}
NEARER = "nearer to float64 than PyTorch's"
UNWRITTEN = ("nn.functional.gelu, float32, out in a larger memory", "nn.functional.gelu, bfloat16, out in a larger memory")
VERDICTS = ("equal", "within tolerance", NEARER, "same exception")


# ---- the operators that presets may enable, and the entries of the database that call them ----

def preset_operators(aoticache):
    aoticache._operators.catalogue.mkl_is_fast = lambda: False  # the document is for every processor
    return sorted(aoticache._operators.catalogue.expand_preset("safe", "cpu"))


def writing_operators(aoticache, operators):
    """Returns the in-place and out= variants of these operators that patterns would enable."""
    names = aoticache._operators.catalogue
    bases = {names.functional_name(name).partition(".")[0] for name in operators}
    verdicts = (names.explain_name(name, "cpu") for name in sorted(names.all_names())
                if names.functional_name(name).partition(".")[0] in bases)
    return [one.operator for one in verdicts if one.served and not one.left_out]


def database_names(operators):
    """Returns the entries of the database that have the name of an operator of the presets or call one."""
    bases = {name.removeprefix("aten::").partition(".")[0].strip("_") for name in operators}
    bases |= {"clone", "contiguous", "to", "float", "half", "char", "long", "batch_norm", "layer_norm", "group_norm", "max_pool2d", "pad", "interpolate", "true_divide", "xlog1py"}
    return [name for name in sorted(operator_table.database()) if base_of(name) in bases]


def base_of(name):
    """Returns a name of the database without its module and its variant."""
    for module in ("nn.functional.", "special."):
        if name.startswith(module):
            function = name.removeprefix(module).partition(".")[0]
            return f"special_{function}" if module == "special." and function != "xlog1py" else function
    return name.partition(".")[0]


# ---- cases ----

def limits_of(torch, dtype):
    if dtype.is_complex:
        return [complex("nan"), complex("inf"), complex(0, float("-inf")), -0.0, 0, 1e30]
    if dtype.is_floating_point:
        top = torch.finfo(dtype)
        return [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, top.max, top.min, top.tiny, -0.5, 1.0]
    if dtype == torch.bool:
        return [True, False]
    top = torch.iinfo(dtype)
    return [0, -1, 1, top.max, top.min, 2, 3, 7] if top.min else [0, 1, top.max, 2, 3]


def filled(torch, tensor, values):
    numbers = list(itertools.islice(itertools.cycle(values), max(tensor.numel(), 1)))[:tensor.numel()]
    return torch.tensor(numbers, dtype=tensor.dtype).reshape(tensor.shape)


def map_tensors(torch, sample, change):
    """Returns the sample with each tensor changed by its position; None if nothing changed."""
    from torch.utils import _pytree as pytree
    leaves, spec = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
    place, changed = 0, False
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            new = change(place, leaf)
            changed |= new is not leaf
            leaves[i], place = new, place + 1
    if not changed:
        return None
    found = copy.copy(sample)
    found.input, found.args, found.kwargs = pytree.tree_unflatten(leaves, spec)
    return found


def changes(torch):
    """Yields (name, function of a position and a tensor that returns the changed tensor)."""
    def each(change, wanted=lambda tensor: True):
        return lambda place, tensor: change(tensor) if wanted(tensor) else tensor

    def only(number, change):
        return lambda place, tensor: change(tensor) if place == number else tensor

    def integers(tensor):
        return not tensor.dtype.is_floating_point and not tensor.dtype.is_complex and tensor.dtype != torch.bool

    def overlapping(tensor):
        size = tensor.shape
        return torch.arange(sum(size) + 1).to(tensor.dtype).as_strided(size, [1] * len(size))

    yield "limits", each(lambda tensor: filled(torch, tensor, limits_of(torch, tensor.dtype)))
    yield "limits of the second", only(1, lambda tensor: filled(torch, tensor, limits_of(torch, tensor.dtype)))
    yield "zeros in the second", only(1, torch.zeros_like)
    yield "zeros in the first", only(0, torch.zeros_like)
    yield "minus one in integers", each(lambda tensor: filled(torch, tensor, [0, -1]), integers)
    yield "far numbers in integers", each(lambda tensor: filled(torch, tensor, [0, 1 << 20]), integers)
    yield "near numbers in integers", each(lambda tensor: filled(torch, tensor, [5, 0, 1]), integers)
    yield "empty", each(lambda tensor: tensor[:0] if tensor.dim() else tensor)
    yield "without dimensions", each(lambda tensor: tensor.flatten()[0] if tensor.numel() else tensor)
    yield "turned", each(lambda tensor: torch_writes.turned(torch, tensor)[0] if tensor.dim() > 1 else tensor)
    yield "channels last", each(lambda tensor: tensor.movedim(1, -1).contiguous().movedim(-1, 1) if tensor.dim() > 2 else tensor)
    yield "every second", each(lambda tensor: torch_writes.embedded(torch, tensor)[0] if tensor.dim() else tensor)
    yield "expanded", each(lambda tensor: tensor[:1].expand(tensor.shape) if tensor.dim() and tensor.numel() else tensor)
    yield "overlapping", each(overlapping, lambda tensor: tensor.dim() == 2 and tensor.dtype != torch.bool)
    yield "the second of another shape", only(1, lambda tensor: torch.zeros(7, 3, dtype=tensor.dtype))
    yield "the second of float64", only(1, lambda tensor: tensor.to(torch.float64))


def cases_of(torch, name, info):
    """Yields (name of the case, sample of the call)."""
    torch.manual_seed(7)
    random.seed(7)
    if info.error_inputs_func is not None and not CHANGE:
        errors = itertools.islice(info.error_inputs("cpu"), MOST_ERRORS)
        yield from ((f"{name}, error {i}", one.sample_input) for i, one in enumerate(errors))
    supported = info.supported_dtypes("cpu")
    for dtype, chosen in samples_of(torch, info, ("float32", "int64")).items():
        dtype = getattr(torch, dtype)
        for number, sample in enumerate(chosen):
            where = f"{name}, {str(dtype).removeprefix('torch.')}, sample {number}"
            if not CHANGE:
                yield where, sample
            for what, change in changes(torch) if number == 0 else ():
                if CHANGE and what not in CHANGE:
                    continue
                if what in OF_SHAPE and (QUICK or (dtype != torch.float32 and torch.float32 in supported)):
                    continue
                try:
                    changed = map_tensors(torch, sample, change)
                except (RuntimeError, ValueError, TypeError, IndexError, OverflowError):
                    continue
                if changed is not None:
                    yield f"{where}, {what}", changed
    for dtype in () if CHANGE else (torch.uint8,) if QUICK else (torch.complex64, torch.bfloat16, torch.uint8):
        if dtype in supported:
            for sample in itertools.islice(info.sample_inputs("cpu", dtype), 1):
                yield f"{name}, {str(dtype).removeprefix('torch.')}, sample 0", sample


def samples_of(torch, info, dtypes):
    """Returns the samples of the database that are used, by dtype."""
    found = {}
    for dtype in dtypes:
        if getattr(torch, dtype) in info.supported_dtypes("cpu"):
            samples = itertools.islice(info.sample_inputs("cpu", getattr(torch, dtype)), 12)
            chosen = [one for one in samples if total(torch, one) <= MOST_ELEMENTS]
            found[dtype] = sorted(chosen, key=lambda one: -min(total(torch, one), 64))[:MOST_SAMPLES]
    return found


def total(torch, sample):
    from torch.utils import _pytree as pytree
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))


def known(torch):
    """Yields calls that once ended the process, or returned a result although PyTorch raises an exception."""
    numbers, table = torch.arange(12).reshape(3, 4), torch.arange(192000.0).reshape(3000, 64)
    far = torch.arange(5000) % 3000
    far[77] = 3000
    least = torch.full((4,), -(1 << 63))
    functional = torch.nn.functional
    yield "div trunc by 0", lambda: torch.div(numbers, torch.zeros_like(numbers), rounding_mode="trunc")
    yield "div floor by 0", lambda: torch.div(numbers, 0, rounding_mode="floor")
    yield "// 0", lambda: numbers // torch.zeros_like(numbers)
    yield "% 0", lambda: numbers % torch.zeros_like(numbers)
    yield "5 % 0", lambda: torch.remainder(5, torch.zeros_like(numbers))
    yield "fmod 0", lambda: torch.fmod(numbers, torch.zeros_like(numbers))
    yield "fmod 0, a number", lambda: torch.fmod(numbers, 0)
    yield "// with one 0 among many", lambda: far // (far - 5)
    yield "% of the least integer", lambda: least % torch.tensor([3, -2, 5, 7])
    yield "1.0 // 0.1", lambda: torch.full((9,), 1.0) // torch.full((9,), 0.1)
    yield "-1 // inf", lambda: torch.div(torch.full((9,), -1.0), float("inf"), rounding_mode="floor")
    short = torch.full((9,), 17.0, dtype=torch.bfloat16)
    yield "17 / 0.9453 in 16 bits, cut", lambda: torch.div(short, short * 0 + 0.9453, rounding_mode="trunc")
    yield "any of bytes", lambda: torch.any(torch.arange(9, dtype=torch.uint8))
    yield "all of bytes in a dimension", lambda: torch.all(torch.ones(2, 9, dtype=torch.uint8), 1)
    yield "acosh of a large number", lambda: torch.acosh(torch.full((9,), 3e38))
    yield "floats to int8", lambda: torch.zeros(9, dtype=torch.int8).copy_(torch.full((9,), 300.0))
    yield "a sum as int8", lambda: torch.sum(torch.full((9,), 300.0), dtype=torch.int8)
    yield "a sum of NaN as bytes", lambda: torch.nansum(torch.full((3, 9), float("nan")), 1, dtype=torch.uint8)
    yield "a number times a scalar", lambda: torch.tensor(7.0) * 0.1 + torch.tensor(3, dtype=torch.int32) * 2
    yield "a step", lambda: torch.tensor(16777216.0).add_(1)
    yield "embedding beyond", lambda: functional.embedding(far, table)
    yield "embedding of -1", lambda: functional.embedding(torch.tensor([1, -1]), table)
    yield "embedding, right", lambda: functional.embedding(far % 3000, table)
    yield "embedding, expanded", lambda: functional.embedding(torch.tensor([[7], [3001]]).expand(2, 9), table)
    yield "index_select of -1", lambda: torch.index_select(table, 0, torch.tensor([1, 2, -1]))
    yield "index_select beyond", lambda: torch.index_select(table, 1, torch.tensor([1, 64], dtype=torch.int32))
    yield "gather of -1", lambda: torch.gather(table, 0, torch.full((3, 64), -1))
    yield "gather beyond", lambda: torch.gather(table, 1, torch.full((3, 64), 64))
    yield "gather, right", lambda: torch.gather(table, 1, torch.full((3, 64), 63))
    yield "gather of a transposed index", lambda: torch.gather(table, 0, (torch.arange(192).reshape(64, 3) * 20).t())


# ---- one batch, in its own process ----

def outcome(torch, call):
    torch.manual_seed(11)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def compare(torch, got, expected, call=None):
    """Returns the verdict. call: if it has `exact`, values that differ by more than their precision may be nearer to that."""
    from torch.utils import _pytree as pytree
    if got[1] or expected[1]:
        return "same exception" if got[1] == expected[1] else (
            f"wrong: {got[1][:160] or 'no exception'}; PyTorch: {expected[1][:160] or 'no exception'}")
    ours, theirs = pytree.tree_leaves(got[0]), pytree.tree_leaves(expected[0])
    if len(ours) != len(theirs):
        return f"wrong: {len(ours)} values, PyTorch has {len(theirs)}"
    verdicts = [compare_leaf(torch, *pair) for pair in zip(ours, theirs)] or ["equal"]
    verdict = max(verdicts, key=lambda one: (one != "equal") + 2 * one.startswith("wrong"))
    if verdict.startswith("wrong: Tensor-likes") and hasattr(call, "exact") and \
            torch_writes.is_nearer(torch, got[0], expected[0], call.exact()):
        return NEARER
    return verdict


def compare_leaf(torch, got, expected):
    if not isinstance(expected, torch.Tensor):
        same = type(got) is type(expected) and (got == expected or got != got and expected != expected)
        return "equal" if same else f"wrong: {got!r}, PyTorch has {expected!r}"[:300]
    seen = [(one.dtype, tuple(one.shape), one.stride() if one.numel() > 1 else (), type(one)) for one in (got, expected)]
    if seen[0] != seen[1]:
        return f"wrong: {seen[0]}, PyTorch has {seen[1]}"
    got, expected = got.detach().resolve_conj().resolve_neg(), expected.detach().resolve_conj().resolve_neg()
    if got.layout != torch.strided:
        return "equal"
    pair = [torch.view_as_real(one) if one.is_complex() else one for one in (got, expected)]
    bits = [one.double() if one.is_floating_point() else one for one in pair]
    if torch.equal(torch.nan_to_num(bits[0], nan=12345.0, posinf=float("inf"), neginf=float("-inf")),
                   torch.nan_to_num(bits[1], nan=12345.0, posinf=float("inf"), neginf=float("-inf"))):
        return "equal" if not pair[0].is_floating_point() or torch.equal(
            bits[0].signbit() & ~bits[0].isnan(), bits[1].signbit() & ~bits[1].isnan()) else "wrong: the sign of a zero"
    try:
        torch.testing.assert_close(got, expected, equal_nan=True)
        return "within tolerance"
    except AssertionError as error:
        return f"wrong: {' '.join(str(error).split())[:200]}"


def child(names):
    operator_table.load_torch()
    import logging

    import torch

    import aoticache
    logging.getLogger("aoticache").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(THREADS[0])
    database = operator_table.database()
    cases = []
    for name in names.split(","):
        if name == "known":
            cases += [(f"known, {case}", call) for case, call in known(torch)]
            continue
        info = database[name]
        if PART != "writes":
            cases += [(case, lambda sample=sample, op=info.op: op(sample.input, *sample.args, **sample.kwargs))
                      for case, sample in cases_of(torch, name, info)]
        if PART != "values":
            cases += torch_writes.cases(torch, name, info, samples_of(torch, info, torch_writes.DTYPES), QUICK)
    for _, call in cases:
        outcome(torch, call)
    expected = [outcome(torch, call) for _, call in cases]
    operators = preset_operators(aoticache)
    aoticache.configure(cache_dir=CACHE)
    print(json.dumps({"begins": len(cases)}), flush=True)
    if PART != "values":
        operators = sorted({*operators, *writing_operators(aoticache, operators)})
    aoticache.enable(*operators, mode="wait", judge=False)
    done = []
    for threads, (case, call) in itertools.product(THREADS, cases):
        torch.set_num_threads(threads)
        print(json.dumps({"at": case, "threads": threads}), flush=True)
        before = counts(aoticache)
        got = [outcome(torch, call) for _ in range(2)]
        after = counts(aoticache)
        moved = {name: [now - then for now, then in zip(after[name], before.get(name, (0, 0, 0)))] for name in after}
        done.append((case, threads, got, {name: one for name, one in moved.items() if any(one)}))
    aoticache.disable()  # comparing calls operators too
    for (case, threads, got, moved), theirs, (_, call) in zip(done, expected * len(THREADS), cases * len(THREADS)):
        verdicts = [compare(torch, one, theirs, call if ", bfloat16" in case else None) for one in got]
        print(json.dumps({"case": case, "threads": threads, "operators": moved,
                          "verdict": max(verdicts, key=lambda one: one.startswith("wrong"))}), flush=True)


def counts(aoticache):
    return {name: (one.calls, one.hits, one.refused) for name, one in aoticache.stats().operators.items()}


# ---- all batches ----

def run_child(file, words, seconds):
    """Runs `file child words`. Returns its status ("no end" if it took longer), the objects that it printed, and its errors."""
    command = [sys.executable, "-W", "ignore", os.path.abspath(file), "child", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        status, output, errors = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as error:
        status, output, errors = "no end", (error.stdout or b"").decode(), ""
    return status, [json.loads(line) for line in output.splitlines() if line.startswith("{")], errors


def run_batch(names):
    """Returns the results of a batch. If its process dies, the entries run again, each in its own process."""
    status, lines, errors = run_child(__file__, [",".join(names)], SECONDS)
    found = [line for line in lines if "case" in line]
    at = next((line for line in reversed(lines) if "at" in line), {"at": names[0], "threads": THREADS[0]})
    if status != 0:
        if len(names) > 1:
            return [result for name in names for result in run_batch([name])]
        found.append({"case": at["at"], "threads": at["threads"], "operators": {}, "verdict":
                      f"wrong: the process ended with {status}: {' '.join(errors.split())[-200:]}"})
    elif errors.strip():
        found.append({"case": f"{names[0]} and others", "threads": 0, "operators": {},
                      "verdict": f"wrong: printed: {errors.strip()[:200]}"})
    return found


def run_all(names):
    batches = [names[i:i + BATCH] for i in range(0, len(names), BATCH)]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        return [one for found in pool.map(run_batch, batches) for one in found]


def is_right(one):
    return one["verdict"] in VERDICTS or different(one) != ""


def different(one):
    """Returns how the values of a case are known to differ; "" for any other case."""
    name = one["case"].partition(",")[0]
    why = DIFFERENT.get(name, "")
    if one["verdict"] == "wrong: the sign of a zero":
        return why if why.startswith(ZERO) else ""
    is_known = "limits" in one["case"] or one["case"] in UNWRITTEN
    return why if is_known and one["verdict"].startswith("wrong: Tensor-likes") else ""


# ---- the document ----

def summarize(found, version):
    """Returns what RECORD keeps of the results."""
    names = collections.defaultdict(collections.Counter)
    served = collections.Counter()
    for one in found:
        name = one["case"].partition(",")[0]
        names[name][one["verdict"] if one["verdict"] in VERDICTS else "different" if is_right(one) else "wrong"] += 1
        served[name] += any(hits > 0 for _, hits, _ in one["operators"].values())
    total = sum((counts for counts in names.values()), collections.Counter())
    entries = {name: {"cases": sum(counts.values()), "served": served[name], "notes": notes_on(name, counts)}
               for name, counts in sorted(names.items())}
    return {"torch": version, "database": len(all_names()), "changes of shape": not QUICK,
            "total": {verdict: total[verdict] for verdict in (*VERDICTS, "different", "wrong")}, "entries": entries}


def notes_on(name, counts):
    import aoticache
    checked = {"known", "all", "any", "floor_divide", "remainder", "fmod", "gather", "index_select", "embedding", "div",
               "sum", "nansum", "prod", "cumsum", "cumprod", "char", "long", "to"}
    notes = {"checked": base_of(name) in checked, "left out": f"aten::{name}" in aoticache._operators.catalogue.OTHER_VALUES,
             "values differ": counts["different"], "wrong": counts["wrong"]}
    return [note for note, has in notes.items() if has]


HEAD = """# Checks of PyTorch's operators at their edges

Made by `make torch-checks` (tests/python/operators/torch_checks.py) from `tests/python/operators/torch_checks.json`, which has
the counts of each operator; not edited by hand.

The operators of the preset "safe" are called on the CPU, with 1 and 2 threads, as %(entries)d entries of the operator database of
PyTorch %(torch)s call them. The cases are inputs that the database says are errors, its samples, and these samples with NaN,
infinities, signed zeros, the limits of integers, zero divisors, and indices at both ends and beyond%(shapes)s.
A list of known faults is called too. Each call is made twice with compiled kernels and compared with plain PyTorch.
tests/python/operators/test_torch_checks.py repeats a part of this.

| cases | |
| --- | --- |
| %(cases)d | all |
| %(served)d | in which a compiled kernel answered |
| %(equal)d | PyTorch's values to the bit, except for the kind of NaN |
| %(tolerance)d | within the tolerances of `torch.testing.assert_close` |
| %(nearer)d | of bfloat16, nearer to the result in float64 than PyTorch's values |
| %(exception)d | PyTorch's exception, type and text |
| %(different)d | other values, see *What differs* |
| %(wrong)d | wrong |
"""


def render(record):
    """Returns the document."""
    edges = record["edges"]
    total, entries = edges["total"], edges["entries"]
    shapes = ", and with tensors that are transposed,\nstrided, empty, expanded, overlapping or of other shapes"
    text = HEAD % {"entries": len(set(entries) - {"known"}), "torch": edges["torch"], "cases": sum(total.values()),
                   "shapes": shapes if edges["changes of shape"] else ". Changes of\nlayout and shape, and most dtypes, were left out (`QUICK=1`)",
                   "served": sum(one["served"] for one in entries.values()), "equal": total["equal"],
                   "tolerance": total["within tolerance"], "nearer": total[NEARER], "exception": total["same exception"],
                   "different": total["different"], "wrong": total["wrong"]}
    text += "\n" + render_dtypes(record["dtypes"]) if record["dtypes"] else ""
    text += "\n## What is done about it\n" + "".join(
        f"\n{words} {', '.join(names)}.\n" for words, names in groups_of(entries) if names)
    differing = [name for name, one in entries.items() if "values differ" in one["notes"] and name in DIFFERENT]
    return text + ("\n## What differs\n\n" + "".join(f"- `{name}`: {DIFFERENT[name]}\n" for name in differing) if differing else "")


def groups_of(entries):
    """Yields what is done, in words, and the entries of the database."""
    def noted(note):
        return [f"`{name}`" for name, one in entries.items() if note in one["notes"] and name != "known"]

    yield ("The data of indices and divisors, or their dtype, is checked before a compiled kernel runs ([pytorch.md](../pytorch.md)):",
           noted("checked"))
    yield "Patterns and presets leave these out, and `aoticache.explain()` says why:", noted("left out")
    yield "No compiled kernel serves these:", [f"`{name}`" for name, one in entries.items() if one["served"] == 0]
    yield "Wrong:", noted("wrong")


def render_dtypes(record):
    """Returns the section on every dtype, from what torch_differences.py recorded."""
    counts = record["counts"]
    columns = list(next(iter(counts.values())))
    rows = [(dtype, *(one[column] for column in columns)) for dtype, one in counts.items()]
    rows.append(("all", *(sum(one[column] for one in counts.values()) for column in columns)))
    return ("## Every dtype\n\n"
            "Made by `make long FORMS=python/torch_differences` (tests/python/operators/torch_differences.py): "
            f"{record['pairs']:,} of the {record['of']:,} pairs of an\nentry of the database and a dtype, drawn at random. Each is called with "
            "other sizes, layouts, values, numbers,\nsettings of the process and threads, and its gradients are computed. All operators that can be "
            "served are enabled.\n\n"
            "- *served*: a compiled kernel answered\n"
            "- *another of PyTorch's answers*: PyTorch itself gives each of these numbers if the tensors are elsewhere in memory\n"
            "- *nearer to the exact result*: no 16-bit number is further from the result in float64 than PyTorch's\n\n"
            "| dtype | " + " | ".join(columns) + " |\n" + "| --- " * (len(columns) + 1) + "|\n" +
            "".join("| " + " | ".join(map(str, row)) + " |\n" for row in rows))


def read_record():
    with open(RECORD) as file:
        return json.load(file)


def write_document(record, path=TABLE):
    with open(path, "w") as out:
        out.write(render(record))


def write_record(part, found):
    """Records one part ("edges" or "dtypes") of the results, and writes the document from both."""
    record = {**read_record(), part: found}
    with open(RECORD, "w") as out:
        out.write(json.dumps(record, indent=1) + "\n")
    write_document(record)


# ---- commands ----

def report(found):
    wrong = [one for one in found if not is_right(one)]
    for one in wrong:
        print(f"# {one['case']}, {one['threads']} threads: {one['verdict'][:400]}")
    return len(wrong)


def all_names():
    import aoticache
    return database_names(preset_operators(aoticache))


def table(path=None):
    import torch
    os.makedirs(CACHE, mode=0o700, exist_ok=True)
    found = run_all(["known", *all_names()])
    edges = summarize(found, torch.__version__.partition("+")[0])
    if path is None:
        write_record("edges", edges)
    else:
        write_document({**read_record(), "edges": edges}, path)
    return 1 if report(found) else 0


def sample(seed, count):
    """Returns the cases and how many of them are wrong."""
    os.makedirs(CACHE, mode=0o700, exist_ok=True)
    names = random.Random(seed).sample(all_names(), count)
    print(f"# {' '.join(names)}")
    found = run_all(["known", *names])
    return found, report(found)


def main(what, *words):
    if what == "child":
        return child(*words)
    if what == "render":
        return write_document(read_record())
    if not operator_table.load_torch():
        print("this Python has no PyTorch")
        return 77
    if what == "table":
        return table(*words)
    return 1 if sample(int(words[0]), int(words[1]))[1] else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
