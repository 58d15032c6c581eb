"""Tests operators that write to their arguments, with compiled kernels: in place, with out=, lists of tensors, running
statistics. Values, the memory around them, version counters, views, exceptions and warnings are PyTorch's own, a miss is
computed once, and a few operators of the database drawn by a seed agree in all of this (make torch-checks: all of them).

Environment: BUILD; SEED, COUNT: which operators of the database, and how many; CACHE.
"""
import os
import sys

import pytest

os.environ["PART"] = "writes"
os.environ.setdefault("QUICK", "1")

import torch_checks  # noqa: E402
from torch_scenarios import play, Together  # noqa: E402

SEED, COUNT = int(os.environ.get("SEED", "3")), int(os.environ.get("COUNT", "2"))

BEGIN = """
import warnings, torch, aoticache
torch.manual_seed(5)
x, y = torch.randn(4, 6), torch.randn(4, 6)
def on(*names, mode="wait"):
    aoticache.enable(*names, mode=mode, judge=False)
def hits(name):
    return aoticache.stats().operators["aten::" + name].hits
def thrice(call, name, more=2):
    before = hits(name)
    results = [call() for _ in range(3)]
    assert hits(name) >= before + more, aoticache.stats()
    return results
"""

SCENARIOS = {
    "in_place_writes_once_and_returns_its_argument": """
        on("aten::add_.Tensor")
        z, version = x.clone(), 0
        for turn in range(1, 5):
            version = z._version
            assert z.add_(y, alpha=2) is z and z._version == version + 1
            torch.testing.assert_close(z, x + turn * 2 * y)
        assert hits("add_.Tensor") >= 3, aoticache.stats()
    """,
    "a_view_stays_a_view": """
        on("aten::mul_.Tensor")
        base = torch.zeros(8, 6) + 1
        part = base[2:6]
        thrice(lambda: part.mul_(y), "mul_.Tensor")
        assert part._base is base and torch.equal(base[:2], torch.ones(2, 6)) and torch.equal(base[6:], torch.ones(2, 6))
        torch.testing.assert_close(base[2:6], y * y * y)
        assert base._version == part._version > 0
    """,
    "autograd_sees_what_was_written": """
        on("aten::mul_.Tensor", "aten::relu_")
        for _ in range(3):
            w = x.clone().requires_grad_()
            (w * 1).mul_(y).relu_().sum().backward()
            assert torch.equal(w.grad, y * (x * y > 0))
        assert hits("relu_") >= 2 and hits("mul_.Tensor") >= 2, aoticache.stats()
        w = x.clone().requires_grad_()
        kept = torch.exp(w)
        loss = kept.sum()
        kept.mul_(y)
        try:
            loss.backward(); kept.sum().backward()
            raise AssertionError("autograd did not notice")
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error), error
        try:
            w.mul_(y)
            raise AssertionError("a leaf was written to")
        except RuntimeError as error:
            assert "leaf" in str(error), error
    """,
    "out_keeps_its_memory_and_other_sizes_are_PyTorchs": """
        on("aten::add.out", "aten::clamp.Tensor_out", "aten::max.dim_max")
        out = torch.empty(4, 6)
        place = out.data_ptr()
        for result in thrice(lambda: torch.clamp(x, y - 1, y + 1, out=out), "clamp.Tensor_out"):
            assert result is out and out.data_ptr() == place
        assert torch.equal(out, torch.min(torch.max(x, y - 1), y + 1))
        wide = torch.empty(4, 6, dtype=torch.float64)
        thrice(lambda: torch.add(x, y, out=wide), "add.out")
        assert torch.equal(wide, (x + y).double())
        for _ in range(3):
            small = torch.ones(2)
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                torch.add(x, y, out=small)
            assert torch.equal(small, x + y) and "was resized" in str(warned[0].message), warned
        for _ in range(3):
            values, places = torch.empty(4), torch.empty(4, dtype=torch.int64)
            result = torch.max(x, 1, out=(values, places))
            assert result[0] is values and result[1] is places
            assert torch.equal(values, x.amax(1)) and torch.equal(places, x.argmax(1))
        assert hits("max.dim_max") >= 2, aoticache.stats()
    """,
    "copies_are_PyTorchs_whatever_their_layouts_and_dtypes": """
        wild = torch.tensor([[300.0, -300.0, float("nan"), float("inf"), -0.0, 1.5]] * 4)
        short, long, heads = wild.bfloat16(), wild.double() * 1000, torch.randn(2, 4, 3)
        whole, small = torch.tensor([(1 << 53) + 1, -1, 1 << 40]), torch.tensor([300, -1, 128])
        truth, wave = torch.eye(2).bool(), torch.tensor([1 + 2j, 0j, 1j, 3 + 0j])
        number = torch.tensor(2.5)
        def into(tensor, source, **options):
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                try:
                    found = tensor.copy_(source, **options)
                except RuntimeError as error:
                    return str(error)
                assert found is tensor
            base = tensor._base if tensor._base is not None else tensor
            warnings_of = [str(one.message)[:40] for one in warned]
            return repr(base.detach().tolist()), base.dtype, tensor._version, tensor.stride(), warnings_of  # without a copy
        def zeros(*sizes, dtype=torch.float32):
            return torch.zeros(*sizes, dtype=dtype)
        # What compiled kernels answer; then what is PyTorch's.
        served = {
            "transposed": lambda: into(zeros(6, 4), x.t()),
            "into a transposed one": lambda: into(zeros(6, 4).t(), x),
            "into every second column": lambda: into(zeros(4, 12)[:, ::2], x),
            "permuted heads": lambda: into(zeros(2, 3, 4), heads.transpose(1, 2)),
            "one row for all": lambda: into(zeros(4, 6), y[0]),
            "one number for all": lambda: into(zeros(4, 6), number),
            "to bfloat16": lambda: into(zeros(4, 6, dtype=torch.bfloat16), wild),
            "from bfloat16": lambda: into(zeros(4, 6), short),
            "to float16, which has no 300000": lambda: into(zeros(4, 6, dtype=torch.float16), long),
            "integers to floats": lambda: into(zeros(3), whole),
            "integers that wrap": lambda: into(zeros(3, dtype=torch.int8), small),
            "nothing": lambda: into(zeros(0, 6), x[:0]),
            "bools": lambda: into(zeros(2, 2, dtype=torch.bool), truth.t()),
        }
        others = {
            "floats to int8": lambda: into(zeros(4, 6, dtype=torch.int8), wild),
            "floats to bool": lambda: into(zeros(4, 6, dtype=torch.bool), wild),
            "complex to real": lambda: into(zeros(4), wave),
            "conjugated": lambda: into(zeros(2, dtype=torch.complex64), wave[:2].conj()),
            "negated": lambda: into(zeros(4), wave.conj().imag),
            "itself": lambda: (lambda one: into(one, one))(torch.ones(4, 6)),
            "its neighbour": lambda: (lambda one: into(one[1:], one[:-1]))(torch.arange(24.0).reshape(4, 6)),
            "into one that overlaps itself": lambda: into(zeros(1, 6).expand(4, 6), x),
            "other sizes": lambda: into(zeros(4, 5), x),
            "a leaf": lambda: into(zeros(4, 6).requires_grad_(), x),
        }
        torch.set_warn_always(True)
        expected = {name: call() for name, call in {**served, **others}.items()}
        on("aten::copy_")
        for name, call in {**served, **others}.items():
            before = hits("copy_")
            for _ in range(3):
                found = call()
                assert found == expected[name], (name, found, expected[name])
            assert (hits("copy_") >= before + 2) == (name in served), (name, aoticache.stats())
        torch.set_warn_always(False)
        aoticache.disable()
        assert "aten::copy_" in aoticache.enable("safe", mode="never").operators
    """,
    "sums_of_floats_as_small_integers_are_PyTorchs": """
        wild = torch.tensor([300.0, 1e9, float("nan"), -300.0])
        calls = [lambda: torch.sum(wild, dtype=torch.int8), lambda: torch.nansum(wild, dtype=torch.int8),
                 lambda: torch.sum(wild, 0, dtype=torch.int8), lambda: torch.sum(wild.long(), dtype=torch.int8)]
        expected = [call() for call in calls]
        on("aten::sum", "aten::sum.dim_IntList", "aten::nansum")
        for call, theirs in zip(calls, expected):
            for _ in range(3):
                assert torch.equal(call(), theirs), (call(), theirs)
        assert hits("sum.dim_IntList") == hits("nansum") == 0 and hits("sum") in (2, 3), aoticache.stats()
    """,
    "what_overlaps_is_PyTorchs": """
        on("aten::add_.Tensor", "aten::index_add_")
        z = x.clone()
        for _ in range(3):
            z.add_(y)
        before = hits("add_.Tensor")
        z = x.clone()
        for _ in range(3):
            z.add_(z)
        torch.testing.assert_close(z, 8 * x)
        for call in (lambda: torch.ones(1).expand(6).add_(y[0]), lambda: z.flatten()[:13].add_(z.flatten()[1:14])):
            try:
                call()
                raise AssertionError("PyTorch refuses this")
            except RuntimeError as error:
                assert "unsupported operation" in str(error), error
        assert hits("add_.Tensor") == before, aoticache.stats()
        for index in ([0, 1], [0, 9], [0, -1]):
            theirs = ours = None
            try:
                ours = x.clone().index_add_(0, torch.tensor(index), y[:2])
            except (IndexError, RuntimeError) as error:
                ours = str(error)
            aoticache.disable("aten::index_add_")
            try:
                theirs = x.clone().index_add_(0, torch.tensor(index), y[:2])
            except (IndexError, RuntimeError) as error:
                theirs = str(error)
            on("aten::index_add_")
            assert str(ours) == str(theirs), (ours, theirs)
    """,
    "batch_norm_in_training_moves_its_statistics_once": """
        images = [torch.randn(3, 5, 4, 4) for _ in range(4)]
        theirs = torch.nn.BatchNorm2d(5)
        expected = [theirs(image) for image in images]
        on("aten::native_batch_norm")
        ours = torch.nn.BatchNorm2d(5)
        got = [ours(image) for image in images]
        assert hits("native_batch_norm") >= 3, aoticache.stats()
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
        assert ours.running_mean._version == theirs.running_mean._version
        got[3].sum().backward(); expected[3].sum().backward()
        torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
        ours.eval(); theirs.eval()
        torch.testing.assert_close([ours(images[0]) for _ in range(3)], [theirs(images[0]) for _ in range(3)])
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    """,
    "lists_of_tensors_are_written_to_in_one_call": """
        on("aten::_foreach_add_.List")
        ours, steps = [x.clone(), y[0].clone()], [y.clone(), x[0].clone()]
        versions = [one._version for one in ours]
        thrice(lambda: torch._foreach_add_(ours, steps, alpha=3), "_foreach_add_.List")
        torch.testing.assert_close(ours, [x + 9 * y, y[0] + 9 * x[0]])
        assert [one._version for one in ours] == [version + 3 for version in versions]
        torch._foreach_add_([ours[0], ours[0]], [y, y])
        torch.testing.assert_close(ours[0], x + 11 * y)
    """,
    "a_background_miss_is_computed_once": """
        on("aten::sub_.Tensor", mode="background")
        z = x.clone()
        for _ in range(3):
            z.sub_(y)
            aoticache.wait()
        torch.testing.assert_close(z, x - y - y - y)
        assert hits("sub_.Tensor") >= 2, aoticache.stats()
    """,
    "judged_kernels_and_PyTorchs_write_by_turns": """
        aoticache.enable("aten::addcmul_", mode="wait")
        z = x.clone().double()
        for _ in range(60):
            z.addcmul_(y.double(), y.double(), value=0.5)
        torch.testing.assert_close(z, x.double() + 30 * y.double() ** 2)
    """,
}

