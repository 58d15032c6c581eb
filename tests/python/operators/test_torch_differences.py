"""Tests calls that compiled kernels once answered differently from PyTorch: they must be right, or not served. Also runs a part
of the differential campaign (torch_differences.py; make long FORMS=python/torch_differences runs all of it).

Environment: BUILD; SEED, COUNT: which pairs of an operator and a dtype, and how many.
"""
import os
import subprocess
import sys

import pytest

import torch_differences
from torch_scenarios import bring_bridge, Together

SEED, COUNT = int(os.environ.get("SEED", "3")), int(os.environ.get("COUNT", "3"))

BEGIN = """
import torch, aoticache
F = torch.nn.functional

def attempt(call):
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def leaves(value):
    return [one for item in value for one in leaves(item)] if isinstance(value, (tuple, list)) else [value]

def same(call, what="", rtol=1e-6, atol=1e-6):
    # As plain PyTorch answers, twice: values, dtypes, sizes, strides and exceptions.
    expected = plain.pop(0)
    for one in attempt(call), attempt(call):
        for got, theirs in zip(leaves(one), leaves(expected), strict=True):
            assert type(got) is type(theirs), (what, got, theirs)
            if isinstance(got, str):
                assert got == theirs, (what, got, theirs)
                continue
            assert got.stride() == theirs.stride(), (what, got.stride(), theirs.stride())
            torch.testing.assert_close(got, theirs, rtol=rtol, atol=atol, equal_nan=True, msg=lambda text: f"{what}: {text}")

def compare(cases, *operators, rtol=1e-6, atol=1e-6, **settings):
    global plain
    plain = [attempt(case) for case in cases.values()]
    aoticache.enable(*operators, **{"mode": "wait", "judge": False, **settings})
    for what, case in cases.items():
        same(case, what, rtol, atol)

def hits():
    return sum(one.hits for one in aoticache.stats().operators.values())
"""

