"""Numbers that change from call to call: one compiled kernel serves them, with PyTorch's values, exceptions and dtypes; an
optimizer's steps under a schedule; another process that compiles nothing; operators for which the compiler must know them.
"""

import pytest

from torch_scenarios import play, Together

BEGIN = """
import torch, aoticache
torch.manual_seed(5)
x, y, z = torch.randn(12, 16), torch.randn(12, 16) + 3, torch.randn(12, 16)
def on(*names, **settings):
    aoticache.enable(*names, **{"mode": "wait", "judge": False, **settings})
def counts(name):
    return aoticache.stats().operators["aten::" + name]
def changes(call, name, values=range(1, 9)):
    # One at a time: what PyTorch gives, then what we do. The last five are served by one kernel.
    values = [0.125 * value + 0.01 for value in values]
    aoticache.disable()
    expected = [call(value) for value in values]
    on("aten::" + name)
    found = [call(value) for value in values]
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other)
    return found
def served(name, most=4):
    now = counts(name)
    assert now.hits >= 4 and now.compiles <= most, now
"""

SCENARIOS = {
    "one_kernel_for_all_values": """
        changes(lambda v: torch.add(x, y, alpha=v), "add.Tensor")
        served("add.Tensor")
    """,
    "in_place": """
        changes(lambda v: x.clone().addcdiv_(z, y, value=v), "addcdiv_")
        served("addcdiv_")
    """,
    "an_argument_that_may_be_absent": """
        changes(lambda v: torch.clamp(x, min=-v), "clamp")
        served("clamp")
        assert torch.equal(torch.clamp(x, max=0.25), x.minimum(torch.tensor(0.25)))
        torch.testing.assert_close(torch.clamp(x, -0.3, 0.4), x.maximum(torch.tensor(-0.3)).minimum(torch.tensor(0.4)))
    """,
    "two_at_once": """
        changes(lambda v: torch.clamp(x, -v, 2 * v), "clamp")
        served("clamp", 8)
    """,
    "half_precision": """
        for dtype in (torch.bfloat16, torch.float16):
            a, b = x.to(dtype), y.to(dtype)
            found = changes(lambda v: torch.add(a, b, alpha=v), "add.Tensor", range(20, 28))
            assert all(one.dtype == dtype for one in found)
    """,
    "a_tensor_of_integers_becomes_float32": """
        whole = torch.arange(192).reshape(12, 16)
        found = changes(lambda v: torch.clamp(whole, max=100 * v), "clamp", range(40, 48))
        assert all(one.dtype == torch.float32 for one in found), [one.dtype for one in found]
        def refused(v):
            try:
                return whole.add(whole, alpha=v)
            except RuntimeError as error:
                return str(error)
        aoticache.disable()
        expected = [refused(v) for v in (0.5, 0.7, 0.9, 1.1)]
        on("aten::add.Tensor")
        assert [refused(v) for v in (0.5, 0.7, 0.9, 1.1)] == expected
        assert torch.equal(torch.add(whole, whole, alpha=3), 4 * whole), "an integer is compiled in"
    """,
    "what_PyTorch_refuses": """
        changes(lambda v: torch.add(x, y, alpha=v), "add.Tensor")
        for v in (1e39, -3e40):
            try:
                torch.add(x, y, alpha=v)
                raise SystemExit("nothing was raised")
            except RuntimeError as error:
                assert "without overflow" in str(error), error
        assert torch.add(x, y, alpha=float("nan")).isnan().all()
        assert torch.add(x, y, alpha=float("inf")).isinf().all()
        torch.testing.assert_close(torch.add(x, y, alpha=70000.5), x + 70000.5 * y)
    """,
    "what_PyTorch_computes_another_way": """
        special = torch.tensor([-float("inf"), -0.0, 0.0, -2.0, 2.0, float("nan"), float("inf"), 1e-40] * 8)
        for name, values, call in (("pow.Tensor_Scalar", (0.7, 2.0, 0.5, -0.5, 3.0), lambda v: torch.pow(special, v)),
                                   ("add.Tensor", (0.7, 1.3, 2.5, 1.0, 0.0), lambda v: torch.add(x, special[:16], alpha=v))):
            aoticache.disable()
            expected = [call(v) for v in values]
            on("aten::" + name)
            for v, other in zip(values, expected):
                torch.testing.assert_close(call(v), other, equal_nan=True)
                assert torch.equal(torch.signbit(call(v)).logical_or(other.isnan()),
                                   torch.signbit(other).logical_or(other.isnan())), (name, v)
    """,
    "autograd": """
        on("aten::add.Tensor")
        for v in (0.3, 0.4, 0.5, 0.6, 0.7):
            w = x.clone().requires_grad_()
            u = y.clone().requires_grad_()
            torch.add(w, u, alpha=v).sum().backward()
            assert torch.equal(w.grad, torch.ones_like(w))
            torch.testing.assert_close(u.grad, torch.full_like(u, v))
    """,
    "what_the_compiler_must_know_is_compiled_in": """
        square = torch.randn(16, 16)
        changes(lambda v: torch.addmm(x, z, square, alpha=v), "addmm")
        assert counts("addmm").libraries >= 6, counts("addmm")
    """,
    "never_means_each_value": """
        on("aten::leaky_relu", dynamic="never")
        for v in (0.01, 0.02, 0.03, 0.04):
            torch.testing.assert_close(torch.nn.functional.leaky_relu(x, v), torch.where(x > 0, x, v * x))
        assert counts("leaky_relu").libraries == 4, counts("leaky_relu")
    """,
    "threads": """
        import threading
        changes(lambda v: torch.add(x, y, alpha=v), "add.Tensor")
        wrong = []
        def work(first):
            for i in range(500):
                v = first + i / 64
                if not torch.allclose(torch.add(x, y, alpha=v), x + v * y, atol=1e-4):
                    wrong.append(v)
        threads = [threading.Thread(target=work, args=(10 * n,)) for n in range(4)]
        [one.start() for one in threads]
        [one.join() for one in threads]
        assert not wrong, wrong[:5]
    """,
    "trials": """
        def step(v):
            return torch.add(x, y, alpha=v)
        aoticache.enable("aten::add.Tensor", judge=True, mode="background")
        for i in range(400):
            torch.testing.assert_close(step(0.01 * i + 0.5), x + (0.01 * i + 0.5) * y)
            if i < 8:
                aoticache.wait()
        assert counts("add.Tensor").judged >= 1, counts("add.Tensor")
    """,
}