PLUG = """
    import torch, aoticache
    x, low = torch.randn(4, 6), torch.zeros(4, 6)
    expected = torch.clamp(x, low, low + 1)
    assert aoticache.install_backend("cpu")
    library = torch.library.Library("aten", "IMPL")
    library._impl_with_aoti_compile("clamp.Tensor_out", "CPU")
    library._impl_with_aoti_compile("neg_", "CPU")
    for _ in range(2):
        out = torch.empty(4, 6)
        result = torch.clamp(x, low, low + 1, out=out)
        assert torch.equal(out, expected) and torch.equal(result, expected)
        y = x.clone()
        assert torch.equal(y.neg_(), x * -1) and torch.equal(y, x * -1)
    print("done")
"""


def test_plug_mode_takes_what_AOTI_eager_takes():
    play(PLUG)
    play(PLUG)  # and finds it again


def test_operators_of_the_database():
    found, wrong = torch_checks.sample(SEED, COUNT)
    hits = sum(any(hits for _, hits, _ in one["operators"].values()) for one in found)
    print(f"# {len(found)} cases, a compiled kernel answers in {hits}")
    assert hits > 4, "too few cases have a compiled kernel"
    assert not wrong, f"{wrong} of {len(found)} cases are not as PyTorch has them"


together = Together(BEGIN)


@pytest.mark.parametrize("name", SCENARIOS)
def test_together(name):
    together.play(name, SCENARIOS[name])
