"""Tests PyTorch's results at the edges of its operators, with compiled kernels: calls that once ended the process or returned a
result although PyTorch raises an exception, a few operators of the database drawn by a seed (make torch-checks: all of them),
calls that PyTorch refuses, and tensors that are more than numbers in memory: autocast, nested tensors, subclasses, complex and
small floats. docs/results/torch-checks.md is made from the recorded results.

Environment: BUILD; SEED, COUNT: which operators of the database, and how many; CACHE, JOBS.
"""
import logging
import os
import subprocess
import sys
import warnings

import pytest

import torch_checks
from torch_scenarios import python

SEED, COUNT = int(os.environ.get("SEED", "5")), int(os.environ.get("COUNT", "3"))
HERE = os.path.abspath(__file__)


@pytest.mark.quick
def test_document():
    with open(torch_checks.TABLE) as file:
        assert file.read() == torch_checks.render(torch_checks.read_record()), (
            "docs/results/torch-checks.md is not made from torch_checks.json: torch_checks.py render")


def test_known_faults_and_samples_of_the_database():
    os.makedirs(torch_checks.CACHE, mode=0o700, exist_ok=True)
    found, wrong = torch_checks.sample(SEED, COUNT)
    hits = sum(any(hits for _, hits, _ in one["operators"].values()) for one in found)
    print(f"# {len(found)} cases, a compiled kernel answers in {hits}")
    assert len(found) > 60 and hits > len(found) / 4, "too few cases have a compiled kernel"
    assert not wrong, f"{wrong} of {len(found)} cases are not as PyTorch has them"


# ---- calls that PyTorch refuses ----

class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        if record.levelno >= logging.WARNING:
            self.lines.append(record.getMessage())


def refusals(torch):
    """Yields calls that PyTorch refuses because of their sizes or dtypes; each calls another operator."""
    x = torch.randn(3, 4)
    yield "aten::amax", lambda: torch.amax(x[:0], 0)
    yield "aten::cat", lambda: torch.cat([x, torch.randn(2, 2, 2)])
    yield "aten::add.Tensor", lambda: x + torch.randn(7)
    yield "aten::index_select", lambda: torch.index_select(x, 0, torch.tensor([0.5]))
    yield "aten::cumsum", lambda: torch.cumsum(x, 9)
    yield "aten::bitwise_and.Tensor", lambda: x & x


def check_refused(mode):
    import torch

    import aoticache
    handler = Lines()
    logging.getLogger("aoticache").addHandler(handler)
    cases = list(refusals(torch))
    theirs = [torch_checks.outcome(torch, call)[1] for _, call in cases]
    aoticache.enable(*(name for name, _ in cases), mode=mode, judge=False)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        ours = [torch_checks.outcome(torch, call)[1] for _ in range(2) for _, call in cases]
        aoticache.wait()
    stats = aoticache.stats()
    aoticache.disable()
    assert all(theirs) and ours == theirs * 2, f"{ours}"
    assert not warned and not handler.lines, f"{[str(one.message) for one in warned]} {handler.lines}"
    made = {name: (one.queued, one.compiles, one.compile_failures) for name, one in stats.operators.items()}
    assert not any(map(sum, made.values())), f"queued, compiled, failed: {made}"


# ---- more than numbers in memory ----

def tensor_kinds(torch):
    """Yields (name, call, whether a compiled kernel must answer the second call)."""
    torch.manual_seed(3)
    x, table = torch.randn(6, 8), torch.randn(8, 8)
    for dtype in (torch.bfloat16, torch.float16, torch.complex64, torch.float64):
        y = x.to(dtype)
        yield f"mul, {dtype}", lambda y=y: y * y, True
        yield f"sigmoid, {dtype}", lambda y=y: torch.sigmoid(y), dtype != torch.complex64
        yield f"sum, {dtype}", lambda y=y: y.sum(1), dtype != torch.complex64
    z = torch.randn(6, 8, dtype=torch.complex64)
    yield "a conjugated tensor", lambda: z.conj() * z, False
    yield "the imaginary part of a conjugated tensor", lambda: torch.abs(z.conj().imag), False

    def cast():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.relu(x @ table) + torch.softmax(x, 1)

    yield "autocast", cast, True
    nested = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)])
    jagged = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged)
    yield "a nested tensor", lambda: torch.relu(nested).to_padded_tensor(0), False
    yield "a jagged tensor", lambda: torch.relu(jagged * 2).to_padded_tensor(0), False

    class Named(torch.Tensor):
        pass

    yield "a subclass", lambda: torch.relu(x.as_subclass(Named)) * 2, True
    yield "a parameter", lambda: torch.relu(torch.nn.Parameter(x)).detach(), True
    yield "a sparse tensor", lambda: torch.relu(x.relu().to_sparse()).to_dense(), False
    yield "a view", lambda: torch.relu(x.t()[2:, ::2]), True
    yield "vmap", lambda: torch.vmap(torch.relu)(x), True
    yield "gradients", lambda: torch.func.grad(lambda t: torch.relu(t * t).sum())(x), True
    yield "no elements", lambda: torch.relu(x[:0]), False
    yield "numbers", lambda: 2 * x + 0.5, True


def check_kinds():
    import torch

    import aoticache
    cases = list(tensor_kinds(torch))
    theirs = [torch_checks.outcome(torch, call) for _, call, _ in cases]
    aoticache.enable("safe", mode="wait", judge=False)
    ours = []
    for name, call, served in cases:
        torch_checks.outcome(torch, call)
        before = aoticache.stats().total("hits")
        got = torch_checks.outcome(torch, call)
        ours.append((name, got, served, aoticache.stats().total("hits") - before))
    aoticache.disable()
    wrong = []
    for (name, got, served, hits), expected in zip(ours, theirs):
        verdict = torch_checks.compare(torch, got, expected)
        print(f"# {name}: {verdict}, {hits} hits")
        if verdict not in torch_checks.VERDICTS or (served and not hits):
            wrong.append(name)
    assert not wrong, f"other than PyTorch, or never by a compiled kernel: {', '.join(wrong)}"


def play(what):
    """Runs in a new process, since operators that one check calls are known to the next."""
    import torch

    import aoticache
    torch.set_num_threads(2)
    aoticache.configure(cache_dir=torch_checks.CACHE)
    if what == "kinds":
        check_kinds()
    else:
        check_refused(what)


@pytest.mark.parametrize("what", ("wait", "background", "kinds"))
def test_refusals_and_kinds(what):
    """Calls that PyTorch refuses are neither compiled nor warned of, in two modes; tensors that are more than numbers in
    memory."""
    os.makedirs(torch_checks.CACHE, mode=0o700, exist_ok=True)
    done = subprocess.run(python("-W", "ignore", HERE, what), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


if __name__ == "__main__":  # started by test_refusals_and_kinds()
    play(sys.argv[1])
