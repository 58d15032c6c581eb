"""Tests digests of Python functions (eager/torch/aoticache/_digests/bodies.py): what changes them, what does not, and what has
none."""
import functools
import os
import subprocess
import sys
import textwrap
import threading

import pytest
import torch

from torch_scenarios import HERE, TOP

sys.path.insert(0, os.path.join(TOP, "eager", "torch"))
from aoticache._digests import NotDigestible, digest  # noqa: E402

FACTOR = 2.0


def scale(x):
    return x * FACTOR


def calls_another(x):
    return scale(x) + 1


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def apply(self, x):
        return x * self.factor


def closing_over(value):
    return lambda x: x * value


def with_default(value):
    def function(x, y=value, *, z=value):
        return x * y + z
    return function


def text_of(text, name="body"):
    """Returns a function with this source, as if it were in its own module."""
    found = {"__name__": "example"}
    exec(compile(textwrap.dedent(text), "example.py", "exec"), found)
    return found[name]


def recursive(n):
    return 1 if n == 0 else recursive(n - 1)


@pytest.mark.quick
def test_what_changes_a_digest(monkeypatch):
    first = digest(calls_another)
    assert digest(calls_another) == first
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert digest(calls_another) != first
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert digest(calls_another) == first
    monkeypatch.setitem(globals(), "scale", lambda x: x)
    assert digest(calls_another) != first
    for make in (closing_over, with_default, lambda value: Scaled(value).apply, lambda value: functools.partial(scale, value)):
        for one, other in ((1, 2), (1, 1.0), (0.0, -0.0), (1, True), ((1, 2), (1, (2,))), ("a", b"a"), ([1], (1,)),
                           ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (torch.ones(2), torch.zeros(2)),
                           (torch.ones(2), torch.ones(2, dtype=torch.float64)), (torch.float32, torch.float64)):
            assert digest(make(one)) == digest(make(one)), one
            assert digest(make(one)) != digest(make(other)), (one, other)
    assert digest(recursive)


@pytest.mark.quick
def test_code_and_nothing_else_makes_a_digest():
    """Neither the function's location, nor the names through which it calls PyTorch's functions."""
    body = "def body(x):\n    return x * 2 + len((1, 2))\n"
    assert digest(text_of(body)) == digest(text_of("\n\n" + body))
    for other in ("def body(x):\n    return x * 3 + len((1, 2))\n", "def body(x):\n    return x + 2 * len((1, 2))\n",
                  "def body(x):\n    return x * 2 + sum((1, 2))\n", "def body(x):\n    return x * 2 + len((1, 3))\n"):
        assert digest(text_of(body)) != digest(text_of(other)), other
    within = "def outer():\n    def inner(x):\n        return x * {}\n    return inner\n"
    assert digest(text_of(within.format(2), "outer")) != digest(text_of(within.format(3), "outer"))
    wrapped = [functools.wraps(one)(torch.no_grad()(one)) for one in (closing_over(2), closing_over(3))]
    assert digest(wrapped[0]) != digest(wrapped[1])


@pytest.mark.quick
def test_a_replaced_function_of_a_module_is_noticed(monkeypatch):
    body = text_of("import torch\ndef body(x):\n    return torch.nn.functional.relu(x)\n")
    first = digest(body)
    monkeypatch.setattr(torch.nn.functional, "relu", lambda x: x)
    assert digest(body) != first


@pytest.mark.quick
@pytest.mark.parametrize("text, named", [
    ("import os\ndef body(x):\n    return x * float(os.environ['X'])\n", "environ"),
    ("def body(x):\n    return eval('x * 2')\n", "eval"),
    ("def body(x):\n    with open('factor') as file:\n        return x * float(file.read())\n", "open"),
    ("def body(x):\n    import not_there\n    return not_there.f(x)\n", "not_there"),
])
def test_what_reads_more_than_a_digest_has(text, named):
    with pytest.raises(NotDigestible, match=named):
        digest(text_of(text))


@pytest.mark.quick
def test_values_without_content():
    with open(os.devnull) as file:
        for value in (file, threading.Lock(), torch.ones(1 << 20), torch.ones(2, device="meta"), (one for one in ()),
                      torch.ones(2).to_sparse()):
            with pytest.raises(NotDigestible):
                digest(closing_over(value))


def test_the_same_in_another_process():
    """From the source and from its bytecode, with other string hashes."""
    text = """
        import sys
        sys.path[:0] = sys.argv[1:4]
        import test_bodies
        from aoticache._digests import digest
        made = [digest(one) for one in (test_bodies.calls_another, test_bodies.Scaled, test_bodies.Scaled(2).apply,
                                        test_bodies.closing_over(frozenset(("a", "b", "c", 1))), test_bodies.recursive)]
        print("DIGESTS", made)
    """
    found = set()
    for seed in ("1", "2", "2"):
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(text), HERE, os.path.dirname(os.path.abspath(__file__)),
                               os.path.join(TOP, "eager", "torch")],
                              capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": seed})
        assert done.returncode == 0, done.stderr
        found.add(done.stdout[done.stdout.index("DIGESTS"):])
    assert len(found) == 1, found
