"""Tests symbolic shapes through kernel holders: a sweep of 200 random shapes gets PyTorch's results from a handful of
libraries, which the worker compiles for all shapes after a few requests; then another process is served from the
cache, and compiles nothing.

Operators alternate: add with broadcasting, sum over dimensions, mm; sizes 0 and 1 and non-contiguous tensors are
included. Compiles are kept in $BUILD/holder-cache-dynamic.
Environment: BUILD; SEED: which shapes; CACHE: another directory; AFTER: how many shapes of a family get exact
libraries first; CASES=all: the long form, with mul and more sizes.
"""
import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import search_path  # noqa: E402, F401
import pytest

from torch_scenarios import python

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
CACHE = os.environ.get("CACHE", os.path.join(BUILD, "holder-cache-dynamic"))
SEED, SHAPES, AFTER = int(os.environ.get("SEED", "6")), 200, int(os.environ.get("AFTER", "1"))
# The number of kinds of calls (draw_sweep). Each is a family: AFTER exact libraries, one for all shapes, one extra.
FAMILIES = {"aten::add": 3, "aten::mul": 1, "aten::sum": 1, "aten::mm": 1}
MOST_LIBRARIES = AFTER + 2
IS_LONG = os.environ.get("CASES") == "all"
OPERATORS = ["add", "mul", "sum", "mm"] if IS_LONG else ["add", "sum", "mm"]
SWEEP = "sweep"


# ---- the calls ----

def sizes_of(draw, ndim):
    return [draw.randint(2, 40) for _ in range(ndim)]


def draw_pair(draw, kind):
    """Returns two tensors of sizes that broadcast, with the layout of the second."""
    sizes = sizes_of(draw, 3)
    if kind == "row":  # one row that is added to each row
        return sizes, sizes[2:], "contiguous"
    if kind == "transposed":
        return sizes, sizes, "transposed"
    return sizes, sizes, "contiguous"


def draw_sweep(draw):
    """Returns SHAPES calls (operator, kind, sizes of the inputs, layout of the last one, further arguments)."""
    calls = []
    while len(calls) < SHAPES:
        operator = OPERATORS[len(calls) % len(OPERATORS)]
        if operator in ("add", "mul"):
            kind = draw.choice(["same", "row", "transposed"]) if operator == "add" else "row"
            first, second, layout = draw_pair(draw, kind)
            calls.append((operator, kind, [first, second], layout))
        elif operator == "sum":
            calls.append((operator, "inner", [sizes_of(draw, 3)], "contiguous"))
        else:
            m, k, n = sizes_of(draw, 3)
            calls.append((operator, "same", [[m, k], [k, n]], "contiguous"))
    return calls


# Sizes that compilers specialize, and strides that no family has: each must be right, whichever library serves it.
APART = [
    ("add", "zero", [[5, 0, 2], [2]], "contiguous"), ("add", "one", [[9, 1], [9, 6]], "contiguous"),
    ("add", "gaps", [[6, 4], [6, 4]], "gaps"), ("add", "expanded", [[6, 4], [6, 4]], "expanded"),
    ("mm", "zero", [[2, 0], [0, 4]], "contiguous"), ("mm", "transposed", [[5, 3], [3, 4]], "transposed"),
]
if IS_LONG:  # each takes seconds to compile
    APART += [
        ("add", "zero", [[0, 3], [0, 3]], "contiguous"), ("add", "one", [[1, 7], [5, 7]], "contiguous"),
        ("add", "one", [[1, 1], [1, 1]], "contiguous"), ("sum", "zero", [[0, 3, 4]], "contiguous"),
        ("sum", "one", [[1, 3, 4]], "contiguous"), ("mm", "zero", [[0, 3], [3, 4]], "contiguous"),
        ("mm", "one", [[1, 3], [3, 1]], "contiguous"),
    ]


def make_tensor(torch, sizes, layout):
    if layout == "transposed":
        return torch.randn(sizes[:-2] + [sizes[-1], sizes[-2]]).transpose(-1, -2)
    if layout == "gaps":
        return torch.randn(sizes[:-1] + [sizes[-1] * 2])[..., ::2]
    if layout == "expanded":
        return torch.randn(sizes[:-1] + [1]).expand(sizes)
    return torch.randn(sizes)


def make_call(torch, call):
    """Returns the overload, its arguments as values, and PyTorch's result."""
    operator, _, shapes, layout = call
    aten = torch.ops.aten
    overload = {"add": aten.add.Tensor, "mul": aten.mul.Tensor, "sum": aten.sum.dim_IntList, "mm": aten.mm.default}
    tensors = [make_tensor(torch, sizes, layout if i else "contiguous") for i, sizes in enumerate(shapes)]
    further = [[1]] if operator == "sum" else []
    values = [["tensor", tensor] for tensor in tensors] + [["ints", one] for one in further]
    return overload[operator], values, overload[operator](*tensors, *further)


# ---- one process ----

def check(torch, host, tensors, call):
    overload, values, expected = make_call(torch, call)
    result, = host.holder(str(overload._schema))(tensors, values)
    torch.testing.assert_close(result, expected, msg=lambda text: f"{call}: {text}")
    assert result.stride() == expected.stride() or expected.numel() == 0, f"{call}: strides {result.stride()}"


def play(miss, what, calls):
    """Returns the counts by operator. Each kind of calls has its own cache, so that the counts are only its own."""
    import torch

    import holder_host
    import tensor_file
    torch.manual_seed(SEED)
    torch.set_grad_enabled(False)
    host = holder_host.Host(os.path.join(CACHE, what), miss=miss, dynamic="after", after=AFTER)
    tensors = holder_host.Tensors(host, torch, tensor_file)
    for call in calls:
        check(torch, host, tensors, call)
    counts = {holder.op(): holder.counts() for holder in host.holders.values()}
    host.close()
    return counts


def run(miss, what):
    """Runs play() in a new process."""
    os.makedirs(os.path.join(CACHE, what), mode=0o700, exist_ok=True)
    done = subprocess.run(python("-W", "ignore", __file__, miss, what), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message"
    return json.loads(done.stdout.splitlines()[-1])


# ---- tests ----

def say(name, counts):
    for operator, one in sorted(counts.items()):
        print(f"# {name}: {operator}: {one['libraries']} libraries, {one['compiles']} compiles, "
              f"{one['hits_dynamic']} calls by those for symbolic shapes, {one['entries']} entries", flush=True)


def test_many_shapes_by_a_handful_of_libraries():
    counts = run("wait", SWEEP)
    say("sweep", counts)
    for operator, one in counts.items():
        most = FAMILIES[operator.partition(".")[0]] * MOST_LIBRARIES
        assert one["libraries"] <= most, f"{operator}: {one['libraries']} libraries for {SHAPES // len(OPERATORS)} shapes"
        assert one["hits_dynamic"] > 0 and one["fallbacks"] == 0, f"{operator}: {one}"


def test_sizes_0_and_1_and_gaps_and_expanded_and_transposed_tensors():
    say("apart", run("wait", "apart"))


@pytest.mark.parametrize("what", (SWEEP, "apart"))
def test_another_process_compiles_nothing(what):
    counts = run("never", what)
    say(f"second process, {what}", counts)
    assert all(one["compiles"] == 0 for one in counts.values()), "something was compiled"


if __name__ == "__main__":  # started by run()
    print(json.dumps(play(*sys.argv[1:], draw_sweep(random.Random(SEED)) if sys.argv[2] == SWEEP else APART)))