SCENARIOS = {
    "reductions_of_bytes": """
        u = (torch.arange(60) % 13 + 5).to(torch.uint8).reshape(4, 15)
        n = -(torch.arange(60) % 13 + 5).to(torch.int8).reshape(4, 15)
        w = (torch.arange(210) % 13 + 5).to(torch.uint8).reshape(3, 70)
        compare({
            "min of uint8": lambda: u.min(), "amin of uint8": lambda: u.amin(1), "max of int8": lambda: n.max(),
            "amax of int8, first dimension": lambda: n.amax(0), "aminmax of uint8": lambda: tuple(torch.aminmax(u)),
            "argmin of uint8": lambda: u.argmin(), "argmax of int8": lambda: n.argmax(), "min with indices": lambda: tuple(u.min(1)),
            "prod of int8 as int8": lambda: (n // n).prod(dtype=torch.int8), "amin of 70 bytes": lambda: w.amin(1),
            "sum of uint8 as uint8": lambda: w.sum(1, dtype=torch.uint8), "amax of 70 bytes": lambda: (w.to(torch.int8) * -1).amax(1),
        }, "safe")
        assert hits() > 10, aoticache.stats()
    """,
    "the_default_dtype": """
        x = torch.arange(1, 33)
        cases = {"sqrt": lambda: torch.sqrt(x), "true division": lambda: x / 3, "of floats": lambda: torch.sigmoid(x.float())}
        try:
            for dtype in torch.float32, torch.float64, torch.float32:
                torch.set_default_dtype(dtype)
                aoticache.disable()
                compare(cases, "aten::sqrt", "aten::sigmoid", "aten::div.Tensor")
                assert hits() >= (2 if dtype == torch.float64 else 6), (dtype, hits())
        finally:
            torch.set_default_dtype(torch.float32)
    """,
    "deterministic_algorithms": """
        x, index, values = torch.zeros(6), torch.tensor([1, 1]), torch.tensor([5.0, 6.0])
        pooled, at = F.max_pool2d(torch.arange(16.0).reshape(1, 1, 4, 4), 2, return_indices=True)
        cases = {"put": lambda: torch.put(x, index, values), "put_": lambda: x.clone().put_(index, values),
                 "max_unpool2d": lambda: F.max_unpool2d(pooled, at, 2), "abs": lambda: torch.abs(x)}
        operators = "aten::put", "aten::put_", "aten::max_unpool2d", "aten::abs"
        compare(cases, *operators)
        try:
            aoticache.disable()
            torch.use_deterministic_algorithms(True)
            compare(cases, *operators)
            assert aoticache.stats().operators["aten::abs"].hits > 0
        finally:
            torch.use_deterministic_algorithms(False)
    """,
    "values_that_pytorch_looks_at": """
        half, ones = torch.full((4, 4), 0.5), torch.ones(4, 4)
        scores = torch.tensor([[1.0, -1.0, 0.5, 0.3, -0.2]] * 3)
        compare({
            "right": lambda: F.binary_cross_entropy(half, ones), "target 1.5": lambda: F.binary_cross_entropy(half, ones * 1.5),
            "input 1.5": lambda: F.binary_cross_entropy(half * 3, ones),
            "-1 ends the targets": lambda: F.multilabel_margin_loss(scores, torch.tensor([[1, 0, -1, -1, -1]] * 3)),
            "a class too large": lambda: F.multi_margin_loss(scores, torch.tensor([0, 5, 1])),
        }, "aten::binary_cross_entropy", "aten::multilabel_margin_loss_forward", "aten::multi_margin_loss")
    """,
    "strides_of_dimensions_of_size_1": """
        x = torch.randn(2, 1, 4, 4).to(memory_format=torch.channels_last)
        row = torch.randn(1, 5).t()
        compare({"one channel, last": lambda: torch.neg(x), "a row turned": lambda: torch.neg(row),
                 "odd": lambda: torch.neg(x.as_strided((1, 4, 4), (7, 4, 1)))}, "aten::neg")
    """,
    "a_number_is_rounded_to_16_bits_first": """
        values = torch.randn(40, generator=torch.Generator().manual_seed(3)) * 9
        near = torch.tensor([1 / 3, 0.1, -1.0, 0.7, 1 / 7, 2.7])  # what results near zero need: the same rounding
        calls = {
            "fmod": lambda x, n: torch.fmod(x, n), "fmod of a tensor": lambda x, n: torch.fmod(x, torch.tensor(n, dtype=torch.float64)),
            "add": lambda x, n: x + n, "sub": lambda x, n: x - n, "rsub": lambda x, n: n - x,
            "sub of a tensor": lambda x, n: x - torch.tensor(n, dtype=torch.float64), "mul": lambda x, n: x * n,
            "pow": lambda x, n: x.abs() ** n, "==": lambda x, n: x == n, ">=": lambda x, n: x >= n,
            "addcmul": lambda x, n: torch.addcmul(x, torch.ones_like(x), torch.ones_like(x), value=n),
            "threshold": lambda x, n: F.threshold(x, n, 7.0), "softshrink": lambda x, n: F.softshrink(x, abs(n)),
            "hardshrink": lambda x, n: F.hardshrink(x, abs(n)),
        }
        compare({f"{what} {number} {dtype}": lambda x=torch.cat([values, near]).to(dtype), number=number, call=call: call(x, number)
                 for what, call in calls.items() for dtype in (torch.float16, torch.bfloat16)
                 for number in (1 / 3, -1.0000001)},
                *[f"aten::{one}" for one in ("fmod.Scalar", "fmod.Tensor", "add.Tensor", "sub.Tensor", "rsub.Scalar", "mul.Tensor",
                                             "pow.Tensor_Scalar", "eq.Scalar", "ge.Scalar", "addcmul", "threshold", "softshrink",
                                             "hardshrink")], rtol=0, atol=0)
        assert hits() > 50, hits()
    """,
    "small_numbers": """
        values = torch.tensor([1e-7, -1e-7, 3e-5, -3e-5, 1e-20, 0.0, -0.0, 0.3, -0.49, 0.51, float("nan"), 2.0, -2.0])
        calls = {"expm1": torch.expm1, "atanh": torch.atanh, "erf": torch.erf, "elu": F.elu, "selu": F.selu,
                 "softshrink": F.softshrink, "clamp": lambda x: x.clamp(0, 1), "relu6": F.relu6,
                 "clamp_min": lambda x: x.clamp_min(0.0)}
        compare({f"{what} of {len(x)} {x.dtype}{sign}": lambda call=call, x=x, sign=sign: call(x).nan_to_num(7).signbit() if sign else call(x)
                 for what, call in calls.items() for x in (values, values.repeat(20), values.double())
                 for sign in ("", ", sign") if not sign or what != "softshrink"},  # PyTorch's depends on the place
                *[f"aten::{what}" for what in ("expm1", "atanh", "erf", "elu", "softshrink", "clamp", "clamp_min", "hardtanh")],
                rtol=1e-6, atol=0)
        compare({"softshrink of NaN": lambda: F.softshrink(torch.tensor(float("nan"), dtype=torch.float64)),
                 **{f"softshrink by {number}": lambda number=number: F.softshrink(values, number)
                    for number in (0.1, 0.2, 0.3, -0.5)}}, "aten::softshrink")
        assert hits() > 20, hits()
    """,
    "storages": """
        one, many = torch.ones(1, dtype=torch.int16), torch.arange(64.0)
        compare({
            "scatter into an expanded tensor": lambda: torch.as_strided_scatter(one.expand(16), torch.zeros(4, 4, dtype=torch.int16), (4, 4), (4, 1)),
            "scatter beyond": lambda: torch.as_strided_scatter(many[:4], torch.zeros(8, 4), (8, 4), (4, 1)),
            "copy beyond": lambda: torch.as_strided_copy(many[:4], (8, 4), (4, 1)),
        }, "aten::as_strided_scatter", "aten::as_strided_copy")
    """,
    "means_of_nothing": """
        x = torch.empty(0)
        compare({"var_mean": lambda: tuple(torch.var_mean(x)), "std_mean": lambda: tuple(torch.std_mean(x)),
                 "of rows": lambda: tuple(torch.var_mean(torch.empty(3, 0), 1))}, "aten::var_mean.correction", "aten::std_mean.correction")
    """,
    "numbers_beside_float64": """
        ones = torch.ones(3, dtype=torch.float64)
        xs = [torch.tensor([0.3, -1.7, 2.9, 0.01, -0.4], dtype=torch.float64) * scale for scale in (1, 1.3, 0.7, 2.1, 3.3)]
        weights = torch.arange(1.0, 6.0, dtype=torch.float64)
        calls = {
            "==": lambda v: (ones * v) == v, ">=": lambda v: (ones * v) >= v, "clamp": lambda v: ones.clamp(max=v),
            "addcmul": lambda v: ones.addcmul(ones, ones, value=v), "v - x": lambda v: v - ones,
            "leaky_relu": lambda v: F.leaky_relu(-ones, v), "fmod": lambda v: torch.fmod(ones, v),
            "xlogy": lambda v: torch.xlogy(ones + 1, v), "threshold": lambda v: F.threshold(ones * v, v, 7.0),
        }
        numbers = 1 / 3, 1 / 7, 0.1, 2 / 3, 0.7, 1.1, 1 / 9
        compare({"histograms": lambda: [torch.histogram(x, 1, weight=weights).hist for x in xs],
                 **{f"{what} {v}": lambda call=call, v=v: call(v) for what, call in calls.items() for v in numbers}},
                "aten::*", rtol=1e-15, atol=1e-15)
    """,
}


