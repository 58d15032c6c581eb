"""Tests torch.compile with the cache when what an operator calls changes between two processes: the second one gets PyTorch's
answer (docs/torch-compile.md, *What is not in the graph*). The keys themselves are tested in test_state.py."""
import pytest

from compile_runs import COMPILER, PLAIN, QUICK, fresh
from torch_scenarios import play

#: Each function is compiled with one factor and then, in another process, with another one. A result that was stored for the
#: first is wrong for the second.
TEXT = """
    import sys, warnings
    import torch, aoticache
    from torch._inductor.decomposition import register_decomposition
    from torch._inductor.lowering import lowerings, register_lowering
    assert aoticache.install_compile_cache()
    again, second = sys.argv[1] == "again", sys.argv[1] != "fill"
    factor = 2.0 if not again else 5.0
    library = torch.library.Library("mine", "DEF")
    for name in ("composite", "decomposed", "lowered"):
        library.define(f"{name}(Tensor x) -> Tensor")
    body = lambda x: x * factor + 1
    library.impl("composite", body, "CompositeImplicitAutograd")
    for name in ("decomposed", "lowered"):
        library.impl(name, body, "CPU")
        torch.library.register_fake(f"mine::{name}", lambda x: torch.empty_like(x), lib=library)
    register_decomposition(torch.ops.mine.decomposed.default)(lambda x: x * factor + 1)
    aten = torch.ops.aten
    register_lowering(torch.ops.mine.lowered.default)(
        lambda x: lowerings[aten.add.Tensor](lowerings[aten.mul.Tensor](x, factor), 1.0))

    @torch.library.custom_op("mine::fill", mutates_args=("x",) if again else ())
    def fill(x: torch.Tensor) -> None:
        if again:
            x.mul_(2)
    fill.register_fake(lambda x: None)

    @torch.library.custom_op("mine::scaled", mutates_args=())
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * 2
    scaled.register_fake(lambda x: torch.empty_like(x))
    scaled.register_autograd(lambda context, gradient: gradient * factor)

    @torch.library.custom_op("mine::turned", mutates_args=())
    def turned(x: torch.Tensor) -> torch.Tensor:
        return x.t().contiguous() if again else x.contiguous().clone()
    turned.register_fake(lambda x: torch.empty_like(x.t() if again else x, memory_format=torch.contiguous_format))

    def filled(x):
        y = x + 1
        torch.ops.mine.fill(y)
        return y + 1
    gradient_of = lambda function: lambda x: torch.autograd.grad(function(leaf := x.clone().requires_grad_()).sum(), leaf)[0]
    x = torch.linspace(-1, 2, 12).reshape(4, 3)
    functions = {
        "composite": (lambda x: torch.ops.mine.composite(x) + 2, lambda x: x * factor + 3),
        "decomposed": (lambda x: torch.ops.mine.decomposed(x) + 2, lambda x: x * factor + 3),
        "lowered": (lambda x: torch.ops.mine.lowered(x) + 2, lambda x: x * factor + 3),
        "mutates": (filled, filled),
        "turned": (lambda x: torch.ops.mine.turned(x) + 1, lambda x: (x.t() if again else x) + 1),
    }
    with torch.no_grad():
        for name, (function, expected) in functions.items():
            found = torch.compile(function)(x)
            assert found.shape == expected(x).shape and torch.allclose(found, expected(x)), (name, found)
    function = lambda x: torch.ops.mine.scaled(x).sin()
    compiled = torch.compile(function)
    assert torch.allclose(gradient_of(compiled)(x), gradient_of(function)(x)), "the formula of a gradient"
    counts = aoticache.stats().compile
    print("COUNTS", counts["aotautograd"], counts["inductor-graph"])
    if sys.argv[1] == "same":  # all graphs are found; the composite body, which has no digest, is traced again
        assert counts["inductor-graph"].misses == counts["aotautograd"].misses == 0, counts
        assert counts["aotautograd"].hits == 5 and counts["aotautograd"].refused == 1, counts
    print("done")
"""


@pytest.mark.skipif(COMPILER is None, reason="there is no g++")
def test_what_stands_behind_an_operator_may_change():
    cache = fresh("key") + "/cache"
    for word in ("fill", "same", "again"):
        play(TEXT, [word], AOTICACHE_DIR=cache, TORCHINDUCTOR_CACHE_DIR=fresh("inductor"), PYTHONWARNINGS="ignore", **QUICK, **PLAIN)


def test_pytorchs_own_directory_is_right_too():
    """Keeps PyTorch's directory, too: the keys in it are the changed ones."""
    cache, inductor = fresh("key") + "/cache", fresh("inductor")
    for word in ("fill", "again"):
        play(TEXT, [word], AOTICACHE_DIR=cache, TORCHINDUCTOR_CACHE_DIR=inductor, PYTHONWARNINGS="ignore", **QUICK, **PLAIN)
