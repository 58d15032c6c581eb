"""Tests the operators that enable() and disable() accept: names, functions of PyTorch, lists, presets in any case; and
those that they refuse, with a hint. Nothing is compiled. Environment: BUILD."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
os.environ.setdefault("AOTICACHE_HOME", BUILD)
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "eager", "torch"))

import pytest  # noqa: E402

pytestmark = pytest.mark.quick


@pytest.fixture(scope="module", autouse=True)
def bridge():
    """Compiles the bridge, which mode "never" does not do."""
    import aoticache
    cache = os.environ.get("CACHE", os.path.join(BUILD, "torch-package-cache"))
    os.makedirs(cache, mode=0o700, exist_ok=True)
    aoticache.configure(cache_dir=cache)
    aoticache.enable("aten::abs", mode="wait")
    aoticache.disable()


def enabled(*requests):
    import aoticache
    with aoticache.enabled(*requests, mode="never") as result:
        return set(result.operators)


def refuses(kind, request, *words):
    import aoticache
    try:
        aoticache.enable(request, mode="never")
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{error}: without {missing}"
        return
    finally:
        assert not aoticache.disable(), f"{request!r} is enabled"
    raise AssertionError(f"{request!r} is not refused")


def test_functions_are_all_overloads_that_can_be_served():
    import torch
    assert enabled(torch.abs) == {"aten::abs", "aten::abs.out"}, "torch.abs(x, out=...) too"
    assert enabled(torch.Tensor.add) == {"aten::add.Scalar", "aten::add.Tensor", "aten::add.out"}
    assert enabled(torch.nn.functional.gelu) == {"aten::gelu", "aten::gelu.out"}
    assert enabled(torch.ops.aten.add.Tensor) == {"aten::add.Tensor"}, "an overload stays one"


def test_lists_are_taken_apart():
    import torch
    found = enabled([torch.abs, ("aten::exp",)], "neg")
    assert found == {"aten::abs", "aten::abs.out", "aten::exp", "aten::neg"}


def test_presets_are_known_in_any_case():
    assert enabled("Pointwise") == enabled("pointwise") and len(enabled("SAFE")) > len(enabled("pointwise")) > 100


def test_disable_takes_what_enable_does():
    import torch

    import aoticache
    aoticache.enable(torch.abs, torch.exp, mode="never")
    assert aoticache.disable([torch.abs]) == ("aten::abs", "aten::abs.out")
    assert aoticache.is_enabled(torch.exp) and not aoticache.is_enabled(torch.abs)
    aoticache.disable()


def test_what_is_refused_comes_with_a_hint():
    import torch

    import aoticache
    refuses(aoticache.OperatorNotFoundError, "all", "pointwise", "safe", "aten::all")
    refuses(aoticache.OperatorRefusedError, torch.softmax, "aten::softmax.int", "aten::_softmax")
    refuses(aoticache.OperatorNotFoundError, len, "len", "name the operator")
    refuses(TypeError, 3, "int")