@pytest.fixture(scope="module", autouse=True)
def cache():
    """Returns a separate cache: other tests count how many kernels of these operators are compiled."""
    os.makedirs(torch_differences.CACHE, mode=0o700, exist_ok=True)
    return bring_bridge(torch_differences.CACHE)


@pytest.fixture(scope="module")
def together(cache):
    return Together(BEGIN, AOTICACHE_DIR=cache)


@pytest.mark.parametrize("name", SCENARIOS)
def test_is_as_pytorch_has_it(together, name):
    together.play(name, SCENARIOS[name])


def test_options_of_the_compiler_do_not_reach_a_worker():
    """Options that come from variables, which are in no key. With this one PyTorch's compiler cannot be imported."""
    variables = {**os.environ, "TORCHINDUCTOR_PRECOMPILATION_TIMEOUT_SECONDS": "no number"}
    plain = subprocess.run([sys.executable, "-c", "import torch._inductor.config"], env=variables, capture_output=True)
    assert b"no number" in plain.stderr, plain
    worker = os.path.join(torch_differences.BUILD, "share", "aoticache", "worker.py")
    done = subprocess.run([sys.executable, worker, "--once"], input=b'{"id": 1}\n', capture_output=True, env=variables)
    assert b"this worker supports" in done.stdout, done


def test_a_part_of_the_campaign():
    found = torch_differences.run_all(torch_differences.sampled(SEED, COUNT))
    wrong = torch_differences.report(found)
    print(f"# {len(found)} cases, a compiled kernel answers in {sum(one.get('served', False) for one in found)}")
    assert found and not wrong, f"{wrong} of {len(found)} cases are not as PyTorch has them"
