"""Tests plug mode: PyTorch's own AOTI-eager compiles and loads through the cache, and a second process compiles nothing."""
from torch_scenarios import need_bridge, play

TEXT = """
import sys, torch, aoticache
from torch._inductor import aoti_eager
before = dict(aoti_eager._aoti_compile_backends)
x = torch.linspace(-3, 3, 12).reshape(3, 4)
expected = torch.abs(x), torch.maximum(x, -x), x.sum(1), torch.clamp(x, -1.0, 1.5)
assert aoticache.install_backend("cpu")
compiled = []
backend = aoti_eager._aoti_compile_backends["cpu"]
made = backend.compile_fn
def watch(*arguments, **more):
    compiled.append(arguments[1])
    return made(*arguments, **more)
backend.compile_fn = watch
library = torch.library.Library("aten", "IMPL")
for name in ("abs", "maximum", "sum.dim_IntList", "clamp"):
    library._impl_with_aoti_compile(name, "CPU")
for _ in range(2):
    torch.testing.assert_close(torch.abs(x), expected[0], rtol=0, atol=0)
    torch.testing.assert_close(torch.maximum(x, -x), expected[1], rtol=0, atol=0)
    torch.testing.assert_close(torch.clamp(x, -1.0, 1.5), expected[3], rtol=0, atol=0)
paths = list(backend.load_fn.__self__.held)
assert paths and all(path.startswith(aoticache._operators.session.current().cache.directory) for path in paths), paths
print("compiled", *compiled)
del library
assert aoticache.uninstall_backend("cpu") and not aoticache.uninstall_backend("cpu")
assert aoti_eager._aoti_compile_backends == before
assert "aoti_eager" not in " ".join(paths)
print("done")
"""


def compiled_in(said):
    return next(line for line in said.splitlines() if line.startswith("compiled")).split()[1:]


def test_compiles_once_and_then_loads():
    play(TEXT)
    said = play(TEXT)
    # Loaded at the start, without a compile request. (AOTI-eager cannot describe a list of numbers.)
    assert "abs" not in compiled_in(said) and "maximum" not in compiled_in(said), said


def test_shares_its_entries_with_native_mode():
    need_bridge()
    play("""
        import torch, aoticache
        aoticache.install_backend("cpu")
        library = torch.library.Library("aten", "IMPL")
        library._impl_with_aoti_compile("abs", "CPU")
        torch.abs(torch.full((3, 4), -1.5))
        print("done")
    """)
    play("""
        import torch, aoticache
        aoticache.enable("aten::abs", mode="never", judge=False)
        assert torch.abs(torch.full((3, 4), -1.5)).sum() == 18
        assert aoticache.stats().operators["aten::abs"].hits == 1, aoticache.stats()
        print("done")
    """)


def test_what_it_cannot_have_is_told():
    said = play("""
        import torch, aoticache
        assert not aoticache.install_backend("cpu", cache_dir="/proc/nowhere/cache")
        try:
            aoticache.install_backend("xpu")
        except ValueError as error:
            assert "'xpu' is not supported" in str(error)
        print("done")
    """)
    assert said.count("AoticacheWarning: aoticache:") == 1, said