OPTIMIZERS = BEGIN + """
from torch import nn
def train(make_optimizer, steps=16):
    torch.manual_seed(1)
    model = nn.Linear(16, 8)
    optimizer = make_optimizer(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        schedule.step()
        aoticache.wait()
    return [one.detach().clone() for one in model.parameters()]
makers = (lambda p: torch.optim.AdamW(p, lr=1e-2), lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
          lambda p: torch.optim.SGD(p, lr=1e-2))
"""

TRAINS = OPTIMIZERS + """
expected = [train(make) for make in makers]
on("aten::addcdiv_", "aten::add_.Tensor", mode="background")
for make, one in zip(makers, expected):
    for found, parameter in zip(train(make), one):
        torch.testing.assert_close(found, parameter, rtol=1e-4, atol=1e-5)
for name in ("addcdiv_", "add_.Tensor"):
    assert counts(name).hits > counts(name).calls / 2, counts(name)
    assert counts(name).compiles < 24, counts(name)
print("done")
"""

# A third value is passed to operators that have kernels with two other values; what the first process compiled serves it.
TRAINS_AGAIN = OPTIMIZERS + """
expected = train(makers[0], 40)
on("aten::addcdiv_", mode="never")
found = train(makers[0], 40)
for one, parameter in zip(found, expected):
    torch.testing.assert_close(one, parameter, rtol=1e-4, atol=1e-5)
assert counts("addcdiv_").hits == counts("addcdiv_").calls == 80 and counts("addcdiv_").misses == 0, counts("addcdiv_")
print("done")
"""


def test_optimizers_under_a_schedule():
    play(TRAINS)
    play(TRAINS_AGAIN)


together = Together(BEGIN)


@pytest.mark.parametrize("name", SCENARIOS)
def test_together(name):
    together.play(name, SCENARIOS[name])
